"""Metrics: distances that obey the triangle inequality, for MetricDist (soundness rule 9).

========== ============================================= =====================================================
euclidean  numbers, any count of columns                 ``sqrt((x1 - x2)^2 + (y1 - y2)^2 + ...)``
manhattan  numbers, any count of columns                 ``|x1 - x2| + |y1 - y2| + ...``
chebyshev  numbers, any count of columns                 ``max(|x1 - x2|, |y1 - y2|, ...)``
haversine  longitude and latitude in degrees             the central angle, in radians
levenshtein a string                                     insertions, deletions and substitutions of code points
hamming    a whole number, or a string                   differing bits; differing code points, the longer's rest too
angular    an array of numbers                           the angle between two vectors, in radians
jaccard    an array, as a set                            ``1 - |a and b| / |a or b|``
========== ============================================= =====================================================

A *point* is one row's value as plain Python: a tuple of floats, a text, a whole number, a tuple of elements. Many
points are stored in the form that their metric computes with.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.types import SqlType, sql_type

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """Some rows as points in the metric's own form, and the counts of rows that have no distance."""

    data: Any
    rows: int
    nulls: int
    """Rows in which an expression is NULL."""
    blanks: int
    """Rows in which every expression is NULL."""
    odd: int
    """Rows without NULL that are not points of the metric: NaN, too large, a latitude of 91, not UTF-8, ..."""


class Metric(ABC):
    """A metric: d(a, b) = d(b, a), d(a, a) = 0 and d(a, c) <= d(a, b) + d(b, c)."""

    name: ClassVar[str]
    whole: ClassVar[bool] = False
    """True if all distances are whole numbers, computed exactly."""
    outlined: ClassVar[Mapping[str, pa.DataType]] = {}
    """The fields of a file's outline, which is stored with the distances, and their types."""
    relative: ClassVar[float] = 1e-9
    """The relative error of a distance computed by a query."""
    slack: ClassVar[float] = 1e-140
    """The absolute error of a distance computed by a query."""
    opaque: ClassVar[bool] = False
    """True if only the result of a query's arithmetic is known, the distance."""

    @abstractmethod
    def refusal(self, types: Sequence[str]) -> str | None:
        """Return the reason why these types (Spark's names) are not supported, or None."""

    @abstractmethod
    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        """Convert rows to points, given one array per expression.

        ``like`` is a pivot; points of other dimensions are odd.
        """

    @abstractmethod
    def point(self, constants: Sequence[Any], like: Any = None) -> Any:
        """Return the point of some constants, or None."""

    def of(self, points: Sequence[Any]) -> Any:
        """Convert points to the metric's own form; by default a list."""
        return list(points)

    def take(self, data: Any, places: Sequence[int]) -> list[Any]:
        """Select single points."""
        return [data[place] for place in places]

    @abstractmethod
    def distances(self, origin: Any, data: Any) -> Floats:
        """Return the distances from one point to each of many."""

    def table(self, origins: Sequence[Any], data: Any) -> Floats:
        """Return the distances from some points to many, with one row per origin."""
        return np.stack([self.distances(origin, data) for origin in origins])

    def count(self, data: Any) -> int:
        """Return the number of points."""
        return len(data)

    def scale(self, point: Any) -> float:
        """Return the largest coordinate, to which rounding is relative; 0 for points without coordinates."""
        return 0.0

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Widen a range of distances to include the errors of a query's formula."""
        return low, high

    def outline(self, data: Any) -> dict[str, Any]:
        """Summarise a file's points in addition to distances."""
        return {}

    def outline_of(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the outline of a file, given those of its parts."""
        return {}

    def outlines(self, fields: Sequence[pa.Array]) -> Any:
        """Return the outlines of all files in the form for :meth:`files_between`."""
        return None

    def files_between(self, outlines: Any, point: Any, low: float, high: float) -> Mask | None:
        """Mark files that may contain a point at a distance in a range, by their outlines; None if unknown.

        Parameters
        ----------
        outlines
            The outlines of all files, as :meth:`outlines` returns them.
        point
            The constant of the query.
        low, high
            The closed range of distances.
        """
        return None

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        """Return pivots for a dataset without rows to choose from."""
        return ()


def null_rows(values: Sequence[pa.Array]) -> tuple[Mask, Mask]:
    """Return the masks of the rows in which any expression is NULL, and in which all are."""
    some = np.zeros(len(values[0]), dtype=bool)
    every = np.ones(len(values[0]), dtype=bool)
    for value in values:
        if value.null_count:
            null = np.asarray(value.is_null())
            some |= null
            every &= null
        else:
            every[:] = False
    return some, every


class UserMetric(Metric):
    """The metric of a Python function that was declared to be a metric.

    The function takes the coordinates of one point and then those of the other, as in a query: ``f(a, b)`` over one
    expression, ``f(x1, y1, x2, y2)`` over two. A build calls it once per distinct point and pivot, with finite numbers
    only: rows with NaN or an infinity are odd, as in the metrics over numbers. Many points are a list of tuples with
    one entry per expression.
    """

    relative: ClassVar[float] = 1e-6
    """Six digits, since the function may compute in single precision."""
    slack: ClassVar[float] = 1e-12
    opaque: ClassVar[bool] = True

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
        except UnicodeDecodeError:  # a string is not UTF-8: all rows are odd
            return Points([], len(some), int(some.sum()), int(every.sum()), len(columns[0]))
        distinct = list(dict.fromkeys(rows))
        finite = [row for row in distinct if _is_finite(row)]
        odd = 0 if len(finite) == len(distinct) else sum(not _is_finite(row) for row in rows)
        return Points(finite, len(some), int(some.sum()), int(every.sum()), odd)

    def point(self, constants: Sequence[Any], like: Any = None) -> tuple[Any, ...] | None:
        point = tuple(map(_hashable, constants))
        return point if self._distance(like if like is not None else point, point) is not None else None

    def distances(self, origin: Any, data: list[Any]) -> Floats:
        found = [self._distance(origin, point) for point in data]
        return np.array([math.nan if distance is None else distance for distance in found], dtype=np.float64)

    def _distance(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> float | None:
        try:
            distance = float(self.function(*map(_given, a), *map(_given, b)))
        except Exception:
            return None
        return distance if 0 <= distance < math.inf else None


def _is_plain(kind: SqlType) -> bool:
    """True for types with the same Python values in a build, in a literal and in Spark."""
    while kind.kind == "array":
        kind = kind.element
    return kind.is_integral or kind.is_floating or kind.kind in ("boolean", "string")


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _is_finite(value: Any) -> bool:
    """True without NaN and infinities, for which most functions return no distance to themselves."""
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _given(value: Any) -> Any:
    """Convert a value as Spark does for a Python function: an array to a list."""
    return list(map(_given, value)) if isinstance(value, tuple) else value
