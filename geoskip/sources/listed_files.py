"""Listings of a dataset's files with their fingerprints, and comparison with a later moment.

A fingerprint is size and modification time; for local files also :func:`local_etag`, elsewhere also the etag of the
file system's listing, if it has one. A file may be written again within the clock tick of its last write and keep its
fingerprint (git's "racily clean" rule), so a build waits until the tick is over.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import InvalidSpecificationError
from geoskip.stores.log_files import local_path

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of NULL in partition folders."""
_SUMMARIES = "/_(common_)?metadata$"
_TICK_MS = 20
"""Clocks of local file systems advance every 4 to 10 ms."""
_URI_HEAD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_REMOTE_TICK_MS = 2000
"""Object stores report whole seconds."""


@dataclass(frozen=True)
class ListedFile:
    """One file of a listing: its URI and fingerprint."""

    uri: str
    size: int
    mtime: int
    etag: str | None = None

    @property
    def is_nameable(self) -> bool:
        """Test whether metadata can hold its path, which must not contain a line feed; else it is always read."""
        return "\n" not in self.uri


class FileListing(Collection[ListedFile]):
    """Listing with a line ``size mtime uri`` or ``size mtime:etag uri`` for each file.

    The Java side writes it. A line feed in a path is written as NUL. Listings are compared as text, and methods on all
    files use columns, so that no object is created for each file.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileListing) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, file: object) -> bool:
        return any(each == file for each in self)

    def __iter__(self) -> Iterator[ListedFile]:
        return map(_parse_line, self._lines)

    @cached_property
    def columns(self) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
        """URI, size, modification time and etag of the files with paths that metadata can hold."""
        lines = self._lines if "\0" not in self.text else [line for line in self._lines if "\0" not in line]
        fields = pc.list_flatten(pc.split_pattern(pa.array(lines, pa.string()), " ", max_splits=2))
        size, time, uri = (fields.take(pa.array(range(start, len(fields), 3), pa.int64())) for start in range(3))
        etag = pa.nulls(len(lines), pa.string())
        if pc.any(pc.match_substring(time, ":")).as_py():
            split = [text.partition(":") for text in time.to_pylist()]
            time = pa.array([head for head, _, _ in split], pa.string())
            etag = pa.array([tail or None for _, _, tail in split], pa.string())
        return uri, size.cast(pa.int64()), time.cast(pa.int64()), etag

    def select(self, uris: Iterable[str]) -> list[ListedFile]:
        """The listed files among the given ones, in the order of the listing."""
        where = pc.index_in(pa.array(uris, pa.string()), value_set=self.columns[0]).drop_null().sort()
        return [*map(ListedFile, *(column.take(where).to_pylist() for column in self.columns))]

    def etags(self, uris: pa.Array) -> list[str | None]:
        """Etags of some files; None if the file system has none."""
        found: list[str | None] = self.columns[3].take(pc.index_in(uris, value_set=self.columns[0])).to_pylist()
        return found

    @cached_property
    def folders(self) -> set[str]:
        """URIs of the folders that hold the files."""
        uris = self.columns[0]
        if not len(uris):
            return set()
        one = uris[0].as_py().rpartition("/")[0]
        depth = pc.count_substring(uris, "/")
        if pc.all(pc.and_(pc.starts_with(uris, f"{one}/"), pc.equal(depth, depth[0]))).as_py():
            return {one}
        return {uri.rpartition("/")[0] for uri in uris.to_pylist()}

    def is_current(self, root: str, roots: Iterable[str]) -> bool:
        """Test whether local folders still have the listed files, all unchanged, and no others.

        False also if that is unknown: on other file systems, and if the listing leaves out visible files or folders.

        Parameters
        ----------
        root, roots
            The URI of the dataset's folder, and the URIs that were listed.
        """
        folders = {root, *roots}
        for folder in self.folders:
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0] if is_below(folder, [root]) else folder
        uris, sizes, times, _ = (column.to_pylist() for column in self.columns)
        left = dict(zip(uris, zip(sizes, times, strict=True), strict=True))
        try:
            for folder in folders - left.keys():
                if (path := local_path(folder)) is None:
                    return False
                for name, is_folder, size, mtime in _visible_entries(path):
                    uri = f"{folder.rstrip('/')}/{name}"
                    if uri not in folders if is_folder else size and left.pop(uri, None) != (size, mtime):
                        return False
        except OSError:
            return False
        return not left

    def schema_file(self) -> ListedFile | None:
        """File from which Spark infers the columns of Parquet; None if it may use other files."""
        uris = self.columns[0]
        if not len(uris) or pc.any(pc.match_substring_regex(uris, _SUMMARIES)).as_py():
            return None
        if self.text.isascii():
            return self.select([pc.min(uris).as_py()])[0]
        return self.select([min(uris.to_pylist(), key=lambda uri: uri.encode("utf-16-be"))])[0]  # in Java's order

    def unnameable(self) -> list[str]:
        """URIs of the files with paths that metadata cannot hold."""
        return [_parse_line(line).uri for line in self._lines if "\0" in line] if "\0" in self.text else []

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")[:-1]


def _parse_line(line: str) -> ListedFile:
    size, time, uri = line.split(" ", 2)
    mtime, _, etag = time.partition(":")
    return ListedFile(uri.replace("\0", "\n"), int(size), int(mtime), etag or None)


def is_hidden(name: str) -> bool:
    """Test whether Spark ignores a file or folder by its name."""
    return name[0] == "." or (name[0] == "_" and "=" not in name) or name.endswith("._COPYING_")


def _visible_entries(folder: str) -> Iterator[tuple[str, bool, int, int]]:
    """Name of each entry of a local folder that Spark lists, whether it is a folder, its size and time."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_hidden(entry.name):
                found = entry.stat()
                yield entry.name, stat.S_ISDIR(found.st_mode), found.st_size, found.st_mtime_ns // 1_000_000


def near_path(path: str) -> str:
    """Hint at the most similar existing name for a local path that does not exist, or "".

    >>> near_path("/no/such/folder")
    ''
    """
    folder, name = os.path.split(path.rstrip("/"))
    try:
        beside = [one for one in os.listdir(folder or ".") if not one.startswith((".", "_"))]
    except OSError:
        return ""
    found = get_close_matches(name, [one for one in beside if one != name], 1, 0.7)
    return f"; did you mean {os.path.join(folder, found[0])}?" if found else ""


def reason_not_indexable(name: str, files: Collection[ListedFile]) -> str | None:
    """Reason why none of these files can be indexed, or None."""
    if not files:
        return f"{name} has no files to index"
    return None if any(file.is_nameable for file in files) else f"no file of {name!r} can be indexed: {UNNAMEABLE}"


UNNAMEABLE = (
    "its path holds a line feed, which metadata cannot; queries always read it, and to index it the folder or the file "
    "must be renamed"
)


def relative_path(uri: str, root: str) -> str:
    """Path of a file below the dataset's root, otherwise its full URI.

    >>> relative_path("file:/data/a b/c", "file:/data"), relative_path("file:/other/c", "file:/data")
    ('a b/c', 'file:/other/c')
    """
    prefix = root.rstrip("/") + "/"
    return uri[len(prefix) :] if uri.startswith(prefix) else uri


def absolute_uri(path: str, root: str) -> str:
    """URI of a file, from its path as of :func:`relative_path`.

    >>> absolute_uri("a b/c", "file:/data"), absolute_uri("file:/other/c", "file:/data")
    ('file:/data/a b/c', 'file:/other/c')
    """
    return path if _URI_HEAD.match(path) else f"{root.rstrip('/')}/{path}"


def local_etag(path: str) -> str | None:
    """Size, change time and inode of a local file, which detect a change even if its mtime is reset."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_size}-{found.st_ctime_ns}-{found.st_ino}"


def etags_of(files: Sequence[ListedFile]) -> dict[str, str | None]:
    """Etags of some files by URI, for local files the current ones; None for a file without."""
    return {file.uri: file.etag if (path := local_path(file.uri)) is None else local_etag(path) for file in files}


def after_clock_tick(files: Sequence[ListedFile], relist: Callable[[], FileListing]) -> list[ListedFile]:
    """Wait for the end of the clock tick of the newest file, and return the files as they are then.

    ``relist`` lists the dataset again if a file has changed meanwhile. A file with a modification time in the future is
    not waited for: :func:`reason_of_change` excludes it.
    """
    tick = max(map(_tick, files))
    wait = max(file.mtime for file in files) + tick - time.time() * 1000
    if not 0 < wait <= 2 * tick:
        return list(files)
    time.sleep(wait / 1000)
    if all(map(_is_as_listed, files)):
        return list(files)
    return relist().select(file.uri for file in files)


def list_again(files: Sequence[ListedFile], relist: Callable[[], FileListing]) -> dict[str, ListedFile]:
    """Current state of some files by URI; removed files are missing.

    All files are listed again, by ``relist``, only if a local file differs from its listing.
    """
    differing = [file for file in files if not _is_as_listed(file)]
    found = {file.uri: file for file in files}
    if differing:
        for file in differing:
            del found[file.uri]
        found |= {file.uri: file for file in relist().select(file.uri for file in differing)}
    return found


def _is_as_listed(file: ListedFile) -> bool:
    """Test whether a local file still has its size and time; False on other file systems."""
    path = local_path(file.uri)
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return False
    return found is not None and (found.st_size, found.st_mtime_ns // 1_000_000) == (file.size, file.mtime)


def reason_of_change(file: ListedFile, now: ListedFile | None, etag: str | None) -> str | None:
    """Reason why a file changed since it was read, or None."""
    if now is None:
        return "it vanished while it was indexed"
    path = local_path(file.uri)
    if now != file or (path is not None and local_etag(path) != etag):
        return "it changed while it was indexed"
    if file.mtime > time.time() * 1000 - _tick(file):
        return "its modification time is in the future, so a later change might not show"
    return None


def _tick(file: ListedFile) -> int:
    return _TICK_MS if local_path(file.uri) else _REMOTE_TICK_MS


# --- paths, globs and the root ----------------------------------------------------------------------------------------

_WILDCARDS = re.compile(r"[{}\[\]*?\\]")  # characters that make a path a glob in Spark
_URI = re.compile(r"(?P<system>[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(?P<path>.*)", re.DOTALL)


def is_glob(path: str) -> bool:
    """Test whether Spark treats a path as a glob."""
    return _WILDCARDS.search(path) is not None


def literal_head(glob: str) -> str:
    """Folder before the first part with a wildcard.

    >>> literal_head("/data/year=*/x"), literal_head("s3a://b/*.csv"), literal_head("*.csv")
    ('/data', 's3a://b/', '.')
    """
    found = _URI.fullmatch(glob)
    system, path = (found["system"] or "", found["path"]) if found else ("", glob)
    wildcard = _WILDCARDS.search(path)
    head = path[: wildcard.start()] if wildcard else path
    folder = head.rpartition("/")[0]
    return system + folder if folder else system + "/" if path.startswith("/") else "."


_IN_A_GLOB = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Pattern for the URIs that a Hadoop glob matches, and for everything below them.

    >>> [
    ...     bool(glob_pattern("/d/p=*/{a,b}?.x").fullmatch(path))
    ...     for path in ("/d/p=7/b1.x", "/d/p=7/b1.x/y", "/d/p=7/e/b1.x")
    ... ]
    [True, True, False]
    """
    text, depth, position = "", 0, 0
    while position < len(glob):
        sign = glob[position]
        position += 1
        end = glob.find("]", position + 1)
        if sign == "\\" and position < len(glob):
            text += re.escape(glob[position])
            position += 1
        elif sign == "[" and end > 0:
            negated = glob[position] in "!^"
            members = glob[position + negated : end].replace("\\", r"\\").replace("[", r"\[")
            text += f"[{'^' * negated}{members}]"
            position = end + 1
        elif sign == "," and depth:
            text += "|"
        elif sign != "}" or depth:
            depth += {"{": 1, "}": -1}.get(sign, 0)
            text += _IN_A_GLOB.get(sign, re.escape(sign))
        else:
            text += r"\}"
    try:
        return re.compile(f"{text}(?:/.*)?", re.DOTALL)
    except re.error:
        return re.compile(r"(?!)")


def shared_folder(uris: Sequence[str]) -> str:
    """Deepest common folder of some URIs.

    >>> shared_folder(["file:/data/a", "file:/data/b/c"]), shared_folder(["s3a://b/x", "s3a://b/y"])
    ('file:/data', 's3a://b/')
    """
    split = [(found["system"] or "", found["path"].split("/")) for uri in uris if (found := _URI.fullmatch(uri))]
    systems = sorted({system for system, _ in split})
    if len(systems) != 1:
        raise InvalidSpecificationError(
            f"one dataset cannot span the file systems {' and '.join(systems)}; make a handle of each"
        )
    parts = [path for _, path in split]
    count = 0
    while count < min(map(len, parts)) and len({path[count] for path in parts}) == 1:
        count += 1
    return systems[0] + ("/".join(parts[0][:count]) or "/")


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Test whether a URI is one of some roots, or is below one."""
    return any(uri == root or uri.startswith(root.rstrip("/") + "/") for root in roots)
