"""Scans whose files are chosen by the keys of a broadcast join, which are known when a plan is run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import expr

import geoskip
from geoskip import BloomFilter, GeoBox, MinMax, ValueList
from tests.conftest import executed_files, four_tens, rows_of, same_as_off, view_of_tens, without_pushdown
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with the view ``t`` over four files, and ``asked`` with NULL and the keys 21 to 24, in no files."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000")  # of bytes: asked is broadcast, t is not
    view_of_tens(session, tmp_path_factory.mktemp("joined"))
    session.range(21, 26).selectExpr("nullif(id, 25) k").createOrReplaceTempView("asked")
    return session


QUERIES = {
    "SELECT * FROM t JOIN asked ON temp = k": 1,
    "SELECT * FROM asked JOIN t ON k = temp AND id > 2": 1,
    "SELECT * FROM t JOIN asked ON temp = k WHERE id > k - 1": 1,
    "SELECT * FROM t WHERE temp IN (SELECT k FROM asked)": 1,
    "SELECT * FROM t WHERE temp IN (SELECT k FROM asked) AND temp < 15": 0,
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM asked WHERE k - 20 = temp)": 1,
    "SELECT * FROM t JOIN asked ON temp + 10 = k WHERE id >= 0": 1,
    "SELECT * FROM t JOIN asked ON CAST(temp AS double) = k / 2": 1,
    "SELECT w FROM (SELECT temp * 2 w FROM t) JOIN asked ON w = k": 1,
    "SELECT * FROM t JOIN asked a ON temp = a.k JOIN (SELECT k + 1 j FROM asked) ON j = id": 1,
    "SELECT * FROM t LEFT JOIN (SELECT k + 99 j FROM asked) ON j = id JOIN asked ON temp = k": 1,
    "SELECT * FROM t WHERE temp IN (SELECT k FROM asked WHERE k > 99)": 0,
    "SELECT * FROM t WHERE temp IN (SELECT max(k) FROM asked GROUP BY k % 2)": 1,
    "SELECT * FROM t JOIN asked ON temp <=> k": 2,  # Spark compares coalesce(temp, 0)
    "SELECT * FROM t JOIN asked ON id = k": 4,  # not indexed
    "SELECT * FROM t JOIN asked ON temp > k + 5": 2,
    "SELECT * FROM t JOIN asked ON temp BETWEEN k - 1 AND k + 6": 2,
    "SELECT * FROM t, asked WHERE abs(temp - k) < 2": 1,
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM asked WHERE temp < k - 15 AND id > k - 25)": 1,
    "SELECT * FROM asked LEFT JOIN t ON temp = k": 1,
    "SELECT * FROM t RIGHT JOIN asked ON temp > k + 5 AND temp < 35": 2,
    "SELECT * FROM asked LEFT ANTI JOIN t ON temp = k + 7": 2,
    "SELECT * FROM asked LEFT SEMI JOIN t ON temp > k + 7": 2,
    "SELECT * FROM t JOIN (SELECT * FROM asked WHERE k > 99) ON temp > k": 0,
    "SELECT * FROM t JOIN (SELECT nullif(k, k) AS k FROM asked) ON temp > k": 0,
    "SELECT * FROM t JOIN (SELECT explode(sequence(1, 501)) AS k) ON temp > k + 25": 4,  # too many rows
    "SELECT * FROM t JOIN asked ON temp > k + 5 OR id = 3": 4,  # not indexed
    "SELECT * FROM t JOIN (SELECT * FROM asked LIMIT 3) ON temp > k + 5": 4,  # a second run may return others
    "SELECT * FROM t JOIN (SELECT * FROM asked LIMIT 3) ON temp = k": 1,  # the rows of the join itself
    "SELECT * FROM t JOIN (SELECT * FROM asked WHERE rand(3) < 0.9) ON temp > k + 5": 4,
    "SELECT * FROM t JOIN (SELECT max(k) m FROM asked) ON temp > m + 5": 1,
    "SELECT * FROM t JOIN (SELECT first(k) m FROM asked) ON temp > m + 5": 4,
    "SELECT w FROM (SELECT temp * 2 w FROM t LIMIT 39) JOIN asked ON w > k": 4,
    "SELECT * FROM t CROSS JOIN asked": 4,
    "SELECT * FROM t LEFT JOIN asked ON temp = k": 4,
    "SELECT * FROM asked RIGHT JOIN t ON temp = k": 4,
    "SELECT * FROM t FULL JOIN asked ON temp = k": 4,
    "SELECT * FROM t LEFT ANTI JOIN asked ON temp = k": 4,
    "SELECT * FROM t WHERE temp NOT IN (SELECT k FROM asked WHERE k > 0)": 4,
    "SELECT * FROM t WHERE temp IN (SELECT k FROM asked) OR id = 1": 4,
    "SELECT /*+ MERGE(t, asked) */ * FROM t JOIN asked ON temp = k": 4,
    "SELECT * FROM t JOIN asked ON temp = k WHERE temp + rand(3) > 0": 1,
    "SELECT * FROM (SELECT *, row_number() OVER (ORDER BY id) n FROM t) JOIN asked ON temp = k": 4,
    "SELECT * FROM (SELECT temp + rand(3) * 0 w FROM t) JOIN asked ON w = k": 4,
}


KEYS = {
    "integers": ("id", MinMax("key"), 1),
    "decimals": ("CAST(id AS decimal(9, 2))", MinMax("key"), 1),
    "decimals beyond 18 digits": ("CAST(id AS decimal(30, 2))", MinMax("key"), 1),
    "doubles": ("IF(id = 25, double('NaN'), CAST(id AS double) * 0.1)", MinMax("key"), 1),
    "zeros": ("IF(id = 25, -0.0D, 0.5D + id)", MinMax("key"), 1),
    "strings": ("format_string('%03d', id)", ValueList("key"), 1),
    "dates": ("DATE'2024-01-01' + CAST(id AS int)", MinMax("key"), 1),
    "times": ("timestamp_seconds(id * 86400)", MinMax("key"), 1),
    "booleans": ("id > 24", ValueList("key"), 2),
    "bytes": ("CAST(format_string('%03d', id) AS binary)", BloomFilter("key"), 1),
    "structs": ("struct(id AS a, id + 1 AS b)", MinMax("key.a"), 1),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(spark: Any, tmp_path: Path, name: str) -> None:
    text, index, expected = KEYS[name]
    rows = spark.range(0, 40, 1, 4).selectExpr("id", f"{text} AS key")
    rows.write.parquet(str(tmp_path / "data"))
    geoskip.dataset(spark, str(tmp_path / "data")).create_index(index)
    table = spark.read.parquet(str(tmp_path / "data"))
    asked = table.where("id BETWEEN 25 AND 26").select("key").hint("broadcast")
    with without_pushdown(spark):  # Parquet's reader loses -0.0 and NaN
        report = same_as_off(lambda: table.join(asked, "key"))
    assert report.scans[0].files_kept == expected, report
    assert asked.count() == 2


def test_keys_with_fields_of_other_names(own: Any) -> None:
    if own.version < "4":
        pytest.skip("Spark 3.5 does not compare such structs")
    same_as_off(lambda: own.sql("SELECT * FROM t JOIN (SELECT struct(k) s FROM asked) ON struct(temp) = s"))


def test_of_many_keys_the_least_and_the_greatest_are_used(own: Any) -> None:
    for first, last, step, expected in ((15, 40000, 1, 3), (15, 25, 1, 2), (-99999, 5, 1, 1), (5, 99999, 30, 2)):
        asked = own.range(first, last, step).toDF("k")
        report = same_as_off(
            lambda asked=asked: own.table("t").join(asked.hint("broadcast"), own.table("t").temp == asked.k)
        )
        assert report.files_kept == expected, report


def test_before_a_run_the_keys_are_not_there(own: Any) -> None:
    frame = own.sql("SELECT * FROM t JOIN asked ON temp = k")
    before = geoskip.explain(frame)
    assert before.files_kept == 4
    assert "the other side of a join is known when the query runs" in str(before.reasons)
    frame = own.sql("SELECT pad FROM t WHERE temp IN (SELECT k FROM asked)")
    assert "the other side of a join is known when the query runs" in str(geoskip.explain(frame).reasons)
    frame.collect()
    assert geoskip.report(frame).files_kept == geoskip.last_report(own).files_kept == 1
    assert "temp IN (21, 22, 23, 24)" in str(geoskip.report(frame))
    assert "when the query runs" not in str(geoskip.report(frame).reasons)


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.sql.autoBroadcastJoinThreshold": "-1"},
        {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"},
        {"spark.sql.exchange.reuse": "false"},
        {"spark.geoskip.enabled": "false"},
    ],
    ids=lambda setting: next(iter(setting)),
)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_without_a_broadcast_all_files_are_read(own: Any, setting: dict[str, str], adaptive: str) -> None:
    with settings(own, {**setting, "spark.sql.adaptive.enabled": adaptive}):
        found = own.sql("SELECT temp FROM t JOIN asked ON temp = k ORDER BY temp")
        assert [row.temp for row in found.collect()] == [21, 22, 23, 24]
        assert executed_files(found) == 4


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_pruning_that_is_switched_off_before_the_scan_is_planned(own: Any, adaptive: str) -> None:
    with settings(own, {"spark.sql.adaptive.enabled": adaptive}):
        frame = own.sql("SELECT * FROM t JOIN asked ON temp = k")
        frame._jdf.queryExecution().optimizedPlan()
        with settings(own, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}):
            assert len(frame.collect()) == 4
            assert executed_files(frame) == 4


def test_partitions_and_files_are_chosen_by_one_join(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(0, 80, 1, 4).selectExpr("id", "id % 2 AS part")
    rows.write.partitionBy("part").parquet(str(tmp_path / "data"))
    geoskip.dataset(spark, str(tmp_path / "data")).create_index(MinMax("id"))
    table = spark.read.parquet(str(tmp_path / "data"))
    asked = spark.createDataFrame([(3, 1, "a"), (45, 1, "a"), (46, 0, "b")], "k long, p long, name string")
    asked.write.parquet(str(tmp_path / "asked"))
    asked = spark.read.parquet(str(tmp_path / "asked")).where("name = 'a'")
    report = same_as_off(lambda: table.join(asked, (table.id == asked.k) & (table.part == asked.p)))
    assert next(scan.files_kept for scan in report.scans if scan.dataset.endswith("/data")) == 2, report


def test_files_that_are_written_between_two_runs_are_read(spark: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"))
    found = spark.read.parquet(str(place)).join(spark.range(33, 35).toDF("temp"), "temp").select("temp")
    assert len(found.collect()) == 2
    assert executed_files(found) == 1
    rows = pq.read_table(place / "part-0.parquet")
    pq.write_table(rows.set_column(0, "temp", pa.array([33] * 10)), place / "part-0.parquet")
    assert len(found.collect()) == 12


@pytest.fixture
def wide(own: Any, tmp_path: Path) -> Any:
    """The session with a view ``wide`` over four files of 16 kB, for joins with ``asked_k``."""
    (tmp_path / "wide").mkdir()
    for number in range(4):
        temps = list(range(10 * number, 10 * number + 10))
        table = pa.table({"temp": temps, "pad": [random.Random(temp).randbytes(1600) for temp in temps]})
        pq.write_table(table, tmp_path / "wide" / f"part-{number}.parquet")
    geoskip.dataset(own, str(tmp_path / "wide")).create_index(MinMax("temp"))
    own.read.parquet(str(tmp_path / "wide")).createOrReplaceTempView("wide")
    return own


def same_twice_as_off(session: Any, place: Path, make: Callable[[], Any]) -> None:
    """Run ``make()`` twice, with geoskip off and on; ``asked_k`` has other rows in the second run."""

    def found() -> list[list[str]]:
        pq.write_table(pa.table({"k": [21, 22]}), place / "asked.parquet")
        session.read.parquet(str(place / "asked.parquet")).createOrReplaceTempView("asked_k")
        frame = make()
        first = rows_of(frame)
        pq.write_table(pa.table({"k": [1, 35]}), place / "asked.parquet")
        return [first, rows_of(frame)]

    with geoskip.disabled(session):
        off = found()
    assert found() == off


@pytest.mark.parametrize("how", ["inner", "left", "leftsemi", "leftanti"])
@pytest.mark.parametrize("condition", ["temp = k", "temp BETWEEN k AND k + 3"])
def test_rows_of_the_small_side_that_are_written_between_two_runs(
    own: Any, tmp_path: Path, condition: str, how: str
) -> None:
    for threshold in (1000, 100_000):  # bytes; t is larger than the first
        with settings(own, {"spark.sql.autoBroadcastJoinThreshold": str(threshold)}):
            same_twice_as_off(
                own, tmp_path, lambda: own.table("asked_k").hint("broadcast").join(own.table("t"), expr(condition), how)
            )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT /*+ SHUFFLE_REPLICATE_NL(wide) */ temp FROM wide JOIN asked_k ON temp BETWEEN k AND k + 3",
        "SELECT * FROM asked_k WHERE k NOT IN (SELECT temp FROM wide)",
    ],
)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_small_side_that_spark_reads_at_each_run(wide: Any, tmp_path: Path, query: str, adaptive: str) -> None:
    with settings(wide, {"spark.sql.adaptive.enabled": adaptive}):
        same_twice_as_off(wide, tmp_path, lambda: wide.sql(query))


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.sql.autoBroadcastJoinThreshold": "-1"},
        {"spark.sql.autoBroadcastJoinThreshold": "1000000"},
        {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"},
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("condition", ["temp = k", "temp BETWEEN k AND k + 3"])
def test_settings_that_are_others_while_a_join_is_planned(
    wide: Any, tmp_path: Path, setting: dict[str, str], condition: str, how: str
) -> None:
    def make() -> Any:
        frame = wide.table("asked_k").join(wide.table("wide"), expr(condition), how)
        frame._jdf.queryExecution().optimizedPlan()
        with settings(wide, setting):
            frame._jdf.queryExecution().executedPlan()
        return frame

    same_twice_as_off(wide, tmp_path, make)


def test_a_common_table_expression_that_spark_copies(own: Any) -> None:
    for rows in (
        "SELECT temp FROM t JOIN asked ON temp = k",
        "SELECT temp FROM t WHERE temp >= (SELECT max(temp) FROM t JOIN asked ON temp = k)",
    ):
        query = f"WITH c AS (SELECT *, rand(3) r FROM ({rows})) SELECT c.temp FROM c JOIN c d ON c.r = d.r"
        same_as_off(lambda query=query: own.sql(query))


def test_subqueries_that_spark_merges_are_merged(own: Any) -> None:
    inner = "FROM t JOIN asked ON temp = k"
    report = same_as_off(lambda: own.sql(f"SELECT (SELECT max(temp) {inner}) - (SELECT min(temp) {inner})"))
    assert report.files_total == 4
    assert same_as_off(lambda: own.sql(f"SELECT (SELECT max(temp) {inner})")).files_kept == 1


def test_spark_still_prunes_partitions_by_the_rows_of_an_indexed_table(own: Any, tmp_path: Path) -> None:
    own.range(0, 80, 1, 1).selectExpr("id AS v", "id % 20 AS p").write.partitionBy("p").parquet(str(tmp_path / "facts"))
    own.read.parquet(str(tmp_path / "facts")).createOrReplaceTempView("facts")
    query = "SELECT v FROM facts JOIN t ON p = temp JOIN asked ON temp > k - 15 WHERE city = 'c1'"
    with settings(own, {"spark.sql.autoBroadcastJoinThreshold": "100000"}):
        with geoskip.disabled(own):
            plain = own.sql(query)
            off = rows_of(plain)
        skipping = own.sql(query)
        assert rows_of(skipping) == off
    assert executed_files(skipping) <= executed_files(plain) < 20 + 4


def test_joins_of_many_tables_are_planned_quickly(own: Any) -> None:
    joins = [
        f"JOIN t t{i} ON {' AND '.join(f't{i}.temp + {j} = t{j}.temp + {j}' for j in range(i))}" for i in range(1, 9)
    ]
    with settings(own, {"spark.sql.autoBroadcastJoinThreshold": "100000"}):
        started = time.process_time()
        plan = own.sql(f"SELECT count(*) FROM t t0 {' '.join(joins)}")._jdf.queryExecution().executedPlan().toString()
        assert time.process_time() - started < 20
    assert len(plan) < 200_000


def test_the_nearest_rows_are_chosen_among_all(spark: Any, tmp_path: Path) -> None:
    if not spark.catalog.functionExists("ST_KNN"):
        pytest.skip("Sedona has no jar for this Spark")
    points = spark.range(0, 400, 1, 8).selectExpr("id", "ST_Point(id / 10.0, id % 10 + 0.5) geom")
    points.write.format("geoparquet").save(str(tmp_path / "points"))
    geoskip.dataset(spark, str(tmp_path / "points"), format="geoparquet").create_index(MinMax("id"))
    points = spark.read.format("geoparquet").load(str(tmp_path / "points"))
    asked = spark.sql("SELECT 1 a, ST_Point(4.01, 4.52) g UNION ALL SELECT 2, ST_Point(35.53, 5.54)")
    nearest = asked.join(points, expr("ST_KNN(g, geom, 5, false)"))
    assert same_as_off(lambda: nearest.join(spark.range(100, 101).toDF("k"), expr("id < k"))).files_kept == 8
    further = asked.join(points, expr("ST_KNN(g, geom, 5, false) AND id > a * 150"))
    assert same_as_off(lambda: further).files_kept == 8


def test_a_stream_beside_an_indexed_table(own: Any, tmp_path: Path) -> None:
    own.range(21, 24, 1, 1).selectExpr("id k", "timestamp_seconds(id) at").write.parquet(str(tmp_path / "asked"))
    asked = own.readStream.schema("k long, at timestamp").parquet(str(tmp_path / "asked")).withWatermark("at", "1 day")
    for how in ("inner", "left"):
        joined = asked.join(own.table("t"), expr("temp = k"), how).select("temp").writeStream
        query = joined.format("memory").queryName(f"joined_{how}").option("checkpointLocation", str(tmp_path / how))
        assert query.trigger(availableNow=True).start().awaitTermination(60)
        assert sorted(row.temp for row in own.table(f"joined_{how}").collect()) == [21, 22, 23]


@pytest.mark.parametrize("query", [query for query, files in QUERIES.items() if files < 2])
def test_files_are_skipped_without_adaptive_execution(own: Any, query: str) -> None:
    with settings(own, {"spark.sql.adaptive.enabled": "false"}):
        frame = own.sql(query)
        frame.collect()
        assert executed_files(frame) == QUERIES[query]


def test_two_joins_of_one_table(own: Any) -> None:
    query = "SELECT * FROM t x JOIN asked ON x.temp = k JOIN t y ON y.temp = k + 10"
    report = same_as_off(lambda: own.sql(query))
    assert [scan.files_kept for scan in report.scans] == [1, 4]  # y is broadcast
    union = "SELECT * FROM t JOIN asked ON temp = k UNION ALL SELECT * FROM t JOIN asked ON temp = k - 20"
    report = same_as_off(lambda: own.sql(union))
    assert sorted(scan.files_kept for scan in report.scans) == [1, 1]


def test_what_an_audit_reads_again_is_judged_by_the_keys(own: Any) -> None:
    with settings(own, {"spark.geoskip.audit": "1.0"}):
        frame = own.sql("SELECT * FROM t JOIN asked ON temp = k WHERE id >= 0")
        assert len(frame.collect()) == 4
        assert geoskip.wait_for_audits(own)
        (scan,) = geoskip.last_report(own).scans
    assert scan.files_audited == 3
    assert not scan.lost


@pytest.mark.parametrize("query", QUERIES)
def test_files_are_skipped_by_the_keys(own: Any, query: str) -> None:
    report = same_as_off(lambda: own.sql(query))
    assert [scan.files_kept for scan in report.scans] == [QUERIES[query]], report


def test_a_spatial_join_with_functions_in_python(plain: Any, tmp_path: Path) -> None:
    points = plain.range(0, 40, 1, 4).selectExpr("id", "id + 0.5 AS x", "id % 10 + 0.5 AS y")
    points.write.parquet(str(tmp_path / "points"))
    geoskip.dataset(plain, str(tmp_path / "points")).create_index(GeoBox("x", "y"))
    plain.read.parquet(str(tmp_path / "points")).createOrReplaceTempView("points")
    polygon = "POLYGON((3 3, 3 6, 6 6, 6 3, 3 3))"
    zones = f"VALUES ('a', '{polygon}'), ('b', 'POINT(35.5 5.5)'), ('c', NULL) AS zones(name, wkt)"
    for condition, expected in {
        "ST_Contains(ST_GeomFromText(wkt), ST_Point(x, y))": 2,
        "ST_Intersects(ST_GeomFromText(wkt), ST_Point(x, y))": 2,
        "ST_Distance(ST_Point(x, y), ST_GeomFromText(wkt)) < 8": 4,
        "NOT ST_Contains(ST_GeomFromText(wkt), ST_Point(x, y))": 4,
        "ST_Contains(ST_GeomFromText(wkt), ST_Point(x, y)) AND name = 'b'": 1,
    }.items():
        report = same_as_off(lambda sql=f"SELECT id, name FROM points JOIN {zones} ON {condition}": plain.sql(sql))
        assert report.files_kept == expected, report


def test_a_filter_over_many_rows_is_not_reported_as_answered(own: Any) -> None:
    frame = own.sql("SELECT * FROM t JOIN (SELECT explode(sequence(1, 501)) AS k) ON temp > k + 25")
    frame.collect()
    assert "the other side of a join" not in str(geoskip.report(frame).reasons)
