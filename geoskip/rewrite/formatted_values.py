"""Rewrite comparisons of formatted numbers, dates and times as comparisons of the values.

::

    CAST(n AS string) = '5'                       n = 5
    CAST(n AS string) LIKE '21%'                  n = 21 OR n >= 210 AND n <= 219 OR ...
    CAST(day AS string) LIKE '2024-02%'           day >= 2024-02-01 AND day < 2024-03-01     (so is day LIKE '2024-02%')
    CAST(ts AS string) >= '2024-02-29 12'         CAST(ts AS timestamp_ntz) >= 2024-02-29 12:00:00
    date_format(ts, 'yyyyMM') = '202402'          a local time from 2024-02-01 to 2024-03-01
    from_unixtime(n) >= '2024-02-29'              CAST(timestamp_seconds(n) AS timestamp_ntz) >= 2024-02-29 00:00:00
    to_date(from_unixtime(n)) = DATE'2024-02-29'  the date of this local time

Texts of dates and times sort in the order of time, because years up to 9999 have four digits. The rules do not apply to
later years, nor to years before 1901, which Spark may format by other calendars. Each condition is TRUE where the left
one is TRUE, and FALSE where it is FALSE; verdicts of TRUE and FALSE need no more (:mod:`geoskip.planner`).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from geoskip.predicates import And, Call, Cast, Comparison, In, Literal, Opaque, Or, Predicate, StartsWith, transform
from geoskip.registry.functions import CATALYST
from geoskip.types import DAY, SqlType, sql_type

_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,18})")
_TIME = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?)?)?)?)?",
    re.ASCII,
)
_PATTERN = "yyyy-MM-dd HH:mm:ss"
_FORMS = re.compile(r"yyyy(?:[-/. ]?MM(?:[-/. ]?dd(?:[-/. ]?HH(?:[:. ]?mm(?:[:. ]?ss)?)?)?)?)?")
"""Formats with the fields of :data:`_PATTERN` up to one of them, perhaps with other separators."""
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_UNITS = (("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))
_FIRST, _LAST = (dt.datetime(1901, 1, 1) - _EPOCH) // _MICROSECOND, (dt.datetime(9999, 12, 31) - _EPOCH) // _MICROSECOND


def rewrite(node: Predicate) -> Predicate | None:
    """Return the condition on the value itself, or None for other conditions.

    >>> from geoskip.predicates import Column
    >>> print(rewrite(Comparison("=", Cast(Column("n", "int"), "string"), Literal("-5", "string"))))
    n = -5
    >>> rewrite(Comparison("=", Cast(Column("n", "int"), "string"), Literal("05", "string"))).values
    ()
    """
    match node:
        case Comparison("=" | "<" | "<=" | ">" | ">=" as op, left, Literal(str() as text)):
            if (number := _formatted_integer(left)) is not None:
                return _integer_condition(number, (text,)) if op == "=" else None
            return None if (of := FormattedTime.of(left)) is None else of.comparison(op, text)
        case In(left, values) if values and all(isinstance(v.value, str) for v in values):
            if (number := _formatted_integer(left)) is not None:
                return _integer_condition(number, tuple(v.value for v in values))
            if (of := FormattedTime.of(left)) is None or len(values) > _MOST:
                return None
            single = [of.comparison("=", v.value) for v in values]
            known = tuple(one for one in single if one is not None)
            return Or(known) if len(known) == len(single) else None
        case StartsWith(left, text) if text and (number := _formatted_integer(left)) is not None:
            return _integer_prefix(number, text)
        case StartsWith(left, text) if (of := FormattedTime.of(left)) is not None:
            return of.starts_with(text)
        case Comparison(_, Cast(left, "date") as cast, Literal(_, "date")) | In(Cast(left, "date") as cast, _):
            if (of := FormattedTime.of(left)) is not None and (date := of.date()) is not None:
                return of.in_known_years(transform(node, lambda vertex: date if vertex == cast else vertex))
    return None


_MOST = 16


def _formatted_integer(node: Predicate) -> Cast | None:
    """The cast of an integer to a string, or None."""
    return node if isinstance(node, Cast) and node.type == "string" and _source(node).is_integral else None


def _source(cast: Cast) -> SqlType:
    return sql_type(cast.child.type or cast.source)


def _integer_condition(cast: Cast, texts: tuple[str, ...]) -> Predicate:
    """Condition that a number has one of these texts; no number has a text such as 05 or 1e3."""
    kind = _source(cast)
    numbers = [int(text) for text in texts if _NUMBER.fullmatch(text)]
    found = tuple(Literal(number, kind.name) for number in numbers if number in kind.values)
    return Comparison("=", cast.child, found[0]) if len(found) == 1 else In(cast.child, found)


def _integer_prefix(cast: Cast, text: str) -> Predicate:
    """Condition that the text of a number begins with another text: a range for each length.

    >>> from geoskip.predicates import Column
    >>> print(_integer_prefix(Cast(Column("n", "tinyint"), "string"), "-1"))
    (n = -1 OR (n >= -19 AND n <= -10) OR (n >= -128 AND n <= -100))
    """
    kind, number = _source(cast), cast.child
    least, most = kind.values[0], kind.values[-1]
    if text == "-":
        return Comparison("<", number, Literal(0, kind.name))
    if text == "0" or not _NUMBER.fullmatch(text):
        return _integer_condition(cast, (text,))
    first, ranges = int(text), list[Predicate]()
    power = 1
    while abs(first) * power <= max(-least, most):
        ends = sorted((first * power, first * power + (power - 1) * (1 if first > 0 else -1)))
        low, high = max(ends[0], least), min(ends[1], most)
        if low == high:
            ranges.append(Comparison("=", number, Literal(low, kind.name)))
        elif low < high:
            limits = (
                Comparison(">=", number, Literal(low, kind.name)),
                Comparison("<=", number, Literal(high, kind.name)),
            )
            ranges.append(And(limits))
        power *= 10
    return ranges[0] if len(ranges) == 1 else Or(tuple(ranges)) if ranges else In(number, ())


@dataclass(frozen=True)
class FormattedTime:
    """A date or a time that is formatted: ``shown`` in local time, with ``form``.

    ``is_exact`` is True for casts, which append a fraction of the second unless it is zero.
    """

    shown: Predicate
    form: str = _PATTERN
    is_exact: bool = False

    @classmethod
    def of(cls, node: Predicate) -> FormattedTime | None:
        """The formatted time of an expression, or None.

        >>> from geoskip.predicates import Column
        >>> FormattedTime.of(Cast(Column("day", "date"), "string")).form
        'yyyy-MM-dd'
        """
        match node:
            case Cast(child, "string") if _source(node).kind == "date":
                return cls(child, _PATTERN[:10])
            case Cast(child, "string") if _source(node).kind == "timestamp_ntz":
                return cls(child, is_exact=True)
            case Cast(child, "string", zone=str() as zone) if _source(node).kind == "timestamp":
                return cls(_local(child, zone), is_exact=True)
            case Call(_, (time, Literal(str() as form)), flags=(str() as zone,)) if _FORMS.fullmatch(form):
                if node.implementation == f"{CATALYST}DateFormatClass" and time.type == "timestamp":
                    return cls(_local(time, zone), form)
                if node.implementation == f"{CATALYST}FromUnixTime":
                    seconds = Call("timestamp_seconds", (time,), f"{CATALYST}SecondsToTimestamp", type="timestamp")
                    return cls(_local(seconds, zone), form)
        return None

    @property
    def _unit(self) -> int:
        return DAY if self.shown.type == "date" else 1

    def date(self) -> Predicate | None:
        """The date that a cast of the text returns; None if the text is not that of a date or a time."""
        if self.shown.type == "date" or len(self.form) < 10 or not _PATTERN.startswith(self.form):
            return None
        return Cast(self.shown, "date", "timestamp_ntz")

    def comparison(self, op: str, text: str) -> Predicate | None:
        """The condition on the time that its text compares with another text; None if unknown."""
        if (found := self._stretch(text)) is None:
            return None
        start, end = found
        if len(text) < len(self.form):  # the text of any time in this stretch is longer, and greater
            if op == "=":
                return self.in_known_years(In(self.shown, ()))
            return self._compare(">=" if op[0] == ">" else "<", start)
        if self.is_exact:
            end = start + 1
        match op:
            case "=":
                return self._within(start, end)
            case ">" | "<=":
                return self._compare(">=" if op == ">" else "<", end)
        return self._compare(op, start)

    def starts_with(self, text: str) -> Predicate | None:
        """The condition on the time that its text begins with another one; None if unknown."""
        found = self._stretch(text)
        return None if found is None else self._within(*found)

    def _stretch(self, text: str) -> tuple[int, int] | None:
        """The stretch of the times whose texts begin with a text in this form; None if unknown."""
        plain = self._plain(text)
        return None if plain is None else stretch_of(plain)

    def _plain(self, text: str) -> str | None:
        """A text in the form of the time, or the begin of one, as one in the form of a cast; else None.

        >>> from geoskip.predicates import Column
        >>> FormattedTime(Column("t", "timestamp_ntz"), "yyyyMMdd")._plain("202402")
        '2024-02'
        """
        found = ""
        for place, (character, field) in enumerate(zip(text, self.form, strict=False)):
            if field.isalpha():
                is_first = place == 0 or self.form[place - 1] != field
                found += (_PATTERN[len(found)] if is_first and found else "") + character
            elif character != field:
                return None
        rest = text[len(self.form) :]
        return found + rest if self.is_exact or not rest else None

    def _within(self, start: int, end: int) -> Predicate:
        """The condition that the time is in a stretch."""
        if end - start == self._unit:
            return self._compare("=", start)
        ends = (Comparison(">=", self.shown, self._literal(start)), Comparison("<", self.shown, self._literal(end)))
        return self.in_known_years(And(ends))

    def _compare(self, op: str, micros: int) -> Predicate:
        return self.in_known_years(Comparison(op, self.shown, self._literal(micros)))

    def _literal(self, micros: int) -> Literal:
        return Literal(micros // DAY, "date") if self._unit == DAY else Literal(micros, "timestamp_ntz")

    def in_known_years(self, condition: Predicate) -> Predicate:
        """The condition in years whose texts are known, and an unknown one in others."""
        first, last = self._literal(_FIRST), self._literal(_LAST)
        known = (Comparison(">=", self.shown, first), Comparison("<=", self.shown, last))
        other = Or((Comparison("<", self.shown, first), Comparison(">", self.shown, last)))
        return Or((And((*known, condition)), And((other, Opaque("the text of another year")))))


def _local(time: Predicate, zone: str) -> Predicate:
    return Cast(time, "timestamp_ntz", "timestamp", zone=zone)


def stretch_of(text: str) -> tuple[int, int] | None:
    """Start and end, in microseconds since 1970, of the times formatted with this prefix, or None.

    >>> [_EPOCH + end * _MICROSECOND for end in stretch_of("2024-02")]
    [datetime.datetime(2024, 2, 1, 0, 0), datetime.datetime(2024, 3, 1, 0, 0)]
    >>> stretch_of("1970-01-01 00:00:00.5"), stretch_of("2024-02-30"), stretch_of("2024-2")
    ((500000, 600000), None, None)
    """
    found = _TIME.fullmatch(text)
    if found is None or (found["part"] or "").endswith("0"):  # Spark omits trailing zeros of a fraction
        return None
    part = found["part"] or ""
    hour, minute, second = (int(found[name] or 0) for name, _ in _UNITS)
    try:
        first = dt.datetime(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1), hour, minute, second)
        if found["day"] is None:
            last = (first + dt.timedelta(days=31)).replace(day=1) if found["month"] else first.replace(first.year + 1)
            return (first - _EPOCH) // _MICROSECOND, (last - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
    start = (first - _EPOCH) // _MICROSECOND + int(part.ljust(6, "0"))
    length = 10 ** (6 - len(part)) if part else next((n for name, n in reversed(_UNITS) if found[name]), DAY)
    return start, start + length
