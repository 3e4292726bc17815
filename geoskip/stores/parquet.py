"""The Parquet store: metadata in files beside the data. Format 1::

    _geoskip/
      _identity.json                     {"format": 1, "identity": "<32 hex digits>", "crc": n}: names the current log
      _log/_<identity>/_00000001.json    a snapshot: its header; the highest number is the latest
      _log/_<identity>/_00000002.json
      _parts/_<32 hex digits>.part       rows of the files table, as Parquet; immutable, named by the headers
      _operations/_<identity>/_00000001.json    an entry of the operation log, see geoskip.lifecycle.log

Names in every folder begin with an underscore, which hides them from Spark: for a query of ``data/*`` or ``data/*/*``
each match would otherwise be a root path of data.

**A log entry** is ``{"crc": n, "header": {...}}``; ``crc`` is the CRC-32 of the header written with sorted keys and
without spaces, in ASCII. The header's members are those of :class:`geoskip.metadata.Header`:

* ``format``, ``identity``, ``number``, ``created``; a reader refuses a format newer than its own, and an entry with
  another identity or number than in its path;
* ``root``: the dataset's URI; ``source``: how it is read; ``operation``: the operation that committed the snapshot,
  with the time of the previous snapshot as ``follows``; ``reasons``: why some files have no metadata;
* ``indexes``: for each its ``name``, its specification (``index``), its expressions as trees (``bound``, see
  :mod:`geoskip.codec`), the data ``columns`` that it reads, the ``arrow`` type of its summaries (an IPC schema in
  base64, with ``type`` for people) and its dependencies (``depends``);
* ``files``: the number of files; ``parts``: for each its ``name``, ``rows``, ``bytes``, the ``crc`` of its Parquet
  footer, its ``columns``, and the rows ``removed`` since it was written.

**A part** is a Parquet file with zstd. Its columns are ``path``, ``size``, ``mtime``, ``etag``, ``rows`` (see
:mod:`geoskip.metadata`) and ``i0``, ``i1``, ... for the indexes, since their texts have dots and brackets. The header's
``columns`` maps these names to the indexes, with the bytes of the column chunks, their CRC-32, and the CRC-32 of each
leaf (``leaves``: ``min``, ``boxes.list.element.xmin``, ...). Doubles have the encoding BYTE_STREAM_SPLIT, with which
zstd compresses better and decompresses faster. A query reads and verifies only the fields of its clauses. The files
table consists of the rows of the parts that are not removed, in order; a column that a part lacks is null. A refresh
writes only the change: it adds a part and removes rows of others. Of more than 16 parts the last ones are merged, so
that each part has four times the rows of all later ones, and each row is rewritten only a few times in all.

**Reading**: ``_identity.json``, a listing of ``_log/_<identity>``, the entry with the highest number. Other names are
ignored, so that later versions may use them. Damage raises MetadataError.

**Writing**: the parts, then the entry with the next number, created exclusively: of two writers one wins. If a later
number exists that does not follow this entry, the entry is removed again: a slow writer has reused the number of a
vacuumed snapshot. A crash leaves parts that no header names. A part's name begins with the id of the operation that
wrote it, by which :meth:`ParquetStore.sweep` distinguishes leftovers from the parts of a running writer.
``_identity.json`` is created exclusively too, before the first entry. The log's folder is named by its identity. So if
a log is dropped (``mode("overwrite")`` removes the whole folder with the data), its writers cannot commit into the log
that has begun since: their entries go to another folder.

**Protected metadata** (:mod:`geoskip.stores.encryption`) have the same files, with sealed entries and encrypted parts.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import FileMetadata, Header, PartFile, Snapshot
from geoskip.stores.base import entry_conflict, entry_json, is_late, new_identity, next_header
from geoskip.stores.encryption import Encryption, SnapshotProtection
from geoskip.stores.log_files import (
    Folder,
    LocalFolder,
    LogFiles,
    identity_of,
    identity_text,
    operation_name,
    snapshot_name,
)
from geoskip.stores.part_files import PART_SUFFIX, PartReader, load_columns, write_part
from geoskip.stores.parts import OWNER, PartStore, part_name

_ENTRY = re.compile(r"_([0-9]{8,18})\.json")


class ParquetStore(PartStore):
    """Metadata in Parquet files in a folder, see the module docstring; encrypted if keys are given."""

    kind = "parquet"
    protection = "give the keys to the store itself: ParquetStore(folder, encryption=...)"
    costs = (
        "a small file and a listing a query, on other file systems not more often than once a second; once a snapshot "
        "its header, and of each part the columns clauses name"
    )

    def __init__(self, folder: Folder | str | os.PathLike[str], *, encryption: Encryption | None = None) -> None:
        super().__init__()
        self.folder: Folder = LocalFolder(folder) if isinstance(folder, str | os.PathLike) else folder
        self.location = self.folder.location
        self.distant = not isinstance(self.folder, LocalFolder)
        self.encryption = encryption
        self._entries = LogFiles(self.folder, encryption)
        self._local = threading.local()

    @contextlib.contextmanager
    def of_log(self, identity: str) -> Iterator[None]:
        before, self._local.identity = getattr(self._local, "identity", None), identity
        try:
            yield
        finally:
            self._local.identity = before

    @property
    def discreet(self) -> bool:  # type: ignore[override]
        """True if an index has its own key, since the log is under the base key."""
        try:
            identity = self._log() if self.encryption is not None else None
            return self._entries.has_indexes_apart(identity or "", self._latest(identity) if identity else None)
        except MetadataError:  # unknown
            return True

    def latest(self) -> int | None:
        identity = self._log()
        return None if identity is None else self._latest(identity)

    def identity(self) -> str | None:
        try:
            text = self._entries.read("_identity.json", 4096)
        except FileNotFoundError:
            return None
        return identity_of(text, f"_identity.json in {self.location}")

    def _log(self) -> str | None:
        return getattr(self._local, "identity", None) or self.identity()

    def header(self, number: int) -> Header:
        identity = self._log() or ""
        known = self._snapshots.peek(identity, number)
        return known.header if known is not None else self._entries.snapshot(identity, number)[0]

    def begin(self) -> str:
        identity = self.identity()
        if identity is not None:
            return identity
        with contextlib.suppress(FileExistsError):
            self.folder.create("_identity.json", identity_text(new_identity()))
        identity = self.identity()
        if identity is None:
            raise ConflictError(f"the metadata in {self.location} was dropped during this commit; index again")
        return identity

    def snapshots(self) -> tuple[int, ...]:
        identity = self._log()
        return () if identity is None else self._numbers(f"_log/_{identity}")

    def operations(self) -> tuple[int, ...]:
        identity = self._log()
        return () if identity is None else self._numbers(f"_operations/_{identity}")

    def operation(self, number: int) -> dict[str, Any]:
        return self._entries.operation(self._log() or "", number)

    def record(self, number: int, entry: Mapping[str, Any], *, identity: str) -> None:
        name = operation_name(identity, number)
        latest = self._latest(identity) if self._entries.vault is not None else None
        text = self._entries.operation_text(entry_json(entry), identity, number, latest)
        try:
            self.folder.create(name, text)
        except FileExistsError:
            raise entry_conflict(self, number) from None
        if self.identity() != identity:
            self._forget(name)
            raise entry_conflict(self, number)

    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        identity = self._log()
        if identity is None:
            return
        latest = self._latest(identity)
        names = [snapshot_name(identity, number) for number in snapshots if number != latest]
        for name in [*names, *(operation_name(identity, number) for number in operations)]:
            self.folder.delete(name)
        self._snapshots.forget(identity, snapshots)

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        parts = self.folder.names("_parts")
        logs = [f"{folder}/{name}" for folder in ("_log", "_operations") for name in self.folder.names(folder)]
        owned = tuple(f"_{operation[:OWNER]}" for operation in running())
        identity = self.identity()  # after the listings, so that these have no files of a later log
        if identity is None or identity != self._log():
            return 0
        named = {part.name for number in self.snapshots() for part in self.header(number).parts}
        left = [
            f"_parts/{name}"
            for name in parts
            if f"_parts/{name}" not in named and not name.lstrip(".").startswith(owned or ("/",))
        ]
        left += [name for name in logs if not name.endswith(f"/_{identity}")]
        for inside in (f"_log/_{identity}", f"_operations/_{identity}"):
            left += [f"{inside}/{name}" for name in self.folder.names(inside) if name.endswith(".tmp")]
        left += [name for name in self.folder.names(".") if name.endswith(".tmp")]
        for name in left:
            self.folder.delete(name)
        return len(left)

    def check(self, header: Header, expected: int | None) -> None:
        """Raise ConflictError as in the base class, and if the number ``expected`` is now another snapshot.

        This happens if an older state of the folder was restored, and others have committed since.
        """
        super().check(header, expected)
        if expected is not None and header.created:
            with contextlib.suppress(MetadataError):  # a damaged one may be replaced
                if self._entries.snapshot(header.identity, expected)[0].created != header.created:
                    self._snapshots.forget(header.identity, [expected])
                    raise ConflictError(
                        f"snapshot {expected} in {self.location} is another than the one that was read; load it and "
                        "try again"
                    )

    def protects(self, number: int) -> bool:
        identity = self._log()
        return identity is not None and self._entries.snapshot(identity, number)[1] is not None

    def rotate(self, header: Header, *, expected: int) -> Header:
        self.check(header, expected)
        old, protection = self._entries.snapshot(header.identity, expected)
        if self._entries.vault is None or protection is None:
            return super().rotate(header, expected=expected)
        made = next_header(header, files=old.files, number=expected + 1, identity=header.identity)
        made = replace(made, parts=old.parts)
        self._create(made, self._entries.vault.rewrap(self._entries.protection_of(made) or protection), made=())
        return made

    def drop(self) -> None:
        for name in ("_identity.json", "_log", "_operations", "_parts"):  # the rest is unused without an identity
            self.folder.delete(name)
        self._snapshots.clear()

    def _latest(self, identity: str) -> int | None:
        return max(self._numbers(f"_log/_{identity}"), default=None)

    def _numbers(self, folder: str) -> tuple[int, ...]:
        try:
            names = self.folder.names(folder)
        except OSError as error:
            raise MetadataError(f"cannot list the log in {self.location}: {error}") from error
        return tuple(sorted(int(m[1]) for m in map(_ENTRY.fullmatch, names) if m))

    def _read_snapshot(self, identity: str, number: int) -> Snapshot:
        header, protection = self._entries.snapshot(identity, number)
        parts = self._readers(header.parts, protection)
        if header.files != sum(part.rows_left for part in header.parts):
            raise MetadataError(
                f"the parts of snapshot {number} in {self.location} do not have its {header.files} files"
            )
        return Snapshot(header, FileMetadata(header.files, partial(load_columns, header, parts)))

    def _read_parts(self, base: Header, parts: Sequence[PartFile], header: Header) -> pa.Table:
        _, protection = self._entries.snapshot(base.identity, base.number)
        wanted = replace(base, entries=header.stored, deleted=())
        return load_columns(wanted, self._readers(parts, protection), None)

    def _readers(self, parts: Sequence[PartFile], protection: SnapshotProtection | None) -> list[PartReader]:
        return [PartReader(self.folder, part, self._entries.keys(protection)) for part in parts]

    def _commit_parts(self, header: Header, kept: tuple[PartFile, ...], table: pa.Table) -> Header:
        protection = self._entries.protection_of(header)
        new: list[PartFile] = []
        if table.num_rows or not kept:
            new.append(self._write_part(header, table, protection))
        header = replace(header, parts=(*kept, *new))
        self._create(header, protection, made=[part.name for part in new])
        return header

    def _create(self, header: Header, protection: SnapshotProtection | None, *, made: Sequence[str]) -> None:
        """Create the entry of a snapshot; after a lost race or a drop, remove the files ``made`` for it."""
        entry = snapshot_name(header.identity, header.number)
        try:
            self.folder.create(entry, self._entries.snapshot_text(header, protection))
        except FileExistsError:
            self._forget(*made)
            raise ConflictError(
                f"another writer committed snapshot {header.number} to {self.location} first; load it and try again"
            ) from None
        except OSError:
            if not self._exists(header):
                raise
        self._snapshots.forget(header.identity, [header.number])  # cached from an older state of the folder
        if self.identity() != header.identity:  # dropped meanwhile: the entry belongs to no log
            self._forget(entry, *made)
            raise ConflictError(f"the metadata in {self.location} was dropped during this commit; index again")
        if is_late(self, header):
            self._forget(entry)  # not its parts: a snapshot that followed it may use them
            raise ConflictError(f"other writers committed to {self.location} first; load it and try again")

    def _exists(self, header: Header) -> bool:
        """True if the entry exists although its creation failed, as when the response was lost."""
        with contextlib.suppress(MetadataError):
            stored, _ = self._entries.snapshot(header.identity, header.number)
            return (stored.created, stored.operation) == (header.created, header.operation)
        return False

    def _write_part(self, header: Header, table: pa.Table, protection: SnapshotProtection | None) -> PartFile:
        name = f"_parts/_{part_name(header)}{PART_SUFFIX}"
        with tempfile.TemporaryDirectory(prefix="geoskip-") as scratch:
            path = Path(scratch) / "part.parquet"
            part = write_part(path, name, table, self._entries.keys(protection))
            self.folder.put(name, path)
        return part

    def _forget(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):  # left for vacuum
                self.folder.delete(name)
