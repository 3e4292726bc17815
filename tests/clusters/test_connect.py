"""Clients of Spark Connect, whose server is in a driver with geoskip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import geoskip
from geoskip import MinMax
from tests.conftest import four_tens

CLIENT = """
import json, sys
import geoskip
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
frame = spark.read.parquet(sys.argv[2]).where("temp = 15")
def refusal(call):
    try:
        call()
    except geoskip.GeoskipError as error:
        return str(error)
explained = spark.sql(f"EXPLAIN SKIPPING SELECT * FROM parquet.`{sys.argv[2]}` WHERE temp = 15")
print(json.dumps({
    "rows": [row.temp for row in frame.collect()],
    "explained": [row.asDict() for row in explained.collect()],
    "refused": [refusal(lambda: geoskip.enable(spark)), refusal(lambda: geoskip.report(frame))],
}, default=str))
"""


def test_queries_of_clients_skip_and_tell_what_they_read(tmp_path: Path) -> None:
    data = four_tens(tmp_path)
    geoskip.build(str(data), MinMax("temp"))
    config = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.geoskip.planning.budget": "120",
        "spark.connect.grpc.binding.port": "0",
    }
    spark = geoskip.session("geoskip-connect", sedona=False, config=config)
    try:
        spark.sparkContext.setLogLevel("OFF")
        address = geoskip.connect_server(spark)
        assert geoskip.connect_server(spark) == address, "one server a driver"
        answer = client(address, data)
    finally:
        spark.stop()
    assert answer["rows"] == [15]
    assert all("geoskip.connect_server(spark)" in text for text in answer["refused"])
    assert {row["files_read"] for row in answer["explained"]} == {1}


def client(address: str, data: Path) -> Any:
    """What a client in a process of its own prints."""
    command = [sys.executable, "-c", CLIENT, address, str(data)]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])
