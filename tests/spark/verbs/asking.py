"""What tests of the verbs write, and ask of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import same_as_off


def write(place: Path, name: str, values: list[Any], **columns: Any) -> Path:
    place.mkdir(exist_ok=True, parents=True)
    path = place / name
    pq.write_table(pa.table({"a": pa.array(values, pa.int64()), **columns}), path)
    return path


def kept(spark: Any, place: Path, where: str = "a = 31", columns: str = "a BIGINT") -> int:
    """How many files a query reads. To let Spark find out the columns would take longer than both of its runs."""
    return same_as_off(lambda: spark.read.schema(columns).parquet(str(place)).where(where)).files_kept
