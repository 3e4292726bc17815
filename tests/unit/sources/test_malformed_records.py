"""JSON records that Spark could not convert: whether they are malformed, or hold values of other types."""

from __future__ import annotations

import pickle
import sys

import pyarrow as pa
import pytest

from geoskip.sources.worker_tasks import MALFORMED, summarising_task


@pytest.mark.parametrize(
    ("record", "malformed"),
    [
        ('{"a": tru}', True),
        ('{"a": "b"}', False),
        ('{"a": "b"}\n{"a": tru}\n{"a": "c"}', True),
        ("[" * 1000 + "]" * 1000, False),
        ("[" * 1001 + "]" * 1001, True),
        ('["\\"' + "[" * 1001 + '"]', False),
        ('["' + "x" * 20_000_001 + '"]', True),
        ("[1" + "0" * 999 + "]", True),
    ],
    ids=[
        "no JSON",
        "another type",
        "one of three",
        "deep",
        "too deep",
        "brackets in a text",
        "a long text",
        "a long number",
    ],
)
def test_records_within_the_limits_of_the_parser(record: str, malformed: bool) -> None:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # later versions of Python parse more levels by themselves
    try:
        records = record.split("\n")
        rows = pa.RecordBatch.from_arrays([pa.array(["file:/x"] * len(records)), pa.array(records)], ["_file", "_bad"])
        [batch] = summarising_task([], 2, str)([rows])
    finally:
        sys.setrecursionlimit(usual)
    found = [pickle.loads(payload)[1] for payload in batch.column(0).to_pylist()]
    assert (MALFORMED in found) is malformed
