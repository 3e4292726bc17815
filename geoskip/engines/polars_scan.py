"""Lazy frames of polars over the files that may contain a matching row: :func:`scan_polars`.

Without a condition the frame is an IO source: when it is collected, polars passes it the condition that its optimizer
has pushed down. The files are listed and selected then, in each collection.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import Any

import pyarrow as pa

from geoskip.engines.extras import require_package
from geoskip.engines.files import KeptFiles, files, listing
from geoskip.engines.folder_listing import FolderListing, locate, path_keys, refuse_inside, table_format
from geoskip.engines.iceberg_listing import plan_scan
from geoskip.engines.polars_expression import predicate_of_polars
from geoskip.engines.pyarrow_dataset import kept_files, whole_dataset, without_skipped
from geoskip.engines.scan_reports import remember
from geoskip.errors import InvalidSpecificationError
from geoskip.predicates import TRUE, Predicate
from geoskip.report import Scan
from geoskip.stores.base import Store


def scan_polars(
    path: str | os.PathLike[str],
    where: Any = None,
    *,
    store: Store | None = None,
    metadata: str | None = None,
    dialect: str = "spark",
) -> Any:
    """Return a ``polars.LazyFrame`` over the files that may contain a matching row.

    Parameters
    ----------
    path
        A local folder of Parquet files, optionally with Hive partitions, one file, or a Delta or Iceberg table. For
        Iceberg, the path of a metadata file selects a version.
    where
        With a polars expression, the frame has the matching rows. With None, the frame has all rows, and a ``filter``
        on it reads only the files that it needs; a Python function in such a filter needs the package cloudpickle, in
        ``where`` it does not. With SQL text or a predicate of :mod:`geoskip.predicates`, for conditions that polars
        cannot evaluate, the frame has all rows of the files that may match, and the caller filters them.
    store, metadata
        The store of the metadata, or their folder, if they are not beside the data.
    dialect
        Dialect of SQL text: ``"spark"`` or ``"duckdb"``.

    Returns
    -------
    polars.LazyFrame
        ``geoskip.report(frame)`` shows which files and bytes were skipped, and why not more, once this frame or one
        derived from it is collected. It takes this frame, not the derived one.

    Raises
    ------
    DatasetNotFoundError, InvalidSpecificationError
        For a path that does not exist or has no files, and for a condition that cannot be parsed.
    """
    pl = require_package("polars", "geoskip.scan_polars()")
    root, below = locate(path)
    refuse_inside(os.fspath(path), root, below)
    scanned = _READERS.get(table_format(root), _PolarsDataset)(path, store, metadata)
    if not isinstance(where, pl.Expr):
        if where is not None:
            asked = files(path, where, store=store, metadata=metadata, dialect=dialect, listing=scanned.found)
            scanned.beside, scanned.reasons = asked.predicate, asked.report.noted
        return scanned.source()
    kept = scanned.select_files(where, scanned.found)
    frame = scanned.frame(kept).filter(where)
    remember(frame, lambda: kept.report)
    return frame


class _PolarsDataset:
    """A dataset as polars reads it: with the schema and partition types of all files."""

    def __init__(self, path: str | os.PathLike[str], store: Store | None, metadata: str | None) -> None:
        self.pl = require_package("polars", "geoskip.scan_polars()")
        self.path, self.store, self.metadata = path, store, metadata
        self.report: Scan | None = None
        self.beside: Predicate = TRUE
        self.reasons: tuple[str, ...] = ()
        self.found = listing(path, store=store, metadata=metadata)
        self.start = os.path.abspath(os.fspath(path))
        if not len(self.found) and self.found.table_types is None:
            raise InvalidSpecificationError(f"there are no files in {os.fspath(path)}; give the folder of a dataset")
        self.schema = self._read_schema()

    def _read_schema(self) -> Any:
        """Read the schema of one file in each folder, with the types that polars infers for all partitions."""
        paths = [os.path.join(self.found.root, name) for name in self.found.path.to_pylist()]
        first: dict[str, str] = {}
        for file in paths or [os.path.join(self.found.root, name) for name, _ in self.found.unnameable]:
            first.setdefault(os.path.dirname(file), file)
        sample = list(first.values())
        is_folder = os.path.isdir(self.start)
        self.partitions = path_keys(os.path.relpath(os.path.dirname(sample[0]), self.start)) if is_folder else []
        self.above = [name for name in path_keys(self.start) if name not in self.partitions] if self.partitions else []
        return self._scan(sample, None).collect_schema()

    def _scan(self, paths: Sequence[str], schema: Any) -> Any:
        """Scan files with polars; the columns are those of the schema, or without it those of the first file."""
        types: dict[str, Any] = {}
        if schema is not None:
            types["schema"] = {name: kind for name, kind in schema.items() if name not in self.partitions}
            if self.partitions:
                hive = {name: schema[name] for name in self.partitions}
                types["hive_schema"] = dict.fromkeys(self.above, self.pl.String) | hive
        frame = self.pl.scan_parquet(paths, glob=False, hive_partitioning=bool(self.partitions), **types)
        return frame.drop(self.above) if self.above else frame

    def frame(self, kept: KeptFiles) -> Any:
        """A frame over the kept files, also if there are none."""
        paths = [file.path for file in kept]
        return self._scan(paths, self.schema) if paths else self.pl.LazyFrame(schema=self.schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema without columns of types that Arrow lacks, such as integers of 128 bits."""
        types: dict[str, pa.DataType] = {}
        for name, kind in self.schema.items():
            with suppress(pa.ArrowException):
                types[name] = self.pl.Series(dtype=kind).to_arrow().type
        return pa.schema(types.items())

    def select_files(self, where: Any, found: FolderListing | None = None) -> KeptFiles:
        """Select the files of a listing, or of a new one, that may match a condition; None selects all."""

        def translate(where: Any, columns: Any, schema: pa.Schema, **times: Any) -> tuple[Predicate, list[str]]:
            if where is None:
                return TRUE, [*self.reasons]
            predicate, reasons = predicate_of_polars(where, columns, self.schema, **times)
            return predicate, [*self.reasons, *reasons]

        return kept_files(
            self.path, where, self.arrow_schema, self.store, self.metadata,
            found=found, beside=self.beside, translate=translate,
        )  # fmt: skip

    def source(self) -> Any:
        """A frame that selects its files when it is collected."""
        from polars.io.plugins import register_io_source

        frame = register_io_source(self._rows, schema=self.schema, is_pure=False)
        remember(frame, lambda: self.report)
        return frame

    def _rows(self, columns: list[str] | None, predicate: Any, most: int | None, batch: int | None) -> Iterator[Any]:
        """Read the rows of the files that may match a pushed-down condition.

        If ``most`` is set, the condition applies after this limit, as in ``frame.head(most).filter(predicate)``, so no
        file is skipped.
        """
        kept = self.select_files(predicate if most is None else None)
        self.report = kept.report
        frame = self.frame(kept)
        if most is not None:
            frame = frame.head(most)
        if predicate is not None:
            frame = frame.filter(predicate)
        if columns is not None:
            frame = frame.select(columns)
        if hasattr(frame, "sink_batches"):
            yield from _batches(frame, batch)
        else:
            yield frame.collect()


class _PolarsDeltaTable(_PolarsDataset):
    """A Delta table that polars reads through pyarrow, with the files and partitions of its log."""

    def _read_schema(self) -> Any:
        return self.pl.scan_pyarrow_dataset(whole_dataset(self.path, "geoskip.scan_polars()")).collect_schema()

    def frame(self, kept: KeptFiles) -> Any:
        whole = whole_dataset(self.path, "geoskip.scan_polars()")
        # pyarrow finds NULL to be outside of a list, and comparisons with NaN false; in polars NaN is above all numbers
        return self.pl.scan_pyarrow_dataset(without_skipped(whole, self.path, kept), allow_pyarrow_filter=False)


class _PolarsIcebergTable(_PolarsDataset):
    """An Iceberg table that pyiceberg reads: columns by field id, without deleted rows."""

    def _read_schema(self) -> Any:
        assert self.found.columns is not None
        return self.pl.from_arrow(self.found.columns.arrow().empty_table()).schema

    def frame(self, kept: KeptFiles) -> Any:
        from polars.io.plugins import register_io_source

        arrow, expressions = import_module("pyiceberg.io.pyarrow"), import_module("pyiceberg.expressions")
        table, tasks = plan_scan(kept.listing, set(kept.report.skipped_files()))

        def rows(columns: list[str] | None, predicate: Any, most: int | None, batch: int | None) -> Iterator[Any]:
            names = list(self.schema) if columns is None else columns
            read = {*names, *(predicate.meta.root_names() if predicate is not None else ())} or {*list(self.schema)[:1]}
            schema = table.schema().select(*read)
            for each in schema.fields:
                if _loses_null(each.field_type):
                    raise InvalidSpecificationError(
                        f"the package pyiceberg reads NULL as an empty list or map in the column {each.name} of "
                        f"{self.found.root}; select other columns, or read it through Spark"
                    )
            scan = arrow.ArrowScan(table.metadata, table.io, schema, expressions.AlwaysTrue(), limit=most)
            for found in [scan.to_table([])] if not tasks else scan.to_record_batches(tasks):
                frame = self.pl.from_arrow(found).cast({name: self.schema[name] for name in found.schema.names})
                yield (frame if predicate is None else frame.filter(predicate)).select(names)

        return register_io_source(rows, schema=self.schema, is_pure=True)


_READERS: dict[str | None, type[_PolarsDataset]] = {"Delta": _PolarsDeltaTable, "Iceberg": _PolarsIcebergTable}


def _batches(frame: Any, size: int | None) -> Iterator[Any]:
    """The rows of a frame in batches; raises where a thread fails, unlike ``collect_batches``."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=2)
    is_done = threading.Event()

    def put(batch: Any) -> bool:
        while not is_done.is_set():
            with suppress(queue.Full):
                ready.put(batch, timeout=0.1)
                return False
        return True  # polars ends the query

    def run() -> None:
        end: BaseException | None = None
        try:
            frame.sink_batches(put, chunk_size=size)
        except BaseException as error:  # a failed thread raises no Exception
            end = error
        put((end,))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while not isinstance(batch := ready.get(), tuple):
            yield batch
    finally:
        is_done.set()
        thread.join()
    if batch[0] is not None:
        raise batch[0]


def _loses_null(kind: Any) -> bool:
    """Test for types with a map or a list of nested values: pyiceberg loses their NULLs."""
    if kind.is_struct:
        return any(_loses_null(each.field_type) for each in kind.fields)
    return hasattr(kind, "key_type") or (hasattr(kind, "element_type") and not kind.element_type.is_primitive)
