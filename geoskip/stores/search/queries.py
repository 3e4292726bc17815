"""Queries as the servers read them, and the keys of an index that they compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geoskip.metadata import IndexEntry

__all__ = ["ALL", "NONE", "KeyField", "Query", "ServerKeys", "TranslatedQuery", "all_of", "any_of", "negated", "within"]

Query = dict[str, Any]

ALL: Query = {"match_all": {}}
NONE: Query = {"match_none": {}}


@dataclass(frozen=True)
class ServerKeys:
    """What documents get of an index: an entry a file, empty for a file that every clause over the index keeps."""

    rows: list[dict[str, Any]]
    whole: bool = True
    """Does a file without keys lack its summary, so that clauses evaluated here keep it too?"""
    largest: float = 0.0
    """No coordinate is larger, either way."""


@dataclass(frozen=True)
class KeyField:
    """Where documents have the keys of an index, and what is known of these."""

    path: str
    entry: IndexEntry
    whole: bool = True
    largest: float = math.inf

    def is_true(self, flag: str) -> Query:
        """Is a flag set?"""
        return {"term": {f"{self.path}.{flag}": True}}

    def is_missing(self, member: str) -> Query:
        """Is there no such key?"""
        return negated({"exists": {"field": f"{self.path}.{member}"}})

    def compared(self, member: str, **limits: Any) -> Query:
        """Does a key lie within limits? Those that are infinite are none."""
        known = {name: limit for name, limit in limits.items() if limit not in (math.inf, -math.inf)}
        return {"range": {f"{self.path}.{member}": known}} if known else {"exists": {"field": f"{self.path}.{member}"}}


@dataclass(frozen=True)
class TranslatedQuery:
    """A query for what a clause keeps; ``exact`` if it keeps nothing more."""

    query: Query
    exact: bool = True

    @property
    def size(self) -> int:
        """How many simple queries it is made of."""
        return _count(self.query)


def all_of(queries: Iterable[Query]) -> Query:
    """What matches every query."""
    parts = [part for query in queries for part in _inside(query, "filter") if part != ALL]
    if NONE in parts:
        return NONE
    return parts[0] if len(parts) == 1 else {"bool": {"filter": parts}} if parts else ALL


def any_of(queries: Iterable[Query]) -> Query:
    """What matches some query."""
    parts = [part for query in queries for part in _inside(query, "should") if part != NONE]
    if ALL in parts:
        return ALL
    if not parts:
        return NONE
    return parts[0] if len(parts) == 1 else {"bool": {"should": parts, "minimum_should_match": 1}}


def _inside(query: Query, member: str) -> list[Query]:
    """The queries that one is joined of, so that what is joined one by one is no deeper than what is joined at once."""
    inside = query.get("bool", {})
    joined: list[Query] | None = inside.get(member)
    return joined if joined is not None and set(inside) <= {member, "minimum_should_match"} else [query]


def negated(query: Query) -> Query:
    """What does not match."""
    return {"bool": {"must_not": [query]}}


def within(path: str, query: Query) -> Query:
    """Documents one of whose nested objects matches."""
    return NONE if query == NONE else {"nested": {"path": path, "query": query}}


def _count(query: Mapping[str, Any]) -> int:
    ((kind, inside),) = query.items()
    if kind == "nested":
        return 1 + _count(inside["query"])
    if kind != "bool":
        return 1
    return sum(_count(part) for some in ("filter", "should", "must_not") for part in inside.get(some, ()))
