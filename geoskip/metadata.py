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

Tables are pyarrow's. The functions at the end are pure: they make the next table from the last one, vectorised.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import MetadataError, NotIndexedError
from geoskip.header import FORMAT, Header, IndexEntry, Part, PartColumn
from geoskip.indexes.base import Index

__all__ = [
    "BASE_SCHEMA",
    "FORMAT",
    "FileMetadata",
    "FileRow",
    "Header",
    "IndexEntry",
    "Part",
    "PartColumn",
    "Snapshot",
    "add_indexes",
    "build_table",
    "files_schema",
    "replace_files",
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

T = TypeVar("T")
Load = Callable[["Sequence[str] | None"], pa.Table]


class FileMetadata:
    """The files table, read column by column when asked; implements :class:`geoskip.clauses.Files`.

    ``load(names)`` returns a table with those of the named columns that are stored, in any order; ``load(None)`` all.
    What was read is kept, and so is what clauses derive from it, each computed once however many threads ask.
    """

    def __init__(self, length: int, load: Load) -> None:
        self._length = length
        self._load = load
        self._known: dict[Hashable, Any] = {}
        self._busy: dict[Hashable, threading.RLock] = {}
        self._guard = threading.Lock()

    @classmethod
    def of(cls, table: pa.Table) -> FileMetadata:
        """The files of a table in memory."""

        def load(names: Sequence[str] | None) -> pa.Table:
            return (
                table if names is None else table.select([n for n in dict.fromkeys(names) if n in table.schema.names])
            )

        return cls(table.num_rows, load)

    def __len__(self) -> int:
        return self._length

    def summary(self, index: str, field: str) -> pa.Array:
        """One field of an index's summaries, one entry a file; null where it is not stored."""
        return self.cached(("summary", index, field), lambda: self._summary(index, field))

    def column(self, name: str) -> pa.Array:
        """A whole column of the files table; nulls where it is not stored."""
        return self.cached(("column", name), lambda: self._column(name, self._load([name])))

    def prefetch(self, names: Iterable[str]) -> None:
        """Read several columns at once, which is faster than one after the other."""
        missing = [name for name in dict.fromkeys(names) if ("column", name) not in self._known]
        if missing:
            table = self._load(missing)
            for name in missing:
                self.cached(("column", name), partial(self._column, name, table))

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What ``compute`` returned the first time; what raised is tried anew."""
        if key in self._known:
            known: T = self._known[key]
            return known
        with self._guard:
            lock = self._busy.setdefault(key, threading.RLock())
        with lock:
            if key not in self._known:
                self._known[key] = compute()
                self._busy.pop(key, None)
            value: T = self._known[key]
            return value

    def table(self) -> pa.Table:
        """All columns that are stored, read without being kept."""
        return self._load(None)

    def paths_text(self) -> bytes:
        """A line ``size mtime path`` a file, in the order of the file numbers, as UTF-8; for the JVM.

        A file whose path holds a line feed has an empty line instead: it is unknown there, and so it is read.
        """
        return self.cached("paths_text", self._paths_text)

    @property
    def nbytes(self) -> int:
        """Bytes held by what was read and derived; buffers that several arrays share count once."""
        sizes: dict[int, int] = {}
        for value in list(self._known.values()):
            _measure(value, sizes)
        return sum(sizes.values())

    def _column(self, name: str, table: pa.Table) -> pa.Array:
        if name not in table.schema.names:
            return pa.nulls(self._length)
        column = table.column(name)
        if len(column) != self._length:
            raise MetadataError(f"{name} has {len(column)} rows for {self._length} files")
        return one_chunk(column)

    def _summary(self, index: str, field: str) -> pa.Array:
        column = self.column(index)
        if not pa.types.is_struct(column.type) or column.type.get_field_index(field) < 0:
            return pa.nulls(self._length)
        return pc.struct_field(column, field)

    def _paths_text(self) -> bytes:
        self.prefetch(("path", "size", "mtime"))
        path = self.column("path")
        fingerprint = [self.column(name).cast(pa.string()) for name in ("size", "mtime")]
        lines = pc.binary_join_element_wise(*fingerprint, pc.binary_join_element_wise(path, "", "\n"), " ")
        broken = pc.match_substring(path, "\n")
        if pc.any(broken).as_py():
            lines = pc.if_else(broken, "\n", lines)
        return _text_of(lines)


def _text_of(strings: pa.Array) -> bytes:
    """All strings of an array without nulls, one after the other."""
    if not len(strings):
        return b""
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[strings.offset :]
    return bytes(memoryview(data)[int(ends[0]) : int(ends[len(strings)])])


def _measure(value: Any, sizes: dict[int, int]) -> None:
    if isinstance(value, pa.Array):
        for buffer in value.buffers():
            if buffer is not None:
                sizes[buffer.address] = buffer.size
    elif isinstance(value, np.ndarray):
        sizes[value.__array_interface__["data"][0]] = value.nbytes
    elif isinstance(value, bytes):
        sizes[id(value)] = len(value)
    elif isinstance(value, Mapping):
        _measure(tuple(value.values()), sizes)
    elif isinstance(value, list | tuple):
        for item in value[:1000]:
            _measure(item, sizes)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _measure(tuple(getattr(value, f.name) for f in dataclasses.fields(value)), sizes)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(frozen=True)
class Snapshot:
    """An immutable state of a dataset's metadata."""

    header: Header
    files: FileMetadata

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


# --- tables -----------------------------------------------------------------------------------------------------------


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
    values: list[Any] = [file.summaries.get(entry.name) for file in files]
    try:
        return pa.array(values, type=entry.arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    for number, value in enumerate(values):
        try:
            pa.array([value], type=entry.arrow)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            problem(files[number].path, entry.name, error)
            values[number] = None
    return pa.array(values, type=entry.arrow)


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
        _all([_same(new[name], old[name].take(where)) for name in ("size", "mtime", "etag")]),
    )
    matched = pc.if_else(same, where, pa.scalar(None, pa.int32()))
    only_old = old.filter(pc.invert(pc.is_in(old["path"], value_set=one_chunk(new["path"]))))
    upper: dict[str, Any] = {}
    lower: dict[str, Any] = {}
    for column in [*old.schema, *(f for f in new.schema if f.name not in old.schema.names)]:
        name = column.name
        if name == "rows":
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
