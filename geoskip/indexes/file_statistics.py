"""The summaries of an index as figures for people and other engines.

An index type says how its summaries read by :meth:`geoskip.indexes.base.Index.statistics`, for all files at once. Null
is *unknown* everywhere: whoever skips files by these figures must read a file of which they say nothing.
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
        The expression as SQL, and Spark's name of its type; of several expressions, joined by commas.
    nulls : Array of int64
        Rows in which the expression is NULL, or any of several expressions.
    nans : Array of int64
        Rows that lie outside of ``low`` to ``high`` and of ``boxes`` without being NULL: NaN, and geometries with
        non-finite coordinates.
    low, high : Array
        A lower and an upper bound of the other values, in the column's Arrow type (text as bytes). Null in a file
        without such values, and where there is no bound.
    exact : Array of bool
        True where ``low`` and ``high`` are values of the file, or there are none; false where they may lie outside.
    values : Array of lists
        All distinct values but NULL, in Spark's order.
    boxes : Array of lists of structs xmin, ymin, xmax, ymax
        Closed boxes that cover all geometries that are neither NULL nor EMPTY, but those of ``nans``.
    details : Array of string
        Whatever else is stored, as JSON, for people.
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
    """Return a field of all summaries, null where there is no summary; None if they have no such field."""
    return pc.struct_field(summaries, name) if summaries.type.get_field_index(name) >= 0 else None


def zeros(like: pa.Array) -> pa.Array:
    """Return a count of 0 for each entry, null where that is null."""
    return pc.if_else(like.is_valid(), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))


def ends_of_lists(values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the least and the greatest value of ascending lists, and a count of NaN: 0, or null.

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
    """Return what ``shown`` chooses of each summary as a JSON text, null where there is none."""
    texts = [None if one is None else json.dumps(_plain(shown(one)), allow_nan=False) for one in summaries.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as UTF-8, other values as texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        odd = isinstance(value, float) and not math.isfinite(value)
        return str(value) if odd or not isinstance(value, str | int | float | None) else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else [_plain(inner) for inner in value]
