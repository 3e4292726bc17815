"""The Parquet store: metadata in files of its own, beside the data. Format 1::

    _geoskip/
      _identity.json                     {"format": 1, "identity": "<32 hex digits>"}: names the current log
      _log/_<identity>/_00000001.json    a snapshot: its header; the highest number is the latest
      _log/_<identity>/_00000002.json
      _parts/_<32 hex digits>.parquet    rows of the files table; immutable, named by the headers

Every name begins with an underscore, which hides it from Spark: a query of ``data/*`` or ``data/*/*`` takes each match
for a root, however it is called, and looks for data inside.

**A log entry** is ``{"crc": n, "header": {...}}``; ``crc`` is the CRC-32 of the header written with sorted keys and
without spaces, in ASCII. The header's members are those of :class:`geoskip.metadata.header.Header`:

* ``format``, ``identity``, ``number``, ``created``; a reader refuses a format newer than its own, and an entry that
  calls itself otherwise than its file's name;
* ``root``: the dataset's URI; ``source``: how it is read; ``operation``: what made the snapshot; ``reasons``: of some
  files, why they have no metadata;
* ``indexes``: for each its ``name``, its specification (``index``), its expressions as trees (``bound``, see
  :mod:`geoskip.codec`), the data ``columns`` that it reads, the ``arrow`` type of its summaries (an IPC schema in
  base64, with ``type`` for people) and what it ``depends`` on;
* ``files``: rows of the files table; ``parts``: for each its ``name``, ``rows``, ``bytes``, the ``crc`` of its Parquet
  footer, and its ``columns``.

**A part** is a Parquet file with zstd. Inside it the columns are called ``path``, ``size``, ``mtime``, ``etag``,
``rows`` (see :mod:`geoskip.metadata`) and ``i0``, ``i1``, ... for the indexes, whose own names hold dots and
brackets; the header's ``columns`` says which is which, with the bytes of the column's chunks and the CRC-32 over them.
A query reads and checks the columns that its clauses name, and no others. The files table is the rows of the parts, in
their order; a column that a part lacks is null there.

**Reading**: ``_identity.json``, a listing of ``_log/_<identity>``, the entry with the highest number. Names of another
shape are ignored, so that later versions may put other things there. What is damaged raises MetadataError.

**Writing**: the parts, then the entry with the next number, created exclusively: of two writers one wins. A crash
before that leaves parts that nobody names. ``_identity.json`` is created exclusively too, before the first entry. A log
in a folder named by its identity is why a writer of a log that was dropped meanwhile (``mode("overwrite")`` removes
the whole folder with the data) cannot commit into the log begun since: its entry lands beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import BASE_SCHEMA, FORMAT, FileMetadata, Header, Part, PartColumn, Snapshot, files_schema
from geoskip.metadata.header import check_format
from geoskip.metadata.tables import conformed
from geoskip.stores.base import Store, header_json, new_identity, stamped
from geoskip.stores.folders import Folder, LocalFolder

__all__ = ["ParquetStore"]

_ENTRY = re.compile(r"_([0-9]{8,18})\.json")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"_parts/_[0-9a-f]{32}\.parquet")
_LARGEST_ENTRY = 32 << 20
_ROW_GROUP = 1 << 20
_SNAPSHOTS_KEPT = 2


class ParquetStore(Store):
    """Metadata in Parquet files under a folder, see the module's text."""

    kind = "parquet"

    def __init__(self, folder: Folder | str | os.PathLike[str]) -> None:
        self.folder: Folder = LocalFolder(folder) if isinstance(folder, str | os.PathLike) else folder
        self.location = self.folder.location
        self._loaded: dict[tuple[str, int], Snapshot] = {}
        self._lock = threading.Lock()

    def latest(self) -> int | None:
        identity = self.identity()
        return None if identity is None else self._latest(identity)

    def identity(self) -> str | None:
        try:
            text = self._read("_identity.json", 4096)
        except FileNotFoundError:
            return None
        data = _parsed(text, "_identity.json")
        check_format(data)
        found = data.get("identity")
        if not (isinstance(found, str) and _IDENTITY.fullmatch(found)):
            raise MetadataError(f"_identity.json in {self.location} holds no identity")
        return found

    def load(self, number: int) -> Snapshot:
        identity = self.identity()
        if identity is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        with self._lock:
            known = self._loaded.pop((identity, number), None)
            if known is not None:
                self._loaded[identity, number] = known
                return known
        snapshot = self._load(identity, number)
        with self._lock:
            self._loaded[identity, number] = snapshot
            while len(self._loaded) > _SNAPSHOTS_KEPT:
                del self._loaded[next(iter(self._loaded))]
        return snapshot

    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        self.check(header, expected)
        identity = header.identity if expected is not None else self._begun()
        header, table = stamped(header, table, number=(expected or 0) + 1, identity=identity)
        entry = _entry_name(identity, header.number)
        part = self._write_part(table)
        try:
            self.folder.create(entry, _written(replace(header, parts=(part,))))
        except FileExistsError:
            self._forget(part.name)
            raise ConflictError(
                f"another writer committed snapshot {header.number} to {self.location} first; load it and try again"
            ) from None
        if self.identity() != identity:  # dropped meanwhile: what was written is in nobody's log
            self._forget(entry, part.name)
            raise ConflictError(f"the metadata in {self.location} was dropped during this commit; index again")
        return replace(header, parts=(part,))

    def drop(self) -> None:
        for name in ("_identity.json", "_log", "_parts"):  # without an identity nobody finds the rest
            self.folder.delete(name)
        with self._lock:
            self._loaded.clear()

    def size(self) -> dict[str, int]:
        number = self.latest()
        if number is None:
            return {}
        sizes = {"files": 0}
        for part in self.load(number).header.parts:
            for column in part.columns.values():
                name = "files" if column.name in BASE_SCHEMA.names else column.name
                sizes[name] = sizes.get(name, 0) + column.bytes
        return sizes

    def _latest(self, identity: str) -> int | None:
        try:
            names = self.folder.names(f"_log/_{identity}")
        except OSError as error:
            raise MetadataError(f"cannot list the log in {self.location}: {error}") from error
        return max((int(m[1]) for m in map(_ENTRY.fullmatch, names) if m), default=None)

    def _begun(self) -> str:
        """The identity of a log without snapshots: made now, or left by a writer that crashed or is at it too."""
        identity = self.identity()
        if identity is not None:
            return identity
        with contextlib.suppress(FileExistsError):
            self.folder.create("_identity.json", json.dumps({"format": FORMAT, "identity": new_identity()}).encode())
        identity = self.identity()
        if identity is None:
            raise ConflictError(f"the metadata in {self.location} was dropped during this commit; index again")
        return identity

    def _load(self, identity: str, number: int) -> Snapshot:
        name = _entry_name(identity, number)
        try:
            text = self._read(name, _LARGEST_ENTRY)
        except FileNotFoundError:
            raise MetadataError(f"there is no snapshot {number} in {self.location}") from None
        header = _header(text, f"{name} in {self.location}")
        if (header.identity, header.number) != (identity, number):
            raise MetadataError(f"{name} in {self.location} is the entry of another snapshot")
        parts = [_PartReader(self.folder, part) for part in header.parts]
        if header.files != sum(part.rows for part in header.parts):
            raise MetadataError(
                f"the parts of snapshot {number} in {self.location} do not have its {header.files} files"
            )
        return Snapshot(header, FileMetadata(header.files, partial(_load_columns, header, parts)))

    def _read(self, name: str, limit: int) -> bytes:
        try:
            data = self.folder.read(name, limit + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise MetadataError(f"cannot read {name} in {self.location}: {error}") from error
        if len(data) > limit:
            raise MetadataError(f"{name} in {self.location} has more than {limit} bytes")
        return data

    def _write_part(self, table: pa.Table) -> Part:
        name = f"_parts/_{new_identity()}.parquet"
        with tempfile.TemporaryDirectory(prefix="geoskip-") as scratch:
            path = Path(scratch) / "part.parquet"
            part = write_part(path, name, table)
            self.folder.put(name, path)
        return part

    def _forget(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):  # it is left for vacuum
                self.folder.delete(name)


def _entry_name(identity: str, number: int) -> str:
    return f"_log/_{identity}/_{number:08d}.json"


# --- log entries ------------------------------------------------------------------------------------------------------


def _checksum(data: Any) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii"))


def _written(header: Header) -> bytes:
    data = header_json(header)
    text = json.dumps({"crc": _checksum(data), "header": data}, indent=1).encode("ascii")
    if len(text) > _LARGEST_ENTRY:
        raise MetadataError(f"a header of {len(text)} bytes is more than the {_LARGEST_ENTRY} that are read")
    return text


def _parsed(text: bytes, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{what} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise MetadataError(f"{what} is damaged: no JSON object")
    return data


def _header(text: bytes, what: str) -> Header:
    data = _parsed(text, what)
    header = data.get("header")
    if isinstance(header, dict) and isinstance(header.get("format"), int):
        check_format(header)  # first: a newer format may have another checksum
    try:
        if data.get("crc") != _checksum(header):
            raise MetadataError(f"{what} is damaged: its checksum differs")
        return Header.from_json(header)
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, MetadataError) else MetadataError(f"{what} is damaged: {error}") from None


# --- parts ------------------------------------------------------------------------------------------------------------


def write_part(path: Path, name: str, table: pa.Table) -> Part:
    """Write a files table as a local Parquet file; returns what a header says of it."""
    logical = table.schema.names
    physical = [n if n in BASE_SCHEMA.names else f"i{i - len(BASE_SCHEMA)}" for i, n in enumerate(logical)]
    pq.write_table(
        table.rename_columns(physical),
        path,
        compression="zstd",
        row_group_size=_ROW_GROUP,
        write_statistics=False,  # clauses look at summaries, not at bounds of summaries
    )
    with open(path, "rb") as file:
        size, crc = _footer(file)
        footer = pq.read_metadata(file)
        columns = {}
        for inside, outside in zip(physical, logical, strict=True):
            ranges = list(_chunks(footer, inside))
            columns[inside] = PartColumn(outside, sum(length for _, length in ranges), _crc(file, ranges))
    return Part(name, table.num_rows, size, crc, columns)


class _PartReader:
    """A part, opened and its footer checked; columns are checked and read when asked for."""

    def __init__(self, folder: Folder, part: Part) -> None:
        self.part = part
        self.what = f"{part.name} in {folder.location}"
        if not _PART.fullmatch(part.name):
            raise MetadataError(f"{self.what} is no name of a part")
        with self._trouble():
            self.path = folder.local(part.name)
            with open(self.path, "rb") as file:
                if _footer(file) != (part.bytes, part.crc):  # first: Arrow may abort on a damaged footer
                    raise MetadataError(f"{self.what} is damaged: its size or its footer's checksum differs")
                self.footer = pq.read_metadata(file)
        if self.footer.num_rows != part.rows:
            raise MetadataError(f"{self.what} has {self.footer.num_rows} rows, its header says {part.rows}")

    def read(self, names: Sequence[str]) -> pa.Table:
        """Those of the named columns that the part has, under their names in the files table."""
        inside = {key: column for key, column in self.part.columns.items() if column.name in names}
        if not inside:
            return pa.table({})
        with self._trouble():
            with open(self.path, "rb") as file:
                for key, column in inside.items():
                    if _crc(file, _chunks(self.footer, key)) != column.crc:
                        raise MetadataError(f"{self.what} is damaged: the checksum of {column.name} differs")
            with pq.ParquetFile(self.path, metadata=self.footer, pre_buffer=False) as parquet:
                table = parquet.read(columns=list(inside))
            return table.rename_columns([inside[key].name for key in table.schema.names])

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except MetadataError:
            raise
        except Exception as error:  # whatever a hostile file makes pyarrow raise
            raise MetadataError(f"{self.what} cannot be read: {error}") from error


def _load_columns(header: Header, parts: Sequence[_PartReader], names: Sequence[str] | None) -> pa.Table:
    full = files_schema(header.entries)
    wanted = full if names is None else pa.schema([f for f in full if f.name in names])
    tables = [part.read(wanted.names) for part in parts]
    try:
        sound = [conformed(table, wanted, rows=part.part.rows) for table, part in zip(tables, parts, strict=True)]
        return pa.concat_tables(sound) if sound else wanted.empty_table()
    except (pa.ArrowException, ValueError) as error:
        raise MetadataError(
            f"a column of {header.root}'s metadata has another type than its header says: {error}"
        ) from error


def _footer(file: BinaryIO) -> tuple[int, int]:
    """The file's size and its footer's checksum."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    if not 0 < length + 12 <= size:
        raise ValueError("no Parquet footer")
    file.seek(size - length - 8)
    crc = zlib.crc32(file.read(length + 8))
    file.seek(0)
    return size, crc


def _chunks(footer: pq.FileMetaData, column: str) -> Iterator[tuple[int, int]]:
    """The byte ranges, as (start, length), of a top-level column."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path.split(".", 1)[0] == column]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for leaf in leaves:
            chunk = group.column(leaf)
            starts = [chunk.data_page_offset, *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])]
            yield min(starts), chunk.total_compressed_size


def _crc(file: BinaryIO, ranges: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> int:
    crc = 0
    for start, length in ranges:
        file.seek(start)
        crc = zlib.crc32(file.read(length), crc)
    return crc
