"""Summaries of MetricDist: distances of rows from pivots, their table, and the choice of pivots.

``lo`` and ``hi`` are the least and the largest distance, one entry per pivot (none for a file without points). ``gaps``
are the widest ranges between them without a distance, which divide [lo, hi] into rings. ``rows``, ``nulls`` (an
expression is NULL), ``blanks`` (all are NULL) and ``odd`` (no NULL, but no distance) are counts of rows. Whole
distances are stored as integers, others as doubles.

A gap is stored if it is at least an eighth of the range [lo, hi], with at most three per pivot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_or_unknown
from geoskip.clauses import Files, Mask
from geoskip.conditions import AllOf, Among, UnitTable
from geoskip.indexes.stored_bounds import unite
from geoskip.metrics import Floats, Metric

COUNTS = ("rows", "nulls", "blanks", "odd")
_BINS = 64
_LEAST_BINS = 8
_MOST_GAPS = 3
_AT_ONCE = 1 << 16
"""Distances that are handled together."""

Summary = dict[str, Any]
Ring = tuple[float, float]


def summary_type(metric: Metric) -> pa.DataType:
    """Return the struct type of a file's summary."""
    kind = pa.int32() if metric.whole else pa.float64()
    gap = pa.struct([("origin", pa.int16()), ("low", kind), ("high", kind)])
    ranges = [("lo", pa.list_(kind)), ("hi", pa.list_(kind)), ("gaps", pa.list_(gap))]
    return pa.struct([*ranges, *metric.outlined.items(), *((name, pa.int64()) for name in COUNTS)])


def collect(metric: Metric, origins: Sequence[Any], values: Sequence[pa.Array]) -> Summary:
    """Return the summary of some rows, given the pivots and one array per expression."""
    points = metric.points(values, origins[0])
    counts = {"rows": points.rows, "nulls": points.nulls, "blanks": points.blanks, "odd": points.odd}
    rings: list[list[Ring]] = []
    if metric.count(points.data):
        step = max(1, _AT_ONCE // metric.count(points.data))
        for at in range(0, len(origins), step):
            found = _rings(metric.table(origins[at : at + step], points.data), metric.whole)
            if found is None:
                return _summary([], metric, **{**counts, "odd": points.rows - points.nulls})
            rings += found
    return {**_summary(rings, metric, **counts), **(metric.outline(points.data) if rings else {})}


def merge(metric: Metric, summaries: Sequence[Mapping[str, Any]]) -> Summary:
    """Return the summary of a file: unite the distances of its parts, and add their counts."""
    counts = {name: sum(summary[name] for summary in summaries) for name in COUNTS}
    holding = [summary for summary in summaries if summary["lo"]]
    count = len(holding[0]["lo"]) if holding else 0
    rings = [unite(ring for summary in holding for ring in _rings_of(summary, number)) for number in range(count)]
    found = _summary([list(_widest_gaps(ring, metric.whole)) for ring in rings], metric, **counts)
    return {**found, **(metric.outline_of(holding) if holding else {})}


def _summary(rings: Sequence[Sequence[Ring]], metric: Metric, **counts: int) -> Summary:
    number: Any = round if metric.whole else float
    gaps = [
        {"origin": origin, "low": number(inner[1]), "high": number(outer[0])}
        for origin, found in enumerate(rings)
        for inner, outer in itertools.pairwise(found)
    ]
    return {
        "lo": [number(found[0][0]) for found in rings],
        "hi": [number(found[-1][1]) for found in rings],
        "gaps": gaps,
        **counts,
    }


def _rings(distances: Floats, whole: bool) -> list[list[Ring]] | None:
    """Return the separate ranges of each pivot's distances; None if a distance is not finite."""
    low, high = distances.min(axis=1), distances.max(axis=1)  # NaN if any is NaN
    if not np.all(high < np.inf):
        return None
    found = [[ring] for ring in zip(low.tolist(), high.tolist(), strict=True)]
    with np.errstate(divide="ignore", over="ignore"):
        units = _BINS / (high - low)
    wide = np.isfinite(units)
    units[~wide] = 0
    places = ((distances - low[:, None]) * units[:, None]).astype(np.int64)
    places += np.arange(0, len(low) * (_BINS + 1), _BINS + 1)[:, None]
    occupied = np.flatnonzero(np.bincount(places.ravel()))
    after = np.flatnonzero(np.diff(occupied) > _LEAST_BINS)
    owners = occupied[after] // (_BINS + 1)
    inside = owners == occupied[after + 1] // (_BINS + 1)
    for origin in np.unique(owners[inside]).tolist():
        own, ends = distances[origin], [float(low[origin])]
        for number in after[inside & (owners == origin)].tolist():
            below = places[origin] <= occupied[number]
            ends += [float(own[below].max()), float(own[~below].min())]
        ends.append(float(high[origin]))
        found[origin] = list(_widest_gaps(list(zip(ends[::2], ends[1::2], strict=True)), whole))
    return found


def _widest_gaps(rings: Sequence[Ring], whole: bool) -> Iterator[Ring]:
    """Return the rings with only the wide gaps between them."""
    span = rings[-1][1] - rings[0][0]
    sizes = [outer[0] - inner[1] for inner, outer in itertools.pairwise(rings)]
    pays = [size >= max(span * _LEAST_BINS / _BINS, 2 if whole else 0) and size > 0 for size in sizes]
    chosen = sorted((i for i, paying in enumerate(pays) if paying), key=lambda i: -sizes[i])[:_MOST_GAPS]
    start = rings[0][0]
    for i in sorted(chosen):
        yield start, rings[i][1]
        start = rings[i + 1][0]
    yield start, rings[-1][1]


def _rings_of(summary: Mapping[str, Any], origin: int) -> list[Ring]:
    ends = [summary["lo"][origin]]
    for gap in summary["gaps"]:
        if gap["origin"] == origin:
            ends += [gap["low"], gap["high"]]
    ends.append(summary["hi"][origin])
    return list(zip(ends[::2], ends[1::2], strict=True))


_MOST_CANDIDATES = 2000
_TRIED = 12


def choose(metric: Metric, data: Any, count: int) -> list[Any]:
    """Choose at most ``count`` points of a sample as pivots, each farthest from the previous ones."""
    total = metric.count(data)
    if not total:
        return []
    places = np.unique(np.linspace(0, total - 1, min(total, _MOST_CANDIDATES)).astype(int))
    candidates = metric.take(data, places.tolist())
    form = metric.of(candidates)
    nearest = metric.distances(candidates[0], form)
    at = int(nearest.argmax())
    nearest = np.full(len(candidates), np.inf)
    chosen: list[Any] = []
    while len(chosen) < count and nearest[at] > 0:
        chosen.append(candidates[at])
        nearest = np.minimum(nearest, metric.distances(candidates[at], form))
        at = int(nearest.argmax())
    return chosen


def counter_example(metric: Metric, data: Any) -> str | None:
    """Describe points of a sample for which a function violates a law of metrics, or None."""
    total = metric.count(data)
    if not total:
        return None
    places = np.unique(np.linspace(0, total - 1, min(total, _TRIED)).astype(int))
    points = metric.take(data, places.tolist())
    table = np.array([metric.distances(point, metric.of(points)) for point in points])
    for i, j in itertools.product(range(len(points)), repeat=2):
        a, b = points[i], points[j]
        if not table[i, j] >= 0:
            return f"from {a} to {b} it is no number of 0 or more"
        if i == j and table[i, j] > 1e-9:
            return f"from {a} to itself it is {table[i, j]:g}"
        if abs(table[i, j] - table[j, i]) > 1e-9 * table[i, j]:
            return f"from {a} to {b} it is {table[i, j]:g}, and {table[j, i]:g} the other way"
    for i, j, k in itertools.permutations(range(len(points)), 3):
        if table[i, k] > (table[i, j] + table[j, k]) * (1 + 1e-9) + 1e-12:
            return (
                f"from {points[i]} to {points[k]} it is {table[i, k]:g}, by way of {points[j]} "
                f"{table[i, j] + table[j, k]:g}"
            )
    return None


OF_SCALE = 1e-13
"""The rounding error of a coordinate, relative to the largest."""
_NARROW = 0.25

Gaps = tuple[NDArray[np.int64], Floats, Floats]


@dataclass(frozen=True)
class Pivots:
    """The pivots of one index, with its name and metric."""

    name: str
    metric: Metric
    points: tuple[Any, ...]

    def away(self, point: Any) -> Floats:
        """Return the distances of the pivots from a point."""
        return self.metric.distances(point, self.metric.of(self.points))

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The metadata that the clauses read."""
        fields = ("lo", "hi", "gaps", *self.metric.outlined, *COUNTS)
        return tuple((self.name, field) for field in fields)


@dataclass(frozen=True)
class _Distances:
    low: Floats
    """One row per pivot, one column per file; greater than ``high`` for a file without points."""
    high: Floats
    gaps: list[Gaps]
    """For each pivot, the numbers of files and the bounds of their gaps."""
    points: Mask
    unclear: Mask
    """Files that are kept: with an incomplete summary, or with ``odd`` rows."""
    nulls: Mask
    partly: Mask
    reach: Floats


class DistanceTable(UnitTable):
    """The widened distances of files' rows from pivots: one unit per file, or none without files.

    The columns ``r0``, ``r1``, ... are the *rings* around each pivot that contain a file's rows: a range without its
    gaps. ``points`` is True if some row has a distance, ``nulls`` if some row has a NULL expression, ``partly`` if some
    row has a NULL expression and another that is not. ``reach`` is an upper bound of the coordinates.

    Parameters
    ----------
    origins : Pivots
        The pivots.
    files : Files or None
        The files with the summaries.
    rings : int or None
        The number of pivots with rings; None for all of them.
    """

    def __init__(self, origins: Pivots, files: Files | None = None, rings: int | None = None) -> None:
        self.origins, self.files = origins, files
        self.rings = len(origins.points) if rings is None else rings

    @property
    def distances(self) -> _Distances:
        """The arrays of all files, derived once per snapshot."""
        if self.files is None:
            raise TypeError("a table without files has no columns")
        files, origins = self.files, self.origins
        return files.cached((origins.name, "distances", origins.points), lambda: _distances(files, origins))

    def __len__(self) -> int:
        return 0 if self.files is None else len(self.files)

    def column(self, name: str) -> Any:
        return getattr(self.distances, name)

    def files_with(self, units: Mask) -> Mask:
        return units | self.distances.unclear

    def outlines(self) -> Any:
        """Return the outlines of all files."""
        files, (name, metric) = self.files, (self.origins.name, self.origins.metric)
        if files is None:
            return None
        return files.cached(
            (name, "outlines"), lambda: metric.outlines([files.summary(name, field) for field in metric.outlined])
        )

    def answer(self, condition: AllOf | Among) -> Mask | None:
        """Mark files with a ring that meets an interval for each of some pivots; None for other conditions.

        When most files are excluded, only the remaining ones are compared.
        """
        parts = condition.parts if isinstance(condition, AllOf) else (condition,)
        if not parts or not all(type(part) is Among for part in parts):
            return None
        found = self.distances
        ranges = [(int(part.column[1:]), *part.intervals[0]) for part in parts if isinstance(part, Among)]
        left: NDArray[np.int64] | slice = slice(None)
        kept = np.ones(len(self), dtype=bool)
        for number, low, high in ranges:
            meets = (found.low[number, left] < high) & (found.high[number, left] >= low)
            if not isinstance(left, slice):
                left = left[meets]
                continue
            kept &= meets
            if np.count_nonzero(kept) < _NARROW * len(kept):
                left = np.flatnonzero(kept)
        if not isinstance(left, slice):
            kept = np.zeros_like(kept)
            kept[left] = True
        for number, low, high in ranges:
            owner, inner, outer = found.gaps[number]
            if len(owner):
                kept[owner[(inner < low) & (outer >= high)]] = False
        return kept


def _distances(files: Files, origins: Pivots) -> _Distances:
    metric, count, length = origins.metric, len(origins.points), len(files)
    rows, nulls, blanks, odd = (counts_or_unknown(files, origins.name, field) for field in COUNTS)
    known = (rows >= 0) & (nulls >= 0) & (blanks >= 0) & (odd >= 0)
    points = rows - nulls - odd > 0
    low, whole_low = _matrix(files.summary(origins.name, "lo"), count, length)
    high, whole_high = _matrix(files.summary(origins.name, "hi"), count, length)
    unclear = ~known | (odd > 0) | (points & ~(whole_low & whole_high))
    everywhere = bool((whole_low & whole_high).all())
    if not everywhere:
        low[:, ~whole_low], high[:, ~whole_high] = np.inf, -np.inf
    gaps = _gaps(files.summary(origins.name, "gaps"), count)
    held = points & whole_low & whole_high
    reach = np.full(length, np.inf)
    for number, point in enumerate(origins.points):  # in place, since temporary arrays are slow
        scale = metric.scale(point)
        np.minimum(reach, np.where(held, high[number], 0.0) + scale, out=reach)
        if not metric.whole:
            slack = np.where(held, np.abs(high[number]) * metric.relative + OF_SCALE * scale, 0.0)
            low[number] -= slack
            high[number] += slack
            owner, inner, outer = gaps[number]
            gaps[number] = (owner, inner + slack[owner], outer - slack[owner])
    return _Distances(low, high, gaps, points, unclear, ~known | (nulls > 0), ~known | (nulls > blanks), reach)


def _matrix(lists: pa.Array, count: int, length: int) -> tuple[Floats, Mask]:
    """Return lists of equal length as a matrix of one row per entry, and the mask of complete files."""
    lengths = np.full(length, -1)
    if pa.types.is_list(lists.type):
        lengths = np.asarray(lists.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False))
    whole = lengths == count
    if not whole.any():
        return np.full((count, length), np.nan), whole
    flat = (lists if whole.all() else lists.filter(pa.array(whole))).flatten()
    if flat.null_count:
        return np.full((count, length), np.nan), np.zeros(length, dtype=bool)
    matrix = flat.to_numpy(zero_copy_only=False).reshape(-1, count).T
    if whole.all():
        found = np.array(matrix, dtype=np.float64, order="C")
    else:
        found = np.full((count, length), np.nan)
        found[:, whole] = matrix
    if np.isnan(matrix.sum()):
        whole = whole & ~np.isnan(found).any(axis=0)
    return found, whole


def _gaps(lists: pa.Array, count: int) -> list[Gaps]:
    """Return the gaps of all files for each pivot."""
    nothing: Gaps = (np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    if not pa.types.is_list(lists.type):
        return [nothing] * count
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    flat = lists.drop_null().flatten()
    if not len(owner) or flat.null_count:
        return [nothing] * count
    origin, low, high = (
        np.asarray(flat.field(name).cast(pa.float64()).fill_null(-1).to_numpy(zero_copy_only=False))
        for name in ("origin", "low", "high")
    )
    return [(owner[here], low[here], high[here]) for here in (origin == number for number in range(count))]
