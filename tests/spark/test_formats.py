"""Every format that Spark's own readers know: indexed, queried with geoskip on and off, and read in another way."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.errors import InvalidSpecificationError
from geoskip.spark import st_functions
from tests.conftest import executed_files, files_kept, same_as_off

pytestmark = pytest.mark.spark

SCHEMA = "id int, name string, at timestamp"
ROWS = [[(n, f"n{n}", f"2024-01-0{n} 0{n}:00:00") for n in range(first, first + 3)] for first in (1, 4, 7)]


def csv_text(rows: list[Any], header: bool = False, sep: str = ",") -> str:
    lines = [sep.join(map(str, row)) for row in rows]
    return "\n".join([*(["id,name,at"] if header else []), *lines]) + "\n"


def json_text(rows: list[Any]) -> str:
    return "\n".join(f'{{"id": {i}, "name": "{name}", "at": "{at}"}}' for i, name, at in rows)


def json_array(rows: list[Any]) -> str:
    return "[\n" + ",\n".join(json_text([row]).replace(", ", ",\n ") for row in rows) + "\n]"


# format, what a file holds, its name's end, reader options; the same read in ways that may not meet the metadata
TEXTS: dict[str, tuple[str, Callable[[list[Any]], str], str, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "csv": ("csv", csv_text, ".csv", {"schema": SCHEMA}, {"sep": {"sep": "0"}, "nullValue": {"nullValue": "8"}}),
    "csv with a header": (
        "csv",
        lambda rows: csv_text(rows, header=True),
        ".csv",
        {"schema": SCHEMA, "header": True},
        {"timeZone": {"timeZone": "America/New_York"}, "mode": {"mode": "FAILFAST"}},
    ),
    "csv inferred": (
        "csv",
        lambda rows: csv_text(rows, header=True),
        ".csv",
        {"header": True, "inferSchema": True},
        {"dateFormat": {"timestampFormat": "yyyy-dd-MM HH:mm:ss"}},
    ),
    "csv compressed": ("csv", csv_text, ".csv.gz", {"schema": SCHEMA}, {"comment": {"comment": "7"}}),
    "csv of several lines": (
        "csv",
        lambda rows: csv_text([(i, f'"{name}\nand more"', at) for i, name, at in rows]),
        ".csv",
        {"schema": SCHEMA, "multiLine": True},
        {"one line": {"multiLine": False}},
    ),
    "json": ("json", json_text, ".json", {"schema": SCHEMA}, {"zone": {"timeZone": "Asia/Tokyo"}}),
    "json inferred": ("json", json_text, ".json", {}, {"strings": {"primitivesAsString": True}}),
    "json compressed": ("json", json_text, ".json.gz", {"schema": SCHEMA}, {"comments": {"allowComments": True}}),
    "json of several lines": (
        "json",
        json_array,
        ".json",
        {"schema": SCHEMA, "multiLine": True},
        {"quotes": {"allowSingleQuotes": False}},
    ),
}


def reader(spark: Any, place: Path, kind: str, options: dict[str, Any]) -> Callable[[], Any]:
    def read() -> Any:
        rest = dict(options)
        source = spark.read.format(kind)
        if "schema" in rest:
            source = source.schema(rest.pop("schema"))
        return source.options(**rest).load(str(place))

    return read


@pytest.mark.slow
@pytest.mark.parametrize("case", TEXTS)
def test_text_formats(spark: Any, tmp_path: Path, case: str) -> None:
    kind, text, end, options, others = TEXTS[case]
    for number, rows in enumerate(ROWS):
        data = text(rows).encode()
        (tmp_path / f"{number}{end}").write_bytes(gzip.compress(data) if end.endswith(".gz") else data)
    report = geoskip.dataset(spark, str(tmp_path), format=kind, **options).create_index(MinMax("id"), MinMax("at"))
    assert (report.files, report.rows, set(report.readers.values())) == (3, 9, {"spark"})
    read = reader(spark, tmp_path, kind, options)
    instant = "at > '2024-01-07 08:00:00'" if case == "json inferred" else "at > timestamp'2024-01-07 08:00:00'"
    assert files_kept(read(), ["id = 8", instant]) == {"id = 8": 1, instant: 1}
    shouted = {name: str(value).upper() if isinstance(value, bool) else value for name, value in options.items()}
    assert geoskip.explain(reader(spark, tmp_path, kind, shouted)().where("id = 8")).files_kept == 1
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        other_zone = geoskip.explain(read().where("id = 8"))
        assert other_zone.files_kept == 3
        assert "session.timeZone=UTC" in str(other_zone)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for changed in others.values():
        report = geoskip.explain(reader(spark, tmp_path, kind, {**options, **changed})().where("id = 8"))
        assert report.files_kept == 3
        assert "is not used" in str(report) or "primitivesAsString" in changed


def test_a_csv_schema_is_by_position(spark: Any, tmp_path: Path) -> None:
    for number, rows in enumerate(ROWS):
        (tmp_path / f"{number}.csv").write_text(csv_text(rows))
    geoskip.dataset(spark, str(tmp_path), format="csv", schema=SCHEMA).create_index(MinMax("id"))
    for schema, kept in {
        "id int": 1,
        "id int, name string, at timestamp, more string": 1,
        "name string, id int, at timestamp": 3,
        "id long, name string": 3,
        "ID int, name string": 1,
    }.items():
        read = reader(spark, tmp_path, "csv", {"schema": schema})
        assert same_as_off(lambda read=read: read().where("id = 8")).files_kept == kept, schema


def test_json_fields_are_found_by_the_case_of_their_names(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(f'{{"a": {number}, "s": {{"x": {number}}}}}\n')
    geoskip.dataset(spark, str(tmp_path), format="json").create_index(MinMax("A"), MinMax("s.x"))
    for schema, kept in {"a int": 3, "a long": 0, "A long": 3}.items():
        read = reader(spark, tmp_path, "json", {"schema": schema})
        assert same_as_off(lambda read=read: read().where("a IS NULL")).files_kept == kept, schema
    for schema, kept in {"s struct<x: long>": 1, "s struct<X: long>": 3, "S struct<x: long>": 3}.items():
        read = reader(spark, tmp_path, "json", {"schema": schema})
        assert same_as_off(lambda read=read: read().where("coalesce(s.x, 1) = 1")).files_kept == kept, schema


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "orc"])
def test_each_index_knows_the_place_of_its_columns(spark: Any, tmp_path: Path, kind: str) -> None:
    """A handle with another schema adds an index; those of before stay those of the old places."""
    for number in (1, 2):
        rows = spark.createDataFrame([(number, number * 100)], "_col0 int, _col1 int")
        rows.coalesce(1).write.format(kind).mode("append").save(str(tmp_path))
    handles = [("a int, b int", "a"), ("b int, a int", "b"), ("b int", "b")]
    for schema, column in handles if kind == "csv" else handles[:2]:  # ORC has no name for what is left over
        geoskip.dataset(spark, str(tmp_path), format=kind, schema=schema).create_index(MinMax(column))
        read = spark.read.format(kind).schema("b int, a int").load(str(tmp_path))
        assert same_as_off(lambda read=read: read.where("a = 200")).files_kept == 2
    assert same_as_off(lambda: read.where("b = 2")).files_kept == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_the_column_of_corrupt_records_is_declined(spark: Any, tmp_path: Path, kind: str) -> None:
    """A record whose b is no number is corrupt to queries that read b, and to no others."""
    for number, value in enumerate(("1", '"x"', "3")):
        text = f'{{"a": {number}, "b": {value}}}' if kind == "json" else f"{number},{value}"
        (tmp_path / f"{number}.{kind}").write_text(text + "\n")
    handle = geoskip.dataset(spark, str(tmp_path), format=kind, schema="a int, b int, _corrupt_record string")
    for text in ("_corrupt_record", "length(_corrupt_record)"):
        with pytest.raises(InvalidSpecificationError, match="could not be parsed"):
            handle.create_index(MinMax(text))
    handle.create_index(MinMax("a"))
    assert same_as_off(lambda: handle.to_df().where("_corrupt_record IS NOT NULL")).files_kept == 3
    assert same_as_off(lambda: handle.to_df().where("a = 1")).files_kept == 1
    schema = "a int, b int, bad string"
    bad = geoskip.dataset(spark, str(tmp_path), format=kind, schema=schema, metadata=str(tmp_path / "_bad"))
    bad.use_metadata()
    bad.create_index(MinMax("bad"))  # as long as it is a column of the data
    spark.conf.set("spark.sql.columnNameOfCorruptRecord", "bad")
    try:
        assert same_as_off(lambda: bad.to_df().where("bad IS NOT NULL")).files_kept == 3
    finally:
        spark.conf.unset("spark.sql.columnNameOfCorruptRecord")


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        '{"id": 2, "name": {"x": tru}}',
        '{"name": [tru], "id": 2}',
        '{"name": {"id": 2, "x": .}, "id": 2}',
        '{"id": 2, "at": "never"}',
        '{"id": "4"}',
        '{"id": 5.5}',
        '{"id": 2',
        "{}",
    ],
)
def test_malformed_rows_of_json(spark: Any, tmp_path: Path, line: str) -> None:
    """What is read of a record that is no JSON depends on the columns read: Spark goes on after one that it read."""
    for number, text in enumerate((line, '{"id": 1}', '{"id": 3}')):
        (tmp_path / f"{number}.json").write_text(text + "\n")
    handle = geoskip.dataset(spark, str(tmp_path), format="json", schema=SCHEMA)
    report = handle.create_index(MinMax("id"))
    assert len(report.excluded) == (line.count("tru") + line.count(".}") + ("}" not in line))
    for where in ("id = 2", "id IS NULL", "id = 1 OR at IS NULL", "id IS NULL AND name IS NULL"):
        assert same_as_off(lambda where=where: handle.to_df().where(where)).files_kept < 3 or "at IS" in where


def test_json_whose_rows_depend_on_the_columns_read_is_declined(spark: Any, tmp_path: Path) -> None:
    """Without partial results a bad value hides the rest of an array's records; one of a map shows its keys."""
    lines = ('[{"a": 1, "b": "x"}, {"a": 2, "b": 3}]', '{"a": 1, "m": {"k": "x", "a": 9}}', '{"a": 5, "b": 6}')
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.json").write_text(line + "\n")
    plain, mapped = "a int, b int", "a int, m map<string, int>"
    geoskip.dataset(spark, str(tmp_path), format="json", schema=plain).create_index(MinMax("a"), MinMax("b"))
    read = spark.read.schema(mapped).json(str(tmp_path))
    assert "with maps" in str(same_as_off(lambda: read.where("a = 9")))
    with pytest.raises(InvalidSpecificationError, match="with maps"):
        geoskip.dataset(spark, str(tmp_path), format="json", schema=mapped)
    spark.conf.set("spark.sql.json.enablePartialResults", "false")
    try:
        read = spark.read.schema(plain).json(str(tmp_path))
        assert "depend on the columns" in str(same_as_off(lambda: read.where("a = 2").select("a")))
        with pytest.raises(InvalidSpecificationError, match="depend on the columns"):
            geoskip.dataset(spark, str(tmp_path), format="json", schema=plain)
    finally:
        spark.conf.unset("spark.sql.json.enablePartialResults")


def test_texts_of_json_that_are_too_long(spark: Any, tmp_path: Path) -> None:
    """A record with one is NULL to queries that read the text, and to no others."""
    for number, length in enumerate((1, 20_100_000)):
        (tmp_path / f"{number}.json").write_text(f'{{"a": {number}, "b": "{"x" * length}", "c": 5}}\n')
    schema = "a int, b string, c int"
    with pytest.raises(InvalidSpecificationError, match="maxStringLen=99"):
        geoskip.dataset(spark, str(tmp_path), format="json", schema=schema, maxStringLen=99)
    handle = geoskip.dataset(spark, str(tmp_path), format="json", schema=schema)
    assert [*handle.create_index(MinMax("c"), MinMax("length(b)")).excluded] == ["1.json"]
    assert same_as_off(lambda: handle.to_df().where("c = 5").select("c")).files_kept == 2
    assert same_as_off(lambda: handle.to_df().where("c = 6")).files_kept == 1
    geoskip.dataset(spark, str(tmp_path), format="json", schema=schema, maxStringLen=10**9)


def test_json_nested_deeper_than_a_limit(spark: Any, tmp_path: Path) -> None:
    """Of a record with a value that is nested too deeply Spark may read what precedes it, or nothing."""
    for number, (inner, depth) in enumerate(((1, 1), (1, 1001), ('"[\\"["', 1))):
        value = "[" * depth + f"{inner}" + "]" * depth
        (tmp_path / f"{number}.json").write_text(f'{{"a": {number}, "b": {{"y": {value}}}, "c": "x"}}\n')
    schema = "a int, b string, c int"
    for name in ("maxNestingDepth", "maxNumLen"):
        with pytest.raises(InvalidSpecificationError, match=f"{name}=2"):
            geoskip.dataset(spark, str(tmp_path), format="json", schema=schema, **{name: 2})
    handle = geoskip.dataset(spark, str(tmp_path), format="json", schema=schema)
    assert [*handle.create_index(MinMax("a"), MinMax("c")).excluded] == ["1.json"]
    assert same_as_off(lambda: handle.to_df().where("a = 1")).files_kept == 1


def test_text(spark: Any, tmp_path: Path) -> None:
    for number, line in enumerate(("apple\nbanana", "cherry", "zebra\nyak")):
        (tmp_path / f"{number}.txt").write_text(line)
    geoskip.dataset(spark, str(tmp_path), format="text").create_index(MinMax("value"))
    assert same_as_off(lambda: spark.read.text(str(tmp_path)).where("value = 'cherry'")).files_kept == 1
    assert same_as_off(lambda: spark.read.text(str(tmp_path)).where("value LIKE 'z%'")).files_kept == 1
    whole = same_as_off(lambda: spark.read.text(str(tmp_path), wholetext=True).where("value = 'yak'"))
    assert whole.files_kept == 3


def orc(spark: Any, place: Path) -> Callable[[], Any]:
    place.mkdir()
    for number in range(3):
        table = pa.table(
            {
                "a": pa.array([number * 10, None], pa.int32()),
                "at": pa.array([dt.datetime(2024, 1, 1 + number), None], pa.timestamp("us")),
                "x": [float(number), float("nan")],
                "nested": [{"f": number}, None],
            }
        )
        pa.orc.write_table(table, str(place / f"{number}.orc"))
    return lambda: spark.read.orc(str(place))


def test_orc(spark: Any, tmp_path: Path) -> None:
    read = orc(spark, tmp_path / "data")
    handle = geoskip.dataset(spark, str(tmp_path / "data"), format="orc")
    report = handle.create_index(MinMax("a"), MinMax("at"), MinMax("x"), MinMax("nested.f"), GeoBox("x", "a"))
    assert (report.files, report.rows) == (3, 6)
    kept = {"a = 20": 1, "nested.f = 1": 1, "x < 1": 1, "x > 1e9": 3, "a IS NULL": 3, "at < timestamp'2024-01-02'": 1}
    assert files_kept(read(), kept) == kept


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "garbage": lambda data: bytes(range(256)) * 4,
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "damage"), [("orc", "truncated"), ("csv.gz", "garbage"), ("json.gz", "truncated")])
def test_an_unreadable_file_is_left_out(spark: Any, tmp_path: Path, kind: str, damage: str) -> None:
    if kind == "orc":
        orc(spark, tmp_path / "data")
        options: dict[str, Any] = {"format": "orc", "schema": "a int"}
    else:
        (tmp_path / "data").mkdir()
        for number in range(3):
            lines = "\n".join(f'{{"a": {number * 10}, "b": {n * 7919 % 9999}}}' for n in range(3000))
            text = lines if "json" in kind else "\n".join(f"{number * 10},{n * 7919 % 9999}" for n in range(3000))
            (tmp_path / "data" / f"{number}.{kind}").write_bytes(gzip.compress(text.encode()))
        options = {"format": kind[:-3], "schema": "a int, b int", "ignoreCorruptFiles": True}
    victim = tmp_path / "data" / f"1.{kind}"
    victim.write_bytes(DAMAGE[damage](victim.read_bytes()))
    handle = geoskip.dataset(spark, str(tmp_path / "data"), **options)
    report = handle.create_index(MinMax("a"))
    assert list(report.excluded) == [victim.name], report
    assert report.excluded[victim.name].startswith("unreadable: ")
    assert report.files == 2
    frame = handle.to_df().where("a > 15")
    if "ignoreCorruptFiles" in options:
        same_as_off(lambda: handle.to_df().where("a > 15"))
        assert executed_files(frame) in (0, 2)


# --- GeoParquet, through Sedona ---------------------------------------------------------------------------------------


@pytest.fixture
def with_sedona(spark: Any) -> Any:
    if not st_functions.is_there(spark):
        pytest.skip("Sedona has no release for this Spark")
    return spark


@pytest.mark.slow
def test_geoparquet_through_sedonas_reader(with_sedona: Any, tmp_path: Path) -> None:
    spark, place = with_sedona, str(tmp_path / "data")
    points = spark.sql("SELECT id, ST_Point(id % 10 + 0.5D, floor(id / 10) + 0.5D) AS g FROM range(100)")
    points.repartitionByRange(8, "id").write.format("geoparquet").save(place)
    handle = geoskip.dataset(spark, place, format="geoparquet")
    report = handle.create_index(GeoBox("g"), MinMax("id"), MinMax("ST_X(g)"))
    assert (report.files, set(report.readers.values())) == (8, {"spark"})
    window = "ST_GeomFromText('POLYGON((0 0, 3 0, 3 1, 0 1, 0 0))')"
    most = {
        f"ST_Intersects(g, {window})": 2,
        f"ST_Contains({window}, g) AND id >= 0": 2,
        "id > 95": 1,
        "ST_X(g) > 100": 0,
        "ST_Distance(g, ST_Point(0.5, 0.5)) < 0.1": 2,
        f"NOT ST_Intersects(g, {window})": 8,
    }
    found = files_kept(spark.read.format("geoparquet").load(place), most)
    assert {where: kept for where, kept in found.items() if kept > most[where]} == {}


def test_geoparquet_read_as_parquet_is_another_reader(with_sedona: Any, tmp_path: Path) -> None:
    spark, place = with_sedona, str(tmp_path / "data")
    spark.sql("SELECT id, ST_Point(id, id) AS g FROM range(4)").write.format("geoparquet").save(place)
    geoskip.dataset(spark, place, format="geoparquet").create_index(MinMax("id"))
    report = same_as_off(lambda: spark.read.parquet(place).where("id > 100"))
    assert report.files_kept == report.files_total
    assert "built over GeoParquetFileFormat" in str(report)


def test_other_formats_are_refused_with_what_is_known(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"1")
    with pytest.raises(InvalidSpecificationError, match="BinaryFileFormat"):
        geoskip.dataset(spark, str(tmp_path), format="binaryFile")
