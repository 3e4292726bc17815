"""The build: one Spark job for all files and all indexes (DESIGN section 7).

Three readers, by exactness and then by speed: Parquet footers and Arrow, both in Python tasks that open the files
(:mod:`geoskip.spark.build.arrow_reader`), and Spark's own reader with ``mapInArrow`` for all else: other formats,
geometries, other file systems, and single files whose values Arrow would read differently. Of expressions over one
column each Spark computes the values from those that Arrow read (:mod:`geoskip.spark.build.distinct_values`); others
are for Spark's reader, which then serves all indexes.

Fingerprints are taken before the data are read and compared afterwards: what changed or vanished meanwhile, and what
could not be read, stays without metadata, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from geoskip.errors import GeoskipError
from geoskip.metadata import FileRow, IndexEntry
from geoskip.predicates import Column
from geoskip.report import count_of, size_of
from geoskip.spark.analysis import FileRelation
from geoskip.spark.build.arrow_reader import SPARK, FileResult, IndexPlan
from geoskip.spark.build.distinct_values import computed, over_one_column
from geoskip.spark.build.footers import is_readable
from geoskip.spark.build.listing import (
    UNNAMEABLE,
    ListedFile,
    SourceState,
    changed,
    etags_of,
    relative,
    seen_again,
    settled,
)
from geoskip.spark.build.spark_reader import directly, through_spark
from geoskip.spark.dependencies import ID_OF
from geoskip.stores.log_files import local_path

__all__ = ["BuildReport", "BuiltRows", "build", "details_of", "read"]

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"


@dataclass(frozen=True)
class BuildReport:
    """What a build did, index by index; ``print(report)`` shows it."""

    indexes: tuple[str, ...]
    readers: Mapping[str, str]
    """The reader that served each index: footers, arrow or spark (several where files differ)."""
    files: int
    rows: int
    bytes: int
    """Size of the files that have metadata now."""
    seconds: float
    metadata_bytes: Mapping[str, int]
    """Bytes stored for each index."""
    excluded: Mapping[str, str]
    """Files without metadata, and why: they are always read."""
    snapshot: int = 0
    read: int = 0
    """Files that this build read; the others had their metadata already."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Indexes that lack the summaries of some files, and why."""
    pending: int = 0
    """Files that a quick refresh found to be new or changed, and left to an incremental one."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What an index has to say of its summaries: of Hybrid, how many are lists and how many filters."""

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
    """The rows of the files table for some files, and what could not be had."""

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
        """Indexes of which some files have no summary, with the first reason."""
        return {
            name: f"{count_of(len(texts), 'file')}, the first of them {texts[0]}"
            for name, texts in self.failures.items()
        }


def build(state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> BuiltRows:
    """The summaries of some files of a dataset; raises GeoskipError where an index fails on all of them."""
    root = state.source.root
    built = BuiltRows(excluded={relative(file.uri, root): UNNAMEABLE for file in files if not file.is_nameable})
    files = [file for file in files if file.is_nameable]
    if not files or not entries:
        return built
    files = settled(state, files)
    etags = etags_of(files)
    results = read(state, entries, files)
    now = seen_again(state, files)
    for file in files:
        result, etag = results[file.uri], etags.get(file.uri)
        path = relative(file.uri, root)
        if why := changed(file, now.get(file.uri), etag) or result.problem:
            built.excluded[path] = why
            continue
        for name, reader in result.readers.items():
            built.readers.setdefault(name, set()).add(reader)
        for name, text in result.failures.items():
            built.failures.setdefault(name, []).append(f"{path}: {text}")
        built.rows.append(FileRow(path, file.size, file.mtime, etag, result.rows, result.summaries))
    for name, texts in built.failures.items():
        if len(texts) == len(built.rows):
            raise GeoskipError(f"{name} cannot be collected from any file: {texts[0]}")
    return built


def read(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_driver: bool = False
) -> dict[str, FileResult]:
    """The summaries of each file, by its URI; Spark's reader gets the files that the other readers declined.

    With ``in_driver`` files that Python tasks would open are read by the driver, without a job.
    """
    found: list[FileResult] = []
    plans = _plans(state.source, entries, files)
    sensitive = str(state.source.settings.get("spark.sql.caseSensitive")).lower() == "true"
    if plans is not None and files and len(plans) == len(entries):
        found += directly(state.spark, plans, files, case_sensitive=sensitive, in_driver=in_driver)
    elif plans is not None and files and (what := over_one_column(state.frame, entries, plans, files)) is not None:
        found += computed(state, what, files, case_sensitive=sensitive) or []
    results = {each.path: each for each in found}
    left = [file for file in files if file.uri not in results or results[file.uri].problem == SPARK]
    if left:
        declined = through_spark(state, entries, left)
        results |= {each.path: each for each in declined}
    return results


def details_of(entries: Iterable[IndexEntry], table: pa.Table) -> dict[str, str]:
    """What the indexes have to say of their summaries, for the report."""
    notes = {entry.name: entry.index.build_note(table[entry.name]) for entry in entries}
    return {name: note for name, note in notes.items() if note}


def _plans(source: FileRelation, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> list[IndexPlan] | None:
    """What Python tasks are to do with the files for the indexes over columns; None where they are not to open them."""
    by_id = any(name.startswith(ID_OF) for name in source.settings)
    if source.file_format != _PARQUET or by_id or not all(local_path(file.uri) for file in files):
        return None
    plans = []
    for entry in entries:
        columns = tuple((c.name, c.type or "") for c in entry.index.bound if isinstance(c, Column))
        if len(columns) == len(entry.index.bound) and all(is_readable(*column) for column in columns):
            plans.append(IndexPlan(entry.name, entry.index, columns))
    return plans
