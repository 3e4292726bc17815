"""Deciding alone: metadata of synthetic files in memory, warm, no engine.

*clause* is the evaluation to surviving files, what TARGETS counts; *decide* is all of it: labelling, preparing the
geometry, evaluating. The floor is numpy over the same arrays: three comparisons, or the envelope test of all boxes
followed by GEOS's exact test of those that pass. Every run has new literals; the quickest of each counts, since all
that these do is compute. Targets in milliseconds are scaled to this machine by the floor of the three comparisons,
which was 0.015, 0.09 and 1.7 ms where the targets were set.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoskip import GeoBox, MinMax
from geoskip.clauses import Clause, keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.metadata import Header, IndexEntry, Snapshot
from geoskip.planner import clause_for, decide
from geoskip.predicates import And, Call, Column, Comparison, Literal, Predicate
from geoskip.stores.base import MemoryStore
from geoskip.stores.parquet import ParquetStore
from tests.bench.measure import console, interleaved, judged, milliseconds, table
from udf_mappings import sedona

SIZES = (10_000, 100_000, 1_000_000)
COLUMNS = ("temp", "wind", "rain")
POINT = Call("ST_Point", (Column("lng", "double"), Column("lat", "double")), sedona.SEDONA + "ST_Point")
CONTAINS = sedona.SEDONA + "ST_Contains"


@dataclass(frozen=True)
class Target:
    """The milliseconds allowed for each number of files."""

    allowed: dict[int, float]


FLOORS = {10_000: 0.015, 100_000: 0.09, 1_000_000: 1.7}
CONJUNCTS = Target({10_000: 0.1, 100_000: 0.3, 1_000_000: 5})
SMALL = Target({10_000: 0.1, 100_000: 0.5, 1_000_000: 5})
CONTINENTAL = Target({10_000: 15, 100_000: 20, 1_000_000: 40})
COLD = Target({10_000: 5, 100_000: 15, 1_000_000: 75})
FRESH = Target({10_000: 0.1, 100_000: 1, 1_000_000: 10})


class Synthetic:
    """The metadata of n files: bounds of three columns, and one box each."""

    def __init__(self, files: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.files = files
        low = random.uniform(0, 100, (len(COLUMNS), files))
        self.low, self.high = low, low + random.exponential(2, low.shape)
        side = 200 / math.sqrt(files)
        self.xmin, self.ymin = random.uniform(-180, 179, files), random.uniform(-85, 84, files)
        self.xmax, self.ymax = (edge + random.uniform(0, side, files) for edge in (self.xmin, self.ymin))
        arrays = {str(entry.index): self._summaries(entry) for entry in entries()}
        paths = pa.array([f"part-{number:07}.parquet" for number in range(files)])
        sizes = pa.array(random.integers(10**6, 10**8, files))
        times = pa.array(random.integers(10**12, 2 * 10**12, files))
        base = {"path": paths, "size": sizes, "mtime": times, "etag": pa.nulls(files, pa.string()), "rows": sizes}
        self.table = pa.table({**base, **arrays})

    def _summaries(self, entry: IndexEntry) -> pa.Array:
        counts = {name: pa.array(np.zeros(self.files, dtype=np.int64)) for name in _names(entry.arrow)}
        counts["rows"] = pa.array(np.full(self.files, 1000))
        if entry.index.kind == "geobox":
            edges = [pa.array(edge) for edge in (self.xmin, self.ymin, self.xmax, self.ymax)]
            box = pa.StructArray.from_arrays(edges, ["xmin", "ymin", "xmax", "ymax"])
            counts["boxes"] = pa.ListArray.from_arrays(pa.array(np.arange(self.files + 1, dtype=np.int32)), box)
        else:
            place = COLUMNS.index(entry.index.expressions()[0])
            counts |= {"min": pa.array(self.low[place]), "max": pa.array(self.high[place])}
        return pa.StructArray.from_arrays(list(counts.values()), list(counts)).cast(entry.arrow)


def _names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind]


def entries() -> list[IndexEntry]:
    """Three MinMax and a GeoBox, bound."""
    sources = {name: SourceColumn(name, "double", pa.float64()) for name in (*COLUMNS, "lng", "lat")}
    found = []
    for index in (*map(MinMax, COLUMNS), GeoBox("lng", "lat")):
        texts = index.expressions()
        bound = index.bind([Column(text, "double") for text in texts])
        columns = tuple((text, "double") for text in texts)
        found.append(IndexEntry(bound, columns, index.metadata_type(*(sources[text] for text in texts))))
    return found


def header() -> Header:
    """A header for them."""
    return Header(root="file:/synthetic", source={}, entries=tuple(entries()))


def conjuncts(number: int) -> Predicate:
    """Three conjuncts, which some one file in 20,000 passes."""
    shift = number / 1000
    return And(
        (
            Comparison(">=", Column("temp", "double"), Literal(97.0 + shift, "double")),
            Comparison("<=", Column("wind", "double"), Literal(3.0 + shift, "double")),
            Comparison(">", Column("rain", "double"), Literal(95.0 + shift, "double")),
        )
    )


def polygon(number: int, vertices: int, radius: float) -> Any:
    """A star-shaped polygon with a ragged edge, around another place each time."""
    random = np.random.default_rng([number, vertices])
    angles = np.linspace(0, 2 * math.pi, vertices, endpoint=False)
    edge = radius * (0.8 + 0.1 * np.sin(7 * angles) + 0.02 * random.random(vertices))
    lng, lat = 10 + number % 20, 20 + number % 7
    return shapely.Polygon(np.column_stack([lng + edge * np.cos(angles), lat + edge * np.sin(angles)]))


def contains(shape: Any) -> Predicate:
    """ST_Contains(shape, ST_Point(lng, lat))."""
    return Call("ST_Contains", (Literal(shape, "geometry"), POINT), CONTAINS)


def run() -> None:
    """Print the tables."""
    shown = table(
        "Deciding, milliseconds", "", "files", "kept", "floor", "clause", "decide", "clause / floor", "target"
    )
    loads = table("Metadata from Parquet, milliseconds", "", "files", "floor", "geoskip", "ratio", "target")
    with console.status("measuring kernels") as status:
        for files in SIZES:
            status.update(f"metadata of {files:,} files")
            made = Synthetic(files)
            store = MemoryStore()
            store.commit(header(), made.table, expected=None)
            snapshot = store.load(1)
            times = 51 if files < 1_000_000 else 15
            bare = _bare_bounds(made)
            (floor,) = interleaved([bare], times=times, of=min)
            scale = max(1.0, 1000 * floor / FLOORS[files])
            _deciding(shown, "three MinMax conjuncts", snapshot, conjuncts, bare, CONJUNCTS, times, scale)
            for vertices, radius, target in ((10, 1.0, SMALL), (1000, 1.0, SMALL), (10_000, 30.0, CONTINENTAL)):
                what = f"polygon of {vertices:,} vertices, {'continental' if radius > 5 else 'small'}"
                shapes = {number: polygon(number, vertices, radius) for number in range(2 * times + 4)}
                bare = _bare_boxes(made, shapes)
                asked = _asking(shapes)
                _deciding(shown, what, snapshot, asked, bare, target, min(times, 15) if radius > 5 else times, scale)
            shown.add_section()
            _loading(loads, made, scale)
    console.print(shown)
    console.print(loads)


def _asking(shapes: dict[int, Any]) -> Callable[[int], Predicate]:
    return lambda number: contains(shapes[number])


def _deciding(
    shown: Any,
    what: str,
    snapshot: Snapshot,
    ask: Callable[[int], Predicate],
    bare: Callable[[int], Any],
    target: Target,
    times: int,
    scale: float,
) -> None:
    """One row: the floor, the clause alone and the whole decision, in turn."""
    indexes, files = snapshot.indexes, snapshot.files
    rounds = times + 2
    clauses: dict[int, Clause] = {number: clause_for(ask(number), indexes) for number in range(rounds)}
    questions = {number: ask(rounds + number) for number in range(rounds)}  # none that was prepared before
    floor, alone, whole = interleaved(
        [
            bare,
            lambda number: np.flatnonzero(keep_mask(clauses[number], files)),
            lambda number: decide(snapshot, questions[number]),
        ],
        times=times,
        warm=2,
        of=min,
    )
    kept = int(np.count_nonzero(decide(snapshot, questions[0]).keep))
    allowed = scale * target.allowed[len(files)]
    shown.add_row(
        what, f"{len(files):,}", f"{kept:,}", *map(milliseconds, (floor, alone, whole)), f"{alone / floor:.1f}",
        _judged(alone, allowed),
    )  # fmt: skip


def _judged(seconds: float, allowed: float) -> str:
    return judged(f"{allowed:.3g}", 1000 * seconds <= allowed)


def _bare_bounds(made: Synthetic) -> Callable[[int], Any]:
    high, low, rain = made.high[0], made.low[1], made.high[2]

    def run(number: int) -> Any:
        shift = number / 1000
        return np.flatnonzero((high >= 97 + shift) & (low <= 3 + shift) & (rain > 95 + shift))

    return run


def _bare_boxes(made: Synthetic, shapes: dict[int, Any]) -> Callable[[int], Any]:
    def run(number: int) -> Any:
        shape = shapes[number]
        west, south, east, north = shape.bounds
        near = np.flatnonzero((made.xmin <= east) & (made.xmax >= west) & (made.ymin <= north) & (made.ymax >= south))
        shapely.prepare(shape)
        boxes = shapely.box(made.xmin[near], made.ymin[near], made.xmax[near], made.ymax[near])
        return near[shapely.intersects(shape, boxes)]

    return run


def _loading(loads: Any, made: Synthetic, scale: float) -> None:
    """Two rows: three columns read and evaluated cold, and the question whether anything changed."""
    with tempfile.TemporaryDirectory() as folder:
        ParquetStore(folder).commit(header(), made.table, expected=None)
        part = next(Path(folder).rglob("*.part"))
        wanted = [f"i{number}" for number in range(len(COLUMNS))]

        def cold(number: int) -> Any:
            snapshot = ParquetStore(folder).load(1)
            return np.flatnonzero(decide(snapshot, conjuncts(number)).keep)

        floor, loaded = interleaved([lambda _: pq.read_table(part, columns=wanted), cold], times=7, of=min)
        warm = ParquetStore(folder)
        warm.load(1)
        entry = max(Path(folder).rglob("*.json"), key=lambda path: len(path.parts))
        listed, fresh = interleaved([lambda _: list(entry.parent.iterdir()), lambda _: warm.latest()], times=51, of=min)
    files = f"{made.files:,}"
    for what, before, after, target in (
        ("cold, three columns to surviving files", floor, loaded, COLD),
        ("has anything changed?", listed, fresh, FRESH),
    ):
        loads.add_row(
            what, files, milliseconds(before), milliseconds(after), f"{after / before:.1f}",
            _judged(after, scale * target.allowed[made.files]),
        )  # fmt: skip
