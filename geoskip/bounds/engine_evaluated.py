"""Monotone functions and casts that the engine itself evaluates for the bounds: ``year(day)``, ``floor(x)``.

The bounds of g(x) are g of the bounds of x, where g is monotone on all that lies between them. Which of the engine's
functions are, libraries declare (``udf_mappings/monotone.py``); g is evaluated by the engine, once a distinct bound,
with the exact semantics of the query's own expression (:mod:`geoskip.evaluation`).

*Why that is sound*: where g throws or is NULL or NaN for a value, it does so for all smaller ones or for all greater
ones (overflow, the logarithm of what is not positive), so that one of the bounds shows it. Such a file is unknown, and
so is one with NaN among its values, ``floor(NaN)`` being 0, unless NaN is known to stay NaN. And of logarithms and
square roots it is known what they are below where they begin, NULL or NaN: nothing is said of the least result then,
and of the greatest what the upper bound says, or, where that lies below too, that there is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError
from geoskip.bounds.time_zones import LocalTimeFunction
from geoskip.evaluation import CandidateValues, values_of
from geoskip.predicates import Call, Cast, Predicate
from geoskip.types import sql_type

__all__ = ["evaluated", "has_fixed_zone", "is_monotone_cast"]

_OWN = ("date", "timestamp", "timestamp_ntz")
_FIXED = re.compile(r"(UTC|GMT|Z|Etc/UTC|(UTC|GMT)?[+-]\d\d?(:\d\d)?)$")
_WITH_ZONE = {
    ("timestamp", "date"),
    ("timestamp", "timestamp_ntz"),
    ("timestamp_ntz", "timestamp"),
}
_WITHOUT = {("timestamp", "bigint"), ("bigint", "timestamp"), ("int", "timestamp")}
_BEGINNING = frozenset(
    f"org.apache.spark.sql.catalyst.expressions.{kind}"
    for kind in ("Log", "Log10", "Log1p", "Log2", "Logarithm", "Sqrt")
)
"""Functions that rise from somewhere on, and throw nowhere: below, logarithms are NULL and square roots NaN."""
_OF_NAN = _BEGINNING | {
    f"org.apache.spark.sql.catalyst.expressions.{kind}"
    for kind in ("Exp", "Expm1", "Pow", "Rint", "Signum", "ToDegrees", "ToRadians")
}
"""Functions that are NaN of NaN (``pow(NaN, 0)`` is 1, but it is no step)."""


def is_monotone_cast(node: Cast, source: str | None) -> bool:
    """Does a cast keep the order, where the engine is to evaluate it?

    Between times with and without a zone only where clocks are never set back; but a later day never begins earlier.
    Those to short whole numbers, and of decimals to any, wrap around outside of ANSI mode.

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
    if (source, target) in _WITHOUT or (given.is_floating and sql_type(target).kind in ("int", "bigint", "decimal")):
        return True
    return node.ansi and sql_type(target).is_integral and (given.is_floating or given.kind == "decimal")


def has_fixed_zone(zone: str | None) -> bool:
    """Is this a time zone whose clocks are never set back?

    >>> has_fixed_zone("+01:00"), has_fixed_zone("Europe/Berlin"), has_fixed_zone(None)
    (True, False, False)
    """
    return _FIXED.match(zone or "") is not None


def evaluated(
    node: Call | Cast,
    child: Predicate,
    source: str | None,
    *,
    falls: bool = False,
    clocks: LocalTimeFunction | None = None,
) -> Callable[[Interval], Interval]:
    """What the engine makes of a range; raises Incomparable where it does not say.

    ``clocks`` are those by which a function rises that does not rise with its operand.
    """
    target = node.type or ""
    return lambda spans: _range_of(node, child, spans, source or "", target, falls, clocks)


def _range_of(
    node: Call | Cast,
    child: Predicate,
    spans: Interval,
    source: str,
    target: str,
    falls: bool,
    clocks: LocalTimeFunction | None,
) -> Interval:
    implementation = node.implementation if isinstance(node, Call) and target == "double" else None
    keys, empty = spans.keys(), np.asarray(spans.low > spans.high)
    unknown, nan = np.array(keys.unknown), np.zeros_like(empty)
    if spans.nan is not None and implementation in _OF_NAN:
        nan |= spans.nan
    elif spans.nan is not None:
        unknown |= spans.nan
    open_low, open_high = (
        (spans.low == FIRST, spans.high == LAST)
        if spans.kind != "real"
        else (np.zeros_like(empty), np.zeros_like(empty))
    )
    known_low, known_high = ~(empty | unknown | open_low), ~(empty | unknown | open_high)
    if clocks is None:
        at_low, at_high = (
            (np.flatnonzero(known), end[known]) for known, end in ((known_low, spans.low), (known_high, spans.high))
        )
    else:
        at_low, at_high = clocks.points(spans.low, spans.high, known_low, known_high)
    distinct, places = np.unique(np.concatenate([at_low[1], at_high[1]]), return_inverse=True)
    found = values_of(node, child, CandidateValues(_array(distinct, spans, source))) if len(distinct) else None
    if found is None and len(distinct):
        raise IncomparableError(f"{node} was not evaluated")
    kind, scale, values, valid = _plain(found, target)
    low, high = _ends(kind, len(empty))
    below = np.zeros_like(empty)
    is_nan = ~valid if found is None else ~valid & np.asarray(found.is_valid())
    for side, furthest, (files, _), at in (
        (low, np.minimum, at_low, places[: len(at_low[0])]),
        (high, np.maximum, at_high, places[len(at_low[0]) :]),
    ):
        if implementation in _BEGINNING and not falls:
            nan[files[is_nan[at]]] = True
            below[files[~valid[at]]] = side is high  # known for the upper bound last
        else:
            unknown[files[~valid[at]]] = True
        files, at = files[valid[at]], at[valid[at]]
        side[files] = values[at]
        if clocks is not None:  # several a file
            furthest.at(side, files, values[at])
    if falls:
        low, high = _turned(low, high, kind, known_low, known_high)
    empty |= below
    unknown |= ~empty & (low > high)
    low[unknown], high[unknown] = (end[unknown] for end in _ends(kind, len(empty)))
    if (gone := empty & ~unknown).any():
        low[gone], high[gone] = (math.inf, -math.inf) if kind == "real" else (LAST, FIRST)
    return Interval(kind, low, high, scale, nan=unknown | nan if kind == "real" else None)


def _turned(low: Any, high: Any, kind: str, known_low: Any, known_high: Any) -> tuple[Any, Any]:
    """The bounds of a falling function, whose value at the upper bound is the least."""
    least, most = _ends(kind, len(low))
    return np.where(known_high, high, least), np.where(known_low, low, most)


def _ends(kind: str, length: int) -> tuple[Any, Any]:
    """The bounds where nothing is known."""
    if kind == "real":
        return np.full(length, -math.inf), np.full(length, math.inf)
    return np.full(length, FIRST, dtype=np.int64), np.full(length, LAST, dtype=np.int64)


def _array(ends: Any, spans: Interval, source: str) -> pa.Array:
    """Bounds as physical values of the operand's type."""
    if spans.kind == "real":
        return pa.array(ends, pa.float64())
    kind = sql_type(source)
    if not kind.is_decimal and spans.scale == 0:
        return pa.array(ends, pa.int64())
    if not kind.is_decimal or spans.scale != kind.scale:
        raise IncomparableError(f"the bounds of a {source} are rounded")
    words = np.stack([ends, ends >> 63], axis=1).astype("<i8")  # sign-extended to 128 bits
    return pa.Array.from_buffers(kind.arrow, len(ends), [None, pa.py_buffer(words.tobytes())])


def _plain(found: pa.Array | None, target: str) -> tuple[str, int, Any, Any]:
    """The kind and scale of a range of the results, their keys, and which of them are values."""
    result = sql_type(target)
    if result.is_floating:
        array = pa.nulls(0, pa.float64()) if found is None else found.cast(pa.float64())
        values = np.asarray(array.fill_null(math.nan))
        return "real", 0, values, ~np.isnan(values)
    if result.is_decimal:
        array = pa.nulls(0, pa.decimal128(38, 0)) if found is None else found
        whole = [None if v is None else int(v.scaleb(result.scale)) for v in array.to_pylist()]
        fits = [v is not None and FIRST < v < LAST for v in whole]
        return (
            "number",
            result.scale,
            np.array([v if ok else 0 for v, ok in zip(whole, fits, strict=True)], dtype=np.int64),
            np.array(fits, dtype=bool),
        )
    if not result.is_integral and target not in _OWN:
        raise IncomparableError(f"results of type {target} have no bounds here")
    array = pa.nulls(0, pa.int64()) if found is None else found
    kind = target if target in _OWN else "number"
    return kind, 0, np.asarray(pc.fill_null(array, 0)), np.asarray(array.is_valid())
