"""How a file's strings begin, and what that says of their Levenshtein distances.

Where strings are laid out in their order, a file's begin alike, which distances from origins hardly show: those of
words are all much the same. So a file keeps its *heads*, beginnings of one length, eight code points at most, where it
needs no more than sixteen, or one for 32 strings and no more than 64. Aligning a string x with q aligns its head h with
some beginning of q, at no more cost: ``d(x, q) >= min over j of d(h, q[:j])``, the least entry of the last row of
Wagner and Fischer's table for h and q.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Heads", "heads_of", "united"]

LEAST, MOST = 16, 64
_STRINGS_A_HEAD = 32
LONGEST = 8
_BEGIN = 3
_MOST_COMPARED = 1 << 15
"""Heads that one query compares in full, some 2 ms; of more only their beginnings are looked at."""


def heads_of(texts: Sequence[str], most: int | None = None) -> list[str] | None:
    """The longest heads that some distinct strings need not too many of, sorted; None where one letter takes more.

    >>> heads_of(["smile", "smith", "smoke", "snake"])
    ['smile', 'smith', 'smoke', 'snake']
    >>> heads_of([chr(97 + i) + "x" for i in range(20)])
    """
    most = min(MOST, max(LEAST, len(texts) // _STRINGS_A_HEAD)) if most is None else most
    found: set[str] | None = None
    for length in range(1, LONGEST + 1):
        heads = {text[:length] for text in texts}
        if len(heads) > most:
            break
        found = heads
    return None if found is None else sorted(found)


def united(parts: Iterable[Sequence[str] | None]) -> list[str] | None:
    """The heads of a file from those of its parts."""
    every: set[str] = set()
    for part in parts:
        if part is None:
            return None
        every.update(part)
    return heads_of(sorted(every), MOST)


@dataclass(frozen=True)
class _Words:
    """Some strings, each distinct one once: a row of code points a place, and how long they are."""

    points: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> _Words:
        points = np.zeros((LONGEST, len(texts)), dtype=np.uint32)
        for number, text in enumerate(texts):
            points[: len(text), number] = [ord(letter) for letter in text]
        return cls(points, np.array([len(text) for text in texts], dtype=np.int64))

    def take(self, places: NDArray[np.int64]) -> _Words:
        return _Words(self.points[:, places], self.lengths[places])

    def near(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Which are within a distance of some beginning of the text; cells off the diagonal by more are not."""
        beyond = np.full(len(self.lengths), distance + 1, dtype=np.int8)
        row = {j: np.full(len(self.lengths), j, dtype=np.int8) for j in range(min(distance, len(text)) + 1)}
        near = self.lengths == 0
        for i in range(1, int(self.lengths.max(initial=0)) + 1):
            below: dict[int, NDArray[np.int8]] = {}
            for j in range(max(0, i - distance), min(len(text), i + distance) + 1):
                cell = row.get(j, beyond) + np.int8(1)
                if j:
                    replaced = row.get(j - 1, beyond) + (self.points[i - 1] != ord(text[j - 1])).view(np.int8)
                    cell = np.minimum(np.minimum(cell, replaced), below.get(j - 1, beyond) + np.int8(1))
                below[j] = np.minimum(cell, beyond)
            row = below
            if row and (ends := self.lengths == i).any():
                near |= ends & (np.minimum.reduce(list(row.values())) <= distance)
        return np.asarray(near)


@dataclass(frozen=True)
class Heads:
    """The heads of all files, the beginnings of the heads, and which files have which."""

    heads: _Words
    begins: _Words
    begin_of: NDArray[np.int64]
    codes: NDArray[np.int64]
    owner: NDArray[np.int64]
    unknown: NDArray[np.bool_]

    @classmethod
    def of(cls, lists: pa.Array) -> Heads:
        """From lists of strings, one a file; files whose list is null or empty have none."""
        if not pa.types.is_list(lists.type):
            lists = pa.nulls(len(lists), pa.list_(pa.string()))
        counts = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        flat = lists.drop_null().flatten().dictionary_encode()
        texts = [(text or "")[:LONGEST] for text in flat.dictionary.to_pylist()]
        places: dict[str, int] = {}
        begin_of = np.array([places.setdefault(text[:_BEGIN], len(places)) for text in texts], dtype=np.int64)
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        return cls(_Words.of(texts), _Words.of(list(places)), begin_of, codes, owner, counts == 0)

    def within(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Which files may hold a string within a distance (below :data:`LONGEST`) of this one."""
        text = text[: LONGEST + distance]
        near = self.begins.near(text, distance)[self.begin_of]
        left = np.flatnonzero(near)
        if len(left) <= _MOST_COMPARED:
            near[left] = self.heads.take(left).near(text, distance)
        found = self.unknown.copy()
        found[self.owner[near[self.codes]]] = True
        return found
