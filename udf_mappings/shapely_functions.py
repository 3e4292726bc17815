"""``ST_`` functions of Apache Sedona as plain Python functions over WKB, for sessions without its jar.

Names, argument order (x before y) and meaning are those of Sedona (https://sedona.apache.org, Spark SQL reference);
GEOS replaces JTS. A geometry is WKB in a binary column, or a geometry of Spark's own type, since 4.1; every function is
NULL for a NULL argument. A session registers them from the table :data:`FUNCTIONS`, in one of two forms with the same
body::

    for entry in FUNCTIONS.values():
        spark.udf.register(entry.name, entry.function, entry.returns)  # row by row
        spark.udf.register(entry.name, pandas_udf(entry.vectorised, entry.returns))  # a pandas Series an argument

Function bodies are written for NumPy arrays, since shapely's functions take both arrays and single values; both forms
are derived from them. In a Series, each distinct WKB or text is parsed once, and a constant argument becomes a single
value; NaN represents NULL, so the second form returns NULL for NaN.

>>> FUNCTIONS["ST_AsText"].function(st_point(1, 2.5))
'POINT (1 2.5)'
>>> st_contains(st_geomfromtext("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"), st_point(1, 1)), st_x(None)
(True, None)
>>> square = st_makeenvelope(0, 0, 2, 1)
>>> st_xmax(square), st_orderingequals(square, square)
(2.0, True)
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

EARTH_RADIUS = 6371008.0
"""Metres; Sedona's default for ST_DistanceSphere."""

_VERSION = f"2 shapely {shapely.__version__} geos {shapely.geos_version_string} pyproj {pyproj.__version__}"
_SPARK_TYPES = {"geometry": "binary", "text": "string", "number": "double", "flag": "boolean", "count": "int"}
Body = Callable[..., Any]
Array = NDArray[Any]


@dataclass(frozen=True)
class ShapelyFunction:
    """One function in both forms; ``returns`` is Spark's name of its return type."""

    name: str
    function: Callable[..., Any]
    vectorised: Callable[..., Any]
    returns: str

    @property
    def implementations(self) -> tuple[str, str]:
        """The names of both forms, by which the registry recognises them."""
        own = f"{__name__}.{self.name.lower()}"
        return own, f"{own}.vectorised"


FUNCTIONS: dict[str, ShapelyFunction] = {}
"""All functions by their SQL name."""


def _of_shapely(name: str, takes: str, returns: str, optional: int, body: Body) -> Callable[..., Any]:
    """Create both forms of a body, and add them to the table.

    Parameters
    ----------
    name, takes, returns
        The SQL name, and the types of the arguments and of the result.
    optional
        The number of trailing arguments that are optional.
    body
        The function over arrays and single values.

    Returns
    -------
    Callable
        The form for a single row.
    """
    kinds = tuple(takes.split())

    def row(*arguments: Any) -> Any:
        if not len(kinds) - optional <= len(arguments) <= len(kinds):
            raise TypeError(f"{name} takes {len(kinds)} arguments ({takes}), got {len(arguments)}")
        if any(value is None for value in arguments):
            return None
        values = [_READ[kind](value) for kind, value in zip(kinds, arguments, strict=False)]
        with np.errstate(all="ignore"):  # NaN and infinity are valid results here
            return _WRITE[returns](body(*values))

    def vectorised(*series: Any) -> Any:
        import pandas  # the other form does not need it

        columns = [np.asarray(one["wkb"] if hasattr(one, "columns") else one, dtype=object) for one in series]
        present = np.ones(len(columns[0]), dtype=bool)
        for column in columns:
            present &= ~pandas.isna(column)
        out = np.full(len(present), None, dtype=object)
        if present.any():
            values = [_read_all(kind, column[present]) for kind, column in zip(kinds, columns, strict=False)]
            with np.errstate(all="ignore"):
                out[present] = _write_all(returns, np.atleast_1d(body(*values)))  # of constants there is one result
        return pandas.Series(out, dtype=object)  # with other types pandas 3 turns None among texts into NaN

    for form, suffix in ((row, ""), (vectorised, ".vectorised")):  # workers look both forms up by these names
        form.__name__, form.__qualname__ = name.lower(), name.lower() + suffix
        state_version(form, _VERSION)
    row.vectorised = vectorised  # type: ignore[attr-defined]
    FUNCTIONS[name] = ShapelyFunction(name, row, vectorised, _SPARK_TYPES[returns])
    return row


def _geometry(value: Any) -> Any:
    """Convert WKB, or PySpark's values of Spark's geometry type, to shapely geometries."""
    if isinstance(value, bytes | bytearray | memoryview):
        return shapely.from_wkb(bytes(value))
    return shapely.from_wkb(bytes(value.getBytes())) if hasattr(value, "getBytes") else value


def _read_all(kind: str, column: Array) -> Any:
    """The values of a column, or one value if all are equal; each distinct WKB or text is parsed once."""
    read = _READ[kind]
    if kind == "geometry" and hasattr(column[0], "getBytes"):
        column = np.array([bytes(value.getBytes()) for value in column], dtype=object)
    if kind != "number" and all(value == column[0] for value in column):  # numbers are excluded: 0.0 equals -0.0
        return read(column[0])
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


# ---- functions with a body of their own


def _from_text(text: Any, srid: Any = 0) -> Any:
    return shapely.set_srid(shapely.from_wkt(text), srid)


def _envelope(xmin: Any, ymin: Any, xmax: Any, ymax: Any, srid: Any = 0) -> Any:
    return shapely.set_srid(shapely.box(xmin, ymin, xmax, ymax), srid)


def _dwithin(a: Any, b: Any, distance: Any, use_spheroid: Any = False) -> Any:
    planar = shapely.distance(a, b) <= distance
    return np.where(use_spheroid, _spheroid(a, b) <= distance, planar) if np.any(use_spheroid) else planar


def _sphere(a: Any, b: Any, radius: Any = EARTH_RADIUS) -> Any:
    lng_a, lat_a, lng_b, lat_b = map(np.radians, (*_place(a), *_place(b)))
    h = np.sin((lat_b - lat_a) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lng_b - lng_a) / 2) ** 2
    h = np.clip(h, 0, 1)  # by rounding it is beyond for some antipodes or poles, where Sedona returns NaN
    return radius * 2 * np.arctan2(np.sqrt(h), np.sqrt(1 - h))


def _spheroid(a: Any, b: Any) -> Any:
    lng_a, lat_a, lng_b, lat_b = np.broadcast_arrays(*_place(a), *_place(b))
    return np.asarray(pyproj.Geod(ellps="WGS84").inv(lng_a, lat_a, lng_b, lat_b)[2])


def _place(geometry: Any) -> tuple[Any, Any]:
    centre = shapely.centroid(geometry)
    return shapely.get_x(centre), shapely.get_y(centre)


def _coordinate(get: Callable[[Any], Any]) -> Body:
    def of_a_point(geometry: Any) -> Any:
        is_point = (shapely.get_type_id(geometry) == 0) & ~shapely.is_empty(geometry)
        return _or_null(is_point, get(_or_null(is_point, geometry)))  # GEOS 3.13 raises for POINT EMPTY

    return of_a_point


def _side(which: int) -> Body:
    return lambda geometry: _or_null(~shapely.is_empty(geometry), shapely.bounds(geometry)[..., which])


def _or_null(known: Any, values: Any) -> Any:
    answers = np.asarray(values, dtype=object)
    return np.where(known, answers, np.full_like(answers, None))[()]


def _length(geometry: Any) -> Any:
    return np.where(np.isin(shapely.get_dimensions(geometry), (1,)), shapely.length(geometry), 0.0)[()]


def _transform(geometry: Any, source: Any, target: Any) -> Any:
    """Transform a geometry to another CRS, x before y in both: ``EPSG:4326`` is longitude, latitude.

    Only vertices are transformed. An index over a column does not support the transformed geometry: index the
    transformed expression, ``GeoBox("ST_Transform(geom, 'EPSG:4326', 'EPSG:3857')")``. For a constant, this function
    itself is evaluated.
    """
    return np.vectorize(_transform_geometry, otypes=[object])(geometry, source, target)[()]


def _transform_geometry(geometry: Any, source: str, target: str) -> Any:
    change = _transformer(source, target)

    def move(coordinates: Any) -> Any:
        return np.column_stack(change.transform(coordinates[:, 0], coordinates[:, 1]))

    return shapely.transform(geometry, move)


@functools.lru_cache(maxsize=64)
def _transformer(source: str, target: str) -> Any:
    return pyproj.Transformer.from_crs(source, target, always_xy=True)


# ---- the table

_TWO = "geometry geometry"
_CORNERS = "number number number number"
_REGULAR: tuple[tuple[str, str, str, Body], ...] = (
    # SQL name, arguments, result, and the body
    ("ST_Point", "number number", "geometry", shapely.points),  # longitude first
    ("ST_MakePoint", "number number", "geometry", shapely.points),
    ("ST_GeomFromWKB", "geometry", "geometry", lambda geometry: geometry),  # or EWKB
    ("ST_GeomFromGeoJSON", "text", "geometry", shapely.from_geojson),
    ("ST_PolygonFromEnvelope", _CORNERS, "geometry", _envelope),
    ("ST_AsText", "geometry", "text", lambda geometry: shapely.to_wkt(geometry, rounding_precision=-1)),
    ("ST_AsBinary", "geometry", "geometry", lambda geometry: shapely.set_srid(geometry, 0)),
    ("ST_Contains", _TWO, "flag", shapely.contains),
    ("ST_Within", _TWO, "flag", shapely.within),
    ("ST_Covers", _TWO, "flag", shapely.covers),
    ("ST_CoveredBy", _TWO, "flag", shapely.covered_by),
    ("ST_Intersects", _TWO, "flag", shapely.intersects),
    ("ST_Disjoint", _TWO, "flag", shapely.disjoint),
    ("ST_Touches", _TWO, "flag", shapely.touches),
    ("ST_Crosses", _TWO, "flag", shapely.crosses),
    ("ST_Overlaps", _TWO, "flag", shapely.overlaps),
    ("ST_Equals", _TWO, "flag", shapely.equals),
    ("ST_OrderingEquals", _TWO, "flag", lambda a, b: shapely.equals_exact(a, b, 0.0)),
    ("ST_Relate", f"{_TWO} text", "flag", np.vectorize(shapely.relate_pattern, otypes=[bool])),  # DE-9IM
    ("ST_Distance", _TWO, "number", lambda a, b: np.nan_to_num(shapely.distance(a, b), nan=0.0)),  # EMPTY: as in JTS
    ("ST_DistanceSpheroid", _TWO, "number", _spheroid),  # on WGS84, of centroids
    ("ST_X", "geometry", "number", _coordinate(shapely.get_x)),  # NULL for anything but a point
    ("ST_Y", "geometry", "number", _coordinate(shapely.get_y)),
    ("ST_XMin", "geometry", "number", _side(0)),  # NULL for EMPTY
    ("ST_YMin", "geometry", "number", _side(1)),
    ("ST_XMax", "geometry", "number", _side(2)),
    ("ST_YMax", "geometry", "number", _side(3)),
    ("ST_Area", "geometry", "number", shapely.area),
    ("ST_Length", "geometry", "number", _length),  # 0 for points and polygons
    ("ST_IsEmpty", "geometry", "flag", shapely.is_empty),
    ("ST_IsValid", "geometry", "flag", shapely.is_valid),  # by OGC's rules
    ("ST_Buffer", "geometry number", "geometry", lambda geometry, r: shapely.buffer(geometry, r, quad_segs=8)),
    ("ST_Envelope", "geometry", "geometry", shapely.envelope),
    ("ST_ConvexHull", "geometry", "geometry", shapely.convex_hull),
    ("ST_Centroid", "geometry", "geometry", shapely.centroid),
    ("ST_Boundary", "geometry", "geometry", shapely.boundary),  # NULL for collections
    ("ST_Union", _TWO, "geometry", shapely.union),
    ("ST_Intersection", _TWO, "geometry", shapely.intersection),
    ("ST_SetSRID", "geometry count", "geometry", shapely.set_srid),
    ("ST_FlipCoordinates", "geometry", "geometry", lambda g: shapely.transform(g, lambda xy: xy[:, ::-1])),
    ("ST_Transform", "geometry text text", "geometry", _transform),
)
_OF_OPTIONAL_LAST: tuple[tuple[str, str, str, Body], ...] = (
    ("ST_GeomFromText", "text count", "geometry", _from_text),
    ("ST_GeomFromWKT", "text count", "geometry", _from_text),
    ("ST_GeometryFromText", "text count", "geometry", _from_text),
    ("ST_MakeEnvelope", f"{_CORNERS} count", "geometry", _envelope),
    ("ST_DWithin", f"{_TWO} number flag", "flag", _dwithin),  # in units of the coordinates, or metres on the spheroid
    ("ST_DistanceSphere", f"{_TWO} number", "number", _sphere),  # of points, or of the centroids of others
)
"""Functions with an optional last argument."""

for _optional, _rows in enumerate((_REGULAR, _OF_OPTIONAL_LAST)):
    for _name, _takes, _returns, _body in _rows:
        globals()[_name.lower()] = _of_shapely(_name, _takes, _returns, _optional, _body)
