"""The arithmetic of the benchmark's tables: what they judge by."""

from __future__ import annotations

import doctest
import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.generate_logs import SHARDS, database_log
from datasets.generate_logs import part as logged
from datasets.generate_weather import kd_leaves, weather
from geoskip import BloomFilter, Hybrid, Index, ValueList
from geoskip.indexes.base import SourceColumn
from tests.bench import columns, effectiveness, factors, measure, queries, sizes
from tests.bench.rewriting import by_statistics


@pytest.mark.parametrize(
    "module", [columns, effectiveness, measure, queries, sizes], ids=lambda module: module.__name__
)
def test_the_examples_of_the_benchmark_hold(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted
    assert not found.failed


def test_rows_are_counted_file_by_file(tmp_path: Path) -> None:
    for number, values in enumerate((["a", "a", "b"], ["b"], ["c", "b"], ["c"])):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{number}.parquet")
    column = factors.Column(tmp_path, "x")
    matches = pa.array([value == "a" for value in column.dictionary.to_pylist()])
    assert column.rows_of(matches, ["somewhere/0.parquet", "somewhere/2.parquet"]) == (2, 3, 5, 7)


def test_a_steady_slope_of_load_burdens_all_arms_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: in the order A B C each round, the first arm is always the quickest."""
    monkeypatch.setattr(gc, "collect", lambda: 0)  # there is much to look through after many tests
    clock = iter(range(1, 1_000))

    def arm() -> tuple[float, float]:
        return (moment := float(next(clock))), 2 * moment

    arms = measure.in_turn([arm, arm, arm], rounds=6, warm=1)
    assert [len(arm) for arm in arms] == [6, 6, 6]
    assert len({sum(seconds for seconds, _ in arm) for arm in arms}) == 1
    assert all(busy == 2 * seconds for arm in arms for seconds, busy in arm)


def test_a_needed_file_that_was_skipped_ends_the_section() -> None:
    with pytest.raises(AssertionError, match="1 files"):
        effectiveness.factor([{"a", "b"}], [{"a"}], {"a": 1, "b": 1})


def test_hybrid_costs_no_more_than_lists_or_filters_by_its_own_rule() -> None:
    def summaries(index: Index) -> pa.StructArray:
        kind = index.metadata_type(SourceColumn("x", "string", pa.string()))
        found = [index.collect(pa.array([f"{n:040}" for n in range(count)])) for count in (2, 900)]
        merged = [index.merge([one]) for one in found if one is not None]
        if isinstance(index, Hybrid):
            merged = [index.for_files([one], [40_000])[0] for one in merged]
        return pa.array([dict(one) for one in merged], kind)

    made = [summaries(index) for index in (ValueList("x"), BloomFilter("x"), Hybrid("x"))]
    lists, filters, either = sizes.costs(*made, np.array([40_000, 40_000]))
    false = 0.99 * 0.01 * 8 * 40_000
    assert lists == 8 * 40 * 902
    assert filters == pytest.approx(902 * 9.585 + 2 * false, rel=1e-3)
    assert either == pytest.approx(8 * 40 * 2 + 900 * 9.585 + false, rel=1e-3)


def test_the_log_asks_all_shards_of_a_database_and_repeats_itself(tmp_path: Path) -> None:
    names = logged(150, 200, 0)["db_name"]
    stems = [name.rpartition("-shard")[0] for name in names.to_pylist()]
    assert len(set(names.to_pylist())) == SHARDS * len(set(stems))
    assert len({name[:15] for name in names.to_pylist()}) == len(set(stems)), "fifteen characters name a database"
    assert logged(150, 200, 0).equals(logged(150, 200, 0))
    assert len(list(database_log(tmp_path / "log", 3, rows=20).glob("*.parquet"))) == 3


def test_months_of_weather_are_the_same_files_apart_in_space(tmp_path: Path) -> None:
    folder = weather(tmp_path / "weather", 2, files=8, hours=1)
    first, second = (sorted(month.glob("*.parquet")) for month in sorted(folder.glob("month=*")))
    assert [path.stat().st_ino for path in first] == [path.stat().st_ino for path in second]
    assert len(by_statistics(first[0].parent, (-125.0, 24.0, -125.0, 24.0))) == 1
    leaves = kd_leaves(np.arange(16.0), np.arange(16.0) % 4, 4)
    assert [(lng.min(), lng.max()) for lng, _ in leaves] == [(0, 3), (4, 7), (8, 11), (12, 15)]
