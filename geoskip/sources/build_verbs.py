"""Verbs that read data, for any engine: create and refresh, from the log to the report.

An engine implements :class:`BuildAccess` and binds the texts of indexes to expressions; this module does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import (
    InvalidSpecificationError,
    MetadataError,
    NeedsSparkError,
    NotIndexedError,
    UnknownColumnError,
)
from geoskip.indexes.base import Index
from geoskip.layout.layout_report import layout_name, recorded_overlap
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.refresh import DatasetAccess, Key, RefreshPlan, SnapshotDiff, change_of, files_without_metadata
from geoskip.lifecycle.transaction import perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header, IndexEntry, Snapshot
from geoskip.report import count_of, size_of
from geoskip.sources.bound_indexes import as_spelt_before, calls_python
from geoskip.sources.built_rows import BuiltRows
from geoskip.sources.dependencies import same_place
from geoskip.stores.base import Store
from geoskip.stores.encryption import Encryption

T = TypeVar("T")
MODES = ("incremental", "full", "quick")
"""The modes of :func:`refresh`."""
_PASSES = 2
"""Passes over files that arrived during a build; files that are added later are left to the next refresh."""


class BuildAccess(DatasetAccess, Protocol):
    """A dataset with files that an engine lists and reads."""

    built: BuiltRows
    """Results of all files read so far."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def root(self) -> str:
        """URI of the folder that paths are relative to."""

    @property
    def store(self) -> Store:
        """Store of the metadata."""

    def has_own_folder(self) -> bool:
        """Test whether the metadata are beside the data, in the dataset's own folder."""

    def way_to_metadata(self) -> str:
        """Advice on how to keep the metadata in another place."""

    def is_listing_current(self) -> bool:
        """Test whether the files are still those of the listing; False if that is unknown."""


def create_indexes(
    data: BuildAccess,
    entries: Sequence[IndexEntry],
    *,
    by: str,
    choose: Callable[[Sequence[IndexEntry]], Sequence[IndexEntry]],
    on_first: Callable[[], None] = lambda: None,
    layout: Mapping[str, Any] | None = None,
) -> None:
    """Build indexes, in addition to the existing ones.

    Parameters
    ----------
    data, entries
        The dataset, and the indexes, bound to its expressions.
    by
        The engine with its version, for the log.
    choose
        Returns the entries with indexes whose parameters are chosen.
    on_first
        Called if there are no metadata yet.
    layout
        The layout to record, as JSON; by default the recorded layout remains.
    """
    check_keys(data, entries)
    store = data.store

    def compare(snapshot: Snapshot | None) -> SnapshotDiff | None:
        if snapshot is None:
            return None
        if is_elsewhere(data, snapshot.header) and not _is_in_use(snapshot.header):
            drop(store, snapshot.header)
            return compare(latest(store))
        check_same(data, snapshot.header)
        return SnapshotDiff.of(snapshot, data)

    with store.patiently():
        diff = with_latest(store, compare)
    snapshot = diff.snapshot if diff is not None else None
    if snapshot is None:
        on_first()
    before = snapshot.header.entries if snapshot else ()
    entries = as_spelt_before(entries, before)
    names = {entry.name for entry in entries}
    others = [entry for entry in snapshot.header.entries if entry.name not in names] if snapshot else []
    changed = data.changed_indexes(others) if diff is not None and diff.stale else {}
    entries = choose(entries)
    plan = RefreshPlan(data, entries, known=before, diff=diff, layout=layout)
    committed = perform(store, Verb.CREATE, plan, parameters=_index_names(entries), by=by, since=_number(snapshot))
    _catch_up(data, committed, _number(snapshot), by)
    data.built.failures.update({name: [f"new files were left out: {why}"] for name, why in changed.items()})


def refresh(
    data: BuildAccess,
    mode: str,
    *,
    by: str,
    bind: Callable[[Sequence[Index]], Sequence[IndexEntry]],
    on_reading: Callable[[Snapshot], None] = lambda snapshot: None,
) -> None:
    """Update the metadata to the current files.

    Parameters
    ----------
    data
        The dataset.
    mode
        ``incremental`` reads new and changed files, ``full`` reads all files for all indexes, and ``quick`` reads none:
        it removes the rows of changed files, and counts the files without metadata.
    by
        The engine with its version, for the log.
    bind
        Binds indexes to the dataset's current expressions.
    on_reading
        Called with the latest snapshot before an incremental refresh compares dependencies and reads files.

    Raises
    ------
    InvalidSpecificationError
        If an index was built under other conditions than the current ones; NeedsSparkError if only Spark builds it.
    """
    snapshot = latest_with_index(data)
    check_same(data, snapshot.header)
    entries, since = snapshot.header.entries, snapshot.header.number
    if mode == "full":
        try:
            entries = tuple(bind([entry.index for entry in entries]))
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{error}; delete_index() takes out of use what cannot be built now") from None
        plan = RefreshPlan(data, entries, renew=True, known=snapshot.header.entries)
        committed = perform(data.store, Verb.FULL, plan, parameters=_index_names(entries), by=by, since=since)
        _catch_up(data, committed, since, by)
        return
    plan = RefreshPlan(data, quick=mode == "quick")
    needed = with_index(data, plan.is_needed, snapshot)
    if mode == "quick":
        if needed:
            perform(data.store, Verb.QUICK, plan, by=by, since=since)
        return
    if plan.diff is None or not plan.diff.stale:
        entries = tuple(entry for entry in entries if calls_python(entry.index))  # these are always checked
    if entries or needed:
        on_reading(snapshot)
        check_unchanged(data, entries)
    if needed:
        _catch_up(data, perform(data.store, Verb.REFRESH, plan, by=by, since=since), since, by)


def check_keys(data: BuildAccess, entries: Sequence[IndexEntry]) -> None:
    """Raise if ``Encryption(indexes=)`` names an unknown index; the intended one would get the base key."""
    named = {} if data.store.encryption is None else data.store.encryption.masters
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


def with_latest(store: Store, ask: Callable[[Snapshot | None], T], first: Snapshot | None = None) -> T:
    """Apply a function to the latest snapshot; again to a newer one if the first was vacuumed meanwhile.

    ``first`` is the latest snapshot that the caller read.
    """
    snapshot = first if first is not None else latest(store)
    while True:
        try:
            return ask(snapshot)
        except MetadataError:
            if snapshot is None or store.latest() == snapshot.header.number:
                raise
        snapshot = latest(store)


def with_index(data: BuildAccess, ask: Callable[[Snapshot], T], first: Snapshot | None = None) -> T:
    """Apply a function to the latest snapshot, as :func:`with_latest` does.

    Raises NotIndexedError if no index is in use.
    """
    return with_latest(data.store, lambda found: ask(require_index(data, found)), first)


def latest_with_index(data: BuildAccess) -> Snapshot:
    """Latest snapshot of a dataset; raises NotIndexedError if it has no index."""
    with data.store.patiently():
        return require_index(data, latest(data.store))


def require_index(data: BuildAccess, snapshot: Snapshot | None) -> Snapshot:
    """Return a snapshot with an index in use, else raise NotIndexedError with the location of its store."""
    if snapshot is not None and snapshot.header.deleted and not _is_in_use(snapshot.header):
        names = ", ".join(entry.name for entry in snapshot.header.deleted)
        raise NotIndexedError(
            f"{data.name} has no index in use; deleted are {names}: restore_index() brings them back, "
            "create_index() makes new ones"
        )
    if snapshot is None or not _is_in_use(snapshot.header):
        place = "" if data.store.location.endswith("/_geoskip") else f" in {data.store.location}"
        raise NotIndexedError(
            f"{data.name} has no index yet{place}; create one: dataset.create_index(MinMax('column'))"
        )
    return snapshot


def has_indexes(store: Store) -> bool:
    """Test whether a store has an index, and not only a layout."""
    found = latest(store)
    return found is not None and found.header.has_indexes


def check_protected(data: BuildAccess, encryption: Encryption | None) -> None:
    """Raise if the first metadata in a store would be in clear, as the encryption names no key."""
    if encryption is not None and encryption.key is None and not has_indexes(data.store):
        raise InvalidSpecificationError(
            f"the metadata of {data.name} would be in clear: with what they are to be protected says "
            "Encryption(keys, 'name of a key')"
        )


def _is_in_use(header: Header) -> bool:
    return bool(header.entries or header.unread)


def check_same(data: BuildAccess, header: Header) -> None:
    """Raise if metadata are of another dataset, or were built with another reader."""
    if not same_place(data.root, header.root):
        way_out = (
            "where the data were moved, renamed or copied, dataset.repair() builds them anew for this place"
            if data.has_own_folder()
            else data.way_to_metadata()
        )
        raise InvalidSpecificationError(
            f"the metadata in {data.store.location} are those of {header.root}, not of {data.root}; {way_out}"
        )
    now = data.header().source
    for name in ("class", "options") if header.has_indexes else ():
        if header.source.get(name) != now[name]:
            raise InvalidSpecificationError(
                f"{data.name} was indexed with {name} {header.source.get(name)}, now it is read with {now[name]}; "
                "read it the same way, or keep other metadata: metadata='folder'"
            )


def is_elsewhere(data: BuildAccess, header: Header) -> bool:
    """Test whether the metadata beside the data were created at another location, before a move or a copy."""
    return data.has_own_folder() and not same_place(data.root, header.root)


def drop(store: Store, header: Header) -> None:
    """Drop a log that was moved with the data, unless another writer has replaced it for this location."""
    if store.identity() == header.identity:
        store.drop()


@dataclass(frozen=True)
class BuildReport:
    """Result of a build for each index; ``print(report)`` shows it."""

    indexes: tuple[str, ...]
    readers: Mapping[str, str]
    """The reader that served each index: footers, arrow or spark (several where files differ)."""
    files: int
    rows: int
    bytes: int
    """Size of the files that have metadata."""
    seconds: float
    metadata_bytes: Mapping[str, int]
    """Bytes stored for each index."""
    excluded: Mapping[str, str]
    """Files without metadata, with the reason: queries always read them."""
    snapshot: int = 0
    read: int = 0
    """Number of files that this build read; the others had metadata already."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Indexes without summaries of some files, with the reason."""
    pending: int = 0
    """Number of new and changed files that a quick refresh left to an incremental one."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Remarks of indexes on their summaries: of Hybrid, how many are lists and how many filters."""
    not_built: tuple[str, ...] = ()
    """Reasons why indexes of the metadata could not be read here: new files have no summaries of them."""
    layout: str = ""
    """The recorded layout, and the number of files that overlap others; empty if no layout is recorded."""

    def __str__(self) -> str:
        size = size_of(self.bytes)
        now = f"{self.read:,} of them read now, in {self.seconds:.1f} s"
        files, rows = count_of(self.files, "file"), count_of(self.rows, "row")
        lines = [f"indexed {files}, {rows}, {size}: {now} (snapshot {self.snapshot})"]
        for name in self.indexes:
            stored = self.metadata_bytes.get(name, 0)
            how = f"read by {self.readers[name]}" if name in self.readers else "as before"
            lines.append(f"  {name}: {size_of(stored)} of metadata, {how if self.files else 'of no file'}")
            lines += [f"    {self.details[name]}"] if name in self.details else []
        lines += [f"  layout {self.layout}"] if self.layout else []
        if self.pending:
            lines.append(f"  {count_of(self.pending, 'file')} without metadata yet, read whole until refresh_index()")
        lines += [f"  {name} is incomplete: {why}" for name, why in self.incomplete.items()]
        lines += [f"  not built: {why}, then refresh_index('full') for the new files" for why in self.not_built]
        lines += [f"  without metadata: {path}: {why}" for path, why in list(self.excluded.items())[:10]]
        if len(self.excluded) > 10:
            lines.append(f"  and {count_of(len(self.excluded) - 10, 'more file')} without metadata")
        return "\n".join(lines)

    __repr__ = __str__


def report_on(data: BuildAccess, started: float) -> BuildReport:
    """Report on a build with the totals of the latest snapshot.

    ``started`` is its start by the performance counter.
    """
    with data.store.patiently():
        return with_index(data, lambda snapshot: _report_on(snapshot, data, started))


def _report_on(snapshot: Snapshot, data: BuildAccess, started: float) -> BuildReport:
    entries = snapshot.header.entries
    overlap = recorded_overlap(snapshot.header, snapshot.files)
    remarking = [entry for entry in entries if type(entry.index).build_note is not Index.build_note]
    notes = {e.name: e.index.build_note(pa.chunked_array([snapshot.files.column(e.name)])) for e in remarking}
    return BuildReport(
        indexes=tuple(entry.name for entry in entries),
        readers=data.built.reader_texts(),
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
        details={name: note for name, note in notes.items() if note},
        not_built=snapshot.header.unread_reasons,
        layout=f"{layout_name(snapshot.header.layout)}: {overlap}" if overlap is not None else "",
    )


def _catch_up(data: BuildAccess, committed: Header | None, since: int, by: str) -> None:
    """Index files that arrived during the build, or that a concurrent writer left unindexed."""
    if committed is not None and committed.number == since + 1 and data.is_listing_current():
        return
    store, tried = data.store, {(row.path, row.size, row.mtime) for row in data.built.rows}

    def remaining(snapshot: Snapshot | None) -> tuple[Sequence[IndexEntry], list[Key]]:
        entries = snapshot.header.entries if snapshot is not None else ()
        return entries, files_without_metadata(snapshot, data, closely=False)

    for _ in range(_PASSES if committed is not None else 0):
        entries, left = with_latest(store, remaining)
        missing = [key for key in left if key not in tried and key[0] not in data.built.excluded]
        if not missing or data.changed_indexes(entries):
            return
        perform(store, Verb.REFRESH, RefreshPlan(data), parameters={"catches up": len(missing)}, by=by)


def changes_of(
    entries: Sequence[IndexEntry], bind: Callable[[Sequence[Index]], Sequence[IndexEntry]]
) -> list[str | NeedsSparkError | None]:
    """Per index, why a build would create another one now: None, the reason, or a NeedsSparkError.

    ``bind`` binds indexes to the dataset's current expressions: all of them at once, or each alone if that fails.
    """
    if not entries:
        return []
    try:
        return list(map(change_of, entries, bind([old.index for old in entries])))
    except InvalidSpecificationError as error:
        if len(entries) > 1:
            return [why for old in entries for why in changes_of([old], bind)]
        return [error if isinstance(error, NeedsSparkError) else str(error)]


def check_unchanged(data: BuildAccess, entries: Sequence[IndexEntry]) -> None:
    changed = data.changed_indexes(entries)
    if changed:
        name, why = next(iter(changed.items()))
        if isinstance(why, NeedsSparkError):
            raise why
        raise InvalidSpecificationError(
            f"{name} was built under other conditions ({why}); set them back, build everything anew with "
            f"refresh_index(mode='full'), or take it out of use with delete_index({name!r})"
        )


def _number(snapshot: Snapshot | None) -> int:
    return snapshot.header.number if snapshot is not None else 0


def _index_names(entries: Sequence[IndexEntry]) -> Mapping[str, Any]:
    return {"indexes": [entry.name for entry in entries]}
