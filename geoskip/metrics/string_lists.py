"""The strings of a file that has few distinct ones, kept in full: its distances are computed, and not bounded.

Of words in no order every file has some of any length, with any letters and at any distance from the pivots: of 116
files of 770 surnames no bound excludes one. The letters of each word, counted, would leave out four in five within 1 of
a name, and one in five within 2; the words themselves take seven bytes each and leave out all that can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["MOST", "MOST_BYTES", "StringLists", "few"]

MOST = 1024
"""Distinct strings that a file may keep,"""
MOST_BYTES = 1 << 13
"""and how many bytes of UTF-8 they may have together."""


def few(texts: Sequence[str]) -> list[str] | None:
    """Distinct strings in order; None where they are too many, or too long, to be kept.

    >>> few(["b", "a"]), few(["a" * 9000])
    (['a', 'b'], None)
    """
    if len(texts) > MOST or sum(len(text.encode("utf-8")) for text in texts) > MOST_BYTES:
        return None
    return sorted(texts)


@dataclass(frozen=True)
class StringLists:
    """The strings of all files that keep theirs, each distinct one once, and which files have which."""

    texts: list[str]
    counts: NDArray[np.int64]
    """How many files have each string."""
    owners: NDArray[np.int32]
    """The files of all strings, string by string."""
    known: NDArray[np.bool_]
    """Files that keep theirs."""

    @classmethod
    def of(cls, lists: pa.Array) -> StringLists:
        """From lists of strings, one a file; files whose list is null or empty, or has a null in it, keep none."""
        if not pa.types.is_list(lists.type):
            lists = pa.nulls(len(lists), pa.list_(pa.string()))
        lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        owners = np.repeat(np.arange(len(lists), dtype=np.int32), lengths)
        flat = lists.drop_null().flatten().dictionary_encode()
        known = lengths > 0
        known[owners[np.asarray(flat.indices.is_null())]] = False
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False))
        codes, owners = codes[known[owners]], owners[known[owners]]
        counts = np.bincount(codes, minlength=len(flat.dictionary))
        return cls(flat.dictionary.to_pylist(), counts, owners[np.argsort(codes, kind="stable")], known)

    def holding(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which files may hold one of the wanted strings: those that keep none may."""
        found = ~self.known
        found[self.owners[np.repeat(wanted, self.counts)]] = True
        return found
