"""Distances mapped to MetricDist: functions of Spark, Sedona and geoskip, and formulas in SQL.

Each rule recognises the distance that an expression computes; ``Distance.answers`` makes the clause::

    levenshtein(word, 'skipping') <= 2                levenshtein(word, 'skipping', 2) >= 0
    sqrt(pow(x - 1, 2) + pow(y - 2, 2)) < 5           (x - 1) * (x - 1) + (y - 2) * (y - 2) < 25
    hypot(x - 1, y - 2) < 5                           ST_Distance(ST_Point(x, y), ST_Point(1, 2)) < 5
    abs(x - 1) + abs(y - 2) < 5                       greatest(abs(x - 1), abs(y - 2)) < 5
    ST_DistanceSphere(ST_Point(lng, lat), ST_Point(8.5, 47.4)) < 1000
    bit_count(hash ^ 12345) <= 3
    1 - size(array_intersect(tags, array('a'))) / size(array_union(tags, array('a'))) < 0.5

Columns may be of any numeric type.

To add a function, write a short rule that identifies its distance.

SQL formulas of Euclidean, Manhattan and Chebyshev distances are split into *offsets*, one for each coordinate:
``x - 1`` is the first coordinate minus 1. Integers may overflow in the query's arithmetic, which then throws or wraps
around: a file with coordinates of such a size is kept. Arithmetic in ``float`` rounds and overflows much too early, so
it is not used, nor is arithmetic in ``decimal(38, ...)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import shapely

from geoskip.bounds import uncast
from geoskip.clauses import KEEP_NONE, Clause, all_known, all_of, any_known, any_of
from geoskip.conditions import OPERATORS
from geoskip.indexes.metricdist.index import Distance, MetricDist, subject
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate
from geoskip.registry import Function, maps
from geoskip.types import sql_type
from udf_mappings import catalyst, is_catalyst, metric_functions, point_of, returns
from udf_mappings.sedona import functions as sedona
from udf_mappings.sedona import is_plain_point
from udf_mappings.shapely_functions import EARTH_RADIUS


@dataclass(frozen=True)
class Offset:
    """``x - 1``: a coordinate and a constant; at ``limit`` and above the query's arithmetic overflows."""

    axis: int
    constant: float
    limit: float = math.inf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offset) and (self.axis, self.constant) == (other.axis, other.constant)

    __hash__ = None  # type: ignore[assignment]


@maps(*catalyst("Sqrt", "SQRT", "sqrt"), *catalyst("Pow", "POWER", "pow", "power"), index=MetricDist)
def euclidean_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """Map the root of a sum of squared differences to the euclidean distance."""
    match subject(node):
        case Call(_, (total,)) | Call(_, (total, Literal(0.5))) if index.measures == "euclidean":
            return _answer(node, index, _squares(total, index))
    return None


@maps(*catalyst("Hypot", "HYPOT", "hypot"), index=MetricDist)
def hypot_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """``hypot`` of two differences is the euclidean distance."""
    match subject(node):
        case Call(_, (a, b)) if index.measures == "euclidean":
            return _answer(node, index, [_offset(a, index), _offset(b, index)])
    return None


@maps(*catalyst("Add", "+"), index=MetricDist)
def manhattan_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """Map a sum of absolute differences to the Manhattan distance, one of squares to the Euclidean."""
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
def chebyshev_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """The greatest absolute difference is the Chebyshev distance, unless ``greatest`` skips a NULL."""
    match subject(node):
        case Call(_, parts) if index.measures == "chebyshev":
            return _answer(node, index, [_absolute(part, index) for part in parts], nulls="partly")
    return None


@maps(*catalyst("Abs", "abs"), index=MetricDist)
def absolute_difference(node: Predicate, index: MetricDist) -> Clause | None:
    """With one coordinate all three metrics are the absolute difference."""
    expression = subject(node)
    if expression is None or index.measures not in ("euclidean", "manhattan", "chebyshev"):
        return None
    return _answer(node, index, [_absolute(expression, index)])


def _answer(
    node: Predicate, index: MetricDist, offsets: Any, *, shape: str = "", nulls: str = "", sums: float | None = None
) -> Clause | None:
    """Return the clause of the distance with these offsets; None unless there is one for each coordinate."""
    if not offsets or None in offsets or sorted(o.axis for o in offsets) != list(range(len(index.bound))):
        return None
    point = [o.constant for o in sorted(offsets, key=lambda o: o.axis)]
    limit = min([o.limit for o in offsets] + ([sums] if sums else []))
    return replace(index.distance_to(point), limit=limit, shape=shape, nulls=nulls).answers(node)


def _offset(node: Predicate, index: MetricDist) -> Offset | None:
    """Parse ``x - 1``, ``1 - x``, ``x + 1`` or ``x``."""
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
            # the absolute value of the least integer throws, or is that integer itself
            least = sql_type(call.type or "bigint").values.stop or math.inf
            return offset and replace(offset, limit=min(offset.limit, least))
    return None


def _squares(node: Predicate, index: MetricDist) -> list[Offset | None] | None:
    """Return the offsets in a sum of squared differences, with None for an unknown term, or None."""
    terms = _terms(uncast(node))
    if terms is None:
        return None
    parts, sums = terms
    found = [_square(part, index) for part in parts]
    if len(parts) > 1 and math.isfinite(sums):  # the sum of n squares may overflow
        return [None if o is None else replace(o, limit=min(o.limit, math.sqrt(sums))) for o in found]
    return found


def _square(node: Predicate, index: MetricDist) -> Offset | None:
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
    """Return the terms of a sum, and the size of a term at which the sum may overflow; None if inexact."""
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
    """Return the least size of a result that overflows; None if inexact, or if overflow gives NULL."""
    kind = sql_type(call.type)
    if "TRY" in call.flags or not (kind.is_exact or kind.kind == "double") or kind.precision == 38:
        return None
    return float(kind.values.stop) or math.inf


OURS = metric_functions.__name__ + "."


def package_function(name: str) -> Function:
    """A function of :mod:`udf_mappings.metric_functions`."""
    return Function(name, python=(OURS + name,))


# ---- strings and bits


@maps(*catalyst("Levenshtein", "levenshtein"), index=MetricDist)
def levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Spark counts insertions, deletions and substitutions of code points, as the metric does."""
    if index.measures != "levenshtein":
        return None
    match subject(node):
        case Call(_, (text, Literal(str() as other))) | Call(_, (Literal(str() as other), text)) if index.reads(text):
            return index.distance_to((other,)).answers(node)
        case Call(_, (text, Literal(str() as other), Literal(int() as most))) | Call(
            _, (Literal(str() as other), text, Literal(int() as most))
        ) if index.reads(text) and most >= 0:
            return _up_to(most, index.distance_to((other,)), node)
    return None


def _up_to(most: int, distance: Distance, node: Predicate) -> Clause | None:
    """Serve ``levenshtein`` with a threshold: its value is the distance, or -1 beyond the threshold."""
    match node:
        case Comparison(op, _, Literal(value)):
            return _part(op, value, most, distance)
        case Not(Comparison("=", _, Literal(value))):
            return _part("<>", value, most, distance)
        case In(_, values):
            return any_known(_part("=", v.value, most, distance) for v in values)
        case Not(In(_, values)):
            return all_known(_part("<>", v.value, most, distance) for v in values)
    return distance.answers(node)  # IS NULL


def _part(op: str, value: Any, most: int, distance: Distance) -> Clause | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    within, near = distance.compares(op, value), distance.compares("<=", most)
    beyond = distance.compares(">", most) if (value != -1 if op == "<>" else OPERATORS[op](-1, value)) else KEEP_NONE
    if within is None or near is None or beyond is None:
        return None
    return any_of([all_of([within, near]), beyond])


@maps(*catalyst("BitwiseCount", "bit_count"), index=MetricDist)
def hamming_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """``bit_count(a ^ b)`` counts the bits in which two signed 64-bit integers differ."""
    match subject(node):
        case Call(_, (Call(_, (a, b)) as xor,)) if is_catalyst(xor, "BitwiseXor"):
            value, constant = (a, b) if isinstance(b, Literal) else (b, a)
            if index.measures == "hamming" and index.axis(value) == 0 and isinstance(constant, Literal):
                return index.distance_to((constant.value,)).answers(node)
    return None


# ---- the plane and the globe


@maps(*sedona("ST_Distance"), index=MetricDist)
def planar_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """Between points, ST_Distance is the euclidean distance."""
    match subject(node):
        case Call(_, (_, _) as sides) if index.measures == "euclidean" and (at := _constant(sides, index)) is not None:
            return None if _is_null_otherwise(node, *sides) else index.distance_to(at).answers(node)
    return None


@maps(*sedona("ST_DWithin"), index=MetricDist)
def distance_within(node: Predicate, index: MetricDist) -> Clause | None:
    """``ST_DWithin(p, q, d)`` is ``ST_Distance(p, q) <= d``; a fourth argument selects the spheroid."""
    call = node.child if isinstance(node, Not) else node
    match call:
        case Call(_, (a, b, Literal(d), *rest)) if rest in ([], [Literal(False, "boolean")]):
            if index.measures == "euclidean" and (at := _constant((a, b), index)) is not None:
                return index.distance_to(at).compares(">" if isinstance(node, Not) else "<=", d)
    return None


@maps(*sedona("ST_DistanceSphere"), index=MetricDist)
def spherical_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """The distance is the central angle times the radius in the call."""
    match subject(node):
        case Call(_, (a, b, *rest)) as call if (
            index.measures == "haversine" and (at := _constant((a, b), index)) is not None
        ):
            is_odd = isinstance(node, IsNull) and str(call.implementation).startswith("python:")  # NULL for NaN
            if is_odd or _is_null_otherwise(node, a, b):
                return None
            match rest:
                case []:
                    return index.distance_to(at, unit=EARTH_RADIUS).answers(node)
                case [Literal(radius)] if radius is not None and 0 < float(radius) < math.inf:
                    return index.distance_to(at, unit=float(radius)).answers(node)
    return None


def _is_null_otherwise(node: Predicate, *sides: Predicate) -> bool:
    """True for IS NULL of the distance of a point that may be NULL for another argument, such as its z."""
    return isinstance(node, IsNull) and not any(map(is_plain_point, sides))


def _constant(sides: tuple[Predicate, ...], index: MetricDist) -> tuple[float, ...] | None:
    """Return the constant point of a distance from the indexed coordinates, in the order of the index."""
    for row, constant in (sides, sides[::-1]):
        if isinstance(constant, Literal) and isinstance(constant.value, shapely.Point) and not constant.value.is_empty:
            axes = _axes(row, index)
            x, y = constant.value.x, constant.value.y
            if axes == (0, 1):
                return (x, y)
            if axes == (1, 0) and index.measures != "haversine":
                return (y, x)
    return None


def _axes(node: Predicate, index: MetricDist) -> tuple[int | None, ...]:
    """Return the positions in the index of a point's coordinates; None for one that is not indexed."""
    if len(index.bound) != 2:
        return ()
    point = point_of(node)
    return () if point is None else index.axes(point.x, point.y)


# ---- arrays, and geoskip's own functions


@maps(*catalyst("Subtract", "-"), *catalyst("Divide", "/"), index=MetricDist)
def jaccard_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """Serve ``1 - size(array_intersect(a, q)) / size(array_union(a, q))``, Jaccard's distance.

    Without ``1 -`` it is the similarity, 1 less the distance.

    If the size of NULL is -1 (``spark.sql.legacy.sizeOfNull``), NULL has no distance.
    """
    if index.measures != "jaccard":
        return None
    match subject(node):
        case Call("-", (Literal(1.0), share)) as call if is_catalyst(call, "Subtract") and (q := _set_in(share, index)):
            return replace(index.distance_to(q), nulls="all").answers(node)
        case Call("/") as share if q := _set_in(share, index):
            return replace(index.distance_to(q), nulls="all", shape="similarity").answers(node)
    return None


def _set_in(node: Predicate, index: MetricDist) -> tuple[Any] | None:
    """Return the constant set that a row's set is compared with; an empty one has no ratio (0 / 0)."""
    match node:
        case Call("/", (common, either)) as call if is_catalyst(call, "Divide"):
            sets = [_operands(common, "ArrayIntersect", index), _operands(either, "ArrayUnion", index)]
            if sets[0] is not None and sets[1] is not None and set(sets[0]) == set(sets[1]) != set():
                return (sets[0],)
    return None


def _operands(node: Predicate, kind: str, index: MetricDist) -> tuple[Any, ...] | None:
    match uncast(node):
        case Call(_, (Call(_, (a, b)) as call,)) as size if is_catalyst(size, "Size") and is_catalyst(call, kind):
            value, constant = (a, b) if isinstance(b, Literal) else (b, a)
            if index.reads(value) and isinstance(constant, Literal) and isinstance(constant.value, tuple):
                return constant.value
    return None


@maps(package_function("haversine"), index=MetricDist)
def haversine_distance(node: Predicate, index: MetricDist) -> Clause | None:
    """``haversine(lng1, lat1, lng2, lat2)`` in metres, or in the unit of a given radius."""
    match subject(node):
        case Call(_, (a, b, c, d, *rest)) as call if index.measures == "haversine" and returns(call, "double"):
            radius = rest[0].value if rest and isinstance(rest[0], Literal) else None if rest else EARTH_RADIUS
            for row, constants in (((a, b), (c, d)), ((c, d), (a, b))):
                at = [q.value for q in constants if isinstance(q, Literal)]
                if index.axes(*row) == (0, 1) and len(at) == 2 and radius is not None and 0 < float(radius) < math.inf:
                    return index.distance_to(at, unit=float(radius)).answers(node)
    return None


@maps(*map(package_function, ("hamming", "angular", "jaccard")), index=MetricDist)
def named_metric(node: Predicate, index: MetricDist) -> Clause | None:
    """Functions with the names of their metrics; with another registered type they return NULL."""
    own = ("int", "bigint") if index.measures == "hamming" else ("double",)
    match subject(node):
        case Call(name, (a, b)) as call if name.lower() == index.measures and returns(call, *own):
            value, constant = (a, b) if isinstance(b, Literal) else (b, a)
            if index.reads(value) and isinstance(constant, Literal) and constant.value is not None:
                return index.distance_to((constant.value,)).answers(node)
    return None
