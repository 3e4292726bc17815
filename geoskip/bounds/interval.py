"""The ranges that files' values span, read from their summaries, all files at once."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.sort_keys import (
    FIRST,
    LAST,
    Doubles,
    IncomparableError,
    Ints,
    Place,
    SortKeys,
    comparable,
    folded,
    number_place,
    physical,
    real_place,
)
from geoskip.bounds.strings import ByteStrings, certain
from geoskip.clauses import Files, Mask
from geoskip.predicates import Literal

__all__ = ["Interval", "bounds_of", "counts_of", "kind_of", "plain", "words"]


@dataclass(frozen=True)
class Interval:
    """The values between ``low`` and ``high``, as a monotone step can work on them.

    ``kind`` is "number" (integers and decimals: keys are values times ``10 ** scale``), "real" (float64 bounds over
    all but NaN, ``nan`` telling where NaN may occur), or the name of a type of its own: "date", "timestamp",
    "timestamp_ntz", "boolean", "interval".
    """

    kind: str
    low: NDArray[Any]
    high: NDArray[Any]
    scale: int = 0
    nan: Mask | None = None
    wide: WideDecimals | None = None
    """Decimals of more digits than ``low`` and ``high``, which are rounded outwards, can hold."""

    def keys(self) -> SortKeys:
        """The bounds as keys."""
        if self.wide is not None:
            return self.wide.keys
        if self.kind != "real":
            return SortKeys(self.low, self.high)
        low, high, empty = folded(self.low), folded(self.high), self.low > self.high
        if empty.any():
            low[empty], high[empty] = LAST, FIRST
        if self.nan is None or not self.nan.any():
            return SortKeys(low, high)
        unknown = self.nan & (self.low == -math.inf) & (self.high == math.inf)
        low[unknown], high[unknown] = FIRST, LAST
        return SortKeys(low, high, self.nan)

    def as_real(self, target: str) -> Interval:
        """Numbers rounded as Spark rounds them to a double or float.

        Decimals are widened by what Spark's two roundings and ours may differ.
        """
        keys = self.keys()
        if self.wide is not None:
            low, high = self.wide.reals()
        else:
            width = np.float32 if target == "float" else np.float64
            low, high = (end.astype(width).astype(np.float64) / 10.0**self.scale for end in (self.low, self.high))
        if self.scale or self.wide is not None:
            low, high = low - np.abs(low) * 2.0**-49, high + np.abs(high) * 2.0**-49
        empty, unknown = keys.low > keys.high, keys.unknown
        low[empty], high[empty] = math.inf, -math.inf
        low[unknown], high[unknown] = -math.inf, math.inf
        return Interval("real", low, high, nan=unknown)

    def coarser(self, scale: int) -> Interval:
        """Decimals rounded to fewer digits after the point, in whatever way: outwards."""
        wide = None if self.wide is None else self.wide.coarser(scale)
        if self.scale <= scale:  # rounded so far already
            return replace(self, wide=wide)
        by, empty = 10 ** (self.scale - scale), self.low > self.high
        low, high = np.where(self.low == FIRST, FIRST, self.low // by), -(-np.maximum(self.high, -LAST) // by)
        high = np.where(self.high == LAST, LAST, high)
        low[empty], high[empty] = LAST, FIRST
        return replace(self, low=low, high=high, scale=scale, wide=wide)

    def place(self, literal: Literal) -> Place:
        """The key of the greatest value not above a literal, and whether that is the literal's own.

        >>> Interval("number", np.zeros(1), np.zeros(1)).place(Literal(2.5))
        (2, False)
        """
        value = physical(literal.value)
        if self.kind == "real":
            return real_place(value, literal.type)
        if self.wide is not None:
            return self.wide.place(value)
        if self.kind == "number":
            return number_place(value, self.scale)
        wanted = bool if self.kind == "boolean" else int
        if type(value) is not wanted or not comparable(self.kind, literal):
            raise IncomparableError(f"{literal} is no {self.kind}")
        return int(value), True

    def places(self, literals: Sequence[Literal]) -> list[Place]:
        """The places of many literals; those of integers are found at once."""
        values = [literal.value for literal in literals]
        if self.kind == "number" and self.wide is None and self.scale == 0 and set(map(type, values)) == {int}:
            return [(value, True) for value in values]
        return [self.place(literal) for literal in literals]


@dataclass(frozen=True)
class WideDecimals:
    """The bounds of decimals with all their digits, of all files; null where there is none."""

    low: pa.Array
    high: pa.Array
    empty: Mask

    @cached_property
    def ranks(self) -> pa.Array:
        """The different bounds, in order."""
        distinct = pa.concat_arrays([self.low, self.high]).drop_null().unique()
        return distinct.take(pc.sort_indices(distinct))

    @cached_property
    def keys(self) -> SortKeys:
        """Twice the ranks, so that there is a key between any two."""
        low, high = (
            2 * np.asarray(pc.index_in(end, self.ranks).fill_null(0)).astype(np.int64) for end in (self.low, self.high)
        )
        return SortKeys(*_sealed(low, high, self.low, self.high, self.empty))

    def place(self, value: Any) -> Place:
        """The key of a literal's own: odd where it lies between two of the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise IncomparableError(f"{value!r} is no number")
        if value != value:
            return LAST + 1, False
        at = bisect_left(self.ranks, value, key=lambda bound: bound.as_py())
        return 2 * at - (at == len(self.ranks) or self.ranks[at].as_py() != value), True

    def reals(self) -> tuple[Doubles, Doubles]:
        """The doubles nearest to the bounds, or next to these; infinite where there is none."""
        low, high = (np.array(end.cast(pa.float64()).fill_null(0.0)) for end in (self.low, self.high))
        low[np.asarray(self.low.is_null())], high[np.asarray(self.high.is_null())] = -math.inf, math.inf
        return low, high

    def coarser(self, scale: int) -> WideDecimals:
        """The bounds rounded outwards to so many digits after the point."""
        if scale >= self.low.type.scale:
            return self
        return WideDecimals(_rounded(self.low, scale, "down"), _rounded(self.high, scale, "up"), self.empty)

    def where(self, fits: Mask) -> WideDecimals:
        """The same, nothing known where it does not fit; a file without values is such a file all the same."""
        low, high = (pc.if_else(pa.array(fits), end, pa.scalar(None, end.type)) for end in (self.low, self.high))
        return WideDecimals(low, high, self.empty)


def counts_of(files: Files, name: str, field: str) -> tuple[Ints, Mask]:
    """A count a file, and where it is known."""
    array = plain(files.summary(name, field))
    if pa.types.is_null(array.type):
        return np.zeros(len(files), dtype=np.int64), np.zeros(len(files), dtype=bool)
    known = np.asarray(array.is_valid())
    return np.asarray(array.fill_null(0).cast(pa.int64())), known


def bounds_of(files: Files, name: str) -> Interval | ByteStrings | None:
    """The ranges of an index's files; None where no file has a summary.

    A file has no values when its rows are counted and all of them null. A bound that is missing otherwise is open.
    """
    low, high = plain(files.summary(name, "min")), plain(files.summary(name, "max"))
    if pa.types.is_null(low.type) or low.type != high.type:
        return None
    (rows, counted), (nulls, known) = (counts_of(files, name, field) for field in ("rows", "nulls"))
    known &= counted
    empty = known & (rows == nulls)
    kind = low.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        exact = plain(files.summary(name, "exact"))
        flags = certain(exact) if pa.types.is_boolean(exact.type) else np.zeros(len(files), dtype=bool)
        return ByteStrings(low, high, empty, flags)
    if pa.types.is_floating(kind):
        nans, told = counts_of(files, name, "nans")
        return _reals(low, high, nan=~told | (nans != 0), empty=known & told & (rows == nulls + nans))
    if pa.types.is_decimal(kind):
        keys, scale = _unscaled(low, high)
        wide = WideDecimals(low, high, empty) if scale != low.type.scale else None
        return Interval("number", *_sealed(*keys, low, high, empty), scale, wide=wide)
    name_of = kind_of(kind)
    return None if name_of is None else Interval(name_of, *_sealed(words(low), words(high), low, high, empty))


def kind_of(arrow: pa.DataType) -> str | None:
    """The kind of a range whose keys are the values themselves, as whole numbers."""
    return next((name_of(arrow) for matches, name_of in _KINDS if matches(arrow)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], str]], ...] = (
    (pa.types.is_integer, lambda kind: "number"),
    (pa.types.is_boolean, lambda kind: "boolean"),
    (pa.types.is_date, lambda kind: "date"),
    (pa.types.is_timestamp, lambda kind: "timestamp" if kind.tz else "timestamp_ntz"),
    (pa.types.is_duration, lambda kind: "interval"),
)


def _sealed(low: Ints, high: Ints, lows: pa.Array, highs: pa.Array, empty: Mask) -> tuple[Ints, Ints]:
    """Keys with the sentinels in place of what is missing."""
    if lows.null_count or highs.null_count or empty.any():
        low, high = np.array(low), np.array(high)
        low[np.asarray(lows.is_null())], high[np.asarray(highs.is_null())] = FIRST, LAST
        low[empty], high[empty] = LAST, FIRST
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def _reals(lows: pa.Array, highs: pa.Array, *, nan: Mask, empty: Mask) -> Interval:
    low = np.array(lows.cast(pa.float64()).fill_null(-math.inf))
    high = np.array(highs.cast(pa.float64()).fill_null(math.inf))
    odd = np.isnan(low) | np.isnan(high)  # another writer's bounds may say NaN: then they bound nothing
    if odd.any() or empty.any():
        low[odd], high[odd], nan = -math.inf, math.inf, nan | odd
        low[empty], high[empty] = math.inf, -math.inf
    return Interval("real", low, high, nan=nan)


def words(array: pa.Array) -> Ints:
    """The values as whole numbers, 0 for null."""
    kind = array.type
    if pa.types.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz))
    elif pa.types.is_duration(kind):
        array = array.cast(pa.duration("us"))
    return np.asarray(array.cast(pa.int64()).fill_null(0))


def _unscaled(low: pa.Array, high: pa.Array) -> tuple[tuple[Ints, Ints], int]:
    """Decimals as unscaled int64: digits that do not fit are dropped, rounding ``low`` down and ``high`` up."""
    scale = low.type.scale
    drop = max(0, max(map(_digits, (low, high))) - 18)
    if drop:
        low, high = _rounded(low, scale - drop, "down"), _rounded(high, scale - drop, "up")
    return (_lowwords(low), _lowwords(high)), scale - drop


def _digits(array: pa.Array) -> int:
    """How many digits the longest unscaled value has."""
    ends = [end for end in pc.min_max(array).as_py().values() if end]
    return max((end.adjusted() + 1 + array.type.scale for end in ends), default=0)


def _rounded(array: pa.Array, scale: int, mode: str) -> pa.Array:
    wide = array.cast(pa.decimal256(76, array.type.scale))  # rounding up may need one digit more
    return pc.round(wide, ndigits=scale, round_mode=mode).cast(pa.decimal128(38, scale))


def _lowwords(array: pa.Array) -> Ints:
    """The lower 64 bits of decimals, which hold all of these."""
    array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=np.int64)
    words = np.frombuffer(buffer, dtype="<i8", count=2 * (len(array) + array.offset))
    return np.asarray(words[2 * array.offset :: 2])


def plain(array: Any) -> pa.Array:
    """An array in one chunk."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
