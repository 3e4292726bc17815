"""Scans without metadata, with their conditions, so that a report can name the indexes to create."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame

from geoskip.errors import GeoskipError
from geoskip.metadata import Header, Snapshot
from geoskip.metadata.file_table import FileMetadata, files_schema
from geoskip.planner import decide
from geoskip.report import Report, Scan
from geoskip.spark.advisor.scan_conditions import ScanCondition, conditions_of
from geoskip.spark.reports import report
from geoskip.spark.rule.translate import members_as_written

_QUALIFIER = re.compile(r"(?:`[^`]*`|\w+)\.")


def report_with_conditions(df: DataFrame) -> Report:
    """Report of a DataFrame's query in which scans without metadata have their conditions too.

    Where there is such a scan the query is planned once more, and not run.
    """
    found = report(df)
    if all(scan.decisions() or not scan.predicate for scan in found.scans):
        return found
    planned: Sequence[ScanCondition] = ()
    with suppress(GeoskipError):  # what cannot be planned by itself, such as a command, keeps the report it has
        planned = [scan for scan in conditions_of(df.sparkSession, df) if not scan.datasets]
    return replace(found, scans=tuple(_completed(scan, planned) for scan in found.scans))


def _completed(scan: Scan, planned: Sequence[ScanCondition]) -> Scan:
    """A scan with the conditions that its files would be decided on, over no file."""
    if scan.decisions():
        return scan
    of_root = [each for each in planned if each.root == scan.dataset and each.condition]
    same = [each for each in of_root if _members(each.condition) == _members(scan.predicate)] or of_root
    if not same:
        return scan
    first = same[0]
    empty = Snapshot(Header(first.root, {}), FileMetadata.of(files_schema(()).empty_table()))
    decisions = tuple(decide(empty, condition) for condition in first.predicates_over())
    return replace(scan, decisions=lambda: decisions, written=lambda: members_as_written(first.request["conditions"]))


def _members(condition: str) -> list[str]:
    """The members of a condition in SQL in one order, without the names of relations before its columns."""
    return sorted(_QUALIFIER.sub("", condition).split(" AND "))
