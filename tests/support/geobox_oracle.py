"""Rows, predicates and their value in Spark for a row: the oracle of GeoBox tests without a JVM."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import shapely
from hypothesis import strategies as st

import udf_mappings.sedona  # noqa: F401  registers the mappings
from geoskip.clauses import keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.geobox.index import GeoBox
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate
from udf_mappings.shapely_functions import FUNCTIONS

LNG, LAT, GEOM = Column("lng"), Column("lat"), Column("geom")
PAIR = GeoBox("lng", "lat").bind((LNG, LAT))
SHAPES = GeoBox("geom").bind((GEOM,))
PAIR_COLUMNS = (SourceColumn("lng", "double", pa.float64()), SourceColumn("lat", "double", pa.float64()))
SHAPE_COLUMN = SourceColumn("geom", "geometry", pa.binary())


def call(name: str, *args: Any) -> Call:
    """Create a call of a shapely-backed function; plain values become literals."""
    wrapped = tuple(a if isinstance(a, Predicate) else literal(a) for a in args)
    return Call(name, wrapped, f"python:udf_mappings.shapely_functions.{name.lower()}#1")


def literal(value: Any) -> Literal:
    """Create a literal as Spark's translation would."""
    return Literal(value, "geometry" if isinstance(value, shapely.Geometry) else None)


def pairs(rows: list[tuple[float | None, float | None]]) -> tuple[pa.Array, pa.Array]:
    """Rows of (lng, lat) as two arrays."""
    return pa.array([r[0] for r in rows], pa.float64()), pa.array([r[1] for r in rows], pa.float64())


def geometries(rows: list[Any]) -> tuple[pa.Array]:
    """Geometries (or WKT, or None) as one array of WKB."""
    shapes = [shapely.from_wkt(row) if isinstance(row, str) else row for row in rows]
    return (pa.array([None if s is None else shapely.to_wkb(s) for s in shapes], pa.binary()),)


def files_of(index: GeoBox, summaries: list[Any]) -> FileMetadata:
    """A snapshot with these summaries, one for each file."""
    kind = index.metadata_type(*(PAIR_COLUMNS if index.is_pair else (SHAPE_COLUMN,)))
    return FileMetadata.of(pa.table({str(index): pa.array(summaries, kind)}))


def collected(index: GeoBox, files: list[list[Any]]) -> FileMetadata:
    """A snapshot of files given by their rows."""
    read = pairs if index.is_pair else geometries
    return files_of(index, [index.collect(*read(rows)) for rows in files])


def kept(predicate: Predicate, index: GeoBox, files: FileMetadata) -> list[bool]:
    """The files that the predicate's clause keeps; an exception of a rule is an error here."""

    def problem(text: str) -> None:
        raise AssertionError(text)

    return keep_mask(clause_for(predicate, [index], problem), files).tolist()


def evaluate(node: Predicate, row: dict[str, Any]) -> Any:
    """The value of an expression for one row, as in Spark with the shapely-backed functions."""
    match node:
        case Literal(value):
            return value
        case Column(name):
            return row[name]
        case Cast(child):
            value = evaluate(child, row)
            return None if value is None else float(value)
        case Call(name, args):
            return FUNCTIONS[{n.lower(): n for n in FUNCTIONS}[name.lower()]].function(
                *(evaluate(a, row) for a in args)
            )
        case Comparison("<=>", left, right):
            a, b = evaluate(left, row), evaluate(right, row)
            return (a is None and b is None) or (a is not None and b is not None and _compare("=", a, b))
        case Comparison(op, left, right):
            a, b = evaluate(left, row), evaluate(right, row)
            return None if a is None or b is None else _compare(op, a, b)
        case In(child, values):
            return evaluate(Or(tuple(Comparison("=", child, v) for v in values)), row)
        case IsNull(child):
            return evaluate(child, row) is None
        case Not(child):
            value = evaluate(child, row)
            return None if value is None else not value
        case And(parts):
            values = [evaluate(p, row) for p in parts]
            return False if False in values else None if None in values else True
        case Or(parts):
            values = [evaluate(p, row) for p in parts]
            return True if True in values else None if None in values else False
    raise NotImplementedError(repr(node))


def _compare(op: str, a: Any, b: Any) -> bool:
    """Compare in Spark's order: NaN equals NaN and is greater than everything."""
    nan_a, nan_b = isinstance(a, float) and math.isnan(a), isinstance(b, float) and math.isnan(b)
    if nan_a or nan_b:
        a, b = int(nan_a), int(nan_b)
    return {"=": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def matches(node: Predicate, row: dict[str, Any]) -> bool:
    """Test whether a predicate is TRUE for a row; False if its evaluation throws."""
    try:
        return evaluate(node, row) is True
    except shapely.errors.GEOSException:
        return False


# ---- strategies: small integer coordinates make touching, equal and empty cases frequent

whole = st.integers(-6, 6).map(float)
fine = st.floats(-6, 6, allow_nan=False).map(lambda v: round(v, 3))
coordinate = st.one_of(whole, whole, fine)
position = st.tuples(coordinate, coordinate)


@st.composite
def rectangles(draw: st.DrawFn) -> shapely.Polygon:
    """A rectangle, often with a hole, which may be outside and make it invalid."""
    x, y = draw(position)
    w, h = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    shell = shapely.box(x, y, x + w, y + h)
    if not draw(st.booleans()):
        return shell
    dx, dy = draw(st.sampled_from([0.25, 0.5, 1.0, 9.0])), draw(st.sampled_from([0.25, 0.5, 1.0]))
    hole = shapely.box(x + dx, y + dy, x + dx + w / 2, y + dy + h / 2)
    return shapely.Polygon(shell.exterior, [hole.exterior])


@st.composite
def stars(draw: st.DrawFn) -> shapely.Polygon:
    """A polygon with notches around a point: its envelope is much larger than itself."""
    x, y = draw(position)
    radii = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0, 5.0]), min_size=5, max_size=9))
    angles = [2 * math.pi * i / len(radii) for i in range(len(radii))]
    return shapely.Polygon([(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)])


points = position.map(shapely.Point)
lines = st.lists(position, min_size=2, max_size=4, unique=True).map(shapely.LineString)
rings = st.lists(position, min_size=3, max_size=6, unique=True).map(shapely.Polygon)  # many intersect themselves
polygons = st.one_of(rectangles(), stars(), rings)
empties = st.sampled_from(["POINT EMPTY", "POLYGON EMPTY", "LINESTRING EMPTY", "GEOMETRYCOLLECTION EMPTY"]).map(
    shapely.from_wkt
)
many = st.one_of(
    st.lists(points, min_size=1, max_size=3).map(shapely.MultiPoint),
    st.lists(lines, min_size=1, max_size=2).map(shapely.MultiLineString),
    st.lists(rectangles(), min_size=1, max_size=2).map(shapely.MultiPolygon),
    st.lists(st.one_of(points, lines), min_size=1, max_size=2).map(shapely.GeometryCollection),
)
broken = st.sampled_from([shapely.Point(math.nan, 5), shapely.Point(1, math.inf), shapely.Point(math.nan, math.nan)])
any_geometry = st.one_of(points, points, lines, polygons, polygons, many, empties)
geometry_rows = st.lists(st.one_of(points, points, polygons, lines, many, empties, st.none(), broken), max_size=4)
number = st.one_of(coordinate, coordinate, coordinate, st.none(), st.sampled_from([math.nan, math.inf, -math.inf]))
pair_rows = st.lists(st.one_of(position, position, st.tuples(number, number)), max_size=5)
