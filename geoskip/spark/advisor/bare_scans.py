"""Scans without metadata, with their conditions, so that a report can name the indexes to create."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame

from geoskip.errors import GeoskipError
from geoskip.metadata import Header, Snapshot
from geoskip.metadata.file_table import FileMetadata, files_schema
from geoskip.planner import Decision, decide
from geoskip.report import Report, Scan
from geoskip.spark.advisor.scan_conditions import conditions_of
from geoskip.spark.reports import report


def report_with_conditions(df: DataFrame) -> Report:
    """Report of a DataFrame's query in which scans without metadata have their conditions too.

    Where there is such a scan the query is planned once more, and not run.
    """
    found = report(df)
    if all(scan.decisions() or not scan.predicate for scan in found.scans):
        return found
    decisions: Mapping[str, tuple[Decision, ...]] = {}
    with suppress(GeoskipError):  # what cannot be planned by itself, such as a command, keeps the report it has
        decisions = _decisions(df)
    return replace(found, scans=tuple(_completed(scan, decisions) for scan in found.scans))


def _decisions(df: DataFrame) -> dict[str, tuple[Decision, ...]]:
    """Decisions over no file for the scans of datasets that have no metadata, by root."""
    decisions: dict[str, tuple[Decision, ...]] = {}
    for scan in conditions_of(df.sparkSession, df):
        if not scan.datasets:
            empty = Snapshot(Header(scan.root, {}), FileMetadata.of(files_schema(()).empty_table()))
            of_scan = tuple(decide(empty, condition) for condition in scan.predicates_over())
            decisions[scan.root] = decisions.get(scan.root, ()) + of_scan
    return decisions


def _completed(scan: Scan, decisions: Mapping[str, tuple[Decision, ...]]) -> Scan:
    own = decisions.get(scan.dataset, ())
    return scan if scan.decisions() or not own else replace(scan, decisions=lambda: own)
