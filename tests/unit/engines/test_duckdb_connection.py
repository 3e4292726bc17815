"""geoskip.duckdb: queries over fewer files, with the results of DuckDB alone."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from tests.support.duckdb_rows import INDEXES, TYPES, kept, rows_and_files, table
from tests.support.indexed_files import write_indexed


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


def test_fields_of_structs(tmp_path: Path) -> None:
    for number in range(4):
        inner = {"y": float(number), "end": number}
        rows = [{"x": 10 * number + k, "in": inner, "l": [1]} for k in range(5)]
        bare = [{name: row[name] for name in ("x", "in")} for row in rows]
        pq.write_table(pa.table({"s": bare, "l": rows, "x": [9] * 5}), tmp_path / f"{number}.parquet")
    geoskip.build(tmp_path, [geoskip.MinMax(name) for name in ("s.x", "s.in.y", "l.x", "x")])
    con = geoskip.duckdb(duckdb.connect())
    for condition, files in {
        "s.x > 25": 1,
        "S.X BETWEEN 12 AND 21 AND x = 9": 2,
        'f.s."in".y = 2': 1,
        's."in"."end" IS NULL': 4,
        "l.x = 21": 4,  # beside a list, whose type is not known here; x is another column
    }.items():
        query = f"SELECT s.x FROM '{tmp_path}/*.parquet' f WHERE {condition} ORDER BY ALL"
        assert con.sql(query).fetchall() == duckdb.connect().sql(query).fetchall()
        assert con.report.files_kept == files, f"{condition}: {con.report}"


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


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str)
def test_unsigned_numbers_are_compared(con: Any, tmp_path: Path, kind: pa.DataType) -> None:
    most = 2**kind.bit_width - 1
    for n, values in enumerate(([0, 5], [6, None], [most])):
        pq.write_table(pa.table({"u": pa.array(values, kind)}), tmp_path / f"{n}.parquet")
    geoskip.build(tmp_path, [geoskip.MinMax("u"), geoskip.ValueList("u")])
    for condition, files in (("u > 6", "2"), ("u <= 5", "0"), ("u > -1", "012"), ("u = 5.5", ""), ("u = 6", "1")):
        assert rows_and_files(con, f"FROM '{tmp_path}/*.parquet' WHERE {condition}")[1] == files


def test_a_column_of_nothing_but_null_gives_no_other_file_its_type(con: Any, tmp_path: Path) -> None:
    for n, column in enumerate((pa.array([5], pa.int32()), pa.nulls(1), pa.array([7, None], pa.int32()))):
        pq.write_table(pa.table({"k": column}), tmp_path / f"{n}.parquet")
    geoskip.build(tmp_path, [geoskip.MinMax("k")])
    assert rows_and_files(con, f"FROM '{tmp_path}/*.parquet' WHERE k IS NULL") == ([(None,), (None,)], "012")


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
