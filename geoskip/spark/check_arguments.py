"""Arguments of SQL functions that are checked, as columns and as literals, and conditions as SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.checking.candidates import IndexedExpression
from geoskip.checking.function import FunctionUnderTest, near_constants, subjects_of
from geoskip.checking.strategies import HINTS, Sample, hint_of, near, physical_value, rows_of, sample_of, samples
from geoskip.errors import MappingError
from geoskip.predicates import Call, Column, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.registry import SPELLINGS, Function, current
from geoskip.spark.analysis import without_error_log
from geoskip.types import sql_type

__all__ = [
    "Argument", "argument_values", "arguments_for", "collected", "draw_rows", "indexed_expressions", "likely_subjects",
    "literal_sql", "registered", "spellings_of", "sql_of",
]  # fmt: skip

_MOST = 3
"""Combinations of argument types that are tried."""
_GUESSED = ("string", "double", "bigint", "date", "timestamp_ntz", "boolean")


@dataclass(frozen=True)
class Argument:
    """One argument: its columns, and the SQL that forms it of these, or of constants (``{}``)."""

    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    form: str = "{}"

    @property
    def sql(self) -> str:
        """The argument over columns."""
        return self.form.format(*self.names)

    def modest(self) -> Argument:
        """The argument without the ends of its types, on which some functions fail."""
        return replace(self, samples=tuple(sample.modest() for sample in self.samples))

    def near(self, constants: Sequence[Any]) -> Argument:
        """The argument with values near some constants."""
        return replace(self, samples=tuple(near(sample, constants) for sample in self.samples))

    def constant(self, seed: str) -> str:
        """The argument as a constant."""
        drawn = (samples(sample.strategy, seed, 1)[0] for sample in self.samples)
        literals = (literal_sql(physical_value(v), s.kind) for v, s in zip(drawn, self.samples, strict=True))
        return self.form.format(*literals)


@contextmanager
def registered(
    spark: SparkSession,
    function: Any,
    name: str | None,
    rows: Mapping[str, Any] | Sequence[Any] | None,
    returns: str | None,
) -> Iterator[str]:
    """Yield the SQL name of a function, registered for the block if the session lacks it.

    Parameters
    ----------
    spark
        The session.
    function
        A Python function, a UDF object or a SQL name.
    name
        The SQL name to use, or None.
    rows, returns
        Samples of arguments and Spark's type of the result, as for check_mapping.
    """
    if isinstance(function, str | Function):
        yield name or (function if isinstance(function, str) else function.name)
        return
    name = name or str(getattr(function, "__name__", "function"))
    if spark.catalog.functionExists(name):
        if str(spark.catalog.getFunction(name).className).startswith(_CATALYST):
            raise MappingError(
                f"{name} is a function of Spark's own, and not the one that was given; "
                "say under which name queries call yours: name="
            )
        yield name
        return
    if hasattr(function, "evalType"):
        spark.udf.register(name, function)
    else:  # without a type, Spark takes its values as texts
        spark.udf.register(name, function, subjects_of(function, rows=rows, returns=returns, name=name)[0].returns)
    try:
        yield name
    finally:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")


_CATALYST = "org.apache.spark.sql.catalyst.expressions."


def likely_subjects(
    function: Any, rows: Mapping[str, Any] | Sequence[Any] | None, returns: str | None, name: str
) -> list[FunctionUnderTest]:
    """Return a Python function with likely arguments, near constants in code; else nothing.

    Parameters
    ----------
    function
        A Python function, or anything else.
    rows, returns
        Samples of arguments and Spark's type of the result, as for check_mapping.
    name
        The SQL name.
    """
    if isinstance(function, str | Function):
        return []
    with suppress(MappingError):
        return [near_constants(subject) for subject in subjects_of(function, rows=rows, returns=returns, name=name)]
    return []


def arguments_for(
    frame_of: Any, name: str, rows: Mapping[str, Any] | Sequence[Any] | None
) -> list[tuple[Argument, ...]]:
    """Combinations of arguments that Spark accepts for a function; MappingError without any.

    ``frame_of`` returns the DataFrame of some arguments' columns.
    """
    fitting: list[tuple[Argument, ...]] = []
    for arguments in _candidates(name, rows):
        if _fits(frame_of(arguments), name, arguments):
            fitting.append(arguments)
        if len(fitting) == _MOST or (fitting and rows is None and len(fitting[0]) < len(arguments)):
            break
    if not fitting:
        raise MappingError(
            f"{name} takes none of the arguments that were tried; say which it does, in order: rows=['double', 'words']"
        )
    return fitting


def _fits(frame: DataFrame, name: str, arguments: Sequence[Argument]) -> bool:
    text = f"{name}({', '.join(a.sql for a in arguments)})"
    try:
        with without_error_log():
            frame.selectExpr(text)
    except (AnalysisException, ParseException):
        return False
    return True


def _candidates(name: str, rows: Mapping[str, Any] | Sequence[Any] | None) -> Iterator[tuple[Argument, ...]]:
    if rows is not None:
        given = list(rows.items()) if isinstance(rows, Mapping) else [(f"a{n}", word) for n, word in enumerate(rows)]
        yield from itertools.product(*(list(_forms(column, sample_of(word), word)) for column, word in given))
        return
    names = _argument_names(name)
    hints = [hint_of(word, None) for word in names]
    if names and None not in hints:
        yield tuple(Argument((word,), (hint,)) for word, hint in zip(names, hints, strict=True) if hint)
    if name.lower().startswith("st_"):
        shapes = ["polygons", "points", "coordinates"]
        for count in (2, 1):
            for kinds in itertools.product(shapes, repeat=count):
                yield tuple(_spatial(f"a{n}", kind) for n, kind in enumerate(kinds))
        yield tuple(Argument((f"a{n}",), (HINTS[hint],)) for n, hint in enumerate(("longitude", "latitude")))
        yield (_spatial("a0", "polygons"), _spatial("a1", "polygons"), Argument(("a2",), (_DISTANCES,)))
    for count in (1, 2, 3):
        for kinds in itertools.product(_GUESSED if count < 3 else _GUESSED[:3], repeat=count):
            yield tuple(Argument((f"a{n}",), (sample_of(kind),)) for n, kind in enumerate(kinds))


_DISTANCES = Sample("double", st.integers(0, 3_000).map(lambda hundredths: hundredths / 100))


def _forms(column: str, sample: Sample, word: Any) -> Iterator[Argument]:
    """An argument as it is, and WKB as a geometry first."""
    if word in ("points", "polygons"):
        yield _spatial(column, word)
    yield Argument((column,), (sample,))


def _spatial(column: str, kind: str) -> Argument:
    if kind == "coordinates":
        hints = (HINTS["longitude"], HINTS["latitude"])
        return Argument((f"{column}_lng", f"{column}_lat"), hints, "ST_Point({}, {})")
    return Argument((column,), (HINTS[kind],), "ST_GeomFromWKB({})")


def _argument_names(name: str) -> list[str]:
    """The names of a function's arguments, if its mapping states them."""
    for mapping in current().mappings.values():
        for function in mapping.functions:
            if isinstance(function, Function) and function.name.lower() == name.lower() and function.arguments:
                return [word.strip(" []") for word in function.arguments.split(",")]
    return []


def draw_rows(
    arguments: Sequence[Argument], constants: Sequence[Any], seed: str, count: int, *, nulls: bool = True
) -> dict[str, list[Any]]:
    """Draw values of the arguments' columns, most of the rows at the edges of what constants bound.

    Parameters
    ----------
    arguments
        The arguments whose columns are drawn.
    constants
        Numbers in the code of the function and of its mappings.
    seed
        The same seed draws the same rows.
    count
        The number of rows.
    nulls
        False to draw another value in place of each NULL.
    """
    columns = {n: s for a in arguments for n, s in zip(a.names, a.samples, strict=True)}
    rows = samples(rows_of(columns, constants), seed, count)
    if not nulls:
        others = {n: samples(s.strategy, f"{seed} {n}", count) for n, s in columns.items()}
        rows = [{n: others[n][k] if v is None else v for n, v in row.items()} for k, row in enumerate(rows)]
    return {name: [row[name] for row in rows] for name in columns}


def collected(frame: DataFrame, texts: Sequence[str]) -> pa.Table | None:
    """Evaluate SQL texts for each row, in the order of the rows; None if Spark fails."""
    selected: Any = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
    with suppress(PySparkException), without_error_log():
        return pa.Table.from_batches(selected._collect_as_arrow())
    return None


def spellings_of(name: str) -> tuple[str, ...]:
    """The names that a function's calls have after analysis: its own, or Spark's other spelling."""
    plain = name.lower().rpartition(".")[2].strip("`")
    return (plain, SPELLINGS.get(plain, plain))


def indexed_expressions(
    arguments: Sequence[Argument], rows: Mapping[str, list[Any]], predicates: Sequence[Predicate]
) -> Iterator[IndexedExpression]:
    """The expressions that indexes may be over: the columns, and the geometries formed of WKB."""
    for argument, predicate in zip(arguments, predicates, strict=True):
        arrays = [pa.array(rows[n], s.arrow) for n, s in zip(argument.names, argument.samples, strict=True)]
        if len(argument.names) == 1 and argument.form != "{}":
            yield IndexedExpression(argument.sql, predicate, predicate.type or "binary", arrays[0])
            continue
        for name, sample, array in zip(argument.names, argument.samples, arrays, strict=True):
            yield IndexedExpression(name, Column(name, sample.kind), sample.kind, array)


_SUFFIX = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}


def literal_sql(value: Any, kind: str) -> str:
    """A physical value as SQL."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    of = sql_type(kind)
    if of.is_floating:
        return f"{kind}('{value!r}')"
    if of.is_integral:
        return f"CAST('{value}' AS {kind})" if value < 0 else f"{value}{_SUFFIX[kind]}"
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind == "binary":
        return f"X'{value.hex()}'"
    if kind == "date":
        return f"date_from_unix_date({value})"
    if kind == "timestamp_ntz":
        return f"CAST(timestamp_micros({value}L) AS timestamp_ntz)"
    if kind == "timestamp":
        return f"timestamp_micros({value}L)"
    if of.kind == "array":
        return f"array({', '.join(literal_sql(part, of.element.name) for part in value)})"
    if of.kind == "decimal":
        return f"CAST('{value}' AS {kind})"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def sql_of(condition: Predicate, call: Call, text: str) -> str:
    """A condition over a call, whose SQL is given, as SQL."""

    def literal(node: Literal) -> str:
        return literal_sql(node.value, node.type or call.type or "string")

    match condition:
        case Not(child):
            return f"NOT ({sql_of(child, call, text)})"
        case IsNull():
            return f"({text}) IS NULL"
        case Comparison(op, _, Literal() as value):
            return f"({text}) {op} {literal(value)}"
        case In(_, values):
            return f"({text}) IN ({', '.join(map(literal, values))})"
        case StartsWith(_, start):
            return f"startswith({text}, {literal_sql(start, 'string')})"
    return text


def argument_values(arguments: Sequence[Argument], rows: Mapping[str, list[Any]], kind: str) -> list[Any]:
    """The values of the arguments that are of a type."""
    plain = [a for a in arguments if len(a.names) == 1 and a.sql == a.names[0] and a.samples[0].kind == kind]
    return [value for argument in plain for value in rows[argument.names[0]]]
