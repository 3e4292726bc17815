"""What makes an index unusable: any difference between its build and a query that can change a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from geoskip.indexes.base import SourceColumn, definition
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import Header, IndexEntry
from geoskip.predicates import Call, Cast, Column, Comparison, IsNull, Literal, Predicate
from geoskip.sources.dependencies import (
    DEFAULT_OF,
    DEFINITION_OF,
    ID_OF,
    Reader,
    depends_on,
    reason_unusable,
    reasons_of_functions,
    reasons_of_types,
    renamer,
)
from geoskip.sources.settings import CHANGED

A, TIME = Column("a", "bigint"), Column("a", "timestamp")
UPPER = Call("upper", (Column("a", "string"),), "x.Upper", (), "string")
PYTHON = Call("f", (A,), "python:m.f#1", (), "bigint")
OF_TIMES = Call("f", (TIME,), "python:m.f#1", (), "bigint")
ZONED = Cast(A, "timestamp", zone="UTC")
SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "the JVM's time zone": "UTC",
    "spark.version": "4.0.0",
    "java.version": "17",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt",
}


def reader(kind: str, *names: str, options: Mapping[str, str] | None = None) -> Reader:
    """A reader of files with some columns."""
    schema = {"type": "struct", "fields": [{"name": name, "type": "long"} for name in names or ("b", "a", "c")]}
    return Reader(f"org.x.{kind}FileFormat", options or {}, SETTINGS, json.dumps(schema))


def header_of(built: Reader, *expressions: Predicate, root: str = "file:/data") -> Header:
    index = MinMax("a").bind(expressions)
    arrow = index.metadata_type(SourceColumn("a", "bigint", pa.int64()))
    depends = depends_on(expressions, built) | {DEFINITION_OF + index.kind: definition(index)}
    source = {"class": built.file_format, "options": built.options, "schema": built.schema}
    return Header(root, source, (IndexEntry(index, (("a", "bigint"),), arrow, depends),))


def request_of(read: Reader) -> dict[str, object]:
    return {"format": read.file_format, "options": read.options, "settings": read.settings, "schema": read.schema}


def reason(built: Reader, read: Reader, expression: Predicate = A) -> str | None:
    header = header_of(built, expression)
    return reason_unusable("file:/data", header, header.entries[0], request_of(read))


def with_settings(read: Reader, settings: Mapping[str, str]) -> Reader:
    return replace(read, settings={**read.settings, **settings})


PARQUET, ORC, CSV, JSON, AVRO = (reader(kind) for kind in ("Parquet", "Orc", "CSV", "Json", "Avro"))
LEGACY = {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY", "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY"}
INT96 = {"spark.sql.parquet.int96TimestampConversion": "true"}
ZONE, JVM_ZONE = {"spark.sql.session.timeZone": "Europe/Rome"}, {"the JVM's time zone": "Europe/Rome"}
JAVA, VERSION = {"java.version": "21"}, {"spark.version": "4.1.0"}
DEFAULT = {DEFAULT_OF + "a": "5"}


@pytest.mark.parametrize("expression", [A, TIME, UPPER, PYTHON, ZONED], ids=str)
@pytest.mark.parametrize("same", [PARQUET, ORC, CSV, JSON, AVRO], ids=lambda one: one.file_format)
def test_under_the_same_conditions_an_index_is_used(same: Reader, expression: Predicate) -> None:
    assert reason(same, same, expression) is None


@pytest.mark.parametrize(
    ("read", "expression", "changed"),
    [
        (PARQUET, A, {"spark.sql.caseSensitive": "true"}),
        (PARQUET, A, {ID_OF + "a": "7"}),
        (PARQUET, A, DEFAULT),
        (PARQUET, A, {"spark.sql.parquet.binaryAsString": "true"}),
        (PARQUET, TIME, {"spark.sql.parquet.int96RebaseModeInRead": "LEGACY"}),
        (with_settings(PARQUET, LEGACY), TIME, JVM_ZONE),
        (replace(PARQUET, options={"datetimeRebaseMode": "legacy"}), TIME, JVM_ZONE),
        (with_settings(PARQUET, INT96), TIME, ZONE),
        (with_settings(PARQUET, DEFAULT), A, ZONE),
        (with_settings(PARQUET, DEFAULT), A, VERSION),
        (PARQUET, UPPER, VERSION),
        (PARQUET, UPPER, JAVA),
        (PARQUET, ZONED, JAVA),
        (PARQUET, UPPER, {CHANGED: '{"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}'}),
        (PARQUET, PYTHON, {CHANGED: '{"spark.sql.execution.pythonUDF.arrow.enabled": "true"}'}),
        (PARQUET, OF_TIMES, ZONE),
        (PARQUET, OF_TIMES, JVM_ZONE),
        (ORC, A, {"orc.force.positional.evolution": "true"}),
        (ORC, A, {CHANGED: '{"spark.sql.orc.impl": "hive"}'}),
        (ORC, TIME, JVM_ZONE),
        (ORC, TIME, {"orc.proleptic.gregorian": "true"}),
        (AVRO, A, {"avro.mapred.ignore.inputs.without.extension": "true"}),
        (with_settings(AVRO, LEGACY), A, JVM_ZONE),
        (CSV, A, ZONE),
        (CSV, A, VERSION),
        (CSV, A, {"mapreduce.input.linerecordreader.line.maxlength": "100"}),
    ],
    ids=lambda given: given.file_format if isinstance(given, Reader) else str(given),
)
def test_another_setting_makes_an_index_unusable(
    read: Reader, expression: Predicate, changed: Mapping[str, str]
) -> None:
    other = with_settings(read, changed)
    assert reason(read, read, expression) is None
    assert reason(read, other, expression) is not None
    header = header_of(read, expression)
    elsewhere = request_of(read) | {"reading": other.settings}  # another session reads the files
    assert "another session" in (reason_unusable("file:/data", header, header.entries[0], elsewhere) or "")


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        (A, ZONE | JVM_ZONE | JAVA | VERSION | INT96 | LEGACY),
        (A, {CHANGED: '{"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}', DEFAULT_OF + "b": "5"}),
        (A, {"spark.sql.caseSensitive": "FALSE"}),
        (TIME, ZONE | JVM_ZONE | JAVA | VERSION),
        (UPPER, ZONE | JVM_ZONE),
        (PYTHON, ZONE | JVM_ZONE | JAVA),
    ],
    ids=str,
)
def test_settings_that_change_no_value_leave_an_index_usable(expression: Predicate, changed: Mapping[str, str]) -> None:
    assert reason(PARQUET, with_settings(PARQUET, changed), expression) is None


@pytest.mark.parametrize(
    ("built", "read", "why"),
    [
        (PARQUET, ORC, "built over ParquetFileFormat"),
        (CSV, reader("CSV", options={"header": "true"}), "reader options"),
        (reader("Avro", options={"avroSchema": "{}"}), AVRO, "reader options"),
        (PARQUET, reader("Parquet", options={"int96RebaseMode": "LEGACY"}), "reader options"),
        (ORC, reader("Orc", options={"orc.proleptic.gregorian": "true"}), "reader options"),
        (CSV, reader("CSV", "x", "b", "a", "c"), "another place"),
        (CSV, reader("CSV", "x", "a", "c"), "another place"),
        (CSV, reader("CSV", "b", "a", "x"), "the column c where"),
        (reader("CSV", "b", "a", "C"), reader("CSV", "b", "a", "c"), None),
        (CSV, reader("CSV", "b", "a"), None),
        (ORC, reader("Orc", "a", "b", "c"), "another place"),
        (with_settings(ORC, {"orc.force.positional.evolution": "true"}), ORC, "orc.force.positional.evolution"),
        (ORC, reader("Orc", "b", "A", "x"), None),
        (PARQUET, reader("Parquet", "a", "x", options={"mergeSchema": "true"}), None),
        (CSV, reader("CSV", options={"HEADER": "False", "inferSchema": "true"}), None),
        (*[reader("CSV", options={"mode": "dropMalformed"})] * 2, "DROPMALFORMED"),
        (*[reader("CSV", options={"sep": "||"})] * 2, "separator"),
        (*[reader("Json", options={"maxNumLen": "999"})] * 2, "maxNumLen"),
        (*[reader("Json", options={"maxNumLen": "1000"})] * 2, None),
        (*[with_settings(JSON, {"spark.sql.json.enablePartialResults": "false"})] * 2, "enablePartialResults"),
        (*[reader("Avro", options={"avroSchemaUrl": "x"})] * 2, "avroSchemaUrl"),
        (*[reader("Avro", options={"positionalFieldMatching": "True"})] * 2, "by their position"),
        (*[reader("Orc", options={"orc.force.positional.evolution": "true"})] * 2, "by their position"),
        (*[reader("Json", options={"columnNameOfCorruptRecord": "A"})] * 2, "what A holds"),
        (*[reader("Parquet", options={"columnNameOfCorruptRecord": "A"})] * 2, None),
    ],
)
def test_what_else_differs_from_the_build(built: Reader, read: Reader, why: str | None) -> None:
    found = reason(built, read)
    assert found is None if why is None else why in (found or "")


def test_names_that_differ_by_case_under_case_sensitivity() -> None:
    one, other = (with_settings(reader("CSV", "b", "a", c), {"spark.sql.caseSensitive": "true"}) for c in "cC")
    assert "the column c where" in (reason(one, other) or "")


@pytest.mark.parametrize("kind", ["Parquet", "Orc"])
def test_a_struct_of_parquet_that_is_tested_for_null(kind: str) -> None:
    struct = Column("a", "struct<x:int>")
    elements = Call("getarraystructfields", (Column("a", "array<struct<x:int>>"),), "x.G", (), "array<int>")
    one = Call("element_at", (elements, Literal(1, "int")), "x.E", (), "int")
    size = Call("size", (elements,), "x.S", (), "int")
    found = [reason(reader(kind), reader(kind), each) is None for each in (IsNull(struct), size, IsNull(A), one)]
    assert found == [kind != "Parquet", kind != "Parquet", True, True]


def test_data_that_were_moved(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    header = header_of(PARQUET, A, root=f"file:{tmp_path}/data")
    roots = (f"file:{tmp_path}/data", f"file:{tmp_path}/link", f"file:{tmp_path}", "s3a://bucket/data")
    found = [reason_unusable(root, header, header.entries[0], request_of(PARQUET)) is None for root in roots]
    assert found == [True, True, False, False]


def test_another_definition_of_the_type_and_an_index_that_is_not_here() -> None:
    header = header_of(PARQUET, A)
    [entry] = header.entries
    other = replace(entry, depends={**entry.depends, DEFINITION_OF + "minmax": "version:0"})
    assert "another definition" in (reason_unusable("file:/data", header, other, request_of(PARQUET)) or "")

    @dataclass(frozen=True)
    class Absent(MinMax):
        def unavailable(self) -> str | None:
            return "no library"

    absent = replace(entry, index=Absent("a").bind([A]))
    assert reason_unusable("file:/data", header, absent, request_of(PARQUET)) == "no library"


def test_columns_read_as_another_type_and_functions_of_another_version() -> None:
    header = header_of(PARQUET, PYTHON)
    other = replace(PYTHON, implementation="python:m.f#2")
    types = ("bigint", "int")
    retyped = [len([*reasons_of_types(header, Comparison("=", Column("a", t), Literal(1, t)))]) for t in types]
    changed = [len([*reasons_of_functions(header, Comparison("=", f, Literal(1, "bigint")))]) for f in (PYTHON, other)]
    assert (retyped, changed) == ([0, 1], [0, 1])
    builtin = replace(PYTHON, implementation="x.F")  # of Spark, not in Python
    assert [*reasons_of_functions(header_of(PARQUET, other), builtin)] == []


def test_fields_of_json_are_found_by_their_exact_names() -> None:
    sensitive = with_settings(PARQUET, {"spark.sql.caseSensitive": "true"})
    found = [renamer(header_of(one, A), request_of(one))("A") for one in (PARQUET, JSON, sensitive)]
    assert found == ["a", "A", "A"]
