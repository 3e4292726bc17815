"""Summaries of MetricDist: distances of a file's rows from pivots, and the choice of pivots.

``lo`` and ``hi`` hold the least and the largest distance, one entry a pivot (none in a file without points); ``gaps``
the widest ranges without any distance between them, which turn [lo, hi] into rings; ``rows``; ``nulls`` (rows in which
an expression is NULL) and ``blanks`` (in which all are); ``odd``, rows without NULL that have no distance. Whole
distances are kept as such, others as doubles.

A gap is kept where it pays: at least an eighth of the span that it lies in, three a pivot at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.metrics import Metric
from geoskip.metrics.base import Floats

__all__ = ["COUNTS", "collect", "merge", "summary_type", "choose", "counter_example"]

COUNTS = ("rows", "nulls", "blanks", "odd")
_BINS = 64
_LEAST_BINS = 8
_MOST_GAPS = 3
_AT_ONCE = 1 << 16
"""Distances that are handled together."""

Summary = dict[str, Any]
Ring = tuple[float, float]


def summary_type(metric: Metric) -> pa.DataType:
    """Return the struct type stored a file."""
    kind = pa.int32() if metric.whole else pa.float64()
    gap = pa.struct([("origin", pa.int16()), ("low", kind), ("high", kind)])
    ranges = [("lo", pa.list_(kind)), ("hi", pa.list_(kind)), ("gaps", pa.list_(gap))]
    return pa.struct([*ranges, *metric.outlined.items(), *((name, pa.int64()) for name in COUNTS)])


def collect(metric: Metric, origins: Sequence[Any], values: Sequence[pa.Array]) -> Summary:
    """Return the summary of some rows, given the pivots and one array an expression."""
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
    """Return the summary of a file: distances of its parts unite, counts add up."""
    counts = {name: sum(summary[name] for summary in summaries) for name in COUNTS}
    holding = [summary for summary in summaries if summary["lo"]]
    count = len(holding[0]["lo"]) if holding else 0
    rings = [sorted(ring for summary in holding for ring in _rings_of(summary, number)) for number in range(count)]
    found = _summary([list(_widest_gaps(_unite(ring), metric.whole)) for ring in rings], metric, **counts)
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
    """Return the separate ranges of each pivot's distances; None if one is no number."""
    low, high = distances.min(axis=1), distances.max(axis=1)  # NaN if one of them is
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
    """Return the rings with only those gaps between them that pay."""
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


def _unite(rings: Sequence[Ring]) -> list[Ring]:
    """Unite sorted ranges that overlap.

    >>> _unite([(0, 2), (1, 1), (2, 3), (5, 6)])
    [(0, 3), (5, 6)]
    """
    found: list[Ring] = []
    for low, high in rings:
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


_MOST_CANDIDATES = 2000
_TRIED = 12


def choose(metric: Metric, data: Any, count: int) -> list[Any]:
    """Choose at most ``count`` points of a sample as pivots, each farthest from those before it."""
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
    """Describe points of a sample on which a function breaks a law of metrics; None if it keeps all."""
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
