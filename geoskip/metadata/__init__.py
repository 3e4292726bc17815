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

Tables are pyarrow's, made by pure functions, which but for :func:`build_table` create no Python object per file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.metadata.header import FORMAT, Header, IndexEntry, PartColumn, PartFile
from geoskip.metadata.snapshot import BUDGET, FileMetadata, Snapshot, Wanted, bytes_of, one_chunk

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
    "conform",
    "files_schema",
]

BASE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("rows", pa.int64()),
    ]
)


class FileRow(NamedTuple):
    """The row of one file: its fingerprint, and its summaries by index name."""

    path: str
    size: int
    mtime: int
    etag: str | None = None
    rows: int | None = None
    summaries: Mapping[str, Mapping[str, Any] | None] = {}


def files_schema(entries: Iterable[IndexEntry]) -> pa.Schema:
    """The schema of the files table with these indexes."""
    return pa.schema([*BASE_SCHEMA, *(pa.field(entry.name, entry.arrow) for entry in entries)])


def build_table(entries: Sequence[IndexEntry], rows: Iterable[FileRow]) -> pa.Table:
    """Build a files table; of several rows with one path the last one counts.

    A summary that does not fit its index's type becomes null, so that its file is always read. A path that is not valid
    Unicode, which Spark cannot name either, is left out.
    """
    files = list({row.path: row for row in rows if _is_unicode(row.path)}.values())
    columns = [pa.array([file[i] for file in files], type=f.type) for i, f in enumerate(BASE_SCHEMA)]
    columns += [_summaries(entry, files) for entry in entries]
    return pa.Table.from_arrays(columns, schema=files_schema(entries))


def _summaries(entry: IndexEntry, files: Sequence[FileRow]) -> pa.Array:
    values = [file.summaries.get(entry.name) for file in files]
    try:
        return pa.array(values, type=entry.arrow)
    except _UNFIT:
        return pa.array([value if _fits(value, entry.arrow) else None for value in values], type=entry.arrow)


_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], type=kind)
    except _UNFIT:
        return False
    return True


def _is_unicode(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def add_indexes(old: pa.Table, new: pa.Table) -> pa.Table:
    """The old table with the columns of the new table's indexes.

    Rows are matched by path. Where the fingerprints differ, the new row is taken and the old summaries are dropped;
    files of the old table alone are kept, with null for the new indexes. An index of both is taken from the new table.
    """
    old, new = old.combine_chunks(), new.combine_chunks()
    rebuilt = set(new.schema.names)
    where = pc.index_in(new["path"], value_set=one_chunk(old["path"]))
    same = pc.is_valid(where)
    for name, if_unknown in (("size", False), ("mtime", False), ("etag", True)):  # etags are optional
        same = pc.and_(same, pc.fill_null(pc.equal(new[name], old[name].take(where)), if_unknown))
    matched = pc.if_else(same, where, pa.scalar(None, pa.int32()))
    only_old = old.filter(pc.invert(pc.is_in(old["path"], value_set=one_chunk(new["path"]))))
    upper: dict[str, Any] = {}
    lower: dict[str, Any] = {}
    for column in [*old.schema, *(f for f in new.schema if f.name not in old.schema.names)]:
        name = column.name
        if name in ("rows", "etag"):
            upper[name] = pc.coalesce(new[name], old[name].take(matched))
        else:
            upper[name] = new[name] if name in rebuilt else old[name].take(matched)
        known = name in BASE_SCHEMA.names or name not in rebuilt
        lower[name] = only_old[name] if known else pa.nulls(only_old.num_rows, new.schema.field(name).type)
    fields = {f.name: f for f in [*old.schema, *new.schema, *BASE_SCHEMA]}
    schema = pa.schema(list(fields.values()))
    return pa.concat_tables([conform(pa.table(part), schema) for part in (upper, lower)]).combine_chunks()


def conform(table: pa.Table, schema: pa.Schema, *, rows: int | None = None) -> pa.Table:
    """The table with exactly this schema: columns in its order, missing ones null, others left out.

    ``rows`` is the number of rows, needed for a table without columns.
    """
    rows = table.num_rows if rows is None else rows
    columns = []
    for column in schema:
        if column.name in table.schema.names:
            values = table[column.name]
            columns.append(values if values.type == column.type else values.cast(column.type))
        else:
            columns.append(pa.nulls(rows, column.type))
    return pa.Table.from_arrays(columns, schema=schema)
