"""Builds and checks of Parquet without Spark, with the same metadata, by the threads of this process.

Listing, partitions, columns, recorded settings, summaries and log entries are those of a build by Spark with its
default settings, so that either can refresh metadata of the other. Files that only Spark reads (with encrypted columns
or old times) have no metadata and are always read. Expressions that only Spark evaluates are refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from geoskip.engines.index_texts import TextBinder
from geoskip.engines.matched_snapshot import check_store, metadata_folder
from geoskip.engines.parquet_dataset import ParquetPaths, ParquetSource, ParquetState, state_of
from geoskip.engines.parquet_dataset import types_of as types_of_columns
from geoskip.engines.parquet_values import read_values
from geoskip.engines.usable_indexes import READ_ALIKE
from geoskip.errors import (
    DatasetNotFoundError,
    GeoskipError,
    InvalidSpecificationError,
    NeedsSparkError,
    NotIndexedError,
)
from geoskip.indexes.base import Index, SourceColumn
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.refresh import BuildResult, Listing
from geoskip.metadata import Header, IndexEntry
from geoskip.predicates import Call, Column, walk
from geoskip.registry.installed import load_mappings
from geoskip.report import count_of
from geoskip.sources.arrow_reader import SPARK, FileResult, read_files
from geoskip.sources.bound_indexes import FileRelation, check_distinct, check_indexes, entry_of, indexes_of, texts_of
from geoskip.sources.build_verbs import (
    MODES,
    BuildReport,
    changes_of,
    check_protected,
    create_indexes,
    refresh,
    report_on,
)
from geoskip.sources.built_rows import BuiltRows, build_rows
from geoskip.sources.footers import IndexPlan
from geoskip.sources.listed_files import UNNAMEABLE, ListedFile, absolute_uri, local_etag, reason_not_indexable
from geoskip.sources.progress import delayed_progress
from geoskip.sources.sampled_values import prepare_entries
from geoskip.sources.settings import PARQUET, SETTINGS_OF
from geoskip.sources.verification import VerifyResult, check_sample, verify_data
from geoskip.stores.base import Store
from geoskip.stores.log_files import local_path
from geoskip.stores.parquet import ParquetStore
from geoskip.types import sql_type

_ENGINE = f"pyarrow {pa.__version__}"
_CHUNK = 64
"""Files that a thread reads at a time."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def build(
    path: Paths,
    indexes: Index | Iterable[Index] = (),
    *more: Index | Iterable[Index],
    store: Store | None = None,
    metadata: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    mode: str = "incremental",
) -> BuildReport:
    """Build indexes over Parquet files without Spark, or refresh the existing ones.

    The metadata equal those of ``geoskip.dataset(spark, path).create_index(...)`` in a session with Spark's default
    settings: Spark queries use them, and ``refresh_index()`` updates them.

    Parameters
    ----------
    path
        A local folder, with or without partitions (``day=2024-01-05``), a file, a glob, or a list of these.
    indexes, *more
        The indexes to build, as arguments or as a list, in addition to the existing ones. By default the existing ones
        are refreshed. Expressions may be columns, fields of structs (``address.city``), and calls of functions that
        geoskip and installed libraries offer in Python (``GeoBox("ST_GeomFromWKB(shape)")``); other SQL expressions
        need Spark.
    store, metadata
        The store of the metadata, or their folder. Default: ``_geoskip`` beside the data.
    threads
        The number of threads that read files. Default: one for each processor.
    mode
        ``"incremental"`` reads new and changed files, ``"full"`` reads all files, ``"quick"`` reads none: it drops the
        summaries of changed files and counts the files to index.

    Returns
    -------
    BuildReport
        Numbers of files, rows and bytes; ``print`` shows them. Files without metadata are in ``excluded``, with the
        reason.

    Raises
    ------
    DatasetNotFoundError, NotIndexedError
        If there is nothing to index or to refresh.
    InvalidSpecificationError
        For expressions that need Spark, tables of Delta, Iceberg and Hudi, and indexes that were built under settings
        that only Spark has.
    ConflictError
        If another writer committed first, and the two commits contradict each other.
    """
    started = time.perf_counter()
    wanted = indexes_of("build()", indexes, *more)
    if mode not in MODES:
        raise InvalidSpecificationError(f"build(mode=) takes {', '.join(map(repr, MODES))}, got {mode!r}")
    if wanted and mode != "incremental":
        raise InvalidSpecificationError(f"mode={mode!r} says how to refresh: give it without indexes")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InvalidSpecificationError(f"build(threads=) takes a number from 1 on, got {threads!r}")
    data = ParquetData.of(path, store, metadata, threads)
    if wanted:
        if (why := reason_not_indexable(data.name, data.state.files)) is not None:
            raise DatasetNotFoundError(why)
        bound = data.bind(wanted)
        check_protected(data, data.store.encryption)
        create_indexes(data, bound, by=_ENGINE, choose=data.choose)
    else:
        try:
            refresh(data, mode, by=_ENGINE, bind=data.bind)
        except NotIndexedError as error:
            raise NotIndexedError(f"{error}; or geoskip.build(path, [MinMax('column')]) without Spark") from None
    return report_on(data, started)


class ParquetData:
    """Files of a dataset, listed anew for each listing after the first, and read by threads."""

    def __init__(self, source: ParquetSource, store: Store, own: bool, threads: int) -> None:
        self.source, self.store, self._own, self.threads = source, store, own, threads
        self.name, self.root = source.name, source.root
        self.state: ParquetState = state_of(source.paths)
        self.built = BuiltRows()
        for name in (*self.state.files.unnameable(), *self.state.left_out):
            self.built.excluded[name.encode("utf-8", "replace").decode()] = UNNAMEABLE
        snapshot = latest(store)
        self.relation: FileRelation = source.relation(self.state, snapshot.header if snapshot is not None else None)
        self._is_new = True

    @classmethod
    def of(
        cls,
        path: Paths,
        store: Store | None,
        metadata: str | os.PathLike[str] | None,
        threads: int | None = None,
    ) -> ParquetData:
        """The dataset of paths, as for :func:`build`.

        Parameters
        ----------
        path
            A folder, a file, a glob, or several of these.
        store, metadata
            The store of the metadata, or their folder; beside the data by default.
        threads
            The number of threads that read files.
        """
        load_mappings()
        source = ParquetSource(ParquetPaths.of(path))
        check_store(store, metadata)
        own = metadata is None and store is None
        if own and source.root == "file:/":
            raise InvalidSpecificationError(
                f"the paths of {source.name} share no folder but /; say where to keep the metadata: metadata='folder'"
            )
        if store is None:
            store = ParquetStore(metadata_folder(source.paths.root, metadata))
        return cls(source, store, own, threads or min(32, os.cpu_count() or 1))

    def has_own_folder(self) -> bool:
        """Test whether the metadata are beside the data, in the dataset's own folder."""
        return self._own

    def way_to_metadata(self) -> str:
        """Advice on how to keep the metadata in another place."""
        return "keep each dataset's in a folder of its own: geoskip.build(..., metadata='folder')"

    def is_listing_current(self) -> bool:
        """Test whether the files are still those of the listing."""
        return self.state.files.is_current(self.root, self.relation.roots)

    def header(self) -> Header:
        """The header of the dataset without indexes."""
        given = self.source.paths.given
        path = given[0] if len(given) == 1 else list(given)
        return Header(root=self.root, source={**self.relation.to_json(), "path": path, "table": None})

    def listing(self) -> Listing:
        """List the files."""
        if not self._is_new:
            self.state = state_of(self.source.paths)
        self._is_new = False
        return Listing.below(self.root, *self.state.files.columns[:3])

    def etags(self, paths: Sequence[str]) -> list[str | None]:
        """The entity tags of files now."""
        return [local_etag(local_path(self._uri(path)) or "") for path in paths]

    def sees(self, paths: pa.Array) -> pa.Array:
        """A boolean for each path: True if a listing of this dataset would include the file."""
        return pa.array(self.source.paths.sees(map(self._uri, paths.to_pylist())), pa.bool_())

    def changed_indexes(self, entries: Sequence[IndexEntry]) -> dict[str, str | NeedsSparkError]:
        """Indexes that would be built differently now, with the reason; for those that need Spark, the error."""
        changes = zip(entries, changes_of(entries, self.bind), strict=True)
        return {entry.name: why for entry, why in changes if why is not None}

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        """Collect the summaries of some files."""
        files = self.state.files.select(map(self._uri, paths))
        rows = build_rows(
            self.root,
            entries,
            files,
            partial(self._summarise_files, entries),
            lambda: state_of(self.source.paths).files,
        )
        self.built += rows
        return BuildResult(rows.rows, rows.excluded, self.built.reader_texts())

    def _uri(self, path: str) -> str:
        return absolute_uri(path, self.root)

    # --- indexes ------------------------------------------------------------------------------------------------------

    def bind(self, indexes: Sequence[Index]) -> list[IndexEntry]:
        """Entries of some indexes over the dataset.

        Raises InvalidSpecificationError for duplicate indexes and those that need Spark, and UnknownColumnError.
        """
        found = check_indexes(indexes)
        binder = TextBinder(types_of_columns(self.relation), self.relation.is_case_sensitive, self.source.unread)
        entries = [self._entry(binder, index) for index in found]
        check_distinct(entries, new=not all(index.bound for index in found))
        return entries

    def _entry(self, binder: TextBinder, index: Index) -> IndexEntry:
        texts = texts_of(index)
        bound = [binder.bind(index, text) for text in texts]

        def columns() -> list[SourceColumn]:
            types = [expression.type or "" for expression in bound]
            arrow = [sql_type(kind).arrow or pa.null() for kind in types]
            return list(map(SourceColumn, index.expressions(), types, arrow))

        entry = entry_of(self.relation, index, bound, columns)
        for expression in bound:
            for vertex in walk(expression):
                if isinstance(vertex, Column | Call) and not sql_type(vertex.type).is_plain:
                    raise NeedsSparkError(
                        f"{index} needs Spark: {vertex} is of type {vertex.type}; build it by "
                        "geoskip.dataset(spark, path).create_index(...)"
                    )
        for name, value in entry.depends.items():
            differs = name in READ_ALIKE and value.lower() not in READ_ALIKE[name]
            if differs or (name.startswith(SETTINGS_OF) and value != "{}"):
                raise NeedsSparkError(
                    f"{index} needs Spark: the metadata were made with {name}={value}, which only Spark follows"
                )
        return entry

    def choose(self, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
        """Entries with indexes whose parameters are chosen from a sample."""

        def read_sample(
            samples: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_process: bool
        ) -> Mapping[str, FileResult]:
            return self._summarise_files(samples, files)

        def types(index: Index) -> list[pa.DataType]:
            return [sql_type(expression.type).arrow or pa.null() for expression in index.bound]

        return prepare_entries(entries, list(self.state.files), read_sample, types)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _summarise_files(self, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> dict[str, FileResult]:
        """Summaries of files by their URIs."""
        read_chunk = partial(_read_chunk, [entry.index for entry in entries], self.relation.is_case_sensitive)
        named = [(file.uri, local_path(file.uri) or "") for file in files]
        size = max(1, min(_CHUNK, -(-len(named) // self.threads)))
        chunks = [named[start : start + size] for start in range(0, len(named), size)]
        found: dict[str, FileResult] = {}
        title = f"reading {count_of(len(named), 'file')}"
        with delayed_progress(title, "files", len(named)) as advance, ExitStack() as stack:
            if self.threads == 1:
                results: Iterator[list[FileResult]] = map(read_chunk, chunks)
            else:
                pool = ThreadPoolExecutor(self.threads, "geoskip-build")
                stack.callback(pool.shutdown, cancel_futures=True)
                futures: list[Future[list[FileResult]]] = [pool.submit(read_chunk, chunk) for chunk in chunks]
                results = (future.result() for future in as_completed(futures))
            for some in results:
                found |= {result.path: result for result in some}
                advance(len(found))
        return found


def _read_chunk(indexes: Sequence[Index], case_sensitive: bool, files: Sequence[tuple[str, str]]) -> list[FileResult]:
    """Summaries of files, by :func:`read_files` for indexes of plain columns, else by :func:`read_values`.

    Parameters
    ----------
    indexes, case_sensitive
        The indexes, bound to their expressions, and True if names of columns differ by case.
    files
        The URIs and local paths.
    """
    plain, others = [], []
    for index in indexes:
        if (plan := IndexPlan.of(index)) is not None:
            plain.append(plan)
        else:
            others.append(index)
    if not plain:
        return [read_values(uri, local, indexes, case_sensitive) for uri, local in files]
    found = []
    paths = dict(files)
    for result in read_files(files, plain, case_sensitive):
        local = paths[result.path]
        if result.problem == SPARK:
            result = read_values(result.path, local, indexes, case_sensitive)
        elif result.problem is None and others:
            more = read_values(result.path, local, others, case_sensitive)
            result.summaries |= more.summaries
            result.readers |= more.readers
            result.failures |= more.failures
            result.problem = more.problem
        found.append(result)
    return found


# --- checks -----------------------------------------------------------------------------------------------------------


def verify(
    path: Paths,
    sample: float | None = None,
    *,
    store: Store | None = None,
    metadata: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> VerifyResult:
    """Collect summaries of Parquet files again, without Spark, and compare them with the stored ones.

    Parameters
    ----------
    path
        A local folder, a file, a glob, or a list of these, as in :func:`geoskip.build`.
    sample
        The share of the files to read, above 0 and up to 1; None for all of them.
    store, metadata
        The store of the metadata, or the folder that holds them. Default: ``_geoskip`` beside the data.
    threads
        The number of threads that read files. Default: one for each processor.

    Raises
    ------
    NotIndexedError
        If there are no metadata, or no index is in use.
    InvalidSpecificationError
        For a wrong share, and for metadata of another dataset.
    """
    check_sample(sample)
    return verify_data(ParquetData.of(path, store, metadata, threads), sample)


def reason_for_spark(path: Paths, store: Store, *, of_indexes: bool = True) -> str | None:
    """Return why only Spark can collect the summaries of the indexes in use, or None.

    Parameters
    ----------
    path, store
        The dataset, and the store of its metadata.
    of_indexes
        Consider the indexed expressions too; False for a caller that finds out itself.
    """
    snapshot = latest(store)
    if snapshot is None:
        return None
    source = snapshot.header.source
    if source.get("class") != PARQUET or source.get("options"):
        return f"{path} was indexed by Spark as {str(source.get('class')).rpartition('.')[2]}"
    if not of_indexes:
        return None
    try:
        ParquetData.of(path, store, None).bind([entry.index for entry in snapshot.header.entries])
    except NeedsSparkError as error:
        return str(error)
    except GeoskipError:  # the command itself reports the error
        return None
    return None
