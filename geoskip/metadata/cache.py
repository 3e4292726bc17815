"""The memory budget of cached metadata, shared by all datasets of this process.

Columns of summaries, and what clauses derive from them, are cached up to :data:`BUDGET` bytes in all; then the least
recently used are dropped, of whichever dataset, and read again when they are needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["BUDGET", "Cache", "MemoryBudget", "bytes_of", "size_of"]

_FEW = 100
"""Items of a list that are measured, as a sample of all."""


class MemoryBudget:
    """A limit in bytes for all caches together, which drops their least recently used values."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._sizes: OrderedDict[tuple[int, Hashable], tuple[int, weakref.ref[Cache]]] = OrderedDict()
        self._gone: deque[int] = deque()
        self._lock = threading.RLock()

    @property
    def limit(self) -> int:
        """The limit in bytes; setting it drops values until the rest fits."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            self._shrink()

    @property
    def used(self) -> int:
        """The estimated bytes of all cached values."""
        with self._lock:
            self._forget_gone()
            return self._used

    def touch(self, number: int, key: Hashable) -> None:
        """Mark a value as the most recently used."""
        with self._lock:
            if (number, key) in self._sizes:
                self._sizes.move_to_end((number, key))

    def admit(self, owner: Cache, key: Hashable, size: int) -> bool:
        """Account for a new value, and drop others to make room.

        Parameters
        ----------
        owner, key
            The cache of the value, and its key there.
        size
            Its bytes.

        Returns
        -------
        bool
            False if the value alone is larger than the whole budget, and must not be cached.
        """
        with self._lock:
            self._forget_gone()
            if size > self._limit:
                return False
            self._used += size - self._sizes.pop((owner.number, key), (0, None))[0]
            self._sizes[owner.number, key] = (size, weakref.ref(owner))
            self._shrink()
            return True

    def gone(self, number: int) -> None:
        """Note that a cache was collected; without a lock, as garbage collection may run in any thread."""
        self._gone.append(number)

    def _shrink(self) -> None:
        while self._used > self._limit and self._sizes:
            (_, key), (size, reference) = self._sizes.popitem(last=False)
            self._used -= size
            if (owner := reference()) is not None:
                owner.held.pop(key, None)

    def _forget_gone(self) -> None:
        gone = {self._gone.popleft() for _ in range(len(self._gone))}
        for number, key in [each for each in self._sizes if each[0] in gone] if gone else ():
            self._used -= self._sizes.pop((number, key))[0]


BUDGET = MemoryBudget(1 << 30)
"""The budget of this process."""


class Cache:
    """Values by key, kept while the budget has room."""

    _numbers = itertools.count(1)

    def __init__(self, budget: MemoryBudget = BUDGET) -> None:
        self.held: dict[Hashable, Any] = {}
        self.budget = budget
        self.number = next(self._numbers)
        weakref.finalize(self, budget.gone, self.number).atexit = False

    def get(self, key: Hashable, default: Any) -> Any:
        """The cached value, or the default."""
        value = self.held.get(key, default)
        if value is not default:
            self.budget.touch(self.number, key)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        """Cache a value if the budget has room."""
        self.held[key] = value
        if not self.budget.admit(self, key, size_of(value)):
            self.held.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self.held


def bytes_of(text: str) -> int | None:
    """Parse a size as Spark's settings write it, in bytes; None for other texts.

    >>> bytes_of("512m"), bytes_of("1.5g"), bytes_of("64 MiB"), bytes_of("1000"), bytes_of("much")
    (536870912, 1610612736, 67108864, 1000, None)
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    return None if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def size_of(*values: Any) -> int:
    """Estimate the bytes of some values; buffers that several arrays share count once.

    >>> size_of(np.zeros(1000)), size_of(pa.array([1, 2])), size_of(["x" * 51] * 1000) > 50_000
    (8000, 16, True)
    """
    sizes: dict[Hashable, int] = {}
    for value in values:
        _measure(value, sizes, 1)
    return sum(sizes.values())


def _measure(value: Any, sizes: dict[Hashable, int], weight: int) -> None:
    if isinstance(value, pa.Array):
        for buffer in value.buffers():
            if buffer is not None:
                sizes[buffer.address] = buffer.size
    elif isinstance(value, np.ndarray):
        sizes[value.__array_interface__["data"][0]] = value.nbytes
    elif isinstance(value, str | bytes):
        sizes["text", len(sizes)] = weight * sys.getsizeof(value)
    elif isinstance(value, Mapping):
        _measure(tuple(value.values()), sizes, weight)
    elif isinstance(value, list | tuple):
        for item in value[:_FEW]:
            _measure(item, sizes, weight * max(1, len(value) // _FEW))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _measure(tuple(getattr(value, f.name) for f in dataclasses.fields(value)), sizes, weight)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _measure(tuple(v for v in vars(value).values() if isinstance(v, np.ndarray | pa.Array)), sizes, weight)
