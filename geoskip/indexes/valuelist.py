"""ValueList: the distinct values of an expression in each file (Extensible Data Skipping, table I and section V-A).

*Stored a file*: ``values``, the distinct values that are not NULL, in order; ``nulls`` and ``rows``. A file with more
than ``limit`` distinct values, or with more than a mebibyte of them, stores no values: it is kept, but for ``IS NULL``.

*In memory*: one dictionary for the dataset, and for each value the files that hold it
(:mod:`geoskip.indexes.postings`). Equality and IN are look-ups in it.

*Why skipping is sound*: the list holds every value of the file, NULL is counted beside it, and a deterministic
condition over the expression alone depends on nothing but that value. The condition is evaluated for each distinct
value (:mod:`geoskip.evaluation`: equality, order and plain tests of text here, everything else by the engine itself,
with its own semantics), so a file without a value that makes it TRUE has no row that does. The same holds for FALSE
and NULL: the verdicts are exact, where the evaluation does not throw. -0.0 and 0.0 are kept apart, since functions of
them differ, and equality finds both; all NaN are one.

*What it costs*: a pass over the distinct values a condition, once; to build, hashing the file's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError
from geoskip.evaluation import IS_FALSE, IS_TRUE, physical, reads_only
from geoskip.indexes.base import Index, SourceColumn, Summary, index
from geoskip.indexes.postings import ListMeets, reals_as_bits
from geoskip.indexes.stored_bounds import bound_type
from geoskip.indexes.summary_cache import distinct
from geoskip.predicates import And, Not, Or, Predicate
from geoskip.types import sql_type

__all__ = ["MOST_BYTES", "ValueList", "bytes_of", "in_order", "list_clause", "list_type", "listed"]

MOST_BYTES = 1 << 20
"""Bytes of text or binary that a file's list may hold."""


@index
@dataclass(frozen=True)
class ValueList(Index):
    """The distinct values, up to ``limit`` a file, and how many rows are NULL.

    Serves any deterministic condition over the expression alone: ``= <> IN < LIKE RLIKE``, ``upper(city) = 'ULM'``,
    ``length(city) > 3``, CASE, the user's own functions, and their negations.

    >>> str(ValueList("city")), str(ValueList("city", limit=100))
    ('valuelist(city)', 'valuelist(city, limit=100)')
    """

    expr: str
    limit: int = 10_000
    kind: ClassVar[str] = "valuelist"

    def __post_init__(self) -> None:
        if not isinstance(self.expr, str) or not self.expr.strip():
            raise InvalidSpecificationError(f"ValueList needs a column name or SQL text, got {self.expr!r}")
        if type(self.limit) is not int or self.limit < 1:
            raise InvalidSpecificationError(
                f"ValueList(limit=) takes a number from 1 on, got {self.limit!r}; 10_000 serves well"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<values: list, nulls, rows>``; of collated text each spelling is a value, which Spark compares."""
        (column,) = columns
        collated = sql_type(column.type).kind == "string collate"
        return list_type(replace(column, type="string") if collated else column, self.kind)

    def collect(self, *values: pa.Array) -> Summary | None:
        """The distinct values of one file, or of a part of it."""
        return listed(values[0], self.limit)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """All values of the parts, once each; none where a part had too many."""
        return joined(summaries, self.limit)

    def clause(self, node: Predicate) -> Clause | None:
        """What a row must make TRUE, evaluated value by value."""
        return list_clause(str(self), self.bound[0], node)


def list_clause(name: str, over: Predicate, node: Predicate, part: str = "") -> ListMeets | None:
    """The clause of a vertex over the lists of an expression's values.

    AND and OR need none: the clauses below them are merged value by value.
    """
    match node:
        case And() | Or():
            return None
        case Not(child) if reads_only(child, over):
            return ListMeets(name, over, child, IS_FALSE, part)
        case _ if not isinstance(node, Not) and reads_only(node, over):
            return ListMeets(name, over, node, IS_TRUE, part)
    return None


def list_type(column: SourceColumn, kind: str) -> pa.DataType:
    """The Arrow type of a file's list; raises UnsupportedColumnError with a way out."""
    return pa.struct([("values", pa.list_(bound_type(column, kind))), ("nulls", pa.int64()), ("rows", pa.int64())])


def listed(values: pa.Array, limit: int, most_bytes: int = MOST_BYTES, *, lazily: bool = False) -> dict[str, Any]:
    """The summary of some values: physical, in an order of their own; ``values`` is None where there are too many.

    ``lazily`` they are :class:`LazyValues`, in no order.
    """
    rows, nulls = len(values), values.null_count
    plain = physical(distinct(values))
    if pa.types.is_floating(plain.type):
        found = pc.unique(reals_as_bits(plain))
        return _summary(np.sort(np.asarray(found).view(np.float64)).tolist(), limit, most_bytes, nulls, rows)
    found = pc.unique(plain) if pa.types.is_date64(values.type) else plain
    if len(found) > limit or found.nbytes > most_bytes + 16 * len(found):
        return _summary(None, limit, most_bytes, nulls, rows)
    ordered = found if lazily else found.take(pc.array_sort_indices(found))
    several = LazyValues(ordered.cast(pa.bool_()) if pa.types.is_boolean(values.type) else ordered)
    return _summary(several if lazily else several.made, limit, most_bytes, nulls, rows)


class LazyValues(Sequence[Any]):
    """Physical values that become Python's when one is asked for: those that a filter is made of never do."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @cached_property
    def made(self) -> list[Any]:
        """The values."""
        # to_pylist makes a scalar of each first: 20 times slower
        found: list[Any] = self._array.to_numpy(zero_copy_only=False).tolist()
        return found

    @cached_property
    def bytes(self) -> int | None:
        """How many bytes of text or binary they are; None of other values."""
        array = self._array
        if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
            return None
        if not len(array):
            return 0
        ends = np.frombuffer(array.buffers()[1], np.int32 if pa.types.is_binary(array.type) else np.int64)
        return int(ends[array.offset + len(array)] - ends[array.offset])

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, number: Any) -> Any:
        return self.made[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.made)

    def __eq__(self, other: object) -> bool:
        return self.made == (other.made if isinstance(other, LazyValues) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.made)

    def __reduce__(self) -> Any:
        return list, (self.made,)


def bytes_of(values: Sequence[Any]) -> int | None:
    """How many bytes of text or binary these are; None of other values.

    >>> bytes_of([b"ab", b"c"]), bytes_of(LazyValues(pa.array([b"ab", b"c"]))), bytes_of([1]), bytes_of([])
    (3, 3, None, None)
    """
    if isinstance(values, LazyValues):
        return values.bytes
    return sum(map(len, values)) if values and isinstance(values[0], bytes) else None


def joined(summaries: Sequence[Summary], limit: int, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The summary of a file from its parts'."""
    nulls, rows = (sum(part[name] for part in summaries) for name in ("nulls", "rows"))
    lists = [part["values"] for part in summaries]
    if any(values is None for values in lists):
        return _summary(None, limit, most_bytes, nulls, rows)
    several = {repr(value) if type(value) is float else value: value for values in lists for value in values}
    return _summary(in_order(list(several.values())), limit, most_bytes, nulls, rows)


def in_order(values: Sequence[Any]) -> list[Any]:
    """Physical values in the order of lists: numbers, -0.0 before 0.0 and NaN last; text by its bytes.

    >>> in_order([float("nan"), 0.0, 2.0, -0.0]), in_order([b"b", b"a"])
    ([-0.0, 0.0, 2.0, nan], [b'a', b'b'])
    """
    return sorted(values, key=_place if values and type(values[0]) is float else None)


def _place(value: Any) -> Any:
    return (value != value, value, str(value)[:1] != "-") if type(value) is float else value


def _summary(values: Sequence[Any] | None, limit: int, most_bytes: int, nulls: int, rows: int) -> dict[str, Any]:
    fits = values is not None and len(values) <= limit and (bytes_of(values) or 0) <= most_bytes
    return {"values": values if fits else None, "nulls": nulls, "rows": rows}
