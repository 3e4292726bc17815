"""Distances on the globe, mapped: real airports, places at poles and the antimeridian, any ellipsoid and any radius."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
import udf_mappings.geodesy  # noqa: F401
from geoskip import GeoBox, MetricDist
from geoskip.predicates import Column, Comparison, Literal, Not
from tests.support.mapped import files_kept, kept, metadata, python
from udf_mappings import geodesy, metric_functions
from udf_mappings.geodesy import geodesic_bearing, geodesic_distance
from udf_mappings.metric_functions import haversine

LNG, LAT = Column("lng", "double"), Column("lat", "double")
PAIR = GeoBox("lng", "lat").bind((LNG, LAT))
METRIC = MetricDist("lng", "lat", metric=geodesic_distance)
KINDS = ("double", "double")
OPS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
PLACES = [(-73.8, 40.6), (179.9, -16.5), (-179.9, 52.0), (12.5, 89.9), (0.0, -90.0), (8.5, 47.4)]
UNITS: list[tuple[Any, list[Any], float]] = [
    (geodesic_distance, [], 1.0),
    (geodesic_distance, ["sphere"], 1.0),
    (geodesic_distance, ["clrk66"], 1.0),
    (geodesic_distance, ["plessis"], 1.0),
    (haversine, [], 1.0),
    (haversine, [3959.0], 1 / 1609.0),
    (haversine, [6371], 1 / 1000.0),
]


def groups() -> list[list[tuple[float | None, float | None]]]:
    """Places in groups that lie close together, some of them with NULLs."""
    table = pq.read_table("datasets/airports.parquet", columns=["lng", "lat"]).sort_by("lng").to_pylist()
    rows = [(row["lng"], row["lat"]) for row in table]
    draw = random.Random(4)
    found = [rows[start : start + 4] for start in range(0, len(rows), 60)]
    for lng, lat in PLACES:
        near = [(lng + draw.uniform(-1, 1), max(-90.0, min(90.0, lat + draw.uniform(-1, 1)))) for _ in range(3)]
        found.append([*near, (None, lat), (lng, None)])
    return found


GROUPS = groups()


def files_of(index: Any) -> Any:
    arrays = [tuple(pa.array(side, pa.float64()) for side in zip(*group, strict=True)) for group in GROUPS]
    return metadata(index, arrays, KINDS)


FILES = files_of(PAIR)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "rest", "unit"), UNITS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_no_place_is_lost_and_most_files_are_skipped(function: Any, rest: list[Any], unit: float) -> None:
    skipped = asked = 0
    for (lng, lat), metres in zip(PLACES, (2e4, 3e5, 2e6, 1e5, 9e6, 1.9e7), strict=True):
        for op, turned in ((op, turned) for op in OPS for turned in (False, True)):
            args = (Literal(lng), Literal(lat), LNG, LAT) if turned else (LNG, LAT, Literal(lng), Literal(lat))
            node = Comparison(op, python(function, *args, *rest, type="double"), Literal(metres * unit))
            answer = kept(node, PAIR, FILES)
            for group, keeps in zip(GROUPS, answer, strict=True):
                found = [function(x, y, lng, lat, *rest) for x, y in group]
                assert keeps or not any(d is not None and OPS[op](d, metres * unit) for d in found), (op, lng, lat)
            skipped += answer.count(False)
            asked += len(answer)
    assert skipped > 0.4 * asked


def test_one_radius_for_all_would_lose_rows() -> None:
    """The mutant: the spheroid is no sphere. In the tropics a degree of latitude is shorter than on any mean sphere."""
    mean = 6371008.0 * math.radians(1)
    assert geodesic_distance(0, 0, 0, 1) < mean - 500
    group = metadata(PAIR, [(pa.array([0.0]), pa.array([1.0]))], KINDS)
    node = Comparison("<", python(geodesic_distance, LNG, LAT, 0.0, 0.0, type="double"), Literal(mean - 500))
    assert kept(node, PAIR, group) == [True]


@pytest.mark.parametrize(
    "call",
    [
        python(geodesic_bearing, LNG, LAT, 0.0, 0.0, type="double"),
        python(geodesic_distance, LNG, LAT, 0.0, 0.0, "no such", type="double"),
        python(geodesic_distance, LNG, LAT, 0.0, 0.0, LNG, type="double"),
        python(geodesic_distance, LAT, LNG, 0.0, Literal(None), type="double"),
        python(haversine, LNG, LAT, 0.0, 0.0, -1.0, type="double"),
        python(haversine, LNG, LAT, 0.0, 91.0, type="double"),
    ],
    ids=str,
)
def test_what_says_nothing_keeps(call: Any) -> None:
    assert all(kept(Comparison("<", call, Literal(1.0)), PAIR, FILES))


@pytest.mark.parametrize("latitude", [90.5, math.nan, math.inf, None])
def test_what_is_no_place_has_no_distance(latitude: Any) -> None:
    assert geodesic_distance(0.0, latitude, 0.0, 0.0) is None
    assert geodesic_bearing(0.0, 0.0, 0.0, latitude) is None


def test_the_geodesic_is_a_metric_and_its_index_skips() -> None:
    rows = [row for group in GROUPS for row in group]
    sample = [pa.array(side, pa.float64()) for side in zip(*rows, strict=True)]
    index = METRIC.prepare(*sample).bind((LNG, LAT))
    lng, lat = PLACES[0]
    distance = python(geodesic_distance, LNG, LAT, lng, lat, type="double")
    files = files_of(index)
    for node, wanted in (
        (Comparison("<", distance, Literal(2e5)), lambda d: d < 2e5),
        (Not(Comparison("=", distance, Literal(1.0))), lambda d: d != 1),
    ):
        answer = kept(node, index, files)
        for group, keeps in zip(GROUPS, answer, strict=True):
            found = [geodesic_distance(x, y, lng, lat) for x, y in group]
            assert keeps or not any(d is not None and wanted(d) for d in found)
    assert kept(Comparison("<", distance, Literal(2e5)), index, files).count(False) > len(GROUPS) / 2


@pytest.mark.spark
def test_distances_through_spark(spark: Any, parts: Callable[..., Path]) -> None:
    geoskip.register_functions(spark)
    metric_functions.register(spark)
    columns = [
        {"lng": [x for x, y in group], "lat": [y for x, y in group]} for group in GROUPS if None not in group[-1]
    ]
    place = parts(*columns[::3])
    geoskip.dataset(spark, str(place)).create_index(GeoBox("lng", "lat"), METRIC)
    frame = spark.read.parquet(str(place))
    few = {
        "geodesic_distance(lng, lat, -73.8, 40.6) < 100000": 3,
        "geodesic_distance(-73.8D, 40.6D, lng, lat, 'GRS80') <= 100000": 3,
        "haversine(lng, lat, -73.8, 40.6, 3959) < 60": 3,
    }
    found = files_kept(frame, few)
    assert all(found[text] <= most for text, most in few.items()), found
    assert geodesy.FUNCTIONS.keys() == {"geodesic_distance", "geodesic_bearing"}
