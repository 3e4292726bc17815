"""Rewrite comparisons on ``CAST(x AS STRING)`` as comparisons on x.

::

    CAST(n AS string) = '5'                   n = 5
    CAST(day AS string) LIKE '2024-02%'       day >= 2024-02-01 AND day < 2024-03-01     (so is day LIKE '2024-02%')
    CAST(ts AS string) >= '2024-02-29 12'     CAST(ts AS timestamp_ntz) >= 2024-02-29 12:00:00

Texts of dates and times sort in the order of time, because years up to 9999 have four digits. The rules do not apply to
later years, nor to years before 1901, which Spark may format by other calendars. Each condition is TRUE where the left
one is TRUE, and FALSE where it is FALSE; verdicts of TRUE and FALSE need no more (:mod:`geoskip.planner`).
"""

from __future__ import annotations

import datetime as dt
import re

from geoskip.predicates import And, Cast, Comparison, In, Literal, Opaque, Or, Predicate, StartsWith
from geoskip.types import SqlType, sql_type

_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,18})")
_TIME = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?)?)?)?)?",
    re.ASCII,
)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_UNITS = (("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))
_DAY = 86_400_000_000
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
        case Comparison("=" | "<" | "<=" | ">" | ">=" as op, Cast(child, "string") as cast, Literal(str() as text)):
            kind = _source(cast)
            if kind.is_integral:
                return _integer_condition(child, kind, (text,)) if op == "=" else None
            return _comparison(op, cast, text)
        case In(Cast(child, "string") as cast, values) if values and all(isinstance(v.value, str) for v in values):
            kind = _source(cast)
            if kind.is_integral:
                return _integer_condition(child, kind, tuple(v.value for v in values))
            single = [_comparison("=", cast, v.value) for v in values[: _MOST + 1]]
            known = tuple(one for one in single if one is not None)
            return Or(known) if len(known) == len(single) <= _MOST else None
        case StartsWith(Cast(_, "string") as cast, text) if not _source(cast).is_integral:
            return _prefix_range(cast, text)
    return None


_MOST = 16


def _source(cast: Cast) -> SqlType:
    return sql_type(cast.child.type or cast.source)


def _integer_condition(child: Predicate, kind: SqlType, texts: tuple[str, ...]) -> Predicate:
    """Condition that a number has one of these texts; no number has a text such as 05 or 1e3."""
    numbers = [int(text) for text in texts if _NUMBER.fullmatch(text)]
    found = tuple(Literal(number, kind.name) for number in numbers if number in kind.values)
    return Comparison("=", child, found[0]) if len(found) == 1 else In(child, found)


def _comparison(op: str, cast: Cast, text: str) -> Predicate | None:
    shown, found = _local_time(cast), stretch_of(text)
    if shown is None or found is None:
        return None
    (start, end), unit = found, _unit(shown)
    if unit == _DAY and end - start < _DAY:
        return None
    whole = end - start == unit if unit == _DAY else "." in text or end - start == 1_000_000
    if not whole:  # a text with this prefix is longer, and greater
        if op == "=":
            return _in_known_years(shown, In(shown, ()))
        op = ">=" if op[0] == ">" else "<"
    return _in_known_years(shown, Comparison(op, shown, _literal(start, shown)))


def _prefix_range(cast: Cast, text: str) -> Predicate | None:
    shown = _local_time(cast)
    plain = re.sub(r"[-: ]$", "", text)
    found = None if shown is None else stretch_of(plain)
    if shown is None or found is None or (_unit(shown) == _DAY and len(text) > len("2024-02-29")):
        return None
    start, end = found
    if plain != text and not str(_EPOCH + start * _MICROSECOND).startswith(text):
        return None  # another separator
    within = (Comparison(">=", shown, _literal(start, shown)), Comparison("<", shown, _literal(end, shown)))
    return _in_known_years(shown, And(within))


def _local_time(cast: Cast) -> Predicate | None:
    """The date, or the local time, that is formatted."""
    match _source(cast).kind:
        case "date" | "timestamp_ntz":
            return cast.child
        case "timestamp" if cast.zone is not None:
            return Cast(cast.child, "timestamp_ntz", "timestamp", cast.ansi, cast.zone)
    return None


def _unit(shown: Predicate) -> int:
    return _DAY if shown.type == "date" else 1


def _literal(micros: int, shown: Predicate) -> Literal:
    return Literal(micros // _DAY, "date") if _unit(shown) == _DAY else Literal(micros, "timestamp_ntz")


def _in_known_years(shown: Predicate, condition: Predicate) -> Predicate:
    first, last = _literal(_FIRST, shown), _literal(_LAST, shown)
    other = Or((Comparison("<", shown, first), Comparison(">", shown, last)))
    return Or((condition, And((other, Opaque("the text of another year")))))


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
    length = 10 ** (6 - len(part)) if part else next((n for name, n in reversed(_UNITS) if found[name]), _DAY)
    return start, start + length
