"""Datasets of commands, accessed through their metadata alone or through Spark."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoskip.cli.output import show_activity
from geoskip.errors import InvalidSpecificationError, MetadataError, MissingPackageError, NotIndexedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from geoskip.spark.dataset.handle import Dataset
    from geoskip.stores.base import Store
    from geoskip.stores.encryption import Encryption
    from geoskip.stores.parquet import ParquetStore

DATASET = "Dataset"
SPARK = "Spark"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FORMATS = {"ParquetFileFormat": "parquet", "OrcFileFormat": "orc", "CSVFileFormat": "csv", "JsonFileFormat": "json"}
_FORMATS |= {"TextFileFormat": "text", "AvroFileFormat": "avro"}
"""Spark's short names of formats, by the classes in metadata."""

_TABLE = "table:"
_PATH = "The dataset: a folder, a file{} or table:NAME, as table:db.weather."
Dataset_ = Annotated[str, typer.Argument(metavar="PATH", help=_PATH.format(""))]
Datasets = Annotated[list[str], typer.Argument(metavar="PATH", help=_PATH.format(", a quoted glob"))]


@dataclass(frozen=True)
class MetadataOptions:
    """Options for the place of the metadata and for the keys that decrypt them."""

    metadata: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The folder of the metadata. Default: _geoskip in the dataset.",
                     rich_help_panel=DATASET),
    ] = None  # fmt: skip
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key ring of protected metadata.", rich_help_panel=DATASET),
    ] = None

    def words(self) -> list[str]:
        """The options as arguments of a command line."""
        given = (("--metadata", self.metadata), ("--keys", self.keys))
        return [word for name, value in given if value is not None for word in (name, str(value))]

    def encryption(self, key: str | None = None) -> Encryption | None:
        """Encryption with the key ring that was given, or None; ``key`` names the key for new metadata."""
        if self.keys is None:
            if key is not None:
                raise InvalidSpecificationError(f"--key {key} names a key of a key ring: give --keys FILE too")
            return None
        from geoskip.stores.encryption import Encryption
        from geoskip.stores.keyring import KeyRing

        return Encryption(KeyRing.from_file(self.keys), key)

    def store(self, folder: str | os.PathLike[str], key: str | None = None) -> ParquetStore:
        """Store of the metadata in a local folder, which may be empty or missing."""
        from geoskip.stores.parquet import ParquetStore

        return ParquetStore(folder, encryption=self.encryption(key))

    def of_build(self, paths: Sequence[str], key: str | None = None) -> dict[str, Any]:
        """Arguments for the metadata of :func:`geoskip.build` and other functions without Spark."""
        if self.encryption(key) is None:
            return {"metadata": self.metadata}
        return {"store": self.store(self.folder_of(paths), key)}

    def folder_of(self, paths: Sequence[str]) -> str:
        """Local folder of a dataset's metadata; raises DatasetNotFoundError if the dataset has no files."""
        from geoskip.engines.folder_listing import FOLDER
        from geoskip.engines.parquet_dataset import ParquetPaths
        from geoskip.stores.log_files import local_path

        if self.metadata is None:
            return os.path.join(ParquetPaths.of(paths).root, FOLDER)
        folder = local_path(self.metadata) if self.metadata.startswith("file:") else self.metadata
        return os.path.abspath(os.path.expanduser(folder or self.metadata))


@dataclass(frozen=True)
class SparkOptions:
    """Options for Spark."""

    spark: Annotated[
        bool, typer.Option("--spark", help="Use Spark, also where it is not needed.", rich_help_panel=SPARK)
    ] = False
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master, such as local[4], yarn or spark://host:7077.", rich_help_panel=SPARK),
    ] = None
    format: Annotated[
        str | None,
        typer.Option(help="parquet, orc, csv, json, text, avro, delta, iceberg or hudi.", rich_help_panel=SPARK),
    ] = None
    option: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="An option of Spark's reader, as in header=true.",
                     rich_help_panel=SPARK),
    ] = field(default_factory=list)  # fmt: skip
    conf: Annotated[
        list[str],
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark's, as in spark.driver.memory=4g.",
                     rich_help_panel=SPARK),
    ] = field(default_factory=list)  # fmt: skip
    sedona: Annotated[bool, typer.Option("--sedona", help="Use Apache Sedona's functions.", rich_help_panel=SPARK)] = (
        False
    )
    modules: Annotated[
        list[str],
        typer.Option("--import", metavar="MODULE", help="A module that defines mappings, functions or index types.",
                     rich_help_panel=DATASET),
    ] = field(default_factory=list)  # fmt: skip

    def words(self) -> list[str]:
        """The options as arguments of a command line."""
        given = [("--master", self.master), ("--format", self.format), *(("--option", text) for text in self.option)]
        given += [*(("--conf", text) for text in self.conf), *(("--import", name) for name in self.modules)]
        flags = ["--spark"] * self.spark + ["--sedona"] * self.sedona
        return [*flags, *(word for name, value in given if value is not None for word in (name, value))]

    def needed_for(self, paths: Sequence[str]) -> bool:
        """Test whether the options or the paths require Spark, after importing the modules."""
        for module in self.modules:
            try:
                import_module(module)
            except ImportError as error:
                raise InvalidSpecificationError(
                    f"--import {module}: {error}; name a module that Python finds, as with PYTHONPATH=folder"
                ) from None
        asked = self.spark or self.master or self.conf or self.sedona or self.option
        return bool(asked) or self.format not in (None, "parquet") or not all(map(is_local, paths))

    @contextmanager
    def dataset(
        self, paths: Sequence[str], metadata: MetadataOptions, why: str = "", key: str | None = None
    ) -> Iterator[Dataset]:
        """Handle of a dataset in a session.

        Parameters
        ----------
        paths, metadata
            The dataset, and its metadata.
        why
            The reason why Spark is needed, for the error if it is missing.
        key
            The name of the key that protects new metadata.
        """
        options: dict[str, Any] = dict(pairs_of(self.option, "--option", "header=true"))
        format_, schema = self.format, None
        is_here = all(map(is_local, [*paths, metadata.metadata or ""]))
        if is_here and (recorded := recorded_reader(metadata.store(metadata.folder_of(paths)))):
            if format_ in (None, recorded.format) and not {"schema", "inferSchema"} & options.keys():
                schema = recorded.schema
            format_, options = format_ or recorded.format, {**recorded.options, **options}
        with self.session(why) as spark:
            from geoskip.spark.dataset.handle import dataset
            from geoskip.spark.local_session import schema_of

            if schema is not None:
                options["schema"] = schema_of(schema)
            table = table_of(paths[0])
            path = paths[0] if len(paths) == 1 else list(paths)
            yield dataset(
                spark,
                path if table is None else None,
                table=table,
                format=format_,
                metadata=metadata.metadata,
                encryption=metadata.encryption(key),
                **options,
            )

    @contextmanager
    def session(self, why: str = "") -> Iterator[SparkSession]:
        """The session of a command; raises MissingPackageError with ``why`` if PySpark is missing."""
        check_pyspark(why or "this command needs Spark")
        config = pairs_of(self.conf, "--conf", "spark.driver.memory=4g")
        with ExitStack() as stack:
            with show_activity("starting Spark"):
                from geoskip.spark.analysis import without_error_log
                from geoskip.spark.local_session import local_session

                stack.enter_context(without_error_log())
                spark = stack.enter_context(local_session(self.master, config, sedona=self.sedona))
            yield spark


def check_pyspark(why: str) -> None:
    """Raise MissingPackageError, with the reason why Spark is needed, if PySpark is missing."""
    if find_spec("pyspark") is None:
        raise MissingPackageError(f"{why}: pip install 'geoskip[spark]', and Java 17 or 21")


def table_of(path: str) -> str | None:
    """Name of the table that a command names in place of a path; None for a path.

    >>> table_of("table:db.weather"), table_of("./table:db.weather")
    ('db.weather', None)
    """
    return path.removeprefix(_TABLE) if path.startswith(_TABLE) else None


def is_local(path: str) -> bool:
    """Test whether a path is on the local file system; False for a table."""
    return table_of(path) is None and (path.startswith("file:") or not _URI.match(path))


def distant(paths: Sequence[str]) -> str | None:
    """Reason why Spark is needed for some paths or tables; None if all are on the local file system."""
    if not (others := [path for path in paths if not is_local(path)]):
        return None
    tables = [f"the table {table}" for path in others if (table := table_of(path)) is not None]
    return (
        f"{tables[0]} needs Spark"
        if tables
        else f"{', '.join(others)} is not on a local file system, which needs Spark"
    )


@dataclass(frozen=True)
class RecordedReader:
    """Options with which a dataset's files were read when they were indexed."""

    format: str
    options: Mapping[str, str]
    schema: str | None
    """The schema as JSON, for formats whose files have none."""


def recorded_reader(store: Store) -> RecordedReader | None:
    """The reader options recorded in a dataset's metadata; None for tables and unreadable metadata."""
    from geoskip.lifecycle.log import latest

    try:
        snapshot = latest(store)
    except MetadataError:  # the command may be a repair
        return None
    source = snapshot.header.source if snapshot is not None else {}
    name = _FORMATS.get(str(source.get("class")).rpartition(".")[2])
    if name is None:
        return None
    schema = source.get("schema") if name in ("csv", "json") else None
    return RecordedReader(name, dict(source.get("options") or {}), schema)


@contextmanager
def store_of(path: str, metadata: MetadataOptions, spark: SparkOptions, *, to_read: bool = False) -> Iterator[Store]:
    """Store of a dataset's existing metadata: in a local folder, otherwise through Spark.

    Parameters
    ----------
    path
        The dataset, or the folder of the metadata itself.
    metadata, spark
        The options.
    to_read
        Accept a file, and use the metadata of its folder.

    Raises
    ------
    NotIndexedError
        If there are no metadata.
    """
    if not is_local(metadata.metadata or path) or (spark.needed_for([path]) and metadata.metadata is None):
        places = [path] if metadata.metadata is None else [path, metadata.metadata]
        with spark.dataset([path], metadata, distant(places) or "--spark needs Spark") as handle:
            yield handle.store
        return
    from geoskip.stores.log_files import local_path

    given = metadata.metadata or path
    folder = Path(local_path(given) or given) if given.startswith("file:") else Path(given).expanduser()
    folder = folder.parent if to_read and metadata.metadata is None and folder.is_file() else folder
    place = folder / "_geoskip" if (folder / "_geoskip").is_dir() else folder
    if not place.exists():
        raise NotIndexedError(f"there is no folder {place}; name the dataset, or the folder of its metadata")
    if not (place / "_identity.json").is_file():
        if folder.is_file() and (folder.parent / "_geoskip").is_dir():
            raise NotIndexedError(
                f"{folder} is one file; its metadata are those of its folder: name {shlex.quote(str(folder.parent))}"
            )
        raise NotIndexedError(
            f"{folder} holds no metadata: neither _geoskip nor _identity.json is in it; make them: geoskip index "
            f"{shlex.quote(path)} --minmax COLUMN, or say where they are: --metadata FOLDER"
        )
    yield metadata.store(place.absolute())


def pairs_of(texts: Sequence[str], name: str, example: str) -> dict[str, str]:
    """Parse names and values of a repeatable option; raises InvalidSpecificationError for other texts."""
    pairs = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InvalidSpecificationError(f"{name} takes a name and a value, as in {name} {example}, got {text!r}")
        pairs[key.strip()] = value
    return pairs
