"""Conditions with Spark's semantics that are implied by conditions of another engine.

A translator of an engine's expressions builds an :class:`EngineCondition` from the bottom up. It holds two predicates:
one that Spark finds TRUE (or that is unknown) for each row for which the engine's condition is TRUE, and one for each
row for which it is FALSE. A negation exchanges the two, so that a weakened predicate is never negated:

============ ==================================== ====================================
condition    where it is TRUE                     where it is FALSE
============ ==================================== ====================================
x > 5        x > 5                                x <= 5, in Arrow ``OR x = NaN``
NOT a        FALSE of a                           TRUE of a
a AND b      TRUE of a AND TRUE of b              FALSE of a OR FALSE of b
a OR b       TRUE of a OR TRUE of b               FALSE of a AND FALSE of b
not known    unknown                              unknown
============ ==================================== ====================================
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from geoskip.engines.constant_bounds import (
    NEGATED,
    Constant,
    Engine,
    compared,
    comparison,
    conjunction,
    disjunction,
    is_nan,
    outside,
)
from geoskip.engines.time_texts import instant_of, starts
from geoskip.errors import UnknownColumnError
from geoskip.predicates import (
    FALSE,
    FLIPPED,
    TRUE,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Literal,
    Not,
    Opaque,
    Predicate,
    StartsWith,
    columns_of,
)
from geoskip.sources.column_names import quote_if_needed
from geoskip.types import DAY, SqlType, sql_type


@dataclass(frozen=True)
class EngineCondition:
    """Two predicates, TRUE in Spark for each row with the engine's condition TRUE or FALSE, respectively."""

    true: Predicate
    false: Predicate

    def negate(self) -> EngineCondition:
        """Return the condition's negation."""
        return EngineCondition(self.false, self.true)


@dataclass(frozen=True)
class Rounded:
    """A column cast to floats or to a finer time unit; usable only in comparisons with constants."""

    column: Column


@dataclass(frozen=True)
class YearOf:
    """The year of a column of dates or times."""

    column: Column
    zone: str | None = None
    """The time zone, for a column of instants."""


@dataclass
class Builder:
    """Builder of conditions over the columns of a dataset, which records the parts that cannot be used.

    ``columns`` maps the names of columns, without quotes, to the names of Spark's types; ``names`` has all columns, or
    is None if others may exist.
    """

    columns: Mapping[str, str]
    engine: Engine
    reasons: list[str] = field(default_factory=list)
    names: Sequence[str] | None = None

    def column(self, *path: str) -> Column | EngineCondition:
        """Return a column, or a nested field by its path; unknown if its type is not known.

        Raises UnknownColumnError if the column does not exist.
        """
        if self.names is not None and path[0] not in self.names:
            raise UnknownColumnError.of(path[0], self.names)
        kind = self.columns.get(path[0])
        found: Column | EngineCondition
        if kind is None:
            return self.unknown(f"{path[0]} is no column with a known type")
        found = Column(quote_if_needed(path[0]), kind)
        for name in path[1:]:
            found = self.struct_field(found, name)
        return found

    def struct_field(self, part: object, name: str) -> Column | EngineCondition:
        """Return a field of a struct column."""
        kind = dict(sql_type(part.type).fields).get(name) if isinstance(part, Column) else None
        if kind is None or not isinstance(part, Column):
            return self.unknown(f"the field {name} of {_describe(part)} has no known type", part)
        return Column(f"{part.name}.{quote_if_needed(name)}", kind.name)

    def unknown(self, reason: str, *parts: object) -> EngineCondition:
        """Return an unknown condition, and record the reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        return _opaque(reason.partition(" is not used")[0], *parts)

    def condition(self, part: object) -> EngineCondition:
        """Convert an operand to a condition: a condition, a boolean column or a boolean constant."""
        match part:
            case EngineCondition():
                return part
            case Column(_, "boolean"):
                return EngineCondition(part, Not(part))
            case Constant("boolean", value):
                return EngineCondition(TRUE, FALSE) if value else EngineCondition(FALSE, TRUE)
            case Constant("null"):
                return EngineCondition(FALSE, FALSE)
        return self.unknown(f"{_describe(part)} is used as a condition", part)

    def both(self, parts: Iterable[object]) -> EngineCondition:
        """AND by Kleene's logic, or with null wherever an operand is null."""
        found = list(map(self.condition, parts))
        return EngineCondition(conjunction([c.true for c in found]), disjunction([c.false for c in found]))

    def either(self, parts: Iterable[object]) -> EngineCondition:
        """OR by Kleene's logic, or with null wherever an operand is null."""
        found = list(map(self.condition, parts))
        return EngineCondition(disjunction([c.true for c in found]), conjunction([c.false for c in found]))

    def is_null(self, part: object, *, or_nan: bool = False) -> EngineCondition:
        """Test a column for null, or with ``or_nan`` for null or NaN."""
        if not isinstance(part, Column):
            return self.unknown(f"a test of {_describe(part)} for null is not used", part)
        null: Predicate = IsNull(part)
        if or_nan and sql_type(part.type).is_floating:
            return EngineCondition(disjunction([null, is_nan(part)]), Not(null))
        return EngineCondition(null, Not(null))

    def is_nan(self, part: object) -> EngineCondition:
        """Test a column for NaN; the result for null is null."""
        if not isinstance(part, Column) or not sql_type(part.type).is_numeric:
            return self.unknown(f"a test of {_describe(part)} for NaN is not used", part)
        if not sql_type(part.type).is_floating:
            return EngineCondition(FALSE, Not(IsNull(part)))
        same = is_nan(part)
        return EngineCondition(same, Not(same))

    def text(self, part: object, kind: Callable[[Predicate, str], Predicate], text: object) -> EngineCondition:
        """Test a string column by bytes.

        Parameters
        ----------
        part
            The operand; only columns can be used.
        kind
            StartsWith, EndsWith or Contains.
        text
            The constant text.
        """
        if not isinstance(part, Column) or part.type != "string" or not isinstance(text, str):
            return self.unknown(f"a pattern of {_describe(part)} is not used", part)
        found = kind(part, text)
        return EngineCondition(found, Not(found))

    def like(self, part: object, pattern: str, to_node: Callable[[Predicate, str], Predicate]) -> EngineCondition:
        """LIKE without an escape character.

        Parameters
        ----------
        part
            The operand; only columns can be used.
        pattern
            The pattern, with ``%`` and ``_``.
        to_node
            Creates a predicate from the column and the pattern, for wildcards that are neither first nor last.
        """
        inner = pattern.strip("%")
        starts, ends = pattern.startswith("%"), pattern.endswith("%")
        if "\\" in pattern:
            return self.unknown("LIKE with a backslash is not used", part)
        if "_" in pattern or "%" in inner:
            found = self.text(part, to_node, pattern)
            return found if isinstance(found.true, Opaque) else EngineCondition(found.true, Not(IsNull(part)))  # type: ignore[arg-type]
        if not (starts or ends):
            return self.compare("=", part, Constant("text", pattern))
        kind = Contains if starts and ends else EndsWith if starts else StartsWith
        return self.text(part, kind, inner)

    def is_in(
        self, part: object, values: Sequence[Constant], *, null_is_in: bool, null_is_out: bool
    ) -> EngineCondition:
        """A test for a value in a set.

        Parameters
        ----------
        part
            The operand; only columns can be used.
        values
            The set; its nulls are ignored.
        null_is_in, null_is_out
            Possible results of the test for null: in the set, and not in the set. If both are False, the result is
            null.
        """
        if not isinstance(part, Column):
            return self.unknown(f"{_describe(part)} in a set of values is not used", part)
        members: list[Literal] = []
        sure: list[Literal] = []
        ranges: list[Predicate] = []
        for value in values:
            if value.kind == "null":
                continue
            if value.kind == "time" and part.type == "date":
                return self.unknown(f"times in a set of days are not used: {part} is a date", part)
            is_hashed_apart = value.kind in ("float", "integer") and (value.value == 0 or value.is_nan)
            compare = self.compare if part.type == "boolean" else self._with_constant
            single = compare("=", part, value)
            match single.true:
                case Opaque():
                    return single
                case Comparison("=", _, Literal() as literal):
                    members.append(literal)
                    if single.false == Not(single.true) and not is_hashed_apart:
                        sure.append(literal)
                case In(_, literals):
                    members.extend(literals)
                case Literal(False):
                    if value.is_nan:
                        members.append(Literal(value.value, part.type))
                case other:
                    ranges.append(other)
        if len(ranges) > 100:
            return self.unknown(f"too many times that are cut to other units: {part} in a set is not used", part)
        null = IsNull(part)
        true = disjunction([*([In(part, tuple(members))] if members else []), *ranges, *([null] if null_is_in else [])])
        out = Not(In(part, tuple(sure))) if sure else Not(null)
        found = EngineCondition(true, disjunction([out, null]) if null_is_out else out)
        return self._unless_misread(part, found)

    def compare(self, op: str, left: object, right: object) -> EngineCondition:
        """Compare two operands; the result is null if one of them is null.

        Parameters
        ----------
        op
            One of ``= != < <= > >=``.
        left, right
            Columns, constants, conditions, or objects of this module derived from columns.
        """
        match left, right:
            case (Constant("null"), _) | (_, Constant("null")):
                return EngineCondition(FALSE, FALSE)
            case (Rounded(column), Constant()) if not sql_type(column.type).is_integral or _is_exact_double(right):
                return self.compare(op, column, right)
            case (YearOf(column, zone), Constant("integer", value)) if 1900 < value < 9999:
                day = (dt.date(int(value), 1, 1) - dt.date(1970, 1, 1)).days
                return self.compare_start(op, column, "year", day * DAY, zone)
            case Constant(), Column() | EngineCondition() | Rounded() | YearOf():
                return self.compare(FLIPPED.get(op, op), right, left)
            case Column(_, kind), Column(_, other):
                return self._columns(op, left, right, sql_type(kind), sql_type(other))
            case (EngineCondition() | Column(_, "boolean")) as part, Constant("boolean", value) if op in ("=", "!="):
                found = self.condition(part)
                return found if (op == "=") is value else found.negate()
            case Column(), Constant():
                return self._unless_misread(left, self._with_constant(op, left, right))
            case (EngineCondition(Opaque(text)), _) | (_, EngineCondition(Opaque(text))):
                return _opaque(text, left, right)
        return self.unknown(f"{_describe(left)} {op} {_describe(right)} is not used", left, right)

    def year(self, part: object) -> YearOf | EngineCondition:
        """Return the year of a column; unknown if it depends on a time zone."""
        if isinstance(part, Column) and part.type in ("date", "timestamp_ntz"):
            return YearOf(part)
        return self.unknown(f"the year of {_describe(part)} is not used", part)

    def compare_start(
        self, op: str, column: Column, unit: str, local: int, zone: str | None, *, null_differs: bool = False
    ) -> EngineCondition:
        """Compare the start of the calendar unit that a column's time lies in with a local time.

        Parameters
        ----------
        op, column, unit
            The comparison, the column, and the unit: a year, quarter, month, week or day.
        local, zone
            The time in microseconds, and the time zone of a column of instants.
        null_differs
            True if the start of NULL differs from times at which no unit starts, as for DuckDB's ``date_trunc``.
        """
        first, following = starts(unit, local)
        begin, end = moment(column, first, zone), moment(column, following, zone)
        if begin is None or end is None:
            return self.unknown(f"the {unit} of {column} is not used: its start in the time zone is not known", column)
        match op:
            case "=" if local != first:
                return EngineCondition(FALSE, TRUE if null_differs else Not(IsNull(column)))
            case "=":
                return self.both([self.compare(">=", column, begin), self.compare("<", column, end)])
            case "!=":
                return self.compare_start("=", column, unit, local, zone, null_differs=null_differs).negate()
            case ">=" | "<" if local == first:
                return self.compare(op, column, begin)
        return self.compare(">=" if op in (">", ">=") else "<", column, end)

    def _with_constant(self, op: str, column: Column, constant: Constant) -> EngineCondition:
        pair = comparison(op, column, constant, self.engine)
        return self.unknown(pair, column) if isinstance(pair, str) else EngineCondition(*pair)

    def _unless_misread(self, column: Column, condition: EngineCondition) -> EngineCondition:
        """Weaken a condition for the times of a column that the engine may read as others."""
        times = self.engine.exact_times
        if times is None or column.type not in ("timestamp", "timestamp_ntz"):
            return condition
        others = outside(column, times)
        return EngineCondition(disjunction([condition.true, others]), disjunction([condition.false, others]))

    def null_safe(self, same: EngineCondition, left: object, right: object) -> EngineCondition:
        """``left <=> right``, which is never null.

        Parameters
        ----------
        same
            The condition ``left = right``, in which NaN equals NaN.
        left, right
            The operands, of which only columns may be null.
        """
        match left, right:
            case Column(), Constant("null"):
                return self.is_null(left)
            case Column(), Column():
                nulls = [IsNull(left), IsNull(right)]
                true, false = disjunction([same.true, conjunction(nulls)]), disjunction([same.false, *nulls])
                return EngineCondition(true, false)
            case Column(), _:
                return EngineCondition(same.true, disjunction([same.false, IsNull(left)]))
            case _, Column():
                return self.null_safe(same, right, left)
        return self.unknown(f"{_describe(left)} <=> {_describe(right)} is not used", left, right)

    def _columns(self, op: str, left: Column, right: Column, kind: SqlType, other: SqlType) -> EngineCondition:
        """Compare two columns of one type; not of times or days, which Spark may rebase."""
        ordered = self.engine.orders_texts or kind.kind != "string"
        plain = kind.is_exact or kind.is_floating or kind.kind in ("binary", "boolean", "string")
        if kind.name != other.name or not plain or (op not in ("=", "!=") and not (ordered and kind.kind != "boolean")):
            return self.unknown(f"{left} {op} {right} is not used", left, right)
        nans: list[Predicate] = []
        if self.engine.ieee and kind.is_floating:
            nans = [is_nan(side) for side in (left, right)]

        def holds(op: str, *, negated: bool) -> Predicate:
            return disjunction([compared(op, left, right), *(nans if negated else [])])

        return EngineCondition(holds(op, negated=op == "!="), holds(NEGATED[op], negated=op != "!="))


def moment(column: Column, local: int, zone: str | None) -> Constant | None:
    """A local midnight, in microseconds, as values of a column are compared with it; None if unknown."""
    if column.type == "date":
        return Constant.number("date", local // DAY)
    instant = local if column.type == "timestamp_ntz" else instant_of(local, zone)
    return None if instant is None else Constant.number("time", instant)


def _is_exact_double(constant: Constant) -> bool:
    """True if whole numbers that were cast to doubles compare with a constant as they are."""
    value = constant.value
    return constant.kind in ("integer", "decimal", "float") and abs(value) < 2**53 and float(value) == value


def _columns_read(part: object) -> Iterable[str]:
    match part:
        case EngineCondition(true, false):
            return columns_of(true) | columns_of(false)
        case Predicate():
            return columns_of(part)
        case Rounded(column) | YearOf(column):
            return columns_of(column)
    return ()


def _opaque(text: str, *parts: object) -> EngineCondition:
    opaque = Opaque(text, tuple(sorted(set(chain.from_iterable(map(_columns_read, parts))))))
    return EngineCondition(opaque, opaque)


def _describe(part: object) -> str:
    match part:
        case Constant() | Column():
            return str(part)
        case EngineCondition(Opaque(text)):
            return f"({text})"
        case YearOf(column):
            return f"the year of {column}"
        case Rounded(column):
            return f"a cast of {column}"
    return "a condition"
