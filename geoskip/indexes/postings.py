"""The lists of values of all files: one dictionary for the dataset, with the files of each value beside it.

Derived once a snapshot from what the files store. A *unit* is a value: a row has one value, so a row that makes
``a AND b`` TRUE over the same expression has a value that makes both TRUE, and merging two clauses value by value
decides the AND exactly. After the dictionary's values come three more units: NULL, the values that a file over the
limit did not store, and whatever a file without a summary may hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_of
from geoskip.clauses import Files, Mask, UnitClause
from geoskip.evaluation import (
    ANY,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    CandidateValues,
    Outcomes,
    outcomes,
    physical,
    places_equal,
)
from geoskip.evaluation.values import ascending
from geoskip.predicates import Comparison, In, IsNull, Not, Predicate

__all__ = ["ListMeets", "Postings", "distinct", "lists_of", "reals_as_bits"]

Integers = NDArray[np.int64]
_WORDS = {IS_TRUE: "is TRUE", IS_FALSE: "is FALSE", IS_NULL: "is NULL"}


@dataclass(frozen=True)
class Postings:
    """Every file's values as numbers of a dictionary's."""

    values: CandidateValues
    """The dictionary in Spark's order, and NULL at its end."""
    starts: Integers
    """Where the files of each unit begin in ``owners``; one more for the end."""
    owners: NDArray[np.int32]
    """The files of all units, unit by unit."""
    sizes: NDArray[np.int32]
    """How many units each file has."""

    @property
    def units(self) -> int:
        """The values, NULL, what is not listed, what is not known."""
        return len(self.values) + 2

    def keep_units(self, found: Outcomes, wanted: int, *, unlisted: bool) -> Mask:
        """The units that may give a wanted outcome, where the values and NULL give these."""
        keep = np.empty(self.units, dtype=bool)
        np.not_equal(found & np.uint8(wanted), 0, out=keep[:-2])
        keep[-2:] = unlisted, True
        return keep

    def files_of(self, units: Mask) -> Mask:
        """The files that hold one of the kept units."""
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
        """The files that hold a value from one of some places to another, or one that is not listed or not known."""
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
        """The files of these units, once a unit."""
        first, last = self.starts[units], self.starts[units + 1]
        if len(units) <= _FEW:
            parts = [self.owners[low:high] for low, high in zip(first.tolist(), last.tolist(), strict=True)]
            return parts[0] if len(parts) == 1 else np.concatenate([self.owners[:0], *parts])
        lengths = last - first
        ends = np.cumsum(lengths)
        return np.asarray(self.owners[np.arange(ends[-1]) + np.repeat(first - ends + lengths, lengths)])


_FEW = 16


def lists_of(files: Files, index: str, part: str = "") -> Postings:
    """The lists of an index, made once for a set of files; ``part`` begins the names of its fields."""
    return files.cached(("lists", index, part), lambda: _made(files, index, part))


def _made(files: Files, index: str, part: str) -> Postings:
    stored, listed = _stored(files.summary(index, f"{part}values"), len(files))
    (nulls, counted), (_, known) = counts_of(files, index, f"{part}nulls"), counts_of(files, index, "rows")
    known = known & counted
    lengths = np.asarray(stored.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    lengths[~known] = 0
    flat = physical(stored.filter(pa.array(known)).flatten())
    dictionary, codes = distinct(flat)
    owner = np.repeat(np.arange(len(files)), lengths)
    special = [np.flatnonzero(known & (nulls > 0)), np.flatnonzero(known & ~listed), np.flatnonzero(~known)]
    count = len(dictionary)
    units = np.concatenate([codes, *(np.full(len(some), count + at) for at, some in enumerate(special))])
    owners = np.concatenate([owner, *special])
    starts = np.concatenate([[0], np.cumsum(np.bincount(units, minlength=count + 3))])
    pairs = np.sort(units << 32 | owners)  # quicker than to sort by one and take the other along
    with_null = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    sizes = np.bincount(owners, minlength=len(files)).astype(np.int32)
    return Postings(CandidateValues(with_null, ascending=True), starts, (pairs & 0xFFFFFFFF).astype(np.int32), sizes)


def _stored(array: Any, length: int) -> tuple[Any, Mask]:
    """The stored lists, and which files have one."""
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        return pa.nulls(length, pa.list_(pa.int64())), np.zeros(length, dtype=bool)
    return array, np.asarray(array.is_valid())


def distinct(flat: pa.Array) -> tuple[pa.Array, Integers]:
    """The different ones of physical values without NULL, in Spark's order, and each value's number among them.

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
    """The bits of doubles, one for all NaN."""
    plain = np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64)
    plain[np.isnan(plain)] = np.nan
    return pa.array(plain.view(np.int64))


@dataclass(frozen=True)
class ListMeets(UnitClause):
    """Some value, or NULL, may give the condition a wanted outcome.

    What was found is kept for the files that it was found for: when a report asks again, the engine's expressions of
    the query are gone.
    """

    name: str
    over: Predicate
    node: Predicate
    wanted: int = IS_TRUE
    part: str = ""
    """What begins the names of the fields, where an index has several lists a file."""
    _found: list[tuple[Postings, Any]] = field(default_factory=list, compare=False, repr=False)

    @property
    def index(self) -> str:  # type: ignore[override]
        """Whose units these are."""
        return f"{self.name}.{self.part}" if self.part else self.name

    def keep(self, files: Files) -> Mask:
        lists = lists_of(files, self.name, self.part)
        spans = places_equal(self.node, self.over, lists.values) if self.wanted == IS_TRUE else None
        if spans is not None and self.unlisted():
            return lists.files_within(spans)
        return super().keep(files)

    def implies(self, other: UnitClause) -> bool:
        """A value that is equal to another is not NULL."""
        match self.node, other:
            case (Comparison("=") | In(), ListMeets(_, over, IsNull(child), wanted)) if self.wanted == IS_TRUE:
                return over == child == self.over and wanted == IS_FALSE
        return False

    def keep_units(self, files: Files) -> Mask:
        lists = lists_of(files, self.name, self.part)
        for known, packed in self._found:
            if known is lists:
                return np.unpackbits(packed, count=lists.units).view(bool)
        found = outcomes(self.node, self.over, lists.values)
        keep = lists.keep_units(found, self.wanted, unlisted=self.unlisted())
        self._found.append((lists, np.packbits(keep)))
        return keep

    def files_of(self, files: Files, units: Mask) -> Mask:
        return lists_of(files, self.name, self.part).files_of(units)

    def unlisted(self) -> bool:
        """May a value that is not NULL give a wanted outcome, whatever it is?"""
        match self.node:
            case IsNull(child) | Not(IsNull(child)) if child == self.over:
                is_null = isinstance(self.node, IsNull)
                return bool(self.wanted & (IS_FALSE if is_null else IS_TRUE))
        return True

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.name, field) for field in (f"{self.part}values", f"{self.part}nulls", "rows"))

    def __str__(self) -> str:
        words = _WORDS.get(self.wanted, "may be anything" if self.wanted == ANY else "may be")
        return f"a value of {self.name} for which {self.node} {words}"
