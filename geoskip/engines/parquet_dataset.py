"""Parquet datasets in local folders as Spark finds them: paths, files, partitions and columns."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.engines.folder_listing import absolute_path, list_folder, locate, table_format
from geoskip.engines.usable_indexes import schema_types
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, NeedsSparkError
from geoskip.metadata import Header
from geoskip.sources.bound_indexes import FileRelation
from geoskip.sources.listed_files import (
    FileListing,
    glob_pattern,
    is_below,
    is_glob,
    is_hidden,
    literal_head,
    near_path,
    shared_folder,
)
from geoskip.sources.parquet_schema import spark_schema, unread_columns
from geoskip.sources.settings import PARQUET, default_settings, spark_version
from geoskip.stores.log_files import local_path

_SUMMARIES = ("_common_metadata", "_metadata")
_NEEDS_SPARK = ("EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING")
"""Keys of a field's metadata that change how Spark reads the field."""


@dataclass(frozen=True)
class ParquetPaths:
    """Paths of a dataset: those given, and the folders and files that they resolve to.

    Attributes
    ----------
    given
        The paths or globs, absolute.
    roots
        The folders and files that they resolve to.
    """

    given: tuple[str, ...]
    roots: tuple[str, ...]

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> ParquetPaths:
        """Resolve the paths that a user gave.

        Raises DatasetNotFoundError for a path that does not exist, InvalidSpecificationError for one that is not local.
        """
        paths = list(path) if isinstance(path, Iterable) and not isinstance(path, str) else [path]
        if wrong := [one for one in paths if not isinstance(one, str | os.PathLike) or not os.fspath(one)]:
            raise InvalidSpecificationError(
                f"geoskip.build() takes a folder, a file or a glob of Parquet, or a list of these, got {wrong[0]!r}"
            )
        if not paths:
            raise DatasetNotFoundError("geoskip.build() got an empty list of paths")
        given = tuple(map(_absolute, paths))
        roots: dict[str, None] = {}
        for one in given:
            found = [one] if os.path.exists(one) else _expand_glob(one) if is_glob(one) else []
            if not found:
                raise DatasetNotFoundError(f"there is no file or folder {one}{near_path(one)}")
            roots |= dict.fromkeys(found)
        return cls(given, tuple(roots))

    @property
    def globs(self) -> list[str]:
        """The given paths that are globs."""
        return [one for one in self.given if is_glob(one) and one not in self.roots]

    @cached_property
    def root(self) -> str:
        """Folder that identifies the dataset, the same as for a dataset handle in Spark."""
        if not self.globs and len(self.roots) == 1:
            return self.roots[0] if os.path.isdir(self.roots[0]) else os.path.dirname(self.roots[0])
        return shared_folder([*self.roots, *map(literal_head, self.globs)])

    def sees(self, uris: Iterable[str]) -> list[bool]:
        """Test for each URI whether these paths include it."""
        patterns = [glob_pattern(f"file:{glob}") for glob in self.globs]
        roots = [f"file:{root}" for root in self.roots]
        return [is_below(uri, roots) or any(pattern.fullmatch(uri) for pattern in patterns) for uri in uris]


def _absolute(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidSpecificationError(f"a path of a dataset is a text, got {path!r}")
    found = absolute_path(text)
    if found is None:
        raise NeedsSparkError(
            f"{text} is not a local path: geoskip.build() reads local and mounted folders; mount it, or build with "
            "geoskip.dataset(spark, path)"
        )
    return found


def _expand_glob(glob: str) -> list[str]:
    """Folders and files that match a Hadoop glob, except hidden ones."""
    pattern, deepest = glob_pattern(glob), glob.count("/")
    found: list[str] = []
    for folder, folders, files in os.walk(literal_head(glob), followlinks=True):
        matching = {name for name in (*folders, *files) if pattern.fullmatch(os.path.join(folder, name))}
        found += [os.path.join(folder, name) for name in matching if not is_hidden(name)]
        inner = os.path.join(folder, "").count("/")
        folders[:] = [name for name in folders if name not in matching and inner < deepest]
    return sorted(found)


@dataclass(frozen=True)
class ParquetState:
    """Files of a dataset at one moment.

    Attributes
    ----------
    files
        The files, in the order of their URIs.
    partitions
        The names of the partition columns.
    left_out
        Names that are not valid Unicode, which metadata cannot hold.
    """

    files: FileListing
    partitions: tuple[str, ...]
    left_out: tuple[str, ...]


def state_of(paths: ParquetPaths) -> ParquetState:
    """List the files that Spark reads from some paths.

    With partition folders these are the non-empty files in them; otherwise the non-empty files directly in the folders.

    Raises InvalidSpecificationError if Spark would find conflicting partition columns.
    """
    rows: list[tuple[str, int, int]] = []
    folders: dict[str, str] = {}
    left_out: list[str] = []
    for root in paths.roots:
        base = root if os.path.isdir(root) else os.path.dirname(root)
        found = list_folder(root) if base == root else list_folder(base, os.path.basename(root))
        left_out += [f"{base}/{name}" for name, _ in found.unnameable]
        names, sizes, times = (column.to_pylist() for column in (found.path, found.size, found.mtime))
        for name, size, time_ in zip(names, sizes, times, strict=True):
            path = f"{base.rstrip('/')}/{name}"
            folders.setdefault(os.path.dirname(path), base)
            if size:
                rows.append((path, size, time_))
    columns = {folder: _columns_of(folder, base) for folder, base in folders.items()}
    partitions = _common_partitions(columns)
    if partitions:
        rows = [row for row in rows if columns[os.path.dirname(row[0])][0]]
    else:
        rows = [row for row in rows if row[0] in paths.roots or os.path.dirname(row[0]) in paths.roots]
    lines = sorted({(path.replace("\n", "\0"), size, time_) for path, size, time_ in rows})
    text = "".join(f"{size} {time_} file:{path}\n" for path, size, time_ in lines)
    return ParquetState(FileListing(text), partitions, tuple(left_out))


def _columns_of(folder: str, base: str) -> tuple[tuple[str, ...], str]:
    """Partition columns of a folder, from the top, and the folder that contains the partitions."""
    names: list[str] = []
    while folder != base:
        name, sign, value = os.path.basename(folder).partition("=")
        if sign and name:
            if not value:
                raise InvalidSpecificationError(f"{folder} is a partition without a value, which Spark does not read")
            names.append(re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), name))
        elif names:
            break
        folder = os.path.dirname(folder)
    return tuple(reversed(names)), folder


def _common_partitions(columns: Mapping[str, tuple[tuple[str, ...], str]]) -> tuple[str, ...]:
    """Partition columns that all partitioned folders share."""
    partitioned = {folder: found for folder, found in columns.items() if found[0]}
    if not partitioned:
        return ()
    bases = {base if names else folder for folder, (names, base) in columns.items()}
    kinds = {names for names, _ in partitioned.values()}
    if len(bases) > 1 or len(kinds) > 1:
        shown = ", ".join(sorted(columns)[:3])
        raise InvalidSpecificationError(
            f"the folders {shown} have no partition columns in common, so that Spark reads them as no one dataset; "
            "build each part by itself"
        )
    return next(iter(kinds))


class ParquetSource:
    """A dataset given by paths, with its relation as in Spark's default session."""

    def __init__(self, paths: ParquetPaths) -> None:
        self.paths = paths
        self.unread: Mapping[str, str] = {}
        """Columns that Spark does not read, with Arrow's names of their types."""
        self.root = f"file:{paths.root}"
        root, _ = locate(paths.root)
        if (kind := table_format(root)) is not None:
            place = "table=..." if kind == "Iceberg" else "path"
            raise NeedsSparkError(
                f"{root} is a table of {kind}, whose log says which files are of now; build with Spark: "
                f"geoskip.dataset(spark, {place}).create_index(...)"
            )

    @property
    def name(self) -> str:
        """Name in messages."""
        return ", ".join(self.paths.given)

    def relation(self, state: ParquetState, recorded: Header | None) -> FileRelation:
        """File relation of the dataset, with the settings recorded in its metadata.

        Parameters
        ----------
        state
            The current files.
        recorded
            The header of the latest snapshot, or None.
        """
        settings: dict[str, str | None] = {**default_settings(spark_version()), "spark.version": spark_version()}
        source = recorded.source if recorded is not None else {}
        settings |= {name: value for name, value in (source.get("settings") or {}).items() if value is not None}
        schema = _with_fields_of(self._schema(state), source.get("schema"))
        roots = tuple(f"file:{root}" for root in self.paths.roots)
        return FileRelation(PARQUET, {}, settings, schema, roots, state.partitions, self.root)

    def _schema(self, state: ParquetState) -> str:
        """Schema of the file from which Spark would infer the columns."""
        summaries = (os.path.join(root, name) for name in _SUMMARIES for root in self.paths.roots)
        path = next(filter(os.path.isfile, summaries), None)
        if path is None:
            first = state.files.schema_file()
            path = local_path(first.uri) if first is not None else None
        if path is None:
            return '{"type":"struct","fields":[]}'
        try:
            with pq.ParquetFile(path) as file:
                self.unread = unread_columns(file)
                return spark_schema(file)
        except (OSError, pa.ArrowException, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidSpecificationError(f"{self.name} cannot be read: {path} is not readable as Parquet: {why}; "
                "geoskip.build() reads Parquet, other formats need Spark") from error  # fmt: skip


def types_of(relation: FileRelation) -> dict[str, str]:
    """Spark's names of the types of a relation's columns; ``string`` for partition columns.

    Columns that Spark reads with other values than the file has (defaults, CHAR) have the type ``unknown``.
    """
    found = schema_types(Header(root=relation.root, source={"schema": relation.schema}))
    for field in json.loads(relation.schema)["fields"]:
        if any(key in (field.get("metadata") or {}) for key in _NEEDS_SPARK):
            found[field["name"]] = "unknown"
    lowered = {name.lower() for name in relation.partitions}
    stored = {name: kind for name, kind in found.items() if name.lower() not in lowered}
    return stored | dict.fromkeys(relation.partitions, "string")


def _with_fields_of(schema: str, recorded: Any) -> str:
    """Add the fields that only the recorded schema has, such as columns that the first file lacks."""
    if not isinstance(recorded, str) or recorded == schema:
        return schema
    here, there = json.loads(schema), json.loads(recorded)
    names = {field["name"].lower() for field in here["fields"]}
    more = [field for field in there.get("fields", ()) if field["name"].lower() not in names]
    if not more:
        return schema
    here["fields"] += more
    return json.dumps(here, separators=(",", ":"), ensure_ascii=False)
