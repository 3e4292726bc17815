"""Values of indexed expressions in Parquet files as Spark reads them, also where Arrow differs.

:mod:`geoskip.sources.arrow_reader` reads the types that Arrow and Spark represent alike. This module reads the rest:
nested fields, columns that are missing or narrower in a file, INT96 timestamps, and calls of Python functions. A file
that only Spark can read gets a problem instead of summaries, and is always read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geoskip.engines.extras import require_package
from geoskip.indexes.base import Index
from geoskip.indexes.stored_bounds import sharing_results
from geoskip.predicates import Call, Column, Literal, Predicate, walk
from geoskip.registry.installed import offered_by_name
from geoskip.sources.arrow_reader import (
    FileResult,
    ValueGatherer,
    is_encrypted,
    is_signed,
    one_array,
    read_tables,
    store_summaries,
)
from geoskip.sources.column_names import matching_names, parts_of_name
from geoskip.sources.footers import GREGORIAN, TIMES_AGREE, least_value
from geoskip.types import SqlType, sql_type

_READER = "arrow"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"3.0.0")
_LAST_TIME = 253_402_300_800 * 10**6
"""The microsecond (the year 10000) up to which readers of INT96 agree."""
_OF_THE_DAY = ("parquet-mr", "impala")
"""Writers of INT96 that count the nanoseconds of a day from its beginning."""
_LAST_NANOSECOND = (1 << 63) // 1000
"""The microsecond (in 2262) of the last time as nanoseconds in 64 bits."""


class NeedsSpark(Exception):
    """Only Spark can read the values of a file; the message is the reason.

    ``expression`` is the indexed expression that needs Spark, or None if the file as a whole does.
    """

    expression: Predicate | None = None


class _FunctionFailed(Exception):
    """A function failed, or returned another type than declared; its indexes get no summary of the file."""

    def __init__(self, call: Call, error: Exception) -> None:
        super().__init__(f"{call}: {type(error).__name__}: {error}")
        self.call = call


def read_values(uri: str, local: str, indexes: Sequence[Index], case_sensitive: bool) -> FileResult:
    """Summarise one Parquet file; a file that cannot be read gets a problem.

    Parameters
    ----------
    uri, local
        The file's URI, for the result, and its local path.
    indexes
        The indexes, bound to their expressions.
    case_sensitive
        Resolve the names of columns with regard to case.
    """
    failures: dict[str, str] = {}
    left = list(indexes)
    while True:
        try:
            result = _summarise_file(uri, local, left, case_sensitive)
        except _FunctionFailed as error:
            failed = [index for index in left if any(error.call in walk(one) for one in index.bound)]
            failures |= {str(index): str(error) for index in failed}
            left = [index for index in left if index not in failed]
            continue
        except NeedsSpark as error:
            return FileResult(uri, problem=_spark_only(error, left))
        except Exception as error:
            if is_encrypted(local):
                return FileResult(uri, problem="it is encrypted, and only Spark has the keys")
            return FileResult(uri, problem=f"unreadable: {str(error).splitlines()[0] if str(error) else repr(error)}")
        result.failures |= failures
        result.summaries |= dict.fromkeys(failures)
        return result


def _spark_only(error: NeedsSpark, indexes: Sequence[Index]) -> str:
    """Reason why a file has no metadata, with the indexes that need Spark if the others do not."""
    why, out = f"it needs Spark: {error}", "refresh_index() of a session indexes what Spark reads so"
    names = [str(index) for index in indexes if error.expression in index.bound]
    if names and len(names) < len(indexes):
        why = f"it needs Spark for {' and '.join(names)}: {error}"
        out += f", or build without {'this index' if len(names) == 1 else 'these indexes'}"
    return f"{why}; {out}"


def _summarise_file(uri: str, local: str, indexes: Sequence[Index], case_sensitive: bool) -> FileResult:
    result = FileResult(uri)
    with pa.OSFile(local) as opened:
        file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
        if is_signed(opened, file):
            raise NeedsSpark("its columns may be encrypted, and only Spark has the keys")
        result.rows, result.size = file.metadata.num_rows, opened.size()
        if not (file.metadata.created_by or "").startswith(_OF_THE_DAY):
            _check_int96(file, opened, indexes)
        parts = _gather(file, indexes, case_sensitive).finish()
    with sharing_results():
        store_summaries([(result, [(str(index), index) for index in indexes], parts)], _READER)
    return result


def _check_int96(file: pq.ParquetFile, opened: pa.NativeFile, indexes: Sequence[Index]) -> None:
    """Check that Arrow reads the INT96 times of a file as Spark does; raises NeedsSpark.

    Arrow writes times before 1970 with a negative number of nanoseconds of the day, which it reads as microseconds that
    are 2**64 nanoseconds too late. As nanoseconds it reads any time correctly modulo 2**64. A wrong time differs from
    that by 616 nanoseconds, unless the file has times in nanoseconds; these are after 1677, so that wrong ones lie
    between 2262 and 2554.
    """
    paths = [leaf.path for leaf in int96_leaves(file.schema) if not leaf.max_repetition_level]
    if not paths:
        return
    vertices = [vertex for index in indexes for expression in index.bound for vertex in walk(expression)]
    names = {parts_of_name(vertex.name)[0].lower() for vertex in vertices if isinstance(vertex, Column)}
    paths = [path for path in paths if any(f"{path}.".lower().startswith(f"{name}.") for name in names)]
    exact = pq.ParquetFile(opened, metadata=file.metadata, coerce_int96_timestamp_unit="ns")
    for group in range(file.num_row_groups if paths else 0):
        micros, nanos = (
            np.concatenate(list(_numbers(one.read_row_group(group, columns=paths, use_threads=False).columns)))
            for one in (file, exact)
        )
        late = (micros >= _LAST_NANOSECOND) & (micros < 2 * _LAST_NANOSECOND + 1000)
        if np.any(late | (nanos - micros * 1000 != 0)):
            raise NeedsSpark("it has times as INT96 that Arrow may read as others")


def int96_leaves(schema: pq.ParquetSchema) -> list[Any]:
    """The columns and nested fields with the physical type INT96."""
    leaves = (schema.column(number) for number in range(len(schema)))
    return [leaf for leaf in leaves if leaf.physical_type == "INT96"]


def _numbers(columns: Sequence[pa.ChunkedArray]) -> Iterator[NDArray[np.int64]]:
    """The 64-bit numbers of times in columns and in structs."""
    for column in columns:
        if pa.types.is_struct(column.type):
            yield from _numbers(column.flatten())
        else:
            yield column.cast(pa.int64()).drop_null().to_numpy()


def _gather(file: pq.ParquetFile, indexes: Sequence[Index], case_sensitive: bool) -> ValueGatherer:
    expressions = list(dict.fromkeys(expression for index in indexes for expression in index.bound))
    gatherer = ValueGatherer([(index, tuple(map(expressions.index, index.bound))) for index in indexes])
    values = _ExpressionValues(file, case_sensitive)
    for table in values.tables(expressions):
        gatherer.add([values.of_index(expression, table) for expression in expressions], table.num_rows)
    return gatherer


class _ExpressionValues:
    """Values of expressions over the rows of one file."""

    def __init__(self, file: pq.ParquetFile, case_sensitive: bool) -> None:
        self.file, self.case_sensitive = file, case_sensitive
        self.schema: pa.Schema = file.schema_arrow
        self.int96 = {leaf.path for leaf in int96_leaves(file.schema)}

    def tables(self, expressions: Sequence[Predicate]) -> Iterator[pa.Table]:
        """Tables of several row groups each, with the columns that the expressions need."""
        columns = {v.name: v for expression in expressions for v in walk(expression) if isinstance(v, Column)}
        needed = {self._top(parts_of_name(name)[0]) for name in columns}
        wanted = sorted(name for name in needed if name is not None)
        if any(a.startswith(f"{b}.") or b.startswith(f"{a}.") for a in self.schema.names for b in wanted):
            raise NeedsSpark("the name of one of its columns is the path of a nested field")
        return read_tables(self.file, wanted)

    def _top(self, name: str) -> str | None:
        found = matching_names(name, self.schema.names, case_sensitive=self.case_sensitive)
        if len(found) > 1:
            raise NeedsSpark(f"it has several columns called {name}")
        return found[0] if found else None

    def of_index(self, expression: Predicate, table: pa.Table) -> pa.Array:
        """Values of an indexed expression for the rows of a table."""
        try:
            return self.of(expression, table)
        except NeedsSpark as error:
            error.expression = expression
            raise

    def of(self, expression: Predicate, table: pa.Table) -> pa.Array:
        """Values of an expression for the rows of a table."""
        match expression:
            case Column():
                return self._column(expression, table)
            case Call():
                arguments = [
                    arg if isinstance(arg, Literal) else self.of(arg, table)  # constant arguments
                    for arg in expression.args
                ]
                try:
                    return call_function(expression, arguments, table.num_rows)
                except Exception as error:
                    raise _FunctionFailed(expression, error) from error
        raise NeedsSpark(f"{expression} is neither a column nor a function")

    def _column(self, column: Column, table: pa.Table) -> pa.Array:
        parts, of = parts_of_name(column.name), sql_type(column.type)
        name = self._top(parts[0])
        if name is None:
            return pa.nulls(table.num_rows, of.arrow)
        values, path = one_array([table[name]]), name
        for part in parts[1:]:
            if not pa.types.is_struct(values.type):
                raise NeedsSpark(f"its {path} is {values.type}")
            names = [field.name for field in values.type]
            found = matching_names(part, names, case_sensitive=self.case_sensitive)
            if len(found) > 1:
                raise NeedsSpark(f"it has several fields called {path}.{part}")
            if not found:
                return pa.nulls(table.num_rows, of.arrow)
            path = f"{path}.{found[0]}"
            values = pc.struct_field(values, values.type.get_field_index(found[0]))
        return self._convert(values, of, path)

    def _convert(self, values: pa.Array, of: SqlType, path: str) -> pa.Array:
        """Convert the values of a column as Spark reads them for a type."""
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        kind, target = values.type, of.arrow
        if pa.types.is_null(kind):
            return pa.nulls(len(values), target)
        if of.kind == "timestamp" and path in self.int96:
            return self._of_int96(values).cast(target)
        if of.kind in ("timestamp", "timestamp_ntz"):
            if not pa.types.is_timestamp(kind) or kind.unit not in ("ms", "us") or path in self.int96:
                raise NeedsSpark(f"its {path} is {kind}, the dataset has {of.name}")
            if (kind.tz is not None) != (of.kind == "timestamp"):
                raise NeedsSpark(f"its {path} is {kind}, the dataset has {of.name}")
            self._check_calendar(least_value(pa.chunked_array([values])), TIMES_AGREE, *_LEGACY)
            return values.cast(target)
        if of.kind == "date" and pa.types.is_date32(kind):
            self._check_calendar(pc.min(values.cast(pa.int32())).as_py(), GREGORIAN, *_LEGACY)
            return values
        if kind == target or (of.kind, kind) in _WIDE:
            return values
        if of.kind == "string" and pa.types.is_binary(kind):
            return values.view(target)  # strings in a file need not be valid UTF-8
        if of.kind == "binary" and pa.types.is_fixed_size_binary(kind):
            return values.cast(target)
        if self._holds(of, kind):
            return values.cast(target)
        raise NeedsSpark(f"its {path} is {kind}, the dataset has {of.name}")

    @staticmethod
    def _holds(of: SqlType, kind: pa.DataType) -> bool:
        """Test whether Spark reads a file's type as the dataset's without changing a value; Spark 3 may fail."""
        if kind in _UNSIGNED:
            held = sql_type(_UNSIGNED[kind])
            return held == of or (of.is_integral and of.widens(held))
        if pa.types.is_signed_integer(kind):
            return of.is_integral and of.values.stop >= 1 << (kind.bit_width - 1)
        if pa.types.is_decimal(kind):
            return of.is_decimal and of.scale == kind.scale and of.precision >= kind.precision
        return bool(pa.types.is_float32(kind) and of.kind == "double")

    def _of_int96(self, values: pa.Array) -> pa.Array:
        numbers = values.cast(pa.int64())
        ends = pc.min_max(numbers)
        self._check_calendar(ends["min"].as_py(), TIMES_AGREE, b"org.apache.spark.legacyINT96", b"3.1.0")
        if (ends["max"].as_py() or 0) >= _LAST_TIME:
            raise NeedsSpark("it has times after the year 9999 as INT96")
        return numbers.cast(pa.timestamp("us", "UTC"))

    def _check_calendar(self, least: int | None, agree: int, key: bytes, since: bytes) -> None:
        """Raise NeedsSpark if Spark rebases values from the Julian calendar.

        Parameters
        ----------
        least, agree
            The least value, and the one from which both calendars agree.
        key, since
            The entry by which a writer says so, and the version of Spark that says so.

        Files of other writers have values of today's calendar; Spark 3 fails on old ones.
        """
        entries = self.file.metadata.metadata or {}
        version = entries.get(b"org.apache.spark.version")
        if least is not None and least < agree and version is not None and (key in entries or version < since):
            raise NeedsSpark("it has times before 1900 or days before 1582 that Spark rebases from the Julian calendar")


_WIDE = {("string", pa.large_string()), ("binary", pa.large_binary())}
_UNSIGNED = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}
"""Spark's types of Arrow's unsigned numbers."""


# --- functions --------------------------------------------------------------------------------------------------------

_RESULTS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "binary": (bytes, bytearray), "boolean": (bool,), "double": (float,), "float": (float,),
    "int": (int,), "bigint": (int,), "smallint": (int,), "tinyint": (int,), "date": (dt.date,),
}  # fmt: skip
"""Python types of results that Spark takes without conversion."""


def call_function(call: Call, arguments: Sequence[pa.Array | Literal], rows: int) -> pa.Array:
    """Values of an offered function, equal to those in Spark.

    Parameters
    ----------
    call
        The call, whose name is that of the function.
    arguments
        Values, or constants.
    rows
        The number of rows.

    Raises
    ------
    NeedsSpark
        For results of another type than declared, which Spark converts by its own rules.
    """
    function = offered_by_name()[call.name.lower()]
    target = sql_type(call.type).arrow
    if target is None:
        raise NeedsSpark(f"{call.name} returns {call.type}")
    if function.vectorised is not None:
        pandas = require_package("pandas", f"an index over {function.name}()")
        return _of_series(pandas, function.vectorised, arguments, rows, target)
    return _of_rows(function.function, call, arguments, rows, target)


def _of_series(
    pandas: Any, function: Callable[..., Any], arguments: Sequence[pa.Array | Literal], rows: int, target: pa.DataType
) -> pa.Array:
    if not rows:
        return pa.array([], target)
    series = [
        pandas.Series([argument.value] * rows) if isinstance(argument, Literal) else _series(argument)
        for argument in arguments
    ]
    found = function(*series)
    return pa.Array.from_pandas(found, mask=found.isnull(), type=target, safe=False)


def _series(values: pa.Array) -> Any:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values.validate(full=True)  # raises for invalid UTF-8
    return values.to_pandas(date_as_object=True)


def _of_rows(
    function: Callable[..., Any], call: Call, arguments: Sequence[pa.Array | Literal], rows: int, target: pa.DataType
) -> pa.Array:
    kinds = _RESULTS.get(sql_type(call.type).kind, ())
    of_rows = [[one.value] * rows if isinstance(one, Literal) else one.to_pylist() for one in arguments]
    known: dict[Any, Any] = {}
    found = []
    for row in zip(*of_rows, strict=True) if of_rows else [()] * rows:
        key = tuple(repr(value) if isinstance(value, float | Decimal) else value for value in row)  # -0.0 is not 0.0
        if key not in known:
            known[key] = function(*row)
            if known[key] is not None and type(known[key]) not in kinds:
                raise NeedsSpark(f"{call.name} returned {type(known[key]).__name__}, it is declared as {call.type}")
        found.append(known[key])
    return pa.array(found, target)
