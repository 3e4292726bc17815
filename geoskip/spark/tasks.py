"""What a build does with one file in a Python worker: Parquet through pyarrow, footers first.

Nothing here imports Spark: the functions are shipped to the workers and tested without a session. A file whose values
Arrow and Spark would read differently is handed back (:data:`SPARK`), to be read by Spark's own reader.

All readers feed the same :class:`Gatherer`, which gives an index a file's values in as few pieces as memory allows:
the summary of a file is then the same whoever read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    layouts = _Layouts(plans, case_sensitive)
    for path, local in files:
        try:
            with pa.OSFile(local) as opened:
                result = _read_file(path, pq.ParquetFile(opened), plans, layouts)
        except (_Differs, NotImplementedError):  # pa.ArrowNotImplementedError: a codec or encoding that Spark may know
            result = FileResult(path, problem=SPARK)
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else repr(error)
            result = FileResult(path, problem=SPARK if _is_encrypted(local) else f"unreadable: {why}")
        yield result


class _Differs(Exception):
    """Arrow and Spark might read this file differently."""


def _is_encrypted(local: str) -> bool:
    try:
        with open(local, "rb") as file:
            file.seek(-4, os.SEEK_END)
            return file.read() == b"PARE"
    except OSError:
        return False


def _read_file(path: str, file: pq.ParquetFile, plans: Sequence[Plan], layouts: _Layouts) -> FileResult:
    layout = layouts.of(file)
    result = FileResult(path, rows=file.metadata.num_rows)
    left: list[Plan] = []
    for plan in plans:
        summary = _from_footer(file, plan, layout) if plan.name in layouts.in_footers else None
        if summary is None:
            left.append(plan)
        else:
            result.summaries[plan.name] = summary
            result.readers[plan.name] = "footers"
    if left:
        _from_data(file, left, layout, result)
    return result


@dataclass(frozen=True)
class _Layout:
    """Where the files of one schema have the columns of the plans: their names in the file, and their leaves."""

    arrow: pa.Schema
    parquet: pq.ParquetSchema
    names: Mapping[str, str]
    leaves: Mapping[str, int]


class _Layouts:
    """The layouts of files; one that is like the last one's is not worked out again.

    ``in_footers`` names the indexes of whose types footers can say all.
    """

    def __init__(self, plans: Sequence[Plan], case_sensitive: bool) -> None:
        self.in_footers = {plan.name for plan in plans if _serves_from_footers(plan)}
        self._columns = {column for plan in plans for column in plan.columns}
        self._case_sensitive = case_sensitive
        self._last: _Layout | None = None

    def of(self, file: pq.ParquetFile) -> _Layout:
        """The layout of a file; raises _Differs where Arrow and Spark might read it differently."""
        arrow, parquet, last = file.schema_arrow, file.schema, self._last
        if last is None or not (last.arrow.equals(arrow) and last.parquet.equals(parquet)):
            names = {name: self._resolved(arrow, name, kind) for name, kind in self._columns}
            last = self._last = _Layout(arrow, parquet, names, _leaves(parquet, set(names.values())))
        return last

    def _resolved(self, schema: pa.Schema, name: str, kind: str) -> str:
        """The file's name of a column, found as Spark does; the file differs where that is not clear."""
        plain = _unquoted(name)
        found: list[str] = [n for n in schema.names if n == plain]
        if not self._case_sensitive:
            found = [n for n in schema.names if n.lower() == plain.lower()]
        if len(found) != 1 or not _agrees(kind, schema.field(found[0]).type):
            raise _Differs
        return found[0]


def _leaves(schema: pq.ParquetSchema, names: Collection[str]) -> dict[str, int]:
    """The numbers of some columns; a nested field's path may look like a name with dots, and then the file differs."""
    paths = [schema.column(number).path for number in range(len(schema))]
    if any(paths.count(name) != 1 for name in names):
        raise _Differs
    return {name: paths.index(name) for name in names}


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


def _serves_from_footers(plan: Plan) -> bool:
    """Might statistics of its type do? Not if they do not even for no rows."""
    build: Callable[..., Summary | None] | None = getattr(plan.index, "from_statistics", None)
    if build is None or len(plan.columns) != 1:
        return False
    try:
        return build(plan.columns[0][1], None, None, 0, 0) is not None
    except Exception:  # whoever cannot be asked this is asked about each file
        return True


def _from_footer(file: pq.ParquetFile, plan: Plan, layout: _Layout) -> Summary | None:
    """The summary from the row groups' statistics, for an index that can use them; None where they do not suffice."""
    build: Callable[..., Summary | None] = plan.index.from_statistics  # type: ignore[attr-defined]
    name, kind = plan.columns[0]
    number = layout.leaves[layout.names[name]]
    arrow = layout.arrow.field(layout.names[name]).type
    footer = file.metadata
    parts = []
    for place in range(footer.num_row_groups):
        group = footer.row_group(place)
        chunk = group.column(number)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or not statistics.has_null_count:
            return None
        low, high = _ends(statistics, arrow, footer)
        if _is_old(low, kind, file):
            raise _Differs
        part = build(kind, low, high, statistics.null_count, group.num_rows)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else plan.index.merge(parts)


def _ends(statistics: Any, arrow: pa.DataType, footer: pq.FileMetaData) -> tuple[Any, Any]:
    """The least and greatest value, physical: days, microseconds, decimals. Python's dates would end at year 9999."""
    if not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if pa.types.is_decimal(arrow):
        if isinstance(low, bytes):
            if not _ORDERS_DECIMALS.match(footer.created_by or ""):
                return None, None
            low, high = (int.from_bytes(end, "big", signed=True) for end in (low, high))
        return _decimal(low, arrow.scale), _decimal(high, arrow.scale)
    if pa.types.is_timestamp(arrow) and arrow.unit == "ms":
        return low * 1000, high * 1000
    return low, high


def _decimal(unscaled: int, scale: int) -> Decimal:
    """A decimal with all its digits, whatever Python's context says."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _is_old(low: Any, kind: str, file: pq.ParquetFile) -> bool:
    """Is the least of some dates or times before the calendars agree, in a file that may be of the old one?"""
    if low is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    if low >= (_GREGORIAN if kind == "date" else _TIMES_AGREE):
        return False
    said = file.metadata.metadata or {}
    version = said.get(b"org.apache.spark.version", b"")
    return b"org.apache.spark.legacyDateTime" in said or version < b"3.0.0"


def _from_data(file: pq.ParquetFile, plans: Sequence[Plan], layout: _Layout, result: FileResult) -> None:
    names = layout.names
    wanted = sorted({names[name] for plan in plans for name, _ in plan.columns})
    kinds = {names[name]: kind for plan in plans for name, kind in plan.columns}
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
