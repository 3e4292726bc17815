"""Expressions of a layout, resolved by Spark and converted to types with the same order in a worker.

Integers, booleans, dates, timestamps, intervals and decimals of up to 18 digits are passed as long, floats as double.
NULLs are 0 and marked in one bit mask for each row, since pandas would convert a batch of longs with NULLs to floats,
and two batches could then differ in the same value. Geometries are passed as WKB, strings as their bytes, since Spark
does not ensure that they are UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.layout.ranks import Ints
from geoskip.layout.specification import Layout
from geoskip.spark.analysis import columns_for, select_texts
from geoskip.spark.build.spark_reader import arrow_columns
from geoskip.types import DAY

_LONG_DIGITS = 18


@dataclass(frozen=True)
class LayoutColumns:
    """The expressions of a layout over one DataFrame.

    Attributes
    ----------
    plain
        The expressions themselves.
    values
        Each expression as it is passed to workers.
    types
        The Arrow type of each of ``values``; NULLs of longs and doubles are 0.
    nulls
        A long in which bit i is set if the i-th value is NULL.
    """

    plain: tuple[Column, ...]
    values: tuple[Column, ...]
    types: tuple[pa.DataType, ...]
    nulls: Column

    @classmethod
    def of(cls, frame: DataFrame, layout: Layout) -> LayoutColumns:
        """Resolve the expressions of a layout.

        Raises
        ------
        UnknownColumnError
            For a column that the DataFrame lacks, with the nearest name.
        UnsupportedColumnError
            For a type without an order.
        InvalidSpecificationError
            For invalid SQL, and expressions that read no column or depend on more than the row: rand(), aggregates,
            windows, generators.
        """
        texts = layout.expressions
        selected = select_texts(frame, texts, layout)
        _check_rows_alone(layout, frame, selected)
        columns = arrow_columns(frame, texts)
        fields = frame.select(*columns).schema.fields
        given = selected.schema.fields
        found = [
            _worker_form(layout, text, column, field.dataType, before.dataType)
            for text, column, field, before in zip(texts, columns, fields, given, strict=True)
        ]
        nulls = F.lit(0).cast("bigint")
        for number, column in enumerate(columns):
            nulls = nulls.bitwiseOR(F.when(column.isNull(), F.lit(1 << number)).otherwise(F.lit(0)).cast("bigint"))
        plain = tuple(columns_for(frame, texts))
        return cls(plain, tuple(value for value, _ in found), tuple(kind for _, kind in found), nulls)


def arrow_values(types: Sequence[pa.DataType], values: Sequence[Any], nulls: Ints) -> list[pa.Array]:
    """Arrow arrays of the values of some rows, given as pandas' series or Arrow's columns."""
    found = []
    for number, (kind, column) in enumerate(zip(types, values, strict=True)):
        if kind in (pa.int64(), pa.float64()):
            is_null = (nulls >> number) & 1 == 1
            mask = is_null if is_null.any() else None  # without a mask nothing is copied
            found.append(pa.array(np.asarray(column.to_numpy()), kind, mask=mask, from_pandas=False))
            continue
        sent = pa.binary() if kind == pa.string() else kind
        is_arrow = isinstance(column, pa.ChunkedArray)
        array = column.combine_chunks() if is_arrow else pa.Array.from_pandas(column, type=sent)
        found.append(array.cast(sent).view(kind))  # unlike a cast, a view accepts strings that are not UTF-8
    return found


def _check_rows_alone(layout: Layout, frame: DataFrame, selected: DataFrame) -> None:
    """Raise an error for an expression that is given twice, or depends on more than columns of its row."""
    plan: Any = selected._jdf.queryExecution().analyzed()
    found: list[Any] = [plan.expressions().apply(number) for number in range(plan.expressions().size())]
    found = [each.child() if each.nodeName() == "Alias" else each for each in found]
    for number, (text, expression) in enumerate(zip(layout.expressions, found, strict=False)):
        if not expression.deterministic():
            raise InvalidSpecificationError(
                f"{layout}: {text} is not deterministic, so a row would belong to a file by chance; use an expression "
                "whose value depends on the row alone"
            )
        if plan.nodeName() == "Project" and expression.references().isEmpty():
            raise InvalidSpecificationError(
                f"{layout}: {text} reads no column, so it puts rows in no order; name a column, or an expression over "
                f"the columns {', '.join(frame.columns[:20])}"
            )
        if any(expression.semanticEquals(before) for before in found[:number]):
            raise InvalidSpecificationError(f"{layout}: {text} has the values of one before it; name each once")
    child: Any = frame._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Project" or not plan.child().sameResult(child):
        raise InvalidSpecificationError(
            f"{layout} is over more than one row (an aggregate, a window or a generator); use expressions over the "
            "columns of one row, or add the result as a column first"
        )


def _worker_form(
    layout: Layout, text: str, column: Column, kind: T.DataType, given: T.DataType
) -> tuple[Column, pa.DataType]:
    """An expression in the form in which it is passed to workers, and its Arrow type there."""
    whole = _whole(column, kind)
    if whole is not None:
        return F.coalesce(whole.cast("bigint"), F.lit(0).cast("bigint")), pa.int64()
    match kind:
        case T.FloatType() | T.DoubleType():
            return F.coalesce(column.cast("double"), F.lit(0.0)), pa.float64()
        case T.DecimalType():
            return column, pa.decimal128(kind.precision, kind.scale)
        case T.BinaryType():
            return column, pa.binary()
        case T.StringType() | T.CharType() | T.VarcharType():
            return column.cast("string").cast("binary"), pa.string()
    if type(kind).__name__ == "TimeType":  # since Spark 4.1; the text form has the same order
        return column.cast("string").cast("binary"), pa.string()
    raise UnsupportedColumnError(
        f"{layout}: {text} is of type {given.simpleString()}, whose values have no order that a layout could follow; "
        "use numbers, texts, times or geometries, such as a field or a function of it"
    )


def _whole(column: Column, kind: T.DataType) -> Column | None:
    """An expression as an integer with the same order as its values; None for types without one."""
    match kind:
        case T.NullType():
            return F.lit(0)
        case T.BooleanType() | T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return column
        case T.DateType():
            return F.unix_date(column)
        case T.TimestampType():
            return F.unix_micros(column)
        case T.TimestampNTZType():
            return F.unix_date(column.cast("date")) * F.lit(DAY) + _micros_of_day(column)
        case T.DayTimeIntervalType():
            whole = column.cast("interval day to second")
            return F.date_part(F.lit("DAY"), whole) * F.lit(DAY) + _micros_of_day(whole)
        case T.YearMonthIntervalType():
            whole = column.cast("interval year to month")
            return F.date_part(F.lit("YEAR"), whole) * F.lit(12) + F.date_part(F.lit("MONTH"), whole)
        case T.DecimalType() if kind.precision <= _LONG_DIGITS:
            return column * F.lit(10**kind.scale).cast(f"decimal({kind.scale + 1}, 0)")
    return None


def _micros_of_day(column: Column) -> Column:
    hours, minutes, seconds = (F.date_part(F.lit(part), column) for part in ("HOUR", "MINUTE", "SECOND"))
    whole = (hours * F.lit(60) + minutes).cast("bigint") * F.lit(60_000_000)
    return whole + (seconds * F.lit(1_000_000)).cast("bigint")
