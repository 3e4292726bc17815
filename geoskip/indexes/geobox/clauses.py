"""The clauses of GeoBox: what is true of the boxes of a file that may hold a matching row.

Each is a :class:`~geoskip.clauses.UnitClause`, so that AND merges box by box: one row lies in one box. A *view* says
how the box of the tested expression follows from the indexed one: exchanged, moved or grown, perhaps EMPTY.

Sound because a row's geometry lies in its closed box: what cannot be true of any geometry in the box is not true of
the row. For the negated families the opposite is shown: what is true of every geometry in the box makes ``NOT`` false.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geoskip.clauses import Files, UnitClause
from geoskip.geometry.boxes import LARGEST, LOOSENESS, Boxes, Envelope, Mask
from geoskip.geometry.centroids import ROUNDING
from geoskip.geometry.shapes import Shape, margin
from geoskip.indexes.geobox.units import BoxUnits, NoBoxReason, units_of

__all__ = [
    "BoxComesWithin",
    "BoxCompares",
    "BoxDiffers",
    "BoxEncloses",
    "BoxEquals",
    "BoxGoesBeyond",
    "BoxHasRows",
    "BoxLeaves",
    "BoxMeets",
    "BoxTransform",
]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class BoxTransform:
    """The box of an expression as a function of the indexed box: axes exchanged, then moved, then grown.

    >>> BoxTransform().flipped().shifted(1, 0).boxes(Boxes.of([(0, 5, 1, 6)])).xmin.round(3).tolist()
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

    def flipped(self) -> BoxTransform:
        """Return the view with x and y exchanged."""
        return replace(self, flip=not self.flip, dx=self.dy, dy=self.dx)

    def shifted(self, dx: float, dy: float) -> BoxTransform:
        """Return the view moved by an offset."""
        return replace(self, dx=self.dx + dx, dy=self.dy + dy, slack=True, valid=False)

    def grown(self, radius: float) -> BoxTransform:
        """Return the view of a buffer; one of radius 0 can make points and lines EMPTY."""
        total, least = self.total and radius > 0, min(self.least, radius)
        return replace(self, radius=self.radius + radius, least=least, slack=True, total=total, point=False)

    def vertex(self) -> BoxTransform:
        """Return the view of one of the coordinates, never EMPTY; the box is no longer the least."""
        return replace(self, slack=True, total=True, point=True)

    def within(self) -> BoxTransform:
        """Return the view of something inside the box."""
        return replace(self, slack=True, total=False, point=False)

    def vanishes(self, scale: float) -> bool:
        """True if a buffer smaller than the rounding error may be EMPTY or invalid."""
        return self.least <= LOOSENESS * (scale + self._size - self.radius)

    def boxes(self, boxes: Boxes) -> Boxes:
        """Return the boxes of the viewed expression."""
        if self.flip:
            boxes = boxes.flipped()
        if self.dx or self.dy:
            boxes = boxes.shifted(self.dx, self.dy)
        if self.slack:
            boxes = boxes.grown(self.radius + (boxes.scale() + self._size) * self._looseness)
        return boxes

    def back(self, envelope: Envelope, scale: float) -> Envelope:
        """Return an envelope that the indexed box meets wherever the viewed box meets the given one.

        ``scale`` is the largest absolute coordinate of the indexed boxes.
        """
        if self.slack:
            envelope = envelope.grown(self.radius + 4 * self._looseness * (self._size + scale))
        west, south, east, north = envelope
        west, south, east, north = west - self.dx, south - self.dy, east - self.dx, north - self.dy
        return Envelope(south, west, north, east) if self.flip else Envelope(west, south, east, north)

    @property
    def _looseness(self) -> float:
        return 2 * ROUNDING if self.centre else LOOSENESS

    @property
    def _size(self) -> float:
        return abs(self.dx) + abs(self.dy) + self.radius


@dataclass(frozen=True)
class GeoClause(UnitClause):
    """The base of GeoBox's clauses: the index's text, the counts that it stores, and the view."""

    index: str
    counts: tuple[str, ...]
    view: BoxTransform

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("boxes", *self.counts))

    def keep_units(self, files: Files) -> Mask:
        with np.errstate(all="ignore"):  # views of huge coordinates may overflow to infinities, which keep
            return self.keep_of(units_of(files, self.index, self.counts))

    def files_of(self, files: Files, units: Mask) -> Mask:
        return units_of(files, self.index, self.counts).files_with(units)

    @abstractmethod
    def keep_of(self, units: BoxUnits) -> Mask:
        """Return the mask of the kept units."""

    def _mask_keeping(self, units: BoxUnits, candidates: Integers, kept: Mask) -> Mask:
        """Return the mask of a clause that can keep only some candidates, given the kept ones of them."""
        keep = units.nothing()
        keep[candidates[kept]] = True
        if self.view.if_point or self.view.centre:
            keep[: units.boxless.start] |= ~self._known_boxes(units, np.arange(units.boxless.start))
        return keep

    def _mask_dropping(self, units: BoxUnits, candidates: Integers, dropped: Mask) -> Mask:
        """Return the mask of a clause that can drop only some candidates, given the dropped ones of them."""
        keep = units.everything()
        dropped &= self._valid_boxes(units, candidates) & self._known_boxes(units, candidates)
        keep[candidates[dropped]] = False
        keep[units.boxless] = units.boxless_of(NoBoxReason.EMPTY)
        return keep

    def _known_boxes(self, units: BoxUnits, places: Integers) -> Mask:
        """Return the mask of those boxes whose files have a known view."""
        known = units.only_points(places) if self.view.if_point else np.ones(len(places), dtype=bool)
        return known & self._valid_boxes(units, places) if self.view.centre else known

    def _valid_boxes(self, units: BoxUnits, places: Integers) -> Mask:
        """Return the mask of those boxes in whose files every geometry, as viewed, is valid."""
        if self.view.vanishes(units.scale):
            return np.zeros(len(places), dtype=bool)
        return units.all_valid(places) if self.view.valid else units.only_points(places)

    def _boxes_near(self, units: BoxUnits, envelope: Envelope) -> Integers:
        """Return the places of the boxes that, as viewed, may meet an envelope."""
        return units.meeting(self.view.back(envelope, units.scale))

    def _seen(self, units: BoxUnits, places: Integers) -> Boxes:
        return self.view.boxes(units.boxes.take(places))


@dataclass(frozen=True)
class BoxMeets(GeoClause):
    """Some box shares a point with the shape: for relations that need a common point."""

    shape: Shape

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._boxes_near(units, self.shape.envelope)
        if self.view.slack:
            candidates = candidates[self._seen(units, candidates).meeting(self.shape.envelope)]
        return self._mask_keeping(units, candidates, self.shape.meets(self._seen(units, candidates)))

    def __str__(self) -> str:
        return f"{self.index}: a box meets {self.shape}"


@dataclass(frozen=True)
class BoxEncloses(GeoClause):
    """Some box contains the shape's envelope, as a geometry does that contains a shape that is not EMPTY."""

    shape: Shape

    def keep_of(self, units: BoxUnits) -> Mask:
        envelope = self.shape.envelope
        candidates = self._boxes_near(units, envelope.grown(envelope.scale * LOOSENESS))
        loose = self._seen(units, candidates).loosened()
        return self._mask_keeping(units, candidates, loose.containing(envelope))

    def __str__(self) -> str:
        return f"{self.index}: a box contains the envelope of {self.shape}"


@dataclass(frozen=True)
class BoxEquals(BoxEncloses):
    """Some box contains the shape's envelope, as what equals a shape does, or some row is invalid.

    To Sedona, geometries are equal if their symmetric difference is EMPTY. JTS may return EMPTY for a line and a
    polygon without an area too, wherever else the line goes; an overlay of valid geometries is complete.
    """

    def keep_of(self, units: BoxUnits) -> Mask:
        keep = super().keep_of(units)
        keep[: units.boxless.start] |= ~self._valid_boxes(units, np.arange(units.boxless.start))
        return keep

    def __str__(self) -> str:
        return f"{super().__str__()}, or a row is invalid"


@dataclass(frozen=True)
class BoxLeaves(GeoClause):
    """Some box is not wholly in the polygon (``openly``: its interior), or some row is EMPTY or invalid.

    A valid geometry whose box lies in the polygon is covered by it, and intersects it; in the interior, it is
    contained by it.
    """

    shape: Shape
    openly: bool

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._boxes_near(units, self.shape.envelope)
        boxes = self._seen(units, candidates)
        inside = boxes.inside(self.shape.envelope)
        candidates, boxes = candidates[inside], boxes.take(inside)
        covered = self.shape.holds_inside(boxes) if self.openly else self.shape.covers(boxes)
        return self._mask_dropping(units, candidates, covered)

    def __str__(self) -> str:
        return f"{self.index}: a box is not {'in the interior of' if self.openly else 'within'} {self.shape}"


@dataclass(frozen=True)
class BoxDiffers(GeoClause):
    """Some row's distance to the shape may be another than this: at 0, some row may be disjoint.

    All rows of a box that is one point, not moved by rounding, have one distance. At 0, all valid rows of a box that
    lies in the polygon have distance 0, and so has a row that is alone in its file if the polygon covers a side of its
    box: a geometry touches every side of its own box.
    """

    shape: Shape
    distance: float

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._boxes_near(units, self.shape.envelope.grown(self.distance * (1 + LOOSENESS)))
        boxes = self._seen(units, candidates)
        same = np.zeros(len(candidates), dtype=bool)
        if self.distance == 0 and self.shape.polygonal:
            inside = boxes.inside(self.shape.envelope)
            same[inside] = self.shape.covers(boxes.take(inside))
            alone = np.flatnonzero(~same & units.alone(candidates) & (not self.view.slack))
            for side in boxes.take(alone).sides():
                same[alone] |= self.shape.covers(side)
        elif not self.view.slack:
            same = self.shape.is_exactly_at(boxes, self.distance)
        return self._mask_dropping(units, candidates, same)

    def __str__(self) -> str:
        if self.distance == 0:
            return f"{self.index}: a row may not meet {self.shape}"
        return f"{self.index}: a row may be at another distance than {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxComesWithin(GeoClause):
    """Some box comes within a distance of the shape, or some row is EMPTY, whose distances are 0 in JTS."""

    shape: Shape
    distance: float

    def keep_of(self, units: BoxUnits) -> Mask:
        if self.view.vanishes(units.scale):
            return units.everything()
        reach = self.distance + 4 * float(margin(max(self.shape.envelope.scale, units.scale), self.distance))
        candidates = self._boxes_near(units, self.shape.envelope.grown(max(reach, 0.0)))
        boxes = self._seen(units, candidates)
        keep = self._mask_keeping(units, candidates, self.shape.comes_within(boxes, self.distance))
        keep[units.boxless] = units.boxless_of(NoBoxReason.EMPTY)
        return keep

    def __str__(self) -> str:
        return f"{self.index}: a box comes within {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxGoesBeyond(GeoClause):
    """Some box has a point farther than a distance from the shape, or some row is EMPTY or invalid."""

    shape: Shape
    distance: float

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._boxes_near(units, self.shape.envelope.grown(max(self.distance, 0.0)))
        boxes = self._seen(units, candidates)
        least = self.distance - margin(np.maximum(boxes.scale(), self.shape.envelope.scale), self.distance)
        return self._mask_dropping(units, candidates, self.shape.farthest(boxes) < np.minimum(least, LARGEST))

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

    def keep_of(self, units: BoxUnits) -> Mask:
        if self.view.vanishes(units.scale):
            return units.everything()
        boxes = self.view.boxes(units.boxes)
        least, most = (boxes.xmin, boxes.xmax) if self.axis == 0 else (boxes.ymin, boxes.ymax)
        keep = units.everything()
        keep[: units.boxless.start] = self._compared(least, most)
        keep[units.boxless] = units.boxless_of((NoBoxReason.ONLY_X, NoBoxReason.ONLY_Y)[self.axis])
        return keep

    def _compared(self, least: Any, most: Any) -> Mask:
        low, high = self.bounds[0]
        match self.op:
            case "<":
                kept = least < low if low == high else least <= low
            case "<=":
                kept = least <= low
            case ">":
                kept = most > high if low == high else most >= high
            case ">=":
                kept = most >= high
            case "in":
                lows, highs = np.sort(np.array(self.bounds), axis=0).T
                first = np.searchsorted(highs, least)  # the first value that is not below the box
                kept = np.append(lows, np.inf)[first] <= most
            case _:  # not in: dropped where every row has one and the same excluded value
                excluded = [low for low, high in self.bounds if low == high]
                kept = (least != most) | ~np.isin(least, excluded)
        return np.asarray(kept, dtype=bool)

    def __str__(self) -> str:
        values = ", ".join(f"{low:g}" for low, _ in self.bounds[:5]) + (", ..." if len(self.bounds) > 5 else "")
        return f"{self.index}: a box has {'xy'[self.axis]} {self.op} {values}"


@dataclass(frozen=True)
class BoxHasRows(GeoClause):
    """Some row has no box for one of these reasons, or (``boxed``) has a box: for IS NULL."""

    sorts: tuple[NoBoxReason, ...]
    boxed: bool

    def keep_of(self, units: BoxUnits) -> Mask:
        keep = np.full(len(units), self.boxed)
        keep[units.boxless] = units.boxless_of(*self.sorts)
        keep[units.wild.stop :] = True
        return keep

    def __str__(self) -> str:
        sorts = [sort.name.lower().replace("_", " ") for sort in self.sorts]
        return f"{self.index}: a row is {' or '.join([*sorts, *(['boxed'] if self.boxed else [])])}"
