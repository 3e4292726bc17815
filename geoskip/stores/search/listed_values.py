"""Keys and queries of listed values: ValueList, Formatted, Hybrid, Prefix and Suffix.

A document has each list of the file as a field of many values: numbers, dates and times as the keys of
:mod:`geoskip.bounds.sort_keys`, strings and binary as hexadecimal digits (Suffix's reversed). Beside them are the flags
``nulls``, if some value is NULL, and ``open``, if there may be values that are not listed.

A file whose list is long, or has a long value, has no keys: every query keeps it, and :attr:`ServerKeys.whole
<geoskip.stores.search.queries.ServerKeys>` is False, so that geoskip evaluates the clause on the files that were kept.

A condition passes a set of values, given as intervals, and maybe NULL and values that are not listed: each of these is
a *unit*, and a row has one. So AND intersects and OR unites the sets, as geoskip merges clauses value by value, and a
file is kept if it has a value in the set. Equality, IN, order, ``LIKE 'ab%'``, IS NULL and their negations are such
conditions. Others (LIKE in general, functions) are not translated.

An interval holds the values from its first member on and below its second; None is above everything. A set is a tuple
of disjoint intervals, ascending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds.interval import counts_of, plain
from geoskip.bounds.sort_keys import FIRST, LAST, NAN_KEY, float_keys
from geoskip.bounds.strings import successor
from geoskip.clauses import Clause, Files, Mask
from geoskip.evaluation import IS_FALSE, IS_NULL, IS_TRUE, physical, value_in
from geoskip.indexes.affix_postings import EntryPasses, mirrored
from geoskip.indexes.range_clauses import HasNulls
from geoskip.indexes.valuelist import ListMeets
from geoskip.metadata import IndexEntry
from geoskip.predicates import Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.stores.search.queries import KeyField, Query, ServerKeys, TranslatedQuery, any_of

__all__ = [
    "Interval",
    "Intervals",
    "ListedValueQuery",
    "complement",
    "fields_of",
    "intersection",
    "keys_of",
    "of_affixes",
    "of_list",
    "translate",
    "union",
]

_MOST_LISTED = 1000
"""The most values of a file with keys."""
_LONGEST = 500
"""Bytes of the longest value with a key, and of the longest literal in a query."""
_MOST_BYTES = 1 << 16
_MOST_TERMS = 2000
_MOST_RANGES = 200
_DIGITS = Context(prec=100)

Cells = list[Any]


# --- keys -------------------------------------------------------------------------------------------------------------


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no lists."""
    found: dict[str, Any] = {}
    for part, members in _lists_in(entry.arrow):
        for member in members:
            text = _is_text(entry.arrow.field(member).type.value_type)
            found[member] = {"type": "keyword" if text else "long"}
        found |= {f"{part}{flag}": {"type": "boolean"} for flag in ("nulls", "open")}
    return found or None


def _lists_in(summary: pa.DataType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The name prefix of each list's fields, and the fields that are lists."""
    names = {field.name for field in summary}
    if names >= {"whole", "cut", "nulls", "rows"}:
        yield "", ("whole", "cut")
        return
    for name in sorted(names):
        part = name.removesuffix("values")
        if name.endswith("values") and pa.types.is_list(summary.field(name).type) and {f"{part}nulls", "rows"} <= names:
            yield part, (name,)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys:
    """The keys of all files whose lists are short enough."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(files))]
    whole = True
    for part, members in _lists_in(entry.arrow):
        (nulls, counted), (_, known) = (counts_of(files, entry.name, name) for name in (f"{part}nulls", "rows"))
        stored = [plain(files.summary(entry.name, member)) for member in members]
        listed = np.logical_and.reduce([np.asarray(array.is_valid()) for array in stored])
        cells, short = _cells_of(stored, turned=bool(getattr(entry.index, "backwards", False)))
        known = known & counted
        whole &= bool(short[known].all())
        for at in np.flatnonzero(known & short):
            row: dict[str, Any] = {f"{part}nulls": bool(nulls[at] > 0), f"{part}open": not bool(listed[at])}
            if listed[at]:
                row |= {member: found[at] for member, found in zip(members, cells, strict=True)}
            rows[at] |= row
    return ServerKeys(rows, whole)


def _cells_of(lists: Sequence[pa.Array], *, turned: bool) -> tuple[list[list[Cells]], Mask]:
    """The keys of each list and file, and the files whose values are few and short enough."""
    length = len(lists[0])
    count, size = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
    short = np.ones(length, dtype=bool)
    found = []
    for array in lists:
        lengths = np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
        owner = np.repeat(np.arange(length), lengths)
        values = physical(array.flatten())
        keys, sizes, fits = _keys(mirrored(values.cast(pa.large_binary())) if turned else values)
        count += lengths
        np.add.at(size, owner, sizes)
        short[owner[~fits]] = False
        ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        found.append([keys[start:end] for start, end in pairwise(ends)])
    return found, short & (count <= _MOST_LISTED) & (size <= _MOST_BYTES)


def _keys(values: pa.Array) -> tuple[Cells, np.ndarray[Any, Any], Mask]:
    """The keys of physical values, the size of each, and the values that have one."""
    eights = np.full(len(values), 8, dtype=np.int64)
    if pa.types.is_decimal(values.type):
        scaled = [int(value.scaleb(values.type.scale, _DIGITS)) for value in values.to_pylist()]
        return scaled, eights, np.array([FIRST <= key <= LAST for key in scaled], dtype=bool)
    if pa.types.is_floating(values.type):
        plain_values = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        return np.where(np.isnan(plain_values), NAN_KEY, float_keys(plain_values)).tolist(), eights, eights > 0
    if pa.types.is_integer(values.type):
        return values.to_pylist(), eights, eights > 0
    texts = values.to_pylist()
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    return [text.hex() for text in texts], sizes, sizes <= _LONGEST


# --- clauses ----------------------------------------------------------------------------------------------------------


def translate(clause: Clause, field: KeyField) -> TranslatedQuery | None:
    """Translate a clause over counts, which Hybrid has beside its lists; None for others."""
    if type(clause) is not HasNulls or clause.is_derived:
        return None
    return TranslatedQuery(any_of([field.is_true("nulls"), field.is_missing("nulls")]), field.whole)


@dataclass(frozen=True)
class ListedValueQuery:
    """A condition on units: for each list a set of values, NULL, and values that are not listed."""

    field: KeyField
    part: str
    members: Mapping[str, Intervals]
    null: bool
    unlisted: bool

    def both(self, other: ListedValueQuery) -> ListedValueQuery:
        """The conjunction with another condition."""
        return self._join(other, intersection, self.null and other.null, self.unlisted and other.unlisted)

    def either(self, other: ListedValueQuery) -> ListedValueQuery:
        """The disjunction with another condition."""
        return self._join(other, _union, self.null or other.null, self.unlisted or other.unlisted)

    def _join(
        self, other: ListedValueQuery, join: Callable[[Intervals, Intervals], Intervals], null: bool, unlisted: bool
    ) -> ListedValueQuery:
        members = {name: join(found, other.members[name]) for name, found in self.members.items()}
        return ListedValueQuery(self.field, self.part, members, null, unlisted)

    def translate(self) -> TranslatedQuery | None:
        """The query for files with such a unit; None where it would be too long."""
        found: list[Query] = []
        for member, intervals in self.members.items():
            terms = [low for low, high in intervals if _is_one(low, high)]
            ranges = [(low, high) for low, high in intervals if not _is_one(low, high)]
            if len(terms) > _MOST_TERMS or len(ranges) > _MOST_RANGES:
                return None
            if any(isinstance(end, bytes) and len(end) > _LONGEST + 1 for interval in intervals for end in interval):
                return None
            if terms:
                found.append({"terms": {f"{self.field.path}.{member}": list(map(_shown, terms))}})
            found += [self.field.compare(member, **_limits(low, high)) for low, high in ranges]
        flags = [flag for flag, passes in (("nulls", self.null), ("open", self.unlisted)) if passes]
        found += [self.field.is_true(f"{self.part}{flag}") for flag in flags]
        return TranslatedQuery(any_of([*found, self.field.is_missing(f"{self.part}nulls")]), self.field.whole)


def _union(one: Intervals, other: Intervals) -> Intervals:
    return union([*one, *other])


def _is_one(low: Any, high: Any) -> bool:
    return bool(high == (low + b"\0" if isinstance(low, bytes) else low + 1))


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _limits(low: Any, high: Any) -> dict[str, Any]:
    """The limits of an interval for a range query, without the least value of all."""
    lower = {} if low in (b"", FIRST) else {"gte": _shown(low)}
    return lower if high is None else lower | {"lt": _shown(high)}


def of_affixes(clause: EntryPasses, field: KeyField) -> ListedValueQuery:
    """The condition of a clause over entries."""
    sides = {"whole": union(clause.whole), "cut": union(clause.cut)}
    if clause.inverted:
        sides = {name: complement(intervals, b"") for name, intervals in sides.items()}
    return ListedValueQuery(field, "", sides, clause.null, clause.values)


def of_list(clause: ListMeets, field: KeyField) -> ListedValueQuery | None:
    """The condition of a clause over a list; None where it cannot be translated."""
    member = f"{clause.part}values"
    if field.entry.arrow.get_field_index(member) < 0:
        return None
    kind = physical(pa.array([], field.entry.arrow.field(member).type.value_type)).type
    results = _condition_results(clause.node, clause.over, kind)
    if results is None:
        return None
    true, of_null = results
    first = b"" if _is_text(kind) else FIRST
    passing: list[Interval] = [*true] if clause.wanted & IS_TRUE else []
    if clause.wanted & IS_FALSE:
        if isinstance(clause.node, In) and any(v.value == 0 and pa.types.is_floating(kind) for v in clause.node.values):
            return None  # in a long IN Spark hashes, and -0.0 differs from 0.0
        passing += complement(true, first)
    found = union(passing)
    if first == FIRST:
        within = intersection(found, ((FIRST, LAST + 1),))  # a literal may lie outside
        found = tuple((low, None if high == LAST + 1 else high) for low, high in within)
    return ListedValueQuery(field, clause.part, {member: found}, bool(of_null & clause.wanted), clause.unlisted())


def _condition_results(node: Predicate, over: Predicate, kind: pa.DataType) -> tuple[Intervals, int] | None:
    """The values for which a condition is TRUE (for others it is FALSE), and its result for NULL."""
    first = b"" if _is_text(kind) else FIRST
    match node:
        case Not(child):
            results = _condition_results(child, over, kind)
            if results is None or isinstance(child, In):
                return None
            negation = {IS_TRUE: IS_FALSE, IS_FALSE: IS_TRUE, IS_NULL: IS_NULL}
            return complement(results[0], first), negation[results[1]]
        case IsNull(child) | Comparison("<=>", child, Literal(None)) if child == over:
            return (), IS_TRUE
        case Comparison(op, child, Literal(value) as literal) if child == over and value is not None:
            cut = _cut(literal, kind, over)
            of_null = IS_FALSE if op == "<=>" else IS_NULL
            return None if cut is None else (union([_comparison(op, *cut, first)]), of_null)
        case In(child, literals) if child == over and all(literal.value is not None for literal in literals):
            cuts = [_cut(literal, kind, over) for literal in literals]
            known = [cut for cut in cuts if cut is not None]
            return (union(known), IS_NULL) if len(known) == len(cuts) else None
        case StartsWith(child, text) if child == over and _is_text(kind):
            prefix = text.encode("utf-8", "surrogateescape")
            return union([(prefix, successor(prefix))]), IS_NULL
    if node == over and over.type == "boolean":
        return ((1, 2),), IS_NULL
    return None


def _cut(literal: Literal, kind: pa.DataType, over: Predicate) -> Interval | None:
    """The interval of keys equal to a literal, empty if it lies between two keys; None if not comparable."""
    value = value_in(literal, kind, over)
    if value is None:
        return None
    if isinstance(value, bytes):
        return value, value + b"\0"
    if pa.types.is_floating(kind):
        key = NAN_KEY if value != value else int(float_keys(np.array([value], dtype=np.float64))[0])
        return key, key + 1
    if not isinstance(value, Decimal):
        return int(value), int(value) + 1
    if not value.is_finite() or abs(value.adjusted()) > 80:
        return None
    scaled = Fraction(value) * Fraction(10) ** kind.scale
    return ceil(scaled), floor(scaled) + 1


def _comparison(op: str, start: Any, end: Any, first: Any) -> Interval:
    match op:
        case "<":
            return first, start
        case "<=":
            return first, end
        case ">":
            return end, None
        case ">=":
            return start, None
    return start, end


Interval = tuple[Any, Any]
Intervals = tuple[Interval, ...]


def union(intervals: Iterable[Interval]) -> Intervals:
    """The union of intervals.

    >>> union([(5, 7), (1, 3), (6, None), (2, 4), (4, 4)])
    ((1, 4), (5, None))
    """
    found: list[Interval] = []
    for low, high in sorted((i for i in intervals if i[1] is None or i[0] < i[1]), key=lambda interval: interval[0]):
        if found and (found[-1][1] is None or low <= found[-1][1]):
            found[-1] = found[-1][0], _later(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The intersection of two sets.

    >>> intersection(((1, 4), (6, None)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    found = []
    left, right = list(one), list(other)
    while left and right:
        (a, b), (c, d) = left[0], right[0]
        found.append((max(a, c), _earlier(b, d)))
        (left if b is not None and (d is None or b < d) else right).pop(0)
    return union(found)


def complement(intervals: Intervals, first: Any) -> Intervals:
    """The complement of a set, from a first value on.

    >>> complement(((1, 4), (6, None)), 0)
    ((0, 1), (4, 6))
    """
    found = []
    for low, high in intervals:
        found.append((first, low))
        if high is None:
            return union(found)
        first = high
    return union([*found, (first, None)])


def _later(one: Any, other: Any) -> Any:
    return None if one is None or other is None else max(one, other)


def _earlier(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)
