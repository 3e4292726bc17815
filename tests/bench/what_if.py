"""How often the intervals of what-if hold the truth, and how quick a sample of the files is beside a build.

Each query is held out: what-if sees it before the indexes are built, and the truth is what the optimizer rule keeps
afterwards. Every few queries another sample is drawn, since those of one sample share its luck.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import geoskip
from datasets.layout import hilbert, laid_out_once, read, write_parts
from datasets.weblog import weblog
from geoskip import BloomFilter, GapList, GeoBox, Index, MinMax, Prefix, ValueList
from geoskip.advisor.query_estimates import QueryEstimate
from tests.bench.measure import PLACE, console, judged, table
from tests.bench.sessions import flights, session

__all__ = ["HELD_OUT", "Covered", "HeldOut", "covered", "run"]

QUERIES_A_SAMPLE = 4
SAMPLES = 10
LEAST_HELD = 0.85
MOST_TIME = 0.1
SAMPLE = 0.05
Row = Mapping[str, Any]


@dataclass(frozen=True)
class HeldOut:
    """A small dataset of the repository, indexes for it, and conditions around the values of some of its rows."""

    name: str
    write: Callable[[Path], Path]
    indexes: tuple[Index, ...]
    conditions: Callable[[Row, np.random.Generator], Sequence[str]]


@dataclass(frozen=True)
class Covered:
    """A condition with the interval and the truth, for files and for bytes."""

    dataset: str
    condition: str
    estimate: QueryEstimate
    files: int
    bytes: int

    @property
    def files_hold(self) -> bool:
        """True where the truth lies in the interval of the files."""
        return self.files in self.estimate.files

    @property
    def bytes_hold(self) -> bool:
        """True where it lies in that of the bytes, which are sums of floats."""
        return self.estimate.bytes.low - 1 <= self.bytes <= self.estimate.bytes.high + 1


def _zipcodes(folder: Path) -> Path:
    rows = read("zipcodes")
    order = np.argsort(hilbert(rows["lng"], rows["lat"]), kind="stable")
    return _parts(folder, rows.take(order), 240)


def _flights(folder: Path) -> Path:
    return _parts(folder, read("flights").slice(0, 90_000), 180)


def _weblog(folder: Path) -> Path:
    return weblog(folder, 60_000, days=8, files=20)


def _parts(folder: Path, rows: pa.Table, files: int) -> Path:
    ends = np.linspace(0, len(rows), files + 1).astype(int)

    def write(empty: Path) -> None:
        write_parts(empty, files, lambda number: rows.slice(ends[number], ends[number + 1] - ends[number]))

    return laid_out_once(folder, {"files": files, "rows": len(rows)}, write)


def _of_zipcodes(row: Row, random: np.random.Generator) -> list[str]:
    reach = float(random.choice([0.2, 1, 4]))
    lng, lat = row["lng"], row["lat"]
    return [
        f"lng BETWEEN {lng - reach} AND {lng + reach} AND lat BETWEEN {lat - reach} AND {lat + reach}",
        f"lng > {lng}",
        f"state = '{row['state']}' AND lat < {lat + reach}",
        f"zip BETWEEN '{row['zip']}' AND '{row['zip'][:2]}999'",
        f"county = '{row['county'].replace(chr(39), chr(39) * 2)}'" if row["county"] else f"lat > {lat}",
        f"state IN ('{row['state']}', 'WY') OR zip = '{row['zip']}'",
    ]


def _of_flights(row: Row, random: np.random.Generator) -> list[str]:
    return [
        f"distance BETWEEN {row['distance']} AND {row['distance'] + int(random.integers(1, 40))}",
        f"delay > {int(random.integers(60, 500))}",
        f"destination = '{row['destination']}'",
        f"day = DATE'{row['day']}' AND origin = '{row['origin']}'",
        f"origin = '{row['origin']}' AND delay < {int(random.integers(-60, 0))}",
        f"distance = {row['distance']} OR destination = 'ANC'",
    ]


def _of_weblog(row: Row, random: np.random.Generator) -> list[str]:
    depth = int(random.integers(2, 5))
    return [
        f"request_id = '{row['request_id']}'",
        f"account = '{row['account']}'",
        f"path LIKE '{'/'.join(row['path'].split('/')[:depth])}%'",
        f"bytes > {int(row['bytes']) * 20}",
        f"time BETWEEN '{row['time']:%Y-%m-%d %H:00:00}' AND '{row['time']:%Y-%m-%d %H:59:59}'",
        f"account IN ('{row['account']}', 'acme') AND day >= DATE'{row['day']}'",
    ]


HELD_OUT = (
    HeldOut(
        "zipcodes",
        _zipcodes,
        (GeoBox("lng", "lat"), MinMax("zip"), ValueList("state"), BloomFilter("county")),
        _of_zipcodes,
    ),
    HeldOut(
        "flights",
        _flights,
        (GapList("distance"), MinMax("delay"), ValueList("destination"), ValueList("origin"), MinMax("day")),
        _of_flights,
    ),
    HeldOut(
        "weblog",
        _weblog,
        (BloomFilter("request_id"), ValueList("account"), Prefix("path"), MinMax("bytes"), MinMax("time")),
        _of_weblog,
    ),
)


def covered(spark: Any, held_out: HeldOut, place: Path, *, samples: int = SAMPLES, seed: int = 0) -> Iterator[Covered]:
    """Estimate queries over a dataset without an index, build the indexes, and compare."""
    folder = held_out.write(place / held_out.name)
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    dataset = geoskip.dataset(spark, str(folder))
    frame = dataset.to_df()
    random = np.random.default_rng(seed)
    rows = [row.asDict() for row in frame.sample(fraction=0.02, seed=seed).limit(200).collect()]
    guesses: list[tuple[str, QueryEstimate]] = []
    for number in range(samples):
        conditions = list(held_out.conditions(rows[int(random.integers(len(rows)))], random))
        chosen = [conditions[int(which)] for which in random.permutation(len(conditions))[:QUERIES_A_SAMPLE]]
        asked = [frame.where(text) for text in chosen]
        found = geoskip.what_if(dataset, held_out.indexes, queries=asked, sample=SAMPLE, seed=seed + number)
        guesses += zip(chosen, found.queries, strict=True)
    dataset.create_index(*held_out.indexes)
    indexed = dataset.to_df()
    for condition, guess in guesses:
        report = geoskip.explain(indexed.where(condition))
        yield Covered(held_out.name, condition, guess, report.files_kept, report.bytes_kept)


def run() -> None:
    """Print the tables."""
    spark = session()
    shown = table(
        "Intervals of 90 % from 5 % of the files", "dataset", "queries", "files held", "bytes held", "mean width",
        "mean error", "target",
    )  # fmt: skip
    everything: list[Covered] = []
    for held_out in HELD_OUT:
        with console.status(held_out.name):
            found = list(covered(spark, held_out, PLACE / "what_if"))
        everything += found
        shown.add_row(held_out.name, *_coverage(found), "")
    shown.add_row("all", *_coverage(everything), f"{LEAST_HELD:.0%} of files held")
    console.print(shown)
    folder = flights()
    indexes = (MinMax("delay"), GapList("distance"), ValueList("destination"), GeoBox("lng", "lat"))
    query = "SELECT * FROM flights WHERE delay > 500"
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    spark.read.parquet(str(folder)).createOrReplaceTempView("flights")
    dataset = geoskip.dataset(spark, str(folder))
    shown = table("A sample beside a build", "round", "sample s", "all of what_if s", "build s", "share", "target")
    for number in range(3):  # the first round starts workers
        started = time.perf_counter()
        found_by_sample = geoskip.what_if(dataset, indexes, queries=[query], sample=SAMPLE, seed=number)
        whole = time.perf_counter() - started
        built = dataset.create_index(*indexes).seconds
        shutil.rmtree(folder / "_geoskip")
        share = found_by_sample.sample_seconds / built
        shown.add_row(
            str(number + 1), f"{found_by_sample.sample_seconds:.2f}", f"{whole:.2f}", f"{built:.2f}",
            judged(f"{share:.3f}", share <= MOST_TIME), f"at most {MOST_TIME:g}",
        )  # fmt: skip
    console.print(shown)


def _coverage(found: Sequence[Covered]) -> list[str]:
    files = sum(each.files_hold for each in found) / len(found)
    size = sum(each.bytes_hold for each in found) / len(found)
    reads = [each.estimate for each in found]
    width = float(np.mean([(read.files.high - read.files.low) / max(1, read.files_now) for read in reads]))
    error = float(np.mean([abs(e.estimate.files.value - e.files) / max(1, e.estimate.files_now) for e in found]))
    held = judged(f"{files:.0%}", files >= LEAST_HELD)
    return [str(len(found)), held, f"{size:.0%}", f"{width:.0%} of files", f"{error:.1%}"]
