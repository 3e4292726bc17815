"""Hybrid: a list of values or a Bloom filter in each file, whichever costs less.

The index of Extensible Data Skipping, section IV-E.

A list is exact, and small for a file with few values; a filter is small for a file with many values, but its false
positives cause unnecessary reads. The cost of equality queries is the number of bits read of metadata and data. With v
distinct values of b bits, a filter's rate of false positives f and the least share psi of files that queries read, the
list is better if::

    v * b  <  bits of the filter  +  (1 - psi) * f * 8 * bytes of the file

The paper's example, a file of 64 MB with values of 64 characters, psi = f = 0.01, gives 10,088 values; the threshold
differs between files, so it is not a constant here. A file with more than 131,072 values or 16 MiB of text always gets
a filter, since its list is not completed.

*Stored per file*: ``values`` as in :mod:`geoskip.indexes.valuelist` or ``filters`` and ``version`` as in
:mod:`geoskip.indexes.bloom`, never both; ``nulls`` and ``rows``.

*Collecting*: lists up to a moderate size, else hashes. When the summary of the whole file is complete and its size is
known, the rule is applied, and a list that costs more is replaced by one filter.

*Why skipping is sound*: each clause is the AND of the list's clause and the filter's clause. A file without a list is
kept by the first, a file without filters by the second, so the stored one decides; the modules of both show why each is
sound.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause, all_of
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.bloom import BloomFilter, HashedPart, filter_details
from geoskip.indexes.bloom_hash import hashes_of
from geoskip.indexes.file_statistics import FileStatistics, field_of
from geoskip.indexes.stored_bounds import CachedSummary
from geoskip.indexes.valuelist import (
    bytes_of,
    list_clause,
    list_of,
    list_statistics,
    list_type,
    merged_list,
    sort_values,
)
from geoskip.predicates import Predicate

_MOST_VALUES = 1 << 17
_MOST_BYTES = 16 << 20


@index
@dataclass(frozen=True)
class Hybrid(Index):
    """A list of the distinct values, or a Bloom filter where that costs less; a decision a file.

    Supports the conditions of ValueList in files with a list, and equality and IN in files with a filter. ``fpp`` is
    the filters' rate of false positives, ``psi`` the expected minimum share of files that queries read.

    >>> str(Hybrid("user_id")), str(Hybrid("user_id", fpp=0.001))
    ('hybrid(user_id)', 'hybrid(user_id, fpp=0.001)')
    """

    expr: str
    fpp: float = 0.01
    psi: float = 0.01
    kind: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        require_text(self, self.expr)
        try:
            BloomFilter(self.expr, self.fpp)
        except InvalidSpecificationError as error:
            raise InvalidSpecificationError(str(error).replace("BloomFilter", "Hybrid", 1)) from None
        if isinstance(self.psi, bool) or not isinstance(self.psi, int | float) or not 0 <= self.psi <= 1:
            raise InvalidSpecificationError(
                f"Hybrid({self.expr!r}) needs the share of files that queries must read, from 0 to 1, got "
                f"psi={self.psi!r}; 0.01 serves well"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<values: list, filters: list<binary>, version, nulls, rows>``."""
        (column,) = columns
        values = list_type(column, self.kind).field("values")
        filters = BloomFilter(self.expr, self.fpp).metadata_type(column)
        return pa.struct([values, *(filters.field(number) for number in range(filters.num_fields))])

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the unsorted list of values of a file or a part; hashes if the list would be long."""
        (array,) = values
        found = list_of(array, _MOST_VALUES, _MOST_BYTES, lazily=True)
        if found["values"] is not None:
            part = ListedPart(_with_list(found))
            part.array = weakref.ref(array)
            return part
        hashed = HashedPart.from_array(array, self.fpp)
        return None if hashed is None else _without_list(hashed)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return one list of all parts' values, or their filters."""
        found = merged_list(summaries, _MOST_VALUES, _MOST_BYTES)
        if found["values"] is not None:
            return _with_list(found)
        parts = [part if part["values"] is None else self._as_filter(part) for part in summaries]
        return _without_list(HashedPart.from_parts(parts, self.fpp))

    def for_files(self, summaries: Sequence[Summary], sizes: Sequence[int]) -> list[Summary]:
        """Keep each file's list if it costs less than a filter; build small filters together."""
        found = list(summaries)
        arrays: dict[int, pa.Array] = {}
        for number, (summary, size) in enumerate(zip(summaries, sizes, strict=True)):
            values = summary["values"]
            if values is None:
                continue
            if not values or list_costs_less(_bits_of(values), len(values), self.fpp, self.psi, size):
                found[number] = {**summary, "values": sort_values(values)}
                continue
            array = summary.array() if isinstance(summary, ListedPart) else None
            if array is None:
                found[number] = self._as_filter(summary)
            else:
                arrays[number] = array
        for number, part in zip(arrays, HashedPart.from_arrays(list(arrays.values()), self.fpp), strict=True):
            assert part is not None
            found[number] = _without_list(part)
        return found

    def build_note(self, summaries: pa.ChunkedArray) -> str:
        """Count the files with a list and those with a filter."""
        lists = pc.sum(pc.is_valid(pc.struct_field(summaries, "values"))).as_py() or 0
        filters = pc.sum(pc.is_valid(pc.struct_field(summaries, "filters"))).as_py() or 0
        return f"{lists:,} lists of values, {filters:,} Bloom filters"

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the values of files with a list; the size of the filter of others."""
        details = filter_details(field_of(summaries, "filters"), self.fpp)
        return (replace(list_statistics(*self.subject(), summaries), details=details),)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition that a vertex implies for the list, or for the filter of files without a list."""
        found = [list_clause(str(self), self.bound[0], node), self._filters.clause(node)]
        clauses = [clause for clause in found if clause is not None]
        return all_of(clauses) if clauses else None

    @property
    def _filters(self) -> BloomFilter:
        """The BloomFilter index on the filters in the same summaries."""
        filters = BloomFilter(self.expr, self.fpp).bind(self.bound)
        object.__setattr__(filters, "_text", str(self))
        assert isinstance(filters, BloomFilter)
        return filters

    def _as_filter(self, summary: Summary) -> HashedPart:
        """Return a summary with a filter in place of its list."""
        # the hash does not depend on the type of physical values
        hashes = hashes_of(pa.array(list(summary["values"])))
        assert hashes is not None
        return _without_list(HashedPart.from_hashes(hashes, self.fpp, nulls=summary["nulls"], rows=summary["rows"]))


class ListedPart(CachedSummary):
    """A summary with a list, and a weak reference to its array, to limit memory."""

    array: Callable[[], pa.Array | None] = staticmethod(lambda: None)


def list_costs_less(list_bits: float, distinct: int, fpp: float, psi: float, file_bytes: int) -> bool:
    """True if a list costs fewer bits than a filter with the files read for its false positives.

    Parameters
    ----------
    list_bits
        The size of the list.
    distinct
        The number of values.
    fpp
        The rate of false positives of the filter.
    psi
        The least share of the files that queries read.
    file_bytes
        The size of the file.


    In the paper's example, a list costs less up to 10,088 values.

    >>> [list_costs_less(n * 64 * 8, n, 0.01, 0.01, 64_000_000) for n in (10_088, 10_089)]
    [True, False]
    """
    filter_bits = -distinct * math.log(fpp) / math.log(2) ** 2
    return list_bits < filter_bits + (1 - psi) * fpp * 8 * file_bytes


def _bits_of(values: Sequence[Any]) -> int:
    """Return the bits of a list: those of text and binary values, 64 for any other value."""
    size = bytes_of(values)
    return 64 * len(values) if size is None else 8 * size


def _with_list(summary: Summary) -> Summary:
    return {**summary, "filters": None, "version": None}


def _without_list(part: HashedPart) -> HashedPart:
    """Return a copy without a list; the part itself may be shared with a BloomFilter."""
    part = part.copy()
    part["values"] = None
    return part
