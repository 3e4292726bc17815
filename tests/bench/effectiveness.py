"""How much of what is read had to be: over fixed workloads on clustered data, for every index and mapping.

The metadata factor *mu* is the bytes of the files that hold a row which matches, by Spark with geoskip off, to the
bytes of the files that geoskip keeps, summed over the conditions of a workload. A file that was needed and skipped ends
the section.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import shapely
import shapely.affinity
from pyspark.sql import functions as F

import geoskip
from datasets.generate_mixed import mixed
from geoskip import GeoBox
from tests.bench.kernels import polygon
from tests.bench.measure import PLACE, console, judged, table
from tests.bench.sessions import flights, logs, readings, session
from tests.bench.workloads import WORKLOADS
from udf_mappings import metric_functions

__all__ = ["factor", "run"]

LEAST_MU = 0.95
LEAST_FEWER = 9
BOXES = 8
WINDOWS = 40
FEW_LOGS, FEW_READINGS = 1_000, 2_000


def run() -> None:
    """Print the tables."""
    spark = session()
    metric_functions.register(spark)
    folders = {"readings": readings(FEW_READINGS), "flights": flights(), "logs": logs(FEW_LOGS)}
    shown = table("Effectiveness", "", "conditions", "files needed", "files kept", "MB needed", "MB kept", "mu")
    with console.status("measuring effectiveness") as status:
        for name, workloads in WORKLOADS.items():
            folder = folders[name]
            shown.add_row(f"[bold]{name}: {len(list(folder.glob('*.parquet'))):,} files[/]")
            status.update(name)
            _indexed(spark, folder, list(dict.fromkeys(workload.index for workload in workloads)))
            terms = _terms(folder)
            asked = {w: [condition.format_map(terms) for condition in w.conditions] for w in workloads}
            needed = _needed(spark, folder, [condition for some in asked.values() for condition in some])
            for workload, conditions in asked.items():
                status.update(f"{name}: {workload.what}")
                _indexed(spark, folder, [workload.index])
                shown.add_row(f"  {workload.what}", *_judged(spark, folder, needed, conditions))
        console.print(shown)
        status.update("clusters")
        _clusters(spark)
        status.update("holes")
        _hole(spark, folders["readings"])


def factor(needed: Iterable[set[str]], kept: Iterable[set[str]], sizes: Mapping[str, int]) -> float:
    """Bytes that had to be read to bytes read; raises AssertionError where a needed file was skipped.

    >>> factor([{"a"}, set()], [{"a", "b"}, set()], {"a": 3, "b": 1})
    0.75
    """
    had, were = 0, 0
    for some, read in zip(needed, kept, strict=True):
        if not some <= read:
            raise AssertionError(f"{len(some - read)} files that hold matching rows were skipped")
        had += sum(sizes[name] for name in some)
        were += sum(sizes[name] for name in read)
    return had / were if were else 1.0


def _judged(spark: Any, folder: Path, needed: Mapping[str, set[str]], conditions: list[str]) -> list[str]:
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.parquet")}
    had = [needed[condition] for condition in conditions]
    kept = [_kept(spark, condition) for condition in conditions]
    mu = factor(had, kept, sizes)
    counts = (sum(map(len, had)), sum(map(len, kept)))
    megabytes = (sum(sizes[name] for some in files for name in some) / 1e6 for files in (had, kept))
    return [
        str(len(conditions)), *(f"{count:,}" for count in counts), *(f"{mb:.2f}" for mb in megabytes),
        judged(f"{mu:.3f}", mu >= LEAST_MU),
    ]  # fmt: skip


def _indexed(spark: Any, folder: Path, indexes: list[Any]) -> None:
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    geoskip.dataset(spark, str(folder)).create_index(*indexes)
    spark.read.parquet(str(folder)).createOrReplaceTempView("data")


def _kept(spark: Any, condition: str) -> set[str]:
    """The names of the files that a query keeps; it is planned and not run."""
    report = geoskip.explain(spark.sql(f"SELECT * FROM data WHERE {condition}"))
    return {path.rpartition("/")[2] for path in report.scans[0].kept_files()}


def _needed(spark: Any, folder: Path, conditions: list[str]) -> dict[str, set[str]]:
    """The names of the files with a matching row, a condition, by one query without geoskip."""
    found = [f"coalesce({condition}, false) AS c{number}" for number, condition in enumerate(conditions)]
    each = [f"max(c{number}) AS c{number}" for number in range(len(conditions))]
    with geoskip.disabled(spark):
        frame = spark.read.parquet(str(folder)).selectExpr("_metadata.file_name AS name", *found).groupBy("name")
        rows = frame.agg(*map(F.expr, each)).collect()
    return {condition: {row["name"] for row in rows if row[f"c{n}"]} for n, condition in enumerate(conditions)}


def _terms(folder: Path) -> dict[str, str]:
    """Values that conditions look for, from the middle of the data."""
    path = sorted(folder.glob("*.parquet"))[len(list(folder.glob("*.parquet"))) // 2]
    row = pq.read_table(path).slice(0, 1).to_pylist()[0]
    name = str(row.get("db_name", ""))
    return {
        "session": str(row.get("session", "")), "db_name": name, "account": name.partition(".")[0],
        "tail": name.rpartition(".")[2],
    }  # fmt: skip


def _clusters(spark: Any) -> None:
    """Several boxes against one, on files that mix clusters."""
    folder = mixed(PLACE / "mixed")
    kept = {}
    for boxes in (1, BOXES):
        _indexed(spark, folder, [GeoBox("lng", "lat", boxes=boxes)])
        windows = (shapely.box(x, y, x + 2, y + 2) for x, y in _corners())
        kept[boxes] = sum(
            len(_kept(spark, f"ST_Contains(ST_GeomFromText('{window.wkt}'), ST_Point(lng, lat))")) for window in windows
        )
    fewer = kept[1] / kept[BOXES]
    console.print(
        f"Files of three clusters kept by {WINDOWS} windows: {kept[1]:,} with one box each, {kept[BOXES]:,} with "
        f"{BOXES}, {judged(f'{fewer:.1f}', fewer >= LEAST_FEWER)} times fewer; at least {LEAST_FEWER}"
    )


def _corners() -> list[tuple[float, float]]:
    """Places of windows, from the first files: each finds something."""
    paths = sorted((PLACE / "mixed").glob("*.parquet"))[:WINDOWS]
    firsts = [pq.read_table(path, columns=["lng", "lat"]).slice(0, 1).to_pylist()[0] for path in paths]
    return [(row["lng"] - 1, row["lat"] - 1) for row in firsts]


def _hole(spark: Any, folder: Path) -> None:
    """A polygon of thousands of vertices with a hole: files that lie in the hole are not read."""
    outer, inner = polygon(0, 3000, 14.0), polygon(0, 2000, 6.0)
    shell, hole = (shapely.affinity.translate(shape, -100 - 10, 38 - 20) for shape in (outer, inner))
    ring = shapely.Polygon(shell.exterior, [hole.exterior])
    _indexed(spark, folder, [GeoBox("lng", "lat")])
    bounds = {}
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path, columns=["lng", "lat"])
        points = shapely.points(rows["lng"].to_numpy(), rows["lat"].to_numpy())
        bounds[path.name] = shapely.MultiPoint(points).convex_hull
    within = {name for name, shape in bounds.items() if hole.contains(shape)}
    kept = {
        what: _kept(spark, f"ST_Contains(ST_GeomFromText('{shape.wkt}'), ST_Point(lng, lat))")
        for what, shape in (("with", ring), ("without", shell))
    }
    left = len(within & kept["with"])
    console.print(
        f"A polygon of {len(shell.exterior.coords):,} vertices keeps {len(kept['without']):,} files, with a hole of "
        f"{len(hole.exterior.coords):,} vertices {len(kept['with']):,}; of the {len(within):,} files inside the hole "
        f"{judged(str(left), bool(within) and left == 0)} are kept"
    )
