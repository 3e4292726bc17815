"""Clustering of a column by its files: overlap, depth, and expected files of points and ranges.

The input is each file's least and greatest value and its number of rows (:class:`FileRanges`). The rows of a file are
assumed to be spread evenly over its range: over its whole numbers, days or microseconds, or over a continuous range of
doubles or of the first bytes in which the bounds of strings differ. A file with equal bounds contains only that value.
NULL and NaN are left out, since no bounded range matches them; a file with nothing else has no range, and no point or
range reads it.

Figures are sums over the files, from sorted bounds: O(n log n) for n files. Let F be the distribution of the rows'
values. A range that contains the share p of the rows begins at the quantile u, uniform in [0, 1 - p]. The file from l
to h is not read if the range begins above h or ends below l, so the expected number of files read is

    sum over the files of 1 - P(u > F(h)) - P(u + p <= F(l-)).

For p = 0 the range is a point drawn from the rows, and the sum is the mean depth of a value over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.interval import ByteStrings, Interval, bounds_of, counts_of
from geoskip.bounds.sort_keys import Doubles, Ints
from geoskip.clauses import Files, Mask
from geoskip.evaluation.values import FIRST, LAST
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import units_of

SHARES = (0.0, 0.001, 0.01, 0.1)
"""Shares of the rows for which expected files are reported; 0 is a point."""
_NARROWEST = 1e-200
"""The least relative width of a file's range: the density of a narrower one could be infinite."""
_PAIRS = 1 << 22
"""The number of pairs of files that are compared at once."""


@dataclass(frozen=True)
class FileRanges:
    """The range of one column in every file.

    Attributes
    ----------
    low, high : array of int64
        Ranks of the ends in ``positions``; ``low > high`` for a file without a value.
    positions : array of float64
        The position of each distinct bound on a line, ascending; missing and infinite bounds are at its ends.
    step : float
        The distance between adjacent values: 1 for whole numbers, dates, times and booleans, 0 for a continuous type.
    values : array of float64
        Rows per file that are neither NULL nor NaN; if unknown, the mean of the other files.
    kind : str
        The kind of the values, as in :class:`geoskip.bounds.interval.Interval`, or ``"text"``.
    labels : sequence of bytes
        The bounds at the positions, for texts.
    """

    low: Ints
    high: Ints
    positions: Doubles
    step: float
    values: Doubles
    kind: str = "number"
    labels: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.low)

    @property
    def present(self) -> Mask:
        """Files with a value."""
        return np.asarray(self.low <= self.high)

    def take(self, files: NDArray[Any]) -> FileRanges:
        """Select files by their numbers or a mask."""
        return replace(self, low=self.low[files], high=self.high[files], values=self.values[files])

    def ends(self) -> tuple[Doubles, Doubles]:
        """Return both bounds of every file as positions; NaN for a file without a value."""
        if not len(self.positions):
            nothing = np.full(len(self), np.nan)
            return nothing, nothing
        low, high = (np.where(self.present, self.positions[np.where(self.present, end, 0)], np.nan)
                     for end in (self.low, self.high))  # fmt: skip
        return low, high


def ranges_of(files: Files, name: str) -> FileRanges | None:
    """Return the ranges of an expression from the summaries of a MinMax; None if no file has a summary.

    Parameters
    ----------
    files : Files
        The files with their summaries.
    name : str
        The name of the index, such as ``minmax(temp)``.
    """
    found = bounds_of(files, name)
    if found is None:
        return None
    values = _values_of(files, name)
    return _of_texts(found, values) if isinstance(found, ByteStrings) else _of_numbers(found, values)


def box_ranges_of(files: Files, index: GeoBox) -> tuple[FileRanges, FileRanges] | None:
    """Return the ranges of x and of y from the boxes of a GeoBox; None if no file has a box.

    NULL and EMPTY geometries and coordinates that are not finite are in no range. A file without a summary has the
    range of the whole line.

    Parameters
    ----------
    files : Files
        The files with their summaries.
    index : GeoBox
        The index.
    """
    units = units_of(files, str(index), index.counts)
    if not len(units.box_file):
        return None
    rows, known = counts_of(files, str(index), "rows")
    values = np.where(known, rows, rows[known].mean() if known.any() else 1.0).astype(np.float64)
    found = []
    for low, high in ((units.boxes.xmin, units.boxes.xmax), (units.boxes.ymin, units.boxes.ymax)):
        lows, highs = np.full(len(files), np.inf), np.full(len(files), -np.inf)
        np.minimum.at(lows, units.box_file, low)
        np.maximum.at(highs, units.box_file, high)
        lows[units.unknown_file], highs[units.unknown_file] = -np.inf, np.inf
        found.append(_of_numbers(Interval("real", lows, highs), values))
    return found[0], found[1]


def _values_of(files: Files, name: str) -> Doubles:
    """Return the rows with a value per file; the mean for files without counts."""
    (rows, known), (nulls, _), (nans, _) = (counts_of(files, name, field) for field in ("rows", "nulls", "nans"))
    values: Doubles = np.maximum(rows - nulls - nans, 0).astype(np.float64)
    values[~known] = values[known].mean() if known.any() else 1.0
    return values


def _of_numbers(interval: Interval, values: Doubles) -> FileRanges:
    keys = interval.keys()
    if interval.wide is not None:
        low, high = interval.wide.reals()
    else:
        low, high = interval.low.astype(np.float64), interval.high.astype(np.float64)
        low[keys.low == FIRST], high[keys.high == LAST] = -np.inf, np.inf
    step = 0.0 if interval.kind == "real" or interval.wide is not None else 1.0
    found = _rank_ranges(keys.low, keys.high, (low, high), step, values)
    kind = "real" if interval.wide is not None else interval.kind
    scale = 10.0**interval.scale if interval.wide is None else 1.0
    return replace(found, positions=found.positions / scale, step=step / scale, kind=kind)


def _of_texts(texts: ByteStrings, values: Doubles) -> FileRanges:
    """Return ranges of strings or binary, positioned by eight bytes after the common prefix of all bounds."""
    low, high = (end.cast(pa.large_binary()) for end in (texts.low, texts.high))
    distinct = pa.concat_arrays([low, high]).drop_null().unique()
    distinct = distinct.take(pc.sort_indices(distinct))
    places = _places(distinct.to_pylist())
    lows, highs = (np.asarray(pc.index_in(end, distinct).fill_null(-1)).astype(np.int64) for end in (low, high))
    low_at = np.append(places, -np.inf)[lows]
    high_at = np.append(places, np.inf)[highs]
    highs[highs < 0] = len(distinct)
    lows[texts.empty], highs[texts.empty] = LAST, FIRST
    found = _rank_ranges(lows, highs, (low_at, high_at), 0.0, values)
    present = lows <= highs
    ranks = np.unique(np.concatenate([lows[present], highs[present]]))
    names = [b"", *distinct.to_pylist(), b""]  # missing bounds have empty labels
    return replace(found, kind="text", labels=tuple(names[rank + 1] for rank in ranks))


def _places(texts: Sequence[bytes]) -> Doubles:
    """Map ascending byte strings to numbers in the same order."""
    if not texts:
        return np.zeros(0)
    first, last = texts[0], texts[-1]
    shared = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    cut = (text[shared : shared + 8].ljust(8, b"\0") for text in texts)
    return np.array([int.from_bytes(text, "big") for text in cut], dtype=np.float64)


def _rank_ranges(low: Ints, high: Ints, at: tuple[Doubles, Doubles], step: float, values: Doubles) -> FileRanges:
    """Return ranges from order-preserving keys of the bounds, and their positions, which may be infinite."""
    present = low <= high
    keys, first, ranks = np.unique(
        np.concatenate([low[present], high[present]]), return_index=True, return_inverse=True
    )
    positions = np.concatenate([at[0][present], at[1][present]])[first]
    finite = positions[np.isfinite(positions)]
    positions = np.clip(positions, finite.min(), finite.max()) if len(finite) else np.zeros(len(keys))
    count = int(present.sum())
    lows, highs = np.ones(len(low), dtype=np.int64), np.zeros(len(low), dtype=np.int64)
    lows[present], highs[present] = ranks.ravel()[:count], ranks.ravel()[count:]
    return FileRanges(lows, highs, np.maximum.accumulate(positions), step, np.where(present, values, 0.0))


@dataclass(frozen=True)
class Clustering:
    """Figures of how well files cluster one column.

    Attributes
    ----------
    files, empty : int
        The number of files, and of those without a value.
    overlap : float
        The mean number of other files with an overlapping range, over the files with a value.
    deepest : int
        The largest number of files with a common point in their ranges.
    files_read : tuple of float
        For each of :data:`SHARES`, the expected files read by a range with this share of the rows; the first is for a
        point, which is the mean depth of a value.
    """

    files: int
    empty: int
    overlap: float
    deepest: int
    files_read: tuple[float, ...]

    def ideal(self) -> tuple[float, ...]:
        """Return the least files for each of :data:`SHARES` of the rows if files have equal numbers of rows."""
        count = self.files - self.empty
        return tuple(min(max(1.0, share * count), count) for share in SHARES)


def clustering(ranges: FileRanges) -> Clustering:
    """Compute overlap, depth and expected files of a column."""
    present = ranges.take(ranges.present)
    count = len(present)
    if not count:
        return Clustering(len(ranges), len(ranges), 0.0, 0, (0.0,) * len(SHARES))
    others = count - 1 - _count_above(present.low, present.high) - _count_above(-present.high, -present.low)
    below, until = _distribution(present)
    read = tuple(_expected_files(below, until, share) for share in SHARES)
    return Clustering(len(ranges), len(ranges) - count, float(others.mean()), _deepest(present), read)


def _count_above(ends: Ints, limits: Ints) -> Ints:
    """Count the ends above each limit."""
    return np.asarray(len(ends) - np.searchsorted(np.sort(ends), limits, side="right"))


def _deepest(ranges: FileRanges) -> int:
    change = np.zeros(len(ranges.positions) + 1, dtype=np.int64)
    np.add.at(change, ranges.low, 1)
    np.add.at(change, ranges.high + 1, -1)
    return int(np.cumsum(change).max())


def _expected_files(below: Doubles, until: Doubles, share: float) -> float:
    """Return the expected files that a range with a share of the rows reads; see the module's docstring.

    Parameters
    ----------
    below, until
        The shares of the rows below the lower bound of each file, and up to its upper bound.
    share
        The share of the rows in the range, in [0, 1).
    """
    left = 1.0 - share
    unread = np.clip((left - until) / left, 0, 1) + np.clip((below - share) / left, 0, 1)
    return float((1.0 - np.minimum(unread, 1.0)).sum())


def _distribution(ranges: FileRanges) -> tuple[Doubles, Doubles]:
    """Return the shares of all rows below each file's lower bound, and up to its upper bound.

    The line is divided into the distinct bounds and the gaps between them, with constant density in each piece.
    """
    most = np.frexp(np.abs(ranges.positions).max(initial=0.0))[1]
    scale = 2.0 ** min(int(most), 1023)  # so that widths do not overflow
    at, step = ranges.positions / scale, ranges.step / scale
    length = np.zeros(max(2 * len(at) - 1, 1))
    length[::2] = step
    length[1::2] = np.maximum(np.diff(at) - step, 0.0)
    width = at[ranges.high] - at[ranges.low] + step
    spread = width > _NARROWEST
    rows = ranges.values if ranges.values.any() else np.ones(len(ranges))
    density = rows[spread] / width[spread]
    mass = length * _sum_weights(2 * ranges.low[spread], 2 * ranges.high[spread] + 1, density, len(length))
    for end in (ranges.low, ranges.high):
        np.add.at(mass, 2 * end[~spread], rows[~spread] / 2)
    total = np.concatenate([[0.0], np.cumsum(mass)])
    total /= total[-1]
    return total[2 * ranges.low], total[2 * ranges.high + 1]


def _sum_weights(starts: Ints, ends: Ints, weights: Doubles, length: int) -> Doubles:
    """Return, for each place, the sum of the weights of the spans ``[start, end)`` that contain it.

    Spans are split into nodes of a binary tree, so that weights are only added: subtracting weights of very different
    magnitude would cancel the smaller ones.
    """
    size = 1 << max(length - 1, 1).bit_length()
    tree = np.zeros(2 * size)
    left, right = starts + size, ends + size
    while (open_ := left < right).any():
        at = open_ & (left & 1 == 1)
        np.add.at(tree, left[at], weights[at])
        left = left + at
        at = open_ & (right & 1 == 1) & (left < right)
        right = right - at
        np.add.at(tree, right[at], weights[at])
        left, right = left >> 1, right >> 1
    level = 1
    while level < size:
        tree[2 * level : 4 * level] += np.repeat(tree[level : 2 * level], 2)
        level *= 2
    return tree[size : size + length]


def overlapping_files(columns: Sequence[FileRanges], groups: NDArray[Any]) -> Mask:
    """Mark files with a box over some columns that overlaps the box of a file of another group.

    Boxes that share only a border do not overlap: a sort may cut within one value. A column of a file that contains
    only NULL has a single value below all others.

    Parameters
    ----------
    columns : sequence of FileRanges
        The ranges of the same files in each column.
    groups : array
        The group of each file; files of one group do not count as overlapping.
    """
    low = np.stack([np.where(each.present, each.low, -1) for each in columns])
    high = np.stack([np.where(each.present, each.high, -1) for each in columns])
    count = low.shape[1]
    found = np.zeros(count, dtype=bool)
    crossing = np.logical_and.reduce([_cross_another(*ends) for ends in zip(low, high, strict=True)])
    left = np.flatnonzero(crossing) if len(np.unique(groups)) > 1 else np.zeros(0, dtype=np.int64)
    others, start = np.random.default_rng(0).permutation(left), 0
    while len(left) and start < len(others):
        block = others[start : start + max(1, _PAIRS // (len(left) * len(low)))]
        start += len(block)
        meets = groups[left][:, None] != groups[block][None, :]
        for lows, highs in zip(low, high, strict=True):
            l1, h1, l2, h2 = lows[left][:, None], highs[left][:, None], lows[block][None, :], highs[block][None, :]
            meets &= ((l2 < h1) & (l1 < h2)) | ((l1 == l2) & (h1 == h2))
        hit = meets.any(axis=1)
        found[left[hit]] = True
        left = left[~hit]
    return found


def _cross_another(low: Ints, high: Ints) -> Mask:
    """Mark ranges that share more than a bound with another range, or that equal another one."""
    single = low == high
    values, counts = np.unique(low[single], return_counts=True)
    same = np.zeros(len(low), dtype=np.int64)
    if len(values):
        at = np.minimum(np.searchsorted(values, low), len(values) - 1)
        same = np.where(single & (values[at] == low), counts[at], 0)
    begun = np.searchsorted(np.sort(low), high, side="left")
    ended = np.searchsorted(np.sort(high), low, side="right")
    return np.asarray(begun - ended + np.where(single, 2 * same, 0) - 1 > 0)


def group_numbers(groups: Sequence[object]) -> Ints:
    """Number groups in the order of their first files; each None is a separate group."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault((at,) if group is None else group, len(numbers)) for at, group in
                     enumerate(groups)], dtype=np.int64)  # fmt: skip
