"""Hybrid: a list of values or a Bloom filter, file by file, whichever costs less (Extensible Data Skipping, IV-E).

A list is exact and small where a file has few values; a filter is small where it has many, at the price of files that
are read in vain. Equality queries cost, in bits, what is read of metadata and of data: with v distinct values of b
bits, a filter's rate of false positives f and the share psi of files that must be read at least, the list is the
better one while::

    v * b  <  bits of the filter  +  (1 - psi) * f * 8 * bytes of the file

The paper's example, a file of 64 MB with values of 64 characters, psi = f = 0.01, gives 10,088 values; another file has
another threshold, so it is no constant here. A file with more than 131,072 values or 16 MiB of text has a filter in any
case: it was never listed whole.

*Stored a file*: ``values`` as in :mod:`geoskip.indexes.valuelist` or ``filters`` and ``version`` as in
:mod:`geoskip.indexes.bloom`, never both; ``nulls`` and ``rows``.

*Collecting*: lists while they are of moderate size, hashes beyond. When all parts of a file are there and its size is
known, the rule decides, and a list that costs too much is made into one filter.

*Why skipping is sound*: each clause is that of the list and that of the filter in one. A file without a list is kept by
the first, a file without filters by the second, so of every file that one decides which speaks about it; their own
modules say why they are right.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause, all_of
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn, Summary, index
from geoskip.indexes.bloom import BloomFilter, HashedPart
from geoskip.indexes.bloom_hash import hashes_of
from geoskip.indexes.summary_cache import CachedSummary
from geoskip.indexes.valuelist import bytes_of, in_order, joined, list_clause, list_type, listed
from geoskip.predicates import Predicate

__all__ = ["Hybrid", "list_costs_less"]

_MOST_VALUES = 1 << 17
_MOST_BYTES = 16 << 20


@index
@dataclass(frozen=True)
class Hybrid(Index):
    """A list of the distinct values, or a Bloom filter where that costs less; a decision a file.

    Serves what ValueList serves in files with a list, and equality and IN in files with a filter. ``fpp`` is the
    filters' rate of false positives, ``psi`` the share of the files that queries must read at least.

    >>> str(Hybrid("user_id")), str(Hybrid("user_id", fpp=0.001))
    ('hybrid(user_id)', 'hybrid(user_id, fpp=0.001)')
    """

    expr: str
    fpp: float = 0.01
    psi: float = 0.01
    kind: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        if not isinstance(self.expr, str) or not self.expr.strip():
            raise InvalidSpecificationError(f"Hybrid needs a column name or SQL text, got {self.expr!r}")
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
        """The list of one file's values, in no order yet, or of a part of them; hashes where it would be long."""
        (array,) = values
        found = listed(array, _MOST_VALUES, _MOST_BYTES, lazily=True)
        if found["values"] is not None:
            part = ListedPart(_with_list(found))
            part.array = weakref.ref(array)
            return part
        hashed = HashedPart.collected(array, self.fpp)
        return None if hashed is None else _without_list(hashed)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """One list of all parts, or the filters of all."""
        found = joined(summaries, _MOST_VALUES, _MOST_BYTES)
        if found["values"] is not None:
            return _with_list(found)
        parts = [part if part["values"] is None else self._as_filter(part) for part in summaries]
        return _without_list(HashedPart.merged(parts, self.fpp))

    def for_files(self, summaries: Sequence[Summary], sizes: Sequence[int]) -> list[Summary]:
        """Keep each file's list if it costs less than a filter would; filters of small files are made together."""
        found = list(summaries)
        arrays: dict[int, pa.Array] = {}
        for number, (summary, size) in enumerate(zip(summaries, sizes, strict=True)):
            values = summary["values"]
            if values is None:
                continue
            if not values or list_costs_less(_bits_of(values), len(values), self.fpp, self.psi, size):
                found[number] = {**summary, "values": in_order(values)}
                continue
            array = summary.array() if isinstance(summary, ListedPart) else None
            if array is None:
                found[number] = self._as_filter(summary)
            else:
                arrays[number] = array
        for number, part in zip(arrays, HashedPart.of_each(list(arrays.values()), self.fpp), strict=True):
            assert part is not None
            found[number] = _without_list(part)
        return found

    def build_note(self, summaries: pa.ChunkedArray) -> str:
        """Count the files with a list and those with a filter."""
        lists = pc.sum(pc.is_valid(pc.struct_field(summaries, "values"))).as_py() or 0
        filters = pc.sum(pc.is_valid(pc.struct_field(summaries, "filters"))).as_py() or 0
        return f"{lists:,} lists of values, {filters:,} Bloom filters"

    def clause(self, node: Predicate) -> Clause | None:
        """What a row must make TRUE: by the list where there is one, else by the filter."""
        found = [list_clause(str(self), self.bound[0], node), self._filters.clause(node)]
        clauses = [clause for clause in found if clause is not None]
        return all_of(clauses) if clauses else None

    @property
    def _filters(self) -> BloomFilter:
        """The Bloom filters of this index, as an index over the same summaries."""
        filters = BloomFilter(self.expr, self.fpp).bind(self.bound)
        object.__setattr__(filters, "_text", str(self))
        assert isinstance(filters, BloomFilter)
        return filters

    def _as_filter(self, summary: Summary) -> HashedPart:
        """The summary of parts with a filter in place of the list."""
        # physical values hash alike, whatever type they are kept in
        hashes = hashes_of(pa.array(list(summary["values"])))
        assert hashes is not None
        return _without_list(HashedPart.of(hashes, self.fpp, nulls=summary["nulls"], rows=summary["rows"]))


class ListedPart(CachedSummary):
    """A summary with a list that remembers the values it was made of, as long as somebody else needs them: a large file
    has many parts, which would fill the memory.
    """

    array: Callable[[], pa.Array | None] = staticmethod(lambda: None)


def list_costs_less(list_bits: float, distinct: int, fpp: float, psi: float, file_bytes: int) -> bool:
    """Does a list of ``distinct`` values cost fewer bits than a filter of them and the files that it reads in vain?

    The paper's example: the longest list that pays has 10,088 values.

    >>> [list_costs_less(n * 64 * 8, n, 0.01, 0.01, 64_000_000) for n in (10_088, 10_089)]
    [True, False]
    """
    filter_bits = -distinct * math.log(fpp) / math.log(2) ** 2
    return list_bits < filter_bits + (1 - psi) * fpp * 8 * file_bytes


def _bits_of(values: Sequence[Any]) -> int:
    """The bits of a list: of text and binary their bytes', of other values 64 each."""
    size = bytes_of(values)
    return 64 * len(values) if size is None else 8 * size


def _with_list(summary: Summary) -> Summary:
    return {**summary, "filters": None, "version": None}


def _without_list(part: HashedPart) -> HashedPart:
    """The same beside no list; that of a Bloom filter of the same values stays as it is."""
    part = part.copy()
    part["values"] = None
    return part
