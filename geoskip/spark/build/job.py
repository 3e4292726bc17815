"""The build: one Spark job for all files and all indexes (DESIGN section 7).

Three readers, by exactness and then by speed: Parquet footers and Arrow, both in Python tasks that open the files
(:mod:`geoskip.spark.build.arrow_reader`), and Spark's own reader with ``mapInArrow`` for all else: other formats,
geometries, other file systems, and single files whose values Arrow would read differently. Spark evaluates expressions
over one column from the values that Arrow read (:mod:`geoskip.spark.build.distinct_values`); other expressions need
Spark's reader, which then serves all indexes.

Fingerprints are taken before the data are read and compared afterwards: a file that changed or vanished meanwhile,
or that could not be read, stays without metadata, with a reason.

Some indexes choose their parameters from a sample of the dataset first (:meth:`Index.prepare`): at most 64 files spread
over the listing, of the columns of these indexes alone, read in a job of its own, or by the driver where the files are
small local ones of Parquet. The build reads these files again as it reads the others. What is chosen may be better or
worse, never wrong, so a file that cannot be read is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.errors import GeoskipError
from geoskip.indexes.base import Index, SourceColumn, Summary, is_own
from geoskip.metadata import FileRow, IndexEntry
from geoskip.predicates import Column
from geoskip.report import count_of, size_of
from geoskip.spark.analysis import FileRelation, arrow_type, columns_for, texts_of
from geoskip.spark.build.arrow_reader import SPARK, FileResult, one_array
from geoskip.spark.build.distinct_values import compute_expressions, expression_plan
from geoskip.spark.build.footers import IndexPlan, is_readable
from geoskip.spark.build.listing import (
    UNNAMEABLE,
    ListedFile,
    SourceState,
    after_clock_tick,
    etags_of,
    list_again,
    reason_of_change,
    relative_path,
)
from geoskip.spark.build.spark_reader import read_through_arrow, read_through_spark
from geoskip.spark.dependencies import ID_OF
from geoskip.stores.log_files import local_path

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"


@dataclass(frozen=True)
class BuildReport:
    """Result of a build, index by index; ``print(report)`` shows it."""

    indexes: tuple[str, ...]
    readers: Mapping[str, str]
    """The reader that served each index: footers, arrow or spark (several where files differ)."""
    files: int
    rows: int
    bytes: int
    """Size of the files that have metadata."""
    seconds: float
    metadata_bytes: Mapping[str, int]
    """Bytes stored for each index."""
    excluded: Mapping[str, str]
    """Files without metadata, with the reason: queries always read them."""
    snapshot: int = 0
    read: int = 0
    """Number of files that this build read; the others had metadata already."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Indexes without summaries of some files, with the reason."""
    pending: int = 0
    """Number of new and changed files that a quick refresh left to an incremental one."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Remarks of indexes on their summaries: of Hybrid, how many are lists and how many filters."""
    layout: str = ""
    """The recorded layout, and how many files overlap others of it; empty where none is recorded."""

    def __str__(self) -> str:
        size = size_of(self.bytes)
        now = f"{self.read:,} of them read now, in {self.seconds:.1f} s"
        files, rows = count_of(self.files, "file"), count_of(self.rows, "row")
        lines = [f"indexed {files}, {rows}, {size}: {now} (snapshot {self.snapshot})"]
        for name in self.indexes:
            stored = self.metadata_bytes.get(name, 0)
            how = f"read by {self.readers[name]}" if name in self.readers else "as before"
            lines.append(f"  {name}: {size_of(stored)} of metadata, {how if self.files else 'of no file'}")
            lines += [f"    {self.details[name]}"] if name in self.details else []
        lines += [f"  layout {self.layout}"] if self.layout else []
        if self.pending:
            lines.append(f"  {count_of(self.pending, 'file')} without metadata yet, read whole until refresh_index()")
        lines += [f"  {name} is incomplete: {why}" for name, why in self.incomplete.items()]
        lines += [f"  without metadata: {path}: {why}" for path, why in list(self.excluded.items())[:10]]
        if len(self.excluded) > 10:
            lines.append(f"  and {count_of(len(self.excluded) - 10, 'more file')} without metadata")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass
class BuiltRows:
    """Rows of the file table for some files, with the files and summaries that are missing."""

    rows: list[FileRow] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def __add__(self, other: BuiltRows) -> BuiltRows:
        names = {**self.readers, **other.readers}
        return BuiltRows(
            [*self.rows, *other.rows],
            {**self.excluded, **other.excluded},
            {name: self.readers.get(name, set()) | other.readers.get(name, set()) for name in names},
            {**self.failures, **other.failures},
        )

    def incomplete(self) -> dict[str, str]:
        """Indexes without summaries of some files, with the first reason."""
        return {
            name: f"{count_of(len(texts), 'file')}, the first of them {texts[0]}"
            for name, texts in self.failures.items()
        }


def build(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_driver: bool = False
) -> BuiltRows:
    """Summaries of some files of a dataset; raises GeoskipError where an index fails on all of them.

    Parameters
    ----------
    state
        The dataset.
    entries
        The indexes, all of which each file gets.
    files
        The files to read.
    in_driver
        Read the files that Python tasks would open in the driver, without a job.
    """
    root = state.relation.root
    built = BuiltRows(excluded={relative_path(file.uri, root): UNNAMEABLE for file in files if not file.is_nameable})
    files = [file for file in files if file.is_nameable]
    if not files or not entries:
        return built
    files = after_clock_tick(state, files)
    etags = etags_of(files)
    results = read(state, entries, files, in_driver=in_driver)
    now = list_again(state, files)
    for file in files:
        result, etag = results[file.uri], etags.get(file.uri)
        path = relative_path(file.uri, root)
        if why := reason_of_change(file, now.get(file.uri), etag) or result.problem:
            built.excluded[path] = why
            continue
        for name, reader in result.readers.items():
            built.readers.setdefault(name, set()).add(reader)
        for name, text in {**_misfits(entries, result), **result.failures}.items():
            built.failures.setdefault(name, []).append(f"{path}: {text}")
        built.rows.append(FileRow(path, file.size, file.mtime, etag, result.rows, result.summaries))
    for name, texts in built.failures.items():
        if len(texts) == len(built.rows):
            raise GeoskipError(f"{name} cannot be collected from any file: {texts[0]}")
    return built


def _misfits(entries: Sequence[IndexEntry], result: FileResult) -> dict[str, str]:
    """Reasons why summaries of users' index types cannot be stored as their ``metadata_type``, by index."""
    own = [entry for entry in entries if not is_own(type(entry.index))]
    found = {entry.name: misfit(result.summaries.get(entry.name), entry.arrow) for entry in own}
    return {name: why for name, why in found.items() if why is not None}


def misfit(summary: Mapping[str, object] | None, arrow: pa.DataType) -> str | None:
    """Reason why a summary cannot be stored as a type of struct, or None.

    A field may be missing, and reads as null; one that is missing beside another that is unknown is misspelt.
    """
    if summary is None:
        return None
    fields = [field.name for field in arrow]
    unknown = [name for name in summary if name not in fields]
    if unknown and not summary.keys() >= set(fields):
        return (
            f"collect or merge returned the field {unknown[0]!r}, but metadata_type has {', '.join(map(repr, fields))}"
        )
    try:
        pa.array([summary], arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        return f"collect or merge returned {summary!r:.80}, which is not {arrow}: {error}"
    return None


def read(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_driver: bool = False
) -> dict[str, FileResult]:
    """Summaries of files by their URIs; Spark's reader gets the files that the other readers declined.

    Parameters
    ----------
    state, entries, files
        The dataset, the indexes, all of which each file gets, and the files to read.
    in_driver
        Read the files that Python tasks would open in the driver, without a job.
    """
    summarised: list[FileResult] = []
    plans = _plans(state.relation, entries, files)
    sensitive = str(state.relation.settings.get("spark.sql.caseSensitive")).lower() == "true"
    if plans is not None and files and len(plans) == len(entries):
        summarised += read_through_arrow(state.spark, plans, files, case_sensitive=sensitive, in_driver=in_driver)
    elif plans is not None and files and (plan := expression_plan(state.frame, entries, plans, files)) is not None:
        summarised += compute_expressions(state, plan, files, case_sensitive=sensitive) or []
    results = {each.path: each for each in summarised}
    left = [file for file in files if file.uri not in results or results[file.uri].problem == SPARK]
    if left:
        declined = read_through_spark(state, entries, left)
        results |= {each.path: each for each in declined}
    return results


def needs_job(state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> bool:
    """True unless the driver could open the files itself and collect the summaries of all these indexes."""
    plans = _plans(state.relation, entries, files)
    return plans is None or len(plans) < len(entries)


def details_of(entries: Iterable[IndexEntry], table: pa.Table) -> dict[str, str]:
    """Remarks of the indexes on their summaries, for the report."""
    notes = {entry.name: entry.index.build_note(table[entry.name]) for entry in entries}
    return {name: note for name, note in notes.items() if note}


def _plans(
    relation: FileRelation, entries: Sequence[IndexEntry], files: Sequence[ListedFile]
) -> list[IndexPlan] | None:
    """Plans of the indexes over columns for Python tasks; None where these cannot open the files."""
    by_id = any(name.startswith(ID_OF) for name in relation.settings)
    if relation.file_format != _PARQUET or by_id or not all(local_path(file.uri) for file in files):
        return None
    plans = []
    for entry in entries:
        columns = tuple((c.name, c.type or "") for c in entry.index.bound if isinstance(c, Column))
        if len(columns) == len(entry.index.bound) and all(is_readable(*column) for column in columns):
            plans.append(IndexPlan(entry.name, entry.index, columns))
    return plans


_FILES = 64
_LEAST_FILES = 8
_BYTES = 256 << 20
"""Bytes that the files of a sample have together, unless they would be fewer than eight."""
_IN_THE_DRIVER = 16 << 20
"""Bytes of files that the driver reads in about the time that a job takes."""
_ROWS = 4096


def choose_parameters(state: SourceState, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Entries of a build, each with an index that has chosen its parameters."""
    choosing = [entry for entry in entries if entry.index.chooses()]
    if not choosing:
        return list(entries)
    files = _sampled_files([file for file in state.files if file.is_nameable])
    rows = max(_ROWS // max(1, len(files)), 1)
    samples = [replace(entry, index=_SampledValues(entry.index, rows)) for entry in choosing]
    small = sum(file.size for file in files) <= _IN_THE_DRIVER
    results = read(state, samples, files, in_driver=small) if files else {}
    chosen = {}
    for entry in choosing:
        summaries = (results[uri].summaries.get(entry.name) for uri in sorted(results))
        batches = [batch for summary in summaries if summary is not None for batch in summary["batches"]]
        chosen[entry.name] = replace(entry, index=_prepared(state, entry.index, batches))
    return [chosen.get(entry.name, entry) for entry in entries]


class _SampledValues(Index):
    """Stand-in for an index that is still to choose, with at most ``rows`` rows of each part."""

    kind: ClassVar[str] = "sample"

    def __init__(self, index: Index, rows: int) -> None:
        self.name = str(index)
        self.bound = index.bound
        self.texts = index.expressions()
        self.rows = rows

    def expressions(self) -> tuple[str, ...]:
        return self.texts

    def _named(self) -> str:
        return self.name

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        return pa.null()

    def collect(self, *values: pa.Array) -> Summary | None:
        step = max(1, -(-len(values[0]) // self.rows))
        rows = pa.array(range(0, len(values[0]), step), pa.int64())
        taken = [_decoded(value.take(rows)) for value in values]
        return {"batches": [pa.RecordBatch.from_arrays(taken, [str(number) for number in range(len(taken))])]}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        return {"batches": [batch for summary in summaries for batch in summary["batches"]]}

    def clause(self, node: Any) -> None:
        return None


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _sampled_files(files: Sequence[ListedFile]) -> list[ListedFile]:
    """Files spread over a listing: as many as make a sample, fewer where they are large."""
    size = sum(file.size for file in files)
    count = min(_FILES, max(_LEAST_FILES, _BYTES * len(files) // max(1, size)), len(files))
    return [files[number * len(files) // count] for number in range(count)]


def _prepared(state: SourceState, index: Index, batches: Sequence[pa.RecordBatch]) -> Index:
    """The index prepared by the batches of the commonest types: files may have a column in several ones."""
    types = Counter(str(batch.schema.types) for batch in batches)
    alike = [batch for batch in batches if str(batch.schema.types) == types.most_common(1)[0][0]]
    if not alike:
        fields = state.frame.select(*columns_for(state.frame, texts_of(index))).schema.fields
        return index.prepare(*(pa.array([], arrow_type(field)) for field in fields))
    return index.prepare(*(one_array(arrays) for arrays in zip(*(batch.columns for batch in alike), strict=True)))
