"""A dataset without an engine, its verbs, and the invariants of its metadata.

The dataset is a folder of files with one number each, and its index stores the least number; tests.lifecycle and
test_crashes use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from geoskip.errors import NotIndexedError
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import BuildResult, Listing, RefreshPlan
from geoskip.lifecycle.transaction import perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import FileRow, Header, IndexEntry
from geoskip.stores import ParquetStore, Store
from tests.support.storing import HEADER, entry


class Numbers:
    """A folder of files ``<name>.txt`` with one number each, as a ``DatasetAccess``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builds: list[list[str]] = []
        self.while_building: Callable[[], Any] = lambda: None

    def header(self) -> Header:
        return replace(HEADER, root=f"file:{self.folder}", entries=())

    def listing(self) -> Listing:
        found = []
        with os.scandir(self.folder) as files:
            for file in files:
                with suppress(FileNotFoundError):
                    if file.name.endswith(".txt"):
                        found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns // 1_000_000))
        found.sort()
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        return Listing(pa.array(columns[0], pa.string()), *(pa.array(c, pa.int64()) for c in columns[1:]))

    def etags(self, paths: Sequence[str]) -> list[str | None]:
        return [self._etag(path) for path in paths]

    def _etag(self, path: str) -> str | None:
        try:
            found = os.stat(self.folder / path)
        except FileNotFoundError:
            return None
        return f"{found.st_ctime_ns}-{found.st_ino}"

    def sees(self, paths: pa.Array) -> pa.Array:
        return pa.array([True] * len(paths), pa.bool_())

    def changed_indexes(self, entries: Sequence[IndexEntry]) -> Mapping[str, str]:
        return {}

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> BuildResult:
        self.builds.append(sorted(paths))
        rows = []
        for path in paths:
            etag = self._etag(path)
            with suppress(FileNotFoundError):
                at = (self.folder / path).stat()
                number = int((self.folder / path).read_text())
                summaries = {e.name: {"least": number, "words": []} for e in entries}
                if self._etag(path) == etag:
                    rows.append(FileRow(path, at.st_size, at.st_mtime_ns // 1_000_000, etag, 1, summaries))
        self.while_building()
        return BuildResult(rows)


def write(folder: Path, name: str, number: int) -> None:
    """Write a file atomically."""
    half = folder / f".{name}.half"
    half.write_text(str(number))
    half.replace(folder / f"{name}.txt")


def create(store: Store, data: Numbers, *columns: str) -> Header | None:
    return perform(store, Verb.CREATE, RefreshPlan(data, [entry(c) for c in columns or ("a",)]))


def refresh(store: Store, data: Numbers) -> Header | None:
    return perform(store, Verb.REFRESH, RefreshPlan(data))


def rebuild(store: Store, data: Numbers) -> Header | None:
    snapshot = latest(store)
    if snapshot is None:
        raise NotIndexedError("nothing to rebuild")
    return perform(store, Verb.FULL, RefreshPlan(data, snapshot.header.entries, renew=True))


def note(store: Store, data: Numbers) -> Header | None:
    return perform(store, Verb.QUICK, RefreshPlan(data, quick=True))


VERBS: dict[str, Callable[[Store, Numbers], Any]] = {
    "create": lambda store, data: create(store, data, "c"),
    "refresh": refresh,
    "refresh full": rebuild,
    "refresh quick": note,
    "delete": lambda store, data: actions.delete(store, ["test_least(a)"]),
    "restore": lambda store, data: actions.restore(store, ["test_least(b)"]),
    "optimize": lambda store, data: actions.optimize(store),
    "vacuum": lambda store, data: actions.vacuum(store, timedelta(0)),
    "cancel": lambda store, data: actions.cancel(store, data.header()),
    "rotate keys": lambda store, data: actions.rotate(store),
}


def check_reader(store: Store, data: Numbers) -> None:
    """Check that the latest snapshot is complete, has no file twice, and is right for unchanged files."""
    snapshot = latest(store)
    if snapshot is None:
        return
    table = snapshot.files.table()
    paths = table["path"].to_pylist()
    assert len(set(paths)) == len(paths) == snapshot.header.files
    for kept in snapshot.header.stored:
        for path, etag, summary in zip(paths, table["etag"].to_pylist(), table[kept.name].to_pylist(), strict=True):
            if summary is not None and data._etag(path) == etag:
                try:
                    number = int((data.folder / path).read_text())
                except FileNotFoundError:
                    continue
                if data._etag(path) == etag:
                    assert summary["least"] == number, (path, kept.name)


def check_complete(store: Store, data: Numbers) -> None:
    """Check that every file has one row, with a summary of each index that no verb of the test deletes."""
    snapshot = latest(store)
    assert snapshot is not None
    assert sorted(snapshot.files.column("path").to_pylist()) == data.listing().path.to_pylist()
    for used in snapshot.header.entries:
        if used.name != "test_least(b)":  # a file that was refreshed while the index was deleted has no summary
            assert snapshot.files.column(used.name).null_count == 0, used.name


def check_own(store: Store, data: Numbers, prefix: str) -> None:
    """Check that no other writer has restored rows that a writer's refresh replaced.

    Nobody else writes to the files of this writer, so their rows must match the current files.
    """
    snapshot = latest(store)
    assert snapshot is not None
    for path, etag in zip(*(snapshot.files.column(name).to_pylist() for name in ("path", "etag")), strict=True):
        assert not path.startswith(prefix) or data._etag(path) == etag, (path, snapshot.header.number)


def check_chain(store: Store) -> None:
    """Check that no two operations have created one snapshot: the update of one would be lost."""
    made = [row.snapshot for row in history(store) if row.snapshot is not None]
    assert len(made) == len(set(made)), sorted(made)
    assert max(made) == store.latest()


def check_clean(store: ParquetStore) -> None:
    """Check that after a vacuum the store has no file that no snapshot refers to."""
    folder = Path(store.location)
    identity = store.identity()
    assert identity is not None
    (number,) = store.snapshots()
    named = {part.name for part in store.load(number).header.parts}
    assert {f"_parts/{name}" for name in os.listdir(folder / "_parts")} == named
    assert sorted(os.listdir(folder)) == ["_identity.json", "_log", "_operations", "_parts"]
    assert os.listdir(folder / "_log") == [f"_{identity}"]
    assert os.listdir(folder / "_log" / f"_{identity}") == [f"_{number:08d}.json"]
    assert not [name for name in os.listdir(folder / "_operations" / f"_{identity}") if name.endswith(".tmp")]
