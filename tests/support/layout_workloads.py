"""Data, queries and a measure for layouts: the files that points and ranges read, by true bounds.

All layouts are measured in the same way. A query reads a file if the ranges of all its columns meet the least and
greatest value in the file. Columns are integers here, the ranks of their values among the distinct ones, so that bounds
of long strings are not truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datasets.layout import read
from datasets.weblog import part

Ints = NDArray[np.int64]

QUERIES = 200
SHARES = {"range 0.1 %": 0.001, "range 1 %": 0.01, "range 10 %": 0.1}
KINDS = tuple(f"{kind}, {where}" for where in ("one column", "all columns") for kind in ("point", *SHARES))
"""Queries on one column each, on every column in turn, and on all columns at once."""


@dataclass(frozen=True)
class Ranges:
    """Queries as arrays of shape (queries, columns), inclusive; an unused column has its whole range."""

    low: Ints
    high: Ints


@dataclass(frozen=True)
class LayoutWorkload:
    """A table, the columns that queries filter, and whether the first two are a position on a map."""

    name: str
    rows: Callable[[], pa.Table]
    columns: tuple[str, ...]
    is_spatial: bool = False


def codes_of(column: pa.ChunkedArray, distinct: pa.Array) -> Ints:
    """The rank of each value among the distinct ones, which are ascending."""
    return np.asarray(pc.index_in(column, value_set=distinct).to_numpy(zero_copy_only=False), dtype=np.int64)


def distinct_of(column: pa.ChunkedArray) -> pa.Array:
    """The distinct values, ascending."""
    found = column.unique()
    return found.take(pc.array_sort_indices(found))


def ranges(codes: Ints, kind: str, *, queries: int = QUERIES, seed: int = 17) -> Ranges:
    """Create seeded queries over rows of shape (columns, rows).

    A point has the values of a row drawn at random, of one column or of all columns. A range on one column contains its
    share of the rows and begins anywhere; on all columns it contains the share of each column's rows, around a row
    drawn at random.
    """
    random = np.random.default_rng(seed)
    columns, rows = codes.shape
    ordered = np.sort(codes, axis=1)
    shape, where = kind.split(", ")
    width = 0 if shape == "point" else max(1, round(SHARES[shape] * rows))
    low = np.tile(ordered[:, 0], (queries, 1))
    high = np.tile(ordered[:, -1], (queries, 1))
    for number, row in enumerate(random.integers(rows, size=queries).tolist()):
        for column in range(columns) if where == "all columns" else [number % columns]:
            if not width:
                low[number, column] = high[number, column] = codes[column, row]
                continue
            if where == "one column":
                start = int(random.integers(rows - width + 1))
            else:
                first, last = (int(np.searchsorted(ordered[column], codes[column, row], s)) for s in ("left", "right"))
                start = min(max(0, int(random.integers(first, last)) - width // 2), rows - width)
            low[number, column], high[number, column] = ordered[column, start], ordered[column, start + width - 1]
    return Ranges(low, high)


def bounds_of_files(codes: Ints, files: Ints) -> tuple[Ints, Ints]:
    """The least and greatest code of each column and file: two of shape (files, columns)."""
    order = np.argsort(files, kind="stable")
    starts = np.flatnonzero(np.diff(files[order], prepend=-1))
    ordered = codes[:, order]
    return np.minimum.reduceat(ordered, starts, axis=1).T, np.maximum.reduceat(ordered, starts, axis=1).T


def files_read(queries: Ranges, low: Ints, high: Ints) -> NDArray[np.int64]:
    """The number of files that each query reads, from bounds of shape (files, columns)."""
    return np.asarray(_meets(queries, low, high).sum(axis=1))


def share_read(queries: Ranges, low: Ints, high: Ints, rows: Ints) -> float:
    """The mean share of the rows in the files that queries read; if all files are equal, of the files.

    Counting files would favour a layout that puts half of the rows into one file.
    """
    return float((_meets(queries, low, high) @ rows).mean() / rows.sum())


def _meets(queries: Ranges, low: Ints, high: Ints) -> NDArray[np.bool_]:
    meets = (queries.low[:, None] <= high[None]) & (low[None] <= queries.high[:, None])
    return np.asarray(meets.all(axis=2))


def files_needed(queries: Ranges, codes: Ints, files: int) -> NDArray[np.float64]:
    """The least number of files for each query's rows: rows needed by rows per file, at least 1."""
    found = np.empty(len(queries.low))
    for number, (low, high) in enumerate(zip(queries.low, queries.high, strict=True)):
        found[number] = ((codes >= low[:, None]) & (codes <= high[:, None])).all(axis=0).sum()
    return np.maximum(1.0, np.ceil(found * files / codes.shape[1]))


def written_bounds(
    paths: Sequence[Path], columns: Sequence[str], distinct: Sequence[pa.Array]
) -> tuple[Ints, Ints, Ints]:
    """Bounds of written files as codes, from their values instead of footers, and their row counts."""
    low, high, rows = [], [], []
    for path in paths:
        held = pq.read_table(path, columns=list(columns), partitioning=None)
        rows.append(len(held))
        codes = [codes_of(held[name].cast(values.type), values) for name, values in zip(columns, distinct, strict=True)]
        low.append([each.min() for each in codes])
        high.append([each.max() for each in codes])
    return np.array(low, np.int64), np.array(high, np.int64), np.array(rows, np.int64)


# --- data -------------------------------------------------------------------------------------------------------------

ROWS = 128_000


@cache
def uniform() -> pa.Table:
    """The experiment of Impala: four columns of uniform random numbers."""
    random = np.random.default_rng(1)
    return pa.table({name: random.integers(1_000_000_000, size=ROWS) for name in "abcd"})


@cache
def skewed() -> pa.Table:
    """Four columns by Zipf's law: the commonest value has one row in four to ten, the rarest one row.

    Ranks are shuffled, so that frequent values are not the least.
    """
    random = np.random.default_rng(2)
    names = random.permutation(1_000_000)
    exponents = {"a": 1.3, "b": 1.2, "c": 1.4, "d": 1.15}
    return pa.table({name: names[random.zipf(s, ROWS) % 1_000_000] for name, s in exponents.items()})


@cache
def prefixed() -> pa.Table:
    """Strings with nearly equal prefixes of sixty bytes."""
    random = np.random.default_rng(3)
    hosts = [f"https://storage.example.com/warehouse/production/tenants/{'x' * 8}/{n:02}" for n in range(3)]
    columns = {}
    for name, count in (("path", 40_000), ("owner", 900), ("key", 128_000)):
        numbers = random.integers(count, size=ROWS)
        columns[name] = [f"{hosts[n % 3]}/{name}/{n:09}" for n in numbers.tolist()]
    return pa.table(columns)


@cache
def zip_codes() -> pa.Table:
    """The zip codes, shuffled; a missing county is an empty name."""
    rows = read("zipcodes")
    rows = rows.set_column(rows.schema.get_field_index("county"), "county", pc.fill_null(rows["county"], ""))
    return rows.take(np.random.default_rng(4).permutation(len(rows)))


@cache
def flights() -> pa.Table:
    """Flights drawn at random, with the positions of both airports."""
    rows = read("flights")
    random = np.random.default_rng(5)
    rows = rows.take(random.choice(len(rows), ROWS, replace=False))
    airports = read("airports")
    found = {name: rows[name] for name in ("origin", "destination", "day", "minute", "delay", "distance")}
    for name, end in (("", "origin"), ("dest_", "destination")):
        place = pc.index_in(rows[end], value_set=airports["iata"])
        found |= {f"{name}{axis}": airports[axis].take(place) for axis in ("lng", "lat")}
    table = pa.table(found)
    return table.filter(pc.is_valid(table["delay"]))


@cache
def web_log() -> pa.Table:
    """Two weeks of a web log, shuffled."""
    days, files = 14, 4
    table = pa.concat_tables(part(day, share, files, ROWS // days, 0) for day in range(days) for share in range(files))
    return table.take(np.random.default_rng(6).permutation(len(table)))


WORKLOADS = (
    LayoutWorkload("uniform", uniform, ("a", "b")),
    LayoutWorkload("uniform", uniform, ("a", "b", "c")),
    LayoutWorkload("uniform", uniform, ("a", "b", "c", "d")),
    LayoutWorkload("skewed", skewed, ("a", "b")),
    LayoutWorkload("skewed", skewed, ("a", "b", "c")),
    LayoutWorkload("skewed", skewed, ("a", "b", "c", "d")),
    LayoutWorkload("prefixes", prefixed, ("path", "owner")),
    LayoutWorkload("prefixes", prefixed, ("path", "owner", "key")),
    LayoutWorkload("zip codes", zip_codes, ("lng", "lat"), is_spatial=True),
    LayoutWorkload("zip codes", zip_codes, ("lng", "lat", "zip"), is_spatial=True),
    LayoutWorkload("zip codes", zip_codes, ("lng", "lat", "state", "county"), is_spatial=True),
    LayoutWorkload("flights", flights, ("lng", "lat"), is_spatial=True),
    LayoutWorkload("flights", flights, ("lng", "lat", "minute"), is_spatial=True),
    LayoutWorkload("flights", flights, ("lng", "lat", "dest_lng", "dest_lat"), is_spatial=True),
    LayoutWorkload("flights", flights, ("origin", "destination", "day", "delay")),
    LayoutWorkload("web log", web_log, ("account", "time")),
    LayoutWorkload("web log", web_log, ("account", "path", "time")),
    LayoutWorkload("web log", web_log, ("account", "path", "time", "bytes")),
)
