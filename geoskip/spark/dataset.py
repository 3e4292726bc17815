"""The handle of one dataset: create, refresh and describe its indexes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import ConflictError, DatasetNotFoundError, InvalidSpecificationError, NotIndexedError
from geoskip.indexes.base import Index
from geoskip.metadata import Header, IndexEntry, Snapshot, add_indexes, build_table, replace_files
from geoskip.spark.analysis import Source, bind, source_of
from geoskip.spark.build import BuildReport, Built, Listed, build, listing, relative
from geoskip.spark.known import default_store
from geoskip.spark.session import java, known
from geoskip.stores.base import Store

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
    **reader_options: Any,
) -> Dataset:
    """The handle of a dataset given as a file, directory, glob or list of them, or as a table of the catalogue.

    ``format`` and ``reader_options`` are Spark's (``schema=`` too). Metadata are kept in ``<dataset>/_geoskip``,
    unless ``metadata`` names another folder (for data that are read-only) or ``store`` another store: such a dataset
    is known to queries of this driver once its handle was made.
    """
    if (path is None) == (table is None):
        raise InvalidSpecificationError("dataset() takes either a path or table=, and not both")
    if metadata is not None and store is not None:
        raise InvalidSpecificationError("dataset() takes metadata= (a folder) or store= (a store), and not both")
    found = Dataset(spark, path, table, format, reader_options, metadata, store)
    found._source()  # says at once what is wrong with it
    return found


def datasets(spark: SparkSession) -> dict[str, Snapshot]:
    """What this session knows to be indexed: the latest snapshot by root."""
    found = {root: known.snapshot(root) for root in known.roots()}
    return {root: snapshot for root, snapshot in found.items() if snapshot is not None}


@dataclass
class _State:
    """A dataset as it is at one moment: what is listed, and the snapshot that an operation starts from."""

    frame: DataFrame
    source: Source
    files: list[Listed]
    snapshot: Snapshot | None


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
    ) -> None:
        self.spark = spark
        self.path = path
        self.table = table
        self.format = format
        self.options = dict(options)
        self._metadata = metadata
        self._given = store

    def to_df(self) -> DataFrame:
        """The dataset as a DataFrame, listed now; queries on it skip."""
        if self.table is not None:
            return self.spark.table(self.table)
        options = dict(self.options)
        schema = options.pop("schema", None)
        reader = self.spark.read.format(self.format).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        paths = [self.path] if isinstance(self.path, str) else [str(p) for p in self.path or ()]
        if not paths:
            raise DatasetNotFoundError("dataset() got an empty list of paths")
        return reader.load(paths[0] if len(paths) == 1 else paths)

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The specifications in use."""
        snapshot = known.snapshot(self._root())
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
        """A row an index: its text, kind, columns, files covered and stale, bytes, when it was built."""
        state = self._state()
        snapshot = self._required(state)
        fresh = _fresh(state)
        sizes = self._store(state.source).size()
        rows = []
        for entry in snapshot.header.entries:
            valid = snapshot.files.column(entry.name).is_valid()
            covered = int(pa.compute.sum(pa.compute.and_(valid, fresh)).as_py() or 0)
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
                )
            )
        schema = "index string, kind string, columns string, files_covered long, files_uncovered long, bytes long, "
        return self.spark.createDataFrame(rows, schema + "built string, snapshot long")

    def __repr__(self) -> str:
        place = self.table if self.table is not None else self.path
        return f"<geoskip dataset {place}: {', '.join(map(str, self.indexes)) or 'not indexed'}>"

    # --- one operation ---------------------------------------------------------------------------------------------

    def _create(self, indexes: Sequence[Index]) -> BuildReport:
        started = time.perf_counter()
        state = self._state()
        if not state.files:
            raise DatasetNotFoundError(f"{self._name} has no files to index")
        entries = bind(java(self.spark), state.frame, state.source, indexes)
        snapshot = state.snapshot
        if snapshot is None:
            built = build(self.spark, state.frame, state.source, entries, state.files)
            return self._commit(state, entries, build_table(entries, built.rows), built, "create", started)
        self._check_same(state)
        names = {entry.name for entry in entries}
        kept = [entry for entry in snapshot.header.entries if entry.name not in names]
        stale, unchanged = _divided(state)
        added = build(self.spark, state.frame, state.source, entries, unchanged)
        base = snapshot.files.table().select([n for n in snapshot.files.table().schema.names if n not in names])
        table = add_indexes(_only(base, unchanged, state.source), build_table(entries, added.rows))
        everything = [*kept, *entries]
        built = build(self.spark, state.frame, state.source, everything, stale)
        table = replace_files(table, table["path"], build_table(everything, built.rows))
        return self._commit(state, everything, table, _both(added, built), "create", started)

    def _refresh(self, mode: str) -> BuildReport:
        started = time.perf_counter()
        state = self._state()
        snapshot = self._required(state)
        self._check_same(state)
        entries = list(snapshot.header.entries)
        rebound = bind(java(self.spark), state.frame, state.source, [entry.index for entry in entries])
        for old, new in zip(entries, rebound, strict=True):
            if (old.index.bound, dict(old.depends)) != (new.index.bound, dict(new.depends)) and mode != "full":
                changes = [
                    f"{k}={v} then, {new.depends.get(k)} now" for k, v in old.depends.items() if new.depends.get(k) != v
                ]
                raise InvalidSpecificationError(
                    f"{old.name} was built under other conditions ({'; '.join(changes) or 'its expression means '}"
                    f"{'' if changes else 'something else'}); set them back, or refresh_index(mode='full') to build anew"
                )
        if mode == "full":
            built = build(self.spark, state.frame, state.source, rebound, state.files)
            return self._commit(state, rebound, build_table(rebound, built.rows), built, "refresh full", started)
        stale, unchanged = _divided(state)
        built = build(self.spark, state.frame, state.source, entries, stale)
        table = _only(snapshot.files.table(), unchanged, state.source)
        table = replace_files(table, table["path"], build_table(entries, built.rows))
        return self._commit(state, entries, table, built, "refresh", started)

    def _commit(
        self, state: _State, entries: Sequence[IndexEntry], table: pa.Table, built: Built, verb: str, started: float
    ) -> BuildReport:
        store = self._store(state.source)
        before = state.snapshot.header if state.snapshot else None
        header = Header(
            root=state.source.root,
            source={**state.source.to_json(), **self._how()},
            entries=tuple(entries),
            reasons=built.excluded,
            operation={"verb": verb, "pyspark": pyspark.__version__},
            identity=before.identity if before else "",
        )
        committed = store.commit(header, table, expected=before.number if before else None)
        known.register(state.source.root, store)
        if self._metadata is not None or self._given is not None:
            java(self.spark).geoskip.register(state.source.root)
        java(self.spark).geoskip.forget()
        rows = pa.compute.sum(table["rows"]).as_py() or 0
        return BuildReport(
            indexes=tuple(entry.name for entry in entries),
            readers={name: " and ".join(sorted(readers)) for name, readers in built.readers.items()},
            files=table.num_rows,
            rows=rows,
            bytes=pa.compute.sum(table["size"]).as_py() or 0,
            seconds=time.perf_counter() - started,
            metadata_bytes=store.size(),
            excluded=built.excluded,
            snapshot=committed.number,
        )

    # --- what it works on ------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"table {self.table}" if self.table is not None else f"{self.path}"

    def _how(self) -> dict[str, Any]:
        return {"path": self.path if isinstance(self.path, str | None) else list(self.path), "table": self.table}

    def _source(self) -> Source:
        source = source_of(java(self.spark), self._frame(), self._name)
        if self._metadata is not None or self._given is not None:
            known.register(source.root, self._store(source))
            java(self.spark).geoskip.register(source.root)
        return source

    def _frame(self) -> DataFrame:
        try:
            return self.to_df()
        except AnalysisException as error:
            message = str(error).splitlines()[0]
            raise DatasetNotFoundError(f"{self._name} cannot be read: {message}") from None

    def _root(self) -> str:
        return self._source().root

    def _store(self, source: Source) -> Store:
        if self._given is not None:
            return self._given
        if self._metadata is not None:
            return default_store(source.root, self._metadata)
        root = source.root
        if len(source.roots) == 1 and self.table is None and not _is_directory(self.spark, root):
            root = root.rpartition("/")[0]
        return default_store(root)

    def _state(self) -> _State:
        frame = self._frame()
        source = self._source()
        store = self._store(source)
        number = store.latest()
        snapshot = store.load(number) if number is not None else None
        return _State(frame, source, listing(self.spark, frame), snapshot)

    def _required(self, state: _State) -> Snapshot:
        if state.snapshot is None:
            raise NotIndexedError(f"{self._name} has no index yet; create one: dataset.create_index(MinMax('column'))")
        return state.snapshot

    def _check_same(self, state: _State) -> None:
        """Two handles must not take turns in one folder with different files or readers."""
        header = state.snapshot.header if state.snapshot else None
        if header is None:
            return
        for name, now in {**state.source.to_json(), **self._how()}.items():
            then = header.source.get(name)
            if name in ("class", "options") and then != now:
                raise InvalidSpecificationError(
                    f"{self._name} was indexed with {name} {then}, now it is read with {now}; read it the same way, "
                    "or keep other metadata: dataset(..., metadata='folder')"
                )

    def _retried(self, operation: Any) -> BuildReport:
        for _ in range(_ATTEMPTS - 1):
            try:
                report: BuildReport = operation()
                return report
            except ConflictError:
                continue  # somebody else was faster: look again and do what is left to do
        final: BuildReport = operation()
        return final


def _fresh(state: _State) -> pa.Array:
    """One entry a row of the files table: is the file there now, as it was indexed?"""
    assert state.snapshot is not None
    files = state.snapshot.files
    now = {relative(file.uri, state.source.root): (file.size, file.mtime) for file in state.files}
    paths, sizes, times = (files.column(name).to_pylist() for name in ("path", "size", "mtime"))
    return pa.array([now.get(p) == (s, t) for p, s, t in zip(paths, sizes, times, strict=True)], pa.bool_())


def _divided(state: _State) -> tuple[list[Listed], list[Listed]]:
    """The listed files that are new or changed, and those indexed as they are."""
    assert state.snapshot is not None
    fresh = state.snapshot.files.column("path").filter(_fresh(state))
    known_paths = set(fresh.to_pylist())
    stale: list[Listed] = []
    unchanged: list[Listed] = []
    for file in state.files:
        (unchanged if relative(file.uri, state.source.root) in known_paths else stale).append(file)
    return stale, unchanged


def _only(table: pa.Table, files: Sequence[Listed], source: Source) -> pa.Table:
    paths = pa.array([relative(file.uri, source.root) for file in files], pa.string())
    return table.filter(pa.compute.is_in(table["path"], value_set=paths))


def _both(first: Built, second: Built) -> Built:
    readers = {name: set(found) for name, found in first.readers.items()}
    for name, found in second.readers.items():
        readers.setdefault(name, set()).update(found)
    return Built([*first.rows, *second.rows], {**first.excluded, **second.excluded}, readers)


def _is_directory(spark: SparkSession, uri: str) -> bool:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
    return bool(path.getFileSystem(conf).getFileStatus(path).isDirectory())
