"""Show the metadata, compare summaries with the data, and repair those that differ."""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import (
    ConflictError,
    DatasetNotFoundError,
    MetadataError,
    MissingKeyError,
    NewerFormatError,
)
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import RefreshPlan, SnapshotDiff
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, NoChange, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, Snapshot, build_table
from geoskip.sources.build_verbs import (
    BuildReport,
    check_keys,
    check_same,
    drop,
    is_elsewhere,
    latest_with_index,
    require_index,
    with_latest,
)
from geoskip.sources.dependencies import same_place
from geoskip.sources.listed_files import reason_not_indexable
from geoskip.sources.verification import VerifyResult, check_sample, verify_data
from geoskip.spark.analysis import bind
from geoskip.spark.dataset.create_refresh import ENGINE, create, report
from geoskip.spark.dataset.source import DatasetSource, SparkData
from geoskip.spark.session import check_session, known
from geoskip.statements.statement import DescribeStatement
from geoskip.stores.base import Store


def verify(source: DatasetSource, sample: float | None = None) -> VerifyResult:
    """Compute summaries of some files again and compare them with the stored ones."""
    check_sample(sample)
    data = SparkData(source)
    return verify_data(data, sample, data.use_settings_of)


def repair(source: DatasetSource) -> BuildReport:
    """Rebuild summaries that are damaged or contradict the data, and index new files."""
    started = time.perf_counter()
    data = SparkData(source)
    store = data.store
    store.reread()
    try:
        snapshot = latest_with_index(data)
    except (MissingKeyError, NewerFormatError):  # others can read it
        raise
    except MetadataError:
        snapshot = None
    header = _readable_header(store) if snapshot is None else snapshot.header
    if is_elsewhere(data, header):
        return _move_here(data, header)
    check_same(data, header)
    if snapshot is None:
        return _rebuild(source, store, header, started)
    verified = verify(source)
    if verified.damaged:
        return _rebuild(source, store, header, started)
    data.use_settings_of(header)
    plan = RefreshPlan(data)
    wrong = pa.array([*verified.differing, *verified.uncovered], pa.string())

    def refresh_without_wrong_rows(attempt: CommitAttempt) -> Amend | Commit | NoChange | None:
        assert attempt.snapshot is not None
        bad = pc.is_in(attempt.snapshot.files.column("path"), value_set=wrong)
        return plan(attempt, np.asarray(bad.to_numpy(zero_copy_only=False), dtype=bool))

    counts = {"differing": len(verified.differing)}
    if verified.uncovered:
        counts["uncovered"] = len(verified.uncovered)
    perform(store, Verb.REPAIR, refresh_without_wrong_rows, parameters=counts, by=ENGINE)
    return report(data, started)


def _move_here(data: SparkData, header: Header) -> BuildReport:
    """Create the indexes of metadata that were moved or copied with the data, in a new log.

    The log of the original location is not affected. The new one begins with only the specifications, so that they are
    kept if the build fails.
    """
    source, state = data.source, data.state
    _check_readable(data.store, header)
    indexes = [entry.index for entry in header.entries]
    entries = tuple(bind(state.frame, state.relation, indexes))
    if (why := reason_not_indexable(source.name, state.files)) is not None:
        raise DatasetNotFoundError(why)
    check_keys(data, entries)
    drop(data.store, header)
    empty = Commit(replace(data.header(), entries=entries), build_table(entries, []))
    perform(data.store, Verb.REPAIR, lambda attempt: empty if attempt.snapshot is None else None, by=ENGINE)
    return create(source, indexes, header.layout)


def _rebuild(source: DatasetSource, store: Store, header: Header, started: float) -> BuildReport:
    """Rebuild all indexes of a header."""
    _check_readable(store, header)
    data = SparkData(source)
    state = data.state
    entries = bind(state.frame, state.relation, [entry.index for entry in header.entries])
    plan = RefreshPlan(data, entries, layout=header.layout)

    def replace_everything(attempt: CommitAttempt) -> Commit | Amend | NoChange | None:
        if attempt.after:
            raise ConflictError(f"{source.name} was to be built anew as it was before that; repair it again if need be")
        return plan(CommitAttempt(attempt.number, None))

    since = store.latest() or 0
    parameters = {"everything": True}
    perform(store, Verb.REPAIR, replace_everything, parameters=parameters, by=ENGINE, since=since, unreadable=True)
    return report(data, started)


def _check_readable(store: Store, header: Header) -> None:
    """Raise an error if an index would be lost that is unreadable here, but perhaps not elsewhere."""
    if reasons := header.unread_reasons:
        raise MetadataError(
            f"the metadata in {store.location} are not to be begun anew where they cannot be read: {reasons[0]}"
        )


def _readable_header(store: Store) -> Header:
    """The newest readable header."""
    for number in reversed(store.snapshots()):
        try:
            return store.header(number)
        except MissingKeyError:
            raise
        except MetadataError:
            continue
    raise MetadataError(
        f"no snapshot in {store.location} can be read, so that it is not known which indexes there were: remove the "
        "folder, and create them anew"
    )


_HISTORY = (
    "operation string, verb string, state string, began timestamp, seconds double, who string, base long, "
    "snapshot long, files_read long, files_added long, files_removed long, files_kept long, bytes long, "
    "parameters string, versions string, message string"
)


def describe(source: DatasetSource) -> DataFrame:
    """DataFrame with one row for each index, those in use first."""
    return source.spark.createDataFrame(described_indexes(source), DescribeStatement.answer)


def described_indexes(source: DatasetSource) -> list[tuple[Any, ...]]:
    """Rows of the DataFrame that describes the indexes."""
    data = SparkData(source)
    with data.store.patiently():
        return with_latest(
            data.store,
            lambda found: _index_rows(found if found and found.header.stored else require_index(data, found), data),
        )


def _index_rows(snapshot: Snapshot, data: SparkData) -> list[tuple[Any, ...]]:
    current = SnapshotDiff.of(snapshot, data).is_fresh
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
    """DataFrame with one row for each operation, oldest first."""
    store = source.store(source.relation())
    rows = [dataclasses.astuple(row) for row in history(store)]
    return source.spark.createDataFrame([(*row[:3], _time(row[3]), *row[4:]) for row in rows], _HISTORY)


def datasets(spark: SparkSession) -> dict[str, Snapshot]:
    """Indexed datasets that this driver has used, with their latest snapshots; unreachable ones excluded."""
    check_session(spark)
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
