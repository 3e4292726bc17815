"""Queries of a table of Delta or Iceberg that another process changes: on against off at the same version."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import rows_of
from tests.support.delta_tables import delta_table
from tests.support.iceberg_tables import iceberg, make

SECONDS = float(os.environ.get("GEOSKIP_TABLE_RACE", "0"))
CONDITIONS = ("temp % 7 = 6 AND temp > 33", "temp % 7 = 9", "temp BETWEEN 10 AND 12 OR temp % 7 = 3", "name = 'new'")
Raced = tuple[str, Any, list[str], Path, Callable[[], Any]]
"""A table, its handle, the module and arguments of its writer, a file that counts changes, and its latest version."""


def of_delta(spark: Any, tmp_path: Path) -> Raced:
    place = tmp_path / "raced"
    table = delta_table(spark, place, enableDeletionVectors="true")

    def version() -> Any:
        return spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first().version

    writer = ["tests.tables.delta_writer", str(place)]
    return table, geoskip.dataset(spark, place), writer, Path(f"{place}.changed"), version


def of_iceberg(spark: Any, tmp_path: Path) -> Raced:
    warehouse = Path(spark.conf.get("spark.sql.catalog.ice.warehouse")).parent
    table = "ice.db.raced"
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    make(spark, table, **{"format-version": "2", **modes})

    def version() -> Any:
        spark.sql(f"REFRESH TABLE {table}")
        return iceberg(spark, table).currentSnapshot().snapshotId()

    writer = ["tests.tables.iceberg_writer", str(warehouse), table]
    return table, geoskip.dataset(spark, table=table), writer, Path(f"{warehouse}.changed"), version


@pytest.mark.parametrize("raced", [of_delta, of_iceberg])
def test_a_race_of_writers_with_queries(spark: Any, tmp_path: Path, raced: Callable[[Any, Path], Raced]) -> None:
    table, dataset, writer_of, changed, latest = raced(spark, tmp_path)
    dataset.create_index(MinMax("temp"), ValueList("temp % 7"), ValueList("name"))
    command = [sys.executable, "-m", *writer_of, str(SECONDS), str(os.getpid())]
    asked = skipped = 0
    versions = set()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None:
            if asked % 5 == 4:
                dataset.refresh_index()
            condition = CONDITIONS[asked % len(CONDITIONS)]
            spark.sql(f"SELECT * FROM {table} WHERE {condition}").collect()  # of whatever version is the latest
            version = latest()
            frame = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version} WHERE {condition}")
            found = rows_of(frame)
            with geoskip.disabled(spark):
                assert found == rows_of(frame.select("*")), (version, condition)
            report = geoskip.report(frame)
            skipped += report.files_total - report.files_kept
            versions.add(version)
            asked += 1
        said = writer.stderr.read() if writer.stderr else ""
    assert writer.returncode == 0, said[-2000:]
    assert int(changed.read_text()) >= 5
    assert len(versions) > 2
    assert skipped > 0
    latest()
    dataset.refresh_index()
    assert dataset.verify().ok
    if raced is of_iceberg:
        spark.sql(f"DROP TABLE {table}")
