"""Metadata: the contents of a snapshot, independent of the store that keeps it.

A :class:`Snapshot` is a :class:`Header` (the dataset, its indexes and their dependencies) and a *files table* with one
row for each file, in the order of the file numbers:

====== ======= =============================================================================
path   string  relative to the dataset's root, decoded once; a whole URI for a file outside of it
size   int64   bytes
mtime  int64   milliseconds since 1970, as in Hadoop's FileStatus
etag   string  null where the file system has none
rows   int64   null where unknown
...    struct  one column an index, named ``str(index)``: the file's summary, or null
====== ======= =============================================================================

Tables are pyarrow tables, created by pure functions (:mod:`geoskip.metadata.file_table`), which, except for
:func:`build_table`, create no Python object per file.

A header is written as JSON and read back exactly. Reading checks the type of every member; any fault raises
MetadataError, never another error.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.codec import predicate_from_json, predicate_to_json
from geoskip.errors import MetadataError, NewerFormatError
from geoskip.indexes.base import Index, index_from_json, registered_kinds
from geoskip.metadata.file_table import (
    BASE_SCHEMA,
    BUDGET,
    FileMetadata,
    FileRow,
    Snapshot,
    Wanted,
    add_indexes,
    build_table,
    conform,
    files_schema,
    is_unicode,
    match_files,
)

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
    "check_format",
    "conform",
    "empty_snapshot",
    "files_schema",
    "is_unicode",
    "match_files",
    "unread_reason",
]

FORMAT = 1
"""The version of the format that is written; snapshots of a newer one are refused."""

T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class IndexEntry:
    """An index of a snapshot: the specification, bound to its expressions, and its dependencies.

    ``columns`` are the data columns that it reads with Spark's names of their types; ``arrow`` is the struct stored
    for each file; ``depends`` maps settings, versions and functions to their values at the build. If one of them has
    another value at query time, the summaries are not used.
    """

    index: Index
    columns: tuple[tuple[str, str], ...]
    arrow: pa.DataType
    depends: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not pa.types.is_struct(self.arrow) or not self.arrow.num_fields:
            raise MetadataError(f"{self.name} must store a struct with at least one field, got {self.arrow}")

    @cached_property
    def name(self) -> str:
        """The text of the specification, which is also its column of the files table."""
        return str(self.index)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "index": self.index.to_json(),
            "bound": [predicate_to_json(node) for node in self.index.bound],
            "columns": [list(column) for column in self.columns],
            "type": str(self.arrow),
            "arrow": base64.b64encode(pa.schema([("summary", self.arrow)]).serialize()).decode("ascii"),
            "depends": dict(self.depends),
        }

    @classmethod
    def from_json(cls, data: Json) -> IndexEntry:
        """Read an entry; raises a GeoskipError for an unregistered index type, or damage."""
        index = index_from_json(_member(data, "index", dict))
        bound = [predicate_from_json(node) for node in _member(data, "bound", list)]
        entry = cls(
            index.bind(bound),
            tuple((_text(name), _text(kind)) for name, kind in _pairs(_member(data, "columns", list))),
            _arrow_type(_member(data, "arrow", str)),
            _texts(_member(data, "depends", dict)),
        )
        if entry.name != _member(data, "name", str):
            raise MetadataError(f"the index {data['name']!r} calls itself {entry.name!r} in this version of it")
        return entry


@dataclass(frozen=True)
class PartColumn:
    """A column of a part: its name in the files table, its bytes on disk and their CRC-32.

    ``leaves`` maps the path of each leaf inside the column to the CRC-32 of its bytes, for readers of single fields;
    it may be empty.
    """

    name: str
    bytes: int
    crc: int
    leaves: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PartFile:
    """An immutable file with some rows of the files table.

    ``columns`` is keyed by their names inside the part. ``removed`` has the ascending numbers of the rows that the
    snapshot has removed; ``rows`` still counts them.
    """

    name: str
    rows: int
    bytes: int
    crc: int
    columns: Mapping[str, PartColumn]
    removed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(a >= b for a, b in pairwise((-1, *self.removed, self.rows))):
            raise MetadataError(f"the removed rows of {self.name} are not ascending numbers of its {self.rows} rows")
        names = {column.name for column in self.columns.values()}
        if len(names) < len(self.columns):
            raise MetadataError(f"{self.name} has {len(self.columns)} columns with {len(names)} names")

    @property
    def rows_left(self) -> int:
        """The number of rows that are not removed."""
        return self.rows - len(self.removed)

    def numbers_left(self) -> NDArray[np.int64]:
        """The numbers of the rows that are not removed, ascending."""
        return np.delete(np.arange(self.rows, dtype=np.int64), np.array(self.removed, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        return data if self.removed else {name: value for name, value in data.items() if name != "removed"}

    @classmethod
    def from_json(cls, data: Json) -> PartFile:
        return cls(
            name=_member(data, "name", str),
            rows=_count(data, "rows"),
            bytes=_count(data, "bytes"),
            crc=_count(data, "crc"),
            columns={
                key: PartColumn(
                    _member(column, "name", str), _count(column, "bytes"), _count(column, "crc"), _leaves(column)
                )
                for key, column in _member(data, "columns", dict).items()
            },
            removed=tuple(_check_type(row, int, "a removed row") for row in _optional(data, "removed", list)),
        )


@dataclass(frozen=True)
class Header:
    """The header of a snapshot.

    Attributes
    ----------
    root, source
        The dataset's URI, and how to read it (paths, table, format, options, Spark's schema as JSON).
    entries, deleted
        The indexes in use, and deleted ones, which no query uses but which keep their summaries.
    unread, unread_deleted
        Entries in use, and deleted ones, that cannot be read (unregistered type, missing key), as JSON: not used.
    identity, number, created
        The identity of the log, the snapshot's number in it, and the time of the commit.
    files, parts
        The number of files, and the parts that hold their rows.
    reasons
        By path, the reason why a file has no metadata; not complete.
    operation
        The operation that committed the snapshot (verb, versions, ...), with its ``id`` in the operation log.
    built
        By index, the time of its build and the reader of its data.
    pending
        The number and total bytes of files without metadata that a quick refresh found, and the first of their paths.
    layout
        The layout that the files were written in, as JSON (``geoskip.layout.Layout.to_json``); empty if none is
        recorded, as in metadata of earlier versions. It is used for writing files, never for skipping.
    kinds
        The number of index types that were registered when the header was read; not stored.
    """

    root: str
    source: Json
    entries: tuple[IndexEntry, ...] = ()
    identity: str = ""
    number: int = 0
    created: str = ""
    files: int = 0
    parts: tuple[PartFile, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    operation: Json = field(default_factory=dict)
    unread: tuple[Json, ...] = ()
    format: int = FORMAT
    deleted: tuple[IndexEntry, ...] = ()
    built: Mapping[str, Json] = field(default_factory=dict)
    pending: Json = field(default_factory=dict)
    unread_deleted: tuple[Json, ...] = ()
    layout: Json = field(default_factory=dict)
    kinds: int = field(default_factory=registered_kinds, compare=False)

    @property
    def is_outdated(self) -> bool:
        """True if an index could not be read, and an index type has been registered since."""
        return bool(self.unread or self.unread_deleted) and self.kinds != registered_kinds()

    @property
    def stored(self) -> tuple[IndexEntry, ...]:
        """The indexes with a column in the files table: those in use, then the deleted ones."""
        return self.entries + self.deleted

    @property
    def has_indexes(self) -> bool:
        """True for an index in use or deleted, of any type; False if only a layout is recorded."""
        return bool(self.stored or self.unread or self.unread_deleted)

    @property
    def unread_reasons(self) -> tuple[str, ...]:
        """The reason of each index in use that cannot be read here."""
        return tuple(map(unread_reason, self.unread))

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "identity": self.identity,
            "number": self.number,
            "created": self.created,
            "operation": dict(self.operation),
            "root": self.root,
            "source": dict(self.source),
            "files": self.files,
            "reasons": dict(self.reasons),
            "indexes": [*(entry.to_json() for entry in self.entries), *map(dict, self.unread)],
            "deleted": [*(entry.to_json() for entry in self.deleted), *map(dict, self.unread_deleted)],
            "built": {name: dict(about) for name, about in self.built.items()},
            "pending": dict(self.pending),
            "parts": [part.to_json() for part in self.parts],
            **({"layout": dict(self.layout)} if self.layout else {}),
        }

    @classmethod
    def from_json(cls, data: object) -> Header:
        """Read a header; raises MetadataError for a newer format or damage."""
        if not isinstance(data, dict):
            raise MetadataError("a snapshot's header is a JSON object")
        version = check_format(data)
        entries, unread = _entries(_member(data, "indexes", list))
        deleted, unread_deleted = _entries(_optional(data, "deleted", list))
        return cls(
            root=_member(data, "root", str),
            source=_member(data, "source", dict),
            entries=tuple(entries),
            identity=_member(data, "identity", str),
            number=_count(data, "number"),
            created=_member(data, "created", str),
            files=_count(data, "files"),
            parts=tuple(PartFile.from_json(part) for part in _member(data, "parts", list)),
            reasons=_texts(_member(data, "reasons", dict)),
            operation=_member(data, "operation", dict),
            unread=tuple(unread),
            format=version,
            deleted=tuple(deleted),
            built={
                n: _check_type(about, dict, "what was built") for n, about in _optional(data, "built", dict).items()
            },
            pending=_optional(data, "pending", dict),
            unread_deleted=tuple(unread_deleted),
            layout=_optional(data, "layout", dict),
        )


def empty_snapshot(root: str) -> Snapshot:
    """The snapshot of a dataset without files and indexes, to find indexes that would support a condition."""
    return Snapshot(Header(root, {}), FileMetadata.of(files_schema(()).empty_table()))


def bytes_of(given: object) -> int | None:
    """Number of bytes: an int, or a text in the format of Spark's settings; None for anything else.

    >>> bytes_of("512m"), bytes_of("1.5g"), bytes_of("64 MiB"), bytes_of(1000), bytes_of("much"), bytes_of(-1)
    (536870912, 1610612736, 67108864, 1000, None, None)
    """
    if not isinstance(given, str):
        return given if type(given) is int and given >= 0 else None
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?\s*", given, re.IGNORECASE)
    return None if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def check_format(data: Json) -> int:
    """The format version of an entry; raises NewerFormatError if it is newer than this geoskip."""
    version = _count(data, "format")
    if version > FORMAT:
        raise NewerFormatError(
            f"metadata of format {version}, this geoskip reads formats up to {FORMAT}: upgrade geoskip, or index again"
        )
    return version


def _check_type(value: Any, kind: type[T], what: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise MetadataError(f"{what} should be {kind.__name__}, got {type(value).__name__}")
    return value


def _member(data: Any, name: str, kind: type[T]) -> T:
    holder: dict[str, Any] = _check_type(data, dict, f"what holds {name!r}")
    if name not in holder:
        raise MetadataError(f"{name!r} is missing")
    return _check_type(holder[name], kind, repr(name))


def _optional(data: Json, name: str, kind: type[T]) -> T:
    """A member that is missing in snapshots of earlier versions; empty then."""
    return _member(data, name, kind) if name in data else kind()


def unread_reason(entry: Json) -> str:
    """The reason why an index in a header cannot be read: the recorded one, or an unregistered type."""
    unknown = f"{entry.get('name')} is of a kind that is unknown here: import the module that defines it"
    return str(entry.get("why") or unknown)


def _entries(items: list[Any]) -> tuple[list[IndexEntry], list[dict[str, Any]]]:
    entries: list[IndexEntry] = []
    unread: list[dict[str, Any]] = []
    for entry in items:
        try:
            entries.append(IndexEntry.from_json(_check_type(entry, dict, "an index")))
        except Exception:  # of another version or package, or damaged: its reader may raise anything
            unread.append(_check_type(entry, dict, "an index"))
    return entries, unread


def _count(data: Any, name: str) -> int:
    value = _member(data, name, int)
    if not 0 <= value < 2**63:
        raise MetadataError(f"{name!r} should be a count, got {value if abs(value) < 2**99 else 'a huge number'}")
    return value


def _leaves(column: Json) -> dict[str, int]:
    leaves = _member(column, "leaves", dict) if "leaves" in column else {}
    return {_text(path): _count(leaves, path) for path in leaves}


def _text(value: Any) -> str:
    return _check_type(value, str, "a text")


_TEXTS = (pa.null(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _texts(data: dict[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in data.items()}


def _pairs(items: list[Any]) -> Iterable[tuple[Any, Any]]:
    for item in items:
        if len(_check_type(item, list, "a pair")) != 2:
            raise MetadataError("a pair has two members")
        yield item[0], item[1]


def _arrow_type(text: str) -> pa.DataType:
    try:
        kind = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True))).field(0).type
        if _is_plain(kind):
            return kind
    except (pa.ArrowException, binascii.Error, ValueError, IndexError, KeyError, OSError) as error:
        raise MetadataError(f"no Arrow type: {error}") from None
    raise MetadataError(f"a summary's type that is none of geoskip's: {str(kind)[:200]}")


def _is_plain(kind: pa.DataType) -> bool:
    """True for types with values that are not larger in memory than in their stored form."""
    if pa.types.is_struct(kind):
        return all(field.name is not None and _is_plain(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_map(kind):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind in _TEXTS
