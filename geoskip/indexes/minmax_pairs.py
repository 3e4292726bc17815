"""Comparisons of what is computed from two columns with a MinMax each: ``2 * asin(sqrt(...)) < 150``, ``a - b > 7``."""

from __future__ import annotations

from geoskip.clauses import Clause
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.range_clauses import BoundClauses
from geoskip.predicates import Predicate

__all__ = ["computed_of_two"]


def computed_of_two(node: Predicate, x: MinMax, y: MinMax) -> Clause | None:
    """A clause for a predicate that reads what both indexes are over, or None."""
    names = {str(each): each for each in (x, y)}
    clause = BoundClauses(lambda e: next((name for name, each in names.items() if each.reads(e)), None)).clause(node)
    if clause is None or {name for name, _ in clause.columns()} == set(names):
        return clause
    return None
