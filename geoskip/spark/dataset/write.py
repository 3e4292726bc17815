"""Writing a DataFrame as a dataset in a layout.

The rows are arranged by :mod:`geoskip.spark.build.arrange`, written by Spark's own Parquet writer, and then indexed
like any other files. Summaries are collected from the written files and not while writing: only so they are certain to
describe what readers get, and it is cheaper. For 3,000,000 rows in 32 files, reading the indexed columns again took 2 %
of the time of the write, and passing the rows through Python to summarise them 41 %. The layout is recorded in the
metadata.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from geoskip.errors import (
    DatasetNotFoundError,
    GeoskipError,
    InvalidSpecificationError,
    UnknownColumnError,
    UnsupportedColumnError,
)
from geoskip.indexes.base import Index, SourceColumn
from geoskip.layout.layout_report import RECORDED_SIZE, layout_name, mean_size, with_writes
from geoskip.layout.specification import Layout
from geoskip.lifecycle.log import latest
from geoskip.sources.bound_indexes import indexes_of
from geoskip.sources.listed_files import is_glob
from geoskip.spark.analysis import arrow_type, is_geometry_type, select_texts, sentence
from geoskip.spark.build.arrange import FILE_SIZE, arrange, file_target
from geoskip.spark.build.listing import qualify, table_format
from geoskip.spark.build.spark_jobs import explain_errors, show_progress
from geoskip.spark.dataset import create_refresh
from geoskip.spark.dataset.dataset_layout import layout_in, record_layout
from geoskip.spark.dataset.handle import Dataset, check_spelling
from geoskip.spark.dataset.overwrite import finish_overwrites, overwrite
from geoskip.spark.dataset.source import DatasetSource, SparkData, check_metadata_arguments
from geoskip.spark.filesystem import HadoopFolder
from geoskip.spark.session import check_session
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption

_MODES = ("error", "errorifexists", "overwrite", "append", "ignore")


def write(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    layout: Layout | None = None,
    files: int | None = None,
    file_size: int | str | None = None,
    partition_by: str | Sequence[str] = (),
    mode: str = "error",
    indexes: Index | Iterable[Index] = (),
    metadata: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    encryption: Encryption | None = None,
    **writer_options: Any,
) -> Dataset:
    """Write a DataFrame as Parquet files in a layout, and index them.

    The rows are read up to four times, so cache them if they are expensive to compute. A DataFrame without rows is
    written as Spark writes it. All arguments are checked before anything is written. An overwrite replaces the old
    files once all rows are written, so they stay if writing fails; a new folder is then removed. If the process is
    killed while files are replaced, the next call finishes that.

    Parameters
    ----------
    frame
        The rows.
    path
        The folder to write.
    layout
        ``ZOrder``, ``Hilbert``, ``KDTree`` or ``Sort`` over columns or SQL texts. With None the rows stay in their
        partitions, or are distributed over ``files``.
    files
        The number of files, at most the number of rows. Up to 50,000 rows, or 400 for each file, the row counts of
        files differ from the mean by at most 40 %; for more rows, the error of a sample of this size is added. A k-d
        tree keeps all rows with the same value in one file, up to twice the mean, even if they exceed the rows of a
        file. With ``partition_by`` it is the total number of files, at least one for each combination of values.
    file_size
        Instead of ``files``: the size of a file, in bytes or as ``"128 MiB"`` (default), estimated from a sample of the
        rows.
    partition_by
        Partition columns; the layout applies to the files of each folder.
    mode
        Behaviour if the folder exists: ``error``, ``overwrite``, ``append`` or ``ignore``. Appended rows need
        the partition columns of the existing rows, and their columns in the same types; if these rows are written and
        cannot be indexed, a warning says so, since after an error a user would write them twice.
    indexes
        Indexes to create with ``Dataset.create_index``. By default existing ones are refreshed; an overwrite
        removes those whose metadata are in the folder.
    metadata, store, encryption
        As for :func:`geoskip.dataset`.
    **writer_options
        Options of Spark's writer, such as ``compression="zstd"``.

    Returns
    -------
    Dataset

    Raises
    ------
    InvalidSpecificationError
        For invalid arguments: zero files, both ``files`` and ``file_size``, an invalid layout or index, an expression
        that is not deterministic or not SQL, an existing folder with ``mode="error"``.
    ConflictError
        If an earlier overwrite was interrupted while it replaced files; it is finished, and nothing else is written.
    UnknownColumnError
        For a column that the rows lack.
    UnsupportedColumnError
        For a column of a type without an order, such as a map.
    StoreError
        If the file system reports an error, such as a full disk.
    """
    create_refresh.check_frame("write()", frame)
    spark = frame.sparkSession
    check_session(spark)
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or is_glob(os.fsdecode(path)):
        raise InvalidSpecificationError(f"write() takes the path of one folder, got {path!r}")
    if layout is not None and not isinstance(layout, Layout):
        raise InvalidSpecificationError(f"write(layout=) takes a layout such as ZOrder('lng', 'lat'), got {layout!r}")
    indexes = indexes_of("write(indexes=)", indexes)
    given, mode = mode, mode.lower() if isinstance(mode, str) else mode  # as Spark's writer reads it
    if mode not in _MODES:
        raise InvalidSpecificationError(f"write(mode=) takes {', '.join(map(repr, _MODES))}, got {given!r}")
    files, size = file_target("write", files, file_size)
    if file_size is not None and layout is None:
        raise InvalidSpecificationError(f"write(file_size={file_size!r}) needs a layout=, or give files=")
    _check_option_names(writer_options)
    codec = _codec(frame, writer_options)
    partitions = _partitions(frame, partition_by)
    _check_indexes(frame, indexes, partitions)
    place = os.fsdecode(path)
    folder = check_metadata_arguments("write", metadata, store, encryption)
    source = DatasetSource(spark, place, metadata=folder, given=store, encryption=encryption)
    root = qualify(spark, place)
    exists = HadoopFolder(root).exists("")
    if exists and (table := table_format(spark, place)) is not None:
        raise InvalidSpecificationError(
            f"write() writes folders of Parquet, and {place} is a table of {table.title()}, whose log would not name "
            f"the files: frame.write.format({table!r}).mode({mode!r}).save(path), then refresh_index()"
        )
    if exists and mode in ("error", "errorifexists"):
        raise InvalidSpecificationError(
            f"{place} exists already: write to another folder, or give mode='overwrite' or mode='append'"
        )
    if exists and mode == "ignore":
        return Dataset(source)
    if exists:
        finish_overwrites(spark, root)
    is_dynamic = partitions and _overwrite_mode(frame, writer_options) == "dynamic"
    is_added = exists and (mode == "append" or is_dynamic)
    if is_added:
        _check_added(source, frame, partitions)
    if layout is not None:
        with (
            explain_errors(f"the rows for {place} could not be arranged, and nothing was written"),
            show_progress(spark, f"arranging rows by {layout}"),
        ):
            frame = arrange(frame, layout, files=files, file_size=size, partitions=partitions, codec=codec).frame
    elif files is not None:
        frame = frame.repartition(files)
    earlier = _files_of(source) if is_added else {}
    writer = frame.write.options(**writer_options).partitionBy(*partitions)
    with show_progress(spark, f"writing {place}"):
        if exists and not is_added:
            overwrite(spark, writer, root, writer_options)
        else:
            try:
                with explain_errors(f"{place} could not be written", writer_options):
                    writer.mode(mode).parquet(place)
            except GeoskipError:
                if not exists:
                    HadoopFolder(root).delete_if_empty()
                raise
    with create_refresh.warn_of_failure(source, stacklevel=4) if is_added else nullcontext():
        _index(source, indexes, layout, earlier, None if files is not None else size or FILE_SIZE)
    return Dataset(source)


def _index(
    source: DatasetSource, indexes: Sequence[Index], layout: Layout | None, earlier: Mapping[str, int], size: int | None
) -> None:
    """Create or refresh the indexes, and record the layout.

    Parameters
    ----------
    source, indexes, layout
        The dataset, and the arguments of :func:`write`.
    earlier
        The URIs of the files that were there before.
    size
        The size of files to record; None for the mean size.
    """
    try:
        relation = source.relation()
    except DatasetNotFoundError:  # without rows Spark writes no partition folders
        return
    if source.is_private():
        source.make_known(relation)
    before = latest(source.store(relation))
    recorded = None
    if layout is not None:
        known = layout_in(before if earlier else None)
        written = {uri: length for uri, length in _files_of(source).items() if uri not in earlier}
        same = known if layout_name(known) == str(layout) else layout.to_json()
        recorded = {RECORDED_SIZE: size or mean_size(written.values()), **with_writes(same, sorted(written))}
    if indexes:
        create_refresh.create(source, indexes, recorded)
        return
    if before is not None and before.header.entries:
        create_refresh.refresh(source)
    if recorded is not None:
        record_layout(SparkData(source), recorded)


def _check_indexes(frame: DataFrame, indexes: Sequence[Index], partitions: Sequence[str]) -> None:
    """Raise an error, before rows are written, if an index could not be built over them."""
    for index in indexes:
        texts = index.expressions()
        fields = select_texts(frame, texts, index).schema.fields
        names = ["geometry" if is_geometry_type(f.dataType) else f.dataType.simpleString() for f in fields]
        kinds = [arrow_type(field) for field in fields]
        index.metadata_type(*map(SourceColumn, texts, names, kinds))
        try:
            select_texts(frame.drop(*partitions), texts, index)
        except InvalidSpecificationError:
            raise InvalidSpecificationError(
                f"{index} reads a partition column, {', '.join(partitions)}; queries on it skip without an index"
            ) from None


def _check_option_names(options: Mapping[str, Any]) -> None:
    """Raise an error for ``format``, since Parquet is written, and for misspelt arguments."""
    for name, value in options.items():
        if name.lower() == "format":
            raise InvalidSpecificationError(
                f"write() writes Parquet, got format={value!r}: leave it out, or arrange a table by its own "
                "writer and index it with dataset()"
            )
    check_spelling(write, options)


def _codec(frame: DataFrame, options: Mapping[str, Any]) -> str | None:
    """The codec in the options; raises InvalidSpecificationError for one that Spark does not support."""
    given = {name.lower(): str(value) for name, value in options.items()}
    name = next((name for name in ("compression", "parquet.compression") if name in given), None)
    if name is None:
        return None
    jvm, session = cast(Any, frame.sparkSession._jvm), frame.sparkSession._jsparkSession
    parameters = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({name: given[name]})
    options_of = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetOptions
    try:
        options_of(parameters, session.sessionState().conf())
    except IllegalArgumentException as error:
        raise InvalidSpecificationError(
            f"write({name}=) takes a codec that Spark knows, got {given[name]!r}: {sentence(error)}"
        ) from None
    return given[name]


def _check_added(source: DatasetSource, frame: DataFrame, partitions: Sequence[str]) -> None:
    """Raise an error if Spark could not read old and new rows together.

    Spark ignores files beside partition folders, and infers the columns of a folder from one file.
    """
    try:
        state = source.current_state()
    except DatasetNotFoundError:
        return
    known = list(state.relation.partitions)
    if [name.lower() for name in known] != [name.lower() for name in partitions]:
        raise InvalidSpecificationError(
            f"write(partition_by=) takes the partition columns of the rows in {source.name}, {known}, got "
            f"{list(partitions)}: readers would not find old and new rows together"
        )
    create_refresh.check_columns(source, state, frame, "write()")


def _overwrite_mode(frame: DataFrame, options: Mapping[str, Any]) -> str:
    """Mode of an overwrite: ``static`` replaces everything, ``dynamic`` only the partitions of the rows."""
    given = {name.lower(): value for name, value in options.items()}
    name = "partitionOverwriteMode"
    return str(given.get(name.lower()) or frame.sparkSession.conf.get(f"spark.sql.sources.{name}")).lower()


def _files_of(source: DatasetSource) -> dict[str, int]:
    """The URIs of the current files, with their sizes."""
    try:
        uris, sizes, *_ = source.current_state().files.columns
        return dict(zip(uris.to_pylist(), sizes.to_pylist(), strict=True))
    except DatasetNotFoundError:
        return {}


def _partitions(frame: DataFrame, given: str | Sequence[str]) -> list[str]:
    """The names of partition columns as in the rows; raises an error for names of no folder."""
    if not isinstance(given, Iterable) or isinstance(given, bytes | Column):
        raise InvalidSpecificationError(f"write(partition_by=) takes names of columns such as ['day'], got {given!r}")
    wanted = [given] if isinstance(given, str) else list(given)
    known = {name.lower(): name for name in frame.columns} | {name: name for name in frame.columns}
    for name in wanted:
        if not isinstance(name, str) or (name not in known and name.lower() not in known):
            near = difflib.get_close_matches(str(name).lower(), known, 1)
            hint = f"did you mean {known[near[0]]}? The" if near else "the"
            columns = ", ".join(frame.columns[:20])
            raise UnknownColumnError(f"write(partition_by=): there is no column {name}; {hint} columns are {columns}")
    found = [known.get(name) or known[name.lower()] for name in wanted]
    if len({*found}) < len(found) or (found and len(found) == len(frame.columns)):
        raise InvalidSpecificationError(
            f"write(partition_by=) takes each column once, and leaves some for the files, got {wanted}"
        )
    for name in found:
        kind = frame.schema[name].dataType
        if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
            raise UnsupportedColumnError(
                f"write(partition_by=): {name} is of type {kind.simpleString()}, which no folder is named by; use "
                "numbers, texts or times, such as a field of it added as a column"
            )
    return found
