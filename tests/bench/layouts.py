"""Files read of the same data in a lexical order, in geoskip's layouts, and in Delta's and Iceberg's Z-orders.

Everything is written as about 256 files and judged by the true bounds of each file
(:mod:`tests.support.layout_workloads`). Where files are uneven, or a peer comes to another number of them, a file
counts by its rows, so that a layout gains nothing by a few large files; 256 are all. Iceberg never parts equal rows
but by size, so where a few values are heavy its files are uneven, and larger ones were no fewer: of flights by (lng,
lat), which are some 200 airports, it has 281, the largest 2.2 times the mean, and there it reads 5 % fewer than the k-d
tree. *Ideal* are the files that would hold the rows a query needs and no others. The layout of geoskip's that is judged
is one a workload, the best over all its rows.

A range on one column reads at least its share of the files and those that it cuts: of 16 times 16 boxes and 10 % of the
rows 41.6 on average, whoever draws the boxes. So there no layout that treats both columns alike is far from another,
and 1.3 times fewer than Delta's is not to be had.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import geoskip
from examples import demo
from geoskip import Hilbert, KDTree, Layout, MinMax, Sort, ZOrder
from tests.bench.measure import PLACE, console, interleaved, judged, table
from tests.bench.sessions import flights
from tests.support.layout_workloads import (
    KINDS,
    WORKLOADS,
    Ints,
    LayoutWorkload,
    Ranges,
    codes_of,
    distinct_of,
    files_needed,
    files_read,
    ranges,
    share_read,
    written_bounds,
)

__all__ = ["FILES", "OURS", "WrittenWorkload", "run"]

FILES = 256
FEWER_ON_MAPS = 1.3
"""Times as many files as ours that Delta's layout reads of spatial data, at least."""
NEARLY = 0.9
"""Of the files that a lexical order skips by its first column, the share that the Z-order skips by any."""
MOST_COST = 1.5
OURS: Mapping[str, type[Layout]] = {"Z-order": ZOrder, "Hilbert": Hilbert, "k-d tree": KDTree}
PEERS = ("Delta", "Iceberg")
CONFIG = {
    **demo.CONFIG,
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.0.1,org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.catalog.ice.warehouse": (PLACE / "layouts" / "iceberg").as_uri(),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.snapshotPartitions": "2",
}


@dataclass
class WrittenWorkload:
    """A workload's table, as Spark reads it, and the bounds of the files of each layout."""

    spark: Any
    workload: LayoutWorkload
    place: Path
    bounds: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)
    file_rows: dict[str, Ints] = field(default_factory=dict)

    @cached_property
    def rows(self) -> pa.Table:
        return self.workload.rows()

    @cached_property
    def distinct(self) -> list[pa.Array]:
        return [distinct_of(self.rows[name]) for name in self.workload.columns]

    @cached_property
    def codes(self) -> Ints:
        columns = zip(self.workload.columns, self.distinct, strict=True)
        return np.stack([codes_of(self.rows[name], values) for name, values in columns])

    @cached_property
    def frame(self) -> Any:
        """The rows, from four Parquet files."""
        source = self.place / "source"
        source.mkdir(parents=True)
        for number, start in enumerate(np.arange(0, len(self.rows), -(-len(self.rows) // 4)).tolist()):
            pq.write_table(self.rows.slice(start, -(-len(self.rows) // 4)), source / f"part-{number}.parquet")
        return self.spark.read.parquet(str(source))

    def write(self, name: str) -> None:
        """Write the rows in the layout of a name, and keep the bounds of its files."""
        paths = _WRITERS[name](self)
        low, high, rows = written_bounds(paths, self.workload.columns, self.distinct)
        if rows.sum() != len(self.rows):
            raise AssertionError(f"{name} holds {rows.sum():,} rows of {len(self.rows):,}")
        self.bounds[name] = low, high
        self.file_rows[name] = rows

    def share_read(self, name: str, queries: Ranges, columns: Sequence[int] | slice = slice(None)) -> float:
        """The mean share of the rows in files of a layout that queries on some columns read."""
        low, high = self.bounds[name]
        return share_read(queries, low[:, columns], high[:, columns], self.file_rows[name])

    def check_judge(self, name: str, *, queries: int = 12) -> None:
        """Compare the judge with what geoskip keeps by MinMax; raises AssertionError where they differ."""
        folder = str(self.place / name)
        geoskip.dataset(self.spark, folder).create_index(*map(MinMax, self.workload.columns))
        frame = self.spark.read.parquet(folder)
        asked = ranges(self.codes, KINDS[-1], queries=queries)
        read = files_read(asked, *self.bounds[name])
        for low, high, files in zip(asked.low, asked.high, read, strict=True):
            ends = [(v[int(a)].as_py(), v[int(b)].as_py()) for v, a, b in zip(self.distinct, low, high, strict=True)]
            named = zip(self.workload.columns, ends, strict=True)
            condition = " AND ".join(f"{column} BETWEEN {a!r} AND {b!r}" for column, (a, b) in named)
            kept = geoskip.explain(frame.where(condition)).files_kept
            if kept != files:
                raise AssertionError(f"the judge says {files} files and geoskip keeps {kept}: {condition}")


def run() -> None:
    """Print the tables, from a driver of its own, which has the peers' jars."""
    flights()
    subprocess.run([sys.executable, "-c", f"from {__name__} import measured; measured()"], check=True)


def measured(names: Sequence[str] = ()) -> None:
    """Print the tables, or the rows of some datasets alone."""
    shutil.rmtree(PLACE / "layouts", ignore_errors=True)
    spark: Any = geoskip.session("geoskip-layouts", config=CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    shown = table(
        f"Files read, of {FILES}", "", "ideal", "lexical", *OURS, *PEERS, "ours / best peer (at most 1)",
        f"Delta / ours (maps: at least {FEWER_ON_MAPS:g})",
    )  # fmt: skip
    relation = table(
        "Impala's relation: files skipped by ranges of 1 %", "", "Z-order, first", "second", "lexical, first",
        "second", f"first nearly as lexical: of two at least {NEARLY:g}", f"second to first: at least {NEARLY:g}",
    )  # fmt: skip
    with console.status("writing") as status:
        for number, workload in enumerate(WORKLOADS):
            if names and workload.name not in names:
                continue
            written = WrittenWorkload(spark, workload, PLACE / "layouts" / str(number))
            for name in _WRITERS:
                status.update(f"{workload.name} ({', '.join(workload.columns)}): {name}")
                written.write(name)
            if workload.columns == ("lng", "lat"):
                written.check_judge("k-d tree")
            _add_rows(shown, written)
            if workload.name == "uniform":
                relation.add_row(", ".join(workload.columns), *_relation(written))
            shutil.rmtree(written.place)
        console.print(shown)
        console.print(relation)
        status.update("timing writes")
        _print_cost(spark)


def _add_rows(shown: Any, written: WrittenWorkload) -> None:
    """Add a workload's rows: files read by each kind of query in each layout."""
    read, ideal = {}, {}
    for kind in KINDS:
        queries = ranges(written.codes, kind)
        read[kind] = {name: FILES * written.share_read(name, queries) for name in _WRITERS}
        ideal[kind] = float(files_needed(queries, written.codes, FILES).mean())
    best = min(OURS, key=lambda name: float(np.mean([np.log(read[kind][name]) for kind in KINDS])))
    workload = written.workload
    shown.add_row(f"[bold]{workload.name} ({', '.join(workload.columns)}): {best}[/]")
    rows = [written.file_rows[name] for name in ("lexical", *OURS, *PEERS)]
    shown.add_row("  files", "", *(str(len(each)) for each in rows))
    shown.add_row("  rows of the largest, to the mean", "", *(f"{each.max() / each.mean():.2f}" for each in rows))
    for kind in KINDS:
        files = read[kind]
        peer, ours = min(files[name] for name in PEERS), files[best]
        fewer = files["Delta"] / ours
        shown.add_row(
            f"  {kind}", f"{ideal[kind]:.2f}", *(f"{files[name]:.2f}" for name in ("lexical", *OURS, *PEERS)),
            judged(f"{ours / peer:.2f}", ours <= peer),
            judged(f"{fewer:.2f}", fewer >= FEWER_ON_MAPS) if workload.is_spatial else f"{fewer:.2f}",
        )  # fmt: skip


def _relation(written: WrittenWorkload) -> list[str]:
    """Impala's relation: what the first and the second column skip in a Z-order and in a lexical order."""
    skipped = {}
    for column in (0, 1):
        queries = ranges(written.codes[[column]], "range 1 %, one column")
        for name in ("Z-order", "lexical"):
            skipped[name, column] = 1 - written.share_read(name, queries, [column])
    figures = [skipped[name, column] for name in ("Z-order", "lexical") for column in (0, 1)]
    first, second, lexical, _ = figures
    nearly = f"{first / lexical:.3f}"  # a grid of more columns than Impala's two skips less by any
    return [
        *(f"{share:.1%}" for share in figures),
        judged(nearly, first >= NEARLY * lexical) if len(written.workload.columns) == 2 else nearly,
        judged(f"{second / first:.3f}", second >= NEARLY * first),
    ]


def _print_cost(spark: Any, *, times: int = 5) -> None:
    """Print what writing in a layout takes beside sorting by one column, in turn."""
    frame = spark.read.parquet(str(flights()))
    folder = str(PLACE / "layouts" / "cost")
    files = 32

    def by_one_column(_: int) -> None:
        frame.repartitionByRange(files, "lng").sortWithinPartitions("lng").write.mode("overwrite").parquet(folder)

    def in_layout(layout: Layout) -> Callable[[int], Any]:
        return lambda _: geoskip.write(frame, folder, layout=layout, files=files, mode="overwrite")

    layouts = {name: layout("lng", "lat") for name, layout in OURS.items()}
    one, *others = interleaved([by_one_column, *map(in_layout, layouts.values())], times=times)
    shown = table(
        f"Seconds to write {frame.count():,} flights to {files} files", "", "seconds",
        f"to sorting by one column: at most {MOST_COST:g}",
    )  # fmt: skip
    shown.add_row("repartitionByRange(lng).sortWithinPartitions(lng)", f"{one:.2f}", "")
    for name, seconds in zip(layouts, others, strict=True):
        ratio = seconds / one
        shown.add_row(f"geoskip.write, {name}", f"{seconds:.2f}", judged(f"{ratio:.2f}", ratio <= MOST_COST))
    console.print(shown)


# --- writers ----------------------------------------------------------------------------------------------------------


def _geoskip(name: str, layout: type[Layout]) -> Callable[[WrittenWorkload], list[Path]]:
    def write(written: WrittenWorkload) -> list[Path]:
        folder = written.place / name
        geoskip.write(written.frame, str(folder), layout=layout(*written.workload.columns), files=FILES)
        return sorted(folder.glob("*.parquet"))

    return write


def _delta(written: WrittenWorkload) -> list[Path]:
    spark, folder = written.spark, (written.place / "delta").as_uri()
    written.frame.write.format("delta").save(folder)
    size = sum(path.stat().st_size for path in (written.place / "delta").glob("*.parquet"))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(size // FILES))
    spark.sql(f"OPTIMIZE delta.`{folder}` ZORDER BY ({', '.join(written.workload.columns)})")
    return [Path(unquote(urlparse(file).path)) for file in spark.read.format("delta").load(folder).inputFiles()]


def _iceberg(written: WrittenWorkload) -> list[Path]:
    spark, table_name = written.spark, f"ice.layouts.t{written.place.name}"
    written.frame.writeTo(table_name).using("iceberg").create()
    [(size,)] = spark.sql(f"SELECT sum(file_size_in_bytes) FROM {table_name}.files").collect()
    options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{size // FILES}')"
    spark.sql(
        f"CALL ice.system.rewrite_data_files(table => '{table_name[4:]}', strategy => 'sort', "
        f"sort_order => 'zorder({', '.join(written.workload.columns)})', options => {options})"
    )
    found = spark.sql(f"SELECT file_path FROM {table_name}.files WHERE content = 0").collect()
    return [Path(unquote(urlparse(file).path)) for (file,) in found]


_WRITERS: Mapping[str, Callable[[WrittenWorkload], list[Path]]] = {
    "lexical": _geoskip("lexical", Sort),
    **{name: _geoskip(name, layout) for name, layout in OURS.items()},
    "Delta": _delta,
    "Iceberg": _iceberg,
}
