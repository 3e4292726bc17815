"""What geoskip does not know exactly it leaves alone, and says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import EnvironmentProblem, GeoskipError
from geoskip.spark.build import spark_reader
from tests.conftest import delta_package, same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, indexed."""
    root = tmp_path_factory.mktemp("alone") / "data"
    root.mkdir()
    for number in range(4):
        temps = list(range(10 * number, 10 * number + 10))
        pq.write_table(pa.table({"temp": temps}), root / f"part-{number}.parquet")
    geoskip.dataset(spark, str(root)).create_index(MinMax("temp"))
    return root


def says(report: geoskip.Report, words: str) -> bool:
    print(report)  # pytest shows it where an assertion fails
    return any(words in reason for reason in report.reasons)


def read(spark: Any, place: Path) -> Any:
    return spark.read.parquet(str(place))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "kept"),
    [
        ("SAMPLE", "sample", 4),
        ("LIMIT", "limit", 3),  # that hold the first 30 rows of the order
        ("LIMIT", "offset", 3),
        ("observe", "observe", 4),
        ("Window", "window", 4),
    ],
)
def test_a_filter_above_what_counts_rows(spark: Any, place: Path, name: str, rows: str, kept: int) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen: list[Any] = []

    def make() -> Any:
        frame = read(spark, place).orderBy("temp")
        if rows == "sample":
            return read(spark, place).sample(fraction=0.99, seed=7).where("temp > 25")
        if rows == "limit":
            return frame.limit(30).where("temp > 25")
        if rows == "offset":
            return spark.sql("SELECT * FROM {f} ORDER BY temp LIMIT 20 OFFSET 10", f=read(spark, place)).where(
                "temp > 25"
            )
        if rows == "window":
            return frame.selectExpr("temp", "count(*) OVER () AS n").where("temp > 25 AND n = 40")
        seen.append(Observation())
        return read(spark, place).observe(seen[-1], F.count(F.lit(1)).alias("n")).where("temp > 25")

    report = same_as_off(make)
    assert (report.files_kept, report.files_total) == (kept, 4)
    assert says(report, f"above {name}")
    assert [observation.get["n"] for observation in seen[1:]] in ([], [40, 40], [40])


def test_a_filter_below_them_still_skips(spark: Any, place: Path) -> None:
    report = same_as_off(lambda: read(spark, place).where("temp < 15").orderBy("temp").limit(12).where("temp > 5"))
    assert (report.files_kept, report.files_total) == (2, 4)
    assert says(report, "above LIMIT")


def test_a_stream(spark: Any, place: Path, tmp_path: Path) -> None:
    stream = spark.readStream.schema("temp bigint").parquet(str(place)).where("temp > 25")
    assert says(geoskip.report(stream), "stream")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination(120)
    assert sorted(row.temp for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(26, 40))


def test_scans_of_datasource_v2(spark: Any, place: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.sources.useV1SourceList", "")
    frame = read(own, place).where("temp > 25")
    assert len(frame.collect()) == 14
    report = geoskip.report(frame)
    assert (report.files_kept, report.files_total) == (4, 4)
    assert says(report, "DataSource V2")
    with pytest.raises(GeoskipError, match="DataSource V2"):
        geoskip.dataset(own, str(place)).create_index(MinMax("temp"))


def test_what_is_no_relation_of_files(spark: Any) -> None:
    for frame in (spark.range(10), spark.createDataFrame([(1,)], "a int"), spark.sql("SELECT * FROM VALUES (1), (2)")):
        assert len(frame.where("true").collect()) > 0
        report = geoskip.report(frame)
        assert report.scans == ()
        assert says(report, "left alone")
        assert "reads no files" in str(report)
        assert "left alone" in report._repr_html_()


def test_a_format_that_geoskip_does_not_know(spark: Any, place: Path) -> None:
    binary = spark.read.format("binaryFile").load(str(place)).where("length > 0")
    assert len(binary.collect()) == 4
    assert says(geoskip.report(binary), "does not know the file format")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"unescapedQuoteHandling": "back_to_delimiter"}, '1,2,3\n"a"b,x"y,"y"z\np,q,r\n'),
        ({"sep": ",,"}, '1,,2,,3\n",, "a\n'),
        ({"multiLine": True, "columnPruning": "TRUE", "escape": '"'}, '5,",",","\n3,"",No\n"10","b""c"" d",""\n'),
    ],
    ids=["text left over", "long separator", "several lines"],
)
def test_csv_whose_values_depend_on_the_columns_read(
    spark: Any, tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    (tmp_path / "part-0.csv").write_text(text)
    (tmp_path / "part-1.csv").write_text(options.get("sep", ",").join("xyz") + "\n")
    schema = "a string, b string, c string"
    with pytest.raises(GeoskipError, match="depends on the columns read beside it"):
        geoskip.dataset(spark, str(tmp_path), format="csv", schema=schema, **options)
    whole = {**options, "columnPruning": False}
    geoskip.dataset(spark, str(tmp_path), format="csv", schema=schema, **whole).create_index(ValueList("b"))

    def read(options: dict[str, Any], column: str, value: str) -> Any:
        return spark.read.schema(schema).options(**options).csv(str(tmp_path)).where(f"{column} = '{value}'")

    assert same_as_off(lambda: read(whole, "b", "y")).files_kept == 1
    for column, value in [("a", "p"), ("a", "3"), ("b", "xy"), ("b", ' "a')]:
        assert same_as_off(lambda c=column, v=value: read(options, c, v)).files_kept == 2


@pytest.mark.parametrize(
    ("options", "twofold", "value"),
    [
        ({}, r'"C:\\",",x",y1,z1', ",x"),
        ({"escape": '"', "sep": r"\t"}, '""\t"\t Inc"\ty1\tz1', "\t Inc"),
        ({"charToEscapeQuoteEscaping": "^", "encoding": "ISO-8859-1"}, r'"C:^\",",x",y1,z1', ",x"),
        ({"charToEscapeQuoteEscaping": "^", "escape": '"', "quote": "'"}, """'^"',',x',y1,z1""", ",x"),
        ({"charToEscapeQuoteEscaping": "^", "escape": '"'}, '"",",x",y1,z1', ",x"),
    ],
)
def test_csv_records_that_spark_reads_in_two_ways(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], twofold: str, value: str
) -> None:
    """The parser ends a skipped quoted value elsewhere than one that the query reads."""
    between, quote, escape = (options.get(*item) for item in [("sep", ","), ("quote", '"'), ("escape", "\\")])
    common = f"{quote}a {escape}{quote}b{escape}{quote} c{quote},x2,{quote}{quote},{quote}{escape}{quote}q{quote}"
    for number, record in enumerate([twofold, common.replace(",", "\t" if between == r"\t" else ","), "p"]):
        (tmp_path / f"part {number}%.csv").write_text(f"w,x,y,z\n{record}\n")
    schema = "a string, b string, c string, d string"
    handle = geoskip.dataset(spark, str(tmp_path), format="csv", schema=schema, **options)

    def files_kept(value: str) -> int:
        frame = spark.read.schema(schema).options(**options).csv(str(tmp_path))
        return int(same_as_off(lambda: frame.where(f"b = '{value}'")).files_kept)

    built = handle.create_index(ValueList("b"))
    assert "an escaped quote or escape character" in str(built)
    left_out = str(built).count("%.csv: ")
    assert files_kept("x2") == 2
    assert files_kept(value) == left_out
    monkeypatch.setattr(spark_reader, "ambiguous_line", lambda relation: None)
    handle.refresh_index("full")
    with pytest.raises(AssertionError):
        files_kept(value)


@pytest.mark.skipif(not pyspark.__version__.startswith(("3.", "4.0")), reason="later Sparks ignore null options")
def test_an_option_that_is_null(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "part.csv").write_text("a,b\n")
    schema = "a string, b string"
    with pytest.raises(GeoskipError, match="its option quote is null"):
        geoskip.dataset(spark, str(tmp_path), format="csv", schema=schema, quote=None)
    geoskip.dataset(spark, str(tmp_path), format="csv", schema=schema).create_index(ValueList("b"))
    report = same_as_off(lambda: spark.read.schema(schema).option("quote", None).csv(str(tmp_path)).where("b = 'c'"))
    assert says(report, "its option quote is null")


@pytest.mark.parametrize("options", [{"encoding": "UTF-16"}, {"charset": "ISO-8859-1", "sep": "¦"}])
def test_csv_in_encodings_whose_lines_are_not_searched(spark: Any, tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "part.csv").write_text("a,b\n")
    with pytest.raises(GeoskipError, match=r"cannot be indexed: with encoding=.* set spark\.sql\.csv"):
        geoskip.dataset(spark, str(tmp_path), format="csv", schema="a string, b string", **options)
    geoskip.dataset(spark, str(tmp_path), format="csv", schema="a string", columnPruning=False, **options)


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "dropMalformed"])
def test_rows_that_depend_on_the_columns_read(spark: Any, tmp_path: Path, mode: str) -> None:
    for number, bad in enumerate(("x", "5")):
        (tmp_path / f"part-{number}.csv").write_text(f"{number},{bad}\n{number + 10},7\n")
    geoskip.dataset(spark, str(tmp_path), format="csv", schema="temp int, b int").create_index(MinMax("temp"))

    def read(mode: str) -> Any:
        return spark.read.schema("temp int, b int").csv(str(tmp_path), mode=mode)

    assert same_as_off(lambda: read("PERMISSIVE").where("temp = 0")).files_kept == 1
    for columns in (["temp"], ["temp", "b"]):
        report = same_as_off(lambda c=columns: read(mode).where("temp = 0").select(*c))
        assert report.files_kept == 2
        assert says(report, "DROPMALFORMED")
    with pytest.raises(GeoskipError, match="DROPMALFORMED"):
        geoskip.dataset(spark, str(tmp_path), format="csv", schema="temp int, b int", mode=mode).create_index(
            MinMax("temp")
        )


def test_spark_connect() -> None:
    class Remote:
        """What a Connect session is to geoskip: one without a driver's session, of a class of Spark's."""

        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(EnvironmentProblem, match="Connect") as raised:
        geoskip.enable(Remote())  # type: ignore[arg-type]
    assert "geoskip.connect_server(spark)" in str(raised.value)
    assert not geoskip.is_enabled(Remote())  # type: ignore[arg-type]
    with pytest.raises(EnvironmentProblem, match=r"got None.*SparkSession.builder"):
        geoskip.dataset(None, "data")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.skipif(delta_package() is None, reason="no Delta release for this Spark is known to the tests")
def test_delta_with_deletion_vectors_and_an_update(spark: Any, tmp_path: Path) -> None:
    own = spark.newSession()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        own.conf.set(key, "1")
    place = str(tmp_path / "delta")
    frame = own.range(40).selectExpr("id AS temp", "id % 3 AS city").repartitionByRange(4, "temp")
    frame.write.format("delta").option("delta.enableDeletionVectors", "true").save(place)
    table = f"delta.`{place}`"
    own.sql(f"DELETE FROM {table} WHERE temp IN (31, 3)")
    own.sql(f"UPDATE {table} SET temp = 5 WHERE temp = 38")
    entries = [json.loads(line) for file in Path(place, "_delta_log").glob("*.json") for line in file.open()]
    assert any(entry.get("add", {}).get("deletionVector") for entry in entries)
    # metadata over the bare files, which a reader of Delta must not meet
    bare = geoskip.dataset(own, place, metadata=str(tmp_path / "meta"), pathGlobFilter="*.parquet")
    with pytest.warns(UserWarning, match="is a table of Delta"):
        bare.create_index(MinMax("temp"))
    report = same_as_off(lambda: own.sql(f"SELECT * FROM {table} WHERE temp > 25"))
    assert says(report, "it was built over ParquetFileFormat, the query reads DeltaParquetFileFormat")
    rows = own.read.format("delta").load(place).where("temp > 25 OR temp = 5").collect()
    assert sorted(row.temp for row in rows) == sorted([5, 5, *({*range(26, 40)} - {31, 38})])
