"""The memory that queries' metadata take: never more than the budget, the least recently used goes, nothing is lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from geoskip.indexes.minmax import MinMax
from geoskip.metadata import BUDGET, FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.metadata.file_table import Cache, MemoryBudget, size_of
from geoskip.planner import decide
from geoskip.predicates import And, Column, Comparison, Literal
from geoskip.stores import ParquetStore


@pytest.fixture
def small() -> Iterator[int]:
    """The process's budget, with room for a few thousand numbers."""
    before, BUDGET.limit = BUDGET.limit, 40_000
    yield BUDGET.limit
    BUDGET.limit = before


def test_what_was_used_least_recently_goes():
    budget = MemoryBudget(3000)
    one, other = Cache(budget), Cache(budget)
    one.put("a", np.zeros(125))
    other.put("a", np.zeros(125))
    one.put("b", np.zeros(125))
    assert one.get("a", None) is not None
    other.put("b", np.zeros(125))
    assert ("a" in one, "a" in other, "b" in one, "b" in other) == (True, False, True, True)
    assert budget.used_bytes == 3000
    one.put("a", np.zeros(250))  # anew, and larger
    assert ("a" in one, "b" in one, "b" in other, budget.used_bytes) == (True, False, True, 3000)


def test_what_is_larger_than_the_budget_is_not_kept_and_drives_nothing_out():
    budget = MemoryBudget(1000)
    kept = Cache(budget)
    kept.put("a", np.zeros(100))
    kept.put("b", np.zeros(1000))
    assert ("a" in kept, "b" in kept, budget.used_bytes) == (True, False, 800)


def test_a_smaller_limit_holds_at_once():
    budget = MemoryBudget(10_000)
    kept = Cache(budget)
    for name in "abc":
        kept.put(name, np.zeros(100))
    budget.limit = 1000
    assert (list(kept.held), budget.used_bytes) == (["c"], 800)


def test_what_is_gone_takes_no_room():
    budget = MemoryBudget(10_000)
    kept = Cache(budget)
    kept.put("a", np.zeros(100))
    del kept
    gc.collect()
    assert budget.used_bytes == 0


@dataclass
class Derived:
    values: np.ndarray
    names: list[str]


class Plain:
    def __init__(self) -> None:
        self.values = pa.array(range(100))


def test_what_is_derived_is_measured():
    assert size_of(Derived(np.zeros(10), ["x" * 1000] * 10)) > 10_000
    assert size_of({"a": np.zeros(10)}, (Plain(),)) == 880
    assert size_of(["x" * 1000] * 5000) > 4_000_000


def snapshot_of(store, count: int = 1000, columns: int = 4) -> Snapshot:
    entries = []
    for number in range(columns):
        index = MinMax(f"c{number}").bind([Column(f"c{number}", "bigint")])
        arrow = pa.struct([(name, pa.int64()) for name in ("min", "max", "nulls", "rows")])
        entries.append(IndexEntry(index, ((f"c{number}", "bigint"),), arrow))
    summaries = [
        {f"minmax(c{n})": {"min": row, "max": row + 1, "nulls": 0, "rows": 9} for n in range(columns)}
        for row in range(count)
    ]
    rows = [FileRow(f"f{row}", 5, 6, None, None, summary) for row, summary in enumerate(summaries)]
    store.commit(Header("file:/data", {}, tuple(entries)), build_table(entries, rows), expected=None)
    return store.load(1)


def equals(value: int, columns: int = 4) -> And:
    return And(tuple(Comparison("=", Column(f"c{n}", "bigint"), Literal(value)) for n in range(columns)))


def test_queries_over_more_than_the_budget_are_as_right_and_stay_below_it(tmp_path, small):
    snapshot = snapshot_of(ParquetStore(tmp_path))
    for value in (0, 17, 999):
        kept = np.flatnonzero(decide(snapshot, equals(value)).keep).tolist()
        assert kept == sorted({max(0, value - 1), value})
        assert 0 < BUDGET.used_bytes <= small


@pytest.mark.slow
def test_many_threads_over_a_small_budget(tmp_path, small):
    snapshot = snapshot_of(ParquetStore(tmp_path))
    start = threading.Barrier(4)

    def ask(who: int) -> list[int]:
        start.wait()
        return [int(decide(snapshot, equals(value, 1 + who)).keep.sum()) for value in range(1, 30)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[2] * 29] * 4
    assert BUDGET.used_bytes <= small


def test_a_column_that_is_asked_for_twice_is_read_once_if_there_is_room():
    read: list[object] = []
    table = pa.table({"path": ["a", "b"], "size": [1, 2]})

    def load(wanted):
        read.append(wanted)
        return table.select(wanted)

    files = FileMetadata(2, load)
    for _ in range(2):
        assert files.column("path").to_pylist() == ["a", "b"]
    assert read == [["path"]]
