"""The source of a dataset: where it is, how it is read, and which folder identifies it.

The folder that identifies a dataset, its *root*, holds its metadata:

========================== ======================================================================
a directory, a table       the directory, the table's location
a file                     the folder that holds it
a glob                     the folder before the first part with a wildcard, however much it matches
a list                     the folder that holds all of it
========================== ======================================================================

Handles on one folder, given in different ways, share its metadata. A query finds them from each path that it reads by
looking in the folders above.
"""

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
from geoskip.spark.analysis import FileRelation, relation_of, sentence
from geoskip.spark.build.listing import FileListing, SourceState, listing
from geoskip.spark.build.spark_jobs import reason_of, with_way_out
from geoskip.spark.catalog import default_store
from geoskip.spark.session import java, known
from geoskip.spark.settings import CHANGED, recorded_settings, values_of
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption
from geoskip.stores.log_files import local_path

__all__ = ["DatasetSource", "below", "glob_pattern", "is_glob", "qualified"]

_WILDCARDS = re.compile(r"[{}\[\]*?\\]")  # what Spark takes for a glob
_URI = re.compile(r"(?P<system>[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(?P<path>.*)", re.DOTALL)

_GONE = re.compile(r"does not exist|No such file")
_NO_FOOTER = re.compile(r"footer|not a Parquet file|magic number|postscript", re.IGNORECASE)
_SUFFIX = re.compile(r"[^/\s]+\.(csv|json|avro|orc|parquet)\b")


class _LastFrame(NamedTuple):
    """Last DataFrame with what it was made of; one value, since threads may share a handle."""

    frame: DataFrame
    files: FileListing
    columns: tuple[Any, ...] | None
    settings: int


@dataclass
class DatasetSource:
    """Path, glob, list or table, with the reader's options and the store of the metadata."""

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
        """Name in messages."""
        return f"table {self.table}" if self.table is not None else f"{self.path}"

    @property
    def paths(self) -> list[str] | None:
        """Paths, or None for a table."""
        if self.table is not None:
            return None
        return [self.path] if isinstance(self.path, str) else [str(path) for path in self.path or ()]

    def description(self) -> dict[str, Any]:
        """Path or table, recorded in the metadata for people."""
        return {"path": self.path if isinstance(self.path, str | None) else self.paths, "table": self.table}

    def read(self, spark: SparkSession) -> DataFrame:
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
        """Relation that the dataset is and folder that identifies it; of the last DataFrame, if there is one."""
        last = self._last
        return self._relation(last.frame) if last is not None else self.current_state().relation

    def current_state(self, spark: SparkSession | None = None) -> SourceState:
        """State of the dataset now.

        The last DataFrame serves again if nothing has changed, settings included: inferring the columns takes a job.
        """
        if spark is not None and spark is not self.spark:
            frame = self._frame(spark)
            return SourceState(spark, frame, self._relation(frame), self._listed(spark, frame))
        since, settings, last = time.time(), self._settings_of_now(), self._last
        if last is not None and last.settings == settings and not any(map(is_glob, self.paths or ())):
            files = self._listed(self.spark, last.frame)
            if files == last.files or (last.columns is not None and last.columns == self._columns_of(files)):
                self._last = last._replace(files=files)
                return SourceState(self.spark, last.frame, self._relation(last.frame), files, since)
        since = time.time()
        frame = self._frame(self.spark)  # lists paths; of a table it may have an old listing
        relation = self._relation(frame)  # raises for what cannot be indexed
        files = self._listed(self.spark, frame, refresh=self.table is not None)
        self._last = _LastFrame(frame, files, self._columns_of(files), settings) if self.table is None else None
        return SourceState(self.spark, frame, relation, files, since)

    def _settings_of_now(self) -> int:
        """Hash of the session's settings."""
        conf: Any = self.spark._jsparkSession.sessionState().conf()
        return int(conf.getAllConfs().hashCode())

    def _columns_of(self, files: FileListing) -> tuple[Any, ...] | None:
        """Key of the columns that Spark infers, or None where it must infer them again.

        With ``schema=`` the folders decide, which may be partitions; of Parquet the footer of the first file too.
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
        return (str(footer.schema).partition("\n")[2], footer.metadata, files.folders)  # after its address in memory

    def with_settings(self, settings: Mapping[str, Any], state: SourceState) -> SourceState:
        """State read under recorded settings, in a cloned session where this one has others."""
        now = state.relation.settings
        named = {name: value for name, value in settings.items() if name in now and name != CHANGED and value}
        differing: dict[str, str | None] = {name: value for name, value in named.items() if now[name] != value}
        if CHANGED in settings:  # older metadata lack it
            then, here = values_of(settings[CHANGED]), values_of(recorded_settings(now.get(CHANGED)))
            others = (then.keys() | here.keys()) - named.keys()
            differing |= {name: then.get(name) for name in others if then.get(name) != here.get(name)}
        if not differing:
            return state
        session: Any = self.spark
        other = type(session)(self.spark.sparkContext, session._jsparkSession.cloneSession())
        for name, value in differing.items():
            other.conf.unset(name) if value is None else other.conf.set(name, value)
        return self.current_state(other)

    def relisted(self, state: SourceState) -> SourceState:
        """State with the files of now, in the same session."""
        if self.table is None and not any(map(is_glob, self.paths or ())):
            since = time.time()
            return replace(state, files=self._listed(state.spark, state.frame), since=since)
        return self.current_state(state.spark)

    def _frame(self, spark: SparkSession, attempts: int = 3) -> DataFrame:
        """Read the dataset; again where a file vanished while Spark inferred the columns, as in an overwrite."""
        try:
            return self.read(spark)
        except AnalysisException as error:
            raise DatasetNotFoundError(f"{self.name} cannot be read: {with_way_out(sentence(error))}") from None
        except (PySparkException, Py4JJavaError) as error:
            if attempts > 1 and _GONE.search(reason_of(error)):
                return self._frame(spark, attempts - 1)
            why = with_way_out(reason_of(error))
            if _NO_FOOTER.search(why) and (found := _SUFFIX.search(why)) and found[1] != self.format.lower():
                why = f"{found[0]} is not {self.format} by its name; give format={found[1]!r} to dataset()"
            raise InvalidSpecificationError(f"{self.name} cannot be read: {why}") from error

    def _listed(self, spark: SparkSession, frame: DataFrame, *, refresh: bool = True) -> FileListing:
        """Files of a DataFrame; raises InvalidSpecificationError for contradicting partitions."""
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
            elif known.is_chosen(relation.root):  # as of now: a store registered later is not this handle's
                self._stores[relation.root] = known.store(relation.root)
            else:
                self._stores[relation.root] = None
        return self._stores[relation.root] or known.default(relation.root)

    def is_private(self) -> bool:
        """Test whether queries find the metadata only once they are registered."""
        return not (self.metadata is None and self.given is None and self.encryption is None)

    def has_own_folder(self) -> bool:
        """Test whether the metadata are beside the data, in the dataset's own folder."""
        return self.metadata is None and self.given is None

    def make_known(self, relation: FileRelation, *, complete: bool = False) -> None:
        """Let queries find these metadata, unless they use others already."""
        if known.register_default(relation.root, self.store(relation), complete=complete) and self.is_private():
            java(self.spark).geoskip.register(relation.root)

    def use(self, relation: FileRelation) -> None:
        """Make queries of this driver use these metadata instead of any others."""
        known.register(relation.root, self.store(relation))
        java(self.spark).geoskip.register(relation.root)


# --- paths, globs and the root ----------------------------------------------------------------------------------------


def is_glob(path: str) -> bool:
    """Test whether Spark takes a path for a glob."""
    return _WILDCARDS.search(path) is not None


def literal_head(glob: str) -> str:
    """Folder before the first part with a wildcard.

    >>> literal_head("/data/year=*/x"), literal_head("s3a://b/*.csv"), literal_head("*.csv")
    ('/data', 's3a://b/', '.')
    """
    found = _URI.fullmatch(glob)
    system, path = (found["system"] or "", found["path"]) if found else ("", glob)
    wildcard = _WILDCARDS.search(path)
    head = path[: wildcard.start()] if wildcard else path
    folder = head.rpartition("/")[0]
    return system + folder if folder else system + "/" if path.startswith("/") else "."


_IN_A_GLOB = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Pattern of the URIs that a glob of Hadoop's finds, and of everything below them.

    >>> [
    ...     bool(glob_pattern("/d/p=*/{a,b}?.x").fullmatch(path))
    ...     for path in ("/d/p=7/b1.x", "/d/p=7/b1.x/y", "/d/p=7/e/b1.x")
    ... ]
    [True, True, False]
    """
    text, depth, position = "", 0, 0
    while position < len(glob):
        sign = glob[position]
        position += 1
        end = glob.find("]", position + 1)
        if sign == "\\" and position < len(glob):
            text += re.escape(glob[position])
            position += 1
        elif sign == "[" and end > 0:
            negated = glob[position] in "!^"
            members = glob[position + negated : end].replace("\\", r"\\").replace("[", r"\[")
            text += f"[{'^' * negated}{members}]"
            position = end + 1
        elif sign == "," and depth:
            text += "|"
        elif sign != "}" or depth:
            depth += {"{": 1, "}": -1}.get(sign, 0)
            text += _IN_A_GLOB.get(sign, re.escape(sign))
        else:
            text += r"\}"
    try:
        return re.compile(f"{text}(?:/.*)?", re.DOTALL)
    except re.error:
        return re.compile(r"(?!)")


def shared_folder(uris: Sequence[str]) -> str:
    """Deepest folder that holds all of some URIs.

    >>> shared_folder(["file:/data/a", "file:/data/b/c"]), shared_folder(["s3a://b/x", "s3a://b/y"])
    ('file:/data', 's3a://b/')
    """
    split = [(found["system"] or "", found["path"].split("/")) for uri in uris if (found := _URI.fullmatch(uri))]
    systems = sorted({system for system, _ in split})
    if len(systems) != 1:
        raise InvalidSpecificationError(
            f"one dataset cannot span the file systems {' and '.join(systems)}; make a handle of each"
        )
    parts = [path for _, path in split]
    count = 0
    while count < min(map(len, parts)) and len({path[count] for path in parts}) == 1:
        count += 1
    return systems[0] + ("/".join(parts[0][:count]) or "/")


def below(uri: str, roots: Sequence[str]) -> bool:
    """Test whether a URI is one of some roots, or lies below one."""
    return any(uri == root or uri.startswith(root.rstrip("/") + "/") for root in roots)


def root_of(spark: SparkSession, paths: Sequence[str] | None, roots: Sequence[str]) -> str:
    """Root of a dataset given as some paths (None for a table), whose relation has some root paths."""
    globs = [path for path in paths or () if is_glob(path)]
    if not globs and len(roots) == 1:
        return roots[0] if paths is None or _is_directory(spark, roots[0]) else roots[0].rpartition("/")[0]
    return shared_folder([*roots, *(qualified(spark, literal_head(path)) for path in globs)])


def qualified(spark: SparkSession, path: str) -> str:
    """Path as Hadoop writes it: with scheme and authority, absolute, not percent-encoded."""
    found, system = _resolved(spark, path)
    return str(found.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())


def _is_directory(spark: SparkSession, uri: str) -> bool:
    path, system = _resolved(spark, uri)
    return bool(system.getFileStatus(path).isDirectory())


def _resolved(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    found = jvm.org.apache.hadoop.fs.Path(path)
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
    return found, found.getFileSystem(conf)
