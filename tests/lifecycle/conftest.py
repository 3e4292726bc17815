"""A dataset of three files of numbers, and the stores that its metadata are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoskip.stores import MemoryStore, ParquetStore, Store
from tests.support.numbered import Numbers, write


@pytest.fixture
def data(tmp_path: Path) -> Numbers:
    """Three files."""
    for number in range(3):
        write(tmp_path, f"f{number}", number)
    return Numbers(tmp_path)


@pytest.fixture(params=["memory", "parquet"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else ParquetStore(tmp_path / "_geoskip")
