"""Delta tables, and checks that queries of a table are not rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import kept_of_all, rows_of
from tests.support.planting import Inverted, before

ODD = ValueList("temp % 7")
"""Values that Delta's own skipping knows nothing of: its minimum and maximum are those of columns."""
Kept = Callable[..., tuple[int, int]]


def delta_table(spark: Any, place: Path, *, partition: str = "", **properties: str) -> str:
    """Create a table of four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, split by partitions."""
    columns = ("id AS temp", "id % 2 AS half", "concat('n', id) AS name")
    frame = spark.range(40).selectExpr(*columns).repartitionByRange(4, "temp")
    writer = frame.write.format("delta").options(**{f"delta.{name}": value for name, value in properties.items()})
    (writer.partitionBy(partition) if partition else writer).save(str(place))
    return f"delta.`{place}`"


def data_files(place: Path) -> list[dict[str, Any]]:
    """The entries of a table's log, in order."""
    return [json.loads(line) for file in sorted(Path(place, "_delta_log").glob("*.json")) for line in file.open()]


def lie(patch: pytest.MonkeyPatch) -> None:
    """Make MinMax skip exactly the files that it must keep, so that scans that use it lose rows."""

    def clause(original: Any, index: MinMax, node: Any) -> Any:
        found = original(index, node)
        return found and Inverted(found)

    before(patch, MinMax, "clause", clause)


def streamed(frame: Any, place: Path) -> list[Any]:
    """Read a stream to its end and return its rows."""
    name = f"streamed{abs(hash(str(place)))}"
    query = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(place))
    query.trigger(availableNow=True).start().awaitTermination()
    return rows_of(frame.sparkSession.table(name))


def check_left_alone(spark: Any, read: Callable[[], list[Any]]) -> None:
    """Check that rows are the same with geoskip on and off, and that no scan was narrowed meanwhile."""
    with geoskip.disabled(spark):
        off = read()
    earlier = len(geoskip.reports(spark))
    assert read() == off
    assert off
    scans = [scan for report in geoskip.reports(spark)[earlier:] for scan in report.scans]
    assert [scan for scan in scans if scan.files_kept < scan.files_total] == []


def kept_files(spark: Any, query: str | Callable[[], Any], **arguments: Any) -> tuple[int, int]:
    """Count a query's files read and all files, after checking its rows with geoskip on and off."""
    return kept_of_all((lambda: spark.sql(query, **arguments)) if isinstance(query, str) else query)
