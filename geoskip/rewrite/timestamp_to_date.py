"""Rewrite comparisons of a time as comparisons of its day, for indexes over the day.

Spark turns ``to_date(s, 'yyyy-MM-dd') >= DATE'2024-04-01'`` and ``CAST(ts AS date) = ...`` into comparisons of the time
itself, which an index over the day does not serve.

*Why that is sound*: the day of a time is ``floor((time + offset) / 24 h)``. In UTC and at a fixed offset it rises with
the time. Elsewhere the offset is not known here, only that it lies within 18 hours of UTC, as Java's do: from
``x >= L`` follows that the day of x is not before that of L at -18 hours, whatever the clocks did in between. The
conditions hold for every row for which the comparison is TRUE, and say nothing about FALSE and NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from geoskip.bounds.sort_keys import physical
from geoskip.bounds.time_zones import has_fixed_zone
from geoskip.predicates import And, Cast, Comparison, Literal, Predicate, normalise

__all__ = ["rewrite"]

_HOUR = 3_600_000_000
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::(\d\d))?$")


def rewrite(node: Predicate, expressions: Sequence[Predicate]) -> Predicate | None:
    """Return the conditions on indexed days of a time that a comparison of the time implies, or None.

    Parameters
    ----------
    node
        A vertex; only comparisons of a time with a literal imply anything.
    expressions
        The indexed expressions; the days among them are the casts of the compared time to a date.

    >>> from geoskip.predicates import Column
    >>> ts = Column("ts", "timestamp")
    >>> noon = Comparison("<", ts, Literal(36 * 3_600_000_000, "timestamp"))
    >>> for zone in ("UTC", "+14:00", "America/New_York"):
    ...     print(rewrite(noon, [Cast(ts, "date", "timestamp", zone=zone)]))
    CAST(ts AS date) <= DATE '1970-01-02'
    CAST(ts AS date) <= DATE '1970-01-03'
    CAST(ts AS date) <= DATE '1970-01-03'
    """
    match node:
        case Comparison("=" | "<=>" | "<" | "<=" | ">" | ">=" as op, child, Literal(value, kind)) if _is_time(kind):
            time = physical(value)
        case _:
            return None
    if isinstance(time, bool) or not isinstance(time, int):
        return None
    conditions: list[Predicate] = []
    for day in dict.fromkeys(expressions):
        if isinstance(day, Cast) and day.type == "date" and day.child == child:
            least, most = (0, 0) if kind == "timestamp_ntz" else _offsets(day.zone)
            if op not in ("<", "<="):
                conditions.append(Comparison(">=", day, Literal(_day(time + (op == ">") + least), "date")))
            if op not in (">", ">="):
                conditions.append(Comparison("<=", day, Literal(_day(time - (op == "<") + most), "date")))
    return normalise(And(tuple(conditions))) if conditions else None


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
