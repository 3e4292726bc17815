"""Seeded positions whose files mix clusters, for the benchmark: what one box a file says nothing about.

    python -m datasets.generate_mixed TARGET [--files 500] [--rows 600] [--clusters 3] [--seed 0]

The same arguments write the same rows. A file holds the tracks of some ships, say, that are far from one another.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa

from datasets.layout import laid_out_once, write_parts

__all__ = ["mixed"]

VERSION = 1  # raise it when the code below writes other rows for the same arguments
SPREAD = 0.15
"""Degrees: the standard deviation of a cluster."""


def mixed(target: Path, files: int = 500, *, rows: int = 600, clusters: int = 3, seed: int = 0) -> Path:
    """Fill the directory `target` with `files` files of `clusters` clusters each, unless it is; return it.

    Columns: lng, lat double; id bigint. Clusters lie anywhere from 180 degrees west to 180 east and 60 south to 60
    north, and their rows in no order.
    """
    stamp = {"version": VERSION, "files": files, "rows": rows, "clusters": clusters, "seed": seed}

    def part(number: int) -> pa.Table:
        random = np.random.default_rng([seed, number])
        of = random.integers(clusters, size=rows)
        lng, lat = random.uniform(-178, 178, clusters)[of], random.uniform(-60, 60, clusters)[of]
        return pa.table(
            {
                "lng": lng + np.clip(random.normal(0, SPREAD, rows), -1, 1),
                "lat": lat + np.clip(random.normal(0, SPREAD, rows), -1, 1),
                "id": np.arange(number * rows, (number + 1) * rows),
            }
        )

    return laid_out_once(Path(target), stamp, lambda empty: write_parts(empty, files, part))


def main(arguments: list[str] | None = None) -> None:
    """Generate into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write positions of which each file mixes clusters.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rows", type=int, default=600, help="a file")
    parser.add_argument("--clusters", type=int, default=3, help="a file")
    parser.add_argument("--seed", type=int, default=0)
    named = parser.parse_args(arguments)
    print(mixed(named.target, named.files, rows=named.rows, clusters=named.clusters, seed=named.seed))


if __name__ == "__main__":
    main()
