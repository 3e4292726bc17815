"""Queries that need only the first rows of an order: ORDER BY with LIMIT, min and max."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import udf

import geoskip
from geoskip import GeoBox, MinMax, maps
from geoskip.clauses import Clause
from geoskip.predicates import Predicate
from tests.conftest import four_tens, kept_of_all, same_as_off, view_of_tens
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with the view ``t`` over four files with an index."""
    session = spark.newSession()
    view_of_tens(session, tmp_path_factory.mktemp("first"))
    return session


QUERIES = {
    "SELECT * FROM t ORDER BY temp LIMIT 3": 1,
    "SELECT * FROM t ORDER BY temp DESC LIMIT 10": 1,
    "SELECT * FROM t ORDER BY temp DESC LIMIT 11": 2,
    "SELECT id FROM t ORDER BY temp DESC NULLS FIRST, id LIMIT 3": 1,
    "SELECT * FROM t ORDER BY temp NULLS LAST LIMIT 3 OFFSET 8": 2,
    "SELECT * FROM t WHERE temp < 30 ORDER BY temp DESC LIMIT 3": 1,
    "SELECT * FROM t WHERE temp < 33 ORDER BY temp DESC LIMIT 3": 2,  # not all rows of the last file count
    "SELECT * FROM t WHERE id >= 0 ORDER BY temp LIMIT 3": 4,  # not indexed, so no row counts
    "SELECT * FROM (SELECT -temp * 2 AS x FROM t) ORDER BY x LIMIT 3": 1,
    "SELECT * FROM t ORDER BY abs(temp - 25) LIMIT 9": 2,  # temp >= 20 AND temp <= 30
    "SELECT max(temp) FROM t": 1,
    "SELECT min(temp), max(temp + 1) FROM t": 2,
    "SELECT max(temp) - 5 FROM t WHERE temp < 30": 1,
    "SELECT max_by(id, temp), min_by(city, temp + 1) FROM t": 2,
    "SELECT max(struct(temp, id)), max_by(city, struct(temp, id)) FROM t": 1,
    "SELECT max_by(id, city) FROM t": 4,  # not indexed
    "SELECT * FROM t ORDER BY struct(temp, id) DESC LIMIT 3": 1,
    "SELECT max(temp), count(*) FROM t": 4,
    "SELECT max(temp), max(id) FROM t": 4,
    "SELECT max(temp) FILTER (WHERE id < 5) FROM t": 4,
    "SELECT city, max(temp) FROM t GROUP BY city": 4,
    "SELECT * FROM t ORDER BY city, temp LIMIT 3": 4,
    "SELECT * FROM t ORDER BY temp LIMIT 41": 4,
    "SELECT * FROM t ORDER BY temp LIMIT 0": 0,
    "SELECT * FROM (SELECT * FROM t ORDER BY temp LIMIT 3) WHERE temp > 1": 1,
    "SELECT * FROM (SELECT * FROM t ORDER BY temp LIMIT 3) ORDER BY temp DESC LIMIT 2": 1,
    "SELECT id, (SELECT max(temp) FROM t) FROM range(1)": 1,
}


@pytest.mark.parametrize("query", QUERIES)
def test_files_of_later_rows_are_skipped(own: Any, query: str) -> None:
    report = same_as_off(lambda: own.sql(query))
    if QUERIES[query]:
        assert max(scan.files_kept for scan in report.scans) == QUERIES[query], report


ROWS = {
    "int": [3, None, -7, 9, 4, 4],
    "long": [2**62, None, -(2**62), 9, 4, 4],
    "float": [0.1, None, math.nan, -math.inf, -0.0, 0.5],
    "double": [0.1, None, math.nan, math.inf, -0.0, 1e-300],
    "decimal": [Decimal("0.10"), None, Decimal("-9.99"), Decimal("5.00"), Decimal("4.01"), Decimal("4.02")],
    "date": [dt.date(2024, 2, day) for day in range(1, 7)],
    "timestamp": [dt.datetime(2024, 2, 1, hour, tzinfo=dt.UTC) for hour in range(6)],
    "ntz": [dt.datetime(1850, 2, 1, hour) for hour in range(6)],
}
KINDS = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(3, 2),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_every_order_of_every_type(spark: Any, tmp_path: Path, kind: str) -> None:
    session = spark.newSession()
    for number, value in enumerate(ROWS[kind]):
        table = pa.table({"v": pa.array([value, value], KINDS[kind]), "n": [number, number]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("r")
    read = {}
    for order in ("v", "v DESC", "v NULLS LAST", "v DESC NULLS FIRST"):
        for rows in (1, 2, 3, 5):
            query = f"SELECT v FROM r ORDER BY {order} LIMIT {rows}"
            read[query] = kept_of_all(lambda query=query: session.sql(query))[0]
    for function in ("min", "max"):
        assert kept_of_all(lambda function=function: session.sql(f"SELECT {function}(v) FROM r"))[0] <= 2
    assert all(count <= 4 for count in read.values()), read
    assert read["SELECT v FROM r ORDER BY v LIMIT 1"] == (2 if kind in ("decimal", "float") else 1)  # -9.99 and -inf


@pytest.mark.parametrize("nulls", [1, 10])
def test_rows_that_are_null_are_not_counted_if_they_come_last(spark: Any, tmp_path: Path, nulls: int) -> None:
    session = spark.newSession()
    for number in range(3):
        values = [None] * nulls + list(range(10 * number, 10 * number + 10 - nulls))
        pq.write_table(pa.table({"v": pa.array(values, pa.int32())}), tmp_path / f"{number}.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    frame = session.read.parquet(str(tmp_path))
    for rows, files in ((9, 1), (10, 2)):
        expected = files if nulls == 1 else 3
        assert kept_of_all(lambda rows=rows: frame.orderBy(frame.v.desc()).limit(rows))[0] == expected
        assert (
            kept_of_all(lambda rows=rows: frame.orderBy(-frame.v).limit(rows))[0] == 3
        )  # NULLs of all files are first


def test_partitions_count_only_their_own_rows(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    for day in range(1, 4):
        folder = tmp_path / f"day=2024-01-0{day}"
        folder.mkdir()
        for number in range(2):
            pq.write_table(
                pa.table({"v": list(range(100 * day + 10 * number, 100 * day + 10 * number + 10))}),
                folder / f"{number}.parquet",
            )
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("p")
    for query, files in {
        "SELECT * FROM p ORDER BY v DESC LIMIT 3": 1,
        "SELECT * FROM p WHERE day < '2024-01-03' ORDER BY v DESC LIMIT 3": 1,
        "SELECT * FROM p WHERE day = '2024-01-01' OR v < 205 ORDER BY v DESC LIMIT 3": 2,
        "SELECT * FROM p ORDER BY v + day(day) DESC LIMIT 11": 2,
        "SELECT max(v) FROM p WHERE day <> '2024-01-03'": 1,
    }.items():
        assert kept_of_all(lambda query=query: session.sql(query))[0] == files, query


@pytest.mark.parametrize("rechecks", ["1000", "0"])  # of skipped files, as if these were very many
@pytest.mark.parametrize("change", ["other rows", "gone"])
def test_plans_that_run_again_look_at_the_counted_files(spark: Any, tmp_path: Path, change: str, rechecks: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.geoskip.fingerprint.maxRechecks", rechecks)
    place = view_of_tens(session, tmp_path)
    frame = session.sql("SELECT temp FROM t ORDER BY temp DESC LIMIT 3")
    assert [row.temp for row in frame.collect()] == [39, 38, 37]
    assert geoskip.report(frame).files_kept == 1
    table = pq.read_table(place / "part-3.parquet")
    kept = table.slice(0, 1 if change == "other rows" else 0)
    pq.write_table(kept, place / "part-3.parquet")
    again = [row.temp for row in frame.collect()]
    assert again == ([30, 29, 28] if change == "other rows" else [29, 28, 27])
    stale = session.sql("SELECT temp FROM t ORDER BY temp DESC LIMIT 3")  # planned over a listing from before
    assert [row.temp for row in stale.collect()] == again


def test_files_of_two_datasets_are_counted_once(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    place = four_tens(tmp_path)
    (place / "inner").mkdir()
    for number in (2, 3):
        (place / f"part-{number}.parquet").rename(place / "inner" / f"part-{number}.parquet")
    geoskip.dataset(session, str(place / "inner")).create_index(MinMax("temp"))
    frame = session.read.parquet(str(place), str(place / "inner"))
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"))
    assert same_as_off(lambda: frame.orderBy(frame.temp.desc()).limit(15)).files_kept >= 2


def test_readers_that_may_leave_out_rows_count_none(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    place = four_tens(tmp_path)
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"))
    query = lambda frame: frame.orderBy(frame.temp.desc()).limit(3)  # noqa: E731
    assert kept_of_all(lambda: query(session.read.parquet(str(place))))[0] == 1
    lenient = session.read.option("ignoreCorruptFiles", "true").parquet(str(place))
    assert kept_of_all(lambda: query(lenient))[0] == 4
    with settings(session, {"spark.sql.files.ignoreMissingFiles": "true"}):
        assert kept_of_all(lambda: query(session.read.parquet(str(place))))[0] == 4
    session.read.parquet(str(place)).select("temp").repartition(4).write.json(str(tmp_path / "json"))
    geoskip.dataset(session, str(tmp_path / "json"), format="json").create_index(MinMax("temp"))
    assert kept_of_all(lambda: query(session.read.json(str(tmp_path / "json"))))[0] == 4


@pytest.mark.parametrize("functions", ["Sedona's", "Python's"])
def test_nearest_points(spark: Any, plain: Any, tmp_path: Path, functions: str) -> None:
    session = plain if functions == "Python's" else spark
    if not session.catalog.functionExists("ST_KNN") and functions == "Sedona's":
        pytest.skip("Sedona does not run on this version of Spark")
    for number in range(16):
        x, y = 10.0 * (number % 4), 10.0 * (number // 4)
        points = {"x": [x + n / 10 for n in range(10)], "y": [y + n / 10 for n in range(10)]}
        pq.write_table(pa.table(points), tmp_path / f"{number}.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(GeoBox("x", "y"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("points")
    here = "ST_GeomFromText('POINT (11 11)')"
    unknown = 16 if functions == "Python's" else 1  # which may be NULL beyond the poles
    for query, files in {
        f"SELECT *, ST_Distance(ST_Point(x, y), {here}) d FROM points ORDER BY d LIMIT 5": 1,
        f"SELECT * FROM points ORDER BY ST_DistanceSphere({here}, ST_Point(x, y)) LIMIT 5": 1,
        f"SELECT * FROM points ORDER BY ST_DistanceSpheroid(ST_Point(x, y), {here}) DESC LIMIT 5": unknown,
        f"SELECT min(ST_Distance(ST_Point(x, y), {here})) FROM points": 1,
        "SELECT * FROM points WHERE ST_Contains(ST_GeomFromText('POLYGON ((15 15, 35 15, 35 35, 15 35, 15 15))'), "
        f"ST_Point(x, y)) ORDER BY ST_Distance(ST_Point(x, y), {here}) LIMIT 5": 1,
    }.items():
        assert kept_of_all(lambda query=query: session.sql(query))[0] == files, query


def test_reports_tell_which_rows_are_the_first(own: Any) -> None:
    explained = geoskip.explain(own.sql("SELECT * FROM t ORDER BY temp DESC LIMIT 3"))
    assert "only rows with (temp >= 30) can be the first 3 rows by temp DESC NULLS LAST" in str(explained).replace(
        "L)", ")"
    )
    unknown = geoskip.explain(own.sql("SELECT max(id) FROM t"))
    assert "the first row by id DESC NULLS LAST may be in any file" in str(unknown)


def test_distances_that_are_null_are_first(plain: Any, tmp_path: Path) -> None:
    """A NULL radius, and the NaN near an antipode, which is NULL in a function over pandas Series."""
    antipode = (11 - 180 - 1.21091924e-10, -11 + 1.88109599e-09)
    points = [(10.0, 10.0, 1.0), (12.0, 10.0, None), (*antipode, 1.0), (60.0, 9.0, 1.0)]
    for number, (x, y, radius) in enumerate(points):
        rows = {"x": [x] * 2, "y": [y] * 2, "r": pa.array([radius] * 2, pa.float64())}
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    geoskip.dataset(plain, str(tmp_path)).create_index(GeoBox("x", "y"))
    plain.read.parquet(str(tmp_path)).createOrReplaceTempView("radii")
    here = "ST_GeomFromText('POINT (11 11)')"
    for query, most in {
        f"SELECT * FROM radii WHERE ST_DWithin(ST_Point(x, y), {here}, r) IS NULL": 4,
        f"SELECT * FROM radii WHERE ST_DWithin(ST_Point(x, y), {here}, 1) IS NULL": 0,
        f"SELECT * FROM radii WHERE ST_DistanceSphere(ST_Point(x, y), {here}) IS NULL": 1,
        f"SELECT * FROM radii ORDER BY ST_DistanceSphere(ST_Point(x, y), {here}) LIMIT 2": 3,
        f"SELECT * FROM radii ORDER BY ST_DistanceSphere({here}, ST_Point(x, y)) NULLS LAST LIMIT 2": 2,
    }.items():
        assert kept_of_all(lambda query=query: plain.sql(query))[0] <= most, query


def test_merged_subqueries_look_at_the_counted_files_of_both(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    files = {
        "a": {"x": [100, 101], "y": [0, 200], "z": [0, 200]},  # proves the bound of x, and y - z may be 200
        "b": {"x": [0, 101], "y": [100, 100], "z": [0, 0]},  # proves the bound of y - z
        "c": {"x": [50, 51], "y": [50, 51], "z": [0, 0]},
    }
    for name, columns in files.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("x"), MinMax("y"), MinMax("z"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("m")
    frame = session.sql("SELECT (SELECT max(x) FROM m) a, (SELECT max(y - z) FROM m) b")
    frame._jdf.queryExecution().executedPlan()  # the files are chosen
    assert {scan.files_kept for scan in geoskip.explain(frame).scans} == {2}
    pq.write_table(pa.table({"x": [0, 100], "y": [1, 1], "z": [0, 0]}), tmp_path / "b.parquet")
    assert frame.collect() == [(101, 51)]


def test_rules_have_the_whole_budget_for_the_first_rows_too(spark: Any, tmp_path: Path) -> None:
    """A rule that takes more than what another decision has left of the budget is not put in quarantine."""
    session = spark.newSession()
    calls: list[Predicate] = []

    @udf("int")
    def warmth(temp: int) -> int:
        return temp

    @maps(warmth, index=MinMax)
    def slow(node: Predicate, index: MinMax) -> Clause | None:
        time.sleep(1.2)
        calls.append(node)
        return None

    session.udf.register("warmth", warmth)
    view_of_tens(session, tmp_path)
    with settings(session, {"spark.geoskip.planning.budget": "2"}):
        assert len(session.sql("SELECT * FROM t WHERE warmth(temp) > 3 ORDER BY temp LIMIT 3").collect()) == 3
    end = time.monotonic() + 20
    while len(calls) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.1)
    assert len(calls) >= 2
    assert not geoskip.quarantined()


def test_orders_over_columns_of_many_partitions_are_left_alone(spark: Any, tmp_path: Path) -> None:
    """The search would take the whole budget for planning."""
    session = spark.newSession()
    for day in range(17):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"v": [day, day]}), tmp_path / f"day={day}" / "part.parquet")
    geoskip.dataset(session, str(tmp_path)).create_index(MinMax("v"))
    frame = session.read.parquet(str(tmp_path))
    frame.createOrReplaceTempView("days")
    by_sum = "SELECT * FROM days ORDER BY v + day DESC LIMIT 3"
    assert kept_of_all(lambda: session.sql(by_sum)) == (17, 17)
    assert "may be in any file: it reads columns of many partitions" in str(geoskip.explain(session.sql(by_sum)))
    assert kept_of_all(lambda: session.sql(by_sum.replace("v + day", "v"))) == (2, 17)
    shutil.rmtree(tmp_path / "day=0")
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("days")
    assert kept_of_all(lambda: session.sql(by_sum)) == (2, 16)


BELOW = {
    "SELECT a.id, b.city FROM t a LEFT JOIN t b ON b.id = a.id + 40 ORDER BY a.temp DESC LIMIT 3": [1, 4],
    "SELECT b.id FROM t a RIGHT JOIN t b ON b.id = a.id + 40 ORDER BY b.temp DESC, a.id LIMIT 3": [4, 1],
    "SELECT max(a.temp), min(b.city) FROM t a LEFT JOIN t b ON b.id = a.id + 1": [4, 4],
    "SELECT a.id, b.id FROM t a LEFT JOIN t b ON b.id = a.id + 40 WHERE a.id > 3 ORDER BY a.temp LIMIT 3": [4, 4],
    "SELECT max_by(a.id, a.temp) FROM t a LEFT JOIN t b ON b.id < a.id": [1, 4],
    "SELECT a.id FROM t a LEFT JOIN t b ON b.id = a.id + 1 WHERE b.id IS NULL ORDER BY a.temp LIMIT 1": [4, 4],
    "SELECT a.id FROM t a LEFT JOIN t b ON b.id = a.id + 1 ORDER BY b.temp LIMIT 1": [4, 4],
    "SELECT a.id FROM t a LEFT JOIN t b ON b.id = a.id + 1 ORDER BY a.temp + b.temp, a.id LIMIT 1": [4, 4],
    "SELECT a.id, b.id FROM t a FULL JOIN t b ON b.id = a.id + 1 ORDER BY a.temp DESC LIMIT 3": [4, 4],
    "SELECT a.id FROM t a JOIN t b ON b.id = a.id + 1 ORDER BY a.temp DESC LIMIT 3": [4, 4],
    "SELECT * FROM (SELECT temp FROM t UNION ALL SELECT -temp FROM t WHERE temp < 30) ORDER BY 1 DESC LIMIT 3": [1, 1],
    "SELECT max(x) FROM (SELECT temp x, id y FROM t UNION ALL SELECT id, temp FROM t)": [1, 4],
    "SELECT min(x) FROM (SELECT temp x, id y FROM t UNION ALL SELECT temp, id FROM t) WHERE y + rand() > 3": [4, 4],
}


@pytest.mark.parametrize("query", BELOW)
def test_first_rows_of_outer_joins_and_unions(own: Any, query: str) -> None:
    """Each scan's number of files read. What outer joins and unions keep of a side they keep with its values."""
    with settings(own, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}):
        assert [scan.files_kept for scan in same_as_off(lambda: own.sql(query)).scans] == BELOW[query]


def test_first_texts(spark: Any, tmp_path: Path) -> None:
    """Bounds of long texts are shortened, and bytes that are no UTF-8 are compared like others."""
    session = spark.newSession()
    texts = [b"b", b"B", b"a" * 300, b"a" * 299 + b"b", b"\xff\xfe", "\U0001f600".encode(), "\ufb01".encode(), b""]
    for number, text in enumerate(texts):
        pq.write_table(pa.table({"b": [text, text + b"x", None]}), tmp_path / f"{number}.parquet")
    with settings(session, {"spark.sql.parquet.binaryAsString": "true"}):
        frame = session.read.schema("b string").parquet(str(tmp_path))
        geoskip.dataset(session, str(tmp_path), schema="b string").create_index(MinMax("b"))
        frame.createOrReplaceTempView("texts")
        for query, files in {
            "SELECT max(b) FROM texts": 1,
            "SELECT min(b) FROM texts": 2,
            "SELECT hex(b) FROM texts ORDER BY b NULLS LAST LIMIT 3": 4,
            "SELECT hex(b) FROM texts ORDER BY b DESC LIMIT 5": 3,
            "SELECT hex(b) FROM texts ORDER BY b LIMIT 3": 8,
            "SELECT hex(b) FROM texts WHERE b > 'A' ORDER BY b LIMIT 1": 8,  # each has a NULL
            "SELECT max(upper(b)) FROM texts": 8,
        }.items():
            assert kept_of_all(lambda query=query: session.sql(query))[0] == files, query


def test_files_that_overlap(spark: Any, tmp_path: Path) -> None:
    """Each file has rows from the whole range; the k-th of their first rows is a bound."""
    session = spark.newSession()
    for n in range(20):
        time = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=n + 100 * day) for day in range(9)]
        rows = {"v": [*range(n, 1000, 50), None], "s": [f"a{n:02}", "zz" + "z" * n] * 10 + [None]}
        pq.write_table(
            pa.table({**rows, "x": [0.5 + n, math.nan, -1.0] * 7, "t": time * 2 + [None] * 3}), tmp_path / f"{n}"
        )
    geoskip.dataset(session, str(tmp_path), format="parquet").create_index(*map(MinMax, "vsxt"))
    session.read.parquet(str(tmp_path)).createOrReplaceTempView("o")
    for query, files in {
        "SELECT max(v), min(v) FROM o": 2,
        "SELECT max(t) FROM o": 2,  # within a microsecond
        "SELECT min(t) FROM o": 1,
        "SELECT max(s) FROM o": 20,  # bounds of texts may be shortened
        "SELECT max(x) FROM o": 20,  # NaN
        "SELECT v FROM o ORDER BY v NULLS LAST LIMIT 3": 3,
        "SELECT v FROM o ORDER BY v DESC LIMIT 5 OFFSET 2": 7,
        "SELECT v FROM o WHERE x >= -1 ORDER BY v DESC LIMIT 5 OFFSET 2": 7,
        "SELECT v FROM o WHERE v < 965 ORDER BY v DESC LIMIT 1": 20,  # it is not known which rows satisfy this
        "SELECT v FROM o ORDER BY v LIMIT 3": 20,
        "SELECT max(v + 1) FROM o": 20,  # not indexed
    }.items():
        assert kept_of_all(lambda query=query: session.sql(query))[0] == files, query


def test_correlated_subqueries_that_need_an_aggregate(own: Any) -> None:
    """Spark reads the outer table in the subquery, too: its files are listed before the join is planned again."""
    inner = "SELECT max(temp) FROM t b WHERE b.id = a.id HAVING max(temp) > 7"
    same_as_off(lambda: own.sql(f"SELECT id FROM t a WHERE EXISTS ({inner})"))
