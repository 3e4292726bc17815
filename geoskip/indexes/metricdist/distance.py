"""One distance of a query as MetricDist sees it, and the clauses of what is compared with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from geoskip.bounds.casts import uncast
from geoskip.clauses import Clause, all_of, any_of
from geoskip.indexes.metricdist.clauses import DistanceLeaves, DistanceMeets
from geoskip.predicates import Comparison, In, IsNull, Literal, Not, Predicate

if TYPE_CHECKING:
    from geoskip.indexes.metricdist.index import MetricDist

__all__ = ["Distance", "all_known", "any_known", "is_of_null", "subject"]


@dataclass(frozen=True)
class Distance:
    """The distance of a row to a constant point, as a query computes it; made by :meth:`MetricDist.distance_to`."""

    index: MetricDist
    constants: tuple[Any, ...]
    unit: float = 1.0
    limit: float = math.inf
    """From this size of coordinates on, the query's arithmetic may overflow."""
    nulls: str = ""
    """Which rows with a NULL may match: none, "all", or "partly" (unless all expressions are NULL)."""
    shape: str = ""
    """The query's value: the distance, its square ("squared"), or 1 less it ("similarity")."""

    def answers(self, node: Predicate) -> Clause | None:
        """The clause of a vertex about this distance: a comparison, IN, IS NULL, or their negation."""
        if not self.index.is_resolved or not self.index.origins or self._point() is None:
            return None
        match node:
            case Comparison(op, _, Literal(value)):
                return self.compares(op, value)
            case Not(Comparison("=", _, Literal(value))):
                return self.compares("<>", value)
            case In(_, values):
                return any_known(self.compares("=", v.value) for v in values)
            case Not(In(_, values)):
                return all_known(self.compares("<>", v.value) for v in values)
            case IsNull(_) if not self.nulls and self.limit == math.inf:
                return self.index.has_null_distance()
            case Not(IsNull(_)) if not self.nulls and self.limit == math.inf:
                return self.index.has_null_distance(turned=True)
        return None

    def _point(self) -> Any:
        return self.index.required().point(self.constants, self.index.origins[0])

    def compares(self, op: str, value: Any) -> Clause | None:
        """May the distance of some row stand in ``op`` (or "<>") to a number? None where nothing is known."""
        number = _number(value)
        if number is None or not self.index.is_resolved or not self.index.origins or not self.unit > 0:
            return None
        if op not in ("=", "<>", "<", "<=", ">", ">="):
            return None
        if self.shape == "similarity":
            op, number = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op), 1.0 - number
        if self.shape == "squared":
            number = math.sqrt(number) if number >= 0 else -1.0
        origins, point = self.index.kept_origins(), self._point()
        if point is None:
            return None
        if origins.metric.whole and number != value:  # 2.00000000000000000001 is above 2, and no double
            return None
        number /= self.unit
        # where one coordinate is NULL, the arithmetic of another may still throw
        nulls = self.nulls or ("partly" if self.limit < math.inf else "")
        if op == "<>":
            return DistanceLeaves(origins, point, number, nulls)
        low, high = _whole_range(op, number) if origins.metric.whole else _range(op, number)
        low, high = origins.metric.ends(low, high)
        if high < 0 or low > high:
            low, high = math.inf, -math.inf
        return DistanceMeets(origins, point, max(low, 0.0), high, self.limit, nulls)


def any_known(clauses: Iterable[Clause | None]) -> Clause | None:
    """The OR of clauses, if all are there."""
    found = list(clauses)
    return any_of(c for c in found if c is not None) if None not in found else None


def all_known(clauses: Iterable[Clause | None]) -> Clause | None:
    """The AND of those that are there."""
    return all_of(c for c in clauses if c is not None)


def subject(node: Predicate) -> Predicate | None:
    """What a boolean vertex compares with constants, casts that keep numbers aside.

    >>> from geoskip.predicates import Call, Column
    >>> subject(Not(Comparison("=", Call("f", (Column("x"),)), Literal(1))))
    f(x)
    """
    match node:
        case Not(child):
            return subject(child)
        case Comparison(_, left, Literal()):
            return uncast(left)
        case In(child) | IsNull(child):
            return uncast(child)
    return None


def is_of_null(node: Predicate) -> bool:
    return isinstance(node.child if isinstance(node, Not) else node, IsNull)


def _range(op: str, number: float) -> tuple[float, float]:
    """The distances that stand in ``op`` to a number, its ends with them."""
    if op in ("<", "<="):
        return 0.0, number
    return (number, number) if op == "=" else (number, math.inf)


def _whole_range(op: str, number: float) -> tuple[float, float]:
    """The same for whole distances.

    >>> _whole_range("<", 2.0), _whole_range(">", 2.5), _whole_range("=", 1.0)
    ((0.0, 1), (3, inf), (1.0, 1.0))
    """
    if abs(number) > 2**40:
        return _range(op, number)
    match op:
        case "<":
            return 0.0, math.ceil(number) - 1
        case "<=":
            return 0.0, math.floor(number)
        case ">":
            return math.floor(number) + 1, math.inf
        case ">=":
            return math.ceil(number), math.inf
    return (number, number) if number == math.floor(number) else (math.inf, -math.inf)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
