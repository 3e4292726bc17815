"""The demo's queries over tables of formats with logs, beside the same files as plain Parquet.

Flights in 2,000 files of a k-d tree by origin; a table of Delta holds hard links to these very files,
and one of Iceberg has taken them in.
*Own* are the files that the format's own skipping leaves, with geoskip off. The rows of each query are the same on and
off. *Planned* is the time until tasks could start, as in the section ``queries``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import geoskip
from examples.demo import compare
from examples.demo_queries import INDEXES, queries, register_own, register_paper
from geoskip import KDTree
from tests.bench.layouts import CONFIG
from tests.bench.measure import PLACE, console, interleaved, judged, milliseconds, table
from tests.bench.sessions import flights

__all__ = ["FILES", "TABLES", "measured", "run"]

FILES = 2_000
ADDED = 0.015
ICEBERG = "ice.bench.flights"
PLANNED: Mapping[str, Callable[[int], str]] = {
    "a range": lambda n: f"delay > {600 + n}",
    "a polygon": lambda n: (
        f"ST_Contains(ST_GeomFromText('POLYGON(({-90 - n / 100} 39, -89 39, -89 40, {-90 - n / 100} 40, "
        f"{-90 - n / 100} 39))'), ST_Point(lng, lat))"
    ),
}


def run() -> None:
    """Print the tables, from a driver of its own, which has the formats' jars."""
    flights()
    subprocess.run([sys.executable, "-c", f"from {__name__} import measured; measured()"], check=True)


def _delta(spark: Any, plain: Path) -> Any:
    """A handle of a table of Delta over hard links to the files."""
    place = plain.parent / "delta"
    place.mkdir()
    for file in plain.glob("*.parquet"):
        (place / file.name).hardlink_to(file)
    spark.sql(f"CONVERT TO DELTA parquet.`{place}`")
    return geoskip.dataset(spark, place)


def _iceberg(spark: Any, plain: Path) -> Any:
    """A handle of a table of Iceberg that has taken in the files where they are."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in spark.read.parquet(str(plain)).dtypes)
    spark.sql(f"DROP TABLE IF EXISTS {ICEBERG}")
    spark.sql(f"CREATE TABLE {ICEBERG} ({columns}) USING iceberg")
    spark.sql(f"CALL ice.system.add_files(table => '{ICEBERG[4:]}', source_table => '`parquet`.`{plain}`')")
    return geoskip.dataset(spark, table=ICEBERG)


TABLES: Mapping[str, Callable[[Any, Path], Any]] = {
    "Parquet": lambda spark, plain: geoskip.dataset(spark, plain),
    "Delta": _delta,
    "Iceberg": _iceberg,
}


def measured(files: int = FILES, share: float = 1.0) -> None:
    """Print the tables, of so many files and a share of the flights."""
    shutil.rmtree(PLACE / "tables", ignore_errors=True)
    plain = PLACE / "tables" / "parquet"
    spark: Any = geoskip.session("geoskip-tables", sedona=False, config=CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    geoskip.register_functions(spark, sedona=False)
    register_own(spark)
    paper = spark.newSession()
    register_paper(paper)
    with console.status("writing tables"):
        rows = spark.read.parquet(str(flights())).sample(share, seed=1)
        geoskip.write(rows, plain, layout=KDTree("lng", "lat"), files=files)
        handles = {name: make(spark, plain) for name, make in TABLES.items()}
        for handle in handles.values():
            handle.create_index(*INDEXES["flights"])
    asked = [query for query in queries() if query.table == "flights"]
    heads = [f"{name} {what}" for name in list(TABLES)[1:] for what in ("own", "files", "no more than Parquet")]
    shown = table(f"Files read, of {files:,}", "", "rows", "Parquet", *heads)
    for query in asked:
        session = paper if query.paper else spark
        row: list[str] = []
        for name, handle in handles.items():
            handle_in(session, handle)
            outcome = compare({query.paper: session}, query, "flights_clustered", repeat=1)
            if name == "Parquet":
                most = outcome.report.files_kept
                row = [f"{outcome.rows:,}", f"{most:,}"]
                continue
            with geoskip.disabled(session):
                own = geoskip.explain(session.sql(query.sql)).files_kept
            kept = outcome.report.files_kept
            row += [f"{own:,}", f"{kept:,}", judged(f"{kept - most:+}", kept <= most)]
        shown.add_row(query.title, *row)
    console.print(shown)
    console.print(_planned(spark, handles, files))
    spark.stop()


def handle_in(session: Any, handle: Any) -> None:
    """Make ``flights`` mean a table in a session."""
    if handle.table is not None:
        session.table(handle.table).createOrReplaceTempView("flights")
        return
    reader = session.read.format("delta" if (Path(handle.path) / "_delta_log").exists() else "parquet")
    reader.load(str(handle.path)).createOrReplaceTempView("flights")


def _planned(spark: Any, handles: Mapping[str, Any], files: int) -> Any:
    """Planning off and on, and what was added."""
    shown = table(f"Planning a query on {files:,} files, milliseconds", "", "", "off", "on", "added (at most 15)")
    for name, handle in handles.items():
        handle_in(spark, handle)
        for what, condition in PLANNED.items():
            numbers = iter(range(1_000_000))

            def plan(_: int, condition: Callable[[int], str] = condition, numbers: Any = numbers) -> None:
                frame = spark.sql(f"SELECT origin, delay FROM flights WHERE {condition(next(numbers))}")
                frame._jdf.queryExecution().toRdd().getNumPartitions()

            def plan_off(number: int, plan: Callable[[int], None] = plan) -> None:
                with geoskip.disabled(spark):
                    plan(number)

            off, on = interleaved([plan_off, plan], times=21, warm=8, of=min)
            added = judged(f"{1000 * (on - off):.1f}", on - off <= ADDED)
            shown.add_row(name, what, milliseconds(off), milliseconds(on), added)
    return shown
