"""Transfer functions: the intervals of a call from those of its operands, by Catalyst class.

Results of +, -, * and / lie between corners, those of periodic functions within a period; functions that are declared
to be monotone are evaluated at the ends (:mod:`geoskip.bounds.monotone`). A unit (a file, a segment, a box) is unknown
if an operand may be outside of a function's domain, since its rows may overflow, throw or become NULL. Functions of
local time are not monotone where clocks are set back; :mod:`geoskip.bounds.time_zones` computes their least and
greatest results. Of casts and functions of strings only those to dates and times have one
(:mod:`geoskip.bounds.casts`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from geoskip.bounds.arithmetic import (
    absolute,
    affine,
    clamp,
    constant,
    corners,
    curve,
    is_operand,
    of_kind,
    square,
    square_root,
    wave,
)
from geoskip.bounds.casts import integer_texts, numpy_cast, parse_texts
from geoskip.bounds.interval import Interval
from geoskip.bounds.monotone import call_at_ends, evaluate_ends, is_monotone_cast
from geoskip.bounds.sort_keys import physical
from geoskip.bounds.time_zones import (
    NO_OFFSET,
    Parts,
    cast_to_local_time,
    equal_periods,
    in_month,
    in_week_year,
    in_year,
    local,
    local_times,
    periodic,
    remainder,
)
from geoskip.evaluation.values import LAST
from geoskip.predicates import Call, Cast, Literal, Predicate
from geoskip.registry import current
from geoskip.registry.functions import catalyst_class
from geoskip.types import DAY, SqlType, sql_type

_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


@dataclass(frozen=True)
class Transfer:
    """A function from the intervals of operands to the intervals of an expression.

    Attributes
    ----------
    operands : tuple of Predicate
        The operands that are not constant; deeper descendants for formulas that are bounded as a whole.
    take : Callable
        From the operands' intervals to those of the results; raises IncomparableError for unsupported operands.
    is_constant : bool
        True if it depends on a literal of the query, so that caching results for other queries is not useful.
    is_partial : bool
        True if the function may return NULL for a value.
    is_total : bool
        True if it returns NULL only for NULL, even if the interval is unknown.
    takes_null : bool
        True if it may return a value for NULL.
    asks_engine : bool
        True if Spark evaluates it, which is possible only while a query is planned.
    of_texts : bool
        True if it takes bounds of strings instead of intervals.
    """

    operands: tuple[Predicate, ...]
    take: Callable[..., Interval]
    is_constant: bool = False
    is_partial: bool = False
    is_total: bool = False
    takes_null: bool = False
    asks_engine: bool = False
    of_texts: bool = False


Rule = Callable[[Call], Transfer | None]


def transfer_of(node: Predicate) -> Transfer | None:
    """Return the transfer function of a call or cast, or None.

    >>> from geoskip.predicates import Column
    >>> x = Column("x", "double")
    >>> [transfer_of(Call(*f, type="double")) is None for f in (("-", (x,), "UnaryMinus"), ("f", (x,)))]
    [False, True]
    """
    if isinstance(node, Cast):
        return _cast(node)
    if not isinstance(node, Call):
        return None
    rule = TRANSFER.get(catalyst_class(node))
    return (rule(node) if rule is not None else None) or _monotone_call(node)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _arithmetic(sign: str) -> Rule:
    """Return the rule for a sum, difference, product or quotient; one operand may be a literal."""

    def rule(node: Call) -> Transfer | None:
        if len(node.args) != 2:
            return None
        kind = sql_type(node.type)
        if sign == "+" and (found := _wave(node)) is not None:
            return found
        if sign == "*" and node.args[0] == node.args[1] and not isinstance(node.args[0], Literal):
            return _square(node, kind)
        return _corners(sign, kind, *node.args) if sign != "/" or kind.is_floating else None

    return rule


def _corners(sign: str, kind: SqlType, left: Predicate, right: Predicate) -> Transfer | None:
    """Return the transfer by corners; None for unsupported types and for literals that are not finite."""
    if not (kind.is_floating or kind.is_exact):
        return None
    sides = (left, right)
    operands = tuple(side for side in sides if not isinstance(side, Literal))
    if not operands or not all(is_operand(side, kind) for side in sides):
        return None
    types = [sql_type(side.type) if kind.is_decimal else kind for side in sides]
    values = [(physical(s.value), of) if isinstance(s, Literal) else None for s, of in zip(sides, types, strict=True)]

    def take(*intervals: Interval) -> Interval:
        given = iter(intervals)
        return corners(sign, kind, *(next(given) if value is None else constant(*value) for value in values))

    return Transfer(operands, take, is_constant=len(operands) == 1, is_total=kind.is_floating and sign != "/")


def _square(node: Call, kind: SqlType) -> Transfer | None:
    """Return the transfer of a value times itself, which is never negative."""
    found = _corners("*", kind, *node.args)
    return found and replace(found, take=lambda one, _: corners("*", kind, *[absolute(kind, one)] * 2))


def _negation(node: Call) -> Transfer | None:
    kind = sql_type(node.type or node.args[0].type)
    found = _corners("-", kind, Literal(0, kind.name), node.args[0])
    return None if found is None else replace(found, is_constant=False)


def _absolute(node: Call) -> Transfer | None:
    kind = sql_type(node.type or node.args[0].type)
    if not (kind.is_floating or kind.is_exact):
        return None
    return Transfer(node.args, lambda interval: absolute(kind, interval), is_total=kind.is_floating)


def _power(node: Call) -> Transfer | None:
    """Return the transfer of an even power, which is monotone in the absolute value."""
    match node.args:
        case (child, Literal(float() as power)) if child.type == "double" and power > 0 and power % 2 == 0:
            if power == 2:
                return Transfer((child,), square, is_constant=True, is_total=True)
            take, double = evaluate_ends(node, child, "double"), sql_type("double")
            return Transfer(
                (child,), lambda x: take(absolute(double, x)), is_constant=True, is_partial=True, asks_engine=True
            )
    return None


def _curve(name: str) -> Rule:
    """Return the rule for a function of doubles that NumPy computes nearly as Java does."""

    def rule(node: Call) -> Transfer | None:
        if node.type != "double" or any(isinstance(arg, Literal) for arg in node.args):
            return None
        take = square_root if name == "sqrt" else lambda *intervals: curve(name, *intervals)
        return Transfer(node.args, take, is_total=True)

    return rule


def _clamp(node: Call, *, above: bool) -> Transfer | None:
    """Return the transfer of ``least(x, 1.0D)`` or ``greatest``, which return the constant for NULL."""
    ends = [arg.value for arg in node.args if isinstance(arg, Literal)]
    sides = tuple(arg for arg in node.args if not isinstance(arg, Literal))
    if node.type != "double" or len(sides) != 1 or len(ends) != 1 or not isinstance(ends[0], float):
        return None
    take = partial(clamp, end=ends[0], above=above)
    return Transfer(sides, take, is_constant=True, is_total=True, takes_null=True) if math.isfinite(ends[0]) else None


def _wave(node: Call) -> Transfer | None:
    """Return the transfer of ``a * sin(u) + b * cos(u)`` of doubles, bounded as one function of u."""
    if node.type != "double":
        return None
    for one, other in (node.args, node.args[::-1]):
        sines, cosines = _factors(one), _factors(other)
        for sine, cosine in itertools.product(sines, cosines):
            if catalyst_class(sine) == "Sin" and catalyst_class(cosine) == "Cos" and sine.args == cosine.args:  # type: ignore[attr-defined]
                sines.remove(sine)
                cosines.remove(cosine)
                return _wave_of(sine.args[0], sines, cosines)  # type: ignore[attr-defined]
    return None


def _wave_of(angle: Predicate, sines: list[Predicate], cosines: list[Predicate]) -> Transfer | None:
    double = sql_type("double")
    if not all(is_operand(factor, double) for factor in (*sines, *cosines)):
        return None
    operands = tuple(factor for factor in (*sines, *cosines) if not isinstance(factor, Literal))

    def take(angles: Interval, *intervals: Interval) -> Interval:
        given = iter(intervals)
        both = [
            [constant(f.value, double) if isinstance(f, Literal) else next(given) for f in factors]
            for factors in (sines, cosines)
        ]
        return wave(angles, *both)

    return Transfer((angle, *operands), take, is_constant=True, is_total=True)


def _factors(node: Predicate) -> list[Predicate]:
    if isinstance(node, Call) and node.type == "double" and catalyst_class(node) == "Multiply":
        return [factor for arg in node.args for factor in _factors(arg)]
    return [node]


# --- dates and times --------------------------------------------------------------------------------------------------


def _days(sign: str) -> Rule:
    """Return the rule for a date plus or minus a number of days."""

    def rule(node: Call) -> Transfer | None:
        date, days = node.args
        if isinstance(date, Literal) or date.type not in (None, "date"):
            return None
        kind, whole = sql_type("date"), sql_type("int")
        if not isinstance(days, Literal):
            both = sql_type(days.type).is_integral
            return Transfer(node.args, lambda d, by: corners(sign, kind, of_kind(d, "date"), by)) if both else None
        if isinstance(days.value, bool) or not isinstance(days.value, int):
            return None
        by = constant(days.value, whole)
        return Transfer((date,), lambda d: corners(sign, kind, of_kind(d, "date"), by), is_constant=True)

    return rule


def _days_between(node: Call) -> Transfer | None:
    """Return the transfer of the days from the second date to the first; neither is a literal."""
    kind = sql_type("int")
    if any(isinstance(arg, Literal) or arg.type != "date" for arg in node.args):
        return None
    return Transfer(node.args, lambda end, start: corners("-", kind, of_kind(end, "date"), of_kind(start, "date")))


def _time_between(node: Call) -> Transfer | None:
    """Return the transfer of the local time from the second timestamp to the first, in the call's zone."""
    kind, types, zone = sql_type(node.type), {arg.type for arg in node.args}, node.flags[-1] if node.flags else ""
    if kind.kind != "interval second" or any(isinstance(arg, Literal) for arg in node.args):
        return None
    if types == {"timestamp_ntz"} or (types == {"timestamp"} and zone in NO_OFFSET):
        return Transfer(node.args, lambda end, start: corners("-", kind, end, start))
    if types != {"timestamp"} or not zone:
        return None

    def take(*times: Interval) -> Interval:
        return corners("-", kind, *(local_times(each, zone) for each in times))

    return Transfer(node.args, take, asks_engine=True)


def _of_date(parts: Parts, least: int, most: int) -> Rule:
    """Return the rule for a periodic part of a date, from ``least`` to ``most``."""

    def rule(node: Call) -> Transfer | None:
        if node.args[0].type != "date":
            return None
        return Transfer(node.args[:1], lambda dates: periodic(dates, "date", parts, least, most))

    return rule


def _of_time(length: int, unit: int) -> Rule:
    """Return the rule for a part of the time of day, in local time of the call's zone."""
    parts, most = equal_periods(length, unit=unit), length // unit - 1

    def rule(node: Call) -> Transfer | None:
        if node.args[0].type == "timestamp_ntz":  # independent of the zone
            return Transfer(node.args[:1], lambda times: periodic(times, "timestamp_ntz", parts, 0, most))
        if node.args[0].type != "timestamp" or len(node.flags) != 1:
            return None
        zone, plain = node.flags[0], node.flags[0] in NO_OFFSET

        def take(times: Interval) -> Interval:
            return periodic(times if plain else local_times(times, zone), "timestamp", parts, 0, most)

        return Transfer(node.args[:1], take, asks_engine=not plain)

    return rule


def _instant(unit: int) -> Rule:
    """Return the rule for a whole number of units of so many microseconds since 1970."""

    def rule(node: Call) -> Transfer | None:
        if not sql_type(node.args[0].type).is_integral:
            return None
        return Transfer(node.args, lambda numbers: affine(of_kind(numbers, "number"), unit, kind="timestamp"))

    return rule


def _parsed_text(node: Call) -> Transfer | None:
    """Return the transfer of the time in a text or an integer (20240229), or of its seconds since 1970."""
    match node.args:
        case (text, Literal(str() as form)) if text.type == "string":
            take = parse_texts(form, node.type or "", in_utc=not NO_OFFSET.isdisjoint(node.flags))
            if take is None:
                return None
            if isinstance(text, Cast) and sql_type(text.child.type or text.source).is_integral:
                return Transfer((text.child,), lambda numbers: take(integer_texts(numbers)), is_partial=True)
            return Transfer((text,), take, is_partial=True, of_texts=True)
    return None


def _remainder(node: Call) -> Transfer | None:
    match node.args:
        case (child, Literal(int() as by)) if child.type == node.type and sql_type(child.type).is_integral:
            if not isinstance(by, bool) and 0 < by < LAST:
                signed = catalyst_class(node) == "Remainder"
                return Transfer((child,), lambda numbers: remainder(numbers, by, signed=signed), is_constant=True)
    return None


# --- declared functions -----------------------------------------------------------------------------------------------


def _monotone_call(node: Call) -> Transfer | None:
    """Return the transfer of a monotone function with one operand that is not a literal."""
    operands = tuple(arg for arg in node.args if not isinstance(arg, Literal))
    if len(operands) != 1:
        return None
    (child,) = operands
    if len(node.args) == 1 and (found := call_at_ends(node)) is not None:
        return Transfer(operands, found[0], is_partial=True, takes_null=not found[1])
    declared = current().properties_of(node)
    if declared is None or declared.monotone is None or declared.deterministic is False or child.type is None:
        return None
    direction = declared.monotone(node) if callable(declared.monotone) else declared.monotone
    clocks = local(node, child.type) if direction is None and child.type == "timestamp" else None
    if direction is None and clocks is None:
        return None
    return Transfer(
        operands,
        evaluate_ends(node, child, child.type, falls=direction == "decreasing", clocks=clocks),
        is_constant=any(isinstance(a, Literal) and not isinstance(a.value, str) for a in node.args),  # not a unit
        is_partial=True,
        takes_null=not declared.null_in_null_out,
        asks_engine=True,
    )


# --- casts ------------------------------------------------------------------------------------------------------------


def _cast(node: Cast) -> Transfer | None:
    source, target = node.child.type or node.source, node.type
    is_text = source == "string"
    if (take := numpy_cast(source, target)) is not None:
        return Transfer((node.child,), take, is_partial=is_text, of_texts=is_text)
    monotone = is_monotone_cast(node, source)
    clocks = None if monotone else local(node, source)
    if not monotone and clocks is None:
        return None
    take = evaluate_ends(node, node.child, source, clocks=clocks)
    if (source, target) == ("timestamp", "timestamp_ntz") and node.zone is not None:
        take = cast_to_local_time(take, node.zone)
    return Transfer((node.child,), take, asks_engine=True)


# --- the table --------------------------------------------------------------------------------------------------------

TRANSFER: dict[str, Rule] = {
    # numbers
    "Add": _arithmetic("+"),
    "Subtract": _arithmetic("-"),
    "Multiply": _arithmetic("*"),
    "Divide": _arithmetic("/"),
    "UnaryMinus": _negation,
    "Abs": _absolute,
    "Least": partial(_clamp, above=True),
    "Greatest": partial(_clamp, above=False),
    "Pow": _power,
    "Remainder": _remainder,
    "Pmod": _remainder,
    # curves of doubles
    "Sqrt": _curve("sqrt"),
    "Sin": _curve("sin"),
    "Cos": _curve("cos"),
    "Asin": _curve("asin"),
    "Acos": _curve("acos"),
    "Atan2": _curve("atan2"),
    "ToRadians": _curve("radians"),
    # dates and times
    "DateAdd": _days("+"),
    "DateSub": _days("-"),
    "DateDiff": _days_between,
    "SubtractTimestamps": _time_between,
    "SecondsToTimestamp": _instant(_SECOND),
    "MillisToTimestamp": _instant(1_000),
    "MicrosToTimestamp": _instant(1),
    "GetTimestamp": _parsed_text,
    "UnixTimestamp": _parsed_text,
    "ToUnixTimestamp": _parsed_text,
    "Quarter": _of_date(in_year("M", 3), 1, 4),
    "Month": _of_date(in_year("M", 1), 1, 12),
    "DayOfYear": _of_date(in_year("D", 1), 1, 366),
    "DayOfMonth": _of_date(in_month, 1, 31),
    "WeekOfYear": _of_date(in_week_year, 1, 53),
    "DayOfWeek": _of_date(equal_periods(7, shift=4, first=1), 1, 7),  # Sunday is 1, and 1970 began on a Thursday
    "WeekDay": _of_date(equal_periods(7, shift=3), 0, 6),  # Monday is 0
    "Hour": _of_time(DAY, _HOUR),
    "Minute": _of_time(_HOUR, _MINUTE),
    "Second": _of_time(_MINUTE, _SECOND),
}
"""Rules by Catalyst class; other functions have a transfer function if they are declared to be monotone."""
