"""What the verbs ask of a file system that is far away, where each question is a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoskip.errors import ConflictError
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.verbs import Verb
from geoskip.stores import LocalFolder, ParquetStore
from tests.lifecycle.test_cancelled_operations import left_open
from tests.support.numbered import VERBS, Numbers, check_complete, create, refresh, write
from tests.support.summaries import B, names, overtaken

IDENTITY = "_identity.json"


class Far:
    """A folder that counts what it is asked."""

    def __init__(self, path: Path) -> None:
        self.inner = LocalFolder(path)
        self.location = self.inner.location
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.inner, name)

        def counted(*args: Any) -> Any:
            if name != "local":  # what is read there is copied once
                self.asked[IDENTITY if args[0] == IDENTITY else name] += 1
            return method(*args)

        return counted


@pytest.fixture
def far(data: Numbers) -> Far:
    return Far(data.folder / "_geoskip")


@pytest.mark.parametrize(
    ("verb", "identities", "most"),
    [("create", 5, 22), ("refresh", 5, 21), ("refresh quick", 5, 20), ("delete", 7, 23), ("restore", 7, 24)],
)
def test_a_verb_asks_for_the_log_when_it_begins_and_when_it_has_written(
    verb: str, identities: int, most: int, far: Far, data: Numbers
) -> None:
    store = ParquetStore(far)
    create(store, data, "a", "b")
    if verb == "restore":
        actions.delete(store, [B])
    write(data.folder, "f3", 3)
    far.asked.clear()
    VERBS[verb](store, data)
    assert far.asked[IDENTITY] <= identities
    assert sum(far.asked.values()) <= most, far.asked


def test_a_query_asks_for_the_log_and_a_listing(far: Far, data: Numbers) -> None:
    store = ParquetStore(far)
    create(store, data)
    latest(store)
    far.asked.clear()
    latest(store)
    assert far.asked == {IDENTITY: 2, "names": 1}


def test_a_vacuum_of_a_log_that_was_dropped_leaves_the_new_one_alone(data: Numbers) -> None:
    store, other = (ParquetStore(data.folder / "_geoskip") for _ in range(2))
    create(store, data)
    with store.of_log(store.begin()):
        other.drop()
        create(other, data, "b")
        assert store.sweep(lambda: ()) == 0
        assert store.latest() is None, "this one is of the old log until it ends"
    assert store.latest() == 1
    assert names(other) == [B]
    check_complete(other, data)


def test_a_heartbeat_of_a_log_that_was_dropped_makes_nothing(data: Numbers) -> None:
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    operation = left_open(store, Verb.REFRESH)
    store.drop()
    with store.of_log(operation.log.identity), pytest.raises(ConflictError, match="dropped meanwhile"):
        operation.log.append(lambda open: operation._entry("refreshing"))
    assert list((data.folder / "_geoskip").iterdir()) == []


def test_a_writer_whose_log_was_dropped_reads_nothing_anew(data: Numbers) -> None:
    store = ParquetStore(data.folder / "_geoskip")
    create(store, data)
    write(data.folder, "f3", 3)
    overtaken(data, store.drop)
    data.builds.clear()
    with pytest.raises(ConflictError, match="dropped"):
        refresh(store, data)
    assert data.builds == [["f3.txt"]]
