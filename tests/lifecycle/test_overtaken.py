"""Verbs that find, when they commit, that another was faster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from geoskip.errors import ConflictError
from geoskip.lifecycle import actions, operation
from geoskip.lifecycle.data import Build, Work, left_over
from geoskip.lifecycle.history import history
from geoskip.lifecycle.operation import Operation, Turn, latest
from geoskip.lifecycle.verbs import Verb
from geoskip.stores import MemoryStore, Store
from tests.crashes import VERBS, Numbers, check_complete, check_reader, create, rebuild, refresh, write
from tests.lifecycle.asking import A, B, C, names, overtaken, summaries


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
    with pytest.raises(ConflictError, match=r"came after vacuum .* by .*: there is no index test_least\(b\) that is"):
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
