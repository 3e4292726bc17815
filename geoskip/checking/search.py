"""Searches for counter-examples: of mappings, and of declared constants, denotations and monotonicity.

For mappings Hypothesis draws batches: up to 80 rows, several calls with some arguments constant, and literals to
compare with each call. Files are formed from the rows, and every candidate is tested on all files for every condition.
Shrinking draws single files with the values of the first loss or simpler ones, and tests only the failing candidate.
Declarations are compared with the function itself, value by value.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from geoskip import geometry as d
from geoskip.checking import CounterExample, geometry_of
from geoskip.checking.candidates import (
    Candidate,
    IndexedExpression,
    SyntheticFiles,
    Tally,
    candidates_for,
    expressions_of,
    truth_of,
)
from geoskip.checking.function import (
    ROW_BY_ROW,
    FunctionResults,
    FunctionUnderTest,
    conditions,
    literals_of,
    results_of_rows,
    some_of,
)
from geoskip.checking.strategies import OutOfTime, Strategy, drawn, minimal, physical_value, samples
from geoskip.clauses import Mask
from geoskip.geometry.shapes import ROUNDING
from geoskip.indexes.base import Index
from geoskip.predicates import Call, Column, Comparison, Literal, Not, Predicate, normalise
from geoskip.registry import ConstantDeclaration, current
from geoskip.registry.registry import constant_name

_ROWS, _CALLS, _OTHERS = 80, 4, 3
_SHRUNK = 400
_SHRINKING = 10.0
"""Seconds after which shrinking stops; it usually takes at most one."""


@dataclass(frozen=True)
class _CallCase:
    """A call with some constant arguments, its values for the rows of a case, and literals."""

    call: Call | Column
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
    shown: CounterExample

    @property
    def literals(self) -> tuple[Any, ...]:
        """The values that the call is compared with."""
        match self.condition:
            case Comparison(_, _, Literal(value)) | Not(Comparison(_, _, Literal(value))) if self.one.literals:
                return (value,)
        return self.one.literals


@st.composite
def _cases(draw: DrawFn, subject: FunctionUnderTest) -> _Case:
    names = list(subject.arguments)
    # columns first, as for most functions, and about equally many columns and constants
    usual = sorted((tuple(names[n:]) for n in range(1, len(names))), key=lambda some: abs(2 * len(some) - len(names)))
    others = [some for count in range(1, len(names)) for some in itertools.combinations(names, count)]
    others = [some for some in others if some not in usual]
    row = subject.rows()
    full = draw(st.integers(0, 1 << 40)) > 0  # Hypothesis starts with the simplest case, which should be cheap
    rows = subject.columns_of([draw(row) for _ in range(_ROWS if full else 1)])
    calls = []
    choices = [some for _ in range(_CALLS) for some in (*usual, *draw(some_of(others, _OTHERS)))]
    for chosen in [(), *(choices if full else ())]:
        place = draw(row) if chosen else {}
        constants = {n: draw(subject.arguments[n].strategy) if place[n] is None else place[n] for n in chosen}
        call, results = subject.operand(constants), subject.evaluate(rows, constants)
        alike = [v for n, sample in subject.arguments.items() if sample.kind == call.type for v in rows[n]]
        literals = draw(literals_of(call, results.values, alike, subject.constants)) if call.type != "boolean" else ()
        calls.append(_CallCase(call, constants, results, tuple(literals)))
    return _Case(rows, tuple(calls))


@st.composite
def _simpler_cases(draw: DrawFn, subject: FunctionUnderTest, loss: _Loss) -> _Case:
    """Cases with one call and the rows of a loss, in which some values are simplified."""
    constants = {name: draw(simpler(value)) for name, value in loss.one.constants.items()}
    kept = [row for row in loss.rows if draw(st.booleans())] or loss.rows
    columns = subject.columns_of([{name: draw(simpler(value)) for name, value in row.items()} for row in kept])
    call, results = subject.operand(constants), subject.evaluate(columns, constants)
    first = st.just(physical_value(results.values[0].as_py()))
    compared = [value for value in loss.literals if draw(st.booleans())] or loss.literals[:1]
    literals = tuple(draw(st.one_of(first, simpler(value))) for value in compared)
    return _Case(columns, (_CallCase(call, constants, results, literals),))


def simpler(value: Any) -> Strategy:
    """Usually the value itself, else a simpler one: closer to zero, shorter, rounded."""
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
    """``n`` with the sign of a value; for ``n`` above ``most`` the value, rounded or unchanged."""
    if n > most + 1:
        return value
    return round(value, 1) if n == most + 1 else type(value)(math.copysign(n, value))


def _shape(condition: Predicate) -> tuple[Any, ...]:
    inner = _shape(condition.child) if isinstance(condition, Not) else ()
    return type(condition), getattr(condition, "op", ""), inner


def _shrink(subject: FunctionUnderTest, first: _Loss) -> _Loss:
    """Simplify a loss with Hypothesis."""
    best, tally, deadline = first, Tally(), time.monotonic() + _SHRINKING

    def loses(case: _Case) -> bool:
        nonlocal best
        if time.monotonic() > deadline:
            raise OutOfTime
        try:
            loss = _loss(case, expressions_of(subject, case.rows), [first.candidate], tally, like=first.condition)
        except Exception:  # the index may not support the simpler value
            return False
        best = loss or best  # Hypothesis's last failing case is the simplest
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
            clauses = [tally.clause(candidate, node, len(files.files)) for candidate in candidates]
            if all(clause is None for clause in clauses):
                continue
            truth = truth_of(condition, one.call, one.results)
            matching: Mask = np.any(files.members & truth, axis=1)
            for candidate, clause in zip(candidates, clauses, strict=True):
                if clause is None or (number := tally.lost_file(candidate, clause, files, matching)) is None:
                    continue
                file, summaries = files.files[number], files.summaries(candidate.indexes, number)
                rows = [{name: values[row] for name, values in case.rows.items()} for row in file]
                results = one.results.values.take(pa.array(file)).to_pylist()
                told = [{**row, str(one.call): result} for row, result in zip(rows, results, strict=True)]
                lost = np.flatnonzero(truth[file]).tolist()
                shown = candidate.counter_example(str(condition), told, lost, summaries, str(clause))
                return _Loss(candidate, one, condition, rows, shown)
    return None


def lost_row(
    subject: FunctionUnderTest, indexes: Sequence[Index], tally: Tally, deadline: float, seed: object
) -> CounterExample | None:
    """Search one batch for a file that a mapping or declaration skips although one of its rows matches.

    Parameters
    ----------
    subject, indexes
        The function with arguments near constants, and the user's choice of indexes, empty for all that fit.
    tally, deadline
        The tally of candidates and their effects, and the end of the search, on the monotonic clock.
    seed
        Seed of the batch, which is deterministic.
    """
    case = drawn(_cases(subject), seed)
    expressions = expressions_of(subject, case.rows)
    candidates = candidates_for(subject.operand({}), expressions, indexes, tally)
    loss = _loss(case, expressions, candidates, tally, deadline)
    return None if loss is None else _shrink(subject, loss).shown


# ---- declarations

_TRIED = 200
Box = tuple[float, float, float, float]


def constants(subject: FunctionUnderTest, seed: object, tally: Tally) -> CounterExample | None:
    """Search for values whose declared constant differs from the function's value."""
    if subject.evaluation not in ROW_BY_ROW:
        return None
    for declared in current().constants_of(subject.call({})):
        name = constant_name(declared.evaluate)

        def differs(row: dict[str, Any], declared: ConstantDeclaration = declared, name: str = name) -> bool:
            pair = _evaluate_row(subject, declared, row)
            if pair is None or not is_same(*pair):
                return pair is not None
            tally.agree(name)
            return False

        row = minimal(subject.rows(), differs, seed, examples=_TRIED)
        pair = None if row is None else _evaluate_row(subject, declared, row)
        if pair is not None:
            literals = ", ".join(str(Literal(row[argument])) for argument in subject.arguments)
            shown = [str(geometry_of(value) or Literal(value)) for value in pair]
            why = f"{subject.name}({literals}) is evaluated to {shown[0]}, and is {shown[1]}"
            return CounterExample(name, why)
    return None


def _evaluate_row(subject: FunctionUnderTest, declared: ConstantDeclaration, row: dict[str, Any]) -> Any:
    """The constant and the function's value; None if the evaluator or the function raises."""
    values = tuple(row[argument] for argument in subject.arguments)
    try:
        constant = constant_value(declared, values)
    except Exception:
        return None
    real = results_of_rows(subject.function, [values], subject.returns)
    return None if real.thrown[0] else (constant, physical_value(real.values[0].as_py()))


def constant_value(declared: ConstantDeclaration, values: Iterable[Any]) -> Any:
    """The constant declared for some values; exceptions of its evaluator are raised."""
    constant = declared.evaluate(*map(physical_value, values))
    return constant.value if isinstance(constant, Literal) else constant


def denotations(subject: FunctionUnderTest, seed: object, tally: Tally) -> CounterExample | None:
    """Search for a row with a geometry that contradicts its denotation."""
    call = subject.call({})
    for declared in current().denotations_of(call):
        name = f"denotation {declared.meaning.__module__}.{declared.meaning.__qualname__}"
        try:
            meaning = declared.meaning(call)
        except Exception as error:
            problem = f"{declared.meaning.__qualname__} raises for {call}: {type(error).__name__}: {error}"
            tally.problems[problem] = None
            continue
        if not isinstance(meaning, d.Denotation):
            continue

        def wrong(row: dict[str, Any], meaning: d.Denotation = meaning) -> str | None:
            results = subject.evaluate(subject.columns_of([row]), {})
            of: Callable[[Predicate], Any] = lambda node: row.get(node.name) if isinstance(node, Column) else None  # noqa: E731
            return None if results.thrown[0] else denotation_error(meaning, of, results.values[0].as_py())

        def is_wrong(row: dict[str, Any], name: str = name) -> bool:
            tally.agree(name)
            return wrong(row) is not None

        row = minimal(subject.rows(), is_wrong, seed, examples=_TRIED)
        if row is not None:
            shown = {argument: row[argument] for argument in subject.arguments}
            return CounterExample(name, f"it says {meaning}, but {wrong(row)}", rows=(shown,))
    return None


def denotation_error(meaning: d.Denotation, of: Callable[[Predicate], Any], value: Any) -> str | None:
    """Describe how a row's geometry contradicts its denotation, or return None.

    ``of`` returns the values of arguments.
    """
    shape = geometry_of(value)
    if isinstance(meaning, d.Point):
        x, y = of(meaning.x), of(meaning.y)
        if x is None or y is None:
            return None if shape is None else f"{shape} is not NULL where a coordinate is"
        if shape is None or (math.isfinite(x) and math.isfinite(y) and shape.bounds != (x, y, x, y)):
            return f"the point is {shape}, and not at ({x}, {y})"
        return None
    child: Predicate | None = getattr(meaning, "child", None)
    inner = geometry_of(of(child)) if child is not None else None
    if inner is None or not inner.is_valid:
        return f"{shape} is not NULL where its argument is" if shape is not None and inner is None else None
    if shape is None:
        return "it is NULL where its argument is not" if isinstance(meaning, d.SameGeometry | d.SameBox) else None
    return None if _agrees(meaning, inner, shape) else f"it makes {shape} of {inner}"


def _agrees(meaning: d.Denotation, inner: Any, shape: Any) -> bool:
    box: Box = shape.bounds
    before: Box = inner.bounds
    x0, y0, x1, y1 = before
    match meaning:
        case d.SameGeometry():
            return bool(shapely.equals_exact(shape, inner))
        case d.CentroidOf():
            slack = 2 * ROUNDING * max(map(abs, (x0, y0, x1, y1)))
            return _inside(box, (x0 - slack, y0 - slack, x1 + slack, y1 + slack))
        case d.SameBox():
            return box == before
        case d.Flipped():
            return box == (y0, x0, y1, x1)
        case d.Shifted(_, dx, dy):
            return _near(box, (x0 + dx, y0 + dy, x1 + dx, y1 + dy))
        case d.Grown(_, radius):
            return _inside(box, (x0 - radius, y0 - radius, x1 + radius, y1 + radius))
        case d.InsideBox():
            return _inside(box, before)
    return True


def _near(one: Box, other: Box) -> bool:
    return all(a == b or abs(a - b) <= 1e-9 * max(1.0, abs(a)) for a, b in zip(one, other, strict=True)) or one != one


def _inside(one: Box, other: Box) -> bool:
    slack = 1e-9 * max(1.0, *map(abs, other))
    empty = one[0] != one[0]
    return empty or (
        one[0] >= other[0] - slack and one[1] >= other[1] - slack
        and one[2] <= other[2] + slack and one[3] <= other[3] + slack
    )  # fmt: skip


def is_same(one: Any, other: Any) -> bool:
    """Compare two values as constants: NaN equals NaN, geometries are normalised."""
    shapes = geometry_of(one), geometry_of(other)
    if None not in shapes:
        return bool(shapely.equals_exact(shapely.normalize(shapes[0]), shapely.normalize(shapes[1])))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return (one is None) is (other is None) and bool(one == other)


def monotone(subject: FunctionUnderTest, seed: object) -> CounterExample | None:
    """Search for two rows whose order contradicts the declared monotonicity."""
    for name, sample in subject.arguments.items():
        others = {n: other.strategy for n, other in subject.arguments.items() if n != name}
        constants = {n: samples(strategy, seed, 1)[0] for n, strategy in others.items()}
        call = subject.call(constants)
        if _direction(call) is None:
            return None
        values = samples(sample.nullable, seed, _TRIED)
        wrong = order_violation(subject.name, call, {name: values}, subject.evaluate({name: values}, constants))
        if wrong is not None:
            return wrong
    return None


def _direction(call: Call) -> str | None:
    """The declared monotonicity of a call."""
    properties = current().properties_of(call)
    direction = properties.monotone if properties is not None else None
    return direction(call) if callable(direction) else direction


def order_violation(
    function: str, call: Predicate, rows: Mapping[str, Sequence[Any]], results: FunctionResults | None
) -> CounterExample | None:
    """Two rows whose order contradicts the declared monotonicity of a call with one column.

    Parameters
    ----------
    function, call
        The function's name, and its call with one column.
    rows, results
        The values of that column, and those of the call, None if unknown.
    """
    if results is None or not isinstance(call, Call) or len(rows) > 1 or not isinstance(_direction(call), str):
        return None
    direction, ((name, values),) = _direction(call), rows.items()
    triples = zip(values, results.values.to_pylist(), results.thrown.tolist(), strict=True)
    met = {repr(x): (_key(x), _key(y), x, y) for x, y, thrown in triples if not (thrown or _is_odd(x) or _is_odd(y))}
    known = sorted(met.values(), key=lambda entry: entry[0])
    wrong = [
        (low, high)
        for low, high in itertools.combinations(known, 2)
        if low[0] < high[0] and (low[1] > high[1] if direction == "increasing" else low[1] < high[1])
    ]
    if not wrong:
        return None
    shown = tuple({name: x, str(call): y} for _, _, x, y in min(wrong, key=lambda pair: len(repr(pair))))
    return CounterExample(f"declare({function}, monotone={direction!r})", "it is not so for these", rows=shown)


def _is_odd(value: Any) -> bool:
    return value is None or value != value


def _key(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def nondeterministic_row(subject: FunctionUnderTest, seed: object) -> CounterExample | None:
    """Search for a row with two different values of the function, which is then not deterministic."""
    rows = samples(subject.rows(), seed, _TRIED)
    columns = subject.columns_of(rows)
    first, again = subject.evaluate(columns, {}), subject.evaluate(columns, {})
    for number, row in enumerate(rows):
        one, other = first.values[number].as_py(), again.values[number].as_py()
        if not (first.thrown[number] or again.thrown[number]) and not is_same(one, other):
            why = f"it has two values, {one!r} and {other!r}; say so: declare(..., deterministic=False)"
            return CounterExample(f"{subject.name} is not deterministic", why, rows=(row,))
    return None
