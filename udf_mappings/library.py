"""Libraries of Python functions: tables of plain functions with their SQL names and types.

A module of functions fills such a table with the decorator, and the entry-point group ``geoskip.functions`` names it,
so that ``geoskip.register_functions(spark)`` registers them. Plain functions, a row at a time, are what geoskip can
call for single values while a query is planned: a value list over ``f(x)`` then decides conditions on ``g(f(x))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from geoskip.predicates import Call

__all__ = ["PlainFunction", "offered", "returns"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlainFunction:
    """A Python function of one row under its SQL name; ``returns`` is Spark's name of its type."""

    name: str
    function: Callable[..., Any]
    returns: str
    vectorised: ClassVar[None] = None
    """It has no form that takes whole columns."""


def offered(table: dict[str, PlainFunction], returns: str) -> Callable[[F], F]:
    """Put a function into a table, under its own name.

    >>> table = {}
    >>> @offered(table, "int")
    ... def double(n):
    ...     return 2 * n
    >>> table["double"].returns, double(2)
    ('int', 4)
    """

    def register(function: F) -> F:
        table[function.__name__] = PlainFunction(function.__name__, function, returns)
        return function

    return register


def returns(call: Call, *kinds: str) -> bool:
    """True if a call returns one of these types; a float would round, a tinyint wrap around.

    >>> returns(Call("f", (), type="float"), "double"), returns(Call("f", (), type="double"), "double")
    (False, True)
    """
    return call.type is None or call.type in kinds
