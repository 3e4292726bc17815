"""The constants in the code of a function and of its mappings: values near them are where mistakes show.

``temp >= 50`` has an edge at 50, ``address.split("@")[1]`` one at a second ``@``; a search that does not know them may
pass them by.
"""

from __future__ import annotations

import dis
import itertools
import math
import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from geoskip.checking.strategies import Sample
from geoskip.types import sql_type

__all__ = ["constants_of", "edges", "near"]

_MOST = 60
_LONGEST = 300
"""Up to here, a number in the code may be the length of a text."""
_SHARE = 0.25
_PLAIN = (int, float, str)
_OPERATORS = ("=", "<=>", "<", "<=", ">", ">=", "double", "string", "bigint", "int", "boolean", "date")
"""Words of mappings, which say nothing of values."""


def constants_of(functions: Sequence[Any]) -> list[Any]:
    """The numbers and texts in some functions: in their code, defaults and closures, and in the globals they read."""
    found: dict[str, Any] = {}
    for function in functions:
        for value in _constants(function, 0):
            if not isinstance(value, bool) and len(found) < _MOST:
                found.setdefault(repr(value), value)
    return list(found.values())


def _constants(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, _PLAIN):
        if not isinstance(value, str) or (0 < len(value) <= 40 and value not in _OPERATORS):
            yield value
    elif isinstance(value, tuple | list | set | frozenset) and len(value) <= 50 and depth < 4:
        for item in value:
            yield from _constants(item, depth + 1)
    elif isinstance(value, dict) and len(value) <= 50 and depth < 4:
        yield from _constants([*value, *value.values()], depth + 1)
    elif isinstance(value, types.CodeType):
        for constant in value.co_consts[1:] if _has_docstring(value) else value.co_consts:
            yield from _constants(constant, depth + 1)
    elif isinstance(value, types.FunctionType) and depth < 3:
        yield from _constants(value.__code__, depth)
        yield from _constants([*(value.__defaults__ or ())], depth + 1)
        for cell in value.__closure__ or ():
            if cell != types.CellType():
                yield from _constants(cell.cell_contents, depth + 1)
        names = {str(s.argval) for s in dis.get_instructions(value) if s.opname == "LOAD_GLOBAL"}
        for name in sorted(names):
            if name in value.__globals__:
                yield from _constants(value.__globals__[name], depth + 1)


def _has_docstring(code: types.CodeType) -> bool:
    first = code.co_consts[0] if code.co_consts else None
    return isinstance(first, str) and (" " in first or "\n" in first)


def near(sample: Sample, constants: Sequence[Any]) -> Sample:
    """A sample of which some values are constants, or beside them."""
    kind = sample.kind
    numbers = [c for c in constants if isinstance(c, int | float) and math.isfinite(c)]
    texts = [c for c in constants if isinstance(c, str)]
    if most := sql_type(kind).values.stop:
        return _mixed(sample, [int(c) for c in numbers if abs(c) < most - 1], _beside)
    if kind == "double":
        return _mixed(sample, [float(c) for c in numbers], _close)
    if kind == "string":
        lengths = [c for c in numbers if isinstance(c, int) and 3 < c <= _LONGEST]
        return _mixed(sample, [*texts, *lengths], lambda chance, constant: _around(chance, constant, sample))
    return sample


def edges(
    samples: Mapping[str, Sample], constants: Sequence[Any], chance: random.Random, count: int
) -> list[dict[str, Any]]:
    """Rows at the edges of what constants bound around a place: on one axis, in either direction, all else at rest.

    A box that is too narrow on one side alone is met nowhere else: a row has to be at the place in all arguments but
    one, and in that one just within the distance.
    """
    numbers = [float(c) for c in constants if isinstance(c, int | float) and math.isfinite(c) and abs(c) < 1e9]
    axes = [
        name
        for name, sample in samples.items()
        if not sample.own and (sql_type(sample.kind).is_integral or sample.kind == "double")
    ]
    if not numbers or not axes:
        return []
    found = []
    for _ in range(count):
        row = {name: sample.draw(chance) for name, sample in samples.items()}
        first = chance.randrange(len(numbers))  # a place's coordinates stand beside each other in the code
        place = numbers[first:] + numbers[:first] if chance.random() < 0.7 else chance.choices([0.0, *numbers], k=9)
        row |= {name: _of_kind(samples[name], c) for name, c in zip(axes, itertools.cycle(place), strict=False)}
        axis, distance = chance.choice(axes), chance.choice(numbers)
        distance *= chance.choice([1.0, 0.999, 0.95]) * chance.choice([-1, 1])
        row[axis] = _of_kind(samples[axis], row[axis] + distance)
        found.append(row)
    return found


def _of_kind(sample: Sample, number: float) -> Any:
    """A number as a value of a sample's type."""
    if sample.kind == "double":
        return number
    values = sql_type(sample.kind).values
    return max(values[0], min(values[-1], round(number)))


def _mixed(sample: Sample, constants: Sequence[Any], change: Callable[[random.Random, Any], Any]) -> Sample:
    if not constants or sample.own:
        return sample

    def draw(chance: random.Random) -> Any:
        if chance.random() > _SHARE:
            return sample.draw(chance)
        return change(chance, chance.choice(constants))

    return Sample(sample.kind, draw)


def _beside(chance: random.Random, number: int) -> int:
    return chance.choice([number, number, number - 1, number + 1])


def _close(chance: random.Random, number: float) -> float:
    beside = [math.nextafter(number, math.inf), math.nextafter(number, -math.inf), number + 0.5, number - 0.5]
    return number if chance.random() < 0.5 else chance.choice(beside)


def _around(chance: random.Random, text: str | int, sample: Sample) -> str:
    """A text with a constant one in it; of a number, a text about as long, of which few begin otherwise."""
    if isinstance(text, int):
        return (chance.choice("az") * text)[: chance.randint(text - 1, text)] + chance.choice(["", "a", "b"])
    one, other = str(sample.draw(chance)), str(sample.draw(chance))
    return chance.choice(
        [text, text + one, one + text, one + text + other, f"{one}{text}{other}{text}{one}", text.upper(), text[:-1]]
    )
