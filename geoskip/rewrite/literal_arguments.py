"""Recover the literal arguments of an expression that an engine has folded to a constant.

``n * 2 + 1`` is 11 for n = 5. The argument is guessed backwards, one step at a time, and accepted only if the
expression evaluates to that very constant for it: whole numbers within their type, doubles to the bit, plain ASCII
texts. Any argument that gives the constant is as good as the original one: the expression over it is the same.

>>> from geoskip.predicates import Call, Cast, Column, Literal
>>> marker = Column("p", "string")
>>> n = Cast(marker, "bigint")
>>> twice = Call("*", (n, Literal(2, "bigint")), "Multiply", ("ANSI",), "bigint")
>>> more = Call("+", (twice, Literal(1, "bigint")), "Add", ("ANSI",), "bigint")
>>> solve(more, Literal(11, "bigint"), marker, {}), solve(more, Literal(10, "bigint"), marker, {})
(5, None)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from geoskip.predicates import Call, Cast, Literal, Predicate, walk
from geoskip.registry.functions import catalyst_class
from geoskip.types import sql_type

Bound = Mapping[Predicate, Predicate]


def solve(pattern: Predicate, constant: Literal, marker: Predicate, bound: Bound) -> Literal | None:
    """Return the literal for which an expression was folded to this constant, or None if not unique.

    Parameters
    ----------
    pattern
        The expression over markers.
    constant
        The constant that stands in its place.
    marker
        The argument to recover.
    bound
        Literals of other markers.
    """
    guesses = _guesses(pattern, constant, marker, bound)
    return next((guess for guess in guesses if evaluates_to(pattern, constant, {**bound, marker: guess})), None)


def evaluates_to(pattern: Predicate, constant: Literal, bound: Bound) -> bool:
    """True if an expression certainly evaluates to this constant."""
    made = _value(pattern, bound)
    return made is not None and made.type == constant.type and _is_same(made.value, constant.value)


def _is_same(one: Any, other: Any) -> bool:
    signs = isinstance(one, float) and isinstance(other, float) and math.copysign(1, one) != math.copysign(1, other)
    return type(one) is type(other) and one == other and not signs


def _guesses(pattern: Predicate, constant: Literal, marker: Predicate, bound: Bound) -> Iterator[Literal]:
    """Candidates for the marker; doubles are rounded, so their neighbours are candidates too."""
    if pattern == marker or (isinstance(pattern, Cast) and pattern.child == marker and pattern.type == constant.type):
        yield constant
        return
    match pattern:
        case Cast(child):
            for value in _uncast(constant.value, child.type):
                yield from _guesses(child, Literal(value, child.type), marker, bound)
        case Call(_, args):
            open_ = [n for n, arg in enumerate(args) if any(vertex == marker for vertex in walk(arg))]
            others = [_value(arg, bound) for n, arg in enumerate(args) if n not in open_]
            back = _BACK.get(catalyst_class(pattern))
            if len(open_) != 1 or back is None or None in others:
                return
            (place,) = open_
            known = [other.value for other in others if other is not None]
            kind = args[place].type or ("string" if isinstance(constant.value, str) else None)
            for value in back(constant.value, known, place):
                yield from _guesses(args[place], Literal(value, kind), marker, bound)


def _uncast(value: Any, kind: str | None) -> Iterator[Any]:
    if sql_type(kind).is_integral:
        if isinstance(value, float) and value.is_integer():
            yield int(value)
        elif isinstance(value, int):
            yield value
        elif isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
            yield int(value)


def _neighbours(value: float) -> list[float]:
    near = (value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf))
    return [guess for guess in near if math.isfinite(guess)]


def _number(back: Callable[[Any, Any, int], Any]) -> Callable[[Any, list[Any], int], list[Any]]:
    def guess(value: Any, known: list[Any], place: int) -> list[Any]:
        numbers = [value, *known]
        if len(known) != 1 or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            return []
        try:
            found = back(value, known[0], place)
        except (ZeroDivisionError, OverflowError):
            return []
        return _neighbours(found) if isinstance(found, float) else [found]

    return guess


def _quotient(value: Any, by: Any) -> Any:
    return value // by if isinstance(value, int) else value / by


def _middle(value: Any, known: list[Any], place: int) -> list[Any]:
    """Return the text at one position of a ``concat`` of known texts."""
    before, after = "".join(known[:place]), "".join(known[place:])
    whole = isinstance(value, str) and len(value) >= len(before) + len(after)
    return [value[len(before) : len(value) - len(after)]] if whole else []


_BACK: dict[str, Callable[[Any, list[Any], int], list[Any]]] = {
    "Add": _number(lambda value, other, place: value - other),
    "Subtract": _number(lambda value, other, place: other - value if place else value + other),
    "Multiply": _number(lambda value, other, place: _quotient(value, other)),
    "Divide": _number(lambda value, other, place: other / value if place else value * other),
    "Upper": lambda value, known, place: [value],
    "Lower": lambda value, known, place: [value],
    "Concat": _middle,
}
"""By Catalyst class: from a value, the other arguments and the place of the open one to what may stand there."""


def _value(node: Predicate, bound: Bound) -> Literal | None:
    """An expression over constants as the engine computes it; None where that is not plain to see."""
    if node in bound or (isinstance(node, Cast) and node.child in bound):
        found = bound.get(node) or bound.get(getattr(node, "child", node))
        same = isinstance(found, Literal) and (node in bound or found.type == node.type)
        return found if isinstance(found, Literal) and same and found.value is not None else None
    match node:
        case Literal(value):
            return node if value is not None else None
        case Cast(child, kind):
            inner = _value(child, bound)
            return None if inner is None else _cast(inner, kind)
        case Call(_, args):
            parts = [_value(arg, bound) for arg in args]
            compute = _FORWARD.get(catalyst_class(node))
            if compute is None or None in parts:
                return None
            return _literal(compute([part.value for part in parts if part is not None]), node.type)
    return None


def _cast(inner: Literal, kind: str) -> Literal | None:
    value = inner.value
    if sql_type(inner.type).is_integral and type(value) is int:
        if sql_type(kind).is_integral:
            return _literal(value, kind)
        if kind == "double":
            return Literal(float(value), kind)
        if kind == "string":
            return Literal(str(value), kind)
    return inner if inner.type == kind else None


def _literal(value: Any, kind: str | None) -> Literal | None:
    """A value as a literal of a type, if it is one: overflow wraps around, or throws."""
    if type(value) is int:
        return Literal(value, kind) if value in sql_type(kind).values else None
    if kind == "double" and type(value) is float:
        return Literal(value, kind) if math.isfinite(value) else None
    return Literal(value, kind) if kind == "string" and isinstance(value, str) else None


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    def result(values: list[Any]) -> Any:
        if len(values) != 2 or type(values[0]) is not type(values[1]) or type(values[0]) not in (int, float):
            return None
        try:
            return compute(*values)
        except (ZeroDivisionError, OverflowError):
            return None

    return result


def _change_case(change: Callable[[str], str]) -> Callable[[list[Any]], Any]:
    return lambda values: change(values[0]) if isinstance(values[0], str) and values[0].isascii() else None


_FORWARD: dict[str, Callable[[list[Any]], Any]] = {
    "Add": _arithmetic(lambda a, b: a + b),
    "Subtract": _arithmetic(lambda a, b: a - b),
    "Multiply": _arithmetic(lambda a, b: a * b),
    "Divide": _arithmetic(lambda a, b: a / b if isinstance(a, float) else None),
    "Upper": _change_case(str.upper),
    "Lower": _change_case(str.lower),
    "Concat": lambda values: "".join(values) if all(isinstance(value, str) for value in values) else None,
}
