"""SQL expressions of three metrics over numeric columns, mapped to MetricDist.

A spelling is taken apart into *offsets*, one a coordinate: ``x - 1`` is the first coordinate less 1. Whole numbers may
overflow in the query's arithmetic, which then throws or wraps around: from such a size of coordinates on, a file is
kept. Arithmetic in ``float`` rounds and overflows far too early: it is not used, nor is that of ``decimal(38, ...)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from geoskip.bounds.casts import uncast
from geoskip.clauses import Clause
from geoskip.indexes.metricdist.index import MetricDist, subject
from geoskip.predicates import Call, Literal, Predicate
from geoskip.registry import Function, maps
from geoskip.types import sql_type

CATALYST = "org.apache.spark.sql.catalyst.expressions."


def catalyst(kind: str, *names: str) -> list[Function]:
    """One Catalyst class under its SQL names."""
    return [Function(name, classes=(CATALYST + kind,)) for name in names]


def is_catalyst(call: Predicate, kind: str) -> bool:
    """True for a call of this Catalyst class."""
    return isinstance(call, Call) and call.implementation == CATALYST + kind


@dataclass(frozen=True)
class Offset:
    """``x - 1``: a coordinate and a constant; from ``limit`` on the query's arithmetic overflows."""

    axis: int
    constant: float
    limit: float = math.inf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offset) and (self.axis, self.constant) == (other.axis, other.constant)

    __hash__ = None  # type: ignore[assignment]


@maps(*catalyst("Sqrt", "SQRT", "sqrt"), *catalyst("Pow", "POWER", "pow", "power"), index=MetricDist)
def root_of_squares(node: Predicate, index: MetricDist) -> Clause | None:
    """Map the root of a sum of squared differences to the euclidean distance."""
    if index.measures != "euclidean":
        return None
    match subject(node):
        case Call(_, (total,)):
            return _answer(node, index, _squares(total, index))
        case Call(_, (total, Literal(0.5))):
            return _answer(node, index, _squares(total, index))
    return None


@maps(*catalyst("Hypot", "HYPOT", "hypot"), index=MetricDist)
def hypotenuse(node: Predicate, index: MetricDist) -> Clause | None:
    """``hypot`` of two differences is the euclidean distance."""
    match subject(node):
        case Call(_, (a, b)) if index.measures == "euclidean":
            return _answer(node, index, [_offset(a, index), _offset(b, index)])
    return None


@maps(*catalyst("Add", "+"), index=MetricDist)
def sum_of_differences(node: Predicate, index: MetricDist) -> Clause | None:
    """Map a sum of absolute differences to Manhattan's distance, one of squares to the euclidean."""
    total = subject(node)
    if total is None:
        return None
    if index.measures == "manhattan":
        terms = _terms(total)
        return _answer(node, index, terms and [_absolute(term, index) for term in terms[0]], sums=terms and terms[1])
    if index.measures == "euclidean":
        return _answer(node, index, _squares(total, index), shape="squared")
    return None


@maps(*catalyst("Greatest", "greatest"), index=MetricDist)
def greatest_difference(node: Predicate, index: MetricDist) -> Clause | None:
    """The greatest absolute difference is Chebyshev's distance, unless ``greatest`` leaves out a NULL."""
    match subject(node):
        case Call(_, parts) if index.measures == "chebyshev":
            return _answer(node, index, [_absolute(part, index) for part in parts], nulls="partly")
    return None


@maps(*catalyst("Abs", "abs"), index=MetricDist)
def one_difference(node: Predicate, index: MetricDist) -> Clause | None:
    """With one coordinate the three metrics are the absolute difference."""
    expression = subject(node)
    if expression is None or index.measures not in ("euclidean", "manhattan", "chebyshev"):
        return None
    return _answer(node, index, [_absolute(expression, index)])


def _answer(
    node: Predicate, index: MetricDist, offsets: Any, *, shape: str = "", nulls: str = "", sums: float | None = None
) -> Clause | None:
    """The clause of the distance with these offsets, if there is one for each coordinate."""
    if not offsets or None in offsets or sorted(o.axis for o in offsets) != list(range(len(index.bound))):
        return None
    point = [o.constant for o in sorted(offsets, key=lambda o: o.axis)]
    limit = min([o.limit for o in offsets] + ([sums] if sums else []))
    return replace(index.distance_to(point), limit=limit, shape=shape, nulls=nulls).answers(node)


def _offset(node: Predicate, index: MetricDist) -> Offset | None:
    """``x - 1``, ``1 - x``, ``x + 1`` or ``x``."""
    plain = uncast(node)
    match plain:
        case Call("-", (x, Literal(q))) | Call("-", (Literal(q), x)) if is_catalyst(plain, "Subtract"):
            sign = 1
        case Call("+", (x, Literal(q))) | Call("+", (Literal(q), x)) if is_catalyst(plain, "Add"):
            sign = -1
        case _:
            axis = index.axis(plain)
            return None if axis is None else Offset(axis, 0.0)
    axis, limit = index.axis(x), _limit(plain)
    if axis is None or limit is None or isinstance(q, bool) or q is None:
        return None
    try:
        return Offset(axis, sign * float(q), limit)
    except (TypeError, ValueError, OverflowError):
        return None


def _absolute(node: Predicate, index: MetricDist) -> Offset | None:
    match uncast(node):
        case Call(_, (difference,)) as call if is_catalyst(call, "Abs"):
            offset = _offset(difference, index)
            # of the least whole number there is no absolute value: it throws, or is that number itself
            least = sql_type(call.type or "bigint").values.stop or math.inf
            return offset and replace(offset, limit=min(offset.limit, least))
    return None


def _squares(node: Predicate, index: MetricDist) -> list[Offset | None] | None:
    """A sum of squared differences."""
    terms = _terms(uncast(node))
    if terms is None:
        return None
    parts, sums = terms
    found = [_square(part, index, len(parts)) for part in parts]
    if len(parts) > 1 and math.isfinite(sums):  # the sum of n squares
        return [None if o is None else replace(o, limit=min(o.limit, math.sqrt(sums))) for o in found]
    return found


def _square(node: Predicate, index: MetricDist, count: int) -> Offset | None:
    plain = uncast(node)
    match plain:
        case Call(_, (base, Literal(2.0))) if is_catalyst(plain, "Pow"):
            return _offset(base, index)
        case Call("*", (a, b)) if is_catalyst(plain, "Multiply"):
            left, right, limit = _offset(a, index), _offset(b, index), _limit(plain)
            if left is not None and right is not None and left == right and limit is not None:
                return replace(left, limit=min(left.limit, right.limit, math.sqrt(limit)))
    return None


def _terms(node: Predicate) -> tuple[list[Predicate], float] | None:
    """The terms of a sum, and from which size of each on it may overflow; None where it computes badly."""
    parts: list[Predicate] = []
    limit = math.inf
    waiting = [uncast(node)]
    while waiting:
        part = uncast(waiting.pop())
        match part:
            case Call("+", (a, b)) if (
                is_catalyst(part, "Add") and not isinstance(a, Literal) and not isinstance(b, Literal)
            ):
                here = _limit(part)
                if here is None:
                    return None
                limit = min(limit, here)
                waiting += [b, a]
            case _:
                parts.append(part)
    return parts, limit / len(parts)


def _limit(call: Call) -> float | None:
    """From which size of the result on arithmetic overflows; None where it is inexact or NULL then."""
    kind = sql_type(call.type)
    if "TRY" in call.flags or not (kind.is_exact or kind.kind == "double") or kind.precision == 38:
        return None
    return float(kind.values.stop) or math.inf
