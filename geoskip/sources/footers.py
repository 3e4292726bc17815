"""Parquet footers: positions of a build's columns, and summaries from statistics.

A file with values that Arrow and Spark may read differently raises :class:`ReadersDiffer`; Spark's own reader reads it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoskip.indexes.base import Index, Summary
from geoskip.predicates import Column
from geoskip.sources.column_names import matching_names, parts_of_name, unquote_name
from geoskip.types import sql_type

GREGORIAN = -141_427
"""The day (1582-10-15) from which both calendars agree."""
TIMES_AGREE = -2_208_988_800 * 10**6
"""The microsecond (1900-01-01) from which rebased timestamps agree in all zones."""

_ORDERS_BYTES = re.compile(r"parquet-cpp-arrow|parquet-mr version (1\.1\d|[2-9])")
"""Writers that order text statistics by unsigned bytes and decimals as numbers, and do not truncate them.

Other writers compared signed bytes, or store a prefix of long values.
"""


@dataclass(frozen=True)
class IndexPlan:
    """One index to build: its name, the index, and its columns as (name, Spark's type)."""

    name: str
    index: Index
    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, index: Index) -> IndexPlan | None:
        """The plan of an index over columns that Arrow reads as Spark does; None for other indexes."""
        columns = tuple((one.name, one.type or "") for one in index.bound if isinstance(one, Column))
        fits = len(columns) == len(index.bound) and all(is_readable(*column) for column in columns)
        return cls(str(index), index, columns) if fits else None


class ReadersDiffer(Exception):
    """Arrow and Spark might read this file differently."""


@dataclass(frozen=True)
class SchemaLayout:
    """Names and leaf numbers of the plans' columns in files of one schema."""

    arrow: pa.Schema
    parquet: pq.ParquetSchema
    names: Mapping[str, str]
    leaves: Mapping[str, int]

    @cached_property
    def bounded_columns(self) -> Mapping[str, tuple[int, _Decoder | None] | None]:
        """Leaf number and decoder of the statistics, by column.

        None for dictionaries: some writers compute statistics over the dictionary, including unused values.
        """
        kinds = {column: self.arrow.field(name).type for column, name in self.names.items()}
        return {
            column: None if pa.types.is_dictionary(kind) else (self.leaves[self.names[column]], _decoder(kind))
            for column, kind in kinds.items()
        }


class Footer:
    """Footer of one file, with the properties that several plans need looked up once."""

    def __init__(self, file: pq.ParquetFile) -> None:
        metadata = file.metadata
        self.file = file
        self.groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        self.rows = [group.num_rows for group in self.groups]

    @cached_property
    def orders_bytes(self) -> bool:
        """Test whether the file's writer orders text statistics as Spark does."""
        return _ORDERS_BYTES.match(self.file.metadata.created_by or "") is not None


class SchemaLayouts:
    """Layouts of files, computed again only if a file's schema differs from the previous one.

    ``in_footers`` has the names of the indexes that can be summarised from footers.
    """

    def __init__(self, plans: Sequence[IndexPlan], case_sensitive: bool) -> None:
        self.in_footers = {plan.name for plan in plans if _serves_from_footers(plan)}
        self._columns = {column for plan in plans for column in plan.columns}
        self._case_sensitive = case_sensitive
        self._last: SchemaLayout | None = None

    def of(self, file: pq.ParquetFile) -> SchemaLayout:
        """Layout of a file; raises ReadersDiffer if Arrow and Spark may read it differently."""
        arrow, parquet, last = file.schema_arrow, file.schema, self._last
        if last is None or not (last.arrow.equals(arrow) and last.parquet.equals(parquet)):
            names = {name: self._resolve(arrow, name, kind) for name, kind in self._columns}
            last = self._last = SchemaLayout(arrow, parquet, names, _leaves(parquet, set(names.values())))
        return last

    def _resolve(self, schema: pa.Schema, name: str, kind: str) -> str:
        """Name of a column in the file, resolved as in Spark; raises ReadersDiffer if it is ambiguous."""
        names = matching_names(unquote_name(name), schema.names, case_sensitive=self._case_sensitive)
        if len(names) != 1 or not _holds_values_of(kind, schema.field(names[0]).type):
            raise ReadersDiffer
        return names[0]


def _leaves(schema: pq.ParquetSchema, names: Collection[str]) -> dict[str, int]:
    """Leaf numbers of columns; raises ReadersDiffer if a nested field has the path of a column."""
    paths = [schema.column(number).path for number in range(len(schema))]
    if any(paths.count(name) != 1 for name in names):
        raise ReadersDiffer
    return {name: paths.index(name) for name in names}


_WIDE = {"string": pa.large_string(), "binary": pa.large_binary()}


def is_readable(name: str, kind: str) -> bool:
    """Test whether Arrow can read a column as Spark does: a top-level column of a plain type.

    >>> [is_readable(name, "int") for name in ("a", "`a.b`", "`a``.b`", "a.b", "`a`.`b`", "`a`.b.`c`")]
    [True, True, True, False, False, False]
    """
    return len(parts_of_name(name)) == 1 and sql_type(kind).is_plain


def _holds_values_of(kind: str, arrow: pa.DataType) -> bool:
    """Test whether a column of an Arrow type has the values that Spark reads as ``kind``."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    of = sql_type(kind)
    if of.kind == "decimal":
        return pa.types.is_decimal(arrow) and (arrow.precision, arrow.scale) == (of.precision, of.scale)
    if kind in ("timestamp", "timestamp_ntz"):
        zoned = kind == "timestamp"
        return pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us") and (arrow.tz is not None) == zoned
    return of.is_plain and arrow in (of.arrow, _WIDE.get(kind))


def _serves_from_footers(plan: IndexPlan) -> bool:
    """Test whether statistics can suffice for an index: they then suffice for zero rows."""
    if len(plan.columns) != 1:
        return False
    try:
        return plan.index.from_statistics(plan.columns[0][1], None, None, 0, 0) is not None
    except Exception:  # it is tried for each file
        return True


def summary_from_footer(footer: Footer, plan: IndexPlan, layout: SchemaLayout) -> Summary | None:
    """Summary from the row groups' statistics; None if they do not suffice."""
    name, kind = plan.columns[0]
    bounded = layout.bounded_columns[name]
    if bounded is None:
        return None
    number, reading = bounded
    parts = []
    for group, rows in zip(footer.groups, footer.rows, strict=True):
        statistics = group.column(number).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        low, high = _bounds(statistics, reading, footer)
        if may_be_julian(low, kind, footer.file):
            raise ReadersDiffer
        part = plan.index.from_statistics(kind, low, high, statistics.null_count, rows)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else plan.index.merge(parts)


def _bounds(statistics: Any, reading: _Decoder | None, footer: Footer) -> tuple[Any, Any]:
    """Least and greatest physical value (days, microseconds, bytes), since Python's dates end in 9999."""
    if not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if isinstance(low, bytes) and not footer.orders_bytes:
        return None, None
    return (low, high) if reading is None else (reading(low), reading(high))


_Decoder = Callable[[Any], Any]
"""Converts a value of statistics to the form of values in builds."""


def _decoder(kind: pa.DataType) -> _Decoder | None:
    """Decoder of the statistics of a type; None if they hold the values themselves."""
    if pa.types.is_decimal(kind):
        return partial(_decimal, scale=kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        return partial(operator.mul, 1000)
    return None


def _decimal(unscaled: int | bytes, scale: int) -> Decimal:
    """Decimal with all its digits, independent of Python's decimal context."""
    if isinstance(unscaled, bytes):
        unscaled = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def may_be_julian(low: Any, kind: str, file: pq.ParquetFile) -> bool:
    """Test whether the least date or time may be of the Julian calendar, which Spark rebases."""
    if low is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    if low >= (GREGORIAN if kind == "date" else TIMES_AGREE):
        return False
    entries = file.metadata.metadata or {}
    version = entries.get(b"org.apache.spark.version", b"")
    return b"org.apache.spark.legacyDateTime" in entries or version < b"3.0.0"


def least_value(column: pa.ChunkedArray) -> int | None:
    """Least date in days, or least time in microseconds."""
    kind = column.type
    days = pa.types.is_date32(kind)
    value: int | None = pc.min(column.cast(pa.int32() if days else pa.int64())).as_py()
    return None if value is None else value if days or kind.unit == "us" else value * 1000
