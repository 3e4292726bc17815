"""Several joins and subqueries in one plan: Spark runs equal parts of it once, and some parts in few threads."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import kept_of_all, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with the view ``t`` over four files of 16 kB, and ``asked`` with the keys 21 to 24."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000")  # of bytes: asked is broadcast, t is not
    place = tmp_path_factory.mktemp("plan")
    for number in range(4):
        temps = list(range(10 * number, 10 * number + 10))
        pads = [random.Random(temp).randbytes(1600) for temp in temps]
        pq.write_table(pa.table({"temp": temps, "temp2": temps[::-1], "pad": pads}), place / f"{number}.parquet")
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"), MinMax("temp2"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    session.range(21, 25).toDF("k").createOrReplaceTempView("asked")
    return session


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("how", ["LEFT", "LEFT ANTI", "LEFT SEMI"])
@pytest.mark.parametrize("other", ["temp = k + 10", "temp2 = k", "temp = k", "temp = -k"])
def test_joins_by_other_conditions_do_not_share_a_scan(own: Any, how: str, other: str, adaptive: str) -> None:
    joined = f"SELECT k FROM asked {how} JOIN t ON"
    with settings(own, {"spark.sql.adaptive.enabled": adaptive}):
        report = same_as_off(lambda: own.sql(f"{joined} temp = k UNION ALL {joined} {other}"))
    assert report.files_kept < report.files_total


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "condition",
    [
        "k IN (SELECT temp FROM t WHERE length(pad) > 5)",
        "NOT EXISTS (SELECT 1 FROM t WHERE temp = u.k AND pad > X'00')",
    ],
)
def test_a_subquery_on_both_sides_of_a_union(own: Any, condition: str, adaptive: str) -> None:
    """Spark pushes the subquery, with the scan that is decided on, into both."""
    both = "(SELECT id AS k FROM range(1, 2)) UNION ALL (SELECT id AS k FROM range(35, 36))"
    with settings(own, {"spark.sql.adaptive.enabled": adaptive}):
        report = same_as_off(lambda: own.sql(f"SELECT * FROM ({both}) u WHERE {condition}"))
    assert all(scan.files_kept == 1 for scan in report.scans)


def test_subqueries_do_not_wait_for_each_other(own: Any) -> None:
    """Spark runs them in 16 threads, which all would wait for the subqueries within."""
    counts = (f"(SELECT count(*) FROM t JOIN asked ON temp BETWEEN k - {i} AND k)" for i in range(17))
    query = f"SELECT {', '.join(counts)}"
    rows: list[Any] = []
    with settings(own, {"spark.sql.adaptive.enabled": "true"}):
        thread = threading.Thread(target=lambda: rows.extend(own.sql(query).collect()), daemon=True)
        thread.start()
        thread.join(120)
    assert [tuple(row) for row in rows] == [tuple(4 * (i + 1) for i in range(17))]


def test_a_small_side_with_a_subquery_is_not_collected(own: Any) -> None:
    small = "(SELECT k FROM asked WHERE k < (SELECT max(k) FROM asked))"
    assert kept_of_all(lambda: own.sql(f"SELECT temp FROM t JOIN {small} ON temp BETWEEN k AND k + 1")) == (4, 4)


def test_malformed_records_of_the_small_side_are_read_in_the_same_way(own: Any, tmp_path: Path) -> None:
    """If only k is read of this record, it is 5."""
    (tmp_path / "z.csv").write_text(r'"C:\\",",x,5,y",25' + "\n")
    own.read.schema("w string, x string, k long").csv(str(tmp_path / "z.csv")).createOrReplaceTempView("z")
    frame = same_as_off(lambda: own.sql("SELECT temp, w, x, k FROM t JOIN z ON temp BETWEEN k AND k + 1"))
    assert frame.files_kept == 1 + 2  # of t, and z twice


def test_a_cached_small_side_is_collected_once_it_is_there(own: Any) -> None:
    small = own.sql("SELECT k, uuid() AS id FROM asked").cache()
    small.createOrReplaceTempView("cached")
    try:
        query = "SELECT temp FROM t JOIN cached ON temp BETWEEN k AND k + 1"
        assert own.sql(query).count() == 8
        assert kept_of_all(lambda: own.sql(query)) == (1, 4)
    finally:
        small.unpersist()


def test_rows_that_come_from_other_jobs_are_not_collected(own: Any) -> None:
    for frame, files in (
        (own.createDataFrame([(21,), (22,)], "k long"), 1),
        (own.createDataFrame(own.table("asked").limit(2).rdd, "k long"), 4),
    ):
        frame.hint("broadcast").createOrReplaceTempView("rows")
        query = "SELECT temp FROM t JOIN rows ON temp BETWEEN k AND k + 1"
        report = same_as_off(lambda query=query: own.sql(query))
        assert [scan.files_kept for scan in report.scans if scan.files_total] == [files], report
