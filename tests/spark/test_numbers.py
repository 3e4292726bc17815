"""Columns of numbers against literals of other types through Spark: how many of six files each index leaves to read."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, GapList, Hybrid, MinMax, ValueList
from geoskip.clauses import KEEP_NONE
from tests.conftest import files_kept, four_tens
from tests.support.planting import before

pytestmark = pytest.mark.spark

KINDS = [MinMax, GapList, ValueList, BloomFilter, Hybrid]
LARGE = Decimal("12345678901234567890.12")
FILES: list[dict[str, list[Any]]] = [
    {"m": ["0.05", "0.08"], "w": ["0.05", "0.08"], "u": [5, 8], "n": [5, 8], "x": [0.05, math.nan]},
    {"m": ["0.20", "0.30"], "w": ["0.2", "0.3"], "u": [20, 30], "n": [20, 30], "x": [0.2, 0.3]},
    {"m": ["7.00", "8.50"], "w": [LARGE, LARGE], "u": [2**64 - 1] * 2, "n": [2**53 + 1] * 2, "x": [7.0, None]},
    {"m": ["-3.00", "-2.00"], "w": ["-3", "-2"], "u": [2**63, 2**63 + 1], "n": [-3, -2], "x": [math.nan, -2.0]},
    {"m": ["100.01", "200.01"], "w": ["1e17", "2e17"], "u": [100, 200], "n": [100, 200], "x": [100.0, 200.0]},
    {"m": [None, None], "w": [None, None], "u": [None, None], "n": [None, None], "x": [None, math.nan]},
]
ORDER = {
    "m > 0.1D": 3,
    "m BETWEEN 0.1D AND 0.5D": 1,
    "m < 12345678901234567890.12": 5,
    "NOT (m <= 50)": 1,
    "m >= CAST(50 AS FLOAT)": 1,
    "w > 0.1D": 3,
    "w < 0.1": 2,
    "w = 5D": 0,
    "w >= 12345678901234567890.12": 1,
    "w < 12345678901234567890.12": 4,
    "w > 10000000000000000000000.1": 0,
    "u > 10": 4,
    "u BETWEEN 10 AND 50D": 1,
    "u > 9223372036854775809": 1,
    "u <> 18446744073709551615": 4,
    "n > 50D": 2,
    "n < 4.5": 1,
    "x BETWEEN 500 AND 600": 0,
    "x > 0.1 AND x < 5": 1,
    "x > 500": 3,
}
"""Of MinMax, GapList and ValueList."""
EQUAL = {
    "m = 0.2D": 1,
    "0.2BD = m": 1,
    "m = '0.2'": 1,
    "m <=> 0.05D": 1,
    "m IN (0.2D, 7)": 2,
    "m = 12345678901234567890.12": 0,
    "m = 1e300D": 0,
    "m = CAST('NaN' AS DOUBLE)": 0,
    "w = 0.05": 1,
    "w IN (0.2, 1)": 1,
    "w = 12345678901234567890.12": 1,
    "u = 20D": 1,
    "u = 5": 1,
    "u = 18446744073709551615": 1,
    "u IN (9223372036854775808, 3)": 1,
    "n = 9007199254740992D": 1,
    "n = 20.0": 1,
    "n IN (20D, 5)": 2,
    "x = 500": 0,
    "x = 7BD": 1,
}
"""Of all."""


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.kind)
def place(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    folder: Path = tmp_path_factory.mktemp("numbers")
    types = {"m": pa.decimal128(10, 2), "w": pa.decimal128(38, 18), "u": pa.uint64()}
    for number, values in enumerate(FILES):
        made = {c: pa.array([v if v is None else Decimal(v) for v in values[c]], types[c]) for c in ("m", "w")}
        table = pa.table({**made, "u": pa.array(values["u"], types["u"]), "n": values["n"], "x": values["x"]})
        table = table.cast(pa.schema([*list(table.schema)[:3], ("n", pa.int64()), ("x", pa.float64())]))
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=1)
    geoskip.dataset(spark, str(folder)).create_index(*(request.param(column) for column in "mwunx"))
    return request.param, str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_literals_of_other_types_read_no_more_than_they_must(spark: Any, place: tuple[Any, str], ansi: str) -> None:
    kind, folder = place
    wanted = EQUAL if kind in (BloomFilter, Hybrid) else {**EQUAL, **ORDER}
    if ansi == "true" and spark.version.startswith("3."):  # casts this literal to the column's type, and fails
        wanted = {where: files for where, files in wanted.items() if where != "w > 10000000000000000000000.1"}
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        assert files_kept(spark.read.parquet(folder), wanted) == wanted
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_a_plan_without_a_file_that_matches_is_noticed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a condition that is not run, too: the mutant skips every file."""
    place = four_tens(tmp_path)
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"))
    assert files_kept(spark.read.parquet(str(place)), ["id > 100", "temp = 15"]) == {"id > 100": 4, "temp = 15": 1}
    before(monkeypatch, MinMax, "clause", lambda original, index, node: KEEP_NONE)
    with pytest.raises(AssertionError, match="temp = 25"):
        files_kept(spark.read.parquet(str(place)), ["id > 100", "temp = 25"])
