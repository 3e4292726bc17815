"""Translate comparisons with an engine's constants to Spark's, without losing rows.

What an engine compares with is not always the literal as it is written: Arrow rounds ``0.1`` to 32 bits before it looks
it up among floats, polars cuts a time to the milliseconds of its column. A :class:`Constant` stands for an interval of
numbers in which the value lies that the engine uses, and a comparison becomes one with that end of it that keeps more
rows. Values of a column are those that Spark has: exact numbers; floats; days; microseconds, which nanoseconds are cut
to.
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
from geoskip.predicates import FALSE, TRUE, And, Column, Comparison, IsNull, Literal, Not, Or, Predicate
from geoskip.types import SqlType, sql_type

_DAY = 86_400_000_000
_EXACT = 2**53
"""Whole numbers up to here are floats of 64 bits."""
_YEAR_1900 = -2_208_988_800_000_000
_LAST_NANOSECOND = (2**63 - 1) // 1000
"""The microsecond of the last time in 64 bits of nanoseconds, in 2262."""
_DIGITS = Context(prec=76)
NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The comparison that is TRUE where the other one is FALSE, but for NaN in IEEE's order."""


@dataclass(frozen=True)
class Engine:
    """Differences of an engine's comparisons from Spark's.

    Attributes
    ----------
    ieee
        NaN is neither equal to anything nor less or greater; else it is as in Spark.
    units
        Microseconds of the coarsest unit that a literal may be cut to, when it is compared with a column of times.
    finer
        True if columns of times may hold nanoseconds, which Spark does not see.
    wraps
        True if a time that nanoseconds cannot hold may be read as another one: as Arrow reads INT96.
    orders_texts
        True if texts are known to be compared by their bytes, and not by their number in an enumeration.
    """

    ieee: bool
    units: int = 1
    finer: bool = True
    wraps: bool = False
    orders_texts: bool = True


@dataclass(frozen=True)
class Constant:
    """A literal of an engine.

    ``kind`` is ``null``, ``boolean``, ``integer``, ``decimal``, ``float``, ``text``, ``binary``, ``date`` (days since
    1970) or ``time`` (microseconds since 1970, UTC where there is a zone; a fraction where there are nanoseconds).
    ``value`` is exact: a Fraction for whole numbers, decimals, dates and times, a float for floats.
    """

    kind: str
    value: Any = None

    @classmethod
    def number(cls, kind: str, value: int | Decimal | Fraction) -> Constant:
        """A whole number, a decimal, a date or a time."""
        return cls(kind, Fraction(value))

    def __str__(self) -> str:
        return str(self.value) if self.kind == "integer" else f"a {self.kind}"

    @property
    def is_nan(self) -> bool:
        """A float that is no number."""
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
        What Spark finds TRUE where the engine finds the comparison TRUE, and where it is FALSE; or the reason why
        nothing is known.

    >>> comparison("!=", Column("x", "double"), Constant("float", math.nan), Engine(ieee=True))
    (x IS NOT NULL, False)
    >>> comparison(">", Column("d", "decimal(10,2)"), Constant.number("decimal", Decimal("1.505")), Engine(ieee=True))
    (d > 1.50, d <= 1.50)
    """
    kind = sql_type(column.type)
    unused = f"{column} {op} {constant} is not used: {column} is {column.type}"
    whole = constant.kind == "integer" and abs(constant.value) <= _EXACT
    if kind.is_floating and (constant.kind == "float" or whole):
        return _float(op, column, constant.value, engine)
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


def out_of_nanoseconds(column: Column) -> Predicate:
    """Condition that holds of all times that 64 bits of nanoseconds cannot hold, and of those before 1900."""
    first, last = Literal(_YEAR_1900, column.type), Literal(_LAST_NANOSECOND, column.type)
    return Or((Comparison("<", column, first), Comparison(">", column, last)))


def _interval(kind: SqlType, constant: Constant, engine: Engine) -> tuple[Fraction, Fraction] | None:
    """Ends of the numbers that the engine may compare with; None where that cannot be said."""
    value = constant.value
    match constant.kind:
        case "integer" if kind.is_decimal and abs(value) >= _EXACT:  # maybe compared as floats
            return None
        case "integer" | "decimal" if kind.is_exact:
            return value, value
        case "float" if kind.is_integral and abs(value) < _EXACT:
            least, most = sorted((Fraction(value), Fraction(float(np.float32(value)))))
            return least, most
        case "date" if kind.kind == "date":
            return value, value
        case "time" if kind.kind in ("date", "timestamp", "timestamp_ntz"):
            unit = engine.units
            least, most = (Fraction(cut(value / unit) * unit) for cut in (math.floor, math.ceil))
            if unit == 1:
                least = most = value
            return (least / _DAY, most / _DAY) if kind.kind == "date" else (least, most)
    return None


def _float(op: str, column: Column, value: Fraction | float, engine: Engine) -> tuple[Predicate, Predicate]:
    """A column of floats, compared with a number as it is, or rounded to the type of the column."""
    if value != value and engine.ieee:
        everything = Not(IsNull(column))
        return (everything, FALSE) if op == "!=" else (FALSE, everything)
    nearest = nearest_real(value, single=column.type == "float")
    exact = nearest == value or value != value
    literal = Literal(nearest, column.type)

    def holds(op: str) -> Predicate:
        if exact or op == "=":
            return compared(op, column, literal)
        return Not(IsNull(column)) if op == "!=" else Comparison(op if "=" in op else f"{op}=", column, literal)

    nan = [is_nan(column)] if engine.ieee and op in (">", ">=") else []
    return holds(op), disjunction([holds(NEGATED[op]), *nan])


def _on_grid(
    op: str, column: Column, kind: SqlType, interval: tuple[Fraction, Fraction], *, floored: bool
) -> Predicate:
    """Compare a column of whole steps with a number of an interval, so that no row is lost.

    Parameters
    ----------
    op, column, kind
        The comparison, the column and its type: steps are ones, or the last digits of decimals.
    interval
        The least and the greatest number that the engine may compare with.
    floored
        True if the engine's values may lie up to a step above those of Spark.
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
    """A comparison with a whole number of steps, which may lie outside of the type."""
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
    """A comparison as Spark has it: ``!=`` is NOT ``=``."""
    return Not(Comparison("=", left, right)) if op == "!=" else Comparison(op, left, right)


def is_nan(column: Column) -> Predicate:
    """``column = NaN``, which Spark finds TRUE of NaN."""
    return Comparison("=", column, Literal(math.nan, column.type))


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """AND of any number of predicates, flat."""
    if FALSE in parts:
        return FALSE
    found = list(
        chain.from_iterable(part.children if isinstance(part, And) else (part,) for part in parts if part != TRUE)
    )
    return TRUE if not found else found[0] if len(found) == 1 else And(tuple(found))


def disjunction(parts: Sequence[Predicate]) -> Predicate:
    """OR of any number of predicates, flat."""
    if TRUE in parts:
        return TRUE
    found = list(
        chain.from_iterable(part.children if isinstance(part, Or) else (part,) for part in parts if part != FALSE)
    )
    return FALSE if not found else found[0] if len(found) == 1 else Or(tuple(found))
