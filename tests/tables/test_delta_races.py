"""Queries of a table of Delta that another process changes: on against off at the same version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import rows_of
from tests.support.delta_tables import delta_table

SECONDS = float(os.environ.get("GEOSKIP_TABLE_RACE", "0"))
CONDITIONS = ("temp % 7 = 6 AND temp > 33", "temp % 7 = 9", "temp BETWEEN 10 AND 12 OR temp % 7 = 3", "name = 'new'")


def test_a_race_of_merge_optimize_and_delete_with_queries(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "raced"
    table = delta_table(spark, place, enableDeletionVectors="true")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(MinMax("temp"), ValueList("temp % 7"), ValueList("name"))
    command = [sys.executable, "-m", "tests.tables.delta_writer", str(place), str(SECONDS), str(os.getpid())]
    asked = skipped = 0
    versions = set()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None:
            if asked % 5 == 4:
                dataset.refresh_index()
            condition = CONDITIONS[asked % len(CONDITIONS)]
            spark.sql(f"SELECT * FROM {table} WHERE {condition}").collect()  # of whatever version is the latest
            version = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first().version
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
    made = int(Path(f"{place}.changed").read_text())
    assert len(versions) > 2
    assert made >= 5
    assert skipped > 0
    dataset.refresh_index()
    assert dataset.verify().ok
