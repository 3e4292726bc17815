"""Results of statements on skipping indexes, in ``geoskip.sql`` and ``spark.sql``.

A statement returns rows with fixed columns, so that Spark's plan has a schema before it runs. In ``spark.sql`` errors
are Spark's: the JVM gets the message, not the type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import GeoskipError, InvalidSpecificationError, NotIndexedError, StatementError
from geoskip.lifecycle.log import latest
from geoskip.metadata import Snapshot
from geoskip.report import Report
from geoskip.sources.build_verbs import BuildReport
from geoskip.sources.column_names import quote_if_needed
from geoskip.spark.analysis import sentence, without_error_log
from geoskip.spark.dataset.handle import Dataset, dataset
from geoskip.spark.dataset.verify import datasets, described_indexes
from geoskip.spark.reports import report
from geoskip.spark.session import check_session, java
from geoskip.statements import (
    CreateStatement,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    OptimizeStatement,
    RefreshStatement,
    RepairStatement,
    RestoreStatement,
    ShowStatement,
    SkippingStatement,
    StatementTarget,
    TargetStatement,
    VacuumStatement,
    is_statement,
    parse,
)
from geoskip.statements.python_calls import in_statements
from geoskip.statements.tokens import Span, error_at

Rows = list[tuple[Any, ...]]
_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro", "delta", "iceberg", "hudi", "binaryfile")
"""Formats with paths in place of tables, such as csv.`/data/log`."""
_POSITION = re.compile(r"line (\d+),? pos (\d+)")


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run a statement on skipping indexes, such as ``CREATE SKIPPING INDEX``, and return its result.

    Any other text is passed on to ``spark.sql``. The grammar is in :mod:`geoskip.statements`.

    Parameters
    ----------
    spark
        A classic session; it need not be enabled.
    text
        One statement.

    Returns
    -------
    DataFrame
        The result, with one row for each index for most statements. Its columns depend only on the kind of statement.

    Raises
    ------
    StatementError
        For a text that begins like a statement on indexes but cannot be parsed; the message points at the token.
    GeoskipError
        As for the methods of :class:`geoskip.Dataset`, with a note that shows the position in the text.
    """
    check_session(spark)
    if not isinstance(text, str):
        raise InvalidSpecificationError(f"geoskip.sql(spark, text) takes a text, got {text!r}")
    if not is_statement(text):
        return spark.sql(text)
    statement = parse(text)
    return spark.createDataFrame(rows_of(spark, statement, text), statement.answer)


def rows_of(spark: SparkSession, statement: SkippingStatement, text: str) -> Rows:
    """Run a statement and return the rows of its result.

    The advice in errors is given as statements, and a note shows the position in the text.
    """
    try:
        with without_error_log():
            return _rows(spark, statement)
    except GeoskipError as error:
        if isinstance(statement, TargetStatement) and len(error.args) == 1:
            where = text[statement.target.span.start : statement.target.span.end]
            error.args = (in_statements(str(error), where),)
        span = _span_of_error(statement, str(error))
        if span is not None:
            error.add_note(f"{span.position(text)}:\n{span.pointer(text)}")
        raise
    except PySparkException as error:
        if isinstance(statement, ExplainStatement):
            raise _error_of_query(text, statement.span, str(error), sentence(error)) from None
        raise


def _span_of_error(statement: SkippingStatement, message: str) -> Span | None:
    """Position of an error in the text: that of an index in its message, or else of the dataset."""
    match statement:
        case CreateStatement(items=items) | DropStatement(which=items) | RestoreStatement(which=items):
            if named := [item.span for item in items if item.text in message]:
                return named[0]
    return statement.target.span if isinstance(statement, TargetStatement) else None


def _drop_indexes(handle: Dataset, statement: DropStatement) -> Sequence[str]:
    """Delete the indexes of a statement, and return their names."""
    names = [item.text for item in statement.which]
    if not statement.if_exists:
        return handle.delete_index(*names)
    with suppress(NotIndexedError):
        return handle.delete_index(*names)
    found: list[str] = []
    for name in names:  # one of them does not exist
        with suppress(NotIndexedError):
            found += handle.delete_index(name)
    return found


def _error_of_query(text: str, query: Span, message: str, why: str) -> StatementError:
    """Error of Spark's parser or analyser for the query, with the position in the whole statement.

    Parameters
    ----------
    text, query
        The statement, and the span of the query in it.
    message, why
        Spark's message, and its reason in one sentence.
    """
    span, found = query, _POSITION.search(message)
    if found:
        before = text[query.start : query.end].splitlines(keepends=True)[: int(found[1]) - 1]
        start = min(query.start + len("".join(before)) + int(found[2]), query.end - 1)
        word = re.compile(r"\w+|.", re.DOTALL).match(text, start)
        span = Span(start, word.end() if word else query.end)
    return error_at(text, span, why)


def _rows(spark: SparkSession, statement: SkippingStatement) -> Rows:
    if isinstance(statement, ShowStatement):
        return list(_show_indexes(spark, statement))
    if isinstance(statement, ExplainStatement):
        return _explain_query(spark, statement)
    assert isinstance(statement, TargetStatement)
    handle = _handle(spark, statement.target, statement.options)
    match statement:
        case CreateStatement():
            return _create_indexes(handle, statement)
        case RefreshStatement():
            return list(_build_rows(handle.refresh_index(statement.mode)))
        case RepairStatement():
            return list(_build_rows(handle.repair()))
        case OptimizeStatement():
            handle.optimize_index()
            return [(str(index), handle.store.latest()) for index in handle.indexes]
        case VacuumStatement():
            removed = handle.vacuum_index(statement.retain)
            return [(list(removed.indexes), list(removed.snapshots), removed.leftovers)]
        case DropStatement():
            return [(name, "deleted") for name in _drop_indexes(handle, statement)]
        case RestoreStatement():
            return [(name, "in use") for name in handle.restore_index(*(item.text for item in statement.which))]
        case DescribeStatement():
            return described_indexes(handle._source)
    raise AssertionError(statement)


# --- datasets ---------------------------------------------------------------------------------------------------------


def _handle(spark: SparkSession, target: StatementTarget, options: dict[str, Any]) -> Dataset:
    if target.path is not None:
        return dataset(spark, target.path, **options)
    if _is_path(spark, target.parts):
        return dataset(spark, target.parts[1], **{"format": target.parts[0].lower(), **options})
    if readers := [name for name in options if name not in ("metadata", "auto_refresh")]:
        raise InvalidSpecificationError(
            f"the option {readers[0]} is for a path, and {target} is a table, which has its own; leave it out"
        )
    return dataset(spark, table=".".join(map(quote_if_needed, target.parts)), **options)


def _is_path(spark: SparkSession, parts: Sequence[str]) -> bool:
    """True for a format and a path, unless the catalog has a table of that name, which Spark prefers too."""
    if len(parts) != 2 or parts[0].lower() not in _FORMATS:
        return False
    return "/" in parts[1] or not spark.catalog.tableExists(".".join(map(quote_if_needed, parts)))


def _create_indexes(handle: Dataset, statement: CreateStatement) -> Rows:
    wanted = [item.index for item in statement.items if item.index is not None]
    if not statement.if_not_exists:
        return list(_build_rows(handle.create_index(*wanted)))
    existing = {str(index) for index in handle.indexes}
    if missing := [index for index in wanted if str(index) not in existing]:
        return list(_build_rows(handle.create_index(*missing)))
    named = {str(index) for index in wanted}
    return [
        (row[0], row[3], None, None, 0, row[5], "as before", 0.0, row[7], [])
        for row in described_indexes(handle._source)
        if row[0] in named
    ]


def _build_rows(built: BuildReport) -> Iterator[tuple[Any, ...]]:
    """One row for each index of a build."""
    left_out = [f"without metadata: {path}: {why}" for path, why in list(built.excluded.items())[:10]]
    left_out += [f"{built.pending} files without metadata yet: REFRESH indexes them"] if built.pending else []
    for name in built.indexes:
        remarks = [built.details[name]] if name in built.details else []
        remarks += [f"incomplete: {built.incomplete[name]}"] if name in built.incomplete else []
        yield (
            name,
            built.files,
            built.rows,
            built.bytes,
            built.read,
            built.metadata_bytes.get(name, 0),
            built.readers.get(name, "as before"),
            round(built.seconds, 3),
            built.snapshot,
            [*remarks, *left_out],
        )


def _show_indexes(spark: SparkSession, statement: ShowStatement) -> Iterator[tuple[Any, ...]]:
    if not statement.database:
        for root, snapshot in datasets(spark).items():
            yield from _index_rows(root, snapshot)
        return
    database = ".".join(map(quote_if_needed, statement.database))
    if not spark.catalog.databaseExists(database):
        raise InvalidSpecificationError(f"there is no database {database}; SHOW DATABASES lists them")
    views: set[str] = set()
    with suppress(PySparkException):  # raised by catalogs without views
        views = {row.viewName for row in spark.sql(f"SHOW VIEWS IN {database}").collect()}
    for table in spark.sql(f"SHOW TABLES IN {database}").collect():
        if table.isTemporary or table.tableName in views:
            continue
        name = f"{database}.{quote_if_needed(table.tableName)}"
        try:
            found = latest(dataset(spark, table=name).store)
        except (GeoskipError, PySparkException):
            continue  # a table of another format, or without files: no index is in use
        if found is not None:
            yield from _index_rows(name, found)


def _index_rows(name: str, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    header = snapshot.header
    for entry in header.entries:
        built = header.built.get(entry.name, {})
        yield (name, entry.name, len(snapshot.files), header.number, str(built.get("when", header.created)))


# --- queries ----------------------------------------------------------------------------------------------------------


def _explain_query(spark: SparkSession, statement: ExplainStatement) -> Rows:
    if is_statement(statement.query) or java(spark).geoskip.scansOf(statement.query, spark._jsparkSession) is None:
        raise InvalidSpecificationError(
            "EXPLAIN SKIPPING takes a query, got a command, which it would run; explain its SELECT alone"
        )
    return list(_scans(report(spark.sql(statement.query))))


def _scans(explained: Report) -> Iterator[tuple[Any, ...]]:
    """One row for each scan, and one for the notes on the query if there are any, or no scans."""
    for scan in explained.scans:
        skipped_by = [f"{text}: {count:,} files" for text, count in scan.clauses() if count]
        unindexed = [f"{scan.files_unindexed:,} files without metadata"] if scan.files_unindexed else []
        yield (
            scan.dataset,
            scan.files_kept,
            scan.files_total,
            scan.bytes_kept,
            scan.bytes_total,
            scan.predicate,
            skipped_by,
            [*unindexed, *scan.reasons],
        )
    if explained.notes or not explained.scans:
        yield (None, 0, 0, 0, 0, None, [], list(explained.notes) or ["the query reads no files"])


# --- inside spark.sql -------------------------------------------------------------------------------------------------


def answer_request(request: str, text: str, java: Any) -> str:
    """Answer a request of ``geoskip/spark/jvm/StatementParser.java``; never raises.

    ``statement columns`` requests the columns of the result; ``statement rows 7`` runs the statement in the session
    of that number, and requests the rows as lines of JSON. The first line of the answer is ``columns``, ``rows`` or
    ``error``.
    """
    try:
        statement = parse(text)
        if request.endswith("columns"):
            return f"columns\n{statement.answer}"
        spark = _session(java.running(int(request.rpartition(" ")[2])))
        names = [column.split()[0] for column in statement.answer.split(", ")]
        rows = (dict(zip(names, row, strict=True)) for row in rows_of(spark, statement, text))
        return "\n".join(["rows", *map(json.dumps, rows)])
    except BaseException as error:
        kind = "" if isinstance(error, GeoskipError) else f"{type(error).__name__}: "
        return "\n".join([f"error\n{kind}{error}", *getattr(error, "__notes__", ())])


def _session(jvm_session: Any) -> SparkSession:
    """PySpark's wrapper of a session of the JVM."""
    context = SparkContext._active_spark_context
    assert context is not None
    return SparkSession(context, jvm_session)
