"""Tables of Delta Lake: queries on against off, and which files they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import same_as_off

TEMPS = MinMax("temp")
ODD = ValueList("temp % 7")


def table_of(spark: Any, place: Path, *, partition: str = "", **properties: str) -> str:
    """A new table of four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, or four in each of three partitions."""
    frame = (
        spark.range(40)
        .selectExpr("id AS temp", "id % 3 AS city", "concat('n', id) AS name")
        .repartitionByRange(4, "temp")
    )
    writer = frame.write.format("delta").options(**{f"delta.{name}": value for name, value in properties.items()})
    (writer.partitionBy(partition) if partition else writer).save(str(place))
    return f"delta.`{place}`"


def temps(report: geoskip.Report) -> int:
    return report.files_kept


def test_a_path_a_table_and_plain_parquet(spark: Any, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path / "t")
    dataset = geoskip.dataset(spark, tmp_path / "t")
    built = dataset.create_index(TEMPS, ODD)
    assert (built.files, built.rows, built.excluded) == (4, 40, {})
    assert built.readers["minmax(temp)"] in ("footers", "arrow"), built.readers
    report = same_as_off(lambda: spark.sql(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp > 33"))
    assert (report.files_kept, report.files_total) == (1, 4)
    spark.sql(f"CREATE TABLE named USING delta LOCATION '{tmp_path / 't'}'")
    assert geoskip.dataset(spark, table="named").indexes == dataset.indexes
    report = same_as_off(lambda: spark.table("named").where("temp % 7 = 6 AND temp % 2 = 1"))
    assert report.files_total == 4
    assert dataset.verify().ok
    assert dataset.describe().collect()[0].files_covered == 4
