"""Single values: their outcomes as bits, their keys, and conditions as intervals of keys.

*Keys* have the order of values in Spark. Those of numbers, dates and times are whole numbers (the bits of doubles, with
NaN equal to itself and above all, and -0.0 equal to 0.0; unscaled decimals), those of strings and binary are the bytes.
"""

from __future__ import annotations

import itertools
import re
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.conditions import Interval, Intervals, complement, union
from geoskip.predicates import Call, Comparison, Contains, EndsWith, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.types import sql_type

IS_TRUE, IS_FALSE, IS_NULL = 1, 2, 4
ANY = IS_TRUE | IS_FALSE | IS_NULL
Outcomes = NDArray[np.uint8]
FIRST = -(2**63)
LAST = 2**63 - 1
NAN_KEY = 0x7FF8_0000_0000_0000
_MICROSECONDS = 1_000_000
_DIGITS = Context(prec=100)


@dataclass(frozen=True)
class CandidateValues:
    """Physical values (:func:`physical`) to substitute for an expression, with or without NULL.

    ``ascending`` is True for Spark's order with NULL last, which allows binary searches. ``token`` identifies the
    values in this process, so that they are sent to an engine only once.
    """

    array: pa.Array
    ascending: bool = False
    token: int = field(default_factory=itertools.count(1).__next__)

    def __len__(self) -> int:
        return len(self.array)


def negation(found: Outcomes) -> Outcomes:
    """Return the outcomes of the negation."""
    return _SWAPPED[found]


_SWAPPED = np.array([(b & IS_NULL) | (b & 1) << 1 | (b & 2) >> 1 for b in range(8)], dtype=np.uint8)


def conjunction_outcomes(parts: Sequence[Outcomes]) -> Outcomes:
    """Return the outcomes of an AND: TRUE needs all, FALSE one, NULL one and no certain FALSE."""
    every = np.bitwise_and.reduce([part & IS_TRUE for part in parts])
    some = np.bitwise_or.reduce(parts)
    may_be_null = np.logical_and.reduce([part & (IS_TRUE | IS_NULL) != 0 for part in parts])
    return np.asarray(every | some & IS_FALSE | (some & IS_NULL) * may_be_null, dtype=np.uint8)


def sort_order(array: pa.Array) -> NDArray[np.int64]:
    """Return the sort order of physical values: Spark's, with -0.0 before 0.0, NaN and then NULL last."""
    order: NDArray[np.int64]
    if pa.types.is_floating(array.type):
        plain = np.asarray(array.fill_null(0.0).to_numpy(zero_copy_only=False))
        order = np.lexsort((~np.signbit(plain), plain, np.asarray(array.is_null())))
    else:
        order = np.asarray(pc.array_sort_indices(array)).astype(np.int64)
    return order


def physical(values: pa.Array) -> pa.Array:
    """Convert to physical values: int64 (also for booleans, dates and times), float64, binary, decimal128.

    Raises ArrowInvalid for a time with a fraction of a microsecond, ArrowNotImplementedError for other types.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return physical(values.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_decimal128(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values
    if pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.int64())
    return values.cast(pa.large_binary())


def decimals_of(unscaled: NDArray[np.int64], kind: pa.DataType, null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Create 128-bit decimals from their unscaled values."""
    words = np.stack([unscaled, unscaled >> 63], axis=1).astype("<i8")  # sign-extended
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(unscaled), [valid, pa.py_buffer(words.tobytes())])


def finite(value: Any) -> float | None:
    """Return a number as a finite double, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def float_keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return keys in the order of numbers: the bits of negative numbers are inverted."""
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    bits ^= (bits >> 63) & LAST
    return bits


def singleton(text: bytes) -> Interval:
    r"""Return the interval that contains only one byte string.

    >>> singleton(b"ab"), prefix_interval(b"ab")
    ((b'ab', b'ab\x00'), (b'ab', b'ac'))
    """
    return text, text + b"\0"


def prefix_interval(text: bytes) -> Interval:
    """Return the interval of the byte strings with a prefix."""
    return text, successor(text)


def successor(prefix: bytes) -> bytes | None:
    """Return the least byte string above all strings with a prefix, or None.

    >>> successor(b"ab"), successor(b"a" + bytes([255])), successor(b"")
    (b'ac', b'b', None)
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


class OutcomeSets(NamedTuple):
    """The keys for which a condition may be TRUE, its outcome for NULL, and the uncertain keys.

    The condition may be FALSE for all other keys, and for the uncertain ones.
    """

    true: Intervals
    of_null: int = IS_NULL
    unsure: Intervals = ()

    @property
    def false(self) -> Intervals:
        """The keys for which the condition may be FALSE."""
        return union([*complement(self.true), *self.unsure]) if self.unsure else complement(self.true)


_IS_NAN = "org.apache.spark.sql.catalyst.expressions.IsNaN"


def outcome_sets(node: Predicate, over: Predicate, kind: pa.DataType) -> OutcomeSets | None:
    """Return the outcomes of common conditions directly on an expression, by keys; else None.

    A literal of another type than the values is not compared here, but by the engine.

    Parameters
    ----------
    node
        The condition.
    over
        The part of it that the values replace.
    kind
        The type of the physical values.
    """
    match node:
        case Not(child):
            found = outcome_sets(child, over, kind)
            return found and OutcomeSets(found.false, int(_SWAPPED[found.of_null]), found.unsure)
        case IsNull(child) | Comparison("<=>", child, Literal(None)) if child == over:
            return OutcomeSets((), IS_TRUE)
        case Comparison(op, child, Literal() as literal) if child == over and literal.value is not None:
            equal = _equal_to(literal, kind, over)
            of_null = IS_FALSE if op == "<=>" else IS_NULL
            return equal and OutcomeSets(union([interval_of(op, *equal)]), of_null)
        case In(child, literals) if child == over and all(literal.value is not None for literal in literals):
            several = [_equal_to(literal, kind, over) for literal in literals]
            true = union(equal for equal in several if equal is not None)
            unsure = pa.types.is_floating(kind) and (0, 1) in several
            # for many values Spark uses a hash set, which distinguishes -0.0 from 0.0
            return None if None in several else OutcomeSets(true, unsure=((0, 1),) if unsure else ())
        case Call(_, (child,), implementation=impl) if impl == _IS_NAN and child == over and pa.types.is_floating(kind):
            return OutcomeSets(((NAN_KEY, NAN_KEY + 1),), IS_FALSE)
        case StartsWith(child, text) if child == over and is_bytes(kind):
            return OutcomeSets((prefix_interval(text.encode("utf-8", "surrogateescape")),))
        case _ if node == over and over.type == "boolean":
            return OutcomeSets(((1, 2),))
    return None


def interval_of(op: str, low: Any, high: Any) -> Interval:
    """Return the interval of keys for ``key op literal``, where keys in ``[low, high)`` equal the literal.

    >>> interval_of("<=", 5, 6), interval_of(">", 5, 6), interval_of("=", 5, 6)
    ((None, 6), (6, None), (5, 6))
    """
    match op:
        case "<":
            return None, low
        case "<=":
            return None, high
        case ">":
            return high, None
        case ">=":
            return low, None
    return low, high


def _equal_to(literal: Literal, kind: pa.DataType, over: Predicate) -> Interval | None:
    """Return the interval of keys equal to a literal, which may be empty; None if not comparable."""
    value = value_in(literal, kind, over)
    if value is None:
        return None
    if isinstance(value, bytes):
        return singleton(value)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > 80:
            return None
        scaled = Fraction(value) * Fraction(10) ** kind.scale
        return ceil(scaled), floor(scaled) + 1
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))  # as float_keys
        value = NAN_KEY if value != value else bits if bits >= 0 else bits ^ LAST
    return value, value + 1


def value_in(literal: Literal, kind: pa.DataType, over: Predicate) -> Any:
    """Return a literal's physical value in the type of the values; None for another type."""
    value, ours, theirs = literal.value, over.type or "", literal.type or ""
    if pa.types.is_integer(kind):
        if type(value) is bool:
            return int(value) if ours == "boolean" else None
        times = ("date", "timestamp", "timestamp_ntz")
        same = not theirs or ours == theirs or (ours not in times and theirs not in times)
        return value if type(value) is int and same and ours != "boolean" else None
    if pa.types.is_floating(kind):
        exact = type(value) is float or (type(value) is int and abs(value) <= 2**53)
        return float(value) if exact else None
    if pa.types.is_decimal(kind):
        return Decimal(value) if type(value) in (int, Decimal) else None
    if isinstance(value, str) and ours != "binary":
        return value.encode("utf-8", "surrogateescape")
    of_text = sql_type(ours).is_text or ours.startswith("string collate")
    return value if isinstance(value, bytes) and not of_text else None


def is_bytes(kind: pa.DataType) -> bool:
    """True for the types of physical strings and binary."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def runs_within(values: pa.Array, intervals: Intervals) -> list[tuple[int, int]]:
    """Return the runs of values with keys in the intervals; the values are ascending, without NULL.

    A run is the position of its first value and the position after its last.

    >>> runs_within(pa.array([1, 3, 5, 7]), ((None, 3), (4, 6)))
    [(0, 1), (2, 3)]
    """
    if not len(values) or not intervals:
        return []
    many = len(intervals) > _FEW and is_bytes(values.type)
    if many and all(low is not None and low + b"\0" == high for low, high in intervals):
        found = pc.is_in(values, pa.array([low for low, _ in intervals], values.type))
        return [(at, at + 1) for at in np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist()]
    ends = [end for interval in intervals for end in interval if end is not None]
    places = _search(values, ends)
    if intervals[0][0] is None:
        places.insert(0, 0)
    if intervals[-1][1] is None:
        places.append(len(values))
    return list(zip(places[::2], places[1::2], strict=True))


_FEW = 64


def _search(values: pa.Array, ends: Sequence[Any]) -> list[int]:
    """Return the position of the first key at or above each of some ascending ends."""
    real = pa.types.is_floating(values.type)
    if real or pa.types.is_integer(values.type):
        last = NAN_KEY if real else LAST
        keys = np.array([max(end, FIRST) for end in ends if end <= last], dtype=np.int64)
        if real:
            keys = (keys ^ ((keys >> 63) & LAST)).view(np.float64)
        found: list[int] = np.searchsorted(values.to_numpy(zero_copy_only=False), keys).tolist()
        return found + [len(values)] * (len(ends) - len(found))
    items, found = _Keys(values), []
    for end in ends:
        found.append(bisect_left(items, end, found[-1] if found else 0))
    return found


class _Keys(Sequence[Any]):
    """The keys of decimals, strings or binary, computed on access."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self.scale = array.type.scale if pa.types.is_decimal(array.type) else None

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        value = self.array[at].as_py()
        return value if self.scale is None else int(value.scaleb(self.scale, _DIGITS))


def direct_outcomes(node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
    """Return the outcomes of a condition by keys or plain tests of text; None for other conditions."""
    sets = outcome_sets(node, over, values.array.type)
    if sets is None:
        return _text_test(node, over, values.array)
    order = None if values.ascending else sort_order(values.array)
    array = values.array if order is None else values.array.take(pa.array(order))
    known = len(array) - array.null_count
    found = np.full(len(array), sets.of_null, dtype=np.uint8)
    found[:known] = 0
    for bit, intervals in ((IS_TRUE, sets.true), (IS_FALSE, sets.false)):
        for low, high in runs_within(array[:known], intervals):
            found[low:high] |= bit
    if order is None:
        return found
    result = np.empty_like(found)
    result[order] = found
    return result


def _text_test(node: Predicate, over: Predicate, array: pa.Array) -> Outcomes | None:
    match node:
        case Not(child):
            found = _text_test(child, over, array)
            return None if found is None else negation(found)
        case EndsWith(child, text) | Contains(child, text) if child == over and is_bytes(array.type):
            test = pc.ends_with if isinstance(node, EndsWith) else pc.match_substring
            true = test(array, pattern=text.encode("utf-8", "surrogateescape"))
            found = np.where(np.asarray(true.fill_null(False)), np.uint8(IS_TRUE), np.uint8(IS_FALSE))
            found[np.asarray(array.is_null())] = IS_NULL
            return found
    return None


def like_tokens(pattern: str, escape: str) -> list[tuple[str, bool]] | None:
    """Return the characters of a pattern, each with True for a wildcard; None if Spark rejects it."""
    tokens, rest = [], iter(pattern)
    for char in rest:
        escaped = next(rest, None) if char == escape else None
        if char == escape and escaped not in (escape, "_", "%"):
            return None
        tokens.append((escaped or char, escaped is None and char in "_%"))
    return tokens


def like_outcomes(array: pa.Array, pattern: str, escape: str) -> Outcomes:
    """Evaluate LIKE by a regular expression for each value; invalid UTF-8 on either side is undecided."""
    if any("\ud800" <= char <= "\udfff" for char in pattern):  # Spark decodes invalid bytes of the pattern to U+FFFD
        return np.full(len(array), ANY, dtype=np.uint8)
    tokens = like_tokens(pattern, escape)
    if tokens is None:
        return np.full(len(array), ANY, dtype=np.uint8)
    regex = "".join(re.escape(char) if not wild else "." if char == "_" else ".*" for char, wild in tokens)
    matches = re.compile(regex, re.DOTALL).fullmatch

    def outcome(value: bytes | None) -> int:
        if value is None:
            return IS_NULL
        try:
            return IS_TRUE if matches(value.decode("utf-8")) else IS_FALSE
        except UnicodeDecodeError:
            return ANY

    return np.fromiter(map(outcome, array.to_pylist()), dtype=np.uint8, count=len(array))


@dataclass(frozen=True, eq=False)
class ZoneTransitions:
    """Transitions of a time zone and its offsets from UTC between them, in microseconds.

    >>> clocks = ZoneTransitions.of("7258118400 0 10:3600 20:-1800")
    >>> clocks.at.tolist(), [ahead // 10**6 for ahead in clocks.ahead.tolist()]
    ([10000000, 20000000], [0, 3600, -1800])
    """

    at: NDArray[np.int64]
    ahead: NDArray[np.int64]
    """The offsets before the first transition, and from each transition on: one more than ``at``."""
    until: int
    """From this time on, transitions are unknown."""

    @classmethod
    def of(cls, text: str) -> ZoneTransitions:
        """Parse text of seconds: ``until``, the first offset, then ``time:offset`` for each transition."""
        until, first, *rest = text.split()
        pairs = [pair.split(":") for pair in rest]
        at = np.array([int(time) for time, _ in pairs], dtype=np.int64)
        ahead = np.array([int(first), *(int(ahead) for _, ahead in pairs)], dtype=np.int64)
        return cls(at * _MICROSECONDS, ahead * _MICROSECONDS, int(until) * _MICROSECONDS)
