"""Draw arguments of SQL functions, as columns and as literals."""

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

from geoskip.advisor.condition_text import sql_text
from geoskip.checking.candidates import IndexedExpression
from geoskip.checking.function import FunctionUnderTest, near_constants, subjects_of
from geoskip.checking.strategies import HINTS, Sample, hint_of, near, physical_value, sample_of, samples
from geoskip.errors import MappingError
from geoskip.predicates import Call, Column, Literal, Predicate, transform
from geoskip.registry import SPELLINGS, Function, current
from geoskip.registry.functions import CATALYST
from geoskip.spark.analysis import without_error_log

_MOST = 3
"""Maximum number of combinations of argument types to try."""
_GUESSED = ("string", "double", "bigint", "date", "timestamp_ntz", "boolean")


@dataclass(frozen=True)
class Argument:
    """One argument: its columns, and a SQL template (``{}``) that computes it from these or constants."""

    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    form: str = "{}"

    @property
    def sql(self) -> str:
        """SQL of the argument over its columns."""
        return self.form.format(*self.names)

    def modest(self) -> Argument:
        """The argument without the extreme values of its types, on which some functions fail."""
        return replace(self, samples=tuple(sample.modest() for sample in self.samples))

    def near(self, constants: Sequence[Any]) -> Argument:
        """The argument with values near some constants."""
        return replace(self, samples=tuple(near(sample, constants) for sample in self.samples))

    def constant(self, seed: str) -> str:
        """SQL of the argument as a random constant."""
        drawn = (samples(sample.strategy, seed, 1)[0] for sample in self.samples)
        literals = (literal_sql(physical_value(v), s.kind) for v, s in zip(drawn, self.samples, strict=True))
        return self.form.format(*literals)


def columns_of(arguments: Sequence[Argument]) -> dict[str, Sample]:
    """The columns from which some arguments are computed, with samples of their values."""
    return {name: sample for a in arguments for name, sample in zip(a.names, a.samples, strict=True)}


@contextmanager
def registered_name(
    spark: SparkSession,
    function: Any,
    name: str | None,
    rows: Mapping[str, Any] | Sequence[Any] | None,
    returns: str | None,
) -> Iterator[str]:
    """Yield the SQL name of a function, registered for the block if the session lacks it.

    Parameters
    ----------
    spark, function, name
        The session, a Python function, UDF object or SQL name, and the SQL name to use, if any.
    rows, returns
        Samples of arguments and Spark's type of the result, as for :func:`geoskip.check_mapping`.
    """
    if isinstance(function, str | Function):
        yield name or (function if isinstance(function, str) else function.name)
        return
    name = name or str(getattr(function, "__name__", "function"))
    if spark.catalog.functionExists(name):
        if str(spark.catalog.getFunction(name).className).startswith(CATALYST):
            raise MappingError(
                f"{name} is a function of Spark's own, and not the one that was given; "
                "say under which name queries call yours: name="
            )
        yield name
        return
    if hasattr(function, "evalType"):
        spark.udf.register(name, function)
    else:  # without a type, Spark assumes strings
        spark.udf.register(name, function, subjects_of(function, rows=rows, returns=returns, name=name)[0].returns)
    try:
        yield name
    finally:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{name}`")


def likely_subjects(
    function: Any, rows: Mapping[str, Any] | Sequence[Any] | None, returns: str | None, name: str
) -> list[FunctionUnderTest]:
    """Return a Python function with likely arguments, near constants in its code; empty for others.

    Parameters
    ----------
    function, name
        A Python function, or anything else, and the SQL name.
    rows, returns
        Samples of arguments and Spark's type of the result, as for :func:`geoskip.check_mapping`.
    """
    if isinstance(function, str | Function):
        return []
    with suppress(MappingError):
        return [near_constants(subject) for subject in subjects_of(function, rows=rows, returns=returns, name=name)]
    return []


def arguments_for(
    frame_of: Any, name: str, rows: Mapping[str, Any] | Sequence[Any] | None
) -> list[tuple[Argument, ...]]:
    """Combinations of arguments that Spark accepts for a function; raises MappingError if there are none.

    ``frame_of`` returns the DataFrame with the columns of some arguments.
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
    """The argument for a column; for WKB first a geometry computed from it."""
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


def evaluate_texts(frame: DataFrame, texts: Sequence[str]) -> pa.Table | None:
    """Evaluate SQL texts for each row, in the order of the rows; None if Spark fails."""
    selected: Any = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
    with suppress(PySparkException), without_error_log():
        return pa.Table.from_batches(selected._collect_as_arrow())
    return None


def spellings_of(name: str) -> tuple[str, ...]:
    """The names of a function's calls after analysis: its own, or Spark's other spelling."""
    plain = name.lower().rpartition(".")[2].strip("`")
    return (plain, SPELLINGS.get(plain, plain))


def indexed_expressions(
    arguments: Sequence[Argument], rows: Mapping[str, list[Any]], predicates: Sequence[Predicate]
) -> Iterator[IndexedExpression]:
    """The expressions to index: the columns, and the geometries computed from WKB."""
    for argument, predicate in zip(arguments, predicates, strict=True):
        arrays = [pa.array(rows[n], s.arrow) for n, s in zip(argument.names, argument.samples, strict=True)]
        if len(argument.names) == 1 and argument.form != "{}":
            yield IndexedExpression(argument.sql, predicate, predicate.type or "binary", arrays[0])
            continue
        for name, sample, array in zip(argument.names, argument.samples, arrays, strict=True):
            yield IndexedExpression(name, Column(name, sample.kind), sample.kind, array)


def literal_sql(value: Any, kind: str) -> str:
    """A physical value as SQL."""
    text = sql_text(Literal(value, kind))
    assert text is not None
    return text


def sql_of(condition: Predicate, call: Call, text: str) -> str:
    """SQL of a condition over a call, given the SQL of the call."""
    found = sql_text(transform(condition, lambda node: Column(f"({text})") if node == call else node))
    assert found is not None
    return found


def argument_values(arguments: Sequence[Argument], rows: Mapping[str, list[Any]], kind: str) -> list[Any]:
    """The values of the arguments of a type."""
    plain = [a for a in arguments if len(a.names) == 1 and a.sql == a.names[0] and a.samples[0].kind == kind]
    return [value for argument in plain for value in rows[argument.names[0]]]
