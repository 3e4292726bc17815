"""Arranged DataFrames: the rows in the order of a layout, with one partition for each file.

One job counts the rows, and another collects a sample of the layout's expressions to compute the arrangement. Then a
pandas UDF over only these expressions computes the file and the sort key of each row, and Spark shuffles the rows by
file and sorts them within it.

*No row is lost or duplicated*, even if a task of the shuffle is retried: the file of a row depends only on its values,
so that each file gets the same rows in whatever order they arrive. Rows with equal keys are distributed by a hash of
the whole row, and rows with equal hashes in turn: which of several equal rows is in which file makes no difference.

Spark assigns rows to partitions by a hash. So that each file has its own partition, the number of a file is an integer
with the hash of its partition.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from geoskip.errors import InvalidSpecificationError
from geoskip.layout.arrangement import Arrangement
from geoskip.layout.file_cuts import TIE_BITS
from geoskip.layout.ranks import Ints
from geoskip.layout.specification import Layout, Sort
from geoskip.metadata import bytes_of
from geoskip.sources.arrow_reader import cache_zip_directories
from geoskip.sources.column_names import backquote
from geoskip.spark.analysis import SPARKS_GEOMETRY
from geoskip.spark.build.layout_columns import LayoutColumns, arrow_values
from geoskip.spark.build.spark_jobs import collect_table, run_job
from geoskip.spark.build.spark_reader import arrow_columns

FILE_SIZE = 128 << 20
"""Default number of bytes of a file."""
MOST_FILES = 100_000
_ROWS_A_FILE = 400
_LEAST_SAMPLE, _LARGEST_SAMPLE = 50_000, 200_000
_ROWS_MEASURED = 20_000
_LEAST_BYTES_A_VALUE = 0.0025
"""Bytes per repeated value: its share of a page header; a page has at most 20,000 rows."""
_LEAST_HALF, _MOST_DOUBLINGS = 500, 8
"""Minimum rows of which the gain of neighbours is measured, and the maximum number of doublings of them."""
_ARROW_CODECS = {
    **{name: name for name in ("snappy", "gzip", "zstd", "lz4", "brotli", "none")},
    "lz4_raw": "lz4", "uncompressed": "none",
}  # fmt: skip
"""Arrow's names of codecs by Spark's; others, which Arrow cannot write, are measured as snappy."""
_ORDER_BITS = 40
"""Number of bits of a row's sort key, below the number of its file."""


@dataclass(frozen=True)
class ArrangedFrame:
    """A DataFrame to be written unchanged: its partitions are the files, in the order of the layout."""

    frame: DataFrame
    files: int


def file_target(call: str, files: object, file_size: object) -> tuple[int | None, int | None]:
    """Validate the number of files of a layout, or the bytes of one file, whichever is given.

    >>> file_target("write", None, "64 MiB"), file_target("write", 4, None), file_target("write", None, None)
    ((None, 67108864), (4, None), (None, None))
    """
    if files is not None and file_size is not None:
        raise InvalidSpecificationError(f"{call}() takes files= or file_size=, not both: {files!r} and {file_size!r}")
    if file_size is not None:
        if not (size := bytes_of(file_size)):
            raise InvalidSpecificationError(
                f"{call}(file_size=) takes a number of bytes above 0 or a text such as '128 MiB', got {file_size!r}"
            )
        return None, size
    if files is None:
        return None, None
    if not isinstance(files, int) or isinstance(files, bool) or not 1 <= files <= MOST_FILES:
        raise InvalidSpecificationError(f"{call}(files=) takes a number from 1 to {MOST_FILES:,}, got {files!r}")
    return files, None


def arrange(
    frame: DataFrame,
    layout: Layout,
    *,
    files: int | None = None,
    file_size: int | None = None,
    partitions: Sequence[str] = (),
    codec: str | None = None,
) -> ArrangedFrame:
    """Arrange the rows of a DataFrame by a layout.

    Parameters
    ----------
    frame
        The rows; they are read two or three times, so cache them if they are expensive to compute.
    layout
        The specification.
    files
        The number of files; fewer if there are fewer rows.
    file_size
        Instead of ``files``: the bytes of a file, 128 MiB by default, estimated from a sample of the rows as Parquet.
    partitions
        Partition columns: all rows of a file have the same values of these. Each combination of values has files in
        proportion to its rows, at least one.
    codec
        Spark's name of the codec of the files; the session's by default.

    Raises
    ------
    InvalidSpecificationError
        For expressions that do not fit the rows, and more than 100,000 files.
    """
    columns = LayoutColumns.of(frame, layout)
    rows = frame.count()
    if not rows:
        return ArrangedFrame(frame, 0)
    if files is None:
        ordered = rows_in_order(frame, layout, columns, rows, partitions)
        gain = gain_of_neighbours(frame, ordered, rows, codec)
        files = max(1, round(rows / _rows_of_size(frame, ordered, (file_size or FILE_SIZE) / gain, codec)))
    files = min(files, rows)
    if files > MOST_FILES:
        raise InvalidSpecificationError(
            f"{layout} would be written to {files:,} files of {rows / files:,.0f} rows, at most {MOST_FILES:,} are "
            "possible: give fewer files= or a larger file_size="
        )
    group = F.xxhash64(*map(backquote, partitions)) if partitions else F.lit(0).cast("bigint")
    inputs = [columns.nulls, _tie_of(frame), group, *columns.values]
    wanted = min(_LARGEST_SAMPLE, max(_LEAST_SAMPLE, files * _ROWS_A_FILE))
    sample = _sample_rows(frame, inputs, rows, wanted)
    if not sample.num_rows:  # the rows have changed since they were counted
        return ArrangedFrame(frame, 0)
    nulls, ties, groups = (sample.column(number).to_numpy() for number in range(3))
    names, codes = np.unique(groups, return_inverse=True)
    values = arrow_values(columns.types, sample.columns[3:], nulls)
    arrangement = Arrangement.fit(layout, values, files, ties=ties, groups=codes.astype(np.int64))
    if len(arrangement.cuts.shared) and sample.num_rows == rows:
        frame = frame.repartition(1)  # equal rows are distributed in turn within one task
    kept = set(frame.columns)
    by_value = isinstance(layout, Sort) and not any(arrangement.are_geometries)
    if by_value:
        frame, layout = _with_values(frame, layout, columns)
        columns = LayoutColumns.of(frame, layout)
    tie = inputs[1] if arrangement.needs_ties else F.lit(0).cast("bigint")
    sent = _sent(columns, tie, group if partitions else None)
    slots = partition_numbers(arrangement.files)
    order = _unused_name(frame, "_geoskip_order")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas_udf asks for type hints
        warnings.simplefilter("ignore", FutureWarning)
        task = _key_task(arrangement, columns.types, names if partitions else None, slots)
        keys = pandas_udf(task, "bigint", PandasUDFType.SCALAR_ITER)
    keyed = run_job(lambda: frame.withColumn(order, keys(*sent)))
    shuffled = keyed.repartition(arrangement.files, F.shiftright(backquote(order), _ORDER_BITS))
    within = layout.expressions if by_value else (order,)
    ordered = shuffled.sortWithinPartitions(*map(backquote, (*partitions, *within)))
    return ArrangedFrame(ordered.drop(*(name for name in keyed.columns if name not in kept)), arrangement.files)


def _with_values(frame: DataFrame, layout: Layout, columns: LayoutColumns) -> tuple[DataFrame, Sort]:
    """Add expressions as columns, so that each is computed once; return also the order over these."""
    names = []
    for text, column in zip(layout.expressions, columns.plain, strict=True):
        names.append(text if text in frame.columns else _unused_name(frame, "_geoskip_value"))
        if text not in frame.columns:
            frame = frame.withColumn(names[-1], column)
    return frame, Sort(*names)


def _sent(columns: LayoutColumns, tie: Column, group: Column | None) -> list[Column]:
    """Input columns of workers: NULL marks with the tie in the low bits, the group if any, the values."""
    marks = F.shiftleft(columns.nulls, TIE_BITS).bitwiseOR(tie.bitwiseAND(F.lit((1 << TIE_BITS) - 1)))
    return [marks, *([] if group is None else [group]), *columns.values]


def _key_task(
    arrangement: Arrangement, types: Sequence[pa.DataType], names: Ints | None, slots: Ints
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Function that computes file and sort key, as one number, for each row in a task's batches.

    ``names`` has the groups by number; None if there is only one, which is then not sent.
    """

    def keys(batches: Iterable[Any]) -> Iterator[Any]:
        import pandas as pd

        cache_zip_directories()
        turns = arrangement.cuts.new_turns()
        for first, *values in batches:
            marks = first.to_numpy()
            groups = found = np.zeros(len(marks), np.int64)
            if names is not None:
                found = values.pop(0).to_numpy()
                groups = np.searchsorted(names, found)
                groups[names[np.minimum(groups, len(names) - 1)] != found] = len(names)
            arrays = arrow_values(types, values, marks >> TIE_BITS)
            ordered, files = arrangement.keys_and_files(arrays, ties=marks, groups=groups, turns=turns)
            files = np.where(files < len(slots), files, found % len(slots))  # if the sample lacks the group
            yield pd.Series(slots[files] << _ORDER_BITS | ordered >> max(0, arrangement.key_bits - _ORDER_BITS))

    return keys


def partition_numbers(partitions: int) -> Ints:
    """The smallest longs that Spark's hash assigns to each of the partitions 0, 1, 2, ...

    >>> partition_numbers(4)
    array([ 2,  0, 14,  3])
    """
    found = np.full(partitions, -1, np.int64)
    start, step = 0, 16 * partitions + 64
    while (found < 0).any():
        numbers = np.arange(start, start + step, dtype=np.int64)
        sent = _murmur3(numbers).astype(np.int64) % partitions
        where, first = np.unique(sent, return_index=True)
        where, first = where[found[where] < 0], first[found[where] < 0]
        found[where] = numbers[first]
        start += step
    return found


def _murmur3(numbers: Ints) -> NDArray[np.int32]:
    """Spark's ``hash`` of longs: 32-bit Murmur3 with seed 42."""
    words = numbers.view(np.uint64)
    with np.errstate(over="ignore"):
        h = np.full(len(numbers), 42, np.uint32)
        for word in ((words & np.uint64(0xFFFFFFFF)).astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)):
            k = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            h = _rotate(h ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(8)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32)


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def _tie_of(frame: DataFrame) -> Column:
    """Hash of all columns of a row; maps are hashed as strings, and other unhashable types left out."""
    columns = []
    for field in frame.schema.fields:
        if _has_hash(field.dataType):
            columns.append(F.col(backquote(field.name)))
        elif _has_hash(field.dataType, maps=True):
            columns.append(F.col(backquote(field.name)).cast("string"))
    return F.xxhash64(*columns) if columns else F.lit(0).cast("bigint")


def _has_hash(kind: T.DataType, *, maps: bool = False) -> bool:
    """Test whether Spark can hash a type, or with ``maps`` its string form."""
    match kind:
        case T.StructType():
            return all(_has_hash(field.dataType, maps=maps) for field in kind.fields)
        case T.ArrayType():
            return _has_hash(kind.elementType, maps=maps)
        case T.MapType() if maps:
            return _has_hash(kind.keyType, maps=True) and _has_hash(kind.valueType, maps=True)
        case T.AtomicType() | T.NullType():
            return type(kind).__name__ != "VariantType" and not isinstance(kind, SPARKS_GEOMETRY)
    return False


def _rows_of_size(frame: DataFrame, ordered: pa.Table, file_size: float, codec: str | None) -> float:
    """Estimate the number of rows of a file of a given size from sampled rows in order.

    Files grow less than linearly, since dictionaries are stored once. So eighths, quarters and halves of the sample are
    measured too, and larger files are extrapolated from the growth between the half and the whole.
    """
    if not ordered.num_rows:  # the rows have changed since they were counted
        return float(file_size)
    counts: list[int] = [0]
    sizes: list[float] = [0.0]
    for pieces in (8, 4, 2, 1):
        counts.append(max(1, ordered.num_rows // pieces))
        slices = (ordered.slice(number * counts[-1], counts[-1]) for number in range(pieces))
        mean = sum(parquet_bytes(frame, rows, codec) for rows in slices) / pieces
        sizes.append(max(sizes[-1], mean))
    if file_size <= sizes[-1]:
        return max(1.0, float(np.interp(file_size, sizes, counts)))
    added = (sizes[-1] - sizes[-2]) / max(1, counts[-1] - counts[-2])
    each = max(added, _LEAST_BYTES_A_VALUE * ordered.num_columns)
    return float(counts[-1] + (file_size - sizes[-1]) / each)


def gain_of_neighbours(frame: DataFrame, ordered: pa.Table, rows: int, codec: str | None = None) -> float:
    """Estimate the bytes of a file relative to those of as many sampled rows, at most 1.

    The rows of a file are nearer to each other than sampled ones, so they compress better. The ratio of the bytes of
    sampled rows to those of every second of them is taken for each doubling up to the number of all rows.

    Parameters
    ----------
    frame, ordered
        The rows, and sampled ones in the order of a layout.
    rows
        The number of all rows.
    codec
        Spark's name of the codec; the session's by default.
    """
    half = ordered.num_rows // 2
    if half < _LEAST_HALF or rows <= ordered.num_rows:
        return 1.0
    halves = [ordered.slice(0, half), ordered.slice(half)]
    apart = [ordered.take(np.arange(start, ordered.num_rows, 2)) for start in (0, 1)]
    near, far = (sum(parquet_bytes(frame, part, codec) for part in parts) for parts in (halves, apart))
    doublings = min(_MOST_DOUBLINGS, np.log2(rows / ordered.num_rows))
    return float(min(1.0, near / far) ** doublings)


def rows_in_order(
    frame: DataFrame, layout: Layout, columns: LayoutColumns, rows: int, partitions: Sequence[str]
) -> pa.Table:
    """Sampled rows in the order of a layout, with the columns that are stored in files.

    Parameters
    ----------
    frame, layout
        The rows, and the layout.
    columns
        The layout's expressions over the frame.
    rows
        Number of rows of the frame.
    partitions
        Columns that are not stored in files.
    """
    stored = [name for name in frame.columns if name.lower() not in {given.lower() for given in partitions}]
    selected = arrow_columns(frame, stored)
    kinds = frame.select(*selected).schema.fields
    plain = [_arrow_or_text(column, field.dataType) for column, field in zip(selected, kinds, strict=True)]
    sample = _sample_rows(frame, [columns.nulls, *columns.values, *plain], rows, _ROWS_MEASURED)
    used = 1 + len(columns.values)
    if not sample.num_rows:
        return sample.select(sample.column_names[used:])
    values = arrow_values(columns.types, sample.columns[1:used], sample.column(0).to_numpy())
    keys, _ = Arrangement.fit(layout, values, 1).keys_and_files(values)
    return sample.select(sample.column_names[used:]).take(pc.array_sort_indices(pa.array(keys)))


def parquet_bytes(frame: DataFrame, rows: pa.Table, codec: str | None = None) -> int:
    """Estimate the size of rows as a Parquet file of Spark, with a codec by Spark's name or the session's.

    Unlike Arrow, Spark uses no dictionary for a column that is smaller without one, and stores no Arrow schema.
    """
    name = str(codec or frame.sparkSession.conf.get("spark.sql.parquet.compression.codec")).lower()
    sizes: list[int] = []
    chunks: list[list[Any]] = []
    for use_dictionary in (True, False):
        buffer = io.BytesIO()
        compression = _ARROW_CODECS.get(name, "snappy")
        pq.write_table(rows, buffer, compression=compression, use_dictionary=use_dictionary, store_schema=False)
        sizes.append(buffer.tell())
        found = pq.ParquetFile(buffer).metadata
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        chunks.append([group.column(number) for group in groups for number in range(group.num_columns)])
    saved: int = sum(
        encoded.total_compressed_size - plain.total_compressed_size
        for encoded, plain in zip(*chunks, strict=True)
        if plain.total_uncompressed_size < encoded.total_uncompressed_size
    )
    return sizes[0] - saved


def _arrow_or_text(column: Column, kind: T.DataType) -> Column:
    """A column to collect in the driver: as text if Arrow has no such type."""
    if isinstance(kind, (T.DayTimeIntervalType, T.YearMonthIntervalType)) or type(kind).__name__ == "TimeType":
        return column.cast("string")
    if type(kind).__name__ == "VariantType":
        return F.to_json(F.struct(column))
    return column


def _sample_rows(frame: DataFrame, columns: Sequence[Column], rows: int, wanted: int) -> pa.Table:
    """Expressions for about ``wanted`` sampled rows of a DataFrame, or for all if it has no more."""
    chosen = frame if rows <= wanted else frame.sample(False, min(1.0, wanted / rows), seed=17)
    return collect_table(chosen.select(*(column.alias(f"_{number}") for number, column in enumerate(columns))))


def _unused_name(frame: DataFrame, name: str) -> str:
    taken = {column.lower() for column in frame.columns}
    while name in taken:
        name += "_"
    return name
