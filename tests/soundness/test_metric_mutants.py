"""Unsound rules of metric distances (soundness rule 9), planted one by one: awkward rows must catch each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from geoskip import predicates as p
from geoskip.clauses import KEEP_ALL, all_of
from geoskip.conditions import Compare
from geoskip.indexes.metricdist.clauses import DistanceLeaves, DistanceMeets, HasNullDistance
from geoskip.indexes.metricdist.index import METRICS, MetricDist, subject
from geoskip.metrics import Metric, Points
from geoskip.metrics.strings import MOST, Levenshtein, StringHeads, StringLists, few
from geoskip.metrics.vectors import Euclidean, Haversine
from tests.support.metric_worlds import (
    D,
    World,
    catalyst,
    edit_distance,
    greatest,
    our,
    powers,
    rooted_squares,
    sound,
    value,
    world,
)  # fmt: skip
from tests.support.planting import Patch, attribute, before, function, listed, registered
from udf_mappings import metric_functions as ours
from udf_mappings.metrics import levenshtein

MUTANTS: list[Any] = []
ORDERS = ("<", "<=", ">", ">=", "=")
Check = Callable[[], None]


def mutant(rule: str, *checks: Check) -> Callable[[Patch], Patch]:
    """A mutant, the rule of distances that it breaks, and what catches it."""
    return listed(MUTANTS, rule, checks)


def compared(distance: p.Predicate, some: World, of: Callable[..., Any], radii: Iterator[Any] | list[Any]) -> None:
    """Every order comparison and its negation, with each of some numbers."""
    for op, radius in itertools.product(ORDERS, radii):
        condition = p.Comparison(op, D, p.Literal(radius, "double"))
        for predicate in (condition, p.Not(condition)):
            sound(predicate, distance, some, of)
    sound(p.IsNull(D), distance, some, of)


def planar(
    rows: list[Any], points: list[Any], radii: list[Any], spelling: Any = powers, kind: str = "double", cut: int = 1,
    metric: str = "euclidean",
) -> None:  # fmt: skip
    """Files of the rows one by one and two by two, seen from some points."""
    files = [[row] for row in rows] + [[a, b] for a, b in itertools.combinations(rows, 2)] + [rows]
    some = world(metric, (kind, kind), files, cut=cut, origins=4)
    for point in points:
        distance = spelling(list(some.index.bound), point, "ANSI")
        compared(distance, some, lambda row, d=distance: value(d, {"c0": row[0], "c1": row[1]}), radii)


def plane() -> None:
    rows = [(0.0, 0.0), (3.0, 4.0), (-7.0, 1.0), (50.0, 50.0), (None, 1.0), (None, None)]
    planar(rows, [(0.0, 0.0), (3.0, 3.0), (20.0, -5.0)], [0.0, 1.0, 5.0, 20.0, 80.0])


def parts_of_files() -> None:
    planar([(0.0, 0.0), (9.0, 0.0), (40.0, 0.0)], [(9.0, 0.0), (40.0, 0.0), (0.0, 0.0)], [0.5, 2.0], cut=1)


def rounding() -> None:
    rows = [(0.1 * k, 0.3 * k) for k in range(8)]  # on a line, where a detour costs nothing
    some = world("euclidean", ("double", "double"), [[row] for row in rows], origins=4)
    for point in rows[:4]:
        distance = powers(list(some.index.bound), point, "ANSI")
        radii = [value(distance, {"c0": row[0], "c1": row[1]}) for row in rows]
        compared(distance, some, lambda row, d=distance: value(d, {"c0": row[0], "c1": row[1]}), radii)


def ends() -> None:
    rows = [(1e200, 0.0), (0.0, 1e-200), (math.nan, 0.0), (math.inf, 1.0), (1.0, 1.0), (1e149, 0.0)]
    planar(rows, [(1.0, 0.0), (0.0, 0.0)], [0.0, 1e-250, 1.0, 1e149, 1e201, 1e300])


def whole_numbers() -> None:
    rows = [(2**31 - 1, 0), (-(2**31), 5), (0, 0), (40000, 40000)]
    planar(rows, [(-1, 0), (0, 0)], [0.0, 5.0, 1e5, 1e10], spelling=rooted_squares, kind="int")


def greatest_of() -> None:
    planar([(None, 1.0), (5.0, None), (9.0, 9.0)], [(0.0, 0.0)], [0.5, 2.0], spelling=greatest, metric="chebyshev")


def words() -> None:
    """Files that keep their words, ones of which some parts do, and ones that bound them."""
    for most in (MOST, 0, 1):
        with pytest.MonkeyPatch.context() as patch:
            function(patch, few, lambda original, texts, most=most: original(texts) if len(texts) <= most else None)
            _words()


def _words() -> None:
    texts = ["", "skipping", "shipping", "kitten", "skippingrope", "\U0001f600b", None]
    files = [[(text,)] for text in texts] + [[(a,), (b,)] for a, b in itertools.combinations(texts[-4:], 2)]
    files.append([(f"skipping{letter}",) for letter in "abcdefghijklmnopqrst"])  # with one head
    some = world("levenshtein", ("string",), files)
    for constant, most in itertools.product(("skippingrop", "skippingrt", "kit", "\U0001f600"), (None, 2)):
        limit = () if most is None else (p.Literal(most, "int"),)
        distance = catalyst("Levenshtein", some.index.bound[0], p.Literal(constant, "string"), *limit, type="int")

        def of(row: tuple[Any, ...], constant: str = constant, most: int | None = most) -> int | None:
            if row[0] is None:
                return None
            found = edit_distance(row[0], constant)
            return found if most is None or found <= most else -1

        compared(distance, some, of, [-1, 1, 2, 7.5])


def globe() -> None:
    rows = [(0.0, 0.0), (180.0, 0.0), (-179.0, 10.0), (8.5, 47.4), (0.0, 90.0), (30.0, 91.0)]
    some = world("haversine", ("double", "double"), [[row] for row in rows], origins=4)
    for point, radius in itertools.product(((0.0, 0.0), (179.5, 5.0)), (6371.0, 6371008.0)):
        literals = [p.Literal(v, "double") for v in (*point, radius)]

        def of(row: tuple[Any, ...], point: Any = point, radius: float = radius) -> Any:
            found = ours.haversine(*row, *point, radius) or 0.0
            return math.nan if found > (math.pi - 1e-7) * radius else found  # as some implementations have it

        apart = [share * radius for share in (0.0, 0.5, 1.0, 3.0, 3.2)]
        compared(our("haversine", *some.index.bound, *literals), some, of, apart)


def sets() -> None:
    files = [[(["a"],)], [(["a", "b"],)], [(["c"],)], [(None,)], [(["a"],), (["c"],)]]
    some = world("jaccard", ("array<string>",), files)
    literal = p.Literal(("a", "b"), "array<string>")
    sizes = [
        p.Cast(catalyst("Size", catalyst(k, some.index.bound[0], literal), type="int"), "double", "int", True)
        for k in ("ArrayIntersect", "ArrayUnion")
    ]
    distance = catalyst("Subtract", p.Literal(1.0, "double"), catalyst("Divide", *sizes, name="/"), name="-")
    compared(distance, some, lambda row: 0.0 if row[0] is None else ours.jaccard(row[0], ["a", "b"]), [0.0, 0.4, 0.9])


# ---- only true metrics


def triangles() -> None:
    for name, metric in METRICS.items():
        if name in ("euclidean", "manhattan", "chebyshev", "levenshtein"):
            points: list[Any] = (
                ["ca", "ac", "abc"] if metric.whole else [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (2.0, 1.0)]
            )
            table = [metric.distances(point, metric.of(points)) for point in points]
            for a, b, c in itertools.product(range(len(points)), repeat=3):
                assert table[a][c] <= table[a][b] + table[b][c] + 1e-9, f"{name} breaks the triangle inequality"


@mutant("only true metrics", triangles)
def the_square_is_taken_for_a_metric(patch: pytest.MonkeyPatch) -> None:
    before(patch, Euclidean, "distances", lambda original, *a: original(*a) ** 2)


@mutant("only true metrics", triangles)
def alignments_of_letters_are_taken_for_a_metric(patch: pytest.MonkeyPatch) -> None:
    from rapidfuzz.distance import OSA

    attribute(patch, Levenshtein, "scorer", OSA.distance)


@mutant("the distance is the function's own", globe)
def degrees_are_taken_for_a_plane(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Haversine, "distances", lambda self, o, data: np.radians(np.hypot(data[0] - o[0], data[1] - o[1])))


# ---- SQL is not the metric at the ends of doubles


@mutant("decline outside 1e-150 .. 1e150", ends)
def doubles_have_no_ends(patch: pytest.MonkeyPatch) -> None:
    """A distance that does not overflow, as geometry has it; SQL's does."""
    before(patch, Euclidean, "usable", lambda original, metric, columns: np.all(np.abs(columns) <= 1e300, axis=0))
    attribute(patch, Euclidean, "distances", lambda self, o, data: np.hypot(data[0] - o[0], data[1] - o[1]))


@mutant("decline outside 1e-150 .. 1e150", ends)
def odd_rows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def points(original: Any, *args: Any, **options: Any) -> Points:
        found = original(*args, **options)
        return Points(found.data, found.rows - found.odd, found.nulls, found.blanks, 0)

    before(patch, Euclidean, "points", points)


@mutant("whole numbers overflow", whole_numbers)
def whole_numbers_never_overflow(patch: pytest.MonkeyPatch) -> None:
    _asked(patch, limit=math.inf)


@mutant("near the antipode haversine is off", globe)
def the_antipode_is_exact(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Haversine, "ends", lambda self, low, high: (low, high))


@mutant("the radius is the function's own", globe)
def every_earth_in_kilometres(patch: pytest.MonkeyPatch) -> None:
    def distance(original: Any, index: MetricDist, constants: Any, *, unit: float = 1.0) -> Any:
        return original(index, constants, unit=6371.0 if unit > 1 else unit)

    before(patch, MetricDist, "distance_to", distance)


# ---- the triangle inequality and its slack


@mutant("at least max(0, d(o,q) - hi, lo - d(o,q))", plane)
def nearer_than_the_origin_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def targets(original: Any, clause: DistanceMeets) -> Any:
        nearest, farthest = original(clause)
        return np.maximum(nearest, clause.low), farthest

    before(patch, DistanceMeets, "targets", targets)


@mutant("at most d(o,q) + hi", plane)
def farther_than_the_origin_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def targets(original: Any, clause: DistanceMeets) -> Any:
        nearest, farthest = original(clause)
        return nearest, np.minimum(farthest, clause.high)

    before(patch, DistanceMeets, "targets", targets)


@mutant("at most d(o,q) + hi", plane)
def far_is_the_negation_of_near(patch: pytest.MonkeyPatch) -> None:
    def keep(original: Any, clause: DistanceMeets, files: Any) -> Any:
        if clause.high < math.inf:
            return original(clause, files)
        return original(clause, files) & ~original(DistanceMeets(clause.origins, clause.point, 0.0, clause.low), files)

    before(patch, DistanceMeets, "keep", keep)


@mutant("widen by 1e-9 relative", rounding)
def distances_are_exact(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, Metric, "relative", 0.0)
    before(patch, Euclidean, "scale", lambda original, metric, point: 0.0)
    attribute(patch, Euclidean, "slack", 0.0)


@mutant("a range holds all parts of a file", parts_of_files)
def the_first_part_stands_for_the_file(patch: pytest.MonkeyPatch) -> None:
    def merge(original: Any, index: MetricDist, parts: Any) -> Any:
        return {**original(index, parts), **{field: parts[0][field] for field in ("lo", "hi", "gaps")}}

    before(patch, MetricDist, "merge", merge)


@mutant("a gap has no rows in it", parts_of_files)
def gaps_of_one_part_stay(patch: pytest.MonkeyPatch) -> None:
    def merge(original: Any, index: MetricDist, parts: Any) -> Any:
        found = original(index, parts)
        ends = enumerate(zip(found["lo"], found["hi"], strict=True))
        return {**found, "gaps": [{"origin": o, "low": low, "high": high} for o, (low, high) in ends if low < high]}

    before(patch, MetricDist, "merge", merge)


@mutant("a null cell keeps", plane)
def a_file_of_nulls_holds_nothing_null(patch: pytest.MonkeyPatch) -> None:
    attribute(patch, HasNullDistance, "where", lambda self, table: Compare("points", "=", True))


@mutant("greatest leaves out a NULL", greatest_of)
def greatest_is_null_for_null(patch: pytest.MonkeyPatch) -> None:
    _asked(patch, nulls="")


@mutant("the size of NULL may be -1", sets)
def the_size_of_null_is_null(patch: pytest.MonkeyPatch) -> None:
    _asked(patch, nulls="")


def _asked(patch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Clauses of distances with other values in some fields."""
    for owner in (DistanceMeets, DistanceLeaves):

        def where(original: Any, clause: Any, table: Any) -> Any:
            return original(replace(clause, **{k: v for k, v in changed.items() if hasattr(clause, k)}), table)

        before(patch, owner, "where", where)


# ---- levenshtein


@mutant("levenshtein(a, b, t) is -1 beyond t", words)
def the_threshold_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    def rule(node: p.Predicate, index: MetricDist) -> Any:
        match subject(node):
            case p.Call(_, (_, p.Literal(str() as other), *_)):
                return index.distance_to((other,)).answers(node)
        return None

    registered(patch, levenshtein, rule)


@mutant("levenshtein(a, b, t) is -1 beyond t", words)
def nothing_is_beyond_the_threshold(patch: pytest.MonkeyPatch) -> None:
    def rule(node: p.Predicate, index: MetricDist) -> Any:
        match node:
            case p.Comparison(op, p.Call(_, (_, p.Literal(str() as other), p.Literal(most))), p.Literal(number)):
                distance = index.distance_to((other,))
                within = distance.compares(op, number)
                return within and all_of([within, distance.compares("<=", most) or KEEP_ALL])
        return levenshtein(node, index)

    registered(patch, levenshtein, rule)


@mutant("code points, as Spark counts", words)
def letters_are_counted_in_bytes(patch: pytest.MonkeyPatch) -> None:
    def distances(original: Any, self: Any, origin: str, data: list[str]) -> Any:
        return original(self, origin.encode().decode("latin-1"), [text.encode().decode("latin-1") for text in data])

    before(patch, Levenshtein, "distances", distances)


@mutant("a file keeps all of its words, or none", words)
def the_words_of_some_parts_stand_for_the_file(patch: pytest.MonkeyPatch) -> None:
    def outline_of(original: Any, self: Levenshtein, parts: Any) -> Any:
        return original(self, [part for part in parts if part["texts"] is not None] or parts)

    before(patch, Levenshtein, "outline_of", outline_of)


@mutant("1: a null cell keeps", words)
def a_file_without_words_has_none(patch: pytest.MonkeyPatch) -> None:
    before(patch, StringLists, "files_holding", lambda original, self, wanted: original(self, wanted) & self.known)


@mutant("a head is compared with every beginning", words)
def heads_are_compared_as_words(patch: pytest.MonkeyPatch) -> None:
    def within(self: StringHeads, text: str, distance: int) -> Any:
        near = self.heads.near(text, distance) & (np.abs(self.heads.lengths - len(text)) <= distance)
        found = self.unknown.copy()
        found[self.owner[near[self.codes]]] = True
        return found

    attribute(patch, StringHeads, "files_within", within)


@mutant("a group's letters are those of all its strings", words)
def the_first_of_a_group_stands_for_all(patch: pytest.MonkeyPatch) -> None:
    def outline(original: Any, metric: Levenshtein, texts: list[str]) -> Any:
        found = original(metric, texts)
        groups = [original(metric, [next(text for text in texts if text.startswith(head))])["groups"][0]
                  for head in found["outline"]]  # fmt: skip
        return {**found, "groups": groups}

    before(patch, Levenshtein, "outline", outline)


@mutant("an edit changes the length by one", words)
def strings_within_a_distance_are_as_long(patch: pytest.MonkeyPatch) -> None:
    def within(original: Any, self: StringHeads, text: str, distance: int) -> Any:
        own = replace(self, shortest=self.shortest + distance, longest=self.longest - distance)
        return original(own, text, distance)

    before(patch, StringHeads, "files_within", within)


def _run(checks: tuple[Check, ...]) -> None:
    for check in checks:
        check()


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "checks"), MUTANTS)
def test_the_harness_catches(plant: Patch, checks: tuple[Check, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"with d = .* is (True|False|None) for|breaks the triangle"):
        _run(checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [plane, parts_of_files, rounding, ends, whole_numbers, greatest_of, words, globe, sets, triangles]
)
def test_nothing_is_found_where_nothing_is_planted(check: Check) -> None:
    check()
