"""Predicates: a query's condition as a tree, the input of mappings and indexes.

Vertices are frozen dataclasses for use with ``match``. Boolean vertices and value expressions have one base class, as
in the expression trees of *Extensible Data Skipping*, II-A2: ``temp > 101`` compares a :class:`Column` with a literal.

>>> Comparison(">", Column("temp"), Literal(101))
temp > 101
>>> Or((Comparison("<", Literal(5), Column("a")), Not(Not(IsNull(Column("b"))))))
(5 < a OR NOT b IS NOT NULL)
>>> normalise(_)
(a > 5 OR b IS NULL)

*Values are physical*, as in Spark's internal rows: a date is an ``int`` of days since 1970-01-01, a timestamp an
``int`` of microseconds, an interval an ``int`` of months or microseconds, a string a ``str`` with invalid UTF-8 decoded
by ``surrogateescape``, a binary ``bytes``, a decimal a ``Decimal``, an array a ``tuple``, a geometry one of shapely.

*Every vertex has a* ``type``: Spark's name of the type of its value (``"int"``, ``"geometry"``, ``"boolean"`` for
conditions), or None if it is not known; mappings may leave it out. :mod:`geoskip.types` has the properties of types.

Further fields (implementation, flags, type, ANSI, zone) have defaults, so that patterns stay short. They take part in
equality, so that an index on an expression matches only the same expression.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from string import Formatter
from typing import Any, ClassVar

import numpy as np

__all__ = [
    "FALSE", "FLIPPED", "NEGATED", "TRUE", "And", "Call", "Cast", "Column", "Comparison", "Contains", "EndsWith", "In",
    "IsNull", "Like", "Literal", "Not", "Opaque", "Or", "Predicate", "StartsWith", "children", "columns_of",
    "normalise", "transform", "walk",
]  # fmt: skip


class Predicate:
    """The base of all vertices."""

    __slots__ = ()
    type: str | None
    form: ClassVar[str] = ""
    """The format string of a vertex's text; empty if the class overrides ``__str__`` or :meth:`pieces`."""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Return the tree as SQL text, without recursion."""
        texts: list[str] = []
        waiting: list[str | Predicate] = [self]
        while waiting:
            piece = waiting.pop()
            if isinstance(piece, str):
                texts.append(piece)
            else:
                waiting.extend(reversed(piece.pieces()))
        return "".join(texts)

    def pieces(self) -> Sequence[str | Predicate]:
        """Return the texts and child vertices that make up the vertex's text, in order."""
        parsed = _parse_form(self.form)
        if not parsed:
            return (str(self),)
        return [piece for text, name in parsed for piece in ((text, getattr(self, name)) if name else (text,))]


@functools.cache
def _parse_form(form: str) -> tuple[tuple[str, str | None], ...]:
    return tuple((text, name) for text, name, _, _ in Formatter().parse(form))


def _join_parts(word: str, parts: Sequence[Predicate]) -> Iterator[str | Predicate]:
    """Iterate over vertices with a separator between them."""
    for number, part in enumerate(parts):
        yield from (word, part) if number else (part,)


class _BooleanVertex(Predicate):
    """The base of vertices that are TRUE, FALSE or NULL."""

    __slots__ = ()
    type = "boolean"


@dataclass(frozen=True, slots=True, repr=False)
class Column(Predicate):
    """A column; nested fields are written with dots, special names in backquotes (``a.`b.c```)."""

    name: str
    type: str | None = None
    shown: str | None = field(default=None, compare=False)
    """The name in texts, if the files have other names than the table."""

    def pieces(self) -> Sequence[str]:
        """Return the name."""
        return (self.shown or self.name,)


_OF_TIME: dict[str | None, tuple[str, Any, str]] = {
    "date": ("DATE", "D", ""),
    "timestamp": ("TIMESTAMP", "us", "Z"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "us", ""),
}
"""Types of literals counted from 1970: the SQL keyword, the unit, and the suffix for the time zone."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Literal(Predicate):
    """A constant; None is SQL's NULL.

    Two literals are equal if Spark cannot distinguish them: ``0.0`` and ``-0.0`` differ, all NaN are equal.

    >>> Literal(0.0) == Literal(-0.0), Literal(float("nan")) == Literal(float("nan")), Literal(1) == Literal(True)
    (False, True, False)
    >>> Literal(19782, "date"), Literal(1709164800_500_000, "timestamp")
    (DATE '2024-02-29', TIMESTAMP '2024-02-29 00:00:00.500000Z')
    """

    value: Any
    type: str | None = None

    def _key(self) -> tuple[Any, ...]:
        value = repr(self.value) if isinstance(self.value, float | tuple) else self.value
        return (type(self.value), value, self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, str):
            return "'" + self.value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "'"
        if isinstance(self.value, bytes):
            return f"X'{self.value.hex().upper()}'"
        if self.type in _OF_TIME and type(self.value) is int:
            keyword, unit, zone = _OF_TIME[self.type]
            shown = str(np.datetime64(self.value, unit)).replace("T", " ").removesuffix(".000000")
            return f"{keyword} '{shown}{zone}'"
        text = str(self.value)
        return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True, repr=False)
class Call(Predicate):
    """Any function or UDF: ``name(args)``.

    ``implementation`` identifies the function: the Catalyst class, or ``python:module.name#digest`` for a Python UDF.
    ``flags`` are its further settings in order (ANSI mode, time zone, ...), as text.
    """

    name: str
    args: tuple[Predicate, ...]
    implementation: str | None = None
    flags: tuple[str, ...] = ()
    type: str | None = None

    def pieces(self) -> Sequence[str | Predicate]:
        """Return an operator between its operands, or a name with its arguments in parentheses."""
        match self.name, self.args:
            case ("getarrayitem" | "getmapvalue", (values, key)):
                return (values, "[", key, "]")
            case ("getfield", (record, Literal(str() as field))):
                return (record, f".{field}")
            case ("lambdafunction", (body, *variables)):
                return ("(", *_join_parts(", ", variables), ") -> ", body)
            case ("namedlambdavariable", ()) if len(self.flags) == 2:  # the name is derived from depth and position
                return (f"{'xyz'[int(self.flags[1])]}{int(self.flags[0]) or ''}",)
            case (operator, (left, right)) if not operator[:1].isalpha():
                return ("(", left, f" {operator} ", right, ")")
        return (f"{self.name}(", *_join_parts(", ", self.args), ")")


@dataclass(frozen=True, slots=True, repr=False)
class Cast(Predicate):
    """``CAST(child AS type)``; ``ansi`` casts throw where others return NULL; ``zone`` if relevant.

    ``tries`` is True for ``TRY_CAST``: NULL where an ANSI cast throws and where a non-ANSI cast may overflow.
    """

    child: Predicate
    type: str
    source: str | None = None
    ansi: bool = False
    zone: str | None = None
    tries: bool = False

    def pieces(self) -> Sequence[str | Predicate]:
        """Return the text of the cast and its child."""
        return (f"{'TRY_' * self.tries}CAST(", self.child, f" AS {self.type})")


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(_BooleanVertex):
    """``left op right`` with op one of ``= <=> < <= > >=``; ``<>`` is a :class:`Not`."""

    op: str
    left: Predicate
    right: Predicate
    form = "{left} {op} {right}"


@dataclass(frozen=True, slots=True, repr=False)
class In(_BooleanVertex):
    """``child IN (values)`` with literals, including NULL."""

    child: Predicate
    values: tuple[Literal, ...]

    def pieces(self) -> Sequence[str | Predicate]:
        """Return the text of the list, with up to ten values."""
        shown = ", ".join(map(str, self.values[:10])) + (", ..." if len(self.values) > 10 else "")
        return (self.child, f" IN ({shown})")


@dataclass(frozen=True, slots=True, repr=False)
class Like(_BooleanVertex):
    """``child LIKE pattern ESCAPE escape``."""

    child: Predicate
    pattern: str
    escape: str = "\\"
    form = "{child} LIKE '{pattern}'"


@dataclass(frozen=True, slots=True, repr=False)
class _Text(_BooleanVertex):
    child: Predicate
    text: str


class StartsWith(_Text):
    """``child LIKE 'text%'``."""

    form = "{child} LIKE '{text}%'"


class EndsWith(_Text):
    """``child LIKE '%text'``."""

    form = "{child} LIKE '%{text}'"


class Contains(_Text):
    """``child LIKE '%text%'``."""

    form = "{child} LIKE '%{text}%'"


@dataclass(frozen=True, slots=True, repr=False)
class IsNull(_BooleanVertex):
    """``child IS NULL``."""

    child: Predicate
    form = "{child} IS NULL"


@dataclass(frozen=True, slots=True, repr=False)
class _Joined(_BooleanVertex):
    children: tuple[Predicate, ...]
    word: ClassVar[str]

    def pieces(self) -> Sequence[str | Predicate]:
        """Return the members separated by AND or OR, in parentheses."""
        return ("(", *_join_parts(self.word, self.children), ")")


class And(_Joined):
    """The AND of its children, in SQL's three-valued logic."""

    word = " AND "


class Or(_Joined):
    """The OR of its children, in SQL's three-valued logic."""

    word = " OR "


@dataclass(frozen=True, slots=True, repr=False)
class Not(_BooleanVertex):
    """NOT child: NULL stays NULL."""

    child: Predicate

    def pieces(self) -> Sequence[str | Predicate]:
        """Return the text of the negation and its child."""
        match self.child:
            case IsNull(child):
                return (child, " IS NOT NULL")
            case Comparison("=", left, right):
                return (left, " <> ", right)
        return ("NOT ", self.child)


@dataclass(frozen=True, slots=True, repr=False)
class Opaque(Predicate):
    """An expression that is not translated, with the columns it reads; it keeps every file."""

    text: str
    columns: tuple[str, ...] = ()
    renamed: bool = False  # for a whole column with fields that have other names in the files
    type = None
    form = "{text}"


TRUE, FALSE = Literal(True, "boolean"), Literal(False, "boolean")

FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The equivalent operator when the operands are exchanged."""
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def children(node: Predicate) -> tuple[Predicate, ...]:
    """Return the child vertices, without the values of an :class:`In`: there may be a million.

    >>> children(Comparison("=", Column("a"), Literal(1)))
    (a, 1)
    """
    kind: Any = type(node)
    found: list[Predicate] = []
    for name in _names(kind):
        value = getattr(node, name)
        if isinstance(value, Predicate):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend([part for part in value if isinstance(part, Predicate)])
    return tuple(found)


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a vertex type that may contain vertices."""
    without = ("str", "str | None", "bool", "tuple[str, ...]", "Any", "tuple[Literal, ...]")
    return tuple(field.name for field in fields(kind) if field.type not in without)


def walk(node: Predicate) -> Iterator[Predicate]:
    """Iterate over a vertex and its descendants, parents first, without recursion."""
    waiting = [node]
    while waiting:
        vertex = waiting.pop()
        yield vertex
        if below := children(vertex):
            waiting.extend(reversed(below))


def columns_of(*nodes: Predicate) -> frozenset[str]:
    """Return the names of all columns that some expressions read.

    >>> sorted(columns_of(IsNull(Column("a")), Opaque("f(b)", ("b",))))
    ['a', 'b']
    """
    names: set[str] = set()
    for node in nodes:
        for vertex in walk(node):
            if isinstance(vertex, Column):
                names.add(vertex.name)
            elif isinstance(vertex, Opaque):
                names.update(vertex.columns)
    return frozenset(names)


def transform(node: Predicate, change: Callable[[Predicate], Predicate]) -> Predicate:
    """Apply ``change`` to every vertex, children first; nested AND and OR become flat.

    >>> transform(Not(Column("a")), lambda v: Column("b") if v == Column("a") else v)
    NOT b
    """
    done: dict[int, Predicate] = {}
    waiting: list[tuple[Predicate, Predicate | None]] = [(node, None)]
    while waiting:
        vertex, form = waiting.pop()
        if form is not None:
            done[id(vertex)] = change(_rebuilt(form, done))
        elif id(vertex) not in done:
            form = _flat(vertex)
            waiting.append((vertex, form))
            waiting.extend((child, None) for child in children(form))
    return done[id(node)]


def _rebuilt(node: Predicate, done: dict[int, Predicate]) -> Predicate:
    """Return the vertex with its children replaced by their results."""
    if all(done[id(child)] is child for child in children(node)):
        return node
    kind: Any = type(node)
    changed: dict[str, Any] = {}
    for name in _names(kind):
        value = getattr(node, name)
        if isinstance(value, Predicate):
            changed[name] = done[id(value)]
        elif isinstance(value, tuple):
            changed[name] = tuple(done[id(v)] if isinstance(v, Predicate) else v for v in value)
    return replace(node, **changed)  # type: ignore[type-var]


def normalise(node: Predicate) -> Predicate:
    """Return the predicate in the canonical form that indexes and mappings match.

    A single literal is on the right. Nested AND and OR are flattened, and double negations removed. The negation of an
    order comparison is the opposite comparison (this is exact: Spark's order is total, including NaN). Comparisons of a
    condition with TRUE or FALSE are replaced by the condition or its negation.

    >>> normalise(Not(Comparison("<", Column("a"), Literal(1))))
    a >= 1
    >>> normalise(Comparison("=", IsNull(Column("a")), FALSE))
    a IS NOT NULL
    >>> normalise(And((IsNull(Column("a")), And((IsNull(Column("b")), IsNull(Column("c")))))))
    (a IS NULL AND b IS NULL AND c IS NULL)
    """
    return transform(node, _normalise_vertex)


def _normalise_vertex(node: Predicate) -> Predicate:
    match node:
        case Comparison(op, Literal() as left, right) if not isinstance(right, Literal):
            return _normalise_vertex(Comparison(FLIPPED[op], right, left))
        case Comparison("=", _BooleanVertex() | Call(type="boolean") as condition, Literal(bool() as value)):
            return condition if value else _normalise_vertex(Not(condition))
        case Comparison("<=>", left, Literal(None)):
            return IsNull(left)
        case Not(Not(child)):
            return child
        case Not(Comparison(op, left, right)) if op in NEGATED:
            return Comparison(NEGATED[op], left, right)
        case Not(Literal(bool() as value)):
            return FALSE if value else TRUE
    return _flat(node)


def _flat(node: Predicate) -> Predicate:
    """Flatten nested ANDs or ORs of the same kind; an AND or OR of one child becomes the child."""
    if not isinstance(node, _Joined):
        return node
    kind = type(node)
    flat: list[Predicate] = []
    waiting: list[Predicate] = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is kind:
            waiting.extend(reversed(children(part)))
        else:
            flat.append(part)
    if len(flat) == len(node.children) != 1:
        return node
    return flat[0] if len(flat) == 1 else kind(tuple(flat))
