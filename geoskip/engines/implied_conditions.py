"""Conditions in Spark's meaning that the conditions of another engine imply.

A translator of an engine's expressions builds a :class:`Condition` from the bottom up. It holds two predicates: one
that Spark finds TRUE (or that is unknown) for each row for which the engine's condition is TRUE, and one for each row
for which it is FALSE. A negation exchanges the two, so that nothing is ever negated that was weakened:

============ ==================================== ====================================
condition    where it is TRUE                     where it is FALSE
============ ==================================== ====================================
x > 5        x > 5                                x <= 5, in Arrow ``OR x = NaN``
NOT a        FALSE of a                           TRUE of a
a AND b      TRUE of a AND TRUE of b              FALSE of a OR FALSE of b
a OR b       TRUE of a OR TRUE of b               FALSE of a AND FALSE of b
not known    unknown                              unknown
============ ==================================== ====================================

What engines compare with is not always the literal as it is written: Arrow rounds ``0.1`` to 32 bits before it looks
it up among floats, polars cuts a time to the milliseconds of its column. A :class:`Constant` is therefore an interval
of numbers in which the value lies that the engine uses, and a comparison is one with the interval's end that keeps more
rows. Values of the column are those that Spark has: exact numbers; floats; days; microseconds, which nanoseconds are
cut to.

Days before 1582-10-15 and times before 1901 are unknown: Spark shifts what was written in the Julian calendar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from geoskip.predicates import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    columns_of,
)
from geoskip.sources.bound_indexes import quoted
from geoskip.types import SqlType, sql_type

_DAY = 86_400_000_000
_GREGORIAN = -141_427
"""1582-10-15 in days since 1970."""
_SAME_CLOCKS = -2_177_452_800_000_000
"""1901-01-01 in microseconds since 1970; Spark's tables of shifts end a year before."""
_LARGEST = 10_000
"""Vertices of a condition, beyond which it is left out: XOR doubles what is below it."""
_NOT = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EXACT = 2**53
"""Whole numbers up to here are floats of 64 bits."""
_DIGITS = Context(prec=76)


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
    orders_texts
        True if texts are known to be compared by their bytes, and not by their number in an enumeration.
    """

    ieee: bool
    units: int = 1
    finer: bool = True
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


@dataclass(frozen=True)
class Condition:
    """Predicates that Spark finds TRUE of each row for which an engine finds a condition TRUE, and FALSE."""

    true: Predicate
    false: Predicate
    size: int = 1

    def negated(self) -> Condition:
        """NOT."""
        return Condition(self.false, self.true, self.size)


@dataclass
class Builder:
    """Makes conditions over the columns of a dataset, and notes what it cannot use.

    ``columns`` maps the names of columns to the names of Spark's types; a nested field's name has dots.
    """

    columns: Mapping[str, str]
    engine: Engine
    reasons: list[str] = field(default_factory=list)

    def column(self, *path: str) -> Column | Condition:
        """A column, or a nested field by its path; unknown where the dataset has none of that name."""
        name = ".".join(map(quoted, path))
        if name not in self.columns and len(path) == 1 and "." not in path[0]:
            name = path[0]
        if name not in self.columns:
            return self.unknown(f"{'.'.join(path)} is no column with a known type")
        return Column(name, self.columns[name])

    def unknown(self, reason: str, *parts: object) -> Condition:
        """A condition of which nothing is known."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        read = chain.from_iterable(map(_read_by, parts))
        opaque = Opaque(reason, tuple(sorted(set(read))))
        return Condition(opaque, opaque)

    def condition(self, part: object) -> Condition:
        """An operand as a condition: a condition, a boolean column or a boolean constant."""
        match part:
            case Condition():
                return part
            case Column(_, "boolean"):
                return Condition(part, Not(part))
            case Constant("boolean", value):
                return Condition(TRUE, FALSE) if value else Condition(FALSE, TRUE)
            case Constant("null"):
                return Condition(FALSE, FALSE)
        return self.unknown(f"{_shown(part)} is used as a condition", part)

    def both(self, parts: Iterable[object]) -> Condition:
        """AND: Kleene's, or one that is null where a part is."""
        found = list(map(self.condition, parts))
        return self._sized(_and([c.true for c in found]), _or([c.false for c in found]), found)

    def either(self, parts: Iterable[object]) -> Condition:
        """OR: Kleene's, or one that is null where a part is."""
        found = list(map(self.condition, parts))
        return self._sized(_or([c.true for c in found]), _and([c.false for c in found]), found)

    def differ(self, one: object, other: object) -> Condition:
        """XOR."""
        a, b = self.condition(one), self.condition(other)
        true = _or([_and([a.true, b.false]), _and([a.false, b.true])])
        false = _or([_and([a.true, b.true]), _and([a.false, b.false])])
        return self._sized(true, false, (a, a, b, b))

    def choice(self, test: object, then: object, other: object, *, null_is_false: bool) -> Condition:
        """One of two conditions; where the test is null, the other one with ``null_is_false``, else null."""
        t, a, b = map(self.condition, (test, then, other))
        not_taken = TRUE if null_is_false else t.false
        true = _or([_and([t.true, a.true]), _and([not_taken, b.true])])
        false = _or([_and([t.true, a.false]), _and([not_taken, b.false])])
        return self._sized(true, false, (t, t, a, b))

    def _sized(self, true: Predicate, false: Predicate, parts: Sequence[Condition]) -> Condition:
        size = 1 + sum(part.size for part in parts)
        if size > _LARGEST:
            return self.unknown("a condition that becomes too large is not used", *parts)
        return Condition(true, false, size)

    def is_null(self, part: object, *, or_nan: bool = False) -> Condition:
        """A test for null, of columns; with ``or_nan`` of NaN too."""
        if not isinstance(part, Column):
            return self.unknown(f"a test of {_shown(part)} for null is not used", part)
        null: Predicate = IsNull(part)
        if or_nan and sql_type(part.type).is_floating:
            return Condition(_or([null, Comparison("=", part, _nan(part))]), Not(null))
        return Condition(null, Not(null))

    def is_nan(self, part: object) -> Condition:
        """A test for NaN, of columns; null for null."""
        if not isinstance(part, Column) or not sql_type(part.type).is_numeric:
            return self.unknown(f"a test of {_shown(part)} for NaN is not used", part)
        if not sql_type(part.type).is_floating:
            return Condition(FALSE, Not(IsNull(part)))
        same = Comparison("=", part, _nan(part))
        return Condition(same, Not(same))

    def is_finite(self, part: object) -> Condition:
        """A test for what is neither NaN nor infinite, of columns; null for null."""
        if not isinstance(part, Column) or not sql_type(part.type).is_floating:
            return self.unknown(f"a test of {_shown(part)} for finite numbers is not used", part)
        odd = (math.nan, math.inf, -math.inf)
        return Condition(Not(IsNull(part)), In(part, tuple(Literal(value, part.type) for value in odd)))

    def text(self, part: object, kind: Callable[[Predicate, str], Predicate], text: object) -> Condition:
        """A test of a column of texts by bytes: StartsWith, EndsWith or Contains."""
        if not isinstance(part, Column) or part.type != "string" or not isinstance(text, str):
            return self.unknown(f"a pattern of {_shown(part)} is not used", part)
        found = kind(part, text)
        return Condition(found, Not(found))

    def like(self, part: object, pattern: str, to_node: Callable[[Predicate, str], Predicate]) -> Condition:
        """LIKE without an escape character; ``to_node`` makes what Spark finds TRUE of wildcards elsewhere."""
        inner = pattern.strip("%")
        starts, ends = pattern.startswith("%"), pattern.endswith("%")
        if "\\" in pattern:
            return self.unknown("LIKE with a backslash is not used", part)
        if "_" in pattern or "%" in inner:
            found = self.text(part, to_node, pattern)
            return found if isinstance(found.true, Opaque) else Condition(found.true, Not(IsNull(part)))  # type: ignore[arg-type]
        if not (starts or ends):
            return self.compare("=", part, Constant("text", pattern))
        kind = Contains if starts and ends else EndsWith if starts else StartsWith
        return self.text(part, kind, inner)

    def is_in(self, part: object, values: Sequence[Constant], *, null_is_in: bool, null_is_out: bool) -> Condition:
        """A test for a value in a set.

        Parameters
        ----------
        part
            The operand; only columns are of use.
        values
            The set; nulls are left out of it.
        null_is_in, null_is_out
            True if null may be found to be in the set, and not to be in it; else the test of null is null.
        """
        if not isinstance(part, Column):
            return self.unknown(f"{_shown(part)} in a set of values is not used", part)
        members: list[Literal] = []
        sure: list[Literal] = []
        ranges: list[Predicate] = []
        for value in values:
            if value.kind == "null":
                continue
            if value.kind == "time" and part.type == "date":
                return self.unknown(f"times in a set of days are not used: {part} is a date", part)
            single = self.compare("=", part, value)
            match single.true:
                case Opaque():
                    return single
                case Comparison("=", _, Literal() as literal):
                    members.append(literal)
                    if single.false == Not(single.true) and not _is_hashed_apart(value):
                        sure.append(literal)
                case Literal(False):
                    if _is_nan(value):
                        members.append(_nan(part))
                case other:
                    ranges.append(other)
        if len(ranges) > 100:
            return self.unknown(f"too many times that are cut to other units: {part} in a set is not used", part)
        null = IsNull(part)
        true = _or([*([In(part, tuple(members))] if members else []), *ranges, *([null] if null_is_in else [])])
        out = Not(In(part, tuple(sure))) if sure else Not(null)
        return Condition(true, _or([out, null]) if null_is_out else out)

    def compare(self, op: str, left: object, right: object) -> Condition:
        """``left op right`` with op one of ``= != < <= > >=``; null where an operand is."""
        match left, right:
            case Constant("null"), _:
                return Condition(FALSE, FALSE)
            case _, Constant("null"):
                return Condition(FALSE, FALSE)
            case Constant(), Column():
                return self.compare(_MIRRORED[op], right, left)
            case Column(_, kind), Column(_, other):
                return self._columns(op, left, right, sql_type(kind), sql_type(other))
            case (Condition() | Column(_, "boolean")) as part, Constant("boolean", value) if op in ("=", "!="):
                found = self.condition(part)
                return found if (op == "=") is value else found.negated()
            case Constant("boolean"), Condition() if op in ("=", "!="):
                return self.compare(op, right, left)
            case Column(), Constant():
                return self._with_constant(op, left, right)
            case (Condition(Opaque()) as unknown, _) | (_, Condition(Opaque()) as unknown):
                return self.unknown(str(unknown.true), left, right)
        return self.unknown(f"{_shown(left)} {op} {_shown(right)} is not used", left, right)

    def equal_or_both_null(self, left: object, right: object) -> Condition:
        """``left <=> right``: never null; NaN is NaN, as polars has it."""
        if isinstance(left, Constant):
            left, right = right, left
        match left, right:
            case Column(), Constant("null"):
                return self.is_null(left)
            case Column(), Constant():
                found = self.compare("=", left, right)
                return Condition(found.true, _or([found.false, IsNull(left)]), found.size)
        return self.unknown(f"{_shown(left)} <=> {_shown(right)} is not used", left, right)

    def _columns(self, op: str, left: Column, right: Column, kind: SqlType, other: SqlType) -> Condition:
        """Two columns of one type; not of times or days, which Spark may shift."""
        ordered = self.engine.orders_texts or kind.kind != "string"
        plain = kind.is_exact or kind.is_floating or kind.kind in ("binary", "boolean", "string")
        if kind.name != other.name or not plain or (op not in ("=", "!=") and not (ordered and kind.kind != "boolean")):
            return self.unknown(f"{left} {op} {right} is not used", left, right)
        nans: list[Predicate] = []
        if self.engine.ieee and kind.is_floating:
            nans = [Comparison("=", side, _nan(side)) for side in (left, right)]

        def holds(op: str, *, negated: bool) -> Predicate:
            found = Not(Comparison("=", left, right)) if op == "!=" else Comparison(op, left, right)
            return _or([found, *(nans if negated else [])])

        return Condition(holds(op, negated=op == "!="), holds(_NOT[op], negated=op != "!="))

    def _with_constant(self, op: str, column: Column, constant: Constant) -> Condition:
        """A column compared with a constant of a matching kind."""
        kind = sql_type(column.type)
        unused = f"{column} {op} {_shown(constant)} is not used: {column} is {column.type}"
        if kind.is_floating and (
            constant.kind == "float" or (constant.kind == "integer" and abs(constant.value) <= _EXACT)
        ):
            return self._floats(op, column, constant.value)
        interval = self._interval(kind, constant)
        if isinstance(interval, str):
            return self.unknown(f"{unused}{interval}", column)
        if interval is not None:
            true, false = (_on_grid(o, column, kind, interval, floored=self._is_cut(kind)) for o in (op, _NOT[op]))
            return Condition(true, false)
        if (kind.kind, constant.kind) in (("string", "text"), ("binary", "binary")):
            if op in ("=", "!=") or kind.kind == "binary" or self.engine.orders_texts:
                literal = Literal(constant.value, kind.kind)
                return Condition(_plain(op, column, literal), _plain(_NOT[op], column, literal))
            return self.unknown(f"{unused} or an enumeration, which has another order", column)
        return self.unknown(unused, column)

    def _is_cut(self, kind: SqlType) -> bool:
        """True for columns whose values may lie up to a microsecond after what Spark has."""
        return self.engine.finer and kind.kind in ("timestamp", "timestamp_ntz")

    def _interval(self, kind: SqlType, constant: Constant) -> tuple[Fraction, Fraction] | str | None:
        """Ends of the numbers that the engine may compare with, or a reason; None for other types."""
        value = constant.value
        match constant.kind:
            case "integer" | "decimal" if kind.is_exact:
                if kind.is_decimal and constant.kind == "integer" and abs(value) >= _EXACT:
                    return ", and the number may be rounded"
                return value, value
            case "float" if kind.is_integral:
                if not math.isfinite(value):
                    return ", and the number is not finite"
                if abs(value) >= _EXACT:
                    return ", and the number may be rounded"
                least, most = sorted((Fraction(value), Fraction(float(np.float32(value)))))
                return least, most
            case "date" if kind.kind == "date":
                return (value, value) if value >= _GREGORIAN else ", and dates before 1582-10-15 may be shifted"
            case "time" if kind.kind in ("date", "timestamp", "timestamp_ntz"):
                if value < _SAME_CLOCKS:
                    return ", and times before 1901 may be shifted"
                unit = self.engine.units
                least, most = (
                    (Fraction(r(value / unit) * unit) for r in (math.floor, math.ceil)) if unit > 1 else (value, value)
                )
                return (least / _DAY, most / _DAY) if kind.kind == "date" else (least, most)
        return None

    def _floats(self, op: str, column: Column, value: Fraction | float) -> Condition:
        """A column of floats, compared with a number as it is, or rounded to the type of the column."""
        if value != value:
            everything, same = Not(IsNull(column)), Comparison("=", column, _nan(column))
            if self.engine.ieee:
                return Condition(everything, FALSE) if op == "!=" else Condition(FALSE, everything)
            literal = _nan(column)
            return (
                Condition(same, Not(same))
                if op == "="
                else Condition(_plain(op, column, literal), _plain(_NOT[op], column, literal))
            )
        nearest = _nearest(value, column.type == "float")
        exact = nearest == value
        literal = Literal(nearest, column.type)

        def holds(op: str) -> Predicate:
            if exact or op == "=":
                return _plain(op, column, literal)
            return Not(IsNull(column)) if op == "!=" else Comparison(op if "=" in op else f"{op}=", column, literal)

        above = self.engine.ieee and op in (">", ">=")
        return Condition(holds(op), _or([holds(_NOT[op]), *([Comparison("=", column, _nan(column))] if above else [])]))


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
            return _and([_step(">=", column, kind, first), _step("<=", column, kind, last)])
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
    return _plain(op, column, Literal(value, kind.name))


def _plain(op: str, column: Column, literal: Literal) -> Predicate:
    return Not(Comparison("=", column, literal)) if op == "!=" else Comparison(op, column, literal)


def _nearest(value: Fraction | float, single: bool) -> float:
    """The float of 32 or 64 bits that is nearest to a number."""
    try:
        double = float(value)
    except OverflowError:
        double = math.inf if value > 0 else -math.inf
    if not single:
        return double
    with np.errstate(over="ignore"):
        return float(np.float32(double))


def _is_hashed_apart(constant: Constant) -> bool:
    """True for floats of which a set may not find all that are equal: zeros and NaN."""
    return constant.kind == "float" and (constant.value == 0 or math.isnan(constant.value))


def _is_nan(constant: Constant) -> bool:
    return isinstance(constant.value, float) and math.isnan(constant.value)


def _nan(column: Column) -> Literal:
    return Literal(math.nan, column.type)


def _and(parts: Sequence[Predicate]) -> Predicate:
    if FALSE in parts:
        return FALSE
    found = list(
        chain.from_iterable(part.children if isinstance(part, And) else (part,) for part in parts if part != TRUE)
    )
    return TRUE if not found else found[0] if len(found) == 1 else And(tuple(found))


def _or(parts: Sequence[Predicate]) -> Predicate:
    if TRUE in parts:
        return TRUE
    found = list(
        chain.from_iterable(part.children if isinstance(part, Or) else (part,) for part in parts if part != FALSE)
    )
    return FALSE if not found else found[0] if len(found) == 1 else Or(tuple(found))


def _read_by(part: object) -> Iterable[str]:
    match part:
        case Condition(true, false):
            return columns_of(true) | columns_of(false)
        case Predicate():
            return columns_of(part)
    return ()


def _shown(part: object) -> str:
    match part:
        case Constant(kind):
            return f"a {kind}" if kind != "integer" else "a whole number"
        case Column():
            return str(part)
        case Condition(Opaque(text)):
            return f"({text})"
    return "a condition"
