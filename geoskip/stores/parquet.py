"""The Parquet store: metadata in files of its own, beside the data. Format 1::

    _geoskip/
      _identity.json                     {"format": 1, "identity": "<32 hex digits>", "crc": n}: names the current log
      _log/_<identity>/_00000001.json    a snapshot: its header; the highest number is the latest
      _log/_<identity>/_00000002.json
      _parts/_<32 hex digits>.parquet    rows of the files table; immutable, named by the headers
      _operations/_<identity>/_00000001.json    an entry of the operation log, see geoskip.lifecycle.log

Every name begins with an underscore, which hides it from Spark: a query of ``data/*`` or ``data/*/*`` takes each match
for a root, however it is called, and looks for data inside.

**A log entry** is ``{"crc": n, "header": {...}}``; ``crc`` is the CRC-32 of the header written with sorted keys and
without spaces, in ASCII. The header's members are those of :class:`geoskip.metadata.header.Header`:

* ``format``, ``identity``, ``number``, ``created``; a reader refuses a format newer than its own, and an entry that
  calls itself otherwise than its file's name;
* ``root``: the dataset's URI; ``source``: how it is read; ``operation``: what made the snapshot, and as ``follows``
  when the one was made that it comes after; ``reasons``: of some files, why they have no metadata;
* ``indexes``: for each its ``name``, its specification (``index``), its expressions as trees (``bound``, see
  :mod:`geoskip.codec`), the data ``columns`` that it reads, the ``arrow`` type of its summaries (an IPC schema in
  base64, with ``type`` for people) and what it ``depends`` on;
* ``files``: rows of the files table; ``parts``: for each its ``name``, ``rows``, ``bytes``, the ``crc`` of its Parquet
  footer, its ``columns``, and the rows ``removed`` since it was written.

**A part** is a Parquet file with zstd. Inside it the columns are called ``path``, ``size``, ``mtime``, ``etag``,
``rows`` (see :mod:`geoskip.metadata`) and ``i0``, ``i1``, ... for the indexes, whose own names hold dots and
brackets; the header's ``columns`` says which is which, with the bytes of the column's chunks, the CRC-32 over them, and
that of each leaf (``leaves``: ``min``, ``boxes.list.element.xmin``, ...). Doubles are split by bytes, which zstd packs
better and unpacks faster. A query reads and checks the fields that its clauses name, and no others. The files table is
the rows of the parts that are not removed, in their order; a column that a part lacks is null there. A refresh adds a
part and removes rows of others, in proportion to what changed; where there are more than 16 parts the last ones are
written as one, so many that each part has four times the rows of those after it: a row is rewritten a few times in all.

**Reading**: ``_identity.json``, a listing of ``_log/_<identity>``, the entry with the highest number. Names of another
shape are ignored, so that later versions may put other things there. What is damaged raises MetadataError.

**Writing**: the parts, then the entry with the next number, created exclusively: of two writers one wins. Where a later
number is there already the entry is taken back, unless that one follows it: a slow writer has found a number free that
had been vacuumed. A crash before that leaves parts that nobody names; a part's name begins with that of the operation
that wrote it, so that :meth:`ParquetStore.sweep` knows them from those of a writer that is at it. ``_identity.json`` is
created exclusively too, before the first entry. A log in a folder named by its identity is why a writer of a log that
was dropped meanwhile (``mode("overwrite")`` removes the whole folder with the data) cannot commit into the log begun
since: its entry lands beside it.

**Protected metadata** (:mod:`geoskip.stores.encryption`) lie in the same files: what an entry holds is then sealed, and
parts are encrypted.
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

import numpy as np
import pyarrow as pa

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import FileMetadata, Header, PartFile, Snapshot, files_schema
from geoskip.metadata.file_table import conformed
from geoskip.stores.base import (
    Store,
    entry_conflict,
    entry_json,
    is_late,
    new_identity,
    next_header,
    next_snapshot,
)
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
from geoskip.stores.parts import PartReader, load_columns, merged_from, without, write_part
from geoskip.stores.snapshot_cache import SnapshotCache

__all__ = ["ParquetStore"]

_ENTRY = re.compile(r"_([0-9]{8,18})\.json")
_OPERATION = re.compile(r"[0-9a-f]{24,32}")
_OWNER = 24


class ParquetStore(Store):
    """Metadata in Parquet files under a folder, see the module's text; with ``encryption`` protected by keys."""

    kind = "parquet"
    protection = "give the keys to the store itself: ParquetStore(folder, encryption=...)"
    costs = (
        "a small file and a listing a query, on other file systems not more often than once a second; once a snapshot "
        "its header, and of each part the columns clauses name"
    )

    def __init__(self, folder: Folder | str | os.PathLike[str], *, encryption: Encryption | None = None) -> None:
        self.folder: Folder = LocalFolder(folder) if isinstance(folder, str | os.PathLike) else folder
        self.location = self.folder.location
        self.distant = not isinstance(self.folder, LocalFolder)
        self.encryption = encryption
        self._entries = LogFiles(self.folder, encryption)
        self._loaded = SnapshotCache()
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
        """Has an index a key of its own? The log is under the base key."""
        try:
            identity = self._log() if self.encryption is not None else None
            return self._entries.has_indexes_apart(identity or "", self._latest(identity) if identity else None)
        except MetadataError:  # it may have
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
        """The identity of the log that this thread reads."""
        return getattr(self._local, "identity", None) or self.identity()

    def load(self, number: int) -> Snapshot:
        identity = self._log()
        if identity is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        return self._loaded.get(identity, number, self._load)

    def reread(self) -> None:
        self._loaded.expire()

    def header(self, number: int) -> Header:
        identity = self._log()
        if identity is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        known = self._loaded.peek(identity, number)
        return known.header if known is not None else self._entries.snapshot(identity, number)[0]

    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        self.check(header, expected)
        identity = header.identity if expected is not None else self.begin()
        header, table = next_snapshot(header, table, number=(expected or 0) + 1, identity=identity)
        return self._committed(header, (), table)

    def amend(self, header: Header, removed: pa.Array, added: pa.Table, *, expected: int) -> Header:
        self.check(header, expected)
        base = self.load(expected)
        if len(removed) != base.header.files:
            raise MetadataError(f"snapshot {expected} has {base.header.files} files, {len(removed)} were looked at")
        schema = files_schema(header.stored)
        gone = np.asarray(removed.to_numpy(zero_copy_only=False), dtype=bool)
        kept = without(base.header.parts, gone)
        first = merged_from(kept, added.num_rows)
        table = conformed(added, schema)
        if first < len(kept):
            _, protection = self._entries.snapshot(header.identity, expected)
            readers = self._readers(kept[first:], protection)
            wanted = replace(base.header, entries=header.stored, deleted=())
            table = pa.concat_tables([conformed(load_columns(wanted, readers, None), schema), table])
        files = sum(part.left for part in kept[:first]) + table.num_rows
        header = next_header(header, files=files, number=expected + 1, identity=header.identity)
        return self._committed(header, tuple(kept[:first]), table)

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
        self._loaded.forget(identity, snapshots)

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        parts = self.folder.names("_parts")
        logs = [f"{folder}/{name}" for folder in ("_log", "_operations") for name in self.folder.names(folder)]
        owned = tuple(f"_{operation[:_OWNER]}" for operation in running())
        identity = self.identity()  # after the listings: what a log begun since has made is in none of them
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
        """Also notices a number that was given twice: somebody put back an older state of the folder, and went on."""
        super().check(header, expected)
        if expected is not None and header.created:
            with contextlib.suppress(MetadataError):  # a damaged one may be replaced
                if self._entries.snapshot(header.identity, expected)[0].created != header.created:
                    self._loaded.forget(header.identity, [expected])
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
        self._create(made, self._entries.vault.rewrapped(self._entries.protection_of(made) or protection), made=())
        return made

    def drop(self) -> None:
        for name in ("_identity.json", "_log", "_operations", "_parts"):  # without an identity nobody finds the rest
            self.folder.delete(name)
        self._loaded.clear()

    def _latest(self, identity: str) -> int | None:
        return max(self._numbers(f"_log/_{identity}"), default=None)

    def _numbers(self, folder: str) -> tuple[int, ...]:
        try:
            names = self.folder.names(folder)
        except OSError as error:
            raise MetadataError(f"cannot list the log in {self.location}: {error}") from error
        return tuple(sorted(int(m[1]) for m in map(_ENTRY.fullmatch, names) if m))

    def _load(self, identity: str, number: int) -> Snapshot:
        header, protection = self._entries.snapshot(identity, number)
        parts = self._readers(header.parts, protection)
        if header.files != sum(part.left for part in header.parts):
            raise MetadataError(
                f"the parts of snapshot {number} in {self.location} do not have its {header.files} files"
            )
        return Snapshot(header, FileMetadata(header.files, partial(load_columns, header, parts)))

    def _readers(self, parts: Sequence[PartFile], protection: SnapshotProtection | None) -> list[PartReader]:
        return [PartReader(self.folder, part, self._entries.keys(protection)) for part in parts]

    def _committed(self, header: Header, kept: tuple[PartFile, ...], table: pa.Table) -> Header:
        """The header with the parts that it has now, once it is the latest snapshot."""
        protection = self._entries.protection_of(header)
        new: list[PartFile] = []
        if table.num_rows or not kept:
            new.append(self._write_part(table, str(header.operation.get("id", "")), protection))
        header = replace(header, parts=(*kept, *new))
        self._create(header, protection, made=[part.name for part in new])
        return header

    def _create(self, header: Header, protection: SnapshotProtection | None, *, made: Sequence[str]) -> None:
        """Create the entry of a snapshot; where it is not to be, what was made for it goes."""
        entry = snapshot_name(header.identity, header.number)
        try:
            self.folder.create(entry, self._entries.snapshot_text(header, protection))
        except FileExistsError:
            self._forget(*made)
            raise ConflictError(
                f"another writer committed snapshot {header.number} to {self.location} first; load it and try again"
            ) from None
        except OSError:
            if not self._is_there(header):
                raise
        self._loaded.forget(header.identity, [header.number])  # another had the number before, in a state that is gone
        if self.identity() != header.identity:  # dropped meanwhile: what was written is in nobody's log
            self._forget(entry, *made)
            raise ConflictError(f"the metadata in {self.location} was dropped during this commit; index again")
        if is_late(self, header):
            self._forget(entry)  # alone: one that was made from it, if there was, has its parts
            raise ConflictError(f"other writers committed to {self.location} first; load it and try again")

    def _is_there(self, header: Header) -> bool:
        """Is this snapshot's entry there, though it was said that it could not be made? As when an answer got lost."""
        with contextlib.suppress(MetadataError):
            found, _ = self._entries.snapshot(header.identity, header.number)
            return (found.created, found.operation) == (header.created, header.operation)
        return False

    def _write_part(self, table: pa.Table, operation: str, protection: SnapshotProtection | None) -> PartFile:
        owner = operation[:_OWNER] if _OPERATION.fullmatch(operation) else ""
        name = f"_parts/_{owner}{new_identity()[len(owner) :]}.parquet"
        with tempfile.TemporaryDirectory(prefix="geoskip-") as scratch:
            path = Path(scratch) / "part.parquet"
            part = write_part(path, name, table, self._entries.keys(protection))
            self.folder.put(name, path)
        return part

    def _forget(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(OSError):  # it is left for vacuum
                self.folder.delete(name)
