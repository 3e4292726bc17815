"""Estimate what queries would read with indexes that are not built (Hyperspace's ``whatIf``).

The proposed indexes summarise a random sample of the files (:mod:`geoskip.spark.advisor.file_sample`), and the planner
evaluates each query's conditions over these summaries, as for a query that is run. The files that a query reads now,
with the existing indexes and Spark's partition pruning, are known exactly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from geoskip.advisor.estimates import Estimate, SampledKept, check_seed, check_share, kept_with_all_rows, total
from geoskip.advisor.query_estimates import QueryEstimate, WhatIf, wide_intervals
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.layout.specification import Layout
from geoskip.lifecycle.refresh import Listing
from geoskip.metadata import FileMetadata, Header, IndexEntry, Snapshot, match_files
from geoskip.report import count_of
from geoskip.sources.bound_indexes import indexes_of
from geoskip.sources.dependencies import reason_unusable
from geoskip.spark.advisor.file_sample import FileSample, choose_files, require_dataset, sample_files
from geoskip.spark.advisor.scan_conditions import ScanCondition, conditions_of
from geoskip.spark.advisor.simulated_layout import SimulatedLayout, sample_rows, simulate_layout
from geoskip.spark.advisor.workload_log import logged_conditions
from geoskip.spark.build.arrange import file_target
from geoskip.spark.build.layout_columns import LayoutColumns
from geoskip.spark.build.listing import SourceState
from geoskip.spark.dataset.handle import Dataset

Query = str | DataFrame
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class QueriedFiles:
    """The listed files of a dataset, with masks of those that a scan reads."""

    state: SourceState

    @cached_property
    def _snapshot(self) -> Snapshot:
        """The listing as a snapshot without an index."""
        names = ("path", "size", "mtime")
        table = pa.table(dict(zip(names, self.state.files.columns[:3], strict=True)))
        return Snapshot(Header(self.state.relation.root, {}), FileMetadata.of(table))

    def in_scope(self, scan: ScanCondition) -> Flags:
        """The files of a scan's relation that are not excluded by conditions on partitions."""
        return scan.in_scope(self._snapshot, self.state.relation.roots)

    def keep_mask(self, scan: ScanCondition, snapshot: Snapshot, usable: Sequence[Index]) -> Flags:
        """The files that a scan reads with the indexes of a snapshot.

        Parameters
        ----------
        scan
            The scan.
        snapshot
            Summaries of files; files without summaries, or that have changed since, are read.
        usable
            Bound indexes of the snapshot.
        """
        listing = Listing.below(self.state.relation.root, *self.state.files.columns[:3])
        kept = np.ones(len(listing.path), dtype=bool)
        if usable and scan.condition:
            numbers = match_files(snapshot.files.column, listing._asdict())
            kept[numbers.drop_null()] = scan.keep_mask(snapshot, usable)[numbers.is_valid()]
        return kept


@dataclass(frozen=True)
class AskedQuery:
    """A query with its scans of a dataset, and the number of its runs."""

    text: str
    scans: tuple[ScanCondition, ...]
    count: int = 1
    number: int = 0
    """Its number among the given queries, from 1; for recorded queries, among those of the dataset."""


def what_if(
    dataset: Dataset,
    indexes: Index | Iterable[Index] | None = (),
    layout: Layout | None = None,
    queries: Sequence[Query] | None = None,
    *,
    sample: float = 0.05,
    confidence: float = 0.9,
    files: int | None = None,
    file_size: int | str | None = None,
    seed: int = 0,
) -> WhatIf:
    """Estimate what queries would read with proposed indexes or a layout; nothing is built.

    Parameters
    ----------
    dataset
        The handle, from :func:`geoskip.dataset`. Its metadata are read and not changed.
    indexes
        The proposed indexes, in addition to the existing ones.
    layout
        A proposed layout of the data, such as ``ZOrder("lng", "lat")``; all indexes then refer to its files.
    queries
        SQL texts or DataFrames; they are planned and not run. None for the conditions that the session has recorded,
        weighted by their number of runs (``spark.geoskip.workload`` set to ``literals``).
    sample
        The share of files to read, above 0 and up to 1; at least one file. For a layout also the share of rows, but at
        least 200,000 rows.
    confidence
        The probability that an interval contains the true value.
    files, file_size
        For a layout: the number of files, by default the current number; or their size in bytes or as ``"128 MiB"``.
    seed
        Seed of the sample.

    Returns
    -------
    WhatIf
        Files and bytes that each query reads now and would read, bytes of metadata, and seconds of the build.

    Raises
    ------
    InvalidSpecificationError
        If there are no indexes or no queries, if all queries read other data, if an index cannot be built, or if an
        expression of the layout is unknown or has no order.
    DatasetNotFoundError
        If the dataset has no files.
    """
    check_share(sample, confidence)
    check_seed(seed)
    source = require_dataset(dataset)._source
    if isinstance(layout, Index):
        raise InvalidSpecificationError(f"what_if() takes several indexes as a list, got {layout!r} as layout=")
    proposed = [] if indexes is None else indexes_of("what_if(indexes=)", indexes)
    if not proposed and layout is None:
        raise InvalidSpecificationError("what_if() needs indexes to try, such as indexes=[MinMax('temp')], got none")
    state = source.current_state()
    chosen = choose_files(state, sample, seed)
    size = sum(file.size for file in state.files)
    count = _files_of_layout(layout, files, file_size, len(state.files), size)
    if layout is not None:
        LayoutColumns.of(state.frame, layout)  # raises for invalid expressions and those without an order
    asked, untouched = asked_queries(dataset, state, queries)
    sampled = sample_files(dataset, proposed, chosen, state=state)
    found = WhatIf(
        dataset=source.name,
        indexes=tuple(entry.name for entry in sampled.proposed),
        layout=None if layout is None else str(layout),
        queries=(),
        files=len(state.files),
        bytes=size,
        files_after=len(state.files),
        bytes_after=size,
        sampled=f"{len(chosen):,} of {count_of(len(state.files), 'file')} read",
        confidence=confidence,
        build_seconds=sampled.build_seconds(),
        sample_seconds=sampled.timing.seconds,
        untouched=untouched,
    )
    if layout is None:
        notes = [note for note in (wide_intervals(len(chosen), len(state.files)),) if note]
        estimates = tuple(estimate(query, sampled, confidence) for query in asked)
        return replace(found, queries=estimates, metadata_bytes=sampled.metadata_bytes(), notes=tuple(notes))
    if not sampled.snapshot.header.entries:
        raise InvalidSpecificationError(
            f"{layout} saves nothing without an index of its files: give indexes=, such as "
            f"indexes=[MinMax({layout.expressions[0]!r})]"
        )
    started = time.perf_counter()
    rows = sample_rows(sampled.state, layout, sampled.snapshot.header.entries, sample, seed)
    simulated = simulate_layout(rows, count, seed)
    measured = sampled.encoded_bytes(simulated.snapshots[0].files.table())
    return replace(
        found,
        queries=tuple(layout_estimate(query, sampled, simulated, confidence) for query in asked),
        files_after=simulated.files,
        sampled=f"{rows.rows:,} rows of {count_of(rows.files_read, 'file')} read",
        sample_seconds=time.perf_counter() - started,
        metadata_bytes={name: measured[name] for name in found.indexes},
        bytes_after=round(simulated.bytes_a_row.value * rows.rows / rows.share),
    )


def _files_of_layout(layout: object, files: object, file_size: object, now: int, size: int) -> int:
    """The number of files that a layout would have; raises InvalidSpecificationError for invalid values."""
    if layout is None:
        if files is not None or file_size is not None:
            raise InvalidSpecificationError("files= and file_size= are those of a layout: give layout= too")
        return now
    if not isinstance(layout, Layout):
        raise InvalidSpecificationError(f"layout= takes a layout such as ZOrder('lng', 'lat'), got {layout!r}")
    count, wanted = file_target("what_if", files, file_size)
    return max(1, round(size / wanted)) if wanted else count or now


def asked_queries(
    dataset: Dataset, state: SourceState, queries: Sequence[Query] | None
) -> tuple[list[AskedQuery], tuple[str, ...]]:
    """Queries that read files of a dataset, with their scans of it, and the texts of those that read none.

    With None these are the conditions that the session has recorded, each as a query with its count. Raises
    InvalidSpecificationError if there are no queries or all of them read other data, and for a table of Iceberg.
    """
    if state.relation.is_of("iceberg"):  # Iceberg's scans are not relations over files
        raise InvalidSpecificationError(
            f"{dataset._source.name} is a table of Iceberg, which plans its scans itself: what its queries would read "
            "is not estimated; geoskip.why_not(query) names the indexes that serve a query"
        )
    if queries is None:
        seen = logged_conditions(dataset.spark)
        given = [AskedQuery(each.scan.condition or "(no condition)", (each.scan,), each.count) for each in seen]
    else:
        if not isinstance(queries, str | DataFrame | Iterable):
            raise InvalidSpecificationError(f"queries= takes a list of SQL texts or DataFrames, got {queries!r}")
        listed = [queries] if isinstance(queries, str | DataFrame) else list(queries)
        given = [_plan(dataset, query) for query in listed]
    if not given:
        raise InvalidSpecificationError(
            "advice needs queries, such as queries=['SELECT * FROM t WHERE temp > 30'] or DataFrames, or None for "
            "those that the session has seen; got none"
        )
    files = QueriedFiles(state)
    own = [
        replace(query, scans=tuple(s for s in query.scans if files.in_scope(s).any()), number=number)
        for number, query in enumerate(given, 1)
    ]
    asked = [query for query in own if query.scans]
    untouched = tuple(query.text for query in own if not query.scans)
    if not asked:
        raise InvalidSpecificationError(
            f"none of the queries reads a file of {dataset._source.name}: {'; '.join(untouched)[:300]}; give queries "
            f"over {state.relation.root}, or the dataset that they read"
        )
    if queries is None:  # many queries of a session read other data
        return [replace(query, number=number) for number, query in enumerate(asked, 1)], ()
    return asked, untouched


def _plan(dataset: Dataset, query: Query) -> AskedQuery:
    scans = tuple(conditions_of(dataset.spark, query))
    conditions = " AND ".join(scan.condition for scan in scans if scan.condition)
    return AskedQuery(query if isinstance(query, str) else conditions or "a DataFrame without a condition", scans)


def estimate(query: AskedQuery, sampled: FileSample, confidence: float = 0.9) -> QueryEstimate:
    """Estimate what one query would read from a dataset with the proposed indexes.

    If it scans the dataset several times, the interval of each scan has a higher confidence, so that all of them
    together contain the true values with the given one.
    """
    each = 1 - (1 - confidence) / len(query.scans)
    files = QueriedFiles(sampled.state)
    found = [_scan_estimate(scan, sampled, files, each) for scan in query.scans]
    return QueryEstimate(
        query.text,
        files_now=sum(files for files, _, _, _, _ in found),
        bytes_now=sum(size for _, size, _, _, _ in found),
        files=total(files for _, _, files, _, _ in found),
        bytes=total(size for _, _, _, size, _ in found),
        count=query.count,
        reasons=tuple(dict.fromkeys(reason for *_, reasons in found for reason in reasons)),
    )


def layout_estimate(
    query: AskedQuery, sampled: FileSample, simulated: SimulatedLayout, confidence: float = 0.9
) -> QueryEstimate:
    """Estimate what one query would read from a dataset in another layout, with all of its indexes.

    The size of files is estimated from some rows in the layout's order, with a margin, since the compression of the
    other rows is unknown.

    Parameters
    ----------
    query
        The query.
    sampled
        Sampled files with the existing indexes, which determine what the query reads now.
    simulated
        The layout, with the indexes that its files would have.
    confidence
        The probability that the interval of the files contains the true value.
    """
    each = 1 - (1 - confidence) / len(query.scans)
    listed, rows = QueriedFiles(sampled.state), simulated.rows
    bytes_of_files = sampled.state.files.columns[1].to_numpy()
    now, size_now, reasons = 0, 0, list[str]()
    files: list[Estimate] = []
    sizes: list[Estimate] = []
    for scan in query.scans:
        reads = _reads_now(scan, sampled, listed)
        now, size_now = now + int(reads.sum()), size_now + int(bytes_of_files[reads].sum())
        snapshot = simulated.snapshots[0]
        usable = usable_indexes(scan, snapshot, snapshot.header.entries, sampled.state, reasons)
        scope = simulated.in_scope(scan)
        whole, *halves = (kept[scope].tolist() for kept in simulated.keep_masks(scan, usable))
        found = kept_with_all_rows(whole, halves, rows.share, each)
        read = np.array(whole, dtype=bool)
        in_files = simulated.rows_of_files[scope] / rows.share
        mean = float(in_files[read].mean() if read.any() else in_files.mean() if len(in_files) else 0.0)
        files.append(found)
        row = simulated.bytes_a_row
        size = Estimate(found.value * row.value, found.low * row.low, found.high * row.high)
        sizes.append(size * mean)
    return QueryEstimate(
        query.text, now, size_now, total(files), total(sizes), query.count, tuple(dict.fromkeys(reasons))
    )


def _reads_now(scan: ScanCondition, sampled: FileSample, listed: QueriedFiles) -> Flags:
    """The listed files that a scan reads now, with the existing indexes."""
    reads = listed.in_scope(scan)
    if sampled.existing is not None:
        usable = usable_indexes(scan, sampled.existing, sampled.existing.header.entries, sampled.state, [])
        reads = reads & listed.keep_mask(scan, sampled.existing, usable)
    return reads


def _scan_estimate(
    scan: ScanCondition, sampled: FileSample, listed: QueriedFiles, confidence: float
) -> tuple[int, int, Estimate, Estimate, list[str]]:
    """Files and bytes that a scan reads now and would read, and the reasons why indexes are not used."""
    state = sampled.state
    uris, sizes, _, _ = state.files.columns
    reasons: list[str] = []
    reads = _reads_now(scan, sampled, listed)
    usable = usable_indexes(scan, sampled.snapshot, sampled.snapshot.header.entries, state, reasons)
    would_read = reads & listed.keep_mask(scan, sampled.snapshot, usable)
    drawn = pc.is_in(uris, value_set=pa.array([file.uri for file in sampled.files], pa.string()))
    is_sampled = drawn.to_numpy(zero_copy_only=False).astype(bool)
    size = sizes.to_numpy()[reads]
    files, read_bytes = SampledKept(
        size.tolist(), is_sampled[reads].tolist(), (is_sampled & would_read)[reads].tolist()
    ).estimates(confidence)
    return int(reads.sum()), int(size.sum()), files, read_bytes, reasons


def usable_indexes(
    scan: ScanCondition, snapshot: Snapshot, entries: Sequence[IndexEntry], state: SourceState, reasons: list[str]
) -> list[Index]:
    """Bound indexes that apply to a scan's format, options and settings.

    Parameters
    ----------
    scan
        The scan of the query.
    snapshot, entries
        The snapshot, and the indexes of it to check.
    state
        The dataset.
    reasons
        List to which a sentence is appended for each index that is left out.
    """
    usable = []
    for entry in entries:
        why = reason_unusable(state.relation.root, snapshot.header, entry, scan.request)
        if why is None:
            usable.append(entry.index)
        else:
            reasons.append(f"{entry.name} would not be used: {why}")
    return usable
