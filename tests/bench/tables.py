"""The demo's queries over tables of formats with logs, beside the same files as plain Parquet.

Flights in 2,000 files of a k-d tree by origin, zip codes and a web log as in the demo; a table of Delta holds hard
links to these very files, and one of Iceberg has taken them in.
*Own* are the files that the format's own skipping leaves, with geoskip off: no query reads more, and those by a shape
or a function of one's own read fewer. The rows of each query are the same on and off. *Planned* is the time until
tasks could start, as in the section ``queries``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import geoskip
from datasets.layout import lay_out
from datasets.weblog import weblog
from examples.demo import DAYS, FILES_A_DAY, LINES, compare
from examples.demo_queries import INDEXES, queries, register_own, register_paper
from geoskip import KDTree
from tests.bench.layouts import CONFIG
from tests.bench.measure import PLACE, console, interleaved, judged, milliseconds, table
from tests.bench.sessions import flights

__all__ = ["FILES", "TABLES", "measured", "run"]

FILES = 2_000
ADDED = 0.015
OPAQUE = re.compile(r"\bST_|\bkilometres\(|\bget_agent_name\(", re.IGNORECASE)
"""Of queries by a shape or a Python function, of which formats know nothing: fewer files than their own are due."""
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


def _linked(folder: Path, place: Path) -> Path:
    """Hard links to the files of a folder in a new one."""
    place.mkdir(parents=True)
    for file in folder.glob("*.parquet"):
        (place / file.name).hardlink_to(file)
    return place


def _delta(spark: Any, plain: Path) -> Any:
    """A handle of a table of Delta over hard links to the files."""
    place = _linked(plain, plain.parent / "delta")
    spark.sql(f"CONVERT TO DELTA parquet.`{place}`")
    return geoskip.dataset(spark, place)


def _iceberg(spark: Any, plain: Path) -> Any:
    """A handle of a table of Iceberg that has taken in the files where they are."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in spark.read.parquet(str(plain)).dtypes)
    table = f"bench.{plain.parent.name}"
    spark.sql(f"DROP TABLE IF EXISTS ice.{table}")
    spark.sql(f"CREATE TABLE ice.{table} ({columns}) USING iceberg")
    spark.sql(f"CALL ice.system.add_files(table => '{table}', source_table => '`parquet`.`{plain}`')")
    return geoskip.dataset(spark, table=f"ice.{table}")


TABLES: Mapping[str, Callable[[Any, Path], Any]] = {
    "Parquet": lambda spark, plain: geoskip.dataset(spark, plain),
    "Delta": _delta,
    "Iceberg": _iceberg,
}


def measured(files: int = FILES, share: float = 1.0) -> None:
    """Print the tables, of so many files and a share of the flights."""
    shutil.rmtree(PLACE / "tables", ignore_errors=True)
    plain = PLACE / "tables" / "flights" / "parquet"
    spark: Any = geoskip.session("geoskip-tables", sedona=False, config=CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    geoskip.register_functions(spark, sedona=False)
    register_own(spark)
    paper = spark.newSession()
    register_paper(paper)
    with console.status("writing tables"):
        rows = spark.read.parquet(str(flights())).sample(share, seed=1)
        geoskip.write(rows, plain, layout=KDTree("lng", "lat"), files=files)
        folders = {
            "flights": plain,
            "zipcodes": lay_out(PLACE, which=["zipcodes_clustered"])["zipcodes_clustered"],
            "weblog": weblog(PLACE / "weblog", LINES, days=DAYS, files=FILES_A_DAY),
        }
        handles: dict[str, dict[str, Any]] = {}
        for data, folder in folders.items():
            place = plain if folder == plain else _linked(folder, PLACE / "tables" / data / "parquet")
            handles[data] = {name: make(spark, place) for name, make in TABLES.items()}
            for handle in handles[data].values():
                handle.create_index(*INDEXES[data])
    compared = ("own", "files", "against own", "against Parquet")
    heads = [f"{name} {what}" for name in list(TABLES)[1:] for what in compared]
    shown = table("Files read", "", "rows", "of", "Parquet", *heads)
    for query in queries():
        session = paper if query.paper else spark
        row: list[str] = []
        for name, handle in handles[query.table].items():
            handle_in(session, handle, query.table)
            outcome = compare({query.paper: session}, query, name, repeat=1)
            if name == "Parquet":
                most = outcome.report.files_kept
                row = [f"{outcome.rows:,}", f"{outcome.report.files_total:,}", f"{most:,}"]
                continue
            with geoskip.disabled(session):
                own = geoskip.explain(session.sql(query.sql)).files_kept
            kept = outcome.report.files_kept
            better = kept < own if OPAQUE.search(query.sql) else kept <= own
            row += [f"{own:,}", f"{kept:,}", judged(f"{kept - own:+}", better)]
            row.append(judged(f"{kept - most:+}", kept <= most))
        shown.add_row(f"{query.table}: {query.title}", *row)
    console.print(shown)
    console.print(_planned(spark, handles["flights"], files))
    spark.stop()


def handle_in(session: Any, handle: Any, name: str = "flights") -> None:
    """Make a name mean a table in a session."""
    if handle.table is not None:
        session.table(handle.table).createOrReplaceTempView(name)
        return
    reader = session.read.format("delta" if (Path(handle.path) / "_delta_log").exists() else "parquet")
    reader.load(str(handle.path)).createOrReplaceTempView(name)


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
