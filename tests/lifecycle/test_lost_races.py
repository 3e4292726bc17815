"""Verbs that find, when they commit, that another was faster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from geoskip.errors import ConflictError
from geoskip.lifecycle import actions, transaction
from geoskip.lifecycle.log import Log, RaceLosses, history, latest, now, who
from geoskip.lifecycle.refresh import RefreshPlan, files_without_metadata
from geoskip.lifecycle.transaction import Amend, CommitAttempt, NoChange, Operation, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.stores import MemoryStore, Store
from tests.support.numbered import Numbers, check_complete, check_reader, create, rebuild, refresh, write
from tests.support.summaries import A, B, C, names, overtaken, summaries


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


def test_what_was_read_in_vain_is_told(store: Store, data: Numbers) -> None:
    create(store, data)
    write(data.folder, "f3", 3)
    overtaken(data, lambda: refresh(store, Numbers(data.folder)))
    refresh(store, data)
    first, second = history(store)[-2:]
    told = {(row.message, row.files_read, row.files_added, row.files_kept, row.bytes) for row in (first, second)}
    assert told == {("", 1, 1, 3, (data.folder / "f3.txt").stat().st_size), ("nothing to do", 1, 0, 4, 0)}


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


def test_a_create_overtaken_by_one_that_reads_in_another_way_is_refused(store: Store, data: Numbers) -> None:
    """Else its header would say of the other's summaries that they were read as here."""
    other = Numbers(data.folder)
    header = replace(other.header(), source={"options": {"sep": ";"}})
    other.header = lambda: header  # type: ignore[method-assign]
    overtaken(data, lambda: create(store, other, "b"))
    with pytest.raises(ConflictError, match="made there with options"):
        create(store, data)
    assert names(store) == [B]


def test_a_row_that_lacks_another_writers_index_is_left_out_once_reading_must_end(data: Numbers) -> None:
    store = MemoryStore()
    create(store, data, "a")
    write(data.folder, "f3", 3)
    work = RefreshPlan(data)
    work(CommitAttempt(0, latest(store)))
    (data.folder / "f3.txt").rename(data.folder / "f3.hidden")
    create(store, Numbers(data.folder), "b")
    (data.folder / "f3.hidden").rename(data.folder / "f3.txt")
    assert isinstance(work(CommitAttempt(3, latest(store))), NoChange), "what is known of f3 lacks b"
    assert set(files_without_metadata(latest(store), data)) - work.build.tried


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

    monkeypatch.setattr(transaction, "Operation", Overtaking)
    with pytest.raises(ConflictError, match=r"came after vacuum .* by .*: there is no index test_least\(b\) that is"):
        actions.restore(store, [B])
    assert history(store)[-2].state == "failed"


@pytest.fixture
def overtaking(store: Store, data: Numbers, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets a delete lose so many races, against another that never pauses."""

    def arrange(times: int) -> None:
        check, left = Operation.check_open, [times]
        monkeypatch.setattr(RaceLosses, "pause", lambda losses: None)

        def late(self: Operation) -> None:
            check(self)
            if self.verb is Verb.DELETE and left[0]:
                left[0] -= 1
                snapshot = latest(store)
                other = replace(snapshot.header, operation={"id": "f" * 32, "verb": "refresh", "user": "eve"})
                store.amend(other, pa.array([False] * 3), pa.table({}), expected=snapshot.header.number)

        monkeypatch.setattr(Operation, "check_open", late)

    return arrange


@pytest.mark.slow
def test_a_writer_that_lost_however_often_commits(
    store: Store, data: Numbers, overtaking: Callable[[int], None]
) -> None:
    create(store, data, "a", "b")
    overtaking(250)
    assert actions.delete(store, [A]) == (A,)
    assert names(store) == [B]


def test_a_writer_that_loses_for_too_long_says_who_was_faster(
    store: Store, data: Numbers, overtaking: Callable[[int], None]
) -> None:
    create(store, data)
    store.tries_for = 0.0
    overtaking(10**6)
    with pytest.raises(
        ConflictError, match=r"10 times in a row, for \d+ s, another writer .* refresh ffffffffffff by eve"
    ):
        actions.delete(store, [A])
    assert names(store) == [A]


def test_eight_writers_all_commit(store: Store, data: Numbers) -> None:
    create(store, data, "a", "b")
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def commit_three_times() -> None:
        together.wait(60)
        try:
            for _ in range(3):
                perform(store, Verb.ROTATE, lambda turn: Amend.same_files(turn.snapshot))
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=commit_three_times) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert not failures
    assert store.latest() == 1 + 8 * 3
    check_complete(store, data)


def test_a_log_with_tickets_of_earlier_versions_is_read_and_continued(store: Store, data: Numbers) -> None:
    """Writers that had lost three races once added ``waits``, and with it a ``ticket`` in ``open``."""
    create(store, data, "a", "b")
    number = store.operations()[-1] + 1
    waiting = {"verb": "refresh", "who": who(), "base": 1}
    entry = {"format": 1, "operation": "f" * 32, "state": "refreshing", "when": now(), "waits": 0.25, **waiting}
    open = {"entry": number, "state": "refreshing", "began": now(), "seen": now(), "ticket": number, "turn": 0.25}
    entry |= {"number": number, "open": {"f" * 32: {**open, **waiting}}}
    store.record(number, entry, identity=store.identity())
    assert [row.state for row in history(store)] == ["done", "running: refreshing"]
    assert actions.delete(store, [A]) == (A,)
    assert names(store) == [B]
    assert Log(store, store.identity()).open().keys() == {"f" * 32}
    (cancelled,) = actions.cancel(store, data.header())
    assert cancelled["operation"] == "f" * 32
    assert [row.state for row in history(store)] == ["done", "cancelled", "done", "done"]
