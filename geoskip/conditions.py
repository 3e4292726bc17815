"""Conditions on the columns of unit tables: the comparisons of clauses, as data.

An index describes the rows of a file by one or more *units*: the range of MinMax, the segments of GapList, the boxes of
GeoBox. The units of all files form a table with named columns (:class:`UnitTable`). A condition selects the units that
a clause keeps:

* :class:`Compare` and :class:`Among` compare a column with values, :class:`SomeValue` compares two columns with a
  value;
* :class:`AllOf`, :class:`AnyOf` and :class:`Negation` combine conditions;
* :class:`Refine` calls a function on the units that satisfy a necessary condition.

The same condition is evaluated by numpy (:func:`evaluate`), printed (``str``), and translated: into a query of a search
server (:mod:`geoskip.stores.search.clause_queries`) and into an expression of Arrow (:func:`expression_of`).
Translations omit the functions of :class:`Refine` and use :func:`necessary` conditions, which keep more units.

Null in a column means unknown: it neither satisfies nor fails a comparison, and the unit is kept. So a null lower or
upper bound means that the values are unbounded on that side.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.clauses import Clause, Files, Mask, UnitClause, alternatives_of, keep_mask, parts_of

Places = NDArray[np.int64]
Interval = tuple[Any, Any]
"""A half-open interval ``[first, second)``; None is unbounded."""
Intervals = tuple[Interval, ...]


class UnitTable(ABC):
    """The units of all files as a table, accessed by column."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self, name: str) -> Any:
        """Return a column with one entry per unit: a numpy array, or an Arrow array for nulls or bytes.

        The two bounds of a range are both numpy or both Arrow arrays.
        """

    @abstractmethod
    def files_with(self, units: Mask) -> Mask:
        """Mark the files that have one of these units or unknown content."""

    def answer(self, condition: AllOf | Among) -> Mask | None:
        """Evaluate a condition without :meth:`column`, such as by an index; None if not supported."""
        return None


class Condition:
    """A condition on the columns of a unit table."""


@dataclass(frozen=True)
class Compare(Condition):
    """A column compared with a value: ``op`` is ``=``, ``<``, ``<=``, ``>`` or ``>=``."""

    column: str
    op: str
    value: bool | int | float | bytes

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return self.column if self.value else f"NOT {self.column}"
        return f"{self.column} {self.op} {self.value!r}"


@dataclass(frozen=True)
class Among(Condition):
    """A column has a value in one of several intervals, which are disjoint and ascending."""

    column: str
    intervals: Intervals

    def comparisons(self) -> Condition:
        """Return an equivalent condition of comparisons with the interval bounds."""
        found = []
        for low, high in self.intervals:
            ends = ((">=", low), ("<", high))
            found.append(AllOf(tuple(Compare(self.column, op, end) for op, end in ends if end is not None)))
        return AnyOf(tuple(found))

    def __str__(self) -> str:
        return f"{self.column} in {len(self.intervals)} intervals"


@dataclass(frozen=True)
class SomeValue(Condition):
    """One of the ascending values lies in ``low`` to ``high``; if ``equal``, both columns equal it."""

    values: tuple[int | float | bytes, ...]
    equal: bool = False
    columns: tuple[str, str] = ("low", "high")

    def comparisons(self) -> Condition:
        """Return an equivalent condition of comparisons with each of the values."""
        ops = ("=", "=") if self.equal else ("<=", ">=")
        return AnyOf(tuple(AllOf(tuple(map(Compare, self.columns, ops, (v, v)))) for v in self.values))

    def hull(self) -> Condition:
        """Return the weaker condition that compares with the least and the greatest value only."""
        low, high = self.columns
        return AllOf((Compare(low, "<=", self.values[-1]), Compare(high, ">=", self.values[0])))

    def __str__(self) -> str:
        one = repr(self.values[0]) if len(self.values) == 1 else f"one of {len(self.values)} values"
        low, high = self.columns
        return f"{low} = {high} = {one}" if self.equal else f"{low} <= {one} <= {high}"


@dataclass(frozen=True)
class AllOf(Condition):
    """The AND of conditions; every unit satisfies an empty one."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.parts))})" if self.parts else "TRUE"


@dataclass(frozen=True)
class AnyOf(Condition):
    """The OR of conditions; no unit satisfies an empty one."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' OR '.join(map(str, self.parts))})" if self.parts else "FALSE"


@dataclass(frozen=True)
class Negation(Condition):
    """The negation of a condition without :class:`Refine`; clauses are never negated."""

    part: Condition

    def __post_init__(self) -> None:
        if not is_exact(self.part):
            raise ValueError(f"the negation of {self.part} would drop what code has not decided")

    def __str__(self) -> str:
        return f"NOT {self.part}"


@dataclass(frozen=True)
class Refine(Condition):
    """A function that decides on the units that satisfy a necessary condition.

    Attributes
    ----------
    where : Condition
        The necessary condition, which every kept unit satisfies.
    keep : Callable
        From the table and the positions of units to a mask over these units; False drops a unit.
    text : str
        The condition in words.
    """

    where: Condition
    keep: Callable[[Any, Places], Mask]
    text: str

    def __str__(self) -> str:
        return self.text


ALWAYS, NEVER = AllOf(()), AnyOf(())


class FileClause(Clause):
    """A clause with a condition on units, where each file is one unit."""

    @abstractmethod
    def units(self, files: Files) -> UnitTable:
        """Return the unit table of these files."""

    @abstractmethod
    def where(self, table: Any) -> Condition:
        """Return the condition, with values in the form of this table's columns; the table may be empty."""

    def keep(self, files: Files) -> Mask:
        table = self.units(files)
        return evaluate(self.where(table), table)


class ExistsClause(UnitClause, FileClause):
    """A clause that keeps the files with a unit that satisfies a condition."""

    def keep_units(self, files: Files) -> Mask:
        return FileClause.keep(self, files)

    def files_of(self, files: Files, units: Mask) -> Mask:
        return self.units(files).files_with(units)


def union(intervals: Iterable[Interval]) -> Intervals:
    """Return the union of intervals, disjoint and ascending.

    >>> union([(5, 7), (1, 3), (6, None), (2, 4), (4, 4)])
    ((1, 4), (5, None))
    """
    found: list[Interval] = []
    every = list(intervals)
    below = [interval for interval in every if interval[0] is None]
    for low, high in [*below, *sorted((i for i in every if i[0] is not None), key=operator.itemgetter(0))]:
        if low is not None and high is not None and low >= high:
            continue
        if found and ((last := found[-1][1]) is None or low is None or low <= last):
            found[-1] = found[-1][0], None if last is None or high is None else max(last, high)
        else:
            found.append((low, high))
    return tuple(found)


def complement(intervals: Intervals) -> Intervals:
    """Return the complement of disjoint ascending intervals.

    >>> complement(((1, 4), (6, None))), complement(())
    (((None, 1), (4, 6)), ((None, None),))
    """
    found, start = [], None
    for low, high in intervals:
        if low is not None:
            found.append((start, low))
        if high is None:
            return tuple(found)
        start = high
    return (*found, (start, None))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the intersection of two sets of disjoint ascending intervals.

    >>> intersection(((1, 4), (6, None)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    return complement(union([*complement(one), *complement(other)]))


def condition_of(clause: Clause, table: UnitTable) -> Condition:
    """Return the condition of a clause, merged or not, on the unit table of its index.

    A clause without a condition becomes a :class:`Refine` that evaluates it on ``table.files``.
    """
    for parts, join in ((parts_of(clause), all_hold), (alternatives_of(clause), any_holds)):
        if len(parts) > 1:
            return join(condition_of(part, table) for part in parts)
    if isinstance(clause, FileClause):
        return clause.where(table)
    return Refine(ALWAYS, lambda table, places: keep_mask(clause, table.files)[places], str(clause))


def all_hold(conditions: Iterable[Condition]) -> Condition:
    """Return the conjunction of conditions, flattened.

    >>> str(all_hold([Compare("low", "<=", 5), ALWAYS])), str(all_hold([NEVER, ALWAYS]))
    ('low <= 5', 'FALSE')
    """
    parts = _flat(conditions, AllOf)
    return NEVER if NEVER in parts else parts[0] if len(parts) == 1 else AllOf(parts)


def any_holds(conditions: Iterable[Condition]) -> Condition:
    """Return the disjunction of conditions, flattened."""
    parts = _flat(conditions, AnyOf)
    return ALWAYS if ALWAYS in parts else parts[0] if len(parts) == 1 else AnyOf(parts)


def _flat(conditions: Iterable[Condition], kind: type[AllOf | AnyOf]) -> tuple[Condition, ...]:
    return tuple(part for each in conditions for part in (each.parts if isinstance(each, kind) else (each,)))


def is_exact(condition: Condition) -> bool:
    """True if a condition contains no :class:`Refine`."""
    if isinstance(condition, AllOf | AnyOf):
        return all(map(is_exact, condition.parts))
    return not isinstance(condition, Refine)


def necessary(condition: Condition) -> Condition:
    """Return the weaker condition without functions: it keeps every unit that the condition keeps."""
    match condition:
        case Refine(where):
            return necessary(where)
        case AllOf(parts):
            return all_hold(map(necessary, parts))
        case AnyOf(parts):
            return any_holds(map(necessary, parts))
    return condition


def evaluate(condition: Condition, table: UnitTable) -> Mask:
    """Return one entry per unit: False if the unit fails the condition; unknown is kept.

    In a conjunction, functions run last, on the units that the other parts keep.
    """
    return _evaluate(condition, table, True)


def _evaluate(condition: Condition, table: UnitTable, unknown: bool) -> Mask:
    if isinstance(condition, AllOf | Among) and (answer := table.answer(condition)) is not None:
        return answer
    match condition:
        case Compare(column, op, value):
            return _compare_column(table.column(column), op, value, unknown)
        case Among():
            return _evaluate(condition.comparisons(), table, unknown)
        case SomeValue():
            low, high = condition.columns
            return _of_some_value(condition, table.column(low), table.column(high), unknown)
        case Negation(part):
            return np.logical_not(_evaluate(part, table, not unknown))
        case AnyOf(parts):
            return _join(np.logical_or, [_evaluate(part, table, unknown) for part in parts], table, False)
        case Refine(where, keep):
            return _refine_mask(_evaluate(where, table, unknown), keep, table)
        case AllOf(parts):
            plain = [_evaluate(part, table, unknown) for part in parts if type(part) is not Refine]
            code = [part for part in parts if type(part) is Refine]
            kept = _join(np.logical_and, [*plain, *(_evaluate(part.where, table, unknown) for part in code)], table)
            for part in code:
                kept = _refine_mask(kept, part.keep, table)
            return kept
    raise TypeError(f"{condition!r} is no condition")


def _join(join: np.ufunc, masks: list[Mask], table: UnitTable, empty: bool = True) -> Mask:
    return reduce(join, masks) if masks else np.full(len(table), empty)


def _refine_mask(kept: Mask, keep: Callable[[Any, Places], Mask], table: UnitTable) -> Mask:
    places = np.flatnonzero(kept)
    found = np.zeros(len(table), dtype=bool)
    found[places] = keep(table, places)
    return found


OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_FUNCTIONS = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def _compare_column(column: Any, op: str, value: Any, unknown: bool) -> Mask:
    if isinstance(column, np.ndarray):
        if value is True:
            return column
        return np.asarray(OPERATORS[op](column, value), dtype=bool)
    found = _FUNCTIONS[op](column, pa.scalar(value, column.type))
    return np.asarray(found.fill_null(unknown).to_numpy(zero_copy_only=False), dtype=bool)


def _of_some_value(condition: SomeValue, low: Any, high: Any, unknown: bool) -> Mask:
    """Compare each range with the least value that is not below ``low``; the others do not matter."""
    values = condition.values
    if len(values) == 0:
        return np.zeros(len(low), dtype=bool)
    least, most = ("=", "=") if condition.equal and len(values) == 1 else ("<=", ">=")
    found = _compare_column(low, least, values[-1], unknown) & _compare_column(high, most, values[0], unknown)
    if len(values) > 1:
        chosen = np.flatnonzero(found)
        if isinstance(low, np.ndarray):
            lows, highs, ordered = low[chosen], high[chosen], np.array(values)
            at = ordered[np.minimum(np.searchsorted(ordered, lows), len(values) - 1)]
            found[chosen] = (lows == at) & (at == highs) if condition.equal else (lows <= at) & (at <= highs)
        else:
            pairs = zip(low.take(pa.array(chosen)).to_pylist(), high.take(pa.array(chosen)).to_pylist(), strict=True)
            found[chosen] = [_has_some_value(condition, *pair) for pair in pairs]
    return found


def _has_some_value(condition: SomeValue, low: Any, high: Any) -> bool:
    """Decide :func:`_of_some_value` for one unit; null bounds are unbounded."""
    values = condition.values
    known = high if condition.equal and low is None else low
    at = 0 if known is None else bisect_left(values, known)
    if condition.equal:
        return (low is None or high is None or low == high) and (known is None or known in values[at : at + 1])
    return at < len(values) and (high is None or values[at] <= high)


def expression_of(condition: Condition, field: Callable[[str], pc.Expression] = pc.field) -> pc.Expression:
    """Return the necessary condition as an Arrow expression, for datasets and tables with these columns.

    Parameters
    ----------
    condition : Condition
        A condition; functions of :class:`Refine` are left out.
    field : Callable
        The expression of a column.

    >>> expression_of(Compare("low", "<=", 5)).equals((pc.field("low") <= 5) | pc.field("low").is_null())
    True
    """
    return _expression(necessary(condition), field, True)


def _expression(condition: Condition, field: Callable[[str], pc.Expression], unknown: bool) -> pc.Expression:
    match condition:
        case Compare(column, op, value):
            found = OPERATORS[op](field(column), pa.scalar(value))
            return found | field(column).is_null() if unknown else found & field(column).is_valid()
        case Among() | SomeValue():
            return _expression(condition.comparisons(), field, unknown)
        case Negation(part):
            return ~_expression(part, field, not unknown)
    if not isinstance(condition, AllOf | AnyOf):
        raise TypeError(f"{condition!r} is no condition on columns")
    every = isinstance(condition, AllOf)
    parts = (_expression(part, field, unknown) for part in condition.parts)
    return reduce(operator.and_ if every else operator.or_, parts, pc.scalar(every))
