"""Bloom filters: their size, their bits, and probing those of all files at once in bit slices.

A filter of m bits holds a value whose hash is h when the bits at k places that follow from h are set (Bloom 1970; the
k places are an arithmetic progression in the hash, as Kirsch and Mitzenmacher showed suffices). k depends on the
rate of false positives alone; m on the number of distinct values too, rounded up to 64 or 96 times a power of two: two
sizes an octave cost at most half again the bits, and leave few sizes in a dataset.

*Probing*: the filters of one size are kept transposed, as m *slices* of one bit a file. One value needs k slices and
their AND: 0.9 MB of a million filters of 64 bytes, where filter by filter would touch all 64 MB. Few filters of a size
are probed as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.sort_keys import Ints
from geoskip.clauses import Files, Mask
from geoskip.indexes.bloom_hash import Words

LARGEST = 1 << 26
"""Bits of the largest filter: 8 MB, seven million distinct values at a rate of 0.01."""

_SMALL = 1 << 18
"""Bits of the largest filter that is made together with others: its bits are bytes first."""
_FEW = 256
_SHORT = 384
"""Words up to which all bits are unpacked."""
_WORD = (1 << 64) - 1
_AT_ONCE = 1 << 22
Bytes = NDArray[np.uint8]


def probes_for(fpp: float) -> int:
    """Return the number k of bits that a value sets.

    >>> probes_for(0.01), probes_for(0.5)
    (7, 1)
    """
    return max(1, round(-math.log2(fpp)))


def bits_for(distinct: int, fpp: float) -> int:
    """Return the size in bits of a filter of so many distinct values.

    >>> bits_for(0, 0.01), bits_for(1, 0.01), bits_for(1000, 0.01), bits_for(1100, 0.01)
    (0, 64, 12288, 12288)
    """
    if not distinct:
        return 0
    probes = probes_for(fpp)
    needed = math.ceil(-probes * distinct / math.log1p(-(fpp ** (1 / probes))))
    size = 64
    while size < needed:
        size *= 2
    return size * 3 // 4 if size > 64 and size * 3 // 4 >= needed and size * 3 // 4 % 32 == 0 else size


def filter_of(hashes: Words, fpp: float) -> bytes | None:
    """Return the filter of distinct hashes; None if it would be larger than :data:`LARGEST`."""
    bits = bits_for(len(hashes), fpp)
    if bits > LARGEST:
        return None
    chosen = np.zeros(bits, dtype=np.uint8)
    for at in range(0, len(hashes), _AT_ONCE):
        for places in places_of(hashes[at : at + _AT_ONCE], probes_for(fpp), bits):
            chosen[places] = 1
    return np.packbits(chosen, bitorder="little").tobytes()


def filters_for(hashes: Sequence[Words], fpp: float) -> list[bytes | None]:
    """Return several filters; small ones are made together, since calls dominate the work on one of them."""
    sizes = [bits_for(len(each), fpp) for each in hashes]
    small = [number for number, size in enumerate(sizes) if size <= _SMALL]
    bits = np.array([sizes[number] for number in small], dtype=np.int64)
    ends = np.cumsum(bits)
    chosen = np.zeros(int(bits.sum()), dtype=np.uint8)
    if len(chosen):
        lengths = [len(hashes[number]) for number in small]
        words, starts = np.concatenate([hashes[number] for number in small]), np.repeat(ends - bits, lengths)
        for places in places_of(words, probes_for(fpp), np.repeat(bits, lengths).astype(np.uint64)):
            chosen[places + starts] = 1
    packed = np.packbits(chosen, bitorder="little").tobytes()
    made = {
        n: packed[(end - size) >> 3 : end >> 3]
        for n, end, size in zip(small, ends.tolist(), bits.tolist(), strict=True)
    }
    return [made[number] if number in made else filter_of(each, fpp) for number, each in enumerate(hashes)]


def places_of(hashes: Words, probes: int, bits: int | Words) -> Iterator[Ints]:
    """Iterate over the first places of all hashes, the second ones, and so on."""
    step = (hashes * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    range_of = np.asarray(bits, dtype=np.uint64)
    for _ in range(probes):
        yield (((hashes >> np.uint64(32)) * range_of) >> np.uint64(32)).astype(np.int64)
        hashes = hashes + step


@dataclass(frozen=True)
class FilterGroup:
    """The filters of one size: as slices, one row a bit (words of 64 files), or one row a filter if few."""

    bits: int
    owner: Ints
    """The file of each filter."""
    table: NDArray[np.uint64] | NDArray[np.uint8]
    sliced: bool

    def files_holding(self, hashes: Words, probes: int) -> Ints:
        """Return the files of the filters that may hold one of the values; for filters in rows."""
        return self.owner[self._in_rows(np.stack(list(places_of(hashes, probes, self.bits)), axis=1))]

    def slices(self, hashes: Words, probes: int) -> Words:
        """Return one bit a filter, set if it may hold one of the values; for filters in slices."""
        if len(hashes) == 1:
            chosen = _places_of_one(int(hashes[0]), probes, self.bits)
            found: Words
            if self.table.shape[1] < _SHORT:  # one copy of all is cheaper than a call a slice
                found = np.bitwise_and.reduce(self.table.take(chosen, axis=0), axis=0)
                return found
            found = self.table[chosen[0]].copy()
            for place in chosen[1:]:
                found &= self.table[place]
            return found
        places = np.stack(list(places_of(hashes, probes, self.bits)), axis=1)
        found = np.zeros(self.table.shape[1], dtype=np.uint64)
        step = max(1, _AT_ONCE // (8 * self.table.shape[1] * probes))
        for at in range(0, len(places), step):
            each = np.bitwise_and.reduce(self.table[places[at : at + step]], axis=1)
            found |= np.bitwise_or.reduce(each, axis=0)
        return found

    def _in_rows(self, places: Ints) -> Ints:
        held = np.zeros(len(self.owner), dtype=bool)
        step = max(1, _AT_ONCE // (len(self.owner) * places.shape[1]))
        for at in range(0, len(places), step):
            some = places[at : at + step]
            bits = (self.table[:, some >> 3] >> (some & 7).astype(np.uint8)) & np.uint8(1)
            held |= np.any(np.all(bits, axis=2), axis=1)
        return np.flatnonzero(held)


@dataclass(frozen=True)
class BloomFilters:
    """The filters of all files, grouped by size; a file may have several, one a part."""

    groups: tuple[FilterGroup, ...]
    unknown: Mask
    any_unknown: bool
    owner: Ints
    """The files of the bits of all sliced groups, one group after the other, each padded to whole words."""
    in_order: bool
    """True if one sliced group has exactly one filter of each file, in the order of the files."""

    def may_hold(self, hashes: Words, probes: int) -> Mask:
        """Return one entry a file, False only if it holds none of the values."""
        if self.in_order and len(hashes):
            bits = self.groups[0].slices(hashes, probes).view(np.uint8)
            return np.unpackbits(bits, count=len(self.unknown), bitorder="little").view(np.bool_)
        keep = self.unknown.copy() if self.any_unknown else np.zeros(len(self.unknown), dtype=bool)
        if not len(hashes):
            return keep
        sliced = [group.slices(hashes, probes) for group in self.groups if group.sliced]
        if sliced:
            keep[self.owner[_places_in(np.concatenate(sliced))]] = True
        for group in self.groups:
            if not group.sliced:
                keep[group.files_holding(hashes, probes)] = True
        return keep


def filters_of(files: Files, name: str, version: int) -> BloomFilters:
    """Return the filters of an index, grouped once a snapshot from its fields ``filters`` and ``version``."""
    return files.cached((name, "bit slices"), lambda: _filters_by_size(files, name, version))


def _places_of_one(value: int, probes: int, bits: int) -> list[int]:
    """Return the places of one hash, those of :func:`places_of`."""
    step = (value * 0x9E3779B97F4A7C15) | 1
    return [((((value + number * step) & _WORD) >> 32) * bits) >> 32 for number in range(probes)]


def _places_in(words: Words) -> Ints:
    """Return the numbers of the bits that are set, 64 a word, lowest first; most words have none or one."""
    if len(words) < _SHORT:
        return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    at = np.flatnonzero(words != 0)
    left, found = words[at], []
    for _ in range(4):
        lowest = left & (~left + np.uint64(1))
        found.append(at * 64 + np.frexp(lowest.astype(np.float64))[1] - 1)
        left = left ^ lowest
        more = np.flatnonzero(left)
        at, left = at[more], left[more]
        if not len(at):
            return np.concatenate(found)
    ones = np.flatnonzero(np.unpackbits(left.view(np.uint8), bitorder="little"))
    return np.concatenate([*found, at[ones >> 6] * 64 + (ones & 63)])


def _filters_by_size(files: Files, name: str, version: int) -> BloomFilters:
    stored, versions = (_plain(files.summary(name, field)) for field in ("filters", "version"))
    if not pa.types.is_list(stored.type) or not pa.types.is_integer(versions.type):
        return BloomFilters((), np.ones(len(files), dtype=bool), True, np.zeros(0, dtype=np.int64), False)
    known = np.asarray(stored.is_valid()) & (np.asarray(versions.fill_null(-1)) == version)
    owner = np.repeat(np.arange(len(files)), np.asarray(stored.value_lengths().fill_null(0)))
    values = stored.flatten().cast(pa.large_binary())
    damaged = np.asarray(values.is_null())
    known[owner[damaged]] = False
    sizes = np.asarray(pc.binary_length(values).fill_null(0))
    groups = []
    for size in np.unique(sizes[sizes > 0]).tolist():
        chosen = np.flatnonzero((sizes == size) & known[owner])
        if len(chosen):
            groups.append(_group(owner[chosen], _rows(values, chosen, size)))
    sliced = [np.pad(group.owner, (0, -len(group.owner) % 64)) for group in groups if group.sliced]
    alone = len(groups) == 1 and len(sliced) == 1 and np.array_equal(groups[0].owner, np.arange(len(files)))
    owners = np.concatenate(sliced) if sliced else np.zeros(0, dtype=np.int64)
    return BloomFilters(tuple(groups), ~known, not bool(known.all()), owners, alone)


def _rows(values: pa.Array, chosen: Ints, size: int) -> Bytes:
    """Return the bytes of some filters of one size, one row each."""
    taken = values if len(chosen) == len(values) else values.take(pa.array(chosen))
    first = int(np.frombuffer(taken.buffers()[1], dtype=np.int64)[taken.offset])
    data = np.frombuffer(taken.buffers()[2], dtype=np.uint8)
    return data[first : first + len(chosen) * size].reshape(len(chosen), size)


def _group(owner: Ints, rows: Bytes) -> FilterGroup:
    bits = 8 * rows.shape[1]
    if len(rows) < _FEW:
        return FilterGroup(bits, owner, rows, False)
    return FilterGroup(bits, owner, _transposed(rows), True)


def _transposed(rows: Bytes) -> Words:
    """Transpose to one row a bit, one bit a filter: 8 by 8 bits at a time (Hacker's Delight, section 7-3)."""
    count, size = rows.shape
    eighths = -(-count // 64) * 8
    slices = np.zeros((size, 8, eighths), dtype=np.uint8)
    step = max(1, _AT_ONCE // (8 * eighths))
    for at in range(0, size, step):
        some = np.zeros((min(step, size - at), 8 * eighths), dtype=np.uint8)
        some[:, :count] = rows[:, at : at + step].T
        words = some.view("<u8")
        for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
            moved = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
            words ^= moved ^ (moved << np.uint64(shift))
        slices[at : at + step] = words.view(np.uint8).reshape(-1, eighths, 8).transpose(0, 2, 1)
    return slices.reshape(8 * size, eighths).view(np.uint64)


def _plain(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
