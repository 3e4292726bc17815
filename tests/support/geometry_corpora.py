"""Corpora of rows and predicates about geometry: geometries, coordinate pairs, places on the globe.

The outcome of each predicate for each row is computed once, or known.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import And, Call, Comparison, IsNull, Literal, Not, Predicate
from tests.soundness.test_geobox_soundness import PATTERNS, RELATIONS
from tests.support.geobox_oracle import GEOM, LAT, LNG, PAIR, SHAPES, call, collected, evaluate, kept, literal, matches
from udf_mappings.sedona import SEDONA

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
        """Raise if a file with a matching row is skipped."""
        metadata = collected(self.index, self.files)
        for node, needed in self.cases:
            keeps = kept(node, self.index, metadata)
            lost = [file for file, keep, need in zip(self.files, keeps, needed, strict=True) if need and not keep]
            assert not lost, f"{node} lost a row of {lost[0]}"


def sedonas(name: str, *args: Any, type: str = "geometry") -> Call:
    """Create a call of a function of Sedona's jar, with results that the corpora contain."""
    return Call(name, tuple(literal(a) if not isinstance(a, Predicate) else a for a in args), SEDONA + name, (), type)


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
    *(shapely.Point(5, math.nextafter(5, 6)), shapely.LineString([(9, 30), (30, 9)])),
]
LEAVING = shapely.LineString([(30, 9), (1, 1)])  # the western side of its box lies in the square


@functools.cache
def geometries() -> Corpus:
    """Single rows and pairs of rows; every relation and distance in both orders, plain and negated."""
    together = [[a, b] for a, b in itertools.combinations([ROWS[1], ROWS[5], ROWS[18], ROWS[20], None], 2)]
    together += [[LEAVING], [LEAVING, shapely.Point(20, 5)], [LEAVING, None], [LEAVING, shapely.Polygon()]]
    nearly = math.nextafter(math.hypot(4, 4.5), 9)  # from (1, 0.5) to (5, 5)

    def asked() -> Iterator[Predicate]:
        for shape in map(literal, SHAPES_ASKED):
            for name, sides in itertools.product(RELATIONS, ((GEOM, shape), (shape, GEOM))):
                yield call(name, *sides)
            yield from (call("ST_Relate", GEOM, shape, pattern) for pattern in PATTERNS)
            for distance in (0.0, 0.5, 1.0, nearly, 7.0, 15.0):
                yield call("ST_DWithin", GEOM, shape, distance)
                yield from (Comparison(op, call("ST_Distance", GEOM, shape), literal(distance)) for op in ORDERS)
        for seen in (call("ST_Boundary", GEOM), call("ST_Buffer", GEOM, 6.0), call("ST_Centroid", GEOM)):
            yield call("ST_Intersects", seen, literal(SQUARE))

    both = (node for plain in asked() for node in (plain, Not(plain)))
    return Corpus.of(SHAPES, [*([row] for row in ROWS), *together], both)


@functools.cache
def pairs() -> Corpus:
    """Points in and around a rectangle, rows with a NULL or a NaN, clusters in one file."""
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
    """Meridians, parallels, poles and the antimeridian, at distances just above and below a row's."""
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
    """Results of other libraries: arbitrary for invalid geometries, and distances from centroids."""
    crossed = shapely.Polygon([(1, 1), (3, 3), (3, 1), (1, 3)])
    large = shapely.Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])
    between = shapely.Point(5, 9)  # the two triangles of the large one
    lacking = shapely.MultiPoint([(math.nan, math.nan)])  # JTS finds that these two intersect
    beside = shapely.GeometryCollection([shapely.Point(30, 30), lacking])
    tilted = shapely.from_wkt("POLYGON Z ((0 0 0, 0 1 0, -0.75 1 1, -0.75 0 1, 0 0 0))")  # its plane comes near
    start, end = (sedonas(name, GEOM) for name in ("ST_StartPoint", "ST_EndPoint"))
    rows = [crossed, between, lacking, beside, tilted, LEAVING]
    asked: list[tuple[Predicate, Any]] = [
        (Not(call("ST_Covers", NOTCHED, GEOM)), crossed),
        (call("ST_Disjoint", SQUARE, GEOM), crossed),
        (Not(call("ST_Within", GEOM, SQUARE)), crossed),
        (Comparison(">", call("ST_Distance", GEOM, shapely.Point(2, 2)), literal(9.0)), crossed),
        (call("ST_Intersects", GEOM, large), between),
        (call("ST_Intersects", GEOM, SQUARE), lacking),
        (call("ST_Intersects", SQUARE, GEOM), beside),
        (call("ST_Intersects", GEOM, beside), between),
        (Comparison(">", call("ST_DistanceSphere", GEOM, shapely.Point(5, 5)), literal(1e7)), crossed),
        (Comparison("<", call("ST_DistanceSphere", GEOM, shapely.Point(0, 88)), literal(1e5)), crossed),
        (call("ST_Intersects", call("ST_Centroid", GEOM), shapely.box(20, 20, 21, 21)), crossed),
        (
            Comparison("<", sedonas("ST_3DDistance", GEOM, shapely.Point(100, 0.5), type="double"), literal(81.0)),
            tilted,
        ),
        (sedonas("ST_Disjoint", SQUARE, start), LEAVING),
        (Comparison("<", sedonas("ST_Distance", start, shapely.Point(31, 9), type="double"), literal(1.5)), LEAVING),
        (sedonas("ST_Contains", SQUARE, end), LEAVING),
        (Comparison("=", sedonas("ST_X", end, type="double"), literal(1.0)), LEAVING),
    ]
    cases = [(node, [row is needed for row in rows]) for node, needed in asked]
    return Corpus(SHAPES, [[row] for row in rows], cases)


@functools.cache
def slivers() -> Corpus:
    """Polygons with parts that nearly cancel: rounding moves some centroids far out of the box."""
    chance = random.Random(7)
    rows = []
    for _ in range(400):
        step = 10.0 ** chance.uniform(-15, -11)
        way = [(100 + chance.uniform(0, 10), 40 + chance.uniform(0, 10)) for _ in range(3)]
        back = [(x + step, y - step) for x, y in reversed(way)]
        shape = shapely.Polygon([*way, *back])
        if shapely.is_valid(shape) and shape.area > 0:
            rows.append(shape)

    def asked() -> Iterator[Predicate]:
        for place in (shapely.Point(0, 0), shapely.Point(105, 45)):
            distance = call("ST_DistanceSphere", GEOM, place)
            apart = [float(evaluate(distance, _row(SHAPES, row))) for row in rows]
            for value in (min(apart), max(apart)):
                yield Comparison("<=", distance, literal(value * (1 + 1e-9)))
                yield Comparison(">=", distance, literal(value * (1 - 1e-9)))
            for value in apart[:40]:
                yield Comparison("=", distance, literal(value))

    return Corpus.of(SHAPES, [[row] for row in rows], asked())


def _value(distance: Call, row: Any) -> float:
    return float(evaluate(distance, _row(PAIR, row)))
