"""Reports on builds, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from geoskip.metadata import IndexEntry
from geoskip.report import count_of, size_of


@dataclass(frozen=True)
class BuildReport:
    """Result of a build, index by index; ``print(report)`` shows it."""

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
    layout: str = ""
    """The recorded layout, and how many files overlap others of it; empty where none is recorded."""

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
        lines += [f"  without metadata: {path}: {why}" for path, why in list(self.excluded.items())[:10]]
        if len(self.excluded) > 10:
            lines.append(f"  and {count_of(len(self.excluded) - 10, 'more file')} without metadata")
        return "\n".join(lines)

    __repr__ = __str__


def details_of(entries: Iterable[IndexEntry], table: pa.Table) -> dict[str, str]:
    """Remarks of the indexes on their summaries, for the report."""
    notes = {entry.name: entry.index.build_note(table[entry.name]) for entry in entries}
    return {name: note for name, note in notes.items() if note}
