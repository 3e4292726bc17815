"""The statistics table in Spark: its texts against Spark's casts, the table function of SQL, keys and errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from geoskip.engines.statistics import SCHEMA
from geoskip.errors import MissingKeyError
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing

VALUES: dict[str, tuple[str, list[Any]]] = {
    "flag": ("boolean", [True, False]),
    "tiny": ("tinyint", [-128, 7]),
    "id": ("bigint", [-(2**63), 2**53 + 1, 2**63 - 1]),
    "x": ("double", [-1.5, 1e7, 1e-5, 123456789.125, 100.0, 2e-3]),
    "f": ("float", [0.1, 16777216.0, -3e38]),
    "price": ("decimal(20,10)", [Decimal("0.0000100000"), Decimal("12345.5"), Decimal(1)]),
    "city": ("string", ["", "Köln", "\U0001f600"]),
    "raw": ("binary", [bytearray(b"ab"), bytearray(b"b")]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "at": ("timestamp", [dt.datetime(1969, 12, 31, 23, 59, 59, 999990), dt.datetime(2024, 3, 31, 2, 30)]),
    "local": ("timestamp_ntz", [dt.datetime(1960, 1, 1, 0, 0, 0, 100), dt.datetime(2024, 3, 31, 2, 30)]),
}
COMPUTED = {
    "late": "date_add(date'9999-12-31', n)",
    "span": "make_dt_interval(n, n, 0, n * 1.5) * (n - 2)",
    "hours": "cast(make_dt_interval(0, n * 30, n) AS interval hour to minute)",
}
NAMES = [*VALUES, *COMPUTED]


@pytest.fixture(scope="module")
def every_type(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with a column of each type; in the last row all of them are NULL."""
    rows = [(n, *(values[n % len(values)] for _, values in VALUES.values())) for n in range(6)]
    rows.append((6, *(None for _ in VALUES)))
    frame = spark.createDataFrame(rows, ", ".join(["n int", *(f"{name} {kind}" for name, (kind, _) in VALUES.items())]))
    computed = [f"if(n = 6, null, {text}) AS {name}" for name, text in COMPUTED.items()]
    path = tmp_path_factory.mktemp("statistics") / "a b%20=é"
    frame.selectExpr("*", *computed, "n < 3 AS part").repartition(1).write.partitionBy("part").parquet(str(path))
    geoskip.dataset(spark, str(path)).create_index(*map(MinMax, NAMES), *map(ValueList, NAMES), GeoBox("x", "tiny"))
    return path


@pytest.mark.slow
def test_texts_are_those_of_casts_by_spark(spark: Any, every_type: Path) -> None:
    """The least, the greatest and all values of each type, of the file that Spark names so."""
    asked = [f"cast({end}({name}) AS string) AS {end}_{name}" for name in NAMES for end in ("min", "max")]
    asked += [f"collect_set(cast({name} AS string)) AS all_{name}" for name in NAMES]
    with geoskip.disabled(spark):
        spark.read.parquet(str(every_type)).selectExpr("*", "input_file_name() AS uri").createOrReplaceTempView("v")
        rows = spark.sql(f"SELECT uri, {', '.join(asked)} FROM v GROUP BY uri").collect()
    expected = {row["uri"]: row for row in rows}
    found = [row for row in geoskip.statistics(every_type).to_pylist() if row["kind"] != "geobox"]
    assert len(expected) == 2
    assert len(found) == 2 * 2 * len(NAMES)
    for row in found:
        name, of = row["expression"], expected[row["uri"]]
        assert (row["min_value"], row["max_value"]) == (of[f"min_{name}"], of[f"max_{name}"]), (name, row["kind"])
        assert row["null_count"] == (0 if "part=true" in row["uri"] else 1)
        if row["kind"] == "valuelist":
            assert sorted(row["distinct_values"]) == sorted(of[f"all_{name}"]), name


def test_sql_reads_the_table_that_arrow_and_dataframes_have(spark: Any, every_type: Path) -> None:
    table = geoskip.statistics(every_type)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # instants stay the same, and texts are in UTC
    try:
        frame = geoskip.dataset(spark, str(every_type)).statistics()
        sql = spark.sql(f"SELECT * FROM geoskip_statistics('{every_type}')")
        assert frame.columns == sql.columns == SCHEMA.names
        assert frame.dtypes == sql.dtypes
        times = table["modified"].cast("int64").to_pylist()
        expected = [tuple(row.values()) for row in table.drop_columns("modified").to_pylist()]
        for each in (frame, sql):
            rows = each.selectExpr("* EXCEPT (modified)", "unix_micros(modified) AS modified").collect()
            assert [row["modified"] for row in rows] == times
            assert [tuple(map(plain, row[:-1])) for row in rows] == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    worst = spark.sql(f"""
        SELECT expression, sum(null_count) AS nulls, sum(stored_bytes) AS bytes
        FROM geoskip_statistics('file:{every_type}', '{every_type}/_geoskip')
        WHERE kind = 'minmax' AND path LIKE 'part=false/%' GROUP BY expression HAVING max(max_number) > 1e18
    """).collect()
    assert [(row["expression"], row["nulls"]) for row in worst] == [("id", 1)]
    assert worst[0]["bytes"] > 0


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def test_enabling_again_registers_nothing_anew(spark: Any, every_type: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = spark.newSession()
    geoskip.enable(other)
    assert other.sql(f"SELECT DISTINCT kind FROM geoskip_statistics('{every_type}')").count() == 3
    registered: list[str] = []
    monkeypatch.setattr(type(other.udtf), "register", lambda self, name, function: registered.append(name))
    geoskip.enable(other)
    assert registered == []
    geoskip.enable(spark.newSession())
    assert registered == ["geoskip_statistics"]


def test_protected_metadata_are_read_with_keys_alone(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "data"))
    keys = Encryption(KeyRing({"base": bytes(32)}), "base")
    protected = geoskip.dataset(spark, str(tmp_path / "data"), encryption=keys)
    protected.create_index(MinMax("id"))
    assert protected.statistics().selectExpr("max(max_value)").first()[0] == "2"
    with pytest.raises(MissingKeyError):
        geoskip.statistics(tmp_path / "data")
    with pytest.raises(Exception, match="MissingKeyError"):
        spark.sql(f"SELECT * FROM geoskip_statistics('{tmp_path / 'data'}')").collect()


def test_what_has_no_metadata_says_what_to_do(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "data"))
    with pytest.raises(Exception, match="build an index first, as with"):
        geoskip.dataset(spark, str(tmp_path / "data")).statistics()
    for path, why in (
        (tmp_path / "data", "build an index first, as with"),
        ("/nope", "there is no file or folder /nope"),
    ):
        with pytest.raises(Exception, match=why) as refused:
            spark.sql(f"SELECT * FROM geoskip_statistics('{path}')").collect()
        assert pyspark.__version__.startswith("3.") or "Traceback" not in str(refused.value)
