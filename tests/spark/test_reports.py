"""Reports say what was truly read."""

from __future__ import annotations

import gc
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import GeoskipError
from geoskip.spark.session import java
from tests.conftest import four_tens

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return four_tens(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def own(spark: Any, place: Path) -> Any:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    return session


def read_by_spark(session: Any) -> int:
    """The files that the last execution read, as Spark's own SQL tab has it."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(20_000)
    store = session._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    metrics = store.executionMetrics(last.executionId())
    listed = last.metrics()
    ids = set()
    for number in range(listed.size()):
        if listed.apply(number).name() == "number of files read":
            ids.add(listed.apply(number).accumulatorId())  # adaptive execution lists one again with every new plan
    values = [metrics.get(found) for found in ids]
    return sum(int(re.sub(r"\D", "", value.get())) for value in values if value.isDefined())


COUNTS = "(SELECT id, count(*) AS n FROM t WHERE temp > 25 GROUP BY id)"
QUERIES = {
    "a filter": ("SELECT * FROM t WHERE temp > 25", 2, 4),
    "no filter": ("SELECT * FROM t", 4, 4),
    "nothing": ("SELECT * FROM t WHERE temp > 99", 0, 4),
    "groups of nothing": ("SELECT id, count(*) FROM t WHERE temp > 99 GROUP BY id", 0, 4),
    "a union": ("SELECT id FROM t WHERE temp > 35 UNION ALL SELECT id FROM t WHERE temp < 15", 3, 8),
    "a scalar subquery": ("SELECT * FROM t WHERE temp > (SELECT max(temp) FROM t WHERE temp < 25)", 6, 8),
    "a join": ("SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.temp > 25 AND b.temp < 35", 6, 8),
    "a subquery of IN": ("SELECT * FROM t WHERE id IN (SELECT id FROM t WHERE temp > 35) AND temp > 15", 4, 8),
    "an exchange used twice": (f"WITH c AS {COUNTS} SELECT * FROM c a JOIN c b ON a.id = b.id", 2, 4),
}


@pytest.mark.parametrize("query", QUERIES)
def test_totals_are_those_of_the_executed_scans(own: Any, query: str) -> None:
    sql, kept, total = QUERIES[query]
    frame = own.sql(sql)
    expected = geoskip.explain(own.sql(sql))
    frame.collect()
    report = geoskip.report(frame)
    print(report)
    if query == "a scalar subquery" and own.version >= "4":  # its answer is there when files are listed
        kept -= 2
    assert report.files_kept == kept == read_by_spark(own)
    assert report.files_total == total
    if query not in ("an exchange used twice", "a scalar subquery"):  # what is reused shows when it is run
        assert expected.files_kept == kept
    last = geoskip.last_report(own)
    assert (last.files_kept, last.files_total) == (kept, total)
    for scan in report.scans:
        assert len(scan.kept_files()) == scan.files_kept
        assert len(scan.skipped_files()) == scan.files_total - scan.files_kept
        assert scan.bytes_kept == sum(Path(path.removeprefix("file:")).stat().st_size for path in scan.kept_files())
        assert {*scan.kept_files(), *scan.skipped_files()} == {
            f"file:{path}" for path in Path(scan.dataset.removeprefix("file:")).glob("*.parquet")
        }


def test_a_report_at_every_moment(own: Any) -> None:
    before = len(geoskip.reports(own))
    frame = own.sql("SELECT * FROM t WHERE temp > 25")
    assert geoskip.explain(frame).files_kept == 2
    assert geoskip.report(frame).files_kept == 2
    assert len(geoskip.reports(own)) == before  # nothing was run
    for _ in range(2):  # the second collect has no planning of its own
        frame.collect()
        assert geoskip.report(frame).files_kept == 2
    assert len(geoskip.reports(own)) == min(before + 2, 50)
    frame.count()
    assert geoskip.last_report(own).files_kept == 2
    own.sql("EXPLAIN SELECT * FROM t WHERE temp > 35").collect()
    own.sql("SET spark.some.key = 1").collect()
    own.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM t WHERE temp > 35")
    assert geoskip.last_report(own).files_kept in (0, 2)  # the last that ran, not what was only explained


def test_what_is_no_dataframe_of_sparks_has_no_report() -> None:
    with pytest.raises(GeoskipError, match=r"a DataFrame of Spark's, got builtins.str; last_report\(spark\) is"):
        geoskip.report("SELECT 1")


def test_of_large_listings_fewer_are_remembered(spark: Any, place: Path) -> None:
    """What is remembered of a query keeps its listing, which would go with its DataFrame."""
    session = spark.newSession()
    frame = session.read.parquet(str(place)).where("temp > 25")
    for _ in range(5):
        frame.collect()
    assert len(geoskip.reports(session)) == 5, "of one listing"
    limit = (
        java(session)
        .geoskip.getClass()
        .getClassLoader()
        .loadClass("geoskip.QueryListener")
        .getDeclaredField("mostFiles")
    )
    limit.setAccessible(True)
    before = limit.getLong(None)
    limit.setLong(None, 9)
    try:
        for _ in range(4):
            session.read.parquet(str(place)).where("temp > 25").collect()
        assert len(geoskip.reports(session)) == 3, "the last, and two of four files each"
    finally:
        limit.setLong(None, before)


@pytest.mark.slow
def test_what_is_remembered_of_a_query_is_not_its_plan(own: Any) -> None:
    """A scan leads to a partition for each file that it read."""
    jvm = own._jvm
    frame = own.sql("SELECT * FROM t WHERE temp > 25")
    frame.collect()
    scan = jvm.java.lang.ref.WeakReference(frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0))
    assert "FileScan" in scan.get().toString()
    assert geoskip.last_report(own).files_kept == 2
    del frame
    for _ in range(50):
        own.range(1).collect()  # Spark's queues of events hold the last one until the next, and its query with it
        gc.collect()
        jvm.java.lang.System.gc()
        if scan.get() is None:
            break
    assert scan.get() is None
    remembered = [report for report in geoskip.reports(own) if report.scans][-1]
    assert len(remembered.scans[0].kept_files()) == 2


@pytest.mark.slow
def test_sessions_that_are_over_are_not_kept(spark: Any, place: Path) -> None:
    """Spark's own bus lets go of a session; what is remembered of its queries leads to it."""
    jvm = spark._jvm
    held = []
    for _ in range(10):
        session = spark.newSession()
        session.read.parquet(str(place)).where("temp > 25").collect()
        held.append(jvm.java.lang.ref.WeakReference(session._jsparkSession))
        assert len(geoskip.reports(session)) == 1
        del session
    spark.createDataFrame([(1,)], "a INT")  # which makes this session the active one
    for _ in range(50):
        gc.collect()
        jvm.java.lang.System.gc()
        left = sum(found.get() is not None for found in held)
        if left <= 8:
            break
    assert left <= 8, "those that asked last"


def test_cached_frames(own: Any) -> None:
    """The query that fills a cache reads files, and those after it none."""
    frame = own.table("t").where("temp > 25").cache()
    try:
        assert geoskip.explain(frame.where("id < 35")).files_kept == 2
        frame.collect()
        assert [(scan.files_kept, scan.files_total) for scan in geoskip.report(frame).scans] == [(2, 4)]
        frame.collect()
        assert geoskip.last_report(own).scans == ()  # the cache alone
        twice = frame.where("id < 35").union(frame.where("id > 35"))
        for report in (geoskip.explain(twice), (twice.collect(), geoskip.report(twice))[1], geoskip.last_report(own)):
            assert (report.files_kept, report.files_total, report.scans) == (0, 0, ())
            assert report.notes == ("left alone: cached data, of which no file is read again",)
    finally:
        frame.unpersist(blocking=True)


def test_commands_that_read(own: Any, tmp_path: Path) -> None:
    own.table("t").where("temp > 25").write.parquet(str(tmp_path / "out"))
    assert geoskip.last_report(own).files_kept == 2
    own.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'out'}' USING parquet SELECT * FROM t WHERE temp > 35")
    assert geoskip.last_report(own).files_kept == 1
    own.sql("DROP TABLE IF EXISTS copied")
    own.sql("CREATE TABLE copied (temp bigint) USING parquet")
    inserted = own.sql("INSERT INTO copied SELECT temp FROM t WHERE temp > 35")
    assert geoskip.report(inserted).files_kept == 1
    assert geoskip.last_report(own).files_kept == 1


def test_sessions_and_threads_have_reports_of_their_own(own: Any, place: Path) -> None:
    def run(number: int) -> tuple[int, int, int]:
        session = own.newSession()
        frame = session.read.parquet(str(place)).where(f"temp >= {10 * number}")
        frame.collect()
        reports = geoskip.reports(session)
        return geoskip.report(frame).files_kept, len(reports), geoskip.last_report(session).files_kept

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [(4 - number, 1, 4 - number) for number in range(4)]
    assert geoskip.last_report(own.newSession()).scans == ()


def test_why_nothing_was_skipped(own: Any, tmp_path: Path) -> None:
    own.range(5).write.parquet(str(tmp_path / "bare"))
    reasons = {
        "no filter of the query": own.table("t"),
        "no metadata": own.read.parquet(str(tmp_path / "bare")).where("id > 3"),
        "above LIMIT": own.table("t").limit(5).where("temp > 3"),
    }
    for words, frame in reasons.items():
        assert any(words in reason for reason in geoskip.explain(frame).reasons), words
    assert geoskip.explain(own.table("t").where("id > 25")).files_kept == 4


def test_the_words_of_a_report(own: Any) -> None:
    values = ", ".join(str(k) for k in range(30, 400))
    frame = own.sql(f"SELECT * FROM t WHERE temp > 25 AND temp IN ({values}) AND id <> 7")
    report = geoskip.explain(frame)
    scan = report.scans[0]
    assert "temp > 25" in scan.predicate
    assert dict(scan.clauses())["max(temp) > 25"] == 2
    assert scan.planning_seconds > 0
    text = str(report)
    assert "read 1 of 4 files" in text
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) <= 12
    html = report._repr_html_()
    assert html.count("<li") == html.count("</li>") > 3
    assert "read 1 of 4 files" in html
    assert json.loads(json.dumps(report.to_dict()))["files_kept"] == 1
    assert (
        "<script"
        not in geoskip.explain(
            own.sql("SELECT * FROM t WHERE temp > 25 AND cast(id AS string) <> '<script>'")
        )._repr_html_()
    )


def test_a_report_has_the_query_and_the_settings_it_ran_under(own: Any) -> None:
    session = own.newSession()
    own.table("t").createOrReplaceTempView("t")
    session.read.parquet(own.table("t").inputFiles()[0].rpartition("/")[0]).createOrReplaceTempView("t")
    session.conf.set("spark.geoskip.audit", "0")
    sql = "SELECT id FROM t WHERE temp > 25"
    frame = session.sql(sql)
    frame.collect()
    report = geoskip.report(frame)
    assert report.query == sql
    assert report.settings["spark.geoskip.audit"] == "0"
    frame.count()
    assert geoskip.last_report(session).query == sql, "below the count"
    made = session.table("t").where("temp > 25").groupBy("city").count()
    made.collect()
    plan = geoskip.report(made).query
    assert re.search(r"^Aggregate \[city\].*\n\+- Filter \(temp > .*25", plan)
    joined = session.sql(sql).join(session.sql("SELECT id FROM t WHERE temp < 5"), "id")
    assert "Join" in geoskip.explain(joined).query, "of two texts neither is the query"


def test_clauses_count_the_files_that_the_scan_lists(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(9).selectExpr("id AS a", "CAST(id % 3 AS INT) AS b")
    rows.repartition(9, "a").write.partitionBy("b").parquet(str(tmp_path / "t"))
    geoskip.dataset(spark, str(tmp_path / "t")).create_index(MinMax("a"))
    table = lambda: spark.read.parquet(str(tmp_path / "t"))  # noqa: E731
    (scan,) = geoskip.report(table().where("b = 1 AND a > 3")).scans
    assert max(count for _, count in scan.clauses()) <= scan.files_skipped < scan.files_total
    (scan,) = geoskip.report(table().where("b = 1 OR a = 3")).scans
    assert scan.clauses()[0][1] == scan.files_skipped > 0
    (scan,) = geoskip.report(spark.read.parquet(str(tmp_path / "t" / "b=1")).where("a > 100")).scans
    assert (scan.files_kept, scan.clauses()[0]) == (0, ("max(a) > 100", scan.files_total))
    assert scan.files_total < len(list((tmp_path / "t").rglob("*.parquet")))
    (scan,) = geoskip.report(table().where("a || 'x' = '3x'")).scans  # two rules make one clause
    assert scan.clauses() == (("min(a) <= 3 <= max(a)", scan.files_skipped),)


def test_metadata_that_came_after_the_plan_or_went_are_explained(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    spark.range(40).repartitionByRange(4, "id").write.parquet(place)
    with geoskip.disabled(spark):
        early = spark.read.parquet(place).where("id = 3")
        assert early.count() == 1
        early._jdf.queryExecution().executedPlan()
    geoskip.dataset(spark, place).create_index(MinMax("id"))
    (reason,) = geoskip.report(early).reasons
    assert reason.endswith("before it had metadata: plan it again")
    spark.range(40).repartitionByRange(4, "id").write.mode("overwrite").parquet(place)
    (reason,) = geoskip.report(spark.read.parquet(place).where("id = 3")).reasons
    assert reason == f"there are no metadata in {place}/_geoskip: create_index() makes them"


def test_a_served_condition_that_skips_nothing_is_explained(own: Any) -> None:
    words = "- by the indexes that serve the condition, each file may hold a match: see geoskip.why_not()"
    for where, count in {"temp > -99": 1, "temp > 25": 0, "temp > -99 AND id > 0": 0}.items():
        assert str(geoskip.explain(own.table("t").where(where))).count(words) == count, where


def test_conditions_are_shown_in_the_words_of_sql(own: Any) -> None:
    shown = {
        "exists(array(id, 7L), u -> u > 3)": "exists(array(id, 7), (x) -> x > 3)",
        "aggregate(array(id), 0L, (u, v) -> u + v) > 5": "aggregate(array(id), 0, (x, y) -> (x + y), (x) -> x) > 5",
        "exists(array(id), u -> exists(array(temp), v -> v > u))": "exists(array(temp), (x) -> x > ",
        "split(city, ' ')[1] <> 'x'": "split(city, ' ', -1)[1] <> 'x'",
        "city IS NOT NULL": "city IS NOT NULL",
    }
    for where, text in shown.items():
        assert text in geoskip.explain(own.table("t").where(where)).scans[0].predicate, where


def test_a_file_that_is_reached_twice_is_one_file(spark: Any, tmp_path: Path) -> None:
    spark.range(40).repartitionByRange(4, "id").write.parquet(str(tmp_path / "t"))
    geoskip.dataset(spark, str(tmp_path / "t")).create_index(MinMax("id"))
    for paths in ([f"{tmp_path}/t/*.parquet", f"{tmp_path}/t/part*"], [f"{tmp_path}/t"] * 2):
        frame = spark.read.schema("id BIGINT").parquet(*paths).where("id = 3")
        for found in (geoskip.explain(frame), (frame.collect(), geoskip.report(frame))[1]):
            assert (found.files_kept, found.files_total) == (1, 4)
            assert len(found.scans[0].kept_files()) == 1
            assert found.scans[0].clauses()[0][1] == 3
        assert frame.count() == 2, "its rows are read twice"


def test_clauses_show_dates_and_reports_show_themselves(spark: Any, tmp_path: Path) -> None:
    made = spark.sql("SELECT DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:00:00Z' AS time")
    made.write.parquet(str(tmp_path / "t"))
    handle = geoskip.dataset(spark, str(tmp_path / "t"))
    built = handle.create_index(MinMax("day"), MinMax("time"))
    frame = spark.read.parquet(str(tmp_path / "t"))
    report = geoskip.report(frame.where("day > '2025-01-01' AND time > TIMESTAMP '2025-01-01 00:00:00Z'"))
    clauses = [text for text, _ in report.scans[0].clauses()]
    assert "max(day) > DATE '2025-01-01'" in clauses
    assert "max(time) > TIMESTAMP '2025-01-01 00:00:00Z'" in clauses
    for shown in (report, report.scans[0], built, handle.verify()):
        assert repr(shown) == str(shown)


def test_a_report_on_a_table_that_was_dropped_says_so(own: Any) -> None:
    own.sql("CREATE TABLE dropped (a int, p int) USING parquet PARTITIONED BY (p)")
    try:
        own.sql("INSERT INTO dropped VALUES (1, 1), (2, 2)")
        assert own.table("dropped").filter("a = 1").count() == 1
    finally:
        own.sql("DROP TABLE dropped")
    assert own.table("t").filter("temp > 25").count() > 0
    assert geoskip.last_report(own).files_kept == 2
    (why,) = {why for found in geoskip.reports(own) for why in found.reasons if "no longer be listed" in why}
    assert "dropped" in why
