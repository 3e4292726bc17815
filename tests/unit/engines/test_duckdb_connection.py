"""geoskip.duckdb: queries over fewer files, with the results of DuckDB alone."""

from __future__ import annotations

import datetime
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
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import require_feature

TYPES = {"a": "int", "s": "string", "month": "int"}
INDEXES = (geoskip.MinMax("a"), geoskip.ValueList("s"))


def table(number: int) -> pa.Table:
    return pa.table({"a": pa.array(range(10 * number, 10 * number + 10), pa.int32()), "s": [f"s{number}"] * 10})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight files of ten rows in partitions, ``a`` from 0 to 79, and one that is not indexed."""
    tables = {f"month={1 + number % 2:02}/{number}.parquet": table(number) for number in range(9)}
    write_indexed(tmp_path / "d", tables, TYPES, INDEXES, partitions=("month",), unindexed=["month=01/8.parquet"])
    return tmp_path / "d"


@pytest.fixture
def con() -> Any:
    with geoskip.duckdb(duckdb.connect()) as connection:
        yield connection


def rows_and_files(con: Any, query: str, parameters: Any = None) -> tuple[list[Any], str]:
    """The rows, which are those of DuckDB alone in its order, but for joins; and the files of each table."""

    def rows(result: Any) -> list[Any]:
        found = result.fetchall()
        return sorted(found, key=repr) if "JOIN" in query else found

    alone = rows(con.connection.execute(query, parameters))
    assert rows(con.execute(query, parameters)) == alone
    assert rows(con.sql(query, params=parameters)) == alone
    return alone, kept(con)


def kept(con: Any) -> str:
    return "|".join("".join(sorted(Path(file).stem for file in scan.kept_files())) for scan in con.report.scans)


@pytest.mark.parametrize(
    ("query", "files"),
    [
        ("SELECT * FROM 'D/*/*.parquet' WHERE a > 65", "678"),
        ("SELECT a, s FROM read_parquet('D/month*/*.parquet') WHERE a > 65 AND month = 1", "678"),
        ("FROM parquet_scan(['D/month=01/*.parquet', 'D/month=02/1.parquet']) t WHERE t.a BETWEEN 21 AND 22", "28"),
        ("FROM read_parquet('D/*/*.parquet', hive_partitioning = false) WHERE s = 's3'", "38"),
        ("FROM read_parquet('D/*/*.parquet', hive_types = {'month': VARCHAR}) WHERE s = 's3'", "38"),
        ("FROM read_parquet('D/*/*.parquet', union_by_name = true, filename = true) WHERE s = 's3'", "38"),
        ("FROM read_parquet('D/*/*.parquet', file_row_number = true) WHERE s = 's3'", "38"),
        ("SELECT filename, file_row_number FROM 'D/*/*.parquet' WHERE s = 's3'", "38"),
        ("SELECT file_index FROM 'D/*/*.parquet' WHERE s = 's3'", "012345678"),
        ("FROM 'D/*/*.parquet' WHERE s = lower('S') || (1 + 2) OR a < 2 * 4 - 3", "038"),
        ("SELECT count(*) FROM 'D/*/*.parquet'", "012345678"),
        ("SELECT month, count(*), list(a) FROM 'D/*/*.parquet' WHERE a < 15 GROUP BY ALL ORDER BY 1", "018"),
        ("FROM 'D/*/*.parquet' WHERE a < 15 LIMIT 3", "018"),
        ("FROM 'D/*/*.parquet' WHERE a > 15 AND a < 45 LIMIT 3 OFFSET 4", "12348"),
        ("FROM (FROM 'D/*/*.parquet' LIMIT 12) WHERE a > 15", "012345678"),
        ("SELECT *, row_number() OVER () FROM 'D/*/*.parquet' WHERE a > 65", "678"),
        ("FROM 'D/*/*.parquet' l JOIN 'D/*/*.parquet' r USING (a) WHERE l.a > 65 AND r.s = 's7'", "678|78"),
        ("FROM 'D/*/*.parquet' l LEFT JOIN 'D/*/*.parquet' r ON l.a = r.a AND r.s = 's7' WHERE l.a > 65", "678|78"),
        ("WITH c AS (FROM 'D/*/*.parquet') SELECT max(a) FROM c WHERE a < 5", "08"),
        ("SELECT (SELECT count(*) FROM 'D/*/*.parquet' WHERE a = z) FROM (SELECT 7 AS z)", "012345678"),
        ("FROM 'D/*/*.parquet' WHERE a < 5 UNION ALL FROM 'D/*/*.parquet' WHERE a > 75 ORDER BY a", "08|78"),
        ("SELECT \"D/*/*.parquet\".a FROM 'D/*/*.parquet' WHERE a < 5", "08"),
        ("SELECT read_parquet.a FROM read_parquet('D/*/*.parquet') WHERE read_parquet.a < 5", "08"),
        ("SELECT 'é', \"1\".a /* ü */ FROM 'D/month=02/1.parquet' -- a comment\n WHERE a < 15", "1"),
        ("SELECT a FROM 'D/month=02/1.parquet' WHERE a > 35", ""),
        ("EXPLAIN SELECT a FROM 'D/month=02/1.parquet' WHERE a = 15", "1"),
    ],
)  # fmt: skip
def test_a_query_reads_fewer_files_and_finds_the_same_rows(con: Any, folder: Path, query: str, files: str) -> None:
    assert rows_and_files(con, query.replace("D/", f"{folder}/"))[1] == files


@pytest.mark.parametrize(
    ("query", "parameters", "files"),
    [
        ("FROM 'D/*/*.parquet' WHERE a > ?", [65], "678"),
        ("FROM 'D/*/*.parquet' WHERE a > $low AND a < $high", {"low": 25, "high": 35}, "238"),
        ("FROM 'D/*/*.parquet' WHERE s = $2 OR a > $1", [75, "s1"], "178"),
        ("FROM 'D/*/*.parquet' WHERE a > ?", [None], "012345678"),
        ("FROM read_parquet(?) WHERE a > ?", ["D/month=01/0.parquet", 65], ""),
    ],
)
def test_parameters_are_constants(con: Any, folder: Path, query: str, parameters: Any, files: str) -> None:
    if isinstance(parameters, list):
        parameters = [p.replace("D/", f"{folder}/") if isinstance(p, str) else p for p in parameters]
    assert rows_and_files(con, query.replace("D/", f"{folder}/"), parameters)[1] == files


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


def test_rows_are_written_from_fewer_files(con: Any, folder: Path) -> None:
    con.execute(f"CREATE TABLE t AS SELECT a FROM '{folder}/*/*.parquet' WHERE a > 65")
    assert kept(con) == "678"
    con.execute(f"INSERT INTO t (a) SELECT a FROM '{folder}/*/*.parquet' WHERE a < 5")
    assert kept(con) == "08"
    assert con.execute("SELECT count(*), sum(a) FROM t").fetchall() == [(29, sum(range(66, 90)) + 10)]
    con.execute(f"CREATE VIEW v AS FROM '{folder}/*/*.parquet' WHERE a > 65")
    assert "runs as it is written" in str(con.report.reasons)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("SET default_collation = 'nocase'", "the setting default_collation"),
        ("SET integer_division = true", "the setting integer_division"),
        ("CREATE MACRO abs(x) AS 7", "abs is a macro"),
        ("CREATE TEMP MACRO abs(x) AS 7", "abs is a macro"),
    ],
)
def test_a_session_in_which_conditions_mean_something_else_reads_all_files(
    con: Any, folder: Path, change: str, reason: str
) -> None:
    query = f"FROM '{folder}/*/*.parquet' WHERE abs(a) = 7"
    con.connection.execute(change)
    assert rows_and_files(con, query)[1] == "012345678"
    assert reason in str(con.report.reasons)


def test_a_users_function_is_not_taken_for_one_that_duckdb_has_not(con: Any, folder: Path) -> None:
    con.connection.create_function("startswith", lambda text, _: text != "s0", ["VARCHAR", "VARCHAR"], "BOOLEAN")
    query = f"FROM '{folder}/*/*.parquet' WHERE startswith(s, 's0') AND a < 15"
    assert rows_and_files(con, query)[1] == "018"
    assert "other.startswith(s, 's0') is not used" in str(con.report.reasons)


def test_a_condition_that_cannot_be_read_leaves_the_others(con: Any, tmp_path: Path) -> None:
    tables = {f"{number}.parquet": table(number).append_column("xor", pa.array([1] * 10)) for number in range(3)}
    write_indexed(tmp_path, tables, TYPES, INDEXES)
    assert rows_and_files(con, f"FROM '{tmp_path}/*.parquet' WHERE xor = 1 AND a = 15")[1] == "1"
    assert "a condition could not be read" in str(con.report.reasons)


def test_columns_are_those_of_all_files(con: Any, tmp_path: Path) -> None:
    tables = {
        "p=1/0.parquet": pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([1], pa.int32())}),
        "p=x/1.parquet": pa.table({"b": pa.array([7], pa.int32()), "a": pa.array([2], pa.int32())}),
        "p=2/2.parquet": pa.table({"a": pa.array([3], pa.int32()), "b": pa.array([9], pa.int32())}),
    }
    write_indexed(tmp_path, tables, {"a": "int", "b": "int"}, [geoskip.MinMax("a")])
    path = f"'{tmp_path}/*/*.parquet'"
    assert rows_and_files(con, f"FROM {path} WHERE a = 1") == ([(1, 1, "1")], "0")
    assert rows_and_files(con, f"FROM {path} WHERE a = 2") == ([(2, 7, "x")], "01")
    assert "the first file is read" in str(con.report.reasons)
    assert rows_and_files(con, f"FROM {path} WHERE a = 3") == ([(3, 9, "2")], "2")
    assert rows_and_files(con, f"FROM {path} WHERE a = 4") == ([], "")
    assert con.sql(f"FROM {path} WHERE a = 4").columns == ["a", "b", "p"]
    assert rows_and_files(con, f"SELECT filename FROM {path} WHERE a = 4") == ([], "0")
    alike = f"read_parquet({path}, union_by_name = true)"
    assert rows_and_files(con, f"FROM {alike} WHERE a = 2") == ([(2, 7, "x")], "01")


def test_a_column_of_another_type_than_the_index_is_not_compared(con: Any, tmp_path: Path) -> None:
    write_indexed(tmp_path, {"0.parquet": table(0), "1.parquet": table(1)}, TYPES, INDEXES)
    os.rename(tmp_path / "0.parquet", tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": ["5", "6"]}), tmp_path / "0.parquet")
    assert rows_and_files(con, f"FROM '{tmp_path}/*.parquet' WHERE a = '5'")[1] == "012"


@pytest.mark.parametrize("condition", ["x = 0.1", "x <= 0.1", "x IN (0.1, 7.5)", "x <= 0.100000000000000005551"])
def test_floats_in_place_of_doubles_are_compared_with_floats(con: Any, tmp_path: Path, condition: str) -> None:
    columns = [pa.array([5.0, 6.0]), pa.array([0.1, 0.2], pa.float32()), pa.array([8.0])]
    tables = {f"{number}.parquet": pa.table({"x": column}) for number, column in enumerate(columns)}
    pq.write_table(tables.pop("1.parquet"), tmp_path / "1.parquet")
    for name, one in tables.items():
        pq.write_table(one, tmp_path / name)
    for path in tmp_path.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    geoskip.build(tmp_path, geoskip.MinMax("x"), geoskip.ValueList("x"))
    assert rows_and_files(con, f"FROM '{tmp_path}/*.parquet' WHERE {condition}")[1] in ("1", "01")


def test_a_plan_that_duckdb_does_not_implement_for_fewer_files_is_not_used(con: Any, tmp_path: Path) -> None:
    for n in range(8):
        kind = pa.int64() if n in (0, 3, 5) else pa.int32()
        pq.write_table(pa.table({"k": pa.array([n, n, None], kind)}), tmp_path / f"{n}.parquet")
    geoskip.build(tmp_path, [geoskip.MinMax("k")])
    query = (
        f"WITH RECURSIVE r AS (SELECT k FROM '{tmp_path}/*.parquet' WHERE k = 3 UNION SELECT k + 1 FROM r WHERE k < 4) "
        f"SELECT y.k FROM '{tmp_path}/*.parquet' y JOIN r ON y.k = r.k CROSS JOIN r WHERE y.k > 1"
    )
    con.execute("SET threads = 2")
    assert con.execute(query).fetchall() == con.connection.execute(query).fetchall()


def test_names_with_signs_of_globs_are_not_taken_apart(con: Any, tmp_path: Path) -> None:
    write_indexed(tmp_path / "a[1]", {"0.parquet": table(0), "1.parquet": table(1)}, TYPES, INDEXES)
    query = f"FROM '{tmp_path}/a*/*.parquet' WHERE a = 5"
    assert con.execute(query).fetchall() == con.connection.execute(query).fetchall() != []
    assert "one of * ? [" in str(con.report.reasons)


def test_relative_paths_and_quotes(con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_indexed(tmp_path / "it's", {"0.parquet": table(0), "1.parquet": table(1)}, TYPES, INDEXES)
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path / "x")
    assert rows_and_files(con, "SELECT *, filename FROM '../it''s/*.parquet' WHERE a = 15")[1] == "1"
    assert rows_and_files(con, "SELECT *, filename FROM '../x/../it''s/*.parquet' WHERE a = 15")[1] == ""
    assert "in the middle" in str(con.report.reasons)


def test_a_file_outside_the_dataset_is_read(con: Any, folder: Path, tmp_path: Path) -> None:
    pq.write_table(table(0), tmp_path / "other.parquet")
    query = (
        f"SELECT count(*) FROM read_parquet(['{folder}/month=01/0.parquet', '{tmp_path}/other.parquet']) WHERE a > 65"
    )
    assert rows_and_files(con, query) == ([(0,)], "other")
    again = (
        f"SELECT count(*) FROM read_parquet(['{folder}/month=01/0.parquet', '{folder}/month=01/0.parquet']) WHERE a < 5"
    )
    assert rows_and_files(con, again) == ([(10,)], "00")


def test_tables_of_duckdb_and_variables_of_python_stand_beside(con: Any, folder: Path) -> None:
    mine = pa.table({"k": [75, 76]})
    con.connection.execute("CREATE TABLE t AS SELECT 77 AS k")
    assert len(mine) == 2
    assert rows_and_files(con, f"SELECT a FROM '{folder}/*/*.parquet' JOIN t ON a = k WHERE a > 70")[1] == "78"
    joined = con.execute(f"SELECT a FROM mine JOIN '{folder}/*/*.parquet' f ON f.a = k WHERE f.a > 70").fetchall()
    assert sorted(joined) == [(75,), (76,)]
    assert kept(con) == "78"


def test_variables_of_python_are_those_of_the_caller(con: Any) -> None:
    query = text = run = parameters = time = pa.table({"k": [75]})  # as variables of geoskip's own are called
    assert {len(one) for one in (query, text, run, parameters, time)} == {1}
    for name in ("query", "text", "run", "parameters", "time"):
        assert con.sql(f"FROM {name}").fetchall() == con.execute(f"FROM {name}").fetchall() == [(75,)]

    def within() -> None:
        con.sql("FROM text")

    with pytest.raises(duckdb.CatalogException, match="text"):
        within()


def test_an_error_is_duckdbs_own_and_leaves_a_transaction_alone(con: Any, folder: Path) -> None:
    with pytest.raises(duckdb.BinderException, match="nothing"):
        con.execute(f"SELECT nothing FROM '{folder}/*/*.parquet' WHERE a > 65")
    with pytest.raises(duckdb.ParserException):
        con.sql("SELEC 1")
    con.execute("BEGIN")
    con.execute("CREATE TABLE t AS SELECT 1 AS k")
    con.execute(f"SELECT count(*) FROM read_parquet('{folder}/month=01', filename = true) WHERE a > 65")
    assert "name those of a folder as" in str(con.report.reasons)
    assert con.execute("FROM t").fetchall() == [(1,)]
    con.execute("ROLLBACK")


def test_a_column_on_files_that_an_empty_relation_has_not(con: Any, folder: Path) -> None:
    path = f"'{folder}/*/*.parquet'"
    one = f"'{folder}/month=01/0.parquet'"
    query = f"SELECT (SELECT max(filename) FROM {one} WHERE a > 65) FROM {path} f WHERE a < 5"
    assert rows_and_files(con, query)[0] == [(None,)] * 5


@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo"])
def test_times_that_duckdb_shifts_are_found(con: Any, tmp_path: Path, zone: str) -> None:
    """A file of INT96 below one of zoned times: DuckDB reads the former as local times."""
    for number in range(4):
        noon = pa.array([datetime.datetime(2024, 1, 1 + number, 12)], pa.timestamp("us"))
        zoned = pa.table({"t": noon.cast(pa.timestamp("us", "UTC"))})
        pq.write_table(zoned, tmp_path / f"{number}.parquet", use_deprecated_int96_timestamps=number == 2)
    geoskip.build(tmp_path, [geoskip.MinMax("t")])
    con.execute(f"SET TimeZone = '{zone}'")
    query = f"SELECT epoch_us(t) FROM '{tmp_path}/*.parquet' WHERE t = TIMESTAMPTZ '2024-01-03 {{}}:00:00+00'"
    at_11, at_12 = (rows_and_files(con, query.format(hour)) for hour in (11, 12))
    assert (len(at_11[0]), len(at_12[0])) == ((0, 1) if zone == "UTC" else (1, 0))
    assert (at_11[1], at_12[1]) == (("", "02") if zone == "UTC" else ("02", "02"))


def test_a_clause_skips_no_more_files_than_there_are(con: Any, folder: Path) -> None:
    con.execute(f"FROM '{folder}/*/*.parquet' WHERE a BETWEEN 41 AND 42")
    assert dict(con.report.scans[0].clauses()) == {"max(a) >= 41": 4, "min(a) <= 42": 3}
