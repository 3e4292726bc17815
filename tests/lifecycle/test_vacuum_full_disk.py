"""A vacuum makes the room on a full disk that it needs itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import ConflictError, StoreError
from geoskip.lifecycle import actions, transaction
from geoskip.lifecycle.log import history
from geoskip.lifecycle.verbs import ROLLED_BACK, Verb
from geoskip.stores import ParquetStore
from tests.support.numbered import Numbers, check_clean, check_complete, create, refresh, write


class FullUntilFreed:
    """A folder that takes nothing before something of it was removed."""

    def __init__(self, store: ParquetStore) -> None:
        self.folder, self.freed = store.folder, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.folder, name)

    def delete(self, name: str) -> None:
        self.freed = True
        self.folder.delete(name)

    def create(self, name: str, data: bytes) -> None:
        self._check()
        self.folder.create(name, data)

    def put(self, name: str, source: Path) -> None:
        self._check()
        self.folder.put(name, source)

    def _check(self) -> None:
        if not self.freed:
            raise OSError(28, "No space left on device")


def test_what_is_removed_first_is_what_nobody_may_commit(data: Numbers) -> None:
    """What a writer made that was closed as dead stays until there is a snapshot that this one loses against."""
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    write(data.folder, "f0", 7)
    refresh(store, data)
    slow = transaction.Operation(store, Verb.REFRESH, {}, None)
    with pytest.raises(ConflictError), slow:
        raise ConflictError(transaction.close(slow.log, slow.id, ROLLED_BACK, "no process carries it on"))
    made = Path(store.location) / "_parts" / f"_{slow.id[:24]}00000000.part"
    made.write_bytes(b"")
    swept: list[bool] = []
    full = FullUntilFreed(store)

    with pytest.raises(StoreError, match="No space left on device; make room"):
        actions.vacuum(ParquetStore(full), timedelta(days=7))
    assert not full.freed, "nothing is that old"
    begin = transaction.Operation.__enter__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction.Operation, "__enter__", lambda self: (swept.append(made.exists()), begin(self))[1])
        removed = actions.vacuum(ParquetStore(full), timedelta(0))
    assert (removed.snapshots, removed.leftovers) == ((1, 2), 1)
    assert history(store)[-1].parameters.endswith("snapshots: [1, 2]")
    assert swept == [True, True], "when the disk was full, and when it was not any more"
    assert not made.exists()
    check_complete(store, data)
    check_clean(store)


def test_a_disk_that_is_full_when_work_is_called_off(data: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancel itself can be written down, and what it is to say of the other one cannot."""
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    create_file, made = store.folder.create, []

    def full(name: str, content: bytes) -> None:
        if made:
            raise OSError(28, "No space left on device")
        made.append(name)
        create_file(name, content)

    with transaction.Operation(store, Verb.REFRESH, {}, None), monkeypatch.context() as patch:
        patch.setattr(store.folder, "create", full)
        with pytest.raises(StoreError, match="No space left on device; make room"):
            actions.cancel(store, data.header())
    assert [row.state for row in history(store)] == ["done", "done", "dead: cancelling"]


def test_what_failed_on_a_full_disk_is_over_at_once(data: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it could not write so, and its process lives on: what it made goes with the next vacuum."""
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    write(data.folder, "f3", 3)
    create_file = store.folder.create

    def full(name: str, content: bytes) -> None:
        if list(parts.iterdir()) != before:
            raise OSError(28, "No space left on device")
        create_file(name, content)

    parts = Path(store.location) / "_parts"
    before = list(parts.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(store.folder, "create", full)
        with pytest.raises(StoreError, match="No space left on device; make room"):
            refresh(store, data)
    assert [row.state for row in history(store)] == ["done", "dead: refreshing"]
    assert len(list(parts.iterdir())) == 2
    assert actions.vacuum(store, timedelta(0)).leftovers == 1
    check_clean(store)
    assert [row.state for row in history(store)] == ["done", "rolled back", "done"]
    assert history(store)[1].message.startswith("no process carries it on, written down by ")
