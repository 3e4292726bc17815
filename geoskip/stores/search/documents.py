"""Rows of the files table as documents: blocks of values by column, and the keys of each file.

A *block* has up to 4,096 rows of one column: for each leaf (a field of an index's summaries, the values of a base
column) the values as an Arrow IPC message, compressed by zlib, in base64, so that they come back bit by bit. Blocks of
large values have fewer rows, the same number in all blocks of a column, so that a few files can be read without the
rest; the header of the snapshot has that number.

A document of a *file* has the members ``part`` and ``row`` (its position in the files table), and ``keys``
(:mod:`geoskip.stores.search.clause_queries`), which the server can compare.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, IndexEntry, PartColumn, PartFile
from geoskip.metadata.file_table import one_chunk
from geoskip.stores.search.clause_queries import fields_of, keys_of

KEYS = "*keys"
"""A leaf that marks a part's column with keys in its documents; no field has such a name."""
SOME = "*some"
"""A leaf that marks a column with files that have a summary but not all keys."""
LARGEST = "*largest"
"""The leaf with the exponent of a power of two that is above every coordinate."""
BLOCKS = "*blocks"
"""The leaf with the number of rows of a column's blocks."""
VALUES = "v"
"""The leaf with the values of a base column."""
THERE = "#"
"""The leaf that marks the rows with a summary."""
_MOST_FIELDS = 2500
"""Maximum number of fields of keys; the index allows some more."""
_MOST_NESTED = 40
"""Maximum number of nested fields; the default limit of servers is 50."""
BLOCK = 4096
"""Maximum number of rows of a block."""
_LARGEST_BLOCK = 1 << 18
"""Maximum number of bytes of a block's values in Arrow, unless it has a single row."""
_LARGEST_VALUE = 1 << 28


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


@dataclass
class _WrittenColumn:
    """A column for the header: its bytes, the checksums of its leaves, and its marks."""

    bytes: int = 0
    leaves: dict[str, int] = field(default_factory=dict)


class PartWriter:
    """Creates the documents of a new part, and then its description for headers."""

    def __init__(self, name: str, table: pa.Table, slots: Sequence[SummaryField], keyed: frozenset[str]) -> None:
        self.name = name
        self.table = table.combine_chunks()
        self.slots = slots
        self.keyed = keyed
        self._written = {column: _WrittenColumn() for column in (*BASE_SCHEMA.names, *(slot.name for slot in slots))}

    def documents(self) -> Iterator[tuple[str, str]]:
        """Each document as (id, JSON)."""
        yield from self._files()
        for column in BASE_SCHEMA.names:
            yield from self._blocks(column, {VALUES: one_chunk(self.table[column])})
        for slot in self.slots:
            stored = one_chunk(self.table[slot.entry.name])
            leaves = dict(zip(slot.leaves().values(), stored.flatten(), strict=True))
            yield from self._blocks(slot.name, {THERE: stored.is_valid(), **leaves})

    def part(self) -> PartFile:
        """The part's description for headers, after all documents were created."""
        called = {slot.name: slot.entry.name for slot in self.slots}
        columns = {
            name: PartColumn(called.get(name, name), one.bytes, _checksum(one.leaves), one.leaves)
            for name, one in self._written.items()
        }
        size, crc = sum(one.bytes for one in columns.values()), _checksum({n: one.crc for n, one in columns.items()})
        return PartFile(self.name, self.table.num_rows, size, crc, columns)

    def _blocks(self, column: str, leaves: dict[str, pa.Array]) -> Iterator[tuple[str, str]]:
        written, size = self._written[column], _rows_a_block(list(leaves.values()))
        written.leaves |= {**dict.fromkeys(leaves, 0), BLOCKS: size}
        for start in range(0, self.table.num_rows, size):
            try:
                values = {leaf: encode(array.slice(start, size)) for leaf, array in leaves.items()}
            except (pa.ArrowException, ValueError) as error:
                raise MetadataError(f"values of {column} cannot be stored: {error}") from error
            for leaf, text in values.items():
                written.leaves[leaf] = checksum(text, written.leaves[leaf])
                written.bytes += len(text)
            block = {"kind": "block", "part": self.name, "column": column, "row": start, "values": values}
            yield f"{self.name}-{column}-{start}", json.dumps(block, separators=(",", ":"))

    def _files(self) -> Iterator[tuple[str, str]]:
        keyed = [slot for slot in self.slots if slot.name in self.keyed]
        for slot in keyed:
            self._written[slot.name].leaves |= {KEYS: 1, LARGEST: 0}
        for start in range(0, self.table.num_rows, BLOCK):
            rows = self.table.slice(start, BLOCK)
            keys: list[dict[str, Any]] = [{} for _ in range(rows.num_rows)]
            for slot in keyed:
                self._add_keys(slot, rows, keys)
            for row, key in enumerate(keys, start):
                document = {"kind": "file", "part": self.name, "row": row, "keys": key}
                yield f"{self.name}-{row}", json.dumps(document, separators=(",", ":"))

    def _add_keys(self, slot: SummaryField, rows: pa.Table, keys: Sequence[dict[str, Any]]) -> None:
        found, leaves = keys_of(rows, slot.entry), self._written[slot.name].leaves
        if found is None:
            leaves.pop(KEYS, None)
            return
        leaves[LARGEST] = max(leaves[LARGEST], math.frexp(found.largest)[1])
        if not found.whole:
            leaves[SOME] = 1
        for key, values in zip(keys, found.rows, strict=True):
            if values:
                key[slot.name] = values


def _rows_a_block(leaves: Sequence[pa.Array]) -> int:
    """The number of rows of each block, so that the largest one is small enough."""
    size, rows = BLOCK, len(leaves[0])
    while size > 1:
        starts = range(0, rows, size)
        if all(sum(leaf.slice(start, size).nbytes for leaf in leaves) <= _LARGEST_BLOCK for start in starts):
            break
        size //= 2
    return size


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


# --- values of blocks -------------------------------------------------------------------------------------------------


def encode(array: pa.Array) -> str:
    """Encode an array as text."""
    data = pa.RecordBatch.from_arrays([array], ["v"]).serialize().to_pybytes()
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def decode(text: str, kind: pa.DataType) -> pa.Array:
    """Decode an array of this type; raises an error of Python, Arrow or zlib for other texts."""
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(text, validate=True), _LARGEST_VALUE)
    if not unpacker.eof:
        raise ValueError(f"values that are cut short, or of more than {_LARGEST_VALUE} bytes")
    (column,) = pa.ipc.read_record_batch(pa.py_buffer(data), pa.schema([("v", kind)])).columns
    column.validate(full=True)
    return column


def checksum(text: str, before: int = 0) -> int:
    """The CRC-32 of a text after others."""
    return zlib.crc32(text.encode("utf-8"), before)


def _checksum(numbers: dict[str, int]) -> int:
    return checksum(json.dumps(sorted(numbers.items())))
