"""Intervals of the values in every unit (a file, a segment or a box), read from stored bounds.

Strings and binary are in Spark's order, by unsigned bytes, as in Arrow. (The order of Java strings, by UTF-16 units,
differs above U+FFFF.)
"""

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
    PRESENT,
    Doubles,
    IncomparableError,
    Ints,
    LiteralKey,
    SortKeys,
    comparable,
    number_key,
    physical,
    real_key,
)
from geoskip.clauses import Files, Mask
from geoskip.conditions import AllOf, Compare, Condition, Negation, SomeValue
from geoskip.evaluation.values import FIRST, LAST, float_keys, successor
from geoskip.evaluation.values import physical as stored_values
from geoskip.predicates import Literal


@dataclass(frozen=True)
class Interval:
    """The range of the values of every unit except NULL and NaN: from ``low`` to ``high``.

    Attributes
    ----------
    kind : str
        ``"number"`` (integers and decimals), ``"real"`` (floats and doubles), or the type's name: ``"date"``,
        ``"timestamp"``, ``"timestamp_ntz"``, ``"boolean"``, ``"interval"``.
    low, high : array of int64 or float64
        Doubles for reals, else whole numbers; unscaled for decimals. A unit without values has the greatest key as
        ``low`` and the least key as ``high``, an unknown unit the reverse.
    scale : int
        Numbers are values times ``10 ** scale``.
    nan : array of bool, optional
        Units that may contain NaN, for reals.
    wide : WideDecimals, optional
        The exact bounds of decimals with too many digits for ``low`` and ``high``, which are rounded outwards.
    """

    kind: str
    low: NDArray[Any]
    high: NDArray[Any]
    scale: int = 0
    nan: Mask | None = None
    wide: WideDecimals | None = None

    def keys(self) -> SortKeys:
        """Return the bounds as order-preserving keys."""
        if self.wide is not None:
            return self.wide.keys
        if self.kind != "real":
            return SortKeys(self.low, self.high)
        low, high, empty = float_keys(self.low), float_keys(self.high), self.low > self.high
        if empty.any():
            low[empty], high[empty] = LAST, FIRST
        if self.nan is None or not self.nan.any():
            return SortKeys(low, high)
        unknown = self.nan & (self.low == -math.inf) & (self.high == math.inf)
        low[unknown], high[unknown] = FIRST, LAST
        return SortKeys(low, high, self.nan)

    def as_real(self, target: str) -> Interval:
        """Convert numbers to doubles or floats, rounded as Spark does.

        Decimals are widened by the possible difference between Spark's two roundings and the one here.
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
        """Round decimals outwards to fewer digits after the point."""
        wide = None if self.wide is None else self.wide.coarser(scale)
        if self.scale <= scale:  # already rounded to fewer digits
            return replace(self, wide=wide)
        by, empty = min(10 ** (self.scale - scale), LAST), self.low > self.high  # a greater one has the same quotients
        low, high = np.where(self.low == FIRST, FIRST, self.low // by), -(-np.maximum(self.high, -LAST) // by)
        high = np.where(self.high == LAST, LAST, high)
        low[empty], high[empty] = LAST, FIRST
        return replace(self, low=low, high=high, scale=scale, wide=wide)

    def literal_key(self, literal: Literal) -> LiteralKey:
        """Return the key of the greatest value not above a literal, and True if that value equals it.

        >>> Interval("number", np.zeros(1), np.zeros(1)).literal_key(Literal(2.5))
        (2, False)
        """
        value = physical(literal.value)
        if self.kind == "real":
            return real_key(value, literal.type)
        if self.wide is not None:
            return self.wide.literal_key(value)
        if self.kind == "number":
            return number_key(value, self.scale)
        wanted = bool if self.kind == "boolean" else int
        if type(value) is not wanted or not comparable(self.kind, literal):
            raise IncomparableError(f"{literal} is no {self.kind}")
        return int(value), True

    def literal_keys(self, literals: Sequence[Literal]) -> list[LiteralKey]:
        """Return the keys of many literals, with a fast path for integers."""
        values = [literal.value for literal in literals]
        if self.kind == "number" and self.wide is None and self.scale == 0 and set(map(type, values)) == {int}:
            return [(value, True) for value in values]
        return [self.literal_key(literal) for literal in literals]


@dataclass(frozen=True)
class WideDecimals:
    """Bounds of decimals with all digits; null if missing."""

    low: pa.Array
    high: pa.Array
    empty: Mask

    @cached_property
    def ranks(self) -> pa.Array:
        """The distinct bounds in ascending order."""
        distinct = pa.concat_arrays([self.low, self.high]).drop_null().unique()
        return distinct.take(pc.sort_indices(distinct))

    @cached_property
    def keys(self) -> SortKeys:
        """Twice the ranks, so that a key exists between any two bounds."""
        low, high = (
            2 * np.asarray(pc.index_in(end, self.ranks).fill_null(0)).astype(np.int64) for end in (self.low, self.high)
        )
        return SortKeys(*_fill_missing(low, high, self.low, self.high, self.empty))

    def literal_key(self, value: Any) -> LiteralKey:
        """Return the key of a literal: odd if it lies between two bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise IncomparableError(f"{value!r} is no number")
        if value != value:
            return LAST + 1, False
        at = bisect_left(self.ranks, value, key=lambda bound: bound.as_py())
        return 2 * at - (at == len(self.ranks) or self.ranks[at].as_py() != value), True

    def reals(self) -> tuple[Doubles, Doubles]:
        """Return the bounds as doubles, within one unit in the last place; infinite if missing."""
        low, high = (np.array(end.cast(pa.float64()).fill_null(0.0)) for end in (self.low, self.high))
        low[np.asarray(self.low.is_null())], high[np.asarray(self.high.is_null())] = -math.inf, math.inf
        return low, high

    def coarser(self, scale: int) -> WideDecimals:
        """Round the bounds outwards to a number of digits after the point."""
        if scale >= self.low.type.scale:
            return self
        return WideDecimals(_round(self.low, scale, "down"), _round(self.high, scale, "up"), self.empty)

    def where(self, fits: Mask) -> WideDecimals:
        """Return the bounds, unknown where the mask is False; units without values stay empty."""
        low, high = (pc.if_else(pa.array(fits), end, pa.scalar(None, end.type)) for end in (self.low, self.high))
        return WideDecimals(low, high, self.empty)


def counts_of(files: Files, name: str, field: str) -> tuple[Ints, Mask]:
    """Return a stored count for each unit, and a mask of the known ones."""
    array = plain(files.summary(name, field))
    if pa.types.is_null(array.type):
        return np.zeros(len(files), dtype=np.int64), np.zeros(len(files), dtype=bool)
    known = np.asarray(array.is_valid())
    return np.asarray(array.fill_null(0).cast(pa.int64())), known


def counts_or_unknown(files: Files, name: str, field: str) -> Ints:
    """Return a stored count for each unit, -1 if unknown."""
    counts, known = counts_of(files, name, field)
    return np.where(known, counts, -1)


def bounds_of(files: Files, name: str) -> Interval | ByteStrings | None:
    """Return the intervals of an index's units; None if none has a summary.

    A unit has no values if its counts are known and all rows are NULL. Other units with a missing bound are unbounded
    on that side.
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
        nans, counted = counts_of(files, name, "nans")
        return _reals(low, high, nan=~counted | (nans != 0), empty=known & counted & (rows == nulls + nans))
    if pa.types.is_decimal(kind):
        keys, scale = _unscaled_values(low, high)
        wide = WideDecimals(low, high, empty) if scale != low.type.scale else None
        return Interval("number", *_fill_missing(*keys, low, high, empty), scale, wide=wide)
    name_of = kind_of(kind)
    return None if name_of is None else Interval(name_of, *_fill_missing(_words(low), _words(high), low, high, empty))


def one_sided_bounds(files: Files, name: str, field: str) -> Interval | None:
    """Return one bound of all units as both ends; None if missing, or not a number, date or time.

    So an order comparison right after the metadata were loaded reads only one column. NaN is greater than any stored
    ``max``: if a unit may contain NaN, the result is None too.
    """
    values = plain(files.summary(name, field))
    kind = values.type
    if values.null_count or pa.types.is_null(kind):
        return None
    if pa.types.is_floating(kind):
        nans = plain(files.summary(name, "nans")) if field == "max" else None
        if nans is not None and (nans.null_count or not pa.types.is_integer(nans.type) or np.asarray(nans).any()):
            return None
        reals = np.asarray(values.cast(pa.float64()))
        return None if np.isnan(reals).any() else Interval("real", reals, reals)
    if (name_of := kind_of(kind)) is None:
        return None
    words = _words(values)
    return Interval(name_of, words, words)


def kind_of(arrow: pa.DataType) -> str | None:
    """Return the kind of interval for a type with whole numbers as keys; None for other types."""
    return next((name_of(arrow) for matches, name_of in _KINDS if matches(arrow)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], str]], ...] = (
    (pa.types.is_integer, lambda kind: "number"),
    (pa.types.is_boolean, lambda kind: "boolean"),
    (pa.types.is_date, lambda kind: "date"),
    (pa.types.is_timestamp, lambda kind: "timestamp" if kind.tz else "timestamp_ntz"),
    (pa.types.is_duration, lambda kind: "interval"),
)


def _fill_missing(low: Ints, high: Ints, lows: pa.Array, highs: pa.Array, empty: Mask) -> tuple[Ints, Ints]:
    """Replace missing keys by sentinels."""
    if lows.null_count or highs.null_count or empty.any():
        low, high = np.array(low), np.array(high)
        low[np.asarray(lows.is_null())], high[np.asarray(highs.is_null())] = FIRST, LAST
        low[empty], high[empty] = LAST, FIRST
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def _reals(lows: pa.Array, highs: pa.Array, *, nan: Mask, empty: Mask) -> Interval:
    low = np.array(lows.cast(pa.float64()).fill_null(-math.inf))
    high = np.array(highs.cast(pa.float64()).fill_null(math.inf))
    odd = np.isnan(low) | np.isnan(high)  # other writers may store NaN as a bound: it is treated as unbounded
    if odd.any() or empty.any():
        low[odd], high[odd], nan = -math.inf, math.inf, nan | odd
        low[empty], high[empty] = math.inf, -math.inf
    return Interval("real", low, high, nan=nan)


def _words(array: pa.Array) -> Ints:
    """Return values as whole numbers, 0 for null."""
    return np.asarray(stored_values(array).fill_null(0))


def _unscaled_values(low: pa.Array, high: pa.Array) -> tuple[tuple[Ints, Ints], int]:
    """Return decimals as unscaled int64; digits that do not fit are rounded outwards."""
    scale = low.type.scale
    drop = max(0, max(map(_digits, (low, high))) - 18)
    if drop:
        low, high = _round(low, scale - drop, "down"), _round(high, scale - drop, "up")
    return (_lowwords(low), _lowwords(high)), scale - drop


def _digits(array: pa.Array) -> int:
    """Return the number of digits of the longest unscaled value."""
    ends = [end for end in pc.min_max(array).as_py().values() if end]
    return max((end.adjusted() + 1 + array.type.scale for end in ends), default=0)


def _round(array: pa.Array, scale: int, mode: str) -> pa.Array:
    wide = array.cast(pa.decimal256(76, array.type.scale))  # rounding up may add a digit
    return pc.round(wide, ndigits=scale, round_mode=mode).cast(pa.decimal128(38, scale))


def _lowwords(array: pa.Array) -> Ints:
    """Return the lower 64 bits of decimals that fit 64 bits."""
    array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=np.int64)
    words = np.frombuffer(buffer, dtype="<i8", count=2 * (len(array) + array.offset))
    return np.asarray(words[2 * array.offset :: 2])


def plain(array: Any) -> pa.Array:
    """Return an array as one chunk."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


@dataclass(frozen=True)
class ByteStrings:
    """Bounds of strings or binary; null is unbounded, ``empty`` marks units without values."""

    low: pa.Array
    high: pa.Array
    empty: Mask
    exact: Mask

    @property
    def present(self) -> Mask:
        """Units that may contain a value."""
        return np.asarray(~self.empty)


def texts_meet(op: str, values: Sequence[bytes]) -> Condition:
    """Return the condition that ``value op literal`` may hold for some value; several literals for ``=``."""
    if op == "=":
        return AllOf((SomeValue(tuple(sorted(set(values)))), PRESENT))
    return AllOf((Compare("high" if op[0] == ">" else "low", op, values[0]), PRESENT))


def texts_differ(values: Sequence[bytes]) -> Condition:
    """Return the condition that some value may differ from all literals: none is the only value."""
    same = SomeValue(tuple(sorted(set(values))), equal=True)
    return AllOf((Negation(AllOf((same, Compare("exact", "=", True)))), PRESENT))


def prefix_meets(prefix: bytes) -> Condition:
    """Return the condition that some value may begin with a prefix."""
    above = successor(prefix)
    begins = () if above is None else (Compare("low", "<", above),)
    return AllOf((Compare("high", ">=", prefix), *begins, PRESENT))


def prefix_differs(prefix: bytes) -> Condition:
    """Return the condition that some value may lack a prefix: false if both bounds begin with it."""
    above = successor(prefix)
    ends = () if above is None else (Compare("high", "<", above),)
    return AllOf((Negation(AllOf((Compare("low", ">=", prefix), *ends))), PRESENT))


def bytes_of(literal: Literal) -> bytes:
    """Return a string or binary literal as bytes."""
    value = literal.value
    try:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(memoryview(value))
    except (TypeError, UnicodeEncodeError):
        raise IncomparableError(f"{literal} is neither a string nor binary") from None


def certain(answer: pa.Array) -> Mask:
    """Convert a boolean array to a mask, null to False."""
    return np.asarray(answer.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
