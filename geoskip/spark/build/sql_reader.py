"""Summaries by Spark's own aggregates, for clusters that cannot run geoskip's Python tasks.

Bounds and counts of all indexes are computed by one aggregation by file, and the distinct values of each value list by
another, limited to one more than the list may have. The driver computes summaries of these few values by the index's
own ``collect``, and replaces the counts by those of all rows. The result equals that of a Python task over all values:
``collect`` of a ``MinMax`` depends only on the extremes and the counts, that of a ``ValueList`` only on the distinct
values and the counts.

Spark's ``min`` and ``max`` order strings and binary by unsigned bytes, as the bounds do, and NaN above all numbers;
NaN is therefore excluded and counted. Grouping turns -0.0 into 0.0; an additional column restores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from geoskip.indexes.base import Index, Summary
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import IndexEntry
from geoskip.sources.arrow_reader import FileResult, RowSummaries
from geoskip.sources.bound_indexes import calls_python
from geoskip.sources.listed_files import ListedFile
from geoskip.sources.worker_tasks import plain_uri
from geoskip.spark.build.listing import SourceState
from geoskip.spark.build.spark_jobs import collect_table
from geoskip.spark.build.spark_reader import (
    SelectedValues,
    hidden_by_a_view,
    read_through_spark,
    reading_progress,
    results_of,
    tasks_for,
)

READER = "spark sql"
_KINDS = (MinMax, ValueList)


def needs_no_python(index: Index) -> bool:
    """Test whether aggregates can collect an index: a MinMax or ValueList without Python functions."""
    return type(index) in _KINDS and not calls_python(index)


def read_through_aggregates(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]
) -> list[FileResult]:
    """Summaries of files by aggregates; raises as :func:`read_through_spark`."""
    return read_through_spark(state, entries, files, _summarise)


def _summarise(state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> list[FileResult]:
    selected = SelectedValues.of(state, entries, files)
    if selected is None:
        return hidden_by_a_view(files)
    tasks = tasks_for(state.spark, files)
    frame = selected.frame.coalesce(tasks)
    with reading_progress(state.spark, files, tasks):
        counted = _ColumnCounts.of(frame, selected)
        lists = {
            number: _distinct_values(frame, selected, column, index.limit + 1)
            for number, (index, (column,)) in enumerate(selected.plans)
            if isinstance(index, ValueList)
        }
    found: list[tuple[str, list[RowSummaries] | str]] = []
    for place, path in enumerate(counted.paths):
        name = plain_uri(selected.decoded(path))
        if counted.malformed[place]:
            found.append((name, selected.problem))
        summaries = []
        for number, (index, (column,)) in enumerate(selected.plans):
            ends = counted.ends(column, place)
            values = lists[number].get(path, ends[:0]) if number in lists else ends
            summaries.append(counted.with_counts(index.collect(values), column, place))
        found.append((name, [RowSummaries(counted.rows[place], tuple(summaries))]))
    return results_of(found, entries, files, selected, READER)


@dataclass(frozen=True)
class _ColumnCounts:
    """Extremes and counts of each column by file."""

    table: pa.Table
    types: Sequence[pa.DataType]
    paths: list[str]
    rows: list[int]
    malformed: list[int]

    @classmethod
    def of(cls, frame: DataFrame, selected: SelectedValues) -> _ColumnCounts:
        """Aggregate a DataFrame of values by file, in one job."""
        aggregates = [F.count(F.lit(1)).alias("rows")]
        bad = F.col(frame.columns[1]).isNotNull() if selected.first > 1 else F.lit(False)
        aggregates.append(F.count_if(bad).alias("malformed"))
        types = selected.types
        for number, (name, kind) in enumerate(zip(frame.columns[selected.first :], types, strict=True)):
            value = F.col(name)
            nan = F.isnan(value) if pa.types.is_floating(kind) else F.lit(False)
            plain = F.when(~nan, value)
            aggregates += [
                F.min(plain).alias(f"low{number}"),
                F.max(plain).alias(f"high{number}"),
                F.count_if(value.isNull()).alias(f"nulls{number}"),
                F.count_if(nan).alias(f"nans{number}"),
            ]
        table = collect_table(frame.groupBy("_file").agg(*aggregates))
        columns = (table.column(name).to_pylist() for name in ("_file", "rows", "malformed"))
        return cls(table, types, *columns)

    def ends(self, column: int, place: int) -> pa.Array:
        """Smallest and largest value of a column in a file; empty if it has none."""
        ends = [self.table.column(f"{end}{column}").slice(place, 1) for end in ("low", "high")]
        joined = pa.chunked_array([chunk for end in ends for chunk in end.chunks], ends[0].type)
        return pa.concat_arrays(joined.chunks).cast(self.types[column]).drop_null()

    def with_counts(self, summary: Summary | None, column: int, place: int) -> Summary | None:
        """A summary of some values with the counts of all rows.

        Parameters
        ----------
        summary
            The summary; None is returned unchanged.
        column
            The number of the column.
        place
            The position of the file in ``paths``.
        """
        if summary is None:
            return None
        counts = {"rows": self.rows[place]} | {
            name: self.table.column(f"{name}{column}")[place].as_py() for name in ("nulls", "nans")
        }
        return {name: counts.get(name, value) for name, value in summary.items()}


def _distinct_values(frame: DataFrame, selected: SelectedValues, column: int, most: int) -> dict[str, pa.Array]:
    """Distinct values of a column by file without NULL, at most ``most`` for each file.

    Parameters
    ----------
    frame, selected
        The values, and their types.
    column
        The number of the column.
    most
        The number of values of a file from which on the others make no difference.
    """
    name, kind = frame.columns[selected.first + column], selected.types[column]
    value = F.col(name)
    negative = (value == 0) & (value.cast("string") == "-0.0") if pa.types.is_floating(kind) else F.lit(False)
    pairs = frame.where(value.isNotNull()).select("_file", value.alias("value"), negative.alias("negative")).distinct()
    by_file = Window.partitionBy("_file").orderBy("value", "negative")
    table = collect_table(pairs.withColumn("place", F.row_number().over(by_file)).where(F.col("place") <= most))
    table = table.sort_by([("_file", "ascending"), ("place", "ascending")])
    values = table.column("value").combine_chunks().cast(kind)
    if pa.types.is_floating(kind):
        values = pc.if_else(table.column("negative").combine_chunks(), pa.scalar(-0.0, kind), values)
    runs = pc.run_end_encode(table.column("_file").combine_chunks())
    ends = runs.run_ends.to_pylist()
    places = zip(runs.values.to_pylist(), [0, *ends], ends, strict=False)
    return {path: values.slice(start, end - start) for path, start, end in places}
