"""Interval arithmetic: bounds of sums, products and curves from those of their operands.

*Why that is sound*: sums, differences, products and quotients have their least and greatest results at corners of the
operands' intervals, and rounding preserves the order; a correlation between the operands can only narrow the true
range. Whole numbers and decimals are computed exactly in 64 bits. The result is unknown if a corner exceeds the type
(such rows throw, wrap around or become NULL), if a double may be NaN although no operand is (infinity minus infinity,
zero times infinity), and if a divisor may be zero.

The results of trigonometric functions in Java and NumPy are within one unit in the last place of the true value; the
bounds are widened by more. If an argument may be outside of the domain, or an angle is so large that argument reduction
matters, the result is unknown. ``a * sin(u) + b * cos(u)`` (in the spherical law of cosines, which contains the
latitude in two terms) is bounded as ``R * cos(u - atan2(a, b))``, as tightly as the haversine formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import IncomparableError, physical
from geoskip.clauses import Mask
from geoskip.evaluation.values import FIRST, LAST
from geoskip.predicates import Literal, Predicate
from geoskip.types import SqlType, sql_type

ALL_INTEGERS = sql_type("bigint").values
_OPERATIONS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
_SAFE = 2.0**63 - 2.0**12
_ROUNDINGS = 1e-15
_EXACT_ROOT = 2.0**26
_NEAR = 1e-9
_LARGEST_ANGLE = 1e5
_LARGEST_PRODUCT = 1e150
_NOWHERE = np.zeros(1, dtype=bool)


def of_kind(interval: Interval, *kinds: str) -> Interval:
    """Return the interval; raises IncomparableError for another kind."""
    if interval.kind not in kinds:
        raise IncomparableError(f"expected {kinds[0]}, got {interval.kind}")
    return interval


def constant(value: Any, kind: SqlType) -> Interval:
    """Return the interval of a constant of an exact or floating type, with one entry for all units."""
    if kind.is_floating:
        ends = np.array([float(np.float32(value)) if kind.kind == "float" else float(value)])
        return Interval("real", ends, ends)
    unscaled = Fraction(value) * 10**kind.scale if kind.is_decimal else Fraction(value)
    if unscaled.denominator != 1 or not FIRST < unscaled < LAST:
        raise IncomparableError(f"{value} has more digits than 64 bits hold")
    ends = np.array([int(unscaled)], dtype=np.int64)
    return Interval("date" if kind.kind == "date" else "number", ends, ends, kind.scale if kind.is_decimal else 0)


# --- sums, differences, products, quotients ---------------------------------------------------------------------------


def is_operand(side: Predicate, result: SqlType) -> bool:
    """True if an operand's type fits the result type, and a literal is a finite number."""
    if not isinstance(side, Literal):
        return sql_type(side.type).is_decimal if result.is_decimal else side.type == result.name
    value = physical(side.value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    if result.is_floating:
        return isinstance(value, int | float) and math.isfinite(value)
    if result.is_decimal:
        return sql_type(side.type).is_decimal and math.isfinite(value)
    return isinstance(value, int)


def corners(sign: str, kind: SqlType, left: Interval, right: Interval) -> Interval:
    """Return the intervals of ``left sign right`` in the arithmetic of the result's type.

    Parameters
    ----------
    sign : str
        ``+``, ``-``, ``*``, or ``/`` of doubles.
    kind : SqlType
        The type of the result: floating, integral, decimal, date, or an interval of days and times.
    left, right : Interval
        The operands, both of doubles, or both of numbers, dates or times; decimals may differ in scale. One of them may
        be a constant.

    Returns
    -------
    Interval
        One entry per unit; unknown where the result may exceed the type.
    """
    kinds = ("real",) if kind.is_floating else ("number", "date", "timestamp", "timestamp_ntz")
    for side in (left, right):
        of_kind(side, *kinds)
    of_constant = _real_with_constant if kind.is_floating else _exact_with_constant
    if len(right.low) == 1 and (found := of_constant(sign, kind, left, right, first=False)) is not None:
        return found
    if len(left.low) == 1 and (found := of_constant(sign, kind, right, left, first=True)) is not None:
        return found
    return _real_corners(sign, kind, left, right) if kind.is_floating else fit(_exact_corners(sign, left, right), kind)


def _real_with_constant(sign: str, kind: SqlType, x: Interval, by: Interval, *, first: bool) -> Interval | None:
    """Return ``x sign by``, or ``by sign x``, for a finite constant; None if the result may be NaN."""
    width: Any = np.float32 if kind.kind == "float" else np.float64
    (c,), low, high = by.low.astype(width), x.low.astype(width), x.high.astype(width)
    if by.low != by.high or by.nan is not None or not np.isfinite(c):
        return None
    if (c == 0 and sign in "*/") or (first and sign == "/"):
        return None
    if (first and sign == "-") or (c < 0 and sign in "*/"):
        low, high = high, low
    with np.errstate(over="ignore", under="ignore"):
        low, high = ((_OPERATIONS[sign](c, end) if first else _OPERATIONS[sign](end, c)) for end in (low, high))
    return Interval("real", low.astype(np.float64), high.astype(np.float64), nan=x.nan)


def _exact_with_constant(sign: str, kind: SqlType, x: Interval, by: Interval, *, first: bool) -> Interval | None:
    """Return ``x sign by``, or ``by sign x``, exactly; None for a product with zero."""
    c = int(by.low[0])
    if by.low != by.high or not FIRST < c < LAST or (sign == "*" and not c):
        return None
    if sign == "*":
        return fit(affine(x, c, digits=by.scale), kind)
    scale = max(x.scale, by.scale)
    plus = c * 10 ** (scale - by.scale) * (-1 if sign == "-" and not first else 1)
    factor = 10 ** (scale - x.scale) * (-1 if sign == "-" and first else 1)
    return fit(affine(x, factor, plus, kind="number", digits=scale - x.scale), kind)


def _exact_corners(sign: str, left: Interval, right: Interval) -> Interval:
    """Return the exact corners of numbers; unknown beyond 64 bits and for unbounded operands."""
    scale = left.scale + right.scale
    if sign != "*":
        scale = max(left.scale, right.scale)
        left, right = (affine(side, 10 ** (scale - side.scale), digits=scale - side.scale) for side in (left, right))
    empty = (left.low > left.high) | (right.low > right.high)
    open_ = (left.low == FIRST) | (left.high == LAST) | (right.low == FIRST) | (right.high == LAST)
    with np.errstate(over="ignore"):  # overflow becomes unknown
        if sign == "+":
            low, high = left.low + right.low, left.high + right.high
            wraps = ((left.low ^ low) & (right.low ^ low)) | ((left.high ^ high) & (right.high ^ high))
            fits = wraps >= 0
        elif sign == "-":
            low, high = left.low - right.high, left.high - right.low
            wraps = ((left.low ^ right.high) & (left.low ^ low)) | ((left.high ^ right.low) & (left.high ^ high))
            fits = wraps >= 0
        elif sign == "*":
            pairs = [(one, other) for one in (left.low, left.high) for other in (right.low, right.high)]
            products = [one * other for one, other in pairs]
            low, high = np.minimum.reduce(products), np.maximum.reduce(products)
            about = [np.abs(one.astype(np.float64) * other) for one, other in pairs]
            fits = np.maximum.reduce(about) < _SAFE
        else:
            raise IncomparableError(f"no exact bounds of {sign}")
    low, high = np.where(fits & ~open_, low, FIRST), np.where(fits & ~open_, high, LAST)
    low[empty], high[empty] = LAST, FIRST
    return Interval("number", low, high, scale)


def fit(interval: Interval, kind: SqlType) -> Interval:
    """Convert numbers to a type: rounded outwards to its scale, unknown where they exceed it."""
    if kind.kind == "date":
        return replace(affine(interval, limits=sql_type("int").values), kind="date")
    if kind.kind == "interval second":
        return replace(interval, kind="interval")
    if not kind.is_decimal:
        return affine(of_kind(interval, "number"), limits=kind.values)
    interval = of_kind(interval, "number").coarser(kind.scale)
    most = math.floor((10**kind.precision - 1) * Fraction(10) ** (interval.scale - kind.scale))
    limits = range(max(-most, FIRST), min(most, LAST) + 1)
    found = affine(interval, limits=limits)
    if interval.wide is None:
        return found
    return replace(found, wide=interval.wide.where((interval.low >= limits[0]) & (interval.high <= limits[-1])))


def affine(
    interval: Interval, factor: int = 1, plus: int = 0, *, limits: range = ALL_INTEGERS, kind: str = "", digits: int = 0
) -> Interval:
    """Return the exact intervals of ``factor * x + plus``; unknown where a bound exceeds the limits.

    Parameters
    ----------
    interval : Interval
        Intervals of whole numbers, or of unscaled decimals.
    factor, plus : int
        Constants; raises IncomparableError for more than 64 bits.
    limits : range
        The values of the result's type.
    kind : str
        The kind of the result if it differs.
    digits : int
        The number of digits added to the scale of decimals.
    """
    if not (-LAST <= factor <= LAST and -LAST <= plus <= LAST):
        raise IncomparableError("a constant of more than 64 bits")
    ends = sorted(Fraction(limit - plus, factor) for limit in (limits[0], limits[-1]))
    least, most = max(math.ceil(ends[0]), FIRST), min(math.floor(ends[1]), LAST)
    if least > most:
        raise IncomparableError("no value stays within the type")
    if factor != 1 or plus:  # an open end is not a number
        least, most = max(least, FIRST + 1), min(most, LAST - 1)
    fits = (interval.low >= least) & (interval.high <= most)
    low, high = (end * np.int64(factor) + np.int64(plus) for end in (interval.low, interval.high))  # may wrap: unused
    if factor < 0:
        low, high = high, low
    low, high = np.where(fits, low, FIRST), np.where(fits, high, LAST)
    empty = interval.low > interval.high
    low[empty], high[empty] = LAST, FIRST
    return Interval(kind or interval.kind, low, high, interval.scale + digits)


def _real_corners(sign: str, kind: SqlType, left: Interval, right: Interval) -> Interval:
    """Return corners in the precision of the type; infinite where a bound overflows, as in Spark."""
    width: Any = np.float32 if kind.kind == "float" else np.float64
    a, b, c, d = (end.astype(width) for end in (left.low, left.high, right.low, right.high))
    with np.errstate(all="ignore"):
        if sign == "+":
            low, high = a + c, b + d
            unknown = ((b == math.inf) & (c == -math.inf)) | ((a == -math.inf) & (d == math.inf))
        elif sign == "-":
            low, high = a - d, b - c
            unknown = ((b == math.inf) & (d == math.inf)) | ((a == -math.inf) & (c == -math.inf))
        else:
            endless = [np.isinf(low) | np.isinf(high) for low, high in ((a, b), (c, d))]
            zero = [(low <= 0) & (high >= 0) for low, high in ((a, b), (c, d))]
            results = [_OPERATIONS[sign](one, other) for one in (a, b) for other in (c, d)]
            low, high = np.minimum.reduce(results), np.maximum.reduce(results)
            if sign == "*":
                unknown = (zero[0] & endless[1]) | (zero[1] & endless[0])
            else:
                unknown = zero[1] | (endless[0] & endless[1])
    return _real(low.astype(np.float64), high.astype(np.float64), unknown, left, right)


def _real(low: Any, high: Any, unknown: Mask, *operands: Interval) -> Interval:
    """Combine bounds of doubles: empty if an operand is empty, with NaN if an operand may be NaN."""
    empty, absent, nan = (np.zeros(len(low), dtype=bool) for _ in range(3))
    for operand in operands:
        has_none = np.asarray(operand.low > operand.high)
        empty |= has_none
        if operand.nan is not None:
            nan |= operand.nan
            unknown = unknown | (operand.nan & (operand.low == -math.inf) & (operand.high == math.inf))
            has_none = has_none & ~operand.nan
        absent |= has_none
    empty, unknown = absent | (empty & ~unknown), unknown & ~absent  # NaN with an unknown operand may give NULL
    low, high = np.where(unknown, -math.inf, low), np.where(unknown, math.inf, high)
    low[empty], high[empty] = math.inf, -math.inf
    return Interval("real", low, high, nan=(nan | unknown) & ~absent)


def absolute(kind: SqlType, interval: Interval) -> Interval:
    """Return the intervals of ``abs(x)``; unknown if x may be the least value of an integral type."""
    low, high, empty = interval.low, interval.high, interval.low > interval.high
    if kind.is_floating:
        of_kind(interval, "real")
        least = np.maximum(np.maximum(low, -high), 0.0)
        most = np.maximum(np.abs(low), np.abs(high))
        unknown = interval.keys().unknown  # NULL of an overflowing cast stays NULL
        least[empty], most[empty] = math.inf, -math.inf
        least[unknown], most[unknown] = -math.inf, math.inf
        return Interval("real", least, most, nan=interval.nan)
    of_kind(interval, "number")
    unknown = low <= (kind.values or ALL_INTEGERS)[0]
    low, high = np.where(unknown, 0, low), np.where(empty, 0, high)
    least, most = np.maximum(np.maximum(low, -np.maximum(high, -LAST)), 0), np.maximum(np.abs(low), np.abs(high))
    least, most = np.where(unknown, FIRST, least), np.where(unknown, LAST, most)
    least[empty], most[empty] = LAST, FIRST
    return Interval("number", least, most, interval.scale)


def square(interval: Interval) -> Interval:
    """Return the intervals of ``pow(x, 2)``, exact for whole numbers; others are widened for rounding.

    >>> found = square(Interval("real", np.array([3.0, 0.1]), np.array([3.0, 0.1])))
    >>> (found.low < [9, 0.1 * 0.1]).tolist(), (found.high > [9, 0.1 * 0.1]).tolist()
    ([False, True], [False, True])
    """
    size = absolute(sql_type("double"), interval)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low, high = (end * end for end in (size.low, size.high))
        exact = [(end < _EXACT_ROOT) & (np.floor(end) == end) for end in (size.low, size.high)]
        low = np.where(exact[0], low, np.maximum(np.nextafter(low * (1 - _ROUNDINGS), -1.0), 0.0))
        high = np.where(exact[1], high, np.nextafter(high * (1 + _ROUNDINGS), math.inf))
    return _real(low, high, _NOWHERE, interval)


def clamp(interval: Interval, end: float, *, above: bool) -> Interval:
    """Return the intervals of ``least(x, end)`` (``above``) or ``greatest(x, end)``; NaN is the greatest.

    An operand that a function may make NULL has an unknown interval; its result contains ``end``, since ``least(NULL,
    end)`` is ``end``.
    """
    of_kind(interval, "real")
    low, high, empty = interval.low, interval.high, interval.low > interval.high
    clip = np.minimum if above else np.maximum
    unknown = interval.keys().unknown
    nan = unknown if interval.nan is None else interval.nan | unknown
    low, high = (np.where(empty, bound, clip(bound, end)) for bound in (low, high))
    if not above:
        return Interval("real", low, high, nan=nan)
    return Interval("real", np.where(nan, np.minimum(low, end), low), np.where(nan, end, high))


# --- curves of doubles ------------------------------------------------------------------------------------------------

Ends = tuple[Any, Any, Any]
"""The least values, the greatest values, and a mask of the units in which these bound every result."""


def curve(name: str, *operands: Interval) -> Interval:
    """Return the intervals of a function of :func:`of_function`; unknown outside of its domain."""
    low, high, sure = of_function(name, [_ends(operand) for operand in operands])
    return _real(low, high, ~sure, *operands)


def square_root(interval: Interval) -> Interval:
    """Return the intervals of ``sqrt(x)``, which is correctly rounded on all platforms, and NaN below 0.

    >>> found = square_root(Interval("real", np.array([-4.0, -4.0, 0.0]), np.array([-4.0, 9.0, 9.0])))
    >>> found.low.tolist(), found.high.tolist(), found.nan.tolist()
    ([inf, 0.0, 0.0], [-inf, 3.0, 3.0], [True, True, False])
    """
    below = (of_kind(interval, "real").low < 0) & (interval.low <= interval.high)
    low, high = (np.sqrt(np.maximum(end, 0.0)) for end in (interval.low, interval.high))
    found = _real(low, high, _NOWHERE, interval)
    none = interval.high < 0
    found.low[none], found.high[none] = math.inf, -math.inf
    return replace(found, nan=below if found.nan is None else found.nan | below)


def wave(angle: Interval, sines: Sequence[Interval], cosines: Sequence[Interval]) -> Interval:
    """Return the intervals of ``a * sin(u) + b * cos(u)``, where a and b are products of intervals.

    Spark may multiply the factors in another order, so the result is unknown if any product of factors may overflow,
    and the bounds are widened by more than the effect of underflow.
    """
    double = sql_type("double")
    products, largest = [], np.ones(1)
    for factors in (sines, cosines):
        product = constant(1.0, double)
        for factor in factors:
            product = corners("*", double, product, factor)
            with np.errstate(over="ignore"):
                largest = largest * np.maximum(1.0, np.maximum(*np.abs(_ends(factor)[:2])))
        products.append(product)
    low, high, sure = of_wave(*(_ends(operand) for operand in (angle, *products)))
    low, high = low - 1 / _LARGEST_PRODUCT, high + 1 / _LARGEST_PRODUCT
    return _real(low, high, ~(sure & (largest <= _LARGEST_PRODUCT)), angle, *products)


def _ends(interval: Interval) -> Ends:
    """Return finite bounds, 0 in place of others, with a mask."""
    of_kind(interval, "real")
    sure = np.isfinite(interval.low) & np.isfinite(interval.high)
    return np.where(sure, interval.low, 0.0), np.where(sure, interval.high, 0.0), sure


def of_function(name: str, arguments: Sequence[Ends]) -> Ends:
    """Return bounds of a function's values, by its SQL name: sin, cos, asin, acos, atan2 or radians.

    >>> y, x = ((np.array(low), np.array([1.0, 1.0, 1.0]), True) for low in ([-1.0, 0.0, 0.0], [1.0, 0.0, 1.0]))
    >>> of_function("atan2", [y, x])[2].tolist()
    [False, False, True]
    >>> of_function("sin", [(np.array([-1e9, 0.0, 0.0]), np.array([1.0, 1e9, 1.0]), True)])[2].tolist()
    [False, False, True]
    """
    low, high, sure = arguments[0]
    match name:
        case "radians":
            low, high = np.radians(low), np.radians(high)
        case "asin" | "acos":
            sure = sure & (low >= -1) & (high <= 1)
            ends = np.clip(low, -1, 1), np.clip(high, -1, 1)
            low, high = map(np.arcsin, ends) if name == "asin" else map(np.arccos, reversed(ends))
        case "atan2":
            least, most, known = arguments[1]
            sure = sure & known & (low >= 0) & (least > 0)
            low, high = np.arctan2(low, most), np.arctan2(high, least)
        case _:
            one, zero = (1.0, 1.0, True), (0.0, 0.0, True)
            return of_wave(arguments[0], *((one, zero) if name == "sin" else (zero, one)))
    return (*_outward(low, high, np.maximum(np.abs(low), np.abs(high))), sure)


def of_wave(angle: Ends, sines: Ends, cosines: Ends) -> Ends:
    """Return bounds of ``a * sin(u) + b * cos(u)``, which has its extremes at corners of a and b (linear)."""
    low, high, sure = angle
    found: list[tuple[Any, Any]] = []
    for a in sines[:2]:
        for b in cosines[:2]:
            size, top = np.hypot(a, b), np.arctan2(a, b)
            ends = [a * np.sin(at) + b * np.cos(at) for at in (low, high)]
            most = np.where(_reaches(low, high, top), size, np.maximum(*ends))
            found.append((np.where(_reaches(low, high, top + math.pi), -size, np.minimum(*ends)), most))
    least = np.minimum.reduce(np.broadcast_arrays(*(pair[0] for pair in found)))
    most = np.maximum.reduce(np.broadcast_arrays(*(pair[1] for pair in found)))
    size = sum(np.maximum(np.abs(part[0]), np.abs(part[1])) for part in (sines, cosines))
    known = sure & sines[2] & cosines[2] & (np.maximum(np.abs(low), np.abs(high)) <= _LARGEST_ANGLE)
    return (*_outward(least, most, 8 * size), known)


def _reaches(low: Any, high: Any, at: Any) -> Any:
    """True if an interval contains an angle modulo a full turn."""
    turn = 2 * math.pi
    return at + np.ceil((low - _NEAR - at) / turn) * turn <= high + _NEAR


def _outward(low: Any, high: Any, size: Any) -> tuple[Any, Any]:
    """Widen bounds by the rounding errors of results of a size.

    >>> low, high = _outward(0.5, 0.5, 1.0)
    >>> low < 0.5 - 2**-52 and high > 0.5 + 2**-52
    True
    """
    unsure = size * _ROUNDINGS + 1e-300
    return low - unsure, high + unsure
