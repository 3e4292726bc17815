"""Metadata: what a snapshot says about a dataset's files, apart from where it is stored.

A :class:`Snapshot` is a :class:`Header` (which dataset, which indexes, on what they depend) and a *files table*, one
row a file in the order of the file numbers:

====== ======= =============================================================================
path   string  relative to the dataset's root, decoded once; a whole URI for a file outside of it
size   int64   bytes
mtime  int64   milliseconds since 1970, as Hadoop's FileStatus says
etag   string  null where the file system has none
rows   int64   null where unknown
...    struct  one column an index, named ``str(index)``: the file's summary, or null
====== ======= =============================================================================

Tables are pyarrow's. Pure functions make them: :func:`build_table`, :func:`add_indexes`, :func:`replace_files`.
"""

from __future__ import annotations

from dataclasses import dataclass

from geoskip.errors import NotIndexedError
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
    replace_files,
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
    "replace_files",
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
        """The specifications, bound to their expressions."""
        return tuple(entry.index for entry in self.header.entries)

    def entry(self, name: str) -> IndexEntry:
        """The entry of an index by its text."""
        for entry in self.header.entries:
            if entry.name == name:
                return entry
        raise NotIndexedError(f"no index {name} here, only {', '.join(e.name for e in self.header.entries) or 'none'}")
