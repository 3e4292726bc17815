"""Keys and queries of bounds: those of MinMax and its like, and those of GapList's segments.

An index has keys of bounds if its summaries have ``min``, ``max``, ``nulls`` and ``rows``. A server's doubles have no
NaN, its strings have another order than bytes, and it has no decimals. So documents get

* ``low`` and ``high``: for types of fixed width the order-preserving 64-bit keys of :mod:`geoskip.bounds.sort_keys`,
  for strings and binary the bytes as hexadecimal digits, which order as the bytes do whatever is in them; a bound of
  strings that is missing is open;
* ``present``, if the file may have a value; ``values``, if some value is not NULL; ``nulls``, if some value is NULL;
* for floats ``nan`` and ``numbers``, if it may have NaN and other values; for strings ``exact``, if neither bound was
  shortened.

These are the columns of :class:`geoskip.indexes.range_clauses.BoundTable`, so that the server compares what the
conditions of clauses say, and keeps the files that geoskip would keep. Comparisons of computed expressions (casts,
sums) are not translated.

The segments of a file, and one more each for NULL and NaN, are its ``units``: *nested* objects with the same keys, so
that ``x BETWEEN 4 AND 6`` becomes a query for one segment that meets both ends. A file with very many of them has no
keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds.interpret import indexed
from geoskip.bounds.interval import ByteStrings, Interval, kind_of
from geoskip.clauses import Files
from geoskip.conditions import FileClause
from geoskip.indexes.gaplist import SegmentTable, segments_of
from geoskip.indexes.range_clauses import BoundTable
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import KeyField, ServerKeys, UnitKeys, no_files

_FIELDS = frozenset(["min", "max", "nulls", "rows"])
_BOOLEAN = {"type": "boolean"}


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no bounds."""
    if not {field.name for field in entry.arrow} >= _FIELDS:
        return None
    bound = entry.arrow.field("min").type
    return types_of(bound) if bound == entry.arrow.field("max").type else None


def types_of(bound: pa.DataType) -> dict[str, Any] | None:
    """The server's types of the keys of bounds of this type; None for those that have no keys."""
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


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None where decimals are too long for them."""
    found = keys_of_bounds(files, entry.name, entry.arrow.field("min").type)
    return None if found is None else ServerKeys(found)


def keys_of_bounds(files: Files, name: str, bound: pa.DataType) -> list[dict[str, Any]] | None:
    """The keys of bounds of this type, an entry a file."""
    table, names = BoundTable(files, indexed(name)), types_of(bound)
    interval = table.interval
    scale = bound.scale if pa.types.is_decimal(bound) else 0
    if interval is None or names is None or (isinstance(interval, Interval) and interval.scale != scale):
        return None
    columns = [_listed(table.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _listed(column: Any) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return [None if bound is None else bound.hex() for bound in column.to_pylist()]


def units_of(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys of bounds, a unit a document; None for clauses over other columns."""
    files = no_files(field.entry)
    if not isinstance(clause.units(files), BoundTable):
        return None
    table = BoundTable(files, indexed(field.entry.name))
    textual = isinstance(table.interval, ByteStrings)
    return UnitKeys(field, table, "values", nullable=("low", "high") if textual else ())


_MOST = 64
"""The most units of a file with keys."""


def segment_fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no segments."""
    names = {field.name for field in entry.arrow}
    types = types_of(_bound_of(entry)) if names >= {"segments", "nulls", "rows"} else None
    if types is None:
        return None
    return {"there": {"type": "boolean"}, "units": {"type": "nested", "dynamic": False, "properties": types}}


def _bound_of(entry: IndexEntry) -> pa.DataType:
    return entry.arrow.field("segments").type.value_type.field("low").type


def segment_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None where decimals are too long for them."""
    segments = segments_of(files, entry.name)
    found = keys_of_bounds(segments, entry.name, _bound_of(entry))
    if found is None:
        return None
    counts = np.bincount(segments.owner, minlength=len(files))
    rows: list[dict[str, Any]] = [{"there": True, "units": []} if count <= _MOST else {} for count in counts.tolist()]
    for at, unit in zip(segments.owner.tolist(), found, strict=True):
        if rows[at]:
            rows[at]["units"].append(unit)
    return ServerKeys(rows, whole=bool((counts <= _MOST).all()))


def units_of_segments(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys of segments, which are nested objects; None for clauses over other columns."""
    table = clause.units(no_files(field.entry))
    return UnitKeys(field, table, "there", nested="units") if isinstance(table, SegmentTable) else None
