"""Intervals of monotone functions, evaluated at the ends by Spark, or by Python if declared.

If g is monotone between the bounds of x, the bounds of g(x) are g of these bounds. Libraries declare which of Spark's
functions are monotone (``udf_mappings/monotone_functions.py``); Spark evaluates g once per distinct bound, with the
exact semantics of the query's own expression (:mod:`geoskip.evaluation`).

*Why that is sound*: if g throws or is NULL or NaN for a value, this also holds for all smaller or for all greater
values (overflow, the logarithm of a number that is not positive), so it holds for one of the bounds. Such a unit is
unknown. A unit that may contain NaN is unknown too, since ``floor(NaN)`` is 0, unless the function is known to keep
NaN. Below the least argument of a logarithm or a square root the result is NULL or NaN: if only the lower bound is
below it, the least result is unknown and the greatest is that of the upper bound; if both are, the unit has no results.

A user's function that is declared to be monotone (:func:`geoskip.declare`) is called in the driver, once per distinct
bound, with plain Python values, and only for types with a single Python type: whole numbers, floats, dates. If it
raises for a bound, or returns NaN, None or another type than declared, the unit is unknown. Rows where x is NULL may
have any result, unless the function is null-in-null-out, and the function may be NULL anywhere.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import IncomparableError
from geoskip.bounds.time_zones import LocalTimeFunction, has_fixed_zone
from geoskip.evaluation import values_of
from geoskip.evaluation.values import FIRST, LAST, CandidateValues, decimals_of
from geoskip.predicates import Call, Cast, Predicate
from geoskip.registry import current
from geoskip.registry.functions import CATALYST
from geoskip.types import sql_type

_KINDS = ("date", "timestamp", "timestamp_ntz")
_WITH_ZONE = {("timestamp", "date"), ("timestamp", "timestamp_ntz"), ("timestamp_ntz", "timestamp")}
_WITHOUT_ZONE = {("timestamp", "bigint"), ("bigint", "timestamp"), ("int", "timestamp")}
_BOUNDED_BELOW = frozenset(CATALYST + kind for kind in ("Log", "Log10", "Log1p", "Log2", "Logarithm", "Sqrt"))
"""Functions that increase above a least argument and never throw: below it, logarithms are NULL, roots NaN."""
_KEEPS_NAN = _BOUNDED_BELOW | {
    CATALYST + kind for kind in ("Exp", "Expm1", "Pow", "Rint", "Signum", "ToDegrees", "ToRadians")
}
"""Functions that return NaN for NaN; ``pow(NaN, 0)`` is 1, but is not declared to be monotone."""
_EPOCH = dt.date(1970, 1, 1).toordinal()
THROUGH_ARROW = ("eval:101",)
_ROW_BY_ROW = ((), ("eval:100",), THROUGH_ARROW)
"""Spark's evaluation types of functions that are called per row; other functions get whole columns."""


# --- evaluated by Spark -----------------------------------------------------------------------------------------------


def is_monotone_cast(node: Cast, source: str | None) -> bool:
    """True if a cast preserves the order and is to be evaluated by Spark.

    Casts between times with and without a zone preserve it only in zones without backward transitions, except that a
    later date never begins earlier. Casts to short integral types, and of decimals to any integral type, wrap around
    outside of ANSI mode.

    >>> from geoskip.predicates import Column
    >>> ts = Column("ts", "timestamp")
    >>> [is_monotone_cast(Cast(ts, "date", zone=zone), ts.type) for zone in ("UTC", "America/New_York")]
    [True, False]
    """
    target, given = node.type, sql_type(source)
    if (source, target) == ("date", "timestamp"):
        return node.zone is not None
    if (source, target) in _WITH_ZONE:
        return has_fixed_zone(node.zone)
    if (source, target) in _WITHOUT_ZONE or (
        given.is_floating and sql_type(target).kind in ("int", "bigint", "decimal", "timestamp")
    ):
        return True
    return node.ansi and sql_type(target).is_integral and (given.is_floating or given.kind == "decimal")


def evaluate_ends(
    node: Call | Cast,
    child: Predicate,
    source: str | None,
    *,
    falls: bool = False,
    clocks: LocalTimeFunction | None = None,
    evaluate: Callable[[Any, Interval], pa.Array] | None = None,
) -> Callable[[Interval], Interval]:
    """Return the function from operand intervals to those of a call or cast, evaluated at the ends.

    Parameters
    ----------
    node : Call or Cast
        The expression.
    child : Predicate
        Its only operand that is not a literal.
    source : str or None
        The type of the operand.
    falls : bool
        True for a decreasing function.
    clocks : LocalTimeFunction or None
        The local time function, if the function is monotone in local time and not in its operand.
    evaluate : Callable, optional
        From distinct ends and the intervals to the results at these ends, NULL if unknown. Default: Spark.

    Returns
    -------
    Callable
        From the operand's intervals to those of the results; raises IncomparableError if Spark cannot evaluate them.
    """
    target, implementation = node.type or "", node.implementation if isinstance(node, Call) else None
    bounded_below = target == "double" and implementation in _BOUNDED_BELOW and not falls
    keeps_nan = target == "double" and implementation in _KEEPS_NAN

    def take(interval: Interval) -> Interval:
        empty = np.asarray(interval.low > interval.high)
        unknown, nan = np.array(interval.keys().unknown), np.zeros_like(empty)
        if interval.nan is not None and keeps_nan:
            nan |= interval.nan
        elif interval.nan is not None:
            unknown |= interval.nan
        real = interval.kind == "real"
        known_low, known_high = (
            ~(empty | unknown | (np.zeros_like(empty) if real else end == missing))
            for end, missing in ((interval.low, FIRST), (interval.high, LAST))
        )
        if clocks is None:
            at_low, at_high = (
                (np.flatnonzero(known), end[known])
                for known, end in ((known_low, interval.low), (known_high, interval.high))
            )
        else:
            at_low, at_high = clocks.points(interval.low, interval.high, known_low, known_high)
        distinct, places = np.unique(np.concatenate([at_low[1], at_high[1]]), return_inverse=True)
        results = None
        if len(distinct) and evaluate is not None:
            results = evaluate(distinct, interval)
        elif len(distinct):
            results = values_of(node, child, CandidateValues(_arrow(distinct, interval, source or "")))
            if results is None:
                raise IncomparableError(f"{node} was not evaluated")
        kind, scale, values, valid = _results(results, target)
        low, high = _unknown_ends(kind, len(empty))
        below = np.zeros_like(empty)
        is_nan = ~valid if results is None else ~valid & np.asarray(results.is_valid())
        for side, furthest, (units, _), at in (
            (low, np.minimum, at_low, places[: len(at_low[0])]),
            (high, np.maximum, at_high, places[len(at_low[0]) :]),
        ):
            if bounded_below:
                nan[units[is_nan[at]]] = True
                below[units[~valid[at]]] = side is high  # the upper bound is processed last
            else:
                unknown[units[~valid[at]]] = True
            units, at = units[valid[at]], at[valid[at]]
            side[units] = values[at]
            if clocks is not None:  # several ends per unit
                furthest.at(side, units, values[at])
        if falls:
            least, most = _unknown_ends(kind, len(low))
            low, high = np.where(known_high, high, least), np.where(known_low, low, most)
        empty |= below
        unknown |= ~empty & (low > high)
        return _interval(kind, low, high, scale, empty=empty & ~unknown, unknown=unknown, nan=nan)

    return take


def _interval(kind: str, low: Any, high: Any, scale: int, *, empty: Any, unknown: Any, nan: Any) -> Interval:
    """Return an interval with the sentinel ends of unknown and of empty units."""
    low[unknown], high[unknown] = (end[unknown] for end in _unknown_ends(kind, len(low)))
    low[empty], high[empty] = (math.inf, -math.inf) if kind == "real" else (LAST, FIRST)
    return Interval(kind, low, high, scale, nan=unknown | nan if kind == "real" else None)


def _unknown_ends(kind: str, length: int) -> tuple[Any, Any]:
    """Return the ends of unknown intervals."""
    if kind == "real":
        return np.full(length, -math.inf), np.full(length, math.inf)
    return np.full(length, FIRST, dtype=np.int64), np.full(length, LAST, dtype=np.int64)


def _arrow(ends: Any, interval: Interval, source: str) -> pa.Array:
    """Return bounds as physical values of the operand's type."""
    if interval.kind == "real":
        return pa.array(ends, pa.float64())
    kind = sql_type(source)
    if not kind.is_decimal and interval.scale == 0:
        return pa.array(ends, pa.int64())
    if not kind.is_decimal or interval.scale != kind.scale:
        raise IncomparableError(f"the bounds of a {source} are rounded")
    return decimals_of(ends, kind.arrow)


def _results(results: pa.Array | None, target: str) -> tuple[str, int, Any, Any]:
    """Return the kind and scale of results as an interval, their keys, and a mask of the valid ones."""
    of = sql_type(target)
    if of.is_floating:
        array = pa.nulls(0, pa.float64()) if results is None else results.cast(pa.float64())
        values = np.asarray(array.fill_null(math.nan))
        return "real", 0, values, ~np.isnan(values)
    if of.is_decimal:
        decimals = [] if results is None else results.to_pylist()
        unscaled = [None if v is None else int(v.scaleb(of.scale)) for v in decimals]
        fits = np.array([v is not None and FIRST < v < LAST for v in unscaled], dtype=bool)
        keys = np.array([v if ok else 0 for v, ok in zip(unscaled, fits, strict=True)], dtype=np.int64)
        return "number", of.scale, keys, fits
    if not of.is_integral and target not in _KINDS:
        raise IncomparableError(f"results of type {target} have no bounds here")
    array = pa.nulls(0, pa.int64()) if results is None else results
    return target if target in _KINDS else "number", 0, np.asarray(pc.fill_null(array, 0)), np.asarray(array.is_valid())


# --- evaluated by Python ----------------------------------------------------------------------------------------------


def call_at_ends(node: Call) -> tuple[Callable[[Interval], Interval], bool] | None:
    """Return the transfer of a function declared to be monotone, and True if it is null-in-null-out.

    Parameters
    ----------
    node : Call
        The call of one argument.

    Returns
    -------
    tuple of (Callable, bool) or None
        None if nothing is declared, or the types have no plain Python form.
    """
    (child,), source = node.args, node.args[0].type
    declared, function = current().properties_of(node), current().function_of(node)
    if declared is None or not isinstance(declared.monotone, str) or function is None:
        return None
    if source is None or not (_has_python_type(source) and _has_python_type(node.type)):
        return None
    if node.flags[:1] not in _ROW_BY_ROW:
        return None
    if source == "bigint" and node.flags[:1] == THROUGH_ARROW:  # pandas converts them to floats if there are NULLs
        return None
    target = node.type or ""

    def evaluate(ends: Any, interval: Interval) -> pa.Array:
        if interval.scale or interval.kind not in ("number", "real", "date"):
            raise IncomparableError(f"a {interval.kind} is not given to functions here")
        results = [_physical_result(function, end, source, target) for end in ends.tolist()]
        return pa.array(results, pa.float64() if sql_type(target).is_floating else pa.int64())

    falls = declared.monotone == "decreasing"
    return evaluate_ends(node, child, source, falls=falls, evaluate=evaluate), bool(declared.null_in_null_out)


def _has_python_type(kind: str | None) -> bool:
    return kind == "date" or sql_type(kind).is_integral or sql_type(kind).is_floating


def _physical_result(function: Callable[..., Any], value: Any, source: str, target: str) -> Any:
    try:
        return physical_value(function(python_value(value, source)), target)
    except Exception:  # unknown; if a row throws, the query fails as well
        return None


def python_value(value: Any, kind: str) -> Any:
    """Convert a physical value as Spark does for a Python function; raises ValueError if not supported."""
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
    """Convert a Python function's result to its physical value; None for NaN, NULL and other types."""
    if type(value) is int:
        return value if value in sql_type(kind).values else None
    if sql_type(kind).is_floating and type(value) is float and not math.isnan(value):
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if kind == "float" else value
    if kind == "date" and type(value) is dt.date:
        return value.toordinal() - _EPOCH
    return value if kind == "string" and type(value) is str else None
