"""A dataset of four files, and its handle with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from tests.spark.verbs.asking import write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    for number in range(4):
        write(found, f"{number}.parquet", [number * 10, number * 10 + 1])
    return found


@pytest.fixture
def handle(spark: Any, place: Path) -> geoskip.Dataset:
    found = geoskip.dataset(spark, str(place))
    found.create_index(MinMax("a"))
    return found
