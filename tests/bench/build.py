"""Building indexes, beside what the same data cost Spark anyway.

The scan reads the same columns into nothing (Spark's ``noop`` sink). One job a file is what an index build costs that
asks Spark for each file's bounds in turn: sampled, and scaled to all files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import functions as F

import geoskip
from geoskip import GeoBox, Index, MinMax
from geoskip.predicates import Column
from geoskip.sources.arrow_reader import read_files
from geoskip.sources.footers import IndexPlan
from tests.bench.measure import console, interleaved, judged, table
from tests.bench.sessions import flights, readings, session

SAMPLED = 20
FLIGHTS = (MinMax("delay"), MinMax("distance"), GeoBox("lng", "lat"))
READINGS = (MinMax("temp"), GeoBox("lng", "lat"))


def run() -> None:
    """Print the tables."""
    shown = table("Building, seconds", "", "geoskip", "compared with", "seconds", "ratio", "target")
    with console.status("measuring builds") as status:
        for what, folder, indexes in (
            ("3,000,000 flights in 400 files", flights(), FLIGHTS),
            ("1,000,000 readings in 10,000 files", readings(10_000), READINGS),
        ):
            shown.add_row(f"[bold]{what}[/]")
            status.update(f"building without Spark, {what}")
            both = [building_without(folder, indexes), building(folder, indexes)]
            without, built = interleaved(both, times=3, of=min)
            _row(shown, "  all of them, without Spark", without, "by Spark", built, at_most(without / built, 1.5))
            for chosen in (*((index,) for index in indexes if index != MinMax("distance")), indexes):
                named = " and ".join(map(str, chosen))
                status.update(f"building {named}, {what}")
                built, scanned = interleaved([building(folder, chosen), scanning(folder, chosen)], times=3, of=min)
                _row(shown, f"  {named}", built, "Spark scans the columns", scanned, at_most(built / scanned, 1.5))
        status.update("one job a file")
        apart = _one_job_a_file(readings(10_000)) * 10_000
        _row(shown, "", built, f"one job a file (of {SAMPLED})", apart, at_least(apart / built, 20))
        status.update("columns apart and together")
        _columns(shown)
        status.update("footers")
        _footers(shown)
    console.print(shown)


def building(folder: Path, indexes: Sequence[Index]) -> Callable[[int], geoskip.BuildReport]:
    """A run that builds these indexes anew."""

    def build(_: int) -> geoskip.BuildReport:
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
        return geoskip.dataset(session(), str(folder)).create_index(*indexes)

    return build


def building_without(folder: Path, indexes: Sequence[Index]) -> Callable[[int], geoskip.BuildReport]:
    """A run that builds these indexes anew in the threads of this process."""

    def build(_: int) -> geoskip.BuildReport:
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
        return geoskip.build(folder, indexes)

    return build


def scanning(folder: Path, indexes: Sequence[Index]) -> Any:
    """A run that reads the columns of these indexes into nothing."""
    columns = dict.fromkeys(text for index in indexes for text in index.expressions())

    def scan(_: int) -> None:
        with geoskip.disabled(session()):
            frame = session().read.parquet(str(folder)).selectExpr(*columns)
            frame.write.format("noop").mode("overwrite").save()

    return scan


def _one_job_a_file(folder: Path) -> float:
    """Seconds a file."""
    paths = sorted(folder.glob("*.parquet"))[: SAMPLED + 3]
    for number, path in enumerate(paths):
        if number == 3:
            started = time.perf_counter()
        frame = session().read.parquet(str(path))
        frame.agg(*(f(c) for c in ("temp", "lat", "lng") for f in (F.min, F.max))).collect()
    return (time.perf_counter() - started) / SAMPLED


def _columns(shown: Any) -> None:
    names = ("lat", "lng", "dest_lat", "dest_lng", "origin", "destination")
    folder = flights()
    together, *apart = interleaved(
        [building(folder, [MinMax(n) for n in names]), *(building(folder, [MinMax(n)]) for n in names)], times=1
    )
    _row(shown, "six columns, together", together, "apart", sum(apart), at_least(sum(apart) / together, 2))


def _footers(shown: Any) -> None:
    """The reading of files alone, in this process: bounds from footers, and others from data.

    Of a small file most of the time goes into opening it, for its footer, which reading its data needs as well.
    """
    doubles = ("lat", "double")
    for rows, folder, (name, kind) in (
        (500_000, readings(6, 500_000), ("id", "bigint")),
        (7_500, flights(), ("delay", "int")),
        (100, readings(10_000), ("id", "bigint")),
    ):
        paths = [(str(path), str(path)) for path in sorted(folder.glob("*.parquet"))[:1000]]
        plans = [IndexPlan(n, MinMax(n).bind([Column(n, k)]), ((n, k),)) for n, k in ((name, kind), doubles)]
        opened, footers, data = interleaved(
            [
                lambda _, paths=paths: [pq.read_metadata(path) for path, _ in paths],  # type: ignore[misc]
                *(lambda _, p=one, paths=paths: list(read_files(paths, [p], False)) for one in plans),
            ],
            times=5,
            of=min,
        )
        what = f"MinMax of {len(paths):,} files of {rows:,} rows, footers"
        _row(shown, what, footers, "from data, one core", data, at_least(data / footers, 10))
        _row(shown, "", footers, "opening them alone", opened, (f"{footers / opened:.1f}", ""))


def _row(shown: Any, what: str, ours: float, other: str, theirs: float, judged: tuple[str, str]) -> None:
    shown.add_row(what, f"{ours:.2f}", other, f"{theirs:.2f}", *judged)


def at_most(ratio: float, most: float) -> tuple[str, str]:
    """A ratio and its target."""
    return judged(f"{ratio:.2f}", ratio <= most), f"at most {most:g}"


def at_least(ratio: float, least: float) -> tuple[str, str]:
    """A ratio and its target."""
    return judged(f"{ratio:.1f}", ratio >= least), f"at least {least:g}"
