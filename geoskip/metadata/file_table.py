"""The files table: read lazily, column by column, and cached; created and joined by pure functions.

Columns of summaries, and values derived from them by clauses, are cached up to the limit of :data:`BUDGET` for all
datasets of this process together. Beyond it the least recently used values are dropped, and read again when needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause, Mask, keep_mask
from geoskip.errors import MetadataError

if TYPE_CHECKING:
    from geoskip.indexes.base import Index
    from geoskip.metadata import Header, IndexEntry

_FEW = 100
"""Number of items of a list that are measured to estimate the size of all."""


class MemoryBudget:
    """A limit in bytes for all caches together; beyond it their least recently used values are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._sizes: OrderedDict[tuple[int, Hashable], tuple[int, weakref.ref[Cache]]] = OrderedDict()
        self._gone: deque[int] = deque()
        self._lock = threading.RLock()

    @property
    def limit(self) -> int:
        """The limit in bytes; setting it drops values until the rest fits."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            self._shrink()

    @property
    def used_bytes(self) -> int:
        """The estimated bytes of all cached values."""
        with self._lock:
            self._forget_gone()
            return self._used

    def touch(self, number: int, key: Hashable) -> None:
        """Mark a value as the most recently used."""
        with self._lock:
            if (number, key) in self._sizes:
                self._sizes.move_to_end((number, key))

    def admit(self, owner: Cache, key: Hashable, size: int) -> bool:
        """Account for a new value, and drop others to make room.

        Parameters
        ----------
        owner, key, size
            The cache of the value, its key there, and its bytes.

        Returns
        -------
        bool
            False if the value is larger than the whole budget, and must not be cached.
        """
        with self._lock:
            self._forget_gone()
            if size > self._limit:
                return False
            self._used += size - self._sizes.pop((owner.number, key), (0, None))[0]
            self._sizes[owner.number, key] = (size, weakref.ref(owner))
            self._shrink()
            return True

    def gone(self, number: int) -> None:
        """Note that a cache was collected; without a lock, as garbage collection may run in any thread."""
        self._gone.append(number)

    def _shrink(self) -> None:
        while self._used > self._limit and self._sizes:
            (_, key), (size, reference) = self._sizes.popitem(last=False)
            self._used -= size
            if (owner := reference()) is not None:
                owner.held.pop(key, None)

    def _forget_gone(self) -> None:
        gone = {self._gone.popleft() for _ in range(len(self._gone))}
        for number, key in [each for each in self._sizes if each[0] in gone] if gone else ():
            self._used -= self._sizes.pop((number, key))[0]


BUDGET_BYTES = 1 << 30
BUDGET = MemoryBudget(BUDGET_BYTES)
"""The memory budget of this process; a session may set another limit."""


class Cache:
    """Values by key, kept while the budget has room."""

    _numbers = itertools.count(1)

    def __init__(self, budget: MemoryBudget = BUDGET) -> None:
        self.held: dict[Hashable, Any] = {}
        self.budget = budget
        self.number = next(self._numbers)
        weakref.finalize(self, budget.gone, self.number).atexit = False

    def get(self, key: Hashable, default: Any) -> Any:
        """The cached value, or the default."""
        value = self.held.get(key, default)
        if value is not default:
            self.budget.touch(self.number, key)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        """Cache a value if the budget has room."""
        self.held[key] = value
        if not self.budget.admit(self, key, size_of(value)):
            self.held.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self.held


def size_of(*values: Any) -> int:
    """Estimate the bytes of some values; buffers that several arrays share count once.

    >>> size_of(np.zeros(1000)), size_of(pa.array([1, 2])), size_of(["x" * 51] * 1000) > 50_000
    (8000, 16, True)
    """
    sizes: dict[Hashable, int] = {}
    for value in values:
        _measure(value, sizes, 1)
    return sum(sizes.values())


def _measure(value: Any, sizes: dict[Hashable, int], weight: int) -> None:
    if isinstance(value, pa.Array):
        for buffer in value.buffers():
            if buffer is not None:
                sizes[buffer.address] = buffer.size
    elif isinstance(value, np.ndarray):
        sizes[value.__array_interface__["data"][0]] = value.nbytes
    elif isinstance(value, str | bytes):
        sizes["text", len(sizes)] = weight * sys.getsizeof(value)
    elif isinstance(value, Mapping):
        _measure(tuple(value.values()), sizes, weight)
    elif isinstance(value, list | tuple):
        for item in value[:_FEW]:
            _measure(item, sizes, weight * max(1, len(value) // _FEW))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _measure(tuple(getattr(value, f.name) for f in dataclasses.fields(value)), sizes, weight)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _measure(tuple(v for v in vars(value).values() if isinstance(v, np.ndarray | pa.Array)), sizes, weight)


T = TypeVar("T")
_MISSING: Any = object()
Wanted = str | tuple[str, str]
"""A column of the files table, or one field of an index's summaries as (index, field)."""
_ETAG = r"^[!-~]+$"
Load = Callable[["Sequence[Wanted] | None"], pa.Table]


class FileMetadata:
    """The files table, read lazily column by column; implements :class:`geoskip.clauses.Files`.

    ``load(wanted)`` returns a table with the stored ones of the wanted columns, in any order; ``load(None)`` returns
    all columns. If only fields of a column are wanted, it has at least these. Columns, and values derived from them by
    clauses, are cached while the memory budget has room, and computed once for all threads.
    """

    def __init__(self, length: int, load: Load) -> None:
        self._length = length
        self._load = load
        self._known = Cache()
        self._busy: dict[Hashable, threading.RLock] = {}
        self._guard = threading.Lock()

    @classmethod
    def of(cls, table: pa.Table) -> FileMetadata:
        """Wrap a table in memory."""

        def load(wanted: Sequence[Wanted] | None) -> pa.Table:
            if wanted is None:
                return table
            names = {name if isinstance(name, str) else name[0] for name in wanted}
            return table.select([name for name in table.schema.names if name in names])

        return cls(table.num_rows, load)

    def __len__(self) -> int:
        return self._length

    def summary(self, index: str, field: str) -> pa.Array:
        """One field of an index's summaries, with one value for each file; null if it is not stored."""
        return self.cached(("summary", index, field), lambda: self._summary(index, field, None))

    def column(self, name: str) -> pa.Array:
        """A column of the files table; all null if it is not stored."""
        return self.cached(("column", name), lambda: self._column(name, self._load([name])))

    def evaluate(self, clause: Clause) -> Mask:
        """Evaluate a clause: one boolean for each file, False to skip it. Stores may override this."""
        self.prefetch(clause.columns())
        return keep_mask(clause, self)

    def prefetch(self, wanted: Iterable[Wanted]) -> None:
        """Read several columns and fields at once."""
        missing = [what for what in dict.fromkeys(wanted) if not self._is_known(what)]
        if missing:
            table = self._load(missing)
            for what in missing:
                if isinstance(what, str):
                    self.cached(("column", what), partial(self._column, what, table))
                else:
                    self.cached(("summary", *what), partial(self._summary, *what, table))

    def _is_known(self, what: Wanted) -> bool:
        if isinstance(what, str):
            return ("column", what) in self._known
        return ("summary", *what) in self._known or ("column", what[0]) in self._known

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached result of ``compute``; exceptions are not cached."""
        known: T = self._known.get(key, _MISSING)
        if known is not _MISSING:
            return known
        with self._guard:
            lock = self._busy.setdefault(key, threading.RLock())
        with lock:
            value: T = self._known.get(key, _MISSING)
            if value is _MISSING:
                value = compute()
                self._known.put(key, value)
                self._busy.pop(key, None)
            return value

    def table(self) -> pa.Table:
        """All stored columns, without caching them."""
        return self._load(None)

    def paths(self) -> list[str]:
        """Stored paths in the order of the file numbers."""
        return self.cached("paths", lambda: self.column("path").to_pylist())

    def numbers(self) -> dict[str, int]:
        """Number of each file by its stored path."""
        return self.cached("numbers", lambda: {path: number for number, path in enumerate(self.paths())})

    def paths_text(self, *, etags: bool = False) -> bytes:
        """Files as UTF-8 lines ``size mtime path``, in the order of their numbers, for the JVM.

        With ``etags``, the line of a file with an etag is ``size mtime:etag path``; etags of local files are computed
        by geoskip, not by the file system. A path with a line feed, or an etag that is not printable ASCII, gives an
        empty line: the JVM then has no metadata of that file, and reads it.
        """
        names = ("path", "size", "mtime", *(("etag",) if etags else ()))
        table = self._load(names)
        path, size, mtime, *etag = (self._column(name, table) for name in names)
        sizes, times = size.cast(pa.string()), mtime.cast(pa.string())
        tags = etag[0] if etag and etag[0].null_count < len(etag[0]) else None
        if tags is not None:
            times = pc.coalesce(pc.binary_join_element_wise(times, tags, ":"), times)
        # the line feed is put before each line: so it is joined to the short size and not to the long path
        lines = pc.binary_join_element_wise(pc.binary_join_element_wise("\n", sizes, ""), times, path, " ")
        if tags is not None:
            lines = pc.if_else(pc.coalesce(pc.match_substring_regex(tags, _ETAG), True), lines, "\n")
        text = _text_of(lines)
        if text.count(b"\n") > len(lines):
            text = _text_of(pc.if_else(pc.match_substring(path, "\n"), "\n", lines))
        return text

    def _column(self, name: str, table: pa.Table) -> pa.Array:
        if name not in table.schema.names:
            return pa.nulls(self._length)
        column = table.column(name)
        if len(column) != self._length:
            raise MetadataError(f"{name} has {len(column)} rows for {self._length} files")
        return one_chunk(column)

    def _summary(self, index: str, field: str, table: pa.Table | None) -> pa.Array:
        if ("column", index) in self._known:
            column = self.column(index)
        else:
            column = self._column(index, self._load([(index, field)]) if table is None else table)
        if not pa.types.is_struct(column.type) or column.type.get_field_index(field) < 0:
            return pa.nulls(self._length)
        return pc.struct_field(column, field)


def _text_of(strings: pa.Array) -> bytes:
    """The strings of an array without nulls, joined; the first line feed is moved to the end."""
    if not len(strings):
        return b""
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[strings.offset :]
    return b"".join((memoryview(data)[int(ends[0]) + 1 : int(ends[len(strings)])], b"\n"))


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(frozen=True)
class Snapshot:
    """An immutable state of a dataset's metadata."""

    header: Header
    files: FileMetadata

    def __repr__(self) -> str:
        names = ", ".join(entry.name for entry in self.header.entries) or "no index"
        return f"<snapshot {self.header.number} of {self.header.root}: {names}; {self.header.files:,} files>"

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The specifications of the indexes in use, bound to their expressions."""
        return tuple(entry.index for entry in self.header.entries)


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
    """Build a files table; of several rows with the same path the last one is kept.

    A summary that does not fit its index's type becomes null, so that its file is always read. Paths that are not valid
    Unicode are left out; Spark cannot read these either.
    """
    files = list({row.path: row for row in rows if is_unicode(row.path)}.values())
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


def is_unicode(path: str) -> bool:
    """Test whether a path, as Python decodes it from the bytes of a file system, is valid Unicode."""
    return path.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in path)


def match_files(column: Callable[[str], pa.Array], others: Mapping[str, pa.Array]) -> pa.Array:
    """Find for each file the number of the other one with its path, size and time; null if there is none.

    ``column`` returns a column of the files. Etags, null where unknown, are compared if the others have them.
    """
    path = column("path")
    where = pa.array(np.arange(len(path))) if path.equals(others["path"]) else pc.index_in(path, others["path"])
    same = pc.is_valid(where)
    for name, if_unknown in (("size", False), ("mtime", False), ("etag", True)):
        if (values := others.get(name)) is not None:
            equal = pc.equal(column(name).cast(values.type), values.take(where))
            same = pc.and_(same, pc.fill_null(equal, if_unknown))
    return pc.if_else(same, where, None).cast(pa.int64())


def add_indexes(old: pa.Table, new: pa.Table) -> pa.Table:
    """Add the columns of the new table's indexes to the old table.

    Rows are matched by path. If the fingerprints differ, the new row is used and the old summaries are dropped. Files
    that only the old table has are kept, with null for the new indexes. An index of both is taken from the new table.
    """
    old, new = old.combine_chunks(), new.combine_chunks()
    rebuilt = set(new.schema.names)
    matched = match_files(lambda name: one_chunk(new[name]), {name: one_chunk(old[name]) for name in BASE_SCHEMA.names})
    only_old = old.filter(pc.invert(pc.is_in(old["path"], value_set=one_chunk(new["path"]))))
    upper, lower = dict[str, Any](), dict[str, Any]()
    for column in [*old.schema, *(f for f in new.schema if f.name not in old.schema.names)]:
        name = column.name
        if name in ("rows", "etag"):
            upper[name] = pc.coalesce(new[name], old[name].take(matched))
        else:
            upper[name] = new[name] if name in rebuilt else old[name].take(matched)
        known = name in BASE_SCHEMA.names or name not in rebuilt
        lower[name] = only_old[name] if known else pa.nulls(only_old.num_rows, new.schema.field(name).type)
    schema = pa.schema({f.name: f for f in [*old.schema, *new.schema, *BASE_SCHEMA]}.values())
    return pa.concat_tables([conform(pa.table(part), schema) for part in (upper, lower)]).combine_chunks()


def conform(table: pa.Table, schema: pa.Schema, *, rows: int | None = None) -> pa.Table:
    """Convert a table to exactly this schema: columns in its order, missing ones null, others left out.

    ``rows`` is the number of rows, needed for a table without columns.
    """
    rows = table.num_rows if rows is None else rows
    names = table.schema.names
    columns = [table[f.name].cast(f.type) if f.name in names else pa.nulls(rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)
