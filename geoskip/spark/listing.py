"""The files of a dataset as listed at one moment, and whether they are still the same later.

A fingerprint is size and modification time, and for local files what :func:`~geoskip.spark.bridge.local_etag` sees.
A file written within one tick of the clock before it is indexed could be written once more in that tick and look the
same (git's "racily clean" rule), so a build waits until the tick is over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from geoskip.spark.bridge import local_etag
from geoskip.spark.known import local_path
from geoskip.spark.session import java

__all__ = ["UNNAMEABLE", "Listed", "changed", "etags_of", "listing", "nothing_to_index", "relative", "settled"]

_TICK_MS = 20
"""Local file systems step their clocks every 4 to 10 ms."""
_REMOTE_TICK_MS = 2000
"""Object stores say whole seconds."""


@dataclass(frozen=True)
class Listed:
    """One file of a listing: its URI and fingerprint."""

    uri: str
    size: int
    mtime: int

    @property
    def is_nameable(self) -> bool:
        """Can metadata hold its path? A line feed ends a line there, so such a file is always read."""
        return "\n" not in self.uri


def listing(spark: SparkSession, frame: DataFrame) -> list[Listed]:
    """The files that a DataFrame reads, listed now."""
    found = []
    for line in java(spark).geoskip.listing(frame._jdf).split("\n"):
        if line:
            size, mtime, uri = line.split(" ", 2)
            found.append(Listed(uri.replace("\0", "\n"), int(size), int(mtime)))
    return found


def nothing_to_index(name: str, files: Sequence[Listed]) -> str | None:
    """Why none of these files can be indexed."""
    if not files:
        return f"{name} has no files to index"
    return None if any(file.is_nameable for file in files) else f"no file of {name!r} can be indexed: {UNNAMEABLE}"


UNNAMEABLE = (
    "its path holds a line feed, which metadata cannot; queries always read it, and to index it the folder or the file "
    "must be renamed"
)


def relative(uri: str, root: str) -> str:
    """A file's path below the dataset's root, or its whole URI.

    >>> relative("file:/data/a b/c", "file:/data"), relative("file:/other/c", "file:/data")
    ('a b/c', 'file:/other/c')
    """
    prefix = root.rstrip("/") + "/"
    return uri[len(prefix) :] if uri.startswith(prefix) else uri


def etags_of(files: Sequence[Listed]) -> dict[str, str | None]:
    """What tells one content of a local file from another, by URI."""
    return {file.uri: local_etag(path) for file in files if (path := local_path(file.uri))}


def settled(spark: SparkSession, frame: DataFrame, files: Sequence[Listed]) -> list[Listed]:
    """The files as listed once the tick in which the newest was written is over; at once where it is already.

    A file of the future stays as it is: :func:`changed` leaves it out.
    """
    tick = max(map(_tick, files))
    wait = max(file.mtime for file in files) + tick - time.time() * 1000
    if not 0 < wait <= 2 * tick:
        return list(files)
    time.sleep(wait / 1000)
    wanted = {file.uri for file in files}
    return [file for file in listing(spark, frame) if file.uri in wanted]


def changed(file: Listed, now: Listed | None, etag: str | None) -> str | None:
    """Why what was read of a file may not be what is there now; None where it is."""
    if now is None:
        return "it vanished while it was indexed"
    path = local_path(file.uri)
    if now != file or (path is not None and local_etag(path) != etag):
        return "it changed while it was indexed"
    if file.mtime > time.time() * 1000 - _tick(file):
        return "its modification time is in the future, so a later change might not show"
    return None


def _tick(file: Listed) -> int:
    return _TICK_MS if local_path(file.uri) else _REMOTE_TICK_MS
