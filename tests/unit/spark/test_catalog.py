"""What a driver remembers of the datasets it knows, and how often queries ask which snapshot is the latest."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from geoskip.errors import MetadataError
from geoskip.metadata import Header
from geoskip.spark.catalog import DatasetCatalog, key_of
from geoskip.stores import MemoryStore

ROOT = "far:/data"
FILES = pa.table({"path": ["x"], "size": [1], "mtime": [1]})


def test_older_snapshots_of_a_dataset_are_forgotten() -> None:
    known, store = DatasetCatalog(), MemoryStore()
    known.register("file:/data", store)
    header = Header(root="file:/data", source={}, entries=())
    table = pa.table({"path": ["a"], "size": [1], "mtime": [1], "etag": [None], "rows": [1]})
    keys = []
    for number in range(4):
        header = store.commit(header, table, expected=number or None)
        snapshot = known.snapshot("file:/data")
        assert snapshot is not None
        keys.append(key_of(snapshot))
    assert [known.by_key(key) is not None for key in keys] == [False, False, True, True]
    assert known.snapshot("file:/data") is known.by_key(keys[-1])


class Far(MemoryStore):
    """A store that is asked by requests; it counts them."""

    distant = True

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.header = self.commit(Header(root=ROOT, source={}), FILES, expected=None)

    def latest(self) -> int | None:
        self.asked += 1
        return super().latest()

    def go_on(self) -> None:
        """Another snapshot; nothing of it counts as a question."""
        asked = self.asked
        self.header = self.commit(replace(self.header), FILES, expected=self.header.number)
        self.asked = asked


@pytest.fixture
def store() -> Far:
    found = Far()
    found.asked = 0
    return found


@pytest.fixture
def known(store: Far) -> DatasetCatalog:
    found = DatasetCatalog()
    found.register(ROOT, store)
    return found


def number(known: DatasetCatalog, age: float) -> int:
    snapshot = known.snapshot(ROOT, age=age)
    assert snapshot is not None
    return snapshot.header.number


def test_queries_that_follow_one_another_ask_once(known: DatasetCatalog, store: Far) -> None:
    assert [number(known, 60.0) for _ in range(3)] == [1, 1, 1]
    assert store.asked == 1


def test_what_another_driver_makes_shows_when_the_time_is_over(known: DatasetCatalog, store: Far) -> None:
    assert number(known, 60.0) == 1
    store.go_on()
    assert number(known, 60.0) == 1
    assert number(known, 0.0) == 2
    assert number(known, 60.0) == 2


def test_what_this_driver_makes_shows_at_once(known: DatasetCatalog, store: Far) -> None:
    assert number(known, 60.0) == 1
    store.go_on()
    known.renew(ROOT)
    assert number(known, 60.0) == 2


def test_an_answer_from_before_this_drivers_verb_is_not_remembered(known: DatasetCatalog, store: Far) -> None:
    """A query asks, a verb commits and says so, and only then the query has its answer."""
    load = store.load

    def meanwhile(snapshot: int) -> object:
        found = load(snapshot)
        store.load = load  # type: ignore[method-assign]
        store.go_on()
        known.renew(ROOT)
        return found

    store.load = meanwhile  # type: ignore[assignment,method-assign]
    assert number(known, 60.0) == 1
    assert number(known, 60.0) == 2


def test_another_store_for_the_dataset_is_asked(known: DatasetCatalog) -> None:
    assert number(known, 60.0) == 1
    other = Far()
    other.go_on()
    known.register(ROOT, other)
    assert number(known, 60.0) == 2


def test_stores_at_hand_and_those_without_metadata_are_always_asked(known: DatasetCatalog, store: Far) -> None:
    store.distant = False
    assert [number(known, 60.0) for _ in range(3)] == [1, 1, 1]
    assert store.asked == 3
    store.distant = True
    store.drop()
    for _ in range(2):
        with pytest.raises(MetadataError):
            known.snapshot(ROOT, age=60.0)
    assert store.asked >= 5
