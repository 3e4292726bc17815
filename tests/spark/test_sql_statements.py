"""Statements on skipping indexes through a session: answers, files read, and errors with their places."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import IllegalArgumentException, ParseException
from pyspark.sql import SparkSession

import geoskip
from geoskip.errors import DatasetNotFoundError, GeoskipError, StatementError, UnknownColumnError
from geoskip.spark import session
from tests.conftest import four_tens, kept, same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return four_tens(tmp_path)


@pytest.fixture
def table(spark: Any, data: Path) -> Iterator[str]:
    spark.sql(f"CREATE TABLE ten_degrees USING parquet LOCATION '{data}'")
    yield "ten_degrees"
    spark.sql("DROP TABLE ten_degrees")


def files_read(spark: Any, data: Path, condition: str = "temp > 25") -> int:
    return same_as_off(lambda: spark.read.parquet(str(data)).where(condition)).files_kept


@pytest.mark.slow
def test_an_index_lives_from_statement_to_statement(spark: Any, data: Path, table: str) -> None:
    """Created, used, refreshed, dropped, restored, optimized, vacuumed; on a table, by its path, as a format's path."""

    def run(text: str) -> list[Any]:
        return spark.sql(text).collect()

    created = run(f"CREATE SKIPPING INDEX ON `{table}` (temp MINMAX, city VALUELIST(limit = 5))")
    assert [(row["index"], row.files, row.rows, row.files_read) for row in created] == [
        ("minmax(temp)", 4, 40, 4),
        ("valuelist(city, limit=5)", 4, 40, 4),
    ]
    assert files_read(spark, data) == 2
    (as_before,) = run(f"CREATE SKIPPING INDEX IF NOT EXISTS ON `{table}` (temp MINMAX)")
    assert (as_before["index"], as_before.reader, as_before.snapshot) == ("minmax(temp)", "as before", 1)
    (added,) = run(f"CREATE SKIPPING INDEX IF NOT EXISTS ON `{table}` (temp MINMAX, id MINMAX)")[-1:]
    assert (added["index"], added.snapshot) == ("minmax(id)", 2)

    pq.write_table(pq.read_table(data / "part-0.parquet"), data / "part-4.parquet")
    assert {row.files_uncovered for row in run(f"DESCRIBE SKIPPING INDEX ON '{data}'")} == {1}
    assert {row.files_read for row in run(f"REFRESH SKIPPING INDEX ON parquet.`{data}`")} == {1}
    assert files_read(spark, data) == 2

    assert [tuple(row) for row in run(f"DROP SKIPPING INDEX minmax(temp) ON '{data}'")] == [("minmax(temp)", "deleted")]
    assert files_read(spark, data) == 5
    assert run(f"RESTORE SKIPPING INDEX 'minmax(temp)' ON '{data}'")[0].state == "in use"
    assert files_read(spark, data) == 2
    assert {row.snapshot for row in run(f"OPTIMIZE SKIPPING INDEX ON '{data}'")} == {6}
    (vacuumed,) = run(f"VACUUM SKIPPING INDEX ON '{data}' RETAIN 0 HOURS")
    assert vacuumed.snapshots == [1, 2, 3, 4, 5, 6]
    assert {row.files_read for row in run(f"REFRESH SKIPPING INDEX ON '{data}' FULL")} == {5}
    assert run(f"REPAIR SKIPPING INDEX ON '{data}'")[0].files == 5

    shown = [row for row in run("SHOW SKIPPING INDEXES") if row.dataset.endswith(str(data))]
    of_tables = [row for row in run("SHOW SKIPPING INDEXES IN default") if row.dataset == f"default.{table}"]
    assert (
        [row["index"] for row in shown]
        == [row["index"] for row in of_tables]
        == [
            "valuelist(city, limit=5)",
            "minmax(id)",
            "minmax(temp)",
        ]
    )


def test_statements_without_rows_answer_none(spark: Any) -> None:
    spark.sql("CREATE DATABASE IF NOT EXISTS without_indexes")
    assert spark.sql("SHOW SKIPPING INDEXES IN without_indexes").collect() == []
    spark.sql("DROP DATABASE without_indexes")


def test_drop_if_exists(spark: Any, data: Path) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON '{data}' (temp MINMAX)").collect()
    dropping = f"DROP SKIPPING INDEX IF EXISTS id MINMAX, temp MINMAX ON '{data}'"
    assert [row["index"] for row in spark.sql(dropping).collect()] == ["minmax(temp)"]
    assert spark.sql(dropping).collect() == []
    assert spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON '{data}'").collect() == []


def test_explain_shows_what_a_query_would_read(spark: Any, data: Path) -> None:
    geoskip.sql(spark, f"CREATE SKIPPING INDEX ON '{data}' (temp MINMAX)")
    query = f"SELECT count(*) FROM parquet.`{data}` WHERE temp > 25 AND sqrt(id) < 1"
    (scan,) = geoskip.sql(spark, f"EXPLAIN SKIPPING {query}").collect()
    assert (scan.files_read, scan.files_total) == (2, 4)
    assert scan.skipped_by == ["max(temp) > 25: 2 files"]
    assert "sqrt" in scan.condition.lower()
    assert geoskip.sql(spark, "EXPLAIN SKIPPING SELECT 1").collect()[0].dataset is None
    with geoskip.disabled(spark):
        assert geoskip.sql(spark, f"EXPLAIN SKIPPING {query}").collect()[0].files_read == 4


def test_options_reach_the_reader_and_the_place_of_the_metadata(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name, first in (("a", 1), ("b", 10)):
        (tmp_path / "log" / f"{name}.csv").write_text(f"size;city\n{first};x\n{first + 1};y\n")
    there = f"csv.`{tmp_path}/log`"
    options = f"WITH (header = true, sep = ';', schema = 'size int, city string', metadata = '{tmp_path}/meta')"
    assert geoskip.sql(spark, f"CREATE SKIPPING INDEX ON {there} (size MINMAX) {options}").count() == 1
    assert (tmp_path / "meta").is_dir()
    frame = spark.read.csv(str(tmp_path / "log"), header=True, sep=";", schema="size int, city string")
    report = same_as_off(lambda: frame.where("size > 5"))
    assert kept(report) == "b"


@pytest.mark.parametrize(
    ("text", "error", "pointed_at", "says"),
    [
        ("CREATE SKIPPING INDEX ON '{data}' (temp MINMAX, tmp MINMAX)", UnknownColumnError, "tmp MINMAX", "mean temp"),
        ("REFRESH SKIPPING INDEX ON no.such_table", DatasetNotFoundError, "no.such_table", "cannot be found"),
        ("DESCRIBE SKIPPING INDEX ON '{data}'", GeoskipError, "'{data}'", "CREATE SKIPPING INDEX ON '/"),
        (
            "CREATE SKIPPING INDEX ON '{data}' (temp MINMAX) WITH (store = 'x')",
            StatementError,
            "store",
            "no option store",
        ),
        (
            "CREATE SKIPPING INDEX ON '{data}' (temp MINMAX) WITH (metdata = 'x')",
            StatementError,
            "metdata",
            "metadata?",
        ),
        ("EXPLAIN SKIPPING SELECT *\n FROM parquet.`{data}` WHERE tmp > 1", StatementError, "tmp", "temp"),
        ("EXPLAIN SKIPPING SELEC 1", StatementError, "SELEC", "SELEC"),
        ("EXPLAIN SKIPPING DROP SKIPPING INDEX ON '{data}'", GeoskipError, "", "takes a query, got a command"),
        ("EXPLAIN SKIPPING DROP TABLE no.such_table", GeoskipError, "", "takes a query, got a command"),
    ],
)
def test_an_error_shows_its_place(spark: Any, data: Path, text: str, error: Any, pointed_at: str, says: str) -> None:
    with pytest.raises(error) as caught:
        geoskip.sql(spark, text.format(data=data))
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert says in message
    lines = message.split("\n")
    shown = [line[below.index("^") : below.rindex("^") + 1] for line, below in pairwise(lines) if "^" in below]
    assert shown == ([pointed_at.format(data=data)] if pointed_at else [])


def test_a_statement_in_spark_sql_runs_once_in_the_session_that_runs_it(spark: Any, data: Path) -> None:
    other = spark.newSession()
    other.sql(f"CREATE TEMPORARY VIEW here AS SELECT * FROM parquet.`{data}`")
    other.conf.set("data", str(data))
    created = other.sql("-- nightly\nCREATE SKIPPING INDEX ON '${data}' (temp MINMAX)")
    assert (
        [row["index"] for row in created.collect()] == [row["index"] for row in created.collect()] == ["minmax(temp)"]
    )
    assert [row.verb for row in geoskip.dataset(spark, str(data)).history().collect()] == ["create"]
    explained = other.sql("EXPLAIN SKIPPING SELECT * FROM here WHERE temp > 25").where("files_read < files_total")
    assert [row.files_read for row in explained.collect()] == [2]


def test_a_statement_runs_beside_cached_data(spark: Any, data: Path) -> None:
    cached = spark.range(3).cache()
    try:
        (created,) = spark.sql(f"CREATE SKIPPING INDEX ON '{data}' (temp MINMAX)").collect()
        assert (created["index"], created.snapshot) == ("minmax(temp)", 1)
    finally:
        cached.unpersist()


def test_errors_in_spark_sql_are_sparks_and_show_the_place(spark: Any, data: Path) -> None:
    with pytest.raises(IllegalArgumentException, match=r"got MINMOX \(line 1, position \d+\)\n.*\n +\^{6}\n"):
        spark.sql(f"CREATE SKIPPING INDEX ON '{data}' (temp MINMOX)")
    with pytest.raises(IllegalArgumentException, match=r"no column tmp; did you mean temp(.*\n)*.*\n +\^{10}"):
        spark.sql(f"CREATE SKIPPING INDEX ON '{data}' (tmp MINMAX)")
    with pytest.raises(ParseException):  # of Spark's parser, as it is
        spark.sql("CREATE SKIPING INDEX ON t (temp MINMAX)")


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark has collations since 4.0")
def test_errors_that_sparks_parser_does_not_declare_keep_their_message(spark: Any) -> None:
    with pytest.raises(IllegalArgumentException, match=r"COLLATION_INVALID_NAME.*nope"):
        spark.sql("SELECT CAST('a' AS STRING COLLATE nope)")


def test_the_parser_is_replaced_once_and_stays_what_it_was_for_others(spark: Any) -> None:
    jvm = spark._jvm

    def parser() -> int:
        return int(jvm.System.identityHashCode(spark._jsparkSession.sessionState().sqlParser()))

    before = parser()
    geoskip.enable(spark)
    assert parser() == before
    interface = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.parser.ParserInterface")
    assert interface.isInstance(spark._jsparkSession.sessionState().sqlParser())
    assert spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier("a.b").table() == "b"


def test_other_sql_is_sparks(spark: Any) -> None:
    assert geoskip.sql(spark, "SELECT 1 AS one").collect()[0].one == 1
    with pytest.raises(GeoskipError, match="takes a text, got 3"):
        geoskip.sql(spark, 3)  # type: ignore[arg-type]


def test_a_parser_that_cannot_be_replaced_is_named_and_geoskip_sql_goes_on(
    spark: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live session whose Spark has no such field, as geoskip's Java would find another Spark or Java."""
    whole, statement = session._source, f"CREATE SKIPPING INDEX ON '{data}' (temp MINMAX)"
    monkeypatch.setattr(session, "_connected", {})
    monkeypatch.setattr(session, "_source", lambda name="": whole(name).replace('Field("sqlParser")', 'Field("other")'))

    def run() -> None:
        raw = raw_session(spark)
        with pytest.warns(UserWarning, match=r"cannot be replaced \(.*NoSuchField.*: geoskip.sql\(spark, text\) does$"):
            geoskip.enable(raw)
        with pytest.raises(ParseException):
            raw.sql(statement)
        assert [row["index"] for row in geoskip.sql(raw, statement).collect()] == ["minmax(temp)"]
        assert geoskip.report(raw.read.parquet(str(data)).where("temp > 25")).files_kept == 2

    with ThreadPoolExecutor(1) as thread:  # in which Py4J has not met the other class of the name
        thread.submit(run).result()


def raw_session(spark: Any) -> SparkSession:
    """A session beside that of the run, which geoskip has never seen."""
    context, classic = spark.sparkContext, "" if spark.version.startswith("3.") else "classic."
    made = getattr(spark._jvm, f"org.apache.spark.sql.{classic}SparkSession")(context._jsc.sc())
    assert made.sessionState().sqlParser() is not None  # now it is a live one
    return SparkSession(context, made)
