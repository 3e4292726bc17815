"""BloomFilter: a Bloom filter of the values in each file.

The index of Extensible Data Skipping, section V-A and table I.

*Stored per file*: ``filters``, usually one, with a size computed from the file's number of distinct values and the rate
of false positives (:mod:`geoskip.indexes.bloom_hash`); ``version``, of the hash; ``nulls`` and ``rows``.

*Collecting*: the distinct values are hashed and their bits set. *Merging*: while a task reads a file, the parts keep
their hashes, so that the file gets one filter of the right size. Parts from several tasks have no hashes: then the file
stores one filter per part and is kept if any of them may contain the value, so their rates of false positives add up. A
file that would need more than 8 MB stores only counts and is kept.

*Why skipping is sound*: the bits of every value of the file are set, and values that are equal in Spark have one hash
in types of any width. So a value with a bit that is not set does not occur; ``x = 5`` and ``x IN (5, 7)`` are then TRUE
for no row of the file. A filter has no order, and never proves that a value occurs: NOT of an equality and tests for
NULL are decided by the counts only.

*Cost*: 9.6 bits per distinct value at a rate of 0.01, up to 50 % more by rounding; hashing; for a query, a few bits of
each file.

*Probing*: the filters of one size are transposed into m *slices* with one bit per file. One value needs the AND of k
slices: 0.9 MB for a million filters of 64 bytes, instead of all 64 MB. If there are few filters of a size, they are
probed as stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds import index_leaf
from geoskip.bounds.interval import plain
from geoskip.bounds.sort_keys import IncomparableError, Ints
from geoskip.clauses import Clause, Files, Mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.bloom_hash import (
    AT_ONCE,
    VERSION,
    Words,
    filter_of,
    filters_for,
    hashes_of,
    hashes_of_each,
    hashes_of_keys,
    keys_of,
    places_of,
    places_of_one,
    probes_for,
)
from geoskip.indexes.file_statistics import FileStatistics, field_of, zeros
from geoskip.indexes.minmax import IS_NAN
from geoskip.indexes.range_clauses import HasNulls, HasValues
from geoskip.indexes.stored_bounds import CachedSummary, bound_type, is_shared, share
from geoskip.predicates import (
    Call,
    Cast,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
    StartsWith,
)
from geoskip.types import sql_type

_MANY = 4096
"""The most values of an IN that are probed: a longer list has a value in almost any filter."""
_FEW = 256
"""Up to this number, the filters of one size are probed as stored."""
_SHORT = 384
"""Up to this number of words, all bits are unpacked."""


@index
@dataclass(frozen=True)
class BloomFilter(Index):
    """A Bloom filter of each file's values.

    For ``= <=> IN``, also through widening casts, and ``IS NULL``.

    ``fpp`` is the rate of false positives: the expected share of the files without a value that are read.

    >>> str(BloomFilter("user_id")), str(BloomFilter("user_id", fpp=0.001))
    ('bloomfilter(user_id)', 'bloomfilter(user_id, fpp=0.001)')
    """

    expr: str
    fpp: float = 0.01
    kind: ClassVar[str] = "bloomfilter"

    def __post_init__(self) -> None:
        require_text(self, self.expr)
        if isinstance(self.fpp, bool) or not isinstance(self.fpp, int | float) or not 1e-9 <= self.fpp <= 0.5:
            raise InvalidSpecificationError(
                f"BloomFilter({self.expr!r}) needs a rate of false positives from 1e-9 to 0.5, got fpp={self.fpp!r}; "
                "0.01 serves well"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<filters: list<binary>, version, nulls, rows>``."""
        (column,) = columns
        try:
            bound_type(column, self.kind)
        except UnsupportedColumnError as error:
            raise UnsupportedColumnError(str(error).replace("an ordered type", "values that can be hashed")) from None
        filters = pa.list_(pa.large_binary())
        return pa.struct([("filters", filters), ("version", pa.int8()), ("nulls", pa.int64()), ("rows", pa.int64())])

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the filter of one file's values, or of a part of them."""
        return HashedPart.from_array(values[0], self.fpp)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Build one filter from all hashes if the parts still have them, else list the parts' filters."""
        return HashedPart.from_parts(summaries, self.fpp)

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the counts, and the size of the filters."""
        details = filter_details(field_of(summaries, "filters"), self.fpp)
        nulls = field_of(summaries, "nulls")
        nans = None if sql_type(self.subject()[1]).is_floating else zeros(nulls)
        return (FileStatistics(*self.subject(), nulls=nulls, nans=nans, details=details),)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition on filters and counts that a vertex implies."""
        name = str(self)
        match node:
            case IsNull(child) if self.reads(child):
                return HasNulls(index_leaf(name))
            case Comparison("=", child, Literal() as literal) if (casts := self._casts(child)) is not None:
                return equality(name, self.bound[0], casts, (literal,), self.fpp)
            case In(child, values) if (casts := self._casts(child)) is not None:
                return equality(name, self.bound[0], casts, values, self.fpp)
            case Call(_, (child,)) if IS_NAN.is_called(node) and (casts := self._casts(child)) is not None:
                return equality(name, self.bound[0], casts, (Literal(math.nan),), self.fpp)
            case Comparison("<" | "<=" | ">" | ">=", child, Literal()) if self._casts(child) is not None:
                return HasValues(name)
            case Not(Comparison("=", child, Literal()) | In(child) | IsNull(child)) if self._casts(child) is not None:
                return HasValues(name)
            case (StartsWith(child) | EndsWith(child) | Contains(child) | Like(child)) | Not(
                StartsWith(child) | EndsWith(child) | Contains(child) | Like(child)
            ) if self.reads(child):
                return HasValues(name)
        return None

    def _casts(self, node: Predicate) -> tuple[str, ...] | None:
        """Return the types that the indexed expression is cast to, innermost first, or None."""
        if self.reads(node):
            return ()
        below = self._casts(node.child) if isinstance(node, Cast) else None
        return (*below, node.type) if below is not None and isinstance(node, Cast) else None


def filter_details(filters: pa.Array, fpp: float) -> pa.Array:
    """Return the number and the bits of each file's filters, and their rate of false positives, as JSON.

    >>> filter_details(pa.array([[b"12345678"], None]), 0.01).to_pylist()
    ['{"filters": 1, "bits": 64, "false_positive_rate": 0.01}', None]
    """
    counts = filters.value_lengths().to_pylist()
    sizes = iter(pc.binary_length(filters.flatten()).fill_null(0).to_pylist())
    shown = [
        None if n is None else {"filters": n, "bits": 8 * sum(islice(sizes, n)), "false_positive_rate": fpp}
        for n in counts
    ]
    return pa.array([None if one is None else json.dumps(one) for one in shown], pa.string())


def equality(name: str, over: Predicate, casts: Sequence[str], literals: Sequence[Literal], fpp: float) -> Clause:
    """Return a clause for files in which an indexed expression may be equal to one of the literals.

    Parameters
    ----------
    name
        The index.
    over
        The indexed expression.
    casts
        The types that the query casts it to, innermost first.
    literals
        Values of the last type, none of them NULL.
    fpp
        The rate of false positives of the filters.
    """
    kind = over.type
    try:
        if kind is None or len(literals) > _MANY:
            raise IncomparableError("nothing is known")
        keys = [key for literal in literals for key in keys_of(kind, casts, literal)]
    except IncomparableError:
        return HasValues(name)
    text = str(literals[0]) if len(literals) == 1 else f"one of {len(literals)} values"
    return FilterMayHold(name, tuple(hashes_of_keys(keys).tolist()), probes_for(fpp), text)


@dataclass(frozen=True)
class FilterMayHold(Clause):
    """A filter of the file may contain one of the hashed values."""

    name: str
    hashes: tuple[int, ...]
    probes: int
    text: str

    def keep(self, files: Files) -> Mask:
        return filters_of(files, self.name).may_hold(np.array(self.hashes, dtype=np.uint64), self.probes)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, "filters"), (self.name, "version"))

    def __str__(self) -> str:
        return f"{self.name} may hold {self.text}"


class HashedPart(CachedSummary):
    """A summary with filters that keeps its hashes until the file is completely read."""

    hashes: Words | None = None

    @classmethod
    def from_hashes(cls, hashes: Words, fpp: float, *, nulls: int, rows: int) -> HashedPart:
        """Return the summary of hashed values; ``filters`` is None if the filter would be too large.

        Parameters
        ----------
        hashes
            Distinct hashes of the values.
        fpp
            The false positive probability.
        nulls, rows
            Numbers of NULLs and of all rows.
        """
        return cls._make(filter_of(hashes, fpp), hashes, nulls, rows)

    @classmethod
    def _make(cls, made: bytes | None, hashes: Words, nulls: int, rows: int) -> HashedPart:
        part = cls(filters=None if made is None else [made], version=VERSION, nulls=nulls, rows=rows)
        part.hashes = hashes
        return part

    @classmethod
    def from_array(cls, array: pa.Array, fpp: float) -> HashedPart | None:
        """Return the summary of an array; None if its values cannot be hashed."""
        return share(array, ("filter", fpp), lambda: cls._from_array(array, fpp))

    @classmethod
    def _from_array(cls, array: pa.Array, fpp: float) -> HashedPart | None:
        hashes = hashes_of(array)
        return None if hashes is None else cls.from_hashes(hashes, fpp, nulls=array.null_count, rows=len(array))

    @classmethod
    def from_arrays(cls, arrays: Sequence[pa.Array], fpp: float) -> list[HashedPart | None]:
        """Return the summaries of several arrays, processed together to save calls for small ones."""
        new = [array for array in arrays if not is_shared(array, ("filter", fpp))]
        hashed = [(array, found) for array, found in zip(new, hashes_of_each(new), strict=True) if found is not None]
        made = filters_for([found for _, found in hashed], fpp)
        parts = {
            id(array): share(array, ("filter", fpp), partial(cls._make, each, found, array.null_count, len(array)))
            for (array, found), each in zip(hashed, made, strict=True)
        }
        return [parts[id(array)] if id(array) in parts else cls.from_array(array, fpp) for array in arrays]

    def copy(self) -> HashedPart:
        """Return a copy that may be changed."""
        part = HashedPart(self)
        part.hashes = self.hashes
        return part

    @classmethod
    def from_parts(cls, parts: Sequence[Summary], fpp: float) -> HashedPart:
        """Return the summary of a file, given those of its parts."""
        nulls, rows = (sum(part[name] for part in parts) for name in ("nulls", "rows"))
        hashes = [part.hashes for part in parts if isinstance(part, HashedPart) and part.hashes is not None]
        if len(hashes) == len(parts):
            return cls.from_hashes(
                np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes])), fpp, nulls=nulls, rows=rows
            )
        lists = [part["filters"] for part in parts]
        filters = None if None in lists else [f for some in lists for f in some]
        return cls(filters=filters, version=VERSION, nulls=nulls, rows=rows)


@dataclass(frozen=True)
class FilterGroup:
    """The filters of one size: slices with a row per bit (in words of 64 filters), or a row per filter."""

    bits: int
    owner: Ints
    """The file of each filter."""
    table: NDArray[np.uint64] | NDArray[np.uint8]
    sliced: bool

    def files_holding(self, hashes: Words, probes: int) -> Ints:
        """Return the files with a filter that may contain one of the values; for filters in rows."""
        return self.owner[self._in_rows(np.stack(list(places_of(hashes, probes, self.bits)), axis=1))]

    def slices(self, hashes: Words, probes: int) -> Words:
        """Return one bit per filter, set if it may contain one of the values; for filters in slices."""
        if len(hashes) == 1:
            chosen = places_of_one(int(hashes[0]), probes, self.bits)
            found: Words
            if self.table.shape[1] < _SHORT:  # one copy of all is faster than a call per slice
                found = np.bitwise_and.reduce(self.table.take(chosen, axis=0), axis=0)
                return found
            found = self.table[chosen[0]].copy()
            for place in chosen[1:]:
                found &= self.table[place]
            return found
        places = np.stack(list(places_of(hashes, probes, self.bits)), axis=1)
        found = np.zeros(self.table.shape[1], dtype=np.uint64)
        step = max(1, AT_ONCE // (8 * self.table.shape[1] * probes))
        for at in range(0, len(places), step):
            each = np.bitwise_and.reduce(self.table[places[at : at + step]], axis=1)
            found |= np.bitwise_or.reduce(each, axis=0)
        return found

    def _in_rows(self, places: Ints) -> Ints:
        held = np.zeros(len(self.owner), dtype=bool)
        step = max(1, AT_ONCE // (len(self.owner) * places.shape[1]))
        for at in range(0, len(places), step):
            some = places[at : at + step]
            bits = (self.table[:, some >> 3] >> (some & 7).astype(np.uint8)) & np.uint8(1)
            held |= np.any(np.all(bits, axis=2), axis=1)
        return np.flatnonzero(held)


@dataclass(frozen=True)
class BloomFilters:
    """The filters of all files, grouped by size; a file may have several, one per part."""

    groups: tuple[FilterGroup, ...]
    unknown: Mask
    any_unknown: bool
    owner: Ints
    """The file of each bit of all sliced groups, in order, each group padded to whole words."""
    in_order: bool
    """True if one sliced group has exactly one filter of each file, in the order of the files."""

    def may_hold(self, hashes: Words, probes: int) -> Mask:
        """Return one entry per file, False only if it contains none of the values."""
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


def filters_of(files: Files, name: str) -> BloomFilters:
    """Return the filters of an index, grouped once per snapshot."""
    return files.cached((name, "bit slices"), lambda: _filters_by_size(files, name))


def _places_in(words: Words) -> Ints:
    """Return the positions of set bits, lowest first, in 64-bit words that mostly have none or one."""
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


def _filters_by_size(files: Files, name: str) -> BloomFilters:
    stored, versions = (plain(files.summary(name, field)) for field in ("filters", "version"))
    if not pa.types.is_list(stored.type) or not pa.types.is_integer(versions.type):
        return BloomFilters((), np.ones(len(files), dtype=bool), True, np.zeros(0, dtype=np.int64), False)
    known = np.asarray(stored.is_valid()) & (np.asarray(versions.fill_null(-1)) == VERSION)
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


def _rows(values: pa.Array, chosen: Ints, size: int) -> NDArray[np.uint8]:
    """Return the bytes of some filters of one size, one row each."""
    taken = values if len(chosen) == len(values) else values.take(pa.array(chosen))
    first = int(np.frombuffer(taken.buffers()[1], dtype=np.int64)[taken.offset])
    data = np.frombuffer(taken.buffers()[2], dtype=np.uint8)
    return data[first : first + len(chosen) * size].reshape(len(chosen), size)


def _group(owner: Ints, rows: NDArray[np.uint8]) -> FilterGroup:
    bits = 8 * rows.shape[1]
    if len(rows) < _FEW:
        return FilterGroup(bits, owner, rows, False)
    return FilterGroup(bits, owner, _transpose(rows), True)


def _transpose(rows: NDArray[np.uint8]) -> Words:
    """Transpose to one row per bit, one bit per filter: 8 by 8 bits at once (Hacker's Delight, 7-3)."""
    count, size = rows.shape
    eighths = -(-count // 64) * 8
    slices = np.zeros((size, 8, eighths), dtype=np.uint8)
    step = max(1, AT_ONCE // (8 * eighths))
    for at in range(0, size, step):
        some = np.zeros((min(step, size - at), 8 * eighths), dtype=np.uint8)
        some[:, :count] = rows[:, at : at + step].T
        words = some.view("<u8")
        for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
            moved = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
            words ^= moved ^ (moved << np.uint64(shift))
        slices[at : at + step] = words.view(np.uint8).reshape(-1, eighths, 8).transpose(0, 2, 1)
    return slices.reshape(8 * size, eighths).view(np.uint64)
