"""The operation log: finished and running operations on the indexes, with users and times.

Entries are numbered JSON objects, created exclusively (see :class:`geoskip.stores.base.Store`) and never changed. An
operation writes one when it begins (its transient state), some while it runs (heartbeats), and one when it ends::

    {
      "format": 1,
      "number": 7,
      "operation": "5f0c6bd6b1ca4a4fb8b1a3a1c2d4e6f8",
      "verb": "refresh", "state": "done", "when": "2024-03-01T12:00:05.120+00:00",
      "who": {"user": "ann", "host": "etl-3", "process": 4711, ...},
      "versions": {"geoskip": "0.1.0", ...}, "parameters": {...},
      "base": 11, "snapshot": 12, "files": {"read": 3, "added": 3, "removed": 0, "kept": 297}, "bytes": 51200,
      "ended": true, "seconds": 2.4,
      "open": {"<operation>": {"entry": 6, "verb": "create", "state": "creating", "began": ..., "seen": ...}}
    }

``base`` is the latest snapshot when the operation began, ``snapshot`` the one that it committed; ``ended`` marks its
last entry. ``open`` lists the running operations after the entry. Since each entry repeats this list, a writer reads
only the newest entry, however long the log is; and since entry numbers are unique, the writer of each entry has read
the previous one. Entries of earlier versions may also have ``waits``, and in ``open`` a ``ticket`` and a ``turn``: they
are ignored.

*The snapshot decides.* An operation commits by creating a snapshot with its id; log entries precede and follow it. If a
process dies before its last entry, the next writer looks for the snapshot: if it exists, that writer adds the missing
entry, otherwise an entry that the operation was rolled back. If the log cannot be written, a verb fails before it
begins, but never after it has committed.

*Dead operations*. If the process of an operation was on this machine and is gone, or an operation of this process has
ended without its last entry, it is dead immediately. All others are dead when their last heartbeat differs from now by
more than a minute, in either direction, since clocks may be set back. If a running operation is considered dead by
mistake, only its own commit is refused.

:func:`history` returns the log as a table with one row for each operation.
"""

from __future__ import annotations

import getpass
import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from geoskip.errors import ConflictError, MetadataError, MissingKeyError, NewerFormatError
from geoskip.lifecycle.verbs import CANCELLED, DONE
from geoskip.metadata import FORMAT, Header, Snapshot, check_format, unread_reason
from geoskip.stores.base import Store

LEASE = 60.0
"""Seconds without a heartbeat after which an operation on another machine counts as dead."""
_LONGEST_PAUSE = 0.05
_FEWEST = 10
"""Number of lost races below which no writer gives up, however long an attempt takes."""
_HALF_WRITTEN = 0.5
"""Seconds to wait for an unreadable newest entry: some file systems list files before they are complete."""

UNTOLD: set[str] = set()
"""Ended operations of this process without a last entry, since it could not be written, as on a full disk."""

Entry = Mapping[str, Any]


@dataclass
class RaceLosses:
    """The races that a writer has lost in a row, and the ``seconds`` after which it gives up."""

    seconds: float
    number: int = 0
    _since: float = 0.0

    def count(self) -> bool:
        """Count one more lost race; returns False if the writer should give up."""
        now = time.monotonic()
        self._since = self._since if self.number else now
        self.number += 1
        return self.number < _FEWEST or now - self._since < self.seconds

    def pause(self) -> None:
        """Sleep for a random time that grows with the number of lost races."""
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2 ** min(self.number, 20))))

    def __str__(self) -> str:
        return f"{self.number} times in a row, for {time.monotonic() - self._since:.0f} s,"


class Log:
    """The operation log of a store, for one writer."""

    def __init__(self, store: Store, identity: str) -> None:
        self.store = store
        self.identity = identity
        self._read: tuple[int, Mapping[str, Entry]] | None = None

    def open(self) -> Mapping[str, Entry]:
        """The running operations by id: those that have begun and were not closed."""
        return self._newest()[1]

    def append(self, make: Callable[[Mapping[str, Entry]], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Append the entry that ``make`` returns for the open operations; call it again after each lost race.

        Returns None if ``make`` does. An entry with ``ended`` closes its operation. Raises ConflictError if the log
        was dropped, or races were lost for longer than the store's ``tries_for``.
        """
        losses = RaceLosses(self.store.tries_for)
        while True:
            newest, open = self._newest()
            entry = make(open)
            if entry is None:
                return None
            number = newest + 1
            full = {"format": FORMAT, "number": number, **entry, "open": _open_after(open, entry, number)}
            try:
                self.store.record(number, full, identity=self.identity)
            except ConflictError:
                self.check_identity()
                if not losses.count():
                    raise ConflictError(
                        f"{losses} another writer was faster in the operation log of {self.store.location}; "
                        "try again when fewer write to it"
                    ) from None
                losses.pause()
                continue
            self._read = (number, full["open"])
            return full

    def entries(self) -> list[dict[str, Any]]:
        """All readable entries, oldest first."""
        entries = []
        for number in self.store.operations():
            with suppress(MetadataError):  # damaged, or vacuumed just now
                entry = self.store.operation(number)
                check_format(entry)
                entries.append(entry)
        return entries

    def check_identity(self) -> None:
        """Raise ConflictError if the log was replaced by another."""
        if self.store.identity() != self.identity:
            raise ConflictError(
                f"the metadata in {self.store.location} were dropped meanwhile, as mode('overwrite') does with the "
                "whole folder of a dataset: index it again"
            )

    def _newest(self) -> tuple[int, Mapping[str, Entry]]:
        """The number of the newest entry, 0 for none, and the open operations."""
        numbers = self.store.operations()
        if not numbers and self._read is not None:
            self.check_identity()
        if not numbers:
            return 0, {}
        if self._read is not None and self._read[0] == numbers[-1]:
            return self._read
        for number in reversed(numbers):
            entry = self._entry(number, patient=number == numbers[-1])
            if entry is not None:
                self._read = (numbers[-1], entry.get("open") or {})
                return self._read
        return numbers[-1], {}

    def _entry(self, number: int, *, patient: bool) -> Entry | None:
        """An entry, None for one that a crash left half-written; raises MetadataError for a newer format."""
        deadline = time.monotonic() + (_HALF_WRITTEN if patient else 0)
        while True:
            try:
                entry = self.store.operation(number)
                break
            except NewerFormatError:
                raise
            except MetadataError:
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.02)
        check_format(entry)
        return entry


def _open_after(before: Mapping[str, Entry], entry: Entry, number: int) -> dict[str, Entry]:
    """The open operations after an entry."""
    operation = entry["operation"]
    after = {name: other for name, other in before.items() if name != operation}
    if not entry.get("ended"):
        old = before.get(operation, {})
        after[operation] = {
            "entry": old.get("entry", number),
            "verb": entry["verb"],
            "state": entry["state"],
            "began": old.get("began", entry["when"]),
            "seen": entry["when"],
            "base": entry.get("base"),
            "who": entry["who"],
        }
    return after


def now() -> str:
    """The current time in ISO 8601, as in entries."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def age(when: str) -> float:
    """Seconds since a time, negative for the future; 0 for a text that is not a time."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def is_dead(operation: Entry) -> bool:
    """True if the process of the open operation is gone or its heartbeat has stopped."""
    owner = operation.get("who") or {}
    if (owner.get("host"), owner.get("machine")) == (who()["host"], _machine()):
        process = owner.get("process")
        if isinstance(process, int) and _start_time(process) != owner.get("started"):
            return True
    return abs(age(str(operation.get("seen")))) > LEASE


def who() -> dict[str, Any]:
    """The user, host and process that run an operation."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    process = os.getpid()
    return {
        "user": user,
        "host": socket.gethostname(),
        "process": process,
        "started": _start_time(process),
        "machine": _machine(),
    }


def person_of(owner: Mapping[str, Any]) -> str:
    """Format :func:`who` as text: ``ann on etl-3 (process 4711)``; empty for an unknown user."""
    if not owner.get("user"):
        return ""
    return f"{owner.get('user')} on {owner.get('host')} (process {owner.get('process')})"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of geoskip and Python, for entries."""
    try:
        geoskip = version("geoskip")
    except PackageNotFoundError:
        geoskip = "unknown"
    return {"geoskip": geoskip, "python": ".".join(map(str, sys.version_info[:3]))}


def _start_time(process: int) -> str | None:
    """Start time of a process, which a later one with the same number does not have; None if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("ascii", "replace")
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    except IndexError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "running"


@lru_cache(maxsize=1)
def _machine() -> str:
    """An identifier of this machine, or of a container with its own process numbers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot[:8]} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def latest(store: Store) -> Snapshot | None:
    """Load the latest snapshot, or None; retries if a vacuum removes it during the read.

    Raises MetadataError if it cannot be read.
    """
    while True:
        number = store.latest()
        if number is None:
            return None
        try:
            return store.load(number)
        except (MissingKeyError, NewerFormatError):  # others can read it: a repair must not replace it
            raise
        except MetadataError as error:
            if store.latest() == number:
                raise MetadataError(f"{error}{_REPAIR}") from error


_REPAIR = "; dataset.repair() builds anew what cannot be read"


def reason_unreadable(metadata: str, error: BaseException) -> str:
    """A sentence on metadata that could not be read, with advice if they are damaged."""
    is_damaged = " is damaged" in str(error) and not isinstance(error, MissingKeyError)
    return f"{metadata} could not be read: {error}{_REPAIR if is_damaged else ''}"


def check_readable(header: Header) -> None:
    """Raise MetadataError for indexes that this process cannot read, and would lose."""
    for entry in (*header.unread, *header.unread_deleted):
        raise MetadataError(
            f"an index would be lost that cannot be read here, but perhaps elsewhere: {unread_reason(entry)}"
        )


@dataclass(frozen=True)
class HistoryRow:
    """One operation of the log.

    Attributes
    ----------
    state
        The final state; ``running: ...`` or ``dead: ...`` if there is no last entry.
    base, snapshot
        Numbers of the latest snapshot when the operation began, and of the one that it committed.
    files_read, files_added, files_removed, files_kept
        Numbers of files: read; indexed (new or changed); whose rows were removed; whose rows were kept.
    bytes
        Total bytes of the indexed files.
    """

    operation: str
    verb: str
    state: str
    began: str
    seconds: float | None
    who: str
    base: int | None
    snapshot: int | None
    files_read: int | None
    files_added: int | None
    files_removed: int | None
    files_kept: int | None
    bytes: int | None
    parameters: str
    versions: str
    message: str


def history(store: Store) -> list[HistoryRow]:
    """The operations, oldest first; those without a log entry are taken from their snapshots.

    Raises MissingKeyError if no operation can be read without a key, so that the log does not seem empty.
    """
    identity = store.identity()
    if identity is None:
        return []
    refused = None
    try:
        latest(store)  # its keys decrypt older entries too
    except MissingKeyError as error:
        refused = error
    except MetadataError:
        pass
    log = Log(store, identity)
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in log.entries():
        groups.setdefault(str(entry.get("operation")), []).append(entry)
    if refused is not None and not groups:
        raise refused
    running = log.open()
    rows = {name: _row(name, entries, running) for name, entries in groups.items()}
    for row in _unlogged_rows(store, {row.snapshot for row in rows.values()}):
        logged = rows.get(row.operation)  # committed, but its last entry is missing
        rows[row.operation or str(row.snapshot)] = replace(logged, state=DONE, snapshot=row.snapshot) if logged else row
    return sorted(rows.values(), key=lambda row: row.began)


def _row(name: str, entries: list[dict[str, Any]], running: Mapping[str, Any]) -> HistoryRow:
    first, last = entries[0], entries[-1]
    state = str(last.get("state"))
    if name in running:
        state = f"{'dead' if name in UNTOLD or is_dead(running[name]) else 'running'}: {state}"
    files = last.get("files") or {}
    parameters = {
        **(first.get("parameters") or {}),
        **{k: last[k] for k in ("indexes", "parts", "snapshots", "after") if k in last},
        **{k: files[k] for k in ("left out",) if k in files},
    }
    by = last.get("closed by")
    by_whom = f"{'by' if state == CANCELLED else 'written down by'} {person_of(by)}" if by else ""
    why = ": ".join(str(last[k]) for k in ("error", "message") if last.get(k))
    return HistoryRow(
        operation=name,
        verb=str(first.get("verb")),
        state=state,
        began=str(first.get("when")),
        seconds=last.get("seconds"),
        who=person_of(first.get("who") or {}),
        base=first.get("base"),
        snapshot=last.get("snapshot"),
        files_read=files.get("read"),
        files_added=files.get("added"),
        files_removed=files.get("removed"),
        files_kept=files.get("kept"),
        bytes=last.get("bytes"),
        parameters=_comma_separated(parameters),
        versions=_comma_separated(first.get("versions") or {}),
        message=", ".join(text for text in (why, by_whom) if text),
    )


def _unlogged_rows(store: Store, logged: Iterable[int | None]) -> list[HistoryRow]:
    """Rows of snapshots without a log entry: older than the log, or their writer died after the commit."""
    rows = []
    for number in set(store.snapshots()) - set(logged):
        with suppress(MetadataError):
            header = store.header(number)
            by = header.operation
            versions = {name: by[name] for name in ("geoskip", "pyspark", "engine") if name in by}
            verb, who = str(by.get("verb", "")), person_of(by)
            rest = (None, None, None, None, None, "", _comma_separated(versions), "as its snapshot tells")
            name = str(by.get("id", ""))
            rows.append(HistoryRow(name, verb, DONE, header.created, None, who, number - 1 or None, number, *rest))
    return rows


def _comma_separated(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )
