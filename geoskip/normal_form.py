"""The one shape of a predicate that indexes and mappings match."""

from __future__ import annotations

from geoskip.predicates import (
    FALSE,
    FLIPPED,
    NEGATED,
    TRUE,
    BooleanVertex,
    Call,
    Comparison,
    IsNull,
    Literal,
    Not,
    Predicate,
    flattened,
    transform,
)

__all__ = ["normalise"]


def normalise(node: Predicate) -> Predicate:
    """The same predicate in the one shape that indexes and mappings match.

    A lone literal stands on the right, nested AND and OR are flat, double negation is gone, the negation of an order
    comparison is the opposite one (exact: Spark's order is total, NaN included), comparisons of a condition with
    TRUE or FALSE are the condition or its negation.

    >>> from geoskip.predicates import And, Column
    >>> normalise(Not(Comparison("<", Column("a"), Literal(1))))
    a >= 1
    >>> normalise(Comparison("=", IsNull(Column("a")), FALSE))
    NOT a IS NULL
    >>> normalise(And((IsNull(Column("a")), And((IsNull(Column("b")), IsNull(Column("c")))))))
    (a IS NULL AND b IS NULL AND c IS NULL)
    """
    return transform(node, _normalise_vertex)


def _is_condition(node: Predicate) -> bool:
    return isinstance(node, BooleanVertex) or (isinstance(node, Call) and node.type == "boolean")


def _normalise_vertex(node: Predicate) -> Predicate:
    match node:
        case Comparison(op, Literal() as left, right) if not isinstance(right, Literal):
            return _normalise_vertex(Comparison(FLIPPED[op], right, left))
        case Comparison("=", left, Literal(True)) if _is_condition(left):
            return left
        case Comparison("=", left, Literal(False)) if _is_condition(left):
            return _normalise_vertex(Not(left))
        case Comparison("<=>", left, Literal(None)):
            return IsNull(left)
        case Not(Not(child)):
            return child
        case Not(Comparison(op, left, right)) if op in NEGATED:
            return Comparison(NEGATED[op], left, right)
        case Not(Literal(bool() as value)):
            return FALSE if value else TRUE
    return flattened(node)
