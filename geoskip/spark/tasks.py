"""What a build does with one file in a Python worker: Parquet through pyarrow, footers first.

Nothing here imports Spark: the functions are shipped to the workers and tested without a session. A file whose values
Arrow and Spark would read differently is handed back (:data:`SPARK`), to be read by Spark's own reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoskip.indexes.base import Index, Summary

__all__ = ["SPARK", "FileResult", "Plan", "read_files"]

SPARK = "spark"
_GREGORIAN = date(1582, 10, 15)
_TIMES_AGREE = datetime(1900, 1, 1)


@dataclass(frozen=True)
class Plan:
    """One index to build in a file: its name, the index, the data columns that its expressions are (name, type)."""

    name: str
    index: Index
    columns: tuple[tuple[str, str], ...] = ()


@dataclass
class FileResult:
    """What became of one file. ``problem`` says why it has no summaries; SPARK hands it to Spark's reader."""

    path: str
    rows: int | None = None
    summaries: dict[str, Summary | None] = field(default_factory=dict)
    problem: str | None = None
    readers: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


def read_files(files: Iterable[tuple[str, str]], plans: Sequence[Plan], case_sensitive: bool) -> Iterator[FileResult]:
    """Summaries of Parquet files given as (path to report, local path), each opened once."""
    for path, local in files:
        try:
            yield _read_file(path, local, plans, case_sensitive)
        except _Differs:
            yield FileResult(path, problem=SPARK)
        except (OSError, pa.ArrowException, ValueError) as error:
            yield FileResult(path, problem=f"unreadable: {str(error).splitlines()[0] if str(error) else error!r}")


class _Differs(Exception):
    """Arrow and Spark might read this file differently."""


def _read_file(path: str, local: str, plans: Sequence[Plan], case_sensitive: bool) -> FileResult:
    with pq.ParquetFile(local) as file:
        names = _resolved(file, plans, case_sensitive)
        result = FileResult(path, rows=file.metadata.num_rows)
        left: list[Plan] = []
        for plan in plans:
            summary = _from_footer(file, plan, names)
            if summary is None:
                left.append(plan)
            else:
                result.summaries[plan.name] = summary
                result.readers[plan.name] = "footers"
        if left:
            _from_data(file, left, names, result)
        return result


def _resolved(file: pq.ParquetFile, plans: Sequence[Plan], case_sensitive: bool) -> dict[str, str]:
    """The file's name of each column, resolved as Spark does; the file differs where that is not clear."""
    schema = file.schema_arrow
    found: dict[str, str] = {}
    for name, kind in {column for plan in plans for column in plan.columns}:
        plain = _unquoted(name)
        matches = [n for n in schema.names if n == plain or (not case_sensitive and n.lower() == plain.lower())]
        if len(matches) != 1 or not _agrees(kind, schema.field(matches[0]).type):
            raise _Differs
        found[name] = matches[0]
    return found


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


_SIMPLE = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "binary": pa.binary(),
    "string": pa.string(),
}


def _agrees(kind: str, arrow: pa.DataType) -> bool:
    """Does Arrow's type of a file's column hold the values that Spark reads as ``kind``?"""
    if kind in _SIMPLE:
        return arrow.equals(_SIMPLE[kind])
    if kind.startswith("decimal("):
        precision, scale = map(int, kind[8:-1].split(","))
        return pa.types.is_decimal(arrow) and (arrow.precision, arrow.scale) == (precision, scale)
    if kind in ("timestamp", "timestamp_ntz"):
        zoned = kind == "timestamp"
        return pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us") and (arrow.tz is not None) == zoned
    return False


def _from_footer(file: pq.ParquetFile, plan: Plan, names: Mapping[str, str]) -> Summary | None:
    """The summary from the row groups' statistics, for an index that can use them; None where they do not suffice."""
    build: Callable[..., Summary | None] | None = getattr(plan.index, "from_statistics", None)
    if build is None or len(plan.columns) != 1:
        return None
    name, kind = plan.columns[0]
    number = _leaf(file, names[name])
    parts = []
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group).column(number).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        rows = file.metadata.row_group(group).num_rows
        low, high = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
        if low is None and statistics.null_count < rows:
            return None
        if low is not None and _old(low, kind, file):
            raise _Differs
        part = build(kind, low, high, statistics.null_count, rows)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else plan.index.merge(parts)


def _leaf(file: pq.ParquetFile, name: str) -> int:
    for number in range(len(file.schema)):
        if file.schema.column(number).path == name:
            return number
    raise _Differs


def _old(value: Any, kind: str, file: pq.ParquetFile) -> bool:
    """Is a date or time before the calendars agree, in a file that may be of the old one?"""
    if kind not in ("date", "timestamp", "timestamp_ntz") or value is None:
        return False
    said = file.metadata.metadata or {}
    if b"org.apache.spark.version" in said and b"org.apache.spark.legacyDateTime" not in said:
        return False
    if kind == "date":
        return bool(value < _GREGORIAN)
    return bool(value.replace(tzinfo=None) < _TIMES_AGREE)


def _from_data(file: pq.ParquetFile, plans: Sequence[Plan], names: Mapping[str, str], result: FileResult) -> None:
    wanted = sorted({names[name] for plan in plans for name, _ in plan.columns})
    kinds = {names[name]: kind for plan in plans for name, kind in plan.columns}
    parts: dict[str, list[Summary | None]] = {plan.name: [] for plan in plans}
    for group in range(max(1, file.metadata.num_row_groups)):
        if file.metadata.num_row_groups:
            table = file.read_row_group(group, columns=wanted, use_threads=False)
        else:
            table = file.schema_arrow.empty_table().select(wanted)
        for name in wanted:
            if kinds[name] in ("date", "timestamp", "timestamp_ntz") and _old(_least(table[name]), kinds[name], file):
                raise _Differs
        for plan in plans:
            values = [one_array(table[names[name]]) for name, _ in plan.columns]
            parts[plan.name].append(plan.index.collect(*values))
    result.bytes += sum(
        file.metadata.row_group(g).column(_leaf(file, name)).total_compressed_size
        for g in range(file.metadata.num_row_groups)
        for name in wanted
    )
    for plan in plans:
        result.summaries[plan.name] = merged(plan.index, parts[plan.name])
        result.readers[plan.name] = "arrow"


def _least(column: pa.ChunkedArray) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        value = pc.min(column.cast(pa.int64())).as_py()
        scale = 1_000_000 if kind.unit == "us" else 1_000
        # only the comparison with 1900 matters, and Python's datetime ends at year 1
        return None if value is None or value >= -2_208_988_800 * scale else datetime(1, 1, 1)
    value = pc.min(column.cast(pa.int32())).as_py()
    return None if value is None or value >= -141_427 else date(1, 1, 1)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def merged(index: Index, parts: Sequence[Summary | None]) -> Summary | None:
    """The summary of a file from those of its parts: unknown where a part is."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return known[0] if len(known) == 1 else index.merge(known)
