"""The verbs and the operation log without an engine: what each does, alone and after another was faster."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import ConflictError, InvalidSpecificationError, MetadataError, NotIndexedError, StoreError
from geoskip.lifecycle import actions, log, operation
from geoskip.lifecycle.data import Build, Work, left_over
from geoskip.lifecycle.history import history
from geoskip.lifecycle.log import Log
from geoskip.lifecycle.operation import Operation, Turn, latest, perform
from geoskip.lifecycle.verbs import COMPATIBLE, DOING, Then, Verb
from geoskip.stores import MemoryStore, ParquetStore, Store
from tests import crashes
from tests.crashes import VERBS, Numbers, check_clean, check_complete, check_reader, create, rebuild, refresh, write

A, B, C = "test_least(a)", "test_least(b)", "test_least(c)"


@pytest.fixture(autouse=True)
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    crashes.unflushed(monkeypatch.setattr)


@pytest.fixture
def data(tmp_path: Path) -> Numbers:
    """Three files."""
    for number in range(3):
        write(tmp_path, f"f{number}", number)
    return Numbers(tmp_path)


@pytest.fixture(params=["memory", "parquet"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else ParquetStore(tmp_path / "_geoskip")


def summaries(store: Store, name: str = A) -> dict[str, int | None]:
    snapshot = latest(store)
    assert snapshot is not None
    found = snapshot.files.summary(name, "least").to_pylist()
    return dict(sorted(zip(snapshot.files.column("path").to_pylist(), found, strict=True)))


def names(store: Store) -> list[str]:
    snapshot = latest(store)
    return [entry.name for entry in snapshot.header.entries] if snapshot else []


# --- each alone -------------------------------------------------------------------------------------------------------


def test_a_refresh_reads_what_changed_and_nothing_else(store: Store, data: Numbers) -> None:
    create(store, data, "a", "b")
    write(data.folder, "f1", 11)
    write(data.folder, "f3", 3)
    (data.folder / "f0.txt").unlink()
    data.builds.clear()
    refresh(store, data)
    assert data.builds == [["f1.txt", "f3.txt"]]
    assert summaries(store) == summaries(store, B) == {"f1.txt": 11, "f2.txt": 2, "f3.txt": 3}
    row = history(store)[-1]
    assert (row.files_read, row.files_added, row.files_removed, row.files_kept) == (2, 2, 2, 1)


def test_an_index_is_added_without_reading_for_the_others(store: Store, data: Numbers) -> None:
    create(store, data, "a")
    write(data.folder, "f3", 3)
    data.builds.clear()
    create(store, data, "b")
    assert data.builds == [["f0.txt", "f1.txt", "f2.txt"], ["f3.txt"]]
    assert names(store) == [A, B]
    check_complete(store, data)


def test_a_full_refresh_reads_everything_and_keeps_the_order(store: Store, data: Numbers) -> None:
    create(store, data, "b", "a")
    data.builds.clear()
    rebuild(store, data)
    assert data.builds == [["f0.txt", "f1.txt", "f2.txt"]]
    assert names(store) == [B, A]


def test_a_quick_refresh_reads_nothing_and_makes_nothing_look_fresh(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f1", 11)
    write(data.folder, "f3", 3)
    (data.folder / "f0.txt").unlink()
    data.builds.clear()
    work = Work(Build(data), quick=True)
    assert work.is_needed(latest(store))
    perform(store, Verb.QUICK, work)
    assert data.builds == []
    assert summaries(store) == {"f2.txt": 2}
    pending = latest(store).header.pending
    assert (pending["files"], pending["bytes"], pending["first"]) == (2, 3, ["f1.txt", "f3.txt"])
    assert not work.is_needed(latest(store)), "it was said already"
    assert Work(Build(data)).is_needed(latest(store)), "and the index is stale as before"
    refresh(store, data)
    assert summaries(store) == {"f1.txt": 11, "f2.txt": 2, "f3.txt": 3}
    assert latest(store).header.pending == {}


def test_a_deleted_index_is_restored_as_it_was(store: Store, data: Numbers) -> None:
    create(store, data, "a", "b")
    assert actions.delete(store, [B]) == (B,)
    assert names(store) == [A]
    with pytest.raises(NotIndexedError, match="deleted already"):
        actions.delete(store, [B])
    with pytest.raises(NotIndexedError, match="no index nonsense"):
        actions.delete(store, ["nonsense"])
    write(data.folder, "f3", 3)
    refresh(store, data)
    with pytest.raises(NotIndexedError, match="in use already"):
        actions.restore(store, [A])
    assert actions.restore(store) == (B,)
    assert names(store) == [A, B]
    assert summaries(store, B) == {"f0.txt": 0, "f1.txt": 1, "f2.txt": 2, "f3.txt": None}


def test_all_indexes_are_deleted_and_an_index_created_in_the_place_of_a_deleted_one(
    store: Store, data: Numbers
) -> None:
    create(store, data, "a", "b")
    assert actions.delete(store, [A]) == (A,)
    assert actions.delete(store) == (B,)
    with pytest.raises(NotIndexedError, match="no index that is in use"):
        actions.delete(store)
    write(data.folder, "f0", 100)
    create(store, data, "b")
    assert names(store) == [B]
    assert summaries(store, B) == {"f0.txt": 100, "f1.txt": 1, "f2.txt": 2}
    assert actions.restore(store) == (A,)
    assert summaries(store, A) == {"f0.txt": None, "f1.txt": 1, "f2.txt": 2}


def test_a_vacuum_removes_for_good_what_is_deleted_and_old(store: Store, data: Numbers) -> None:
    create(store, data, "a", "b")
    write(data.folder, "f3", 3)
    refresh(store, data)
    actions.delete(store, [B])
    assert actions.vacuum(store, timedelta(hours=1)).snapshots == (), "what a reader may hold stays"
    assert store.snapshots() == (1, 2, 3, 4)
    assert store.load(2).files.summary(B, "least").to_pylist() == [0, 1, 2, 3]
    with pytest.raises(NotIndexedError):
        actions.restore(store)
    removed = actions.vacuum(store, timedelta(0))
    assert (removed.indexes, removed.snapshots) == ((), (1, 2, 3, 4))
    assert store.snapshots() == (5,)
    assert summaries(store) == {"f0.txt": 0, "f1.txt": 1, "f2.txt": 2, "f3.txt": 3}
    with pytest.raises(InvalidSpecificationError, match="not negative"):
        actions.vacuum(store, timedelta(-1))


def test_optimizing_writes_one_part_in_the_order_of_paths(data: Numbers) -> None:
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    for name in ("z", "e", "y"):
        write(data.folder, name, 7)
        refresh(store, data)
    assert len(latest(store).header.parts) == 4
    actions.optimize(store)
    assert len(latest(store).header.parts) == 1
    assert latest(store).files.column("path").to_pylist() == sorted(
        f"{n}.txt" for n in ("f0", "f1", "f2", "e", "y", "z")
    )
    before = store.latest()
    assert actions.optimize(store) is None
    assert store.latest() == before
    assert not Work(Build(data)).is_needed(latest(store))


@pytest.mark.parametrize("verb", ["delete", "restore", "optimize", "vacuum"])
def test_a_verb_without_an_index_says_so(verb: str, store: Store, data: Numbers) -> None:
    with pytest.raises(NotIndexedError, match="create one"):
        VERBS[verb](store, data)
    assert store.operations() == (), "and leaves nothing behind"


def test_the_log_tells_what_was_done_by_whom(store: Store, data: Numbers) -> None:
    create(store, data)
    with pytest.raises(RuntimeError, match="no space"):
        perform(store, Verb.REFRESH, failing("no space"), parameters={"mode": "incremental"}, by="pyspark 4.0.5")
    first, second = history(store)
    assert (first.verb, first.state, first.base, first.snapshot, first.message) == ("create", "done", None, 1, "")
    assert f"(process {os.getpid()})" in first.who
    assert first.seconds >= 0
    assert (second.verb, second.state, second.base, second.snapshot) == ("refresh", "failed", 1, None)
    assert second.message == "RuntimeError: no space"
    assert (second.parameters, "engine: pyspark 4.0.5" in second.versions) == ("mode: incremental", True)
    assert [store.operation(n)["state"] for n in store.operations()] == ["creating", "done", "refreshing", "failed"]


def failing(text: str) -> Any:
    def attempt(turn: Turn) -> None:
        raise RuntimeError(text)

    return attempt


def test_a_discreet_store_keeps_texts_out_of_the_log(data: Numbers) -> None:
    store = MemoryStore()
    store.discreet = True
    create(store, data)
    with pytest.raises(RuntimeError):
        perform(store, Verb.REFRESH, failing("secret"), parameters={"which": "secret"})
    actions.delete(store, [A])
    assert "secret" not in str([store.operation(n) for n in store.operations()])
    assert A not in str([store.operation(n) for n in store.operations()])


def test_every_pair_of_verbs_has_an_answer() -> None:
    assert COMPATIBLE.keys() == {(mine, theirs) for mine in Verb for theirs in Verb}
    assert set(DOING) == set(Verb)
    assert {then for (mine, _), then in COMPATIBLE.items() if mine is Verb.RESTORE} == {Then.AGAIN}


# --- one after another was faster -------------------------------------------------------------------------------------


def overtaken(data: Numbers, *others: Any) -> None:
    """Let others commit once while the next build is under way."""

    def once() -> None:
        data.while_building = lambda: None
        for other in others:
            other()

    data.while_building = once


def test_a_refresh_overtaken_by_a_refresh_reads_nothing_twice(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    other = Numbers(data.folder)
    overtaken(data, lambda: write(data.folder, "f4", 4), lambda: refresh(store, other))
    data.builds.clear()
    refresh(store, data)
    assert data.builds == [["f3.txt"]]
    assert other.builds == [["f3.txt", "f4.txt"]]
    assert summaries(store) == {f"f{n}.txt": n for n in range(5)}
    check_complete(store, data)


def test_a_create_overtaken_by_a_refresh_keeps_its_files(store: Store, data: Numbers) -> None:
    create(store, data)
    overtaken(data, lambda: write(data.folder, "f3", 3), lambda: refresh(store, Numbers(data.folder)))
    create(store, data, "b")
    assert names(store) == [A, B]
    assert summaries(store) == summaries(store, B) == {f"f{n}.txt": n for n in range(4)}
    assert history(store)[-2].parameters == 'after: ["refresh: rebase"]'


def test_a_refresh_overtaken_by_a_create_reads_for_its_index_too(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    other = Numbers(data.folder)
    hidden = Numbers.listing

    def without_f3(self: Numbers) -> Any:
        found = hidden(self)
        return type(found)(*(column.slice(0, 3) for column in found))

    other.listing = lambda: without_f3(other)  # type: ignore[method-assign]
    overtaken(data, lambda: create(store, other, "b"))
    refresh(store, data)
    assert names(store) == [A, B]
    assert summaries(store) == summaries(store, B) == {f"f{n}.txt": n for n in range(4)}


def test_a_row_that_lacks_another_writers_index_is_left_out_once_reading_must_end(data: Numbers) -> None:
    store = MemoryStore()
    create(store, data, "a")
    write(data.folder, "f3", 3)
    build = Build(data)
    work = Work(build)
    work(Turn(0, latest(store)))
    (data.folder / "f3.txt").rename(data.folder / "f3.hidden")
    create(store, Numbers(data.folder), "b")
    (data.folder / "f3.hidden").rename(data.folder / "f3.txt")
    assert work(Turn(3, latest(store))) is None, "what is known of f3 lacks b"
    assert left_over(latest(store), build) == left_over(latest(store), Build(data)) != []


def test_a_full_refresh_overtaken_leaves_deleted_indexes_deleted_and_new_ones_alone(
    store: Store, data: Numbers
) -> None:
    create(store, data, "a", "b")
    other = Numbers(data.folder)
    overtaken(data, lambda: actions.delete(store, [B]), lambda: create(store, other, "c"))
    rebuild(store, data)
    assert names(store) == [A, C]
    assert [entry.name for entry in latest(store).header.deleted] == [B]
    check_complete(store, data)


def test_a_file_that_changes_during_a_build_is_not_taken_for_what_it_was(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f1", 11)
    overtaken(data, lambda: write(data.folder, "f1", 99), lambda: refresh(store, Numbers(data.folder)))
    refresh(store, data)
    check_reader(store, data)
    assert summaries(store)["f1.txt"] == 99


def test_to_restore_what_was_vacuumed_meanwhile_is_an_error(store: Store, data: Numbers, monkeypatch: Any) -> None:
    create(store, data, "a", "b")
    actions.delete(store, [B])
    attempts = []

    class Overtaking(Operation):
        def check_open(self) -> None:
            attempts.append(self.verb)
            if self.verb is Verb.RESTORE and attempts.count(Verb.RESTORE) == 1:
                actions.vacuum(store, timedelta(0))
            super().check_open()

    monkeypatch.setattr(operation, "Operation", Overtaking)
    with pytest.raises(NotIndexedError, match=r"no index test_least\(b\) that is"):
        actions.restore(store, [B])
    assert history(store)[-2].state == "failed"


def test_a_writer_that_always_loses_says_who_was_faster(store: Store, data: Numbers, monkeypatch: Any) -> None:
    create(store, data)
    monkeypatch.setattr(operation, "_TURNS", 3)
    monkeypatch.setattr(operation, "_LONGEST_PAUSE", 0)
    check = Operation.check_open

    def overtaking(self: Operation) -> None:
        check(self)
        if self.verb is Verb.DELETE:
            VERBS["refresh full"](store, data)

    monkeypatch.setattr(Operation, "check_open", overtaking)
    with pytest.raises(ConflictError, match=r"3 times in a row another writer .* refresh full"):
        actions.delete(store, [A])


# --- cancelled, dead, dropped -----------------------------------------------------------------------------------------


def test_a_cancelled_operation_does_not_commit(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    cancelled: list[Any] = []
    overtaken(data, lambda: cancelled.extend(actions.cancel(store, data.header())))
    with pytest.raises(ConflictError, match=r"refresh was cancelled by .* \(process"):
        refresh(store, data)
    assert [told["verb"] for told in cancelled] == ["refresh"]
    assert "f3.txt" not in summaries(store)
    assert [row.state for row in history(store)] == ["done", "cancelled", "done"]
    assert actions.cancel(store, data.header()) == []
    refresh(store, data)
    check_complete(store, data)


def test_a_first_create_is_cancelled(store: Store, data: Numbers) -> None:
    overtaken(data, lambda: actions.cancel(store, data.header()))
    with pytest.raises(ConflictError, match="cancelled"):
        create(store, data)
    assert names(store) == []
    create(store, data)
    check_complete(store, data)


@pytest.mark.parametrize("moment", ["before the check", "after the check"])
def test_a_cancel_at_the_last_moment_is_not_overlooked(
    moment: str, store: Store, data: Numbers, monkeypatch: Any
) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    check, done = Operation.check_open, []

    def cancelling(self: Operation) -> None:
        first = self.verb is Verb.REFRESH and not done
        if first:
            done.append(True)
        if first and moment == "before the check":
            actions.cancel(store, data.header())
        check(self)
        if first and moment == "after the check":
            actions.cancel(store, data.header())

    monkeypatch.setattr(Operation, "check_open", cancelling)
    with pytest.raises(ConflictError, match="cancelled"):
        refresh(store, data)
    assert "f3.txt" not in summaries(store)


def test_a_cancel_without_its_own_snapshot_would_be_overlooked(store: Store, data: Numbers, monkeypatch: Any) -> None:
    """The mutant: closing the operation in the log alone leaves a moment in which it commits."""
    create(store, data)
    write(data.folder, "f3", 3)
    check = Operation.check_open

    def cancelling(self: Operation) -> None:
        check(self)
        for name in Log(store, store.identity()).open():
            operation.close(Log(store, store.identity()), name, "cancelled", "called off")

    monkeypatch.setattr(Operation, "check_open", cancelling)
    refresh(store, data)
    assert "f3.txt" in summaries(store)
    assert history(store)[-1].state == "done", "what counts is the snapshot"


def left_open(store: Store, verb: Verb = Verb.REFRESH) -> Operation:
    """An operation that began and of which nothing more is heard."""
    found = Operation(store, verb, {}, None).__enter__()
    found._stop.set()
    return found


def test_an_operation_of_this_machine_is_dead_once_its_process_is_gone(
    store: Store, data: Numbers, monkeypatch: Any
) -> None:
    create(store, data)
    monkeypatch.setattr(log, "_started", lambda process: "another")
    left_open(store)
    monkeypatch.undo()
    crashes.unflushed(monkeypatch.setattr)
    assert history(store)[-1].state == "dead: refreshing"
    write(data.folder, "f3", 3)
    refresh(store, data)
    assert [row.state for row in history(store)] == ["done", "rolled back", "done"]


@pytest.mark.parametrize("away", [-3600, 3600], ids=["an hour ago", "the clock was set back"])
def test_an_operation_elsewhere_is_dead_without_a_heartbeat(
    away: int, store: Store, data: Numbers, monkeypatch: Any
) -> None:
    create(store, data)
    monkeypatch.setattr(log, "_machine", lambda: "another")
    one = left_open(store)
    entry = store.operation(store.operations()[-1])
    monkeypatch.undo()
    crashes.unflushed(monkeypatch.setattr)
    refresh(store, data)
    assert one.id in Log(store, store.identity()).open(), "it has just been heard of"
    seen = {**entry["open"][one.id], "seen": "2001-01-01T00:00:00+00:00" if away < 0 else "2999-01-01T00:00:00+00:00"}
    assert log.is_dead(seen)
    assert not log.is_dead(entry["open"][one.id])


def test_one_that_was_taken_for_dead_and_is_not_is_told(store: Store, data: Numbers, monkeypatch: Any) -> None:
    create(store, data)
    write(data.folder, "f3", 3)

    def bury() -> None:
        monkeypatch.setattr(operation, "is_dead", lambda told: True)
        actions.delete(store, [A])
        monkeypatch.undo()

    overtaken(data, bury)
    with pytest.raises(ConflictError, match=r"taken for dead.*start it again"):
        refresh(store, data)
    assert names(store) == []


def test_a_long_operation_beats(store: Store, data: Numbers, monkeypatch: Any) -> None:
    monkeypatch.setattr(operation, "BEAT", 0.01)
    beaten = threading.Event()
    append = Log.append

    def watched(self: Log, make: Any) -> Any:
        found = append(self, make)
        if found and found["state"] == "creating" and len(store.operations()) > 3:
            beaten.set()
        return found

    monkeypatch.setattr(Log, "append", watched)
    data.while_building = lambda: beaten.wait(30)
    create(store, data)
    entries = [store.operation(n) for n in store.operations()]
    assert [e["state"] for e in entries][:3] == ["creating"] * 3
    (told,) = entries[2]["open"].values()
    assert told["began"] <= told["seen"] == entries[2]["when"]
    assert (len(history(store)), history(store)[0].state) == (1, "done")
    actions.vacuum(store, timedelta(0))
    states = [store.operation(n)["state"] for n in store.operations()]
    assert states.count("creating") == 1, "a vacuum forgets heartbeats"


def test_an_old_writer_cannot_commit_into_a_new_log(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    overtaken(data, store.drop, lambda: create(store, Numbers(data.folder), "b"))
    with pytest.raises(ConflictError, match="overwrite"):
        refresh(store, data)
    assert names(store) == [B]
    assert [row.verb for row in history(store)] == ["create"]


def test_metadata_that_vanish_during_an_operation(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    overtaken(data, store.drop)
    with pytest.raises(ConflictError):
        refresh(store, data)
    assert store.latest() is None
    create(store, data)
    check_complete(store, data)


# --- the log under trouble --------------------------------------------------------------------------------------------


@pytest.fixture
def parquet(data: Numbers) -> ParquetStore:
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    return store


def newest(store: ParquetStore) -> Path:
    return max((Path(store.location) / "_operations").glob("*/*.json"))


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
    build = Build(data)
    first = Work(build, [crashes.entry("a")])(Turn(0, None))
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
    monkeypatch.setattr(operation, "is_dead", lambda told: True)
    actions.delete(parquet, [A])
    assert [row.state for row in history(parquet)] == ["done"] * 3
    assert not Log(parquet, parquet.identity()).open()


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
    committed = parquet._committed  # type: ignore[attr-defined]

    def interrupted(*args: Any) -> Any:
        parquet._committed = committed  # type: ignore[attr-defined]
        write_part = parquet._write_part

        def after(*given: Any) -> Any:
            part = write_part(*given)
            parquet._write_part = write_part  # type: ignore[method-assign]
            actions.vacuum(ParquetStore(data.folder / "_geoskip"), timedelta(0))
            return part

        parquet._write_part = after  # type: ignore[method-assign]
        return committed(*args)

    parquet._committed = interrupted  # type: ignore[method-assign]
    refresh(parquet, data)
    check_complete(parquet, data)
    check_reader(parquet, data)
    actions.vacuum(parquet, timedelta(0))
    check_clean(parquet)


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
    assert len(store.operations()) <= 8
    refresh(store, data)
    assert latest(store).header.files == 3
