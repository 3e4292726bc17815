"""Evaluate conditions for single values of an expression: TRUE, FALSE, NULL, or any if they throw.

An index that lists the values of a file decides any deterministic condition on them by evaluating it once for each
distinct value. *Outcomes* are one byte for each value, a set of bits: :data:`IS_TRUE`, :data:`IS_FALSE`,
:data:`IS_NULL`, and :data:`ANY` if the evaluation throws or is not available.

Equality, order, IN and tests of text are evaluated here, without an engine and with Spark's semantics: most of them are
TRUE for some intervals of *keys* (:mod:`geoskip.evaluation.values`), which search servers can compare too. All other
conditions are passed to the *evaluator* of the current decision (:func:`using_evaluator`), which uses the engine
itself. A decision runs in one thread. A clause caches its result, because a report may need it when the engine's
expressions are no longer available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from geoskip.evaluation.values import (
    ANY,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    CandidateValues,
    Outcomes,
    ZoneTransitions,
    conjunction_outcomes,
    direct_outcomes,
    is_bytes,
    like_outcomes,
    negation,
)
from geoskip.predicates import And, Column, Comparison, In, IsNull, Like, Not, Opaque, Or, Predicate, children


class Declined(Exception):
    """An evaluator cannot evaluate a condition, with the reason; the files are kept."""


class Evaluator(Protocol):
    """An engine that evaluates its own expressions for single values, at planning time and without a job."""

    def outcomes(self, node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
        """Return the outcomes of a condition, one byte per value; None if it is not part of the query.

        Parameters
        ----------
        node
            The condition.
        over
            The part of it that the values replace.
        values
            Physical values of ``over``, with or without NULL.

        Raises
        ------
        Declined
            With a reason, if the condition cannot be evaluated.
        """

    def values(self, node: Predicate, over: Predicate, values: CandidateValues) -> pa.Array | None:
        """Evaluate an expression for each value of ``over``; physical values, None if unknown.

        The result is also NULL for values for which the expression throws.

        Parameters
        ----------
        node
            The expression.
        over
            The part of it that the values replace.
        values
            Physical values of ``over``, with or without NULL.
        """

    def clocks(self, zone: str) -> ZoneTransitions | None:
        """Return the transitions of a time zone; None if unknown."""
        return None


@dataclass
class _Evaluation:
    """One decision's evaluator, the report for declined conditions, and the cached outcomes."""

    evaluator: Evaluator | None
    report: Callable[[str], None]
    known: dict[tuple[int, Predicate, Predicate], Outcomes] = field(default_factory=dict)


_current: ContextVar[_Evaluation | None] = ContextVar("geoskip evaluation", default=None)


@contextmanager
def using_evaluator(evaluator: Evaluator | None, report: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Open a block in which :func:`outcomes` uses this evaluator and reports declined conditions."""
    before = _current.set(_Evaluation(evaluator, report))
    try:
        yield
    finally:
        _current.reset(before)


def reads_only(node: Predicate, over: Predicate) -> bool:
    """True if a condition depends only on the value of one expression.

    >>> from geoskip.predicates import Literal
    >>> c = Column("c")
    >>> reads_only(Like(c, "a%"), c), reads_only(Comparison("<", c, Column("d")), c), reads_only(Literal(True), c)
    (True, False, False)
    """
    found, waiting = False, [node]
    while waiting:
        vertex = waiting.pop()
        if vertex == over:
            found = True
        elif isinstance(vertex, Column | Opaque):
            return False
        else:
            waiting.extend(children(vertex))
    return found


def outcomes(node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes:
    """Return the possible outcomes of a condition for each value of ``over``, one byte per value.

    >>> from geoskip.predicates import Literal
    >>> c = Column("c", "int")
    >>> outcomes(
    ...     Not(Comparison(">", c, Literal(1))), c, CandidateValues(pa.array([1, 2, None]))
    ... ).tolist()  # FALSE is 2, NULL 4
    [1, 2, 4]
    """
    found = direct_outcomes(node, over, values)
    if found is not None:
        return found
    evaluation = _current.get()
    if evaluation is None:
        return _part_outcomes(node, over, values)
    key = (values.token, over, node)
    if key not in evaluation.known:
        evaluation.known[key] = _ask_engine(evaluation, node, over, values)
    return evaluation.known[key]


def values_of(node: Predicate, over: Predicate, values: CandidateValues) -> pa.Array | None:
    """Evaluate an expression by the engine for each value of ``over``; physical values.

    The result is also NULL for values for which the expression throws. None without an engine.
    """
    evaluation = _current.get()
    if evaluation is None or evaluation.evaluator is None:
        return None
    try:
        found = evaluation.evaluator.values(node, over, values)
    except Declined as why:
        evaluation.report(f"{node} was not evaluated: {why}")
        return None
    return found if found is not None and len(found) == len(values) else None


def clocks_of(zone: str) -> ZoneTransitions | None:
    """Return the transitions of a time zone by the tables of the engine; None without an engine."""
    evaluation = _current.get()
    return None if evaluation is None or evaluation.evaluator is None else evaluation.evaluator.clocks(zone)


def _ask_engine(evaluation: _Evaluation, node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes:
    if evaluation.evaluator is not None:
        try:
            found = evaluation.evaluator.outcomes(node, over, values)
        except Declined as why:
            evaluation.report(f"{node} was not evaluated: {why}")
            return np.full(len(values), ANY, dtype=np.uint8)
        if found is not None and found.shape == (len(values),):
            return found
        if found is not None:
            evaluation.report(f"{node} was evaluated to {found.shape} outcomes for {len(values)} values")
    return _part_outcomes(node, over, values)


def _part_outcomes(node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes:
    """Evaluate the parts of a condition that the engine did not evaluate as a whole."""
    match node:
        case Not(child):
            return negation(outcomes(child, over, values))
        case And(parts):
            return conjunction_outcomes([outcomes(part, over, values) for part in parts])
        case Or(parts):
            return negation(conjunction_outcomes([negation(outcomes(part, over, values)) for part in parts]))
        case IsNull(And() | Or() | Not() | Comparison() | In() | Like() as condition):
            found = outcomes(condition, over, values)
            null, other = found & IS_NULL != 0, found & (IS_TRUE | IS_FALSE) != 0
            return np.asarray(null * IS_TRUE | other * IS_FALSE, dtype=np.uint8)
        case Like(child, pattern, escape) if child == over and is_bytes(values.array.type):
            return like_outcomes(values.array, pattern, escape)
    return np.full(len(values), ANY, dtype=np.uint8)
