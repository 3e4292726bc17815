"""Which parts a snapshot keeps of the one before it, so that a small change is a small write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from geoskip.metadata import PartFile

__all__ = ["merged_from", "without"]

_MOST_PARTS = 16
_FANOUT = 4


def without(parts: Sequence[PartFile], gone: np.ndarray[Any, np.dtype[np.bool_]]) -> list[PartFile]:
    """The parts without the rows that are gone, numbered through all of them; those without a row are left out."""
    found = []
    start = 0
    for part in parts:
        here = gone[start : start + part.left]
        start += part.left
        if here.any():
            rows = np.setdiff1d(np.arange(part.rows), np.array(part.removed, dtype=np.int64))
            part = replace(part, removed=tuple(sorted({*part.removed, *map(int, rows[here])})))
        if part.left:
            found.append(part)
    return found


def merged_from(parts: Sequence[PartFile], added: int) -> int:
    """The first part to be written anew together with those after it and the added rows."""
    wasteful = [number for number, part in enumerate(parts) if len(part.removed) > part.left]
    first = min(wasteful, default=len(parts))
    if len(parts) >= _MOST_PARTS:
        after = added
        for number in range(len(parts) - 1, -1, -1):
            if parts[number].left >= _FANOUT * after and number < len(parts) - 1:
                return min(first, number + 1)
            after += parts[number].left
        return 0
    return first
