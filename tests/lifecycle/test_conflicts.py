"""The table of verbs that meet: each pair of them, with the other one faster, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import ConflictError
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import history, latest
from geoskip.lifecycle.refresh import RefreshPlan
from geoskip.lifecycle.transaction import Operation, perform
from geoskip.lifecycle.verbs import CONTRADICTING, Verb
from geoskip.metadata import Header
from geoskip.stores import MemoryStore, ParquetStore, Store
from tests.support.crashes import opened
from tests.support.numbered import VERBS, Numbers, check_complete, check_reader, create, rebuild, refresh, write
from tests.support.storing import entry
from tests.support.summaries import A, B, C, names

TRIED = {verb: Verb(verb) for verb in VERBS}


def test_every_verb_is_tried() -> None:
    assert len({verb.doing for verb in Verb}) == len(Verb)
    assert {*TRIED.values(), Verb.REPAIR} == set(Verb)


@pytest.fixture
def before_it_commits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets others go first, once, when a verb is about to commit."""
    check = Operation.check_open

    def arrange(verb: Verb, *others: Callable[[], Any]) -> None:
        waiting = [others]

        def overtaken(self: Operation) -> None:
            check(self)
            if self.verb is verb and waiting:
                for other in waiting.pop():
                    other()

        monkeypatch.setattr(Operation, "check_open", overtaken)

    return arrange


def changing(place: Path, store: Store) -> Numbers:
    """An index in use, one deleted, several parts, and changes that no refresh has seen."""
    place.mkdir(exist_ok=True)
    data = Numbers(place)
    write(place, "f0", 0)
    write(place, "f1", 1)
    create(store, data, "a", "b", "d")
    write(place, "f2", 2)
    refresh(store, data)
    actions.delete(store, [B])
    write(place, "f1", 100)
    write(place, "f3", 3)
    return data


def suiting(verbs: set[str], place: Path) -> Store:
    """A store on which these verbs have something to do: keys to rotate, parts to optimize."""
    place.mkdir(exist_ok=True)
    if "rotate keys" in verbs:
        (place / "protected").touch()
    return opened(place) if verbs & {"rotate keys", "optimize"} else MemoryStore()


REFUSED = {("delete", "delete"), ("restore", "restore"), ("restore", "vacuum")}
"""Of the pairs as :data:`VERBS` has them: those that work on one index, and contradict each other there."""


@pytest.mark.slow
@pytest.mark.parametrize("mine", VERBS)
def test_a_verb_after_each_other_one_goes_on_or_says_who_was_faster(
    mine: str, tmp_path: Path, before_it_commits: Callable[..., None]
) -> None:
    for number, theirs in enumerate(VERBS):
        place = tmp_path / f"{number}"
        store = suiting({mine, theirs}, place)
        data = changing(place, store)
        other = Numbers(place)
        if "cancel" in (mine, theirs):  # it needs something to call off
            left_open(store)
        before_it_commits(TRIED[mine], lambda theirs=theirs, store=store, other=other: VERBS[theirs](store, other))
        conflict = conflict_of(lambda store=store, data=data: VERBS[mine](store, data))
        if (mine, theirs) in REFUSED:
            assert (TRIED[mine], TRIED[theirs]) in CONTRADICTING
            faster = [row for row in history(store) if row.verb == theirs and row.state == "done"][-1]
            assert f"this {mine} came after {theirs} {faster.operation[:12]} by {faster.who}, which made" in conflict
        else:
            assert (" was cancelled by " in conflict) if theirs == "cancel" else not conflict
        check_reader(store, data)
        refresh(store, data)
        check_reader(store, data)
        check_complete(store, data)


def conflict_of(verb: Callable[[], Any]) -> str:
    """What a verb says that is refused; empty for one that is not."""
    try:
        verb()
    except ConflictError as error:
        return str(error)
    return ""


def left_open(store: Store) -> None:
    one = Operation(store, Verb.QUICK, {}, None).__enter__()
    one._stop.set()


def in_zone(column: str, zone: str) -> Any:
    return replace(entry(column), depends={"zone": zone})


def created(store: Store, data: Numbers, column: str, zone: str) -> Header | None:
    return perform(store, Verb.CREATE, RefreshPlan(data, [in_zone(column, zone)]))


def rebuilt(store: Store, data: Numbers, zone: str) -> Header | None:
    every = latest(store).header.entries
    return perform(store, Verb.FULL, RefreshPlan(data, [in_zone(e.index.column, zone) for e in every], renew=True))


Doing = Callable[[Store, Numbers], Any]
CONTRADICTIONS: dict[tuple[str, str], tuple[Doing, Doing, str]] = {
    ("create", "create"): (
        lambda store, data: created(store, data, "c", "UTC"),
        lambda store, data: created(store, data, "c", "Asia/Tokyo"),
        "zone=UTC here, Asia/Tokyo there",
    ),
    ("create", "refresh full"): (
        lambda store, data: created(store, data, "a", "Europe/Paris"),
        lambda store, data: rebuilt(store, data, "Asia/Tokyo"),
        "zone=Europe/Paris here, Asia/Tokyo there",
    ),
    ("create", "restore"): (
        lambda store, data: created(store, data, "b", "Europe/Paris"),
        lambda store, data: actions.restore(store, [B]),
        "zone=Europe/Paris here, UTC there",
    ),
    ("refresh full", "create"): (
        lambda store, data: rebuild(store, data),
        lambda store, data: created(store, data, "a", "Asia/Tokyo"),
        "zone=UTC here, Asia/Tokyo there",
    ),
    ("refresh full", "refresh full"): (
        lambda store, data: rebuilt(store, data, "Europe/Paris"),
        lambda store, data: rebuilt(store, data, "Asia/Tokyo"),
        "zone=Europe/Paris here, Asia/Tokyo there",
    ),
    **{
        (verb, "delete"): (doing, lambda store, data: actions.delete(store), "no index is in use any more")
        for verb, doing in {
            **{verb: VERBS[verb] for verb in ("refresh", "refresh full", "refresh quick")},
            "repair": lambda store, data: perform(store, Verb.REPAIR, RefreshPlan(data)),
        }.items()
    },
    ("delete", "create"): (
        lambda store, data: actions.delete(store, [A]),
        lambda store, data: create(store, data, "a"),
        "was built meanwhile",
    ),
    ("delete", "delete"): (
        lambda store, data: actions.delete(store, [A]),
        lambda store, data: actions.delete(store),
        "is deleted already",
    ),
    ("restore", "create"): (
        lambda store, data: actions.restore(store, [B]),
        lambda store, data: create(store, data, "b"),
        "is in use already",
    ),
}


@pytest.mark.parametrize(("mine", "theirs"), CONTRADICTIONS, ids=" after ".join)
def test_what_contradicts_another_is_refused_and_names_it(
    mine: str, theirs: str, tmp_path: Path, before_it_commits: Callable[..., None]
) -> None:
    store = MemoryStore()
    data = changing(tmp_path, store)
    first, second, why = CONTRADICTIONS[mine, theirs]
    assert (Verb(mine), Verb(theirs)) in CONTRADICTING
    before_it_commits(Verb(mine), lambda: second(store, Numbers(tmp_path)))
    with pytest.raises(ConflictError, match=rf"came after {theirs} [0-9a-f]{{12}} by .* \(process.*{re.escape(why)}"):
        first(store, data)
    snapshot = latest(store)
    assert snapshot.header.operation["verb"] == theirs, "what the other did stays"
    assert [row.state for row in history(store)[-2:]] == ["failed", "done"]


def test_a_pair_is_refused_as_the_table_says_or_not_at_all() -> None:
    """The rest of the table is through Spark: a repair of what is unreadable, and a repair that others meet."""
    refused = {(str(mine), str(theirs)) for mine, theirs in CONTRADICTING}
    shown = {*CONTRADICTIONS, *REFUSED, ("optimize", "vacuum")}
    through_spark = {*product(["repair"], map(str, Verb)), ("create", "repair"), ("refresh full", "repair")}
    assert refused == shown | through_spark


def test_equal_builds_are_no_contradiction(tmp_path: Path, before_it_commits: Callable[..., None]) -> None:
    store = MemoryStore()
    data = changing(tmp_path, store)
    before_it_commits(Verb.CREATE, lambda: create(store, Numbers(tmp_path), "c"))
    create(store, data, "c")
    assert names(store) == [A, "test_least(d)", C]
    check_complete(store, data)


def test_to_delete_everything_spares_what_another_creates_in_that_moment(
    tmp_path: Path, before_it_commits: Callable[..., None]
) -> None:
    store = MemoryStore()
    changing(tmp_path, store)
    before_it_commits(Verb.DELETE, lambda: create(store, Numbers(tmp_path), "c"))
    with pytest.raises(ConflictError, match=r"test_least\(c\) was built meanwhile"):
        actions.delete(store)
    assert C in names(store)
    actions.delete(store)
    assert names(store) == []


def test_a_vacuum_leaves_what_was_deleted_after_it_began(
    tmp_path: Path, before_it_commits: Callable[..., None]
) -> None:
    store = MemoryStore()
    changing(tmp_path, store)
    before_it_commits(Verb.VACUUM, lambda: actions.delete(store, [A]))
    assert actions.vacuum(store, timedelta(0)).indexes == (B,)
    assert actions.restore(store) == (A,)


def test_to_optimize_what_is_gone_names_the_vacuum(tmp_path: Path, before_it_commits: Callable[..., None]) -> None:
    store = ParquetStore(tmp_path / "_geoskip")
    changing(tmp_path, store)
    actions.delete(store)
    before_it_commits(Verb.OPTIMIZE, lambda: actions.vacuum(store, timedelta(0)))
    with pytest.raises(ConflictError, match=r"this optimize came after vacuum [0-9a-f]{12} by .*has no index yet"):
        actions.optimize(store)
