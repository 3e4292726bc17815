"""Interval arithmetic: what sums, products and absolute values make of the ranges of their operands.

Of two expressions over the same column, as in ``year(day) * 100 + month(day)`` and ``x * x``: where the one operand of
a file's rows lies in one range and the other in another, the result lies between those of the ranges' ends. *Why that
is sound*: +, - and * of intervals have their least and greatest results at corners, and rounding keeps the order; that
both operands are of the same row only makes the true range narrower. A file is unknown where a corner leaves the type
(its rows may throw or wrap around), and where an end is infinite (infinity less infinity, or times zero, is NaN).
Decimals and single precision are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError

__all__ = ["absolute_numbers", "absolute_reals", "real_product", "real_sum", "together"]

Corners = Callable[[Any, Any], Any]
_OPERATIONS: dict[str, Corners] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_SAFE = 2.0**62


def together(sign: str, kind: str, limits: range, left: Interval, right: Interval) -> Interval:
    """What an operation makes of two ranges of one type, ``double`` or a whole number within limits."""
    wanted = "real" if kind == "double" else "number"
    if left.kind != wanted or right.kind != wanted or left.scale or right.scale or sign not in _OPERATIONS:
        raise IncomparableError(f"no sum or product of {left.kind} and {right.kind}")
    empty = (left.low > left.high) | (right.low > right.high)
    unknown = left.keys().unknown | right.keys().unknown
    if wanted == "real":
        return _of_reals(sign, left, right, empty, unknown)
    low, high, fits = _of_numbers(sign, left, right, limits)
    unknown |= ~fits & ~empty
    low, high = np.where(unknown, FIRST, low), np.where(unknown, LAST, high)
    low[empty & ~unknown], high[empty & ~unknown] = LAST, FIRST
    return Interval("number", low, high)


def _of_numbers(sign: str, left: Interval, right: Interval, limits: range) -> tuple[Any, Any, Any]:
    """The least and the greatest corner, and where all corners are within the limits: as doubles, and then exactly."""
    operation = _OPERATIONS[sign]
    least, most = limits[0], limits[-1]
    corners = []
    fits = np.ones(len(left.low), dtype=bool)
    for one in (left.low, left.high):
        for other in (right.low, right.high):
            with np.errstate(over="ignore"):
                corner = operation(one, other)  # may wrap around: then it does not fit
            about = operation(one.astype(np.float64), other.astype(np.float64))
            fits &= (np.abs(about) < _SAFE) & (corner >= least) & (corner <= most)
            corners.append(corner)
    return np.minimum.reduce(corners), np.maximum.reduce(corners), fits


def _of_reals(sign: str, left: Interval, right: Interval, empty: Any, unknown: Any) -> Interval:
    operation = _OPERATIONS[sign]
    for end in (left.low, left.high, right.low, right.high):
        unknown = unknown | ~(empty | np.isfinite(end))
    ends = [np.where(empty | unknown, 0.0, end) for end in (left.low, left.high, right.low, right.high)]
    with np.errstate(over="ignore", under="ignore"):
        corners = [operation(one, other) for one in ends[:2] for other in ends[2:]]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    low, high = np.where(empty, math.inf, low), np.where(empty, -math.inf, high)
    low, high = np.where(unknown, -math.inf, low), np.where(unknown, math.inf, high)
    nan = unknown.copy()
    for side in (left, right):
        if side.nan is not None:
            nan |= side.nan
    return Interval("real", low, high, nan=nan)


def absolute_reals(spans: Interval) -> Interval:
    low, high = spans.low, spans.high
    least = np.maximum(np.maximum(low, -high), 0.0)
    most = np.maximum(np.abs(low), np.abs(high))
    empty, unknown = low > high, spans.keys().unknown
    least[empty], most[empty] = math.inf, -math.inf
    least[unknown], most[unknown] = -math.inf, math.inf  # still unknown: what was made NULL stays NULL
    return Interval("real", least, most, nan=spans.nan)


def absolute_numbers(spans: Interval, least_of_type: int) -> Interval:
    """Unknown where the least value of the type may be among them, whose absolute value is none."""
    low, high = spans.low, spans.high
    empty, unknown = low > high, low <= least_of_type
    low, high = np.where(unknown, 0, low), np.where(empty, 0, high)
    least, most = np.maximum(np.maximum(low, -np.maximum(high, -LAST)), 0), np.maximum(np.abs(low), np.abs(high))
    least, most = np.where(unknown, FIRST, least), np.where(unknown, LAST, most)
    least[empty], most[empty] = LAST, FIRST
    return Interval("number", least, most, spans.scale)


def real_sum(spans: Interval, sign: int, plus: float, kind: str) -> Interval:
    """``sign * x + plus`` in the width of the type; NaN stays NaN, and finite constants make none."""
    width: Any = np.float32 if kind == "float" else np.float64
    low, high = (spans.low, spans.high) if sign > 0 else (spans.high, spans.low)
    with np.errstate(over="ignore"):
        ends = [(width(sign) * end.astype(width) + width(plus)).astype(np.float64) for end in (low, high)]
    return Interval("real", ends[0], ends[1], nan=spans.nan)


def real_product(spans: Interval, by: float, kind: str, *, divides: bool) -> Interval:
    width: Any = np.float32 if kind == "float" else np.float64
    low, high = (spans.low, spans.high) if by > 0 else (spans.high, spans.low)
    with np.errstate(over="ignore", under="ignore"):
        ends = [end.astype(width) / width(by) if divides else end.astype(width) * width(by) for end in (low, high)]
    return Interval("real", ends[0].astype(np.float64), ends[1].astype(np.float64), nan=spans.nan)
