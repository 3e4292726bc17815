"""Settings of the session, of Hadoop and of the JVM that decide what Spark's readers make of a file.

Soundness rule 1: another session setting than recorded means keep. Each of these lost rows until it was recorded.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import functions as F

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import InvalidSpecificationError
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


@contextmanager
def settings(session: Any, values: Mapping[str, str]) -> Iterator[None]:
    """A block under other settings, and then as it was."""
    before = {name: session.conf.get(name, None) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            session.conf.unset(name) if old is None else session.conf.set(name, old)


def test_timestamps_of_96_bits_that_are_moved_to_the_sessions_zone(spark: Any, tmp_path: Path) -> None:
    for hour in (0, 12):
        table = pa.table({"ts": pa.array([datetime.datetime(2020, 1, 1, hour)], pa.timestamp("us"))})
        pq.write_table(table, tmp_path / f"{hour}.parquet", use_deprecated_int96_timestamps=True)
    handle = geoskip.dataset(spark, str(tmp_path))
    conversion, zone = "spark.sql.parquet.int96TimestampConversion", "spark.sql.session.timeZone"

    def at(hour: int) -> Any:
        moment = f"ts = timestamp'2020-01-01 {hour:02}:00:00+00:00'"
        return same_as_off(lambda: spark.read.parquet(str(tmp_path)).where(moment))

    handle.create_index(MinMax("ts"))
    assert at(12).files_kept == 1
    with settings(spark, {conversion: "true", zone: "America/New_York"}):
        assert at(17).files_kept == 2
        handle.create_index(MinMax("ts"))
        assert at(17).files_kept == 1
        spark.conf.set(zone, "Asia/Tokyo")
        report = at(3)
    assert report.files_kept == 2
    assert any(f"{zone}=America/New_York" in reason for reason in report.scans[0].reasons)


@pytest.mark.parametrize(("form", "line"), [("csv", "{}\n"), ("json", '{{"d":"{}"}}\n')])
def test_dates_that_are_parsed_as_of_old(spark: Any, tmp_path: Path, form: str, line: str) -> None:
    for number, day in enumerate(("2020-01-01", "2021-12-1")):
        (tmp_path / f"{number}.{form}").write_text(line.format(day))
    options = {"schema": "d date", "dateFormat": "yyyy-MM-dd"}

    def late() -> Any:
        return same_as_off(lambda: spark.read.format(form).load(str(tmp_path), **options).where("d > '2021-01-01'"))

    strict = {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}  # what Spark 4 does unless told otherwise
    with settings(spark, {**strict, f"spark.sql.legacy.{form}.enableDateTimeParsingFallback": "false"}):
        geoskip.dataset(spark, str(tmp_path), format=form, **options).create_index(MinMax("d"))
        assert late().files_kept == 0  # 2021-12-1 is not of the format, so it is NULL
    with settings(spark, {**strict, f"spark.sql.legacy.{form}.enableDateTimeParsingFallback": "true"}):
        report = late()
    assert report.files_kept == 2
    assert any(f"spark.sql.legacy.{form}.enable" in reason for reason in report.scans[0].reasons)


def test_dates_of_csv_that_are_read_as_casts(spark: Any, tmp_path: Path) -> None:
    """With preferDate=false and no dateFormat, Spark parses dates as its casts do, whatever the fallback is."""
    for number, day in enumerate(("2020-01-01", "2021-12-1")):
        (tmp_path / f"{number}.csv").write_text(f"{day}\n")
    options = {"schema": "d date", "enableDateTimeParsingFallback": "false"}

    def late(**more: str) -> Any:
        return same_as_off(
            lambda: spark.read.format("csv").load(str(tmp_path), **options, **more).where("d > '2021-01-01'")
        )

    with settings(spark, {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}):  # what Spark 4 does anyway
        geoskip.dataset(spark, str(tmp_path), format="csv", **options).create_index(MinMax("d"))
        assert late().files_kept == late(preferDate="True").files_kept == 0  # 2021-12-1 is not of the format
        report = late(preferDate="false")
    assert report.files_kept == 2
    assert any("preferdate" in reason for reason in report.scans[0].reasons)


@pytest.mark.parametrize(("form", "line"), [("csv", "{},1\n"), ("json", '{{"s":"{}","n":1}}\n'), ("text", "{}\n")])
def test_lines_that_hadoop_leaves_out_as_too_long(spark: Any, tmp_path: Path, form: str, line: str) -> None:
    for number, text in enumerate(("short", "x" * 100)):
        (tmp_path / f"{number}.{form}").write_text(line.format(text))
    schema, column = ("value string", "value") if form == "text" else ("s string, n int", "s")

    def long() -> Any:
        frame = spark.read.schema(schema).format(form).load(str(tmp_path))
        return same_as_off(lambda: frame.where(f"{column} LIKE 'xxx%'"))

    with settings(spark, {"mapreduce.input.linerecordreader.line.maxlength": "50"}):
        geoskip.dataset(spark, str(tmp_path), format=form, schema=schema).create_index(MinMax(column))
        assert long().files_kept == 0
    report = long()
    assert report.files_kept == 2
    assert any("line.maxlength=50" in reason for reason in report.scans[0].reasons)


@pytest.mark.slow
def test_a_pandas_udf_sees_local_times(spark: Any, parts: Callable[..., Path]) -> None:
    @F.pandas_udf("int")
    def hour_of(moments: pd.Series) -> pd.Series:
        return moments.dt.hour.astype("int32")

    spark.udf.register("hour_of", hour_of)
    times = [pa.array([datetime.datetime(2020, 1, 1, hour)], pa.timestamp("us", "UTC")) for hour in (0, 12)]
    place = str(parts(*(pa.table({"ts": time}) for time in times)))
    geoskip.dataset(spark, place).create_index(MinMax("hour_of(ts)"))
    assert same_as_off(lambda: spark.read.parquet(place).where("hour_of(ts) = 12")).files_kept == 1
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        assert same_as_off(lambda: spark.read.parquet(place).where("hour_of(ts) = 7")).files_kept == 2


@pytest.mark.slow
def test_columns_of_orc_found_by_position(spark: Any, tmp_path: Path) -> None:
    named, hive = str(tmp_path / "named"), str(tmp_path / "hive")
    for number in (1, 2):
        row = spark.createDataFrame([(number, number * 100)], "a int, b int").coalesce(1)
        row.write.mode("append").orc(named)
        row.toDF("_col0", "_col1").write.mode("append").orc(hive)  # as Hive wrote them

    def b_is(place: str, value: int, schema: str) -> Any:
        return same_as_off(lambda: spark.read.schema(schema).orc(place).where(f"b = {value}"))

    for place in (named, hive):
        geoskip.dataset(spark, place, format="orc", schema="a int, b int").create_index(MinMax("a"), MinMax("b"))
        assert b_is(place, 200, "a int, b int").files_kept == 1
    report = b_is(hive, 2, "b int, a int")
    assert report.files_kept == 2
    assert any("in another place" in reason for reason in report.scans[0].reasons)
    with settings(spark, {"orc.force.positional.evolution": "true"}):
        assert b_is(named, 200, "a int, b int").files_kept == 2


def test_an_index_over_times_of_orc_knows_the_jvms_zone(spark: Any, tmp_path: Path) -> None:
    """ORC keeps what the clock on the wall showed: in another zone the same file holds other moments."""
    for hour in ("00", "12"):
        spark.sql(f"SELECT timestamp'2020-01-01 {hour}:00:00' AS ts").write.mode("append").orc(str(tmp_path))
    geoskip.dataset(spark, str(tmp_path), format="orc").create_index(MinMax("ts"))
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    try:
        zones.setDefault(zones.getTimeZone("America/New_York"))
        report = geoskip.explain(spark.read.orc(str(tmp_path)).where("ts = timestamp'2020-01-01 17:00:00+00:00'"))
    finally:
        zones.setDefault(before)
    assert report.files_kept == 2
    assert any("the JVM's time zone" in reason for reason in report.scans[0].reasons)


def test_times_of_the_old_calendar_know_the_jvms_zone(spark: Any, tmp_path: Path) -> None:
    """Before 1900 the old calendar's zones had other offsets, and a file without its zone is of the reader's."""
    for hour in (0, 12):
        table = pa.table({"ts": pa.array([datetime.datetime(1800, 1, 1, hour)], pa.timestamp("us"))})
        pq.write_table(table, tmp_path / f"{hour}.parquet", use_deprecated_int96_timestamps=True)
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    with settings(spark, {"spark.sql.parquet.int96RebaseModeInRead": "LEGACY"}):
        geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("ts"))
        try:
            zones.setDefault(zones.getTimeZone("America/New_York"))
            shown = spark.read.parquet(str(tmp_path)).selectExpr("max(cast(ts AS string))").first()[0]
            report = same_as_off(lambda: spark.read.parquet(str(tmp_path)).where(f"ts = timestamp'{shown}'"))
        finally:
            zones.setDefault(before)
    assert shown != "1800-01-01 12:00:00"
    assert report.files_kept == 2


def write_old_times(place: Path, *, int96: bool) -> None:
    """Files with times before 1900; Spark reads those of old.parquet otherwise in another zone of the JVM."""
    by = {b"org.apache.spark.version": b"2.4.8"}
    written = {"old": by, "new": by, "corrected": {b"org.apache.spark.version": b"3.5.0"}}
    written["zoned"] = {**by, b"org.apache.spark.timeZone": b"America/Los_Angeles"}
    for name, entries in written.items():
        moment = datetime.datetime(2000 if name == "new" else 1800, 1, 1)
        times = pa.array([moment], pa.timestamp("us", None if int96 else "UTC"))
        table = pa.table({"ts": times, "1e5": times, "some": pa.StructArray.from_arrays([times], ["ts"])})
        path = place / f"{name}.parquet"
        pq.write_table(table.replace_schema_metadata(entries), path, use_deprecated_int96_timestamps=int96)


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("expression", ["ts", "`1e5`", "date_trunc('minute', ts)", "some.ts", "array(some).ts[0]"])
def test_old_times_of_spark_2_are_of_the_zone_of_the_jvm_that_reads_them(
    spark: Any, tmp_path: Path, expression: str, int96: bool
) -> None:
    """Spark rebases them whatever the settings are; only files that name their zone are the same in all sessions."""
    place = tmp_path / "of Spark 2"
    place.mkdir()
    write_old_times(place, int96=int96)
    report = geoskip.dataset(spark, str(place)).create_index(MinMax(expression))
    assert [*report.excluded] == ["old.parquet"]
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    try:
        zones.setDefault(zones.getTimeZone("America/New_York"))
        for row in spark.read.parquet(str(place)).selectExpr(f"cast({expression} AS string) AS shown").collect():
            where = f"{expression} = timestamp'{row.shown}'"
            report = same_as_off(lambda where=where: spark.read.parquet(str(place)).where(where))
            assert report.files_kept <= 2
    finally:
        zones.setDefault(before)


def test_a_default_that_is_a_time_is_of_the_sessions_zone(spark: Any) -> None:
    """Spark keeps the default of a new column as SQL, and evaluates it anew in the zone of each session."""
    spark.sql("CREATE TABLE dated (a INT) USING parquet")
    try:
        spark.sql("INSERT INTO dated VALUES (1)")
        spark.sql("ALTER TABLE dated ADD COLUMN ts TIMESTAMP DEFAULT timestamp'2020-01-01 00:00:00'")
        spark.sql("INSERT INTO dated VALUES (2, timestamp'2021-01-01 00:00:00')")
        geoskip.dataset(spark, table="dated").create_index(MinMax("ts"))

        def at(hour: int) -> Any:
            return same_as_off(lambda: spark.table("dated").where(f"ts = timestamp'2020-01-01 {hour:02}:00:00+00:00'"))

        assert at(0).files_kept == 1
        with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
            spark.catalog.refreshTable("dated")
            assert at(5).files_kept == 2
    finally:
        spark.sql("DROP TABLE dated")


def test_whether_a_struct_is_null_is_not_indexed(spark: Any, parts: Callable[..., Path]) -> None:
    """A file that lacks the fields that a query reads has the struct NULL, to queries of others it is not."""
    place = str(parts(*(pa.table({"s": [row]}) for row in ({"x": 1}, {"x": 2, "z": 5}))))
    handle = geoskip.dataset(spark, place, schema="s struct<x: bigint, z: bigint>")
    with pytest.raises(InvalidSpecificationError, match="asks whether s is NULL"):
        handle.create_index(MinMax("s.x"), MinMax("isnull(s)"))
    handle.create_index(MinMax("s.x"), MinMax("s.z"))
    assert same_as_off(lambda: handle.to_df().where("s IS NULL").select("s.z")).files_kept == 2
    assert same_as_off(lambda: handle.to_df().where("s.x = 1")).files_kept == 1


def test_whether_an_array_of_structs_is_null_is_not_indexed(spark: Any, parts: Callable[..., Path]) -> None:
    """``size(r.z)`` is NULL where a file lacks z, but 2 to a query that reads ``r.x`` as well."""
    rows: list[list[dict[str, int]]] = [[{"x": 1}, {"x": 2}], [{"x": 3, "z": 5}]]
    handle = geoskip.dataset(
        spark, str(parts(*(pa.table({"r": [row]}) for row in rows))), schema="r array<struct<x: bigint, z: bigint>>"
    )
    for text in ("size(r.z)", "array_join(r.z, ',', 'N')", "r.z[0] + size(r.z)"):
        with pytest.raises(InvalidSpecificationError, match="asks whether r is NULL"):
            handle.create_index(ValueList(text))
    handle.create_index(ValueList("r.z[0]"), ValueList("size(r)"), ValueList("element_at(r.x, 1)"))
    for where, kept in {"size(r.z) = 2": 2, "size(r) = 2": 1, "r.z[0] = 5": 1, "element_at(r.x, 1) = 1": 1}.items():
        for columns in (["r.x"], ["r.z"], ["r"]):
            assert same_as_off(lambda w=where, c=columns: handle.to_df().where(w).select(*c)).files_kept == kept


def test_times_of_orc_in_another_calendar(spark: Any, tmp_path: Path) -> None:
    for number, year in enumerate((1500, 2020)):
        orc.write_table(pa.table({"d": [datetime.date(year, 3, 3)]}), tmp_path / f"{number}.orc")
    geoskip.dataset(spark, str(tmp_path), format="orc").create_index(MinMax("d"))

    def old() -> Any:
        return same_as_off(lambda: spark.read.orc(str(tmp_path)).where("d = date'1500-03-03'"))

    assert old().files_kept == 0  # without a note in the file it is a day of the Julian calendar
    with settings(spark, {"orc.proleptic.gregorian.default": "true"}):
        report = old()
    assert report.files_kept == 2
    assert any("orc.proleptic.gregorian.default" in reason for reason in report.scans[0].reasons)


def test_files_read_by_another_session(spark: Any, tmp_path: Path) -> None:
    """Through a global temporary view, the settings of the session that made it decide what the files hold."""
    for number, hour in enumerate(("00", "15")):
        (tmp_path / f"{number}.csv").write_text(f"2020-01-01 {hour}:00:00\n")
    options = {"format": "csv", "schema": "ts timestamp"}
    other = spark.newSession()
    other.read.load(str(tmp_path), **options).createOrReplaceGlobalTempView("of_another_session")
    view = "global_temp.of_another_session"

    def at(hour: int) -> Any:
        return same_as_off(lambda: spark.table(view).where(f"ts = timestamp'2020-01-01 {hour:02}:00:00+00:00'"))

    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        geoskip.dataset(spark, str(tmp_path), **options).create_index(ValueList("ts"))
        other.conf.set("spark.sql.session.timeZone", "UTC")
        assert at(15).files_kept == 1
        other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        report = at(6)  # 15 o'clock in Tokyo
        with pytest.raises(InvalidSpecificationError, match="another session reads these files"):
            geoskip.dataset(spark, table=view).create_index(MinMax("ts"))
    assert report.files_kept == 2
    assert any("another session" in reason and "Asia/Tokyo" in reason for reason in report.scans[0].reasons)


def test_a_column_of_corrupt_records_by_the_case_of_its_name(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"{number},{number + 10},{number + 20}\n")
    options = {"schema": "a int, _CORRUPT_RECORD string, b int"}
    geoskip.dataset(spark, str(tmp_path), format="csv", **options).create_index(MinMax("b"))

    def b_is(value: int) -> Any:
        return same_as_off(lambda: spark.read.csv(str(tmp_path), **options).where(f"b = {value}"))

    assert b_is(21).files_kept == 1
    with settings(spark, {"spark.sql.columnNameOfCorruptRecord": "_CORRUPT_RECORD"}):  # then b is the second column
        assert b_is(11).files_kept == 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [("binary", '"!!"'), ("struct<x: array<binary>>", '{"x": ["!!"]}'), ("void", "1"), ("variant", '{"x": 1, "x": 2}')],
)
def test_json_that_is_null_as_a_whole(spark: Any, tmp_path: Path, kind: str, value: str) -> None:
    """Where text is no Base64 and the like, Spark reads the whole record as NULL, but only if the column is read."""
    if kind == "variant" and spark.version < "4":
        pytest.skip("variants came with Spark 4")
    (tmp_path / "0.json").write_text(f'{{"a": 1, "b": {value}}}\n')

    def read(schema: str) -> Any:
        return spark.read.schema(schema).json(str(tmp_path))

    geoskip.dataset(spark, str(tmp_path), format="json", schema="a int").create_index(ValueList("a"))
    assert same_as_off(lambda: read("a int").where("coalesce(a, 9) = 9")).files_kept == 0
    assert same_as_off(lambda: read(f"a int, b {kind}").where("coalesce(a, 9) = 9")).files_kept == 1
    with pytest.raises(InvalidSpecificationError, match=r"a column of type (binary|void|variant)"):
        geoskip.dataset(spark, str(tmp_path), format="json", schema=f"a int, b {kind}").create_index(MinMax("a"))


def test_settings_that_change_between_planning_and_run(spark: Any, tmp_path: Path) -> None:
    """Spark takes the literals of a condition from the planning, but reads the files as the session is at the run."""
    for number, year in enumerate((1500, 2020)):
        pq.write_table(pa.table({"d": [datetime.date(year, 3, 3)]}), tmp_path / f"{number}.parquet")
    mode = "spark.sql.parquet.datetimeRebaseModeInRead"

    def planned() -> Any:
        frame = spark.read.parquet(str(tmp_path)).where("d = date'1500-02-22'")
        assert geoskip.report(frame).files_kept == 0
        return frame

    with settings(spark, {mode: "CORRECTED"}):
        geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("d"))
        kept, julian = planned(), planned()
        with settings(spark, {"spark.geoskip.audit": "0", "spark.sql.shuffle.partitions": "3"}):
            assert kept.collect() == []
        assert geoskip.report(kept).files_kept == 0
    with settings(spark, {mode: "LEGACY"}):
        assert len(julian.collect()) == 1
    report = geoskip.report(julian)
    assert report.files_kept == 2
    assert "a setting changed" in str(report)


@pytest.mark.parametrize("rechecks", ["1000", "0"])  # of skipped files, as if these were very many
def test_settings_that_change_between_two_runs(spark: Any, tmp_path: Path, rechecks: str) -> None:
    """Tasks parse text as the session is set at each run, though Spark lists a plan's files once."""
    for number, day in enumerate(("2020-1-1", "2020-02-02")):
        (tmp_path / f"{number}.csv").write_text(f"{day}\n")
    options = {"format": "csv", "schema": "d date", "dateFormat": "yyyy-MM-dd"}
    own = {"spark.sql.legacy.timeParserPolicy": "CORRECTED", "spark.geoskip.fingerprint.maxRechecks": rechecks}
    with settings(spark, own):
        geoskip.dataset(spark, str(tmp_path), **options).create_index(MinMax("d"))
        frame = spark.read.load(str(tmp_path), **options).where("d = date'2020-01-01'")
        assert frame.collect() == []
        assert geoskip.report(frame).files_kept == 0
    with settings(spark, {"spark.sql.legacy.timeParserPolicy": "LEGACY"}):
        assert len(frame.collect()) == 1
