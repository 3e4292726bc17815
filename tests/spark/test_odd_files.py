"""Files whose values Arrow and Spark may read differently: whoever reads them, the metadata are the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, GapList, MinMax, ValueList
from geoskip.spark.build import job as build_module
from geoskip.stores.base import MemoryStore
from tests.conftest import same_as_off
from tests.spark.test_build import table_of
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

AS_WRITTEN = {f"spark.sql.parquet.{name}RebaseModeInRead": "CORRECTED" for name in ("datetime", "int96")}
LEGACY = {f"spark.sql.parquet.{name}RebaseModeInWrite": "LEGACY" for name in ("datetime", "int96")}
MOMENTS = [dt.datetime(1500, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None, dt.datetime(2024, 2, 29, 12)]


def one(place: Path, column: Any, **options: Any) -> None:
    pq.write_table(pa.table({"c": column}), place / "0.parquet", **options)


def int96(spark: Any, place: Path) -> None:
    one(place, pa.array(MOMENTS, pa.timestamp("us")), use_deprecated_int96_timestamps=True)


def nanoseconds(spark: Any, place: Path) -> None:
    one(place, pa.array([1, 10**18 + 1, None], pa.timestamp("ns", "UTC")), version="2.6")


def times_without_a_zone(spark: Any, place: Path) -> None:
    for number, unit in enumerate(("us", "ms")):
        times = pa.array([t.replace(microsecond=0) if t else None for t in MOMENTS], pa.timestamp(unit))
        pq.write_table(pa.table({"c": times}), place / f"{number}.parquet")


def rebased(kind: str) -> Callable[[Any, Path], None]:
    def write(spark: Any, place: Path) -> None:
        with settings(spark, {**LEGACY, "spark.sql.parquet.outputTimestampType": kind}):
            frame = spark.sql("SELECT explode(array(timestamp'1500-01-01 00:00:00', timestamp'1850-06-01', NULL)) AS c")
            frame.coalesce(1).write.mode("append").parquet(str(place))

    return write


def rebased_dates(spark: Any, place: Path) -> None:
    with settings(spark, LEGACY):
        frame = spark.sql("SELECT explode(array(date'1500-01-01', date'1582-10-15', NULL)) AS c")
        frame.coalesce(1).write.mode("append").parquet(str(place))


def no_utf_8(spark: Any, place: Path) -> None:
    texts = pa.array([b"a\xff\x41\xc3", b"\xfe", b"ok", None])
    one(place, pa.Array.from_buffers(pa.string(), 4, texts.buffers(), texts.null_count))


def in_dictionaries(spark: Any, place: Path) -> None:
    one(place, pa.array(["z", "a", None, "\U0001f600"]).dictionary_encode())


# how it is written, and a condition that some file of it cannot meet
KINDS: dict[str, tuple[Callable[[Any, Path], None], str]] = {
    "INT96": (int96, "c > timestamp'2030-01-01'"),
    "nanoseconds": (nanoseconds, "c > 2000000000000000000"),
    "times without a zone": (times_without_a_zone, "c > timestamp_ntz'2030-01-01 00:00:00'"),
    "rebased INT96": (rebased("INT96"), "c > timestamp'2030-01-01'"),
    "rebased microseconds": (rebased("TIMESTAMP_MICROS"), "c < timestamp'1499-01-01'"),
    "rebased dates": (rebased_dates, "c < date'1499-01-01'"),
    "no UTF-8": (no_utf_8, "c < 'a'"),
    "dictionaries": (in_dictionaries, "c = 'y'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_them(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    write, beyond = KINDS[kind]
    (tmp_path / "data").mkdir()
    with settings(spark, {**AS_WRITTEN, "spark.sql.legacy.parquet.nanosAsLong": "true"}):  # Spark 3.5 starts without
        write(spark, tmp_path / "data")
        place = str(tmp_path / "data")
        indexes = [MinMax("c"), ValueList("c"), BloomFilter("c")]
        indexes += [] if kind in ("no UTF-8", "dictionaries") else [GapList("c")]
        stores = [MemoryStore(), MemoryStore()]
        geoskip.dataset(spark, place, store=stores[0]).create_index(*indexes)
        with monkeypatch.context() as patch:
            patch.setattr(build_module, "_plans", lambda *_: None)
            second = geoskip.dataset(spark, place, store=stores[1])
            second.use_metadata()
            report = second.create_index(*indexes)
        assert set(report.readers.values()) == {"spark"}
        for mine, its in zip(table_of(stores[0]), table_of(stores[1]), strict=True):
            assert repr(mine) == repr(its)
        assert same_as_off(lambda: spark.read.parquet(place).where(beyond)).files_kept == 0
