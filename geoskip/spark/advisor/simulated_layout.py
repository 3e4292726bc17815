"""Summaries of the files that a layout would write, simulated with sampled rows in memory.

Rows are sampled at random over all files (only the columns that the layout and the indexes need). The layout is fitted
to them as in a rewrite, and the rows of each simulated file are summarised by the indexes' own code. A partitioned
dataset keeps its partitions: no simulated file has rows of two partitions.

*Bias.* A simulated file has fewer rows than a real one, so its bounds are narrower and its lists shorter, and a query
keeps fewer simulated files than real ones. Up to some hundred thousand rows, all rows are used and there is no bias.
For more rows, each file is also simulated with each half of its sampled rows. The number of files kept with all rows is
then extrapolated from the numbers with the whole sample and with its halves
(:func:`~geoskip.advisor.estimates.kept_with_all_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from geoskip.advisor.estimates import NOTHING, Estimate
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
from geoskip.sources.listed_files import ListedFile
from geoskip.sources.worker_tasks import plain_uri
from geoskip.spark.advisor.scan_conditions import ScanCondition
from geoskip.spark.analysis import check_types
from geoskip.spark.build.arrange import gain_of_neighbours, parquet_bytes, rows_in_order
from geoskip.spark.build.layout_columns import LayoutColumns, arrow_values
from geoskip.spark.build.listing import SourceState
from geoskip.spark.build.spark_jobs import collect_table, show_progress
from geoskip.spark.build.spark_reader import arrow_columns, restricted_to, with_path

_LEAST_ROWS, _MOST_ROWS = 200_000, 1_000_000
_MOST_MEASURED, _MOST_BYTES_MEASURED = 16, 64 << 20
"""Maximum number of files written to memory to measure their size, and of bytes of files to read rows for them from."""
_SIZE_SLACK = 0.15
"""Relative margin of the estimated size of a layout's files, in both directions."""
_MOST_BYTES = 4 << 30
"""Maximum number of bytes of files to sample rows from; of a larger dataset random files are read."""


@dataclass(frozen=True)
class SampledRows:
    """Randomly sampled rows of a dataset, with the expressions of a layout and of some indexes.

    Attributes
    ----------
    state
        The dataset.
    layout
        The layout.
    entries
        The bound indexes, with the parameters that they have chosen.
    share
        The fraction of all rows that was sampled.
    ordering
        The values of the layout's expressions, one array for each.
    values
        The values of the indexes' expressions by text.
    folders, groups
        The URIs of the partitions' folders, and for each row the number of its folder.
    files_read
        The number of files from which rows were sampled.
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
        The bound indexes.
    share
        The fraction of rows to sample, but at least 200,000 rows (or all) and at most a million.
    seed
        Seed of the sample.

    Raises
    ------
    InvalidSpecificationError
        For expressions of the layout that are invalid for the rows, or have no order.
    DatasetNotFoundError
        If there are no rows.
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
    numbered = sampled.select(*(column.alias(f"_{number}") for number, column in enumerate(selected)))
    with show_progress(state.spark, "sampling rows"):
        table = collect_table(numbered)
    if not table.num_rows:
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
    """All files, or random ones with about ``most`` bytes."""
    size = sum(file.size for file in files)
    if size <= most:
        return files
    chosen = np.random.default_rng(seed).choice(len(files), max(1, len(files) * most // size), replace=False)
    return [files[number] for number in sorted(chosen.tolist())]


@dataclass(frozen=True)
class SimulatedLayout:
    """The files of a layout, simulated with sampled rows.

    The first of ``snapshots`` has all sampled rows. If not all rows were sampled, two more have one half each.
    """

    rows: SampledRows
    files: int
    snapshots: tuple[Snapshot, ...]

    @cached_property
    def rows_of_files(self) -> Ints:
        """Number of sampled rows of each file."""
        return np.asarray(self.snapshots[0].files.column("rows").to_numpy(), dtype=np.int64)

    @cached_property
    def bytes_a_row(self) -> Estimate:
        """The bytes per row in files of the layout, measured for some rows in its order with all columns.

        They are written as Parquet in files with the layout's number of rows, or in one file if there are fewer rows.
        The gain of rows that are nearer to each other than these is estimated, and may be none or twice as large.
        """
        state, rows = self.rows.state, self.rows
        files = [file for file in state.files if file.is_nameable]
        some = _some_files(files, _MOST_BYTES_MEASURED, 0)
        frame = restricted_to(state, some)
        check_types(frame, "an estimate of a layout", "estimate indexes alone, as with recommend(layouts=False)")
        layout = LayoutColumns.of(frame, rows.layout)
        ordered = rows_in_order(frame, rows.layout, layout, frame.count(), state.relation.partitions)
        if not ordered.num_rows:
            return NOTHING
        each = min(ordered.num_rows, max(1, round(rows.rows / rows.share / self.files)))
        starts = np.linspace(0, ordered.num_rows - each, min(_MOST_MEASURED, ordered.num_rows // each)).astype(int)
        size = float(np.mean([parquet_bytes(frame, ordered.slice(start, each)) for start in starts.tolist()]) / each)
        gain = gain_of_neighbours(frame, ordered, round(rows.rows / rows.share))
        return Estimate(size * gain, size * gain**2 * (1 - _SIZE_SLACK), size * (1 + _SIZE_SLACK))

    def in_scope(self, scan: ScanCondition) -> Mask:
        """The files of a scan's relation that are not excluded by conditions on partitions."""
        return scan.in_scope(self.snapshots[0], self.rows.state.relation.roots)

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
        Seed of the division of rows into halves.

    Raises
    ------
    GeoskipError
        If an index cannot be collected from any file; the message has its name.
    """
    arrangement = Arrangement.fit(rows.layout, rows.ordering, min(files, rows.rows), groups=rows.groups)
    _, numbers = arrangement.keys_and_files(rows.ordering, groups=rows.groups)
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
    """A snapshot of the files with some of the sampled rows."""
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
