"""What a build does with one file in a Python worker: Parquet through pyarrow, footers first.

Nothing here imports Spark: the functions are shipped to the workers and tested without a session. A file whose values
Arrow and Spark would read differently is handed back (:data:`SPARK`), to be read by Spark's own reader.

All readers feed the same :class:`ValueGatherer`, which gives an index a file's values in as few pieces as memory
allows: the summary of a file is then the same whoever read it.
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
from geoskip.indexes.summary_cache import CachedSummary, sharing
from geoskip.spark.build.footers import (
    Footer,
    IndexPlan,
    ReadersDiffer,
    SchemaLayout,
    SchemaLayouts,
    is_old,
    least,
    summary_of,
)

__all__ = [
    "SPARK",
    "FileResult",
    "ValueGatherer",
    "RowSummaries",
    "IndexPlan",
    "all_put_together",
    "collected",
    "one_array",
    "put_together",
    "read_files",
    "settle_imports",
]

SPARK = "spark"
_ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 256 << 20
_FILES_TOGETHER = 64
_BYTES_TOGETHER = 16 << 20


@dataclass
class FileResult:
    """What became of one file. ``problem`` says why it has no summaries; SPARK hands it to Spark's reader.

    ``failures`` says of single indexes why the file has none of theirs.
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
    """The summaries of some rows of a file, one an index; a text where collecting it failed."""

    rows: int
    summaries: tuple[Summary | str | None, ...]


class ValueGatherer:
    """Gathers the values of one file, and has them summarised in large pieces.

    ``plans`` are the indexes, each with the numbers of the columns that it takes.
    """

    def __init__(self, plans: Sequence[tuple[Index, tuple[int, ...]]]) -> None:
        self.plans = plans
        self.parts: list[RowSummaries] = []
        self._waiting: list[Sequence[pa.Array | pa.ChunkedArray]] = []
        self._rows = 0
        self.waiting = 0
        """Bytes that are not summarised yet."""

    def add(self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> None:
        """Some rows more: one array a column."""
        self._waiting.append(columns)
        self._rows += rows
        self.waiting += sum(column.nbytes for column in columns)
        if self._rows >= _ROWS_AT_ONCE or self.waiting >= _BYTES_AT_ONCE:
            self._collect()

    def finish(self) -> list[RowSummaries]:
        """The parts, once all rows are there."""
        if self._waiting:
            self._collect()
        return self.parts

    def _collect(self) -> None:
        values = [one_array(pieces) for pieces in zip(*self._waiting, strict=True)]
        found = tuple(collected(index, [values[n] for n in numbers]) for index, numbers in self.plans)
        self.parts.append(RowSummaries(self._rows, found))
        self._waiting, self._rows, self.waiting = [], 0, 0


def collected(index: Index, values: Sequence[pa.Array]) -> Summary | str | None:
    """An index's summary of some rows; a text where it fails."""
    try:
        return index.collect(*values)
    except Exception as error:  # an index of the user's own must not lose the others their summaries
        return f"{type(error).__name__}: {error}"


def put_together(
    result: FileResult, plans: Sequence[tuple[str, Index]], parts: Sequence[RowSummaries], reader: str
) -> None:
    """Put a file's parts into its result; an index of which a part is unknown has no summary of the file.

    An index whose summaries depend on the size of the file says then what is stored (:meth:`Index.for_files`).
    """
    all_put_together([(result, plans, parts)], reader)


def all_put_together(
    found: Iterable[tuple[FileResult, Sequence[tuple[str, Index]], Sequence[RowSummaries]]], reader: str
) -> None:
    """The same of several files; an index says what is stored of all of them at once."""
    whole: dict[str, list[_Whole]] = {}
    for result, plans, parts in found:
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
        _fit(name, some)


_Whole = tuple[FileResult, Index, Summary]
"""A file with the summary of all its parts by one index."""


def _fit(name: str, whole: Sequence[_Whole]) -> None:
    """Put the summaries of some files by one index into the results, as they are stored of files of their sizes."""
    try:
        found = _fitted(whole)
    except Exception as error:
        if len(whole) == 1:
            whole[0][0].failures[name] = f"{type(error).__name__}: {error}"
        else:
            for each in whole:
                _fit(name, [each])
        return
    for (result, _, _), summary in zip(whole, found, strict=True):
        result.summaries[name] = dict(summary) if isinstance(summary, CachedSummary) else summary


def _fitted(whole: Sequence[_Whole]) -> Sequence[Summary]:
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
    """Summaries of Parquet files given as (path to report, local path), each opened once.

    Some small files are read before they are summarised together: going to and fro between Arrow and NumPy for each
    takes a third longer, since the code of neither stays in the processor's caches.
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
            yield from _finished(waiting)
            waiting, size = [], 0
    yield from _finished(waiting)


def _finished(files: Iterable[_FileInProgress]) -> list[FileResult]:
    """The results of some files, with everything summarised."""
    with sharing():
        for file in files:
            if file.gatherer is not None:
                file.attempt(partial(file.summarise, file.gatherer))
        all_put_together(
            ((file.result, file.named, file.parts) for file in files if file.gatherer is not None), "arrow"
        )
    return [file.result for file in files]


@dataclass
class _FileInProgress:
    """A file under way: what is known of it, and the values that are still to be summarised for some plans."""

    local: str
    result: FileResult
    plans: Sequence[IndexPlan] = ()
    gatherer: ValueGatherer | None = None
    parts: Sequence[RowSummaries] = ()

    @property
    def named(self) -> list[tuple[str, Index]]:
        """The indexes that are still to summarise it, by their names."""
        return [(plan.name, plan.index) for plan in self.plans]

    def summarise(self, gatherer: ValueGatherer) -> None:
        """Have all values summarised."""
        self.parts = gatherer.finish()

    def attempt(self, step: Callable[[], None]) -> None:
        """Take a step; where it fails, the file has no summaries but a problem."""
        try:
            step()
        except Exception as error:
            self.gatherer = None
            self.result = FileResult(self.result.path, problem=_problem(error, self.local))


def _problem(error: Exception, local: str) -> str:
    # NotImplementedError, of which Arrow's is one: a codec or encoding that Spark may know
    if isinstance(error, ReadersDiffer | NotImplementedError) or _is_encrypted(local):
        return SPARK
    return f"unreadable: {str(error).splitlines()[0] if str(error) else repr(error)}"


def _is_encrypted(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            file.seek(-4, os.SEEK_END)
            return file.read() == b"PARE"
    except OSError:
        return False


def _is_signed(opened: pa.NativeFile, parquet: pq.ParquetFile) -> bool:
    """Does more than the metadata lie in the footer: a signature, so that columns may be encrypted?

    That can be seen without looking at a column, which ends the process where it is encrypted.
    """
    opened.seek(opened.size() - 8)
    length = int.from_bytes(opened.read(4), "little")
    return length != int(parquet.metadata.serialized_size)


def _read_file(file: _FileInProgress, plans: Sequence[IndexPlan], layouts: SchemaLayouts) -> None:
    with pa.OSFile(file.local) as opened:
        parquet = pq.ParquetFile(opened)
        if _is_signed(opened, parquet):
            raise ReadersDiffer
        layout = layouts.of(parquet)
        result = file.result
        result.rows, result.size = parquet.metadata.num_rows, opened.size()
        left: list[IndexPlan] = []
        footer = Footer(parquet)
        for plan in plans:
            summary = summary_of(footer, plan, layout) if plan.name in layouts.in_footers else None
            if summary is None:
                left.append(plan)
            else:
                result.summaries[plan.name] = summary
                result.readers[plan.name] = "footers"
        if left:
            file.plans, file.gatherer = left, _gathered(parquet, left, layout)


def _gathered(file: pq.ParquetFile, plans: Sequence[IndexPlan], layout: SchemaLayout) -> ValueGatherer:
    """The values of the file's columns that the plans need."""
    names = layout.names
    wanted = sorted({names[name] for plan in plans for name, _ in plan.columns})
    kinds = {names[name]: kind for plan in plans for name, kind in plan.columns}
    numbers = [tuple(wanted.index(names[name]) for name, _ in plan.columns) for plan in plans]
    gatherer = ValueGatherer([(plan.index, number) for plan, number in zip(plans, numbers, strict=True)])
    for table in _tables(file, wanted):
        columns = [table[name] for name in wanted]
        for name, column in zip(wanted, columns, strict=True):
            if kinds[name] in ("date", "timestamp", "timestamp_ntz") and is_old(least(column), kinds[name], file):
                raise ReadersDiffer
        gatherer.add(columns, table.num_rows)
    return gatherer


def _tables(file: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.Table]:
    """The columns of some row groups at a time, as many as are read well at once."""
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
    """Arrays and chunked arrays of one type as one array."""
    arrays = [a for piece in pieces for a in (piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece])]
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return pa.array([], pieces[0].type)
    joined = pa.chunked_array(arrays).combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(arrays)


# --- Python workers ---------------------------------------------------------------------------------------------------


class _CachedZipImporter(zipimporter):
    """Reads its archive's directory again only where the archive has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._seen = self._now()

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.archive)
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def invalidate_caches(self) -> None:
        now = self._now()
        if now is None or now != self._seen:
            super().invalidate_caches()
            self._seen = now


def settle_imports() -> None:
    """Spare this worker a tenth of a second a task and archive.

    Spark calls ``importlib.invalidate_caches()`` before every task, and Python 3.11 then reads the directories of all
    archives on the path at once (CPython's gh-103200): of ``pyspark.zip`` and of each jar of ``spark.jars.packages``.
    """
    if sys.version_info >= (3, 12):
        return
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = _CachedZipImporter(path)
