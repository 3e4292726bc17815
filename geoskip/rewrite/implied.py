"""Conditions that a vertex implies: by declared properties of functions, and on indexed days of times.

Declared properties (:func:`geoskip.declare`):

* *Inverse*: ``inverse(f(x)) == x`` for every x, so ``f(x) = 5`` implies ``x = inverse(5)``, whatever index x has. An
  inverse that reads something else by now than when it was declared implies nothing.
* *Null in, null out*: every condition that needs a value of f needs values of all of its arguments.

Days: Spark turns ``to_date(s, 'yyyy-MM-dd') >= DATE'2024-04-01'`` and ``CAST(ts AS date) = ...`` into comparisons of
the time itself, which an index over the day does not serve.

*Why that is sound*: the day of a time is ``floor((time + offset) / 24 h)``. In UTC and at a fixed offset it rises with
the time. Elsewhere the offset is not known here, only that it lies within 18 hours of UTC, as Java's do: from
``x >= L`` follows that the day of x is not before that of L at -18 hours, whatever the clocks did in between. The
conditions hold for every row for which the comparison is TRUE, and say nothing about FALSE and NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from geoskip.bounds.monotone import THROUGH_ARROW, physical_value, python_value
from geoskip.bounds.sort_keys import physical
from geoskip.bounds.time_zones import has_fixed_zone
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    normalise,
)
from geoskip.registry import current
from geoskip.registry.fingerprint import is_unchanged

_HOUR = 3_600_000_000
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::(\d\d))?$")


def invert(node: Predicate) -> Predicate | None:
    """Return the condition on x that ``f(x) = 5`` or ``f(x) IN (5, 6)`` implies by f's inverse.

    >>> from geoskip.predicates import Column
    >>> from geoskip.registry import declare, mappings
    >>> with mappings():
    ...     _ = declare("plus_one", inverse=lambda y: y - 1, null_in_null_out=True)
    ...     invert(Comparison("=", Call("plus_one", (Column("x", "int"),), type="int"), Literal(5, "int")))
    x IN (4)
    """
    match node:
        case Comparison("=", Call(_, (x,)) as call, Literal() as literal):
            literals: Sequence[Literal] = (literal,)
        case In(Call(_, (x,)) as call, literals):
            pass
        case _:
            return None
    said = current().properties_of(call)
    kind = x.type
    if said is None or said.inverse is None or kind is None or call.type is None or call.type == "float":
        return None
    if not is_unchanged(said.inverse):
        return None
    values = []
    if any(literal.value is None for literal in literals) or (kind == "bigint" and call.flags[:1] == THROUGH_ARROW):
        return None
    for literal in literals:
        value = physical_value(said.inverse(python_value(literal.value, call.type)), kind)
        if value is None:
            return None
        values.append(Literal(value, kind))
    found = In(x, tuple(values))
    return found if said.null_in_null_out else Or((found, IsNull(x)))


def need_arguments(node: Predicate) -> Predicate | None:
    """Return ``x IS NOT NULL`` for arguments of null-in-null-out functions whose value must not be NULL."""
    match node:
        case Not(IsNull(Call() as call)) | Not(Call() as call) | (Call() as call):
            calls = [call]
        case Comparison(_, left, right) | Not(Comparison("=" | "<" | "<=" | ">" | ">=", left, right)):
            plain = isinstance(right, Literal) and right.value is not None
            whole = not isinstance(node, Comparison) or node.op != "<=>" or plain
            calls = [side for side in (left, right) if isinstance(side, Call)] if whole else []
        case (
            In(Call() as call) | Not(In(Call() as call)) | StartsWith(Call() as call) | Not(StartsWith(Call() as call))
        ):
            calls = [call]
        case _:
            return None
    scope = current()
    strict = [call for call in calls if (said := scope.properties_of(call)) is not None and said.null_in_null_out]
    needed = tuple(Not(IsNull(x)) for call in strict for x in call.args if not isinstance(x, Literal))
    return And(needed) if needed else None


def days(node: Predicate, expressions: Sequence[Predicate]) -> Predicate | None:
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
    ...     print(days(noon, [Cast(ts, "date", "timestamp", zone=zone)]))
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
