"""Rewrite LIKE without wildcards as an equality; Spark does so where nothing is escaped."""

from __future__ import annotations

from geoskip.bounds.strings import literal_text
from geoskip.predicates import Comparison, Like, Literal, Predicate

__all__ = ["rewrite"]


def rewrite(node: Predicate) -> Predicate | None:
    """Return the equality, or None for other conditions.

    >>> from geoskip.predicates import Column
    >>> rewrite(Like(Column("s"), "5!%", "!"))
    s = '5%'
    """
    match node:
        case Like(child, pattern, escape) if (text := literal_text(pattern, escape)) is not None:
            return Comparison("=", child, Literal(text, "string"))
    return None
