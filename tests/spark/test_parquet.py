"""Parquet that Spark reads in a way of its own: old times, nanoseconds, types of pyarrow's, text that is no UTF-8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ParseException
from pyspark.sql import functions as F

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import UnknownColumnError, UnsupportedColumnError
from tests.conftest import files_kept, same_as_off

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_int96_and_times_of_the_old_calendar(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    frame = spark.sql(
        "SELECT id, timestamp_seconds(-13000000000 + id * 2000000000) AS at, "
        "date_add(date'1500-01-01', int(id * 20000)) AS day FROM range(8)"
    )
    for number, (kind, mode) in enumerate(
        [("INT96", "LEGACY"), ("TIMESTAMP_MICROS", "LEGACY"), ("TIMESTAMP_MILLIS", "CORRECTED")]
    ):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", mode)
        spark.conf.set("spark.sql.parquet.int96RebaseModeInWrite", mode)
        frame.repartitionByRange(4, "id").write.mode("append").parquet(place)
        assert number < 3
    for name in ("outputTimestampType", "datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
        spark.conf.unset(f"spark.sql.parquet.{name}")
    report = geoskip.dataset(spark, place).create_index(MinMax("at"), MinMax("day"))
    assert (report.files, report.excluded) == (12, {})
    assert "spark" in report.readers["minmax(at)"]
    wheres = ["day < date'1500-01-02'"]
    for row in frame.where("id IN (0, 3)").collect():
        wheres += [f"at = timestamp_seconds({-13000000000 + row.id * 2000000000})", f"day <= date'{row.day}'"]
    assert files_kept(spark.read.parquet(place), wheres)["day < date'1500-01-02'"] == 3
    other = spark.read.option("datetimeRebaseMode", "LEGACY").parquet(place)
    assert "is not used" in str(same_as_off(lambda: other.where("day < date'1500-01-02'")))


def test_nanoseconds_read_as_numbers(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        table = pa.table({"at": pa.array([number * 10**9], pa.timestamp("ns", "UTC"))})
        pq.write_table(table, tmp_path / f"{number}.parquet", version="2.6")
    with pytest.raises(geoskip.GeoskipError):
        geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("at"))
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    try:
        geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("at"))
        assert same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("at > 5")).files_kept == 1
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")


def test_types_that_pyspark_does_not_know(spark: Any, tmp_path: Path) -> None:
    setting, place = "spark.sql.timestampNanosTypes.enabled", str(tmp_path / "data")
    text = "concat('2020-01-0', id + 1, ' 00:00:00.123456789')"
    spark.conf.set(setting, "true")
    try:
        try:
            frame = spark.sql(f"SELECT id, CAST({text} AS TIMESTAMP_NTZ(9)) AS t FROM range(4)")
        except ParseException:
            pytest.skip("this Spark has no nanoseconds")
        frame.repartitionByRange(4, "id").write.parquet(place)
        dataset = geoskip.dataset(spark, place)
        with pytest.raises(UnsupportedColumnError, match=r"of type timestamp_ntz\(9\) it hands none"):
            dataset.create_index(MinMax("id"), MinMax("t"))
        with pytest.raises(UnknownColumnError, match="has no column at"):
            dataset.create_index(MinMax("at"))
        refused = r"does not support the column t of type timestamp_ntz\(9\), which PySpark does not know; "
        with pytest.raises(UnsupportedColumnError, match=rf"^append\(\) {refused}cast it"):
            dataset.append(frame)
        with pytest.raises(UnsupportedColumnError, match=rf"^append\(\) to {place} {refused}write the rows with Spark"):
            dataset.append(frame.withColumn("t", F.lit(1)))
        with pytest.raises(UnsupportedColumnError, match=rf"^rewrite\(\) {refused}write its rows with Spark"):
            dataset.rewrite(geoskip.Sort("id"))
        queries = [spark.read.parquet(place).where("id > 2")]
        with pytest.raises(UnsupportedColumnError, match=rf"^an estimate of a layout {refused}.*layouts=False"):
            geoskip.what_if(dataset, MinMax("id"), geoskip.Sort("id"), queries)
        assert "minmax(id)" in str(geoskip.what_if(dataset, MinMax("id"), queries=queries))
        dataset.create_index(MinMax("id"), ValueList("year(t)"), MinMax("CAST(t AS TIMESTAMP_NTZ)"))
        assert "max(id) > 2" in str(geoskip.why_not(queries[0]))
        dataset.refresh_index(mode="full")
        known = spark.read.parquet(place).selectExpr("id", "CAST(t AS TIMESTAMP_NTZ) AS t")
        assert set(files_kept(known, ["id > 2", "t > TIMESTAMP_NTZ '2020-01-04 00:00:00'"], every=1).values()) == {1}
    finally:
        spark.conf.unset(setting)


def test_pyarrows_own_types(spark: Any, tmp_path: Path) -> None:
    for number, text in enumerate(("a", "m", "z")):
        table = pa.table(
            {
                "wide": pa.array([text, None], pa.large_string()),
                "coded": pa.array([text, None]).dictionary_encode(),
                "bytes": pa.array([text.encode(), None], pa.large_binary()),
                "narrow": pa.array([number, None], pa.int8()),
                "unsigned": pa.array([2**32 - 1 - number, None], pa.uint32()),
                "huge": pa.array([2**63 + number * 10**15, None], pa.uint64()),
                "fixed": pa.array([text.encode() * 3, None], pa.binary(3)),
            }
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
    handle = geoskip.dataset(spark, str(tmp_path))
    handle.create_index(*(MinMax(name) for name in ("wide", "coded", "bytes", "narrow", "unsigned", "huge", "fixed")))
    wheres = (
        "wide = 'm'", "coded = 'm'", "bytes = x'6d'", "narrow = 1", "unsigned = 4294967294",
        f"huge = {2**63 + 10**15}BD", "fixed = x'6d6d6d'",
    )  # fmt: skip
    assert files_kept(handle.to_df(), wheres) == dict.fromkeys(wheres, 1)


@pytest.mark.slow
def test_strings_that_are_not_utf_8(spark: Any, tmp_path: Path) -> None:
    for number, text in enumerate((b"a\xff\x41\xc3", b"\xfe", b"ok")):
        bad = pa.Array.from_buffers(pa.string(), 1, pa.array([text]).buffers())
        pq.write_table(pa.table({"s": bad}), tmp_path / f"{number}.parquet")
    handle = geoskip.dataset(spark, str(tmp_path))
    for index in (MinMax("s"), MinMax("reverse(s)"), MinMax("concat(s, 'x')")):
        assert handle.create_index(index).excluded == {}
    where = "s = cast(x'fe' AS string)"
    wheres = [where, "s > 'a'", "s LIKE 'a%'", "concat(s, 'x') = 'okx'", "length(s) = 1"]
    assert files_kept(handle.to_df(), wheres)[where] == 1
