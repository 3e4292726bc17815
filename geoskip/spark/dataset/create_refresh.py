"""The verbs that read data: create, refresh, append."""

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
from geoskip.lifecycle.refresh import BuiltSummaries, Key, RefreshPlan, SnapshotDiff, left_over
from geoskip.lifecycle.transaction import latest, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, IndexEntry, Snapshot
from geoskip.predicates import Call, walk
from geoskip.spark.analysis import bind
from geoskip.spark.build.job import BuildReport, details_of
from geoskip.spark.build.listing import SourceState, nothing_to_index
from geoskip.spark.build.sample import choose_parameters
from geoskip.spark.dataset.lifecycle_data import SparkData
from geoskip.spark.dataset.source import DatasetSource, is_glob
from geoskip.spark.dependencies import same_place
from geoskip.spark.filesystem import HadoopFolder
from geoskip.spark.session import java, known
from geoskip.stores.base import Store

__all__ = [
    "ENGINE",
    "append",
    "check_keys",
    "check_same",
    "create",
    "dropped",
    "indexed",
    "is_elsewhere",
    "made_known",
    "of_the_latest",
    "refresh",
    "report",
    "required",
    "stale",
]

ENGINE = f"pyspark {pyspark.__version__}"
MODES = ("incremental", "full", "quick")
T = TypeVar("T")
_PASSES = 2
"""How often what arrived during a build is looked after; a writer that never rests is left to the next refresh."""


def create(place: DatasetSource, indexes: Sequence[Index]) -> BuildReport:
    """Build indexes, beside those that are there."""
    started = time.perf_counter()
    state = place.state()
    store = place.store(state.source)
    if (why := nothing_to_index(place.name, state.files)) is not None:
        raise DatasetNotFoundError(why)
    if place.encryption is not None and place.encryption.key is None and store.latest() is None:
        raise InvalidSpecificationError(
            f"the metadata of {place.name} would be in clear: with what they are to be protected says "
            "Encryption(keys, 'name of a key')"
        )
    if (used := known.another(state.source.root, store)) is not None and store.latest() is None:
        raise InvalidSpecificationError(
            f"queries of this driver use the metadata of {place.name} in {used.location}, and none would use an index "
            f"in {store.location}: name the first with dataset(..., metadata=) or store=, or call use_metadata() before"
        )
    entries = bind(java(place.spark), state.frame, state.source, indexes)
    check_keys(place, state, store, entries)
    data = SparkData(place, state)

    def looked_at(snapshot: Snapshot | None) -> SnapshotDiff | None:
        if snapshot is None:
            return None
        if is_elsewhere(place, state, snapshot.header) and not _in_use(snapshot.header):
            dropped(store, snapshot.header)
            return looked_at(latest(store))
        check_same(place, state, store, snapshot.header)
        return SnapshotDiff.at(snapshot, data)

    with store.patiently():
        look = of_the_latest(store, looked_at)
    snapshot = look.snapshot if look is not None else None
    if snapshot is None:
        _warn_of_table_format(place, state)
    names = {entry.name for entry in entries}
    others = [entry for entry in snapshot.header.entries if entry.name not in names] if snapshot else []
    changed = data.changed(others) if look is not None and look.stale else {}
    entries = choose_parameters(state, entries)
    work = RefreshPlan(BuiltSummaries(data), entries, known=snapshot.header.entries if snapshot else (), diff=look)
    made = perform(store, Verb.CREATE, work, parameters=_named(entries), by=ENGINE, since=_number(snapshot))
    _caught_up(store, data, made, _number(snapshot))
    data.built.failures.update({name: [f"new files were left out: {why}"] for name, why in changed.items()})
    return report(place, state, store, data, started)


def check_keys(place: DatasetSource, state: SourceState, store: Store, entries: Sequence[IndexEntry]) -> None:
    """Raise where ``Encryption(indexes=)`` names an index that there is not: another would be under the base key."""
    named: Mapping[str, str] = getattr(getattr(store, "encryption", None), "masters", {})
    given = {entry.name for entry in entries}
    if named.keys() <= given:
        return
    with store.patiently():
        header = of_the_latest(store, lambda found: found.header if found is not None else None)
    if header is not None and not is_elsewhere(place, state, header):
        given |= {entry.name for entry in header.stored}
    for name in sorted(named.keys() - given):
        near = get_close_matches(name, given - named.keys(), 1)
        raise InvalidSpecificationError(
            f"Encryption(indexes=) has the key {named[name]!r} for {name}, an index that there is not"
            f"{f' (is it {near[0]}?)' if near else ''}; given or there already are {', '.join(sorted(given))}: name "
            f"one of these, create {name} in the same call, or leave it out of indexes= until it is created"
        )


def refresh(place: DatasetSource, mode: str = "incremental") -> BuildReport:
    """Bring the metadata up to the files of now."""
    if mode not in MODES:
        raise InvalidSpecificationError(f"refresh_index(mode=) takes {', '.join(map(repr, MODES))}, got {mode!r}")
    started = time.perf_counter()
    state = place.state()
    store = place.store(state.source)
    snapshot = required(place, store)
    check_same(place, state, store, snapshot.header)
    data = SparkData(place, state)
    since = snapshot.header.number
    if mode == "full":
        indexes = [entry.index for entry in snapshot.header.entries]
        try:
            rebound = bind(java(place.spark), state.frame, state.source, indexes)
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{error}; delete_index() takes out of use what cannot be built now") from None
        work = RefreshPlan(BuiltSummaries(data), rebound, renew=True, known=snapshot.header.entries)
        made = perform(store, Verb.FULL, work, parameters=_named(rebound), by=ENGINE, since=since)
    elif mode == "quick":
        work = RefreshPlan(BuiltSummaries(data), quick=True)
        if of_the_latest(store, lambda found: work.is_needed(indexed(place, found)), snapshot):
            perform(store, Verb.QUICK, work, by=ENGINE, since=since)
        return report(place, state, store, data, started)
    else:
        work = RefreshPlan(BuiltSummaries(data))
        needed = of_the_latest(store, lambda found: work.is_needed(indexed(place, found)), snapshot)
        asked = snapshot.header.entries
        if work.diff is None or not work.diff.stale:
            asked = tuple(entry for entry in asked if _may_change(entry))
        if asked or needed:
            data.use(place.under(snapshot.header.source.get("settings") or {}, state))
            _check_unchanged(data, asked)
        if not needed:
            return report(place, state, store, data, started)
        made = perform(store, Verb.REFRESH, work, by=ENGINE, since=since)
    _caught_up(store, data, made, since)
    return report(place, state, store, data, started)


def append(place: DatasetSource, frame: DataFrame) -> BuildReport | None:
    """Write rows to the dataset, and index the files that this makes; None where there is no index.

    Where indexing fails, that is a warning: an error would look as if nothing was written, and whoever tries again
    would write the rows twice.
    """
    if not hasattr(frame, "write"):
        raise InvalidSpecificationError(f"append() takes a DataFrame of Spark, got {type(frame).__name__}")
    if place.table is not None:
        columns = ("`" + name.replace("`", "``") + "`" for name in place.spark.table(place.table).columns)
        frame.select(*columns).write.insertInto(place.table)
    else:
        paths = place.paths or []
        if len(paths) != 1 or is_glob(paths[0]):
            raise InvalidSpecificationError(
                f"append() needs a handle of one folder or table, not of {place.name}: it says where to write"
            )
        options = {name: value for name, value in place.options.items() if name != "schema"}
        try:
            there = place.state()
            partitions = there.source.partitions
            _check_columns(place, there, frame)
        except DatasetNotFoundError:
            partitions = ()
        frame.write.format(place.format).mode("append").options(**options).partitionBy(*partitions).save(paths[0])
    try:
        state = place.state()
        snapshot = latest(place.store(state.source))
        return refresh(place) if snapshot is not None and snapshot.header.entries else None
    except Exception as error:
        told = error if isinstance(error, GeoskipError) else type(error).__name__
        warnings.warn(f"the rows are in {place.name}, and are not indexed: {told}", stacklevel=3)
        return None


def _warn_of_table_format(place: DatasetSource, state: SourceState) -> None:
    """Warn where the files belong to a table of Delta or Hudi, whose own readers geoskip leaves alone."""
    folder = HadoopFolder(state.source.root)
    with suppress(OSError):  # a file system that is away is told of by what needs it
        for name, marker in (("Delta", "_delta_log"), ("Hudi", ".hoodie")):
            if folder.exists(marker):
                warnings.warn(
                    f"{place.name} is a table of {name}: queries skip where they read its files as {place.format}, "
                    f"those of earlier versions too, and not where they read it as {name.lower()}",
                    stacklevel=4,
                )


def _check_columns(place: DatasetSource, there: SourceState, frame: DataFrame) -> None:
    """Refuse rows that lack a column: Spark finds out the columns of a folder from one file, which may be theirs."""
    given = {name.lower() for name in frame.columns}
    if missing := [name for name in there.frame.columns if name.lower() not in given]:
        raise InvalidSpecificationError(
            f"append() takes rows with the columns of {place.name}, and these lack {', '.join(missing)}, so nothing "
            "was written: add them, as with withColumn(name, lit(None)), or write with Spark and refresh_index()"
        )


def stale(snapshot: Snapshot | None, data: SparkData) -> list[Key]:
    """The files that are there without metadata, none where there is no index."""
    return _left(snapshot, BuiltSummaries(data))[1]


def of_the_latest(store: Store, ask: Callable[[Snapshot | None], T], first: Snapshot | None = None) -> T:
    """What is asked of the latest snapshot; of the one after it, where somebody vacuumed it before it was read.

    ``first`` was the latest a moment ago.
    """
    snapshot = first if first is not None else latest(store)
    while True:
        try:
            return ask(snapshot)
        except MetadataError:
            if snapshot is None or store.latest() == snapshot.header.number:
                raise
        snapshot = latest(store)


def required(place: DatasetSource, store: Store) -> Snapshot:
    """The latest snapshot of a dataset that has an index."""
    with store.patiently():
        return indexed(place, latest(store))


def indexed(place: DatasetSource, snapshot: Snapshot | None) -> Snapshot:
    """A snapshot, if it has an index in use."""
    if snapshot is not None and snapshot.header.deleted and not _in_use(snapshot.header):
        names = ", ".join(entry.name for entry in snapshot.header.deleted)
        raise NotIndexedError(
            f"{place.name} has no index in use; deleted are {names}: restore_index() brings them back, "
            "create_index() makes new ones"
        )
    if snapshot is None or not _in_use(snapshot.header):
        raise NotIndexedError(f"{place.name} has no index yet; create one: dataset.create_index(MinMax('column'))")
    return snapshot


def _in_use(header: Header) -> bool:
    return bool(header.entries or header.unread)


def check_same(place: DatasetSource, state: SourceState, store: Store, header: Header) -> None:
    """Two handles must not take turns in one folder with different datasets or readers."""
    if not same_place(state.source.root, header.root):
        way_out = (
            "where the data were moved, renamed or copied, dataset.repair() builds them anew for this place"
            if place.has_own_folder()
            else "keep each dataset's in a folder of its own: dataset(..., metadata='folder')"
            if place.given is None
            else "keep each dataset's in a store of its own; this one is emptied by store.drop()"
        )
        raise InvalidSpecificationError(
            f"the metadata in {store.location} are those of {header.root}, not of {state.source.root}; {way_out}"
        )
    now = state.source.to_json()
    for name in ("class", "options"):
        if header.source.get(name) != now[name]:
            raise InvalidSpecificationError(
                f"{place.name} was indexed with {name} {header.source.get(name)}, now it is read with {now[name]}; "
                "read it the same way, or keep other metadata: dataset(..., metadata='folder')"
            )


def is_elsewhere(place: DatasetSource, state: SourceState, header: Header) -> bool:
    """Were the metadata beside the data made where the data were before, or where they were copied from?"""
    return place.has_own_folder() and not same_place(state.source.root, header.root)


def dropped(store: Store, header: Header) -> None:
    """Drop a log that came here with the data, if it is still that one: somebody else may have begun one for here."""
    if store.identity() == header.identity:
        store.drop()


def made_known(place: DatasetSource, state: SourceState) -> None:
    """Let the next query use what was committed."""
    place.make_known(state.source, complete=True)
    known.renew(state.source.root)
    java(place.spark).geoskip.forget()


def report(place: DatasetSource, state: SourceState, store: Store, data: SparkData, started: float) -> BuildReport:
    """What was done, with the sums of the latest snapshot."""
    made_known(place, state)
    with store.patiently():
        return of_the_latest(store, lambda found: _reported(indexed(place, found), store, data, started))


def _reported(snapshot: Snapshot, store: Store, data: SparkData, started: float) -> BuildReport:
    entries = snapshot.header.entries
    excluded = dict(data.built.excluded)
    telling = [entry for entry in entries if type(entry.index).build_note is not Index.build_note]
    return BuildReport(
        indexes=tuple(entry.name for entry in entries),
        readers=data.readers(),
        files=snapshot.header.files,
        rows=pc.sum(snapshot.files.column("rows")).as_py() or 0,
        bytes=pc.sum(snapshot.files.column("size")).as_py() or 0,
        seconds=time.perf_counter() - started,
        metadata_bytes=store.size(),
        excluded=excluded,
        snapshot=snapshot.header.number,
        read=len({row.path for row in data.built.rows}),
        incomplete=data.built.incomplete(),
        pending=int(snapshot.header.pending.get("files", 0)),
        details=details_of(telling, pa.table({entry.name: snapshot.files.column(entry.name) for entry in telling})),
    )


def _caught_up(store: Store, data: SparkData, made: Header | None, since: int) -> None:
    """Look after what arrived while the data were read, or was left since another writer was faster."""
    if made is not None and made.number == since + 1 and not data.may_have_grown():
        return
    build = BuiltSummaries(data)
    build.tried |= {(row.path, row.size, row.mtime) for row in data.built.rows}
    for _ in range(_PASSES if made is not None else 0):
        entries, left = of_the_latest(store, lambda found: _left(found, build, closely=False))
        missing = [key for key in left if key[0] not in data.built.excluded]
        if not missing or data.changed(entries):
            return
        perform(
            store, Verb.REFRESH, RefreshPlan(BuiltSummaries(data)), parameters={"catches up": len(missing)}, by=ENGINE
        )


def _left(
    snapshot: Snapshot | None, build: BuiltSummaries, *, closely: bool = True
) -> tuple[Sequence[IndexEntry], list[Key]]:
    """The indexes in use, and the files that are there without metadata."""
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
    """Is a function of the user's in it, which may be another by now? Then it is said, though no file is new."""
    calls = (vertex for expression in entry.index.bound for vertex in walk(expression) if isinstance(vertex, Call))
    return any((call.implementation or "").startswith("python:") for call in calls)


def _number(snapshot: Snapshot | None) -> int:
    return snapshot.header.number if snapshot is not None else 0


def _named(entries: Sequence[IndexEntry]) -> Mapping[str, Any]:
    return {"indexes": [entry.name for entry in entries]}
