"""Conditions that are looked up among single values, without an engine and with Spark's semantics.

NaN is equal to itself and above all, -0.0 is equal to 0.0, strings are compared by unsigned bytes.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.evaluation.values import ANY, IS_FALSE, IS_NULL, IS_TRUE, CandidateValues, Outcomes, ascending, swapped
from geoskip.predicates import (
    Call,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Literal,
    Not,
    Predicate,
    StartsWith,
)
from geoskip.types import sql_type

__all__ = ["directly", "is_bytes", "liked", "places_equal", "value_in"]


def directly(node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
    """The outcomes of the common shapes right over the expression; None for all else.

    A literal of another type than the values is not looked at: how they compare is the engine's business.
    """
    match node:
        case Not(child):
            found = directly(child, over, values)
            return None if found is None else swapped(found)
        case IsNull(child) if child == over:
            return _null_test(values)
        case Comparison("<=>", child, Literal(None)) if child == over:
            return _null_test(values)
        case Comparison(op, child, Literal() as literal) if child == over and literal.value is not None:
            return _looked_up(values, lambda v: _compared(v, op, literal, over), null_safe=op == "<=>")
        case In(child, literals) if child == over and all(v.value is not None for v in literals):
            return _looked_up(values, lambda v: _inside(v, literals, over))
        case Call(_, (child,), implementation=impl) if impl == _IS_NAN and child == over:
            floats = pa.types.is_floating(values.array.type)
            return _of_test(np.asarray(pc.is_nan(values.array).fill_null(False)), None) if floats else None
        case StartsWith(child, text) | EndsWith(child, text) | Contains(child, text) if child == over:
            return _text_test(node, values.array, text)
    if node == over and over.type == "boolean":
        return _looked_up(values, lambda v: _compared(v, "=", Literal(True), over))
    return None


def places_equal(node: Predicate, over: Predicate, values: CandidateValues) -> list[tuple[int, int]] | None:
    """Return the slices of ascending values for which an equality or a short IN is TRUE.

    A probe costs a binary search, whatever the number of values; None for other conditions.
    """
    match node:
        case Comparison("=" | "<=>", child, Literal() as literal) if child == over and literal.value is not None:
            literals: Sequence[Literal] = (literal,)
        case In(child, items) if child == over and len(items) <= _FEW and all(v.value is not None for v in items):
            literals = items
        case _:
            return None
    if not values.ascending:
        return None
    return _spans(values.array.slice(0, len(values) - values.array.null_count), literals, over)


_IS_NAN = "org.apache.spark.sql.catalyst.expressions.IsNaN"


def _null_test(values: CandidateValues) -> Outcomes:
    if not values.ascending:
        return _of_test(np.asarray(values.array.is_null()), None)
    found = np.full(len(values), IS_FALSE, dtype=np.uint8)
    found[len(values) - values.array.null_count :] = IS_TRUE
    return found


def _of_test(true: Any, null: Any) -> Outcomes:
    """TRUE or FALSE, and NULL where that is said."""
    found = np.where(true, np.uint8(IS_TRUE), np.uint8(IS_FALSE))
    if null is not None:
        found[null] = IS_NULL
    return found


def _looked_up(
    values: CandidateValues, look: Callable[[pa.Array], Outcomes | None], *, null_safe: bool = False
) -> Outcomes | None:
    """Apply ``look`` to ascending values without NULL, and scatter the results to all values."""
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
    if len(literals) > _FEW and is_bytes(array):
        wanted = [value_in(literal, array.type, over) for literal in literals]
        if any(value is None for value in wanted):
            return None
        found[np.asarray(pc.is_in(array, pa.array(wanted, array.type)))] = IS_TRUE
        return found
    spans = _spans(array, literals, over)
    if spans is None:
        return None
    for span in spans:
        found[slice(*span)] = IS_TRUE
    if pa.types.is_floating(array.type) and any(literal.value == 0 for literal in literals):
        found[_numbers(array) == 0] = IS_TRUE | IS_FALSE  # among many values Spark hashes, and so tells -0.0 from 0.0
    return found


_FEW = 64


def _spans(array: pa.Array, literals: Sequence[Literal], over: Predicate) -> list[tuple[int, int]] | None:
    """Return the slices of ascending values equal to each literal; None if one is not comparable."""
    found = [_span(array, literal, over) for literal in literals]
    spans = [span for span in found if span is not None]
    return spans if len(spans) == len(found) else None


def _span(array: pa.Array, literal: Literal, over: Predicate) -> tuple[int, int] | None:
    """Return the slice of ascending values equal to a literal; None if they are not comparable."""
    value = value_in(literal, array.type, over)
    if value is None:
        return None
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            end = len(array) if value > 0 else 0
            return end, end
        plain = _numbers(array)
        sought = plain.dtype.type(value)
        return int(np.searchsorted(plain, sought, "left")), int(np.searchsorted(plain, sought, "right"))
    items = _ListedItems(array)
    low = bisect.bisect_left(items, value)
    return low, bisect.bisect_right(items, value, lo=low)


class _ListedItems(Sequence[Any]):
    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        return self.array[at].as_py()


def value_in(literal: Literal, kind: pa.DataType, over: Predicate) -> Any:
    """A literal's physical value in the type of the values; None where it is of another."""
    value, ours, theirs = literal.value, over.type or "", literal.type or ""
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
    if isinstance(value, str) and ours != "binary":
        return value.encode("utf-8", "surrogateescape")
    of_text = sql_type(ours).is_text or ours.startswith("string collate")
    return value if isinstance(value, bytes) and not of_text else None


def _numbers(array: pa.Array) -> NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def is_bytes(array: pa.Array) -> bool:
    return bool(pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type))


def _text_test(node: StartsWith | EndsWith | Contains, array: pa.Array, text: str) -> Outcomes | None:
    if not is_bytes(array):
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


def liked(array: pa.Array, pattern: str, escape: str) -> Outcomes:
    """LIKE by a regular expression, value by value; what is not UTF-8 is not decided, on either side."""
    if any("\ud800" <= char <= "\udfff" for char in pattern):  # Spark decodes the pattern too, to U+FFFD
        return np.full(len(array), ANY, dtype=np.uint8)
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
