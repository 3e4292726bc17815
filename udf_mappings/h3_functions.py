"""Cells of Uber's H3 grid as SQL functions over the ``h3`` package, version 4.

Argument orders are the package's own: latitude before longitude, in degrees. A cell is its id as text, 15 lower-case
hexadecimal digits. Every function is NULL for NULL and for what is no cell or no place on the globe, where the package
raises; ids in other spellings (upper case, ``0x``) are no cells here, so that the order of ids is the order of texts.

>>> h3_latlng_to_cell(48.4, 9.99, 5), h3_cell_to_parent("851f8c13fffffff", 3), h3_cell_to_parent("851F8C13FFFFFFF", 3)
('851f8c13fffffff', '831f8cfffffffff', None)
>>> len(h3_grid_disk("851f8c13fffffff", 1)), len(h3_polygon_cover("POLYGON ((9 48, 10 48, 10 49, 9 48))", 5))
(7, 31)
"""

from __future__ import annotations

import math
from typing import Any

import h3
import shapely
from shapely.geometry.base import BaseGeometry

from udf_mappings.library import PlainFunction, offered

__all__ = ["FUNCTIONS", "HIGHEST_LATITUDE", "cover", "is_cell"]

FUNCTIONS: dict[str, PlainFunction] = {}
HIGHEST_LATITUDE = 85.0
"""Beyond it a cell in the plane of longitude and latitude may hold a pole, and is no polygon there."""


def is_cell(cell: Any) -> bool:
    """True for the id of a cell as the package writes it."""
    return isinstance(cell, str) and len(cell) == 15 and cell == cell.lower() and bool(h3.is_valid_cell(cell))


@offered(FUNCTIONS, "string")
def h3_latlng_to_cell(latitude: float | None, longitude: float | None, resolution: int | None) -> str | None:
    """The cell of a place, at a resolution from 0 to 15."""
    if latitude is None or longitude is None or resolution is None or not 0 <= resolution <= 15:
        return None
    if not (-90 <= latitude <= 90 and math.isfinite(longitude)):
        return None
    return str(h3.latlng_to_cell(float(latitude), float(longitude), resolution))


@offered(FUNCTIONS, "string")
def h3_cell_to_parent(cell: str | None, resolution: int | None) -> str | None:
    """The cell's ancestor at a resolution; it need not be the cell of a place within the cell."""
    if cell is None or resolution is None or not is_cell(cell) or not 0 <= resolution <= h3.get_resolution(cell):
        return None
    return str(h3.cell_to_parent(cell, resolution))


@offered(FUNCTIONS, "array<string>")
def h3_grid_disk(cell: str | None, k: int | None) -> list[str] | None:
    """All cells within k steps of a cell, itself included."""
    if cell is None or k is None or k < 0 or not is_cell(cell):
        return None
    return sorted(h3.grid_disk(cell, k))


@offered(FUNCTIONS, "array<string>")
def h3_polygon_cover(wkt: str | None, resolution: int | None) -> list[str] | None:
    """All cells that intersect a polygon of longitudes and latitudes; NULL beyond 85 degrees.

    Not those with their centre in it, as a fill has by default: a fill leaves out cells of places within the polygon.
    """
    if wkt is None or resolution is None or not 0 <= resolution <= 15:
        return None
    return cover(shapely.from_wkt(wkt), resolution)


def cover(shape: BaseGeometry, resolution: int) -> list[str] | None:
    """The cells that overlap a shape's polygons; None where it has none, or reaches too near to a pole.

    The package takes a polygon wider than half of the globe for its complement, so it is given pieces of 60 degrees.
    """
    polygons = [part for part in shapely.get_parts(shape) if part.geom_type == "Polygon" and not part.is_empty]
    if not polygons or not shapely.is_valid(shape):
        return None
    west, south, east, north = shape.bounds
    if max(-south, north) > HIGHEST_LATITUDE or not (abs(west) <= 720 and abs(east) <= 720):
        return None
    found: dict[str, None] = {}
    for column in range(math.floor(west / 60), math.ceil(east / 60)):
        strip = shapely.box(60 * column, -90, 60 * column + 60, 90)
        turns = 360 * math.floor((60 * column + 180) / 360)
        for polygon in polygons:
            for piece in shapely.get_parts(shapely.intersection(polygon, strip)):
                if piece.geom_type == "Polygon" and piece.area > 0:
                    found.update(dict.fromkeys(_overlapping(shapely.transform(piece, _turned(turns)), resolution)))
    return sorted(found)


def _turned(degrees: float) -> Any:
    return lambda xy: xy - (degrees, 0.0)


def _overlapping(polygon: Any, resolution: int) -> list[str]:
    shape = h3.geo_to_h3shape(shapely.geometry.mapping(shapely.force_2d(polygon)))
    return list(h3.h3shape_to_cells_experimental(shape, resolution, contain="overlap"))
