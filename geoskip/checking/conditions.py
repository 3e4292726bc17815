"""The conditions over a function's value that are tried, plain and negated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from geoskip.checking.strategies import physical_value
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.types import sql_type

__all__ = ["conditions", "values_to_compare"]

_COMPARED, _COMPARED_ALONE, _ARGUMENTS = 3, 8, 2


def conditions(
    call: Call,
    results: pa.Array,
    chance: random.Random,
    arguments: Sequence[Any] = (),
    constants: Sequence[Any] = (),
) -> Iterator[Predicate]:
    """The call itself where it is a condition, else comparisons with values that it has; NULL tests, negations.

    It is compared with values of its ``arguments`` too, those of its own type: ``f(s) <> 'apple'`` where s is that, and
    with numbers in the code of the function and of its mappings, ``constants``.
    """
    yield IsNull(call)
    yield Not(IsNull(call))
    if call.type == "boolean":
        yield call
        yield Not(call)
        yield Comparison("<=>", call, Literal(True, "boolean"))
        return
    alone = len(call.args) == 1
    most = _COMPARED_ALONE if alone else _COMPARED
    values = values_to_compare(results, call.type or "", chance, most)
    given = [physical_value(value) for value in arguments if value is not None]
    values += chance.sample(given, min(_ARGUMENTS, len(given)))
    if call.type == "double" or sql_type(call.type).is_integral:
        numbers = [c for c in constants if isinstance(c, int | float) and (c == c // 1 or call.type == "double")]
        numbers = [float(c) if call.type == "double" else int(c) for c in numbers if abs(c) < 100]
        values += chance.sample(numbers, min(2 * _COMPARED, len(numbers)))
    for value in values:
        literal = Literal(value, call.type)
        for op in ("=", "<", "<=", ">", ">=", "<=>"):
            yield Comparison(op, call, literal)
        yield Not(Comparison("=", call, literal))
        yield Not(Comparison("<=>", call, literal))
        if isinstance(value, str) and value:
            yield StartsWith(call, value[: chance.randint(1, len(value))])
    among = tuple(Literal(value, call.type) for value in values)
    if among:
        yield In(call, among)
        yield Not(In(call, among))


def values_to_compare(results: pa.Array, kind: str, chance: random.Random, most: int = _COMPARED) -> list[Any]:
    """Some of the values that a function has, and some beside them; physical."""
    try:
        known = list(dict.fromkeys(physical_value(value) for value in results.drop_null().to_pylist()))
    except (TypeError, OverflowError):
        return []
    chosen: list[Any] = chance.sample(known, min(most, len(known)))
    return [*chosen, *_beside(chosen, kind, chance)]


def _beside(values: Sequence[Any], kind: str, chance: random.Random) -> Iterator[Any]:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers and sql_type(kind).is_integral:
        near = chance.choice(numbers) + chance.choice([-1, 1])
        yield near if abs(near) < 2**7 else 0
    elif numbers and sql_type(kind).is_floating:
        yield round(chance.choice(numbers), 1) if chance.random() < 0.5 else 0.0
    texts = [value for value in values if isinstance(value, str) and len(value) > 1]
    if texts:  # the beginning of a value that is there, and something longer
        text = chance.choice(texts)
        yield text[: chance.randint(1, len(text) - 1)]
        yield chance.choice(texts) + "a"
