"""All kinds of index over one data set: built together and apart, and what they store beside the data.

2,000 files of 2,000 readings. The scan reads the columns of all of them into nothing. A part of the text of a city is
extracted by SQL, which Spark computes from what the tasks read. One job builds them all, since the distances are from
origins that are given; a row of its own has origins that are chosen, for which some files are read before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import geoskip
from geoskip import (
    BloomFilter,
    Formatted,
    GapList,
    GeoBox,
    Hybrid,
    Index,
    MetricDist,
    MinMax,
    Prefix,
    Suffix,
    ValueList,
)
from tests.bench.build import at_least, building, scanning
from tests.bench.measure import console, interleaved, table
from tests.bench.sessions import jobs_of, readings, session

__all__ = ["run"]

FILES, ROWS = 2_000, 2_000
INITIAL = "substring({}, 1, 3)"
KINDS: tuple[Index, ...] = (
    MinMax("temp"),
    GapList("temp"),
    GeoBox("lng", "lat"),
    BloomFilter("id"),
    ValueList("city"),
    Hybrid("id"),
    Prefix("city"),
    Suffix("city"),
    Formatted("city", extract=INITIAL),
    MetricDist(
        "lng", "lat", metric="haversine", origins=[(x, y) for x in (-135, -45, 45, 135) for y in (-60, -20, 20, 60)]
    ),
)
CHOOSING = MetricDist("lng", "lat", metric="haversine")


def run() -> None:
    """Print the table."""
    folder = readings(FILES, ROWS)
    data = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    shown = table(
        f"All kinds over {FILES:,} files of {ROWS:,} rows, {data / 2**20:.0f} MiB", "", "seconds", "metadata KiB",
        "of the data", "files of it with",
    )  # fmt: skip
    apart = 0.0
    with console.status("measuring kinds") as status:
        for index in KINDS:
            status.update(str(index))
            (seconds,) = interleaved([building(folder, [index])], times=1)
            apart += seconds
            shown.add_row(str(index), f"{seconds:.2f}", *_stored(folder, [index], data))
        status.update("together")
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
        handle = geoskip.dataset(session(), str(folder))  # for which Spark looks for the columns
        with jobs(1):
            handle.create_index(*KINDS)
        together, scanned = interleaved([building(folder, KINDS), scanning(folder, KINDS)], times=1, warm=0)
        (chosen,) = interleaved([building(folder, [CHOOSING])], times=1)
    shown.add_section()
    shown.add_row("apart, in all", f"{apart:.2f}")
    shown.add_row("together, in one job", f"{together:.2f}", *_stored(folder, KINDS, data))
    shown.add_row("Spark scans the columns", f"{scanned:.2f}")
    shown.add_row("origins that are chosen", f"{chosen:.2f}", *_stored(folder, [CHOOSING], data))
    console.print(shown)
    console.print("apart / together:", *at_least(apart / together, 2))


@contextmanager
def jobs(most: int) -> Iterator[None]:
    """A block that begins so many Spark jobs at most."""
    before = jobs_of(session())
    yield
    begun = jobs_of(session()) - before
    if begun > most:
        raise AssertionError(f"{begun} Spark jobs built what {most} should")


def _stored(folder: Path, indexes: tuple[Index, ...] | list[Index], data: int) -> list[str]:
    report = building(folder, indexes)(0)
    stored = sum(report.metadata_bytes.get(str(index), 0) for index in indexes)
    told = "; ".join(report.details.values()) if len(indexes) == 1 else ""
    return [f"{stored / 1024:,.1f}", f"{stored / data:.2%}", told or f"{report.files:,} summaries"]
