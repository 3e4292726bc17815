"""Checks of a session, for the command ``doctor``: workers, Sedona, and one query that skips a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem
from geoskip.indexes.minmax import MinMax
from geoskip.spark.dataset.handle import dataset
from geoskip.spark.reports import explain
from geoskip.spark.session import is_enabled
from geoskip.spark.st_functions import candidates, is_there
from geoskip.spark.workers import is_cluster, way_out, worker_python

_ON_WORKERS = ("numpy", "pyarrow", "shapely", "rapidfuzz", "pyproj", "geoskip")

Line = tuple[str, str, str, str]
"""State (``ok``, ``warn`` or ``fail``), subject, text, and advice."""


def _version(spark: SparkSession) -> Line:
    jvm: Any = spark._jvm
    java = jvm.System.getProperty("java.version")
    return "ok", "Spark", f"{spark.version} on Java {java}, master {spark.sparkContext.master}", ""


def _rule(spark: SparkSession) -> Line:
    if is_enabled(spark):
        return "ok", "geoskip's rule", "is in the session's optimizer", ""
    return "fail", "geoskip's rule", "is not in use", "spark.geoskip.enabled=true switches it on"


def _sedona(spark: SparkSession) -> Line:
    if is_there(spark):
        return "ok", "Sedona", "its jar is in the session", ""
    try:
        way_out = f"--sedona, or spark.jars.packages={','.join(candidates()[0])}"
    except EnvironmentProblem as error:
        way_out = str(error)
    return "warn", "Sedona", "its jar is not in the session: the ST_ functions are shapely's", way_out


def _workers(spark: SparkSession) -> Line:
    """Check the packages and the Python of the workers, on each executor that gets a task."""
    there = worker_python(spark, _ON_WORKERS)
    why = there.lack_of(_ON_WORKERS)
    if why is None:
        return "ok", "workers", f"{there.about}, with {', '.join(_ON_WORKERS)}", ""
    if there.unusable is not None:
        why, _, mended = why.partition(": ")
    else:
        mended = way_out() if is_cluster(spark) else "let PYSPARK_PYTHON name the Python of this driver"
    return "fail", "workers", why, mended


def _query(spark: SparkSession) -> Line:
    """Index two files, and check that a query reads one; not on a cluster, which may lack a shared folder."""
    if is_cluster(spark):
        return "ok", "skipping", "is not tried on a cluster", ""
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


SESSION_CHECKS: tuple[tuple[str, Callable[[SparkSession], Line]], ...] = (
    ("Spark", _version),
    ("geoskip's rule", _rule),
    ("Sedona", _sedona),
    ("workers", _workers),
    ("skipping", _query),
)
"""Checks of a running session by subject; a check that raises does not affect the others."""
