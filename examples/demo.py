"""Real queries over real data, with geoskip off and on: ``make demo``.

Lays the shipped zip codes and flights out as Parquet files in ``.demo/``, once clustered in space and once as they
come, indexes them, runs every query both ways, checks that the rows are equal and prints one table.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import geoskip
from datasets.layout import LAYOUTS, lay_out
from datasets.weblog import weblog
from examples.demo_queries import INDEXES, Query, queries, register_own, register_paper
from geoskip import Report

PLACE = Path(__file__).resolve().parent.parent / ".demo"
CONFIG = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
MAVEN = "https://repo1.maven.org/maven2"
CHEAP = 0.5
"""Seconds, off and on together: what takes less is run twice."""
WORDS = {"clustered": "clustered in space", "asis": "as they come", "": "by day and account"}
LINES, DAYS, FILES_A_DAY = 20_000, 3, 10
"""Of the web log."""


class RowsDiffer(AssertionError):
    """The one thing that must never happen."""


@dataclass(frozen=True)
class Outcome:
    """One query over one layout, off and on."""

    query: Query
    layout: str
    rows: int
    off: float
    on: float
    report: Report


def compare(
    sessions: dict[bool, SparkSession], query: Query, layout: str, *, repeat: int = 2, warm: bool = False
) -> Outcome:
    """Run a query with geoskip off and on, in turn; raises RowsDiffer where the rows are not the same.

    ``warm`` runs it once before: to start Python's workers, and have the JVM compile what all runs need.
    """
    spark = sessions[query.paper]
    if warm:
        _run(spark, query.sql)
    offs: list[float] = []
    ons: list[float] = []
    for _ in range(repeat):
        with geoskip.disabled(spark):
            expected, seconds, _ = _run(spark, query.sql)
        offs.append(seconds)
        found, seconds, frame = _run(spark, query.sql)
        ons.append(seconds)
        _check(query, layout, expected, found)
        if seconds + offs[-1] > CHEAP:
            break
    off, on = statistics.median(offs), statistics.median(ons)
    return Outcome(query, layout, len(found), off, on, geoskip.report(frame))


def _run(spark: SparkSession, sql: str) -> tuple[pd.DataFrame, float, DataFrame]:
    started = time.perf_counter()
    frame = spark.sql(sql)
    rows = frame.toPandas()
    return rows, time.perf_counter() - started, frame


def _check(query: Query, layout: str, expected: pd.DataFrame, found: pd.DataFrame) -> None:
    before, after = (rows.sort_values(list(rows.columns), ignore_index=True) for rows in (expected, found))
    if not before.equals(after):
        raise RowsDiffer(
            f"{query.title} over {layout}: {len(expected):,} rows with geoskip off, {len(found):,} rows with it on, "
            f"and they differ; please report this query:\n{query.sql[:2000]}"
        )


def with_views(sessions: Iterable[SparkSession], folder: Path, name: str) -> None:
    """Make ``zipcodes`` or ``flights`` mean one layout."""
    for spark in sessions:
        spark.read.parquet(str(folder)).createOrReplaceTempView(name.partition("_")[0])


# ---- what is printed


def table(outcomes: list[Outcome]) -> Table:
    """One row a query and layout."""
    shown = Table(title="\nThe same rows, from fewer files", title_justify="left", header_style="bold")
    shown.add_column("query", min_width=28)
    for head in ("rows", "files read", "MB read", "seconds off", "on", "ratio"):
        shown.add_column(head, justify="right", no_wrap=True)
    layout = ""
    for one in outcomes:
        if one.layout != layout:
            layout = one.layout
            shown.add_section()
            shown.add_row(f"[bold]{_title(layout)}[/]")
        report = one.report
        shown.add_row(
            "  " + one.query.title,
            f"{one.rows:,}",
            f"{report.files_kept:,} of {report.files_total:,}",
            f"{report.bytes_kept / 1e6:.2f} of {report.bytes_total / 1e6:.2f}",
            f"{one.off:.2f}",
            f"{one.on:.2f}",
            f"{one.off / one.on:.1f}",
        )
    return shown


def _title(layout: str) -> str:
    name, _, order = layout.partition("_")
    rows = {"zipcodes": "42,049 zip codes", "flights": "3,000,000 flights", "weblog": f"{LINES:,} lines of a web log"}
    return f"{rows[name]}, {WORDS[order]}"


def _clauses(outcomes: list[Outcome]) -> Iterator[str]:
    """Which clause skipped what, layout by layout."""
    layout = ""
    for one in outcomes:
        if one.layout != layout:
            layout = one.layout
            yield f"\n[bold]Files that each clause alone skips, {_title(layout)}[/]"
        effects = [(text, count) for scan in one.report.scans for text, count in scan.clauses() if count]
        yield f"  {escape(one.query.title)}"
        for text, count in effects:
            yield f"    [cyan]{count:>4}[/] {escape(text)}"
        if not effects:
            yield "    none skips a file"
        for reason in one.report.reasons:
            yield f"         {escape(reason)}"


# ---- Spark and Sedona


def session(console: Console) -> SparkSession:
    """A session with Sedona's functions, or with the shapely-backed ones where its jar cannot be had."""
    PLACE.mkdir(exist_ok=True)
    log = PLACE / "spark.log"
    why = _no_sedona()
    if why is None:
        try:
            with console.status("Starting Spark with Sedona (its jar is fetched the first time)"), _noise_in(log):
                return _session(sedona=True)
        except Exception as error:
            why = f"{type(error).__name__}; see {log.name} in {PLACE.name}/"
    console.print(f"Sedona's jar cannot be had ({why}): using the shapely-backed ST_ functions.", highlight=False)
    with console.status("Starting Spark"), _noise_in(log):
        return _session(sedona=None)


def _session(sedona: bool | None) -> SparkSession:
    spark = geoskip.session("geoskip-demo", sedona=sedona, config=CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _no_sedona() -> str | None:
    """Why Sedona's jar cannot be had, None where it is here already or the repository has it."""
    try:
        import sedona  # noqa: F401

        from geoskip.spark.st_functions import candidates

        releases = [[package.split(":") for package in packages] for packages in candidates()]
    except (ImportError, geoskip.GeoskipError) as error:
        return str(error)
    for names in releases:
        jars = [f"{group}_{artifact}-{version}.jar" for group, artifact, version in names]
        if any(all((place / jar).exists() for jar in jars) for place in Path.home().glob(".ivy2*/jars")):
            return None
    why = ""
    for (group, artifact, version), *_ in releases:
        sought = f"{MAVEN}/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.pom"
        try:
            urllib.request.urlopen(urllib.request.Request(sought, method="HEAD"), timeout=10).close()
            return None
        except OSError as error:
            why = f"no answer from Maven's repository: {error}"
    return why


@contextmanager
def _noise_in(log: Path) -> Iterator[None]:
    """Send what the JVM started here writes to stderr into a file; Python's own stays where it was."""
    sys.stderr.flush()
    kept = os.dup(2)
    before, sys.stderr = sys.stderr, os.fdopen(os.dup(2), "w")
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        sys.stderr.close()
        sys.stderr = before


# ---- the demo


def _bars(console: Console) -> Progress:
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    return Progress(*columns, console=console, transient=True)


def _laid_out(console: Console) -> dict[str, Path]:
    total = sum(layout.files for layout in LAYOUTS.values()) + DAYS * FILES_A_DAY
    with _bars(console) as bars:
        bar = bars.add_task("writing Parquet files", total=total)

        def progress(name: str, count: int, total: int) -> None:
            bars.update(bar, description=f"writing {name}", advance=1)

        log = weblog(PLACE / "weblog", LINES, days=DAYS, files=FILES_A_DAY, progress=progress)
        return {**lay_out(PLACE, progress=progress), "weblog": log}


def main() -> None:
    """Lay out, index, run, compare, print."""
    started = time.perf_counter()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    folders = _laid_out(console)
    spark = session(console)
    register_own(spark)
    console.print(f"Spark {spark.version}, local[2]; ST_ functions: {_functions_of(spark)}", highlight=False)
    for name, folder in folders.items():
        report = geoskip.dataset(spark, str(folder)).create_index(*INDEXES[name.partition("_")[0]])
        console.print(f"[bold]{name}[/]: {report}", highlight=False)
    found = outcomes(console, spark, folders)
    console.print(table(found))
    for line in _clauses(found):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(
        f"\n{len(found)} queries, all with the same rows off and on; {time.perf_counter() - started:.0f} s in all.",
        highlight=False,
    )
    spark.stop()


def outcomes(console: Console, spark: SparkSession, folders: dict[str, Path]) -> list[Outcome]:
    """All queries over all of the layouts, off and on."""
    paper = spark.newSession()
    for key, value in CONFIG.items():
        if key.startswith("spark.sql."):
            paper.conf.set(key, value)
    register_paper(paper)
    sessions = {False: spark, True: paper}
    found: list[Outcome] = []
    todo = [
        (name, query)
        for name in folders
        for query in queries()
        if name.startswith(query.table) and (query.both or not name.endswith("_asis"))
    ]
    with _bars(console) as bars:
        bar = bars.add_task("queries", total=len(todo))
        for number, (name, query) in enumerate(todo):
            if number == 0 or todo[number - 1][0] != name:
                with_views(sessions.values(), folders[name], name)
            bars.update(bar, description=f"{name}: {query.title}")
            found.append(compare(sessions, query, name, warm=all(query.paper != other.query.paper for other in found)))
            bars.advance(bar)
    return found


def _functions_of(spark: SparkSession) -> str:
    """Which functions this session has, in words."""
    from geoskip.spark.st_functions import is_there, release

    return f"Apache Sedona {release(spark)}" if is_there(spark) else "shapely-backed, without Sedona"


if __name__ == "__main__":
    main()
