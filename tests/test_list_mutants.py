"""Unsound rules for lists of values, planted one by one: the harness must catch each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip import evaluation
from geoskip import predicates as p
from geoskip.clauses import Mask
from geoskip.evaluation import lookups
from geoskip.indexes import hybrid, postings, valuelist
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.postings import ListMeets, Postings
from geoskip.indexes.valuelist import ValueList
from tests.harness import Kind, canned, leaves, sound

Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[Any] = []
SHORT: Kind = functools.partial(ValueList, limit=1)


def mutant(rule: str, column: str, kind: Kind = ValueList) -> Callable[[Patch], Patch]:
    """A mutant, the section of SEMANTICS that it breaks, and the column and index on which it does."""

    def register(plant: Patch) -> Patch:
        MUTANTS.append(pytest.param(plant, column, kind, id=f"{plant.__name__} (section {rule})"))
        return plant

    return register


@mutant("1: a null cell keeps", "a")
def a_lost_summary_reads_as_an_empty_list(patch: pytest.MonkeyPatch) -> None:
    original = Postings.keep_units

    def keep(self: Postings, *args: Any, **options: Any) -> Mask:
        units = original(self, *args, **options)
        units[-1] = False
        return units

    patch.setattr(Postings, "keep_units", keep)


@mutant("1: unknown is KEEP", "a", SHORT)
def a_file_over_the_limit_has_no_other_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ListMeets, "unlisted", lambda self: False)


@mutant("1: unknown is KEEP", "a", Hybrid)
def a_file_with_a_filter_has_an_empty_list(patch: pytest.MonkeyPatch) -> None:
    original = postings._stored
    patch.setattr(postings, "_stored", lambda *args: (original(*args)[0], np.ones(args[1], dtype=bool)))


@mutant("1: an evaluation that throws is true, false and null", "x")
def what_throws_is_false(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evaluation, "ANY", evaluation.IS_FALSE)


@mutant("2: IS NULL skips only when the null count is known and 0", "a")
def null_is_no_unit(patch: pytest.MonkeyPatch) -> None:
    original = postings.counts_of

    def counts(files: Any, index: str, field: str) -> Any:
        found, known = original(files, index, field)
        return (found * 0 if field == "nulls" else found), known

    patch.setattr(postings, "counts_of", counts)


@mutant("2: a clause is never negated", "a")
def not_as_no_value_that_makes_it_true(patch: pytest.MonkeyPatch) -> None:
    original = ListMeets.files_of

    def files_of(self: ListMeets, files: Any, units: Mask) -> Mask:
        if self.wanted != evaluation.IS_FALSE:
            return original(self, files, units)
        return ~original(self, files, ListMeets(self.name, self.over, self.node).keep_units(files))

    patch.setattr(ListMeets, "files_of", files_of)


@mutant("2: IN (1, 2, NULL) matches 1 and 2", "a")
def only_the_first_of_many_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    original = lookups._spans
    patch.setattr(lookups, "_spans", lambda array, literals, over: original(array, literals[:1], over))


@mutant("3: NaN is above all numbers and equal to itself", "x")
def nan_is_not_listed(patch: pytest.MonkeyPatch) -> None:
    original = valuelist.listed

    def listed(values: pa.Array, *rest: Any) -> dict[str, Any]:
        found = original(values, *rest)
        return {**found, "values": [value for value in found["values"] if value == value]}

    patch.setattr(valuelist, "listed", listed)


@mutant("3: -0.0 = 0.0", "x")
def the_zeros_are_looked_up_as_one(patch: pytest.MonkeyPatch) -> None:
    original = lookups._span

    def span(array: pa.Array, *rest: Any) -> Any:
        found = original(array, *rest)
        return found and (found[0], min(found[1], found[0] + 1))

    patch.setattr(lookups, "_span", span)


@mutant("3: -0.0 among hashed values is another", "x")
def minus_zero_is_in_the_list_or_not(patch: pytest.MonkeyPatch) -> None:
    """The oracle compares, so the mutant says that zeros are never found: Spark's answer for long lists."""
    original = lookups._spans

    def spans(array: pa.Array, literals: Any, over: p.Predicate) -> Any:
        return original(array, [literal for literal in literals if literal.value != 0], over)

    patch.setattr(lookups, "_spans", spans)


@mutant("4: strings are ordered by unsigned bytes", "s")
def texts_in_an_order_of_their_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(postings, "ascending", lambda array: np.argsort([v.hex()[::-1] for v in array.to_pylist()]))


@mutant("4: strings may hold invalid UTF-8", "s")
def invalid_text_is_replaced_in_the_list(patch: pytest.MonkeyPatch) -> None:
    original = valuelist.listed

    def listed(values: pa.Array, *rest: Any) -> dict[str, Any]:
        found = original(values, *rest)
        plain = sorted({value.decode("utf-8", "replace").encode() for value in found["values"]})
        return {**found, "values": plain}

    patch.setattr(valuelist, "listed", listed)


@mutant("5: a literal of another type is compared by the engine", "n")
def a_double_is_looked_up_among_integers(patch: pytest.MonkeyPatch) -> None:
    original = lookups.value_in

    def bound(literal: p.Literal, kind: pa.DataType, over: p.Predicate) -> Any:
        plain = isinstance(literal.value, float) and abs(literal.value) < 2.0**62
        return int(literal.value) if plain and pa.types.is_integer(kind) else original(literal, kind, over)

    patch.setattr(lookups, "value_in", bound)


@mutant("10: parts of a file make one list", "a")
def the_first_part_stands_for_the_file(patch: pytest.MonkeyPatch) -> None:
    original = valuelist.joined
    patch.setattr(valuelist, "joined", lambda parts, *rest: {**original(parts, *rest), "values": parts[0]["values"]})


@mutant("10: parts of a file make one list", "a", Hybrid)
def a_list_made_into_a_filter_loses_a_value(patch: pytest.MonkeyPatch) -> None:
    original = Hybrid._as_filter
    patch.setattr(
        hybrid.Hybrid, "_as_filter", lambda self, summary: original(self, {**summary, "values": summary["values"][1:]})
    )


def _search(column: str, kind: Kind) -> None:
    world = canned(column, kind)
    for leaf in leaves(column):
        sound(leaf, world)
        sound(p.Not(leaf), world)


@pytest.mark.parametrize(("plant", "column", "kind"), MUTANTS)
def test_the_harness_catches(plant: Patch, column: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"is (True|False|None) for .* says it is not"):
        _search(column, kind)


@pytest.mark.parametrize("kind", [ValueList, SHORT, Hybrid], ids=["valuelist", "short lists", "hybrid"])
def test_the_harness_finds_nothing_where_nothing_is_planted(kind: Kind) -> None:
    for column in "ax":
        _search(column, kind)
