"""Storage of snapshots as part files with some rows each, so that a small change is a small write.

A part is a file of :mod:`geoskip.stores.part_files`. A header names parts and the rows removed from each. A commit
writes one part: :func:`remove_rows` and :func:`merged_from` select the parts that the next snapshot keeps, and those
that are merged into the new part.

Headers, and entries of the operation log, are numbered texts. After one was created the identity of the log is read
again: if the log was dropped meanwhile, the text belongs to no log and is removed.
"""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import FileMetadata, Header, PartFile, Snapshot, conform, files_schema
from geoskip.stores.base import Store, entry_conflict, entry_json, is_late, new_identity, next_header, next_snapshot
from geoskip.stores.encryption import Encryption, SnapshotProtection
from geoskip.stores.log_files import LogEntries, NumberedTexts, TextKey

_MOST_PARTS, _FANOUT = 16, 4
OWNER = 24
"""Number of digits of an operation's id in its parts' names, by which a sweep identifies the writer of leftovers."""
_OPERATION = re.compile(r"[0-9a-f]{24,32}")
_KEPT = 2
"""Number of cached snapshots: the latest, and the previous one for queries that began with that."""


class SnapshotCache:
    """A thread-safe cache of snapshots by log identity and number, which keeps the last two used."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._stale: dict[tuple[str, int], Snapshot] = {}
        self._lock = threading.Lock()

    def peek(self, identity: str, number: int) -> Snapshot | None:
        """A cached or expired snapshot, or None."""
        with self._lock:
            return self._snapshots.get((identity, number)) or self._stale.get((identity, number))

    def get(self, identity: str, number: int, read: Callable[[str, int], Snapshot]) -> Snapshot:
        """A snapshot, from the cache or read; two threads may read the same one.

        Parameters
        ----------
        identity, number, read
            The log's identity, the snapshot's number, and a function that reads the snapshot if it is not cached.
        """
        key = identity, number
        with self._lock:
            cached = self._snapshots.pop(key, None)
            if cached is not None and not cached.header.is_outdated:
                self._snapshots[key] = cached  # the most recently used
                return cached
        snapshot = read(identity, number)
        with self._lock:
            self._snapshots[key] = snapshot
            self._trim(self._snapshots)
        return snapshot

    def forget(self, identity: str, numbers: Iterable[int]) -> None:
        """Drop snapshots that were removed."""
        with self._lock:
            for number in numbers:
                self._snapshots.pop((identity, number), None)
                self._stale.pop((identity, number), None)

    def expire(self) -> None:
        """Make :meth:`get` read again; :meth:`peek` still returns the snapshots read before."""
        with self._lock:
            self._stale, self._snapshots = {**self._stale, **self._snapshots}, {}
            self._trim(self._stale)

    @staticmethod
    def _trim(snapshots: dict[tuple[str, int], Snapshot]) -> None:
        while len(snapshots) > _KEPT:
            del snapshots[next(iter(snapshots))]

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock:
            self._snapshots, self._stale = {}, {}


class PartStore(Store):
    """A store that keeps snapshots as parts, and headers and log entries as numbered texts."""

    def __init__(self, texts: NumberedTexts, encryption: Encryption | None = None) -> None:
        self.location = texts.location
        self.encryption = encryption
        self._texts = texts
        self._entries = LogEntries(texts, encryption)
        self._snapshots = SnapshotCache()

    @abstractmethod
    def _files_of(self, header: Header, protection: SnapshotProtection | None) -> FileMetadata:
        """The files table of a snapshot, its columns read lazily."""

    @abstractmethod
    def _read_parts(self, base: Header, parts: Sequence[PartFile], header: Header) -> pa.Table:
        """Read the rows of some parts of ``base``, with the columns of the new ``header``."""

    @abstractmethod
    def _write_part(self, header: Header, table: pa.Table, protection: SnapshotProtection | None) -> PartFile:
        """Write rows of the files table as a new part, for the snapshot of ``header``."""

    @abstractmethod
    def _forget_parts(self, parts: Sequence[PartFile]) -> None:
        """Remove parts that no snapshot names; errors are ignored, since a sweep removes them too."""

    def _log(self) -> str | None:
        """The identity of the log that this thread uses, see :meth:`of_log`."""
        return self.identity()

    def identity(self) -> str | None:
        return self._texts.identity()

    def latest(self) -> int | None:
        identity = self._log()
        return None if identity is None else self._latest(identity)

    def _latest(self, identity: str) -> int | None:
        return max(self._texts.numbers("snapshot", identity), default=None)

    def snapshots(self) -> tuple[int, ...]:
        identity = self._log()
        return () if identity is None else self._texts.numbers("snapshot", identity)

    def operations(self) -> tuple[int, ...]:
        identity = self._log()
        return () if identity is None else self._texts.numbers("operation", identity)

    def operation(self, number: int) -> dict[str, Any]:
        return self._entries.operation(self._log() or "", number)

    def header(self, number: int) -> Header:
        identity = self._log() or ""
        known = self._snapshots.peek(identity, number)
        return known.header if known is not None else self._entries.snapshot(identity, number)[0]

    def load(self, number: int) -> Snapshot:
        identity = self._log()
        if identity is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        return self._snapshots.get(identity, number, self._read_snapshot)

    def _read_snapshot(self, identity: str, number: int) -> Snapshot:
        header, protection = self._entries.snapshot(identity, number)
        files = self._files_of(header, protection)
        if header.files != sum(part.rows_left for part in header.parts):
            raise MetadataError(
                f"the parts of snapshot {number} in {self.location} do not have its {header.files} files"
            )
        return Snapshot(header, files)

    def reread(self) -> None:
        self._snapshots.expire()

    def begin(self) -> str:
        with self.patiently():
            identity = self.identity()
            if identity is None:
                self._texts.begin()
                identity = self.identity()
            if identity is None:
                raise self._dropped_error()
            return identity

    def record(self, number: int, entry: Mapping[str, Any], *, identity: str) -> None:
        with self.patiently():
            latest = self._latest(identity) if self._entries.vault is not None else None
            text = self._entries.operation_text(entry_json(entry), identity, number, latest)
            key = TextKey("operation", identity, number)
            try:
                self._texts.create(key, text)
            except (FileExistsError, FileNotFoundError):
                raise entry_conflict(self, number) from None
            if self.identity() != identity:
                self._take_back(key)
                raise entry_conflict(self, number)

    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        with self.patiently():
            identity = self._log()
            if identity is None:
                return
            self._texts.forget("snapshot", identity, *sorted(set(snapshots) - {self._latest(identity)}))
            self._texts.forget("operation", identity, *operations)
            self._snapshots.forget(identity, snapshots)

    def check(self, header: Header, expected: int | None) -> None:
        """Raise ConflictError as in the base class, and if the number ``expected`` is now another snapshot.

        This happens if an older state of the metadata was restored, and others have committed since.
        """
        super().check(header, expected)
        if expected is not None and header.created:
            with suppress(MetadataError):  # a damaged one may be replaced
                if self._entries.snapshot(header.identity, expected)[0].created != header.created:
                    self._snapshots.forget(header.identity, [expected])
                    raise ConflictError(
                        f"snapshot {expected} in {self.location} is another than the one that was read; load it and "
                        "try again"
                    )

    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        """Create the next snapshot; see :meth:`Store.commit`.

        Parameters
        ----------
        header, table, expected
            As for :meth:`Store.commit`.
        """
        with self.patiently():
            self.check(header, expected)
            identity = header.identity if expected is not None else self.begin()
            header, table = next_snapshot(header, table, number=(expected or 0) + 1, identity=identity)
            return self._commit_parts(header, (), table)

    def amend(self, header: Header, removed: pa.Array, added: pa.Table, *, expected: int) -> Header:
        """Create the next snapshot by removing and adding rows; writes only the change.

        Parameters
        ----------
        header, removed, added, expected
            As for :meth:`Store.amend`.
        """
        with self.patiently():
            self.check(header, expected)
            base = self.load(expected).header
            if len(removed) != base.files:
                raise MetadataError(f"snapshot {expected} has {base.files} files, {len(removed)} were looked at")
            schema = files_schema(header.stored)
            kept = remove_rows(base.parts, np.asarray(removed.to_numpy(zero_copy_only=False), dtype=bool))
            has_unread = bool(base.unread or base.unread_deleted)  # their columns would be lost
            first = len(kept) if has_unread else merged_from(kept, added.num_rows)
            table = conform(added, schema)
            if first < len(kept):
                merged = self._read_parts(base, kept[first:], header)
                table = pa.concat_tables([conform(merged, schema), table])
            files = sum(part.rows_left for part in kept[:first]) + table.num_rows
            header = next_header(header, files=files, number=expected + 1, identity=header.identity)
            return self._commit_parts(header, tuple(kept[:first]), table)

    def _commit_parts(self, header: Header, kept: tuple[PartFile, ...], table: pa.Table) -> Header:
        """Write a part of the table and commit; returns the header with its parts."""
        protection = self._entries.protection_of(header)
        new = [self._write_part(header, table, protection)] if table.num_rows or not kept else []
        header = replace(header, parts=(*kept, *new))
        self._create(header, protection, new)
        return header

    def _create(self, header: Header, protection: SnapshotProtection | None, made: Sequence[PartFile]) -> None:
        """Create the text of a snapshot; after a lost race or a drop, remove the parts ``made`` for it."""
        key = TextKey("snapshot", header.identity, header.number)
        try:
            self._texts.create(key, self._entries.snapshot_text(header, protection))
        except FileExistsError:
            if not self._exists(header):
                self._forget_parts(made)
                raise ConflictError(
                    f"another writer committed snapshot {key.number} to {self.location} first; load it and try again"
                ) from None
        except OSError:
            if not self._exists(header):
                raise
        self._snapshots.forget(key.identity, [key.number])  # cached from an older state of the metadata
        if self.identity() != key.identity:
            self._take_back(key)
            self._forget_parts(made)
            raise self._dropped_error()
        if is_late(self, header):
            self._take_back(key)  # not its parts: a snapshot that followed it may use them
            raise ConflictError(f"other writers committed to {self.location} first; load it and try again")

    def _exists(self, header: Header) -> bool:
        """True if this text exists although its creation failed, as after a repeated request."""
        with suppress(MetadataError):
            stored, _ = self._entries.snapshot(header.identity, header.number)
            mine = (header.created, header.operation, header.parts)
            return (stored.created, stored.operation, stored.parts) == mine
        return False

    def _take_back(self, key: TextKey) -> None:
        """Remove a text that was just created; errors are ignored, since a vacuum removes it too."""
        with suppress(OSError, MetadataError):
            self._texts.forget(*key)

    def _dropped_error(self) -> ConflictError:
        return ConflictError(f"the metadata in {self.location} were dropped during this commit; index again")


def part_name(header: Header) -> str:
    """A random name of a part: 32 hexadecimal digits that begin with the id of the header's operation."""
    operation = str(header.operation.get("id", ""))
    owner = operation[:OWNER] if _OPERATION.fullmatch(operation) else ""
    return owner + new_identity()[len(owner) :]


def remove_rows(parts: Sequence[PartFile], gone: np.ndarray[Any, np.dtype[np.bool_]]) -> list[PartFile]:
    """The parts without the rows that are ``gone``, a boolean for each row; empty parts are left out."""
    kept = []
    start = 0
    for part in parts:
        here = gone[start : start + part.rows_left]
        start += part.rows_left
        if here.any():
            part = replace(part, removed=tuple(sorted({*part.removed, *part.numbers_left()[here].tolist()})))
        if part.rows_left:
            kept.append(part)
    return kept


def merged_from(parts: Sequence[PartFile], added: int) -> int:
    """The number of the first part to merge: it, all later parts and the added rows become one part."""
    wasteful = [number for number, part in enumerate(parts) if len(part.removed) > part.rows_left]
    first = min(wasteful, default=len(parts))
    if len(parts) >= _MOST_PARTS:
        after = added
        for number in range(len(parts) - 1, -1, -1):
            if parts[number].rows_left >= _FANOUT * after and number < len(parts) - 1:
                return min(first, number + 1)
            after += parts[number].rows_left
        return 0
    return first
