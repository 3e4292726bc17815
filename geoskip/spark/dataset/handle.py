"""The handle of one dataset: its indexes' whole life, a method a verb."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.lifecycle import actions
from geoskip.lifecycle.actions import Vacuumed
from geoskip.lifecycle.transaction import latest
from geoskip.lifecycle.verbs import StalenessBound, duration
from geoskip.spark.build.job import BuildReport
from geoskip.spark.catalog import KEYS
from geoskip.spark.dataset import auto_refresh as keeping
from geoskip.spark.dataset import create_refresh
from geoskip.spark.dataset import describe as telling
from geoskip.spark.dataset import verify as checking
from geoskip.spark.dataset.auto_refresh import RefreshThread
from geoskip.spark.dataset.create_refresh import ENGINE
from geoskip.spark.dataset.describe import datasets
from geoskip.spark.dataset.lifecycle_data import SparkData
from geoskip.spark.dataset.source import DatasetSource
from geoskip.spark.dataset.verify import VerifyResult
from geoskip.spark.session import check_session, java, known
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption

__all__ = ["Dataset", "dataset", "datasets"]


def dataset(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    table: str | None = None,
    format: str = "parquet",
    metadata: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    encryption: Encryption | None = None,
    auto_refresh: bool | int | str | None = None,
    **reader_options: Any,
) -> Dataset:
    """The handle of a dataset given as a file, directory, glob or list of them, or as a table of the catalogue.

    ``format`` and ``reader_options`` are Spark's (``schema=`` too). Metadata are kept in ``<dataset>/_geoskip``; of a
    file, a glob or a list in the folder that holds it, which other handles in that folder share. ``metadata`` names
    another folder (for data that are read-only), ``store`` another store, ``encryption`` how metadata are protected:
    queries of this driver, and handles made later that name no place, find such metadata once the handle was made, if
    none are known elsewhere; otherwise :meth:`Dataset.use_metadata` makes them use these.

    ``auto_refresh`` indexes what is new, where that are at most so many files (``100``) or bytes (``"64 MiB"``), or
    whatever it is (``True``): :meth:`Dataset.to_df` does so before it returns. Of other queries of this driver, by
    ``spark.sql`` or ``spark.read``, each that asks for an index makes a thread look for what is new, for the queries
    after it: the first one reads new files, since no data are read while a query is planned. That goes on until the
    session ends, or a handle of the dataset is made with ``auto_refresh=False``.
    """
    check_session(spark)
    if (path is None) == (table is None):
        raise InvalidSpecificationError("dataset() takes either a path or table=, and not both")
    for name, given, kind in (("store", store, Store), ("encryption", encryption, Encryption)):
        if given is not None and not isinstance(given, kind):
            raise InvalidSpecificationError(f"dataset({name}=) takes a geoskip.stores.{kind.__name__}, got {given!r}")
    if store is not None and metadata is not None:
        raise InvalidSpecificationError("dataset() takes metadata= (a folder) or store= (a store), and not both")
    if store is not None and encryption is not None:
        raise InvalidSpecificationError(
            f"encryption= does not protect the metadata of the store {store.location}: {store.protection}"
        )
    if nested := [name for name, value in reader_options.items() if isinstance(value, dict)]:
        raise InvalidSpecificationError(
            f"dataset({nested[0]}=) takes one option's value, got {reader_options[nested[0]]!r}: the reader's options "
            "are arguments of their own, as in dataset(spark, path, format='csv', header=True)"
        )
    bound = StalenessBound.of(auto_refresh)
    known.read_keys(spark.conf.get(KEYS, None))
    folder = None if metadata is None else _path(metadata, "metadata=")
    place = DatasetSource(spark, _paths(path), table, format, reader_options, folder, store, encryption)
    found = Dataset(place, bound)
    source = place.source()
    place.store(source)  # says at once what is wrong with it
    if place.is_private():
        place.make_known(source)
    if auto_refresh is not None:
        keeping.refresh_after_queries(found._place, bound)
    return found


def _path(given: object, name: str) -> str:
    if not isinstance(given, str | os.PathLike):
        raise InvalidSpecificationError(f"dataset({name}) takes the path of a folder, got {given!r}")
    return os.fsdecode(given)


def _paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> str | list[str] | None:
    if given is None or isinstance(given, list | tuple):
        return None if given is None else [_path(path, "path") for path in given]
    return _path(given, "path")


class Dataset:
    """A dataset and its indexes; made by :func:`dataset`."""

    def __init__(self, place: DatasetSource, auto_refresh: StalenessBound | None = None) -> None:
        self._place = place
        self._auto_refresh = auto_refresh

    @property
    def spark(self) -> SparkSession:
        """The session that it was made with."""
        return self._place.spark

    @property
    def path(self) -> str | Sequence[str] | None:
        """What it was made with; None for a table."""
        return self._place.path

    @property
    def table(self) -> str | None:
        """The table that it was made with."""
        return self._place.table

    @property
    def store(self) -> Store:
        """Where its metadata are; ``store.describe()`` says how large they are, by index, and what a query costs it."""
        return self._store()

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The specifications in use."""
        snapshot = latest(self._store())
        return snapshot.indexes if snapshot else ()

    def to_df(self) -> DataFrame:
        """The dataset as a DataFrame, listed now; queries on it skip. With ``auto_refresh`` what is new is indexed
        before; where that fails, it is read.
        """
        if self._auto_refresh is not None:
            try:
                keeping.refreshed(self._place, self._auto_refresh)
            except GeoskipError as error:
                warnings.warn(f"{self._place.name} was not refreshed: {error}", stacklevel=2)
        return self._place.read(self.spark)

    # --- verbs that read data ---------------------------------------------------------------------------------------

    def create_index(self, *indexes: Index) -> BuildReport:
        """Build the given indexes, all in one job; on an indexed dataset they are added.

        Files that are new or changed since the last build get all indexes. An index that is there already is built
        anew. Nothing is written before everything was checked.
        """
        if not indexes:
            raise InvalidSpecificationError("create_index() needs at least one index, such as MinMax('temp')")
        return create_refresh.create(self._place, indexes)

    def refresh_index(self, mode: str = "incremental") -> BuildReport:
        """Bring the metadata up to the files of now.

        ``incremental`` reads new and changed files and forgets deleted ones, at a cost in proportion to the change;
        ``full`` builds everything anew; ``quick`` reads no data: it forgets what is no longer true, and counts what
        an incremental refresh would index.
        """
        return create_refresh.refresh(self._place, mode)

    def append(self, frame: DataFrame) -> BuildReport | None:
        """Write rows to the dataset, in its format and partitions, and index the files that this makes; None where
        there is no index, or where indexing failed, of which a warning tells: the rows are written all the same.
        """
        return create_refresh.append(self._place, frame)

    def keep_fresh(self, every: float = 60.0) -> RefreshThread:
        """Refresh every so many seconds in a thread, until ``stop()``, the end of a ``with`` block or of the session.

        What fails is warned of and tried again; ``RefreshThread.last`` is the last report.
        """
        return RefreshThread(self._place, every)

    def verify(self, sample: float | None = None) -> VerifyResult:
        """Collect the summaries of all files, or of a share of them, anew, and compare them with those stored."""
        return checking.verify(self._place, sample)

    def repair(self) -> BuildReport:
        """Drop what is damaged, or says something else than the data, and build it anew; new files are indexed too.

        Metadata that came with data which were moved, renamed or copied are built anew for where they are now.
        """
        return checking.repair(self._place)

    # --- verbs that do not ------------------------------------------------------------------------------------------

    def optimize_index(self) -> None:
        """Write the many small parts that refreshes leave as one, in the order of the paths."""
        actions.optimize(self._store(), by=ENGINE)
        self._changed()

    def delete_index(self, *which: Index | str) -> tuple[str, ...]:
        """Take indexes out of use, all if none is named; ``which`` is a specification or its text. Queries that are
        planned from now on do without; :meth:`restore_index` brings them back until a :meth:`vacuum_index`.
        """
        deleted = actions.delete(self._store(), [str(index) for index in which], by=ENGINE)
        self._changed()
        return deleted

    def restore_index(self, *which: Index | str) -> tuple[str, ...]:
        """Take deleted indexes into use again, all if none is named. They know nothing of the files that were indexed
        meanwhile: those are read until :meth:`repair` or a full refresh.
        """
        restored = actions.restore(self._store(), [str(index) for index in which], by=ENGINE)
        self._changed()
        return restored

    def vacuum_index(self, retain: timedelta | float | str = timedelta(days=7)) -> Vacuumed:
        """Remove for good: deleted indexes, snapshots that were succeeded longer than ``retain`` ago (a timedelta,
        hours, or a text such as ``"7 days"``), and what crashed writers left. A query planned with a snapshot that is
        removed reads every file.
        """
        removed = actions.vacuum(self._store(), duration(retain), by=ENGINE)
        self._changed()
        return removed

    def use_metadata(self) -> None:
        """Let queries of this driver, and handles made from now on that name no place, use the metadata of this handle.

        Only needed where there are metadata in another place too, or other keys: else they are found anyway.
        """
        self._place.use(self._place.source())
        self._changed()

    def rotate_keys(self) -> None:
        """Wrap the keys of protected metadata by the newest versions of their master keys; nothing else is rewritten.
        The older versions are needed until a :meth:`vacuum_index` has removed the snapshots from before.
        """
        actions.rotate(self._store(), by=ENGINE)
        self._changed()

    def cancel(self) -> list[dict[str, Any]]:
        """Call off what is under way on this dataset, in whatever process; returns those operations. Each is told
        when it comes to commit, and nothing of it is kept.
        """
        state = self._place.state()
        cancelled = actions.cancel(self._place.store(state.source), SparkData(self._place, state).header(), by=ENGINE)
        self._changed()
        return cancelled

    # --- what is known ----------------------------------------------------------------------------------------------

    def describe(self) -> DataFrame:
        """A row an index: its text, kind, columns, files covered and not, bytes, when it was built and by which reader,
        what it keeps, and whether it is in use, deleted, or came along from another place and is not used.
        """
        return telling.describe(self._place)

    def history(self) -> DataFrame:
        """A row an operation, the oldest first: what was done by whom and when, to how many files, and what became of
        it. Those under way are ``running``, or ``dead`` where nobody carries them on.
        """
        return telling.told(self._place)

    def __repr__(self) -> str:
        place = self._place.table if self._place.table is not None else self._place.path
        try:
            known = ", ".join(map(str, self.indexes)) or "not indexed"
        except GeoskipError as error:
            known = str(error)
        return f"<geoskip dataset {place}: {known}>"

    def _store(self) -> Store:
        return self._place.store(self._place.source())

    def _changed(self) -> None:
        known.renew(self._place.source().root)
        java(self.spark).geoskip.forget()
