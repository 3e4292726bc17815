"""MinMax: the least and the greatest value of an expression in each file.

The index of *Extensible Data Skipping*, section V-A.

*Stored per file*: ``min`` and ``max`` of all values except NULL and NaN, ``exact`` (strings: false if a bound was
truncated), ``nulls``, ``nans`` (floats) and ``rows``. Both bounds are values of the file, but for texts and times
whose nanoseconds were rounded: :mod:`geoskip.top_k` counts their rows.

*Why skipping is sound*: every value v of the file that is neither NULL nor NaN has ``min <= v <= max`` in Spark's order
(numbers as numbers, strings by unsigned bytes), NaN lies above all, and a comparison with NULL is never TRUE. So ``v >
5`` needs ``max > 5``, ``v = 5`` needs ``min <= 5 <= max``, and ``NOT v = 5`` needs anything but ``min = max = 5``
(never ``min > 5 OR max < 5``: the negation of a clause is not the clause of a negation). Values computed from the
expression lie in the interval that :mod:`geoskip.bounds` derives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.bounds import Derivation, derive
from geoskip.bounds.sort_keys import literal_prefix
from geoskip.clauses import Clause, all_of, any_of
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.file_statistics import FileStatistics, field_of, zeros
from geoskip.indexes.range_clauses import (
    HasNaN,
    HasNulls,
    HasNumbers,
    HasValues,
    PrefixLeaves,
    PrefixMeets,
    RangeLeaves,
    RangeMeets,
    RangesCompare,
)
from geoskip.indexes.stored_bounds import LONGEST, bound_type, bounds, merge_bounds, of_texts
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

IS_NAN = Function("isnan", classes=("org.apache.spark.sql.catalyst.expressions.IsNaN",))


@index
@dataclass(frozen=True)
class MinMax(Index):
    """The least and the greatest value, and how many are NULL or NaN.

    Supports ``= <=> <> < <= > >= IN IS NULL isnan LIKE 'x%'``, their negations, and comparisons of casts, sums and
    negations of the expression.

    >>> str(MinMax("temp"))
    'minmax(temp)'
    """

    expr: str
    kind: ClassVar[str] = "minmax"

    def __post_init__(self) -> None:
        require_text(self, self.expr)

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<min, max, exact, nulls, nans, rows>``; ``exact`` for text only, ``nans`` for floats."""
        (column,) = columns
        bound = bound_type(column)
        fields = [("min", bound), ("max", bound), ("nulls", pa.int64()), ("rows", pa.int64())]
        if pa.types.is_floating(bound):
            fields.insert(3, ("nans", pa.int64()))
        elif pa.types.is_binary(bound):
            fields.insert(2, ("exact", pa.bool_()))
        return pa.struct(fields)

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the bounds of one file's values, or of a part of them."""
        return bounds(values[0])

    def from_statistics(self, kind: str, low: Any, high: Any, nulls: int, rows: int) -> Summary | None:
        """Return the summary of a row group from its Parquet statistics; None if they are not exact.

        Bounds of floats exclude NaN. If a writer truncated text without marking it, the bounds are equal only if all
        values are equal. Bounds of long text are not considered exact.

        Parameters
        ----------
        kind : str
            The type of the expression.
        low, high : object
            The physical bounds; None if not recorded.
        nulls, rows : int
            The number of NULL rows, and of all rows.
        """
        known = None not in (low, high) and low <= high
        exact = sql_type(kind).is_plain and not sql_type(kind).is_floating
        if not exact or not (known or nulls == rows):
            return None
        if isinstance(low, bytes):
            text = of_texts(low, high, nulls=nulls, rows=rows)
            return {**text, "exact": max(len(low), len(high)) <= LONGEST}  # writers may shorten longer ones
        return {"min": low, "max": high, "exact": True, "nulls": nulls, "nans": 0, "rows": rows}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return the smallest minimum, the largest maximum and the sums of the counts."""
        return merge_bounds(summaries)

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the stored bounds and counts; truncated bounds of text are not exact."""
        low, high, nulls = (field_of(summaries, name) for name in ("min", "max", "nulls"))
        exact, nans = field_of(summaries, "exact"), field_of(summaries, "nans")
        exact = summaries.is_valid() if exact is None else exact
        nans = zeros(nulls) if nans is None else nans
        return (FileStatistics(*self.subject(), nulls=nulls, nans=nans, low=low, high=high, exact=exact),)

    def clause(self, node: Predicate) -> Clause | None:
        """Return a condition on the bounds that holds if some row makes the predicate TRUE."""
        name = str(self)
        return BoundClauses(lambda expression: name if self.reads(expression) else None).clause(node)


def clause_of_several(node: Predicate, *indexes: MinMax) -> Clause | None:
    """Return a clause for a predicate over several indexed expressions: ``a - b > 7``, ``start < end``.

    Parameters
    ----------
    node : Predicate
        The predicate.
    *indexes : MinMax
        Any number of indexes over columns of the predicate.

    Returns
    -------
    Clause or None
        None if one index alone supports the predicate, or none does.
    """

    def leaf(expression: Predicate) -> str | None:
        return next((str(index) for index in indexes if index.reads(expression)), None)

    clause = BoundClauses(leaf).clause(node)
    return clause if clause is not None and len({name for name, _ in clause.columns()}) > 1 else None


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
        """Return a clause that represents the predicate, or None."""
        match node:
            case And(parts):
                return self._of_numbers(parts)
            case Not(child):
                return self._negation(child)
            case Comparison(op, left, Literal() as right) if (
                op != "<=>" and (of := derive(left, self.leaf)) is not None
            ):
                return RangeMeets(of, op, (right,))
            case Comparison(op, left, right) if op != "<=>":
                return self._of_two(op, left, right)
            case In(child, values) if (of := derive(child, self.leaf)) is not None:
                return RangeMeets(of, "=", values)
            case IsNull(child) if (of := self._strict(child)) is not None:
                return HasNulls(of)
            case Call(_, (child,)) if IS_NAN.is_called(node) and (of := self._strict(child)) is not None:
                return HasNaN(of)
            case StartsWith(child, text) if (name := self.leaf(child)) is not None:
                return PrefixMeets(name, text)
            case Like(child, pattern, escape) if (name := self.leaf(child)) is not None:
                prefix = literal_prefix(pattern, escape)[0]
                return PrefixMeets(name, prefix) if prefix else HasValues(name)
            case EndsWith(child) | Contains(child) if (name := self.leaf(child)) is not None:
                return HasValues(name)
        return None

    def _of_two(self, op: str, left: Predicate, right: Predicate) -> Clause | None:
        """Return the clause of a comparison of expressions; if one lacks bounds, the other is not NULL."""
        one, other = derive(left, self.leaf), derive(right, self.leaf)
        if one is not None and other is not None and left.type == right.type:
            return RangesCompare(one, op, other)
        known = next((of for of in (one, other) if of is not None and of.is_leaf), None)
        return None if known is None else HasValues(known.names[0])

    def _of_numbers(self, parts: Sequence[Predicate]) -> Clause | None:
        """Return clauses for lower limits of x that ignore NaN, as an upper limit of x excludes it."""
        ends = [(p.op, p.left, p.right) for p in parts if isinstance(p, Comparison) and isinstance(p.right, Literal)]
        below = {left for op, left, literal in ends if op in ("<", "<=") and literal.value == literal.value}
        above = [(derive(left, self.leaf), op, right) for op, left, right in ends if op[0] == ">" and left in below]
        found = [RangeMeets(of, op, (literal,), numbers=True) for of, op, literal in above if of is not None]
        return all_of(found) if found else None

    def _negation(self, node: Predicate) -> Clause | None:
        """Return a clause that represents NOT of a predicate; for most, that some value is not NULL."""
        match node:
            case Comparison("=", left, Literal() as right) if (of := derive(left, self.leaf)) is not None:
                return RangeLeaves(of, (right,))
            case Comparison("=", left, right):
                name = self.leaf(left) or self.leaf(right)
                return None if name is None else HasValues(name)
            case In(child, values) if (of := derive(child, self.leaf)) is not None:
                return RangeLeaves(of, values)
            case IsNull(child) if (of := self._strict(child)) is not None:
                return all_of(map(HasValues, of.names))  # strict: NULL stays NULL
            case Call(_, (child,)) if IS_NAN.is_called(node) and (of := self._strict(child)) is not None:
                return any_of([HasNumbers(of), HasNulls(of)])
            case StartsWith(child, text) if (name := self.leaf(child)) is not None:
                return PrefixLeaves(name, text)
            case Like(child, pattern, escape) if (name := self.leaf(child)) is not None:
                prefix, only = literal_prefix(pattern, escape)
                return PrefixLeaves(name, prefix) if only else HasValues(name)
            case EndsWith(child) | Contains(child) if (name := self.leaf(child)) is not None:
                return HasValues(name)
        return None

    def _strict(self, node: Predicate) -> Derivation | None:
        """Return the derivation of an expression that is NULL exactly where its operand is, or None."""
        of = derive(node, self.leaf)
        return of if of is not None and of.is_strict else None
