"""Columns of Parquet files as Spark reads them by default.

Spark infers the columns of a folder from the footer of one file: from Spark's own schema in its metadata, else from the
Parquet types. A column of a type that Spark does not read is omitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_WRITTEN_BY_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_SIGNED = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_UNSIGNED = {8: "short", 16: "integer", 32: "long", 64: "decimal(20,0)"}
_DIGITS = {"INT32": 9, "INT64": 18}
"""Maximum number of digits of decimals, by physical type."""
_MOST_DIGITS = 38


def spark_schema(file: pq.ParquetFile) -> str:
    """Schema of a file as Spark's JSON, with all fields nullable, as Spark reads files.

    >>> import io
    >>> written = io.BytesIO()
    >>> pq.write_table(pa.table({"a": pa.array([1], pa.uint8()), "t": pa.array([1], pa.time64("us"))}), written)
    >>> spark_schema(pq.ParquetFile(written))
    '{"type":"struct","fields":[{"name":"a","type":"short","nullable":true,"metadata":{}}]}'
    """
    written = (file.metadata.metadata or {}).get(_WRITTEN_BY_SPARK)
    found = _nullable(json.loads(written)) if written is not None else _convert_schema(file)
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def unread_columns(file: pq.ParquetFile) -> dict[str, str]:
    """Columns of a file that Spark does not read, with Arrow's names of their types."""
    read = {field["name"] for field in json.loads(spark_schema(file))["fields"]}
    return {field.name: str(field.type) for field in file.schema_arrow if field.name not in read}


def _nullable(kind: Any) -> Any:
    """A type in Spark's JSON with all nested values nullable."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**f, "type": _nullable(f["type"]), "nullable": True} for f in kind["fields"]]}
    if kind["type"] == "array":
        return {**kind, "elementType": _nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        types = {name: _nullable(kind[name]) for name in ("keyType", "valueType")}
        return {**kind, **types, "valueContainsNull": True}
    return kind


def _convert_schema(file: pq.ParquetFile) -> dict[str, Any]:
    leaves = (file.schema.column(number) for number in range(len(file.schema)))
    fields = [_field(field, leaves) for field in file.schema.to_arrow_schema()]
    return {"type": "struct", "fields": [field for field in fields if field is not None]}


def _field(field: pa.Field, leaves: Iterator[Any]) -> dict[str, Any] | None:
    kind = _type(field.type, leaves)
    return None if kind is None else {"name": field.name, "type": kind, "nullable": True, "metadata": {}}


def _type(kind: pa.DataType, leaves: Iterator[Any]) -> Any:
    """Spark's JSON of a type with the next leaves; None if Spark does not read it."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        fields = [_field(kind.field(number), leaves) for number in range(kind.num_fields)]
        return None if None in fields or not fields else {"type": "struct", "fields": fields}
    if pa.types.is_map(kind):
        key, value = _type(kind.key_type, leaves), _type(kind.item_type, leaves)
        if key is None or value is None:
            return None
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _type(kind.value_type, leaves)
        return None if element is None else {"type": "array", "elementType": element, "containsNull": True}
    return _leaf_type(next(leaves))


def _leaf_type(leaf: Any) -> str | None:
    """Spark's JSON name of the type of a leaf; None for a type that Spark does not read."""
    physical, logical = leaf.physical_type, json.loads(leaf.logical_type.to_json())
    annotation = logical["Type"]
    if annotation == "Decimal":
        most = _DIGITS.get(physical) or _digits_of(leaf)
        fits = physical in ("INT32", "INT64", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") and logical["precision"] <= most
        return f"decimal({logical['precision']},{logical['scale']})" if fits else None
    match physical, annotation:
        case (("BOOLEAN" | "FLOAT" | "DOUBLE"), "None"):
            return str(physical.lower())
        case "INT96", _:
            return "timestamp"
        case (("INT32" | "INT64"), "None"):
            return "integer" if physical == "INT32" else "long"
        case (("INT32" | "INT64"), "Int"):
            return (_SIGNED if logical["isSigned"] else _UNSIGNED)[logical["bitWidth"]]
        case "INT32", "Null":  # written for columns with nothing but NULL
            return "integer"
        case "INT32", "Date":
            return "date"
        case "INT64", "Timestamp" if logical["timeUnit"] in ("milliseconds", "microseconds"):
            return "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
        case "BYTE_ARRAY", ("String" | "Enum" | "JSON"):
            return "string"
        case "BYTE_ARRAY", ("None" | "BSON"):
            return "binary"
        case "FIXED_LEN_BYTE_ARRAY", "None":
            return "binary"
    return None


def _digits_of(leaf: Any) -> int:
    """The greatest number of digits of a decimal that is stored as bytes."""
    if leaf.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return _MOST_DIGITS
    return min(_MOST_DIGITS, len(str(1 << (8 * leaf.length - 1))) - 1)
