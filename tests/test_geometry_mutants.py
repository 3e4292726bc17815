"""Unsound rules of geometry (SEMANTICS, section 8), planted one by one: rows known to be awkward must catch each.

*Corpora* of rows and predicates: geometries, pairs of coordinates, places on the globe. What each predicate says of
each row is found out once, or known; a mutant is caught where its clauses skip a file with a matching row.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import udf_mappings.sedona as mapped
from geoskip.geometry import sphere
from geoskip.geometry.boxes import Boxes, Envelope
from geoskip.geometry.shapes import Shape
from geoskip.indexes import geobox_clauses, geobox_globe
from geoskip.indexes.geobox import GeoBox
from geoskip.indexes.geobox_clauses import BoxLeaves, BoxMeets, View
from geoskip.indexes.geobox_units import Units
from geoskip.predicates import And, Call, Comparison, IsNull, Literal, Not, Predicate
from geoskip.registry import current
from tests.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, kept, literal, matches
from tests.test_geobox_soundness import PATTERNS, RELATIONS
from tests.test_mutants import Patch, before

MUTANTS: list[Any] = []
ORDERS = ("<", "<=", ">", ">=", "=")


@dataclass(frozen=True)
class Corpus:
    """Files, and predicates with the files in which some row makes them TRUE."""

    index: GeoBox
    files: list[list[Any]]
    cases: list[tuple[Predicate, list[bool]]]

    @classmethod
    def of(cls, index: GeoBox, files: list[list[Any]], predicates: Iterator[Predicate]) -> Corpus:
        rows = [[_row(index, row) for row in file] for file in files]
        cases = [(node, [any(matches(node, row) for row in file) for file in rows]) for node in predicates]
        return cls(index, files, cases)

    def search(self) -> None:
        """Fails where a file with a matching row is skipped."""
        metadata = collected(self.index, self.files)
        for node, needed in self.cases:
            keeps = kept(node, self.index, metadata)
            lost = [file for file, keep, need in zip(self.files, keeps, needed, strict=True) if need and not keep]
            assert not lost, f"{node} lost a row of {lost[0]}"


def _row(index: GeoBox, row: Any) -> dict[str, Any]:
    if index.is_pair:
        return {"lng": row[0], "lat": row[1]}
    return {"geom": None if row is None else shapely.to_wkb(row)}


def _holed(shell: Any, hole: Any) -> Any:
    return shapely.Polygon(shell.exterior, [hole.exterior])


SQUARE = shapely.box(0, 0, 10, 10)
HOLED = _holed(SQUARE, shapely.box(4, 4, 6, 6))
NOTCHED = shapely.Polygon([(0, 0), (10, 0), (10, 10), (5, 1), (0, 10)])
SHAPES_ASKED = [SQUARE, HOLED, NOTCHED, shapely.Point(5, 5), shapely.LineString([(0, 0), (10, 10)])]
OUTSIDE_HOLE = _holed(shapely.box(20, 20, 21, 21), shapely.box(2, 2, 3, 3))
ROWS = [
    *map(shapely.Point, [(5, 5), (1, 0.5), (0, 5), (10, 10), (5, 9), (20, 20), (5, 11)]),
    *map(shapely.LineString, [[(1, 0.2), (3, 0.5)], [(-5, 5), (15, 5)], [(0, 0), (10, 10)]]),
    *(shapely.box(*box) for box in [(1, 0.1, 2, 0.2), (-5, -5, 15, 15), (4.5, 4.5, 5.5, 5.5), (0, 0, 10, 10)]),
    *(HOLED, NOTCHED, OUTSIDE_HOLE, shapely.Polygon([(1, 1), (3, 3), (3, 1), (1, 3)])),
    *map(shapely.from_wkt, ["POINT EMPTY", "POLYGON EMPTY"]),
    *(shapely.Point(math.nan, 5), shapely.MultiPoint([(1, 0.5), (30, 30)]), None),
]


@functools.cache
def geometries() -> Corpus:
    """Rows alone and beside another one; every relation and distance in both orders, plain and negated."""
    together = [[a, b] for a, b in itertools.combinations([ROWS[1], ROWS[5], ROWS[18], ROWS[20], None], 2)]

    def asked() -> Iterator[Predicate]:
        for shape in map(literal, SHAPES_ASKED):
            for name, sides in itertools.product(RELATIONS, ((GEOM, shape), (shape, GEOM))):
                yield call(name, *sides)
            yield from (call("ST_Relate", GEOM, shape, pattern) for pattern in PATTERNS)
            for distance in (0.0, 0.5, 1.0, 7.0, 15.0):
                yield call("ST_DWithin", GEOM, shape, distance)
                yield from (Comparison(op, call("ST_Distance", GEOM, shape), literal(distance)) for op in ORDERS)
        for seen in (call("ST_Boundary", GEOM), call("ST_Buffer", GEOM, 6.0), call("ST_Centroid", GEOM)):
            yield call("ST_Intersects", seen, literal(SQUARE))

    both = (node for plain in asked() for node in (plain, Not(plain)))
    return Corpus.of(SHAPES, [*([row] for row in ROWS), *together], both)


@functools.cache
def pairs() -> Corpus:
    """Points in and around a rectangle that is no square, rows with a NULL or a NaN, clusters in one file."""
    some: list[Any] = [(5, 2), (2, 5), (5, None), (None, 2), (None, None), (math.nan, 2), (0.4, 0.4), (30, 1)]
    files = [[row] for row in some]
    files += [[(5.0, 2.0), (40.0, 40.0), (-30.0, 7.0)], [(9.0, 9.0), (None, 2.0)], [(50.0, 50.0), (5.0, None)]]
    wide, point = literal(shapely.box(4, 1, 6, 3)), call("ST_Point", LNG, LAT)

    def asked() -> Iterator[Predicate]:
        for g in (point, call("ST_Point", LAT, LNG), call("ST_FlipCoordinates", point)):
            yield call("ST_Intersects", g, wide)
            yield And((call("ST_Contains", wide, g), Comparison("<", LAT, Literal(2.5))))
        for column, op, value in itertools.product((LNG, LAT), ORDERS, (0.4, 2, 5, 30)):
            yield Comparison(op, column, Literal(value))
        yield from (IsNull(LNG), And((IsNull(LNG), Comparison(">", LAT, Literal(1)))))

    return Corpus.of(PAIR, files, (node for plain in asked() for node in (plain, Not(plain))))


@functools.cache
def globe() -> Corpus:
    """Meridians, parallels, poles and both sides of the antimeridian, at distances just above and below a row's."""
    steps = np.linspace(0, 1, 40)
    files: list[list[Any]] = [
        [(60.0, float(80 * s)) for s in steps],
        [(float(170 + 20 * s), -17.0) for s in steps],
        [(-179.5, 10.0)],
        [(float(360 * s), 88.0) for s in steps],
        [(0.0, -90.0)],
        [(120.0, 45.0)],
    ]
    places = [(0.0, 45.0), (179.5, 10.0), (-175.0, -17.0), (10.0, 89.0), (-60.0, -45.0), (100.0, 0.0)]
    point = call("ST_Point", LNG, LAT)

    def asked() -> Iterator[Predicate]:
        for place, extra in itertools.product(places, ((), (3959.0,), None)):
            function, more = ("ST_DistanceSpheroid", ()) if extra is None else ("ST_DistanceSphere", extra)
            distance = call(function, point, shapely.Point(place), *more)
            for file in files:
                apart = [_value(distance, row) for row in file]
                for near, far in ((min(apart), max(apart)),):
                    yield Comparison("<=", distance, literal(near * (1 + 1e-6)))
                    yield Comparison(">=", distance, literal(far * (1 - 1e-6)))

    return Corpus.of(PAIR, files, asked())


@functools.cache
def elsewhere() -> Corpus:
    """What other libraries and releases say: of what is invalid anything, and distances on a globe from centroids."""
    crossed = shapely.Polygon([(1, 1), (3, 3), (3, 1), (1, 3)])
    large = shapely.Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])
    line = shapely.LineString([(0, 0), (0, 60), (60, 60)])
    between = shapely.Point(5, 9)  # the two triangles of the large one
    rows = [crossed, between, line]
    asked: list[tuple[Predicate, Any]] = [
        (Not(call("ST_Covers", NOTCHED, GEOM)), crossed),
        (call("ST_Disjoint", SQUARE, GEOM), crossed),
        (Not(call("ST_Within", GEOM, SQUARE)), crossed),
        (Comparison(">", call("ST_Distance", GEOM, shapely.Point(2, 2)), literal(9.0)), crossed),
        (call("ST_Intersects", GEOM, large), between),
        (Comparison(">", call("ST_DistanceSphere", GEOM, shapely.Point(5, 5)), literal(1e7)), line),
        (Comparison("<", call("ST_DistanceSphere", GEOM, shapely.Point(0, 88)), literal(1e5)), line),
    ]
    cases = [(node, [row is needed for row in rows]) for node, needed in asked]
    return Corpus(SHAPES, [[row] for row in rows], cases)


def _value(distance: Call, row: Any) -> float:
    from tests.geobox_oracle import evaluate

    return float(evaluate(distance, _row(PAIR, row)))


def mutant(rule: str, *corpora: Callable[[], Corpus]) -> Callable[[Patch], Patch]:
    """A mutant, the rule that it breaks, and the corpora one of which must catch it."""

    def register(plant: Patch) -> Patch:
        MUTANTS.append(pytest.param(plant, corpora, id=f"{plant.__name__} (section 8: {rule})"))
        return plant

    return register


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


@mutant("near and far: keep if any row is EMPTY", geometries)
def empty_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, empties=lambda count: 0)


@mutant("rows without a box are one more box", pairs)
def rows_with_one_null_coordinate_are_left_out(patch: pytest.MonkeyPatch) -> None:
    before(patch, Units, "boxless_of", lambda original, units, *sorts: np.zeros(len(units.boxless_sort), dtype=bool))


# --- families --------------------------------------------------------------------------------------------------------


@mutant("touch is not to lie inside", geometries)
def touching_as_lying_inside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shape, "meets", lambda shape, boxes: boxes.inside(shape.envelope))


@mutant("cover: a box contains the envelope of Q", geometries)
def covering_as_lying_inside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Boxes, "holding", Boxes.inside)


@mutant("boxes are tested for containment after growing", geometries)
def a_box_must_be_larger_than_what_it_holds(patch: pytest.MonkeyPatch) -> None:
    def strictly(boxes: Boxes, other: Envelope) -> Any:
        return (boxes.xmin < other.xmin - 1e-6) & (boxes.xmax > other.xmax + 1e-6)

    patch.setattr(Boxes, "holding", strictly)


@mutant("inside, negated: every box lies in Q itself, not in its envelope", geometries)
def inside_the_envelope_is_inside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shape, "covers", lambda shape, boxes: boxes.inside(shape.envelope))


@mutant("inside, open: every box lies in the interior of Q", geometries)
def the_boundary_is_contained(patch: pytest.MonkeyPatch) -> None:
    def covers(shape: Shape, boxes: Boxes) -> Any:
        return shapely.covers(shape.geometry, shapely.box(boxes.xmin, boxes.ymin, boxes.xmax, boxes.ymax))

    patch.setattr(Shape, "holds_inside", covers)


@mutant("NOT touch is no negated clause", geometries)
def disjoint_as_the_negation_of_touch(patch: pytest.MonkeyPatch) -> None:
    def keep_of(clause: BoxLeaves, units: Units) -> Any:
        return ~BoxMeets(clause.index, clause.counts, clause.view, clause.shape).keep_of(units)

    patch.setattr(BoxLeaves, "keep_of", keep_of)


@mutant("relate: only if the pattern forces II, IB, BI or BB", geometries)
def every_pattern_is_a_touch(patch: pytest.MonkeyPatch) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        pair = mapped.sides(node, index) if isinstance(node, Call) else None
        return pair and pair[0].meets(pair[1])

    known = current().mappings
    name = f"{mapped.__name__}.relates"
    patch.setitem(known, name, replace(known[name], rule=rule))


@mutant("inside and far: keep if any row is invalid", elsewhere)
def invalid_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    _stored(patch, invalid=lambda count: 0)


@mutant("Q invalid: only its envelope serves", elsewhere)
def an_invalid_constant_is_taken_for_a_valid_one(patch: pytest.MonkeyPatch) -> None:
    def of(original: Any, value: Any) -> Any:
        shape = copy.copy(original(value))
        shape.valid = True
        return shape

    original = Shape.of
    patch.setattr(Shape, "of", staticmethod(lambda value: of(original, value)))


@mutant("near: the lower bound of the distance", geometries)
def near_by_the_farthest_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shape, "comes_within", lambda shape, boxes, distance: shape.farthest(boxes) <= distance)


@mutant("far: the upper bound of the distance", geometries)
def far_by_the_nearest_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shape, "farthest", lambda shape, boxes: shapely.distance(shape.geometry, boxes.polygons()))


@mutant("distances allow for rounding on the right side", geometries)
def a_margin_on_the_wrong_side(patch: pytest.MonkeyPatch) -> None:
    before(patch, geobox_clauses, "margin", lambda original, scale, distance: -0.51 + 0 * original(scale, distance))


# --- seeing through, and the axes ------------------------------------------------------------------------------------


@mutant("axis order is bound to argument expressions", pairs)
def axes_by_position(patch: pytest.MonkeyPatch) -> None:
    before(
        patch, GeoBox, "_sees", lambda original, index, node: (v := original(index, node)) and replace(v, flip=False)
    )


@mutant("shrinking is no identity", geometries)
def a_part_is_the_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "within", lambda view: view)


@mutant("a buffer grows the box", geometries)
def a_buffer_is_what_it_surrounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "grown", lambda view, radius: view)


# --- the globe -------------------------------------------------------------------------------------------------------


@mutant("the radius is the function's own", globe)
def every_earth_in_metres(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(geobox_globe.Earth, "of_radius", classmethod(lambda cls, radius: cls(6371008.0, 6371008.0)))


@mutant("right across the antimeridian", globe)
def longitudes_end_at_180(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sphere, "windows", lambda x, y, angle, farthest: [_square(x, y, math.degrees(angle) + 1)])


@mutant("right at the poles", globe)
def degrees_are_equally_long(patch: pytest.MonkeyPatch) -> None:
    def windows(x: float, y: float, angle: float, farthest: float) -> list[Envelope]:
        return [_square(x + turn, y, math.degrees(angle) + 1) for turn in range(-1080, 1081, 360)]

    patch.setattr(sphere, "windows", windows)


@mutant("a box's nearest point may lie within its edge", globe)
def the_nearest_corner_is_nearest(patch: pytest.MonkeyPatch) -> None:
    def lower(boxes: Boxes, x: float, y: float) -> Any:
        corners = itertools.product((boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax))
        apart = [sphere.haversine(math.radians(y), np.radians(v), np.radians(u - x)) for u, v in corners]
        return functools.reduce(np.minimum, apart)

    patch.setattr(sphere, "lower_angle", lower)


@mutant("on the globe: points only", elsewhere)
def all_are_measured_as_points(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Units, "only_points", lambda units, places: np.ones(len(places), dtype=bool))


@mutant("the spheroid's bounds", globe)
def the_spheroid_is_a_sphere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(geobox_globe.Earth, "wgs84", classmethod(lambda cls: cls(6371008.0, 6371008.0)))


def _square(x: float, y: float, reach: float) -> Envelope:
    return Envelope(x - reach, y - reach, x + reach, y + reach)


def _search(made: list[Corpus]) -> None:
    for corpus in made:
        corpus.search()


@pytest.mark.parametrize(("plant", "corpora"), MUTANTS)
def test_the_corpora_catch(
    plant: Patch, corpora: tuple[Callable[[], Corpus], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [corpus() for corpus in corpora]  # before the mutant is there: what is true is Spark's
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="lost a row"):
        _search(made)


@pytest.mark.parametrize("corpus", [geometries, pairs, globe, elsewhere])
def test_nothing_is_found_where_nothing_is_planted(corpus: Callable[[], Corpus]) -> None:
    corpus().search()
