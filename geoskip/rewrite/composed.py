"""Rewrite conditions on choices, extremes, maps and structs as conditions on their parts.

``if coalesce greatest least`` and maps::

    if(a > 0, x, y) = 5          if(a > 0, x = 5, y = 5)
    coalesce(x, y) < 5           coalesce(x < 5, y < 5)
    greatest(x, y) < 5           coalesce(x < 5, TRUE) AND coalesce(y < 5, TRUE)     NULLs are skipped
    least(x, y) < 5              coalesce(x < 5, FALSE) OR coalesce(y < 5, FALSE)
    map('a', 1, 'b', 2)[s] = 1   s IN ('a')
    coalesce(x, y) IS NULL       x IS NULL AND y IS NULL

Each condition is TRUE where the left one is TRUE, and FALSE where it is FALSE; where the left one is NULL, it may have
any value. Verdicts of TRUE and FALSE need no more (:mod:`geoskip.planner`). The rules apply only to Spark's own
functions.

Structs: ``(day, id) IN ((d1, 1), (d2, 2))``::

    struct(a, b) = struct(1, 2)          a <=> 1 AND b <=> 2
    struct(a, b) > struct(1, 2)          coalesce(a > 1, FALSE) OR (a <=> 1 AND coalesce(b > 2, FALSE))
    struct(a, b) <= struct(1, 2)         coalesce(a < 1, TRUE) OR (a <=> 1 AND coalesce(b <= 2, TRUE))

Spark compares structs field by field; NULL equals NULL and is below every value. A struct created from columns is never
NULL, so neither is the comparison: each condition is TRUE and FALSE where the left one is. A cast of a struct is the
cast of its fields. A column of structs may be NULL, and then its fields are NULL: where the left comparison is NULL,
the condition may have any value. ``<=>`` is FALSE for a NULL struct, and so is the condition if a field is compared
with a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from geoskip.conditions import OPERATORS
from geoskip.predicates import (
    FALSE,
    FLIPPED,
    TRUE,
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
    Or,
    Predicate,
    StartsWith,
)
from geoskip.registry.functions import CATALYST
from geoskip.types import sql_type

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
MOST_RECORDS = 100
_WRITTEN = "a struct of literals"
_MADE = CATALYST + "CreateNamedStruct"
_PLAIN_NAME = re.compile(r"[A-Za-z]\w*")


def is_builtin(call: Call) -> bool:
    """Test for Spark's own function; a user's function may be registered under any name."""
    kinds = _CLASSES.get(call.name.lower(), ())
    return call.implementation in [CATALYST + kind for kind in kinds] or (
        call.implementation is None and call.name in ("if", "coalesce")
    )


def choice(node: Predicate) -> Predicate | None:
    """Return the condition on the values, or None for other conditions.

    >>> x, y = Column("x", "int"), Column("y", "int")
    >>> print(choice(Comparison("<", Call("coalesce", (x, y, Literal(9, "int"))), Literal(5, "int"))))
    coalesce(x < 5, y < 5, False)
    """
    match node:
        case Comparison(_, Call() as call, Literal(value)) if value is not None and is_builtin(call):
            return _comparison(node, call)
        case In(Call() as call, values) if values and all(v.value is not None for v in values) and is_builtin(call):
            return _membership(node, call)
        case (
            StartsWith(Call() as call) | EndsWith(Call() as call) | Contains(Call() as call) | Like(Call() as call)
        ) if is_builtin(call):
            return _test_branches(call, lambda part: _null_outcome(part) or replace(node, child=part))
        case IsNull(Call("if", (test, *parts)) as call) if is_builtin(call):
            return _if(call, test, [_is_null(part) for part in parts])
        case IsNull(Call("coalesce" | "greatest" | "least", parts) as call) if is_builtin(call):
            return And(tuple(map(_is_null, parts)))
    return None


def _comparison(node: Comparison, call: Call) -> Predicate | None:
    op, literal = node.op, node.right
    assert isinstance(literal, Literal)

    def test(part: Predicate) -> Predicate:
        return _null_outcome(part) or _holds(op, part, literal)

    match call.name.lower():
        case "if" | "coalesce" if op != "<=>":
            return _test_branches(call, test)
        case "if" | "coalesce":  # TRUE for equal values, FALSE otherwise
            equal = choice(replace(node, op="="))
            return None if equal is None else Call("coalesce", (equal, FALSE), type="boolean")
        case "greatest" | "least":
            return _extreme(op, call, literal)
    found = _map_lookup(call, lambda value: _truth(op, value, literal))
    return Call("coalesce", (found, FALSE), type="boolean") if op == "<=>" and found is not None else found


def _membership(node: In, call: Call) -> Predicate | None:
    match call.name.lower():
        case "if" | "coalesce":
            return _test_branches(call, lambda part: _null_outcome(part) or In(part, node.values))
        case "greatest" | "least":
            single = tuple(_extreme("=", call, value) for value in node.values[: _MOST + 1])
            return Or(single) if len(single) <= _MOST else None

    def is_member(value: Literal) -> bool | None:
        truths = [_truth("=", value, other) for other in node.values]
        return True if True in truths else None if None in truths else False

    return _map_lookup(call, is_member)


def _test_branches(call: Call, test: Test) -> Predicate | None:
    match call:
        case Call("if", (condition, *parts)):
            return _if(call, condition, list(map(test, parts)))
        case Call("coalesce", parts):
            return Call("coalesce", tuple(map(test, parts)), call.implementation, type="boolean")
    return None


def _if(call: Call, condition: Predicate, parts: list[Predicate]) -> Predicate:
    return Call("if", (condition, *parts), call.implementation, type="boolean")


def _extreme(op: str, call: Call, literal: Literal) -> Predicate:
    """Compare the greatest or least value: if one operator holds for all values, the other holds for one."""
    if op in ("=", "<=>"):
        return And((_extreme("<=", call, literal), _extreme(">=", call, literal)))
    of_all = (op[0] == "<") == (call.name.lower() == "greatest")
    neutral = TRUE if of_all else FALSE
    tests = tuple(
        Call("coalesce", (_null_outcome(part) or _holds(op, part, literal), neutral), type="boolean")
        for part in call.args
    )
    return And(tests) if of_all else Or(tests)


def _map_lookup(call: Call, test: Callable[[Literal], bool | None]) -> Predicate | None:
    """Rewrite ``map(k, v, ...)[x]`` to x IN the keys of passing values; None if a test is undecided."""
    match call.args:
        case (Literal(tuple() as entries, kind), key, *_) if sql_type(kind).kind == "map":
            key_type, value_type = sql_type(kind).key.name, sql_type(kind).value.name
            found = [
                (k, test(Literal(v, value_type)) if v is not None else False) for k, v in entries[: _MOST_KEYS + 1]
            ]
            if len(found) <= _MOST_KEYS and all(passes is not None for _, passes in found):
                return In(key, tuple(Literal(k, key_type) for k, passes in found if passes))
    return None


def _null_outcome(part: Predicate) -> Predicate | None:
    return Literal(None, "boolean") if isinstance(part, Literal) and part.value is None else None


def _is_null(part: Predicate) -> Predicate:
    return (TRUE if part.value is None else FALSE) if isinstance(part, Literal) else IsNull(part)


def _holds(op: str, part: Predicate, literal: Literal) -> Predicate:
    """Create a comparison, or its result if both sides are literals of one type."""
    truth = _truth(op, part, literal) if isinstance(part, Literal) else None
    return Comparison(op, part, literal) if truth is None else TRUE if truth else FALSE


def _truth(op: str, left: Literal, right: Literal) -> bool | None:
    """Evaluate ``left op right`` in Spark's order; None for values that are not compared here.

    >>> _truth("<", Literal(1.0, "double"), Literal(float("nan"), "double")), _truth("=", Literal(1), Literal("1"))
    (True, None)
    """
    if left.type != right.type or type(left.value) is not type(right.value):
        return None
    keys = [_key(side.value) for side in (left, right)]
    return None if None in keys else bool(OPERATORS["=" if op == "<=>" else op](*keys))


def _key(value: Any) -> Any:
    match value:
        case float():
            return (value != value, 0.0 if value != value else value)
        case str():
            return value.encode("utf-8", "surrogateescape")
        case bool() | int() | Decimal() | bytes():
            return value
    return None


# ---- structs


def record(values: tuple[Predicate, ...], kind: str) -> Call:
    """Create a struct of literals."""
    return Call("struct", values, _WRITTEN, (), kind)


def is_record(node: Predicate) -> bool:
    """Test for a struct of literals."""
    return isinstance(node, Call) and node.implementation == _WRITTEN


def struct(node: Predicate) -> Predicate | None:
    """Return the condition on the fields, or None for other conditions.

    >>> names = (Literal("a", "string"), Literal("b", "string"))
    >>> a, b = Column("a", "int"), Column("b", "int")
    >>> made = Call("named_struct", (names[0], a, names[1], b), _MADE)
    >>> pair = record((Literal(1, "int"), Literal(None, "int")), "struct<a:int,b:int>")
    >>> print(struct(Comparison("=", made, pair)))
    (a <=> 1 AND b IS NULL)
    """
    match node:
        case Comparison(op, left, right) if is_record(left) and not is_record(right):
            return struct(Comparison(FLIPPED[op], right, left))
        case Comparison(op, left, Call(_, values)) if is_record(node.right):
            fields = _fields(left, values) or _of_column(left, node.right)
            if fields and not (op == "<=>" and isinstance(left, Column) and all(v.value is None for _, v in fields)):
                if op in ("=", "<=>"):
                    return And(tuple(_null_safe_equal(part, value) for part, value in fields))
                return _struct_comparison(op, fields)
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
    """The fields of a struct column, if both sides have one type and all fields plain types; else None."""
    if not isinstance(left, Column) or not isinstance(right, Call) or left.type != right.type:
        return None
    parts = sql_type(left.type).fields
    fields: Fields = [
        (Column(f"{left.name}.{name}", kind.name), value)
        for (name, kind), value in zip(parts, right.args, strict=False)
        if isinstance(value, Literal) and _PLAIN_NAME.fullmatch(name) and kind.is_plain
    ]
    return fields if len(fields) == len(parts) else None


def _null_safe_equal(part: Predicate, value: Literal) -> Predicate:
    return IsNull(part) if value.value is None else Comparison("<=>", part, value)


def _struct_comparison(op: str, fields: Fields) -> Predicate:
    *others, last = fields
    found = _field_comparison(op, *last)
    for part, value in reversed(others):
        found = Or((_field_comparison(op[0], part, value), And((_null_safe_equal(part, value), found))))
    return found


def _field_comparison(op: str, part: Predicate, value: Literal) -> Predicate:
    """Compare a field with a literal; NULL is below every value."""
    if value.value is None:
        nothing = {"<": FALSE, "<=": IsNull(part), ">": Not(IsNull(part)), ">=": TRUE}
        return nothing[op]
    return Call("coalesce", (Comparison(op, part, value), TRUE if op[0] == "<" else FALSE), type="boolean")
