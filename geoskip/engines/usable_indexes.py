"""Indexes with summaries that are valid for readers other than Spark.

A summary describes the values that Spark read. It is used only if every Parquet reader reads the same values: not if
Spark renamed, rebased, converted or defaulted them, and not for functions that only Spark can evaluate. Comparisons
with timestamps before 1900 and dates before the Gregorian calendar are removed by :func:`without_old_times`, since
Spark rebases those in files of old writers whatever its settings are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from geoskip.engines.agreed_functions import is_agreed
from geoskip.metadata import Header, IndexEntry
from geoskip.predicates import (
    And,
    Call,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    children,
    columns_of,
    transform,
    walk,
)
from geoskip.registry import current
from geoskip.rules import name_of
from geoskip.sources.column_names import parts_of_name
from geoskip.sources.dependencies import DEFAULT_OF, ID_OF, reason_elsewhere
from geoskip.sources.footers import GREGORIAN, TIMES_AGREE
from geoskip.sources.settings import SETTINGS_OF
from geoskip.types import sql_type

if TYPE_CHECKING:
    from geoskip.engines.folder_listing import FolderListing
    from geoskip.engines.iceberg_columns import IcebergColumns

READ_ALIKE = {
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.parquet.binaryAsString": ("false",),
    "spark.sql.parquet.int96AsTimestamp": ("true",),
    "spark.sql.legacy.parquet.nanosAsLong": ("false",),
    "spark.sql.parquet.int96TimestampConversion": ("false",),
    "spark.sql.parquet.int96RebaseModeInRead": ("corrected", "exception"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("corrected", "exception"),
}
"""Values of Spark's settings with which it reads the same values as other readers."""
_FIRST = {"date": GREGORIAN, "timestamp": TIMES_AGREE, "timestamp_ntz": TIMES_AGREE}
"""The first values on which Spark's two calendars agree in every zone."""


def reason_unusable(found: FolderListing, header: Header, entry: IndexEntry, named: Predicate) -> str | None:
    """The reason why an index does not support a condition on a listing without Spark, or None.

    Parameters
    ----------
    found
        The listing.
    header, entry
        The header of the metadata, and the index in it.
    named
        The condition with the column names of the metadata.
    """
    why = current().quarantine.get(name_of(entry.name, header.root))
    why = why or reason_unusable_here(found.root, header, entry, found.columns)
    if why is None and found.columns is not None:
        why = found.columns.reason_unusable(entry, named)
    return _reason_changed(entry, found.schema) if why is None and found.schema is not None else why


def _reason_changed(entry: IndexEntry, schema: Mapping[str, str | None]) -> str | None:
    """The reason why an index does not cover the current columns of a table, or None."""
    top: dict[str, str | None] = {each.lower(): now for each, now in schema.items()}
    for name, kind in entry.columns:
        types, now = top, None
        for part in parts_of_name(name):
            now = types.get(part.lower())
            types = {each.lower(): inner.name for each, inner in sql_type(now or "").fields}
        if now is None:
            return f"the table has no column {name} of this name in its files"
        if sql_type(now) != sql_type(kind):
            return f"it was built over {name} as {kind}, the table has {now} now"
    return None


def reason_unusable_here(
    root: str, header: Header, entry: IndexEntry, columns: IcebergColumns | None = None
) -> str | None:
    """The reason why an index is not valid for readers other than Spark, or None.

    Parameters
    ----------
    root
        The folder of the data.
    header, entry
        The snapshot's header, and its entry for the index.
    columns
        The columns of an Iceberg table; their ids are compared by the caller.
    """
    source = header.source
    if (missing := entry.index.unavailable()) is not None:
        return missing
    by_id = columns is not None and source.get("class") == "iceberg"
    if not by_id and not str(source.get("class")).endswith("ParquetFileFormat"):
        return f"it was built over {str(source.get('class')).rpartition('.')[2]}, without Spark only Parquet is read"
    if source.get("mapped") and not by_id:
        return "its columns have other names in the files than in the table, which only Spark's readers of it follow"
    if (why := reason_elsewhere(f"file:{root}", header, entry)) is not None:
        return why
    if source.get("options"):
        return f"it was built with the reader options {source['options']}, which only Spark follows"
    for name, value in entry.depends.items():
        if name in READ_ALIKE and value.lower() not in READ_ALIKE[name]:
            return f"it was built with {name}={value}, under which Spark reads other values than other readers"
        if name.startswith(DEFAULT_OF if by_id else (DEFAULT_OF, ID_OF)) and value != "None":
            what, _, column = name.partition(" of ")
            return f"Spark finds {column} by its {what} {value}, which other readers do not"
        if name.startswith(SETTINGS_OF) and value != "{}":
            return f"it was built with {value}, which only Spark follows"
    for vertex in (vertex for expression in entry.index.bound for vertex in walk(expression)):
        if isinstance(vertex, Call) and not is_agreed(vertex):
            return f"its values are those of Spark's function {vertex.name}, which is not here to compare"
    return None


def schema_types(header: Header) -> dict[str, str]:
    """Spark's names of the types of a dataset's columns, and of partition columns if recorded."""
    recorded = header.source.get("partition_types")
    found = types_of_schema(header.source.get("schema") or '{"fields": []}')
    return {**found, **(recorded if isinstance(recorded, dict) else {})}


def types_of_schema(schema: str) -> dict[str, str]:
    """Spark's names of the types of columns in a JSON schema of Spark."""
    fields = json.loads(schema)["fields"]
    return {field["name"]: _type_text(field["type"], field.get("metadata") or {}) for field in fields}


def _type_text(kind: Any, about: Mapping[str, Any]) -> str:
    """Spark's catalog name of a type, from its JSON.

    >>> _type_text({"type": "array", "elementType": "long"}, {}), _type_text("string", {"__COLLATIONS": {"c": "x.AI"}})
    ('array<bigint>', 'string collate AI')
    """
    if isinstance(kind, str):
        if kind == "string" and about.get("__COLLATIONS"):
            return f"string collate {next(iter(about['__COLLATIONS'].values())).rpartition('.')[2]}"
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'], {})}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'], {})},{_type_text(kind['valueType'], {})}>"
    if kind["type"] == "struct":
        return f"struct<{','.join(field['name'] + ':' + _type_text(field['type'], {}) for field in kind['fields'])}>"
    return str(kind["type"])


def tested_for_null(predicate: Predicate) -> frozenset[str]:
    """The columns of which NULL may make a predicate TRUE.

    >>> x, y = (IsNull(Column(name, "int")) for name in "xy")
    >>> tested_for_null(And((Not(x), y)))
    frozenset({'y'})
    """
    match predicate:
        case IsNull():
            return columns_of(predicate)
        case Not(IsNull()):
            return frozenset()
    return frozenset().union(*map(tested_for_null, children(predicate)))


def without_old_times(predicate: Predicate) -> Predicate:
    """The predicate without comparisons with times on which Spark's two calendars may disagree.

    >>> without_old_times(Comparison("<", Column("d", "date"), Literal(-200_000, "date")))
    d < DATE '1422-06-03' (before the calendars agree)
    """

    def make_opaque(node: Predicate) -> Predicate:
        if isinstance(node, And | Or | Not | Column | Literal):
            return node
        if isinstance(node, Comparison | In) and _is_old(node):
            return Opaque(f"{node} (before the calendars agree)", tuple(columns_of(node)))
        return node

    return transform(predicate, make_opaque)


def _is_old(node: Comparison | In) -> bool:
    vertices = [one for vertex in walk(node) for one in (vertex, *(vertex.values if isinstance(vertex, In) else ()))]
    literals = [(one.value, _FIRST[one.type]) for one in vertices if isinstance(one, Literal) and one.type in _FIRST]
    return any(isinstance(value, int) and value < first for value, first in literals)
