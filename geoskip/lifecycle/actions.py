"""The verbs that read no data: delete, restore, optimize, vacuum, rotate, cancel."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

from geoskip.errors import ConflictError, InvalidSpecificationError, MetadataError, NotIndexedError, StoreError
from geoskip.lifecycle.log import LEASE, Log, age, check_readable, latest
from geoskip.lifecycle.transaction import (
    Amend,
    Commit,
    CommitAttempt,
    ConcurrentCommit,
    Operation,
    Rewrap,
    close,
    made_by,
    perform,
    store_errors,
)
from geoskip.lifecycle.verbs import CANCELLED, ROLLED_BACK, Verb
from geoskip.metadata import Header, IndexEntry, Snapshot, conform, files_schema
from geoskip.stores.base import Store

_ENTRIES_KEPT = 1000
"""Number of newest log entries that a vacuum keeps, whatever their age."""


def delete(store: Store, which: Sequence[str] = (), *, by: str | None = None) -> tuple[str, ...]:
    """Take indexes out of use (default: all) until they are restored or vacuumed; returns their texts."""
    return _move(store, Verb.DELETE, which, "entries", "deleted", ("in use", "deleted already"), by)


def restore(store: Store, which: Sequence[str] = (), *, by: str | None = None) -> tuple[str, ...]:
    """Take deleted indexes into use again (default: all); returns their texts.

    Files that were indexed while the index was deleted have no summaries of it, and are always read.
    """
    return _move(store, Verb.RESTORE, which, "deleted", "entries", ("deleted", "in use already"), by)


def _move(
    store: Store, verb: Verb, which: Sequence[str], source: str, target: str, words: tuple[str, str], by: str | None
) -> tuple[str, ...]:
    """Move indexes from one list of the header to the end of another; messages call the lists ``words``."""
    moved: list[str] = []
    first = _require_index(store, latest(store))

    def attempt(turn: CommitAttempt) -> Amend:
        snapshot = _require_index(store, turn.snapshot)
        here, there = getattr(snapshot.header, source), getattr(snapshot.header, target)
        chosen = _choose(which, here, there, *words)
        if verb is Verb.DELETE:
            _check_known(chosen, first.header, snapshot.header, turn.after)
        moved[:] = chosen
        changed: dict[str, Any] = {
            source: tuple(entry for entry in here if entry.name not in chosen),
            target: (
                *(entry for entry in there if entry.name not in chosen),
                *(entry for entry in here if entry.name in chosen),
            ),
        }
        return Amend.same_files(snapshot, replace(snapshot.header, **changed), indexes=list(chosen))

    attempt(CommitAttempt(0, first))  # raise errors before an operation begins
    perform(store, verb, attempt, parameters={"which": list(which)} if which else {}, by=by, since=first.header.number)
    return tuple(moved)


def _check_known(chosen: Sequence[str], then: Header, now: Header, after: Sequence[ConcurrentCommit]) -> None:
    """Raise ConflictError for indexes that a concurrent create has built since the delete began."""
    if any(winner.verb is Verb.CREATE for winner in after):
        for name in chosen:
            if now.built.get(name) != then.built.get(name):
                raise ConflictError(f"{name} was built meanwhile; delete it once more if that is meant too")


def optimize(store: Store, *, by: str | None = None) -> Header | None:
    """Merge the parts of the metadata into one, its rows sorted by path; None if there is only one.

    Files of one folder often have similar summaries, so that this order compresses better.
    """

    def attempt(turn: CommitAttempt) -> Commit | None:
        snapshot = _require_index(store, turn.snapshot)
        parts = snapshot.header.parts
        if len(parts) < 2 and not any(part.removed for part in parts):
            return None
        check_readable(snapshot.header)
        table = snapshot.files.table().sort_by("path")
        return Commit(snapshot.header, table, {"parts": len(parts)})

    if attempt(CommitAttempt(0, latest(store))) is None:
        return None
    return perform(store, Verb.OPTIMIZE, attempt, by=by)


@dataclass(frozen=True)
class Vacuumed:
    """The indexes, snapshots and leftovers that a vacuum removed.

    ``leftovers`` counts files, or other objects of the store, that no snapshot uses: those of removed snapshots and of
    crashed writers.
    """

    indexes: tuple[str, ...]
    snapshots: tuple[int, ...]
    leftovers: int


def vacuum(store: Store, retain: timedelta, *, by: str | None = None) -> Vacuumed:
    """Remove deleted indexes, snapshots replaced longer than ``retain`` ago, and leftovers.

    Indexes deleted after the vacuum began are kept. A query that was planned with a removed snapshot reads every file.
    The vacuum commits a snapshot before it removes parts: a running writer that was wrongly considered dead then loses
    the race, and cannot commit removed parts.

    If the disk is full, old snapshots are removed before anything is written.
    """
    if retain < timedelta(0):
        raise InvalidSpecificationError(f"vacuum_index(retain=) takes a time that is not negative, got {retain}")
    try:
        return _vacuum(store, retain, by)
    except StoreError as error:
        if not _is_full(error):
            raise
        first = _make_room(store, retain)
        if not first.snapshots and not first.leftovers:
            raise
    return _vacuum(store, retain, by, first)


def _is_full(error: BaseException) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and (
        cause.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(cause)  # Java's message
    )


def _make_room(store: Store, retain: timedelta) -> Vacuumed:
    """Remove old snapshots and leftovers without an entry in the log.

    Since this commits no snapshot, the leftovers of cancelled writers and of those considered dead are kept too: such a
    writer may still be running, and could commit.
    """
    log = Log(store, store.begin())

    def may_commit() -> set[str]:
        closed = (e["operation"] for e in log.entries() if e.get("state") in (CANCELLED, ROLLED_BACK))
        return {*log.open(), *closed}

    old, leftovers = _succeeded_before(store, retain), 0
    with store_errors(store):
        store.forget(snapshots=old)
        with suppress(MetadataError):  # the parts of a damaged snapshot are unknown
            leftovers = store.sweep(may_commit)
        store.forget(operations=_finished_before(log, retain))  # last, since ``may_commit`` reads them
    return Vacuumed((), old, leftovers)


def _vacuum(store: Store, retain: timedelta, by: str | None, first: Vacuumed | None = None) -> Vacuumed:
    """Vacuum as a logged operation; the result includes the removals of ``first``."""
    before = first or Vacuumed((), (), 0)
    indexes: list[str] = []
    doomed = [entry.name for entry in _require_index(store, latest(store)).header.deleted]

    def attempt(turn: CommitAttempt) -> Commit | Amend:
        snapshot = _require_snapshot(store, turn.snapshot)
        indexes[:] = [entry.name for entry in snapshot.header.deleted if entry.name in doomed]
        if not indexes:
            return Amend.same_files(snapshot)
        check_readable(snapshot.header)
        built = {name: about for name, about in snapshot.header.built.items() if name not in indexes}
        stays = tuple(entry for entry in snapshot.header.deleted if entry.name not in indexes)
        header = replace(snapshot.header, deleted=stays, built=built)
        return Commit(header, conform(snapshot.files.table(), files_schema(header.stored)), {"indexes": indexes})

    parameters = {"retain hours": retain / timedelta(hours=1)}
    with Operation(store, Verb.VACUUM, parameters, by) as operation:
        operation.run(attempt, final=False)
        old = _succeeded_before(store, retain)
        snapshots = tuple(sorted({*before.snapshots, *old}))
        leftovers, message = before.leftovers, ""
        with store_errors(store):
            store.forget(snapshots=old, operations=_finished_before(operation.log, retain))
            try:
                leftovers += store.sweep(lambda: tuple(operation.log.open()))
            except MetadataError as error:  # the parts of a damaged snapshot are unknown
                message = f"leftovers stay: {error}"
        operation.end(snapshots=list(snapshots), leftovers=leftovers, indexes=indexes, message=message)
    return Vacuumed(tuple(indexes), snapshots, leftovers)


def rotate(store: Store, *, by: str | None = None) -> Header | None:
    """Wrap the data keys with the newest versions of their master keys; None if there are no metadata.

    This adds a snapshot with the same parts. The older key versions are needed until a vacuum has removed the earlier
    snapshots and log entries.
    """
    number = store.latest()
    if number is None:
        return None
    if not store.protects(number):
        raise InvalidSpecificationError(f"the metadata in {store.location} are in clear: there are no keys to rotate")

    def attempt(turn: CommitAttempt) -> Rewrap:
        return Rewrap(_require_snapshot(store, turn.snapshot).header)

    return perform(store, Verb.ROTATE, attempt, by=by)


def cancel(store: Store, empty: Header, *, by: str | None = None) -> list[dict[str, Any]]:
    """Cancel all open operations, dead or alive.

    Parameters
    ----------
    store
        The metadata.
    empty
        The header of a dataset without indexes, committed if there is no snapshot, so that a running first ``create``
        cannot commit.
    by
        The engine and its version, for the log.

    Returns
    -------
    list[dict[str, Any]]
        The log entries of the cancelled operations, without those that have committed.
    """
    if store.identity() is None:
        return []
    log = Log(store, store.begin())
    running = dict(log.open())
    if not running:
        return []

    def attempt(turn: CommitAttempt) -> Commit | Amend:
        with store_errors(store):
            for name in running:
                close(log, name, CANCELLED, "called off")
        if turn.snapshot is None:
            return Commit(empty, files_schema(()).empty_table())
        return Amend.same_files(turn.snapshot)

    perform(store, Verb.CANCEL, attempt, parameters={"operations": list(running)}, by=by)
    return [
        {"operation": name, **entry} for name, entry in running.items() if not made_by(store, name, entry.get("base"))
    ]


def _require_snapshot(store: Store, snapshot: Snapshot | None) -> Snapshot:
    if snapshot is None:
        raise NotIndexedError(f"the metadata in {store.location} have vanished")
    return snapshot


def _require_index(store: Store, snapshot: Snapshot | None) -> Snapshot:
    if snapshot is None or not (snapshot.header.stored or snapshot.header.unread):
        raise NotIndexedError(f"{store.location} has no index yet; create one: dataset.create_index(MinMax('column'))")
    return snapshot


def _choose(
    which: Sequence[str], among: Sequence[IndexEntry], others: Sequence[IndexEntry], what: str, instead: str
) -> tuple[str, ...]:
    """The named indexes, or all if none is named; raises NotIndexedError for a name not in ``among``."""
    names = [entry.name for entry in among]
    spelt = {_without_quotes(name): name for name in names}
    which = [name if name in names else spelt.get(_without_quotes(name), name) for name in which]
    for name in which:
        if name in names:
            continue
        if name in [entry.name for entry in others]:
            raise NotIndexedError(f"{name} is {instead}")
        others_there = f"only {', '.join(names)}" if names else "nor any other"
        raise NotIndexedError(f"there is no index {name} that is {what}, {others_there}")
    if not names and not which:
        raise NotIndexedError(f"there is no index that is {what}")
    return tuple(dict.fromkeys(which)) or tuple(names)


def _without_quotes(name: str) -> str:
    """Text of an index without back-quotes, except around names with dots, which need them."""
    return re.sub(r"`([^`.]*)`", r"\1", name)


def _succeeded_before(store: Store, retain: timedelta) -> tuple[int, ...]:
    """The snapshots replaced longer than ``retain`` ago; unreadable successors count by the next one."""
    created: dict[int, str] = {}
    numbers = store.snapshots()
    for number in numbers:
        with suppress(MetadataError):
            created[number] = store.header(number).created
    old = []
    superseded = None
    for number, following in reversed(list(pairwise(numbers))):
        superseded = created.get(following, superseded)
        if superseded is not None and age(superseded) >= retain.total_seconds():
            old.append(number)
    return tuple(sorted(old))


def _finished_before(log: Log, retain: timedelta) -> list[int]:
    """The log entries to remove: old ones beyond the newest thousand, and heartbeats of closed operations.

    Entries of the last minute are kept: a writer that is slower counts as dead, so that no removed number is reused.
    """
    least = max(LEASE, retain.total_seconds())
    entries = log.entries()
    running = log.open()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for entry in entries:
        first.setdefault(entry["operation"], entry["number"])
        last[entry["operation"]] = entry["number"]
    ends = {*first.values(), *last.values()}
    excess = {entry["number"] for entry in entries[: max(0, len(entries) - _ENTRIES_KEPT)]}
    old = [e for e in entries if e["operation"] not in running and age(str(e.get("when"))) >= least]
    return [e["number"] for e in old if e["number"] in excess or e["number"] not in ends]
