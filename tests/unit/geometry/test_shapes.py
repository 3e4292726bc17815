"""Shapes answer about themselves, not about their envelopes, and the raster agrees with the exact test."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.geometry import Boxes, Envelope
from geoskip.geometry.shapes import Raster, Shape
from tests.support.strategies import examples


def flower(vertices: int, seed: int, centre: tuple[float, float] = (10.0, 20.0)) -> shapely.Polygon:
    """A polygon with petals, a hole, and edges of very different lengths."""
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, vertices))
    radius = 10 * (1 + 0.4 * np.sin(5 * angle) + 0.03 * rng.standard_normal(vertices))
    shell = np.column_stack([centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)])
    hole = shapely.Point(centre).buffer(3, quad_segs=40)
    return shapely.make_valid(shapely.Polygon(shell)).difference(hole)


def around(envelope: Envelope, count: int, seed: int, widest: float) -> Boxes:
    rng = np.random.default_rng(seed)
    x = rng.uniform(envelope.xmin - 1, envelope.xmax + 1, count)
    y = rng.uniform(envelope.ymin - 1, envelope.ymax + 1, count)
    boxes = Boxes(x, y, x + rng.uniform(0, widest, count), y + rng.uniform(0, widest, count))
    return boxes.take(boxes.intersects(envelope))


@pytest.mark.parametrize("widest", [0.0, 0.05, 2.0, 30.0])
@pytest.mark.parametrize(("vertices", "seed"), [(320, 1), (1000, 2), (5000, 3)])
def test_the_raster_agrees_with_the_exact_test(vertices, seed, widest):
    shape = Shape.of(flower(vertices, seed))
    boxes = around(shape.envelope, 4000, seed, widest)
    assert shape._raster_for(boxes) is not None
    for fast, exact in (
        (shape.meets, shapely.intersects),
        (shape.covers, shapely.covers),
        (shape.holds_inside, shapely.contains_properly),
    ):
        assert (fast(boxes) == exact(shape.geometry, boxes.polygons())).all()


@given(
    st.integers(0, 10**6), st.sampled_from([3, 5, 8, 40, 300]), st.sampled_from([1e-6, 1.0, 1e5]), st.floats(-100, 100)
)
@settings(max_examples=examples(60), deadline=None)
def test_cells_are_what_the_raster_says(seed, vertices, size, offset):
    """Inside cells are covered, outside cells are not met; boundary cells may be anything."""
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, vertices))
    radius = rng.uniform(0.2, 1, vertices) * size
    polygon = shapely.Polygon(np.column_stack([radius * np.cos(angle) + offset, radius * np.sin(angle)]))
    if not polygon.is_valid or polygon.is_empty:
        return
    envelope = Envelope(*polygon.bounds)
    raster = Raster(polygon, envelope)
    x, y = rng.uniform(envelope.xmin, envelope.xmax, 300), rng.uniform(envelope.ymin, envelope.ymax, 300)
    counts = raster.counts(Boxes(x, y, x, y))
    point = shapely.points(x, y)
    assert shapely.covers(polygon, point[(counts.boundary == 0) & (counts.outside == 0)]).all()
    assert not shapely.intersects(polygon, point[(counts.boundary == 0) & (counts.inside == 0)]).any()


@pytest.mark.parametrize("extent", [1e-12, 1e-300, 5e-324])
def test_where_rounding_is_coarser_than_cells_there_is_no_raster(extent):
    sliver = shapely.Polygon([(100, 0), (100 + extent, 0), (100 + extent, 1), (100, 1)])
    for shape in (sliver, shapely.transform(sliver, lambda xy: xy[:, ::-1])):
        assert Raster.of(shape, Envelope(*shape.bounds)) is None


def test_a_wild_zigzag_gets_a_coarser_raster():
    teeth = np.arange(40_000)
    upper = np.column_stack([teeth % 2 * 1000.0 + teeth * 1e-3, teeth * 1.0])
    polygon = shapely.Polygon([*upper, (-5000, 40_000), (-5000, 0)])
    assert Raster.of(polygon, Envelope(*polygon.bounds)).size < 512


def test_a_box_at_a_vertex_is_that_point():
    line = Shape.of(shapely.LineString([(0, 1), (2, 3)]))
    boxes = Boxes.of([(0, 1, 0, 1), (2, 3, 2, 3), (0, 3, 0, 3), (1, 2, 1, 2), (0, 1, 2, 3)])
    assert line.has_vertex_at(boxes).tolist() == [True, True, False, False, False]


def test_a_hole_is_no_part_of_the_shape():
    ring = Shape.of(shapely.box(0, 0, 10, 10) - shapely.box(3, 3, 7, 7))
    boxes = Boxes.of([(4, 4, 6, 6), (2, 2, 4, 4), (1, 1, 2, 2)])
    assert ring.meets(boxes).tolist() == [False, True, True]
    assert ring.covers(boxes).tolist() == [False, False, True]


def test_the_boundary_is_met_and_covered_but_not_inside():
    box = Shape.of(shapely.from_wkt("POLYGON ((0 0, 10 0, 10 10, 5 12, 0 10, 0 0))"))
    touching = Boxes.of([(10, 4, 12, 6), (0, 0, 0, 0), (-1, -1, -0.5, -0.5)])
    assert box.meets(touching).tolist()[:2] == [True, True]
    assert box.holds_inside(Boxes.of([(0, 4, 1, 5), (1, 4, 2, 5)])).tolist() == [False, True]


def test_only_a_true_rectangle_is_its_envelope():
    assert Shape.of(shapely.box(0, 0, 1, 2)).is_box
    for other in (
        "POLYGON ((0 0, 1 1, 2 0, 1 -1, 0 0))",
        "POLYGON ((0 0, 2 0, 2 2, 1 2, 0 0))",
        "LINESTRING (0 0, 1 1)",
    ):
        assert not Shape.of(shapely.from_wkt(other)).is_box


def test_the_envelope_holds_a_hole_outside_the_shell():
    odd = shapely.Polygon([(0, 0), (1, 0), (1, 1)], [[(5, 5), (6, 5), (6, 6)]])
    shape = Shape.of(odd)
    assert (shape.valid, shape.envelope) == (False, Envelope(0, 0, 6, 6))


@pytest.mark.parametrize("value", [None, "POINT (1 1)", shapely.Point(), shapely.Point(np.inf, 1), 7])
def test_what_has_no_shape_is_none(value):
    assert Shape.of(value) is None


def test_a_shape_is_prepared_once():
    polygon = shapely.Point(3, 4).buffer(1)
    assert Shape.of(polygon) is Shape.of(shapely.to_wkb(polygon)) is Shape.of(shapely.set_srid(polygon, 4326))


@given(st.integers(0, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_distances_bound_those_of_all_points_in_a_box(seed):
    rng = np.random.default_rng(seed)
    q = (
        shapely.MultiPoint(rng.uniform(-5, 5, (4, 2))).convex_hull
        if seed % 2
        else shapely.Point(*rng.uniform(-5, 5, 2))
    )
    x, y, w, h = rng.uniform(-9, 9, 4)
    box = Boxes.of([(x, y, x + abs(w), y + abs(h))])
    points = shapely.points(rng.uniform(x, x + abs(w), 50), rng.uniform(y, y + abs(h), 50))
    apart = shapely.distance(q, points)
    assert Shape.of(q).farthest(box)[0] >= apart.max() - 1e-12
    assert Shape.of(q).comes_within(box, float(apart.min()))[0]
    least = float(shapely.distance(q, shapely.box(x, y, x + abs(w), y + abs(h))))
    if least > 1e-3:
        assert not Shape.of(q).comes_within(box, least * 0.999)[0]
