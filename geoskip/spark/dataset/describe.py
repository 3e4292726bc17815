"""DataFrames of a dataset's indexes and operations: describe and history."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import MetadataError
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import SnapshotDiff
from geoskip.metadata import Snapshot
from geoskip.spark.dataset.create_refresh import require_index, with_latest
from geoskip.spark.dataset.lifecycle_data import SparkData
from geoskip.spark.dataset.source import DatasetSource
from geoskip.spark.dependencies import same_place
from geoskip.spark.session import known

__all__ = ["datasets", "describe", "history_frame"]

_INDEXES = (
    "index string, kind string, columns string, files_covered long, files_uncovered long, bytes long, built string, "
    "snapshot long, keeps string, state string, reader string"
)
_HISTORY = (
    "operation string, verb string, state string, began timestamp, seconds double, who string, base long, "
    "snapshot long, files_read long, files_added long, files_removed long, files_kept long, bytes long, "
    "parameters string, versions string, message string"
)


def describe(source: DatasetSource) -> DataFrame:
    """DataFrame of the indexes, a row each, those in use first."""
    data = SparkData(source, source.current_state())
    with data.store.patiently():
        rows = with_latest(data.store, lambda found: _index_rows(_require_stored(source, found), data))
    return source.spark.createDataFrame(rows, _INDEXES)


def _require_stored(source: DatasetSource, snapshot: Snapshot | None) -> Snapshot:
    """Return a snapshot with an index, in use or deleted; raise NotIndexedError for another one."""
    return snapshot if snapshot is not None and snapshot.header.stored else require_index(source, snapshot)


def _index_rows(snapshot: Snapshot, data: SparkData) -> list[tuple[Any, ...]]:
    current = SnapshotDiff.at(snapshot, data).is_fresh
    elsewhere = "" if same_place(data.root, snapshot.header.root) else f"not used here: of {snapshot.header.root}"
    sizes = data.store.size()
    rows = []
    for entry in snapshot.header.stored:
        in_use = entry in snapshot.header.entries
        valid = snapshot.files.column(entry.name).is_valid().to_numpy(zero_copy_only=False)
        covered = 0 if elsewhere else int((valid & current).sum())
        built = snapshot.header.built.get(entry.name, {})
        rows.append(
            (
                entry.name,
                entry.index.kind,
                ", ".join(name for name, _ in entry.columns),
                covered,
                len(data.state.files) - covered,
                sizes.get(entry.name, 0),
                str(built.get("when", snapshot.header.created)),
                snapshot.header.number,
                entry.index.describe(),
                (elsewhere or "in use") if in_use else "deleted",
                str(built.get("reader", "")),
            )
        )
    return rows


def history_frame(source: DatasetSource) -> DataFrame:
    """DataFrame of the operations, a row each, the oldest first."""
    store = source.store(source.relation())
    rows = [dataclasses.astuple(row) for row in history(store)]
    return source.spark.createDataFrame([(*row[:3], _time(row[3]), *row[4:]) for row in rows], _HISTORY)


def datasets(spark: SparkSession) -> dict[str, Snapshot]:
    """Indexed datasets that this driver has met: the latest snapshot by root, unreachable ones left out."""
    found: dict[str, Snapshot] = {}
    for root in known.roots():
        with suppress(MetadataError):
            snapshot = latest(known.store(root))
            if snapshot is not None and snapshot.header.entries and same_place(root, snapshot.header.root):
                found[root] = snapshot
    return found


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
