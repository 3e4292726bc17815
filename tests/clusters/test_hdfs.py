"""A dataset whose data and metadata are in HDFS, in a local session and on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import session_on
from tests.support.dataset_life import whole_life
from tests.support.races import race_to_create
from tests.support.servers.hdfs import CLIENT, HADOOP, mini_hdfs


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


def test_hdfs_in_a_local_session(hdfs: str, tmp_path: Path) -> None:
    with session_on("local[2]", sys.executable, CLIENT) as spark:
        assert spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion() == HADOOP
        whole_life(spark, f"{hdfs}/my data", tmp_path)
        won = race_to_create(f"{hdfs}/race", 5)
        assert sorted(name for names in won for name in names) == [*"01234"], "one of four writers creates each file"


def test_hdfs_on_a_cluster(cluster: str, hdfs: str, tmp_path: Path) -> None:
    with session_on(cluster, sys.executable, CLIENT) as spark:
        whole_life(spark, f"{hdfs}/on a cluster", tmp_path)
