"""Central angles between a point and boxes of longitude and latitude, in radians.

The nearest point of a box: inside its longitudes the latitude gap decides; else it lies on the nearer of the two
meridian edges, at latitude ``atan2(sin phi, cos phi cos delta)`` where that lies in the box and delta is below 90
degrees, else at an end of the edge (the angle to a meridian's points is a sinusoid of their latitude). The farthest
point of a box is the one nearest to the antipode. Right at the poles, across the antimeridian and for longitudes
0..360: longitudes are compared modulo 360.
"""

from __future__ import annotations

import math

import numpy as np

from geoskip.geometry.boxes import Boxes, Envelope, Floats, Mask

__all__ = [
    "GLOBE",
    "SPHEROID_LEAST",
    "SPHEROID_MOST",
    "haversine",
    "lower_angle",
    "on_sphere",
    "upper_angle",
    "windows",
]

SPHEROID_LEAST = 6335439.327
"""Metres on WGS84 per radian of central angle (of geodetic coordinates), at least."""
SPHEROID_MOST = 6399593.626
"""The same, at most: its bounds are the least and largest radii of curvature."""

GLOBE = Envelope(-1e5, -90, 1e5, 90)
"""Valid longitudes and latitudes; beyond 1e5, rounding modulo 360 is no longer far below the slack."""


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
    delta = np.radians(np.minimum(_folded(past_west), _folded(to_east)))
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


def _folded(degrees: Floats) -> Floats:
    """The absolute angle of degrees in 0..360, as 0..180."""
    return np.minimum(degrees, 360.0 - degrees)
