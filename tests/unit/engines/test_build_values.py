"""geoskip.build: the values of files of all types, as Spark reads them, and those of functions."""

from __future__ import annotations

import datetime as dt
import json
import struct
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import geoskip
from geoskip import BloomFilter, Formatted, GeoBox, MinMax, ValueList
from geoskip.engines.parquet_values import NeedsSpark, call_function, read_values
from geoskip.errors import InvalidSpecificationError, UnknownColumnError
from geoskip.predicates import Call, Column
from geoskip.sources.arrow_reader import read_files
from geoskip.sources.footers import IndexPlan
from tests.support.indexed_files import write_files
from tests.support.strategies import examples
from tests.unit.engines.test_build import bounds, build_one, summaries
from udf_mappings import PlainFunction


def test_fields_of_structs_are_null_where_the_struct_is(tmp_path: Path) -> None:
    rows = [{"in": {"X": 5}}, None, {"in": None}, {"in": {"X": None}}, {"in": {"X": -3}}]
    found = build_one(tmp_path / "d", pa.table({"s": rows}), MinMax("s.in.x"))
    assert (*bounds(found), found["nulls"]) == (-3, 5, 3)


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"n": [1], "S": [{"x": 1}]}), "b.parquet": pa.table({"N": [2, 3]})})
    geoskip.build(tmp_path, [MinMax("n"), MinMax("s.x"), ValueList("s.x")])
    assert bounds(summaries(tmp_path, MinMax("n"))["b.parquet"]) == (2, 3)
    found = summaries(tmp_path, MinMax("s.x"))["b.parquet"]
    assert (*bounds(found), found["nulls"], found["rows"]) == (None, None, 2, 2)


@pytest.mark.parametrize(
    ("wide", "narrow", "values"),
    [
        (pa.int64(), pa.int32(), [-5, 7]),
        (pa.int64(), pa.uint32(), [0, 2**32 - 1]),
        (pa.int32(), pa.int8(), [-128, 127]),
        (pa.uint64(), pa.uint64(), [0, 2**64 - 1]),
        (pa.uint8(), pa.uint8(), [0, 255]),
        (pa.float64(), pa.float32(), [-0.5, 0.25]),
        (pa.decimal128(12, 2), pa.decimal128(5, 2), [Decimal("-1.25"), Decimal("3.00")]),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), [dt.datetime(1999, 1, 1), dt.datetime(2001, 1, 1)]),
        (pa.large_string(), pa.string(), ["a", "b"]),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
    ],
)
def test_narrower_types_of_a_file(tmp_path: Path, wide: Any, narrow: Any, values: list[Any]) -> None:
    first = {"a.parquet": pa.table({"n": pa.array(values, wide)})}
    write_files(tmp_path, first | {"b.parquet": pa.table({"n": pa.array(values, narrow)})})
    report = geoskip.build(tmp_path, [MinMax("n"), ValueList("n")])
    assert report.excluded == {}
    found = summaries(tmp_path, MinMax("n"))
    assert found["a.parquet"] == found["b.parquet"]
    assert found["a.parquet"]["min"] is not None
    lists = summaries(tmp_path, ValueList("n"))
    assert lists["a.parquet"] == lists["b.parquet"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pa.int32(), pa.int64()),
        (pa.decimal128(25, 2), pa.decimal128(25, 3)),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    ],
)
def test_other_types_are_left_to_spark(tmp_path: Path, ours: Any, theirs: Any) -> None:
    tables = {f"{name}.parquet": pa.table({"n": pa.array([1], pa.int64()).cast(kind)}) for name, kind in
              (("a", ours), ("b", theirs))}  # fmt: skip
    write_files(tmp_path, tables)
    report = geoskip.build(tmp_path, [MinMax("n")])
    assert list(summaries(tmp_path, MinMax("n"))) == ["a.parquet"]
    assert "it needs Spark: its n is" in report.excluded["b.parquet"]


def test_the_index_that_leaves_a_file_to_spark_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"n": [1], "s": ["x"]}), "b.parquet": pa.table({"n": [1], "s": [1]})})
    report = geoskip.build(tmp_path, [MinMax("n"), MinMax("s"), ValueList("s")])
    why = "it needs Spark for minmax(s) and valuelist(s): its s is int64, the dataset has string; refresh_index() of a "
    assert report.excluded == {"b.parquet": f"{why}session indexes what Spark reads so, or build without these indexes"}


def test_columns_that_differ_by_case_are_left_to_spark(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"n": [1]}), "b.parquet": pa.table({"n": [1], "N": [2]})})
    assert "several columns called n" in geoskip.build(tmp_path, [MinMax("n")]).excluded["b.parquet"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.timestamp("ns"), r"N is timestamp\[ns\], which Spark does not read; write it in microseconds"),
        (pa.time64("us"), r"N is time64\[us\], which Spark does not read"),
        (pa.float16(), "which Spark does not read"),
        (pa.list_(pa.int64()), r"needs an ordered type, got array<bigint>"),
        (pa.struct([("x", pa.int64())]), r"needs an ordered type, got struct<x:bigint>"),
    ],
)
def test_types_that_are_not_indexed(tmp_path: Path, kind: Any, message: str) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"n": pa.nulls(2, kind), "k": [1, 2]})})
    with pytest.raises(InvalidSpecificationError, match=message):
        geoskip.build(tmp_path, [MinMax("N")])
    assert geoskip.build(tmp_path, [MinMax("k")]).files == 1


def test_int96_and_days_before_the_gregorian_calendar(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 2, 29, 12, 30, 0, 123456)
    times = pa.table({"t": pa.array([moment, None], pa.timestamp("us"))})
    found = build_one(tmp_path / "new", times, MinMax("t"), use_deprecated_int96_timestamps=True)
    assert bounds(found) == (moment.replace(tzinfo=dt.timezone.utc),) * 2  # noqa: UP017
    old = {"org.apache.spark.version": "2.4.0", "org.apache.spark.legacyINT96": ""}
    for name, year, metadata, kept in (
        ("unknown", 1850, {}, True),
        ("spark 3", 1850, {"org.apache.spark.version": "3.5.0"}, True),
        ("spark 2", 1850, old, False),
        ("far", 9999, {}, True),
    ):
        place = tmp_path / name
        place.mkdir()
        table = pa.table({"t": pa.array([dt.datetime(year, 1, 1)], pa.timestamp("us"))})
        pq.write_table(
            table.replace_schema_metadata(metadata), place / "a.parquet", use_deprecated_int96_timestamps=True
        )
        assert bool(geoskip.build(place, [MinMax("t")]).excluded) is not kept, name


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("times", "unit", "kept"),
    [
        (["1969-12-31T23:59:59"], "us", False),  # Arrow reads it as 2554-07-21
        (["1400-01-01T12:00", None], "us", False),  # Arrow reads it as 1984-07-21
        (["1899-12-31T01:00:00.000000616"], "ns", False),
        (["2020-01-01T00:00:00.000000001"], "ns", False),
        (["1950-01-01", "2020-01-01T01:00:00.000001"], "ns", True),
        (["1901-01-01", None, "2600-01-01T01:00"], "us", True),
    ],
)
def test_int96_that_arrow_reads_as_another_time(
    tmp_path: Path, times: list[str | None], unit: str, kept: bool, nested: bool
) -> None:
    values = pa.array([None if text is None else np.datetime64(text, unit) for text in times], pa.timestamp(unit))
    table = pa.table({"s": pa.StructArray.from_arrays([values, values], ["t", "u"])} if nested else {"t": values})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    report = geoskip.build(tmp_path, [MinMax("s.u" if nested else "T")])
    assert bool(report.excluded) is not kept


def test_days_of_the_julian_calendar_are_left_to_spark(tmp_path: Path) -> None:
    days = pa.array([-171_200, 0, None], pa.int32()).cast(pa.date32())
    for version in (None, b"2.4.0"):
        metadata = {} if version is None else {b"org.apache.spark.version": version}
        (tmp_path / f"d{version!r}").mkdir()
        pq.write_table(
            pa.table({"d": days}).replace_schema_metadata(metadata), tmp_path / f"d{version!r}" / "a.parquet"
        )
        excluded = geoskip.build(tmp_path / f"d{version!r}", [MinMax("d")]).excluded
        assert [*excluded] == ([] if version is None else ["a.parquet"])


def test_texts_that_are_no_utf8(tmp_path: Path) -> None:
    broken = pa.array([b"\xff\xfe", b"a"]).view(pa.string())
    found = build_one(tmp_path / "d", pa.table({"s": broken, "k": [1, 2]}), MinMax("s"), ValueList("s"))
    assert bounds(found) == (b"a", b"\xff\xfe")


def test_unreadable_and_encrypted_files(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"n": [1]})})
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    footer = struct.pack("<I", 4)
    (tmp_path / "c.parquet").write_bytes(b"PARE1234" + footer + b"PARE")
    report = geoskip.build(tmp_path, [MinMax("n")])
    assert report.files == 1
    assert "unreadable" in report.excluded["b.parquet"]
    assert "it is encrypted, and only Spark has the keys" in report.excluded["c.parquet"]
    (tmp_path / "0.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    with pytest.raises(InvalidSpecificationError, match=r"cannot be read: .*0.parquet is not readable as Parquet"):
        geoskip.build(tmp_path, [ValueList("n")])


# texts of at most 32 bytes: of longer ones a footer says less, that bounds may be shortened
_VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal(18,3)": (pa.decimal128(18, 3), st.integers(-(10**15), 10**15).map(lambda n: Decimal(n).scaleb(-3))),
    "date": (pa.date32(), st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(-(2**60), 2**60)),
    "timestamp_ntz": (pa.timestamp("ms"), st.integers(-(2**50), 2**50)),
    "binary": (pa.binary(), st.binary(max_size=32)),
    "string": (pa.string(), st.text(max_size=8)),
}


@given(st.data(), st.sampled_from(sorted(_VALUES)), st.integers(1, 5), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_both_readers_make_the_same_summaries(data: st.DataObject, kind: str, group: int, dictionary: bool) -> None:
    """The fast reader of plain columns, and the one for odd files, whose part of Spark's is compared elsewhere."""
    arrow, values = _VALUES[kind]
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/a.parquet"
        metadata = {b"org.apache.spark.version": b"4.0.0"}  # whose times are those of today's calendar
        table = pa.table({"c": pa.array(rows, arrow)}).replace_schema_metadata(metadata)
        pq.write_table(table, path, row_group_size=group, use_dictionary=dictionary)
        column = Column("c", kind)
        indexes = {str(index): index.bind([column]) for index in (MinMax("c"), ValueList("c"), BloomFilter("c"))}
        fast = [IndexPlan(name, index, (("c", kind),)) for name, index in indexes.items()]
        (one,) = read_files([(path, path)], fast, False)
        other = read_values(path, path, list(indexes.values()), False)
    assert (one.problem, other.problem, one.rows, other.rows) == (None, None, len(rows), len(rows))
    assert {name: repr(found) for name, found in one.summaries.items()} == {
        name: repr(found) for name, found in other.summaries.items()
    }


def test_columns_that_only_spark_tells_apart(tmp_path: Path) -> None:
    write_files(tmp_path / "dots", {"a.parquet": pa.table({"s": [{"x": 1}], "s.x": [2]})})
    assert "the path of a nested field" in geoskip.build(tmp_path / "dots", [MinMax("s.x")]).excluded["a.parquet"]
    write_files(tmp_path / "case", {"a.parquet": pa.table({"n": [1], "N": [2]})})
    for name in ("n", "N"):
        with pytest.raises(UnknownColumnError):
            geoskip.build(tmp_path / "case", [MinMax(name)])


def test_columns_with_defaults_are_left_to_spark(tmp_path: Path) -> None:
    field = {"name": "n", "type": "long", "nullable": True, "metadata": {"EXISTS_DEFAULT": "5"}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    table = pa.table({"n": [1]}).replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": schema})
    write_files(tmp_path, {"a.parquet": table})
    with pytest.raises(InvalidSpecificationError):
        geoskip.build(tmp_path, [MinMax("n")])


def test_times_that_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.parquet")
    far = pa.table({"t": pa.array([2**58], pa.timestamp("us"))})
    pq.write_table(far, path, use_deprecated_int96_timestamps=True)
    index = MinMax("t").bind([Column("t", "timestamp")])
    assert "after the year 9999" in str(read_values(path, path, [index], False).problem)
    monkeypatch.setattr("geoskip.engines.parquet_values.is_signed", lambda *_: True)
    assert "may be encrypted" in str(read_values(path, path, [index], False).problem)


# --- functions --------------------------------------------------------------------------------------------------------


def test_functions_that_libraries_offer(tmp_path: Path) -> None:
    shapes = [shapely.to_wkb(shapely.box(number, 0, number + 1, 2)) for number in range(3)]
    table = pa.table({"g": [*shapes, None], "x": [1.0, None, 3.0, 4.0], "y": [0.0, 1.0, 2.0, 3.0],
                      "ip": ["10.0.0.1", "10.0.0.255", None, "no address"]})  # fmt: skip
    box, points = GeoBox("st_geomFROMWKB(g)"), GeoBox("ST_Point(x, y)")
    address, part = ValueList("packed_address(ip)"), Formatted("ip", extract="packed_address")
    inside = ValueList("in_network(ip, '10.0.0.0/25')")
    found = build_one(tmp_path / "d", table, box, points, address, part, inside)
    assert (found["boxless"], found["nulls"]) == (1, 1)
    assert {(b["xmin"], b["xmax"]) for b in found["boxes"]} <= {(0.0, 3.0), (0.0, 1.0), (1.0, 2.0), (2.0, 3.0)}
    place = tmp_path / "d metadata"
    assert summaries(tmp_path / "d", address, place)["a.parquet"]["nulls"] == 2
    assert len(summaries(tmp_path / "d", part, place)["a.parquet"]["values"]) == 2
    assert summaries(tmp_path / "d", inside, place)["a.parquet"]["values"] == [False, True]
    pairs = summaries(tmp_path / "d", points, place)["a.parquet"]
    assert (pairs["boxless"], len(pairs["boxes"]) > 0) == (1, True)


def test_results_count_as_spark_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def offer(returns: str) -> Call:
        functions = {"f": PlainFunction("f", str, returns)}
        monkeypatch.setattr("geoskip.engines.parquet_values.offered_by_name", lambda: functions)
        return Call("f", (Column("x", "double"),), "python:f#1", ("eval:100",), returns)

    values = pa.array([0.0, -0.0, 0.0])
    assert call_function(offer("string"), [values], 3).to_pylist() == ["0.0", "-0.0", "0.0"]
    with pytest.raises(NeedsSpark, match="f returned str, it is declared as int"):
        call_function(offer("int"), [values], 3)


def test_times_do_not_reach_functions(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.parquet": pa.table({"t": pa.array([1], pa.timestamp("us", "UTC"))})})
    with pytest.raises(InvalidSpecificationError, match="packed_address is given t, of type timestamp"):
        geoskip.build(tmp_path, [ValueList("packed_address(t)")])


def test_a_function_that_fails_on_a_file_costs_its_own_index_alone(tmp_path: Path) -> None:
    write_files(tmp_path, {
        "a.parquet": pa.table({"g": [shapely.to_wkb(shapely.Point(1, 2))], "n": [1]}),
        "b.parquet": pa.table({"g": [b"no geometry"], "n": [2]}),
    })  # fmt: skip
    report = geoskip.build(tmp_path, [MinMax("ST_X(g)"), MinMax("n")])
    assert report.files == 2
    assert "1 file, the first of them b.parquet: ST_X(g): " in report.incomplete["minmax(ST_X(g))"]
    assert summaries(tmp_path, MinMax("ST_X(g)"))["b.parquet"] is None
    assert bounds(summaries(tmp_path, MinMax("n"))["b.parquet"]) == (2, 2)
