"""Streams beside indexes: folders that streams read or write, and static sides of their joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import geoskip
from geoskip import MinMax, Sort, ValueList
from geoskip.errors import InvalidSpecificationError
from geoskip.lifecycle.log import latest
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

COLUMNS = "temp bigint, city string"


def write_files(place: Path, first: int, last: int) -> Path:
    """Write a file for each number, with ten temperatures from ten times the number."""
    place.mkdir(exist_ok=True)
    for number in range(first, last):
        temps = list(range(10 * number, 10 * number + 10))
        pq.write_table(pa.table({"temp": temps, "city": [f"c{number % 5}"] * 10}), place / f"{number:02}.parquet")
    return place


def run_stream(spark: Any, source: Path, sink: Path, checkpoint: Path, condition: str = "true") -> None:
    """Write what a stream finds in a folder to another one, five files at a time, until nothing is left."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "5")
    rows = reader.parquet(str(source)).where(condition).writeStream.format("parquet").trigger(availableNow=True)
    query = rows.option("checkpointLocation", str(checkpoint)).start(str(sink))
    assert query.awaitTermination(120)


def temps(frame: DataFrame) -> list[int]:
    return sorted(row.temp for row in frame.collect())


def test_a_folder_that_a_stream_writes_is_indexed_as_its_log_names_the_files(spark: Any, tmp_path: Path) -> None:
    source, sink, checkpoint = tmp_path / "source", tmp_path / "sink", tmp_path / "checkpoint"
    run_stream(spark, write_files(source, 0, 20), sink, checkpoint)
    dataset = geoskip.dataset(spark, str(sink))
    dataset.create_index(MinMax("temp"), ValueList("city"))
    header = latest(dataset.store).header
    assert header.root == f"file:{sink}", "as for other folders, of which Spark gives the paths a scheme"

    def rows(condition: str) -> Any:
        return same_as_off(lambda: spark.read.parquet(str(sink)).where(condition))

    first = rows("temp = 55")
    assert 0 < first.files_kept < first.files_total
    pq.write_table(pa.table({"temp": [55], "city": ["stray"]}), sink / "stray.parquet")  # Spark does not find it
    assert temps(dataset.to_df().where("temp = 55")) == [55]
    run_stream(spark, write_files(source, 20, 30), sink, checkpoint)
    late = rows("temp = 255")
    assert late.files_kept == late.files_total - first.files_total > 1, "new files are read"
    dataset.refresh_index()
    assert 0 < rows("temp = 255").files_kept <= late.files_kept
    assert rows("temp < 15").files_kept < first.files_total
    one = spark.sql("SELECT 1L AS temp, 'c1' AS city")
    with pytest.raises(InvalidSpecificationError, match=r"would not find the rows of append\(\)"):
        dataset.append(one)
    with pytest.raises(InvalidSpecificationError, match=r"would not find the rows of write\(\)"):
        geoskip.write(one, sink, mode="append")
    with pytest.raises(InvalidSpecificationError, match=r"a stream writes to .*, and would not follow"):
        dataset.rewrite(Sort("temp"))
    run_stream(spark, write_files(source, 30, 31), sink, checkpoint)
    assert temps(dataset.to_df()) == list(range(310))


def test_a_stream_of_an_indexed_folder_reads_each_file_once(spark: Any, tmp_path: Path) -> None:
    source, sink, checkpoint = tmp_path / "source", tmp_path / "sink", tmp_path / "checkpoint"
    geoskip.dataset(spark, str(write_files(source, 0, 20))).create_index(MinMax("temp"), ValueList("city"))
    run_stream(spark, source, sink, checkpoint, "temp > 55 AND city = 'c3'")
    write_files(source, 20, 25)
    run_stream(spark, source, sink, checkpoint, "temp > 55 AND city = 'c3'")
    assert temps(spark.read.parquet(str(sink))) == [temp for temp in range(56, 250) if temp // 10 % 5 == 3]


def test_the_static_side_of_a_join_with_a_stream_keeps_its_rows(spark: Any, tmp_path: Path) -> None:
    source, static = write_files(tmp_path / "source", 0, 20), write_files(tmp_path / "static", 0, 40)
    geoskip.dataset(spark, str(static)).create_index(MinMax("temp"))
    some = spark.read.parquet(str(static)).where("temp BETWEEN 55 AND 140").withColumnRenamed("city", "town")
    joined = spark.readStream.schema(COLUMNS).parquet(str(source)).join(some, "temp", "left")
    query = joined.writeStream.format("memory").queryName("joined_rows").trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    found = {row.temp: row.town for row in spark.table("joined_rows").collect()}
    assert found == {temp: f"c{temp // 10 % 5}" if 55 <= temp <= 140 else None for temp in range(200)}
