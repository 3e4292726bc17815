"""The store in memory: the reference that other stores are compared with, and a store for tests."""

from __future__ import annotations

import threading

import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import FileMetadata, Header, Snapshot
from geoskip.stores.base import Store, header_json, new_identity, stamped

__all__ = ["MemoryStore"]


class MemoryStore(Store):
    """Snapshots in this process; gone with it."""

    kind = "memory"

    def __init__(self, name: str = "memory") -> None:
        self.location = name
        self._identity: str | None = None
        self._snapshots: dict[int, Snapshot] = {}
        self._lock = threading.RLock()

    def latest(self) -> int | None:
        return max(self._snapshots, default=None)

    def identity(self) -> str | None:
        return self._identity

    def load(self, number: int) -> Snapshot:
        snapshot = self._snapshots.get(number)
        if snapshot is None:
            raise MetadataError(f"there is no snapshot {number} in {self.location}")
        return snapshot

    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        with self._lock:
            self.check(header, expected)
            identity = self._identity or new_identity()
            number = (expected or 0) + 1
            header, table = stamped(header, table, number=number, identity=identity)
            header = Header.from_json(header_json(header))  # what a store keeps, no more
            self._identity = identity
            self._snapshots[number] = Snapshot(header, FileMetadata.of(table))
            return header

    def drop(self) -> None:
        with self._lock:
            self._identity = None
            self._snapshots = {}
