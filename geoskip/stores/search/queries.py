"""The server's query language, and the unit keys of indexes, used to express conditions as queries.

Keys of *listed values* (ValueList, Formatted, Hybrid, Prefix and Suffix): a document has each list of the file as a
multi-valued field: numbers, dates and times as the keys of :mod:`geoskip.evaluation.values`, strings and binary as
hexadecimal digits (reversed for Suffix). In addition it has the flags ``nulls``, if some value is NULL, and ``open``,
if there may be values that are not listed. A file with a long list, or with a long value in it, has no keys: every
query keeps it, and :attr:`ServerKeys.whole` is False, so that geoskip evaluates the clause on the files that were kept.

A unit is a listed value, NULL or an unlisted value, so it has a key in exactly one of these fields. Thus a condition
becomes one set of keys for each field, with AND as intersection and OR as union, as geoskip merges clauses value by
value; and a file is kept if it has a key in one of the sets.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds.interval import counts_of, plain
from geoskip.clauses import Files, Mask
from geoskip.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    Among,
    AnyOf,
    Compare,
    Condition,
    ExistsClause,
    FileClause,
    Interval,
    Negation,
    Refine,
    SomeValue,
    UnitTable,
    all_hold,
    any_holds,
    evaluate,
    intersection,
    is_exact,
    necessary,
    union,
)
from geoskip.evaluation.values import FIRST, LAST, NAN_KEY, float_keys, is_bytes, physical
from geoskip.indexes.postings import Postings, reverse_bytes
from geoskip.indexes.range_clauses import HasNulls
from geoskip.metadata import FileMetadata, IndexEntry

Query = dict[str, Any]

ALL: Query = {"match_all": {}}
NONE: Query = {"match_none": {}}


@dataclass(frozen=True)
class ServerKeys:
    """The keys of an index: one entry for each file, empty if every clause over the index keeps the file.

    ``whole`` is False if a file without keys may have a summary, so that clauses evaluated by geoskip may skip it.
    ``largest`` is at least the absolute value of every coordinate.
    """

    rows: list[dict[str, Any]]
    whole: bool = True
    largest: float = 0.0


@dataclass(frozen=True)
class KeyField:
    """The field of documents with the keys of an index; for the other attributes see :class:`ServerKeys`."""

    path: str
    entry: IndexEntry
    whole: bool = True
    largest: float = math.inf

    def is_true(self, flag: str) -> Query:
        """The query for documents with a flag set."""
        return {"term": {f"{self.path}.{flag}": True}}

    def is_missing(self, member: str) -> Query:
        """The query for documents without a key."""
        return negate({"exists": {"field": f"{self.path}.{member}"}})

    def compare(self, member: str, **limits: Any) -> Query:
        """The query for documents with a key within limits; infinite limits are left out."""
        finite = {name: limit for name, limit in limits.items() if limit not in (math.inf, -math.inf)}
        return (
            {"range": {f"{self.path}.{member}": finite}} if finite else {"exists": {"field": f"{self.path}.{member}"}}
        )


@dataclass(frozen=True)
class TranslatedQuery:
    """A query that matches the files that a clause keeps; ``exact`` if it matches no others."""

    query: Query
    exact: bool = True

    @property
    def size(self) -> int:
        """The number of simple queries in it."""
        return _count(self.query)


@dataclass(frozen=True)
class UnitKeys:
    """The keys of an index's units, by which conditions are translated into queries.

    Attributes
    ----------
    field : KeyField
        The keys of the index.
    table : UnitTable
        A table without units, for the clauses of the index.
    known : str
        A member of all documents that have keys; documents without it are kept.
    nullable : Container of str
        The columns that may be null.
    nested : str
        The member with the units as nested objects; empty if the document is the unit.
    """

    field: KeyField
    table: UnitTable
    known: str
    nullable: Container[str] = ()
    nested: str = ""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for documents with a unit that satisfies a condition; None if it would match all."""
        sent = _sendable(condition)
        if necessary(sent) == ALWAYS and not is_exact(sent):
            return None
        query = any_of([self.query_of(sent), self.field.is_missing(self.known)])
        return TranslatedQuery(query, is_exact(sent) and self.field.whole)

    def query_of(self, condition: Condition) -> Query:
        """The query for documents with keys and a unit that satisfies a condition."""
        if not self.nested:
            return query_of(condition, self.field, self.nullable)
        path = f"{self.field.path}.{self.nested}"
        return nested_query(path, query_of(condition, replace(self.field, path=path), self.nullable))


_DEEPEST = 12
_MOST_VALUES = 200
_LONGEST = 1000
"""Maximum number of bytes of a value in a query."""


def _sendable(condition: Condition, depth: int = _DEEPEST) -> Condition:
    """Replace parts of a condition by code if they are too deep, or have too many or too long values."""
    if not depth:
        return _left_out(ALWAYS, condition)
    match condition:
        case AllOf(parts):
            return all_hold(_sendable(part, depth - 1) for part in parts)
        case AnyOf(parts):
            return any_holds(_sendable(part, depth - 1) for part in parts)
        case Negation(part):
            return condition if is_exact(_sendable(part, depth - 1)) else _left_out(ALWAYS, condition)
        case SomeValue(values) if len(values) > _MOST_VALUES:
            return _left_out(_sendable(condition.hull(), depth - 1), condition)
        case SomeValue():
            return _sendable(condition.comparisons(), depth - 1)
        case Compare(_, _, bytes() as value) if len(value) > _LONGEST:
            return _left_out(ALWAYS, condition)
    return condition


def _left_out(where: Condition, condition: Condition) -> Condition:
    return Refine(where, lambda table, places: evaluate(condition, table)[places], str(condition))


_COMPARISONS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def query_of(condition: Condition, field: KeyField, nullable: Container[str] = ()) -> Query:
    """Translate the comparisons of a condition into a query, without the parts that are code.

    Parameters
    ----------
    condition, field
        The condition on the columns of the index's units, and the keys, with the columns' names as members. Bytes are
        keys of hexadecimal digits.
    nullable
        The columns that may be null; documents with null lack the member, and match.
    """
    return _query(necessary(condition), field, nullable, True)


def _query(condition: Condition, field: KeyField, nullable: Container[str], unknown: bool) -> Query:
    match condition:
        case AllOf(parts):
            return all_of(_query(part, field, nullable, unknown) for part in parts)
        case AnyOf(parts):
            return any_of(_query(part, field, nullable, unknown) for part in parts)
        case Negation(part):
            return negate(_query(part, field, nullable, not unknown))
        case Compare(column, op, value):
            found = _comparison_query(field, column, op, value)
        case Among(column, intervals):
            found = _among_query(field, column, intervals)
        case SomeValue():
            return _query(condition.comparisons(), field, nullable, unknown)
        case _:
            raise TypeError(f"{condition!r} is no condition on columns")
    return any_of([found, field.is_missing(column)]) if unknown and column in nullable else found


def _comparison_query(field: KeyField, column: str, op: str, value: Any) -> Query:
    if op == "=":
        return {"term": {f"{field.path}.{column}": _json(value)}}
    return field.compare(column, **{_COMPARISONS[op]: _json(value)})


def _among_query(field: KeyField, column: str, intervals: Sequence[Interval]) -> Query:
    """Single values become terms, and intervals ranges."""
    terms = [low for low, high in intervals if low is not None and high == next_key(low)]
    found: list[Query] = [{"terms": {f"{field.path}.{column}": list(map(_json, terms))}}] if terms else []
    for low, high in intervals:
        if low is None or high != next_key(low):
            limits = {"gte": low, "lt": high}
            found.append(field.compare(column, **{key: _json(end) for key, end in limits.items() if end is not None}))
    return any_of(found)


def next_key(value: Any) -> Any:
    """The least key above a key; None for None."""
    if isinstance(value, bytes):
        return value + b"\0"
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return None if value is None else value + 1


def _json(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value + 0.0 if isinstance(value, float) else value


def no_files(entry: IndexEntry) -> Files:
    """A files table without rows, for a unit table without units."""
    return FileMetadata.of(pa.table({entry.name: pa.array([], entry.arrow)}))


def all_of(queries: Iterable[Query]) -> Query:
    """The conjunction of queries."""
    parts = [part for query in queries for part in _inside(query, "filter") if part != ALL]
    if NONE in parts:
        return NONE
    return parts[0] if len(parts) == 1 else {"bool": {"filter": parts}} if parts else ALL


def any_of(queries: Iterable[Query]) -> Query:
    """The disjunction of queries."""
    parts = [part for query in queries for part in _inside(query, "should") if part != NONE]
    if ALL in parts:
        return ALL
    if not parts:
        return NONE
    return parts[0] if len(parts) == 1 else {"bool": {"should": parts, "minimum_should_match": 1}}


def _inside(query: Query, member: str) -> list[Query]:
    """The operands of a conjunction or disjunction, to flatten nested ones."""
    inside = query.get("bool", {})
    joined: list[Query] | None = inside.get(member)
    return joined if joined is not None and set(inside) <= {member, "minimum_should_match"} else [query]


def negate(query: Query) -> Query:
    """The negation of a query."""
    return {"bool": {"must_not": [query]}}


def nested_query(path: str, query: Query) -> Query:
    """The query for documents with a nested object that matches."""
    return NONE if query == NONE else {"nested": {"path": path, "query": query}}


def _count(query: Mapping[str, Any]) -> int:
    ((kind, inside),) = query.items()
    if kind == "nested":
        return 1 + _count(inside["query"])
    if kind != "bool":
        return 1
    return sum(_count(part) for some in ("filter", "should", "must_not") for part in inside.get(some, ()))


# --- listed values ----------------------------------------------------------------------------------------------------

_MOST_LISTED = 1000
"""Maximum number of listed values of a file with keys."""
_LONGEST_LISTED = 500
"""Maximum number of bytes of a value with a key, and of a literal in a query."""
_MOST_BYTES = 1 << 16
_MOST_TERMS = 2000
_MOST_RANGES = 200
_DIGITS = Context(prec=100)

Cells = list[Any]


def list_fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None if the summaries have no lists."""
    found: dict[str, Any] = {}
    for part, members in _lists_in(entry.arrow):
        for member in members:
            text = is_bytes(entry.arrow.field(member).type.value_type)
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


def list_keys_of(files: Files, entry: IndexEntry) -> ServerKeys:
    """The keys of all files with short enough lists."""
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
    """The keys by list and file, and a mask of the files with few and short enough values."""
    length = len(lists[0])
    count, size = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
    short = np.ones(length, dtype=bool)
    found = []
    for array in lists:
        lengths = np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
        owner = np.repeat(np.arange(length), lengths)
        values = physical(array.flatten())
        keys, sizes, fits = _keys(reverse_bytes(values.cast(pa.large_binary())) if turned else values)
        count += lengths
        np.add.at(size, owner, sizes)
        short[owner[~fits]] = False
        ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        found.append([keys[start:end] for start, end in pairwise(ends)])
    return found, short & (count <= _MOST_LISTED) & (size <= _MOST_BYTES)


def _keys(values: pa.Array) -> tuple[Cells, np.ndarray[Any, Any], Mask]:
    """The keys of physical values, the size of each, and a mask of the values that have a key."""
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
    return [text.hex() for text in texts], sizes, sizes <= _LONGEST_LISTED


def list_units_of(clause: FileClause | ExistsClause, field: KeyField) -> UnitKeys | None:
    """The keys of values, or of Hybrid's counts of NULL, that a clause compares; None for other clauses."""
    table = clause.units(no_files(field.entry))
    if type(clause) is HasNulls and not clause.is_derived:
        return UnitKeys(field, table, "nulls")
    members = {member.name for member in field.entry.arrow}
    if not isinstance(table, Postings) or not members.issuperset(table.dictionaries):
        return None
    return ListKeys(field, table, f"{table.part}nulls")


class ListKeys(UnitKeys):
    """The keys of listed values, by which conditions are translated into sets of keys."""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for files with a unit that satisfies a condition; None if too long or if it matches all."""
        compared = necessary(condition)
        if compared == ALWAYS:
            return None
        sets = [_within_64_bits(part) for part in _by_list(compared).values()]
        intervals = [interval for part in sets if isinstance(part, Among) for interval in part.intervals]
        ranges = sum(high != next_key(low) for low, high in intervals)
        if ranges > _MOST_RANGES or len(intervals) - ranges > _MOST_TERMS:
            return None
        if any(isinstance(end, bytes) and len(end) > _LONGEST_LISTED + 1 for interval in intervals for end in interval):
            return None
        query = any_of([query_of(any_holds(sets), self.field), self.field.is_missing(self.known)])
        return TranslatedQuery(query, self.field.whole and is_exact(condition))


def _by_list(condition: Condition) -> dict[str, Condition]:
    """For each list and flag, the condition on the keys in it."""
    if not isinstance(condition, AllOf | AnyOf):
        assert isinstance(condition, Among | Compare)
        return {condition.column: condition}
    every = isinstance(condition, AllOf)

    def join_names(one: dict[str, Condition], other: dict[str, Condition]) -> dict[str, Condition]:
        names = [name for name in {**one, **other} if not every or (name in one and name in other)]
        return {name: _join_conditions(one.get(name), other.get(name), every) for name in names}

    return reduce(join_names, map(_by_list, condition.parts)) if condition.parts else {}


def _join_conditions(one: Condition | None, other: Condition | None, every: bool) -> Condition:
    if not isinstance(one, Among) or not isinstance(other, Among):
        return one or other or NEVER
    intervals = intersection(one.intervals, other.intervals) if every else union([*one.intervals, *other.intervals])
    return Among(one.column, intervals)


def _within_64_bits(condition: Condition) -> Condition:
    """The condition without numbers outside of 64 bits, which a literal may be and no document has."""
    if not isinstance(condition, Among) or any(isinstance(end, bytes) for ends in condition.intervals for end in ends):
        return condition
    within = intersection(condition.intervals, ((FIRST, LAST + 1),))
    open_ends = tuple((None if low == FIRST else low, None if high > LAST else high) for low, high in within)
    return Among(condition.column, open_ends)
