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
    """How the box of an expression follows from the indexed box: first exchanged, then moved, then grown.

    >>> BoxTransform().flipped().shifted(1, 0).boxes(Boxes.of([(0, 5, 1, 6)])).xmin.round(3).tolist()
    [6.0]
    """

    flip: bool = False
    dx: float = 0.0
    dy: float = 0.0
    radius: float = 0.0
    slack: bool = False
    """Computed by floating-point operations: compare with a margin."""
    total: bool = True
    """EMPTY or invalid only where the indexed geometry is, what ``valid`` says aside."""
    valid: bool = True
    """No coordinate was rounded: far away, a tiny polygon that is moved has all of its corners in one place."""
    point: bool = True
    """A point wherever the indexed geometry is one."""
    least: float = np.inf
    """The least radius by which it was grown."""
    if_point: bool = False
    """Known only where the indexed geometry is a point."""
    centre: bool = False
    """The centroid: known only where the geometry is valid."""

    def flipped(self) -> BoxTransform:
        """The view with x and y exchanged on top."""
        return replace(self, flip=not self.flip, dx=self.dy, dy=self.dx)

    def shifted(self, dx: float, dy: float) -> BoxTransform:
        """The view moved on top."""
        return replace(self, dx=self.dx + dx, dy=self.dy + dy, slack=True, valid=False)

    def grown(self, radius: float) -> BoxTransform:
        """The view of a buffer; by 0 it can make points and lines EMPTY."""
        total, least = self.total and radius > 0, min(self.least, radius)
        return replace(self, radius=self.radius + radius, least=least, slack=True, total=total, point=False)

    def vertex(self) -> BoxTransform:
        """The view of one of its coordinates, never EMPTY; the box is no longer the least."""
        return replace(self, slack=True, total=True, point=True)

    def within(self) -> BoxTransform:
        """The view of something inside."""
        return replace(self, slack=True, total=False, point=False)

    def vanishes(self, scale: float) -> bool:
        """May it be EMPTY or invalid where the indexed geometry is not: was it grown by less than rounding leaves?"""
        return self.least <= LOOSENESS * (scale + self._size - self.radius)

    def boxes(self, boxes: Boxes) -> Boxes:
        """The boxes of the viewed expression."""
        if self.flip:
            boxes = boxes.flipped()
        if self.dx or self.dy:
            boxes = boxes.shifted(self.dx, self.dy)
        if self.slack:
            boxes = boxes.grown(self.radius + (boxes.scale() + self._size) * self._looseness)
        return boxes

    def back(self, envelope: Envelope, scale: float) -> Envelope:
        """An envelope such that a viewed box meets the given one only if the indexed box meets this one.

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
    """What all clauses of GeoBox share: the index's text, the counts that it stores, and the view."""

    index: str
    counts: tuple[str, ...]
    view: BoxTransform

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("boxes", *self.counts))

    def keep_units(self, files: Files) -> Mask:
        with np.errstate(all="ignore"):  # views of huge coordinates may overflow, to what keeps
            return self.keep_of(units_of(files, self.index, self.counts))

    def files_of(self, files: Files, units: Mask) -> Mask:
        return units_of(files, self.index, self.counts).files_with(units)

    @abstractmethod
    def keep_of(self, units: BoxUnits) -> Mask:
        """One entry a unit."""

    def _keeping(self, units: BoxUnits, candidates: Integers, kept: Mask) -> Mask:
        """The mask of a clause for which only some candidates can be kept; the kept ones of them."""
        keep = units.nothing()
        keep[candidates[kept]] = True
        if self.view.if_point or self.view.centre:
            keep[: units.boxless.start] |= ~self._known(units, np.arange(units.boxless.start))
        return keep

    def _dropping(self, units: BoxUnits, candidates: Integers, dropped: Mask) -> Mask:
        """The mask of a clause for which only some candidates can be dropped; the dropped ones of them."""
        keep = units.everything()
        dropped &= self._valid(units, candidates) & self._known(units, candidates)
        keep[candidates[dropped]] = False
        keep[units.boxless] = units.boxless_of(NoBoxReason.EMPTY)
        return keep

    def _known(self, units: BoxUnits, places: Integers) -> Mask:
        """Which of some boxes are of files of which the view is known."""
        known = units.only_points(places) if self.view.if_point else np.ones(len(places), dtype=bool)
        return known & self._valid(units, places) if self.view.centre else known

    def _valid(self, units: BoxUnits, places: Integers) -> Mask:
        """Which of some boxes are of files where every geometry, as viewed, is valid."""
        if self.view.vanishes(units.scale):
            return np.zeros(len(places), dtype=bool)
        return units.all_valid(places) if self.view.valid else units.only_points(places)

    def _meeting(self, units: BoxUnits, envelope: Envelope) -> Integers:
        """The places of the boxes that, as viewed, may meet an envelope."""
        return units.meeting(self.view.back(envelope, units.scale))

    def _seen(self, units: BoxUnits, places: Integers) -> Boxes:
        return self.view.boxes(units.boxes.take(places))


@dataclass(frozen=True)
class BoxMeets(GeoClause):
    """Some box shares a point with the shape: for whatever needs a common point, which NULL and EMPTY never have."""

    shape: Shape

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._meeting(units, self.shape.envelope)
        if self.view.slack:
            candidates = candidates[self._seen(units, candidates).meeting(self.shape.envelope)]
        return self._keeping(units, candidates, self.shape.meets(self._seen(units, candidates)))

    def __str__(self) -> str:
        return f"{self.index}: a box meets {self.shape}"


@dataclass(frozen=True)
class BoxEncloses(GeoClause):
    """Some box contains the shape's envelope: whatever contains a shape that is not EMPTY."""

    shape: Shape

    def keep_of(self, units: BoxUnits) -> Mask:
        envelope = self.shape.envelope
        candidates = self._meeting(units, envelope.grown(envelope.scale * LOOSENESS))
        loose = self._seen(units, candidates).loosened()
        return self._keeping(units, candidates, loose.containing(envelope))

    def __str__(self) -> str:
        return f"{self.index}: a box contains the envelope of {self.shape}"


@dataclass(frozen=True)
class BoxEquals(BoxEncloses):
    """Some box contains the shape's envelope, as what equals a shape does, or some row is invalid.

    Sedona holds those to be equal whose symmetric difference is EMPTY. JTS makes that of a line and of a polygon
    without an area too, wherever else the line goes; an overlay of valid ones leaves nothing out.
    """

    def keep_of(self, units: BoxUnits) -> Mask:
        keep = super().keep_of(units)
        keep[: units.boxless.start] |= ~self._valid(units, np.arange(units.boxless.start))
        return keep

    def __str__(self) -> str:
        return f"{super().__str__()}, or a row is invalid"


@dataclass(frozen=True)
class BoxLeaves(GeoClause):
    """Some box is not wholly in the polygon (or, ``openly``, in its interior), or some row is EMPTY or invalid.

    A valid geometry whose box lies in the polygon is covered by it, and intersects it; in the interior, it is
    contained by it.
    """

    shape: Shape
    openly: bool

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._meeting(units, self.shape.envelope)
        boxes = self._seen(units, candidates)
        inside = boxes.inside(self.shape.envelope)
        candidates, boxes = candidates[inside], boxes.take(inside)
        covered = self.shape.holds_inside(boxes) if self.openly else self.shape.covers(boxes)
        return self._dropping(units, candidates, covered)

    def __str__(self) -> str:
        return f"{self.index}: a box is not {'in the interior of' if self.openly else 'within'} {self.shape}"


@dataclass(frozen=True)
class BoxDiffers(GeoClause):
    """Some row's distance to the shape may be another than this: at 0, some row may be disjoint.

    It is this one for all rows of a box that is one point where rounding changes nothing; at 0, for all valid rows of
    a box that lies in the polygon, and for one that is alone in its file and of whose box the polygon covers a side:
    a geometry touches every side of its own box.
    """

    shape: Shape
    distance: float

    def keep_of(self, units: BoxUnits) -> Mask:
        candidates = self._meeting(units, self.shape.envelope.grown(self.distance * (1 + LOOSENESS)))
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
        return self._dropping(units, candidates, same)

    def __str__(self) -> str:
        if self.distance == 0:
            return f"{self.index}: a row may not meet {self.shape}"
        return f"{self.index}: a row may be at another distance than {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxComesWithin(GeoClause):
    """Some box comes within a distance of the shape, or some row is EMPTY: JTS says 0 for its distances."""

    shape: Shape
    distance: float

    def keep_of(self, units: BoxUnits) -> Mask:
        if self.view.vanishes(units.scale):
            return units.everything()
        reach = self.distance + 4 * float(margin(max(self.shape.envelope.scale, units.scale), self.distance))
        candidates = self._meeting(units, self.shape.envelope.grown(max(reach, 0.0)))
        boxes = self._seen(units, candidates)
        keep = self._keeping(units, candidates, self.shape.comes_within(boxes, self.distance))
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
        candidates = self._meeting(units, self.shape.envelope.grown(max(self.distance, 0.0)))
        boxes = self._seen(units, candidates)
        least = self.distance - margin(np.maximum(boxes.scale(), self.shape.envelope.scale), self.distance)
        return self._dropping(units, candidates, self.shape.farthest(boxes) < np.minimum(least, LARGEST))

    def __str__(self) -> str:
        return f"{self.index}: a box has a point beyond {self.distance:g} of {self.shape}"


@dataclass(frozen=True)
class BoxCompares(GeoClause):
    """Some box has a coordinate that may satisfy a comparison; ``low`` and ``high`` are doubles around the literals.

    A row without a box may still have this coordinate: the row (lng NULL, lat 50) matches ``lat > 49``.
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
    """Some row is of these boxless sorts, or, ``boxed``, has a box: for IS NULL and IS NOT NULL, by the counts."""

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
