"""The settings of geoskip in a session: where a value cannot be read, the default holds, and the report says so."""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from geoskip.metadata import BUDGET, bytes_of

__all__ = ["look_up_again", "most_looked_at", "share_memory", "unread"]

_LOG = logging.getLogger("geoskip")
_PREFIX = "spark.geoskip."
_MOST_LOOKED_AT = 2000
_LOOK_UP_AGAIN = 1.0
_TIME = re.compile(r"(.*?)(ms|s|m|min)?$")


def look_up_again(settings: Mapping[str, Any]) -> float:
    """Seconds for which a query uses the snapshot that another found to be the latest, on other systems."""
    return _number(settings, "lookup.seconds", _LOOK_UP_AGAIN)


def most_looked_at(settings: Mapping[str, Any]) -> float:
    """At most so many local files that are to be skipped are looked at once more."""
    return _number(settings, "recheck", _MOST_LOOKED_AT)


def share_memory(settings: Mapping[str, Any]) -> None:
    """Let the metadata of this process take what the session says."""
    size = bytes_of(settings.get(_PREFIX + "memory.budget") or "")
    if size is not None and size != BUDGET.limit:
        BUDGET.limit = size


def unread(settings: Mapping[str, Any]) -> Iterable[str]:
    """What is wrong with settings.

    >>> list(unread({"spark.geoskip.audit": "2%", "spark.geoskip.planning.budget": "500ms"}))
    ["spark.geoskip.audit should be a share from 0 to 1 such as 0.02, got '2%'"]
    >>> list(unread({"spark.geoskip.budget.planning": "5", "spark.geoskip.enabled": "yes"}))[1]
    'spark.geoskip.budget.planning is no setting of geoskip; the nearest is spark.geoskip.planning.budget'
    """
    for name, wanted, reads in _READ:
        said = settings.get(_PREFIX + name)
        if said and not reads(str(said).strip()):
            yield _warned(f"{_PREFIX}{name} should be {wanted}, got {said!r}")
    names = ["keys", *(name for name, _, _ in _READ)]
    for name in sorted(settings.keys() - {_PREFIX + name for name in names}):
        if name.startswith(_PREFIX):
            near = difflib.get_close_matches(name.removeprefix(_PREFIX).lower(), names, 1, 0.0)
            yield _warned(f"{name} is no setting of geoskip; the nearest is {_PREFIX}{near[0]}")


@lru_cache(1000)
def _warned(text: str) -> str:
    """The same text, which the log has once."""
    _LOG.warning("%s", text)
    return text


def _number(settings: Mapping[str, Any], name: str, default: float) -> float:
    found = _read(settings.get(_PREFIX + name) or "")
    return default if found is None or found < 0 else found


def _read(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _is_time(text: str) -> bool:
    found = _TIME.match(text)
    return found is not None and (_read(found[1]) or 0) > 0


def _is_between(least: float, most: float) -> Callable[[str], bool]:
    return lambda text: (found := _read(text)) is not None and least <= found <= most


_READ = (
    (
        "enabled",
        "true or false (all but false, no, off and 0 switch it on)",
        lambda text: text.lower() in ("true", "false"),
    ),
    ("memory.budget", "a size such as 512m", lambda text: bytes_of(text) is not None),
    ("planning.budget", "a time above 0 such as 5, 5s or 500ms", _is_time),
    ("audit", "a share from 0 to 1 such as 0.02", _is_between(0, 1)),
    ("recheck", "a number of files such as 2000", _is_between(0, math.inf)),
    ("lookup.seconds", "a number of seconds such as 1", _is_between(0, math.inf)),
)
