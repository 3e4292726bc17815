"""The shortest path through Spark: index, query, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


def test_a_range_reads_only_the_files_that_can_match(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"temp": [1, 2, 3]}, {"temp": [10, None]}, {"temp": [100, 101]})
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"))
    report = same_as_off(lambda: spark.read.parquet(str(place)).where("temp > 50"))
    assert (report.files_kept, report.files_total) == (1, 3)
    assert [Path(path).name for path in report.scans[0].kept_files()] == ["part-00002.parquet"]
