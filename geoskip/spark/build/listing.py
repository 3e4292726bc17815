"""Spark's listing of a dataset's files, its root folder and its table format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from geoskip.sources.bound_indexes import FileRelation
from geoskip.sources.listed_files import FileListing, is_glob, literal_head, shared_folder
from geoskip.spark.filesystem import folder_at
from geoskip.spark.session import java
from geoskip.stores.log_files import local_path

TABLE_LOGS = {
    "delta": ("_delta_log", ".json"),
    "iceberg": ("metadata", "version-hint.text"),
    "hudi": (".hoodie", "hoodie.properties"),
}
"""Folder of the log and suffix of its files, by Spark's name of the table format."""


@dataclass(frozen=True)
class SourceState:
    """The state of a dataset for an operation: its DataFrame, its relation and its files."""

    spark: SparkSession
    frame: DataFrame
    relation: FileRelation
    files: FileListing

    def relist(self) -> FileListing:
        """List the files again."""
        return listing(self.spark, self.frame)


def listing(spark: SparkSession, frame: DataFrame, *, refresh: bool = True) -> FileListing:
    """Files that a DataFrame reads: listed now, or without ``refresh`` as when it was created."""
    return FileListing(java(spark).geoskip.files().listing(frame._jdf, refresh))


def root_of(spark: SparkSession, paths: Sequence[str] | None, roots: Sequence[str]) -> str:
    """Root of a dataset, from the given paths (None for a table) and the root paths of its relation."""
    globs = [path for path in paths or () if is_glob(path)]
    if not globs and len(roots) == 1:
        return roots[0] if paths is None or _is_directory(spark, roots[0]) else roots[0].rpartition("/")[0]
    return shared_folder([*roots, *(qualify(spark, literal_head(path)) for path in globs)])


def qualify(spark: SparkSession, path: str) -> str:
    """Path in Hadoop's form: with scheme and authority, absolute, not percent-encoded."""
    found, system = resolve_path(spark, path)
    return str(found.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())


def table_format(spark: SparkSession, path: str) -> str | None:
    """Spark's name of the table format with a log in a folder, or None."""
    folder = folder_at(qualify(spark, path))
    return next(
        (name for name, (log, end) in TABLE_LOGS.items() if any(file.endswith(end) for file in folder.names(log))), None
    )


def has_sink_log(uri: str) -> bool:
    """Test whether a stream writes to a folder: Spark then reads only the files that its log names."""
    return folder_at(uri).exists("_spark_metadata")


def _is_directory(spark: SparkSession, uri: str) -> bool:
    if (here := local_path(uri)) is not None:
        return os.path.isdir(here)
    path, system = resolve_path(spark, uri)
    return bool(system.getFileStatus(path).isDirectory())


def resolve_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's path, and its file system from the session's client."""
    jvm: Any = spark._jvm
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found, found.getFileSystem(hadoop_conf(spark))


def hadoop_conf(spark: SparkSession) -> Any:
    """Hadoop's settings, with those of the session."""
    session: Any = spark._jsparkSession
    return session.sessionState().newHadoopConf()


def open_parquet(spark: SparkSession, uri: str) -> Any:
    """Parquet's reader of a file in the JVM, which the caller closes; raises Py4JJavaError."""
    jvm: Any = spark._jvm
    parquet, path = jvm.org.apache.parquet.hadoop, jvm.org.apache.hadoop.fs.Path(uri)
    return parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(path, hadoop_conf(spark)))
