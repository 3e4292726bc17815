"""Summaries of the files that a layout would write, simulated with sampled rows in memory.

Rows are sampled at random over all files (of the columns that the layout and the indexes need), the layout is fitted to
them as a rewrite fits it, and the rows that it sends to one file are summarised by the indexes' own code. A partitioned
dataset keeps its partitions: no simulated file has rows of two.

*The bias, and what is done about it.* A simulated file has fewer rows than a real one, so its bounds are narrower and
its lists shorter, and a query keeps fewer simulated files than real ones. Up to some hundred thousand rows all are
taken, and there is no bias. Beyond, each file is simulated with half of its sampled rows too, twice: how much more the
whole sample keeps than its halves says how much more all rows would keep
(:func:`~geoskip.advisor.estimates.kept_with_all_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from geoskip.clauses import Mask
from geoskip.errors import DatasetNotFoundError, GeoskipError
from geoskip.indexes.base import Index
from geoskip.indexes.stored_bounds import sharing_results
from geoskip.layout.arrangement import Arrangement
from geoskip.layout.ranks import Ints
from geoskip.layout.specification import Layout
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.sources.arrow_reader import FileResult, RowSummaries, collect_summary, store_summaries
from geoskip.sources.bound_indexes import texts_of
from geoskip.sources.listed_files import ListedFile, is_below
from geoskip.sources.worker_tasks import plain_uri
from geoskip.spark.advisor.scan_conditions import ScanCondition
from geoskip.spark.build.arrange import parquet_bytes, rows_in_order
from geoskip.spark.build.layout_columns import LayoutColumns, arrow_values
from geoskip.spark.build.listing import SourceState
from geoskip.spark.build.spark_jobs import explain_worker_errors, show_progress
from geoskip.spark.build.spark_reader import arrow_columns, restricted_to, with_path

_LEAST_ROWS, _MOST_ROWS = 200_000, 1_000_000
_MOST_MEASURED, _MOST_BYTES_MEASURED = 16, 64 << 20
"""Files that are written to memory to learn their size, and bytes of files that their rows are read from."""
_MOST_BYTES = 4 << 30
"""Bytes of files that rows are sampled from; of a larger dataset some files are read, chosen at random."""


@dataclass(frozen=True)
class SampledRows:
    """Rows of a dataset sampled at random, with what a layout and some indexes need of them.

    Attributes
    ----------
    state
        The dataset.
    layout
        The layout.
    entries
        The indexes, bound, each with the parameters it chose.
    share
        The share of all rows that was sampled.
    ordering
        The values of the layout's expressions, an array each.
    values
        The values of the indexes' expressions by their texts.
    folders, groups
        The URIs of the partitions' folders, and the number of each row's.
    files_read
        Number of files that rows were sampled from.
    """

    state: SourceState
    layout: Layout
    entries: tuple[IndexEntry, ...]
    share: float
    ordering: tuple[pa.Array, ...]
    values: Mapping[str, pa.Array]
    folders: tuple[str, ...]
    groups: Ints
    files_read: int

    @property
    def rows(self) -> int:
        """Number of sampled rows."""
        return len(self.groups)


def sample_rows(
    state: SourceState, layout: Layout, entries: Sequence[IndexEntry], share: float, seed: int = 0
) -> SampledRows:
    """Sample rows of a dataset for a layout and some indexes.

    Parameters
    ----------
    state
        The dataset.
    layout
        The layout.
    entries
        The indexes, bound.
    share
        The share of the rows; at least 200,000 are taken where there are so many, and at most a million.
    seed
        Another number samples other rows.

    Raises
    ------
    InvalidSpecificationError
        For expressions of the layout that the rows lack, or that have no order.
    DatasetNotFoundError
        Where there are no rows.
    """
    LayoutColumns.of(state.frame, layout)  # raises before anything is read
    files = [file for file in state.files if file.is_nameable]
    read, size = _some_files(files, _MOST_BYTES, seed), sum(file.size for file in files)
    frame, path = with_path(restricted_to(state, read))
    with show_progress(state.spark, "counting rows"):
        total = frame.count()
    if not total:
        raise DatasetNotFoundError(f"{state.relation.root} has no rows that {layout} could order")
    wanted = min(_MOST_ROWS, max(_LEAST_ROWS, share * total))
    within = min(1.0, wanted / total)
    sampled = frame if within == 1 else frame.where(F.rand(seed) < within)
    columns = LayoutColumns.of(sampled, layout)
    texts = list(dict.fromkeys(text for entry in entries for text in texts_of(entry.index)))
    folder = F.regexp_replace(path, "/[^/]*$", "") if state.relation.partitions else F.lit("")
    selected = [folder, columns.nulls, *columns.values, *arrow_columns(sampled, texts)]
    numbered: Any = sampled.select(*(column.alias(f"_{number}") for number, column in enumerate(selected)))
    with show_progress(state.spark, "sampling rows"), explain_worker_errors():
        batches = numbered._collect_as_arrow()
    table = pa.Table.from_batches(batches) if batches else None
    if table is None or not table.num_rows:
        raise DatasetNotFoundError(f"{state.relation.root} has no rows that {layout} could order")
    first = 2 + len(columns.values)
    nulls = table.column(1).to_numpy()
    ordering = arrow_values(columns.types, table.columns[2:first], nulls)
    values = {text: table.column(first + number).combine_chunks() for number, text in enumerate(texts)}
    encoded = table.column(0).combine_chunks().dictionary_encode()
    root = state.relation.root.rstrip("/")
    folders = tuple(plain_uri(unquote(name)) if name else root for name in encoded.dictionary.to_pylist())
    groups = encoded.indices.to_numpy().astype(np.int64)
    of_all = within * sum(file.size for file in read) / max(1, size)
    return SampledRows(
        state, layout, tuple(entries), min(1.0, of_all), tuple(ordering), values, folders, groups, len(read)
    )


def _some_files(files: Sequence[ListedFile], most: int, seed: int) -> Sequence[ListedFile]:
    """All files, or random ones of about so many bytes."""
    size = sum(file.size for file in files)
    if size <= most:
        return files
    chosen = np.random.default_rng(seed).choice(len(files), max(1, len(files) * most // size), replace=False)
    return [files[number] for number in sorted(chosen.tolist())]


@dataclass(frozen=True)
class SimulatedLayout:
    """The files of a layout, simulated with sampled rows.

    The first of ``snapshots`` has all sampled rows; where these are not all, two more have half of them each.
    """

    rows: SampledRows
    files: int
    snapshots: tuple[Snapshot, ...]

    @cached_property
    def rows_of_files(self) -> Ints:
        """Sampled rows of each file."""
        return np.asarray(self.snapshots[0].files.column("rows").to_numpy(), dtype=np.int64)

    @cached_property
    def bytes_a_row(self) -> float:
        """The bytes of a row in a file of the layout, by some rows in its order with all of their columns.

        They are written as Parquet in files of as many rows as the layout's have, or in one file if they are fewer.
        """
        state, rows = self.rows.state, self.rows
        files = [file for file in state.files if file.is_nameable]
        some = _some_files(files, _MOST_BYTES_MEASURED, 0)
        frame = restricted_to(state, some)
        layout = LayoutColumns.of(frame, rows.layout)
        ordered = rows_in_order(frame, rows.layout, layout, frame.count(), state.relation.partitions)
        if not ordered.num_rows:
            return 0.0
        each = min(ordered.num_rows, max(1, round(rows.rows / rows.share / self.files)))
        starts = np.linspace(0, ordered.num_rows - each, min(_MOST_MEASURED, ordered.num_rows // each)).astype(int)
        return float(np.mean([parquet_bytes(frame, ordered.slice(start, each)) for start in starts.tolist()]) / each)

    def in_scope(self, scan: ScanCondition) -> Mask:
        """The files that a scan's relation has, and that conditions on partitions do not exclude."""
        snapshot = self.snapshots[0]
        found = np.ones(len(snapshot.files), dtype=bool)
        if list(scan.roots) != list(self.rows.state.relation.roots):
            paths = snapshot.files.column("path").to_pylist()
            found = np.array([is_below(uri, scan.roots) for uri in paths], dtype=bool)
        return found & scan.keep_mask(snapshot, ()) if scan.folders and found.any() else found

    def keep_masks(self, scan: ScanCondition, usable: Sequence[Index]) -> tuple[Mask, ...]:
        """The files that a scan reads, for each simulation."""
        scope = self.in_scope(scan)
        if not usable or not scan.condition:
            return (scope,) * len(self.snapshots)
        return tuple(scope & scan.keep_mask(snapshot, usable) for snapshot in self.snapshots)


def simulate_layout(rows: SampledRows, files: int, seed: int = 0) -> SimulatedLayout:
    """Simulate the files that a layout would write, with the summaries of the indexes.

    Parameters
    ----------
    rows
        Sampled rows.
    files
        The number of files.
    seed
        Another number divides the rows into other halves.

    Raises
    ------
    GeoskipError
        Where an index cannot be collected from any file, by its name.
    """
    arrangement = Arrangement.fit(rows.layout, rows.ordering, min(files, rows.rows), groups=rows.groups)
    numbers = arrangement.files_of(rows.ordering, groups=rows.groups)
    everything = np.ones(rows.rows, dtype=bool)
    parts = [everything]
    if rows.share < 1:
        half = np.random.default_rng(seed).random(rows.rows) < 0.5
        parts += [half, ~half]
    header = Header(rows.state.relation.root, rows.state.relation.to_json(), rows.entries)
    count = int(numbers.max()) + 1
    found = [_summarise_rows(rows, numbers, part, count, header) for part in parts]
    return SimulatedLayout(rows, count, tuple(found))


def _summarise_rows(rows: SampledRows, numbers: Ints, part: Mask, files: int, header: Header) -> Snapshot:
    """Snapshot of the files with some of the sampled rows."""
    chosen = np.flatnonzero(part)
    chosen = chosen[np.argsort(numbers[chosen], kind="stable")]
    starts = np.searchsorted(numbers[chosen], np.arange(files + 1))
    taken = pa.array(chosen)
    values = {text: column.take(taken) for text, column in rows.values.items()}
    plans = [(entry.name, entry.index) for entry in rows.entries]
    columns = [[values[text] for text in texts_of(entry.index)] for entry in rows.entries]
    size = sum(file.size for file in rows.state.files) / max(1, len(chosen))
    results = []
    for number in range(files):
        start, end = int(starts[number]), int(starts[number + 1])
        place = rows.folders[rows.groups[chosen[start]]] if end > start else rows.folders[0]
        with sharing_results():
            summaries = tuple(
                collect_summary(index, [column.slice(start, end - start) for column in some])
                for (_, index), some in zip(plans, columns, strict=True)
            )
        result = FileResult(f"{place}/simulated-{number:06}", size=round(size * (end - start)))
        results.append((result, plans, [RowSummaries(end - start, summaries)]))
    store_summaries(results, "sample")
    for name, _ in plans:
        failures = [result.failures[name] for result, _, _ in results if name in result.failures]
        if len(failures) == len(results):
            raise GeoskipError(f"{name} cannot be collected from any file: {failures[0]}")
    table = build_table(
        rows.entries, [FileRow(r.path, r.size or 0, 0, None, r.rows, r.summaries) for r, _, _ in results]
    )
    identity = f"simulation-{uuid4().hex}"
    return Snapshot(replace(header, identity=identity, files=files), FileMetadata.of(table))
