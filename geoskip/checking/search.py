"""Searches for counter-examples: Hypothesis draws rows, constants and literals, and shrinks them.

The search draws batches: up to 60 rows, several calls with some arguments constant, and literals to compare each with.
Files are formed of the rows, and every candidate is judged on all files for every condition at once. Shrinking draws
single files whose values are those of the first loss or simpler ones, and judges only the candidate at fault.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from geoskip.checking import CounterExample, UnquotedText, geometry_of
from geoskip.checking.candidates import (
    Candidate,
    IndexedExpression,
    SyntheticFiles,
    Tally,
    candidates_for,
    clause_of,
    expressions_of,
    truth_of,
)
from geoskip.checking.function import FunctionResults, FunctionUnderTest
from geoskip.checking.strategies import OutOfTime, Strategy, drawn, minimal, physical_value
from geoskip.clauses import Mask, keep_mask
from geoskip.indexes.base import Index
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith, normalise
from geoskip.types import sql_type

_ROWS, _CALLS, _OTHERS = 80, 4, 3
_COMPARED, _COMPARED_ALONE, _ARGUMENTS, _NUMBERS = 3, 8, 2, 6
_SHRUNK = 400
_SHRINKING = 10.0
"""Seconds after which shrinking stops; it takes one at most."""

# ---- conditions


def literals_of(
    call: Call, results: pa.Array, arguments: Sequence[Any], constants: Sequence[Any]
) -> SearchStrategy[list[Any]]:
    """The strategy of lists of values to compare a call with.

    Parameters
    ----------
    call
        The call, with its type.
    results
        Its values; some of these and values beside them are compared.
    arguments
        Plain values of arguments of the call's type: ``f(s) <> 'apple'`` where ``s`` is that.
    constants
        Constants in the code of the function and of its mappings; those of the call's type are compared.
    """
    try:
        known = list(dict.fromkeys(physical_value(value) for value in results.drop_null().to_pylist()))
    except (TypeError, OverflowError):
        known = []
    if not known:
        return st.just([])
    kind, some = sql_type(call.type), st.sampled_from(known)
    numbers: list[Any] = []
    beside: Strategy = st.nothing()
    if kind.is_integral:
        numbers = [int(c) for c in constants if isinstance(c, int | float) and abs(c) < 100 and c == c // 1]
        beside = st.builds(lambda value, step: value + step if abs(value) < 2**7 else 0, some, st.sampled_from([-1, 1]))
    elif kind.is_floating:
        numbers = [float(c) for c in constants if isinstance(c, int | float) and abs(c) < 100 and call.type == "double"]
        beside = st.one_of(st.just(0.0), some.map(lambda value: round(value, 1)))
    elif kind.name == "string":  # the beginning of a value, and something longer
        beside = st.builds(lambda value, cut: value[:-cut] if cut else value + "a", some, st.integers(0, 5))
    given = list(dict.fromkeys(physical_value(value) for value in arguments if value is not None))
    most = _COMPARED_ALONE if len(call.args) == 1 else _COMPARED
    lists = [_some_of(known, most), _some_of(given, _ARGUMENTS), _some_of(numbers, _NUMBERS)]
    lists += [st.lists(beside, min_size=2, max_size=2)] if not beside.is_empty else []
    return st.tuples(*lists).map(lambda drawn: list(dict.fromkeys(itertools.chain.from_iterable(drawn))))


def _some_of(values: Sequence[Any], most: int) -> SearchStrategy[list[Any]]:
    distinct = list(dict.fromkeys(values))
    count = min(most, len(distinct))
    return st.lists(st.sampled_from(distinct), unique=True, min_size=count, max_size=count) if distinct else st.just([])


def conditions(call: Call, literals: Sequence[Any]) -> Iterator[Predicate]:
    """Conditions on a call: NULL tests, the call if it is boolean or comparisons; and negations."""
    yield IsNull(call)
    yield Not(IsNull(call))
    if call.type == "boolean":
        yield call
        yield Not(call)
        yield Comparison("<=>", call, Literal(True, "boolean"))
        return
    for value in literals:
        literal = Literal(value, call.type)
        for op in ("=", "<", "<=", ">", ">=", "<=>"):
            yield Comparison(op, call, literal)
        yield Not(Comparison("=", call, literal))
        yield Not(Comparison("<=>", call, literal))
        if isinstance(value, str) and value:
            yield StartsWith(call, value[: 1 + len(value) // 2])
    among = tuple(Literal(value, call.type) for value in literals)
    if among:
        yield In(call, among)
        yield Not(In(call, among))


# ---- mappings


@dataclass(frozen=True)
class _CallCase:
    """A call with some constant arguments, its values for the rows of a case, and literals."""

    call: Call
    constants: Mapping[str, Any]
    results: FunctionResults
    literals: tuple[Any, ...]


@dataclass(frozen=True)
class _Case:
    rows: Mapping[str, list[Any]]
    calls: tuple[_CallCase, ...]


@dataclass(frozen=True)
class _Loss:
    """A file that a candidate skips although a row matches: the call, the condition, the rows."""

    candidate: Candidate
    one: _CallCase
    condition: Predicate
    rows: Sequence[Mapping[str, Any]]
    results: Sequence[Any]
    lost: Sequence[int]
    summaries: Mapping[str, Any]
    clause: str

    @property
    def literals(self) -> tuple[Any, ...]:
        """The values that the call is compared with."""
        match self.condition:
            case Comparison(_, _, Literal(value)) | Not(Comparison(_, _, Literal(value))) if self.one.literals:
                return (value,)
        return self.one.literals

    def counter_example(self) -> CounterExample:
        """The loss as it is shown."""
        rows = tuple(
            {
                **row,
                str(self.one.call): result,
                "the query says": UnquotedText("TRUE" if n in self.lost else "not TRUE"),
            }
            for n, (row, result) in enumerate(zip(self.rows, self.results, strict=True))
        )
        why = f"a file that {self.candidate.over} summarises is skipped, though a row of it matches"
        return CounterExample(
            self.candidate.name, why, str(self.condition), rows, tuple(self.lost), self.summaries, self.clause
        )


@st.composite
def _cases(draw: DrawFn, subject: FunctionUnderTest) -> _Case:
    names = list(subject.arguments)
    # columns first, as most functions take them, and as many constants
    usual = sorted((tuple(names[n:]) for n in range(1, len(names))), key=lambda some: abs(2 * len(some) - len(names)))
    others = [some for count in range(1, len(names)) for some in itertools.combinations(names, count)]
    others = [some for some in others if some not in usual]
    row = subject.rows()
    full = draw(st.integers(0, 1 << 40)) > 0  # Hypothesis begins with the simplest case, which shall cost little
    rows = subject.columns_of([draw(row) for _ in range(_ROWS if full else 1)])
    calls = []
    choices = [some for _ in range(_CALLS) for some in (*usual, *draw(_some_of(others, _OTHERS)))]
    for chosen in [(), *(choices if full else ())]:
        place = draw(row) if chosen else {}
        constants = {n: draw(subject.arguments[n].strategy) if place[n] is None else place[n] for n in chosen}
        call, results = subject.call(constants), subject.evaluate(rows, constants)
        alike = [v for n, sample in subject.arguments.items() if sample.kind == call.type for v in rows[n]]
        literals = draw(literals_of(call, results.values, alike, subject.constants)) if call.type != "boolean" else ()
        calls.append(_CallCase(call, constants, results, tuple(literals)))
    return _Case(rows, tuple(calls))


@st.composite
def _simpler_cases(draw: DrawFn, subject: FunctionUnderTest, loss: _Loss) -> _Case:
    """Cases of one call over the rows of a loss, in which some values are simpler."""
    constants = {name: draw(simpler(value)) for name, value in loss.one.constants.items()}
    kept = [row for row in loss.rows if draw(st.booleans())] or loss.rows
    columns = subject.columns_of([{name: draw(simpler(value)) for name, value in row.items()} for row in kept])
    call, results = subject.call(constants), subject.evaluate(columns, constants)
    first = st.just(physical_value(results.values[0].as_py()))
    compared = [value for value in loss.literals if draw(st.booleans())] or loss.literals[:1]
    literals = tuple(draw(st.one_of(first, simpler(value))) for value in compared)
    return _Case(columns, (_CallCase(call, constants, results, literals),))


def simpler(value: Any) -> Strategy:
    """A value, more often than not, and simpler ones: towards zero, shorter, rounded."""
    match value:
        case int() | float() if not isinstance(value, bool) and math.isfinite(value):
            most = math.ceil(abs(value))
            return st.integers(0, 4 * most + 8).map(lambda n: _towards_zero(value, most, n))
        case str():
            initials = re.sub(r"\w+", lambda word: word[0][:1], value)
            shorter = ["", value[:1], value[:2], initials, value[: len(value) // 2]]
            plain = [re.sub(r"[^\W\d]", "a", re.sub(r"\d", "0", text)) for text in (value[:2], initials)]
            return st.sampled_from(["a", *sorted({*shorter, *plain}, key=lambda t: (len(t), t)), *[value] * 10])
        case bytes() if (shape := geometry_of(value)) is not None:
            rounded = (shapely.transform(shape, lambda xy, d=digits: np.round(xy, d)) for digits in (0, 1))
            return st.sampled_from([*(shapely.to_wkb(one) for one in rounded if one.is_valid), *[value] * 6])
    return st.just(value)


def _towards_zero(value: float, most: int, n: int) -> float:
    """``n`` with the sign of a value, and above ``most`` the value itself, just above it with one digit."""
    if n > most + 1:
        return value
    return round(value, 1) if n == most + 1 else type(value)(math.copysign(n, value))


def _shape(condition: Predicate) -> tuple[Any, ...]:
    inner = _shape(condition.child) if isinstance(condition, Not) else ()
    return type(condition), getattr(condition, "op", ""), inner


def _shrunk(subject: FunctionUnderTest, first: _Loss) -> _Loss:
    """Simplify a loss with Hypothesis."""
    best, tally, deadline = first, Tally(), time.monotonic() + _SHRINKING

    def loses(case: _Case) -> bool:
        nonlocal best
        if time.monotonic() > deadline:
            raise OutOfTime
        try:
            loss = _loss(case, expressions_of(subject, case.rows), [first.candidate], tally, like=first.condition)
        except Exception:  # a simpler value may be none that the index takes
            return False
        best = loss or best  # the last one is Hypothesis's simplest
        return loss is not None

    minimal(_simpler_cases(subject, first), loses, "shrink", examples=_SHRUNK)
    return best


def _loss(
    case: _Case, expressions: Sequence[IndexedExpression], candidates: Sequence[Candidate], tally: Tally,
    deadline: float = math.inf, like: Predicate | None = None,
) -> _Loss | None:  # fmt: skip
    """The smallest file of a case that is skipped although a row of it matches."""
    files = SyntheticFiles(expressions)
    for one in case.calls:
        if time.monotonic() > deadline:
            break
        tally.notes.update(dict.fromkeys(one.results.notes))
        for condition in conditions(one.call, one.literals):
            if like is not None and _shape(condition) != _shape(like):
                continue
            node = normalise(condition)
            clauses = [clause_of(candidate, node, tally) for candidate in candidates]
            if all(clause is None for clause in clauses):
                for candidate in candidates:
                    tally.count_condition(candidate, len(files.files))
                continue
            truth = truth_of(condition, one.call, one.results)
            matching: Mask = np.any(files.members & truth, axis=1)
            for candidate, clause in zip(candidates, clauses, strict=True):
                tally.count_condition(candidate, len(files.files))
                if clause is None:
                    continue
                keep = keep_mask(clause, files.metadata(candidate.indexes))
                tally.count_clause(candidate, matching, keep)
                if wrong := np.flatnonzero(matching & ~keep).tolist():
                    number = min(wrong, key=lambda number: len(files.files[number]))
                    metadata = files.metadata(candidate.indexes)
                    summaries = {str(i): metadata.column(str(i))[number].as_py() for i in candidate.indexes}
                    rows = [{name: values[row] for name, values in case.rows.items()} for row in files.files[number]]
                    results = one.results.values.take(pa.array(files.files[number])).to_pylist()
                    lost = np.flatnonzero(truth[files.files[number]]).tolist()
                    return _Loss(candidate, one, condition, rows, results, lost, summaries, str(clause))
    return None


def lost_row(
    subject: FunctionUnderTest, indexes: Sequence[Index], tally: Tally, deadline: float, seed: object
) -> CounterExample | None:
    """Search one batch for a file that a mapping or declaration skips although one of its rows matches.

    Parameters
    ----------
    subject
        The function, with its arguments near constants.
    indexes
        The user's choice of indexes; empty for all that fit.
    tally
        Where the candidates and their effects are counted.
    deadline
        The end of the search, on the monotonic clock.
    seed
        The same seed draws the same batch.
    """
    case = drawn(_cases(subject), seed)
    expressions = expressions_of(subject, case.rows)
    candidates = candidates_for(subject.call({}), expressions, indexes, tally)
    loss = _loss(case, expressions, candidates, tally, deadline)
    return None if loss is None else _shrunk(subject, loss).counter_example()
