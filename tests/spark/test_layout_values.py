"""Values of all types in a layout: ordered as Spark orders them, and written as they are."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import KDTree, Sort, ZOrder
from geoskip.layout.ranks import ColumnRanks
from geoskip.spark.build.arrange import arrange
from geoskip.spark.build.layout_columns import LayoutColumns, arrow_values
from tests.support.layout_files import files_of

pytestmark = pytest.mark.spark

EVERY_TYPE = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "short_decimal": "DECIMAL(9,2)",
    "decimal": "DECIMAL(38,4)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "word": "STRING",
    "bytes": "BINARY",
    "span": "INTERVAL DAY TO SECOND",
}


def every_type() -> list[tuple[Any, ...]]:
    """Rows of extreme values, a fifth of them NULL."""
    values = {
        "flag": [True, False],
        "tiny": [-128, 127],
        "long": [2**63 - 1, -(2**63), 2**53 + 1, 2**53],
        "float": [float("nan"), -0.0, 0.0, float("-inf")],
        "double": [float("inf"), float("nan"), 1e300, -1.5],
        "short_decimal": [Decimal("-9999999.99"), Decimal("0.01")],
        "decimal": [Decimal("9" * 34), Decimal("-0.0001")],
        "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "at": [dt.datetime(1900, 1, 1), dt.datetime(2999, 1, 1, 1, 2, 3, 4)],
        "local": [dt.datetime(1, 1, 2), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
        "word": ["", "\u00e9", "z" * 500],
        "bytes": [b"", b"\xff\x00", b"\x00"],
        "span": [dt.timedelta(days=-3, microseconds=1), dt.timedelta(9)],
    }
    return [tuple(values[name][n % len(values[name])] if n % 5 else None for name in EVERY_TYPE) for n in range(60)]


@pytest.fixture
def ancient(spark: Any) -> Any:
    """Days before 1582 are written as they are, which Spark 3.5 is to be told."""
    name = "spark.sql.parquet.datetimeRebaseModeInWrite"
    before = spark.conf.get(name)
    spark.conf.set(name, "CORRECTED")
    yield
    spark.conf.set(name, before)


@pytest.mark.slow
@pytest.mark.usefixtures("ancient")
def test_every_type_is_ordered_and_written_as_it_is(spark: Any, tmp_path: Path) -> None:
    names = list(EVERY_TYPE)
    plain = spark.createDataFrame(every_type(), ", ".join(f"`{name}` {kind}" for name, kind in EVERY_TYPE.items()))
    frame = plain.selectExpr(
        "*",
        "make_ym_interval(tiny, 1) AS months",
        "map(coalesce(word, ''), array(struct(long, day))) AS `nested.map`",
        "named_struct('a', double, 'b', named_struct('c', bytes)) AS nested",
    )
    chosen = [*names, "months"]
    for kind, columns in ((ZOrder, chosen[:8]), (KDTree, [*chosen[8:], "nested.a", "`nested.map`['z'][0].day"])):
        folder = tmp_path / kind.kind
        geoskip.write(frame, folder, layout=kind(*columns), files=9)
        assert len(files_of(folder)) == 9
        back = spark.read.parquet(str(folder))
        assert back.dtypes == frame.dtypes
        texts = [f"CAST({name} AS STRING)" for name in (*chosen, "`nested.map`", "nested")]
        assert sorted(map(str, back.selectExpr(*texts).collect())) == sorted(
            map(str, frame.selectExpr(*texts).collect())
        )
    assert arrange(frame.selectExpr("long", "NULL AS nothing"), KDTree("nothing"), files=5).frame.count() == 60


def test_values_order_in_a_worker_as_in_spark(spark: Any) -> None:
    frame = spark.createDataFrame(every_type(), ", ".join(f"`{name}` {kind}" for name, kind in EVERY_TYPE.items()))
    texts = list(EVERY_TYPE)
    rows = frame.collect()
    for part in (texts[:7], texts[7:]):  # a layout has eight columns at most
        columns = LayoutColumns.of(frame, Sort(*part))
        table = frame.select(columns.nulls, *columns.values).toPandas()
        series = [table.iloc[:, 1 + number] for number in range(len(part))]
        found = arrow_values(columns.types, series, table.iloc[:, 0].to_numpy())
        for text, array in zip(part, found, strict=True):
            ranks = ColumnRanks.exact(array).of(array).tolist()
            pairs = sorted(zip((spark_order(row[text]) for row in rows), ranks, strict=True))
            assert [rank for _, rank in pairs] == sorted(ranks), text
            assert len({key for key, _ in pairs}) == len(set(ranks)), text


def spark_order(value: Any) -> tuple[int, Any]:
    """A key that sorts as Spark's ascending order does."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytearray) else value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Sort, ZOrder])
def test_strings_that_are_no_utf8_are_ordered_by_their_bytes(spark: Any, tmp_path: Path, kind: Any) -> None:
    word = "IF(id = 7, NULL, CAST(unhex(concat('FF41', lpad(hex(39 - id), 2, '0'), 'C3')) AS STRING)) AS word"
    frame = spark.range(40).selectExpr("id", word)
    geoskip.write(frame, tmp_path / "s", layout=kind("word"), file_size="300")
    found = [row[0] for row in spark.read.parquet(str(tmp_path / "s")).selectExpr("hex(word)").collect()]
    assert sorted(map(str, found)) == sorted(str(row[0]) for row in frame.selectExpr("hex(word)").collect())
    words = [pq.read_table(file)["word"].cast("binary").drop_null().to_pylist() for file in files_of(tmp_path / "s")]
    ends = sorted((min(file), max(file)) for file in words)
    assert len(ends) > 1
    assert all(one[1] < other[0] for one, other in itertools.pairwise(ends))
