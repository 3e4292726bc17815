"""Partition columns count as indexed exactly, by the catalogue's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import files_kept, same_as_off

pytestmark = pytest.mark.spark

FILES = {"1": [1, 9], "2": [10, 19], "3": [20, 29], "__HIVE_DEFAULT_PARTITION__": [30, None]}


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file a partition ``p``: 1, 2, 3 and NULL, ``temp`` 1..9, 10..19, 20..29, 30 and NULL."""
    root = tmp_path_factory.mktemp("partitions") / "data"
    for value, temps in FILES.items():
        write(root / f"p={value}", temps)
    geoskip.dataset(spark, str(root)).create_index(MinMax("temp"))
    return root


def write(folder: Path, temps: list[Any]) -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"temp": pa.array(temps, pa.int64())}), folder / "part-0.parquet")


def kept(report: geoskip.Report) -> tuple[int, int]:
    print(report)  # pytest shows it where an assertion fails
    return report.files_kept, report.files_total


# condition -> files kept of 4
CONDITIONS = {
    "p = 1": 1,
    "P = 1": 1,
    "p = 1 OR temp > 25": 3,
    "p = 1 OR temp > 1000": 1,
    "p = 1 AND temp > 25": 0,
    "p IS NULL": 1,
    "p IS NULL OR temp < 5": 2,
    "p IS NOT NULL AND temp >= 20": 1,
    "p <=> NULL AND temp > 5": 1,
    "NOT (p = 1 OR temp < 15)": 2,  # p = NULL is NULL, so is NOT (NULL OR ..)
    "p IN (2, 3) OR temp IS NULL": 3,
    "temp > p * 10": 0,
    "temp >= p * 10 - 5": 3,
    "temp + p > 30": 1,
    "coalesce(p, 7) = 7": 1,
    "CASE WHEN p = 2 THEN temp > 100 ELSE temp < 5 END": 1,
    "pmod(p, 2) = 1 AND temp < 15": 1,
    "cast(p AS string) LIKE '3%' OR temp < 0": 1,
    "p = 1 AND monotonically_increasing_id() >= 0": 1,
}


def test_conditions(spark: Any, place: Path) -> None:
    frame = spark.read.parquet(str(place))
    assert files_kept(frame, CONDITIONS) == CONDITIONS
    assert kept(geoskip.report(frame)) == (4, 4)
    spark.conf.set("spark.sql.ansi.enabled", "true")  # Spark 3.5 starts without
    try:
        throws = frame.where("1 / (p - 2) > 0 OR temp > 1000")  # for p = 2
        assert kept(geoskip.explain(throws)) == (2, 4)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_one_partition_alone_has_no_partition_column(spark: Any, place: Path) -> None:
    assert kept(same_as_off(lambda: spark.read.parquet(str(place / "p=2")).where("temp > 15"))) == (1, 1)
    based = lambda: spark.read.option("basePath", str(place)).parquet(f"{place}/p=[23]")  # noqa: E731
    assert kept(same_as_off(lambda: based().where("p = 3 OR temp > 1000"))) == (1, 2)


def test_everything_skipped_leaves_schema_and_count(spark: Any, place: Path) -> None:
    frame = spark.read.parquet(str(place)).where("p = 1 AND temp > 500")
    assert frame.columns == ["temp", "p"]
    assert frame.groupBy("p").count().collect() == []
    assert frame.agg({"temp": "count"}).collect()[0][0] == 0


def test_the_catalogue_says_which_partition_a_directory_is(spark: Any, place: Path, tmp_path: Path) -> None:
    root = tmp_path / "lying"
    spark.sql("DROP TABLE IF EXISTS lying")
    spark.sql(f"CREATE TABLE lying (temp bigint, p int) USING parquet PARTITIONED BY (p) LOCATION '{root}'")
    for directory, value, temps in (("p=7", 5, [1, 2]), ("p=5", 7, [30, 40]), ("other", 6, [50, 60])):
        write(root / directory, temps)
        spark.sql(f"ALTER TABLE lying ADD PARTITION (p = {value}) LOCATION '{root / directory}'")
    outside = tmp_path / "outside"
    write(outside, [70, 80])
    spark.sql(f"ALTER TABLE lying ADD PARTITION (p = 8) LOCATION '{outside}'")
    geoskip.dataset(spark, table="lying").create_index(MinMax("temp"))
    files = {
        "p = 5 OR temp > 75": 2,
        "p = 7 OR temp > 1000": 1,
        "p = 5 AND temp > 5": 0,
        "p = 8 AND temp > 100": 0,
        "p = 7 AND temp > 35": 1,
        "temp >= p * 9": 2,
        "temp = 55": 1,
    }
    assert files_kept(spark.table("lying"), files) == files
    spark.sql(f"ALTER TABLE lying ADD PARTITION (p = 9) LOCATION '{root / 'p=7'}'")  # the same file twice
    assert kept(same_as_off(lambda: spark.sql("SELECT * FROM lying WHERE p = 9 OR temp > 1000"))) == (1, 4)


def test_types_of_partition_columns(spark: Any, tmp_path: Path) -> None:
    odd = ["a b", "x%20y", "1+1", "quo'te", "a=b", "2024-01-01"]
    for number, text in enumerate(odd):
        write(tmp_path / "odd" / f"d=2024-01-0{number + 1}" / f"s={quote(text, safe='')}", [number])
    geoskip.dataset(spark, str(tmp_path / "odd")).create_index(MinMax("temp"))
    files = {"d >= DATE'2024-01-06' OR temp = 0": 2, "year(d) = 2023 OR temp = 0": 1, "s LIKE 'a%' OR temp = 5": 3}
    for number, text in enumerate(odd):
        escaped = text.replace("'", "\\'")
        files[f"s = '{escaped}' OR temp = {(number + 1) % 6}"] = 2
    assert files_kept(spark.read.parquet(str(tmp_path / "odd")), files, every=1) == files


@pytest.mark.slow
def test_decimals_that_rows_have_otherwise(spark: Any, tmp_path: Path) -> None:
    """Spark prunes by the number in a folder's name, 1, and gives the rows another value: 1.00, or even 0.01."""
    for value in ("1", "2.00", "123456"):
        write(tmp_path / f"p={value}", [5])
    options = {"schema": "temp long, p decimal(5, 2)"}
    geoskip.dataset(spark, str(tmp_path), **options).create_index(MinMax("temp"))

    def kept_of(where: str) -> int:
        return same_as_off(lambda: spark.read.schema(options["schema"]).parquet(str(tmp_path)).where(where)).files_kept

    assert kept_of("concat(temp, '-', p) = '5-1.00'") == 2
    assert kept_of("concat(temp, '-', p) = '5-2.00'") == 3
    assert kept_of("concat(temp, '-', p) = '5-1'") == 2
    assert kept_of("concat(temp, '-', p) = '5-0.01'") == 2
    assert kept_of("CAST(p AS STRING) = '1'") == 1
    assert kept_of("temp > 5 OR p = 123456") == 2


def test_many_partitions(spark: Any, tmp_path: Path) -> None:
    for number in range(50):
        write(tmp_path / f"p={number}", [number, number + 100 * (number % 10 == 0)])
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("temp"))
    frame = lambda: spark.read.parquet(str(tmp_path))  # noqa: E731
    assert kept(same_as_off(lambda: frame().where("p = 45 OR temp = 7"))) == (3, 50)
    each = same_as_off(lambda: frame().where("temp > p"))
    assert kept(each) == (5, 50)
    assert each.scans[0].predicate == "temp IS NOT NULL AND p IS NOT NULL AND temp > CAST(p AS bigint)"


def test_a_column_named_like_a_partition_is_the_partition(spark: Any, tmp_path: Path) -> None:
    for value in (1, 2):
        folder = tmp_path / f"p={value}"
        folder.mkdir()
        pq.write_table(pa.table({"temp": [value], "p": [3 - value]}), folder / "part.parquet")
        geoskip.dataset(spark, str(folder)).create_index(MinMax("p"))  # over the files' own column
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("temp"))
    for column in ("p", "P"):
        report = same_as_off(lambda c=column: spark.read.parquet(str(tmp_path)).where(f"{c} = 1"))
        assert kept(report) == (1, 2)
    roots = lambda: spark.read.option("basePath", str(tmp_path)).parquet(*map(str, tmp_path.glob("p=*")))  # noqa: E731
    assert same_as_off(lambda: roots().where("P = 1")).files_kept == 1


def test_decisions_that_take_other_values_for_a_partition_are_not_equal(spark: Any, place: Path) -> None:
    """Both conditions take TRUE for the first partition and FALSE for the last, and skip the same files where they are
    FALSE: what Spark takes for equal it may read once for both.
    """
    frame = spark.read.parquet(str(place)).where("p IS NOT NULL")

    def index(condition: str) -> Any:
        plan = frame.where(condition)._jdf.queryExecution().optimizedPlan()
        return plan.collectLeaves().apply(0).relation().location()

    one, other = index("p = 1 OR temp > 1000"), index("p <= 2 OR temp > 1000")
    assert one.getClass().getSimpleName() == "GeoskipFileIndex"
    assert one.equals(index("p = 1 OR temp > 1000"))
    assert not one.equals(other)


def test_variables_of_lambdas_are_no_partition_columns(spark: Any, tmp_path: Path) -> None:
    """They have no value when partitions are looked at: two lambdas looked alike, and no index over one served."""
    folder = str(tmp_path / "data")
    for value, temps in FILES.items():
        write(tmp_path / "data" / f"p={value}", temps)
    geoskip.dataset(spark, folder).create_index(ValueList("temp"), ValueList("transform(array(temp), x -> x + 1)[0]"))
    for condition, files in {
        "exists(array(temp), x -> x + 1 = 10) OR exists(array(temp), x -> x = 19)": 2,
        "transform(array(temp), x -> x + 1)[0] = 20": 1,
        "exists(array(p), x -> x = 2) AND temp > 0": 1,
    }.items():
        report = same_as_off(lambda condition=condition: spark.read.parquet(folder).where(condition))
        assert report.files_kept == files, condition
