"""Tables of Apache Iceberg: queries on against off, and which files they read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import GeoskipError
from tests.conftest import rows_of
from tests.support.delta_tables import check_left_alone, lie, streamed
from tests.support.iceberg_tables import (
    MODES,
    ODD,
    Kept,
    delete_by_name,
    iceberg,
    kept_files,
    make,
    reasons,
    version,
)


@pytest.fixture
def kept(spark: Any) -> Kept:
    return partial(kept_files, spark)


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
    assert "no layout is recorded: CALL system.rewrite_data_files" in str(dataset.layout("temp"))
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
