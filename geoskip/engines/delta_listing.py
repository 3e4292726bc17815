"""Listings of Delta tables from their logs."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from geoskip.engines.extras import require_package
from geoskip.engines.folder_listing import FolderListing
from geoskip.engines.usable_indexes import types_of_schema
from geoskip.errors import GeoskipError, InvalidSpecificationError

_PARTITIONS = ("int", "bigint", "date", "string")
"""Types of partition columns that can exclude files."""
_WIDENED = frozenset(["typeWidening", "typeWidening-preview"])
"""Table features with which files may have floats in a column of doubles, which DuckDB would compare as floats."""
_MAPPED = "delta.columnMapping.mode"


def list_table(root: str, below: str) -> FolderListing:
    """List the files of a table's latest version, or those below one of its folders."""
    try:
        table = open_table(root, "a Delta table")
        actions = pa.table(table.get_add_actions(flatten=False)).combine_chunks()
        about, features = table.metadata(), table.protocol().reader_features or []
        types: dict[str, str] = types_of_schema(table.schema().to_json())
    except GeoskipError:
        raise
    except Exception as error:  # such as features that the package does not support
        raise InvalidSpecificationError(f"{root} is a Delta table whose log cannot be read: {error}") from error
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    if any(":/" in path or path.startswith("/") for path in paths):
        raise InvalidSpecificationError(f"{root} is a clone, with files outside of its folder; ask through Spark")
    order = np.array(sorted(range(len(paths)), key=paths.__getitem__), dtype=np.int64)
    actions = actions.take(pa.array(order))
    notes = []
    if "deletionVectors" in features:
        notes.append("files may have deletion vectors: the rows that these delete are in the files, and counted")
    mapped = is_mapped(about)
    if mapped:
        notes.append("its columns have other names in the files (column mapping): conditions keep every file")
    names = [] if mapped else list(about.partition_columns)
    rows = actions["partition"].to_pylist() if names else []  # with values as in the log: a date as 2024-02-29
    texts = {name: [None if (value := row.get(name)) is None else str(value) for row in rows] for name in names}
    count = actions.num_rows
    return FolderListing(
        root=root,
        path=pa.array([paths[number] for number in order], pa.string()),
        size=actions["size_bytes"].combine_chunks().cast(pa.int64()),
        mtime=actions["modification_time"].combine_chunks().cast(pa.int64()),
        etag=pa.nulls(count, pa.string()),
        partitions=pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()}),
        types={name: types[name] for name in names if types.get(name) in _PARTITIONS},
        schema=dict.fromkeys(types) if mapped else types,
        notes=tuple(notes),
        unlike=" and ".join(
            name
            for name, used in (
                ("deletion vectors", "deletionVectors" in features),
                ("column mapping", mapped),
                ("type widening", not _WIDENED.isdisjoint(features)),
            )
            if used
        ),
    ).restrict(below)


def open_table(root: str, caller: str) -> Any:
    """Open a table with deltalake.

    Raises InvalidSpecificationError for a folder with a percent-encoded name, which deltalake would decode.
    """
    table_class = require_package("deltalake", caller).DeltaTable
    if unquote(os.path.abspath(root)) != os.path.abspath(root):
        raise InvalidSpecificationError(
            f"{root} is a Delta table in a folder whose name looks encoded, and the package deltalake would read the "
            "log of the folder with the decoded name; rename the folder, or ask through Spark"
        )
    return table_class(root)


def is_mapped(about: Any) -> bool:
    """Test, by a table's metadata, whether its columns may have other names in the files."""
    return bool((about.configuration or {}).get(_MAPPED, "none") != "none")
