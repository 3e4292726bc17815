"""GeoBox: what it stores, which files which predicate reads, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoskip.clauses import keep_mask
from geoskip.indexes.geobox.index import GeoBox
from geoskip.metadata import FileMetadata
from geoskip.predicates import And, Call, Cast, Comparison, In, IsNull, Literal, Not
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, files_of, geometries, kept, pairs
from udf_mappings.sedona import SEDONA

NAN, INF = math.nan, math.inf
RING = shapely.box(0, 0, 10, 10) - shapely.box(3, 3, 7, 7)
BOX = shapely.box(0, 0, 10, 10)
BOWTIE = shapely.from_wkt("POLYGON ((0 0, 10 10, 10 0, 0 10, 0 0))")

PAIR_FILES = {
    "in the hole": [(4, 4), (6, 6)],
    "in the ring": [(1, 1), (2, 2)],
    "on the boundary": [(0, 0), (0, 10)],
    "across the boundary": [(9, 9), (12, 12)],
    "far away": [(50, 50), (60, 60)],
    "no rows": [],
    "all null": [(None, None)],
    "half null": [(None, 50.0), (1.0, None)],
    "nan": [(NAN, 1.0)],
    "infinite": [(50, INF)],
    "no metadata": None,
}
ALWAYS = {"nan", "infinite", "no metadata"}

POINT = call("ST_Point", LNG, LAT)
Q = Comparison

PAIR_EFFECTS = {
    "inside the ring": (call("ST_Contains", RING, POINT), {"in the ring", "on the boundary", "across the boundary"}),
    "meets the ring": (call("ST_Intersects", POINT, RING), {"in the ring", "on the boundary", "across the boundary"}),
    "not in the ring": (
        Not(call("ST_Intersects", RING, POINT)),
        {"in the hole", "across the boundary", "far away", "on the boundary"},  # its box is an edge, grown a little
    ),
    "not covered by the box": (
        Not(call("ST_CoveredBy", POINT, BOX)),
        {"across the boundary", "far away", "on the boundary"},
    ),
    "disjoint from the box": (call("ST_Disjoint", BOX, POINT), {"across the boundary", "far away", "on the boundary"}),
    "not contained in the box": (
        Not(call("ST_Contains", BOX, POINT)),
        {"on the boundary", "across the boundary", "far away"},
    ),
    "not disjoint": (Not(call("ST_Disjoint", shapely.box(3.5, 3.5, 5, 5), POINT)), {"in the hole"}),
    "equals a point": (call("ST_Equals", POINT, shapely.Point(55, 55)), {"far away"}),
    "covers a point": (call("ST_Covers", POINT, shapely.Point(5, 5)), {"in the hole"}),
    "near": (Q("<", call("ST_Distance", POINT, shapely.Point(63, 64)), Literal(5.5)), {"far away"}),
    "near, by 3-4-5": (Q("<=", call("ST_Distance", shapely.Point(63, 64), POINT), Literal(5.0)), {"far away"}),
    "not so near": (Q("<", call("ST_Distance", POINT, shapely.Point(63, 64)), Literal(4.9)), set()),
    "within a distance": (call("ST_DWithin", POINT, shapely.LineString([(70, 0), (70, 90)]), 11.0), {"far away"}),
    "far": (
        Q(">", call("ST_Distance", POINT, shapely.Point(5, 5)), Literal(8.0)),
        {"across the boundary", "far away"},
    ),
    "not within a distance": (Not(call("ST_DWithin", POINT, shapely.Point(5, 5), 60.0)), {"far away"}),
    "at a distance": (Q("=", call("ST_Distance", POINT, shapely.Point(5, 5)), Literal(70.0)), {"far away"}),
    "relates by a common point": (
        call("ST_Relate", POINT, RING, "T********"),
        {"in the ring", "on the boundary", "across the boundary"},
    ),
    "x above": (Q(">", LNG, Literal(12)), {"far away", "half null"}),
    "y above": (Q(">", LAT, Literal(49)), {"far away", "half null"}),
    "x at most": (Q("<=", LNG, Literal(0)), {"on the boundary", "half null"}),
    "x below": (Q("<", LNG, Literal(0.0)), {"half null"}),
    "x is": (Q("=", LNG, Literal(Decimal("1.5"))), {"in the ring"} | {"half null"}),
    "x is, or null is": (Q("<=>", LNG, Literal(60)), {"far away", "half null"}),
    "x is no": (Not(Q("=", LNG, Literal(0))), set(PAIR_FILES) - ALWAYS - {"no rows", "all null", "on the boundary"}),
    "x in": (In(LNG, (Literal(50), Literal(4))), {"far away", "in the hole", "half null"}),
    "x not in": (
        Not(In(LNG, (Literal(7), Literal(0)))),
        set(PAIR_FILES) - ALWAYS - {"no rows", "all null", "on the boundary"},
    ),
    "x null": (IsNull(LNG), {"all null", "half null"}),
    "x not null": (Not(IsNull(LNG)), set(PAIR_FILES) - ALWAYS - {"no rows", "all null"}),
    "x of a widened integer": (Q(">", Cast(LNG, "double", "int"), Literal(12)), {"far away", "half null"}),
    "a rectangle, paper's way": (
        And((Q(">", LNG, Literal(3)), Q("<", LNG, Literal(7)), Q(">", LAT, Literal(3)), Q("<", LAT, Literal(7)))),
        {"in the hole"},
    ),
    "null and touching": (And((IsNull(LNG), call("ST_Intersects", POINT, BOX))), set()),
    "axes exchanged": (call("ST_Contains", shapely.box(55, 0, 70, 99), call("ST_Point", LAT, LNG)), {"far away"}),
    "through a buffer": (call("ST_Intersects", call("ST_Buffer", POINT, 5.0), shapely.Point(64, 62)), {"far away"}),
    "through a flip": (
        call("ST_Intersects", call("ST_FlipCoordinates", POINT), shapely.Point(9.5, 9.6)),
        {"across the boundary"},
    ),
    "through ST_X": (Q(">=", call("ST_X", POINT), Literal(12)), {"across the boundary", "far away", "half null"}),
}


@pytest.mark.parametrize("name", PAIR_EFFECTS)
def test_which_files_a_predicate_on_points_reads(name):
    predicate, expected = PAIR_EFFECTS[name]
    nulls_only = name in ("x null", "null and touching")
    one = GeoBox("lng", "lat", boxes=1).bind((LNG, LAT))
    summaries = [None if rows is None else one.collect(*pairs(rows)) for rows in PAIR_FILES.values()]
    keeps = kept(predicate, one, files_of(one, summaries))
    found = {file for file, keep in zip(PAIR_FILES, keeps, strict=True) if keep}
    assert found == expected | ({"no metadata"} if nulls_only else ALWAYS)


SHAPE_FILES = {
    "in the hole": ["POINT (5 5)", "POLYGON ((4 4, 6 4, 6 6, 4 4))"],
    "in the ring": ["LINESTRING (1 1, 2 2)", "MULTIPOINT (1 2, 2 1)"],
    "whole ring": [RING],
    "far away": ["POINT (50 50)"],
    "null": [None],
    "empty": ["POLYGON EMPTY", "GEOMETRYCOLLECTION EMPTY"],
    "invalid in the ring": ["POLYGON ((1 1, 2 2, 2 1, 1 2, 1 1))"],
    "hole outside": ["POLYGON ((20 20, 21 20, 21 21, 20 21, 20 20), (1 1, 2 1, 2 2, 1 1))"],
    "nan": [shapely.Point(NAN, 5)],
    "no metadata": None,
}
SHAPE_ALWAYS = {"nan", "no metadata"}

SHAPE_EFFECTS = {
    "intersects the ring": (
        call("ST_Intersects", GEOM, RING),
        {"in the ring", "whole ring", "invalid in the ring", "hole outside"},
    ),
    "contains the ring": (call("ST_Contains", GEOM, RING), {"whole ring"}),
    "equals the ring, or is invalid": (
        call("ST_Equals", GEOM, RING),
        {"whole ring", "invalid in the ring", "hole outside"},
    ),
    "not in the ring": (
        Not(call("ST_Intersects", GEOM, RING)),
        {"in the hole", "whole ring", "far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "not within the box": (
        Not(call("ST_Within", GEOM, BOX)),
        {"whole ring", "far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "near, and EMPTY is": (
        Q("<", call("ST_Distance", GEOM, shapely.Point(51, 50)), Literal(1.5)),
        {"far away", "empty"},
    ),
    "far": (
        Q(">", call("ST_Distance", GEOM, shapely.Point(5, 5)), Literal(9)),
        {"far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "an invalid constant's envelope": (
        call("ST_Intersects", GEOM, BOWTIE),
        set(SHAPE_FILES) - {"far away", "null", "empty"} - SHAPE_ALWAYS,
    ),
    "on the sphere": (
        Q("<", call("ST_DistanceSphere", GEOM, shapely.Point(50, 51)), Literal(1.2e5)),
        {"far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "on the sphere, from a polygon": (
        Q("<", call("ST_DistanceSphere", shapely.box(0, 50.5, 100, 51.5), GEOM), Literal(1.2e5)),
        {"far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "far on the sphere": (
        Q(">", call("ST_DistanceSpheroid", GEOM, shapely.Point(5, 5)), Literal(2e6)),
        {"far away", "empty", "invalid in the ring", "hole outside"},
    ),
    "a centroid": (
        call("ST_Within", call("ST_Centroid", GEOM), shapely.box(40, 40, 60, 60)),
        {"far away", "invalid in the ring", "hole outside"},
    ),
    "null": (IsNull(GEOM), {"null"}),
    "not null": (Not(IsNull(GEOM)), set(SHAPE_FILES) - {"null"} - SHAPE_ALWAYS),
    "a part of it": (call("ST_Intersects", call("ST_Boundary", GEOM), shapely.Point(50, 50)), {"far away"}),
}


@pytest.mark.parametrize("name", SHAPE_EFFECTS)
def test_which_files_a_predicate_on_geometries_reads(name):
    predicate, expected = SHAPE_EFFECTS[name]
    one = GeoBox("geom", boxes=1).bind((GEOM,))
    summaries = [None if rows is None else one.collect(*geometries(rows)) for rows in SHAPE_FILES.values()]
    keeps = kept(predicate, one, files_of(one, summaries))
    found = {file for file, keep in zip(SHAPE_FILES, keeps, strict=True) if keep}
    assert found == expected | ({"no metadata"} if name == "null" else SHAPE_ALWAYS)


def keeps_all(predicate, index=PAIR, rows=((50.0, 50.0),)):
    return kept(predicate, index, collected(index, [list(rows)])) == [True]


@pytest.mark.parametrize(
    "shape",
    [shapely.Point(), shapely.from_wkt("POLYGON EMPTY"), shapely.Point(NAN, 1), "POINT (1 1)", 5],
    ids=["empty point", "empty polygon", "nan", "text", "number"],
)
@pytest.mark.parametrize("relation", ["ST_Intersects", "ST_Contains", "ST_Equals", "ST_Within"])
def test_a_constant_that_says_nothing_keeps(relation, shape):
    assert keeps_all(call(relation, POINT, shape))
    assert keeps_all(Not(call(relation, POINT, shape)))


@pytest.mark.parametrize("relation", ["ST_Intersects", "ST_Contains", "ST_Equals", "ST_Within"])
def test_a_constant_that_is_null_keeps_no_file(relation):
    assert not keeps_all(call(relation, POINT, None))
    assert not keeps_all(Not(call(relation, POINT, None)))


@pytest.mark.parametrize("name", ["ST_Contains", "ST_Equals"])
def test_an_invalid_constant_serves_the_touch_family_only(name):
    assert keeps_all(call(name, POINT, BOWTIE))
    assert not keeps_all(call("ST_Within", POINT, BOWTIE))
    assert keeps_all(Not(call("ST_Within", POINT, BOWTIE)), rows=[(5.0, 2.0)])


def test_what_is_made_of_a_row_may_be_invalid_and_equal_to_anything():
    far = [["POLYGON ((5 5, 6 5, 6 6, 5 5))"]]
    assert kept(call("ST_Equals", GEOM, BOX), SHAPES, collected(SHAPES, far)) == [False]
    assert kept(call("ST_Equals", call("ST_Boundary", GEOM), BOX), SHAPES, collected(SHAPES, far)) == [True]


def test_a_tiny_polygon_that_is_moved_may_be_invalid():
    moved = sedonas("ST_Translate", GEOM, Literal(5e5), Literal(5e5))
    rows = [["POLYGON ((0 0, 1e-11 0, 1e-11 1e-11, 0 0))"], ["POINT (0 0)"]]  # JTS: the first, moved, is within nothing
    around = shapely.Point(5e5, 5e5).buffer(1e5)
    for node in (Not(call("ST_Intersects", around, moved)), call("ST_Disjoint", moved, around)):
        assert kept(node, SHAPES, collected(SHAPES, rows)) == [True, False]
    far = Q(">", call("ST_Distance", moved, shapely.Point(5e5, 5e5)), Literal(9.0))
    assert kept(far, SHAPES, collected(SHAPES, rows)) == [True, False]
    assert kept(call("ST_Equals", moved, BOX), SHAPES, collected(SHAPES, rows)) == [True, False]


@pytest.mark.parametrize("way", [lambda g: grown(g, 1e-12), lambda g: grown(grown(g, 1e-12), 5.0)])
def test_a_buffer_of_next_to_nothing_may_be_empty(way):
    rows = [["POINT (5e5 5e5)"]]  # ST_Buffer makes POLYGON EMPTY of it, which is at no distance from anything
    around = shapely.Point(5e5, 5e5).buffer(1e5)
    for node, least in (
        (Not(call("ST_Intersects", around, way(GEOM))), grown(GEOM, 1.0)),
        (call("ST_Equals", BOX, way(GEOM)), grown(GEOM, 1.0)),
        (Q("<", call("ST_Distance", way(GEOM), shapely.Point(0, 0)), Literal(9.0)), GEOM),
        (Q("<", sedonas("ST_XMin", way(GEOM)), Literal(9.0)), GEOM),
    ):
        assert kept(node, SHAPES, collected(SHAPES, rows)) == [True]
        assert kept(_with(node, way(GEOM), least), SHAPES, collected(SHAPES, rows)) == [False]


@pytest.mark.parametrize(("dx", "dy"), [(1e200, 0.0), (0.0, -1e200), (INF, 0.0)])
def test_what_is_moved_out_of_the_plane_may_be_anywhere(dx, dy):
    moved = sedonas("ST_Translate", POINT, Literal(dx), Literal(dy))
    assert keeps_all(call("ST_Intersects", BOX, moved))


def test_a_buffer_of_what_may_be_empty_may_be_empty():
    files = collected(SHAPES, [["POINT (5 5)"]])
    for what, keeps in ((GEOM, False), (sedonas("ST_Boundary", GEOM), True)):  # a point has no boundary
        assert kept(Not(call("ST_Intersects", BOX, grown(what, 1.0))), SHAPES, files) == [keeps]


@pytest.mark.parametrize(("op", "expected"), [("<", "YYN"), ("<=", "YYN"), ("=", "NYN"), (">=", "NYY"), (">", "NYY")])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_coordinate_of_what_is_moved_is_compared(op, expected, axis):
    places = [[(v, 50.0) if axis == 0 else (50.0, v)] for v in (-9.0, 0.0, 9.0)]  # the second may be rounded
    moved = sedonas("ST_Translate", POINT, Literal(3.0), Literal(3.0))
    node = Q(op, sedonas(("ST_X", "ST_Y")[axis], moved), Literal(3.0))
    assert kept(node, PAIR, collected(PAIR, places)) == [letter == "Y" for letter in expected]


def sedonas(name, *args):
    return Call(name, args, SEDONA + name)


def grown(geometry, radius):
    return sedonas("ST_Buffer", geometry, Literal(radius))


def _with(node, old, new):
    """A condition with another geometry in it."""
    match node:
        case Not(child):
            return Not(_with(child, old, new))
        case Comparison(op, left, right):
            return Comparison(op, _with(left, old, new), right)
        case Call():
            return replace(node, args=tuple(new if arg == old else arg for arg in node.args))


@pytest.mark.parametrize("distance", [NAN, INF, "5", True])
def test_a_distance_that_is_no_finite_number_keeps(distance):
    assert keeps_all(Q("<=", call("ST_Distance", POINT, shapely.Point(0, 0)), Literal(distance)))


@pytest.mark.parametrize("pattern", ["FF*FF****", "**T******", "T*******", "FFFFFFFFT"])
def test_a_pattern_that_forces_no_common_point_keeps(pattern):
    assert keeps_all(call("ST_Relate", POINT, BOX, pattern))


def test_a_literal_of_another_type_keeps():
    for value in ("5", True, NAN, b"5"):
        assert keeps_all(Q("<=", LNG, Literal(value)))


def test_a_cast_that_changes_numbers_keeps():
    narrowed = Cast(LNG, "decimal(10,1)", "decimal(10,2)")
    wraps = Cast(LNG, "tinyint", "decimal(3,0)")  # 261 becomes 5
    for cast in (
        Cast(LNG, "int", "double"),
        Cast(LNG, "float", "double"),
        Cast(LNG, "double", "string"),
        narrowed,
        wraps,
    ):
        assert keeps_all(Q("<", cast, Literal(0)))


def test_two_predicates_are_decided_box_by_box():
    two_places = [(0.0, 0.0)] * 5 + [(50.0, 50.0)] * 5
    files = collected(PAIR, [two_places])
    here = call("ST_Intersects", POINT, shapely.box(-1, -1, 1, 1))
    there = Q(">", LNG, Literal(40))
    assert kept(here, PAIR, files) == kept(there, PAIR, files) == [True]
    assert kept(And((here, there)), PAIR, files) == [False]


def test_empty_is_disjoint_and_near_at_once():
    """EMPTY is one more box: NOT Intersects holds for it, and its distance to anything is 0 in JTS."""
    files = collected(SHAPES, [["POINT (1 1)", "POLYGON EMPTY"], ["POINT (1 1)"]])
    apart = Not(call("ST_Intersects", BOX, GEOM))
    near = Q("<", call("ST_Distance", GEOM, shapely.Point(99, 99)), Literal(5))
    assert kept(And((apart, near)), SHAPES, files) == [True, False]


@pytest.mark.parametrize("column", ["boxless", "boxes", "nonfinite", "invalid", "types", "empties"])
def test_a_lost_cell_keeps(column):
    summary = dict(SHAPES.collect(*geometries(["POINT (1 1)"])))
    summary[column] = None
    far = call("ST_Intersects", GEOM, shapely.Point(50, 50))
    assert kept(far, SHAPES, files_of(SHAPES, [summary])) == [True]


@pytest.mark.parametrize("box", [None, (NAN, 0, 1, 1), (5, 0, 1, 1)], ids=["null", "nan", "upside down"])
def test_a_damaged_box_keeps_its_file(box):
    names = ("xmin", "ymin", "xmax", "ymax")
    summary = dict(PAIR.collect(*pairs([(0, 0)])))
    summary["boxes"] = [None if box is None else dict(zip(names, map(float, box), strict=True)), *summary["boxes"]]
    files = files_of(PAIR, [summary, PAIR.collect(*pairs([(0, 0)]))])
    assert kept(call("ST_Intersects", POINT, shapely.Point(50, 50)), PAIR, files) == [True, False]


def test_an_index_without_metadata_keeps_every_file():
    files = FileMetadata.of(pa.table({"path": ["a", "b"]}))
    assert kept(call("ST_Intersects", POINT, BOX), PAIR, files) == [True, True]


KEPT_ONE_BY_ONE = {
    "NOT contains of what the row lies in": (Not(call("ST_Contains", GEOM, BOX)), ["POINT (5 5)"]),
    "NOT within of what lies in the row": (Not(call("ST_Within", BOX, GEOM)), ["POINT (5 5)"]),
    "NOT covered by the row": (Not(call("ST_CoveredBy", BOX, GEOM)), ["POINT (5 5)"]),
    "NOT touches": (Not(call("ST_Touches", GEOM, BOX)), ["POINT (5 5)"]),
    "NOT equals": (Not(call("ST_Equals", GEOM, BOX)), ["POINT (5 5)"]),
    "a point's buffer by 0 is EMPTY": (Not(call("ST_Intersects", call("ST_Buffer", GEOM, 0.0), BOX)), ["POINT (5 5)"]),
    "the open side of an invalid constant": (call("ST_Intersects", GEOM, BOWTIE), ["POINT (5 9)"]),
    "near a hole outside of its shell": (
        Q("<", call("ST_Distance", GEOM, shapely.from_wkt(SHAPE_FILES["hole outside"][0])), Literal(0.5)),
        ["POINT (1.5 0.9)"],
    ),
    "far on the sphere, not valid": (
        Q(">", call("ST_DistanceSphere", GEOM, shapely.Point(5, 5)), Literal(9e6)),
        [BOWTIE],
    ),
    "from an invalid constant": (
        Q("<", call("ST_DistanceSphere", GEOM, BOWTIE), Literal(9.0)),
        ["POINT (50 50)"],
    ),
    "far on the sphere, beyond the poles": (
        Q(">", call("ST_DistanceSphere", GEOM, shapely.Point(5, 5)), Literal(1.9e7)),
        ["POINT (5 91)"],
    ),
    "near on the sphere, beyond the poles": (
        Q("<", call("ST_DistanceSphere", GEOM, shapely.Point(5, 89)), Literal(1e3)),
        ["POINT (185 91)"],
    ),
    "far, towards the antipode": (
        Q(">", call("ST_DistanceSphere", GEOM, shapely.Point(0, 0)), Literal(1e9)),
        ["POINT (180 0)"],
    ),
    "a decimal between doubles": (
        Q("<", call("ST_X", GEOM), Literal(Decimal("0.1"))),
        [shapely.Point(math.nextafter(0.1, 0), 0)],
    ),
    "one of several is another": (Not(Q("=", call("ST_X", GEOM), Literal(5))), ["POINT (5 5)", "POINT (7 5)"]),
    "a distance whose square underflows": (
        Q("<", call("ST_Distance", GEOM, shapely.Point(0, 0)), Literal(1e-250)),
        [shapely.Point(1e-200, 0)],
    ),
    "a distance whose square overflows": (
        Q(">", call("ST_Distance", GEOM, shapely.Point(0, 0)), Literal(1e201)),
        [shapely.Point(1e200, 0)],
    ),
    "an EMPTY constant equals EMPTY": (
        call("ST_Equals", GEOM, shapely.from_wkt("LINESTRING EMPTY")),
        ["POLYGON EMPTY"],
    ),
}


@pytest.mark.parametrize("name", KEPT_ONE_BY_ONE)
def test_what_is_kept_for_a_reason(name):
    predicate, rows = KEPT_ONE_BY_ONE[name]
    one = GeoBox("geom", boxes=1).bind((GEOM,))
    assert keeps_all(predicate, one, rows)


def test_many_files_give_the_answers_of_few():
    """Above some thousand boxes they are sorted into blocks; the answers stay."""
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-180, 180, 9000), rng.uniform(-90, 90, 9000)
    width, height = rng.exponential(1, 9000), rng.exponential(1, 9000)
    width[:5] = 300
    boxes = [
        [{"xmin": a, "ymin": b, "xmax": a + w, "ymax": b + h}] for a, b, w, h in zip(x, y, width, height, strict=True)
    ]
    counts = {"rows": 1, "boxless": 0, "nonfinite": 0, "null_x": 0, "null_y": 0}
    files = files_of(PAIR, [{"boxes": b, **counts} for b in boxes])
    shape = shapely.Point(10, 20).buffer(15) - shapely.Point(10, 20).buffer(5)
    clauses = [PAIR.meets(shape), PAIR.leaves(shape), PAIR.encloses(shape), PAIR.comes_within(shape, 3)]
    clauses += [PAIR.goes_beyond(shapely.Point(10, 20), 9), PAIR.sees(call("ST_Point", LAT, LNG)).meets(shape)]
    clauses += [PAIR.meets(shapely.box(-90, -60, 150, 80))]
    exact = shapely.box(x, y, x + width, y + height)
    expected = [
        shapely.intersects(shape, exact),
        ~shapely.covers(shape, exact),
        (x <= -5) & (x + width >= 25) & (y <= 5) & (y + height >= 35),
        shapely.distance(shape, exact) <= 3,
        np.hypot(np.maximum(abs(x - 10), abs(x + width - 10)), np.maximum(abs(y - 20), abs(y + height - 20))) >= 9,
        shapely.intersects(shape, shapely.box(y, x, y + height, x + width)),
        (x <= 150) & (x + width >= -90) & (y <= 80) & (y + height >= -60),  # whole blocks
    ]
    for clause, mask in zip(clauses, expected, strict=True):
        assert (keep_mask(clause, files) == mask).all(), str(clause)


@pytest.mark.parametrize("distance", [5.0, math.nextafter(5.0, 6.0)])
def test_a_distance_may_be_rounded_up(distance):
    files = collected(PAIR, [[(3, 4)], [(0, 4)]])
    beyond = Q(">=", call("ST_Distance", POINT, shapely.Point(0, 0)), Literal(distance))
    assert kept(beyond, PAIR, files) == [True, False]
