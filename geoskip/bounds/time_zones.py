"""Intervals of functions of local time and of periodic ones: ``hour(ts)``, ``month(day)``, ``n % 9``.

``cast(ts AS date)``, ``year(ts)`` and ``date_trunc('day', ts)`` are monotone in local time, but local time decreases
when clocks are set back: in New York 05:59Z is 01:59, and 06:30Z is 01:30. Between two transitions of the zone, local
time increases. So in a range of instants the least result is that of the first instant or of a transition, and the
greatest that of the last instant or of the instant just before a transition.

Only transitions within a few days of both ends of the range matter. *Why that is sound*: offsets are within 18 hours of
UTC, so an instant 36 hours later always has a later local time, and truncation moves a time by less than two days
(truncation to a week or a year depends on the date only). Four days are used. Beyond the known transitions, the
function is evaluated four days before and after the range instead.

``ts + INTERVAL 3 DAYS`` is the same local time three days later: within 36 hours of 72 hours later, or up to a day more
if that local time does not exist. So the results for the instants four days before and after the range bound it.

The transitions of a zone (:class:`geoskip.evaluation.ZoneTransitions`) come from Spark's own tables.

A *break* is an instant at which a function may decrease: a transition and, for truncation to at most a day, also the
end of the truncation unit in which the clocks are set, since its beginning may not exist in local time.

Periodic functions increase within a *period* (a year, a day, a hundred) and then start again: if both ends lie in one
period, the results at the ends bound all results; else any result of the function may occur. The calendar is the
proleptic Gregorian one, as in Spark since 3.0 and in NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geoskip.bounds.arithmetic import of_kind
from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import IncomparableError, Ints
from geoskip.clauses import Mask
from geoskip.evaluation import clocks_of
from geoskip.evaluation.values import FIRST, LAST, ZoneTransitions
from geoskip.predicates import Call, Cast, Literal
from geoskip.registry.functions import CATALYST
from geoskip.types import DAY

NO_OFFSET = frozenset(["UTC", "GMT", "Z", "Etc/UTC"])
_FIXED = re.compile(r"(UTC|GMT|Z|Etc/UTC|(UTC|GMT)?[+-]\d\d?(:\d\d)?)$")
_HOUR = 3_600_000_000
_FAR = 4 * DAY
_TRUNCATES = CATALYST + "TruncTimestamp"
_UNITS = {"minute": 60_000_000, "hour": _HOUR, "day": DAY, "dd": DAY}
_BY_THE_DAY = ("week", "month", "mon", "mm", "quarter", "year", "yyyy", "yy")

_FROM_UTC, _TO_UTC = CATALYST + "FromUTCTimestamp", CATALYST + "ToUTCTimestamp"
_ADDS = (CATALYST + "TimeAdd", CATALYST + "TimestampAddInterval")
_ADDS_UNITS = CATALYST + "TimestampAdd"
_INTERVAL = re.compile("interval (day|hour|minute|second)")
OF_ONE_LENGTH = frozenset(["WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"])

Points = tuple[Ints, Ints]
"""Numbers of units, and for each an instant at which to evaluate a function."""


@dataclass(frozen=True)
class LocalTimeFunction:
    """A function of the local time in a zone.

    Attributes
    ----------
    zone : str
        The time zone.
    unit : int
        The microseconds of the unit that it truncates to, if at most a day; else 0.
    wide : bool
        True for functions from local times to instants, since local times may not exist, and for functions that add an
        interval to instants in local time.
    """

    zone: str
    unit: int = 0
    wide: bool = False

    def points(self, low: Ints, high: Ints, known_low: Mask, known_high: Mask) -> tuple[Points, Points]:
        """Return the instants at which the least and the greatest results of each unit may occur.

        Parameters
        ----------
        low, high : array of int64
            The first and the last instant of each unit, in microseconds since 1970.
        known_low, known_high : array of bool
            False for an open end.
        """
        clocks = clocks_of(self.zone)
        if clocks is None:
            raise IncomparableError(f"the clocks of {self.zone} are not known")
        last_known = clocks.until - _FAR
        far_low, far_high = (
            known & (self.wide | (end > last_known)) for known, end in ((known_low, low), (known_high, high))
        )
        known_low, known_high = known_low & (low >= FIRST + _FAR), known_high & (high <= LAST - _FAR)
        starts, stops = np.where(far_low, low - _FAR, low), np.where(far_high, high + _FAR, high)
        breaks = _breaks(clocks, self.unit)
        first = [(np.flatnonzero(known_low), starts[known_low])]
        last = [(np.flatnonzero(known_high), stops[known_high])]
        some = np.flatnonzero(known_low & ~far_low)
        first += _crossed_breaks(breaks, some, low[some], np.minimum(low[some] + _FAR, high[some]), shift=0)
        some = np.flatnonzero(known_high & ~far_high)
        last += _crossed_breaks(breaks, some, np.maximum(high[some] - _FAR, low[some]), high[some], shift=-1)
        return _join_points(first), _join_points(last)


def has_fixed_zone(zone: str | None) -> bool:
    """True for a time zone without transitions.

    >>> has_fixed_zone("+01:00"), has_fixed_zone("Europe/Berlin"), has_fixed_zone(None)
    (True, False, False)
    """
    return _FIXED.match(zone or "") is not None


def local(node: Call | Cast, source: str | None) -> LocalTimeFunction | None:
    """Return the local time function of a cast or a call; None for other expressions.

    >>> from geoskip.predicates import Column
    >>> ts = Column("ts", "timestamp")
    >>> local(Cast(ts, "date", zone="America/New_York"), "timestamp")
    LocalTimeFunction(zone='America/New_York', unit=0, wide=False)
    """
    match node:
        case Cast(_, "date" | "timestamp_ntz", zone=str() as zone) if source == "timestamp":
            return LocalTimeFunction(zone)
        case Cast(_, "timestamp", zone=str() as zone) if source == "timestamp_ntz":
            return LocalTimeFunction(zone, wide=True)
        case Call(_, (Literal(str() as unit), _), flags=(str() as zone, *_)) if node.implementation == _TRUNCATES:
            name = unit.lower()
            return LocalTimeFunction(zone, _UNITS.get(name, 0)) if name in _UNITS or name in _BY_THE_DAY else None
        case Call(_, (_, Literal(str() as zone))) if node.implementation in (_FROM_UTC, _TO_UTC):
            return LocalTimeFunction(zone, wide=node.implementation == _TO_UTC)
        case Call(_, (_, Literal(int(), str() as kind)), flags=(*_, str() as zone)) if node.implementation in _ADDS:
            return LocalTimeFunction(zone, wide=True) if _INTERVAL.match(kind) else None
        case Call(_, (Literal(int()), _), flags=(unit, str() as zone)) if node.implementation == _ADDS_UNITS:
            return LocalTimeFunction(zone, wide=True) if unit.upper() in OF_ONE_LENGTH else None
    return None


def local_times(interval: Interval, zone: str) -> Interval:
    """Return the local times in each interval of instants; unknown far in the future."""
    if interval.kind != "timestamp":
        raise IncomparableError(f"expected timestamp, got {interval.kind}")
    clocks = clocks_of(zone)
    if clocks is None:
        raise IncomparableError(f"the clocks of {zone} are not known")
    empty = interval.low > interval.high
    known = ~empty & (interval.low > FIRST + _FAR) & (interval.high < clocks.until - _FAR)
    (at_low, lows), (at_high, highs) = LocalTimeFunction(zone).points(interval.low, interval.high, known, known)
    low, high = np.full(len(empty), LAST), np.full(len(empty), FIRST)
    np.minimum.at(low, at_low, lows + _ahead(clocks, lows))
    np.maximum.at(high, at_high, highs + _ahead(clocks, highs))
    unknown = ~(empty | known)
    low[unknown], high[unknown] = FIRST, LAST
    return Interval("timestamp", low, high)


def cast_to_local_time(take: Callable[[Interval], Interval], zone: str) -> Callable[[Interval], Interval]:
    """Cast to local time by Spark if the query contains the cast, else by the zone's transitions."""

    def cast_times(interval: Interval) -> Interval:
        if zone in NO_OFFSET and interval.kind == "timestamp":
            return replace(interval, kind="timestamp_ntz")
        try:
            return take(interval)
        except IncomparableError:
            return replace(local_times(interval, zone), kind="timestamp_ntz")

    return cast_times


def _ahead(clocks: ZoneTransitions, times: Ints) -> Ints:
    return np.asarray(clocks.ahead[np.searchsorted(clocks.at, times, side="right")])


def _breaks(clocks: ZoneTransitions, unit: int) -> Ints:
    if not unit:
        return clocks.at
    into = (clocks.at + clocks.ahead[1:]) % unit
    return np.unique(np.concatenate([clocks.at, (clocks.at + unit - into)[into > 0]]))


def _crossed_breaks(breaks: Ints, files: Ints, after: Ints, upto: Ints, *, shift: int) -> list[Points]:
    """Return the breaks after one instant and up to another, for each unit."""
    found: list[Points] = []
    place = np.searchsorted(breaks, after, side="right")
    while len(breaks):
        here = breaks[np.minimum(place, len(breaks) - 1)]
        within = (place < len(breaks)) & (here <= upto)
        if not within.any():
            break
        files, place, upto = files[within], place[within] + 1, upto[within]
        found.append((files, here[within] + shift))
    return found


def _join_points(points: Sequence[Points]) -> Points:
    return np.concatenate([files for files, _ in points]), np.concatenate([times for _, times in points])


# --- periodic functions -----------------------------------------------------------------------------------------------

Parts = Callable[[Ints], tuple[Ints, Ints]]
"""From values to the numbers of their periods, and to their results within these."""


def in_year(unit: str, length: int) -> Parts:
    """Return the parts for months or days of the year, counted from 1 in steps of ``length``."""

    def parts(days: Ints) -> tuple[Ints, Ints]:
        dates = days.astype("M8[D]")
        years = dates.astype("M8[Y]")
        since = (dates.astype(f"M8[{unit}]") - years.astype(f"M8[{unit}]")).astype(np.int64)
        return years.astype(np.int64), since // length + 1

    return parts


def in_month(days: Ints) -> tuple[Ints, Ints]:
    """Return months, and days of the month, counted from 1."""
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    return months.astype(np.int64), (dates - months.astype("M8[D]")).astype(np.int64) + 1


def in_week_year(days: Ints) -> tuple[Ints, Ints]:
    """Return years and weeks of ISO 8601: weeks begin on Monday and belong to the year of their Thursday."""
    thursdays = (days - (days + 3) % 7 + 3).astype("M8[D]")
    years = thursdays.astype("M8[Y]")
    return years.astype(np.int64), (thursdays - years.astype("M8[D]")).astype(np.int64) // 7 + 1


def equal_periods(length: int, shift: int = 0, unit: int = 1, first: int = 0) -> Parts:
    """Return the parts for periods of equal length.

    Parameters
    ----------
    length
        The length of a period, in the unit of the values.
    shift
        The offset of the first period.
    unit
        The unit in which the results are counted.
    first
        The result for the first unit of a period.
    """
    return lambda values: ((values + shift) // length, (values + shift) % length // unit + first)


def periodic(interval: Interval, kind: str, parts: Parts, least: Any, most: Any) -> Interval:
    """Return the intervals of a function that increases within each period and then starts again.

    Parameters
    ----------
    interval : Interval
        The operand; raises IncomparableError for another kind.
    kind : str
        The kind of interval that the function supports.
    parts : Parts
        The periods and the results.
    least, most : int or array of int64
        The range of all results of the function, used if the ends lie in different periods.
    """
    if of_kind(interval, kind).scale:
        raise IncomparableError("no period of decimals")
    empty, unknown = interval.low > interval.high, interval.keys().unknown
    usable = ~(empty | unknown) & (interval.low > FIRST) & (interval.high < LAST)
    low, high = (np.where(usable, end, 0) for end in (interval.low, interval.high))
    (first, start), (last, end) = parts(low), parts(high)
    one = usable & (first == last)
    low, high = np.where(one, start, least), np.where(one, end, most)
    low, high = np.where(unknown, FIRST, low), np.where(unknown, LAST, high)
    low[empty & ~unknown], high[empty & ~unknown] = LAST, FIRST
    return Interval("number", low, high)


def remainder(interval: Interval, by: int, *, signed: bool) -> Interval:
    """Return the intervals of ``n % by`` (``signed``, with the sign of n) or of ``pmod(n, by)`` (from 0)."""
    found = periodic(interval, "number", equal_periods(by), 0, by - 1)
    if not signed:
        return found
    below = (interval.low < 0) & (interval.low <= interval.high) & ~interval.keys().unknown
    return Interval("number", np.where(below, 1 - by, found.low), np.where(below, by - 1, found.high))
