"""Spark's own functions over one expression, mapped to LIKE or equality.

Each rule returns its index's clause for another predicate that the row must also satisfy, and is bound to the Catalyst
class. Further functions of texts are in :mod:`udf_mappings.spark_texts`, monotone functions in
:mod:`udf_mappings.monotone_functions`. No mapping is needed for conditions that indexes support themselves
(comparisons, BETWEEN, LIKE, casts, sums, ``abs``, ``month``, ``%``), for formatted dates and times (``date_format``,
``from_unixtime``: :mod:`geoskip.rewrite.formatted_values`), nor for functions that choose among values (``if``, CASE,
``coalesce``, ``greatest``, maps: :mod:`geoskip.rewrite.composed`). ValueList evaluates every function.

To add a function, write a short rule, with the reason why no matching row is lost in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable

from geoskip.bounds.sort_keys import literal_prefix
from geoskip.clauses import Clause, any_known, any_of
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.planner import clause_for
from geoskip.predicates import Call, Comparison, EndsWith, In, Like, Literal, Not, Predicate, StartsWith
from geoskip.registry import maps
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
