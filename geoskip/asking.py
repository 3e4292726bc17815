"""Asking the indexes and mappings at hand about one vertex, each kept from doing harm.

What raises, returns something else than a clause or takes longer than the planning budget is left out with a reason;
a mapping that did so is put in quarantine (:class:`geoskip.registry.Registry`), so that later queries do not ask it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from geoskip.clauses import Clause
from geoskip.indexes.base import Index
from geoskip.indexes.casts import uncast
from geoskip.indexes.days import of_the_day
from geoskip.inlining import Template, recognised
from geoskip.predicates import And, Call, Not, Or, Predicate, children, columns_of
from geoskip.registry import Mapping, Registry

__all__ = ["Asking", "Source", "Watch", "calls_of"]

Report = Callable[[str], None]
_MOST_TOGETHER = 64
"""So many combinations of indexes are given to a rule that takes several."""


@dataclass(frozen=True)
class Source:
    """A clause, and by which name reasons call what it is from."""

    name: str
    clause: Clause


@dataclass
class Watch:
    """What is being asked now, seen from another thread; longer than ``most`` seconds is too slow."""

    most: float = math.inf
    running: tuple[str, Callable[..., object]] | None = None
    """A name, and what is called under it."""
    sources: list[Source] = field(default_factory=list)
    """Every clause that was answered."""


class Asking:
    """The indexes and mappings of one decision."""

    def __init__(
        self,
        indexes: Sequence[Index],
        registry: Registry,
        report: Report,
        watch: Watch | None,
        templates: Sequence[Template] = (),
    ) -> None:
        self.registry = registry
        self.report = report
        self.watch = watch or Watch()
        self.templates = templates
        self._indexes = [(str(index), index) for index in indexes]
        self._rules: dict[int, tuple[Call, list[Mapping]]] = {}

    def about(self, node: Predicate) -> list[Clause]:
        """What indexes and mappings say of a vertex itself."""
        found: list[Clause] = []
        for name, index in self._indexes:
            self.ask(name, index.clause, (node,), found)
            for implied in of_the_day(node, index):
                self.ask(name, index.clause, (implied,), found)
        for version in (node, *recognised(node, self.templates)):
            self._map(version, found)
        return found

    def _map(self, node: Predicate, found: list[Clause]) -> None:
        """What the mappings of its calls say of a vertex."""
        rules = {id(mapping): mapping for call in calls_of(node) for mapping in self._mappings(call)}.values()
        single = [mapping for mapping in rules if not mapping.together]
        for _, index in self._indexes if single else ():
            for mapping in single:
                if isinstance(index, mapping.indexes):
                    self.ask(f"mapping {mapping.name}", mapping.rule, (node, index), found)
        for mapping in rules:
            if mapping.together:
                for indexes in itertools.islice(self._combinations(mapping, node), _MOST_TOGETHER):
                    self.ask(f"mapping {mapping.name}", mapping.rule, (node, *indexes), found)

    def ask(self, name: str, rule: Callable[..., object], arguments: tuple[object, ...], found: list[Clause]) -> None:
        """Put what a rule answers to what was found, if that is a clause."""
        if name in self.registry.quarantine:
            self.report(f"{name} is left out: {self.registry.quarantine[name]}")
            return
        self.watch.running, started = (name, rule), time.monotonic()
        try:
            clause = rule(*arguments)
        except BaseException as error:
            self._leave_out(name, rule, f"failed on {arguments[0]}: {type(error).__name__}: {error}")
            return
        finally:
            self.watch.running, took = None, time.monotonic() - started
        if isinstance(clause, Clause):
            found.append(clause)
            self.watch.sources.append(Source(name, clause))
        elif clause is not None:
            self._leave_out(name, rule, f"returned {clause!r} for {arguments[0]} instead of a clause or None")
        if took > self.watch.most:
            self._leave_out(name, rule, f"took {took:.1f} s, which is more than the planning budget")

    def _leave_out(self, name: str, rule: Callable[..., object], why: str) -> None:
        self.report(f"{name} {why}")
        if name.startswith("mapping "):
            self.registry.leave_out(name, f"it {why}; register it again when it is mended", rule)

    def _mappings(self, call: Call) -> list[Mapping]:
        if id(call) not in self._rules:  # the call is kept with them, so that its id is not used again
            self._rules[id(call)] = (call, self.registry.rules_of(call))
            for mapping in self.registry.strangers(call):
                self.report(
                    f"mapping {mapping.name} is for another function that was named {call.name} when it was first "
                    "met; register the mapping again if it is meant for this one"
                )
        return self._rules[id(call)][1]

    def _combinations(self, mapping: Mapping, node: Predicate) -> Iterator[tuple[Index | None, ...]]:
        """One index of each kind, of those over columns of the vertex; None where one is missing and may be."""
        columns = columns_of(node)
        choices: list[list[Index | None]] = []
        for number, kind in enumerate(mapping.indexes):
            fit = [index for _, index in self._indexes if isinstance(index, kind) and _is_near(index, columns)]
            choices.append([*fit] if fit or number not in mapping.optional else [None])
        return itertools.product(*choices)


def _is_near(index: Index, columns: frozenset[str]) -> bool:
    """Is an index over one of these columns?"""
    return not index.bound or any(columns & columns_of(expression) for expression in index.bound)


def calls_of(node: Predicate) -> list[Call]:
    """The calls that a boolean vertex is about: itself, or the operands of its comparison."""
    if isinstance(node, Not):
        return calls_of(node.child)
    if isinstance(node, Call):
        return [node]
    if isinstance(node, And | Or):
        return []
    return [child for child in map(uncast, children(node)) if isinstance(child, Call)]
