"""What is declared of a user's function (:func:`geoskip.declare`), put to use.

*Monotone*: the bounds of x give those of f(x), so MinMax("x") serves ``f(x) > 5``. f is called in the driver, once a
distinct bound, with plain Python values, and only for types that have one Python type: whole numbers, floats, dates.
A bound for which it raises, or returns NaN, None or another type than declared, leaves its file unknown. Nothing
follows for a row where x is NULL, unless f is null-in-null-out, nor is it known where f is NULL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError
from geoskip.predicates import Call
from geoskip.registry import current
from geoskip.types import sql_type

__all__ = ["THROUGH_ARROW", "carried", "physical_value", "python_value"]

_EPOCH = dt.date(1970, 1, 1).toordinal()
THROUGH_ARROW = ("eval:101",)
_ROW_BY_ROW = ((), ("eval:100",), THROUGH_ARROW)
"""Spark's codes of functions that take one row: the others take whole columns."""


def carried(node: Call, source: str | None) -> tuple[Callable[[Interval], Interval], bool] | None:
    """What a declared monotone function makes of a range, and whether NULL stays NULL; None where nothing is said."""
    said = current().properties_of(node)
    function = current().function_of(node)
    if said is None or not isinstance(said.monotone, str) or function is None or node.flags[:1] not in _ROW_BY_ROW:
        return None
    if source is None or not (_has_python_type(source) and _has_python_type(node.type)):
        return None
    if source == "bigint" and node.flags[:1] == THROUGH_ARROW:  # of which pandas makes floats beside NULL: it rounds
        return None
    kind, falls = node.type or "", said.monotone == "decreasing"
    return (lambda spans: _range_of(function, spans, source, kind, falls)), bool(said.null_in_null_out)


def _has_python_type(kind: str | None) -> bool:
    return kind == "date" or sql_type(kind).is_integral or sql_type(kind).is_floating


def _range_of(function: Callable[..., Any], spans: Interval, source: str, target: str, falls: bool) -> Interval:
    if spans.scale or spans.kind not in ("number", "real", "date"):
        raise IncomparableError(f"a {spans.kind} is not given to functions here")
    keys, empty = spans.keys(), spans.low > spans.high
    unknown = np.array(keys.unknown)
    if spans.nan is not None:
        unknown |= spans.nan
    usable = ~(empty | unknown)
    ends_met = {*spans.low[usable].tolist(), *spans.high[usable].tolist()}
    found = {end: _called(function, end, source, target) for end in ends_met}
    lows, highs = ([found.get(end) for end in ends.tolist()] for ends in (spans.low, spans.high))
    if falls:
        lows, highs = highs, lows
    real = sql_type(target).is_floating
    low, high = _ends(real, len(empty), falling=False), _ends(real, len(empty), falling=True)
    for at in np.flatnonzero(usable):
        least, most = lows[at], highs[at]
        if least is None or most is None or least > most:
            unknown[at] = True
        else:
            low[at], high[at] = least, most
    low[empty & ~unknown], high[empty & ~unknown] = (math.inf, -math.inf) if real else (LAST, FIRST)
    kind = "real" if real else "date" if target == "date" else "number"
    return Interval(kind, low, high, nan=unknown if real else None)


def _ends(real: bool, length: int, *, falling: bool) -> NDArray[Any]:
    """The ends of what is unknown."""
    if real:
        return np.full(length, math.inf if falling else -math.inf)
    return np.full(length, LAST if falling else FIRST, dtype=np.int64)


def _called(function: Callable[..., Any], value: Any, source: str, target: str) -> Any:
    try:
        return physical_value(function(python_value(value, source)), target)
    except Exception:  # unknown; where a row throws, the query fails as well
        return None


def python_value(value: Any, kind: str) -> Any:
    """A physical value as Spark gives it to a Python function; raises ValueError where it has no plain form."""
    of = sql_type(kind)
    if value is None or (of.is_integral and type(value) is int) or (of.is_floating and type(value) is float):
        return value
    if kind == "date" and type(value) is int:
        return dt.date.fromordinal(value + _EPOCH)
    if kind == "string" and isinstance(value, str):
        value.encode("utf-8")
        return value
    raise ValueError(f"{value!r} is no {kind}")


def physical_value(value: Any, kind: str) -> Any:
    """A Python function's result as Spark keeps it; None for NaN, NULL and all that is not of the declared type."""
    if type(value) is int:
        return value if value in sql_type(kind).values else None
    if sql_type(kind).is_floating and type(value) is float and not math.isnan(value):
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if kind == "float" else value
    if kind == "date" and type(value) is dt.date:
        return value.toordinal() - _EPOCH
    return value if kind == "string" and type(value) is str else None
