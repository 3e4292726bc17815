"""Documents as the columns that are asked for; :mod:`geoskip.stores.search.documents` tells what they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, PartFile, Wanted
from geoskip.stores.search.documents import BLOCK, BLOCKS, KEYS, LARGEST, SOME, THERE, VALUES, Cells, SummaryField
from geoskip.stores.search.json_values import checksum, decoded
from geoskip.stores.search.queries import KeyField
from geoskip.stores.search.server_keys import fields_of

__all__ = ["CellsOf", "Columns", "field_of", "is_typed", "of_documents"]

CellsOf = Callable[[str, str], Cells]
"""The values of a column's leaf, by their names."""


@dataclass
class Columns:
    """Reads columns of parts from documents.

    ``wanted`` are columns and fields as :class:`geoskip.metadata.FileMetadata` asks for them, None for all.
    """

    slots: Sequence[SummaryField]
    wanted: Sequence[Wanted] | None
    location: str
    base: list[str] = field(init=False)
    fields: list[tuple[SummaryField, list[str]]] = field(init=False)

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

    def in_blocks(self, parts: Sequence[PartFile]) -> bool:
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

    def bytes(self, part: PartFile) -> int:
        """About how many bytes a server sends of them."""
        names = self.names()
        return sum(column.bytes for name, column in part.columns.items() if name in names) + 100 * part.rows

    def read(self, part: PartFile, count: int, cells: CellsOf, *, whole: bool = True) -> pa.Table:
        """The table of ``count`` rows of a part; where these are all of them their checksums are compared."""
        columns = [
            self._array(part, name, "", cells(name, ""), BASE_SCHEMA.field(name).type, whole) for name in self.base
        ]
        schema = self.schema
        for slot, names in self.fields:
            kind = schema.field(slot.entry.name).type
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
        return pa.Table.from_arrays(columns, schema=schema)

    def _array(self, part: PartFile, column: str, leaf: str, cells: Cells, kind: pa.DataType, whole: bool) -> pa.Array:
        what = f"{part.columns[column].name if column in part.columns else column} of {part.name} in {self.location}"
        try:
            if whole:
                crcs = [checksum(cells[start : start + BLOCK]) for start in range(0, len(cells), BLOCK)]
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


def field_of(slot: SummaryField, parts: Sequence[PartFile]) -> KeyField | None:
    """The keys that documents of some parts have of an index; None where not all have that have summaries."""
    columns = [part.columns[slot.name] for part in parts if slot.name in part.columns and part.rows]
    if not all(KEYS in column.leaves for column in columns):
        return None
    whole = all(SOME not in column.leaves for column in columns)
    power = max((column.leaves.get(LARGEST, 1024) for column in columns), default=0)
    return KeyField(f"keys.{slot.name}", slot.entry, whole, 2.0**power if power < 1024 else math.inf)


def is_typed(properties: Mapping[str, Any], field: KeyField) -> bool:
    """Have the keys of an index the types that they should, among the properties that a server tells?"""
    found = properties.get(field.path.removeprefix("keys."), {}).get("properties")
    return found is not None and _are(found, fields_of(field.entry) or {})


def _are(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for name, kind in wanted.items():
        told = found.get(name, {})
        if told.get("type") != kind["type"] or not set(told) <= {"type", "dynamic", "properties"}:
            return False
        if not _are(told.get("properties", {}), kind.get("properties", {})):
            return False
    return True
