"""What a search server can compare: of each file's bounds, keys that order on the server as values do in Spark.

A server's own doubles know no NaN, its strings order by another rule than bytes, its decimals are none. So it gets

* ``low`` and ``high``: for types of fixed width the order-preserving 64-bit keys of :mod:`geoskip.indexes.ordering`,
  for strings and binary the bytes as hexadecimal digits, which order as the bytes do whatever is in them; a bound of
  strings that is missing is open;
* ``present``: may the file hold a value at all; ``values``: is some value not NULL; ``nulls``: is some value NULL;
* of floats, ``nan`` and ``numbers``: may it hold NaN, and other values than that; of strings, ``exact``: neither bound
  was shortened.

They are the arrays that clauses over bounds compare when they are evaluated here, so a query over them
(:mod:`geoskip.stores.elasticsearch.translation`) says the same. Any index whose summaries have ``min``, ``max``,
``nulls`` and ``rows`` gets keys; a file without keys is kept by each clause.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.clauses import Mask
from geoskip.indexes.minmax import HasNulls, HasValues
from geoskip.indexes.ranges import Range, bounds_of, kind_of
from geoskip.indexes.texts import Bytes
from geoskip.metadata import FileMetadata

__all__ = ["key_fields", "keys_of", "scale_of"]

_FIELDS = frozenset(["min", "max", "nulls", "rows"])
_BOOLEAN = {"type": "boolean"}


def key_fields(summary: pa.DataType) -> dict[str, dict[str, str]] | None:
    """The fields of an index's keys with the server's types, by the type of its summaries; None where it has none."""
    if not {field.name for field in summary} >= _FIELDS:
        return None
    bound = summary.field("min").type
    if bound != summary.field("max").type:
        return None
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


def scale_of(bound: pa.DataType) -> int:
    """The power of ten that keys are multiplied by."""
    return int(bound.scale) if pa.types.is_decimal(bound) else 0


def keys_of(table: pa.Table, name: str) -> list[dict[str, Any]] | None:
    """The keys of an index's summaries, one entry a file; None where it has none, or decimals too long for a key."""
    files = FileMetadata.of(table.select([name]))
    summary = table.schema.field(name).type
    spans = bounds_of(files, name) if key_fields(summary) is not None else None
    flags = {"values": HasValues(name).keep(files), "nulls": HasNulls(name, ()).keep(files)}
    match spans:
        case Bytes():
            flags |= {"present": spans.present, "exact": spans.exact}
            return _rows(_digits(spans.low), _digits(spans.high), flags)
        case Range() if spans.scale == scale_of(summary.field("min").type):
            keys = spans.keys()
            flags["present"] = keys.present
            if spans.kind == "real":
                nan = np.zeros(len(files), dtype=bool) if spans.nan is None else spans.nan
                flags |= {"nan": nan, "numbers": np.asarray(spans.low <= spans.high)}
            return _rows(keys.low.tolist(), keys.high.tolist(), flags)
    return None


def _digits(bounds: pa.Array) -> list[str | None]:
    return [None if bound is None else bound.hex() for bound in bounds.to_pylist()]


def _rows(low: list[Any], high: list[Any], flags: dict[str, Mask]) -> list[dict[str, Any]]:
    names = ("low", "high", *flags)
    columns = [low, high, *(mask.tolist() for mask in flags.values())]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
