"""The verbs without an engine, each alone."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import InvalidSpecificationError, MetadataError, NotIndexedError
from geoskip.indexes import base
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import BuiltSummaries, RefreshPlan
from geoskip.lifecycle.transaction import CommitAttempt, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.stores import MemoryStore, ParquetStore, Store
from tests.support.numbered import VERBS, Numbers, check_complete, create, rebuild, refresh, write
from tests.support.storing import entry
from tests.support.summaries import A, B, names, summaries


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
    row = history(store)[-1]
    assert (row.files_read, row.files_added, row.files_removed, row.files_kept) == (4, 1, 0, 3)


def test_new_files_have_no_summary_of_an_index_that_would_be_built_otherwise_now(
    store: Store, data: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, data, "a")
    write(data.folder, "f3", 3)
    monkeypatch.setattr(data, "changed_indexes", lambda entries: {e.name: "zone" for e in entries if e.name == A})
    refresh(store, data)
    assert summaries(store).keys() == {"f0.txt", "f1.txt", "f2.txt"}
    create(store, data, "b")
    assert summaries(store) == {"f0.txt": 0, "f1.txt": 1, "f2.txt": 2, "f3.txt": None}
    assert summaries(store, B) == {"f0.txt": 0, "f1.txt": 1, "f2.txt": 2, "f3.txt": 3}


def test_summaries_serve_for_the_meaning_that_they_were_built_with(data: Numbers) -> None:
    built, keys, one = BuiltSummaries(data), data.listing().files(), entry("a")
    built.add([one], keys)
    other = replace(one, depends={"zone": "Europe/Rome"})
    assert len(built.complete(keys, [one])) == 3
    assert (built.complete(keys, [other]), built.complete(keys, [one, entry("b")])) == ([], [])
    built.add([entry("b")], keys)
    assert all(row.summaries.keys() == {A, B} for row in built.complete(keys, [one, entry("b")]))


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
    work = RefreshPlan(data, quick=True)
    assert work.is_needed(latest(store))
    perform(store, Verb.QUICK, work)
    assert data.builds == []
    assert summaries(store) == {"f2.txt": 2}
    pending = latest(store).header.pending
    assert (pending["files"], pending["bytes"], pending["first"]) == (2, 3, ["f1.txt", "f3.txt"])
    assert not work.is_needed(latest(store)), "it was said already"
    assert RefreshPlan(data).is_needed(latest(store)), "and the index is stale as before"
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
    assert not RefreshPlan(data).is_needed(latest(store))


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
    def attempt(turn: CommitAttempt) -> None:
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


def test_an_index_of_a_kind_that_is_unknown_here_is_not_lost(
    data: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "_geoskip"
    create(ParquetStore(folder), data, "a")
    write(data.folder, "f3", 3)
    refresh(ParquetStore(folder), data)
    expected = {"f2.txt": 2, "f3.txt": 3}
    with monkeypatch.context() as patch:
        patch.setattr(base, "_kinds", {name: kind for name, kind in base.index_kinds().items() if name != "test_least"})
        elsewhere = ParquetStore(folder)
        for verb in (actions.optimize, lambda store: create(store, data, "b")):
            with pytest.raises(MetadataError, match=r"would be lost .*import the module that defines it"):
                verb(elsewhere)
        for name in ("f0.txt", "f1.txt"):  # more rows are removed from the first part than are left
            (data.folder / name).unlink()
        refresh(elsewhere, data)
    assert summaries(ParquetStore(folder)) == expected
