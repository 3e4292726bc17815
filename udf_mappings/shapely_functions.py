"""``ST_`` functions of Apache Sedona as plain Python functions over WKB, for sessions without its jar.

Names, argument order (x before y) and meaning are Sedona's (https://sedona.apache.org, Spark SQL reference); GEOS takes
the place of JTS. A geometry is WKB in a binary column, or one of Spark's own, since 4.1; every function is NULL for a
NULL argument. A session registers them by the table :data:`FUNCTIONS`, in one of two forms of the same body::

    for entry in FUNCTIONS.values():
        spark.udf.register(entry.name, entry.function, entry.returns)  # row by row
        spark.udf.register(entry.name, pandas_udf(entry.vectorised, entry.returns))  # a pandas Series an argument

Bodies are written for NumPy arrays, since shapely's functions take arrays and single values alike; the decorator
makes both forms of them. In a Series, constants repeat: each distinct WKB is parsed once; and NaN stands for NULL, so
the second form gives NULL for NaN.

>>> FUNCTIONS["ST_AsText"].function(st_point(1, 2.5))
'POINT (1 2.5)'
>>> st_contains(st_geomfromtext("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"), st_point(1, 1)), st_x(None)
(True, None)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray

from geoskip.registry.fingerprint import state_version

__all__ = ["FUNCTIONS", "ShapelyFunction", "of_shapely"]

EARTH_RADIUS = 6371008.0
"""Metres; Sedona's default for ST_DistanceSphere."""

_VERSION = f"1 shapely {shapely.__version__} geos {shapely.geos_version_string} pyproj {pyproj.__version__}"
_SPARK_TYPES = {"geometry": "binary", "text": "string", "number": "double", "flag": "boolean", "count": "int"}
Body = Callable[..., Any]
Array = NDArray[Any]


@dataclass(frozen=True)
class ShapelyFunction:
    """One function in both forms; ``returns`` is Spark's name of its type."""

    name: str
    function: Callable[..., Any]
    vectorised: Callable[..., Any]
    returns: str


FUNCTIONS: dict[str, ShapelyFunction] = {}
"""All functions by their SQL name."""


def of_shapely(
    name: str, takes: str, returns: str, *, optional: int = 0, table: dict[str, ShapelyFunction] = FUNCTIONS
) -> Callable[[Body], Callable[..., Any]]:
    """Make both forms of a body, and register them.

    Parameters
    ----------
    name, takes, returns
        The SQL name, and the kinds of the arguments and of the result.
    optional
        The number of last arguments that may be left out.
    table
        The table that gets the function.
    """
    kinds = tuple(takes.split())

    def make(body: Body) -> Callable[..., Any]:
        @functools.wraps(body)
        def row(*arguments: Any) -> Any:
            if not len(kinds) - optional <= len(arguments) <= len(kinds):
                raise TypeError(f"{name} takes {len(kinds)} arguments ({takes}), got {len(arguments)}")
            if any(value is None for value in arguments):
                return None
            values = [_READ[kind](value) for kind, value in zip(kinds, arguments, strict=False)]
            with np.errstate(all="ignore"):  # NaN and infinity are answers here
                return _WRITE[returns](body(*values))

        @functools.wraps(body)
        def vectorised(*series: Any) -> Any:
            import pandas  # not needed by the other form

            columns = [np.asarray(one["wkb"] if hasattr(one, "columns") else one, dtype=object) for one in series]
            present = np.ones(len(columns[0]), dtype=bool)
            for column in columns:
                present &= ~pandas.isna(column)
            out = np.full(len(present), None, dtype=object)
            if present.any():
                values = [_read_all(kind, column[present]) for kind, column in zip(kinds, columns, strict=False)]
                with np.errstate(all="ignore"):
                    out[present] = _write_all(returns, np.asarray(body(*values)))
            return pandas.Series(out, dtype=object)  # else pandas 3 makes NaN of None among texts

        for form in (row, vectorised):
            form.__dict__.pop("__wrapped__", None)  # the arguments of the two are not the body's
            state_version(form, _VERSION)
        row.vectorised = vectorised  # type: ignore[attr-defined]  # where workers find it: it is pickled by its name
        vectorised.__qualname__ += ".vectorised"
        table[name] = ShapelyFunction(name, row, vectorised, _SPARK_TYPES[returns])
        return row

    return make


def _geometry(value: Any) -> Any:
    """Convert WKB, or PySpark's values of Spark's own geometries, to shapely."""
    if isinstance(value, bytes | bytearray | memoryview):
        return shapely.from_wkb(bytes(value))
    return shapely.from_wkb(bytes(value.getBytes())) if hasattr(value, "getBytes") else value


def _read_all(kind: str, column: Array) -> Array:
    """The values of a column, each distinct WKB or text read once."""
    read = _READ[kind]
    if kind == "geometry" and len(column) and hasattr(column[0], "getBytes"):
        column = np.array([bytes(value.getBytes()) for value in column], dtype=object)
    if kind == "geometry" and len(set(column[:16])) > 1 and len(column) > 16:
        return np.asarray(shapely.from_wkb(column), dtype=object)
    if kind in _ARRAYS:
        return column.astype(_ARRAYS[kind])
    known: dict[Any, Any] = {}
    out = np.empty(len(column), dtype=object)
    for place, value in enumerate(column):
        if value not in known:
            known[value] = read(value)
        out[place] = known[value]
    return out


def _write_all(kind: str, answers: Array) -> Array:
    if kind == "geometry":
        return np.asarray(shapely.to_wkb(answers, include_srid=True), dtype=object)
    write = _WRITE[kind]
    return np.array([*map(write, answers), None], dtype=object)[:-1]


def _to_wkb(geometry: Any) -> bytes | None:
    return None if geometry is None else bytes(shapely.to_wkb(geometry, include_srid=True))


def _to_number(value: Any) -> float | None:
    return None if value is None else float(value)


_READ: dict[str, Callable[[Any], Any]] = {
    "geometry": _geometry, "text": str, "number": float, "flag": bool, "count": int,
}  # fmt: skip
_ARRAYS: dict[str, type] = {"number": float, "flag": bool, "count": int}
_WRITE: dict[str, Callable[[Any], Any]] = {
    "geometry": _to_wkb, "text": str, "number": _to_number, "flag": bool, "count": int,
}  # fmt: skip


# ---- constructors and what undoes them


@of_shapely("ST_Point", "number number", "geometry")
def st_point(x: Any, y: Any) -> Any:
    """The point at (x, y): longitude first."""
    return shapely.points(x, y)


@of_shapely("ST_GeomFromText", "text count", "geometry", optional=1)
def st_geomfromtext(text: Any, srid: Any = 0) -> Any:
    """A geometry from its WKT."""
    return shapely.set_srid(shapely.from_wkt(text), srid)


@of_shapely("ST_GeomFromWKT", "text count", "geometry", optional=1)
def st_geomfromwkt(text: Any, srid: Any = 0) -> Any:
    """A geometry from its WKT."""
    return shapely.set_srid(shapely.from_wkt(text), srid)


@of_shapely("ST_GeomFromWKB", "geometry", "geometry")
def st_geomfromwkb(geometry: Any) -> Any:
    """A geometry from its WKB or EWKB."""
    return geometry


@of_shapely("ST_GeomFromGeoJSON", "text", "geometry")
def st_geomfromgeojson(text: Any) -> Any:
    """A geometry from its GeoJSON."""
    return shapely.from_geojson(text)


@of_shapely("ST_PolygonFromEnvelope", "number number number number", "geometry")
def st_polygonfromenvelope(xmin: Any, ymin: Any, xmax: Any, ymax: Any) -> Any:
    """Rectangle of two corners.

    Parameters
    ----------
    xmin, ymin, xmax, ymax
        The corners, x before y.
    """
    return shapely.box(xmin, ymin, xmax, ymax)


@of_shapely("ST_AsText", "geometry", "text")
def st_astext(geometry: Any) -> Any:
    """WKT, all digits."""
    return shapely.to_wkt(geometry, rounding_precision=-1)


@of_shapely("ST_AsBinary", "geometry", "geometry")
def st_asbinary(geometry: Any) -> Any:
    """WKB, without the SRID."""
    return shapely.set_srid(geometry, 0)


# ---- predicates


@of_shapely("ST_Contains", "geometry geometry", "flag")
def st_contains(a: Any, b: Any) -> Any:
    """No point of b outside a, and an interior point in common."""
    return shapely.contains(a, b)


@of_shapely("ST_Within", "geometry geometry", "flag")
def st_within(a: Any, b: Any) -> Any:
    """True if a is within b."""
    return shapely.within(a, b)


@of_shapely("ST_Covers", "geometry geometry", "flag")
def st_covers(a: Any, b: Any) -> Any:
    """No point of b outside a."""
    return shapely.covers(a, b)


@of_shapely("ST_CoveredBy", "geometry geometry", "flag")
def st_coveredby(a: Any, b: Any) -> Any:
    """True if b covers a."""
    return shapely.covered_by(a, b)


@of_shapely("ST_Intersects", "geometry geometry", "flag")
def st_intersects(a: Any, b: Any) -> Any:
    """A point in common."""
    return shapely.intersects(a, b)


@of_shapely("ST_Disjoint", "geometry geometry", "flag")
def st_disjoint(a: Any, b: Any) -> Any:
    """No point in common."""
    return shapely.disjoint(a, b)


@of_shapely("ST_Touches", "geometry geometry", "flag")
def st_touches(a: Any, b: Any) -> Any:
    """Points in common, none of them interior to both."""
    return shapely.touches(a, b)


@of_shapely("ST_Crosses", "geometry geometry", "flag")
def st_crosses(a: Any, b: Any) -> Any:
    """Interiors meet in a lower dimension, or only partly."""
    return shapely.crosses(a, b)


@of_shapely("ST_Overlaps", "geometry geometry", "flag")
def st_overlaps(a: Any, b: Any) -> Any:
    """Of one dimension, interiors meet, neither contains the other."""
    return shapely.overlaps(a, b)


@of_shapely("ST_Equals", "geometry geometry", "flag")
def st_equals(a: Any, b: Any) -> Any:
    """The same set of points."""
    return shapely.equals(a, b)


@of_shapely("ST_Relate", "geometry geometry text", "flag")
def st_relate(a: Any, b: Any, pattern: Any) -> Any:
    """True if the DE-9IM matrix matches a pattern."""
    return np.vectorize(shapely.relate_pattern, otypes=[bool])(a, b, pattern)


@of_shapely("ST_DWithin", "geometry geometry number flag", "flag", optional=1)
def st_dwithin(a: Any, b: Any, distance: Any, use_spheroid: Any = False) -> Any:
    """True within a distance.

    Parameters
    ----------
    a, b
        The geometries.
    distance
        In units of the coordinates; in metres with ``use_spheroid``.
    use_spheroid
        Measure on the spheroid, between centroids.
    """
    planar = shapely.distance(a, b) <= distance
    return np.where(use_spheroid, _spheroid(a, b) <= distance, planar) if np.any(use_spheroid) else planar


# ---- measures


@of_shapely("ST_Distance", "geometry geometry", "number")
def st_distance(a: Any, b: Any) -> Any:
    """Planar distance; 0 where one is EMPTY, as in JTS."""
    return np.nan_to_num(shapely.distance(a, b), nan=0.0)


@of_shapely("ST_DistanceSphere", "geometry geometry number", "number", optional=1)
def st_distancesphere(a: Any, b: Any, radius: Any = EARTH_RADIUS) -> Any:
    """Haversine distance of points, or of the centroids of others."""
    lng_a, lat_a, lng_b, lat_b = np.radians([*_place(a), *_place(b)])
    h = np.sin((lat_b - lat_a) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lng_b - lng_a) / 2) ** 2
    return radius * 2 * np.arctan2(np.sqrt(h), np.sqrt(1 - h))  # as in Sedona, NaN for some antipodes


@of_shapely("ST_DistanceSpheroid", "geometry geometry", "number")
def st_distancespheroid(a: Any, b: Any) -> Any:
    """Geodesic distance on WGS84 of points, or of the centroids of others."""
    return _spheroid(a, b)


def _spheroid(a: Any, b: Any) -> Any:
    lng_a, lat_a, lng_b, lat_b = np.broadcast_arrays(*_place(a), *_place(b))
    return np.asarray(pyproj.Geod(ellps="WGS84").inv(lng_a, lat_a, lng_b, lat_b)[2])


def _place(geometry: Any) -> tuple[Any, Any]:
    centre = shapely.centroid(geometry)
    return shapely.get_x(centre), shapely.get_y(centre)


@of_shapely("ST_X", "geometry", "number")
def st_x(geometry: Any) -> Any:
    """A point's x; NULL for anything else."""
    return _coordinate(shapely.get_x(geometry), geometry)


@of_shapely("ST_Y", "geometry", "number")
def st_y(geometry: Any) -> Any:
    """A point's y; NULL for anything else."""
    return _coordinate(shapely.get_y(geometry), geometry)


def _coordinate(value: Any, geometry: Any) -> Any:
    is_point = (shapely.get_type_id(geometry) == 0) & ~shapely.is_empty(geometry)
    answers = np.asarray(value, dtype=object)
    return np.where(is_point, answers, np.full_like(answers, None))[()]


@of_shapely("ST_Area", "geometry", "number")
def st_area(geometry: Any) -> Any:
    """Planar area."""
    return shapely.area(geometry)


@of_shapely("ST_Length", "geometry", "number")
def st_length(geometry: Any) -> Any:
    """Planar length of lines; 0 for points and polygons."""
    return np.where(np.isin(shapely.get_dimensions(geometry), (1,)), shapely.length(geometry), 0.0)[()]


@of_shapely("ST_IsEmpty", "geometry", "flag")
def st_isempty(geometry: Any) -> Any:
    """Has it no point?"""
    return shapely.is_empty(geometry)


@of_shapely("ST_IsValid", "geometry", "flag")
def st_isvalid(geometry: Any) -> Any:
    """True for a geometry that is valid by OGC's rules."""
    return shapely.is_valid(geometry)


# ---- geometries of geometries


@of_shapely("ST_Buffer", "geometry number", "geometry")
def st_buffer(geometry: Any, radius: Any) -> Any:
    """Everything within a radius, round corners of eight segments a quadrant."""
    return shapely.buffer(geometry, radius, quad_segs=8)


@of_shapely("ST_Envelope", "geometry", "geometry")
def st_envelope(geometry: Any) -> Any:
    """The bounding box."""
    return shapely.envelope(geometry)


@of_shapely("ST_ConvexHull", "geometry", "geometry")
def st_convexhull(geometry: Any) -> Any:
    """The convex hull."""
    return shapely.convex_hull(geometry)


@of_shapely("ST_Centroid", "geometry", "geometry")
def st_centroid(geometry: Any) -> Any:
    """The centre of gravity."""
    return shapely.centroid(geometry)


@of_shapely("ST_Boundary", "geometry", "geometry")
def st_boundary(geometry: Any) -> Any:
    """The boundary; NULL for collections, which have none."""
    return shapely.boundary(geometry)


@of_shapely("ST_Union", "geometry geometry", "geometry")
def st_union(a: Any, b: Any) -> Any:
    """Both together."""
    return shapely.union(a, b)


@of_shapely("ST_Intersection", "geometry geometry", "geometry")
def st_intersection(a: Any, b: Any) -> Any:
    """The intersection of both."""
    return shapely.intersection(a, b)


@of_shapely("ST_SetSRID", "geometry count", "geometry")
def st_setsrid(geometry: Any, srid: Any) -> Any:
    """The same geometry with another SRID."""
    return shapely.set_srid(geometry, srid)


@of_shapely("ST_FlipCoordinates", "geometry", "geometry")
def st_flipcoordinates(geometry: Any) -> Any:
    """The geometry with x and y exchanged."""
    return shapely.transform(geometry, lambda xy: xy[:, ::-1])
