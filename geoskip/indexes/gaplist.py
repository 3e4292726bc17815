"""GapList: the segments between the widest gaps of an expression's values in each file.

The index of *Extensible Data Skipping*, sections IV-B and V-A and table I: if the values of a file form two clusters,
min and max are too coarse, and a query for values between the clusters need not read it.

*Stored per file*: ``segments``, the intervals ``[low, high]`` between the largest gaps (one more than the number of
gaps), in order; ``nulls``, ``nans`` (floats) and ``rows``.

*Collecting*: the distinct values are sorted and cut at the widest differences between neighbours, in the scale of the
values (days, microseconds, numbers). *Merging*: a gap of the file is a gap in all parts, so overlapping segments are
united and the widest gaps between them are kept.

*Why skipping is sound*: every value that is neither NULL nor NaN lies in one of the segments; NaN, NULL and a file
without a summary are one additional segment each. The clauses, and the intervals of computed expressions
(:mod:`geoskip.bounds`), are those of MinMax with every segment as a file; a file is kept if one segment passes. Clauses
joined by AND are evaluated segment by segment (:class:`geoskip.clauses.UnitClause`), because a row that makes all of
them TRUE lies in one segment: ``x BETWEEN 4 AND 6`` skips a file if both ends lie in one gap, although neither ``x >=
4`` nor ``x <= 6`` alone skips it.

*Cost*: 16 bytes per segment of numbers; collecting sorts the values; a query compares all segments, so its time is that
of MinMax times the number of segments per file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from geoskip.bounds import index_leaf
from geoskip.bounds.interval import counts_of
from geoskip.bounds.sort_keys import Ints
from geoskip.clauses import Clause, DerivedFiles, Files, Mask
from geoskip.conditions import Condition, ExistsClause, condition_of
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.evaluation.value_texts import texts_of
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.file_statistics import FileStatistics, ends_of_lists, field_of, zeros
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.range_clauses import BoundTable
from geoskip.indexes.stored_bounds import PER_SECOND, bound_type, cast_to_ordered, unite
from geoskip.predicates import Predicate

T = TypeVar("T")
_MOST = 1000


@index
@dataclass(frozen=True)
class GapList(Index):
    """The segments in which values lie, around the ``gaps`` widest gaps of each file.

    For numbers, decimals, dates, timestamps and intervals. Supports the same conditions on these as MinMax: ``= <=> <>
    < <= > >= IN BETWEEN IS NULL isnan``, their negations, and comparisons of casts, sums and negations of the
    expression.

    >>> str(GapList("temp")), str(GapList("temp", gaps=3))
    ('gaplist(temp)', 'gaplist(temp, gaps=3)')
    """

    expr: str
    gaps: int = 8
    kind: ClassVar[str] = "gaplist"

    def __post_init__(self) -> None:
        require_text(self, self.expr)
        if type(self.gaps) is not int or not 1 <= self.gaps <= _MOST:
            raise InvalidSpecificationError(
                f"GapList({self.expr!r}) keeps from 1 to {_MOST:,} gaps a file, got gaps={self.gaps!r}; 8 serve well"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<segments: list<struct<low, high>>, nulls, nans, rows>``, ``nans`` for floats only."""
        (column,) = columns
        bound = bound_type(column, self.kind)
        if pa.types.is_binary(bound) or pa.types.is_boolean(bound):
            other = {"boolean": "MinMax", "binary": "BloomFilter"}.get(column.type, "Prefix")
            raise UnsupportedColumnError(
                f"gaplist({column.text}) needs numbers, dates or times, between which gaps have a width, got "
                f"{column.type}: use {other}({column.text!r}), or a function of it such as GapList('length(...)')"
            )
        counts = ("nulls", "nans", "rows") if pa.types.is_floating(bound) else ("nulls", "rows")
        segment = pa.struct([("low", bound), ("high", bound)])
        return pa.struct([("segments", pa.list_(segment)), *((name, pa.int64()) for name in counts)])

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the segments of one file's values, or of a part of them."""
        (array,) = values
        nulls, nans = array.null_count, 0
        found: list[dict[str, Any]] = []
        if len(array) > nulls:
            distinct = _distinct(array)
            if pa.types.is_floating(distinct.type):
                is_nan = pc.is_nan(distinct)
                if pc.any(is_nan).as_py():
                    nans = pc.sum(pc.is_nan(cast_to_ordered(array))).as_py()
                    distinct = distinct.filter(pc.invert(is_nan))
            found = _segments(distinct, self.gaps)
        if pa.types.is_timestamp(array.type) and array.type.unit != "us":
            found = [_in_microseconds(segment, array.type.unit) for segment in found]
        return {"segments": found, "nulls": nulls, "nans": nans, "rows": len(array)}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return the union of the parts' segments, cut at the widest common gaps, and the sums of the counts."""
        counts = {name: sum(part.get(name, 0) for part in summaries) for name in ("nulls", "nans", "rows")}
        united = unite((segment["low"], segment["high"]) for part in summaries for segment in part["segments"])
        return {"segments": _widest(united, self.gaps), **counts}

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the bounds of all segments; the segments are details."""
        segments, nulls, nans = (field_of(summaries, name) for name in ("segments", "nulls", "nans"))
        low, high, _ = ends_of_lists(segments)
        return (
            FileStatistics(
                *self.subject(),
                nulls=nulls,
                nans=zeros(nulls) if nans is None else nans,
                low=pc.struct_field(low, "low"),
                high=pc.struct_field(high, "high"),
                exact=summaries.is_valid(),
                details=_shown_segments(segments, self.subject()[1]),
            ),
        )

    def clause(self, node: Predicate) -> Clause | None:
        """Return the clause of MinMax, evaluated for each segment."""
        inner = MinMax(self.expr).bind(self.bound).clause(node)
        return None if inner is None else SegmentPasses(str(self), inner)


@dataclass(frozen=True)
class SegmentPasses(ExistsClause):
    """Some segment of the file's values may contain a match."""

    index: str
    inner: Clause

    def units(self, files: Files) -> SegmentTable:
        return SegmentTable(files, self.index)

    def where(self, table: Any) -> Condition:
        return condition_of(self.inner, table)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("segments", "nulls", "nans", "rows"))

    def __str__(self) -> str:
        return f"{self.index} has a segment with {self.inner}"


class SegmentTable(BoundTable):
    """The bounds of all segments."""

    def __init__(self, files: Files, name: str) -> None:
        self.segments, self.owners = segments_of(files, name), len(files)
        super().__init__(self.segments, index_leaf(name))

    def files_with(self, units: Mask) -> Mask:
        keep = np.zeros(self.owners, dtype=bool)
        keep[self.segments.owner[np.flatnonzero(units)]] = True
        return keep


@dataclass(frozen=True, eq=False)
class Segments(DerivedFiles):
    """The segments of all files, each presented as a file with a MinMax summary.

    Their order is: the segments of every file; one for the NULLs of each file with NULLs; one for the NaNs of each file
    with NaN; one with unknown content for each file without a summary.

    Attributes
    ----------
    owner : array of int64
        The file of each segment.
    fields : dict of str to Array
        The summaries, one entry per segment.
    """

    owner: Ints
    fields: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.owner)

    def summary(self, index: str, field: str) -> pa.Array:
        """Return one field, with one entry per segment."""
        return self.fields[field] if field in self.fields else pa.nulls(len(self))


def segments_of(files: Files, name: str) -> Segments:
    """Return the segments of an index, cached with the files."""
    return files.cached((name, "segments as files"), lambda: _flat(files, name))


def _flat(files: Files, name: str) -> Segments:
    stored = files.summary(name, "segments")
    stored = stored.combine_chunks() if isinstance(stored, pa.ChunkedArray) else stored
    nulls, known = counts_of(files, name, "nulls")
    nans = np.zeros(len(files), dtype=np.int64)
    known = known & np.asarray(stored.is_valid())
    if not pa.types.is_list(stored.type):
        return Segments(np.arange(len(files)), {})
    values = stored.flatten()
    if pa.types.is_floating(values.type.field("low").type):
        nans, counted = counts_of(files, name, "nans")
        known &= counted
    lengths = np.asarray(stored.value_lengths().fill_null(0))
    owner = np.repeat(np.arange(len(files)), lengths)
    with_nulls, with_nans = np.flatnonzero(known & (nulls > 0)), np.flatnonzero(known & (nans > 0))
    unknown = np.flatnonzero(~known)
    further = len(with_nulls) + len(with_nans) + len(unknown)

    def bound(end: str) -> pa.Array:
        given = values.field(end)
        return pa.concat_arrays([given, pa.nulls(further, given.type)])

    def count(*, of: int) -> pa.Array:
        """Return 1 for the units of one kind, 0 for the others, null for unknown ones."""
        sizes = (len(owner), len(with_nulls), len(with_nans))
        parts = [pa.array(np.full(size, number == of, dtype=np.int64)) for number, size in enumerate(sizes)]
        return pa.concat_arrays([*parts, pa.nulls(len(unknown), pa.int64())])

    ones = pa.array(np.ones(len(owner) + len(with_nulls) + len(with_nans), dtype=np.int64))
    return Segments(
        np.concatenate([owner, with_nulls, with_nans, unknown]),
        {
            "min": bound("low"),
            "max": bound("high"),
            "nulls": count(of=1),
            "nans": count(of=2),
            "rows": pa.concat_arrays([ones, pa.nulls(len(unknown), pa.int64())]),
        },
    )


def _shown_segments(segments: pa.Array, kind: str) -> pa.Array:
    """Return the segments of each file as JSON: pairs of texts."""
    flat = segments.flatten()
    lows, highs = (texts_of(pc.struct_field(flat, end), kind).to_pylist() for end in ("low", "high"))
    pairs = iter(list(zip(lows, highs, strict=True)))
    lengths = segments.value_lengths().to_pylist()
    shown = [None if n is None else json.dumps({"segments": list(itertools.islice(pairs, n))}) for n in lengths]
    return pa.array(shown, pa.string())


def _distinct(array: pa.Array) -> pa.Array:
    """Return the distinct values except NULL, in ascending order, NaN last."""
    values = cast_to_ordered(array).drop_null()
    if pa.types.is_decimal(values.type):
        values = values.unique()
        return values.take(pc.sort_indices(values))
    return pa.array(np.unique(values.to_numpy(zero_copy_only=False)))


def _segments(distinct: pa.Array, gaps: int) -> list[dict[str, Any]]:
    """Divide ascending values into segments at the widest gaps."""
    if not len(distinct):
        return []
    widths = _widths(distinct)
    chosen = np.flatnonzero(widths > (1 if pa.types.is_integer(distinct.type) else 0))  # 3 and 4 have no gap
    if len(chosen) > gaps:
        chosen = np.sort(chosen[np.argpartition(widths[chosen], -gaps)[-gaps:]])
    lows = distinct.take(pa.array(np.concatenate([[0], chosen + 1]))).to_pylist()
    highs = distinct.take(pa.array(np.concatenate([chosen, [len(distinct) - 1]]))).to_pylist()
    if pa.types.is_floating(distinct.type):  # functions may distinguish -0.0 from 0.0
        lows, highs = [low or -0.0 for low in lows], [high or 0.0 for high in highs]
    return [{"low": low, "high": high} for low, high in zip(lows, highs, strict=True)]


def _widths(distinct: pa.Array) -> NDArray[Any]:
    """Return the differences between neighbours; rounding is harmless, since they only rank the gaps."""
    if pa.types.is_decimal(distinct.type):
        distinct = distinct.cast(pa.float64())
    values = distinct.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(distinct.type):
        wide = values.astype(np.int64).view(np.uint64)  # the difference may not fit an int64
        return np.asarray(wide[1:] - wide[:-1])
    with np.errstate(over="ignore"):
        return np.asarray(values[1:] - values[:-1], dtype=np.float64)


def _widest(ranges: Sequence[tuple[Any, Any]], gaps: int) -> list[dict[str, Any]]:
    """Unite ascending ranges across all gaps except the widest."""
    widest = sorted(range(1, len(ranges)), key=lambda at: ranges[at][0] - ranges[at - 1][1])[-gaps:]
    starts = itertools.pairwise([0, *sorted(widest), len(ranges)])
    return [{"low": ranges[start][0], "high": ranges[end - 1][1]} for start, end in starts if start < end]


def _in_microseconds(segment: dict[str, Any], unit: str) -> dict[str, Any]:
    """Widen a segment to whole microseconds."""
    per = PER_SECOND[unit]
    return {"low": segment["low"] * 10**6 // per, "high": -(-segment["high"] * 10**6 // per)}
