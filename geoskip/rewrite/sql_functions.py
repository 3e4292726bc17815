"""Recognise SQL functions after Spark has inlined their bodies.

``CREATE FUNCTION half(n BIGINT) RETURN n / 2`` leaves no call behind: a query over ``half(temp)`` arrives as
``CAST(temp AS double) / 2.0``. A *template* is what the function is made of, over markers for its arguments; a vertex
that the template becomes for some arguments computes the function of them, whatever it was written as. So a mapping of
the function's name is asked about the call put in its place.

A vertex is recognised whatever the order of an AND or OR, among further members of one (:func:`group`), and negated:
Spark writes ``NOT (a AND b)`` as ``NOT a OR NOT b``. What it has folded with a constant argument is solved for it
(:mod:`geoskip.rewrite.literal_arguments`).

>>> from geoskip.predicates import Cast, Column, Comparison
>>> n = Column("n", "string")
>>> half = Template("half", Call("/", (Cast(Cast(n, "bigint"), "double"), Literal(2.0, "double"))), (n,), "double")
>>> temp = Cast(Column("temp", "bigint"), "double", "bigint")
>>> recognise(Comparison(">", Call("/", (temp, Literal(2.0, "double"))), Literal(5.0)), [half])
[half(temp) > 5.0]
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from geoskip.predicates import (
    And,
    Call,
    Cast,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    children,
    normalise,
    transform,
    walk,
)
from geoskip.registry.functions import catalyst_class
from geoskip.rewrite.literal_arguments import evaluates_to, solve
from geoskip.types import sql_type

Bound = dict[Predicate, Predicate]
Match = tuple[Bound, tuple[tuple[Predicate, Literal], ...]]
"""What stands for markers, and what was folded to which constants."""
_MOST_MEMBERS = 40
_MOST_WAYS = 500
_MOST_OPERANDS = 8


@dataclass(frozen=True)
class Template:
    """The body of a SQL function; ``markers`` stand for its arguments, as strings that are cast."""

    name: str
    body: Predicate
    markers: tuple[Predicate, ...]
    type: str | None = None

    @functools.cached_property
    def opposite(self) -> Predicate | None:
        """The body of the negated condition."""
        return _opposite(self.body) if self.type == "boolean" else None

    @functools.cached_property
    def implementation(self) -> str:
        """Names the body and all that it is made of, so that a function of another one is another function."""
        return "sql:" + hashlib.sha256(_full_text(self.body).encode("utf-8", "backslashreplace")).hexdigest()[:16]

    def call(self, node: Predicate) -> Call | None:
        """The call that a vertex is, or None."""
        return self._match_call(self.body, node)

    def substitute(self, node: Predicate) -> Predicate:
        """The call that a vertex is, or its negation, or itself."""
        made = self.call(node)
        if (
            made is None
            and self.opposite is not None
            and (opposite := self._match_call(self.opposite, node)) is not None
        ):
            return Not(opposite)
        return made or node

    def _match_call(self, pattern: Predicate, node: Predicate) -> Call | None:
        for bound in itertools.islice(_ways(pattern, node, self.markers, ({}, ())), _MOST_WAYS):
            if (found := _bind_all(bound, self.markers)) is not None:
                unused = Opaque("an argument that the function does not use")
                arguments = tuple(found.get(marker, unused) for marker in self.markers)
                return Call(self.name, arguments, self.implementation, (), self.type)
        return None

    def members(self, node: And | Or) -> tuple[int, ...]:
        """The places of those members of an AND or OR, not all, that are the function or its negation; none."""
        for pattern in (self.body, self.opposite):
            if type(pattern) is not type(node) or not isinstance(pattern, And | Or):
                continue
            if len(pattern.children) < len(node.children) <= _MOST_MEMBERS:
                ways = _members(pattern.children, node.children, self.markers, ({}, ()), ())
                for match, chosen in itertools.islice(ways, _MOST_WAYS):
                    if _bind_all(match, self.markers) is not None:
                        return tuple(sorted(chosen))
        return ()


def _full_text(node: Predicate) -> str:
    """Format an expression in full, with types and implementations, which ``str`` leaves out."""
    return repr([(type(v).__name__, *map(_typed_value, _field_values(v))) for v in walk(node)])


def _field_values(node: Predicate) -> list[object]:
    return [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]


def _typed_value(value: object) -> object:
    match value:
        case Literal(content, kind):
            return type(content).__name__, _typed_value(content), kind
        case Predicate():
            return ""  # it follows by itself
        case tuple():
            return tuple(map(_typed_value, value))
    return getattr(value, "wkb_hex", value)  # a geometry shows its beginning alone


def _opposite(node: Predicate) -> Predicate:
    match node:
        case And(parts):
            return Or(tuple(map(_opposite, parts)))
        case Or(parts):
            return And(tuple(map(_opposite, parts)))
    return normalise(Not(node))


def recognise(node: Predicate, templates: Iterable[Template]) -> list[Predicate]:
    """The vertex with the calls that stand in it, once for each template that has some."""
    found = []
    for template in templates:
        made = normalise(transform(node, template.substitute))
        if made != normalise(node):
            found.append(made)
    return found


def group(node: Predicate, templates: Sequence[Template]) -> Predicate:
    """Group the members of an AND or OR that form the body of a function into one vertex.

    >>> from geoskip.predicates import Column, Comparison
    >>> p, t, u = Column("p", "bigint"), Column("t", "bigint"), Column("u", "bigint")
    >>> bounds = [Comparison(">", p, Literal(1)), Comparison("<", p, Literal(9))]
    >>> within = Template("within", And(tuple(bounds)), (p,), "boolean")
    >>> query = And((Comparison("<", t, Literal(9)), Comparison("=", u, Literal(3)), Comparison(">", t, Literal(1))))
    >>> group(query, [within])
    (u = 3 AND (t < 9 AND t > 1))
    """
    wide = [template for template in templates if isinstance(template.body, And | Or)]

    def change(vertex: Predicate) -> Predicate:
        if not isinstance(vertex, And | Or):
            return vertex
        kind, rest, groups = type(vertex), vertex.children, []
        for template in wide:
            while chosen := template.members(kind(rest)):
                groups.append(kind(tuple(rest[place] for place in chosen)))
                rest = tuple(part for place, part in enumerate(rest) if place not in chosen)
        return kind((*rest, *groups)) if groups else vertex

    return transform(node, change) if wide else node


def _bind_all(match: Match, markers: Sequence[Predicate]) -> Bound | None:
    """Bind all markers, solving folded constants; None if one has no unique solution."""
    bound, waiting = dict(match[0]), list(match[1])
    while waiting:
        count = len(waiting)
        for entry in list(waiting):
            pattern, constant = entry
            open_ = {vertex for vertex in walk(pattern) if vertex in markers and vertex not in bound}
            if len(open_) > 1:
                continue
            waiting.remove(entry)
            for marker in open_:
                if (found := solve(pattern, constant, marker, bound)) is None:
                    return None
                bound[marker] = found
            if not open_ and not evaluates_to(pattern, constant, bound):
                return None
        if len(waiting) == count:
            return None
    return bound


def _ways(pattern: Predicate, node: Predicate, markers: tuple[Predicate, ...], match: Match) -> Iterator[Match]:
    """The ways in which a vertex is a pattern with something for its markers."""
    marker = pattern.child if isinstance(pattern, Cast) and pattern.child in markers else pattern
    if marker in markers and node.type == pattern.type:
        yield from _bound(marker, node, match)  # the argument as the parameter's type, a string as the marker is
        return
    if pattern in markers:
        return
    if isinstance(node, Literal) and pattern != node:
        if any(vertex in markers for vertex in walk(pattern)):
            yield match[0], (*match[1], (pattern, node))
        return
    if type(pattern) is not type(node):
        return
    yield from _sums(pattern, node, markers, match)
    below, beside = children(pattern), children(node)
    if len(below) != len(beside) or not _same_but_children(pattern, node):
        return
    if isinstance(pattern, And | Or):
        yield from (found for found, _ in _members(below, beside, markers, match, ()))
        return
    ways: Iterator[Match] = iter((match,))
    for one, other in zip(below, beside, strict=True):
        ways = itertools.chain.from_iterable(map(functools.partial(_ways, one, other, markers), ways))
    yield from ways


def _sums(pattern: Predicate, node: Predicate, markers: tuple[Predicate, ...], match: Match) -> Iterator[Match]:
    """Matches of sums and products of whole numbers, whose constants Spark folds into one, the last."""
    if not (isinstance(pattern, Call) and isinstance(node, Call) and _same_sum(pattern, node)):
        return
    parts, (*others, constant) = _operands(pattern, pattern), _operands(node, node)
    if not isinstance(constant, Literal) or not len(others) < len(parts) <= _MOST_OPERANDS:
        return
    for places in itertools.combinations(range(len(parts)), len(others)):
        rest = [part for place, part in enumerate(parts) if place not in places]
        folded = functools.reduce(lambda one, other: replace(pattern, args=(one, other)), rest)
        if any(vertex in markers for vertex in walk(folded)):
            ways: Iterator[Match] = iter(((match[0], (*match[1], (folded, constant))),))
            for place, other in zip(places, others, strict=True):
                ways = itertools.chain.from_iterable(map(functools.partial(_ways, parts[place], other, markers), ways))
            yield from ways


def _same_sum(one: Call, other: Call) -> bool:
    whole = catalyst_class(one) in ("Add", "Multiply") and sql_type(one.type).is_integral
    return whole and replace(one, args=()) == replace(other, args=())


def _operands(node: Predicate, of: Call) -> list[Predicate]:
    """Return the operands of a sum or product, from left to right."""
    if isinstance(node, Call) and len(node.args) == 2 and _same_sum(node, of):
        return [operand for part in node.args for operand in _operands(part, of)]
    return [node]


def _members(
    patterns: Sequence[Predicate], nodes: Sequence[Predicate], markers: tuple[Predicate, ...], match: Match,
    chosen: tuple[int, ...],
) -> Iterator[tuple[Match, tuple[int, ...]]]:  # fmt: skip
    """The ways in which each pattern is another one of some vertices, with the places of these."""
    if not patterns:
        yield match, chosen
        return
    for place, node in enumerate(nodes):
        if place not in chosen:
            for found in _ways(patterns[0], node, markers, match):
                yield from _members(patterns[1:], nodes, markers, found, (*chosen, place))


def _bound(marker: Predicate, node: Predicate, match: Match) -> Iterator[Match]:
    known = match[0].get(marker)
    if known is None:
        yield {**match[0], marker: node}, match[1]
    elif known == node:
        yield match


def _same_but_children(one: Predicate, other: Predicate) -> bool:
    """Are two vertices of a type the same but for what is below them?"""
    below = {id(child) for child in children(one)}
    for field in fields(type(one)):  # type: ignore[arg-type]
        a, b = getattr(one, field.name), getattr(other, field.name)
        parts = a if isinstance(a, tuple) and a else (a,)
        if field.name != "source" and not all(id(part) in below for part in parts) and a != b:
            return False
    return True
