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

import math
from collections.abc import Callable, Sequence

import numpy as np

from geoskip.bounds.declared_functions import inverted, values_needed
from geoskip.bounds.strings import literal_text
from geoskip.clauses import KEEP_ALL, KEEP_NONE, Clause, all_of, any_of, size_of
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
    walk,
)
from geoskip.registry import Registry, constant_name, current
from geoskip.rewrite.cast_to_string import read_back
from geoskip.rewrite.conditionals import is_catalysts, spread
from geoskip.rewrite.sql_functions import Template, grouped
from geoskip.rewrite.structs import field_by_field
from geoskip.rules import Deadline, RuleRunner, calls_of
from geoskip.types import sql_type

__all__ = ["Labeller", "clause_for", "fold_constants"]

Report = Callable[[str], None]


def clause_for(
    predicate: Predicate,
    indexes: Sequence[Index],
    report: Report = lambda text: None,
    *,
    watch: Deadline | None = None,
    templates: Sequence[Template] = (),
) -> Clause:
    """The clause that represents a predicate, given the indexes at hand; KEEP_ALL where nothing is known.

    ``report`` receives a sentence for every rule that failed; ``watch`` shows what is being asked;
    ``templates`` are of functions that the engine has replaced by what they are made of.
    """
    tree = gather(normalise(fold_constants(predicate, report=report, watch=watch)))
    return Labeller(indexes, report=report, watch=watch, templates=templates).true(grouped(tree, templates))


def fold_constants(
    node: Predicate,
    *,
    registry: Registry | None = None,
    report: Report = lambda text: None,
    watch: Deadline | None = None,
) -> Predicate:
    """The tree with calls over literals evaluated, where :func:`~geoskip.registry.constant` says how."""
    scope, seen = registry or current(), watch or Deadline()

    def fold(vertex: Predicate) -> Predicate:
        match vertex:
            case Call(name, args) if args and all(isinstance(a, Literal) for a in args):
                evaluate = scope.evaluator(vertex)
                if evaluate is None:
                    return vertex
                who = constant_name(evaluate)
                if who in scope.quarantine:
                    report(f"{who} is left out: {scope.quarantine[who]}")
                    return vertex
                try:
                    value = seen.call(who, evaluate, *(a.value for a in args if isinstance(a, Literal)))
                except BaseException as error:
                    report(f"{name} of these constants was not evaluated: {type(error).__name__}: {error}")
                    return vertex
                if isinstance(value, np.generic):  # NumPy's True is not True
                    value = value.item()
                return value if isinstance(value, Literal) else Literal(value, vertex.type)
        return vertex

    return transform(node, fold) if any(isinstance(vertex, Call) for vertex in walk(node)) else node


def gather(node: Predicate) -> Predicate:
    """The tree with long ORs of equalities as one IN, which is decided at once (the same in three-valued logic).

    >>> a = Column("a")
    >>> gather(Or((IsNull(a), *(Comparison("=", a, Literal(n)) for n in range(99)))))
    (a IS NULL OR a IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...))
    """

    def gathered(vertex: Predicate) -> Predicate:
        if not isinstance(vertex, Or) or len(vertex.children) < _MANY:
            return vertex
        values: dict[Predicate, list[Literal]] = {}
        others: list[Predicate] = []
        for part in vertex.children:
            match part:
                case Comparison("=", Column() as child, Literal() as literal):
                    values.setdefault(child, []).append(literal)
                case _:
                    others.append(part)
        parts = (*others, *(In(child, tuple(found)) for child, found in values.items()))
        return parts[0] if len(parts) == 1 else Or(parts)

    is_long = any(isinstance(vertex, Or) and len(vertex.children) >= _MANY for vertex in walk(node))
    return transform(node, gathered) if is_long else node


_MANY = 16
_DEEP = 100
_LARGE = 20_000


class Labeller:
    """Labels the vertices of one query's tree with clauses over the given indexes.

    >>> from geoskip.indexes.minmax import MinMax
    >>> a, b = Column("a", "int"), Column("b", "int")
    >>> label = Labeller([MinMax("a").bind([a]), MinMax("b").bind([b])])
    >>> either = Or((Comparison(">", a, Literal(5)), Comparison("=", b, Literal(7))))
    >>> print(label.true(either))
    (max(a) > 5 OR min(b) <= 7 <= max(b))
    >>> print(label.true(Not(either)))  # both must be FALSE
    (min(a) <= 5 AND NOT min(b) = max(b) = 7)
    >>> print(label.null(either))  # for ``either <=> NULL``, CASE, coalesce
    (minmax(a) has nulls OR minmax(b) has nulls)
    >>> print(label.true(Or((Comparison(">", a, Literal(5)), Call("f", (a,))))))
    keep every file
    """

    def __init__(
        self,
        indexes: Sequence[Index],
        *,
        registry: Registry | None = None,
        report: Report = lambda text: None,
        watch: Deadline | None = None,
        templates: Sequence[Template] = (),
    ) -> None:
        self.indexes = tuple(indexes)
        self.registry = registry or current()
        self.report = report
        self._asking = RuleRunner(self.indexes, self.registry, report, watch, templates)
        self._memo: dict[tuple[str, int], tuple[Predicate, Clause]] = {}
        self._depth = 0

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
        # By identity (the vertex is kept, so that its id is not used again): a polygon takes long to hash.
        key = (what, id(node))
        if key not in self._memo:
            if self._depth >= _DEEP:
                self.report(f"a part of the predicate is nested more than {_DEEP} deep and was not used")
                return KEEP_ALL
            self._depth += 1
            try:
                clause = compute(node)
            finally:
                self._depth -= 1
            if size_of(clause) > _LARGE:  # CASE within the condition of CASE triples at each level
                self.report("a part of the predicate makes too large a clause and was not used")
                clause = KEEP_ALL
            self._memo[key] = (node, clause)
        return self._memo[key][1]

    def _true(self, node: Predicate) -> Clause:
        match node:
            case And(parts):
                return all_of([*map(self.true, parts), *self._own(node)])
            case Or(parts):
                return all_of([any_of(map(self.true, parts)), *self._own(node)])
            case Not(child):
                return self.false(child)
            case Literal(value):
                return KEEP_NONE if value is False or value is None else KEEP_ALL
            case Column():  # Spark rewrites b = true to b
                return all_of(self._own(Comparison("=", node, Literal(True, "boolean"))))
            case Call("if" | "coalesce") if is_catalysts(node):
                return all_of([self._branches(node, self.true), *self._own(node)])
            case IsNull(And() | Or() | Not() | Comparison() | In() as child):
                return all_of([self.null(child), *self._own(node)])
            case Comparison("<=>", test, Literal(True)):
                return self.true(test)
            case Comparison("<=>", test, Literal(False)):
                return self.false(test)
            case In(child, values) if any(v.value is None for v in values):
                return self.true(In(child, tuple(v for v in values if v.value is not None)))
            case In(_, ()) | Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
        same = _same(node)
        return all_of([*([] if same is None else [self.true(same)]), *self._own(node), *self._as_value(node, True)])

    def _false(self, node: Predicate) -> Clause:
        match node:
            case And(parts):
                return all_of([any_of(map(self.false, parts)), *self._own(Not(node))])
            case Or(parts):
                return all_of([*map(self.false, parts), *self._own(Not(node))])
            case Not(child):
                return self.true(child)
            case Literal(value):
                return KEEP_NONE if value is True or value is None else KEEP_ALL
            case Column():
                return all_of(self._own(Comparison("=", node, Literal(False, "boolean"))))
            case Call("if" | "coalesce") if is_catalysts(node):
                return all_of([self._branches(node, self.false), *self._own(Not(node))])
            case IsNull(And() | Or() | Not() | Comparison() | In() as child):
                return all_of([any_of([self.true(child), self.false(child)]), *self._own(Not(node))])
            case Comparison("<=>", test, Literal(True)):
                return any_of([self.false(test), self.null(test)])
            case Comparison("<=>", test, Literal(False)):
                return any_of([self.true(test), self.null(test)])
            case In(child, values) if any(v.value is None for v in values):
                if not sql_type(child.type).is_floating:
                    return KEEP_NONE
                # NULL, but Spark's interpreter has NaN in no set without NaN; its compiled code says NULL of it too
                return self.true(Comparison("=", child, Literal(math.nan, child.type)))
            case In(child, values) if _same(node) is None:
                # NOT IN is the AND of the single inequalities, so each of them represents it
                single = (Not(Comparison("=", child, v)) for v in values[:_MANY])
                return all_of(self._own(Not(node)) or [c for n in single for c in self._own(n)])
            case Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
            case Comparison("<" | "<=" | ">" | ">="):
                return self.true(normalise(Not(node)))
        same = _same(node)
        found = [*self._own(Not(node)), *self._as_value(node, False)]
        return all_of([*([] if same is None else [self.false(same)]), *found])

    def _null(self, node: Predicate) -> Clause:
        merged = self._null_merged(node)
        if merged is KEEP_NONE or isinstance(node, Column | Not | Literal):
            return merged
        return all_of([merged, *self._own(IsNull(node))])

    def _null_merged(self, node: Predicate) -> Clause:
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
            case Call("if") if is_catalysts(node):
                return self._branches(node, self.null)
            case Call("coalesce", parts) if is_catalysts(node):
                return all_of(map(self.null, parts))
            case Column():
                return self._is_null(node)
        return KEEP_ALL

    def _branches(self, node: Call, verdict: Callable[[Predicate], Clause]) -> Clause:
        """One of the verdicts of ``if(test, then, other)``, or TRUE or FALSE of ``coalesce(first, ...)``."""
        if node.name == "if":
            test, then, other = node.args
            otherwise = any_of([self.false(test), self.null(test)])
            return any_of([all_of([self.true(test), verdict(then)]), all_of([otherwise, verdict(other)])])
        clause = KEEP_NONE
        for part in reversed(node.args):
            clause = any_of([verdict(part), all_of([self.null(part), clause])])
        return clause

    def _is_null(self, value: Predicate) -> Clause:
        """May a value expression be NULL for some row of a file?"""
        match value:
            case Literal(content):
                return KEEP_ALL if content is None else KEEP_NONE
            case Cast(Column() as child, kind) if sql_type(kind).widens(sql_type(value.source)):
                return self.true(IsNull(child))
            case Call() if is_catalysts(value):
                return self.true(IsNull(value))
        return all_of(self._own(IsNull(value)))

    def _unless_it_throws(self, node: Predicate) -> Clause:
        """Never NULL, where nothing below can throw: a throwing row counts as true, false and null at once."""
        plain = all(isinstance(c, Column | Literal) for c in children(node))
        return KEEP_NONE if plain else KEEP_ALL

    def _own(self, node: Predicate) -> list[Clause]:
        """What indexes and mappings say of a vertex itself."""
        found = self._asking.about(node)
        if self.registry.properties and (calls := calls_of(node)):
            for declared in (inverted, values_needed):
                self._asking.ask(f"what is declared of {calls[0].name}", self._following, (node, declared), found)
        return found

    def _as_value(self, node: Predicate, truth: bool) -> list[Clause]:
        """What indexes over the condition say of its value, as over a boolean column."""
        over = any(index.reads(node) for index in self.indexes)
        return self._own(Comparison("=", node, Literal(truth, "boolean"))) if over else []

    def _following(self, node: Predicate, declared: Callable[[Predicate], Predicate | None]) -> Clause | None:
        """What follows for a vertex from what is declared of a function in it."""
        needed = declared(node)
        return None if needed is None else self.true(needed)


def _same(node: Predicate) -> Predicate | None:
    """A condition that is TRUE and FALSE where this one is, on parts of its operand."""
    return spread(node) or read_back(node) or field_by_field(node) or _equality(node)


def _equality(node: Predicate) -> Predicate | None:
    """Of LIKE without wildcards; Spark rewrites it where nothing is escaped."""
    match node:
        case Like(child, pattern, escape) if (text := literal_text(pattern, escape)) is not None:
            return Comparison("=", child, Literal(text, "string"))
    return None
