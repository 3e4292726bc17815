"""SQL text of translated conditions: names of their parts, and shapes without literals.

Catalyst's trees lack the text that they were parsed from, and the optimizer has changed them. The text written here
parses to the same tree in most cases; callers that name an index by it let Spark analyse the text, and compare the
trees.

The log of a workload keeps shapes, so these must not reveal values: only names of columns and functions, types,
operators and SQL keywords are written, each kind of vertex by its own case. An unknown vertex is written as the columns
that it reads.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    columns_of,
)
from geoskip.types import sql_type

__all__ = ["shape_of", "sql_text"]

_SUFFIXES = {"tinyint": "Y", "smallint": "S", "bigint": "L", "double": "D", "float": "F"}
_OPERATORS = ("+", "-", "*", "/", "%")
_PRESENT = " IS NOT NULL"
_TOO_DEEP = "a condition that is nested too deeply"


def sql_text(node: Predicate) -> str | None:
    """Return SQL text equivalent to an expression, or None.

    >>> day = Column("day", "date")
    >>> sql_text(Call("month", (day,))), sql_text(Cast(Column("n", "int"), "double"))
    ('month(day)', 'CAST(n AS double)')
    >>> sql_text(Comparison(">", Call("+", (Column("n", "int"), Literal(1, "int"))), Literal(2.5, "double")))
    '((n + 1) > 2.5D)'
    >>> x = Call("namedlambdavariable", (), flags=("0", "0"))
    >>> [sql_text(Call("lambdafunction", (Comparison(">", x, Column(name)), x))) for name in ("n", "x")]
    ['(x) -> (x > n)', None]
    """
    match node:
        case Column(name):
            return name
        case Literal():
            return _constant(node)
        case Cast(child, kind):
            return _fill(f"{'TRY_' * node.tries}CAST({{}} AS {kind})", child)
        case Call(name, (left, right)) if name in _OPERATORS:
            return _fill(f"({{}} {name} {{}})", left, right)
        case Call("lambdafunction", (body, *variables)) if columns_of(body).isdisjoint(map(str, variables)):
            return _fill(f"({', '.join(map(str, variables))}) -> {{}}", body)
        case Call("lambdafunction"):  # a column has the name of a variable
            return None
        case Call("namedlambdavariable"):
            return str(node)
        case Call("staticinvoke" | "invoke" | "getarraystructfields"):  # not SQL functions
            return None
        case Call("getarrayitem", (child, key), flags=(*_, "false")):  # tags[0] too, if ANSI mode is off
            return _fill("get({}, {})", child, key)
        case Call("getarrayitem" | "getmapvalue", (child, key)):
            return _fill("{}[{}]", child, key)
        case Call("element_at", (Call("stringsplitsql", parts), number)):
            return _fill("split_part({}, {}, {})", *parts, number)
        case Call("gettimestamp", parts):
            return _fill(f"to_timestamp({', '.join(['{}'] * len(parts))})", *parts)
        case Call("getfield", (child, Literal(str() as field))):
            return _fill("{}.`" + field.replace("`", "``").replace("{", "{{").replace("}", "}}") + "`", child)
        case Call(name, args) if name.replace("_", "a").replace(".", "a").isalnum():
            return _fill(f"{name}({', '.join(['{}'] * len(args))})", *args)
        case Comparison(op, left, right):
            return _fill(f"({{}} {op} {{}})", left, right)
        case In(child, values):
            return _fill(f"({{}} IN ({', '.join(['{}'] * len(values))}))", child, *values)
        case IsNull(child):
            return _fill("({} IS NULL)", child)
        case Not(child):
            return _fill("(NOT {})", child)
        case And(parts) | Or(parts):
            return _fill("(" + (" AND " if isinstance(node, And) else " OR ").join(["{}"] * len(parts)) + ")", *parts)
        case Like(child, pattern, escape):
            return _fill("({} LIKE {} ESCAPE {})", child, Literal(pattern, "string"), Literal(escape, "string"))
        case StartsWith(child, text) | EndsWith(child, text) | Contains(child, text):
            return _fill(f"{type(node).__name__.lower()}({{}}, {{}})", child, Literal(text, "string"))
    return None


def _fill(form: str, *parts: Predicate) -> str | None:
    """Insert the texts of parts into a format string; None if a part has no text."""
    texts = [sql_text(part) for part in parts]
    return None if None in texts else form.format(*texts)


def _constant(node: Literal) -> str | None:
    """Return a literal as SQL; None for values without a SQL literal, such as geometries."""
    kind = sql_type(node.type)
    match node.value:
        case None:
            return f"CAST(NULL AS {node.type})" if node.type else None
        case bool() as value:
            return str(value).upper()
        case int() as value if kind.kind == "date":
            return f"DATE '{np.datetime64(value, 'D')}'"
        case int() as value if kind.kind in ("timestamp", "timestamp_ntz"):
            zone = "Z" if kind.kind == "timestamp" else ""
            return f"{kind.kind.upper()} '{str(np.datetime64(value, 'us')).replace('T', ' ')}{zone}'"
        case int() as value if kind.is_integral:
            return f"{value}{_SUFFIXES.get(kind.kind, '')}"
        case float() as value if kind.is_floating:
            return f"{value!r}{_SUFFIXES[kind.kind]}" if math.isfinite(value) else f"{kind.kind}('{value}')"
        case Decimal() as value:
            return f"CAST({value:f}BD AS {node.type})"
        case bytes() as value if kind.kind == "binary":
            return f"X'{value.hex().upper()}'"
        case str() as value if kind.is_text:
            return _quote(value)
        case tuple() as values if kind.kind == "array":
            parts = (Literal(value, kind.element.name) for value in values)
            return _fill(f"CAST(array({', '.join(['{}'] * len(values))}) AS {node.type})", *parts)
    return None


def _quote(text: str) -> str:
    r"""Quote a text as a SQL literal.

    >>> print(_quote("it's"), _quote(r"(\d+)'"), _quote(r"\d"))
    "it's" r"(\d+)'" r'\d'
    """
    raw = "r" if "\\" in text else ""
    if "'" in text and '"' in text:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f'{raw}"{text}"' if "'" in text else f"{raw}'{text}'"


def shape_of(condition: Predicate) -> str:
    """Return a condition as text with ``?`` and a type for each literal, and only one for a list.

    The members of AND and OR are sorted and deduplicated, since their order in Spark's plans varies. Tests for NULL,
    which Spark adds, come last.

    >>> temp, city = Column("temp", "double"), Column("city", "string")
    >>> hot = Comparison(">", Call("abs", (temp,)), Literal(30.5, "double"))
    >>> shape_of(And((hot, In(city, (Literal("Bonn", "string"), Literal("Aachen", "string"))))))
    'abs(temp) > ?double AND city IN (?string)'
    >>> shape_of(And((Not(IsNull(city)), hot)))
    'abs(temp) > ?double AND city IS NOT NULL'
    >>> shape_of(Or((StartsWith(city, "B"), Not(Opaque("secret(7)", ("temp",))))))
    "NOT unknown(temp) OR city LIKE '?%'"
    """
    try:
        return _shape(condition, outermost=True)
    except RecursionError:
        return _TOO_DEEP


def _shape(node: Predicate, *, outermost: bool = False) -> str:
    match node:
        case Column(name):
            return name
        case Literal():
            return _placeholder(node)
        case And(parts) | Or(parts):
            texts = sorted(set(map(_shape, parts)), key=lambda text: (text.endswith(_PRESENT), text))
            text = (" AND " if isinstance(node, And) else " OR ").join(texts)
            return text if outermost or len(parts) == 1 else f"({text})"
        case Not(IsNull(child)):
            return f"{_shape(child)}{_PRESENT}"
        case Not(Comparison("=", left, right)):
            return f"{_shape(left)} <> {_shape(right)}"
        case Not(child):
            return f"NOT {_shape(child)}"
        case IsNull(child):
            return f"{_shape(child)} IS NULL"
        case Comparison(op, left, right):
            return f"{_shape(left)} {op} {_shape(right)}"
        case In(child, values):
            return f"{_shape(child)} IN ({', '.join(dict.fromkeys(map(_placeholder, values)))})"
        case Like(child):
            return f"{_shape(child)} LIKE ?string"
        case StartsWith(child) | EndsWith(child) | Contains(child):
            return node.form.format(child=_shape(child), text="?")
        case Cast(child, kind):
            return f"{'TRY_' * node.tries}CAST({_shape(child)} AS {_type(kind)})"
        case Call(name, (left, right)) if not name[:1].isalpha():
            return f"({_shape(left)} {name} {_shape(right)})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(_shape, arguments))})"
        case Opaque(columns=columns):
            return f"unknown({', '.join(columns)})"
    return "unknown()"


def _placeholder(literal: Literal) -> str:
    return f"?{_type(literal.type or '')}"


def _type(text: str) -> str:
    """Return a type without the fields of structs: a query may choose their names freely.

    >>> _type("array<struct<secret:int>>"), _type("map<string,int>")
    ('array<struct>', 'map<string,int>')
    """
    before, found, _ = text.partition("struct<")
    return f"{before}struct{'>' * before.count('<')}" if found else text
