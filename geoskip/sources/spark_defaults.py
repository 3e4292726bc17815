"""Spark's default settings for reading Parquet, its version, and the class of its reader."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from geoskip.sources.settings import CHANGED

PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_ASSUMED = "4.0.0"
"""Version of Spark where none is installed."""


@cache
def spark_version() -> str:
    """Version of the installed PySpark, which is not imported."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return _ASSUMED


def default_settings(spark: str) -> dict[str, str | None]:
    """Spark's settings for reading Parquet by the version of Spark.

    >>> default_settings("3.5.4")["spark.sql.parquet.datetimeRebaseModeInRead"]
    'EXCEPTION'
    """
    mode = "EXCEPTION" if spark.startswith("3.") else "CORRECTED"
    return {
        "spark.sql.caseSensitive": "false",
        "spark.sql.parquet.int96RebaseModeInRead": mode,
        "spark.sql.parquet.datetimeRebaseModeInRead": mode,
        "spark.sql.parquet.binaryAsString": "false",
        "spark.sql.parquet.int96AsTimestamp": "true",
        "spark.sql.parquet.int96TimestampConversion": "false",
        "spark.sql.legacy.parquet.nanosAsLong": "false",
        CHANGED: "{}",
    }
