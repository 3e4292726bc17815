"""Storage of snapshots as part files with some rows each, so that a small change is a small write.

A part is a file of :mod:`geoskip.stores.part_files`. A header names parts and the rows removed from each. A commit
writes one part: :func:`remove_rows` and :func:`merged_from` select the parts that the next snapshot keeps, and those
that are merged into the new part.
"""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import Header, PartFile, Snapshot, conform, files_schema
from geoskip.stores.base import Store, new_identity, next_header, next_snapshot

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
    """A store that keeps snapshots as parts; subclasses read and write the parts."""

    def __init__(self) -> None:
        self._snapshots = SnapshotCache()

    @abstractmethod
    def _read_snapshot(self, identity: str, number: int) -> Snapshot:
        """Read a snapshot, its columns lazily."""

    @abstractmethod
    def _read_parts(self, base: Header, parts: Sequence[PartFile], header: Header) -> pa.Table:
        """Read the rows of some parts of ``base``, with the columns of the new ``header``."""

    @abstractmethod
    def _commit_parts(self, header: Header, kept: tuple[PartFile, ...], table: pa.Table) -> Header:
        """Write a part of the table and commit; returns the header with its parts."""

    def _log(self) -> str | None:
        """The identity of the log that this thread uses, see :meth:`of_log`."""
        return self.identity()

    def _header_of(self, identity: str, number: int) -> Header:
        return self.load(number).header

    def load(self, number: int) -> Snapshot:
        identity = self._log()
        if identity is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        return self._snapshots.get(identity, number, self._read_snapshot)

    def reread(self) -> None:
        self._snapshots.expire()

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
            base = self._header_of(header.identity, expected)
            if len(removed) != base.files:
                raise MetadataError(f"snapshot {expected} has {base.files} files, {len(removed)} were looked at")
            schema = files_schema(header.stored)
            kept = remove_rows(base.parts, np.asarray(removed.to_numpy(zero_copy_only=False), dtype=bool))
            first = merged_from(kept, added.num_rows)
            table = conform(added, schema)
            if first < len(kept):
                merged = self._read_parts(base, kept[first:], header)
                table = pa.concat_tables([conform(merged, schema), table])
            files = sum(part.rows_left for part in kept[:first]) + table.num_rows
            header = next_header(header, files=files, number=expected + 1, identity=header.identity)
            return self._commit_parts(header, tuple(kept[:first]), table)


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
            rows = np.setdiff1d(np.arange(part.rows), np.array(part.removed, dtype=np.int64))
            part = replace(part, removed=tuple(sorted({*part.removed, *map(int, rows[here])})))
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
