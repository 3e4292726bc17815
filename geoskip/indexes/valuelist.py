"""ValueList: the distinct values of an expression in each file.

The index of Extensible Data Skipping, table I and section V-A.

*Stored per file*: ``values``, the distinct values that are not NULL, in order; ``nulls`` and ``rows``. A file with more
than ``limit`` distinct values, or more than 1 MiB of them, stores no values: it is kept, except for ``IS NULL``.

*In memory*: :class:`~geoskip.indexes.postings.Postings`, one dictionary for the dataset with the files of each value,
derived once per snapshot. Equality and IN are look-ups in it. A *unit* is a value: a row has one value, so a row that
makes ``a AND b`` TRUE over the same expression has a value that makes both TRUE, and merging two clauses value by value
decides the AND exactly.

*Why skipping is sound*: the list contains every value of the file, NULLs are counted, and a deterministic condition
over only this expression depends only on its value. The condition is evaluated for each distinct value
(:mod:`geoskip.evaluation`: equality, order and plain tests of text in Python, everything else by the engine itself,
with its own semantics), so a file without a value that makes it TRUE has no row that does. The same holds for FALSE and
NULL: the verdicts are exact if the evaluation does not throw. -0.0 and 0.0 are listed separately, since functions may
distinguish them; equality finds both. All NaN are one value.

*Cost*: one pass over the distinct values per condition; for a build, hashing the file's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause, Files, Mask, UnitClause
from geoskip.conditions import ALWAYS, Condition, Places, Refine
from geoskip.errors import InvalidSpecificationError
from geoskip.evaluation import outcomes, reads_only
from geoskip.evaluation.values import IS_FALSE, IS_TRUE, outcome_sets, physical
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.file_statistics import FileStatistics, ends_of_lists, field_of
from geoskip.indexes.postings import ListedClause, Postings, passes, postings_of, reals_as_bits
from geoskip.indexes.stored_bounds import bound_type, distinct
from geoskip.predicates import And, Comparison, In, IsNull, Not, Or, Predicate
from geoskip.types import sql_type

MOST_BYTES = 1 << 20
"""The most bytes of text or binary in a file's list."""


@index
@dataclass(frozen=True)
class ValueList(Index):
    """The distinct values, up to ``limit`` a file, and how many rows are NULL.

    Supports any deterministic condition over only the expression: ``= <> IN < LIKE RLIKE``, ``upper(city) = 'ULM'``,
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
        """``struct<values: list, nulls, rows>``; collated text is listed by its bytes."""
        (column,) = columns
        collated = sql_type(column.type).kind == "string collate"
        return list_type(replace(column, type="string") if collated else column, self.kind)

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the distinct values of one file, or of a part of it."""
        return list_of(values[0], self.limit)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return the union of the parts' values; None if a part has too many."""
        return merged_list(summaries, self.limit)

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the values, and the least and the greatest of them."""
        return (list_statistics(*self.subject(), summaries),)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition that a vertex implies for the values."""
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
        The prefix of the field names, for an index with several lists per file.
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


def list_statistics(expression: str, kind: str, summaries: pa.StructArray, part: str = "") -> FileStatistics:
    """Return the statistics of listed values; without bounds for collated text, which has another order.

    Parameters
    ----------
    expression, kind
        The listed expression, and Spark's name of its type.
    summaries
        One entry per file, null without a summary.
    part
        The prefix of the field names.
    """
    values, nulls = field_of(summaries, f"{part}values"), field_of(summaries, f"{part}nulls")
    low, high, nans = ends_of_lists(values)
    found = FileStatistics(expression, kind, nulls=nulls, nans=nans, values=values)
    if sql_type(kind).kind == "string collate":
        return found
    return replace(found, low=low, high=high, exact=pc.if_else(values.is_valid(), True, pa.scalar(None, pa.bool_())))


def list_of(values: pa.Array, limit: int, most_bytes: int = MOST_BYTES, *, lazily: bool = False) -> dict[str, Any]:
    """Return the summary of an array: its distinct physical values in order, and counts.

    Parameters
    ----------
    values
        An Arrow array of a type that :func:`list_type` supports.
    limit, most_bytes
        The most values, and the most bytes of text or binary; beyond, ``values`` of the summary is None.
    lazily
        Return unordered :class:`LazyValues`.
    """
    rows, nulls = len(values), values.null_count
    plain = physical(distinct(values))
    if pa.types.is_floating(plain.type):
        bits = np.sort(np.asarray(pc.unique(reals_as_bits(plain))))  # -0.0 before 0.0
        # numpy's default sort of doubles changes some -0.0 to 0.0 on processors with AVX-512
        return _summary(np.sort(bits.view(np.float64), kind="stable").tolist(), limit, most_bytes, nulls, rows)
    found = pc.unique(plain) if pa.types.is_date64(values.type) else plain
    if len(found) > limit or found.nbytes > most_bytes + 16 * len(found):
        return _summary(None, limit, most_bytes, nulls, rows)
    ordered = found if lazily else found.take(pc.array_sort_indices(found))
    several = LazyValues(ordered.cast(pa.bool_()) if pa.types.is_boolean(values.type) else ordered)
    return _summary(several if lazily else several.objects, limit, most_bytes, nulls, rows)


class LazyValues(Sequence[Any]):
    """Physical values that are converted to Python objects on first access, which filters never need."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects."""
        # to_pylist creates a scalar for each value: 20 times slower
        found: list[Any] = self._array.to_numpy(zero_copy_only=False).tolist()
        return found

    @cached_property
    def bytes(self) -> int | None:
        """The total bytes of text or binary values; None for other values."""
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

    def __repr__(self) -> str:
        return repr(self.objects)

    def __reduce__(self) -> Any:
        return list, (self.objects,)


def bytes_of(values: Sequence[Any]) -> int | None:
    """Return the total bytes of text or binary values; None for other values.

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


@dataclass(frozen=True)
class ListMeets(ListedClause):
    """The condition may have the wanted outcome, TRUE or FALSE, for some listed value or NULL.

    Results of the engine are cached by snapshot: when a report evaluates the clause again, the engine's expressions of
    the query no longer exist.
    """

    name: str
    over: Predicate
    node: Predicate
    wanted: int = IS_TRUE
    part: str = ""
    """The prefix of the field names, for an index with several lists per file."""
    _found: list[tuple[Postings, Any]] = field(default_factory=list, compare=False, repr=False)

    @property
    def index(self) -> str:  # type: ignore[override]
        """The common name of clauses over the same units."""
        return f"{self.name}.{self.part}" if self.part else self.name

    def units(self, files: Files) -> Postings:
        return postings_of(files, self.name, part=self.part)

    def where(self, table: Postings) -> Condition:
        sets = outcome_sets(self.node, self.over, table.kind("values"))
        if sets is None:
            return Refine(ALWAYS, self._evaluate_values, str(self))
        values = sets.true if self.wanted == IS_TRUE else sets.false
        null = bool(sets.of_null & self.wanted)
        return passes({"values": values}, self.part, null=null, unlisted=bool(values))

    def _evaluate_values(self, table: Postings, places: Places) -> Mask:
        """Evaluate the condition for each listed value, once per snapshot."""
        for known, packed in self._found:
            if known is table:
                return np.unpackbits(packed, count=len(table)).view(bool)[places]
        ((_, values),) = table.dictionaries.values()
        found = outcomes(self.node, self.over, values) & np.uint8(self.wanted) != 0
        keep = np.append(found, [True, True])
        self._found.append((table, np.packbits(keep)))
        return np.asarray(keep[places])

    def implies(self, other: UnitClause) -> bool:
        """True if an equality, or its negation, implies IS NOT NULL of the same values."""
        match self.node, other:
            case Comparison("=") | In(), ListMeets(_, over, IsNull(child), wanted):
                return over == child == self.over and wanted == IS_FALSE
        return False

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.name, field) for field in (f"{self.part}values", f"{self.part}nulls", "rows"))

    def __str__(self) -> str:
        return f"a value of {self.name} for which {self.node} is {'TRUE' if self.wanted == IS_TRUE else 'FALSE'}"
