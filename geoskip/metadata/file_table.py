"""The files table: made from what a build collected, and made anew from the last one.

The functions are pure, and all but :func:`build_table` vectorised: they make no Python object a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.metadata.files import one_chunk
from geoskip.metadata.header import IndexEntry

__all__ = ["BASE_SCHEMA", "FileRow", "add_indexes", "build_table", "conformed", "files_schema", "replace_files"]

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
    """What a build found out about one file: its fingerprint, and its summaries by the indexes' texts."""

    path: str
    size: int
    mtime: int
    etag: str | None = None
    rows: int | None = None
    summaries: Mapping[str, Mapping[str, Any] | None] = {}


def files_schema(entries: Iterable[IndexEntry]) -> pa.Schema:
    """The schema of the files table with these indexes."""
    return pa.schema([*BASE_SCHEMA, *(pa.field(entry.name, entry.arrow) for entry in entries)])


def build_table(
    entries: Sequence[IndexEntry],
    rows: Iterable[FileRow],
    *,
    problem: Callable[[str, str, Exception], None] = lambda path, index, error: None,
) -> pa.Table:
    """The files table of a build.

    A summary that does not fit its index's type becomes null, so that the file is kept, and ``problem`` hears of it;
    so does a path that is no Unicode (Spark cannot name it either), whose file is left out.
    """
    found = {row.path: row for row in rows}
    for path in [path for path in found if not _is_unicode(path)]:
        problem(path, "", UnicodeError("the path is not valid Unicode"))
        del found[path]
    files = list(found.values())
    columns = [pa.array([file[i] for file in files], type=f.type) for i, f in enumerate(BASE_SCHEMA)]
    for entry in entries:
        columns.append(_summaries(entry, files, problem))
    return pa.Table.from_arrays(columns, schema=files_schema(entries))


def _summaries(entry: IndexEntry, files: list[FileRow], problem: Callable[[str, str, Exception], None]) -> pa.Array:
    name = entry.name
    values = [file.summaries.get(name) for file in files]
    try:
        return pa.array(values, type=entry.arrow)
    except _UNFIT:
        pass
    for number, value in enumerate(values):
        try:
            pa.array([value], type=entry.arrow)
        except _UNFIT as error:
            problem(files[number].path, name, error)
            values[number] = None
    return pa.array(values, type=entry.arrow)


_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


def _is_unicode(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def add_indexes(old: pa.Table, new: pa.Table) -> pa.Table:
    """The old table with the new table's indexes.

    Rows are matched by path. Where the fingerprints differ, the new row stands and the old summaries are dropped;
    files that only the old table has stay, with null for the new indexes. An index that both have is the new one's.
    """
    old, new = old.combine_chunks(), new.combine_chunks()
    rebuilt = set(new.schema.names)
    where = pc.index_in(new["path"], value_set=one_chunk(old["path"]))
    same = pc.and_(
        pc.is_valid(where),
        _all([_same(new[name], old[name].take(where)) for name in ("size", "mtime")]),
    )
    tags = new["etag"], old["etag"].take(where)
    same = pc.and_(same, pc.fill_null(pc.equal(*tags), True))  # unknown on one side: the others decide
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
    return _concatenated([pa.table(upper), pa.table(lower)], schema)


def replace_files(old: pa.Table, unchanged: pa.Array | Sequence[str], new: pa.Table) -> pa.Table:
    """The old table's rows of the unchanged paths, then the new rows; a path in both is the new one's.

    The indexes are the old table's; what the new rows lack of them is null.
    """
    paths = unchanged if isinstance(unchanged, pa.Array | pa.ChunkedArray) else pa.array(unchanged, pa.string())
    stays = pc.and_(
        pc.is_in(old["path"], value_set=paths), pc.invert(pc.is_in(old["path"], value_set=one_chunk(new["path"])))
    )
    return _concatenated([old.filter(stays), new], old.schema)


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))


def _all(conditions: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    result = conditions[0]
    for condition in conditions[1:]:
        result = pc.and_(result, condition)
    return result


def _concatenated(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([conformed(table, schema) for table in tables]).combine_chunks()


def conformed(table: pa.Table, schema: pa.Schema, *, rows: int | None = None) -> pa.Table:
    """The table with exactly this schema: columns in its order, missing ones null, the others left out.

    ``rows`` is how many rows there are where the table has no columns to say so.
    """
    rows = table.num_rows if rows is None else rows
    columns = []
    for column in schema:
        if column.name in table.schema.names:
            found = table[column.name]
            columns.append(found if found.type == column.type else found.cast(column.type))
        else:
            columns.append(pa.nulls(rows, column.type))
    return pa.Table.from_arrays(columns, schema=schema)
