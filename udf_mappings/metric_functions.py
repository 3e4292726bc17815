"""Metrics as plain Python functions, to be registered in a session and called from SQL::

    from udf_mappings import metric_functions

    metric_functions.register(spark)  # haversine, hamming, angular, jaccard
    spark.sql("SELECT * FROM stops WHERE haversine(lng, lat, 8.54, 47.38) < 500")

Every function is NULL for a NULL argument, and where there is no distance. Registered under these names, over any other
functions of the user's own: that is why a session does not register them by itself.

>>> round(haversine(0, 0, 0, 1)), hamming("karolin", "kathrin"), jaccard(["a", "b"], ["b", "c"])
(111195, 3, 0.6666666666666667)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from udf_mappings.shapely_functions import EARTH_RADIUS

__all__ = ["angular", "hamming", "haversine", "jaccard", "register"]


def haversine(lng1: Any, lat1: Any, lng2: Any, lat2: Any, radius: Any = EARTH_RADIUS) -> float | None:
    """Distance of two places on a sphere, in the unit of the radius.

    Parameters
    ----------
    lng1, lat1, lng2, lat2
        The two places, in degrees.
    radius
        The radius of the sphere; in metres by default.
    """
    if lng1 is None or lat1 is None or lng2 is None or lat2 is None or radius is None:
        return None
    phi, theta = math.radians(lat1), math.radians(lat2)
    turn = math.radians(lng2) - math.radians(lng1)
    a = math.sin((theta - phi) / 2) ** 2 + math.cos(phi) * math.cos(theta) * math.sin(turn / 2) ** 2
    return 2 * float(radius) * math.asin(math.sqrt(min(1.0, max(0.0, a))))


def hamming(a: Any, b: Any) -> int | None:
    """Number of bits in which two whole numbers differ, or of code points in which two texts do.

    The rest of the longer text counts.
    """
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return int((a ^ b) & (2**64 - 1)).bit_count()
    differing = sum(1 for x, y in zip(a, b, strict=False) if x != y)
    return differing + abs(len(a) - len(b))


def angular(a: Sequence[float] | None, b: Sequence[float] | None) -> float | None:
    """Angle between two vectors, in radians.

    NULL for a zero vector, one with a NULL, and two of different dimensions.
    """
    if a is None or b is None or len(a) != len(b) or None in a or None in b:
        return None
    norm = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    if not 0 < norm < math.inf:
        return None
    return math.acos(min(1.0, max(-1.0, sum(x * y for x, y in zip(a, b, strict=True)) / norm)))


def jaccard(a: Sequence[Any] | None, b: Sequence[Any] | None) -> float | None:
    """``1 - |a and b| / |a or b|`` of two arrays as sets; 0 for two empty ones."""
    if a is None or b is None:
        return None
    either = set(a) | set(b)
    return 1 - len(set(a) & set(b)) / len(either) if either else 0.0


_RETURNS = {"haversine": "double", "hamming": "int", "angular": "double", "jaccard": "double"}


def register(spark: Any) -> None:
    """Register all of them in a session."""
    for name, returns in _RETURNS.items():
        spark.udf.register(name, globals()[name], returns)
