"""The contract of metrics: Arrow values to points, and distances between points.

A *point* is one row's value as plain Python: a tuple of floats, a text, a whole number, a tuple of elements. Many
points are kept in whatever form their metric computes with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Floats", "Metric", "Points", "null_rows"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """Some rows as points: those that have a distance, in the metric's own form, and how many have none."""

    data: Any
    rows: int
    nulls: int
    """Rows in which an expression is NULL."""
    blanks: int
    """Rows in which every expression is NULL."""
    odd: int
    """Rows without NULL that are no points of the metric: NaN, too large, a latitude of 91, not UTF-8, ..."""


class Metric(ABC):
    """One distance; obeys d(a, b) = d(b, a), d(a, a) = 0 and d(a, c) <= d(a, b) + d(b, c)."""

    name: ClassVar[str]
    whole: ClassVar[bool] = False
    """Are all distances whole numbers, computed exactly?"""
    outlined: ClassVar[Mapping[str, pa.DataType]] = {}
    """The fields of what else is kept of a file, its outline, and their types."""
    relative: ClassVar[float] = 1e-9
    """By how much of itself a distance, as a query computes it, may be off."""
    slack: ClassVar[float] = 1e-140
    """By how much a distance, as a query computes it, may be off beside."""

    @abstractmethod
    def refusal(self, types: Sequence[str]) -> str | None:
        """Reason why expressions of these types (Spark's names) are no points, or None."""

    @abstractmethod
    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        """Points of the rows of some arrays, one an expression.

        ``like`` is a pivot; points of other dimensions are odd.
        """

    @abstractmethod
    def point(self, constants: Sequence[Any], like: Any = None) -> Any:
        """The point that some constants are, None if they are none."""

    @abstractmethod
    def of(self, points: Sequence[Any]) -> Any:
        """Points in the metric's own form."""

    @abstractmethod
    def take(self, data: Any, places: Sequence[int]) -> list[Any]:
        """Single points out of many."""

    @abstractmethod
    def distances(self, origin: Any, data: Any) -> Floats:
        """From one point to each of many."""

    def table(self, origins: Sequence[Any], data: Any) -> Floats:
        """From each of some points, a row each, to each of many."""
        return np.stack([self.distances(origin, data) for origin in origins])

    @abstractmethod
    def count(self, data: Any) -> int:
        """Number of points."""

    def scale(self, point: Any) -> float:
        """The largest coordinate, to which rounding is relative; 0 where there is no such thing."""
        return 0.0

    def largest(self, point: Any, reach: Floats, away: Floats, high: Floats) -> Floats:
        """Return the largest number that a query's arithmetic may reach between a point and the rows of each file.

        Parameters
        ----------
        point
            The constant of the query.
        reach
            The largest absolute coordinate of the rows, one a file.
        away
            The distance of the point from each pivot.
        high
            The largest distance of rows from a pivot: a row a pivot, a column a file.
        """
        return np.asarray(reach + self.scale(point))

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """A range of distances, widened where a query computes them badly."""
        return low, high

    def outline(self, data: Any) -> dict[str, Any]:
        """Summarise a file's points beyond distances; the result holds for all of them."""
        return {}

    def outline_of(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The outline of a file from those of its parts."""
        return {}

    def outlines(self, fields: Sequence[pa.Array]) -> Any:
        """The outlines of all files in the form that :meth:`between` takes."""
        return None

    def between(self, outlines: Any, point: Any, low: float, high: float) -> Mask | None:
        """Mark files that may hold a point at a distance in a range, by their outlines; None if unknown.

        Parameters
        ----------
        outlines
            The outlines of all files, as :meth:`outlines` returns them.
        point
            The constant of the query.
        low, high
            The range of distances, both ends included.
        """
        return None

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        """Origins where no row is there to choose from."""
        return ()


def null_rows(values: Sequence[pa.Array]) -> tuple[Mask, Mask]:
    """In which rows any of the expressions is NULL, and in which all are."""
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
