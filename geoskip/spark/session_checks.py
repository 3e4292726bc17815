"""Checks of a session, for the command ``doctor``: workers, Sedona, and one query that skips a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from geoskip.indexes.minmax import MinMax
from geoskip.spark.dataset.handle import dataset
from geoskip.spark.reports import explain
from geoskip.spark.session import is_enabled
from geoskip.spark.st_functions import candidates, is_there
from geoskip.spark.workers import is_cluster, way_out, worker_python

_ON_WORKERS = ("numpy", "pyarrow", "shapely", "rapidfuzz", "pyproj", "geoskip")

Line = tuple[str, str, str, str]
"""State (``ok``, ``warn`` or ``fail``), subject, text, and the way out."""


def session_checks(spark: SparkSession) -> Iterator[Line]:
    """Check a running session: versions, the rule, Sedona, workers, and on one machine a query."""
    jvm: Any = spark._jvm
    master = str(spark.sparkContext.master)
    yield "ok", "Spark", f"{spark.version} on Java {jvm.System.getProperty('java.version')}, master {master}", ""
    if is_enabled(spark):
        yield "ok", "geoskip's rule", "is in the session's optimizer", ""
    else:
        yield "fail", "geoskip's rule", "is not in use", "spark.geoskip.enabled=true switches it on"
    if is_there(spark):
        yield "ok", "Sedona", "its jar is in the session", ""
    else:
        way_out = f"--sedona, or spark.jars.packages={','.join(candidates()[0])}"
        yield "warn", "Sedona", "its jar is not in the session: the ST_ functions are shapely's", way_out
    yield _workers(spark)
    if master.startswith("local"):
        yield _skipping(spark)


def _workers(spark: SparkSession) -> Line:
    """Check the packages and the Python of the workers, on each executor that takes a task."""
    there = worker_python(spark, _ON_WORKERS)
    if why := there.missing(_ON_WORKERS):
        mended = way_out() if is_cluster(spark) else "set PYSPARK_PYTHON to the Python of this driver"
        return "fail", "workers", why, mended
    return "ok", "workers", f"{there.about}, with {', '.join(_ON_WORKERS)}", ""


def _skipping(spark: SparkSession) -> Line:
    """Index two files, and check that a query reads one."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            pq.write_table(pa.table({"n": [number]}), Path(folder, f"{number}.parquet"))
        handle = dataset(spark, folder)
        handle.create_index(MinMax("n"))
        frame = handle.to_df().where("n = 1")
        report, rows = explain(frame), frame.count()
    if (report.files_kept, rows) == (1, 1):
        return "ok", "skipping", "a query over two files read one", ""
    why = "; ".join(report.reasons) or "without a reason"
    return "fail", "skipping", f"a query over two files read {report.files_kept} and found {rows} rows: {why}", ""
