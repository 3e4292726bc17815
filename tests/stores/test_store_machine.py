"""A store driven beside the memory store by the same random steps: they answer alike, and so do other handles.

Steps are those of writers that are up to date, of writers that come late, and of writers of a log that was dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from geoskip.errors import GeoskipError
from geoskip.metadata import Header
from geoskip.stores import ElasticsearchStore, MemoryStore, ParquetStore, Store
from tests.stores.test_store_elasticsearch import QUICK
from tests.support.storing import HEADER, entry, table

NUMBERS = st.integers(0, 4)
VALUES = st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3)


class Beside(RuleBasedStateMachine):
    """Two stores; ``reopen`` makes a handle of the one that is tested."""

    reopen: Callable[[], Store]

    def __init__(self) -> None:
        super().__init__()
        self.stores: tuple[Store, Store] = (self.reopen(), MemoryStore())
        self.stores[0].drop()
        self.logs: list[tuple[str, str]] = []
        """The identities of all logs so far: the stores make their own."""
        self.headers: list[tuple[Header, Header]] = []
        self.names = itertools.count()

    def both(self, act: Callable[[Store, int], Any]) -> tuple[Any, Any]:
        """What both did; the errors must be of one kind."""
        done: list[Any] = []
        for number, store in enumerate(self.stores):
            try:
                done.append(act(store, number))
            except GeoskipError as error:
                done.append(type(error))
        failed = [answer if isinstance(answer, type) else None for answer in done]
        assert failed[0] == failed[1], done
        return done[0], done[1]

    def files(self, values: list[int | None]) -> pa.Table:
        return table({f"f{next(self.names)}": value for value in values})

    def made(self, found: tuple[Any, Any]) -> None:
        if isinstance(found[0], Header):
            self.headers.append(found)
            self.logs.append((found[0].identity, found[1].identity))

    @rule()
    def begin(self) -> None:
        self.logs.append(self.both(lambda store, _: store.begin()))

    @rule(values=VALUES)
    def commit_first(self, values: list[int | None]) -> None:
        files = self.files(values)
        self.made(self.both(lambda store, _: store.commit(HEADER, files, expected=None)))

    @precondition(lambda self: self.headers)
    @rule(values=VALUES, late=st.sampled_from([1, 1, 1, 2, 3]))
    def commit(self, values: list[int | None], late: int) -> None:
        files, found = self.files(values), self.headers[-min(late, len(self.headers))]
        self.made(self.both(lambda store, at: store.commit(found[at], files, expected=found[at].number)))

    @precondition(lambda self: self.headers)
    @rule(values=VALUES, gone=st.sets(NUMBERS), late=st.sampled_from([1, 1, 1, 1, 2]))
    def amend(self, values: list[int | None], gone: set[int], late: int) -> None:
        files, found = self.files(values), self.headers[-min(late, len(self.headers))]

        def act(store: Store, at: int) -> Header:
            removed = pa.array([row in gone for row in range(found[at].files)], pa.bool_())
            return store.amend(found[at], removed, files, expected=found[at].number)

        self.made(self.both(act))

    @precondition(lambda self: self.headers)
    @rule(values=VALUES)
    def add_an_index(self, values: list[int | None]) -> None:
        files, found = self.files(values), self.headers[-1]
        both = (entry(), entry("b"))

        def act(store: Store, at: int) -> Header:
            removed = pa.array([False] * found[at].files, pa.bool_())
            return store.amend(replace(found[at], entries=both), removed, files, expected=found[at].number)

        self.made(self.both(act))

    @precondition(lambda self: self.logs)
    @rule(number=NUMBERS, late=st.sampled_from([1, 1, 2]))
    def record(self, number: int, late: int) -> None:
        identities = self.logs[-min(late, len(self.logs))]
        self.both(lambda store, at: store.record(number + 1, {"n": number}, identity=identities[at]))

    @rule(snapshots=st.sets(NUMBERS), operations=st.sets(NUMBERS))
    def forget(self, snapshots: set[int], operations: set[int]) -> None:
        self.both(lambda store, _: store.forget(snapshots=snapshots, operations=operations))

    @rule()
    def sweep(self) -> None:
        for store in self.stores:  # how much there is to sweep is each one's own
            store.sweep(tuple)

    @precondition(lambda self: len(self.headers) > 2)
    @rule()
    def drop(self) -> None:
        self.both(lambda store, _: store.drop())

    @rule()
    def reopened(self) -> None:
        self.stores = (self.reopen(), self.stores[1])

    @invariant()
    def alike(self) -> None:
        one, other = self.stores
        assert (one.latest(), one.snapshots(), one.operations()) == (
            other.latest(),
            other.snapshots(),
            other.operations(),
        )
        assert (one.identity() is None) is (other.identity() is None)
        for number in one.operations():
            assert one.operation(number) == other.operation(number)
        for number in one.snapshots()[-2:]:
            found, wanted = one.load(number), other.load(number)
            assert found.files.table().equals(wanted.files.table())
            assert (found.header.files, found.header.entries) == (wanted.header.files, wanted.header.entries)


def drive(reopen: Callable[[], Store], examples: int, steps: int, *, always: bool = False) -> None:
    machine = type("Machine", (Beside,), {"reopen": staticmethod(reopen)})
    some = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # shrinking takes long, and a failure's steps are few
        derandomize=always,
    )
    run_state_machine_as_test(machine, settings=some)


def test_the_parquet_store_does_what_the_memory_store_does(tmp_path: Path) -> None:
    drive(lambda: ParquetStore(tmp_path / "_geoskip"), 12, 20)


@pytest.mark.slow
def test_the_search_store_does_what_the_memory_store_does(search_server: Any) -> None:
    drive(lambda: ElasticsearchStore(search_server.url, "machine", settings=QUICK, timeout=20), 2, 20)


def test_a_store_that_forgets_a_removal_is_noticed(tmp_path: Path) -> None:
    class Forgetful(MemoryStore):
        def amend(self, header: Header, removed: pa.Array, added: pa.Table, *, expected: int) -> Header:
            return super().amend(header, pa.array([False] * len(removed), pa.bool_()), added, expected=expected)

    only = Forgetful()
    with pytest.raises(AssertionError, match="equals"):
        drive(lambda: only, 100, 20, always=True)
