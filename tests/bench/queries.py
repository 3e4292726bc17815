"""What geoskip adds to a Spark query on 10,000 real files: a new literal each run, off and on in turn.

*planned* is the time until tasks could start: parsing, analysis, optimisation, geoskip's rule, choosing the files; the
quickest of each counts, since it only computes. *run* is the whole query, the median of each. A query that no index
helps reads every file both ways, and must not be slower for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geoskip
from geoskip import GeoBox, MinMax
from tests.bench.measure import console, interleaved, milliseconds, table
from tests.bench.sessions import no_jobs, readings, session

FILES = 10_000
SQUARE = "POLYGON(({0} 39, {1} 39, {1} 40, {0} 40, {0} 39))"

QUERIES: dict[str, Callable[[int], str]] = {
    "a range of MinMax": lambda n: f"temp > {41 + n / 1000}",
    "a polygon and a range": lambda n: (
        f"ST_Contains(ST_GeomFromText('{SQUARE.format(-90 - n / 100, -89)}'), ST_Point(lng, lat)) AND temp > {n / 100}"
    ),
    "nothing is skipped": lambda n: f"temp > {-90 - n / 1000}",
    "no index helps": lambda n: f"reverse(city) = 'x{n}'",
}


def run() -> None:
    """Print the table."""
    spark = session()
    folder = readings(FILES)
    _indexed(folder)
    spark.read.parquet(str(folder)).createOrReplaceTempView("readings")
    shown = table(
        f"A query on {FILES:,} files, milliseconds",
        "",
        *("files read", "planned off", "on", "added", "geoskip's own", "run off", "on", "off / on"),
    )
    with console.status("measuring queries") as status:
        for what, condition in QUERIES.items():
            status.update(what)
            shown.add_row(what, *_measured(spark, condition))
    console.print(shown)
    console.print("No Spark job ran while planning. Targets: 10 ms added at most; off / on at least 0.97 without help.")


def _indexed(folder: Path) -> None:
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    geoskip.dataset(session(), str(folder)).create_index(MinMax("temp"), GeoBox("lng", "lat"))


def _measured(spark: Any, condition: Callable[[int], str]) -> list[str]:
    numbers = iter(range(1_000_000))
    own: list[float] = []

    def frame() -> Any:
        return spark.sql(f"SELECT id, temp, lat, lng, city FROM readings WHERE {condition(next(numbers))}")

    def planned(_: int) -> int:
        return int(frame()._jdf.queryExecution().toRdd().getNumPartitions())

    def planned_off(number: int) -> None:
        with geoskip.disabled(spark):
            planned(number)

    def run_off(_: int) -> None:
        with geoskip.disabled(spark):
            frame().toPandas()

    with no_jobs(spark):
        off, on = interleaved([planned_off, planned], times=31, warm=10, of=min)
    for _ in range(5):
        report = geoskip.report(frame())
        own.append(report.scans[0].planning_seconds)
    all_off, all_on = interleaved([run_off, lambda _: frame().toPandas()], times=3, warm=0)
    return [
        f"{report.files_kept:,}",
        *map(milliseconds, (off, on)),
        f"[{'green' if on - off <= 0.010 else 'red'}]{1000 * (on - off):.1f}[/]",
        milliseconds(sorted(own)[2]),
        *map(milliseconds, (all_off, all_on)),
        f"{all_off / all_on:.2f}",
    ]
