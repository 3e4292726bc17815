"""A DataFrame that is collected again reads what was written meanwhile to the files that it skips."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from tests.spark.test_readers import settings

Change = Callable[[], None]


@pytest.fixture(autouse=True)
def compiled(spark: Any) -> Iterator[None]:
    """Spark's own way of executing a query, which decides what its tasks get of a scan."""
    with settings(spark, {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}):
        yield


def write(path: Path, values: list[int]) -> None:
    """A file of the same size and time, whatever its values: only its inode and the time of its change tell."""
    before = path.stat() if path.exists() else None
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"a": pa.array(values, pa.int64()), "s": [f"s{v:02}" for v in values]}), path)
    elif path.suffix == ".csv":
        path.write_text("".join(f"{v:02},s{v:02}\n" for v in values))
    else:
        path.write_text("".join(json.dumps({"a": v, "s": f"s{v:02}"}) + "\n" for v in values))
    if before is not None:
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rows_of(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def run_again(spark: Any, frame: Callable[[], Any], handle: Any, change: Change, back: Change) -> Any:
    """A frame collected before and after a change, with the rows that Spark alone finds."""
    with geoskip.disabled(spark):
        alone = frame()
        before = rows_of(alone)
        change()
        after = rows_of(alone)
    back()
    handle.refresh_index()
    found = frame()
    assert rows_of(found) == before
    change()
    assert rows_of(found) == after != before
    assert rows_of(found) == after
    return found


def frame_of(spark: Any, folder: Path, format: str = "parquet") -> Any:
    return spark.read.schema("a BIGINT, s STRING").format(format).load(str(folder))


def folder_of(folder: Path, format: str = "parquet") -> Path:
    for number in range(4):
        write(folder / f"{number}.{format}", [10 + number * 10, 11 + number * 10])
    return folder


QUERIES: dict[str, Callable[[Any], Any]] = {
    "no file kept": lambda frame: frame.where("a > 70"),
    "one file kept": lambda frame: frame.where("a > 70 OR a = 41"),
    "computed columns": lambda frame: frame.where("a > 70 OR a = 41").selectExpr("a + 1 AS b", "upper(s) AS t"),
    "beside a broadcast": lambda frame: frame.where("a > 70").crossJoin(frame.sparkSession.range(2).hint("broadcast")),
    "a union": lambda frame: frame.where("a > 70").union(frame.where("a = 41")),
    "coalesced": lambda frame: frame.where("a > 70 OR a = 41").coalesce(1),
    "explained before": lambda frame: (found := frame.where("a > 70"), found._jdf.queryExecution().executedPlan())[0],
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_frame_that_is_collected_again(spark: Any, tmp_path: Path, query: str) -> None:
    path = folder_of(tmp_path) / "1.parquet"
    handle = geoskip.dataset(spark, str(tmp_path))
    handle.create_index(MinMax("a"))
    run_again(
        spark,
        lambda: QUERIES[query](frame_of(spark, tmp_path)),
        handle,
        lambda: write(path, [77, 78]),
        lambda: write(path, [20, 21]),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "setting"),
    [
        ("csv", None),
        ("json", None),
        ("parquet", "spark.sql.parquet.enableVectorizedReader"),
        ("parquet", "spark.sql.codegen.wholeStage"),
        ("parquet", "spark.sql.adaptive.enabled"),
    ],
)
def test_every_reader_of_spark(spark: Any, tmp_path: Path, format: str, setting: str | None) -> None:
    """Where Spark's closures hold the scan, executors get a plain one."""
    path = folder_of(tmp_path, format) / f"1.{format}"
    handle = geoskip.dataset(spark, str(tmp_path), format=format, schema="a BIGINT, s STRING")
    handle.create_index(MinMax("a"))
    if setting is not None:
        spark.conf.set(setting, "false")
    try:
        found = run_again(
            spark,
            lambda: frame_of(spark, tmp_path, format).where("a > 70 OR a = 41"),
            handle,
            lambda: write(path, [77, 78]),
            lambda: write(path, [20, 21]),
        )
    finally:
        if setting is not None:
            spark.conf.unset(setting)
    (scan,) = geoskip.report(found).scans
    assert (scan.files_kept, scan.files_unindexed) == (2, 1)


@pytest.mark.slow
def test_files_of_buckets_and_partitions(spark: Any, tmp_path: Path) -> None:
    """What was written joins the partition of its bucket, with the values of its folder."""
    spark.sql("DROP TABLE IF EXISTS bucketed_again")
    made = spark.range(10, 50).selectExpr("id AS a", "CAST(id % 2 AS INT) AS p", "CAST(id % 5 AS INT) AS k")
    written = made.repartition(1).write.format("csv").partitionBy("p").bucketBy(3, "k")
    written.option("path", str(tmp_path / "t")).saveAsTable("bucketed_again")
    try:
        handle = geoskip.dataset(spark, table="bucketed_again")
        handle.create_index(MinMax("a"))
        old = {path: path.read_text() for path in (tmp_path / "t" / "p=1").glob("*.csv")}

        for checksum in (tmp_path / "t").rglob(".*.crc"):
            checksum.unlink()

        def change() -> None:
            for path, text in old.items():
                path.write_text(re.sub("^..", "77", text, flags=re.MULTILINE))

        def back() -> None:
            for path, text in old.items():
                path.write_text(text)

        def query() -> Any:
            table = spark.table("bucketed_again")
            other = table.select("k").distinct()
            return table.where("a > 70 OR a = 12").join(other, "k").select("a", "p", "k")

        for setting in ("-1", "10485760"):
            spark.conf.set("spark.sql.autoBroadcastJoinThreshold", setting)
            back()
            handle.refresh_index()
            run_again(spark, query, handle, change, back)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.sql("DROP TABLE bucketed_again")


def test_a_file_that_is_gone_is_no_error(spark: Any, tmp_path: Path) -> None:
    folder_of(tmp_path)
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
    found = frame_of(spark, tmp_path).where("a = 41")
    assert len(found.collect()) == 1
    (tmp_path / "1.parquet").unlink()
    assert len(found.collect()) == 1


def test_without_the_look_at_files_the_row_is_lost(spark: Any, tmp_path: Path) -> None:
    """The mutant: what README says of more files than `spark.geoskip.fingerprint.maxRechecks`."""
    folder_of(tmp_path)
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
    spark.conf.set("spark.geoskip.fingerprint.maxRechecks", "2")
    try:
        found = frame_of(spark, tmp_path).where("a > 70")
        assert found.collect() == []
        write(tmp_path / "1.parquet", [77, 78])
        assert found.collect() == []
    finally:
        spark.conf.unset("spark.geoskip.fingerprint.maxRechecks")


def test_a_cached_frame_stays_what_it_was(spark: Any, tmp_path: Path) -> None:
    """As without geoskip: what is cached is not read again before it is uncached."""
    folder_of(tmp_path)
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
    found = frame_of(spark, tmp_path).where("a > 70").cache()
    assert found.collect() == []
    write(tmp_path / "1.parquet", [77, 78])
    assert found.collect() == []
    found.unpersist()
    assert len(frame_of(spark, tmp_path).where("a > 70").collect()) == 2
