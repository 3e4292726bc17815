"""Lambdas of SQL: ``x -> x > 5`` is ``y -> y > 5``, so that an index over ``exists(tags, x -> x > 5)`` meets either.

Spark numbers the variables anew each time. Here a variable is told by how many lambdas are nested within the one that
binds it, and by its place there; of the lambdas around a variable, no two have equally many within them.
"""

from __future__ import annotations

from dataclasses import replace

from geoskip.predicates import Call, Predicate, transform, walk

__all__ = ["closed"]

_VARIABLE = "org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable"
_NUMBER = 3
"""Where the flags of a variable have Spark's number: after its name and type, and whether it may be NULL."""


def closed(function: Call) -> Call:
    """A lambda, its body and then its variables, with the variables told by their places.

    >>> x, y = (Call("v", (), _VARIABLE, ("x", "int", "true", number, "null"), "int") for number in "78")
    >>> one, other = (Call("lambdafunction", (Call("f", (a, b)), a, b)) for a, b in ((x, y), (y, x)))
    >>> swapped = Call("lambdafunction", (Call("f", (y, x)), x, y))
    >>> one == other, closed(one) == closed(other), closed(one) == closed(swapped)
    (False, True, False)
    >>> inner = (closed(Call("lambdafunction", (body, y))) for body in (x, y))
    >>> len({closed(Call("lambdafunction", (function, x))) for function in inner})
    2
    """
    body, *variables = function.args
    places = {v.flags[_NUMBER]: str(place) for place, v in enumerate(variables) if _is_open(v) and isinstance(v, Call)}
    if len(places) < len(variables):
        return function
    variables_within = (v for v in walk(body) if isinstance(v, Call) and v.implementation == _VARIABLE)
    level = str(1 + max((int(v.flags[0]) for v in variables_within if not _is_open(v)), default=-1))

    def named(node: Predicate) -> Predicate:
        if isinstance(node, Call) and _is_open(node) and node.flags[_NUMBER] in places:
            return replace(node, flags=(level, places[node.flags[_NUMBER]]))
        return node

    found = transform(function, named)
    assert isinstance(found, Call)
    return found


def _is_open(node: Predicate) -> bool:
    """Is this a variable that is not told by its place yet?"""
    return isinstance(node, Call) and node.implementation == _VARIABLE and len(node.flags) > _NUMBER
