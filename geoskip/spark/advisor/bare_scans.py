"""Scans without metadata, with their conditions, so that a report can name the indexes to create."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from geoskip.errors import GeoskipError
from geoskip.metadata import empty_snapshot
from geoskip.planner import decide
from geoskip.predicates import And, Predicate
from geoskip.report import Report, Scan
from geoskip.spark.advisor.scan_conditions import ScanCondition, conditions_of
from geoskip.spark.reports import report
from geoskip.spark.rule.translate import members_as_written
from geoskip.spark.session import with_rule

_QUALIFIER = re.compile(r"(?:`[^`]*`|\w+)\.")


def report_with_conditions(df: DataFrame) -> Report:
    """Report of a DataFrame's query in which scans without metadata have their conditions too.

    If there is such a scan, the query is planned again, but not run.
    """
    found = report(df)
    scans = _with_table_conditions(df, found.scans)
    found = replace(found, scans=scans)
    if all(scan.decisions() or not scan.predicate for scan in scans):
        return found
    planned: Sequence[ScanCondition] = ()
    with suppress(GeoskipError):  # for a command, which cannot be planned alone, the report is not extended
        planned = [scan for scan in conditions_of(df.sparkSession, df) if not scan.datasets]
    return replace(found, scans=tuple(_complete_scan(scan, planned) for scan in scans))


def _complete_scan(scan: Scan, planned: Sequence[ScanCondition]) -> Scan:
    """A scan with decisions over no file for the conditions that would be used for skipping."""
    if scan.decisions() or not scan.predicate:
        return scan
    of_root = [each for each in planned if each.root == scan.dataset and each.condition]
    same = [each for each in of_root if _members(each.condition) == _members(scan.predicate)] or of_root
    return _add_decisions(scan, same[0].request, same[0].predicates_over()) if same else scan


def _with_table_conditions(df: DataFrame, scans: Sequence[Scan]) -> tuple[Scan, ...]:
    """The scans, with conditions added for tables without metadata in formats that list their own files.

    Such a format removes the filters that it evaluates itself from the plan, so that the scan does not show them.
    """
    if all(scan.decisions() or scan.predicate for scan in scans):
        return tuple(scans)
    try:
        found = with_rule(df.sparkSession).undecided(df._jdf)
    except (PySparkException, Py4JJavaError):  # it cannot be planned alone
        return tuple(scans)
    return tuple(_of_table(scan, found.get(number)) for number, scan in enumerate(scans))


def _of_table(scan: Scan, written: str | None) -> Scan:
    if written is None:
        return scan
    summary = json.loads(written)
    asked, _, environment = summary["question"].partition("\n")
    request = {**json.loads(environment), **json.loads(asked)}
    predicate = And(members_as_written(request["conditions"]))
    return _add_decisions(replace(scan, predicate=summary["condition"]), request, (predicate,))


def _add_decisions(scan: Scan, request: Mapping[str, Any], conditions: Sequence[Predicate]) -> Scan:
    """Add decisions over no file for the conditions of a scan."""
    decisions = tuple(decide(empty_snapshot(scan.dataset), condition) for condition in conditions)
    return replace(scan, decisions=lambda: decisions, written=lambda: members_as_written(request["conditions"]))


def _members(condition: str) -> list[str]:
    """The conjuncts of a SQL condition, sorted, without the qualifiers of columns."""
    return sorted(_QUALIFIER.sub("", condition).split(" AND "))
