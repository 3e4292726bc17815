"""Equi-depth ranks: map the values of a column to whole numbers of a few bits, by a sample.

A rank is the path to the value in a binary tree over the sample's distinct values, which is cut at every level so that
both sides have nearly equal weights. So each bit distinguishes as many rows as possible: ranks of equally frequent
values are quantiles, a frequent value has its own node after few bits, and of two distinct values one has the leading
bit 0 and the other 1, however rare it is. Only the order of values matters, so strings need no special prefix handling.

*Monotone*: ranks preserve Spark's order of values, also for values that are missing in the sample. The rank of a value
is that of the greatest cut not above it, so distinct values between two cuts share a rank. NULL is the lowest, -0.0
equals 0.0, NaN is the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from geoskip.errors import UnsupportedColumnError

Ints: TypeAlias = NDArray[np.int64]
Sortable: TypeAlias = "NDArray[Any] | pa.Array"
"""Values without NULL that sort as in Spark: a numpy array, or an Arrow array of binary or decimals."""


@dataclass(frozen=True, eq=False)
class ColumnRanks:
    """Ranks of one column.

    Attributes
    ----------
    cuts
        The values at which the rank changes, ascending and distinct.
    ranks
        The rank of NULL, then that of each cut.
    """

    cuts: Sortable
    ranks: Ints

    @classmethod
    def fit(cls, sample: pa.Array, bits: int) -> ColumnRanks:
        """Fit ranks of ``bits`` bits to a sample, balanced by weight (one Arrow array, NULL included).

        Raises UnsupportedColumnError for a type without an order.
        """
        values, is_null = sortable(sample)
        cuts, counts = _distinct(values)
        weights = np.concatenate([[int(is_null.sum())], counts])
        ranks = np.zeros(len(weights), np.int64)
        has_null = 0 if weights[0] else 1
        ranks[has_null:] = _balanced_codes(weights[has_null:], bits)
        changes = np.flatnonzero(np.diff(ranks[1:], prepend=-1))  # the first cut, and cuts where the rank changes
        kept = _shorten_cuts(cuts) if isinstance(cuts, pa.Array) else cuts
        return cls(kept.take(changes), np.concatenate([ranks[:1], ranks[1:][changes]]))

    @classmethod
    def exact(cls, values: pa.Array) -> ColumnRanks:
        """Return ranks that distinguish each of the given values from smaller and greater ones.

        NULL is 0, the i-th distinct value is 2 i + 2, and values between two of them have the odd number in between.
        """
        cuts, _ = _distinct(sortable(values)[0])
        return cls(cuts, np.empty(0, np.int64))

    def of(self, column: pa.Array) -> Ints:
        """Return the rank of each value."""
        values, is_null = sortable(column)
        found = _positions(self.cuts, values, "right")
        if not len(self.ranks):
            found += _positions(self.cuts, values, "left") + 1
        else:
            found = self.ranks[np.maximum(found, min(1, len(self.cuts)))]
        if not is_null.any():
            return found
        result = np.full(len(is_null), self.ranks[0] if len(self.ranks) else 0)
        result[~is_null] = found
        return result

    def __len__(self) -> int:
        """The number of cuts."""
        return len(self.cuts)


def dimensions(columns: Sequence[pa.Array], are_geometries: Sequence[bool]) -> list[pa.Array]:
    """Replace each geometry column by two: x and y of the centres of the boxes.

    A geometry is (E)WKB; the centre of an empty one, and of invalid bytes, is NULL.
    """
    found: list[pa.Array] = []
    for column, is_geometry in zip(columns, are_geometries, strict=True):
        if not is_geometry:
            found.append(column)
            continue
        raw = np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
        boxes = shapely.bounds(shapely.from_wkb(raw, on_invalid="ignore"))
        for centre in ((boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2):
            found.append(pa.array(centre, mask=np.isnan(centre)))
    return found


def is_geometry(sample: pa.Array) -> bool:
    """True for binary values that are all (E)WKB, with at least one value."""
    if not (pa.types.is_binary(sample.type) or pa.types.is_large_binary(sample.type)):
        return False
    present = sample.drop_null()
    if not len(present):
        return False
    raw = np.asarray(present.to_numpy(zero_copy_only=False), dtype=object)
    return not bool(shapely.is_missing(shapely.from_wkb(raw, on_invalid="ignore")).any())


def sortable(column: pa.Array | pa.ChunkedArray) -> tuple[Sortable, NDArray[np.bool_]]:
    """Return the values without NULL in a form that sorts as in Spark, and a mask of the NULLs.

    Raises UnsupportedColumnError for a type without an order, such as a map.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    values, kind = column.drop_null() if is_null.any() else column, column.type
    if pa.types.is_null(kind):
        return np.empty(0, np.int64), is_null
    if pa.types.is_boolean(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64), is_null
    if pa.types.is_floating(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64) + 0.0, is_null  # -0.0 becomes 0.0
    if pa.types.is_integer(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False)), is_null
    if pa.types.is_temporal(kind):
        width = pa.int64() if kind.bit_width == 64 else pa.int32()
        return np.asarray(values.view(width).to_numpy(zero_copy_only=False)), is_null
    if pa.types.is_decimal(kind):
        return values, is_null
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.large_binary()), is_null  # UTF-8 sorts by its bytes
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.large_binary()), is_null
    raise UnsupportedColumnError(
        f"values of type {kind} have no order that a layout could follow: use numbers, texts, times or geometries, "
        "such as a field or a function of it"
    )


def _distinct(values: Sortable) -> tuple[Sortable, Ints]:
    """Return the distinct values, ascending, with their counts."""
    if isinstance(values, np.ndarray):
        return np.unique(values, return_counts=True)
    encoded = values.dictionary_encode()
    counts = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))
    order = pc.array_sort_indices(encoded.dictionary)
    return encoded.dictionary.take(order), counts[order.to_numpy()]


def _positions(cuts: Sortable, values: Sortable, side: Literal["left", "right"]) -> Ints:
    """Count the cuts below each value (``left``), or not above it (``right``)."""
    if isinstance(values, np.ndarray):
        found = np.searchsorted(np.asarray(cuts), values, side)
        return np.asarray(found, dtype=np.int64)
    if not isinstance(cuts, pa.Array):  # from a sample with only NULL
        return np.zeros(len(values), np.int64)
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary.cast(cuts.type)
    parts = [cuts, distinct] if side == "right" else [distinct, cuts]  # the stable sort keeps the order of equal values
    order = pc.array_sort_indices(pa.concat_arrays(parts)).to_numpy()
    start = len(cuts) if side == "right" else 0
    is_value = (order >= start) & (order < start + len(distinct))
    below = np.empty(len(distinct), np.int64)
    below[order[is_value].astype(np.int64) - start] = np.cumsum(~is_value)[is_value]
    return np.asarray(below[encoded.indices.to_numpy()])


def _balanced_codes(weights: Ints, bits: int) -> Ints:
    """Return ascending codes of ``bits`` bits, where each bit halves the weight of a node."""
    above = np.concatenate([[0], np.cumsum(weights)])
    codes = np.zeros(len(weights), np.int64)
    starts, ends = np.zeros(1, np.int64), np.full(1, len(weights))
    for bit in range(bits - 1, -1, -1):
        is_divisible = ends - starts > 1
        starts, ends = starts[is_divisible], ends[is_divisible]
        if not len(starts):
            break
        half = (above[starts] + above[ends]) / 2
        cut = np.clip(np.searchsorted(above, half), starts + 1, ends - 1)
        before = np.clip(cut - 1, starts + 1, ends - 1)
        cut = np.where(half - above[before] <= above[cut] - half, before, cut)
        steps = np.zeros(len(weights) + 1, np.int64)  # +1 where the upper half begins, -1 where it ends
        np.add.at(steps, cut, 1)
        np.add.at(steps, ends, -1)
        codes += np.cumsum(steps)[:-1] << bit
        starts, ends = np.concatenate([starts, cut]), np.concatenate([cut, ends])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    return codes


_LONG = 64


def _shorten_cuts(cuts: pa.Array) -> pa.Array:
    """Shorten long cuts to the first byte that differs from the cut before.

    A shortened cut is above the cut before, and not above its own value.
    """
    if not pa.types.is_large_binary(cuts.type) or (pc.max(pc.binary_length(cuts)).as_py() or 0) <= _LONG:
        return cuts
    before, texts = b"", []
    for text in cuts.to_pylist():
        short = text
        if len(text) > _LONG:
            same = next((i for i, (one, other) in enumerate(zip(before, text, strict=False)) if one != other), None)
            short = text[: (len(before) if same is None else same) + 1]
        texts.append(short)
        before = text
    return pa.array(texts, cuts.type)
