"""The clauses of GeoBox for distances on the globe, from centroids to a constant point.

Sedona measures from the centroid of what is no point. That of a valid geometry lies in its box, rounding aside
(:func:`~geoskip.geometry.shapes.rounding_of`), that of an invalid polygon can leave it: such files are kept. No point
of a box is nearer than the lower central angle (:func:`lower_angle`), none farther than the upper one.

The nearest point of a box: inside its longitudes the latitude gap decides; else it lies on the nearer of the two
meridian edges, at latitude ``atan2(sin phi, cos phi cos delta)`` where that lies in the box and delta is below 90
degrees, else at an end of the edge (the angle to a meridian's points is a sinusoid of their latitude). The farthest
point of a box is the one nearest to the antipode. Right at the poles, across the antimeridian and for longitudes
0..360: longitudes are compared modulo 360. Angles are in radians.
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
"""Metres on WGS84 per radian of central angle (of geodetic coordinates), at least."""
SPHEROID_MOST = 6399593.626
"""The same, at most: its bounds are the least and largest radii of curvature."""

GLOBE = Envelope(-1e5, -90, 1e5, 90)
"""Valid longitudes and latitudes; beyond 1e5, rounding modulo 360 is no longer far below the slack."""

_CORNERS_OF_A_CIRCLE = 180

Cap = tuple[float, float, float]
"""A spherical cap: longitude and latitude of its centre in degrees, and its angle in radians."""


@dataclass(frozen=True)
class Earth:
    """Bounds of the metres (or another unit) in a radian of central angle: ``least`` and ``most``.

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
        """Return the WGS84 spheroid: metres of geodesic a radian of central angle of geodetic coordinates."""
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
        """Return windows that all boxes within an angle of the place meet; others may, too."""
        angle += math.radians(4 * ROUNDING * min(scale, 360.0))
        return windows(self.longitude, self.latitude, angle, scale)

    def _centroid_boxes(self, units: BoxUnits, places: Integers) -> Boxes:
        """Return boxes of the centroids: grown by the rounding error, except for points, their own centroids."""
        boxes = self._seen(units, places)
        return boxes.grow(np.where(units.only_points(places), 0.0, 2 * ROUNDING * boxes.scale()))

    def outline(self) -> BaseGeometry:
        """Return the circle around the place, the place itself if it has no size or half of the globe."""
        if not 0 < self.distance < self.earth.least * np.pi / 2:
            return self.view.preimage(shapely.Point(self.longitude, self.latitude))
        import pyproj  # workers, which build boxes, have no need of it

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
    """Some box comes within a distance of a place and meets all caps, or some row is invalid."""

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
        """Return the mask of the boxes that meet a cap."""
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
    """The central angle between latitudes ``phi`` and ``theta`` at a longitude difference ``delta``.

    >>> bool(abs(haversine(0.0, 0.0, np.pi / 2) - np.pi / 2) < 1e-15)
    True
    """
    a = np.sin((phi - theta) / 2) ** 2 + np.cos(phi) * np.cos(theta) * np.sin(delta / 2) ** 2
    return np.asarray(2 * np.arcsin(np.sqrt(np.clip(a, 0, 1))), dtype=np.float64)


def on_sphere(boxes: Boxes) -> Mask:
    """Mark boxes of valid longitudes and latitudes."""
    return boxes.inside(GLOBE)


def lower_angle(boxes: Boxes, longitude: float, latitude: float) -> Floats:
    """The least central angle from a point to each box.

    >>> here = Boxes.of([(170, -10, 180, 10)])
    >>> np.degrees(lower_angle(here, -175, 0)).round(9).tolist()
    [5.0]
    """
    phi = math.radians(latitude)
    south, north = np.radians(boxes.ymin), np.radians(boxes.ymax)
    width = boxes.xmax - boxes.xmin
    past_west = np.mod(longitude - boxes.xmin, 360.0)  # how far east of the western edge the point lies
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
    """The largest central angle from a point to each box: pi minus the least one from the antipode.

    >>> np.degrees(upper_angle(Boxes.of([(0, 0, 10, 0)]), 0, 0)).round(9).tolist()
    [10.0]
    """
    return np.pi - lower_angle(boxes, longitude + 180.0, -latitude)


def windows(longitude: float, latitude: float, angle: float, farthest: float) -> list[Envelope]:
    """Boxes that cover the circle of an angle around a point.

    Parameters
    ----------
    lng, lat
        The point, in degrees.
    angle
        The radius of the circle, in radians.
    farthest
        Largest absolute longitude, in degrees, of the rows.

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
    """The absolute angle of degrees in 0..360, as 0..180."""
    return np.minimum(degrees, 360.0 - degrees)
