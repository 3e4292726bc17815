"""The verbs that read data: create and refresh, laid over whatever other writers have committed meanwhile.

What a verb works out is kept by file fingerprint and by index *meaning* (specification, expressions, what it depends
on). So it can be laid over any later snapshot without reading the data again: a row counts for the files that are still
there as they were read, a summary for the indexes that still mean the same. The rules:

* a file that was seen changed, or that vanished, loses its row; a file that this handle does not look at keeps it;
* **a row is complete or not there**: a file that lacks the summary of one index that others have built meanwhile gets
  no row, so that it counts as not indexed, and the pass that follows finds it;
* what the other writer has of a file is kept where its fingerprint is the same.

No file is lost by this, since without a row a file is read, and none is there twice, since rows are put in by path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.lifecycle.log import now
from geoskip.lifecycle.operation import Amend, Commit, Turn
from geoskip.metadata import FileRow, Header, IndexEntry, Snapshot, add_indexes, build_table
from geoskip.metadata.tables import conformed

__all__ = ["Build", "Data", "Found", "Listing", "Work", "fresh", "left_over", "means_the_same"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_TURNS_THAT_READ = 3
"""After so many lost races what is missing is left to a later pass, so that a commit takes no longer than that."""
_NAMES_PENDING = 100


class Found(NamedTuple):
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


class Data(Protocol):
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

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> Found:
        """The summaries of some files, all read in one job."""


def means_the_same(one: IndexEntry, other: IndexEntry) -> bool:
    """Would both store the same summary of any file?"""
    return (one.index, one.index.bound, dict(one.depends), one.arrow) == (
        other.index,
        other.index.bound,
        dict(other.depends),
        other.arrow,
    )


def fresh(snapshot: Snapshot, listing: Listing, data: Data) -> Mask:
    """One entry a row of the files table: is the file there now, as it was indexed?"""
    files = snapshot.files
    where = pc.index_in(files.column("path"), value_set=listing.path)
    same = pc.is_valid(where)
    for name, values in (("size", listing.size), ("mtime", listing.mtime)):
        same = pc.and_(same, pc.fill_null(pc.equal(files.column(name), values.take(where)), False))
    found = np.array(same.to_numpy(zero_copy_only=False), dtype=bool)
    tagged = np.flatnonzero(found & files.column("etag").is_valid().to_numpy(zero_copy_only=False))
    if len(tagged):
        rows = pa.array(tagged)
        tags = files.column("etag").take(rows).to_pylist()
        for row, then, here in zip(tagged, tags, data.etags(files.column("path").take(rows).to_pylist()), strict=True):
            found[row] = here is None or here == then
    return found


@dataclass
class Build:
    """What was read so far: by file and fingerprint, the summaries with the entries that they were made for."""

    data: Data
    rows: dict[tuple[str, int, int], FileRow] = field(default_factory=dict)
    made: dict[str, IndexEntry] = field(default_factory=dict)
    tried: set[tuple[str, int, int]] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    read: int = 0

    def complete(self, key: tuple[str, int, int], entries: Iterable[IndexEntry]) -> FileRow | None:
        """The row of a file, where it has a summary, be it null, of each of these indexes."""
        row = self.rows.get(key)
        if row is None:
            return None
        for entry in entries:
            made = self.made.get(entry.name)
            if entry.name not in row.summaries or made is None or not means_the_same(made, entry):
                return None
        return row

    def add(self, entries: Sequence[IndexEntry], keys: Sequence[tuple[str, int, int]]) -> None:
        """Read the summaries of these indexes in these files."""
        keys = [key for key in keys if key not in self.tried]
        if not keys or not entries:
            return
        found = self.data.build(entries, [path for path, _, _ in keys])
        self.made |= {entry.name: entry for entry in entries}
        self.excluded |= found.excluded
        self.readers |= found.readers
        self.read += len(found.rows)
        for row in found.rows:
            key = (row.path, row.size, row.mtime)
            summaries = {entry.name: row.summaries.get(entry.name) for entry in entries}
            old = self.rows.get(key)
            self.rows[key] = row._replace(summaries={**(old.summaries if old else {}), **summaries})
        built = {(row.path, row.size, row.mtime) for row in found.rows}
        self.tried |= {key for key in keys if key not in built}


@dataclass
class Work:
    """A create or refresh: what it wants of the table, given any snapshot.

    ``wanted`` are the indexes to be built of every file, bound now: those that are created, all for a full refresh,
    none for an incremental one. ``renew``: are they those that are there already, and no others? ``quick``: is nothing
    to be read? An index in use that has another meaning now gets no summaries of new files where others are created;
    in a refresh such files get no row.
    """

    build: Build
    wanted: Sequence[IndexEntry] = ()
    renew: bool = False
    quick: bool = False

    def __call__(self, turn: Turn, distrusted: Mask | None = None) -> Commit | Amend | None:
        """What the next snapshot is to be; None where this one is as it should be. Rows that are ``distrusted`` count
        as those of changed files.
        """
        listing = self.build.data.listing()
        snapshot = turn.snapshot
        if snapshot is None:
            return self._first(listing, turn)
        names = {entry.name for entry in self.wanted}
        kept = [entry for entry in snapshot.header.entries if entry.name not in names]
        here = [entry.name for entry in snapshot.header.entries]
        wanted = [entry for entry in self.wanted if not self.renew or entry.name in here]
        entries = [*kept, *wanted]
        if self.renew:
            entries.sort(key=lambda entry: here.index(entry.name))
        data = self.build.data
        is_fresh = fresh(snapshot, listing, data)
        if distrusted is not None:
            is_fresh &= ~distrusted
        stays = self._stays(snapshot, is_fresh)
        rows = Keys(listing)
        stale = _stale(snapshot, listing, is_fresh)
        if self.quick:
            return self._noted(snapshot, stays, stale)
        changed = data.changed(kept) if stale else {}
        buildable = [entry for entry in kept if entry.name not in changed]
        if turn.number < _TURNS_THAT_READ and (wanted or not changed):
            self._read([*buildable, *wanted], wanted, rows.keys, stale)
        added = self._rows(stale, [*(buildable if wanted else kept), *wanted])
        if not wanted:
            if not added and stays.all() and not snapshot.header.pending:
                return None
            header = self._header(snapshot.header, entries, ())
            told = self._told(added, int((~stays).sum()), int(stays.sum()))
            return Amend(header, pa.array(~stays), build_table(entries, added), told)
        return self._whole(snapshot, wanted, entries, rows, added, is_fresh, stays)

    def is_needed(self, snapshot: Snapshot) -> bool:
        """Is there anything that a refresh would change? Nothing is read for it but the listing."""
        listing = self.build.data.listing()
        is_fresh = fresh(snapshot, listing, self.build.data)
        if len(listing.path) > int(is_fresh.sum()):
            if not self.quick:
                return True
            return (
                self._noted(snapshot, self._stays(snapshot, is_fresh), _stale(snapshot, listing, is_fresh)) is not None
            )
        return bool(snapshot.header.pending) or not bool(self._stays(snapshot, is_fresh).all())

    def _stays(self, snapshot: Snapshot, is_fresh: Mask) -> Mask:
        """The rows of files that are as they were, or that this handle does not look at."""
        if is_fresh.all():
            return is_fresh
        sees = self.build.data.sees(snapshot.files.column("path"))
        seen: Mask = np.asarray(sees.to_numpy(zero_copy_only=False), dtype=bool)
        return is_fresh | ~seen

    def _first(self, listing: Listing, turn: Turn) -> Commit | None:
        keys = Keys(listing).keys
        if turn.number < _TURNS_THAT_READ:
            self.build.add(self.wanted, [key for key in keys if self.build.complete(key, self.wanted) is None])
        rows = self._rows(keys, self.wanted)
        header = self._header(self.build.data.header(), self.wanted, self.wanted)
        return Commit(header, build_table(self.wanted, rows), self._told(rows, 0, 0))

    def _read(
        self,
        every: Sequence[IndexEntry],
        wanted: Sequence[IndexEntry],
        listed: Sequence[tuple[str, int, int]],
        stale: Sequence[tuple[str, int, int]],
    ) -> None:
        new = set(stale)
        if wanted:
            self.build.add(wanted, [k for k in listed if k not in new and self.build.complete(k, wanted) is None])
        self.build.add(every, [key for key in stale if self.build.complete(key, every) is None])

    def _rows(self, keys: Iterable[tuple[str, int, int]], entries: Sequence[IndexEntry]) -> list[FileRow]:
        """The rows of those files of which everything is known."""
        return [row for key in keys if (row := self.build.complete(key, entries)) is not None]

    def _whole(
        self,
        snapshot: Snapshot,
        wanted: Sequence[IndexEntry],
        entries: Sequence[IndexEntry],
        rows: Keys,
        added: Sequence[FileRow],
        is_fresh: Mask,
        stays: Mask,
    ) -> Commit:
        """The table with more columns: old rows where the new summaries of their files are known, then the new rows."""
        before = {entry.name: entry for entry in snapshot.header.stored}
        table = snapshot.files.table()
        names = {entry.name for entry in wanted}
        old = table.select([name for name in table.schema.names if name not in names])
        paths = old["path"].to_pylist()
        known = {}
        for path, here in zip(paths, is_fresh, strict=True):
            row = self.build.complete(rows.by_path[path], wanted) if here else None
            if row is not None:
                known[path] = row
        is_known = pc.is_in(old["path"], value_set=pa.array(list(known), pa.string()))
        base = add_indexes(old.filter(is_known), build_table(wanted, known.values()))
        same = [name for name in names if name in before and means_the_same(before[name], _named(wanted, name))]
        rest = table.select([name for name in table.schema.names if name not in names or name in same])
        rest = rest.filter(pa.array(stays & ~is_fresh))  # other handles' files
        header = self._header(snapshot.header, entries, wanted)
        schema = pa.schema({f.name: f for t in (base, rest) for f in t.schema}.values())
        whole = _stacked([base, rest, build_table(entries, added)], schema)
        told = self._told([*added, *known.values()], int((~stays).sum()), len(whole) - len(added))
        return Commit(header, whole, told)

    def _noted(self, snapshot: Snapshot, stays: Mask, stale: Sequence[tuple[str, int, int]]) -> Amend | None:
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
        told = {"when": now()}
        return replace(
            old,
            source=self.build.data.header().source,
            entries=tuple(entries),
            deleted=tuple(entry for entry in old.deleted if entry.name not in names),
            reasons=self.build.excluded,
            pending={},
            built={name: about for name, about in old.built.items() if name in names}
            | {entry.name: told | {"reader": self.build.readers.get(entry.name, "")} for entry in built},
        )

    def _told(self, rows: Sequence[FileRow], gone: int, kept: int) -> dict[str, Any]:
        """What the log says of it."""
        return {
            "files": {"read": self.build.read, "put in": len(rows), "taken out": gone, "kept": kept},
            "bytes": sum(row.size for row in rows),
            "left out": len(self.build.excluded),
        }


class Keys:
    """A listing as keys: path, size and modification time."""

    def __init__(self, listing: Listing) -> None:
        columns = (column.to_pylist() for column in listing)
        self.keys: list[tuple[str, int, int]] = list(zip(*columns, strict=True))
        self.by_path = {key[0]: key for key in self.keys}


def _named(entries: Iterable[IndexEntry], name: str) -> IndexEntry:
    return next(entry for entry in entries if entry.name == name)


def left_over(snapshot: Snapshot, build: Build) -> list[tuple[str, int, int]]:
    """The files that are there now without a row, and that the build has not tried in vain."""
    listing = build.data.listing()
    stale = _stale(snapshot, listing, fresh(snapshot, listing, build.data))
    return [key for key in stale if key not in build.tried]


def _stale(snapshot: Snapshot, listing: Listing, is_fresh: Mask) -> list[tuple[str, int, int]]:
    """The files of a listing that are new or changed."""
    if len(listing.path) == int(is_fresh.sum()):
        return []
    old = snapshot.files.column("path").filter(pa.array(is_fresh))
    is_old = pc.is_in(listing.path, value_set=old)
    columns = (column.filter(pc.invert(is_old)).to_pylist() for column in listing)
    return list(zip(*columns, strict=True))


def _stacked(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([conformed(table, schema) for table in tables]).combine_chunks()
