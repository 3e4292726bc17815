"""Check mappings with Spark: of its built-in functions, of the JVM and Sedona, and of named functions.

Rows are written to one small Parquet file. Spark evaluates the function for each of them, with some arguments constant,
and its optimizer converts the conditions to the form that the rule gets in a query; the JVM keeps these for the
evaluation of single values. Files are then generated and checked as without Spark (:mod:`geoskip.checking`).
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from geoskip.checking import CounterExample, MappingCheck
from geoskip.checking.candidates import IndexedExpression, SyntheticFiles, Tally, candidates_for, truth_of
from geoskip.checking.function import FunctionResults, FunctionUnderTest, conditions, literals_of
from geoskip.checking.search import constant_value, denotation_error, is_same, order_violation
from geoskip.checking.strategies import constants_of, drawn, physical_value, rows_of, samples
from geoskip.clauses import Mask
from geoskip.errors import MappingError
from geoskip.evaluation import using_evaluator
from geoskip.geometry import Denotation
from geoskip.indexes.base import Index
from geoskip.predicates import Call, Literal, Predicate, normalise
from geoskip.registry import current
from geoskip.registry.registry import constant_name
from geoskip.rewrite import fold_constants
from geoskip.spark.check_arguments import (
    Argument,
    LosingFile,
    argument_values,
    arguments_for,
    can_analyse,
    columns_of,
    evaluate_texts,
    indexed_expressions,
    likely_subjects,
    literal_sql,
    registered_name,
    shrunk,
    spellings_of,
    sql_of,
)
from geoskip.spark.rule.evaluator import SparkEvaluator
from geoskip.spark.rule.translate import Translator
from geoskip.spark.session import disabled, java, with_rule

_ROWS = 60
_CONSTANTS = 4
_EVALUATED = 20
"""Number of calls with constants for which an evaluator is compared with Spark."""


def check(
    spark: SparkSession,
    function: Any,
    *,
    rows: Mapping[str, Any] | Sequence[Any] | None,
    indexes: Sequence[Index],
    name: str | None,
    seconds: float,
    seed: int,
    returns: str | None = None,
) -> MappingCheck:
    """Check a function by its name in a session; a function without one is registered temporarily.

    Parameters
    ----------
    spark, function
        The session, and a Python function, a UDF object or a SQL name.
    rows, indexes, name, seconds, seed, returns
        As for :func:`geoskip.check_mapping`.
    """
    started = time.monotonic()
    with (
        registered_name(spark, function, name, rows, returns) as name,
        tempfile.TemporaryDirectory(prefix="geoskip-check-") as folder,
        disabled(spark),
    ):
        likely = likely_subjects(function, rows, returns, name)
        trial = _FunctionTrial(
            spark, Path(folder), name, Tally(), map(f"{seed} {{}}".format, itertools.count()), likely
        )
        counter_example = trial.search(rows, indexes, started + seconds)
    tally = trial.tally
    if not (tally.effects or tally.agreed or tally.problems or counter_example):
        raise MappingError(f"nothing is mapped or declared of {trial.name}, as this session has it")
    result = tally.result(trial.name, counter_example, time.monotonic() - started)
    if result.trials:
        return result
    return replace(result, problems=(*tally.problems, *result.notes)[:5], notes=())  # nothing was tried at all


@dataclass(frozen=True)
class _JvmConditions:
    """Conditions that the JVM keeps under a number, with their predicates and evaluator."""

    predicates: list[Predicate]
    evaluator: SparkEvaluator
    number: int


@dataclass(frozen=True)
class _SqlCondition:
    """A condition as SQL, the rows for which it is TRUE, and its predicate over ``call``, a placeholder."""

    text: str
    truth: Mask
    condition: Predicate
    call: Call


@dataclass(frozen=True)
class _FunctionTrial:
    """The check of one function in one session."""

    spark: SparkSession
    folder: Path
    name: str
    tally: Tally
    seeds: Iterator[str]
    subjects: Sequence[FunctionUnderTest] = ()
    """The likely arguments of a Python function."""

    def search(
        self, rows: Mapping[str, Any] | Sequence[Any] | None, indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        """Search for a counter-example among likely arguments; None if none is found.

        Parameters
        ----------
        rows
            The values of arguments, as for :func:`geoskip.check_mapping`.
        indexes
            Indexes to try; if empty, all that fit.
        deadline
            The time of ``time.monotonic`` at which to end, after all arguments were tried once.
        """
        given: list[Any] = [subject.arguments for subject in self.subjects] or [rows]
        combinations = [some for one in given for some in arguments_for(self._frame, self.name, one)]
        if not self.subjects:
            combinations = [self._near_constants(arguments, deadline) for arguments in combinations]
        for arguments in itertools.islice(itertools.cycle(combinations), 3 * len(combinations)):
            for attempt in (self._constants, self._denotations, self._mappings):
                counter_example = attempt(arguments, indexes, deadline)
                if counter_example is not None:
                    return counter_example
            if time.monotonic() > deadline:
                break
        return None

    def _near_constants(self, arguments: tuple[Argument, ...], deadline: float) -> tuple[Argument, ...]:
        """Arguments near the constants in the code of the mappings of a function."""
        call = self._call(self._frame(arguments), self._sql([a.sql for a in arguments]), deadline)
        rules = [] if call is None else [mapping.rule for mapping in current().rules_of(call)]
        return tuple(argument.near(constants_of(rules)) for argument in arguments)

    # ---- rows, calls and their values

    def _frame(self, arguments: Sequence[Argument], values: Mapping[str, list[Any]] | None = None) -> DataFrame:
        samples = columns_of(arguments)
        values = values or {name: [] for name in samples}
        table = {name: pa.array(values[name], sample.arrow) for name, sample in samples.items()}
        path = self.folder / f"{next(self.seeds)}.parquet"
        pq.write_table(pa.table(table), path)
        return self.spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(path))  # Spark 3.5 needs it

    def _rows(self, arguments: Sequence[Argument], *, nulls: bool = True) -> dict[str, list[Any]]:
        """Values of the arguments' columns, most of them near the constants in the function's code."""
        columns = columns_of(arguments)
        constants, seed = self.subjects[0].constants if self.subjects else (), next(self.seeds)
        rows = samples(rows_of(columns, constants), seed, _ROWS)
        if not nulls:
            others = {n: samples(s.strategy, f"{seed} {n}", _ROWS) for n, s in columns.items()}
            rows = [{n: others[n][k] if v is None else v for n, v in row.items()} for k, row in enumerate(rows)]
        return {name: [row[name] for row in rows] for name in columns}

    def _workable(self, arguments: Sequence[Argument], text: str) -> tuple[dict[str, list[Any]], DataFrame]:
        """Rows for which Spark evaluates the call, if found: one failing row makes the query fail."""
        modest = [argument.modest() for argument in arguments]
        for some, nulls in ((arguments, True), (modest, True), (modest, False)):
            rows = self._rows(some, nulls=nulls)
            frame = self._frame(arguments, rows)
            if evaluate_texts(frame, [text]) is not None:
                return rows, frame
        return rows, frame

    def _calls(self, arguments: Sequence[Argument]) -> Iterator[str]:
        """The call over columns, and with constants for some arguments, but not all."""
        yield self._sql([a.sql for a in arguments])
        places = range(len(arguments))
        for count in range(1, len(arguments)):
            for some in itertools.islice(itertools.combinations(places, count), 4):
                for _ in range(_CONSTANTS):
                    yield self._sql(
                        [a.constant(next(self.seeds)) if n in some else a.sql for n, a in enumerate(arguments)]
                    )

    def _sql(self, arguments: Sequence[str]) -> str:
        return f"{self.name}({', '.join(arguments)})"

    def _values(self, frame: DataFrame, texts: Sequence[str]) -> list[FunctionResults | None]:
        """Evaluate SQL texts for each row; None for a text for which Spark fails."""
        geometry = self._kind(frame, texts[0]) == "geometry"
        plain = [f"ST_AsBinary({text})" if geometry else text for text in texts]
        table = evaluate_texts(frame, plain)
        if table is None and len(texts) == 1:
            self.tally.notes[f"{self.name} fails for some of the rows that were tried; rows= says which it takes"] = (
                None
            )
            return [None]
        if table is None:
            return [results for text in texts for results in self._values(frame, [text])]
        nothing = np.zeros(table.num_rows, dtype=bool)
        return [FunctionResults(table.column(number).combine_chunks(), nothing) for number in range(len(texts))]

    def _kind(self, frame: DataFrame, text: str) -> str:
        kind = frame.selectExpr(text).schema[0].dataType
        return "geometry" if type(kind).__name__ == "GeometryType" else str(kind.simpleString())

    def _jvm_conditions(self, frame: DataFrame, texts: Sequence[str], deadline: float) -> _JvmConditions:
        jvm = with_rule(self.spark)
        selected = frame.selectExpr(*(f"({t}) AS c{n}" for n, t in enumerate(texts)))
        number, _, written = jvm.hold(selected._jdf).partition("\n")
        nodes = json.loads(written)
        translator = Translator()
        predicates = [fold_constants(translator.predicate(node)) for node in nodes]
        request = {"number": int(number), "conditions": nodes, "settings": {}}
        evaluator = SparkEvaluator(jvm, request, slots=(), names=lambda name: name, deadline=deadline + 30, answers={})
        return _JvmConditions(predicates, evaluator, int(number))

    # ---- the searches

    def _mappings(
        self, arguments: Sequence[Argument], indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        texts = list(self._calls(arguments))
        rows, frame = self._workable(arguments, texts[0])
        kind = self._kind(frame, texts[0])
        if kind == "geometry":
            return None
        queries: list[_SqlCondition] = []
        constants = self.subjects[0].constants if self.subjects else ()
        every = self._values(frame, texts)
        alike = argument_values(arguments, rows, kind)
        for text, evaluated in zip(texts, every, strict=True):
            if evaluated is None:
                continue
            stand_in = Call(self.name, (Literal(text),), None, (), kind)
            literals = drawn(literals_of(stand_in, evaluated.values, alike, constants), next(self.seeds))
            for condition in conditions(stand_in, [] if kind == "boolean" else literals):
                query = sql_of(condition, stand_in, text)
                queries.append(_SqlCondition(query, truth_of(condition, stand_in, evaluated), condition, stand_in))
        over = [argument.sql for argument in arguments]
        known = {*over, *(name for argument in arguments for name in argument.names)}
        further = list(dict.fromkeys(t for index in indexes for t in index.expressions() if t not in known))
        for text in further:
            if not can_analyse(frame, text):
                raise MappingError(
                    f"Spark cannot compute {text!r} for the given index= over the arguments of {self.name}, which are "
                    f"called {', '.join(frame.columns)} here: use these names, or choose others by rows={{'id': ...}}"
                )
        held = self._jvm_conditions(frame, [*over, *texts[:1], *further, *(query.text for query in queries)], deadline)
        place = len(over) + 1
        expressions = list(indexed_expressions(arguments, rows, held.predicates[: len(over)]))
        for text, predicate in zip(further, held.predicates[place:], strict=False):
            (results,) = self._values(frame, [text])
            if results is not None:
                expressions.append(IndexedExpression(text, predicate, self._kind(frame, text), results.values))
        try:
            whole = held.predicates[len(over)]
            if (wrong := order_violation(self.name, whole, rows, every[0])) is not None:
                return wrong
            with using_evaluator(held.evaluator):
                predicates = held.predicates[place + len(further) :]
                call = self._own_call(whole)
                loss = self._loss(arguments, call, expressions, rows, indexes, queries, predicates)
                others = [expression for expression in expressions if expression.text in further]
                evaluate = partial(self._evaluation, arguments, held.predicates[: len(over)], others)
                return shrunk(loss, evaluate) if loss is not None else None
        finally:
            java(self.spark).geoskip.release(held.number)

    def _own_call(self, condition: Predicate) -> Call:
        """The call of the function; raises an error if Spark has replaced it by something else."""
        call = normalise(condition)
        if not isinstance(call, Call) or call.name.lower() not in spellings_of(self.name):
            raise MappingError(
                f"Spark replaces calls of {self.name} by {call}, so that a mapping of {self.name} is never used: "
                "map a function that remains there, or index the expression itself"
            )
        return call

    def _loss(
        self, arguments: Sequence[Argument], call: Call,
        expressions: Sequence[IndexedExpression], rows: Mapping[str, list[Any]], indexes: Sequence[Index],
        queries: Sequence[_SqlCondition], predicates: Sequence[Predicate],
    ) -> LosingFile | None:  # fmt: skip
        """A file that is wrongly skipped by a query, or None."""
        candidates = candidates_for(call, expressions, indexes, self.tally)
        if not candidates:
            return None
        files = SyntheticFiles(expressions)
        for query, predicate in zip(queries, predicates, strict=True):
            matching: Mask = np.any(files.members & query.truth, axis=1)
            node = normalise(predicate)
            for candidate in candidates:
                clause = self.tally.clause(candidate, node, len(matching))
                if clause is None:
                    continue
                if (number := self.tally.lost_file(candidate, clause, files, matching)) is not None:
                    values = tuple(tuple(cells[row] for cells in rows.values()) for row in files.files[number])
                    columns = columns_of(arguments)
                    return LosingFile(candidate, query.condition, query.call, node, columns, values)
        return None

    def _evaluation(
        self, arguments: Sequence[Argument], predicates: Sequence[Predicate], further: Sequence[IndexedExpression],
        rows: Mapping[str, list[Any]], texts: Sequence[str],
    ) -> tuple[dict[str, IndexedExpression], pa.Table] | None:  # fmt: skip
        """Evaluate the expressions for indexes and SQL texts for other rows; None if Spark fails."""
        table = evaluate_texts(self._frame(arguments, rows), [*texts, *(expression.text for expression in further)])
        if table is None:
            return None
        columns = [column.combine_chunks() for column in table.columns[len(texts) :]]
        expressions = [*indexed_expressions(arguments, rows, predicates),
                       *(replace(e, values=values) for e, values in zip(further, columns, strict=True))]  # fmt: skip
        return {expression.text: expression for expression in expressions}, table.select(range(len(texts)))

    def _constants(
        self, arguments: Sequence[Argument], indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        frame = self._frame(arguments, {name: values[:1] for name, values in self._rows(arguments).items()})
        call = self._call(frame, self._sql([a.sql for a in arguments]), deadline)
        if call is None or not (declared := current().constants_of(call)):
            return None
        if any(argument.form != "{}" for argument in arguments):
            return None  # these arguments are results of another function
        kinds = [sample.kind for a in arguments for sample in a.samples]
        columns = [samples(s.strategy, next(self.seeds), _EVALUATED) for a in arguments for s in a.samples]
        rows = list(zip(*columns, strict=True))
        texts = [
            self._sql([literal_sql(physical_value(v), k) for v, k in zip(row, kinds, strict=True)]) for row in rows
        ]
        for text, row, real in zip(texts, rows, self._values(frame, texts), strict=True):
            for constant in declared if real is not None else ():
                name = constant_name(constant.evaluate)
                try:
                    value = constant_value(constant, row)
                except Exception:
                    continue
                assert real is not None
                actual = physical_value(real.values[0].as_py())
                if not is_same(value, actual):
                    return CounterExample(name, f"{text} is evaluated to {value}, and is {actual!r}")
                self.tally.agree(name)
        return None

    def _denotations(
        self, arguments: Sequence[Argument], indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        rows = self._rows(arguments)
        frame = self._frame(arguments, rows)
        rest = arguments[1:]
        for given in ([a.sql for a in arguments], [arguments[0].sql, *(a.constant(next(self.seeds)) for a in rest)]):
            text = self._sql(given)
            call = self._call(frame, text, deadline)
            declared = current().denotations_of(call) if call is not None else []
            if call is None or not declared or any(len(a.names) > 1 for a in arguments):
                continue
            (results,) = self._values(frame, [text])
            values = {p: a.names[0] for p, a in zip(call.args, arguments, strict=True) if not isinstance(p, Literal)}
            for denotation in declared if results is not None else ():
                name = f"denotation {denotation.meaning.__module__}.{denotation.meaning.__qualname__}"
                meaning = denotation.meaning(call)
                for number in range(_ROWS) if isinstance(meaning, Denotation) else ():
                    assert results is not None
                    row = {column: cells[number] for column, cells in rows.items()}
                    of_row = {predicate: row[column] for predicate, column in values.items()}
                    wrong = denotation_error(meaning, of_row.get, results.values[number].as_py())
                    if wrong is not None:
                        return CounterExample(name, f"it says {meaning}, but {wrong}", rows=(row,))
                    self.tally.agree(name)
        return None

    def _call(self, frame: DataFrame, text: str, deadline: float) -> Call | None:
        """A call as the rule gets it; None if Spark has replaced it."""
        held = self._jvm_conditions(frame, [text], deadline)
        java(self.spark).geoskip.release(held.number)
        (predicate,) = held.predicates
        return predicate if isinstance(predicate, Call) else None
