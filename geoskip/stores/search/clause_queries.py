"""Translate clauses into queries of a search server, over the keys of summaries.

**Keys** order on the server as values do in Spark. There is a module for each sort of summary:
:mod:`~geoskip.stores.search.range_queries` (bounds and segments), :mod:`~geoskip.stores.search.listed_values` (lists of
values, prefixes and suffixes), :mod:`~geoskip.stores.search.box_queries` and
:mod:`~geoskip.stores.search.distance_queries`. Each defines the fields of its keys, makes the keys from the unit tables
that clauses compare when geoskip evaluates them, and gives a table without units (:class:`UnitKeys
<geoskip.stores.search.queries.UnitKeys>`). A user's index has keys if its summaries have the members of one of
geoskip's.

**Clauses** state a condition on the columns of a unit table (:mod:`geoskip.conditions`), which becomes the query. AND
and OR become the server's. For clauses over the *units* of one index (values, segments, boxes) the conditions on a unit
are merged first, as geoskip evaluates them. No clause is ever negated. A document without an index's keys is kept by
every clause over it. A clause that cannot be translated is left out of an AND, and makes an OR
untranslatable: the server then keeps more files, and geoskip evaluates the clause on these
(:attr:`TranslatedQuery.exact <geoskip.stores.search.queries.TranslatedQuery>`).

Bloom filters have no keys. A clause tests some bits of a long string, and servers' queries know no bits: as terms, the
numbers of the set bits are half of a filter's bits, eight to sixteen times its bytes, and more in the server's index;
scripts could test bits, but servers rarely allow them. So the filters are sent of the files that the other clauses of a
query keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from geoskip.clauses import (
    KEEP_ALL,
    KEEP_NONE,
    Clause,
    Files,
    UnitClause,
    all_of,
    alternatives_of,
    leaves_of,
    parts_of,
    size_of,
)
from geoskip.conditions import FileClause, condition_of
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.stores.search import box_queries, distance_queries, listed_values, queries, range_queries
from geoskip.stores.search.queries import KeyField, ServerKeys, TranslatedQuery, UnitKeys

_MOST_QUERIES = 800
"""Simple queries in one query; servers refuse more than 1,024."""
_DEEPEST = 8


def translate(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause into a query for the files that it keeps, or more; None if not possible.

    ``fields`` are the keys of indexes by name.
    """
    found = _translated(clause, fields, _DEEPEST)
    return None if found is None or found.size > _MOST_QUERIES else found


def conjuncts(clause: Clause) -> list[Clause]:
    """The operands of a conjunction, grouped so that clauses over the units of one index stay together."""
    groups: dict[Any, list[Clause]] = {}
    for part in parts_of(clause):
        groups.setdefault(part.index if isinstance(part, UnitClause) else id(part), []).append(part)
    return [all_of(group) for group in groups.values()]


def _translated(clause: Clause, fields: Mapping[str, KeyField], depth: int) -> TranslatedQuery | None:
    if clause is KEEP_ALL or clause is KEEP_NONE:
        return TranslatedQuery(queries.ALL if clause is KEEP_ALL else queries.NONE)
    if isinstance(clause, UnitClause) or not size_of(clause) > 1:
        return _of_one_index(clause, fields)
    every = len(parts_of(clause)) > 1
    parts = conjuncts(clause) if every else alternatives_of(clause)
    found = [_translated(part, fields, depth - 1) for part in parts] if depth else []
    known = [part for part in found if part is not None]
    whole = len(known) == len(parts)
    if not known or not (every or whole):
        return None
    query = (queries.all_of if every else queries.any_of)(part.query for part in known)
    return TranslatedQuery(query, whole and all(part.exact for part in known))


def _of_one_index(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause, or the merged clauses over the units of one index."""
    first = next(leaves_of(clause))
    if not isinstance(first, FileClause):
        return None
    field = next((fields.get(name) for name, _ in first.columns()), None)
    keys = None if field is None else _unit_keys_of(first, field)
    return None if keys is None else keys.translate(condition_of(clause, keys.table))


def _unit_keys_of(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys that a clause with a condition compares."""
    return next((units(clause, field) for fields, _, units in _KINDS if fields(field.entry) is not None), None)


Fields = dict[str, Any]

_KINDS: tuple[
    tuple[
        Callable[[IndexEntry], Fields | None],
        Callable[[Files, IndexEntry], ServerKeys | None],
        Callable[[Any, KeyField], UnitKeys | None],
    ],
    ...,
] = (
    (range_queries.fields_of, range_queries.keys_of, range_queries.units_of),
    (listed_values.fields_of, listed_values.keys_of, listed_values.units_of),
    (range_queries.segment_fields_of, range_queries.segment_keys_of, range_queries.units_of_segments),
    (box_queries.fields_of, box_queries.keys_of, box_queries.unit_keys_of),
    (distance_queries.fields_of, distance_queries.keys_of, distance_queries.units_of),
)
"""For each sort of keys: what documents have of them, the keys of files, and those that a clause compares."""


def fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of an index's keys by field; None for an index without keys."""
    return next((found for fields, *_ in _KINDS if (found := fields(entry)) is not None), None)


def keys_of(table: pa.Table, entry: IndexEntry) -> ServerKeys | None:
    """The keys of an index's summaries, empty for files without a summary; None for an index without keys."""
    keys = next((keys for fields, keys, _ in _KINDS if fields(entry) is not None), None)
    server_keys = None if keys is None else keys(FileMetadata.of(table.select([entry.name])), entry)
    if server_keys is None:
        return None
    valid = table[entry.name].is_valid().to_pylist()
    return replace(server_keys, rows=[row if known else {} for row, known in zip(server_keys.rows, valid, strict=True)])
