"""The boxes of all files as arrays, ready for clauses: the *units* of GeoBox.

Units come in this order: every box of every file; *boxless* units for the rows that have no box, because they are one
more box in any reasoning box by box: one for each file and each :class:`NoBoxReason` sort of rows that it has; one
*wild* unit for each file with non-finite coordinates, which nothing but NULL tests can drop; one *unknown* unit for
each file without a summary, which nothing can drop. Every row lies in a unit of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.clauses import Files
from geoskip.geometry.boxes import Boxes, Envelope, Mask
from geoskip.indexes.geobox.collect import POINT_BIT

__all__ = ["NoBoxReason", "BoxUnits", "units_of"]

Integers = NDArray[np.int64]

_BLOCK = 64
_SMALL = 4096
_DERIVED = 16


class NoBoxReason(IntEnum):
    """The reasons for which rows have no box."""

    NULL = 0
    """The geometry is NULL, or both coordinates are."""
    ONLY_X = 1
    ONLY_Y = 2
    EMPTY = 3


class BoxUnits:
    """All units of an index over a set of files."""

    def __init__(self, files: Files, index: str, counts: tuple[str, ...]):
        self.files = len(files)
        per_file = {name: _counts(files.summary(index, name), self.files) for name in counts}
        unknown = np.zeros(self.files, dtype=bool)
        for values in per_file.values():
            unknown |= values < 0
        boxes, owner, known = _boxes(files.summary(index, "boxes"), self.files)
        unknown |= ~known
        sorts = _boxless(per_file)
        for count in sorts.values():
            unknown |= count < 0
        if unknown.any():
            stays = ~unknown[owner]
            boxes, owner = boxes.take(stays), owner[stays]
        self.boxes = boxes
        self.count_of = per_file
        self.box_file = owner
        known_files = {sort: np.flatnonzero((count > 0) & ~unknown) for sort, count in sorts.items()}
        self.boxless_file = np.concatenate(list(known_files.values()))
        self.boxless_sort = np.repeat(list(known_files), [len(files) for files in known_files.values()])
        self.wild_file = np.flatnonzero((per_file["nonfinite"] > 0) & ~unknown)
        self.unknown_file = np.flatnonzero(unknown)
        self.unit_file = np.concatenate([owner, self.boxless_file, self.wild_file, self.unknown_file])
        self.boxless = slice(len(owner), len(owner) + len(self.boxless_file))
        self.wild = slice(self.boxless.stop, self.boxless.stop + len(self.wild_file))
        self.scale = boxes.largest()
        """The largest absolute coordinate."""
        self._blocks = _Blocks(boxes) if len(boxes) > _SMALL else None
        self._derived: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.unit_file)

    def nothing(self) -> Mask:
        """Return a mask that keeps only files with non-finite coordinates and unknown files."""
        keep = np.zeros(len(self), dtype=bool)
        keep[self.wild.start :] = True
        return keep

    def everything(self) -> Mask:
        """Return a mask that keeps all units."""
        return np.ones(len(self), dtype=bool)

    def meeting(self, envelope: Envelope) -> Integers:
        """Return the places of the boxes that share a point with an envelope."""
        if self._blocks is not None:
            return self._blocks.meeting(envelope)
        return np.flatnonzero(self.boxes.meeting(envelope))

    def boxless_of(self, *sorts: NoBoxReason) -> Mask:
        """Return the mask of the boxless units with one of these reasons."""
        return np.isin(self.boxless_sort, sorts)

    def only_points(self, places: Integers) -> Mask:
        """Return the mask of those boxes in whose files all geometries are points."""
        if "types" not in self.count_of:
            return np.ones(len(places), dtype=bool)
        return np.asarray(self.count_of["types"][self.box_file[places]] == POINT_BIT)

    def all_valid(self, places: Integers) -> Mask:
        """Return the mask of those boxes in whose files no geometry is invalid."""
        if "invalid" not in self.count_of:
            return np.ones(len(places), dtype=bool)
        return np.asarray(self.count_of["invalid"][self.box_file[places]] == 0)

    def alone(self, places: Integers) -> Mask:
        """Return the mask of those boxes whose file has one geometry, which touches every side of its box."""
        if "types" not in self.count_of:
            return np.zeros(len(places), dtype=bool)
        return np.asarray(self.derived("alone", self._alone)[places])

    def _alone(self) -> Mask:
        counts = self.count_of
        one = (counts["rows"] - counts["boxless"] == 1) & (counts["nonfinite"] == 0)
        return np.asarray(one[self.box_file])

    def derived(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached result of ``compute``; only some recent keys are kept."""
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= _DERIVED:
                self._derived.clear()
            found = self._derived[key] = compute()
        return found

    def files_with(self, units: Mask) -> Mask:
        """Return the mask of the files with a kept unit."""
        keep = np.zeros(self.files, dtype=bool)
        keep[self.unit_file[np.flatnonzero(units)]] = True
        return keep


class _Blocks:
    """Boxes sorted along a space-filling curve, in blocks with a bounding box, so that few are compared."""

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

    def meeting(self, envelope: Envelope) -> Integers:
        """Return the places, in the original order, of the boxes that meet an envelope."""
        met = self.blocks.meeting(envelope)
        whole = met & self.blocks.inside(envelope)
        some = np.flatnonzero(met & ~whole)
        places = (some[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        if len(places) and places[-1] >= len(self.order):
            places = places[places < len(self.order)]
        places = places[self.sorted.take(places).meeting(envelope)]
        if whole.any():
            sure = (np.flatnonzero(whole)[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
            places = np.concatenate([places, sure[sure < len(self.order)]])
        return self.order[places]


def _curve(boxes: Boxes) -> NDArray[np.uint16]:
    """Return the Morton codes of the boxes' centres on 256 x 256 quantiles, which outliers do not distort."""
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
    """Return the units of an index, derived once a snapshot."""
    return files.cached(("geobox units", index), lambda: BoxUnits(files, index, counts))


def _boxless(counts: dict[str, Integers]) -> dict[NoBoxReason, Integers]:
    """Return the number of rows without a box by reason, one entry a file."""
    if "empties" in counts:
        return {NoBoxReason.NULL: counts["nulls"], NoBoxReason.EMPTY: counts["empties"]}
    boxless, no_x, no_y = counts["boxless"], counts["null_x"], counts["null_y"]
    return {
        NoBoxReason.NULL: no_x + no_y - boxless,
        NoBoxReason.ONLY_X: boxless - no_x,
        NoBoxReason.ONLY_Y: boxless - no_y,
    }


def _counts(array: Any, length: int) -> Integers:
    """Return a count a file, -1 where unknown."""
    array = _plain(array)
    if len(array) != length or not pa.types.is_integer(array.type):
        return np.full(length, -1)
    return np.asarray(array.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)


def _boxes(array: Any, length: int) -> tuple[Boxes, Integers, Mask]:
    """Return all boxes, the file of each, and the mask of the files whose boxes are known."""
    array = _plain(array)
    if len(array) != length or not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return Boxes.of([]), np.zeros(0, dtype=np.int64), np.zeros(length, dtype=bool)
    known = np.array(array.is_valid())
    lengths = np.asarray(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    owner = np.repeat(np.arange(length), lengths)
    values = array.flatten()
    parts = [_floats(values, name) for name in ("xmin", "ymin", "xmax", "ymax")]
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


def _plain(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
