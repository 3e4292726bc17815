"""Postings: one dictionary of listed values for a dataset, with the files of each value.

A *unit* is a value of the dictionary. Three more units follow the values: NULL, the values that a file over the limit
of its list did not store, and the content of files without a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_of
from geoskip.clauses import Files, Mask
from geoskip.evaluation import CandidateValues, Outcomes, physical
from geoskip.evaluation.values import ascending

__all__ = ["Postings", "dictionary_of", "postings_of", "reals_as_bits"]

Integers = NDArray[np.int64]
_FEW = 16


@dataclass(frozen=True)
class Postings:
    """The units of all files: a dictionary of values, and the files of each unit."""

    values: CandidateValues
    """The dictionary in Spark's order, then NULL."""
    starts: Integers
    """The place in ``owners`` of each unit's first file; one more for the end."""
    owners: NDArray[np.int32]
    """The files of all units, unit by unit."""
    sizes: NDArray[np.int32]
    """The number of units of each file."""

    @property
    def units(self) -> int:
        """The number of units: the values, NULL, unlisted values, and unknown content."""
        return len(self.values) + 2

    def keep_units(self, found: Outcomes, wanted: int, *, unlisted: bool) -> Mask:
        """Mark the units that may give a wanted outcome.

        Parameters
        ----------
        found
            The outcomes of all listed values.
        wanted
            The bits of wanted outcomes.
        unlisted
            True if values that are not listed may give it.
        """
        keep = np.empty(self.units, dtype=bool)
        np.not_equal(found & np.uint8(wanted), 0, out=keep[:-2])
        keep[-2:] = unlisted, True
        return keep

    def files_of(self, units: Mask) -> Mask:
        """Return the mask of the files that hold one of the kept units."""
        chosen = np.flatnonzero(units)
        if 2 * len(chosen) <= len(units):
            keep = np.zeros(len(self.sizes), dtype=bool)
            keep[self._owners_of(chosen)] = True
            return keep
        keep = self.sizes > 0
        others, counts = np.unique(self._owners_of(np.flatnonzero(~units)), return_counts=True)
        keep[others] = self.sizes[others] > counts
        return keep

    def files_within(self, spans: Sequence[tuple[int, int]]) -> Mask:
        """Return the mask of the files with a value in one of the half-open ranges of the dictionary.

        Files with unlisted values or unknown content are kept.
        """
        keep = self._unlisted.copy()
        for low, high in spans:
            keep[self.owners[self.starts[low] : self.starts[high]]] = True
        return keep

    @cached_property
    def _unlisted(self) -> Mask:
        keep = np.zeros(len(self.sizes), dtype=bool)
        keep[self.owners[self.starts[-3] :]] = True
        return keep

    def _owners_of(self, units: Integers) -> NDArray[np.int32]:
        """Return the files of these units, once a unit."""
        first, last = self.starts[units], self.starts[units + 1]
        if len(units) <= _FEW:
            parts = [self.owners[low:high] for low, high in zip(first.tolist(), last.tolist(), strict=True)]
            return parts[0] if len(parts) == 1 else np.concatenate([self.owners[:0], *parts])
        lengths = last - first
        ends = np.cumsum(lengths)
        return np.asarray(self.owners[np.arange(ends[-1]) + np.repeat(first - ends + lengths, lengths)])


def postings_of(files: Files, index: str, part: str = "") -> Postings:
    """Return the postings of an index, derived once a snapshot; ``part`` begins the names of its fields."""
    return files.cached(("lists", index, part), lambda: _make_postings(files, index, part))


def _make_postings(files: Files, index: str, part: str) -> Postings:
    stored, listed = _stored(files.summary(index, f"{part}values"), len(files))
    (nulls, counted), (_, known) = counts_of(files, index, f"{part}nulls"), counts_of(files, index, "rows")
    known = known & counted
    lengths = np.asarray(stored.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    lengths[~known] = 0
    flat = physical(stored.filter(pa.array(known)).flatten())
    dictionary, codes = dictionary_of(flat)
    owner = np.repeat(np.arange(len(files)), lengths)
    special = [np.flatnonzero(known & (nulls > 0)), np.flatnonzero(known & ~listed), np.flatnonzero(~known)]
    count = len(dictionary)
    units = np.concatenate([codes, *(np.full(len(some), count + at) for at, some in enumerate(special))])
    owners = np.concatenate([owner, *special])
    starts = np.concatenate([[0], np.cumsum(np.bincount(units, minlength=count + 3))])
    pairs = np.sort(units << 32 | owners)  # quicker than an argsort and a take
    with_null = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    sizes = np.bincount(owners, minlength=len(files)).astype(np.int32)
    return Postings(CandidateValues(with_null, ascending=True), starts, (pairs & 0xFFFFFFFF).astype(np.int32), sizes)


def _stored(array: Any, length: int) -> tuple[Any, Mask]:
    """Return the stored lists, and the mask of the files that have one."""
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        return pa.nulls(length, pa.list_(pa.int64())), np.zeros(length, dtype=bool)
    return array, np.asarray(array.is_valid())


def dictionary_of(flat: pa.Array) -> tuple[pa.Array, Integers]:
    """Return the distinct values without NULL in Spark's order, and each value's number.

    -0.0 and 0.0 are two values, all NaN are one.
    """
    real = pa.types.is_floating(flat.type)
    encoded = (reals_as_bits(flat) if real else flat).dictionary_encode()
    found = encoded.dictionary
    if real:
        found = pa.array(np.asarray(found).view(np.float64))
    order = ascending(found)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return found.take(pa.array(order)), place[np.asarray(encoded.indices)]


def reals_as_bits(flat: pa.Array) -> pa.Array:
    """Return the bits of doubles, with one pattern for all NaN."""
    plain = np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64)
    plain[np.isnan(plain)] = np.nan
    return pa.array(plain.view(np.int64))
