"""Geometry without an engine: boxes, constant shapes of queries, and denotations of expressions.

* here: closed boxes, many at once, as four arrays of doubles; denotations of calls, ``Point(x, y)``, ...
* :mod:`~geoskip.geometry.shapes` -- a query's constant geometry, prepared for tests against many boxes.

>>> two = Boxes.of([(0, 0, 1, 1), (5, 5, 6, 7)])
>>> two.intersects(Envelope(1, 1, 2, 2)).tolist(), two.inside(Envelope(4, 4, 9, 9)).tolist()
([True, False], [False, True])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from geoskip.predicates import Predicate

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LOOSENESS = 1e-9
"""Relative growth of a box before exact tests (soundness rule 8): far above rounding errors, far below data."""
LARGEST = 1e150
"""Greater coordinates count as infinite, since computations with their squares overflow."""
LEAST = 1e-150
"""Smaller lengths count as 0, since their squares underflow."""


class Envelope(NamedTuple):
    """One closed box, in shapely's order of bounds."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def grow(self, distance: float) -> Envelope:
        """Return the box with every side moved outward by a distance.

        >>> Envelope(0, 0, 1, 1).grow(2)
        Envelope(xmin=-2, ymin=-2, xmax=3, ymax=3)
        """
        return Envelope(self.xmin - distance, self.ymin - distance, self.xmax + distance, self.ymax + distance)

    def contains(self, other: Envelope) -> bool:
        """True if another box lies in this one."""
        lower = self.xmin <= other.xmin and self.ymin <= other.ymin
        return lower and self.xmax >= other.xmax and self.ymax >= other.ymax

    @property
    def scale(self) -> float:
        """The largest absolute coordinate."""
        return max(map(abs, self))


@dataclass(frozen=True, eq=False, slots=True)
class Boxes:
    """n closed boxes; every coordinate is finite and ``xmin <= xmax``, ``ymin <= ymax``."""

    xmin: Floats
    ymin: Floats
    xmax: Floats
    ymax: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float, float, float]]) -> Boxes:
        """Create boxes from rows of (xmin, ymin, xmax, ymax)."""
        table = np.array(list(rows), dtype=np.float64).reshape(-1, 4)
        return cls(*(np.ascontiguousarray(table[:, i]) for i in range(4)))

    def __len__(self) -> int:
        return len(self.xmin)

    def take(self, places: Any) -> Boxes:
        """Select boxes by an index array, a slice or a mask."""
        return Boxes(self.xmin[places], self.ymin[places], self.xmax[places], self.ymax[places])

    def intersects(self, other: Envelope) -> Mask:
        """Mark boxes that share a point with a box."""
        mask = self.xmin <= other.xmax
        mask &= self.xmax >= other.xmin
        mask &= self.ymin <= other.ymax
        mask &= self.ymax >= other.ymin
        return mask

    def inside(self, other: Envelope) -> Mask:
        """Mark boxes that lie in a box."""
        return (
            (self.xmin >= other.xmin)
            & (self.xmax <= other.xmax)
            & (self.ymin >= other.ymin)
            & (self.ymax <= other.ymax)
        )

    def contains(self, other: Envelope) -> Mask:
        """Mark boxes that contain a box."""
        return (
            (self.xmin <= other.xmin)
            & (self.xmax >= other.xmax)
            & (self.ymin <= other.ymin)
            & (self.ymax >= other.ymax)
        )

    def flip_axes(self) -> Boxes:
        """Return the boxes with x and y exchanged."""
        return Boxes(self.ymin, self.xmin, self.ymax, self.xmax)

    def shift(self, dx: float, dy: float) -> Boxes:
        """Return the boxes moved by (dx, dy)."""
        return Boxes(self.xmin + dx, self.ymin + dy, self.xmax + dx, self.ymax + dy)

    def grow(self, distance: Floats | float) -> Boxes:
        """Return the boxes with every side moved outward by a distance."""
        return Boxes(self.xmin - distance, self.ymin - distance, self.xmax + distance, self.ymax + distance)

    def scale(self) -> Floats:
        """Return the largest absolute coordinate of each box.

        >>> Boxes.of([(-9, -1, 1, 1), (-1, -9, 1, 1), (-1, -1, 9, 1), (-1, -1, 1, 9)]).scale().tolist()
        [9.0, 9.0, 9.0, 9.0]
        """
        across = np.maximum(np.abs(self.xmin), np.abs(self.xmax))
        return np.asarray(np.maximum(across, np.maximum(np.abs(self.ymin), np.abs(self.ymax))))

    def extent(self) -> Envelope:
        """Return the box around all boxes; the origin if there are no boxes."""
        if len(self) == 0:
            return Envelope(0.0, 0.0, 0.0, 0.0)
        return Envelope(*map(float, (self.xmin.min(), self.ymin.min(), self.xmax.max(), self.ymax.max())))

    def loosen(self) -> Boxes:
        """Return the boxes grown by 1e-9 of their scale, so that none is degenerate."""
        return self.grow(self.scale() * LOOSENESS + LEAST)

    def polygons(self) -> NDArray[np.object_]:
        """Return the loosened boxes as shapely polygons."""
        loose = self.loosen()
        return np.asarray(shapely.box(loose.xmin, loose.ymin, loose.xmax, loose.ymax), dtype=object)

    def sides(self) -> Iterator[Boxes]:
        """Iterate over the western, eastern, southern and northern sides, as boxes without width or height."""
        yield Boxes(self.xmin, self.ymin, self.xmin, self.ymax)
        yield Boxes(self.xmax, self.ymin, self.xmax, self.ymax)
        yield Boxes(self.xmin, self.ymin, self.xmax, self.ymin)
        yield Boxes(self.xmin, self.ymax, self.xmax, self.ymax)

    def nearest(self, other: Envelope) -> Floats:
        """Return the distance from a box to each box."""
        across = np.maximum(np.maximum(self.xmin - other.xmax, other.xmin - self.xmax), 0)
        along = np.maximum(np.maximum(self.ymin - other.ymax, other.ymin - self.ymax), 0)
        return np.asarray(np.hypot(across, along))

    def farthest(self, x: Floats | float, y: Floats | float) -> Floats:
        """Return the distance from a point to the farthest corner of each box."""
        across = np.maximum(np.abs(self.xmin - x), np.abs(self.xmax - x))
        along = np.maximum(np.abs(self.ymin - y), np.abs(self.ymax - y))
        return np.asarray(np.hypot(across, along), dtype=np.float64)

    def diagonal(self) -> Floats:
        """Return the length of each box's diagonal."""
        return np.asarray(np.hypot(self.xmax - self.xmin, self.ymax - self.ymin))


def lacks_coordinates(geometries: NDArray[np.object_]) -> Mask:
    """Mark geometries that are, or contain at any depth, a point without coordinates.

    ``POINT EMPTY`` and ``POINT (NaN NaN)`` are the same bytes in WKB, and in JTS the latter intersects polygons.

    >>> lacks_coordinates(np.array([shapely.from_wkt("MULTIPOINT ((1 1), EMPTY)"), shapely.box(0, 0, 1, 1)])).tolist()
    [True, False]
    """
    lacks = np.zeros(len(geometries), dtype=bool)
    parts, owner = geometries, np.arange(len(geometries))
    while len(parts):
        kind = np.asarray(shapely.get_type_id(parts))
        lacks[owner[(kind == _POINT) & np.asarray(shapely.is_empty(parts))]] = True
        several = (kind == _MULTIPOINT) | (kind == _COLLECTION)
        owner = owner[several]
        parts, inner = shapely.get_parts(parts[several], return_index=True)
        owner = owner[inner]
    return lacks


_POINT, _MULTIPOINT, _COLLECTION = 0, 4, 7  # shapely's type numbers


def geohash_cell(text: str) -> shapely.Polygon | None:
    """Return the cell of a geohash or of a prefix of one; None for an invalid one.

    >>> geohash_cell("u0").bounds
    (0.0, 45.0, 11.25, 50.625)
    """
    ends = [[-180.0, 180.0], [-90.0, 90.0]]
    for place, letter in enumerate(text):
        digit = "0123456789bcdefghjkmnpqrstuvwxyz".find(letter)
        if digit < 0 or place >= 16:
            return None
        for bit in range(5):
            axis = ends[(5 * place + bit) % 2]
            middle = (axis[0] + axis[1]) / 2
            axis[0 if digit >> (4 - bit) & 1 else 1] = middle
    return shapely.box(ends[0][0], ends[1][0], ends[0][1], ends[1][1]) if text else None


class Denotation:
    """The base of all denotations supported by GeoBox, declared with :func:`geoskip.registry.denotes`.

    >>> from geoskip.predicates import Call, Column
    >>> from geoskip.registry import denotes, mappings
    >>> with mappings():
    ...
    ...     @denotes("my_point")
    ...     def a_point(call):
    ...         return Point(call.args[0], call.args[1])
    ...
    ...     a_point(Call("my_point", (Column("lng"), Column("lat"))))
    Point(x=lng, y=lat)
    """


@dataclass(frozen=True)
class Point(Denotation):
    """The point at (x, y); NULL if a coordinate is NULL."""

    x: Predicate
    y: Predicate


@dataclass(frozen=True)
class SameGeometry(Denotation):
    """The child's coordinates and type, NULL exactly where the child is: its WKB, or another SRID."""

    child: Predicate


@dataclass(frozen=True)
class SameBox(Denotation):
    """A geometry with the child's box.

    It is EMPTY, invalid or a sliver only if the child is, and a point if the child is a point.
    """

    child: Predicate


@dataclass(frozen=True)
class InsideBox(Denotation):
    """A geometry inside the child's box; it may be EMPTY, invalid or of any type."""

    child: Predicate


@dataclass(frozen=True)
class Vertex(Denotation):
    """A point that is one of the child's coordinates, or NULL; never EMPTY."""

    child: Predicate


@dataclass(frozen=True)
class CentroidOf(Denotation):
    """The centroid as JTS and GEOS compute it.

    It lies in or near the child's box if the child is valid, and is EMPTY if the child is.
    """

    child: Predicate


@dataclass(frozen=True)
class Flipped(Denotation):
    """The child with x and y exchanged."""

    child: Predicate


@dataclass(frozen=True)
class Shifted(Denotation):
    """The child moved by (dx, dy)."""

    child: Predicate
    dx: float
    dy: float


@dataclass(frozen=True)
class Grown(Denotation):
    """A geometry around the child and within ``radius`` of it: a buffer with round ends and joins."""

    child: Predicate
    radius: float
