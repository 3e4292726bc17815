"""Which boxes to keep of a file: up to k of them, chosen by what they save.

A file whose rows come from several clusters is useless under one box: three clusters, and every query between them
reads the file. The centres are binned to a 64 x 64 grid; the region of the grid whose best straight cut saves most is
cut, again and again, until k regions are made or a cut no longer saves a twentieth of what all cost. The cost of a
region is the chance that a small query meets it: (width + 1) * (height + 1) in cells. A region of a few cells that
holds most rows is looked at again on a grid of its own. One row lies wholly in one region, so the closed boxes of the
regions cover all rows.

On 42,049 zip codes in 400 files of three clusters each, polygons read a twelfth of the files that one box would; on
clustered files 97 % of the files read hold a matching row, against 93 % under one box. 1-2 ms a file and 60 ns a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geoskip.geometry.boxes import Boxes, Envelope, Floats

__all__ = ["DEFAULT_BOXES", "split"]

DEFAULT_BOXES = 8
_GRID = 64
_WORTH = 0.05
_TINY = 8
_LEAST = 1e-290  # below it, _GRID / extent would overflow


class _Region(NamedTuple):
    first_column: int
    first_row: int
    end_column: int
    end_row: int

    @property
    def cells(self) -> tuple[slice, slice]:
        return slice(self.first_column, self.end_column), slice(self.first_row, self.end_row)


class _Cut(NamedTuple):
    saving: float
    parts: tuple[_Region, _Region]


def split(boxes: Boxes, most: int = DEFAULT_BOXES) -> Boxes:
    """At most ``most`` boxes that cover the given ones, each of which lies wholly in one of them.

    >>> split(Boxes.of([(0, 0, 1, 1), (0, 1, 1, 2), (50, 50, 51, 51)])).xmax.tolist()
    [1.0, 51.0]
    """
    if len(boxes) == 0:
        return boxes
    groups = _groups(boxes, most)
    return Boxes(*map(np.atleast_1d, _extent(boxes))) if groups is None else _gathered(boxes, groups)


def _groups(boxes: Boxes, most: int) -> NDArray[np.uint8] | None:
    """The number of each row's group; None for a single group."""
    xmin, ymin, xmax, ymax = map(float, _extent(boxes))
    width, height = xmax - xmin, ymax - ymin
    if most == 1 or len(boxes) == 1 or not 0 < max(width, height) < np.inf:
        return None
    place = _bins(boxes.xmin, boxes.xmax, xmin, width) * _GRID + _bins(boxes.ymin, boxes.ymax, ymin, height)
    cells = _point_cells(place) if _are_points(boxes) else _box_cells(boxes, place, Envelope(xmin, ymin, xmax, ymax))
    regions = _regions(cells, most)
    if len(regions) == 1:
        return None
    group_of = np.zeros((_GRID, _GRID), dtype=np.uint8)
    for number, region in enumerate(regions):
        group_of[region.cells] = number
    groups = group_of.ravel()[place]
    return _refined(boxes, groups, [_is_tiny(cells, region) for region in regions], most)


def _refined(boxes: Boxes, groups: NDArray[np.uint8], tiny: list[bool], most: int) -> NDArray[np.uint8]:
    """The groups, that of most rows split on a grid of its own if it has few cells: an outlier hides nothing."""
    count = len(tiny)
    largest = int(np.argmax(np.bincount(groups)))
    rows = np.flatnonzero(groups == largest)
    if not tiny[largest] or count == most or 2 * len(rows) < len(groups):
        return groups
    inner = _groups(_taken(boxes, rows), most - count + 1)
    if inner is not None:
        groups[rows[inner > 0]] = count - 1 + inner[inner > 0]
    return groups


def _taken(boxes: Boxes, rows: NDArray[np.int64]) -> Boxes:
    """Some boxes; points stay points, with two arrays instead of four."""
    if not _are_points(boxes):
        return boxes.take(rows)
    x, y = boxes.xmin[rows], boxes.ymin[rows]
    return Boxes(x, y, x, y)


def _are_points(boxes: Boxes) -> bool:
    return boxes.xmin is boxes.xmax and boxes.ymin is boxes.ymax


def _is_tiny(cells: NDArray[np.float64], region: _Region) -> bool:
    columns, rows = region.cells
    part = cells[:, columns, rows]
    return bool((part[2:].max(axis=(1, 2)) - part[:2].min(axis=(1, 2)) < _TINY).all())


def _extent(boxes: Boxes) -> tuple[np.float64, np.float64, np.float64, np.float64]:
    return boxes.xmin.min(), boxes.ymin.min(), boxes.xmax.max(), boxes.ymax.max()


def _bins(low: Floats, high: Floats, origin: float, extent: float) -> NDArray[np.int16]:
    if extent < _LEAST:
        return np.zeros(len(low), dtype=np.int16)
    centre = low - origin if low is high else (low / 2 + high / 2) - origin
    binned: NDArray[np.int16] = np.minimum(centre * (_GRID / extent), _GRID - 1).astype(np.int16)
    return binned


def _point_cells(place: NDArray[np.int16]) -> NDArray[np.float64]:
    """For every cell the bounds of its rows, as [bound, column, row]: a point's are those of its cell."""
    used = np.bincount(place, minlength=_GRID * _GRID).reshape(_GRID, _GRID) > 0
    column, row = np.meshgrid(np.arange(_GRID), np.arange(_GRID), indexing="ij")
    low, high = np.where(used, (column, row), np.inf), np.where(used, (column, row), -np.inf)
    return np.concatenate([low, high])


def _box_cells(boxes: Boxes, place: NDArray[np.int16], whole: Envelope) -> NDArray[np.float64]:
    cells = np.full((4, _GRID * _GRID), np.inf)
    cells[2:] = -np.inf
    width, height = whole.xmax - whole.xmin, whole.ymax - whole.ymin
    np.minimum.at(cells[0], place, _scaled(boxes.xmin, whole.xmin, width))
    np.minimum.at(cells[1], place, _scaled(boxes.ymin, whole.ymin, height))
    np.maximum.at(cells[2], place, _scaled(boxes.xmax, whole.xmin, width))
    np.maximum.at(cells[3], place, _scaled(boxes.ymax, whole.ymin, height))
    return cells.reshape(4, _GRID, _GRID)


def _scaled(values: Floats, origin: float, extent: float) -> Floats:
    return (values - origin) * (_GRID / extent) if extent >= _LEAST else np.zeros(len(values))


def _regions(cells: NDArray[np.float64], most: int) -> list[_Region]:
    start = _Region(0, 0, _GRID, _GRID)
    total = float(_cost(cells.min(axis=(1, 2))[:2, None], cells.max(axis=(1, 2))[2:, None])[0])
    cuts = {start: _best_cut(start, cells)}
    while len(cuts) < most:
        region, cut = max(cuts.items(), key=lambda item: item[1].saving if item[1] else -1.0)
        if cut is None or cut.saving < _WORTH * total:
            break
        total -= cut.saving
        del cuts[region]
        last = len(cuts) + 2 >= most  # no cut of these parts would be made
        cuts.update((part, None if last else _best_cut(part, cells)) for part in cut.parts)
    return list(cuts)


def _cost(low: NDArray[np.float64], high: NDArray[np.float64]) -> Floats:
    extent = high - low
    extent += 1
    return np.asarray(extent[0] * extent[1])


def _best_cut(region: _Region, cells: NDArray[np.float64]) -> _Cut | None:
    """The straight cut that saves most, None where no cut leaves rows on both sides."""
    best: _Cut | None = None
    columns, rows = region.cells
    part = cells[:, columns, rows]
    for axis in (0, 1):
        low, high = part[:2].min(axis=2 - axis), part[2:].max(axis=2 - axis)
        lows, highs = np.minimum.accumulate(low, axis=1), np.maximum.accumulate(high, axis=1)
        lows_after = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]
        highs_after = np.maximum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
        whole = _cost(lows[:, -1:], highs[:, -1:])[0]
        possible = np.flatnonzero((highs[0, :-1] >= lows[0, :-1]) & (highs_after[0, 1:] >= lows_after[0, 1:]))
        if len(possible) == 0:
            continue
        before = _cost(lows[:, possible], highs[:, possible])
        after = _cost(lows_after[:, possible + 1], highs_after[:, possible + 1])
        saving = whole - before - after
        at = int(np.argmax(saving))
        if best is None or saving[at] > best.saving:
            best = _Cut(float(saving[at]), _parts(region, axis, int(possible[at]) + 1))
    return best


def _parts(region: _Region, axis: int, offset: int) -> tuple[_Region, _Region]:
    at = region[axis] + offset
    if axis == 0:
        return region._replace(end_column=at), region._replace(first_column=at)
    return region._replace(end_row=at), region._replace(first_row=at)


def _gathered(boxes: Boxes, groups: NDArray[np.uint8]) -> Boxes:
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups))
    starts = np.unique(np.concatenate([[0], ends[:-1]]))  # no group is empty, but for safety
    of_groups = _taken(boxes, order)
    return Boxes(
        np.minimum.reduceat(of_groups.xmin, starts),
        np.minimum.reduceat(of_groups.ymin, starts),
        np.maximum.reduceat(of_groups.xmax, starts),
        np.maximum.reduceat(of_groups.ymax, starts),
    )
