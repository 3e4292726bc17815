"""The log under trouble: half-written, damaged, full disks, no permission, older states put back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import ConflictError, MetadataError, StoreError
from geoskip.lifecycle import actions, log, transaction
from geoskip.lifecycle.log import Log, history, latest
from geoskip.lifecycle.refresh import RefreshPlan
from geoskip.lifecycle.transaction import CommitAttempt
from geoskip.stores import MemoryStore, ParquetStore, Store
from geoskip.stores.base import is_late
from tests.stores.test_crashes import changing
from tests.support import crashes
from tests.support.crashes import FullFolder, opened
from tests.support.numbered import (
    VERBS,
    Numbers,
    check_chain,
    check_clean,
    check_complete,
    check_reader,
    create,
    rebuild,
    refresh,
    write,
)
from tests.support.planting import function
from tests.support.storing import entry
from tests.support.summaries import A, B, C, names, summaries


@pytest.fixture
def parquet(data: Numbers) -> ParquetStore:
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    return store


def newest(store: ParquetStore) -> Path:
    return max((Path(store.location) / "_operations").glob("*/*.json"))


def test_a_file_where_the_folder_should_be_is_said_to_be_one(data: Numbers, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(StoreError, match=r"cannot be written: .*Not a directory: .*a file"):
        create(ParquetStore(tmp_path / "a file"), data)


def test_a_half_written_entry_is_passed_over(parquet: ParquetStore, data: Numbers, monkeypatch: Any) -> None:
    monkeypatch.setattr(log, "_HALF_WRITTEN", 0.05)
    newest(parquet).write_bytes(newest(parquet).read_bytes()[:100])
    write(data.folder, "f3", 3)
    refresh(parquet, data)
    check_complete(parquet, data)
    assert [row.verb for row in history(parquet)] == ["create", "refresh"]


def test_a_damaged_snapshot_stops_writers_with_the_way_out(parquet: ParquetStore, data: Numbers) -> None:
    (damaged,) = (Path(parquet.location) / "_log").glob("*/*.json")
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(MetadataError, match=r"damaged.*; dataset\.repair\(\) builds anew"):
        refresh(ParquetStore(parquet.location), data)


def test_an_entry_of_a_newer_format_stops_writers_and_no_reader(parquet: ParquetStore, data: Numbers) -> None:
    number = parquet.operations()[-1] + 1
    parquet.record(number, {"format": 99, "operation": "x"}, identity=parquet.identity())
    write(data.folder, "f3", 3)
    with pytest.raises(MetadataError, match="upgrade geoskip"):
        refresh(parquet, data)
    assert len(summaries(parquet)) == 3


def test_a_snapshot_without_a_log_is_carried_on(data: Numbers) -> None:
    """As geoskip wrote them before there was one."""
    store = ParquetStore(data.folder / "_geoskip")
    first = RefreshPlan(data, [entry("a")])(CommitAttempt(0, None))
    store.commit(first.header, first.table, expected=None)
    write(data.folder, "f3", 3)
    refresh(store, data)
    check_complete(store, data)
    assert [(row.verb, row.snapshot) for row in history(store)] == [("", 1), ("refresh", 2)]


def test_a_full_disk_stops_a_verb_before_it_begins_and_no_later(
    parquet: ParquetStore, data: Numbers, monkeypatch: Any
) -> None:
    write(data.folder, "f3", 3)
    create_file, made = parquet.folder.create, []

    def full(name: str, content: bytes) -> None:
        if name.startswith("_operations") and len(made) >= room:
            raise OSError(28, "No space left on device")
        create_file(name, content)
        made.append(name)

    monkeypatch.setattr(parquet.folder, "create", full)
    room = 0
    with pytest.raises(StoreError, match=r"cannot be written: .* No space left on device; make room"):
        refresh(parquet, data)
    assert len(summaries(parquet)) == 3
    made.clear()
    room = 1
    refresh(parquet, data)
    assert len(summaries(parquet)) == 4, "it has committed; that it ended could not be written"
    monkeypatch.undo()
    assert [row.state for row in history(parquet)] == ["done"] * 2, "as the snapshot tells"
    assert len(Log(parquet, parquet.identity()).open()) == 1
    monkeypatch.setattr(transaction, "is_dead", lambda told: True)
    actions.delete(parquet, [A])
    assert [row.state for row in history(parquet)] == ["done"] * 3
    assert not Log(parquet, parquet.identity()).open()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["create", "refresh", "vacuum"])
def test_a_disk_that_is_full_from_some_step_on(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises where nothing is committed, a vacuum also where something is left. A lost answer is no error."""
    crashes.unflushed(monkeypatch.setattr)
    monkeypatch.setattr(transaction, "is_dead", lambda told: True)  # as after a minute
    template = changing(tmp_path)
    for step in range(1, 100):
        place = tmp_path / f"{step}"
        shutil.copytree(template, place)
        data, folder = Numbers(place), FullFolder(place / "_geoskip", step)
        before, raised = opened(place).latest(), ""
        try:
            VERBS[verb](ParquetStore(folder), data)
        except StoreError as error:
            raised = str(error)
        store = opened(place)
        if raised:
            assert "No space left on device; make room" in raised
        if verb != "vacuum":
            assert bool(raised) == (store.latest() == before)
        check_reader(store, data)
        refresh(store, data)
        check_complete(store, data)
        check_chain(store)
        actions.vacuum(store, timedelta(0))
        check_clean(store)
        if folder.step > 0:
            break
    assert step > 8
    assert not raised


def test_what_nobody_may_write_is_an_error_that_changes_nothing(
    parquet: ParquetStore, data: Numbers, monkeypatch: Any
) -> None:
    def refuse(name: str, content: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(parquet.folder, "create", refuse)
    write(data.folder, "f3", 3)
    for verb in ("refresh", "delete", "vacuum"):
        with pytest.raises(StoreError, match="Permission denied"):
            VERBS[verb](parquet, data)
    assert len(summaries(parquet)) == 3


def test_a_vacuum_leaves_what_a_live_writer_has_written(parquet: ParquetStore, data: Numbers) -> None:
    write(data.folder, "f3", 3)
    committed = parquet._commit_parts  # type: ignore[attr-defined]

    def interrupted(*args: Any) -> Any:
        parquet._commit_parts = committed  # type: ignore[attr-defined]
        write_part = parquet._write_part

        def after(*given: Any) -> Any:
            part = write_part(*given)
            parquet._write_part = write_part  # type: ignore[method-assign]
            actions.vacuum(ParquetStore(data.folder / "_geoskip"), timedelta(0))
            return part

        parquet._write_part = after  # type: ignore[method-assign]
        return committed(*args)

    parquet._commit_parts = interrupted  # type: ignore[method-assign]
    refresh(parquet, data)
    check_complete(parquet, data)
    check_reader(parquet, data)
    actions.vacuum(parquet, timedelta(0))
    check_clean(parquet)


def test_a_clock_that_is_set_back_hides_no_change(store: Store, data: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store, data)
    write(data.folder, "f1", 7)
    os.utime(data.folder / "f1.txt", (1e9, 1e9))
    refresh(store, data)
    assert summaries(store)["f1.txt"] == 7
    monkeypatch.setattr(actions, "age", lambda when: -3600.0)
    assert actions.vacuum(store, timedelta(0)).snapshots == (), "who knows how old they are"
    monkeypatch.undo()
    assert actions.vacuum(store, timedelta(0)).snapshots == (1, 2, 3)
    check_complete(store, data)


@pytest.fixture
def late(parquet: ParquetStore, data: Numbers, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets others go on right before the entry of a snapshot is created."""

    def arrange(*others: Callable[[Store, Numbers], Any]) -> None:
        create_entry = parquet._create

        def slow(*args: Any, **more: Any) -> None:
            monkeypatch.setattr(parquet, "_create", create_entry)
            for other in others:
                other(ParquetStore(parquet.location), Numbers(data.folder))
            create_entry(*args, **more)

        monkeypatch.setattr(parquet, "_create", slow)

    return arrange


def vacuumed(store: Store, data: Numbers) -> None:
    actions.vacuum(store, timedelta(0))


def test_a_number_that_was_given_and_forgotten_is_not_given_once_more(
    parquet: ParquetStore, data: Numbers, late: Callable[..., None]
) -> None:
    late(lambda store, data: create(store, data, "c"), vacuumed, vacuumed)
    create(parquet, data, "b")
    assert names(ParquetStore(parquet.location)) == [A, C, B]
    assert parquet.snapshots()[0] > 2, "its first entry is gone"
    check_complete(parquet, data)
    actions.vacuum(parquet, timedelta(0))
    check_clean(parquet)


def test_a_number_that_is_given_twice_would_lose_an_update(
    parquet: ParquetStore, data: Numbers, late: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: that the entry can be created is enough."""
    function(monkeypatch, is_late, lambda original, store, header: False)
    late(lambda store, data: create(store, data, "c"), vacuumed, vacuumed)
    create(parquet, data, "b")
    assert names(ParquetStore(parquet.location)) == [A, C]


@pytest.mark.parametrize("and_vacuumed", [False, True])
def test_one_who_is_followed_at_once_has_lost_nothing(
    and_vacuumed: bool, parquet: ParquetStore, data: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell once its successor is gone too, and then looks at what there is."""
    create_file = parquet.folder.create

    def followed(name: str, content: bytes) -> None:
        create_file(name, content)
        if name.startswith("_log"):
            monkeypatch.undo()
            other = ParquetStore(parquet.location)
            create(other, Numbers(data.folder), "c")
            for _ in range(2 * and_vacuumed):
                vacuumed(other, data)

    monkeypatch.setattr(parquet.folder, "create", followed)
    create(parquet, data, "b")
    assert sorted(names(parquet)) == [A, B, C]
    check_complete(parquet, data)
    assert [row.verb for row in history(parquet)].count("create") == 3


def test_a_vacuum_beside_a_damaged_snapshot_removes_nothing_that_it_may_use(
    parquet: ParquetStore, data: Numbers
) -> None:
    for number in (3, 4):
        write(data.folder, f"f{number}", number)
        refresh(parquet, data)
    damaged = min((Path(parquet.location) / "_log").glob("*/*.json"))
    damaged.write_bytes(damaged.read_bytes()[:50])
    again = ParquetStore(parquet.location)
    assert actions.vacuum(again, timedelta(hours=1)).leftovers == 0
    assert history(again)[-1].message.startswith("leftovers stay: ")
    assert actions.vacuum(again, timedelta(0)).snapshots == (1, 2, 3, 4)
    check_clean(again)
    check_complete(again, data)


def test_the_log_is_trimmed(data: Numbers, monkeypatch: Any) -> None:
    store = MemoryStore()
    monkeypatch.setattr(actions, "_ENTRIES_KEPT", 6)
    create(store, data)
    for _ in range(5):
        rebuild(store, data)
    assert len(store.operations()) == 12
    actions.vacuum(store, timedelta(hours=1))
    assert len(store.operations()) == 14, "what is young stays"
    actions.vacuum(store, timedelta(0))
    assert len(store.operations()) == 16, "what a slow writer may not have seen too"
    monkeypatch.setattr(actions, "LEASE", 0)
    actions.vacuum(store, timedelta(0))
    assert len(store.operations()) <= 8
    refresh(store, data)
    assert latest(store).header.files == 3


# --- older states put back -------------------------------------------------------------------------------------------


def snapshot_file(store: ParquetStore, number: int) -> Path:
    return Path(store.location) / "_log" / f"_{store.identity()}" / f"_{number:08d}.json"


def test_without_its_newest_entry_the_log_goes_on_from_the_one_before(parquet: ParquetStore, data: Numbers) -> None:
    write(data.folder, "f3", 3)
    refresh(parquet, data)
    snapshot_file(parquet, 2).unlink()
    again = ParquetStore(parquet.location)
    assert len(summaries(again)) == 3, "f3 is not known there, and read"
    check_reader(again, data)
    refresh(again, data)
    assert again.latest() == 2
    check_complete(again, data)
    actions.vacuum(again, timedelta(0))
    check_clean(again)


def test_a_writer_who_holds_a_snapshot_that_is_gone_takes_nothing_back(
    parquet: ParquetStore, data: Numbers, monkeypatch: Any
) -> None:
    write(data.folder, "f3", 3)
    refresh(parquet, data)
    assert len(summaries(parquet)) == 4, "it has snapshot 2 in memory"
    snapshot_file(parquet, 2).unlink()
    other = ParquetStore(parquet.location)
    create(other, data, "b")
    assert other.latest() == 2, "the number is given again"
    write(data.folder, "f4", 4)
    refresh(parquet, data)
    assert names(ParquetStore(parquet.location)) == [A, B]
    check_complete(ParquetStore(parquet.location), data)

    assert names(other) == [A, B]
    snapshot_file(other, 3).unlink()
    create(parquet, data, "c")
    monkeypatch.setattr(ParquetStore, "check", Store.check)  # the mutant: the number alone is looked at
    write(data.folder, "f5", 5)
    refresh(other, data)
    assert C not in names(other)


def test_an_operation_whose_entry_is_gone_commits_nothing(parquet: ParquetStore, data: Numbers) -> None:
    write(data.folder, "f3", 3)
    data.while_building = lambda: newest(parquet).unlink()
    with pytest.raises(ConflictError, match=r"tells of this refresh no more.*start it again"):
        refresh(parquet, data)
    data.while_building = lambda: None
    assert len(summaries(parquet)) == 3
    refresh(parquet, data)
    check_complete(parquet, data)


def test_an_end_that_is_gone_is_written_again(parquet: ParquetStore, data: Numbers, monkeypatch: Any) -> None:
    newest(parquet).unlink()
    assert len(Log(parquet, parquet.identity()).open()) == 1
    monkeypatch.setattr(transaction, "is_dead", lambda told: True)
    write(data.folder, "f3", 3)
    refresh(parquet, data)
    assert [(row.verb, row.state, row.snapshot) for row in history(parquet)] == [
        ("create", "done", 1),
        ("refresh", "done", 2),
    ]


def test_an_older_state_of_the_whole_folder(parquet: ParquetStore, data: Numbers, tmp_path: Path) -> None:
    kept = tmp_path / "backup"
    shutil.copytree(parquet.location, kept)
    write(data.folder, "f1", 11)
    write(data.folder, "f3", 3)
    refresh(parquet, data)
    actions.vacuum(parquet, timedelta(0))
    shutil.rmtree(parquet.location)
    shutil.copytree(kept, parquet.location)
    again = ParquetStore(parquet.location)
    check_reader(again, data)
    refresh(again, data)
    check_complete(again, data)
    assert summaries(again) == {"f0.txt": 0, "f1.txt": 11, "f2.txt": 2, "f3.txt": 3}
