"""Rows of a file of a size, from a sample of the rows."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoskip.spark.build import arrange

ROWS = 200_000
RANDOM = np.random.default_rng(5)
KINDS: dict[str, dict[str, Any]] = {
    "random": {"a": RANDOM.random(ROWS), "b": RANDOM.integers(0, 1 << 60, ROWS)},
    "few_values": {"a": np.arange(ROWS) // 1000, "b": np.full(ROWS, "x"), "c": np.full(ROWS, "hello " * 20)},
    "a_dictionary": {"a": RANDOM.integers(0, 4000, ROWS).astype(str), "b": np.arange(ROWS) // 1000},
    "mixed": {"a": np.sort(RANDOM.random(ROWS)), "b": RANDOM.integers(0, 9, ROWS), "c": RANDOM.integers(0, 9000, ROWS)},
}


def size_of_file(rows: pa.Table) -> int:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    return buffer.tell()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_a_file_of_the_rows_found_has_about_the_size(name: str, share: float) -> None:
    table: Any = pa.table(KINDS[name])
    wanted = int(size_of_file(table) * share)
    sample = table.take(pa.array(np.sort(RANDOM.choice(ROWS, 20_000, replace=False))))
    rows = round(arrange._rows_of_size(None, sample, wanted, "snappy"))  # type: ignore[arg-type]  # with a codec unused
    found = size_of_file(table.slice(1000, rows))
    assert found == pytest.approx(wanted, rel=0.4) or found <= 2_000  # of next to nothing but a footer


def test_where_the_sample_is_empty_a_row_counts_as_a_byte() -> None:
    assert arrange._rows_of_size(None, pa.table({"a": pa.array([], pa.int64())}), 700, "snappy") == 700  # type: ignore[arg-type]
