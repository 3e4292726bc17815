"""A raster of a polygon, to decide most of very many boxes without looking at its vertices.

The envelope is cut into N x N cells. A cell is *boundary* where an edge comes near it, else *inside* or *outside* by
the parity of the edges crossed on the way from the left (exact for valid polygons with holes and parts). Sums over all
cells to the lower left (a summed-area table) give the counts for any range of cells by four look-ups; only boxes that
touch boundary cells and nothing decisive are left to the exact test.

>>> import numpy as np
>>> import shapely
>>> disc = shapely.Point(0, 0).buffer(10, quad_segs=90)
>>> raster = Raster.of(disc, Envelope(*disc.bounds))
>>> sorts = raster.counts(Boxes.of([(-1, -1, 1, 1), (9, 9, 9.5, 9.5), (9.99, 0, 10, 0.1)]))
>>> [bool(n > 0) for n in sorts.inside], [bool(n > 0) for n in sorts.boundary]
([True, False, False], [False, False, True])
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.geometry.boxes import Boxes, Envelope, Floats

Integers = NDArray[np.int64]

_MOST_CELLS = 2_000_000
_BOUNDARY = 32  # the counts of two sorts of cells share one integer: inside below this bit, boundary above


class CellCounts(NamedTuple):
    """Numbers of cells of each sort that every box touches."""

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
        boundary = _touched(edges, size, self.slack)
        inside = _parity(edges, size) & ~boundary
        sums = np.zeros((size + 1, size + 1), dtype=np.int64)
        packed = inside.astype(np.int64) + (boundary.astype(np.int64) << _BOUNDARY)
        np.cumsum(np.cumsum(packed, axis=0), axis=1, out=sums[1:, 1:])
        self._sums = sums.ravel()

    @classmethod
    def of(cls, geometry: BaseGeometry, envelope: Envelope) -> Raster | None:
        """A raster as fine as pays, None where rounding or a wild zigzag forbids one."""
        xy = shapely.get_coordinates(geometry)
        size = int(min(512, max(128, 2 ** math.ceil(math.log2(4 * math.sqrt(len(xy)))))))
        extent = (envelope.xmax - envelope.xmin, envelope.ymax - envelope.ymin)
        if min(extent) <= 0 or not _slack(envelope, size) < 0.1:
            return None
        crossed = float((np.abs(np.diff(xy, axis=0)) / extent).sum())  # sides of the grid, all edges together
        while size > 64 and crossed * size + len(xy) > _MOST_CELLS:
            size //= 2
        return cls(geometry, envelope, size) if crossed * size + len(xy) <= _MOST_CELLS else None

    def counts(self, boxes: Boxes) -> CellCounts:
        """The sorts of the cells that each box touches; what lies outside the envelope is not counted."""
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
        """The edges as rows of u0, v0, u1, v1 in cells."""
        rings = shapely.get_rings(shapely.get_parts(geometry))
        xy, ring = shapely.get_coordinates(rings, return_index=True)
        uv = (xy - self._origin) * self._per_unit
        same = ring[1:] == ring[:-1]
        return np.hstack([uv[:-1][same], uv[1:][same]])


def _slack(envelope: Envelope, size: int) -> float:
    """Upper bound of the rounding error of a coordinate, in cells."""
    extent = min(envelope.xmax - envelope.xmin, envelope.ymax - envelope.ymin)
    return 1e-6 + 8 * size * 2.0**-52 * envelope.scale / extent


def _touched(edges: Floats, size: int, slack: float) -> NDArray[np.bool_]:
    """The cells, as [row, column], that an edge touches or passes within the slack."""
    left_to_right = edges[:, 0] <= edges[:, 2]
    u0, v0, u1, v1 = np.where(left_to_right[:, None], edges, edges[:, [2, 3, 0, 1]]).T
    first = _cell(u0 - slack, size)
    edge, column = _ranges(first, _cell(u1 + slack, size))
    u0, v0, u1, v1 = u0[edge], v0[edge], u1[edge], v1[edge]
    steep = u1 - u0 < 1e-3  # too steep to divide by: the whole edge counts for each column
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
    below0, below1 = np.ceil(v0 - 0.5), np.ceil(v1 - 0.5)  # how many rows have their centre below the end
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
    """All whole numbers from first to last of every pair, with the pair's place.

    >>> [list(map(int, part)) for part in _ranges(np.array([3, 0]), np.array([4, 0]))]
    [[0, 0, 1], [3, 4, 0]]
    """
    lengths = np.maximum(last - first + 1, 0)
    owner = np.repeat(np.arange(len(first)), lengths)
    starts = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - starts[owner] + first[owner]
