"""Unsound rules for lists of values, planted one by one: the harness must catch each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from geoskip import predicates as p
from geoskip.clauses import Mask
from geoskip.evaluation import outcomes
from geoskip.evaluation.values import ANY, IS_FALSE, runs_within, sort_order, value_in
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.postings import Postings, passes
from geoskip.indexes.valuelist import ValueList
from tests.soundness.test_mutants import negated
from tests.support.harness import Kind, canned, leaves, sound
from tests.support.planting import Patch, before, function, listed, rewritten, summary
from tests.support.strategies import some_of

MUTANTS: list[Any] = []
SHORT: Kind = functools.partial(ValueList, limit=1)


def mutant(rule: str, column: str, kind: Kind = ValueList) -> Callable[[Patch], Patch]:
    """A mutant, the soundness rule that it breaks, and the column and index on which it does."""
    return listed(MUTANTS, f"section {rule}", column, kind)


@mutant("1: a null cell keeps", "a")
def a_lost_summary_reads_as_an_empty_list(patch: pytest.MonkeyPatch) -> None:
    def within(original: Any, postings: Postings, places: Any) -> Mask:
        found: Mask = original(postings, [run for run in places if run[1] < len(postings)])
        return found

    before(patch, Postings, "files_within", within)


@mutant("1: unknown is KEEP", "a", SHORT)
def a_file_over_the_limit_has_no_other_values(patch: pytest.MonkeyPatch) -> None:
    function(patch, passes, lambda original, *args, **options: original(*args, **options | {"unlisted": False}))


@mutant("1: unknown is KEEP", "a", Hybrid)
def a_file_with_a_filter_has_an_empty_list(patch: pytest.MonkeyPatch) -> None:
    def filled(field: str, array: Any) -> Any:
        return pa.array([found or [] for found in array.to_pylist()], array.type) if field == "values" else array

    summary(patch, filled)


@mutant("1: an evaluation that throws is true, false and null", "x")
def what_throws_is_false(patch: pytest.MonkeyPatch) -> None:
    def thrown(original: Any, *args: Any) -> Any:
        found = original(*args)
        return np.where(found == ANY, np.uint8(IS_FALSE), found)

    function(patch, outcomes, thrown)


@mutant("2: IS NULL skips only when the null count is known and 0", "a")
def null_is_no_unit(patch: pytest.MonkeyPatch) -> None:
    summary(patch, lambda field, array: pc.multiply(array, 0) if field == "nulls" else array)


@mutant("2: a clause is never negated", "a")
def not_as_no_value_that_makes_it_true(patch: pytest.MonkeyPatch) -> None:
    negated(patch, ValueList, p.Predicate)


@mutant("2: IN (1, 2, NULL) matches 1 and 2", "a")
def only_the_first_of_many_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    rewritten(patch, ValueList, lambda node: p.In(node.child, node.values[:1]) if isinstance(node, p.In) else node)


@mutant("3: NaN is above all numbers and equal to itself", "x")
def nan_is_not_listed(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: ValueList, values: pa.Array) -> Any:
        found = original(index, values)
        return {**found, "values": [value for value in found["values"] if value == value]}

    before(patch, ValueList, "collect", collect)


@mutant("3: -0.0 = 0.0", "x")
def the_zeros_are_looked_up_as_one(patch: pytest.MonkeyPatch) -> None:
    def places(original: Any, *args: Any) -> Any:
        return [(low, min(high, low + 1)) for low, high in original(*args)]

    function(patch, runs_within, places)


@mutant("3: -0.0 among hashed values is another", "x")
def minus_zero_is_in_the_list_or_not(patch: pytest.MonkeyPatch) -> None:
    """The oracle compares, so the mutant says that zeros are never found: Spark's answer for long lists."""

    def without_zeros(node: p.Predicate) -> p.Predicate:
        if not isinstance(node, p.In):
            return node
        return p.In(node.child, tuple(literal for literal in node.values if literal.value != 0))

    rewritten(patch, ValueList, without_zeros)


@mutant("4: strings are ordered by unsigned bytes", "s")
def texts_in_an_order_of_their_own(patch: pytest.MonkeyPatch) -> None:
    function(patch, sort_order, lambda original, array: np.argsort([v.hex()[::-1] for v in array.to_pylist()]))


@mutant("4: strings may hold invalid UTF-8", "s")
def invalid_text_is_replaced_in_the_list(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: ValueList, values: pa.Array) -> Any:
        found = original(index, values)
        return {**found, "values": sorted({v.decode("utf-8", "replace").encode() for v in found["values"]})}

    before(patch, ValueList, "collect", collect)


@mutant("5: a literal of another type is compared by the engine", "n")
def a_double_is_looked_up_among_integers(patch: pytest.MonkeyPatch) -> None:
    def bound(original: Any, literal: p.Literal, kind: pa.DataType, over: p.Predicate) -> Any:
        plain = isinstance(literal.value, float) and abs(literal.value) < 2.0**62
        return int(literal.value) if plain and pa.types.is_integer(kind) else original(literal, kind, over)

    function(patch, value_in, bound)


@mutant("10: parts of a file make one list", "a")
def the_first_part_stands_for_the_file(patch: pytest.MonkeyPatch) -> None:
    before(
        patch,
        ValueList,
        "merge",
        lambda original, index, parts: {**original(index, parts), "values": parts[0]["values"]},
    )


@mutant("10: parts of a file make one list", "a", Hybrid)
def a_list_made_into_a_filter_loses_a_value(patch: pytest.MonkeyPatch) -> None:
    def for_files(original: Any, index: Hybrid, summaries: Any, sizes: Any) -> Any:
        def fitted(whole: Any, size: int) -> Any:
            (found,) = original(index, [whole], [size])
            made = whole["values"] and found["values"] is None
            return original(index, [{**whole, "values": whole["values"][1:]}], [size])[0] if made else found

        return [fitted(whole, size) for whole, size in zip(summaries, sizes, strict=True)]

    before(patch, Hybrid, "for_files", for_files)


def _search(column: str, kind: Kind, step: int = 1) -> None:
    world = canned(column, kind)
    for leaf in some_of(leaves(column), step):
        sound(leaf, world)
        sound(p.Not(leaf), world)


@pytest.mark.parametrize(("plant", "column", "kind"), MUTANTS)
def test_the_harness_catches(plant: Patch, column: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"is (True|False|None) for .* says it is not"):
        _search(column, kind)


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", [ValueList, SHORT, Hybrid], ids=["valuelist", "short lists", "hybrid"])
def test_the_harness_finds_nothing_where_nothing_is_planted(kind: Kind) -> None:
    for column in "ax":
        _search(column, kind, step=5)
