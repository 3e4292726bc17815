"""The uses of geoskip that are shown, each run at a small size: rows are equal, and files are skipped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import geoskip
from examples import custom_udf_mapping, log_analytics

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: Any) -> Any:
    """A session of its own, so that functions and views of the examples end with it."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    geoskip.register_functions(own)
    return own


@pytest.mark.slow
def test_log_analytics(session: Any, tmp_path: Path) -> None:
    console = Console(width=120, file=io.StringIO())
    found = log_analytics.run(session, tmp_path / "log", console, lines=6000, days=3, files=4)
    *answers, before, after = found
    kept = {answer.question.title: answer.report.files_kept for answer in answers}
    assert kept == {
        "the paper's: hostile agents": 1,
        "who read a table": 2,
        "probes for a script": 1,
        "an account on a day": 1,
        "errors from a network": 1,
        "one request": 1,
    }
    assert all(answer.report.files_total == 12 and answer.rows > 0 for answer in answers)
    assert (before.report.files_kept, after.report.files_kept) == (5, 1), "new files are read until they are indexed"


@pytest.mark.slow
def test_custom_udf_mapping(session: Any, tmp_path: Path) -> None:
    written = io.StringIO()
    console = Console(width=120, file=written)
    outcomes = custom_udf_mapping.run(session, tmp_path, console, files=40, every=3)
    kept = {one.title.partition(":")[0]: one.files_after for one in outcomes}
    assert all(one.rows > 0 and one.files_before == 40 for one in outcomes)
    assert max(kept.values()) < 36, kept
    assert "within 40 km of Denver" in written.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (custom_udf_mapping.solar_hour, ["longitude"]),
        (custom_udf_mapping.soundex_code, ["words"]),
        (custom_udf_mapping.kilometres, ["longitude", "latitude", "longitude", "latitude"]),
        (custom_udf_mapping.steps_apart, ["zip codes", "zip codes"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_mappings_shown_are_right(function: Any, rows: list[str]) -> None:
    check = geoskip.check_mapping(function, rows=rows, seconds=0.3)
    assert check.ok, str(check)


@pytest.mark.usefixtures("processor_time")
def test_the_wrong_mapping_shown_is_found_out() -> None:
    check = custom_udf_mapping.a_wrong_mapping()
    assert not check.ok
    assert "<- lost" in str(check)
