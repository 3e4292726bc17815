"""What a comparison of a time says of its day, for an index over the day.

Spark turns ``to_date(s, 'yyyy-MM-dd') >= DATE'2024-04-01'`` and ``CAST(ts AS date) = ...`` into comparisons of the time
itself, which an index over the day does not meet. It is asked about the day instead.

*Why that is sound*: the day of a time is ``floor((time + offset) / 24 h)``. In UTC and at a fixed offset it rises with
the time. Elsewhere the offset is not known here, only that it lies within 18 hours of UTC, as Java's do: from
``x >= L`` follows that the day of x is not before that of L at -18 hours, whatever the clocks did in between. What is
said holds for every row for which the comparison is TRUE; of FALSE and NULL nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from geoskip.bounds.engine_evaluated import has_fixed_zone
from geoskip.bounds.sort_keys import physical
from geoskip.indexes.base import Index
from geoskip.predicates import Cast, Comparison, Literal, Predicate

__all__ = ["of_the_day"]

_HOUR = 3_600_000_000
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::(\d\d))?$")


def of_the_day(node: Predicate, index: Index) -> Iterator[Predicate]:
    """What a condition on a time implies for the day of it that an index is over.

    >>> from geoskip.indexes.minmax import MinMax
    >>> from geoskip.predicates import Column
    >>> ts = Column("ts", "timestamp")
    >>> noon = Comparison("<", ts, Literal(36 * 3_600_000_000, "timestamp"))
    >>> for zone in ("UTC", "+14:00", "America/New_York"):
    ...     print(*of_the_day(noon, MinMax("to_date(ts)").bind([Cast(ts, "date", "timestamp", zone=zone)])))
    CAST(ts AS date) <= DATE '1970-01-02'
    CAST(ts AS date) <= DATE '1970-01-03'
    CAST(ts AS date) <= DATE '1970-01-03'
    """
    match node:
        case Comparison("=" | "<=>" | "<" | "<=" | ">" | ">=" as op, child, Literal(value, kind)) if _is_time(kind):
            time = physical(value)
        case _:
            return
    if isinstance(time, bool) or not isinstance(time, int):
        return
    for day in index.bound:
        if isinstance(day, Cast) and day.type == "date" and day.child == child:
            least, most = (0, 0) if kind == "timestamp_ntz" else _offsets(day.zone)
            if op not in ("<", "<="):
                yield Comparison(">=", day, Literal(_day(time + (op == ">") + least), "date"))
            if op not in (">", ">="):
                yield Comparison("<=", day, Literal(_day(time - (op == "<") + most), "date"))


def _is_time(kind: str | None) -> bool:
    return kind in ("timestamp", "timestamp_ntz")


def _day(time: int) -> int:
    return time // (24 * _HOUR)


def _offsets(zone: str | None) -> tuple[int, int]:
    """The least and the greatest microseconds that a zone's clocks may be ahead of UTC."""
    if has_fixed_zone(zone):
        found = _OFFSET.match(zone or "")
        if found is None:
            return 0, 0
        ahead = (int(found[2]) * 60 + int(found[3] or 0)) * (_HOUR // 60) * (-1 if found[1] == "-" else 1)
        return ahead, ahead
    return -18 * _HOUR, 18 * _HOUR
