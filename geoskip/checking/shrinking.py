"""From a file that is wrongly skipped to the smallest one: fewer rows, simpler values (delta debugging)."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import shapely

from geoskip.checking.candidates import Candidate, truth_of
from geoskip.checking.function import FunctionUnderTest
from geoskip.checking.result import CounterExample, word
from geoskip.checking.strategies import physical_value
from geoskip.checking.synthetic_files import metadata_of
from geoskip.clauses import Clause, keep_mask
from geoskip.predicates import Call, Literal, Predicate, normalise, transform

__all__ = ["Case", "shrunk", "simpler", "size_of"]

_SECONDS = 3.0


@dataclass(frozen=True)
class Case:
    """A file's rows, the constant arguments, and a condition over the call that they make."""

    rows: Mapping[str, list[Any]]
    constants: Mapping[str, Any]
    condition: Predicate
    call: Call


@dataclass(frozen=True)
class _Judged:
    """A case that loses rows."""

    case: Case
    results: list[Any]
    lost: tuple[int, ...]
    summaries: dict[str, Any]
    clause: Clause


def shrunk(case: Case, subject: FunctionUnderTest, lens: Candidate) -> CounterExample:
    """The smallest case that still loses a row, as a counter-example."""
    deadline = time.monotonic() + _SECONDS
    best = _judged(case, subject, lens)
    progress = best is not None
    while best is not None and progress and time.monotonic() < deadline:
        progress = False
        for smaller in _smaller(best.case):
            found = _judged(smaller, subject, lens)
            if found is not None:
                best, progress = found, True
                break
            if time.monotonic() > deadline:
                break
    if best is None:  # it was skipped by what another file has, such as the sample that origins are chosen from
        return CounterExample(lens.name, f"it loses a row over {lens.over}", str(case.condition), _rows(case, None, ()))
    found_rows = _rows(best.case, best.results, best.lost)
    why = f"a file that {lens.over} summarises is skipped, though a row of it matches"
    return CounterExample(
        lens.name, why, str(best.case.condition), found_rows, best.lost, best.summaries, str(best.clause)
    )


def _judged(case: Case, subject: FunctionUnderTest, lens: Candidate) -> _Judged | None:
    """What becomes of a case; None where it loses nothing."""
    try:
        evaluated = subject.evaluate(case.rows, case.constants)
        truth = truth_of(case.condition, case.call, evaluated)
        if not truth.any():
            return None
        expressions = {expression.text: expression for expression in subject.expressions(case.rows)}
        metadata = metadata_of(lens.indexes, expressions, [range(len(truth))])
        clause = lens.ask(normalise(case.condition))
        if not isinstance(clause, Clause) or keep_mask(clause, metadata).all():
            return None
    except Exception:  # a value that was made simpler may be none that the index or the mapping takes
        return None
    summaries = {str(index): metadata.column(str(index))[0].as_py() for index in lens.indexes}
    lost = tuple(number for number, matches in enumerate(truth) if matches)
    return _Judged(case, evaluated.values.to_pylist(), lost, summaries, clause)


def _rows(case: Case, results: list[Any] | None, lost: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    rows = [dict(zip(case.rows, values, strict=True)) for values in zip(*case.rows.values(), strict=True)]
    for number, row in enumerate(rows if results is not None else []):
        assert results is not None
        row[str(case.call)] = results[number]
        row["the query says"] = word("TRUE" if number in lost else "not TRUE")
    return tuple(rows)


def _smaller(case: Case) -> Iterator[Case]:
    """The case without a row, then with one value made simpler: of the condition, of the constants, of the rows."""
    count = len(next(iter(case.rows.values())))
    for drop in range(count if count > 1 else 0):
        yield replace(case, rows={n: values[:drop] + values[drop + 1 :] for n, values in case.rows.items()})
    for name, value in case.constants.items():
        for other in simpler(value):
            yield _with_constant(case, name, other)
    for literal in _literals(case):
        for other in simpler(literal.value):
            yield replace(case, condition=_replaced(case.condition, literal, Literal(other, literal.type)))
    for name, values in case.rows.items():
        for number, value in enumerate(values):
            if name not in case.constants:
                for other in simpler(value):
                    yield replace(case, rows={**case.rows, name: [*values[:number], other, *values[number + 1 :]]})


def _with_constant(case: Case, name: str, value: Any) -> Case:
    place = list(case.rows).index(name)
    old = case.call.args[place]
    literal = Literal(physical_value(value), old.type)
    call = replace(case.call, args=(*case.call.args[:place], literal, *case.call.args[place + 1 :]))
    condition = transform(case.condition, lambda vertex: call if vertex == case.call else vertex)
    return Case(case.rows, {**case.constants, name: value}, condition, call)


def _literals(case: Case) -> list[Literal]:
    """The literals that the call is compared with."""
    within = [argument for argument in case.call.args if isinstance(argument, Literal)]
    right = getattr(case.condition, "child", case.condition)
    literal = getattr(right, "right", None)
    return [literal] if isinstance(literal, Literal) and literal not in within else []


def _replaced(condition: Predicate, old: Literal, new: Literal) -> Predicate:
    return transform(condition, lambda vertex: new if vertex is old else vertex)


def simpler(value: Any) -> Iterator[Any]:
    """Values that are easier to read, the easiest first; each is simpler than the value, so that this ends."""
    match value:
        case bool() | None:
            return
        case bytes():
            yield from _rounded(value)
        case int():
            yield from (n for n in (0, 1, value // 10, value // 2) if abs(n) < abs(value))
        case float():
            whole = [0.0, 1.0, float(round(value)), round(value, 1)] if abs(value) < 1e15 else [0.0, 1.0]
            yield from (n for n in whole if _length(n) < _length(value))
        case str():
            shorter = ("", "a", "b", value[:1], value[: len(value) // 2], value[:-1])
            yield from (text for text in shorter if (len(text), text) < (len(value), value))
        case dt.date() if not isinstance(value, dt.datetime) and value > dt.date(2000, 1, 1):
            yield from (day for day in (dt.date(2000, 1, 1), value.replace(day=1)) if day < value)


def size_of(value: Any) -> int:
    """How long a value is to read: so many characters, of a geometry as WKT."""
    shape = _shape(value) if isinstance(value, bytes) else None
    return len(repr(value)) if shape is None else len(shape.wkt)


def _shape(value: bytes) -> Any:
    try:
        return shapely.from_wkb(value)
    except shapely.errors.ShapelyError:
        return None


def _rounded(value: bytes) -> Iterator[bytes]:
    """A geometry with rounded coordinates, or its box, where that is shorter and a geometry still."""
    shape = _shape(value)
    if shape is None or shape.is_empty:
        return
    for made in (shapely.envelope(shape), *(shapely.transform(shape, partial(np.round, decimals=d)) for d in (0, 1))):
        if made.is_valid and len(made.wkt) < len(shape.wkt):
            yield bytes(shapely.to_wkb(made))


def _length(value: float) -> tuple[int, float]:
    return len(repr(value)), abs(value)
