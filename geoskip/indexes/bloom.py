"""BloomFilter: the values that a file certainly does not hold.

The index of Extensible Data Skipping, section V-A and table I.

*Stored a file*: ``filters``, most often one, whose size follows from the file's number of distinct values and the
rate of false positives (:mod:`geoskip.indexes.bloom_filters`); ``version``, of the hash; ``nulls`` and ``rows``.

*Collecting*: the distinct values are hashed (:mod:`geoskip.indexes.bloom_hash`) and their bits set. *Merging*: while a
file is being read, its parts keep their hashes, so that the file gets one filter of the right size. Parts that were
read by several tasks come without them: then the file stores a filter a part, and is kept where any of them may hold
the value, which adds their rates up. A file that would need more than 8 MB stores counts alone and is kept.

*Why skipping is sound*: every value of the file set its bits, and values that are equal in Spark have one hash whatever
their width, so a value of which one bit is not set does not occur; ``x = 5`` and ``x IN (5, 7)`` can be TRUE for no row
of the file. A filter has no order, and never proves that a value occurs: NOT of an equality is decided by the counts
alone, as NULL is.

*What it costs*: 9.6 bits a distinct value at a rate of 0.01, up to half again by rounding; hashing; at a query a few
bits of each file, in slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoskip.bounds.interpret import indexed
from geoskip.bounds.sort_keys import IncomparableError
from geoskip.clauses import Clause, Files, Mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.bloom_filters import filter_of, filters_for, filters_of, probes_for
from geoskip.indexes.bloom_hash import VERSION, Words, hashes_of, hashes_of_each, hashes_of_keys, keys_of
from geoskip.indexes.range_clauses import HasNulls, HasValues
from geoskip.indexes.stored_bounds import bound_type
from geoskip.indexes.summary_cache import CachedSummary, is_shared, share
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
from geoskip.registry import Function

_IS_NAN = Function("isnan", classes=("org.apache.spark.sql.catalyst.expressions.IsNaN",))
_MANY = 4096
"""Values of an IN that are probed at most: some value of a longer list is in any filter."""


@index
@dataclass(frozen=True)
class BloomFilter(Index):
    """A Bloom filter of each file's values.

    For ``= <=> IN``, also through widening casts, and ``IS NULL``.

    ``fpp`` is the rate of false positives: at most this share of the files without a value is read for it.

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
        """Make one filter of all hashes if the parts still have them, else list their filters."""
        return HashedPart.from_parts(summaries, self.fpp)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition on the filters and counts that a vertex implies."""
        name = str(self)
        match node:
            case IsNull(child) if self.reads(child):
                return HasNulls(indexed(name))
            case Comparison("=", child, Literal() as literal) if (casts := self._casts(child)) is not None:
                return equality(name, self.bound[0], casts, (literal,), self.fpp)
            case In(child, values) if (casts := self._casts(child)) is not None:
                return equality(name, self.bound[0], casts, values, self.fpp)
            case Call(_, (child,)) if _IS_NAN.is_called(node) and (casts := self._casts(child)) is not None:
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
    """A filter of the file may hold one of the hashed values."""

    name: str
    hashes: tuple[int, ...]
    probes: int
    text: str

    def keep(self, files: Files) -> Mask:
        return filters_of(files, self.name, VERSION).may_hold(np.array(self.hashes, dtype=np.uint64), self.probes)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, "filters"), (self.name, "version"))

    def __str__(self) -> str:
        return f"{self.name} may hold {self.text}"


class HashedPart(CachedSummary):
    """A summary with filters that keeps its hashes while the file is being read."""

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
        return cls._with(filter_of(hashes, fpp), hashes, nulls, rows)

    @classmethod
    def _with(cls, made: bytes | None, hashes: Words, nulls: int, rows: int) -> HashedPart:
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
        """Return the summaries of several arrays; together, which is far less work for small ones."""
        new = [array for array in arrays if not is_shared(array, ("filter", fpp))]
        hashed = [(array, found) for array, found in zip(new, hashes_of_each(new), strict=True) if found is not None]
        made = filters_for([found for _, found in hashed], fpp)
        parts = {
            id(array): share(array, ("filter", fpp), partial(cls._with, each, found, array.null_count, len(array)))
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
