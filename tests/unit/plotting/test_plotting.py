"""The picture of a scan, without an engine: what is drawn where, and what is said when it cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyproj
import pytest
import shapely
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from geoskip import GeoBox, MinMax, Scan
from geoskip import geometry as d
from geoskip.clauses import KEEP_ALL, Clause, all_of, any_of, keep_mask
from geoskip.errors import EnvironmentProblem, InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn
from geoskip.indexes.geobox.clauses import BoxTransform
from geoskip.indexes.geobox.index import Earth, GeometryThroughIndex
from geoskip.indexes.geobox.units import BoxFacts
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.planner import Decision
from geoskip.plotting import KEPT, SEA, SKIPPED, plot_map
from geoskip.plotting.drawing import Limit, limits_of, shapes_of
from geoskip.predicates import Column, Comparison, Literal

LNG, LAT = Column("lng", "double"), Column("lat", "double")
Place = tuple[float, float] | None
PLACES: list[Place] = [(-95.0, 30.0), (-88.0, 42.0), (-75.0, 40.0), (-120.0, 37.0)]
"""A file around each: near Houston, Chicago, Philadelphia and San Francisco."""
NEAR_CHICAGO = shapely.box(-90, 41, -87.8, 43)


def entry_of(index: Index, *columns: Column) -> IndexEntry:
    pairs = tuple((column.name, column.type or "") for column in columns)
    type_ = index.metadata_type(*(SourceColumn(name, kind, pa.float64()) for name, kind in pairs))
    return IndexEntry(index.bind(list(columns)), pairs, type_, {})


ENTRY = entry_of(GeoBox("lng", "lat", boxes=1), LNG, LAT)
INDEX: Any = ENTRY.index


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    mpl.use("agg")
    yield
    pyplot.close("all")


def snapshot_of(places: Sequence[Place]) -> Snapshot:
    """A file of four rows, the corners of a degree, around each place; rows without a place for None."""
    rows = []
    for number, place in enumerate(places):
        x = [None] * 4 if place is None else [place[0] + dx for dx in (-0.5, 0.5, -0.5, 0.5)]
        y = [None] * 4 if place is None else [place[1] + dy for dy in (-0.5, -0.5, 0.5, 0.5)]
        summary = INDEX.collect(pa.array(x, pa.float64()), pa.array(y, pa.float64()))
        rows.append(FileRow(f"p{number}.parquet", 1, 1, None, 4, {str(INDEX): summary}))
    return Snapshot(Header("file:/d", {}, (ENTRY,)), FileMetadata.of(build_table([ENTRY], rows)))


def drawn(clause: Clause | None, places: Sequence[Place] = PLACES, found: Sequence[Any] = (), **options: Any) -> Any:
    """The axes that show what a clause keeps."""
    assert clause is not None
    snapshot = snapshot_of(places)
    keep = keep_mask(clause, snapshot.files)
    paths = np.array([f"file:/d/p{number}.parquet" for number in range(len(places))])
    scan = Scan(
        dataset="file:/d", predicate=options.pop("condition", ""), files_total=len(places),
        files_kept=int(keep.sum()), bytes_total=0, bytes_kept=0,
        paths=lambda kept: paths[keep == kept].tolist(),
        decisions=lambda: (Decision(snapshot, Column("q"), clause, keep),),
        rows=lambda expressions, most: list(found)[:most],
    )  # fmt: skip
    return scan.plot_map(**options)


def boxes_in(ax: Any, colour: str) -> set[tuple[float, ...]]:
    """The boxes drawn in a colour, by their bounds."""
    groups = [group for group in ax.collections if isinstance(group, PolyCollection) and group.get_paths()]
    ours = [group for group in groups if to_hex(group.get_edgecolor()[0]) == colour]
    return {shapely.Polygon(path.vertices).bounds for group in ours for path in group.get_paths()}


def said(ax: Any) -> list[str]:
    """The words of the legend."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_kept_and_skipped_files_are_told_apart() -> None:
    ax = drawn(INDEX.meets(NEAR_CHICAGO), extent="all", condition="ST_Contains(...)")
    assert boxes_in(ax, KEPT) == {(-88.5, 41.5, -87.5, 42.5)}
    assert boxes_in(ax, SKIPPED) == {(x - 0.5, y - 0.5, x + 0.5, y + 0.5) for x, y in (PLACES[0], PLACES[2], PLACES[3])}
    assert said(ax) == ["skipped: 3 files", "kept: 1 file", "the query"]
    assert ax.get_title("left") == "d: 1 of 4 files kept\nST_Contains(...)"


def test_a_map_has_land_beneath_and_true_proportions() -> None:
    ax = drawn(INDEX.meets(NEAR_CHICAGO))
    assert to_hex(ax.get_facecolor()) == SEA
    assert ax.get_aspect() == pytest.approx(1 / np.cos(np.radians(42)), rel=0.01)
    west, east = ax.get_xlim()
    assert -95 < west < -90 < -87.8 < east < -80
    ax.figure.canvas.draw()
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels
    assert all(label.endswith("°W") for label in labels)


def test_coordinates_that_are_no_degrees_have_no_land_beneath() -> None:
    ax = drawn(INDEX.meets(shapely.Point(500_000, 4_000_000)), [(500_000, 4_000_000), (600_000, 4_100_000)])
    assert ax.get_aspect() == 1
    assert to_hex(ax.get_facecolor()) == "#ffffff"
    assert boxes_in(ax, KEPT) == {(499_999.5, 3_999_999.5, 500_000.5, 4_000_000.5)}


def test_polygons_of_ones_own_lie_beneath() -> None:
    county = shapely.box(-89, 41, -87, 43)
    ax = drawn(INDEX.meets(NEAR_CHICAGO), beneath=[county])
    first = ax.collections[0].get_paths()[0]
    assert shapely.Polygon(first.vertices).bounds == county.bounds


def test_matching_rows_are_dots_and_their_number_is_told() -> None:
    places = [(-88.0, 42.0), (-88.1, 42.1), (None, 42.0), (-88.2, float("nan"))]
    assert said(drawn(INDEX.meets(NEAR_CHICAGO), found=places))[-1] == "2 matching rows"
    many = [(-88.0, 42.0)] * 30
    assert said(drawn(INDEX.meets(NEAR_CHICAGO), found=many, rows=20))[-1] == "20 of the matching rows"
    assert said(drawn(INDEX.meets(NEAR_CHICAGO), found=many, rows=0))[-1] == "the query"


def test_rows_of_geometries_are_drawn_whole() -> None:
    shapes = [(bytes(shapely.to_wkb(shapely.box(-89, 41, -88, 42))),), (shapely.Point(-88, 42),), (None,)]
    assert said(drawn(INDEX.meets(NEAR_CHICAGO), found=shapes))[-1] == "2 matching rows"


def test_kept_files_without_a_box_are_told() -> None:
    ax = drawn(KEEP_ALL, [(-88.0, 42.0), None])
    assert said(ax) == ["kept: 2 files, 1 of them without a box"]
    assert len(boxes_in(ax, KEPT)) == 1


def test_a_box_of_one_point_can_be_seen() -> None:
    ((west, south, east, north),) = boxes_in(drawn(KEEP_ALL, [(-88.0, 42.0)], extent=(-1000, -500, 1000, 500)), KEPT)
    assert (east - west, north - south) == pytest.approx((8, 8))


def test_many_boxes_over_one_place_do_not_hide_it() -> None:
    stacked = [
        group for group in drawn(KEEP_ALL, [(-88.0, 42.0)] * 60).collections if isinstance(group, PolyCollection)
    ]
    assert [group.get_facecolor()[0][3] for group in stacked if group.get_paths()] == [0]


def test_of_many_files_a_few_far_away_do_not_set_the_frame() -> None:
    near: list[Place] = [(-90 + i % 20, 30 + i // 20) for i in range(200)]
    ax = drawn(KEEP_ALL, [*near, (144.8, 13.5)])
    assert ax.get_xlim()[1] < 0
    assert drawn(KEEP_ALL, [*near, (144.8, 13.5)], extent="all").get_xlim()[1] > 144


def test_the_frame_can_be_given() -> None:
    ax = drawn(INDEX.meets(NEAR_CHICAGO), extent=(-100, 30, -80, 50))
    assert (ax.get_xlim(), ax.get_ylim()) == ((-100, -80), (30, 50))
    with pytest.raises(InvalidSpecificationError, match=r'takes "query", "all" or \(west, south, east, north\), got'):
        drawn(INDEX.meets(NEAR_CHICAGO), extent="world")


def test_a_picture_can_be_a_part_of_another() -> None:
    _, (left, right) = pyplot.subplots(1, 2)
    assert drawn(INDEX.meets(NEAR_CHICAGO), ax=right) is right
    assert not left.collections


def test_the_coordinates_of_polygons_do_not_fill_the_title() -> None:
    wkt = shapely.to_wkt(shapely.Point(0, 0).buffer(1))
    ax = drawn(INDEX.meets(NEAR_CHICAGO), condition=f"ST_Contains(ST_GeomFromText('{wkt}'), ST_Point(lng, lat))")
    assert ax.get_title("left").splitlines()[1] == "ST_Contains(ST_GeomFromText('POLYGON (…)'), ST_Point(lng, lat))"


# ---- the shapes that a clause speaks of


def test_each_shape_of_a_clause_is_drawn_once() -> None:
    other = shapely.box(0, 0, 1, 1)
    clause = any_of([all_of([INDEX.meets(NEAR_CHICAGO), INDEX.leaves(other)]), INDEX.encloses(other)])
    assert [shape.bounds for shape in shapes_of(clause, INDEX)] == [NEAR_CHICAGO.bounds, other.bounds]


def test_a_distance_is_drawn_as_the_area_within() -> None:
    (area,) = shapes_of(INDEX.comes_within(shapely.Point(1, 2), 3), INDEX)
    assert area.bounds == pytest.approx((-2, -1, 4, 5))


def test_a_distance_on_the_globe_is_drawn_as_a_circle() -> None:
    chicago = (-87.65, 41.85)
    for earth, globe in ((Earth.of_radius(6371008.0), pyproj.Geod(a=6371008.0, b=6371008.0)), (Earth.wgs84(), None)):
        (circle,) = shapes_of(INDEX.comes_within_on(earth, shapely.Point(chicago), 50_000), INDEX)
        lng, lat = shapely.get_coordinates(circle).T
        geod = globe or pyproj.Geod(ellps="WGS84")
        metres = geod.inv(np.full(len(lng), chicago[0]), np.full(len(lng), chicago[1]), lng, lat)[2]
        assert metres == pytest.approx(np.full(len(lng), 50_000), abs=1)
    (beside,) = shapes_of(INDEX.comes_within_on(Earth.wgs84(), shapely.Point(179.9, 0), 50_000), INDEX)
    assert beside.bounds[2] > 180, "a circle over the antimeridian stays in one piece"
    (place,) = shapes_of(INDEX.goes_beyond_on(Earth.wgs84(), shapely.Point(chicago), 19_000_000), INDEX)
    assert place == shapely.Point(chicago), "what goes around half of the globe is no circle on a map"


def test_shapes_of_a_changed_geometry_are_changed_back() -> None:
    flipped = INDEX.sees(d.Point(LAT, LNG))
    (shape,) = shapes_of(flipped.meets(shapely.box(41, -90, 43, -86)), INDEX)
    assert shape.bounds == (-90, 41, -86, 43)


def test_compared_coordinates_are_lines() -> None:
    north, west = (
        INDEX.clause(Comparison(op, *pair)) for op, pair in ((">", (LAT, Literal(41.5))), ("<", (LNG, Literal(-80))))
    )
    facts = BoxFacts(d.Envelope(-180, -90, 180, 90))
    assert limits_of(all_of([north, west]), INDEX, facts) == [Limit(1, 41.5), Limit(0, -80.0)]
    moved = GeometryThroughIndex(INDEX, BoxTransform().flip_axes().shift(1.0, 0.0)).compares(0, "<", 43.0)
    (limit,) = limits_of(moved, INDEX, facts)
    assert (limit.axis, limit.value) == (1, pytest.approx(42.0))
    assert said(drawn(all_of([north, west]))) == ["skipped: 3 files", "kept: 1 file", "the query"]


# ---- what cannot be drawn


def test_a_scan_without_a_geobox_says_what_to_do() -> None:
    plain = Scan("file:/d", "a > 1", 4, 4, 0, 0)
    with pytest.raises(InvalidSpecificationError, match="nothing was decided for it; create one: "):
        plain.plot_map()
    entry = entry_of(MinMax("temp"), Column("temp", "double"))
    snapshot = Snapshot(Header("file:/d", {}, (entry,)), FileMetadata.of(build_table([entry], [])))
    decision = Decision(snapshot, Column("q"), KEEP_ALL, np.ones(0, dtype=bool))
    with pytest.raises(InvalidSpecificationError, match=r"needs the boxes of a GeoBox .* has only minmax\(temp\)"):
        plot_map([decision], [], [], lambda expressions, most: [], title="", condition="")


def test_an_index_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidSpecificationError, match=r"no index geobox\(geom\); .* of geobox\(lng, lat, boxes=1\)"):
        drawn(KEEP_ALL, index="geobox(geom)")


def test_without_its_library_a_map_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(EnvironmentProblem, match=r"matplotlib, which is not installed: pip install 'geoskip\[plot\]'"):
        drawn(KEEP_ALL)


def test_a_map_is_not_rendered_before_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering takes a second and more where a figure has several maps."""
    rendered: list[Any] = []
    monkeypatch.setattr(FigureCanvasAgg, "draw", rendered.append)
    drawn(INDEX.meets(NEAR_CHICAGO), found=[(-88.0, 42.0)])
    assert not rendered
