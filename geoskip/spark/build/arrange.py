"""Arranged DataFrames: the rows in the partitions and the order of a layout, one partition a file.

A job counts the rows and another collects a sample of the layout's expressions, by which the arrangement is fitted.
Then each row's file and key are computed by a Python function of whole batches, which gets these expressions alone,
and Spark shuffles the rows by the file and sorts within it.

*No row is lost or doubled*, also where a task of the shuffle runs again: a row's file follows from its values alone, so
that in whatever order the rows come the same go to each file. Between rows of equal keys a hash of the whole row
decides; rows that are equal in that too take turns, and which of equal rows goes where makes no difference.

Spark sends a row to a partition by a hash. So that each file has a partition of its own, files are numbered by whole
numbers whose hashes are 0, 1, 2 and so on.
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
from geoskip.sources.arrow_reader import cache_zip_directories
from geoskip.sources.column_names import backquote
from geoskip.spark.analysis import SPARKS_GEOMETRY
from geoskip.spark.build.layout_columns import LayoutColumns, arrow_values
from geoskip.spark.build.spark_jobs import explain_worker_errors
from geoskip.spark.build.spark_reader import arrow_columns

FILE_SIZE = 128 << 20
"""Bytes of a file where neither files nor their size is given."""
MOST_FILES = 100_000
_ROWS_A_FILE = 400
_LEAST_SAMPLE, _LARGEST_SAMPLE = 50_000, 200_000
_ROWS_MEASURED = 20_000
_LEAST_BYTES_A_VALUE = 0.0025
"""Bytes of a value that repeats: its share of the header of a page, of 20,000 rows at most."""
_ARROW_CODECS = {
    **{name: name for name in ("snappy", "gzip", "zstd", "lz4", "brotli", "none")},
    "lz4_raw": "lz4", "uncompressed": "none",
}  # fmt: skip
"""Arrow's names of the codecs by Spark's; what Arrow cannot write counts as snappy."""
_ORDER_BITS = 40
"""Bits of a row's key beside the number of its file."""


@dataclass(frozen=True)
class ArrangedFrame:
    """A DataFrame to be written as it is: its partitions are the files, in the order of the layout."""

    frame: DataFrame
    files: int


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
        The rows; read two or three times, so cache what is expensive to compute.
    layout
        The specification.
    files
        The number of files, or fewer where there are fewer rows.
    file_size
        Instead of ``files``: the bytes of a file, by the size of a sample of the rows as Parquet.
    partitions
        Columns whose values no file has two of. Each combination of values has files in proportion to its rows, at
        least one.
    codec
        The codec of the files, as Spark names it; the session's by default.

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
        files = max(1, round(rows / _rows_of_size(frame, ordered, file_size or 1, codec)))
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
        frame = frame.repartition(1)  # equal rows take turns within a task
    tie = inputs[1] if arrangement.needs_ties else F.lit(0).cast("bigint")
    sent = _sent(columns, tie, group if partitions else None)
    slots = partition_numbers(arrangement.files)
    order = _unused_name(frame, "_geoskip_order")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it asks for type hints
        warnings.simplefilter("ignore", FutureWarning)
        task = _key_task(arrangement, columns.types, names if partitions else None, slots)
        keys = pandas_udf(task, "bigint", PandasUDFType.SCALAR_ITER)
    with explain_worker_errors():
        keyed = frame.withColumn(order, keys(*sent))
    shuffled = keyed.repartition(arrangement.files, F.shiftright(backquote(order), _ORDER_BITS))
    by_value = isinstance(layout, Sort) and not any(arrangement.are_geometries)
    within = LayoutColumns.of(shuffled, layout).plain if by_value else (backquote(order),)
    ordered = shuffled.sortWithinPartitions(*map(backquote, partitions), *within)
    return ArrangedFrame(ordered.drop(order), arrangement.files)


def _sent(columns: LayoutColumns, tie: Column, group: Column | None) -> list[Column]:
    """Columns that workers get: NULLs above the tie, the group if there are several, the values."""
    marks = F.shiftleft(columns.nulls, TIE_BITS).bitwiseOR(tie.bitwiseAND(F.lit((1 << TIE_BITS) - 1)))
    return [marks, *([] if group is None else [group]), *columns.values]


def _key_task(
    arrangement: Arrangement, types: Sequence[pa.DataType], names: Ints | None, slots: Ints
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Function that returns the files and keys of the rows in a task's batches, as one number each.

    ``names`` are the groups by number; None where there is one, which is then not sent.
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
            files = np.where(files < len(slots), files, found % len(slots))  # of a partition that the sample lacks
            yield pd.Series(slots[files] << _ORDER_BITS | ordered >> max(0, arrangement.key_bits - _ORDER_BITS))

    return keys


def partition_numbers(partitions: int) -> Ints:
    """The least numbers that Spark's hash of a long sends to partitions 0, 1, 2 and so on of so many.

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
    """Spark's ``hash`` of longs: Murmur3 of 32 bits with the seed 42."""
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
    """Hash of all columns of a row, of maps as they are written; types that have neither are left out."""
    columns = []
    for field in frame.schema.fields:
        if _has_hash(field.dataType):
            columns.append(F.col(backquote(field.name)))
        elif _has_hash(field.dataType, maps=True):
            columns.append(F.col(backquote(field.name)).cast("string"))
    return F.xxhash64(*columns) if columns else F.lit(0).cast("bigint")


def _has_hash(kind: T.DataType, *, maps: bool = False) -> bool:
    """Test whether Spark hashes a type, or, with ``maps``, does so where it is written as a string."""
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


def _rows_of_size(frame: DataFrame, ordered: pa.Table, file_size: int, codec: str | None) -> float:
    """The rows of a file of a size, by sampled rows in order.

    A file grows by less with every row, as dictionaries are stored once: so eighths, quarters and halves of the rows
    are measured too, and a larger file is taken to grow further as from a half to the whole.
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


def rows_in_order(
    frame: DataFrame, layout: Layout, columns: LayoutColumns, rows: int, partitions: Sequence[str]
) -> pa.Table:
    """Sampled rows in the order of a layout, with the columns that files store.

    Parameters
    ----------
    frame, layout
        The rows, and the layout.
    columns
        The layout's expressions over the frame.
    rows
        Number of rows of the frame.
    partitions
        Columns that files do not store.
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
    keys = Arrangement.fit(layout, values, 1).keys(values)
    return sample.select(sample.column_names[used:]).take(pc.array_sort_indices(keys))


def parquet_bytes(frame: DataFrame, rows: pa.Table, codec: str | None = None) -> int:
    """The bytes of rows as a Parquet file of Spark's, by a codec as Spark names it, else the session's.

    Unlike Arrow, Spark stores no dictionary of a column that is shorter without one, and no schema of Arrow's.
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
    """A column that goes to the driver: as text where Arrow has no such type."""
    if isinstance(kind, (T.DayTimeIntervalType, T.YearMonthIntervalType)) or type(kind).__name__ == "TimeType":
        return column.cast("string")
    if type(kind).__name__ == "VariantType":
        return F.to_json(F.struct(column))
    return column


def _sample_rows(frame: DataFrame, columns: Sequence[Column], rows: int, wanted: int) -> pa.Table:
    """Expressions of about so many rows of a DataFrame, of all where it has no more."""
    chosen = frame if rows <= wanted else frame.sample(False, min(1.0, wanted / rows), seed=17)
    numbered: Any = chosen.select(*(column.alias(f"_{number}") for number, column in enumerate(columns)))
    with explain_worker_errors():
        batches = numbered._collect_as_arrow()
    names = numbered.columns
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.array([], pa.int64()) for name in names})


def _unused_name(frame: DataFrame, name: str) -> str:
    taken = {column.lower() for column in frame.columns}
    while name in taken:
        name += "_"
    return name
