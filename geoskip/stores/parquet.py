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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import FileMetadata, Header, PartFile
from geoskip.stores.base import new_identity, next_header
from geoskip.stores.encryption import Encryption, SnapshotProtection
from geoskip.stores.log_files import LARGEST, Folder, Kind, LocalFolder, TextKey, identity_of, identity_text
from geoskip.stores.part_files import PART_SUFFIX, PartReader, load_columns, write_part
from geoskip.stores.parts import OWNER, PartStore, part_name

_ENTRY = re.compile(r"_([0-9]{8,18})\.json")
_FOLDERS: dict[Kind, str] = {"snapshot": "_log", "operation": "_operations"}


class FolderTexts:
    """Numbered texts as files in a folder; implements :class:`geoskip.stores.log_files.NumberedTexts`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.location = folder.location

    def identity(self) -> str | None:
        try:
            text = self._read("_identity.json", 4096)
        except FileNotFoundError:
            return None
        return identity_of(text, f"_identity.json in {self.location}")

    def begin(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.folder.create("_identity.json", identity_text(new_identity()))

    def numbers(self, kind: Kind, identity: str) -> tuple[int, ...]:
        try:
            names = self.folder.names(f"{_FOLDERS[kind]}/_{identity}")
        except OSError as error:
            raise MetadataError(f"cannot list the log in {self.location}: {error}") from error
        return tuple(sorted(int(m[1]) for m in map(_ENTRY.fullmatch, names) if m))

    def label(self, key: TextKey) -> str:
        return f"{_FOLDERS[key.kind]}/_{key.identity}/_{key.number:08d}.json"

    def read(self, key: TextKey) -> bytes:
        return self._read(self.label(key), LARGEST[key.kind])

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

    def create(self, key: TextKey, text: bytes) -> None:
        self.folder.create(self.label(key), text)

    def forget(self, kind: Kind, identity: str, *numbers: int) -> None:
        for number in numbers:
            self.folder.delete(self.label(TextKey(kind, identity, number)))


class ParquetStore(PartStore):
    """Metadata in Parquet files in a folder, see the module docstring; encrypted if keys are given."""

    kind = "parquet"
    protection = "give the keys to the store itself: ParquetStore(folder, encryption=...)"
    costs = (
        "a small file and a listing a query, on other file systems not more often than once a second; once a snapshot "
        "its header, and of each part the columns clauses name"
    )

    def __init__(self, folder: Folder | str | os.PathLike[str], *, encryption: Encryption | None = None) -> None:
        self.folder: Folder = LocalFolder(folder) if isinstance(folder, str | os.PathLike) else folder
        super().__init__(FolderTexts(self.folder), encryption)
        self.distant = not isinstance(self.folder, LocalFolder)
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

    def _log(self) -> str | None:
        return getattr(self._local, "identity", None) or self.identity()

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        parts = self.folder.names("_parts")
        logs = [f"{folder}/{name}" for folder in _FOLDERS.values() for name in self.folder.names(folder)]
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

    def protects(self, number: int) -> bool:
        identity = self._log()
        return identity is not None and self._entries.snapshot(identity, number)[1] is not None

    def encryption_of(self, number: int) -> Encryption | None:
        _, protection = self._entries.snapshot(self._log() or "", number)
        return None if protection is None or self.encryption is None else protection.encryption(self.encryption)

    def rotate(self, header: Header, *, expected: int) -> Header:
        self.check(header, expected)
        old, protection = self._entries.snapshot(header.identity, expected)
        if self._entries.vault is None or protection is None:
            return super().rotate(header, expected=expected)
        made = next_header(header, files=old.files, number=expected + 1, identity=header.identity)
        made = replace(made, parts=old.parts)
        self._create(made, self._entries.vault.rewrap(self._entries.protection_of(made) or protection), ())
        return made

    def drop(self) -> None:
        for name in ("_identity.json", "_log", "_operations", "_parts"):  # the rest is unused without an identity
            self.folder.delete(name)
        self._snapshots.clear()

    def _files_of(self, header: Header, protection: SnapshotProtection | None) -> FileMetadata:
        return FileMetadata(header.files, partial(load_columns, header, self._readers(header.parts, protection)))

    def _read_parts(self, base: Header, parts: Sequence[PartFile], header: Header) -> pa.Table:
        _, protection = self._entries.snapshot(base.identity, base.number)
        wanted = replace(base, entries=header.stored, deleted=())
        return load_columns(wanted, self._readers(parts, protection), None)

    def _readers(self, parts: Sequence[PartFile], protection: SnapshotProtection | None) -> list[PartReader]:
        return [PartReader(self.folder, part, self._entries.keys(protection)) for part in parts]

    def _write_part(self, header: Header, table: pa.Table, protection: SnapshotProtection | None) -> PartFile:
        name = f"_parts/_{part_name(header)}{PART_SUFFIX}"
        with tempfile.TemporaryDirectory(prefix="geoskip-") as scratch:
            path = Path(scratch) / "part.parquet"
            part = write_part(path, name, table, self._entries.keys(protection))
            self.folder.put(name, path)
        return part

    def _forget_parts(self, parts: Sequence[PartFile]) -> None:
        for part in parts:
            with contextlib.suppress(OSError):
                self.folder.delete(part.name)
