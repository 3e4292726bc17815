"""Entries of Prefix and Suffix: the beginnings (or ends) of all files' texts, with the files of each.

An *entry* is the first ``length`` code points of a text, or all of a shorter text. Stored are two lists a file:
``whole``, the texts that are entries themselves, and ``cut``, the entries of longer texts. Code points are counted as
the bytes that begin one, so that texts which are not UTF-8 have entries too; no entry is longer than four bytes a code
point. Two properties carry all clauses, for any bytes:

* the entry of a text depends on the text's first bytes alone, so two texts that share them share the entry;
* a text that begins with ``p`` has an entry that begins with ``p``, or, where ``p`` itself is longer than an entry,
  the entry of ``p``.

Suffix is the mirror image: its entries are read backwards, and "begins" becomes "ends".

*At a query* the distinct entries of all files are one sorted dictionary with the files of each, derived once a
snapshot: a condition on beginnings is a slice of it. An entry is a unit (:class:`geoskip.clauses.UnitClause`): a row
has one, so that ``c >= 'm' AND c < 'n'`` needs one entry that satisfies both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.interval import counts_of
from geoskip.bounds.sort_keys import Ints
from geoskip.clauses import Files, Mask, UnitClause

__all__ = [
    "CUT",
    "AffixPostings",
    "EntryPasses",
    "Interval",
    "all_above",
    "all_below",
    "beginning",
    "exactly",
    "lists_of",
]

CUT = 4
"""Bytes of the longest code point."""

Interval = tuple[bytes, bytes | None]
"""A half-open interval of byte strings; an end of None is above everything."""


def exactly(entry: bytes) -> Interval:
    r"""Return the interval that holds one entry.

    >>> exactly(b"ab"), beginning(b"ab"), all_below(b"b", True), all_above(b"b", True)
    ((b'ab', b'ab\x00'), (b'ab', b'ac'), (b'', b'b\x00'), (b'b', None))
    """
    return entry, entry + b"\0"


def beginning(text: bytes) -> Interval:
    """Return the interval of the byte strings that begin with a text."""
    cut = text.rstrip(b"\xff")
    return text, cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def all_below(text: bytes, inclusive: bool) -> Interval:
    """Return the interval below a text, with the text itself if inclusive."""
    return b"", text + b"\0" if inclusive else text


def all_above(text: bytes, inclusive: bool) -> Interval:
    """Return the interval above a text, with the text itself if inclusive."""
    return text if inclusive else text + b"\0", None


def lists_of(whole: pa.Array, cut: pa.Array, limit: int) -> dict[str, list[bytes] | None]:
    """Return the sorted distinct entries of a summary; None if together they are more than ``limit``."""
    whole, cut = whole.unique(), cut.unique()
    if len(whole) + len(cut) > limit:
        return {"whole": None, "cut": None}
    return {side: sorted(some.to_numpy(zero_copy_only=False)) for side, some in (("whole", whole), ("cut", cut))}


@dataclass(frozen=True)
class EntryPasses(UnitClause):
    """Some entry of the file lies in the intervals, or (inverted) outside of them.

    ``whole`` are the intervals for texts that are their own entries, ``cut`` those for entries of longer texts;
    ``null`` is True if NULL passes, ``values`` if the unlisted texts of a file over the limit do.
    """

    index: str
    text: str
    whole: tuple[Interval, ...] = ()
    cut: tuple[Interval, ...] = ()
    inverted: bool = False
    null: bool = False
    values: bool = True
    backwards: bool = False

    def keep_units(self, files: Files) -> Mask:
        found = affixes_of(files, self.index, self.backwards)
        units = np.zeros(len(found.starts) - 1, dtype=bool)
        entries = len(found.entries)
        for intervals, low, high in ((self.whole, 0, found.wholes), (self.cut, found.wholes, entries)):
            for start, end in intervals:
                first = bisect_left(found.entries, start, low, high)
                units[first : high if end is None else bisect_left(found.entries, end, first, high)] = True
        if self.inverted:
            np.logical_not(units[:entries], out=units[:entries])
        units[entries:] = (self.null, self.values, True)
        return units

    def files_of(self, files: Files, units: Mask) -> Mask:
        return affixes_of(files, self.index, self.backwards).files_with(units)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("whole", "cut", "nulls", "rows"))

    def __str__(self) -> str:
        return f"{self.index} {self.text}"


@dataclass(frozen=True)
class _SortedEntries(Sequence[bytes]):
    """Entries as a sequence over Arrow's buffers: two sorted runs, the whole entries first."""

    offsets: Ints
    data: memoryview
    array: pa.Array = field(repr=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, at: Any) -> Any:
        return self.data[self.offsets[at] : self.offsets[at + 1]].tobytes()


@dataclass(frozen=True)
class AffixPostings:
    """The distinct entries of all files, and the files of each.

    Units come in this order: the whole entries, sorted; the cut ones, sorted; NULL; the texts of files whose lists are
    missing; the texts of files without a summary. ``files[starts[u]:starts[u + 1]]`` are those of unit u.
    """

    length: int
    entries: _SortedEntries
    wholes: int
    files: Ints
    starts: Ints
    sizes: Ints
    """The number of units of each file."""

    def files_with(self, units: Mask) -> Mask:
        """Return the mask of the files that have some of these units."""
        chosen = np.flatnonzero(units)
        if int((self.starts[chosen + 1] - self.starts[chosen]).sum()) > len(self.files) // 2:
            others = np.bincount(self._files_of(np.flatnonzero(~units)), minlength=self.length)
            return np.asarray(others < self.sizes)
        keep = np.zeros(self.length, dtype=bool)
        keep[self._files_of(chosen)] = True
        return keep

    def _files_of(self, chosen: Ints) -> Ints:
        if not len(chosen):
            return self.files[:0]
        begin, end = self.starts[chosen], self.starts[chosen + 1]
        breaks = np.flatnonzero(begin[1:] != end[:-1])
        if len(breaks) <= 16:  # a few slices
            runs = zip([0, *(breaks + 1).tolist()], [*breaks.tolist(), len(chosen) - 1], strict=True)
            return np.concatenate([self.files[begin[first] : end[last]] for first, last in runs])
        lengths = end - begin
        shift = np.repeat(begin - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        return np.asarray(self.files[shift + np.arange(len(shift))])


def affixes_of(files: Files, name: str, backwards: bool) -> AffixPostings:
    return files.cached((name, "entries"), lambda: _postings(files, name, backwards))


def _postings(files: Files, name: str, backwards: bool) -> AffixPostings:
    whole, cut = (_plain(files.summary(name, field)) for field in ("whole", "cut"))
    (rows, counted), (nulls, known) = (counts_of(files, name, field) for field in ("rows", "nulls"))
    known &= counted
    listed = known & _listed(whole) & _listed(cut)
    sides = [_side(array, listed, backwards) for array in (whole, cut)]
    further = (
        np.flatnonzero(known & (nulls > 0)),
        np.flatnonzero(known & ~listed & (rows > nulls)),
        np.flatnonzero(~known),
    )
    entries = pa.concat_arrays([side[0] for side in sides])
    counts = np.concatenate([*(side[2] for side in sides), [len(some) for some in further]])
    placed = np.concatenate([*(side[1] for side in sides), *further])
    offsets, data = entries.buffers()[1:]
    starts = np.frombuffer(offsets, dtype=np.int64)[: len(entries) + 1]
    return AffixPostings(
        len(files),
        _SortedEntries(starts, memoryview(data or b""), entries),
        len(sides[0][0]),
        placed,
        np.concatenate([[0], np.cumsum(counts)]),
        np.bincount(placed, minlength=len(files)),
    )


def _listed(array: pa.Array) -> Mask:
    return np.asarray(array.is_valid()) if pa.types.is_list(array.type) else np.zeros(len(array), dtype=bool)


def _side(array: pa.Array, listed: Mask, backwards: bool) -> tuple[pa.Array, Ints, Ints]:
    """Return one side's sorted entries, the files entry by entry, and how many each has."""
    if not listed.any():
        return pa.array([], pa.large_binary()), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    lengths = np.asarray(array.value_lengths().fill_null(0))
    owner = np.repeat(np.arange(len(array)), lengths)
    values = array.flatten().cast(pa.large_binary())
    if not listed.all():
        values, owner = values.filter(pa.array(listed[owner])), owner[listed[owner]]
    encoded = values.dictionary_encode()
    distinct = mirrored(encoded.dictionary) if backwards else encoded.dictionary
    order = np.asarray(pc.sort_indices(distinct)).astype(np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[np.asarray(encoded.indices)]
    counts = np.bincount(ranks, minlength=len(order))
    return distinct.take(pa.array(order)), owner[np.argsort(ranks, kind="stable")], counts


def mirrored(array: pa.Array) -> pa.Array:
    """Reverse each byte string of an array.

    >>> mirrored(pa.array([b"abc", b"", b"xy"], pa.large_binary())).to_pylist()
    [b'cba', b'', b'yx']
    """
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return array
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    turned = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]][::-1].copy()
    places = ends[-1] - ends[::-1]
    found = pa.Array.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(places.tobytes()), pa.py_buffer(turned.tobytes())]
    )
    return found.take(pa.array(np.arange(len(array))[::-1]))


def _plain(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
