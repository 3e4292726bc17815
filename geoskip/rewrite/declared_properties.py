"""Conditions that follow from declared properties of a function (:func:`geoskip.declare`).

*Inverse*: ``inverse(f(x)) == x`` for every x, so ``f(x) = 5`` implies ``x = inverse(5)``, whatever index x has.

*Null in, null out*: every condition that needs a value of f needs values of all of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from geoskip.bounds.monotone import THROUGH_ARROW, physical_value, python_value
from geoskip.predicates import And, Call, Comparison, In, IsNull, Literal, Not, Or, Predicate, StartsWith
from geoskip.registry import current

__all__ = ["invert", "need_arguments"]


def invert(node: Predicate) -> Predicate | None:
    """Return the condition on x that ``f(x) = 5`` or ``f(x) IN (5, 6)`` implies by f's inverse.

    >>> from geoskip.predicates import Column
    >>> from geoskip.registry import declare, mappings
    >>> with mappings():
    ...     _ = declare("plus_one", inverse=lambda y: y - 1, null_in_null_out=True)
    ...     invert(Comparison("=", Call("plus_one", (Column("x", "int"),), type="int"), Literal(5, "int")))
    x IN (4)
    """
    match node:
        case Comparison("=", Call(_, (x,)) as call, Literal() as literal):
            literals: Sequence[Literal] = (literal,)
        case In(Call(_, (x,)) as call, literals):
            pass
        case _:
            return None
    said = current().properties_of(call)
    kind = x.type
    if said is None or said.inverse is None or kind is None or call.type is None or call.type == "float":
        return None
    values = []
    if any(literal.value is None for literal in literals) or (kind == "bigint" and call.flags[:1] == THROUGH_ARROW):
        return None
    for literal in literals:
        value = physical_value(said.inverse(python_value(literal.value, call.type)), kind)
        if value is None:
            return None
        values.append(Literal(value, kind))
    found = In(x, tuple(values))
    return found if said.null_in_null_out else Or((found, IsNull(x)))


def need_arguments(node: Predicate) -> Predicate | None:
    """Return ``x IS NOT NULL`` for arguments of null-in-null-out functions whose value must not be NULL."""
    match node:
        case Not(IsNull(Call() as call)) | Not(Call() as call) | (Call() as call):
            calls = [call]
        case Comparison(_, left, right) | Not(Comparison("=" | "<" | "<=" | ">" | ">=", left, right)):
            plain = isinstance(right, Literal) and right.value is not None
            whole = not isinstance(node, Comparison) or node.op != "<=>" or plain
            calls = [side for side in (left, right) if isinstance(side, Call)] if whole else []
        case (
            In(Call() as call) | Not(In(Call() as call)) | StartsWith(Call() as call) | Not(StartsWith(Call() as call))
        ):
            calls = [call]
        case _:
            return None
    scope = current()
    strict = [call for call in calls if (said := scope.properties_of(call)) is not None and said.null_in_null_out]
    needed = tuple(Not(IsNull(x)) for call in strict for x in call.args if not isinstance(x, Literal))
    return And(needed) if needed else None
