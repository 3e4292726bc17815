"""One operation, from its first entry in the log to its last: what every verb goes through.

1. Operations whose process is gone are closed: rolled back, or done where their snapshot is there.
2. An entry in the transient state is created; a heartbeat goes on while the operation runs.
3. The verb looks at the latest snapshot and says what the next one is to be.
4. The log is asked whether the operation is still open: it may have been cancelled, or taken for dead.
   Who has lost too often goes first (:mod:`geoskip.lifecycle.write_queue`).
5. The store commits, if the latest snapshot is still that of step 3. If it is not, the verb is asked again (3), told
   who was faster. :data:`geoskip.lifecycle.verbs.COMPATIBLE` says what becomes of it; where the two contradict each
   other, the error names who was faster.
6. An entry in a final state is created.

Step 4 comes after step 3 has read the latest snapshot, and whoever cancels commits a snapshot after having written so:
an operation that does not see its cancellation in step 4 fails in step 5, looks again, and sees it. A crash before 5
leaves the old snapshot, one after it the new; a crash between 5 and 6 is mended by step 1 of the next operation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from geoskip.errors import ConflictError, GeoskipError, MetadataError, MissingKeyError, NotIndexedError, StoreError
from geoskip.lifecycle.changes import Amend, Attempt, Commit, CommitAttempt, ConcurrentCommit, NoChange, Result, Rewrap
from geoskip.lifecycle.log import UNTOLD, Entry, Log, RaceLosses, is_dead, now, person_of, versions, who
from geoskip.lifecycle.verbs import COMPATIBLE, DOING, DONE, FAILED, ROLLED_BACK, OnConflict, Verb
from geoskip.lifecycle.write_queue import LOSSES, WriteQueue
from geoskip.metadata import Header, Snapshot
from geoskip.stores.base import Store, new_identity

__all__ = [
    "Amend",
    "Commit",
    "Operation",
    "Rewrap",
    "CommitAttempt",
    "ConcurrentCommit",
    "close_the_dead",
    "latest",
    "perform",
    "writing",
]

BEAT = 10.0
"""Seconds between heartbeats."""


def perform(
    store: Store,
    verb: Verb,
    attempt: Attempt,
    *,
    parameters: Mapping[str, Any] | None = None,
    by: str | None = None,
    since: int | None = None,
    unreadable: bool = False,
) -> Header | None:
    """Carry out a verb; returns the header of its snapshot, None where ``attempt`` found nothing to do.

    ``by`` names the engine and its version for the log; ``since`` is the number of the snapshot that the caller has
    looked at, 0 for none: who committed after it was faster. Of ``unreadable`` see :meth:`Operation.run`. Raises what
    ``attempt`` raises, and ConflictError where others were faster and contradict it, or were for longer than the
    store's ``tries_for``, where the operation was cancelled, or the metadata were dropped.
    """
    with Operation(store, verb, parameters or {}, by, since) as operation:
        return operation.run(attempt, unreadable=unreadable)


def latest(store: Store) -> Snapshot | None:
    """The latest snapshot, None where there is none; looked up again if it is vacuumed in this moment.

    Raises MetadataError for one that cannot be read.
    """
    while True:
        number = store.latest()
        if number is None:
            return None
        try:
            return store.load(number)
        except MissingKeyError:  # what somebody else can read is not to be built anew
            raise
        except MetadataError as error:
            if store.latest() == number:
                newer = "upgrade geoskip" in str(error)
                way_out = "" if newer else "; dataset.repair() builds anew what cannot be read"
                raise MetadataError(f"{error}{way_out}") from error


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """A block whose trouble with the file system is trouble with metadata."""
    try:
        yield
    except GeoskipError:
        raise
    except OSError as error:
        raise StoreError(
            f"the metadata in {store.location} cannot be written: {error}; make room or get permission, or keep them "
            "elsewhere: dataset(..., metadata='folder')"
        ) from error


class Operation:
    """A verb under way, as a context: it is in the log while the block runs."""

    def __init__(
        self, store: Store, verb: Verb, parameters: Mapping[str, Any], by: str | None, since: int | None = None
    ) -> None:
        self.store = store
        self.verb = verb
        self._since = since
        self.id = new_identity()
        self._began = time.monotonic()
        self._was_discreet = store.discreet
        self._told: dict[str, Any] = {"parameters": {} if self._was_discreet else dict(parameters)}
        self._versions = versions() | ({"engine": by} if by else {})
        self._stop = threading.Event()
        self._ended = False
        self._line = WriteQueue(self.id, 0.1 if store.distant else 0.01)
        self._waits: float | None = None

    def __enter__(self) -> Operation:
        with ExitStack() as stack:
            stack.enter_context(self.store.patiently())
            with writing(self.store):
                identity = self.store.begin()
            stack.enter_context(self.store.of_log(identity))
            self._begin(identity)
            self._blocks = stack.pop_all()
        return self

    def _begin(self, identity: str) -> None:
        with writing(self.store):
            self.log = Log(self.store, identity)
            close_the_dead(self.log)
            self._base = self.store.latest()
            self.log.append(lambda _: self._entry(DOING[self.verb]))
        threading.Thread(target=self._beat, name="geoskip-heartbeat", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        with self._blocks:
            if self._ended:
                return
            if error is None:
                self._end(DONE)
            else:
                self._end(FAILED, error=type(error).__name__, message="" if self._is_discreet() else str(error)[:500])

    def run(self, attempt: Attempt, *, final: bool = True, unreadable: bool = False) -> Header | None:
        """Attempts until one is committed; without ``final``, :meth:`end` writes the last entry. ``unreadable``: a
        latest snapshot that cannot be read is none, and is followed nevertheless.
        """
        before = self._base if self._since is None else self._since
        winners: tuple[ConcurrentCommit, ...] = ()
        losses = RaceLosses(self.store.tries_for)
        while True:
            if losses.number:
                self.check_open()
            began, self._line.slept = time.monotonic(), 0.0
            try:
                snapshot = latest(self.store)
            except MetadataError:
                if not unreadable:
                    raise
                snapshot = None
            here = snapshot.header.number if snapshot else self.store.latest()
            faster = self._winners(before, here)
            before = here
            winners += faster
            if faster:
                self._told["after"] = [f"{one.verb}: {COMPATIBLE[self.verb, one.verb].then}" for one in faster]
            starts_anew = all(COMPATIBLE[self.verb, one.verb].then is OnConflict.AGAIN for one in faster)
            try:
                result = attempt(CommitAttempt(0 if faster and starts_anew else losses.number, snapshot, winners))
            except MetadataError:
                if self.store.latest() == here:
                    raise
                self._lost(losses, winners, began)  # the snapshot was vacuumed while it was read
                continue
            except (ConflictError, NotIndexedError) as error:
                raise self._refused(error, winners) from error
            if result is None or isinstance(result, NoChange):
                self.end(message="nothing to do", **(result.told if result is not None else {}))
                return None
            self.check_open()
            try:
                with writing(self.store):
                    committed = self._commit(result, here)
            except ConflictError:
                self.log.check_identity()
                self._lost(losses, winners, began)
                continue
            self._told |= {"snapshot": committed.number, **result.told}
            if final:
                self.end()
            else:
                self._give_back()
            return committed

    def _lost(self, losses: RaceLosses, winners: Sequence[ConcurrentCommit], began: float) -> None:
        """Another writer was faster in the turn that began then: pause, take a ticket, or give up."""
        took = time.monotonic() - began - self._line.slept
        if not losses.count():
            raise ConflictError(
                f"{losses} another writer committed to {self.store.location} first, the last time "
                f"{winners[-1] if winners else 'one that tells nothing of itself'}; try again when fewer write to it"
            )
        if losses.number < LOSSES:
            losses.pause()
        elif self._waits is None:
            self._waits = round(took, 3)
            self._tell()

    def _give_back(self) -> None:
        """It has committed, and goes on: others need not wait for it."""
        if self._waits is not None:
            self._waits = None
            self._tell()

    def _tell(self) -> None:
        """A transient entry more; where it cannot be written, the next one tells."""
        with suppress(OSError, GeoskipError):
            self.log.append(lambda open: self._entry(DOING[self.verb]) if self._lives(open) else None)

    def _refused(self, error: GeoskipError, winners: Sequence[ConcurrentCommit]) -> GeoskipError:
        """The error that an attempt ended with, with the names of those who were faster and are why."""
        reasons = [one for one in winners if COMPATIBLE[self.verb, one.verb].unless] or winners
        if not reasons:
            return error
        return ConflictError(f"this {self.verb} came after {' and '.join(map(str, reasons))}: {error}")

    def end(self, **told: Any) -> None:
        """The operation has done what it should."""
        self._end(DONE, **told)

    def check_open(self) -> None:
        """Raise ConflictError if the operation was closed by somebody else: cancelled, or taken for dead. Returns once
        it is its turn.
        """
        while self.id in (open := self.log.open()):
            if not self._line.gives_way(open):
                return
        self.log.check_identity()
        closed = [e for e in self.log.entries() if e.get("operation") == self.id and e.get("ended")]
        told = closed[-1] if closed else {}
        person = f" by {person_of(told['closed by'])}" if told.get("closed by") else ""
        self._ended = True  # its last entry is there, by somebody else
        if told.get("state") == ROLLED_BACK:
            raise ConflictError(
                f"this {self.verb} was taken for dead{person}, since its heartbeat had stopped, and was rolled back; "
                "nothing was committed: start it again"
            )
        if not told:
            raise ConflictError(
                f"the operation log of {self.store.location} tells of this {self.verb} no more: somebody has removed "
                "entries or put back older ones; nothing was committed: start it again"
            )
        raise ConflictError(f"this {self.verb} was cancelled{person}; nothing was committed")

    def _winners(self, before: int | None, here: int | None) -> tuple[ConcurrentCommit, ...]:
        """The operations of the snapshots after one and up to another; what cannot be read is left out."""
        found = []
        for number in self.store.snapshots() if before != here else ():
            if (before or 0) < number <= (here or 0):
                with suppress(MetadataError, ValueError):
                    by = self.store.header(number).operation
                    found.append(
                        ConcurrentCommit(str(by.get("id", "")), Verb(str(by.get("verb"))), person_of(by), number)
                    )
        return tuple(found)

    def _commit(self, result: Result, expected: int | None) -> Header:
        told = {"id": self.id, "verb": str(self.verb), **self._versions, **who()}
        header = replace(result.header, identity=self.log.identity, operation=told)
        if isinstance(result, Rewrap):
            return self.store.rotate(header, expected=expected or 0)
        if isinstance(result, Commit) or expected is None:
            table = result.table if isinstance(result, Commit) else result.added
            return self.store.commit(header, table, expected=expected)
        return self.store.amend(header, result.removed, result.added, expected=expected)

    def _is_discreet(self) -> bool:
        """Must the log tell nothing of the data? Not of what there was before this operation removed it either."""
        return self._was_discreet or self.store.discreet

    def _entry(self, state: str, **more: Any) -> dict[str, Any]:
        told = {**self._told, **more}
        if self._is_discreet():
            told = {name: value for name, value in told.items() if name != "indexes"}
        return {
            "operation": self.id,
            "verb": str(self.verb),
            "state": state,
            "when": now(),
            "who": who(),
            "versions": self._versions,
            "base": self._base,
            **({} if self._waits is None else {"waits": self._waits}),
            **told,
        }

    def _end(self, state: str, **more: Any) -> None:
        """The last entry; the next writer makes up for one that cannot be written."""
        self._ended = True
        self._stop.set()
        seconds = round(time.monotonic() - self._began, 3)
        try:
            self.log.append(lambda _: self._entry(state, ended=True, seconds=seconds, **more))
        except (OSError, GeoskipError):
            UNTOLD.add(self.id)

    def _beat(self) -> None:
        log = Log(self.store, self.log.identity)
        while not self._stop.wait(BEAT):
            with suppress(OSError, GeoskipError), self.store.of_log(log.identity):
                log.append(lambda open: self._entry(DOING[self.verb]) if self._lives(open) else None)

    def _lives(self, open: Mapping[str, Entry]) -> bool:
        return self.id in open and not self._stop.is_set()


def close_the_dead(log: Log) -> None:
    """Close the operations that nobody carries on."""
    for name, told in log.open().items():
        if name in UNTOLD or is_dead(told):
            close(log, name, ROLLED_BACK, "no process carries it on")


def close(log: Log, operation: str, state: str, why: str) -> bool:
    """Write the last entry of somebody else's operation: done where its snapshot is there. Was there none?"""
    told = log.open().get(operation)
    if told is None:
        return False
    made = made_by(log.store, operation, told.get("base"))
    final = {"state": DONE, "snapshot": made} if made else {"state": state, "message": why}

    def entry(open: Mapping[str, Entry]) -> dict[str, Any] | None:
        if operation not in open:
            return None
        common = {"operation": operation, "verb": told["verb"], "who": told["who"], "base": told.get("base")}
        return {**common, "when": now(), "ended": True, "closed by": who(), **final}

    return log.append(entry) is not None and not made


def made_by(store: Store, operation: str, base: int | None) -> int | None:
    """The number of the snapshot that an operation committed after a base."""
    for number in store.snapshots():
        if number > (base or 0):
            with suppress(MetadataError):
                if store.header(number).operation.get("id") == operation:
                    return number
    return None
