"""What a metadata store is: numbered, immutable snapshots of one dataset's metadata.

A store of one's own is a subclass with these few methods, and passes ``tests/test_stores.py``, which runs one suite
over all of them. What every store promises:

* a snapshot is there whole or not at all, and never changes;
* of several writers that expect the same snapshot, one wins and the others get ConflictError;
* a *log* has an identity of its own: a writer that read the log before it was dropped and begun anew cannot commit
  into the new one, whatever the numbers are;
* whoever holds a snapshot can go on reading it while others commit. What cannot be read raises MetadataError, and the
  query then reads every file.

Beside the snapshots a store keeps the *operation log* (:mod:`geoskip.lifecycle.log`): small numbered JSON objects, each
created exclusively, that say which verbs began, ran and ended. To a store they are texts. A snapshot commits by
itself, the log tells about it: a crash between the two loses no snapshot.
"""

from __future__ import annotations

import copy
import json
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import ConflictError, InvalidSpecificationError, MetadataError
from geoskip.metadata import BASE_SCHEMA, FORMAT, FileMetadata, Header, Snapshot, files_schema
from geoskip.metadata.file_table import conformed

__all__ = [
    "MemoryStore",
    "SnapshotCache",
    "Store",
    "dated",
    "entry_json",
    "header_json",
    "is_late",
    "lost",
    "new_identity",
    "stamped",
]

_REASONS = 1000  # a header stays small, whatever is wrong with how many files


class Store(ABC):
    """The metadata of one dataset; ``location`` is what messages call it."""

    kind: str
    location: str
    costs: str = ""
    """What a query costs it, in words, for :meth:`describe`."""
    protection: str = "it keeps them as they are, and knows no keys; leave store= out, and they are kept in files"
    """How metadata in it are protected, where ``encryption=`` was asked of it."""
    distant: bool = False
    """Are questions to it requests to another machine? Then not each query asks which snapshot is the latest."""
    tries_for: float = 60.0
    """Seconds for which a verb tries again while others commit before it, time and again, and it raises ConflictError;
    set it for a store on which very many write."""
    discreet: bool = False
    """Must the operation log tell nothing of the data: no expressions, no paths, no error messages?"""

    def patiently(self) -> AbstractContextManager[None]:
        """A block of a verb, which waits for a store that is away for a moment; a query does not."""
        return nullcontext()

    def of_log(self, identity: str) -> AbstractContextManager[None]:
        """A block in which what this thread reads is of the log with that identity, be it dropped meanwhile: then there
        is nothing. A store that has to ask for the identity each time need not; :meth:`identity` asks nevertheless, and
        so does what writes.
        """
        return nullcontext()

    def reread(self) -> None:  # noqa: B027 - a store may have nothing in memory
        """What is loaded next is what the store has by then, be it damaged since, and not what is in memory of it. Here
        for stores without such a memory.
        """

    @abstractmethod
    def latest(self) -> int | None:
        """The number of the newest snapshot, None where there is none; asked at every query, so cheap."""

    @abstractmethod
    def identity(self) -> str | None:
        """The identity of the log, None where there is none."""

    @abstractmethod
    def load(self, number: int) -> Snapshot:
        """A snapshot, its columns read when asked for; raises MetadataError if it is not there or damaged."""

    def header(self, number: int) -> Header:
        """The header of a snapshot alone, of one too whose table is damaged where the store can tell them apart."""
        return self.load(number).header

    @abstractmethod
    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        """Make the next snapshot; returns its header, with what the store filled in.

        ``expected`` is the number of the snapshot that this one was made from, and ``header.identity`` the identity of
        its log; None is for the first snapshot, of a log that :meth:`begin` made or that is made now. Raises
        ConflictError where another snapshot is the latest by now, or another log is there.
        """

    def amend(self, header: Header, removed: pa.Array, added: pa.Table, *, expected: int) -> Header:
        """Make the next snapshot from snapshot ``expected``: without the rows that ``removed`` (a boolean each) names,
        and with the added ones after the others. Columns that the added rows lack are null.

        The same as committing the whole table, which is what this does; a store that can do it in proportion to the
        change does. Raises as :meth:`commit`.
        """
        self.check(header, expected)
        base = self.load(expected)
        schema = files_schema(header.stored)
        parts = [conformed(base.files.table().filter(pc.invert(removed)), schema), conformed(added, schema)]
        return self.commit(header, pa.concat_tables(parts), expected=expected)

    @abstractmethod
    def drop(self) -> None:
        """Remove all metadata; readers and writers of the log find that it is gone."""

    def protects(self, number: int) -> bool:
        """Is a snapshot protected by keys, which :meth:`rotate` wraps anew? Here for stores without keys."""
        return False

    def rotate(self, header: Header, *, expected: int) -> Header:
        """Make the next snapshot: the files of snapshot ``expected``, the data keys wrapped by the newest versions of
        their master keys. Raises as :meth:`commit`.
        """
        raise InvalidSpecificationError(f"the metadata in {self.location} are in clear: there are no keys to rotate")

    @abstractmethod
    def begin(self) -> str:
        """The identity of the log; where there is none a log begins, without a snapshot."""

    @abstractmethod
    def snapshots(self) -> tuple[int, ...]:
        """The numbers of the snapshots that can be loaded, ascending."""

    @abstractmethod
    def operations(self) -> tuple[int, ...]:
        """The numbers of the entries in the operation log, ascending; numbers may be missing."""

    @abstractmethod
    def operation(self, number: int) -> dict[str, Any]:
        """An entry of the operation log; raises MetadataError if it is not there or damaged."""

    @abstractmethod
    def record(self, number: int, entry: Mapping[str, Any], *, identity: str) -> None:
        """Create an entry of the operation log, exclusively, whole and durable.

        Raises ConflictError where the number is taken, or the log has another identity by now.
        """

    @abstractmethod
    def forget(self, *, snapshots: Collection[int] = (), operations: Collection[int] = ()) -> None:
        """Remove snapshots and entries for good; those that are not there are no error. Never the latest snapshot.

        What only these snapshots used goes with :meth:`sweep`.
        """

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        """Remove what no snapshot uses: left by writers that crashed, or by snapshots that are gone. Returns how many.

        What a writer makes before its commit begins with the first 24 digits of its ``header.operation["id"]``;
        that of the ``running`` ones stays; they are to be asked for after what is there was listed, and before the
        snapshots are. Here for stores that leave nothing.
        """
        return 0

    def size(self) -> dict[str, int]:
        """Bytes of the latest snapshot for each index, and for the ``files`` themselves: as kept, or as in memory."""
        number = self.latest()
        if number is None:
            return {}
        table = self.load(number).files.table()
        sizes = {"files": 0}
        for name in table.schema.names:
            key = "files" if name in BASE_SCHEMA.names else name
            sizes[key] = sizes.get(key, 0) + table[name].nbytes
        return sizes

    def describe(self) -> dict[str, Any]:
        """The store in a few words and numbers."""
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
        """Raise ConflictError unless a snapshot made from ``expected`` may be committed now."""
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
    """An identity for a log, or a name for a part: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def stamped(header: Header, table: pa.Table, *, number: int, identity: str) -> tuple[Header, pa.Table]:
    """The header and table as they will be stored: numbered, dated, with exactly the schema of the indexes."""
    table = conformed(table, files_schema(header.stored))
    return dated(header, files=table.num_rows, number=number, identity=identity), table


def dated(header: Header, *, files: int, number: int, identity: str) -> Header:
    """The header as it will be stored, apart from its parts; ``follows`` is when that was made which it comes after."""
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
    """The header as plain JSON; raises MetadataError for what JSON cannot hold."""
    return _plain(header.to_json(), "header")


def entry_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the operation log as plain JSON; raises MetadataError for what JSON cannot hold."""
    return _plain(dict(entry), "entry")


def lost(store: Store, number: int) -> ConflictError:
    """What :meth:`Store.record` raises where a number is taken, or the log is another."""
    return ConflictError(
        f"another writer has entry {number} of the operation log in {store.location}, or the log was dropped; "
        "read it again"
    )


def is_late(store: Store, header: Header) -> bool:
    """Had another snapshot the number of one that was created right now, and is it forgotten already?

    Exclusive creation lets one writer have a number *at a time*. A writer that looked which snapshot is the latest, and
    is slow, may find the next number free once more, where others have gone on and a vacuum has come after them.
    Nobody would look at its snapshot. Where there are later ones, the next one tells whether it was made from this.
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
