"""Spark's own functions over one expression: what amounts to LIKE or equality, and what looks through coalesce.

LIKE itself, comparisons, and casts, sums and negations of the indexed expression need no mapping: indexes know them.
Each rule asks its index about another predicate that the row must satisfy too, and is bound to the Catalyst class.

To add a function: a rule of a few lines, with the reason why no matching row is lost in its docstring.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from geoskip.clauses import Clause, any_of
from geoskip.indexes.base import Index
from geoskip.indexes.bloom import BloomFilter
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.prefix import Prefix
from geoskip.indexes.suffix import Suffix
from geoskip.labelling import clause_for
from geoskip.predicates import Call, Comparison, EndsWith, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.registry import Function, maps

BEGINNINGS = (MinMax, Prefix)
"""Indexes that know what texts begin with."""
CATALYST = "org.apache.spark.sql.catalyst.expressions."


def functions(kind: str, *names: str) -> list[Function]:
    """One Catalyst class under its SQL names."""
    return [Function(name, classes=(CATALYST + kind,)) for name in names]


def every(values: tuple[Literal, ...], rule: Callable[[Literal], Clause | None]) -> Clause | None:
    """The OR of what a rule says of each value, where it says something of all."""
    found = [rule(value) for value in values if value.value is not None]
    return any_of(clause for clause in found if clause is not None) if None not in found else None


@maps(*functions("Substring", "substring", "substr"), index=BEGINNINGS)
def a_beginning(node: Predicate, index: Index) -> Clause | None:
    """``substring(s, 1, n) = 'ab'``: s begins with it, and what begins with n characters more has another beginning.

    ``substring(s, 1, n) >= 'ab'``: s is not below its own beginning. (``left`` arrives as ``substring``.)
    """
    match node:
        case Comparison("=" | "<=>", Call(_, (text, Literal(0 | 1), Literal(int() as n))), Literal(str() as start)) if (
            len(start) < n and start.isascii()
        ):
            return index.clause(Comparison("=", text, Literal(start, "string")))  # there is no more of it
        case Comparison("=" | "<=>", Call(_, (text, Literal(0 | 1), _)), Literal(str() as start)):
            return index.clause(StartsWith(text, start))
        case In(Call(_, (text, Literal(0 | 1), _)), values):
            return every(values, lambda value: index.clause(StartsWith(text, value.value)))
        case Comparison(">" | ">=" as op, Call(_, (text, Literal(0 | 1), _)), Literal(str()) as start):
            return index.clause(Comparison(op, text, start))
        case Not(Comparison("=", Call(_, (text, Literal(0 | 1), Literal(int() as n))), Literal(str() as start))):
            return index.clause(Not(StartsWith(text, start))) if len(start) == n and start.isascii() else None
    return None


@maps(*functions("Substring", "substring", "substr"), index=Suffix)
def an_end(node: Predicate, index: Suffix) -> Clause | None:
    """``substring(s, -n) = 'ab'``, which ``right(s, n)`` arrives as: s ends with it.

    Not so the negation: in a text that is not UTF-8, Spark may count the characters of the same end otherwise.
    """
    match node:
        case Comparison("=" | "<=>", Call(_, (text, Literal(int() as at), Literal(int() as n))), Literal(str() as end)):
            return index.clause(EndsWith(text, end)) if at < 0 and n >= -at else None
        case In(Call(_, (text, Literal(int() as at), Literal(int() as n))), values) if at < 0 and n >= -at:
            return every(values, lambda value: index.clause(EndsWith(text, value.value)))
    return None


@maps(*functions("StringInstr", "instr"), index=BEGINNINGS)
def found_first(node: Predicate, index: Index) -> Clause | None:
    """``instr(s, 'ab') = 1`` says that s begins with it, and its negation that it does not."""
    match node:
        case Comparison("=" | "<=>", Call(_, (text, Literal(str() as start))), Literal(1)):
            return index.clause(StartsWith(text, start))
        case Not(Comparison("=", Call(_, (text, Literal(str() as start))), Literal(1))):
            return index.clause(Not(StartsWith(text, start)))
    return None


@maps(*functions("StringLocate", "locate", "position", "charindex"), index=BEGINNINGS)
def located_first(node: Predicate, index: Index) -> Clause | None:
    """``locate('ab', s) = 1`` says the same as ``instr(s, 'ab') = 1``, searching from the first character on."""
    match node:
        case Comparison("=" | "<=>", Call(_, (Literal(str() as start), text, Literal(1))), Literal(1)):
            return index.clause(StartsWith(text, start))
        case Not(Comparison("=", Call(_, (Literal(str() as start), text, Literal(1))), Literal(1))):
            return index.clause(Not(StartsWith(text, start)))
    return None


@maps(*functions("RLike", "rlike", "regexp", "regexp_like"), index=BEGINNINGS)
def an_anchored_pattern(node: Predicate, index: Index) -> Clause | None:
    """``s RLIKE '^ab...'`` without alternatives begins with what precedes the first special character.

    A character that a quantifier follows may be absent, so it is left out.

    >>> beginning_of("^ab+c"), beginning_of("^ab|c"), beginning_of("ab"), beginning_of("^user-7$")
    ('a', '', '', 'user-7')
    """
    match node:
        case Call(_, (text, Literal(str() as pattern))) if start := beginning_of(pattern):
            return index.clause(StartsWith(text, start))
    return None


def beginning_of(pattern: str) -> str:
    """What every match of a regular expression begins with, as far as is plain to see."""
    found = re.match(r"\^([A-Za-z0-9 _/:,;@=<>~\"'!%&#-]+)", pattern)
    if not found or "|" in pattern:
        return ""
    follows = pattern[found.end() : found.end() + 1]
    return found[1][:-1] if follows and follows in "?*{+" else found[1]


@maps(*functions("ArrayContains", "array_contains"), index=Index)
def in_an_array(node: Predicate, index: Index) -> Clause | None:
    """``array_contains(array('a', 'b'), x)`` is ``x IN ('a', 'b')``, a NULL among them included."""
    match node:
        case Call(_, (Literal(tuple() as values) as array, x)) | Not(Call(_, (Literal(tuple() as values) as array, x))):
            kind = (array.type or "").removeprefix("array<").removesuffix(">") or None
            among = In(x, tuple(Literal(value, kind) for value in values))
            return clause_for(Not(among) if isinstance(node, Not) else among, [index])
    return None


@maps(*functions("Coalesce", "coalesce"), index=(MinMax, GapList, BloomFilter, Prefix, Suffix))
def with_a_default(node: Predicate, index: Index) -> Clause | None:
    """``coalesce(x, 0) > 5``: x itself is above 5, or x is NULL."""

    def seen(inner: Predicate) -> Clause | None:
        clause = index.clause(inner)
        is_null = index.clause(IsNull(value))
        return any_of([clause, is_null]) if clause is not None and is_null is not None else None

    match node:
        case Comparison(_, Call(_, (value, Literal())), Literal(content)) if content is not None:
            return seen(replace(node, left=value))
        case In(Call(_, (value, Literal())), _):
            return seen(replace(node, child=value))
        case Not(Comparison("=", Call(_, (value, Literal())), Literal(content)) as equal) if content is not None:
            return seen(Not(replace(equal, left=value)))
    return None
