"""Clauses on stored bounds, of one index or of several indexes in one expression.

Values computed from indexed expressions lie in the intervals that :mod:`geoskip.bounds` derives, so a unit is kept if
some value in its interval may make the predicate TRUE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from geoskip.bounds import Derivation, index_leaf, interval_of, keys_of
from geoskip.bounds.interval import (
    ByteStrings,
    Interval,
    bytes_of,
    counts_of,
    one_sided_bounds,
    prefix_differs,
    prefix_meets,
    texts_differ,
    texts_meet,
)
from geoskip.bounds.sort_keys import NAN, NUMBERS, PRESENT, UNKNOWN, IncomparableError, SortKeys, keys_differ, keys_meet
from geoskip.clauses import Clause, Files, Mask
from geoskip.conditions import (
    ALWAYS,
    NEVER,
    Compare,
    Condition,
    FileClause,
    Places,
    Refine,
    UnitTable,
    any_holds,
    evaluate,
)
from geoskip.evaluation.values import FIRST, LAST
from geoskip.predicates import Literal

BoundEnds = tuple[Interval, SortKeys]


class BoundTable(UnitTable):
    """The bounds of an expression per file: ``low`` and ``high`` as sort keys or bytes, and flags.

    ``present``, ``numbers`` and ``nan`` mark units that may have values, numbers or NaN; ``exact`` marks units with
    bounds of strings that were not truncated; ``values`` and ``nulls`` mark units where some value of the indexed
    expressions is not NULL, or is NULL.
    """

    def __init__(self, files: Files, of: Derivation, given: BoundEnds | None = None) -> None:
        self.files, self.of, self._given = files, of, given

    def __len__(self) -> int:
        return len(self.files)

    @property
    def interval(self) -> Interval | ByteStrings | None:
        """The intervals; raises IncomparableError if the expression has none."""
        return interval_of(self.files, self.of) if self._given is None else self._given[0]

    def _ends(self) -> SortKeys | ByteStrings:
        if self._given is not None:
            return self._given[1]
        interval = self.interval
        assert interval is not None
        return keys_of(self.files, self.of, interval) if isinstance(interval, Interval) else interval

    def as_doubles(self) -> BoundTable:
        """Return the bounds of numbers as doubles, rounded as in Spark."""
        assert isinstance(self.interval, Interval)
        doubles = self.interval.as_real("double")
        return BoundTable(self.files, self.of, (doubles, doubles.keys()))

    def column(self, name: str) -> Any:
        match name:
            case "values":
                return np.logical_and.reduce([_has_values(self.files, index) for index in self.of.names])
            case "nulls":
                return np.logical_or.reduce([_has_nulls(self.files, index) for index in self.of.names])
        found = getattr(self._ends(), name)
        return np.zeros(len(self), dtype=bool) if found is None else found

    def files_with(self, units: Mask) -> Mask:
        return units


def _has_values(files: Files, name: str) -> Mask:
    def compute() -> Mask:
        (rows, counted), (nulls, known) = (counts_of(files, name, field) for field in ("rows", "nulls"))
        return np.asarray(~(counted & known) | (rows > nulls))

    return files.cached((name, "values"), compute)


def _has_nulls(files: Files, name: str) -> Mask:
    def compute() -> Mask:
        nulls, known = counts_of(files, name, "nulls")
        return np.asarray(~known | (nulls > 0))

    return files.cached((name, "has nulls"), compute)


VALUES, NULLS = Compare("values", "=", True), Compare("nulls", "=", True)


@dataclass(frozen=True)
class _OfRange(FileClause):
    """A clause on the intervals of one expression."""

    of: Derivation

    @property
    def name(self) -> str:
        """The index, or the first of several."""
        return self.of.names[0]

    @property
    def is_derived(self) -> bool:
        """True for an expression that is computed from indexed expressions."""
        return not self.of.is_leaf

    def columns(self) -> tuple[tuple[str, str], ...]:
        fields = ("min", "max", "exact", "nulls", "nans", "rows")
        return tuple((name, field) for name in self.of.names for field in fields)

    def keep(self, files: Files) -> Mask:
        return _cache_answer(self, files, super().keep) if self.of.asks_engine else super().keep(files)

    def units(self, files: Files) -> BoundTable:
        return BoundTable(files, self.of)

    def where(self, table: Any) -> Condition:
        if self.is_derived and table.of != self.of:  # the table has only stored bounds
            return Refine(ALWAYS, lambda table, places: self.keep(table.files)[places], str(self))
        found = self.condition(table)
        return any_holds([found, NULLS]) if self.of.takes_null else found

    def condition(self, table: BoundTable) -> Condition:
        """Return the condition on bounds; that a value exists, if bounds and literal are not comparable."""
        try:
            interval = table.interval
            if isinstance(interval, Interval):
                return self.of_keys(interval)
            return ALWAYS if interval is None else self.of_bytes()
        except IncomparableError:
            return VALUES

    def of_keys(self, interval: Interval) -> Condition:
        """Return the condition on intervals of values of fixed width."""
        raise IncomparableError(type(self).__name__)

    def of_bytes(self) -> Condition:
        """Return the condition on intervals of strings or binary."""
        raise IncomparableError(type(self).__name__)


def _cache_answer(clause: Clause, files: Files, keep: Callable[[Files], Mask]) -> Mask:
    """Cache the result for these files: a report evaluates it again without an engine."""
    known: WeakKeyDictionary[Files, Mask] = clause.__dict__.setdefault("_answers", WeakKeyDictionary())
    if files not in known:
        known[files] = keep(files)
    return known[files]


@dataclass(frozen=True)
class RangeMeets(_OfRange):
    """``value op literal`` may hold for some value (other than NaN, with ``numbers``) and some literal.

    An order comparison of the indexed expression itself reads only one stored bound, if all units have it and none may
    contain NaN.
    """

    op: str
    literals: tuple[Literal, ...]
    numbers: bool = False

    def columns(self) -> tuple[tuple[str, str], ...]:
        field = self._field()
        return super().columns() if field is None else ((self.name, field), (self.name, "nans"))

    def _field(self) -> str | None:
        bare = self.of.is_leaf and len(self.literals) == 1
        return {">": "max", "<": "min"}.get(self.op[0]) if bare else None

    def units(self, files: Files) -> BoundTable:
        field = self._field()
        end = None if field is None else files.cached((self.name, "end", field), lambda: self._one_end(files, field))
        return BoundTable(files, self.of, end)

    def _one_end(self, files: Files, field: str) -> BoundEnds | None:
        interval = one_sided_bounds(files, self.name, field)
        return None if interval is None else (interval, interval.keys())

    def of_keys(self, interval: Interval) -> Condition:
        nan = interval.kind == "real" and not self.numbers
        found = keys_meet(self.op, interval.literal_keys(self.literals), nan=nan)
        if interval.kind == "number" and any(isinstance(literal.value, float) for literal in self.literals):
            return any_holds([found, Refine(ALWAYS, self._meets_doubles, f"{self} as doubles")])
        return found

    def _meets_doubles(self, table: BoundTable, places: Places) -> Mask:
        """Compare with a double as Spark does for numbers of other types: after conversion to double."""
        doubles = table.as_doubles()
        return evaluate(self.condition(doubles), doubles)[places]

    def of_bytes(self) -> Condition:
        return texts_meet(self.op, [bytes_of(literal) for literal in self.literals])

    def __str__(self) -> str:
        low, high = self.of.end_text("min"), self.of.end_text("max")
        if len(self.literals) != 1:
            return f"{low} .. {high} meets {len(self.literals)} values"
        literal = self.literals[0]
        if self.op == "=":
            return f"{low} <= {literal} <= {high}"
        return f"{high if self.op[0] == '>' else low} {self.op} {literal}"


@dataclass(frozen=True)
class RangeLeaves(_OfRange):
    """Some value may differ from all of the literals."""

    literals: tuple[Literal, ...]

    def of_keys(self, interval: Interval) -> Condition:
        return keys_differ(interval.literal_keys(self.literals), nan=interval.kind == "real")

    def of_bytes(self) -> Condition:
        return texts_differ([bytes_of(literal) for literal in self.literals])

    def __str__(self) -> str:
        one = str(self.literals[0]) if len(self.literals) == 1 else f"one of {len(self.literals)} values"
        return f"NOT {self.of.end_text('min')} = {self.of.end_text('max')} = {one}"


@dataclass(frozen=True)
class RangesCompare(Clause):
    """``a op b`` may hold for some values of two expressions of the same type."""

    left: Derivation
    op: str
    right: Derivation

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((*_OfRange(self.left).columns(), *_OfRange(self.right).columns())))

    def keep(self, files: Files) -> Mask:
        asks = self.left.asks_engine or self.right.asks_engine
        return _cache_answer(self, files, self._keep) if asks else self._keep(files)

    def _keep(self, files: Files) -> Mask:
        tables = [BoundTable(files, of) for of in (self.left, self.right)]
        try:
            found = self._comparison_mask(*(table.interval for table in tables))
        except IncomparableError:
            found = np.logical_and(*(table.column("values") for table in tables))
        if self.left.takes_null or self.right.takes_null:
            found = np.logical_or.reduce([found, *(table.column("nulls") for table in tables)])
        return np.broadcast_to(found, len(files))

    def _comparison_mask(self, left: Interval | ByteStrings | None, right: Interval | ByteStrings | None) -> Mask:
        if not (isinstance(left, Interval) and isinstance(right, Interval) and left.kind == right.kind):
            raise IncomparableError("only intervals of values of fixed width are compared")
        if left.kind == "real":
            one, other = left.keys().hull(), right.keys().hull()
        else:
            scale = min(left.scale, right.scale)
            one, other = (SortKeys(i.low, i.high) for i in (left.coarser(scale), right.coarser(scale)))
        if self.op[0] == ">":
            one, other = other, one
        if self.op == "=":
            meets = (one.low <= other.high) & (other.low <= one.high)
        else:
            meets = one.low <= other.high if self.op[1:] else one.low < other.high
            meets |= (one.low == FIRST) | (other.high == LAST)  # unknown bounds, which may be strictly beyond
        return np.asarray(meets & (one.low <= one.high) & (other.low <= other.high))

    def __str__(self) -> str:
        if self.op == "=":
            (a, b), (c, d) = ((of.end_text("min"), of.end_text("max")) for of in (self.left, self.right))
            return f"{a} <= {d} and {c} <= {b}"
        ends = ("max", "min") if self.op[0] == ">" else ("min", "max")
        return f"{self.left.end_text(ends[0])} {self.op} {self.right.end_text(ends[1])}"


@dataclass(frozen=True)
class PrefixMeets(FileClause):
    """Some value may begin with the text."""

    name: str
    text: str

    def units(self, files: Files) -> BoundTable:
        return BoundTable(files, index_leaf(self.name))

    def where(self, table: Any) -> Condition:
        try:
            return self.of_prefix(bytes_of(Literal(self.text))) if isinstance(table.interval, ByteStrings) else VALUES
        except IncomparableError:
            return VALUES

    def of_prefix(self, prefix: bytes) -> Condition:
        """Return the condition on the bounds of strings."""
        return prefix_meets(prefix)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return _OfRange(index_leaf(self.name)).columns()

    def __str__(self) -> str:
        return f"{self.name} may begin with '{self.text}'"


@dataclass(frozen=True)
class PrefixLeaves(PrefixMeets):
    """Some value may not begin with the text."""

    def of_prefix(self, prefix: bytes) -> Condition:
        return prefix_differs(prefix)

    def __str__(self) -> str:
        return f"{self.name} may not begin with '{self.text}'"


@dataclass(frozen=True)
class HasValues(FileClause):
    """Some value is not NULL."""

    name: str

    def units(self, files: Files) -> BoundTable:
        return BoundTable(files, index_leaf(self.name))

    def where(self, table: Any) -> Condition:
        return VALUES

    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, "nulls"), (self.name, "rows"))

    def __str__(self) -> str:
        return f"{self.name} has values"


@dataclass(frozen=True)
class HasNulls(_OfRange):
    """Some value is NULL, or may become NULL by an overflow in a function of the expression."""

    def condition(self, table: BoundTable) -> Condition:
        if self.of.is_total:
            return NULLS
        try:
            known = isinstance(table.interval, Interval)
        except IncomparableError:
            known = False
        return any_holds([NULLS, UNKNOWN if known else ALWAYS])

    def __str__(self) -> str:
        return f"{' or '.join(self.of.names)} has nulls"


@dataclass(frozen=True)
class HasNaN(_OfRange):
    """Some value is NaN."""

    def of_keys(self, interval: Interval) -> Condition:
        return NAN if interval.kind == "real" else NEVER

    def __str__(self) -> str:
        return f"{self.name} has NaN"


@dataclass(frozen=True)
class HasNumbers(_OfRange):
    """Some value is neither NULL nor NaN."""

    def of_keys(self, interval: Interval) -> Condition:
        return NUMBERS if interval.kind == "real" else PRESENT

    def __str__(self) -> str:
        return f"{self.name} has numbers"
