"""GeoBox: what it stores a file, how it is merged, what it is called and what it refuses."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoskip.clauses import all_of
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.geometry import Boxes, Envelope
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.geobox.collect import split
from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import Cast, Column, Comparison, Literal
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, files_of, geometries, kept, pairs

NAN, INF = math.nan, math.inf
Q = Comparison
POINT = call("ST_Point", LNG, LAT)
BOX = shapely.box(0, 0, 10, 10)
BOWTIE = shapely.from_wkt("POLYGON ((0 0, 10 10, 10 0, 0 10, 0 0))")

# ---- collecting


def test_the_summary_of_a_pair():
    summary = PAIR.collect(*pairs([(1, 2), (3, 1), (None, 5), (None, None), (NAN, 1), (NAN, None)]))
    assert [tuple(box.values()) for box in summary["boxes"]] == [(1, 2, 1, 2), (3, 1, 3, 1)]
    assert {k: v for k, v in summary.items() if k != "boxes"} == {
        "rows": 6, "boxless": 3, "nonfinite": 1, "null_x": 2, "null_y": 2,
    }  # fmt: skip


def test_the_summary_of_geometries():
    lacking = "MULTIPOINT ((1 1), EMPTY)"  # JTS: a point that is NaN
    rows = ["POINT (1 1)", "POINT EMPTY", "POLYGON EMPTY", None, BOWTIE, shapely.Point(INF, 0), lacking]
    summary = SHAPES.collect(*geometries(rows))
    assert {k: v for k, v in summary.items() if k != "boxes"} == {
        "rows": 7, "boxless": 3, "nonfinite": 3, "nulls": 1, "empties": 2, "invalid": 1, "types": 2 | 1 << 3 | 1 << 4,
    }  # fmt: skip


def test_wkb_in_all_its_forms():
    srid = shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 4326), include_srid=True)
    z = shapely.to_wkb(shapely.Point(5, 6, 7))
    big = shapely.to_wkb(shapely.Point(3, 4), byte_order=0)
    iso = shapely.to_wkb(shapely.from_wkt("POINT ZM (9 9 1 1)"), output_dimension=4, flavor="iso")
    summary = GeoBox("g", boxes=1).collect(pa.array([srid, z, big, iso]))
    assert summary["boxes"] == [{"xmin": 1, "ymin": 2, "xmax": 9, "ymax": 9}]


def test_curves_leave_the_box_of_their_coordinates():
    arc = bytes.fromhex("010800000003000000") + np.array([[0, 0], [1, 1], [2, 0]], "<f8").tobytes()
    assert SHAPES.collect(pa.array([arc])) is None


@pytest.mark.parametrize("bad", [b"", b"\x01", b"POINT (1 1)", shapely.to_wkb(BOX)[:-3]])
def test_unreadable_wkb_leaves_the_file_without_a_summary(bad):
    assert SHAPES.collect(pa.array([shapely.to_wkb(BOX), bad], pa.binary())) is None


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([1, None], pa.int32()), 1),
        (pa.array([2**62 + 1], pa.int64()), 2**62 + 1),
        (pa.array([Decimal("0.1"), None], pa.decimal128(10, 2)), Decimal("0.1")),
        (pa.array([Decimal("-123456789012345.678")], pa.decimal128(18, 3)), Decimal("-123456789012345.678")),
        (pa.array([0.1], pa.float32()), float(np.float32(0.1))),
        (pa.array([7], pa.uint8()), 7),
    ],
    ids=["int", "bigint", "decimal", "long decimal", "float", "byte"],
)
def test_numbers_of_every_type_lie_in_their_box(array, value):
    files = files_of(PAIR, [PAIR.collect(array, pa.array([1.0] * len(array)))])
    assert kept(Q("=", LNG, Literal(value)), PAIR, files) == [True]
    assert kept(Q(">=", Cast(LNG, "double", "bigint"), Literal(float(value))), PAIR, files) == [True]
    assert kept(Q("<", LNG, Literal(value / 2 if value > 0 else value * 2)), PAIR, files) == [False]


def test_clusters_get_boxes_of_their_own():
    rng = np.random.default_rng(0)
    centres = np.array([(-120, 40), (10, 50), (140, -30)])
    rows = (centres[rng.integers(0, 3, 3000)] + rng.normal(0, 0.5, (3000, 2))).tolist()
    summary = PAIR.collect(*pairs([tuple(r) for r in rows]))
    assert 3 <= len(summary["boxes"]) <= 8
    area = sum((b["xmax"] - b["xmin"]) * (b["ymax"] - b["ymin"]) for b in summary["boxes"])
    assert area < 3 * 6 * 6
    assert len(GeoBox("lng", "lat", boxes=2).collect(*pairs([tuple(r) for r in rows]))["boxes"]) == 2


def test_clusters_beside_a_distant_point_get_boxes_of_their_own():
    near = np.random.default_rng(1).random((600, 2)) * 1e-5 + np.repeat([[1000.0], [1000.001]], 300, axis=0)
    first, *others = PAIR.collect(*pairs([(0, 0), *map(tuple, near.tolist())]))["boxes"]
    assert set(first.values()) == {0.0}
    assert len(others) == 2
    for cluster, box in zip((near[:300], near[300:]), others, strict=True):
        assert (*cluster.min(axis=0), *cluster.max(axis=0)) == tuple(box.values())


def test_decimals_that_arrow_rounds_lie_in_their_box():
    """Arrow's cast of a decimal to double may be off by more than one rounding; Spark's is not."""
    rng = np.random.default_rng(0)
    exact = [Decimal(int(v)).scaleb(-6) for v in rng.integers(10**14, 10**15, 500)]
    values = pa.array(exact, pa.decimal128(18, 6))
    off = np.flatnonzero(values.cast(pa.float64()).to_numpy() != np.array([float(v) for v in exact]))[:20]
    assert len(off)
    for place in off.tolist():
        files = files_of(PAIR, [PAIR.collect(values[place : place + 1], pa.array([1.0]))])
        for literal in (exact[place], float(exact[place])):
            assert kept(Q("=", LNG, Literal(literal)), PAIR, files) == [True]


def test_files_that_mix_clusters_are_read_nine_times_less():
    rng = np.random.default_rng(5)
    one = GeoBox("lng", "lat", boxes=1).bind((LNG, LAT))
    files = []
    for _ in range(120):
        centres = np.column_stack([rng.uniform(-170, 170, 3), rng.uniform(-80, 80, 3)])
        files.append([tuple(p) for p in (centres[rng.integers(0, 3, 60)] + rng.normal(0, 0.5, (60, 2))).tolist()])
    queries = [call("ST_Contains", shapely.Point(x, y).buffer(4), POINT) for x, y in rng.uniform(-75, 75, (40, 2))]
    by_one, by_some = collected(one, files), collected(PAIR, files)
    read = [sum(sum(kept(q, i, f)) for q in queries) for i, f in ((one, by_one), (PAIR, by_some))]
    assert read[0] > 9 * read[1] > 0


@pytest.mark.parametrize("count", [20, 2000])  # single rows are cut, or cells of a grid
def test_every_box_lies_in_one_of_those_chosen(count):
    rng = np.random.default_rng(2)
    x, y = rng.choice([0, 50, 90], (2, count)) + rng.random((2, count))
    width, height = rng.exponential(1, (2, count))
    found = split(Boxes(x - width, y - height, x + width, y + height), 4)
    assert len(found) == 4
    for box in zip(x - width, y - height, x + width, y + height, strict=True):
        assert found.contains(Envelope(*box)).any()


def test_even_data_keep_one_box():
    rng = np.random.default_rng(0)
    x, y = pa.array(rng.uniform(0, 1, 5000)), pa.array(rng.uniform(0, 1, 5000))
    assert len(PAIR.collect(x, y)["boxes"]) == 1


def test_a_merge_adds_counts_unites_types_and_caps_boxes():
    parts = [SHAPES.collect(*geometries([f"POINT ({i * 10} 0)", None])) for i in range(20)]
    parts.append(SHAPES.collect(*geometries([BOX])))
    merged = SHAPES.merge(parts)
    assert len(merged["boxes"]) <= 8
    assert (merged["rows"], merged["nulls"], merged["types"]) == (41, 20, 1 << 1 | 1 << 3)
    assert SHAPES.merge([parts[0]]) == parts[0]


@pytest.mark.parametrize("extent", [5e-324, 1e-300, 1e300, 1.7e308])
def test_absurd_extents_are_covered(extent):
    rows = [(0.0, 0.0), (extent, extent), (-extent, 0.0)]
    files = collected(PAIR, [rows])
    for x, y in rows:
        assert kept(call("ST_Intersects", POINT, shapely.Point(x, y)), PAIR, files) == [True]


# ---- specifications


def test_a_specification_is_its_text():
    assert str(GeoBox("ST_GeomFromWKB(geom)")) == "geobox(ST_GeomFromWKB(geom))"
    assert str(GeoBox("lng", "lat", boxes=3)) == "geobox(lng, lat, boxes=3)"
    for spec in (GeoBox("lng", "lat"), GeoBox("g", boxes=1)):
        assert index_from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(("lng", 4), {}), (("",), {}), (("g",), {"boxes": 0}), (("g",), {"boxes": 2.5}), (("g",), {"boxes": True})],
)
def test_a_senseless_specification_is_refused(arguments, options):
    with pytest.raises(InvalidSpecificationError):
        GeoBox(*arguments, **options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            SourceColumn("geom", "binary", pa.binary()),
            "geobox(geom) needs a geometry, got binary; index ST_GeomFromWKB(geom) instead",
        ),
        (SourceColumn("a.`my geom`", "binary", pa.binary()), "index ST_GeomFromWKB(a.`my geom`) instead"),
        (SourceColumn("geom", "string", pa.string()), "index ST_GeomFromText(geom) instead"),
        (SourceColumn("geom", "double", pa.float64()), "needs a geometry, got double"),
    ],
)  # fmt: skip
def test_what_is_no_geometry_is_refused_with_the_way_out(column, message):
    with pytest.raises(UnsupportedColumnError) as error:
        GeoBox("geom").metadata_type(column)
    assert message in str(error.value)


def test_what_is_no_number_is_refused():
    good, bad = SourceColumn("a", "decimal(10,2)", pa.decimal128(10, 2)), SourceColumn("b", "string", pa.string())
    GeoBox("a", "b").metadata_type(good, good)
    with pytest.raises(UnsupportedColumnError, match="needs two numbers, got string for b"):
        GeoBox("a", "b").metadata_type(good, bad)


def test_geometry_expressions_are_accepted():
    GeoBox("geom").metadata_type(SourceColumn("geom", "geometry", pa.binary()))
    GeoBox("f").metadata_type(SourceColumn("ST_GeomFromWKB(geom)", "binary", pa.binary()))


def test_clauses_read_as_sentences_and_name_their_metadata():
    clause = all_of([PAIR.meets(shapely.Point(1, 2)), PAIR.compares(0, ">", 5)])
    assert str(clause) == "(geobox(lng, lat): a box meets POINT (1 2) AND geobox(lng, lat): a box has x > 5)"
    assert ("geobox(lng, lat)", "boxes") in clause.columns()


def test_an_index_reads_what_denotes_its_own_geometry():
    for same in (POINT, call("ST_SetSRID", POINT, 4326)):
        assert PAIR.reads(same)
    for other in (call("ST_Point", LAT, LNG), call("ST_Boundary", POINT), LNG):
        assert not PAIR.reads(other)
    assert [SHAPES.reads(GEOM), SHAPES.reads(Column("other"))] == [True, False]
