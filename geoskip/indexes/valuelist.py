"""ValueList: the distinct values of an expression in each file (Extensible Data Skipping, table I and section V-A).

*Stored a file*: ``values``, the distinct values that are not NULL, in order; ``nulls`` and ``rows``. A file with more
than ``limit`` distinct values, or with more than a mebibyte of them, stores no values: it is kept, but for ``IS NULL``.

*In memory*: :class:`Postings`, one dictionary for the dataset with the files of each value, derived once a snapshot.
Equality and IN are look-ups in it. A *unit* is a value: a row has one value, so a row that makes ``a AND b`` TRUE over
the same expression has a value that makes both TRUE, and merging two clauses value by value decides the AND exactly.
Three more units follow the values: NULL, the values that a file over the limit did not store, and the content of files
without a summary.

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds.interval import counts_of
from geoskip.clauses import Clause, Files, Mask, UnitClause
from geoskip.errors import InvalidSpecificationError
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
    reads_only,
)
from geoskip.evaluation.values import ascending
from geoskip.indexes.base import Index, SourceColumn, Summary, index
from geoskip.indexes.stored_bounds import bound_type
from geoskip.indexes.summary_cache import distinct
from geoskip.predicates import And, Comparison, In, IsNull, Not, Or, Predicate
from geoskip.types import sql_type

__all__ = [
    "MOST_BYTES",
    "ValueList",
    "bytes_of",
    "in_order",
    "list_clause",
    "list_type",
    "listed",
    "ListMeets",
    "Postings",
    "distinct",
    "lists_of",
    "reals_as_bits",
]

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
    dictionary, codes = dictionary_of(flat)
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


def dictionary_of(flat: pa.Array) -> tuple[pa.Array, Integers]:
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
