"""Random predicates through Spark's own optimizer, against what Spark says of every row.

The truth of many predicates is computed in one query with geoskip off, a column each, with the file of every row.
With geoskip on, each predicate is then planned as a filter: no file that it skips may hold a row that makes it TRUE.
The seed is printed with a failure; ``GEOSKIP_SEED`` and ``GEOSKIP_QUERIES`` set another one, and more of them.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import geoskip
from geoskip import GeoBox, MinMax

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("GEOSKIP_SEED", "20210"))
QUERIES = int(os.environ.get("GEOSKIP_QUERIES", "300"))
A_BATCH = 30
FLOOR = 0.3

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
WORDS = ["", "a", "ab", "abc", "Abd", "b%c", "b_c", "zebra", "\U0001f40d", "\uffff", "\U0001f40dx", "aé", "a\u0301"]
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
    for number in range(24):
        size = 0 if number == 5 else 1 if number == 6 else 20
        columns: dict[str, list[Any]] = {}
        for name in SCHEMA.names:
            empty = number == 7 or (number == 8 and name in ("a", "s", "lat"))
            columns[name] = [None if empty else _value(name, rng, number) for _ in range(size)]
        pq.write_table(pa.table(columns, schema=SCHEMA), place / f"part-{number:05d}.parquet")


class Queries:
    """Random SQL conditions over the columns, each safe to evaluate on every row."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def tree(self, depth: int) -> str:
        pick = self.rng.random()
        if depth == 0 or pick < 0.25:
            return self.leaf()
        if pick < 0.55:
            return f"({self.tree(depth - 1)} AND {self.tree(depth - 1)})"
        if pick < 0.75:
            return f"({self.tree(depth - 1)} OR {self.tree(depth - 1)})"
        if pick < 0.9:
            return f"NOT ({self.tree(depth - 1)})"
        one, two, three = self.tree(0), self.tree(depth - 1), self.tree(0)
        return self.rng.choice(
            [
                f"coalesce({one}, {three})",
                f"if({one}, {two}, {three})",
                f"CASE WHEN {one} THEN {two} WHEN {three} THEN {one} END",
                f"({one}) <=> ({three})",
                f"({one}) IS NOT TRUE",
                f"({two}) = false",
            ]
        )

    def leaf(self) -> str:
        return self.rng.choice(
            [self.number, self.number, self.text, self.text, self.when, self.flag, self.place, self.shapes, self.opaque]
        )()

    def op(self) -> str:
        return self.rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "="])

    def number(self) -> str:
        rng, near = self.rng, self.rng.randint(0, 23)
        column, value = rng.choice(
            [
                ("a", str(near)),
                ("a", f"{near}.5"),
                ("n", str(near * 1000 + rng.randint(0, 99))),
                ("x", rng.choice([str(near), f"{near}.25", "double('NaN')", "-0.0D", "double('infinity')", "1e300"])),
                ("f", rng.choice([f"float('{near}.3')", "0.1D", "float('NaN')"])),
                ("d", rng.choice([f"{near * 2.5:.2f}", f"{near}D", f"{near * 2.5:.4f}BD"])),
                ("a + 5L", str(near + 5)),
                ("10 - x", str(10 - near)),
                ("cast(a AS double)", f"{near}D"),
                ("cast(n AS decimal(20, 0))", f"{near * 1000}BD"),
            ]
        )
        shape = rng.random()
        if shape < 0.6:
            return f"{column} {self.op()} {value}" if rng.random() < 0.7 else f"{value} {self.op()} {column}"
        if shape < 0.75:
            several = ", ".join([value, *(str(near + i) for i in range(rng.choice([1, 3, 12])))])
            return f"{column} {rng.choice(['IN', 'NOT IN'])} ({several}{rng.choice(['', ', NULL'])})"
        if shape < 0.9:
            return f"{column} BETWEEN {value} AND {value} + {rng.randint(0, 3)}"
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"

    def text(self) -> str:
        rng = self.rng
        word = rng.choice([*WORDS, f"{chr(97 + rng.randint(0, 23))}{rng.randint(0, 99):02d}"])
        quoted = "'" + word + "'"
        start = word[: rng.randint(0, 2)]
        return rng.choice(
            [
                f"s {self.op()} {quoted}",
                f"s {rng.choice(['LIKE', 'NOT LIKE'])} '{start}%'",
                f"s {rng.choice(['LIKE', 'NOT LIKE'])} '{start}%{word[-1:]}'",
                f"s LIKE '{start}_%'",
                f"s LIKE '{start}!%%' ESCAPE '!'",
                f"startswith(s, '{start}')",
                f"s IN ({quoted}, 'q', NULL)",
                f"s NOT IN ({quoted})",
                f"s IS {rng.choice(['', 'NOT '])}NULL",
                f"length(s) {self.op()} {rng.randint(0, 4)}",
                f"upper(s) = upper({quoted})",
                f"s BETWEEN {quoted} AND 'm'",
            ]
        )

    def when(self) -> str:
        rng = self.rng
        day = dt.date(2024, 1, 1) + dt.timedelta(days=rng.randint(0, 170))
        return rng.choice(
            [
                f"day {self.op()} DATE'{day}'",
                f"ts {self.op()} TIMESTAMP'{day} 12:00:00'",
                f"cast(ts AS date) {self.op()} DATE'{day}'",
                f"day BETWEEN DATE'{day}' AND DATE'{day}' + INTERVAL 9 DAYS",
                f"day IN (DATE'{day}', NULL)",
                f"cast(day AS timestamp) > TIMESTAMP'{day} 00:00:00'",
                f"date_add(day, 3) = DATE'{day}'",
                f"year(day) = {rng.choice([2023, 2024])}",
            ]
        )

    def flag(self) -> str:
        return self.rng.choice(["b", "NOT b", "b = true", "b IS NULL", "b <=> false", "b IN (true)", "b IS NOT TRUE"])

    def place(self) -> str:
        lng, lat = -100 + self.rng.random() * 125, 30 + self.rng.random() * 25
        return self.rng.choice(
            [f"lng > {lng:.3f}", f"lat < {lat:.3f}", f"lng BETWEEN {lng:.2f} AND {lng + 9:.2f}", "lng IS NULL"]
        )

    def shapes(self) -> str:
        rng = self.rng
        x, y, r = -100 + rng.random() * 125, 30 + rng.random() * 25, rng.random() * 30
        ring = f"{x} {y}, {x + r} {y}, {x + r} {y + r}, {x} {y + r}, {x} {y}"
        hole = f", ({x + r / 4} {y + r / 4}, {x + r / 2} {y + r / 4}, {x + r / 2} {y + r / 2}, {x + r / 4} {y + r / 4})"
        polygon = f"ST_GeomFromText('POLYGON(({ring}){rng.choice(['', hole])})')"
        point = "ST_Point(lng, lat)"
        return rng.choice(
            [
                f"ST_Contains({polygon}, {point})",
                f"ST_Intersects({point}, {polygon})",
                f"ST_Within({point}, {polygon})",
                f"ST_Disjoint({polygon}, {point})",
                f"ST_Distance({point}, ST_Point({x}, {y})) {rng.choice(['<', '<=', '>', '>='])} {r}",
                f"ST_Distance({polygon}, {point}) < {r / 4}",
            ]
        )

    def opaque(self) -> str:
        return self.rng.choice(
            ["hash(a, s) % 3 = 0", "reverse(s) > 'm'", "sin(x) > 0.5", "array_contains(array(a), 3)"]
        )


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("random") / "data"
    _write(found, random.Random(SEED))
    plain = [MinMax(name) for name in SCHEMA.names]
    geoskip.dataset(spark, str(found)).create_index(
        *plain, GeoBox("lng", "lat"), MinMax("length(s)"), MinMax("cast(ts AS date)"), MinMax("upper(s)")
    )
    return found


@pytest.mark.parametrize("session", ["spark", "plain"])
def test_no_skipped_file_holds_a_row_that_matches(session: str, place: Path, request: pytest.FixtureRequest) -> None:
    spark = request.getfixturevalue(session)
    made = Queries(random.Random(SEED + len(session)))
    conditions = [made.tree(4) for _ in range(QUERIES // 2)]
    skipped = 0
    for start in range(0, len(conditions), A_BATCH):
        batch = conditions[start : start + A_BATCH]
        matching = _matching(spark, place, batch)
        for condition, needed in zip(batch, matching, strict=True):
            scan = geoskip.explain(spark.read.parquet(str(place)).where(condition)).scans
            kept = {Path(path).name for path in scan[0].kept_files()} if scan else set()
            lost = needed - kept
            assert not lost, f"seed {SEED}: {condition} loses rows of {sorted(lost)}\n{scan[0] if scan else ''}"
            skipped += bool(scan) and scan[0].files_kept < scan[0].files_total
    share = skipped / len(conditions)
    print(f"seed {SEED}: {share:.0%} of {len(conditions)} random queries skip a file")
    assert share >= FLOOR


def _matching(spark: Any, place: Path, conditions: list[str]) -> Iterator[set[str]]:
    """For each condition the files with a row that makes it TRUE, by Spark alone."""
    with geoskip.disabled(spark):
        columns = [f"max(coalesce({condition}, false)) AS c{i}" for i, condition in enumerate(conditions)]
        frame = spark.read.parquet(str(place)).selectExpr("*", "_metadata.file_path AS _file")
        rows = frame.groupBy("_file").agg(*map(F.expr, columns)).collect()
    for i in range(len(conditions)):
        yield {Path(unquote(row["_file"])).name for row in rows if row[f"c{i}"]}
