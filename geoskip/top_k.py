"""The first rows of an order, for ``ORDER BY ... LIMIT k``, ``min`` and ``max``.

If the rows of some files all satisfy the query's condition and come no later than a value t, and they are at least k,
then rows beyond t are not among the first k. So ``order <= t`` is one more condition on the query's rows, and skips
files like any other. The value is found by the rules that skip files: a file of which no row can satisfy ``NOT
(condition AND order <= t)`` has only rows that satisfy both. If all rows of a file satisfy the condition alone, one row
is counted if MinMax stores the first value of the order, and it comes no later than t: so k files that overlap suffice.

An order by partition columns has one value in each partition, so t is one of these. For texts, t is one of the bounds
that MinMax stores for the files.

*Soundness* needs nothing of the search for t: for the value that is returned, the rows of the named files were counted.
They must be the rows that the query reads of these files, so the files must be listed by it, and unchanged.
"""

from __future__ import annotations

import math
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.interval import counts_of, plain
from geoskip.clauses import Mask
from geoskip.evaluation.values import physical
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import Decision, decide
from geoskip.predicates import TRUE, And, Comparison, IsNull, Literal, Not, Or, Predicate
from geoskip.rules import Deadline
from geoskip.types import sql_type

_MOST_COUNTED = 100
"""The number of files to count for a bound, since they are compared with their fingerprints at each run."""
_HALVES = {"date": 1 << 31, "timestamp": 1 << 63, "timestamp_ntz": 1 << 63}
_CLOSE = 1 << 32
"""The places between doubles that differ by less than a millionth."""
_LARGEST = struct.unpack("<q", struct.pack("<d", sys.float_info.max))[0]
_LARGEST_FLOAT = struct.unpack("<q", struct.pack("<d", float(np.finfo(np.float32).max)))[0]


@dataclass(frozen=True)
class Order:
    """An order of rows of which a query needs only the first.

    Attributes
    ----------
    by
        The expression that is compared.
    descending, nulls_first
        The direction, and whether rows for which the expression is NULL come first.
    rows
        The number of rows that the query needs.
    groups
        True if the query groups rows, and each group has one value: it needs that many groups.
    """

    by: Predicate
    descending: bool
    nulls_first: bool
    rows: int
    groups: bool = False

    def until(self, value: Literal) -> Predicate:
        """Return the condition that a row comes no later than a value.

        >>> from geoskip.predicates import Column
        >>> (
        ...     Order(Column("x", "int"), True, False, 3).until(Literal(7)),
        ...     Order(Column("x"), False, True, 1).until(Literal(7)),
        ... )
        (x >= 7, (x <= 7 OR x IS NULL))
        """
        compared = Comparison(">=" if self.descending else "<=", self.by, value)
        return Or((compared, IsNull(self.by))) if self.nulls_first else compared

    def excludes(self, value: Literal) -> bool | None:
        """Return True if rows come later than a value, in an order by a constant; None for other orders.

        >>> order = Order(Literal("b", "string"), False, True, 3)
        >>> order.excludes(Literal("a", "string")), order.excludes(Literal("b", "string"))
        (True, False)
        """
        if not isinstance(self.by, Literal):
            return None
        if self.by.value is None:
            return not self.nulls_first
        own, other = _key_of(self.by), _key_of(value)
        return bool(own < other if self.descending else own > other)


@dataclass(frozen=True)
class Bound:
    """A value beyond which no row is among the first of an order."""

    value: Literal
    counted: tuple[Mask, ...]
    """For each decision, the files whose rows prove it."""


def bound_of(
    decisions: Sequence[Decision],
    orders: Sequence[Order],
    listed: Sequence[Mask],
    watch: Deadline,
    until: float = math.inf,
) -> Bound | None:
    """Return the best bound that the files prove, or None.

    Parameters
    ----------
    decisions
        The decisions on the query's condition: for each dataset and each vector of partition values.
    orders
        The order, as an expression over the columns of each decision's dataset.
    listed
        For each decision, the files that the query reads, unchanged since they were indexed; no file is in two.
    watch
        Limits the time of each of the users' rules.
    until
        The time of ``time.monotonic()`` at which the search ends.
    """
    values = _values_of(orders) or _texts_of(decisions, orders)
    if values is None:
        return None
    low, high, apart, value_at = values
    sign, rows = -1 if orders[0].descending else 1, orders[0].rows
    may_hold = _Verdicts(watch)
    countable = [
        _countable_rows(decision, order, mask, may_hold) if time.monotonic() < until else _NONE
        for decision, order, mask in zip(decisions, orders, listed, strict=True)
    ]
    if orders[0].groups:
        countable = _one_of_each(orders, countable)
    firsts = [
        _first_values(decision, order, files)
        for decision, order, (files, _) in zip(decisions, orders, countable, strict=True)
    ]

    def counts_until(place: int) -> list[Any] | None:
        """Return the rows of countable files, 0 or 1 for those with later rows; None if they are too few."""
        found = []
        value = value_at(sign * place)
        for decision, order, (files, counts), values in zip(decisions, orders, countable, firsts, strict=True):
            if time.monotonic() > until:
                return None
            is_later: Any = order.excludes(value)
            if is_later is None and len(files):
                is_later = may_hold(Not(order.until(value)), decision)[files]
            found.append(np.where(is_later, _are_until(value, order, values), counts) if len(files) else counts)
        return found if _are_enough(found, rows) else None

    first, last = sorted((sign * low, sign * high))
    found = counts_until(last) if _are_enough([counts for _, counts in countable], rows) else None
    while found is not None and last - first > apart and time.monotonic() < until:
        middle = (first + last) // 2
        counts = counts_until(middle)
        first, last, found = (middle + 1, last, found) if counts is None else (first, middle, counts)
    if found is None:
        return None
    chosen = _fewest(found, rows)
    counted = tuple(np.zeros(len(mask), bool) for mask in listed)
    for mask, (files, _), of_files in zip(counted, countable, chosen, strict=True):
        mask[files[of_files]] = True
    return Bound(value_at(sign * last), counted)


class _Verdicts:
    """Finds the files in which some row may make a condition TRUE; once for the partitions of a dataset."""

    def __init__(self, watch: Deadline) -> None:
        self._watch = watch
        watch.blames = False
        self._found: dict[tuple[int, Predicate], Mask] = {}

    def __call__(self, condition: Predicate, decision: Decision) -> Mask:
        key = (id(decision.snapshot), condition)
        if key not in self._found:
            self._watch.root = decision.snapshot.header.root
            self._found[key] = decide(decision.snapshot, condition, decision.indexes, watch=self._watch).keep
        return self._found[key]


_NONE = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _countable_rows(decision: Decision, order: Order, listed: Mask, may_hold: _Verdicts) -> tuple[Any, Any]:
    """Return the numbers of the files that have only rows which satisfy the condition, and their rows.

    If rows for which the order's expression is NULL come last, they are not counted.
    """
    files = decision.snapshot.files
    every = decision.predicate == And(())
    unmet = np.zeros(len(files), bool) if every else may_hold(_is_not_true(decision.predicate), decision)
    rows = np.asarray(files.column("rows").fill_null(0), dtype=np.int64)
    if not (order.nulls_first or isinstance(order.by, Literal)):
        nulls, known = _nulls_of(order.by, decision)
        has_nulls = may_hold(IsNull(order.by), decision)
        rows = np.where(has_nulls, np.where(known, rows - nulls, 0), rows)
    numbers = np.flatnonzero(listed & ~unmet & (rows > 0))
    return numbers, rows[numbers]


def _one_of_each(orders: Sequence[Order], countable: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Count one row for each value of an order by constants, and no rows of other orders."""
    met: set[Any] = set()
    found = []
    for order, (files, _) in zip(orders, countable, strict=True):
        key = (_key_of(order.by),) if isinstance(order.by, Literal) else None
        found.append((files[:1], np.ones(1, np.int64)) if key and len(files) and key not in met else _NONE)
        met |= {key} if len(files) else set()
    return found


def _nulls_of(expression: Predicate, decision: Decision) -> tuple[Any, Any]:
    """Return the NULLs of each file, and where they are known, by a MinMax over the expression itself."""
    files = decision.snapshot.files
    for index in _bounds_of(expression, decision):
        return counts_of(files, str(index), "nulls")
    return np.zeros(len(files), np.int64), np.zeros(len(files), bool)


def _bounds_of(expression: Predicate, decision: Decision) -> Iterator[MinMax]:
    """The usable MinMax indexes, and none derived from it, over an expression itself."""
    return (index for index in decision.indexes if type(index) is MinMax and index.reads(expression))


def _first_values(decision: Decision, order: Order, numbers: Any) -> pa.Array | None:
    """Return the first value of each file, except NULL and NaN, by MinMax; null or None if unknown."""
    files = decision.snapshot.files
    for index in _bounds_of(order.by, decision) if len(numbers) else ():
        values = plain(files.summary(str(index), "max" if order.descending else "min"))
        if pa.types.is_null(values.type) or pa.types.is_binary(values.type):  # writers of footers may shorten texts
            return None
        first = physical(values.take(pa.array(numbers)))
        is_above = order.descending and pa.types.is_timestamp(values.type)  # if nanoseconds were rounded up
        return pc.subtract(pc.if_else(pc.greater(first, -1 << 63), first, None), 1) if is_above else first
    return None


def _are_until(value: Literal, order: Order, values: pa.Array | None) -> Mask | bool:
    """Test which of these values are known to come no later than another one."""
    if values is None:
        return False
    compare = pc.greater_equal if order.descending else pc.less_equal
    try:
        return np.asarray(compare(values, pa.scalar(_key_of(value))).fill_null(False))
    except pa.ArrowException:  # such as decimals with more digits than Arrow compares
        return False


def _are_enough(counts: Sequence[Any], rows: int) -> bool:
    every = np.concatenate(counts)
    most = np.partition(every, len(every) - _MOST_COUNTED)[-_MOST_COUNTED:] if len(every) > _MOST_COUNTED else every
    return int(most.sum()) >= rows


def _is_not_true(condition: Predicate) -> Predicate:
    """Return the condition that another one is FALSE or NULL."""
    return Not(Comparison("<=>", condition, TRUE))


def _fewest(counts: Sequence[Any], rows: int) -> list[Mask]:
    """Mark, among the counts of each decision, the largest that are enough."""
    every = np.concatenate(counts)
    largest = np.argsort(-every, kind="stable")
    needed = int(np.searchsorted(np.cumsum(every[largest]), rows)) + 1
    chosen = np.zeros(len(every), bool)
    chosen[largest[:needed]] = True
    return np.split(chosen, np.cumsum([len(part) for part in counts])[:-1])


def _key_of(literal: Literal) -> Any:
    """Return a value that Python orders as Spark does; strings are ordered by their bytes."""
    return literal.value.encode("utf-8", "surrogateescape") if isinstance(literal.value, str) else literal.value


_Places = tuple[int, int, int, Callable[[int], Literal]]
"""The places of the least and the greatest bound, the distance that is worth no search, and the value at a place."""


def _values_of(orders: Sequence[Order]) -> _Places | None:
    """Return the places of the values of a type, or of the constants; None for types without places."""
    if not orders:
        return None
    kind = orders[0].by.type or ""
    found = sql_type(kind)
    constants = [order.by for order in orders if isinstance(order.by, Literal)]
    if len(constants) == len(orders):
        is_ordered = found.is_integral or found.is_decimal or found.kind in ("string", *_HALVES)
        distinct = {_key_of(constant): constant for constant in constants if constant.value is not None}
        values = [distinct[key] for key in sorted(distinct)] if is_ordered else []
        return (0, len(values) - 1, 0, values.__getitem__) if values else None
    if found.is_integral:
        return found.values.start, found.values.stop - 1, 0, lambda place: Literal(place, kind)
    if found.is_floating:
        most = _LARGEST_FLOAT if found.kind == "float" else _LARGEST  # rules of distances know no infinite ones
        return -most, most, _CLOSE, lambda place: Literal(_float_at(place, kind), kind)
    if found.is_decimal:
        most = 10**found.precision - 1
        return -most, most, 0, lambda place: Literal(Number(f"{place}E-{found.scale}"), kind)  # exactly
    half = _HALVES.get(found.kind)
    return None if half is None else (-half, half - 1, 0, lambda place: Literal(place, kind))


def _texts_of(decisions: Sequence[Decision], orders: Sequence[Order]) -> _Places | None:
    """Return the places among the texts that MinMax stores as bounds of files; None without any."""
    found: dict[int, pa.Array] = {}
    for decision, order in zip(decisions, orders, strict=True):
        for index in _bounds_of(order.by, decision) if order.by.type == "string" else ():
            files, name = decision.snapshot.files, str(index)
            found[id(files)] = files.cached(("texts in order", name), partial(_in_order, files, name))
    several = [texts for texts in found.values() if len(texts)]
    texts = _sorted(pa.concat_arrays(several)) if len(several) > 1 else several[0] if several else ()
    return (0, len(texts) - 1, 0, lambda place: _text(texts[place].as_py())) if len(texts) else None


def _in_order(files: FileMetadata, index: str) -> pa.Array:
    """Return the bounds of all files by an index, in their order."""
    several = [plain(files.summary(index, end)) for end in ("min", "max")]
    texts = [found for found in several if pa.types.is_binary(found.type)]
    return _sorted(pa.concat_arrays(texts)) if texts else pa.nulls(0, pa.binary())


def _sorted(texts: pa.Array) -> pa.Array:
    different = pc.unique(texts).drop_null()
    return different.take(pc.array_sort_indices(different))


def _text(value: bytes) -> Literal:
    return Literal(value.decode("utf-8", "surrogateescape"), "string")


def _float_at(place: int, kind: str) -> float:
    """Return the number at a place in the order of doubles, rounded to a float if the type is one.

    >>> _float_at(_LARGEST, "double"), _float_at(0, "double"), _float_at(-_LARGEST_FLOAT, "float")
    (1.7976931348623157e+308, 0.0, -3.4028234663852886e+38)
    """
    number = float(struct.unpack("<d", struct.pack("<q", abs(place)))[0])
    return float(np.copysign(np.float32(number) if kind == "float" else number, place))
