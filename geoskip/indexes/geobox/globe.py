"""The clauses of GeoBox for distances on the globe, from centroids to a constant point.

Sedona measures distances between centroids. The centroid of a valid geometry lies in its box, except for rounding
(:func:`~geoskip.geometry.shapes.rounding_of`); that of an invalid polygon may be outside: such files are kept. All
points of a box are between the lower (:func:`lower_angle`) and the upper central angle (:func:`upper_angle`).

The nearest point of a box: for a place within its longitudes, the difference of latitudes decides. Else the nearest
point lies on the nearer of the two meridian edges, at latitude ``atan2(sin phi, cos phi cos delta)`` if that is in the
box and delta is below 90 degrees, else at an end of the edge (the angle to the points of a meridian is a sinusoid of
their latitude). The farthest point of a box is the one nearest to the antipode. This is correct at the poles, across
the antimeridian and for longitudes 0..360, since longitudes are compared modulo 360. Angles are in radians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from geoskip.clauses import Mask
from geoskip.conditions import NEVER, AllOf, Condition, Negation, any_holds
from geoskip.geometry import Boxes, Envelope, Floats
from geoskip.geometry.shapes import ROUNDING
from geoskip.indexes.geobox.clauses import GeoClause, Integers, Table
from geoskip.indexes.geobox.units import BoxUnits, UnitSort, inside

SPHEROID_LEAST = 6335439.327
"""The least metres per radian of central angle on WGS84 (of geodetic coordinates)."""
SPHEROID_MOST = 6399593.626
"""The most metres per radian; both bounds are the least and the largest radius of curvature."""

GLOBE = Envelope(-1e5, -90, 1e5, 90)
"""Valid longitudes and latitudes; beyond 1e5, the rounding error modulo 360 approaches the slack."""

_CORNERS_OF_A_CIRCLE = 180

Cap = tuple[float, float, float]
"""A spherical cap: longitude and latitude of its centre in degrees, and its angle in radians."""


@dataclass(frozen=True)
class Earth:
    """Bounds of the metres (or another unit) per radian of central angle: ``least`` and ``most``.

    >>> Earth.of_radius(6371008.0).least
    6371008.0
    """

    least: float
    most: float

    @classmethod
    def of_radius(cls, radius: float) -> Earth:
        """Return a sphere, measured in the unit of its radius."""
        return cls(radius, radius)

    @classmethod
    def wgs84(cls) -> Earth:
        """Return the WGS84 spheroid: geodesic metres per radian of central angle of geodetic coordinates."""
        return cls(SPHEROID_LEAST, SPHEROID_MOST)


@dataclass(frozen=True)
class _Globe(GeoClause):
    longitude: float
    latitude: float
    distance: float
    earth: Earth

    def _angular_slack(self, angle: Any) -> Any:
        """Bound the rounding error of a central angle, largest near the antipode (haversine)."""
        return 1e-11 + np.where(np.asarray(angle) > math.pi - 1e-3, 1e-6, 1e-12 * np.asarray(angle))

    def _windows(self, angle: float, scale: float) -> list[Envelope]:
        """Return windows that all boxes within an angle of the place meet; other boxes may meet them too."""
        angle += math.radians(4 * ROUNDING * min(scale, 360.0))
        return windows(self.longitude, self.latitude, angle, scale)

    def _centroid_boxes(self, units: BoxUnits, places: Integers) -> Boxes:
        """Return boxes of the centroids: grown by the rounding error, except in files with only points."""
        boxes = self._seen(units, places)
        return boxes.grow(np.where(units.only_points(places), 0.0, 2 * ROUNDING * boxes.scale()))

    def outline(self) -> BaseGeometry:
        """Return the circle around the place, or the place for a radius of 0 or beyond a quarter turn."""
        if not 0 < self.distance < self.earth.least * np.pi / 2:
            return self.view.preimage(shapely.Point(self.longitude, self.latitude))
        import pyproj  # not needed by workers, which build boxes

        radius = self.earth.least
        earth = pyproj.Geod(ellps="WGS84") if radius == SPHEROID_LEAST else pyproj.Geod(a=radius, b=radius)
        bearings = np.linspace(0, 360, _CORNERS_OF_A_CIRCLE, endpoint=False)
        lng, lat = (np.full(len(bearings), place) for place in (self.longitude, self.latitude))
        x, y, _ = earth.fwd(lng, lat, bearings, np.full(len(bearings), self.distance))
        around = self.longitude + (np.asarray(x) - self.longitude + 180) % 360 - 180
        return self.view.preimage(shapely.LineString(np.column_stack([around, y])[[*range(len(bearings)), 0]]))

    def _place(self) -> str:
        return f"{self.distance:g} of ({self.longitude:g}, {self.latitude:g}) on the globe"


@dataclass(frozen=True)
class GlobeComesWithin(_Globe):
    """Some box is within a distance of a place and meets all caps, or some row is invalid."""

    caps: tuple[Cap, ...] = ()

    def where(self, table: Table) -> Condition:
        near = self._near(table, self._windows(self._angle, table.scale), self._in_caps)
        globe = self.view.back(GLOBE, table.scale)
        off: Condition = NEVER
        if self.view.slack:
            off = self._code(UnitSort.BOX.condition, self._off_globe)
        elif not globe.contains(table.extent):
            off = AllOf((UnitSort.BOX.condition, Negation(inside(globe))))
        return any_holds([near, off, self._unsure(), UnitSort.EMPTY.condition])

    @property
    def _angle(self) -> float:
        return self.distance / self.earth.least

    def _off_globe(self, units: BoxUnits, places: Integers) -> Mask:
        def globe_mask() -> Mask:
            return on_sphere(self.view.boxes(units.boxes))

        return ~np.asarray(units.compute_once(("on the globe", self.view), globe_mask))[places]

    def _in_caps(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._centroid_boxes(units, places)
        near = self._in_cap(boxes, (self.longitude, self.latitude, self._angle))
        for cap in self.caps:
            near[near] = self._in_cap(boxes.take(near), cap)
        return near

    def _in_cap(self, boxes: Boxes, cap: Cap) -> Mask:
        """Mark boxes that meet a cap."""
        longitude, latitude, angle = cap
        lower = lower_angle(boxes, longitude, latitude)
        return np.asarray(lower - self._angular_slack(lower) <= angle)

    def __str__(self) -> str:
        sides = f", and within its {len(self.caps)} sides" if self.caps else ""
        return f"{self.index}: a box comes within {self._place()}{sides}"


@dataclass(frozen=True)
class GlobeGoesBeyond(_Globe):
    """Some box has a point beyond a distance of a place on the globe, or some row is invalid.

    Near the antipode haversine may give NaN, which is greater than any distance: such boxes are kept.
    """

    def where(self, table: Table) -> Condition:
        return self._not_all(table, self._windows(self._angle, table.scale), self._boxes_within)

    @property
    def _angle(self) -> float:
        return self.distance / self.earth.most

    def _boxes_within(self, units: BoxUnits, places: Integers) -> Mask:
        upper = upper_angle(self._centroid_boxes(units, places), self.longitude, self.latitude)
        near = (upper + self._angular_slack(upper) < self._angle) & (upper < math.pi - 1e-6)
        return np.asarray(near & on_sphere(self._seen(units, places)))

    def __str__(self) -> str:
        return f"{self.index}: a box has a point beyond {self._place()}"


def haversine(phi: Floats | float, theta: Floats | float, delta: Floats | float) -> Floats:
    """Return the central angle between latitudes ``phi`` and ``theta`` at longitude difference ``delta``.

    >>> bool(abs(haversine(0.0, 0.0, np.pi / 2) - np.pi / 2) < 1e-15)
    True
    """
    a = np.sin((phi - theta) / 2) ** 2 + np.cos(phi) * np.cos(theta) * np.sin(delta / 2) ** 2
    return np.asarray(2 * np.arcsin(np.sqrt(np.clip(a, 0, 1))), dtype=np.float64)


def on_sphere(boxes: Boxes) -> Mask:
    """Mark boxes of valid longitudes and latitudes."""
    return boxes.inside(GLOBE)


def lower_angle(boxes: Boxes, longitude: float, latitude: float) -> Floats:
    """Return the least central angle from a point to each box.

    >>> here = Boxes.of([(170, -10, 180, 10)])
    >>> np.degrees(lower_angle(here, -175, 0)).round(9).tolist()
    [5.0]
    """
    phi = math.radians(latitude)
    south, north = np.radians(boxes.ymin), np.radians(boxes.ymax)
    width = boxes.xmax - boxes.xmin
    past_west = np.mod(longitude - boxes.xmin, 360.0)  # degrees east of the western edge
    inside = (past_west <= width) | (width >= 360) | (past_west >= 360 - 1e-9)
    gap = np.maximum(np.maximum(south - phi, phi - north), 0)
    to_east = np.mod(boxes.xmax - longitude, 360.0)
    delta = np.radians(np.minimum(_fold_angles(past_west), _fold_angles(to_east)))
    nearest = np.arctan2(math.sin(phi), math.cos(phi) * np.cos(delta))
    on_edge = (delta < np.pi / 2) & (nearest >= south) & (nearest <= north)
    at_ends = np.minimum(haversine(phi, south, delta), haversine(phi, north, delta))
    edge = np.where(on_edge, haversine(phi, nearest, delta), at_ends)
    return np.where(inside, gap, edge)


def upper_angle(boxes: Boxes, longitude: float, latitude: float) -> Floats:
    """Return the largest central angle from a point to each box: pi minus the least from the antipode.

    >>> np.degrees(upper_angle(Boxes.of([(0, 0, 10, 0)]), 0, 0)).round(9).tolist()
    [10.0]
    """
    return np.pi - lower_angle(boxes, longitude + 180.0, -latitude)


def windows(longitude: float, latitude: float, angle: float, farthest: float) -> list[Envelope]:
    """Return boxes that cover a circle around a point.

    Parameters
    ----------
    longitude, latitude
        The point, in degrees.
    angle
        The radius of the circle, in radians.
    farthest
        The largest absolute longitude of the rows, in degrees.

    >>> [(round(w.xmin), round(w.xmax)) for w in windows(179, 0, math.radians(2), 180)]
    [(-183, -179), (177, 181)]
    """
    reach = math.degrees(angle) + 1e-6
    south, north = latitude - reach, latitude + reach
    if south <= -90 or north >= 90 or farthest > 540:
        return [Envelope(-math.inf, south, math.inf, north)]
    sine = math.sin(math.radians(reach)) / math.cos(math.radians(latitude))
    width = math.degrees(math.asin(min(1.0, max(-1.0, sine)))) + 1e-6
    turns = [longitude + 360 * turn for turn in range(-3, 4)]
    found = [Envelope(x - width, south, x + width, north) for x in turns if abs(x) - width <= farthest]
    return found or [Envelope(longitude, south, longitude, north)]


def _fold_angles(degrees: Floats) -> Floats:
    """Map angles in 0..360 degrees to absolute angles in 0..180."""
    return np.minimum(degrees, 360.0 - degrees)
