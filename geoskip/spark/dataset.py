"""The handle of one dataset: create, refresh and describe its indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import (
    ConflictError,
    DatasetNotFoundError,
    InvalidSpecificationError,
    MetadataError,
    NotIndexedError,
)
from geoskip.indexes.base import Index
from geoskip.metadata import Header, IndexEntry, Snapshot, add_indexes, build_table, replace_files
from geoskip.spark.analysis import Source, bind, sentence, source_of
from geoskip.spark.build import BuildReport, Built, build, details_of
from geoskip.spark.known import default_store
from geoskip.spark.listing import Listed, listing, nothing_to_index
from geoskip.spark.reading import said
from geoskip.spark.roots import is_glob, qualified, root_of
from geoskip.spark.sampling import prepared
from geoskip.spark.session import java, known
from geoskip.spark.state import State, divided, fresh, only, unseen
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption

__all__ = ["Dataset", "dataset", "datasets"]

_ATTEMPTS = 5


def dataset(
    spark: SparkSession,
    path: str | Sequence[str] | None = None,
    *,
    table: str | None = None,
    format: str = "parquet",
    metadata: str | None = None,
    store: Store | None = None,
    encryption: Encryption | None = None,
    **reader_options: Any,
) -> Dataset:
    """The handle of a dataset given as a file, directory, glob or list of them, or as a table of the catalogue.

    ``format`` and ``reader_options`` are Spark's (``schema=`` too). Metadata are kept in ``<dataset>/_geoskip``; of a
    file, a glob or a list in the folder that holds it, which other handles in that folder share. ``metadata`` names
    another folder (for data that are read-only), ``store`` another store, ``encryption`` how metadata are protected:
    such a dataset is known to queries of this driver once its handle was made.
    """
    if (path is None) == (table is None):
        raise InvalidSpecificationError("dataset() takes either a path or table=, and not both")
    if store is not None and (metadata is not None or encryption is not None):
        raise InvalidSpecificationError(
            "dataset() takes metadata= (a folder), with encryption= or without, or store= (a store), and not both"
        )
    found = Dataset(spark, path, table, format, reader_options, metadata, store, encryption)
    found._source()  # says at once what is wrong with it
    return found


def datasets(spark: SparkSession) -> dict[str, Snapshot]:
    """What this session knows to be indexed: the latest snapshot by root; what cannot be reached now is left out."""
    found: dict[str, Snapshot] = {}
    for root in known.roots():
        with suppress(MetadataError):
            snapshot = known.snapshot(root)
            if snapshot is not None:
                found[root] = snapshot
    return found


class Dataset:
    """A dataset and its indexes; made by :func:`dataset`."""

    def __init__(
        self,
        spark: SparkSession,
        path: str | Sequence[str] | None,
        table: str | None,
        format: str,
        options: Mapping[str, Any],
        metadata: str | None,
        store: Store | None,
        encryption: Encryption | None = None,
    ) -> None:
        self.spark = spark
        self.path = path
        self.table = table
        self.format = format
        self.options = dict(options)
        self._metadata = qualified(spark, metadata) if metadata is not None else None
        self._given = store
        self._encryption = encryption
        self._last: tuple[DataFrame, list[Listed]] | None = None

    def to_df(self) -> DataFrame:
        """The dataset as a DataFrame, listed now; queries on it skip."""
        return self._read(self.spark)

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The specifications in use."""
        snapshot = _latest(self._store(self._source()))
        return snapshot.indexes if snapshot else ()

    def create_index(self, *indexes: Index) -> BuildReport:
        """Build the given indexes, all in one job; on an indexed dataset they are added.

        Files that are new or changed since the last build get all indexes. An index that is there already is built
        anew. Nothing is written before everything was checked.
        """
        if not indexes:
            raise InvalidSpecificationError("create_index() needs at least one index, such as MinMax('temp')")
        return self._retried(lambda: self._create(indexes))

    def refresh_index(self, mode: str = "incremental") -> BuildReport:
        """Index new and changed files, forget deleted ones (``incremental``), or build everything anew (``full``)."""
        if mode not in ("incremental", "full"):
            raise InvalidSpecificationError(f"refresh_index(mode=) takes 'incremental' or 'full', got {mode!r}")
        return self._retried(lambda: self._refresh(mode))

    def describe(self) -> DataFrame:
        """A row an index: its text, kind, columns, files covered and not, bytes, when it was built, what it keeps."""
        state = self._state()
        snapshot = self._required(state)
        current = fresh(state)
        sizes = state.store.size()
        rows = []
        for entry in snapshot.header.entries:
            valid = snapshot.files.column(entry.name).is_valid()
            covered = int(pc.sum(pc.and_(valid, current)).as_py() or 0)
            rows.append(
                (
                    entry.name,
                    entry.index.kind,
                    ", ".join(name for name, _ in entry.columns),
                    covered,
                    len(state.files) - covered,
                    sizes.get(entry.name, 0),
                    snapshot.header.created,
                    snapshot.header.number,
                    entry.index.describe(),
                )
            )
        schema = "index string, kind string, columns string, files_covered long, files_uncovered long, bytes long, "
        return self.spark.createDataFrame(rows, schema + "built string, snapshot long, keeps string")

    def __repr__(self) -> str:
        place = self.table if self.table is not None else self.path
        return f"<geoskip dataset {place}: {', '.join(map(str, self.indexes)) or 'not indexed'}>"

    # --- one operation ---------------------------------------------------------------------------------------------

    def _create(self, indexes: Sequence[Index]) -> BuildReport:
        started = time.perf_counter()
        state = self._state()
        if (why := nothing_to_index(self._name, state.files)) is not None:
            raise DatasetNotFoundError(why)
        entries = prepared(state, bind(java(self.spark), state.frame, state.source, indexes))
        snapshot = state.snapshot
        if snapshot is None:
            built = build(self.spark, state.frame, state.source, entries, state.files)
            return self._commit(state, entries, build_table(entries, built.rows), built, "create", started)
        self._check_same(state)
        names = {entry.name for entry in entries}
        kept = [entry for entry in snapshot.header.entries if entry.name not in names]
        same, changes = self._unchanged(state, kept)  # the others' summaries of new files would mean something else
        stale, unchanged = divided(state)
        added = build(self.spark, state.frame, state.source, entries, unchanged)
        built = build(self.spark, state.frame, state.source, [*same, *entries], stale)
        old = snapshot.files.table()
        base = only(old.select([n for n in old.schema.names if n not in names]), state, unchanged)
        everything = [*kept, *entries]
        table = add_indexes(base, build_table(entries, added.rows))
        table = replace_files(table, table["path"], build_table(everything, built.rows))
        before = {entry.name: entry for entry in snapshot.header.entries}
        others = [entry.name for entry in entries if not _means_the_same(before.get(entry.name), entry)]
        rest = unseen(old.select([n for n in old.schema.names if n not in others]), state)
        table = replace_files(table, table["path"], rest)
        if stale:
            built.failures.update({name: [f"new files were left out: {why}"] for name, why in changes.items()})
        return self._commit(state, everything, table, added + built, "create", started)

    def _refresh(self, mode: str) -> BuildReport:
        started = time.perf_counter()
        state = self._state()
        entries = list(self._required(state).header.entries)
        self._check_same(state)
        if mode == "full":
            indexes = [entry.index for entry in entries]
            rebound = bind(java(self.spark), state.frame, state.source, indexes)
            built = build(self.spark, state.frame, state.source, rebound, state.files)
            return self._commit(state, rebound, build_table(rebound, built.rows), built, "refresh full", started)
        state = self._as_recorded(state)
        _, changes = self._unchanged(state, entries)
        if changes:
            name, why = next(iter(changes.items()))
            raise InvalidSpecificationError(
                f"{name} was built under other conditions ({why}); set them back, or build everything anew with "
                "refresh_index(mode='full')"
            )
        stale, unchanged = divided(state)
        built = build(state.spark, state.frame, state.source, entries, stale)
        old = self._required(state).files.table()
        table = replace_files(only(old, state, unchanged), old["path"], build_table(entries, built.rows))
        table = replace_files(table, table["path"], unseen(old, state))
        return self._commit(state, entries, table, built, "refresh", started)

    def _unchanged(self, state: State, entries: Sequence[IndexEntry]) -> tuple[list[IndexEntry], dict[str, str]]:
        """The entries that mean the same when bound now, and of the others what has changed."""
        same: list[IndexEntry] = []
        changes: dict[str, str] = {}
        for old in entries:
            try:
                (new,) = bind(java(self.spark), state.frame, state.source, [old.index])
            except InvalidSpecificationError as error:
                changes[old.name] = str(error)
                continue
            depends = [
                f"{k}={v} then, {new.depends.get(k)} now" for k, v in old.depends.items() if new.depends.get(k) != v
            ]
            if depends:
                changes[old.name] = "; ".join(depends)
            elif old.index.bound != new.index.bound:
                changes[old.name] = "its expression, a setting in it or a function has changed"
            else:
                same.append(old)
        return same, changes

    def _as_recorded(self, state: State) -> State:
        """The same state read under the settings that the indexes were built with, not the session's own."""
        assert state.snapshot is not None
        recorded, now = dict(state.snapshot.header.source.get("settings") or {}), state.source.settings
        differing = {name: value for name, value in recorded.items() if name in now and now[name] != value and value}
        if not differing:
            return state
        session: Any = self.spark
        other = type(session)(self.spark.sparkContext, session._jsparkSession.cloneSession())
        for name, value in differing.items():
            other.conf.set(name, value)
        frame = self._frame(other)
        return replace(state, spark=other, frame=frame, source=self._source_of(frame), files=listing(other, frame))

    def _commit(
        self, state: State, entries: Sequence[IndexEntry], table: pa.Table, built: Built, verb: str, started: float
    ) -> BuildReport:
        before = state.snapshot.header if state.snapshot else None
        header = Header(
            root=state.source.root,
            source={**state.source.to_json(), **self._how()},
            entries=tuple(entries),
            reasons=built.excluded,
            operation={"verb": verb, "pyspark": pyspark.__version__},
            identity=before.identity if before else "",
        )
        committed = state.store.commit(header, table, expected=before.number if before else None)
        self._make_known(state.source.root, state.store)
        java(self.spark).geoskip.forget()
        return BuildReport(
            indexes=tuple(entry.name for entry in entries),
            readers={name: " and ".join(sorted(readers)) for name, readers in built.readers.items()},
            files=table.num_rows,
            rows=pc.sum(table["rows"]).as_py() or 0,
            bytes=pc.sum(table["size"]).as_py() or 0,
            seconds=time.perf_counter() - started,
            metadata_bytes=state.store.size(),
            excluded=built.excluded,
            snapshot=committed.number,
            read=len(built.rows),
            incomplete=built.incomplete(),
            details=details_of(entries, table),
        )

    # --- what it works on ------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"table {self.table}" if self.table is not None else f"{self.path}"

    @property
    def _paths(self) -> list[str] | None:
        if self.table is not None:
            return None
        return [self.path] if isinstance(self.path, str) else [str(path) for path in self.path or ()]

    def _how(self) -> dict[str, Any]:
        return {"path": self.path if isinstance(self.path, str | None) else self._paths, "table": self.table}

    def _read(self, spark: SparkSession) -> DataFrame:
        if self.table is not None:
            return spark.table(self.table)
        options = dict(self.options)
        schema = options.pop("schema", None)
        reader = spark.read.format(self.format).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        paths = self._paths or []
        if not paths:
            raise DatasetNotFoundError("dataset() got an empty list of paths")
        return reader.load(paths[0] if len(paths) == 1 else paths)

    def _frame(self, spark: SparkSession) -> DataFrame:
        try:
            return self._read(spark)
        except AnalysisException as error:
            raise DatasetNotFoundError(f"{self._name} cannot be read: {sentence(error)}") from None
        except (PySparkException, Py4JJavaError) as error:
            raise InvalidSpecificationError(f"{self._name} cannot be read: {said(error)}") from error

    def _source(self) -> Source:
        _, source, _ = self._listed()
        if self._is_private():
            self._make_known(source.root, self._store(source))
        return source

    def _source_of(self, frame: DataFrame) -> Source:
        return source_of(java(self.spark), frame, self._name, lambda roots: root_of(self.spark, self._paths, roots))

    def _store(self, source: Source) -> Store:
        if self._given is not None:
            return self._given
        if self._metadata is None and source.root.endswith("/"):
            raise InvalidSpecificationError(
                f"the paths of {self._name} share no folder but {source.root}; say where to keep the metadata: "
                "dataset(..., metadata='folder')"
            )
        return default_store(source.root, self._metadata, self._encryption or known.encryption)

    def _is_private(self) -> bool:
        """Are the metadata such that queries find them only once they were told?"""
        return not (self._metadata is None and self._given is None and self._encryption is None)

    def _make_known(self, root: str, store: Store) -> None:
        """Let queries of this driver find metadata that are not in the dataset's own folder."""
        if self._is_private():
            known.register(root, store)
            java(self.spark).geoskip.register(root)
        else:
            known.store(root)

    def _state(self) -> State:
        frame, source, files = self._listed()
        store = self._store(source)
        return State(self.spark, frame, source, files, store, _latest(store))

    def _listed(self) -> tuple[DataFrame, Source, list[Listed]]:
        """The DataFrame of now and its files; the last one again if nothing has changed, since Spark's finding out
        the columns takes a job.
        """
        if self._last is not None and not any(map(is_glob, self._paths or ())):
            frame, before = self._last
            if listing(self.spark, frame) == before:
                return frame, self._source_of(frame), before
        frame = self._frame(self.spark)
        source = self._source_of(frame)
        files = listing(self.spark, frame)
        self._last = (frame, files) if self.table is None else None
        return frame, source, files

    def _required(self, state: State) -> Snapshot:
        if state.snapshot is None:
            raise NotIndexedError(f"{self._name} has no index yet; create one: dataset.create_index(MinMax('column'))")
        return state.snapshot

    def _check_same(self, state: State) -> None:
        """Two handles must not take turns in one folder with different datasets or readers."""
        header = state.snapshot.header if state.snapshot else None
        if header is None:
            return
        if header.root != state.source.root:
            raise InvalidSpecificationError(
                f"the metadata in {state.store.location} are those of {header.root}, not of {state.source.root}; "
                "keep each dataset's in a folder of its own"
            )
        now = state.source.to_json()
        for name in ("class", "options"):
            if header.source.get(name) != now[name]:
                raise InvalidSpecificationError(
                    f"{self._name} was indexed with {name} {header.source.get(name)}, now it is read with {now[name]}; "
                    "read it the same way, or keep other metadata: dataset(..., metadata='folder')"
                )

    def _retried(self, operation: Callable[[], BuildReport]) -> BuildReport:
        for _ in range(_ATTEMPTS - 1):
            with suppress(ConflictError):  # somebody else was faster: look again and do what is left to do
                return operation()
        return operation()


def _means_the_same(old: IndexEntry | None, new: IndexEntry) -> bool:
    meanings = [(e.index, e.index.bound, dict(e.depends)) for e in (old, new) if e is not None]
    return len(meanings) == 2 and meanings[0] == meanings[1]


def _latest(store: Store) -> Snapshot | None:
    number = store.latest()
    return None if number is None else store.load(number)
