"""What a function of SQL is tried on: its arguments as columns of a file and as literals, and conditions as SQL."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.checking import near_constants
from geoskip.checking.constants import edges, near
from geoskip.checking.function import FunctionUnderTest, subjects_of
from geoskip.checking.strategies import HINTS, Sample, hint_of, physical_value, sample_of
from geoskip.checking.synthetic_files import IndexedExpression
from geoskip.errors import MappingError
from geoskip.predicates import Call, Column, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.registry import SPELLINGS, Function, current
from geoskip.spark.analysis import without_error_log
from geoskip.types import sql_type

__all__ = ["Argument", "alike", "arguments_for", "expressions_of", "literal_sql", "named", "sql_of"]

_MOST = 3
"""Combinations of argument types that are tried."""
_GUESSED = ("string", "double", "bigint", "date", "timestamp_ntz", "boolean")


@dataclass(frozen=True)
class Argument:
    """One argument: the columns that it is made of, and the SQL that makes it of them, or of constants (``{}``)."""

    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    made: str = "{}"

    @property
    def sql(self) -> str:
        """The argument over columns."""
        return self.made.format(*self.names)

    def modest(self) -> Argument:
        """The same with values that few functions fail on."""
        return replace(self, samples=tuple(sample.modest() for sample in self.samples))

    def near(self, constants: Sequence[Any]) -> Argument:
        """The same with values near some constants."""
        return replace(self, samples=tuple(near(sample, constants) for sample in self.samples))

    def constant(self, chance: random.Random) -> str:
        """The argument as a constant."""
        return self.made.format(*(literal_sql(physical_value(s.draw(chance)), s.kind) for s in self.samples))


@contextmanager
def named(
    spark: SparkSession,
    function: Any,
    name: str | None,
    rows: Mapping[str, Any] | Sequence[Any] | None,
    returns: str | None,
) -> Iterator[str]:
    """The name to call a function by; it is registered meanwhile, where the session has none of its name."""
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
    else:  # without a type, Spark takes its values for texts
        spark.udf.register(name, function, subjects_of(function, rows=rows, returns=returns, name=name)[0].returns)
    try:
        yield name
    finally:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")


_CATALYST = "org.apache.spark.sql.catalyst.expressions."


def likely_subjects(
    function: Any, rows: Mapping[str, Any] | Sequence[Any] | None, returns: str | None, name: str
) -> list[FunctionUnderTest]:
    """What a Python function takes, near the constants in its code and its mappings'; none of what is no such one."""
    if isinstance(function, str | Function):
        return []
    with suppress(MappingError):
        return [near_constants(subject) for subject in subjects_of(function, rows=rows, returns=returns, name=name)]
    return []


def arguments_for(
    frame_of: Any, name: str, rows: Mapping[str, Any] | Sequence[Any] | None
) -> list[tuple[Argument, ...]]:
    """The combinations of arguments that Spark takes for a function; raises MappingError where none is found.

    ``frame_of`` gives the DataFrame of some arguments' columns.
    """
    found: list[tuple[Argument, ...]] = []
    for arguments in _candidates(name, rows):
        if _fits(frame_of(arguments), name, arguments):
            found.append(arguments)
        if len(found) == _MOST or (found and rows is None and len(found[0]) < len(arguments)):
            break
    if not found:
        raise MappingError(
            f"{name} takes none of the arguments that were tried; say which it does, in order: rows=['double', 'words']"
        )
    return found


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
        said = list(rows.items()) if isinstance(rows, Mapping) else [(f"a{n}", word) for n, word in enumerate(rows)]
        ways = [list(_ways(column, sample_of(word), word)) for column, word in said]
        yield from itertools.product(*ways)
        return
    told = _told(name)
    if told:
        hints = [hint_of(word, None) for word in told]
        if None not in hints:
            yield tuple(Argument((word,), (hint,)) for word, hint in zip(told, hints, strict=True) if hint)
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


_DISTANCES = Sample("double", lambda chance: round(chance.uniform(0, 30), 2))


def _ways(column: str, sample: Sample, word: Any) -> Iterator[Argument]:
    """A geometry is tried as one, and as the WKB that it is."""
    if word in ("points", "polygons"):
        yield _spatial(column, word)
    yield Argument((column,), (sample,))


def _spatial(column: str, kind: str) -> Argument:
    if kind == "coordinates":
        hints = (HINTS["longitude"], HINTS["latitude"])
        return Argument((f"{column}_lng", f"{column}_lat"), hints, "ST_Point({}, {})")
    return Argument((column,), (HINTS[kind],), "ST_GeomFromWKB({})")


def _told(name: str) -> list[str]:
    """The names of a function's arguments, where its mapping says them."""
    for mapping in current().mappings.values():
        for function in mapping.functions:
            if isinstance(function, Function) and function.name.lower() == name.lower() and function.arguments:
                return [word.strip(" []") for word in function.arguments.split(",")]
    return []


def rows_of(
    arguments: Sequence[Argument], constants: Sequence[Any], chance: random.Random, count: int, *, nulls: bool
) -> dict[str, list[Any]]:
    """Values of the arguments' columns, a third of the rows at the edges of what constants bound."""
    samples = {n: s for a in arguments for n, s in zip(a.names, a.samples, strict=True)}
    rows = {name: sample.values(chance, count) for name, sample in samples.items()}
    for number, row in enumerate(edges(samples, constants, chance, count // 3)):
        for name, value in row.items():
            rows[name][number] = value
    return rows if nulls else {n: [samples[n].draw(chance) for _ in column] for n, column in rows.items()}


def collected(frame: DataFrame, texts: Sequence[str]) -> pa.Table | None:
    """The values of some SQL for each row, in the order of the rows; None where Spark fails."""
    selected: Any = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
    with suppress(PySparkException), without_error_log():
        return pa.Table.from_batches(selected._collect_as_arrow())
    return None


def spellings_of(name: str) -> tuple[str, ...]:
    """What a function's calls may be called by then: its name, or another spelling of Spark's own."""
    plain = name.lower().rpartition(".")[2].strip("`")
    return (plain, SPELLINGS.get(plain, plain))


def expressions_of(
    arguments: Sequence[Argument], rows: Mapping[str, list[Any]], predicates: Sequence[Predicate]
) -> Iterator[IndexedExpression]:
    """What indexes may be over: the columns, and the geometries that arguments make of WKB."""
    for argument, predicate in zip(arguments, predicates, strict=True):
        arrays = [pa.array(rows[n], s.arrow) for n, s in zip(argument.names, argument.samples, strict=True)]
        if len(argument.names) == 1 and argument.made != "{}":
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


def alike(arguments: Sequence[Argument], rows: Mapping[str, list[Any]], kind: str) -> list[Any]:
    """The values of the arguments that are of a type."""
    plain = [a for a in arguments if len(a.names) == 1 and a.sql == a.names[0] and a.samples[0].kind == kind]
    return [value for argument in plain for value in rows[argument.names[0]]]
