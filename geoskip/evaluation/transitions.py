"""The clocks of a time zone: when they are set, and what follows for local times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ZoneTransitions"]

Ints = NDArray[np.int64]
_SECOND = 1_000_000


@dataclass(frozen=True, eq=False)
class ZoneTransitions:
    """Transitions of a time zone and its offsets from UTC between them, in microseconds.

    >>> clocks = ZoneTransitions.of("7258118400 0 10:3600 20:-1800")
    >>> clocks.at.tolist(), [ahead // 10**6 for ahead in clocks.ahead.tolist()]
    ([10000000, 20000000], [0, 3600, -1800])
    """

    at: Ints
    ahead: Ints
    """One entry more than ``at``: before the first time, and from each on."""
    until: int
    """From then on it is not known when."""

    @classmethod
    def of(cls, text: str) -> ZoneTransitions:
        """From seconds as text: ``until``, how far ahead in the beginning, then ``time:ahead`` each time."""
        until, first, *rest = text.split()
        pairs = [pair.split(":") for pair in rest]
        at = np.array([int(time) for time, _ in pairs], dtype=np.int64)
        ahead = np.array([int(first), *(int(ahead) for _, ahead in pairs)], dtype=np.int64)
        return cls(at * _SECOND, ahead * _SECOND, int(until) * _SECOND)
