"""A dataset whose data and metadata are in HDFS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, MinMax, ValueList
from geoskip.spark.filesystem import HadoopFolder
from tests.conftest import same_as_off
from tests.support.cluster import session_on
from tests.support.races import race_to_create
from tests.support.servers.hdfs import CLIENT, HADOOP, mini_hdfs


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


def the_whole_life(spark: Any, uri: str, scratch: Path) -> None:
    """Build, query, refresh, append and verify; no file of it is on this machine's own file system."""
    folder = HadoopFolder(uri)

    def put(number: int) -> None:
        rows = {"a": [*range(10 * number, 10 * number + 10)], "word": [f"{'abcde'[number]}{row}" for row in range(10)]}
        pq.write_table(pa.table(rows), scratch / f"{number}.parquet")
        folder.put(f"{number}.parquet", scratch / f"{number}.parquet")

    def kept(where: str) -> tuple[int, int]:
        report = same_as_off(lambda: spark.read.parquet(uri).where(where))
        return report.files_kept, report.files_total

    for number in range(4):
        put(number)
    handle = geoskip.dataset(spark, uri)
    assert handle.create_index(MinMax("a"), ValueList("word"), BloomFilter("word")).excluded == {}
    assert folder.names("_geoskip/_log"), "the metadata are beside the data"
    assert kept("a = 15") == (1, 4)
    assert kept("word = 'c3'") == (1, 4)
    put(4)
    assert kept("a = 15") == (2, 5), "what is not indexed is read"
    assert handle.refresh_index().read == 1
    assert kept("a >= 38 AND word LIKE 'e%'") == (1, 5)
    handle.append(spark.read.parquet(uri).where("a = 3").coalesce(1))
    assert kept("a = 3") == (2, 6)
    folder.delete("2.parquet")
    assert handle.refresh_index().files == 5
    handle.vacuum_index(retain=0)
    assert kept("a >= 20") == (2, 5)
    assert handle.verify().ok
    assert geoskip.dataset(spark, uri).refresh_index().read == 0


def test_hdfs_in_a_local_session(hdfs: str, tmp_path: Path) -> None:
    with session_on("local[2]", sys.executable, CLIENT) as spark:
        assert spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion() == HADOOP
        the_whole_life(spark, f"{hdfs}/local", tmp_path)
        won = race_to_create(f"{hdfs}/race", 5)
        assert sorted(name for names in won for name in names) == [*"01234"], "one of four writers creates each file"
