"""The metrics by name, and what is none."""

from __future__ import annotations

import re

from geoskip.errors import InvalidSpecificationError
from geoskip.metrics.arrays import Angular, Jaccard
from geoskip.metrics.base import Metric
from geoskip.metrics.numbers import Chebyshev, Euclidean, Haversine, Manhattan
from geoskip.metrics.texts import Hamming, Levenshtein

__all__ = ["METRICS", "metric_named"]

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
}
_ALSO = {
    "cosine distance": "cosine", "cosine similarity": "cosine", "sqeuclidean": "squared euclidean",
    "squared l2": "squared euclidean", "l2 squared": "squared euclidean", "euclidean squared": "squared euclidean",
    "jaro winkler distance": "jaro winkler", "jarowinkler": "jaro winkler",
    "optimal string alignment": "osa", "restricted damerau levenshtein": "osa", "damerau levenshtein osa": "osa",
    "sorensen": "dice", "sorensen dice": "dice", "dice sorensen": "dice", "overlap": "dice",
    "braycurtis": "bray curtis", "dynamic time warping": "dtw", "kullback leibler": "kl",
    "l2": "euclidean", "euclid": "euclidean", "l1": "manhattan", "cityblock": "manhattan", "taxicab": "manhattan",
    "linf": "chebyshev", "edit": "levenshtein", "great circle": "haversine", "angle": "angular",
}  # fmt: skip


def metric_named(name: str) -> Metric:
    """The built-in metric of this name; raises InvalidSpecificationError with the way out.

    >>> metric_named("levenshtein").whole
    True
    """
    if name in METRICS:
        return METRICS[name]
    plain = re.sub(r"[\s_-]+", " ", name.strip().lower())
    meant = _ALSO.get(plain, plain)
    if meant in METRICS:
        raise InvalidSpecificationError(f"there is no metric {name!r}; it is called {meant!r} here")
    if meant in _NONE_BECAUSE:
        raise InvalidSpecificationError(
            f"{name} is no metric (it breaks the triangle inequality), so an index on it would lose rows: "
            f"{_NONE_BECAUSE[meant]}"
        )
    raise InvalidSpecificationError(
        f"there is no metric {name!r}; known are {', '.join(METRICS)}, and functions of your own that are declared to "
        f"be metrics: geoskip.declare(function, metric=True)"
    )
