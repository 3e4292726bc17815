"""Python functions over listed values of types that are more than a number or a text, on against off."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import geoskip
from geoskip import ValueList
from geoskip.spark import functions
from tests.conftest import holding_files, kept, same_as_off

pytestmark = pytest.mark.spark

TIMES = [dt.datetime(2021, 7, 1, 12), dt.datetime(2022, 7, 1, 12, 0, 0, 5), dt.datetime(1950, 7, 1), None]
FILES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "price": (pa.decimal128(10, 8), [Decimal("1.5"), Decimal("0.0000001"), Decimal("-2.25"), None]),
    "large": (pa.decimal128(38, 2), [Decimal(10**35), Decimal("7.25"), Decimal("0.00"), None]),
    "seen": (pa.timestamp("us", "UTC"), [None if t is None else t.replace(tzinfo=dt.UTC) for t in TIMES]),
    "shown": (pa.timestamp("us"), TIMES),
    "hours": (pa.int32(), [5, -24, 0, None]),
    "code": (pa.binary(), [b"ab", b"\x00\xff", b"", None]),
    "day": (pa.date32(), [dt.date(2021, 7, 1), dt.date(2022, 7, 1), dt.date(1950, 1, 1), None]),
}
"""Of each column the type, and the value in each of four files."""


def written(value: Any) -> str:
    """How Python shows a value: of a decimal its digits, of bytes whether they can be changed."""
    return repr(value)


def year_of(value: Any) -> int | None:
    return None if value is None else value.year


def halved(value: Any) -> Any:
    """With more digits than its type has; None for what is small."""
    return None if value is None or abs(value) < 1 else value / 2 + Decimal("0.005")


def a_day_later(value: Any) -> Any:
    return None if value is None else value + dt.timedelta(days=1)


def first_byte(value: Any) -> Any:
    return None if value is None else bytes(value[:1])


def a_tenth(value: Any) -> float:
    return 0.1 if value is None else float(value) / 10


FUNCTIONS = {
    "written": (written, "string"),
    "year_of": (year_of, "int"),
    "halved": (halved, "decimal(12,2)"),
    "as_whole": (lambda value: 3, "decimal(12,2)"),
    "too_much": (lambda value: value, "decimal(3,2)"),
    "later": (a_day_later, "timestamp"),
    "later_shown": (a_day_later, "timestamp_ntz"),
    "in_utc": (lambda value: dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "timestamp"),
    "first_byte": (first_byte, "binary"),
    "a_tenth": (a_tenth, "float"),
    "twice": (lambda value: None if value is None else 2 * value, "interval day to second"),
    "day_after": (a_day_later, "date"),
}

READ = {
    "written(price) = \"Decimal('1.00E-7')\"": "1",
    "written(price) = \"Decimal('1.50000000')\"": "0",
    "written(price) = 'None'": "3",
    "written(large) LIKE '%7.25%'": "1",
    "halved(price) = 0.76": "0",
    "halved(price) < 0": "2",
    "halved(price) IS NULL": "1 3",
    "halved(large) > 1": "0 1",  # of the first nothing is known: it has too many digits
    "as_whole(price) IS NULL": "0 1 2 3",
    "too_much(price) = 1.5": "0",
    "year_of(seen) = 2021": "0",
    "year_of(seen) < 2000": "2",
    "year_of(shown) IN (2021, 2022)": "0 1",
    "written(shown) LIKE '%2022, 7, 1, 12, 0, 0, 5)'": "1",
    "later(seen) = timestamp'2021-07-02 12:00:00'": "0",
    "later_shown(shown) = timestamp_ntz'2022-07-02 12:00:00.000005'": "1",
    "in_utc(seen) = timestamp'2020-01-01 00:00:00'": "0 1 2 3",
    "in_utc(seen) <> timestamp'2020-01-01 00:00:00'": "",
    "first_byte(code) = X'00'": "1",
    "first_byte(code) = X''": "2",
    "written(code) IN (\"b'ab'\", \"bytearray(b'ab')\")": "0",
    "a_tenth(price) = CAST(0.15 AS float)": "0",
    "twice(make_dt_interval(0, hours)) = interval '10' hour": "0",
    "twice(make_dt_interval(0, hours)) < interval '0' hour": "1",
    "written(make_dt_interval(0, hours)) = 'datetime.timedelta(0)'": "2",
    "day_after(day) = date'2022-07-02'": "1",
    "year_of(day) < 2000": "2",
}
"""Condition, and the files that are read; the session's zone is UTC."""


@pytest.fixture(scope="module")
def moments(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("moments")
    for number in range(4):
        columns = {name: pa.array([values[number]], kind) for name, (kind, values) in FILES.items()}
        pq.write_table(pa.table(columns), place / f"{number}.parquet")
    for name, (function, kind) in FUNCTIONS.items():
        spark.udf.register(name, F.udf(function, kind, useArrow=False))
    geoskip.dataset(spark, str(place)).create_index(*map(ValueList, FILES))
    yield str(place)
    for name in FUNCTIONS:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def test_functions_get_and_give_what_workers_get_and_give(spark: Any, moments: str) -> None:
    frame = spark.read.parquet(moments)
    fails = ("halved(large)", "too_much(price)")
    assert {where: kept(geoskip.explain(frame.where(where))) for where in READ} == READ
    decided = [text for text in READ if not text.startswith(fails)]
    holding = holding_files(frame, decided)
    assert {text: " ".join(holding[text]) for text in decided} == {text: READ[text] for text in decided}
    for where in ("year_of(seen) < 2000", "halved(price) = 0.76 OR first_byte(code) = X'00'"):
        assert 0 < same_as_off(lambda where=where: spark.read.parquet(moments).where(where)).files_kept < 3


def test_timestamps_where_workers_may_have_other_clocks(
    spark: Any, moments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # too late for workers
    read = spark.read.parquet(moments)
    report = same_as_off(lambda: read.where("year_of(seen) = 2021"))
    assert report.files_kept == 4
    assert "the time zone of this process was changed" in " ".join(report.scans[0].reasons)
    assert geoskip.explain(read.where("year_of(shown) = 2021")).files_kept == 1


def test_what_clocks_show_twice_or_never_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        instant = functions._instant(None)
        assert instant(dt.datetime(2024, 7, 1)) == 1_719_806_400_000_000
        for unclear in (dt.datetime(2024, 11, 3, 1, 30), dt.datetime(2024, 3, 10, 2, 30)):
            with pytest.raises(ValueError, match="twice, or never"):
                instant(unclear)
    time.tzset()
