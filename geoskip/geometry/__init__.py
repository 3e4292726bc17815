"""Geometry without an engine: boxes, the shapes that queries name, and what expressions denote.

* :mod:`~geoskip.geometry.boxes` -- closed boxes, many at once;
* :mod:`~geoskip.geometry.shapes` -- a query's constant geometry, prepared to be tested against many boxes;
* :mod:`~geoskip.geometry.raster` -- the same for very many boxes;
* here: denotations of calls, ``Point(x, y)``, ``InsideBox(child)``, ...
"""

from __future__ import annotations

from dataclasses import dataclass

from geoskip.geometry.boxes import Boxes, Envelope
from geoskip.geometry.shapes import Shape
from geoskip.predicates import Predicate

__all__ = [
    "Boxes",
    "CentroidOf",
    "Denotation",
    "Envelope",
    "Flipped",
    "Grown",
    "InsideBox",
    "Point",
    "SameBox",
    "SameGeometry",
    "Shape",
    "Shifted",
    "Vertex",
]


class Denotation:
    """The base of all denotations that GeoBox understands, declared with :func:`geoskip.registry.denotes`.

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
    """The point at (x, y), NULL where one of them is."""

    x: Predicate
    y: Predicate


@dataclass(frozen=True)
class SameGeometry(Denotation):
    """The child's very coordinates and type, NULL exactly where the child is: WKB of it, or another SRID."""

    child: Predicate


@dataclass(frozen=True)
class SameBox(Denotation):
    """A geometry with the child's box.

    It is EMPTY, invalid or a sliver only where the child is, and a point where the child is one.
    """

    child: Predicate


@dataclass(frozen=True)
class InsideBox(Denotation):
    """A geometry inside the child's box; it may be EMPTY, invalid and of any type."""

    child: Predicate


@dataclass(frozen=True)
class Vertex(Denotation):
    """A point that is one of the child's coordinates, or NULL; never EMPTY."""

    child: Predicate


@dataclass(frozen=True)
class CentroidOf(Denotation):
    """The centroid as JTS and GEOS compute it.

    It lies near the child's box where the child is valid, and is EMPTY where the child is.
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
    """Something within ``radius`` of the child, around it: a buffer with round ends and joins."""

    child: Predicate
    radius: float
