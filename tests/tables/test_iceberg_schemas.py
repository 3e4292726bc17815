"""Tables of Iceberg whose columns, partitions and formats change: what is read stays right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from tests.support.iceberg_tables import (
    ODD,
    Kept,
    add,
    iceberg,
    kept_files,
    make,
    reasons,
    version,
)


@pytest.fixture
def kept(spark: Any) -> Kept:
    return partial(kept_files, spark)


def test_columns_by_their_ids(spark: Any, table: str, kept: Kept) -> None:
    spark.sql(f"CREATE TABLE {table} (temp BIGINT, s STRUCT<a: INT, b: INT>) USING iceberg")
    for start in range(0, 40, 10):
        rows = spark.range(start, start + 10, 1, 1)
        rows.selectExpr("id AS temp", "named_struct('a', int(id), 'b', 0) AS s").writeTo(table).append()
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"), MinMax("s.a"))
    first = version(spark, table)
    query = f"SELECT * FROM {table} WHERE"
    assert kept(f"{query} s.a % 50 = 38") == (1, 4)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN temp TO heat")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN s.a TO c")
    assert kept(f"{query} heat % 50 = 38 AND s.c % 50 = 38") == (1, 4)
    assert kept(f"{query} s.c % 50 = 38") == (1, 4)
    spark.sql(f"ALTER TABLE {table} ADD COLUMN temp BIGINT")  # another column of an old name
    assert kept(f"{query} temp + 0 IS NULL") == (4, 4)
    assert kept(f"{query} temp IS NULL AND heat % 50 = 38") == (1, 4)
    spark.sql(f"INSERT INTO {table} SELECT 1000, named_struct('c', 70, 'b', 0), 38")
    assert dataset.refresh_index().read == 1
    assert kept(f"{query} temp % 50 = 38") == (5, 5)
    assert kept(f"{query} heat % 5000 = 1000") == (1, 5)
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 50 = 38") == (1, 4)  # the one of then
    dataset.create_index(MinMax("temp"))  # in place of the index of this name
    assert kept(f"{query} temp % 50 = 38") == (1, 5)
    assert kept(f"{query} heat % 50 = 38") == (5, 5)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN temp")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN temp BIGINT")
    assert kept(f"{query} temp % 50 = 0") == (5, 5)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN s.c TYPE BIGINT")  # other values to compare: not used
    assert kept(f"{query} s.c % 50 = 38") == (5, 5)
    assert "the query reads bigint" in reasons(spark, f"{query} s.c % 50 = 38")


def test_fields_that_change_places_in_a_table_that_forgets_its_schemas(spark: Any, table: str, kept: Kept) -> None:
    spark.sql(f"CREATE TABLE {table} (n BIGINT, s STRUCT<a: BIGINT, b: BIGINT>) USING iceberg")
    for start in range(0, 40, 10):
        rows = spark.range(start, start + 10, 1, 1)
        rows.selectExpr("id AS n", "named_struct('a', id, 'b', 5L) AS s").writeTo(table).append()
    geoskip.dataset(spark, table=table).create_index(MinMax("s.a"))
    assert kept(f"SELECT * FROM {table} WHERE s.a % 50 = 38") == (1, 4)
    for old, new in (("s.a", "c"), ("s.b", "a"), ("s.c", "b")):
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    spark.sql(f"INSERT INTO {table} SELECT 99, named_struct('a', 6, 'b', 7)")
    name, now = table.partition(".")[2], "TIMESTAMP '2999-01-01 00:00:00'"
    spark.sql(
        f"CALL ice.system.expire_snapshots(table => '{name}', older_than => {now}, clean_expired_metadata => true)"
    ).collect()
    spark.sql(f"REFRESH TABLE {table}")
    assert iceberg(spark, table).schemas().size() == 1
    assert kept(f"SELECT * FROM {table} WHERE s.a % 50 = 5") == (5, 5)  # an index over s.a of then would skip four
    assert kept(f"SELECT * FROM {table} WHERE s.b % 50 = 38") == (5, 5)


def test_fields_within_arrays_are_used_as_long_as_their_own_names_last(spark: Any, table: str, kept: Kept) -> None:
    element = "STRUCT<x: BIGINT, y: BIGINT>"
    spark.sql(f"CREATE TABLE {table} (n BIGINT, a ARRAY<{element}>, s STRUCT<b: ARRAY<{element}>>) USING iceberg")
    for start in range(0, 40, 10):
        both = "array(named_struct('x', id, 'y', -id))"
        rows = spark.range(start, start + 10, 1, 1).selectExpr(
            "id AS n", f"{both} AS a", f"named_struct('b', {both}) AS s"
        )
        rows.writeTo(table).append()
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(ValueList("a[0].y"), ValueList("s.b[0].y"))
    query = f"SELECT * FROM {table} WHERE"
    assert [kept(f"{query} {array}[0].y = -33") for array in ("a", "s.b")] == [(1, 4), (1, 4)]
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN n TO number")
    assert [kept(f"{query} {array}[0].y = -33") for array in ("a", "s.b")] == [(1, 4), (1, 4)]
    assert dataset.refresh_index().read == 0
    for old, new in (("x", "z"), ("y", "x"), ("z", "y")):
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN a.element.{old} TO {new}")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN s.b TO c")
    assert kept(f"{query} a[0].y = 33") == (4, 4)
    assert kept(f"{query} a[0].y = -33") == (4, 4)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN a.element.x FIRST")  # the type has the same text as before
    assert kept(f"{query} a[0].y = 33") == (4, 4)
    assert kept(f"{query} s.c[0].y = -33") == (1, 4)


def test_files_without_ids_are_read_by_names_that_commands_change(
    spark: Any, table: str, kept: Kept, tmp_path: Path
) -> None:
    values = "id AS temp", "named_struct('a', id, 'b', 0L) AS s"
    spark.range(40).selectExpr(*values).repartitionByRange(4, "temp").write.parquet(str(tmp_path / "plain"))
    spark.sql(f"CREATE TABLE {table} (temp BIGINT, s STRUCT<a: BIGINT, b: BIGINT>) USING iceberg")
    name = table.partition(".")[2]
    spark.sql(
        f"CALL ice.system.add_files(table => '{name}', source_table => '`parquet`.`{tmp_path / 'plain'}`')"
    ).collect()
    geoskip.dataset(spark, table=table).create_index(ODD, ValueList("s.a % 7"))
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9 OR s.a % 7 = 9") == (0, 4)
    for column, renamed, now in (("temp", "heat", "heat"), ("s.a", "c", "s.c")):
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN {column} TO {renamed}")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN {column} BIGINT")  # what the files have is now that of the new one
        spark.sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        assert kept(f"SELECT * FROM {table} WHERE {now} % 7 IS NULL") == (4, 4)
        assert spark.sql(f"SELECT * FROM {table} WHERE {now} % 7 IS NULL").count() == 40


def test_partitions_that_evolve(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table, by="half")
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"), MinMax("half"))
    assert kept(f"SELECT * FROM {table} WHERE half = 1 AND temp % 50 = 15") == (1, 8)
    assert kept(f"SELECT * FROM {table} WHERE half = 0 AND temp % 50 = 15")[0] == 1
    # Iceberg takes what chooses partitions out of the plan; it still counts together with the rest
    together = f"SELECT * FROM {table} WHERE half = 0 AND half + temp % 50 = 38"
    assert kept(together) == (1, 8)
    assert "half = 0" in geoskip.explain(spark.sql(together)).scans[0].predicate
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(2, temp)")
    add(spark, table, 40, 50)
    files = dataset.refresh_index().files
    assert kept(f"SELECT * FROM {table} WHERE half = 1 AND temp % 100 IN (15, 45)")[0] == 2
    spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD half")
    add(spark, table, 50, 60)
    assert dataset.refresh_index().files > files
    assert kept(f"SELECT * FROM {table} WHERE half = 1 AND temp % 100 IN (15, 45, 55)")[0] == 4
    assert kept(f"SELECT * FROM {table} WHERE half = 1 OR temp % 100 = 52")[0] < dataset.refresh_index().files


def test_a_column_that_old_files_lack_reads_its_default(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table, **{"format-version": "3"})
    iceberg(spark, table).updateSchema().addColumn(
        "level",
        spark._jvm.org.apache.iceberg.types.Types.IntegerType.get(),
        None,
        spark._jvm.org.apache.iceberg.expressions.Expressions.lit(5),
    ).commit()
    spark.sql(f"REFRESH TABLE {table}")
    spark.sql(f"INSERT INTO {table} SELECT 40, 0, 'x', 7")
    geoskip.dataset(spark, table=table).create_index(MinMax("level"))
    assert kept(f"SELECT * FROM {table} WHERE level % 10 = 7") == (1, 5)
    assert kept(f"SELECT * FROM {table} WHERE level % 10 = 5") == (4, 5)
    assert kept(f"SELECT * FROM {table} WHERE level IS NULL")[0] == 0


def test_names_formats_and_shapes(spark: Any, table: str, kept: Kept) -> None:
    """Files whose names look encoded, of all formats; geometries; columns with defaults."""
    spark.sql(
        f"CREATE TABLE {table} (id INT, p STRING, lng DOUBLE, lat DOUBLE) USING iceberg PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version' = '2')"
    )
    for number, form in enumerate(("parquet", "orc", "avro")):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.format.default' = '{form}')")
        spark.sql(f"INSERT INTO {table} SELECT {number}, 'a%20b c+{number}', {number * 10}, {number}")
    dataset = geoskip.dataset(spark, table=table)
    built = dataset.create_index(MinMax("id"), GeoBox("lng", "lat"), MinMax("length(p)"))
    assert (built.files, built.rows, built.excluded) == (3, 3, {})
    assert kept(f"SELECT * FROM {table} WHERE id % 10 = 1") == (1, 3)
    assert kept(f"SELECT * FROM {table} WHERE lng > 5 AND lat + 0.0 < 1.5") == (1, 3)
    near = "ST_Intersects(ST_Point(lng, lat), ST_GeomFromText('POLYGON ((19 0, 21 0, 21 3, 19 3, 19 0))'))"
    assert kept(f"SELECT * FROM {table} WHERE {near}") == (1, 3)
    assert kept(f"SELECT * FROM {table} WHERE length(p) = 99") == (0, 3)
