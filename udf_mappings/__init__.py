"""Mappings of function libraries, one module for each library, found by entry point.

A module declares what geoskip needs to know about the functions of one library (:mod:`geoskip.registry`). The guide
``examples/guides/mappings.md`` shows how to write one, here or in a package of your own. For a new module here:

1. Write the functions with :func:`udf_mappings.offered` if they are geoskip's own; otherwise name those of the
   library with :class:`geoskip.Function`. Facts that are regular belong in a table, one line for each function.
2. Declare the mappings with :func:`geoskip.maps`; ``networks.py`` is a short example.
3. Name the module under ``[project.entry-points."geoskip.udf_mappings"]`` in ``pyproject.toml``, its table of functions
   under ``"geoskip.functions"``, and run ``pip install --no-deps -e .``: entry points are read from the installation.
4. Test each mapping with :func:`geoskip.check_mapping` in ``tests/unit/udf_mappings/``.
5. Write the table of mapped functions again: ``python -m geoskip mappings > udf_mappings/README.md``.

A module of functions fills a table with the decorator :func:`offered`, so that ``geoskip.register_functions(spark)``
registers them. geoskip can call plain functions, which take one row at a time, for single values while a query is
planned: a value list over ``f(x)`` then decides conditions on ``g(f(x))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from geoskip.geometry import Point, SameGeometry
from geoskip.predicates import Call, Comparison, In, Literal, Predicate
from geoskip.registry import Function, current
from geoskip.registry.functions import CATALYST, Given

if TYPE_CHECKING:
    from geoskip.indexes.base import Index

__all__ = [
    "CATALYST", "PlainFunction", "catalyst", "equality", "indexed_call", "is_call_of", "is_catalyst", "offered",
    "point_of", "returns",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlainFunction:
    """A Python function of one row with its SQL name; ``returns`` is Spark's name of its return type."""

    name: str
    function: Callable[..., Any]
    returns: str
    vectorised: ClassVar[None] = None
    """There is no form for whole columns."""


def offered(table: dict[str, PlainFunction], returns: str) -> Callable[[F], F]:
    """Register a function in a table under its own name.

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
    """Test whether a call returns one of these types; a float would round, a tinyint would wrap around.

    >>> returns(Call("f", (), type="float"), "double"), returns(Call("f", (), type="double"), "double")
    (False, True)
    """
    return call.type is None or call.type in kinds


def catalyst(kind: str, *names: str) -> list[Function]:
    """Functions of one of Spark's Catalyst classes, by their SQL names."""
    return [Function(name, classes=(CATALYST + kind,)) for name in names]


def is_catalyst(node: Predicate, kind: str) -> bool:
    """Test for a call of one of Spark's Catalyst classes."""
    return isinstance(node, Call) and node.implementation == CATALYST + kind


def is_call_of(node: Predicate, *functions: Callable[..., Any]) -> bool:
    """Test for a call of exactly one of these Python functions."""
    return isinstance(node, Call) and any(Given(function).is_called(node) for function in functions)


def indexed_call(index: Index, function: Callable[..., Any], *arguments: Predicate) -> Call | None:
    """The indexed call of a Python function on these arguments, or None."""
    for bound in index.bound:
        if isinstance(bound, Call) and is_call_of(bound, function) and bound.args == arguments:
            return bound
    return None


def equality(node: Predicate) -> tuple[Predicate, tuple[Literal, ...]] | None:
    """The expression and the literals of ``e = 1`` or ``e IN (1, 2)``; None for other conditions."""
    match node:
        case Comparison("=", child, Literal() as literal):
            return child, (literal,)
        case In(child, literals):
            return child, literals
    return None


def point_of(node: Predicate) -> Point | None:
    """The point that an expression denotes, also within functions that keep a geometry, or None."""
    meaning = current().denotation(node) if isinstance(node, Call) else None
    while isinstance(meaning, SameGeometry):
        meaning = current().denotation(meaning.child) if isinstance(meaning.child, Call) else None
    return meaning if isinstance(meaning, Point) else None
