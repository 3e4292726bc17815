"""Distances on the globe by ``pyproj.Geod`` and haversine, mapped to GeoBox.

Bound to :mod:`udf_mappings.geodesy_functions` and to ``haversine`` of :mod:`udf_mappings.metric_functions`, whose
radius is the call's own: metres, kilometres or miles. All take ``(lng1, lat1, lng2, lat2)``, the row on either side.

*Why skipping is sound*: to take geodetic coordinates for spherical ones stretches a line, at each of its points, by
between the least and the greatest radius of curvature: b^2/a along the equator's meridians, a across them, a^2/b at the
poles (C. F. Gauss). So a distance is between these times the central angle, and the angle to a box is known.

A distance is a metric too: ``MetricDist("lng", "lat", metric="geodesic_distance")``. Bearings have no mapping: all of
them occur around any place, and a box says little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import shapely

from geoskip.clauses import Clause
from geoskip.geometry import Point
from geoskip.indexes.geobox.index import Earth, GeoBox, GeometryThroughIndex
from geoskip.predicates import Call, Comparison, Literal, Predicate
from geoskip.registry import maps
from udf_mappings.geodesy_functions import WGS84, ellipsoid_named, geodesic_distance
from udf_mappings.library import returns
from udf_mappings.metric_functions import haversine
from udf_mappings.sedona import compared
from udf_mappings.shapely_functions import EARTH_RADIUS


@maps(geodesic_distance, index=GeoBox)
def along_the_ellipsoid(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, in metres on the ellipsoid that the call names."""
    match node:
        case Comparison(op, Call(_, (_, _, _, _, *rest)) as call, Literal(distance)):
            name = rest[0].value if rest and isinstance(rest[0], Literal) else None if rest else WGS84
            geod = ellipsoid_named(name) if isinstance(name, str) else None
            if geod is not None:
                curvatures = (geod.b**2 / geod.a, geod.a, geod.a**2 / geod.b)
                earth = Earth(min(curvatures) * (1 - 1e-9), max(curvatures) * (1 + 1e-9))
                return next((compared(op, pair, earth, distance) for pair in _pairs(call, index)), None)
    return None


@maps(haversine, index=GeoBox)
def along_the_sphere(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, in the unit of the call's radius."""
    match node:
        case Comparison(op, Call(_, (_, _, _, _, *rest)) as call, Literal(distance)):
            radius = rest[0].value if rest and isinstance(rest[0], Literal) else None if rest else EARTH_RADIUS
            if radius is not None and 0 < float(radius) < math.inf:
                earth = Earth.of_radius(float(radius))
                return next((compared(op, pair, earth, distance) for pair in _pairs(call, index)), None)
    return None


def _pairs(call: Call, index: GeoBox) -> Iterator[tuple[GeometryThroughIndex, shapely.Point, bool]]:
    """The row's place as the index sees it and the constant one, whichever comes first."""
    if not returns(call, "double"):
        return
    for row, constants in ((call.args[:2], call.args[2:4]), (call.args[2:4], call.args[:2])):
        place = [part.value for part in constants if isinstance(part, Literal) and part.value is not None]
        if len(place) == 2 and (sight := index.sees(Point(*row))) is not None:
            yield sight, shapely.Point(float(place[0]), float(place[1])), True
