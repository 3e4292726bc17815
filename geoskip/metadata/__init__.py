"""Metadata: the contents of a snapshot, independent of the store that keeps it.

A :class:`Snapshot` is a :class:`Header` (the dataset, its indexes and their dependencies) and a *files table* with one
row a file, in the order of the file numbers:

====== ======= =============================================================================
path   string  relative to the dataset's root, decoded once; a whole URI for a file outside of it
size   int64   bytes
mtime  int64   milliseconds since 1970, as in Hadoop's FileStatus
etag   string  null where the file system has none
rows   int64   null where unknown
...    struct  one column an index, named ``str(index)``: the file's summary, or null
====== ======= =============================================================================

Tables are pyarrow's, made by the pure functions :func:`build_table` and :func:`add_indexes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from geoskip.indexes.base import Index
from geoskip.metadata.cache import BUDGET, bytes_of
from geoskip.metadata.file_table import (
    BASE_SCHEMA,
    FileMetadata,
    FileRow,
    Wanted,
    add_indexes,
    build_table,
    files_schema,
)
from geoskip.metadata.header import FORMAT, Header, IndexEntry, PartColumn, PartFile

__all__ = [
    "BASE_SCHEMA",
    "BUDGET",
    "FORMAT",
    "FileMetadata",
    "FileRow",
    "Header",
    "IndexEntry",
    "PartColumn",
    "PartFile",
    "Snapshot",
    "Wanted",
    "add_indexes",
    "build_table",
    "bytes_of",
    "files_schema",
]


@dataclass(frozen=True)
class Snapshot:
    """An immutable state of a dataset's metadata."""

    header: Header
    files: FileMetadata

    def __repr__(self) -> str:
        header = self.header
        names = ", ".join(entry.name for entry in header.entries) or "no index"
        return f"<snapshot {header.number} of {header.root}: {names}; {header.files:,} files>"

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The specifications of the indexes in use, bound to their expressions."""
        return tuple(entry.index for entry in self.header.entries)
