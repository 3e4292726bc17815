"""Where a dataset is and how it is read: what a handle was given, and what Spark makes of it now."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.spark.analysis import FileRelation, sentence, source_of
from geoskip.spark.build.job_errors import said, with_way_out
from geoskip.spark.catalog import default_store, local_path
from geoskip.spark.dataset.listing import FileListing, listing
from geoskip.spark.dataset.root import is_glob, qualified, root_of
from geoskip.spark.dataset.source_state import SourceState
from geoskip.spark.session import java, known
from geoskip.spark.sql_settings import CHANGED, recorded, values_of
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption

__all__ = ["DatasetSource"]

_GONE = re.compile(r"does not exist|No such file")
_NO_FOOTER = re.compile(r"footer|not a Parquet file|magic number|postscript", re.IGNORECASE)
_SUFFIX = re.compile(r"[^/\s]+\.(csv|json|avro|orc|parquet)\b")


class _LastFrame(NamedTuple):
    """A DataFrame and what it was made of; one value, since threads may share a handle."""

    frame: DataFrame
    files: FileListing
    columns: tuple[Any, ...] | None
    settings: int


@dataclass
class DatasetSource:
    """A path, glob, list or table, how it is read, and where its metadata are."""

    spark: SparkSession
    path: str | Sequence[str] | None
    table: str | None
    format: str
    options: Mapping[str, Any]
    metadata: str | None
    given: Store | None
    encryption: Encryption | None = None

    def __post_init__(self) -> None:
        self.metadata = qualified(self.spark, self.metadata) if self.metadata is not None else None
        self._last: _LastFrame | None = None
        self._stores: dict[str, Store | None] = {}

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"table {self.table}" if self.table is not None else f"{self.path}"

    @property
    def paths(self) -> list[str] | None:
        """The paths, None for a table."""
        if self.table is not None:
            return None
        return [self.path] if isinstance(self.path, str) else [str(path) for path in self.path or ()]

    def how(self) -> dict[str, Any]:
        """What the metadata record of it, for people."""
        return {"path": self.path if isinstance(self.path, str | None) else self.paths, "table": self.table}

    def read(self, spark: SparkSession) -> DataFrame:
        """The dataset as a DataFrame of a session."""
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

    def source(self) -> FileRelation:
        """What it reads and which folder identifies it, without a listing where one was made before."""
        last = self._last
        return self._source(last.frame) if last is not None else self.state().source

    def state(self, spark: SparkSession | None = None) -> SourceState:
        """The dataset as it is now: the last DataFrame again if nothing has changed, settings included, since Spark's
        finding out the columns takes a job.
        """
        if spark is not None and spark is not self.spark:
            frame = self._frame(spark)
            return SourceState(spark, frame, self._source(frame), self._listed(spark, frame))
        since, settings, last = time.time(), self._settings_of_now(), self._last
        if last is not None and last.settings == settings and not any(map(is_glob, self.paths or ())):
            files = self._listed(self.spark, last.frame)
            if files == last.files or (last.columns is not None and last.columns == self._columns_of(files)):
                self._last = last._replace(files=files)
                return SourceState(self.spark, last.frame, self._source(last.frame), files, since)
        since = time.time()
        frame = self._frame(self.spark)  # which lists paths itself; of a table it may know an old listing
        source = self._source(frame)  # or what cannot be indexed, in a sentence
        files = self._listed(self.spark, frame, anew=self.table is not None)
        self._last = _LastFrame(frame, files, self._columns_of(files), settings) if self.table is None else None
        return SourceState(self.spark, frame, source, files, since)

    def _settings_of_now(self) -> int:
        """A number that is another one under other settings of the session."""
        conf: Any = self.spark._jsparkSession.sessionState().conf()
        return int(conf.getAllConfs().hashCode())

    def _columns_of(self, files: FileListing) -> tuple[Any, ...] | None:
        """What Spark finds the columns from, where they are told to it or are those of Parquet: the footer of the first
        file, and the folders, which may be partitions. None where it has to be asked again.
        """
        options = {name.lower(): value for name, value in self.options.items()}
        if "schema" in options:
            return (files.folders,)
        merges = options.get("mergeschema", self.spark.conf.get("spark.sql.parquet.mergeSchema", "false"))
        first = files.first() if self.format.lower() == "parquet" and str(merges).lower() == "false" else None
        path = local_path(first.uri) if first is not None else None
        if path is None:
            return None if first is None else (first, files.folders)
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            return None
        return (str(footer.schema).partition("\n")[2], footer.metadata, files.folders)  # after its address in memory

    def under(self, settings: Mapping[str, Any], state: SourceState) -> SourceState:
        """The same state read under settings that were recorded, where the session's own are others."""
        now = state.source.settings
        named = {name: value for name, value in settings.items() if name in now and name != CHANGED and value}
        differing: dict[str, str | None] = {name: value for name, value in named.items() if now[name] != value}
        if CHANGED in settings:  # else they were recorded before all of them were
            then, here = values_of(settings[CHANGED]), values_of(recorded(now.get(CHANGED)))
            others = (then.keys() | here.keys()) - named.keys()
            differing |= {name: then.get(name) for name in others if then.get(name) != here.get(name)}
        if not differing:
            return state
        session: Any = self.spark
        other = type(session)(self.spark.sparkContext, session._jsparkSession.cloneSession())
        for name, value in differing.items():
            other.conf.unset(name) if value is None else other.conf.set(name, value)
        return self.state(other)

    def again(self, state: SourceState) -> SourceState:
        """The state as it is by now, in the same session."""
        if self.table is None and not any(map(is_glob, self.paths or ())):
            since = time.time()
            return replace(state, files=self._listed(state.spark, state.frame), since=since)
        return self.state(state.spark)

    def _frame(self, spark: SparkSession, attempts: int = 3) -> DataFrame:
        """Read; anew where a file was gone before Spark had found out the columns, since somebody overwrites them."""
        try:
            return self.read(spark)
        except AnalysisException as error:
            raise DatasetNotFoundError(f"{self.name} cannot be read: {with_way_out(sentence(error))}") from None
        except (PySparkException, Py4JJavaError) as error:
            if attempts > 1 and _GONE.search(said(error)):
                return self._frame(spark, attempts - 1)
            why = with_way_out(said(error))
            if _NO_FOOTER.search(why) and (found := _SUFFIX.search(why)) and found[1] != self.format.lower():
                why = f"{found[0]} is not {self.format} by its name; give format={found[1]!r} to dataset()"
            raise InvalidSpecificationError(f"{self.name} cannot be read: {why}") from error

    def _listed(self, spark: SparkSession, frame: DataFrame, *, anew: bool = True) -> FileListing:
        """The files, or what Spark finds wrong with them now: folders whose partitions contradict each other."""
        try:
            return listing(spark, frame, anew=anew)
        except (PySparkException, Py4JJavaError) as error:
            raise InvalidSpecificationError(f"{self.name} cannot be read: {with_way_out(said(error))}") from error

    def _source(self, frame: DataFrame) -> FileRelation:
        return source_of(java(self.spark), frame, self.name, lambda roots: root_of(self.spark, self.paths, roots))

    def store(self, source: FileRelation) -> Store:
        """Where the metadata are."""
        if self.given is not None:
            return self.given
        if self.metadata is None and source.root.endswith("/"):
            raise InvalidSpecificationError(
                f"the paths of {self.name} share no folder but {source.root}; say where to keep the metadata: "
                "dataset(..., metadata='folder')"
            )
        if source.root not in self._stores:
            if self.is_private():
                made = default_store(source.root, self.metadata, self.encryption or known.encryption)
                self._stores[source.root] = made
            elif known.is_chosen(source.root):  # at first: another one that is chosen later is not this handle's
                self._stores[source.root] = known.store(source.root)
            else:
                self._stores[source.root] = None
        return self._stores[source.root] or known.default(source.root)

    def is_private(self) -> bool:
        """Whether queries find the metadata only once they are made known."""
        return not (self.metadata is None and self.given is None and self.encryption is None)

    def has_own_folder(self) -> bool:
        """Are the metadata beside the data, where nobody else's belong?"""
        return self.metadata is None and self.given is None

    def make_known(self, source: FileRelation, *, complete: bool = False) -> None:
        """Let queries of this driver find these metadata, unless they use others: see :meth:`Known.offer`."""
        if known.offer(source.root, self.store(source), complete=complete) and self.is_private():
            java(self.spark).geoskip.register(source.root)

    def use(self, source: FileRelation) -> None:
        """Let queries of this driver use these metadata, whichever they used before."""
        known.register(source.root, self.store(source))
        java(self.spark).geoskip.register(source.root)
