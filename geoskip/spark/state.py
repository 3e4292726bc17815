"""What an operation on a dataset starts from: the DataFrame of now and its files."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from geoskip.spark.analysis import Source
from geoskip.spark.listing import Files

__all__ = ["State"]


@dataclass(frozen=True)
class State:
    """A dataset as it is at one moment."""

    spark: SparkSession
    frame: DataFrame
    source: Source
    files: Files
    since: float = 0.0
    """When the listing began, in seconds since 1970."""
