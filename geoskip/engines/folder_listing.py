"""Listings of local folders and tables with fingerprints, created once and used by many calls.

A listing has the files that Spark would read: names that begin with ``_`` or ``.`` are hidden, except for partition
folders (``_p=1``). The fingerprint of a file is its size, its modification time and an entity tag of size, change time
and inode, as in builds.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.metadata import is_unicode
from geoskip.sources.listed_files import is_hidden, near_path
from geoskip.stores.log_files import local_path

if TYPE_CHECKING:
    from geoskip.engines.iceberg_columns import IcebergColumns

FOLDER = "_geoskip"
_TOKENS = itertools.count(1)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_THREADS = 8
_DEEPEST = 64
"""Maximum depth of folders, since symbolic links may form cycles."""


@dataclass(frozen=True, eq=False)
class FolderListing:
    """The files of a dataset at one moment: columns of equal length, sorted by path.

    Attributes
    ----------
    root
        The local folder that holds the dataset and its metadata; all paths are relative to this folder.
    path, size, mtime, etag
        Arrow columns: strings, bytes, milliseconds since 1970, and entity tags, which are null if unknown. Modification
        times are null for files that never change; for Iceberg they are sequence numbers of the files.
    below
        The path that was listed, relative to the root; empty for the whole dataset.
    unnameable
        Names that are not valid Unicode, with their sizes: metadata cannot hold them, so these files are always kept.
    partitions
        The partition values of each file as text, by column, if a table's log contains them; otherwise they are in the
        paths.
    types
        Spark's names of the types of partition columns, if a table's log contains them.
    notes
        Sentences on the listing, for reports.
    unlike
        The reason why the files have other rows or columns than the table; empty if they agree.
    columns
        The columns of an Iceberg table, which may have other names in its files; None for other datasets.
    schema
        Spark's names of the current types of a Delta table's columns, None for columns with other names in the files;
        None for all other datasets.
    """

    root: str
    path: pa.Array
    size: pa.Array
    mtime: pa.Array
    etag: pa.Array
    below: str = ""
    unnameable: tuple[tuple[str, int], ...] = ()
    partitions: pa.Table | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unlike: str = ""
    columns: IcebergColumns | None = None
    schema: Mapping[str, str | None] | None = None
    token: int = field(default_factory=_TOKENS.__next__)

    def __len__(self) -> int:
        return len(self.path) + len(self.unnameable)

    def __repr__(self) -> str:
        return f"<listing of {os.path.join(self.root, self.below)}: {len(self):,} files>"

    @property
    def table_types(self) -> Mapping[str, str | None] | None:
        """Spark's types of a table's columns in the version that was listed; None for plain files."""
        return self.schema if self.columns is None else self.columns.types

    def restrict(self, below: str) -> FolderListing:
        """The files in one folder, or one file, of a table."""
        if not below:
            return self
        inside = pa.array([f"{path}/".startswith(f"{below}/") for path in self.path.to_pylist()], pa.bool_())
        columns = ("path", "size", "mtime", "etag", "partitions")
        chosen = {name: column.filter(inside) for name in columns if (column := getattr(self, name)) is not None}
        return replace(self, **chosen, below=below, token=next(_TOKENS))

    @cached_property
    def sizes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The bytes of each named file."""
        return np.asarray(self.size)

    @cached_property
    def total_bytes(self) -> int:
        """The bytes of all files."""
        return int(self.sizes.sum()) + sum(size for _, size in self.unnameable)


def locate(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Find the folder that holds a dataset's metadata, and the path relative to it.

    Metadata and table logs are searched in the folder and in those above it: only the log of a table lists its
    current files. The path of an Iceberg metadata file selects that version. Raises DatasetNotFoundError if the
    path does not exist, InvalidSpecificationError for a path that is not on a local file system.

    >>> locate("/no/such/folder")
    Traceback (most recent call last):
    ...
    geoskip.errors.DatasetNotFoundError: there is no file or folder /no/such/folder
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text:
        raise InvalidSpecificationError(f"a path of a dataset is a text, got {path!r}")
    found = absolute_path(text)
    if found is None:
        raise InvalidSpecificationError(
            f"{text} is not a local path: without Spark geoskip reads local and mounted folders; mount it, or copy "
            "its files and metadata"
        )
    if not os.path.exists(found):
        is_pattern = any(sign in text for sign in "*?[{")
        hint = "; name the folder, and let the condition choose the files" if is_pattern else near_path(found)
        raise DatasetNotFoundError(f"there is no file or folder {found}{hint}")
    folder = found
    while True:
        if os.path.exists(os.path.join(folder, FOLDER, "_identity.json")) or table_format(folder) is not None:
            return folder, "" if folder == found else os.path.relpath(found, folder)
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return (found, "") if os.path.isdir(found) else (os.path.dirname(found), os.path.basename(found))


def absolute_path(text: str) -> str | None:
    """Absolute path of a local file or folder, given as a path or URI; None for other file systems.

    >>> absolute_path("/data/../m"), absolute_path("file:///data/a b"), absolute_path("s3://bucket/m")
    ('/m', '/data/a b', None)
    """
    path = local_path(text) if text.startswith("file:") else text
    return None if path is None or _URI.match(path) else os.path.abspath(os.path.expanduser(path))


def table_format(folder: str) -> str | None:
    """The format of the table in a folder: Delta, Iceberg or Hudi; None for a folder that is no table."""
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        return "Delta"
    metadata = os.path.join(folder, "metadata")
    if os.path.isdir(metadata) and any(Path(metadata).glob("*.metadata.json")):
        return "Iceberg"
    return "Hudi" if os.path.isdir(os.path.join(folder, ".hoodie")) else None


def path_keys(folder: str) -> list[str]:
    """The names of the partition columns in the path of a folder, from the top.

    >>> path_keys("d/day=1/hour=2")
    ['day', 'hour']
    """
    return [part.partition("=")[0] for part in folder.split(os.sep) if "=" in part]


def list_folder(root: str, below: str = "") -> FolderListing:
    """List the files of a dataset, or those below one of its folders, with several threads."""
    start = os.path.join(root, below) if below else root
    if os.path.isdir(start):
        rows = list(_walk(start, f"{below.rstrip('/')}/" if below else ""))
    else:
        rows = [_row(below, os.stat(start))]
    unnameable = tuple((row.path, row.size) for row in rows if not is_unicode(row.path))
    if unnameable:
        rows = [row for row in rows if is_unicode(row.path)]
    rows.sort()
    path, size, mtime, changed, inode = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    sizes = pa.array(size, pa.int64())
    texts = [
        column.cast(pa.string()) for column in (sizes, pa.array(changed, pa.int64()), pa.array(inode, pa.uint64()))
    ]
    return FolderListing(
        root=root,
        path=pa.array(path, pa.string()),
        size=sizes,
        mtime=pa.array(mtime, pa.int64()),
        etag=pc.binary_join_element_wise(*texts, "-"),
        below=below,
        unnameable=unnameable,
    )


class _Row(NamedTuple):
    """Path, bytes, modification time in milliseconds, change time in nanoseconds, and inode of a file."""

    path: str
    size: int
    mtime: int
    changed: int
    inode: int


def _row(path: str, found: os.stat_result) -> _Row:
    return _Row(path, found.st_size, found.st_mtime_ns // 1_000_000, found.st_ctime_ns, found.st_ino)


def _walk(start: str, prefix: str) -> Iterator[_Row]:
    """The files below a folder, level by level; several threads list the folders of a level."""
    level = [(start, prefix)]
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in range(_DEEPEST):
            scanned: Iterable[tuple[list[tuple[str, str]], list[_Row]]]
            scanned = pool.map(_scan_folder, level) if len(level) > 1 else map(_scan_folder, level)
            level = []
            for folders, rows in scanned:
                level += folders
                yield from rows
            if not level:
                return


def _scan_folder(folder: tuple[str, str]) -> tuple[list[tuple[str, str]], list[_Row]]:
    """List the folders and files in a folder; ``folder`` is its path and the prefix of relative paths."""
    start, prefix = folder
    folders: list[tuple[str, str]] = []
    rows: list[_Row] = []
    with os.scandir(start) as entries:
        for entry in entries:
            name = entry.name
            if is_hidden(name):
                continue
            if entry.is_dir():
                folders.append((entry.path, f"{prefix}{name}/"))
                continue
            try:
                rows.append(_row(prefix + name, entry.stat()))
            except FileNotFoundError:  # removed meanwhile, or a broken link
                continue
    return folders, rows


# --- tables -----------------------------------------------------------------------------------------------------------

_LISTINGS = {"Delta": "delta_listing", "Iceberg": "iceberg_listing"}
"""The modules that list tables, by format."""


def list_files(root: str, below: str = "") -> FolderListing:
    """List the files of a folder or below a folder; for a table those of its latest version.

    Raises InvalidSpecificationError for Hudi tables, and for other tables that cannot be read.
    """
    kind = table_format(root)
    if kind is None:
        return list_folder(root, below)
    if kind in _LISTINGS:
        found: FolderListing = import_module(f"geoskip.engines.{_LISTINGS[kind]}").list_table(root, below)
        return found
    raise InvalidSpecificationError(
        f"{root} is a table of {kind}, whose files are those that its timeline names: without Spark geoskip does not "
        "read these; ask through Spark"
    )


def refuse_unlike(found: FolderListing, caller: str) -> FolderListing:
    """Return a listing; raise InvalidSpecificationError if the files have other rows than the table."""
    if found.unlike:
        by_polars = found.columns is not None and "AVRO" not in found.unlike
        way = "by geoskip.scan_polars() or " if by_polars else ""
        raise InvalidSpecificationError(
            f"{caller} reads Parquet files, and {found.root} is a table of {table_format(found.root)} with "
            f"{found.unlike}, of which these are not the rows or columns; read it {way}through Spark, or rewrite its "
            "files so that they are"
        )
    return found


def refuse_inside(path: str, root: str, below: str) -> None:
    """Raise InvalidSpecificationError for a path inside a table."""
    if below and not below.endswith(".metadata.json") and (kind := table_format(root)) is not None:
        raise InvalidSpecificationError(
            f"{path} is inside of the {kind} table {root}, whose log says which of its files are of now; give the "
            "table, and a condition on its partitions"
        )
