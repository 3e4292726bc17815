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
from geoskip.geometry import sphere
from geoskip.geometry.boxes import Boxes
from geoskip.geometry.centroids import ROUNDING
from geoskip.indexes.geobox.clauses import GeoClause, Integers
from geoskip.indexes.geobox.units import BoxUnits, NoBoxReason

__all__ = ["Cap", "Earth", "GlobeComesWithin", "GlobeGoesBeyond"]


Cap = tuple[float, float, float]
"""All places within an angle, in radians, of a place: its longitude, its latitude, the angle."""


@dataclass(frozen=True)
class Earth:
    """How metres (or another unit) follow from central angles: between ``least`` and ``most`` of them a radian.

    >>> Earth.of_radius(6371008.0).least
    6371008.0
    """

    least: float
    most: float

    @classmethod
    def of_radius(cls, radius: float) -> Earth:
        """A sphere, in the unit of its radius."""
        return cls(radius, radius)

    @classmethod
    def wgs84(cls) -> Earth:
        """The WGS84 spheroid, in metres: a geodesic per radian of central angle of its geodetic coordinates."""
        return cls(sphere.SPHEROID_LEAST, sphere.SPHEROID_MOST)


@dataclass(frozen=True)
class _Globe(GeoClause):
    longitude: float
    latitude: float
    distance: float
    earth: Earth

    def _angular_slack(self, angle: Any) -> Any:
        """What rounding can do to a central angle: haversine loses half of its digits towards the antipode."""
        return 1e-11 + np.where(np.asarray(angle) > math.pi - 1e-3, 1e-6, 1e-12 * np.asarray(angle))

    def _around(self, units: BoxUnits, angle: float) -> Integers:
        """The places of the boxes within an angle, and of some others."""
        angle += math.radians(4 * ROUNDING * min(units.scale, 360.0))
        windows = sphere.windows(self.longitude, self.latitude, angle, units.scale)
        found = [self._meeting(units, window) for window in windows]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def _centred(self, units: BoxUnits, places: Integers) -> Mask:
        """Which of some boxes are of files where every geometry has its centroid near its box."""
        return self._valid(units, places) & self._known(units, places)

    def _holding_centres(self, units: BoxUnits, places: Integers) -> Boxes:
        """Boxes in which the centroids are: grown by what rounding does, but for points, which are their own."""
        boxes = self._seen(units, places)
        return boxes.grown(np.where(units.only_points(places), 0.0, 2 * ROUNDING * boxes.scale()))

    def _off_globe(self, units: BoxUnits) -> Integers:
        everywhere = np.arange(units.boxless.start)
        known = sphere.on_sphere(self.view.boxes(units.boxes)) & self._centred(units, everywhere)
        return np.flatnonzero(~known)

    def _where(self) -> str:
        return f"{self.distance:g} of ({self.longitude:g}, {self.latitude:g}) on the globe"


@dataclass(frozen=True)
class GlobeComesWithin(_Globe):
    """Some box comes within a distance of a place on the globe, and meets all caps, or some row is invalid."""

    caps: tuple[Cap, ...] = ()

    def keep_of(self, units: BoxUnits) -> Mask:
        angle = self.distance / self.earth.least
        candidates = self._around(units, angle)
        boxes = self._holding_centres(units, candidates)
        near = self._in_cap(boxes, (self.longitude, self.latitude, angle))
        for cap in self.caps:
            near[near] = self._in_cap(boxes.take(near), cap)
        keep = self._keeping(units, candidates, near)
        keep[units.derived(("off the globe", self.view), lambda: self._off_globe(units))] = True
        keep[units.boxless] = units.boxless_of(NoBoxReason.EMPTY)
        return keep

    def _in_cap(self, boxes: Boxes, cap: Cap) -> Mask:
        """Which boxes meet it."""
        longitude, latitude, angle = cap
        lower = sphere.lower_angle(boxes, longitude, latitude)
        return np.asarray(lower - self._angular_slack(lower) <= angle)

    def __str__(self) -> str:
        sides = f", and within its {len(self.caps)} sides" if self.caps else ""
        return f"{self.index}: a box comes within {self._where()}{sides}"


@dataclass(frozen=True)
class GlobeGoesBeyond(_Globe):
    """Some box has a point beyond a distance of a place on the globe, or some row is invalid.

    Near the antipode haversine may give NaN, which is greater than any distance: such boxes are kept.
    """

    def keep_of(self, units: BoxUnits) -> Mask:
        angle = self.distance / self.earth.most
        candidates = self._around(units, angle)
        boxes = self._holding_centres(units, candidates)
        upper = sphere.upper_angle(boxes, self.longitude, self.latitude)
        inside = (upper + self._angular_slack(upper) < angle) & (upper < math.pi - 1e-6)
        inside &= sphere.on_sphere(self._seen(units, candidates)) & self._centred(units, candidates)
        return self._dropping(units, candidates, inside)

    def __str__(self) -> str:
        return f"{self.index}: a box has a point beyond {self._where()}"
