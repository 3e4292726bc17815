"""The clauses of GeoBox for distances on the globe, from centroids to one place.

Sedona measures from the centroid of what is no point. That of a valid geometry lies in its box, rounding aside
(:mod:`geoskip.geometry.centroids`), that of an invalid polygon can leave it: such files are kept. Sound by the angles
of :mod:`geoskip.geometry.sphere`: no point of a box is nearer than the lower angle, none farther than the upper one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.clauses import Mask
from geoskip.conditions import NEVER, AllOf, Condition, Negation, any_holds
from geoskip.geometry import sphere
from geoskip.geometry.boxes import Boxes, Envelope
from geoskip.geometry.centroids import ROUNDING
from geoskip.indexes.geobox.clauses import GeoClause, Integers, Table
from geoskip.indexes.geobox.units import BoxUnits, UnitSort, inside

__all__ = ["Cap", "Earth", "GlobeComesWithin", "GlobeGoesBeyond"]


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
        return cls(sphere.SPHEROID_LEAST, sphere.SPHEROID_MOST)


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
        return sphere.windows(self.longitude, self.latitude, angle, scale)

    def _centroid_boxes(self, units: BoxUnits, places: Integers) -> Boxes:
        """Return boxes of the centroids: grown by the rounding error, except for points, their own centroids."""
        boxes = self._seen(units, places)
        return boxes.grown(np.where(units.only_points(places), 0.0, 2 * ROUNDING * boxes.scale()))

    def _place(self) -> str:
        return f"{self.distance:g} of ({self.longitude:g}, {self.latitude:g}) on the globe"


@dataclass(frozen=True)
class GlobeComesWithin(_Globe):
    """Some box comes within a distance of a place and meets all caps, or some row is invalid."""

    caps: tuple[Cap, ...] = ()

    def where(self, table: Table) -> Condition:
        near = self._near(table, self._windows(self._angle, table.scale), self._in_caps)
        globe = self.view.back(sphere.GLOBE, table.scale)
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
        def known() -> Mask:
            return sphere.on_sphere(self.view.boxes(units.boxes))

        return ~np.asarray(units.derived(("on the globe", self.view), known))[places]

    def _in_caps(self, units: BoxUnits, places: Integers) -> Mask:
        boxes = self._centroid_boxes(units, places)
        near = self._in_cap(boxes, (self.longitude, self.latitude, self._angle))
        for cap in self.caps:
            near[near] = self._in_cap(boxes.take(near), cap)
        return near

    def _in_cap(self, boxes: Boxes, cap: Cap) -> Mask:
        """Return the mask of the boxes that meet a cap."""
        longitude, latitude, angle = cap
        lower = sphere.lower_angle(boxes, longitude, latitude)
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
        return self._not_all(self._windows(self._angle, table.scale), self._within)

    @property
    def _angle(self) -> float:
        return self.distance / self.earth.most

    def _within(self, units: BoxUnits, places: Integers) -> Mask:
        upper = sphere.upper_angle(self._centroid_boxes(units, places), self.longitude, self.latitude)
        near = (upper + self._angular_slack(upper) < self._angle) & (upper < math.pi - 1e-6)
        return np.asarray(near & sphere.on_sphere(self._seen(units, places)))

    def __str__(self) -> str:
        return f"{self.index}: a box has a point beyond {self._place()}"
