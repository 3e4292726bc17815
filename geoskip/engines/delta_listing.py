"""Listings of Delta tables by their logs, and the tables whose files only others know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from geoskip.engines.extras import required
from geoskip.engines.folder_listing import FolderListing, listed
from geoskip.errors import InvalidSpecificationError

_TYPES = {"integer": "int", "long": "bigint", "date": "date", "string": "string"}
_MAPPED = "delta.columnMapping.mode"


def table_format(root: str) -> str | None:
    """The format of the table in a folder: Delta, Iceberg or Hudi; None for a folder without."""
    if os.path.isdir(os.path.join(root, "_delta_log")):
        return "Delta"
    metadata = Path(root) / "metadata"
    if metadata.is_dir() and any(metadata.glob("*.metadata.json")):
        return "Iceberg"
    return "Hudi" if os.path.isdir(os.path.join(root, ".hoodie")) else None


def listed_now(root: str, below: str = "") -> FolderListing:
    """List the files of a folder or of one below it; of a table those of its latest version.

    Raises InvalidSpecificationError for a table of Iceberg or Hudi, and for one of Delta that cannot be read.
    """
    kind = table_format(root)
    if kind is None:
        return listed(root, below)
    if kind == "Delta":
        return _of_delta(root, below)
    raise InvalidSpecificationError(
        f"{root} is a table of {kind}, whose files are those that its metadata name: without Spark geoskip does not "
        "read these; ask through Spark"
    )


def refuse_unlike(found: FolderListing, caller: str) -> FolderListing:
    """Return a listing; raises InvalidSpecificationError where files have other rows than the table."""
    if found.unlike:
        raise InvalidSpecificationError(
            f"{caller} reads Parquet files, and {found.root} is a Delta table with {found.unlike}, of which these are "
            "not the rows or columns; read it through Spark, or drop the feature from the table"
        )
    return found


def _of_delta(root: str, below: str) -> FolderListing:
    table_class = required("deltalake", "a Delta table").DeltaTable
    try:
        table = table_class(root)
        actions = pa.table(table.get_add_actions(flatten=False)).combine_chunks()
        about, features = table.metadata(), table.protocol().reader_features or []
        types = {field.name: _type_of(field.type) for field in table.schema().fields}
    except Exception as error:  # of features that the package does not know
        raise InvalidSpecificationError(f"{root} is a Delta table whose log cannot be read: {error}") from error
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    if any(":/" in path or path.startswith("/") for path in paths):
        raise InvalidSpecificationError(f"{root} is a clone, with files outside of its folder; ask through Spark")
    inside = [number for number, path in enumerate(paths) if not below or f"{path}/".startswith(f"{below}/")]
    order = np.array(sorted(inside, key=paths.__getitem__), dtype=np.int64)
    actions = actions.take(pa.array(order))
    notes = []
    if "deletionVectors" in features:
        notes.append("files may have deletion vectors: the rows that these delete are in the files, and counted")
    mapped = (about.configuration or {}).get(_MAPPED, "none") != "none"
    names = [] if mapped else list(about.partition_columns)
    texts = {name: [_text(row.get(name)) for row in actions["partition"].to_pylist()] for name in names}
    count = actions.num_rows
    return FolderListing(
        root=root,
        path=pa.array([paths[number] for number in order], pa.string()),
        size=actions["size_bytes"].combine_chunks().cast(pa.int64()),
        mtime=pa.nulls(count, pa.int64()),  # a file of the log never changes
        etag=pa.nulls(count, pa.string()),
        below=below,
        partitions=pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()}),
        types={name: kind for name in names if (kind := types.get(name)) is not None},
        notes=tuple(notes),
        unlike=" and ".join(
            name for name, used in (("deletion vectors", bool(notes)), ("column mapping", mapped)) if used
        ),
    )


def _type_of(kind: Any) -> str | None:
    return _TYPES.get(str(getattr(kind, "type", "")))


def _text(value: object) -> str | None:
    """A partition's value as the log writes it: days as 2024-02-29."""
    return None if value is None else str(value)
