"""HDFS on this machine: a NameNode and a DataNode in one Java process, by Hadoop's own MiniDFSCluster.

Its jar, some 40 MB, comes into the cache of :mod:`tests.support.servers` once; Hadoop's other classes are those of
PySpark. It ends with the tests however they end.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.servers import OPTIONS, WATCHING, jars, java

__all__ = ["CLIENT", "HADOOP", "mini_hdfs"]

HADOOP = "3.4.1"
MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
CLIENT = {"spark.hadoop.dfs.replication": "1"}
"""Settings of a session: there is one DataNode."""
PATIENCE = 300


@contextmanager
def mini_hdfs(folder: Path) -> Iterator[str]:
    """URI of an empty file system that keeps its blocks in a folder."""
    details, log = folder / "details.json", folder / "log.txt"
    classes = f"{jars('minidfs')}/*{os.pathsep}{Path(pyspark.__file__).parent / 'jars'}/*"
    command = [java(), *OPTIONS, f"-Dtest.build.data={folder}", "-cp", classes, MAIN]
    command += ["-datanodes", "1", "-format", "-writeDetails", str(details), "-D", "dfs.permissions.enabled=false"]
    with (
        log.open("wb") as printed,
        subprocess.Popen(
            ["sh", "-c", WATCHING, "sh", *command], cwd=folder, stdin=subprocess.PIPE, stdout=printed, stderr=printed
        ) as process,
    ):
        try:
            yield f"hdfs://127.0.0.1:{_port(details, log, process)}"
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _port(details: Path, log: Path, process: subprocess.Popen[bytes]) -> int:
    """The NameNode's port, once the cluster has written it down."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if details.exists() and (text := details.read_text()).endswith("}"):
            return int(json.loads(text)["namenode_port"])
        time.sleep(0.1)
    raise RuntimeError(f"HDFS did not start:\n{log.read_text(errors='replace')[-3000:]}")
