"""Checks of declared constants, denotations and monotonicity against the function itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import shapely

from geoskip import geometry as d
from geoskip.checking import CounterExample, geometry_of
from geoskip.checking.candidates import Tally
from geoskip.checking.function import ROW_BY_ROW, FunctionResults, FunctionUnderTest, results_of_rows
from geoskip.checking.strategies import minimal, physical_value, samples
from geoskip.geometry.shapes import ROUNDING
from geoskip.predicates import Column, Literal, Predicate
from geoskip.registry import ConstantDeclaration, current

_TRIED = 200


def constants(subject: FunctionUnderTest, seed: object, tally: Tally) -> CounterExample | None:
    """Search for values whose declared constant differs from the function's value."""
    if subject.evaluation not in ROW_BY_ROW:
        return None
    for declared in current().constants_of(subject.call({})):
        name = f"constant {declared.evaluate.__module__}.{declared.evaluate.__qualname__}"

        def differs(row: dict[str, Any], declared: ConstantDeclaration = declared, name: str = name) -> bool:
            pair = _evaluated(subject, declared, row)
            if pair is None or not is_same(*pair):
                return pair is not None
            tally.agree(name)
            return False

        row = minimal(subject.rows(), differs, seed, examples=_TRIED)
        pair = None if row is None else _evaluated(subject, declared, row)
        if pair is not None:
            literals = ", ".join(str(Literal(row[argument])) for argument in subject.arguments)
            why = f"{subject.name}({literals}) is evaluated to {_shown(pair[0])}, and is {_shown(pair[1])}"
            return CounterExample(name, why)
    return None


def _evaluated(subject: FunctionUnderTest, declared: ConstantDeclaration, row: dict[str, Any]) -> Any:
    """The constant and the function's value; None if the evaluator declines or the function raises."""
    values = tuple(row[argument] for argument in subject.arguments)
    try:
        constant = declared.evaluate(*map(physical_value, values))
    except Exception:
        return None
    real = results_of_rows(subject.function, [values], subject.returns)
    constant = constant.value if isinstance(constant, Literal) else constant
    return None if real.thrown[0] else (constant, physical_value(real.values[0].as_py()))


def denotations(subject: FunctionUnderTest, seed: object, tally: Tally) -> CounterExample | None:
    """Search for a row whose geometry is not where its denotation places it."""
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
            return None if results.thrown[0] else misplaced(meaning, partial(_of_row, row), results.values[0].as_py())

        def is_wrong(row: dict[str, Any], name: str = name) -> bool:
            tally.agree(name)
            return wrong(row) is not None

        row = minimal(subject.rows(), is_wrong, seed, examples=_TRIED)
        if row is not None:
            shown = {argument: row[argument] for argument in subject.arguments}
            return CounterExample(name, f"it says {meaning}, but {wrong(row)}", rows=(shown,))
    return None


def _of_row(row: dict[str, Any], node: Predicate) -> Any:
    return row.get(node.name) if isinstance(node, Column) else None


def misplaced(meaning: d.Denotation, of: Callable[[Predicate], Any], value: Any) -> str | None:
    """Describe how a row's geometry contradicts its denotation, or None.

    ``of`` gives the values of arguments.
    """
    shape = geometry_of(value)
    if isinstance(meaning, d.Point):
        x, y = of(meaning.x), of(meaning.y)
        if x is None or y is None:
            return None if shape is None else f"{shape} is not NULL where a coordinate is"
        if shape is None or (math.isfinite(x) and math.isfinite(y) and _box(shape) != (x, y, x, y)):
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


def is_same(one: Any, other: Any) -> bool:
    """Compare two values as constants: NaN equals NaN, geometries are normalised."""
    shapes = geometry_of(one), geometry_of(other)
    if None not in shapes:
        return bool(shapely.equals_exact(shapely.normalize(shapes[0]), shapely.normalize(shapes[1])))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return (one is None) is (other is None) and bool(one == other)


def _shown(value: Any) -> str:
    return str(geometry_of(value) or Literal(value))


def monotone(subject: FunctionUnderTest, seed: object) -> CounterExample | None:
    """Search for two rows whose order contradicts the declared monotonicity."""
    for name, sample in subject.arguments.items():
        others = {n: other.strategy for n, other in subject.arguments.items() if n != name}
        constants = {n: samples(strategy, seed, 1)[0] for n, strategy in others.items()}
        call = subject.call(constants)
        properties = current().properties_of(call)
        direction = properties.monotone if properties is not None else None
        direction = direction(call) if callable(direction) else direction
        if direction is None:
            return None
        values = samples(sample.nullable, seed, _TRIED)
        wrong = disordered(str(direction), values, subject.evaluate({name: values}, constants))
        if wrong:
            rows = tuple({name: x, str(call): y} for x, y in wrong)
            return CounterExample(
                f"declare({subject.name}, monotone={direction!r})", "it is not so for these", rows=rows
            )
    return None


def disordered(direction: str, values: Sequence[Any], results: FunctionResults) -> list[tuple[Any, Any]]:
    """Two arguments with their values, in another order than is declared; empty if there are none."""
    triples = zip(values, results.values.to_pylist(), results.thrown.tolist(), strict=True)
    met = {repr(x): (_key(x), _key(y), x, y) for x, y, thrown in triples if not (thrown or _is_odd(x) or _is_odd(y))}
    known = sorted(met.values(), key=lambda entry: entry[0])
    wrong = [
        (low, high)
        for low, high in itertools.combinations(known, 2)
        if low[0] < high[0] and (low[1] > high[1] if direction == "increasing" else low[1] < high[1])
    ]
    simplest = min(wrong, key=lambda pair: len(repr(pair)), default=())
    return [(x, y) for _, _, x, y in simplest]


def _is_odd(value: Any) -> bool:
    return value is None or value != value


def _key(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def repeated(subject: FunctionUnderTest, seed: object) -> CounterExample | None:
    """Search for a row for which the function has two values, so that it is not deterministic."""
    rows = samples(subject.rows(), seed, _TRIED)
    columns = subject.columns_of(rows)
    first, again = subject.evaluate(columns, {}), subject.evaluate(columns, {})
    for number, row in enumerate(rows):
        one, other = first.values[number].as_py(), again.values[number].as_py()
        if not (first.thrown[number] or again.thrown[number]) and not is_same(one, other):
            why = f"it has two values, {one!r} and {other!r}; say so: declare(..., deterministic=False)"
            return CounterExample(f"{subject.name} is not deterministic", why, rows=(row,))
    return None
