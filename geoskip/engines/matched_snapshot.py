"""The latest snapshot of a dataset's metadata, with its rows matched to the files of a listing.

Snapshots and data derived from them are cached until the log has a newer snapshot.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from geoskip.engines.folder_listing import FOLDER, FolderListing, absolute_path, table_format
from geoskip.errors import InvalidSpecificationError, MetadataError, NeedsSparkError
from geoskip.lifecycle.log import reason_unreadable
from geoskip.metadata import Snapshot, match_files
from geoskip.report import unindexed_at_last
from geoskip.stores.base import Store
from geoskip.stores.parquet import ParquetStore

Numbers = np.ndarray[Any, np.dtype[np.int64]]
_MOST_STORES = 64
_snapshots: dict[int, Snapshot] = {}
"""The last snapshot that was read from each store, by the store's identity, since stores need not be hashable."""


def check_store(store: object, metadata: object) -> None:
    """Raise InvalidSpecificationError if both are given, or if one is no store or no folder."""
    if store is not None and metadata is not None:
        raise InvalidSpecificationError("give store= or metadata=, not both")
    if store is not None and not isinstance(store, Store):
        raise InvalidSpecificationError(f"store= takes a geoskip.stores.Store, got {store!r}")
    if metadata is not None and not isinstance(metadata, str | os.PathLike):
        raise InvalidSpecificationError(f"metadata= takes the path of a folder, got {metadata!r}")


def store_of(root: str, store: Store | None, metadata: str | os.PathLike[str] | None) -> Store:
    """The store of a dataset's metadata; the same object for the same folder, since it caches snapshots."""
    check_store(store, metadata)
    if store is not None:
        return store
    return _store_in(metadata_folder(root, metadata))


def metadata_folder(root: str, metadata: str | os.PathLike[str] | None) -> str:
    """The folder of a dataset's metadata; raises NeedsSparkError for one on another file system."""
    folder = absolute_path(os.path.join(root, FOLDER) if metadata is None else os.fspath(metadata))
    if folder is None:
        raise NeedsSparkError(f"metadata= is a local folder without Spark, got {str(metadata)!r}; or give store=")
    return folder


@lru_cache(_MOST_STORES)
def _store_in(folder: str) -> ParquetStore:
    return ParquetStore(folder)


def latest_snapshot(store: Store) -> Snapshot | None:
    """The latest snapshot in a store; cached, with the data derived from it, until there is a newer one."""
    number = store.latest()
    if number is None:
        return None
    known = _snapshots.get(id(store))
    is_current = known is not None and (known.header.identity, known.header.number) == (store.identity(), number)
    if known is None or not is_current or known.header.is_outdated:
        known = store.load(number)
        if id(store) not in _snapshots:
            weakref.finalize(store, _snapshots.pop, id(store), None)
        _snapshots[id(store)] = known
    return known


def snapshot_or_reason(
    root: str, store: Store | None, metadata: str | None, reasons: list[str]
) -> tuple[Snapshot | None, bool]:
    """The latest snapshot, or None with a reason; and False if the metadata cannot be read.

    Parameters
    ----------
    root
        The folder of the data.
    store, metadata
        A store or a folder of metadata in place of ``_geoskip`` in the root.
    reasons
        A list that gets the reasons.
    """
    chosen = store_of(root, store, metadata)
    try:
        snapshot = latest_snapshot(chosen)
    except MetadataError as error:
        reasons.append(reason_unreadable(f"the metadata in {chosen.location}", error))
        return None, False
    if snapshot is None:
        maker = "geoskip.build()" if table_format(root) is None else "geoskip.dataset(spark, ...).create_index()"
        reasons.append(f"there are no metadata in {chosen.location}: every file is kept; {maker} makes them")
        return None, True
    reasons += snapshot.header.unread_reasons
    if pending := snapshot.header.pending:
        reasons.append(unindexed_at_last(pending))
    return snapshot, True


@dataclass(frozen=True)
class FileMatch:
    """Match of a snapshot's rows with the files of a listing that have equal fingerprints.

    Attributes
    ----------
    file
        The number of each row's file in the listing; -1 if the file is gone or has another fingerprint.
    unknown
        The numbers of the listed files that match no row.
    everything
        True if each row matches the listed file of the same number.
    """

    file: Numbers
    unknown: Numbers
    everything: bool

    @classmethod
    def of(cls, snapshot: Snapshot, found: FolderListing) -> FileMatch:
        """Compare a snapshot with a listing; the result is cached."""
        match: FileMatch = snapshot.files.cached(("match", found.token), lambda: cls._compare(snapshot, found))
        return match

    @classmethod
    def _compare(cls, snapshot: Snapshot, found: FolderListing) -> FileMatch:
        listed = {"path": found.path, "size": found.size, "mtime": found.mtime, "etag": found.etag}
        snapshot.files.prefetch(listed)
        file = np.asarray(match_files(snapshot.files.column, listed).fill_null(-1))
        unknown = np.ones(len(found.path), dtype=bool)
        unknown[file[file >= 0]] = False
        return cls(file, np.flatnonzero(unknown), bool((file == np.arange(len(file))).all()))


def inverse(match: FileMatch, files: int) -> Numbers:
    """The row of each listed file; -1 if none matches it."""
    row = np.full(files, -1, dtype=np.int64)
    known = match.file >= 0
    row[match.file[known]] = np.flatnonzero(known)
    return row
