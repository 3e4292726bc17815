"""Do the summaries say what is in the files? Verify asks, repair builds anew what does not."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import (
    ConflictError,
    DatasetNotFoundError,
    InvalidSpecificationError,
    MetadataError,
    MissingKeyError,
)
from geoskip.lifecycle.refresh import BuiltSummaries, RefreshPlan, SnapshotDiff
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, NoChange, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, Snapshot, build_table
from geoskip.report import count_of
from geoskip.spark.analysis import bind
from geoskip.spark.build.job import BuildReport
from geoskip.spark.build.listing import SourceState, nothing_to_index
from geoskip.spark.dataset.create_refresh import (
    ENGINE,
    check_keys,
    check_same,
    create,
    dropped,
    indexed,
    is_elsewhere,
    of_the_latest,
    report,
    required,
)
from geoskip.spark.dataset.lifecycle_data import SparkData
from geoskip.spark.dataset.source import DatasetSource
from geoskip.spark.session import java
from geoskip.stores.base import Store

__all__ = ["VerifyResult", "repair", "verify"]


@dataclass(frozen=True)
class VerifyResult:
    """What a comparison of summaries with the data found; ``print`` shows it."""

    files: int
    """Files that were read again."""
    of: int
    """Files that have metadata and are as they were indexed."""
    indexes: tuple[str, ...]
    """The indexes that were compared."""
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files whose summaries are not what is in them now, with the indexes concerned."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Indexes whose summaries cannot be read, and why."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Indexes that could not be compared, and files that could not be read, and why."""
    uncovered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files of which indexes know nothing, since those were deleted while the files were indexed: they are read."""

    @property
    def ok(self) -> bool:
        """Was everything that was compared as it should be?"""
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


def verify(place: DatasetSource, sample: float | None = None) -> VerifyResult:
    """Collect summaries of some files anew and compare them with those that are stored."""
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise InvalidSpecificationError(f"verify(sample=) takes a share above 0 and up to 1, got {sample!r}")
    state = place.state()
    store = place.store(state.source)
    store.reread()
    with store.patiently():
        return of_the_latest(store, lambda found: _verified(place, state, store, indexed(place, found), sample))


def _verified(
    place: DatasetSource, state: SourceState, store: Store, snapshot: Snapshot, sample: float | None
) -> VerifyResult:
    """The same of a snapshot; raises MetadataError for one that is vacuumed meanwhile."""
    check_same(place, state, store, snapshot.header)
    data = SparkData(place, place.under(snapshot.header.source.get("settings") or {}, state))
    damaged = _damaged(snapshot)
    if damaged and store.latest() != snapshot.header.number:
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
        others = [name for name, summary in stored.items() if not _same(made[name][row], summary)]
        if wrong := tuple(name for name in others if stored[name].is_valid):
            differing[path] = wrong
        if missing := tuple(name for name in others if not stored[name].is_valid):
            uncovered[path] = missing
    passed_over = {**changed, **(found.excluded if found else {})}
    names = tuple(e.name for e in entries)
    return VerifyResult(made.num_rows, len(rows), names, differing, damaged, passed_over, uncovered)


def repair(place: DatasetSource) -> BuildReport:
    """Drop what is inconsistent, build it anew, and index what is new."""
    started = time.perf_counter()
    state = place.state()
    store = place.store(state.source)
    store.reread()
    try:
        snapshot = required(place, store)
    except MetadataError as error:
        if isinstance(error, MissingKeyError) or "upgrade geoskip" in str(error):  # somebody else can read it
            raise
        snapshot = None
    header = _readable(store) if snapshot is None else snapshot.header
    if is_elsewhere(place, state, header):
        return _begun_anew(place, state, store, header)
    check_same(place, state, store, header)
    if snapshot is None:
        return _rebuilt(place, store, header, started)
    verified = verify(place)
    if verified.damaged:
        return _rebuilt(place, store, snapshot.header, started)
    data = SparkData(place, place.under(snapshot.header.source.get("settings") or {}, state))
    refreshed = RefreshPlan(BuiltSummaries(data))
    wrong = pa.array([*verified.differing, *verified.uncovered], pa.string())

    def attempt(turn: CommitAttempt) -> Amend | Commit | NoChange | None:
        """What a refresh would do to a snapshot without the wrong rows."""
        assert turn.snapshot is not None
        bad = pc.is_in(turn.snapshot.files.column("path"), value_set=wrong)
        return refreshed(turn, np.asarray(bad.to_numpy(zero_copy_only=False), dtype=bool))

    told = {"differing": len(verified.differing)}
    if verified.uncovered:
        told["uncovered"] = len(verified.uncovered)
    perform(store, Verb.REPAIR, attempt, parameters=told, by=ENGINE)
    return report(place, state, store, data, started)


def _begun_anew(place: DatasetSource, state: SourceState, store: Store, header: Header) -> BuildReport:
    """The indexes of metadata that came here with the data, in a log of this place: where they were copied from, the
    old one goes on. It begins with the indexes alone, so that they are known whatever becomes of the build.
    """
    _check_read(store, header)
    indexes = [entry.index for entry in header.entries]
    entries = tuple(bind(java(place.spark), state.frame, state.source, indexes))
    if (nothing := nothing_to_index(place.name, state.files)) is not None:
        raise DatasetNotFoundError(nothing)
    check_keys(place, state, store, entries)
    dropped(store, header)
    alone = Commit(replace(SparkData(place, state).header(), entries=entries), build_table(entries, []))
    perform(store, Verb.REPAIR, lambda turn: alone if turn.snapshot is None else None, by=ENGINE)
    return create(place, indexes)


def _rebuilt(place: DatasetSource, store: Store, header: Header, started: float) -> BuildReport:
    """Everything anew, from what a header says of the indexes."""
    _check_read(store, header)
    state = place.state()
    data = SparkData(place, state)
    entries = bind(java(place.spark), state.frame, state.source, [entry.index for entry in header.entries])
    work = RefreshPlan(BuiltSummaries(data), entries)

    def attempt(turn: CommitAttempt) -> Commit | Amend | NoChange | None:
        if turn.after:
            raise ConflictError(f"{place.name} was to be built anew as it was before that; repair it again if need be")
        return work(CommitAttempt(turn.number, None))

    since = store.latest() or 0
    perform(store, Verb.REPAIR, attempt, parameters={"everything": True}, by=ENGINE, since=since, unreadable=True)
    return report(place, state, store, data, started)


def _check_read(store: Store, header: Header) -> None:
    """Raise where an index would be lost that somebody else can read."""
    if header.unread:
        told = header.unread[0]
        why = told.get("why") or f"{told.get('name')} is of a kind that is unknown here"
        raise MetadataError(
            f"the metadata in {store.location} are not to be begun anew where they cannot be read: {why}"
        )


def _readable(store: Store) -> Header:
    """The newest header that can be read, or was before it was damaged."""
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


def _damaged(snapshot: Snapshot) -> dict[str, str]:
    """The indexes whose summaries cannot be read; ``files`` for the fingerprints."""
    found = {}
    for name in ("path", "size", "mtime", "etag", "rows", *(entry.name for entry in snapshot.header.entries)):
        try:
            snapshot.files.column(name)
        except MetadataError as error:
            found["files" if ":" not in name and "(" not in name else name] = str(error)
    return found


def _same(one: Any, other: Any) -> bool:
    """Are two summaries equal? Not a number is equal to itself here."""
    return one.is_valid == other.is_valid and repr(one.as_py()) == repr(other.as_py())
