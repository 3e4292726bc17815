"""Conditions over single values: looked up, taken apart, or asked of an evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.evaluation import Declined, Evaluator, outcomes, using_evaluator
from geoskip.evaluation.values import (
    ANY,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    CandidateValues,
    Outcomes,
    direct_outcomes,
    physical,
    sort_order,
)
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import Header, IndexEntry, Snapshot
from geoskip.planner import decide
from tests.support import evaluator as oracle
from tests.support.harness import COLUMNS, NAN, POOLS, TYPES, World, array_of, leaves
from tests.support.strategies import some_of

BITS = {True: IS_TRUE, False: IS_FALSE, None: IS_NULL}


class RowByRow(Evaluator):
    """The tests' own evaluator, for conditions that are not looked up."""

    def outcomes(self, node: p.Predicate, over: p.Predicate, values: CandidateValues) -> Outcomes | None:
        assert isinstance(over, p.Column)
        if isinstance(node, p.IsNull) and str(node).startswith("isnan"):  # the oracle does not take it for a value
            child = self.outcomes(node.child, over, values)
            return None if child is None else np.where(child == IS_NULL, np.uint8(IS_TRUE), np.uint8(IS_FALSE))
        return expected(node, over.name, [back(v, over.name) for v in values.array.to_pylist()])

    def values(self, node: p.Predicate, over: p.Predicate, values: CandidateValues) -> pa.Array | None:
        return None


def back(value: Any, name: str) -> Any:
    """A physical value as the oracle takes it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return bool(value) if name == "b" and value is not None else value


def expected(node: p.Predicate, name: str, values: list[Any]) -> Outcomes:
    found = [sum(BITS[o] for o in oracle.outcomes(node, {name: value})) for value in values]
    return np.array(found, dtype=np.uint8)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("ordered", [True, False], ids=["ascending", "in any order, some twice"])
def test_what_is_looked_up_is_what_the_rows_say(name: str, ordered: bool) -> None:
    pool = [*POOLS[name], None] if ordered else [*POOLS[name][::-1], None, *POOLS[name], None]
    array = physical(array_of(name, pool))
    if ordered:
        array = array.take(pa.array(sort_order(array)))
    values = CandidateValues(array, ascending=ordered)
    rows = [back(value, name) for value in array.to_pylist()]
    looked_up = 0
    for leaf in leaves(name):
        for node in (leaf, p.Not(leaf)):
            found = direct_outcomes(node, COLUMNS[name], values)
            if found is not None:
                looked_up += 1
                said = expected(node, name, rows)
                assert (found & said == said).all(), node
                exact = (found == said) | (array_is_zero(array) & isinstance(leaf, p.In))
                assert exact.all(), node
    assert looked_up > 20


def array_is_zero(array: pa.Array) -> Any:
    return np.array([value == 0 and isinstance(value, float) for value in array.to_pylist()])


def test_minus_zero_among_many_values_is_left_open() -> None:
    """Spark hashes a long list, where -0.0 is not 0.0, and compares a short one, where it is."""
    column, values = COLUMNS["x"], CandidateValues(pa.array([-0.0, 0.0, 1.0]), ascending=True)
    found = direct_outcomes(p.In(column, (p.Literal(0.0, "double"), p.Literal(1.0, "double"))), column, values)
    assert found is not None
    assert found.tolist() == [IS_TRUE | IS_FALSE, IS_TRUE | IS_FALSE, IS_TRUE]


OTHER_TYPES = [
    ("a", p.Literal("1", "string")),
    ("a", p.Literal(True, "boolean")),
    ("a", p.Literal(1.0, "double")),
    ("b", p.Literal(1, "int")),
    ("s", p.Literal(1, "int")),
    ("s", p.Literal(b"a", "binary")),
    ("day", p.Literal(0, "timestamp_ntz")),
    ("ts", p.Literal(0, "date")),
    ("d", p.Literal(1.0, "double")),
    ("x", p.Literal(2**60 + 1, "bigint")),
]


@pytest.mark.parametrize(("name", "literal"), OTHER_TYPES, ids=lambda part: str(part))
def test_a_literal_of_another_type_is_not_looked_up(name: str, literal: p.Literal) -> None:
    values = CandidateValues(physical(array_of(name, POOLS[name][:1])), ascending=True)
    assert direct_outcomes(p.Comparison("=", COLUMNS[name], literal), COLUMNS[name], values) is None
    assert outcomes(p.Comparison("=", COLUMNS[name], literal), COLUMNS[name], values).tolist() == [ANY]


def test_conditions_are_taken_apart_where_nobody_answers_for_the_whole() -> None:
    column = COLUMNS["a"]
    more, less = p.Comparison(">", column, p.Literal(1)), p.Comparison("<", column, p.Literal(5))
    throws = p.Call("f", (column,), type="boolean")
    rows = [0, 3, 7, None]
    values = CandidateValues(pa.array(rows), ascending=True)
    for node in (p.And((more, less)), p.Or((p.Not(more), p.Not(less))), p.IsNull(p.And((more, less)))):
        assert outcomes(node, column, values).tolist() == expected(node, "a", rows).tolist()
    assert outcomes(p.And((more, throws)), column, values).tolist() == [IS_FALSE, ANY, ANY, IS_FALSE | IS_NULL]
    assert outcomes(p.Or((more, throws)), column, values).tolist() == [ANY, IS_TRUE, IS_TRUE, IS_TRUE | IS_NULL]


# --- in a decision ----------------------------------------------------------------------------------------------------


def snapshot_of(rows: list[list[Any]], name: str = "s") -> Snapshot:
    world = World([[{name: value} for value in values] for values in rows], kinds=(ValueList,))
    ((index, stored),) = world.types.items()
    header = Header(root="r", source={}, entries=(IndexEntry(index, ((name, TYPES[name][0]),), stored),))
    return Snapshot(header, world.metadata)


SHOUTS = p.Call("shouts", (COLUMNS["s"],), type="boolean")


class Says(Evaluator):
    """Answers with a function of the values; counts how often it is asked."""

    def __init__(self, answer: Callable[[list[Any]], Any]) -> None:
        self.answer = answer
        self.asked = 0

    def outcomes(self, node: p.Predicate, over: p.Predicate, values: CandidateValues) -> Outcomes | None:
        self.asked += 1
        found = self.answer(values.array.to_pylist())
        return None if found is None else np.array(found, dtype=np.uint8)

    def values(self, node: p.Predicate, over: p.Predicate, values: CandidateValues) -> pa.Array | None:
        return None


def upper(values: list[Any]) -> list[int]:
    return [IS_NULL if v is None else IS_TRUE if v.isupper() else IS_FALSE for v in values]


def test_an_evaluator_decides_and_is_asked_once_a_condition() -> None:
    snapshot = snapshot_of([["A", "b"], ["b"], ["C"], [None]])
    says = Says(upper)
    both = p.Or((SHOUTS, p.And((p.Not(SHOUTS), p.Comparison("=", COLUMNS["s"], p.Literal("b", "string"))))))
    assert decide(snapshot, SHOUTS, evaluator=says).keep.tolist() == [True, False, True, False]
    assert decide(snapshot, p.Not(SHOUTS), evaluator=says).keep.tolist() == [True, True, False, False]
    assert says.asked == 2
    assert decide(snapshot, both, evaluator=says).keep.tolist() == [True, True, True, False]
    assert says.asked == 3


def test_a_report_that_asks_later_gets_the_answer_of_the_decision() -> None:
    snapshot = snapshot_of([["A", "b"], ["b"], ["C"], [None]])
    says = Says(upper)
    decision = decide(snapshot, SHOUTS, evaluator=says)
    assert decision.effects() == (("a value of valuelist(s) for which shouts(s) is TRUE", 2),)
    assert says.asked == 1


def declines(values: list[Any]) -> Any:
    raise Declined("the budget was spent")


def breaks(values: list[Any]) -> Any:
    raise SystemExit(3)


WRONG = {
    "nobody knows": (lambda values: None, ()),
    "declined": (declines, ("shouts(s) was not evaluated: the budget was spent",)),
    "of another length": (lambda values: [IS_FALSE], None),
    "breaks": (breaks, None),
}


@pytest.mark.parametrize("case", WRONG)
def test_where_an_evaluator_does_not_answer_every_file_is_kept(case: str) -> None:
    answer, reasons = WRONG[case]
    decision = decide(snapshot_of([["A"], ["b"]]), SHOUTS, evaluator=Says(answer))
    assert decision.keep.all()
    assert decision.reasons == reasons if reasons is not None else len(decision.reasons) == 1


def test_without_an_evaluator_what_is_not_looked_up_is_kept() -> None:
    assert decide(snapshot_of([["A"], ["b"]]), SHOUTS).keep.all()
    assert not decide(snapshot_of([["A"], ["b"]]), p.Like(COLUMNS["s"], "_b", "!")).keep.any()
    undecoded = p.Like(COLUMNS["s"], "_\udcff", "!")  # to Spark a pattern of U+FFFD, which the second file matches
    assert decide(snapshot_of([["A"], ["b\ufffd"]]), undecoded).keep.any()


def test_the_evaluator_of_a_decision_ends_with_it() -> None:
    column, values = COLUMNS["s"], CandidateValues(pa.array([b"A"]), ascending=True)
    with using_evaluator(Says(upper2)):
        assert outcomes(SHOUTS, column, values).tolist() == [IS_TRUE]
    assert outcomes(SHOUTS, column, values).tolist() == [ANY]


def upper2(values: list[Any]) -> list[int]:
    return upper([None if v is None else v.decode() for v in values])


# --- exact verdicts ---------------------------------------------------------------------------------------------------


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", COLUMNS)
def test_verdicts_over_one_expression_are_exact(name: str) -> None:
    """TRUE, FALSE and NULL are excluded wherever no row of the file gives them."""
    pool = POOLS[name]
    rows = [[], [None], *([value] for value in pool), *([value, None] for value in pool), pool[:3], pool]
    snapshot = snapshot_of(rows, name)
    shapes = [*leaves(name)]
    chosen = some_of(shapes[:: max(1, len(shapes) // 40)], 3)
    pairs = [kind((a, b)) for kind in (p.And, p.Or) for a, b in zip(chosen, chosen[7:], strict=False)]
    says = RowByRow()
    for node in [*chosen, *pairs]:
        if any(isinstance(v, p.In) and name in "xf" for v in p.walk(node)):
            continue  # zeros are left open there
        said = [expected(node, name, values) for values in rows]
        for test, bit in ((node, IS_TRUE), (p.Not(node), IS_FALSE), (p.IsNull(node), IS_NULL)):
            decision = decide(snapshot, test, evaluator=says)
            assert decision.reasons == ()
            exact = [bool((found & bit).any()) for found in said]
            assert decision.keep.tolist() == exact, test


def test_nan_is_one_value_and_the_zeros_are_two() -> None:
    lists = [[NAN, -NAN], [0.0, -0.0, 0.0]]
    found = [ValueList("x").collect(pa.array(values)) for values in lists]
    assert [len(summary["values"]) for summary in found if summary] == [1, 2]
    merged = ValueList("x").merge([summary for summary in found if summary])
    assert str(merged["values"]) == "[-0.0, 0.0, nan]"


def test_the_masks_are_those_of_the_clause() -> None:
    snapshot = snapshot_of([["a"], ["b"], []])
    decision = decide(snapshot, p.Comparison("=", COLUMNS["s"], p.Literal("a", "string")))
    assert keep_mask(decision.clause, snapshot.files).tolist() == decision.keep.tolist() == [True, False, False]
