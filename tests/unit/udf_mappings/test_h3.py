"""H3 cells, mapped: no place of a cell is lost, wherever it is on the globe, and files far from it are skipped."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h3
import h3.api.basic_int
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
import udf_mappings.h3 as library
import udf_mappings.spark_sql  # noqa: F401  (array_contains is Spark's)
from geoskip.indexes.affix import Prefix
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.predicates import Column, Comparison, In, Literal, Predicate
from tests.conftest import SOAK, same_as_off
from tests.support.geobox_oracle import call
from tests.support.mapped import files_kept, kept, metadata, python, spark
from tests.support.strategies import some_of

LAT, LNG, CELL = Column("lat", "double"), Column("lng", "double"), Column("cell", "string")
PAIR = GeoBox("lng", "lat").bind((LNG, LAT))
Place = tuple[float, float]


def places(seed: int, number: int) -> Iterator[Place]:
    """Latitudes and longitudes: all over the globe, and often at pentagons, poles and the antimeridian."""
    draw = random.Random(seed)
    pentagons = [h3.cell_to_latlng(cell) for cell in h3.get_pentagons(4)]
    for _ in range(number):
        near = 10 ** draw.uniform(-5, 1)
        latitude, longitude = draw.choice(
            [
                (math.degrees(math.asin(draw.uniform(-1, 1))), draw.uniform(-180, 180)),
                draw.choice(pentagons),
                (draw.choice((-90.0, 90.0)), draw.uniform(-180, 180)),
                (draw.uniform(-80, 80), draw.choice((-180.0, 180.0))),
            ]
        )
        place = latitude + draw.uniform(-near, near), longitude + draw.uniform(-near, near)
        yield max(-90.0, min(90.0, place[0])), place[1]


def one_each(found: list[Place]) -> Any:
    """A file for each place."""
    return metadata(PAIR, [(pa.array([lng]), pa.array([lat])) for lat, lng in found], ("double", "double"))


FOUND = list(places(1, 900))
FILES = one_each(FOUND)


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("function", library.PLACES, ids=lambda f: f"{f.__module__}.{f.__name__}")
@pytest.mark.parametrize("resolution", [0, 1, 4, 9, 15])
def test_a_place_is_in_the_circle_of_its_cell(function: Any, resolution: int) -> None:
    skipped, some = 0, some_of(range(0, len(FOUND), 10), 4)
    for number in some:
        lat, lng = FOUND[number]
        cell = function(lat, lng, resolution)
        asked = Comparison("=", python(function, LAT, LNG, resolution), Literal(cell))
        answer = kept(asked, PAIR, FILES)
        assert answer[number], (lat, lng, cell)
        skipped += answer.count(False)
    assert skipped > len(FILES) * len(some) * (0.6 if resolution == 0 else 0.9)


def across_the_icosahedron() -> list[str]:
    """Cells with more corners than six: an edge of the icosahedron bends their sides."""
    cells = {h3.latlng_to_cell(lat, lng, resolution) for resolution in (1, 3, 5) for lat, lng in places(4, 2000)}
    return sorted(cell for cell in cells if len(h3.cell_to_boundary(cell)) > 6)


def drawn_to(place: Place, centre: Place, share: float) -> Place:
    """The place with so much of its distance from another (on small cells, away from the antimeridian)."""
    return centre[0] + share * (place[0] - centre[0]), centre[1] + share * (place[1] - centre[1])


def test_a_place_beyond_a_side_of_its_cell_is_not_in_it() -> None:
    cell = "851f8caffffffff"
    centre, corners = h3.cell_to_latlng(cell), h3.cell_to_boundary(cell)
    middles = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in itertools.pairwise(corners)]
    near = [drawn_to(place, centre, share) for place in middles for share in (0.999, 1.05)]
    asked = Comparison("=", python(h3.latlng_to_cell, LAT, LNG, 5), Literal(cell))
    assert kept(asked, PAIR, one_each(near)) == [True, False] * len(middles)
    assert kept(asked, PAIR, one_each([drawn_to(corner, centre, 0.999) for corner in corners])) == [True] * len(corners)


def test_a_side_with_corners_beyond_it_is_moved_or_left_out() -> None:
    """The mutant: halves of the globe to the very side lose places of cells that are not convex."""
    bent, lost = across_the_icosahedron()[:40], 0
    assert len(bent) == 40
    for cell in bent:
        resolution, centre = h3.get_resolution(cell), h3.cell_to_latlng(cell)
        inner = [drawn_to(corner, centre, 1 - 1e-9) for corner in h3.cell_to_boundary(cell)]
        own = [place for place in inner if h3.latlng_to_cell(*place, resolution) == cell]
        asked = Comparison("=", python(h3.latlng_to_cell, LAT, LNG, resolution), Literal(cell))
        assert all(kept(asked, PAIR, one_each(own))) if own else True
        corners = np.array([library._vector(*corner) for corner in h3.cell_to_boundary(cell)])
        poles = np.cross(corners, np.roll(corners, -1, axis=0))
        within = np.array([library._vector(*place) for place in own]).reshape(-1, 3) @ poles.T
        lost += bool((within < -1e-9 * np.linalg.norm(poles, axis=1)).any())
    assert lost > 0


@pytest.mark.parametrize(("parent", "child"), [(0, 3), (1, 15), (3, 9), (6, 8), (9, 9)])
def test_a_place_is_in_the_circle_of_its_cells_ancestor(parent: int, child: int) -> None:
    for number, (lat, lng) in enumerate(FOUND[::10]):
        cell = python(library.h3_latlng_to_cell, LAT, LNG, child)
        ancestor = h3.cell_to_parent(h3.latlng_to_cell(lat, lng, child), parent)
        asked = In(python(library.h3_cell_to_parent, cell, parent), (Literal(ancestor), Literal("83194afffffffff")))
        assert kept(asked, PAIR, FILES)[10 * number], (lat, lng, ancestor)


def test_the_circle_of_the_corners_is_too_small_for_descendants() -> None:
    """The mutant of the rule above: with the cell's own circle, places of its descendants are lost."""
    draw, lost = random.Random(3), 0
    for _ in range(8):
        cell = h3.latlng_to_cell(math.degrees(math.asin(draw.uniform(-0.9, 0.9))), draw.uniform(-180, 180), 3)
        centre, angle = library.circle(cell, 1.0)
        for low in h3.cell_to_children(cell, 6):
            corners = h3.cell_to_boundary(low)
            farthest = max(h3.great_circle_distance((centre.y, centre.x), c, unit="rads") for c in corners)
            assert farthest < library.circle(cell, library._SPREAD)[1]
            lost += farthest > angle
    assert lost > 0


def test_many_cells_become_fewer_and_larger_ones() -> None:
    cells = h3.grid_disk("891f8cac003ffff", 20)
    asked = In(python(h3.latlng_to_cell, LAT, LNG, 9), tuple(map(Literal, cells)))
    inside = [h3.cell_to_latlng(cell) for cell in cells[::7]]
    answer = kept(asked, PAIR, one_each([*inside, (48.4, 12.0)]))
    assert answer == [*[True] * len(inside), False]


def test_as_many_coarser_cells_stand_for_their_descendants() -> None:
    """Of 65 cells in a base cell each, 65 base cells are made: places in these cells leave the circles of those."""
    bases = sorted(h3.get_res0_cells(), key=lambda cell: h3.cell_to_latlng(cell)[0])[:65]
    base, leaving = "8073fffffffffff", "8473249ffffffff"
    place = h3.cell_to_latlng(leaving)
    circles = [library.circle(cell, 1.0) for cell in bases]
    assert all(h3.great_circle_distance(place, (c.y, c.x), unit="rads") > angle for c, angle in circles)
    cells = [leaving if cell == base else h3.cell_to_center_child(cell, 4) for cell in bases]
    assert leaving in cells
    asked = In(python(h3.latlng_to_cell, LAT, LNG, 4), tuple(map(Literal, cells)))
    assert kept(asked, PAIR, one_each([place, (80.0, 0.0)])) == [True, False]


# ---- over the id


def cells_of(resolution: int, kind: type = str) -> list[Any]:
    return [h3.latlng_to_cell(lat, lng, resolution) for lat, lng in FOUND[::9]]


@pytest.mark.slow
@pytest.mark.parametrize("index", [MinMax("cell"), Prefix("cell", length=6), ValueList("cell")], ids=str)
@pytest.mark.parametrize("parent", [0, 2, 5])
def test_ids_of_descendants_are_an_interval_at_each_resolution(index: Any, parent: int) -> None:
    bound = index.bind((CELL,))
    ids = [cell for resolution in (0, 1, 2, 5, 9, 15) for cell in cells_of(resolution)[:40]]
    files = metadata(bound, [(pa.array([cell]),) for cell in ids], ("string",))
    skipped = 0
    for cell in ids[::6]:
        if h3.get_resolution(cell) < parent:
            continue
        ancestor = h3.cell_to_parent(cell, parent)
        answer = kept(Comparison("=", python(library.h3_cell_to_parent, CELL, parent), Literal(ancestor)), bound, files)
        for other, keeps in zip(ids, answer, strict=True):
            assert keeps or library.h3_cell_to_parent(other, parent) != ancestor
        skipped += answer.count(False)
    assert skipped > 0


def test_the_package_takes_ids_in_any_spelling_so_a_column_of_them_is_kept() -> None:
    bound = MinMax("cell").bind((CELL,))
    files = metadata(bound, [(pa.array(["891F8CAC003FFFF"]),)], ("string",))
    asked = {f: Comparison("=", python(f, CELL, 3), Literal("831f8cfffffffff")) for f in library.PARENTS[:2]}
    assert h3.cell_to_parent("891F8CAC003FFFF", 3) == "831f8cfffffffff"
    assert library.h3_cell_to_parent("891F8CAC003FFFF", 3) is None
    assert [kept(node, bound, files) for node in asked.values()] == [[False], [True]]


def test_the_package_makes_disks_of_ids_in_any_spelling() -> None:
    bound = MinMax("cell").bind((CELL,))
    centre = "891f8cac003ffff"
    files = metadata(bound, [(pa.array([centre.upper()]),), (pa.array(["891f8d4a003ffff"]),)], ("string",))
    assert centre in h3.grid_disk(centre.upper(), 1)
    for function, expected in ((h3.grid_disk, [True, True]), (library.h3_grid_disk, [False, False])):
        disk = python(function, CELL, 1, type="array<string>")
        assert kept(spark("ArrayContains", "array_contains", disk, centre), bound, files) == expected


def polygons(seed: int, number: int) -> Iterator[shapely.Polygon]:
    draw = np.random.default_rng(seed)
    for _ in range(number):
        lng, lat = draw.uniform(-200, 200), draw.uniform(-70, 70)
        size = 10 ** draw.uniform(-2, 1)
        angles = np.sort(draw.uniform(0, 2 * np.pi, 7))
        reach = draw.uniform(0.2, 1, 7) * size
        shape = shapely.Polygon(np.c_[lng + reach * np.cos(angles), lat + reach * np.sin(angles)])
        if shape.is_valid:
            yield shape


@pytest.mark.slow
@pytest.mark.parametrize("resolution", [1, 4, 9])
def test_a_point_in_a_polygon_has_a_cell_in_its_cover(resolution: int) -> None:
    cell = python(library.h3_latlng_to_cell, LAT, LNG, resolution)
    index = ValueList("h3_latlng_to_cell(lat, lng, 9)").bind((cell,))
    draw = np.random.default_rng(5)
    for shape in polygons(resolution, 12):
        west, south, east, north = shape.bounds
        found = shapely.points(draw.uniform(west, east, 60), draw.uniform(south, north, 60))
        inside = [p for p in [*found, *shapely.get_parts(shapely.extract_unique_points(shape))] if shape.intersects(p)]
        far = shapely.Point((west + east) / 2 + 90, -south)
        ids = [library.h3_latlng_to_cell(p.y, p.x, resolution) for p in [*inside, far]]
        files = metadata(index, [(pa.array([one]),) for one in ids], ("string",))
        answer = kept(call("ST_Contains", shape, call("ST_Point", LNG, LAT)), index, files)
        assert all(answer[:-1]), shape
        assert not answer[-1] or resolution == 1


@pytest.mark.parametrize(
    "shape",
    [
        shapely.box(0, 80, 10, 89),
        shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)]),
        shapely.Point(1, 1),
        shapely.Polygon(),
    ],
    ids=["near a pole", "invalid", "no polygon", "empty"],
)
def test_what_has_no_cover_keeps(shape: shapely.Geometry) -> None:
    assert library.polygon_cells(shape, 5) is None


# ---- disks and covers


def test_disks_and_covers_are_lists_of_cells() -> None:
    cell = python(library.h3_latlng_to_cell, LAT, LNG, 9)
    centre = h3.latlng_to_cell(48.4, 10.0, 9)
    near, far = h3.cell_to_latlng(sorted(h3.grid_ring(centre, 3))[0]), (48.4, 10.2)
    files = one_each([near, far])
    disk = python(library.h3_grid_disk, centre, 3, type="array<string>")
    around = python(h3.grid_disk, cell, 3, type="array<string>")
    cover = python(library.h3_polygon_cover, shapely.box(9.98, 48.38, 10.02, 48.42).wkt, 9, type="array<string>")
    asked: list[Predicate] = [
        spark("ArrayContains", "array_contains", disk, cell),
        spark("ArrayContains", "array_contains", around, centre),
        spark("ArrayContains", "array_contains", cover, cell),
        Comparison("=", cell, python(h3.latlng_to_cell, near[0], near[1], 9)),
    ]
    assert [kept(node, PAIR, files) for node in asked] == [[True, False]] * len(asked)


def test_steps_of_a_disk_go_both_ways_at_pentagons_too() -> None:
    for pentagon in h3.get_pentagons(3)[:4]:
        for cell in h3.grid_disk(pentagon, 3):
            assert all(cell in h3.grid_disk(other, 2) for other in h3.grid_disk(cell, 2))


# ---- through Spark


@pytest.fixture(scope="module")
def airports(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The airports of the United States in files from west to east."""
    place = tmp_path_factory.mktemp("h3") / "airports"
    place.mkdir()
    table = pq.read_table("datasets/airports.parquet").sort_by("lng")
    step = -(-len(table) // 20)
    for number in range(20):
        pq.write_table(table.slice(number * step, step), place / f"part-{number:02}.parquet")
    geoskip.register_functions(spark)
    spark.udf.register("place_to_cell", h3.api.basic_int.latlng_to_cell, "bigint")
    geoskip.dataset(spark, str(place)).create_index(GeoBox("lng", "lat"), ValueList("h3_latlng_to_cell(lat, lng, 4)"))
    return place


@pytest.mark.slow
@pytest.mark.spark
def test_conditions_on_cells_read_few_files(spark: Any, airports: Path) -> None:
    cell, number = h3.latlng_to_cell(40.7, -74.0, 3), h3.api.basic_int.latlng_to_cell(40.7, -74.0, 4)
    fine = h3.latlng_to_cell(40.7, -74.0, 4)
    texas = "ST_GeomFromText('POLYGON ((-100 30, -97 30, -97 33, -100 33, -100 30))')"
    most = {
        f"h3_latlng_to_cell(lat, lng, 3) = '{cell}'": 2,
        f"place_to_cell(lat, lng, 4) IN ({number}, 5)": 2,
        f"h3_cell_to_parent(h3_latlng_to_cell(lat, lng, 4), 3) = '{cell}'": 2,
        f"array_contains(h3_grid_disk('{fine}', 2), h3_latlng_to_cell(lat, lng, 4))": 3,
        "array_contains(h3_polygon_cover('POLYGON ((-74 40, -73 40, -73 41, -74 40))', 4), "
        "h3_latlng_to_cell(lat, lng, 4))": 4,
        f"ST_Contains({texas}, ST_Point(lng, lat))": 5,
        "h3_latlng_to_cell(lat, lng, 4) = h3_latlng_to_cell(40.7, -74.0, 4)": 2,
    }
    found = files_kept(spark.read.parquet(str(airports)), most)
    assert all(1 <= found[text] <= files for text, files in most.items()), found


@pytest.mark.slow
@pytest.mark.spark
def test_the_packages_own_functions_decide_many_listed_cells(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are called in the driver, within the budget, and where no process can be asked as workers would.

    Of 20,000 cells in the ordinary run, of 100,000 in ``make soak``.
    """
    draw, many = np.random.default_rng(7), 100_000 if SOAK else 20_000
    part = many // 20
    found = {h3.latlng_to_cell(*place, 9) for place in draw.uniform((-60, -180), (60, 180), (many + 1000, 2))}
    cells = [cell.upper() if number % (part // 5) == 0 else cell for number, cell in enumerate(sorted(found)[:many])]
    place = tmp_path / "cells"
    place.mkdir()
    for number in range(20):
        here = cells[part * number : part * number + part]
        pq.write_table(pa.table({"cell": here, "line": [f"{one},x" for one in here]}), place / f"{number:02}.parquet")
    first = "substring_index({}, ',', 1)"
    geoskip.dataset(spark, str(place)).create_index(ValueList("cell"), Formatted("line", extract=first))
    spark.udf.register("parent", h3.cell_to_parent, "string")
    spark.udf.register("middle", h3.cell_to_center_child, "string")
    spark.udf.register("another", lambda cell, at: h3.cell_to_parent(cell, at), "string")
    spark.read.parquet(str(place)).createOrReplaceTempView("cells")
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    one = cells[62 * many // 100]  # in upper case
    ancestor, middle = h3.cell_to_parent(one, 3), h3.cell_to_center_child(one, 11)
    within = sorted({number // part for number, cell in enumerate(cells) if h3.cell_to_parent(cell, 3) == ancestor})
    asked = {
        f"parent(cell, 3) = '{ancestor}'": len(within),
        f"parent(substring_index(line, ',', 1), 3) IN ('{ancestor}', 'x')": len(within),
        f"middle(cell, 11) = '{middle}'": 1,
        f"another(cell, 3) = '{ancestor}'": 20,
    }
    assert len(within) < 4
    for where, files in asked.items():
        report = same_as_off(lambda where=where: spark.sql(f"SELECT * FROM cells WHERE {where}"))
        assert (report.files_kept, report.files_total) == (files, 20), where
    assert any("other machines" in reason for reason in report.reasons)
