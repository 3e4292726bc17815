"""Columns of Iceberg tables, identified by field ids, which do not change when columns are renamed.

Metadata identify a column by its first name. The field id is appended if an older column had the same first name,
ignoring case, or if the name contains ``#``; the Java side of geoskip creates the same names
(``geoskip/spark/jvm/IcebergScan.java``). An index is used only if the ids that it recorded are the current ones, so
that soundness does not depend on the table retaining its old schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.errors import InvalidSpecificationError
from geoskip.metadata import IndexEntry
from geoskip.predicates import Column, Predicate, transform, walk
from geoskip.sources.column_names import parts_of_name, quote_if_needed
from geoskip.sources.dependencies import ID_OF

_TYPES = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "date": "date",
    "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "string": "string", "uuid": "string", "binary": "binary",
}  # fmt: skip
_ID = b"PARQUET:field_id"
_THREADS = 8


def spark_type(kind: Any) -> str | None:
    """Spark's name of an Iceberg type, or None for a type that Spark does not read."""
    if kind.is_struct:
        fields = [(each.name, spark_type(each.field_type)) for each in kind.fields]
        return None if any(of is None for _, of in fields) else f"struct<{','.join(f'{n}:{of}' for n, of in fields)}>"
    if hasattr(kind, "element_type"):
        element = spark_type(kind.element_type)
        return element and f"array<{element}>"
    if hasattr(kind, "key_type"):
        key, value = spark_type(kind.key_type), spark_type(kind.value_type)
        return key and value and f"map<{key},{value}>"
    text = str(kind)
    if text.startswith("decimal("):
        return text.replace(" ", "")
    return "binary" if text.startswith("fixed[") else _TYPES.get(text)


@dataclass(frozen=True)
class IcebergColumns:
    """The columns of one version of a table.

    Attributes
    ----------
    schema
        The schema, as pyiceberg has it.
    types
        Spark's names of the types by column; None for one that Spark does not read.
    ids
        The identity of each column as recorded by indexes, keyed by its lasting name in lower case.
    fields
        The lasting names and the fields, of columns and in structs, by the id of the struct (or None) and the name now.
    differ_in_files
        True if files may lack ids, because the table maps names to ids, or may hold floats in a column of doubles.
    """

    schema: Any
    types: Mapping[str, str | None]
    ids: Mapping[str, str]
    fields: Mapping[tuple[int | None, str], tuple[str, Any]]
    differ_in_files: bool

    @classmethod
    def of(cls, table: Any, files: Sequence[Any] = ()) -> IcebergColumns:
        """Create the columns of a table that pyiceberg has loaded, with its data files."""
        names = _Names(table.metadata.schemas)
        schema, mapping = table.schema(), table.name_mapping()
        mapped = {each.field_id: str(each) for each in (mapping or ())} if mapping is not None else {}
        ids: dict[str, str] = {}
        for column in schema.fields:
            name = names.lasting_name(column, None).lower()
            inner = _inner_fields(column.field_type)
            text = f"{column.field_id}{' ' + names.ids(column) if inner else ''}"
            if column.field_id in mapped:
                text += f" in files as {mapped[column.field_id]}"
            ids[name] = ids.get(name, "") + f"{text} of {table.metadata.table_uuid}"
        return cls(
            schema,
            {column.name: spark_type(column.field_type) for column in schema.fields},
            ids,
            {key: (names.lasting_name(each, key[0]), each) for key, each in _structs(schema.fields, None)},
            mapping is not None or _may_have_floats(files, schema.fields),
        )

    def rename_columns(self, predicate: Predicate) -> Predicate:
        """Replace column names by lasting names; an unknown column gets a name that no index has."""

        def rename(node: Predicate) -> Predicate:
            return self._lasting_column(node) if isinstance(node, Column) else node

        return transform(predicate, rename)

    def _lasting_column(self, column: Column) -> Column:
        above: int | None = None
        parts, kind = [], None
        for part in parts_of_name(column.name):
            if (above, part) not in self.fields:
                return Column(f"{column.name} is no column#", column.type)
            name, found = self.fields[above, part]
            parts.append(quote_if_needed(name))
            above, kind = found.field_id, found.field_type
        return Column(".".join(parts), column.type or spark_type(kind))

    def reason_unusable(self, entry: IndexEntry, named: Predicate) -> str | None:
        """Reason why an index does not cover the current columns, by ids and types, or None.

        ``named`` is the condition with lasting names.
        """
        for name, value in entry.depends.items():
            column = name.removeprefix(ID_OF)
            if name.startswith(ID_OF) and self.ids.get(column) != value:
                return f"{column} is another column now, or has other fields"
        read = {vertex.name: vertex.type for vertex in walk(named) if isinstance(vertex, Column)}
        for name, kind in entry.columns:
            if read.get(name, kind) != kind:
                return f"it was built over {name} as {kind}, the table has {read[name]} now"
        return None

    def arrow(self) -> pa.Schema:
        """The columns as a schema of Arrow."""
        module = import_module("pyiceberg.io.pyarrow")
        found: pa.Schema = module.schema_to_pyarrow(self.schema, include_field_ids=False)
        return found

    def refuse_files(self, paths: Sequence[str], caller: str, *, by_id: bool = False) -> None:
        """Raise InvalidSpecificationError if a reader that matches columns by name would misread a file.

        Parameters
        ----------
        paths, caller
            The files, and the reader's name.
        by_id
            True for DuckDB, which matches columns by id but struct fields by name, and compares a float column of a
            file with constants rounded to floats.
        """
        names = {each.field_id: each.name for each in self.schema.fields}
        with ThreadPoolExecutor(_THREADS) as pool:
            for path, schema in zip(paths, pool.map(pq.read_schema, paths), strict=True):
                inside = list(schema)
                if by_id:
                    inside = [each.with_name(names.get(_id(each), each.name)) for each in inside
                              if _id(each) in names or _id(each) < 0]  # fmt: skip
                if (why := _difference(self.schema.fields, inside, by_id)) is not None:
                    raise InvalidSpecificationError(
                        f"{caller} finds the columns of files by their names, and {path} is not as its table of "
                        f"Iceberg is now: {why}; read it by geoskip.scan_polars() or through Spark, or rewrite it "
                        "with rewrite_data_files"
                    )


def _may_have_floats(files: Sequence[Any], fields: Sequence[Any]) -> bool:
    """Test whether a column of doubles may hold floats in some file: its lower bound there is not 8 bytes."""
    doubles = [each.field_id for each in fields if str(each.field_type) == "double"]
    return any(len((file.lower_bounds or {}).get(each, b"")) != 8 for each in doubles for file in files)


def _difference(fields: Sequence[Any], inside: Sequence[pa.Field], by_id: bool) -> str | None:
    by_name = {each.name.lower(): each for each in inside}
    for each in fields:
        there = by_name.pop(each.name.lower(), None)
        if there is None and (each.initial_default is not None or each.required):
            return f"it has no column {each.name}"
        if there is None:
            continue
        number = _id(there)
        if number != each.field_id or there.name != each.name:
            return f"its column {there.name} is {'without a field id' if number < 0 else 'another one of this name'}"
        if by_id and str(each.field_type) == "double" and pa.types.is_float32(there.type):
            return f"its column {there.name} is of floats, in the table of doubles"
        inner = _inner_fields(each.field_type)
        if inner and (why := _difference(inner, _arrow_fields(there.type), by_id)) is not None:
            return f"{why} in {each.name}"
    ids = {each.field_id for each in fields}
    for left in by_name.values():
        if _id(left) < 0:
            return f"its column {left.name} is without a field id"
        if _id(left) in ids:
            return f"its column {left.name} has another name in the table"
    return None


def _id(column: pa.Field) -> int:
    """The field id of a column in a file; -1 if it has none."""
    return int((column.metadata or {}).get(_ID, -1))


def _arrow_fields(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested Arrow type, with Iceberg's names for those of lists and maps."""
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if pa.types.is_struct(kind):
        return [kind.field(number) for number in range(kind.num_fields)]
    return [kind.value_field.with_name("element")] if hasattr(kind, "value_field") else []


def _inner_fields(kind: Any) -> Sequence[Any]:
    """The fields of a nested Iceberg type; empty for a primitive type."""
    found: Sequence[Any] = kind.fields if kind.is_struct else ()
    inside = (getattr(kind, name, None) for name in ("element_field", "key_field", "value_field"))
    return found or [each for each in inside if each is not None]


def _structs(fields: Sequence[Any], above: int | None) -> Iterator[tuple[tuple[int | None, str], Any]]:
    """Columns and struct fields, each with the id of its struct (None for a column) and its name."""
    for each in fields:
        yield (above, each.name), each
        if each.field_type.is_struct:
            yield from _structs(each.field_type.fields, each.field_id)


class _Names:
    """First names of columns and fields, collected from all schemas of a table."""

    def __init__(self, schemas: Iterable[Any]) -> None:
        self.first: dict[int, str] = {}
        self.taken: dict[tuple[int | None, str], int] = {}
        for schema in sorted(schemas, key=lambda each: each.schema_id):
            for (above, name), each in _structs(schema.fields, None):
                first = self.first.setdefault(each.field_id, name)
                key = (above, first.lower())
                self.taken[key] = min(each.field_id, self.taken.get(key, each.field_id))

    def lasting_name(self, each: Any, above: int | None) -> str:
        first = self.first.get(each.field_id, each.name)
        owner = self.taken.get((above, first.lower()), each.field_id)
        return first if owner == each.field_id and "#" not in first else f"{first}#{each.field_id}"

    def ids(self, above: Any) -> str:
        """The ids of the fields nested in a column, with their lasting names."""
        parts = []
        for each in _inner_fields(above.field_type):
            inner = f"({self.ids(each)})" if _inner_fields(each.field_type) else ""
            parts.append(f"{each.field_id}={self.lasting_name(each, above.field_id)}{inner}")
        return " ".join(parts)
