"""Values on their way to the JVM and back: ``jvm/Block.java`` says how a block is laid out."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.evaluation import Declined
from geoskip.types import sql_type

__all__ = ["block", "unblocked"]


def block(array: pa.Array) -> bytes:
    """Physical values as a block."""
    valid = np.asarray(array.is_valid()).astype(np.uint8)
    return b"".join([struct.pack("<i", len(array)), valid.tobytes(), _payload(array)])


def _payload(array: pa.Array) -> bytes:
    kind = array.type
    if pa.types.is_integer(kind):
        return np.asarray(array.fill_null(0)).astype("<i8").tobytes()
    if pa.types.is_floating(kind):
        return np.asarray(array.fill_null(0.0)).astype("<f8").tobytes()
    if pa.types.is_decimal(kind):
        plain = pa.concat_arrays([array.fill_null(0)])  # at offset zero
        return bytes(memoryview(plain.buffers()[1])[: 16 * len(plain)])
    filled = pa.concat_arrays([array.fill_null(b"").cast(pa.large_binary())])
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64, count=len(filled) + 1)
    data = filled.buffers()[2]
    text = b"" if data is None else bytes(memoryview(data)[offsets[0] : offsets[-1]])
    return b"".join([(offsets - offsets[0]).astype("<i4").tobytes(), text])


def unblocked(data: bytes, kind: str) -> tuple[pa.Array, Any]:
    """The physical values of a block of Spark's type ``kind``, and which of them were thrown."""
    (count,) = struct.unpack_from("<i", data)
    status = np.frombuffer(data, dtype=np.uint8, count=count, offset=4)
    payload = memoryview(data)[4 + count :]
    mask = status != 1
    of = sql_type(kind)
    if of.kind == "decimal":
        if not of.is_decimal:
            raise Declined(f"values of {kind} are not taken")
        buffers = [_bits(~mask), pa.py_buffer(bytes(payload))]
        return pa.Array.from_buffers(of.arrow, count, buffers), status == 2
    if of.is_text or of.kind in ("string collate", "binary"):
        offsets, text = payload[: 4 * (count + 1)], payload[4 * (count + 1) :]
        buffers = [_bits(~mask), pa.py_buffer(bytes(offsets)), pa.py_buffer(bytes(text))]
        return pa.Array.from_buffers(pa.binary(), count, buffers), status == 2
    plain = np.frombuffer(payload, dtype="<f8" if of.is_floating else "<i8", count=count)
    return pa.array(plain, mask=mask), status == 2


def _bits(valid: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
