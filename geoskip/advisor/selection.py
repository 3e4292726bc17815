"""Selection of items within a budget, where the savings of several items do not add up.

*The problem.* Each item has a cost, and a set of items has a saving: the weighted bytes that a workload does not read.
Find the set with the greatest saving and a total cost within the budget.

*Submodularity.* A file is not read if one of the indexes skips it, so savings are a coverage function: for a query that
is an AND of conditions, each supported by its own indexes, an index never saves more in addition to others than alone.
Maximising a monotone submodular saving under a knapsack constraint is NP-hard. Greedy selection by saving per cost may
be arbitrarily bad (a cheap item with a tiny saving may displace a large one), but the better of its result and the best
single item saves at least 1/2 (1 - 1/e) = 0.316 of the optimum (Khuller, Moss and Naor, *The budgeted maximum coverage
problem*, 1999; for submodular savings Leskovec et al., *Cost-effective outbreak detection in networks*, 2007, section
3.2). Greedy completions of all sets of three items save at least 1 - 1/e = 0.632 (Sviridenko, 2004). Here greedy starts
from the empty set and from the most promising sets of one and two *bundles*, by saving per cost and by saving alone,
and exchanges improve the best result: it is never worse than the plain greedy one, and close to the optimum in small
cases.

*Lazy evaluation* (CELF, Leskovec et al.): if savings are submodular, an item's marginal saving in an earlier round is
an upper bound for later rounds, so most are not computed again.

*Savings that are not submodular.* For an OR over two columns, an index on one column skips nothing alone, and a
comparison of two columns needs bounds of both: two items save only together, and the guarantee does not hold for items.
So the caller may pass *bundles* of items, which are selected like items. If the bundles include all pairs that save
only together, savings over bundles are a coverage function again, and the guarantees hold for bundles in place of
items, with two exceptions. First, bundles share items, so a later bundle may cost less than the sum of its items; costs
are computed again in each round. Second, an item may complete a bundle after a small marginal saving was computed for
it; therefore the bounds of bundles that share an item with an added one are reset.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Selection", "select"]

T = TypeVar("T", bound=Hashable)
_SEEDS = 12
"""The number of bundles, by saving and by saving per cost, from which greedy starts, alone and in pairs."""
_MOST_CALLS = 20_000
"""After this number of computed savings the search stops with the best set so far."""


@dataclass(frozen=True)
class Selection(Generic[T]):
    """The selected items with their saving and cost."""

    items: frozenset[T]
    saving: float
    cost: float


class _Problem(Generic[T]):
    """Costs, and savings cached by set of items."""

    def __init__(
        self, costs: Mapping[T, float], saving: Callable[[frozenset[T]], float], budget: float, least_per_cost: float
    ) -> None:
        self.costs = costs
        self.budget = budget
        self.least_per_cost = least_per_cost
        self._saving = saving
        self._known: dict[frozenset[T], float] = {}

    @property
    def calls(self) -> int:
        """The number of sets that were evaluated."""
        return len(self._known)

    def saving(self, items: frozenset[T]) -> float:
        if items not in self._known:
            self._known[items] = self._saving(items)
        return self._known[items]

    def cost(self, items: Iterable[T]) -> float:
        return sum(self.costs[item] for item in items)

    def value(self, items: frozenset[T]) -> tuple[float, float]:
        """Return the sort key of results: the saving beyond ``least_per_cost``, then the lower cost."""
        cost = self.cost(items)
        return self.saving(items) - self.least_per_cost * cost, -cost

    def fits(self, items: Iterable[T]) -> bool:
        return self.cost(items) <= self.budget


def select(
    costs: Mapping[T, float],
    saving: Callable[[frozenset[T]], float],
    budget: float,
    *,
    bundles: Iterable[Iterable[T]] = (),
    least_per_cost: float = 0.0,
) -> Selection[T]:
    """Return items within a budget with a large saving; the cheaper set of equal ones.

    Parameters
    ----------
    costs
        The cost of each item, at least 0.
    saving
        From a set of items to its saving: 0 for the empty set, and monotone.
    budget
        The greatest total cost.
    bundles
        Sets of items that save only together; each single item is also a bundle.
    least_per_cost
        The least saving per unit of cost of a selected item.

    Returns
    -------
    Selection
        Empty if no set within the budget saves anything.

    >>> files = {"a": {1, 2, 3}, "b": {3, 4}, "c": {4}}
    >>> saved = lambda items: float(len(set().union(*(files[item] for item in items))))
    >>> sorted(select({"a": 3, "b": 3, "c": 1}, saved, 4).items)
    ['a', 'c']
    """
    problem = _Problem(costs, saving, budget, least_per_cost)
    groups = list(dict.fromkeys(map(frozenset, (*([item] for item in costs), *bundles))))
    groups = [group for group in groups if group and problem.fits(group)]
    best: frozenset[T] = frozenset()
    for start in _starts(problem, groups):
        for per_cost in (True, False):
            best = max(best, _prune(problem, _greedy(problem, groups, start, per_cost)), key=problem.value)
        if problem.calls > _MOST_CALLS:
            break
    best = _exchange(problem, groups, best)
    return Selection(best, problem.saving(best), problem.cost(best))


def _starts(problem: _Problem[T], groups: Sequence[frozenset[T]]) -> list[frozenset[T]]:
    """Return the empty set, the most promising bundles, and their pairs within the budget."""
    by_saving = sorted(groups, key=problem.value, reverse=True)[:_SEEDS]
    per_cost = sorted(groups, key=lambda g: problem.saving(g) / max(problem.cost(g), 1e-9), reverse=True)[:_SEEDS]
    single = list(dict.fromkeys((*by_saving, *per_cost)))
    pairs = [a | b for a, b in itertools.combinations(single, 2) if problem.fits(a | b)]
    return [frozenset(), *single, *pairs]


def _greedy(problem: _Problem[T], groups: Sequence[frozenset[T]], start: frozenset[T], per_cost: bool) -> frozenset[T]:
    """Add bundles within the budget to a set, in descending order of their saving (per cost)."""
    taken = start
    # entries: the negated bound, the bundle's number, the size of the set for which the bound was computed
    heap = [(-_bound(problem, group, start, per_cost), number, -1) for number, group in enumerate(groups)]
    heapq.heapify(heap)
    while heap:
        _, number, seen = heapq.heappop(heap)
        added = groups[number] - taken
        if not added or not problem.fits(taken | added):
            continue
        if seen == len(taken):
            taken = taken | added
            touched = {other for other, group in enumerate(groups) if group & added}
            heap = [(-math.inf if n in touched else b, n, s) for b, n, s in heap]
            heapq.heapify(heap)
            continue
        gain = problem.saving(taken | added) - problem.saving(taken)
        cost = problem.cost(added)
        if gain > problem.least_per_cost * cost and gain > 0:
            heapq.heappush(heap, (-(gain / max(cost, 1e-9)) if per_cost else -gain, number, len(taken)))
    return taken


def _bound(problem: _Problem[T], group: frozenset[T], taken: frozenset[T], per_cost: bool) -> float:
    """Return an upper bound of a bundle's marginal saving: its saving alone, unless they share an item."""
    if group & taken:
        return math.inf
    return problem.saving(group) / (max(problem.cost(group), 1e-9) if per_cost else 1.0)


def _prune(problem: _Problem[T], items: frozenset[T]) -> frozenset[T]:
    """Remove superfluous items, the most expensive first."""
    for item in sorted(items, key=lambda item: -problem.costs[item]):
        fewer = items - {item}
        if problem.value(fewer) >= problem.value(items):
            items = fewer
    return items


def _exchange(problem: _Problem[T], groups: Sequence[frozenset[T]], items: frozenset[T]) -> frozenset[T]:
    """Replace one item, or none, by a bundle while this improves the result."""
    improved = True
    while improved and problem.calls <= _MOST_CALLS:
        improved = False
        for group, gone in itertools.product(groups, (None, *items)):
            other = (items - {gone}) | group
            if problem.fits(other) and problem.value(other) > problem.value(items):
                items, improved = _prune(problem, other), True
                break
    return items
