"""Queries of a table of Iceberg that another process changes: on against off at the same version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import rows_of
from tests.support.iceberg_tables import iceberg, make

SECONDS = float(os.environ.get("GEOSKIP_TABLE_RACE", "0"))
CONDITIONS = ("temp % 7 = 6 AND temp > 33", "temp % 7 = 9", "temp BETWEEN 10 AND 12 OR temp % 7 = 3", "name = 'new'")


def test_a_race_of_merge_rewrite_and_delete_with_queries(spark: Any) -> None:
    warehouse = Path(spark.conf.get("spark.sql.catalog.ice.warehouse")).parent
    table = "ice.db.raced"
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    make(spark, table, **{"format-version": "2", **modes})
    dataset = geoskip.dataset(spark, table=table)
    dataset.create_index(MinMax("temp"), ValueList("temp % 7"), ValueList("name"))
    writer_of = [sys.executable, "-m", "tests.tables.iceberg_writer", str(warehouse), table, str(SECONDS)]
    asked = skipped = 0
    versions = set()
    with subprocess.Popen(
        [*writer_of, str(os.getpid())], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as writer:
        while writer.poll() is None:
            if asked % 5 == 4:
                dataset.refresh_index()
            condition = CONDITIONS[asked % len(CONDITIONS)]
            spark.sql(f"SELECT * FROM {table} WHERE {condition}").collect()  # of whatever version is the latest
            spark.sql(f"REFRESH TABLE {table}")
            version = iceberg(spark, table).currentSnapshot().snapshotId()
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
    assert int(Path(f"{warehouse}.changed").read_text()) >= 5
    assert len(versions) > 2
    assert skipped > 0
    spark.sql(f"REFRESH TABLE {table}")
    dataset.refresh_index()
    assert dataset.verify().ok
    spark.sql(f"DROP TABLE {table}")
