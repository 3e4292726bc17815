"""All of Sedona's functions are mapped or left with a reason; and through Spark no row is lost by those that are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
import udf_mappings.h3 as cells
from geoskip import GeoBox
from geoskip.predicates import Call, Column, Comparison, Literal, Not
from geoskip.registry import current
from geoskip.rewrite import fold_constants
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, kept
from tests.support.mapped import files_kept, spark
from tests.support.sedona_unmapped import LEFT
from udf_mappings import shapely_functions
from udf_mappings.sedona import SEDONA

H3 = "ST_H3CellIDs"


def sedonas(name: str, *args: Any, type: str = "geometry") -> Call:
    return Call(name, args, SEDONA + name, (), type)


# ---- extents, and distances that are no less than the distance


@pytest.mark.parametrize(
    ("name", "op", "value", "expected"),
    [
        ("ST_XMin", "<", 1.0, [True, False, True]),
        ("ST_XMin", ">", 4.5, [False, True, True]),
        ("ST_XMax", "=", 2.0, [True, False, True]),
        ("ST_YMax", ">=", 9.0, [False, True, True]),
        ("ST_YMin", "<=", 3.0, [True, False, True]),
    ],
)
def test_ends_of_an_extent(name: str, op: str, value: float, expected: list[bool]) -> None:
    rows = [["LINESTRING (0 2, 2 3)"], ["POLYGON ((4 4, 9 4, 9 9, 4 4))"], ["POINT EMPTY", "POINT (3 3.5)"]]
    node = Comparison(op, sedonas(name, GEOM, type="double"), Literal(value))
    assert kept(node, SHAPES, collected(SHAPES, rows)) == expected


def test_what_is_empty_has_the_geohash_of_a_point() -> None:
    """JTS takes (-0.5, -0.5) for the centre of its envelope."""
    files = collected(SHAPES, [["POLYGON EMPTY"], ["POINT (10 50)"]])
    part = sedonas("ST_Intersection", GEOM, Literal(shapely.box(0, 0, 1, 1), "geometry"))
    for geometry, expected in ((GEOM, [True, False]), (part, [True, True])):
        hashed = sedonas("ST_GeoHash", geometry, Literal(5, "int"), type="string")
        assert kept(Comparison("=", hashed, Literal("7zzth", "string")), SHAPES, files) == expected


def test_an_extent_is_not_seen_through_what_shrinks() -> None:
    node = Comparison("<", sedonas("ST_XMin", sedonas("ST_Boundary", GEOM), type="double"), Literal(1.0))
    assert kept(node, SHAPES, collected(SHAPES, [["POINT (3 3)"]])) == [True]


def test_holes_may_lie_outside_of_their_shell() -> None:
    files = collected(SHAPES, [["LINESTRING (0 0, 1 0, 1 1, 0 0)"], ["LINESTRING (8 8, 9 8, 9 9, 8 8)"]])
    holes = Literal((shapely.LineString([(8, 8), (9, 8), (9, 9), (8, 8)]),), "array<geometry>")
    cut = Literal(shapely.LineString([(8, 8.5), (9, 8.5)]), "geometry")
    plain, holed = (sedonas("ST_MakePolygon", *args) for args in ((GEOM,), (GEOM, holes)))
    assert kept(sedonas("ST_Intersects", plain, cut), SHAPES, files) == [False, True]
    assert kept(sedonas("ST_Intersects", holed, cut), SHAPES, files) == [True, True]


@pytest.mark.parametrize("name", ["ST_MaxDistance", "ST_HausdorffDistance", "ST_FrechetDistance"])
def test_other_distances_are_no_less(name: str) -> None:
    files = collected(SHAPES, [["POINT (0 0)"], ["POINT (9 9)"], ["LINESTRING (3 3, 20 20)"], ["POINT EMPTY"]])
    measured = sedonas(name, GEOM, Literal(shapely.Point(9, 8), "geometry"), type="double")
    assert kept(Comparison("<=", measured, Literal(1.0)), SHAPES, files) == [False, True, True, True]
    assert kept(Comparison(">", measured, Literal(1.0)), SHAPES, files) == [True] * 4  # nothing is known of far


def test_distances_in_space_are_known_of_points_alone() -> None:
    files = collected(SHAPES, [["POINT (0 0)"], ["POINT (9 9)"], ["LINESTRING (0 0, 0 1)"], ["POINT EMPTY"]])

    def asked(g: Any, shape: Any) -> list[bool]:
        return kept(
            Comparison("<=", sedonas("ST_3DDistance", g, Literal(shape), type="double"), Literal(1.0)), SHAPES, files
        )

    assert asked(GEOM, shapely.Point(9, 8)) == [False, True, True, True]
    assert asked(GEOM, shapely.LineString([(9, 8), (9, 7)])) == [False, True, True, True]
    assert asked(GEOM, shapely.GeometryCollection([shapely.box(9, 8, 10, 9)])) == [True] * 4
    assert asked(sedonas("ST_Buffer", GEOM, Literal(1.0)), shapely.Point(9, 8)) == [True] * 4


def test_ends_of_lines_lie_in_their_boxes() -> None:
    files = collected(SHAPES, [["LINESTRING (0 0, 9 9)"], ["LINESTRING (20 20, 30 30)", "POINT (25 25)"], [None]])
    for name in ("ST_StartPoint", "ST_EndPoint", "ST_PointN"):
        end = sedonas(name, GEOM, *([Literal(2)] if name == "ST_PointN" else []))
        near = Comparison("<", sedonas("ST_Distance", end, Literal(shapely.Point(9, 10)), type="double"), Literal(1.5))
        assert kept(near, SHAPES, files) == [True, False, False]
        assert kept(sedonas("ST_Contains", Literal(shapely.box(21, 21, 50, 50)), end), SHAPES, files) == [
            False, True, False,
        ]  # fmt: skip
        assert kept(Comparison(">", sedonas("ST_X", end, type="double"), Literal(9.5)), SHAPES, files) == [
            False, True, False,
        ]  # fmt: skip
        assert kept(sedonas("ST_Disjoint", Literal(shapely.box(-1, -1, 10, 10)), end), SHAPES, files) == [
            False, True, False,
        ]  # fmt: skip


@pytest.mark.parametrize("way", ["ST_Expand", "ST_Buffer"])
def test_what_grows(way: str) -> None:
    grown = sedonas(way, GEOM, Literal(1.0))
    files = collected(SHAPES, [["POINT (0 0)"], ["POINT (5 5)"]])
    assert kept(sedonas("ST_Contains", grown, Literal(shapely.Point(0.9, 0.9))), SHAPES, files) == [True, False]


# ---- the shapely-backed ones


def further(name: str, *args: Any) -> Call:
    wrapped = tuple(arg if isinstance(arg, Call | Column | Literal) else Literal(arg) for arg in args)
    return Call(name, wrapped, f"python:udf_mappings.shapely_functions.{name.lower()}#1")


def test_a_constant_is_transformed_by_the_functions_own_body() -> None:
    mercator = shapely_functions.st_transform(shapely.to_wkb(shapely.box(8, 47, 9, 48)), "EPSG:4326", "EPSG:3857")
    back = further("ST_Transform", Literal(shapely.from_wkb(mercator), "geometry"), "EPSG:3857", "EPSG:4326")
    folded = fold_constants(back)
    assert isinstance(folded, Literal)
    assert shapely.equals_exact(folded.value, shapely.box(8, 47, 9, 48), 1e-9)
    files = collected(PAIR, [[(8.5, 47.5)], [(10.0, 47.5)]])
    assert kept(call("ST_Contains", back, call("ST_Point", LNG, LAT)), PAIR, files) == [True, False]
    wrong = further("ST_Transform", Literal(shapely.Point(0, 0), "geometry"), "EPSG:4326", "nonsense")
    assert fold_constants(wrong) == wrong
    assert SHAPES.sees(further("ST_Transform", GEOM, "EPSG:4326", "EPSG:3857")) is None


def test_extents_and_envelopes_of_the_shapely_backed() -> None:
    files = collected(SHAPES, [["POINT (1 1)"], ["POINT (5 5)"]])
    envelope = further("ST_MakeEnvelope", 0.0, 0.0, 2.0, 2.0, 4326)
    assert kept(call("ST_Within", GEOM, envelope), SHAPES, files) == [True, False]
    assert kept(Comparison(">", further("ST_XMax", GEOM), Literal(4)), SHAPES, files) == [False, True]
    assert shapely_functions.st_xmin(shapely.to_wkb(shapely.Point())) is None


# ---- cells


def test_cells_of_sedonas_own() -> None:
    files = collected(PAIR, [[(10.0, 48.4)], [(12.0, 48.4)]])
    cell = h3.str_to_int(h3.latlng_to_cell(48.4, 10.0, 7))
    point = Call("ST_Point", (LNG, LAT), SEDONA + "ST_Point", (), "geometry")
    ids = Call(H3, (point, Literal(7, "int"), Literal(True)), SEDONA + H3, (), "array<bigint>")
    wanted = Literal(cell, "bigint")
    assert kept(spark("ArrayContains", "array_contains", ids, wanted), PAIR, files) == [True, False]
    first = spark("GetArrayItem", "getarrayitem", ids, 0, type="bigint")
    assert kept(Comparison("=", first, wanted), PAIR, files) == [True, False]
    assert kept(Not(Comparison("=", first, wanted)), PAIR, files) == [True, True]
    others = collected(SHAPES, [["POLYGON ((12 48, 13 48, 13 49, 12 48))"]])
    of_shapes = Call(H3, (GEOM, Literal(7, "int"), Literal(True)), SEDONA + H3, (), "array<bigint>")
    assert kept(spark("ArrayContains", "array_contains", of_shapes, wanted), SHAPES, others) == [True]
    assert cells.LISTS


# ---- through Spark


@pytest.fixture(scope="module")
def sedona(spark: Any) -> Any:
    from geoskip.spark import st_functions as jar

    if not jar.is_there(spark):
        pytest.skip("Sedona is not released for this Spark")
    return spark


@pytest.mark.spark
def test_every_function_is_mapped_or_left_with_a_reason(sedona: Any) -> None:
    registered = sedona._jsparkSession.sessionState().functionRegistry()
    names = set()
    found = registered.listFunction().iterator()
    while found.hasNext():
        kind = registered.lookupFunction(found.next()).get().getClassName()
        if kind.startswith(SEDONA) and not kind.rpartition(".")[2].startswith("RS_"):
            names.add(kind.rpartition(".")[2])
    registry = current()
    some = (Column("g"), Literal(1.0), Literal(1.0), Literal("T********"))

    def is_mapped(name: str) -> bool:
        calls = [Call(name, some[:count], SEDONA + name) for count in range(1, 5)]
        return any(
            any(issubclass(GeoBox, rule.indexes) for rule in registry.rules_of(one))
            or registry.denotation(one)
            or registry.evaluator(one)
            for one in calls
        )

    neither = {name for name in names if not is_mapped(name) and name not in LEFT} - {H3}
    both = {name for name in LEFT if is_mapped(name)}
    assert (neither, both, LEFT.keys() - names) == (set(), set(), set())


SHAPES_OF_FILES = [
    ["POINT (1 1)", "POINT (2 2)", "POINT Z (1 1 7)"],
    ["LINESTRING (4 4, 6 5)", "LINESTRING M (5 5 1, 5 6 2)", "MULTIPOINT ((4 4), (6 6))"],
    ["POLYGON ((10 10, 14 10, 14 14, 10 14, 10 10), (11 11, 12 11, 12 12, 11 12, 11 11))", "POINT (12.5 12.5)"],
    ["POINT EMPTY", "POLYGON EMPTY", "LINESTRING EMPTY", "POINT (30 30)"],
    ["POINT (100 80)", None],
    ["MULTILINESTRING ((-6 -6, -5 -6), (-7 -7, -8 -8))"],
    ["POLYGON ((100 100, 200 100, 200 100, 100 100))"],  # without an area, from the tests of GEOS
    ["POLYGON ((60 60, 60.00000000001 60, 60.00000000001 60.00000000001, 60 60))"],  # moved far, it is a point
]
Q = "ST_GeomFromText('POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))', 4326)"
HOLE = "ST_GeomFromText('POLYGON ((9 9, 15 9, 15 15, 9 15, 9 9), (10.5 10.5, 13 10.5, 13 13, 10.5 13, 10.5 10.5))')"
LINE = "ST_GeomFromText('LINESTRING (4 4, 6 5)')"
ENDS = {
    "ST_Distance(geom, ST_Point(100D, 80D)) <> 0": 7,
    "ST_Distance(geom, ST_Point(97D, 76D)) NOT IN (5, 6)": 8,  # known for 0 alone
    f"ST_Contains({Q.replace('3', '5')}, ST_StartPoint(geom))": 3,  # NULL of points; POINT EMPTY always reads
    "ST_Distance(ST_EndPoint(geom), ST_Point(6D, 5D)) <= 0.5": 2,
    "ST_Distance(ST_Point(5D, 6D), ST_PointN(geom, 2)) < 0.5": 2,
    "ST_X(ST_EndPoint(geom)) > 100": 3,
    f"NOT ST_Intersects(ST_StartPoint(geom), {Q})": 7,
}
BOXED = "NOT ST_IsEmpty(geom)"  # of which Sedona throws, with these
THROUGH = "ST_GeomFromText('LINESTRING (110 100, 40 30, 180 30, 110 100)')"
INVALID = "ST_GeomFromText('POLYGON ((0 0, 3 3, 3 0, 0 3, 0 0))')"


def of_shapes() -> list[str]:
    """Every predicate and distance in both argument orders and under NOT, over constants of each sort."""
    found = []
    for name in ("Intersects", "Touches", "Crosses", "Overlaps", "Contains", "Covers", "Within", "CoveredBy", "Equals"):
        for constant in (Q, HOLE, LINE):
            for sides in (f"geom, {constant}", f"{constant}, geom"):
                found += [f"ST_{name}({sides})", *([f"NOT ST_{name}({sides})"] if constant is Q else [])]
    for name in ("Disjoint", "OrderingEquals"):
        found += [f"ST_{name}(geom, {Q})", f"NOT ST_{name}({Q}, geom)"]
    found += [f"ST_Disjoint(geom, {LINE})", f"ST_Distance(geom, {Q}) > 0", *ENDS]
    found += [f"ST_Distance(geom, {LINE}) < 2", f"ST_Distance({LINE}, geom) >= 20", f"NOT ST_Distance(geom, {Q}) <= 4"]
    found += [f"{BOXED} AND ST_3DDistance(ST_Force3D(geom), ST_Force3D({LINE})) <= 2"]
    for near in ("ST_MaxDistance", "ST_HausdorffDistance", "ST_FrechetDistance"):
        found += [f"{BOXED} AND {near}(geom, {LINE}) < 2", f"{BOXED} AND NOT {near}({LINE}, geom) < 4"]
    found += [f"ST_DWithin(geom, {Q}, 2)", f"NOT ST_DWithin({Q}, geom, 20)", f"ST_Relate(geom, {Q}, 'T********')"]
    for side in ("XMin", "XMax", "YMin", "YMax"):
        found += [
            f"ST_{side}(geom) < 2",
            f"ST_{side}(geom) > 50",
            f"ST_{side}(geom) <> 1",
            f"ST_{side}(geom) IN (4, 5)",
        ]
    found += [
        f"{BOXED} AND ST_Intersects(ST_Expand(geom, 1), {Q})",
        f"{BOXED} AND ST_Within(ST_Buffer(geom, 0.1), {Q})",
        f"{BOXED} AND ST_Intersects(ST_ClosestPoint(geom, {Q}), {Q})",
        f"{BOXED} AND ST_Intersects(ST_MakeValid(ST_Multi(geom)), {Q})",
        f"{BOXED} AND ST_Intersects(ST_Segmentize(geom, 1), {LINE})",
        f"{BOXED} AND ST_Intersects(ST_ForceRHR(ST_Force3D(geom)), {Q})",
        f"{BOXED} AND ST_DistanceSphere(geom, {LINE}) < 200000",
        f"{BOXED} AND ST_DistanceSpheroid({HOLE}, geom) <= 100000",
        f"{BOXED} AND ST_DWithin(geom, {Q}, 200000, true)",
        f"{BOXED} AND NOT ST_DWithin({LINE}, geom, 2000000, true)",
        f"{BOXED} AND ST_Contains({HOLE}, ST_Centroid(geom))",
        f"{BOXED} AND ST_Intersects(ST_Centroid(ST_ConvexHull(geom)), {Q})",
        f"{BOXED} AND ST_Area(ST_Intersection(geom, {Q})) > 0",
        f"{BOXED} AND NOT ST_IsEmpty(ST_Intersection({HOLE}, geom))",
        f"{BOXED} AND ST_Distance(geom, {INVALID}) < 0.5",
        f"{BOXED} AND ST_GeoHash(geom, 5) LIKE 's0%'",
        f"{BOXED} AND ST_GeoHash(geom, 3) IN ('s00', 'u00')",
        f"{BOXED} AND ST_GeoHash(geom, 4) = 's0d1'",
        f"{BOXED} AND left(ST_GeoHash(geom, 6), 2) = 's0'",
        f"ST_Intersects(ST_SetSRID(geom, 3857), {Q})",
        f"ST_Contains(ST_Transform(ST_Transform({Q}, 'EPSG:4326', 'EPSG:3857'), 'EPSG:3857', 'EPSG:4326'), geom)",
        f"ST_Intersects(geom, {INVALID}) OR ST_X(geom) = 100",
        f"ST_Distance(geom, {Q}) < 1 AND NOT ST_Intersects(geom, {Q})",
        "ST_Intersects(geom, ST_GeomFromText('POLYGON EMPTY'))",
        f"ST_Equals({THROUGH}, geom)",
        f"{BOXED} AND NOT ST_Intersects(ST_Translate(geom, 5e5, 5e5), ST_Buffer(ST_Point(500060D, 500060D), 9))",
    ]
    return found


@pytest.mark.spark
def test_no_shape_is_lost_through_real_sedona(sedona: Any, tmp_path: Path) -> None:
    place = tmp_path / "shapes"
    place.mkdir()
    for number, rows in enumerate(SHAPES_OF_FILES):
        data = [None if row is None else shapely.to_wkb(shapely.from_wkt(row)) for row in rows]
        pq.write_table(pa.table({"wkb": pa.array(data, pa.binary())}), place / f"part-{number}.parquet")
    geoskip.dataset(sedona, str(place)).create_index(GeoBox("ST_GeomFromWKB(wkb)"))
    frame = sedona.read.parquet(str(place)).selectExpr("*", "ST_GeomFromWKB(wkb) AS geom")
    asked = of_shapes()
    found = files_kept(frame, asked)
    skipping = [text for text in asked if found[text] < len(SHAPES_OF_FILES)]
    assert len(skipping) > 0.6 * len(asked)
    assert found[f"ST_Contains({Q}, geom)"] == found[f"ST_Intersects(ST_SetSRID(geom, 3857), {Q})"] == 2  # and EMPTY
    for text, most in {
        "AND ST_Area(": 2,
        "AND NOT ST_IsEmpty(ST_I": 3,
        f"{INVALID}) < 0.5": 2,
        "LIKE": 4,
        "'s0d1'": 2,
    }.items():
        assert [found[one] <= most for one in asked if text in one] == [True], (text, found)
    assert found["ST_XMax(geom) > 50"] == 4  # with the file of EMPTY
    assert {text: found[text] for text in ENDS} == ENDS


TILTED = "ST_GeomFromWKT('POLYGON Z ((0 0 0, 0 1 0, -0.75 1 1, -0.75 0 1, 0 0 0))')"  # its plane comes near
NAN = "ST_Point(CAST('NaN' AS DOUBLE), CAST('NaN' AS DOUBLE))"


@pytest.mark.spark
def test_no_part_without_coordinates_and_no_plane_is_lost_through_real_sedona(sedona: Any, tmp_path: Path) -> None:
    place = tmp_path / "parts"
    place.mkdir()
    rows = [
        ("MULTIPOINT ((NaN NaN))", math.nan),
        ("GEOMETRYCOLLECTION (POINT (90 90), GEOMETRYCOLLECTION (POINT (NaN NaN)))", math.nan),
        ("LINESTRING (70 70, NaN NaN)", math.nan),
        ("POINT Z (50 60 0)", 50.0),
        ("POINT Z (60 70 0)", 60.0),
        ("POLYGON Z ((0 0 0, 0 1 0, -0.75 1 1, -0.75 0 1, 0 0 0))", 0.0),
        ("POLYGON Z ((40 0 0, 41 0 0, 41 1 0, 40 0 0))", 0.0),
    ]
    for number, (text, x) in enumerate(rows):
        pq.write_table(pa.table({"wkt": [text], "x": [x]}), place / f"part-{number}.parquet")
    whole, collected_ = "ST_GeomFromWKT(wkt)", "ST_Collect(ST_Point(x, x + 10), ST_Point(x, x))"
    geoskip.dataset(sedona, str(place)).create_index(GeoBox(whole), GeoBox(collected_))
    asked = [
        *(f"ST_Intersects({g}, {Q})" for g in (whole, collected_)),
        *(f"ST_Intersects({Q}, {g}) AND x IS NOT NULL" for g in (whole, collected_)),
        *(f"ST_Intersects({whole}, ST_Collect({other}, {NAN}))" for other in (NAN, "ST_Point(7D, 7D)")),
        f"x < 1000 AND ST_3DDistance({whole}, ST_GeomFromWKT('POINT Z (100 0.5 0.5)')) < 81",
        f"x < 1000 AND ST_3DDistance(ST_GeomFromWKT('POINT Z (50 60 9)'), {whole}) < 10",
        f"x < 1000 AND ST_3DDistance({whole}, {TILTED}) < 50",
    ]
    found = files_kept(sedona.read.parquet(str(place)), asked)
    assert (found[asked[0]], found[asked[7]]) == (4, 6), found


@pytest.mark.spark
def test_no_place_is_lost_through_real_sedona(sedona: Any, tmp_path: Path) -> None:
    place = tmp_path / "places"
    place.mkdir()
    table = pq.read_table("datasets/airports.parquet", columns=["lng", "lat"]).sort_by("lng")
    for number in range(10):
        some = table.slice(number * 300, 60)
        rows = {name: [*some[name].to_pylist(), None] for name in ("lng", "lat")}
        pq.write_table(pa.table(rows), place / f"part-{number}.parquet")
    geoskip.dataset(sedona, str(place)).create_index(GeoBox("lng", "lat"))
    frame = sedona.read.parquet(str(place))
    new_york = "ST_Point(-73.8, 40.6)"
    cell = h3.str_to_int(h3.latlng_to_cell(40.6, -73.8, 3))
    most = {
        f"ST_DistanceSphere(ST_Point(lng, lat), {new_york}) < 200000": 3,
        f"ST_DistanceSphere({new_york}, ST_Point(lng, lat), 3959) < 120": 3,
        f"ST_DistanceSpheroid(ST_Point(lng, lat), {new_york}) <= 200000": 3,
        f"ST_DWithin(ST_Point(lng, lat), {new_york}, 200000, true)": 3,
        f"NOT ST_DWithin(ST_Point(lng, lat), {new_york}, 30000000, true)": 0,
        f"array_contains(ST_H3CellIDs(ST_Point(lng, lat), 3, true), {cell}L)": 3,
        f"ST_H3CellIDs(ST_Point(lng, lat), 3, true)[0] = {cell}L": 3,
        "ST_Contains(ST_PolygonFromEnvelope(-75.0, 40.0, -73.0, 41.0), ST_SetSRID(ST_Point(lng, lat), 4326))": 3,
    }
    found = files_kept(frame.where("lng IS NOT NULL"), most)
    assert all(found[text] <= count for text, count in most.items()), found
    assert math.isclose(cells.circle(h3.int_to_str(cell), 1.0)[0].x, -74, abs_tol=2)
