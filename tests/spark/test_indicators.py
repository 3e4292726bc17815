"""Conditions of a query's scans, the paper's indicators, and the log of what a session has asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from geoskip.lifecycle.log import latest
from geoskip.spark.advisor.scan_conditions import conditions_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tens(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A view ``tens`` of four files, with ``a`` from 10 n to 10 n + 9 and ``s`` from x0 to x9 in file n."""
    root = tmp_path_factory.mktemp("indicators") / "tens"
    root.mkdir()
    for number in range(4):
        columns = {"a": [10 * number + i for i in range(10)], "s": [f"x{i}" for i in range(10)]}
        pq.write_table(pa.table(columns), root / f"part-{number}.parquet")
    spark.read.parquet(str(root)).createOrReplaceTempView("tens")
    return f"file:{root}"


@pytest.fixture(scope="module")
def months(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A view ``months`` over three partitions with a file each: in month m, ``b`` from 10 m to 10 m + 9."""
    root = tmp_path_factory.mktemp("indicators") / "months"
    for month in (1, 2, 3):
        (root / f"month={month}").mkdir(parents=True)
        values = pa.table({"b": [10 * month + i for i in range(10)]})
        pq.write_table(values, root / f"month={month}" / "part.parquet")
    spark.read.parquet(str(root)).createOrReplaceTempView("months")
    return root


SCANS = {
    "SELECT * FROM tens WHERE a > 5 AND s LIKE 'x%'": ["(NOT a IS NULL AND NOT s IS NULL AND a > 5 AND s LIKE 'x%')"],
    "SELECT * FROM tens": ["()"],
    "SELECT 1": [],
    "SELECT * FROM tens x JOIN tens y ON x.a = y.a WHERE x.a > 35 AND y.s = 'x1'": [
        "(NOT a IS NULL AND a > 35)",
        "(NOT s IS NULL AND s = 'x1' AND a > 35 AND NOT a IS NULL)",
    ],
    "SELECT count(*) FROM (SELECT upper(s) AS u, a + 1 AS b FROM tens) WHERE u = 'X1' AND b < 7": [
        "(NOT s IS NULL AND NOT a IS NULL AND upper(s) = 'X1' AND (a + 1) < 7)"
    ],
}


@pytest.mark.parametrize("query", SCANS)
def test_conditions_are_those_that_reach_each_scan(spark: Any, tens: str, query: str) -> None:
    for asked in (query, spark.sql(query)):
        found = conditions_of(spark, asked)
        assert [str(scan.predicate) for scan in found] == SCANS[query]
        assert all((scan.root, scan.files, scan.bytes > 0) == (tens, 4, True) for scan in found)


def test_subqueries_have_scans_of_their_own_once(spark: Any, tens: str, months: Path) -> None:
    query = "SELECT * FROM tens WHERE a IN (SELECT b FROM months WHERE month = 1) AND a < (SELECT max(b) FROM months)"
    found = conditions_of(spark, query)
    assert sorted(scan.root.rpartition("/")[2] for scan in found) == ["months", "months", "tens"]


def test_finding_conditions_leaves_no_trace(spark: Any, tens: str) -> None:
    before = len(geoskip.reports(spark))
    with geoskip.disabled(spark):
        (scan,) = conditions_of(spark, "SELECT * FROM tens WHERE a = 3")
        assert not geoskip.is_enabled(spark)
    assert (scan.condition, len(geoskip.reports(spark))) == ("((a IS NOT NULL) AND (a = 3L))", before)
    assert "GeoskipFileIndex" not in spark.sql("SELECT * FROM tens WHERE a = 3")._jdf.queryExecution().toString()


def test_a_cached_frame_has_the_conditions_on_its_files(spark: Any, tens: str) -> None:
    cached = spark.table("tens").cache()
    try:
        assert [str(scan.predicate) for scan in conditions_of(spark, cached.filter("a = 3"))] == [
            "(NOT a IS NULL AND a = 3)"
        ]
    finally:
        cached.unpersist()


def test_kept_files_are_those_that_the_query_reads(spark: Any, months: Path) -> None:
    dataset = geoskip.dataset(spark, str(months))
    dataset.create_index(MinMax("b"))
    snapshot = latest(dataset.store)
    assert snapshot is not None
    paths = snapshot.files.column("path").to_pylist()
    for condition in (
        "(month = 1 AND B < 15) OR (month = 2 AND b > 35)",
        "month > 1 AND b <> 7",
        "b BETWEEN 12 AND 22",
    ):
        frame = spark.read.parquet(str(months)).where(condition)
        (scan,) = conditions_of(spark, frame)
        kept = {path for path, keep in zip(paths, scan.kept(snapshot), strict=True) if keep}
        read = geoskip.report(frame).scans[0].kept_files()
        assert kept == {path.split("months/")[1] for path in read}, condition
        unindexed = scan.kept(snapshot, [])
        assert unindexed.sum() == (2 if "month >" in condition else 3 if "BETWEEN" in condition else 2), condition


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("DROP TABLE tens", "got the command DROP TABLE tens"),
        ("INSERT INTO tens SELECT * FROM tens", "a query only reads"),
        ("SELECT nope FROM tens", "cannot be resolved"),
        ("SELEC", "Syntax error"),
        (7, "got 7, a int"),
    ],
)
def test_what_is_no_query_gets_an_error_and_is_not_run(spark: Any, tens: str, query: Any, message: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=message):
        conditions_of(spark, query)
    assert spark.table("tens").count() == 40
