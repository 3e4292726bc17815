"""Reports of what executed plans read: from the plans' own scans, never from what the rule said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geoskip.errors import InvalidSpecificationError
from geoskip.report import Report, Scan
from geoskip.spark.session import bridge, check_session, java

__all__ = ["explain", "last_report", "report", "reports", "wait_for_audits"]

_SEED = 0
_SHUFFLED = 1 << 30
"""Bytes: of larger scans the first rows are taken, not some at random, which would read everything."""


def report(df: DataFrame) -> Report:
    """What a DataFrame's query read, or, when it was not run yet, what it is going to read.

    The plan is the DataFrame's own: ``df.show()`` and ``df.count()`` run other plans, which are in :func:`reports`,
    but decide on the same files.
    """
    if not isinstance(df, DataFrame):
        raise InvalidSpecificationError(
            f"report() is about a DataFrame of Spark's, got {type(df).__module__}.{type(df).__qualname__}; "
            "last_report(spark) is about the query run last, whatever it made"
        )
    if df.isStreaming:
        return Report((), ("left alone: a stream; geoskip does not know which rows of a file a micro-batch reads",))
    _heard(df.sparkSession)  # of the query that filled a cache
    return _report(df.sparkSession, java(df.sparkSession).geoskip.facts(df._jdf.queryExecution()))


def explain(df: DataFrame) -> Report:
    """What a DataFrame's query is going to read; plans it, runs nothing."""
    return report(df)


def last_report(spark: SparkSession) -> Report:
    """What the last executed query of this session read; an empty report where there was none, or where it is forgotten
    since many other sessions have asked: see :func:`reports`.
    """
    found = reports(spark)
    return found[-1] if found else Report(())


def reports(spark: SparkSession) -> list[Report]:
    """What the recent queries of this session read, the oldest first: fewer of large listings, and none where eight
    other sessions have asked since, so that sessions which are over can be forgotten.
    """
    check_session(spark)
    _heard(spark)
    return [_report(spark, facts) for facts in _items(java(spark).geoskip.recent(spark._jsparkSession))]


def _heard(spark: SparkSession) -> None:
    """Wait for Spark to tell of the queries that have ended; of a busy driver the newest may be missing."""
    with suppress(Py4JJavaError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)


def wait_for_audits(spark: SparkSession, seconds: float = 60.0) -> bool:
    """Wait until the files are read that ``spark.geoskip.audit`` wants read again; False if that takes longer."""
    with suppress(Py4JJavaError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(1000 * seconds))
    return bool(java(spark).geoskip.audited(int(1000 * seconds)))


def _report(spark: SparkSession, facts: Any) -> Report:
    scans = tuple(_scan(spark, scan) for scan in _items(facts.scans()))
    return Report(scans, tuple(dict.fromkeys(_items(facts.notes()))))


def _items(found: Any) -> list[Any]:
    """The items of a Java list; the end of an iteration would be an exception, which PySpark takes long to look at."""
    return [found.get(number) for number in range(found.size())]


def _scan(spark: SparkSession, facts: Any) -> Scan:
    found = json.loads(facts.summary())
    said = found.get("report") or {}
    reasons = [found["reason"]] if "reason" in found else said.get("reasons", ())
    remembered = bridge.remembered(said["decision"]) if "decision" in said else None
    return Scan(
        dataset=found["root"],
        predicate=(remembered.predicate() if remembered else "") or found["filter"],
        files_total=found["files_total"],
        files_kept=found["files_kept"],
        bytes_total=found["bytes_total"],
        bytes_kept=found["bytes_kept"],
        planning_seconds=found.get("planning_seconds", 0.0),
        reasons=tuple(reasons),
        files_unindexed=found.get("unknown", 0),
        files_audited=found.get("audited", 0),
        lost=tuple(found.get("lost", ())),
        paths=lambda kept: [path for path in facts.paths(kept).split("\0") if path],
        effects=(lambda: remembered.effects(facts.listed())) if remembered else tuple,
        decisions=lambda: remembered.decisions if remembered else (),
        rows=lambda expressions, most: _matching_rows(spark, facts, expressions, most),
    )


def _matching_rows(spark: SparkSession, facts: Any, expressions: Sequence[str], most: int) -> list[tuple[Any, ...]]:
    """The values of some SQL expressions over the relation's columns, for at most so many of a scan's matching rows.

    A query of geoskip's own, which no report shows. Where it cannot be made or fails there are no rows, and a warning.
    """
    try:
        plan = facts.matching()
        if plan is None:
            return []
        frame = DataFrame(plan, spark).select(*(F.expr(text) for text in expressions))
        if facts.keptBytes() <= _SHUFFLED:
            frame = frame.orderBy(F.rand(_SEED))
        return [tuple(row) for row in frame.limit(most).collect()]
    except (Py4JJavaError, PySparkException) as error:
        first = str(error).strip().partition("\n")[0]
        warnings.warn(f"the matching rows could not be read again, so none are drawn: {first[:300]}", stacklevel=2)
        return []
