"""Constants and denotations, tried against the function itself."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import shapely

from geoskip.checking.candidates import Tally
from geoskip.checking.function import FunctionUnderTest
from geoskip.checking.python_results import FunctionResults, of_rows
from geoskip.checking.result import CounterExample
from geoskip.checking.strategies import physical_value
from geoskip.geometry import denotations as d
from geoskip.geometry.centroids import ROUNDING
from geoskip.predicates import Column, Literal, Predicate
from geoskip.registry import ConstantDeclaration, DenotationDeclaration, current

__all__ = ["constants", "denotations", "disordered", "is_same", "misplaced", "monotone", "repeated"]

_TRIED = 200


def constants(subject: FunctionUnderTest, chance: random.Random, tally: Tally) -> CounterExample | None:
    """Values for which an evaluator of constants says something else than the function."""
    call = subject.called(dict.fromkeys(subject.arguments))
    for declared in current().constants_of(call):
        name = f"constant {declared.evaluate.__module__}.{declared.evaluate.__qualname__}"
        for _ in range(_TRIED):
            drawn = {argument: sample.values(chance, 1)[0] for argument, sample in subject.arguments.items()}
            found = _compared(subject, declared, drawn)
            if found is not None:
                said, real = found
                if not is_same(said, real):
                    literals = ", ".join(str(Literal(value)) for value in drawn.values())
                    why = f"{subject.name}({literals}) is evaluated to {_shown(said)}, and is {_shown(real)}"
                    return CounterExample(name, why)
                tally.agree(name)
    return None


def _compared(
    subject: FunctionUnderTest, declared: ConstantDeclaration, drawn: dict[str, Any]
) -> tuple[Any, Any] | None:
    """What the evaluator says and what the function is; None where the evaluator declines or the function raises."""
    try:
        said = declared.evaluate(*map(physical_value, drawn.values()))
    except Exception:
        return None
    said = said.value if isinstance(said, Literal) else said
    if subject.evaluation not in (100, 101):
        return None
    real = of_rows(subject.function, [tuple(drawn.values())], subject.returns)
    return None if real.thrown[0] else (said, physical_value(real.values[0].as_py()))


def denotations(subject: FunctionUnderTest, chance: random.Random, tally: Tally) -> CounterExample | None:
    """Rows for which a function's geometry is not where its denotation says."""
    call = subject.called({})
    for declared in current().denotations_of(call):
        name = f"denotation {declared.meaning.__module__}.{declared.meaning.__qualname__}"
        meaning = _meaning(declared, call, tally)
        if not isinstance(meaning, d.Denotation):
            continue
        rows = subject.rows(chance, _TRIED)
        evaluated = subject.evaluate(rows, {})
        for number in np.flatnonzero(~evaluated.thrown).tolist():
            row = {argument: values[number] for argument, values in rows.items()}
            wrong = misplaced(meaning, partial(_of_row, row), evaluated.values[number].as_py())
            if wrong is not None:
                return CounterExample(name, f"it says {meaning}, but {wrong}", rows=(row,))
            tally.agree(name)
    return None


def _meaning(declared: DenotationDeclaration, call: Any, tally: Tally) -> Any:
    try:
        return declared.meaning(call)
    except Exception as error:
        tally.problems[f"{declared.meaning.__qualname__} raises for {call}: {type(error).__name__}: {error}"] = None
        return None


def _of_row(row: dict[str, Any], node: Predicate) -> Any:
    return row.get(node.name) if isinstance(node, Column) else None


def misplaced(meaning: d.Denotation, of: Callable[[Predicate], Any], value: Any) -> str | None:
    """What is wrong with a row's geometry, in words; ``of`` gives the values of the call's arguments."""
    shape = _geometry(value)
    if isinstance(meaning, d.Point):
        x, y = of(meaning.x), of(meaning.y)
        if x is None or y is None:
            return None if shape is None else f"{shape} is not NULL where a coordinate is"
        if shape is None or (math.isfinite(x) and math.isfinite(y) and _box(shape) != (x, y, x, y)):
            return f"the point is {shape}, and not at ({x}, {y})"
        return None
    child: Predicate | None = getattr(meaning, "child", None)
    inner = _geometry(of(child)) if child is not None else None
    if inner is None or not inner.is_valid:
        return f"{shape} is not NULL where its argument is" if shape is not None and inner is None else None
    if shape is None:
        return "it is NULL where its argument is not" if isinstance(meaning, d.SameGeometry | d.SameBox) else None
    return None if _is_as_said(meaning, inner, shape) else f"it makes {shape} of {inner}"


def _is_as_said(meaning: d.Denotation, inner: Any, shape: Any) -> bool:
    x0, y0, x1, y1 = _box(inner)
    match meaning:
        case d.SameGeometry():
            return bool(shapely.equals_exact(shape, inner))
        case d.CentroidOf():
            slack = 2 * ROUNDING * max(map(abs, (x0, y0, x1, y1)))
            return _inside(_box(shape), (x0 - slack, y0 - slack, x1 + slack, y1 + slack))
        case d.SameBox():
            return _box(shape) == _box(inner)
        case d.Flipped():
            return _box(shape) == (y0, x0, y1, x1)
        case d.Shifted(_, dx, dy):
            return _near(_box(shape), (x0 + dx, y0 + dy, x1 + dx, y1 + dy))
        case d.Grown(_, radius):
            return _inside(_box(shape), (x0 - radius, y0 - radius, x1 + radius, y1 + radius))
        case d.InsideBox():
            return _inside(_box(shape), _box(inner))
    return True


Box = tuple[float, float, float, float]


def _box(shape: Any) -> Box:
    x0, y0, x1, y1 = shape.bounds
    return x0, y0, x1, y1


def _near(one: Box, other: Box) -> bool:
    return all(a == b or abs(a - b) <= 1e-9 * max(1.0, abs(a)) for a, b in zip(one, other, strict=True)) or one != one


def _inside(one: Box, other: Box) -> bool:
    slack = 1e-9 * max(1.0, *map(abs, other))
    empty = one[0] != one[0]
    return empty or (
        one[0] >= other[0] - slack and one[1] >= other[1] - slack
        and one[2] <= other[2] + slack and one[3] <= other[3] + slack
    )  # fmt: skip


def _geometry(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return shapely.from_wkb(value)
        except shapely.errors.ShapelyError:
            return None
    return value if isinstance(value, shapely.Geometry) else None


def is_same(said: Any, real: Any) -> bool:
    shapes = _geometry(said), _geometry(real)
    if None not in shapes:
        return bool(shapely.equals_exact(shapely.normalize(shapes[0]), shapely.normalize(shapes[1])))
    if isinstance(said, float) and isinstance(real, float) and math.isnan(said):
        return math.isnan(real)
    return (said is None) is (real is None) and bool(said == real)


def _shown(value: Any) -> str:
    return str(_geometry(value) or Literal(value))


def monotone(subject: FunctionUnderTest, chance: random.Random) -> CounterExample | None:
    """Two rows that a function puts in another order than is declared."""
    names = list(subject.arguments)
    for name in names:
        constants = {other: subject.arguments[other].draw(chance) for other in names if other != name}
        call = subject.called(constants)
        said = current().properties_of(call)
        way = said.monotone if said is not None else None
        way = way(call) if callable(way) else way
        if way is None:
            return None
        values = subject.arguments[name].values(chance, _TRIED)
        found = subject.evaluate({name: values}, constants)
        wrong = disordered(str(way), values, found)
        if wrong:
            rows = tuple({name: x, str(call): y} for x, y in wrong)
            return CounterExample(f"declare({subject.name}, monotone={way!r})", "it is not so for these", rows=rows)
    return None


def disordered(way: str, values: Sequence[Any], found: FunctionResults) -> list[tuple[Any, Any]]:
    """Two values, each with what a function makes of it, in another order than is declared; none if there are none."""
    triples = zip(values, found.values.to_pylist(), found.thrown.tolist(), strict=True)
    met = {repr(x): (_key(x), _key(y), x, y) for x, y, thrown in triples if not (thrown or _is_odd(x) or _is_odd(y))}
    known = sorted(met.values(), key=lambda entry: entry[0])
    wrong = [
        (low, high)
        for low, high in itertools.combinations(known, 2)
        if low[0] < high[0] and (low[1] > high[1] if way == "increasing" else low[1] < high[1])
    ]
    simplest = min(wrong, key=lambda pair: len(repr(pair)), default=())
    return [(x, y) for _, _, x, y in simplest]


def _is_odd(value: Any) -> bool:
    return value is None or value != value


def _key(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def repeated(subject: FunctionUnderTest, chance: random.Random) -> CounterExample | None:
    """A row for which a function has two values: it is not deterministic."""
    rows = subject.rows(chance, _TRIED)
    first, again = subject.evaluate(rows, {}), subject.evaluate(rows, {})
    for number in range(_TRIED):
        one, other = first.values[number].as_py(), again.values[number].as_py()
        if not (first.thrown[number] or again.thrown[number]) and not is_same(one, other):
            row = {name: values[number] for name, values in rows.items()}
            why = f"it has two values, {one!r} and {other!r}; say so: declare(..., deterministic=False)"
            return CounterExample(f"{subject.name} is not deterministic", why, rows=(row,))
    return None
