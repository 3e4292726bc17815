"""Date and time strings in the SQL format that all engines parse alike, and starts of calendar units.

>>> time_of("2024-02-29"), time_of("2024-02-29 12:00:00.5"), time_of("2024-02-29T12:00:00Z")
(DATE 19782, TIME 1709208000500000, INSTANT 1709208000000000)
>>> time_of("2024-2-29") is None, time_of("tomorrow") is None
(True, True)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np

from geoskip.types import DAY

_EPOCH = datetime(1970, 1, 1)
_FORM = re.compile(r"\d{4}-\d\d-\d\d(?P<clock>[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d(:\d\d)?)?)?", re.ASCII)
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = ("year", "quarter", "month", "week", "day")
"""Units with the same start in all engines: weeks start on Mondays."""


@dataclass(frozen=True)
class SqlTime:
    """A day, a local time or an instant.

    ``kind`` is ``date``, ``time`` or ``instant``; ``value`` is in days since 1970 for a date, else in microseconds.
    """

    kind: str
    value: int

    def __repr__(self) -> str:
        return f"{self.kind.upper()} {self.value}"

    @property
    def microseconds(self) -> int:
        """Microseconds since 1970; for a day those of its midnight."""
        return self.value * DAY if self.kind == "date" else self.value


def time_of(text: str) -> SqlTime | None:
    """Parse a date or a time; None for a format that engines parse differently."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    local = (found.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    if match["clock"] is None:
        return SqlTime("date", local // DAY)
    offset = found.utcoffset()
    return SqlTime("time", local) if offset is None else SqlTime("instant", local - offset // timedelta(microseconds=1))


@cache
def zone_of(name: str) -> ZoneInfo | None:
    """A time zone by its name; None if it is unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


def is_utc(zone: str | None) -> bool:
    """Test for the names of time zones without an offset.

    >>> is_utc("Etc/UTC"), is_utc("Europe/London"), is_utc(None)
    (True, False, False)
    """
    return zone in ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Z", "Zulu")


def instant_of(local: int, zone: str | None) -> int | None:
    """Convert a local time to an instant; None for an unknown zone, and times skipped or repeated.

    Also None before 1970, where the engines' time zone databases differ.
    """
    if is_utc(zone):
        return local
    found = zone_of(zone) if zone else None
    if found is None or local < 0:
        return None
    try:
        naive = _EPOCH + timedelta(microseconds=local)
        first, second = (naive.replace(tzinfo=found, fold=fold) for fold in (0, 1))
        offset = first.utcoffset()
        back = first.astimezone(UTC).astimezone(found).replace(tzinfo=None)
    except OverflowError:
        return None
    if offset is None or offset != second.utcoffset() or back != naive:
        return None
    return local - offset // timedelta(microseconds=1)


def starts(unit: str, local: int) -> tuple[int, int]:
    """Start of the calendar unit that contains a local time, and start of the next, in microseconds.

    >>> [value // DAY for value in starts("month", 19782 * DAY + 5)]
    [19754, 19783]
    """
    day = local // DAY
    if unit in _MONTHS:
        month = int(np.datetime64(day, "D").astype("datetime64[M]").astype(int)) // _MONTHS[unit] * _MONTHS[unit]
        ends = (np.datetime64(one, "M").astype("datetime64[D]").astype(int) for one in (month, month + _MONTHS[unit]))
        first, following = (int(end) * DAY for end in ends)
        return first, following
    first, length = (day - (day + 3) % 7, 7) if unit == "week" else (day, 1)
    return first * DAY, (first + length) * DAY
