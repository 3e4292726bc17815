"""Whose turn it is where many write: nobody loses for ever, and nobody holds a lock.

To an optimistic writer all that counts is to be first, so a long verb may lose against short ones for as long as they
come; a pause after each loss makes that worse, since who wins makes none. So a writer that has lost three times in a
row *takes a ticket*: its next entry in the operation log says that it waits, and the entry's number is its place in the
line. Everybody looks at the log right before a commit, and gives way there to the oldest ticket that is not its own. A
writer that had looked before that entry was there may still be first, once. So from its ticket on, a writer loses at
most once to each of those that are under way, and once to each with an older ticket.

This is a courtesy and no lock. The exclusive creation of the snapshot alone decides who commits; without the log's help
writers race as before. The oldest ticket gives way to nobody, so that there is no circle. A ticket counts while its
writer lives (:func:`geoskip.lifecycle.log.is_dead`), and with each of the others for five seconds and three of its
turns at most, of which it tells the length, and never for more than thirty: one that hangs delays the others a little,
and then races. Those seconds are by the clock of who waits; no two clocks are compared. Readers wait for nobody.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geoskip.lifecycle.log import Entry, is_dead

__all__ = ["LOSSES", "WriteQueue"]

LOSSES = 3
"""After so many lost races in a row a writer takes a ticket."""
_GRACE, _LONGEST = 5.0, 30.0


@dataclass
class WriteQueue:
    """Those with a ticket, as one writer sees them."""

    me: str
    step: float
    """Seconds between two looks at the log for who is next."""
    slept: float = 0.0
    """Seconds for which it gave way."""
    _first: str | None = None
    _until: float = 0.0
    _passed: set[str] = field(default_factory=set)
    """To whom it gave way for long enough."""

    def gives_way(self, open: Mapping[str, Entry]) -> bool:
        """Sleep a little if somebody is to be first; then the log is to be looked at again. False: it may commit."""
        mine = _ticket(open.get(self.me, {}))
        others = {name: _ticket(told) for name, told in open.items() if name != self.me and name not in self._passed}
        before = [name for name, ticket in others.items() if ticket > 0 and not 0 < mine < ticket]
        before = sorted((name for name in before if not is_dead(open[name])), key=others.__getitem__)
        if not before:
            return False
        now = time.monotonic()
        if before[0] != self._first:
            self._first, self._until = before[0], now + min(_LONGEST, _GRACE + 3 * _seconds(open[before[0]]))
        if now >= self._until:
            self._passed.add(before[0])
            return True
        seconds = min(self.step * len(before), self._until - now) * random.uniform(0.5, 1)
        time.sleep(seconds)
        self.slept += seconds
        return True


def _ticket(told: Mapping[str, Any]) -> int:
    """The number of somebody's ticket, 0 for none."""
    found = told.get("ticket")
    return found if isinstance(found, int) else 0


def _seconds(told: Mapping[str, Any]) -> float:
    """How long a turn takes somebody."""
    found = told.get("turn")
    return max(0.0, found) if isinstance(found, int | float) else 0.0
