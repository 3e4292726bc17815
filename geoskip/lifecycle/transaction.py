"""One operation, from its first entry in the log to its last: the protocol that every verb follows.

1. Dead operations are closed: as done if their snapshot exists, else as rolled back.
2. An entry in the transient state is created; a heartbeat follows every few seconds while the operation runs.
3. The verb reads the latest snapshot and returns the next one.
4. The log is read: the operation may have been cancelled or considered dead.
5. The store commits, if the latest snapshot is still that of step 3. Otherwise the verb tries again from step 3 after
   a random pause, with the list of commits that won the race. :attr:`geoskip.lifecycle.verbs.Verb.then` defines how it
   continues; if the two contradict each other, the error names the other operation.
6. An entry in a final state is created.

Step 4 comes after step 3 has read the latest snapshot, and a cancellation is logged before its snapshot is committed:
an operation that misses its cancellation in step 4 fails in step 5, and finds it when it repeats step 4. A crash before
step 5 leaves the old snapshot, one after it the new. After a crash between 5 and 6, step 1 of the next operation writes
the missing entry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import pyarrow as pa

from geoskip.errors import ConflictError, GeoskipError, MetadataError, NotIndexedError, StoreError
from geoskip.lifecycle.log import UNTOLD, Entry, Log, RaceLosses, is_dead, latest, now, person_of, versions, who
from geoskip.lifecycle.verbs import CONTRADICTING, DONE, FAILED, ROLLED_BACK, OnConflict, Verb
from geoskip.metadata import Header, Snapshot
from geoskip.stores.base import Store, new_identity

BEAT = 10.0
"""Seconds between heartbeats."""


@dataclass(frozen=True)
class Commit:
    """A whole table as the next snapshot; ``details`` go into the operation log."""

    header: Header
    table: pa.Table
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Amend:
    """The next snapshot as a change of the last one, see :meth:`geoskip.stores.base.Store.amend`."""

    header: Header
    removed: pa.Array
    added: pa.Table
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def same_files(cls, snapshot: Snapshot, header: Header | None = None, **details: Any) -> Amend:
        """The same files under another header, or under the same one."""
        removed = pa.array([False]).take(pa.array([0] * snapshot.header.files, pa.int32()))
        return cls(header or snapshot.header, removed, pa.table({}), details)


@dataclass(frozen=True)
class Rewrap:
    """The same snapshot with its data keys wrapped again, see :meth:`geoskip.stores.base.Store.rotate`."""

    header: Header
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoChange:
    """No commit is needed; ``details`` go into the operation log."""

    details: Mapping[str, Any]


@dataclass(frozen=True)
class ConcurrentCommit:
    """An operation that committed before this one."""

    id: str
    verb: Verb
    who: str
    snapshot: int

    def __str__(self) -> str:
        return f"{self.verb} {self.id[:12]}{self.who and f' by {self.who}'}, which made snapshot {self.snapshot}"


@dataclass(frozen=True)
class CommitAttempt:
    """One attempt: its number, the snapshot to start from, and the concurrent commits so far.

    ``number`` counts the lost races; it is 0 again after :attr:`~geoskip.lifecycle.verbs.OnConflict.AGAIN`.
    """

    number: int
    snapshot: Snapshot | None
    after: tuple[ConcurrentCommit, ...] = ()


Result = Commit | Amend | Rewrap
Attempt = Callable[[CommitAttempt], Result | NoChange | None]
"""A function that returns the next snapshot, or None if nothing is to be done."""


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
    """Carry out a verb as one operation.

    Parameters
    ----------
    store, verb
        The verb and the metadata that it changes.
    attempt
        Returns the next snapshot; called again after each lost race.
    parameters, by
        For the log: the arguments of the verb, and the engine with its version.
    since
        Number of the snapshot that the caller has read, 0 for none; later commits count as concurrent. Default: the
        latest snapshot when the operation begins.
    unreadable
        Treat a latest snapshot that cannot be read as none, and commit after it.

    Returns
    -------
    Header | None
        The header of the new snapshot, or None if ``attempt`` found nothing to do.

    Raises
    ------
    ConflictError
        If a concurrent commit contradicts the verb, races were lost for longer than ``store.tries_for`` seconds, the
        operation was cancelled, or the metadata were dropped.
    """
    with Operation(store, verb, parameters or {}, by, since) as operation:
        return operation.run(attempt, unreadable=unreadable)


@contextmanager
def store_errors(store: Store) -> Iterator[None]:
    """Turn an OSError of this block into a StoreError."""
    try:
        yield
    except GeoskipError:
        raise
    except OSError as error:
        way_out = "name a folder" if isinstance(error, NotADirectoryError) else "make room or get permission"
        raise StoreError(
            f"the metadata in {store.location} cannot be written: {error}; {way_out}, or keep them elsewhere: "
            "dataset(..., metadata='folder')"
        ) from error


class Operation:
    """A running verb, as a context manager: it is open in the log while the block runs."""

    def __init__(
        self, store: Store, verb: Verb, parameters: Mapping[str, Any], by: str | None, since: int | None = None
    ) -> None:
        self.store = store
        self.verb = verb
        self.id = new_identity()
        self._since = since
        self._started = time.monotonic()
        self._was_discreet = store.discreet
        self._details: dict[str, Any] = {"parameters": {} if self._was_discreet else dict(parameters)}
        self._versions = versions() | ({"engine": by} if by else {})
        self._stop = threading.Event()
        self._has_ended = False

    def __enter__(self) -> Operation:
        with ExitStack() as stack:
            stack.enter_context(self.store.patiently())
            with store_errors(self.store):
                identity = self.store.begin()
            stack.enter_context(self.store.of_log(identity))
            with store_errors(self.store):
                self.log = Log(self.store, identity)
                close_the_dead(self.log)
                self._base = self.store.latest()
                self.log.append(lambda _: self._entry(self.verb.doing))
            threading.Thread(target=self._beat, name="geoskip-heartbeat", daemon=True).start()
            self._blocks = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        with self._blocks:
            if self._has_ended:
                return
            if error is None:
                self.end()
            else:
                message = "" if self._is_discreet() else str(error)[:500]
                self._append_last(FAILED, error=type(error).__name__, message=message)

    def run(self, attempt: Attempt, *, final: bool = True, unreadable: bool = False) -> Header | None:
        """Repeat the attempt until one is committed.

        Parameters
        ----------
        attempt
            Returns the next snapshot; called again after each lost race.
        final
            Write the last entry of the log after the commit; otherwise the caller calls :meth:`end`.
        unreadable
            Treat a latest snapshot that cannot be read as none, and commit after it.
        """
        before = self._base if self._since is None else self._since
        winners: tuple[ConcurrentCommit, ...] = ()
        losses = RaceLosses(self.store.tries_for)
        while True:
            if losses.number:
                self.check_open()
            try:
                snapshot = latest(self.store)
            except MetadataError:
                if not unreadable:
                    raise
                snapshot = None
            current = snapshot.header.number if snapshot else self.store.latest()
            new = self._commits_between(before, current)
            before = current
            winners += new
            if new:
                self._details["after"] = [f"{one.verb}: {self.verb.then}" for one in new]
            starts_again = bool(new) and self.verb.then is OnConflict.AGAIN
            try:
                result = attempt(CommitAttempt(0 if starts_again else losses.number, snapshot, winners))
            except MetadataError:
                if self.store.latest() == current:
                    raise
                self._pause_after(losses, winners)  # the snapshot was vacuumed while it was read
                continue
            except (ConflictError, NotIndexedError) as error:
                raise self._conflict(error, winners) from error
            if result is None or isinstance(result, NoChange):
                self.end(message="nothing to do", **(result.details if result is not None else {}))
                return None
            self.check_open()
            try:
                with store_errors(self.store):
                    committed = self._commit(result, current)
            except ConflictError:
                self.log.check_identity()
                self._pause_after(losses, winners)
                continue
            self._details |= {"snapshot": committed.number, **result.details}
            if final:
                self.end()
            return committed

    def end(self, **details: Any) -> None:
        """Write the last entry of an operation that is done."""
        self._append_last(DONE, **details)

    def check_open(self) -> None:
        """Raise ConflictError if another process has closed the operation, as cancelled or as dead."""
        if self.id in self.log.open():
            return
        self.log.check_identity()
        last = [e for e in self.log.entries() if e.get("operation") == self.id and e.get("ended")][-1:]
        entry = last[0] if last else {}
        person = f" by {person_of(entry['closed by'])}" if entry.get("closed by") else ""
        self._has_ended = True  # another process has written its last entry
        if entry.get("state") == ROLLED_BACK:
            raise ConflictError(
                f"this {self.verb} was taken for dead{person}, since its heartbeat had stopped, and was rolled back; "
                "nothing was committed: start it again"
            )
        if not entry:
            raise ConflictError(
                f"the operation log of {self.store.location} tells of this {self.verb} no more: somebody has removed "
                "entries or put back older ones; nothing was committed: start it again"
            )
        raise ConflictError(f"this {self.verb} was cancelled{person}; nothing was committed")

    def _pause_after(self, losses: RaceLosses, winners: Sequence[ConcurrentCommit]) -> None:
        """Count a lost race and sleep a little; raise ConflictError after too many."""
        if not losses.count():
            raise ConflictError(
                f"{losses} another writer committed to {self.store.location} first, the last time "
                f"{winners[-1] if winners else 'one that tells nothing of itself'}; try again when fewer write to it"
            )
        losses.pause()

    def _conflict(self, error: GeoskipError, winners: Sequence[ConcurrentCommit]) -> GeoskipError:
        """The error of an attempt, with the names of the concurrent commits that may have caused it."""
        reasons = [one for one in winners if (self.verb, one.verb) in CONTRADICTING] or winners
        if not reasons:
            return error
        return ConflictError(f"this {self.verb} came after {' and '.join(map(str, reasons))}: {error}")

    def _commits_between(self, before: int | None, current: int | None) -> tuple[ConcurrentCommit, ...]:
        """The operations of the snapshots after ``before`` up to ``current``; unreadable ones are left out."""
        commits = []
        for number in self.store.snapshots() if before != current else ():
            if (before or 0) < number <= (current or 0):
                with suppress(MetadataError, ValueError):
                    by = self.store.header(number).operation
                    verb = Verb(str(by.get("verb")))
                    commits.append(ConcurrentCommit(str(by.get("id", "")), verb, person_of(by), number))
        return tuple(commits)

    def _commit(self, result: Result, expected: int | None) -> Header:
        operation = {"id": self.id, "verb": str(self.verb), **self._versions, **who()}
        header = replace(result.header, identity=self.log.identity, operation=operation)
        if isinstance(result, Rewrap):
            return self.store.rotate(header, expected=expected or 0)
        if isinstance(result, Commit) or expected is None:
            table = result.table if isinstance(result, Commit) else result.added
            return self.store.commit(header, table, expected=expected)
        return self.store.amend(header, result.removed, result.added, expected=expected)

    def _is_discreet(self) -> bool:
        """True if the log must contain no names from the data, now or when the operation began."""
        return self._was_discreet or self.store.discreet

    def _entry(self, state: str, **more: Any) -> dict[str, Any]:
        details = {**self._details, **more}
        if self._is_discreet():
            details.pop("indexes", None)
        return {
            "operation": self.id,
            "verb": str(self.verb),
            "state": state,
            "when": now(),
            "who": who(),
            "versions": self._versions,
            "base": self._base,
            **details,
        }

    def _append_last(self, state: str, **more: Any) -> None:
        """Write the last entry; if that fails, the next writer closes the operation."""
        self._has_ended = True
        self._stop.set()
        seconds = round(time.monotonic() - self._started, 3)
        try:
            self.log.append(lambda _: self._entry(state, ended=True, seconds=seconds, **more))
        except (OSError, GeoskipError):
            UNTOLD.add(self.id)

    def _beat(self) -> None:
        log = Log(self.store, self.log.identity)

        def entry(open: Mapping[str, Entry]) -> dict[str, Any] | None:
            return self._entry(self.verb.doing) if self.id in open and not self._stop.is_set() else None

        while not self._stop.wait(BEAT):
            with suppress(OSError, GeoskipError), self.store.of_log(log.identity):
                log.append(entry)


def close_the_dead(log: Log) -> None:
    """Close the open operations that are dead."""
    for name, operation in log.open().items():
        if name in UNTOLD or is_dead(operation):
            close(log, name, ROLLED_BACK, "no process carries it on")


def close(log: Log, operation: str, state: str, why: str) -> bool:
    """Write the last entry of another process's operation.

    Parameters
    ----------
    log
        The log in which the operation is open.
    operation, state, why
        The operation's id, its final state and message; if it has committed a snapshot, its state becomes done.

    Returns
    -------
    bool
        True if this closed an operation that has not committed.
    """
    running = log.open().get(operation)
    if running is None:
        return False
    snapshot = made_by(log.store, operation, running.get("base"))
    final = {"state": DONE, "snapshot": snapshot} if snapshot else {"state": state, "message": why}

    def entry(open: Mapping[str, Entry]) -> dict[str, Any] | None:
        if operation not in open:
            return None
        common = {"operation": operation, "verb": running["verb"], "who": running["who"], "base": running.get("base")}
        return {**common, "when": now(), "ended": True, "closed by": who(), **final}

    return log.append(entry) is not None and not snapshot


def made_by(store: Store, operation: str, base: int | None) -> int | None:
    """The number of the snapshot that an operation committed after snapshot ``base``, or None."""
    for number in store.snapshots():
        if number > (base or 0):
            with suppress(MetadataError):
                if store.header(number).operation.get("id") == operation:
                    return number
    return None
