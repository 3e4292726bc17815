"""Show the metadata, compare summaries with the data, and repair those that differ."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import (
    ConflictError,
    DatasetNotFoundError,
    InvalidSpecificationError,
    MetadataError,
    MissingKeyError,
)
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import BuiltSummaries, RefreshPlan, SnapshotDiff
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, NoChange, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, Snapshot, build_table
from geoskip.report import count_of
from geoskip.sources.build_report import BuildReport
from geoskip.sources.build_verbs import (
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
from geoskip.spark.analysis import bind
from geoskip.spark.dataset.create_refresh import ENGINE, create, report
from geoskip.spark.dataset.source import DatasetSource, SparkData
from geoskip.spark.session import java, known
from geoskip.stores.base import Store


@dataclass(frozen=True)
class VerifyResult:
    """Result of comparing summaries with the data; ``print`` shows it."""

    files: int
    """Number of files that were read again."""
    of: int
    """Number of files that have metadata and are unchanged since they were indexed."""
    indexes: tuple[str, ...]
    """Indexes that were compared."""
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files whose summaries contradict their data, with the indexes concerned."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Indexes whose summaries cannot be read, with the reason."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Indexes that could not be compared, and files that could not be read, with the reason."""
    uncovered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files without summaries of some indexes, which were deleted while the files were indexed: they are read."""

    @property
    def ok(self) -> bool:
        """Test whether nothing that was compared differs or is damaged."""
        return not self.differing and not self.damaged

    def __str__(self) -> str:
        lines = [
            f"{self.files:,} of {count_of(self.of, 'file')} read again for {', '.join(self.indexes) or 'no index'}"
        ]
        lines += [f"  {name} cannot be read: {why}" for name, why in self.damaged.items()]
        lines += [f"  {path}: {', '.join(names)} differs" for path, names in list(self.differing.items())[:20]]
        lines += [f"  not compared: {name}: {why}" for name, why in list(self.passed_over.items())[:20]]
        if self.uncovered:
            names = sorted(set().union(*self.uncovered.values()))
            count = count_of(len(self.uncovered), "file")
            lines.append(f"  {count} not covered by {', '.join(names)}: dataset.repair() builds what is missing")
        if self.ok:
            lines.append("  everything compared is as it should be")
        else:
            lines.append("  dataset.repair() drops what is inconsistent and builds it anew")
        return "\n".join(lines)

    __repr__ = __str__


def verify(source: DatasetSource, sample: float | None = None) -> VerifyResult:
    """Collect summaries of some files again and compare them with the stored ones."""
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise InvalidSpecificationError(f"verify(sample=) takes a share above 0 and up to 1, got {sample!r}")
    data = SparkData(source, source.current_state())
    data.store.reread()
    with data.store.patiently():
        return with_latest(data.store, lambda found: _verify_snapshot(data, require_index(source.name, found), sample))


def _verify_snapshot(data: SparkData, snapshot: Snapshot, sample: float | None) -> VerifyResult:
    """Verify one snapshot; raises MetadataError where it is vacuumed meanwhile."""
    check_same(data, snapshot.header)
    data = _with_recorded_settings(data, snapshot.header)
    damaged = _damaged_indexes(snapshot)
    if damaged and data.store.latest() != snapshot.header.number:
        raise MetadataError(f"snapshot {snapshot.header.number} may be vacuumed: there is a later one")
    changed = data.changed(snapshot.header.entries)
    entries = [e for e in snapshot.header.entries if e.name not in damaged and e.name not in changed]
    if "files" in damaged:
        return VerifyResult(0, 0, (), damaged=damaged, passed_over=changed)
    rows = np.flatnonzero(SnapshotDiff.at(snapshot, data).is_fresh)
    count = len(rows) if sample is None else min(len(rows), max(1, round(sample * len(rows))))
    some = np.sort(np.array(random.sample(list(rows), count), dtype=rows.dtype))
    chosen = pa.array(some, pa.int64())
    paths = snapshot.files.column("path").take(chosen).to_pylist() if len(some) else []
    found = data.build(entries, paths) if paths and entries else None
    made = build_table(entries, found.rows if found else ())
    differing: dict[str, tuple[str, ...]] = {}
    uncovered: dict[str, tuple[str, ...]] = {}
    where = dict(zip(paths, some, strict=True))
    kept = snapshot.files
    for row, path in enumerate(made["path"].to_pylist()):
        stored = {e.name: kept.column(e.name)[int(where[path])] for e in entries}
        others = [name for name, summary in stored.items() if not _are_equal(made[name][row], summary)]
        if wrong := tuple(name for name in others if stored[name].is_valid):
            differing[path] = wrong
        if missing := tuple(name for name in others if not stored[name].is_valid):
            uncovered[path] = missing
    passed_over = {**changed, **(found.excluded if found else {})}
    names = tuple(e.name for e in entries)
    return VerifyResult(made.num_rows, len(rows), names, differing, damaged, passed_over, uncovered)


def repair(source: DatasetSource) -> BuildReport:
    """Rebuild summaries that are damaged or contradict the data, and index new files."""
    started = time.perf_counter()
    data = SparkData(source, source.current_state())
    store = data.store
    store.reread()
    try:
        snapshot = latest_with_index(source.name, store)
    except MetadataError as error:
        if isinstance(error, MissingKeyError) or "upgrade geoskip" in str(error):  # somebody else can read it
            raise
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
    data = _with_recorded_settings(data, header)
    plan = RefreshPlan(BuiltSummaries(data))
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


def _with_recorded_settings(data: SparkData, header: Header) -> SparkData:
    """Access to the same files under the settings that the indexes were built with."""
    return SparkData(data.source, data.source.with_settings(header.source.get("settings") or {}, data.state))


def _move_here(data: SparkData, header: Header) -> BuildReport:
    """Create the indexes of metadata that came with moved or copied data in a new log of this location.

    The log where they were copied from goes on. The new one begins with the specifications alone, so that they are
    kept where the build fails.
    """
    source, state = data.source, data.state
    _check_readable(data.store, header)
    indexes = [entry.index for entry in header.entries]
    entries = tuple(bind(java(source.spark), state.frame, state.relation, indexes))
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
    data = SparkData(source, source.current_state())
    state = data.state
    entries = bind(java(source.spark), state.frame, state.relation, [entry.index for entry in header.entries])
    plan = RefreshPlan(BuiltSummaries(data), entries, layout=header.layout)

    def replace_everything(attempt: CommitAttempt) -> Commit | Amend | NoChange | None:
        if attempt.after:
            raise ConflictError(f"{source.name} was to be built anew as it was before that; repair it again if need be")
        return plan(CommitAttempt(attempt.number, None))

    since = store.latest() or 0
    parameters = {"everything": True}
    perform(store, Verb.REPAIR, replace_everything, parameters=parameters, by=ENGINE, since=since, unreadable=True)
    return report(data, started)


def _check_readable(store: Store, header: Header) -> None:
    """Raise where an index that is unreadable here, and readable elsewhere, would be lost."""
    if header.unread:
        unread = header.unread[0]
        why = unread.get("why") or f"{unread.get('name')} is of a kind that is unknown here"
        raise MetadataError(
            f"the metadata in {store.location} are not to be begun anew where they cannot be read: {why}"
        )


def _readable_header(store: Store) -> Header:
    """Newest header that can be read."""
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


def _damaged_indexes(snapshot: Snapshot) -> dict[str, str]:
    """Indexes whose summaries cannot be read, with the error; ``files`` stands for the fingerprints."""
    found = {}
    for name in ("path", "size", "mtime", "etag", "rows", *(entry.name for entry in snapshot.header.entries)):
        try:
            snapshot.files.column(name)
        except MetadataError as error:
            found["files" if ":" not in name and "(" not in name else name] = str(error)
    return found


def _are_equal(one: Any, other: Any) -> bool:
    """Test whether two summaries are equal; NaN equals NaN."""
    return one.is_valid == other.is_valid and repr(one.as_py()) == repr(other.as_py())


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
        rows = with_latest(
            data.store,
            lambda found: _index_rows(
                found if found and found.header.stored else require_index(source.name, found), data
            ),
        )
    return source.spark.createDataFrame(rows, _INDEXES)


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
