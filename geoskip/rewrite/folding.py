"""Fold calls over literals, and long ORs of equalities into IN; exact in three-valued logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from geoskip.predicates import Call, Column, Comparison, In, Literal, Or, Predicate, transform, walk
from geoskip.registry import Registry, constant_name, current

if TYPE_CHECKING:
    from geoskip.rules import Deadline

__all__ = ["fold_constants", "gather_equalities"]

_FEWEST_EQUALITIES = 16


def fold_constants(
    node: Predicate,
    *,
    registry: Registry | None = None,
    report: Callable[[str], None] = lambda text: None,
    watch: Deadline | None = None,
) -> Predicate:
    """Evaluate calls over literals, as declared by :func:`~geoskip.registry.constant`.

    Parameters
    ----------
    node
        The predicate.
    registry
        The declarations; those of the current scope by default.
    report
        Receives a sentence for each call that could not be evaluated; the call stays.
    watch
        Limits the time of each call and makes it visible to another thread.
    """
    scope = registry or current()
    if not any(isinstance(vertex, Call) for vertex in walk(node)):
        return node

    def fold(vertex: Predicate) -> Predicate:
        match vertex:
            case Call(name, args) if args and all(isinstance(a, Literal) for a in args):
                evaluate = scope.evaluator(vertex)
                if evaluate is None:
                    return vertex
                subject = constant_name(evaluate)
                if subject in scope.quarantine:
                    report(f"{subject} is left out: {scope.quarantine[subject]}")
                    return vertex
                values = [a.value for a in args if isinstance(a, Literal)]
                try:
                    value = watch.call(subject, evaluate, *values) if watch else evaluate(*values)
                except BaseException as error:
                    report(f"{name} of these constants was not evaluated: {type(error).__name__}: {error}")
                    return vertex
                return _literal(value, vertex.type)
        return vertex

    return transform(node, fold)


def _literal(value: Any, kind: str | None) -> Literal:
    if isinstance(value, np.generic):  # NumPy's True is not True
        value = value.item()
    return value if isinstance(value, Literal) else Literal(value, kind)


def gather_equalities(node: Predicate) -> Predicate:
    """Replace long ORs of equalities by IN, which is decided at once.

    >>> from geoskip.predicates import IsNull
    >>> a = Column("a")
    >>> gather_equalities(Or((IsNull(a), *(Comparison("=", a, Literal(n)) for n in range(99)))))
    (a IS NULL OR a IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...))
    """

    def gather(vertex: Predicate) -> Predicate:
        if not isinstance(vertex, Or) or len(vertex.children) < _FEWEST_EQUALITIES:
            return vertex
        values: dict[Predicate, list[Literal]] = {}
        others: list[Predicate] = []
        for part in vertex.children:
            match part:
                case Comparison("=", Column() as child, Literal() as literal):
                    values.setdefault(child, []).append(literal)
                case _:
                    others.append(part)
        parts = (*others, *(In(child, tuple(literals)) for child, literals in values.items()))
        return parts[0] if len(parts) == 1 else Or(parts)

    is_long = any(isinstance(vertex, Or) and len(vertex.children) >= _FEWEST_EQUALITIES for vertex in walk(node))
    return transform(node, gather) if is_long else node
