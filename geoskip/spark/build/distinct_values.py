"""Summaries of expressions over one column, evaluated once for each distinct value of a file.

An expression over one column has no more distinct values in a file than the column. Tasks that open the files
(:mod:`geoskip.sources.arrow_reader`) pass the distinct values of such columns to Spark; Spark evaluates the expressions
and passes the results to further tasks, which expand them to all rows and summarise these. An index gets the same
values, row by row, as from Spark's own reader, but Spark reads, converts and computes little. Indexes over plain
columns are summarised in the first tasks, while the file is open.

The values are the same, since Arrow reads a file only if its values of the columns are identical to Spark's, bit by bit
(otherwise Spark's reader is used); values are distinguished by their bits, so that -0.0 is not 0.0; the text of the
expression is analysed in the same session over columns of the same names and types; and indexed expressions are
deterministic. An expression may be evaluated for values for which a query would not: if that fails, Spark's own reader
is used, and reports the error.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from geoskip.metadata import IndexEntry
from geoskip.sources.arrow_reader import FileResult
from geoskip.sources.bound_indexes import texts_of, typed_columns
from geoskip.sources.column_names import unquote_name
from geoskip.sources.footers import IndexPlan, is_readable
from geoskip.sources.listed_files import ListedFile
from geoskip.sources.worker_tasks import PAYLOAD, ExpressionPlan, expanding_task, reading_task
from geoskip.spark.analysis import arrow_type
from geoskip.spark.build.listing import SourceState
from geoskip.spark.build.spark_jobs import check_not_cancelled, reason_of, run_job
from geoskip.spark.build.spark_reader import arrow_columns, reading_progress, shares_of

_LARGEST = 32 << 20
"""Maximum size of a file for this reader: larger ones may have too many distinct values."""


def expression_plan(
    frame: DataFrame, entries: Sequence[IndexEntry], plans: Sequence[IndexPlan], files: Sequence[ListedFile]
) -> ExpressionPlan | None:
    """Plan for expressions over one column each; None if Spark's reader must or should be used.

    Parameters
    ----------
    frame, entries
        The dataset's DataFrame, which must be a plain relation of files, and the indexes to build.
    plans, files
        The plans of indexes over plain columns, and the files to read; None is returned if one of them is large.
    """
    planned = {plan.name for plan in plans}
    left = tuple(entry for entry in entries if entry.name not in planned)
    bound = {text: found for e in left for text, found in zip(texts_of(e.index), e.index.bound, strict=True)}
    read = {text: typed_columns(found) for text, found in bound.items()}
    columns = tuple(dict.fromkeys(column for some in read.values() for column in some))
    fits = (
        all(len(some) == 1 for some in read.values())
        and all(is_readable(name, kind) for name, kind in columns)
        and all(file.size <= _LARGEST for file in files)
        and _is_relation(frame)
    )
    if not fits:
        return None
    numbers = {text: number for number, text in enumerate(bound)}
    expressions = tuple((text, columns.index(column)) for text, some in read.items() for column in some)
    indexes = tuple((e.name, e.index, tuple(numbers[text] for text in texts_of(e.index))) for e in left)
    return ExpressionPlan(tuple(plans), columns, expressions, indexes)


def _is_relation(frame: DataFrame) -> bool:
    """Test whether it is a plain relation: no view with computed columns, no table with padded columns."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return str(plan.getClass().getSimpleName()) == "LogicalRelation"


def compute_expressions(
    state: SourceState, plan: ExpressionPlan, files: Sequence[ListedFile], *, case_sensitive: bool
) -> list[FileResult] | None:
    """Summaries of local Parquet files by one job; None if it fails.

    Parameters
    ----------
    state, plan, files
        The dataset, the plan from :func:`expression_plan`, and the files, all of them on the local file system.
    case_sensitive
        True if column names are case-sensitive.
    """
    spark = state.spark
    shares = shares_of(spark, files)
    tasks = len(shares)
    try:
        schema = state.frame.schema
        fields = {field.name.lower() if not case_sensitive else field.name: field for field in schema.fields}
        names = [unquote_name(name) for name, _ in plan.columns]
        typed = [fields[name if case_sensitive else name.lower()] for name in names]
        given = [T.StructField(field.name, field.dataType) for field in typed]
        schema = T.StructType([T.StructField(PAYLOAD, T.BinaryType()), *given])
        types = [arrow_type(field) for field in typed]
        read = spark.range(0, tasks, 1, tasks).mapInArrow(reading_task(shares, plan, types, case_sensitive), schema)
        selected = read.select(PAYLOAD, *arrow_columns(read, [text for text, _ in plan.expressions]))
        job = selected.mapInArrow(expanding_task(plan), "payload binary")
        with reading_progress(spark, files, tasks):
            return [each for row in run_job(job.collect) for each in pickle.loads(row["payload"])]
    except KeyError:
        return None
    except (PySparkException, Py4JJavaError) as error:
        check_not_cancelled(reason_of(error))
        return None
