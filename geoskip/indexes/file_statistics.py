"""The summaries of an index as statistics for users and other engines.

Index types convert their summaries with :meth:`geoskip.indexes.base.Index.statistics`, for all files at once. Null
always means *unknown*: an engine that skips files by these statistics must read files with a null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class FileStatistics:
    """Figures of one indexed expression, one entry for each file; None if an index type has none.

    Attributes
    ----------
    expression, type : str
        The expression as SQL, and Spark's name of its type; several expressions are joined by commas.
    nulls : Array of int64
        Rows in which the expression, or any of several expressions, is NULL.
    nans : Array of int64
        Rows that are not NULL but not covered by ``low`` to ``high`` or ``boxes``: NaN, and geometries with non-finite
        coordinates.
    low, high : Array
        Bounds of the other values, in the column's Arrow type (text as bytes). Null for a file without such values or
        without a bound.
    exact : Array of bool
        True if ``low`` and ``high`` are values of the file, or it has none; false if they may be wider.
    values : Array of lists
        All distinct values except NULL, in Spark's order.
    boxes : Array of lists of structs xmin, ymin, xmax, ymax
        Closed boxes that cover all geometries except NULL, EMPTY and those counted in ``nans``.
    details : Array of string
        Other stored content, as JSON for users.
    """

    expression: str
    type: str
    nulls: pa.Array | None = None
    nans: pa.Array | None = None
    low: pa.Array | None = None
    high: pa.Array | None = None
    exact: pa.Array | None = None
    values: pa.Array | None = None
    boxes: pa.Array | None = None
    details: pa.Array | None = None


def field_of(summaries: pa.StructArray, name: str) -> Any:
    """Return a field of all summaries, null without a summary; None if the field does not exist."""
    return pc.struct_field(summaries, name) if summaries.type.get_field_index(name) >= 0 else None


def zeros(like: pa.Array) -> pa.Array:
    """Return a count of 0 for each entry, null for a null entry."""
    return pc.if_else(like.is_valid(), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))


def ends_of_lists(values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the least and the greatest value of ascending lists, and the NaN count: 0, or null if any.

    >>> lists = pa.array([[1.0, 2.0, float("nan")], [3.0], [], [float("nan")], None])
    >>> [ends.to_pylist() for ends in ends_of_lists(lists)]
    [[1.0, 3.0, None, None, None], [2.0, 3.0, None, None, None], [None, 0, 0, None, None]]
    """
    lengths = np.asarray(values.value_lengths().fill_null(0)).astype(np.int64)
    flat, ends = values.flatten(), np.cumsum(lengths)
    last = ends - 1
    with_nan = np.zeros(len(values), dtype=bool)
    if pa.types.is_floating(flat.type) and len(flat):
        is_nan = np.asarray(pc.is_nan(flat).to_numpy(zero_copy_only=False))
        with_nan = (lengths > 0) & is_nan[np.maximum(last, 0)]
        last = last - with_nan  # all NaN are one value
    empty = last < ends - lengths
    low, high = (flat.take(pa.array(places, mask=empty)) for places in (ends - lengths, last))
    return low, high, pc.if_else(pa.array(with_nan), pa.scalar(None, pa.int64()), zeros(values))


def json_texts(summaries: pa.StructArray, shown: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> pa.Array:
    """Return the fields of each summary that ``shown`` selects as JSON text, null without a summary."""
    texts = [None if one is None else json.dumps(_plain(shown(one)), allow_nan=False) for one in summaries.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(value: Any) -> Any:
    """Convert a value for JSON: bytes by UTF-8, other values to text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        odd = isinstance(value, float) and not math.isfinite(value)
        return str(value) if odd or not isinstance(value, str | int | float | None) else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else [_plain(inner) for inner in value]
