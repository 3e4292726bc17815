"""Rows of the files table as documents, a document a file.

A document has the members ``part`` and ``row``, its position in the files table, the base columns under their names,
``summaries`` with an object for each index (:mod:`geoskip.stores.search.json_values`), stored and not indexed, and
``keys`` (:mod:`geoskip.stores.search.clause_queries`), which the server can compare.

Columns of small values, such as paths and bounds, are stored once more in *blocks*, documents of some thousand rows of
one column, since a server takes much longer to return a document for each file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, IndexEntry, PartColumn, PartFile
from geoskip.stores.search.clause_queries import fields_of, keys_of
from geoskip.stores.search.json_values import checksum, encode

__all__ = [
    "BLOCK",
    "BLOCKS",
    "KEYS",
    "LARGEST",
    "SOME",
    "THERE",
    "VALUES",
    "Cells",
    "PartWriter",
    "SummaryField",
    "key_properties",
    "slots_of",
]

KEYS = "*keys"
"""The leaf of a part's column whose documents have keys; no field has such a name."""
SOME = "*some"
"""The leaf of a column where some files have a summary and not all keys."""
LARGEST = "*largest"
"""The leaf with the power of two above every coordinate."""
BLOCKS = "*blocks"
"""The leaf of a column that is stored in blocks too."""
VALUES = "v"
"""The name of a base column's values in a block."""
THERE = "#"
"""The leaf that marks the rows with a summary."""
_MOST_FIELDS = 2500
"""Fields of keys; the index has room for some more."""
_MOST_NESTED = 40
"""Nested fields; the default limit of servers is 50."""
BLOCK = 4096
"""Rows of a checksum, and of a block."""
_LARGEST_BLOCK = 4 << 20
_SMALL = 200
"""Bytes of a value, on average, up to which a column is stored in blocks."""

Cells = list[Any]


@dataclass(frozen=True)
class SummaryField:
    """The field of documents that holds the summaries of an index; its name depends on index and type."""

    name: str
    entry: IndexEntry

    @classmethod
    def of(cls, entry: IndexEntry) -> SummaryField:
        digest = hashlib.sha256(f"{entry.name}\0{entry.arrow}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        readable = re.sub("[^a-z0-9]+", "_", entry.name.lower())[:40].strip("_")
        return cls(f"{readable}_{digest}", entry)

    def leaves(self) -> dict[str, str]:
        """The members of a summary's object by field name: the same name if it is plain."""
        names = [field.name for field in self.entry.arrow]
        return {name: name if re.fullmatch("[A-Za-z_0-9]+", name) else f"#{at}" for at, name in enumerate(names)}


def slots_of(entries: Iterable[IndexEntry]) -> tuple[SummaryField, ...]:
    return tuple(map(SummaryField.of, entries))


class PartWriter:
    """Makes the documents of a new part, and then its description for headers."""

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
            if len(text) > _LARGEST_BLOCK:  # unlike the first rows: the column has no blocks
                self._large.add(column)
                continue
            self._crcs[column].setdefault(BLOCKS, []).append(count)
            yield f"{self.name}-{column}-{start}", text
        self._block = {}

    def part(self) -> PartFile:
        """The part's description for headers, once all documents were made."""
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
