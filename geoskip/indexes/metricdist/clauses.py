"""Clauses of MetricDist: the triangle inequality applied to a file's distances from the pivots.

Let D be the distance from a pivot o to the constant q. If the distance of a row x to q is in [a, b], its distance to o
is in ``[max(a - D, D - b), D + b]``; so a file is skipped if all of its rings around some pivot lie outside of that
range. Stored and computed distances are widened by a relative 1e-9 (1e-6 for a user's function), unless distances are
whole and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from geoskip.bounds import uncast
from geoskip.clauses import Clause, Files, Mask, all_known, any_known
from geoskip.conditions import AllOf, Among, AnyOf, Compare, Condition, FileClause, Places, Refine, any_holds
from geoskip.evaluation.values import finite
from geoskip.indexes.metricdist.summaries import OF_SCALE, DistanceTable, Pivots
from geoskip.metrics import Floats
from geoskip.predicates import FLIPPED, Comparison, In, IsNull, Literal, Not, Predicate

if TYPE_CHECKING:
    from geoskip.indexes.metricdist.index import MetricDist


@dataclass(frozen=True)
class DistanceClause(FileClause):
    """A clause on distances from a point; files without complete summaries pass it."""

    origins: Pivots

    def units(self, files: Files) -> DistanceTable:
        return DistanceTable(self.origins, files)

    def keep(self, files: Files) -> Mask:
        return self.units(files).files_with(super().keep(files))

    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.origins.columns


_POINTS = Compare("points", "=", True)
_NULLS = {"all": (Compare("nulls", "=", True),), "partly": (Compare("partly", "=", True),), "": ()}


def _around(table: DistanceTable, low: Floats, high: Floats | None = None) -> Condition:
    """Return the condition on rows with distances in ``[low, high)`` from each pivot."""
    ranges = zip(low.tolist(), repeat(math.inf) if high is None else high.tolist(), strict=False)
    return AllOf(tuple(Among(f"r{number}", (ends,)) for number, ends in zip(range(table.rings), ranges, strict=False)))


@dataclass(frozen=True)
class DistanceMeets(DistanceClause):
    """Some row's distance to a point may be in [low, high], which is empty if low > high."""

    point: Any
    low: float
    high: float
    limit: float = math.inf
    """From this coordinate on, the query's own arithmetic may overflow, to any result."""
    nulls: str = ""
    """Rows with a NULL that may match: none (""), "all", or "partly" (unless all expressions are NULL)."""

    def where(self, table: DistanceTable) -> Condition:
        found: list[Condition] = [*_NULLS[self.nulls]]
        if self.low <= self.high:
            nearest, farthest = self.targets()
            near = AllOf((_POINTS, _around(table, nearest, np.nextafter(farthest, np.inf))))
            outlined = self.origins.metric.outlined and self.high < math.inf
            found.append(Refine(near, self._in_outlines, "outlines have a string near") if outlined else near)
        if self.limit < math.inf:
            found.append(AllOf((_POINTS, self._far(table))))
        return any_holds(found)

    def _in_outlines(self, table: DistanceTable, places: Places) -> Mask:
        between = self.origins.metric.files_between(table.outlines(), self.point, self.low, self.high)
        return np.ones(len(places), dtype=bool) if between is None else between[places]

    def _far(self, table: DistanceTable) -> Condition:
        """Return the condition on rows with numbers in the query's arithmetic that may reach the limit."""
        metric = self.origins.metric
        if metric.opaque:  # only the distance is known: at most the pivot's plus the row's
            away = self.origins.away(self.point)
            return _around(table, np.array([_least(self.limit, distance) for distance in away.tolist()]))
        return Compare("reach", ">=", _least(self.limit, metric.scale(self.point)))

    def targets(self) -> tuple[Floats, Floats]:
        """Return the least and the greatest distance of matching rows from each pivot."""
        metric = self.origins.metric
        away = self.origins.away(self.point)
        nearest = np.maximum(self.low - away, away - self.high)
        farthest = away + self.high
        if not metric.whole:
            ends = max(abs(self.low), abs(self.high) if math.isfinite(self.high) else 0.0)
            slack = metric.relative * (away + ends) + OF_SCALE * metric.scale(self.point) + metric.slack
            nearest, farthest = nearest - slack, farthest + slack
        unknown = np.isnan(nearest) | np.isnan(farthest)  # a user's function may fail for a pivot
        return np.where(unknown, -np.inf, nearest), np.where(unknown, np.inf, farthest)

    def __str__(self) -> str:
        if self.low > self.high:
            return f"{self.origins.name} has rows without a distance"
        if self.low == self.high:
            return f"{self.origins.name} may be {self.low:g} from {_point_text(self.point)}"
        if self.high == math.inf:
            return f"{self.origins.name} may be {self.low:g} or more from {_point_text(self.point)}"
        within = f"{self.high:g}" if self.low <= 0 else f"{self.low:g} to {self.high:g}"
        return f"{self.origins.name} may be within {within} of {_point_text(self.point)}"


def _least(limit: float, added: float) -> float:
    """Return a number below which the sum with ``added`` stays below a limit, with any rounding."""
    least = limit - added - 2 * math.ulp(max(abs(limit), abs(added)))
    return -math.inf if math.isnan(least) else least


@dataclass(frozen=True)
class DistanceLeaves(DistanceClause):
    """Some row's distance to a point may differ from a number."""

    point: Any
    distance: float
    nulls: str = ""

    def where(self, table: DistanceTable) -> Condition:
        found: Condition = _POINTS
        if self.origins.metric.whole and self.distance >= 0 and self.distance % 1 == 0:
            away = self.origins.away(self.point)
            others = [_around(table, np.nextafter(self.distance - away, np.inf))]  # rows farther, and rows nearer
            if self.distance > 0:
                others.append(_around(table, np.nextafter(away - self.distance, np.inf), away + self.distance))
            found = AllOf((_POINTS, AnyOf(tuple(others))))
        return any_holds([found, *_NULLS[self.nulls]])

    def __str__(self) -> str:
        return f"{self.origins.name} may be other than {self.distance:g} from {_point_text(self.point)}"


@dataclass(frozen=True)
class HasNullDistance(DistanceClause):
    """Some row has no distance (NULL, not a point), or (``turned``) some row may have one."""

    turned: bool = False

    def where(self, table: DistanceTable) -> Condition:
        return _POINTS if self.turned else _NULLS["all"][0]

    def __str__(self) -> str:
        return f"{self.origins.name} has {'values' if self.turned else 'nulls'}"


def _point_text(point: Any) -> str:
    if isinstance(point, Sequence) and not isinstance(point, str):
        shown = ", ".join(f"{part:g}" if isinstance(part, float) else repr(part) for part in point[:4])
        return f"({shown}, ...)" if len(point) > 4 else f"({shown})"
    return repr(point)


@dataclass(frozen=True)
class Distance:
    """The distance of a row to a constant point, as a query computes it (:meth:`MetricDist.distance_to`)."""

    index: MetricDist
    constants: tuple[Any, ...]
    unit: float = 1.0
    limit: float = math.inf
    """From this coordinate on, the query's arithmetic may overflow."""
    nulls: str = ""
    """Rows with a NULL that may match: none (""), "all", or "partly" (unless all expressions are NULL)."""
    shape: str = ""
    """The query's value: the distance (""), its square ("squared"), or 1 minus it ("similarity")."""

    def answers(self, node: Predicate) -> Clause | None:
        """Return the clause of a vertex on this distance: a comparison, IN, IS NULL, or their negation."""
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
        return self.index.required_metric().point(self.constants, self.index.origins[0])

    def compares(self, op: str, value: Any) -> Clause | None:
        """Return the clause that some distance may satisfy a comparison; None if unknown.

        Parameters
        ----------
        op
            An order comparison, "=" or "<>".
        value
            The number in the query's comparison, in the query's unit and shape.
        """
        number = finite(value)
        if number is None or not self.index.is_resolved or not self.index.origins or not self.unit > 0:
            return None
        if op not in ("=", "<>", "<", "<=", ">", ">="):
            return None
        if self.shape == "similarity":
            op, number = FLIPPED.get(op, op), 1.0 - number
        if self.shape == "squared":
            number = math.sqrt(number) if number >= 0 else -1.0
        origins, point = self.index.pivots(), self._point()
        if point is None:
            return None
        if origins.metric.whole and number != value:  # 2.00000000000000000001 is above 2, but not as a double
            return None
        number /= self.unit
        # arithmetic on one coordinate may throw even if another is NULL
        nulls = self.nulls or ("partly" if self.limit < math.inf else "")
        if op == "<>":
            return DistanceLeaves(origins, point, number, nulls)
        low, high = _whole_range(op, number) if origins.metric.whole else _range(op, number)
        low, high = origins.metric.ends(low, high)
        if high < 0 or low > high:
            low, high = math.inf, -math.inf
        return DistanceMeets(origins, point, max(low, 0.0), high, self.limit, nulls)


def subject(node: Predicate) -> Predicate | None:
    """Return the expression that a vertex compares with constants, without casts that keep numbers.

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


def _range(op: str, number: float) -> tuple[float, float]:
    """Return the closed range of distances that satisfy a comparison with a number."""
    if op in ("<", "<="):
        return 0.0, number
    return (number, number) if op == "=" else (number, math.inf)


def _whole_range(op: str, number: float) -> tuple[float, float]:
    """Return the range of whole distances that satisfy a comparison with a number.

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
