"""Metrics: distances that obey the triangle inequality, for MetricDist (SEMANTICS section 9).

========== ============================================= =====================================================
euclidean  numbers, any count of columns                 ``sqrt((x1 - x2)^2 + (y1 - y2)^2 + ...)``
manhattan  numbers, any count of columns                 ``|x1 - x2| + |y1 - y2| + ...``
chebyshev  numbers, any count of columns                 ``max(|x1 - x2|, |y1 - y2|, ...)``
haversine  longitude and latitude in degrees             the central angle, in radians
levenshtein a string                                     insertions, deletions and substitutions of code points
hamming    a whole number, or a string                   differing bits; differing code points, the longer's rest too
angular    an array of numbers                           the angle between two vectors, in radians
jaccard    an array, as a set                            ``1 - |a and b| / |a or b|``
========== ============================================= =====================================================

:func:`metric_named` finds one; for well-known distances that are no metrics it raises an error with an alternative.
"""

from __future__ import annotations

from geoskip.metrics.arrays import Angular, Jaccard
from geoskip.metrics.base import Metric, Points
from geoskip.metrics.lookup import METRICS, metric_named, refusal
from geoskip.metrics.numbers import Chebyshev, Euclidean, Haversine, Manhattan
from geoskip.metrics.string_metrics import Hamming, Levenshtein
from geoskip.metrics.user_metric import UserMetric

__all__ = [
    "METRICS",
    "Angular",
    "Chebyshev",
    "UserMetric",
    "Euclidean",
    "Hamming",
    "Haversine",
    "Jaccard",
    "Levenshtein",
    "Manhattan",
    "Metric",
    "Points",
    "metric_named",
    "refusal",
]
