"""The server's query language, and the keys of an index that queries compare."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from geoskip.clauses import Files
from geoskip.conditions import (
    ALWAYS,
    AllOf,
    Among,
    AnyOf,
    Compare,
    Condition,
    Interval,
    Negation,
    Refine,
    SomeValue,
    UnitTable,
    all_hold,
    any_holds,
    evaluate,
    is_exact,
    necessary,
)
from geoskip.metadata import FileMetadata, IndexEntry

Query = dict[str, Any]

ALL: Query = {"match_all": {}}
NONE: Query = {"match_none": {}}


@dataclass(frozen=True)
class ServerKeys:
    """The keys of an index: an entry a file, empty for a file that every clause over the index keeps.

    ``whole`` is False if a file without keys may have a summary, so that clauses evaluated by geoskip may skip it.
    ``largest`` is at least the absolute value of every coordinate.
    """

    rows: list[dict[str, Any]]
    whole: bool = True
    largest: float = 0.0


@dataclass(frozen=True)
class KeyField:
    """The field of documents that holds the keys of an index; see :class:`ServerKeys` for the rest."""

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
    """A query for the files that a clause keeps; ``exact`` if it keeps no others."""

    query: Query
    exact: bool = True

    @property
    def size(self) -> int:
        """The number of simple queries in it."""
        return _count(self.query)


@dataclass(frozen=True)
class UnitKeys:
    """The keys of an index's units, in which conditions become queries.

    Attributes
    ----------
    field : KeyField
        The keys of the index.
    table : UnitTable
        A table without units, for the clauses of the index.
    known : str
        The member that all documents with keys have; those without are kept.
    nullable : Container of str
        The columns that may be null.
    nested : str
        The member that has the units as nested objects; empty where the document is the unit.
    """

    field: KeyField
    table: UnitTable
    known: str
    nullable: Container[str] = ()
    nested: str = ""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for documents with a unit that satisfies a condition; None if that is all of them."""
        sent = _sendable(condition)
        if necessary(sent) == ALWAYS and not is_exact(sent):
            return None
        query = any_of([self.query_of(sent), self.field.is_missing(self.known)])
        return TranslatedQuery(query, is_exact(sent) and self.field.whole)

    def query_of(self, condition: Condition) -> Query:
        """The query for documents with keys and such a unit."""
        if not self.nested:
            return query_of(condition, self.field, self.nullable)
        path = f"{self.field.path}.{self.nested}"
        return within(path, query_of(condition, replace(self.field, path=path), self.nullable))


_DEEPEST = 12
_MOST_VALUES = 200
_LONGEST = 1000
"""Bytes of the longest value in a query."""


def _sendable(condition: Condition, depth: int = _DEEPEST) -> Condition:
    """The condition with code in place of parts that are too deep, or whose values are too many or long."""
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
            return _sendable(condition.compared(), depth - 1)
        case Compare(_, _, bytes() as value) if len(value) > _LONGEST:
            return _left_out(ALWAYS, condition)
    return condition


def _left_out(where: Condition, condition: Condition) -> Condition:
    return Refine(where, lambda table, places: evaluate(condition, table)[places], str(condition))


_COMPARISONS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def query_of(condition: Condition, field: KeyField, nullable: Container[str] = ()) -> Query:
    """Translate what a condition compares into a query; its code is left out.

    Parameters
    ----------
    condition
        The condition on the columns of the index's units.
    field
        The keys, whose members have the columns' names. Bytes are keys of hexadecimal digits.
    nullable
        The columns that may be null, which documents then lack: what is unknown is kept.
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
            found = _compared(field, column, op, value)
        case Among(column, intervals):
            found = _among(field, column, intervals)
        case SomeValue():
            return _query(condition.compared(), field, nullable, unknown)
        case _:
            raise TypeError(f"{condition!r} is no condition on columns")
    return any_of([found, field.is_missing(column)]) if unknown and column in nullable else found


def _compared(field: KeyField, column: str, op: str, value: Any) -> Query:
    if op == "=":
        return {"term": {f"{field.path}.{column}": _shown(value)}}
    return field.compare(column, **{_COMPARISONS[op]: _shown(value)})


def _among(field: KeyField, column: str, intervals: Sequence[Interval]) -> Query:
    """Values as terms, and intervals as ranges."""
    terms = [low for low, high in intervals if low is not None and high == next_key(low)]
    found: list[Query] = [{"terms": {f"{field.path}.{column}": list(map(_shown, terms))}}] if terms else []
    for low, high in intervals:
        if low is None or high != next_key(low):
            limits = {"gte": low, "lt": high}
            found.append(field.compare(column, **{key: _shown(end) for key, end in limits.items() if end is not None}))
    return any_of(found)


def next_key(value: Any) -> Any:
    """The least key above a key; None for None."""
    if isinstance(value, bytes):
        return value + b"\0"
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return None if value is None else value + 1


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value + 0.0 if isinstance(value, float) else value


def no_files(entry: IndexEntry) -> Files:
    """Files of which there are none, for a table without units."""
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
    """The operands of a conjunction or disjunction, so that nested ones are flattened."""
    inside = query.get("bool", {})
    joined: list[Query] | None = inside.get(member)
    return joined if joined is not None and set(inside) <= {member, "minimum_should_match"} else [query]


def negate(query: Query) -> Query:
    """The negation of a query."""
    return {"bool": {"must_not": [query]}}


def within(path: str, query: Query) -> Query:
    """The query for documents with a nested object that matches."""
    return NONE if query == NONE else {"nested": {"path": path, "query": query}}


def _count(query: Mapping[str, Any]) -> int:
    ((kind, inside),) = query.items()
    if kind == "nested":
        return 1 + _count(inside["query"])
    if kind != "bool":
        return 1
    return sum(_count(part) for some in ("filter", "should", "must_not") for part in inside.get(some, ()))
