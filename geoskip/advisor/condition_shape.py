"""The shape of a condition: its text with a placeholder for each literal.

Nothing of a value is in it: only names of columns and functions, types, operators and SQL's words are written, each of
them by a case of its own, and what is not known is written by the columns that it reads.
"""

from __future__ import annotations

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
)

__all__ = ["shape_of"]

_TOO_DEEP = "a condition that is nested too deeply"


def shape_of(condition: Predicate) -> str:
    """Text of a condition with a ``?`` and its type for each literal, and one for those of a list.

    The members of AND and OR are sorted, each different one once: Spark writes them in one order or another.

    >>> temp, city = Column("temp", "double"), Column("city", "string")
    >>> hot = Comparison(">", Call("abs", (temp,)), Literal(30.5, "double"))
    >>> shape_of(And((hot, In(city, (Literal("Bonn", "string"), Literal("Aachen", "string"))))))
    'abs(temp) > ?double AND city IN (?string)'
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
            text = (" AND " if isinstance(node, And) else " OR ").join(sorted(set(map(_shape, parts))))
            return text if outermost or len(parts) == 1 else f"({text})"
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
            return f"{_shape(child)} LIKE '{node.form.format('?')}'"
        case Cast(child, kind):
            return f"{'TRY_' * node.tries}CAST({_shape(child)} AS {kind})"
        case Call(name, (left, right)) if not name[:1].isalpha():
            return f"({_shape(left)} {name} {_shape(right)})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(_shape, arguments))})"
        case Opaque(columns=columns):
            return f"unknown({', '.join(columns)})"
    return "unknown()"


def _placeholder(literal: Literal) -> str:
    return f"?{literal.type or ''}"
