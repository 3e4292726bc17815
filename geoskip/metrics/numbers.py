"""Metrics over numeric columns: Minkowski's of order 1, 2 and infinity, and the central angle.

Points are tuples of doubles; many points are one array a coordinate. A coordinate that is NaN, infinite or beyond
1e150 is odd: there SQL's ``sqrt(pow(x - 1, 2))`` overflows and is no metric any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from geoskip.metrics.base import Floats, Metric, Points, null_rows
from geoskip.types import sql_type

__all__ = ["LARGEST", "Chebyshev", "Euclidean", "Haversine", "Manhattan", "doubles"]

LARGEST = 1e150
_FARTHEST_LONGITUDE = 1e5
_ROUNDING = 1e-30
"""The square of a distance, in radii, that is none: what sines of one angle may differ by."""

Columns = tuple[Floats, ...]


def doubles(values: pa.Array) -> Floats:
    """Numbers as doubles, NaN for NULL; those that are no doubles are rounded to the next."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if values.null_count and pa.types.is_integer(values.type):
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.float64, copy=False)


class _Numeric(Metric):
    """The base of metrics over coordinates."""

    def refusal(self, types: Sequence[str]) -> str | None:
        for kind in types:
            if not sql_type(kind).is_numeric:
                return f"{self.name} needs numbers, got {kind}; index numeric expressions, one a coordinate"
        return None

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        some, every = null_rows(values)
        columns = tuple(map(doubles, values))
        good = ~some & self.usable(columns)
        odd = len(good) - int(good.sum()) - int(some.sum())
        data = columns if good.all() else tuple(column[good] for column in columns)
        return Points(data, len(good), int(some.sum()), int(every.sum()), odd)

    def usable(self, columns: Columns) -> Any:
        """Mark rows that are points."""
        fit = np.abs(columns[0]) <= LARGEST  # false for NaN
        for column in columns[1:]:
            fit &= np.abs(column) <= LARGEST
        return fit

    def point(self, constants: Sequence[Any], like: Any = None) -> tuple[float, ...] | None:
        numbers = []
        for value in constants:
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                return None
            try:
                numbers.append(float(value))
            except OverflowError:
                return None
        fit = self.usable(tuple(np.array([number]) for number in numbers))
        return tuple(numbers) if bool(fit[0]) else None

    def of(self, points: Sequence[Any]) -> Columns:
        return tuple(np.array(column, dtype=np.float64) for column in zip(*points, strict=True))

    def take(self, data: Columns, places: Sequence[int]) -> list[tuple[float, ...]]:
        return [tuple(float(column[place]) for column in data) for place in places]

    def count(self, data: Columns) -> int:
        return len(data[0]) if data else 0

    def scale(self, point: Any) -> float:
        return float(max(map(abs, point)))

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        return [(0.0,) * dimensions]


class Euclidean(_Numeric):
    """The root of the sum of squares."""

    name: ClassVar[str] = "euclidean"

    def distances(self, origin: Any, data: Columns) -> Floats:
        total = (data[0] - origin[0]) ** 2
        for at, column in zip(origin[1:], data[1:], strict=True):
            total += (column - at) ** 2
        return np.asarray(np.sqrt(total))


class Manhattan(_Numeric):
    """The sum of the absolute differences."""

    name: ClassVar[str] = "manhattan"

    def distances(self, origin: Any, data: Columns) -> Floats:
        total = np.abs(data[0] - origin[0])
        for at, column in zip(origin[1:], data[1:], strict=True):
            total += np.abs(column - at)
        return np.asarray(total)


class Chebyshev(_Numeric):
    """The largest absolute difference."""

    name: ClassVar[str] = "chebyshev"

    def distances(self, origin: Any, data: Columns) -> Floats:
        total = np.abs(data[0] - origin[0])
        for at, column in zip(origin[1:], data[1:], strict=True):
            np.maximum(total, np.abs(column - at), out=total)
        return np.asarray(total)


class Haversine(_Numeric):
    """The central angle between (longitude, latitude) in degrees; radians, to be multiplied by the radius.

    Many points are kept with their places on the unit sphere: from the straight lines to a point and to its antipode
    the angle follows exactly everywhere, in a fifth of the time that the formula of queries takes.
    """

    name: ClassVar[str] = "haversine"
    slack: ClassVar[float] = 1e-9
    """Radians: 6 millimetres on the Earth."""

    def refusal(self, types: Sequence[str]) -> str | None:
        if len(types) != 2:
            return f"haversine is over two expressions, longitude and latitude in degrees, got {len(types)}"
        return super().refusal(types)

    def usable(self, columns: Columns) -> Any:
        longitude, latitude = columns
        return (np.abs(longitude) <= _FARTHEST_LONGITUDE) & (np.abs(latitude) <= 90)

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        found = super().points(values, like)
        return replace(found, data=_on_sphere(found.data))

    def of(self, points: Sequence[Any]) -> Columns:
        return _on_sphere(super().of(points))

    def take(self, data: Columns, places: Sequence[int]) -> list[tuple[float, ...]]:
        return super().take(data[:2], places)

    def distances(self, origin: Any, data: Columns) -> Floats:
        return np.asarray(self.table([origin], data)[0])

    def table(self, origins: Sequence[Any], data: Columns) -> Floats:
        places = np.array([_coordinate(tuple(origin)) for origin in origins])
        near = _squares(data[2:], places)
        near *= near >= _ROUNDING
        found = np.sqrt(near)
        beyond = near.max(axis=1, initial=0) >= 3  # two thirds of the way: from there the antipode tells
        far = np.sqrt(_squares(data[2:], -places[beyond]))
        found[~beyond] = np.arcsin(found[~beyond] / 2)
        found[beyond] = np.arctan2(found[beyond], far)
        found *= 2
        return found

    def scale(self, point: Any) -> float:
        return 0.0

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Near the antipode the formula is off by up to 1e-7, and may be NaN, which is above every number."""
        return min(low, math.pi - 1e-6), high if high < math.pi - 1e-3 else math.inf

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        return [(0.0, 90.0), (0.0, 0.0), (90.0, 0.0)]


def _on_sphere(degrees: Columns) -> Columns:
    """Longitudes and latitudes with the coordinates of the same points on the unit sphere."""
    longitude, latitude = (np.radians(column) for column in degrees)
    across = np.cos(latitude)
    return (*degrees, across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude))


@lru_cache(maxsize=1024)
def _coordinate(point: tuple[float, float]) -> tuple[float, ...]:
    """One point on the unit sphere."""
    return tuple(float(at[0]) for at in _on_sphere(tuple(np.array([number]) for number in point))[2:])


def _squares(columns: Columns, places: Floats) -> Floats:
    """The squares of the straight distances from places on the sphere, a row each, to many."""
    total = np.zeros((len(places), len(columns[0])))
    for column, at in zip(columns, places.T, strict=True):
        away = np.subtract.outer(at, column)
        total += np.square(away, out=away)
    return total
