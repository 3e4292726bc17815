"""Functions that keep the order, through Spark: MinMax over a column serves them, with Spark's own results."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import files_kept, holding_files, kept

pytestmark = pytest.mark.spark

FILES = 6
KEPT = {
    "year(day) = 2022": 1,
    "year(day) <> 2022": 5,
    "year(ts) IN (2021, 2024)": 2,
    "date_part('year', ts) > 2024": 1,
    "trunc(day, 'quarter') = DATE'2023-04-01'": 1,
    "date_trunc('year', ts) >= TIMESTAMP'2024-01-01 00:00:00'": 2,
    "cast(ts AS date) < DATE'2020-12-31'": 1,
    "to_date(ts) BETWEEN DATE'2021-02-01' AND DATE'2022-01-01'": 1,
    "datediff(DATE'2023-01-01', day) > 0": 3,
    "year(day) * 100 + month(day) = 202204": 1,
    "temp * temp > 2600": 1,
    "n * n < 100 AND n + n > 10": 1,
    "pow(temp, 2) < 20": 1,
    "pow(temp - 25, 2) > 750": 1,
    "day + INTERVAL 1 MONTH < DATE'2021-01-01'": 1,
    "day - INTERVAL 1 YEAR > DATE'2023-12-31'": 1,
    "hour(cast(day AS timestamp_ntz)) > 23": 0,
    "datediff(day, DATE'2023-01-01') > 0": 3,
    "add_months(day, 12) < DATE'2022-01-01'": 1,
    "unix_seconds(ts) < 1609459200": 1,
    "temp * 1.8D + 32 > 120": 1,
    "-temp / 2 < -25": 1,
    "abs(temp - 22) < 3": 1,
    "floor(temp) = 33": 1,
    "ceil(price) > 51": 1,
    "round(temp, 0) = 12": 1,
    "n div 10 = 3": 1,
    "n * 3 > 150": 1,
    "sqrt(temp) > 7": 1,
    "ln(temp + 1) < 2": 1,
    "pow(temp, 3) > 125000": 1,
    "cast(temp AS int) = 41": 1,
    "cast(price AS int) = 51": 1,
    "cast(temp AS bigint) = 41": 1,
    "cast(ts AS bigint) < 1609459200": 1,
    "price * 2.5 < 20": 1,
    "log10(temp) > 1.7": 1,
    "exp(temp / 100) > 1.6": 1,
    "NOT (floor(temp) >= 20)": 2,
}


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow.parquet as pq

    root = tmp_path_factory.mktemp("monotone") / "data"
    root.mkdir()
    for file in range(FILES):
        table = {
            "day": [dt.date(2020 + file, month, 3) for month in (1, 4, 12)],
            "ts": pa.array([dt.datetime(2020 + file, month, 3) for month in (1, 4, 12)], pa.timestamp("us", "UTC")),
            "temp": [10.0 * file, 10.0 * file + 1.75, 10.0 * file + 3.5],
            "price": pa.array([Decimal(10 * file) + Decimal(k) / 4 for k in (0, 3, 6)], pa.decimal128(8, 2)),
            "n": [10 * file, None, 10 * file + 6],
        }
        pq.write_table(pa.table(table), root / f"part-{file}.parquet")
    geoskip.dataset(spark, str(root)).create_index(*map(MinMax, ("day", "ts", "temp", "price", "n")))
    return root


@pytest.mark.slow
def test_a_function_of_a_column_is_served_by_its_bounds(spark: Any, place: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "true")  # else decimals wrap around when they are cast
    own.conf.set("spark.sql.session.timeZone", "UTC")
    frame = own.read.parquet(str(place))
    found = {text: geoskip.explain(frame.where(text)).files_kept for text in KEPT}
    assert found == KEPT
    with geoskip.disabled(own):
        rows = {text: frame.where(text).count() for text in list(KEPT)[::5]}
    assert {text: frame.where(text).count() for text in rows} == rows


ZONES = ["America/New_York", "America/St_Johns", "Pacific/Apia", "Africa/Monrovia", "Australia/Lord_Howe"]
SET = {
    "America/New_York": dt.datetime(2024, 11, 3, 6),
    "America/St_Johns": dt.datetime(2008, 11, 2, 2, 31),
    "Pacific/Apia": dt.datetime(2011, 12, 30, 10),
    "Africa/Monrovia": dt.datetime(1972, 1, 7, 0, 44, 30),
    "Australia/Lord_Howe": dt.datetime(2024, 4, 6, 15),
}
"""By zone an instant at which its clocks were set."""


@pytest.fixture(scope="module")
def hours(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By zone twelve files of eleven hours each, a time every eleven minutes, around the instant."""
    import pyarrow.parquet as pq

    places = {}
    for zone, moment in SET.items():
        root = tmp_path_factory.mktemp("hours") / "data"
        root.mkdir()
        for file in range(12):
            start = moment + dt.timedelta(hours=11 * (file - 6), seconds=-20)
            times = [(start + dt.timedelta(minutes=11 * k)).replace(tzinfo=dt.UTC) for k in range(60)]
            table = {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "ntz": pa.array([t.replace(tzinfo=None) for t in times], pa.timestamp("us")),
                "day": [t.date() for t in times],
                "epoch": [int(t.timestamp()) for t in times],
            }
            pq.write_table(pa.table(table), root / f"{file:02d}.parquet")
        geoskip.dataset(spark, str(root)).create_index(*map(MinMax, ("ts", "ntz", "day", "epoch")))
        places[zone] = root
    return places


BY_THE_CLOCK = [
    "cast(ts AS date) = DATE'{day}'",
    "to_date(ts) IN (DATE'{other}', NULL)",
    "NOT (cast(ts AS date) > DATE'{early}')",
    "dayofyear(ts) > 366 OR year(ts) = 1970",
    "dayofmonth(ts) < 1 OR dayofmonth(cast(ts AS date)) = extract(DAY FROM DATE'{late}')",
    "date_trunc('day', ts) = TIMESTAMP'{day} 00:00:00'",
    "date_trunc('hour', ts) = TIMESTAMP'{day} 01:00:00'",
    "date_trunc('minute', ts) >= TIMESTAMP'{late} 03:14:00'",
    "date_trunc('month', ts) < TIMESTAMP'1970-02-01 00:00:00'",
    "to_date(cast(ts AS timestamp_ntz)) = DATE'{day}'",  # a comparison of the cast itself Spark rewrites
    "minute(ts) = 75 OR hour(ts) = 1 AND cast(ts AS date) = DATE'{day}'",
    "cast(day AS timestamp) > TIMESTAMP'{late} 00:00:00'",
    "unix_timestamp(day) > unix_timestamp(DATE'{late}')",
    "cast(ntz AS timestamp) > TIMESTAMP'9999-01-01 00:00:00'",
    "ts + INTERVAL 90 MINUTES > TIMESTAMP'{late} 00:00:00'",
    "from_utc_timestamp(ts, '{zone}') >= TIMESTAMP'{late} 00:00:00'",
    "date_format(ts, 'yyyy-MM-dd HH') <= '{early} 23'",
    "date_format(ts, 'yyyy/MM/dd') = '{slashed}'",
    "from_unixtime(epoch) >= '{late} 03'",
    "to_date(from_unixtime(epoch, 'yyyy-MM-dd HH:mm')) = DATE'{day}'",
    "cast(epoch / 1000 * 1000.0D AS timestamp) < TIMESTAMP'{early} 12:00:00'",
    "NOT from_unixtime(epoch, 'yyyyMMdd') LIKE '{compact}%'",
]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_where_clocks_are_set_back_and_forth(spark: Any, hours: dict[str, Path], zone: str) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", zone)
    frame = own.read.parquet(str(hours[zone]))
    day = SET[zone].date()
    days = {"day": day, "other": day + dt.timedelta(1), "early": day - dt.timedelta(2), "late": day + dt.timedelta(1)}
    days |= {"zone": zone, "slashed": f"{day:%Y/%m/%d}", "compact": f"{day:%Y%m}"}
    conditions = [text.format(**days) for text in BY_THE_CLOCK]
    needed = holding_files(frame, conditions)
    skipping = 0
    for text in conditions:
        report = geoskip.explain(frame.where(text))
        found = kept(report).split() if report.scans else []  # Spark itself may know that there is no such time
        assert {*needed[text]} <= {*found}, text
        assert len(found) <= len(needed[text]) + 2, f"{text}: {report}"
        skipping += 0 < len(found) < 12
    assert skipping >= 8


def test_dates_in_integers_and_by_the_legacy_parser(spark: Any, parts: Callable[..., Path]) -> None:
    days = (
        [20240131, None],
        [20240201, 20240229],
        [20240301, 20240331],
        [20241231, 20250101],
        [5, 20240101],
        [None, -20240101],
    )
    texts = (
        ["20240120"] * 2,
        ["202401011", "202401019"],
        ["20240101 x", "20240101 y"],
        ["15000229"] * 2,
        ["2"] * 2,
        [""] * 2,
    )
    root = parts(*({"n": pa.array(n, pa.int32()), "s": s} for n, s in zip(days, texts, strict=True)))
    geoskip.dataset(spark, str(root)).create_index(MinMax("n"), MinMax("s"))
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    conditions = {
        "to_date(CAST(n AS string), 'yyyyMMdd') = DATE'2024-02-10'": 4,
        "to_date(CAST(n AS string), 'yyyyMMdd') < DATE'2024-01-29'": 3,
        "unix_timestamp(CAST(n AS string), 'yyyyMMdd') >= unix_timestamp(DATE'2024-03-05')": 4,
        "to_date(s, 'yyyyMMdd') = DATE'2024-01-11'": 4,
        "to_date(s, 'yyyyMMdd') = DATE'1500-03-01'": 3,
    }
    for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
        for policy in ("LEGACY", "CORRECTED"):
            own.conf.set("spark.sql.session.timeZone", zone)
            own.conf.set("spark.sql.legacy.timeParserPolicy", policy)
            found = files_kept(own.read.parquet(str(root)), conditions)
            assert found == conditions, (zone, policy)


def test_what_the_engine_said_is_in_the_report(spark: Any, place: Path) -> None:
    (scan,) = geoskip.explain(spark.read.parquet(str(place)).where("round(temp, 0) = 12")).scans
    assert ("round(min(temp), 0) <= 12.0 <= round(max(temp), 0)", FILES - 1) in scan.clauses()


def test_casts_to_several_types_are_kept_apart(spark: Any, place: Path) -> None:
    frame = spark.read.parquet(str(place))
    for text in ("cast(ts AS bigint) > 1700000000", "cast(ts AS date) > DATE'2023-12-31'", "cast(ts AS bigint) > 0"):
        with geoskip.disabled(spark):
            rows = frame.where(text).count()
        assert frame.where(text).count() == rows > 0


def test_overflow_keeps(spark: Any, parts: Callable[..., Path]) -> None:
    root = parts({"n": [1, 2**62]}, {"n": [5, 6]}, {"n": [10, 20]})
    geoskip.dataset(spark, str(root)).create_index(MinMax("n"))
    frame = spark.read.parquet(str(root))
    assert geoskip.explain(frame.where("n * 4 > 50")).files_kept == 2
    assert geoskip.explain(frame.where("timestamp_seconds(n) > TIMESTAMP'1970-01-01 00:00:15'")).files_kept == 2


@pytest.mark.slow
def test_logarithms_and_roots_where_they_begin(spark: Any, parts: Callable[..., Path]) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    reals = [1.0, 2.0], [5.0, math.nan], [-5.0, -1.0], [math.nan, None], [0.0, 1.0]
    whole = [1, 2], [5, 6], [-5, -1], [-5, 3], [0, 1]
    root = parts(*({"n": n, "x": x} for n, x in zip(whole, reals, strict=True)))
    geoskip.dataset(own, str(root)).create_index(MinMax("n"), MinMax("x"))
    conditions = {
        "ln(n) > 1": 2,
        "ln(n) < 0.5": 3,
        "log10(n) > 0.4": 2,
        "log(2, n) = 2.5": 1,
        "log1p(n) > 1.5": 1,
        "log2(n) > 3": 0,
        "NOT ln(n) = 3": 4,  # of what is below 0 alone it is NULL
        "round(ln(n), 1) = 0.7": 2,
        "ln(n) IS NULL": 5,
        "sqrt(n) < 1.5": 3,
        "sqrt(n) > 1000": 2,  # NaN is
        "NOT sqrt(n) > 1.8": 3,
        "floor(sqrt(n)) = 2": 3,
        "ln(x) < 0.5": 2,
        "ln(x) > 100": 2,
        "exp(x) < 3": 3,
        "pow(-(x - 1), 2) < 4": 2,
        "NOT pow(x, 3) <= 100": 2,
        "sqrt(x) < 100": 3,
        "floor(x) = 0": 3,
    }
    assert files_kept(own.read.parquet(str(root)), conditions) == conditions


def test_what_is_not_monotone_all_the_way_keeps(spark: Any, parts: Callable[..., Path]) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    times = [dt.datetime(2023, 1, day, hour) for day, hour in ((30, 10), (30, 14), (31, 10))]

    def table(digits: int, x: float, shown: list[dt.datetime]) -> pa.Table:
        ts = pa.array(shown, pa.timestamp("us", "UTC"))
        return pa.table(
            {"ts": ts, "x": [x] * len(ts), "d": pa.array([Decimal(10) ** digits] * len(ts), pa.decimal128(38, 0))}
        )

    root = parts(table(5, 1.0, times[::2]), table(30, 1e9, times))
    geoskip.dataset(own, str(root)).create_index(*map(MinMax, ("ts", "x", "d")))
    conditions = {
        "timestampdiff(MONTH, ts, TIMESTAMP'2023-03-01 12:00:00') = 0": 2,  # none from the second, one from the others
        "timestampdiff(DAY, ts, TIMESTAMP'2023-03-01 12:00:00') < 29": 0,
        "cast(d AS decimal(38,10)) IS NULL": 1,
        "abs(cast(cast(x AS decimal(5,0)) AS double)) IS NULL": 1,
    }
    assert files_kept(own.read.parquet(str(root)), conditions) == conditions


def test_a_cast_that_tries_is_another_than_one_that_wraps_around(spark: Any, parts: Callable[..., Path]) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    root = parts({"x": [1e30], "y": [1e30]}, {"x": [5.0], "y": [5.0]})
    geoskip.dataset(own, str(root)).create_index(MinMax("x"), MinMax("try_cast(y AS int)"))
    conditions = {
        "cast(x AS int) > 5": 1,
        "try_cast(x AS int) IS NULL": 1,  # what Spark made of the bounds for the other one is remembered
        "cast(y AS int) > 5": 2,
        "try_cast(y AS int) > 5": 0,
    }
    assert files_kept(own.read.parquet(str(root)), conditions) == conditions
