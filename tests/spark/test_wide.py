"""Tables of thousands of columns (Hudi's RFC-27): a query over three of them costs what three cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from geoskip.spark.session import bridge
from tests.conftest import SOAK

pytestmark = pytest.mark.spark

COLUMNS, INDEXED = (4000, 2000) if SOAK else (1200, 600)
LAST = INDEXED - 1


@pytest.mark.slow
def test_of_many_indexes_only_those_of_the_query_are_asked(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "wide"
    root.mkdir()
    for file in range(3):
        table = {f"c{n}": np.array([file * 10 + n % 7, file * 10 + 9]) for n in range(COLUMNS)}
        pq.write_table(pa.table(table), root / f"part-{file}.parquet")
    report = geoskip.dataset(spark, str(root)).create_index(*(MinMax(f"c{n}") for n in range(INDEXED)))
    assert len(report.indexes) == INDEXED
    asked: list[Any] = []
    original = MinMax.clause
    monkeypatch.setattr(MinMax, "clause", lambda index, node: asked.append(index) or original(index, node))
    frame = spark.read.parquet(str(root)).where(f"c5 > 15 AND c{LAST} < 25 AND c77 IS NOT NULL AND c{COLUMNS - 1} >= 0")
    assert geoskip.explain(frame.select("c5")).files_kept == 2
    wanted = {"minmax(c5)", f"minmax(c{LAST})", "minmax(c77)"}
    assert {str(index) for index in asked} == wanted
    (snapshot,) = [s for r in bridge.known.roots() if r.endswith("/wide") and (s := bridge.known.snapshot(r))]
    loaded = {key[1] for key in snapshot.files._known.held if key[0] in ("column", "summary")}
    assert not {name for name in loaded if name.startswith("minmax")} - wanted
