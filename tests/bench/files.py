"""geoskip.files over the metadata of 1,000,000 files, without Spark, in a process of its own each time.

*import* is ``import geoskip``, and *import files* that of ``geoskip.files`` too. *compare* is what ``geoskip.listing``
does beside listing: matching the snapshot's files with the listing's by path, in another order, size and time. *cold*
is the first question after it: two columns of the metadata are read, the condition is parsed, and all files are
decided. *warm* are others, each with a new literal. *list* is a listing of real empty files, per million.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.bench.kernels import COLUMNS, Synthetic, entries
from tests.bench.measure import PLACE, console, judged, milliseconds, table

__all__ = ["run"]

FILES = 1_000_000
LISTED = 20_000
ROUNDS = 5
TARGETS = {"import": 0.35, "cold": 0.5, "warm": 0.010}
_CLASS = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"


def run(files: int = FILES) -> None:
    """Print the table."""
    place = PLACE / f"files-{files}"
    if not (place / "listing.arrow").exists():
        with console.status("writing metadata"):
            _write(place, files)
    found = table(f"geoskip.files over {files:,} files, milliseconds", "", "median", "least", "target")
    rounds = []
    for _ in range(ROUNDS):
        code = f"from {__name__} import measured; measured({str(place)!r})"
        rounds.append(json.loads(subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1]))
    for name in rounds[0]:
        seconds = [one[name] for one in rounds]
        target = TARGETS.get(name)
        shown = "" if target is None else judged(milliseconds(target), statistics.median(seconds) <= target)
        found.add_row(name, milliseconds(statistics.median(seconds)), milliseconds(min(seconds)), shown)
    console.print(found)


def _write(place: Path, files: int) -> None:
    """Write the metadata, and a listing of the same files in another order."""
    from geoskip.metadata import Header
    from geoskip.stores.parquet import ParquetStore

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    fields = [{"name": name, "type": "double", "nullable": True, "metadata": {}} for name in (*COLUMNS, "lng", "lat")]
    source = {"class": _CLASS, "options": {}, "schema": json.dumps({"type": "struct", "fields": fields})}
    store = ParquetStore(place / "_geoskip")
    data = Synthetic(files).table
    paths = pa.array(
        [f"2024/{number % 366:03}/part-{number:07}-{number * 7919:012x}.parquet" for number in range(files)]
    )
    data = data.set_column(0, "path", paths)
    header = Header(f"file:{place}", source, tuple(entries()), identity=store.begin(), created="2026-01-01")
    store.commit(header, data, expected=None)
    base = data.select(["path", "size", "mtime", "etag"]).sort_by("path").combine_chunks()
    with pa.OSFile(str(place / "listing.arrow"), "wb") as sink, pa.ipc.new_file(sink, base.schema) as writer:
        writer.write_table(base)


def measured(place: str) -> None:
    """Print the seconds of each step in this process, as JSON."""
    seconds = {"import": _import_seconds("geoskip"), "import files": _import_seconds("geoskip.files")}
    import geoskip
    from geoskip.engines.folder_listing import FolderListing, list_folder
    from geoskip.engines.matched_snapshot import FileMatch, latest_snapshot, store_of

    with pa.memory_map(f"{place}/listing.arrow") as source:
        columns = [column.combine_chunks() for column in pa.ipc.open_file(source).read_all().itercolumns()]
        columns = [pa.concat_arrays([column]) for column in columns]
    listing = FolderListing(place, *columns)

    def timed(name: str, step: Any) -> Any:
        started = time.perf_counter()
        found = step()
        seconds[name] = time.perf_counter() - started
        return found

    snapshot = latest_snapshot(store_of(place, None, None))
    assert snapshot is not None
    timed("compare", lambda: FileMatch.of(snapshot, listing))

    def question(low: float) -> Any:
        return geoskip.files(place, f"temp >= {low} AND wind <= 3.25", listing=listing)

    first = timed("cold", lambda: question(97.5))
    assert 0 < len(first) < len(listing) / 100
    times = []
    for number in np.linspace(96, 99, 15):
        timed("warm", lambda low=float(number): question(low))
        times.append(seconds["warm"])
    seconds["warm"] = statistics.median(times)
    assert not {"pyspark", "py4j"} & sys.modules.keys()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(LISTED):
            (Path(folder) / f"part-{number:07}.parquet").touch()
        timed("list", lambda: list_folder(folder))
    seconds["list"] *= FILES / LISTED
    print(json.dumps(seconds))


def _import_seconds(name: str) -> float:
    code = f"import time; s = time.perf_counter(); import geoskip; {name}; print(time.perf_counter() - s)"
    return float(subprocess.check_output([sys.executable, "-c", code], text=True))
