"""A query's constant geometry, prepared once to be tested against many boxes.

Tests use the geometry itself, including holes, not its envelope. All results are conservative: boxes are grown by 1e-9
of their scale, and distances are compared with a margin of several rounding errors.

*The raster* decides most boxes of a large number without the polygon's vertices. The envelope is divided into N x N
cells. A cell is *boundary* if an edge is near it, else *inside* or *outside* by the parity of the edges crossed from
the left (exact for valid polygons with holes and parts). A summed-area table gives the counts for any range of cells by
four look-ups; only boxes that touch boundary cells, without another cell that decides, need the exact test.

>>> disc = shapely.Point(0, 0).buffer(10, quad_segs=90)
>>> raster = Raster.of(disc, Envelope(*disc.bounds))
>>> sorts = raster.counts(Boxes.of([(-1, -1, 1, 1), (9, 9, 9.5, 9.5), (9.99, 0, 10, 0.1)]))
>>> [bool(n > 0) for n in sorts.inside], [bool(n > 0) for n in sorts.boundary]
([True, False, False], [False, False, True])
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.geometry import LARGEST, LEAST, Boxes, Envelope, Floats, Mask, lacks_coordinates

Integers = NDArray[np.int64]

_MOST_CELLS = 2_000_000
_BOUNDARY = 32  # two counts share one integer: inside cells below this bit, boundary cells above


class CellCounts(NamedTuple):
    """The numbers of cells of each sort that each box touches."""

    inside: Integers
    boundary: Integers
    outside: Integers


class Raster:
    """The cells of one valid polygon or multipolygon."""

    def __init__(self, geometry: BaseGeometry, envelope: Envelope, size: int = 256):
        width, height = envelope.xmax - envelope.xmin, envelope.ymax - envelope.ymin
        self.size = size
        self.slack = _slack(envelope, size)
        self._origin = (envelope.xmin, envelope.ymin)
        self._per_unit = (size / width, size / height)
        edges = self._edges(geometry)
        boundary = _touched_cells(edges, size, self.slack)
        inside = _parity(edges, size) & ~boundary
        sums = np.zeros((size + 1, size + 1), dtype=np.int64)
        packed = inside.astype(np.int64) + (boundary.astype(np.int64) << _BOUNDARY)
        np.cumsum(np.cumsum(packed, axis=0), axis=1, out=sums[1:, 1:])
        self._sums = sums.ravel()

    @classmethod
    def of(cls, geometry: BaseGeometry, envelope: Envelope) -> Raster | None:
        """Create a raster of suitable size; None if rounding errors or too long boundaries prevent it."""
        xy = shapely.get_coordinates(geometry)
        size = int(min(512, max(128, 2 ** math.ceil(math.log2(4 * math.sqrt(len(xy)))))))
        extent = (envelope.xmax - envelope.xmin, envelope.ymax - envelope.ymin)
        if min(extent) <= 0 or not _slack(envelope, size) < 0.1:
            return None
        crossed = float((np.abs(np.diff(xy, axis=0)) / extent).sum())  # the total length of edges, in sides of the grid
        while size > 64 and crossed * size + len(xy) > _MOST_CELLS:
            size //= 2
        return cls(geometry, envelope, size) if crossed * size + len(xy) <= _MOST_CELLS else None

    def counts(self, boxes: Boxes) -> CellCounts:
        """Count the cells of each sort that each box touches; parts outside of the envelope do not count."""
        stride = self.size + 1
        west, east = self._cells(boxes.xmin, 0, -1), self._cells(boxes.xmax, 0, 1) + 1
        south, north = self._cells(boxes.ymin, 1, -1), self._cells(boxes.ymax, 1, 1) + 1
        low, high = south * stride, north * stride
        packed = self._sums[high + east] - self._sums[low + east]
        packed -= self._sums[high + west] - self._sums[low + west]
        inside, boundary = packed & ((1 << _BOUNDARY) - 1), packed >> _BOUNDARY
        return CellCounts(inside, boundary, (east - west) * (north - south) - inside - boundary)

    def _cells(self, coordinates: Floats, axis: int, side: int) -> Integers:
        scaled = (coordinates - self._origin[axis]) * self._per_unit[axis]
        scaled += side * self.slack
        np.clip(scaled, 0, self.size - 1, out=scaled)  # not negative, so that truncation is floor
        return scaled.astype(np.int64)

    def _edges(self, geometry: BaseGeometry) -> Floats:
        """Return the edges as rows of u0, v0, u1, v1, in cells."""
        rings = shapely.get_rings(shapely.get_parts(geometry))
        xy, ring = shapely.get_coordinates(rings, return_index=True)
        uv = (xy - self._origin) * self._per_unit
        same = ring[1:] == ring[:-1]
        return np.hstack([uv[:-1][same], uv[1:][same]])


def _slack(envelope: Envelope, size: int) -> float:
    """Return an upper bound of the rounding error of a coordinate, in cells."""
    extent = min(envelope.xmax - envelope.xmin, envelope.ymax - envelope.ymin)
    return 1e-6 + 8 * size * 2.0**-52 * envelope.scale / extent


def _touched_cells(edges: Floats, size: int, slack: float) -> NDArray[np.bool_]:
    """Mark cells, as [row, column], that an edge touches or passes within the slack."""
    left_to_right = edges[:, 0] <= edges[:, 2]
    u0, v0, u1, v1 = np.where(left_to_right[:, None], edges, edges[:, [2, 3, 0, 1]]).T
    first = _cell(u0 - slack, size)
    edge, column = _ranges(first, _cell(u1 + slack, size))
    u0, v0, u1, v1 = u0[edge], v0[edge], u1[edge], v1[edge]
    steep = u1 - u0 < 1e-3  # too steep for a division: use the whole edge in each column
    run = np.where(steep, 1.0, u1 - u0)
    at_west = v0 + (np.clip(column - slack, u0, u1) - u0) / run * (v1 - v0)
    at_east = v0 + (np.clip(column + 1 + slack, u0, u1) - u0) / run * (v1 - v0)
    low = np.where(steep, np.minimum(v0, v1), np.minimum(at_west, at_east))
    high = np.where(steep, np.maximum(v0, v1), np.maximum(at_west, at_east))
    piece, row = _ranges(_cell(low - slack, size), _cell(high + slack, size))
    touched = np.zeros(size * size, dtype=bool)
    touched[row * size + column[piece]] = True
    return touched.reshape(size, size)


def _parity(edges: Floats, size: int) -> NDArray[np.bool_]:
    """Mark cells, as [row, column], with an odd number of edges to the left of their centre."""
    u0, v0, u1, v1 = edges.T
    below0, below1 = np.ceil(v0 - 0.5), np.ceil(v1 - 0.5)  # the number of rows with a centre below the end
    first = np.maximum(np.minimum(below0, below1), 0).astype(np.int64)
    last = np.minimum(np.maximum(below0, below1), size).astype(np.int64) - 1
    edge, row = _ranges(first, last)
    rise = v1[edge] - v0[edge]
    crossing = u0[edge] + (row + 0.5 - v0[edge]) / rise * (u1[edge] - u0[edge])
    column = np.clip(np.floor(crossing - 0.5) + 1, 0, size).astype(np.int64)
    flips = np.bincount(row * (size + 1) + column, minlength=size * (size + 1)).reshape(size, size + 1)
    return (np.cumsum(flips[:, :size], axis=1) & 1).astype(bool)


def _cell(scaled: Floats, size: int) -> Integers:
    return np.clip(np.floor(scaled), 0, size - 1).astype(np.int64)


def _ranges(first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """Return the whole numbers from first to last of every pair, with the pair's position.

    >>> [list(map(int, part)) for part in _ranges(np.array([3, 0]), np.array([4, 0]))]
    [[0, 0, 1], [3, 4, 0]]
    """
    lengths = np.maximum(last - first + 1, 0)
    owner = np.repeat(np.arange(len(first)), lengths)
    starts = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - starts[owner] + first[owner]


ROUNDING = 1e-7
"""How far a centroid may be outside of its box, relative to the largest coordinate: 2 m for degrees."""
_STEPS = 64 * 2.0**-53
_RASTER_BOXES = 500
_REMEMBERED = 32


def margin(scale: Any, distance: float) -> Any:
    """Return an upper bound of the rounding error of a planar distance.

    It is 16 units in the last place of the largest number, plus underflow.
    """
    return 16 * 2.0**-52 * np.maximum(scale, abs(distance)) + LEAST


def rounding_of(geometries: NDArray[np.object_]) -> Floats:
    """Return upper bounds of rounding errors of centroids of valid geometries, in coordinate units.

    JTS and GEOS sum the signed areas of triangles from one corner to every edge, times the sums of their corners; for
    geometries without area they use the lengths of lines, and without lines the points. The centroid of a valid
    geometry lies in its convex hull, and so in its box; but if the areas nearly cancel, as in a sliver, rounding may
    move it out of the box.

    *The bound.* For n edges the error of the areas is at most about n units in the last place of the squared diagonal
    D, and the error of their sum n units of the length L times D; the corners' sums have the magnitude of the
    coordinates. The result is divided by the area.

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
    """Mark valid geometries with a centroid in their box, or within :data:`ROUNDING` of it."""
    return np.asarray(rounding_of(geometries) <= ROUNDING * _scale(geometries), dtype=bool)


def _scale(geometries: NDArray[np.object_]) -> Floats:
    return np.asarray(np.abs(shapely.bounds(geometries)).max(axis=1), dtype=np.float64)


class PreparedCentroid(NamedTuple):
    """A centroid, and an upper bound of its rounding error."""

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
        self._lock = threading.Lock()  # GEOS builds prepared geometries lazily
        self._raster: Raster | None = None
        self._drawn = False
        if self.valid:
            shapely.prepare(geometry)

    @staticmethod
    def of(value: Any) -> Shape | None:
        """Return the shape of a geometry or of its WKB, or None; recent shapes are cached."""
        geometry = shapely.from_wkb(value) if isinstance(value, bytes) else value
        if not isinstance(geometry, BaseGeometry):
            return None
        key = shapely.to_wkb(geometry, output_dimension=2)
        with _guard:
            if key in _recent:
                _recent.move_to_end(key)
                return _recent[key]
        found = _parse_shape(key)
        with _guard:
            _recent[key] = found
            while len(_recent) > _REMEMBERED:
                _recent.popitem(last=False)
        return found

    @cached_property
    def centre(self) -> PreparedCentroid | None:
        """The centroid; None if it may differ too much from the engine's."""
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
            return self._relate(shapely.intersects, boxes)
        counts = raster.counts(boxes.loosen())
        met = counts.inside > 0
        return _settle(met, ~met & (counts.boundary > 0), boxes, partial(self._relate, shapely.intersects))

    def covers(self, boxes: Boxes) -> Mask:
        """Mark boxes that lie in the (valid, polygonal) shape, boundary included."""
        if self.is_box:
            return boxes.loosen().inside(self.envelope)
        return self._surrounds(boxes, shapely.covers)

    def holds_inside(self, boxes: Boxes) -> Mask:
        """Mark boxes that lie in the interior of the (valid, polygonal) shape."""
        return self._surrounds(boxes, shapely.contains_properly)

    def comes_within(self, boxes: Boxes, distance: float) -> Mask:
        """Mark boxes within a distance of the shape, or of its envelope if it is invalid."""
        reach = distance + margin(np.maximum(boxes.scale(), self.envelope.scale), distance)
        if distance < 0:
            return np.zeros(len(boxes), dtype=bool)
        if not self.valid or self.geometry.geom_type == "Point":
            return np.asarray(boxes.nearest(self.envelope) <= reach)
        with self._lock:
            return np.asarray(shapely.dwithin(self.geometry, boxes.polygons(), reach), dtype=bool)

    def farthest(self, boxes: Boxes) -> Floats:
        """Return an upper bound of the distance from the shape to any point of each box.

        The distance to the shape is at most that to any point of the shape, and the latter is largest at a corner of
        the box; the point of the shape nearest to the box's centre is used. The distance to the shape is also at most
        that of the centre plus half a diagonal. The smaller bound is returned.
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

    def has_vertex_at(self, boxes: Boxes) -> Mask:
        """Mark boxes that are one point and a vertex of the shape."""
        found: Mask = (boxes.xmin == boxes.xmax) & (boxes.ymin == boxes.ymax)
        places, corners = np.flatnonzero(found), shapely.get_coordinates(self.geometry)
        found[places] = np.isin(boxes.xmin[places] + 1j * boxes.ymin[places], corners[:, 0] + 1j * corners[:, 1])
        return found

    def _surrounds(self, boxes: Boxes, relation: Callable[..., Any]) -> Mask:
        exactly: Callable[[Boxes], Mask] = partial(self._relate, relation)
        raster = self._raster_for(boxes)
        if raster is None:
            return exactly(boxes)
        loose = boxes.loosen()
        counts = raster.counts(loose)
        possible = (counts.outside == 0) & loose.inside(self.envelope)
        sure = possible & (counts.boundary == 0)
        return _settle(sure, possible & ~sure, boxes, exactly)

    def _relate(self, relation: Callable[..., Any], boxes: Boxes) -> Mask:
        """Evaluate a relation of shapely between the shape and each box."""
        with self._lock:
            return np.asarray(relation(self.geometry, boxes.polygons()), dtype=bool)

    def _raster_for(self, boxes: Boxes) -> Raster | None:
        if not self.polygonal:
            return None
        if not self._drawn and len(boxes) < _RASTER_BOXES + self.vertices // 4:
            return None  # exact tests cost less than the raster
        with self._lock:
            if not self._drawn:
                self._raster, self._drawn = Raster.of(self.geometry, self.envelope), True
            return self._raster


def _settle(answers: Mask, open_ones: Mask, boxes: Boxes, exactly: Callable[[Boxes], Mask]) -> Mask:
    """Decide the undecided boxes by the exact test."""
    places = np.flatnonzero(open_ones)
    if len(places):
        answers[places] = exactly(boxes.take(places))
    return answers


def _envelope(geometry: BaseGeometry) -> Envelope:
    """Return the box of all coordinates: a hole of an invalid polygon may lie outside its shell."""
    xy = shapely.get_coordinates(geometry)
    return Envelope(*map(float, (*xy.min(axis=0), *xy.max(axis=0))))


def _is_box(geometry: BaseGeometry, envelope: Envelope) -> bool:
    if geometry.geom_type != "Polygon" or len(geometry.interiors) or shapely.count_coordinates(geometry) != 5:
        return False
    xy = shapely.get_coordinates(geometry)
    on_x = (xy[:, 0] == envelope.xmin) | (xy[:, 0] == envelope.xmax)
    on_y = (xy[:, 1] == envelope.ymin) | (xy[:, 1] == envelope.ymax)
    return bool(on_x.all() and on_y.all()) and len({tuple(row) for row in xy.tolist()}) == 4


def _parse_shape(wkb: bytes) -> Shape | None:
    geometry = shapely.from_wkb(wkb)
    if geometry.is_empty or not (np.abs(shapely.get_coordinates(geometry)) <= LARGEST).all():
        return None
    if lacks_coordinates(np.array([geometry])).any():
        return None
    return Shape(geometry)


_guard = threading.Lock()
_recent: OrderedDict[bytes, Shape | None] = OrderedDict()
