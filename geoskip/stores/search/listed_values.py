"""Keys and queries of listed values: ValueList, Formatted, Hybrid, Prefix and Suffix.

A document has each list of the file as a field of many values: numbers, dates and times as the keys of
:mod:`geoskip.evaluation.values`, strings and binary as hexadecimal digits (Suffix's reversed). Beside them are the
flags ``nulls``, if some value is NULL, and ``open``, if there may be values that are not listed.

A file whose list is long, or has a long value, has no keys: every query keeps it, and :attr:`ServerKeys.whole
<geoskip.stores.search.queries.ServerKeys>` is False, so that geoskip evaluates the clause on the files that were kept.

A unit is a value, NULL or what is not listed, so it has a key in one of these fields alone. Thus a condition becomes
one set of keys for each field: AND intersects and OR unites the sets, as geoskip merges clauses value by value, and a
file is kept if it has a key in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    any_holds,
    intersection,
    is_exact,
    necessary,
    union,
)
from geoskip.evaluation import physical
from geoskip.evaluation.values import FIRST, LAST, NAN_KEY, float_keys, is_bytes
from geoskip.indexes.postings import Postings, mirrored
from geoskip.indexes.range_clauses import HasNulls
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import (
    KeyField,
    ServerKeys,
    TranslatedQuery,
    UnitKeys,
    any_of,
    next_key,
    no_files,
    query_of,
)

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


def units_of(clause: FileClause | ExistsClause, field: KeyField) -> UnitKeys | None:
    """The keys of values, or of Hybrid's counts of NULL, that a clause compares; None for others."""
    table = clause.units(no_files(field.entry))
    if type(clause) is HasNulls and not clause.is_derived:
        return UnitKeys(field, table, "nulls")
    members = {member.name for member in field.entry.arrow}
    if not isinstance(table, Postings) or not members.issuperset(table.dictionaries):
        return None
    return ListKeys(field, table, f"{table.part}nulls")


class ListKeys(UnitKeys):
    """The keys of listed values, in which conditions become sets of keys."""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for files with a unit that satisfies a condition; None if too long or for all."""
        compared = necessary(condition)
        if compared == ALWAYS:
            return None
        sets = [_within_64_bits(part) for part in _by_list(compared).values()]
        intervals = [interval for part in sets if isinstance(part, Among) for interval in part.intervals]
        ranges = sum(high != next_key(low) for low, high in intervals)
        if ranges > _MOST_RANGES or len(intervals) - ranges > _MOST_TERMS:
            return None
        if any(isinstance(end, bytes) and len(end) > _LONGEST + 1 for interval in intervals for end in interval):
            return None
        query = any_of([query_of(any_holds(sets), self.field), self.field.is_missing(self.known)])
        return TranslatedQuery(query, self.field.whole and is_exact(condition))


def _by_list(condition: Condition) -> dict[str, Condition]:
    """For each list and flag, the condition on the keys in it."""
    if not isinstance(condition, AllOf | AnyOf):
        assert isinstance(condition, Among | Compare)
        return {condition.column: condition}
    every = isinstance(condition, AllOf)

    def joined(one: dict[str, Condition], other: dict[str, Condition]) -> dict[str, Condition]:
        names = [name for name in {**one, **other} if not every or (name in one and name in other)]
        return {name: _joined(one.get(name), other.get(name), every) for name in names}

    return reduce(joined, map(_by_list, condition.parts)) if condition.parts else {}


def _joined(one: Condition | None, other: Condition | None, every: bool) -> Condition:
    if not isinstance(one, Among) or not isinstance(other, Among):
        return one or other or NEVER
    intervals = intersection(one.intervals, other.intervals) if every else union([*one.intervals, *other.intervals])
    return Among(one.column, intervals)


def _within_64_bits(condition: Condition) -> Condition:
    """The condition without numbers that no document has: a literal may be one."""
    if not isinstance(condition, Among) or any(isinstance(end, bytes) for ends in condition.intervals for end in ends):
        return condition
    within = intersection(condition.intervals, ((FIRST, LAST + 1),))
    open_ends = tuple((None if low == FIRST else low, None if high > LAST else high) for low, high in within)
    return Among(condition.column, open_ends)
