"""Tables of Delta Lake: queries on against off, and which files they read."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.spark.dataset.source import SparkData
from tests.conftest import rows_of, same_as_off
from tests.support.delta_tables import ODD, Kept, check_left_alone, data_files, delta_table, kept_files, lie, streamed

TEMPS = MinMax("temp")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def kept(spark: Any) -> Kept:
    return partial(kept_files, spark)


def test_settings_that_change_between_planning_and_run(spark: Any, place: Path) -> None:
    """Files without a note on their calendar are read as the session is set at the run."""
    place.mkdir()
    for number, year in enumerate((1500, 2020)):
        pq.write_table(pa.table({"d": [datetime.date(year, 3, 3)]}), place / f"{number}.parquet")
    spark.sql(f"CONVERT TO DELTA parquet.`{place}` NO STATISTICS")
    geoskip.dataset(spark, place).create_index(MinMax("d"))
    frames = [spark.read.format("delta").load(str(place)).where("d = date'1500-02-22'") for _ in range(2)]
    assert [geoskip.report(frame).files_kept for frame in frames] == [0, 0]
    assert frames[0].collect() == []
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        assert geoskip.report(frames[0]).files_kept == 0  # as it was run
        assert len(frames[1].collect()) == 1
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_a_path_and_a_table_of_the_catalogue(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place)
    dataset = geoskip.dataset(spark, place)
    built = dataset.create_index(TEMPS, ODD)
    assert (built.files, built.rows, built.excluded) == (4, 40, {})
    assert built.readers["minmax(temp)"] in ("footers", "arrow"), built.readers
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33") == (1, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9") == (0, 4)
    assert kept(lambda: dataset.to_df().where("temp % 7 = 6 OR temp = 3")) == (4, 4)
    found = geoskip.files(place, "temp % 7 = 6 AND temp > 33")  # without Spark, of what Spark has built
    assert ([file.rows for file in found], found.report.files_total) == ([10], 4)
    columns = ("min_value", "max_value", "index_name")
    summed = geoskip.statistics(place).select(columns).to_pylist()
    ranges = [(low, high) for low, high, name in map(dict.values, summed) if name == "minmax(temp)"]
    assert sorted(ranges) == [("0", "9"), ("10", "19"), ("20", "29"), ("30", "39")]
    spark.sql(f"CREATE TABLE named USING delta LOCATION '{place}'")
    try:
        named = geoskip.dataset(spark, table="named")
        assert named.indexes == dataset.indexes
        assert kept("SELECT count(*) FROM named WHERE temp % 7 = 5 AND temp % 10 = 9") == (4, 4)
        assert kept("SELECT * FROM named WHERE temp % 7 = 0 AND temp > 35") == (1, 4)
        named.append(spark.range(100, 101, 1, 1).selectExpr("id AS temp", "0L AS half", "'x' AS name"))
        assert kept("SELECT * FROM named WHERE temp % 7 = 2 AND temp >= 40") == (1, 5)
    finally:
        spark.sql("DROP TABLE named")
    assert dataset.verify().ok
    assert [row.files_covered for row in dataset.describe().collect()] == [5, 5]


def test_delta_s_own_skipping_runs_first(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place)
    geoskip.dataset(spark, place).create_index(ValueList("temp % 20"))
    assert kept(f"SELECT * FROM {table} WHERE temp % 20 = 5") == (2, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp > 15 AND temp % 20 = 5") == (1, 4)  # Delta alone leaves three
    assert kept(f"SELECT * FROM {table} WHERE temp > 15 AND temp % 20 > 9 AND temp < 30") == (1, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp > 25 AND temp < 30 AND temp % 20 = 15") == (0, 4)


def test_a_refresh_reads_what_the_log_says_was_added(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place, enableDeletionVectors="true")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(TEMPS, ODD)
    assert dataset.append(spark.range(40, 50, 1, 1).selectExpr("id AS temp", "0L AS half", "'x' AS name")).read == 1
    spark.sql(f"DELETE FROM {table} WHERE temp IN (3, 31)")
    assert any(entry.get("add", {}).get("deletionVector") for entry in data_files(place))
    assert dataset.refresh_index().read == 0  # a deletion vector does not make a file new
    spark.sql(f"UPDATE {table} SET temp = 205 WHERE temp = 38")
    assert dataset.refresh_index("quick").pending == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 2 AND temp > 200") == (1, 6)
    assert dataset.refresh_index().read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 1 AND temp > 200") == (0, 6)
    spark.sql(f"OPTIMIZE {table} ZORDER BY (half)")
    assert dataset.refresh_index().read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 2") == (1, 1)
    assert dataset.verify().ok
    # files of earlier versions keep their summaries as long as the log names them
    assert kept(f"SELECT * FROM {table} VERSION AS OF 0 WHERE temp % 7 = 6 AND temp > 33") == (1, 4)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    assert dataset.refresh_index().read == 0
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33") == (2, 5)


def test_deletion_vectors(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place, enableDeletionVectors="true")
    spark.sql(f"DELETE FROM {table} WHERE temp IN (6, 31)")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(TEMPS, ODD)  # over all rows of the files: an older version has those that are deleted now
    (unfiltered,) = geoskip.explain(spark.table(table)).scans
    assert (unfiltered.predicate, list(unfiltered.reasons)) == ("", ["no filter of the query reaches its files"])
    assert spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp < 10").count() == 0
    assert kept(f"SELECT * FROM {table} VERSION AS OF 0 WHERE temp % 7 = 6 AND temp < 10") == (1, 4)
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp < 20") == (2, 4)
    assert kept(f"SELECT *, _metadata.file_name FROM {table} WHERE temp % 7 = 3 AND temp > 25") == (2, 4)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0")
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp < 10") == (1, 4)
    # what holds for every row of a file is said of its deleted rows too, so that it is never said too often
    assert kept(f"SELECT * FROM {table} WHERE NOT (temp % 7 < 7)") == (0, 4)
    spark.sql(f"DELETE FROM {table} WHERE temp % 7 = 1")
    assert kept(f"SELECT * FROM {table} WHERE NOT (temp % 7 = 1)") == (4, 4)
    assert kept(f"SELECT count(*) FROM (SELECT * FROM {table} LIMIT 3)")[1] == 4


def test_partitions(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place, partition="half")
    geoskip.dataset(spark, place).create_index(TEMPS, ODD)
    assert kept(f"SELECT * FROM {table} WHERE half = 1 AND temp % 7 = 6 AND temp < 20") == (1, 8)
    assert kept(f"SELECT * FROM {table} WHERE (half = 1 AND temp % 7 = 6) OR (half = 0 AND temp % 7 = 9)") == (2, 8)
    spark.range(4).selectExpr("id AS k", "concat('x', id) AS v").createOrReplaceTempView("dimension")
    joined = f"SELECT * FROM {table} JOIN dimension ON half = k WHERE v = 'x1' AND temp % 7 = 6"
    with geoskip.disabled(spark):
        off = rows_of(spark.sql(joined))
    frame = spark.sql(joined)
    assert rows_of(frame) == off
    assert geoskip.report(frame).scans[0].files_kept == 2  # of the partition that the other side has
    with pytest.raises(InvalidSpecificationError, match="partition column"):
        geoskip.dataset(spark, place).create_index(MinMax("half"))


def test_time_travel_with_an_index_of_the_latest_version(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place)
    for n in range(3):
        spark.sql(f"INSERT INTO {table} SELECT id, 0, 'x' FROM range({100 * n + 100}, {100 * n + 110}, 1, 1)")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(ODD)
    for version in range(4):
        counts = kept(f"SELECT * FROM {table} VERSION AS OF {version} WHERE temp % 7 = 1 AND temp % 10 = 1")
        assert counts[1] == 4 + version
        assert kept(f"SELECT * FROM {table} VERSION AS OF {version} WHERE temp % 7 = 8") == (0, 4 + version)
    moment = spark.sql(f"DESCRIBE HISTORY {table}").where("version = 1").first().timestamp
    assert kept(f"SELECT * FROM {table} TIMESTAMP AS OF '{moment}' WHERE temp % 7 = 8") == (0, 5)
    assert kept(lambda: spark.read.option("versionAsOf", 2).format("delta").load(str(place)).where("temp % 7 = 8")) == (
        0,
        6,
    )
    with pytest.raises(GeoskipError, match="one version of a table of Delta"):
        geoskip.dataset(spark, place, format="delta", versionAsOf=1).create_index(ODD)


def test_a_subquery_and_a_view_used_twice(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place)
    geoskip.dataset(spark, place).create_index(TEMPS, ODD)
    query = f"SELECT * FROM range(3) WHERE id < (SELECT max(temp) FROM {table} WHERE temp % 7 = 6 AND temp > 33)"
    assert kept(query) == (1, 4)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW some AS SELECT * FROM {table} WHERE temp % 7 = 6")
    report = same_as_off(
        lambda: spark.sql("SELECT * FROM some WHERE temp < 10 UNION ALL SELECT * FROM some WHERE temp > 33")
    )
    assert [scan.files_kept for scan in report.scans] == [1, 1]
    report = same_as_off(
        lambda: spark.sql(f"SELECT * FROM {table} WHERE temp IN (SELECT temp FROM some WHERE temp > 30)")
    )
    assert min(scan.files_kept for scan in report.scans) <= 1


def test_streams_and_change_data_are_left_alone(
    spark: Any, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = delta_table(spark, place, enableChangeDataFeed="true")
    geoskip.dataset(spark, place).create_index(TEMPS)
    spark.sql(f"UPDATE {table} SET temp = 77 WHERE temp = 8")
    lie(monkeypatch)
    assert rows_of(spark.sql(f"SELECT temp FROM {table} WHERE temp IN (34, 35)")) == []  # a query is narrowed
    changes = f"SELECT * FROM table_changes_by_path('{place}', 0) WHERE temp IN (34, 77)"
    check_left_alone(spark, lambda: rows_of(spark.sql(changes)))
    assert len(rows_of(spark.sql(changes))) == 2
    stream = spark.readStream.format("delta").option("skipChangeCommits", "true").load(str(place))
    runs = iter(range(9))
    check_left_alone(spark, lambda: streamed(stream.where("temp IN (34, 35)"), tmp_path / f"s{next(runs)}"))
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", "0")
    found = feed.load(str(place)).where("temp IN (34, 77)").select("temp", "_change_type")
    check_left_alone(spark, lambda: streamed(found, tmp_path / f"f{next(runs)}"))


def test_scans_that_delta_does_not_pin_are_left_alone(spark: Any, place: Path) -> None:
    table = delta_table(spark, place)
    geoskip.dataset(spark, place).create_index(TEMPS, ODD)
    spark.conf.set("spark.databricks.delta.stats.skipping", "false")
    try:
        report = same_as_off(lambda: spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 9"))
    finally:
        spark.conf.unset("spark.databricks.delta.stats.skipping")
    assert report.files_kept == report.files_total
    assert any("has not pinned the scan" in reason for reason in report.reasons), report.reasons


def test_updates_and_merges_are_the_same(spark: Any, tmp_path: Path) -> None:
    merge = (
        "MERGE INTO {t} AS t USING (SELECT temp, name FROM {t} WHERE temp % 7 = 2) AS s ON t.temp = s.temp "
        "WHEN MATCHED THEN UPDATE SET name = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (temp, half, name) VALUES (0, 0, 'new')"
    )
    changes = (
        "UPDATE {t} SET temp = temp + 1000 WHERE temp % 7 = 6 AND temp > 20",
        "DELETE FROM {t} WHERE temp % 7 = 3 AND temp < 15",
        merge,
        "INSERT INTO {t} SELECT temp + 500, half, name FROM {t} WHERE temp % 7 = 5 AND temp < 10",
    )
    left = []
    for number, vectors in enumerate(["true", "true", "false"]):
        table = delta_table(spark, tmp_path / str(number), enableDeletionVectors=vectors, enableRowTracking="true")
        if number:
            geoskip.dataset(spark, tmp_path / str(number)).create_index(TEMPS, ODD)
        for change in changes:
            spark.sql(change.format(t=table))
        left.append(rows_of(spark.sql(f"SELECT * FROM {table}")))
    assert left[0] == left[1] == left[2]


def test_shallow_clones_generated_columns_and_row_ids(spark: Any, place: Path, tmp_path: Path, kept: Kept) -> None:
    tables = spark._jvm.io.delta.tables.DeltaTable
    tens = (
        tables.columnBuilder(spark._jsparkSession, "tens").dataType("BIGINT").generatedAlwaysAs("temp div 10").build()
    )
    made = (
        tables.create(spark._jsparkSession).location(str(place)).addColumn("temp", "BIGINT").addColumn("name", "STRING")
    )
    names = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 1)
    names[0] = "tens"
    made.addColumn(tens).property("delta.enableRowTracking", "true").partitionedBy(names).execute()
    frame = spark.range(0, 40, 1, 1).selectExpr("id AS temp", "concat('n', id) AS name")
    frame.write.format("delta").mode("append").save(str(place))
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(ODD)
    table = f"delta.`{place}`"
    assert kept(f"SELECT *, _metadata.row_id FROM {table} WHERE temp % 7 = 6 AND temp % 10 = 6 AND temp > 3") == (4, 4)
    assert kept(f"SELECT *, _metadata.row_id FROM {table} WHERE temp % 7 = 9") == (0, 4)
    clone = tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {table}")
    assert geoskip.dataset(spark, clone).create_index(ODD).files == 4
    spark.sql(f"INSERT INTO delta.`{clone}` (temp, name) VALUES (6, 'new')")
    assert kept(f"SELECT * FROM delta.`{clone}` WHERE temp % 7 = 9") == (1, 5)
    assert geoskip.dataset(spark, clone).refresh_index().read == 1
    assert kept(f"SELECT * FROM delta.`{clone}` WHERE temp % 7 = 9") == (0, 5)
    assert dataset.append(frame.where("temp = 8")).read == 1
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 1 AND temp = 8") == (2, 5)


def test_changes_between_planning_and_execution(spark: Any, place: Path) -> None:
    table = delta_table(spark, place, enableDeletionVectors="true")
    geoskip.dataset(spark, place).create_index(TEMPS, ODD)
    frame = spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33")
    assert frame._jdf.queryExecution().executedPlan() is not None
    spark.sql(f"INSERT INTO {table} VALUES (41, 0, 'later')")
    spark.sql(f"DELETE FROM {table} WHERE temp = 34")
    assert [row.temp for row in frame.collect()] == [34]  # of the version that it was planned for
    again = spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33")
    assert [row.temp for row in again.collect()] == [41]


def test_a_build_reads_the_version_that_was_listed(spark: Any, place: Path) -> None:
    table = delta_table(spark, place)
    dataset = geoskip.dataset(spark, place)
    both = MinMax("temp + half")  # over two columns, so that Spark reads it
    dataset.create_index(both)
    data = SparkData(dataset._source)
    listed = data.listing()
    spark.sql(f"OPTIMIZE {table}")
    entries = dataset.store.load(dataset.store.latest()).header.entries
    built = data.build(entries, listed.path.to_pylist())
    assert sorted((row.rows, row.summaries[str(both)]["min"]) for row in built.rows) == [
        (10, 0), (10, 10), (10, 20), (10, 30)
    ]  # fmt: skip


def test_advice_and_audits(spark: Any, place: Path) -> None:
    table = delta_table(spark, place, enableDeletionVectors="true")
    spark.sql(f"DELETE FROM {table} WHERE temp = 34")
    dataset = geoskip.dataset(spark, place)
    advised = str(geoskip.recommend(dataset, [f"SELECT * FROM {table} WHERE temp % 7 = 9"]))
    assert "ValueList('temp" in advised, advised
    dataset.create_index(TEMPS)
    spark.conf.set("spark.geoskip.audit", "1")
    try:
        frame = spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 9")
        frame.collect()
        geoskip.wait_for_audits(spark)
        report = geoskip.report(frame)
    finally:
        spark.conf.unset("spark.geoskip.audit")
    assert report.files_kept < report.files_total
    assert sum(scan.files_audited for scan in report.scans) == report.files_total - report.files_kept
    assert report.lost == ()


def test_vacuum(spark: Any, place: Path, kept: Kept) -> None:
    table = delta_table(spark, place)
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(ODD)
    spark.sql(f"OPTIMIZE {table}")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert dataset.refresh_index().read == 1  # and Delta has left the metadata where they are
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9") == (0, 1)
    dataset.optimize_index()
    dataset.vacuum_index(0)
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9") == (0, 1)
    assert dataset.verify().ok


def test_rewriting_is_delta_s_own(spark: Any, place: Path) -> None:
    delta_table(spark, place)
    dataset = geoskip.dataset(spark, place)
    with pytest.raises(InvalidSpecificationError, match=r"OPTIMIZE .* ZORDER BY"):
        dataset.rewrite(geoskip.Sort("temp"))
    for mode in ("append", "overwrite"):
        with pytest.raises(InvalidSpecificationError, match="is a table of Delta"):
            geoskip.write(spark.range(3), place, mode=mode)
    assert dataset.to_df().count() == 40


def test_a_view_from_before_deletion_vectors_fails_without_geoskip_too(spark: Any, place: Path) -> None:
    table = delta_table(spark, place, enableDeletionVectors="false")
    spark.read.format("delta").load(str(place)).createOrReplaceTempView("before")
    geoskip.dataset(spark, place).create_index(ODD)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {table} WHERE temp = 31")
    said = "useMetadataRowIndex is enabled but rowIndexColumn is not defined"
    with geoskip.disabled(spark), pytest.raises(Exception, match=said):
        spark.sql("SELECT * FROM before WHERE temp % 7 = 6 AND temp > 25").collect()
    with pytest.raises(Exception, match=said):
        spark.sql("SELECT * FROM before WHERE temp % 7 = 6 AND temp > 25").collect()


def test_shapes_of_which_delta_knows_nothing(spark: Any, place: Path, kept: Kept) -> None:
    frame = spark.range(0, 400, 1, 8).selectExpr(
        "id % 20 AS x", "(id DIV 20) AS y", "ST_AsBinary(ST_Point(id % 20, id DIV 20)) AS shape"
    )
    frame.repartitionByRange(8, "y").write.format("delta").save(str(place))
    geoskip.dataset(spark, place).create_index(GeoBox("ST_GeomFromWKB(shape)"))
    polygon = "ST_GeomFromText('POLYGON ((1 1, 3 1, 3 2, 1 2, 1 1))')"
    counts = kept(f"SELECT * FROM delta.`{place}` WHERE ST_Intersects(ST_GeomFromWKB(shape), {polygon})")
    assert counts[0] <= 2
    assert counts[1] == 8
