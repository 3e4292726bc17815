"""An indexed folder and a connection for the tests of geoskip.duckdb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import geoskip
from tests.support.duckdb_rows import INDEXES, TYPES, table
from tests.support.indexed_files import write_indexed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight files of ten rows in partitions, ``a`` from 0 to 79, and one that is not indexed."""
    tables = {f"month={1 + number % 2:02}/{number}.parquet": table(number) for number in range(9)}
    write_indexed(tmp_path / "d", tables, TYPES, INDEXES, partitions=("month",), unindexed=["month=01/8.parquet"])
    return tmp_path / "d"


@pytest.fixture
def con() -> Any:
    with geoskip.duckdb(duckdb.connect()) as connection:
        yield connection
