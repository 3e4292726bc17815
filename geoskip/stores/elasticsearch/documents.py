"""Rows of the files table as documents, a document a file, and documents as the columns that are asked for.

A document has the members ``part`` and ``row``, which are its place in the files table, the base columns under their
own names, ``summaries`` with an object an index (see :mod:`geoskip.stores.elasticsearch.cells`), which a server keeps
as it is, and ``keys`` (see :mod:`geoskip.stores.elasticsearch.keys`), which it can compare.

Columns of small values, such as paths and bounds, are there once more, in documents of some thousand rows of one
column: to read a column of all files from a document each takes a server very much longer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, IndexEntry, Part, PartColumn, Wanted
from geoskip.stores.elasticsearch.cells import checksum, decoded, encoded
from geoskip.stores.elasticsearch.keys import key_fields, keys_of

__all__ = ["BLOCKS", "KEYS", "VALUES", "Columns", "PartWriter", "Slot", "key_properties", "of_documents", "slots_of"]

KEYS = "*keys"
"""The leaf of a part's column that says that all of its documents have keys; no field's member is called so."""
BLOCKS = "*blocks"
"""The leaf that says that the column is also there in blocks."""
VALUES = "v"
"""What a block calls the values of a base column."""
THERE = "#"
"""The leaf that says of which rows an index has a summary."""
_BLOCK = 4096
"""Rows whose values one checksum is taken over, and that are made into documents at a time."""
_LARGEST_BLOCK = 4 << 20
_SMALL = 200
"""Bytes of a column's values, on average, up to which it is kept in blocks too."""

Cells = list[Any]
CellsOf = Callable[[str, str], Cells]
"""The values of a column's leaf, by their names."""


@dataclass(frozen=True)
class Slot:
    """Where documents have the summaries of an index: a name that says which, and differs for another type."""

    name: str
    entry: IndexEntry

    @classmethod
    def of(cls, entry: IndexEntry) -> Slot:
        digest = hashlib.sha256(f"{entry.name}\0{entry.arrow}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        readable = re.sub("[^a-z0-9]+", "_", entry.name.lower())[:40].strip("_")
        return cls(f"{readable}_{digest}", entry)

    def leaves(self) -> dict[str, str]:
        """The members of a summary's object by the fields' names: these themselves, where they are plain."""
        names = [field.name for field in self.entry.arrow]
        return {name: name if re.fullmatch("[A-Za-z_0-9]+", name) else f"#{at}" for at, name in enumerate(names)}


def slots_of(entries: Iterable[IndexEntry]) -> tuple[Slot, ...]:
    return tuple(map(Slot.of, entries))


class PartWriter:
    """Makes the documents of a new part; what a header says of it is known when they were all made."""

    def __init__(self, name: str, table: pa.Table, slots: Sequence[Slot], keyed: frozenset[str]) -> None:
        self.name = name
        self.table = table.combine_chunks()
        self.slots = slots
        self.keyed = keyed
        self._bytes: dict[str, int] = {}
        self._crcs: dict[str, dict[str, list[int]]] = {}
        self._block: dict[str, dict[str, Cells]] = {}
        self._large: set[str] = set()

    def documents(self) -> Iterator[tuple[str, str]]:
        """Each document as (id, JSON)."""
        for start in range(0, self.table.num_rows, _BLOCK):
            rows = self.table.slice(start, _BLOCK)
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
            if len(text) > _LARGEST_BLOCK:  # the first files were unlike these: nobody reads the blocks so far
                self._large.add(column)
                continue
            self._crcs[column].setdefault(BLOCKS, []).append(count)
            yield f"{self.name}-{column}-{start}", text
        self._block = {}

    def part(self) -> Part:
        """What a header says of it."""
        columns = {}
        blocks = -(-self.table.num_rows // _BLOCK)
        for name in (*BASE_SCHEMA.names, *(slot.name for slot in self.slots)):
            found = self._crcs.get(name, {})
            leaves = {leaf: checksum(crcs) for leaf, crcs in found.items() if len(crcs) == blocks}
            called = next((slot.entry.name for slot in self.slots if slot.name == name), name)
            columns[name] = PartColumn(called, self._bytes.get(name, 0), checksum(sorted(leaves.items())), leaves)
        crcs = checksum([column.crc for column in columns.values()])
        return Part(self.name, self.table.num_rows, sum(c.bytes for c in columns.values()), crcs, columns)

    def _add(self, slot: Slot, rows: pa.Table, summaries: list[Any], keys: list[Any]) -> None:
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
        found = keys_of(rows, slot.entry.name) if slot.name in self.keyed else None
        if found is not None:
            self._crcs[slot.name].setdefault(KEYS, []).append(checksum(found))
            for key, values in zip(keys, found, strict=True):
                key[slot.name] = values

    def _cells(self, column: str, leaf: str, array: pa.Array) -> Cells:
        try:
            cells = encoded(array)
            text = json.dumps(cells, separators=(",", ":"))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise MetadataError(f"values of {column} cannot be stored: {error}") from error
        self._bytes[column] = self._bytes.get(column, 0) + len(text)
        self._crcs.setdefault(column, {}).setdefault(leaf, []).append(checksum(cells))
        self._block.setdefault(column, {})[leaf or VALUES] = cells
        return cells


@dataclass
class Columns:
    """Reads columns of parts from documents.

    ``wanted`` are columns and fields as :class:`geoskip.metadata.FileMetadata` asks for them, None for all.
    """

    slots: Sequence[Slot]
    wanted: Sequence[Wanted] | None
    location: str
    base: list[str] = field(init=False)
    fields: list[tuple[Slot, list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        wanted = None if self.wanted is None else set(self.wanted)
        self.base = [name for name in BASE_SCHEMA.names if wanted is None or name in wanted]
        self.fields = []
        for slot in self.slots:
            whole = wanted is None or slot.entry.name in wanted
            names = [f.name for f in slot.entry.arrow if whole or (slot.entry.name, f.name) in (wanted or ())]
            if names:
                self.fields.append((slot, names))

    @property
    def schema(self) -> pa.Schema:
        """What the tables that are read have."""
        narrowed = [
            pa.field(slot.entry.name, pa.struct([slot.entry.arrow.field(name) for name in names]))
            for slot, names in self.fields
        ]
        return pa.schema([*(BASE_SCHEMA.field(name) for name in self.base), *narrowed])

    def in_blocks(self, parts: Sequence[Part]) -> bool:
        """Are all of them in blocks?"""
        return all(
            BLOCKS in part.columns[name].leaves for part in parts for name in self.names() if name in part.columns
        )

    def names(self) -> list[str]:
        """The columns as parts call them."""
        return [*self.base, *(slot.name for slot, _ in self.fields)]

    def leaves(self) -> list[str]:
        """The members of blocks that hold them."""
        found = dict.fromkeys([VALUES, THERE])
        for slot, names in self.fields:
            found |= dict.fromkeys(leaf for name, leaf in slot.leaves().items() if name in names)
        return [f"summaries.{leaf}" for leaf in found]

    def members(self) -> list[str]:
        """The members of documents that hold them."""
        found = list(self.base)
        for slot, names in self.fields:
            leaves = slot.leaves()
            found += [f"summaries.{slot.name}.{leaves[name]}" for name in names]
        return found

    def bytes(self, part: Part) -> int:
        """About how many bytes a server sends of them."""
        names = self.names()
        return sum(column.bytes for name, column in part.columns.items() if name in names) + 100 * part.rows

    def read(self, part: Part, count: int, cells: CellsOf, *, whole: bool = True) -> pa.Table:
        """The table of ``count`` rows of a part; where these are all of them their checksums are compared."""
        columns = [
            self._array(part, name, "", cells(name, ""), BASE_SCHEMA.field(name).type, whole) for name in self.base
        ]
        for slot, names in self.fields:
            kind = self.schema.field(slot.entry.name).type
            if slot.name not in part.columns:
                columns.append(pa.nulls(count, kind))
                continue
            leaves = slot.leaves()
            there = self._array(part, slot.name, THERE, cells(slot.name, THERE), pa.bool_(), whole)
            arrays = [
                self._array(part, slot.name, leaves[name], cells(slot.name, leaves[name]), kind.field(name).type, whole)
                for name in names
            ]
            columns.append(pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pc.invert(there)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _array(self, part: Part, column: str, leaf: str, cells: Cells, kind: pa.DataType, whole: bool) -> pa.Array:
        what = f"{part.columns[column].name if column in part.columns else column} of {part.name} in {self.location}"
        try:
            if whole:
                crcs = [checksum(cells[start : start + _BLOCK]) for start in range(0, len(cells), _BLOCK)]
                if checksum(crcs) != part.columns[column].leaves.get(leaf, checksum([])):
                    raise MetadataError(f"{what} is damaged: its checksum differs")
            return decoded(cells, kind)
        except MetadataError:
            raise
        except Exception as error:  # whatever hostile values make Arrow raise
            raise MetadataError(f"{what} cannot be read: {error}") from error


def of_documents(sources: Sequence[Mapping[str, Any]]) -> CellsOf:
    """The values that documents of files hold, a document a row."""

    def cells(column: str, leaf: str) -> Cells:
        if not leaf:
            return [source.get(column) for source in sources]
        summaries = [(source.get("summaries") or {}).get(column) for source in sources]
        if leaf == THERE:
            return [summary is not None for summary in summaries]
        return [None if summary is None else summary.get(leaf) for summary in summaries]

    return cells


def key_properties(slots: Iterable[Slot]) -> dict[str, dict[str, Any]]:
    """The server's types of the keys of these indexes, by slot; those without keys are left out."""
    found = {slot.name: key_fields(slot.entry.arrow) for slot in slots}
    return {name: {"properties": fields} for name, fields in found.items() if fields is not None}
