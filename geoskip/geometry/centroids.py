"""Centroids as JTS and GEOS compute them: where they may lie, rounding included.

Both sum the signed areas of triangles from one corner to every edge, times the sums of their corners; of what has no
area the lengths of its lines, and of what has none the points. The centroid of a valid geometry lies in its convex
hull, and so in its box; but where the areas nearly cancel, as those of a sliver do, rounding moves it out of the box.

*The bound.* Over n edges the areas are wrong by at most some n units in the last place of the squared diagonal D, and
their sums by n units of the length L times D; the corners' sums are of the size of the coordinates. All of it is
divided by the area.

>>> import shapely
>>> square, sliver = shapely.box(0, 0, 1, 1), shapely.Polygon([(0, 0), (9, 9), (9, 9.000000000000002)])
>>> (rounding_of(np.array([square, sliver])) < [1e-12, 1e-3]).tolist()
[True, False]
"""

from __future__ import annotations

import numpy as np
import shapely
from numpy.typing import NDArray

from geoskip.geometry.boxes import Floats, Mask

__all__ = ["ROUNDING", "is_near_its_box", "rounding_of"]

ROUNDING = 1e-7
"""By so much of the largest coordinate a centroid may leave its box: two metres of longitudes and latitudes."""
_STEPS = 64 * 2.0**-53


def rounding_of(geometries: NDArray[np.object_]) -> Floats:
    """Upper bounds of rounding errors of centroids of valid geometries, in coordinate units."""
    with np.errstate(all="ignore"):
        west, south, east, north = np.asarray(shapely.bounds(geometries)).T
        thin = shapely.length(geometries) * np.hypot(east - west, north - south) / shapely.area(geometries)
        thin = np.where(np.asarray(shapely.get_dimensions(geometries)) == 2, thin, 0.0)
        doubt = _STEPS * (shapely.get_num_coordinates(geometries) + 8) * _scale(geometries) * (1 + thin)
    return np.asarray(np.where(np.isnan(doubt), np.inf, doubt), dtype=np.float64)


def is_near_its_box(geometries: NDArray[np.object_]) -> Mask:
    """Mark valid geometries whose centroid lies in their box, or within :data:`ROUNDING` of it."""
    return np.asarray(rounding_of(geometries) <= ROUNDING * _scale(geometries), dtype=bool)


def _scale(geometries: NDArray[np.object_]) -> Floats:
    return np.asarray(np.abs(shapely.bounds(geometries)).max(axis=1), dtype=np.float64)
