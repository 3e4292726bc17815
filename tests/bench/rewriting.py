"""Figure 10 of the paper: the query of figure 9 rewritten by hand with BETWEEN, against geoskip and the query as it is.

The rewritten query lets Spark skip by Parquet's own statistics, for which it opens every file of the window. Here each
range of bytes that is read of a file is a request to an object store, and takes 25 ms (``distant.py``); the same
queries over the local files stand beside. geoskip begins with its metadata unread, and they count. The data are one day
of the weather in 512 files, since what is compared is the opening of files.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import shapely

import geoskip
from datasets.generate_weather import FIRST_MONTH, weather
from examples.demo_queries import TRIANGLE
from geoskip import GeoBox
from tests.bench.distant import Counted, distant
from tests.bench.measure import PLACE, console, judged, table
from tests.bench.sessions import session
from tests.bench.windows import INSIDE

__all__ = ["by_statistics", "run"]

LATENCY = 25
FILES = 512
LEAST_TIMES, LEAST_BYTES = 3.6, 1.6
SELECTED = "SELECT lat, lng, time, temp FROM weather_there WHERE "


def run() -> None:
    """Print the table."""
    spark = session()
    west, south, east, north = shapely.from_wkt(TRIANGLE).bounds
    rewritten = f"{INSIDE} AND lat BETWEEN {south} AND {north} AND lng BETWEEN {west} AND {east}"
    shown = table("Figure 10: rewritten with BETWEEN, against geoskip", "", "files kept", "requests", "MB", "seconds")
    with console.status("writing a day") as status:
        month = weather(PLACE / "weather-day", 1, files=FILES, hours=24) / f"month={FIRST_MONTH}"
        uri = f"distant://{month}"
        status.update("indexing it")
        shutil.rmtree(month / "_geoskip", ignore_errors=True)
        _indexed(spark, uri)
        for _ in range(2):
            _counted(spark, rewritten, 0, off=True)
            _counted(spark, INSIDE, 0)
        found = {}
        for latency in (LATENCY, 0):
            status.update(f"{latency} ms a request")
            found[latency, "rewritten"] = _counted(spark, rewritten, latency, off=True)
            _indexed(spark, uri)
            found[latency, "geoskip"] = _counted(spark, INSIDE, latency)
        kept = by_statistics(month, (west, south, east, north))
        for (latency, how), (seconds, counted, read, _) in found.items():
            files = f"{len(kept):,}" if how == "rewritten" else f"{len(read):,}"
            shown.add_row(
                f"{how}, {latency} ms a request" if latency else f"{how}, local", files, f"{counted.requests:,}",
                f"{counted.bytes / 1e6:.2f}", f"{seconds:.2f}",
            )  # fmt: skip
        shutil.rmtree(month / "_geoskip", ignore_errors=True)
    console.print(shown)
    before, after = found[LATENCY, "rewritten"], found[LATENCY, "geoskip"]
    if not before[3].equals(after[3]):
        raise AssertionError("the rows differ")
    names = {path.rpartition("/")[2] for path in after[2]}
    console.print("The same files are kept:", judged(f"{len(kept)} and {len(names)}", kept == names))
    for what, ratio, least in (
        (f"In time, at {LATENCY} ms a request", before[0] / after[0], LEAST_TIMES),
        ("In bytes", before[1].bytes / after[1].bytes, LEAST_BYTES),
    ):
        console.print(f"{what}:", judged(f"{ratio:.1f}", ratio >= least), f"at least {least:g}")


def by_statistics(folder: Path, bounds: tuple[float, float, float, float]) -> set[str]:
    """The names of the files of which a row group may hold a position in some bounds, by its statistics."""
    west, south, east, north = bounds
    wanted = {"lng": (west, east), "lat": (south, north)}
    kept = set()
    for path in folder.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        places = {metadata.schema.column(number).name: number for number in range(metadata.num_columns)}
        for group in range(metadata.num_row_groups):
            told = {name: metadata.row_group(group).column(places[name]).statistics for name in wanted}
            if all(told[name].min <= high and told[name].max >= low for name, (low, high) in wanted.items()):
                kept.add(path.name)
    return kept


def _counted(spark: Any, condition: str, latency: int, *, off: bool = False) -> tuple[float, Counted, list[str], Any]:
    """Seconds, requests and bytes, the files that a report has kept, and the rows."""
    with distant(spark, latency) as counted:
        began = time.perf_counter()
        if off:
            with geoskip.disabled(spark):
                rows = spark.sql(SELECTED + condition).toPandas()
                files: list[str] = []
        else:
            frame = spark.sql(SELECTED + condition)
            rows = frame.toPandas()
        seconds = time.perf_counter() - began
    if not off:
        files = geoskip.report(frame).scans[0].kept_files()
    return seconds, counted, files, rows.sort_values(list(rows.columns), ignore_index=True)


def _indexed(spark: Any, uri: str) -> None:
    """One box a file, in a snapshot that no query has read yet."""
    with distant(spark, 0):
        geoskip.dataset(spark, uri).create_index(GeoBox("lng", "lat", boxes=1))
        spark.read.parquet(uri).createOrReplaceTempView("weather_there")
