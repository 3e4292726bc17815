"""geoskip.build: the same metadata of Parquet files, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import struct
import subprocess
import sys
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
from geoskip import BloomFilter, Formatted, GeoBox, Hybrid, MinMax, Prefix, ValueList
from geoskip.engines import build as build_module
from geoskip.engines.parquet_values import NeedsSpark, ReadingRules, ValuePlan, called, read_values, rebased
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, NotIndexedError, UnknownColumnError
from geoskip.indexes.base import Index
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import latest
from geoskip.predicates import Call, Column
from geoskip.sources.arrow_reader import read_files
from geoskip.sources.footers import IndexPlan
from geoskip.stores import ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.indexed_files import SETTINGS, write_files, write_indexed
from tests.support.strategies import examples
from udf_mappings import PlainFunction


def summaries(folder: Path, index: Index, metadata: Path | None = None) -> dict[str, Any]:
    """Summaries of an index by the files' paths, from the latest snapshot."""
    snapshot = latest(ParquetStore(metadata or folder / "_geoskip"))
    assert snapshot is not None
    return dict(zip(*(snapshot.files.column(name).to_pylist() for name in ("path", str(index))), strict=True))


def build_one(folder: Path, table: pa.Table, *indexes: Index, **options: Any) -> Any:
    """Build indexes over a folder of one file; return the file's summary of the first one."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "a.parquet", **options)
    geoskip.build(folder, indexes, metadata=folder.with_name(f"{folder.name} metadata"))
    return summaries(folder, indexes[0], folder.with_name(f"{folder.name} metadata"))["a.parquet"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions of a file each, ``n`` from 0 to 9 and from 10 to 19."""
    found = tmp_path / "data"
    tables = {f"day={day}/x.parquet": pa.table({"n": range(10 * day, 10 * day + 10)}) for day in range(2)}
    write_files(found, tables)
    return found


def bounds(summary: Any) -> tuple[Any, Any]:
    return summary["min"], summary["max"]


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_indexes_are_built_added_and_refreshed(folder: Path) -> None:
    report = geoskip.build(folder, MinMax("n"))
    assert (report.files, report.rows, report.read, report.snapshot) == (2, 20, 2, 1)
    assert report.readers == {"minmax(n)": "footers"}
    assert geoskip.build(str(folder), [ValueList("n")]).read == 2
    assert set(geoskip.build(folder).indexes) == {"minmax(n)", "valuelist(n)"}
    assert geoskip.build(folder).read == 0
    write_files(folder, {"day=2/x.parquet": pa.table({"n": [77]}), "day=0/x.parquet": pa.table({"n": [5, None]})})
    (folder / "day=1" / "x.parquet").unlink()
    report = geoskip.build(folder)
    assert (report.files, report.read, report.snapshot) == (2, 2, 3)
    found = summaries(folder, MinMax("n"))
    assert {path: (*bounds(one), one["nulls"]) for path, one in found.items()} == {
        "day=0/x.parquet": (5, 5, 1),
        "day=2/x.parquet": (77, 77, 0),
    }
    assert geoskip.build(folder, mode="full").read == 2


def test_a_quick_refresh_reads_nothing(folder: Path) -> None:
    geoskip.build(folder, [MinMax("n")])
    write_files(folder, {"day=1/y.parquet": pa.table({"n": [1]})})
    report = geoskip.build(folder, mode="quick")
    assert (report.read, report.pending, report.files) == (0, 1, 2)
    assert geoskip.build(folder).read == 1


def test_without_an_index_there_is_nothing_to_refresh(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotIndexedError, match=r"has no index yet.*geoskip.build\(path, \[MinMax\('column'\)\]\)"):
        geoskip.build(folder)
    with pytest.raises(DatasetNotFoundError, match=r"there is no file or folder .*/nowhere"):
        geoskip.build(tmp_path / "nowhere", [MinMax("n")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetNotFoundError, match="has no files to index"):
        geoskip.build(tmp_path / "empty", [MinMax("n")])


def test_arguments_that_make_no_sense(folder: Path) -> None:
    for options, message in (
        ({"mode": "fast"}, r"build\(mode=\) takes 'incremental', 'full', 'quick', got 'fast'"),
        ({"threads": 0}, r"build\(threads=\) takes a number from 1 on, got 0"),
        ({"store": ParquetStore(folder / "m"), "metadata": "m"}, "give store= or metadata=, not both"),
        ({"store": "m"}, "store= takes a geoskip.stores.Store, got 'm'"),
        ({"metadata": 5}, "metadata= takes the path of a folder, got 5"),
        ({"metadata": "s3://bucket/m"}, "metadata= is a local folder without Spark"),
    ):
        with pytest.raises(InvalidSpecificationError, match=message):
            geoskip.build(folder, **options)  # type: ignore[arg-type]
    for wrong in (MinMax, "minmax(n)", None):
        with pytest.raises(InvalidSpecificationError, match=r"expected indexes such as MinMax\('temp'\), got "):
            geoskip.build(folder, wrong)  # type: ignore[arg-type]
    for path in (5, [5], ""):
        with pytest.raises(
            InvalidSpecificationError, match=r"build\(\) takes a folder, a file or a glob .* got (5|'')"
        ):
            geoskip.build(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="give it without indexes"):
        geoskip.build(folder, [MinMax("n")], mode="full")
    with pytest.raises(InvalidSpecificationError, match="s3://b/x is not a local path"):
        geoskip.build("s3://b/x", [MinMax("n")])
    with pytest.raises(InvalidSpecificationError, match="named twice"):
        geoskip.build(folder, [MinMax("n"), MinMax("n")])
    with pytest.raises(InvalidSpecificationError, match=r"minmax\(n\) and minmax\(N\) are the same index"):
        geoskip.build(folder, [MinMax("n"), MinMax("N")])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nn", UnknownColumnError, "the dataset has no column nn; did you mean n. Its columns are n, day"),
        ("day", InvalidSpecificationError, "reads the partition column day"),
        ("n + 1", InvalidSpecificationError, r"'n \+ 1' needs Spark.*build it by geoskip.dataset\(spark, path\)"),
        ("upper(n)", InvalidSpecificationError, "needs Spark .upper is no function that an installed library offers"),
        ("f(", InvalidSpecificationError, "needs Spark"),
        ("n.x", UnknownColumnError, "there is no x in n, which is bigint"),
        ("packed_address('a')", InvalidSpecificationError, "reads no column"),
        ("CAST(n AS string)", InvalidSpecificationError, "needs Spark"),
    ],
)
def test_texts_that_are_not_indexed(folder: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        geoskip.build(folder, [ValueList(text)])
    assert not (folder / "_geoskip").exists()


@pytest.mark.parametrize("marker", ["_delta_log", ".hoodie", "metadata/v1.metadata.json"])
def test_tables_are_left_to_spark(folder: Path, marker: str) -> None:
    (folder / marker).mkdir(parents=True)
    with pytest.raises(InvalidSpecificationError, match="is a table of"):
        geoskip.build(folder, [MinMax("n")])


def test_many_threads_make_what_one_makes(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    tables = {
        f"{number}.parquet": pa.table({"n": generator.integers(0, 99, 50), "s": list("abcde") * 10})
        for number in range(150)
    }
    write_files(tmp_path, tables)
    indexes = [MinMax("n"), ValueList("s"), Prefix("s"), Hybrid("n"), BloomFilter("n")]
    for threads in (1, 4):
        report = geoskip.build(tmp_path, indexes, threads=threads, metadata=tmp_path / f"_{threads}")
        assert (report.files, report.excluded) == (150, {})
    for index in indexes:
        assert summaries(tmp_path, index, tmp_path / "_1") == summaries(tmp_path, index, tmp_path / "_4")


def test_pyspark_is_not_imported(folder: Path) -> None:
    source = (
        "import sys, geoskip\n"
        f"print(geoskip.build({str(folder)!r}, [geoskip.MinMax('n')]).files)\n"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'py4j', 'geoskip.spark'))])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["2", "[]"]


def test_protected_metadata(folder: Path, tmp_path: Path) -> None:
    keys = KeyRing({"k": b"0" * 32})
    with pytest.raises(InvalidSpecificationError, match="would be in clear"):
        geoskip.build(folder, [MinMax("n")], store=ParquetStore(tmp_path / "m", encryption=Encryption(keys)))
    store = ParquetStore(tmp_path / "m", encryption=Encryption(keys, "k"))
    assert geoskip.build(folder, [MinMax("n")], store=store).files == 2
    assert geoskip.build(folder, store=store).read == 0
    texts = [path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()]
    assert not any(b"day=1" in text for text in texts)


# --- paths and partitions ---------------------------------------------------------------------------------------------


def test_files_that_spark_would_not_read_are_left_out(folder: Path) -> None:
    (folder / "day=0" / "empty.parquet").touch()
    write_files(
        folder,
        {name: pa.table({"n": [1]}) for name in ("day=0/_x.parquet", "_y/x.parquet", ".z/x.parquet", "beside.parquet")},
    )
    assert geoskip.build(folder, [MinMax("n")]).files == 2


def test_nested_folders_without_partitions_are_left_out_as_spark_does(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("x.parquet", "y/x.parquet")})
    geoskip.build(tmp_path, [MinMax("n")])
    assert list(summaries(tmp_path, MinMax("n"))) == ["x.parquet"]


def test_folders_without_partitions_in_common(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("a=1/x.parquet", "b=1/x.parquet")})
    with pytest.raises(InvalidSpecificationError, match="no partition columns in common"):
        geoskip.build(tmp_path, [MinMax("n")])


def test_globs_leave_out_hidden_folders(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("_y/x.parquet", ".z/x.parquet", "a/x.parquet")})
    geoskip.build(f"{tmp_path}/*", [MinMax("n")])
    assert list(summaries(tmp_path, MinMax("n"))) == ["a/x.parquet"]


def test_globs_lists_and_files_share_the_metadata_of_their_folder(folder: Path) -> None:
    geoskip.build(folder / "day=*", [MinMax("n")])
    assert len(summaries(folder, MinMax("n"))) == 2
    write_files(folder, {"day=1/y.parquet": pa.table({"n": [1]}), "day=3/y.parquet": pa.table({"n": [3]})})
    assert geoskip.build([folder / "day=1", folder / "day=0"]).read == 1
    assert len(summaries(folder, MinMax("n"))) == 3
    assert geoskip.build(f"{folder}/day={{0,3}}").read == 1
    (folder / "day=0" / "x.parquet").unlink()
    assert geoskip.build([folder / "day=1", folder / "day=3"]).files == 4  # day=0 is not of these paths
    assert geoskip.build(f"{folder}/day=[013]").files == 3
    geoskip.build(folder / "day=1" / "x.parquet", [MinMax("n")])
    assert list(summaries(folder / "day=1", MinMax("n"))) == ["x.parquet"]


def test_odd_names(tmp_path: Path) -> None:
    names = ["a b.parquet", "ä%20.parquet", "x\ny.parquet", "a+b?.parquet"]
    folder = tmp_path / "o'dd [1]"
    write_files(folder, {name: pa.table({"a.b": [1], "odd `name": [2]}) for name in names})
    report = geoskip.build(folder, [MinMax("a.b"), MinMax("`odd ``name`")])
    assert sorted(summaries(folder, MinMax("a.b"))) == sorted(name for name in names if "\n" not in name)
    assert ["line feed" in why for why in report.excluded.values()] == [True]


# --- the values -------------------------------------------------------------------------------------------------------


def test_an_index_that_is_spelt_otherwise_is_the_same(tmp_path: Path) -> None:
    pq.write_table(pa.table({"first name": ["a"], "a.b": [1], "a": [{"b": 2}]}), tmp_path / "0.parquet")
    geoskip.build(tmp_path, [MinMax("first name"), MinMax("`a.b`")])
    built = geoskip.build(tmp_path, [MinMax("`first name`"), MinMax("a.b"), MinMax("a.`b`")])
    assert built.indexes == ("minmax(first name)", "minmax(`a.b`)", "minmax(a.`b`)")
    store = ParquetStore(tmp_path / "_geoskip")
    with pytest.raises(NotIndexedError, match=r"no index minmax\(`b`\)"):
        actions.delete(store, ["minmax(`b`)"])
    assert actions.delete(store, ["minmax(`first name`)"]) == ("minmax(first name)",)
    assert actions.restore(store, ["minmax(`first name`)"]) == ("minmax(first name)",)


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


def test_days_of_the_julian_calendar(tmp_path: Path) -> None:
    julian = -171_200  # 1501-04-09 of the Gregorian calendar, 1501-03-30 of the Julian one
    days = pa.array([julian, 0, None], pa.int32()).cast(pa.date32())
    for metadata, day in (({}, julian), ({b"org.apache.spark.version": b"2.4.0"}, julian - 10)):
        table = pa.table({"d": days}).replace_schema_metadata(metadata)
        found = build_one(tmp_path / f"d{len(metadata)}", table, MinMax("d"))
        assert (found["min"] - dt.date(1970, 1, 1)).days == day
    ancient = pa.table({"d": pa.array([-800_000], pa.int32()).cast(pa.date32())})
    with pytest.raises(KeyError):
        build_one(tmp_path / "d", ancient.replace_schema_metadata({b"org.apache.spark.version": b"2.4.0"}), MinMax("d"))


@given(st.integers(-719_164, -141_428))
@settings(max_examples=examples(200), deadline=None)
def test_rebased_days_have_the_date_of_the_julian_calendar(day: int) -> None:
    """Against Meeus's formula for the day number of a date in the Julian calendar."""
    (found,) = rebased(pa.array([day], pa.int32()).cast(pa.date32())).to_pylist()
    year, month = (found.year, found.month) if found.month > 2 else (found.year - 1, found.month + 12)
    number = 1461 * (year + 4716) // 4 + 306001 * (month + 1) // 10000 + found.day - 1524
    is_leap_day_lost = (found.month, found.day) == (3, 1) and found.year % 100 == 0 and found.year % 400
    assert number - 2_440_588 - day in ((0, 1) if is_leap_day_lost else (0,))


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
@settings(max_examples=examples(150), deadline=None)
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
        slow = [ValuePlan(name, index, (column,)) for name, index in indexes.items()]
        other = read_values(path, path, slow, ReadingRules())
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
    plan = ValuePlan("t", MinMax("t"), (Column("t", "timestamp"),))
    assert "after the year 9999" in str(read_values(path, path, [plan], ReadingRules()).problem)
    monkeypatch.setattr("geoskip.engines.parquet_values.is_signed", lambda *_: True)
    assert "may be encrypted" in str(read_values(path, path, [plan], ReadingRules()).problem)


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
    assert called(offer("string"), [values], 3).to_pylist() == ["0.0", "-0.0", "0.0"]
    with pytest.raises(NeedsSpark, match="f returned str, it is declared as int"):
        called(offer("int"), [values], 3)


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


# --- soundness of the moment ------------------------------------------------------------------------------------------


def test_a_file_that_changes_while_it_is_read_has_no_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = build_module._ChunkReader.read

    def meanwhile(self: Any, files: Any) -> Any:
        found = read(self, files)
        write_files(folder, {"day=1/x.parquet": pa.table({"n": [1000]})})
        return found

    with monkeypatch.context() as patch:
        patch.setattr(build_module._ChunkReader, "read", meanwhile)
        patch.setattr("geoskip.sources.build_verbs._PASSES", 0)
        report = geoskip.build(folder, [MinMax("n")], threads=1)
    assert report.excluded == {"day=1/x.parquet": "it changed while it was indexed"}
    assert geoskip.build(folder).read == 1
    assert bounds(summaries(folder, MinMax("n"))["day=1/x.parquet"]) == (1000, 1000)


def test_files_that_arrive_meanwhile_are_read_in_a_second_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = build_module._ChunkReader.read

    def meanwhile(self: Any, files: Any) -> Any:
        if not (folder / "day=2").exists():
            write_files(folder, {"day=2/x.parquet": pa.table({"n": [7]})})
        return read(self, files)

    monkeypatch.setattr(build_module._ChunkReader, "read", meanwhile)
    assert geoskip.build(folder, [MinMax("n")]).files == 3


def test_metadata_that_need_spark_are_not_refreshed(tmp_path: Path) -> None:
    changed = {"spark.sql.parquet.binaryAsString": "true"}
    tables = {"a.parquet": pa.table({"n": pa.array([1], pa.int32())})}
    write_indexed(tmp_path, tables, {"n": "int"}, [MinMax("n")], settings={**SETTINGS, **changed})
    assert geoskip.build(tmp_path).read == 0
    write_files(tmp_path, {"b.parquet": tables["a.parquet"]})
    with pytest.raises(InvalidSpecificationError, match="binaryAsString=true, which only Spark follows"):
        geoskip.build(tmp_path)
    assert list(summaries(tmp_path, MinMax("n"))) == ["a.parquet"]


def test_metadata_of_a_build_through_spark_are_continued(tmp_path: Path) -> None:
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    tables = {"a.parquet": pa.table({"n": pa.array([1], pa.int32())})}
    store = write_indexed(tmp_path, tables, {"n": "int", "late": "int"}, [MinMax("n")], settings={**SETTINGS, **zone})
    write_files(tmp_path, {"b.parquet": tables["a.parquet"]})
    assert geoskip.build(tmp_path, [MinMax("late")]).read == 2
    header = store.header(store.latest() or 0)
    assert header.source["settings"]["spark.sql.session.timeZone"] == "America/New_York"
    assert summaries(tmp_path, MinMax("late"))["a.parquet"]["nulls"] == 1
