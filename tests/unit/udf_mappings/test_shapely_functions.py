"""Sedona's functions: bound to their implementations, folded, and the shapely-backed ones behave as functions."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import pandas as pd
import pyproj
import pytest
import shapely

from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import Call, Comparison, Literal, Not
from geoskip.registry.fingerprint import identity
from geoskip.rewrite import fold_constants
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, kept
from udf_mappings import shapely_functions
from udf_mappings.shapely_functions import FUNCTIONS

WKT = "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"
FAR = collected(PAIR, [[(50.0, 50.0)]])


def catalyst(name, *args):
    """A call of Sedona's own expression."""
    return Call(name, args, "org.apache.spark.sql.sedona_sql.expressions." + name)


def test_sedonas_own_expressions_are_mapped():
    node = catalyst("ST_Contains", Literal(shapely.from_wkt(WKT), "geometry"), catalyst("ST_Point", LNG, LAT))
    assert kept(node, PAIR, FAR) == [False]


@pytest.mark.parametrize(
    "implementation",
    [
        None,
        "com.example.ST_Contains",
        "python:mine.st_contains#1",
        "org.apache.spark.sql.catalyst.expressions.ST_Contains",
    ],
)
def test_another_function_of_the_same_name_is_not(implementation):
    node = Call("ST_Contains", (Literal(shapely.from_wkt(WKT)), call("ST_Point", LNG, LAT)), implementation)
    assert kept(node, PAIR, FAR) == [True]


def test_names_are_compared_as_sql_does():
    node = Call(
        "st_CONTAINS", (Literal(shapely.from_wkt(WKT)), call("ST_Point", LNG, LAT)), call("ST_Contains").implementation
    )
    assert kept(node, PAIR, FAR) == [False]


@pytest.mark.parametrize(
    "constant",
    [
        call("ST_GeomFromText", WKT),
        call("ST_GeomFromWKT", WKT, 4326),
        call("ST_GeomFromWKB", shapely.to_wkb(shapely.from_wkt(WKT))),
        call("ST_GeomFromGeoJSON", shapely.to_geojson(shapely.from_wkt(WKT))),
        call("ST_PolygonFromEnvelope", Decimal("0"), 0, Decimal("4.0"), 4.0),
        call("ST_Buffer", call("ST_Point", 2, 2), 2.0),
        call("ST_SetSRID", call("ST_Union", call("ST_GeomFromText", WKT), call("ST_Point", 1, 1)), 4326),
    ],
    ids=str,
)
def test_constants_of_python_functions_are_folded(constant):
    folded = fold_constants(constant)
    assert isinstance(folded, Literal)
    assert folded.type == "geometry"
    assert kept(call("ST_Intersects", call("ST_Point", LNG, LAT), constant), PAIR, FAR) == [False]
    near = collected(PAIR, [[(1.5, 1.5)]])
    assert kept(call("ST_Intersects", call("ST_Point", LNG, LAT), constant), PAIR, near) == [True]


def test_a_constant_that_cannot_be_made_keeps():
    wrong = call("ST_GeomFromText", "POLYGON ((nonsense")
    notes: list[str] = []
    assert fold_constants(wrong, report=notes.append) == wrong
    assert "was not evaluated" in notes[0]


@pytest.mark.parametrize(
    "expression",
    [
        call("ST_Transform", GEOM, "epsg:4326", "epsg:3857"),
        call("ST_Union", GEOM, shapely.Point(1, 1)),
        call("ST_Buffer", GEOM, -1.0),
        catalyst("ST_Buffer", GEOM, Literal(1.0), Literal(True)),
        catalyst("ST_Translate", GEOM, LNG, Literal(1.0)),
        call("ST_Intersection", shapely.Point(1, 1), shapely.Point(1, 1)),
    ],
    ids=str,
)
def test_what_does_not_follow_from_the_box_is_not_seen(expression):
    assert SHAPES.sees(expression) is None


@pytest.mark.parametrize(
    ("expression", "at"),
    [
        (catalyst("ST_Translate", GEOM, Literal(5.0), Literal(-5)), (6, -3)),
        (catalyst("ST_FlipCoordinates", catalyst("ST_Translate", GEOM, Literal(5.0), Literal(-5))), (-3, 6)),
        (catalyst("ST_Translate", catalyst("ST_FlipCoordinates", GEOM), Literal(5.0), Literal(-5)), (7, -4)),
        (catalyst("ST_GeomFromWKB", catalyst("ST_AsBinary", GEOM)), (1, 2)),
        (catalyst("ST_Simplify", catalyst("ST_Force_2D", GEOM), Literal(0.1)), (1, 2)),
        (catalyst("ST_Centroid", GEOM), (1, 2)),
        (catalyst("ST_Intersection", Literal(shapely.box(0, 0, 9, 9)), GEOM), (1, 2)),
    ],
    ids=str,
)
def test_functions_are_seen_through(expression, at):
    files = collected(SHAPES, [["POINT (1 2)"]])
    here, there = shapely.Point(at).buffer(0.5), shapely.Point(at[0] + 2, at[1]).buffer(0.5)
    assert kept(catalyst("ST_Intersects", expression, Literal(here)), SHAPES, files) == [True]
    assert kept(catalyst("ST_Intersects", expression, Literal(there)), SHAPES, files) == [False]


@pytest.mark.parametrize(
    "through",
    ["ST_Boundary", "ST_Intersection"],
)
def test_what_may_become_empty_keeps_where_empty_matches(through):
    files = collected(SHAPES, [["LINESTRING (1 1, 2 2)"]])
    args = (GEOM, Literal(shapely.Point(9, 9))) if through == "ST_Intersection" else (GEOM,)
    g, away = catalyst(through, *args), Literal(shapely.Point(50, 50))
    assert kept(Comparison("<", catalyst("ST_Distance", g, away), Literal(1)), SHAPES, files) == [True]
    assert kept(Not(catalyst("ST_Intersects", g, Literal(shapely.box(0, 0, 9, 9)))), SHAPES, files) == [True]


@pytest.mark.parametrize(
    ("indexed", "asked"),
    [
        (call("ST_GeomFromWKB", GEOM), GEOM),
        (GEOM, call("ST_GeomFromWKB", GEOM)),
        (call("ST_SetSRID", call("ST_GeomFromWKB", GEOM), 4326), call("ST_GeomFromWKB", GEOM)),
    ],
    ids=str,
)
def test_wkb_and_its_geometry_are_one(indexed, asked):
    index = GeoBox("g").bind((indexed,))
    files = collected(index, [["POINT (1 2)"]])
    assert index.reads(asked)
    assert kept(call("ST_Intersects", asked, shapely.Point(5, 5)), index, files) == [False]


@pytest.mark.parametrize(
    ("indexed", "asked"),
    [
        (call("ST_Envelope", GEOM), GEOM),  # a hole outside its shell leaves the envelope
        (call("ST_SetSRID", GEOM, LNG), GEOM),  # NULL where the SRID is
        (call("ST_Boundary", GEOM), GEOM),
    ],
    ids=str,
)
def test_what_is_less_than_the_geometry_does_not_speak_for_it(indexed, asked):
    assert GeoBox("g").bind((indexed,)).sees(asked) is None


@pytest.mark.parametrize(("flag", "expected"), [(LNG, True), (Literal(None), False)])
def test_an_unknown_spheroid_flag_keeps_and_null_skips(flag, expected):
    node = catalyst("ST_DWithin", catalyst("ST_Point", LNG, LAT), Literal(shapely.Point(0, 0)), Literal(1.0), flag)
    assert kept(node, PAIR, FAR) == [expected]


def test_the_fourth_argument_makes_metres_of_units():
    def dwithin(*flag):
        point = catalyst("ST_Point", LNG, LAT)
        return catalyst("ST_DWithin", point, Literal(shapely.Point(51, 50)), Literal(80000.0), *map(Literal, flag))

    assert [kept(dwithin(*flag), PAIR, FAR)[0] for flag in ((), (False,), (True,))] == [True, True, True]
    far = collected(PAIR, [[(53.0, 50.0)]])
    assert [kept(dwithin(*flag), PAIR, far)[0] for flag in ((), (False,), (True,))] == [True, True, False]


@pytest.mark.parametrize(("radius", "kept_too"), [(6371008.0, True), (3959.0, True), (6371.0, False)])
def test_the_radius_is_the_calls_own(radius, kept_too):
    """50 km, 50 miles, and 50 where the radius makes them kilometres; the point is 71.5 km away."""
    distance = {6371008.0: 72e3, 3959.0: 50, 6371.0: 50}[radius]
    far = call("ST_DistanceSphere", call("ST_Point", LNG, LAT), shapely.Point(51, 50), radius)
    assert kept(Comparison("<", far, Literal(distance)), PAIR, FAR) == [kept_too]


def test_the_default_radius_is_sedonas():
    away = call("ST_DistanceSphere", call("ST_Point", LNG, LAT), shapely.Point(50, 51))
    metres = 6371008.0 * math.radians(1)
    for slack, expected in ((1, True), (-1, False)):
        assert kept(Comparison("<", away, Literal(metres + slack)), PAIR, FAR) == [expected]


@pytest.mark.parametrize("radius", [None, 0.0, -1.0, math.nan])
def test_a_senseless_radius_keeps(radius):
    away = call("ST_DistanceSphere", call("ST_Point", LNG, LAT), shapely.Point(0, 0), radius)
    assert kept(Comparison("<", away, Literal(1.0)), PAIR, FAR) == [True]


# ---- the functions themselves


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_found_under_its_own_name_and_has_an_identity(name):
    entry = FUNCTIONS[name]
    assert getattr(shapely_functions, name.lower()) is entry.function
    for form, implementation in zip((entry.function, entry.vectorised), entry.implementations, strict=True):
        assert identity(form).startswith(f"{implementation}#")
    assert entry.returns in ("boolean", "double", "binary", "string", "int")


SQUARE, POINT = shapely.to_wkb(shapely.from_wkt(WKT)), shapely.to_wkb(shapely.Point(1, 2))
EXAMPLES = {
    "ST_Point": ((1, Decimal("2")), POINT),
    "ST_GeomFromText": (("POINT (1 2)",), POINT),
    "ST_AsText": ((POINT,), "POINT (1 2)"),
    "ST_X": ((POINT,), 1.0),
    "ST_Y": ((SQUARE,), None),
    "ST_Contains": ((SQUARE, POINT), True),
    "ST_Within": ((SQUARE, POINT), False),
    "ST_Relate": ((SQUARE, POINT, "T********"), True),
    "ST_Distance": ((POINT, shapely.to_wkb(shapely.Point(4, 6))), 5.0),
    "ST_DWithin": ((POINT, shapely.to_wkb(shapely.Point(4, 6)), 5), True),
    "ST_DistanceSphere": ((POINT, shapely.to_wkb(shapely.Point(1, 3))), pytest.approx(6371008.0 * math.radians(1))),
    "ST_DistanceSpheroid": (
        (POINT, shapely.to_wkb(shapely.Point(1, 3))),
        pytest.approx(pyproj.Geod(ellps="WGS84").inv(1, 2, 1, 3)[2]),
    ),
    "ST_Area": ((SQUARE,), 16.0),
    "ST_Length": ((SQUARE,), 0.0),
    "ST_IsEmpty": ((POINT,), False),
    "ST_FlipCoordinates": ((POINT,), shapely.to_wkb(shapely.Point(2, 1))),
    "ST_Envelope": ((POINT,), POINT),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_both_forms_give_the_known_answer(name):
    arguments, expected = EXAMPLES[name]
    entry = FUNCTIONS[name]
    assert entry.function(*arguments) == expected
    many = entry.vectorised(*(pd.Series([a] * 20 + [None], dtype=object) for a in arguments))
    assert many.tolist()[:20] == [expected] * 20
    assert many[20] is None


def another(argument):
    if isinstance(argument, bytes):
        return shapely.to_wkb(shapely.transform(shapely.from_wkb(argument), lambda at: at + 0.5), include_srid=True)
    if isinstance(argument, str):
        return argument
    return not argument if isinstance(argument, bool) else argument + 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_columns_and_constants_mix(name):
    entry, (arguments, _) = FUNCTIONS[name], EXAMPLES[name]
    for vary in itertools.product((False, True), repeat=len(arguments)):
        columns = [[a, another(a) if v else a] * 10 for a, v in zip(arguments, vary, strict=True)]
        many = entry.vectorised(*(pd.Series(column, dtype=object) for column in columns))
        assert repr(many.tolist()) == repr([entry.function(*row) for row in zip(*columns, strict=True)]), vary


def test_zero_keeps_its_sign():
    points = FUNCTIONS["ST_Point"].vectorised(pd.Series([0.0, -0.0]), pd.Series([1.0, 1.0]))
    assert points.tolist() == [FUNCTIONS["ST_Point"].function(x, 1.0) for x in (0.0, -0.0)]
    assert points[0] != points[1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_null_in_is_null_out(name):
    arguments = {"ST_Point": 2, "ST_MakePoint": 2, "ST_PolygonFromEnvelope": 4, "ST_MakeEnvelope": 4}
    arguments |= dict.fromkeys(("ST_Relate", "ST_DWithin", "ST_Transform"), 3)
    two = {"ST_Buffer", "ST_Union", "ST_SetSRID", "ST_Intersection"} | {
        n for n in FUNCTIONS if FUNCTIONS[n].returns == "boolean" and not n.startswith("ST_Is")
    }
    count = arguments.get(name, 2 if name in two or name.startswith("ST_Distance") else 1)
    assert FUNCTIONS[name].function(*[None] * count) is None
