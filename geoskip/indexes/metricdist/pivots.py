"""Which origins MetricDist keeps distances from: points of a sample that are far apart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from geoskip.metrics import Metric

__all__ = ["choose", "counter_example"]

_MOST_CANDIDATES = 2000
_TRIED = 12


def choose(metric: Metric, data: Any, count: int) -> list[Any]:
    """At most ``count`` points of a sample, each as far as can be from those before it (farthest first)."""
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
    """Points of a sample on which a function breaks a law of metrics, in words."""
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
