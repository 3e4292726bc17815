"""The operations that read data: create, refresh and append."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyspark
from pyspark.sql import DataFrame

from geoskip.errors import DatasetNotFoundError, GeoskipError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.lifecycle.log import latest
from geoskip.sources import build_verbs
from geoskip.sources.build_verbs import MODES, BuildReport, check_protected, create_indexes, has_indexes, report_on
from geoskip.sources.column_names import backquote, matching_names
from geoskip.sources.listed_files import is_glob, reason_not_indexable
from geoskip.spark.analysis import bind, check_types
from geoskip.spark.build.job import choose_parameters
from geoskip.spark.build.listing import SourceState, has_sink_log, qualify
from geoskip.spark.build.spark_jobs import explain_errors, show_progress
from geoskip.spark.dataset.overwrite import finish_overwrites
from geoskip.spark.dataset.source import DatasetSource, SparkData
from geoskip.spark.filesystem import folder_at
from geoskip.spark.session import java, known

ENGINE = f"pyspark {pyspark.__version__}"
_TYPED = ("parquet", "orc", "avro")
"""Formats that Spark does not read with another type than the files have."""
_CAST = "cast it, as with CAST(t AS TIMESTAMP_NTZ), or write the rows with Spark itself"


def create(source: DatasetSource, indexes: Sequence[Index], layout: Mapping[str, Any] | None = None) -> BuildReport:
    """Build indexes in addition to existing ones; ``layout`` replaces the recorded layout."""
    started = time.perf_counter()
    data = SparkData(source)
    state, store = data.state, data.store
    if (why := reason_not_indexable(source.name, state.files)) is not None:
        raise DatasetNotFoundError(why)
    check_protected(data, source.encryption)
    if (used := known.another(state.relation.root, store)) is not None and not has_indexes(store):
        raise InvalidSpecificationError(
            f"queries of this driver use the metadata of {source.name} in {used.location}, and none would use an index "
            f"in {store.location}: name the first with dataset(..., metadata=) or store=, or call use_metadata() before"
        )
    create_indexes(
        data,
        bind(state.frame, state.relation, indexes),
        by=ENGINE,
        choose=lambda entries: choose_parameters(state, entries),
        on_first=lambda: _warn_of_table_format(source, state),
        layout=layout,
    )
    return report(data, started)


def refresh(source: DatasetSource, mode: str = "incremental") -> BuildReport:
    """Update the metadata to the current files."""
    if mode not in MODES:
        raise InvalidSpecificationError(f"refresh_index(mode=) takes {', '.join(map(repr, MODES))}, got {mode!r}")
    started = time.perf_counter()
    data = SparkData(source)
    build_verbs.refresh(
        data,
        mode,
        by=ENGINE,
        bind=partial(bind, data.state.frame, data.state.relation),
        on_reading=lambda snapshot: data.use_settings_of(snapshot.header),
    )
    return report(data, started)


def report(data: SparkData, started: float) -> BuildReport:
    """Make queries use the latest snapshot, and report on the build with the totals of that snapshot."""
    data.source.make_known(data.state.relation, complete=True)
    known.renew(data.root)
    java(data.source.spark).geoskip.forget()
    return report_on(data, started)


def append(source: DatasetSource, frame: DataFrame) -> BuildReport | None:
    """Write rows to the dataset, and index the new files; None if there is no index, or after a warning."""
    check_frame("append()", frame)
    if source.table is not None:
        with _writing_to(source):
            columns = source.spark.table(source.table).columns
            _check_names(source, columns, frame, "append()")
            frame.select(*map(backquote, columns)).write.insertInto(source.table)
    else:
        paths = source.paths or []
        if len(paths) != 1 or is_glob(paths[0]):
            raise InvalidSpecificationError(
                f"append() needs a handle of one folder or table, not of {source.name}: it says where to write"
            )
        if source.format == "hudi":
            raise InvalidSpecificationError(
                f"append() does not write {source.name}, a table of Hudi, whose writer is given the record key and the "
                "operation: frame.write.format('hudi').options(...).mode('append').save(path), then refresh_index()"
            )
        finish_overwrites(source.spark, qualify(source.spark, paths[0]))
        options = {name: value for name, value in source.options.items() if name != "schema"}
        partitions: tuple[str, ...] = ()
        with suppress(DatasetNotFoundError):
            state = source.current_state()
            if not state.relation.table:  # a table format checks the columns, and may compute those of partitions
                partitions = state.relation.partitions
                check_columns(source, state, frame, "append()")
                if source.format == "csv":
                    frame = _in_order_of(source, state, frame)
        writer = frame.write.format(source.format).mode("append").options(**options).partitionBy(*partitions)
        with _writing_to(source):
            writer.save(paths[0])
    with warn_of_failure(source, stacklevel=5):
        snapshot = latest(source.store(source.relation()))
        return refresh(source) if snapshot is not None and snapshot.header.entries else None
    return None


@contextmanager
def warn_of_failure(source: DatasetSource, stacklevel: int) -> Iterator[None]:
    """Context in which rows that were added are indexed; an error becomes a warning.

    After an error a user would retry, and write the rows twice.
    """
    try:
        yield
    except Exception as error:
        reason = error if isinstance(error, GeoskipError) else type(error).__name__
        warnings.warn(f"the rows are in {source.name}, and are not indexed: {reason}", stacklevel=stacklevel)


def check_frame(call: str, frame: Any) -> None:
    """Raise an error for a stream, a column of an unknown type, and anything but a DataFrame."""
    if getattr(frame, "isStreaming", False):
        raise InvalidSpecificationError(
            f"{call} takes rows that are there, got a stream: write it with frame.writeStream, then refresh_index()"
        )
    if not hasattr(frame, "write") or not hasattr(frame, "sparkSession"):
        raise InvalidSpecificationError(f"{call} takes a DataFrame of Spark, got {type(frame).__name__}")
    check_types(frame, call, _CAST)


def _warn_of_table_format(source: DatasetSource, state: SourceState) -> None:
    """Warn if the files belong to a table of Delta or Hudi that is read as plain files."""
    if state.relation.table:
        return
    folder = folder_at(state.relation.root)
    with suppress(OSError):  # other operations report an unreachable file system
        for name, marker in (("Delta", "_delta_log"), ("Hudi", ".hoodie")):
            if folder.exists(marker):
                warnings.warn(
                    f"{source.name} is a table of {name}: queries skip where they read its files as {source.format}, "
                    f"those of earlier versions too, and not where they read it as {name.lower()}",
                    stacklevel=6,
                )


@contextmanager
def _writing_to(source: DatasetSource) -> Iterator[None]:
    """Show the progress of an append, and give the reason if it fails."""
    with (
        explain_errors(f"{source.name} could not be written"),
        show_progress(source.spark, f"writing to {source.name}"),
    ):
        yield


def check_columns(source: DatasetSource, state: SourceState, frame: DataFrame, call: str) -> None:
    """Raise an error for rows that Spark could not read with those of a folder.

    They lack a column, since Spark infers a folder's columns from one file, or have another type in binary files, or
    the log of a stream's sink would not name their files.

    Parameters
    ----------
    source, state
        The dataset, and its current files and columns.
    frame
        The rows to add.
    call
        The caller's name for the message, such as ``append()``.
    """
    if has_sink_log(state.relation.root):
        raise InvalidSpecificationError(
            f"a stream writes to {source.name}, and Spark reads only the files that the log of this stream names: it "
            f"would not find the rows of {call}, so write them by that stream, or to another folder"
        )
    check_types(state.frame, f"{call} to {source.name}", "write the rows with Spark itself, then refresh_index()")
    _check_names(source, state.frame.columns, frame, call)
    if source.format not in _TYPED or "schema" in source.options:
        return
    given = {**{name.lower(): kind for name, kind in frame.dtypes}, **dict(frame.dtypes)}
    for name, kind in state.frame.dtypes:
        found = given.get(name, given[name.lower()])
        if name not in state.relation.partitions and found.lower() != kind.lower():
            raise InvalidSpecificationError(
                f"{call} adds rows of the same types to {source.name}: {name} is of type {kind} there, got {found}; "
                "cast it, nothing was written"
            )


def _in_order_of(source: DatasetSource, state: SourceState, frame: DataFrame) -> DataFrame:
    """Rows with the columns of CSV files in their order, since Spark reads these by position."""
    if len(frame.columns) > len(state.frame.columns):
        raise InvalidSpecificationError(
            f"append() takes rows with the columns of {source.name}, {', '.join(state.frame.columns)}, got "
            f"{', '.join(frame.columns)}: readers of CSV would not find the others, so nothing was written"
        )
    return frame.select(*map(backquote, state.frame.columns))


def _check_names(source: DatasetSource, columns: Sequence[str], frame: DataFrame, call: str) -> None:
    is_sensitive = str(source.spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    given = frame.columns
    if missing := [name for name in columns if not matching_names(name, given, case_sensitive=is_sensitive)]:
        raise InvalidSpecificationError(
            f"{call} takes rows with the columns of {source.name}, and these lack {', '.join(missing)}, so nothing "
            "was written: add them, as with withColumn(name, lit(None)), or write with Spark and refresh_index()"
        )
