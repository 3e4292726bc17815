"""Functions of SQL, recognised in what Spark replaces them by.

``CREATE FUNCTION half(n BIGINT) RETURN n / 2`` leaves no call behind: a query over ``half(temp)`` arrives as
``CAST(temp AS double) / 2.0``. A *template* is what the function is made of, over markers for its arguments; a vertex
that the template becomes for some arguments computes the function of them, whatever it was written as. So a mapping of
the function's name is asked about the call put in its place.

What Spark folds with a constant argument is recognised as long as the argument is only cast: ``n * 2`` of 5 is 10, and
nobody can tell.

>>> from geoskip.predicates import Cast, Column, Comparison
>>> n = Column("n", "string")
>>> half = Template("half", Call("/", (Cast(Cast(n, "bigint"), "double"), Literal(2.0, "double"))), (n,), "double")
>>> temp = Cast(Column("temp", "bigint"), "double", "bigint")
>>> recognised(Comparison(">", Call("/", (temp, Literal(2.0, "double"))), Literal(5.0)), [half])
[half(temp) > 5.0]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from geoskip.predicates import Call, Cast, Literal, Opaque, Predicate, children, normalise, transform

__all__ = ["Template", "recognised"]

Bound = dict[Predicate, Predicate]


@dataclass(frozen=True)
class Template:
    """What a function of SQL is made of; ``markers`` stand for its arguments, as strings that are cast."""

    name: str
    body: Predicate
    markers: tuple[Predicate, ...]
    type: str | None = None

    def call(self, node: Predicate) -> Call | None:
        """The call that a vertex is, or None."""
        bound: Bound = {}
        if not _unified(self.body, node, self.markers, bound):
            return None
        unused = Opaque("an argument that the function does not use")
        implementation = "sql:" + hashlib.sha256(repr(self.body).encode("utf-8", "replace")).hexdigest()[:16]
        arguments = tuple(bound.get(marker, unused) for marker in self.markers)
        return Call(self.name, arguments, implementation, (), self.type)

    def replaced(self, node: Predicate) -> Predicate:
        """The call that a vertex is, or itself."""
        return self.call(node) or node


def recognised(node: Predicate, templates: Iterable[Template]) -> list[Predicate]:
    """The vertex with the calls that stand in it, once for each template that has some."""
    found = []
    for template in templates:
        made = normalise(transform(node, template.replaced))
        if made != node:
            found.append(made)
    return found


def _unified(pattern: Predicate, node: Predicate, markers: tuple[Predicate, ...], bound: Bound) -> bool:
    if pattern in markers:
        return bound.setdefault(pattern, node) == node
    match pattern, node:
        case Cast(inner, kind), _ if inner in markers and getattr(node, "type", None) == kind:
            return bound.setdefault(inner, node) == node  # the argument as the parameter's type
        case Cast(inner, kind), Literal(_, of) if of == kind:  # a constant, folded
            return _unified(inner, _as_inner(inner, node), markers, bound)
    if type(pattern) is not type(node):
        return False
    below, beside = children(pattern), children(node)
    if len(below) != len(beside) or not _same_but_children(pattern, node):
        return False
    return all(_unified(one, other, markers, bound) for one, other in zip(below, beside, strict=True))


def _as_inner(inner: Predicate, literal: Literal) -> Literal:
    """A folded constant as what it was cast from, where that is plain to see."""
    kind = getattr(inner, "type", None)
    value: Any = literal.value
    if kind in ("tinyint", "smallint", "int", "bigint") and isinstance(value, float) and value.is_integer():
        value = int(value)
    return replace(literal, value=value, type=kind)


def _same_but_children(one: Any, other: Any) -> bool:
    """Are two vertices of a type the same but for what is below them?"""
    below = {id(child) for child in children(one)}
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        parts = a if isinstance(a, tuple) and a else (a,)
        if field.name != "source" and not all(id(part) in below for part in parts) and a != b:
            return False
    return True
