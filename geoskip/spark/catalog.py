"""Catalog of the datasets of a driver, with their stores and the snapshots read so far.

A dataset is identified by the URI of its root. Metadata in ``<root>/_geoskip`` are always used. Those in a user's store
(``metadata=``, ``store=``) are used after a handle with this store was created in this driver, unless another store has
metadata. A choice between several stores must be explicit: creating a handle never changes the store that queries and
other handles use.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable

from geoskip.errors import MetadataError
from geoskip.lifecycle.log import latest as latest_snapshot
from geoskip.metadata import Snapshot
from geoskip.spark.filesystem import folder_at
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyKeeper, KeyRing
from geoskip.stores.parquet import ParquetStore

FOLDER = "_geoskip"
KEYS = "spark.geoskip.encryption.keyRing"
_MOST_SNAPSHOTS = 64
_MOST_OF_ONE = 2
"""Number of cached snapshots of a log: the newest, and the previous one, which a query may be using."""


class DatasetCatalog:
    """Stores by the roots of datasets, and cached snapshots by identity, number and time."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}
        """Stores of users."""
        self._snapshots: OrderedDict[str, tuple[Snapshot, Encryption | None]] = OrderedDict()
        """Snapshots by :func:`key_of`, with the encryption keys they were read with: others decrypt other indexes."""
        self._defaults: dict[str, Store] = {}
        """Stores in the datasets' own folders."""
        self._callbacks: dict[str, Callable[[], None]] = {}
        self._last_known: dict[str, tuple[Store, float, str]] = {}
        self._renewed: dict[str, int] = {}
        self.encryption: Encryption | None = None
        """Keys for reading encrypted metadata, unless a handle has its own."""
        self._keys_from: str | None = None
        self._lock = threading.Lock()

    def register(self, root: str, store: Store) -> None:
        """Use this store for the dataset at ``root`` from now on."""
        with self._lock:
            self._stores[root] = store
            if store is self._defaults.get(root):
                del self._stores[root]

    def register_default(self, root: str, store: Store, *, complete: bool = False) -> bool:
        """Use a store unless another one has metadata of the dataset; return whether it is used.

        Of two stores with the same location the first one with keys is kept, unless the new one is ``complete``.

        Parameters
        ----------
        root, store
            The root of the dataset, and the store.
        complete
            True if all metadata could be read with the keys of the store.
        """
        current = self.store(root)
        if not _is_same(current, store):
            if self.another(root, store) is not None:
                return False
        elif not complete and current.encryption is not None:
            return True
        self.register(root, store)
        return True

    def another(self, root: str, store: Store) -> Store | None:
        """The store with indexes of the dataset that queries use instead of this one, or None."""
        current = self.store(root)
        if _is_same(current, store):
            return None
        try:
            found = latest_snapshot(current)
            return current if found is not None and found.header.has_indexes else None
        except MetadataError:  # it may have some
            return current

    def read_keys(self, location: str | None, *, again: bool = False) -> None:
        """Read encrypted metadata with the key ring at a location.

        A location is the path of a file, or ``env:`` and a variable's name. The location that was read last is read
        again only with ``again``. Raises InvalidSpecificationError.
        """
        if location and (again or location != self._keys_from):
            name = location.removeprefix("env:")
            self.unlock(KeyRing.from_file(location) if name == location else KeyRing.from_environment(name), location)

    def unlock(self, keys: KeyKeeper, location: str | None = None) -> None:
        """Read encrypted metadata with these keys from now on."""
        with self._lock:
            self._keys_from = location
            self.encryption = Encryption(keys)
            self._last_known.clear()
            self._defaults.clear()

    def store(self, root: str) -> Store:
        """Store of the dataset at ``root``."""
        return self._stores.get(root) or self.default(root)

    def default(self, root: str) -> Store:
        """Store in the dataset's own folder."""
        with self._lock:
            if root not in self._defaults:
                self._defaults[root] = default_store(root, encryption=self.encryption)
            return self._defaults[root]

    def is_chosen(self, root: str) -> bool:
        """Test whether the store of the dataset at ``root`` is a user's."""
        return root in self._stores

    def roots(self) -> tuple[str, ...]:
        """Roots of all datasets used so far."""
        with self._lock:
            return tuple(dict.fromkeys([*self._defaults, *self._stores]))

    def notify(self, root: str, callback: Callable[[], None] | None) -> None:
        """Call ``callback``, which must return at once, for each query of a dataset; None removes it."""
        with self._lock:
            self._callbacks.pop(root, None)
            if callback is not None:
                self._callbacks[root] = callback

    def snapshot(self, root: str, *, age: float = 0.0) -> Snapshot | None:
        """Latest snapshot of the dataset at ``root``, or None.

        For a store on another machine, this may be the snapshot that was the latest up to ``age`` seconds ago, unless a
        verb of this driver has committed another since. An older snapshot is sound: it has metadata of fewer files, and
        the others are read. Raises MetadataError, also if a user's store has no snapshot, since it may be lost.
        """
        if (callback := self._callbacks.get(root)) is not None:
            callback()
        store, since = self.store(root), time.monotonic()
        with self._lock:
            renewed = self._renewed.get(root, 0)
            last_store, when, key = self._last_known.get(root, (None, 0.0, ""))
            last, _ = self._snapshots.get(key, (None, None))
            if last_store is store and since - when < age and last is not None and not last.header.is_outdated:
                return last
        latest = self._latest(root, store)
        with self._lock:
            if store.distant and latest is not None and self._renewed.get(root, 0) == renewed:
                self._last_known[root] = (store, since, key_of(latest))
            else:
                self._last_known.pop(root, None)
        return latest

    def _latest(self, root: str, store: Store) -> Snapshot | None:
        number = store.latest()
        if number is None:
            if self.is_chosen(root):
                raise MetadataError(f"{store.location} has none")
            return None
        name = f"{store.identity()}:{number}:"
        with self._lock:
            for key in reversed(self._snapshots):
                known, keys = self._snapshots[key]
                if key.startswith(name) and keys == store.encryption and not known.header.is_outdated:
                    self._snapshots.move_to_end(key)
                    return known
        loaded = store.load(number)
        with self._lock:
            self._snapshots[key_of(loaded)] = (loaded, store.encryption)
            for key in [k for k in self._snapshots if k.startswith(loaded.header.identity)][:-_MOST_OF_ONE]:
                del self._snapshots[key]
            while len(self._snapshots) > _MOST_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return loaded

    def renew(self, root: str) -> None:
        """Drop the cached latest snapshot of the dataset at ``root``, so that it is read again.

        If an older state of the metadata was restored, another snapshot may have had its number before.
        """
        store = self.store(root)
        with self._lock:
            self._renewed[root] = self._renewed.get(root, 0) + 1
            self._last_known.pop(root, None)
        try:
            name = f"{store.identity()}:{store.latest()}:"
        except MetadataError:  # the next query reports it
            return
        with self._lock:
            for key in [key for key in self._snapshots if key.startswith(name)]:
                del self._snapshots[key]

    def by_key(self, key: str) -> Snapshot | None:
        """Snapshot that was read before, by its key."""
        with self._lock:
            return self._snapshots.get(key, (None, None))[0]


def key_of(snapshot: Snapshot) -> str:
    """Key of a snapshot, without spaces; also used on the Java side.

    It includes the time, since numbers are reused after an older state of the metadata was restored.
    """
    header = snapshot.header
    return f"{header.identity}:{header.number}:{zlib.crc32(header.created.encode('utf-8', 'replace'))}"


def _is_same(one: Store, other: Store) -> bool:
    """Test whether two stores have the same location, possibly with different keys."""
    if one is other or type(one) is not type(other) or one.location != other.location:
        return one is other
    try:
        return one.identity() == other.identity()
    except MetadataError:  # the server is unreachable
        return True


def default_store(root: str, metadata: str | None = None, encryption: Encryption | None = None) -> Store:
    """Parquet store in ``<root>/_geoskip``, or in another folder."""
    return ParquetStore(folder_at(metadata or root.rstrip("/") + "/" + FOLDER), encryption=encryption)
