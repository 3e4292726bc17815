"""What recommended indexes save and store beside all that could be built: log, weather and TPC-H.

*Everything* is every index that recommend() tried, built at once. Savings are bytes that the optimizer rule leaves out
of the same queries, planned and not run; the advice comes from a sample of the files, as a user would ask for it.
TPC-H's tables are laid out by their dates, as they would arrive: as they are generated, nothing could be skipped.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import geoskip
from datasets.generate_weather import weather
from datasets.layout import laid_out_once, write_parts
from examples import log_analytics
from geoskip import GeoskipError
from geoskip.spark.advisor.judged_candidates import candidates_for
from geoskip.spark.advisor.what_if import asked_queries
from tests.bench import wide
from tests.bench.factors import Column, equal, prefixes
from tests.bench.measure import PLACE, console, judged, table
from tests.bench.sessions import logs, session
from tests.bench.windows import INSIDE
from udf_mappings import metric_functions

__all__ = ["AdvisedDataset", "Compared", "compared", "run"]

LEAST_SAVING = 0.95
MOST_BYTES = 0.25
FEW_LOGS, QUERIES = 1_000, 8
WEATHER_MONTHS, WEATHER_FILES = 6, 128
ORDERED_BY = {"lineitem": ("l_shipdate", 64), "orders": ("o_orderdate", 32), "part": ("p_partkey", 16),
              "customer": ("c_custkey", 16), "partsupp": ("ps_partkey", 32)}  # fmt: skip


@dataclass(frozen=True)
class AdvisedDataset:
    """A dataset with the queries that are asked of it, as views that are there."""

    name: str
    folder: Path
    queries: Sequence[str]


@dataclass(frozen=True)
class Compared:
    """Bytes that queries read without an index, with the advice and with everything, and what these store."""

    candidates: int
    indexes: int
    seconds: float
    before: int
    advised: int
    most: int
    stored: int
    everything: int

    @property
    def saving(self) -> float:
        """The share of everything's saving that the advice has."""
        return (self.before - self.advised) / (self.before - self.most) if self.before > self.most else 1.0

    @property
    def size(self) -> float:
        """The share of everything's bytes that the advice stores."""
        return self.stored / self.everything if self.everything else 0.0


def compared(spark: Any, subject: AdvisedDataset) -> Compared:
    """Ask for advice, apply it, and build everything in its place."""
    shutil.rmtree(subject.folder / "_geoskip", ignore_errors=True)
    dataset = geoskip.dataset(spark, str(subject.folder))
    state = dataset._source.current_state()
    everything = candidates_for(dataset, state, asked_queries(dataset, state, subject.queries)[0])
    before = _read(spark, subject)
    started = time.perf_counter()
    advice = geoskip.recommend(dataset, subject.queries, layouts=False)
    seconds = time.perf_counter() - started
    report = advice.apply()
    advised, stored = _read(spark, subject), sum(report.metadata_bytes.values()) if report else 0
    shutil.rmtree(subject.folder / "_geoskip", ignore_errors=True)
    built = dataset.create_index(*(entry.index.bind(()) for entry in everything.entries))
    most, every = _read(spark, subject), sum(built.metadata_bytes.values())
    shutil.rmtree(subject.folder / "_geoskip", ignore_errors=True)
    return Compared(len(everything.entries), len(advice.indexes), seconds, before, advised, most, stored, every)


def _read(spark: Any, subject: AdvisedDataset) -> int:
    """Bytes of this dataset that its queries would read."""
    scans = [scan for query in subject.queries for scan in geoskip.explain(spark.sql(query)).scans]
    return sum(scan.bytes_kept for scan in scans if scan.dataset.rstrip("/").endswith(f"/{subject.folder.name}"))


def run() -> None:
    """Print the table."""
    spark = session()
    shown = table(
        "Advice beside everything", "", "queries", "tried", "advised", "seconds", "MB read", "all", "advised",
        "saving", "KB all", "advised", "share",
    )  # fmt: skip
    total = [0, 0, 0, 0, 0]
    with console.status("advice") as status:
        for subject in (*_logs(spark), *_weather(spark), *_tpch(spark)):
            status.update(subject.name)
            try:
                found = compared(spark, subject)
            except GeoskipError as error:
                console.print(f"{subject.name}: {error}"[:300])
                continue
            shown.add_row(subject.name, str(len(subject.queries)), *_row(found))
            numbers = (found.before, found.advised, found.most, found.stored, found.everything)
            total = [one + other for one, other in zip(total, numbers, strict=True)]
    console.print(shown)
    whole = Compared(0, 0, 0.0, *total)
    console.print(
        f"All together: {judged(f'{whole.saving:.1%}', whole.saving >= LEAST_SAVING)} of the saving for "
        f"{judged(f'{whole.size:.1%}', whole.size <= MOST_BYTES)} of the bytes; targets {LEAST_SAVING:.0%} and "
        f"{MOST_BYTES:.0%}"
    )


def _row(found: Compared) -> list[str]:
    return [
        str(found.candidates), str(found.indexes), f"{found.seconds:.1f}",
        *(f"{size / 1e6:.2f}" for size in (found.before, found.most, found.advised)),
        judged(f"{found.saving:.1%}", found.saving >= LEAST_SAVING),
        *(f"{size / 1e3:.1f}" for size in (found.everything, found.stored)),
        judged(f"{found.size:.1%}", found.size <= MOST_BYTES),
    ]  # fmt: skip


def _logs(spark: Any) -> Iterator[AdvisedDataset]:
    """The paper's workloads of its figures 11 and 12, and equality as in its figure 8."""
    folder = logs(FEW_LOGS)
    log_analytics.register(spark)
    metric_functions.register(spark)
    spark.read.parquet(str(folder)).createOrReplaceTempView("logs")
    random = np.random.default_rng(0)
    names, sessions = Column(folder, "db_name"), Column(folder, "session")
    agents = Column(folder, "user_agent", log_analytics.get_agent_name)
    conditions = [
        condition
        for questions in (
            prefixes("db_name", names, random, QUERIES),
            prefixes("db_name", names, random, QUERIES, ends=True),
            equal("db_name", names, random, QUERIES),
            equal("session", sessions, random, QUERIES),
            equal("get_agent_name(user_agent)", agents, random, QUERIES),
        )
        for condition, _ in questions
    ]
    yield AdvisedDataset("log", folder, [f"SELECT * FROM logs WHERE {condition}" for condition in conditions])


def _weather(spark: Any) -> Iterator[AdvisedDataset]:
    """The paper's figures 9 and 10: a polygon and its bounds, in windows of months."""
    folder = weather(PLACE / "advised-weather", WEATHER_MONTHS, files=WEATHER_FILES, hours=24)
    spark.read.parquet(str(folder)).createOrReplaceTempView("weather")
    conditions = [
        f"{INSIDE} AND month <= '2019-0{last}'" for last in (1, 3, 6)
    ] + [
        f"lat BETWEEN {south} AND {south + 2} AND lng BETWEEN {west} AND {west + 3} AND month >= '2019-0{first}'"
        for south, west, first in ((35.7, -79.1, 1), (41.0, -88.0, 4), (30.0, -98.0, 6))
    ]  # fmt: skip
    conditions += ["ST_DistanceSphere(ST_Point(lng, lat), ST_Point(-87.65, 41.85)) < 50000", "temp > 40 OR wind > 60"]
    yield AdvisedDataset("weather", folder, [f"SELECT * FROM weather WHERE {condition}" for condition in conditions])


def _tpch(spark: Any) -> Iterator[AdvisedDataset]:
    """Every query of TPC-H, table by table."""
    source = PLACE / f"tpch-{wide.SCALE:g}"
    wide.generate("tpch", source)
    queries = list(json.loads((source / "queries.json").read_text()).values())
    folders = {path.name: path for path in sorted(source.iterdir()) if path.is_dir()}
    for name, (column, files) in ORDERED_BY.items():
        folders[name] = _ordered(folders[name], column, files)
    for name, folder in folders.items():
        spark.read.parquet(str(folder)).createOrReplaceTempView(name)
    for name in ORDERED_BY:
        yield AdvisedDataset(f"TPC-H {name}", folders[name], queries)


def _ordered(folder: Path, column: str, files: int) -> Path:
    """A table in the order of a column, in so many files."""
    rows = pq.read_table(sorted(folder.glob("*.parquet"))).sort_by(column)
    ends = np.linspace(0, len(rows), files + 1).astype(int)

    def write(empty: Path) -> None:
        write_parts(empty, files, lambda number: rows.slice(ends[number], ends[number + 1] - ends[number]))

    target = PLACE / "advised-tpch" / folder.name
    return laid_out_once(target, {"files": files, "rows": len(rows), "by": column}, write)
