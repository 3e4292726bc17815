"""Rewrite conditions on ``if coalesce greatest least`` and maps as conditions on their values.

::

    if(a > 0, x, y) = 5          if(a > 0, x = 5, y = 5)
    coalesce(x, y) < 5           coalesce(x < 5, y < 5)
    greatest(x, y) < 5           coalesce(x < 5, TRUE) AND coalesce(y < 5, TRUE)     NULLs are skipped
    least(x, y) < 5              coalesce(x < 5, FALSE) OR coalesce(y < 5, FALSE)
    map('a', 1, 'b', 2)[s] = 1   s IN ('a')
    coalesce(x, y) IS NULL       x IS NULL AND y IS NULL

Each is TRUE where the left one is, and FALSE where that is FALSE; where the left one is NULL, it may be anything. That
is all that verdicts of TRUE and FALSE need (:mod:`geoskip.planner`). Only Spark's own functions are meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from geoskip.predicates import (
    FALSE,
    TRUE,
    And,
    Call,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    StartsWith,
)
from geoskip.types import sql_type

__all__ = ["is_builtin", "rewrite"]

Test = Callable[[Predicate], Predicate]
_CLASSES = {
    "if": ("If",),
    "coalesce": ("Coalesce",),
    "greatest": ("Greatest",),
    "least": ("Least",),
    "getmapvalue": ("GetMapValue",),
    "element_at": ("ElementAt",),
    "try_element_at": ("ElementAt",),
}
_MOST = 16
_MOST_KEYS = 1000


def is_builtin(call: Call) -> bool:
    """True for Spark's own function; a user's function may be registered under any name."""
    kinds = _CLASSES.get(call.name.lower(), ())
    return call.implementation in [f"org.apache.spark.sql.catalyst.expressions.{kind}" for kind in kinds] or (
        call.implementation is None and call.name in ("if", "coalesce")
    )


def rewrite(node: Predicate) -> Predicate | None:
    """Return the condition on the values, or None for other conditions.

    >>> from geoskip.predicates import Column
    >>> x, y = Column("x", "int"), Column("y", "int")
    >>> print(rewrite(Comparison("<", Call("coalesce", (x, y, Literal(9, "int"))), Literal(5, "int"))))
    coalesce(x < 5, y < 5, False)
    """
    match node:
        case Comparison(_, Call() as call, Literal(value)) if value is not None and is_builtin(call):
            return _compared(node, call)
        case In(Call() as call, values) if values and all(v.value is not None for v in values) and is_builtin(call):
            return _among(node, call)
        case (
            StartsWith(Call() as call) | EndsWith(Call() as call) | Contains(Call() as call) | Like(Call() as call)
        ) if is_builtin(call):
            return _chosen(call, lambda part: _nothing(part) or replace(node, child=part))
        case IsNull(Call("if", (test, *parts)) as call) if is_builtin(call):
            return _if(call, test, [_is_null(part) for part in parts])
        case IsNull(Call("coalesce" | "greatest" | "least", parts) as call) if is_builtin(call):
            return And(tuple(map(_is_null, parts)))
    return None


def _compared(node: Comparison, call: Call) -> Predicate | None:
    op, literal = node.op, node.right
    assert isinstance(literal, Literal)

    def test(part: Predicate) -> Predicate:
        return _nothing(part) or _holds(op, part, literal)

    match call.name.lower():
        case "if" | "coalesce" if op != "<=>":
            return _chosen(call, test)
        case "if" | "coalesce":  # TRUE where the values are equal, FALSE otherwise
            equal = rewrite(replace(node, op="="))
            return None if equal is None else Call("coalesce", (equal, FALSE), type="boolean")
        case "greatest":
            return _extreme(op, call.args, literal, ("<", "<="))
        case "least":
            return _extreme(op, call.args, literal, (">", ">="))
    found = _looked_up(call, lambda value: _truth(op, value, literal))
    return Call("coalesce", (found, FALSE), type="boolean") if op == "<=>" and found is not None else found


def _among(node: In, call: Call) -> Predicate | None:
    match call.name.lower():
        case "if" | "coalesce":
            return _chosen(call, lambda part: _nothing(part) or In(part, node.values))
        case "greatest" | "least":
            single = [_compared(Comparison("=", call, value), call) for value in node.values[: _MOST + 1]]
            known = tuple(one for one in single if one is not None)
            return Or(known) if len(known) == len(single) <= _MOST else None

    def among(value: Literal) -> bool | None:
        truths = [_truth("=", value, other) for other in node.values]
        return True if True in truths else None if None in truths else False

    return _looked_up(call, among)


def _chosen(call: Call, test: Test) -> Predicate | None:
    match call:
        case Call("if", (condition, *parts)):
            return _if(call, condition, list(map(test, parts)))
        case Call("coalesce", parts):
            return Call("coalesce", tuple(map(test, parts)), call.implementation, type="boolean")
    return None


def _if(call: Call, condition: Predicate, parts: list[Predicate]) -> Predicate:
    return Call("if", (condition, *parts), call.implementation, type="boolean")


def _extreme(op: str, parts: tuple[Predicate, ...], literal: Literal, of_all: tuple[str, str]) -> Predicate:
    """Compare the extreme of some values: operators in ``of_all`` hold for all of them, others for one."""
    if op in ("=", "<=>"):
        both = (_extreme(side, parts, literal, of_all) for side in ("<=", ">="))
        return And(tuple(both))
    neutral = TRUE if op in of_all else FALSE
    tests = tuple(
        Call("coalesce", (_nothing(part) or _holds(op, part, literal), neutral), type="boolean") for part in parts
    )
    return And(tests) if op in of_all else Or(tests)


def _looked_up(call: Call, test: Callable[[Literal], bool | None]) -> Predicate | None:
    """``map(k, v, ...)[x]``: x is one of the keys whose values pass; all must be known to pass or not."""
    match call.args:
        case (Literal(tuple() as entries, kind), key, *_) if sql_type(kind).kind == "map":
            key_type, value_type = sql_type(kind).key.name, sql_type(kind).value.name
            found = [
                (k, test(Literal(v, value_type)) if v is not None else False) for k, v in entries[: _MOST_KEYS + 1]
            ]
            if len(found) <= _MOST_KEYS and all(passes is not None for _, passes in found):
                return In(key, tuple(Literal(k, key_type) for k, passes in found if passes))
    return None


def _nothing(part: Predicate) -> Predicate | None:
    return Literal(None, "boolean") if isinstance(part, Literal) and part.value is None else None


def _is_null(part: Predicate) -> Predicate:
    return (TRUE if part.value is None else FALSE) if isinstance(part, Literal) else IsNull(part)


def _holds(op: str, part: Predicate, literal: Literal) -> Predicate:
    """The comparison, or what it is where both sides are literals of one type."""
    truth = _truth(op, part, literal) if isinstance(part, Literal) else None
    return Comparison(op, part, literal) if truth is None else TRUE if truth else FALSE


_TRUTHS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "<=>": lambda a, b: a == b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def _truth(op: str, left: Literal, right: Literal) -> bool | None:
    """``left op right`` in Spark's order; None where that is not plain.

    >>> _truth("<", Literal(1.0, "double"), Literal(float("nan"), "double")), _truth("=", Literal(1), Literal("1"))
    (True, None)
    """
    if left.type != right.type or type(left.value) is not type(right.value):
        return None
    keys = [_key(side.value) for side in (left, right)]
    return None if None in keys else _TRUTHS[op](*keys)


def _key(value: Any) -> Any:
    match value:
        case float():
            return (value != value, 0.0 if value != value else value)
        case str():
            return value.encode("utf-8", "surrogateescape")
        case bool() | int() | Decimal() | bytes():
            return value
    return None
