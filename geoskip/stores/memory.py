"""The store in memory: the reference that other stores are compared with, and a store for tests."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from geoskip.errors import MetadataError
from geoskip.metadata import FileMetadata, Header, Snapshot
from geoskip.stores.base import Store, entry_json, header_json, lost, new_identity, stamped

__all__ = ["MemoryStore"]


class MemoryStore(Store):
    """Snapshots in this process; gone with it."""

    kind = "memory"
    costs = "nothing a query, and its bytes in memory"

    def __init__(self, name: str = "memory") -> None:
        self.location = name
        self._identity: str | None = None
        self._snapshots: dict[int, Snapshot] = {}
        self._operations: dict[int, dict[str, Any]] = {}
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
            self._operations = {}

    def begin(self) -> str:
        with self._lock:
            self._identity = self._identity or new_identity()
            return self._identity

    def snapshots(self) -> tuple[int, ...]:
        return tuple(sorted(self._snapshots.copy()))

    def operations(self) -> tuple[int, ...]:
        return tuple(sorted(self._operations.copy()))

    def operation(self, number: int) -> dict[str, Any]:
        entry = self._operations.get(number)
        if entry is None:
            raise MetadataError(f"there is no entry {number} in the operation log of {self.location}")
        return copy.deepcopy(entry)

    def record(self, number: int, entry: Mapping[str, Any], *, identity: str) -> None:
        kept = entry_json(entry)
        with self._lock:
            if identity != self._identity or number in self._operations:
                raise lost(self, number)
            self._operations[number] = kept

    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        with self._lock:
            latest = self.latest()
            for number in snapshots:
                if number != latest:
                    self._snapshots.pop(number, None)
            for number in operations:
                self._operations.pop(number, None)
