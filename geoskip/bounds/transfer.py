"""Monotone steps: what a cast, a sum or a negation makes of the ranges of its operand.

A comparison of ``CAST(n AS double) + 1`` is decided by the bounds of n after the same steps, taken in the arithmetic
that Spark takes them in. A step is used only where it is monotone for all values between the bounds, so that the
bounds of the results are the results of the bounds. A file with a bound that leaves the result's type is unknown: its
rows overflow, throw or become NULL.

What numpy does not compute just as Spark does, Spark evaluates itself for the bounds, where it is declared to be
monotone (:mod:`geoskip.bounds.engine_evaluated`).

Where clocks are set back, what reads them does not rise with the time; what it makes of a range is found all the same
(:mod:`geoskip.bounds.time_zones`). Not steps: casts from or to strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from geoskip.bounds.arithmetic import absolute_numbers, absolute_reals, real_product, real_sum, together
from geoskip.bounds.declared_functions import carried
from geoskip.bounds.engine_evaluated import evaluated, is_monotone_cast
from geoskip.bounds.interval import Interval
from geoskip.bounds.periodic import periodic, reads_clocks
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError, physical
from geoskip.bounds.time_zones import local, or_shown
from geoskip.predicates import Call, Cast, Column, Literal, Predicate
from geoskip.registry import Function, current
from geoskip.types import SqlType, sql_type

__all__ = ["TransferStep", "apply", "steps_over"]

_ALL = sql_type("bigint").values
_DATES = sql_type("int").values
_DAY = 86_400_000_000


@dataclass(frozen=True)
class TransferStep:
    """One step from a range to the range of the results; ``constant`` where it holds a literal of the query."""

    text: str
    take: Callable[[Interval], Interval]
    constant: bool = False
    key: str = ""
    """What tells it from another step of the same text."""
    partial: bool = False
    """May it make NULL of a value? So may a user's function."""
    of_null: bool = False
    """May it make a value of NULL?"""
    asks: bool = False
    """Does the engine take it? Then only while a decision is made."""


def steps_over(node: Predicate, reads: Callable[[Predicate], bool]) -> tuple[TransferStep, ...] | None:
    """The steps from the indexed expression to this one, or None where they are not all known to be monotone."""
    if reads(node):
        return ()
    match node:
        case Cast(child, target):
            source = child.type or node.source
            step = _cast(source, target)
            if step is None and (is_monotone_cast(node, source) or local(node, source) is not None):
                clocks = None if is_monotone_cast(node, source) else local(node, source)
                take = evaluated(node, child, source, clocks=clocks)
                key = f"CAST({source} AS {target}) in {node.zone}, ANSI {node.ansi}, tries {node.tries}"
                told = (source, target) == ("timestamp", "timestamp_ntz") and node.zone is not None
                take = or_shown(take, node.zone or "") if told else take
                step = TransferStep(f"CAST({{}} AS {target})", take, key=key, asks=True)
        case Call(_, (child,)) if any(f.is_called(node) for f in _NEGATIONS):
            step = _negation(node.type or child.type)
        case Call(_, (child, Literal() as literal)) if any(f.is_called(node) for f in _SUMS):
            step = _sum(node, 1, child, literal)
        case Call(_, (Literal() as literal, child)) if any(f.is_called(node) for f in _SUMS):
            step = _sum(node, -1 if node.name == "-" else 1, child, literal)
        case Call(_, (child, Literal() as literal)) if any(f.is_called(node) for f in _PRODUCTS):
            step = _product(node, child, literal)
        case Call("*", (Literal() as literal, child)) if any(f.is_called(node) for f in _PRODUCTS):
            step = _product(node, child, literal)
        case Call(_, (child,)) if any(f.is_called(node) for f in _ABSOLUTES):
            step = _absolute(node.type or child.type)
        case Call(_, (child, Literal(float() as power))) if power > 0 and power % 2 == 0 and _POWER.is_called(node):
            step = _even_power(node, child)
        case Call(_, (left, right)) if not (isinstance(left, Literal) or isinstance(right, Literal)):
            step = _together(node, left, right, reads)
            return None if step is None else (step,)
        case Call(_, (child, Literal() as literal)) if any(f.is_called(node) for f in _DAYS):
            step = _days(node.name, literal)
        case Call(_, (first, *rest)) if (anew := periodic(node, first.type)) is not None:
            child, take = anew
            text = _around(node, child)
            step = TransferStep(text, take, constant=bool(rest), key=f"{text} {node.flags}", asks=reads_clocks(node))
        case Call(_, (child,)) if (found := carried(node, child.type)) is not None:
            text = _around(node, child)
            step = TransferStep(text, found[0], key=f"{node.implementation} {text}", partial=True, of_null=not found[1])
        case Call(_, args) if len(found_args := [a for a in args if not isinstance(a, Literal)]) == 1:
            (child,) = found_args
            step = _by_the_engine(node, child)
        case _:
            return None
    below = steps_over(child, reads) if step is not None else None
    return None if below is None or step is None else (*below, step)


def apply(steps: tuple[TransferStep, ...], spans: Interval) -> Interval:
    """The ranges after all steps; raises Incomparable where a step does not fit the range."""
    for step in steps:
        spans = step.take(spans)
    return spans


def _expressions(**names: str) -> tuple[Function, ...]:
    prefix = "org.apache.spark.sql.catalyst.expressions."
    return tuple(Function(name, classes=(prefix + kind,)) for kind, name in names.items())


_SUMS = _expressions(Add="+", Subtract="-")
_NEGATIONS = _expressions(UnaryMinus="negative")
_DAYS = _expressions(DateAdd="date_add", DateSub="date_sub")
_PRODUCTS = _expressions(Multiply="*", Divide="/")
_ABSOLUTES = _expressions(Abs="abs")
_JOINED = _expressions(Add="+", Subtract="-", Multiply="*")
(_POWER,) = _expressions(Pow="pow")


def _around(node: Call, child: Predicate) -> str:
    """The text of a call with ``{}`` for an operand: the name of a column may be part of the function's.

    >>> d = Column("d")
    >>> _around(Call("round", (d, Literal("{d}"))), d)
    "round({}, '{{d}}')"
    """
    hole = Column("\0")
    shown = str(replace(node, args=tuple(hole if arg is child else arg for arg in node.args)))
    return shown.replace("{", "{{").replace("}", "}}").replace("\0", "{}")


def _cast(source: str | None, target: str) -> TransferStep | None:
    text = f"CAST({{}} AS {target})"
    narrow, wide = sql_type(source), sql_type(target)
    if source == target:
        return TransferStep(text, lambda spans: spans)
    if (narrow.is_integral or source == "boolean") and wide.is_integral:
        return TransferStep(text, lambda spans: _affine(_number(spans), limits=wide.values))
    if narrow.is_integral:
        if wide.is_floating:
            return TransferStep(text, lambda spans: _of(spans, "number").as_real(target))
        if wide.is_decimal:
            return TransferStep(text, lambda spans: _within(spans, wide))
    if narrow.is_decimal:
        if wide.is_decimal:
            return TransferStep(text, lambda spans: _within(_of(spans, "number").coarser(wide.scale), wide))
        if target == "double":
            return TransferStep(text, lambda spans: _of(spans, "number").as_real(target))
    if narrow.is_floating and wide.is_floating:
        return TransferStep(text, lambda spans: _rounded(spans, target))
    match source, target:
        case ("date", "timestamp_ntz"):
            return TransferStep(text, lambda spans: _affine(_of(spans, "date"), _DAY, kind="timestamp_ntz"))
        case ("timestamp_ntz", "date"):
            return TransferStep(text, lambda spans: _whole_days(_of(spans, "timestamp_ntz")))
    return None


def _negation(name: str | None) -> TransferStep | None:
    kind = sql_type(name)
    if kind.is_floating:
        return TransferStep("-{}", lambda spans: real_sum(_of(spans, "real"), -1, 0.0, kind.name))
    if not kind.is_exact:
        return None
    return TransferStep("-{}", lambda spans: _affine(_of(spans, "number"), -1, limits=kind.values or _ALL))


def _sum(node: Call, sign: int, child: Predicate, literal: Literal) -> TransferStep | None:
    """``sign * child`` and a literal, where both are of one type and the result's arithmetic is known."""
    value, kind = physical(literal.value), sql_type(node.type)
    text = _around(node, child)
    if isinstance(value, bool) or value is None:
        return None
    if node.name == "-" and sign == 1:
        value = -value
    if kind.is_floating:
        if not isinstance(value, int | float) or not math.isfinite(value) or child.type != node.type:
            return None  # with an infinity, NaN would appear between the bounds
        return TransferStep(
            text, lambda spans: real_sum(_of(spans, "real"), sign, float(value), kind.name), constant=True
        )
    if kind.is_integral and isinstance(value, int) and child.type == node.type:
        return TransferStep(
            text, lambda spans: _affine(_of(spans, "number"), sign, value, limits=kind.values), constant=True
        )
    types = (sql_type(child.type), sql_type(literal.type), kind)
    if not all(of.is_decimal for of in types):
        return None
    (p, s), (q, t), (r, u) = ((of.precision, of.scale) for of in types)
    if u < max(s, t) or r - u < max(p - s, q - t) + 1:  # the result may be rounded, or overflow
        return None
    return TransferStep(text, lambda spans: _decimal_sum(_of(spans, "number"), sign, value, t), constant=True)


def _product(node: Call, child: Predicate, literal: Literal) -> TransferStep | None:
    """A value times a literal, or divided by one that is a double: monotone, rounded or not."""
    value, kind = physical(literal.value), sql_type(node.type)
    if isinstance(value, bool) or value is None or not value or child.type is None:
        return None
    text = _around(node, child)
    if kind.is_floating:
        if not isinstance(value, float) or not math.isfinite(value) or child.type != node.type:
            return None  # infinity times zero is NaN
        width, divides = kind.name, node.name == "/"
        return TransferStep(
            text,
            lambda spans: real_product(_of(spans, "real"), float(value), width, divides=divides),
            constant=True,
        )
    if node.name == "*" and kind.is_integral and isinstance(value, int) and child.type == node.type:
        return TransferStep(text, lambda spans: _affine(_of(spans, "number"), value, limits=kind.values), constant=True)
    return _by_the_engine(node, child) if kind.is_decimal else None


def _absolute(name: str | None) -> TransferStep | None:
    """No step, for it falls before it rises: but the range of the results follows from that of the operand."""
    kind = sql_type(name)
    if kind.is_floating:
        return TransferStep("abs({})", lambda spans: absolute_reals(_of(spans, "real")))
    if not kind.is_exact:
        return None
    return TransferStep("abs({})", lambda spans: absolute_numbers(_of(spans, "number"), (kind.values or _ALL)[0]))


def _even_power(node: Call, child: Predicate) -> TransferStep | None:
    """Of the absolute value, with which it rises; Java's pow makes the same of that."""
    absolute = _absolute(child.type)
    if absolute is None or child.type != "double":
        return None
    take, text = evaluated(node, child, "double"), _around(node, child)
    return TransferStep(text, lambda spans: take(absolute.take(spans)), constant=True, partial=True, asks=True)


def _together(node: Call, left: Predicate, right: Predicate, reads: Callable[[Predicate], bool]) -> TransferStep | None:
    """A sum, difference or product of two expressions over the indexed one, as one step from that."""
    limits = sql_type(node.type).values
    if not any(f.is_called(node) for f in _JOINED) or left.type != node.type or right.type != node.type:
        return None
    if not limits and node.type != "double":
        return None
    one = steps_over(left, reads)
    other = one if left == right else steps_over(right, reads)
    if one is None or other is None:
        return None
    steps, squared = (*one, *other), left == right and node.name == "*"
    absolute = _absolute(node.type) if squared else None  # a square is not below 0

    def take(spans: Interval) -> Interval:
        first = apply(one if absolute is None else (*one, absolute), spans)
        return together(node.name, node.type or "", limits, first, first if left == right else apply(other, spans))

    text = f"({_shown(one)} {node.name} {_shown(other)})"
    return TransferStep(
        text,
        take,
        constant=any(step.constant for step in steps),
        key=f"{text} {node.type} {[step.key for step in steps]}",
        partial=any(step.partial for step in steps),
        of_null=any(step.of_null for step in steps),
        asks=any(step.asks for step in steps),
    )


def _shown(steps: tuple[TransferStep, ...]) -> str:
    """The text of several steps, with ``{0}`` for what they begin with."""
    text = "\0"
    for step in steps:
        text = step.text.format(text)
    return text.replace("{", "{{").replace("}", "}}").replace("\0", "{0}")


def _by_the_engine(node: Call, child: Predicate) -> TransferStep | None:
    """A function that is declared to be monotone, evaluated by the engine for the bounds."""
    said = current().properties_of(node)
    if said is None or said.monotone is None or said.deterministic is False:
        return None
    direction = said.monotone(node) if callable(said.monotone) else said.monotone
    source = child.type
    clocks = local(node, source) if direction is None and source == "timestamp" else None
    if (direction is None and clocks is None) or source is None:
        return None
    text = _around(node, child)
    take = evaluated(node, child, source, falls=direction == "decreasing", clocks=clocks)
    literals = [a.value for a in node.args if isinstance(a, Literal)]
    return TransferStep(
        text,
        take,
        constant=not all(isinstance(value, str) for value in literals),  # but for the names of units
        key=f"{node.implementation} {node.flags} {node.type} {text}",
        partial=True,
        of_null=not said.null_in_null_out,
        asks=True,
    )


def _days(name: str, literal: Literal) -> TransferStep | None:
    value = literal.value
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    days = -value if name.lower() == "date_sub" else value
    text = f"{name}({{}}, {literal})"
    return TransferStep(text, lambda spans: _affine(_of(spans, "date"), 1, days, limits=_DATES), constant=True)


def _of(spans: Interval, kind: str) -> Interval:
    if spans.kind != kind:
        raise IncomparableError(f"expected {kind}, got {spans.kind}")
    return spans


def _number(spans: Interval) -> Interval:
    return Interval("number", spans.low, spans.high) if spans.kind == "boolean" else _of(spans, "number")


def _affine(
    spans: Interval, factor: int = 1, plus: int = 0, *, limits: range = _ALL, kind: str = "", digits: int = 0
) -> Interval:
    """``factor * x + plus``, exact; unknown where a bound of the result leaves the limits, which are of 64 bits."""
    if not (-LAST <= factor <= LAST and -LAST <= plus <= LAST):
        raise IncomparableError("a constant of more than 64 bits")
    ends = sorted(Fraction(limit - plus, factor) for limit in (limits[0], limits[-1]))
    least, most = max(math.ceil(ends[0]), FIRST), min(math.floor(ends[1]), LAST)
    if least > most:
        raise IncomparableError("no value stays within the type")
    fits = (spans.low >= least) & (spans.high <= most)
    low, high = (end * np.int64(factor) + np.int64(plus) for end in (spans.low, spans.high))  # may wrap: then not used
    if factor < 0:
        low, high = high, low
    low, high = np.where(fits, low, FIRST), np.where(fits, high, LAST)
    empty = spans.low > spans.high
    low[empty], high[empty] = LAST, FIRST
    return Interval(kind or spans.kind, low, high, spans.scale + digits)


def _within(spans: Interval, decimal: SqlType) -> Interval:
    """The same numbers, unknown where they need more digits before the point than the decimal type has."""
    most = math.floor((10**decimal.precision - 1) * Fraction(10) ** (spans.scale - decimal.scale))
    limits = range(max(-most, FIRST), min(most, LAST) + 1)
    found = _affine(_of(spans, "number"), limits=limits)
    if spans.wide is None:
        return found
    return replace(found, wide=spans.wide.where((spans.low >= limits[0]) & (spans.high <= limits[-1])))


def _decimal_sum(spans: Interval, sign: int, value: Any, scale: int) -> Interval:
    if spans.scale < scale:
        spans = _affine(spans, 10 ** (scale - spans.scale), digits=scale - spans.scale)
    plus = Fraction(value) * Fraction(10) ** spans.scale
    if plus.denominator != 1:
        raise IncomparableError(f"{value} has more digits than its type")
    return _affine(spans, sign, plus.numerator)


def _whole_days(spans: Interval) -> Interval:
    unknown, empty = spans.keys().unknown, spans.low > spans.high
    low, high = (np.where(unknown | empty, end, end // _DAY) for end in (spans.low, spans.high))
    return Interval("date", low, high)


def _rounded(spans: Interval, target: str) -> Interval:
    if target == "double":
        return _of(spans, "real")
    with np.errstate(over="ignore"):
        low, high = (end.astype(np.float32).astype(np.float64) for end in (_of(spans, "real").low, spans.high))
    return Interval("real", low, high, nan=spans.nan)
