"""check_mapping through Spark: for functions of SQL, of the JVM, of Sedona, and for whatever a session has by name.

Rows are written to one small Parquet file. Spark evaluates the function for each, with some arguments constant, and its
optimizer turns the conditions into what the rule would meet in a query; they are held, so that it evaluates for single
values too. The rest is as without Spark: files are formed of the rows, summarised, and judged
(:mod:`geoskip.checking`).
"""

from __future__ import annotations

import itertools
import json
import random
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

from geoskip.checking.candidates import Tally, asked, lenses_for, truth_of
from geoskip.checking.conditions import conditions
from geoskip.checking.constants import constants_of
from geoskip.checking.declarations import disordered, is_same, misplaced
from geoskip.checking.function import FunctionUnderTest
from geoskip.checking.python_results import FunctionResults
from geoskip.checking.result import CounterExample, MappingCheck
from geoskip.checking.strategies import physical_value
from geoskip.checking.synthetic_files import IndexedExpression, SyntheticFiles
from geoskip.clauses import Mask, keep_mask
from geoskip.errors import MappingError
from geoskip.evaluation import evaluating
from geoskip.geometry.denotations import Denotation
from geoskip.indexes.base import Index
from geoskip.predicates import Call, Literal, Predicate, normalise
from geoskip.registry import current
from geoskip.rewrite.folding import fold_constants
from geoskip.rewrite.sql_functions import Template, recognise
from geoskip.rules import calls_of
from geoskip.spark.check_shrinking import LosingFile, shrunk
from geoskip.spark.check_trials import (
    Argument,
    alike,
    arguments_for,
    collected,
    expressions_of,
    likely_subjects,
    literal_sql,
    named,
    rows_of,
    spellings_of,
    sql_of,
)  # fmt: skip
from geoskip.spark.rule.evaluator import SparkEvaluator
from geoskip.spark.rule.translate import Translator, inlined
from geoskip.spark.session import disabled, java

__all__ = ["check"]

_ROWS = 60
_CONSTANTS = 4
_EVALUATED = 20
"""Calls of constants that an evaluator is compared for."""


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
    """The check of a function by its name in a session; a function that is not registered is so for the while."""
    started = time.monotonic()
    with (
        named(spark, function, name, rows, returns) as name,
        tempfile.TemporaryDirectory(prefix="geoskip-check-") as folder,
        disabled(spark),
    ):
        likely = likely_subjects(function, rows, returns, name)
        trial = _FunctionTrial(spark, Path(folder), name, Tally(), random.Random(str(seed)), likely)
        found = trial.searched(rows, indexes, started + seconds)
    tally = trial.tally
    effects = tuple(tally.effects.values())
    if not (effects or tally.agreed or tally.problems or found):
        raise MappingError(f"nothing is mapped or declared of {trial.name}, as this session has it")
    trials = sum(effect.trials for effect in effects) + sum(tally.agreed.values())
    notes = (*(f"{what} agrees for {n:,} values" for what, n in tally.agreed.items()), *tally.notes)
    return MappingCheck(
        trial.name,
        found,
        trials=trials,
        skipped=sum(effect.skipped for effect in effects),
        effects=effects,
        problems=tuple(tally.problems)[:5] if trials else (*tally.problems, *notes)[:5],  # so nothing was tried at all
        notes=notes if trials else (),
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _JvmConditions:
    """Conditions that the JVM holds, as predicates and as what asks about them."""

    predicates: list[Predicate]
    evaluator: SparkEvaluator
    number: int


@dataclass(frozen=True)
class _SqlCondition:
    """A condition as SQL, for which rows it is TRUE, and what it was made of: ``call`` stands for the function's."""

    text: str
    truth: Mask
    condition: Predicate
    call: Call


@dataclass(frozen=True)
class _FunctionTrial:
    """One function in one session."""

    spark: SparkSession
    folder: Path
    name: str
    tally: Tally
    chance: random.Random
    subjects: Sequence[FunctionUnderTest] = ()  # of a Python function, what it is likely to take

    def searched(
        self, rows: Mapping[str, Any] | Sequence[Any] | None, indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        ways: list[Any] = [subject.arguments for subject in self.subjects] or [rows]
        combinations = [found for way in ways for found in arguments_for(self._frame, self.name, way)]
        if not self.subjects:
            combinations = [self._near_constants(arguments, deadline) for arguments in combinations]
        for arguments in itertools.islice(itertools.cycle(combinations), 3 * len(combinations)):
            for attempt in (self._constants, self._denotations, self._mappings):
                found = attempt(arguments, indexes, deadline)
                if found is not None:
                    return found
            if time.monotonic() > deadline:
                break
        return None

    def _near_constants(self, arguments: tuple[Argument, ...], deadline: float) -> tuple[Argument, ...]:
        """Arguments near the constants in the code of the mappings of a function of SQL."""
        call = self._call(self._frame(arguments), self._sql([a.sql for a in arguments]), deadline)
        rules = [] if call is None else [mapping.rule for mapping in current().rules_of(call)]
        return tuple(argument.near(constants_of(rules)) for argument in arguments)

    # ---- rows, calls and their values

    def _frame(self, arguments: Sequence[Argument], values: Mapping[str, list[Any]] | None = None) -> DataFrame:
        samples = {n: s for a in arguments for n, s in zip(a.names, a.samples, strict=True)}
        values = values or {name: [] for name in samples}
        table = {name: pa.array(values[name], sample.arrow) for name, sample in samples.items()}
        path = self.folder / f"{self.chance.random()}.parquet"
        pq.write_table(pa.table(table), path)
        return self.spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(path))  # Spark 3.5 asks for it

    def _rows(self, arguments: Sequence[Argument], *, nulls: bool = True) -> dict[str, list[Any]]:
        constants = self.subjects[0].constants if self.subjects else ()
        return rows_of(arguments, constants, self.chance, _ROWS, nulls=nulls)

    def _workable(self, arguments: Sequence[Argument], text: str) -> tuple[dict[str, list[Any]], DataFrame]:
        """Rows for which Spark evaluates the call, if there are any: where one row fails, so does the query."""
        modest = [argument.modest() for argument in arguments]
        for some, nulls in ((arguments, True), (modest, True), (modest, False)):
            rows = self._rows(some, nulls=nulls)
            frame = self._frame(arguments, rows)
            if collected(frame, [text]) is not None:
                return rows, frame
        return rows, frame

    def _calls(self, arguments: Sequence[Argument]) -> Iterator[str]:
        """The call over columns, and with every choice of constants that leaves a column."""
        yield self._sql([a.sql for a in arguments])
        places = range(len(arguments))
        for count in range(1, len(arguments)):
            for some in itertools.islice(itertools.combinations(places, count), 4):
                for _ in range(_CONSTANTS):
                    yield self._sql([a.constant(self.chance) if n in some else a.sql for n, a in enumerate(arguments)])

    def _sql(self, arguments: Sequence[str]) -> str:
        return f"{self.name}({', '.join(arguments)})"

    def _values(self, frame: DataFrame, texts: Sequence[str]) -> list[FunctionResults | None]:
        """What each text is for each row; None where Spark fails on one."""
        geometry = self._kind(frame, texts[0]) == "geometry"
        plain = [f"ST_AsBinary({text})" if geometry else text for text in texts]
        table = collected(frame, plain)
        if table is None and len(texts) == 1:
            self.tally.notes[f"{self.name} fails for some of the rows that were tried; rows= says which it takes"] = (
                None
            )
            return [None]
        if table is None:
            return [found for text in texts for found in self._values(frame, [text])]
        nothing = np.zeros(table.num_rows, dtype=bool)
        return [FunctionResults(table.column(number).combine_chunks(), nothing) for number in range(len(texts))]

    def _kind(self, frame: DataFrame, text: str) -> str:
        kind = frame.selectExpr(text).schema[0].dataType
        return "geometry" if type(kind).__name__ == "GeometryType" else str(kind.simpleString())

    def _held(self, frame: DataFrame, texts: Sequence[str], deadline: float) -> _JvmConditions:
        jvm = java(self.spark).geoskip
        held = frame.selectExpr(*(f"({t}) AS c{n}" for n, t in enumerate(texts)))
        number, _, written = jvm.hold(held._jdf).partition("\n")
        nodes = json.loads(written)
        translator = Translator()
        predicates = [fold_constants(translator.predicate(node)) for node in nodes]
        request = {"number": int(number), "conditions": nodes, "settings": {}}
        evaluator = SparkEvaluator(jvm, request, slots=(), names=lambda name: name, deadline=deadline + 30, answers={})
        return _JvmConditions(predicates, evaluator, int(number))

    # ---- what is tried

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
        for text, evaluated in zip(texts, every, strict=True):
            if evaluated is not None:
                stands = Call(self.name, (Literal(text),), None, (), kind)
                for condition in conditions(
                    stands, evaluated.values, self.chance, alike(arguments, rows, kind), constants
                ):
                    asks = sql_of(condition, stands, text)
                    queries.append(_SqlCondition(asks, truth_of(condition, stands, evaluated), condition, stands))
        over = [argument.sql for argument in arguments]
        known = {*over, *(name for argument in arguments for name in argument.names)}
        further = list(dict.fromkeys(t for index in indexes for t in index.expressions() if t not in known))
        held = self._held(frame, [*over, *texts[:1], *further, *(query.text for query in queries)], deadline)
        place = len(over) + 1
        expressions = list(expressions_of(arguments, rows, held.predicates[: len(over)]))
        for text, predicate in zip(further, held.predicates[place:], strict=False):
            (found,) = self._values(frame, [text])
            if found is not None:
                expressions.append(IndexedExpression(text, predicate, self._kind(frame, text), found.values))
        try:
            if (wrong := self._disordered(rows, held.predicates[len(over)], every[0])) is not None:
                return wrong
            with evaluating(held.evaluator):
                predicates = held.predicates[place + len(further) :]
                call = normalise(held.predicates[len(over)])
                templates = self._templates(call, held.number)
                case = self._judged(call, templates, expressions, rows, indexes, queries, predicates)
                others = [expression for expression in expressions if expression.text in further]
                tried = partial(self._tried, arguments, held.predicates[: len(over)], others)
                return shrunk(case, tried) if case is not None else None
        finally:
            java(self.spark).geoskip.release(held.number)

    def _disordered(
        self, rows: Mapping[str, list[Any]], call: Predicate, found: FunctionResults | None
    ) -> CounterExample | None:
        """Two rows that a function of one argument puts in another order than is declared."""
        if found is None or not isinstance(call, Call) or len(rows) > 1:
            return None
        said = current().properties_of(call)
        way = said.monotone(call) if said is not None and callable(said.monotone) else said and said.monotone
        if not isinstance(way, str):
            return None
        ((name, values),) = rows.items()
        shown = tuple({name: x, str(call): y} for x, y in disordered(way, values, found))
        blame = f"declare({self.name}, monotone={way!r})"
        return CounterExample(blame, "it is not so for these", rows=shown) if shown else None

    def _templates(self, call: Predicate, number: int) -> list[Template]:
        """What a function of SQL is made of."""
        if isinstance(call, Call) and call.name.lower() in spellings_of(self.name):
            return []
        made = inlined(self.name, java(self.spark).geoskip.inlined(number, self.name))
        return [made] if made is not None else []

    def _judged(
        self, call: Predicate, templates: Sequence[Template], expressions: Sequence[IndexedExpression],
        rows: Mapping[str, list[Any]], indexes: Sequence[Index], queries: Sequence[_SqlCondition],
        predicates: Sequence[Predicate],
    ) -> LosingFile | None:  # fmt: skip
        """A file that is lost by a query; of a function of SQL, its call is put where it was replaced."""
        call = templates[0].replaced(call) if templates else call
        if not isinstance(call, Call):
            raise MappingError(f"{self.name} is replaced by {call}, and a mapping is of the functions therein")
        lenses = lenses_for(call, expressions, indexes, self.tally)
        if not lenses:
            return None
        world = SyntheticFiles(expressions, self.chance)
        for query, predicate in zip(queries, predicates, strict=True):
            matching: Mask = np.any(world.members & query.truth, axis=1)
            node = next(iter(recognise(normalise(predicate), templates)), normalise(predicate))
            for lens in lenses:
                concerns = lens.rule is None or lens.rule.concerns(calls_of(node))  # would a query ask it?
                clause = asked(lens, node, self.tally) if concerns else None
                if clause is None:
                    self.tally.pass_over(lens, len(matching))
                    continue
                keep = keep_mask(clause, world.metadata(lens.indexes))
                self.tally.count(lens, matching, keep)
                if wrong := np.flatnonzero(matching & ~keep).tolist():
                    file = min((world.files[number] for number in wrong), key=len)
                    values = tuple(tuple(cells[row] for cells in rows.values()) for row in file)
                    return LosingFile(lens, query.condition, query.call, node, tuple(rows), values)
        return None

    def _tried(
        self, arguments: Sequence[Argument], predicates: Sequence[Predicate], further: Sequence[IndexedExpression],
        rows: Mapping[str, list[Any]], texts: Sequence[str],
    ) -> tuple[dict[str, IndexedExpression], pa.Table] | None:  # fmt: skip
        """What indexes may be over, for other rows, and what each text is for them; None where Spark fails."""
        table = collected(self._frame(arguments, rows), [*texts, *(expression.text for expression in further)])
        if table is None:
            return None
        columns = [column.combine_chunks() for column in table.columns[len(texts) :]]
        found = [*expressions_of(arguments, rows, predicates),
                 *(replace(e, values=values) for e, values in zip(further, columns, strict=True))]  # fmt: skip
        return {expression.text: expression for expression in found}, table

    def _constants(
        self, arguments: Sequence[Argument], indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        frame = self._frame(arguments, {name: values[:1] for name, values in self._rows(arguments).items()})
        call = self._call(frame, self._sql([a.sql for a in arguments]), deadline)
        if call is None or not (declared := current().constants_of(call)):
            return None
        drawn = [[sample.draw(self.chance) for a in arguments for sample in a.samples] for _ in range(_EVALUATED)]
        if any(argument.made != "{}" for argument in arguments):
            return None  # what evaluates them is another function's
        kinds = [sample.kind for a in arguments for sample in a.samples]
        texts = [
            self._sql([literal_sql(physical_value(v), k) for v, k in zip(row, kinds, strict=True)]) for row in drawn
        ]
        for text, row, real in zip(texts, drawn, self._values(frame, texts), strict=True):
            for constant in declared if real is not None else ():
                name = f"constant {constant.evaluate.__module__}.{constant.evaluate.__qualname__}"
                try:
                    said = constant.evaluate(*map(physical_value, row))
                except Exception:
                    continue
                said = said.value if isinstance(said, Literal) else said
                assert real is not None
                found = physical_value(real.values[0].as_py())
                if not is_same(said, found):
                    return CounterExample(name, f"{text} is evaluated to {said}, and is {found!r}")
                self.tally.agree(name)
        return None

    def _denotations(
        self, arguments: Sequence[Argument], indexes: Sequence[Index], deadline: float
    ) -> CounterExample | None:
        rows = self._rows(arguments)
        frame = self._frame(arguments, rows)
        rest = arguments[1:]
        for given in ([a.sql for a in arguments], [arguments[0].sql, *(a.constant(self.chance) for a in rest)]):
            text = self._sql(given)
            call = self._call(frame, text, deadline)
            declared = current().denotations_of(call) if call is not None else []
            if call is None or not declared or any(len(a.names) > 1 for a in arguments):
                continue
            (found,) = self._values(frame, [text])
            values = {p: a.names[0] for p, a in zip(call.args, arguments, strict=True) if not isinstance(p, Literal)}
            for denotation in declared if found is not None else ():
                name = f"denotation {denotation.meaning.__module__}.{denotation.meaning.__qualname__}"
                meaning = denotation.meaning(call)
                for number in range(_ROWS) if isinstance(meaning, Denotation) else ():
                    assert found is not None
                    row = {column: cells[number] for column, cells in rows.items()}
                    of_row = {predicate: row[column] for predicate, column in values.items()}
                    wrong = misplaced(meaning, of_row.get, found.values[number].as_py())
                    if wrong is not None:
                        return CounterExample(name, f"it says {meaning}, but {wrong}", rows=(row,))
                    self.tally.agree(name)
        return None

    def _call(self, frame: DataFrame, text: str, deadline: float) -> Call | None:
        """A call as the rule would meet it."""
        held = self._held(frame, [text], deadline)
        java(self.spark).geoskip.release(held.number)
        (found,) = held.predicates
        return found if isinstance(found, Call) else None
