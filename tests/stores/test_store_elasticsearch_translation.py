"""Clauses as the servers' queries, without a server: what a query keeps is what is kept here, or more."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.clauses import Clause, all_of, any_of, keep_mask
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import clause_for
from geoskip.registry import declare, mappings
from geoskip.stores.search.clause_queries import box_keys_of, keys_of_bounds, ring_keys_of, translate
from geoskip.stores.search.queries import NONE, KeyField, list_keys_of
from geoskip.stores.search.queries import any_of as any_of_queries
from tests.soundness.test_geobox_soundness import coordinates, pair_geometry, seen_through, spatial, trees
from tests.support import geobox_oracle as geo
from tests.support.harness import COLUMNS, TYPES, World, canned, leaves
from tests.support.metric_worlds import WORDS, absolutes, our, powers
from tests.support.metric_worlds import world as distant
from tests.support.planting import Patch, before, function
from tests.support.server_semantics import clauses, compare, documents_of
from tests.support.strategies import examples, predicates, worlds

QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
NUMBERS = tuple(name for name in TYPES if name not in "sb")
KINDS: dict[str, tuple[Callable[[str], Any], tuple[str, ...], int]] = {
    "minmax": (MinMax, tuple(TYPES), 30),
    "valuelist": (lambda name: ValueList(name, limit=4), tuple(TYPES), 15),
    "hybrid": (Hybrid, ("a", "s"), 0),
    "gaplist": (lambda name: GapList(name, gaps=2), NUMBERS, 30),
    "prefix": (lambda name: Prefix(name, length=2), ("s",), 60),
    "suffix": (lambda name: Suffix(name, length=2), ("s",), 40),
}
"""How to make each kind, for which columns, and how many of the clauses of 60 leaves are exact at least."""


def some(items: list[Any], most: int) -> list[Any]:
    """The same few each time."""
    return random.Random(len(items)).sample(items, min(most, len(items)))


def tally_of(world: World, found: list[p.Predicate]) -> Counter[bool | None]:
    documents, indexes = documents_of(world.metadata, world.types), list(world.types)
    return Counter(compare(clause, world.metadata, documents) for leaf in found for clause in clauses(leaf, indexes))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, names, _) in KINDS.items() for name in names])
def test_every_leaf_shape_is_translated_rightly_for_every_state_of_a_file(kind: str, name: str) -> None:
    make, _, least = KINDS[kind]
    tally = tally_of(canned(name, make), some(list(leaves(name)), 60))
    assert tally[True] >= (least if name != "w" else 0), tally


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_trees_are_translated_rightly(kind: str) -> None:
    make, known, _ = KINDS[kind]

    @settings(QUICK, max_examples=examples(30))
    @given(st.data())
    def holds(data: Any) -> None:
        triples = [("a", "x", "s"), ("n", "f", "s"), ("d", "day", "b")]
        names = tuple(name for name in data.draw(st.sampled_from(triples)) if name in known) or ("s",)
        world, predicate = data.draw(worlds(names)), data.draw(predicates(names))
        if world.files:
            tally_of(replace(world, kinds=(make,)), [predicate])

    holds()


@settings(QUICK, max_examples=examples(60))
@given(
    st.lists(geo.pair_rows, min_size=1, max_size=4), trees(st.one_of(spatial(pair_geometry), coordinates())), st.data()
)
def test_boxes_of_points_are_translated_rightly(files: list[Any], predicate: p.Predicate, data: Any) -> None:
    checked(geo.PAIR, geo.collected(geo.PAIR, files), predicate)


@settings(QUICK, max_examples=examples(50))
@given(st.lists(geo.geometry_rows, min_size=1, max_size=4), trees(spatial(seen_through(geo.GEOM))))
def test_boxes_of_geometries_are_translated_rightly(files: list[Any], predicate: p.Predicate) -> None:
    checked(geo.SHAPES, geo.collected(geo.SHAPES, files), predicate)


def checked(index: Any, files: Any, predicate: p.Predicate) -> bool | None:
    stored = files.table().schema.field(str(index)).type
    return compare(clause_for(predicate, [index]), files, documents_of(files, {index: stored}))


PLANE = [(0.0, 0.0), (1.0, 0.0), (20.0, 3.0), (25.0, 0.0), (50.0, 0.0), (51.0, 2.0), (float("nan"), 1.0)]
DISTANCES: dict[str, tuple[str, tuple[str, ...], list[Any], list[float], Callable[..., p.Predicate]]] = {
    "euclidean": ("euclidean", ("double", "double"), PLANE, [-1.0, 0.0, 0.5, 2.0, 24.0, 1e160], powers),
    "levenshtein": (
        "levenshtein", ("string",), [(word,) for word in WORDS], [-1, 0, 1, 2, 5, 40],
        lambda columns, point, mode: our("levenshtein", columns[0], p.Literal(point[0], "string"), type="int"),
    ),
    "manhattan": (
        "manhattan", ("bigint",), [(n,) for n in (-5, 0, 1, 7, 2**40)], [-1, 0, 1, 6, 2**40],
        lambda columns, point, mode: absolutes(columns, point, mode)[0],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("metric", DISTANCES)
def test_distances_are_translated_rightly(metric: str) -> None:
    chance, tally = random.Random(metric), Counter[bool | None]()
    name, kinds, points, numbers, spelled = DISTANCES[metric]
    with_null = [*points, (None,) * len(kinds), (None, *points[1][1:])]
    for _ in range(12):
        files = [chance.choices(with_null, k=chance.randrange(4)) for _ in range(8)]
        world = replace(distant(name, kinds, files, cut=2), lost=chance.randrange(8))
        if not world.index.origins:
            continue
        stored = world.metadata.table().schema.field(str(world.index)).type
        documents = documents_of(world.metadata, {world.index: stored})
        for _ in range(20):
            distance = spelled(list(world.index.bound), chance.choice(points[:-1]), "ANSI")
            condition: p.Predicate = p.Comparison(
                chance.choice(["=", "<", "<=", ">", ">="]), distance, p.Literal(chance.choice(numbers))
            )
            for clause in clauses(chance.choice([condition, p.Not(condition)]), [world.index]):
                tally[compare(clause, world.metadata, documents)] += 1
    assert tally[True] >= 100, tally
    assert tally[None] < sum(tally.values()) / 2, tally


def _steps(a: int, b: int) -> int:
    return abs(a - b)


def test_distances_that_wrap_around_are_kept_by_the_query() -> None:
    with mappings():
        declare(_steps, metric=True)
        world = distant("_steps", ("bigint",), [[(1_500_000_000,)], [(3,)], [(-1_000_000_000,)]], origins=[(0,)])
        args = (world.index.bound[0], p.Literal(-1_000_000_000, "bigint"))  # 2.5e9 from the first
        called = p.Call("f", args, f"python:{world.index.function}", ("eval:100",), "int")
        clause = clause_for(p.Comparison("<", called, p.Literal(5.0, "double")), [world.index])
        assert keep_mask(clause, world.metadata).tolist() == [True, False, True]
        stored = world.metadata.table().schema.field(str(world.index)).type
        assert compare(clause, world.metadata, documents_of(world.metadata, {world.index: stored}))


@pytest.mark.parametrize("word", ["abc", "xyz", ""])
def test_other_distances_than_a_whole_number_are_exact(word: str) -> None:
    world = distant("levenshtein", ("string",), [[("abc",)], [("abd",), ("xbc",)], [("abc",), ("abcdef",)], [(None,)]])
    stored = world.metadata.table().schema.field(str(world.index)).type
    documents = documents_of(world.metadata, {world.index: stored})
    distance = our("levenshtein", world.index.bound[0], p.Literal(word, "string"), type="int")
    for number in (0, 1, 1.5, 3, -1):
        differs = p.Not(p.Comparison("=", distance, p.Literal(number)))
        assert compare(clause_for(differs, [world.index]), world.metadata, documents), number


def _an_open_bound_is_missing(patch: pytest.MonkeyPatch) -> None:
    def missing(original: Any, field: KeyField, member: str) -> Any:
        return NONE if member in ("low", "high") else original(field, member)

    before(patch, KeyField, "is_missing", missing)


def _keys(**changed: Any) -> Patch:
    def keys(original: Any, *given: Any) -> Any:
        return [unit | {name: change(unit) for name, change in changed.items()} for unit in original(*given)]

    return lambda patch: function(patch, keys_of_bounds, keys)


def _a_place_is_above_its_key(patch: pytest.MonkeyPatch) -> None:
    def compare(original: Any, field: KeyField, member: str, **limits: Any) -> Any:
        return original(field, member, **{{"lte": "lt"}.get(name, name): limit for name, limit in limits.items()})

    before(patch, KeyField, "compare", compare)


def _a_literal_is_below_itself(patch: pytest.MonkeyPatch) -> None:
    def compare(original: Any, field: KeyField, member: str, **limits: Any) -> Any:
        return original(field, member, **{"lte" if name == "lt" else name: limit for name, limit in limits.items()})

    before(patch, KeyField, "compare", compare)


def _listed(**changed: Any) -> Patch:
    """Some keys of lists have other values in every document that has them."""

    def keys(original: Any, *given: Any) -> Any:
        found = original(*given)
        rows = [row | {name: value for name, value in changed.items() if name in row} for row in found.rows]
        return replace(found, rows=rows)

    return lambda patch: function(patch, list_keys_of, keys)


def _a_clause_is_negated(patch: pytest.MonkeyPatch) -> None:
    function(patch, any_of_queries, lambda original, queries: {"bool": {"filter": list(queries)}})


MUTANTS: dict[str, tuple[Patch, str]] = {
    "an open bound of strings is a missing member": (_an_open_bound_is_missing, "minmax s"),
    "a file without values has no bounds": (_keys(present=lambda unit: True), "minmax s"),
    "a literal lies above its key": (_a_place_is_above_its_key, "minmax d"),
    "the negation of a clause": (_a_clause_is_negated, "minmax d"),
    "a value that is not listed is none": (_listed(open=False), "valuelist n"),
    "NULL is no unit": (_listed(nulls=False), "valuelist a"),
    "a literal lies below itself": (_a_literal_is_below_itself, "valuelist a"),
    "a long text is its own entry": (_listed(cut=[]), "prefix s"),
    "a segment is open": (_keys(high=lambda unit: unit["low"]), "gaplist a"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_translation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, shown_by = MUTANTS[name]
    kind, column = shown_by.split()
    world = canned(column, KINDS[kind][0])
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="differs"):
        tally_of(world, list(leaves(column)))


def test_wrong_translations_of_boxes_and_distances_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = geo.collected(geo.PAIR, [[(-0.0, 1.0)], [(3.0, None)], [(5.0, 5.0), (5.0, 9.0)]])
    at_zero = p.Comparison(">=", geo.LNG, p.Literal(0.0, "double"))
    assert checked(geo.PAIR, zeros, at_zero)
    two = p.And((at_zero, p.IsNull(geo.LAT)))
    assert checked(geo.PAIR, zeros, two)
    with monkeypatch.context() as patch:
        function(patch, box_keys_of, lambda original, *given: _without_sorts(original(*given)))
        with pytest.raises(AssertionError, match="differs"):
            checked(geo.PAIR, zeros, two)
    with monkeypatch.context() as patch:
        function(patch, ring_keys_of, lambda original, *given: _without_ends(original(*given)))
        with pytest.raises(AssertionError, match="differs"):
            test_distances_are_translated_rightly("euclidean")


def _without_sorts(keys: Any) -> Any:
    return replace(keys, rows=[row | {"only_x": False} for row in keys.rows])


def _without_ends(keys: Any) -> Any:
    """Each range from an origin as its least distance alone."""

    def least(found: Any) -> Any:
        return [{"gte": found[0]["gte"], "lte": found[0]["gte"]}] if isinstance(found, list) else found

    return replace(keys, rows=[{name: least(found) for name, found in row.items()} for row in keys.rows])


def test_lists_that_are_long_or_hold_long_values_are_looked_at_here() -> None:
    long = [[{"s": f"{n:04}"} for n in range(1001)], [{"s": "x" * 501}], [{"s": "x"}]]
    world = World(long, kinds=(ValueList,))
    documents = documents_of(world.metadata, world.types)
    assert [bool(row["k0"]) for row in documents[0]] == [False, False, True]
    clause = clause_for(p.Comparison("=", COLUMNS["s"], p.Literal("y", "string")), list(world.types))
    assert compare(clause, world.metadata, documents) is False
    many = p.In(COLUMNS["s"], tuple(p.Literal(str(n), "string") for n in range(3000)))
    assert translate(clause_for(many, list(world.types)), documents[1]) is None
    assert translate(clause_for(p.Not(p.In(COLUMNS["s"], many.values[:300])), list(world.types)), documents[1]) is None


def test_more_literals_than_a_server_takes_become_their_ends() -> None:
    world = canned("n")
    documents = documents_of(world.metadata, world.types)
    many = p.In(COLUMNS["n"], tuple(p.Literal(n, "bigint") for n in range(0, 10_000, 7)))
    clause = next(clauses(many, list(world.types)))
    assert compare(clause, world.metadata, documents) is False
    found = translate(clause, documents[1])
    assert found is not None
    assert found.size < 20


@pytest.mark.slow
def test_what_is_too_deep_or_too_long_is_evaluated_here() -> None:
    world = canned("n")
    _, fields = documents_of(world.metadata, world.types)

    def above(number: int) -> Clause:
        return next(clauses(p.Comparison(">", COLUMNS["n"], p.Literal(number, "bigint")), list(world.types)))

    deep = above(5)
    for _ in range(10):
        deep = any_of([all_of([deep, Unknown()]), Other()])
    assert translate(deep, fields) is None
    assert translate(any_of(map(above, range(1000))), fields) is None
    world = canned("n", lambda name: GapList(name, gaps=2))
    _, fields = documents_of(world.metadata, world.types)
    assert translate(any_of(map(above, range(1000))), fields) is None, "of units too, which are joined one by one"
    assert translate(any_of(map(above, range(300))), fields) is not None


class Unknown(Clause):
    def keep(self, files: Any) -> Any:
        return np.ones(len(files), dtype=bool)


class Other(Unknown):
    pass
