"""Conditions on the answers of scalar subqueries, which are there when a plan is run (Spark 4)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import four_tens, same_as_off, view_of_tens
from tests.spark.test_readers import settings


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with the view ``t`` over four files, and ``asked`` with the numbers 21 to 24, in no files."""
    session = spark.newSession()
    view_of_tens(session, tmp_path_factory.mktemp("answers"))
    session.range(21, 25).toDF("k").createOrReplaceTempView("asked")
    return session


QUERIES = {
    "temp > (SELECT max(k) FROM asked)": 2,
    "temp BETWEEN (SELECT min(k) FROM asked) AND (SELECT max(k) FROM asked)": 1,
    "temp < (SELECT min(k) FROM asked) - 11 AND id > 2": 1,
    "(SELECT CAST(max(k) AS double) FROM asked) <= temp": 2,
    "temp = (SELECT k FROM asked WHERE k > 99)": 0,  # NULL
    "temp > (SELECT max(k) FROM asked) OR temp = (SELECT 5)": 3,
    "NOT temp > (SELECT max(k) FROM asked)": 3,
    "temp > (SELECT max(k) FROM asked) AND id IN (SELECT k + 10 FROM asked)": 2,
    "temp > (SELECT max(k) FROM asked) AND rand(3) < 2": 2,
    "id > (SELECT max(k) FROM asked)": 4,  # not indexed
    "temp + (SELECT max(k) FROM asked) > 60": 1,
    "temp = (SELECT max(temp) FROM t WHERE temp < (SELECT min(k) FROM asked))": 1,
}


@pytest.mark.parametrize("condition", QUERIES)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_files_are_skipped_by_the_answer(own: Any, condition: str, adaptive: str) -> None:
    with settings(own, {"spark.sql.adaptive.enabled": adaptive}):
        report = same_as_off(lambda: own.sql(f"SELECT * FROM t WHERE {condition}"))
    scan = report.scans[-1]  # after that of a subquery
    if own.version >= "4":
        assert scan.files_kept == QUERIES[condition], report
        assert "a subquery" not in str(scan.reasons)


def test_before_a_run_the_answer_is_not_there(own: Any) -> None:
    frame = own.sql("SELECT * FROM t WHERE temp > (SELECT max(k) FROM asked)")
    before = geoskip.report(frame)
    assert before.files_kept == geoskip.explain(frame).files_kept == 4
    assert "the answer of a subquery is not there" in str(before.reasons)
    frame.collect()
    if own.version >= "4":
        assert geoskip.report(frame).files_kept == geoskip.last_report(own).files_kept == 2
        assert "temp > 24" in str(geoskip.report(frame))


def test_partition_columns_of_conditions_that_only_the_first_decision_has(spark: Any, tmp_path: Path) -> None:
    four_tens(tmp_path)
    rows = spark.read.parquet(str(tmp_path / "data")).crossJoin(spark.range(9).selectExpr("id % 3 p", "id DIV 3 q"))
    rows.repartitionByRange(4, "temp").write.partitionBy("p", "q").parquet(str(tmp_path / "parts"))
    geoskip.dataset(spark, str(tmp_path / "parts")).create_index(MinMax("temp"))
    table = spark.read.parquet(str(tmp_path / "parts"))
    spark.range(1).createOrReplaceTempView("nought")
    nought = "(SELECT min(id) FROM nought)"
    for kept in ("p IN (0)", "p IN (1)", "q IN (0, 2)", "p IN (1, 2)"):
        other = "q" if kept.startswith("p") else "p"
        condition = f"{other} >= {nought} AND ({kept} OR temp >= 30) AND temp >= {nought}"
        report = same_as_off(partial(table.where, condition))
        if spark.version >= "4":
            assert report.files_kept == (27 if "," in kept else 18)


def test_both_sides_of_a_join(own: Any) -> None:
    query = "SELECT x.id FROM t x JOIN t y ON x.temp = y.temp WHERE y.temp > (SELECT max(k) FROM asked) + 6"
    report = same_as_off(lambda: own.sql(query))
    assert report.files_total == 8
    assert report.files_kept == (2 if own.version >= "4" else 5)  # of one side, by the keys of the other


def test_files_that_are_written_between_two_runs_are_read(spark: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"))
    frame = spark.read.parquet(str(place)).where("temp > (SELECT 30)")
    assert frame.count() == 9
    found = frame.select("temp")
    assert len(found.collect()) == 9
    rows = pq.read_table(place / "part-0.parquet")
    pq.write_table(
        rows.set_column(0, "temp", pq.read_table(place / "part-3.parquet")["temp"]), place / "part-0.parquet"
    )
    assert len(found.collect()) == 18


def test_what_an_audit_reads_again_is_judged_by_the_answer(own: Any) -> None:
    with settings(own, {"spark.geoskip.audit": "1.0"}):
        frame = own.sql("SELECT * FROM t WHERE temp > (SELECT max(k) FROM asked) AND id >= 0")
        assert len(frame.collect()) == 15
        assert geoskip.wait_for_audits(own)
        (scan, *_) = geoskip.last_report(own).scans
    assert scan.files_audited == (2 if own.version >= "4" else 0)
    assert not scan.lost


def test_a_bucketed_table_whose_files_spark_lists_early(own: Any) -> None:
    own.sql("DROP TABLE IF EXISTS answers_in_buckets")
    try:
        frame = own.table("t").repartition(1).sortWithinPartitions("id")
        frame.write.bucketBy(4, "id").sortBy("id").saveAsTable("answers_in_buckets")
        geoskip.dataset(own, table="answers_in_buckets").create_index(MinMax("id"))
        for merged in ("true", "false"):
            with settings(own, {"spark.sql.legacy.bucketedTableScan.outputOrdering": merged}):
                same_as_off(lambda: own.sql("SELECT * FROM answers_in_buckets WHERE id = (SELECT 7) ORDER BY id"))
    finally:
        own.sql("DROP TABLE IF EXISTS answers_in_buckets")
