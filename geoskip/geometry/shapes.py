"""A query's constant geometry, prepared once to be tested against many boxes.

Every answer is about the geometry itself, holes included, not about its envelope. All answers err on the side of
*may*: boxes are grown by 1e-9 of their scale, distances are compared with a margin of some rounding steps.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.geometry.boxes import LARGEST, LEAST, Boxes, Envelope, Floats, Mask, lacks_coordinates
from geoskip.geometry.raster import Raster

ROUNDING = 1e-7
"""By so much of the largest coordinate a centroid may leave its box: two metres of longitudes and latitudes."""
_STEPS = 64 * 2.0**-53
_RASTER_BOXES = 500
_REMEMBERED = 32


def margin(scale: Any, distance: float) -> Any:
    """Upper bound of the rounding error of a planar distance.

    16 units in the last place of the largest number, and underflow.
    """
    return 16 * 2.0**-52 * np.maximum(scale, abs(distance)) + LEAST


def rounding_of(geometries: NDArray[np.object_]) -> Floats:
    """Upper bounds of rounding errors of centroids of valid geometries, in coordinate units.

    JTS and GEOS sum the signed areas of triangles from one corner to every edge, times the sums of their corners; of
    what has no area the lengths of its lines, and of what has none the points. The centroid of a valid geometry lies in
    its convex hull, and so in its box; but where the areas nearly cancel, as those of a sliver do, rounding moves it
    out of the box.

    *The bound.* Over n edges the areas are wrong by at most some n units in the last place of the squared diagonal D,
    and their sums by n units of the length L times D; the corners' sums are of the size of the coordinates. All of it
    is divided by the area.

    >>> square, sliver = shapely.box(0, 0, 1, 1), shapely.Polygon([(0, 0), (9, 9), (9, 9.000000000000002)])
    >>> (rounding_of(np.array([square, sliver])) < [1e-12, 1e-3]).tolist()
    [True, False]
    """
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


class PreparedCentroid(NamedTuple):
    """A centroid, and a bound of how far rounding moves it."""

    x: float
    y: float
    rounding: float


class Shape:
    """A constant geometry that is neither NULL nor EMPTY, with finite coordinates; see :meth:`of`."""

    def __init__(self, geometry: BaseGeometry):
        self.geometry = geometry
        self.envelope = _envelope(geometry)
        self.valid = bool(shapely.is_valid(geometry))
        self.polygonal = geometry.geom_type in ("Polygon", "MultiPolygon")
        self.vertices = int(shapely.count_coordinates(geometry))
        self.is_box = self.valid and self.polygonal and _is_box(geometry, self.envelope)
        self._lock = threading.Lock()  # GEOS builds the parts of a prepared geometry when they are first needed
        self._raster: Raster | None = None
        self._drawn = False
        if self.valid:
            shapely.prepare(geometry)

    @staticmethod
    def of(value: Any) -> Shape | None:
        """The shape of a geometry or of its WKB, None where it has none; the recent ones are remembered."""
        geometry = shapely.from_wkb(value) if isinstance(value, bytes) else value
        if not isinstance(geometry, BaseGeometry):
            return None
        key = shapely.to_wkb(geometry, output_dimension=2)
        with _guard:
            if key in _recent:
                _recent.move_to_end(key)
                return _recent[key]
        found = _prepared(key)
        with _guard:
            _recent[key] = found
            while len(_recent) > _REMEMBERED:
                _recent.popitem(last=False)
        return found

    @cached_property
    def centre(self) -> PreparedCentroid | None:
        """The centroid, of a point itself; None where it cannot be had as the engine has it."""
        if self.geometry.geom_type == "Point":
            return PreparedCentroid(self.envelope.xmin, self.envelope.ymin, 0.0)
        rounding = float(rounding_of(np.array([self.geometry]))[0])
        if not self.valid or not rounding <= ROUNDING * self.envelope.scale:
            return None
        centroid = shapely.centroid(self.geometry)
        return PreparedCentroid(centroid.x, centroid.y, rounding)

    def __str__(self) -> str:
        if self.vertices <= 6:
            return str(self.geometry)
        west, south, east, north = (f"{v:.6g}" for v in self.envelope)
        return f"{self.geometry.geom_type} of {self.vertices} vertices in ({west}, {south}, {east}, {north})"

    def meets(self, boxes: Boxes) -> Mask:
        """Mark boxes that share a point with the shape; all for an invalid one.

        The boxes must meet the shape's envelope.
        """
        if self.is_box or not self.valid:
            return np.ones(len(boxes), dtype=bool)
        raster = self._raster_for(boxes)
        if raster is None:
            return self._intersects(boxes)
        counts = raster.counts(boxes.loosened())
        met = counts.inside > 0
        return _settle(met, ~met & (counts.boundary > 0), boxes, self._intersects)

    def covers(self, boxes: Boxes) -> Mask:
        """Mark boxes that lie in the (valid, polygonal) shape, boundary included."""
        if self.is_box:
            return boxes.loosened().inside(self.envelope)
        return self._surrounds(boxes, self._covers)

    def holds_inside(self, boxes: Boxes) -> Mask:
        """Mark boxes that lie in the interior of the (valid, polygonal) shape."""
        return self._surrounds(boxes, self._contains_properly)

    def comes_within(self, boxes: Boxes, distance: float) -> Mask:
        """Mark boxes within a distance of the shape, or of its envelope if it is invalid."""
        reach = distance + margin(np.maximum(boxes.scale(), self.envelope.scale), distance)
        if self.geometry.geom_type == "Point":
            return np.asarray(boxes.nearest(self.envelope.xmin, self.envelope.ymin) <= reach)
        if distance < 0:
            return np.zeros(len(boxes), dtype=bool)
        if not self.valid:
            west, south, east, north = self.envelope
            across = np.maximum(np.maximum(boxes.xmin - east, west - boxes.xmax), 0)
            along = np.maximum(np.maximum(boxes.ymin - north, south - boxes.ymax), 0)
            return np.asarray(np.hypot(across, along) <= reach)
        with self._lock:
            return np.asarray(shapely.dwithin(self.geometry, boxes.polygons(), reach), dtype=bool)

    def farthest(self, boxes: Boxes) -> Floats:
        """A bound of the distance from the shape to any point of each box, from above.

        To a point it is largest in a corner, and no point of the shape is nearer than the shape: of its points the one
        that is nearest to the box's centre decides. The distance to a set changes by no more than one moves, so it is
        at most the centre's plus half a diagonal, too.
        """
        if self.geometry.geom_type == "Point":
            return boxes.farthest(self.envelope.xmin, self.envelope.ymin)
        centres = shapely.points((boxes.xmin + boxes.xmax) / 2, (boxes.ymin + boxes.ymax) / 2)
        with self._lock:
            nearest = shapely.get_point(shapely.shortest_line(self.geometry, centres), 0)
            apart = np.asarray(shapely.distance(self.geometry, centres), dtype=np.float64)
        corner = boxes.farthest(shapely.get_x(nearest), shapely.get_y(nearest))
        rounded = corner + margin(np.maximum(boxes.scale(), self.envelope.scale), 0.0)
        return np.asarray(np.fmin(rounded, apart + boxes.diagonal() / 2), dtype=np.float64)

    def is_exactly_at(self, boxes: Boxes, distance: float) -> Mask:
        """Mark boxes of one point whose distance to the shape is exactly this, however computed.

        At 0 that is a vertex. Elsewhere, and to points alone, ``sqrt(dx * dx + dy * dy)`` is certain where one of the
        differences is 0, and where nothing is rounded before the root, which is rounded correctly everywhere.
        """
        found: Mask = (boxes.xmin == boxes.xmax) & (boxes.ymin == boxes.ymax)
        places = np.flatnonzero(found)
        x, y = boxes.xmin[places], boxes.ymin[places]
        if distance == 0:
            corners = shapely.get_coordinates(self.geometry)
            found[places] = np.isin(x + 1j * y, corners[:, 0] + 1j * corners[:, 1])
            return found
        dx, dy = np.abs(x - self.envelope.xmin), np.abs(y - self.envelope.ymin)
        if self.geometry.geom_type != "Point" or not LEAST <= distance <= LARGEST:
            return np.zeros(len(boxes), dtype=bool)
        same = np.minimum(dx, dy) == 0
        same &= np.maximum(dx, dy) == distance
        doubtful = np.flatnonzero(~same & (np.abs(np.hypot(dx, dy) - distance) <= margin(distance, distance)))
        steps, of_step = np.unique(np.stack([dx[doubtful], dy[doubtful]]), axis=1, return_inverse=True)
        exact = np.array([_is_root(distance, *step) for step in steps.T.tolist()], dtype=bool)
        same[doubtful] = exact[of_step.ravel()]
        found[places] = same
        return found

    def _surrounds(self, boxes: Boxes, exactly: Callable[[Boxes], Mask]) -> Mask:
        raster = self._raster_for(boxes)
        if raster is None:
            return exactly(boxes)
        loose = boxes.loosened()
        counts = raster.counts(loose)
        possible = (counts.outside == 0) & loose.inside(self.envelope)
        sure = possible & (counts.boundary == 0)
        return _settle(sure, possible & ~sure, boxes, exactly)

    def _intersects(self, boxes: Boxes) -> Mask:
        with self._lock:
            return np.asarray(shapely.intersects(self.geometry, boxes.polygons()), dtype=bool)

    def _covers(self, boxes: Boxes) -> Mask:
        with self._lock:
            return np.asarray(shapely.covers(self.geometry, boxes.polygons()), dtype=bool)

    def _contains_properly(self, boxes: Boxes) -> Mask:
        with self._lock:
            return np.asarray(shapely.contains_properly(self.geometry, boxes.polygons()), dtype=bool)

    def _raster_for(self, boxes: Boxes) -> Raster | None:
        if not self.polygonal:
            return None
        if not self._drawn and len(boxes) < _RASTER_BOXES + self.vertices // 4:
            return None  # to draw it costs as much as so many exact tests
        with self._lock:
            if not self._drawn:
                self._raster, self._drawn = Raster.of(self.geometry, self.envelope), True
            return self._raster


def _is_root(distance: float, dx: float, dy: float) -> bool:
    """True for the root of the sum of two squares, of which nothing is rounded but the root.

    >>> _is_root(5.0, 3.0, 4.0), _is_root(13**0.5, 2.0, 3.0), _is_root(0.5, 0.3, 0.4)
    (True, True, False)
    """
    across, along = Fraction(dx) ** 2, Fraction(dy) ** 2
    exact = all(Fraction(float(square)) == square for square in (across, along, across + along))
    return exact and math.sqrt(across + along) == distance


def _settle(answers: Mask, open_ones: Mask, boxes: Boxes, exactly: Callable[[Boxes], Mask]) -> Mask:
    """Decide the open answers by the exact test."""
    places = np.flatnonzero(open_ones)
    if len(places):
        answers[places] = exactly(boxes.take(places))
    return answers


def _envelope(geometry: BaseGeometry) -> Envelope:
    """The box of all coordinates: a hole of an invalid polygon may lie outside its shell."""
    xy = shapely.get_coordinates(geometry)
    return Envelope(*map(float, (*xy.min(axis=0), *xy.max(axis=0))))


def _is_box(geometry: BaseGeometry, envelope: Envelope) -> bool:
    if geometry.geom_type != "Polygon" or len(geometry.interiors) or shapely.count_coordinates(geometry) != 5:
        return False
    xy = shapely.get_coordinates(geometry)
    on_x = (xy[:, 0] == envelope.xmin) | (xy[:, 0] == envelope.xmax)
    on_y = (xy[:, 1] == envelope.ymin) | (xy[:, 1] == envelope.ymax)
    return bool(on_x.all() and on_y.all()) and len({tuple(row) for row in xy.tolist()}) == 4


def _prepared(wkb: bytes) -> Shape | None:
    geometry = shapely.from_wkb(wkb)
    if geometry.is_empty or not (np.abs(shapely.get_coordinates(geometry)) <= LARGEST).all():
        return None
    if lacks_coordinates(np.array([geometry])).any():
        return None
    return Shape(geometry)


_guard = threading.Lock()
_recent: OrderedDict[bytes, Shape | None] = OrderedDict()
