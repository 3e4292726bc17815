"""How much and how long, as users say it: ``"64 MiB"``, ``"7 days"``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from geoskip.errors import InvalidSpecificationError

__all__ = ["StalenessBound", "duration"]

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
