"""All operations on an indexed dataset, the same on every file system and cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.sources import listed_files
from geoskip.sources.build_verbs import BuildReport
from geoskip.spark.filesystem import HadoopFolder
from tests.conftest import kept_of_all

__all__ = ["whole_life"]


def whole_life(spark: Any, uri: str, scratch: Path) -> BuildReport:
    """Run all operations on a dataset, from its first index to the drop, and return the build's report.

    Between them the dataset is queried with geoskip on and off, and every query must read only the files that its
    condition needs. Files and metadata are accessed only by Spark's client of the file system. Data files are created
    in the scratch folder.
    """
    folder = HadoopFolder(uri)

    def put(number: int) -> None:
        rows = {"a": [*range(10 * number, 10 * number + 10)], "word": [f"{'abcde'[number]}{row}" for row in range(10)]}
        pq.write_table(pa.table(rows), scratch / f"{number}.parquet")
        folder.put(f"{number}.parquet", scratch / f"{number}.parquet")

    def read(where: str) -> Any:
        return spark.read.schema("a BIGINT, word STRING").parquet(uri).where(where)

    def kept(where: str) -> tuple[int, int]:
        return kept_of_all(lambda: read(where))

    for number in range(4):
        put(number)
    handle = geoskip.dataset(spark, uri)
    with pytest.MonkeyPatch.context() as patch:
        # no file is replaced within one clock tick of the file system, so no wait is needed
        patch.setattr(listed_files, "_REMOTE_TICK_MS", 1)
        built: BuildReport = handle.create_index(MinMax("a"), MinMax("length(word)"), ValueList("word"))
        assert (built.files, built.excluded) == (4, {})
        assert folder.names("_geoskip/_log"), "the metadata are beside the data"
        assert kept("a = 15 OR word LIKE '%c3'") == (2, 4)
        put(4)
        assert kept("a = 15") == (2, 5), "what is not indexed is read"
        assert handle.refresh_index().read == 1
        handle.append(read("a = 3").coalesce(1))
        assert kept("a = 3 OR a >= 38 AND word LIKE 'e%'") == (3, 6)
        handle.optimize_index()
        handle.delete_index(ValueList("word"))
        folder.delete("2.parquet")
        assert handle.refresh_index().files == 5
    handle.vacuum_index(retain=0)
    assert kept("a >= 20 AND length(word) = 2") == (2, 5)
    assert [*map(str, handle.indexes)] == ["minmax(a)", "minmax(length(word))"]
    verbs = ("create", "refresh", "refresh", "optimize", "delete", "refresh", "vacuum")
    assert [(row["verb"], row["state"]) for row in handle.history().collect()] == [(verb, "done") for verb in verbs]
    again = geoskip.dataset(spark, uri)
    assert again.refresh_index().read == 0
    assert again.verify().ok
    again.delete_index()
    assert kept("a >= 40") == (5, 5)
    return built
