"""Figure 8 of the paper: four equality queries for eight columns, with no index, ValueList, BloomFilter and Hybrid.

The values are those that 90 %, 50 %, 10 % and none of the others exceed in the number of files that hold them. *MB* are
the files read; *metadata* is what deciding takes of the query's time, the median of some runs, and *first* that of the
first query of all, which reads the metadata from disk.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads

import geoskip
from geoskip import BloomFilter, Hybrid, Index, Report, ValueList
from tests.bench.measure import console, interleaved, judged, table
from tests.bench.sessions import logs, session

__all__ = ["run"]

INDEXES: tuple[Index | None, ...] = (None, ValueList("db_name"), BloomFilter("db_name"), Hybrid("db_name"))
SHARES = (1.0, 0.9, 0.5, 0.0)
SELECTED = "time, account_name, db_name, http_request, user_agent, status, bytes_out, micros"
MOST_OF_THE_TIME = 0.10
TIMES = 5


def run() -> None:
    """Print the table."""
    spark, folder = session(), logs()
    values = _values(folder)
    shown = table(
        f"Figure 8: {len(list(folder.glob('*.parquet'))):,} files", "", "files read", "MB read", "seconds",
        "metadata ms", "first ms", "of the time",
    )  # fmt: skip
    read: dict[str, dict[str, int]] = {value: {} for value in values}
    with console.status("measuring equality") as status:
        for index in INDEXES:
            name = str(index or "none")
            status.update(name)
            shutil.rmtree(folder / "_geoskip", ignore_errors=True)
            if index is not None:
                geoskip.dataset(spark, str(folder)).create_index(index)
            spark.read.parquet(str(folder)).createOrReplaceTempView("logs")
            for number, value in enumerate(values):
                first, report, seconds, planning = _asked(spark, value, TIMES if index else 1)
                read[value][name] = report.bytes_kept
                row = [f"{name}, Q{number + 1}", f"{report.files_kept:,}", f"{report.bytes_kept / 1e6:.2f}"]
                shown.add_row(*row, f"{seconds:.3f}", *_metadata(planning, first, seconds, number) if index else ())
            shown.add_section()
    console.print(shown)
    lists, filters, either = (str(index) for index in INDEXES if index is not None)
    ordered = [found[lists] <= found[either] <= found[filters] for found in read.values()]
    console.print(
        f"Bytes of {lists} <= {either} <= {filters}:",
        judged(f"{sum(ordered)} of {len(ordered)} queries", all(ordered)),
    )


def _metadata(planning: float, first: float, seconds: float, number: int) -> list[str]:
    """What deciding takes, as text."""
    share = planning / seconds
    return [
        f"{1000 * planning:.1f}",
        "" if number else f"{1000 * first:.1f}",
        judged(f"{share:.1%}", share < MOST_OF_THE_TIME),
    ]


def _asked(spark: Any, value: str, times: int) -> tuple[float, Report, float, float]:
    """A query's first planning, its last report, and the medians of its seconds and of its planning."""
    reports: list[Report] = []

    def ask(_: int) -> None:
        frame = spark.sql(f"SELECT {SELECTED} FROM logs WHERE db_name = '{value}'")
        frame.toPandas()
        reports.append(geoskip.report(frame))

    (seconds,) = interleaved([ask], times=times, warm=1)
    planning = [report.scans[0].planning_seconds for report in reports]
    return planning[0], reports[-1], seconds, statistics.median(planning[1:])


def _values(folder: Path) -> list[str]:
    """Database names, of which the first are in the most files."""
    files: dict[str, int] = {}
    for fragment in pads.dataset(folder, exclude_invalid_files=False).get_fragments():
        for name in fragment.to_table(columns=["db_name"])["db_name"].unique().to_pylist():
            files[name] = files.get(name, 0) + 1
    ranked = sorted(files, key=lambda name: (files[name], name))
    return [ranked[round(share * (len(ranked) - 1))] for share in SHARES]
