"""Guarded calls of indexes and mappings for one vertex, and quarantine.

A rule that raises, returns something other than a clause or None, or exceeds the planning budget is left out with a
reason. A mapping that fails so is put in quarantine (:class:`geoskip.registry.Registry`): later queries do not call it.
If a clause fails when it is evaluated, the mapping or user's index that made it is put in quarantine. Failures of
geoskip's own indexes are only reported.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from geoskip.bounds import uncast
from geoskip.clauses import Clause, Files, all_of, answer_mask, any_of, guard, leaves_of
from geoskip.indexes.base import Index
from geoskip.indexes.minmax import MinMax, clause_of_several
from geoskip.predicates import And, Call, Comparison, In, Not, Or, Predicate, children, columns_of
from geoskip.registry import Mapping, Registry
from geoskip.vertex_labels import VertexLabel

Report = Callable[[str], None]
Rule = Callable[..., object]
_MOST_VALUES = 1000
_FEW_VALUES = 16
"""The most values of an IN (previous line) and of a NOT IN that mappings receive one by one."""
_SHARE_OF_VALUES = 0.1
"""The share of the planning budget for the values of an IN."""
_MOST_TOGETHER = 64
"""The most combinations of indexes that are tried for a rule over several indexes."""


@dataclass(frozen=True)
class RuleSubject:
    """A clause with the rule that made it and the name of that rule in reasons."""

    name: str
    clause: Clause
    rule: Rule = field(repr=False, compare=False)


@dataclass
class Deadline:
    """The rule that is running now, visible to other threads, with a time limit of ``most`` seconds."""

    most: float = math.inf
    root: str = ""
    """The root of the dataset."""
    running: tuple[str, Rule] | None = None
    """The name of the running rule, and its function."""
    sources: list[RuleSubject] = field(default_factory=list)
    """Every clause that a rule returned."""
    faults: dict[str, tuple[Rule, str]] = field(default_factory=dict)
    """The first fault of a source's clauses at evaluation, by the source's name."""
    labels: Callable[[], VertexLabel] | None = None
    """The labelled tree of the predicate."""
    blames: bool = True
    """True if faulty rules are put in quarantine; False for conditions with extreme values that no query has."""

    def source_of(self, clause: Clause) -> RuleSubject | None:
        """Return the mapping, declaration or index that made a clause."""
        made = [source for source in self.sources if any(leaf is clause for leaf in leaves_of(source.clause))]
        return min(made, key=lambda source: not _of_function(source.name), default=None)

    def of_functions(self) -> list[RuleSubject]:
        """Return the sources that handle functions: mappings and declarations."""
        return [source for source in self.sources if _of_function(source.name)]

    def blame(self, source: RuleSubject, why: str) -> None:
        """Record a fault of a source's clause; only the first is kept."""
        self.faults.setdefault(source.name, (source.rule, why))

    def call(self, name: str, function: Rule, *values: object) -> Any:
        """Call a function with constants; record a fault if it exceeds the time limit."""
        before, started = self.running, time.monotonic()
        self.running = (name, function)
        try:
            return function(*values)
        finally:
            self.running, took = before, time.monotonic() - started
            if took > self.most:
                self.faults.setdefault(name, (function, f"took {_slow(took)}"))

    @contextmanager
    def guarding_clauses(self) -> Iterator[None]:
        """Open a block in which users' clauses are evaluated by :meth:`evaluate`."""
        before = guard.set(self.evaluate)
        try:
            yield
        finally:
            guard.reset(before)

    def evaluate(self, clause: Clause, files: Files) -> Any:
        """Evaluate a clause; an error, a wrong type or a timeout is recorded as a fault of its source."""
        source = self.source_of(clause)
        if source is None:
            return clause.keep(files)
        before, started = self.running, time.monotonic()
        self.running = (source.name, source.rule)
        try:
            answer = clause.keep(files)
        except BaseException as error:
            self.blame(source, f"made a clause that failed: {_describe(error)}")
            raise
        finally:
            self.running, took = before, time.monotonic() - started
        if answer_mask(answer, len(files)) is None:
            self.blame(source, f"made a clause that answered {type(answer).__name__}, not a boolean a file")
        if took > self.most:
            self.blame(source, f"made a clause that took {_slow(took)}")
        return answer


def name_of(index: str, root: str) -> str:
    """Return the name of one dataset's index in quarantine."""
    return f"{index} of {root}"


def leave_out(registry: Registry, name: str, rule: Rule, why: str, root: str) -> bool:
    """Put a rule in quarantine; return False for geoskip's own, which stay in use.

    Parameters
    ----------
    registry
        The registry with the quarantine.
    name, rule
        The rule's name in reports, and the rule.
    why
        The reason, a sentence without its subject.
    root
        The dataset; the quarantine of an index holds for one dataset.
    """
    if _of_function(name):
        mapped = rule if name.startswith("mapping ") else None
        registry.leave_out(name, f"it {why}; register it again when it is mended", mapped)
        return True
    asked = type(getattr(rule, "__self__", None))
    if issubclass(asked, Index) and asked.__module__.partition(".")[0] != "geoskip":
        registry.leave_out(name_of(name, root), f"it {why}")
        return True
    return False


def _of_function(name: str) -> bool:
    return name.startswith(("mapping ", "what is declared of ", "constant "))


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _slow(seconds: float) -> str:
    return f"{seconds:.1f} s, which is more than the planning budget"


class RuleRunner:
    """The indexes and mappings of one decision."""

    def __init__(
        self,
        indexes: Sequence[Index],
        registry: Registry,
        report: Report,
        watch: Deadline | None,
    ) -> None:
        self.registry = registry
        self.report = report
        self.watch = watch or Deadline()
        self._indexes = [(str(index), index) for index in indexes]
        self._columns = [_read_alone(index) for index in indexes]
        self._rules: dict[int, tuple[Call, list[Mapping]]] = {}

    def clauses_for(self, node: Predicate) -> list[Clause]:
        """Return the clauses of indexes and mappings for a vertex, without its parts."""
        found: list[Clause] = []
        read = columns_of(node)
        joined = isinstance(node, Not) and isinstance(node.child, And | Or)  # the labeller pushes this NOT down
        for (name, index), columns in zip(self._indexes, self._columns, strict=True):
            if joined or (columns and columns.isdisjoint(read)):
                continue
            self.ask(name, index.clause, (node,), found)
        if not joined:
            self._mix(node, read, found)
        before = len(found)
        self._map(node, found)
        if len(found) == before:
            self._map_each(node, found)
        return found

    def _mix(self, node: Predicate, read: frozenset[str], found: list[Clause]) -> None:
        """Add the clause of a comparison over several columns that each have a MinMax."""
        several = [
            index
            for (_, index), columns in zip(self._indexes, self._columns, strict=True)
            if isinstance(index, MinMax) and not columns.isdisjoint(read)
        ]
        if len(several) > 1 and not isinstance(node, And | Or):
            self.ask(str(several[0]), clause_of_several, (node, *several), found)

    def _map_each(self, node: Predicate, found: list[Clause]) -> None:
        """Pass an IN to mappings as equalities, and a NOT IN as inequalities.

        IN is TRUE only where one of its equalities is: a file is skipped only if all of them skip it. NOT IN is TRUE
        only where all inequalities are, so clauses for the first few are sound.
        """
        match node:
            case In(child, values) if isinstance(uncast(child), Call):
                if len(values) > _MOST_VALUES:
                    first: list[Clause] = []
                    self._map(Comparison("=", child, values[0]), first)
                    if first:
                        self.report(
                            f"mappings of {child} are given the values of an IN one by one, up to {_MOST_VALUES:,}: "
                            f"they were not used for {len(values):,}"
                        )
                    return
                ends = time.monotonic() + _SHARE_OF_VALUES * self.watch.most
                each: list[Clause] = []
                for value in values:
                    clauses: list[Clause] = []
                    self._map(Comparison("=", child, value), clauses)
                    if not clauses:
                        return
                    if time.monotonic() > ends:
                        self.report(f"mappings of {child} took too long for {len(values):,} values, and were not used")
                        return
                    each.append(all_of(clauses))
                found.append(any_of(each))
            case Not(In(child, values)) if isinstance(uncast(child), Call):
                for value in values[:_FEW_VALUES]:
                    self._map(Not(Comparison("=", child, value)), found)

    def _map(self, node: Predicate, found: list[Clause]) -> None:
        """Add the clauses that mappings return for the calls in a vertex."""
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

    def ask(self, name: str, rule: Rule, arguments: tuple[object, ...], found: list[Clause]) -> None:
        """Call a rule with time limit and error handling, and append its clause.

        Parameters
        ----------
        name
            The rule's name in reports and quarantine.
        rule, arguments
            The function and its arguments, the vertex first.
        found
            The list that gets the clause, if the rule returns one.
        """
        if name in self.registry.quarantine:
            self.report(f"{name} is left out: {self.registry.quarantine[name]}")
            return
        before, started = self.watch.running, time.monotonic()
        self.watch.running = (name, rule)
        try:
            clause = rule(*arguments)
        except BaseException as error:
            self._leave_out(name, rule, f"failed on {arguments[0]}: {_describe(error)}")
            return
        finally:
            self.watch.running, took = before, time.monotonic() - started
        if isinstance(clause, Clause):
            found.append(clause)
            self.watch.sources.append(RuleSubject(name, clause, rule))
        elif clause is not None:
            self._leave_out(name, rule, f"returned {clause!r} for {arguments[0]} instead of a clause or None")
        if took > self.watch.most:
            self._leave_out(name, rule, f"took {_slow(took)}")

    def _leave_out(self, name: str, rule: Rule, why: str) -> None:
        """Report a fault and put a mapping in quarantine; an index stays in use for other vertices."""
        self.report(f"{name} {why}")
        if name.startswith("mapping ") and self.watch.blames:
            leave_out(self.registry, name, rule, why, self.watch.root)

    def _mappings(self, call: Call) -> list[Mapping]:
        if id(call) not in self._rules:  # the entry holds the call, so its id is not reused
            self._rules[id(call)] = (call, self.registry.rules_of(call))
            for mapping in self.registry.mismatches(call):
                self.report(
                    f"mapping {mapping.name} is for another function that was named {call.name} when it was first "
                    "met; register the mapping again if it is meant for this one"
                )
        return self._rules[id(call)][1]

    def _combinations(self, mapping: Mapping, node: Predicate) -> Iterator[tuple[Index | None, ...]]:
        """Iterate over combinations of one index per kind over the vertex's columns; None if optional."""
        columns = columns_of(node)
        choices: list[list[Index | None]] = []
        for number, kind in enumerate(mapping.indexes):
            fit = [index for _, index in self._indexes if isinstance(index, kind) and _is_near(index, columns)]
            choices.append([*fit] if fit or number not in mapping.optional else [None])
        return itertools.product(*choices)


def _read_alone(index: Index) -> frozenset[str]:
    """Return the indexed columns: a vertex that reads none of them gets no clause; empty if unknown."""
    is_own = type(index).__module__.partition(".")[0] == "geoskip"
    return columns_of(*index.bound) if is_own else frozenset()


def _is_near(index: Index, columns: frozenset[str]) -> bool:
    """True if an index reads one of these columns."""
    return not index.bound or any(columns & columns_of(expression) for expression in index.bound)


def calls_of(node: Predicate) -> list[Call]:
    """Return the calls of a boolean vertex: itself, or the operands of its comparison."""
    if isinstance(node, Not):
        return calls_of(node.child)
    if isinstance(node, Call):
        return [node]
    if isinstance(node, And | Or):
        return []
    return [child for child in map(uncast, children(node)) if isinstance(child, Call)]
