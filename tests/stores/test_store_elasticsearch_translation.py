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
from geoskip.clauses import Clause, all_of, any_of
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import clause_for
from geoskip.stores.search.clause_queries import keys_of_bounds, translate
from geoskip.stores.search.queries import NONE, KeyField, list_keys_of
from geoskip.stores.search.queries import any_of as any_of_queries
from tests.support.harness import COLUMNS, TYPES, World, canned, leaves
from tests.support.planting import Patch, before, function
from tests.support.server_semantics import clauses, compare, documents_of
from tests.support.strategies import examples, predicates, worlds

QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
KINDS: dict[str, tuple[Callable[[str], Any], tuple[str, ...], int]] = {
    "minmax": (MinMax, tuple(TYPES), 30),
    "valuelist": (lambda name: ValueList(name, limit=4), tuple(TYPES), 15),
    "hybrid": (Hybrid, ("a", "s"), 0),
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
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_translation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, shown_by = MUTANTS[name]
    kind, column = shown_by.split()
    world = canned(column, KINDS[kind][0])
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="differs"):
        tally_of(world, list(leaves(column)))


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


class Unknown(Clause):
    def keep(self, files: Any) -> Any:
        return np.ones(len(files), dtype=bool)


class Other(Unknown):
    pass
