"""Datasets of pyarrow over the files that may contain a matching row: :func:`pyarrow_dataset`.

The dataset is pyarrow's own dataset of the folder, with its schema, partition types and file order, minus the files
that metadata exclude. Files that only pyarrow lists are kept.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from geoskip.engines.arrow_expression import predicate_of_arrow
from geoskip.engines.constant_bounds import OF_INT96
from geoskip.engines.delta_listing import is_mapped, open_table
from geoskip.engines.files import File, KeptFiles, files, listing
from geoskip.engines.folder_listing import (
    FolderListing,
    list_files,
    locate,
    refuse_inside,
    refuse_unlike,
    table_format,
)
from geoskip.engines.parquet_values import int96_leaves
from geoskip.engines.scan_reports import remember
from geoskip.engines.usable_indexes import tested_for_null
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.predicates import FALSE, TRUE, And, Predicate
from geoskip.report import Scan, count_of
from geoskip.sources.column_names import parts_of_name
from geoskip.stores.base import Store
from geoskip.types import SqlType, sql_type

_CALLER = "geoskip.pyarrow_dataset()"
_THREADS = 8


def pyarrow_dataset(
    path: str | os.PathLike[str],
    where: Any = None,
    *,
    store: Store | None = None,
    metadata: str | None = None,
    dialect: str = "spark",
) -> ds.Dataset:
    """Return a ``pyarrow.dataset.Dataset`` over the files that may contain a matching row.

    Parameters
    ----------
    path
        A local folder of Parquet files, optionally with Hive partitions (``day=2024-01-05``), or a Delta or Iceberg
        table. For Iceberg, the path of a metadata file selects a version.
    where
        With a ``pyarrow.compute.Expression``, the dataset has the matching rows, as with ``dataset.filter(where)``.
        With SQL text or a predicate of :mod:`geoskip.predicates`, for conditions that pyarrow cannot evaluate, the
        dataset has all rows of the kept files, and the caller filters them.
    store, metadata
        The store of the metadata, or their folder, if they are not beside the data.
    dialect
        Dialect of SQL text: ``"spark"`` or ``"duckdb"``.

    Returns
    -------
    pyarrow.dataset.Dataset
        ``geoskip.report(dataset)`` shows which files and bytes were skipped, and why not more.

    Raises
    ------
    DatasetNotFoundError, InvalidSpecificationError
        For a path that does not exist, a condition that cannot be parsed, and tables that pyarrow would read wrongly:
        with deleted rows in files, or with columns that have other names in some files.
    """
    whole = whole_dataset(path, _CALLER)
    is_expression = isinstance(where, pc.Expression)
    kept = (
        kept_files(path, where, whole.schema, store, metadata)
        if is_expression
        else files(path, where, store=store, metadata=metadata, dialect=dialect)
    )
    dataset = without_skipped(whole, path, kept)
    if kept.listing.columns is not None:
        kept.listing.columns.refuse_files(dataset.files, _CALLER)
    if is_expression:
        dataset = dataset.filter(where)
    remember(dataset, lambda: kept.report)
    return dataset


def whole_dataset(path: str | os.PathLike[str], caller: str) -> Any:
    """The dataset of all files: pyarrow's, or for a table that of deltalake or of pyiceberg's file list."""
    root, below = locate(path)  # raises an error that explains a wrong path
    refuse_inside(os.fspath(path), root, below)
    kind = table_format(root)
    if kind == "Delta":
        return _of_delta(path, caller)
    if kind is None:
        return ds.dataset(os.path.abspath(os.fspath(path)), format="parquet", partitioning="hive")
    found = refuse_unlike(list_files(root, below), caller)
    assert found.columns is not None
    form, system, head = ds.ParquetFileFormat(), LocalFileSystem(), found.root.rstrip("/") + "/"
    fragments = [form.make_fragment(head + name, system) for name in found.path.to_pylist()]
    return ds.FileSystemDataset(fragments, found.columns.arrow(), form, system)


def _of_delta(path: str | os.PathLike[str], caller: str) -> Any:
    """The dataset of a Delta table, with partition values but without the log's statistics.

    Arrow cannot use the statistics as bounds, because it compares NaN differently from Delta: they would lose matching
    rows and include others.
    """
    try:
        table = open_table(os.fspath(path), f"{caller} of a Delta table")
        if is_mapped(table.metadata()):
            raise ValueError("its columns have other names in the files (column mapping)")
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        whole = table.to_pyarrow_dataset(parquet_read_options=options)
        names = set(table.metadata().partition_columns)
    except GeoskipError:
        raise
    except Exception as error:  # deletion vectors and other features that need a Delta reader
        raise InvalidSpecificationError(
            f"{os.fspath(path)} is a Delta table that the package deltalake cannot give to pyarrow: {error}; read it "
            "through Spark, or run OPTIMIZE and REORG TABLE ... APPLY (PURGE) where it has deletion vectors"
        ) from error
    form, system = whole.format, whole.filesystem
    fragments = [
        form.make_fragment(one.path, system, _partition(one.partition_expression, names))
        for one in whole.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, whole.schema, form, system)


def _partition(known: pc.Expression, names: Collection[str]) -> pc.Expression:
    """The part of a fragment's guarantee that gives its partition values."""
    values = ds.get_partition_keys(known) if names else {}
    fields = [(pc.field(name), values[name]) for name in names if name in values]
    parts = [field.is_null() if value is None else field == value for field, value in fields]
    return reduce(operator.and_, parts, pc.scalar(True))


def without_skipped(whole: Any, path: str | os.PathLike[str], kept: KeptFiles) -> Any:
    """The dataset without the skipped files."""
    folder = os.path.abspath(os.fspath(path))
    fragments = {os.path.join(folder, one.path): one for one in whole.get_fragments()}
    skipped = set(kept.report.skipped_files()) & fragments.keys()
    if names := tested_for_null(kept.predicate):
        _keep_other_spellings({file: fragments[file] for file in sorted(skipped)}, names, kept)
        skipped &= set(kept.report.skipped_files())
    left = [one for file, one in fragments.items() if file not in skipped]
    return ds.FileSystemDataset(left, whole.schema, whole.format, whole.filesystem)


def _keep_other_spellings(skipped: Mapping[str, Any], names: Collection[str], kept: KeptFiles) -> None:
    """Keep the skipped files in which pyarrow finds NULL, since they spell a column otherwise.

    Parameters
    ----------
    skipped
        The fragments of the skipped files by path.
    names
        The columns of which NULL may satisfy the condition.
    kept
        The selected files, whose report is corrected.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        schemas = pool.map(lambda one: one.physical_schema, skipped.values())
        more = [
            file
            for file, schema in zip(skipped, schemas, strict=True)
            if any(_is_spelt_otherwise(parts_of_name(name), list(schema)) for name in names)
        ]
    if more:
        kept.report = _report_with(kept.report, more, "they spell a column otherwise, in which pyarrow finds NULL")


def _report_with(old: Scan, more: Sequence[str], why: str) -> Scan:
    """The report of a scan that reads more files, for a reason."""
    return replace(
        old,
        files_kept=old.files_kept + len(more),
        bytes_kept=old.bytes_kept + sum(map(os.path.getsize, more)),
        noted=(*old.noted, f"read, since {why}: {count_of(len(more), 'file')}"),
        paths=lambda are_kept: [*old.kept_files(), *more] if are_kept else sorted({*old.skipped_files()} - {*more}),
    )


def _is_spelt_otherwise(path: Sequence[str], fields: Sequence[pa.Field]) -> bool:
    """True if a file has a column or a nested field with another case than asked, and not with the same.

    >>> fields = [pa.field("a", pa.struct([("b", pa.int8())]))]
    >>> [_is_spelt_otherwise(path, fields) for path in (["a"], ["A"], ["c"], ["a", "b"], ["a", "B"])]
    [False, True, False, False, True]
    """
    found = [each for each in fields if each.name == path[0]]
    if not found:
        return any(each.name.lower() == path[0].lower() for each in fields)
    return len(path) > 1 and pa.types.is_struct(found[0].type) and _is_spelt_otherwise(path[1:], list(found[0].type))


def kept_files(
    path: str | os.PathLike[str],
    where: Any,
    schema: pa.Schema,
    store: Store | None = None,
    metadata: str | None = None,
    *,
    found: FolderListing | None = None,
    beside: Predicate = TRUE,
    translate: Any = predicate_of_arrow,
) -> KeptFiles:
    """Select files by an engine's condition, given the types that the engine reads.

    Parameters
    ----------
    path, store, metadata
        The dataset and its metadata.
    where
        The engine's condition.
    schema
        The Arrow types that the engine reads. Columns that it reads with other values than Spark are not used.
    found
        The listing of the dataset, if it exists already.
    beside
        A predicate that the rows must also satisfy.
    translate
        The translator of the engine's conditions, given the condition, Spark's types by column, and the schema.
    """
    found = found or listing(path, store=store, metadata=metadata)
    about = files(path, FALSE, store=store, metadata=metadata, listing=found)
    columns = agreed_columns(about.columns, schema, about.partition_columns)

    def matching(predicate: Predicate) -> KeptFiles:
        both = And((beside, predicate)) if beside != TRUE else predicate
        return files(path, both, store=store, metadata=metadata, listing=found)

    predicate, reasons = translate(where, columns, schema)
    kept = matching(predicate)
    kept.report = replace(kept.report, noted=tuple(dict.fromkeys([*reasons, *kept.report.noted])))
    if kept.report.files_skipped and table_format(locate(path)[0]) == "Delta":  # whose INT96 is read in microseconds
        weaker, _ = translate(where, columns, schema, exact_times=OF_INT96)
        if weaker != predicate:
            _keep_int96(kept, matching(weaker))
    return kept


def _keep_int96(kept: KeptFiles, more: KeptFiles) -> None:
    """Keep those of more files that hold INT96, in which Arrow may find other times than Spark."""
    already = {file.path for file in kept}
    doubtful = [file for file in more if file.path not in already]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = [file for file, holds in zip(doubtful, pool.map(_holds_int96, doubtful), strict=True) if holds]
    if found:
        kept[:] = sorted([*kept, *found], key=lambda file: file.path)
        why = "they hold times as INT96, of which pyarrow may read some before 1970 as others"
        kept.report = _report_with(kept.report, [file.path for file in found], why)


def _holds_int96(file: File) -> bool:
    """Test the columns of a file, True for one that cannot be read."""
    try:
        return bool(int96_leaves(pq.read_metadata(file.path).schema))
    except (OSError, pa.ArrowException):
        return True


def agreed_columns(
    columns: Mapping[str, str | None], schema: pa.Schema, partitions: Collection[str] = ()
) -> dict[str, str]:
    """Spark's types of the columns that an engine with this schema reads with the same values.

    Integers in the names of ``partitions`` may have another width.

    >>> schema = pa.schema([("a", pa.int32()), ("x", pa.float32()), ("day", pa.string())])
    >>> agreed_columns({"a": "bigint", "x": "double", "day": "date", "other": "int"}, schema)
    {'a': 'bigint'}
    """
    found = {}
    for name, kind in columns.items():
        if kind is not None and schema.names.count(name) == 1:
            arrow, known = schema.field(name).type, sql_type(kind)
            in_path = name in partitions and pa.types.is_integer(arrow) and known.is_integral
            if in_path or _agrees(arrow, known):
                found[name] = kind
    return found


def _agrees(arrow: pa.DataType, kind: SqlType) -> bool:
    """Test whether reading a Spark type as an Arrow type gives the same values, or fails."""
    if pa.types.is_dictionary(arrow):
        return _agrees(arrow.value_type, kind)
    if pa.types.is_integer(arrow):
        bits = arrow.bit_width + pa.types.is_unsigned_integer(arrow)
        return kind.is_integral and bits <= (kind.values.stop - 1).bit_length() + 1
    if pa.types.is_decimal(arrow):
        return kind.is_decimal and arrow.scale == kind.scale and arrow.precision <= kind.precision
    if pa.types.is_struct(arrow):
        fields = dict(kind.fields)
        return set(fields) >= {field.name for field in arrow} and all(_agrees(f.type, fields[f.name]) for f in arrow)
    if pa.types.is_timestamp(arrow):
        return kind.kind in ("timestamp", "timestamp_ntz")
    if pa.types.is_fixed_size_binary(arrow):
        return kind.kind == "binary"
    name = str(arrow).removeprefix("large_").removesuffix("_view")
    return kind.is_plain and name == str(kind.arrow)
