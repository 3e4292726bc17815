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

import re

from geoskip.errors import InvalidSpecificationError
from geoskip.metrics.base import Metric, Points, UserMetric
from geoskip.metrics.strings import Hamming, Levenshtein
from geoskip.metrics.vectors import Angular, Chebyshev, Euclidean, Haversine, Jaccard, Manhattan

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


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Euclidean(), Manhattan(), Chebyshev(), Haversine(), Levenshtein(), Hamming(), Angular(), Jaccard(),
    )
}  # fmt: skip

_NONE_BECAUSE = {
    "cosine": "an angle of 90 degrees costs 1 and each half of it 0.29, so a detour is shorter; use metric='angular', "
    "the angle itself, and ask for acos of the similarity",
    "squared euclidean": "0 to 2 costs 4, by way of 1 it costs 2; use metric='euclidean', its root",
    "jaro": "a to ba costs 1, by way of aa it costs 1/2; use metric='levenshtein'",
    "jaro winkler": "a to ba costs 1, by way of aa it costs 0.48; use metric='levenshtein'",
    "osa": "ca to abc costs 3, by way of ac it costs 2; use metric='levenshtein', or declare "
    "a true Damerau-Levenshtein",
    "dice": "{a} to {b} costs 1, by way of {a, b} it costs 2/3; use metric='jaccard'",
    "bray curtis": "(1, 0) to (0, 1) costs 1, by way of (1, 1) it costs 2/3; use metric='manhattan'",
    "dtw": "time warping makes a detour shorter; use metric='euclidean' on arrays of one length, declared as a metric",
    "kl": "it is not the same both ways; declare the root of Jensen-Shannon's divergence as a metric",
    "haversine squared": "a detour may be shorter; use metric='haversine'",
    "normalized levenshtein": "ab to ba costs 1, by way of aba it costs 2/3; use metric='levenshtein'",
    "ratio": "ab to ba costs 1/2, by way of aba it costs 2/5; use metric='levenshtein', or indel, declared as a metric",
    "partial ratio": "a to b costs 1, by way of ab it costs nothing; use metric='levenshtein'",
}
_ALSO = {
    "cosine distance": "cosine", "cosine similarity": "cosine", "sqeuclidean": "squared euclidean",
    "squared l2": "squared euclidean", "l2 squared": "squared euclidean", "euclidean squared": "squared euclidean",
    "jaro winkler distance": "jaro winkler", "jarowinkler": "jaro winkler",
    "optimal string alignment": "osa", "restricted damerau levenshtein": "osa", "damerau levenshtein osa": "osa",
    "sorensen": "dice", "sorensen dice": "dice", "dice sorensen": "dice", "overlap": "dice",
    "braycurtis": "bray curtis", "dynamic time warping": "dtw", "kullback leibler": "kl",
    "normalised levenshtein": "normalized levenshtein", "normalized indel": "ratio", "indel ratio": "ratio",
    "levenshtein ratio": "normalized levenshtein", "fuzz ratio": "ratio",
    "l2": "euclidean", "euclid": "euclidean", "l1": "manhattan", "cityblock": "manhattan", "taxicab": "manhattan",
    "linf": "chebyshev", "edit": "levenshtein", "great circle": "haversine", "angle": "angular",
}  # fmt: skip


def refusal(name: str) -> str | None:
    """Reason why the distance of this name is no metric, or None if it is unknown.

    >>> refusal("JaroWinkler.distance").partition(",")[0]
    'JaroWinkler.distance is no metric (it breaks the triangle inequality)'
    """
    why = _NONE_BECAUSE.get(_normalise(name))
    if why is None:
        return None
    return f"{name} is no metric (it breaks the triangle inequality), so an index on it would lose rows: {why}"


def _normalise(name: str) -> str:
    """Normalise a name: ``jaro_winkler_distance`` and ``JaroWinkler.distance`` are one."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip())
    plain = re.sub(r"[\s_.-]+", " ", words).lower()
    short = re.sub(r" (distance|similarity)$", "", plain)
    return _ALSO.get(plain, _ALSO.get(short, plain if plain in METRICS else short))


def metric_named(name: str) -> Metric:
    """The built-in metric of this name; raises InvalidSpecificationError with the way out.

    >>> metric_named("levenshtein").whole
    True
    """
    if name in METRICS:
        return METRICS[name]
    meant = _normalise(name)
    if meant in METRICS:
        raise InvalidSpecificationError(f"there is no metric {name!r}; it is called {meant!r} here")
    if why := refusal(name):
        raise InvalidSpecificationError(why)
    raise InvalidSpecificationError(
        f"there is no metric {name!r}; known are {', '.join(METRICS)}, and functions of your own that are declared to "
        f"be metrics: geoskip.declare(function, metric=True)"
    )
