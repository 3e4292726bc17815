"""Log of the conditions of a session's queries, and their conversion back to queries for advice.

With ``spark.geoskip.workload`` set to ``on`` or ``literals`` the session records its queries' conditions on files in
addition to their reports (``jvm/WorkloadLog.java``). This is done after a query, in the thread of Spark's listeners, so
that it neither delays queries nor makes them fail. The log ends with the session.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from geoskip.errors import InvalidSpecificationError
from geoskip.spark.advisor.scan_conditions import PlannedScan, ScanCondition, condition_of
from geoskip.spark.analysis import sentence
from geoskip.spark.reports import await_listeners
from geoskip.spark.session import check_session, java

SETTING = "spark.geoskip.workload"
_COLUMNS = (
    "dataset string, condition string, count bigint, files_read bigint, bytes_read bigint, files_total bigint, "
    "bytes_total bigint, first_seen timestamp, last_seen timestamp, literals boolean"
)


def workload_log(spark: SparkSession) -> DataFrame:
    """DataFrame with one row for each condition of a session's queries, the most recent first.

    Rows are recorded for queries that have ended, one for each dataset and scan condition, if
    ``spark.geoskip.workload`` was ``on`` or ``literals`` when the query was planned; with ``on``, ``?`` and its type
    replace every literal. The newest 1000 rows are kept, or as many as have four million characters. Scans that fill a
    cache and geoskip's own queries are not recorded.

    Returns
    -------
    DataFrame
        ``dataset`` is the root of the relation, ``condition`` SQL text, empty for a scan without one. ``count`` is the
        number of runs; ``files_read``, ``bytes_read``, ``files_total`` and ``bytes_total`` are sums over these runs.
        ``literals`` is true if :func:`geoskip.workload` and advice can plan the condition again.
    """
    rows = [
        (
            entry["dataset"],
            entry["condition"],
            entry["count"],
            *(entry["amounts"][place] for place in (2, 3, 0, 1)),
            *(datetime.fromtimestamp(entry[name] / 1000, UTC) for name in ("first", "last")),
            entry["read"] is not None,
        )
        for entry in reversed(_entries(spark))
    ]
    return spark.createDataFrame(rows, _COLUMNS)


@dataclass(frozen=True)
class LoggedCondition:
    """A condition of the log that can be planned again, over the current files."""

    scan: ScanCondition
    count: int
    """The number of runs."""


def logged_conditions(spark: SparkSession) -> list[LoggedCondition]:
    """The recorded conditions of a session with their literals, the most recent first.

    Their files are listed again; conditions on missing tables, files or columns are left out with a warning.

    Raises
    ------
    InvalidSpecificationError
        If none was recorded, or none with its literals; the message says how to record them.
    """
    entries = _entries(spark)
    if not entries:
        raise InvalidSpecificationError(
            "the session has kept no query to give advice on: pass queries=[...], or "
            f"spark.conf.set('{SETTING}', 'literals') before the queries are run"
        )
    with_literals = [entry for entry in reversed(entries) if entry["read"] is not None]
    if not with_literals:
        raise InvalidSpecificationError(
            f"the session has kept {len(entries)} conditions without their literals ({SETTING}=on), and which files a "
            f"condition needs depends on its literals: pass queries=[...], or spark.conf.set('{SETTING}', 'literals') "
            "before the queries are run"
        )
    found = []
    for entry in with_literals:
        try:
            scan = _logged_scan(spark, entry["number"], entry["read"])
        except (PySparkException, Py4JJavaError) as error:
            warnings.warn(f"{entry['condition']} is left out: {sentence(error)}", stacklevel=2)
            continue
        if scan is not None:
            found.append(LoggedCondition(scan, entry["count"]))
    return found


def _entries(spark: SparkSession) -> list[Mapping[str, Any]]:
    """The conditions of the log with their numbers; their order changes whenever a query ends."""
    check_session(spark)
    await_listeners(spark)
    found: list[Mapping[str, Any]] = json.loads(java(spark).geoskip.workload(spark._jsparkSession))
    return found


def _logged_scan(spark: SparkSession, number: int, read: Mapping[str, Any]) -> ScanCondition | None:
    """The scan of a condition of the log; None if it was dropped for newer ones."""
    side = java(spark).geoskip
    if (seen := side.seen(spark._jsparkSession, number)) is None:
        return None
    if read["table"] is not None:
        frame = spark.table(read["table"])
    else:
        options = {name: value for name, value in read["options"].items() if name.lower() not in ("path", "paths")}
        schema = T.StructType.fromJson(json.loads(read["schema"]))
        frame = spark.read.format(read["format"]).options(**options).schema(schema).load(read["roots"])
    return condition_of(PlannedScan(side, side.planned(seen, frame._jdf), spark))
