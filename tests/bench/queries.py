"""What geoskip adds to a Spark query on real files: a new literal each run, off and on in turn.

*planned* is the time until tasks could start, on 10,000 files: parsing, analysis, optimisation, geoskip's rule,
choosing the files; the quickest of each counts, since it only computes. *run* is the whole query on 2,000 files, the
median of each.

A query that no index helps reads every file both ways, and must not be slower for it by more than 3 %. It is asked
off, on and off again, in all orders and back, on 300 files, where planning weighs more than on many: *off / on* is the
median over the rounds of one round's ratio, and *off / off*, which should be 1, shows what the measurement is worth.
Both stand with what 95 of 100 such measurements would find, by the clock and in processors' time, which other
processes change less. Below 0.97 throughout it is slower, above throughout it is not; while that is open, further
rounds are made, up to a number.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import geoskip
from geoskip import GeoBox, MinMax
from tests.bench.measure import (
    Timed,
    console,
    in_turn,
    interleaved,
    judged,
    median_within,
    milliseconds,
    table,
)
from tests.bench.sessions import no_jobs, readings, session

FILES, RUN, UNHELPED_RUN = 10_000, 2_000, 300
ADDED = 0.010
UNHARMED = 0.97
ROUNDS, WARM, MOST_ROUNDS = 15, 3, 60
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
    running = table(f"The whole query on {RUN:,} files, milliseconds", "", "off", "on", "off / on", "target")
    unhelped = table(
        f"The whole query on {UNHELPED_RUN:,} files, none skipped", "", "rounds", "off ms", "on ms", "off / on",
        "95 % within", "off / off", "95 % within", f"target: at least {UNHARMED:g}",
    )  # fmt: skip
    with console.status("measuring queries") as status:
        indexed(spark, readings(FILES))
        for what, condition in QUERIES.items():
            status.update(f"{what}, planned")
            planning.add_row(what, *planned(spark, asking(spark, condition), ADDED))
        indexed(spark, readings(RUN))
        for what, condition in QUERIES.items():
            if what not in UNHELPED:
                status.update(f"{what}, run")
                running.add_row(what, *_run(spark, asking(spark, condition)))
        indexed(spark, readings(UNHELPED_RUN))
        for what in UNHELPED:
            status.update(f"{what}, run")
            for row in _unhelped(spark, asking(spark, QUERIES[what])):
                unhelped.add_row(f"{what}, {row[0]}", *row[1:])
    console.print(planning)
    console.print("No Spark job ran while planning.")
    console.print(running)
    console.print(unhelped)


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


def _run(spark: Any, asked: Callable[[], Any]) -> list[str]:
    def run_off(_: int) -> None:
        with geoskip.disabled(spark):
            asked().toPandas()

    off, on = interleaved([run_off, lambda _: asked().toPandas()], times=3)
    return [milliseconds(off), milliseconds(on), judged(f"{off / on:.2f}", off >= on), "at least 1"]


def _unhelped(spark: Any, asked: Callable[[], Any]) -> list[list[str]]:
    """Two rows, by the clock and in processors' time."""
    timed = _timer(spark, lambda: asked().toPandas())

    def timed_off() -> Timed:
        with geoskip.disabled(spark):
            return timed()

    arms: list[list[Timed]] = [[], [], []]
    rows: list[list[str]] = []
    while not rows or (len(arms[0]) < MOST_ROUNDS and any("undecided" in row[-1] for row in rows)):
        more = in_turn([timed_off, timed, timed_off], rounds=ROUNDS, warm=0 if rows else WARM)
        arms = [[*arm, *taken] for arm, taken in zip(arms, more, strict=True)]
        rows = _compared(*arms)
    return rows


def _compared(first: Sequence[Timed], on: Sequence[Timed], second: Sequence[Timed]) -> list[list[str]]:
    rows = []
    for place, how in enumerate(("clock", "processors")):
        before, with_it, again = ([one[place] for one in arm] for arm in (first, on, second))
        helped = [(a + b) / 2 / c for a, c, b in zip(before, with_it, again, strict=True)]
        control = [a / b for a, b in zip(before, again, strict=True)]
        rows.append([
            how, str(len(on)), milliseconds(statistics.median([*before, *again])),
            milliseconds(statistics.median(with_it)), *_within(helped), *_within(control), decided(helped, UNHARMED),
        ])  # fmt: skip
    return rows


def _timer(spark: Any, run: Callable[[], Any]) -> Callable[[], Timed]:
    """A run, timed by the clock and in what this process and the driver's JVM have computed (on Linux)."""
    told, ticks = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat"), os.sysconf("SC_CLK_TCK")

    def computed() -> float:
        mine = time.process_time()
        if not told.exists():
            return mine
        own, system = told.read_text().rpartition(") ")[2].split()[11:13]
        return mine + (int(own) + int(system)) / ticks

    def timed() -> Timed:
        busy, began = computed(), time.perf_counter()
        run()
        ended = time.perf_counter()
        return ended - began, computed() - busy

    return timed


def _within(ratios: Sequence[float]) -> tuple[str, str]:
    middle, low, high = median_within(ratios)
    return f"{middle:.3f}", f"{low:.3f} .. {high:.3f}"


def decided(ratios: Sequence[float], least: float) -> str:
    """Whether the median of some ratios is at least so much; undecided where that might be chance.

    >>> [decided([ratio] * 9, 0.97) for ratio in (0.99, 0.95)]
    ['[green]0.990 met[/]', '[red]0.950 NOT MET[/]']
    >>> decided([0.9, 0.92, 0.95, 0.99, 1.02, 1.03, 1.1], 0.97)
    '0.990 undecided'
    """
    middle, low, high = median_within(ratios)
    return f"{middle:.3f} undecided" if low < least <= high else judged(f"{middle:.3f}", low >= least)
