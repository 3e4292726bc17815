"""Create and refresh: the verbs that read data, from the listing to the commit.

1. ``DatasetAccess.listing()`` returns the :class:`Listing`: the current files.
2. :meth:`SnapshotDiff.of` compares it with the latest snapshot: which rows are fresh, which files are stale.
3. :class:`BuiltSummaries` reads the missing summaries (:class:`BuildResult`), each at most once.
4. :class:`RefreshPlan` merges them into the snapshot, as a :class:`~geoskip.lifecycle.transaction.Commit` (another set
   of indexes) or an :class:`~geoskip.lifecycle.transaction.Amend` (the same indexes).

If a concurrent commit wins the race, steps 1 to 4 run again on its snapshot. Built summaries are keyed by file
fingerprint and by the *meaning* of an index (specification, expressions, dependencies), so no data is read twice:

* the row of a file that has changed or vanished is removed; rows of files that this handle does not list are kept;
* **a row is complete or missing**: a file without a summary of an index that others have built meanwhile gets no row,
  counts as not indexed, and is indexed by the next pass;
* rows of the concurrent commit are kept if the fingerprint is the same.

No row of the data is lost by this, since a file without metadata is read; and no file has two rows in the table, since
these are keyed by path. ConflictError is raised instead of replacing an index of the same name and another meaning, and
NotIndexedError if no index is in use any more (a transaction turns it into ConflictError after a concurrent commit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import ConflictError, NeedsSparkError, NotIndexedError
from geoskip.lifecycle.log import check_readable, now
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, NoChange
from geoskip.metadata import FileRow, Header, IndexEntry, Snapshot, add_indexes, build_table, conform, match_files

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Key = tuple[str, int, int]
"""A file and its fingerprint: path, size and modification time."""
_ATTEMPTS_THAT_READ = 3
"""Number of attempts that read data; later ones leave missing files to the next pass, so that they commit quickly."""
_NAMES_PENDING = 100


class Listing(NamedTuple):
    """The current files of a dataset, as columns of equal length; paths are relative to its root."""

    path: pa.Array
    size: pa.Array
    mtime: pa.Array

    @classmethod
    def below(cls, root: str, uris: pa.Array, sizes: pa.Array, mtimes: pa.Array) -> Listing:
        """Files given by their URIs.

        Parameters
        ----------
        root
            URI of the dataset's root; files that are not below it keep their URIs as paths.
        uris, sizes, mtimes
            The files, as strings and integers.
        """
        prefix = root.rstrip("/") + "/"
        paths = pc.utf8_slice_codeunits(uris, len(prefix))
        return cls(pc.if_else(pc.starts_with(uris, prefix), paths, uris), sizes, mtimes)

    def files(self) -> list[Key]:
        """The files, each with its fingerprint."""
        return list(zip(*(column.to_pylist() for column in self), strict=True))


class BuildResult(NamedTuple):
    """Rows of files, reasons for files without a row, and by index the name of the reader of its data."""

    rows: Sequence[FileRow]
    excluded: Mapping[str, str] = {}
    readers: Mapping[str, str] = {}


class DatasetAccess(Protocol):
    """A dataset, as an engine implements it."""

    def header(self) -> Header:
        """The header of a dataset without indexes."""

    def listing(self) -> Listing:
        """List the files."""

    def etags(self, paths: Sequence[str]) -> Sequence[str | None]:
        """The current entity tags of files, which differ if the contents do; None if the file system has none."""

    def sees(self, paths: pa.Array) -> pa.Array:
        """A boolean for each path: True if this handle would list the file, False for files of other handles."""

    def changed_indexes(self, entries: Sequence[IndexEntry]) -> Mapping[str, str | NeedsSparkError]:
        """Indexes that would be built differently now, with the setting or function that changed.

        For an index that this engine does not build, its error.
        """

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        """Collect the summaries of some files in one job."""


def difference(one: IndexEntry, other: IndexEntry, first: str = "then", second: str = "now") -> str:
    """The reason why two entries would store different summaries.

    Parameters
    ----------
    one, other
        Entries of the same name.
    first, second
        Names of the two entries in the message.
    """
    read, reads = ({name for name, _ in entry.columns} for entry in (one, other))
    if read != reads:
        return f"it reads {', '.join(sorted(read))} {first}, {', '.join(sorted(reads))} {second}"
    differing = [name for name, value in one.depends.items() if other.depends.get(name) != value]
    if differing:
        values = ((name, one.depends[name], other.depends.get(name)) for name in differing)
        return "; ".join(f"{name}={mine} {first}, {theirs} {second}" for name, mine, theirs in values)
    kinds = dict(other.columns)
    if retyped := [(name, kind, kinds[name]) for name, kind in one.columns if kinds.get(name, kind) != kind]:
        return "; ".join(f"{name} was {mine} {first}, {theirs} {second}" for name, mine, theirs in retyped)
    return "its expression, a setting in it or a function has changed"


def change_of(old: IndexEntry, new: IndexEntry) -> str | None:
    """The reason why a build would create other summaries than the old entry's, or None."""
    same = old.index.bound == new.index.bound and all(new.depends.get(n) == value for n, value in old.depends.items())
    return None if same else difference(old, new)


def means_the_same(one: IndexEntry, other: IndexEntry) -> bool:
    """True if both entries store the same summary of any file."""
    return (one.index, one.index.bound, dict(one.depends), one.arrow) == (
        other.index,
        other.index.bound,
        dict(other.depends),
        other.arrow,
    )


@dataclass(frozen=True)
class SnapshotDiff:
    """A snapshot compared with a listing; ``is_fresh`` marks rows of files listed unchanged."""

    snapshot: Snapshot
    listing: Listing
    is_fresh: Mask

    @classmethod
    def of(cls, snapshot: Snapshot, data: DatasetAccess, *, closely: bool = True) -> SnapshotDiff:
        """Compare a snapshot with the current files.

        Parameters
        ----------
        snapshot, data
            The snapshot, and the dataset to list.
        closely
            Compare entity tags too; False if they have just been compared.
        """
        listing = data.listing()
        files = snapshot.files
        is_fresh = np.array(match_files(files.column, listing._asdict()).is_valid(), dtype=bool)
        tagged = np.flatnonzero(is_fresh & files.column("etag").is_valid().to_numpy(zero_copy_only=False))
        if closely and len(tagged):
            rows = pa.array(tagged)
            paths, tags = (files.column(name).take(rows) for name in ("path", "etag"))
            current = pa.array(data.etags(paths.to_pylist()), pa.string())
            differs = pc.fill_null(pc.not_equal(tags, current), False)
            is_fresh[tagged[differs.to_numpy(zero_copy_only=False)]] = False
        return cls(snapshot, listing, is_fresh)

    @cached_property
    def stale(self) -> list[Key]:
        """The listed files that are new or changed."""
        if len(self.listing.path) == int(self.is_fresh.sum()):
            return []
        old = self.snapshot.files.column("path").filter(pa.array(self.is_fresh))
        is_new = pc.invert(pc.is_in(self.listing.path, value_set=old))
        return Listing(*(column.filter(is_new) for column in self.listing)).files()


@dataclass
class BuiltSummaries:
    """The summaries that an operation has collected so far by file and fingerprint, with their entries."""

    data: DatasetAccess
    rows: dict[Key, FileRow] = field(default_factory=dict)
    made: dict[str, IndexEntry] = field(default_factory=dict)
    tried: set[Key] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    read: int = 0

    def rows_of(self, keys: Sequence[Key], entries: Sequence[IndexEntry]) -> list[FileRow | None]:
        """The row of each file, or None if it lacks a summary of one of these indexes; a null summary counts."""
        made = [self.made.get(entry.name) for entry in entries]
        if not all(was and means_the_same(was, entry) for was, entry in zip(made, entries, strict=True)):
            return [None] * len(keys)
        names = {entry.name for entry in entries}
        rows = map(self.rows.get, keys)
        return [row if row is not None and names <= row.summaries.keys() else None for row in rows]

    def complete(self, keys: Sequence[Key], entries: Sequence[IndexEntry]) -> list[FileRow]:
        """The rows that have a summary of each of these indexes."""
        return [row for row in self.rows_of(keys, entries) if row is not None]

    def add(self, entries: Sequence[IndexEntry], keys: Sequence[Key]) -> None:
        """Read the summaries of these indexes that are missing for these files."""
        known = self.rows_of(keys, entries)
        keys = [key for key, row in zip(keys, known, strict=True) if row is None and key not in self.tried]
        if not keys or not entries:
            return
        result = self.data.build(entries, [path for path, _, _ in keys])
        self.made |= {entry.name: entry for entry in entries}
        self.excluded |= result.excluded
        self.readers |= result.readers
        self.read += len(result.rows)
        built = set()
        for row in result.rows:
            key = (row.path, row.size, row.mtime)
            built.add(key)
            old = self.rows[key].summaries if key in self.rows else {}
            self.rows[key] = row._replace(summaries={**old, **{e.name: row.summaries.get(e.name) for e in entries}})
        self.tried |= {key for key in keys if key not in built}


@dataclass
class RefreshPlan:
    """A create or refresh as a function of the latest snapshot, called at each attempt to commit.

    Parameters
    ----------
    data
        The dataset; the summaries that are built of it are kept for all attempts.
    wanted
        The indexes to build for every file: the new ones of a create, all for a full refresh, none for an incremental
        one. If the meaning of another index in use has changed, new files get no summaries of it in a create, and no
        row in a refresh.
    renew
        True if ``wanted`` are existing indexes: those deleted meanwhile are left out.
    quick
        Read nothing: remove the rows of changed files, and count the files without metadata.
    known
        The indexes that existed when ``wanted`` was computed. Default: those of the first attempt.
    diff
        The difference computed by the caller, used once if the snapshot is still the latest.
    layout
        The layout to record, as JSON. Default: keep the recorded one.
    """

    data: DatasetAccess
    wanted: Sequence[IndexEntry] = ()
    renew: bool = False
    quick: bool = False
    known: Sequence[IndexEntry] | None = None
    diff: SnapshotDiff | None = None
    layout: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.build = BuiltSummaries(self.data)

    def __call__(self, attempt: CommitAttempt, distrusted: Mask | None = None) -> Commit | Amend | NoChange | None:
        """The next snapshot, or None if the latest needs no change.

        Parameters
        ----------
        attempt
            The latest snapshot, and the number of races lost.
        distrusted
            One boolean for each row of the snapshot: True to treat it as the row of a changed file.
        """
        snapshot, data = attempt.snapshot, self.data
        may_read = attempt.number < _ATTEMPTS_THAT_READ
        if snapshot is None:
            self.known = () if self.known is None else self.known
            return self._first_commit(data.listing().files(), may_read)
        self._check(snapshot.header)
        diff, self.diff = self._diff_of(snapshot), None
        if distrusted is not None:
            diff = replace(diff, is_fresh=diff.is_fresh & ~distrusted)
        stays = self._stays(diff)
        if self.quick:
            return self._count_pending(diff, stays)
        order = [entry.name for entry in snapshot.header.entries]
        wanted = [entry for entry in self.wanted if not self.renew or entry.name in order]
        kept = [entry for entry in snapshot.header.entries if entry.name not in {e.name for e in self.wanted}]
        changed = data.changed_indexes(kept) if diff.stale else {}
        buildable = [entry for entry in kept if entry.name not in changed]
        if may_read and (wanted or not changed):
            if wanted:
                stale = set(diff.stale)
                self.build.add(wanted, [key for key in diff.listing.files() if key not in stale])
            self.build.add([*buildable, *wanted], diff.stale)
        if not wanted:
            return self._overlay_rows(diff, kept, stays)
        entries = [*kept, *wanted]
        if self.renew:
            entries.sort(key=lambda entry: order.index(entry.name))
        added = self.build.complete(diff.stale, [*buildable, *wanted])
        return self._overlay_columns(diff, wanted, entries, added, stays)

    def is_needed(self, snapshot: Snapshot) -> bool:
        """True if a refresh would change the snapshot; compares it with the listing, and reads no data."""
        self.diff = self._diff_of(snapshot)
        stays = self._stays(self.diff)
        if self.quick:
            return self._count_pending(self.diff, stays) is not None
        return bool(self.diff.stale or snapshot.header.pending) or not bool(stays.all())

    def _check(self, header: Header) -> None:
        """Raise an error if the result cannot be merged into a snapshot with this header."""
        here = self.data.header().source
        for name in ("class", "options") if header.has_indexes else ():
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
        if self.wanted:
            check_readable(header)  # all rows are written again
        for mine in self.wanted:
            theirs, before = in_use.get(mine.name), known.get(mine.name)
            is_news = theirs is not None and (before is None or not means_the_same(before, theirs))
            if theirs is not None and is_news and not means_the_same(mine, theirs):
                raise ConflictError(
                    f"{mine.name} was built there under other conditions than here "
                    f"({difference(mine, theirs, 'here', 'there')}); agree on one of them, and build it again"
                )

    def _diff_of(self, snapshot: Snapshot) -> SnapshotDiff:
        """The difference to the current files; reuses the one computed for this snapshot, if any."""
        if self.diff is not None and self.diff.snapshot is snapshot:
            return self.diff
        return SnapshotDiff.of(snapshot, self.data)

    def _stays(self, diff: SnapshotDiff) -> Mask:
        """True for the rows of unchanged files, and of files that this handle does not list."""
        if diff.is_fresh.all():
            return diff.is_fresh
        sees = self.data.sees(diff.snapshot.files.column("path"))
        is_seen: Mask = np.asarray(sees.to_numpy(zero_copy_only=False), dtype=bool)
        return diff.is_fresh | ~is_seen

    def _first_commit(self, keys: Sequence[Key], may_read: bool) -> Commit:
        if may_read:
            self.build.add(self.wanted, keys)
        rows = self.build.complete(keys, self.wanted)
        header = self._header(self.data.header(), self.wanted, self.wanted)
        return Commit(header, build_table(self.wanted, rows), self._details(rows, 0, 0))

    def _count_pending(self, diff: SnapshotDiff, stays: Mask) -> Amend | None:
        """Remove the rows of changed files, and count and name the files without metadata in the header."""
        old = diff.snapshot.header
        pending: dict[str, Any] = {}
        if diff.stale:
            names = [path for path, _, _ in diff.stale[:_NAMES_PENDING]]
            pending = {"files": len(diff.stale), "bytes": sum(size for _, size, _ in diff.stale), "first": names}
        if stays.all() and pending == old.pending:
            return None
        details = self._details([], int((~stays).sum()), int(stays.sum())) | {"pending": len(diff.stale)}
        return Amend(replace(old, pending=pending), pa.array(~stays), pa.table({}), details)

    def _overlay_rows(self, diff: SnapshotDiff, entries: Sequence[IndexEntry], stays: Mask) -> Amend | NoChange | None:
        """Keep the columns: the rows that stay, then those of the stale files."""
        old = diff.snapshot.header
        added = self.build.complete(diff.stale, entries)
        if not added and stays.all() and not old.pending:
            has_read = self.build.excluded or self.build.read
            return NoChange(self._details([], 0, len(stays))) if has_read else None
        details = self._details(added, int((~stays).sum()), int(stays.sum()))
        return Amend(self._header(old, entries, ()), pa.array(~stays), build_table(entries, added), details)

    def _overlay_columns(
        self,
        diff: SnapshotDiff,
        wanted: Sequence[IndexEntry],
        entries: Sequence[IndexEntry],
        added: Sequence[FileRow],
        stays: Mask,
    ) -> Commit:
        """Add columns: old rows of files with new summaries, rows of other handles, then the added rows."""
        snapshot, is_fresh = diff.snapshot, diff.is_fresh
        before = {entry.name: entry for entry in snapshot.header.stored}
        keys = {key[0]: key for key in diff.listing.files()}
        table = snapshot.files.table()
        names = {entry.name for entry in wanted}
        old = table.select([name for name in table.schema.names if name not in names])
        paths = old["path"].to_pylist()
        fresh = [keys[path] for path, unchanged in zip(paths, is_fresh, strict=True) if unchanged]
        known = self.build.complete(fresh, wanted)
        is_known = pc.is_in(old["path"], value_set=pa.array([row.path for row in known], pa.string()))
        base = add_indexes(old.filter(is_known), build_table(wanted, known))
        same = [e.name for e in wanted if e.name in before and means_the_same(before[e.name], e)]
        others = table.select([name for name in table.schema.names if name not in names or name in same])
        others = others.filter(pa.array(stays & ~is_fresh))
        schema = pa.schema({f.name: f for part in (base, others) for f in part.schema}.values())
        parts = [conform(part, schema) for part in (base, others, build_table(entries, added))]
        whole = pa.concat_tables(parts).combine_chunks()
        details = self._details(added, int((~stays).sum()), len(whole) - len(added), again=known)
        return Commit(self._header(snapshot.header, entries, wanted), whole, details)

    def _header(self, old: Header, entries: Sequence[IndexEntry], built: Sequence[IndexEntry]) -> Header:
        names = {entry.name for entry in entries}
        deleted = tuple(entry for entry in old.deleted if entry.name not in names)
        stored = {*names, *(entry.name for entry in deleted)}
        when = now()
        return replace(
            old,
            source=self.data.header().source,
            entries=tuple(entries),
            deleted=deleted,
            reasons=self.build.excluded,
            pending={},
            layout=old.layout if self.layout is None else self.layout,
            built={name: about for name, about in old.built.items() if name in stored}
            | {entry.name: {"when": when, "reader": self.build.readers.get(entry.name, "")} for entry in built},
        )

    def _details(self, rows: Sequence[FileRow], gone: int, kept: int, again: Iterable[FileRow] = ()) -> dict[str, Any]:
        """Counts for the log; ``again`` are the kept rows of files that were read for a new index."""
        left_out = {"left out": len(self.build.excluded)} if self.build.excluded else {}
        return {
            "files": {"read": self.build.read, "added": len(rows), "removed": gone, "kept": kept, **left_out},
            "bytes": sum(row.size for row in (*rows, *again)),
        }


def files_without_metadata(snapshot: Snapshot | None, data: DatasetAccess, *, closely: bool = True) -> list[Key]:
    """The current files without a row; empty without an index.

    Parameters
    ----------
    snapshot, data
        The latest snapshot, if any, and the dataset.
    closely
        As for :meth:`SnapshotDiff.of`.
    """
    if snapshot is None or not snapshot.header.entries:
        return []
    return SnapshotDiff.of(snapshot, data, closely=closely).stale
