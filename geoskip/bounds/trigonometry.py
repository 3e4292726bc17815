"""Functions of doubles over intervals: those that distances on the globe are written with in SQL.

Of the haversine formula every term is bounded by the ends of a box. The spherical law of cosines has the latitude in
two terms, ``A * sin(u) + B * cos(u)``, which is ``R * cos(u - atan2(A, B))``: so bounded, it is as tight.

*Why that is sound*: each function is monotone between its extremes, and Java's and NumPy's are within one unit in the
last place of the true value, by more than which the ends are moved outwards. Where a function may leave its domain, or
an angle is so large that its reduction matters, nothing is known of the box.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from geoskip.predicates import Call, Predicate
from geoskip.registry import Function

__all__ = ["Ends", "function_of", "harmonic", "of_function", "of_wave"]

Ends = tuple[Any, Any, Any]
"""The least values, the greatest, and whether every row of the box has one; arrays or single numbers."""

_CATALYST = "org.apache.spark.sql.catalyst.expressions."
_FUNCTIONS = {
    name: Function(name, classes=(_CATALYST + kind,))
    for name, kind in {
        "sin": "Sin",
        "cos": "Cos",
        "asin": "Asin",
        "acos": "Acos",
        "atan2": "Atan2",
        "sqrt": "Sqrt",
        "radians": "ToRadians",
        "/": "Divide",
        "negative": "UnaryMinus",
    }.items()
}
_ROUNDINGS = 1e-15
_NEAR = 1e-9
_LARGEST_ANGLE = 1e5


def function_of(node: Call) -> str | None:
    """The name of one of these functions of doubles, or None."""
    function = _FUNCTIONS.get(node.name.lower())
    return function.name if function is not None and node.type == "double" and function.is_called(node) else None


def of_function(name: str, arguments: Sequence[Ends]) -> Ends:
    """The ends of a function's values."""
    low, high, sure = arguments[0]
    match name:
        case "negative":
            return -high, -low, sure
        case "/":
            divisor, same, known = arguments[1]
            low, high = np.minimum(low / divisor, high / divisor), np.maximum(low / divisor, high / divisor)
            return low, high, sure & known & (divisor == same) & (divisor != 0)
        case "radians":
            low, high = np.radians(low), np.radians(high)
        case "sqrt":
            sure = sure & (low >= 0)
            low, high = np.sqrt(np.maximum(low, 0)), np.sqrt(np.maximum(high, 0))
        case "asin" | "acos":
            sure = sure & (low >= -1) & (high <= 1)
            ends = np.clip(low, -1, 1), np.clip(high, -1, 1)
            low, high = map(np.arcsin, ends) if name == "asin" else map(np.arccos, reversed(ends))
        case "atan2":
            least, most, known = arguments[1]
            sure = sure & known & (low >= 0) & (least > 0)
            low, high = np.arctan2(low, most), np.arctan2(high, least)
        case _:
            return of_wave(
                arguments[0], *(((1, 1, True), (0, 0, True)) if name == "sin" else ((0, 0, True), (1, 1, True)))
            )
    return (*_outward(low, high, np.maximum(np.abs(low), np.abs(high))), sure)


def of_wave(angle: Ends, sines: Ends, cosines: Ends) -> Ends:
    """The ends of ``a * sin(u) + b * cos(u)``: linear in a and b, so one of their four corners decides."""
    low, high, sure = angle
    found: list[tuple[Any, Any]] = []
    for a in sines[:2]:
        for b in cosines[:2]:
            size, top = np.hypot(a, b), np.arctan2(a, b)
            ends = [a * np.sin(at) + b * np.cos(at) for at in (low, high)]
            most = np.where(_holds(low, high, top), size, np.maximum(*ends))
            found.append((np.where(_holds(low, high, top + math.pi), -size, np.minimum(*ends)), most))
    least = np.minimum.reduce(np.broadcast_arrays(*(pair[0] for pair in found)))
    most = np.maximum.reduce(np.broadcast_arrays(*(pair[1] for pair in found)))
    size = sum(np.maximum(np.abs(part[0]), np.abs(part[1])) for part in (sines, cosines))
    known = sure & sines[2] & cosines[2] & (np.maximum(np.abs(low), np.abs(high)) <= _LARGEST_ANGLE)
    return (*_outward(least, most, 8 * size), known)


def harmonic(node: Predicate) -> tuple[Predicate, list[Predicate], list[Predicate]] | None:
    """Of ``a * sin(u) + b * cos(u)``: u, the factors that make a and those that make b."""
    if not (isinstance(node, Call) and node.name == "+" and node.type == "double"):
        return None
    for one, other in (node.args, tuple(reversed(node.args))):
        sines, cosines = _factors(one), _factors(other)
        for sine, cosine in itertools.product(sines, cosines):
            if isinstance(sine, Call) and isinstance(cosine, Call) and sine.args == cosine.args:
                if (function_of(sine), function_of(cosine)) != ("sin", "cos"):
                    continue
                sines.remove(sine)
                cosines.remove(cosine)
                return sine.args[0], sines, cosines
    return None


def _factors(node: Predicate) -> list[Predicate]:
    if isinstance(node, Call) and node.name == "*" and node.type == "double":
        return [factor for arg in node.args for factor in _factors(arg)]
    return [node]


def _holds(low: Any, high: Any, at: Any) -> Any:
    """Whether an interval holds an angle, or one that is whole turns from it."""
    turn = 2 * math.pi
    return at + np.ceil((low - _NEAR - at) / turn) * turn <= high + _NEAR


def _outward(low: Any, high: Any, size: Any) -> tuple[Any, Any]:
    unsure = size * _ROUNDINGS + 1e-300
    return low - unsure, high + unsure
