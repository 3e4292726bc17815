"""Lay the shipped data out as directories of some hundreds of Parquet files, as a data lake would hold them.

    python -m datasets.layout TARGET [NAME ...]

Each dataset comes twice, with the same rows and number of files: *clustered* in space, and *as it comes* (zip
codes by number, flights by departure). Clustering follows a Hilbert curve: zip codes by their own position,
flights by their origin's, then by departure, so that a large airport's files are slices of time and small
neighbours share one. Flights are joined to the positions of both airports here, file by file, so that memory
stays small; `lat` and `lng` are those of the origin. Their `time` is local there, labelled UTC because the
source names no zone.

Files are named ``part-00000.parquet`` and up, have one row group each, and hold types that every Spark reads.
A finished directory carries a stamp and is left alone from then on. No engine is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import ArrayLike, NDArray
from shapely.geometry.base import BaseGeometry

__all__ = [
    "LAYOUTS",
    "Layout",
    "counties",
    "counties_with_holes",
    "hilbert",
    "laid_out_once",
    "lay_out",
    "read",
    "states",
    "write_parts",
]

HERE = Path(__file__).parent
VERSION = 1  # raise it when the code below lays the same input out differently
STAMP = "_layout.json"  # hidden to Spark by its underscore
WRITERS = min(4, os.cpu_count() or 1)
MINUTES_A_DAY = 24 * 60
MICROSECONDS_A_MINUTE = 60_000_000

Rows = Callable[[NDArray[np.int64]], pa.Table]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Layout:
    """How one directory is filled: from which shipped file, in how many files, in which order."""

    source: str
    files: int
    clustered: bool


LAYOUTS: Mapping[str, Layout] = {
    "zipcodes_clustered": Layout("zipcodes", files=300, clustered=True),
    "zipcodes_asis": Layout("zipcodes", files=300, clustered=False),
    "flights_clustered": Layout("flights", files=400, clustered=True),
    "flights_asis": Layout("flights", files=400, clustered=False),
}


def lay_out(target: Path, *, which: Iterable[str] | None = None, progress: Progress | None = None) -> dict[str, Path]:
    """Write the named layouts (default all) under `target` unless they are there; return name -> directory.

    `progress` is called with (name, files written, files of all) after each file.
    """
    names = list(LAYOUTS if which is None else which)
    if unknown := [name for name in names if name not in LAYOUTS]:
        raise ValueError(f"no layout is called {', '.join(unknown)}; there are {', '.join(LAYOUTS)}")
    return {name: _lay_out(Path(target) / name, LAYOUTS[name], progress) for name in names}


def _lay_out(folder: Path, layout: Layout, progress: Progress | None) -> Path:
    ordered, sources = _SOURCES[layout.source]
    stamp = {
        "version": VERSION,
        "files": layout.files,
        "clustered": layout.clustered,
        "sources": {name: hashlib.sha256(_shipped(name).read_bytes()).hexdigest() for name in sources},
    }

    def write(empty: Path) -> None:
        order, rows = ordered(layout.clustered)
        parts = np.array_split(order, layout.files)
        done = None if progress is None else lambda count: progress(folder.name, count, layout.files)
        write_parts(empty, layout.files, lambda number: rows(parts[number]), done=done)

    return laid_out_once(folder, stamp, write)


def _zipcodes(clustered: bool) -> tuple[NDArray[np.int64], Rows]:
    """The order of the shipped rows, and how some of them become a file's."""
    table = read("zipcodes")
    order = np.arange(len(table))
    if clustered:
        order = np.argsort(hilbert(table["lng"], table["lat"]), kind="stable")
    return order, table.take


def _flights(clustered: bool) -> tuple[NDArray[np.int64], Rows]:
    """The same for flights; `rows` also joins them to their airports."""
    table = read("flights", dictionaries=["origin", "destination"])
    airports = read("airports")
    iata = airports["iata"].combine_chunks()
    lng, lat = airports["lng"].to_numpy(), airports["lat"].to_numpy()
    along_curve = np.argsort(np.argsort(hilbert(lng, lat), kind="stable"))

    def airport(codes: pa.ChunkedArray) -> NDArray[np.int64]:
        """The airport's row for each code."""
        codes = codes.combine_chunks()
        return pc.index_in(codes.dictionary, value_set=iata).to_numpy()[codes.indices.to_numpy()]

    def rows(order: NDArray[np.int64]) -> pa.Table:
        part = table.take(order)
        origin, destination = airport(part["origin"]), airport(part["destination"])
        return pa.table(
            {
                "origin": part["origin"].cast(pa.string()),
                "destination": part["destination"].cast(pa.string()),
                "lat": lat[origin],
                "lng": lng[origin],
                "dest_lat": lat[destination],
                "dest_lng": lng[destination],
                "day": part["day"],
                "time": pa.array(_minutes(part) * MICROSECONDS_A_MINUTE, pa.timestamp("us", tz="UTC")),
                "delay": part["delay"].cast(pa.int32()),
                "distance": part["distance"].cast(pa.int32()),
            }
        )

    key = _minutes(table)
    if clustered:
        key += along_curve[airport(table["origin"])] << 32
    return np.argsort(key, kind="stable"), rows


_SOURCES = {"zipcodes": (_zipcodes, ("zipcodes",)), "flights": (_flights, ("flights", "airports"))}


def _minutes(flights: pa.Table) -> NDArray[np.int64]:
    """Departures in local minutes since 1970."""
    days = flights["day"].cast(pa.int32()).to_numpy().astype(np.int64)
    return days * MINUTES_A_DAY + flights["minute"].to_numpy()


def hilbert(lng: ArrayLike, lat: ArrayLike, *, bits: int = 16) -> NDArray[np.int64]:
    """Where positions lie along a Hilbert curve over the globe, in cells of 360 / 2**bits degrees.

    Neighbours along the curve are neighbours on the map. (Warren, *Hacker's Delight*, chapter 16.)

    >>> hilbert([-179, -179, 179, 179], [-89, 89, 89, -89], bits=1).tolist()
    [0, 1, 2, 3]
    """
    side = 1 << bits
    x, y = (
        np.clip((np.asarray(degrees, float) + 180) / 360 * side, 0, side - 1).astype(np.int64) for degrees in (lng, lat)
    )
    along = np.zeros_like(x)
    for level in reversed(range(bits)):
        right, up = x >> level & 1, y >> level & 1
        along = along << 2 | (3 * right ^ up)
        # A quarter of the curve is the whole one turned: mirror its cells, then swap the axes.
        mirror, swap = (up == 0) & (right == 1), up == 0
        x, y = np.where(mirror, side - 1 - x, x), np.where(mirror, side - 1 - y, y)
        x, y = np.where(swap, y, x), np.where(swap, x, y)
    return along


def laid_out_once(folder: Path, stamp: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Have `write` fill `folder` unless its stamp says it has; return `folder`.

    It fills a directory beside `folder` that is then renamed: neither a crash nor a second process at work
    leaves a half-written one. A directory with another stamp is replaced; one without any is an error.
    """
    text = json.dumps(stamp, indent=1, sort_keys=True)
    if _stamp_of(folder) == text:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    filling = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        filling.chmod(0o755)
        write(filling)
        (filling / STAMP).write_text(text)
        if _stamp_of(folder) is not None:
            shutil.rmtree(folder, ignore_errors=True)
        try:
            filling.rename(folder)
        except OSError:
            if _stamp_of(folder) != text:  # else another process was quicker
                raise FileExistsError(f"{folder} was not laid out here; remove it or name another") from None
    finally:
        shutil.rmtree(filling, ignore_errors=True)
    return folder


def _stamp_of(folder: Path) -> str | None:
    try:
        return (folder / STAMP).read_text()
    except FileNotFoundError:
        return None


def write_parts(
    folder: Path, files: int, part: Callable[[int], pa.Table], *, done: Callable[[int], None] | None = None
) -> None:
    """Write tables 0 to `files` - 1 as one file each, a few at a time; `done` hears how many are written."""

    def write(number: int) -> None:
        table = part(number)
        pq.write_table(
            table,
            folder / f"part-{number:05}.parquet",
            compression="zstd",
            row_group_size=max(1, len(table)),
            store_schema=False,
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        for count, _ in enumerate(pool.map(write, range(files)), start=1):
            if done is not None:
                done(count)


def read(name: str, *, dictionaries: Iterable[str] = ()) -> pa.Table:
    """A shipped file by name, in one chunk: zipcodes, airports, states, counties, flights."""
    table = pq.read_table(_shipped(name), read_dictionary=list(dictionaries))
    return table.unify_dictionaries().combine_chunks()


def _shipped(name: str) -> Path:
    return HERE / f"{name}.parquet"


@cache
def states() -> Mapping[str, BaseGeometry]:
    """Name -> (multi)polygon in degrees, (lng, lat): ``states()["Indiana"]``."""
    return _shapes("states", "name")


@cache
def counties() -> Mapping[str, BaseGeometry]:
    """Full title, which is unique -> (multi)polygon: ``counties()["Sonoma County, California"]``."""
    return _shapes("counties", "title")


def _shapes(name: str, key: str) -> Mapping[str, BaseGeometry]:
    table = read(name)
    return dict(zip(table[key].to_pylist(), shapely.from_wkb(table["geometry"].to_pylist()), strict=True))


def counties_with_holes() -> dict[str, int]:
    """Title -> number of holes, for the counties that have any; Virginia's hold cities with zip codes.

    >>> counties_with_holes()["Roanoke County, Virginia"]
    1
    """
    holes = {
        title: sum(len(polygon.interiors) for polygon in shapely.get_parts(shape))
        for title, shape in counties().items()
    }
    return {title: count for title, count in holes.items() if count}


def main(arguments: list[str] | None = None) -> None:
    """Lay out under the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Lay the shipped data out in hundreds of Parquet files.")
    parser.add_argument("target", type=Path)
    parser.add_argument("which", nargs="*", metavar="NAME", help=f"of {', '.join(LAYOUTS)}; default all")
    named = parser.parse_args(arguments)
    for name, folder in lay_out(named.target, which=named.which or None).items():
        files = list(folder.glob("*.parquet"))
        print(f"{name:20} {len(files):4} files {sum(file.stat().st_size for file in files):>11,} bytes")


if __name__ == "__main__":
    main()
