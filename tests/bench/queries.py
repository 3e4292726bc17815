"""What geoskip adds to a Spark query on real files: a new literal each run, off and on in turn.

*planned* is the time until tasks could start, on 10,000 files: parsing, analysis, optimisation, geoskip's rule,
choosing the files; the quickest of each counts, since it only computes. *run* is the whole query, the median of each.
*off / on* is the median over rounds of the two times of one round, with the middle half of the rounds beside it: a
query that no index helps reads every file both ways, must not be slower for it, and differs by nothing but the
planning. It is run on 2,000 files: planning weighs more there, and a round takes seconds.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geoskip
from geoskip import GeoBox, MinMax
from tests.bench.measure import console, interleaved, judged, milliseconds, paired, table
from tests.bench.sessions import no_jobs, readings, session

FILES, RUN = 10_000, 2_000
ADDED = 0.010
UNHARMED = 0.97
ROUNDS = 9
UNHELPED = ("nothing is skipped", "no index helps")
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
    planning = table(
        f"Planning a query on {FILES:,} files, milliseconds", "", "files read", "off", "on", "geoskip's own",
        f"added (target: at most {1000 * ADDED:g})",
    )  # fmt: skip
    running = table(
        f"The whole query on {RUN:,} files, milliseconds", "", "rounds", "off", "on", "off / on", "middle half",
        "target",
    )  # fmt: skip
    with console.status("measuring queries") as status:
        indexed(spark, readings(FILES))
        for what, condition in QUERIES.items():
            status.update(f"{what}, planned")
            planning.add_row(what, *planned(spark, asking(spark, condition), ADDED))
        indexed(spark, readings(RUN))
        for what, condition in QUERIES.items():
            status.update(f"{what}, run")
            running.add_row(what, *_run(spark, asking(spark, condition), helped=what not in UNHELPED))
    console.print(planning)
    console.print("No Spark job ran while planning.")
    console.print(running)


def indexed(spark: Any, folder: Path) -> None:
    """Index the files, as the view ``readings``."""
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    geoskip.dataset(spark, str(folder)).create_index(MinMax("temp"), GeoBox("lng", "lat"))
    spark.read.parquet(str(folder)).createOrReplaceTempView("readings")


def asking(spark: Any, condition: Callable[[int], str]) -> Callable[[], Any]:
    """The query with another literal each time."""
    numbers = iter(range(1_000_000))
    return lambda: spark.sql(f"SELECT id, temp, lat, lng, city FROM readings WHERE {condition(next(numbers))}")


def planned(spark: Any, asked: Callable[[], Any], most: float, *, times: int = 31, warm: int = 12) -> list[str]:
    """A row: files read, planning off, on and by geoskip alone, and what was added (target: ``most`` seconds)."""

    def plan(_: int) -> int:
        return int(asked()._jdf.queryExecution().toRdd().getNumPartitions())

    def plan_off(number: int) -> None:
        with geoskip.disabled(spark):
            plan(number)

    with no_jobs(spark):
        off, on = interleaved([plan_off, plan], times=times, warm=warm, of=min)
    reports = [geoskip.report(asked()) for _ in range(5)]
    own = statistics.median(report.scans[0].planning_seconds for report in reports)
    added = on - off
    return [
        f"{reports[0].files_kept:,}", *map(milliseconds, (off, on, own)), judged(f"{1000 * added:.1f}", added <= most),
    ]  # fmt: skip


def _run(spark: Any, asked: Callable[[], Any], *, helped: bool) -> list[str]:
    def run_off(_: int) -> None:
        with geoskip.disabled(spark):
            asked().toPandas()

    rounds = paired(run_off, lambda _: asked().toPandas(), times=3 if helped else ROUNDS, warm=1 if helped else 5)
    off, on = (statistics.median(side) for side in zip(*rounds, strict=True))
    ratios = sorted(before / after for before, after in rounds)
    ratio, quarter = statistics.median(ratios), len(ratios) // 4
    least = 1.0 if helped else UNHARMED
    return [
        str(len(rounds)), milliseconds(off), milliseconds(on), judged(f"{ratio:.2f}", ratio >= least),
        f"{ratios[quarter]:.2f} .. {ratios[-1 - quarter]:.2f}", f"at least {least:g}",
    ]  # fmt: skip
