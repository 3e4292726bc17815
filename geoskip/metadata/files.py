"""The files of a snapshot, as clauses see them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.clauses import Clause, Mask, keep_mask
from geoskip.errors import MetadataError
from geoskip.metadata.cache import Cache, size_of

__all__ = ["FileMetadata", "Wanted", "one_chunk"]

T = TypeVar("T")
_MISSING: Any = object()
Wanted = str | tuple[str, str]
"""A column of the files table, or one field of an index's summaries as (index, field)."""
_ETAG = r"^[!-~]+$"
Load = Callable[["Sequence[Wanted] | None"], pa.Table]


class FileMetadata:
    """The files table, read column by column when asked; implements :class:`geoskip.clauses.Files`.

    ``load(wanted)`` returns a table with those of the wanted columns that are stored, in any order, ``load(None)``
    all; a column of which single fields are wanted has at least those. What was read is kept, and so is what clauses
    derive from it, each computed once however many threads ask, while the memory budget has room for it
    (:mod:`geoskip.metadata.cache`).
    """

    def __init__(self, length: int, load: Load) -> None:
        self._length = length
        self._load = load
        self._known = Cache()
        self._busy: dict[Hashable, threading.RLock] = {}
        self._guard = threading.Lock()

    @classmethod
    def of(cls, table: pa.Table) -> FileMetadata:
        """The files of a table in memory."""

        def load(wanted: Sequence[Wanted] | None) -> pa.Table:
            if wanted is None:
                return table
            names = {name if isinstance(name, str) else name[0] for name in wanted}
            return table.select([name for name in table.schema.names if name in names])

        return cls(table.num_rows, load)

    def __len__(self) -> int:
        return self._length

    def summary(self, index: str, field: str) -> pa.Array:
        """One field of an index's summaries, one entry a file; null where it is not stored."""
        return self.cached(("summary", index, field), lambda: self._summary(index, field, None))

    def column(self, name: str) -> pa.Array:
        """A whole column of the files table; nulls where it is not stored."""
        return self.cached(("column", name), lambda: self._column(name, self._load([name])))

    def kept(self, clause: Clause) -> Mask:
        """What a clause keeps: one entry a file, False skips. A store that can evaluate clauses itself does it here."""
        self.prefetch(clause.columns())
        return keep_mask(clause, self)

    def prefetch(self, wanted: Iterable[Wanted]) -> None:
        """Read several columns and fields at once, which is faster than one after the other."""
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
        """What ``compute`` returned the first time; what raised is tried anew."""
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
        """All columns that are stored, read without being kept."""
        return self._load(None)

    def paths_text(self, *, etags: bool = False) -> bytes:
        """A line ``size mtime path`` a file, in the order of the file numbers, as UTF-8; for the JVM, and not kept.

        With ``etags`` a file that has one gets ``size mtime:etag path``; those of local files are no file system's own.
        A file whose path holds a line feed, or whose etag is none, has an empty line instead: it is unknown there, and
        so it is read.
        """
        names = ("path", "size", "mtime", *(("etag",) if etags else ()))
        table = self._load(names)
        path, size, mtime, *etag = (self._column(name, table) for name in names)
        sizes, times = size.cast(pa.string()), mtime.cast(pa.string())
        told = etag[0] if etag and etag[0].null_count < len(etag[0]) else None
        if told is not None:
            times = pc.coalesce(pc.binary_join_element_wise(times, told, ":"), times)
        # the line feed goes before the line, where it joins a short string and not the path
        lines = pc.binary_join_element_wise(pc.binary_join_element_wise("\n", sizes, ""), times, path, " ")
        if told is not None:
            lines = pc.if_else(pc.coalesce(pc.match_substring_regex(told, _ETAG), True), lines, "\n")
        text = _text_of(lines)
        if text.count(b"\n") > len(lines):
            text = _text_of(pc.if_else(pc.match_substring(path, "\n"), "\n", lines))
        return text

    @property
    def nbytes(self) -> int:
        """Bytes held by what was read and derived; buffers that several arrays share count once."""
        return size_of(*list(self._known.held.values()))

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
    """All strings of an array without nulls, one after the other; the first line feed goes to the end."""
    if not len(strings):
        return b""
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[strings.offset :]
    return b"".join((memoryview(data)[int(ends[0]) + 1 : int(ends[len(strings)])], b"\n"))


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
