"""Tables of Iceberg that Spark wrote and indexed, read without Spark: the rows of Spark, from the kept files alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.errors import GeoskipError, InvalidSpecificationError
from tests.support.commands import as_json, printed
from tests.support.iceberg_tables import MODES, add, delete_by_name, iceberg, make

Read = Callable[..., "tuple[list[Any], int]"]


def place_of(spark: Any, table: str) -> str:
    return str(iceberg(spark, table).location())


def version_file(spark: Any, table: str) -> str:
    """The metadata file of the current version."""
    iceberg(spark, table).refresh()
    return str(spark.sql(f"SELECT file FROM {table}.metadata_log_entries").collect()[-1].file)


def spark_rows(spark: Any, table: str, where: str, columns: list[str], version: int | None = None) -> list[Any]:
    as_of = f" VERSION AS OF {version}" if version is not None else ""
    with geoskip.disabled(spark):
        rows = spark.sql(f"SELECT * FROM {table}{as_of} WHERE {where}").select(*columns).collect()
    return in_order(tuple(row) for row in rows)


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])


def of_files(path: str, where: str, columns: list[str]) -> tuple[list[Any], int]:
    kept = geoskip.files(path, where)
    assert all(Path(file.path).exists() for file in kept)
    return [], len(kept)


def of_pyarrow(path: str, where: str, columns: list[str]) -> tuple[list[Any], int]:
    dataset = geoskip.pyarrow_dataset(path, eval(where, {"col": pc.field, "dt": dt, "Decimal": Decimal}))
    rows = dataset.to_table(columns=columns).to_pylist()
    assert len(dataset.files) == geoskip.report(dataset).files_kept
    return [tuple(row.values()) for row in rows], geoskip.report(dataset).files_kept


def of_polars(path: str, where: str, columns: list[str]) -> tuple[list[Any], int]:
    condition = eval(where, {"col": pl.col, "dt": dt, "Decimal": Decimal})
    frame, whole = geoskip.scan_polars(path, condition), geoskip.scan_polars(path)
    rows = frame.select(columns).collect().rows()
    assert in_order(whole.filter(condition).select(columns).collect().rows()) == in_order(rows)
    assert geoskip.report(whole).files_kept == geoskip.report(frame).files_kept
    assert whole.filter(condition).select(pl.len()).collect().item() == len(rows)
    return rows, geoskip.report(frame).files_kept


def of_duckdb(path: str, where: str, columns: list[str]) -> tuple[list[Any], int]:
    con = geoskip.duckdb(duckdb.connect())
    con.register_dataset("t", path)
    rows = con.sql(f"SELECT {', '.join(columns)} FROM t WHERE {where}").fetchall()
    return rows, con.report.files_kept


READERS = {"pyarrow": of_pyarrow, "polars": of_polars, "duckdb": of_duckdb}
EXPRESSIONS = ("pyarrow", "polars")


def check(
    spark: Any,
    table: str,
    where: str,
    expression: str,
    kept: int,
    *,
    columns: str = "temp",
    readers: Any = READERS,
) -> None:
    """Each reader has Spark's rows, from so many files; ``expression`` is the condition over ``col(name)``."""
    names, place = columns.split(), place_of(spark, table)
    expected = spark_rows(spark, table, where, names)
    assert len(geoskip.files(place, where)) == kept
    for name in readers:
        rows, read = READERS[name](place, expression if name in EXPRESSIONS else where, names)
        assert (in_order(rows), read) == (expected, kept), name


def refused(spark: Any, table: str, expression: str, match: str, readers: Any) -> None:
    for name in readers:
        where = expression if name in EXPRESSIONS else "true"
        with pytest.raises(InvalidSpecificationError, match=match):
            READERS[name](place_of(spark, table), where, ["temp"])


def test_every_reader_reads_the_kept_files_of_the_current_version(spark: Any, table: str) -> None:
    make(spark, table, by="half")
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"), GeoBox("temp", "half"))
    check(spark, table, "temp > 33", "col('temp') > 33", 2, columns="name temp half")
    check(spark, table, "temp > 33 AND half = 1", "(col('temp') > 33) & (col('half') == 1)", 1)
    check(spark, table, "half = 7", "col('half') == 7", 0)
    add(spark, table, 100, 110)  # unknown files are kept
    check(spark, table, "temp > 103", "col('temp') > 103", 2)
    check(spark, table, "temp < 5", "col('temp') < 5", 4)
    place = place_of(spark, table)
    assert as_json("describe", place)["changes"] == {"new or changed": 2, "gone": 0}
    assert len(printed("files", place, "temp > 103").splitlines()) == 2
    spark.sql(f"DELETE FROM {table} WHERE temp < 10 AND half = 0")  # a file that is in the folder still
    check(spark, table, "temp < 15", "col('temp') < 15", 5)
    dataset.refresh_index()
    check(spark, table, "temp < 15", "col('temp') < 15", 3)
    assert as_json("describe", place)["changes"] == {"new or changed": 0, "gone": 0}
    assert len(list(Path(place).rglob("*.parquet"))) == 10
    assert len(geoskip.listing(place)) == 9
    near = geoskip.read_geoparquet(place, (0, 0, 12, 0.5), points=("temp", "half"))
    assert sorted(near["temp"]) == [10, 12]
    assert near.attrs["geoskip"]["files_kept"] == 1
    statistics = geoskip.statistics(place).to_pylist()
    assert {(row["min_value"], row["max_value"]) for row in statistics if row["expression"] == "temp"} >= {("31", "39")}
    assert {row["modified"] for row in statistics} == {None}


@pytest.mark.parametrize(("form", "mode"), MODES)
def test_deleted_rows_are_never_returned(spark: Any, table: str, form: str, mode: str) -> None:
    make(spark, table, **{"format-version": form, "write.delete.mode": mode, "write.update.mode": mode})
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"))
    spark.sql(f"DELETE FROM {table} WHERE temp IN (15, 17)")
    spark.sql(f"UPDATE {table} SET name = 'new' WHERE temp = 25")
    dataset.refresh_index()
    merged = mode == "merge-on-read"
    condition = "(col('temp') > 13) & (col('temp') < 19)"
    check(spark, table, "temp > 13 AND temp < 19", condition, 1, readers=["polars"] if merged else READERS)
    assert geoskip.scan_polars(place_of(spark, table)).select(pl.len()).collect().item() == 38
    if merged:
        assert "rows may be deleted" in str(geoskip.files(place_of(spark, table), "temp = 15").report)
        refused(spark, table, condition, "a table of Iceberg with deleted rows", ["pyarrow", "duckdb"])
        with pytest.raises(InvalidSpecificationError, match="deleted rows that are still in its files"):
            geoskip.read_geoparquet(place_of(spark, table), points=("temp", "half"))


def test_a_table_of_format_1_that_is_upgraded(spark: Any, table: str) -> None:
    make(spark, table, by="half", **{"format-version": "1"})
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"))
    check(spark, table, "temp > 33 AND half = 1", "(col('temp') > 33) & (col('half') == 1)", 1)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '2')")
    add(spark, table, 40, 50)
    check(spark, table, "temp > 38", "col('temp') > 38", 3)
    dataset.refresh_index()
    check(spark, table, "temp > 48", "col('temp') > 48", 1)


def test_equality_deletes_are_refused(spark: Any, table: str) -> None:
    make(spark, table, **{"format-version": "2"})
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    delete_by_name(spark, table, "n38")
    place = place_of(spark, table)
    assert len(geoskip.files(place, "temp > 33")) == 1
    refused(spark, table, "col('temp') > 33", "deleted rows", ["pyarrow", "duckdb"])
    with pytest.raises(InvalidSpecificationError, match=r"does not yet support equality deletes.*through Spark"):
        geoskip.scan_polars(place, pl.col("temp") > 33)
    with pytest.raises(Exception, match=r"equality deletes"):
        geoskip.scan_polars(place).collect()


def test_files_of_avro_are_refused_unless_they_are_skipped(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (n INT) USING iceberg")
    for number, form in enumerate(("parquet", "avro")):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.format.default' = '{form}')")
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    geoskip.dataset(spark, table=table).create_index(MinMax("n"))
    place = place_of(spark, table)
    assert geoskip.scan_polars(place, pl.col("n") == 0).collect().rows() == [(0,)]
    with pytest.raises(InvalidSpecificationError, match="files of Avro, which the package pyiceberg does not read"):
        geoskip.scan_polars(place, pl.col("n") >= 0).collect()
    with pytest.raises(InvalidSpecificationError, match="of which these are not the rows or columns; read it through"):
        geoskip.pyarrow_dataset(place)


def test_columns_are_found_by_their_ids(spark: Any, table: str) -> None:
    make(spark, table)
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"), MinMax("half"))
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN temp TO heat")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN half TO temp")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN heat TO half")  # the names have changed places
    by_id = ["polars", "duckdb"]
    check(spark, table, "half > 33", "col('half') > 33", 1, columns="half temp", readers=by_id)
    check(spark, table, "temp > 0", "col('temp') > 0", 4, columns="half temp", readers=by_id)
    check(spark, table, "temp > 1", "col('temp') > 1", 0, columns="half temp", readers=by_id)
    refused(spark, table, "col('half') > 33", "another one of this name", ["pyarrow"])
    spark.sql(f"ALTER TABLE {table} DROP COLUMN half")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN half BIGINT")  # another column under an old name
    spark.sql(f"INSERT INTO {table} (temp, name, half) VALUES (5, 'x', 500)")
    check(spark, table, "half > 33", "col('half') > 33", 5, columns="half temp", readers=by_id)
    check(spark, table, "half IS NULL", "col('half').is_null()", 5, columns="half temp", readers=by_id)
    dataset.refresh_index("full")
    check(spark, table, "temp > 3", "col('temp') > 3", 1, columns="half temp", readers=by_id)
    with pytest.raises(InvalidSpecificationError, match=r"finds the columns of files by their names"):
        geoskip.read_geoparquet(place_of(spark, table), points=("temp", "half"))
    spark.sql(
        f"CALL ice.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
    ).collect()
    dataset.refresh_index("full")
    check(spark, table, "temp > 3", "col('temp') > 3", 1, columns="half temp")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN late STRING")
    check(spark, table, "late IS NULL", "col('late').is_null()", 1, columns="half late")


@pytest.mark.parametrize(("old", "gone", "new"), [("temp", "gone", "TEMP"), ("temp#3", "temp", "temp")])
def test_a_new_column_whose_name_is_nearly_that_of_an_old_one(
    spark: Any, table: str, old: str, gone: str, new: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (`{old}` BIGINT, `{gone}` BIGINT) USING iceberg")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN `{old}` TO first")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN `{gone}`")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN `{new}` BIGINT")
    spark.sql(f"INSERT INTO {table} (first, `{new}`) VALUES (1, 1000)")
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("first"))
    for again in (False, True):
        assert spark.sql(f"SELECT * FROM {table} WHERE {new} > 500").count() == 1
        check(spark, table, f"{new} > 500", f"col('{new}') > 500", 1, columns=f"first {new}")
        check(spark, table, "first < 5", "col('first') < 5", 1, columns=f"first {new}")
        if not again:
            dataset.create_index(MinMax(new))
    check(spark, table, f"{new} < 5", f"col('{new}') < 5", 0, columns=f"first {new}")


def test_fields_of_structs_and_wider_types(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (n INT, s STRUCT<a: INT, b: INT>) USING iceberg")
    for start in range(0, 40, 10):
        rows = spark.range(start, start + 10, 1, 1)
        values = "int(id) AS n", "named_struct('a', int(id), 'b', 5) AS s"
        rows.selectExpr(*values).writeTo(table).append()
    geoskip.dataset(spark, table=table).create_index(MinMax("n"), MinMax("s.a"), MinMax("s.b"))
    check(spark, table, "n > 33", "col('n') > 33", 1, columns="n")
    assert len(geoskip.files(place_of(spark, table), "s.a > 33")) == 1
    for old, new in (("s.a", "c"), ("s.b", "a"), ("s.c", "b")):
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    place = place_of(spark, table)
    for where, kept in (("s.a > 33", 0), ("s.a = 5", 4), ("s.b > 33", 1)):
        assert len(geoskip.files(place, where)) == kept, where
        (rows,) = [spark_rows(spark, table, where, ["n"])]
        expression = where.replace("s.a", "col('s').struct.field('a')").replace("s.b", "col('s').struct.field('b')")
        found = of_polars(place, expression.replace(" = ", " == "), ["n"])
        assert in_order(found[0]) == rows, where
    refused(spark, table, "col('n') > 33", "in s;", ["pyarrow", "duckdb"])
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN n TYPE BIGINT")
    spark.sql(f"INSERT INTO {table} SELECT 9999999999, named_struct('a', 5, 'b', 70)")
    check(spark, table, "n > 33", "col('n') > 33", 5, columns="n", readers=["polars"])
    assert "the table has bigint now" in str(geoskip.files(place, "n > 33").report)


def test_files_with_narrower_types_than_the_table(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (n INT, x FLOAT, d DECIMAL(5, 2)) USING iceberg")
    for number in range(2):
        spark.sql(f"INSERT INTO {table} SELECT {number}, float({number} + 0.1), {number}.25")
    for column, kind in (("n", "BIGINT"), ("x", "DOUBLE"), ("d", "DECIMAL(20, 2)")):
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind}")
    spark.sql(f"INSERT INTO {table} SELECT 9999999999, 0.1D, 123456789012.25")
    place, columns = place_of(spark, table), "n x d"
    check(spark, table, "x > 0.1D", "col('x') > 0.1", 3, columns=columns, readers=EXPRESSIONS)
    with pytest.raises(InvalidSpecificationError, match=r"its column x is of floats, in the table of doubles"):
        of_duckdb(place, "x > 0.1", ["n"])  # DuckDB takes the constant for a float, and loses the row of float(0.1)
    points = geoskip.read_geoparquet(place, points=("x", "n"))
    assert in_order(points[["n", "x"]].itertuples(index=False, name=None)) == spark_rows(
        spark, table, "true", ["n", "x"]
    )
    options = "options => map('rewrite-all', 'true')"
    spark.sql(f"CALL ice.system.rewrite_data_files(table => '{table}', {options})").collect()
    check(spark, table, "x > 0.1D", "col('x') > 0.1", 1, columns=columns, readers=EXPRESSIONS)
    assert len(of_duckdb(place, "x > 0.1", ["n"])[0]) == 2


def test_files_without_field_ids_are_read_by_the_names_that_the_table_maps(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (n INT, p INT) USING iceberg PARTITIONED BY (p)")
    place = place_of(spark, table)
    with geoskip.disabled(spark):
        spark.range(4).selectExpr("int(id) AS n", "int(id % 2) AS p").write.partitionBy("p").parquet(f"{place}/more")
    name, source = table.partition(".")[2], f"`parquet`.`{place}/more`"
    spark.sql(f"CALL ice.system.add_files(table => '{name}', source_table => '{source}')").collect()
    files = len(geoskip.files(place, "p = 0"))
    assert files
    for column in ("n", "m"):
        check(spark, table, "p = 0", "col('p') == 0", files, columns=f"{column} p", readers=["polars"])
        for reader in ("pyarrow", "duckdb"):
            with pytest.raises(InvalidSpecificationError, match="its column n is without a field id"):
                READERS[reader](place, "col('p') == 0" if reader == "pyarrow" else "p = 0", [column])
        if column == "n":
            spark.sql(f"ALTER TABLE {table} RENAME COLUMN n TO m")


def test_a_column_that_old_files_lack_reads_its_default(spark: Any, table: str) -> None:
    make(spark, table, **{"format-version": "3"})
    default = spark._jvm.org.apache.iceberg.expressions.Expressions.lit(0)
    kind = spark._jvm.org.apache.iceberg.types.Types.IntegerType.get()
    iceberg(spark, table).updateSchema().addColumn("level", kind, None, default).commit()
    spark.sql(f"REFRESH TABLE {table}")
    spark.sql(f"INSERT INTO {table} SELECT 40, 0, 'x', 7")
    geoskip.dataset(spark, table=table).create_index(MinMax("level"))
    place = place_of(spark, table)
    for level, kept in ((7, 1), (0, 4)):
        found, read = of_polars(place, f"col('level') == {level}", ["temp", "level"])
        # with a condition Iceberg 1.10.1 itself takes the column for NULL in files that lack it, and loses their rows
        every = spark_rows(spark, table, "true", ["temp", "level"])
        assert (in_order(found), read) == ([row for row in every if row[1] == level], kept)
        assert found
    refused(spark, table, "col('level') == 0", "it has no column level", ["pyarrow", "duckdb"])


VALUES = """
    (0, double('NaN'), float('NaN'), 'a', 1.50, TIMESTAMP '1969-12-31 23:59:59.999999', DATE '1969-12-31', TRUE),
    (1, -0.0D, -0.0F, '\U0001f600', -1.01, TIMESTAMP '2024-02-29 12:30:15.123456', DATE '2024-02-29', FALSE),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, double('Infinity'), float('-Infinity'), '\uffff', 99999999.99, TIMESTAMP '1970-01-01 00:00:00',
        DATE '1970-01-01', TRUE),
    (4, 0.1D, float(0.1), '', 0.00, TIMESTAMP '2024-02-29 12:30:15', DATE '1900-01-01', NULL)
"""
CONDITIONS = (
    ("x > 1", "col('x') > 1"),
    ("x = 0", "col('x') == 0"),
    ("NOT x < 0.1", "~(col('x') < 0.1)"),
    ("f = 0.1", "col('f') == 0.1"),
    ("f <= 0", "col('f') <= 0"),
    ("s > 'b'", "col('s') > 'b'"),
    ("s = ''", "col('s') == ''"),
    ("s IS NULL", "col('s').is_null()"),
    ("d > 1.5", "col('d') > Decimal('1.50')"),
    ("d <> 0", "col('d') != Decimal('0.00')"),
    ("moment < TIMESTAMPTZ '1970-01-01 00:00:00+00'", "col('moment') < dt.datetime(1970, 1, 1, tzinfo=dt.UTC)"),
    ("day >= DATE '1970-01-01'", "col('day') >= dt.date(1970, 1, 1)"),
    ("NOT b", "~col('b')"),
    ("b IS NULL", "col('b').is_null()"),
)


def test_values_on_which_engines_differ_are_each_engines_own(spark: Any, table: str) -> None:
    columns = "id INT, x DOUBLE, f FLOAT, s STRING, d DECIMAL(10, 2), moment TIMESTAMP, day DATE, b BOOLEAN"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
    rows = spark.sql(f"SELECT * FROM VALUES {VALUES} AS v(id, x, f, s, d, moment, day, b)").collect()
    for number in range(5):  # a file each
        one = spark.createDataFrame(rows[number : number + 1], columns)
        one.writeTo(table).append()
    geoskip.dataset(spark, table=table).create_index(*map(MinMax, ("x", "f", "s", "d", "moment", "day", "b")))
    place, skipped = place_of(spark, table), dict.fromkeys(READERS, 0)
    whole = geoskip.pyarrow_dataset(place).to_table()
    plain = duckdb.connect().register("whole", whole)
    plain.execute("CREATE TABLE t AS FROM whole")  # of a view of Arrow's, Arrow itself evaluates conditions
    for where, expression in CONDITIONS:
        names = {"dt": dt, "Decimal": Decimal}
        expected = {
            "pyarrow": whole.filter(eval(expression, {**names, "col": pc.field}))["id"].to_pylist(),
            "polars": pl.from_arrow(whole).filter(eval(expression, {**names, "col": pl.col}))["id"].to_list(),
            "duckdb": [row[0] for row in plain.sql(f"SELECT id FROM t WHERE {where}").fetchall()],
        }
        for name, read in READERS.items():
            found, files = read(place, expression if name in EXPRESSIONS else where, ["id"])
            assert sorted(row[0] for row in found) == sorted(expected[name]), (name, where)
            skipped[name] += 5 - files
    assert min(skipped.values()) > 20, skipped


def test_partitions_that_evolve_and_values_that_look_encoded(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (temp BIGINT, p STRING, d DATE) USING iceberg PARTITIONED BY (p, d)")
    for number, text in enumerate(("a%20b c+", "é/ö", "", None)):
        value = "NULL" if text is None else f"'{text}'"
        spark.sql(f"INSERT INTO {table} SELECT {number}, {value}, DATE '2024-02-2{number}'")
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    columns = "temp p d"
    check(spark, table, "p = 'a%20b c+'", "col('p') == 'a%20b c+'", 1, columns=columns)
    check(spark, table, "p = ''", "col('p') == ''", 1, columns=columns)
    check(spark, table, "p IS NULL", "col('p').is_null()", 1, columns=columns)
    check(spark, table, "d > DATE '2024-02-21'", "col('d') > dt.date(2024, 2, 21)", 2, columns=columns)
    check(spark, table, "temp = 1 OR p = ''", "(col('temp') == 1) | (col('p') == '')", 2, columns=columns)
    found = geoskip.files(place_of(spark, table), "d = DATE '2024-02-20'")
    assert [file.partitions for file in found] == [{"p": "a%20b c+", "d": dt.date(2024, 2, 20)}]
    spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD p")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, temp)")
    spark.sql(f"INSERT INTO {table} SELECT 9, 'a%20b c+', DATE '2024-02-20'")
    check(spark, table, "p = 'a%20b c+'", "col('p') == 'a%20b c+'", 5, columns=columns)  # a file may have several now
    check(spark, table, "d = DATE '2024-02-20'", "col('d') == dt.date(2024, 2, 20)", 2, columns=columns)


def test_versions_folders_and_other_places(spark: Any, table: str, tmp_path: Path) -> None:
    make(spark, table, by="half")
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    place, before = place_of(spark, table), version_file(spark, table)
    spark.sql(f"DELETE FROM {table} WHERE half = 1")
    assert geoskip.scan_polars(place).select(pl.len()).collect().item() == 20
    assert geoskip.scan_polars(before).select(pl.len()).collect().item() == 40
    assert (len(geoskip.files(before, "temp > 33")), len(geoskip.files(place, "temp > 33"))) == (2, 1)
    assert of_pyarrow(before, "col('temp') > 33", ["temp"])[1] == 2
    assert (len(of_duckdb(before, "temp > 33", ["temp"])[0]), of_duckdb(before, "temp > 33", ["temp"])[1]) == (6, 2)
    inside = f"{place}/data/half=1"
    assert geoskip.files(inside) == []
    assert len(geoskip.files(f"{place}/data/half=0", "temp > 33")) == 1
    for read in (geoskip.pyarrow_dataset, geoskip.scan_polars):
        with pytest.raises(InvalidSpecificationError, match=r"inside of the Iceberg table .*give the table"):
            read(inside)
    with pytest.raises(GeoskipError, match=r"is a table of Iceberg, whose log says"):
        geoskip.build(inside, MinMax("temp"))
    spark.range(10).selectExpr("id AS temp", "0L AS half", "'x' AS name").write.parquet(str(tmp_path / "half=0"))
    name = table.partition(".")[2]
    spark.sql(f"CALL ice.system.add_files(table => '{name}', source_table => '`parquet`.`{tmp_path}`')").collect()
    with pytest.raises(InvalidSpecificationError, match=r"files outside of its folder, such as .*ask through Spark"):
        geoskip.files(place)


def test_a_table_with_lists_and_maps(spark: Any, table: str) -> None:
    kinds = "temp INT, l ARRAY<STRUCT<q: INT>>, m MAP<STRING, STRUCT<r: INT>>"
    spark.sql(f"CREATE TABLE {table} ({kinds}) USING iceberg")
    for number in range(3):
        nested = f"array(named_struct('q', {number})), map('k', named_struct('r', {number}))"
        spark.sql(f"INSERT INTO {table} SELECT {number}, {nested}")
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    check(spark, table, "temp > 1", "col('temp') > 1", 1)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN l.element.q TO s")
    check(spark, table, "temp > 1", "col('temp') > 1", 1, readers=["polars"])
    refused(spark, table, "col('temp') > 1", "in element in l", ["pyarrow", "duckdb"])
    frame = geoskip.scan_polars(place_of(spark, table))
    for column in ("l", "m"):
        with pytest.raises(Exception, match="reads NULL as an empty list or map in the column"):
            frame.select(column).collect()
