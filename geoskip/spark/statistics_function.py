"""The statistics table in Spark: a DataFrame, and the table function ``geoskip_statistics`` of SQL.

The function reads the metadata in a Python worker, from a folder that the worker can reach, and never with keys: those
of protected metadata stay with the driver, where ``Dataset.statistics()`` reads. Python registers no function under a
name with a dot, so that there is no ``geoskip.statistics`` in SQL.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.functions import udtf

from geoskip.engines.statistics import SCHEMA, statistics
from geoskip.errors import GeoskipError

NAME = "geoskip_statistics"
_TYPES = {
    pa.string(): T.StringType(),
    pa.int64(): T.LongType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.binary(): T.BinaryType(),
    pa.timestamp("us", "UTC"): T.TimestampType(),
    pa.timestamp("us"): T.TimestampNTZType(),
    pa.list_(pa.string()): T.ArrayType(T.StringType()),
}
COLUMNS = T.StructType([T.StructField(field.name, _TYPES[field.type], field.nullable) for field in SCHEMA])
"""The columns of the statistics table as Spark's types; as SQL they would start the session's parser."""
_ROWS = 1024


class StatisticsFunction:
    """The rows of the statistics table of a dataset's folder, whose metadata may be in another folder."""

    def eval(self, path: str, metadata: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows; raises the errors of :func:`geoskip.statistics`."""
        try:
            yield from _rows(statistics(path, metadata=metadata))
        except GeoskipError:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # the worker ends after it has sent the error
            raise


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def statistics_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a DataFrame of a statistics table."""
    return spark.createDataFrame(list(_rows(table)), COLUMNS)


_sessions: set[str] = set()
"""The sessions that have the function: Spark warns of each that is registered once more."""


def register_statistics(spark: SparkSession) -> None:
    """Register ``geoskip_statistics`` for SQL, once a session."""
    session = spark._jsparkSession.sessionUUID()
    if session not in _sessions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PySpark 4.3 is not sure of pandas 3, not used here
            function: Any = udtf(StatisticsFunction, returnType=COLUMNS)
            spark.udtf.register(NAME, function)
        _sessions.add(session)
