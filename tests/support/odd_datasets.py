"""A folder of indexed files with values on which engines and Spark differ, for readers of datasets."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa

import geoskip
from geoskip.indexes.base import Index
from tests.support.engine_rows import TYPES, table
from tests.support.indexed_files import write_indexed

FILES = 12
_ROWS = 8
_UNREAD = ("ns", "st", "u8")
"""Columns without metadata here: nanoseconds, nested fields and unsigned bytes."""


def odd_dataset(folder: Path) -> Path:
    """Write twelve files with rows of :func:`table` and their ``number``, in partitions by number and day.

    Every other file has one value or null in all rows of a column, so that bounds differ from file to file.
    """
    rows = table(FILES * _ROWS)
    tables: dict[str, pa.Table] = {}
    for number in range(FILES):
        some = rows.slice(number * _ROWS, _ROWS)
        if number % 2:
            some = pa.table({name: _one_value(some[name], number) for name in some.column_names})
        some = some.append_column("number", pa.array([number] * _ROWS, pa.int32()))
        tables[f"part={number % 3}/day=2024-01-0{1 + number % 2}/{number}.parquet"] = some
    types = {**TYPES, "number": "int", "part": "int", "day": "date"}
    # a partition column would hide a file's column of the same name
    tables = {name: data.drop_columns(["day"]) for name, data in tables.items()}
    types = {name: kind for name, kind in types.items() if name not in _UNREAD}
    plain = [name for name in types if name not in ("part", "day")]
    indexes: list[Index] = [geoskip.MinMax(name) for name in plain]
    indexes += [geoskip.ValueList(name) for name in ("s", "a", "x", "f", "i8")]
    indexes += [geoskip.BloomFilter(name) for name in ("t", "n", "y")]
    write_indexed(folder, tables, types, indexes, partitions=("part", "day"))
    return folder


def make_delta(folder: Path, **partitions: str) -> None:
    """Turn an indexed folder into a Delta table, with Delta's names of the types of its partition columns."""
    aside = (folder / "_geoskip").rename(folder.parent / f"{folder.name} aside")
    schema = deltalake.Schema([deltalake.Field(name, kind) for name, kind in partitions.items()])
    by = {"partition_by": schema, "partition_strategy": "hive"} if partitions else {}
    deltalake.convert_to_deltalake(folder, **by)
    aside.rename(folder / "_geoskip")


def require_feature(folder: Path, *features: str, **configuration: str) -> None:
    """Append an entry to a Delta table's log that requires reader features and sets properties."""
    table = deltalake.DeltaTable(folder)
    about, entry = table.metadata(), folder / "_delta_log" / f"{table.version() + 1:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    schema = json.loads(table.schema().to_json())
    for number, field in enumerate(schema["fields"] if "columnMapping" in features else (), 1):
        named = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"].update(named)
    metadata = {
        "id": str(about.id), "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
        "partitionColumns": about.partition_columns, "configuration": {**about.configuration, **configuration},
    }  # fmt: skip
    entry.write_text("\n".join(json.dumps(action) for action in ({"protocol": protocol}, {"metaData": metadata})))


def _one_value(column: pa.ChunkedArray, number: int) -> pa.Array:
    """A column with one of its values in all rows, which may be null."""
    values = column.combine_chunks()
    return values.take(pa.array([number % len(values)] * len(values)))
