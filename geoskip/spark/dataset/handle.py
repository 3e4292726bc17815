"""Handle of a dataset, with a method for each verb of its indexes' life."""

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
from geoskip.sources.bound_indexes import indexes_of
from geoskip.sources.build_verbs import BuildReport
from geoskip.sources.listed_files import is_glob
from geoskip.sources.verification import VerifyResult
from geoskip.spark.build.listing import table_format
from geoskip.spark.catalog import KEYS
from geoskip.spark.dataset import auto_refresh as auto
from geoskip.spark.dataset import create_refresh, verify
from geoskip.spark.dataset.auto_refresh import RefreshThread
from geoskip.spark.dataset.create_refresh import ENGINE
from geoskip.spark.dataset.file_ranges import report_layout
from geoskip.spark.dataset.replaced_files import remove_replaced
from geoskip.spark.dataset.rewrite_choice import file_target
from geoskip.spark.dataset.rewrite_files import RewriteReport, rewrite
from geoskip.spark.dataset.source import RESTRICTING, DatasetSource, SparkData
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
    """Handle of a dataset: a file, directory, glob or list of them, or a table of the catalogue.

    Queries of this driver, and handles made later without ``metadata``, ``store`` and ``encryption``, find metadata in
    another folder or store once a handle of it was made, if none are known elsewhere; otherwise
    :meth:`Dataset.use_metadata` makes them use these.

    Parameters
    ----------
    spark
        A classic session, whose driver runs here.
    path
        A file, directory, glob or list of them.
    table
        A table of the catalogue, instead of a path.
    format
        Spark's name of the format of the files. By default that of the table whose log is in the folder, as of Delta,
        else Parquet; ``"parquet"`` takes the files of a table as they are, with those of its earlier versions.
    metadata
        The folder of the metadata, for data that are read-only. By default they are in ``<dataset>/_geoskip``; those
        of a file, a glob or a list are in the folder that holds it, and other handles in that folder share them.
    store
        Another store for the metadata.
    encryption
        The keys that protect the metadata.
    auto_refresh
        Index new files before :meth:`Dataset.to_df` returns: at most so many files (``100``) or bytes (``"64 MiB"``),
        or any number (``True``). Other queries of this driver, by ``spark.sql`` or ``spark.read``, make a thread look
        for new files for the queries after them; a query itself reads new files, since no data are read while it is
        planned. The thread ends with the session, or when a handle is made with ``auto_refresh=False``.
    **reader_options
        Options of Spark's reader, ``schema=`` included.

    Returns
    -------
    Dataset

    Raises
    ------
    InvalidSpecificationError
        For arguments that contradict each other, and for what is no dataset of files.
    DatasetNotFoundError
        Where there are no such files.
    """
    check_session(spark)
    if (path is None) == (table is None):
        raise InvalidSpecificationError(
            f"dataset() takes either a path or table=, got path={path!r} and table={table!r}"
        )
    for name, given, kind in (("store", store, Store), ("encryption", encryption, Encryption)):
        if given is not None and not isinstance(given, kind):
            raise InvalidSpecificationError(f"dataset({name}=) takes a geoskip.stores.{kind.__name__}, got {given!r}")
    if store is not None and metadata is not None:
        raise InvalidSpecificationError("dataset() takes metadata= (a folder) or store= (a store), and not both")
    if store is not None and encryption is not None:
        raise InvalidSpecificationError(
            f"encryption= does not protect the metadata of the store {store.location}: {store.protection}"
        )
    check_spelling(dataset, reader_options)
    if nested := [name for name, value in reader_options.items() if isinstance(value, dict)]:
        raise InvalidSpecificationError(
            f"dataset({nested[0]}=) takes one option's value, got {reader_options[nested[0]]!r}: the reader's options "
            "are arguments of their own, as in dataset(spark, path, format='csv', header=True)"
        )
    bound = StalenessBound.of(auto_refresh)
    known.read_keys(spark.conf.get(KEYS, None))
    folder = None if metadata is None else _path(metadata, "metadata=")
    place = _paths(path)
    restricted = any(name.lower() in RESTRICTING for name in reader_options)
    if format is None and isinstance(place, str) and not is_glob(place) and not restricted:
        format = table_format(spark, place)
    source = DatasetSource(spark, place, table, format or "parquet", reader_options, folder, store, encryption)
    relation = source.relation()
    source.store(relation)  # raises at once for a store that cannot be used
    if source.is_private():
        source.make_known(relation)
    if auto_refresh is not None:
        auto.refresh_after_queries(source, bound)
    return Dataset(source, bound)


def check_spelling(call: Callable[..., Any], options: Iterable[str]) -> None:
    """Raise for a misspelt argument of a call, which would be taken for an option of Spark's and ignored."""
    for name in options:
        if meant := misspelt(name, getattr(call, "__kwdefaults__", None) or ()):
            raise InvalidSpecificationError(f"{call.__name__}() has no argument {name}; did you mean {meant}=?")


def _path(given: object, name: str) -> str:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise InvalidSpecificationError(f"dataset({name}) takes the path of a folder, got {given!r}")
    return os.fsdecode(given)


def _paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> str | list[str] | None:
    if given is None or isinstance(given, list | tuple):
        return None if given is None else [_path(path, "path") for path in given]
    return _path(given, "path")


class Dataset:
    """A dataset and its indexes; made by :func:`dataset`."""

    def __init__(self, source: DatasetSource, auto_refresh: StalenessBound | None = None) -> None:
        self._source = source
        self._auto_refresh = auto_refresh

    @property
    def spark(self) -> SparkSession:
        """Session that the handle was made with."""
        return self._source.spark

    @property
    def path(self) -> str | Sequence[str] | None:
        """Path, or paths, that the handle was made with; None for a table."""
        return self._source.path

    @property
    def table(self) -> str | None:
        """Table that the handle was made with, or None."""
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

        With ``auto_refresh`` new files are indexed first; where that fails there is a warning, and they are read.
        """
        if self._auto_refresh is not None:
            try:
                auto.refresh_within(self._source, self._auto_refresh)
            except GeoskipError as error:
                warnings.warn(f"{self._source.name} was not refreshed: {error}", stacklevel=2)
        return self._source.load(self.spark)

    # --- verbs that read data ---------------------------------------------------------------------------------------

    def create_index(self, *indexes: Index | Iterable[Index]) -> BuildReport:
        """Build the given indexes, all in one job; on an indexed dataset they are added.

        Several are given one by one or as a list. Files that are new or changed since the last build get all indexes.
        An existing index is built again. Nothing is written before everything was checked.
        """
        wanted = indexes_of("create_index()", *indexes)
        if not wanted:
            raise InvalidSpecificationError("create_index() needs at least one index, such as MinMax('temp')")
        return create_refresh.create(self._source, wanted)

    def refresh_index(self, mode: str = "incremental") -> BuildReport:
        """Update the metadata to the files of now.

        ``incremental`` reads new and changed files and forgets deleted ones, at a cost in proportion to the change;
        ``full`` builds all indexes again; ``quick`` reads no data: it forgets changed and deleted files, and counts
        those that an incremental refresh would index.
        """
        return create_refresh.refresh(self._source, mode)

    def append(self, frame: DataFrame) -> BuildReport | None:
        """Write rows to the dataset, in its format and partitions, and index the new files.

        Returns None where the dataset has no index, and, with a warning, where indexing failed: the rows are written.
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
        """Arrange the rows by a layout, partition by partition; files in order and large enough stay.

        *A table* of the catalogue is rewritten to a folder beside its own and then switched to it, by one atomic change
        of the catalogue (one a partition): a reader finds the old files or the new ones. *A path* cannot be switched:
        the rows are written to a new folder, ``to`` or ``<path>.geoskip-<id>``, which appears complete by one rename
        and is named in the report; readers of the old folder notice nothing. A folder is never rewritten in place,
        since a reader that lists it meanwhile would find rows twice or not at all; files that stay are copied.

        The old files stay until :meth:`remove_replaced`. A crash leaves the dataset as it was, or, between the
        switches of two partitions, with the same rows in both folders; the next rewrite removes what a crash has left.
        The new folder has the same indexes, and its metadata record the layout.

        Parameters
        ----------
        layout
            The layout; by default the recorded one.
        where
            A condition over partition columns, as SQL: other partitions stay as they are.
        file_size
            Bytes of a file, or a text such as ``"64 MiB"``; by default as when the layout was written, else 128 MiB.
            Files in order with 0.6 to 2 times as many stay.
        files
            Instead of ``file_size``, the number of files that the dataset, or what ``where`` chooses, is to have.
        to
            The new folder, for a dataset given by its path.

        Returns
        -------
        RewriteReport
            Where the dataset is now, and how many files were rewritten.

        Raises
        ------
        InvalidSpecificationError
            Without a layout, for one that does not fit the columns, and for datasets that are no folder or table of
            Parquet.
        ConflictError
            Where another writer has changed the dataset meanwhile; nothing is replaced, nothing is lost.
        StoreError
            Where there is no room, or a folder cannot be written; the dataset is as it was.
        """
        count, size = file_target(files, file_size)
        folder = None if to is None else _path(to, "to=")
        return rewrite(self._source, layout, where, files=count, file_size=size, to=folder)

    def remove_replaced(self, retain: timedelta | float | str = timedelta(days=7)) -> tuple[str, ...]:
        """Remove the files that rewrites have replaced, longer than ``retain`` ago; returns their folders.

        Readers that listed these files before the rewrite fail from then on. ``retain`` is a timedelta, a number of
        hours, or a text such as ``"7 days"``. Raises ConflictError, and removes nothing, where a writer has added files
        to the old folder since.
        """
        return remove_replaced(self._source, duration(retain))

    def keep_fresh(self, every: float = 60.0) -> RefreshThread:
        """Refresh every so many seconds in a thread.

        It ends with ``stop()``, the end of a ``with`` block or of the session. A refresh that fails gives a warning,
        and the next one is tried; ``RefreshThread.last`` is the last report.
        """
        return RefreshThread(self._source, every)

    def verify(self, sample: float | None = None) -> VerifyResult:
        """Collect the summaries of all files, or of a share of them, again, and compare them."""
        return verify.verify(self._source, sample)

    def repair(self) -> BuildReport:
        """Rebuild metadata that are damaged or contradict the data; new files are indexed too.

        Metadata that came with data which were moved, renamed or copied are rebuilt for the new location.
        """
        return verify.repair(self._source)

    # --- verbs that do not ------------------------------------------------------------------------------------------

    def optimize_index(self) -> None:
        """Merge the many small parts that refreshes leave into one, in the order of the paths."""
        actions.optimize(self._store(), by=ENGINE)
        self._invalidate_caches()

    def delete_index(self, *which: Index | str) -> tuple[str, ...]:
        """Take indexes out of use, all if none is named; ``which`` is a specification or its text.

        Queries planned from now on do not use them; :meth:`restore_index` brings them back until a
        :meth:`vacuum_index`.
        """
        deleted = actions.delete(self._store(), [str(index) for index in which], by=ENGINE)
        self._invalidate_caches()
        return deleted

    def restore_index(self, *which: Index | str) -> tuple[str, ...]:
        """Take deleted indexes into use again, all if none is named.

        They have no summaries of files that were indexed meanwhile: queries read those until :meth:`repair` or a full
        refresh.
        """
        restored = actions.restore(self._store(), [str(index) for index in which], by=ENGINE)
        self._invalidate_caches()
        return restored

    def vacuum_index(self, retain: timedelta | float | str = timedelta(days=7)) -> Vacuumed:
        """Remove deleted indexes, old snapshots and the files of crashed writers for good.

        A snapshot is old where its successor was made longer than ``retain`` ago: a timedelta, a number of hours, or a
        text such as ``"7 days"``. A query planned with a removed snapshot reads every file.
        """
        removed = actions.vacuum(self._store(), duration(retain), by=ENGINE)
        self._invalidate_caches()
        return removed

    def use_metadata(self) -> None:
        """Make queries of this driver, and later handles that name no store, use the metadata of this handle.

        Needed only where there are metadata in another place too, or other keys: else they are found anyway.
        """
        self._source.use(self._source.relation())
        self._invalidate_caches()

    def rotate_keys(self) -> None:
        """Wrap the keys of encrypted metadata by the newest versions of their master keys.

        Nothing else is rewritten. The older versions are needed until a :meth:`vacuum_index` has removed the snapshots
        from before.
        """
        actions.rotate(self._store(), by=ENGINE)
        self._invalidate_caches()

    def cancel(self) -> list[dict[str, Any]]:
        """Cancel the operations that run on this dataset, in whatever process, and return them.

        Each fails when it comes to commit, and leaves nothing.
        """
        data = SparkData(self._source, self._source.current_state())
        cancelled = actions.cancel(data.store, data.header(), by=ENGINE)
        self._invalidate_caches()
        return cancelled

    # --- reports -----------------------------------------------------------------------------------------------------

    def describe(self) -> DataFrame:
        """DataFrame of the indexes, a row each.

        Its columns are the text, kind, columns, files covered and not, bytes, time of the build and reader, contents,
        and the state: in use, deleted, or not used since it came from another location.
        """
        return verify.describe(self._source)

    def layout(self, *columns: str) -> LayoutReport:
        """Report how well the files cluster some columns, and how far they are from the recorded layout.

        For each column: how many other files a file's range overlaps, how many files hold one value, and how many
        files are expected to be read for a point and for ranges that hold 0.1, 1 and 10 % of the rows, all by each
        file's least and greatest value. ``report.plot()`` draws the files.

        Parameters
        ----------
        *columns
            Column names, or SQL texts over the columns. By default those of the recorded layout and of the indexes.

        Returns
        -------
        LayoutReport
            ``print(report)`` shows a table; ``report.to_dict()`` is ready for JSON.

        Raises
        ------
        InvalidSpecificationError
            For an unknown column and for a type without an order; without columns where there are no default ones.
        """
        return report_layout(self._source, columns)

    def statistics(self) -> DataFrame:
        """DataFrame of what the indexes store, a row a file and index: bounds, counts, values, boxes.

        Its columns are those of :func:`geoskip.statistics`, an interface with a version; null is unknown. In SQL,
        ``SELECT * FROM geoskip_statistics('path')`` reads the same where the metadata are in a folder that the
        workers can reach, without protection.
        """
        return statistics_frame(self.spark, statistics_of(self._store()))

    def history(self) -> DataFrame:
        """DataFrame of the operations, a row each, the oldest first.

        Operations under way are ``running``, or ``dead`` where their process is gone.
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
