"""Clauses on stored bounds, of one index or of several that an expression mixes.

What is computed from indexed expressions lies in the intervals that :mod:`geoskip.bounds.interpret` derives, so that a
unit is kept where some value between the ends may make the predicate TRUE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from geoskip.bounds.interpret import Derivation, derive, indexed, interval_of, keys_of
from geoskip.bounds.interval import Interval, counts_of, one_sided_bounds
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError, SortKeys
from geoskip.bounds.strings import ByteStrings, encoded, literal_prefix, successor
from geoskip.clauses import KEEP_NONE, Clause, Files, Mask, all_of, any_of
from geoskip.predicates import (
    And,
    Call,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
    StartsWith,
)
from geoskip.registry import Function

__all__ = [
    "BoundClauses",
    "HasNaN",
    "HasNulls",
    "HasNumbers",
    "HasValues",
    "PrefixLeaves",
    "PrefixMeets",
    "RangeLeaves",
    "RangeMeets",
    "RangesCompare",
]

_IS_NAN = Function("isnan", classes=("org.apache.spark.sql.catalyst.expressions.IsNaN",))
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class BoundClauses:
    """Clauses for predicates on expressions with stored bounds: of one index, or of several.

    Attributes
    ----------
    leaf : Callable
        The name of the index over an expression, or None.
    """

    leaf: Callable[[Predicate], str | None]

    def clause(self, node: Predicate) -> Clause | None:
        """The condition that a row which makes the predicate TRUE needs; None where there is none."""
        match node:
            case And(parts):
                return self._of_numbers(parts)
            case Not(child):
                return self._negated(child)
            case Comparison(op, left, Literal() as literal):
                return self._compared(op, left, literal)
            case Comparison(op, left, right) if op != "<=>":
                return self._of_two(op, left, right)
            case In(child, values) if (of := derive(child, self.leaf)) is not None:
                return RangeMeets(of, "=", tuple(v for v in values if v.value is not None))
            case IsNull(child) if (of := self._strict(child)) is not None:
                return HasNulls(of)
            case Call(_, (child,)) if _IS_NAN.is_called(node) and (of := self._strict(child)) is not None:
                return HasNaN(of)
            case StartsWith(child, text) if (name := self.leaf(child)) is not None:
                return PrefixMeets(name, text)
            case Like(child, pattern, escape) if (name := self.leaf(child)) is not None:
                return PrefixMeets(name, literal_prefix(pattern, escape)[0])
            case EndsWith(child) | Contains(child) if (name := self.leaf(child)) is not None:
                return HasValues(name)
        return None

    def _compared(self, op: str, left: Predicate, literal: Literal) -> Clause | None:
        of = derive(left, self.leaf)
        if of is None:
            return None
        if literal.value is None:
            return KEEP_NONE if op != "<=>" else HasNulls(of) if of.is_strict else None
        return RangeMeets(of, "=" if op == "<=>" else op, (literal,))

    def _of_two(self, op: str, left: Predicate, right: Predicate) -> Clause | None:
        """A comparison of two expressions; of one that has no bounds it is known that the other is not NULL."""
        one, other = derive(left, self.leaf), derive(right, self.leaf)
        if one is not None and other is not None and left.type == right.type:
            return RangesCompare(one, op, other)
        known = next((of for of in (one, other) if of is not None and of.is_leaf), None)
        return None if known is None else HasValues(known.names[0])

    def _of_numbers(self, parts: Sequence[Predicate]) -> Clause | None:
        """Lower bounds of numbers, where an upper bound of the same leaves NaN out: x BETWEEN 1 AND 2."""
        ends = [(p.op, p.left, p.right) for p in parts if isinstance(p, Comparison) and isinstance(p.right, Literal)]
        below = {left for op, left, literal in ends if op in ("<", "<=") and literal.value == literal.value}
        above = [self._compared(op, left, literal) for op, left, literal in ends if op[0] == ">" and left in below]
        found = [replace(clause, numbers=True) for clause in above if isinstance(clause, RangeMeets)]
        return all_of(found) if found else None

    def _negated(self, node: Predicate) -> Clause | None:
        """The condition that a row needs to make a predicate FALSE; a value for most."""
        match node:
            case Comparison("<=>" | "=" as op, left, Literal() as literal):
                return self._differs(op, left, literal)
            case Comparison(op, left, right) if op in _NEGATED:
                return self.clause(Comparison(_NEGATED[op], left, right))
            case Comparison("=", left, right):
                name = self.leaf(left) or self.leaf(right)
                return None if name is None else HasValues(name)
            case In(child, values) if (of := derive(child, self.leaf)) is not None:
                return KEEP_NONE if any(v.value is None for v in values) else RangeLeaves(of, values)
            case IsNull(child) if (of := self._strict(child)) is not None:
                return all_of(map(HasValues, of.names))  # no function makes a value of NULL
            case Call(_, (child,)) if _IS_NAN.is_called(node) and (of := self._strict(child)) is not None:
                return any_of([HasNumbers(of), HasNulls(of)])
            case StartsWith(child, text) if (name := self.leaf(child)) is not None:
                return PrefixLeaves(name, text)
            case Like(child, pattern, escape) if (name := self.leaf(child)) is not None:
                prefix, only = literal_prefix(pattern, escape)
                return PrefixLeaves(name, prefix) if only else HasValues(name)
            case EndsWith(child) | Contains(child) if (name := self.leaf(child)) is not None:
                return HasValues(name)
        return None

    def _differs(self, op: str, left: Predicate, literal: Literal) -> Clause | None:
        of = derive(left, self.leaf)
        if of is None or (op == "<=>" and not of.is_strict):
            return None
        if literal.value is None:
            return all_of(map(HasValues, of.names)) if op == "<=>" else KEEP_NONE
        differs = RangeLeaves(of, (literal,))
        return differs if op == "=" else any_of([differs, HasNulls(of)])

    def _strict(self, node: Predicate) -> Derivation | None:
        """The derivation of an expression that is NULL where its operand is, and nowhere else."""
        of = derive(node, self.leaf)
        return of if of is not None and of.is_strict else None


@dataclass(frozen=True)
class _OfRange(Clause):
    """A clause on the intervals of one expression."""

    of: Derivation

    @property
    def name(self) -> str:
        """The index of a bare expression; the first one of others."""
        return self.of.names[0]

    @property
    def is_derived(self) -> bool:
        """True for an expression that is computed from what is indexed."""
        return not self.of.is_leaf

    def columns(self) -> tuple[tuple[str, str], ...]:
        fields = ("min", "max", "exact", "nulls", "nans", "rows")
        return tuple((name, field) for name in self.of.names for field in fields)

    def keep(self, files: Files) -> Mask:
        return _remembered(self, files, self._keep) if self.of.asks_engine else self._keep(files)

    def _keep(self, files: Files) -> Mask:
        return _kept(files, (self.of,), self._kept)

    def _kept(self, files: Files) -> Mask:
        interval = interval_of(files, self.of)
        if isinstance(interval, Interval):
            return self.of_keys(interval, keys_of(files, self.of, interval))
        return np.ones(len(files), dtype=bool) if interval is None else self.of_bytes(interval)

    def of_keys(self, interval: Interval, keys: SortKeys) -> Mask:
        """The units that are kept, by intervals of values of fixed width."""
        raise IncomparableError(type(self).__name__)

    def of_bytes(self, interval: ByteStrings) -> Mask:
        """The units that are kept, by intervals of strings or binary."""
        raise IncomparableError(type(self).__name__)


def _kept(files: Files, derived: Sequence[Derivation], keep: Callable[[Files], Mask]) -> Mask:
    """The units that are kept; those with values where bounds have no order with a literal."""
    names = dict.fromkeys(name for of in derived for name in of.names)
    try:
        found = keep(files)
    except IncomparableError:
        found = np.logical_and.reduce([HasValues(name).keep(files) for name in names])
    if any(of.takes_null for of in derived):
        found = np.logical_or.reduce([found, *(HasNulls(indexed(name)).keep(files) for name in names)])
    return found


def _remembered(clause: Clause, files: Files, keep: Callable[[Files], Mask]) -> Mask:
    """The first answer for these files: a report asks again, when no engine is there."""
    known: WeakKeyDictionary[Files, Mask] = clause.__dict__.setdefault("_answers", WeakKeyDictionary())
    if files not in known:
        known[files] = keep(files)
    return known[files]


@dataclass(frozen=True)
class RangeMeets(_OfRange):
    """Some value may stand in ``op`` to one of the literals; with ``numbers``, some value but NaN.

    An order comparison of the bare expression is decided by one end as it is stored, where all units have it and none
    may hold NaN.
    """

    op: str
    literals: tuple[Literal, ...]
    numbers: bool = False

    def columns(self) -> tuple[tuple[str, str], ...]:
        field = self._field()
        return super().columns() if field is None else ((self.name, field), (self.name, "nans"))

    def keep(self, files: Files) -> Mask:
        found = self._by_one_end(files)
        return super().keep(files) if found is None else found

    def _field(self) -> str | None:
        bare = self.of.is_leaf and len(self.literals) == 1
        return {">": "max", "<": "min"}.get(self.op[0]) if bare else None

    def _by_one_end(self, files: Files) -> Mask | None:
        field = self._field()
        if field is None:
            return None
        end = files.cached((self.name, "end", field), lambda: one_sided_bounds(files, self.name, field))
        try:
            return None if end is None else end.meets(self.op, self.literals[0])
        except IncomparableError:
            return None

    def of_keys(self, interval: Interval, keys: SortKeys) -> Mask:
        if self.numbers:
            keys = replace(keys, nan=None)
        if len(self.literals) != 1:
            found = keys.meets_any(interval.literal_keys(self.literals))
        else:
            found = keys.meets(self.op, *interval.literal_key(self.literals[0]))
        if interval.kind == "number" and any(isinstance(literal.value, float) for literal in self.literals):
            doubles = interval.as_real("double")  # Spark would compare them so
            found = found | self.of_keys(doubles, doubles.keys())
        return found

    def of_bytes(self, interval: ByteStrings) -> Mask:
        if len(self.literals) == 1:
            return interval.meets(self.op, encoded(self.literals[0]))
        return interval.meets_any([encoded(literal) for literal in self.literals])

    def __str__(self) -> str:
        low, high = self.of.shown("min"), self.of.shown("max")
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

    def of_keys(self, interval: Interval, keys: SortKeys) -> Mask:
        if len(self.literals) == 1:
            return keys.leaves(*interval.literal_key(self.literals[0]))
        return keys.leaves_all(interval.literal_keys(self.literals))

    def of_bytes(self, interval: ByteStrings) -> Mask:
        return interval.leaves_all([encoded(literal) for literal in self.literals])

    def __str__(self) -> str:
        one = str(self.literals[0]) if len(self.literals) == 1 else f"one of {len(self.literals)} values"
        return f"NOT {self.of.shown('min')} = {self.of.shown('max')} = {one}"


@dataclass(frozen=True)
class RangesCompare(Clause):
    """Some value of one expression may stand in ``op`` to some value of another one of the same type."""

    left: Derivation
    op: str
    right: Derivation

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((*_OfRange(self.left).columns(), *_OfRange(self.right).columns())))

    def keep(self, files: Files) -> Mask:
        asks = self.left.asks_engine or self.right.asks_engine
        return _remembered(self, files, self._keep) if asks else self._keep(files)

    def _keep(self, files: Files) -> Mask:
        return _kept(files, (self.left, self.right), self._kept)

    def _kept(self, files: Files) -> Mask:
        left, right = interval_of(files, self.left), interval_of(files, self.right)
        if left is None or right is None:
            return np.ones(len(files), dtype=bool)
        if not (isinstance(left, Interval) and isinstance(right, Interval) and left.kind == right.kind):
            raise IncomparableError("only intervals of values of fixed width are compared")
        if left.kind == "real":
            one, other = left.keys().hull(), right.keys().hull()
        else:
            scale = min(left.scale, right.scale)
            one, other = (SortKeys(i.low, i.high) for i in (left.coarser(scale), right.coarser(scale)))
        if self.op[0] == ">":
            one, other = other, one
        open_ = (one.low == FIRST) | (other.high == LAST)
        if self.op == "=":
            meets = (one.low <= other.high) & (other.low <= one.high)
        else:
            meets = one.low <= other.high if self.op[1:] else one.low < other.high
        return np.asarray((meets | open_) & (one.low <= one.high) & (other.low <= other.high))

    def __str__(self) -> str:
        if self.op == "=":
            (a, b), (c, d) = ((of.shown("min"), of.shown("max")) for of in (self.left, self.right))
            return f"{a} <= {d} and {c} <= {b}"
        ends = ("max", "min") if self.op[0] == ">" else ("min", "max")
        return f"{self.left.shown(ends[0])} {self.op} {self.right.shown(ends[1])}"


@dataclass(frozen=True)
class PrefixMeets(Clause):
    """Some value may begin with the text."""

    name: str
    text: str

    def keep(self, files: Files) -> Mask:
        return _of_prefix(files, self.name, self.text, _begins_with)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return _OfRange(indexed(self.name)).columns()

    def __str__(self) -> str:
        return f"{self.name} may begin with '{self.text}'"


@dataclass(frozen=True)
class PrefixLeaves(PrefixMeets):
    """Some value may not begin with the text."""

    def keep(self, files: Files) -> Mask:
        return _of_prefix(files, self.name, self.text, ByteStrings.leaves_prefix)

    def __str__(self) -> str:
        return f"{self.name} may not begin with '{self.text}'"


@dataclass(frozen=True)
class HasValues(Clause):
    """Some value is not NULL."""

    name: str

    def keep(self, files: Files) -> Mask:
        def compute() -> Mask:
            (rows, counted), (nulls, known) = (counts_of(files, self.name, field) for field in ("rows", "nulls"))
            return np.asarray(~(counted & known) | (rows > nulls))

        return files.cached((self.name, "values"), compute)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, "nulls"), (self.name, "rows"))

    def __str__(self) -> str:
        return f"{self.name} has values"


@dataclass(frozen=True)
class HasNulls(_OfRange):
    """Some value is NULL, or a function of the expression may make it so by an overflow."""

    def keep(self, files: Files) -> Mask:
        found: Mask = np.logical_or.reduce([_has_nulls(files, name) for name in self.of.names])
        if self.of.is_total:
            return found
        try:
            interval = interval_of(files, self.of)
        except IncomparableError:
            interval = None
        return found | interval.keys().unknown if isinstance(interval, Interval) else np.ones(len(files), dtype=bool)

    def __str__(self) -> str:
        return f"{' or '.join(self.of.names)} has nulls"


def _has_nulls(files: Files, name: str) -> Mask:
    def compute() -> Mask:
        nulls, known = counts_of(files, name, "nulls")
        return np.asarray(~known | (nulls > 0))

    return files.cached((name, "has nulls"), compute)


@dataclass(frozen=True)
class HasNaN(_OfRange):
    """Some value is NaN."""

    def of_keys(self, interval: Interval, keys: SortKeys) -> Mask:
        return np.zeros(len(keys.low), dtype=bool) if interval.nan is None else interval.nan

    def __str__(self) -> str:
        return f"{self.name} has NaN"


@dataclass(frozen=True)
class HasNumbers(_OfRange):
    """Some value is neither NULL nor NaN."""

    def of_keys(self, interval: Interval, keys: SortKeys) -> Mask:
        return np.asarray(interval.low <= interval.high)

    def __str__(self) -> str:
        return f"{self.name} has numbers"


def _begins_with(interval: ByteStrings, prefix: bytes) -> Mask:
    return interval.reaches(prefix) & interval.begins(successor(prefix), below=True)


def _of_prefix(files: Files, name: str, text: str, keep: Callable[[ByteStrings, bytes], Mask]) -> Mask:
    try:
        interval, prefix = interval_of(files, indexed(name)), encoded(Literal(text))
    except IncomparableError:
        return HasValues(name).keep(files)
    return keep(interval, prefix) if isinstance(interval, ByteStrings) else HasValues(name).keep(files)
