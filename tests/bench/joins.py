"""Files that are chosen by other rows, of 2,000 files, off and on in turn: the median of whole queries.

*Joins*: with a small table, which has other rows in each run. *A row in every file* is a join by which no file can be
skipped: the scan then waits for the broadcast and the decision for nothing. *First rows*: ORDER BY with LIMIT.
*Unindexed* is an order for which nothing can be proved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import geoskip
from geoskip import GeoBox, MinMax
from tests.bench.measure import console, interleaved, judged, milliseconds, table
from tests.bench.sessions import readings, session

FILES = 2_000
UNHELPED = 0.9
AROUND = "ST_Buffer(ST_Point({0}, {1}), 0.1)"

SMALL: dict[str, tuple[str, Callable[[int], str], float]] = {
    "20 keys": ("readings.id = small.id", lambda n: f"SELECT id * 9973 + {n} AS id FROM range(20)", 1),
    "IN (SELECT ...), 20 keys": (
        "readings.id IN (SELECT id FROM small)", lambda n: f"SELECT id * 9973 + {n} AS id FROM range(20)", 1,
    ),
    "20 ranges": (
        "readings.id BETWEEN small.first AND small.first + 9",
        lambda n: f"SELECT id * 9973 + {n} AS first FROM range(20)", 1,
    ),
    "20 zones": (
        "ST_Contains(small.zone, ST_Point(readings.lng, readings.lat))",
        lambda n: f"SELECT {AROUND.format(f'-90 + id + {n} / 100', 40)} AS zone FROM range(20)", 1,
    ),
    "a row in every file": (
        "readings.id = small.id", lambda n: f"SELECT id * 100 + {n % 100} AS id FROM range({FILES})", UNHELPED,
    ),
}  # fmt: skip


FIRST = {
    "the latest 100": ("SELECT * FROM readings ORDER BY id DESC LIMIT 100", 1),
    "the greatest": ("SELECT max(id) FROM readings", 1),
    "the nearest 10": (
        "SELECT * FROM readings ORDER BY ST_Distance(ST_Point(lng, lat), ST_Point({0}, 40)) LIMIT 10",
        1,
    ),
    "unindexed": ("SELECT * FROM readings ORDER BY temp LIMIT 10", UNHELPED),
}
COLUMNS = ("files read", "off", "on", "off / on", "target")


def run() -> None:
    """Print the tables."""
    spark = session()
    joins = table(f"Joins of {FILES:,} files, milliseconds", "small side", *COLUMNS)
    first = table(f"First rows of {FILES:,} files, milliseconds", "rows", *COLUMNS)
    with console.status("measuring joins") as status:
        folder = readings(FILES)
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
        geoskip.dataset(spark, str(folder)).create_index(MinMax("id"), GeoBox("lng", "lat"))
        spark.read.parquet(str(folder)).createOrReplaceTempView("readings")
        for what, (condition, small, least) in SMALL.items():
            status.update(what)
            joins.add_row(what, *_compared(spark, partial(_joined, spark, condition, small), least))
        for what, (query, least) in FIRST.items():
            status.update(what)
            first.add_row(what, *_compared(spark, partial(_first, spark, query), least))
    console.print(joins, first)


def _joined(spark: Any, condition: str, small: Callable[[int], str], number: int) -> Any:
    spark.sql(small(number)).createOrReplaceTempView("small")
    listed = "readings WHERE" if " IN (" in condition else "readings JOIN small ON"
    return spark.sql(f"SELECT count(*), sum(temp) FROM {listed} {condition}")


def _first(spark: Any, query: str, number: int) -> Any:
    return spark.sql(query.format(-90 - number / 100))


def _compared(spark: Any, query: Callable[[int], Any], least: float) -> list[str]:
    """A row: files read, off, on and their ratio (target: at least ``least``)."""

    def run(number: int) -> Any:
        found = query(number)
        found.collect()
        return found

    def run_off(number: int) -> None:
        with geoskip.disabled(spark):
            run(number)

    off, on = interleaved([run_off, run], times=5)
    kept = geoskip.report(run(0)).scans[0].files_kept
    ratio = judged(f"{off / on:.2f}", off / on >= least)
    return [f"{kept:,}", milliseconds(off), milliseconds(on), ratio, f"at least {least:g}"]
