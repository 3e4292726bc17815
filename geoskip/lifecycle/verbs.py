"""The operations on indexes, called verbs: their states, compatibility and amounts.

The operation log has a transient state for each running verb, and a final state for each that has ended. Queries are
not logged: they use the latest snapshot.

==================== ============ =====================================================================
transient            final
==================== ============ =====================================================================
creating, adding     done         indexes built, or added to existing ones
refreshing           done         new and changed files indexed, vanished ones forgotten
rebuilding           done         everything built again
noting               done         vanished and changed files forgotten, new ones counted (quick refresh)
optimizing           done         the parts of the metadata merged into one
deleting, restoring  done         no longer used by queries; used again
vacuuming            done         deleted indexes and old snapshots removed for good
repairing            done         inconsistent metadata dropped and built again
rotating keys        done         the keys of protected metadata wrapped by newer ones
any of them          failed       it ended with an error: nothing was committed
any of them          cancelled    a user cancelled it: nothing was committed, nor will be
any of them          rolled back  its process is gone: nothing was committed, nor will be
==================== ============ =====================================================================

*Concurrency is optimistic* (Hyperspace, section 4.3), without locks. The verb that commits second finds another latest
snapshot; :attr:`Verb.then` defines its behaviour. In Hyperspace only equal verbs and
maintenance verbs can run concurrently. Here most pairs can, since the result of a verb refers to files by fingerprint
and to indexes by definition, and can be merged into any later snapshot. A verb that contradicts the other raises
ConflictError, which names the other operation:

============================== =============================== ==========================================
this one                       after this one                  is refused where
============================== =============================== ==========================================
create, refresh full           create, refresh full, repair    both built the same index with different
                                                               settings or functions
create                         restore                         the same
refresh of any mode, repair    delete                          no index is in use any more
delete                         create                          the index to delete was built meanwhile
delete                         delete                          it is deleted already
restore                        create, restore                 it is in use already
restore, optimize              vacuum                          it is gone
repair of unreadable metadata  any                             it would revert the other's changes
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
from geoskip.metadata import bytes_of


class OnConflict(StrEnum):
    """The behaviour of a verb after a concurrent commit."""

    REBASE = "rebase"
    """Merge the built summaries into the other's snapshot; no data is read again."""
    AGAIN = "again"
    """Start again from the other's snapshot; there may be nothing left to do, or a contradiction."""


class Verb(StrEnum):
    """An operation on the indexes, with its transient state and its behaviour after a concurrent commit."""

    doing: str
    then: OnConflict

    def __new__(cls, name: str, doing: str = "", then: OnConflict = OnConflict.AGAIN) -> Verb:
        verb = str.__new__(cls, name)
        verb._value_, verb.doing, verb.then = name, doing, then
        return verb

    CREATE = "create", "creating", OnConflict.REBASE  # after a refresh: its new files lack this index until the next
    REFRESH = "refresh", "refreshing", OnConflict.REBASE  # after a create: new files lack its index until the next
    FULL = "refresh full", "rebuilding", OnConflict.REBASE  # keeps the newer index of a create, leaves out deleted ones
    REPAIR = "repair", "repairing", OnConflict.REBASE
    QUICK = "refresh quick", "noting", OnConflict.AGAIN  # after a refresh: fewer files are without metadata
    OPTIMIZE = "optimize", "optimizing", OnConflict.AGAIN  # after another: nothing is left to do
    DELETE = "delete", "deleting", OnConflict.AGAIN
    RESTORE = "restore", "restoring", OnConflict.AGAIN
    VACUUM = "vacuum", "vacuuming", OnConflict.AGAIN  # keeps indexes restored or deleted meanwhile
    CANCEL = "cancel", "cancelling", OnConflict.AGAIN  # after the operation to cancel: too late
    ROTATE = "rotate keys", "rotating keys", OnConflict.AGAIN  # wraps the keys of the other's snapshot


DONE, FAILED, CANCELLED, ROLLED_BACK = "done", "failed", "cancelled", "rolled back"


CONTRADICTING: frozenset[tuple[Verb, Verb]] = frozenset(
    [
        *product((Verb.CREATE, Verb.FULL), (Verb.CREATE, Verb.FULL, Verb.REPAIR)),
        (Verb.CREATE, Verb.RESTORE),
        *product((Verb.REFRESH, Verb.FULL, Verb.QUICK), [Verb.DELETE]),
        *product([Verb.DELETE], (Verb.CREATE, Verb.DELETE)),
        *product([Verb.RESTORE], (Verb.CREATE, Verb.RESTORE, Verb.VACUUM)),
        (Verb.OPTIMIZE, Verb.VACUUM),
        *product([Verb.REPAIR], Verb),
    ]
)
"""The pairs of the table above: a verb that may be refused after a concurrent commit of the other."""


_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(second|minute|hour|day|week)s?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class StalenessBound:
    """Limit of files or bytes without metadata that a query refreshes before it runs; None means no limit."""

    files: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, given: bool | int | str | None) -> StalenessBound | None:
        """Parse a number of files, a text such as ``64 MiB``, or True for any amount.

        >>> StalenessBound.of(100), StalenessBound.of("64 MiB")
        (StalenessBound(files=100, bytes=None), StalenessBound(files=None, bytes=67108864))
        """
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if isinstance(given, str) and given.strip()[-1:] in ("b", "B") and (size := bytes_of(given)) is not None:
            return cls(bytes=size)
        if isinstance(given, int) and given > 0:
            return cls(files=given)
        raise InvalidSpecificationError(
            f"auto_refresh= takes a number of files, such as 100, a size, such as '64 MiB', or True, got {given!r}"
        )

    def allows(self, files: int, size: int) -> bool:
        """True if neither bound is exceeded."""
        return (self.files is None or files <= self.files) and (self.bytes is None or size <= self.bytes)


def duration(given: timedelta | float | str) -> timedelta:
    """Parse a timedelta, a number of hours, or a text such as ``7 days``.

    >>> duration(1.5), duration("7 days"), duration("90 minutes")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    if isinstance(given, timedelta) and given >= timedelta():
        return given
    with suppress(OverflowError, ValueError):  # more than a million years, infinity, NaN
        if isinstance(given, str) and (match := _DURATION.fullmatch(given)):
            return timedelta(**{f"{match[2].lower()}s": float(match[1])})
        if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
            return timedelta(hours=given)
    raise InvalidSpecificationError(
        "a time is a timedelta, a number of hours, or a text such as '7 days' or '30 minutes', and not negative, "
        f"got {given!r}"
    )
