"""The rows that matched, read once more: for pictures of a scan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["matching_rows"]

_SEED = 0
_SHUFFLED = 1 << 30
"""Bytes: of larger scans the first rows are taken, not some at random, which would read everything."""


def matching_rows(spark: SparkSession, facts: Any, expressions: Sequence[str], most: int) -> list[tuple[Any, ...]]:
    """The values of some SQL expressions over the relation's columns, for at most so many of a scan's matching rows.

    A query of geoskip's own, which no report shows. Where it cannot be made or fails there are no rows, and a warning.
    """
    try:
        plan = facts.matching()
        if plan is None:
            return []
        frame = DataFrame(plan, spark).select(*(F.expr(text) for text in expressions))
        if facts.keptBytes() <= _SHUFFLED:
            frame = frame.orderBy(F.rand(_SEED))
        return [tuple(row) for row in frame.limit(most).collect()]
    except (Py4JJavaError, PySparkException) as error:
        first = str(error).strip().partition("\n")[0]
        warnings.warn(f"the matching rows could not be read again, so none are drawn: {first[:300]}", stacklevel=2)
        return []
