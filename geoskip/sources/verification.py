"""Comparison of stored summaries with the data, for any engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import InvalidSpecificationError, MetadataError
from geoskip.lifecycle.refresh import SnapshotDiff
from geoskip.metadata import BASE_SCHEMA, Header, Snapshot, build_table
from geoskip.report import count_of
from geoskip.sources.build_verbs import BuildAccess, check_same, with_index


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
    """Files with summaries that contradict their data, with the indexes."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Indexes with unreadable summaries, with the reason."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Indexes that could not be compared, and files that could not be read, with the reason."""
    uncovered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files without summaries of some indexes, which were deleted when the files were indexed: they are read."""
    unindexed: int = 0
    """Number of files that are new, changed or not indexed: queries read them."""

    @property
    def ok(self) -> bool:
        """Test whether nothing that was compared is different or damaged."""
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
        if self.unindexed:
            count = count_of(self.unindexed, "file")
            lines.append(f"  {count} new, changed or left out, which queries read: dataset.refresh_index()")
        if self.ok:
            lines.append("  everything compared is as it should be")
        else:
            lines.append("  dataset.repair() drops what is inconsistent and builds it anew")
        return "\n".join(lines)

    __repr__ = __str__


def check_sample(sample: float | None) -> None:
    """Raise InvalidSpecificationError unless it is a fraction of files, or None for all of them."""
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise InvalidSpecificationError(f"verify(sample=) takes a share above 0 and up to 1, got {sample!r}")


def verify_data(
    data: BuildAccess, sample: float | None, on_reading: Callable[[Header], None] = lambda header: None
) -> VerifyResult:
    """Compare summaries of all files, or of a sample, collected again, with the latest snapshot.

    ``on_reading`` is called with the snapshot's header before files are read. Raises NotIndexedError without an index
    in use, InvalidSpecificationError for metadata of another dataset.
    """
    data.store.reread()

    def compare(snapshot: Snapshot) -> VerifyResult:
        check_same(data, snapshot.header)
        on_reading(snapshot.header)
        return compare_with_data(data, snapshot, sample)

    with data.store.patiently():
        return with_index(data, compare)


def compare_with_data(data: BuildAccess, snapshot: Snapshot, sample: float | None) -> VerifyResult:
    """Collect summaries of all files, or of a sample, again, and compare them with a snapshot's.

    Raises MetadataError if the snapshot is vacuumed meanwhile.
    """
    damaged = damaged_indexes(snapshot)
    if damaged and data.store.latest() != snapshot.header.number:
        raise MetadataError(f"snapshot {snapshot.header.number} may be vacuumed: there is a later one")
    changed = {name: str(why) for name, why in data.changed_indexes(snapshot.header.entries).items()}
    entries = [e for e in snapshot.header.entries if e.name not in damaged and e.name not in changed]
    if "files" in damaged:
        return VerifyResult(0, 0, (), damaged=damaged, passed_over=changed)
    difference = SnapshotDiff.of(snapshot, data)
    rows = np.flatnonzero(difference.is_fresh)
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
    unindexed = len(difference.stale)
    return VerifyResult(made.num_rows, len(rows), names, differing, damaged, passed_over, uncovered, unindexed)


def damaged_indexes(snapshot: Snapshot) -> dict[str, str]:
    """Indexes with unreadable summaries, with the error; the key ``files`` is for the fingerprints."""
    found = {}
    for name in (*BASE_SCHEMA.names, *(entry.name for entry in snapshot.header.entries)):
        try:
            snapshot.files.column(name)
        except MetadataError as error:
            found["files" if name in BASE_SCHEMA.names else name] = str(error)
    return found


def _are_equal(one: Any, other: Any) -> bool:
    """Test whether two summaries are equal; NaN equals NaN."""
    return repr(one.as_py()) == repr(other.as_py())
