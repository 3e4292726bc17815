"""The operation log: who did what to the indexes, when, and what is under way.

One JSON object an entry, numbered, created exclusively (see :class:`geoskip.stores.base.Store`) and never changed. An
operation writes one when it begins (its transient state), now and then while it runs (a heartbeat), and one when it
ends. This is an entry::

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

``base`` is the snapshot that it began with, ``snapshot`` the one that it made; with an entry that is ``ended`` it is
over.

``open`` is what is under way once the entry is there (of one that waits also its ``ticket``, see
:mod:`geoskip.lifecycle.write_queue`). Each entry repeats it, so that the newest alone tells all that a writer has to
know, however long the log is; and since a number is given once, each was written in knowledge of the one before. That
ties a writer to what it read as a lock would, and nobody waits.

*What counts is the snapshot.* An operation commits by making a snapshot that names it; the log tells of it before and
after. Where a process dies between the two, the next writer finds the snapshot and writes the entry that is missing;
where there is none it writes that the operation was rolled back. A log that cannot be written stops a verb before it
begins, never one that has committed.

*Is it dead?* At once where it ran on this machine and its process is gone, or in this process and is over, which could
not be written down; else when its last heartbeat is more than a minute away from now, in either direction: clocks may
be set back. Taking a live one for dead harms nothing but that
operation, which is told when it tries to commit.
"""

from __future__ import annotations

import getpass
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import FORMAT
from geoskip.metadata.header import check_format
from geoskip.stores.base import Store

__all__ = ["LEASE", "UNTOLD", "Entry", "Log", "RaceLosses", "is_dead", "now", "person_of", "who"]

LEASE = 60.0
"""Seconds without a heartbeat after which an operation on another machine counts as dead."""
_LONGEST_PAUSE = 0.05
_FEWEST = 10
"""Nobody who loses gives up earlier, however long an attempt takes."""
_HALF_WRITTEN = 0.5
"""Seconds that an unreadable newest entry is given: some file systems show it before it is complete."""

UNTOLD: set[str] = set()
"""The operations of this process that are over, though the log does not say so: its disk was full, as it may be."""

Entry = Mapping[str, Any]


@dataclass
class RaceLosses:
    """The races that a writer has lost in a row; it gives up after so many ``seconds`` of that."""

    seconds: float
    number: int = 0
    _since: float = 0.0

    def count(self) -> bool:
        """One more. Is there hope?"""
        now = time.monotonic()
        self._since = self._since if self.number else now
        self.number += 1
        return self.number < _FEWEST or now - self._since < self.seconds

    def pause(self) -> None:
        """Sleep for a time by chance, the longer the more races were lost: else the same meet again."""
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2 ** min(self.number, 20))))

    def __str__(self) -> str:
        return f"{self.number} times in a row, for {time.monotonic() - self._since:.0f} s,"


@dataclass(frozen=True)
class _LogView:
    """The log at one moment: the number of its newest entry (0 where there is none) and what is open."""

    number: int
    open: Mapping[str, Entry]


class Log:
    """The operation log of a store, for one writer."""

    def __init__(self, store: Store, identity: str) -> None:
        self.store = store
        self.identity = identity
        self._read: tuple[int, Mapping[str, Entry]] | None = None

    def open(self) -> Mapping[str, Entry]:
        """The operations under way, by their ids: those that have begun and neither ended nor been rolled back."""
        return self._newest().open

    def append(self, make: Callable[[Mapping[str, Entry]], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Add what ``make`` says of the operations under way, None for nothing; asked again where another writer was
        faster. An entry with a final state closes its operation. Raises ConflictError if the log was dropped.
        """
        losses = RaceLosses(self.store.tries_for)
        while True:
            seen = self._newest()
            entry = make(seen.open)
            if entry is None:
                return None
            number = seen.number + 1
            full = {"format": FORMAT, "number": number, **entry, "open": _opened(seen.open, entry, number)}
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
        """All entries that can be read, oldest first."""
        found = []
        for number in self.store.operations():
            with suppress(MetadataError):  # damaged, or vacuumed just now
                entry = self.store.operation(number)
                check_format(entry)
                found.append(entry)
        return found

    def check_identity(self) -> None:
        """Raise ConflictError if the log is another by now."""
        if self.store.identity() != self.identity:
            raise ConflictError(
                f"the metadata in {self.store.location} were dropped meanwhile, as mode('overwrite') does with the "
                "whole folder of a dataset: index it again"
            )

    def _newest(self) -> _LogView:
        numbers = self.store.operations()
        if not numbers:
            if self._read is not None:
                self.check_identity()
            return _LogView(0, {})
        if self._read is not None and self._read[0] == numbers[-1]:
            return _LogView(*self._read)
        for number in reversed(numbers):
            entry = self._entry(number, patient=number == numbers[-1])
            if entry is not None:
                self._read = (numbers[-1], entry.get("open") or {})
                return _LogView(*self._read)
        return _LogView(numbers[-1], {})

    def _entry(self, number: int, *, patient: bool) -> Entry | None:
        """An entry, None for one that a crash left half-written. Raises MetadataError for one of a newer format."""
        deadline = time.monotonic() + (_HALF_WRITTEN if patient else 0)
        while True:
            try:
                entry = self.store.operation(number)
                break
            except MetadataError as error:
                if "upgrade geoskip" in str(error):
                    raise
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.02)
        check_format(entry)
        return entry


def _opened(before: Mapping[str, Entry], entry: Entry, number: int) -> dict[str, Entry]:
    """What is open after an entry. Whoever waits has the number of the entry that said so first as ticket."""
    operation = entry["operation"]
    found = {name: told for name, told in before.items() if name != operation}
    if not entry.get("ended"):
        old = before.get(operation, {})
        waits = {"ticket": old.get("ticket", number), "turn": entry["waits"]} if "waits" in entry else {}
        found[operation] = {
            "entry": old.get("entry", number),
            "verb": entry["verb"],
            "state": entry["state"],
            "began": old.get("began", entry["when"]),
            "seen": entry["when"],
            "base": entry.get("base"),
            "who": entry["who"],
            **waits,
        }
    return found


def now() -> str:
    """The time as entries have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def age(when: str) -> float:
    """Seconds since then, negative for the future; 0 for what is no time."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def is_dead(operation: Entry) -> bool:
    """Is an operation under way without a process that carries it on?"""
    told = operation.get("who") or {}
    if (told.get("host"), told.get("machine")) == (who()["host"], _machine()):
        process = told.get("process")
        if isinstance(process, int) and _started(process) != told.get("started"):
            return True
    return abs(age(str(operation.get("seen")))) > LEASE


def who() -> dict[str, Any]:
    """Who runs an operation: user, host and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    process = os.getpid()
    return {
        "user": user,
        "host": socket.gethostname(),
        "process": process,
        "started": _started(process),
        "machine": _machine(),
    }


def person_of(told: Mapping[str, Any]) -> str:
    """Who it was, for people: ``ann on etl-3 (process 4711)``; empty where that is not told."""
    if not told.get("user"):
        return ""
    return f"{told.get('user')} on {told.get('host')} (process {told.get('process')})"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions that an entry tells."""
    try:
        found = version("geoskip")
    except PackageNotFoundError:
        found = "unknown"
    return {"geoskip": found, "python": ".".join(map(str, sys.version_info[:3]))}


def _started(process: int) -> str | None:
    """What tells a process from a later one of its number; None where there is no such process."""
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
    """What tells machines, and containers with process numbers of their own, from one another."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot[:8]} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()
