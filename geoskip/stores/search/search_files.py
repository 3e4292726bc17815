"""The files table of a snapshot on a server, which reads columns or lets the server evaluate clauses.

For few files the columns of a clause are read once and cached, as with other stores. For many files, unless the columns
are cached, the server evaluates a translation of the clause and returns the files that it keeps. geoskip evaluates the
parts that cannot be translated; if these files are few, only their summaries are read.

*Soundness*: the translation keeps at least the files that the clause keeps. If a server has lost documents, their files
would seem skipped. So each response has the current number of documents of the snapshot's parts, and a wrong number is
an error, after which the query reads every file. The response also names the server's index, since the documents may
have been moved: if the types of its keys are wrong, geoskip evaluates clauses itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.clauses import Clause, Mask, conjuncts_of, keep_mask
from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, FileMetadata, Header, PartFile, Wanted, conform
from geoskip.stores.search.clause_queries import fields_of, translate
from geoskip.stores.search.documents import (
    BLOCK,
    BLOCKS,
    KEYS,
    LARGEST,
    SOME,
    THERE,
    VALUES,
    Cells,
    SummaryField,
    checksum,
    decode,
    slots_of,
)
from geoskip.stores.search.queries import ALL, KeyField, TranslatedQuery
from geoskip.stores.search.server import ForbiddenError, NotFoundError, RefusedError, Server

Json = dict[str, Any]
_LARGEST_PAGE = 8 << 20
_BLOCKS_A_PAGE = 24
_FEW = 2000
"""Maximum number of files for which summaries are requested by row."""


def read_parts(
    server: Server,
    index: str,
    parts: Sequence[PartFile],
    slots: Sequence[SummaryField],
    wanted: Sequence[Wanted] | None,
) -> pa.Table:
    """Read columns of parts, without removed rows.

    Parameters
    ----------
    server, index, slots
        The server, the alias of the metadata, and the indexes of the snapshot.
    parts, wanted
        Parts of one snapshot, in order, and the columns and fields to read, None for all.
    """
    columns = Columns(slots, wanted, server.location)
    found: dict[str, list[Any]] = {part.name: [] for part in parts}
    rows, size = sum(part.rows for part in parts), sum(columns.bytes(part) for part in parts)
    page = max(100, _LARGEST_PAGE * rows // max(1, size))
    if columns.in_blocks(parts):
        return _join_parts(columns, parts, _blocks(server, index, parts, columns))
    body = {"query": _parts_query(parts), "sort": _ORDER, "_source": columns.members() or False}
    if rows:
        for answer in server.pages(index, body, rows, page, filter_path=_HITS):
            with server.parsing_answer():
                for hit in answer.get("hits", {}).get("hits", ()):
                    name, row = hit["sort"]
                    if row != len(found[name]):
                        raise MetadataError(f"{server.location} has lost row {len(found[name])} of {name}")
                    found[name].append(hit.get("_source", {}))
    for part in parts:
        if len(found[part.name]) != part.rows:
            raise MetadataError(f"{server.location} has {len(found[part.name])} of {part.rows} rows of {part.name}")
    return _join_parts(columns, parts, {part.name: of_documents(found[part.name]) for part in parts})


def _blocks(server: Server, index: str, parts: Sequence[PartFile], columns: Columns) -> dict[str, CellsOf]:
    """Read the values of columns from blocks, by part."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    rows: dict[tuple[str, str], int] = {}
    wanted = {"bool": {"filter": [_parts_query(parts, "block"), {"terms": {"column": columns.names()}}]}}
    body = {"query": wanted, "sort": [{"part": "asc"}, {"column": "asc"}, {"row": "asc"}], "_source": columns.leaves()}
    count = sum(part.rows for part in parts) // BLOCK + len(parts)
    for answer in server.pages(index, body, count * len(columns.names()), _BLOCKS_A_PAGE, filter_path=_HITS):
        with server.parsing_answer():
            for hit in answer.get("hits", {}).get("hits", ()):
                part, column, row = hit["sort"]
                if row != rows.get((part, column), 0):
                    raise MetadataError(f"{server.location} has lost rows of {column} of {part}")
                cells = hit["_source"]["summaries"]
                for leaf, values in cells.items():
                    found.setdefault((part, column, leaf), []).extend(values)
                rows[part, column] = row + max(map(len, cells.values()), default=0)

    def of_part(part: PartFile) -> CellsOf:
        def cells(column: str, leaf: str) -> list[Any]:
            values = found.get((part.name, column, leaf or VALUES), [])
            if len(values) != part.rows:
                raise MetadataError(f"{server.location} has {len(values)} of {part.rows} rows of {part.name}")
            return values

        return cells

    return {part.name: of_part(part) for part in parts}


def _join_parts(columns: Columns, parts: Sequence[PartFile], cells: Mapping[str, CellsOf]) -> pa.Table:
    """The table of some parts without their removed rows."""
    tables = [columns.schema.empty_table()]
    for part in parts:
        tables.append(columns.read(part, part.rows, cells[part.name]).take(pa.array(part.numbers_left())))
    return pa.concat_tables(tables)


class SearchFiles(FileMetadata):
    """The files table of a snapshot on a server, which evaluates clauses over many files.

    ``ask_above`` is the number of files above which it does. ``_checked`` has the server's indexes with the right types
    of keys; ``_rows`` maps each part's rows to numbers of files, -1 for removed rows.
    """

    def __init__(self, server: Server, index: str, header: Header, ask_above: int) -> None:
        slots = slots_of(header.stored)  # including deleted indexes, which may be restored
        super().__init__(header.files, partial(read_parts, server, index, header.parts, slots))
        self._server, self._index, self._parts = server, index, header.parts
        self._slots = slots
        self._ask_above = ask_above
        found = {slot.entry.name: field_of(slot, header.parts) for slot in slots_of(header.entries)}
        self._keys: dict[str, KeyField] = {name: field for name, field in found.items() if field is not None}
        self._checked: set[str] = set()
        self._rows: list[NDArray[np.int64]] = []
        start = 0
        for part in header.parts:
            numbers = np.full(part.rows, -1, dtype=np.int64)
            numbers[part.numbers_left()] = np.arange(start, start + part.rows_left)
            start += part.rows_left
            self._rows.append(numbers)

    def evaluate(self, clause: Clause) -> Mask:
        """Evaluate a clause, on the server if that is worth a request."""
        if len(self) <= self._ask_above or all(map(self._is_known, clause.columns())):
            return super().evaluate(clause)
        translation = translate(clause, self._keys)
        if translation is None or translation.query == ALL:
            return super().evaluate(clause)
        try:
            key = ("server", json.dumps(translation.query))
            mask = self.cached(key, lambda: self._search(translation)).copy()
        except RefusedError:  # too many clauses, or unknown fields
            return super().evaluate(clause)
        return mask if translation.exact else self._evaluate_rest(clause, mask)

    def _evaluate_rest(self, clause: Clause, mask: Mask) -> Mask:
        """Narrow the mask by the parts of a clause that the server did not decide."""
        rest = [part for part in conjuncts_of(clause) if (t := translate(part, self._keys)) is None or not t.exact]
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return mask
        if len(chosen) > _FEW:
            for part in rest:
                mask &= super().evaluate(part)
            return mask
        wanted = tuple(dict.fromkeys(column for part in rest for column in part.columns()))
        few = self.cached(("some", chosen.tobytes()), lambda: FileMetadata(len(chosen), partial(self._some, chosen)))
        few.prefetch(wanted)  # in one request; a clause may load further columns later
        for part in rest:
            mask[chosen] &= keep_mask(part, few)
        return mask

    def _search(self, translation: TranslatedQuery) -> Mask:
        """Evaluate a query on the server; raises MetadataError if documents are missing."""
        known = {part.name: numbers for part, numbers in zip(self._parts, self._rows, strict=True)}
        mask: Mask = np.zeros(len(self), dtype=bool)
        query = {"bool": {"filter": [_parts_query(self._parts), translation.query]}}
        body = {"query": query, "sort": _ORDER, "_source": False, "track_total_hits": True, "aggs": _count(self._parts)}
        total: int | None = None
        for answer in self._server.pages(self._index, body, len(self), _LARGEST_PAGE, filter_path=_NUMBERS):
            if total is None:
                total = answer["hits"]["total"]["value"]
                here, all_of_them = answer["aggregations"]["all"]["here"]["doc_count"], sum(map(len, self._rows))
                if here != all_of_them:
                    raise MetadataError(f"{self._server.location} has {here} of the snapshot's {all_of_them} documents")
                self._check_types(answer["aggregations"]["all"]["here"]["where"]["buckets"])
            for hit in answer.get("hits", {}).get("hits", ()):
                name, row = hit["sort"]
                total -= 1
                if known[name][row] >= 0:
                    mask[known[name][row]] = True
        if total != 0:
            raise MetadataError(f"{self._server.location} found {total} documents that it did not send")
        return mask

    def _check_types(self, indexes: Sequence[Json]) -> None:
        """Raise RefusedError if the documents are in an index with other types of keys."""
        for name in {bucket["key"] for bucket in indexes} - self._checked:
            try:
                mappings = self._server.ask("GET", f"/{name}/_mapping")[name]["mappings"]
                found = mappings["properties"]["keys"]["properties"]
            except (NotFoundError, ForbiddenError, KeyError):
                found = {}
            others = [field for field in self._keys.values() if not is_typed(found, field)]
            if others:
                self._keys = {name: field for name, field in self._keys.items() if field not in others}
                raise RefusedError(f"{name} has other types of {len(others)} indexes' keys than were asked for")
            self._checked.add(name)

    def _some(self, chosen: NDArray[np.int64], wanted: Sequence[Wanted] | None) -> pa.Table:
        """Read columns of some files."""
        columns = Columns(self._slots, wanted, self._server.location)
        pairs = [
            (part, row)
            for part, numbers in zip(self._parts, self._rows, strict=True)
            for row in np.flatnonzero(np.isin(numbers, chosen)).tolist()
        ]
        queries = [
            {"bool": {"filter": [_parts_query([part]), {"terms": {"row": [row for of, row in pairs if of is part]}}]}}
            for part in {id(part): part for part, _ in pairs}.values()
        ]
        body = {
            "query": {"bool": {"should": queries, "minimum_should_match": 1}},
            "sort": _ORDER,
            "_source": columns.members() or False,
        }
        found: dict[tuple[str, int], Any] = {}
        size = sum(columns.bytes(part) for part in self._parts)
        page = max(100, _LARGEST_PAGE * len(self) // max(1, size))
        for answer in self._server.pages(self._index, body, len(pairs), page, filter_path=_HITS):
            found |= {tuple(hit["sort"]): hit.get("_source", {}) for hit in answer.get("hits", {}).get("hits", ())}
        tables = [columns.schema.empty_table()]
        for part in self._parts:
            names = [(of.name, row) for of, row in pairs if of is part]
            if any(name not in found for name in names):
                raise MetadataError(f"{self._server.location} has lost rows of {part.name}")
            sources = of_documents([found[name] for name in names])
            tables.append(columns.read(part, len(names), sources, whole=False))
        return conform(pa.concat_tables(tables).combine_chunks(), columns.schema, rows=len(chosen))


_ORDER = [{"part": "asc"}, {"row": "asc"}]
_WHOLE = "timed_out,_shards.failed,pit_id"
_HITS = f"{_WHOLE},hits.hits.sort,hits.hits._source"
_NUMBERS = f"{_WHOLE},hits.total.value,hits.hits.sort,aggregations"


def _parts_query(parts: Sequence[PartFile], kind: str = "file") -> Json:
    return {"bool": {"filter": [{"terms": {"part": [part.name for part in parts]}}, {"term": {"kind": kind}}]}}


def _count(parts: Sequence[PartFile]) -> Json:
    """An aggregation that counts the parts' documents, independent of the query, by the server's index."""
    where = {"where": {"terms": {"field": "_index"}}}
    return {"all": {"global": {}, "aggs": {"here": {"filter": _parts_query(parts), "aggs": where}}}}


CellsOf = Callable[[str, str], Cells]
"""A function that returns the values of a column's leaf, given both names."""


@dataclass
class Columns:
    """Wanted columns of parts, read from documents.

    ``wanted`` are columns and fields of :class:`geoskip.metadata.FileMetadata`, None for all.
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
        """The schema of the tables that :meth:`read` returns."""
        narrowed = [
            pa.field(slot.entry.name, pa.struct([slot.entry.arrow.field(name) for name in names]))
            for slot, names in self.fields
        ]
        return pa.schema([*(BASE_SCHEMA.field(name) for name in self.base), *narrowed])

    def in_blocks(self, parts: Sequence[PartFile]) -> bool:
        """True if all wanted columns of the parts are stored in blocks."""
        return all(
            BLOCKS in part.columns[name].leaves for part in parts for name in self.names() if name in part.columns
        )

    def names(self) -> list[str]:
        """The columns by their names in parts."""
        return [*self.base, *(slot.name for slot, _ in self.fields)]

    def leaves(self) -> list[str]:
        """The members of blocks with the columns."""
        leaves = dict.fromkeys([VALUES, THERE])
        for slot, names in self.fields:
            leaves |= dict.fromkeys(leaf for name, leaf in slot.leaves().items() if name in names)
        return [f"summaries.{leaf}" for leaf in leaves]

    def members(self) -> list[str]:
        """The members of documents with the columns."""
        members = list(self.base)
        for slot, names in self.fields:
            leaves = slot.leaves()
            members += [f"summaries.{slot.name}.{leaves[name]}" for name in names]
        return members

    def bytes(self, part: PartFile) -> int:
        """An estimate of the bytes that a server sends for a part."""
        names = self.names()
        return sum(column.bytes for name, column in part.columns.items() if name in names) + 100 * part.rows

    def read(self, part: PartFile, count: int, cells: CellsOf, *, whole: bool = True) -> pa.Table:
        """Decode rows of a part.

        Parameters
        ----------
        part, count, cells
            The part with its checksums, the number of rows, and the function that returns their values.
        whole
            True for all rows of the part, so that checksums can be compared.
        """
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
            return decode(cells, kind)
        except MetadataError:
            raise
        except Exception as error:  # Arrow may raise anything for hostile values
            raise MetadataError(f"{what} cannot be read: {error}") from error


def of_documents(sources: Sequence[Mapping[str, Any]]) -> CellsOf:
    """The values in documents of files, one document for each row."""

    def cells(column: str, leaf: str) -> Cells:
        if not leaf:
            return [source.get(column) for source in sources]
        summaries = [(source.get("summaries") or {}).get(column) for source in sources]
        if leaf == THERE:
            return [summary is not None for summary in summaries]
        return [None if summary is None else summary.get(leaf) for summary in summaries]

    return cells


def field_of(slot: SummaryField, parts: Sequence[PartFile]) -> KeyField | None:
    """The keys of an index in some parts; None if a part has summaries without keys."""
    columns = [part.columns[slot.name] for part in parts if slot.name in part.columns and part.rows]
    if not all(KEYS in column.leaves for column in columns):
        return None
    whole = all(SOME not in column.leaves for column in columns)
    power = max((column.leaves.get(LARGEST, 1024) for column in columns), default=0)
    return KeyField(f"keys.{slot.name}", slot.entry, whole, 2.0**power if power < 1024 else math.inf)


def is_typed(properties: Mapping[str, Any], field: KeyField) -> bool:
    """True if a server's mappings have the right types for the keys of an index."""
    types = properties.get(field.path.removeprefix("keys."), {}).get("properties")
    return types is not None and _have_types(types, fields_of(field.entry) or {})


def _have_types(properties: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for name, kind in wanted.items():
        mapping = properties.get(name, {})
        if mapping.get("type") != kind["type"] or not set(mapping) <= {"type", "dynamic", "properties"}:
            return False
        if not _have_types(mapping.get("properties", {}), kind.get("properties", {})):
            return False
    return True
