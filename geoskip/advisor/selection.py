"""Selection of items within a budget, where savings of several do not add up.

*The problem.* Each item has a cost, and a set of items a saving: bytes that a workload does not read, with weights.
Wanted is the set of the greatest saving whose costs fit the budget.

*Submodularity.* A file is not read if one of the indexes skips it, so that savings are coverage: for a query that is an
AND of conditions, each served by indexes of its own, an index never saves more beside others than alone. Maximising a
monotone submodular saving under a knapsack is NP-hard; greedy by saving per cost alone may be arbitrarily bad (a cheap
crumb displaces the loaf), but the better of it and the best single item saves at least 1/2 (1 - 1/e) = 0.316 of the
optimum (Khuller, Moss and Naor, *The budgeted maximum coverage problem*, 1999, and Leskovec et al., *Cost-effective
outbreak detection in networks*, 2007, section 3.2, whose bound is this one for submodular savings). Greedy completions
of all sets of three items save 1 - 1/e = 0.632 (Sviridenko, 2004). Here greedy is completed from nothing and from the
most promising sets of one and of two *bundles*, by saving per cost and by saving alone, and the best result is improved
by exchanges: never worse than the first, and on small cases close to the optimum.

*Lazy evaluation* (CELF, Leskovec et al.): where savings are submodular, an item's marginal saving of an earlier round
bounds that of a later one, so that most are not computed again.

*Where savings are not submodular.* Of an OR over two columns, an index over one column skips nothing alone, and a
comparison of two columns needs bounds of both: two items save only together, and no guarantee holds for items. So
*bundles* of items, given by the caller, are taken like items. With all pairs that save only together among the bundles,
savings over bundles are those of coverage again, and the bounds hold with bundles in the place of items, but for two
things: bundles share items, so that a later bundle may be cheaper than its items' costs (costs are then computed again
each round), and an item may complete a bundle after its marginal saving was found small (such items are looked at
again: a bound counts only for the items that share no bundle with what was taken since).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Selection", "best_exhaustively", "select"]

T = TypeVar("T", bound=Hashable)
_SEEDS = 12
"""Bundles from which greedy is completed; with their pairs, where savings are cheap to compute."""
_MOST_CALLS = 20_000
"""Savings that are computed, at most, before the best set so far is taken."""


@dataclass(frozen=True)
class Selection(Generic[T]):
    """Chosen items, with what they save and cost."""

    items: frozenset[T]
    saving: float
    cost: float


class _Problem(Generic[T]):
    """Costs and savings, each set's computed once."""

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
        """The order of results: the saving above the least that pays for the cost, then the lower cost."""
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
    """Return items within a budget that save much; a cheaper set where several save the same.

    Parameters
    ----------
    costs
        The cost of each item, at least 0.
    saving
        What a set of items saves: 0 of none, and no less of more items.
    budget
        The most that the items may cost together.
    bundles
        Items that save only together; each item is a bundle too.
    least_per_cost
        What an item must save for each unit of cost to be worth it.

    Returns
    -------
    Selection
        Empty where nothing that fits saves anything.

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
    """Nothing, the most promising bundles, and their pairs that fit."""
    by_saving = sorted(groups, key=problem.value, reverse=True)[:_SEEDS]
    per_cost = sorted(groups, key=lambda g: problem.saving(g) / max(problem.cost(g), 1e-9), reverse=True)[:_SEEDS]
    single = list(dict.fromkeys((*by_saving, *per_cost)))
    pairs = [a | b for a, b in itertools.combinations(single, 2) if problem.fits(a | b)]
    return [frozenset(), *single, *pairs]


def _greedy(problem: _Problem[T], groups: Sequence[frozenset[T]], start: frozenset[T], per_cost: bool) -> frozenset[T]:
    """Add bundles to a set, the one that saves most (for its cost) first, while they fit."""
    taken = start
    # an entry: minus the bound, the group, the number of items for which the bound was computed
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
    """The most that a bundle can add to what is taken: its saving alone, unless they share an item."""
    if group & taken:
        return math.inf
    return problem.saving(group) / (max(problem.cost(group), 1e-9) if per_cost else 1.0)


def _prune(problem: _Problem[T], items: frozenset[T]) -> frozenset[T]:
    """The set without items that later ones have made superfluous, the dearest first."""
    for item in sorted(items, key=lambda item: -problem.costs[item]):
        fewer = items - {item}
        if problem.value(fewer) >= problem.value(items):
            items = fewer
    return items


def _exchange(problem: _Problem[T], groups: Sequence[frozenset[T]], items: frozenset[T]) -> frozenset[T]:
    """Exchange one item, or none, for a bundle while that saves more."""
    improved = True
    while improved and problem.calls <= _MOST_CALLS:
        improved = False
        for group, gone in itertools.product(groups, (None, *items)):
            other = (items - {gone}) | group
            if problem.fits(other) and problem.value(other) > problem.value(items):
                items, improved = _prune(problem, other), True
                break
    return items


def best_exhaustively(costs: Mapping[T, float], saving: Callable[[frozenset[T]], float], budget: float) -> Selection[T]:
    """Return the best of all sets that fit, to judge :func:`select` by on small cases."""
    problem = _Problem(costs, saving, budget, 0.0)
    sizes = range(len(costs) + 1)
    sets = (frozenset(some) for size in sizes for some in itertools.combinations(costs, size))
    best = max(filter(problem.fits, sets), key=problem.value)
    return Selection(best, problem.saving(best), problem.cost(best))
