"""Planning queries on 100,000 files in a driver of 1 GB: what geoskip adds, a new literal each run, off and on in turn.

The files are ten hard links to each of 10,000. The driver is a process of its own, since the other sections' has 2 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import geoskip
from examples import demo
from tests.bench.measure import PLACE, console, table
from tests.bench.queries import QUERIES, asking, indexed, planned
from tests.bench.sessions import readings

__all__ = ["run"]

LINKS = 10
FILES = 10_000
ADDED = 0.060
ASKED = ("a range of MinMax", "a polygon and a range", "nothing is skipped")


def run() -> None:
    """Print the table."""
    _linked(readings(FILES))
    subprocess.run([sys.executable, "-c", f"from {__name__} import measured; measured()"], check=True)


def measured() -> None:
    """Print the table, from a driver of its own."""
    spark: Any = geoskip.session("geoskip-many", config={**demo.CONFIG, "spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("ERROR")
    found = table(
        f"Planning a query on {LINKS * FILES:,} files, milliseconds", "", "files read", "off", "on", "geoskip's own",
        f"added (target: at most {1000 * ADDED:g})",
    )  # fmt: skip
    with console.status("measuring planning") as status:
        status.update(f"indexing {LINKS * FILES:,} files")
        indexed(spark, _place())
        for what in ASKED:
            status.update(what)
            found.add_row(what, *planned(spark, asking(spark, QUERIES[what]), ADDED, times=9, warm=4))
    console.print(found)


def _place() -> Path:
    return PLACE / f"readings-{LINKS * FILES}"


def _linked(files: Path) -> None:
    target = _place()
    target.mkdir(exist_ok=True)
    for path in files.glob("*.parquet"):
        for number in range(LINKS):
            link = target / f"{path.stem}-{number}.parquet"
            if not link.exists():
                os.link(path, link)
