"""The statistics table in Spark: a DataFrame, and the table function ``geoskip_statistics`` of SQL.

The function reads the metadata in a Python worker, from a folder that the worker can access, and never with keys: those
of protected metadata stay in the driver, where ``Dataset.statistics()`` reads them. PySpark cannot register a function
with a dot in its name, so that there is no ``geoskip.statistics`` in SQL.
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
"""The columns of the statistics table as Spark's types; given as SQL, they would need the session's parser."""
_ROWS = 1024


class StatisticsFunction:
    """The rows of the statistics table of a dataset's folder; its metadata may be in another folder."""

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
    """Create a DataFrame from a statistics table."""
    return spark.createDataFrame(list(_rows(table)), COLUMNS)


_sessions: set[str] = set()
"""The sessions with the function, since Spark warns if a function is registered again."""


def register_statistics(spark: SparkSession) -> None:
    """Register ``geoskip_statistics`` for SQL, once for each session."""
    session = spark._jsparkSession.sessionUUID()
    if session not in _sessions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PySpark 4.3 warns about pandas 3, which is not used here
            function: Any = udtf(StatisticsFunction, returnType=COLUMNS)
            spark.udtf.register(NAME, function)
        _sessions.add(session)
