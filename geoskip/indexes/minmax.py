"""MinMax: the least and the greatest value of an expression in each file (Extensible Data Skipping, section V-A).

*Stored a file*: ``min`` and ``max`` over all values but NULL and NaN, ``exact`` (strings: false where a bound was
shortened), ``nulls``, ``nans`` (floats) and ``rows``.

*Why skipping is sound*: every value v of the file that is neither NULL nor NaN has ``min <= v <= max`` in Spark's
order (numbers as numbers, strings by unsigned bytes), NaN lies above all, and a comparison with NULL is never TRUE. So
``v > 5`` needs ``max > 5``, ``v = 5`` needs ``min <= 5 <= max``, and ``NOT v = 5`` needs anything but
``min = max = 5`` (never ``min > 5 OR max < 5``: the negation of a clause is not the clause of a negation). Monotone
steps over the expression carry the order along (:mod:`geoskip.bounds.transfer`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from geoskip.bounds.interval import Interval, counts_of
from geoskip.bounds.interval_cache import keys_of, spans_of
from geoskip.bounds.one_sided import OneSidedClause
from geoskip.bounds.sort_keys import IncomparableError, SortKeys
from geoskip.bounds.strings import ByteStrings, encoded, literal_prefix, successor
from geoskip.bounds.transfer import TransferStep, steps_over
from geoskip.clauses import KEEP_NONE, Clause, Files, Mask, all_of, any_of
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn, Summary, index
from geoskip.indexes.stored_bounds import bound_type, bounds, merged, of_texts
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
from geoskip.types import sql_type

__all__ = ["MinMax"]

_IS_NAN = Function("isnan", classes=("org.apache.spark.sql.catalyst.expressions.IsNaN",))
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@index
@dataclass(frozen=True)
class MinMax(Index):
    """The least and the greatest value, and how many are NULL or NaN.

    Serves ``= <=> <> < <= > >= IN IS NULL isnan LIKE 'x%'``, their negations, and comparisons of casts, sums and
    negations of the expression.

    >>> str(MinMax("temp"))
    'minmax(temp)'
    """

    expr: str
    kind: ClassVar[str] = "minmax"

    def __post_init__(self) -> None:
        if not isinstance(self.expr, str) or not self.expr.strip():
            raise InvalidSpecificationError(f"MinMax needs a column name or SQL text, got {self.expr!r}")

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<min, max, exact, nulls, nans, rows>``, without ``exact`` and ``nans`` where they cannot vary."""
        (column,) = columns
        bound = bound_type(column)
        fields = [("min", bound), ("max", bound), ("nulls", pa.int64()), ("rows", pa.int64())]
        if pa.types.is_floating(bound):
            fields.insert(3, ("nans", pa.int64()))
        elif pa.types.is_binary(bound):
            fields.insert(2, ("exact", pa.bool_()))
        return pa.struct(fields)

    def collect(self, *values: pa.Array) -> Summary | None:
        """The bounds of one file's values, or of a part of them."""
        return bounds(values[0])

    def from_statistics(self, kind: str, low: Any, high: Any, nulls: int, rows: int) -> Summary | None:
        """The summary of a row group from its Parquet statistics, the bounds physical; None where they are not exact.

        Those of floats leave NaN out. Text that a writer shortened unsaid has equal ends only where all of it is equal.
        """
        known = None not in (low, high) and low <= high
        exact = sql_type(kind).is_plain and not sql_type(kind).is_floating
        if not exact or not (known or nulls == rows):
            return None
        text = of_texts(low, high, nulls=nulls, rows=rows) if isinstance(low, bytes) else None
        return text or {"min": low, "max": high, "exact": True, "nulls": nulls, "nans": 0, "rows": rows}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """The least of the minima, the greatest of the maxima, the sums of the counts."""
        return merged(summaries)

    def clause(self, node: Predicate) -> Clause | None:
        """What a row must make TRUE, as a condition on the bounds."""
        match node:
            case And(parts):
                return self._of_numbers(parts)
            case Not(child):
                return self._negated(child)
            case Comparison(op, left, Literal() as literal):
                return self._compared(op, left, literal)
            case Comparison(op, left, right) if op != "<=>" and (self.reads(left) or self.reads(right)):
                return HasValues(str(self))
            case In(child, values) if (steps := self._steps(child)) is not None:
                return RangeMeets(str(self), steps, "=", tuple(v for v in values if v.value is not None))
            case IsNull(child) if (steps := self._total(child)) is not None:
                return HasNulls(str(self), steps)
            case Call(_, (child,)) if _IS_NAN.is_called(node) and (steps := self._total(child)) is not None:
                return HasNaN(str(self), steps)
            case StartsWith(child, text) if self.reads(child):
                return PrefixMeets(str(self), text)
            case Like(child, pattern, escape) if self.reads(child):
                prefix, _ = literal_prefix(pattern, escape)
                return PrefixMeets(str(self), prefix)
            case EndsWith(child) | Contains(child) if self.reads(child):
                return HasValues(str(self))
        return None

    def _compared(self, op: str, left: Predicate, literal: Literal) -> Clause | None:
        steps = self._steps(left)
        if steps is None:
            return None
        if literal.value is None:
            return KEEP_NONE if op != "<=>" else None if self._total(left) is None else HasNulls(str(self), steps)
        return RangeMeets(str(self), steps, "=" if op == "<=>" else op, (literal,))

    def _of_numbers(self, parts: Sequence[Predicate]) -> Clause | None:
        """What lower bounds say of numbers, where an upper bound of the same leaves NaN out: x BETWEEN 1 AND 2."""
        ends = [(p.op, p.left, p.right) for p in parts if isinstance(p, Comparison) and isinstance(p.right, Literal)]
        below = {left for op, left, literal in ends if op in ("<", "<=") and literal.value == literal.value}
        above = [self._compared(op, left, literal) for op, left, literal in ends if op[0] == ">" and left in below]
        found = [replace(clause, numbers=True) for clause in above if isinstance(clause, RangeMeets)]
        return all_of(found) if found else None

    def _negated(self, node: Predicate) -> Clause | None:
        """What a row must make FALSE: for all but ``<=>``, IS NULL and isnan that takes a value that is not NULL."""
        match node:
            case Comparison("<=>" | "=" as op, left, Literal() as literal) if (steps := self._steps(left)) is not None:
                if op == "<=>" and self._total(left) is None:
                    return None
                if literal.value is None:
                    return HasValues(str(self)) if op == "<=>" else KEEP_NONE
                differs = RangeLeaves(str(self), steps, (literal,))
                return differs if op == "=" else any_of([differs, HasNulls(str(self), steps)])
            case Comparison(op, left, right) if op in _NEGATED:
                return self.clause(Comparison(_NEGATED[op], left, right))
            case Comparison("=", left, right) if self.reads(left) or self.reads(right):
                return HasValues(str(self))
            case In(child, values) if (steps := self._steps(child)) is not None:
                return KEEP_NONE if any(v.value is None for v in values) else RangeLeaves(str(self), steps, values)
            case IsNull(child) if self._total(child) is not None:
                return HasValues(str(self))  # a step makes no value of NULL
            case Call(_, (child,)) if _IS_NAN.is_called(node) and (steps := self._total(child)) is not None:
                return any_of([HasNumbers(str(self), steps), HasNulls(str(self), steps)])
            case StartsWith(child, text) if self.reads(child):
                return PrefixLeaves(str(self), text)
            case Like(child, pattern, escape) if self.reads(child):
                prefix, only = literal_prefix(pattern, escape)
                return PrefixLeaves(str(self), prefix) if only else HasValues(str(self))
            case EndsWith(child) | Contains(child) if self.reads(child):
                return HasValues(str(self))
        return None

    def _steps(self, node: Predicate) -> tuple[TransferStep, ...] | None:
        return steps_over(node, self.reads)

    def _total(self, node: Predicate) -> tuple[TransferStep, ...] | None:
        """The steps where they make NULL of NULL and of nothing else."""
        steps = self._steps(node)
        return None if steps is None or any(step.partial or step.of_null for step in steps) else steps


@dataclass(frozen=True)
class _OfRange(Clause):
    """A clause on the range of one index's values, after some monotone steps."""

    name: str
    steps: tuple[TransferStep, ...]

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.name, field) for field in ("min", "max", "exact", "nulls", "nans", "rows"))

    def keep(self, files: Files) -> Mask:
        if not any(step.asks for step in self.steps):
            return self._found(files)
        # a report asks again, when none can answer
        known: WeakKeyDictionary[Files, Mask] = self.__dict__.setdefault("_answers", WeakKeyDictionary())
        if files not in known:
            known[files] = self._found(files)
        return known[files]

    def _found(self, files: Files) -> Mask:
        found = self._kept(files)
        return found | HasNulls(self.name, ()).keep(files) if any(step.of_null for step in self.steps) else found

    def _kept(self, files: Files) -> Mask:
        try:
            spans = spans_of(files, self.name, self.steps)
            if isinstance(spans, Interval):
                return self.of_keys(spans, keys_of(files, self.name, self.steps, spans))
            if isinstance(spans, ByteStrings):
                return self.of_bytes(spans)
        except IncomparableError:
            return HasValues(self.name).keep(files)
        return np.ones(len(files), dtype=bool)

    def of_keys(self, spans: Interval, keys: SortKeys) -> Mask:
        raise IncomparableError(type(self).__name__)

    def of_bytes(self, spans: ByteStrings) -> Mask:
        raise IncomparableError(type(self).__name__)

    def shown(self, end: str) -> str:
        """``min(temp)``, with the steps around it."""
        text = f"{end}{self.name[len(MinMax.kind) :]}"
        for step in self.steps:
            text = step.text.format(text)
        return text


@dataclass(frozen=True)
class RangeMeets(OneSidedClause, _OfRange):
    """Some value may stand in ``op`` to one of the literals."""

    op: str
    literals: tuple[Literal, ...]
    numbers: bool = False
    """Some value but NaN."""

    def of_keys(self, spans: Interval, keys: SortKeys) -> Mask:
        if self.numbers:
            keys = replace(keys, nan=None)
        if len(self.literals) != 1:
            found = keys.meets_any(spans.places(self.literals))
        else:
            found = keys.meets(self.op, *spans.place(self.literals[0]))
        if spans.kind == "number" and any(isinstance(literal.value, float) for literal in self.literals):
            doubles = spans.as_real("double")  # Spark would compare them so
            found = found | self.of_keys(doubles, doubles.keys())
        return found

    def of_bytes(self, spans: ByteStrings) -> Mask:
        if len(self.literals) == 1:
            return spans.meets(self.op, encoded(self.literals[0]))
        return spans.meets_any([encoded(literal) for literal in self.literals])

    def __str__(self) -> str:
        if len(self.literals) != 1:
            return f"{self.shown('min')} .. {self.shown('max')} meets {len(self.literals)} values"
        literal = self.literals[0]
        if self.op == "=":
            return f"{self.shown('min')} <= {literal} <= {self.shown('max')}"
        return f"{self.shown('max' if self.op[0] == '>' else 'min')} {self.op} {literal}"


@dataclass(frozen=True)
class RangeLeaves(_OfRange):
    """Some value may differ from all of the literals."""

    literals: tuple[Literal, ...]

    def of_keys(self, spans: Interval, keys: SortKeys) -> Mask:
        if len(self.literals) == 1:
            return keys.leaves(*spans.place(self.literals[0]))
        return keys.leaves_all(spans.places(self.literals))

    def of_bytes(self, spans: ByteStrings) -> Mask:
        return spans.leaves_all([encoded(literal) for literal in self.literals])

    def __str__(self) -> str:
        one = str(self.literals[0]) if len(self.literals) == 1 else f"one of {len(self.literals)} values"
        return f"NOT {self.shown('min')} = {self.shown('max')} = {one}"


@dataclass(frozen=True)
class PrefixMeets(Clause):
    """Some value may begin with the text."""

    name: str
    text: str

    def keep(self, files: Files) -> Mask:
        return _of_prefix(files, self.name, self.text, _begins_with)

    columns = _OfRange.columns

    def __str__(self) -> str:
        return f"{self.name} may begin with '{self.text}'"


@dataclass(frozen=True)
class PrefixLeaves(Clause):
    """Some value may not begin with the text."""

    name: str
    text: str

    def keep(self, files: Files) -> Mask:
        return _of_prefix(files, self.name, self.text, ByteStrings.leaves_prefix)

    columns = _OfRange.columns

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
    """Some value is NULL, or the steps may make it so by an overflow."""

    def keep(self, files: Files) -> Mask:
        def compute() -> Mask:
            nulls, known = counts_of(files, self.name, "nulls")
            return np.asarray(~known | (nulls > 0))

        found = files.cached((self.name, "has nulls"), compute)
        if not self.steps:
            return found
        try:
            spans = spans_of(files, self.name, self.steps)
        except IncomparableError:
            spans = None
        return found | spans.keys().unknown if isinstance(spans, Interval) else np.ones(len(files), dtype=bool)

    def __str__(self) -> str:
        return f"{self.name} has nulls"


@dataclass(frozen=True)
class HasNaN(_OfRange):
    """Some value is NaN."""

    def of_keys(self, spans: Interval, keys: SortKeys) -> Mask:
        return np.zeros(len(keys.low), dtype=bool) if spans.nan is None else spans.nan

    def __str__(self) -> str:
        return f"{self.name} has NaN"


@dataclass(frozen=True)
class HasNumbers(_OfRange):
    """Some value is neither NULL nor NaN."""

    def of_keys(self, spans: Interval, keys: SortKeys) -> Mask:
        return np.asarray(spans.low <= spans.high)

    def __str__(self) -> str:
        return f"{self.name} has numbers"


def _begins_with(spans: ByteStrings, prefix: bytes) -> Mask:
    return spans.reaches(prefix) & spans.begins(successor(prefix), below=True)


def _of_prefix(files: Files, name: str, text: str, ask: Callable[[ByteStrings, bytes], Mask]) -> Mask:
    try:
        spans = spans_of(files, name, ())
        prefix = encoded(Literal(text))
    except IncomparableError:
        spans = None
    return ask(spans, prefix) if isinstance(spans, ByteStrings) else HasValues(name).keep(files)
