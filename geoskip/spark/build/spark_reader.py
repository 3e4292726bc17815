"""Spark jobs that summarise files: Python tasks that open them, or Spark's own reader.

A file for which Spark's reader fails is left out with the reason, and the others are read again. A damaged file must
not seem complete: ``ignoreCorruptFiles`` and ``ignoreMissingFiles`` are off in a build, whatever the settings of the
session and the reader.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.column import Column

from geoskip.errors import GeoskipError
from geoskip.metadata import IndexEntry
from geoskip.predicates import Column as ColumnNode
from geoskip.predicates import walk
from geoskip.report import count_of
from geoskip.sources.arrow_reader import (
    FileResult,
    RowSummaries,
    ValueGatherer,
    read_files,
    store_summaries,
)
from geoskip.sources.column_names import backquote, parts_of_name
from geoskip.sources.dependencies import PARQUET_READERS, ambiguous_line
from geoskip.sources.footers import TIMES_AGREE, IndexPlan
from geoskip.sources.listed_files import ListedFile
from geoskip.sources.text_records import TWOFOLD
from geoskip.sources.worker_tasks import MALFORMED, OLD_TIMES, Plans, plain_uri, read_shares, summarising_task
from geoskip.spark.analysis import SPARKS_GEOMETRY, arrow_type, column_names, columns_for, without_error_log
from geoskip.spark.build.listing import SourceState, hadoop_conf, open_parquet
from geoskip.spark.build.spark_jobs import (
    OF_A_FILE,
    check_not_cancelled,
    failing_expression,
    first_line,
    message_of,
    reason_of,
    run_job,
    show_progress,
)
from geoskip.spark.session import java
from geoskip.stores.log_files import local_path
from geoskip.types import DAY

_FILES_PER_TASK = 4000
_BYTES_PER_TASK = 256 << 20
"""Bytes of a task that takes a few seconds; starting a task takes a Python worker a tenth of a second."""
_MOST_UNREADABLE = 20
_SCHEMA = "payload binary"
_THROUGH_A_VIEW = "through this view malformed records of JSON cannot be told; index the files themselves"
_BAD = "_geoskip_bad"
"""Column of malformed JSON records, or of marks on rows with old times, which builds read in addition to the others."""
_AGREEING = TIMES_AGREE + 2 * DAY
"""The microsecond from which times agree in both calendars, also after they were rebased in some zone."""


def tasks_for(spark: SparkSession, files: Sequence[ListedFile]) -> int:
    """Number of tasks: the default parallelism, or more if tasks would take long; fewer for few files."""
    size = sum(file.size for file in files)
    wanted = max(spark.sparkContext.defaultParallelism, len(files) // _FILES_PER_TASK, size // _BYTES_PER_TASK)
    return max(1, min(wanted, len(files) + size // _BYTES_PER_TASK))


def shares_of(spark: SparkSession, files: Sequence[ListedFile]) -> list[list[tuple[str, str]]]:
    """Local files, as (URI, path), shared out among the tasks that open them."""
    tasks = min(tasks_for(spark, files), len(files))
    return [_local_paths(files[number::tasks]) for number in range(tasks)]


def _local_paths(files: Sequence[ListedFile]) -> list[tuple[str, str]]:
    return [(file.uri, local_path(file.uri) or "") for file in files]


def reading_progress(spark: SparkSession, files: Sequence[ListedFile], tasks: int) -> AbstractContextManager[None]:
    """Show the progress of a job that reads files."""
    return show_progress(spark, f"reading {count_of(len(files), 'file')}", tasks)


def read_through_arrow(
    spark: SparkSession,
    plans: Sequence[IndexPlan],
    files: Sequence[ListedFile],
    *,
    case_sensitive: bool,
    in_driver: bool = False,
) -> list[FileResult]:
    """Summaries of local Parquet files, opened by the Python tasks of one job.

    Parameters
    ----------
    spark, plans, files
        The session, the indexes to build, all of them over columns, and the files, all of them local.
    case_sensitive, in_driver
        True if column names are case-sensitive; True to open the files in the driver, without a job.
    """
    if in_driver:
        return list(read_files(_local_paths(files), plans, case_sensitive))
    shares = shares_of(spark, files)
    job: RDD[list[FileResult]] = spark.sparkContext.parallelize(shares, len(shares)).mapPartitions(
        partial(read_shares, plans, case_sensitive)
    )
    with reading_progress(spark, files, len(shares)):
        return [result for chunk in run_job(job.collect) for result in chunk]


ReadingJob = Callable[[SourceState, Sequence[IndexEntry], Sequence[ListedFile]], list[FileResult]]
"""A function that summarises files through Spark's own reader; raises Spark's errors."""


def read_through_spark(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], job: ReadingJob | None = None
) -> list[FileResult]:
    """Summaries through Spark's own reader: one job, and further jobs after each unreadable file.

    A JSON file with a malformed record and a CSV file with a record that Spark reads in two ways are left out, since
    their values depend on the columns that a query reads; and a file with old times that Spark rebases in the JVM's
    time zone, since its values depend on the session.

    Parameters
    ----------
    state, entries, files
        The dataset, the indexes to build, and the files to read.
    job
        The job that summarises some files. Default: Python tasks on the rows that Spark reads.

    Raises
    ------
    GeoskipError
        If an expression cannot be evaluated, or more than 20 files cannot be read.
    """
    groups = [list(files)]
    found: list[FileResult] = []
    searched: set[str] = set()
    failed = 0
    while groups:
        group = groups.pop()
        try:
            twofold = _with_twofold_records(state, [file for file in group if file.uri not in searched])
            searched.update(file.uri for file in group)
            found += [FileResult(uri, problem=TWOFOLD) for uri in twofold]
            group = [file for file in group if file.uri not in twofold]
            read = (job or _one_job)(state, entries, group) if group else []
            found += [_without_harmless_times(state, result) for result in read]
        except (PySparkException, Py4JJavaError) as error:
            message = message_of(error)
            unreadable = _unreadable_file(message, group)
            if unreadable is None and not OF_A_FILE.search(message):
                why = check_not_cancelled(first_line(message))
                failing = failing_expression(entries, partial(_evaluation_error, state, group))
                raise GeoskipError(failing or f"the indexed expressions could not be evaluated: {why}") from error
            if unreadable is None and len(group) == 1:
                unreadable = group[0]
            if unreadable is None:  # Spark 3.5 does not name every unreadable file
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
                continue
            failed += 1
            if failed > _MOST_UNREADABLE:
                raise GeoskipError(
                    f"more than {_MOST_UNREADABLE} files cannot be read; the last was {unreadable.uri}: "
                    f"{first_line(message)}"
                ) from error
            found.append(FileResult(unreadable.uri, problem=f"unreadable: {first_line(message)}"))
            group.remove(unreadable)
            groups += [group] if group else []
    return found


_NAMED = re.compile(r"(?:reading file|read file|File does not exist:|File|file) +'?([a-z0-9+.-]+:/\S+|/\S+)")


def _unreadable_file(message: str, files: Sequence[ListedFile]) -> ListedFile | None:
    """The file in an error message of Spark's reader, percent-encoded or not."""
    by_path = {plain_uri(file.uri): file for file in files}
    for name in _NAMED.findall(message):
        for text in (name, name.rstrip(".,:;'\""), unquote(name), unquote(name.rstrip(".,:;'\""))):
            if plain_uri(text) in by_path:
                return by_path[plain_uri(text)]
    decoded = unquote(message)
    named = [file for file in files if _path_only(file.uri) in message or _path_only(file.uri) in decoded]
    return max(named, key=lambda file: len(file.uri), default=None)


def _path_only(uri: str) -> str:
    return re.sub(r"^[a-z0-9+.-]+:/*", "/", uri)


def _evaluation_error(state: SourceState, files: Sequence[ListedFile], texts: Sequence[str]) -> str | None:
    """Error when evaluating some expressions over all rows of some files, or None."""
    chosen = restricted_to(state, files)
    try:
        with without_error_log():
            chosen.select(*arrow_columns(chosen, texts)).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return check_not_cancelled(reason_of(error))
    return None


@dataclass(frozen=True)
class SelectedValues:
    """Rows of some files: the file's path, a malformed JSON record or a mark on old times, and the values."""

    frame: DataFrame
    first: int
    """Number of columns before the values."""
    problem: str
    """Problem of a file with a malformed record or old times."""
    plans: Plans
    """The indexes, each with the numbers of its values."""
    decoded: Callable[[str], str]
    """Function that decodes the path."""

    @classmethod
    def of(
        cls, state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]
    ) -> SelectedValues | None:
        """Select the values of all expressions; None for JSON through a view that hides malformed records.

        Parameters
        ----------
        state, entries, files
            The dataset, the indexes with the expressions, and the files to read.
        """
        chosen = restricted_to(state, files)
        of_table = state.relation.is_of("iceberg")  # no percent-encoded paths, and no column `_metadata`
        chosen, path = _with_file_name(chosen) if of_table else with_path(chosen)
        of_json = state.relation.is_of("Json")
        texts: dict[str, int] = {}
        for entry in entries:
            for text in state.relation.texts_of(entry.index):
                texts.setdefault(text, len(texts))
        if of_json and _BAD not in chosen.columns:
            return None
        old = _old_times(state, entries)
        doubtful = [F.col(_BAD)] if of_json else [] if old is None else [old.alias(_BAD)]
        first = [path.alias("_file"), *doubtful]
        plans = [(e.index, tuple(texts[text] for text in state.relation.texts_of(e.index))) for e in entries]
        frame = chosen.select(*first, *arrow_columns(chosen, list(texts)))
        return cls(frame, len(first), MALFORMED if of_json else OLD_TIMES, plans, str if of_table else unquote)

    @property
    def types(self) -> list[pa.DataType]:
        """Arrow types of the values."""
        return [arrow_type(field) for field in self.frame.schema.fields[self.first :]]


def _one_job(state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> list[FileResult]:
    selected = SelectedValues.of(state, entries, files)
    if selected is None:
        return hidden_by_a_view(files)
    tasks = tasks_for(state.spark, files)
    task = summarising_task(selected.plans, selected.first, selected.decoded, selected.problem)
    job = selected.frame.coalesce(tasks).mapInArrow(task, _SCHEMA)
    with reading_progress(state.spark, files, tasks):
        found = [pickle.loads(row["payload"]) for row in run_job(job.collect)]
    return results_of(found, entries, files, selected)


def _with_twofold_records(state: SourceState, files: Sequence[ListedFile]) -> set[str]:
    """URIs of the CSV files with a line that Spark may read in two ways."""
    expression = ambiguous_line(state.relation)
    if expression is None or not files:
        return set()
    lines = DataFrame(java(state.spark).geoskip.files().lines(state.frame._jdf, _lines_of(files)), state.spark)
    lines, path = with_path(lines)
    found = lines.where(F.col("_geoskip_line").rlike(expression)).select(path)
    tasks = tasks_for(state.spark, files)
    with show_progress(state.spark, f"searching {count_of(len(files), 'file')} for ambiguous records", tasks):
        paths = {plain_uri(unquote(row[0])) for row in found.coalesce(tasks).distinct().collect()}
    return {file.uri for file in files if plain_uri(file.uri) in paths}


def _old_times(state: SourceState, entries: Sequence[IndexEntry]) -> Column | None:
    """Column with a text in rows with old times, and NULL in others; None if no index reads times.

    If a setting causes the rebasing, all indexes over times depend on the JVM's time zone, and no row is marked.
    """
    if not state.relation.is_of(*PARQUET_READERS, "Avro") or state.relation.rebases:
        return None
    vertices = [vertex for entry in entries for bound in entry.index.bound for vertex in walk(bound)]
    kinds = {v.name: (v.type or "").replace("timestamp_ntz", "") for v in vertices if isinstance(v, ColumnNode)}
    old = None
    for name, kind in kinds.items():
        if "timestamp" in kind:
            text = state.relation.names.get(name, ".".join(map(backquote, parts_of_name(name))))
            limit = f"< timestamp_micros({_AGREEING})" if kind == "timestamp" else "IS NOT NULL"
            one = F.expr(f"{text} {limit}")
            old = one if old is None else old | one
    return None if old is None else F.when(old, F.lit(OLD_TIMES))


def _without_harmless_times(state: SourceState, result: FileResult) -> FileResult:
    """The result of a file, without the problem of old times if the JVM's time zone does not matter."""
    if result.problem == OLD_TIMES and not _rebases_in_any_zone(state, result.path):
        result.problem = None
    return result


def _rebases_in_any_zone(state: SourceState, uri: str) -> bool:
    """Test whether Spark rebases old times of a file in the JVM's time zone.

    It does if the file is by an old writer, or in legacy mode, and does not name its writer's zone. For files of
    unknown writers Spark's settings decide.
    """
    jvm: Any = state.spark._jvm
    try:
        if state.relation.is_of("Avro"):
            source = jvm.org.apache.avro.mapred.FsInput(jvm.org.apache.hadoop.fs.Path(uri), hadoop_conf(state.spark))
            file = jvm.org.apache.avro.file.DataFileReader(source, jvm.org.apache.avro.generic.GenericDatumReader())
            entry = file.getMetaString
        else:
            file = open_parquet(state.spark, uri)
            entry = file.getFileMetaData().getKeyValueMetaData().get
        with closing(file):
            names = ("version", "legacyDateTime", "legacyINT96", "timeZone")
            version, *legacy, zone = (entry(f"org.apache.spark.{name}") for name in names)
    except Py4JJavaError:  # such as a file with an encrypted footer
        return True
    return version is not None and zone is None and (version < "3.1.0" or legacy != [None, None])


def hidden_by_a_view(files: Sequence[ListedFile]) -> list[FileResult]:
    """Results of JSON files that are left out, since a view hides malformed records."""
    return [FileResult(file.uri, problem=_THROUGH_A_VIEW) for file in files]


def restricted_to(state: SourceState, files: Sequence[ListedFile]) -> DataFrame:
    """DataFrame of the dataset over only these files."""
    return DataFrame(java(state.spark).geoskip.files().only(state.frame._jdf, _lines_of(files)), state.spark)


def _lines_of(files: Sequence[ListedFile]) -> str:
    return "".join(f"{file.size} {file.mtime} {file.uri}\n" for file in files)


def with_path(frame: DataFrame) -> tuple[DataFrame, Column]:
    """A DataFrame with a column for the file of each row, and that column.

    Spark does not resolve ``_metadata`` in a table with CHAR columns, which a projection right above the scan pads.
    Then a separate projection adds the file's name: since it is non-deterministic, it stays below any Python function.
    """
    path = _path_of(frame)
    try:
        with without_error_log():
            frame.select(path)
    except AnalysisException:
        return _with_file_name(frame)
    return frame, path


def _with_file_name(frame: DataFrame) -> tuple[DataFrame, Column]:
    return frame.withColumn("_geoskip_file", F.input_file_name()), F.col("_geoskip_file")


def _path_of(frame: DataFrame) -> Column:
    """Column with each row's file, even if the data have a column called ``_metadata``."""
    if "_metadata" not in (name.lower() for name in column_names(frame)):
        return F.col("_metadata.file_path")
    jdf: Any = frame._jdf
    column: Any = type(F.col("_metadata"))
    found: Column = column(jdf.metadataColumn("_metadata"))["file_path"]
    return found


def arrow_columns(frame: DataFrame, texts: Sequence[str]) -> list[Column]:
    """Columns for expressions in types of Arrow: Sedona's geometries as EWKB, Spark's as WKB."""
    columns = columns_for(frame, texts)
    fields = frame.select(*columns).schema.fields

    def convert(column: Column, field: T.StructField) -> Column:
        for kind, function in ((T.UserDefinedType, "ST_AsEWKB"), (SPARKS_GEOMETRY, "ST_AsBinary")):
            if isinstance(field.dataType, kind):
                return F.call_function(function, column).alias(field.name)
        return column

    return [convert(column, field) for column, field in zip(columns, fields, strict=True)]


def results_of(
    rows: Iterable[tuple[str, list[RowSummaries] | str]],
    entries: Sequence[IndexEntry],
    files: Sequence[ListedFile],
    selected: SelectedValues,
    reader: str = "spark",
) -> list[FileResult]:
    """Results of files, merged from the summaries of their parts.

    A text in place of parts is the problem of the file. A file without results is empty: this is certain, since
    GeoskipError is raised if some row is from none of the files.

    Parameters
    ----------
    rows
        Paths, each with summaries or a problem.
    entries, files, selected
        The indexes, the files, and the values that were summarised.
    reader
        Name of the reader, for reports.
    """
    results = {plain_uri(file.uri): FileResult(file.uri, size=file.size) for file in files}
    parts: dict[str, list[RowSummaries]] = {}
    paths = {_path_only(path): path for path in results}
    for name, found in rows:
        path = name if name in results else paths.get(_path_only(name), name)  # Iceberg may name files without a scheme
        if path not in results:
            raise GeoskipError(f"Spark read rows of {path}, which is not among the files to index")
        if isinstance(found, str):
            results[path].problem = found
        else:
            parts.setdefault(path, []).extend(found)
    named = [(entry.name, entry.index) for entry in entries]
    for path in results:
        if path not in parts:
            gatherer = ValueGatherer(selected.plans)
            gatherer.add([pa.array([], kind) for kind in selected.types], 0)
            parts[path] = gatherer.finish()
    store_summaries(((result, named, parts[path]) for path, result in results.items()), reader)
    return list(results.values())
