"""Further ``ST_`` functions of Apache Sedona over shapely: constructors, extents, coordinate systems.

As in :mod:`udf_mappings.shapely_functions`, and registered with them.

>>> square = st_makeenvelope(0, 0, 2, 1)
>>> st_xmax(square), st_orderingequals(square, square), st_xmin(FUNCTIONS["ST_MakePoint"].function(3, 4))
(2.0, True, 3.0)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyproj
import shapely

from udf_mappings.shapely_functions import ShapelyFunction, of_shapely

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, ShapelyFunction] = {}


@of_shapely("ST_MakePoint", "number number", "geometry", table=FUNCTIONS)
def st_makepoint(x: Any, y: Any) -> Any:
    """The point at (x, y)."""
    return shapely.points(x, y)


@of_shapely("ST_GeometryFromText", "text count", "geometry", optional=1, table=FUNCTIONS)
def st_geometryfromtext(text: Any, srid: Any = 0) -> Any:
    """A geometry from its WKT."""
    return shapely.set_srid(shapely.from_wkt(text), srid)


@of_shapely("ST_MakeEnvelope", "number number number number count", "geometry", optional=1, table=FUNCTIONS)
def st_makeenvelope(xmin: Any, ymin: Any, xmax: Any, ymax: Any, srid: Any = 0) -> Any:
    """Rectangle of two corners.

    Parameters
    ----------
    xmin, ymin, xmax, ymax
        The corners, x before y.
    srid
        The identifier of the spatial reference.
    """
    return shapely.set_srid(shapely.box(xmin, ymin, xmax, ymax), srid)


@of_shapely("ST_OrderingEquals", "geometry geometry", "flag", table=FUNCTIONS)
def st_orderingequals(a: Any, b: Any) -> Any:
    """The same coordinates in the same order."""
    return shapely.equals_exact(a, b, 0.0)


@of_shapely("ST_XMin", "geometry", "number", table=FUNCTIONS)
def st_xmin(geometry: Any) -> Any:
    """The least x; NULL for EMPTY."""
    return _side(geometry, 0)


@of_shapely("ST_YMin", "geometry", "number", table=FUNCTIONS)
def st_ymin(geometry: Any) -> Any:
    """The least y; NULL for EMPTY."""
    return _side(geometry, 1)


@of_shapely("ST_XMax", "geometry", "number", table=FUNCTIONS)
def st_xmax(geometry: Any) -> Any:
    """The greatest x; NULL for EMPTY."""
    return _side(geometry, 2)


@of_shapely("ST_YMax", "geometry", "number", table=FUNCTIONS)
def st_ymax(geometry: Any) -> Any:
    """The greatest y; NULL for EMPTY."""
    return _side(geometry, 3)


def _side(geometry: Any, which: int) -> Any:
    answers = np.asarray(shapely.bounds(geometry))[..., which].astype(object)
    return np.where(shapely.is_empty(geometry), np.full_like(answers, None), answers)[()]


@of_shapely("ST_Transform", "geometry text text", "geometry", table=FUNCTIONS)
def st_transform(geometry: Any, source: Any, target: Any) -> Any:
    """The geometry in another coordinate system, x before y in both: ``EPSG:4326`` is longitude, latitude.

    Each vertex is transformed, and nothing between them. An index over a column does not see through it: index the
    transformed expression, ``GeoBox("ST_Transform(geom, 'EPSG:4326', 'EPSG:3857')")``. Of a constant it is evaluated by
    this very function.
    """
    return np.vectorize(_transformed, otypes=[object])(geometry, source, target)[()]


def _transformed(geometry: Any, source: str, target: str) -> Any:
    change = _transformer(source, target)

    def moved(coordinates: Any) -> Any:
        return np.column_stack(change.transform(coordinates[:, 0], coordinates[:, 1]))

    return shapely.transform(geometry, moved)


@functools.lru_cache(maxsize=64)
def _transformer(source: str, target: str) -> Any:
    return pyproj.Transformer.from_crs(source, target, always_xy=True)
