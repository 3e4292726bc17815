"""The clauses of GeoBox: conditions on the boxes of every file that may contain a matching row.

Each states a condition on :mod:`geoskip.indexes.geobox.units`, so that AND merges box by box: one row lies in one box.
A *view* says how the box of the tested expression follows from the indexed one: exchanged, moved or grown, perhaps
EMPTY. What a server or the boxes' blocks can find are the boxes that meet a window; shapes are compared by code.

Sound because a row's geometry lies in its closed box: what cannot be true of any geometry in the box is not true of
the row. For the negated families the opposite is shown: what is true of every geometry in the box makes ``NOT`` false.
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
    """True if computed by floating-point operations: comparisons take a margin."""
    total: bool = True
    """True if EMPTY or invalid only where the indexed geometry is, apart from ``valid``."""
    valid: bool = True
    """True if no coordinate was rounded: rounding may move all corners of a tiny polygon to one place."""
    point: bool = True
    """True if a point wherever the indexed geometry is one."""
    least: float = np.inf
    """The least radius by which the box was grown."""
    if_point: bool = False
    """True if known only where the indexed geometry is a point."""
    centre: bool = False
    """True for the centroid, which is known only where the geometry is valid."""

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
        """Return the view of one of the coordinates, never EMPTY; the box is no longer the least."""
        return replace(self, slack=True, total=True, point=True)

    def inner_view(self) -> BoxTransform:
        """Return the view of something inside the box."""
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
        """Return an envelope that the indexed box meets wherever the viewed box meets the given one.

        ``scale`` is the largest absolute coordinate of the indexed boxes.
        """
        if self.slack:
            envelope = envelope.grow(self.radius + 4 * self._looseness * (self._size + scale))
        west, south, east, north = envelope
        west, south, east, north = west - self.dx, south - self.dy, east - self.dx, north - self.dy
        return Envelope(south, west, north, east) if self.flip else Envelope(west, south, east, north)

    def preimage(self, shape: BaseGeometry) -> BaseGeometry:
        """Return where a shape lies for the indexed geometry that is compared with the viewed one."""

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
    """The base of GeoBox's clauses: the index's text, the counts that it stores, and the view."""

    index: str
    counts: tuple[str, ...]
    view: BoxTransform

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("boxes", *self.counts))

    def units(self, files: Files) -> BoxUnits:
        return units_of(files, self.index, self.counts)

    def keep_units(self, files: Files) -> Mask:
        with np.errstate(all="ignore"):  # views of huge coordinates may overflow to infinities, which keep
            return super().keep_units(files)

    def outline(self) -> BaseGeometry | None:
        """Return what the boxes are compared with, as it lies for the indexed geometry; None without."""
        return None

    def _code(self, where: Condition, keep: Callable[[Any, Integers], Mask]) -> Condition:
        return Refine(where, keep, type(self).__name__)

    def _near(
        self, table: Table, envelopes: Iterable[Envelope], kept: Callable[[BoxUnits, Integers], Mask] | None
    ) -> Condition:
        """The condition that keeps, of the boxes that may meet an envelope as viewed, those that code keeps."""
        windows = self._windows_of(table, envelopes)
        near = windows if kept is None else self._code(windows, kept)
        unknown = self._unsure() if self.view.if_point or self.view.centre else NEVER
        return any_holds([near, unknown, UnitSort.WILD.condition])

    def _windows_of(self, table: Table, envelopes: Iterable[Envelope]) -> Condition:
        return any_holds(window(self.view.back(envelope, table.scale)) for envelope in envelopes)

    def _unsure(self) -> Condition:
        """The condition that keeps the boxes of files whose view is unknown, or that have something invalid."""
        mixed: Condition = Compare("point", "=", False)  # only these files may have either
        if "types" not in self.counts:
            return NEVER
        return mixed if self.view.if_point else self._code(mixed, lambda *given: ~self._valid_boxes(*given))

    def _not_all(
        self, table: Table, envelopes: Iterable[Envelope], dropped: Callable[[BoxUnits, Integers], Mask]
    ) -> Condition:
        """The condition that keeps EMPTY rows, and all but those boxes near an envelope that code drops."""
        windows = self._windows_of(table, envelopes)
        elsewhere = AllOf((UnitSort.BOX.condition, Negation(windows)))
        near = self._code(windows, lambda *given: ~(self._sure(*given) & dropped(*given)))
        return any_holds([elsewhere, near, UnitSort.EMPTY.condition, UnitSort.WILD.condition])

    def _sure(self, units: BoxUnits, places: Integers) -> Mask:
        """Return the mask of those boxes whose files have a known view, and nothing invalid."""
        sure = self._valid_boxes(units, places)
        return sure & units.only_points(places) if self.view.if_point else sure

    def _valid_boxes(self, units: BoxUnits, places: Integers) -> Mask:
        """Return the mask of those boxes in whose files every geometry, as viewed, is valid."""
        if self.view.vanishes(units.scale):
            return np.zeros(len(places), dtype=bool)
        return units.all_valid(places) if self.view.valid else units.only_points(places)

    def _seen(self, units: BoxUnits, places: Integers) -> Boxes:
        return self.view.boxes(units.boxes.take(places))


@dataclass(frozen=True)
class _ShapeClause(GeoClause):
    shape: Shape

    def outline(self) -> BaseGeometry | None:
        """Return the shape; with a distance, the area within it."""
        distance = getattr(self, "distance", 0)
        shape = shapely.buffer(self.shape.geometry, distance, quad_segs=32) if distance > 0 else self.shape.geometry
        return self.view.preimage(shape)


@dataclass(frozen=True)
class BoxMeets(_ShapeClause):
    """Some box shares a point with the shape: for relations that need a common point."""

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
    """Some box contains the shape's envelope, as a geometry does that contains a shape that is not EMPTY."""

    def where(self, table: Table) -> Condition:
        envelope = self.shape.envelope
        return self._near(table, [envelope.grow(envelope.scale * LOOSENESS)], self._contains)

    def _contains(self, units: BoxUnits, places: Integers) -> Mask:
        return self._seen(units, places).loosen().contains(self.shape.envelope)

    def __str__(self) -> str:
        return f"{self.index}: a box contains the envelope of {self.shape}"


@dataclass(frozen=True)
class BoxEquals(BoxEncloses):
    """Some box contains the shape's envelope, as what equals a shape does, or some row is invalid.

    To Sedona, geometries are equal if their symmetric difference is EMPTY. JTS may return EMPTY for a line and a
    polygon without an area too, wherever else the line goes; an overlay of valid geometries is complete.
    """

    def where(self, table: Table) -> Condition:
        invalid = UnitSort.BOX.condition if self.view.vanishes(table.scale) else self._unsure()
        return any_holds([super().where(table), invalid])

    def __str__(self) -> str:
        return f"{super().__str__()}, or a row is invalid"


@dataclass(frozen=True)
class BoxLeaves(_ShapeClause):
    """Some box is not wholly in the polygon (``openly``: its interior), or some row is EMPTY or invalid.

    A valid geometry whose box lies in the polygon is covered by it, and intersects it; in the interior, it is
    contained by it.
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

    All valid rows of a box that lies in the polygon meet it, and so does a row that is alone in its file if the polygon
    covers a side of its box: a geometry touches every side of its own box. Other shapes are met by all rows of a box
    that is one of their vertices, not moved by rounding.
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
    """Some box comes within a distance of the shape, or some row is EMPTY, whose distances are 0 in JTS."""

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
        """The half-plane or the line of each literal, in one of which a match lies."""
        for below, above in self.bounds:
            low, high = -math.inf if self.op[0] == "<" else below, math.inf if self.op[0] == ">" else above
            ends = (low, -math.inf, high, math.inf) if self.axis == 0 else (-math.inf, low, math.inf, high)
            yield Envelope(*ends)

    def _axis_condition(self, least: str, most: str) -> Condition:
        """The condition on the ends of an axis, which are finite."""
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
        exact = bounds[bounds[:, 0] == bounds[:, 1]]  # dropped where every row has one and the same of these
        same = SomeValue(tuple(np.unique(exact).tolist()), equal=True, columns=(least, most))
        return AllOf((UnitSort.BOX.condition, Negation(same)))

    def __str__(self) -> str:
        values = ", ".join(f"{low:g}" for low, _ in self.bounds[:5]) + (", ..." if len(self.bounds) > 5 else "")
        return f"{self.index}: a box has {'xy'[self.axis]} {self.op} {values}"


@dataclass(frozen=True)
class BoxHasRows(GeoClause):
    """Some row has no box for one of these reasons, or (``boxed``) has a box: for IS NULL."""

    sorts: tuple[UnitSort, ...]
    boxed: bool

    def where(self, table: Table) -> Condition:
        boxed = (UnitSort.BOX, UnitSort.WILD) if self.boxed else ()
        return any_holds(sort.condition for sort in (*self.sorts, *boxed))

    def __str__(self) -> str:
        sorts = [sort.name.lower().replace("_", " ") for sort in self.sorts]
        return f"{self.index}: a row is {' or '.join([*sorts, *(['boxed'] if self.boxed else [])])}"
