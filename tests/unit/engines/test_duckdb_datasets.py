"""Views and registered folders and tables of geoskip.duckdb."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from tests.support.duckdb_rows import INDEXES, TYPES, kept, rows_and_files, table
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import require_feature


def test_a_view_over_files_is_narrowed_by_the_query_around_it(con: Any, folder: Path) -> None:
    con.connection.execute(f"CREATE VIEW v AS SELECT a AS b, s FROM read_parquet('{folder}/*/*.parquet') WHERE a > 35")
    con.connection.execute(f"CREATE TEMP VIEW \"w é\" AS FROM '{folder}/*/*.parquet'")
    con.connection.execute(f"CREATE VIEW z(q, r) AS SELECT a, s FROM '{folder}/*/*.parquet'")
    assert rows_and_files(con, "SELECT v.b FROM v WHERE b < 45")[1] == "348"
    assert rows_and_files(con, "FROM v x WHERE x.b < 45 AND s = 's4'")[1] == "48"
    joined = """SELECT "w é".a FROM "w é" JOIN V ON V.b = "w é".a AND V.s = 's5' WHERE a < 55"""
    assert rows_and_files(con, joined)[1] == "012345678|58"
    assert rows_and_files(con, "FROM z WHERE q < 5")[1] == ""  # a view that renames columns by position
    con.connection.execute("CREATE TEMP VIEW v AS SELECT 1 AS b")
    assert rows_and_files(con, "FROM v WHERE b < 45") == ([(1,)], "")


def test_a_view_is_left_as_it_is_where_its_text_would_mean_something_else(con: Any, folder: Path) -> None:
    con.connection.execute("CREATE TABLE dim AS SELECT 77 AS k")
    con.connection.execute(f"CREATE VIEW v AS SELECT * FROM '{folder}/*/*.parquet' WHERE a IN (SELECT k FROM dim)")
    con.connection.execute("CREATE VIEW w AS SELECT a AS b FROM v")
    query = "WITH dim AS (SELECT 78 AS k) SELECT {} FROM {} WHERE {} > 65"
    assert rows_and_files(con, query.format("a", "v", "a")) == ([(77,)], "")
    assert "a common table expression dim, which it reads too" in str(con.report.reasons)
    assert rows_and_files(con, query.format("b", "w", "b")) == ([(77,)], "")
    assert rows_and_files(con, "WITH other AS (SELECT 1) SELECT a FROM v WHERE a > 65")[1] == "678"


def test_the_number_of_a_file_may_be_used_by_a_view_alone(con: Any, folder: Path) -> None:
    con.connection.execute(f"CREATE VIEW v AS SELECT a, file_index AS i FROM '{folder}/*/*.parquet'")
    assert rows_and_files(con, "FROM v WHERE a > 75")[1] == "012345678"


def test_a_name_that_was_given_to_something_else_means_that(con: Any, folder: Path) -> None:
    con.register_dataset("weather", folder)
    assert rows_and_files(con, "SELECT a FROM weather WHERE a = 75")[0] == [(75,)]
    con.execute("CREATE OR REPLACE TEMP VIEW weather AS SELECT 7 AS a")
    pq.write_table(table(9), folder / "month=01" / "9.parquet")
    for query in ("FROM weather", "FROM weather WHERE a > 5", "SUMMARIZE weather", "FROM temp.weather"):
        rows_and_files(con, query)
    con.execute("DROP VIEW temp.weather")
    con.execute("CREATE VIEW weather AS SELECT 8 AS a")
    assert rows_and_files(con, "FROM weather") == ([(8,)], "")
    con.register_dataset("weather", folder)
    assert rows_and_files(con, "SELECT a FROM weather WHERE a = 95") == ([(95,)], "89")


@pytest.mark.parametrize("kind", ["VIEW", "TABLE"])
def test_a_table_named_like_a_path_is_no_file(con: Any, folder: Path, kind: str) -> None:
    path = f"{folder}/month=01/*.parquet"
    con.connection.execute(f'CREATE {kind} "{path}" AS SELECT 1000 AS a')
    assert rows_and_files(con, f"FROM '{path}' WHERE a > 500") == ([(1000,)], "")


def test_a_registered_folder_is_read_as_it_is_at_each_query(con: Any, folder: Path) -> None:
    con.register_dataset("weather", folder)
    assert rows_and_files(con, "SELECT weather.a FROM Weather WHERE a > 65")[1] == "678"
    pq.write_table(table(9), folder / "month=01" / "9.parquet")
    assert con.execute("SELECT max(a) FROM weather WHERE a > 65").fetchall() == [(99,)]
    assert kept(con) == "6789"
    os.remove(folder / "month=01" / "0.parquet")
    assert con.execute("SELECT min(a) FROM weather").fetchall() == [(10,)]
    assert con.execute("SUMMARIZE weather").fetchall()[0][:3] == ("a", "INTEGER", "10")
    assert con.execute("SELECT count(*) FROM weather WHERE a < 5").fetchall() == [(0,)]
    assert kept(con) == "89"
    con.execute("CREATE VIEW over_it AS SELECT a AS b FROM weather")
    assert rows_and_files(con, "SELECT * FROM over_it WHERE b > 95")[1] == "89"
    pq.write_table(table(10), folder / "month=01" / "10.parquet")
    assert con.execute("SELECT max(b) FROM over_it").fetchall() == [(109,)]
    pq.write_table(table(11), folder / "month=01" / "11.parquet")
    assert con.execute("SELECT max(b) FROM main.over_it").fetchall() == [(119,)]
    with pytest.raises(InvalidSpecificationError, match=r"wraps what duckdb\.connect.* got 'x.db'"):
        geoskip.duckdb("x.db")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="takes a name"):
        con.register_dataset("", folder)
    with pytest.raises(DatasetNotFoundError):
        con.register_dataset("nowhere", folder / "none")
    (folder.parent / "empty").mkdir()
    with pytest.raises(InvalidSpecificationError, match="no files"):
        con.register_dataset("empty", folder.parent / "empty")


def test_a_view_that_a_rollback_restored_is_brought_up_to_date(con: Any, folder: Path) -> None:
    con.register_dataset("weather", folder)
    con.execute("BEGIN")
    pq.write_table(table(9), folder / "month=01" / "9.parquet")
    for end in ("ROLLBACK", "SELECT 1"):
        assert con.execute("SELECT max FROM (SUMMARIZE weather)").fetchall()[0] == ("99",)
        con.execute(end)


def test_a_view_with_a_comment_of_the_user_is_brought_up_to_date(con: Any, folder: Path) -> None:
    con.register_dataset("weather", folder)
    con.execute("COMMENT ON VIEW weather IS 'of Oslo'")
    pq.write_table(table(9), folder / "month=01" / "9.parquet")
    assert con.execute("SELECT max(a) FROM weather").fetchall() == [(99,)]


def test_a_view_renamed_to_a_registered_name_keeps_its_rows(con: Any, folder: Path) -> None:
    con.register_dataset("weather", folder)
    con.register_dataset("january", folder / "month=01")
    rows = con.execute("SELECT count(*) FROM weather").fetchall()
    con.execute("DROP VIEW january")
    con.execute("ALTER VIEW weather RENAME TO january")
    assert con.execute("SELECT count(*) FROM january").fetchall() == rows


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A Delta table of four partitions with odd values, a column that came later, and two files replaced by DELETE."""
    folder = tmp_path / "delta"
    for number, part in enumerate(["x y", "07", None, "a/b%20"]):
        data = table(number).append_column("part", pa.array([part] * 10, pa.string()))
        data = data if number < 2 else data.append_column("later", pa.array([number] * 10))
        options = {"schema_mode": "merge"} if number == 2 else {}
        deltalake.write_deltalake(folder, data, partition_by=["part"], mode="append", **options)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))
    tables = {name: pq.ParquetFile(folder / name).read() for name in files}
    write_indexed(folder, tables, {"a": "int", "s": "string"}, INDEXES, partitions=["part"], written=True)
    deltalake.DeltaTable(folder).delete("a % 10 = 3 AND a < 20")
    return folder


def test_a_registered_delta_table_has_the_rows_of_its_log(con: Any, delta: Path) -> None:
    con.register_dataset("t", delta)
    alone = duckdb.connect().register("own", deltalake.DeltaTable(delta).to_pyarrow_table())
    for where, files in (
        ("true", 4), ("a < 5", 2), ("a >= 35", 3), ("part = '07'", 4), ("a = 3", 2), ("later = 3", 4), ("a = 99", 2),
        ("part IS NULL AND s = 's2'", 3), ("part = 'a/b%20' AND a > 35", 3),
    ):  # fmt: skip
        query = f"SELECT a, s, part, later FROM {{}} WHERE {where} ORDER BY a"
        assert con.execute(query.format("t")).fetchall() == alone.execute(query.format("own")).fetchall(), where
        assert (con.report.scans[0].files_kept, con.report.scans[0].files_total) == (files, 4), where
    rows, _ = rows_and_files(con, f"SELECT a FROM '{delta}/*/*.parquet' WHERE a = 3")  # of a file that the log removed
    assert len(rows) == 1
    assert "register_dataset() reads a table by its log" in str(con.report.reasons)
    deltalake.DeltaTable(delta).delete("a >= 30")
    assert con.execute("SELECT max(a) FROM t").fetchall() == [(29,)]
    assert con.execute("SUMMARIZE t").fetchall()[0][:3] == ("a", "INTEGER", "0")
    assert con.execute("SELECT count(*) FROM (DESCRIBE t)").fetchall() == [(4,)]


def test_a_delta_table_whose_rows_are_not_those_of_its_files_is_refused(con: Any, delta: Path) -> None:
    con.register_dataset("t", delta)
    con.register_dataset("other", delta)
    require_feature(delta, "deletionVectors")
    message = r"duckdb\(\) reads Parquet files, and .* is a table of Delta with deletion vectors"
    for query in ("SELECT * FROM t WHERE a = 3", "FROM t", "SUMMARIZE T"):
        with pytest.raises(InvalidSpecificationError, match=message):
            con.execute(query)
    assert con.execute("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(InvalidSpecificationError, match=message):
        con.register_dataset("t", delta)
    mapped = {"delta.columnMapping.mode": "name"}
    for feature, settings, words in (
        ("typeWidening", {}, "type widening"), ("columnMapping", mapped, "column mapping"),
    ):  # fmt: skip
        require_feature(delta, feature, **settings)
        with pytest.raises(InvalidSpecificationError, match=f"a table of Delta with {words}"):
            con.register_dataset("t", delta)


@pytest.mark.parametrize("value", ["null", True, 1.5], ids=str)
def test_partitions_that_duckdb_would_read_otherwise_are_refused(con: Any, tmp_path: Path, value: object) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"a": [1], "part": [value]}), partition_by=["part"])
    with pytest.raises(InvalidSpecificationError, match="a partition column part that DuckDB does not read"):
        con.register_dataset("t", tmp_path)


def test_metadata_may_be_elsewhere(con: Any, tmp_path: Path) -> None:
    store = geoskip.stores.ParquetStore(tmp_path / "elsewhere")
    write_indexed(tmp_path / "d", {f"{n}.parquet": table(n) for n in range(3)}, TYPES, INDEXES, store=store)
    con.register_dataset("d", tmp_path / "d", metadata=str(tmp_path / "elsewhere"))
    assert rows_and_files(con, "FROM d WHERE a = 7")[1] == "0"
    assert rows_and_files(con, f"FROM '{tmp_path}/d/*.parquet' WHERE a = 7")[1] == "0"


def test_partitions_that_duckdb_finds_in_fewer_files_alone_are_not_used(con: Any, tmp_path: Path) -> None:
    tables = {"a.parquet": pa.table({"x": [100], "y": [1]}), "x=1/b.parquet": pa.table({"x": [200], "y": [9]})}
    write_indexed(tmp_path, tables, {"x": "bigint", "y": "bigint"}, [geoskip.MinMax("y")])
    con.register_dataset("t", tmp_path)
    for source in ("t", f"'{tmp_path}/**/*.parquet'"):
        assert rows_and_files(con, f"SELECT x, y FROM {source} WHERE y > 5") == ([(200, 9)], "b")
        assert rows_and_files(con, f"SELECT x, y FROM {source} WHERE y < 5") == ([(100, 1)], "a")


@pytest.mark.parametrize("value", ["false", "0"])
def test_columns_in_files_are_read_where_partitions_are_off(con: Any, tmp_path: Path, value: str) -> None:
    tables = {f"x={n}/{n}.parquet": pa.table({"x": [n + 100], "y": [n]}) for n in (1, 2)}
    write_indexed(tmp_path, tables, {"x": "bigint", "y": "bigint"}, [geoskip.MinMax("y")], partitions=("x",))
    source = f"read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = {value})"
    assert rows_and_files(con, f"SELECT x, y FROM {source} WHERE y = 2") == ([(102, 2)], "2")


def test_names_that_spark_alone_takes_for_one_are_not_used_in_a_union_by_name(con: Any, tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"\xc9": [n], "y": [n]}) for n in range(3)}
    write_indexed(tmp_path, tables, {"\xc9": "bigint", "y": "bigint"}, [geoskip.MinMax("\xc9"), geoskip.MinMax("y")])
    files = f"'{tmp_path}/*.parquet'"
    assert rows_and_files(con, f"SELECT y FROM {files} WHERE \xc9 = 1")[1] == "1"
    assert rows_and_files(con, f"SELECT y FROM read_parquet({files}, union_by_name = true) WHERE \xc9 = 1")[1] == "012"
    assert rows_and_files(con, f"SELECT y FROM read_parquet({files}, union_by_name = true) WHERE y = 1")[1] == "1"
