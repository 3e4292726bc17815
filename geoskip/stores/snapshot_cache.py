"""The snapshots that a store has read, cached for the queries of all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from geoskip.metadata import Snapshot

__all__ = ["SnapshotCache"]

_KEPT = 2
"""Snapshots kept: the latest, and the one before it for queries that began with that."""


class SnapshotCache:
    """A thread-safe cache of snapshots by log identity and number, which keeps the last two used."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._stale: dict[tuple[str, int], Snapshot] = {}
        self._lock = threading.Lock()

    def peek(self, identity: str, number: int) -> Snapshot | None:
        """A cached or stale snapshot, None for others."""
        with self._lock:
            return self._snapshots.get((identity, number)) or self._stale.get((identity, number))

    def get(self, identity: str, number: int, read: Callable[[str, int], Snapshot]) -> Snapshot:
        """A snapshot, from the cache or read; two threads may read the same one.

        Parameters
        ----------
        identity, number
            Of the log and of the snapshot.
        read
            Called with both if the snapshot is not cached.
        """
        key = identity, number
        with self._lock:
            cached = self._snapshots.pop(key, None)
            if cached is not None:
                self._snapshots[key] = cached  # the most recently used
                return cached
        snapshot = read(identity, number)
        with self._lock:
            self._snapshots[key] = snapshot
            while len(self._snapshots) > _KEPT:
                del self._snapshots[next(iter(self._snapshots))]
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
            while len(self._stale) > _KEPT:
                del self._stale[next(iter(self._stale))]

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock:
            self._snapshots.clear()
            self._stale.clear()
