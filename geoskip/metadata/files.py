"""The files of a snapshot, as clauses see them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import MetadataError

__all__ = ["FileMetadata", "one_chunk"]

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
        """A line ``size mtime path`` a file, in the order of the file numbers, as UTF-8; for the JVM, and not kept.

        A file whose path holds a line feed has an empty line instead: it is unknown there, and so it is read.
        """
        names = ("path", "size", "mtime")
        table = self._load(names)
        path, *fingerprint = (self._column(name, table) for name in names)
        sizes, times = (column.cast(pa.string()) for column in fingerprint)
        # the line feed goes before the line, where it joins a short string and not the path
        lines = pc.binary_join_element_wise(pc.binary_join_element_wise("\n", sizes, ""), times, path, " ")
        text = _text_of(lines)
        if text.count(b"\n") > len(lines):
            text = _text_of(pc.if_else(pc.match_substring(path, "\n"), "\n", lines))
        return text

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


def _text_of(strings: pa.Array) -> bytes:
    """All strings of an array without nulls, one after the other; the first line feed goes to the end."""
    if not len(strings):
        return b""
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[strings.offset :]
    return b"".join((memoryview(data)[int(ends[0]) + 1 : int(ends[len(strings)])], b"\n"))


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
