"""The snapshots that a store has read last, so that a query opens its own but once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from geoskip.metadata import Snapshot

__all__ = ["SnapshotCache"]

_KEPT = 2
"""The latest one, and the one before it for queries that began with that."""


class SnapshotCache:
    """Snapshots by the identity of their log and their number, the least recently used forgotten; for many threads."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._aside: dict[tuple[str, int], Snapshot] = {}
        self._lock = threading.Lock()

    def known(self, identity: str, number: int) -> Snapshot | None:
        """A snapshot that is kept or was set aside, None for another."""
        with self._lock:
            return self._snapshots.get((identity, number)) or self._aside.get((identity, number))

    def get(self, identity: str, number: int, read: Callable[[str, int], Snapshot]) -> Snapshot:
        """A snapshot, read if it is not kept; two threads may read the same one, and one of them is kept."""
        key = identity, number
        with self._lock:
            known = self._snapshots.pop(key, None)
            if known is not None:
                self._snapshots[key] = known  # the last one used
                return known
        snapshot = read(identity, number)
        with self._lock:
            self._snapshots[key] = snapshot
            while len(self._snapshots) > _KEPT:
                del self._snapshots[next(iter(self._snapshots))]
        return snapshot

    def forget(self, identity: str, numbers: Iterable[int]) -> None:
        """Some snapshots are there no longer."""
        with self._lock:
            for number in numbers:
                self._snapshots.pop((identity, number), None)
                self._aside.pop((identity, number), None)

    def set_aside(self) -> None:
        """What is asked for next is read anew; what was read before is still known."""
        with self._lock:
            self._aside, self._snapshots = {**self._aside, **self._snapshots}, {}
            while len(self._aside) > _KEPT:
                del self._aside[next(iter(self._aside))]

    def clear(self) -> None:
        """None is there any longer."""
        with self._lock:
            self._snapshots.clear()
            self._aside.clear()
