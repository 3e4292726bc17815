"""Copy-on-write tables of Apache Hudi: queries on against off, and which files they read.

They run where a bundle of Hudi fits, on PySpark 3.5: ``.venv-3.5.9/bin/python -m pytest tests/tables/test_hudi.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import InvalidSpecificationError
from tests.conftest import CONFIG, kept_of_all, rows_of, same_as_off

HUDI = {"3.5": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2"}
SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
WRITE = {
    "hoodie.table.name": "temps",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "version",
    "hoodie.parquet.small.file.limit": "0",  # what is added gets files of its own
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.metadata.enable": "false",
    "hoodie.write.markers.type": "direct",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    **{f"hoodie.{action}.shuffle.parallelism": "1" for action in ("bulkinsert", "insert", "upsert", "delete")},
}
TEMPS, ODD = MinMax("temp"), ValueList("temp % 7")
"""Hudi's own skipping knows columns alone, and only where its metadata table has their statistics."""
LATE = "temp % 7 = 6 AND temp > 33"
"""Of the four files that ``table`` writes the last one matches: 34."""


def hudi_package() -> str | None:
    """The Maven coordinates of Hudi for the installed PySpark, None where there is no bundle."""
    import pyspark

    return next((package for line, package in HUDI.items() if pyspark.__version__.startswith(line)), None)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with tables of Hudi, geoskip enabled."""
    package = hudi_package()
    if package is None:
        pytest.skip("no bundle of Hudi for this Spark is known to the tests")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    config = {**CONFIG, **SETTINGS, **warehouse, "spark.jars.packages": package}
    found = geoskip.session("geoskip-hudi", sedona=False, config=config)
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()


def rows(spark: Any, first: int, end: int, files: int = 1) -> Any:
    columns = ("id", "id AS temp", "1 AS version", "id % 2 AS half", "concat('n', id) AS name")
    return spark.range(first, end).selectExpr(*columns).repartitionByRange(files, "id")


def write(frame: Any, place: Path, operation: str, **options: str) -> str:
    """Write rows, and return the instant of the commit."""
    given = {**WRITE, "hoodie.datasource.write.operation": operation, **options}
    frame.write.format("hudi").options(**given).mode("append").save(str(place))
    spark = frame.sparkSession
    return str(spark.read.format("hudi").load(str(place)).selectExpr("max(_hoodie_commit_time)").first()[0])


def table(spark: Any, place: Path, **options: str) -> str:
    """A new table of four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, each cut by partitions."""
    return write(rows(spark, 0, 40, 4), place, "bulk_insert", **options)


Kept = Callable[..., tuple[int, int]]


@pytest.fixture
def kept(spark: Any, tmp_path: Path) -> Kept:
    """Files that a query of a path reads, and all, its rows the same on and off."""

    def read(where: str, place: Path = tmp_path, **options: str) -> tuple[int, int]:
        frame = lambda: spark.read.format("hudi").options(**options).load(str(place)).where(where)  # noqa: E731
        return kept_of_all(frame)

    return read


def reasons(frame: Any) -> str:
    return "; ".join(reason for scan in geoskip.explain(frame).scans for reason in scan.reasons)


@pytest.mark.parametrize("partition", ["", "half"])
def test_inserts_upserts_deletes_and_time_travel(spark: Any, tmp_path: Path, kept: Kept, partition: str) -> None:
    of_partitions = {"hoodie.datasource.write.partitionpath.field": partition} if partition else {}
    cut = 2 if partition else 1
    first = table(spark, tmp_path, **of_partitions)
    assert kept(LATE) == (4 * cut, 4 * cut)
    dataset = geoskip.dataset(spark, tmp_path)
    built = dataset.create_index(TEMPS, ODD)
    assert (built.files, built.rows, built.excluded) == (4 * cut, 40, {})
    assert kept(LATE) == (1, 4 * cut)
    assert kept(LATE, **{"hoodie.datasource.query.type": "read_optimized"}) == (1, 4 * cut)
    assert kept("temp % 7 = 9") == (0, 4 * cut)
    assert kept(f"{LATE} AND half = 0")[0] == 1
    assert kept(f"{LATE} AND half = 1")[0] == (0 if partition else 1)

    write(rows(spark, 40, 50), tmp_path, "insert", **of_partitions)
    assert kept(LATE)[0] == 1 + cut  # new files are read
    assert dataset.refresh_index().read == cut
    assert kept("temp % 7 = 6 AND temp > 45")[0] == cut
    assert kept("temp > 49")[0] == 0

    moved = rows(spark, 39, 40).selectExpr("id", "205L AS temp", "2 AS version", "half", "name")
    second = write(moved, tmp_path, "upsert", **of_partitions)
    assert kept("temp > 200")[0] == 1
    assert dataset.refresh_index().read == 1
    assert kept("temp % 7 = 2 AND temp > 200")[0] == 1
    assert kept("temp > 205")[0] == 0

    write(rows(spark, 34, 35), tmp_path, "delete", **of_partitions)
    assert dataset.refresh_index().read == 1
    assert kept(f"{LATE} AND temp < 40")[0] == 0
    assert dataset.verify().ok
    # the summaries of files of earlier instants stay as long as the cleaner leaves the files
    assert kept(LATE, **{"as.of.instant": first}) == (1, 4 * cut)
    assert kept("temp > 200", **{"as.of.instant": first}) == (0, 4 * cut)
    assert kept("temp > 200", **{"as.of.instant": second})[0] == 1
    assert second > first
    with pytest.raises(InvalidSpecificationError, match="index the table itself"):
        geoskip.dataset(spark, tmp_path, **{"as.of.instant": first})


def test_clustering_and_the_tables_own_skipping(spark: Any, tmp_path: Path, kept: Kept) -> None:
    """Hudi's metadata table lists the files, and its statistics of columns skip some of them first."""
    indexed = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
    first = table(spark, tmp_path, **indexed)
    dataset = geoskip.dataset(spark, tmp_path)
    dataset.create_index(TEMPS, ODD)
    assert kept(LATE) == (1, 4)
    assert kept(LATE, **indexed, **{"hoodie.enable.data.skipping": "true"})[0] == 1
    clustering = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
    write(rows(spark, 40, 50), tmp_path, "insert", **indexed, **clustering)
    assert kept(LATE)[0] == kept("true")[1] == 1
    assert dataset.refresh_index().read == 1
    assert kept("temp % 7 = 6 AND temp > 48") == (1, 1)
    assert kept("temp > 49") == (0, 1)
    assert kept(LATE, **{"as.of.instant": first}) == (1, 4)
    assert dataset.verify().ok


def test_a_table_of_the_catalogue_and_its_updates(spark: Any, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE temps (id BIGINT, temp BIGINT, version INT, half BIGINT, name STRING) USING hudi "
        f"TBLPROPERTIES (primaryKey = 'id', preCombineField = 'version') LOCATION '{tmp_path}'"
    )
    try:
        for first in range(0, 40, 10):
            write(rows(spark, first, first + 10), tmp_path, "insert")
        spark.sql("REFRESH TABLE temps")
        dataset = geoskip.dataset(spark, table="temps")
        assert dataset.create_index(TEMPS, ODD).files == 4
        query = f"SELECT * FROM temps WHERE {LATE}"
        assert same_as_off(lambda: spark.sql(query)).files_kept == 1
        spark.sql("UPDATE temps SET temp = 300 WHERE temp = 35")
        spark.sql("DELETE FROM temps WHERE temp % 7 = 5 AND temp < 10")
        spark.sql(
            "MERGE INTO temps AS t "
            "USING (SELECT 7L AS id, 77L AS temp, 3 AS version, 1L AS half, 'merged' AS name) AS s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        expected = sorted({*range(40)} - {35, 5, 7} | {300, 77})
        assert [row.temp for row in spark.sql("SELECT temp FROM temps ORDER BY temp").collect()] == expected
        assert dataset.refresh_index().read > 0
        assert kept_of_all(lambda: spark.sql("SELECT * FROM temps WHERE temp % 7 = 6 AND temp > 290")) == (1, 4)
        with pytest.raises(InvalidSpecificationError, match="run_clustering"):
            dataset.rewrite(geoskip.Sort("temp"))
    finally:
        spark.sql("DROP TABLE temps")


@pytest.mark.parametrize("encoded", ["false", "true"])
def test_partition_values_that_look_encoded(spark: Any, tmp_path: Path, kept: Kept, encoded: str) -> None:
    """Hudi names folders by the values as they are, or percent-encoded once, as it is told to."""
    texts = ["a b", "50%", "a%20b", "x+y"]
    by_text = {
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.partitionpath.urlencode": encoded,
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    for number, text in enumerate(texts):
        write(
            rows(spark, 10 * number, 10 * number + 10).selectExpr("*", f"'{text}' AS part"),
            tmp_path,
            "insert",
            **by_text,
        )
    dataset = geoskip.dataset(spark, tmp_path)
    built = dataset.create_index(TEMPS, ODD)
    assert (built.files, built.rows, built.excluded) == (4, 40, {})
    found = spark.read.format("hudi").load(str(tmp_path))
    assert found.count() == 40
    for number, text in enumerate(texts):
        low = 10 * number
        assert kept(f"temp % 7 = {(low + 6) % 7} AND temp >= {low} AND temp < {low + 10}")[0] == 1, text
        alone, _ = kept(f"part = '{text}' AND temp % 7 = {(low + 6) % 7}")
        assert alone == 1, text
        # a folder named a%20b is one that Hudi lists under another name where it prunes partitions: it is read
        skipped = encoded == "true" or text != "a%20b"
        assert kept(f"part = '{text}' AND temp >= {low + 10}")[0] == (0 if skipped else 1), text
        assert kept(f"part = '{text}' AND temp < {low}")[0] == (0 if skipped else 1), text
    late = rows(spark, 40, 41).selectExpr("*", "'a b' AS part")
    write(late, tmp_path, "insert", **by_text)
    assert dataset.refresh_index().read == 1
    assert kept("temp > 39")[0] == 1
    assert dataset.verify().ok


def test_writes_between_planning_and_execution(spark: Any, tmp_path: Path, kept: Kept) -> None:
    """A query reads the instant that it was planned at, as with geoskip off."""
    table(spark, tmp_path)
    geoskip.dataset(spark, tmp_path).create_index(TEMPS, ODD)

    def planned() -> Any:
        frame = spark.read.format("hudi").load(str(tmp_path)).where("temp % 7 = 6 AND temp >= 30")
        frame._jdf.queryExecution().executedPlan()
        return frame

    on = planned()
    with geoskip.disabled(spark):
        off = planned()
    moved = rows(spark, 34, 35).selectExpr("id", "209L AS temp", "2 AS version", "half", "name")
    write(moved, tmp_path, "upsert")  # the file that they read is replaced
    write(rows(spark, 40, 50), tmp_path, "insert")
    assert rows_of(on) == rows_of(off)
    assert [row.temp for row in on.collect()] == [34]
    assert geoskip.report(on).files_kept == 1
    assert kept("temp % 7 = 6 AND temp >= 30")[0] == 2  # the two new files, of which geoskip knows nothing


def test_what_is_left_alone_and_why(spark: Any, tmp_path: Path) -> None:
    def read(place: Path, **options: str) -> Any:
        return spark.read.format("hudi").options(**options).load(str(place)).where(LATE)

    merged = tmp_path / "merged"
    table(spark, merged, **{"hoodie.datasource.write.table.type": "MERGE_ON_READ"})
    with pytest.raises(InvalidSpecificationError, match="merge-on-read table of Hudi, whose logs change the rows"):
        geoskip.dataset(spark, merged)
    assert "merge-on-read" in reasons(read(merged))

    place = tmp_path / "copied"
    first = table(spark, place)
    geoskip.dataset(spark, place).create_index(TEMPS, ODD)
    write(rows(spark, 40, 50), place, "insert")
    assert same_as_off(lambda: read(place)).files_kept == 2
    by_id = {"hoodie.schema.on.read.enable": "true"}
    assert same_as_off(lambda: read(place, **by_id)).files_kept == 5
    assert "finds columns by ids" in reasons(read(place, **by_id))
    since = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": first}
    on = rows_of(read(place, **since))
    with geoskip.disabled(spark):
        assert rows_of(read(place, **since)) == on
    assert on
    assert "of an incremental query" in reasons(read(place, **since))
    with pytest.raises(InvalidSpecificationError, match="whose writer is given the record key"):
        geoskip.dataset(spark, place).append(rows(spark, 50, 60))

    seconds = {
        "hoodie.datasource.write.partitionpath.field": "temp",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    }
    stamped = tmp_path / "stamped"
    table(spark, stamped, **seconds)
    with pytest.raises(InvalidSpecificationError, match="reads columns of partitions from the files"):
        geoskip.dataset(spark, stamped)
