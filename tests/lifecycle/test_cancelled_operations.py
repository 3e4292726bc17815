"""Operations that are cancelled, dead, or whose log was dropped."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from geoskip.errors import ConflictError
from geoskip.lifecycle import actions, log, transaction
from geoskip.lifecycle.log import Log, history
from geoskip.lifecycle.transaction import Operation
from geoskip.lifecycle.verbs import Verb
from geoskip.stores import Store
from tests.support.numbered import Numbers, check_complete, create, refresh, write
from tests.support.summaries import A, B, names, overtaken, summaries


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
            transaction.close(Log(store, store.identity()), name, "cancelled", "called off")

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
    monkeypatch.setattr(log, "_start_time", lambda process: "another")
    left_open(store)
    monkeypatch.undo()
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
    refresh(store, data)
    assert one.id in Log(store, store.identity()).open(), "it has just been heard of"
    seen = {**entry["open"][one.id], "seen": "2001-01-01T00:00:00+00:00" if away < 0 else "2999-01-01T00:00:00+00:00"}
    assert log.is_dead(seen)
    assert not log.is_dead(entry["open"][one.id])


def test_one_that_was_taken_for_dead_and_is_not_is_told(store: Store, data: Numbers, monkeypatch: Any) -> None:
    create(store, data)
    write(data.folder, "f3", 3)

    def bury() -> None:
        monkeypatch.setattr(transaction, "is_dead", lambda told: True)
        actions.delete(store, [A])
        monkeypatch.undo()

    overtaken(data, bury)
    with pytest.raises(ConflictError, match=r"taken for dead.*start it again"):
        refresh(store, data)
    assert names(store) == []


def test_a_long_operation_beats(store: Store, data: Numbers, monkeypatch: Any) -> None:
    monkeypatch.setattr(transaction, "BEAT", 0.01)
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
    monkeypatch.setattr(actions, "LEASE", 0)
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
