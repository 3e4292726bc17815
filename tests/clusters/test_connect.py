"""A client of Spark Connect in a process of its own, whose server is in a driver with geoskip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import geoskip
from tests.conftest import four_tens
from tests.support import connect_client

QUERIES = {
    "before": 4,
    "on": 2,
    "with a function": 2,
    "off": 4,
    "on in another session": 2,
    "on again": 2,
    "unindexed": 2,
    "refreshed on": 2,
    "refreshed off": 5,
    "dropped on": 5,
}
"""How many files each query of the client reads, in order."""


class Answers(NamedTuple):
    """What the client printed, and the files that the server's scans read, by Spark's own metrics."""

    printed: dict[str, Any]
    files_read: list[int]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    data = four_tens(tmp_path_factory.mktemp("connect"))
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
        yield Answers(client(address, data), [*files_read(spark)])
    finally:
        spark.stop()


def client(address: str, data: Path) -> dict[str, Any]:
    """What a client in a process of its own prints."""
    command = [sys.executable, connect_client.__file__, address, str(data)]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def files_read(spark: Any) -> Iterator[int]:
    """How many files the client's queries read, by the metrics that Spark's own listener took of its executions."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for place in range(executions.size()):
        execution = executions.apply(place)
        if "In(temp, [15" not in execution.physicalPlanDescription():
            continue
        values, metrics = store.executionMetrics(execution.executionId()), execution.metrics()
        for number in range(metrics.size()):
            metric = metrics.apply(number)
            if metric.name() == "number of files read":
                yield int(values.apply(metric.accumulatorId()).replace(",", ""))


def test_queries_of_a_client_read_fewer_files(answers: Answers) -> None:
    assert dict(zip(QUERIES, answers.files_read, strict=True)) == QUERIES


def test_rows_of_a_client_are_those_with_geoskip_off(answers: Answers) -> None:
    printed = answers.printed
    early, late = [[15, 15, "c0"], [35, 35, "c2"]], [[15, 15, "c0"], [45, 45, "c"]]
    for name in QUERIES:
        assert printed[name] == (late if "refreshed" in name or name in ("unindexed", "dropped on") else early), name


def test_a_function_of_a_client_is_not_called_by_the_server(answers: Answers) -> None:
    (report,) = answers.printed["report with a function"]
    assert (report["files_read"], report["files_total"]) == (2, 4)
    assert report["reasons"] == [
        "plus(temp) > 99 is not used: it depends on more than the row, or geoskip cannot translate it"
    ]


def test_statements_of_a_client_create_refresh_describe_and_drop(answers: Answers) -> None:
    printed = answers.printed
    (created,), (refreshed,), (described,) = printed["created"], printed["refreshed"], printed["described"]
    assert (created["index"], created["files"], created["files_read"]) == ("minmax(temp)", 4, 4)
    assert (refreshed["index"], refreshed["files"], refreshed["files_read"]) == ("minmax(temp)", 5, 1)
    assert described["index"] == "minmax(temp)"
    assert printed["dropped"] == [{"index": "minmax(temp)", "state": "deleted"}]


def test_a_client_reads_the_report_of_a_query(answers: Answers) -> None:
    (scan,) = answers.printed["report"]
    assert (scan["files_read"], scan["files_total"]) == (2, 5)
    assert scan["skipped_by"] == ["min(temp) .. max(temp) meets 2 values: 3 files"]


def test_errors_of_statements_reach_the_client(answers: Answers) -> None:
    wrong, missing = answers.printed["wrong type"], answers.printed["no such index"]
    assert "expected an index type, got MINMAXX" in wrong
    assert "^^^^^^^" in wrong, "it points at the token"
    assert "minmax(id)" in missing
    assert "minmax(temp)" in missing, "it names those that there are"


def test_a_client_that_has_geoskip_is_shown_to_the_server(answers: Answers) -> None:
    assert len(answers.printed["refusals"]) == 3
    assert all("geoskip.connect_server(spark)" in text for text in answers.printed["refusals"])
