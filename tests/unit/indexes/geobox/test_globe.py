"""Angles between points and boxes on the sphere bound the distances of all points in the box."""

from __future__ import annotations

import math

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.clauses import keep_mask
from geoskip.geometry import Boxes
from geoskip.geometry.shapes import ROUNDING, Shape
from geoskip.indexes.geobox import globe
from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import Column, Comparison, Literal
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, files_of, geometries, kept
from tests.support.geometry_corpora import sedonas
from tests.support.strategies import examples

longitude = st.one_of(st.sampled_from([-180.0, -90.0, 0.0, 90.0, 180.0, 270.0, 360.0]), st.floats(-360, 360))
latitude = st.one_of(st.sampled_from([-90.0, -45.0, 0.0, 45.0, 90.0]), st.floats(-90, 90))
extent = st.one_of(st.sampled_from([0.0, 1.0, 180.0, 360.0, 400.0]), st.floats(0, 400))


@st.composite
def boxes(draw: st.DrawFn) -> Boxes:
    west, (south, north) = draw(longitude), sorted((draw(latitude), draw(latitude)))
    return Boxes.of([(west, south, west + draw(extent), north)])


def points_of(box: Boxes, count: int = 9) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.linspace(box.xmin[0], box.xmax[0], count), np.linspace(box.ymin[0], box.ymax[0], count))
    return x.ravel(), y.ravel()


def angles(x: np.ndarray, y: np.ndarray, lng: float, lat: float) -> np.ndarray:
    return globe.haversine(np.radians(y), math.radians(lat), np.radians(x - lng))


@given(boxes(), longitude, latitude)
@settings(max_examples=examples(500), deadline=None)
def test_no_point_of_a_box_is_nearer_or_farther_than_its_bounds(box, lng, lat):
    found = angles(*points_of(box), lng, lat)
    assert globe.lower_angle(box, lng, lat)[0] <= found.min() + 1e-7
    assert globe.upper_angle(box, lng, lat)[0] >= found.max() - 1e-7


@given(boxes(), longitude, latitude)
@settings(max_examples=examples(100), deadline=None)
def test_the_bounds_are_tight(box, lng, lat):
    steps = 181
    step = max(box.xmax[0] - box.xmin[0], box.ymax[0] - box.ymin[0]) / (steps - 1)
    found = angles(*points_of(box, steps), lng, lat)
    near = 2 * math.radians(step) + 1e-6
    assert globe.lower_angle(box, lng, lat)[0] >= found.min() - near
    assert globe.upper_angle(box, lng, lat)[0] <= found.max() + near


@pytest.mark.parametrize(
    ("box", "place", "degrees"),
    [
        ((170, -10, 180, 10), (-175, 0), 5),  # across the antimeridian
        ((350, -10, 360, 10), (5, 0), 5),  # longitudes 0..360
        ((0, 80, 10, 85), (0, 90), 5),  # the pole
        ((0, 80, 0, 85), (180, 85), 10),  # over the pole
        ((0, 0, 10, 10), (5, 5), 0),  # inside
        ((-180, 50, 180, 60), (123, 40), 10),  # a belt
    ],
)
def test_distances_known_by_heart(box, place, degrees):
    assert math.degrees(globe.lower_angle(Boxes.of([box]), *place)[0]) == pytest.approx(degrees, abs=1e-5)


@given(boxes(), longitude, latitude, st.floats(0, math.pi))
@settings(max_examples=examples(200), deadline=None)
def test_windows_hold_every_box_that_comes_within(box, lng, lat, angle):
    if globe.lower_angle(box, lng, lat)[0] <= angle:
        farthest = max(abs(box.xmin[0]), abs(box.xmax[0]))
        assert any(box.intersects(window).all() for window in globe.windows(lng, lat, angle, farthest))


def test_geodesics_lie_between_the_bounds_of_the_spheroid():
    rng = np.random.default_rng(0)
    lng, lat = rng.uniform(-180, 180, (2, 20000)), np.degrees(np.arcsin(rng.uniform(-1, 1, (2, 20000))))
    lng[1, :5000], lat[1, :5000] = lng[0, :5000] + rng.normal(0, 1e-3, 5000), lat[0, :5000]
    metres = pyproj.Geod(ellps="WGS84").inv(lng[0], lat[0], lng[1], lat[1])[2]
    theta = globe.haversine(np.radians(lat[0]), np.radians(lat[1]), np.radians(lng[1] - lng[0]))
    assert (metres >= globe.SPHEROID_LEAST * theta * (1 - 1e-9)).all()
    assert (metres <= globe.SPHEROID_MOST * theta * (1 + 1e-9)).all()


def test_what_is_not_on_the_globe_is_known():
    there = globe.on_sphere(Boxes.of([(0, 0, 1, 1), (0, 80, 1, 91), (0, -91, 1, 0), (0, 0, 1e6, 1)]))
    assert there.tolist() == [True, False, False, False]


def test_angles_allow_for_the_rounding_of_haversine_near_the_antipode() -> None:
    exact = np.pi - np.array([1e-3, 1e-5, 1e-7, 0.0])
    rounded = globe.haversine(0.0, 0.0, exact)
    index = GeoBox("lng", "lat").bind([Column("lng", "double"), Column("lat", "double")])
    slack = index.comes_within_on(globe.Earth.of_radius(1.0), shapely.Point(0, 0), 1.0)._angular_slack(exact)
    assert (np.abs(rounded - exact) < slack).all()


def test_distances_allow_for_the_rounding_of_a_sliver_s_centroid() -> None:
    sliver = shapely.Polygon([(0, 0), (9, 9), (9, 9.0001)])
    centre, earth = Shape.of(sliver).centre, globe.Earth.of_radius(6_371_008.0)
    doubt = earth.most * math.radians(2 * centre.rounding)
    assert doubt > 1e-3
    index = GeoBox("lng", "lat").bind([Column("lng", "double"), Column("lat", "double")])
    assert index.comes_within_on(earth, sliver, 1000.0).distance == pytest.approx(1000 + doubt)
    assert index.goes_beyond_on(earth, sliver, 1000.0).distance == pytest.approx(1000 - doubt)


def test_boxes_of_geometries_are_grown_by_what_their_centroids_may_be_off() -> None:
    around, earth = (10.0, 20.0, 30.0, 40.0), globe.Earth.of_radius(1.0)
    for geometry, grown in ((shapely.box(*around), 2 * ROUNDING * 40), (shapely.Point(10, 20), 0.0)):
        index = GeoBox("g").bind([Column("g", "binary")])
        files = files_of(index, [index.collect(*geometries([geometry]))])
        clause = index.comes_within_on(earth, shapely.Point(0, 0), 1.0)
        units = clause.units(files)
        boxes = clause._centroid_boxes(units, np.array([0]))
        assert geometry.bounds[0] - boxes.xmin[0] == pytest.approx(grown)
        assert boxes.ymax[0] - geometry.bounds[3] == pytest.approx(grown)


@pytest.mark.parametrize(("degrees", "keeps"), [(5 - 4e-6, True), (5 - 1e-4, False)])
def test_windows_hold_boxes_that_a_centroid_may_leave(degrees: float, keeps: bool) -> None:
    index = GeoBox("g").bind([Column("g", "binary")])
    files = files_of(index, [index.collect(*geometries([shapely.box(10, -5, 30, 5)]))])
    clause = index.comes_within_on(globe.Earth.of_radius(1.0), shapely.Point(5, 0), math.radians(degrees))
    assert keep_mask(clause, files).tolist() == [keeps]


@pytest.mark.parametrize(("west", "keeps"), [(10 + 1e-6, True), (10 + 1e-4, False)])
def test_a_centroid_may_be_rounded_out_of_its_box(west: float, keeps: bool) -> None:
    within = call("ST_Within", call("ST_Centroid", GEOM), shapely.box(west, 0, 20, 10))
    assert kept(within, SHAPES, collected(SHAPES, [[shapely.box(0, 0, 10, 10)]])) == [keeps]


@pytest.mark.parametrize("row", [(0.0, -91.0), (0.0, 91.0), (-2e5, 0.0), (2e5, 0.0)])
@pytest.mark.parametrize("moved", [False, True])
def test_near_on_the_sphere_keeps_what_is_not_on_the_globe(row: tuple[float, float], moved: bool) -> None:
    point = call("ST_Point", LNG, LAT)
    point = sedonas("ST_Translate", point, 0.5, 0.5) if moved else point
    near = Comparison("<", call("ST_DistanceSphere", point, shapely.Point(50, 50)), Literal(1e3))
    assert kept(near, PAIR, collected(PAIR, [[row], [(0.0, 0.0)]])) == [True, False]
