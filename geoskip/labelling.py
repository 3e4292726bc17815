"""Labelling: from a predicate tree to one clause (Extensible Data Skipping, algorithms 1 and 2, made three-valued).

Every vertex gets a *verdict* of three over-approximations: may some row of a file make it TRUE, FALSE, NULL? No
information is (yes, yes, yes).

============ =================== ============ ======================================================
vertex       true                false        null
============ =================== ============ ======================================================
leaf e       rules for e         rules for    null counts of what e reads, where e is null for null
                                 ``NOT e``    input and never otherwise
a AND b      Ta and Tb           Fa or Fb     Na or Nb
a OR b       Ta or Tb            Fa and Fb    Na or Nb
NOT a        Fa                  Ta           Na
============ =================== ============ ======================================================

A vertex's own labels are conjoined into its T. A file is skipped where T of the root is false. Soundness is by
induction: each row of the table is true of single rows, and a clause is never negated.

Verdicts are computed lazily: a query without NOT never asks for F.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geoskip.clauses import KEEP_ALL, KEEP_NONE, Clause, all_of, any_of
from geoskip.indexes.base import Index
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    children,
    normalise,
    transform,
)
from geoskip.registry import Mapping, Registry, current

__all__ = ["Labeller", "clause_for", "fold_constants"]

Report = Callable[[str], None]


def clause_for(predicate: Predicate, indexes: Sequence[Index], report: Report = lambda text: None) -> Clause:
    """The clause that represents a predicate, given the indexes at hand; KEEP_ALL where nothing is known.

    ``report`` receives a sentence for every rule that failed.
    """
    return Labeller(indexes, report=report).true(fold_constants(normalise(predicate), report=report))


def fold_constants(node: Predicate, *, registry: Registry | None = None, report: Report = lambda text: None) -> Predicate:
    """The tree with calls over literals evaluated, where :func:`~geoskip.registry.constant` says how."""
    scope = registry or current()

    def fold(vertex: Predicate) -> Predicate:
        match vertex:
            case Call(name, args) if args and all(isinstance(a, Literal) for a in args):
                evaluate = scope.evaluator(vertex)
                if evaluate is None:
                    return vertex
                try:
                    value = evaluate(*(a.value for a in args if isinstance(a, Literal)))
                except BaseException as error:
                    report(f"{name} of these constants was not evaluated: {type(error).__name__}: {error}")
                    return vertex
                return value if isinstance(value, Literal) else Literal(value, vertex.type)
        return vertex

    return transform(node, fold)


class Labeller:
    """Labels the vertices of one query's tree with clauses over the given indexes."""

    def __init__(self, indexes: Sequence[Index], *, registry: Registry | None = None, report: Report = lambda text: None):
        self.indexes = tuple(indexes)
        self.registry = registry or current()
        self.report = report
        self._memo: dict[tuple[str, Predicate], Clause] = {}
        self._rules: dict[tuple[type, Call], list[Mapping]] = {}

    def true(self, node: Predicate) -> Clause:
        """May some row of a file make the vertex TRUE?"""
        return self._remembered("true", node, self._true)

    def false(self, node: Predicate) -> Clause:
        """May some row of a file make the vertex FALSE?"""
        return self._remembered("false", node, self._false)

    def null(self, node: Predicate) -> Clause:
        """May some row of a file make the vertex NULL?"""
        return self._remembered("null", node, self._null)

    def _remembered(self, what: str, node: Predicate, compute: Callable[[Predicate], Clause]) -> Clause:
        key = (what, node)
        if key not in self._memo:
            self._memo[key] = compute(node)
        return self._memo[key]

    def _true(self, node: Predicate) -> Clause:
        match node:
            case And(parts):
                return all_of([*map(self.true, parts), *self._own(node)])
            case Or(parts):
                return all_of([any_of(map(self.true, parts)), *self._own(node)])
            case Not(child):
                return self.false(child)
            case Literal(value):
                return KEEP_ALL if value is True else KEEP_NONE
            case Column():  # Spark rewrites b = true to b
                return all_of(self._own(Comparison("=", node, Literal(True, "boolean"))))
            case Call("if", (test, then, other)):
                return all_of(
                    [
                        any_of(
                            [
                                all_of([self.true(test), self.true(then)]),
                                all_of([any_of([self.false(test), self.null(test)]), self.true(other)]),
                            ]
                        ),
                        *self._own(node),
                    ]
                )
            case Call("coalesce", (first, *rest)) if rest:
                others = Call("coalesce", tuple(rest), node.implementation, node.flags, node.type)
                return any_of([self.true(first), all_of([self.null(first), self.true(others)])])
            case Call("coalesce", (only,)):
                return self.true(only)
            case Comparison("<=>", test, Literal(True)):
                return self.true(test)
            case Comparison("<=>", test, Literal(False)):
                return self.false(test)
            case In(child, values) if any(v.value is None for v in values):
                return self.true(In(child, tuple(v for v in values if v.value is not None)))
            case In(_, ()) | Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
        return all_of(self._own(node))

    def _false(self, node: Predicate) -> Clause:
        match node:
            case And(parts):
                return all_of([any_of(map(self.false, parts)), *self._own(Not(node))])
            case Or(parts):
                return all_of([*map(self.false, parts), *self._own(Not(node))])
            case Not(child):
                return self.true(child)
            case Literal(value):
                return KEEP_ALL if value is False else KEEP_NONE
            case Column():
                return all_of(self._own(Comparison("=", node, Literal(False, "boolean"))))
            case Comparison("<=>", test, Literal(True)):
                return any_of([self.false(test), self.null(test)])
            case Comparison("<=>", test, Literal(False)):
                return any_of([self.true(test), self.null(test)])
            case In(_, values) if any(v.value is None for v in values):
                return KEEP_NONE
            case In(child, values):
                # NOT IN is the AND of the single inequalities, so each of them represents it
                single = [Not(Comparison("=", child, v)) for v in values[:32]]
                return all_of([*self._own(Not(node)), *(c for n in single for c in self._own(n))])
            case Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
            case Comparison("<" | "<=" | ">" | ">="):
                return self.true(normalise(Not(node)))
        return all_of(self._own(Not(node)))

    def _null(self, node: Predicate) -> Clause:
        match node:
            case And(parts) | Or(parts):
                return any_of(map(self.null, parts))
            case Not(child):
                return self.null(child)
            case Literal(value):
                return KEEP_ALL if value is None else KEEP_NONE
            case IsNull() | Comparison("<=>"):
                return self._unless_it_throws(node)
            case In(_, values) if any(v.value is None for v in values):
                return KEEP_ALL
            case Comparison() | In() | Like() | StartsWith() | EndsWith() | Contains():
                return any_of(map(self._is_null, children(node)))
            case Column():
                return self._is_null(node)
        return KEEP_ALL

    def _is_null(self, value: Predicate) -> Clause:
        """May a value expression be NULL, or throw, for some row of a file?"""
        match value:
            case Literal(None):
                return KEEP_ALL
            case Literal():
                return KEEP_NONE
            case Cast(Column() as child, kind) if (value.source, kind) in _WIDENINGS:
                return self.true(IsNull(child))
            case Column():
                return self.true(IsNull(value))
        own = self._own(IsNull(value)) if any(value in i.bound for i in self.indexes) else []
        return all_of(own)

    def _unless_it_throws(self, node: Predicate) -> Clause:
        """Never NULL, where nothing below can throw: a throwing row counts as true, false and null at once."""
        plain = all(isinstance(c, Column | Literal) for c in children(node))
        return KEEP_NONE if plain else KEEP_ALL

    def _own(self, node: Predicate) -> list[Clause]:
        """What indexes and mappings say of a vertex itself."""
        calls = _calls_of(node)
        found: list[Clause] = []
        for index in self.indexes:
            self._ask(str(index), index.clause, (node,), found)
            for mapping in self._mappings(index, calls):
                self._ask(f"mapping {mapping.name}", mapping.rule, (node, index), found)
        return found

    def _mappings(self, index: Index, calls: list[Call]) -> list[Mapping]:
        rules: dict[str, Mapping] = {}
        for call in calls:
            key = (type(index), call)
            if key not in self._rules:
                self._rules[key] = self.registry.rules_for([call], type(index))
            rules.update((m.name, m) for m in self._rules[key])
        return list(rules.values())

    def _ask(self, name: str, rule: Callable[..., object], arguments: tuple[object, ...], found: list[Clause]) -> None:
        try:
            clause = rule(*arguments)
        except BaseException as error:
            self.report(f"{name} failed on {arguments[0]}: {type(error).__name__}: {error}")
            return
        if isinstance(clause, Clause):
            found.append(clause)
        elif clause is not None:
            self.report(f"{name} returned {clause!r} for {arguments[0]} instead of a clause or None")


_WIDENINGS = {
    (narrow, wide)
    for kinds in (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
    for i, narrow in enumerate(kinds)
    for wide in kinds[i + 1 :]
} | {(i, f) for i in ("tinyint", "smallint", "int", "bigint") for f in ("float", "double")}


def _calls_of(node: Predicate) -> list[Call]:
    """The calls that a boolean vertex is about: itself, or the operands of its comparison."""
    if isinstance(node, Not):
        return _calls_of(node.child)
    if isinstance(node, Call):
        return [node]
    if isinstance(node, And | Or):
        return []
    return [child for child in children(node) if isinstance(child, Call)]
