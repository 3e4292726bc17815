"""The boxes of all files as a table for conditions: the *units* of GeoBox.

Each unit has a :class:`UnitSort` in the column ``sort``. First are the boxes of every file, with their bounds in the
columns ``xmin``, ``ymin``, ``xmax`` and ``ymax``; ``point`` is True if the file has only points. Rows without a box are
handled like boxes: a file has a unit for each reason, and a *wild* unit for non-finite coordinates, which only NULL
tests can drop. Units without a box satisfy no comparison of the other columns. Every row lies in a unit of its file,
unless the file has no summary: such files are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_or_unknown, plain
from geoskip.clauses import Files
from geoskip.conditions import AllOf, Among, Compare, Condition, UnitTable
from geoskip.geometry import Boxes, Envelope, Mask
from geoskip.indexes.geobox.collect import POINT_BIT

Integers = NDArray[np.int64]

ENDS = ("xmin", "ymin", "xmax", "ymax")
_BLOCK = 64
_SMALL = 4096
_DERIVED = 16


class UnitSort(IntEnum):
    """The sorts of units: boxes, reasons for rows without a box, and non-finite coordinates."""

    NULL = 0
    """The geometry is NULL, or both coordinates are."""
    ONLY_X = 1
    ONLY_Y = 2
    EMPTY = 3
    WILD = 4
    BOX = 5

    @property
    def condition(self) -> Condition:
        """Return the condition on units of this sort."""
        return Compare("sort", "=", int(self))


_SIDES = (("xmax", ">="), ("ymax", ">="), ("xmin", "<="), ("ymin", "<="))


def window(envelope: Envelope) -> Condition:
    """Return the condition on boxes that share a point with an envelope."""
    return AllOf(tuple(Compare(end, op, float(limit)) for (end, op), limit in zip(_SIDES, envelope, strict=True)))


def inside(envelope: Envelope) -> Condition:
    """Return the condition on boxes that lie in an envelope."""
    sides = zip(ENDS, (">=", ">=", "<=", "<="), envelope, strict=True)
    return AllOf(tuple(Compare(end, op, float(limit)) for end, op, limit in sides))


class BoxFacts(UnitTable):
    """Properties of all boxes together that conditions depend on: the table without its units.

    Attributes
    ----------
    extent : Envelope
        A box around all boxes.
    scale : float
        An upper bound of the absolute coordinates of the boxes.
    """

    def __init__(self, extent: Envelope):
        self.extent = extent
        self.scale = extent.scale

    def __len__(self) -> int:
        return 0

    def column(self, name: str) -> Any:
        return np.zeros(0)

    def files_with(self, units: Mask) -> Mask:
        return units


class BoxUnits(BoxFacts):
    """All units of an index over a set of files."""

    def __init__(self, files: Files, index: str, counts: tuple[str, ...]):
        self.files = len(files)
        per_file = {name: counts_or_unknown(files, index, name) for name in counts}
        boxes, owner, known = _boxes(files.summary(index, "boxes"), self.files)
        lacking = _boxless(per_file)
        for count in (*per_file.values(), *lacking.values()):
            known &= count >= 0
        if not known.all():
            stays = known[owner]
            boxes, owner = boxes.take(stays), owner[stays]
        super().__init__(boxes.extent())
        self.count_of = per_file
        self.box_file = owner
        self.unknown_file = np.flatnonzero(~known)
        found = {sort: np.flatnonzero((count > 0) & known) for sort, count in lacking.items()}
        self.unit_file = np.concatenate([owner, *found.values()])
        lengths = [len(owner), *map(len, found.values())]
        self._columns: dict[str, Any] = {"sort": np.repeat(np.array([UnitSort.BOX, *found], dtype=np.int8), lengths)}
        for end in ENDS:
            self._columns[end] = np.full(len(self), np.nan)
            self._columns[end][: len(owner)] = getattr(boxes, end)
        self.boxes = Boxes(*(self._columns[end][: len(owner)] for end in ENDS))
        self._blocks = _Blocks(boxes) if len(boxes) > _SMALL else None
        self._derived: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.unit_file)

    def column(self, name: str) -> Any:
        if name not in self._columns:  # "point"
            found = np.ones(len(self), dtype=bool)
            found[: len(self.boxes)] = self.only_points(np.arange(len(self.boxes)))
            self._columns[name] = found
        return self._columns[name]

    def answer(self, condition: AllOf | Among) -> Mask | None:
        """Mark the boxes that meet a window, by their blocks; None for other conditions."""
        if self._blocks is None or not isinstance(condition, AllOf):
            return None
        ends = {(part.column, part.op): part.value for part in condition.parts if type(part) is Compare}
        if tuple(ends) != _SIDES or len(ends) < len(condition.parts):
            return None
        found = np.zeros(len(self), dtype=bool)
        found[self._blocks.query(Envelope(*map(float, ends.values())))] = True
        return found

    def only_points(self, places: Integers) -> Mask:
        """Mark boxes of files with only points."""
        if "types" not in self.count_of:
            return np.ones(len(places), dtype=bool)
        return np.asarray(self.count_of["types"][self.box_file[places]] == POINT_BIT)

    def all_valid(self, places: Integers) -> Mask:
        """Mark boxes of files without invalid geometries."""
        if "invalid" not in self.count_of:
            return np.ones(len(places), dtype=bool)
        return np.asarray(self.count_of["invalid"][self.box_file[places]] == 0)

    def has_one_geometry(self, places: Integers) -> Mask:
        """Mark boxes of files with a single geometry, which touches every side of its box."""
        if "types" not in self.count_of:
            return np.zeros(len(places), dtype=bool)
        counts, files = self.count_of, self.box_file[places]
        one = (counts["rows"][files] - counts["boxless"][files] == 1) & (counts["nonfinite"][files] == 0)
        return np.asarray(one)

    def compute_once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached result of ``compute``; only some recent keys are kept."""
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= _DERIVED:
                self._derived.clear()
            found = self._derived[key] = compute()
        return found

    def files_with(self, units: Mask) -> Mask:
        """Mark the files with a kept unit or without a summary."""
        keep = np.zeros(self.files, dtype=bool)
        keep[self.unit_file[np.flatnonzero(units)]] = True
        keep[self.unknown_file] = True
        return keep


class _Blocks:
    """Boxes sorted along a space-filling curve, in blocks with a bounding box to limit comparisons."""

    def __init__(self, boxes: Boxes):
        self.order = np.argsort(_curve(boxes), kind="stable")
        self.sorted = boxes.take(self.order)
        starts = np.arange(0, len(boxes), _BLOCK)
        self.blocks = Boxes(
            np.minimum.reduceat(self.sorted.xmin, starts),
            np.minimum.reduceat(self.sorted.ymin, starts),
            np.maximum.reduceat(self.sorted.xmax, starts),
            np.maximum.reduceat(self.sorted.ymax, starts),
        )

    def query(self, envelope: Envelope) -> Integers:
        """Return the original positions of the boxes that meet an envelope."""
        met = self.blocks.intersects(envelope)
        whole = met & self.blocks.inside(envelope)
        some = np.flatnonzero(met & ~whole)
        places = (some[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        if len(places) and places[-1] >= len(self.order):
            places = places[places < len(self.order)]
        places = places[self.sorted.take(places).intersects(envelope)]
        if whole.any():
            sure = (np.flatnonzero(whole)[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
            places = np.concatenate([places, sure[sure < len(self.order)]])
        return self.order[places]


def _curve(boxes: Boxes) -> NDArray[np.uint16]:
    """Return Morton codes of the boxes' centres on a 256 x 256 grid of quantiles, robust to outliers."""
    code = np.zeros(len(boxes), dtype=np.uint16)
    for shift, (low, high) in enumerate(((boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax))):
        centre = (low + high) / 2
        sample = np.sort(centre[:: max(1, len(centre) // 16384)])
        part = np.searchsorted(sample[:: max(1, len(sample) // 255)][1:256], centre).astype(np.uint16)
        for step, mask in ((4, 0x0F0F), (2, 0x3333), (1, 0x5555)):
            part = (part | (part << np.uint16(step))) & np.uint16(mask)
        code |= part << np.uint16(shift)
    return code


def units_of(files: Files, index: str, counts: tuple[str, ...]) -> BoxUnits:
    """Return the units of an index, derived once per snapshot."""
    return files.cached(("geobox units", index), lambda: BoxUnits(files, index, counts))


def _boxless(counts: dict[str, Integers]) -> dict[UnitSort, Integers]:
    """Return the number of rows without a box by sort, one entry per file."""
    wild = {UnitSort.WILD: counts["nonfinite"]}
    if "empties" in counts:
        return {UnitSort.NULL: counts["nulls"], UnitSort.EMPTY: counts["empties"], **wild}
    boxless, no_x, no_y = counts["boxless"], counts["null_x"], counts["null_y"]
    both = {UnitSort.NULL: no_x + no_y - boxless, UnitSort.ONLY_X: boxless - no_x, UnitSort.ONLY_Y: boxless - no_y}
    return both | wild


def _boxes(array: Any, length: int) -> tuple[Boxes, Integers, Mask]:
    """Return all boxes, the file of each, and the mask of the files with known boxes."""
    array = plain(array)
    if len(array) != length or not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return Boxes.of([]), np.zeros(0, dtype=np.int64), np.zeros(length, dtype=bool)
    known = np.array(array.is_valid())
    lengths = np.asarray(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    owner = np.repeat(np.arange(length), lengths)
    values = array.flatten()
    parts = [_floats(values, name) for name in ENDS]
    boxes = Boxes(*parts)
    sane = np.isfinite(boxes.xmin + boxes.ymin + boxes.xmax + boxes.ymax)
    sane &= (boxes.xmin <= boxes.xmax) & (boxes.ymin <= boxes.ymax)
    if not sane.all():
        known[owner[~sane]] = False
    return boxes, owner, known


def _floats(values: Any, name: str) -> Any:
    field = values.field(name)
    if values.null_count:
        field = pc.if_else(values.is_valid(), field, None)
    return np.array(field.to_numpy(zero_copy_only=False), dtype=np.float64)
