"""Distances on an ellipsoid as SQL functions, over ``pyproj.Geod`` (geodesics by C. F. F. Karney).

Coordinates are degrees, longitude before latitude as in pyproj and in ``ST_Point``; distances are metres. The ellipsoid
is WGS84, or the one named by the last argument (``pyproj.get_ellps_map()``: ``GRS80``, ``clrk66``, ``sphere``, ...).
Every function is NULL for NULL, for a latitude beyond 90 degrees and for what is not finite.

>>> round(geodesic_distance(9.99, 48.40, 8.54, 47.38)), round(geodesic_distance(0, 0, 0, 1, "sphere"))
(156904, 111195)
>>> round(geodesic_bearing(0, 0, 1, 1), 2)
45.19
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pyproj

from geoskip.registry import declare
from udf_mappings.library import PlainFunction, offered

__all__ = ["FUNCTIONS", "ellipsoid_named"]

FUNCTIONS: dict[str, PlainFunction] = {}
WGS84 = "WGS84"


@functools.lru_cache(maxsize=64)
def ellipsoid_named(name: Any) -> Any:
    """The ``pyproj.Geod`` of a name of PROJ's; None where there is none."""
    try:
        return pyproj.Geod(ellps=name)
    except Exception:
        return None


@offered(FUNCTIONS, "double")
def geodesic_distance(lng1: Any, lat1: Any, lng2: Any, lat2: Any, ellipsoid: Any = WGS84) -> float | None:
    """Metres along the shortest line between two places; a metric.

    Parameters
    ----------
    lng1, lat1, lng2, lat2
        The two places, in degrees.
    ellipsoid
        A name of ``pyproj.get_ellps_map()``.
    """
    return _inverse(lng1, lat1, lng2, lat2, ellipsoid, 2)


@offered(FUNCTIONS, "double")
def geodesic_bearing(lng1: Any, lat1: Any, lng2: Any, lat2: Any, ellipsoid: Any = WGS84) -> float | None:
    """Azimuth of the shortest line at the first place, in degrees clockwise from north, -180 to 180.

    Parameters
    ----------
    lng1, lat1, lng2, lat2
        The two places, in degrees.
    ellipsoid
        A name of ``pyproj.get_ellps_map()``.
    """
    return _inverse(lng1, lat1, lng2, lat2, ellipsoid, 0)


def _inverse(lng1: Any, lat1: Any, lng2: Any, lat2: Any, ellipsoid: Any, which: int) -> float | None:
    if lng1 is None or lat1 is None or lng2 is None or lat2 is None or ellipsoid is None:
        return None
    places = [float(lng1), float(lat1), float(lng2), float(lat2)]
    geod = ellipsoid_named(ellipsoid)
    if geod is None or not all(map(math.isfinite, places)) or abs(places[1]) > 90 or abs(places[3]) > 90:
        return None
    return float(geod.inv(*places)[which])


_VERSION = f"1 pyproj {pyproj.__version__} proj {pyproj.proj_version_str}"
declare(geodesic_distance, metric=True, null_in_null_out=True, version=_VERSION)
declare(geodesic_bearing, null_in_null_out=True, version=_VERSION)
