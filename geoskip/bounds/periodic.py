"""Functions that start anew: ``month(day)``, ``hour(ts)``, ``n % 100``; part of :mod:`geoskip.bounds.transfer`.

Each rises within a *period* (a year, a day, a hundred) and then starts anew. Where both bounds of a file lie in one
period, the results lie between those of the bounds; else any result of the function may occur, and no other.

The calendar is the proleptic Gregorian one, as Spark's is since 3.0 and NumPy's is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError
from geoskip.bounds.time_zones import NO_OFFSET, shown
from geoskip.predicates import Call, Literal, Predicate
from geoskip.types import sql_type

__all__ = ["periodic", "reads_clocks"]

Ints = NDArray[np.int64]
Parts = Callable[[Ints], tuple[Ints, Ints]]
"""From values to their periods, and to their places within these."""

_CATALYST = "org.apache.spark.sql.catalyst.expressions."
_HOUR, _DAY = 3_600_000_000, 86_400_000_000


def _in_year(unit: str, length: int) -> Parts:
    """Months or days since the beginning of the year, counted from 1; ``length`` of them are one step."""

    def parts(days: Ints) -> tuple[Ints, Ints]:
        dates = days.astype("M8[D]")
        years = dates.astype("M8[Y]")
        since = (dates.astype(f"M8[{unit}]") - years.astype(f"M8[{unit}]")).astype(np.int64)
        return years.astype(np.int64), since // length + 1

    return parts


def _in_month(days: Ints) -> tuple[Ints, Ints]:
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    return months.astype(np.int64), (dates - months.astype("M8[D]")).astype(np.int64) + 1


def _in_year_of_weeks(days: Ints) -> tuple[Ints, Ints]:
    """Weeks that begin on Mondays, counted from 1 in the year that their Thursday is in."""
    thursdays = (days - (days + 3) % 7 + 3).astype("M8[D]")
    years = thursdays.astype("M8[Y]")
    return years.astype(np.int64), (thursdays - years.astype("M8[D]")).astype(np.int64) // 7 + 1


def _within(length: int, shift: int = 0, unit: int = 1, first: int = 0) -> Parts:
    """Periods of one length: which of its ``unit`` it is in, counted from ``first``."""
    return lambda values: ((values + shift) // length, (values + shift) % length // unit + first)


_OF_DATES: dict[str, tuple[Parts, int, int]] = {
    "Quarter": (_in_year("M", 3), 1, 4),
    "Month": (_in_year("M", 1), 1, 12),
    "DayOfYear": (_in_year("D", 1), 1, 366),
    "DayOfMonth": (_in_month, 1, 31),
    "WeekOfYear": (_in_year_of_weeks, 1, 53),
    "DayOfWeek": (_within(7, shift=4, first=1), 1, 7),  # Sunday is 1, and 1970 began on a Thursday
    "WeekDay": (_within(7, shift=3), 0, 6),  # Monday is 0
}
_OF_TIMES: dict[str, tuple[Parts, int, int]] = {
    "Hour": (_within(_DAY, unit=_HOUR), 0, 23),
    "Minute": (_within(_HOUR, unit=60_000_000), 0, 59),
    "Second": (_within(60_000_000, unit=1_000_000), 0, 59),
}


def periodic(node: Call, source: str | None) -> tuple[Predicate, Callable[[Interval], Interval]] | None:
    """The operand of a function that starts anew, and what the function makes of its range; None for others.

    ``source`` is the operand's type.
    """
    kind = (node.implementation or "").removeprefix(_CATALYST)
    match node.args:
        case (child,) if kind in _OF_DATES and source == "date":
            return child, _taking("date", *_OF_DATES[kind])
        case (child,) if kind in _OF_TIMES and source == "timestamp" and len(node.flags) == 1:
            (zone,), taken = node.flags, _taking("timestamp", *_OF_TIMES[kind])
            return child, taken if zone in NO_OFFSET else lambda spans: taken(shown(spans, zone))
        case (child,) if kind in _OF_TIMES and source == "timestamp_ntz":  # as it stands there, in any zone
            return child, _taking("timestamp_ntz", *_OF_TIMES[kind])
        case (child, Literal(int() as by)) if kind in ("Remainder", "Pmod") and source == node.type:
            if sql_type(source).is_integral and not isinstance(by, bool) and 0 < by < LAST:
                return child, lambda spans: _remainder(spans, by, signed=kind == "Remainder")
    return None


def reads_clocks(node: Call) -> bool:
    """Is it of the time of day in a zone whose clocks the engine has to tell of?"""
    kind = (node.implementation or "").removeprefix(_CATALYST)
    local = node.args[0].type == "timestamp_ntz"
    return kind in _OF_TIMES and not local and NO_OFFSET.isdisjoint(node.flags)


def _taking(kind: str, parts: Parts, least: int, most: int) -> Callable[[Interval], Interval]:
    return lambda spans: _range_of(spans, kind, parts, least, most)


def _range_of(spans: Interval, kind: str, parts: Parts, least: Any, most: int) -> Interval:
    if spans.kind != kind or spans.scale:
        raise IncomparableError(f"expected {kind}, got {spans.kind}")
    empty, unknown = spans.low > spans.high, spans.keys().unknown
    usable = ~(empty | unknown) & (spans.low > FIRST) & (spans.high < LAST)
    low, high = (np.where(usable, end, 0) for end in (spans.low, spans.high))
    (first, start), (last, end) = parts(low), parts(high)
    one = usable & (first == last)
    low, high = np.where(one, start, least), np.where(one, end, most)
    low, high = np.where(unknown, FIRST, low), np.where(unknown, LAST, high)
    low[empty & ~unknown], high[empty & ~unknown] = LAST, FIRST
    return Interval("number", low, high)


def _remainder(spans: Interval, by: int, *, signed: bool) -> Interval:
    """``n % by`` has the sign of n, so its periods are those of numbers from 0 on; ``pmod`` has none."""
    if not signed:
        return _range_of(spans, "number", _within(by), 0, by - 1)
    found = _range_of(spans, "number", _within(by), np.where(spans.low >= 0, 0, 1 - by), by - 1)
    below = (spans.low < 0) & (spans.low <= spans.high) & ~spans.keys().unknown
    return Interval("number", np.where(below, 1 - by, found.low), np.where(below, by - 1, found.high))
