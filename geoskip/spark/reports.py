"""Reports of queries, computed from the scans of their plans, never from the decisions of the rule."""

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
from geoskip.spark.rule.translate import members_as_written
from geoskip.spark.session import bridge, check_session, java

_SEED = 0
_SHUFFLED = 1 << 30
"""Bytes of a scan above which the first rows are used instead of random ones, which would read all of it."""


def report(df: DataFrame) -> Report:
    """Report of the files that a DataFrame's query has read, or will read if it was not run yet.

    The plan is the DataFrame's own: ``df.show()`` and ``df.count()`` run other plans, which are in :func:`reports`,
    but decide on the same files.
    """
    return _report_of(df, "report()")


def _report_of(df: DataFrame, call: str) -> Report:
    """Report of a DataFrame; for another object raises InvalidSpecificationError that names the ``call``."""
    if not isinstance(df, DataFrame):
        raise InvalidSpecificationError(
            f"{call} is about a DataFrame of Spark's, got {type(df).__module__}.{type(df).__qualname__}; "
            "last_report(spark) is about the query run last, whatever it made"
        )
    check_session(df.sparkSession)
    if df.isStreaming:
        return Report((), ("left alone: a stream; geoskip does not know which rows of a file a micro-batch reads",))
    await_listeners(df.sparkSession)  # for the query that filled a cache
    return _report(df.sparkSession, java(df.sparkSession).geoskip.facts(df._jdf.queryExecution()))


def explain(df: DataFrame) -> Report:
    """Report the files that a DataFrame's query will read; plan it without running it."""
    return _report_of(df, "explain()")


def last_report(spark: SparkSession) -> Report:
    """Report of the last executed query of a session; an empty report if there was none.

    It is also empty if eight other sessions have run queries since: see :func:`reports`.
    """
    recent = _recent(spark)
    return _report(spark, recent[-1]) if recent else Report(())


def reports(spark: SparkSession) -> list[Report]:
    """Reports of the recent queries of a session, the oldest first.

    Fewer reports are kept for large listings, and none if eight other sessions have run queries since, so that reports
    do not keep ended sessions in memory.
    """
    return [_report(spark, facts) for facts in _recent(spark)]


def _recent(spark: SparkSession) -> list[Any]:
    """The recent queries of a session on the Java side, the oldest first."""
    check_session(spark)
    await_listeners(spark)
    return _items(java(spark).geoskip.recent(spark._jsparkSession))


def await_listeners(spark: SparkSession) -> None:
    """Wait until listeners have got all completed queries; in a busy driver the newest may be missing."""
    with suppress(Py4JJavaError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)


def wait_for_audits(spark: SparkSession, seconds: float = 60.0) -> bool:
    """Wait until the audits of ``spark.geoskip.audit`` are done; return False after the timeout."""
    check_session(spark)
    with suppress(Py4JJavaError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(1000 * seconds))
    return bool(java(spark).geoskip.audited(int(1000 * seconds)))


def _report(spark: SparkSession, facts: Any) -> Report:
    scans = tuple(_scan(spark, scan) for scan in _items(facts.scans()))
    return Report(scans, tuple(dict.fromkeys(_items(facts.notes()))), lambda: json.loads(facts.context()))


def _items(items: Any) -> list[Any]:
    """Items of a Java list by number: iteration ends with an exception, which is slow in PySpark."""
    return [items.get(number) for number in range(items.size())]


def _scan(spark: SparkSession, facts: Any) -> Scan:
    try:
        summary = json.loads(facts.summary())
    except (PySparkException, Py4JJavaError) as error:  # the table may have been dropped
        why = str(error).strip().partition("\n")[0]
        return Scan("", "", 0, 0, 0, 0, 0.0, (f"its files can no longer be listed: {why}",))
    decided = summary.get("report") or {}
    reasons = [summary["reason"]] if "reason" in summary else decided.get("reasons", [])
    remembered = bridge.recall_decision(decided["decision"]) if "decision" in decided else None
    return Scan(
        dataset=summary["root"],
        predicate=(remembered.predicate() if remembered else "") or summary["filter"],
        files_total=summary["files_total"],
        files_kept=summary["files_kept"],
        bytes_total=summary["bytes_total"],
        bytes_kept=summary["bytes_kept"],
        planning_seconds=summary.get("planning_seconds", 0.0),
        noted=(*reasons, *summary.get("notes", ())),
        files_unindexed=summary.get("unknown", 0),
        files_audited=summary.get("audited", 0),
        lost=tuple(summary.get("lost", ())),
        partitions=tuple(summary.get("partitions", ())),
        paths=lambda kept: [path for path in facts.paths(kept).split("\0") if path],
        effects=(lambda: remembered.effects(facts.listed())) if remembered else tuple,
        decisions=lambda: remembered.decisions if remembered else (),
        written=(lambda: members_as_written(remembered.conditions)) if remembered else tuple,
        among=(lambda: remembered.listed_masks(facts.listed())) if remembered else tuple,
        rows=lambda expressions, most: _matching_rows(spark, facts, expressions, most),
    )


def _matching_rows(spark: SparkSession, facts: Any, expressions: Sequence[str], most: int) -> list[tuple[Any, ...]]:
    """Values of SQL expressions over the matching rows of a scan, read again for its plot.

    The query of this is not reported.

    Parameters
    ----------
    spark, facts, expressions
        The session, the scan on the Java side, and SQL texts over the relation's columns.
    most
        The maximum number of rows. If the query fails, there is a warning and no rows.
    """
    try:
        plan = facts.matching()
        if plan is None:
            return []
        frame = DataFrame(plan, spark).select(*(F.expr(text) for text in expressions))
        if facts.keptBytes() <= _SHUFFLED:
            frame = frame.orderBy(F.rand(_SEED))
        some = frame.limit(most)
        java(spark).geoskip.leaveOut(some._jdf)
        return [tuple(row) for row in some.collect()]
    except (Py4JJavaError, PySparkException) as error:
        first = str(error).strip().partition("\n")[0]
        warnings.warn(f"the matching rows could not be read again, so none are drawn: {first[:300]}", stacklevel=2)
        return []
