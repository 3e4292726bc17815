"""The reason for which a session did not start, in what Spark printed."""

from __future__ import annotations

import pytest

from geoskip.spark.local_session import reason_printed


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ('Exception in thread "main" org.apache.spark.SparkException: Master must be yarn\n', "Master must be yarn"),
        ("ERROR Application has been killed. Reason: All masters are unresponsive! Giving up.",
         "All masters are unresponsive! Giving up."),
        ("WARN Utils: Set SPARK_LOCAL_IP", None),
    ],
)  # fmt: skip
def test_the_reason_is_that_of_the_launcher_or_of_the_master(printed: str, reason: str | None) -> None:
    assert reason_printed(printed) == reason
