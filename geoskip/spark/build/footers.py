"""What a Parquet file's footer says to a build: where the columns are, and the bounds of their values.

A file whose values Arrow and Spark would read differently raises :class:`ReadersDiffer`; it is for Spark's own reader.
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
from geoskip.types import sql_type

__all__ = [
    "ReadersDiffer",
    "Footer",
    "SchemaLayout",
    "SchemaLayouts",
    "IndexPlan",
    "is_old",
    "is_readable",
    "least",
    "summary_of",
    "unquoted",
]

_GREGORIAN = -141_427
"""The day (1582-10-15) from which both calendars agree."""
_TIMES_AGREE = -2_208_988_800 * 10**6
"""The microsecond (1900-01-01) from which rebased timestamps agree in all zones."""

_ORDERS_BYTES = re.compile(r"parquet-cpp-arrow|parquet-mr version (1\.1\d|[2-9])")
"""Writers whose statistics order text by unsigned bytes and the bytes of decimals as numbers, and that do not shorten
them; others compared signed bytes, or keep the beginning of what is long.
"""


@dataclass(frozen=True)
class IndexPlan:
    """One index to build in a file: its name, the index, the data columns that its expressions are (name, type)."""

    name: str
    index: Index
    columns: tuple[tuple[str, str], ...] = ()


class ReadersDiffer(Exception):
    """Arrow and Spark might read this file differently."""


@dataclass(frozen=True)
class SchemaLayout:
    """Where the files of one schema have the columns of the plans: their names in the file, and their leaves."""

    arrow: pa.Schema
    parquet: pq.ParquetSchema
    names: Mapping[str, str]
    leaves: Mapping[str, int]

    @cached_property
    def bounded(self) -> Mapping[str, tuple[int, _Reading | None] | None]:
        """By column its leaf, and what statistics of such a type are read by.

        None for dictionaries, whose statistics some writers took from the dictionary, used or not.
        """
        kinds = {column: self.arrow.field(name).type for column, name in self.names.items()}
        return {
            column: None if pa.types.is_dictionary(kind) else (self.leaves[self.names[column]], _reading(kind))
            for column, kind in kinds.items()
        }


class Footer:
    """One file's footer: what all plans ask of it is looked up once."""

    def __init__(self, file: pq.ParquetFile) -> None:
        metadata = file.metadata
        self.file = file
        self.groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        self.rows = [group.num_rows for group in self.groups]

    @cached_property
    def orders_bytes(self) -> bool:
        """Is the file of a writer whose statistics of text are Spark's?"""
        return _ORDERS_BYTES.match(self.file.metadata.created_by or "") is not None


class SchemaLayouts:
    """The layouts of files; one that is like the last one's is not worked out again.

    ``in_footers`` names the indexes of whose types footers can say all.
    """

    def __init__(self, plans: Sequence[IndexPlan], case_sensitive: bool) -> None:
        self.in_footers = {plan.name for plan in plans if _serves_from_footers(plan)}
        self._columns = {column for plan in plans for column in plan.columns}
        self._case_sensitive = case_sensitive
        self._last: SchemaLayout | None = None

    def of(self, file: pq.ParquetFile) -> SchemaLayout:
        """The layout of a file; raises Differs where Arrow and Spark might read it differently."""
        arrow, parquet, last = file.schema_arrow, file.schema, self._last
        if last is None or not (last.arrow.equals(arrow) and last.parquet.equals(parquet)):
            names = {name: self._resolved(arrow, name, kind) for name, kind in self._columns}
            last = self._last = SchemaLayout(arrow, parquet, names, _leaves(parquet, set(names.values())))
        return last

    def _resolved(self, schema: pa.Schema, name: str, kind: str) -> str:
        """The file's name of a column, found as Spark does; the file differs where that is not clear."""
        plain = unquoted(name)
        found: list[str] = [n for n in schema.names if n == plain]
        if not self._case_sensitive:
            found = [n for n in schema.names if n.lower() == plain.lower()]
        if len(found) != 1 or not _agrees(kind, schema.field(found[0]).type):
            raise ReadersDiffer
        return found[0]


def _leaves(schema: pq.ParquetSchema, names: Collection[str]) -> dict[str, int]:
    """The numbers of some columns; a nested field's path may look like a name with dots, and then the file differs."""
    paths = [schema.column(number).path for number in range(len(schema))]
    if any(paths.count(name) != 1 for name in names):
        raise ReadersDiffer
    return {name: paths.index(name) for name in names}


def unquoted(name: str) -> str:
    """A column's name without backquotes."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


_WIDE = {"string": pa.large_string(), "binary": pa.large_binary()}


def is_readable(name: str, kind: str) -> bool:
    """Might Arrow read such a column as Spark does: one of the top level, of a plain type?"""
    quoted = name.startswith("`") and name.endswith("`") and "`.`" not in name and "`." not in name
    if "." in name and not quoted:
        return False
    return sql_type(kind).is_plain


def _agrees(kind: str, arrow: pa.DataType) -> bool:
    """Does Arrow's type of a file's column hold the values that Spark reads as ``kind``?"""
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
    """Might statistics of its type do? Not if they do not even for no rows."""
    if len(plan.columns) != 1:
        return False
    try:
        return plan.index.from_statistics(plan.columns[0][1], None, None, 0, 0) is not None
    except Exception:  # whoever cannot be asked this is asked about each file
        return True


def summary_of(footer: Footer, plan: IndexPlan, layout: SchemaLayout) -> Summary | None:
    """The summary from the row groups' statistics, for an index that can use them; None where they do not suffice."""
    name, kind = plan.columns[0]
    bounded = layout.bounded[name]
    if bounded is None:
        return None
    number, reading = bounded
    parts = []
    for group, rows in zip(footer.groups, footer.rows, strict=True):
        statistics = group.column(number).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        low, high = _ends(statistics, reading, footer)
        if is_old(low, kind, footer.file):
            raise ReadersDiffer
        part = plan.index.from_statistics(kind, low, high, statistics.null_count, rows)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else plan.index.merge(parts)


def _ends(statistics: Any, reading: _Reading | None, footer: Footer) -> tuple[Any, Any]:
    """The least and greatest value, physical: days, microseconds, bytes. Python's dates would end at year 9999."""
    if not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if isinstance(low, bytes) and not footer.orders_bytes:
        return None, None
    return (low, high) if reading is None else (reading(low), reading(high))


_Reading = Callable[[Any], Any]
"""From what statistics have to a value as builds have it."""


def _reading(kind: pa.DataType) -> _Reading | None:
    """What statistics of a type are read by; None where they have the values themselves."""
    if pa.types.is_decimal(kind):
        return partial(_decimal, scale=kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        return partial(operator.mul, 1000)
    return None


def _decimal(unscaled: int | bytes, scale: int) -> Decimal:
    """A decimal with all its digits, whatever Python's context says."""
    if isinstance(unscaled, bytes):
        unscaled = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def is_old(low: Any, kind: str, file: pq.ParquetFile) -> bool:
    """Is the least of some dates or times before the calendars agree, in a file that may be of the old one?"""
    if low is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    if low >= (_GREGORIAN if kind == "date" else _TIMES_AGREE):
        return False
    said = file.metadata.metadata or {}
    version = said.get(b"org.apache.spark.version", b"")
    return b"org.apache.spark.legacyDateTime" in said or version < b"3.0.0"


def least(column: pa.ChunkedArray) -> int | None:
    """The least date in days, or time in microseconds."""
    kind = column.type
    days = pa.types.is_date32(kind)
    value: int | None = pc.min(column.cast(pa.int32() if days else pa.int64())).as_py()
    return None if value is None else value if days or kind.unit == "us" else value * 1000
