"""Translate clauses into queries of a search server, over the keys of summaries.

**Keys** have the same order on the server as values in Spark. Each sort of summary defines the fields of its keys,
computes the keys from the unit tables that clauses compare when geoskip evaluates them, and defines a table without
units (:class:`UnitKeys <geoskip.stores.search.queries.UnitKeys>`). A user's index has keys if its summaries have the
members of one of geoskip's indexes. A document without an index's keys is kept by every clause over the index.

*Bounds* (MinMax and other indexes with ``min``, ``max``, ``nulls`` and ``rows``). A server's doubles have no NaN, its
strings are not ordered by bytes, and it has no decimals. So documents have the columns of
:class:`~geoskip.indexes.range_clauses.BoundTable`:

* ``low`` and ``high``: for types of fixed width the order-preserving 64-bit keys of :mod:`geoskip.bounds.sort_keys`,
  for strings and binary the bytes as hexadecimal digits, which have the same order as the bytes; a missing bound of
  strings is open;
* ``present``, if the file may have a value; ``values``, if some value is not NULL; ``nulls``, if some value is NULL;
* for floats ``nan`` and ``numbers``, if it may have NaN and other values; for strings ``exact``, if neither bound was
  shortened.

*Lists of values*: :mod:`~geoskip.stores.search.queries`.

**Clauses** state a condition on the columns of a unit table (:mod:`geoskip.conditions`), which becomes the query. AND
and OR become those of the server. For clauses over listed values the conditions on a value are merged first, as when
geoskip evaluates them. No clause is ever negated. A clause that cannot be translated, such as one on a computed
expression, is left out of an AND, and makes an OR untranslatable: the server then keeps more files, and geoskip
evaluates the clause on these (:attr:`TranslatedQuery.exact <geoskip.stores.search.queries.TranslatedQuery>`).

Other summaries have no keys: geoskip reads segments, boxes, distances and Bloom filters in blocks, and evaluates their
clauses itself, on the files that the other clauses of a query keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds import index_leaf
from geoskip.bounds.interval import ByteStrings, Interval, kind_of
from geoskip.clauses import (
    KEEP_ALL,
    KEEP_NONE,
    Clause,
    Files,
    UnitClause,
    alternatives_of,
    conjuncts_of,
    leaves_of,
    size_of,
)
from geoskip.conditions import FileClause, condition_of
from geoskip.indexes.range_clauses import BoundTable
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.stores.search import queries
from geoskip.stores.search.queries import KeyField, ServerKeys, TranslatedQuery, UnitKeys, no_files

Fields = dict[str, Any]
Row = dict[str, Any]
_BOOLEAN = {"type": "boolean"}


# --- bounds -----------------------------------------------------------------------------------------------------------

_OF_BOUNDS = frozenset(["min", "max", "nulls", "rows"])


def range_fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of the keys; None if the summaries have no bounds."""
    if not {field.name for field in entry.arrow} >= _OF_BOUNDS:
        return None
    bound = entry.arrow.field("min").type
    return types_of(bound) if bound == entry.arrow.field("max").type else None


def types_of(bound: pa.DataType) -> Fields | None:
    """The server's types of the keys of bounds of this type; None for types without keys."""
    flags: tuple[str, ...]
    if pa.types.is_binary(bound) or pa.types.is_large_binary(bound):
        types, flags = {"type": "keyword"}, ("present", "values", "nulls", "exact")
    elif pa.types.is_floating(bound):
        types, flags = {"type": "long"}, ("present", "values", "nulls", "nan", "numbers")
    elif pa.types.is_decimal(bound) or kind_of(bound) is not None:
        types, flags = {"type": "long"}, ("present", "values", "nulls")
    else:
        return None
    return {"low": types, "high": types, **dict.fromkeys(flags, _BOOLEAN)}


def range_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None if decimals are too long."""
    found = keys_of_bounds(files, entry.name, entry.arrow.field("min").type)
    return None if found is None else ServerKeys(found)


def keys_of_bounds(files: Files, name: str, bound: pa.DataType) -> list[Row] | None:
    """The keys of bounds of this type, one entry for each file."""
    table, names = BoundTable(files, index_leaf(name)), types_of(bound)
    interval = table.interval
    scale = bound.scale if pa.types.is_decimal(bound) else 0
    if interval is None or names is None or (isinstance(interval, Interval) and interval.scale != scale):
        return None
    columns = [_cells_of(table.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cells_of(column: Any) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return [None if bound is None else bound.hex() for bound in column.to_pylist()]


def range_units_of(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys of bounds, with the document as unit; None for clauses over other columns."""
    files = no_files(field.entry)
    if not isinstance(clause.units(files), BoundTable):
        return None
    table = BoundTable(files, index_leaf(field.entry.name))
    textual = isinstance(table.interval, ByteStrings)
    return UnitKeys(field, table, "values", nullable=("low", "high") if textual else ())


# --- clauses ----------------------------------------------------------------------------------------------------------

_MOST_QUERIES = 800
"""Maximum number of simple queries in one query; servers refuse more than 1,024."""
_DEEPEST = 8


def translate(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause into a query that matches at least the files that it keeps, or None.

    ``fields`` has the keys of indexes by name.
    """
    found = _translate_clause(clause, fields, _DEEPEST)
    return None if found is None or found.size > _MOST_QUERIES else found


def _translate_clause(clause: Clause, fields: Mapping[str, KeyField], depth: int) -> TranslatedQuery | None:
    if clause is KEEP_ALL or clause is KEEP_NONE:
        return TranslatedQuery(queries.ALL if clause is KEEP_ALL else queries.NONE)
    if isinstance(clause, UnitClause) or not size_of(clause) > 1:
        return _of_one_index(clause, fields)
    every = len(conjuncts_of(clause)) > 1
    parts = conjuncts_of(clause) if every else alternatives_of(clause)
    found = [_translate_clause(part, fields, depth - 1) for part in parts] if depth else []
    known = [part for part in found if part is not None]
    whole = len(known) == len(parts)
    if not known or not (every or whole):
        return None
    query = (queries.all_of if every else queries.any_of)(part.query for part in known)
    return TranslatedQuery(query, whole and all(part.exact for part in known))


def _of_one_index(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause, or merged clauses over the units of one index."""
    first = next(leaves_of(clause))
    if not isinstance(first, FileClause):
        return None
    field = next((fields.get(name) for name, _ in first.columns()), None)
    if field is None:
        return None
    keys = next((units(first, field) for entries, _, units in _KINDS if entries(field.entry) is not None), None)
    return None if keys is None else keys.translate(condition_of(clause, keys.table))


_KINDS: tuple[
    tuple[
        Callable[[IndexEntry], Fields | None],
        Callable[[Files, IndexEntry], ServerKeys | None],
        Callable[[Any, KeyField], UnitKeys | None],
    ],
    ...,
] = (
    (range_fields_of, range_keys_of, range_units_of),
    (queries.list_fields_of, queries.list_keys_of, queries.list_units_of),
)
"""For each sort of keys, functions for its field types, the keys of files, and the keys that a clause compares."""


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
