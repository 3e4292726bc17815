"""geoskip.files: which files are kept, and why, without Spark."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import predicates as p
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, UnknownColumnError
from geoskip.stores import ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.indexed_files import SETTINGS, write_files, write_indexed

TYPES = {"a": "int", "s": "string", "month": "int", "q": "string"}
INDEXES = (geoskip.MinMax("a"), geoskip.ValueList("s"))
A, S, MONTH, Q = (p.Column(name, kind) for name, kind in TYPES.items())


def above(number: int) -> p.Predicate:
    return p.Comparison(">", A, p.Literal(number, "int"))


def equal(column: p.Column, value: object) -> p.Predicate:
    return p.Comparison("=", column, p.Literal(value, column.type))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files of ten rows in partitions, ``a`` from 0 to 39, and one that is not indexed."""
    tables = {
        f"month={1 + number % 2:02}/q={'a b%2Fc' if number < 2 else 'x'}/{number}.parquet": pa.table(
            {"a": pa.array(range(10 * number, 10 * number + 10), pa.int32()), "s": [f"s{number}"] * 10}
        )
        for number in range(5)
    }
    write_indexed(tmp_path, tables, TYPES, INDEXES, partitions=("month", "q"), unindexed=[list(tables)[4]])
    return tmp_path


def names(found: geoskip.KeptFiles) -> str:
    return "".join(Path(file.path).stem for file in found)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (None, "02413"),
        (above(25), "243"),
        (p.And((above(15), p.Comparison("<", A, p.Literal(25, "int")))), "241"),
        (equal(S, "s1"), "41"),
        (equal(MONTH, 2), "13"),
        (p.And((above(25), equal(MONTH, 2))), "3"),
        (p.Or((above(25), equal(MONTH, 2))), "2413"),
        (p.Not(p.Or((above(25), equal(MONTH, 2)))), "024"),
        (p.And((p.Or((above(35), equal(Q, "a b/c"))), p.Not(equal(MONTH, 2)))), "04"),
        (p.IsNull(MONTH), ""),
        (p.FALSE, ""),
        (p.Opaque("f(a)", ("a",)), "02413"),
        (p.Comparison("=", A, MONTH), "02413"),
    ],
    ids=str,
)
def test_a_file_is_kept_if_it_may_hold_a_matching_row(folder: Path, where: p.Predicate | None, kept: str) -> None:
    found = geoskip.files(folder, where)
    assert names(found) == kept
    assert (found.report.files_kept, found.report.files_total) == (len(kept), 5)
    assert found.report.bytes_kept == sum(file.size for file in found) == sum(os.stat(f.path).st_size for f in found)
    told = [*found.report.kept_files(), *found.report.skipped_files()]
    assert sorted(told) == sorted(map(str, folder.glob("month=*/*/*.parquet")))


def test_a_file_tells_its_size_rows_and_partition_values(folder: Path) -> None:
    first, _, new, *_ = geoskip.files(folder)
    assert first.path == str(folder / "month=01/q=a b%2Fc/0.parquet")
    assert (first.rows, dict(first.partitions)) == (10, {"month": 1, "q": "a b/c"})
    assert (new.rows, dict(new.partitions)) == (None, {"month": 1, "q": "x"})


def test_the_report_tells_clauses_and_files_without_metadata(folder: Path) -> None:
    report = geoskip.files(folder, p.And((above(25), equal(MONTH, 2)))).report
    assert dict(report.clauses()) == {"partition columns": 2, "max(a) > 25": 1}
    assert report.files_unindexed == 1
    assert "1 file without metadata" in str(report)


@pytest.mark.parametrize("change", ["touched", "replaced", "as long and as old"])
def test_a_changed_file_is_kept(folder: Path, change: str) -> None:
    changed = folder / "month=01/q=a b%2Fc/0.parquet"
    assert "0" not in names(geoskip.files(folder, above(25)))
    before = os.stat(changed)
    if change == "touched":
        os.utime(changed)
    elif change == "replaced":
        write_files(folder, {"month=01/q=a b%2Fc/0.parquet": pa.table({"a": pa.array([99], pa.int32()), "s": ["z"]})})
    else:
        shutil.copyfile(changed, folder / "other")
        os.replace(folder / "other", changed)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (os.stat(changed).st_size, os.stat(changed).st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert "0" in names(geoskip.files(folder, above(25)))


def test_a_listing_answers_for_the_files_of_then(folder: Path) -> None:
    then = geoskip.listing(folder)
    os.remove(folder / "month=01/q=x/2.parquet")
    assert names(geoskip.files(folder, above(25), listing=then)) == "243"
    assert names(geoskip.files(folder, above(25))) == "43"
    with pytest.raises(InvalidSpecificationError, match="listing= is of"):
        geoskip.files(folder / "month=01", listing=then)


def test_a_part_of_a_dataset_is_asked_by_its_path(folder: Path) -> None:
    assert names(geoskip.files(folder / "month=01", above(15))) == "24"
    assert names(geoskip.files(folder / "month=01/q=x/2.parquet", above(15))) == "2"
    assert names(geoskip.files(folder / "month=01/q=x/2.parquet", above(95))) == ""
    assert names(geoskip.files(f"file:{folder}/month=02", above(15))) == "13"


def test_a_later_snapshot_is_used_at_once(folder: Path) -> None:
    assert names(geoskip.files(folder, above(25))) == "243"
    ParquetStore(folder / "_geoskip").drop()
    found = geoskip.files(folder, above(25))
    assert names(found) == "02413"
    assert "there are no metadata" in found.report.reasons[0]
    assert names(geoskip.files(folder, equal(MONTH, 2))) == "13"


def test_without_metadata_the_indexes_that_would_serve_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"temp": [1], "city": ["Oslo"]}), tmp_path / "part-0.parquet")
    found = geoskip.files(tmp_path, "temp > 3 AND length(city) = 2")
    assert names(found) == "part-0"
    assert 'no index over temp: MinMax("temp")' in found.report.reasons
    assert 'create MinMax("temp")' in str(geoskip.why_not(found))
    assert "no column with a known type" in str(geoskip.files(tmp_path, "other > 3").report)


def test_a_column_that_there_is_not_is_named_in_every_kind_of_condition(folder: Path) -> None:
    for where in ("nope > 3", pc.field("nope") > 3, pc.field("a").is_valid() & pc.field("nope", "x").is_null(),
                  pl.col("nope") > 3):  # fmt: skip
        with pytest.raises(UnknownColumnError, match=r"no column nope.*ts columns are .*month"):
            geoskip.files(folder, where)
    with pytest.raises(UnknownColumnError, match="no column MONTH; did you mean month"):
        geoskip.files(folder, pc.field("MONTH") > 3)  # Arrow and polars tell cases apart


def test_columns_that_spark_does_not_read_may_be_named(tmp_path: Path) -> None:
    at = pa.array([1], pa.timestamp("ns"))
    write_indexed(tmp_path, {f"p=1/{n}": pa.table({"a": [n], "at": at}) for n in (0, 1)}, {"a": "bigint"}, INDEXES[:1])
    write_files(tmp_path, {"q=2/2": pa.table({"a": [2]})})  # of which Spark reads no partitions
    for where in ("a > 0 AND at IS NOT NULL AND q = 2", (pc.field("a") > 0) & ~pc.field("at").is_null(),
                  (pl.col("a") > 0) & (pl.col("p") == 1)):  # fmt: skip
        assert names(geoskip.files(tmp_path, where)) == "12"


def test_damaged_metadata_keep_every_file(folder: Path) -> None:
    for part in (folder / "_geoskip/_parts").iterdir():
        part.write_bytes(b"PAR1")
    found = geoskip.files(folder, above(25))
    assert names(found) == "02413"
    assert any("damaged" in reason for reason in found.report.reasons)


def test_a_damaged_byte_keeps_files_and_raises_nothing(folder: Path) -> None:
    (part,) = (folder / "_geoskip/_parts").iterdir()
    whole, right, reasons = part.read_bytes(), set(names(geoskip.files(folder, above(25)))), []
    for place in range(0, len(whole), 31):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        store = ParquetStore(folder / "_geoskip")
        listing = geoskip.listing(folder, store=store)
        found = geoskip.files(folder, above(25), store=store, listing=listing)
        assert set(names(found)) >= right, place
        reasons += found.report.reasons
    assert any("checksum of path differs" in reason for reason in reasons)
    assert any("checksum of rows differs" in reason for reason in reasons)


def test_no_index_is_suggested_where_metadata_cannot_be_read(tmp_path: Path) -> None:
    place = tmp_path / "a\nb"
    store = ParquetStore(place / "_geoskip", encryption=Encryption(KeyRing({"k": b"0" * 32}), "k"))
    write_indexed(
        place, {"0.parquet": pa.table({"a": pa.array([0], pa.int32())})}, {"a": "int"}, INDEXES[:1], store=store
    )
    found = geoskip.files(place, above(1))
    assert [reason for reason in found.report.reasons if "could not be read: " not in reason] == []
    assert found.report.decisions() == ()


def test_protected_metadata_are_read_with_keys(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path / "_geoskip", encryption=Encryption(KeyRing({"k": b"0" * 32}), "k"))
    tables = {f"{n}.parquet": pa.table({"a": pa.array([n], pa.int32())}) for n in range(3)}
    write_indexed(tmp_path, tables, {"a": "int"}, INDEXES[:1], store=store)
    assert names(geoskip.files(tmp_path, above(1), store=store)) == "2"
    found = geoskip.files(tmp_path, above(1))
    assert names(found) == "012"
    assert "protected" in found.report.reasons[0]


def test_metadata_may_lie_elsewhere(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"a": pa.array([n], pa.int32())}) for n in range(3)}
    write_indexed(tmp_path / "data", tables, {"a": "int"}, INDEXES[:1], store=ParquetStore(tmp_path / "elsewhere"))
    assert names(geoskip.files(tmp_path / "data", above(1))) == "012"
    assert names(geoskip.files(tmp_path / "data", above(1), metadata=str(tmp_path / "elsewhere"))) == "2"


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("spark.sql.parquet.binaryAsString", "true", "reads other values"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY", "reads other values"),
        ("spark.sql.parquet.int96TimestampConversion", "true", "reads other values"),
        ("spark.sql.legacy.parquet.nanosAsLong", "true", "reads other values"),
        ("default of day", "DATE '2020-01-01'", "by its default"),
        ("field id of day", "7", "by its field id"),
        ("spark.sql.*", '{"spark.sql.parquet.of.tomorrow": "x"}', "only Spark follows"),
    ],
)
def test_an_index_of_values_that_only_spark_reads_keeps_every_file(
    tmp_path: Path, setting: str, value: str, why: str
) -> None:
    tables = {f"{n}.parquet": pa.table({"day": pa.array([n], pa.date32())}) for n in range(3)}
    day = p.Comparison(">", p.Column("day", "date"), p.Literal(1, "date"))
    write_indexed(tmp_path, tables, {"day": "date"}, [geoskip.MinMax("day")], settings={**SETTINGS, setting: value})
    found = geoskip.files(tmp_path, day)
    assert names(found) == "012"
    assert why in found.report.reasons[0]


def test_days_of_two_calendars_decide_nothing(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"day": pa.array([n], pa.date32())}) for n in range(3)}
    write_indexed(tmp_path, tables, {"day": "date"}, [geoskip.MinMax("day")])
    for limit, kept in ((date(1500, 1, 1), 3), (date(1600, 1, 1), 0)):
        days = p.Literal((limit - date(1970, 1, 1)).days, "date")
        assert len(geoskip.files(tmp_path, p.Comparison("<", p.Column("day", "date"), days))) == kept


@pytest.mark.parametrize(
    ("values", "where", "kept"),
    [
        (["1", "10", "9"], p.Comparison(">", p.Column("k", "int"), p.Literal(8, "int")), "12"),
        (["1", "10", "x"], p.Comparison(">", p.Column("k", "string"), p.Literal("8", "string")), "2"),
        (["1.5", "10", "9"], p.Comparison(">", p.Column("k", "double"), p.Literal(9.0, "double")), "012"),
        (["2024-01-05", "2024-02-30"], equal(p.Column("k", "date"), 19727), "01"),
        (["2024-01-05", "2024-02-29"], equal(p.Column("k", "date"), 19727), "0"),
        (["__HIVE_DEFAULT_PARTITION__", "3"], p.IsNull(p.Column("k", "int")), "0"),
        (["%C3%A9", "b"], equal(p.Column("k", "string"), "b"), "01"),
        (["a+b", "a%20b", "a%2520b"], equal(p.Column("k", "string"), "a%20b"), "2"),
    ],
)
def test_partition_values_are_typed_where_that_is_certain(
    tmp_path: Path, values: list[str], where: p.Predicate, kept: str
) -> None:
    tables = {f"k={value}/{n}.parquet": pa.table({"a": [1]}) for n, value in enumerate(values)}
    write_indexed(tmp_path, tables, {"a": "bigint"}, [geoskip.MinMax("a")], partitions=["k"])
    assert "".join(sorted(names(geoskip.files(tmp_path, where)))) == kept


def test_a_partition_column_without_a_type_is_named_where_the_condition_reads_it(tmp_path: Path) -> None:
    tables = {f"k={k}/{k}.parquet": pa.table({"a": [1]}) for k in ("1.5", "2.5")}
    write_indexed(tmp_path, tables, {"a": "bigint"}, INDEXES[:1], partitions=["k"])
    limit = p.Literal(2.0, "double")
    assert "column k " in str(geoskip.files(tmp_path, p.Comparison(">", p.Column("k", "double"), limit)).report.reasons)
    assert "column k " not in str(geoskip.files(tmp_path, above(1)).report.reasons)


@pytest.mark.parametrize(
    ("values", "kind", "limit", "kept"),
    [
        (["1", "5", "10"], "string", "5", "02"),
        (["1", "7", "x"], "int", 5, "012"),
        (["1", "7", "1_0"], "int", 5, "012"),
        (["1", "7", "3000000000"], "int", 5, "012"),
        (["1", "7", "3000000000"], "bigint", 5, "0"),
        (["1", "7/k=1"], "int", 5, "01"),
    ],
)
def test_a_recorded_type_of_a_partition_column_holds(
    tmp_path: Path, values: list[str], kind: str, limit: object, kept: str
) -> None:
    tables = {f"k={value}/{n}.parquet": pa.table({"a": [1]}) for n, value in enumerate(values)}
    write_indexed(tmp_path, tables, {"a": "bigint"}, INDEXES[:1], partitions=["k"], partition_types={"k": kind})
    found = geoskip.files(tmp_path, p.Comparison("<", p.Column("k", kind), p.Literal(limit, kind)))
    assert "".join(sorted(names(found))) == kept


def test_folders_with_different_partition_columns_have_none(tmp_path: Path) -> None:
    tables = {"k=1/0.parquet": pa.table({"a": [1]}), "j=1/1.parquet": pa.table({"a": [1]})}
    write_indexed(tmp_path, tables, {"a": "bigint"}, INDEXES[:1])
    found = geoskip.files(tmp_path, equal(p.Column("k", "int"), 2))
    assert names(found) == "10"
    assert "differ in their partition columns" in found.report.reasons[0]


def test_what_spark_does_not_read_is_not_listed(folder: Path) -> None:
    for hidden in ("_SUCCESS", ".x.crc", "_temporary/0/x.parquet", "month=01/.hidden/x.parquet", "x._COPYING_"):
        path = folder / hidden
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert len(geoskip.files(folder)) == 5


def test_files_that_metadata_cannot_name_are_kept(folder: Path) -> None:
    odd = os.fsencode(folder) + b"/month=01/q=x/\xff.parquet"
    shutil.copyfile(folder / "month=01/q=x/2.parquet", odd)
    found = geoskip.files(folder, equal(S, "nowhere"))
    assert [os.fsencode(file.path) for file in found][-1:] == [odd]
    assert found.report.files_kept == 2


def test_wrong_arguments_are_errors(folder: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="there is no file or folder"):
        geoskip.files(folder / "nothing")
    with pytest.raises(DatasetNotFoundError, match="name the folder"):
        geoskip.files(f"{folder}/*.parquet")
    with pytest.raises(DatasetNotFoundError, match=f"did you mean {folder}"):
        geoskip.files(f"{folder}x")
    with pytest.raises(InvalidSpecificationError, match=r"listing= is what .* got 'x'"):
        geoskip.files(folder, listing="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match=r"time_zone= is a name such as 'Europe/Oslo' .* got 'Mars'"):
        geoskip.files(folder, time_zone="Mars")
    with pytest.raises(InvalidSpecificationError, match="not a local path"):
        geoskip.files("s3://bucket/data")
    with pytest.raises(InvalidSpecificationError, match="where= is 7"):
        geoskip.files(folder, 7)
    with pytest.raises(InvalidSpecificationError, match="store= or metadata="):
        geoskip.files(folder, store=ParquetStore(folder / "_geoskip"), metadata="x")
    with pytest.raises(InvalidSpecificationError, match="metadata= is a local folder without Spark, got 's3://b/m'"):
        geoskip.files(folder, metadata="s3://b/m")


@pytest.mark.slow
def test_neither_pyspark_nor_py4j_is_imported(folder: Path) -> None:
    code = (
        "import sys, geoskip; from geoskip.predicates import *; "
        f"geoskip.files({str(folder)!r}, Comparison('>', Column('a', 'int'), Literal(25, 'int'))); "
        "print([name for name in ('pyspark', 'py4j') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize(("inside", "name"), [("metadata/v1.metadata.json", "Iceberg"), (".hoodie/x", "Hudi")])
def test_tables_whose_files_only_their_metadata_know_are_refused(tmp_path: Path, inside: str, name: str) -> None:
    (tmp_path / inside).parent.mkdir()
    (tmp_path / inside).touch()
    (tmp_path / "part=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part=1" / "0.parquet")
    for place in (tmp_path, tmp_path / "part=1", tmp_path / "part=1" / "0.parquet"):
        with pytest.raises(InvalidSpecificationError, match=f"{tmp_path} is a table of {name}"):
            geoskip.files(place)


@pytest.mark.parametrize(("zone", "kept"), [("UTC", "1"), ("Europe/Oslo", "01"), (None, "01")])
def test_times_of_int96_that_duckdb_shifts_keep_their_files(tmp_path: Path, zone: str | None, kept: str) -> None:
    for n in range(2):
        time = pa.array([dt.datetime(2024, 1, n + 1, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"t": time}), tmp_path / f"{n}.parquet", use_deprecated_int96_timestamps=True)
    geoskip.build(tmp_path, [geoskip.MinMax("t")])
    text = "t = TIMESTAMPTZ '2024-01-02 12:00:00+00'"
    found = geoskip.files(tmp_path, text, dialect="duckdb", time_zone=zone)
    assert "".join(sorted(names(found))) == kept
