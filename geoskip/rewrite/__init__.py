"""Rewrite rules, applied to a predicate before indexes and mappings.

:func:`canonical` passes the whole tree through four exact steps. Then :mod:`geoskip.planner` labels each vertex with
the clauses of indexes and mappings for

* the vertex itself;
* the condition that the first matching rule in :data:`EQUIVALENT` returns for it, which is TRUE and FALSE for the same
  rows as the vertex (where the vertex is NULL, the condition may have any value: verdicts of TRUE and FALSE need no
  more);
* each condition that a rule in :data:`IMPLIED` returns for it, which is TRUE for every row for which the vertex is
  TRUE.

Each rule states why it holds.

Declared properties (:func:`geoskip.declare`):

* *Inverse*: ``inverse(f(x)) == x`` for every x, so ``f(x) = 5`` implies ``x = inverse(5)``, for any index over x. If
  the globals that an inverse reads have changed since its declaration, the rule is not applied.
* *Null in, null out*: a condition that is never TRUE where f is NULL implies that f's arguments are not NULL.

Days: Spark rewrites ``to_date(s, 'yyyy-MM-dd') >= DATE'2024-04-01'`` and ``CAST(ts AS date) = ...`` to comparisons of
the timestamp itself, which an index over the day does not support. The day of a timestamp is
``floor((time + offset) / 24 h)``. In UTC and at a fixed offset it is monotone in the timestamp. In other zones the
offset is not known here, only that it lies within 18 hours of UTC, as in Java: ``x >= L`` implies that the day of x is
not before that of L at -18 hours, whatever the clock changes in between. The conditions hold for every row for which
the comparison is TRUE, and imply nothing about FALSE and NULL.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from geoskip.bounds.monotone import THROUGH_ARROW, physical_value, python_value
from geoskip.bounds.sort_keys import literal_text, physical
from geoskip.bounds.time_zones import has_fixed_zone
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    children,
    normalise,
    transform,
    walk,
)
from geoskip.registry import constant_name, current
from geoskip.registry.fingerprint import is_unchanged
from geoskip.rewrite import composed, formatted_values
from geoskip.types import SqlType, sql_type

if TYPE_CHECKING:
    from geoskip.rules import Deadline

_HOUR = 3_600_000_000
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::(\d\d))?$")
_FEWEST_EQUALITIES = 16


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
    if not is_unchanged(said.inverse):
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
    strict = [call for call in calls if _is_strict(call)]
    needed = tuple(Not(IsNull(x)) for call in strict for x in call.args if not isinstance(x, Literal))
    return And(needed) if needed else None


def days(node: Predicate, expressions: Sequence[Predicate]) -> Predicate | None:
    """Return the conditions on indexed days of a time that a comparison of the time implies, or None.

    Parameters
    ----------
    node
        A vertex; only comparisons of a time with a literal imply anything.
    expressions
        The indexed expressions; the days among them are the casts of the compared time to a date.

    >>> from geoskip.predicates import Column
    >>> ts = Column("ts", "timestamp")
    >>> noon = Comparison("<", ts, Literal(36 * 3_600_000_000, "timestamp"))
    >>> for zone in ("UTC", "+14:00", "America/New_York"):
    ...     print(days(noon, [Cast(ts, "date", "timestamp", zone=zone)]))
    CAST(ts AS date) <= DATE '1970-01-02'
    CAST(ts AS date) <= DATE '1970-01-03'
    CAST(ts AS date) <= DATE '1970-01-03'
    """
    match node:
        case Comparison("=" | "<=>" | "<" | "<=" | ">" | ">=" as op, child, Literal(value, kind)) if _is_time(kind):
            time = physical(value)
        case _:
            return None
    if isinstance(time, bool) or not isinstance(time, int):
        return None
    conditions: list[Predicate] = []
    for day in dict.fromkeys(expressions):
        if isinstance(day, Cast) and day.type == "date" and day.child == child:
            least, most = (0, 0) if kind == "timestamp_ntz" else _offsets(day.zone)
            if op not in ("<", "<="):
                conditions.append(Comparison(">=", day, Literal(_day(time + (op == ">") + least), "date")))
            if op not in (">", ">="):
                conditions.append(Comparison("<=", day, Literal(_day(time - (op == "<") + most), "date")))
    return normalise(And(tuple(conditions))) if conditions else None


def _is_time(kind: str | None) -> bool:
    return kind in ("timestamp", "timestamp_ntz")


def _day(time: int) -> int:
    return time // (24 * _HOUR)


def _offsets(zone: str | None) -> tuple[int, int]:
    """Least and greatest offset of a zone from UTC in microseconds."""
    if has_fixed_zone(zone):
        found = _OFFSET.match(zone or "")
        if found is None:
            return 0, 0
        ahead = (int(found[2]) * 60 + int(found[3] or 0)) * (_HOUR // 60) * (-1 if found[1] == "-" else 1)
        return ahead, ahead
    return -18 * _HOUR, 18 * _HOUR


def like_without_wildcards(node: Predicate) -> Predicate | None:
    """Return LIKE without wildcards as an equality, as Spark itself does for patterns without escapes.

    >>> like_without_wildcards(Like(Column("s"), "5!%", "!"))
    s = '5%'
    """
    match node:
        case Like(child, pattern, escape) if (text := literal_text(pattern, escape)) is not None:
            return Comparison("=", child, Literal(text, "string"))
    return None


EQUIVALENT: tuple[Callable[[Predicate], Predicate | None], ...] = (
    composed.choice,  # if(a > 0, x, y) = 5              if(a > 0, x = 5, y = 5)
    formatted_values.rewrite,  # CAST(n AS string) = '5'   n = 5
    composed.struct,  # struct(a, b) = struct(1, 2)      a <=> 1 AND b <=> 2
    like_without_wildcards,  # s LIKE 'a'                s = 'a'
)
"""Rules in the order in which they are tried; only the first that matches is used."""

DECLARED: tuple[Callable[[Predicate], Predicate | None], ...] = (
    invert,  # f(x) = 5     x IN (inverse(5))
    need_arguments,  # f(x) = 5     x IS NOT NULL
)
"""Rules for the properties that users declare (:func:`geoskip.declare`); they may call users' functions."""

IMPLIED: tuple[Callable[[Predicate, Sequence[Predicate]], Predicate | None], ...] = (
    days,  # ts >= TIMESTAMP '2024-04-01 12:00:00'     CAST(ts AS date) >= DATE '2024-04-01'
)
"""Rules that derive conditions on the indexed expressions; all that match are used, as are those of DECLARED."""


def canonical(
    predicate: Predicate,
    report: Callable[[str], None] = lambda text: None,
    watch: Deadline | None = None,
) -> Predicate:
    """Bring a predicate into the form that labelling expects.

    Parameters
    ----------
    predicate
        The condition of a query, as the engine gives it.
    report
        Receives a sentence for each constant that could not be evaluated.
    watch
        Limits the time of each evaluation of a constant.
    """
    folded = fold_constants(predicate, report=report, watch=watch)
    return gather_equalities(normalise(folded))


def equivalent(node: Predicate) -> Predicate | None:
    """Return the condition of the first matching rule in :data:`EQUIVALENT`, or None."""
    if not isinstance(node, Like) and all(isinstance(operand, Column | Literal) for operand in children(node)):
        return None  # the other rules need a call or a cast
    return next((found for rule in EQUIVALENT if (found := rule(node)) is not None), None)


def fold_constants(
    node: Predicate,
    *,
    report: Callable[[str], None] = lambda text: None,
    watch: Deadline | None = None,
) -> Predicate:
    """Evaluate calls over literals, as declared by :func:`~geoskip.registry.constant`.

    A function that is declared as null in, null out is NULL if one of its arguments is.

    Spark converts the arguments and results of Python functions: if the declared type is ``double``, 5 becomes NULL,
    and a ``date`` is passed as an object, not as a number of days. So calls of Python functions are not folded if an
    argument or the value would be converted.

    Parameters
    ----------
    node
        The predicate.
    report
        Receives a sentence for each call that could not be evaluated; the call stays.
    watch
        Limits the time of each call, and makes the running call visible to another thread.
    """
    scope = current()
    if not any(isinstance(vertex, Call) for vertex in walk(node)):
        return node

    def fold(vertex: Predicate) -> Predicate:
        match vertex:
            case Call(_, args) if any(isinstance(a, Literal) and a.value is None for a in args) and _is_strict(vertex):
                return Literal(None, vertex.type)
            case Call(name, args) if args and all(isinstance(a, Literal) for a in args):
                evaluate = scope.evaluator(vertex)
                if evaluate is None:
                    return vertex
                subject = constant_name(evaluate)
                if subject in scope.quarantine:
                    report(f"{subject} is left out: {scope.quarantine[subject]}")
                    return vertex
                values = [a.value for a in args if isinstance(a, Literal)]
                is_python = (vertex.implementation or "").startswith("python:")
                if is_python and not all(_is_given_as_it_is(sql_type(a.type)) for a in args):
                    return vertex
                try:
                    value = watch.call(subject, evaluate, *values) if watch else evaluate(*values)
                except BaseException as error:
                    report(f"{name} of these constants was not evaluated: {type(error).__name__}: {error}")
                    return vertex
                found = _literal(value, vertex.type)
                if is_python and not _is_taken_as_it_is(found.value, sql_type(found.type)):
                    report(f"{name} of these constants returned {type(value).__name__}, not a value of {found.type}")
                    return vertex
                return found
        return vertex

    return transform(node, fold)


def _is_strict(call: Call) -> bool:
    said = current().properties_of(call)
    return said is not None and bool(said.null_in_null_out)


def _literal(value: Any, kind: str | None) -> Literal:
    if isinstance(value, np.generic):  # NumPy's True is not Python's
        value = value.item()
    return value if isinstance(value, Literal) else Literal(value, kind)


def _is_given_as_it_is(kind: SqlType) -> bool:
    """Test whether Python functions receive values of a type in the form of literals, without conversion."""
    if not kind.kind:  # unknown, or a type without a kind here, such as time(6): its numbers are passed as times
        return not kind.name
    return kind.is_numeric or kind.kind in ("boolean", "string", "string collate", "binary", "geometry", "void")


def _is_taken_as_it_is(value: Any, kind: SqlType) -> bool:
    """Test whether a Python function may return a value for a type without conversion."""
    if value is None:
        return True
    if kind.is_integral:
        return type(value) is int and value in kind.values
    if kind.is_decimal:
        fits = type(value) is Decimal and value.is_finite() and abs(value) < 10 ** (kind.precision - kind.scale)
        return fits and (Fraction(value) * 10**kind.scale).denominator == 1
    match kind.kind:
        case "float":
            with np.errstate(over="ignore"):
                return type(value) is float and (value != value or float(np.float32(value)) == value)
        case "boolean" | "double" | "string" | "date":
            return type(value) is _RETURNED[kind.kind]
        case "array":
            return isinstance(value, list | tuple) and all(_is_taken_as_it_is(item, kind.element) for item in value)
        case "binary" | "geometry":
            return not isinstance(value, str)
        case "" if not kind.name:  # an unknown type
            return not isinstance(value, str)
    return False


_RETURNED = {"boolean": bool, "double": float, "string": str, "date": dt.date}


def gather_equalities(node: Predicate) -> Predicate:
    """Replace long ORs of equalities by IN, which is decided at once.

    >>> from geoskip.predicates import IsNull
    >>> a = Column("a")
    >>> gather_equalities(Or((IsNull(a), *(Comparison("=", a, Literal(n)) for n in range(99)))))
    (a IS NULL OR a IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...))
    """

    def gather(vertex: Predicate) -> Predicate:
        if not isinstance(vertex, Or) or len(vertex.children) < _FEWEST_EQUALITIES:
            return vertex
        values: dict[Predicate, list[Literal]] = {}
        others: list[Predicate] = []
        for part in vertex.children:
            match part:
                case Comparison("=", Column() as child, Literal() as literal):
                    values.setdefault(child, []).append(literal)
                case _:
                    others.append(part)
        parts = (*others, *(In(child, tuple(literals)) for child, literals in values.items()))
        return parts[0] if len(parts) == 1 else Or(parts)

    is_long = any(isinstance(vertex, Or) and len(vertex.children) >= _FEWEST_EQUALITIES for vertex in walk(node))
    return transform(node, gather) if is_long else node
