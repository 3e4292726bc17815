"""The source of a dataset: its location, its reader options, and the folder that identifies it.

The folder that identifies a dataset, its *root*, contains its metadata:

========================== ======================================================================
a directory, a table       the directory, the table's location
a file                     the folder that contains it
a glob                     the folder before the first path component with a wildcard
a list                     the deepest folder that contains all paths
========================== ======================================================================

Handles of the same folder, given in different ways, share its metadata. A query finds the metadata of a path that it
reads by searching the parent folders.

:class:`SparkData` is the lifecycle's access to the dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, NeedsSparkError
from geoskip.lifecycle.refresh import BuildResult, Listing, means_the_same
from geoskip.metadata import Header, IndexEntry
from geoskip.sources.bound_indexes import FileRelation
from geoskip.sources.build_verbs import changes_of
from geoskip.sources.built_rows import BuiltRows
from geoskip.sources.listed_files import (
    UNNAMEABLE,
    FileListing,
    absolute_uri,
    glob_pattern,
    is_below,
    is_glob,
    local_etag,
)
from geoskip.sources.settings import CHANGED, recorded_settings, values_of
from geoskip.spark.analysis import bind, relation_of, sentence
from geoskip.spark.build.job import build
from geoskip.spark.build.listing import TABLE_LOGS, SourceState, has_sink_log, listing, qualify, root_of
from geoskip.spark.build.spark_jobs import reason_of, with_way_out
from geoskip.spark.catalog import default_store
from geoskip.spark.session import java, known
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption
from geoskip.stores.log_files import local_path

_GONE = re.compile(r"does not exist|No such file")
_NO_FOOTER = re.compile(r"footer|not a Parquet file|magic number|postscript", re.IGNORECASE)
_SUFFIX = re.compile(r"[^/\s]+\.(csv|json|avro|orc|parquet)\b(\.(gz|bz2|zst|lz4|deflate|snappy)\b)?")


def check_metadata_arguments(call: str, metadata: object, store: object, encryption: object) -> str | None:
    """Return the folder of the metadata, or None; raise an error for invalid arguments of a call.

    Parameters
    ----------
    call
        The name of the function, such as ``write``.
    metadata, store, encryption
        Its arguments of these names.
    """
    for name, given, kind in (("store", store, Store), ("encryption", encryption, Encryption)):
        if given is not None and not isinstance(given, kind):
            raise InvalidSpecificationError(f"{call}({name}=) takes a geoskip.stores.{kind.__name__}, got {given!r}")
    if store is not None and metadata is not None:
        raise InvalidSpecificationError(f"{call}() takes metadata= (a folder) or store= (a store), and not both")
    if isinstance(store, Store) and encryption is not None:
        raise InvalidSpecificationError(
            f"encryption= does not protect the metadata of the store {store.location}: {store.protection}"
        )
    return None if metadata is None else path_of(metadata, f"{call}(metadata=)")


def path_of(given: object, name: str) -> str:
    """Return a path as text; raise an error for anything else, and for an empty path."""
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise InvalidSpecificationError(f"{name} takes the path of a folder, got {given!r}")
    return os.fsdecode(given)


class _LastFrame(NamedTuple):
    """The last DataFrame with its inputs, as one object, since threads may share a handle."""

    frame: DataFrame
    files: FileListing
    columns: tuple[Any, ...] | None
    settings: int
    is_reusable: bool
    """Whether it lists the current files at any time: not those of a table, a glob, or the folder of a stream."""


@dataclass
class DatasetSource:
    """A path, glob, list or table, with the reader's options and the store of the metadata."""

    spark: SparkSession
    path: str | Sequence[str] | None = None
    table: str | None = None
    format: str = "parquet"
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: str | None = None
    given: Store | None = None
    encryption: Encryption | None = None

    def __post_init__(self) -> None:
        self.metadata = qualify(self.spark, self.metadata) if self.metadata is not None else None
        self._last: _LastFrame | None = None
        self._stores: dict[str, Store | None] = {}

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"table {self.table}" if self.table is not None else f"{self.path}"

    @property
    def paths(self) -> list[str] | None:
        """Paths, or None for a table."""
        if self.table is not None:
            return None
        return [self.path] if isinstance(self.path, str) else [str(path) for path in self.path or ()]

    def description(self) -> dict[str, Any]:
        """Path or table, recorded in the metadata for information only."""
        return {"path": self.path if isinstance(self.path, str | None) else self.paths, "table": self.table}

    def load(self, spark: SparkSession) -> DataFrame:
        """DataFrame of the dataset in a session."""
        if self.table is not None:
            return spark.table(self.table)
        options = dict(self.options)
        schema = options.pop("schema", None)
        reader = spark.read.format(self.format).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        paths = self.paths or []
        if not paths:
            raise DatasetNotFoundError("dataset() got an empty list of paths")
        return reader.load(paths[0] if len(paths) == 1 else paths)

    def relation(self) -> FileRelation:
        """The dataset's relation with its root; that of the last DataFrame, if there is one."""
        last = self._last
        return self._relation(last.frame) if last is not None else self.current_state().relation

    def current_state(self, spark: SparkSession | None = None) -> SourceState:
        """The current state of the dataset.

        The last DataFrame is reused if neither files nor settings have changed, since inferring the columns takes a
        job; not for globs, and not for tables and the folder of a stream's sink, whose log Spark reads once for each
        DataFrame.
        """
        if spark is not None and spark is not self.spark:
            frame = self._frame(spark)
            return SourceState(spark, frame, self._relation(frame), self._list_files(spark, frame))
        settings, last = self._settings_of_now(), self._last
        if last is not None and last.is_reusable and last.settings == settings:
            state = self._with_files_of_now(SourceState(self.spark, last.frame, self._relation(last.frame), last.files))
            files = state.files
            if files == last.files or (last.columns is not None and last.columns == self._columns_of(files)):
                self._last = last._replace(files=files)
                return state
        frame = self._frame(self.spark)  # lists paths; the listing of a table may be an old one
        relation = self._relation(frame)  # raises for what cannot be indexed
        files = self._list_files(self.spark, frame, refresh=self.table is not None)
        is_fixed = self.table is not None or bool(relation.table) or any(map(is_glob, self.paths or ()))
        is_reusable = not (is_fixed or has_sink_log(relation.root))
        columns = self._columns_of(files) if is_reusable else None
        self._last = None if self.table is not None else _LastFrame(frame, files, columns, settings, is_reusable)
        return SourceState(self.spark, frame, relation, files)

    def _with_files_of_now(self, state: SourceState) -> SourceState:
        """A state with the current files; lists them only if they are not known to be those of the state."""
        if state.files.is_current(state.relation.root, state.relation.roots):
            return state
        return replace(state, files=self._list_files(state.spark, state.frame))

    def _settings_of_now(self) -> int:
        """Hash of the session's settings."""
        conf: Any = self.spark._jsparkSession.sessionState().conf()
        return int(conf.getAllConfs().hashCode())

    def _columns_of(self, files: FileListing) -> tuple[Any, ...] | None:
        """Cache key of the columns that Spark infers, or None if it must infer them again.

        With ``schema=`` the key is the set of folders, which may be partitions; for Parquet it includes the footer of
        the file that Spark infers the columns from.
        """
        options = {name.lower(): value for name, value in self.options.items()}
        if "schema" in options:
            return (files.folders,)
        merges = options.get("mergeschema", self.spark.conf.get("spark.sql.parquet.mergeSchema", "false"))
        first = files.schema_file() if self.format.lower() == "parquet" and str(merges).lower() == "false" else None
        path = local_path(first.uri) if first is not None else None
        if path is None:
            return None if first is None else (first, files.folders)
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            return None
        return (str(footer.schema).partition("\n")[2], footer.metadata, files.folders)  # without its memory address

    def with_settings(self, settings: Mapping[str, Any], state: SourceState) -> SourceState:
        """The state under recorded settings, in a cloned session if this one has other settings."""
        now = state.relation.settings
        named = {name: value for name, value in settings.items() if name in now and name != CHANGED and value}
        differing: dict[str, str | None] = {name: value for name, value in named.items() if now[name] != value}
        if CHANGED in settings:  # older metadata lack it
            then, here = values_of(settings[CHANGED]), values_of(recorded_settings(now.get(CHANGED)))
            others = (then.keys() | here.keys()) - named.keys()
            differing |= {name: then.get(name) for name in others if then.get(name) != here.get(name)}
        if not differing:
            return state
        session: Any = state.spark
        other = type(session)(session.sparkContext, session._jsparkSession.cloneSession())
        for name, value in differing.items():
            other.conf.unset(name) if value is None else other.conf.set(name, value)
        return self.current_state(other)

    def relist(self, state: SourceState) -> SourceState:
        """The state with the current files, in the same session."""
        if self._last is not None and self._last.is_reusable:
            return self._with_files_of_now(state)
        return self.current_state(state.spark)

    def _frame(self, spark: SparkSession, attempts: int = 3) -> DataFrame:
        """Read the dataset; retry if a file vanished while Spark inferred the columns, as in an overwrite."""
        try:
            return self._pin_version(self.load(spark))
        except AnalysisException as error:
            why = with_way_out(sentence(error))
            raise self._without_jar(why) or DatasetNotFoundError(f"{self.name} cannot be read: {why}") from None
        except (PySparkException, Py4JJavaError) as error:
            if attempts > 1 and _GONE.search(reason_of(error)):
                return self._frame(spark, attempts - 1)
            why = with_way_out(reason_of(error))
            if (missing := self._without_jar(why)) is not None:
                raise missing from None
            if _NO_FOOTER.search(why):
                found = _SUFFIX.search(why)
                if found is None:
                    why = f"{why}; if the files are not {self.format}, give format= to dataset(), such as format='csv'"
                elif found[1] != self.format.lower():
                    why = f"{found[0]} is not {self.format} by its name; give format={found[1]!r} to dataset()"
            raise InvalidSpecificationError(f"{self.name} cannot be read: {why}") from error

    def _without_jar(self, why: str) -> DatasetNotFoundError | None:
        """Error for a table with a format that Spark does not find; None for other error messages."""
        if self.format not in TABLE_LOGS or "data source" not in why:
            return None
        return DatasetNotFoundError(
            f"{self.name} cannot be read: it is a table of {self.format.title()}, which this session has no jar of "
            f"({why}); with format='parquet' its files are indexed as they are, for queries that read them so"
        )

    def _pin_version(self, frame: DataFrame) -> DataFrame:
        """Pin a table with a log to one version, so that a build reads the listed files."""
        if self.table is None and self.format not in TABLE_LOGS:
            return frame
        found = java(self.spark).geoskip.files().pinned(frame._jdf)
        return frame if found is None else DataFrame(found, frame.sparkSession)

    def _list_files(self, spark: SparkSession, frame: DataFrame, *, refresh: bool = True) -> FileListing:
        """The files of a DataFrame; raises InvalidSpecificationError for inconsistent partitions."""
        try:
            return listing(spark, frame, refresh=refresh)
        except (PySparkException, Py4JJavaError) as error:
            raise InvalidSpecificationError(f"{self.name} cannot be read: {with_way_out(reason_of(error))}") from error

    def _relation(self, frame: DataFrame) -> FileRelation:
        return relation_of(java(self.spark), frame, self.name, lambda roots: root_of(self.spark, self.paths, roots))

    def store(self, relation: FileRelation) -> Store:
        """Store of the metadata."""
        if self.given is not None:
            return self.given
        if self.metadata is None and relation.root.endswith("/"):
            raise InvalidSpecificationError(
                f"the paths of {self.name} share no folder but {relation.root}; say where to keep the metadata: "
                "dataset(..., metadata='folder')"
            )
        if relation.root not in self._stores:
            if self.is_private():
                made = default_store(relation.root, self.metadata, self.encryption or known.encryption)
                self._stores[relation.root] = made
            elif known.is_chosen(relation.root):  # a store registered later does not change this handle
                self._stores[relation.root] = known.store(relation.root)
            else:
                self._stores[relation.root] = None
        return self._stores[relation.root] or known.default(relation.root)

    def is_private(self) -> bool:
        """Test whether queries find the metadata only after a registration."""
        return not (self.metadata is None and self.given is None and self.encryption is None)

    def has_own_folder(self) -> bool:
        """Test whether the metadata are beside the data, in the dataset's own folder."""
        return self.metadata is None and self.given is None

    def make_known(self, relation: FileRelation, *, complete: bool = False) -> None:
        """Make queries find these metadata, unless they already use others."""
        if known.register_default(relation.root, self.store(relation), complete=complete) and self.is_private():
            java(self.spark).geoskip.register(relation.root)

    def use(self, relation: FileRelation) -> None:
        """Make queries of this driver use these metadata instead of any others."""
        known.register(relation.root, self.store(relation))
        java(self.spark).geoskip.register(relation.root)


RESTRICTING = ("pathglobfilter", "modifiedbefore", "modifiedafter")
"""Options that restrict a handle to some of the files in its folders."""


class SparkData:
    """The files of a dataset, listed again at each call except the first, and indexed by Spark jobs."""

    def __init__(self, source: DatasetSource, state: SourceState | None = None) -> None:
        self.source = source
        self.state = source.current_state() if state is None else state
        self.built = BuiltRows(excluded=dict.fromkeys(self.state.files.unnameable(), UNNAMEABLE))
        self._is_new = True
        self._changed: dict[str, tuple[IndexEntry, str | NeedsSparkError | None]] = {}

    @property
    def store(self) -> Store:
        """Store of the metadata."""
        return self.source.store(self.state.relation)

    @property
    def name(self) -> str:
        """Name in messages."""
        return self.source.name

    @property
    def root(self) -> str:
        """The folder to which paths are relative."""
        return self.state.relation.root

    def has_own_folder(self) -> bool:
        """Test whether the metadata are beside the data, in the dataset's own folder."""
        return self.source.has_own_folder()

    def way_to_metadata(self) -> str:
        """Advice on how to keep the metadata in another place."""
        if self.source.given is None:
            return "keep each dataset's in a folder of its own: dataset(..., metadata='folder')"
        return "keep each dataset's in a store of its own; this one is emptied by store.drop()"

    def use_settings_of(self, header: Header) -> None:
        """Read the same files with the settings that the indexes of a snapshot were built with."""
        self.state = self.source.with_settings(header.source.get("settings") or {}, self.state)

    def is_listing_current(self) -> bool:
        """Test whether the files are still those of the listing, by the local folders; False for a table."""
        if self.source.table is not None or self.state.relation.table:  # partitions may be in any folder
            return False
        return self.state.files.is_current(self.root, self.state.relation.roots)

    def header(self) -> Header:
        return Header(root=self.root, source={**self.state.relation.to_json(), **self.source.description()})

    def listing(self) -> Listing:
        if not self._is_new:
            self.state = self.source.relist(self.state)
        self._is_new = False
        return Listing.below(self.root, *self.state.files.columns[:3])

    def etags(self, paths: Sequence[str]) -> list[str | None]:
        if self.state.relation.table:  # files of a table format never change
            return [None] * len(paths)
        root = local_path(self.root)
        if root is None:
            return self.state.files.etags(pa.array(map(self._uri, paths), pa.string()))
        head = root.rstrip("/") + "/"
        return [local_etag(head + path if ":/" not in path else local_path(path) or "") for path in paths]

    def sees(self, paths: pa.Array) -> pa.Array:
        if self.state.relation.table:  # time travel and RESTORE need summaries of files that the log still names
            removed = java(self.source.spark).geoskip.files().removed(self.state.frame._jdf).split("\n")
            uris = pa.array(map(self._uri, paths.to_pylist()), pa.string())
            return pc.invert(pc.is_in(uris, value_set=pa.array(removed, pa.string())))
        roots = self.state.relation.roots
        restricted = any(name.lower() in RESTRICTING for name in self.source.options)
        if list(roots) == [self.root] and not restricted:
            return pa.array([True], pa.bool_()).take(pa.array([0] * len(paths), pa.int32()))
        globs = [glob_pattern(qualify(self.source.spark, path)) for path in self.source.paths or () if is_glob(path)]
        uris = [self._uri(path) for path in paths.to_pylist()]
        seen = pa.array(
            [is_below(uri, roots) or any(glob.fullmatch(uri) for glob in globs) for uri in uris], pa.bool_()
        )
        if not restricted:
            return seen
        listed = pc.is_in(pa.array(uris, pa.string()), value_set=self.state.files.columns[0])
        return pc.and_(seen, pc.or_(listed, pa.array([_is_gone(uri) for uri in uris], pa.bool_())))

    def changed_indexes(self, entries: Sequence[IndexEntry]) -> dict[str, str | NeedsSparkError]:
        unknown = [e for e in entries if e.name not in self._changed or not means_the_same(self._changed[e.name][0], e)]
        changes = changes_of(unknown, partial(bind, self.state.frame, self.state.relation))
        self._changed |= {entry.name: (entry, why) for entry, why in zip(unknown, changes, strict=True)}
        known = ((entry.name, self._changed[entry.name][1]) for entry in entries)
        return {name: why for name, why in known if why is not None}

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        built = build(self.state, entries, self.state.files.select(map(self._uri, paths)))
        self.built += built
        return BuildResult(built.rows, built.excluded, built.reader_texts())

    def _uri(self, path: str) -> str:
        return absolute_uri(path, self.root)


def _is_gone(uri: str) -> bool:
    """Test whether a local file is gone; False for other file systems, on which a test is expensive."""
    path = local_path(uri)
    return path is not None and not os.path.lexists(path)
