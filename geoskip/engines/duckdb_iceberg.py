"""Columns of Iceberg tables for DuckDB, matched to the columns of files by field id."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq

from geoskip.engines.duckdb_statement import literal, quote_name
from geoskip.engines.folder_listing import FolderListing
from geoskip.errors import InvalidSpecificationError

_THREADS = 8
_OF_ICEBERG = {
    "boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "date": "DATE",
    "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE", "string": "VARCHAR",
    "uuid": "UUID", "binary": "BLOB",
}  # fmt: skip


def columns_by_id(found: FolderListing) -> str:
    """The option ``schema`` of ``read_parquet``, by which DuckDB finds the columns of a table of Iceberg.

    Fields in structs and lists it finds by names, columns in files without ids not at all, and floats it compares with
    constants that it has made floats, so the schemas of files are read where there may be such.
    """
    assert found.columns is not None
    fields = found.columns.schema.fields
    if found.columns.differ_in_files or any(
        not each.field_type.is_primitive or each.initial_default is not None for each in fields
    ):
        paths = [os.path.join(found.root, name) for name in found.path.to_pylist()]
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, schema in zip(paths, pool.map(pq.read_schema, paths), strict=True):
                found.columns.refuse(schema, path, "geoskip.duckdb()", by_id=True)
    columns = (
        f"{each.field_id}: {{name: {literal(each.name)}, type: {literal(_duckdb_type(each.field_type))}, "
        "default_value: NULL}"
        for each in fields
    )
    return f"MAP {{{', '.join(columns)}}}"


def _duckdb_type(kind: Any) -> str:
    """DuckDB's name of an Iceberg type; raises InvalidSpecificationError where it has none."""
    if kind.is_struct:
        return (
            f"STRUCT({', '.join(f'{quote_name(each.name)} {_duckdb_type(each.field_type)}' for each in kind.fields)})"
        )
    if hasattr(kind, "element_type"):
        return f"{_duckdb_type(kind.element_type)}[]"
    if hasattr(kind, "key_type"):
        return f"MAP({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.value_type)})"
    text = str(kind)
    found = text if text.startswith("decimal(") else "BLOB" if text.startswith("fixed[") else _OF_ICEBERG.get(text)
    if found is None:
        raise InvalidSpecificationError(f"DuckDB has no type for Iceberg's {text}; read the table by scan_polars()")
    return found.upper()
