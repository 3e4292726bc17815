"""What a build does with one file in a Python worker: Parquet through pyarrow, footers first.

Nothing here imports Spark: the functions are shipped to the workers and tested without a session. A file whose values
Arrow and Spark would read differently is handed back (:data:`SPARK`), to be read by Spark's own reader.

All readers feed the same :class:`Gatherer`, which gives an index a file's values in as few pieces as memory allows:
the summary of a file is then the same whoever read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoskip.indexes.base import Index, Summary

__all__ = ["SPARK", "FileResult", "Gatherer", "Part", "Plan", "one_array", "put_together", "read_files"]

SPARK = "spark"
_ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 256 << 20
_GREGORIAN = -141_427
"""The day (1582-10-15) from which both calendars agree."""
_TIMES_AGREE = -2_208_988_800 * 10**6
"""The microsecond (1900-01-01) from which rebased timestamps agree in all zones."""

_ORDERS_DECIMALS = re.compile(r"parquet-cpp-arrow|parquet-mr version (1\.1\d|[2-9])")
"""Writers whose statistics order the bytes of decimals as numbers; others compared them byte by byte."""


@dataclass(frozen=True)
class Plan:
    """One index to build in a file: its name, the index, the data columns that its expressions are (name, type)."""

    name: str
    index: Index
    columns: tuple[tuple[str, str], ...] = ()


@dataclass
class FileResult:
    """What became of one file. ``problem`` says why it has no summaries; SPARK hands it to Spark's reader.

    ``failures`` says of single indexes why the file has none of theirs.
    """

    path: str
    rows: int | None = None
    summaries: dict[str, Summary | None] = field(default_factory=dict)
    problem: str | None = None
    readers: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """The summaries of some rows of a file, one an index; a text where collecting it failed."""

    rows: int
    summaries: tuple[Summary | str | None, ...]


class Gatherer:
    """Gathers the values of one file, and has them summarised in large pieces.

    ``plans`` are the indexes, each with the numbers of the columns that it takes.
    """

    def __init__(self, plans: Sequence[tuple[Index, tuple[int, ...]]]) -> None:
        self.plans = plans
        self.parts: list[Part] = []
        self._waiting: list[Sequence[pa.Array | pa.ChunkedArray]] = []
        self._rows = 0
        self._bytes = 0

    def add(self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> None:
        """Some rows more: one array a column."""
        self._waiting.append(columns)
        self._rows += rows
        self._bytes += sum(column.nbytes for column in columns)
        if self._rows >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._collect()

    def finish(self) -> list[Part]:
        """The parts, once all rows are there."""
        if self._waiting:
            self._collect()
        return self.parts

    def _collect(self) -> None:
        values = [one_array(pieces) for pieces in zip(*self._waiting, strict=True)]
        found = tuple(_collected(index, [values[n] for n in numbers]) for index, numbers in self.plans)
        self.parts.append(Part(self._rows, found))
        self._waiting, self._rows, self._bytes = [], 0, 0


def _collected(index: Index, values: Sequence[pa.Array]) -> Summary | str | None:
    try:
        return index.collect(*values)
    except Exception as error:  # an index of the user's own must not lose the others their summaries
        return f"{type(error).__name__}: {error}"


def put_together(result: FileResult, plans: Sequence[tuple[str, Index]], parts: Sequence[Part], reader: str) -> None:
    """Put a file's parts into its result; an index of which a part is unknown has no summary of the file."""
    result.rows = sum(part.rows for part in parts)
    for number, (name, index) in enumerate(plans):
        pieces = [part.summaries[number] for part in parts]
        failure = next((piece for piece in pieces if isinstance(piece, str)), None)
        known = [piece for piece in pieces if isinstance(piece, Mapping)]
        result.readers[name] = reader
        result.summaries[name] = None
        if failure is None and known and len(known) == len(pieces):
            try:
                result.summaries[name] = known[0] if len(known) == 1 else index.merge(known)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
        if failure is not None:
            result.failures[name] = failure


# --- Parquet through Arrow --------------------------------------------------------------------------------------------


def read_files(files: Iterable[tuple[str, str]], plans: Sequence[Plan], case_sensitive: bool) -> Iterator[FileResult]:
    """Summaries of Parquet files given as (path to report, local path), each opened once."""
    for path, local in files:
        try:
            yield _read_file(path, local, plans, case_sensitive)
        except (_Differs, NotImplementedError):  # pa.ArrowNotImplementedError: a codec or encoding that Spark may know
            yield FileResult(path, problem=SPARK)
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else repr(error)
            yield FileResult(path, problem=SPARK if _is_encrypted(local) else f"unreadable: {why}")


class _Differs(Exception):
    """Arrow and Spark might read this file differently."""


def _is_encrypted(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            file.seek(-4, os.SEEK_END)
            return file.read() == b"PARE"
    except OSError:
        return False


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
_WIDE = {"string": pa.large_string(), "binary": pa.large_binary()}


def _agrees(kind: str, arrow: pa.DataType) -> bool:
    """Does Arrow's type of a file's column hold the values that Spark reads as ``kind``?"""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if kind in _SIMPLE:
        return arrow.equals(_SIMPLE[kind]) or (kind in _WIDE and arrow.equals(_WIDE[kind]))
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
    arrow = file.schema_arrow.field(names[name]).type
    parts = []
    for group in range(file.metadata.num_row_groups):
        chunk = file.metadata.row_group(group).column(number)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or not statistics.has_null_count:
            return None
        low, high = _ends(statistics, arrow, file.metadata.created_by or "")
        if _is_old(low, kind, file):
            raise _Differs
        part = build(kind, low, high, statistics.null_count, file.metadata.row_group(group).num_rows)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else plan.index.merge(parts)


def _ends(statistics: Any, arrow: pa.DataType, created_by: str) -> tuple[Any, Any]:
    """The least and greatest value, physical: days, microseconds, decimals. Python's dates would end at year 9999."""
    if not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if pa.types.is_decimal(arrow):
        if isinstance(low, bytes):
            if not _ORDERS_DECIMALS.match(created_by):
                return None, None
            low, high = (int.from_bytes(end, "big", signed=True) for end in (low, high))
        return _decimal(low, arrow.scale), _decimal(high, arrow.scale)
    if pa.types.is_timestamp(arrow) and arrow.unit == "ms":
        return low * 1000, high * 1000
    return low, high


def _decimal(unscaled: int, scale: int) -> Decimal:
    """A decimal with all its digits, whatever Python's context says."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _leaf(file: pq.ParquetFile, name: str) -> int:
    found = [number for number in range(len(file.schema)) if file.schema.column(number).path == name]
    if len(found) != 1:  # a nested field's path may look like a name with dots
        raise _Differs
    return found[0]


def _is_old(low: Any, kind: str, file: pq.ParquetFile) -> bool:
    """Is the least of some dates or times before the calendars agree, in a file that may be of the old one?"""
    if low is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    if low >= (_GREGORIAN if kind == "date" else _TIMES_AGREE):
        return False
    said = file.metadata.metadata or {}
    version = said.get(b"org.apache.spark.version", b"")
    return b"org.apache.spark.legacyDateTime" in said or version < b"3.0.0"


def _from_data(file: pq.ParquetFile, plans: Sequence[Plan], names: Mapping[str, str], result: FileResult) -> None:
    wanted = sorted({names[name] for plan in plans for name, _ in plan.columns})
    kinds = {names[name]: kind for plan in plans for name, kind in plan.columns}
    for name in wanted:
        _leaf(file, name)
    numbers = [tuple(wanted.index(names[name]) for name, _ in plan.columns) for plan in plans]
    gatherer = Gatherer([(plan.index, number) for plan, number in zip(plans, numbers, strict=True)])
    for table in _tables(file, wanted):
        columns = [table[name] for name in wanted]
        for name, column in zip(wanted, columns, strict=True):
            if kinds[name] in ("date", "timestamp", "timestamp_ntz") and _is_old(_least(column), kinds[name], file):
                raise _Differs
        gatherer.add(columns, table.num_rows)
    put_together(result, [(plan.name, plan.index) for plan in plans], gatherer.finish(), "arrow")


def _tables(file: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.Table]:
    """The columns of some row groups at a time, as many as are read well at once."""
    if not file.metadata.num_row_groups:
        yield file.schema_arrow.empty_table().select(wanted)
    groups: list[int] = []
    rows = 0
    for group in range(file.metadata.num_row_groups):
        groups.append(group)
        rows += file.metadata.row_group(group).num_rows
        if rows >= _ROWS_AT_ONCE or group == file.metadata.num_row_groups - 1:
            yield file.read_row_groups(groups, columns=wanted, use_threads=False)
            groups, rows = [], 0


def _least(column: pa.ChunkedArray) -> int | None:
    """The least date in days, or time in microseconds."""
    kind = column.type
    days = pa.types.is_date32(kind)
    value: int | None = pc.min(column.cast(pa.int32() if days else pa.int64())).as_py()
    return None if value is None else value if days or kind.unit == "us" else value * 1000


def one_array(pieces: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Arrays and chunked arrays of one type as one array."""
    arrays = [a for piece in pieces for a in (piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece])]
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return pa.array([], pieces[0].type)
    joined = pa.chunked_array(arrays).combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(arrays)
