"""The contract of a metadata store: numbered, immutable snapshots of one dataset's metadata.

To add a store, write a subclass with the abstract methods and run ``tests/stores/test_stores.py`` on it. Every store
promises:

* a snapshot exists whole or not at all, and never changes;
* of several writers that expect the same snapshot, one commits and the others get ConflictError;
* each *log* has its own identity: a writer that read a log before it was dropped cannot commit into the log that has
  begun since, even if the numbers agree;
* a loaded snapshot can be read while others commit. A snapshot that cannot be read raises MetadataError, and the query
  then reads every file.

In addition to the snapshots a store keeps the *operation log* (:mod:`geoskip.lifecycle.log`): small numbered JSON
objects, created exclusively, opaque to the store. Committing a snapshot does not depend on this log, so that a crash
between the two loses no snapshot.

:class:`MemoryStore` keeps everything in this process.
"""

from __future__ import annotations

import copy
import json
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import ConflictError, InvalidSpecificationError, MetadataError
from geoskip.metadata import BASE_SCHEMA, FORMAT, FileMetadata, Header, Snapshot, conform, files_schema

if TYPE_CHECKING:
    from geoskip.stores.encryption import Encryption

_REASONS = 1000
"""Maximum number of reasons in a header, so that it stays small."""


class Store(ABC):
    """The metadata of one dataset.

    Attributes
    ----------
    kind, location
        Names of the type and of this store, for messages and :meth:`describe`.
    costs
        The requests and bytes of a query in words, for :meth:`describe`.
    protection
        Advice for the error message on ``encryption=`` with this store.
    encryption
        The keys with which it protects the metadata, if it does.
    distant
        True if requests go to another machine: then not every query looks up the latest snapshot.
    tries_for
        Seconds for which a verb retries after lost races, before it raises ConflictError.
    discreet
        True if the operation log must contain nothing about the data: no expressions, paths or error messages.
    """

    kind: str
    location: str
    costs: str = ""
    protection: str = "it keeps them as they are, and knows no keys; leave store= out, and they are kept in files"
    encryption: Encryption | None = None
    distant: bool = False
    tries_for: float = 60.0
    discreet: bool = False

    def patiently(self) -> AbstractContextManager[None]:
        """A block in which requests wait for a busy store: used by verbs, not by queries."""
        return nullcontext()

    def of_log(self, identity: str) -> AbstractContextManager[None]:
        """A block in which this thread reads the log of one identity without looking it up.

        If the log is dropped meanwhile, it seems empty. :meth:`identity` and writes still look up the identity.
        """
        return nullcontext()

    def reread(self) -> None:  # noqa: B027 - a store may have nothing in memory
        """Drop cached snapshots, so that later damage is found; a no-op for stores without a cache."""

    @abstractmethod
    def latest(self) -> int | None:
        """The number of the newest snapshot, or None; called by every query."""

    @abstractmethod
    def identity(self) -> str | None:
        """The identity of the log, or None."""

    @abstractmethod
    def load(self, number: int) -> Snapshot:
        """A snapshot, its columns read lazily; raises MetadataError if it is missing or damaged."""

    def header(self, number: int) -> Header:
        """The header of a snapshot; some stores return it even if the table is damaged."""
        return self.load(number).header

    @abstractmethod
    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        """Create the next snapshot.

        Parameters
        ----------
        header
            The new header; its ``identity`` is that of the log that was read.
        table
            The whole files table.
        expected
            Number of the snapshot that this one is based on; None for the first snapshot of a log, which was created by
            :meth:`begin` or is created now.

        Returns
        -------
        Header
            The header as stored.

        Raises
        ------
        ConflictError
            If another snapshot is now the latest, or the log was replaced.
        """

    def amend(self, header: Header, removed: pa.Array, added: pa.Table, *, expected: int) -> Header:
        """Create the next snapshot by removing and adding rows.

        This commits the whole table; a store may override it to write only the change.

        Parameters
        ----------
        header
            As for :meth:`commit`.
        removed
            A boolean for each row of snapshot ``expected``.
        added
            Rows to append; missing columns are null.
        expected
            Number of the snapshot to change.
        """
        self.check(header, expected)
        base = self.load(expected)
        schema = files_schema(header.stored)
        parts = [conform(base.files.table().filter(pc.invert(removed)), schema), conform(added, schema)]
        return self.commit(header, pa.concat_tables(parts), expected=expected)

    @abstractmethod
    def drop(self) -> None:
        """Remove all metadata; readers and writers of the log will find it missing."""

    def protects(self, number: int) -> bool:
        """True if a snapshot is encrypted with keys that :meth:`rotate` can wrap again."""
        return False

    def encryption_of(self, number: int) -> Encryption | None:
        """The encryption that protects a copy as this snapshot; None if it is in clear."""
        return None

    def rotate(self, header: Header, *, expected: int) -> Header:
        """Create the next snapshot with the same files, and data keys wrapped with the newest master keys.

        Raises ConflictError as :meth:`commit`.
        """
        raise InvalidSpecificationError(f"the metadata in {self.location} are in clear: there are no keys to rotate")

    @abstractmethod
    def begin(self) -> str:
        """The identity of the log, which is created if there is none."""

    @abstractmethod
    def snapshots(self) -> tuple[int, ...]:
        """The numbers of the snapshots, ascending."""

    @abstractmethod
    def operations(self) -> tuple[int, ...]:
        """The numbers of the operation log's entries, ascending and possibly with gaps."""

    @abstractmethod
    def operation(self, number: int) -> dict[str, Any]:
        """An entry of the operation log; raises MetadataError if it is missing or damaged."""

    @abstractmethod
    def record(self, number: int, entry: Mapping[str, Any], *, identity: str) -> None:
        """Create an entry of the operation log, exclusively, whole and durable.

        Parameters
        ----------
        number, entry
            The number of the entry, and its content as a JSON object.
        identity
            The identity of the log that was read.

        Raises
        ------
        ConflictError
            If the number is taken, or the log was replaced.
        """

    @abstractmethod
    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        """Remove snapshots and log entries, but never the latest snapshot; :meth:`sweep` removes parts."""

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        """Remove the leftovers of crashed writers and removed snapshots; returns their number.

        The names of files that a writer creates before its commit begin with the first 24 digits of its
        ``header.operation["id"]``. Those of ``running`` operations are kept. Call ``running`` after listing the
        leftovers, and list the snapshots last: an operation that ends in between has committed by then, and its
        snapshot names its parts.
        """
        return 0

    def size(self) -> dict[str, int]:
        """Bytes of the latest snapshot by index, and of its ``files``: as stored, or without parts in memory."""
        number = self.latest()
        if number is None:
            return {}
        snapshot = self.load(number)
        columns = [(column.name, column.bytes) for part in snapshot.header.parts for column in part.columns.values()]
        if not snapshot.header.parts:
            table = snapshot.files.table()
            columns = [(name, table[name].nbytes) for name in table.schema.names]
        sizes = {"files": 0}
        for name, size in columns:
            key = "files" if name in BASE_SCHEMA.names else name
            sizes[key] = sizes.get(key, 0) + size
        return sizes

    def describe(self) -> dict[str, Any]:
        """The store's name, format, latest snapshot, sizes and costs."""
        number = self.latest()
        sizes = self.size()
        return {
            "store": self.kind,
            "location": self.location,
            "format": FORMAT,
            "identity": self.identity(),
            "snapshot": number,
            "files": 0 if number is None else self.load(number).header.files,
            "bytes": sum(sizes.values()),
            "bytes_by_index": sizes,
            "costs": self.costs,
        }

    def check(self, header: Header, expected: int | None) -> None:
        """Raise ConflictError unless ``expected`` is the latest snapshot and the log is that of the header."""
        latest, identity = self.latest(), self.identity()
        if latest != expected:
            raise ConflictError(
                f"another writer committed to {self.location}: snapshot {latest} is the latest, "
                f"not {expected}; load it and try again"
            )
        if (expected is not None or header.identity) and identity != header.identity:
            raise ConflictError(
                f"the metadata in {self.location} was dropped and begun anew since the log {header.identity} was read; "
                "load it and try again"
            )


def new_identity() -> str:
    """A random identity of a log, or name of a part: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def next_snapshot(header: Header, table: pa.Table, *, number: int, identity: str) -> tuple[Header, pa.Table]:
    """The header and table to store, with number, time and exactly the schema of the indexes.

    Parameters
    ----------
    header, table
        As for :meth:`Store.commit`.
    number, identity
        The number of the new snapshot, and the identity of its log.
    """
    table = conform(table, files_schema(header.stored))
    return next_header(header, files=table.num_rows, number=number, identity=identity), table


def next_header(header: Header, *, files: int, number: int, identity: str) -> Header:
    """The header to store, without parts; ``operation["follows"]`` is the time of the previous snapshot.

    Parameters
    ----------
    header
        As for :meth:`Store.commit`.
    files, number, identity
        The number of files, the number of the new snapshot, and the identity of its log.
    """
    return replace(
        header,
        operation={**header.operation, "follows": header.created},
        format=FORMAT,
        identity=identity,
        number=number,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        files=files,
        parts=(),
        reasons=dict(islice(header.reasons.items(), _REASONS)),
    )


def header_json(header: Header) -> dict[str, Any]:
    """The header as plain JSON; raises MetadataError for values that JSON cannot represent."""
    return _plain(header.to_json(), "header")


def entry_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An operation log's entry as plain JSON; raises MetadataError for values that JSON cannot represent."""
    return _plain(dict(entry), "entry")


def entry_conflict(store: Store, number: int) -> ConflictError:
    """The error of :meth:`Store.record` for a number that is taken, or a log that was replaced."""
    return ConflictError(
        f"another writer has entry {number} of the operation log in {store.location}, or the log was dropped; "
        "read it again"
    )


def is_late(store: Store, header: Header) -> bool:
    """True if the snapshot just created reuses the number of another one that was vacuumed meanwhile.

    Exclusive creation gives a number to one writer *at a time*. If others have committed later snapshots, and a vacuum
    has removed the early ones, a slow writer may find the number after its base free again; nobody would read its
    snapshot. So if later snapshots exist, the next one must have the time of this one as ``follows``.
    """
    later = [number for number in store.snapshots() if number > header.number]
    if not later:
        return False
    with suppress(MetadataError):
        if later[0] == header.number + 1:
            return store.header(later[0]).operation.get("follows") != header.created
    return True


def _plain(data: dict[str, Any], what: str) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(f"the {what} cannot be written as JSON: {error}") from None
    return plain


class MemoryStore(Store):
    """Snapshots in the memory of this process."""

    kind = "memory"
    costs = "nothing a query, and its bytes in memory"

    def __init__(self) -> None:
        self.location = "memory"
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
            header, table = next_snapshot(header, table, number=number, identity=identity)
            header = Header.from_json(header_json(header))  # like other stores
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
                raise entry_conflict(self, number)
            self._operations[number] = kept

    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        with self._lock:
            latest = self.latest()
            for number in snapshots:
                if number != latest:
                    self._snapshots.pop(number, None)
            for number in operations:
                self._operations.pop(number, None)
