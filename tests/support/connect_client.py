"""A client of Spark Connect in a separate process without geoskip, which prints its results.

Run as ``python connect_client.py ADDRESS FOLDER``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

EARLY, LATE = "temp IN (15, 35)", "temp IN (15, 45)"


def main(address: str, folder: str) -> dict[str, Any]:
    """Create, query and drop an index, with geoskip on, off, and off in another session only."""
    spark: Any = SparkSession.builder.remote(address).getOrCreate()
    target = f"parquet.`{folder}`"
    found: dict[str, Any] = {}

    def ask(name: str, text: str) -> None:
        found[name] = [row.asDict() for row in spark.sql(text).collect()]

    def query(name: str, where: str, session: Any = spark) -> None:
        rows = session.read.parquet(folder).where(where).select("temp", "id", "city").collect()
        found[name] = sorted(map(list, rows))

    def fail(name: str, text: str) -> None:
        try:
            spark.sql(text).collect()
        except PySparkException as error:
            found[name] = str(error)

    query("before", EARLY)
    ask("created", f"CREATE SKIPPING INDEX ON {target} (temp MINMAX)")
    query("on", EARLY)
    spark.udf.register("plus", lambda n: n + 1, "bigint")
    query("with a function", f"{EARLY} AND plus(temp) > 0")
    ask("report with a function", f"EXPLAIN SKIPPING SELECT * FROM {target} WHERE plus(temp) > 99 AND temp > 25")
    spark.sql("SET spark.geoskip.enabled=false")
    query("off", EARLY)
    other = SparkSession.builder.remote(address).create()
    query("on in another session", EARLY, other)
    spark.conf.set("spark.geoskip.enabled", "true")
    query("on again", EARLY)

    more = spark.range(40, 50).selectExpr("id AS temp", "id", "'c' AS city", "'' AS pad")
    more.coalesce(1).write.mode("append").parquet(folder)
    query("unindexed", LATE)
    ask("refreshed", f"REFRESH SKIPPING INDEX ON {target}")
    query("refreshed on", LATE)
    spark.conf.set("spark.geoskip.enabled", "false")
    query("refreshed off", LATE)
    spark.conf.set("spark.geoskip.enabled", "true")

    spark.read.parquet(folder).where(LATE).createOrReplaceTempView("late")
    ask("report", "EXPLAIN SKIPPING SELECT temp FROM late")
    ask("described", f"DESCRIBE SKIPPING INDEX ON {target}")
    fail("wrong type", f"CREATE SKIPPING INDEX ON {target} (temp MINMAXX)")
    fail("no such index", f"DROP SKIPPING INDEX minmax(id) ON {target}")
    ask("dropped", f"DROP SKIPPING INDEX ON {target}")
    query("dropped on", LATE)
    found["refusals"] = refusals(spark)
    return found


def refusals(spark: Any) -> list[str]:
    """Return the errors of geoskip's functions for classic sessions in a client that has geoskip."""
    del sys.modules["geoskip"]
    import geoskip

    said = []
    frame = spark.range(1)
    for call, given in ((geoskip.enable, spark), (geoskip.dataset, spark), (geoskip.report, frame)):
        try:
            call(given)
        except geoskip.GeoskipError as error:
            said.append(str(error))
    return said


if __name__ == "__main__":
    sys.modules["geoskip"] = None  # type: ignore[assignment]  # importing it fails: a client needs none
    print(json.dumps(main(*sys.argv[1:]), default=str))
