"""The clauses of GeoBox: conditions on the boxes of every file that may contain a matching row.

Each clause is a condition on :mod:`geoskip.indexes.geobox.units`, so AND is merged box by box: one row lies in one box.
A *view* transforms the indexed box to the box of the tested expression: exchanged, moved or grown, perhaps EMPTY. A
search server or the blocks of boxes find the boxes that meet a window; shapes are compared in Python.

This is sound because a row's geometry lies in its closed box: a predicate that is FALSE for every geometry in the box
is FALSE for the row. For negated predicates the reverse holds: if a predicate is TRUE for every geometry in the box,
its ``NOT`` is FALSE for the row.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.clauses import Files
from geoskip.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    Compare,
    Condition,
    ExistsClause,
    Negation,
    Refine,
    SomeValue,
    any_holds,
)
from geoskip.geometry import LARGEST, LOOSENESS, Boxes, Envelope, Mask
from geoskip.geometry.shapes import ROUNDING, Shape, margin
from geoskip.indexes.geobox.units import BoxFacts, BoxUnits, UnitSort, units_of, window

Integers = NDArray[np.int64]
Table = BoxUnits | BoxFacts

_FARTHEST = sys.float_info.max


@dataclass(frozen=True)
class BoxTransform:
    """The box of an expression as a function of the indexed box: axes exchanged, then moved, then grown.

    >>> BoxTransform().flip_axes().shift(1, 0).boxes(Boxes.of([(0, 5, 1, 6)])).xmin.round(3).tolist()
    [6.0]
    """

    flip: bool = False
    dx: float = 0.0
    dy: float = 0.0
    radius: float = 0.0
    slack: bool = False
    """True if computed by floating-point operations, so that comparisons need a margin."""
    total: bool = True
    """True if EMPTY or invalid only where the indexed geometry is, except for rounding (``valid``)."""
    valid: bool = True
    """True if no coordinate was rounded: rounding may move all corners of a tiny polygon to one point."""
    point: bool = True
    """True if a point for every indexed point."""
    least: float = np.inf
    """The least radius by which the box was grown."""
    if_point: bool = False
    """True if the view is known only where the indexed geometry is a point."""
    centre: bool = False
    """True for the centroid, which is known only for valid geometries."""

    def flip_axes(self) -> BoxTransform:
        """Return the view with x and y exchanged."""
        return replace(self, flip=not self.flip, dx=self.dy, dy=self.dx)

    def shift(self, dx: float, dy: float) -> BoxTransform:
        """Return the view moved by an offset."""
        return replace(self, dx=self.dx + dx, dy=self.dy + dy, slack=True, valid=False)

    def grow(self, radius: float) -> BoxTransform:
        """Return the view of a buffer; one of radius 0 can make points and lines EMPTY."""
        total, least = self.total and radius > 0, min(self.least, radius)
        return replace(self, radius=self.radius + radius, least=least, slack=True, total=total, point=False)

    def vertex(self) -> BoxTransform:
        """Return the view of one of the vertices, never EMPTY; the box is no longer minimal."""
        return replace(self, slack=True, total=True, point=True)

    def inner_view(self) -> BoxTransform:
        """Return the view of a geometry inside the box."""
        return replace(self, slack=True, total=False, point=False)

    def vanishes(self, scale: float) -> bool:
        """True if a buffer smaller than the rounding error may be EMPTY or invalid."""
        return self.least <= LOOSENESS * (scale + self._size - self.radius)

    def boxes(self, boxes: Boxes) -> Boxes:
        """Return the boxes of the viewed expression."""
        if self.flip:
            boxes = boxes.flip_axes()
        if self.dx or self.dy:
            boxes = boxes.shift(self.dx, self.dy)
        if self.slack:
            boxes = boxes.grow(self.radius + (boxes.scale() + self._size) * self._looseness)
        return boxes

    def back(self, envelope: Envelope, scale: float) -> Envelope:
        """Return an envelope that the indexed box meets whenever the viewed box meets the given one.

        ``scale`` is the largest absolute coordinate of the indexed boxes.
        """
        if self.slack:
            envelope = envelope.grow(self.radius + 4 * self._looseness * (self._size + scale))
        west, south, east, north = envelope
        west, south, east, north = west - self.dx, south - self.dy, east - self.dx, north - self.dy
        return Envelope(south, west, north, east) if self.flip else Envelope(west, south, east, north)

    def preimage(self, shape: BaseGeometry) -> BaseGeometry:
        """Return a shape in the coordinates of the indexed geometry, given in those of the view."""

        def back(xy: NDArray[np.float64]) -> NDArray[np.float64]:
            moved = xy - (self.dx, self.dy)
            return moved[:, ::-1] if self.flip else moved

        return shapely.transform(shape, back) if self.flip or self.dx or self.dy else shape

    @property
    def _looseness(self) -> float:
        return 2 * ROUNDING if self.centre else LOOSENESS

    @property
    def _size(self) -> float:
        return abs(self.dx) + abs(self.dy) + self.radius


@dataclass(frozen=True)
class GeoClause(ExistsClause):
    """The base of GeoBox's clauses: the text of the index, its stored counts, and the view."""

    index: str
    counts: tuple[str, ...]
    view: BoxTransform

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("boxes", *self.counts))

    def units(self, files: Files) -> BoxUnits:
        return units_of(files, self.index, self.counts)

    def keep_units(self, files: Files) -> Mask:
        with np.errstate(all="ignore"):  # huge coordinates may overflow to infinity, which keeps
            return super().keep_units(files)

    def outline(self) -> BaseGeometry | None:
        """Return the shape to compare with, in the coordinates of the indexed geometry, or None."""
        return None

    def _code(self, where: Condition, keep: Callable[[Any, Integers], Mask]) -> Condition:
        return Refine(where, keep, type(self).__name__)

    def _near(
        self, table: Table, envelopes: Iterable[Envelope], kept: Callable[[BoxUnits, Integers], Mask] | None
    ) -> Condition:
        """Keep boxes that may meet an envelope in the view and that the function keeps, if there is one."""
        windows = self._windows_of(table, envelopes)
        near = windows if kept is None else self._code(windows, kept)
        unknown = self._unsure() if self.view.if_point or self.view.centre else NEVER
        return any_holds([near, unknown, UnitSort.WILD.condition])

    def _windows_of(self, table: Table, envelopes: Iterable[Envelope]) -> Condition:
        return any_holds(window(self.view.back(envelope, table.scale)) for envelope in envelopes)

    def _unsure(self) -> Condition:
        """Keep the boxes of files with an unknown view or with an invalid geometry."""
        mixed: Condition = Compare("point", "=", False)  # files with only points have neither
        if "types" not in self.counts:
            return NEVER
        return mixed if self.view.if_point else self._code(mixed, lambda *given: ~self._valid_boxes(*given))

    def _not_all(
        self, table: Table, envelopes: Iterable[Envelope], dropped: Callable[[BoxUnits, Integers], Mask]
    ) -> Condition:
        """Keep EMPTY rows, and all boxes except those near an envelope that the function drops."""
        windows = self._windows_of(table, envelopes)
        elsewhere = AllOf((UnitSort.BOX.condition, Negation(windows)))
        near = self._code(windows, lambda *given: ~(self._sure(*given) & dropped(*given)))
        return any_holds([elsewhere, near, UnitSort.EMPTY.condition, UnitSort.WILD.condition])

    def _sure(self, units: BoxUnits, places: Integers) -> Mask:
        """Mark boxes of files with a known view and without invalid geometries."""
        sure = self._valid_boxes(units, places)
        return sure & units.only_points(places) if self.view.if_point else sure

    def _valid_boxes(self, units: BoxUnits, places: Integers) -> Mask:
        """Mark boxes of files in which every geometry is valid in the view."""
        if self.view.vanishes(units.scale):
            return np.zeros(len(places), dtype=bool)
        return units.all_valid(places) if self.view.valid else units.only_points(places)

    def _seen(self, units: BoxUnits, places: Integers) -> Boxes:
        return self.view.boxes(units.boxes.take(places))


@dataclass(frozen=True)
class _ShapeClause(GeoClause):
    shape: Shape

    def outline(self) -> BaseGeometry | None:
        """Return the shape, buffered by the distance if there is one."""
        distance = getattr(self, "distance", 0)
        shape = shapely.buffer(self.shape.geometry, distance, quad_segs=32) if distance > 0 else self.shape.geometry
        return self.view.preimage(shape)


@dataclass(frozen=True)
class BoxMeets(_ShapeClause):
    """Some box shares a point with the shape: for predicates that require a common point."""

    def where(self, table: Table) -> Condition:
        exact = not self.view.slack and (self.shape.is_box or not self.shape.valid)
        return self._near(table, [self.shape.envelope], None if exact else self._meets)

    def _meets(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._seen(units, places)
        kept = boxes.intersects(self.shape.envelope)
        kept[kept] = self.shape.meets(boxes.take(kept))
        return kept

    def __str__(self) -> str:
        return f"{self.index}: a box meets {self.shape}"


@dataclass(frozen=True)
class BoxEncloses(_ShapeClause):
    """Some box contains the shape's envelope, as required to contain a shape that is not EMPTY."""

    def where(self, table: Table) -> Condition:
        envelope = self.shape.envelope
        return self._near(table, [envelope.grow(envelope.scale * LOOSENESS)], self._contains)

    def _contains(self, units: BoxUnits, places: Integers) -> Mask:
        return self._seen(units, places).loosen().contains(self.shape.envelope)

    def __str__(self) -> str:
        return f"{self.index}: a box contains the envelope of {self.shape}"


@dataclass(frozen=True)
class BoxEquals(BoxEncloses):
    """Some box contains the shape's envelope, as required to equal the shape, or some row is invalid.

    In Sedona, geometries are equal if their symmetric difference is EMPTY. JTS may also return EMPTY for a line and a
    polygon without area, even if the line leaves the polygon; overlays of valid geometries are correct.
    """

    def where(self, table: Table) -> Condition:
        invalid = UnitSort.BOX.condition if self.view.vanishes(table.scale) else self._unsure()
        return any_holds([super().where(table), invalid])

    def __str__(self) -> str:
        return f"{super().__str__()}, or a row is invalid"


@dataclass(frozen=True)
class BoxLeaves(_ShapeClause):
    """Some box is not entirely in the polygon (``openly``: its interior), or some row is EMPTY or invalid.

    A valid geometry with a box in the polygon is covered by the polygon and intersects it; with a box in the interior,
    it is contained.
    """

    openly: bool

    def where(self, table: Table) -> Condition:
        return self._not_all(table, [self.shape.envelope], self._inside)

    def _inside(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._seen(units, places)
        inside = boxes.inside(self.shape.envelope)
        boxes = boxes.take(inside)
        inside[inside] = self.shape.holds_inside(boxes) if self.openly else self.shape.covers(boxes)
        return inside

    def __str__(self) -> str:
        return f"{self.index}: a box is not {'in the interior of' if self.openly else 'within'} {self.shape}"


@dataclass(frozen=True)
class BoxDiffers(_ShapeClause):
    """Some row may be disjoint from the shape.

    All valid rows of a box in the polygon intersect the polygon. If the file has a single row and the polygon covers a
    side of its box, the row intersects too: a geometry touches every side of its own box. Other shapes intersect all
    rows of a box that is one of their vertices, if the box was not rounded.
    """

    def where(self, table: Table) -> Condition:
        return self._not_all(table, [self.shape.envelope], self._meets)

    def _meets(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._seen(units, places)
        if not self.shape.polygonal:
            return np.zeros(len(places), dtype=bool) if self.view.slack else self.shape.has_vertex_at(boxes)
        same = boxes.inside(self.shape.envelope)
        same[same] = self.shape.covers(boxes.take(same))
        if not self.view.slack:
            alone = np.flatnonzero(~same & units.has_one_geometry(places))
            for side in boxes.take(alone).sides():
                same[alone] |= self.shape.covers(side)
        return same

    def __str__(self) -> str:
        return f"{self.index}: a row may not meet {self.shape}"


@dataclass(frozen=True)
class BoxComesWithin(_ShapeClause):
    """Some box is within a distance of the shape, or some row is EMPTY: its distances are 0 in JTS."""

    distance: float

    def where(self, table: Table) -> Condition:
        if self.view.vanishes(table.scale):
            return ALWAYS
        reach = self.distance + 4 * float(margin(max(self.shape.envelope.scale, table.scale), self.distance))
        near = self._near(table, [self.shape.envelope.grow(max(reach, 0.0))], self._boxes_within)
        return any_holds([near, UnitSort.EMPTY.condition])

    def _boxes_within(self, units: BoxUnits, places: Integers) -> Mask:
        return self.shape.comes_within(self._seen(units, places), self.distance)

    def __str__(self) -> str:
        return f"{self.index}: a box comes within {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxGoesBeyond(_ShapeClause):
    """Some box has a point farther than a distance from the shape, or some row is EMPTY or invalid."""

    distance: float

    def where(self, table: Table) -> Condition:
        return self._not_all(table, [self.shape.envelope.grow(max(self.distance, 0.0))], self._boxes_within)

    def _boxes_within(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._seen(units, places)
        least = self.distance - margin(np.maximum(boxes.scale(), self.shape.envelope.scale), self.distance)
        return np.asarray(self.shape.farthest(boxes) < np.minimum(least, LARGEST))

    def __str__(self) -> str:
        return f"{self.index}: a box has a point beyond {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxCompares(GeoClause):
    """Some box has a coordinate that may satisfy a comparison with one of the literals.

    ``bounds`` are the doubles around each literal. A row without a box may still have this coordinate: the row
    (lng NULL, lat 50) matches ``lat > 49``.
    """

    axis: int
    op: str
    bounds: tuple[tuple[float, float], ...]

    def where(self, table: Table) -> Condition:
        if self.view.vanishes(table.scale):
            return ALWAYS
        axis = "xy"[self.axis ^ self.view.flip]
        boxes = self._axis_condition(f"{axis}min", f"{axis}max")
        if self.view.slack:
            boxes = UnitSort.BOX.condition if self.op == "not in" else self._windows_of(table, self._half_planes())
        half = (UnitSort.ONLY_X, UnitSort.ONLY_Y)[self.axis]
        return any_holds([boxes, half.condition, UnitSort.WILD.condition])

    def _half_planes(self) -> Iterator[Envelope]:
        """Iterate over half-planes or lines, one per literal; a match lies in one of them."""
        for below, above in self.bounds:
            low, high = -math.inf if self.op[0] == "<" else below, math.inf if self.op[0] == ">" else above
            ends = (low, -math.inf, high, math.inf) if self.axis == 0 else (-math.inf, low, math.inf, high)
            yield Envelope(*ends)

    def _axis_condition(self, least: str, most: str) -> Condition:
        """Return the condition on the ends of an axis, which are finite."""
        bounds = np.clip(np.array(self.bounds, dtype=np.float64), -_FARTHEST, _FARTHEST)
        low, high = bounds[0].tolist()
        match self.op:
            case "<":
                return Compare(least, "<" if low == high else "<=", low)
            case "<=":
                return Compare(least, "<=", low)
            case ">":
                return Compare(most, ">" if low == high else ">=", high)
            case ">=":
                return Compare(most, ">=", high)
            case "in":
                return SomeValue(tuple(np.unique(bounds).tolist()), columns=(least, most))
        exact = bounds[bounds[:, 0] == bounds[:, 1]]  # a box is dropped if it equals one of these
        same = SomeValue(tuple(np.unique(exact).tolist()), equal=True, columns=(least, most))
        return AllOf((UnitSort.BOX.condition, Negation(same)))

    def __str__(self) -> str:
        values = ", ".join(f"{low:g}" for low, _ in self.bounds[:5]) + (", ..." if len(self.bounds) > 5 else "")
        return f"{self.index}: a box has {'xy'[self.axis]} {self.op} {values}"


@dataclass(frozen=True)
class BoxHasRows(GeoClause):
    """Some row is in a unit of these sorts, or (``boxed``) has a box: for IS NULL."""

    sorts: tuple[UnitSort, ...]
    boxed: bool

    def where(self, table: Table) -> Condition:
        boxed = (UnitSort.BOX, UnitSort.WILD) if self.boxed else ()
        return any_holds(sort.condition for sort in (*self.sorts, *boxed))

    def __str__(self) -> str:
        sorts = [sort.name.lower().replace("_", " ") for sort in self.sorts]
        return f"{self.index}: a row is {' or '.join([*sorts, *(['boxed'] if self.boxed else [])])}"
