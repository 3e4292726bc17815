"""MinMax: the least and the greatest value of an expression in each file.

The index of *Extensible Data Skipping*, section V-A.

*Stored a file*: ``min`` and ``max`` over all values but NULL and NaN, ``exact`` (strings: false where a bound was
shortened), ``nulls``, ``nans`` (floats) and ``rows``.

*Why skipping is sound*: every value v of the file that is neither NULL nor NaN has ``min <= v <= max`` in Spark's
order (numbers as numbers, strings by unsigned bytes), NaN lies above all, and a comparison with NULL is never TRUE. So
``v > 5`` needs ``max > 5``, ``v = 5`` needs ``min <= 5 <= max``, and ``NOT v = 5`` needs anything but
``min = max = 5`` (never ``min > 5 OR max < 5``: the negation of a clause is not the clause of a negation). What is
computed from the expression lies in the interval that :mod:`geoskip.bounds.interpret` derives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn, Summary, index
from geoskip.indexes.range_clauses import BoundClauses
from geoskip.indexes.stored_bounds import bound_type, bounds, merged, of_texts
from geoskip.predicates import Predicate
from geoskip.types import sql_type

__all__ = ["MinMax", "clause_of_several"]


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
        """``struct<min, max, exact, nulls, nans, rows>``; ``exact`` for text alone, ``nans`` for floats."""
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
        """The summary of a row group from its Parquet statistics; None where they are not exact.

        Those of floats leave NaN out. Text that a writer shortened without notice has equal ends only where all of it
        is equal.

        Parameters
        ----------
        kind : str
            The type of the expression.
        low, high : object
            The physical bounds; None where there is none.
        nulls, rows : int
            How many rows are NULL, and how many there are.
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
        """The condition on the bounds that a row which makes the predicate TRUE needs."""
        name = str(self)
        return BoundClauses(lambda expression: name if self.reads(expression) else None).clause(node)


def clause_of_several(node: Predicate, *indexes: MinMax) -> Clause | None:
    """A clause for a predicate that mixes what several indexes are over: ``a - b > 7``, ``start < end``.

    Parameters
    ----------
    node : Predicate
        The predicate.
    *indexes : MinMax
        Indexes over columns of the predicate, in any number.

    Returns
    -------
    Clause or None
        None where one index alone serves the predicate, or none does.
    """

    def leaf(expression: Predicate) -> str | None:
        return next((str(index) for index in indexes if index.reads(expression)), None)

    clause = BoundClauses(leaf).clause(node)
    return clause if clause is not None and len({name for name, _ in clause.columns()}) > 1 else None
