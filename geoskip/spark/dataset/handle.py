"""Handle of a dataset, with a method for each operation on its indexes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from geoskip.engines.statistics import statistics_of
from geoskip.errors import GeoskipError, InvalidSpecificationError, misspelt
from geoskip.indexes.base import Index
from geoskip.layout.layout_report import LayoutReport
from geoskip.layout.specification import Layout
from geoskip.lifecycle import actions
from geoskip.lifecycle.actions import Vacuumed
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.verbs import StalenessBound, duration
from geoskip.sources.bound_indexes import indexes_of, names_of
from geoskip.sources.build_verbs import BuildReport
from geoskip.sources.listed_files import is_glob
from geoskip.sources.verification import VerifyResult
from geoskip.spark.build.arrange import file_target
from geoskip.spark.build.listing import table_format
from geoskip.spark.catalog import KEYS
from geoskip.spark.dataset import auto_refresh as auto
from geoskip.spark.dataset import create_refresh, verify
from geoskip.spark.dataset.auto_refresh import RefreshThread
from geoskip.spark.dataset.create_refresh import ENGINE
from geoskip.spark.dataset.dataset_layout import report_layout
from geoskip.spark.dataset.rewrite_files import RewriteReport, rewrite
from geoskip.spark.dataset.rewrite_folders import remove_replaced
from geoskip.spark.dataset.source import RESTRICTING, DatasetSource, SparkData, check_metadata_arguments, path_of
from geoskip.spark.session import check_session, java, known
from geoskip.spark.statistics_function import statistics_frame
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption


def dataset(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    table: str | None = None,
    format: str | None = None,
    metadata: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    encryption: Encryption | None = None,
    auto_refresh: bool | int | str | None = None,
    **reader_options: Any,
) -> Dataset:
    """Create a handle of a dataset: a file, directory, glob or list of them, or a catalogue table.

    Once a handle with ``metadata`` or ``store`` was created, queries of this driver, and later handles without
    ``metadata``, ``store`` and ``encryption``, use its metadata, unless another store has indexes of the dataset; then
    call :meth:`Dataset.use_metadata`.

    Parameters
    ----------
    spark
        A classic session with its driver in this process.
    path
        A file, directory, glob or list of them.
    table
        A table of the catalogue, instead of a path.
    format
        Spark's name of the file format. Default: the table format if the folder contains a table's log, such as
        Delta's, else Parquet. ``"parquet"`` treats the folder of a table as plain Parquet, including files of earlier
        versions.
    metadata
        The folder of the metadata, for example for read-only data. Default: ``<dataset>/_geoskip``; for a file, a glob
        or a list, in the folder that contains it, shared with other handles in that folder.
    store
        Another store for the metadata.
    encryption
        The keys for encrypting the metadata.
    auto_refresh
        Index new files before :meth:`Dataset.to_df` returns: at most this number of files (``100``) or bytes
        (``"64 MiB"``), or any number (``True``). After other queries of this driver, by ``spark.sql`` or
        ``spark.read``, a thread indexes new files for later queries; the query itself reads them in full, since
        planning reads no data. The thread ends with the session, or when a handle is created with
        ``auto_refresh=False``.
    **reader_options
        Options of Spark's reader, including ``schema=``.

    Returns
    -------
    Dataset

    Raises
    ------
    InvalidSpecificationError
        For contradictory arguments, and for anything that is not a dataset of files.
    DatasetNotFoundError
        If there are no such files.
    """
    check_session(spark)
    if (path is None) == (table is None):
        raise InvalidSpecificationError(
            f"dataset() takes either a path or table=, got path={path!r} and table={table!r}"
        )
    folder = check_metadata_arguments("dataset", metadata, store, encryption)
    check_spelling(dataset, reader_options)
    if nested := [name for name, value in reader_options.items() if isinstance(value, dict)]:
        raise InvalidSpecificationError(
            f"dataset({nested[0]}=) takes one option's value, got {reader_options[nested[0]]!r}: the reader's options "
            "are arguments of their own, as in dataset(spark, path, format='csv', header=True)"
        )
    bound = StalenessBound.of(auto_refresh)
    known.read_keys(spark.conf.get(KEYS, None))
    place = _paths(path)
    restricted = any(name.lower() in RESTRICTING for name in reader_options)
    if format is None and isinstance(place, str) and not is_glob(place) and not restricted:
        format = table_format(spark, place)
    source = DatasetSource(spark, place, table, format or "parquet", reader_options, folder, store, encryption)
    relation = source.relation()
    source.store(relation)  # raises early if no store can be used
    if source.is_private():
        source.make_known(relation)
    if auto_refresh is not None:
        auto.refresh_after_queries(source, bound)
    return Dataset(source, bound)


def check_spelling(call: Callable[..., Any], options: Iterable[str]) -> None:
    """Raise an error for a misspelt argument, which would be passed to Spark as an option and ignored."""
    for name in options:
        if meant := misspelt(name, getattr(call, "__kwdefaults__", None) or ()):
            raise InvalidSpecificationError(f"{call.__name__}() has no argument {name}; did you mean {meant}=?")


def _paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> str | list[str] | None:
    if given is None or isinstance(given, list | tuple):
        return None if given is None else [path_of(path, "dataset(path)") for path in given]
    return path_of(given, "dataset(path)")


class Dataset:
    """A dataset and its indexes, created by :func:`dataset`."""

    def __init__(self, source: DatasetSource, auto_refresh: StalenessBound | None = None) -> None:
        self._source = source
        self._auto_refresh = auto_refresh

    @property
    def spark(self) -> SparkSession:
        """Session that the handle was created with."""
        return self._source.spark

    @property
    def path(self) -> str | Sequence[str] | None:
        """Path, or paths, that the handle was created with; None for a table."""
        return self._source.path

    @property
    def table(self) -> str | None:
        """Table that the handle was created with, or None."""
        return self._source.table

    @property
    def store(self) -> Store:
        """Store of the metadata; ``store.describe()`` returns their size by index, and the cost of a query."""
        return self._store()

    @property
    def indexes(self) -> tuple[Index, ...]:
        """Specifications of the indexes in use."""
        snapshot = latest(self._store())
        return snapshot.indexes if snapshot else ()

    def to_df(self) -> DataFrame:
        """DataFrame of the dataset, listed now; queries on it skip files.

        With ``auto_refresh``, new files are indexed first; if that fails, a warning is given and queries read them.
        """
        if self._auto_refresh is not None:
            try:
                auto.refresh_within(self._source, self._auto_refresh)
            except GeoskipError as error:
                warnings.warn(f"{self._source.name} was not refreshed: {error}", stacklevel=2)
        return self._source.load(self.spark)

    # --- verbs that read data ---------------------------------------------------------------------------------------

    def create_index(self, *indexes: Index | Iterable[Index]) -> BuildReport:
        """Build the given indexes in one job; add them if the dataset is already indexed.

        The indexes are arguments or a list. New and changed files get all indexes. An existing index is rebuilt. All
        arguments are checked before anything is written.
        """
        wanted = indexes_of("create_index()", *indexes)
        if not wanted:
            raise InvalidSpecificationError("create_index() needs at least one index, such as MinMax('temp')")
        return create_refresh.create(self._source, wanted)

    def refresh_index(self, mode: str = "incremental") -> BuildReport:
        """Update the metadata to the current files.

        ``incremental`` indexes new and changed files and removes the metadata of deleted ones; its cost is proportional
        to the change. ``full`` rebuilds all indexes. ``quick`` reads no data: it removes the metadata of changed and
        deleted files, and counts the files that an incremental refresh would index.
        """
        return create_refresh.refresh(self._source, mode)

    def append(self, frame: DataFrame) -> BuildReport | None:
        """Write rows to the dataset, in its format and partitions, and index the new files.

        The rows need the dataset's columns, for files of Parquet, ORC and Avro in the same types. Returns None if the
        dataset has no index, or, with a warning, if indexing failed; the rows are then written.
        """
        return create_refresh.append(self._source, frame)

    def rewrite(
        self,
        layout: Layout | None = None,
        where: str | None = None,
        *,
        file_size: int | str | None = None,
        files: int | None = None,
        to: str | os.PathLike[str] | None = None,
    ) -> RewriteReport:
        """Rewrite the rows in a layout, partition by partition; keep files that are in order and large enough.

        For *a table* of the catalogue, the rows are written to a folder beside its own, and an atomic change of the
        catalogue (one for each partition) switches the table to it: a reader finds the old files or the new ones. For
        *a path*, the rows are written to a new folder, ``to`` or ``<path>.geoskip-<id>``. A rename makes it visible
        when it is complete, and the report names it; readers of the old folder are not affected. Folders are never
        rewritten in place, since a reader that lists a folder during the rewrite would find rows twice or not at all.
        Files that are kept are copied.

        The old files are kept until :meth:`remove_replaced`. After a crash the dataset is unchanged, or, if the crash
        was between the switches of two partitions, some partitions are switched, with the same rows; the next rewrite
        removes leftover files. The new folder has the same indexes, and its metadata record the layout.

        Parameters
        ----------
        layout
            The layout; by default the recorded one.
        where
            A condition over partition columns, as SQL: other partitions are not changed.
        file_size
            File size in bytes, or a text such as ``"64 MiB"``; by default the recorded one of the layout, else 128 MiB.
            Files in order are kept if their size is 0.6 to 2 times this size.
        files
            Instead of ``file_size``, the number of files of the dataset, or of the partitions selected by ``where``. It
            gives the size: files in order that are 0.6 to 2 times the mean size of so many files are kept.
        to
            The new folder, for a dataset given by its path.

        Returns
        -------
        RewriteReport
            The new location of the dataset, and the number of rewritten files.

        Raises
        ------
        InvalidSpecificationError
            If there is no layout, if it does not fit the columns, or if the dataset is not a folder or table of
            Parquet.
        ConflictError
            If another writer has changed the dataset during the rewrite; no file is replaced or lost.
        StoreError
            If the disk is full or a folder is not writable; the dataset is unchanged.
        """
        count, size = file_target("rewrite", files, file_size)
        folder = None if to is None else path_of(to, "rewrite(to=)")
        return rewrite(self._source, layout, where, files=count, file_size=size, to=folder)

    def remove_replaced(self, retain: timedelta | float | str = timedelta(days=7)) -> tuple[str, ...]:
        """Remove files that were replaced by rewrites longer than ``retain`` ago; return their folders.

        Queries that still read these files then fail. ``retain`` is a timedelta, a number of hours, or a text such as
        ``"7 days"``. Raises ConflictError and removes nothing if a writer has since added files to the old folder.
        """
        return remove_replaced(self._source, duration(retain))

    def keep_fresh(self, every: float = 60.0) -> RefreshThread:
        """Refresh in a background thread, every ``every`` seconds.

        The thread ends with ``stop()``, with the ``with`` block or with the session. If a refresh fails, a warning is
        given and the thread continues. ``RefreshThread.last`` is the last report.
        """
        return RefreshThread(self._source, every)

    def verify(self, sample: float | None = None) -> VerifyResult:
        """Recompute the summaries of all files, or of a sample, and compare them with the stored ones."""
        return verify.verify(self._source, sample)

    def repair(self) -> BuildReport:
        """Rebuild metadata that are damaged or differ from the data; index new files too.

        Metadata that were moved, renamed or copied together with the data are rebuilt for the new location.
        """
        return verify.repair(self._source)

    # --- verbs that read no data --------------------------------------------------------------------------------------

    def optimize_index(self) -> None:
        """Merge the small parts that refreshes have written into one, ordered by path."""
        actions.optimize(self._store(), by=ENGINE)
        self._invalidate_caches()

    def delete_index(self, *which: Index | str | Iterable[Index | str]) -> tuple[str, ...]:
        """Take indexes out of use, by default all.

        ``which`` are specifications or their texts, one by one or as a list. Queries planned later do not use them.
        Until :meth:`vacuum_index`, :meth:`restore_index` takes them back into use.
        """
        deleted = actions.delete(self._store(), names_of("delete_index()", *which), by=ENGINE)
        self._invalidate_caches()
        return deleted

    def restore_index(self, *which: Index | str | Iterable[Index | str]) -> tuple[str, ...]:
        """Take deleted indexes into use again, by default all; ``which`` is as for :meth:`delete_index`.

        They lack summaries of files that were indexed since the deletion: queries read these files until :meth:`repair`
        or a full refresh.
        """
        restored = actions.restore(self._store(), names_of("restore_index()", *which), by=ENGINE)
        self._invalidate_caches()
        return restored

    def vacuum_index(self, retain: timedelta | float | str = timedelta(days=7)) -> Vacuumed:
        """Permanently remove deleted indexes, old snapshots and files left by crashed writers.

        A snapshot is old if it was replaced longer than ``retain`` ago: a timedelta, a number of hours, or a text such
        as ``"7 days"``. A query planned with a removed snapshot reads every file.
        """
        removed = actions.vacuum(self._store(), duration(retain), by=ENGINE)
        self._invalidate_caches()
        return removed

    def use_metadata(self) -> None:
        """Use this handle's metadata for queries of this driver, and for later handles without a store.

        This is needed only if the dataset also has metadata in another place, or with other keys.
        """
        self._source.use(self._source.relation())
        self._invalidate_caches()

    def rotate_keys(self) -> None:
        """Wrap the keys of encrypted metadata with the newest versions of their master keys.

        Nothing else is rewritten. The older versions are needed until :meth:`vacuum_index` has removed earlier
        snapshots.
        """
        actions.rotate(self._store(), by=ENGINE)
        self._invalidate_caches()

    def cancel(self) -> list[dict[str, Any]]:
        """Cancel the running operations on this dataset, in all processes, and return them.

        A cancelled operation fails before its commit and leaves no files.
        """
        data = SparkData(self._source)
        cancelled = actions.cancel(data.store, data.header(), by=ENGINE)
        self._invalidate_caches()
        return cancelled

    # --- reports -----------------------------------------------------------------------------------------------------

    def describe(self) -> DataFrame:
        """DataFrame with one row for each index.

        Its columns are the text, kind, columns, numbers of covered and uncovered files, bytes, time of the build and
        reader, contents, and the state: in use, deleted, or not used because it was copied from another location.
        """
        return verify.describe(self._source)

    def layout(self, *columns: str) -> LayoutReport:
        """Report how well rows are clustered by some columns, and how far files are from the recorded layout.

        For each column: the mean number of other files that the range of a file overlaps, the largest number of files
        with ranges that contain the same value, and the expected number of files read for a point query and for ranges
        with 0.1, 1 and 10 % of the rows. All are computed from the minimum and maximum of each file. ``report.plot()``
        draws the files.

        Parameters
        ----------
        *columns
            Column names, or SQL texts over the columns. Default: those of the recorded layout and of the indexes.

        Returns
        -------
        LayoutReport
            ``print(report)`` shows a table; ``report.to_dict()`` is ready for JSON.

        Raises
        ------
        InvalidSpecificationError
            For an unknown column or a type without an order, or if no columns are given and there are no default ones.
        """
        return report_layout(self._source, columns)

    def statistics(self) -> DataFrame:
        """DataFrame of stored bounds, counts, values and boxes, one row for each file and index.

        Its columns are those of :func:`geoskip.statistics`, a versioned interface; null means unknown. In SQL, ``SELECT
        * FROM geoskip_statistics('path')`` returns the same, if the metadata are unencrypted and in a folder that the
        workers can read.
        """
        return statistics_frame(self.spark, statistics_of(self._store()))

    def history(self) -> DataFrame:
        """DataFrame with one row for each operation, oldest first.

        Unfinished operations are ``running``, or ``dead`` if their process has ended.
        """
        return verify.history_frame(self._source)

    def __repr__(self) -> str:
        name = self._source.table if self._source.table is not None else self._source.path
        try:
            indexes = ", ".join(map(str, self.indexes)) or "not indexed"
        except GeoskipError as error:
            indexes = str(error)
        return f"<geoskip dataset {name}: {indexes}>"

    def _store(self) -> Store:
        return self._source.store(self._source.relation())

    def _invalidate_caches(self) -> None:
        known.renew(self._source.relation().root)
        java(self.spark).geoskip.forget()
