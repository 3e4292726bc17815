"""The tasks of Python workers, called as Spark calls them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Column
from geoskip.sources import worker_tasks
from geoskip.sources.worker_tasks import ExpressionPlan, expanding_task, reading_task, summarising_task

VALUES: dict[str, list[int | None]] = {"x": [3, 1, None], "y": [7], "z": [1, 7, 7, 1], "empty": []}
TEXTS = {"x": ["b", "b", "b"], "y": [None], "z": ["long", "a", "c", "d"], "empty": []}


def payloads(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return [pickle.loads(one) for batch in batches for one in batch.column(0).to_pylist()]


def test_rows_of_one_file_in_several_batches_have_one_run() -> None:
    batches = [
        pa.record_batch({"_file": ["file:/x", "file:/x", "file:/y"], "a": [3, 1, 7]}),
        pa.record_batch({"_file": pa.array([], pa.string()), "a": pa.array([], pa.int64())}),
        pa.record_batch({"_file": ["file:/y", "file:/z"], "a": [9, 5]}),
    ]
    index = MinMax("a").bind([Column("a", "bigint")])
    found = payloads(summarising_task([(index, (0,))], 1, str)(batches))
    assert [
        (uri, [(part.rows, part.summaries[0]["min"], part.summaries[0]["max"]) for part in parts])
        for uri, parts in found
    ] == [
        ("file:/x", [(2, 1, 3)]),
        ("file:/y", [(2, 7, 9)]),
        ("file:/z", [(1, 5, 5)]),
    ]


def test_distinct_values_of_several_parts_of_a_file() -> None:
    index = worker_tasks._DistinctValues("a", pa.string())
    parts = [pa.array(["b", "a", "b"]), pa.array([None, "a"]).dictionary_encode(), pa.array([], pa.string())]
    merged = index.merge([part for part in map(index.collect, parts) if part is not None])
    assert merged["values"].to_pylist() == ["b", "a", None]
    assert merged["values"].take(pa.array(merged["places"])).to_pylist() == ["b", "a", "b", None, "a"]


@pytest.mark.parametrize(("chunk", "rows"), [(1, 1 << 20), (2, 2), (100, 1 << 20)])
def test_expressions_are_summarised_by_the_values_of_each_file(
    tmp_path: Path, chunk: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark does between the tasks: ``-a`` and ``upper(s)``, in batches of other sizes."""
    monkeypatch.setattr(worker_tasks, "_ROWS_AT_ONCE", rows)
    monkeypatch.setattr(worker_tasks, "_ROWS_A_BATCH", chunk)
    for name, values in VALUES.items():
        table = {"a": pa.array(values, pa.int64()), "s": pa.array(TEXTS[name], pa.string())}
        pq.write_table(pa.table(table), tmp_path / name)
    paths = [[(name, str(tmp_path / name)) for name in names] for names in (["x", "y"], ["z", "empty"])]
    ours, theirs = (MinMax(c).bind([Column(c, t)]) for c, t in (("a", "bigint"), ("s", "string")))
    columns, expressions = (("a", "bigint"), ("s", "string")), (("-a", 0), ("upper(s)", 1))
    plan = ExpressionPlan((), columns, expressions, (("of a", ours, (0,)), ("of s", theirs, (1,))))
    read = reading_task(paths, plan, [pa.int64(), pa.string()], False)([pa.record_batch({"id": [0, 1]})])
    sent = (
        pa.record_batch([batch.column(0), pc.negate(batch.column(1)), pc.utf8_upper(batch.column(2))], ["p", "0", "1"])
        for batch in read
    )
    found = {result.path: result for group in payloads(expanding_task(plan)(sent)) for result in group}
    assert {path: result.rows for path, result in found.items()} == {name: len(v) for name, v in VALUES.items()}
    for name, result in found.items():
        numbers: list[Any] = [-value for value in VALUES[name] if value is not None]
        texts: list[Any] = [text.upper().encode() for text in TEXTS[name] if text is not None]
        for summary, values, known in zip(("of a", "of s"), (VALUES[name], TEXTS[name]), (numbers, texts), strict=True):
            ends = result.summaries[summary]
            assert ends is not None
            assert (ends["min"], ends["max"]) == (min(known, default=None), max(known, default=None)), name
            assert ends["nulls"] == len(values) - len(known)
