"""Verbs that read data: create, refresh and append."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql import DataFrame

from geoskip.errors import (
    DatasetNotFoundError,
    GeoskipError,
    InvalidSpecificationError,
    MetadataError,
    NotIndexedError,
    UnknownColumnError,
)
from geoskip.indexes.base import Index
from geoskip.layout.layout_report import layout_name, recorded_overlap
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.refresh import BuiltSummaries, Key, RefreshPlan, SnapshotDiff, left_over
from geoskip.lifecycle.transaction import perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, IndexEntry, Snapshot
from geoskip.predicates import Call, walk
from geoskip.sources.build_report import BuildReport, details_of
from geoskip.sources.dependencies import same_place
from geoskip.sources.file_listing import is_glob, reason_not_indexable
from geoskip.spark.analysis import bind
from geoskip.spark.build.job import choose_parameters
from geoskip.spark.build.listing import SourceState
from geoskip.spark.dataset.source import DatasetSource, SparkData
from geoskip.spark.filesystem import HadoopFolder
from geoskip.spark.session import java, known
from geoskip.stores.base import Store

ENGINE = f"pyspark {pyspark.__version__}"
MODES = ("incremental", "full", "quick")
T = TypeVar("T")
_PASSES = 2
"""Passes over files that arrived during a build; what a steady writer adds later is left to the next refresh."""


def create(source: DatasetSource, indexes: Sequence[Index], layout: Mapping[str, Any] | None = None) -> BuildReport:
    """Build indexes, beside the existing ones; ``layout`` is recorded in place of what the metadata say."""
    started = time.perf_counter()
    data = SparkData(source, source.current_state())
    state, store = data.state, data.store
    if (why := reason_not_indexable(source.name, state.files)) is not None:
        raise DatasetNotFoundError(why)
    if source.encryption is not None and source.encryption.key is None and store.latest() is None:
        raise InvalidSpecificationError(
            f"the metadata of {source.name} would be in clear: with what they are to be protected says "
            "Encryption(keys, 'name of a key')"
        )
    if (used := known.another(state.relation.root, store)) is not None and store.latest() is None:
        raise InvalidSpecificationError(
            f"queries of this driver use the metadata of {source.name} in {used.location}, and none would use an index "
            f"in {store.location}: name the first with dataset(..., metadata=) or store=, or call use_metadata() before"
        )
    entries = bind(java(source.spark), state.frame, state.relation, indexes)
    check_keys(data, entries)

    def compare(snapshot: Snapshot | None) -> SnapshotDiff | None:
        if snapshot is None:
            return None
        if is_elsewhere(data, snapshot.header) and not _in_use(snapshot.header):
            drop(store, snapshot.header)
            return compare(latest(store))
        check_same(data, snapshot.header)
        return SnapshotDiff.at(snapshot, data)

    with store.patiently():
        diff = with_latest(store, compare)
    snapshot = diff.snapshot if diff is not None else None
    if snapshot is None:
        _warn_of_table_format(source, state)
    names = {entry.name for entry in entries}
    others = [entry for entry in snapshot.header.entries if entry.name not in names] if snapshot else []
    changed = data.changed(others) if diff is not None and diff.stale else {}
    entries = choose_parameters(state, entries)
    before = snapshot.header.entries if snapshot else ()
    plan = RefreshPlan(BuiltSummaries(data), entries, known=before, diff=diff, layout=layout)
    committed = perform(store, Verb.CREATE, plan, parameters=_index_names(entries), by=ENGINE, since=_number(snapshot))
    _catch_up(store, data, committed, _number(snapshot))
    data.built.failures.update({name: [f"new files were left out: {why}"] for name, why in changed.items()})
    return report(data, started)


def check_keys(data: SparkData, entries: Sequence[IndexEntry]) -> None:
    """Raise if ``Encryption(indexes=)`` names no index; the one meant would have the base key."""
    named: Mapping[str, str] = getattr(getattr(data.store, "encryption", None), "masters", {})
    given = {entry.name for entry in entries}
    if named.keys() <= given:
        return
    with data.store.patiently():
        header = with_latest(data.store, lambda found: found.header if found is not None else None)
    if header is not None and not is_elsewhere(data, header):
        given |= {entry.name for entry in header.stored}
    for name in sorted(named.keys() - given):
        near = get_close_matches(name, given - named.keys(), 1)
        raise InvalidSpecificationError(
            f"Encryption(indexes=) has the key {named[name]!r} for {name}, an index that there is not"
            f"{f' (is it {near[0]}?)' if near else ''}; given or there already are {', '.join(sorted(given))}: name "
            f"one of these, create {name} in the same call, or leave it out of indexes= until it is created"
        )


def refresh(source: DatasetSource, mode: str = "incremental") -> BuildReport:
    """Update the metadata to the files of now."""
    if mode not in MODES:
        raise InvalidSpecificationError(f"refresh_index(mode=) takes {', '.join(map(repr, MODES))}, got {mode!r}")
    started = time.perf_counter()
    data = SparkData(source, source.current_state())
    state, store = data.state, data.store
    snapshot = latest_with_index(source, store)
    check_same(data, snapshot.header)
    since = snapshot.header.number
    if mode == "full":
        indexes = [entry.index for entry in snapshot.header.entries]
        try:
            rebound = bind(java(source.spark), state.frame, state.relation, indexes)
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{error}; delete_index() takes out of use what cannot be built now") from None
        plan = RefreshPlan(BuiltSummaries(data), rebound, renew=True, known=snapshot.header.entries)
        committed = perform(store, Verb.FULL, plan, parameters=_index_names(rebound), by=ENGINE, since=since)
    elif mode == "quick":
        plan = RefreshPlan(BuiltSummaries(data), quick=True)
        if with_latest(store, lambda found: plan.is_needed(require_index(source, found)), snapshot):
            perform(store, Verb.QUICK, plan, by=ENGINE, since=since)
        return report(data, started)
    else:
        plan = RefreshPlan(BuiltSummaries(data))
        needed = with_latest(store, lambda found: plan.is_needed(require_index(source, found)), snapshot)
        entries = snapshot.header.entries
        if plan.diff is None or not plan.diff.stale:
            entries = tuple(entry for entry in entries if _may_change(entry))
        if entries or needed:
            data.use(source.with_settings(snapshot.header.source.get("settings") or {}, state))
            _check_unchanged(data, entries)
        if not needed:
            return report(data, started)
        committed = perform(store, Verb.REFRESH, plan, by=ENGINE, since=since)
    _catch_up(store, data, committed, since)
    return report(data, started)


def append(source: DatasetSource, frame: DataFrame) -> BuildReport | None:
    """Write rows to the dataset, and index the new files; None where there is no index.

    Where indexing fails there is a warning: an error would look as if nothing was written, and a retry would write the
    rows twice.
    """
    if not hasattr(frame, "write"):
        raise InvalidSpecificationError(f"append() takes a DataFrame of Spark, got {type(frame).__name__}")
    if source.table is not None:
        columns = ("`" + name.replace("`", "``") + "`" for name in source.spark.table(source.table).columns)
        frame.select(*columns).write.insertInto(source.table)
    else:
        paths = source.paths or []
        if len(paths) != 1 or is_glob(paths[0]):
            raise InvalidSpecificationError(
                f"append() needs a handle of one folder or table, not of {source.name}: it says where to write"
            )
        options = {name: value for name, value in source.options.items() if name != "schema"}
        try:
            state = source.current_state()
            partitions = state.relation.partitions
            _check_columns(source, state, frame)
        except DatasetNotFoundError:
            partitions = ()
        frame.write.format(source.format).mode("append").options(**options).partitionBy(*partitions).save(paths[0])
    try:
        state = source.current_state()
        snapshot = latest(source.store(state.relation))
        return refresh(source) if snapshot is not None and snapshot.header.entries else None
    except Exception as error:
        reason = error if isinstance(error, GeoskipError) else type(error).__name__
        warnings.warn(f"the rows are in {source.name}, and are not indexed: {reason}", stacklevel=3)
        return None


def _warn_of_table_format(source: DatasetSource, state: SourceState) -> None:
    """Warn where the files belong to a table of Delta or Hudi, whose own readers geoskip leaves alone."""
    folder = HadoopFolder(state.relation.root)
    with suppress(OSError):  # whatever needs a file system that is away reports it
        for name, marker in (("Delta", "_delta_log"), ("Hudi", ".hoodie")):
            if folder.exists(marker):
                warnings.warn(
                    f"{source.name} is a table of {name}: queries skip where they read its files as {source.format}, "
                    f"those of earlier versions too, and not where they read it as {name.lower()}",
                    stacklevel=4,
                )


def _check_columns(source: DatasetSource, state: SourceState, frame: DataFrame) -> None:
    """Refuse rows that lack a column, since Spark infers the columns of a folder from one file."""
    given = {name.lower() for name in frame.columns}
    if missing := [name for name in state.frame.columns if name.lower() not in given]:
        raise InvalidSpecificationError(
            f"append() takes rows with the columns of {source.name}, and these lack {', '.join(missing)}, so nothing "
            "was written: add them, as with withColumn(name, lit(None)), or write with Spark and refresh_index()"
        )


def files_without_metadata(snapshot: Snapshot | None, data: SparkData) -> list[Key]:
    """Files without metadata; none where there is no index."""
    return _left(snapshot, BuiltSummaries(data))[1]


def with_latest(store: Store, ask: Callable[[Snapshot | None], T], first: Snapshot | None = None) -> T:
    """Apply a function to the latest snapshot; to the next one where it was vacuumed before it was read.

    ``first`` was the latest snapshot a moment ago.
    """
    snapshot = first if first is not None else latest(store)
    while True:
        try:
            return ask(snapshot)
        except MetadataError:
            if snapshot is None or store.latest() == snapshot.header.number:
                raise
        snapshot = latest(store)


def latest_with_index(source: DatasetSource, store: Store) -> Snapshot:
    """Latest snapshot of a dataset; raises NotIndexedError where it has no index."""
    with store.patiently():
        return require_index(source, latest(store))


def require_index(source: DatasetSource, snapshot: Snapshot | None) -> Snapshot:
    """Return a snapshot with an index in use; raise NotIndexedError for another one."""
    if snapshot is not None and snapshot.header.deleted and not _in_use(snapshot.header):
        names = ", ".join(entry.name for entry in snapshot.header.deleted)
        raise NotIndexedError(
            f"{source.name} has no index in use; deleted are {names}: restore_index() brings them back, "
            "create_index() makes new ones"
        )
    if snapshot is None or not _in_use(snapshot.header):
        raise NotIndexedError(f"{source.name} has no index yet; create one: dataset.create_index(MinMax('column'))")
    return snapshot


def _in_use(header: Header) -> bool:
    return bool(header.entries or header.unread)


def check_same(data: SparkData, header: Header) -> None:
    """Raise where metadata are of another dataset, or were built with another reader."""
    source, state, store = data.source, data.state, data.store
    if not same_place(state.relation.root, header.root):
        way_out = (
            "where the data were moved, renamed or copied, dataset.repair() builds them anew for this place"
            if source.has_own_folder()
            else "keep each dataset's in a folder of its own: dataset(..., metadata='folder')"
            if source.given is None
            else "keep each dataset's in a store of its own; this one is emptied by store.drop()"
        )
        raise InvalidSpecificationError(
            f"the metadata in {store.location} are those of {header.root}, not of {state.relation.root}; {way_out}"
        )
    now = state.relation.to_json()
    for name in ("class", "options"):
        if header.source.get(name) != now[name]:
            raise InvalidSpecificationError(
                f"{source.name} was indexed with {name} {header.source.get(name)}, now it is read with {now[name]}; "
                "read it the same way, or keep other metadata: dataset(..., metadata='folder')"
            )


def is_elsewhere(data: SparkData, header: Header) -> bool:
    """Test whether the metadata beside the data were made at another location, before a move or a copy."""
    return data.source.has_own_folder() and not same_place(data.root, header.root)


def drop(store: Store, header: Header) -> None:
    """Drop a log that came with moved data, unless another writer has replaced it by one of this location."""
    if store.identity() == header.identity:
        store.drop()


def report(data: SparkData, started: float) -> BuildReport:
    """Let queries use the latest snapshot, and report on the build with the sums of that snapshot."""
    data.source.make_known(data.state.relation, complete=True)
    known.renew(data.root)
    java(data.source.spark).geoskip.forget()
    with data.store.patiently():
        return with_latest(data.store, lambda found: _report(require_index(data.source, found), data, started))


def _report(snapshot: Snapshot, data: SparkData, started: float) -> BuildReport:
    entries = snapshot.header.entries
    overlap = recorded_overlap(snapshot.header, snapshot.files)
    remarking = [entry for entry in entries if type(entry.index).build_note is not Index.build_note]
    return BuildReport(
        indexes=tuple(entry.name for entry in entries),
        readers=data.readers(),
        files=snapshot.header.files,
        rows=pc.sum(snapshot.files.column("rows")).as_py() or 0,
        bytes=pc.sum(snapshot.files.column("size")).as_py() or 0,
        seconds=time.perf_counter() - started,
        metadata_bytes=data.store.size(),
        excluded=dict(data.built.excluded),
        snapshot=snapshot.header.number,
        read=len({row.path for row in data.built.rows}),
        incomplete=data.built.incomplete(),
        pending=int(snapshot.header.pending.get("files", 0)),
        details=details_of(remarking, pa.table({entry.name: snapshot.files.column(entry.name) for entry in remarking})),
        layout=f"{layout_name(snapshot.header.layout)}: {overlap}" if overlap is not None else "",
    )


def _catch_up(store: Store, data: SparkData, committed: Header | None, since: int) -> None:
    """Index files that arrived while the data were read, or that a faster writer has left."""
    if committed is not None and committed.number == since + 1 and not data.may_have_grown():
        return
    build = BuiltSummaries(data)
    build.tried |= {(row.path, row.size, row.mtime) for row in data.built.rows}
    for _ in range(_PASSES if committed is not None else 0):
        entries, left = with_latest(store, lambda found: _left(found, build, closely=False))
        missing = [key for key in left if key[0] not in data.built.excluded]
        if not missing or data.changed(entries):
            return
        perform(
            store, Verb.REFRESH, RefreshPlan(BuiltSummaries(data)), parameters={"catches up": len(missing)}, by=ENGINE
        )


def _left(
    snapshot: Snapshot | None, build: BuiltSummaries, *, closely: bool = True
) -> tuple[Sequence[IndexEntry], list[Key]]:
    """Indexes in use, and files without metadata."""
    if snapshot is None or not snapshot.header.entries:
        return (), []
    return snapshot.header.entries, left_over(snapshot, build, closely=closely)


def _check_unchanged(data: SparkData, entries: Sequence[IndexEntry]) -> None:
    changed = data.changed(entries)
    if changed:
        name, why = next(iter(changed.items()))
        raise InvalidSpecificationError(
            f"{name} was built under other conditions ({why}); set them back, build everything anew with "
            f"refresh_index(mode='full'), or take it out of use with delete_index({name!r})"
        )


def _may_change(entry: IndexEntry) -> bool:
    """Test whether it uses a Python function, whose changes are reported even where no file is new."""
    calls = (vertex for expression in entry.index.bound for vertex in walk(expression) if isinstance(vertex, Call))
    return any((call.implementation or "").startswith("python:") for call in calls)


def _number(snapshot: Snapshot | None) -> int:
    return snapshot.header.number if snapshot is not None else 0


def _index_names(entries: Sequence[IndexEntry]) -> Mapping[str, Any]:
    return {"indexes": [entry.name for entry in entries]}
