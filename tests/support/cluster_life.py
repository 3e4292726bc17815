"""Build and query indexes on a cluster, here or as the main program of a separate driver.

``spark-submit cluster_life.py ADDRESS FOLDER KEY=VALUE ...`` does so with the indexes of ``PLAIN`` and an extractor of
the module ``own_extractors``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import geoskip
from geoskip import Formatted, GeoBox, Index, MetricDist, MinMax, ValueList
from tests.conftest import same_as_off
from tests.support.cluster import PATIENCE, session_on

OWN = "def own_family(agent):\n    return agent.partition('Gecko) ')[2].partition('/')[0]\n"
"""The source of ``own_extractors``, a user-defined module."""
PLAIN: dict[Index, str] = {MinMax("a"): "a = 15", ValueList("word"): "word = 'bbbbbbbbb3'"}
GEOMETRIES: dict[Index, str] = {
    GeoBox("lng", "lat"): "ST_DistanceSphere(ST_Point(lng, lat), ST_Point(20.0, 0.0)) < 100000"
}
DISTANCES: dict[Index, str] = {MetricDist("word", metric="levenshtein"): "levenshtein(word, 'bbbbbbbbb1') <= 1"}
AGENTS: dict[Index, str] = {Formatted("agent", extract="agent_family"): "agent_family(agent) LIKE 'Chrome%'"}
OWN_AGENTS: dict[Index, str] = {Formatted("agent", extract="own_family"): "own_family(agent) = 'Chrome'"}
"""Indexes, each with a condition for which only one file is read."""


def four_files(root: Path) -> Path:
    """Create four files in a new folder, in which every index of this module can skip."""
    folder = root / "data"
    folder.mkdir()
    for number in range(4):
        write(folder, number)
    return folder


def write(folder: Path, number: int) -> None:
    """Write a file of ten rows; only the second file has rows of Chrome."""
    browser = "Chrome/126.0.0.0 Safari/537.36" if number == 1 else "Firefox/128.0"
    rows = {
        "a": [*range(10 * number, 10 * number + 10)],
        "word": [f"{'abcdefgh'[number] * 9}{row}" for row in range(10)],
        "lng": [20.0 * number + row / 10 for row in range(10)],
        "lat": [row / 10 for row in range(10)],
        "agent": [f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) {browser}"] * 10,
    }
    pq.write_table(pa.table(rows), folder / f"{number}.parquet")


def kept(spark: Any, data: Path, where: str) -> int:
    """Count the files that a query reads, after checking its rows against those with geoskip off."""
    files: int = same_as_off(lambda: spark.read.parquet(str(data)).where(where)).files_kept
    return files


def live(spark: Any, data: Path, queries: dict[Index, str]) -> set[str]:
    """Build, refresh, append, verify, query and audit over four files; return the readers of the build."""
    handle = geoskip.dataset(spark, str(data))
    built = handle.create_index(*queries)
    assert (built.files, built.excluded) == (4, {})
    write(data, 4)
    assert handle.refresh_index().read == 1
    handle.append(spark.read.parquet(str(data)).where("a = 33").coalesce(1))
    verified = handle.verify()
    assert verified.ok, verified
    read = {where: kept(spark, data, where) for where in queries.values()}
    assert read == dict.fromkeys(queries.values(), 1), read
    spark.conf.set("spark.geoskip.audit", "1.0")
    try:
        for where in queries.values():
            spark.read.parquet(str(data)).where(where).collect()
            assert geoskip.wait_for_audits(spark, PATIENCE)
            (scan,) = geoskip.last_report(spark).scans
            assert (scan.files_kept, scan.files_audited, scan.lost) == (1, 5, ()), where
    finally:
        spark.conf.unset("spark.geoskip.audit")
    return set(built.readers.values())


def main(address: str, folder: str, *settings: str) -> dict[str, Any]:
    """Return the path of this driver's geoskip, and the readers of its build."""
    config = dict(setting.split("=", 1) for setting in settings)
    with session_on(address, os.environ["PYSPARK_PYTHON"], config) as spark:
        import own_extractors

        spark.udf.register("own_family", own_extractors.own_family, "string")
        readers = live(spark, Path(folder), PLAIN | OWN_AGENTS)
    return {"geoskip": geoskip.__file__, "readers": sorted(readers)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
