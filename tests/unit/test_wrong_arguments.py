"""Arguments of another kind than a function of the interface takes: the call, the expected and the got are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import geoskip
from geoskip.errors import EnvironmentProblem, GeoskipError, InvalidSpecificationError, MappingError


@pytest.mark.parametrize(
    "call",
    [
        geoskip.enable, geoskip.disable, geoskip.is_enabled, geoskip.last_report, geoskip.reports, geoskip.datasets,
        geoskip.wait_for_audits, geoskip.workload_log, geoskip.register_functions,
        lambda spark: geoskip.disabled(spark).__enter__(),
        lambda spark: geoskip.sql(spark, "SHOW SKIPPING INDEXES"),
        lambda spark: geoskip.dataset(spark, "data"),
    ],
    ids=lambda call: getattr(call, "__name__", ""),
)  # fmt: skip
def test_what_is_no_session(call: Callable[[Any], Any]) -> None:
    with pytest.raises(EnvironmentProblem, match="takes a SparkSession whose driver is here, got 3"):
        call(3)


@pytest.mark.parametrize(
    "call",
    [geoskip.files, geoskip.listing, geoskip.pyarrow_dataset, geoskip.scan_polars, geoskip.read_geoparquet],
    ids=lambda call: call.__name__,
)
def test_what_is_no_path(call: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidSpecificationError, match="a path of a dataset is a text, got 3"):
        call(3)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (geoskip.report, InvalidSpecificationError, r"^report\(\) is about a DataFrame of Spark's, got builtins.int"),
        (geoskip.explain, InvalidSpecificationError, r"^explain\(\) is about a DataFrame of Spark's, got builtins.int"),
        (geoskip.why_not, InvalidSpecificationError, r"^why_not\(\) takes a DataFrame, a report, a scan .*, got 3"),
        (geoskip.workload, InvalidSpecificationError, r"^workload\(\) takes several queries, got 3"),
        (geoskip.what_if, InvalidSpecificationError, "expected a dataset, as of geoskip.dataset.*, got int"),
        (geoskip.recommend, InvalidSpecificationError, "expected a dataset, as of geoskip.dataset.*, got int"),
        (geoskip.configure, InvalidSpecificationError, "takes a builder such as SparkSession.builder, got 3"),
        (geoskip.statistics, InvalidSpecificationError, "a path of a dataset is a text, got 3"),
        (geoskip.duckdb, InvalidSpecificationError, r"wraps what duckdb.connect\(...\) returns, got 3"),
        (geoskip.check_mapping, MappingError, "takes a Python function, a UDF, .* name of one, got 3"),
        (geoskip.release, InvalidSpecificationError, r"called 3; in it is nothing, and geoskip.quarantined\(\) has"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_call_cannot_take(call: Callable[[Any], Any], error: type[GeoskipError], says: str) -> None:
    with pytest.raises(error, match=says):
        call(3)
