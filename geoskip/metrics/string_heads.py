"""Heads of a file's strings, with letters and lengths: bounds on Levenshtein distances.

For files with too many distinct strings to keep them in full
(:class:`geoskip.metrics.string_metrics.StringLists`).

In a sorted dataset a file's strings begin alike, which distances from pivots hardly show: distances of words are all
much the same. So a file keeps its *heads*, beginnings of eight code points at most: sixteen of them, or
one for four strings and no more than 128. Aligning a string x with q aligns its head h with some beginning of q, at no
more cost: ``d(x, q) >= min over j of d(h, q[:j])``, the least entry of the last row of Wagner and Fischer's table for h
and q.

Of the strings that begin alike, a *group*, the least and the greatest length are kept, and the letters that occur in
any of them. One edit changes the length by one at most, and removes one letter of q at most: so the distance of x is
at least the difference of the lengths, and at least the number of q's letters that no string of the group has. Letters
are kept as 32 bits, by their code points modulo 32: a letter whose bit is not set does not occur.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["GROUP", "StringHeads", "outline_of", "group_by_beginning", "merge_outlines"]

LEAST, MOST = 16, 128
_STRINGS_A_HEAD = 4
LONGEST = 8
_BEGIN = 3
GROUP = pa.struct([("letters", pa.int64()), ("shortest", pa.int64()), ("longest", pa.int64())])
_ANY = {"letters": -1, "shortest": 0, "longest": 2**62}
_MOST_COMPARED = 1 << 15
"""Heads that one query compares in full, some 2 ms; of more, only the beginnings are compared."""


def group_by_beginning(texts: Iterable[str], most: int) -> dict[str, list[str]]:
    """Group distinct strings by at most ``most`` beginnings; the commonest are lengthened first.

    >>> group_by_beginning(["smile", "smith", "smoke", "snake"], 3)
    {'smi': ['smile', 'smith'], 'smoke': ['smoke'], 'snake': ['snake']}
    """
    found: dict[str, list[str]] = {}
    waiting, count = [(0, "", list(texts))], 1
    while waiting:
        _, head, members = heapq.heappop(waiting)
        first, last = min(members)[:LONGEST], max(members)[:LONGEST]
        head = first[: next((at for at, letter in enumerate(first) if last[at : at + 1] != letter), LONGEST)]
        parts: dict[str, list[str]] = {}
        for text in members if len(head) < LONGEST and len(members) > 1 else ():
            parts.setdefault(text[: len(head) + 1], []).append(text)
        if not parts or count + len(parts) - 1 > most:
            found[head] = members
            continue
        count += len(parts) - 1
        for begin, part in parts.items():
            heapq.heappush(waiting, (-len(part), begin, part))
    return dict(sorted(found.items()))


def outline_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the heads of some distinct strings, and the group of each.

    >>> outline_of(["ab", "b"])["groups"]
    [{'letters': 6, 'shortest': 2, 'longest': 2}, {'letters': 4, 'shortest': 1, 'longest': 1}]
    """
    heads = group_by_beginning(texts, min(MOST, max(LEAST, len(texts) // _STRINGS_A_HEAD)))
    return {"outline": [*heads], "groups": [_group_of(members) for members in heads.values()]}


def _group_of(texts: Sequence[str]) -> dict[str, int]:
    lengths = [*map(len, texts)]
    letters = {ord(letter) & 31 for letter in set().union(*texts)}
    return _group(sum(1 << letter for letter in letters), min(lengths), max(lengths))


def _group(letters: int, shortest: int, longest: int) -> dict[str, int]:
    return {"letters": letters, "shortest": shortest, "longest": longest}


def merge_outlines(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the outline of a file, given those of its parts."""
    groups: dict[str, dict[str, int]] = {}
    for part in parts:
        for head, group in zip(part["outline"], part["groups"], strict=True):
            groups[head] = _both(groups.get(head, group), group)
    heads = group_by_beginning(groups, MOST)
    return {
        "outline": [*heads],
        "groups": [functools.reduce(_both, [groups[head] for head in members]) for members in heads.values()],
    }


def _both(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return _group(
        one["letters"] | other["letters"],
        min(one["shortest"], other["shortest"]),
        max(one["longest"], other["longest"]),
    )


@dataclass(frozen=True)
class _DistinctStrings:
    """Distinct strings: a row of code points a place, and the lengths."""

    points: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> _DistinctStrings:
        points = np.zeros((LONGEST, len(texts)), dtype=np.uint32)
        for number, text in enumerate(texts):
            points[: len(text), number] = [ord(letter) for letter in text]
        return cls(points, np.array([len(text) for text in texts], dtype=np.int64))

    def take(self, places: NDArray[np.int64]) -> _DistinctStrings:
        return _DistinctStrings(self.points[:, places], self.lengths[places])

    def near(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Return the mask of the strings within a distance of some beginning of the text."""
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
class StringHeads:
    """The heads of all files, the beginnings of the heads, and the files of each."""

    heads: _DistinctStrings
    begins: _DistinctStrings
    begin_of: NDArray[np.int64]
    codes: NDArray[np.int64]
    owner: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    letters: NDArray[np.int64]
    """The letters and the lengths of the group, for each head in each file."""
    shortest: NDArray[np.int64]
    longest: NDArray[np.int64]

    @classmethod
    def of(cls, lists: pa.Array, groups: pa.Array) -> StringHeads:
        """Return the heads of all files, given their lists of strings and of groups.

        Metadata of earlier versions have no groups: then letters and lengths may be any.
        """
        if not pa.types.is_list(lists.type):
            lists = pa.nulls(len(lists), pa.list_(pa.string()))
        counts = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        flat = lists.drop_null().flatten().dictionary_encode()
        texts = [(text or "")[:LONGEST] for text in flat.dictionary.to_pylist()]
        places: dict[str, int] = {}
        begin_of = np.array([places.setdefault(text[:_BEGIN], len(places)) for text in texts], dtype=np.int64)
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        found = [np.full(len(owner), unknown) for unknown in _ANY.values()]
        if pa.types.is_list(groups.type):
            sizes = np.asarray(groups.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
            agree = (sizes == counts) & (counts > 0)
            flat_groups = groups.filter(pa.array(agree)).flatten()
            for values, (name, unknown) in zip(found, _ANY.items(), strict=True):
                values[agree[owner]] = np.asarray(flat_groups.field(name).fill_null(unknown))
        return cls(
            _DistinctStrings.of(texts), _DistinctStrings.of(list(places)), begin_of, codes, owner, counts == 0, *found
        )

    def within(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Return the mask of the files that may hold a string within a distance of a text."""
        start = text[: LONGEST + distance]
        near = self.begins.near(start, distance)[self.begin_of]
        left = np.flatnonzero(near)
        if len(left) <= _MOST_COMPARED:
            near[left] = self.heads.take(left).near(start, distance)
        there = np.flatnonzero(near[self.codes])
        there = there[(self.shortest[there] - distance <= len(text)) & (len(text) <= self.longest[there] + distance)]
        absent = np.zeros(len(there), dtype=np.int64)
        for letter in text:
            absent += (self.letters[there] >> (ord(letter) & 31) & 1) == 0
        found = self.unknown.copy()
        found[self.owner[there[absent <= distance]]] = True
        return found
