"""Random predicates through Spark's own optimizer, against what Spark says of every row.

The truth of many predicates is computed in one query with geoskip off, a column each, with the file of every row.
With geoskip on, each predicate is then planned as a filter: no file that it skips may hold a row that makes it TRUE.
The seed is printed with a failure; ``GEOSKIP_SEED`` and ``GEOSKIP_QUERIES`` set another one, and more of them.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import geoskip
from geoskip import BloomFilter, GapList, GeoBox, Hybrid, MetricDist, MinMax, Prefix, Suffix, ValueList
from tests.spark.test_readers import settings
from tests.support.random_queries import WORDS, Queries, Tree, shrunk

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("GEOSKIP_SEED", "20210"))
QUERIES = int(os.environ.get("GEOSKIP_QUERIES", "60"))
A_BATCH = min(20, QUERIES // 6)  # the first is compiled too
FLOOR = 0.3
FILES = 24
COMPILED, INTERPRETED = (
    {"spark.sql.codegen.wholeStage": whole, "spark.sql.codegen.factoryMode": mode}
    for whole, mode in (("true", "FALLBACK"), ("false", "NO_CODEGEN"))
)

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("b", pa.bool_()),
        ("lng", pa.float64()),
        ("lat", pa.float64()),
    ]
)
FLOATS = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-300, 1e300]


def _value(name: str, rng: random.Random, near: int) -> Any:
    if rng.random() < 0.15:
        return None
    match name:
        case "a":
            return rng.choice([near, near + rng.randint(0, 9), -(2**31), 2**31 - 1] if rng.random() < 0.1 else [near])
        case "n":
            return rng.choice([near * 1000 + rng.randint(0, 99), 2**63 - 1, -(2**63)][: 3 if rng.random() < 0.1 else 1])
        case "x" | "f":
            return rng.choice(FLOATS) if rng.random() < 0.15 else near + round(rng.random(), 3)
        case "s":
            return rng.choice(WORDS) if rng.random() < 0.4 else f"{chr(97 + near % 26)}{rng.randint(0, 99):02d}"
        case "d":
            return Decimal(near * 10 + rng.randint(0, 9)) / Decimal(4)
        case "day":
            return dt.date(2024, 1, 1) + dt.timedelta(days=near * 7 + rng.randint(0, 6))
        case "ts":
            return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=near * 50 + rng.randint(0, 49))
        case "b":
            return rng.random() < 0.5
        case "lng":
            return rng.choice(FLOATS) if rng.random() < 0.01 else -100 + 5 * near + rng.random() * 4
        case _:
            return 30 + near + rng.random() * 3


def _write(place: Path, rng: random.Random) -> None:
    place.mkdir()
    for number in range(FILES):
        size = 0 if number == 5 else 1 if number == 6 else 20
        columns: dict[str, list[Any]] = {}
        for name in SCHEMA.names:
            empty = number == 7 or (number == 8 and name in ("a", "s", "lat"))
            columns[name] = [None if empty else _value(name, rng, number) for _ in range(size)]
        pq.write_table(pa.table(columns, schema=SCHEMA), place / f"part-{number:05d}.parquet")


BOUNDS = [
    *(MinMax(name) for name in SCHEMA.names),
    *(GeoBox("lng", "lat"), MinMax("length(s)"), MinMax("cast(ts AS date)"), MinMax("upper(s)")),
]
VALUES = [
    *(GapList(name) for name in ("a", "x", "f", "day")),
    *(BloomFilter(name) for name in ("a", "n", "x", "f", "ts", "b")),
    *(ValueList(name) for name in ("s", "d", "day", "f")),
    *(Hybrid("a"), Hybrid("upper(s)"), Prefix("s", length=2), Suffix("s", length=1)),
    *(MetricDist("lng", "lat", metric="euclidean"), MetricDist("s", metric="levenshtein")),
]


@pytest.fixture(scope="module")
def places(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same files twice: once with indexes that bound values, once with those that list or hash them."""
    root = tmp_path_factory.mktemp("random")
    for name, indexes in (("bounds", BOUNDS), ("values", VALUES)):
        _write(root / name, random.Random(SEED))
        geoskip.dataset(spark, str(root / name)).create_index(*indexes)
    return root / "bounds", root / "values"


@pytest.mark.parametrize("session", ["spark", "plain"])
def test_no_skipped_file_holds_a_row_that_matches(
    session: str, places: tuple[Path, Path], request: pytest.FixtureRequest, say: Callable[[str], None]
) -> None:
    spark = request.getfixturevalue(session)
    frames = {place.name: spark.read.parquet(str(place)) for place in places}
    made = Queries(random.Random(SEED + len(session)))
    conditions = [made.tree(4) for _ in range(QUERIES // 2)]
    skipped = dict.fromkeys(frames, 0)
    for start in range(0, len(conditions), A_BATCH):
        batch = conditions[start : start + A_BATCH]
        compiled = start == 0  # which takes three times as long as Spark's interpreter
        for condition, needed in zip(batch, _matching(frames["bounds"], batch, compiled=compiled), strict=True):
            for name, frame in frames.items():
                kept = _kept(frame, condition)
                if needed - kept:
                    _fail(frame, condition, name, compiled=compiled)
                skipped[name] += len(kept) < FILES
    for name, count in skipped.items():
        share = count / len(conditions)
        say(f"seed {SEED}, {session}: {share:.0%} of {len(conditions)} random queries skip a file by {name}")
        assert share >= FLOOR


def _fail(frame: Any, condition: Tree, name: str, *, compiled: bool) -> None:
    """Says which rows the smallest condition loses that still loses some."""

    def lost(tree: Tree) -> set[str]:
        try:
            (needed,) = _matching(frame, [tree], compiled=compiled)
            return needed - _kept(frame, tree)
        except PySparkException:  # half of a condition may not be one
            return set()

    least = shrunk(condition, lambda tree: bool(lost(tree)))
    pytest.fail(f"seed {SEED}: {least} loses rows of {sorted(lost(least))} by {name}; found in {condition}")


def _kept(frame: Any, condition: Tree) -> set[str]:
    """The names of the files kept."""
    scans = geoskip.explain(frame.where(str(condition))).scans
    return {Path(path).name for path in scans[0].kept_files()} if scans else set()


def _matching(frame: Any, conditions: list[Tree], *, compiled: bool = True) -> Iterator[set[str]]:
    """For each condition the files with a row that makes it TRUE, by Spark alone."""
    with geoskip.disabled(frame.sparkSession), settings(frame.sparkSession, COMPILED if compiled else INTERPRETED):
        columns = [f"max(coalesce({condition}, false)) AS c{i}" for i, condition in enumerate(conditions)]
        rows = frame.selectExpr("*", "_metadata.file_path AS _file").groupBy("_file").agg(*map(F.expr, columns))
        found = rows.collect()
    for i in range(len(conditions)):
        yield {Path(unquote(row["_file"])).name for row in found if row[f"c{i}"]}
