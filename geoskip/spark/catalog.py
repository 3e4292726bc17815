"""The datasets that this driver knows: where each one's metadata are, and the snapshots read so far.

A dataset is identified by the URI of its root. Metadata in ``<root>/_geoskip`` are found by anybody; those in a store
of the user's (``metadata=``, ``store=``) once a handle of it was made in this driver, if there were none elsewhere. To
take one of several places is an explicit act: no handle changes by being made what queries and other handles use.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable

from geoskip.errors import MetadataError
from geoskip.metadata import Snapshot
from geoskip.spark.filesystem import HadoopFolder
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyKeeper, KeyRing
from geoskip.stores.log_files import LocalFolder, local_path
from geoskip.stores.parquet import ParquetStore

__all__ = ["FOLDER", "KEYS", "DatasetCatalog"]

FOLDER = "_geoskip"
KEYS = "spark.geoskip.keys"
_MOST_SNAPSHOTS = 64
_MOST_OF_ONE = 2
"""The newest, and the one before it: a query may just be using that."""


class DatasetCatalog:
    """Stores by root, snapshots by identity and number."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}
        """Those of users."""
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._read_with: dict[str, Encryption | None] = {}
        self._defaults: dict[str, Store] = {}
        """Those in the datasets' own folders."""
        self._told: dict[str, Callable[[], None]] = {}
        self._asked: dict[str, tuple[Store, float, str]] = {}
        self._renewed: dict[str, int] = {}
        self.encryption: Encryption | None = None
        """The keys that protected metadata are read with where no handle brought others."""
        self._keys_from: str | None = None
        self._lock = threading.Lock()

    def register(self, root: str, store: Store) -> None:
        """Use this store for the dataset at ``root`` from now on."""
        with self._lock:
            self._stores[root] = store
            if store is self._defaults.get(root):
                del self._stores[root]

    def offer(self, root: str, store: Store, *, complete: bool = False) -> bool:
        """Use this store if no other is known to hold metadata of the dataset at ``root``; return whether it is used.

        Of one place the first store with keys stays, unless this one is ``complete``: all could be read with its keys.
        """
        current = self.store(root)
        if not _is_same(current, store):
            if self.another(root, store) is not None:
                return False
        elif not complete and getattr(current, "encryption", None) is not None:
            return True
        self.register(root, store)
        return True

    def another(self, root: str, store: Store) -> Store | None:
        """The store with metadata of the dataset at ``root`` that queries use instead of this one; None if none is."""
        current = self.store(root)
        if _is_same(current, store):
            return None
        try:
            return None if current.latest() is None else current
        except MetadataError:  # it may hold some
            return current

    def read_keys(self, place: str | None, *, anew: bool = False) -> None:
        """Read protected metadata with the key ring that a session names: the path of a file, or ``env:`` and the name
        of a variable. Nothing is done where it was named before, if not ``anew``. Raises InvalidSpecificationError.
        """
        if place and (anew or place != self._keys_from):
            name = place.removeprefix("env:")
            self.unlock(KeyRing.from_file(place) if name == place else KeyRing.from_environment(name), place)

    def unlock(self, keys: KeyKeeper, place: str | None = None) -> None:
        """Read protected metadata with these keys, whatever was named as their ``place`` before."""
        with self._lock:
            self._keys_from = place
            self.encryption = Encryption(keys)
            self._asked.clear()
            self._defaults.clear()

    def store(self, root: str) -> Store:
        """The store of the dataset at ``root``."""
        return self._stores.get(root) or self.default(root)

    def default(self, root: str) -> Store:
        """The store in the dataset's own folder."""
        with self._lock:
            if root not in self._defaults:
                self._defaults[root] = default_store(root, encryption=self.encryption)
            return self._defaults[root]

    def is_chosen(self, root: str) -> bool:
        """Whether the store of the dataset at ``root`` is one of the user's."""
        return root in self._stores

    def roots(self) -> tuple[str, ...]:
        """The roots met so far."""
        with self._lock:
            return tuple(dict.fromkeys([*self._defaults, *self._stores]))

    def tell(self, root: str, tell: Callable[[], None] | None) -> None:
        """Call this at once when a query asks for the dataset at ``root``; it returns immediately. None ends that."""
        with self._lock:
            self._told.pop(root, None)
            if tell is not None:
                self._told[root] = tell

    def snapshot(self, root: str, *, age: float = 0.0) -> Snapshot | None:
        """The latest snapshot of the dataset at ``root``, None where there is none.

        Of a store that is asked by requests to another machine, what was the latest up to ``age`` seconds ago will do,
        unless a verb of this driver has made another since: an older snapshot loses nothing, it only knows less.
        Raises MetadataError, also where a store that a handle brought has none: maybe it has lost them.
        """
        if (tell := self._told.get(root)) is not None:
            tell()
        store, since = self.store(root), time.monotonic()
        with self._lock:
            renewed = self._renewed.get(root, 0)
            asked, when, key = self._asked.get(root, (None, 0.0, ""))
            if asked is store and since - when < age and key in self._snapshots:
                return self._snapshots[key]
        found = self._latest(root, store)
        with self._lock:
            if store.distant and found is not None and self._renewed.get(root, 0) == renewed:
                self._asked[root] = (store, since, key_of(found))
            else:
                self._asked.pop(root, None)
        return found

    def _latest(self, root: str, store: Store) -> Snapshot | None:
        encryption: Encryption | None = getattr(store, "encryption", None)
        number = store.latest()
        if number is None:
            if self.is_chosen(root):
                raise MetadataError(f"{store.location} has none")
            return None
        name = f"{store.identity()}:{number}:"
        with self._lock:
            for key in reversed(self._snapshots):
                if key.startswith(name) and self._read_with.get(key) == encryption:  # other keys show other indexes
                    self._snapshots.move_to_end(key)
                    return self._snapshots[key]
        loaded = store.load(number)
        with self._lock:
            self._snapshots[key_of(loaded)] = loaded
            self._read_with[key_of(loaded)] = encryption
            for key in [k for k in self._snapshots if k.startswith(loaded.header.identity)][:-_MOST_OF_ONE]:
                self._read_with.pop(key, None)
                del self._snapshots[key]
            while len(self._snapshots) > _MOST_SNAPSHOTS:
                self._read_with.pop(self._snapshots.popitem(last=False)[0], None)
        return loaded

    def renew(self, root: str) -> None:
        """Read the latest snapshot of the dataset at ``root`` again: it was made just now, and where somebody put back
        an older state of the metadata, another one had its number before.
        """
        store = self.store(root)
        with self._lock:
            self._renewed[root] = self._renewed.get(root, 0) + 1
            self._asked.pop(root, None)
        try:
            name = f"{store.identity()}:{store.latest()}:"
        except MetadataError:  # the next query says so
            return
        with self._lock:
            for key in [key for key in self._snapshots if key.startswith(name)]:
                self._read_with.pop(key, None)
                del self._snapshots[key]

    def by_key(self, key: str) -> Snapshot | None:
        """A snapshot read before."""
        with self._lock:
            return self._snapshots.get(key)


def key_of(snapshot: Snapshot) -> str:
    """What names a snapshot towards the JVM; without a space.

    A number may be given twice, where somebody put back an older state of the metadata: the time tells the two apart.
    """
    header = snapshot.header
    return f"{header.identity}:{header.number}:{zlib.crc32(header.created.encode('utf-8', 'replace'))}"


def _is_same(one: Store, other: Store) -> bool:
    """Whether two stores are one place, maybe under other keys."""
    if one is other or type(one) is not type(other) or one.location != other.location:
        return one is other
    try:
        return one.identity() == other.identity()
    except MetadataError:  # as long as a server is away
        return True


def default_store(root: str, metadata: str | None = None, encryption: Encryption | None = None) -> Store:
    """The Parquet store in ``<root>/_geoskip``, or in the folder given."""
    place = metadata or root.rstrip("/") + "/" + FOLDER
    path = local_path(place)
    if path is None:
        return ParquetStore(HadoopFolder(place), encryption=encryption)
    return ParquetStore(LocalFolder(path), encryption=encryption)
