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
brackets; the header's ``columns`` says which is which, with the bytes of the column's chunks, the CRC-32 over them, and
that of each leaf (``leaves``: ``min``, ``boxes.list.element.xmin``, ...). Doubles are split by bytes, which zstd packs
better and unpacks faster. A query reads and checks the fields that its clauses name, and no others. The files table is
the rows of the parts, in their order; a column that a part lacks is null there.

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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import BASE_SCHEMA, FORMAT, FileMetadata, Header, Part, Snapshot
from geoskip.metadata.header import check_format
from geoskip.stores.base import Store, header_json, new_identity, stamped
from geoskip.stores.folders import Folder, LocalFolder
from geoskip.stores.parts import PartReader, load_columns, write_part

__all__ = ["ParquetStore"]

_ENTRY = re.compile(r"_([0-9]{8,18})\.json")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_LARGEST_ENTRY = 32 << 20
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
        parts = [PartReader(self.folder, part) for part in header.parts]
        if header.files != sum(part.rows for part in header.parts):
            raise MetadataError(
                f"the parts of snapshot {number} in {self.location} do not have its {header.files} files"
            )
        return Snapshot(header, FileMetadata(header.files, partial(load_columns, header, parts)))

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
