"""Distances on the globe as SQL functions over ``pyproj.Geod``, mapped to GeoBox, as is ``haversine``.

Geodesics are computed by the algorithm of C. F. F. Karney. Coordinates are degrees, longitude before latitude as in
pyproj and in ``ST_Point``; distances are metres. The ellipsoid is WGS84, or the one named by the last argument
(``pyproj.get_ellps_map()``: ``GRS80``, ``clrk66``, ``sphere``, ...). Every function is NULL for NULL, for a latitude
beyond 90 degrees and for coordinates that are not finite.

>>> round(geodesic_distance(9.99, 48.40, 8.54, 47.38)), round(geodesic_distance(0, 0, 0, 1, "sphere"))
(156904, 111195)
>>> round(geodesic_bearing(0, 0, 1, 1), 2)
45.19

The radius of ``haversine`` (:mod:`udf_mappings.metric_functions`) is an argument of the call: metres, kilometres or
miles.

*Why skipping is sound*: treating geodetic coordinates as spherical ones scales a line, at each of its points, by a
factor between the least and the greatest radius of curvature: b^2/a along a meridian at the equator, a across it, a^2/b
at the poles (C. F. Gauss). So a distance lies between these radii times the central angle, and the angle to a box is
known.

A distance is also a metric: ``MetricDist("lng", "lat", metric="geodesic_distance")``. Bearings have no mapping: all of
them occur around any place, so that a box excludes few.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pyproj
import shapely

from geoskip.clauses import Clause
from geoskip.geometry import Point
from geoskip.indexes.geobox.index import Earth, GeoBox, GeometryThroughIndex
from geoskip.predicates import Call, Comparison, Literal, Predicate
from geoskip.registry import declare, maps
from udf_mappings import PlainFunction, offered, returns
from udf_mappings.metric_functions import haversine
from udf_mappings.sedona import distance_clause
from udf_mappings.shapely_functions import EARTH_RADIUS

FUNCTIONS: dict[str, PlainFunction] = {}
WGS84 = "WGS84"


@functools.lru_cache(maxsize=64)
def ellipsoid_named(name: Any) -> Any:
    """The ``pyproj.Geod`` with a name of PROJ, or None."""
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


@maps(geodesic_distance, index=GeoBox)
def ellipsoidal_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, in metres on the ellipsoid named by the call."""
    return _near_or_far(node, index, WGS84, _bounds_of)


@maps(haversine, index=GeoBox)
def spherical_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, in the unit of the call's radius."""
    return _near_or_far(
        node,
        index,
        EARTH_RADIUS,
        lambda radius: Earth.of_radius(float(radius)) if 0 < float(radius) < math.inf else None,
    )


def _bounds_of(name: Any) -> Earth | None:
    geod = ellipsoid_named(name) if isinstance(name, str) else None
    if geod is None:
        return None
    curvatures = (geod.b**2 / geod.a, geod.a, geod.a**2 / geod.b)
    return Earth(min(curvatures) * (1 - 1e-9), max(curvatures) * (1 + 1e-9))


def _near_or_far(node: Predicate, index: GeoBox, usual: Any, globe: Callable[[Any], Earth | None]) -> Clause | None:
    """Map a comparison of a distance; an optional fifth argument of the call specifies the globe."""
    match node:
        case Comparison(op, Call(_, (_, _, _, _, *rest)) as call, Literal(distance)):
            named = (rest[0].value if isinstance(rest[0], Literal) else None) if rest else usual
            if named is not None and (earth := globe(named)) is not None:
                return next((distance_clause(op, pair, earth, distance) for pair in _pairs(call, index)), None)
    return None


def _pairs(call: Call, index: GeoBox) -> Iterator[tuple[GeometryThroughIndex, shapely.Point, bool]]:
    """The row's place through the index and the constant place, in either order of the arguments."""
    if not returns(call, "double"):
        return
    for row, constants in ((call.args[:2], call.args[2:4]), (call.args[2:4], call.args[:2])):
        place = [part.value for part in constants if isinstance(part, Literal) and part.value is not None]
        if len(place) == 2 and (sight := index.sees(Point(*row))) is not None:
            yield sight, shapely.Point(float(place[0]), float(place[1])), True
