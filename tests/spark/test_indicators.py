"""Conditions of a query's scans, the paper's indicators, and the log of what a session has asked."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions as F

import geoskip
from geoskip import MinMax
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.lifecycle.log import latest
from geoskip.spark.advisor import workload_log
from geoskip.spark.advisor.scan_conditions import conditions_of
from geoskip.spark.session import java

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


SCANS = {
    "SELECT * FROM tens WHERE a > 5 AND s LIKE 'x%'": ["(a IS NOT NULL AND s IS NOT NULL AND a > 5 AND s LIKE 'x%')"],
    "SELECT * FROM tens": ["()"],
    "SELECT 1": [],
    "SELECT * FROM tens x JOIN tens y ON x.a = y.a WHERE x.a > 35 AND y.s = 'x1'": [
        "(a IS NOT NULL AND a > 35)",
        "(s IS NOT NULL AND s = 'x1' AND a > 35 AND a IS NOT NULL)",
    ],
    "SELECT count(*) FROM (SELECT upper(s) AS u, a + 1 AS b FROM tens) WHERE u = 'X1' AND b < 7": [
        "(s IS NOT NULL AND a IS NOT NULL AND upper(s) = 'X1' AND (a + 1) < 7)"
    ],
}


def test_conditions_are_those_that_reach_each_scan(spark: Any, tens: str) -> None:
    for query, predicates in SCANS.items():
        for asked in (query, spark.sql(query)):
            found = conditions_of(spark, asked)
            assert [str(scan.predicate) for scan in found] == predicates
            assert all((scan.root, scan.files, scan.bytes > 0) == (tens, 4, True) for scan in found)


def test_subqueries_have_scans_of_their_own_once(spark: Any, tens: str, rides: Path) -> None:
    query = "SELECT * FROM tens WHERE a IN (SELECT tip FROM rides WHERE city = 'c') AND a < (SELECT max(tip) FROM "
    query += "rides) AND s > 'x' OR a > (SELECT max(tip) FROM rides)"  # the same subquery again
    found = conditions_of(spark, query)
    assert sorted(scan.root.rpartition("/")[2] for scan in found) == ["rides", "rides", "tens"]


def test_finding_conditions_leaves_no_trace(spark: Any, tens: str) -> None:
    before = len(geoskip.reports(spark))
    with geoskip.disabled(spark):
        (scan,) = conditions_of(spark, "SELECT * FROM tens WHERE a = 3")
        assert not geoskip.is_enabled(spark)
    assert (scan.condition, len(geoskip.reports(spark))) == ("(a = 3L) AND (a IS NOT NULL)", before)
    assert "GeoskipFileIndex" not in spark.sql("SELECT * FROM tens WHERE a = 3")._jdf.queryExecution().toString()


def test_a_cached_frame_has_the_conditions_on_its_files(spark: Any, tens: str) -> None:
    cached = spark.table("tens").cache()
    try:
        assert [str(scan.predicate) for scan in conditions_of(spark, cached.filter("a = 3"))] == [
            "(a IS NOT NULL AND a = 3)"
        ]
    finally:
        cached.unpersist()


NO_QUERIES = [
    ("DROP TABLE tens", "got the command DROP TABLE tens"),
    ("INSERT INTO tens SELECT * FROM tens", "a query only reads"),
    ("FROM tens INSERT INTO tens SELECT a, s INSERT INTO tens SELECT a, s", "a query only reads"),
    ("SELECT nope FROM tens", "cannot be resolved"),
    ("SELEC", "Syntax error"),
    (7, "got 7 of type int"),
]


def test_what_is_no_query_gets_an_error_and_is_not_run(spark: Any, tens: str) -> None:
    for query, message in NO_QUERIES:
        with pytest.raises(InvalidSpecificationError, match=message):
            conditions_of(spark, query)
    assert spark.table("tens").count() == 40


def test_a_query_that_fails_in_planning_is_named(spark: Any, tens: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    for query in ("SELECT * FROM tens WHERE a = 1 / 0", "BEGIN SELECT 1; END"):
        if pyspark.__version__.startswith("3.") and "/ 0" in query:
            continue  # Spark 3.5 leaves the division to execution
        with pytest.raises(InvalidSpecificationError, match=f"(cannot plan the query|got the command) {query[:5]}"):
            conditions_of(session, query.replace("tens", f"parquet.`{tens}`"))


# --- indicators -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rides(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A view ``rides`` over partitioned files of uneven sizes in folders with odd names, indexed by MinMax(fare)."""
    root = tmp_path_factory.mktemp("indicators") / "rides"
    rows = 0
    for number, city in enumerate(("a b", "a%20b", "c")):
        folder = root / f"city={city.replace('%', '%25').replace(' ', '%20')}"
        folder.mkdir(parents=True)
        for part in range(3):
            count = 5 + 7 * part + number
            fares = [float((31 * (rows + i)) % 50 + 40 * part) for i in range(count)]
            tips = [None if i % 4 == 0 else i % 7 for i in range(count)]
            pq.write_table(pa.table({"fare": fares, "tip": tips}), folder / f"part-{part}.parquet")
            rows += count
    geoskip.dataset(spark, str(root)).create_index(MinMax("fare"))
    spark.read.parquet(str(root)).createOrReplaceTempView("rides")
    return root


CONDITIONS: dict[str, Callable[[Any, Any, str], bool]] = {
    "fare > 100": lambda fare, tip, city: fare > 100,
    "fare > 100 AND city = 'c'": lambda fare, tip, city: fare > 100 and city == "c",
    "city = 'a%20b' AND tip = 3": lambda fare, tip, city: city == "a%20b" and tip == 3,
    "fare BETWEEN 45 AND 47 OR tip = 6": lambda fare, tip, city: 45 <= fare <= 47 or tip == 6,
    "tip IS NULL": lambda fare, tip, city: tip is None,
    "fare < 0": lambda fare, tip, city: False,
    "fare = 3.5": lambda fare, tip, city: False,
    "city = 'nowhere'": lambda fare, tip, city: False,
    "true": lambda fare, tip, city: True,
}


def counted_by_arrow(root: Path, condition: str) -> dict[str, int]:
    """Matching rows of each file, one file and one row at a time."""
    found = {}
    for path in sorted(root.glob("city=*/*.parquet")):
        city = path.parent.name.removeprefix("city=").replace("%20", " ").replace("%25", "%")
        rows = pq.ParquetFile(path).read().to_pylist()
        found[str(path)] = sum(CONDITIONS[condition](row["fare"], row["tip"], city) for row in rows)
    return found


@pytest.mark.slow
def test_counts_are_those_of_files_counted_one_by_one(spark: Any, rides: Path) -> None:
    """The indicators of a workload, what a report says and what the planner keeps, of the same queries."""
    frames = {condition: spark.table("rides").where(condition) for condition in CONDITIONS}
    snapshot = latest(geoskip.dataset(spark, str(rides)).store)
    assert snapshot is not None
    paths = [f"{rides}/{path}" for path in snapshot.files.column("path").to_pylist()]
    before = len(geoskip.reports(spark))
    workload = geoskip.workload(frames.values())
    assert len(geoskip.reports(spark)) == before
    for (condition, frame), found in zip(frames.items(), workload, strict=True):
        (scan,), scans = found, geoskip.report(frame).scans
        by_file = counted_by_arrow(rides, condition)
        sizes = {path: (pq.read_metadata(path).num_rows, Path(path).stat().st_size) for path in by_file}
        holding = [path for path, rows in by_file.items() if rows]
        read = [path.removeprefix("file:") for path in scans[0].kept_files()] if scans else []
        assert scan.rows_matching == sum(by_file.values()), condition
        for extent, chosen in ((scan.matching, holding), (scan.read, read), (scan.total, list(by_file))):
            rows, size = (sum(sizes[path][place] for path in chosen) for place in (0, 1))
            assert extent == (len(chosen), rows, size), condition
        if holding:
            assert found.psi == found.sigma / (found.lambda_ * found.mu)
        else:
            assert (found.sigma, found.lambda_, found.mu, found.psi) == (0, None, None, None)
            assert "defines neither lambda" in str(found)
        (planned,) = conditions_of(spark, frame.where("FARE < 1000 OR City = 'd'"))
        kept = {path for path, keep in zip(paths, planned.keep_mask(snapshot), strict=True) if keep}
        assert kept == set(read), condition
        assert planned.keep_mask(snapshot, []).sum() == (
            0 if "nowhere" in condition else 3 if "city" in condition else 9
        )
    assert (len(workload), workload.left_out) == (len(frames), 3)
    assert workload.psi == pytest.approx(workload.sigma / (workload.lambda_ * workload.mu), rel=1e-12)
    assert workload.sigma == pytest.approx(math.prod(float(q.sigma) for q in workload.defined) ** (1 / 6), rel=1e-12)
    assert "geometric means of 6; left out, as no row matches: 3" in str(workload)
    assert workload._repr_html_().count("<tr>") == len(frames) + 2
    with pytest.raises(InvalidSpecificationError, match="several queries"):
        geoskip.workload("SELECT * FROM rides", spark=spark)


def test_each_scan_of_a_join_has_its_own_indicators_and_sums(spark: Any, rides: Path, tens: str) -> None:
    query = "SELECT count(*) FROM rides JOIN tens ON tip = a WHERE fare > 100 AND s = 'x3' AND rand() < 2"
    with geoskip.disabled(spark):  # measured with geoskip on, whatever the session has
        found = geoskip.indicators(query, spark=spark)
        assert not geoskip.is_enabled(spark)
    by_root = {scan.dataset.rpartition("/")[2]: scan for scan in found}
    assert (by_root["tens"].rows_matching, by_root["tens"].matching.files, by_root["tens"].psi) == (4, 4, 1)
    assert by_root["rides"].read.files < by_root["rides"].total.files == 9
    assert found.total == tuple(map(sum, zip(*(scan.total for scan in found), strict=True)))
    assert found.psi == found.sigma / (found.layout_factor * found.mu)


def test_what_no_row_settles_is_left_out_and_named(spark: Any, tens: str) -> None:
    query = "SELECT * FROM tens WHERE rand() < 0.5 AND a > 35 AND a < (SELECT max(a) FROM tens)"
    found = {scan.condition != "": scan for scan in geoskip.indicators(query, spark=spark)}
    assert found[True].rows_matching == 4
    assert [note.partition(",")[0] for note in found[True].notes] == [
        "not counted among the scan's conditions: (rand() < 0.5D)",
        "not counted among the scan's conditions: (a condition over a subquery)",
    ]


def test_a_query_that_fails_on_a_row_says_why(spark: Any, tens: str) -> None:
    with pytest.raises(GeoskipError, match=r"the matching rows of .* cannot be counted: .*too much: 39") as raised:
        geoskip.indicators("SELECT * FROM tens WHERE a = if(a = 39, raise_error('too much: ' || a), 3)", spark=spark)
    assert "\n" not in str(raised.value)


# --- what a session has asked -----------------------------------------------------------------------------------------


@pytest.fixture
def asking(spark: Any) -> Any:
    """A session of its own, since the log is a session's, with the views of the run's."""
    session = spark.newSession()
    geoskip.enable(session)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def test_the_log_sums_what_reports_say_of_shapes_and_holds_no_literal(asking: Any, rides: Path, tens: str) -> None:
    asking.udf.register("secret_taste", lambda city: "Zanzibar" in (city or ""), "boolean")
    asking.read.parquet(str(rides)).createOrReplaceTempView("r")
    asking.read.parquet(tens).createOrReplaceTempView("t")
    asking.sql("SELECT * FROM t WHERE s = 'before'").collect()
    assert geoskip.workload_log(asking).isEmpty()
    with pytest.raises(InvalidSpecificationError, match=r"spark.conf.set\('spark.geoskip.workload', 'literals'\)"):
        geoskip.workload(spark=asking)
    asking.conf.set("spark.geoskip.workload", "on")
    read = []
    for fare in (50.77715, 110.77715):
        asking.sql(f"SELECT * FROM r WHERE fare > {fare} AND city <> 'Zanzibar'").collect()
        read.append(geoskip.last_report(asking))
    asking.sql("SELECT 1").collect()
    asking.sql(
        "SELECT /* 735041 */ s FROM t JOIN r ON tip = a WHERE s LIKE 'Zanzi_ar%' AND s IN ('Zanzibar', 'x1', 'x2') AND "
        "a > (SELECT 735042) AND (city RLIKE 'Zanz.*' OR secret_taste(city)) AND "
        "from_json(s, 'k STRUCT<v735043: INT>').k.v735043 <=> 735044 AND s < concat(s, 'Zanzibar') AND "
        "rand(735045) > 0.1"
    ).collect()  # fmt: skip
    asking.sql("SELECT count(*) FROM t WHERE s LIKE 'Zanzibar%' AND a <> -735046").collect()
    asking.sql("SELECT * FROM r WHERE fare < 0 LIMIT 3").collect()
    asking.sql("SET spark.geoskip.workload=off")  # before the last query has reached the listener, maybe
    asking.sql("SELECT * FROM t WHERE s = 'before'").collect()
    log = [row.asDict() for row in geoskip.workload_log(asking).collect()]
    (twice,) = (row for row in log if row["count"] == 2)
    assert twice["condition"] == "city <> ?string AND fare > ?double AND city IS NOT NULL AND fare IS NOT NULL"
    sums = [sum(getattr(one, name) for one in read) for name in ("files_kept", "bytes_kept", "files_total")]
    assert [twice["files_read"], twice["bytes_read"], twice["files_total"]] == sums
    assert twice["files_read"] < twice["files_total"]
    assert twice["first_seen"] < twice["last_seen"]
    assert "a <> ?bigint AND s LIKE '?%' AND a IS NOT NULL AND s IS NOT NULL" in [row["condition"] for row in log]
    assert sorted({row["dataset"].rpartition("/")[2] for row in log}) == ["rides", "tens"]
    assert len(log) == 5  # the two sides of the join each have one
    kept = repr(log) + java(asking).geoskip.workload(asking._jsparkSession)
    assert not re.search("Zanz|50[.]7771|110[.]7771|73504|before", kept)
    with pytest.raises(InvalidSpecificationError, match="without their literals"):
        geoskip.workload(spark=asking)


@pytest.mark.slow
def test_what_was_seen_with_literals_can_be_measured_again(asking: Any, rides: Path, tmp_path: Path) -> None:
    asking.conf.set("spark.geoskip.workload", "literals")
    asking.read.parquet(str(rides)).createOrReplaceTempView("r")
    asking.udf.register("tripled", lambda tip: None if tip is None else 3 * tip, "int")
    conditions = ["fare > 100 AND city = 'c'", "tripled(tip) = 18 AND fare > 20"]
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").write_text("k;v\n1;x\n2;y\n3;y\n")
    csv = asking.read.csv(str(tmp_path / "csv"), sep=";", header=True, schema="k int, v string")  # without metadata
    gone = tmp_path / "gone"
    asking.range(3).write.parquet(str(gone))
    asking.read.parquet(str(gone)).where("id > 1").collect()
    frames = [asking.sql(f"SELECT fare FROM r WHERE {condition}") for condition in conditions]
    frames.append(csv.where("v = 'y' AND k > 2"))
    for frame in frames:
        frame.collect()
    frames[0].collect()
    shutil.rmtree(gone)
    with pytest.warns(UserWarning, match="id > 1.* is left out"):
        found = geoskip.workload(spark=asking)
    found = sorted(found, key=lambda query: (query.total.files, query.rows_matching))
    again = sorted(geoskip.workload(frames), key=lambda query: (query.total.files, query.rows_matching))
    assert [query.to_dict()["scans"] for query in found] == [query.to_dict()["scans"] for query in again]
    log = {row["condition"]: row["count"] for row in geoskip.workload_log(asking).collect() if row["literals"]}
    assert "(city = 'c') AND (fare > 100.0D) AND (city IS NOT NULL) AND (fare IS NOT NULL)" in log
    assert (sorted(log.values()), sum("tripled(tip)" in condition for condition in log)) == ([1, 1, 1, 2], 1)


@pytest.mark.slow
def test_what_was_seen_keeps_its_number_and_little_room(asking: Any, tens: str, rides: Path) -> None:
    asking.conf.set("spark.geoskip.workload", "literals")
    frames = [asking.read.parquet(tens).where("a > 35"), asking.read.parquet(str(rides)).where("fare > 110")]
    for frame in frames:
        frame.collect()
    entries = workload_log._entries(asking)
    frames[0].collect()  # which moves it to the end of the log
    planned = [workload_log._logged_scan(asking, entry["number"], entry["read"]) for entry in entries]
    assert [scan.root for scan in planned if scan] == [entry["dataset"] for entry in entries]
    for letter in "abc":
        asking.read.parquet(tens).where(F.col("s") != letter * 1_500_000).collect()
    assert geoskip.workload_log(asking).count() == 2
    assert workload_log._logged_scan(asking, entries[0]["number"], entries[0]["read"]) is None


def test_rows_of_files_that_are_read_twice_count_twice(spark: Any, parts: Callable[..., Path]) -> None:
    place = str(parts({"a": [1, 2, 3]}, {"a": [4, 5]}))
    geoskip.dataset(spark, place).create_index(MinMax("a"))
    found = geoskip.indicators(spark.read.parquet(place, place).where("a < 3"))
    assert (found.rows_matching, found.read.rows, found.total.rows) == (4, 6, 10)
