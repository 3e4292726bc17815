"""Avro through Spark's own reader.

The package spark-avro only gives the format its short name; the class is Spark's, so that no jar is needed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import InvalidSpecificationError
from tests.conftest import files_kept, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

AVRO = "org.apache.spark.sql.avro.AvroFileFormat"


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    if not _has_avro(spark):
        pytest.skip("this Spark brings no Avro")
    path = str(tmp_path_factory.mktemp("avro") / "data")
    frame = spark.range(0, 12, 1, 4).selectExpr(
        "id", "float(id) AS f", "concat('n', id) AS name", "date_add(date'2024-01-01', int(id)) AS day",
        "timestamp_seconds(id * 3600) AS at", "cast(id AS decimal(9, 2)) AS d", "named_struct('x', id) AS s",
        "if(id = 5, NULL, id) AS n",
    )  # fmt: skip
    frame.write.format(AVRO).save(path)
    return path


def _has_avro(spark: Any) -> bool:
    try:
        spark._jvm.java.lang.Class.forName(AVRO)
    except Exception:
        return False
    return True


@pytest.mark.slow
def test_avro(spark: Any, place: str) -> None:
    handle = geoskip.dataset(spark, place, format=AVRO)
    columns = ("id", "f", "name", "day", "at", "d", "s.x", "n")
    report = handle.create_index(*map(MinMax, columns), ValueList("upper(name)"))
    assert (report.files, report.rows, set(report.readers.values())) == (4, 12, {"spark"})
    kept = {
        "id = 7": 1,
        "f > 9.5": 1,
        "name = 'n0'": 1,
        "day < date'2024-01-02'": 1,
        "at >= timestamp'1970-01-01 11:00:00'": 1,
        "d = 7.00": 1,
        "s.x = 4": 1,
        "n IS NULL": 1,
        "upper(name) LIKE '%11'": 1,
        "id > 100": 0,
        "NOT id < 11": 1,
    }
    assert files_kept(spark.read.format(AVRO).load(place), kept) == kept


@pytest.mark.slow
def test_avro_read_in_another_way_keeps_all(spark: Any, place: str) -> None:
    geoskip.dataset(spark, place, format=AVRO).create_index(MinMax("id"), MinMax("day"))

    def read(**options: str) -> Any:
        return spark.read.format(AVRO).options(**options).load(place).where("id = 7 AND day > date'2024-01-01'")

    assert same_as_off(read).files_kept == 1
    schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"day","type":{"type":"int","logicalType":"date"}}]}'  # noqa: E501
    for options in (
        {"avroSchema": schema},
        {"datetimeRebaseMode": "LEGACY"},
        {"positionalFieldMatching": "true"},
    ):
        report = same_as_off(lambda options=options: read(**options))
        assert (report.files_kept, "is not used" in str(report)) == (4, True), options
    for name, value in {
        "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY",
        "avro.mapred.ignore.inputs.without.extension": "true",
    }.items():
        with settings(spark, {name: value}):
            report = same_as_off(read)
        assert report.files_kept == 4, name
        assert name in str(report)


def test_old_times_of_spark_2_are_left_out(spark: Any, place: str, tmp_path: Path) -> None:
    """Spark rebases them in the time zone of the JVM that reads them."""
    for writer in ("2", "9"):
        with settings(spark, {"spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED"}):
            frame = spark.sql("SELECT explode(array(timestamp'1800-01-01', timestamp'2000-01-01')) AS at")
            frame.repartitionByRange(2, "at").write.format(AVRO).save(str(tmp_path / f"by={writer}"))
        for path in (tmp_path / f"by={writer}").glob("*.avro"):
            path.write_bytes(path.read_bytes().replace(spark.version.encode(), f"{writer}{spark.version[1:]}".encode()))
            path.with_name(f".{path.name}.crc").unlink()
    report = geoskip.dataset(spark, str(tmp_path), format=AVRO).create_index(MinMax("at"))
    assert len(report.excluded) == 1
    where = "at < timestamp'1801-01-01'"
    assert same_as_off(lambda: spark.read.format(AVRO).load(str(tmp_path)).where(where)).files_kept == 2


def test_avro_whose_schema_lies_elsewhere_is_refused(spark: Any, place: str, tmp_path: Path) -> None:
    url = tmp_path / "schema.avsc"
    url.write_text('{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}')
    with pytest.raises(InvalidSpecificationError, match="avroSchemaUrl"):
        geoskip.dataset(spark, place, format=AVRO, avroSchemaUrl=str(url))
