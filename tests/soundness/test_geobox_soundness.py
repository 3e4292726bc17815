"""No file that holds a matching row is skipped: every family of predicates, its negation, and what they merge to."""

from __future__ import annotations

from typing import Any

import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import And, Call, Comparison, In, IsNull, Literal, Not, Or, Predicate
from tests.support.geobox_oracle import (
    GEOM,
    LAT,
    LNG,
    PAIR,
    SHAPES,
    any_geometry,
    call,
    collected,
    coordinate,
    files_of,
    geometry_rows,
    kept,
    literal,
    matches,
    pair_rows,
    pairs,
    points,
    polygons,
)
from tests.support.strategies import examples

RELATIONS = (
    *("ST_Intersects", "ST_Touches", "ST_Crosses", "ST_Overlaps", "ST_Contains", "ST_Covers", "ST_Within"),
    *("ST_CoveredBy", "ST_Equals", "ST_Disjoint"),
)
PATTERNS = ("T********", "*T*******", "***1*****", "FF*FF****", "T*F**FFF*", "0FFFFF212", "FF1FF****")
ORDERS = ("=", "<", "<=", ">", ">=")

distances = st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 1, 2.0, 5.0, 20.0]), coordinate)
quick = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def spatial(draw: st.DrawFn, geometry: st.SearchStrategy[Predicate]) -> Predicate:
    """A spatial predicate on a geometry expression, plain or negated."""
    g = draw(geometry)
    shape = literal(draw(st.one_of(polygons, any_geometry)))
    sides = draw(st.permutations([g, shape]))
    kind = draw(st.integers(0, 9))
    if kind <= 4:
        node: Predicate = call(draw(st.sampled_from(RELATIONS)), *sides)
    elif kind == 5:
        node = call("ST_Relate", *sides, draw(st.sampled_from(PATTERNS)))
    elif kind == 6:
        node = call("ST_DWithin", *sides, float(draw(distances)))
    else:
        node = Comparison(draw(st.sampled_from(ORDERS)), call("ST_Distance", *sides), literal(draw(distances)))
    return Not(node) if draw(st.booleans()) else node


def seen_through(g: Predicate) -> st.SearchStrategy[Predicate]:
    """The geometry itself, mostly, or a function of it whose box is known."""
    seen: list[Predicate] = [g, g, g, call("ST_SetSRID", g, 4326), call("ST_FlipCoordinates", g)]
    seen += [call("ST_Buffer", g, 0.0), call("ST_Buffer", g, 1.5), call("ST_Boundary", g), call("ST_Centroid", g)]
    seen += [call("ST_Envelope", g), call("ST_ConvexHull", call("ST_FlipCoordinates", g))]
    seen += [call("ST_Buffer", call("ST_FlipCoordinates", g), 1.0), call("ST_Intersection", g, a_box())]
    return st.sampled_from(seen)


def a_box() -> Any:
    """A constant to cut with."""
    return shapely.box(-2, -2, 3, 3)


pair_geometry = st.one_of(seen_through(call("ST_Point", LNG, LAT)), st.just(call("ST_Point", LAT, LNG)))


@st.composite
def coordinates(draw: st.DrawFn) -> Predicate:
    """A plain comparison on a coordinate, or of ST_X of the point."""
    value = draw(st.sampled_from([LNG, LAT, call("ST_X", call("ST_Point", LNG, LAT))]))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        node: Predicate = IsNull(value)
    elif kind == 1:
        node = In(value, tuple(Literal(v) for v in draw(st.lists(coordinate, min_size=1, max_size=3))))
    else:
        node = Comparison(draw(st.sampled_from((*ORDERS, "<=>"))), value, Literal(draw(coordinate)))
    return Not(node) if draw(st.booleans()) else node


def trees(leaf: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    """Small trees of AND, OR and NOT over leaves."""
    some = st.lists(leaf, min_size=2, max_size=3).map(tuple)
    branch = st.one_of(some.map(And), some.map(And), some.map(Or))
    return st.one_of(leaf, branch, branch.map(Not), st.tuples(branch, leaf).map(And))


def check(predicate: Predicate, index: Any, files: list[list[Any]], rows: list[list[dict[str, Any]]]) -> None:
    keeps = kept(predicate, index, collected(index, files))
    for keep, of_file in zip(keeps, rows, strict=True):
        if not keep:
            assert not [row for row in of_file if matches(predicate, row)], f"{predicate} lost a row"


@given(st.lists(pair_rows, min_size=1, max_size=4), trees(st.one_of(spatial(pair_geometry), coordinates())))
@quick
def test_pairs_lose_no_row(files, predicate):
    rows = [[{"lng": x, "lat": y} for x, y in file] for file in files]
    check(predicate, PAIR, files, rows)


@given(st.lists(geometry_rows, min_size=1, max_size=4), trees(spatial(seen_through(GEOM))))
@settings(quick, max_examples=examples(150))
def test_geometries_lose_no_row(files, predicate):
    rows = [[{"geom": None if g is None else shapely.to_wkb(g)} for g in file] for file in files]
    check(predicate, SHAPES, files, rows)


@pytest.mark.slow
@pytest.mark.parametrize("negated", [False, True], ids=["plain", "negated"])
@pytest.mark.parametrize("name", RELATIONS)
@given(st.data())
@settings(quick, max_examples=examples(15))
def test_each_relation_alone_loses_no_row(name, negated, data):
    files = data.draw(st.lists(geometry_rows, min_size=1, max_size=5))
    sides = data.draw(st.permutations([GEOM, literal(data.draw(st.one_of(polygons, any_geometry)))]))
    node = call(name, *sides)
    rows = [[{"geom": None if g is None else shapely.to_wkb(g)} for g in file] for file in files]
    check(Not(node) if negated else node, SHAPES, files, rows)


places = st.tuples(
    st.one_of(st.sampled_from([-180.0, -179.9, 0.0, 179.9, 180.0, 190.0, 359.0]), st.floats(-180, 360)),
    st.one_of(st.sampled_from([-90.0, -89.9, 0.0, 89.9, 90.0]), st.floats(-90, 90)),
)
spread = st.tuples(st.floats(0, 30), st.floats(0, 20))


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Places around one of them, over the antimeridian and towards the poles."""
    lng, lat = draw(places)
    steps = draw(st.lists(spread, max_size=4))
    return [(lng, lat), *((lng + dx, max(-90.0, min(90.0, lat + dy))) for dx, dy in steps)]


@given(
    st.lists(clusters(), min_size=1, max_size=4),
    places,
    st.sampled_from(["ST_DistanceSphere", "ST_DistanceSpheroid", "miles", "ST_DWithin"]),
    st.one_of(st.floats(0, 2.1e7), st.floats(0, 1e6)),
    st.sampled_from(["<", "<=", ">", ">=", "="]),
)
@settings(quick, max_examples=examples(150))
def test_distances_on_the_globe_lose_no_row(files, place, function, distance, op):
    args = (call("ST_Point", LNG, LAT), shapely.Point(place))
    match function:
        case "ST_DWithin":
            node: Predicate = call(function, *args, distance, True)
            node = node if op in ("<", "<=") else Not(node)
        case "miles":
            node = Comparison(op, call("ST_DistanceSphere", *args, 3959.0), literal(distance / 1609.344))
        case _:
            node = Comparison(op, call(function, *args), literal(distance))
    check(node, PAIR, files, [[{"lng": x, "lat": y} for x, y in file] for file in files])


@given(
    st.lists(geometry_rows, min_size=1, max_size=4),
    st.one_of(any_geometry, polygons),
    st.sampled_from(["ST_DistanceSphere", "ST_DistanceSpheroid"]),
    st.one_of(st.floats(0, 2e6), st.sampled_from([0.0, 2e5, 5e5])),
    st.sampled_from(["<", "<=", ">", ">=", "="]),
    st.booleans(),
)
@settings(quick, max_examples=examples(200))
def test_distances_between_centroids_lose_no_row(files, shape, function, distance, op, first):
    sides = (GEOM, literal(shape)) if first else (literal(shape), GEOM)
    node = Comparison(op, call(function, *sides), literal(distance))
    check(node, SHAPES, files, [[{"geom": None if g is None else shapely.to_wkb(g)} for g in file] for file in files])


@given(st.lists(pair_rows, min_size=1, max_size=3), points, st.integers(1, 8))
@settings(quick, max_examples=examples(60))
def test_boxes_merged_from_parts_lose_no_row(parts, point, most):
    index = GeoBox("lng", "lat", boxes=most).bind((LNG, LAT))
    merged = index.merge([index.collect(*pairs(rows)) for rows in parts])
    whole = [row for rows in parts for row in rows]
    assert len(merged["boxes"]) <= most
    assert merged["rows"] == len(whole)
    node: Call = call("ST_Intersects", call("ST_Point", LNG, LAT), point)
    keep = kept(node, index, files_of(index, [merged]))[0]
    assert keep or not any(matches(node, {"lng": x, "lat": y}) for x, y in whole)
