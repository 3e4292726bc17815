"""Distances mapped to MetricDist: of Spark, written out in SQL, of Sedona and our own.

Each rule says which distance an expression computes, and MetricDist does the rest (``Distance.answers``)::

    levenshtein(word, 'skipping') <= 2                levenshtein(word, 'skipping', 2) >= 0
    sqrt(pow(x - 1, 2) + pow(y - 2, 2)) < 5           (x - 1) * (x - 1) + (y - 2) * (y - 2) < 25
    hypot(x - 1, y - 2) < 5                           ST_Distance(ST_Point(x, y), ST_Point(1, 2)) < 5
    abs(x - 1) + abs(y - 2) < 5                       greatest(abs(x - 1), abs(y - 2)) < 5
    ST_DistanceSphere(ST_Point(lng, lat), ST_Point(8.5, 47.4)) < 1000
    bit_count(hash ^ 12345) <= 3
    1 - size(array_intersect(tags, array('a'))) / size(array_union(tags, array('a'))) < 0.5

Columns may be of any numeric type; how the SQL over them is read is told in :mod:`udf_mappings.metrics_sql`.

To add a function: say its distance in a rule of a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import shapely

from geoskip.bounds.casts import uncast
from geoskip.clauses import KEEP_NONE, Clause, all_of, any_of
from geoskip.geometry import Point, SameGeometry
from geoskip.indexes.metricdist.index import Distance, MetricDist, subject
from geoskip.predicates import Call, Comparison, In, Literal, Not, Predicate
from geoskip.registry import Function, current, maps
from udf_mappings import metric_functions
from udf_mappings.library import returns
from udf_mappings.metrics_sql import catalyst, is_catalyst
from udf_mappings.sedona_names import functions as sedona
from udf_mappings.shapely_functions import EARTH_RADIUS

OURS = metric_functions.__name__ + "."


def ours(name: str) -> Function:
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
    """Serve ``levenshtein`` with a threshold, whose value is the distance up to it, and -1 beyond."""
    match node:
        case Comparison(op, _, Literal(value)):
            return _part(op, value, most, distance)
        case Not(Comparison("=", _, Literal(value))):
            return _part("<>", value, most, distance)
        case In(_, values):
            found = [_part("=", v.value, most, distance) for v in values]
            return any_of(c for c in found if c is not None) if None not in found else None
        case Not(In(_, values)):
            found = [_part("<>", v.value, most, distance) for v in values]
            return all_of(c for c in found if c is not None)
    return distance.answers(node)  # IS NULL


_HOLDS = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b,
}  # fmt: skip


def _part(op: str, value: Any, most: int, distance: Distance) -> Clause | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    within, near = distance.compares(op, value), distance.compares("<=", most)
    beyond = distance.compares(">", most) if _HOLDS[op](-1, value) else KEEP_NONE
    if within is None or near is None or beyond is None:
        return None
    return any_of([all_of([within, near]), beyond])


@maps(*catalyst("BitwiseCount", "bit_count"), index=MetricDist)
def differing_bits(node: Predicate, index: MetricDist) -> Clause | None:
    """``bit_count(a ^ b)`` counts the bits in which two numbers differ, as 64 bits with their sign."""
    match subject(node):
        case Call(_, (Call(_, (a, b)) as xor,)) if is_catalyst(xor, "BitwiseXor"):
            value, constant = (a, b) if isinstance(b, Literal) else (b, a)
            if index.measures == "hamming" and index.axis(value) == 0 and isinstance(constant, Literal):
                return index.distance_to((constant.value,)).answers(node)
    return None


# ---- the plane and the globe


@maps(*sedona("ST_Distance"), index=MetricDist)
def planar(node: Predicate, index: MetricDist) -> Clause | None:
    """Between points, ST_Distance is the euclidean distance."""
    match subject(node):
        case Call(_, (_, _) as sides) if index.measures == "euclidean" and (at := _place(sides, index)) is not None:
            return index.distance_to(at).answers(node)
    return None


@maps(*sedona("ST_DWithin"), index=MetricDist)
def within(node: Predicate, index: MetricDist) -> Clause | None:
    """``ST_DWithin(p, q, d)`` is ``ST_Distance(p, q) <= d``; with a fourth argument it is on the spheroid."""
    call = node.child if isinstance(node, Not) else node
    match call:
        case Call(_, (a, b, Literal(d), *rest)) if rest in ([], [Literal(False, "boolean")]):
            if index.measures == "euclidean" and (at := _place((a, b), index)) is not None:
                return index.distance_to(at).compares(">" if isinstance(node, Not) else "<=", d)
    return None


@maps(*sedona("ST_DistanceSphere"), index=MetricDist)
def on_sphere(node: Predicate, index: MetricDist) -> Clause | None:
    """The central angle times the radius that the call names."""
    match subject(node):
        case Call(_, (a, b, *rest)) if index.measures == "haversine" and (at := _place((a, b), index)) is not None:
            match rest:
                case []:
                    return index.distance_to(at, unit=EARTH_RADIUS).answers(node)
                case [Literal(radius)] if radius is not None and 0 < float(radius) < math.inf:
                    return index.distance_to(at, unit=float(radius)).answers(node)
    return None


def _place(sides: tuple[Predicate, ...], index: MetricDist) -> tuple[float, ...] | None:
    """The constant point of a distance between it and the indexed coordinates, in the order of the index."""
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
    """Return the indexed expressions that are the coordinates of a point."""
    if len(index.bound) != 2:
        return ()
    meaning = current().denotation(node) if isinstance(node, Call) else None
    while isinstance(meaning, SameGeometry):
        meaning = current().denotation(meaning.child) if isinstance(meaning.child, Call) else None
    return index.axes(meaning.x, meaning.y) if isinstance(meaning, Point) else ()


# ---- arrays, and functions of our own


@maps(*catalyst("Subtract", "-"), *catalyst("Divide", "/"), index=MetricDist)
def difference_of_sets(node: Predicate, index: MetricDist) -> Clause | None:
    """``1 - size(array_intersect(a, q)) / size(array_union(a, q))`` is Jaccard's distance, without the 1 - 1 less it.

    Where the size of NULL is -1 (``spark.sql.legacy.sizeOfNull``), a NULL is at no distance.
    """
    if index.measures != "jaccard":
        return None
    match subject(node):
        case Call("-", (Literal(1.0), share)) as call if is_catalyst(call, "Subtract") and (q := _shared(share, index)):
            return replace(index.distance_to(q), nulls="all").answers(node)
        case Call("/") as share if q := _shared(share, index):
            return replace(index.distance_to(q), nulls="all", shape="similarity").answers(node)
    return None


def _shared(node: Predicate, index: MetricDist) -> tuple[Any] | None:
    """The constant set that a row's set is compared with; not an empty one, since 0 / 0 is none."""
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


@maps(ours("haversine"), index=MetricDist)
def great_circle(node: Predicate, index: MetricDist) -> Clause | None:
    """``haversine(lng1, lat1, lng2, lat2)`` in metres, or with a radius of one's own."""
    match subject(node):
        case Call(_, (a, b, c, d, *rest)) as call if index.measures == "haversine" and returns(call, "double"):
            radius = rest[0].value if rest and isinstance(rest[0], Literal) else None if rest else EARTH_RADIUS
            for row, constants in (((a, b), (c, d)), ((c, d), (a, b))):
                at = [q.value for q in constants if isinstance(q, Literal)]
                if index.axes(*row) == (0, 1) and len(at) == 2 and radius is not None and 0 < float(radius) < math.inf:
                    return index.distance_to(at, unit=float(radius)).answers(node)
    return None


def _our_pairs() -> Iterator[Function]:
    yield from map(ours, ("hamming", "angular", "jaccard"))


@maps(*_our_pairs(), index=MetricDist)
def of_two(node: Predicate, index: MetricDist) -> Clause | None:
    """The functions that are called as their metrics; of another type than their own, what they return is NULL."""
    own = ("int", "bigint") if index.measures == "hamming" else ("double",)
    match subject(node):
        case Call(name, (a, b)) as call if name.lower() == index.measures and returns(call, *own):
            value, constant = (a, b) if isinstance(b, Literal) else (b, a)
            if index.reads(value) and isinstance(constant, Literal) and constant.value is not None:
                return index.distance_to((constant.value,)).answers(node)
    return None
