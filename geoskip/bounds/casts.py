"""Casts between numeric types that keep every number, or round it to the next double."""

from __future__ import annotations

from geoskip.predicates import Cast, Predicate
from geoskip.types import sql_type

__all__ = ["keeps_numbers", "rounds", "uncast"]


def uncast(node: Predicate) -> Predicate:
    """An expression without the casts over it that keep every number, or round it to a double as collecting does."""
    while isinstance(node, Cast) and keeps_numbers(node):
        node = node.child
    return node


def rounds(node: Predicate) -> bool:
    """Is it a number that one of the casts over it may round to a double?

    >>> from geoskip.predicates import Column
    >>> [rounds(Cast(Column("n", kind), "double", kind)) for kind in ("int", "bigint", "decimal(5,2)")]
    [False, True, True]
    """
    while isinstance(node, Cast) and keeps_numbers(node):
        if node.type == "double" and sql_type(node.source).kind in ("bigint", "decimal"):
            return True
        node = node.child
    return False


def keeps_numbers(cast: Cast) -> bool:
    """Does a cast keep every number, or round it to the next double?

    >>> from geoskip.predicates import Column
    >>> d = Column("d", "decimal(10,2)")
    >>> [keeps_numbers(Cast(d, kind, d.type)) for kind in ("decimal(12,4)", "decimal(12,5)", "double", "float")]
    [True, False, True, False]
    """
    source, target = sql_type(cast.source), sql_type(cast.type)
    return source.is_numeric if target.kind == "double" else target.holds(source)
