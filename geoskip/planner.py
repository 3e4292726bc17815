"""Decide which files of a snapshot cannot contain a row that satisfies a predicate.

:func:`decide` is the whole query path of the core, without an engine: rewrite, label, merge, evaluate over all files at
once. It never raises: a part that fails keeps every file, and adds its reason to the decision.

:class:`Labeller` labels the tree with clauses: Extensible Data Skipping, algorithms 1 and 2, extended to three-valued
logic.

Every vertex gets a *verdict* of three over-approximations: may some row of a file make it TRUE, FALSE, NULL? Without
information the verdict is (yes, yes, yes).

============ =================== ============ ======================================================
vertex       true                false        null
============ =================== ============ ======================================================
leaf e       rules for e         rules for    null counts of the operands, if e is NULL exactly where
                                 ``NOT e``    an operand is
a AND b      Ta and Tb           Fa or Fb     Na or Nb
a OR b       Ta or Tb            Fa and Fb    Na or Nb
NOT a        Fa                  Ta           Na
============ =================== ============ ======================================================

T of a vertex is also conjoined with the clauses that rules return for the vertex itself. A file is skipped if T of the
root is false. Soundness follows by induction: each row of the table holds for single rows of data, and a clause is
never negated. Verdicts are computed lazily: a query without NOT never needs F.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from geoskip.clauses import KEEP_ALL, KEEP_NONE, Clause, Mask, all_of, any_of, parts_of, size_of
from geoskip.errors import MetadataError
from geoskip.evaluation import Evaluator, using_evaluator
from geoskip.indexes.base import Index
from geoskip.metadata import Snapshot
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
)
from geoskip.registry import Registry, current
from geoskip.rewrite import DECLARED, IMPLIED, canonical, equivalent
from geoskip.rewrite.composed import is_builtin
from geoskip.rules import Deadline, RuleRunner, RuleSubject, calls_of, leave_out
from geoskip.types import sql_type
from geoskip.vertex_labels import VertexLabel, labels_of

Report = Callable[[str], None]


def clause_for(
    predicate: Predicate,
    indexes: Sequence[Index],
    report: Report = lambda text: None,
    *,
    watch: Deadline | None = None,
) -> Clause:
    """Return the clause that represents a predicate; KEEP_ALL if no rule applies.

    Parameters
    ----------
    predicate
        The condition of a query, as the engine gives it.
    indexes
        The bound indexes of the dataset that may be used.
    report
        Receives a sentence for each rule that failed.
    watch
        Limits the time of each rule and makes it visible to another thread.
    """
    tree = canonical(predicate, report, watch)
    labeller = Labeller(indexes, report=report, watch=watch)
    if watch is not None:
        watch.labels = partial(labels_of, tree, labeller.memo)
    return labeller.true(tree)


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
    ) -> None:
        self.indexes = tuple(indexes)
        bound = (expression for index in indexes for expression in index.bound)
        self._expressions = tuple(expression for expression in bound if not isinstance(expression, Column))
        self.registry = registry or current()
        self.report = report
        self._runner = RuleRunner(self.indexes, self.registry, report, watch)
        self.memo: dict[tuple[str, int], tuple[Predicate, Clause]] = {}
        self._depth = 0

    def true(self, node: Predicate) -> Clause:
        """Return a clause for files in which some row may make the vertex TRUE."""
        return self._memoize("true", node, self._true)

    def false(self, node: Predicate) -> Clause:
        """Return a clause for files in which some row may make the vertex FALSE."""
        return self._memoize("false", node, self._false)

    def null(self, node: Predicate) -> Clause:
        """Return a clause for files in which some row may make the vertex NULL."""
        return self._memoize("null", node, self._null)

    def _memoize(self, what: str, node: Predicate, compute: Callable[[Predicate], Clause]) -> Clause:
        # Keyed by identity, since hashing a polygon is slow; the memo holds the vertex, so its id is not reused.
        key = (what, id(node))
        if key not in self.memo:
            if self._depth >= _DEEP:
                self.report(f"a part of the predicate is nested more than {_DEEP} deep and was not used")
                return KEEP_ALL
            self._depth += 1
            try:
                clause = compute(node)
            finally:
                self._depth -= 1
            if size_of(clause) > _LARGE:  # each level of CASE in the condition of CASE triples it
                self.report("a part of the predicate makes too large a clause and was not used")
                clause = KEEP_ALL
            self.memo[key] = (node, clause)
        return self.memo[key][1]

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
            case Call("if" | "coalesce") if is_builtin(node):
                return all_of([self._branches(node, self.true), *self._own(node)])
            case IsNull(And() | Or() | Not() | Comparison() | In() as child):
                return all_of([self.null(child), *self._own(node)])
            case Comparison("<=>", left, Literal() as literal):
                return all_of([self.true(_equality(left, literal)), *self._as_value(node, True)])
            case In(child, values) if any(v.value is None for v in values):
                return self.true(In(child, tuple(v for v in values if v.value is not None)))
            case In(_, ()) | Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
        same = equivalent(node)
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
            case Call("if" | "coalesce") if is_builtin(node):
                return all_of([self._branches(node, self.false), *self._own(Not(node))])
            case IsNull(And() | Or() | Not() | Comparison() | In() as child):
                return all_of([any_of([self.true(child), self.false(child)]), *self._own(Not(node))])
            case Comparison("<=>", left, Literal() as literal):
                equal = _equality(left, literal)
                return all_of([any_of([self.false(equal), self.null(equal)]), *self._as_value(node, False)])
            case In(_, ()):
                return KEEP_ALL
            case In(child, values) if any(v.value is None for v in values):
                if not sql_type(child.type).is_floating:
                    return KEEP_NONE
                # FALSE only for NaN, in a set without NaN, by Spark's interpreter; its compiled code returns NULL
                return self.true(Comparison("=", child, Literal(math.nan, child.type)))
            case In(child, values) if equivalent(node) is None:
                # NOT IN is the AND of the single inequalities, so the clause of each of them represents it
                single = (Not(Comparison("=", child, v)) for v in values[:_MANY])
                return all_of(self._own(Not(node)) or [c for n in single for c in self._own(n)])
            case Comparison("=" | "<" | "<=" | ">" | ">=", _, Literal(None)):
                return KEEP_NONE
            case Comparison("<" | "<=" | ">" | ">="):
                return self.true(normalise(Not(node)))
        same = equivalent(node)
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
            case IsNull() | Comparison("<=>"):  # a row for which an operand throws counts as TRUE, FALSE and NULL
                return KEEP_NONE if all(isinstance(child, Column | Literal) for child in children(node)) else KEEP_ALL
            case In(_, values) if any(v.value is None for v in values):
                return KEEP_ALL
            case Comparison() | In() | Like() | StartsWith() | EndsWith() | Contains():
                return any_of(map(self._is_null, children(node)))
            case Call("if") if is_builtin(node):
                return self._branches(node, self.null)
            case Call("coalesce", parts) if is_builtin(node):
                return all_of(map(self.null, parts))
            case Column():
                return self._is_null(node)
        return KEEP_ALL

    def _branches(self, node: Call, verdict: Callable[[Predicate], Clause]) -> Clause:
        """Return a verdict of ``if(test, then, other)``, or the TRUE or FALSE verdict of ``coalesce(...)``."""
        if node.name == "if":
            test, then, other = node.args
            otherwise = any_of([self.false(test), self.null(test)])
            return any_of([all_of([self.true(test), verdict(then)]), all_of([otherwise, verdict(other)])])
        clause = KEEP_NONE
        for part in reversed(node.args):
            clause = any_of([verdict(part), all_of([self.null(part), clause])])
        return clause

    def _is_null(self, value: Predicate) -> Clause:
        """Return a clause for files in which a value expression may be NULL for some row."""
        match value:
            case Literal(content):
                return KEEP_ALL if content is None else KEEP_NONE
            case Cast(Column() as child, kind) if sql_type(kind).widens(sql_type(value.source)):
                return self.true(IsNull(child))
            case Call() if is_builtin(value):
                return self.true(IsNull(value))
        return all_of(self._own(IsNull(value)))

    def _own(self, node: Predicate) -> list[Clause]:
        """Label a vertex itself: by indexes, by mappings, and by conditions that the vertex implies."""
        clauses = self._runner.clauses_for(node)
        for rule in IMPLIED if self._expressions else ():
            implied = rule(node, self._expressions)
            if implied is not None:
                clauses.append(self.true(implied))
        if self.registry.properties and (calls := calls_of(node)):
            for declared in DECLARED:
                self._runner.ask(f"what is declared of {calls[0].name}", self._label_implied, (node, declared), clauses)
        return clauses

    def _as_value(self, node: Predicate, truth: bool) -> list[Clause]:
        """Label a condition by indexes on the condition itself, as on a boolean column."""
        over = self._expressions and any(index.reads(node) for index in self.indexes)
        return self._own(Comparison("=", node, Literal(truth, "boolean"))) if over else []

    def _label_implied(self, node: Predicate, rule: Callable[[Predicate], Predicate | None]) -> Clause | None:
        """Label the condition that a rule derives from the declaration of a function in a vertex."""
        needed = rule(node)
        return None if needed is None else self.true(needed)


def _equality(left: Predicate, literal: Literal) -> Predicate:
    """Return the equality that is TRUE exactly where ``left <=> literal`` is TRUE."""
    match literal.value:
        case None:
            return IsNull(left)
        case True:
            return left
        case False:
            return normalise(Not(left))
    return Comparison("=", left, literal)


@dataclass(frozen=True)
class Decision:
    """The files of a snapshot that a query has to read, and the reasons."""

    snapshot: Snapshot
    predicate: Predicate
    clause: Clause
    keep: Mask
    """One entry per file of the snapshot; False skips the file."""
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    sources: tuple[RuleSubject, ...] = field(default=(), repr=False, compare=False)
    """The clauses that indexes and mappings returned, with the names of their rules."""
    labels: Callable[[], VertexLabel] | None = field(default=None, repr=False, compare=False)
    """The labelled tree, built on first use."""
    indexes: tuple[Index, ...] = field(default=(), repr=False, compare=False)
    """The indexes that could be used."""

    def skippers(self, file: int) -> tuple[str, ...]:
        """Names of the rules that skip a file: mappings if any, else declarations, else indexes."""
        alone = [s.name for s in self.sources if not _mask_of(s.clause, self.snapshot, [])[file]]
        found = dict.fromkeys(alone or [s.name for s in self.sources])  # none alone: boxes may skip it only together
        for kind in ("mapping ", "what is declared of "):
            if some := tuple(name for name in found if name.startswith(kind)):
                return some
        return tuple(found)

    def effects(self, among: Mask | None = None) -> tuple[tuple[str, int], ...]:
        """Return the used clauses, without duplicates, with the number of files that each skips, descending."""
        counts = [(_text(part), self.skips(part, among)) for part in parts_of(self.clause) if part is not KEEP_ALL]
        most = dict(sorted(counts, key=lambda pair: pair[1]))  # the largest count for each text
        return tuple(sorted(most.items(), key=lambda pair: -pair[1]))

    def skips(self, clause: Clause, among: Mask | None = None) -> int:
        """Count the files that a clause skips, of all files or of the mask ``among``."""
        skipped = ~_mask_of(clause, self.snapshot, [])
        return int(np.count_nonzero(skipped if among is None else skipped & among))


def decide(
    snapshot: Snapshot,
    predicate: Predicate,
    indexes: Sequence[Index] | None = None,
    *,
    evaluator: Evaluator | None = None,
    watch: Deadline | None = None,
) -> Decision:
    """Decide which files of a snapshot may contain a row that makes a predicate TRUE; never raises.

    Parameters
    ----------
    snapshot
        The metadata of the dataset's files.
    predicate
        The condition of the query on the dataset's columns.
    indexes
        The indexes that may be used; all of the snapshot by default.
    evaluator
        The engine's evaluator of conditions on single values that cannot be looked up.
    watch
        Limits the time of each rule and makes the running one visible to another thread.
    """
    seen = watch or Deadline()
    seen.sources, seen.faults, seen.labels, seen.root = [], {}, None, seen.root or snapshot.header.root
    started = time.perf_counter()
    reasons: list[str] = []
    usable = snapshot.indexes if indexes is None else tuple(indexes)
    with using_evaluator(evaluator, reasons.append):
        try:
            clause = clause_for(predicate, usable, report=reasons.append, watch=seen)
        except BaseException as error:  # a query must not fail, not even by SystemExit in a mapping
            reasons.append(f"the predicate could not be labelled: {_error_text(error)}")
            clause = KEEP_ALL
        failed: list[BaseException] = []
        with seen.guarding_clauses():
            keep = _mask_of(clause, snapshot, reasons, failed)
    _find_fault(seen, snapshot, failed)
    for name, (rule, why) in seen.faults.items():
        reasons.append(f"{name} {why}")
        if seen.blames:
            leave_out(current(), name, rule, why, seen.root)
    unique = tuple(dict.fromkeys(reason if len(reason) <= 300 else reason[:299] + "…" for reason in reasons))
    seconds, sources = time.perf_counter() - started, tuple(seen.sources)
    return Decision(snapshot, predicate, clause, keep, unique, seconds, sources, seen.labels, usable)


def _mask_of(clause: Clause, snapshot: Snapshot, reasons: list[str], failed: list[BaseException] | None = None) -> Mask:
    """Evaluate a clause part by part; a part that raises keeps every file, its error goes to ``failed``."""
    keep: Mask = np.ones(len(snapshot.files), dtype=bool)
    try:
        return keep & snapshot.files.evaluate(clause)
    except BaseException as error:
        parts = parts_of(clause)
        if len(parts) == 1:
            reasons.append(f"{_text(clause)} could not be evaluated: {_error_text(error)}")
            if failed is not None:
                failed.append(error)
            return keep
    for part in parts:
        keep &= _mask_of(part, snapshot, reasons, failed)
    return keep


def _find_fault(seen: Deadline, snapshot: Snapshot, failed: list[BaseException]) -> None:
    """Record a fault of each mapping with a failing clause, unless metadata could not be read."""
    if seen.faults or all(isinstance(error, OSError | MetadataError) for error in failed):
        return
    for source in seen.of_functions():
        try:
            snapshot.files.evaluate(source.clause)
        except BaseException as error:
            seen.blame(source, f"made a clause that failed: {_error_text(error)}")


def _text(clause: Clause) -> str:
    try:
        return str(clause)
    except Exception:  # a user's clause
        return type(clause).__name__


def _error_text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "the condition is nested too deep"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
