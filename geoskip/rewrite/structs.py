"""Rewrite comparisons of structs as conditions on their fields: ``(day, id) IN ((d1, 1), (d2, 2))``.

::

    struct(a, b) = struct(1, 2)          a <=> 1 AND b <=> 2
    struct(a, b) > struct(1, 2)          coalesce(a > 1, FALSE) OR (a <=> 1 AND coalesce(b > 2, FALSE))
    struct(a, b) <= struct(1, 2)         coalesce(a < 1, TRUE) OR (a <=> 1 AND coalesce(b <= 2, TRUE))

Spark compares structs field by field, NULL being equal to NULL and below every value. A struct that is made of columns
is never NULL, so neither is the comparison: each condition is TRUE and FALSE where the left one is. A cast of a struct
is the cast of its fields. A column of structs may be NULL, and its fields then are: where the left one is NULL, the
condition may be anything. But ``<=>`` is FALSE of a NULL, as the condition is where a field is compared with a value.
"""

from __future__ import annotations

import re

from geoskip.predicates import FALSE, TRUE, And, Call, Cast, Column, Comparison, IsNull, Literal, Not, Or, Predicate
from geoskip.types import sql_type

__all__ = ["MOST_RECORDS", "rewrite", "is_record", "record"]

MOST_RECORDS = 100
_WRITTEN = "a struct of literals"
_MADE = "org.apache.spark.sql.catalyst.expressions.CreateNamedStruct"
_PLAIN_NAME = re.compile(r"[A-Za-z]\w*")
_FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def record(values: tuple[Predicate, ...], kind: str) -> Call:
    """A struct of literals."""
    return Call("struct", values, _WRITTEN, (), kind)


def is_record(node: Predicate) -> bool:
    """True for a struct of literals."""
    return isinstance(node, Call) and node.implementation == _WRITTEN


def rewrite(node: Predicate) -> Predicate | None:
    """Return the condition on the fields, or None for other conditions.

    >>> names = (Literal("a", "string"), Literal("b", "string"))
    >>> a, b = Column("a", "int"), Column("b", "int")
    >>> made = Call("named_struct", (names[0], a, names[1], b), _MADE)
    >>> pair = record((Literal(1, "int"), Literal(None, "int")), "struct<a:int,b:int>")
    >>> print(rewrite(Comparison("=", made, pair)))
    (a <=> 1 AND b IS NULL)
    """
    match node:
        case Comparison(op, left, right) if is_record(left) and not is_record(right):
            return rewrite(Comparison(_FLIPPED[op], right, left))
        case Comparison(op, left, Call(_, values)) if is_record(node.right):
            fields = _fields(left, values) or _of_column(left, node.right)
            if fields and not (op == "<=>" and isinstance(left, Column) and all(v.value is None for _, v in fields)):
                return _equal(fields) if op in ("=", "<=>") else _ordered(op, fields)
    return None


Fields = list[tuple[Predicate, Literal]]


def _fields(left: Predicate, values: tuple[Predicate, ...]) -> Fields | None:
    """Pair the fields of a struct with literals; None if a field is not a plain value."""
    cast = left if isinstance(left, Cast) else None
    made = left if cast is None else cast.child
    if not isinstance(made, Call) or made.implementation != _MADE or (cast is not None and cast.tries):
        return None
    fields: Fields = []
    for part, value in zip(made.args[1::2], values, strict=True):
        kind, source = value.type, part.type
        if not (isinstance(value, Literal) and sql_type(kind).is_plain and sql_type(source).is_plain):
            return None
        if source != kind:
            if cast is None:
                return None
            part = Cast(part, kind or "", source, cast.ansi, cast.zone)
        fields.append((part, value))
    return fields


def _of_column(left: Predicate, right: Predicate) -> Fields | None:
    """The fields of a column of structs, where both are of one type and all fields of plain ones."""
    if not isinstance(left, Column) or not isinstance(right, Call) or left.type != right.type:
        return None
    parts = sql_type(left.type).fields
    fields: Fields = [
        (Column(f"{left.name}.{name}", kind.name), value)
        for (name, kind), value in zip(parts, right.args, strict=False)
        if isinstance(value, Literal) and _PLAIN_NAME.fullmatch(name) and kind.is_plain
    ]
    return fields if len(fields) == len(parts) else None


def _equal(fields: Fields) -> Predicate:
    return And(tuple(_same(part, value) for part, value in fields))


def _same(part: Predicate, value: Literal) -> Predicate:
    return IsNull(part) if value.value is None else Comparison("<=>", part, value)


def _ordered(op: str, fields: Fields) -> Predicate:
    *others, last = fields
    found = _before(op, *last)
    for part, value in reversed(others):
        found = Or((_before(op[0], part, value), And((_same(part, value), found))))
    return found


def _before(op: str, part: Predicate, value: Literal) -> Predicate:
    """NULL is below every value."""
    if value.value is None:
        nothing = {"<": FALSE, "<=": IsNull(part), ">": Not(IsNull(part)), ">=": TRUE}
        return nothing[op]
    return Call("coalesce", (Comparison(op, part, value), TRUE if op[0] == "<" else FALSE), type="boolean")
