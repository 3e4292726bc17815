"""Rows of the files table as documents, one for each file.

A document has the members ``part`` and ``row`` (its position in the files table), the base columns under their names,
``summaries`` with an object for each index (stored, not indexed), and ``keys``
(:mod:`geoskip.stores.search.clause_queries`), which the server can compare.

Columns of small values, such as paths and bounds, are also stored in *blocks*, documents of some thousand rows of one
column, since a server takes much longer to return one document for each file.

Arrow values are encoded as JSON and decoded exactly, even if JSON or a server would round or change them:

=============================== ====================================================================================
integers, dates, times          a number; beyond 2^53 its digits as a string
floats                          a number; NaN, infinities and ``-0.0`` as the 16 hexadecimal digits of their bits
strings and binary              a string if the bytes are UTF-8, else a list with the bytes in base64
decimals                        their digits as a string
booleans, null                  unchanged
lists and all other types       an Arrow IPC message of one value, in base64, compressed by zlib if that is shorter
=============================== ====================================================================================

A server returns the values that it received, but may format numbers differently (``1e-7`` as ``1.0E-7``): checksums are
computed from the JSON that Python writes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, IndexEntry, PartColumn, PartFile
from geoskip.stores.search.clause_queries import fields_of, keys_of

KEYS = "*keys"
"""A leaf that marks a part's column with keys in its documents; no field has such a name."""
SOME = "*some"
"""A leaf that marks a column with files that have a summary but not all keys."""
LARGEST = "*largest"
"""The leaf with the exponent of a power of two that is above every coordinate."""
BLOCKS = "*blocks"
"""A leaf that marks a column that is also stored in blocks."""
VALUES = "v"
"""The name of a base column's values in a block."""
THERE = "#"
"""The leaf that marks the rows with a summary."""
_MOST_FIELDS = 2500
"""Maximum number of fields of keys; the index allows some more."""
_MOST_NESTED = 40
"""Maximum number of nested fields; the default limit of servers is 50."""
BLOCK = 4096
"""Number of rows of a checksum, and of a block."""
_LARGEST_BLOCK = 4 << 20
_SMALL = 200
"""Average bytes per value up to which a column is stored in blocks."""

_EXACT = 2**53
_LARGEST_VALUE = 1 << 28
_PACKED = "z"
"""Prefix of a compressed message, followed by a colon, which does not occur in base64."""

Cells = list[Any]


@dataclass(frozen=True)
class SummaryField:
    """The field of documents with the summaries of an index; its name depends on index and type."""

    name: str
    entry: IndexEntry

    @classmethod
    def of(cls, entry: IndexEntry) -> SummaryField:
        digest = hashlib.sha256(f"{entry.name}\0{entry.arrow}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        readable = re.sub("[^a-z0-9]+", "_", entry.name.lower())[:40].strip("_")
        return cls(f"{readable}_{digest}", entry)

    def leaves(self) -> dict[str, str]:
        """The members of a summary's object by field name: the same name if it has only letters and digits."""
        names = [field.name for field in self.entry.arrow]
        return {name: name if re.fullmatch("[A-Za-z_0-9]+", name) else f"#{at}" for at, name in enumerate(names)}


def slots_of(entries: Iterable[IndexEntry]) -> tuple[SummaryField, ...]:
    return tuple(map(SummaryField.of, entries))


class PartWriter:
    """Creates the documents of a new part, and then its description for headers."""

    def __init__(self, name: str, table: pa.Table, slots: Sequence[SummaryField], keyed: frozenset[str]) -> None:
        self.name = name
        self.table = table.combine_chunks()
        self.slots = slots
        self.keyed = keyed
        self._bytes: dict[str, int] = {}
        self._crcs: dict[str, dict[str, list[int]]] = {}
        self._flags: dict[str, dict[str, int]] = {}
        self._block: dict[str, dict[str, Cells]] = {}
        self._large: set[str] = set()

    def documents(self) -> Iterator[tuple[str, str]]:
        """Each document as (id, JSON)."""
        for start in range(0, self.table.num_rows, BLOCK):
            rows = self.table.slice(start, BLOCK)
            made = [{"kind": "file", "part": self.name, "row": start + at} for at in range(rows.num_rows)]
            for column in BASE_SCHEMA.names:
                cells = self._cells(column, "", rows[column].combine_chunks())
                for document, cell in zip(made, cells, strict=True):
                    document[column] = cell
            summaries: list[dict[str, Any]] = [{} for _ in made]
            keys: list[dict[str, Any]] = [{} for _ in made]
            for slot in self.slots:
                self._add(slot, rows, summaries, keys)
            for document, summary, key in zip(made, summaries, keys, strict=True):
                document |= {"summaries": summary, "keys": key}
                yield f"{self.name}-{document['row']}", json.dumps(document, separators=(",", ":"))
            yield from self._blocks(start, rows.num_rows)

    def _blocks(self, start: int, count: int) -> Iterator[tuple[str, str]]:
        for column, cells in self._block.items():
            if (start == 0 and self._bytes[column] > _SMALL * count) or column in self._large:
                self._large.add(column)
                continue
            block = {"kind": "block", "part": self.name, "column": column, "row": start, "summaries": cells}
            text = json.dumps(block, separators=(",", ":"))
            if len(text) > _LARGEST_BLOCK:  # larger than the first rows suggested: the column has no blocks
                self._large.add(column)
                continue
            self._crcs[column].setdefault(BLOCKS, []).append(count)
            yield f"{self.name}-{column}-{start}", text
        self._block = {}

    def part(self) -> PartFile:
        """The part's description for headers, after all documents were created."""
        columns = {}
        blocks = -(-self.table.num_rows // BLOCK)
        for name in (*BASE_SCHEMA.names, *(slot.name for slot in self.slots)):
            found = self._crcs.get(name, {})
            leaves = {leaf: checksum(crcs) for leaf, crcs in found.items() if len(crcs) == blocks}
            if KEYS in leaves:
                leaves |= self._flags.get(name, {})
            called = next((slot.entry.name for slot in self.slots if slot.name == name), name)
            columns[name] = PartColumn(called, self._bytes.get(name, 0), checksum(sorted(leaves.items())), leaves)
        crcs = checksum([column.crc for column in columns.values()])
        return PartFile(self.name, self.table.num_rows, sum(c.bytes for c in columns.values()), crcs, columns)

    def _add(self, slot: SummaryField, rows: pa.Table, summaries: list[Any], keys: list[Any]) -> None:
        column = rows[slot.entry.name].combine_chunks()
        known = np.asarray(column.is_valid())
        self._cells(slot.name, THERE, column.is_valid())
        leaves = slot.leaves()
        cells = {
            leaf: self._cells(slot.name, leaf, child)
            for leaf, child in zip(leaves.values(), column.flatten(), strict=True)
        }
        for at in np.flatnonzero(known):
            summaries[at][slot.name] = {leaf: values[at] for leaf, values in cells.items()}
        found = keys_of(rows, slot.entry) if slot.name in self.keyed else None
        if found is not None:
            self._crcs[slot.name].setdefault(KEYS, []).append(checksum(found.rows))
            flags = self._flags.setdefault(slot.name, {LARGEST: 0})
            flags[LARGEST] = max(flags[LARGEST], math.frexp(found.largest)[1])
            if not found.whole:
                flags[SOME] = 1
            for key, values in zip(keys, found.rows, strict=True):
                if values:
                    key[slot.name] = values

    def _cells(self, column: str, leaf: str, array: pa.Array) -> Cells:
        try:
            cells = encode(array)
            text = json.dumps(cells, separators=(",", ":"))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise MetadataError(f"values of {column} cannot be stored: {error}") from error
        self._bytes[column] = self._bytes.get(column, 0) + len(text)
        self._crcs.setdefault(column, {}).setdefault(leaf, []).append(checksum(cells))
        self._block.setdefault(column, {})[leaf or VALUES] = cells
        return cells


def key_properties(slots: Iterable[SummaryField]) -> dict[str, dict[str, Any]]:
    """The server's types of the keys of indexes, by field, within its limits."""
    found: dict[str, dict[str, Any]] = {}
    fields = nested = 0
    for slot in slots:
        members = fields_of(slot.entry)
        if members is None:
            continue
        fields += 1 + sum(1 + len(member.get("properties", ())) for member in members.values())
        nested += sum(member["type"] == "nested" for member in members.values())
        if fields > _MOST_FIELDS or nested > _MOST_NESTED:
            break
        found[slot.name] = {"properties": members}
    return found


# --- values as JSON ---------------------------------------------------------------------------------------------------


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
    """The CRC-32 of values as JSON; it is the same after a server has stored them."""
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


# --- other types ------------------------------------------------------------------------------------------------------


def _messages(array: pa.Array) -> Cells:
    schema = pa.schema([("cell", array.type)])
    return [None if not value.is_valid else _message(array.slice(at, 1), schema) for at, value in enumerate(array)]


def _message(one: pa.Array, schema: pa.Schema) -> str:
    data = pa.RecordBatch.from_arrays([one], schema=schema).serialize().to_pybytes()
    packed = zlib.compress(data, 1)
    text = base64.b64encode(min(packed, data, key=len)).decode("ascii")
    return f"{_PACKED}:{text}" if len(packed) < len(data) else text


def _from_messages(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    schema = pa.schema([("cell", kind)])
    parts = [pa.nulls(1, kind) if cell is None else _read_cell(cell, schema) for cell in cells]
    return pa.concat_arrays(parts)


def _read_cell(cell: Any, schema: pa.Schema) -> pa.Array:
    mark, colon, text = cell.rpartition(":")
    data = base64.b64decode(text, validate=True)
    if colon and mark == _PACKED:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(data, _LARGEST_VALUE)
        if unpacker.unconsumed_tail:
            raise ValueError(f"a value of more than {_LARGEST_VALUE} bytes")
    (column,) = pa.ipc.read_record_batch(pa.py_buffer(data), schema).columns
    if len(column) != 1:
        raise ValueError(f"a message of {len(column)} values where one was expected")
    column.validate(full=True)
    return column


def _is_counted(kind: pa.DataType) -> bool:
    """True for integers, and for types that are stored as integers of 32 or 64 bits."""
    t = pa.types
    return any(test(kind) for test in (t.is_integer, t.is_date, t.is_time, t.is_timestamp, t.is_duration))


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return any(test(kind) for test in (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary))


_CODECS: tuple[tuple[Callable[[pa.DataType], bool], Any, Any], ...] = (
    (lambda kind: pa.types.is_boolean(kind) or pa.types.is_null(kind), pa.Array.to_pylist, pa.array),
    (_is_counted, _integers, _from_integers),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind), _floats, _from_floats),
    (_is_text, _texts, _from_texts),
    (
        lambda kind: pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind),
        lambda array: [None if value is None else str(value) for value in array.to_pylist()],
        lambda cells, kind: pa.array([None if cell is None else Decimal(cell) for cell in cells], kind),
    ),
)
