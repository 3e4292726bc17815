"""The first rows of an order: no bound excludes one of them, and wrong counts are found out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from geoskip import MinMax, mappings, maps, quarantined
from geoskip import predicates as p
from geoskip.metadata import FileMetadata
from geoskip.planner import decide
from geoskip.rules import Deadline
from geoskip.top_k import Bound, Order, bound_of
from tests.support.evaluator import compare, outcomes, value
from tests.support.harness import COLUMNS, WIDE, World, call
from tests.support.strategies import examples, predicates, worlds

Conditions = tuple[p.Predicate, ...]
Query = tuple[World, Conditions, Order]
Change = Callable[[Conditions, Order], tuple[Conditions, Order]]
BOUNDS: list[bool] = []


@st.composite
def queries(draw: Any) -> Query:
    """Some files, the conditions of a query, and its order: by a column, or by its negation."""
    name = draw(st.sampled_from(["a", "x", "f", "d", "w", "s", "day", "ts"]))
    column = COLUMNS[name]
    negated = call("negative", column, type="double") if name == "x" else column
    conditions = draw(st.lists(predicates((name,)), max_size=1))
    order = Order(
        draw(st.sampled_from([column, negated])), *(draw(st.booleans()) for _ in "ab"), draw(st.integers(1, 6))
    )
    return draw(worlds((name,))), tuple(conditions), order


def bound(world: World, conditions: Conditions, order: Order) -> Bound | None:
    """The bound by the metadata of all files."""
    found = {str(index): world.metadata.column(str(index)) for index in world.types}
    rows = pa.array([len(rows) for rows in world.files], pa.int64())
    files = FileMetadata.of(pa.table({**found, "rows": rows}))
    snapshot: Any = SimpleNamespace(files=files, header=SimpleNamespace(root="", entries=()))
    decision = decide(snapshot, p.And(conditions), tuple(world.types))
    return bound_of([decision], [order], [np.ones(len(rows), bool)], Deadline())


def is_sound(query: Query, change: Change = lambda conditions, order: (conditions, order)) -> bool:
    """True if each of the first rows, by the oracle, satisfies the condition that the bound states."""
    world, conditions, order = query
    found = bound(world, *change(conditions, order))
    BOUNDS.append(found is not None)
    if found is None:
        return True
    rows = [row for file in world.files for row in file]
    met = [row for row in rows if outcomes(p.And(conditions), row) == {True}]  # others may throw, or not match
    first = sorted(met, key=functools.cmp_to_key(functools.partial(_compare, order)))[: order.rows]
    until = order.until(found.value)
    return len(met) >= order.rows and all(True in outcomes(until, row) for row in first)


def _compare(order: Order, one: Any, other: Any) -> int:
    a, b = value(order.by, one), value(order.by, other)
    if a is None or b is None:
        return ((b is None) - (a is None)) * (1 if order.nulls_first else -1)
    return compare(a, b) * (-1 if order.descending else 1)


@settings(max_examples=examples(800), deadline=None, suppress_health_check=list(HealthCheck))
@given(queries())
def test_no_first_row_is_excluded(query: Query) -> None:
    assert is_sound(query)


def test_bounds_of_long_decimals_are_exact() -> None:
    found = bound(World([[{"w": WIDE}], [{"w": 0}]]), (), Order(COLUMNS["w"], True, False, 1))
    assert found is not None
    assert found.value.value == WIDE


@pytest.mark.parametrize(
    ("descending", "rows", "value"),
    [
        (False, 1, 0),
        (False, 2, 1),
        (False, 3, 2),
        (False, 4, 7),
        (True, 1, 9),
        (True, 2, 8),
        (True, 6, 1),
        (True, 7, 0),
    ],
)
def test_first_rows_of_files_that_overlap_are_counted(*, descending: bool, rows: int, value: int) -> None:
    files = [[1, 5, 9], [0, 8], [2, 7]]
    world = World([[{"a": row} for row in of_file] for of_file in files])
    found = bound(world, (), Order(COLUMNS["a"], descending, True, rows))
    assert found is not None
    assert found.value.value == value


def test_rows_of_few_files_are_counted() -> None:
    """101 rows are found in 101 files, and in two of those with 100 rows each."""
    several = [[{"a": n}, {"a": 1000}] for n in range(150)] + [[{"a": 400}] * 100] * 3
    found = bound(World(several), (), Order(COLUMNS["a"], False, True, 101))
    assert found is not None
    assert (found.value.value, sum(found.counted[0])) == (400, 2)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.sampled_from(["", "a", "ab", "\U0001f600", "\ufb01"]), st.integers(0, 3))),
    *(st.booleans() for _ in "ab"),
    st.integers(1, 6),
)
def test_bounds_of_partitions_are_the_best(
    partitions: list[tuple[str | None, int]], descending: bool, nulls_first: bool, rows: int
) -> None:
    """Each partition has one value and one file."""
    orders = [Order(p.Literal(value, "string"), descending, nulls_first, rows) for value, _ in partitions]
    decisions = []
    for _, count in partitions:
        files: Any = FileMetadata.of(pa.table({"rows": pa.array([count], pa.int64())}))
        snapshot: Any = SimpleNamespace(files=files, header=SimpleNamespace(root="", entries=()))
        decisions.append(decide(snapshot, p.And(()), ()))
    found = bound_of(decisions, orders, [np.ones(1, bool)] * len(decisions), Deadline())
    known = sorted((value.encode() for value, count in partitions if value is not None for _ in range(count)))
    nulls = sum(count for value, count in partitions if value is None) if nulls_first else 0
    if nulls + len(known) < rows or all(value is None for value, _ in partitions):
        assert found is None
        return
    assert found is not None
    if rows > nulls:
        ordered = known[::-1] if descending else known
        assert found.value.value.encode() == ordered[rows - nulls - 1]
    counted = sum(count for (_, count), mask in zip(partitions, found.counted, strict=True) if mask.any())
    assert counted >= rows


def test_rules_are_not_blamed_for_extreme_values() -> None:
    failed = []

    def fails(node: Any, index: Any) -> None:
        failed.append(node)
        raise OverflowError

    with mappings():
        maps("f", index=MinMax)(fails)
        order = Order(p.Call("f", (COLUMNS["a"],), type="int"), False, False, 1)
        assert bound(World([[{"a": 1}], [{"a": 2}]]), (), order) is None
        assert failed
        assert not quarantined()


def test_most_orders_have_a_bound() -> None:
    if len(BOUNDS) < 100:
        pytest.skip("the test above did not run")
    assert sum(BOUNDS) > 0.2 * len(BOUNDS)


WRONG: dict[str, Change] = {
    "rows that do not match are counted": lambda conditions, order: ((), order),
    "NULLs that come last are counted": lambda conditions, order: (conditions, replace(order, nulls_first=True)),
    "one row too few is counted": lambda conditions, order: (conditions, replace(order, rows=max(order.rows - 1, 1))),
    "the order is reversed": lambda conditions, order: (conditions, replace(order, descending=not order.descending)),
}


@pytest.mark.parametrize("change", WRONG)
def test_wrong_counts_are_found_out(change: str) -> None:
    @settings(max_examples=2000, deadline=None, phases=[Phase.generate], database=None, derandomize=True)
    @given(queries())
    def search(query: Query) -> None:
        assert is_sound(query, WRONG[change])

    with pytest.raises(AssertionError):
        search()
