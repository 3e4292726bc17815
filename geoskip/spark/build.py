"""The build: one Spark job for all files and all indexes (DESIGN section 7).

Three readers, by exactness and then by speed: Parquet footers and Arrow, both in Python tasks that open the files
(:mod:`geoskip.spark.tasks`), and Spark's own reader with ``mapInArrow`` for all else: other formats, expressions,
geometries, other file systems, and single files whose values Arrow would read differently.

Fingerprints are taken before the data are read and compared afterwards: what changed or vanished meanwhile, and what
could not be read, stays without metadata, with a reason.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geoskip.errors import EnvironmentProblem, GeoskipError
from geoskip.indexes.base import Index, Summary
from geoskip.metadata import FileRow, IndexEntry
from geoskip.predicates import Column
from geoskip.spark.analysis import Source, columns_for
from geoskip.spark.bridge import local_etag
from geoskip.spark.known import local_path
from geoskip.spark.progress import following
from geoskip.spark.session import java
from geoskip.spark.tasks import SPARK, FileResult, Plan, merged, read_files

__all__ = ["BuildReport", "Built", "Listed", "build", "listing"]

_FILES_PER_TASK = 400
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_RACY_MS = 20


@dataclass(frozen=True)
class Listed:
    """One file of a listing: its URI and fingerprint."""

    uri: str
    size: int
    mtime: int


@dataclass(frozen=True)
class BuildReport:
    """What a build did, index by index; ``print(report)`` shows it."""

    indexes: tuple[str, ...]
    readers: Mapping[str, str]
    """The reader that served each index: footers, arrow or spark (several where files differ)."""
    files: int
    rows: int
    bytes: int
    """Size of the files that were indexed."""
    seconds: float
    metadata_bytes: Mapping[str, int]
    """Bytes stored for each index."""
    excluded: Mapping[str, str]
    """Files without metadata, and why: they are always read."""
    snapshot: int = 0

    def __str__(self) -> str:
        lines = [
            f"indexed {self.files:,} files, {self.rows:,} rows, {self.bytes / 2**20:,.1f} MiB "
            f"in {self.seconds:.1f} s (snapshot {self.snapshot})"
        ]
        for name in self.indexes:
            stored = self.metadata_bytes.get(name, 0)
            lines.append(f"  {name}: {stored / 1024:,.1f} KiB of metadata, read by {self.readers.get(name, 'none')}")
        lines += [f"  without metadata: {path}: {why}" for path, why in list(self.excluded.items())[:10]]
        if len(self.excluded) > 10:
            lines.append(f"  and {len(self.excluded) - 10:,} more files without metadata")
        return "\n".join(lines)


@dataclass
class Built:
    """The rows of the files table for some files, and what could not be had."""

    rows: list[FileRow] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=dict)


def listing(spark: SparkSession, frame: DataFrame) -> list[Listed]:
    """The files that a DataFrame reads, listed now."""
    found = []
    for line in java(spark).geoskip.listing(frame._jdf).splitlines():
        size, mtime, uri = line.split(" ", 2)
        found.append(Listed(uri, int(size), int(mtime)))
    return found


def build(
    spark: SparkSession, frame: DataFrame, source: Source, entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> Built:
    """The summaries of some files of a dataset."""
    built = Built()
    if not files:
        return built
    files = _settled(spark, frame, files)
    etags = {file.uri: local_etag(path) for file in files if (path := local_path(file.uri))}
    results = _read(spark, frame, source, entries, files)
    now = {file.uri: file for file in listing(spark, frame)}
    for file in files:
        result = results.get(file.uri)
        why = _changed(file, now.get(file.uri), etags.get(file.uri))
        if why or result is None or result.problem:
            built.excluded[relative(file.uri, source.root)] = why or (result.problem if result else None) or "not read"
            continue
        for name, reader in result.readers.items():
            built.readers.setdefault(name, set()).add(reader)
        built.rows.append(
            FileRow(
                relative(file.uri, source.root),
                file.size,
                file.mtime,
                etags.get(file.uri),
                result.rows,
                result.summaries,
            )
        )
    return built


def relative(uri: str, root: str) -> str:
    """A file's path below the dataset's root, or its whole URI.

    >>> relative("file:/data/a b/c", "file:/data"), relative("file:/other/c", "file:/data")
    ('a b/c', 'file:/other/c')
    """
    prefix = root.rstrip("/") + "/"
    return uri[len(prefix) :] if uri.startswith(prefix) else uri


def _settled(spark: SparkSession, frame: DataFrame, files: Sequence[Listed]) -> list[Listed]:
    """The files, once the clock's granularity has passed since the newest was written (git's racy rule).

    A file of the future stays listed as it is: :func:`_changed` leaves it out.
    """
    newest = max(file.mtime for file in files)
    wait = newest + _RACY_MS - time.time() * 1000
    if not 0 < wait <= 10 * _RACY_MS:
        return list(files)
    time.sleep(wait / 1000)
    wanted = {file.uri for file in files}
    return [file for file in listing(spark, frame) if file.uri in wanted]


def _changed(file: Listed, now: Listed | None, etag: str | None) -> str | None:
    if now is None:
        return "it vanished while it was indexed"
    path = local_path(file.uri)
    if now != file or (etag is not None and path is not None and local_etag(path) != etag):
        return "it changed while it was indexed"
    if file.mtime > time.time() * 1000 - _RACY_MS:
        return "its modification time is in the future, so a later change might not show"
    return None


def _read(
    spark: SparkSession, frame: DataFrame, source: Source, entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> dict[str, FileResult]:
    direct, others = _divided(source, entries, files)
    results: dict[str, FileResult] = {file.uri: FileResult(file.uri) for file in files}
    if direct:
        _merge(results, _directly(spark, source, direct, files))
        behind = [file for file in files if results[file.uri].problem == SPARK]
        for file in behind:
            results[file.uri] = FileResult(file.uri)
        if behind:
            _merge(results, _through_spark(spark, frame, source, entries, behind))
    rest = [file for file in files if not results[file.uri].problem and not _complete(results[file.uri], others)]
    if others and rest:
        _merge(results, _through_spark(spark, frame, source, others, rest))
    return results


def _complete(result: FileResult, entries: Sequence[IndexEntry]) -> bool:
    return all(entry.name in result.summaries for entry in entries)


def _divided(
    source: Source, entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> tuple[list[Plan], list[IndexEntry]]:
    """The indexes that Python tasks may build from the files themselves, and the others."""
    direct: list[Plan] = []
    others: list[IndexEntry] = []
    local = all(local_path(file.uri) for file in files)
    by_id = str(source.settings.get("spark.sql.parquet.fieldId.read.enabled")).lower() == "true"
    for entry in entries:
        columns = [c for c in entry.index.bound if isinstance(c, Column) and _is_top_level(c.name)]
        plain = source.file_format == _PARQUET and local and not by_id and len(columns) == len(entry.index.bound)
        if plain:
            direct.append(Plan(entry.name, entry.index, tuple((c.name, c.type or "") for c in columns)))
        else:
            others.append(entry)
    if others and direct:  # no file is read twice: Spark's reader takes all columns along
        return [], list(entries)
    return direct, others


def _is_top_level(name: str) -> bool:
    return "." not in name or (name.startswith("`") and name.count("`") == 2 and name.endswith("`"))


def _merge(results: dict[str, FileResult], found: Iterable[FileResult]) -> None:
    for result in found:
        known = results[result.path]
        known.rows = result.rows if result.rows is not None else known.rows
        known.problem = known.problem or result.problem
        known.summaries.update(result.summaries)
        known.readers.update(result.readers)


def _directly(
    spark: SparkSession, source: Source, plans: Sequence[Plan], files: Sequence[Listed]
) -> Iterator[FileResult]:
    sensitive = str(source.settings.get("spark.sql.caseSensitive")).lower() == "true"
    named = [(file.uri, local_path(file.uri) or "") for file in files]
    tasks = max(1, min(len(files), max(spark.sparkContext.defaultParallelism * 2, len(files) // _FILES_PER_TASK)))
    share = [named[i::tasks] for i in range(tasks)]

    def work(chunks: Iterator[list[tuple[str, str]]]) -> Iterator[list[FileResult]]:
        for chunk in chunks:
            yield list(read_files(chunk, plans, sensitive))

    job = spark.sparkContext.parallelize(share, tasks).mapPartitions(work)
    with following(spark, f"indexing {len(files):,} files", tasks), _workers_explained():
        collected: list[list[FileResult]] = job.collect()
    for chunk in collected:
        yield from chunk


_SCHEMA = "file string, payload binary"
_MOST_UNREADABLE = 20


def _through_spark(
    spark: SparkSession, frame: DataFrame, source: Source, entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> list[FileResult]:
    """Summaries through Spark's own reader; a file that makes the job fail is left out, and the rest read again."""
    left = list(files)
    failed: list[FileResult] = []
    while left:
        try:
            return failed + _one_job(spark, frame, entries, left)
        except PySparkException as error:
            culprit = _culprit(str(error), left)
            if culprit is None or len(failed) >= _MOST_UNREADABLE:
                raise GeoskipError(f"the dataset could not be read: {_first_line(error)}") from error
            failed.append(FileResult(culprit.uri, problem=f"unreadable: {_first_line(error)}"))
            left.remove(culprit)
        except Exception as error:  # Py4J's own, where Spark's message is not a known one
            culprit = _culprit(str(error), left)
            if culprit is None or len(failed) >= _MOST_UNREADABLE:
                raise GeoskipError(f"the dataset could not be read: {_first_line(error)}") from error
            failed.append(FileResult(culprit.uri, problem=f"unreadable: {_first_line(error)}"))
            left.remove(culprit)
    return failed


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))[:300]


def _culprit(message: str, files: Sequence[Listed]) -> Listed | None:
    """The file that a failure of Spark's reader names."""
    from urllib.parse import unquote

    for name in re.findall(r"(?:reading file|read file|FAILED_READ_FILE[^:]*:?|file:) *'?(\S+?)'?[\s.,]", message):
        for file in files:
            if file.uri.rpartition("/")[2] == unquote(name).rpartition("/")[2]:
                return file
    for file in files:
        if file.uri in message or file.uri.removeprefix("file:") in message:
            return file
    return None


def _one_job(
    spark: SparkSession, frame: DataFrame, entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> list[FileResult]:
    chosen = _chosen(spark, frame, files)
    texts: dict[str, int] = {}
    for entry in entries:
        for text in entry.index.expressions():
            texts.setdefault(text, len(texts))
    columns = [_storable(chosen, text).alias(f"_g{i}") for text, i in texts.items()]
    file = F.col("_metadata.file_path").alias("_file")
    plans = [(e.name, e.index, tuple(texts[t] for t in e.index.expressions())) for e in entries]
    tasks = max(spark.sparkContext.defaultParallelism * 2, len(files) // _FILES_PER_TASK)
    selected = chosen.select(file, *columns)
    if selected.rdd.getNumPartitions() > tasks:
        selected = selected.coalesce(tasks)
    job = selected.mapInArrow(_collector(plans), _SCHEMA)
    with following(spark, f"indexing {len(files):,} files", tasks), _workers_explained():
        rows = job.collect()
    return _results([(row["file"], pickle.loads(row["payload"])) for row in rows], entries, files)


def _chosen(spark: SparkSession, frame: DataFrame, files: Sequence[Listed]) -> DataFrame:
    """The frame over these files alone."""
    lines = "".join(f"{file.size} {file.mtime} {file.uri}\n" for file in files)
    return DataFrame(java(spark).geoskip.only(frame._jdf, lines), spark)


def _storable(frame: DataFrame, text: str) -> Any:
    """An expression in a type that Arrow carries: a geometry as EWKB."""
    column = columns_for(frame, text)
    kind = frame.select(column.alias("_g")).schema.fields[0].dataType
    return F.call_function("ST_AsEWKB", column) if hasattr(kind, "sqlType") else column


Collected = tuple[int, list["Summary | None"]]


def _collector(
    plans: Sequence[tuple[str, Index, tuple[int, ...]]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Summaries of each run of one file's rows; a file in several batches or tasks has several."""

    def collect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[str, Collected] = {}
        for batch in batches:
            for path, part in _by_file(batch):
                values = part.columns[1:]
                summaries = [index.collect(*(values[i] for i in numbers)) for _, index, numbers in plans]
                rows, before = found.get(path, (0, None))
                if before is not None:
                    pairs = zip(plans, before, summaries, strict=True)
                    summaries = [merged(plan[1], [old, new]) for plan, old, new in pairs]
                found[path] = (rows + part.num_rows, summaries)
        payloads = [pickle.dumps(value) for value in found.values()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(found), pa.string()), pa.array(payloads, pa.binary())], ["file", "payload"]
        )

    return collect


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch's rows by file; rows of one file stand together, so that slices do."""
    if not batch.num_rows:
        return
    encoded = batch.column(0).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    starts = [0, *((codes[1:] != codes[:-1]).nonzero()[0] + 1).tolist(), len(codes)]
    for start, end in zip(starts[:-1], starts[1:], strict=True):
        yield encoded.dictionary[int(codes[start])].as_py(), batch.slice(start, end - start)


def _results(
    rows: Sequence[tuple[str, Collected]], entries: Sequence[IndexEntry], files: Sequence[Listed]
) -> list[FileResult]:
    """The parts of each file put together; ``_metadata.file_path`` is URI-encoded once."""
    from urllib.parse import unquote

    parts: dict[str, list[Collected]] = {}
    for path, collected in rows:
        parts.setdefault(_plain(unquote(path)), []).append(collected)
    found = []
    for file in files:
        result = FileResult(file.uri, rows=0)
        mine = parts.get(_plain(file.uri), [])
        result.rows = sum(count for count, _ in mine)
        for number, entry in enumerate(entries):
            pieces = [summaries[number] for _, summaries in mine]
            result.summaries[entry.name] = merged(entry.index, pieces) if pieces else _of_nothing(entry)
            result.readers[entry.name] = "spark"
        found.append(result)
    return found


def _of_nothing(entry: IndexEntry) -> Summary | None:
    """The summary of a file without rows: unknown, so that it is kept; it costs nothing to read."""
    return None


def _plain(uri: str) -> str:
    return "file:/" + uri[5:].lstrip("/") if uri.startswith("file:") else uri


class _workers_explained:
    """Turns a worker's missing package into one clear sentence."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        text = str(error) if error is not None else ""
        missing = re.search(r"No module named '([^']+)'", text)
        if missing or "PYTHON_VERSION_MISMATCH" in text:
            why = f"lack the package {missing.group(1)}" if missing else "run another version of Python"
            raise EnvironmentProblem(
                f"the session's Python workers {why}; set PYSPARK_PYTHON to the Python of this driver before the "
                "session is made, or make it with geoskip.session()"
            ) from error
