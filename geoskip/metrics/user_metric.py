"""A user's own metric: a Python function that was declared to be one.

It takes the coordinates of one point and then those of the other, as a query calls it: ``f(a, b)`` over one
expression, ``f(x1, y1, x2, y2)`` over two. It is called once a distinct point and origin when an index is built, with
finite numbers only: rows with NaN or an infinity are odd, as they are to the metrics over numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from geoskip.metrics.base import Floats, Metric, Points, null_rows
from geoskip.types import SqlType, sql_type

__all__ = ["UserMetric"]


class UserMetric(Metric):
    """The metric of a Python function. Many points are a list of tuples, one entry an expression."""

    relative: ClassVar[float] = 1e-6
    """It may compute in single precision."""
    slack: ClassVar[float] = 1e-12

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name  # type: ignore[misc]
        self.function = function

    def refusal(self, types: Sequence[str]) -> str | None:
        for kind in types:
            if not _is_plain(sql_type(kind)):
                return (
                    f"{self.name} over {kind} values cannot be kept, since what the function is given of them differs "
                    "with how it is called; index numbers, strings, booleans or arrays of them, such as unix_micros(t)"
                )
        return None

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        some, every = null_rows(values)
        good = pa.array(~some)
        columns = [value.filter(good) for value in values]
        try:
            rows = list(zip(*(map(_hashable, column.to_pylist()) for column in columns), strict=True))
        except UnicodeDecodeError:  # a string that is not UTF-8: all are odd then
            return Points([], len(some), int(some.sum()), int(every.sum()), len(columns[0]))
        distinct = list(dict.fromkeys(rows))
        finite = [row for row in distinct if _is_finite(row)]
        odd = 0 if len(finite) == len(distinct) else sum(not _is_finite(row) for row in rows)
        return Points(finite, len(some), int(some.sum()), int(every.sum()), odd)

    def point(self, constants: Sequence[Any], like: Any = None) -> tuple[Any, ...] | None:
        point = tuple(map(_hashable, constants))
        return point if self._measured(like if like is not None else point, point) is not None else None

    def of(self, points: Sequence[Any]) -> list[Any]:
        return list(points)

    def take(self, data: list[Any], places: Sequence[int]) -> list[Any]:
        return [data[place] for place in places]

    def distances(self, origin: Any, data: list[Any]) -> Floats:
        found = [self._measured(origin, point) for point in data]
        return np.array([math.nan if distance is None else distance for distance in found], dtype=np.float64)

    def largest(self, point: Any, reach: Floats, away: Floats, high: Floats) -> Floats:
        """The distances themselves: nothing else is known of the function."""
        return np.asarray((away[:, None] + high).min(axis=0))

    def count(self, data: list[Any]) -> int:
        return len(data)

    def _measured(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> float | None:
        try:
            distance = float(self.function(*map(_given, a), *map(_given, b)))
        except Exception:
            return None
        return distance if 0 <= distance < math.inf else None


def _is_plain(kind: SqlType) -> bool:
    """True where a build, a literal of a query and Spark give Python the same plain values of this type."""
    while kind.kind == "array":
        kind = kind.element
    return kind.is_integral or kind.is_floating or kind.kind in ("boolean", "string")


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _is_finite(value: Any) -> bool:
    """NaN and infinities are at no distance from themselves by most functions."""
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _given(value: Any) -> Any:
    """A value as Spark hands it to a Python function: an array is a list."""
    return list(map(_given, value)) if isinstance(value, tuple) else value
