"""Arrow values as JSON and back, exactly, also where JSON or a server would round or change them.

=============================== ====================================================================================
integers, dates, times          a number; beyond 2^53 its digits as a string
floats                          a number; NaN, infinities and ``-0.0`` as the 16 hexadecimal digits of their bits
strings and binary              a string where the bytes are UTF-8, else a list with the bytes in base64
decimals                        their digits as a string
booleans, null                  themselves
lists and all other types       Arrow's own message of one value, in base64, packed by zlib where that is shorter
=============================== ====================================================================================

A server returns the values that it was sent, but may write a number in another way (``1e-7`` as ``1.0E-7``): checksums
are of the JSON that Python writes.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["checksum", "decode", "encode"]

_EXACT = 2**53
_LARGEST = 1 << 28
_PACKED = "z"
"""Prefix of a packed message, before a colon, which does not occur in base64."""

Cells = list[Any]


def encode(array: pa.Array) -> Cells:
    """Encode an array as a list of JSON values.

    >>> encode(pa.array([1, None, 2**60])), encode(pa.array([0.5, float("inf")]))
    ([1, None, '1152921504606846976'], [0.5, '7ff0000000000000'])
    >>> encode(pa.array([b"text", bytes([255])]))
    ['text', ['/w==']]
    """
    if not len(array):
        return []
    return _codec(array.type)[0](array)


def decode(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Decode an array of this type; raises ValueError or TypeError for other values."""
    if not len(cells):
        return pa.array([], kind)
    array = _codec(kind)[1](cells, kind)
    if array.type != kind or len(array) != len(cells):
        raise ValueError(f"{len(cells)} cells of {kind} were read as {len(array)} of {array.type}")
    return array


def checksum(cells: Sequence[Any]) -> int:
    """The CRC-32 of values as JSON, the same before and after a server stored them."""
    return zlib.crc32(json.dumps(cells, separators=(",", ":")).encode("ascii"))


def _codec(kind: pa.DataType) -> tuple[Callable[[pa.Array], Cells], Callable[[Sequence[Any], pa.DataType], pa.Array]]:
    for matches, encode, decode in _CODECS:
        if matches(kind):
            return encode, decode
    return _messages, _from_messages


# --- numbers ----------------------------------------------------------------------------------------------------------


def _integers(array: pa.Array) -> Cells:
    kind = array.type
    if not pa.types.is_integer(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: Cells = array.to_pylist()
    if array.type.bit_width == 64:
        return [v if v is None or -_EXACT <= v <= _EXACT else str(v) for v in values]
    return values


def _from_integers(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    values = [None if cell is None else int(_number(cell, str)) for cell in cells]
    if pa.types.is_integer(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _floats(array: pa.Array) -> Cells:
    values: Cells = array.to_pylist()
    numbers = np.asarray(array.fill_null(0))
    odd = ~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers))
    for at in np.flatnonzero(odd):
        values[at] = _bits(array, int(at))
    return values


def _bits(array: pa.Array, at: int) -> str:
    """The bits of one float, with the payload of a NaN, as hexadecimal digits."""
    size, form = (4, "<u4") if pa.types.is_float32(array.type) else (8, "<u8")
    buffer = memoryview(array.buffers()[1])[(array.offset + at) * size :][:size]
    return f"{int(np.frombuffer(buffer, form)[0]):0{2 * size}x}"


def _from_floats(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    size, form, number = (4, ">I", "<f") if pa.types.is_float32(kind) else (8, ">Q", "<d")
    missing = np.array([cell is None for cell in cells])
    data = bytearray()
    for cell in cells:
        if isinstance(cell, str):
            (bits,) = struct.unpack(form, bytes.fromhex(cell))
            data += bits.to_bytes(size, "little")
        else:
            data += struct.pack(number, 0.0 if cell is None else _number(cell, float))
    valid = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.Array.from_buffers(kind, len(cells), [valid, pa.py_buffer(bytes(data))])


def _number(cell: Any, other: type) -> Any:
    if isinstance(cell, bool) or not isinstance(cell, int | other):
        raise TypeError(f"a number, got {type(cell).__name__}")
    return cell


# --- texts ------------------------------------------------------------------------------------------------------------


def _texts(array: pa.Array) -> Cells:
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return [None if value is None else _text(value) for value in array.to_pylist()]


def _text(value: bytes) -> str | list[str]:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return [base64.b64encode(value).decode("ascii")]


def _from_texts(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    values = [None if cell is None else _bytes(cell) for cell in cells]
    if pa.types.is_fixed_size_binary(kind):
        return pa.array(values, kind)
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    found = pa.array(values, pa.large_binary() if wide else pa.binary())
    if found.type == kind:
        return found
    return pa.Array.from_buffers(
        kind, len(found), found.buffers(), found.null_count, found.offset
    )  # it may be no UTF-8


def _bytes(cell: Any) -> bytes:
    if isinstance(cell, list):
        (text,) = cell
        return base64.b64decode(text, validate=True)
    if not isinstance(cell, str):
        raise TypeError(f"a text, got {type(cell).__name__}")
    return cell.encode("utf-8")


# --- the rest ---------------------------------------------------------------------------------------------------------


def _plain(array: pa.Array) -> Cells:
    values: Cells = array.to_pylist()
    return values


def _from_plain(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(cells, kind)


def _decimals(array: pa.Array) -> Cells:
    return [None if value is None else str(value) for value in array.to_pylist()]


def _from_decimals(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([None if cell is None else Decimal(cell) for cell in cells], kind)


def _messages(array: pa.Array) -> Cells:
    schema = pa.schema([("cell", array.type)])
    return [None if not value.is_valid else _message(array.slice(at, 1), schema) for at, value in enumerate(array)]


def _message(one: pa.Array, schema: pa.Schema) -> str:
    batch = pa.RecordBatch.from_arrays([one], schema=schema)
    if _has_dictionary(schema.field(0).type):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(batch)
        data = sink.getvalue().to_pybytes()
    else:
        data = batch.serialize().to_pybytes()
    packed = zlib.compress(data, 1)
    text = base64.b64encode(min(packed, data, key=len)).decode("ascii")
    return f"{_PACKED}:{text}" if len(packed) < len(data) else text


def _from_messages(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    schema = pa.schema([("cell", kind)])
    parts = [pa.nulls(1, kind) if cell is None else _read(cell, schema) for cell in cells]
    return pa.concat_arrays(parts)


def _read(cell: Any, schema: pa.Schema) -> pa.Array:
    mark, colon, text = cell.rpartition(":")
    data = base64.b64decode(text, validate=True)
    if colon and mark == _PACKED:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(data, _LARGEST)
        if unpacker.unconsumed_tail:
            raise ValueError(f"a value of more than {_LARGEST} bytes")
    if _has_dictionary(schema.field(0).type):
        batch = pa.ipc.open_stream(data).read_next_batch()
    else:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    (column,) = batch.columns
    if len(column) != 1:
        raise ValueError(f"a message of {len(column)} values where one was expected")
    column.validate(full=True)
    return column


def _has_dictionary(kind: pa.DataType) -> bool:
    children = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(map(_has_dictionary, children))


def _is_counted(kind: pa.DataType) -> bool:
    """True for integers, and for types that are stored as integers of 32 or 64 bits."""
    t = pa.types
    return any(test(kind) for test in (t.is_integer, t.is_date, t.is_time, t.is_timestamp, t.is_duration))


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary, t.is_fixed_size_binary)
    return any(test(kind) for test in tests)


_CODECS: tuple[tuple[Callable[[pa.DataType], bool], Any, Any], ...] = (
    (lambda kind: pa.types.is_boolean(kind) or pa.types.is_null(kind), _plain, _from_plain),
    (_is_counted, _integers, _from_integers),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind), _floats, _from_floats),
    (_is_text, _texts, _from_texts),
    (lambda kind: pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind), _decimals, _from_decimals),
)
