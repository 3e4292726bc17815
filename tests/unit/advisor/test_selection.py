"""Choosing within a budget, beside the best of all sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.advisor.selection import select
from tests.support.strategies import examples

FILES = 12


@dataclass(frozen=True)
class Case:
    """A workload of ANDs and ORs of two conditions, each index over one of the two columns."""

    costs: dict[int, int]
    skips: tuple[tuple[frozenset[int], ...], ...]
    """Of each index and query the files that it skips for its condition."""
    second: tuple[bool, ...]
    alternatives: tuple[bool, ...]
    budget: float

    def saving(self, items: frozenset[int]) -> float:
        total = 0
        for query, alternative in enumerate(self.alternatives):
            left, right = (
                frozenset[int]().union(*(self.skips[i][query] for i in items if self.second[i] is side))
                for side in (False, True)
            )
            total += len(left & right if alternative else left | right)
        return float(total)

    @property
    def bundles(self) -> list[tuple[int, int]]:
        if not any(self.alternatives):
            return []
        return [(i, j) for i in self.costs for j in self.costs if self.second[i] < self.second[j]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    items, queries = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    skipped = st.frozensets(st.integers(0, FILES - 1))
    costs = {i: draw(st.integers(1, 20)) for i in range(items)}
    return Case(
        costs,
        tuple(tuple(draw(skipped) for _ in range(queries)) for _ in range(items)),
        tuple(draw(st.booleans()) for _ in range(items)),
        tuple(draw(st.booleans()) for _ in range(queries)),
        draw(st.integers(1, 1 + sum(costs.values()))),
    )


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_a_selection_saves_at_least_nine_tenths_of_the_optimum(case: Case) -> None:
    found = select(case.costs, case.saving, case.budget, bundles=case.bundles)
    sets = (set(some) for size in range(len(case.costs) + 1) for some in combinations(case.costs, size))
    best = max(case.saving(frozenset(some)) for some in sets if sum(case.costs[i] for i in some) <= case.budget)
    assert found.cost == sum(case.costs[item] for item in found.items) <= case.budget
    assert found.saving == case.saving(found.items)
    assert found.saving >= 0.9 * best


def covering(files: dict[str, set[int]]) -> Callable[[frozenset[str]], float]:
    return lambda items: float(len(set[int]().union(*(files[item] for item in items))))


def test_a_crumb_does_not_displace_the_loaf() -> None:
    """Greedy by saving per cost alone takes the crumb, and has no room for the loaf."""
    files = {"crumb": {0}, "loaf": set(range(100))}
    assert select({"crumb": 0.5, "loaf": 100.0}, covering(files), 100.0).items == {"loaf"}


def test_two_that_fill_the_budget_displace_one_that_is_dense() -> None:
    files = {"dense": set(range(7)), "left": {10, 11, 12, 13, 14}, "right": {20, 21, 22, 23, 24}}
    assert select({"dense": 6.0, "left": 5.0, "right": 5.0}, covering(files), 10.0).items == {"left", "right"}


def test_what_saves_only_together_needs_its_bundle() -> None:
    def saving(items: frozenset[str]) -> float:
        return 9.0 * (items >= {"a", "b"}) + ("c" in items)

    costs = {"a": 2.0, "b": 2.0, "c": 4.0}
    assert select(costs, saving, 4.0, bundles=[("a", "b")]).items == {"a", "b"}
    assert select(costs, saving, 8.0, bundles=[("a", "b")]).items == {"a", "b", "c"}


def test_items_that_save_nothing_more_are_left_out() -> None:
    files = {"all": {1, 2, 3}, "some": {1, 2}, "none": set[int]()}
    assert select({"all": 3.0, "some": 1.0, "none": 0.0}, covering(files), 99.0).items == {"all"}


@pytest.mark.parametrize(("least", "chosen"), [(0.0, {"cheap", "dear"}), (1.0, {"cheap"}), (9.0, set())])
def test_an_item_must_be_worth_its_cost(least: float, chosen: set[str]) -> None:
    files = {"cheap": {1, 2, 3}, "dear": {3, 4}}
    assert select({"cheap": 1.0, "dear": 2.0}, covering(files), 9.0, least_per_cost=least).items == chosen


def test_nothing_is_chosen_where_nothing_fits() -> None:
    found = select({"a": 5.0}, covering({"a": {1}}), 4.0)
    assert (found.items, found.saving, found.cost) == (frozenset(), 0.0, 0.0)


def test_lazy_evaluation_computes_few_savings() -> None:
    """Of 300 disjoint items with room for ten, eager greedy would compute nearly 3,000 from each of 300 starts."""
    files = {str(n): set(range(300 * n, 300 * n + n)) for n in range(1, 301)}
    saved, calls = covering(files), 0

    def counted(items: frozenset[str]) -> float:
        nonlocal calls
        calls += 1
        return saved(items)

    found = select(dict.fromkeys(files, 1.0), counted, 10.0)
    assert found.items == {str(n) for n in range(291, 301)}
    assert calls < 4_000
