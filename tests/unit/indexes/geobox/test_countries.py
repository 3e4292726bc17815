"""Real countries, one a file: metres between them, what is disjoint, and the distance to far, spread-out islands.

The files read are pinned, and none with a matching row is skipped.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely

from geoskip.indexes.geobox.index import GeoBox
from geoskip.metadata import FileMetadata
from geoskip.predicates import Comparison, Not, Predicate
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, kept, literal, matches

BORDERS = [row for row in pq.read_table("geoskip/plotting/borders.parquet").to_pylist() if row["level"] == "country"]
COUNTRIES = {row["name"]: shapely.from_wkb(row["geometry"]) for row in BORDERS}
FILES = collected(SHAPES, [[shape] for shape in COUNTRIES.values()])
ROWS = [[{"geom": row["geometry"]}] for row in BORDERS]
PLACES = {"Zurich": shapely.Point(8.5, 47.4), "Europe": shapely.box(-10, 36, 30, 70), **COUNTRIES}
ISLANDS = COUNTRIES["Japan"]
GRID = [
    [(float(x + dx), float(y + dy)) for dx, dy in itertools.product(range(5), repeat=2)]
    for x, y in itertools.product(range(-180, 180, 45), range(-80, 80, 20))
]
POINTS = collected(PAIR, GRID)
POINT = call("ST_Point", LNG, LAT)


def read(node: Predicate, index: GeoBox, files: FileMetadata, rows: list[list[dict[str, Any]]]) -> tuple[int, int]:
    """How many files a condition reads, and how many have a row for which it is TRUE: all of those are read."""
    needed = np.array([any(matches(node, row) for row in file) for file in rows])
    keeps = np.array(kept(node, index, files))
    assert not (needed & ~keeps).any(), node
    return int(keeps.sum()), int(needed.sum())


@pytest.mark.parametrize(
    ("place", "distance", "expected"),
    [
        ("Zurich", 200e3, (11, 2)),
        ("Zurich", 500e3, (19, 8)),
        ("Switzerland", 200e3, (11, 2)),
        ("Switzerland", 500e3, (19, 6)),
        ("Japan", 500e3, (6, 1)),
    ],
)
@pytest.mark.parametrize("function", ["ST_DistanceSphere", "ST_DistanceSpheroid", "ST_DWithin"])
def test_metres_between_polygons_read_few_of_many(
    function: str, place: str, distance: float, expected: tuple[int, int]
) -> None:
    """Three of those read are invalid: where their centroids are is not known."""
    if function == "ST_DWithin":
        node: Predicate = call(function, GEOM, PLACES[place], distance, True)
    else:
        node = Comparison("<=", call(function, PLACES[place], GEOM), literal(distance))
    assert len(ROWS) == 240
    assert read(node, SHAPES, FILES, ROWS) == expected


def test_far_on_the_globe_reads_few_of_many() -> None:
    distance = call("ST_DistanceSphere", GEOM, PLACES["Zurich"])
    assert read(Comparison(">", distance, literal(18e6)), SHAPES, FILES, ROWS) == (4, 1)


def test_what_crosses_a_side_of_a_constant_is_not_disjoint() -> None:
    apart = call("ST_Distance", GEOM, PLACES["Europe"])
    for node in (
        call("ST_Disjoint", PLACES["Europe"], GEOM),
        Not(call("ST_Intersects", GEOM, PLACES["Europe"])),
        Not(Comparison("=", apart, literal(0.0))),
        Comparison(">", apart, literal(0.0)),
    ):
        assert read(node, SHAPES, FILES, ROWS) == (196, 188)


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "near", "far"), [(3, 1, 64), (20, 3, 61), (100, 20, 45), (250, 48, 16)])
def test_the_parts_of_a_spread_out_shape_decide(distance: int, near: int, far: int) -> None:
    """Of 64 files exactly those with a match are read."""
    rows = [[{"lng": x, "lat": y} for x, y in file] for file in GRID]
    apart = call("ST_Distance", POINT, ISLANDS)
    assert read(Comparison("<=", apart, literal(float(distance))), PAIR, POINTS, rows) == (near, near)
    for node in (Comparison(">", apart, literal(float(distance))), Not(call("ST_DWithin", ISLANDS, POINT, distance))):
        assert read(node, PAIR, POINTS, rows) == (far, far)
