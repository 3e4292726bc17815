"""Queries of every shape skip, and return the same rows as with geoskip off."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import same_as_off
from tests.support.sql_shapes import SHAPES

pytestmark = pytest.mark.spark

INDEXES = ("id", "temp", "s.a", "`odd.name`")


def table(number: int) -> pa.Table:
    """Ten rows: ids and temperatures of the number's own tens."""
    ids = [10 * number + k for k in range(10)]
    return pa.table(
        {
            "id": ids,
            "temp": [None if k % 10 == 9 else k for k in ids],
            "city": [f"c{k % 3}" for k in ids],
            "s": [{"a": k, "b": f"b{k}"} for k in ids],
            "odd.name": ids,
            "words": [[f"w{k}", "all"] for k in ids],
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, ``temp`` 0..8, 10..18, 20..28 and 30..38; the last two in a folder of their own."""
    root = tmp_path_factory.mktemp("shapes") / "data"
    for number in range(4):
        folder = root / ("sub" if number > 1 else "top")
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(number), folder / f"part-{number}.parquet")
    return root


@pytest.fixture(scope="module")
def session(spark: Any, place: Path) -> Iterator[Any]:
    """A session of the module's own, with the dataset as the view ``t``, one without metadata as ``plain_t``."""
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    geoskip.dataset(own, str(place), recursiveFileLookup=True).create_index(*map(MinMax, INDEXES))
    read(own, place).createOrReplaceTempView("t")
    own.range(0, 40, 4).selectExpr("id", "id * 2 AS twice").write.parquet(str(place.parent / "plain"))
    own.read.parquet(str(place.parent / "plain")).createOrReplaceTempView("plain_t")
    own.sql("CREATE TEMPORARY VIEW hot AS SELECT id, temp AS warmth, city FROM t WHERE temp > 25")
    own.sql("CREATE TEMPORARY VIEW hotter AS SELECT upper(city), city AS label FROM hot WHERE warmth > 35")
    own.sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW hot_everywhere AS SELECT * FROM t WHERE temp > 25")
    yield own
    own.catalog.clearCache()


def read(spark: Any, *places: Path | str, **options: Any) -> Any:
    return spark.read.options(recursiveFileLookup=True, **options).parquet(*map(str, places))


def kept(report: geoskip.Report) -> list[tuple[int, int]]:
    """Files kept and in all, of each scan of an indexed dataset in the plan's order."""
    print(report)  # pytest shows it where an assertion fails
    return [(scan.files_kept, scan.files_total) for scan in report.scans if not scan.dataset.endswith("/plain")]


@pytest.mark.parametrize("shape", SHAPES)
def test_sql(session: Any, shape: str) -> None:
    sql, expected = SHAPES[shape]
    report = same_as_off(lambda: session.sql(sql))
    assert sorted(kept(report)) == sorted(expected)


PATHS: dict[str, tuple[Callable[[Any, Path], Any], tuple[int, int]]] = {
    "a directory": (lambda spark, place: read(spark, place), (2, 4)),
    "a directory with a slash": (lambda spark, place: read(spark, f"{place}/"), (2, 4)),
    "a URI": (lambda spark, place: read(spark, place.as_uri()), (2, 4)),
    "a glob of directories": (lambda spark, place: spark.read.parquet(f"{place}/*"), (2, 4)),
    "a glob of files": (lambda spark, place: spark.read.parquet(f"{place}/*/part-[13].parquet"), (1, 2)),
    "a list of roots": (lambda spark, place: read(spark, place / "top", place / "sub"), (2, 4)),
    "a single file": (lambda spark, place: spark.read.parquet(str(place / "top/part-1.parquet")), (0, 1)),
    "two files": (
        lambda spark, place: spark.read.parquet(str(place / "top/part-1.parquet"), str(place / "sub/part-2.parquet")),
        (1, 2),
    ),
    "a subdirectory": (lambda spark, place: spark.read.parquet(str(place / "top")), (0, 2)),
    "one beside an unindexed root": (
        lambda spark, place: read(spark, place, place.parent / "plain/").select("id", "temp"),
        None,
    ),
    "pathGlobFilter": (lambda spark, place: read(spark, place, pathGlobFilter="*-3.parquet"), (1, 1)),
    "modifiedBefore": (lambda spark, place: read(spark, place, modifiedBefore="2999-01-01T00:00:00"), (2, 4)),
    "mergeSchema": (lambda spark, place: read(spark, place, mergeSchema=True), (2, 4)),
    "a narrower schema": (lambda spark, place: spark.read.schema("temp bigint").parquet(f"{place}/sub"), (2, 2)),
    "a wider schema": (lambda spark, place: spark.read.schema("gone int, temp bigint").parquet(f"{place}/top"), (0, 2)),
}


@pytest.mark.parametrize("path", PATHS)
def test_path(session: Any, place: Path, path: str) -> None:
    make, expected = PATHS[path]
    report = same_as_off(lambda: make(session, place).where("temp > 25"))
    if expected is None:  # the unindexed files are read as well
        assert report.files_total - report.files_kept == 2
    else:
        assert kept(report) == [expected]


def test_hidden_columns(session: Any, place: Path) -> None:
    beside = same_as_off(
        lambda: (
            read(session, place)
            .where("temp > 25 AND _metadata.file_size > 0 AND _metadata.file_name LIKE 'part%'")
            .selectExpr("id", "_metadata.row_index")
        )
    )
    assert kept(beside) == [(2, 4)]
    inside = same_as_off(lambda: read(session, place).where("temp < 5 OR _metadata.file_name = 'part-3.parquet'"))
    assert kept(inside) == [(4, 4)]


def test_a_column_of_another_type_is_not_compared_with_the_index(spark: Any, parts: Callable[..., Path]) -> None:
    narrow = pa.schema([("n", pa.int32())])
    place = parts(pa.table({"n": [1, 2]}, narrow), pa.table({"n": [100, None]}, narrow))
    geoskip.dataset(spark, str(place)).create_index(MinMax("n"))
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("n > 50")).files_kept == 1
    if spark.version >= "4":  # from then on Parquet's int is read as a long
        same_as_off(lambda: spark.read.schema("n bigint").parquet(str(place)).where("n + 3000000000 > 3000000050"))


def test_names_that_differ_by_case_stay_two(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"a": [1, 2], "A": [100, 200]}, {"a": [10, 20], "A": [1, 2]})
    own = spark.newSession()
    own.conf.set("spark.sql.caseSensitive", "true")
    geoskip.dataset(own, str(place)).create_index(MinMax("a"))
    assert same_as_off(lambda: own.read.parquet(str(place)).where("A > 50")).files_kept == 2
    assert same_as_off(lambda: own.read.parquet(str(place)).where("a > 5")).files_kept == 1


@pytest.mark.slow
def test_catalogue_tables(session: Any, place: Path) -> None:
    session.sql("DROP TABLE IF EXISTS managed")
    session.sql("CREATE TABLE managed USING parquet AS SELECT /*+ REPARTITION_BY_RANGE(4, id) */ id, temp, city FROM t")
    session.sql("DROP TABLE IF EXISTS outside")
    session.sql(f"CREATE TABLE outside (id bigint, temp bigint) USING parquet LOCATION '{place / 'sub'}'")
    session.sql("CREATE OR REPLACE VIEW stored AS SELECT id, temp AS x FROM managed WHERE temp IS NOT NULL")
    geoskip.dataset(session, table="managed").create_index(MinMax("temp"))
    total = same_as_off(lambda: session.sql("SELECT * FROM managed")).files_total
    assert same_as_off(lambda: session.sql("SELECT * FROM managed WHERE temp = 35")).files_kept == 1 < total
    assert same_as_off(lambda: session.table("managed").where("temp = 35")).files_kept == 1
    assert same_as_off(lambda: session.sql("SELECT * FROM stored WHERE x = 35")).files_kept == 1
    session.sql("ANALYZE TABLE managed COMPUTE STATISTICS FOR ALL COLUMNS")
    assert same_as_off(lambda: session.sql("SELECT * FROM managed WHERE temp = 35")).files_kept == 1
    assert same_as_off(lambda: session.sql("SELECT * FROM outside WHERE temp > 35")).files_kept == 1

    session.sql("INSERT INTO managed VALUES (1000, 35, 'new')")  # a new file, not indexed
    assert same_as_off(lambda: session.sql("SELECT * FROM managed WHERE temp = 35")).files_kept == 2
    session.sql("REFRESH TABLE managed")
    geoskip.dataset(session, table="managed").refresh_index()
    assert same_as_off(lambda: session.sql("SELECT * FROM managed WHERE id = 35")).files_kept == total + 1
    assert same_as_off(lambda: session.sql("SELECT * FROM managed WHERE temp = 33")).files_kept == 1


def test_what_is_written_from_a_dataset_is_what_it_holds(session: Any, place: Path) -> None:
    session.sql("DROP TABLE IF EXISTS made")
    session.sql("CREATE TABLE made USING parquet AS SELECT id FROM t WHERE temp > 25")
    assert session.table("made").count() == 12
    assert geoskip.reports(session)[-2].files_kept == 2
    session.sql("INSERT INTO made SELECT id FROM t WHERE temp < 5")
    session.sql("INSERT OVERWRITE made SELECT id FROM t WHERE temp < 5")
    assert session.table("made").count() == 5
    geoskip.dataset(session, table="made").create_index(MinMax("id"))
    with pytest.raises(Exception, match=r"(?i)overwrite"):  # the table that is read: Spark refuses, as ever
        session.sql("INSERT OVERWRITE made SELECT id FROM made WHERE id > 3")
    assert session.table("made").count() == 5


def test_frames_and_what_they_are_turned_into(session: Any, place: Path, tmp_path: Path) -> None:
    frame = read(session, place).where("temp > 25")
    expected = sorted(row.id for row in frame.collect())
    assert sorted(frame.select("id").rdd.map(lambda row: row.id).collect()) == expected
    assert sorted(frame.toPandas()["id"]) == expected
    assert sorted(row.id for row in frame.toLocalIterator()) == expected
    assert frame.count() == len(expected)
    assert not frame.isEmpty()
    assert sorted(row.id for row in frame.localCheckpoint().collect()) == expected
    seen = session.sparkContext.accumulator(0)
    frame.foreachPartition(lambda rows: seen.add(sum(1 for _ in rows)))
    assert seen.value == len(expected)
    frame.select("id").write.csv(str(tmp_path / "out"))
    assert sorted(row.id for row in session.read.csv(str(tmp_path / "out"), schema="id bigint").collect()) == expected


def test_stacked_filters_with_a_non_deterministic_one_beneath(session: Any, place: Path) -> None:
    report = same_as_off(lambda: read(session, place).where("monotonically_increasing_id() >= 0").where("temp > 25"))
    assert kept(report) == [(2, 4)]


def test_a_deterministic_filter_under_a_non_deterministic_projection(session: Any, place: Path) -> None:
    def make() -> Any:
        return (
            read(session, place)
            .where("temp > 25")
            .selectExpr("id", "temp", "monotonically_increasing_id() >= 0 AS r")
            .where("r AND temp > 35")
        )

    report = same_as_off(make)
    assert kept(report) == [(2, 4)]  # 30..38 and 20..28: the filter on 35 is not used
    assert any("non-deterministic" in reason for reason in report.reasons)


def test_parameterised_sql(session: Any) -> None:
    named = same_as_off(lambda: session.sql("SELECT * FROM t WHERE temp > :limit", args={"limit": 25}))
    assert kept(named) == [(2, 4)]
    positional = same_as_off(lambda: session.sql("SELECT * FROM t WHERE temp BETWEEN ? AND ?", args=[12, 14]))
    assert kept(positional) == [(1, 4)]
    frame = same_as_off(lambda: session.sql("SELECT * FROM {df} WHERE temp > 25", df=session.table("t")))
    assert kept(frame) == [(2, 4)]


@pytest.mark.slow
def test_user_defined_functions_beside_and_inside_the_predicate(session: Any, place: Path) -> None:
    import pandas as pd
    from pyspark.sql import functions as F

    ballast = "x" * 2_000_000  # too large for Spark to send otherwise than as a broadcast variable
    functions = {
        "python": F.udf(lambda value: value is not None and value >= 0, "boolean"),
        "pandas": F.pandas_udf(lambda values: pd.Series(values >= 0), "boolean"),
        "heavy": F.udf(lambda value: len(ballast) > 0, "boolean"),
        "random": F.udf(lambda value: True, "boolean").asNondeterministic(),
    }
    if hasattr(F, "arrow_udf"):
        functions["arrow"] = F.arrow_udf(_arrow_positive(), "boolean")
    for name, function in functions.items():

        def beside(function: Any = function) -> Any:
            return read(session, place).where(function("id") & (F.col("temp") > 25))

        report = geoskip.explain(beside()) if name == "heavy" else same_as_off(beside)
        assert kept(report) == [(2, 4)], name
        inside = read(session, place).where(function("id") | (F.col("temp") > 25))
        assert kept(geoskip.explain(inside)) == [(4, 4)], name
        above = read(session, place).select("temp", function("id").alias("x")).where("x").where("temp > 25")
        assert kept(geoskip.explain(above)) == [(4, 4) if name == "random" else (2, 4)], name


def _arrow_positive() -> Any:
    import pyarrow.compute as pc

    def positive(values: pa.Array) -> pa.Array:
        return pc.greater_equal(values, 0)

    positive.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return positive


def test_cached_frames(session: Any, place: Path) -> None:
    session.catalog.clearCache()
    with cached(read(session, place)) as whole:  # holds all rows, whoever asks first
        assert whole.where("temp > 25").count() == 12
        assert whole.where("temp < 5").count() == 5
    with cached(read(session, place).where("temp > 25")) as part:
        assert part.count() == 12
        assert kept(geoskip.report(part.where("id > 35"))) == [], "no file is read again"
        assert part.where("id > 35").count() == 3
        assert read(session, place).where("temp > 15").count() == 21


@contextmanager
def cached(frame: Any) -> Iterator[Any]:
    try:
        yield frame.cache()
    finally:
        frame.unpersist(blocking=True)


def test_a_new_session_shares_the_rule_and_not_the_switch(session: Any, place: Path) -> None:
    other = session.newSession()
    report = same_as_off(lambda: read(other, place).where("temp > 25"))
    assert kept(report) == [(2, 4)]
    with geoskip.disabled(other):
        assert kept(geoskip.explain(read(session, place).where("temp > 25"))) == [(2, 4)]
        assert kept(geoskip.explain(read(other, place).where("temp > 25"))) == [(4, 4)]


def test_several_threads_at_once(session: Any, place: Path) -> None:
    def run(limit: int) -> tuple[int, int]:
        frame = read(session, place).where(f"temp >= {limit}")
        return len(frame.collect()), geoskip.report(frame).files_kept

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(0, 40, 2)))
    rows = [len([k for k in range(40) if k % 10 != 9 and k >= limit]) for limit in range(0, 40, 2)]
    assert found == [(count, 4 - limit // 10) for limit, count in zip(range(0, 40, 2), rows, strict=True)]


def test_the_nearest_of_nested_datasets_answers(spark: Any, place: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    shutil.copytree(place, outer, ignore=shutil.ignore_patterns("_geoskip"))
    geoskip.dataset(spark, str(outer), recursiveFileLookup=True).create_index(MinMax("id"))
    geoskip.dataset(spark, str(outer / "sub")).create_index(MinMax("temp"))
    inner = same_as_off(lambda: spark.read.parquet(str(outer / "sub")).where("temp > 35"))
    assert kept(inner) == [(1, 2)]
    assert kept(same_as_off(lambda: read(spark, outer).where("temp > 35"))) == [(4, 4)]
    assert kept(same_as_off(lambda: read(spark, outer).where("id > 35"))) == [(1, 4)]


def test_a_listing_is_as_old_as_its_frame(session: Any, place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(place / "sub", copy)
    geoskip.dataset(session, str(copy)).create_index(MinMax("temp"))
    frame = session.read.parquet(str(copy))
    assert geoskip.explain(frame.where("temp > 35")).files_kept == 1
    pq.write_table(table(9), copy / "part-2.parquet")
    assert same_as_off(lambda: frame.where("temp > 35")).files_kept == 2  # Spark reads anew what the file is now
    session.catalog.refreshByPath(str(copy))
    assert same_as_off(lambda: session.read.parquet(str(copy)).where("temp > 35")).files_kept == 2


@pytest.mark.slow
def test_long_chains_of_conditions(session: Any, place: Path) -> None:
    from functools import reduce

    from pyspark.sql import functions as F

    chain = reduce(lambda a, b: a | b, [F.col("temp") == 1000 + k for k in range(250)])
    assert kept(same_as_off(lambda: read(session, place).where(chain))) == [(0, 4)]
    numbers = ", ".join(str(k) for k in range(35, 300))
    assert kept(same_as_off(lambda: session.sql(f"SELECT id FROM t WHERE temp IN ({numbers})"))) == [(1, 4)]
