"""Comparisons of what is computed from the coordinates of a GeoBox: ``abs(lat - 45) < 3``, ``2 * lng + lat > 100``.

A box bounds either coordinate of its rows, and sums, differences and products of both by interval arithmetic. So
MinMax's clauses are asked of each box as if it were a file: monotone steps over what is bounded
(:mod:`geoskip.bounds.transfer`), with Spark evaluating what it must, and their negations. Joined by AND they are
merged box by box with all others.

*Why that is sound*: every row lies in a unit of its file, and of each unit is said what holds for the coordinate of all
its rows. In a box that is its ends, for whole numbers and decimals rounded outwards to values of the type. A row with a
NULL may still have the other coordinate, anything at all; a file with a coordinate that is not finite has one unit more
of which only is known that neither is NULL. A sum of doubles lies between the sums of the ends, since rounding keeps
the order; so do differences, and a product between the least and the greatest of the four corners'. What is multiplied
by itself is never negative, nor is its ``pow(.., 2)``, whose last digit is the platform's and is left open. Of single
precision that is as true, with the ends rounded to it, and outwards. Whole numbers and decimals are exact to Spark and
not in doubles, so the ends are moved outwards by more than all roundings. Where a step may leave its type, which makes
it wrap around, be NULL or throw, or a double be infinite, nothing at all is known of the box.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from geoskip.bounds.casts import keeps_numbers, uncast
from geoskip.bounds.trigonometry import Ends, function_of, harmonic, of_function, of_wave
from geoskip.clauses import KEEP_NONE, Clause, keep_mask
from geoskip.geometry.boxes import Boxes, Floats, Mask
from geoskip.indexes.gaplist import Segments
from geoskip.indexes.geobox.clauses import BoxTransform, GeoClause
from geoskip.indexes.geobox.units import BoxUnits, NoBoxReason
from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Call, Cast, Literal, Predicate, walk
from geoskip.registry import Function
from geoskip.types import SqlType, sql_type

if TYPE_CHECKING:
    from geoskip.indexes.geobox.index import GeoBox

__all__ = ["BoxArithmetic", "BoxPasses", "bounds_of_type", "computed", "joint_parts"]

_CATALYST = "org.apache.spark.sql.catalyst.expressions."
_BOTH = {
    "+": Function("+", classes=(_CATALYST + "Add",)),
    "-": Function("-", classes=(_CATALYST + "Subtract",)),
    "*": Function("*", classes=(_CATALYST + "Multiply",)),
}
_POWERS = tuple(Function(name, classes=(_CATALYST + "Pow",)) for name in ("pow", "power"))
_DOUBLE = sql_type("double")
_MOST_PARTS = 128
_MOST_WHOLE = 2.0**63 - 1024
_MOST_UNSCALED = 10.0**18


@dataclass(frozen=True)
class BoxArithmetic:
    """What is bounded in each box: a coordinate, or something computed from both."""

    expression: Predicate
    coordinates: tuple[Predicate, ...]

    @property
    def type(self) -> SqlType:
        """The type of the values."""
        return sql_type(self.expression.type)

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The coordinates in it (0 for x, 1 for y), as often as they are."""
        return tuple(_axes(self.expression, self.coordinates))

    @cached_property
    def is_total(self) -> bool:
        """Has every row without a NULL a value? What leaves its type may be NULL, of all types but these."""
        calls = [vertex for vertex in walk(self.expression) if isinstance(vertex, Call)]
        return len(self.axes) == 1 or all(sql_type(call.type).is_floating for call in calls)

    def ends(self, boxes: Boxes) -> tuple[Floats, Floats, Mask]:
        """The least and the greatest value in each box, and whether it has one for every row of the box."""
        sides = (boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax)
        low, high, sure = (
            np.broadcast_to(found, len(boxes)) for found in _ends(self.expression, self.coordinates, sides)
        )
        return low, high, sure

    def null(self) -> tuple[NoBoxReason, ...]:
        """The sorts of rows without a box of which it is NULL; of the others it may be anything."""
        return (NoBoxReason.NULL, *((NoBoxReason.ONLY_Y, NoBoxReason.ONLY_X)[axis] for axis in sorted(set(self.axes))))

    def over(self, units: BoxUnits) -> Segments:
        """The units as files with the summaries of MinMax."""
        found: Segments = units.derived(self, lambda: _segments(self, units))
        return found


def computed(index: GeoBox, node: Predicate) -> Clause | None:
    """A clause for a vertex over something computed from the coordinates of a pair, or None."""
    for line, expression in _lines(index, node):
        inner = MinMax(str(expression)).bind((expression,)).clause(node)
        if inner is KEEP_NONE:
            return inner
        if inner is not None:
            return BoxPasses(str(index), index.counts, BoxTransform(), line, inner)
    return None


def _lines(index: GeoBox, node: Predicate) -> Iterator[tuple[BoxArithmetic, Predicate]]:
    coordinates = tuple(map(uncast, index.bound))
    for bound in index.bound:
        if _is_number(bound.type):
            yield BoxArithmetic(bound, coordinates), bound
    yield from ((part, part.expression) for part in joint_parts(coordinates, node))


def joint_parts(coordinates: tuple[Predicate, ...], node: Predicate) -> Iterator[BoxArithmetic]:
    """The parts of a vertex that are computed from coordinates alone, with more than one occurrence of them."""
    for vertex in walk(node):
        if isinstance(vertex, Call) and _operation(vertex) is not None and _is_short(vertex):
            part = BoxArithmetic(vertex, coordinates)
            if len(part.axes) > 1:
                yield part


def _is_short(node: Predicate) -> bool:
    """Is it worth looking through? Of what is not, a part may be."""
    return sum(1 for _ in islice(walk(node), _MOST_PARTS + 1)) <= _MOST_PARTS


def _is_number(kind: str | None) -> bool:
    return sql_type(kind).is_exact or sql_type(kind).is_floating


def _operation(node: Predicate) -> str | None:
    """The sign of a sum, difference or product of numbers, ``pow`` of a square, or a function of doubles."""
    match node:
        case Call(_, (_, Literal(2.0)), type="double") if any(power.is_called(node) for power in _POWERS):
            return "pow"
    if isinstance(node, Call) and len(node.args) == 2 and _is_number(node.type) and node.name in _BOTH:
        return node.name if _BOTH[node.name].is_called(node) else None
    return function_of(node) if isinstance(node, Call) else None


def _axes(node: Predicate, coordinates: Sequence[Predicate]) -> Iterator[int]:
    """The coordinates in what is computed by operations alone; none where there is anything else."""
    if (plain := uncast(node)) in coordinates:
        yield coordinates.index(plain)
    elif _operation(node) is not None and isinstance(node, Call):
        parts = [list(_axes(arg, coordinates)) for arg in node.args if not _is_constant(arg)]
        if all(parts):
            yield from (each for part in parts for each in part)
    elif isinstance(node, Cast) and keeps_numbers(node):
        yield from _axes(node.child, coordinates)


def _is_constant(node: Predicate) -> bool:
    match node:
        case Literal(bool()):
            return False
        case Literal(int() | float() | Decimal(), kind):
            return _is_number(kind)
    return False


def _ends(node: Predicate, coordinates: Sequence[Predicate], sides: Sequence[tuple[Floats, Floats]]) -> Ends:
    if (plain := uncast(node)) in coordinates:
        return (*sides[coordinates.index(plain)], True)
    match node:
        case Literal(value, "float"):
            single = float(np.float32(value))
            return single, single, math.isfinite(single)
        case Literal(value):
            number = float(value)
            return number, number, math.isfinite(number)
        case Cast(child):
            return _ends(child, coordinates, sides)
        case Call(_, args) if (name := function_of(node)) is not None:
            return _fitting(of_function(name, [_ends(arg, coordinates, sides) for arg in args]))
        case Call() if (wave := harmonic(node)) is not None:
            angle, *factors = wave
            product = [
                functools.reduce(partial(_operated, "*", _DOUBLE), (_ends(f, coordinates, sides) for f in some), _ONE)
                for some in factors
            ]
            return _fitting(of_wave(_ends(angle, coordinates, sides), *product))
        case Call(op, (left, right), type=kind):
            operation = "square" if op == "*" and left == right else _operation(node) or op
            return _operated(operation, sql_type(kind), *(_ends(arg, coordinates, sides) for arg in (left, right)))
    raise AssertionError(f"{node} is not computed by operations")


_ONE: Ends = (1.0, 1.0, True)


def _fitting(ends: Ends) -> Ends:
    low, high, sure = ends
    return low, high, sure & _fits(_DOUBLE, low, high)


def _operated(op: str, kind: SqlType, left: Ends, right: Ends) -> Ends:
    (a, b, first), (c, d, second) = left, right
    if op in ("square", "pow"):
        corners = np.broadcast_arrays(a * a, b * b)
        low, high = np.where((a <= 0) & (b >= 0), 0.0, np.minimum(*corners)), np.maximum(*corners)
        if op == "pow":
            low = np.maximum(np.nextafter(low * (1 - _ROUNDINGS), -1.0), 0.0)
            high = np.nextafter(high * (1 + _ROUNDINGS), math.inf)
    elif op == "*":
        corners = np.broadcast_arrays(a * c, a * d, b * c, b * d)
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    else:
        low, high = (a + c, b + d) if op == "+" else (a - d, b - c)
    if kind.kind == "float":
        low, high = (np.asarray(end, dtype=np.float32) for end in (low, high))
        low, high = np.nextafter(low, -_ENDLESS), np.nextafter(high, _ENDLESS)
        low, high = low.astype(np.float64), high.astype(np.float64)
    elif kind.kind != "double":
        largest = np.maximum.reduce(np.broadcast_arrays(*map(np.abs, (a, b, c, d, low, high))))
        unsure = largest * _ROUNDINGS + _unit(kind)
        exact = kind.is_integral & (largest < 2.0**53)
        low, high = low - np.where(exact, 0.0, unsure), high + np.where(exact, 0.0, unsure)
    return low, high, first & second & _fits(kind, low, high)


_ENDLESS = np.float32(math.inf)
_ROUNDINGS = 1e-15
"""Of a number, more than all roundings to doubles that a step and its operands go through."""


def _unit(kind: SqlType) -> float:
    """What Spark may round by: decimals of the greatest precision, to their scale."""
    return 10.0**-kind.scale if kind.precision == 38 else 0.0


def _fits(kind: SqlType, low: Any, high: Any) -> Any:
    """Whether all between two ends is of a type, and finite."""
    if kind.is_decimal:
        most = 10.0 ** (kind.precision - kind.scale) * (1 - 1e-12)
    else:
        most = min(float(kind.values[-1]), _MOST_WHOLE) if kind.is_integral else sys.float_info.max
    return (low >= -most) & (high <= most)


@dataclass(frozen=True)
class BoxPasses(GeoClause):
    """Some box may hold a match by what MinMax says of a coordinate in it."""

    line: BoxArithmetic
    inner: Clause

    def keep_of(self, units: BoxUnits) -> Mask:
        return keep_mask(self.inner, self.line.over(units))

    def __str__(self) -> str:
        return f"{self.index} has a box with {self.inner}"


def _segments(line: BoxArithmetic, units: BoxUnits) -> Segments:
    low, high, sure = line.ends(units.boxes)
    boxes, length = len(low), len(units)
    known, null = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
    known[: units.wild.stop] = True
    null[units.boxless] = units.boxless_of(*line.null())
    told = np.zeros(length, dtype=bool)  # its bounds, and that it is neither NULL nor NaN
    told[:boxes] = sure
    bounds = dict(zip(("min", "max"), bounds_of_type(line.type, np.where(sure, low, 0), np.where(sure, high, 0), ~told),
                      strict=True))  # fmt: skip
    counted = known & (null | line.is_total)
    counted[:boxes] = sure
    return Segments(
        units.unit_file,
        {
            **bounds,
            "rows": pa.array(np.ones(length, dtype=np.int64), mask=~known),
            "nulls": pa.array(null.astype(np.int64), mask=~counted),
            "nans": pa.array(np.zeros(length, dtype=np.int64), mask=~(told | null)),
        },
    )


def bounds_of_type(kind: SqlType, low: Floats, high: Floats, lacks: Mask) -> tuple[pa.Array, pa.Array]:
    """Ends of boxes as bounds of a type, null for units that have none, and where the type does not reach so far."""
    ends = [np.zeros(len(lacks)) for _ in range(2)]
    ends[0][: len(low)], ends[1][: len(high)] = low, high
    if not kind.is_exact:
        return pa.array(ends[0], mask=lacks), pa.array(ends[1], mask=lacks)
    if kind.is_integral:
        least, most, limit = np.ceil(ends[0]), np.floor(ends[1]), _MOST_WHOLE
    else:
        scaled = [end * 10.0**kind.scale for end in ends]
        least, most = (np.floor(scaled[0] - np.abs(scaled[0]) * 1e-15), np.ceil(scaled[1] + np.abs(scaled[1]) * 1e-15))
        limit = _MOST_UNSCALED
    open_ = lacks | (np.abs(least) > limit) | (np.abs(most) > limit) | (least > most)
    words = [np.where(open_, 0, end).astype(np.int64) for end in (least, most)]
    if kind.is_integral:
        return pa.array(words[0], mask=open_), pa.array(words[1], mask=open_)
    last = min(10**kind.precision - 1, 2**63 - 1)
    words = [np.clip(word, -last, last) for word in words]  # the engine takes no other for the type
    return _decimals(words[0], open_, kind.scale), _decimals(words[1], open_, kind.scale)


def _decimals(unscaled: Any, lacks: Mask, scale: int) -> pa.Array:
    words = np.stack([unscaled, unscaled >> 63], axis=1).astype("<i8")  # sign-extended to 128 bits
    valid = pa.py_buffer(np.packbits(~lacks, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(unscaled), [valid, pa.py_buffer(words.tobytes())])
