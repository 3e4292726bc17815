"""GeoBox: up to k closed boxes per file, for longitude and latitude columns or for geometries.

It is the paper's GeoBox index (Extensible Data Skipping, section II-A, example 2, and table I), with k boxes per file
and clauses for every family of spatial predicates and its negation::

    GeoBox("lng", "lat")             two numeric expressions, the row's point
    GeoBox("geom")                   one geometry
    GeoBox("ST_GeomFromWKB(geom)")   one geometry, computed

:meth:`GeoBox.sees` relates an expression of a query to the index: the indexed expression itself, a point constructed
from the pair, or an expression with a box that follows from the indexed one (``ST_SetSRID(g, 4326)``, ``ST_Buffer(g,
5)``, ``ST_Boundary(g)``), as declared by denotations (:class:`geoskip.geometry.Denotation`). Methods of the result, a
:class:`GeometryThroughIndex`, return clauses: ``index.sees(g).meets(shape)``. An index has the same methods for the
indexed geometry itself.

For comparisons of values computed from a pair's coordinates see :mod:`geoskip.indexes.geobox.computed`.

Rows without a box are handled like an additional box; files with non-finite coordinates are kept (soundness rule 8).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from geoskip import geometry as d
from geoskip.bounds import rounds, uncast
from geoskip.bounds.sort_keys import IncomparableError, real_below
from geoskip.clauses import Clause, any_of
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.evaluation.values import finite
from geoskip.geometry import LARGEST
from geoskip.geometry.shapes import Shape
from geoskip.indexes.base import Index, SourceColumn, index
from geoskip.indexes.file_statistics import FileStatistics, field_of, json_texts
from geoskip.indexes.geobox.clauses import (
    BoxComesWithin,
    BoxCompares,
    BoxDiffers,
    BoxEncloses,
    BoxEquals,
    BoxGoesBeyond,
    BoxHasRows,
    BoxLeaves,
    BoxMeets,
    BoxTransform,
)
from geoskip.indexes.geobox.collect import (
    DEFAULT_BOXES,
    GEOMETRY_TYPE,
    PAIR_TYPE,
    collect_geometries,
    collect_pairs,
    merge,
)
from geoskip.indexes.geobox.computed import computed_clause
from geoskip.indexes.geobox.globe import Cap, Earth, GlobeComesWithin, GlobeGoesBeyond
from geoskip.indexes.geobox.units import UnitSort
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate
from geoskip.registry import current
from geoskip.types import sql_type

__all__ = ["Cap", "Earth", "GeoBox", "GeometryThroughIndex"]

_PLAIN_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)(\s*\.\s*(`[^`]+`|\w+))*\s*$")
_COMPARISONS = ("<", "<=", ">", ">=", "in", "not in")
_TYPE_NAMES = (
    "", "Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"
)  # fmt: skip
_CONSTRUCTORS = {"binary": "ST_GeomFromWKB", "string": "ST_GeomFromText"}


class _GeometryClauses(ABC):
    """Clauses on a geometry related to an index; None if its box is not known well enough."""

    @abstractmethod
    def _view(self) -> tuple[GeoBox, BoxTransform]:
        """Return the index, and the geometry's box as a function of the indexed box."""

    def meets(self, shape: Any) -> Clause | None:
        """Some row may share a point with the shape: for Intersects, Touches, Within(g, Q), Contains(Q, g)."""
        return self._shape_clause(BoxMeets, shape, invalid_too=True)

    def encloses(self, shape: Any) -> Clause | None:
        """Some row may contain or cover the shape, or equal it in each coordinate."""
        return self._shape_clause(BoxEncloses, shape)

    def equals(self, shape: Any) -> Clause | None:
        """Some row may have an EMPTY difference from the shape; invalid rows always may."""
        return self._shape_clause(BoxEquals, shape, total=True)

    def leaves(self, shape: Any) -> Clause | None:
        """Some row may not be covered by the polygon: for NOT Covers."""
        return self._shape_clause(BoxLeaves, shape, False, polygonal=True, total=True)

    def leaves_interior(self, shape: Any) -> Clause | None:
        """Some row may not be contained by the polygon; a point on its boundary is covered, but not contained."""
        return self._shape_clause(BoxLeaves, shape, True, polygonal=True, total=True)

    def comes_within(self, shape: Any, distance: Any) -> Clause | None:
        """Some row may have at most this planar distance to the shape."""
        number = finite(distance)
        return (
            None if number is None else self._shape_clause(BoxComesWithin, shape, number, invalid_too=True, total=True)
        )

    def goes_beyond(self, shape: Any, distance: Any) -> Clause | None:
        """Some row may have at least this planar distance to the shape."""
        number = finite(distance)
        return None if number is None else self._shape_clause(BoxGoesBeyond, shape, number, total=True)

    def differs(self, shape: Any, distance: Any = 0.0) -> Clause | None:
        """Some row may have another planar distance to the shape: supported for 0, as for Disjoint."""
        return self._shape_clause(BoxDiffers, shape, total=True) if finite(distance) == 0 else None

    def is_null(self) -> Clause:
        """Some row is NULL, or such that functions of it may be: EMPTY, or with non-finite coordinates."""
        found, _ = self._view()
        sorts = (UnitSort.NULL, UnitSort.ONLY_X, UnitSort.ONLY_Y, UnitSort.EMPTY, UnitSort.WILD)
        return BoxHasRows(str(found), found.counts, BoxTransform(), sorts, False)

    def where_points(self) -> GeometryThroughIndex | None:
        """Return the view restricted to files with only points; None if the expression is not a point there."""
        found, view = self._view()
        return GeometryThroughIndex(found, replace(view, if_point=True)) if view.point else None

    def comes_within_on(self, earth: Earth, shape: Any, distance: Any, *caps: Cap) -> Clause | None:
        """Some centroid may be within a distance on the globe of the shape's centroid, and in all caps.

        Parameters
        ----------
        earth
            The sphere or spheroid, which also sets the unit of the distance.
        shape
            A geometry in degrees of longitude and latitude.
        distance
            A number in the unit of ``earth``.
        caps
            Additional regions that must contain the centroid.
        """
        return self._globe_clause(GlobeComesWithin, earth, shape, distance, 1, caps)

    def goes_beyond_on(self, earth: Earth, shape: Any, distance: Any) -> Clause | None:
        """Some centroid may have at least this distance on the globe to the shape's centroid.

        Parameters
        ----------
        earth
            The model of the globe.
        shape
            The constant geometry.
        distance
            The distance, in the unit of the globe's radius.
        """
        return self._globe_clause(GlobeGoesBeyond, earth, shape, distance, -1)

    def compares(self, axis: int, op: str, *literals: Any) -> Clause | None:
        """Some row may have a coordinate that satisfies a comparison.

        Parameters
        ----------
        axis
            0 for x, 1 for y.
        op
            An order comparison, "=", "<>", "in" or "not in".
        literals
            Numbers; several for "in" and "not in".
        """
        return self._compare(axis, op, literals) if self._view()[1].point else None

    def reaches(self, axis: int, op: str, *literals: Any) -> Clause | None:
        """Some row's least or greatest x or y may satisfy ``op``, or some row is EMPTY."""
        found, view = self._view()
        clause = self._compare(axis, op, literals) if view.total else None
        empty = BoxHasRows(str(found), found.counts, BoxTransform(), (UnitSort.EMPTY,), False)
        return None if clause is None else any_of([clause, empty])

    def _compare(self, axis: int, op: str, literals: tuple[Any, ...]) -> Clause | None:
        found, view = self._view()
        bounds = [_neighbours(value) for value in literals]
        kind = {"=": "in", "<>": "not in"}.get(op, op)
        if not bounds or view.if_point or view.centre or None in bounds or kind not in _COMPARISONS:
            return None
        sides = tuple(b for b in bounds if b is not None)
        return BoxCompares(str(found), found.counts, view, axis, kind, sides)

    def _shape_clause(
        self, kind: Callable[..., Clause], value: Any, *rest: Any,
        invalid_too: bool = False, polygonal: bool = False, total: bool = False,
    ) -> Clause | None:  # fmt: skip
        found, view = self._view()
        shape = Shape.of(value)
        if shape is None or not (shape.valid or invalid_too):
            return None
        if (polygonal and not shape.polygonal) or (total and not view.total):
            return None
        return kind(str(found), found.counts, view, shape, *rest)

    def _globe_clause(
        self, kind: Callable[..., Clause], earth: Earth, value: Any, distance: Any, outward: int, *rest: Any
    ) -> Clause | None:
        found, view = self._view()
        shape, number = Shape.of(value), finite(distance)
        if shape is None or number is None or not view.point or not view.total or not earth.least > 0:
            return None
        if (centre := shape.centre) is None or abs(centre.y) > 90 or abs(centre.x) > 1e5:
            return None
        number += outward * earth.most * math.radians(2 * centre.rounding)
        return kind(str(found), found.counts, view, centre.x, centre.y, number, earth, *rest)


@dataclass(frozen=True)
class GeometryThroughIndex(_GeometryClauses):
    """An expression of a query, related to the index; made by :meth:`GeoBox.sees`."""

    through: GeoBox
    view: BoxTransform

    def _view(self) -> tuple[GeoBox, BoxTransform]:
        return self.through, self.view


@index
@dataclass(frozen=True)
class GeoBox(_GeometryClauses, Index):
    """Boxes of points (two numbers) or of geometries (one expression), up to ``boxes`` a file.

    >>> str(GeoBox("lng", "lat")), str(GeoBox("geom", boxes=4))
    ('geobox(lng, lat)', 'geobox(geom, boxes=4)')
    """

    x: str
    y: str | None = None
    boxes: int | None = None
    """The most boxes per file; None for as many as reduce the cost, at most 8."""
    kind: ClassVar[str] = "geobox"

    def __post_init__(self) -> None:
        for text in self.expressions():
            if not isinstance(text, str) or not text.strip():
                raise InvalidSpecificationError(
                    f"GeoBox takes two numeric expressions or one geometry expression, as text; got {text!r}"
                )
        if self.boxes is not None and not (type(self.boxes) is int and 1 <= self.boxes <= 255):
            raise InvalidSpecificationError(f"GeoBox(boxes=) takes a whole number from 1 to 255, got {self.boxes!r}")

    @property
    def version(self) -> int | None:
        """2 for geometries: points without coordinates are counted in any part, and slivers as invalid."""
        return None if self.is_pair else 2

    def expressions(self) -> tuple[str, ...]:
        return (self.x,) if self.y is None else (self.x, self.y)

    @property
    def is_pair(self) -> bool:
        """True if the index is over two numbers, False for one geometry."""
        return self.y is not None

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of the counts stored with the boxes."""
        return tuple(field.name for field in (PAIR_TYPE if self.is_pair else GEOMETRY_TYPE) if field.name != "boxes")

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        if not self.is_pair:
            self._check_geometry(columns[0])
            return GEOMETRY_TYPE
        for column in columns:
            if not sql_type(column.type).is_numeric:
                raise UnsupportedColumnError(
                    f"{self} needs two numbers, got {column.type} for {column.text}; "
                    "index a numeric expression, or one geometry: GeoBox(geometry)"
                )
        return PAIR_TYPE

    def _check_geometry(self, column: SourceColumn) -> None:
        if column.type == "geometry" or (column.type == "binary" and not _PLAIN_COLUMN.match(column.text)):
            return
        constructor = _CONSTRUCTORS.get(column.type)
        plain = constructor and _PLAIN_COLUMN.match(column.text)
        way_out = f"index {constructor}({column.text.strip()}) instead" if plain else "or two numbers: GeoBox(lng, lat)"
        raise UnsupportedColumnError(f"{self} needs a geometry, got {column.type}; {way_out}")

    def collect(self, *values: pa.Array) -> Mapping[str, Any] | None:
        most = self.boxes or DEFAULT_BOXES
        if self.is_pair:
            x, y = values
            return collect_pairs(x, y, most)
        return collect_geometries(values[0], most)

    def merge(self, summaries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return merge(summaries, self.boxes or DEFAULT_BOXES)

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the boxes; rows with non-finite coordinates are outside of them."""
        return (
            FileStatistics(
                *self.subject(),
                nulls=field_of(summaries, "boxless" if self.is_pair else "nulls"),
                nans=field_of(summaries, "nonfinite"),
                boxes=field_of(summaries, "boxes"),
                details=json_texts(summaries, _shown_counts),
            ),
        )

    def reads(self, node: Predicate) -> bool:
        """True if an expression is the indexed geometry, or one with the same box, NULLs and type."""
        return self._sees(node) == BoxTransform()

    def sees(self, node: Predicate | d.Denotation) -> GeometryThroughIndex | None:
        """Return an expression's or a denotation's geometry through this index; None if its box is unknown.

        ``index.sees(Point(lng, lat))`` is for functions that take the coordinates as separate arguments.
        """
        view = self._sees(node)
        return None if view is None else GeometryThroughIndex(self, view)

    def _view(self) -> tuple[GeoBox, BoxTransform]:
        return self, BoxTransform()

    def _sees(self, node: Predicate | d.Denotation) -> BoxTransform | None:
        node = _strip(node) if isinstance(node, Call) else node
        if len(self.bound) == 1 and node == _strip(self.bound[0]):
            return BoxTransform()
        meaning = current().denotation(node) if isinstance(node, Call) else node
        if isinstance(meaning, d.Point):
            axes = (self.axis(meaning.x), self.axis(meaning.y))
            return BoxTransform() if axes == (0, 1) else BoxTransform(flip=True) if axes == (1, 0) else None
        child = getattr(meaning, "child", None)
        below = self._sees(child) if isinstance(child, Predicate) else None
        if below is None:
            return None
        match meaning:
            case d.SameBox():
                return below
            case d.InsideBox():
                return below.inner_view()
            case d.Vertex():
                return below.vertex()
            case d.Flipped():
                return below.flip_axes()
            case d.Shifted(_, dx, dy) if abs(dx) <= LARGEST and abs(dy) <= LARGEST:
                return below.shift(dx, dy)
            case d.Grown(_, radius) if 0 <= radius <= LARGEST:
                return below.grow(radius)
            case d.CentroidOf() if below.total and below.point:
                return replace(below, centre=True, slack=True)
        return None

    def axis(self, node: Predicate) -> int | None:
        """Return the coordinate (0 or 1) of an expression, without casts that keep the value, or None."""
        if len(self.bound) != 2:
            return None
        plain = uncast(node)
        return next((axis for axis, bound in enumerate(self.bound) if plain == uncast(bound)), None)

    def clause(self, node: Predicate) -> Clause | None:
        found = self._coordinate_clause(node)
        return computed_clause(self, node) if found is None and self.is_pair else found

    def _coordinate_clause(self, node: Predicate) -> Clause | None:
        """Return the clause of a comparison of a coordinate itself, or of IS NULL."""
        match node:
            case IsNull(child):
                return self._null(child, negated=False)
            case Not(IsNull(child)):
                return self._null(child, negated=True)
            case Comparison(op, left, Literal(value)) if (axis := self.axis(left)) is not None:
                return self.compares(axis, *self._round_comparison(axis, left, op, value))
            case Not(Comparison("=", left, Literal(value))) if (axis := self.axis(left)) is not None:
                return self.compares(axis, *self._round_comparison(axis, left, "<>", value))
            case In(left, values) if (axis := self.axis(left)) is not None:
                return self.compares(axis, "in", *(v.value for v in values))
            case Not(In(left, values)) if (axis := self.axis(left)) is not None:
                return self.compares(axis, *self._round_comparison(axis, left, "not in", *(v.value for v in values)))
        return None

    def _round_comparison(self, axis: int, node: Predicate, op: str, *values: Any) -> tuple[Any, ...]:
        """Return the comparison of the indexed doubles that follows from one of the unrounded numbers.

        The decimal 0.10 satisfies ``<= 0.10``, but its double is greater: ``<`` and ``<=`` allow up to the next double.
        For ``<>``, other numbers may be rounded to the double of the excluded one.
        """
        if rounds(node) or not rounds(self.bound[axis]):
            return op, *values
        bounds = [_neighbours(value) for value in values]
        match op, bounds:
            case (("<" | "<="), [(_, above)]):
                return "<=", above
            case ((">" | ">="), [(below, _)]):
                return ">=", below
            case (("<>" | "not in"), _):
                return "not in", None
        return op, *values

    def _null(self, child: Predicate, *, negated: bool) -> Clause | None:
        if (axis := self.axis(child)) is not None:
            here, there = ((UnitSort.ONLY_X, UnitSort.ONLY_Y), (UnitSort.ONLY_Y, UnitSort.ONLY_X))[axis]
            sorts: tuple[UnitSort, ...] = (here,) if negated else (UnitSort.NULL, there)
        elif len(self.bound) == 1 and child == self.bound[0]:
            sorts = (UnitSort.EMPTY,) if negated else (UnitSort.NULL,)
        else:
            return None
        return BoxHasRows(str(self), self.counts, BoxTransform(), sorts, negated)


def _shown_counts(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the other counts of a summary, with the names of geometry types."""
    counts = {name: summary[name] for name in ("null_x", "null_y", "empties", "invalid") if name in summary}
    types = [name for bit, name in enumerate(_TYPE_NAMES) if (summary.get("types") or 0) >> bit & 1 and name]
    return {"boxes": None if summary["boxes"] is None else len(summary["boxes"]), **counts} | (
        {"types": types} if "types" in summary else {}
    )


def _strip(node: Predicate) -> Predicate:
    """Strip functions that change neither coordinates nor type: conversions from and to WKB."""
    while isinstance(node, Call) and isinstance(meaning := current().denotation(node), d.SameGeometry):
        node = meaning.child
    return node


def _neighbours(value: Any) -> tuple[float, float] | None:
    """Return the doubles next to a number from below and above; None for NaN, NULL and other types.

    >>> from decimal import Decimal
    >>> _neighbours(3), _neighbours(Decimal("0.1")) == (0.09999999999999999, 0.1)
    ((3.0, 3.0), True)
    """
    try:
        below, exact = real_below(value, None)
    except IncomparableError:
        return None
    if math.isnan(below) or (math.isinf(below) and not isinstance(value, float)):
        return None
    return below, below if exact else math.nextafter(below, math.inf)
