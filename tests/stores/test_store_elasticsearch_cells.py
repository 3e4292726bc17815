"""Arrow values through JSON, and through a server's JSON, which writes numbers in its own way."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import re
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.stores.search.documents import checksum, decode, encode
from tests.support.strategies import examples


def bits(number: int, kind: pa.DataType) -> pa.Array:
    """A float of exactly these bits."""
    size = kind.bit_width // 8
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(number.to_bytes(size, "little"))])


def raw(*values: bytes | None) -> pa.Array:
    found = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(found), found.buffers())


SAMPLES: dict[str, pa.Array] = {
    "booleans": pa.array([True, None, False]),
    "nothing": pa.nulls(2),
    "no values": pa.array([], pa.int64()),
    "bytes": pa.array([-128, None, 127], pa.int8()),
    "beyond 2^53": pa.array([2**53 + 1, -(2**63), None, 2**63 - 1, 2**53]),
    "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    "doubles": pa.array([0.0, -0.0, float("inf"), -float("inf"), float("nan"), None, 5e-324, 1.7e308, 0.1]),
    "floats": pa.array([0.1, -0.0, float("nan"), None, 3.4e38, 1e-45], pa.float32()),
    "a NaN with a payload": bits(0x7FF8_0000_DEAD_BEEF, pa.float64()),
    "a signalling NaN": bits(0x7FA0_0001, pa.float32()),
    "halves": pa.array([np.float16(0.5), None], pa.float16()),
    "strings": pa.array(["", "ü\U0001f30d\uffff\x00\n\"'\\", None]),
    "no UTF-8": raw(b"\xff\x41", b"ok", None),
    "lone surrogates": raw(b"\xed\xa0\x80", b"\xed\xb0\x80x"),
    "large strings": pa.array(["x", None], pa.large_string()),
    "binary": pa.array([b"", b"\x00\xff", b"text", None]),
    "decimals": pa.array([None, "1.10", "-99999999999999999999999999999999999.99"]).cast(pa.decimal128(38, 2)),
    "wide decimals": pa.array(["-0.00001", None]).cast(pa.decimal256(70, 5)),
    "days": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "microseconds": pa.array([-(2**62), None, 1_700_000_000_123_456]).cast(pa.timestamp("us", "UTC")),
    "times without a zone": pa.array([1_700_000_000_123_456_789]).cast(pa.timestamp("ns")),
    "durations": pa.array([-1, None, 2**60]).cast(pa.duration("us")),
    "times of day": pa.array([86_399_999_999, None]).cast(pa.time64("us")),
    "lists": pa.array([["a", None], [], None, ["b" * 2000]]),
    "lists of binary": pa.array([[b"\xff" * 50, b""], None]),
    "structs in lists": pa.array([[{"x": 1.5, "y": float("nan")}], None, []]),
    "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
    "slices": pa.array([9.0, -0.0, None, float("nan"), 9.0]).slice(1, 3),
    "slices of lists": pa.array([["x"], ["y", "z"], None, ["w"]]).slice(1, 2),
}


def through_a_server(cells: list) -> list:
    """As Java writes JSON: doubles with an E and a fraction, other texts escaped otherwise."""
    text = re.sub(r"(?<![\"\w.])(-?\d)e([-+]?\d+)", r"\1.0E\2", json.dumps(cells))
    return json.loads(json.dumps(json.loads(text.encode("utf-8")), ensure_ascii=False))


@pytest.mark.parametrize("array", SAMPLES.values(), ids=list(SAMPLES))
def test_values_come_back_bit_by_bit(array):
    cells = encode(array)
    back = through_a_server(cells)
    assert checksum(back) == checksum(cells)
    found = decode(back, array.type)
    assert (found.type, len(found), found.null_count) == (array.type, len(array), array.null_count)
    assert of_bits(found) == of_bits(array)


def of_bits(array: pa.Array) -> object:
    """What two arrays have in common that are the same bit by bit: NaN and -0.0 by their bits, strings as bytes."""
    if pa.types.is_floating(array.type):
        form = f"<u{array.type.bit_width // 8}"
        values = np.frombuffer(array.buffers()[1], form)[array.offset :][: len(array)]
        return [int(v) if known else None for v, known in zip(values, np.asarray(array.is_valid()), strict=True)]
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    if pa.types.is_string(array.type):
        return array.cast(pa.binary()).to_pylist()
    return str(array.to_pylist())  # text: NaN is not equal to itself


@settings(max_examples=examples(50))
@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), max_size=8))
def test_any_bytes_in_a_string_come_back(values):
    array = raw(*values)
    assert of_bits(decode(through_a_server(encode(array)), pa.string())) == values


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_any_bits_in_a_double_come_back(values):
    array = pa.Array.from_buffers(
        pa.float64(), len(values), [None, pa.py_buffer(struct.pack(f"<{len(values)}Q", *values))]
    )
    assert of_bits(decode(through_a_server(encode(array)), pa.float64())) == values


@pytest.mark.parametrize("name", ["lists", "structs in lists", "maps", "lists of binary"])
def test_damaged_messages_are_refused_or_are_values(name):
    chance, array = random.Random(name), SAMPLES[name]
    for _ in range(60):
        cells = encode(array)
        at = chance.randrange(len(cells))
        if cells[at] is not None:
            data = bytearray(base64.b64decode(cells[at].removeprefix("z:")))
            for _ in range(chance.choice([1, 1, 5])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            data = data[: chance.choice([len(data), chance.randrange(len(data))])]
            cells[at] = ("z:" if cells[at].startswith("z:") else "") + base64.b64encode(data).decode()
        try:
            found = decode(cells, array.type)
        except Exception:
            continue
        assert len(found.to_pylist()) == len(array)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["x"], pa.int64()),
        ([True], pa.int64()),
        ([2**70], pa.int64()),
        (["zz"], pa.float64()),
        ([["!"]], pa.string()),
        ([1], pa.string()),
        (["AAAA"], pa.list_(pa.int64())),
        ([{"a": 1}], pa.decimal128(5, 2)),
    ],
)
def test_what_is_no_such_value_is_refused(cells, kind):
    with pytest.raises((ValueError, TypeError, ArithmeticError, OSError, AttributeError)):
        decode(cells, kind)
