"""Canonical 64-bit hashes of values, and Bloom filters of these hashes.

Values that are equal in Spark have one hash in columns of any width:

=============================== =====================================================================================
integers, decimals              the number itself: 1 of any type and 1.00 are one value
floats, doubles                 the double; -0.0 as 0.0, every NaN as one
booleans, dates, times,         the integer that Spark stores: 0 or 1, days, microseconds, months
intervals
strings, binary                 the bytes, whether or not they are UTF-8
=============================== =====================================================================================

Integers and doubles have different hashes, since they are compared after a cast that rounds: :func:`keys_of` computes
the values of the column that may equal a literal after such a cast (soundness rules 3 and 5).

The hash must never change without a new :data:`VERSION`, which the metadata record.

A filter of m bits may contain a value with hash h if the bits at k places computed from h are set (Bloom 1970; an
arithmetic progression of places suffices, as Kirsch and Mitzenmacher showed). k depends only on the rate of false
positives, m also on the number of distinct values. m is rounded up to 64 or 96 times a power of two, which costs at
most 50 % more bits and leaves few different sizes in a dataset.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.interval import bytes_of
from geoskip.bounds.sort_keys import IncomparableError, Ints, comparable, nearest_real, physical
from geoskip.indexes.stored_bounds import cast_to_ordered, distinct, is_shared, share
from geoskip.predicates import Literal
from geoskip.types import SqlType, sql_type

VERSION = 1
Words = NDArray[np.uint64]
Key = int | float | bytes | tuple[int, int]
"""A hashed value: an integer of 64 bits, a double, bytes, or another decimal as (unscaled, scale)."""

_SHORT = 1 << 18
"""Arrays with fewer bytes of distinct values are hashed together; also the most arrays at once."""
_TOGETHER = 256
_MOST_NEAR = 16
"""The most numbers that round to one double: each probe adds its rate of false positives."""
_LONG = 512
"""Strings above this many bytes are hashed by BLAKE2b, one by one."""

LARGEST = 1 << 26
"""Bits of the largest filter: 8 MB, seven million distinct values at a rate of 0.01."""
_SMALL = 1 << 18
"""Bits of the largest filter that is built together with others, with one byte per bit."""
_WORD = (1 << 64) - 1
AT_ONCE = 1 << 22
"""Bits or hashes that are processed at once."""


def hashes_of(array: pa.Array) -> Words | None:
    """Return the hashes of an array's distinct values without NULL; None if Spark's values would differ.

    >>> one = [pa.array([1], kind) for kind in (pa.int8(), pa.int64(), pa.decimal128(5, 2))]
    >>> len({int(hashes_of(array)[0]) for array in one})
    1
    """
    return share(array, "hashes", lambda: _hashes_of(array))


def hashes_of_each(arrays: Sequence[pa.Array]) -> list[Words | None]:
    """Return the hashes of several arrays; short ones are hashed together to save calls."""
    together: dict[pa.DataType, list[tuple[pa.Array, pa.Array]]] = {}
    for array in arrays:
        if _is_plain(array.type) and not is_shared(array, "hashes"):
            values = cast_to_ordered(distinct(array))
            if values.nbytes <= _SHORT:
                together.setdefault(values.type, []).append((array, values))
    found: dict[int, Words] = {}
    for some in together.values():
        for at in range(0, len(some), _TOGETHER):
            several = some[at : at + _TOGETHER]
            words = _of_plain(pa.concat_arrays([values for _, values in several]))
            ends = np.cumsum([len(values) for _, values in several])
            for (array, _), each in zip(several, np.split(words, ends[:-1]), strict=True):
                found[id(array)] = share(array, "hashes", lambda each=each: each)  # type: ignore[misc]
    return [found[id(array)] if id(array) in found else hashes_of(array) for array in arrays]


def _is_plain(kind: pa.DataType) -> bool:
    """True for types with values that are hashed as one integer or as bytes."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    texts = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(texts or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind))


def _hashes_of(array: pa.Array) -> Words | None:
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(0, dtype=np.uint64)
    values = cast_to_ordered(distinct(array))
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        scale = {"s": 10**6, "ms": 10**3, "ns": 0}[kind.unit]
        if not scale:
            whole = pc.divide(values, 1000)
            if not pc.all(pc.equal(pc.multiply(whole, 1000), values)).as_py():
                return None  # Spark would truncate to microseconds
        values = pc.multiply(values, scale) if scale else whole
    if pa.types.is_decimal(values.type):
        return _of_decimals(values)
    if pa.types.is_floating(values.type):
        doubles = values.to_numpy(zero_copy_only=False).astype(np.float64)
        several = bool(np.any((doubles == 0) | np.isnan(doubles)))  # several bit patterns are one value
        return np.unique(_of_doubles(doubles)) if several else _of_doubles(doubles)
    return _of_plain(values)


def _of_plain(values: pa.Array) -> Words:
    """Return one hash for each byte string or integer."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return _of_bytes(values)
    return hash_integers(values.cast(pa.int64()).to_numpy(zero_copy_only=False))


def hashes_of_keys(keys: Sequence[Key]) -> Words:
    """Return the distinct hashes of some keys."""
    words = [key for key in keys if type(key) is int]
    doubles = [key for key in keys if type(key) is float]
    texts = [key for key in keys if type(key) is bytes]
    numbers = [key for key in keys if type(key) is tuple]
    found = [_of_number(*number) for number in numbers]
    if words:
        found.append(hash_integers(np.array(words, dtype=np.int64)))
    if doubles:
        found.append(_of_doubles(np.array(doubles, dtype=np.float64)))
    if texts:
        found.append(_of_bytes(pa.array(texts, pa.large_binary())))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.uint64)


_NUMBER = int | float | Decimal


def keys_of(kind: str, casts: Sequence[str], literal: Literal) -> list[Key]:
    """Return the keys of the values of a column that may equal a literal; empty if none can.

    ``kind`` is the column's type, ``casts`` the types that the query casts it to, innermost first. Raises
    IncomparableError if too many values may equal the literal, or types do not match.

    >>> (
    ...     keys_of("int", ["bigint"], Literal(1)),
    ...     keys_of("int", ["double"], Literal(2.0)),
    ...     keys_of("int", [], Literal(2.5)),
    ... )
    ([1], [2], [])
    """
    value = physical(literal.value)
    column = sql_type(kind)
    if column.is_exact:
        return _number_keys(column, casts, value)
    if column.is_floating:
        if isinstance(value, bool) or not isinstance(value, _NUMBER):
            raise IncomparableError(f"{literal} is no number")
        if casts and (kind, *casts) != ("float", "double"):
            raise IncomparableError("a cast that rounds")
        return [nearest_real(value, single=kind == "float" and not casts and literal.type == "float")]
    if casts:
        raise IncomparableError(f"a cast from {kind}")
    if kind == "binary" or column.is_text:
        if isinstance(value, str) is (kind == "binary"):
            raise IncomparableError(f"{literal} is no {kind}")
        return [bytes_of(literal)]
    family = "interval" if kind.startswith("interval") else kind
    wanted = bool if family == "boolean" else int
    if type(value) is not wanted or not comparable(family, literal) or not -(2**63) <= value < 2**63:
        raise IncomparableError(f"{literal} is no {kind}")
    return [int(value)]


def _number_keys(column: SqlType, casts: Sequence[str], value: Any) -> list[Key]:
    if isinstance(value, bool) or not isinstance(value, _NUMBER):
        raise IncomparableError(f"{value!r} is no number")
    exact, source = True, column
    for name in casts:
        target = sql_type(name)
        if target.is_floating and (source.is_exact or source.kind == "float"):
            exact = False
        elif not (exact and target.holds(source)):
            raise IncomparableError(f"a cast from {source.name} to {target.name}")
        source = target
    if not exact or isinstance(value, float):  # the number is compared as a double
        return _keys_near(column, float(value), single="float" in casts)
    key = _number_key(value)
    return [] if key is None else [key]


def _keys_near(column: SqlType, value: float, *, single: bool) -> list[Key]:
    """Return the keys of the numbers of a type that a cast may round to the given double.

    The error of the cast is half a unit in the last place, and for decimals, which are divided by a power of ten, a few
    units.
    """
    if not math.isfinite(value):
        return []
    middle, most = Fraction(value) * 10**column.scale, 10**column.precision
    certain = column.scale == 0  # whole numbers are rounded once, as in Python
    slack = abs(middle) / 2 ** (22 if single else 52 if certain else 49)
    low, high = max(math.ceil(middle - slack), -most), min(math.floor(middle + slack), most)
    if high - low >= _MOST_NEAR:
        raise IncomparableError("many numbers are rounded to this double")
    width: Any = np.float32 if single else float
    return [_decimal_key(near, column.scale) for near in range(low, high + 1) if not (certain and width(near) != value)]


def _number_key(value: int | float | Decimal) -> Key | None:
    """Return an exact number's key; None for numbers that no column type can represent."""
    if isinstance(value, float):
        value = int(value)
    if isinstance(value, int):
        unscaled, scale = value, 0
    else:
        if not value.is_finite() or abs(value.adjusted()) > 80:
            return 0 if not value else None
        sign, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        scale = -int(exponent)
        if scale < 0:
            unscaled, scale = unscaled * 10**-scale, 0
    return _decimal_key(unscaled, scale)


def _decimal_key(unscaled: int, scale: int) -> Key:
    """Return the key of a number without trailing zeros."""
    while scale > 0 and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    return unscaled if scale == 0 and -(2**63) <= unscaled < 2**63 else (unscaled, scale)


def _mix(words: Words) -> Words:
    """Apply SplitMix64's finalizer: every bit of the result depends on every bit of the word."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hash_integers(values: NDArray[np.int64]) -> Words:
    """Return one hash for each integer."""
    return _mix(np.ascontiguousarray(values).view(np.uint64))


def _of_doubles(values: NDArray[np.float64]) -> Words:
    values = values + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = math.nan
    return _mix(values.view(np.uint64))


def _of_number(unscaled: int, scale: int) -> Words:
    """Return the hash of a number that is not a 64-bit integer."""
    if -(2**63) <= unscaled < 2**63:
        return _of_scaled(np.array([unscaled]), np.array([scale]))
    return _of_bytes(pa.array([f"{unscaled}e-{scale}".encode()], pa.large_binary()))


def _of_scaled(unscaled: NDArray[np.int64], scale: NDArray[np.int64]) -> Words:
    return _mix(hash_integers(unscaled) ^ scale.astype(np.uint64))


def _of_decimals(values: pa.Array) -> Words:
    """Return the hashes of decimals without trailing zeros; those of more than 64 bits one by one."""
    values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    halves = np.frombuffer(values.buffers()[1], dtype="<i8")[2 * values.offset :][: 2 * len(values)]
    low, fits = halves[::2].copy(), halves[1::2] == halves[::2] >> 63
    scale = np.full(len(values), max(0, values.type.scale))
    if values.type.scale < 0:
        fits = np.zeros(len(values), dtype=bool)
    for _ in range(max(0, values.type.scale)):
        ends = (low % 10 == 0) & (scale > 0)
        if not ends.any():
            break
        low[ends] //= 10
        scale[ends] -= 1
    found = np.where(scale == 0, hash_integers(low), _of_scaled(low, scale))[fits]
    if fits.all():
        return np.asarray(found)
    keys = [_number_key(value) for value in values.filter(pa.array(~fits)).to_pylist()]
    return np.concatenate([found, hashes_of_keys([key for key in keys if key is not None])])


def _of_bytes(values: pa.Array) -> Words:
    """Return the hashes of strings from their lengths and 8-byte words, for all strings word by word."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1] if offsets else None
    if ends is None or not len(values):
        return np.zeros(0, dtype=np.uint64)
    lengths = np.diff(ends)
    padded = np.zeros(int(ends[-1] - ends[0]) + 8, dtype=np.uint8)
    if data is not None:
        padded[:-8] = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    at_byte = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    starts = ends[:-1] - ends[0]
    found = _mix(lengths.astype(np.uint64))
    order = np.argsort(-lengths, kind="stable")
    order = order[np.searchsorted(-lengths[order], -_LONG) :]
    words = -(-lengths[order] // 8)
    for word in range(int(words[0]) if len(words) else 0):
        active = order[: np.searchsorted(-words, -word)]
        left = lengths[active] - 8 * word
        read = at_byte[starts[active] + 8 * word]
        short = left < 8
        read[short] &= (np.uint64(1) << (np.uint64(8) * left[short].astype(np.uint64))) - np.uint64(1)
        found[active] = _mix(found[active] ^ read)
    for number in np.flatnonzero(lengths > _LONG).tolist():
        text = padded[starts[number] : starts[number] + lengths[number]].tobytes()
        found[number] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return found


def probes_for(fpp: float) -> int:
    """Return the number k of bits per value.

    >>> probes_for(0.01), probes_for(0.5)
    (7, 1)
    """
    return max(1, round(-math.log2(fpp)))


def bits_for(distinct: int, fpp: float) -> int:
    """Return the size in bits of a filter for a number of distinct values.

    >>> bits_for(0, 0.01), bits_for(1, 0.01), bits_for(1000, 0.01), bits_for(1100, 0.01)
    (0, 64, 12288, 12288)
    """
    if not distinct:
        return 0
    probes = probes_for(fpp)
    needed = math.ceil(-probes * distinct / math.log1p(-(fpp ** (1 / probes))))
    size = 64
    while size < needed:
        size *= 2
    return size * 3 // 4 if size > 64 and size * 3 // 4 >= needed and size * 3 // 4 % 32 == 0 else size


def filter_of(hashes: Words, fpp: float) -> bytes | None:
    """Return the filter of distinct hashes; None if it would be larger than :data:`LARGEST`."""
    bits = bits_for(len(hashes), fpp)
    if bits > LARGEST:
        return None
    chosen = np.zeros(bits, dtype=np.uint8)
    for at in range(0, len(hashes), AT_ONCE):
        for places in places_of(hashes[at : at + AT_ONCE], probes_for(fpp), bits):
            chosen[places] = 1
    return np.packbits(chosen, bitorder="little").tobytes()


def filters_for(hashes: Sequence[Words], fpp: float) -> list[bytes | None]:
    """Return several filters; small ones are built together to save calls."""
    sizes = [bits_for(len(each), fpp) for each in hashes]
    small = [number for number, size in enumerate(sizes) if size <= _SMALL]
    bits = np.array([sizes[number] for number in small], dtype=np.int64)
    ends = np.cumsum(bits)
    chosen = np.zeros(int(bits.sum()), dtype=np.uint8)
    if len(chosen):
        lengths = [len(hashes[number]) for number in small]
        words, starts = np.concatenate([hashes[number] for number in small]), np.repeat(ends - bits, lengths)
        for places in places_of(words, probes_for(fpp), np.repeat(bits, lengths).astype(np.uint64)):
            chosen[places + starts] = 1
    packed = np.packbits(chosen, bitorder="little").tobytes()
    made = {
        n: packed[(end - size) >> 3 : end >> 3]
        for n, end, size in zip(small, ends.tolist(), bits.tolist(), strict=True)
    }
    return [made[number] if number in made else filter_of(each, fpp) for number, each in enumerate(hashes)]


def places_of(hashes: Words, probes: int, bits: int | Words) -> Iterator[Ints]:
    """Iterate over the first place of each hash, then over the second places, and so on."""
    step = (hashes * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    range_of = np.asarray(bits, dtype=np.uint64)
    for _ in range(probes):
        yield (((hashes >> np.uint64(32)) * range_of) >> np.uint64(32)).astype(np.int64)
        hashes = hashes + step


def places_of_one(value: int, probes: int, bits: int) -> list[int]:
    """Return the same places as :func:`places_of`, for one hash."""
    step = (value * 0x9E3779B97F4A7C15) | 1
    return [((((value + number * step) & _WORD) >> 32) * bits) >> 32 for number in range(probes)]
