"""Seeded hourly weather on a grid over the United States, for the benchmark: one month, and years made of it.

    python -m datasets.generate_weather TARGET [--months 60] [--files 2048] [--hours 744] [--seed 0]

The same arguments write the same rows. Its shape is that of the weather of Extensible Data Skipping, section V: points
of a grid, measured every hour, partitioned in space by a kd-tree (a file is a leaf of it). One month is written, and
the others are hard links to its files, in a folder each (``month=2019-01``): the paper extrapolates so as well.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.layout import laid_out_once, write_parts

__all__ = ["FIRST_MONTH", "weather"]

VERSION = 1  # raise it when the code below writes other rows for the same arguments
FIRST_MONTH = np.datetime64("2019-01", "M")
WEST, SOUTH, EAST, NORTH = -125.0, 24.0, -66.0, 50.0
STEP = 0.125
"""Degrees between the points of the grid."""


def weather(
    target: Path,
    months: int = 60,
    *,
    files: int = 2048,
    hours: int = 744,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Fill the directory `target` with so many months of `files` files, a power of two, unless it is; return it.

    Columns: lat, lng double, time timestamp, temp, wind, rain, pressure, humidity double, and the partition month.
    `progress` is as for `lay_out`.
    """
    if files & (files - 1):
        raise ValueError(f"a kd-tree has a power of two leaves, not {files}")
    stamp = {"version": VERSION, "months": months, "files": files, "hours": hours, "seed": seed}

    def write(empty: Path) -> None:
        done = None if progress is None else lambda count: progress(target.name, count, files)
        leaves = kd_leaves(*grid(), files)
        first, *others = [empty / f"month={FIRST_MONTH + number}" for number in range(months)]
        first.mkdir()
        write_parts(first, files, lambda number: _measured(*leaves[number], number, hours, seed), done=done)
        for month in others:
            month.mkdir()
            for file in first.iterdir():
                os.link(file, month / file.name)

    return laid_out_once(Path(target), stamp, write)


def grid() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The longitudes and latitudes of all points."""
    lng, lat = np.meshgrid(np.arange(WEST, EAST, STEP), np.arange(SOUTH, NORTH, STEP))
    return lng.ravel(), lat.ravel()


def kd_leaves(
    lng: NDArray[np.float64], lat: NDArray[np.float64], count: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The points halved at their median, across the longer side, until there are so many parts.

    >>> [len(part[0]) for part in kd_leaves(np.arange(8.0), np.zeros(8), 4)]
    [2, 2, 2, 2]
    """
    if count == 1:
        return [(lng, lat)]
    order = np.argsort(lng if np.ptp(lng) >= np.ptp(lat) else lat, kind="stable")
    halves = np.array_split(order, 2)
    return [leaf for half in halves for leaf in kd_leaves(lng[half], lat[half], count // 2)]


def _measured(lng: NDArray[np.float64], lat: NDArray[np.float64], number: int, hours: int, seed: int) -> pa.Table:
    """What all points of a leaf measured, hour by hour from the first of the month."""
    random = np.random.default_rng([seed, number])
    rows = hours * len(lng)
    hour, point = np.divmod(np.arange(rows), len(lng))
    here = lat[point]
    sun = np.cos((hour % 24 - 15) / 24 * 2 * np.pi)
    start = FIRST_MONTH.astype("datetime64[us]")
    return pa.table(
        {
            "lat": here,
            "lng": lng[point],
            "time": pa.array(start + hour * np.timedelta64(3_600_000_000, "us"), pa.timestamp("us", tz="UTC")),
            "temp": (28 - 0.7 * (here - SOUTH) + 5 * sun + random.normal(0, 2, rows)).round(1),
            "wind": random.gamma(2, 2, rows).round(1),
            "rain": np.where(random.random(rows) < 0.05, random.gamma(1, 3, rows), 0).round(1),
            "pressure": (1013 + random.normal(0, 6, rows)).round(1),
            "humidity": random.uniform(20, 100, rows).round(),
        }
    )


def main(arguments: list[str] | None = None) -> None:
    """Generate into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write years of hourly weather as Parquet files.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--months", type=int, default=60)
    parser.add_argument("--files", type=int, default=2048, help="a month; a power of two")
    parser.add_argument("--hours", type=int, default=744, help="of the month")
    parser.add_argument("--seed", type=int, default=0)
    named = parser.parse_args(arguments)
    print(weather(named.target, named.months, files=named.files, hours=named.hours, seed=named.seed))


if __name__ == "__main__":
    main()
