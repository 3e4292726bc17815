"""Conditions on a distance over synthetic files: what MetricDist costs a query, and what it leaves to scan.

*clause* is the evaluation to the files kept, warm, with another point each run. The floor compares the distances of 16
origins with two numbers each, file by file, which is all that must be done. The scanning factor is the share of the
files that a small ball keeps: in few dimensions a handful of origins tells places apart, in 64 it takes hundreds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from geoskip import MetricDist
from geoskip.clauses import keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.metadata import FileMetadata
from geoskip.predicates import Column
from tests.bench.measure import console, interleaved, milliseconds, table

__all__ = ["run"]

SIZES = (10_000, 100_000)
ORIGINS = 16
TIMES = 31


def run() -> None:
    """Print the tables."""
    shown = table("A distance below a radius, milliseconds", "", "files", "floor", "clause", "clause / floor", "kept")
    with console.status("measuring distances") as status:
        for files in SIZES:
            status.update(f"{files:,} files")
            shown.add_row(f"euclidean, 2 columns, {ORIGINS} origins", f"{files:,}", *_timed(files))
    factors = table("Files kept by a ball around a row", "", "files", "1 origin", "16 origins", "200 origins")
    for columns in (2, 8, 64):
        kept = [_factor(columns, origins) for origins in (1, 16, 200)]
        factors.add_row(f"euclidean, {columns} columns", "500", *(f"{share:.3f}" for share in kept))
    console.print(shown)
    console.print(factors)


def _index(columns: int, origins: int, sample: Any) -> Any:
    names = [f"x{number}" for number in range(columns)]
    index = MetricDist(*names, metric="euclidean", origins=origins).bind([Column(name, "double") for name in names])
    return index.prepare(*map(pa.array, sample.T))


def _metadata(index: Any, summaries: list[Any]) -> FileMetadata:
    columns = [SourceColumn(name, "double", pa.float64()) for name in index.exprs]
    return FileMetadata.of(pa.table({str(index): pa.array(summaries, index.metadata_type(*columns))}))


def _timed(files: int) -> list[str]:
    random = np.random.default_rng(files)
    index = _index(2, ORIGINS, random.uniform(0, 1, (500, 2)))
    origins = np.array(index.origins)
    centres = random.uniform(0, 1, (files, 2))
    low = np.linalg.norm(centres[:, None, :] - origins, axis=2)
    rest = {"gaps": [], "rows": 9, "nulls": 0, "blanks": 0, "odd": 0}
    metadata = _metadata(index, [{"lo": lo, "hi": lo + 0.01, **rest} for lo in low])
    points = random.uniform(0.2, 0.8, (TIMES + 3, 2))
    clauses = [index.distance_to(tuple(point)).compares("<", 0.01) for point in points]
    lows, highs = low.T.copy(), low.T + 0.01

    def floor(number: int) -> Any:
        away = np.linalg.norm(origins - points[number], axis=1)
        keep = np.ones(files, dtype=bool)
        for distance, lo, hi in zip(away, lows, highs, strict=True):
            keep &= (lo <= distance + 0.01) & (hi >= distance - 0.01)
        return keep

    bare, found = interleaved([floor, lambda number: keep_mask(clauses[number], metadata)], times=TIMES, warm=2, of=min)
    kept = int(np.count_nonzero(keep_mask(clauses[0], metadata)))
    return [milliseconds(bare), milliseconds(found), f"{found / bare:.1f}", f"{kept:,}"]


def _factor(columns: int, origins: int) -> float:
    """The mean share of 500 files of 20 neighbouring rows that a ball around a row keeps."""
    random = np.random.default_rng(columns)
    centres = random.normal(0, 1, (500, columns))
    rows = centres[:, None, :] + random.normal(0, 0.05, (500, 20, columns))
    index = _index(columns, origins, centres)
    metadata = _metadata(index, [index.collect(*map(pa.array, some.T)) for some in rows])
    asked = [tuple(rows[number, 0]) for number in range(0, 500, 25)]
    radius = 0.05 * np.sqrt(columns)
    kept = [keep_mask(index.distance_to(point).compares("<", radius), metadata).mean() for point in asked]
    return float(np.mean(kept))
