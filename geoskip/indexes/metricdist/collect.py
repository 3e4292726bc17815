"""What MetricDist stores a file: how far its rows are from the dataset's origins.

``lo`` and ``hi`` hold the least and the largest distance, one entry an origin (none in a file without points); ``gaps``
the widest ranges without any distance between them, which turn [lo, hi] into rings; ``rows``; ``nulls`` (rows in which
an expression is NULL) and ``blanks`` (in which all are); ``odd``, rows without NULL that have no distance. Whole
distances are kept as such, others as doubles.

A gap is kept where it pays: at least an eighth of the span that it lies in, three an origin at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.metrics import Metric
from geoskip.metrics.base import Floats

__all__ = ["COUNTS", "collect", "merge", "summary_type"]

COUNTS = ("rows", "nulls", "blanks", "odd")
_BINS = 64
_LEAST_BINS = 8
_MOST_GAPS = 3
_AT_ONCE = 1 << 16
"""Distances that are looked at together."""

Summary = dict[str, Any]
Ring = tuple[float, float]


def summary_type(metric: Metric) -> pa.DataType:
    """The struct stored a file."""
    kind = pa.int32() if metric.whole else pa.float64()
    gap = pa.struct([("origin", pa.int16()), ("low", kind), ("high", kind)])
    ranges = [("lo", pa.list_(kind)), ("hi", pa.list_(kind)), ("gaps", pa.list_(gap))]
    return pa.struct([*ranges, *metric.outlined.items(), *((name, pa.int64()) for name in COUNTS)])


def collect(metric: Metric, origins: Sequence[Any], values: Sequence[pa.Array]) -> Summary:
    """The summary of some rows."""
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
    """The summary of a file from those of its parts: distances unite, counts add."""
    counts = {name: sum(summary[name] for summary in summaries) for name in COUNTS}
    holding = [summary for summary in summaries if summary["lo"]]
    count = len(holding[0]["lo"]) if holding else 0
    rings = [sorted(ring for summary in holding for ring in _rings_of(summary, number)) for number in range(count)]
    found = _summary([list(_widest(_united(ring), metric.whole)) for ring in rings], metric, **counts)
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
    """Of each origin's distances the ranges that hold them, apart from one another; None where one is no number."""
    low, high = distances.min(axis=1), distances.max(axis=1)  # NaN where one of them is
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
        found[origin] = list(_widest(list(zip(ends[::2], ends[1::2], strict=True)), whole))
    return found


def _widest(rings: Sequence[Ring], whole: bool) -> Iterator[Ring]:
    """The rings with only those gaps between them that pay."""
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


def _united(rings: Sequence[Ring]) -> list[Ring]:
    """Sorted ranges with those that overlap as one.

    >>> _united([(0, 2), (1, 1), (2, 3), (5, 6)])
    [(0, 3), (5, 6)]
    """
    found: list[Ring] = []
    for low, high in rings:
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
