"""What a condition becomes for single values put in place of an expression: TRUE, FALSE, NULL, or any where it throws.

An index that knows the very values of a file decides every deterministic condition over them by evaluating it once a
distinct value. *Outcomes* are a byte a value, a set of bits: :data:`IS_TRUE`, :data:`IS_FALSE`, :data:`IS_NULL`, and
:data:`ANY` where the evaluation throws or cannot be had.

Who evaluates: equality, order, IN and the tests of text are looked up here, without an engine and with Spark's
semantics (NaN equal to itself and above all, -0.0 equal to 0.0, strings by unsigned bytes). Everything else is asked
of the *evaluator* of the decision under way, the engine's own (:func:`evaluating` sets it). A decision runs in one
thread, and a clause keeps its answer: when a report asks again, the engine's expressions are gone.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.predicates import (
    And,
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
    children,
)

__all__ = [
    "ANY",
    "IS_FALSE",
    "IS_NULL",
    "IS_TRUE",
    "Declined",
    "Evaluator",
    "Outcomes",
    "Values",
    "directly",
    "evaluating",
    "outcomes",
    "physical",
    "reads_only",
    "swapped",
]

IS_TRUE, IS_FALSE, IS_NULL = 1, 2, 4
ANY = IS_TRUE | IS_FALSE | IS_NULL
Outcomes = NDArray[np.uint8]


@dataclass(frozen=True)
class Values:
    """Values to put in place of an expression, physical (:func:`physical`), NULL among them or not.

    ``ascending``: in Spark's order, NULL last; look-ups are then binary searches. ``token`` names them for the life of
    the process, so that an engine need be given them but once.
    """

    array: pa.Array
    ascending: bool = False
    token: int = field(default_factory=itertools.count(1).__next__)

    def __len__(self) -> int:
        return len(self.array)


class Declined(Exception):
    """An evaluator's reason for not answering: the files are kept."""


class Evaluator(Protocol):
    """An engine that evaluates its own expressions for single values, at planning time and without a job."""

    def outcomes(self, node: Predicate, over: Predicate, values: Values) -> Outcomes | None:
        """A byte a value: the outcomes of a condition with the value in place of ``over``.

        None where the condition is not one of the query's; raises :class:`Declined` with a reason otherwise.
        """

    def values(self, node: Predicate, over: Predicate, values: Values) -> pa.Array | None:
        """What an expression becomes with each value in place of ``over``, physical; None where it is not known.

        A value for which the expression throws makes the whole unknown.
        """


@dataclass
class _Evaluation:
    """One decision's evaluator, where to say what it declined, and what it answered already."""

    evaluator: Evaluator | None
    report: Callable[[str], None]
    known: dict[tuple[int, Predicate, Predicate], Outcomes] = field(default_factory=dict)


_current: ContextVar[_Evaluation | None] = ContextVar("geoskip evaluation", default=None)


@contextmanager
def evaluating(evaluator: Evaluator | None, report: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Within the block, :func:`outcomes` asks this evaluator and reports what it declined."""
    before = _current.set(_Evaluation(evaluator, report))
    try:
        yield
    finally:
        _current.reset(before)


def reads_only(node: Predicate, over: Predicate) -> bool:
    """Is a condition decided by the value of one expression?

    >>> c = Column("c")
    >>> reads_only(Like(c, "a%"), c), reads_only(Comparison("<", c, Column("d")), c), reads_only(Literal(True), c)
    (True, False, False)
    """
    found, waiting = False, [node]
    while waiting:
        vertex = waiting.pop()
        if vertex == over:
            found = True
        elif isinstance(vertex, Column | Opaque):
            return False
        else:
            waiting.extend(children(vertex))
    return found


def outcomes(node: Predicate, over: Predicate, values: Values) -> Outcomes:
    """A byte a value: what a condition may become with that value in place of ``over``; :data:`ANY` if unknown.

    >>> c = Column("c", "int")
    >>> outcomes(Not(Comparison(">", c, Literal(1))), c, Values(pa.array([1, 2, None]))).tolist()  # FALSE is 2, NULL 4
    [1, 2, 4]
    """
    found = directly(node, over, values)
    if found is not None:
        return found
    evaluation = _current.get()
    if evaluation is None:
        return _otherwise(node, over, values)
    key = (values.token, over, node)
    if key not in evaluation.known:
        evaluation.known[key] = _asked(evaluation, node, over, values)
    return evaluation.known[key]


def _asked(evaluation: _Evaluation, node: Predicate, over: Predicate, values: Values) -> Outcomes:
    if evaluation.evaluator is not None:
        try:
            found = evaluation.evaluator.outcomes(node, over, values)
        except Declined as why:
            evaluation.report(f"{node} was not evaluated: {why}")
            return np.full(len(values), ANY, dtype=np.uint8)
        if found is not None:
            return found
    return _otherwise(node, over, values)


def _otherwise(node: Predicate, over: Predicate, values: Values) -> Outcomes:
    """What is left to do without an engine's answer for the whole: to take the condition apart."""
    match node:
        case Not(child):
            return swapped(outcomes(child, over, values))
        case And(parts):
            return _all([outcomes(part, over, values) for part in parts])
        case Or(parts):
            return swapped(_all([swapped(outcomes(part, over, values)) for part in parts]))
        case IsNull(And() | Or() | Not() | Comparison() | In() | Like() as condition):
            found = outcomes(condition, over, values)
            null, other = found & IS_NULL != 0, found & (IS_TRUE | IS_FALSE) != 0
            return _bytes(null * IS_TRUE | other * IS_FALSE)
        case Like(child, pattern, escape) if child == over and _is_bytes(values.array):
            return _liked(values.array, pattern, escape)
    return np.full(len(values), ANY, dtype=np.uint8)


def swapped(found: Outcomes) -> Outcomes:
    """The outcomes of the negation."""
    return _SWAPPED[found]


_SWAPPED = np.array([(b & IS_NULL) | (b & 1) << 1 | (b & 2) >> 1 for b in range(8)], dtype=np.uint8)


def _all(parts: Sequence[Outcomes]) -> Outcomes:
    """The outcomes of an AND: TRUE needs all, FALSE one, NULL one and no FALSE."""
    every = np.bitwise_and.reduce([p & IS_TRUE for p in parts])
    some = np.bitwise_or.reduce(parts)
    open_ = np.logical_and.reduce([p & (IS_TRUE | IS_NULL) != 0 for p in parts])
    return _bytes(every | some & IS_FALSE | some & IS_NULL * open_.astype(np.uint8))


def _bytes(found: Any) -> Outcomes:
    return np.asarray(found, dtype=np.uint8)


# --- look-ups ---------------------------------------------------------------------------------------------------------


def directly(node: Predicate, over: Predicate, values: Values) -> Outcomes | None:
    """The outcomes of the common shapes right over the expression; None for all else.

    A literal of another type than the values is not looked at: how they compare is the engine's business.
    """
    match node:
        case Not(child):
            found = directly(child, over, values)
            return None if found is None else swapped(found)
        case IsNull(child) if child == over:
            return _of_test(np.asarray(values.array.is_null()), None)
        case Comparison("<=>", child, Literal(None)) if child == over:
            return _of_test(np.asarray(values.array.is_null()), None)
        case Comparison(op, child, Literal() as literal) if child == over and literal.value is not None:
            return _looked_up(values, lambda v: _compared(v, op, literal, over), null_safe=op == "<=>")
        case In(child, literals) if child == over and all(v.value is not None for v in literals):
            return _looked_up(values, lambda v: _inside(v, literals, over))
        case StartsWith(child, text) | EndsWith(child, text) | Contains(child, text) if child == over:
            return _text_test(node, values.array, text)
    if node == over and getattr(over, "type", None) == "boolean":
        return _looked_up(values, lambda v: _compared(v, "=", Literal(True), over))
    return None


def _of_test(true: Any, null: Any) -> Outcomes:
    """TRUE or FALSE, and NULL where that is said."""
    found = np.where(true, np.uint8(IS_TRUE), np.uint8(IS_FALSE))
    if null is not None:
        found[null] = IS_NULL
    return found


def _looked_up(
    values: Values, look: Callable[[pa.Array], Outcomes | None], *, null_safe: bool = False
) -> Outcomes | None:
    """What ``look`` finds among ascending values without NULL, put where the values stand."""
    array = values.array
    known = len(array) - array.null_count
    if values.ascending:
        found = look(array.slice(0, known) if array.null_count else array)
        if found is None or not array.null_count:
            return found
        return np.append(found, np.full(array.null_count, IS_FALSE if null_safe else IS_NULL, dtype=np.uint8))
    order = ascending(array)
    found = look(array.take(pa.array(order[:known])))
    if found is None:
        return None
    result = np.full(len(array), IS_FALSE if null_safe else IS_NULL, dtype=np.uint8)
    result[order[:known]] = found
    return result


def ascending(array: pa.Array) -> NDArray[np.int64]:
    """The order of physical values: Spark's, with -0.0 before 0.0, NaN after all numbers, NULL last."""
    if pa.types.is_floating(array.type):
        null = np.asarray(array.is_null())
        plain = _numbers(array.fill_null(0.0))
        order: NDArray[np.int64] = np.lexsort((~np.signbit(plain), plain, null))
        return order
    order = np.asarray(pc.array_sort_indices(array)).astype(np.int64)
    return order


def _compared(array: pa.Array, op: str, literal: Literal, over: Predicate) -> Outcomes | None:
    span = _span(array, literal, over)
    if span is None:
        return None
    low, high = span
    match op:
        case "=" | "<=>":
            inside = slice(low, high)
        case "<":
            inside = slice(0, low)
        case "<=":
            inside = slice(0, high)
        case ">":
            inside = slice(high, None)
        case _:
            inside = slice(low, None)
    found = np.full(len(array), IS_FALSE, dtype=np.uint8)
    found[inside] = IS_TRUE
    return found


def _inside(array: pa.Array, literals: Sequence[Literal], over: Predicate) -> Outcomes | None:
    found = np.full(len(array), IS_FALSE, dtype=np.uint8)
    zeros = False
    if len(literals) > _FEW and _is_bytes(array):
        wanted = [_bound(literal, array.type, over) for literal in literals]
        if any(value is None for value in wanted):
            return None
        found[np.asarray(pc.is_in(array, pa.array(wanted, array.type)))] = IS_TRUE
        return found
    for literal in literals:
        span = _span(array, literal, over)
        if span is None:
            return None
        found[slice(*span)] = IS_TRUE
        zeros |= literal.value == 0
    if zeros and pa.types.is_floating(array.type):
        found[_numbers(array) == 0] = IS_TRUE | IS_FALSE  # among many values Spark hashes, and so tells -0.0 from 0.0
    return found


_FEW = 64


def _span(array: pa.Array, literal: Literal, over: Predicate) -> tuple[int, int] | None:
    """From where to where ascending values are equal to a literal; None where the two do not compare plainly."""
    value = _bound(literal, array.type, over)
    if value is None:
        return None
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            end = len(array) if value > 0 else 0
            return end, end
        plain = _numbers(array)
        sought = plain.dtype.type(value)
        return int(np.searchsorted(plain, sought, "left")), int(np.searchsorted(plain, sought, "right"))
    items = _Items(array)
    low = bisect.bisect_left(items, value)
    return low, bisect.bisect_right(items, value, lo=low)


class _Items(Sequence[Any]):
    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        return self.array[at].as_py()


_TEXTS = ("string", "char", "varchar")


def _bound(literal: Literal, kind: pa.DataType, over: Predicate) -> Any:
    """A literal's physical value in the type of the values; None where it is of another."""
    value, ours, theirs = literal.value, getattr(over, "type", None) or "", literal.type or ""
    if pa.types.is_integer(kind):
        if type(value) is bool:
            return int(value) if ours == "boolean" else None
        times = ("date", "timestamp", "timestamp_ntz")
        same = not theirs or ours == theirs or (ours not in times and theirs not in times)
        return value if type(value) is int and same and ours != "boolean" else None
    if pa.types.is_floating(kind):
        exact = type(value) is float or (type(value) is int and abs(value) <= 2**53)
        return float(value) if exact else None
    if pa.types.is_decimal(kind):
        return Decimal(value) if type(value) in (int, Decimal) else None
    if isinstance(value, str) and not ours.startswith("binary"):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) and not ours.startswith(_TEXTS) else None


def _numbers(array: pa.Array) -> NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _is_bytes(array: pa.Array) -> bool:
    return bool(pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type))


def _text_test(node: StartsWith | EndsWith | Contains, array: pa.Array, text: str) -> Outcomes | None:
    if not _is_bytes(array):
        return None
    sought = text.encode("utf-8", "surrogateescape")
    match node:
        case StartsWith():
            test = pc.starts_with
        case EndsWith():
            test = pc.ends_with
        case _:
            test = pc.match_substring
    found = test(array, pattern=sought)
    return _of_test(np.asarray(found.fill_null(False)), np.asarray(array.is_null()))


def _liked(array: pa.Array, pattern: str, escape: str) -> Outcomes:
    """LIKE by a regular expression, value by value; what is not UTF-8 is not decided."""
    regex, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in (escape, "_", "%"):
                return np.full(len(array), ANY, dtype=np.uint8)  # Spark refuses such a pattern
            regex += re.escape(pattern[at])
        else:
            regex += {"_": ".", "%": ".*"}.get(char, re.escape(char))
        at += 1
    matches = re.compile(regex, re.DOTALL).fullmatch

    def outcome(value: bytes | None) -> int:
        if value is None:
            return IS_NULL
        try:
            return IS_TRUE if matches(value.decode("utf-8")) else IS_FALSE
        except UnicodeDecodeError:
            return ANY

    return np.fromiter(map(outcome, array.to_pylist()), dtype=np.uint8, count=len(array))


# --- physical values --------------------------------------------------------------------------------------------------


def physical(values: pa.Array) -> pa.Array:
    """Values as Spark keeps them: int64 (of booleans, dates and times too), float64, binary, decimal128.

    Raises ArrowInvalid where a time has a fraction of a microsecond, ArrowNotImplementedError for other types.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return physical(values.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_decimal128(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values
    if pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.int64())
    return values.cast(pa.large_binary())
