"""Tasks of a build in Python workers: over files that they open, or batches that Spark has read.

A pickled task refers to the modules of its functions, which workers import. So tasks have modules of their own that
need only NumPy and pyarrow, and a worker imports further packages only for indexes that need them.

Indexes over expressions are built by two tasks around Spark's own evaluation: one reads distinct values, the other
expands the values of the expressions to rows again, see :mod:`geoskip.spark.build.distinct_values`.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.indexes.base import Index, SourceColumn, Summary
from geoskip.indexes.stored_bounds import sharing_results
from geoskip.sources.arrow_reader import (
    SPARK,
    FileResult,
    RowSummaries,
    ValueGatherer,
    cache_zip_directories,
    collect_summary,
    one_array,
    read_files,
    store_summaries,
)
from geoskip.sources.footers import IndexPlan
from geoskip.sources.text_records import is_json

_AT_ONCE = 500
MALFORMED = "a record that is no JSON: what is read of it depends on the columns that a query reads"
OLD_TIMES = "times before 1900 that Spark rebases from the Julian calendar in the time zone of the JVM that reads them"


def read_shares(
    plans: Sequence[IndexPlan], case_sensitive: bool, shares: Iterable[Sequence[tuple[str, str]]]
) -> Iterator[list[FileResult]]:
    """Summarise shares of local Parquet files, given as (path to report, local path)."""
    cache_zip_directories()
    for share in shares:
        yield [*read_files(share, plans, case_sensitive)]


def tasks_of(index: Index) -> list[Any]:
    """Tasks that build one index over no files, used to find the modules that a worker imports."""
    return [partial(read_shares, [IndexPlan(str(index), index)], False), summarising_task([(index, ())], 1, str)]


Plans = Sequence[tuple[Any, tuple[int, ...]]]


def summarising_task(
    plans: Plans, first: int, decoded: Callable[[str], str], problem: str = MALFORMED
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task that summarises each run of one file's rows; a file in several tasks has several runs.

    Parameters
    ----------
    plans
        The indexes, each with the numbers of its values.
    first
        The number of columns before the values: 1 for the encoded path of the file, or 2 with a text in each doubtful
        row, such as a record that could not be converted from JSON.
    decoded
        Decodes a path.
    problem
        The problem of a file with a doubtful row whose text is not JSON.
    """

    def collect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache_zip_directories()
        path: str | None = None
        gatherer = ValueGatherer(plans)
        done: list[bytes] = []
        for batch in batches:
            for found, rows in _by_file(batch):
                if path is not None and found != path:
                    done.append(pickle_result(path, gatherer))
                    gatherer = ValueGatherer(plans)
                path = found
                if first > 1 and not all(map(is_json, rows.column(1).drop_null())):
                    done.append(pickle.dumps((plain_uri(decoded(path)), problem)))
                gatherer.add(rows.columns[first:], rows.num_rows)
            if len(done) >= _AT_ONCE:
                yield payload_batch(done)
                done = []
        if path is not None:
            done.append(pickle_result(path, gatherer))
        yield payload_batch(done)

    def pickle_result(path: str, gatherer: ValueGatherer) -> bytes:
        with sharing_results():
            return pickle.dumps((plain_uri(decoded(path)), gatherer.finish()))

    return collect


def payload_batch(done: Sequence[bytes]) -> pa.RecordBatch:
    """Batch of pickled results for the driver."""
    return pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], ["payload"])


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Slices of a batch by file; rows of one file are adjacent."""
    if not batch.num_rows:
        return
    encoded = batch.column(0).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    starts = [0, *((codes[1:] != codes[:-1]).nonzero()[0] + 1).tolist(), len(codes)]
    for start, end in itertools.pairwise(starts):
        yield encoded.dictionary[int(codes[start])].as_py(), batch.slice(start, end - start)


def plain_uri(uri: str) -> str:
    """URI of a file in the spelling that is its key."""
    return "file:/" + uri[5:].lstrip("/") if uri.startswith("file:") else "file:" + uri if uri[:1] == "/" else uri


# --- indexes over expressions -----------------------------------------------------------------------------------------

_GROUP = 64
_ROWS_AT_ONCE = 1 << 20
_ROWS_A_BATCH = 1 << 16
_GROUP_BYTES = 16 << 20
PAYLOAD = "_geoskip_payload"
_READER = "arrow, computed by spark"
RowNumbers = NDArray[Any]
"""Numbers of rows, in the smallest type that holds them."""


@dataclass(frozen=True)
class ExpressionPlan:
    """Indexes over columns, expressions over one column each, and the indexes over these expressions."""

    plans: tuple[IndexPlan, ...]
    columns: tuple[tuple[str, str], ...]
    """Columns of the expressions as (name, Spark's type)."""
    expressions: tuple[tuple[str, int], ...]
    """Texts, each with the number of its column."""
    indexes: tuple[tuple[str, Index, tuple[int, ...]], ...]
    """Names, indexes, and the numbers of their expressions."""


# --- the tasks that read distinct values ------------------------------------------------------------------------------


class _DistinctValues(Index):
    """Stand-in for expressions over one column: its distinct values, and the position of each row's value."""

    kind: ClassVar[str] = "distinct"

    def __init__(self, column: str, type: pa.DataType) -> None:
        self.column = column
        self.type = type

    def _spec_text(self) -> str:
        return self.column

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        return self.type

    def collect(self, *values: pa.Array) -> Summary | None:
        (array,) = values
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        found, positions = distinct(array.cast(self.type))
        return {"values": found, "places": positions}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        joined, at = distinct(one_array([part["values"] for part in summaries]))
        starts = np.cumsum([0, *(len(part["values"]) for part in summaries)]).tolist()
        positions = [at[start:][part["places"]] for start, part in zip(starts, summaries, strict=False)]
        return {"values": joined, "places": np.concatenate(positions)}

    def clause(self, node: Any) -> None:
        return None


def distinct(array: pa.Array) -> tuple[pa.Array, RowNumbers]:
    """Bitwise distinct values, including NULL, and the position of each row's value.

    >>> found, places = distinct(pa.array([0.0, None, -0.0, None]))
    >>> str(found.to_pylist()), places.tolist()
    ('[0.0, None, -0.0]', [0, 1, 2, 1])
    """
    kind = array.type
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}.get(kind)
    encoded = (array if bits is None else array.view(bits)).dictionary_encode(null_encoding="encode")
    positions = np.asarray(encoded.indices)
    few = positions.astype(np.min_scalar_type(int(positions.max(initial=0))))
    return encoded.dictionary if bits is None else encoded.dictionary.view(kind), few


@dataclass(frozen=True)
class _FileGroup:
    """Results of several files, and for each column of each file its rows in the group's batch."""

    rows: int
    files: list[tuple[FileResult, list[RowNumbers] | None]]


def reading_task(
    share: Sequence[Sequence[tuple[str, str]]], plan: ExpressionPlan, types: Sequence[pa.DataType], case_sensitive: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task that reads groups of files as distinct values; the first row of a group has its pickled files.

    Parameters
    ----------
    share
        The files of each group, as (URI, local path); the task's input rows are group numbers.
    plan
        The indexes, and the columns that their expressions read.
    types
        Arrow types of these columns.
    case_sensitive
        Whether column names are case-sensitive.
    """
    plans = list(plan.plans)
    for (name, kind), type_ in zip(plan.columns, types, strict=True):
        plans.append(IndexPlan(f"{PAYLOAD} {name}", _DistinctValues(name, type_), ((name, kind),)))
    names = [added.name for added in plans[len(plan.plans) :]]

    def summarise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache_zip_directories()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for group in _groups(read_files(share[number], plans, case_sensitive), names):
                    rows = _group_rows(group, types)
                    for start in range(0, len(rows), _ROWS_A_BATCH):
                        yield rows.slice(start, _ROWS_A_BATCH)

    return summarise


@dataclass(frozen=True)
class _FileValues:
    """A file and the distinct values of its columns, or None if it has a problem."""

    result: FileResult
    values: list[Summary] | None

    @classmethod
    def of(cls, result: FileResult, names: Sequence[str]) -> _FileValues:
        """Move the values of the columns, stored under these names, out of a result."""
        values = [result.summaries.pop(name, None) for name in names]
        for name in names:
            result.readers.pop(name, None)
        known = [value for value in values if value is not None]
        if len(known) < len(names):
            return cls(result if result.problem else FileResult(result.path, problem=SPARK), None)
        return cls(result, known)

    @property
    def size(self) -> int:
        """Size of the values in bytes."""
        return int(sum(value["values"].nbytes + value["places"].nbytes for value in self.values or ()))


def _groups(results: Iterable[FileResult], names: Sequence[str]) -> Iterator[list[_FileValues]]:
    """Split files into groups of limited size."""
    some: list[_FileValues] = []
    size = 0
    for result in results:
        some.append(_FileValues.of(result, names))
        size += some[-1].size
        if len(some) >= _GROUP or size >= _GROUP_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _group_rows(files: Sequence[_FileValues], types: Sequence[pa.DataType]) -> pa.RecordBatch:
    """Create the rows of a group of files.

    A column with fewer values than another repeats its shortest one, so that Spark evaluates only values that occur in
    the files, except for a group without rows. If the repetition would be too long, Spark's reader reads the files.
    """
    known = [file.values for file in files if file.values is not None]
    columns: list[pa.Array] = []
    positions: list[list[RowNumbers]] = []
    for number, kind in enumerate(types):
        joined, at = distinct(one_array([pa.array([], kind), *(values[number]["values"] for values in known)]))
        ends = np.cumsum([0, *(len(values[number]["values"]) for values in known)])
        columns.append(joined)
        positions.append(
            [at[start:end][values[number]["places"]] for values, start, end in zip(known, ends, ends[1:], strict=False)]
        )
    rows = max(map(len, columns), default=0)
    repeated = [_shortest_value(column) for column in columns]
    if sum((rows - len(column)) * size for column, (_, size) in zip(columns, repeated, strict=True)) > _GROUP_BYTES:
        return _group_rows([_FileValues(FileResult(file.result.path, problem=SPARK), None) for file in files], types)
    of_files = iter(zip(*positions, strict=True))
    placed = [(file.result, None if file.values is None else list(next(of_files))) for file in files]
    group = _FileGroup(rows, placed)
    each = np.arange(max(1, rows))
    padded = [
        column.take(pa.array(np.where(each < len(column), each, position))) if rows else pa.nulls(1, column.type)
        for column, (position, _) in zip(columns, repeated, strict=True)
    ]
    payload = pa.array([pickle.dumps(group), *[None] * (len(each) - 1)], pa.binary())
    return pa.RecordBatch.from_arrays([payload, *padded], [PAYLOAD, *(f"_c{number}" for number in range(len(padded)))])


def _shortest_value(column: pa.Array) -> tuple[int, int]:
    """Position and size in bytes of a shortest value; size 0 for types of fixed width.

    >>> _shortest_value(pa.array(["abc", "de", "fgh"])), _shortest_value(pa.array([7, 8]))
    ((1, 2), (0, 0))
    """
    kind = column.type
    if not len(column) or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return 0, 0
    lengths = np.asarray(pc.binary_length(column).fill_null(0))
    position = int(lengths.argmin())
    return position, int(lengths[position])


# --- the tasks that summarise expressions -----------------------------------------------------------------------------


def expanding_task(plan: ExpressionPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task that summarises the expressions of each group of files once all its rows have arrived."""
    plans, over = plan.indexes, [column for _, column in plan.expressions]

    def collect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache_zip_directories()
        group: _FileGroup | None = None
        waiting: list[pa.RecordBatch] = []
        missing = at = 0
        for batch in batches:
            at = 0
            while at < batch.num_rows:
                if group is None:
                    group = pickle.loads(batch.column(0)[at].as_py())
                    waiting, missing = [], max(1, group.rows)
                some = batch.slice(at, missing)
                waiting.append(some)
                at, missing = at + some.num_rows, missing - some.num_rows
                if not missing:
                    columns = [one_array([part.column(1 + n) for part in waiting]) for n in range(len(over))]
                    yield payload_batch([pickle.dumps(_summarise_group(group, columns, over, plans))])
                    group = None

    return collect


def _summarise_group(
    group: _FileGroup,
    columns: Sequence[pa.Array],
    over: Sequence[int],
    plans: Sequence[tuple[str, Index, Sequence[int]]],
) -> list[FileResult]:
    """Add the summaries of expressions to the results of a group's files.

    Parameters
    ----------
    group, columns
        The files, and the values of each expression for the rows of the group.
    over, plans
        The position of each expression's column, and the indexes with the positions of their expressions.
    """
    named = [(name, index) for name, index, _ in plans]
    for result, positions in group.files:
        if positions is None:
            continue
        parts = []
        for start in range(0, max(1, len(positions[0])), _ROWS_AT_ONCE):
            chosen = [pa.array(positions[at][start : start + _ROWS_AT_ONCE]) for at in over]
            values = [column.take(rows) for column, rows in zip(columns, chosen, strict=True)]
            with sharing_results():
                found = tuple(collect_summary(index, [values[n] for n in numbers]) for _, index, numbers in plans)
            parts.append(RowSummaries(len(chosen[0]), found))
        with sharing_results():
            store_summaries([(result, named, parts)], _READER)
    return [result for result, _ in group.files]
