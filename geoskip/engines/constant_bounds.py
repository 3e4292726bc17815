"""Translate comparisons with an engine's constants to Spark's, without losing rows.

An engine may not compare with a literal exactly as written: Arrow rounds ``0.1`` to 32 bits to compare it with floats,
polars truncates a time to the milliseconds of its column. The value that the engine uses lies in an interval around a
:class:`Constant`; a comparison is translated with the end of the interval that keeps more rows. Column values are those
that Spark reads: exact numbers, floats, days, and microseconds, to which nanoseconds are truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from geoskip.bounds.sort_keys import nearest_real
from geoskip.predicates import FALSE, TRUE, And, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate
from geoskip.types import DAY, SqlType, sql_type

_EXACT = 2**53
"""Integers up to here are exact as 64-bit floats."""
_LAST_NANOSECOND = (2**63 - 1) // 1000
"""The microsecond of the last time in 64-bit nanoseconds, in 2262."""
OF_NANOSECONDS = (-2_208_988_800_000_000, _LAST_NANOSECOND)
"""Times since 1900 in 64-bit nanoseconds. Others of INT96 wrap around in Arrow, and become the last one in polars."""
OF_INT96 = (0, 2**63 - 1)
"""Times of INT96 that Arrow reads as they are in microseconds: others, if it wrote them itself, wrap around."""
_DIGITS = Context(prec=76)
NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The comparison that is TRUE where the other one is FALSE, except for NaN in IEEE's order."""


@dataclass(frozen=True)
class Engine:
    """Differences of an engine's comparisons from Spark's.

    Attributes
    ----------
    ieee
        True if NaN is unequal to everything, and neither less nor greater (IEEE 754); False for Spark's order.
    units
        The coarsest unit, in microseconds, to which a literal may be truncated when it is compared with a column of
        times.
    finer
        True if columns of times may hold nanoseconds, which Spark truncates.
    exact_times
        The first and the last microsecond between which every time is read as it is; None if all times are.
    narrows
        True if a double may be rounded to 32 bits when it is compared with a column of doubles, as for DuckDB's files
        with floats in such a column.
    orders_texts
        True if strings are certain to be compared by their bytes, and not by their position in an enumeration.
    """

    ieee: bool
    units: int = 1
    finer: bool = True
    exact_times: tuple[int, int] | None = None
    narrows: bool = False
    orders_texts: bool = True


@dataclass(frozen=True)
class Constant:
    """A literal of an engine.

    ``kind`` is ``null``, ``boolean``, ``integer``, ``decimal``, ``float``, ``text``, ``binary``, ``date`` (days since
    1970) or ``time`` (microseconds since 1970, in UTC for times with a zone; fractional for nanoseconds).
    ``value`` is exact: a Fraction for whole numbers, decimals, dates and times, a float for floats.
    ``error`` is the most by which the engine's float or time may differ from ``value``.
    """

    kind: str
    value: Any = None
    error: float = 0

    @classmethod
    def number(cls, kind: str, value: int | Decimal | Fraction) -> Constant:
        """Create a whole number, a decimal, a date or a time."""
        return cls(kind, Fraction(value))

    def __str__(self) -> str:
        return str(self.value) if self.kind == "integer" else f"a {self.kind}"

    @property
    def ends(self) -> list[Any]:
        """The least and the greatest value that it may have."""
        return [self.value - self.error, self.value + self.error] if self.error else [self.value]

    @property
    def is_nan(self) -> bool:
        """Test whether the constant is NaN."""
        return isinstance(self.value, float) and math.isnan(self.value)


def comparison(op: str, column: Column, constant: Constant, engine: Engine) -> tuple[Predicate, Predicate] | str:
    """Compare a column with a constant that is not null.

    Parameters
    ----------
    op
        One of ``= != < <= > >=``.
    column, constant
        The operands, in this order.
    engine
        How the engine compares.

    Returns
    -------
    tuple or str
        The predicate that Spark finds TRUE where the engine's comparison is TRUE, and the one for where it is FALSE; or
        the reason why the comparison cannot be used.

    >>> comparison("!=", Column("x", "double"), Constant("float", math.nan), Engine(ieee=True))
    (x IS NOT NULL, False)
    >>> comparison(">", Column("d", "decimal(10,2)"), Constant.number("decimal", Decimal("1.505")), Engine(ieee=True))
    (d > 1.50, d <= 1.50)
    """
    kind = sql_type(column.type)
    unused = f"{column} {op} {constant} is not used: {column} is {column.type}"
    whole = constant.kind == "integer" and abs(constant.value) <= _EXACT
    if kind.is_floating and (constant.kind == "float" or whole):
        return _float(op, column, constant, engine)
    if (kind.kind, constant.kind) in (("string", "text"), ("binary", "binary")):
        if op in ("=", "!=") or kind.kind == "binary" or engine.orders_texts:
            literal = Literal(constant.value, kind.kind)
            return compared(op, column, literal), compared(NEGATED[op], column, literal)
        return f"{unused} or an enumeration, which has another order"
    interval = _interval(kind, constant, engine)
    if interval is None:
        return unused
    floored = engine.finer and kind.kind in ("timestamp", "timestamp_ntz")
    true, false = (_on_grid(each, column, kind, interval, floored=floored) for each in (op, NEGATED[op]))
    return true, false


def outside(column: Column, times: tuple[int, int]) -> Predicate:
    """Condition for times before the first or after the last of two microseconds."""
    first, last = (Literal(time, column.type) for time in times)
    return Or((Comparison("<", column, first), Comparison(">", column, last)))


def _interval(kind: SqlType, constant: Constant, engine: Engine) -> tuple[Fraction, Fraction] | None:
    """Least and greatest number that the engine may compare with; None if these are unknown."""
    value = constant.value
    match constant.kind:
        case "integer" if kind.is_decimal and abs(value) >= _EXACT:  # it may be compared as a float
            return None
        case "integer" | "decimal" if kind.is_exact:
            return value, value
        case "float" if kind.is_integral and abs(value) < _EXACT:
            numbers = [Fraction(number) for end in constant.ends for number in (end, float(np.float32(end)))]
            return min(numbers), max(numbers)
        case "date" if kind.kind == "date":
            return value, value
        case "time" if kind.kind in ("date", "timestamp", "timestamp_ntz"):
            unit, (least, most) = engine.units, (constant.ends[0], constant.ends[-1])
            if unit > 1:
                least, most = Fraction(math.floor(least / unit) * unit), Fraction(math.ceil(most / unit) * unit)
            return (least / DAY, most / DAY) if kind.kind == "date" else (least, most)
    return None


def _float(op: str, column: Column, constant: Constant, engine: Engine) -> tuple[Predicate, Predicate]:
    """Compare a column of floats with a number, exact or rounded to the column's type or to 32 bits."""
    ends = constant.ends
    if constant.is_nan and engine.ieee:
        everything = Not(IsNull(column))
        return (everything, FALSE) if op == "!=" else (FALSE, everything)
    widths = {column.type == "float", engine.narrows or column.type == "float"}
    rounded = dict.fromkeys(nearest_real(end, single=single) for end in ends for single in sorted(widths))
    least, most = min(rounded), max(rounded)
    literals = [Literal(number, column.type) for number in rounded]

    def holds(op: str) -> Predicate:
        if constant.is_nan or {least, most, *ends} == {least}:
            return compared(op, column, literals[0])
        if op == "!=":
            return Not(IsNull(column))
        if op == "=" and constant.error:
            return conjunction([holds(">="), holds("<=")])
        if op == "=":
            return In(column, tuple(literals)) if len(literals) > 1 else Comparison("=", column, literals[0])
        end, is_beyond = (most, most >= ends[-1]) if op in ("<", "<=") else (least, least <= ends[0])
        return Comparison(op if is_beyond or "=" in op else f"{op}=", column, Literal(end, column.type))

    nan = [is_nan(column)] if engine.ieee and op in (">", ">=") else []
    return holds(op), disjunction([holds(NEGATED[op]), *nan])


def _on_grid(
    op: str, column: Column, kind: SqlType, interval: tuple[Fraction, Fraction], *, floored: bool
) -> Predicate:
    """Compare a column of evenly spaced values with a number from an interval, without losing rows.

    Parameters
    ----------
    op, column, kind
        The comparison, the column and its type: the step is 1, or one unit of the last digit of a decimal.
    interval
        The least and the greatest number that the engine may compare with.
    floored
        True if the engine's values may exceed Spark's by less than one step.
    """
    least, most = (end * 10**kind.scale for end in interval) if kind.is_decimal else interval
    everything: Predicate = Not(IsNull(column))
    match op:
        case "=":
            first, last = math.floor(least) if floored else math.ceil(least), math.floor(most)
            if first > last:
                return FALSE
            if first == last:
                return _step("=", column, kind, first)
            return conjunction([_step(">=", column, kind, first), _step("<=", column, kind, last)])
        case "!=":
            if floored or least != most:
                return everything
            return _step("!=", column, kind, int(least)) if least.denominator == 1 else everything
        case ">" | ">=" if floored:
            return _step(">=", column, kind, math.floor(least))
        case ">":
            return _step(">", column, kind, math.floor(least))
        case ">=":
            return _step(">=", column, kind, math.ceil(least))
        case "<":
            return _step("<", column, kind, math.ceil(most))
        case _:
            return _step("<=", column, kind, math.floor(most))


def _step(op: str, column: Column, kind: SqlType, number: int) -> Predicate:
    """Compare a column with a whole number of steps, which may be out of the type's range."""
    if kind.is_decimal:
        least, most = 1 - 10**kind.precision, 10**kind.precision - 1
    else:
        values = kind.values or sql_type("int" if kind.kind == "date" else "bigint").values
        least, most = values.start, values.stop - 1
    if not least <= number <= most:
        above = number > most
        holds = op == "!=" or (op in ("<", "<=")) is above
        return Not(IsNull(column)) if holds and op != "=" else FALSE
    value = Decimal(number).scaleb(-kind.scale, _DIGITS) if kind.is_decimal else number
    return compared(op, column, Literal(value, kind.name))


def compared(op: str, left: Predicate, right: Predicate) -> Predicate:
    """Create a comparison as Spark parses it: ``!=`` is NOT ``=``."""
    return Not(Comparison("=", left, right)) if op == "!=" else Comparison(op, left, right)


def is_nan(column: Column) -> Predicate:
    """Create ``column = NaN``, which Spark finds TRUE for NaN."""
    return Comparison("=", column, Literal(math.nan, column.type))


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """AND of any number of predicates, without nested ANDs; if all are equal, one of them."""
    return _merge(And, parts, neutral=TRUE, decisive=FALSE)


def disjunction(parts: Sequence[Predicate]) -> Predicate:
    """OR of any number of predicates, without nested ORs; if all are equal, one of them."""
    return _merge(Or, parts, neutral=FALSE, decisive=TRUE)


def _merge(kind: type[And | Or], parts: Sequence[Predicate], *, neutral: Predicate, decisive: Predicate) -> Predicate:
    if decisive in parts:
        return decisive
    others = (part for part in parts if part != neutral)
    flat = tuple(chain.from_iterable(part.children if isinstance(part, kind) else (part,) for part in others))
    return neutral if not flat else flat[0] if all(part == flat[0] for part in flat) else kind(flat)
