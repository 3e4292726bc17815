"""Seeded inputs for the benchmark, larger than what ships.

    python -m datasets.generate TARGET [--files 10000] [--rows 100] [--seed 0]

The same arguments write the same rows, whatever the number of processors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from datasets.layout import hilbert, laid_out_once, read, write_parts

__all__ = ["many_files"]

VERSION = 1  # raise it when the code below writes other rows for the same arguments
YEAR = np.datetime64("2024-01", "M")
CITIES_A_FILE = 2


def many_files(
    target: Path,
    files: int = 10_000,
    *,
    rows: int = 100,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Fill the directory `target` with temperature readings in small files, unless it is; return it.

    Columns: id bigint, temp, lat, lng double, city string, day date. A file holds two neighbouring zip codes
    in one month of 2024, and the files follow a Hilbert curve: bounds of any column say much about a file. A
    place lies in few files, a month in every twelfth. `progress` is as for `lay_out`.
    """
    stamp = {"version": VERSION, "files": files, "rows": rows, "seed": seed}

    def write(empty: Path) -> None:
        part = _readings(files, rows, seed)
        done = None if progress is None else lambda count: progress(target.name, count, files)
        write_parts(empty, files, part, done=done)

    return laid_out_once(Path(target), stamp, write)


def _readings(files: int, rows: int, seed: int) -> Callable[[int], pa.Table]:
    """What makes the table of file n, each from a random stream of its own: their order is of no account."""
    zipcodes = read("zipcodes")
    zipcodes = zipcodes.take(np.argsort(hilbert(zipcodes["lng"], zipcodes["lat"]), kind="stable"))
    city = zipcodes["city"].combine_chunks()
    lng, lat = zipcodes["lng"].to_numpy(), zipcodes["lat"].to_numpy()

    def part(number: int) -> pa.Table:
        random = np.random.default_rng([seed, number])
        first = number * (len(city) - CITIES_A_FILE + 1) // files
        place = first + random.integers(CITIES_A_FILE, size=rows)
        month = YEAR + number % 12
        days = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")
        day = month.astype("datetime64[D]") + np.sort(random.integers(days.astype(int), size=rows))
        here = lat[place] + random.normal(0, 0.01, rows)
        winter = np.cos((day - YEAR.astype("datetime64[D]")).astype(int) / 366 * 2 * np.pi)
        temp = 38 - 0.6 * abs(here) - 0.3 * here * winter + random.normal(0, 3, rows)
        return pa.table(
            {
                "id": np.arange(number * rows, (number + 1) * rows),
                "temp": temp.round(1),
                "lat": here,
                "lng": lng[place] + random.normal(0, 0.01, rows),
                "city": city.take(pa.array(place)),
                "day": pa.array(day),
            }
        )

    return part


def main(arguments: list[str] | None = None) -> None:
    """Generate into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write many small files of temperature readings.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100, help="a file")
    parser.add_argument("--seed", type=int, default=0)
    named = parser.parse_args(arguments)
    print(many_files(named.target, named.files, rows=named.rows, seed=named.seed))


if __name__ == "__main__":
    main()
