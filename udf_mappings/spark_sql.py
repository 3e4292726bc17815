"""Spark's own functions over one expression, mapped to LIKE, equality or a time interval.

Each rule returns its index's clause for another predicate that the row must also satisfy, and is bound to the Catalyst
class. Further functions of texts are in :mod:`udf_mappings.spark_texts`, monotone functions in
:mod:`udf_mappings.monotone_functions`. No mapping is needed for conditions that indexes support themselves
(comparisons, BETWEEN, LIKE, casts, sums, ``abs``, ``month``, ``%``), nor for functions that choose among values
(``if``, CASE, ``coalesce``, ``greatest``, maps: :mod:`geoskip.rewrite.composed`). ValueList evaluates every function.

To add a function, write a short rule, with the reason why no matching row is lost in its docstring.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from geoskip.bounds.sort_keys import literal_prefix
from geoskip.bounds.time_zones import NO_OFFSET
from geoskip.clauses import Clause, any_known, any_of
from geoskip.evaluation import clocks_of
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Cast, Comparison, EndsWith, In, Like, Literal, Not, Or, Predicate, StartsWith
from geoskip.registry import maps
from geoskip.rewrite.cast_to_string import stretch_of
from geoskip.types import sql_type
from udf_mappings import catalyst, equality

BEGINNINGS = (MinMax, Prefix)
"""Index types for prefixes of texts."""


def every(values: tuple[Literal, ...], rule: Callable[[Literal], Clause | None]) -> Clause | None:
    """Return the OR of a rule's clauses for each value; None if one of them is None."""
    return any_known(rule(value) for value in values if value.value is not None)


@maps(*catalyst("Substring", "substring", "substr"), index=(*BEGINNINGS, GeoBox))
def substring_prefix(node: Predicate, index: Index) -> Clause | None:
    """``substring(s, 1, n) = 'ab'``: s begins with ``ab``; the negation: it does not.

    ``substring(s, 1, n) >= 'ab'``: s is also at least ``ab``. (``left`` is optimized to ``substring``.)

    ``substring(s, 1, n) < 'ab'``: s is below the first n characters of ``ab``, or begins with them.

    ``substring(s, 1, n) LIKE 'a%'``: s also begins with ``a``.

    The text may be the result of another mapped function, such as the geohash of a geometry with an index on its box.
    """
    match node:
        case Comparison("=", Call(_, (text, Literal(0 | 1), Literal(int() as n))), Literal(str() as start)) if (
            len(start) < n and start.isascii()
        ):
            return index.clause(Comparison("=", text, Literal(start, "string")))  # the text has no further characters
        case Comparison("=", Call(_, (text, Literal(0 | 1), _)), Literal(str() as start)):
            return clause_for(StartsWith(text, start), [index])  # the text may be a formatted date
        case In(Call(_, (text, Literal(0 | 1), _)), values):
            return every(values, lambda value: clause_for(StartsWith(text, value.value), [index]))
        case Comparison(">" | ">=" as op, Call(_, (text, Literal(0 | 1), _)), Literal(str()) as start):
            return index.clause(Comparison(op, text, start))
        case Comparison(
            "<" | "<=" as op, Call(_, (text, Literal(0 | 1), Literal(int() as n))), Literal(str() as start)
        ):
            if n < 1 or not start.isascii():
                return None
            first = start[:n]
            below = clause_for(Comparison("<", text, Literal(first, "string")), [index])
            same = op == "<" and first == start
            return below if same else any_of([below, clause_for(StartsWith(text, first), [index])])
        case StartsWith(Call(_, (text, Literal(0 | 1), _)), start):
            return clause_for(StartsWith(text, start), [index])
        case Like(Call(_, (text, Literal(0 | 1), _)), pattern, escape):
            return clause_for(StartsWith(text, literal_prefix(pattern, escape)[0]), [index])
        case Not(StartsWith(Call(_, (text, Literal(0 | 1), Literal(int() as n))), start)) if len(start) <= n:
            return index.clause(Not(StartsWith(text, start))) if start.isascii() else None
        case Not(Comparison("=", Call(_, (text, Literal(0 | 1), Literal(int() as n))), Literal(str() as start))):
            return index.clause(Not(StartsWith(text, start))) if len(start) == n and start.isascii() else None
    return None


@maps(*catalyst("Substring", "substring", "substr"), index=Suffix)
def substring_suffix(node: Predicate, index: Suffix) -> Clause | None:
    """``substring(s, -n) = 'ab'``, the optimized form of ``right(s, n)``: s ends with it.

    The negation is not mapped: in invalid UTF-8, Spark may count the characters of the same suffix differently.
    """
    match equality(node):
        case (Call(_, (text, Literal(int() as at), Literal(int() as n))), values) if at < 0 and n >= -at:
            return every(values, lambda value: index.clause(EndsWith(text, value.value)))
    return None


@maps(*catalyst("StringInstr", "instr"), *catalyst("StringLocate", "locate", "position", "charindex"), index=BEGINNINGS)
def instr_prefix(node: Predicate, index: Index) -> Clause | None:
    """``instr(s, 'ab') = 1``: s begins with ``ab``; the negation: it does not.

    The same holds for ``locate('ab', s) = 1``, with a search from the first character.
    """
    match node.child if isinstance(node, Not) else node:
        case Comparison(
            "=", Call(_, (text, Literal(str() as start)) | (Literal(str() as start), text, Literal(1))), Literal(1)
        ):
            begins = StartsWith(text, start)
            return index.clause(Not(begins) if isinstance(node, Not) else begins)
    return None


@maps(*catalyst("ArrayContains", "array_contains"), index=Index)
def array_membership(node: Predicate, index: Index) -> Clause | None:
    """``array_contains(array('a', 'b'), x)`` is ``x IN ('a', 'b')``, also with a NULL in the array."""
    match node:
        case Call(_, (Literal(tuple() as values) as array, x)) | Not(Call(_, (Literal(tuple() as values) as array, x))):
            kind = sql_type(array.type).element.name or None
            among = In(x, tuple(Literal(value, kind) for value in values))
            return clause_for(Not(among) if isinstance(node, Not) else among, [index])
    return None


# ---- dates as texts

_FORMATS = {
    "yyyy": "%Y",
    "yyyy-MM": "%Y-%m",
    "yyyyMM": "%Y%m",
    "yyyy/MM": "%Y/%m",
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyyMMdd": "%Y%m%d",
    "yyyy/MM/dd": "%Y/%m/%d",
    "yyyy-MM-dd HH": "%Y-%m-%d %H",
    "yyyyMMddHH": "%Y%m%d%H",
}
"""Spark's formats that each determine one period, with Python's equivalents."""
_DAY = 86_400_000_000
_OLD = -2_177_452_800_000_000
"""1901; for earlier times formatters of other calendars may use other offsets, too."""


@maps(*catalyst("DateFormatClass", "date_format"), index=(MinMax, GapList))
def date_format_period(node: Predicate, index: Index) -> Clause | None:
    """``date_format(ts, 'yyyy-MM') = '2026-10'``: local time from 1 October to 1 November.

    Times before 1901 are kept: with ``spark.sql.legacy.timeParserPolicy=LEGACY``, other calendars and offsets apply,
    and years BC are formatted like years AD.
    """
    match equality(node):
        case (Call(_, (time, Literal(str() as form))) as call, texts):
            pass
        case _:
            return None
    if form not in _FORMATS or time.type != "timestamp" or len(call.flags) != 1:
        return None
    found = [_stretch(text.value, form) for text in texts]
    if not found or None in found:
        return None
    shown, unit = _local_time(time, call.flags[0])
    if any(end % unit for ends in found if ends is not None for end in ends):
        return None  # a date cannot represent an hour
    kind = "date" if unit > 1 else "timestamp_ntz"

    def bound(op: str, micros: int) -> Predicate:
        return Comparison(op, shown, Literal(micros // unit, kind))

    zone = call.flags[0]
    parts = (
        And((bound(">=", first - _DAY if unit > 1 and _may_follow_a_gap(first, zone) else first), bound("<", last)))
        for first, last in (ends for ends in found if ends is not None)
    )
    return clause_for(Or((*parts, bound("<", _OLD))), [index])


def _may_follow_a_gap(midnight: int, zone: str) -> bool:
    """Test whether a zone may have skipped the day before a midnight, which then starts at this midnight."""
    clocks = None if zone in NO_OFFSET else clocks_of(zone)
    if clocks is None or midnight > clocks.until - 4 * _DAY:
        return zone not in NO_OFFSET
    since, to = clocks.at + clocks.ahead[:-1], clocks.at + clocks.ahead[1:]
    return bool(((since <= midnight - _DAY) & (to >= midnight)).any())


def _local_time(time: Predicate, zone: str) -> tuple[Predicate, int]:
    """Return the local time of a zone and its unit in microseconds; for a cast date, the date."""
    match time:
        case Cast(day, "timestamp", source, zone=in_zone) if in_zone == zone and (day.type or source) == "date":
            return day, _DAY
    return Cast(time, "timestamp_ntz", "timestamp", zone=zone), 1


def _stretch(text: str, form: str) -> tuple[int, int] | None:
    """Start and end, in microseconds since 1970, of the period with a formatted text, or None."""
    try:
        first = dt.datetime.strptime(text, _FORMATS[form])
    except ValueError:
        return None
    written = str(first)[: 4 + 3 * sum(part in form for part in ("MM", "dd", "HH"))]
    return stretch_of(written) if first.strftime(_FORMATS[form]) == text else None
