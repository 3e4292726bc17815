"""ValueList: the distinct values of an expression in each file.

The index of Extensible Data Skipping, table I and section V-A.

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
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.stored_bounds import bound_type
from geoskip.indexes.summary_cache import distinct
from geoskip.predicates import And, Comparison, In, IsNull, Not, Or, Predicate
from geoskip.types import sql_type

__all__ = [
    "MOST_BYTES",
    "ValueList",
    "bytes_of",
    "sort_values",
    "list_clause",
    "list_type",
    "list_of",
    "merged_list",
    "ListMeets",
    "Postings",
    "distinct",
    "postings_of",
    "reals_as_bits",
]

MOST_BYTES = 1 << 20
"""Bytes of text or binary in a file's list, at most."""


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
        require_text(self, self.expr)
        if type(self.limit) is not int or self.limit < 1:
            raise InvalidSpecificationError(
                f"ValueList(limit=) takes a number from 1 on, got {self.limit!r}; 10_000 serves well"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<values: list, nulls, rows>``; collated text is listed by its spellings."""
        (column,) = columns
        collated = sql_type(column.type).kind == "string collate"
        return list_type(replace(column, type="string") if collated else column, self.kind)

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the distinct values of one file, or of a part of it."""
        return list_of(values[0], self.limit)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Unite the parts' values; None if a part has too many."""
        return merged_list(summaries, self.limit)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition on the values that a vertex implies."""
        return list_clause(str(self), self.bound[0], node)


def list_clause(name: str, over: Predicate, node: Predicate, part: str = "") -> ListMeets | None:
    """Return the clause of a vertex over the listed values of an expression, or None.

    AND and OR need no clause: the clauses of their parts are merged value by value.

    Parameters
    ----------
    name
        The index.
    over
        The listed expression.
    node
        The vertex.
    part
        The beginning of the names of the fields, for an index with several lists a file.
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
    """Return the Arrow type of a file's list; raises UnsupportedColumnError with an alternative."""
    return pa.struct([("values", pa.list_(bound_type(column, kind))), ("nulls", pa.int64()), ("rows", pa.int64())])


def list_of(values: pa.Array, limit: int, most_bytes: int = MOST_BYTES, *, lazily: bool = False) -> dict[str, Any]:
    """Return the summary of an array: its distinct physical values in order, and counts.


    Parameters
    ----------
    values
        Any Arrow array of a type that :func:`list_type` takes.
    limit, most_bytes
        The most values, and the most bytes of text or binary; ``values`` of the summary is None beyond.
    lazily
        Return unordered :class:`LazyValues`.
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
    return _summary(several if lazily else several.objects, limit, most_bytes, nulls, rows)


class LazyValues(Sequence[Any]):
    """Physical values that become Python objects on first access; those of a filter never do."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects."""
        # to_pylist makes a scalar of each first: 20 times slower
        found: list[Any] = self._array.to_numpy(zero_copy_only=False).tolist()
        return found

    @cached_property
    def bytes(self) -> int | None:
        """The bytes of text or binary together; None for other values."""
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
        return self.objects[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects)

    def __eq__(self, other: object) -> bool:
        return self.objects == (other.objects if isinstance(other, LazyValues) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.objects)

    def __reduce__(self) -> Any:
        return list, (self.objects,)


def bytes_of(values: Sequence[Any]) -> int | None:
    """Return the bytes of text or binary values together; None for other values.

    >>> bytes_of([b"ab", b"c"]), bytes_of(LazyValues(pa.array([b"ab", b"c"]))), bytes_of([1]), bytes_of([])
    (3, 3, None, None)
    """
    if isinstance(values, LazyValues):
        return values.bytes
    return sum(map(len, values)) if values and isinstance(values[0], bytes) else None


def merged_list(summaries: Sequence[Summary], limit: int, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the summary of a file, given those of its parts."""
    nulls, rows = (sum(part[name] for part in summaries) for name in ("nulls", "rows"))
    lists = [part["values"] for part in summaries]
    if any(values is None for values in lists):
        return _summary(None, limit, most_bytes, nulls, rows)
    several = {repr(value) if type(value) is float else value: value for values in lists for value in values}
    return _summary(sort_values(list(several.values())), limit, most_bytes, nulls, rows)


def sort_values(values: Sequence[Any]) -> list[Any]:
    """Sort physical values: -0.0 before 0.0 and NaN last; text by its bytes.

    >>> sort_values([float("nan"), 0.0, 2.0, -0.0]), sort_values([b"b", b"a"])
    ([-0.0, 0.0, 2.0, nan], [b'a', b'b'])
    """
    return sorted(values, key=_sort_key if values and type(values[0]) is float else None)


def _sort_key(value: Any) -> Any:
    return (value != value, value, str(value)[:1] != "-") if type(value) is float else value


def _summary(values: Sequence[Any] | None, limit: int, most_bytes: int, nulls: int, rows: int) -> dict[str, Any]:
    fits = values is not None and len(values) <= limit and (bytes_of(values) or 0) <= most_bytes
    return {"values": values if fits else None, "nulls": nulls, "rows": rows}


Integers = NDArray[np.int64]
_WORDS = {IS_TRUE: "is TRUE", IS_FALSE: "is FALSE", IS_NULL: "is NULL"}


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


_FEW = 16


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


@dataclass(frozen=True)
class ListMeets(UnitClause):
    """Some value, or NULL, may give the condition a wanted outcome.

    The kept units are cached by snapshot: when a report evaluates the clause again, the engine's expressions of the
    query no longer exist.
    """

    name: str
    over: Predicate
    node: Predicate
    wanted: int = IS_TRUE
    part: str = ""
    """The beginning of the names of the fields, for an index with several lists a file."""
    _found: list[tuple[Postings, Any]] = field(default_factory=list, compare=False, repr=False)

    @property
    def index(self) -> str:  # type: ignore[override]
        """The name that clauses over the same units share."""
        return f"{self.name}.{self.part}" if self.part else self.name

    def keep(self, files: Files) -> Mask:
        lists = postings_of(files, self.name, self.part)
        spans = places_equal(self.node, self.over, lists.values) if self.wanted == IS_TRUE else None
        if spans is not None and self.unlisted():
            return lists.files_within(spans)
        return super().keep(files)

    def implies(self, other: UnitClause) -> bool:
        """True if an equality implies IS NOT NULL of the same values."""
        match self.node, other:
            case (Comparison("=") | In(), ListMeets(_, over, IsNull(child), wanted)) if self.wanted == IS_TRUE:
                return over == child == self.over and wanted == IS_FALSE
        return False

    def keep_units(self, files: Files) -> Mask:
        lists = postings_of(files, self.name, self.part)
        for known, packed in self._found:
            if known is lists:
                return np.unpackbits(packed, count=lists.units).view(bool)
        found = outcomes(self.node, self.over, lists.values)
        keep = lists.keep_units(found, self.wanted, unlisted=self.unlisted())
        self._found.append((lists, np.packbits(keep)))
        return keep

    def files_of(self, files: Files, units: Mask) -> Mask:
        return postings_of(files, self.name, self.part).files_of(units)

    def unlisted(self) -> bool:
        """True if an unknown value that is not NULL may give a wanted outcome."""
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
