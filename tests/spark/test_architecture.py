"""The walks in geoskip's docstring are those that a query and a build take through the files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.indexes.base import SourceColumn
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.planner import decide
from geoskip.predicates import Column, Comparison, Literal
from geoskip.registry import mappings, maps

HERE = Path(geoskip.__file__).parent
MOST_FILES_OF_A_DECISION = 14


def walk(name: str) -> list[str]:
    """The Python files of a walk, in its order."""
    _, _, below = (geoskip.__doc__ or "").partition(f"Modules that a {name} passes")
    text = below.partition("::")[2].partition("\n\nModules")[0]
    files = re.findall(r"^    (\S+\.(?:py|java)) +\S", text, re.MULTILINE)
    assert files, name
    assert [file for file in files if not (HERE / file).is_file()] == []
    return [file for file in files if file.endswith(".py")]


class Trace:
    """The files of geoskip in the order in which a thread first enters them."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def begin(self) -> None:
        self.files.clear()
        sys.setprofile(self._call)

    def _call(self, frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HERE) and str(path.relative_to(HERE)) not in self.files:
            self.files.append(str(path.relative_to(HERE)))

    def along(self, files: list[str]) -> list[str]:
        return [file for file in self.files if file in files]


@pytest.fixture
def trace() -> Any:
    yield Trace()
    sys.setprofile(None)


def test_a_decision_goes_along_the_walk_and_enters_few_files(trace: Trace) -> None:
    texts, numbers = pa.array(["Aachen", "Dole", "Erfurt"]), [pa.array([6.1, 5.5, 11.0]), pa.array([50.8, 47.1, 51.0])]
    columns = {MinMax("city"): {"city": texts}, GeoBox("lng", "lat"): dict(zip(("lng", "lat"), numbers, strict=True))}
    entries = []
    for index, values in columns.items():
        kinds = {name: "string" if array is texts else "double" for name, array in values.items()}
        sources = [SourceColumn(name, kinds[name], array.type) for name, array in values.items()]
        bound = index.bind([Column(name, kind) for name, kind in kinds.items()])
        entries.append(IndexEntry(bound, tuple(kinds.items()), index.metadata_type(*sources)))
    rows = []
    for file in range(3):
        parts = {index: [array[file : file + 1] for array in values.values()] for index, values in columns.items()}
        rows.append(FileRow(str(file), 1, 1, None, 1, {str(i): i.collect(*arrays) for i, arrays in parts.items()}))
    snapshot = Snapshot(Header("file:/d", {}, tuple(entries)), FileMetadata.of(build_table(entries, rows)))
    trace.begin()
    decision = decide(snapshot, Comparison(">", Column("city", "string"), Literal("D", "string")))
    sys.setprofile(None)
    assert decision.keep.tolist() == [False, True, True]
    core = [file for file in walk("query") if "/" not in file or file.split("/")[0] in ("rewrite", "indexes", "bounds")]
    assert trace.along(core) == core
    assert len(trace.files) <= MOST_FILES_OF_A_DECISION, trace.files


def test_a_build_without_spark_goes_along_its_walk(tmp_path: Path, trace: Trace) -> None:
    pq.write_table(pa.table({"place": [{"city": "Aachen"}]}), tmp_path / "a.parquet")
    geoskip.build(tmp_path, MinMax("place.city"), metadata=tmp_path / "_warm", threads=1)
    trace.begin()
    geoskip.build(tmp_path, MinMax("place.city"), threads=1)
    sys.setprofile(None)
    assert trace.along(walk("build without Spark")) == walk("build without Spark")


@pytest.mark.spark
def test_a_query_and_a_build_go_along_their_walks(spark: Any, parts: Callable[..., Path], trace: Trace) -> None:
    place = str(parts({"city": ["Aachen"]}, {"city": ["Dole"]}, {"city": ["Erfurt"]}))
    dataset = geoskip.dataset(spark, place)
    trace.begin()
    dataset.create_index(MinMax("city"))
    sys.setprofile(None)
    assert trace.along(walk("build")) == walk("build")

    with mappings():

        @maps("upper", index=MinMax)
        def begin(node: Any, index: Any) -> None:
            trace.begin()  # in the thread that answers the rule, from here on

        assert spark.read.parquet(place).filter("upper(city) > 'B'").count() == 2
        trace.files.clear()
        assert spark.read.parquet(place).filter("city > 'D'").count() == 2
    assert trace.along(walk("query")) == walk("query")
