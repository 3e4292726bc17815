"""Simplification of counter-examples that were found through Spark.

A Spark job costs too much for Hypothesis's shrinker, which tries one case after the other. One job evaluates the
function for some hundred simple rows, drawn near those of the loss and at random; the simplest row that is lost, for
the simplest literal to compare with, is shown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking import CounterExample, UnquotedText, geometry_of
from geoskip.checking.candidates import Candidate, IndexedExpression, metadata_of, truth_of
from geoskip.checking.function import FunctionResults
from geoskip.checking.search import simpler
from geoskip.checking.strategies import Sample, physical_value, samples
from geoskip.clauses import Clause, keep_mask
from geoskip.predicates import Call, Comparison, Literal, Not, Predicate, normalise
from geoskip.spark.check_arguments import sql_of

__all__ = ["LosingFile", "shrunk"]

Row = tuple[Any, ...]
Evaluation = tuple[dict[str, IndexedExpression], pa.Table]
Evaluate = Callable[[Mapping[str, list[Any]], Sequence[str]], Evaluation | None]
"""From rows, by column, and SQL texts to the expressions for indexes and a column a text; None where Spark fails."""
_ROWS, _LITERALS, _DRAWN = 300, 60, 40


@dataclass(frozen=True)
class LosingFile:
    """A file that is wrongly skipped: the condition over ``call``, and Spark's ``node``."""

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
        """The clause of the candidate; None if it does not take the literal."""
        try:
            clause = self.candidate.ask(normalise(self.node))
        except Exception:
            return None
        return clause if isinstance(clause, Clause) else None

    def literal(self) -> Literal | None:
        """The literal that the function is compared with, if Spark has left it as it was."""
        parts = (part.child if isinstance(part, Not) else part for part in (self.condition, normalise(self.node)))
        match tuple(parts):
            case (Comparison(_, _, Literal() as ours), Comparison(_, _, Literal() as theirs)):
                return ours if (ours.value, ours.type) == (theirs.value, theirs.type) else None
        return None

    def compared_with(self, value: Any) -> LosingFile:
        """The same with another literal."""

        def changed(node: Predicate) -> Predicate:
            if isinstance(node, Not):
                return Not(changed(node.child))
            assert isinstance(node, Comparison)
            assert isinstance(node.right, Literal)
            return replace(node, right=replace(node.right, value=value))

        return replace(self, condition=changed(self.condition), node=changed(normalise(self.node)))


def shrunk(loss: LosingFile, evaluate: Evaluate) -> CounterExample:
    """The simplest row that is lost, else the file as it was found, as a counter-example."""
    wide = replace(loss, rows=tuple(_simple_rows(loss)))
    evaluation = evaluate(wide.columns, [loss.query, loss.function])
    losses = list(_losses(wide, evaluation)) if evaluation is not None else []
    best = min(losses, key=lambda one: size_of(one.rows) + len(one.query), default=loss)
    return _shown(best, evaluate)


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
    """The single rows that are lost, for the condition and for simpler literals in it."""
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
    except Exception:  # a simpler value may be none that the index takes
        return
    for variant, matches in variants:
        clause = variant.clause()
        if clause is not None:
            lost = np.flatnonzero(matches & ~keep_mask(clause, metadata)).tolist()
            yield from (replace(variant, rows=(loss.rows[row],)) for row in lost)


def _simplest(values: Sequence[Any]) -> list[Any]:
    """The distinct values that equal themselves, the shortest first."""
    return sorted({repr(value): value for value in values if value == value}.values(), key=size_of)


def size_of(value: Any) -> int:
    """The number of characters of a value as a text, of a geometry as WKT."""
    if isinstance(value, tuple):
        return sum(map(size_of, value))
    shape = geometry_of(value)
    return len(repr(value)) if shape is None else len(shape.wkt)


def _shown(loss: LosingFile, evaluate: Evaluate) -> CounterExample:
    evaluation = evaluate(loss.columns, [loss.query])
    assert evaluation is not None
    truth = [value is True for value in evaluation[1].column(0).to_pylist()]
    rows = tuple(
        {**dict(zip(loss.samples, row, strict=True)), "the query says": UnquotedText("TRUE" if matches else "not TRUE")}
        for row, matches in zip(loss.rows, truth, strict=True)
    )
    indexes = loss.candidate.indexes
    metadata = metadata_of(indexes, evaluation[0], [range(len(rows))])
    return CounterExample(
        loss.candidate.name,
        f"a file that {loss.candidate.over} summarises is skipped, though a row of it matches",
        loss.query,
        rows,
        tuple(number for number, matches in enumerate(truth) if matches),
        {str(index): metadata.column(str(index))[0].as_py() for index in indexes},
        str(loss.clause()),
    )
