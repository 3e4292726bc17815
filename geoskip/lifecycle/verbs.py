"""The verbs of an index's life, their states, and which of them go together.

A verb that runs shows in the operation log in its transient state, one that ended in a final one. Readers are in no
state: they use the last snapshot that was committed.

==================== ============ =====================================================================
transient            final
==================== ============ =====================================================================
creating, adding     done         indexes built, or added to those that are there
refreshing           done         new and changed files indexed, vanished ones forgotten
rebuilding           done         everything built anew
noting               done         vanished and changed files forgotten, new ones counted (quick refresh)
optimizing           done         the parts of the metadata written as one
deleting, restoring  done         no longer used by queries; used again
vacuuming            done         deleted indexes and old snapshots removed for good
repairing            done         what was inconsistent dropped and built anew
rotating keys        done         the keys of protected metadata wrapped by newer ones
any of them          failed       it ended with an error: nothing was committed
any of them          cancelled    somebody called it off: nothing was committed, nor will be
any of them          rolled back  its process is gone: nothing was committed, nor will be
==================== ============ =====================================================================

*Concurrency is optimistic* (Hyperspace, section 4.3): nobody holds a lock. The verb that commits second finds that
another snapshot is the latest, and looks in :data:`COMPATIBLE` what to do about the verb that was first. Where
Hyperspace lets only equal verbs and those of maintenance run beside each other, here most pairs do: what a verb has
worked out is tied to files by their fingerprints and to indexes by their meaning, and can be laid over any later
snapshot. What contradicts what another has done raises ConflictError, which names that other operation:

============================== =============================== ==========================================
this one                       after this one                  is refused where
============================== =============================== ==========================================
create, refresh full           create, refresh full, repair    both built one index, and mean another
                                                               thing by it: other settings or functions
create                         restore                         the same
refresh of any mode, repair    delete                          no index is in use any more
delete                         create                          what it takes away was built meanwhile
delete                         delete                          it is deleted already
restore                        create, restore                 it is in use already
restore, optimize              vacuum                          it is gone
repair of what is unreadable   any                             it would take back what the other did
============================== =============================== ==========================================
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import product

from geoskip.errors import InvalidSpecificationError

__all__ = [
    "CANCELLED",
    "COMPATIBLE",
    "DOING",
    "DONE",
    "FAILED",
    "ROLLED_BACK",
    "ConflictRule",
    "OnConflict",
    "StalenessBound",
    "Verb",
    "duration",
]


class Verb(StrEnum):
    """What is done to the indexes of a dataset."""

    CREATE = "create"
    REFRESH = "refresh"
    FULL = "refresh full"
    QUICK = "refresh quick"
    OPTIMIZE = "optimize"
    DELETE = "delete"
    RESTORE = "restore"
    VACUUM = "vacuum"
    REPAIR = "repair"
    CANCEL = "cancel"
    ROTATE = "rotate keys"


DOING: dict[Verb, str] = {
    Verb.CREATE: "creating",
    Verb.REFRESH: "refreshing",
    Verb.FULL: "rebuilding",
    Verb.QUICK: "noting",
    Verb.OPTIMIZE: "optimizing",
    Verb.DELETE: "deleting",
    Verb.RESTORE: "restoring",
    Verb.VACUUM: "vacuuming",
    Verb.REPAIR: "repairing",
    Verb.CANCEL: "cancelling",
    Verb.ROTATE: "rotating keys",
}
"""The transient states."""

DONE, FAILED, CANCELLED, ROLLED_BACK = "done", "failed", "cancelled", "rolled back"


class OnConflict(StrEnum):
    """What a verb does when another one committed before it."""

    REBASE = "rebase"
    """What it read and built is laid over the other's snapshot: no data is read a second time."""
    AGAIN = "again"
    """It looks at the other's snapshot as at its first one, and may find nothing left to do, or that it cannot."""


@dataclass(frozen=True)
class ConflictRule:
    """What a verb does after another, and where it is refused instead; never, if that is empty."""

    then: OnConflict
    unless: str = ""


_WHEN_OVERTAKEN: dict[Verb, OnConflict] = {
    Verb.CREATE: OnConflict.REBASE,  # by a refresh: its new files lack this index: left to the pass that follows
    Verb.REFRESH: OnConflict.REBASE,  # by a create: new files lack its index and are left to the pass that follows
    Verb.FULL: OnConflict.REBASE,  # by a create: its index is newer, stays; by a delete: what was rebuilt is left out
    Verb.REPAIR: OnConflict.REBASE,
    Verb.QUICK: OnConflict.AGAIN,  # by a refresh: less is without metadata, perhaps nothing
    Verb.OPTIMIZE: OnConflict.AGAIN,  # by another: nothing is left to do
    Verb.DELETE: OnConflict.AGAIN,
    Verb.RESTORE: OnConflict.AGAIN,
    Verb.VACUUM: OnConflict.AGAIN,  # by a restore: the index is in use; by a delete: what is deleted since stays
    Verb.CANCEL: OnConflict.AGAIN,  # by what is cancelled: it was too late
    Verb.ROTATE: OnConflict.AGAIN,  # the keys of the other's snapshot are wrapped anew
}

_MEANINGS = "both built one index, and mean another thing by it"
_NONE_LEFT = "no index is in use any more"
_UNLESS: dict[tuple[Verb, Verb], str] = {
    **dict.fromkeys(product((Verb.CREATE, Verb.FULL), (Verb.CREATE, Verb.FULL, Verb.REPAIR)), _MEANINGS),
    (Verb.CREATE, Verb.RESTORE): _MEANINGS,
    **dict.fromkeys(product((Verb.REFRESH, Verb.FULL, Verb.QUICK, Verb.REPAIR), [Verb.DELETE]), _NONE_LEFT),
    (Verb.DELETE, Verb.CREATE): "what it takes away was built meanwhile",
    (Verb.DELETE, Verb.DELETE): "it is deleted already",
    **dict.fromkeys(product([Verb.RESTORE], (Verb.CREATE, Verb.RESTORE)), "it is in use already"),
    **dict.fromkeys(product((Verb.RESTORE, Verb.OPTIMIZE), [Verb.VACUUM]), "it is gone"),
}
_TAKES_BACK = "everything was to be built anew, which would take back what the other did"

COMPATIBLE: dict[tuple[Verb, Verb], ConflictRule] = {
    (mine, theirs): ConflictRule(
        _WHEN_OVERTAKEN[mine], _UNLESS.get((mine, theirs), _TAKES_BACK if mine is Verb.REPAIR else "")
    )
    for mine, theirs in product(Verb, Verb)
}
"""What the first verb of a pair does when the second one was faster."""


_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(second|minute|hour|day|week)s?\s*", re.IGNORECASE)
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)


@dataclass(frozen=True)
class StalenessBound:
    """How much may be without metadata for a refresh to come before a query; without either bound, anything."""

    files: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, given: bool | int | str | None) -> StalenessBound | None:
        """A number of files, a text such as ``64 MiB``, or True for whatever it is.

        >>> StalenessBound.of(100), StalenessBound.of("64 MiB")
        (StalenessBound(files=100, bytes=None), StalenessBound(files=None, bytes=67108864))
        """
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if isinstance(given, str) and (found := _SIZE.fullmatch(given)):
            step = 1024 if found[3] else 1000
            return cls(bytes=int(float(found[1]) * step ** " kmgt".index(found[2].lower() or " ")))
        if isinstance(given, int) and given > 0:
            return cls(files=given)
        raise InvalidSpecificationError(
            f"auto_refresh= takes a number of files, such as 100, a size, such as '64 MiB', or True, got {given!r}"
        )

    def allows(self, files: int, size: int) -> bool:
        """Is so much not too much?"""
        return (self.files is None or files <= self.files) and (self.bytes is None or size <= self.bytes)


def duration(given: timedelta | float | str) -> timedelta:
    """A time that was given as such, in hours or in words.

    >>> duration(1.5), duration("7 days"), duration("90 minutes")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    if isinstance(given, timedelta):
        return given
    with suppress(OverflowError, ValueError):  # of more than a million years, infinity, or what is no number
        if isinstance(given, str) and (found := _DURATION.fullmatch(given)):
            return timedelta(**{f"{found[2].lower()}s": float(found[1])})
        if isinstance(given, int | float) and not isinstance(given, bool):
            return timedelta(hours=given)
    raise InvalidSpecificationError(
        f"a time is a timedelta, a number of hours, or a text such as '7 days' or '30 minutes', got {given!r}"
    )
