"""Folders of Parquet files with metadata that a test writes itself, without Spark and without a build."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.indexes.base import Index, SourceColumn
from geoskip.metadata import FileRow, Header, IndexEntry, build_table
from geoskip.predicates import Column
from geoskip.sources.arrow_reader import read_files
from geoskip.sources.dependencies import Reader, depends_on
from geoskip.sources.footers import IndexPlan
from geoskip.sources.listed_files import local_etag
from geoskip.stores import ParquetStore

PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.*": "{}",
}
_JSON = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}


def write_files(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write tables as Parquet files by their relative paths."""
    for name, table in tables.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)


def write_indexed(
    folder: Path,
    tables: Mapping[str, pa.Table],
    types: Mapping[str, str],
    indexes: Sequence[Index],
    *,
    partitions: Sequence[str] = (),
    settings: Mapping[str, str] = SETTINGS,
    store: ParquetStore | None = None,
    unindexed: Sequence[str] = (),
    written: bool = False,
    **source: Any,
) -> ParquetStore:
    """Write tables as Parquet files, unless they exist, and metadata as recorded by a build through Spark."""
    if not written:
        write_files(folder, tables)
    reader = Reader(PARQUET, {}, settings, "")
    entries = []
    for index in indexes:
        columns = [Column(name, types[name]) for name in index.expressions()]
        arrow = next(iter(tables.values())).schema
        kind = index.metadata_type(*(SourceColumn(c.name, str(c.type), arrow.field(c.name).type) for c in columns))
        read = tuple((column.name, str(column.type)) for column in columns)
        entries.append(IndexEntry(index.bind(columns), read, kind, depends_on(columns, reader)))
    rows = _rows(folder, [name for name in tables if name not in unindexed], entries)
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": _JSON.get(kind, kind), "nullable": True, "metadata": {}}
            for name, kind in types.items()
            if name not in partitions
        ],
    }
    header = Header(
        root=f"file:{folder}",
        source={
            "class": PARQUET, "options": {}, "schema": json.dumps(schema), "partitions": list(partitions),
            "settings": dict(settings), "path": str(folder), "table": None, **source,
        },
        entries=tuple(entries),
        created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    store = store or ParquetStore(folder / "_geoskip")
    store.commit(replace(header, identity=store.begin()), build_table(entries, rows), expected=None)
    return store


def _rows(folder: Path, names: Sequence[str], entries: Sequence[IndexEntry]) -> list[FileRow]:
    plans = [IndexPlan(entry.name, entry.index, entry.columns) for entry in entries]
    rows, times = [], _times_in_log(folder)
    for result in read_files([(name, str(folder / name)) for name in names], plans, False):
        assert result.problem is None, result.problem
        path = folder / result.path
        found = os.stat(path)
        mtime, etag = times.get(result.path, found.st_mtime_ns // 1_000_000), local_etag(str(path))
        rows.append(FileRow(result.path, found.st_size, mtime, etag, result.rows, result.summaries))
    return rows


def _times_in_log(folder: Path) -> dict[str, int]:
    """The times of a Delta table's files in its log; empty for other folders."""
    entries = (json.loads(line) for file in folder.glob("_delta_log/*.json") for line in file.open())
    return {unquote(each["add"]["path"]): each["add"]["modificationTime"] for each in entries if "add" in each}
