"""Listings of Iceberg tables from their metadata: the data files of the current snapshot.

The current version can be found in the folder only for tables of a Hadoop catalog (``v3.metadata.json``). For a table
of another catalog, the caller passes the path of the metadata file, which the catalog returns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa

from geoskip.engines.extras import require_package
from geoskip.engines.folder_listing import FolderListing
from geoskip.engines.iceberg_columns import IcebergColumns
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.stores.log_files import local_path

_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json")
_METADATA = ".metadata.json"
_PARTITIONS = ("int", "long", "date", "string")
"""Iceberg's types of partition columns that can exclude files."""
_DELETES = 1
"""The content of a manifest of deletes; pyiceberg gives a plain number for tables of format 1."""
_THREADS = 8
_EPOCH = date(1970, 1, 1)


def list_table(root: str, below: str) -> FolderListing:
    """List the data files of a table, of a folder in it, or of the version of a given metadata file.

    Raises InvalidSpecificationError if the version or one of its manifests cannot be read.
    """
    place = metadata_file(root, below)
    try:
        found = _list_version(root, place, os.stat(place).st_mtime_ns)
    except GeoskipError:
        raise
    except Exception as error:  # a missing manifest, or a format that the package does not support
        why = str(error).partition("\n")[0]
        raise InvalidSpecificationError(
            f"{root} is a table of Iceberg, and pyiceberg cannot read {place} or a manifest of it: {why}"
        ) from error
    return replace(found, below=below) if below.endswith(_METADATA) else found.restrict(below)


def open_table(root: str, below: str = "") -> Any:
    """Load a table with pyiceberg, in its current version or that of the given metadata file."""
    static = require_package("pyiceberg.table", "a table of Iceberg").StaticTable
    return static.from_metadata(metadata_file(root, below))


def plan_scan(found: FolderListing, skipped: Collection[str]) -> tuple[Any, list[Any]]:
    """The pyiceberg table of a listing, and its scan tasks for all files that are not skipped.

    Raises InvalidSpecificationError for equality deletes, which pyiceberg does not apply, and for files of Avro, which
    it does not read.
    """
    place = metadata_file(found.root, found.below)
    try:
        table, tasks = _plan(found.root, place, os.stat(place).st_mtime_ns)
    except ValueError as error:
        raise InvalidSpecificationError(
            f"{found.root} is a table of Iceberg that the package pyiceberg does not read: {error}; read it through "
            "Spark, or apply its deletes by CALL system.rewrite_data_files"
        ) from error
    heads, head = _heads(table, found.root), found.root.rstrip("/") + "/"
    left = [each for each in tasks if head + _relative(each.file.file_path, heads, found.root) not in skipped]
    if any(each.file.file_format.value == "AVRO" for each in left):
        raise InvalidSpecificationError(
            f"{found.root} is a table of Iceberg with files of Avro, which the package pyiceberg does not read; read "
            "it through Spark"
        )
    return table, left


@lru_cache(maxsize=2)
def _plan(root: str, place: str, _stamp: int) -> tuple[Any, list[Any]]:
    """The table and the tasks for all files of one version; cached, since a version never changes."""
    table = open_table(root, os.path.relpath(place, root))
    return table, list(table.scan().plan_files())


def metadata_file(root: str, below: str = "") -> str:
    """The metadata file of a table's current version, or the given one."""
    if below.endswith(_METADATA):
        return os.path.join(root, below)
    folder = os.path.join(root, "metadata")
    names = os.listdir(folder)
    versions = {int(match[1]): name for name in names if (match := _VERSION.fullmatch(name))}
    if not versions or any(name.endswith(_METADATA) and not _VERSION.fullmatch(name) for name in names):
        raise InvalidSpecificationError(
            f"{root} is a table of Iceberg whose catalogue alone knows the current version; give the path of its "
            f"metadata file, such as {max(name for name in names if name.endswith(_METADATA))} in {folder}, which is "
            "table.metadata_location of pyiceberg, or the last file in Spark's table.metadata_log_entries"
        )
    return os.path.join(folder, versions[max(versions)])


@lru_cache(maxsize=16)
def _list_version(root: str, place: str, _stamp: int) -> FolderListing:
    """List the files of one version; cached, since a version never changes."""
    table = open_table(root, os.path.relpath(place, root))
    if not _is_same(table.location(), root):
        raise InvalidSpecificationError(
            f"{root} is a copy of the table of Iceberg at {table.location()}, where its metadata say that its files "
            "are; read that one"
        )
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    data = [manifest for manifest in manifests if not _is_of_deletes(manifest)]
    with ThreadPoolExecutor(_THREADS) as pool:
        entries = [entry for found in pool.map(lambda m: m.fetch_manifest_entry(table.io), data) for entry in found]
    heads = _heads(table, root)
    paths = [_relative(entry.data_file.file_path, heads, root) for entry in entries]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    entries = [entries[number] for number in order]
    files = [entry.data_file for entry in entries]
    forms = sorted({str(file.file_format.value) for file in files} - {"PARQUET"})
    deletes = any(_is_of_deletes(each) and (each.added_files_count != 0 or each.existing_files_count != 0)
                  for each in manifests)  # fmt: skip
    columns = IcebergColumns.of(table, files)
    partitions, types = _partitions(table, files)
    return FolderListing(
        root=root,
        path=pa.array([paths[number] for number in order], pa.string()),
        size=pa.array([file.file_size_in_bytes for file in files], pa.int64()),
        mtime=pa.array([entry.file_sequence_number or 0 for entry in entries], pa.int64()),
        etag=pa.nulls(len(files), pa.string()),
        partitions=partitions,
        types=types,
        notes=("rows may be deleted that are in the files: they are counted",) if deletes else (),
        unlike=" and ".join([*(["deleted rows that are still in its files"] if deletes else []),
                             *(f"files of {form}" for form in forms)]),
        columns=columns,
    )  # fmt: skip


def _is_of_deletes(manifest: Any) -> bool:
    return bool(manifest.content == _DELETES)


def _is_same(location: str, root: str) -> bool:
    place = local_path(location) if location.startswith("file:") else location
    try:
        return place is not None and os.path.samefile(place, root)
    except OSError:
        return False


def _heads(table: Any, root: str) -> tuple[str, ...]:
    """The possible prefixes of the paths of a table's files."""
    return tuple(dict.fromkeys((table.location().rstrip("/") + "/", root.rstrip("/") + "/")))


def _relative(path: str, heads: Sequence[str], root: str) -> str:
    """The path of a data file relative to the table's folder."""
    for head in heads:
        for spelt in (path, local_path(path) if path.startswith("file:") else None):
            if spelt is not None and spelt.startswith(head):
                return spelt.removeprefix(head)
    raise InvalidSpecificationError(
        f"{root} is a table of Iceberg with files outside of its folder, such as {path}; ask through Spark"
    )


def _partitions(table: Any, files: Sequence[Any]) -> tuple[pa.Table, dict[str, str]]:
    """The values of identity partition columns that all files have, as text, and their types in Spark."""
    specs, schema = table.specs(), table.schema()
    used = {file.spec_id for file in files}
    found: dict[str, list[str | None]] = {}
    types: dict[str, str] = {}
    for column in schema.fields:
        kind = str(column.field_type)
        places = {number: _position(specs[number], column.field_id) for number in used}
        if kind not in _PARTITIONS or not places or None in places.values():
            continue
        found[column.name] = [_text(file.partition[places[file.spec_id]], kind) for file in files]
        types[column.name] = {"long": "bigint"}.get(kind, kind)
    return pa.table({name: pa.array(values, pa.string()) for name, values in found.items()}), types


def _position(spec: Any, column: int) -> int | None:
    """The position of a column's identity partition field in a partition spec, or None."""
    return next(
        (n for n, each in enumerate(spec.fields) if each.source_id == column and str(each.transform) == "identity"),
        None,
    )


def _text(value: Any, kind: str) -> str | None:
    if value is None:
        return None
    if kind == "date" and not isinstance(value, date):
        return (_EPOCH + timedelta(days=value)).isoformat()
    return str(value)
