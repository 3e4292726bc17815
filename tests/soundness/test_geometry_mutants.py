"""Unsound rules of geometry (soundness rule 8), planted one by one: rows known to be awkward must catch each.

The rows and predicates are in :mod:`tests.support.geometry_corpora`; a mutant is caught where its clauses skip a file
with a matching row.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoskip.clauses import Files
from geoskip.geometry import Boxes, Envelope
from geoskip.geometry.shapes import Shape
from geoskip.indexes.geobox.clauses import BoxDiffers, BoxMeets, BoxTransform, margin
from geoskip.indexes.geobox.collect import is_near_its_box, lacks_coordinates
from geoskip.indexes.geobox.globe import Earth, haversine, lower_angle, windows
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import BoxUnits, UnitSort
from geoskip.predicates import Call, Comparison, Literal, Predicate
from tests.support.geometry_corpora import Corpus, elsewhere, geometries, globe, pairs, slivers
from tests.support.planting import Patch, attribute, before, function, listed, registered
from udf_mappings.sedona import distance_in_space, intersection_pattern, sides

MUTANTS: list[Any] = []


def mutant(rule: str, *corpora: Callable[[], Corpus]) -> Callable[[Patch], Patch]:
    """A mutant, the rule that it breaks, and the corpora one of which must catch it."""
    return listed(MUTANTS, rule, corpora)


# --- what is stored --------------------------------------------------------------------------------------------------


def _stored(patch: pytest.MonkeyPatch, **changes: Callable[[Any], Any]) -> None:
    def collect(original: Any, index: GeoBox, *values: Any) -> Any:
        found = original(index, *values)
        return found and {**found, **{name: change(found[name]) for name, change in changes.items() if name in found}}

    before(patch, GeoBox, "collect", collect)


@mutant("every row lies in a box", pairs)
def a_box_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, boxes=lambda boxes: boxes[:1])


@mutant("bounds are rounded outward", pairs)
def bounds_rounded_to_whole_degrees(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, boxes=lambda boxes: [{name: float(round(v)) for name, v in box.items()} for box in boxes])


@mutant("a hole may lie outside of its shell", geometries)
def boxes_of_envelope_functions(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: GeoBox, values: Any) -> Any:
        found = original(index, values)
        shapes = [shapely.from_wkb(g) for g in values.to_pylist() if g is not None]
        shells = [shapely.Polygon(s.exterior) if s.geom_type == "Polygon" and not s.is_empty else s for s in shapes]
        wkb = pa.array([shapely.to_wkb(s) for s in shells], pa.binary())
        return found and {**found, "boxes": original(index, wkb)["boxes"]}

    before(patch, GeoBox, "collect", collect)


@mutant("any non-finite coordinate keeps", geometries, pairs)
def non_finite_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, nonfinite=lambda count: 0)


@mutant("any non-finite coordinate keeps, of any part", elsewhere)
def only_points_lack_coordinates(patch: pytest.MonkeyPatch) -> None:
    def alone(original: Any, some: Any) -> Any:
        return (shapely.get_type_id(some) == 0) & shapely.is_empty(some)

    function(patch, lacks_coordinates, alone)


@mutant("Q with a part that is NaN keeps", elsewhere)
def a_constant_is_what_has_coordinates(patch: pytest.MonkeyPatch) -> None:
    def of(original: Any, value: Any) -> Any:
        there = shapely.get_coordinates(value)
        there = there[np.isfinite(there).all(axis=1)]
        return original(value if len(there) == shapely.count_coordinates(value) else shapely.MultiPoint(there))

    before(patch, Shape, "of", of)


@mutant("near and far: keep if any row is EMPTY", geometries)
def empty_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, empties=lambda count: 0)


@mutant("rows without a box are one more box", pairs)
def rows_with_one_null_coordinate_are_left_out(patch: pytest.MonkeyPatch) -> None:
    def column(original: Any, units: BoxUnits, name: str) -> Any:
        found = original(units, name)
        return np.where(found < UnitSort.WILD, -1, found) if name == "sort" else found

    before(patch, BoxUnits, "column", column)


# --- families --------------------------------------------------------------------------------------------------------


@mutant("touch is not to lie inside", geometries)
def touching_as_lying_inside(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Shape, "meets", lambda shape, boxes: boxes.inside(shape.envelope))


@mutant("cover: a box contains the envelope of Q", geometries)
def covering_as_lying_inside(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Boxes, "contains", Boxes.inside)


@mutant("boxes are tested for containment after growing", geometries)
def a_box_must_be_larger_than_what_it_holds(patch: pytest.MonkeyPatch) -> None:
    def strictly(boxes: Boxes, other: Envelope) -> Any:
        return (boxes.xmin < other.xmin - 1e-6) & (boxes.xmax > other.xmax + 1e-6)

    attribute(patch, Boxes, "contains", strictly)


@mutant("inside, negated: every box lies in Q itself, not in its envelope", geometries)
def inside_the_envelope_is_inside(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Shape, "covers", lambda shape, boxes: boxes.inside(shape.envelope))


@mutant("inside, open: every box lies in the interior of Q", geometries)
def the_boundary_is_contained(patch: pytest.MonkeyPatch) -> None:
    def covers(shape: Shape, boxes: Boxes) -> Any:
        return shapely.covers(shape.geometry, shapely.box(boxes.xmin, boxes.ymin, boxes.xmax, boxes.ymax))

    attribute(patch, Shape, "holds_inside", covers)


@mutant("NOT touch is no negated clause", geometries)
def disjoint_as_the_negation_of_touch(patch: pytest.MonkeyPatch) -> None:
    def keep_units(clause: BoxDiffers, files: Files) -> Any:
        return ~BoxMeets(clause.index, clause.counts, clause.view, clause.shape).keep_units(files)

    attribute(patch, BoxDiffers, "keep_units", keep_units)


@mutant("a geometry touches all sides of its box where no other shares it", geometries)
def one_of_several_touches_every_side(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxUnits, "has_one_geometry", lambda units, places: np.ones(len(places), dtype=bool))


@mutant("a geometry touches the sides of its box, nothing more", geometries)
def what_touches_a_corner_touches_all(patch: pytest.MonkeyPatch) -> None:
    def sides(boxes: Boxes) -> Any:
        return iter([Boxes(boxes.xmin, boxes.ymin, boxes.xmin, boxes.ymin)])

    attribute(patch, Boxes, "sides", sides)


@mutant("disjoint: what is near a vertex is not at it", geometries)
def nearly_at_a_vertex_is_at_it(patch: pytest.MonkeyPatch) -> None:
    def nearly(shape: Shape, boxes: Boxes) -> Any:
        points = shapely.points((boxes.xmin + boxes.xmax) / 2, (boxes.ymin + boxes.ymax) / 2)
        return (boxes.diagonal() == 0) & (shapely.distance(shape.geometry, points) < 1e-12)

    attribute(patch, Shape, "has_vertex_at", nearly)


@mutant("relate: only if the pattern forces II, IB, BI or BB", geometries)
def every_pattern_is_a_touch(patch: pytest.MonkeyPatch) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        pair = sides(node, index) if isinstance(node, Call) else None
        return pair and pair[0].meets(pair[1])

    registered(patch, intersection_pattern, rule)


@mutant("near: in space of points alone", elsewhere)
def a_plane_is_no_nearer_than_its_polygon(patch: pytest.MonkeyPatch) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        match node:
            case Comparison("<" | "<=", Call() as measured, Literal(d)) if pair := sides(measured, index):
                return pair[0].comes_within(pair[1], d)
        return None

    registered(patch, distance_in_space, rule)


@mutant("inside and far: keep if any row is invalid", elsewhere)
def invalid_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, invalid=lambda count: 0)


@mutant("Q invalid: only its envelope serves", elsewhere)
def an_invalid_constant_is_taken_for_a_valid_one(patch: pytest.MonkeyPatch) -> None:
    def of(original: Any, value: Any) -> Any:
        shape = copy.copy(original(value))
        shape.valid = True
        return shape

    before(patch, Shape, "of", of)


@mutant("near: the lower bound of the distance", geometries)
def near_by_the_farthest_point(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Shape, "comes_within", lambda shape, boxes, distance: shape.farthest(boxes) <= distance)


@mutant("far: the upper bound of the distance", geometries)
def far_by_the_nearest_point(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Shape, "farthest", lambda shape, boxes: shapely.distance(shape.geometry, boxes.polygons()))


@mutant("distances allow for rounding on the right side", geometries)
def a_margin_on_the_wrong_side(patch: pytest.MonkeyPatch) -> None:
    function(patch, margin, lambda original, scale, distance: -0.51 + 0 * original(scale, distance))


# --- seeing through, and the axes ------------------------------------------------------------------------------------


@mutant("axis order is bound to argument expressions", pairs)
def axes_by_position(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxTransform, "flip", property(lambda view: False, lambda view, value: None))


@mutant("shrinking is no identity", geometries)
def a_part_is_the_whole(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxTransform, "inner_view", lambda view: view)


@mutant("an end of a line does not touch the sides of its box", elsewhere)
def an_end_is_the_whole(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxTransform, "vertex", lambda view: view)


@mutant("a buffer grows the box", geometries)
def a_buffer_is_what_it_surrounds(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxTransform, "grow", lambda view, radius: view)


# --- the globe -------------------------------------------------------------------------------------------------------


@mutant("the radius is the function's own", globe)
def every_earth_in_metres(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Earth, "of_radius", classmethod(lambda cls, radius: cls(6371008.0, 6371008.0)))


@mutant("right across the antimeridian", globe)
def longitudes_end_at_180(patch: pytest.MonkeyPatch) -> None:
    function(patch, windows, lambda original, x, y, angle, farthest: [_square(x, y, math.degrees(angle) + 1)])


@mutant("right at the poles", globe)
def degrees_are_equally_long(patch: pytest.MonkeyPatch) -> None:
    def turned(original: Any, x: float, y: float, angle: float, farthest: float) -> list[Envelope]:
        return [_square(x + turn, y, math.degrees(angle) + 1) for turn in range(-1080, 1081, 360)]

    function(patch, windows, turned)


@mutant("a box's nearest point may lie within its edge", globe)
def the_nearest_corner_is_nearest(patch: pytest.MonkeyPatch) -> None:
    def lower(original: Any, boxes: Boxes, x: float, y: float) -> Any:
        corners = itertools.product((boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax))
        apart = [haversine(math.radians(y), np.radians(v), np.radians(u - x)) for u, v in corners]
        return functools.reduce(np.minimum, apart)

    function(patch, lower_angle, lower)


@mutant("on the globe: centroids of what is valid only", elsewhere)
def centroids_never_leave_their_box(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, BoxUnits, "all_valid", lambda units, places: np.ones(len(places), dtype=bool))


@mutant("on the globe: slivers are not valid", slivers)
def centroids_are_computed_exactly(patch: pytest.MonkeyPatch) -> None:
    function(patch, is_near_its_box, lambda original, some: np.ones(len(some), dtype=bool))


@mutant("the spheroid's bounds", globe)
def the_spheroid_is_a_sphere(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Earth, "wgs84", classmethod(lambda cls: cls(6371008.0, 6371008.0)))


def _square(x: float, y: float, reach: float) -> Envelope:
    return Envelope(x - reach, y - reach, x + reach, y + reach)


def _search(made: list[Corpus]) -> None:
    for corpus in made:
        corpus.search()


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "corpora"), MUTANTS)
def test_the_corpora_catch(
    plant: Patch, corpora: tuple[Callable[[], Corpus], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [corpus() for corpus in corpora]  # before the mutant is there: what is true is Spark's
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="lost a row"):
        _search(made)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", [geometries, pairs, globe, elsewhere, slivers])
def test_nothing_is_found_where_nothing_is_planted(corpus: Callable[[], Corpus]) -> None:
    corpus().search()
