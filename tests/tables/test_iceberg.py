"""Tables of Apache Iceberg: queries on against off, and which files they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from geoskip.errors import GeoskipError
from tests.conftest import rows_of
from tests.tables.test_delta import check_left_alone, lie, streamed

ODD = ValueList("temp % 7")
"""Values that Iceberg's own skipping knows nothing of: its bounds are those of columns."""
MODES = [("2", "merge-on-read"), ("3", "merge-on-read"), ("2", "copy-on-write")]
"""Position deletes, deletion vectors, rewritten files."""

Kept = Callable[..., Any]


def make(spark: Any, table: str, *, by: str = "", **properties: str) -> str:
    """A table of four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, each cut by partitions."""
    options = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"CREATE TABLE {table} (temp BIGINT, half BIGINT, name STRING) USING iceberg "
        + (f"PARTITIONED BY ({by}) " if by else "")
        + (f"TBLPROPERTIES ({options})" if options else "")
    )
    for start in range(0, 40, 10):
        add(spark, table, start, start + 10)
    return table


def add(spark: Any, table: str, start: int, end: int) -> None:
    values = "id AS temp, id % 2 AS half, concat('n', id) AS name"
    spark.range(start, end, 1, 1).selectExpr(*values.split(", ", 2)).writeTo(table).append()


def scans(frame: Any) -> list[set[str]]:
    """The data files that each executed scan of Iceberg had read, by the tasks that Spark was given."""

    def of(plan: Any) -> Iterator[set[str]]:
        name = plan.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            yield from of(plan.executedPlan())
        elif name.endswith("QueryStageExec"):
            yield from of(plan.plan())
        elif name == "BatchScanExec" and plan.scan().getClass().getSimpleName() == "SparkBatchQueryScan":
            partitions = [part for part in plan.inputRDD().partitions() if hasattr(part, "inputPartitions")]
            inputs = [
                part.inputPartitions().apply(n) for part in partitions for n in range(part.inputPartitions().size())
            ]
            yield {str(task.file().location()) for part in inputs for task in part.taskGroup().tasks().toArray()}
        elif name != "ReusedExchangeExec":
            for children in (plan.subqueries(), plan.children()):
                for number in range(children.size()):
                    yield from of(children.apply(number))

    return list(of(frame._jdf.queryExecution().executedPlan()))


@pytest.fixture
def kept(spark: Any) -> Kept:
    """Files that a query's scans read, and all of the table, its rows the same on and off; of one scan, the pair."""

    def read(query: str | Callable[[], Any], **arguments: Any) -> Any:
        ask = (lambda: spark.sql(query, **arguments)) if isinstance(query, str) else query
        with geoskip.disabled(spark):
            off = rows_of(ask())
        frame = ask()
        assert rows_of(frame) == off
        report = geoskip.report(frame)
        executed = scans(frame)
        assert sorted(scan.files_kept for scan in report.scans) == sorted(map(len, executed))
        assert {path.rpartition("/")[2] for scan in report.scans for path in scan.kept_files()} == {
            path.rpartition("/")[2] for files in executed for path in files
        }
        pairs = [(scan.files_kept, scan.files_total) for scan in report.scans]
        return pairs[0] if len(pairs) == 1 else pairs

    return read


def reasons(spark: Any, query: str) -> str:
    report = geoskip.explain(spark.sql(query))
    return "; ".join([*report.notes, *(reason for scan in report.scans for reason in scan.reasons)])


def version(spark: Any, table: str) -> int:
    return int(spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1").head()[0])


def iceberg(spark: Any, table: str) -> Any:
    """The table as Iceberg's own interface has it."""
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


@pytest.mark.parametrize(("form", "mode"), MODES)
def test_columns_of_metadata(spark: Any, table: str, kept: Kept, form: str, mode: str) -> None:
    make(spark, table, by="half", **{"format-version": form, "write.delete.mode": mode})
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"), ODD)
    spark.sql(f"DELETE FROM {table} WHERE temp % 10 = 5 AND temp > 20")
    columns, matching = "_file, _pos, _spec_id, _partition.half, _deleted, temp", "temp % 50 = 38"
    (place,) = {row[0] for row in spark.sql(f"SELECT _file FROM {table} WHERE temp = 38").collect()}
    for more in ("true", "_partition.half = 0 AND _pos < 3", f"_file = '{place}'", "_pos = 1000", "NOT _deleted"):
        assert kept(f"SELECT {columns} FROM {table} WHERE {matching} AND {more}")[0] == 2


def test_a_table_and_its_path(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table)
    dataset = geoskip.dataset(spark, table=table)
    built = dataset.create_index(MinMax("temp"), ODD)
    assert (built.files, built.rows, built.excluded) == (4, 40, {})
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33") == (1, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9") == (0, 4)
    assert kept(f"SELECT count(*) FROM {table} WHERE temp % 50 = 38") == (1, 4)
    assert kept(f"SELECT name FROM {table} a WHERE temp IN (SELECT max(temp) FROM {table} WHERE temp % 50 = 11)")
    place = str(iceberg(spark, table).location())
    by_path = geoskip.dataset(spark, place)
    assert by_path.indexes == dataset.indexes
    assert kept(lambda: by_path.to_df().where("temp % 50 = 38")) == (1, 4)
    with pytest.raises(GeoskipError, match=r"rewrite_data_files\(.*zorder"):
        dataset.rewrite(geoskip.Sort("temp"))
    with pytest.raises(GeoskipError, match="is a table of Iceberg"):
        geoskip.write(spark.range(3), place, layout=geoskip.Sort("id"))
    assert dataset.append(spark.sql("SELECT 40L AS temp, 0L AS half, 'x' AS name")).read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 = 40") == (1, 5)
    assert dataset.verify().ok
    assert [row.files_covered for row in dataset.describe().collect()] == [5, 5]
    report = geoskip.explain(spark.sql(f"SELECT * FROM {table} WHERE temp % 50 = 38"))
    assert len(report.scans[0].skipped_files()) == 4


@pytest.mark.parametrize(("form", "mode"), MODES)
def test_deletes_updates_and_versions(spark: Any, table: str, kept: Kept, form: str, mode: str) -> None:
    modes = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    make(spark, table, **{"format-version": form, **modes})
    first = version(spark, table)
    spark.sql(f"DELETE FROM {table} WHERE temp % 40 = 15")
    dataset = geoskip.dataset(spark, table=table)
    # over all rows of the files: an older version has those that are deleted now
    dataset.create_index(MinMax("temp"), ODD, ValueList("temp % 100"))
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 100 = 15") == (1, 4)
    copied = mode == "copy-on-write"
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 = 15") == (1, 4)
    # a file that only an older version has was not listed, so it is read; one that both have is skipped
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 50 = 15") == (1, 4)
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 50 = 35") == ((2, 4) if copied else (1, 4))
    spark.sql(f"UPDATE {table} SET temp = 1000 WHERE temp % 100 = 25")
    assert kept(f"SELECT * FROM {table} WHERE temp % 10000 = 1000")[0] == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 100 = 25")[0] <= 2
    built = dataset.refresh_index()
    assert built.read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 100 = 25")[0] == (0 if copied else 1)
    spark.sql(
        f"MERGE INTO {table} a USING (SELECT id + 38 AS id FROM range(3)) b ON a.temp = b.id AND a.temp % 50 >= 30 "
        "WHEN MATCHED THEN UPDATE SET name = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (temp, half, name) VALUES (b.id, 0, 'new')"
    )
    dataset.refresh_index()
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 BETWEEN 38 AND 41")[0] <= 3
    assert dataset.verify().ok
    # files that were replaced keep their metadata as long as a version has them
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 50 = 35") == ((2, 4) if copied else (1, 4))
    spark.sql(f"DELETE FROM {table}")
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 = 38")[0] == 0
    assert kept(f"SELECT * FROM {table} VERSION AS OF {first} WHERE temp % 50 = 5") == ((2, 4) if copied else (1, 4))


MERGE = (
    "MERGE INTO {0} a USING (SELECT temp + 5 AS id FROM {0} WHERE temp % 50 BETWEEN 31 AND 37) b ON a.temp = b.id "
    "WHEN MATCHED AND temp % 50 = 38 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged' "
    "WHEN NOT MATCHED THEN INSERT (temp, half, name) VALUES (b.id, 0, 'new')"
)


@pytest.mark.parametrize(("form", "mode"), MODES)
def test_commands_change_the_same_rows(spark: Any, table: str, form: str, mode: str) -> None:
    modes = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    twin = f"{table}twin"
    try:
        for name in (table, twin):
            make(spark, name, **{"format-version": form, **modes})
            geoskip.dataset(spark, table=name).create_index(MinMax("temp"), ODD)
        for command in (
            "DELETE FROM {0} WHERE temp % 50 = 15",
            "UPDATE {0} SET name = 'changed' WHERE temp % 50 = 25 OR temp % 7 = 9",
            MERGE,
            "DELETE FROM {0} WHERE temp IN (SELECT temp + 1 FROM {0} WHERE temp % 50 = 3)",
            "INSERT INTO {0} SELECT temp + 100, half, name FROM {0} WHERE temp % 50 = 11",
            "INSERT OVERWRITE {0} SELECT * FROM {0} WHERE temp % 50 BETWEEN 8 AND 22",
        ):
            spark.sql(command.format(table))
            with geoskip.disabled(spark):
                spark.sql(command.format(twin))
                assert rows_of(spark.table(table)) == rows_of(spark.table(twin)), command
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {twin}")


def delete_by_name(spark: Any, table: str, name: str) -> None:
    """Delete the rows of a name by an equality delete, which Spark itself does not write."""
    jvm, own = spark._jvm, iceberg(spark, table)
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = own.schema().findField("name").fieldId()
    names = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 1)
    names[0] = "name"
    schema = own.schema().select(names)
    factory = jvm.org.apache.iceberg.data.GenericAppenderFactory(own.schema(), own.spec(), ids, schema, None)
    place = own.io().newOutputFile(f"{own.location()}/data/deletes.parquet")
    output = jvm.org.apache.iceberg.encryption.EncryptedFiles.encryptedOutput(
        place, jvm.java.nio.ByteBuffer.allocate(0)
    )
    writer = factory.newEqDeleteWriter(output, jvm.org.apache.iceberg.FileFormat.PARQUET, None)
    row = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    row.setField("name", name)
    writer.write(row)
    writer.close()
    own.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"REFRESH TABLE {table}")


def test_equality_deletes(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table, **{"format-version": "2"})
    before = version(spark, table)
    dataset = geoskip.dataset(spark, table=table)
    delete_by_name(spark, table, "n38")
    dataset.create_index(MinMax("temp"), ValueList("upper(name)"))
    assert kept(f"SELECT * FROM {table} VERSION AS OF {before} WHERE upper(name) = 'N38'") == (1, 4)
    assert spark.sql(f"SELECT * FROM {table} WHERE temp = 38").count() == 0
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 BETWEEN 37 AND 38") == (1, 4)
    assert kept(f"SELECT * FROM {table} VERSION AS OF {before} WHERE temp % 50 BETWEEN 38 AND 38") == (1, 4)


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


def test_branches_tags_and_ranges_of_versions(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table)
    first = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at LIMIT 1").head()[0]
    last = version(spark, table)
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"))
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH b")
    spark.sql(f"ALTER TABLE {table} CREATE TAG t")
    spark.sql(f"INSERT INTO {table}.branch_b SELECT 500, 0, 'x'")
    spark.sql(f"DELETE FROM {table} WHERE temp < 10")
    assert kept(f"SELECT * FROM {table} VERSION AS OF 'b' WHERE temp % 1000 = 15") == (2, 5)
    assert kept(f"SELECT * FROM {table}.branch_b WHERE temp % 1000 = 500") == (1, 5)
    assert kept(f"SELECT * FROM {table} VERSION AS OF 't' WHERE temp % 1000 = 5") == (1, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp % 1000 = 5") == (0, 3)
    stamp = spark.sql(f"SELECT committed_at FROM {table}.snapshots WHERE snapshot_id = {last}").head()[0]
    assert kept(f"SELECT * FROM {table} TIMESTAMP AS OF '{stamp}' WHERE temp % 1000 = 5") == (1, 4)

    def between() -> Any:
        reader = spark.read.format("iceberg").option("start-snapshot-id", first).option("end-snapshot-id", last)
        return reader.load(table).where("temp % 1000 = 15")

    assert kept(between) == (1, 3)
    spark.sql(f"CALL ice.system.rollback_to_snapshot('{table.partition('.')[2]}', {last})")
    assert kept(f"SELECT * FROM {table} WHERE temp % 1000 = 5") == (1, 4)
    with pytest.raises(GeoskipError, match="index the table itself"):
        geoskip.dataset(spark, table=f"{table}.branch_b").create_index(MinMax("temp"))


def test_what_is_left_alone(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table)
    assert "it has no metadata in" in reasons(spark, f"SELECT * FROM {table} WHERE temp % 50 = 38")
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    assert "no filter of the query reaches its files" in reasons(spark, f"SELECT * FROM {table}")
    assert "a metadata table" in reasons(spark, f"SELECT * FROM {table}.snapshots WHERE snapshot_id % 2 = 3")
    with geoskip.disabled(spark):
        assert "switched off" in reasons(spark, f"SELECT * FROM {table} WHERE temp % 50 = 38")
    assert "LIMIT" in reasons(spark, f"SELECT * FROM (SELECT * FROM {table} LIMIT 30) WHERE temp % 50 = 38")


def test_streams_and_changelogs_are_left_alone(
    spark: Any, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(spark, table)
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    lie(monkeypatch)
    assert rows_of(spark.sql(f"SELECT temp FROM {table} WHERE temp % 50 IN (34, 35)")) == []  # a query is narrowed
    runs = iter(range(9))
    stream = spark.readStream.format("iceberg").load(table).where("temp % 50 IN (34, 35)")
    check_left_alone(spark, lambda: streamed(stream, tmp_path / f"{next(runs)}"))
    spark.sql(
        f"CALL ice.system.create_changelog_view(table => '{table.partition('.')[2]}', changelog_view => 'changes')"
    )
    check_left_alone(spark, lambda: rows_of(spark.sql("SELECT * FROM changes WHERE temp % 50 IN (34, 35)")))
    spark.catalog.dropTempView("changes")


def test_appends_and_rewrites_after_planning(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table)
    geoskip.dataset(spark, table=table).create_index(MinMax("temp"))
    frame = spark.sql(f"SELECT * FROM {table} WHERE temp % 50 = 38")
    frame._jdf.queryExecution().executedPlan()
    spark.sql(f"INSERT INTO {table} SELECT 88, 0, 'late'")
    assert [row.temp for row in frame.collect()] == [38]  # as planned, like with geoskip off
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 = 38") == (2, 5)
    spark.sql(f"CALL ice.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    assert kept(f"SELECT * FROM {table} WHERE temp % 50 = 38") == (1, 1)
    assert geoskip.dataset(spark, table=table).refresh_index().read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 500 = 300") == (0, 1)


def test_joins_by_partition_and_filters_at_run_time(spark: Any, table: str, kept: Kept) -> None:
    make(spark, table, by="half")
    other = f"{table}b"
    make(spark, other, by="half")
    settings = {
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
    }
    try:
        for name in (table, other):
            geoskip.dataset(spark, table=name).create_index(MinMax("temp"))
        for name, value in settings.items():
            spark.conf.set(name, value)
        join = f"SELECT a.temp, b.temp FROM {table} a JOIN {other} b ON a.half = b.half"
        frame = spark.sql(f"{join} WHERE a.temp % 50 = 15 AND b.temp % 50 IN (15, 16, 25)")
        assert kept(f"{join} WHERE a.temp % 50 = 15 AND b.temp % 50 IN (15, 16, 25)") == [(2, 8), (4, 8)]
        assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString().replace("Exchanged", "")
        empty = spark.sql(
            f"{join} WHERE a.temp % 50 = 99 AND b.temp % 50 IN (15, 25)"
        )  # adaptive execution drops it all
        assert (empty.count(), geoskip.explain(empty).scans[0].files_kept) == (0, 0)
        for name in settings:
            spark.conf.unset(name)
        small = "(SELECT DISTINCT id % 2 AS half FROM range(1) WHERE id % 3 = 0)"
        pruned = f"SELECT a.* FROM {table} a JOIN {small} s ON a.half = s.half WHERE a.temp % 50 IN (15, 16, 26)"
        assert kept(pruned) == (2, 8)  # by run time half = 0
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.sql(f"DROP TABLE IF EXISTS {other}")


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
