"""The lifecycle's access to a dataset of Spark's: :class:`geoskip.lifecycle.refresh.DatasetAccess`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import InvalidSpecificationError
from geoskip.lifecycle.refresh import BuildResult, Listing, difference, means_the_same
from geoskip.metadata import Header, IndexEntry
from geoskip.spark.analysis import bind
from geoskip.spark.build.job import BuiltRows, build
from geoskip.spark.build.listing import UNNAMEABLE, ListedFile, SourceState
from geoskip.spark.dataset.source import DatasetSource, below, glob_pattern, is_glob, qualified
from geoskip.spark.rule.bridge import local_etag
from geoskip.spark.session import java
from geoskip.stores.base import Store
from geoskip.stores.log_files import local_path

__all__ = ["SparkData"]

_TICK = 0.05
"""Seconds by which the time of a folder may lag behind the clock."""
_RESTRICTING = ("pathglobfilter", "modifiedbefore", "modifiedafter")
"""Options that restrict a handle to some of the files in its folders."""


class SparkData:
    """Files of a dataset, listed again each time but the first, and built by Spark's jobs."""

    def __init__(self, source: DatasetSource, state: SourceState) -> None:
        self.source = source
        self.state = state
        self.built = BuiltRows(excluded=dict.fromkeys(state.files.unnameable(), UNNAMEABLE))
        self._is_new = True
        self._changed: dict[str, tuple[IndexEntry, str | None]] = {}

    @property
    def store(self) -> Store:
        """Store of the metadata."""
        return self.source.store(self.state.relation)

    @property
    def root(self) -> str:
        """Folder that paths are relative to."""
        return self.state.relation.root

    def use(self, state: SourceState) -> None:
        """Build missing summaries from the same files read in another session."""
        self.state = state

    def may_have_grown(self) -> bool:
        """Test whether files may have been added since the listing: the time of a local folder excludes it."""
        if self.source.table is not None:  # a partition may lie anywhere
            return True
        for folder in self._folders():
            path = local_path(folder)
            try:
                written = None if path is None else os.stat(path).st_mtime
            except OSError:
                return True
            if written is None or written > self.state.since - _TICK:
                return True
        return False

    def _folders(self) -> set[str]:
        """Folders of the files, with those above them up to the root."""
        found = {self.root, *self.state.relation.roots}
        for folder in self.state.files.folders:
            while folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0] if below(folder, [self.root]) else folder
        return found

    def header(self) -> Header:
        return Header(root=self.root, source={**self.state.relation.to_json(), **self.source.description()})

    def listing(self) -> Listing:
        if not self._is_new:
            self.state = self.source.relisted(self.state)
        self._is_new = False
        uris, sizes, times, _ = self.state.files.columns
        prefix = self.root.rstrip("/") + "/"
        below_root = pc.utf8_slice_codeunits(uris, len(prefix))
        return Listing(pc.if_else(pc.starts_with(uris, prefix), below_root, uris), sizes, times)

    def etags(self, paths: Sequence[str]) -> list[str | None]:
        root = local_path(self.root)
        if root is None:
            return self.state.files.etags(pa.array(map(self._uri, paths), pa.string()))
        head = root.rstrip("/") + "/"
        return [local_etag(head + path if ":/" not in path else local_path(path) or "") for path in paths]

    def sees(self, paths: pa.Array) -> pa.Array:
        roots = self.state.relation.roots
        restricted = any(name.lower() in _RESTRICTING for name in self.source.options)
        if list(roots) == [self.root] and not restricted:
            return pa.array([True], pa.bool_()).take(pa.array([0] * len(paths), pa.int32()))
        globs = [glob_pattern(qualified(self.source.spark, path)) for path in self.source.paths or () if is_glob(path)]
        uris = [self._uri(path) for path in paths.to_pylist()]
        seen = pa.array([below(uri, roots) or any(glob.fullmatch(uri) for glob in globs) for uri in uris], pa.bool_())
        if not restricted:
            return seen
        listed = pc.is_in(pa.array(uris, pa.string()), value_set=self.state.files.columns[0])
        return pc.and_(seen, pc.or_(listed, pa.array([_is_gone(uri) for uri in uris], pa.bool_())))

    def changed(self, entries: Sequence[IndexEntry]) -> dict[str, str]:
        unknown = [e for e in entries if e.name not in self._changed or not means_the_same(self._changed[e.name][0], e)]
        for entry, why in zip(unknown, self._changes(unknown), strict=True):
            self._changed[entry.name] = (entry, why)
        known = ((entry.name, self._changed[entry.name][1]) for entry in entries)
        return {name: why for name, why in known if why is not None}

    def _changes(self, entries: Sequence[IndexEntry]) -> list[str | None]:
        """Reason, for each index, why a build would make another one now; None where it would be the same."""
        if not entries:
            return []
        try:
            now = bind(java(self.source.spark), self.state.frame, self.state.relation, [old.index for old in entries])
        except InvalidSpecificationError as error:
            return [str(error)] if len(entries) == 1 else [why for old in entries for why in self._changes([old])]
        return [None if _is_as_it_was(o, n) else difference(o, n) for o, n in zip(entries, now, strict=True)]

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        files = self._listed(paths)
        built = build(self.state, entries, files)
        self.built += built
        return BuildResult(built.rows, built.excluded, _joined(built.readers))

    def readers(self) -> Mapping[str, str]:
        """Readers of the data of each index so far."""
        return _joined(self.built.readers)

    def _listed(self, paths: Sequence[str]) -> list[ListedFile]:
        return self.state.files.among(map(self._uri, paths))

    def _uri(self, path: str) -> str:
        return path if ":/" in path else f"{self.root.rstrip('/')}/{path}"


def _is_gone(uri: str) -> bool:
    """Test whether a local file is gone; False where that is not known cheaply."""
    path = local_path(uri)
    return path is not None and not os.path.lexists(path)


def _is_as_it_was(old: IndexEntry, new: IndexEntry) -> bool:
    """Test whether a build would make the same index now; dependencies that it has no more do no harm."""
    return old.index.bound == new.index.bound and all(new.depends.get(n) == value for n, value in old.depends.items())


def _joined(readers: Mapping[str, set[str]]) -> dict[str, str]:
    """Names of the readers of each index as one text."""
    return {name: " and ".join(sorted(names)) for name, names in readers.items()}
