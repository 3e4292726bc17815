"""A query's own Python functions, called for single values while it is planned.

The rules of conversion are Spark's for functions that are pickled row by row, where they leave no doubt: a value comes
as the plain Python type of its column, and a result counts only if it is of the declared type's own Python type. All
else is unknown: what Spark would make of it depends on the setting of Arrow for Python functions, and on its version.
Decimals come with the digits of their type, and are rounded to it half up on the way back.

They are called by a process that is as Spark's workers are (:mod:`geoskip.spark.rule.udf_process`). That one alone
knows which instant the clocks of a worker show; what they show twice or never is not taken, for C's ``mktime`` is free
to choose.

A function that is declared to be evaluated for constants as itself (:func:`geoskip.constant`) depends on nothing but
its arguments: it is called right here, which takes no process and no workers on this machine.
"""

from __future__ import annotations

import base64
import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from geoskip.evaluation import Declined
from geoskip.predicates import Literal
from geoskip.spark.rule.translate import UNIDENTIFIED, implementation_of
from geoskip.spark.rule.udf_process import Rows, call_in_worker
from geoskip.types import sql_type

__all__ = ["called"]

Json = Mapping[str, Any]
_ROW_BY_ROW = (100, 101)
"""Spark's codes of plain functions, pickled and through Arrow."""
_THROUGH_ARROW = 101
_AS_THEY_ARE = frozenset(["string", "boolean"])
"""Types of which Arrow, and pandas behind it, leave every value as it is: a NULL number becomes NaN, NaN becomes NULL,
and whole numbers beside NULL become floats."""
_EPOCH = dt.date(1970, 1, 1).toordinal()


def called(
    node: Json,
    arguments: Sequence[pa.Array | Literal],
    kinds: Sequence[str],
    settings: Mapping[str, Any],
    thrown: Any,
    deadline: float,
    pure: Callable[..., Any] | None = None,
) -> tuple[pa.Array, Any]:
    """Call a Python UDF; return physical values, and marks of the unknown ones.

    Parameters
    ----------
    node
        The call as the rule wrote it.
    arguments
        Physical values, or one literal for all rows.
    kinds
        Spark's types of the arguments.
    settings
        The settings of the query.
    thrown
        Marks of rows for which an argument threw: the function is not called for them.
    deadline
        The monotonic time at which the call is given up.
    pure
        The function itself, if its values depend on its arguments alone.

    Raises
    ------
    geoskip.evaluation.Declined
        With a reason, where the function cannot be called.
    """
    name = node["name"]
    if node["evalType"] not in _ROW_BY_ROW:
        raise Declined(f"{name} takes whole columns, and is not called for single values")
    if implementation_of(node["python"]).endswith(UNIDENTIFIED):
        raise Declined(f"{name} cannot be told from another version of itself")
    if any(str(child.get("class", "")).endswith(".NamedArgumentExpression") for child in node["children"]):
        raise Declined(f"{name} is called with named arguments")
    result = node["type"]
    if node["evalType"] == _THROUGH_ARROW and not _AS_THEY_ARE.issuperset([*kinds, result]):
        raise Declined(f"{name} goes through Arrow, where numbers depend on what else is NULL")
    take = _taking(result, name)
    columns = [
        _column(argument, _giving(kind, name, settings), len(thrown))
        for argument, kind in zip(arguments, kinds, strict=True)
    ]
    unknown = np.array(thrown, dtype=bool)
    for column in columns:
        unknown |= np.fromiter((value is _NONE_SUCH for value in column), bool, len(column))
    asked = np.flatnonzero(~unknown)
    given = [[column[number] for number in asked] for column in columns]
    if pure is not None and "timestamp" not in (*kinds, result):
        returned, failed = _called_here(pure, given, deadline)
    else:
        returned, failed = call_in_worker(
            base64.b64decode(node["python"]),
            given,
            clocks=[kind == "timestamp" for kind in kinds],
            is_instant=result == "timestamp",
            settings=settings,
            deadline=deadline,
        )
    found: list[Any] = [None] * len(thrown)
    for number, value, has_failed in zip(asked, returned, failed, strict=True):
        try:
            found[number] = None if has_failed else take(value)
            unknown[number] = has_failed
        except (TypeError, ValueError, ArithmeticError):
            unknown[number] = True
    return pa.array(found, _arrow(result)), unknown


def _called_here(function: Callable[..., Any], columns: Sequence[Sequence[Any]], deadline: float) -> Rows:
    """The values of a function for each row, and for which rows it raised; raises Declined."""
    values: list[Any] = []
    failed: list[bool] = []
    for row in zip(*columns, strict=True):
        if time.monotonic() > deadline:
            raise Declined(f"after {len(values):,} calls the planning budget was spent")
        try:
            values.append(function(*row))
            failed.append(False)
        except Exception:  # a row for which it raises fails the query, unless Spark never comes to it
            values.append(None)
            failed.append(True)
    return values, failed


_NONE_SUCH = object()
"""Stands for a value that Python has none for, as a day of the year 10000: Spark fails on it."""


def _column(argument: pa.Array | Literal, give: Callable[[Any], Any], length: int) -> list[Any]:
    """An argument's values as a worker would get them."""

    def given(value: Any) -> Any:
        try:
            return None if value is None else give(value)
        except (ValueError, OverflowError, OSError):
            return _NONE_SUCH

    if isinstance(argument, Literal):
        value = argument.value
        return [given(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)] * length
    return [given(value) for value in argument.to_pylist()]


def _giving(kind: str, name: str, settings: Mapping[str, Any]) -> Callable[[Any], Any]:
    """From a physical value to what a worker would get; raises where Python has no such value."""
    of = sql_type(kind)
    if of.is_decimal:
        return lambda value: Decimal(_of_scale(value, of.scale).to_eng_string())  # as Spark writes it to workers
    if kind == "binary":  # since Spark 4.1 bytes, where nobody asks for what was before
        return bytes if str(settings.get(_AS_BYTES)).lower() == "true" else bytearray
    if of.is_integral:
        return int
    if of.kind == "interval second":
        return T.DayTimeIntervalType().fromInternal
    if kind not in _GIVEN:
        raise Declined(f"{name} takes a {kind}, which is not given to functions here")
    return _GIVEN[kind]


_AS_BYTES = "spark.sql.execution.pyspark.binaryAsBytes"
_ALL_DIGITS = Context(prec=100, rounding=ROUND_HALF_UP)


def _of_scale(value: Decimal, scale: int) -> Decimal:
    """The number with so many digits after the point, rounded half up."""
    return value.quantize(Decimal((0, (1,), -scale)), context=_ALL_DIGITS)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Declined("some of the strings are not UTF-8") from None


_GIVEN: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "double": float,
    "boolean": bool,
    "string": _text,
    "date": lambda days: dt.date.fromordinal(_EPOCH + days),
    "timestamp": int,
    "timestamp_ntz": T.TimestampNTZType().fromInternal,
}


def _taking(kind: str, name: str) -> Callable[[Any], Any]:
    """From a result to its physical value; raises where it is of another type than declared."""

    def exactly(*wanted: type, physical: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def take(value: Any) -> Any:
            if value is None:
                return None
            if type(value) not in wanted:
                raise TypeError(f"{name} returned {type(value).__name__}")
            return physical(value)

        return take

    def within(values: range, whole: Callable[[Any], Any]) -> Callable[[Any], int]:
        def fitting(value: Any) -> int:
            found = int(whole(value))
            if found not in values:
                raise OverflowError(name)
            return found

        return fitting

    of = sql_type(kind)
    if of.is_integral:
        return exactly(int, physical=within(of.values, int))
    if of.is_decimal:
        return exactly(Decimal, physical=lambda value: _rounded(value, of.precision, of.scale))
    match kind:
        case "double":
            return exactly(float, physical=float)
        case "float":
            return exactly(float, physical=_single)
        case "boolean":
            return exactly(bool, physical=int)
        case "string":
            return exactly(str, physical=lambda text: text.encode("utf-8"))
        case "binary":
            return exactly(bytes, bytearray, physical=bytes)
        case "date":
            return exactly(dt.date, dt.datetime, physical=lambda day: day.toordinal() - _EPOCH)
        case "timestamp":
            return exactly(int, physical=int)
        case "timestamp_ntz":
            return exactly(dt.datetime, physical=T.TimestampNTZType().toInternal)
        case "interval day to second":
            return exactly(dt.timedelta, physical=within(sql_type("bigint").values, T.DayTimeIntervalType().toInternal))
    raise Declined(f"{name} returns a {kind}, which is not taken from functions here")


def _single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _rounded(value: Decimal, precision: int, scale: int) -> Decimal:
    if not value.is_finite() or (value and value.adjusted() > precision):
        raise OverflowError(f"{value} has more than {precision} digits")
    found = _of_scale(value, scale)
    if len(found.as_tuple().digits) > precision:
        raise OverflowError(f"{value} has more than {precision} digits")
    return found


def _arrow(kind: str) -> pa.DataType:
    of = sql_type(kind)
    if of.is_decimal:
        return of.arrow
    if kind in ("string", "binary"):
        return pa.binary()
    return pa.float64() if of.is_floating else pa.int64()
