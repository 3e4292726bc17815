"""What an operation on a dataset starts from: the DataFrame of now and its files."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from geoskip.spark.analysis import FileRelation
from geoskip.spark.dataset.listing import FileListing

__all__ = ["SourceState"]


@dataclass(frozen=True)
class SourceState:
    """A dataset as it is at one moment."""

    spark: SparkSession
    frame: DataFrame
    source: FileRelation
    files: FileListing
    since: float = 0.0
    """When the listing began, in seconds since 1970."""
