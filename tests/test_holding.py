"""Values that are put aside of files: what is made of them later is what would have been made at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoskip import MetricDist, MinMax
from geoskip.spark.build import arrow_reader, spill
from geoskip.spark.build.arrow_reader import FileResult, IndexPlan, RowSummaries, put_together, read_files
from geoskip.spark.build.spill import DeferredIndex, SpilledRows, array_of, released, stripped, summarised

XY = MetricDist("x", "y", metric="euclidean", origins=[(0.0, 0.0), (50.0, 1.0)])
WORD = MetricDist("word", metric="levenshtein", origins=["", "abc"])
COLUMNS = {"x": "double", "y": "double", "word": "string"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "x": [None if k % 7 == 0 else float(k) for k in range(500)],
            "y": [k / 3 for k in range(500)],
            "word": pa.array(["ab" * (k % 4) for k in range(500)]).dictionary_encode(),
            "z": list(range(500)),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=100)
    return str(tmp_path / "f.parquet")


def plans(*indexes: Any) -> list[IndexPlan]:
    chosen = [(str(i), i, i.expressions()) for i in indexes]
    return [IndexPlan(name, index, tuple((c, COLUMNS[c]) for c in texts)) for name, index, texts in chosen]


@pytest.mark.parametrize("in_memory", [0, 1 << 20], ids=["on disk", "in memory"])
def test_what_is_made_later_is_what_would_be_made_at_once(
    path: str, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(arrow_reader, "_ROWS_AT_ONCE", 150)
    monkeypatch.setattr(spill, "_IN_MEMORY", in_memory)
    (expected,) = read_files([("f", path)], plans(XY, WORD), False)
    held = [DeferredIndex(str(index), index, 20) for index in (XY, WORD)]
    found = list(released(read_files([("f", path)], plans(*held), False), str))
    *pieces, (result,) = found
    assert [len(some) for some in found] == [1] * 7
    assert isinstance(result, FileResult)
    assert (result.rows, result.summaries, result.readers) == (500, {}, expected.readers)
    for each in (piece for some in pieces for piece in some):
        assert array_of(each.sample).num_rows <= 20 < each.rows == array_of(each.values).num_rows
    assert all(stripped(some)[0].values == b"" for some in pieces)
    made = [piece for some in summarised({str(XY): XY, str(WORD): WORD})(found) for piece in some]
    for index in (XY, WORD):
        parts = [RowSummaries(piece.rows, (piece.summary,)) for piece in made if piece.index == str(index)]
        alone = FileResult("f")
        put_together(alone, [(str(index), index)], parts, "arrow")
        assert alone.summaries == {str(index): expected.summaries[str(index)]}


def test_an_index_that_fails_later_says_so() -> None:
    (kept,) = DeferredIndex("x", MinMax("x"), 5).collect(pa.array([1, 2, 3]))["pieces"]  # type: ignore[index]
    piece = SpilledRows("f", "x", 3, b"", kept[2].seek(0) or kept[2].read())

    class Fails(MinMax):
        def collect(self, *values: pa.Array) -> Any:
            raise RuntimeError("no luck")

    assert piece.made(Fails("x")).summary == "RuntimeError: no luck"
