"""Indexes that are kept up with their data: by appends, before queries, and beside jobs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.spark.dataset import auto_refresh
from geoskip.spark.dataset import source as data_module
from tests.conftest import same_as_off
from tests.spark.verbs.asking import kept, write

pytestmark = pytest.mark.spark


def test_appending_indexes_what_is_written(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    report = handle.append(spark.createDataFrame([(70,), (71,)], "a long").coalesce(1))
    assert (report.read, report.files) == (1, 5)
    assert kept(spark, place, "a >= 70") == 1
    with pytest.raises(InvalidSpecificationError, match="where to write"):
        geoskip.dataset(spark, f"{place}/*.parquet").append(spark.range(1))


def test_rows_are_written_where_their_indexing_fails(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.createDataFrame([(70,)], "a long").coalesce(1)
    with monkeypatch.context() as patch:
        patch.setattr(data_module, "build", lambda *args: 1 / 0)
        with pytest.warns(UserWarning, match="rows are in .*data, and are not indexed: ZeroDivisionError"):
            assert handle.append(rows) is None
    assert kept(spark, place, "a = 70") == 1
    assert handle.refresh_index().read == 1


def test_appending_keeps_partitions_and_reader_options(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "csv")
    spark.sql("SELECT 1 AS a, 'x' AS p UNION ALL SELECT 2, 'y'").write.partitionBy("p").option("sep", "|").csv(place)
    handle = geoskip.dataset(spark, place, format="csv", schema="a int, p string", sep="|")
    assert handle.append(spark.sql("SELECT 3 AS a, 'z' AS p")) is None, "there is no index yet"
    handle.create_index(MinMax("a"))
    assert handle.append(spark.sql("SELECT 'z' AS p, 4 AS A")).read == 1
    assert same_as_off(lambda: handle.to_df().where("a > 3")).files_kept == 1
    assert sorted(row.p for row in handle.to_df().collect()) == ["x", "y", "z", "z"]


def test_rows_of_csv_are_appended_in_the_order_of_its_columns(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    handle = geoskip.dataset(spark, tmp_path, format="csv", schema="a int, b int")
    handle.append(spark.sql("SELECT 20 AS b, 10 AS a"))
    assert sorted(map(tuple, handle.to_df().collect())) == [(1, 2), (10, 20)]
    with pytest.raises(InvalidSpecificationError, match="CSV would not find the others"):
        handle.append(spark.sql("SELECT 5 AS a, 6 AS b, 7 AS c"))


@pytest.mark.parametrize("format", ["parquet", "orc", "json"])
def test_rows_of_other_types_are_appended_only_to_text(spark: Any, tmp_path: Path, format: str) -> None:
    spark.sql("SELECT 1 AS a, 2 AS b").write.format(format).save(str(tmp_path / "data"))
    handle = geoskip.dataset(spark, tmp_path / "data", format=format)
    given = spark.sql("SELECT 3L AS a, 'x' AS b")
    if format == "json":
        handle.append(given)
        assert handle.to_df().where("b = 'x'").count() == 1
    else:
        with pytest.raises(
            InvalidSpecificationError, match=r"append\(\) adds rows of the same types .* nothing was wr"
        ):
            handle.append(given)
        assert handle.to_df().count() == 1


def test_rows_that_fail_get_the_reason_in_one_line(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, "0.parquet", [1])
    spark.sql("CREATE TABLE failing (a BIGINT) USING parquet")
    try:
        for handle in (geoskip.dataset(spark, tmp_path), geoskip.dataset(spark, table="failing")):
            with pytest.raises(GeoskipError, match=r"^.* could not be written: stop here$"):
                handle.append(spark.sql("SELECT CAST(raise_error('stop here') AS BIGINT) AS a FROM range(1)"))
            with pytest.raises(InvalidSpecificationError, match=r"these lack a, so nothing was written"):
                handle.append(spark.range(1))
        with pytest.raises(InvalidSpecificationError, match=r"failing could not be written: .*Cannot safely cast"):
            handle.append(spark.sql("SELECT array(1) AS a"))
    finally:
        spark.sql("DROP TABLE failing")


def test_a_table_is_appended_to(spark: Any) -> None:
    spark.sql("CREATE TABLE grown (a INT, `b.c` INT, p STRING) USING parquet PARTITIONED BY (p)")
    try:
        spark.sql("INSERT INTO grown VALUES (1, 2, 'x')")
        handle = geoskip.dataset(spark, table="grown")
        handle.create_index(MinMax("a"))
        assert handle.append(spark.sql("SELECT 'x' AS p, 8 AS `b.c`, 7 AS a")).read == 1
        assert same_as_off(lambda: spark.sql("SELECT * FROM grown WHERE a > 5")).files_kept == 1
    finally:
        spark.sql("DROP TABLE grown")


@pytest.mark.slow
def test_what_is_new_is_indexed_before_a_query(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    def read_with(bound: Any) -> int:
        keen = geoskip.dataset(spark, str(place), auto_refresh=bound)
        assert keen.to_df().where("a = 31").count() == 1
        return kept(spark, place)

    for number, too_little, enough in ((4, 1, 2), (6, "10 B", "1 MiB"), (8, False, True)):
        write(place, f"{number}.parquet", [number * 10])
        write(place, f"{number + 1}.parquet", [number * 10 + 10])
        assert (read_with(too_little), read_with(enough)) == (3, 1)


@pytest.mark.slow
def test_a_query_lets_what_is_new_be_indexed_for_those_after_it(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    def looked(times: int) -> bool:
        until = time.monotonic() + 60
        while after.passes < times and time.monotonic() < until:
            time.sleep(0.01)
        return after.passes >= times

    gate, refreshed = threading.Lock(), auto_refresh.refresh_within

    def gated(*args: Any) -> Any:
        with gate:  # it sees all files that are written within one, or none
            return refreshed(*args)

    monkeypatch.setattr(auto_refresh, "refresh_within", gated)
    monkeypatch.setattr(auto_refresh, "_SHARE", 0)
    monkeypatch.setattr(auto_refresh, "_REST", 0.05)
    geoskip.dataset(spark, str(place), auto_refresh=1)
    after = auto_refresh._after[f"file:{place}"]
    write(place, "4.parquet", [40])
    assert kept(spark, place) == 2, "no data are read while a query is planned"
    assert looked(1)
    assert kept(spark, place) == 1
    with gate:
        write(place, "5.parquet", [50])
        write(place, "6.parquet", [60])
        before = after.passes
    assert kept(spark, place) == 3
    assert looked(before + 1)
    assert kept(spark, place) == 3, "two files are more than one"
    geoskip.dataset(spark, str(place), auto_refresh=True)
    assert auto_refresh._after[f"file:{place}"] is not after
    geoskip.dataset(spark, str(place), auto_refresh=False)
    assert kept(spark, place) == 3
    assert f"file:{place}" not in auto_refresh._after


def test_an_auto_refresh_that_fails_harms_no_query(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    def broken(*args: Any) -> Any:
        raise GeoskipError("no")

    write(place, "4.parquet", [40])
    keen = geoskip.dataset(spark, str(place), auto_refresh=10)
    monkeypatch.setattr(data_module, "build", broken)
    with pytest.warns(UserWarning, match="was not refreshed: no"):
        assert keen.to_df().where("a = 40").count() == 1
    with pytest.raises(InvalidSpecificationError, match="auto_refresh="):
        geoskip.dataset(spark, str(place), auto_refresh="soon")


def test_a_job_keeps_an_index_fresh(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    with handle.keep_fresh(every=0.01) as keeper:
        write(place, "4.parquet", [40])
        assert keeper.wait(60)
        assert keeper.last is not None
        assert keeper.last.files == 5
    assert kept(spark, place) == 1


def test_what_is_indexed_is_listed(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    assert [str(i) for i in geoskip.datasets(spark)[f"file:{place}"].indexes] == ["minmax(a)"]
    handle.delete_index()
    assert f"file:{place}" not in geoskip.datasets(spark)
