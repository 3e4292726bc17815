"""Figure 9 of the paper: ST_Contains over windows of 1 to 12 months of five years of weather, with geoskip off and on.

The query asks for what was measured in the Research Triangle. Spark prunes the months either way, and reads Parquet's
statistics, which say nothing of ST_Contains: with geoskip off every file of the window is read. Each window is asked
once without geoskip, and with it the median of some runs counts, all with the same rows.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import geoskip
from datasets.generate_weather import FIRST_MONTH
from examples.demo_queries import TRIANGLE
from geoskip import GeoBox, Report
from tests.bench.measure import console, interleaved, judged, table
from tests.bench.sessions import MONTHS, functions, months, session

__all__ = ["INSIDE", "between", "indexed", "run"]

WINDOWS = (1, 5, 12)
LEAST = {5: 240.0}
"""Times quicker, by the months of the window."""
LEAST_BYTES = 100
INSIDE = f"ST_Contains(ST_GeomFromText('{TRIANGLE}'), ST_Point(lng, lat))"
TIMES = 7
_ARROW = "spark.sql.execution.arrow.pyspark.enabled"


def run() -> None:
    """Print the table."""
    spark = session()
    with console.status("indexing the weather") as status, _by_arrow(spark):
        report = indexed(spark)
        console.print(
            f"{report.files:,} files of {MONTHS} months, {report.rows:,} rows, {report.bytes / 1e9:.1f} GB, indexed in "
            f"{report.seconds:.0f} s: {sum(report.metadata_bytes.values()) / 1e6:.2f} MB of metadata; ST_ functions: "
            f"{functions(spark)}"
        )
        shown = table(
            "Figure 9: ST_Contains with a window in time", "months", "rows", "files off", "files on", "MB off", "MB on",
            "bytes off / on", "seconds off", "on", "off / on", "target",
        )  # fmt: skip
        gaps, ratios = [], []
        _off(spark, "month = '2018-01'")  # Sedona's first use
        _on(spark, between(1))
        for window in WINDOWS:
            status.update(f"{window} months")
            off, expected, all_read = _off(spark, between(window))
            console.print(f"{window} months, seconds off: {off:.2f}")
            each, found, read = _on(spark, between(window))
            console.print(f"{window} months, seconds on, each run:", " ".join(f"{on:.3f}" for on in each))
            on = statistics.median(each)
            if not expected.equals(found):
                raise AssertionError(f"{window} months: the rows differ")
            gaps.append(off / on)
            ratios.append(all_read.bytes_kept / read.bytes_kept)
            least = LEAST.get(window)
            shown.add_row(
                str(window), f"{len(found):,}", f"{all_read.files_kept:,}", f"{read.files_kept:,}",
                f"{all_read.bytes_kept / 1e6:,.1f}", f"{read.bytes_kept / 1e6:.2f}",
                judged(f"{ratios[-1]:.0f}", ratios[-1] > LEAST_BYTES), f"{off:.2f}", f"{on:.3f}",
                f"{gaps[-1]:.0f}" if least is None else judged(f"{gaps[-1]:.0f}", gaps[-1] >= least),
                "" if least is None else f"at least {least:g}",
            )  # fmt: skip
    console.print(shown)
    growing = all(before < after for before, after in pairwise(gaps))
    console.print("The gap grows with the window:", judged(" < ".join(f"{gap:.0f}" for gap in gaps), growing))


def between(window: int) -> str:
    """A condition on so many months of the second year."""
    first = FIRST_MONTH + 12
    return f"month BETWEEN '{first}' AND '{first + window - 1}'"


def indexed(spark: Any) -> geoskip.BuildReport:
    """The weather with one box a file, as the view ``weather``."""
    folder = months()
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    report = geoskip.dataset(spark, str(folder)).create_index(GeoBox("lng", "lat", boxes=1))
    spark.read.schema(_SCHEMA).parquet(str(folder)).createOrReplaceTempView("weather")
    return report


_SCHEMA = (
    "lat double, lng double, time timestamp, temp double, wind double, rain double, pressure double, "
    "humidity double, month string"
)


@contextmanager
def _by_arrow(spark: Any) -> Iterator[None]:
    """A block in which rows come here by Arrow, off and on: one by one it takes longer than to find them."""
    spark.conf.set(_ARROW, "true")
    try:
        yield
    finally:
        spark.conf.unset(_ARROW)


def _asked(spark: Any, window: str) -> Any:
    return spark.sql(f"SELECT * FROM weather WHERE {INSIDE} AND {window}")


def _off(spark: Any, window: str) -> tuple[float, Any, Report]:
    with geoskip.disabled(spark):
        began = time.perf_counter()
        frame = _asked(spark, window)
        rows = frame.toPandas()
        return time.perf_counter() - began, _ordered(rows), geoskip.report(frame)


def _on(spark: Any, window: str) -> tuple[list[float], Any, Report]:
    found: list[tuple[float, Any, Any]] = []

    def ask(_: int) -> None:
        began = time.perf_counter()
        frame = _asked(spark, window)
        rows = frame.toPandas()
        found.append((time.perf_counter() - began, frame, rows))

    interleaved([ask], times=TIMES, warm=2)
    _, frame, rows = found[-1]
    return [seconds for seconds, _, _ in found[-TIMES:]], _ordered(rows), geoskip.report(frame)


def _ordered(rows: Any) -> Any:
    return rows.sort_values(list(rows.columns), ignore_index=True)
