"""Queries that need only the first partitions, or groups of partitions, of an order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

NULL = "__HIVE_DEFAULT_PARTITION__"
PARTITIONS = {
    "int": [*range(8, 28), NULL],  # 10 comes after 9
    "date": [*(f"2024-02-{day}" for day in range(10, 29)), NULL, "1899-12-31"],
    "decimal(4,1)": [*(f"{number}.5" for number in range(-8, 12)), NULL],
    "string": [*(f"a {letter}" for letter in "abcdefghijklmnopqr"), NULL, "\U0001f600", "\ufb01"],
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_the_first_partitions_are_found_by_their_values(spark: Any, tmp_path: Path, kind: str) -> None:
    """Each partition has two files with two rows; of the first one, in the order of the values, 1 is read or all 2."""
    session = spark.newSession()
    for value in PARTITIONS[kind]:
        (tmp_path / f"p={value}").mkdir()
        for number in range(2):
            pq.write_table(pa.table({"v": [number, number]}), tmp_path / f"p={value}" / f"{number}.parquet")
    with settings(session, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
        session.read.schema(f"v bigint, p {kind}").parquet(str(tmp_path)).createOrReplaceTempView("p")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    for query, files in {
        "SELECT max(p) FROM p": 2,
        "SELECT min(p) FROM p": 2,
        "SELECT min(p), max(p) FROM p": 4,
        "SELECT p FROM p ORDER BY p DESC LIMIT 4": 2,
        "SELECT p FROM p ORDER BY p DESC LIMIT 5": 4,
        "SELECT p FROM p ORDER BY p LIMIT 5": 4,  # two of them with NULL
        "SELECT p FROM p ORDER BY p NULLS LAST LIMIT 9": 6,
        "SELECT p, v FROM p WHERE v = 1 ORDER BY p DESC, v LIMIT 3": 2,
        "SELECT p, v FROM p WHERE p IS NOT NULL ORDER BY p, v DESC LIMIT 3": 2,
        "SELECT count(*) FROM p WHERE p = (SELECT max(p) FROM p)": 2,
        "SELECT max(p) FROM p WHERE p < (SELECT max(p) FROM p)": 38,  # not of the last, which Spark prunes
    }.items():
        report = same_as_off(lambda query=query: session.sql(query))
        assert [scan.files_kept for scan in report.scans][:1] == [files], (query, report)


GROUPS = {
    "SELECT p, count(*), sum(v) FROM p GROUP BY p ORDER BY p DESC LIMIT 3": 6,
    "SELECT p, q, max(v) FROM p GROUP BY p, q ORDER BY p, q DESC NULLS LAST LIMIT 2": 6,
    "SELECT DISTINCT p FROM p ORDER BY p LIMIT 2 OFFSET 1": 8,
    "SELECT p + 1 AS r, count(*) FROM p GROUP BY p + 1 ORDER BY r DESC LIMIT 2": 4,
    "SELECT p DIV 2 AS r, count(*) FROM p GROUP BY p DIV 2 ORDER BY r DESC LIMIT 2": 8,
    "SELECT p, count(*) FROM p WHERE p < 8 AND v >= 0 GROUP BY p ORDER BY p DESC LIMIT 2": 4,
    "SELECT p, count(*) FROM p WHERE v % 2 = 1 GROUP BY p ORDER BY p DESC LIMIT 2": 18,  # perhaps no group
    "SELECT p, count(*) c FROM p GROUP BY p ORDER BY p + count(*) DESC LIMIT 2": 20,
    "SELECT p, count(*) c FROM p GROUP BY p HAVING c > 1 ORDER BY p DESC LIMIT 2": 20,
    "SELECT v, count(*) c FROM p GROUP BY v ORDER BY v DESC LIMIT 2": 20,
    "SELECT p, q, count(*) FROM p GROUP BY ROLLUP (p, q) ORDER BY p DESC LIMIT 2": 20,
    "SELECT p, count(*) FROM p GROUP BY p ORDER BY p DESC LIMIT 11": 20,
}


def test_the_first_groups_of_partitions(spark: Any, tmp_path: Path) -> None:
    """Ten partitions with two files each, in one of which an empty file makes no group."""
    session = spark.newSession()
    for value in range(10):
        for q in "ab":
            (tmp_path / f"p={value}" / f"q={q}").mkdir(parents=True)
            rows = [] if value == 0 else [value, value + 1]
            table = pa.table({"v": pa.array(rows, pa.int64())})
            pq.write_table(table, tmp_path / f"p={value}" / f"q={q}" / "0.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("p")
    for query, files in GROUPS.items():
        report = same_as_off(lambda query=query: session.sql(query))
        assert report.files_kept == files, (query, report)
    explained = geoskip.explain(session.sql("SELECT p, count(*) FROM p GROUP BY p ORDER BY p DESC LIMIT 3"))
    assert "can be the first 3 groups by p DESC" in str(explained)
