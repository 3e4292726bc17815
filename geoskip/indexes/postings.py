"""Postings: the dictionaries of listed values for a dataset, with the files of each value.

ValueList, Formatted and Hybrid have one list of values per file (``values``); Prefix and Suffix have two (``whole`` and
``cut``). A *unit* is a value of a dictionary: a row has one value, so ``c >= 'm' AND c < 'n'`` needs one value that
satisfies both. Three more units follow the values: NULL (``nulls``), the unlisted values of files over the limit of the
list (``open``), and the content of files without a summary, which every condition keeps.

A condition on values is an :class:`~geoskip.conditions.Among` on keys (:mod:`geoskip.evaluation.values`), which selects
runs of units: two binary searches for each interval, in dictionaries that are derived once per snapshot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_of, plain
from geoskip.clauses import Files, Mask
from geoskip.conditions import AllOf, Among, AnyOf, Compare, Condition, ExistsClause, Intervals, UnitTable, any_holds
from geoskip.evaluation.values import CandidateValues, physical, runs_within, sort_order

Integers = NDArray[np.int64]
Runs = list[tuple[int, int]]
_FEW = 16


def passes(lists: Mapping[str, Intervals], part: str, *, null: bool, unlisted: bool) -> Condition:
    """Return the condition that a value lies in the intervals of its list, or is NULL, or unlisted.

    Parameters
    ----------
    lists
        The intervals of keys, by list.
    part
        The prefix of the field names.
    null, unlisted
        True if NULL and unlisted values pass.
    """
    flags = [Compare(f"{part}{flag}", "=", True) for flag, passing in (("nulls", null), ("open", unlisted)) if passing]
    return any_holds([*(Among(f"{part}{name}", intervals) for name, intervals in lists.items()), *flags])


@dataclass(frozen=True)
class Postings(UnitTable):
    """The units of all files, and the files of each unit."""

    dictionaries: Mapping[str, tuple[int, CandidateValues]]
    """For each list, the number of its first unit, and the distinct values in Spark's order, then NULL."""
    part: str
    starts: Integers
    """The position in ``owners`` of each unit's first file, and the end."""
    owners: NDArray[np.int32]
    """The files of all units, grouped by unit."""
    sizes: NDArray[np.int32]
    """The number of units of each file."""
    without_list: Mask | None
    """The files of the last two units, which may be most files of a Hybrid index; None if there is none."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def kind(self, name: str) -> pa.DataType:
        """Return the type of the physical values of a list."""
        return self.dictionaries[f"{self.part}{name}"][1].array.type

    def column(self, name: str) -> Mask:
        """Return the flag ``nulls`` or ``open`` of the units; for lists use :meth:`answer`."""
        return self._mask_of_runs(self._flag_runs(name))

    def answer(self, condition: AllOf | Among) -> Mask | None:
        return self._mask_of_runs(self._value_runs(condition)) if isinstance(condition, Among) else None

    def runs_of(self, condition: Condition) -> Runs | None:
        """Return the runs of units that satisfy a condition of :func:`passes`; None for other conditions."""
        found: Runs = []
        for one in condition.parts if isinstance(condition, AnyOf) else (condition,):
            if isinstance(one, Among):
                found += self._value_runs(one)
            elif isinstance(one, Compare):
                found += self._flag_runs(one.column)
            else:
                return None
        return [*found, (len(self) - 1, len(self))]

    def files_within(self, runs: Runs) -> Mask:
        """Mark the files with a unit in one of these runs, which are disjoint and ascending."""
        last = len(self) - 1
        if self.without_list is not None and runs[-2:] == [(last - 1, last), (last, last + 1)]:
            keep = self.files_within(runs[:-2])
            return np.logical_or(keep, self.without_list, out=keep)
        if len(runs) <= _FEW:  # as numbers, since arrays of a few take longer
            at = self.starts.item
            owners = [self.owners[at(first) : at(end)] for first, end in runs]
            if 2 * sum(map(len, owners)) <= len(self.owners):
                keep = np.zeros(len(self.sizes), dtype=bool)
                for files in owners:
                    keep[files] = True
                return keep
        return self._files_between(*self.starts[np.array(runs, dtype=np.int64).reshape(-1, 2).T])

    def files_with(self, units: Mask) -> Mask:
        edges = np.flatnonzero(np.diff(units, prepend=False, append=False))
        return self._files_between(*self.starts[edges.reshape(-1, 2).T])

    def _files_between(self, begin: Integers, end: Integers) -> Mask:
        """Mark the files in some runs of ``owners``."""
        if 2 * int((end - begin).sum()) <= len(self.owners):
            keep = np.zeros(len(self.sizes), dtype=bool)
            keep[self._owners_of(begin, end)] = True
            return keep
        others = self._owners_of(np.append(0, end), np.append(begin, len(self.owners)))
        return np.asarray(np.bincount(others, minlength=len(self.sizes)) < self.sizes)

    def _owners_of(self, begin: Integers, end: Integers) -> NDArray[np.int32]:
        """Return the files of some runs of ``owners``."""
        lengths = end - begin
        ends = np.cumsum(lengths)
        return np.asarray(self.owners[np.arange(lengths.sum()) + np.repeat(begin - ends + lengths, lengths)])

    def _value_runs(self, condition: Among) -> Runs:
        start, values = self.dictionaries[condition.column]
        places = runs_within(values.array.slice(0, len(values) - 1), condition.intervals)
        return [(first + start, end + start) for first, end in places] if start else places

    def _flag_runs(self, name: str) -> Runs:
        at = len(self) - (3 if name == f"{self.part}nulls" else 2)
        return [(at, at + 1)]

    def _mask_of_runs(self, places: Runs) -> Mask:
        """Mark some runs of units, and the unit of unknown content."""
        found = np.zeros(len(self), dtype=bool)
        for first, end in places:
            found[first:end] = True
        found[-1] = True
        return found


class ListedClause(ExistsClause):
    """A clause over listed values."""

    @abstractmethod
    def units(self, files: Files) -> Postings: ...

    def keep(self, files: Files) -> Mask:
        table = self.units(files)
        places = table.runs_of(self.where(table))
        return super().keep(files) if places is None else table.files_within(places)


def postings_of(
    files: Files, index: str, lists: Sequence[str] = ("values",), part: str = "", *, backwards: bool = False
) -> Postings:
    """Return the postings of an index, derived once per snapshot.

    Parameters
    ----------
    files
        The metadata of the files.
    index
        The name of the index.
    lists
        The fields that are lists.
    part
        The prefix of the field names, except ``rows``.
    backwards
        True if byte strings are reversed.
    """
    return files.cached(("postings", index, part), lambda: _make_postings(files, index, lists, part, backwards))


def _make_postings(files: Files, index: str, lists: Sequence[str], part: str, backwards: bool) -> Postings:
    (nulls, counted), (_, known) = counts_of(files, index, f"{part}nulls"), counts_of(files, index, "rows")
    known = known & counted
    stored = [_list(plain(files.summary(index, f"{part}{name}"))) for name in lists]
    listed = np.logical_and.reduce([known, *(np.asarray(array.is_valid()) for array in stored)])
    units, owners, dictionaries, count = [], [], {}, 0
    for name, array in zip(lists, stored, strict=True):
        held = array if listed.all() else array.filter(pa.array(listed))
        dictionary, codes = dictionary_of(physical(held.flatten()), backwards=backwards)
        units.append(codes + count)
        owners.append(np.repeat(np.flatnonzero(listed), np.asarray(held.value_lengths())))
        with_null = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
        dictionaries[f"{part}{name}"] = count, CandidateValues(with_null, ascending=True)
        count += len(dictionary)
    for at, some in enumerate((known & (nulls > 0), known & ~listed, ~known)):
        owners.append(np.flatnonzero(some))
        units.append(np.full(len(owners[-1]), count + at))
    pairs = np.sort(np.concatenate(units) << 32 | np.concatenate(owners))  # faster than an argsort and a take
    numbers, files_of_units = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count + 3))])
    sizes = np.bincount(files_of_units, minlength=len(files)).astype(np.int32)
    return Postings(dictionaries, part, starts, files_of_units, sizes, None if listed.all() else ~listed)


def _list(array: pa.Array) -> pa.Array:
    """Return the stored lists, null if missing."""
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    return array if is_list else pa.nulls(len(array), pa.list_(pa.int64()))


def dictionary_of(flat: pa.Array, *, backwards: bool = False) -> tuple[pa.Array, Integers]:
    """Return the distinct values without NULL in Spark's order, and the number of each entry's value.

    -0.0 and 0.0 are different values, all NaN are one.
    """
    real = pa.types.is_floating(flat.type)
    encoded = (reals_as_bits(flat) if real else flat).dictionary_encode()
    found = encoded.dictionary
    if real:
        found = pa.array(np.asarray(found).view(np.float64))
    elif backwards:
        found = reverse_bytes(found.cast(pa.large_binary()))
    order = sort_order(found)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return found.take(pa.array(order)), place[np.asarray(encoded.indices)]


def reals_as_bits(flat: pa.Array) -> pa.Array:
    """Return the bits of doubles, with one pattern for all NaN."""
    plain_values = np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64)
    plain_values[np.isnan(plain_values)] = np.nan
    return pa.array(plain_values.view(np.int64))


def reverse_bytes(array: pa.Array) -> pa.Array:
    """Reverse each byte string of an array.

    >>> reverse_bytes(pa.array([b"abc", b"", b"xy"], pa.large_binary())).to_pylist()
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
