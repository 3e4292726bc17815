"""Spark's own functions, mapped, through Spark: which files are read, in zones with odd clocks too."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.minmax import MinMax
from tests.support.mapped import files_kept

pytestmark = pytest.mark.spark

FILES = 6
CONDITIONS = {
    "split_part(s, '-', 1) = 'bb'": 1,
    "split_part(s, '.', -1) = 'yy'": 1,
    "split(s, '-')[0] = 'bb'": 1,
    "substring_index(s, '-', 1) IN ('bb', 'cc')": 2,
    "substring_index(s, '.', -1) = 'yy'": 1,
    "left(s, 2) = 'bb' OR right(s, 2) = 'xx'": 2,
    "trim(s) = 'bb-0 x.yy'": 1,
    "rtrim(s) = 'bb-0 x.yy' AND ltrim(s) = 'bb-0 x.yy'": 1,
    "s RLIKE '^(?:bb|cc)-'": 2,
    "s RLIKE '^(bb|cc)-0[ ]x[.]y'": 2,
    "s RLIKE r'^bb\\-0 x\\.y'": 1,
    "regexp_extract(s, '^([a-z]+)-', 1) = 'bb'": 1,
    "concat('x/', s) IN ('x/bb-0 x.yy', 'ee')": 1,
    "s || '/' || s LIKE 'bb-0 x.yy/b%'": 1,
    "concat(s, '.', day) = 'bb-0 x.yy.2021-02-03'": 1,
    "upper(s) LIKE 'BB%'": 1,
    "lower(s) = 'bb-0 x.yy'": 1,
    "s ILIKE 'Bb-%'": 1,
    "instr(s, 'bb') = 1": 1,
    "month(mon) = 3": 1,
    "quarter(mon) = 2": 3,
    "weekofyear(mon) = 5": 1,
    "extract(YEAROFWEEK FROM day) = 2022": 1,
    "month(cast(mon AS timestamp)) BETWEEN 5 AND 6": 2,
    "NOT month(mon) <> 3": 1,
    "hour(ts) = 5": 6,
    "n % 100 = 15": 1,
    "pmod(n, 100) > 50": 1,
    "unix_timestamp(ts) < 1600000000": 1,
    "to_unix_timestamp(day) < 1600000000": 1,
    "next_day(day, 'MO') < DATE'2020-12-31'": 1,
    "ts + INTERVAL 1 HOUR < TIMESTAMP'2020-12-31 00:00:00'": 1,
    "ts - INTERVAL 2 DAYS < TIMESTAMP'2020-12-31 00:00:00'": 1,
    "timestampadd(DAY, 3, ts) > TIMESTAMP'2025-01-01 00:00:00'": 1,
    "timestampdiff(DAY, TIMESTAMP'2020-01-01 00:00:00', ts) < 100": 1,
    "timestampdiff(DAY, ts, TIMESTAMP'2020-01-01 00:00:00') > -100": 1,
    "date_format(ts, 'yyyy') = '2021'": 1,
    "date_format(day, 'yyyy-MM') IN ('2021-02', '2022-11')": 2,
    "date_format(ts, 'yyyyMMddHH') BETWEEN '20210203' AND '2022'": 1,
    "NOT date_format(ts, 'yyyy/MM') > '2020/05'": 1,
    "from_unixtime(unix_seconds(ts)) LIKE '2021-02%'": 1,
    "from_unixtime(sec, 'yyyy-MM') IN ('2021-02', '2022-11')": 2,
    "to_date(from_unixtime(sec)) = DATE'2021-02-03'": 1,
    "to_date(date_format(ts, 'yyyy-MM-dd')) IN (DATE'2021-02-03', DATE'2022-11-03')": 2,
    "cast(sec / 1D AS timestamp) < TIMESTAMP'2021-01-01 00:00:00'": 1,
    "to_utc_timestamp(ts, 'Asia/Tokyo') < TIMESTAMP'2020-12-31 00:00:00'": 1,
    "to_date(text) = DATE'2021-02-03'": 1,
    "to_timestamp(text) >= TIMESTAMP'2025-01-02 00:00:00'": 1,
    "NOT cast(text AS timestamp_ntz) > TIMESTAMP_NTZ'2020-12-31 00:00:00'": 1,
    "year(cast(text AS date)) = 2022": 1,
    "to_date(text, \"yyyy-MM-dd'T'HH:mm:ssX\") = DATE'2021-02-03'": 1,
    "to_timestamp(text, \"yyyy-MM-dd'T'HH:mm:ssX\") < TIMESTAMP'2020-12-31 00:00:00'": 1,
    "NOT unix_timestamp(text, \"yyyy-MM-dd'T'HH:mm:ssX\") < 1740000000": 1,
    "day LIKE '2021-02%'": 1,
    "ts LIKE '2021-%' AND cast(ts AS string) < '2022'": 1,
    "substring(cast(day AS string), 1, 4) = '2021'": 1,
    "cast(n AS string) IN ('25', 'x')": 1,
    "cast(n AS string) LIKE '2%'": 2,
    "NOT cast(n AS string) LIKE '2%'": 5,
    "left(cast(n AS string), 2) IN ('35', '46') OR substring(n, 1, 1) = '1'": 4,
    "greatest(n, m) > 95": 1,
    "greatest(n, 25) < 30": 3,
    "least(n, m) > 45": 3,
    "least(n, 25) < 10": 1,
    "coalesce(n, 0) = 15": 1,
    "coalesce(n, m) BETWEEN 79 AND 81": 1,
    "coalesce(n, m, 0) > 95": 0,
    "coalesce(nanvl(x, NULL), 99) > 90": 1,
    "nanvl(x, n) = 15": 1,
    "nvl(n, 0) <> 15": 6,
    "nvl2(n, n, 0) = 15": 1,
    "if(n > 30, n, m) < 40": 1,
    "CASE WHEN n < 10 THEN 'low' WHEN n < 30 THEN 'mid' ELSE 'high' END = 'low'": 1,
    "array_contains(array(10, 25), n)": 2,
    "NOT array_contains(array(10, 25), n)": 6,
    "map(10, 'a', 20, 'b')[n] = 'b'": 1,
    "element_at(map(10, 'a', 20, 'b'), n) IN ('a', 'c')": 1,
    "map('bb-0 x.yy', 1, 'cc-0 x.xx', 2)[s] = 1": 1,
    "map(10, 'a', 20, 'b')[n] <=> 'b'": 1,
    "coalesce(n, m) IS NULL": 0,
    "(n, s) IN ((15, 'bb-1 x.yy'), (35, 'dd-1 x.ww'))": 2,
    f"(n, s) IN ({', '.join(f'({n}, {chr(98)!r})' for n in range(12))}, (15, 'bb-1 x.yy'))": 1,
    "(n, m) > struct(40 AS n, 60 AS m)": 2,  # PySpark 3.5 compares fields of the same names alone
    "(n, m) > struct(40 AS n, 40 AS m)": 2,
    "NOT (n, m) >= struct(10 AS n, 90 AS m)": 2,
    "(n, m) < struct(CAST(NULL AS int) AS n, 60 AS m)": 0,
    "(n, m) <= struct(40 AS n, CAST(NULL AS int) AS m)": 4,
    r"s LIKE 'bb-1\_x.yy'": 0,
    "substring(s, 1, 2) LIKE 'bb%' OR startswith(left(s, 3), 'cc')": 2,
    "left(s, 2) BETWEEN 'bb' AND 'cc'": 2,
    "left(s, 1) < 'bx' AND NOT startswith(left(s, 3), 'aa')": 1,
    "left(cast(day AS string), 7) < '2020-03'": 1,
    "greatest(n, m) IS NULL": 0,
}


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("functions") / "data"
    root.mkdir()
    for i in range(FILES):
        moments = [dt.datetime(2020 + i, month, 3, 5) for month in (2, 5, 11)]
        letter, other = chr(97 + i) * 2, "zyxwvu"[i] * 2
        table = {
            "s": [f"{letter}-{k} x.{other}" for k in range(3)],
            "n": pa.array([10 * i, 10 * i + 5, None if i == 2 else 10 * i + 6], pa.int32()),
            "x": [10.0 * i, 10.0 * i + 5, math.nan if i == 4 else 10.0 * i + 6],
            "m": pa.array([100 - 10 * i] * 3, pa.int32()),
            "day": [moment.date() for moment in moments],
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "sec": [int(moment.replace(tzinfo=dt.UTC).timestamp()) for moment in moments],
            "text": [f"{moment:%Y-%m-%dT%H:%M:%S}Z" for moment in moments],
            "mon": [dt.date(2020 + i % 2, i + 1, k + 1) for k in range(3)],
        }
        pq.write_table(pa.table(table), root / f"part-{i}.parquet")
    indexes = [MinMax(name) for name in ("s", "n", "m", "x", "day", "ts", "sec", "text", "mon")]
    geoskip.dataset(spark, str(root)).create_index(*indexes, Prefix("s", length=6), Suffix("s", length=6))
    return root


@pytest.mark.slow
def test_functions_of_sparks_own(spark: Any, place: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.geoskip.planning.budget", "60")
    found = files_kept(own.read.parquet(str(place)), CONDITIONS)
    assert found == CONDITIONS


def test_functions_where_clocks_are_set_back(spark: Any, place: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = own.read.parquet(str(place))
    of_time = [
        text for text in CONDITIONS if any(w in text for w in ("ts", "hour", "unix", "date_format", "timestamp"))
    ]
    found = files_kept(frame, of_time)
    assert found["hour(ts) = 5"] == found["timestampdiff(DAY, TIMESTAMP'2020-01-01 00:00:00', ts) < 100"] == FILES
    assert found["unix_timestamp(ts) < 1600000000"] == 1
    assert found["date_format(ts, 'yyyy') = '2021'"] == 1
    assert found["timestampadd(DAY, 3, ts) > TIMESTAMP'2025-01-01 00:00:00'"] == 1
    assert found["ts - INTERVAL 2 DAYS < TIMESTAMP'2020-12-31 00:00:00'"] == 1


def test_columns_of_structs_are_compared_by_their_fields(spark: Any, parts: Callable[..., Path]) -> None:
    files = [{"a": 1, "b": 2}], [{"a": 5, "b": None}, {"a": 5, "b": 7}], [{"a": None, "b": 3}], [None]
    kind = pa.struct([("a", pa.int32()), ("b", pa.int64())])
    place = parts(*({"at": pa.array(rows, kind)} for rows in files))
    geoskip.dataset(spark, str(place)).create_index(MinMax("at.a"), MinMax("at.b"))
    conditions = {
        "at = named_struct('a', 1, 'b', 2L)": 1,
        "at < named_struct('a', 1, 'b', 3L)": 3,  # of NULL, as in the fourth, it is NULL, and MinMax sees the fields
        "at > named_struct('a', 5, 'b', CAST(NULL AS bigint))": 1,
        "at <=> named_struct('a', 5, 'b', CAST(NULL AS bigint))": 1,
        "NOT at <=> named_struct('a', CAST(NULL AS int), 'b', CAST(NULL AS bigint))": 4,
        "NOT at >= named_struct('a', CAST(NULL AS int), 'b', 4L)": 2,
        "at IN (named_struct('a', 1, 'b', 2L), named_struct('a', 9, 'b', 2L))": 1,
    }
    assert files_kept(spark.read.parquet(str(place)), conditions) == conditions


@pytest.mark.slow
def test_by_the_legacy_policy_years_bc_are_shown_as_those_ad(spark: Any, parts: Callable[..., Path]) -> None:
    days = [
        np.datetime64(day, "us").astype(np.int64) for day in ("-2023-06-01", "1582-10-10", "2024-06-01", "2025-06-01")
    ]
    place = parts(*({"ts": pa.array([int(day)]).cast(pa.timestamp("us", "UTC"))} for day in days))
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    own.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")  # Spark 3.5 refuses them otherwise
    geoskip.dataset(own, str(place)).create_index(MinMax("ts"))
    conditions = {"date_format(ts, 'yyyy') = '2024'": 3, "date_format(ts, 'yyyy-MM-dd') = '1582-10-15'": 2}
    assert files_kept(own.read.parquet(str(place)), conditions) == conditions
    with geoskip.disabled(own):
        assert own.read.parquet(str(place)).where(next(iter(conditions))).count() == 2


def test_a_day_that_a_zone_left_out_is_shown_as_the_next(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts(*({"day": [dt.date(1994, 12, number)]} for number in (29, 30, 31)), {"day": [dt.date(1995, 1, 1)]})
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    geoskip.dataset(own, str(place)).create_index(MinMax("day"))
    conditions = {"date_format(day, 'yyyy') = '1995'": 2, "date_format(day, 'yyyy-MM-dd') = '1994-12-30'": 1}
    assert files_kept(own.read.parquet(str(place)), conditions) == conditions
    with geoskip.disabled(own):
        assert own.read.parquet(str(place)).where(next(iter(conditions))).count() == 2
