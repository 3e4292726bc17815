"""Writers that are killed at every step, and writers that race: what readers and the next writer find.

``GEOSKIP_CRASHES`` and ``GEOSKIP_RACE`` (seconds) make more of it: ``make soak`` does.
"""

from __future__ import annotations

import os
import random
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from geoskip.lifecycle import actions
from geoskip.lifecycle.log import Log, history, latest
from geoskip.stores import ParquetStore
from tests.support import crashes
from tests.support.crashes import deaths, dies_at, opened
from tests.support.numbered import (
    VERBS,
    Numbers,
    check_chain,
    check_clean,
    check_complete,
    check_reader,
    create,
    refresh,
    write,
)

CRASHES = int(os.environ.get("GEOSKIP_CRASHES", "0"))
RACE = float(os.environ.get("GEOSKIP_RACE", "0"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with an index in use, a deleted one, several parts, and changes that no refresh has seen."""
    return changing(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with keys."""
    return changing(tmp_path_factory.mktemp("protected"), "protected")


def changing(base: Path, *marks: str) -> Path:
    place = base / "data"
    place.mkdir()
    for mark in marks:
        (place / mark).touch()
    data, store = Numbers(place), opened(place)
    for number in range(5):
        write(place, f"f{number}", number)
    create(store, data, "a", "b", "d")
    write(place, "f5", 5)
    refresh(store, data)
    actions.delete(store, ["test_least(b)"])
    write(place, "f1", 100)
    write(place, "f6", 6)
    (place / "f2.txt").unlink()
    return place


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_crash_at_any_step(verb: str, template: Path, protected: Path, tmp_path: Path) -> None:
    original, steps = protected if verb == "rotate keys" else template, 0
    before = opened(original).latest()
    for place in deaths(verb, lambda step: shutil.copytree(original, tmp_path / f"{step}")):
        data, store = Numbers(place), opened(place)
        steps += 1
        check_reader(store, data)
        assert store.latest() in (before, before + 1)
        refresh(store, data)
        check_reader(store, data)
        check_complete(store, data)
        assert not Log(store, store.identity()).open(), "the next writer closes what the dead one began"
        assert not [row.state for row in history(store) if ":" in row.state]
        actions.vacuum(store, timedelta(0))
        check_clean(store)
        check_complete(store, data)
        shutil.rmtree(place)
    assert steps > 5 or verb == "cancel"


def test_a_crash_in_a_first_create(tmp_path: Path) -> None:
    def prepared(step: int) -> Path:
        place = tmp_path / f"{step}"
        place.mkdir()
        write(place, "f", 1)
        return place

    steps = 0
    for place in deaths("create", prepared):
        data, store = Numbers(place), ParquetStore(place / "_geoskip")
        steps += 1
        check_reader(store, data)
        create(store, data)
        check_complete(store, data)
        actions.vacuum(store, timedelta(0))
        check_clean(store)
    assert steps > 7


def test_a_crash_while_a_dead_operation_is_called_off(template: Path, tmp_path: Path) -> None:
    died = tmp_path / "died"
    shutil.copytree(template, died)
    assert dies_at("refresh", died, 4), "its entry is there, and its part"
    steps = 0
    for place in deaths("cancel", lambda step: shutil.copytree(died, tmp_path / f"{step}")):
        data, store = Numbers(place), ParquetStore(place / "_geoskip")
        steps += 1
        check_reader(store, data)
        actions.cancel(store, data.header())
        assert {row.state for row in history(store) if row.verb != "cancel"} <= {"done", "cancelled", "rolled back"}
        refresh(store, data)
        check_complete(store, data)
        actions.vacuum(store, timedelta(0))
        check_clean(store)
    assert steps > 5


@pytest.mark.skipif(not CRASHES, reason="make soak has them")
def test_crashes_at_random_moments(template: Path, protected: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for turn in range(CRASHES):
        place = tmp_path / f"{turn}"
        verb = rng.choice(list(VERBS))
        shutil.copytree(protected if verb == "rotate keys" or rng.random() < 0.2 else template, place)
        data, store = Numbers(place), opened(place)
        crashes.dies_after(verb, place, rng.random() * 0.1)
        check_reader(store, data)
        refresh(store, data)
        check_complete(store, data)
        actions.vacuum(store, timedelta(0))
        check_clean(store)
        shutil.rmtree(place)


@pytest.mark.slow
def test_writers_and_readers_at_once(template: Path, tmp_path: Path) -> None:
    place = tmp_path / "data"
    shutil.copytree(template, place)
    data, store = Numbers(place), ParquetStore(place / "_geoskip")
    seed = random.randrange(1 << 30) if RACE else 7
    print(f"seed {seed}")
    failures = crashes.race(
        place,
        writers=8 if RACE else 3,
        readers=4 if RACE else 1,
        turns=10**6 if RACE else 15,
        seconds=RACE or 60,
        seed=seed,
    )
    assert not failures
    check_chain(store)
    check_reader(store, data)
    if not latest(store).header.entries:
        create(store, data)
    refresh(store, data)
    check_complete(store, data)
    actions.vacuum(store, timedelta(0))
    check_clean(store)
    check_complete(store, data)
