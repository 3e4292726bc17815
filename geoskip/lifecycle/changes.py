"""One attempt of a verb: what it is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, Snapshot

__all__ = ["Amend", "Attempt", "Commit", "NoChange", "Result", "Rewrap", "CommitAttempt", "ConcurrentCommit"]


@dataclass(frozen=True)
class Commit:
    """A whole table as the next snapshot. ``told`` is what the log says of it."""

    header: Header
    table: pa.Table
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Amend:
    """The next snapshot by what it changes, see :meth:`geoskip.stores.base.Store.amend`."""

    header: Header
    removed: pa.Array
    added: pa.Table
    told: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def nothing(cls, snapshot: Snapshot, header: Header | None = None, **told: Any) -> Amend:
        """The same files under another header, or under the same one."""
        stays = pa.array([False]).take(pa.array([0] * snapshot.header.files, pa.int32()))
        return cls(header or snapshot.header, stays, pa.table({}), told)


@dataclass(frozen=True)
class Rewrap:
    """The same snapshot once more, its keys wrapped anew, see :meth:`geoskip.stores.base.Store.rotate`."""

    header: Header
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoChange:
    """No next snapshot, though something was looked at of which the log tells."""

    told: Mapping[str, Any]


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
    """One attempt: its number from 0, the snapshot to start from, and who was faster so far. After a lost race that is
    to be :attr:`~geoskip.lifecycle.verbs.Then.REBASE`, the number is not 0: what was built is laid over the snapshot.
    """

    number: int
    snapshot: Snapshot | None
    after: tuple[ConcurrentCommit, ...] = ()


Result = Commit | Amend | Rewrap
Attempt = Callable[[CommitAttempt], Result | NoChange | None]
