"""Sedona's jar: which packages bring it, whether it is there, how its functions are registered."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem

__all__ = ["is_there", "packages", "register"]

_SHADED = {"3.5": "3.5_2.12:1.8.0", "4.0": "4.0_2.13:1.8.0"}
_WRAPPER = "1.8.0-33.1"


def packages() -> tuple[str, str]:
    """The Maven coordinates of Sedona for the installed PySpark."""
    line = ".".join(pyspark.__version__.split(".")[:2])
    if line not in _SHADED:
        raise EnvironmentProblem(
            f"Sedona has no release for PySpark {pyspark.__version__}, only for {', '.join(_SHADED)}; "
            "without sedona=True geoskip registers shapely-backed ST_ functions instead"
        )
    return (
        f"org.apache.sedona:sedona-spark-shaded-{_SHADED[line]}",
        f"org.datasyslab:geotools-wrapper:{_WRAPPER}",
    )


def is_there(spark: SparkSession) -> bool:
    """Are Sedona's classes on this session's class path?"""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName("org.apache.sedona.spark.SedonaContext", True, False)
    except Exception:
        return False
    return True


def register(spark: SparkSession) -> None:
    """Register Sedona's functions, types and optimizer rules in this session."""
    from sedona.spark import SedonaContext

    SedonaContext.create(spark)
