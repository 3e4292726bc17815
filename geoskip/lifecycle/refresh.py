"""The verbs that read data: create and refresh, laid over whatever other writers have committed meanwhile.

What a verb works out is kept by file fingerprint and by index *meaning* (specification, expressions, what it depends
on). So it can be laid over any later snapshot without reading the data again: a row counts for the files that are still
there as they were read, a summary for the indexes that still mean the same. The rules:

* a file that was seen changed, or that vanished, loses its row; a file that this handle does not look at keeps it;
* **a row is complete or not there**: a file that lacks the summary of one index that others have built meanwhile gets
  no row, so that it counts as not indexed, and the pass that follows finds it;
* what the other writer has of a file is kept where its fingerprint is the same.

No file is lost by this, since without a row a file is read, and none is there twice, since rows are put in by path.

Two things it does not do, and says so instead: to put an index in the place of one of the same name that another writer
built meanwhile and that means something else; and to go on where no index is in use any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import ConflictError, NotIndexedError
from geoskip.lifecycle.changes import NoChange
from geoskip.lifecycle.log import now
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt
from geoskip.metadata import FileRow, Header, IndexEntry, Snapshot, add_indexes, build_table
from geoskip.metadata.file_table import conformed

__all__ = [
    "BuiltSummaries",
    "DatasetAccess",
    "BuildResult",
    "Listing",
    "SnapshotDiff",
    "RefreshPlan",
    "difference",
    "left_over",
    "means_the_same",
]

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_TURNS_THAT_READ = 3
"""After so many lost races what is missing is left to a later pass, so that a commit takes no longer than that."""
_NAMES_PENDING = 100


class BuildResult(NamedTuple):
    """What a build made: rows of files, and files without one, with the reason."""

    rows: Sequence[FileRow]
    excluded: Mapping[str, str] = {}
    readers: Mapping[str, str] = {}
    """What read the data of an index, in a word."""


class Listing(NamedTuple):
    """The files that a dataset has now, as columns of equal length."""

    path: pa.Array
    size: pa.Array
    mtime: pa.Array


class DatasetAccess(Protocol):
    """What an engine tells of a dataset."""

    def header(self) -> Header:
        """The header of a dataset without indexes."""

    def listing(self) -> Listing:
        """The files that are there now."""

    def etags(self, paths: Sequence[str]) -> Sequence[str | None]:
        """What else tells contents apart, now; None for what is not known here."""

    def sees(self, paths: pa.Array) -> pa.Array:
        """Does this handle look at these files, were they there? Those of other handles in the folder it does not."""

    def changed(self, entries: Sequence[IndexEntry]) -> Mapping[str, str]:
        """The indexes that could not be built now as they were, and why: a setting or a function is another."""

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        """The summaries of some files, all read in one job."""


def difference(one: IndexEntry, other: IndexEntry, first: str = "then", second: str = "now") -> str:
    """Why the one would store another summary than the other."""
    differing = [name for name, value in one.depends.items() if other.depends.get(name) != value]
    if differing:
        values = ((name, one.depends[name], other.depends.get(name)) for name in differing)
        return "; ".join(f"{name}={mine} {first}, {theirs} {second}" for name, mine, theirs in values)
    kinds = dict(other.columns)
    if retyped := [(name, kind, kinds[name]) for name, kind in one.columns if kinds.get(name, kind) != kind]:
        return "; ".join(f"{name} was {mine} {first}, {theirs} {second}" for name, mine, theirs in retyped)
    return "its expression, a setting in it or a function has changed"


def means_the_same(one: IndexEntry, other: IndexEntry) -> bool:
    """Would both store the same summary of any file?"""
    return (one.index, one.index.bound, dict(one.depends), one.arrow) == (
        other.index,
        other.index.bound,
        dict(other.depends),
        other.arrow,
    )


Key = tuple[str, int, int]
"""A file and its fingerprint: path, size and modification time."""


@dataclass(frozen=True)
class SnapshotDiff:
    """A snapshot beside a listing; ``is_fresh`` has an entry a row of the files table: is that file there now, as it
    was indexed?
    """

    snapshot: Snapshot
    listing: Listing
    is_fresh: Mask

    @classmethod
    def at(cls, snapshot: Snapshot, data: DatasetAccess, *, closely: bool = True) -> SnapshotDiff:
        """What is there now. Not ``closely``: etags are not asked for, since they just were."""
        listing = data.listing()
        files = snapshot.files
        where = pc.index_in(files.column("path"), value_set=listing.path)
        same = pc.is_valid(where)
        for name, values in (("size", listing.size), ("mtime", listing.mtime)):
            same = pc.and_(same, pc.fill_null(pc.equal(files.column(name), values.take(where)), False))
        found = np.array(same.to_numpy(zero_copy_only=False), dtype=bool)
        tagged = np.flatnonzero(found & files.column("etag").is_valid().to_numpy(zero_copy_only=False))
        if closely and len(tagged):
            rows = pa.array(tagged)
            paths, tags = (files.column(name).take(rows) for name in ("path", "etag"))
            here = pa.array(data.etags(paths.to_pylist()), pa.string())
            differs = pc.fill_null(pc.not_equal(tags, here), False)
            found[tagged[differs.to_numpy(zero_copy_only=False)]] = False
        return cls(snapshot, listing, found)

    @cached_property
    def stale(self) -> list[Key]:
        """The files of the listing that are new or changed."""
        if len(self.listing.path) == int(self.is_fresh.sum()):
            return []
        old = self.snapshot.files.column("path").filter(pa.array(self.is_fresh))
        is_old = pc.is_in(self.listing.path, value_set=old)
        columns = (column.filter(pc.invert(is_old)).to_pylist() for column in self.listing)
        return list(zip(*columns, strict=True))

    def without(self, distrusted: Mask) -> SnapshotDiff:
        """The same where some rows count as those of changed files."""
        return replace(self, is_fresh=self.is_fresh & ~distrusted)


@dataclass
class BuiltSummaries:
    """What was read so far: by file and fingerprint, the summaries with the entries that they were made for."""

    data: DatasetAccess
    rows: dict[Key, FileRow] = field(default_factory=dict)
    made: dict[str, IndexEntry] = field(default_factory=dict)
    tried: set[Key] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    read: int = 0

    def complete(self, keys: Sequence[Key], entries: Sequence[IndexEntry]) -> list[FileRow | None]:
        """Of each file its row, where it has a summary, be it null, of each of these indexes."""
        made = [self.made.get(entry.name) for entry in entries]
        if not all(was and means_the_same(was, entry) for was, entry in zip(made, entries, strict=True)):
            return [None] * len(keys)
        names = {entry.name for entry in entries}
        rows = map(self.rows.get, keys)
        return [row if row is not None and names <= row.summaries.keys() else None for row in rows]

    def incomplete(self, keys: Sequence[Key], entries: Sequence[IndexEntry]) -> list[Key]:
        """The files without such a row."""
        return [key for key, row in zip(keys, self.complete(keys, entries), strict=True) if row is None]

    def add(self, entries: Sequence[IndexEntry], keys: Sequence[Key]) -> None:
        """Read the summaries of these indexes in these files."""
        keys = [key for key in keys if key not in self.tried]
        if not keys or not entries:
            return
        found = self.data.build(entries, [path for path, _, _ in keys])
        self.made |= {entry.name: entry for entry in entries}
        self.excluded |= found.excluded
        self.readers |= found.readers
        self.read += len(found.rows)
        names = [entry.name for entry in entries]
        for row in found.rows:
            key = (row.path, row.size, row.mtime)
            summaries = {name: row.summaries.get(name) for name in names}
            old = self.rows.get(key)
            self.rows[key] = row._replace(summaries={**(old.summaries if old else {}), **summaries})
        built = {(row.path, row.size, row.mtime) for row in found.rows}
        self.tried |= {key for key in keys if key not in built}


@dataclass
class RefreshPlan:
    """A create or refresh: what it wants of the table, given any snapshot.

    ``wanted`` are the indexes to be built of every file, bound now: those that are created, all for a full refresh,
    none for an incremental one. ``renew``: are they those that are there already, and no others? ``quick``: is nothing
    to be read? ``known`` are the indexes that were there when ``wanted`` was made, if not those of the first attempt;
    ``look`` is what was seen of the snapshot then. An index in use that has another meaning now gets no summaries of
    new files where others are created; in a refresh such files get no row.
    """

    build: BuiltSummaries
    wanted: Sequence[IndexEntry] = ()
    renew: bool = False
    quick: bool = False
    known: Sequence[IndexEntry] | None = None
    look: SnapshotDiff | None = None

    def __call__(self, turn: CommitAttempt, distrusted: Mask | None = None) -> Commit | Amend | NoChange | None:
        """What the next snapshot is to be; none where this one is as it should be. Rows that are ``distrusted`` count
        as those of changed files.
        """
        snapshot = turn.snapshot
        if snapshot is None:
            self.known = () if self.known is None else self.known
            return self._first(self.build.data.listing(), turn)
        self._check(snapshot.header)
        names = {entry.name for entry in self.wanted}
        kept = [entry for entry in snapshot.header.entries if entry.name not in names]
        here = [entry.name for entry in snapshot.header.entries]
        wanted = [entry for entry in self.wanted if not self.renew or entry.name in here]
        entries = [*kept, *wanted]
        if self.renew:
            entries.sort(key=lambda entry: here.index(entry.name))
        data = self.build.data
        look = self._look(snapshot)
        if distrusted is not None:
            look = look.without(distrusted)
        stays = self._stays(look)
        if self.quick:
            return self._noted(snapshot, stays, look.stale)
        changed = data.changed(kept) if look.stale else {}
        buildable = [entry for entry in kept if entry.name not in changed]
        if turn.number < _TURNS_THAT_READ and (wanted or not changed):
            self._read([*buildable, *wanted], wanted, look)
        added = self._rows(look.stale, [*(buildable if wanted else kept), *wanted])
        if not wanted:
            if not added and stays.all() and not snapshot.header.pending:
                return NoChange(self._told([], 0, len(stays))) if self.build.excluded or self.build.read else None
            header = self._header(snapshot.header, entries, ())
            told = self._told(added, int((~stays).sum()), int(stays.sum()))
            return Amend(header, pa.array(~stays), build_table(entries, added), told)
        return self._whole(look, wanted, entries, added, stays)

    def _check(self, header: Header) -> None:
        """Raise where this cannot be laid over what others have committed."""
        here = self.build.data.header().source
        for name in ("class", "options"):
            if header.source.get(name) != here.get(name):
                raise ConflictError(
                    f"the metadata were made there with {name} {header.source.get(name)}, here the files are read with "
                    f"{here.get(name)}; read them the same way, or keep other metadata"
                )
        in_use = {entry.name: entry for entry in header.entries}
        creates = bool(self.wanted) and not self.renew
        if not creates and not header.unread and not in_use.keys() & {e.name for e in self.wanted or header.entries}:
            raise NotIndexedError("no index is in use any more; create one, or restore_index() those that were deleted")
        if self.known is None:
            self.known = header.entries
        known = {entry.name: entry for entry in self.known}
        for mine in self.wanted:
            theirs, before = in_use.get(mine.name), known.get(mine.name)
            is_news = theirs is not None and (before is None or not means_the_same(before, theirs))
            if theirs is not None and is_news and not means_the_same(mine, theirs):
                raise ConflictError(
                    f"{mine.name} was built there under other conditions than here "
                    f"({difference(mine, theirs, 'here', 'there')}); agree on one of them, and build it again"
                )

    def _look(self, snapshot: Snapshot) -> SnapshotDiff:
        """What there is now; once what was seen before, if that was of this snapshot."""
        look, self.look = self.look, None
        return look if look is not None and look.snapshot is snapshot else SnapshotDiff.at(snapshot, self.build.data)

    def is_needed(self, snapshot: Snapshot) -> bool:
        """Is there anything that a refresh would change? Nothing is read for it but the listing."""
        if self.look is None or self.look.snapshot is not snapshot:
            self.look = SnapshotDiff.at(snapshot, self.build.data)
        look = self.look
        if self.quick:
            return self._noted(snapshot, self._stays(look), look.stale) is not None
        return bool(look.stale or snapshot.header.pending) or not bool(self._stays(look).all())

    def _stays(self, look: SnapshotDiff) -> Mask:
        """The rows of files that are as they were, or that this handle does not look at."""
        if look.is_fresh.all():
            return look.is_fresh
        sees = self.build.data.sees(look.snapshot.files.column("path"))
        seen: Mask = np.asarray(sees.to_numpy(zero_copy_only=False), dtype=bool)
        return look.is_fresh | ~seen

    def _first(self, listing: Listing, turn: CommitAttempt) -> Commit | None:
        keys = _keys(listing)
        if turn.number < _TURNS_THAT_READ:
            self.build.add(self.wanted, self.build.incomplete(keys, self.wanted))
        rows = self._rows(keys, self.wanted)
        header = self._header(self.build.data.header(), self.wanted, self.wanted)
        return Commit(header, build_table(self.wanted, rows), self._told(rows, 0, 0))

    def _read(self, every: Sequence[IndexEntry], wanted: Sequence[IndexEntry], look: SnapshotDiff) -> None:
        new = set(look.stale)
        if wanted:
            listed = [key for key in _keys(look.listing) if key not in new]
            self.build.add(wanted, self.build.incomplete(listed, wanted))
        self.build.add(every, self.build.incomplete(look.stale, every))

    def _rows(self, keys: Sequence[Key], entries: Sequence[IndexEntry]) -> list[FileRow]:
        """The rows of those files of which everything is known."""
        return [row for row in self.build.complete(keys, entries) if row is not None]

    def _whole(
        self,
        look: SnapshotDiff,
        wanted: Sequence[IndexEntry],
        entries: Sequence[IndexEntry],
        added: Sequence[FileRow],
        stays: Mask,
    ) -> Commit:
        """The table with more columns: old rows where the new summaries of their files are known, then the new rows."""
        snapshot, is_fresh = look.snapshot, look.is_fresh
        before = {entry.name: entry for entry in snapshot.header.stored}
        by_path = {key[0]: key for key in _keys(look.listing)}
        table = snapshot.files.table()
        names = {entry.name for entry in wanted}
        old = table.select([name for name in table.schema.names if name not in names])
        paths = old["path"].to_pylist()
        known = self._rows([by_path[path] for path, here in zip(paths, is_fresh, strict=True) if here], wanted)
        is_known = pc.is_in(old["path"], value_set=pa.array([row.path for row in known], pa.string()))
        base = add_indexes(old.filter(is_known), build_table(wanted, known))
        same = [name for name in names if name in before and means_the_same(before[name], _named(wanted, name))]
        rest = table.select([name for name in table.schema.names if name not in names or name in same])
        rest = rest.filter(pa.array(stays & ~is_fresh))  # other handles' files
        header = self._header(snapshot.header, entries, wanted)
        schema = pa.schema({f.name: f for t in (base, rest) for f in t.schema}.values())
        whole = _stacked([base, rest, build_table(entries, added)], schema)
        told = self._told(added, int((~stays).sum()), len(whole) - len(added), again=known)
        return Commit(header, whole, told)

    def _noted(self, snapshot: Snapshot, stays: Mask, stale: Sequence[Key]) -> Amend | None:
        """Nothing is read: rows of changed files go, and what is not indexed is counted and named in the header."""
        pending: dict[str, Any] = {}
        if stale:
            names = [path for path, _, _ in stale[:_NAMES_PENDING]]
            pending = {"files": len(stale), "bytes": sum(size for _, size, _ in stale), "first": names}
        if stays.all() and pending == snapshot.header.pending:
            return None
        told = self._told([], int((~stays).sum()), int(stays.sum())) | {"pending": len(stale)}
        header = replace(snapshot.header, pending=pending)
        return Amend(header, pa.array(~stays), pa.table({}), told)

    def _header(self, old: Header, entries: Sequence[IndexEntry], built: Sequence[IndexEntry]) -> Header:
        names = {entry.name for entry in entries}
        deleted = tuple(entry for entry in old.deleted if entry.name not in names)
        told = {"when": now()}
        return replace(
            old,
            source=self.build.data.header().source,
            entries=tuple(entries),
            deleted=deleted,
            reasons=self.build.excluded,
            pending={},
            built={name: about for name, about in old.built.items() if name in {*names, *(e.name for e in deleted)}}
            | {entry.name: told | {"reader": self.build.readers.get(entry.name, "")} for entry in built},
        )

    def _told(self, rows: Sequence[FileRow], gone: int, kept: int, again: Iterable[FileRow] = ()) -> dict[str, Any]:
        """What the log says of it; ``again`` are those of the kept ones that were read for a new index."""
        left = {"left out": len(self.build.excluded)} if self.build.excluded else {}
        return {
            "files": {"read": self.build.read, "added": len(rows), "removed": gone, "kept": kept, **left},
            "bytes": sum(row.size for row in (*rows, *again)),
        }


def _keys(listing: Listing) -> list[Key]:
    """The files of a listing, each with its fingerprint."""
    return list(zip(*(column.to_pylist() for column in listing), strict=True))


def _named(entries: Iterable[IndexEntry], name: str) -> IndexEntry:
    return next(entry for entry in entries if entry.name == name)


def left_over(snapshot: Snapshot, build: BuiltSummaries, *, closely: bool = True) -> list[Key]:
    """The files that are there now without a row, and that the build has not tried in vain."""
    return [key for key in SnapshotDiff.at(snapshot, build.data, closely=closely).stale if key not in build.tried]


def _stacked(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([conformed(table, schema) for table in tables]).combine_chunks()
