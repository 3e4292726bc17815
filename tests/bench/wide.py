"""Planning SQL of warehouses over tables with an index on every column: TPC-H, TPC-DS, and a table of 150 indexes.

Data and queries are made by DuckDB's extensions, from PyPI, in an environment of their own. Every column has a MinMax;
keys have a Hybrid, texts a ValueList and a Bloom filter. *planned* is the time of Spark's optimizer, the quickest of
each, since it only computes: off, on where the driver remembers no decision (*anew*), and on where it has decided the
same question before (*again*). *run* is the whole query, off and on in turn. The target is for the sum over all
queries: of TPC-H, as it is generated, no file can be skipped, so that its own sum shows what asking costs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import geoskip
from geoskip import BloomFilter, Hybrid, Index, MinMax, ValueList
from geoskip.spark.rule.decision_cache import Decisions
from geoskip.spark.session import bridge
from tests.bench.measure import PLACE, console, interleaved, judged, milliseconds, table
from tests.bench.sessions import session

__all__ = ["run"]

WHEELS = ("duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-tpch==1.5.5", "duckdb-extension-tpcds==1.5.5")
SCALE = 0.05
SHOWN = {"tpch": (6, 15, 18, 21, 22), "tpcds": ()}
COLUMNS = 75
"""Of the wide table, with two indexes each."""
ONE_SCAN, TEN_SCANS = 0.005, 0.015
PLANNED, RUN = 9, 5

MAKER = """
import json, sys
from pathlib import Path
import duckdb, duckdb_extensions
kind, place, scale = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
duckdb_extensions.import_extension(kind)
base = duckdb.connect()
base.execute(f"LOAD {kind}")
base.execute(f"CALL {'dbgen' if kind == 'tpch' else 'dsdgen'}(sf={scale})")
for (name,) in base.execute("SHOW TABLES").fetchall():
    (place / name).mkdir(parents=True, exist_ok=True)
    (rows,) = base.execute(f"SELECT count(*) FROM {name}").fetchone()
    files = min(8, max(1, rows // 5000))
    for file in range(files):
        least, most = rows * file // files, rows * (file + 1) // files
        part = f"(SELECT * FROM {name} LIMIT {most - least} OFFSET {least})"
        base.execute(f"COPY {part} TO '{place / name / str(file)}.parquet' (FORMAT parquet)")
queries = base.execute(f"SELECT query_nr, query FROM {kind}_queries()").fetchall()
found = {number: text.strip().rstrip(";").replace('"', "`") for number, text in queries}  # as Spark quotes names
(place / "queries.json").write_text(json.dumps(found))
"""


def run() -> None:
    """Print the tables."""
    spark = session()
    found = table(
        "Planning and running with every column indexed, milliseconds", "", "scans", "planned off", "anew", "again",
        "added anew", "run off", "run on", "off / on (target: at least 1)",
    )  # fmt: skip
    with console.status("measuring wide tables") as status:
        whole: list[Sequence[float]] = []
        for kind, shown in SHOWN.items():
            status.update(f"{kind}: making data")
            queries = _benchmark(spark, kind)
            rows = {}
            for number, text in queries.items():
                status.update(f"{kind} q{number}")
                rows[number] = _measured(spark, text)
            for number in shown:
                found.add_row(f"{kind} q{number}", *_row(rows[number]))
            found.add_row(f"{kind}, {len(rows)} queries", *_row(_sum(list(rows.values()))))
            whole += rows.values()
        found.add_row(f"all {len(whole)} queries", *_row(_sum(whole), judge=True))
        status.update("a table of 150 indexes")
        wide = _wide(spark)
    console.print(found)
    console.print(wide)


def _measured(spark: Any, text: str) -> Sequence[float]:
    """Scans, planned off, anew and again, run off and on."""
    frame = spark.sql(text)
    scans = len(geoskip.explain(frame).scans)
    planned = interleaved(_planned(spark, lambda _: text), times=PLANNED, warm=2, of=min)

    def whole(_: int) -> None:
        spark.sql(text).write.format("noop").mode("overwrite").save()

    def whole_off(number: int) -> None:
        with geoskip.disabled(spark):
            whole(number)

    return scans, *planned, *interleaved([whole_off, whole], times=RUN)


def _planned(spark: Any, text: Callable[[int], str]) -> list[Callable[[int], Any]]:
    """Planning without geoskip, without a decision remembered, and with those of before."""

    def plan(number: int) -> None:
        spark.sql(text(number))._jdf.queryExecution().optimizedPlan()

    def off(number: int) -> None:
        with geoskip.disabled(spark):
            plan(number)

    def anew(number: int) -> None:
        bridge.decisions = Decisions()
        plan(number)

    return [off, anew, plan]


def _sum(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _row(measured: Sequence[float], *, judge: bool = False) -> list[str]:
    scans, off, anew, again, run_off, run_on = measured
    ratio = f"{run_off / run_on:.2f}"
    shown = [off, anew, again, anew - off, run_off, run_on]
    return [f"{scans:.0f}", *map(milliseconds, shown), judged(ratio, run_off >= run_on) if judge else ratio]


def _benchmark(spark: Any, kind: str) -> dict[int, str]:
    """The queries, over indexed tables as views."""
    place = PLACE / f"{kind}-{SCALE:g}"
    generate(kind, place)
    for folder in sorted(path for path in place.iterdir() if path.is_dir()):
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
        geoskip.dataset(spark, str(folder)).create_index(*_indexes(spark.read.parquet(str(folder)).dtypes))
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    found = json.loads((place / "queries.json").read_text())
    return {int(number): text for number, text in found.items()}


def generate(kind: str, place: Path) -> None:
    """Have DuckDB write the tables and queries of ``tpch`` or ``tpcds`` into a folder, unless they are there."""
    if not (place / "queries.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([_python(), "-c", MAKER, kind, str(place), str(SCALE)], check=True)


def _python() -> Path:
    """The interpreter of an environment that has DuckDB with its extensions."""
    place = PLACE / "duckdb"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *WHEELS], check=True)
        (place / "made").touch()
    return python


def _indexes(columns: Sequence[tuple[str, str]]) -> list[Index]:
    """A MinMax of every column but comments; of keys a Hybrid, of texts a list and a filter."""
    found: list[Index] = []
    for name, kind in columns:
        if not name.endswith("comment"):
            found.append(MinMax(name))
            if name.endswith(("key", "_sk")):
                found.append(Hybrid(name))
            elif kind == "string":
                found += [ValueList(name), BloomFilter(name)]
    return found


def _wide(spark: Any) -> Any:
    """The table: a scan and ten scans of a table of 150 indexes, with other literals each time."""
    folder = PLACE / "wide"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in range(16):
        values = {f"c{n}": np.arange(1000 * file, 1000 * file + 1000) for n in range(COLUMNS)}
        pq.write_table(pa.table(values), folder / f"{file}.parquet")
    handle = geoskip.dataset(spark, str(folder))
    handle.create_index(*(kind(f"c{n}") for n in range(COLUMNS) for kind in (MinMax, BloomFilter)))
    spark.read.parquet(str(folder)).createOrReplaceTempView("wide_table")

    def scan(number: int, least: int) -> str:
        names = [f"c{(7 * number + place) % COLUMNS}" for place in range(4)]
        return f"SELECT {names[0]} FROM wide_table WHERE {names[1]} > {least} AND {names[2]} < 9000 AND {names[3]} <> 5"

    asked: dict[str, tuple[Callable[[int], str], float]] = {
        "one scan": (lambda least: scan(0, least), ONE_SCAN),
        "ten scans": (lambda least: " UNION ALL ".join(scan(n, least) for n in range(10)), TEN_SCANS),
        "ten times the same scan": (lambda least: " UNION ALL ".join([scan(0, least)] * 10), TEN_SCANS),
    }
    found = table(
        "Planning on a table of 150 indexes, milliseconds", "", "off", "anew", "again", "added anew", "target"
    )
    for what, (text, most) in asked.items():
        off, anew, again = interleaved(_planned(spark, text), times=31, warm=12, of=min)
        added = judged(f"{1000 * (anew - off):.1f}", anew - off <= most)
        found.add_row(what, *map(milliseconds, (off, anew, again)), added, f"{1000 * most:g}")
    return found
