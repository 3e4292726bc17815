"""geoskip.scan_polars: polars' own rows, from fewer files, with conditions where polars pushes them down."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

import geoskip
from geoskip import predicates as p
from geoskip.engines.polars_scan import _PolarsDataset
from geoskip.errors import InvalidSpecificationError
from tests.support.engine_rows import conditions
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import FILES, make_delta, odd_dataset
from tests.unit.engines.test_polars_expression import rendered

F = pl.col
Query = Callable[[pl.LazyFrame], pl.LazyFrame]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of adversarial values below a folder whose name looks like a partition."""
    return odd_dataset(tmp_path_factory.mktemp("odd") / "env=test" / "odd")


def alone(folder: Path) -> pl.LazyFrame:
    """The rows by polars alone: its glob leaves out metadata, and the folder's own name is no partition."""
    return pl.scan_parquet(f"{folder}/part=*/**/*.parquet", hive_partitioning=True).drop("env")


def test_rows_are_those_of_all_files(odd: Path) -> None:
    left_out: list[int] = []

    @given(conditions())
    def check(condition: tuple[Any, ...]) -> None:
        try:
            where = rendered(condition)
            expected = alone(odd).filter(where).collect()
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):  # types that polars does not compare
            return
        pushed = geoskip.scan_polars(odd)
        assert_frame_equal(pushed.filter(where).collect(), expected)
        left_out.append(geoskip.report(pushed).scans[0].files_skipped)
        given_before = geoskip.scan_polars(odd, where)
        assert_frame_equal(given_before.collect(), expected)
        left_out.append(geoskip.report(given_before).scans[0].files_skipped)

    check()
    assert sum(left_out) > len(left_out) > 15, left_out


QUERIES: dict[str, tuple[Query, int | None]] = {
    "a filter": (lambda frame: frame.filter(F("number") == 3), 1),
    "two filters, columns": (lambda frame: frame.filter(F("number") > 3).filter(F("part") == 2).select("a", "part"), 3),
    "a filter by date": (lambda frame: frame.filter(F("day") == dt.date(2024, 1, 2)), 6),
    "no row": (lambda frame: frame.filter(F("number") > 100), 0),
    "no row, counted": (lambda frame: frame.filter(F("number") > 100).select(pl.len()), 0),
    "no row, grouped": (lambda frame: frame.filter(F("number") > 100).group_by("s").agg(F("a").sum()), 0),
    "counted": (lambda frame: frame.filter(F("number") == 3).select(pl.len()), 1),
    "first rows of a filter": (lambda frame: frame.filter(F("number") > 3).head(11), 8),
    "a filter of first rows": (lambda frame: frame.head(11).filter(F("number") > 3), FILES),
    "last rows": (lambda frame: frame.tail(3), FILES),
    "all": (lambda frame: frame, FILES),
    "a column above its mean": (lambda frame: frame.filter(F("number") > F("number").mean()), FILES),
    "a column above the mean of a filter": (
        lambda frame: frame.filter(F("number") > 9).filter(F("number") > F("number").mean()), 2,
    ),
    "a join": (lambda frame: frame.filter(F("number") == 3).join(frame.select("a", "part"), on="a", how="semi"), None),
    "sorted": (lambda frame: frame.filter(F("number") == 3).sort("n", maintain_order=True), 1),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("query", QUERIES)
def test_queries_read_only_files_that_they_need(odd: Path, query: str, engine: Any) -> None:
    asked, kept = QUERIES[query]
    frame = geoskip.scan_polars(odd)
    assert frame.collect_schema() == alone(odd).collect_schema()
    assert_frame_equal(asked(frame).collect(engine=engine), asked(alone(odd)).collect(engine=engine))
    assert kept in (None, geoskip.report(frame).files_kept)


def test_where_is_a_filter_before_the_others(odd: Path) -> None:
    frame = geoskip.scan_polars(odd, F("number") == 3)
    assert geoskip.report(frame).files_kept == 1
    assert_frame_equal(frame.head(2).collect(), alone(odd).filter(F("number") == 3).head(2).collect())
    empty = geoskip.scan_polars(odd, F("number") > 100)
    assert (empty.collect().height, empty.collect_schema()) == (0, alone(odd).collect_schema())


def test_a_condition_on_more_than_one_row_reads_all_files(odd: Path) -> None:
    where = (F("number") > 3) & (F("number") > F("number").mean())
    frame = geoskip.scan_polars(odd, where)
    assert geoskip.report(frame).files_kept == FILES
    assert "more than one row" in str(geoskip.report(frame))
    assert_frame_equal(frame.collect(), alone(odd).filter(where).collect())


def test_a_python_function_is_polars_own_affair(odd: Path) -> None:
    where = F("number").map_batches(lambda values: values > 3, return_dtype=pl.Boolean)
    frame = geoskip.scan_polars(odd, where)
    assert_frame_equal(frame.collect(), alone(odd).filter(F("number") > 3).collect())


def test_a_predicate_chooses_files_and_filters_nothing(odd: Path) -> None:
    frame = geoskip.scan_polars(odd, p.Comparison("=", p.Column("number", "int"), p.Literal(3, "int")))
    assert_frame_equal(frame.collect(), alone(odd).filter(F("number") == 3).collect())


def test_an_enumeration_is_ordered_by_its_places(tmp_path: Path) -> None:
    kind = pl.Enum(["low", "high", "alarm"])
    for number, value in enumerate(kind.categories):
        pl.DataFrame({"level": [value]}, schema={"level": kind}).write_parquet(tmp_path / f"{number}.parquet")
    geoskip.build(tmp_path, [geoskip.MinMax("level")])
    frame = geoskip.scan_polars(tmp_path)
    assert frame.filter(F("level") > "low").collect()["level"].to_list() == ["high", "alarm"]
    assert frame.filter(F("level") == "low").collect()["level"].to_list() == ["low"]
    assert geoskip.report(frame).files_kept == 1


def test_files_are_listed_when_the_frame_is_collected(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"a": pa.array([n], pa.int32())}) for n in range(3)}
    write_indexed(tmp_path, tables, {"a": "int"}, [geoskip.MinMax("a")])
    frame = geoskip.scan_polars(tmp_path)
    assert "nothing was collected" in str(geoskip.report(frame))
    above = frame.filter(F("a") > 0)
    assert above.collect()["a"].to_list() == [1, 2]
    pl.DataFrame({"a": pl.Series([7], dtype=pl.Int32)}).write_parquet(tmp_path / "3.parquet")
    assert above.collect()["a"].to_list() == [1, 2, 7]
    assert (geoskip.report(frame).files_kept, geoskip.report(frame).files_total) == (3, 4)


def test_columns_are_those_of_the_first_file_even_if_it_is_skipped(tmp_path: Path) -> None:
    tables = [pa.table({"a": [n], "b": ["x"]}) if n != 1 else pa.table({"a": [n]}) for n in range(3)]
    write_indexed(
        tmp_path, {f"{n}.parquet": each for n, each in enumerate(tables)}, {"a": "bigint"}, [geoskip.MinMax("a")]
    )
    where = F("a") > 0
    for frame in (geoskip.scan_polars(tmp_path), geoskip.scan_polars(tmp_path, where)):
        assert frame.filter(where).select("a").collect()["a"].to_list() == [1, 2]
        assert geoskip.report(frame).files_kept == 2


@pytest.mark.parametrize("op", ["eq", "le", "lt", "ge", "gt", "ne"])
@pytest.mark.parametrize("micros", [0, 999])
def test_a_column_is_cut_to_the_unit_of_a_coarser_literal(tmp_path: Path, op: str, micros: int) -> None:
    for n in range(3):
        pq.write_table(pa.table({"t": pa.array([5_000 + 1_000 * n + micros], pa.timestamp("us"))}), tmp_path / str(n))
    geoskip.build(tmp_path, [geoskip.MinMax("t"), geoskip.ValueList("t")])
    where = getattr(F("t"), op)(pl.lit(dt.datetime(1970, 1, 1, 0, 0, 0, 6_000), pl.Datetime("ms")))
    expected = pl.scan_parquet([tmp_path / str(n) for n in range(3)]).filter(where).collect()
    for frame in (geoskip.scan_polars(tmp_path).filter(where), geoskip.scan_polars(tmp_path, where)):
        assert_frame_equal(frame.collect(), expected)


def test_where_polars_fails_no_rows_are_left_out(tmp_path: Path) -> None:
    for number in (5, 7):
        table = pa.table({"u": pa.array([number] * 3, pa.uint64())})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_dictionary=False, write_statistics=False)
    where = pl.col("u").is_in([0, None, 5], nulls_equal=True)  # over which polars 2.1 panics in such files
    try:
        found = geoskip.scan_polars(tmp_path).filter(where).collect()["u"].to_list()
    except BaseException as error:
        assert type(error).__name__ == "PanicException"  # noqa: PT017
    else:
        assert found == [5, 5, 5]


def test_a_column_of_a_type_that_arrow_lacks_is_read(tmp_path: Path) -> None:
    for part in ("1", "99999999999999999999"):
        (tmp_path / f"part={part}").mkdir()
        pl.DataFrame({"u": [1, 2]}).write_parquet(tmp_path / f"part={part}" / "1.parquet")
    for where in (F("part") > 5, F("u") == 2):
        found = geoskip.scan_polars(tmp_path).filter(where).collect()
        assert_frame_equal(found, pl.scan_parquet(tmp_path).filter(where).collect())


def test_the_rest_of_a_frame_is_not_read(tmp_path: Path) -> None:
    for number in range(8):
        pl.DataFrame({"u": range(100 * number, 100 * (number + 1))}).write_parquet(tmp_path / f"{number}.parquet")
    before = threading.active_count()
    assert geoskip.scan_polars(tmp_path).filter(pl.col("u") > 5).head(3).collect()["u"].to_list() == [6, 7, 8]
    rows = _PolarsDataset(tmp_path, None, None)._rows(["u"], None, None, 7)
    assert len(next(rows)) <= 7
    rows.close()
    assert threading.active_count() == before


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match="there are no files"):
        geoskip.scan_polars(tmp_path)


def test_a_delta_table_is_read_by_its_log(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"a": pa.array(range(10 * n, 10 * n + 10), pa.int32())}) for n in range(6)}
    write_indexed(tmp_path, tables, {"a": "int"}, [geoskip.MinMax("a")])
    make_delta(tmp_path)
    deltalake.DeltaTable(tmp_path).delete("a >= 20 AND a < 30")
    own = pl.scan_delta(tmp_path)
    for where in (F("a") > 45, F("a") < 25, F("a") > 1000):
        frame = geoskip.scan_polars(tmp_path)
        expected = own.filter(where).collect().sort("a")
        assert_frame_equal(frame.filter(where).collect().sort("a"), expected)
        assert geoskip.report(frame).files_kept < 4
        assert_frame_equal(geoskip.scan_polars(tmp_path, where).collect().sort("a"), expected)
    deltalake.DeltaTable(tmp_path).delete()
    assert_frame_equal(geoskip.scan_polars(tmp_path).filter(F("a") > 3).collect(), expected.clear())
    assert geoskip.scan_polars(tmp_path, F("a") > 3).collect().is_empty()


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight files of points, a file each ten degrees of longitude."""
    folder = tmp_path_factory.mktemp("points")
    for west in range(8):
        lng = [10.0 * west + step for step in range(10)]
        pl.DataFrame({"lng": lng, "lat": [5.0, 50.0] * 5, "n": range(10)}).write_parquet(folder / f"{west}.parquet")
    geoskip.build(folder, [geoskip.GeoBox("lng", "lat"), geoskip.MinMax("n")])
    return folder


INSIDE = "ST_Contains(ST_GeomFromText('POLYGON ((12 0, 28 0, 28 10, 12 10, 12 0))'), ST_Point(lng, lat))"


def test_sql_chooses_files_and_a_filter_among_them(points: Path) -> None:
    frame = geoskip.scan_polars(points, INSIDE)
    rows = frame.collect()
    assert geoskip.report(frame).files_kept == 2
    assert sorted(rows["lng"]) == [float(lng) for lng in range(10, 30)]
    assert frame.filter(F("lng") > 25.0).collect().height == 4
    assert geoskip.report(frame).files_kept == 1  # of the two, the one with a box beyond 25
    assert frame.filter(F("n") > 100).collect().height == 0
    assert geoskip.report(frame).files_kept == 0
    dataset = geoskip.pyarrow_dataset(points, INSIDE)
    assert (geoskip.report(dataset).files_kept, dataset.count_rows()) == (2, 20)


def test_sql_that_is_none_is_an_error(points: Path) -> None:
    for scan in (geoskip.scan_polars, geoskip.pyarrow_dataset):
        with pytest.raises(InvalidSpecificationError):
            scan(points, "lng >")
        with pytest.raises(InvalidSpecificationError, match="dialect"):
            scan(points, "lng > 1", dialect="klingon")


@pytest.mark.slow
def test_neither_pyspark_nor_the_other_engine_is_imported(points: Path) -> None:
    code = f"""
import sys, geoskip
import pyarrow.compute as pc
dataset = geoskip.pyarrow_dataset({str(points)!r}, pc.field("n") > 100)
assert geoskip.report(dataset).files_kept == 0
assert not {{"pyspark", "py4j", "polars", "duckdb"}} & sys.modules.keys()
assert geoskip.scan_polars({str(points)!r}).collect().height == 80
assert not {{"pyspark", "py4j", "duckdb"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_times_that_polars_reads_as_others_are_found_as_polars_finds_them(tmp_path: Path) -> None:
    times = [dt.datetime(9999, 12, 31), dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)]
    for number, time in enumerate(times):
        table = pa.table({"t": pa.array([time], pa.timestamp("us"))})
        file = tmp_path / f"{number}.parquet"
        pq.write_table(table, file, use_deprecated_int96_timestamps=True, store_schema=False)
    geoskip.build(tmp_path, [geoskip.MinMax("t")])
    for where in (F("t") < dt.datetime(2500, 1, 1), F("t").dt.year() == 2262):
        expected = pl.scan_parquet(f"{tmp_path}/*.parquet").collect().filter(where)
        assert expected.height
        for frame in (geoskip.scan_polars(tmp_path, where), geoskip.scan_polars(tmp_path).filter(where)):
            assert_frame_equal(frame.collect(), expected)
    asked = geoskip.scan_polars(tmp_path, F("t") == times[1])
    assert asked.collect().height == 1
    assert geoskip.report(asked).files_kept == 2
