"""MetricDist: distances of each file's rows from a few pivots, for any metric."""

from __future__ import annotations

from geoskip.indexes.metricdist.index import MetricDist

__all__ = ["MetricDist"]
