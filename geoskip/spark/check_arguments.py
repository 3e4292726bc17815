"""Draw arguments of SQL functions, as columns and as literals, and simplify counter-examples.

A Spark job costs too much for Hypothesis's shrinker, which tries one case after the other. Instead, one job evaluates
the function for some hundred simple rows, drawn near the lost rows and at random; the result is the simplest lost row
with the simplest literal to compare with.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.advisor.condition_text import sql_text
from geoskip.checking import CounterExample, geometry_of
from geoskip.checking.candidates import Candidate, IndexedExpression, metadata_of, truth_of
from geoskip.checking.function import FunctionResults, FunctionUnderTest, near_constants, subjects_of
from geoskip.checking.search import simpler
from geoskip.checking.strategies import HINTS, Sample, hint_of, near, physical_value, sample_of, samples
from geoskip.clauses import Clause, keep_mask
from geoskip.errors import MappingError
from geoskip.predicates import Call, Column, Comparison, Literal, Not, Predicate, normalise, transform
from geoskip.registry import SPELLINGS, Function, current
from geoskip.registry.functions import CATALYST
from geoskip.spark.analysis import without_error_log
from geoskip.spark.build.spark_jobs import collect_table

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
        if can_analyse(frame_of(arguments), f"{name}({', '.join(a.sql for a in arguments)})"):
            fitting.append(arguments)
        if len(fitting) == _MOST or (fitting and rows is None and len(fitting[0]) < len(arguments)):
            break
    if not fitting:
        raise MappingError(
            f"{name} takes none of the arguments that were tried; say which it does, in order: rows=['double', 'words']"
        )
    return fitting


def can_analyse(frame: DataFrame, text: str) -> bool:
    """Test whether Spark accepts a SQL text over a DataFrame's columns."""
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
    selected = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
    with suppress(PySparkException), without_error_log():
        return collect_table(selected)
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


Row = tuple[Any, ...]
Evaluation = tuple[dict[str, IndexedExpression], pa.Table]
Evaluate = Callable[[Mapping[str, list[Any]], Sequence[str]], Evaluation | None]
"""Map rows by column and SQL texts to expressions to index and a column for each text; None if Spark fails."""
_ROWS, _LITERALS, _DRAWN = 300, 60, 40


@dataclass(frozen=True)
class LosingFile:
    """A file that is wrongly skipped, with the condition over ``call`` and Spark's ``node`` for it."""

    candidate: Candidate
    condition: Predicate
    call: Call
    node: Predicate
    samples: Mapping[str, Sample]
    rows: tuple[Row, ...]

    @property
    def function(self) -> str:
        """The function's call as SQL."""
        (text,) = self.call.args
        assert isinstance(text, Literal)
        return str(text.value)

    @property
    def query(self) -> str:
        """The condition as SQL."""
        return sql_of(self.condition, self.call, self.function)

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The rows by column."""
        return {name: [row[place] for row in self.rows] for place, name in enumerate(self.samples)}

    def clause(self) -> Clause | None:
        """The clause of the candidate; None if it does not support the literal."""
        try:
            clause = self.candidate.ask(normalise(self.node))
        except Exception:
            return None
        return clause if isinstance(clause, Clause) else None

    def literal(self) -> Literal | None:
        """The literal that the function is compared with, if Spark has not changed it."""
        parts = (part.child if isinstance(part, Not) else part for part in (self.condition, normalise(self.node)))
        match tuple(parts):
            case (Comparison(_, _, Literal() as ours), Comparison(_, _, Literal() as theirs)):
                return ours if (ours.value, ours.type) == (theirs.value, theirs.type) else None
        return None

    def compared_with(self, value: Any) -> LosingFile:
        """The same file with another literal in the condition."""

        def replace_value(node: Predicate) -> Predicate:
            if isinstance(node, Not):
                return Not(replace_value(node.child))
            assert isinstance(node, Comparison)
            assert isinstance(node.right, Literal)
            return replace(node, right=replace(node.right, value=value))

        return replace(self, condition=replace_value(self.condition), node=replace_value(normalise(self.node)))


def shrunk(loss: LosingFile, evaluate: Evaluate) -> CounterExample:
    """The simplest lost row as a counter-example, or else the original file."""
    wide = replace(loss, rows=tuple(_simple_rows(loss)))
    evaluation = evaluate(wide.columns, [loss.query, loss.function])
    losses = list(_losses(wide, evaluation)) if evaluation is not None else []
    best = min(losses, key=lambda one: size_of(one.rows) + len(one.query), default=loss)
    return _counter_example(best, evaluate)


def _simple_rows(loss: LosingFile) -> Iterator[Row]:
    """The rows of a loss, and simple ones near its first row and at random."""
    yield from loss.rows
    choices = []
    for value, sample in zip(loss.rows[0], loss.samples.values(), strict=True):
        whole = isinstance(value, float) and math.isfinite(value)
        drawn = [float(math.floor(value)), float(math.ceil(value))] if whole else []
        drawn += [*samples(simpler(value), "near", _DRAWN), *samples(sample.modest().strategy, "random", _DRAWN)]
        choices.append([value, *_simplest(drawn)])
    few = max(2, math.floor(_ROWS ** (1 / len(choices))))
    yield from itertools.product(*(some[:few] for some in choices))


def _losses(loss: LosingFile, evaluation: Evaluation) -> Iterator[LosingFile]:
    """Files of one lost row each, for the condition and for simpler literals in it."""
    expressions, table = evaluation
    matching, values = (column.combine_chunks() for column in table.columns)
    truth = np.asarray(matching.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    results = FunctionResults(values, np.zeros(len(values), dtype=bool))
    variants = [(loss, truth)]
    literal = loss.literal()
    if literal is not None:
        known = [physical_value(value) for value in values.drop_null().to_pylist()]
        near = samples(simpler(literal.value), "literal", _DRAWN)
        for value in [*_simplest(near), *_simplest(known)[:_LITERALS]]:
            variant = loss.compared_with(value)
            variants.append((variant, truth_of(variant.condition, variant.call, results)))
    try:
        metadata = metadata_of(loss.candidate.indexes, expressions, [[row] for row in range(len(values))])
    except Exception:  # the index may not support a simpler value
        return
    for variant, matches in variants:
        clause = variant.clause()
        if clause is not None:
            lost = np.flatnonzero(matches & ~keep_mask(clause, metadata)).tolist()
            yield from (replace(variant, rows=(loss.rows[row],)) for row in lost)


def _simplest(values: Sequence[Any]) -> list[Any]:
    """The distinct values without NaN, the shortest first."""
    return sorted({repr(value): value for value in values if value == value}.values(), key=size_of)


def size_of(value: Any) -> int:
    """The number of characters of a value as text; a geometry as WKT."""
    if isinstance(value, tuple):
        return sum(map(size_of, value))
    shape = geometry_of(value)
    return len(repr(value)) if shape is None else len(shape.wkt)


def _counter_example(loss: LosingFile, evaluate: Evaluate) -> CounterExample:
    evaluation = evaluate(loss.columns, [loss.query])
    assert evaluation is not None
    lost = [number for number, value in enumerate(evaluation[1].column(0).to_pylist()) if value is True]
    rows = [dict(zip(loss.samples, row, strict=True)) for row in loss.rows]
    indexes = loss.candidate.indexes
    metadata = metadata_of(indexes, evaluation[0], [range(len(rows))])
    summaries = {str(index): metadata.column(str(index))[0].as_py() for index in indexes}
    return loss.candidate.counter_example(loss.query, rows, lost, summaries, str(loss.clause()))
