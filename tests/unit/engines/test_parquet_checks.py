"""Verification without Spark."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip.engines.parquet_checks import reason_for_spark, verify
from geoskip.errors import InvalidSpecificationError, NeedsSparkError, NotIndexedError
from geoskip.stores import ParquetStore

Parts = Callable[..., Path]
build = import_module("geoskip.engines.build")  # geoskip.build is the function


def test_summaries_that_contradict_the_data_are_named(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parts({"a": [1, 2]}, {"a": [3, 4]}, {"a": [5, 6]})
    read = build.read_files

    def read_wrongly(*args: Any) -> Any:
        for result in read(*args):
            if result.path.endswith("2.parquet"):
                result.summaries["minmax(a)"]["max"] = 4
            yield result

    with monkeypatch.context() as patch:
        patch.setattr(build, "read_files", read_wrongly)
        geoskip.build(folder, geoskip.MinMax("a"))
    found = verify(folder)
    assert (found.ok, found.files, found.of) == (False, 3, 3)
    assert found.differing == {"part-00002.parquet": ("minmax(a)",)}
    assert verify(folder, 0.3).files == 1


def test_only_files_as_they_were_indexed_are_compared(parts: Parts) -> None:
    folder = parts({"a": [1, 2]}, {"a": [3, 4]})
    geoskip.build(folder, geoskip.MinMax("a"))
    pq.write_table(pa.table({"a": [7, 8, 9]}), folder / "part-00001.parquet")
    found = verify(folder)
    assert (found.ok, found.files, found.of) == (True, 1, 1)


def test_a_wrong_share_and_missing_metadata_are_errors(parts: Parts) -> None:
    folder = parts({"a": [1]})
    with pytest.raises(NotIndexedError, match="has no index yet"):
        verify(folder)
    with pytest.raises(InvalidSpecificationError, match="a share above 0"):
        verify(folder, 2)


def test_an_index_that_spark_alone_builds_is_named(parts: Parts) -> None:
    folder = parts({"a": [1]})
    store = ParquetStore(folder / "_geoskip")
    assert reason_for_spark(folder, store) is None
    geoskip.build(folder, geoskip.MinMax("a"))
    assert reason_for_spark(folder, store) is None


def test_a_refresh_that_reads_no_file_needs_no_spark(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parts({"a": [1]}, {"a": [2]})
    store = ParquetStore(folder / "_geoskip")
    geoskip.build(folder, geoskip.MinMax("a"))

    def refuse(*_: Any) -> None:
        raise NeedsSparkError("minmax(a) needs Spark")

    monkeypatch.setattr(build.ParquetData, "bind", refuse)
    assert reason_for_spark(folder, store, of_indexes=False) is None
    assert reason_for_spark(folder, store) == "minmax(a) needs Spark"
    assert geoskip.build(folder).read == 0
    pq.write_table(pa.table({"a": [3]}), folder / "part-00002.parquet")
    assert geoskip.build(folder, mode="quick").pending == 1
    for mode in ("incremental", "full"):
        with pytest.raises(NeedsSparkError, match=r"^minmax\(a\) needs Spark$"):
            geoskip.build(folder, mode=mode)
