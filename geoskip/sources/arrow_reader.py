"""Summaries of Parquet files in a Python worker, from their footers or through pyarrow.

This module does not import Spark: its functions run in Spark's Python workers and are tested without a session. A file
with values that Arrow and Spark may read differently gets the problem :data:`SPARK`, and Spark's own reader reads it.

All readers pass values to :class:`ValueGatherer`, which passes the values of a file to an index in as few parts as
memory allows, so that the summary of a file does not depend on the reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.indexes.base import Index, Summary
from geoskip.indexes.stored_bounds import CachedSummary, sharing_results
from geoskip.sources.footers import (
    Footer,
    IndexPlan,
    ReadersDiffer,
    SchemaLayout,
    SchemaLayouts,
    least_value,
    may_be_julian,
    summary_from_footer,
)

SPARK = "spark"
_ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 256 << 20
_FILES_TOGETHER = 64
_BYTES_TOGETHER = 16 << 20


@dataclass
class FileResult:
    """Summaries of one file by the names of the indexes.

    ``problem`` is the reason why the file has no summaries, or :data:`SPARK` if Spark's reader must read it;
    ``failures`` are the reasons why some indexes have none.
    """

    path: str
    rows: int | None = None
    size: int | None = None
    summaries: dict[str, Summary | None] = field(default_factory=dict)
    problem: str | None = None
    readers: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowSummaries:
    """Summaries of some rows, one for each index: None if unknown, an error message if collecting failed."""

    rows: int
    summaries: tuple[Summary | str | None, ...]


class ValueGatherer:
    """Buffer of the values of one file, which are summarised in large parts.

    Parameters
    ----------
    plans
        The indexes, each with the positions of its columns.
    """

    def __init__(self, plans: Sequence[tuple[Index, tuple[int, ...]]]) -> None:
        self.plans = plans
        self.parts: list[RowSummaries] = []
        self._waiting: list[Sequence[pa.Array | pa.ChunkedArray]] = []
        self._rows = 0
        self.waiting = 0
        """Bytes of the values that are not summarised yet."""

    def add(self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> None:
        """Add some rows, given as one array for each column."""
        self._waiting.append(columns)
        self._rows += rows
        self.waiting += sum(column.nbytes for column in columns)
        if self._rows >= _ROWS_AT_ONCE or self.waiting >= _BYTES_AT_ONCE:
            self._collect()

    def finish(self) -> list[RowSummaries]:
        """Summarise the remaining rows, and return the summaries of all parts."""
        if self._waiting:
            self._collect()
        return self.parts

    def _collect(self) -> None:
        values = [one_array(pieces) for pieces in zip(*self._waiting, strict=True)]
        summaries = tuple(collect_summary(index, [values[n] for n in numbers]) for index, numbers in self.plans)
        self.parts.append(RowSummaries(self._rows, summaries))
        self._waiting, self._rows, self.waiting = [], 0, 0


def collect_summary(index: Index, values: Sequence[pa.Array]) -> Summary | str | None:
    """Summary of some rows by an index, or the error message if it fails."""
    try:
        found: object = index.collect(*values)
    except Exception as error:  # the failure of a user-defined index must not lose the summaries of the others
        return f"{type(error).__name__}: {error}"
    if found is None or isinstance(found, Mapping):
        return found
    return f"collect returned {type(found).__name__} instead of a dict or None"


def store_summaries(
    files: Iterable[tuple[FileResult, Sequence[tuple[str, Index]], Sequence[RowSummaries]]], reader: str
) -> None:
    """Merge the summaries of the parts of each file, and store the merged ones in the results.

    ``files`` holds the results to modify, the indexes with their names, and the summaries of each part in the order of
    the indexes. An index with an unknown part gets no summary of the file. Indexes with summaries that depend on the
    size of the file adapt the merged summaries before they are stored (:meth:`Index.for_files`).
    """
    whole: dict[str, list[_MergedSummary]] = {}
    for result, plans, parts in files:
        result.rows = sum(part.rows for part in parts)
        for number, (name, index) in enumerate(plans):
            pieces = [part.summaries[number] for part in parts]
            failure = next((piece for piece in pieces if isinstance(piece, str)), None)
            known = [piece for piece in pieces if isinstance(piece, Mapping)]
            result.readers[name] = reader
            result.summaries[name] = None
            if failure is None and known and len(known) == len(pieces):
                try:
                    merged = known[0] if len(known) == 1 else index.merge(known)
                    whole.setdefault(name, []).append((result, index, merged))
                except Exception as error:
                    failure = f"{type(error).__name__}: {error}"
            if failure is not None:
                result.failures[name] = failure
    for name, some in whole.items():
        _store_merged(name, some)


_MergedSummary = tuple[FileResult, Index, Summary]
"""A file with an index and the index's summary of the whole file."""


def _store_merged(name: str, whole: Sequence[_MergedSummary]) -> None:
    """Store merged summaries of one index in the results, adapted to the sizes of their files."""
    try:
        summaries = _for_sizes(whole)
    except Exception as error:
        if len(whole) == 1:
            whole[0][0].failures[name] = f"{type(error).__name__}: {error}"
        else:
            for each in whole:
                _store_merged(name, [each])
        return
    for (result, _, _), summary in zip(whole, summaries, strict=True):
        result.summaries[name] = dict(summary) if isinstance(summary, CachedSummary) else summary


def _for_sizes(whole: Sequence[_MergedSummary]) -> Sequence[Summary]:
    summaries = [summary for _, _, summary in whole]
    sized = [(number, result.size) for number, (result, _, _) in enumerate(whole) if result.size is not None]
    fitted = whole[0][1].for_files([summaries[number] for number, _ in sized], [size for _, size in sized])
    for (number, _), summary in zip(sized, fitted, strict=True):
        summaries[number] = summary
    return summaries


# --- Parquet through Arrow --------------------------------------------------------------------------------------------


def read_files(
    files: Iterable[tuple[str, str]], plans: Sequence[IndexPlan], case_sensitive: bool
) -> Iterator[FileResult]:
    """Summarise Parquet files, given as (path to report, local path), opening each once.

    Several small files are read before any is summarised: alternating between Arrow and NumPy for each file takes a
    third longer, since the processor's instruction caches hold the code of only one of them.
    """
    layouts = SchemaLayouts(plans, case_sensitive)
    waiting: list[_FileInProgress] = []
    size = 0
    for path, local in files:
        file = _FileInProgress(local, FileResult(path))
        file.attempt(partial(_read_file, file, plans, layouts))
        waiting.append(file)
        size += file.gatherer.waiting if file.gatherer else 0
        if len(waiting) >= _FILES_TOGETHER or size >= _BYTES_TOGETHER:
            yield from _summarise_files(waiting)
            waiting, size = [], 0
    yield from _summarise_files(waiting)


def _summarise_files(files: Iterable[_FileInProgress]) -> list[FileResult]:
    """Summarise the values read from some files, and return the results of the files."""
    with sharing_results():
        for file in files:
            if file.gatherer is not None:
                file.attempt(file.gatherer.finish)
        gathered = (
            (file.result, [(plan.name, plan.index) for plan in file.plans], file.gatherer.parts)
            for file in files
            if file.gatherer is not None
        )
        store_summaries(gathered, "arrow")
    return [file.result for file in files]


@dataclass
class _FileInProgress:
    """A file after reading: its result, and the values that some plans still have to summarise."""

    local: str
    result: FileResult
    plans: Sequence[IndexPlan] = ()
    gatherer: ValueGatherer | None = None

    def attempt(self, step: Callable[[], object]) -> None:
        """Run a step; if it fails, the file gets a problem instead of summaries."""
        try:
            step()
        except Exception as error:
            self.gatherer = None
            self.result = FileResult(self.result.path, problem=_problem(error, self.local))


def _problem(error: Exception, local: str) -> str:
    # NotImplementedError, with Arrow's subclass: a codec or encoding that Spark may support
    if isinstance(error, ReadersDiffer | NotImplementedError) or is_encrypted(local):
        return SPARK
    return f"unreadable: {str(error).splitlines()[0] if str(error) else repr(error)}"


def is_encrypted(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            file.seek(-4, os.SEEK_END)
            return file.read() == b"PARE"
    except OSError:
        return False


def is_signed(opened: pa.NativeFile, parquet: pq.ParquetFile) -> bool:
    """Test whether the footer is signed, so that columns may be encrypted.

    This test must precede reading a column: reading an encrypted one crashes the process.
    """
    opened.seek(opened.size() - 8)
    length = int.from_bytes(opened.read(4), "little")
    return length != int(parquet.metadata.serialized_size)


def _read_file(file: _FileInProgress, plans: Sequence[IndexPlan], layouts: SchemaLayouts) -> None:
    with pa.OSFile(file.local) as opened:
        parquet = pq.ParquetFile(opened)
        if is_signed(opened, parquet):
            raise ReadersDiffer
        layout = layouts.of(parquet)
        result = file.result
        result.rows, result.size = parquet.metadata.num_rows, opened.size()
        left: list[IndexPlan] = []
        footer = Footer(parquet)
        for plan in plans:
            summary = summary_from_footer(footer, plan, layout) if plan.name in layouts.in_footers else None
            if summary is None:
                left.append(plan)
            else:
                result.summaries[plan.name] = summary
                result.readers[plan.name] = "footers"
        if left:
            file.plans, file.gatherer = left, _read_columns(parquet, left, layout)


def _read_columns(file: pq.ParquetFile, plans: Sequence[IndexPlan], layout: SchemaLayout) -> ValueGatherer:
    """Read the columns for the plans."""
    names = layout.names
    wanted = sorted({names[name] for plan in plans for name, _ in plan.columns})
    kinds = {names[name]: kind for plan in plans for name, kind in plan.columns}
    numbers = [tuple(wanted.index(names[name]) for name, _ in plan.columns) for plan in plans]
    gatherer = ValueGatherer([(plan.index, number) for plan, number in zip(plans, numbers, strict=True)])
    for table in read_tables(file, wanted):
        columns = [table[name] for name in wanted]
        for name, column in zip(wanted, columns, strict=True):
            if kinds[name] in ("date", "timestamp", "timestamp_ntz") and may_be_julian(
                least_value(column), kinds[name], file
            ):
                raise ReadersDiffer
        gatherer.add(columns, table.num_rows)
    return gatherer


def read_tables(file: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.Table]:
    """Tables of several row groups each, as large as Arrow reads efficiently at once."""
    if not file.metadata.num_row_groups:
        yield file.schema_arrow.empty_table().select(wanted)
    groups: list[int] = []
    rows = 0
    for group in range(file.metadata.num_row_groups):
        groups.append(group)
        rows += file.metadata.row_group(group).num_rows
        if rows >= _ROWS_AT_ONCE or group == file.metadata.num_row_groups - 1:
            yield file.read_row_groups(groups, columns=wanted, use_threads=False)
            groups, rows = [], 0


def one_array(pieces: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Concatenate arrays and chunked arrays of one type."""
    arrays = [a for piece in pieces for a in (piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece])]
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return pa.array([], pieces[0].type)
    joined = pa.chunked_array(arrays).combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(arrays)


# --- Python workers ---------------------------------------------------------------------------------------------------


class _CachedZipImporter(zipimporter):
    """Importer that reads its archive's directory again only if the archive has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.archive)
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def invalidate_caches(self) -> None:
        now = self._stamp()
        if now is None or now != self._seen:
            super().invalidate_caches()
            self._seen = now


def cache_zip_directories() -> None:
    """Save a Python worker a tenth of a second for each task and archive.

    Spark calls ``importlib.invalidate_caches()`` before every task, and Python 3.11 then immediately reads the
    directories of all archives on the path (CPython's gh-103200): of ``pyspark.zip`` and of each jar of
    ``spark.jars.packages``.
    """
    if sys.version_info >= (3, 12):
        return
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = _CachedZipImporter(path)
