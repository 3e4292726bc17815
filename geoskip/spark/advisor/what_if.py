"""Estimate what queries would read with indexes that are not built (Hyperspace's ``whatIf``).

The proposed indexes summarise a random sample of the files (:mod:`geoskip.spark.advisor.file_sample`), and each query's
conditions go through the planner over these summaries, as for a query that is run. What is known is not estimated: the
files that a query reads now, with the indexes that exist and Spark's own partition pruning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from geoskip.advisor.estimates import Estimate, SampledKept, check_share, total
from geoskip.advisor.query_estimates import QueryEstimate, WhatIf, wide_intervals
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.metadata import FileMetadata, Header, IndexEntry, Snapshot
from geoskip.report import count_of
from geoskip.spark.advisor.file_sample import FileSample, choose_files, require_dataset, sample_files
from geoskip.spark.advisor.scan_conditions import ScanCondition, conditions_of
from geoskip.spark.advisor.workload_log import logged_conditions
from geoskip.spark.build.listing import SourceState, below
from geoskip.spark.dataset.handle import Dataset
from geoskip.spark.dependencies import reason_unusable

Query = str | DataFrame
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class QueriedFiles:
    """The listed files of a dataset, and which of them a scan reads."""

    state: SourceState

    @cached_property
    def _snapshot(self) -> Snapshot:
        """The listing as a snapshot without an index."""
        names = ("path", "size", "mtime")
        table = pa.table(dict(zip(names, self.state.files.columns[:3], strict=True)))
        return Snapshot(Header(self.state.relation.root, {}), FileMetadata.of(table))

    def in_scope(self, scan: ScanCondition) -> Flags:
        """The files that a scan's relation has, and that conditions on partitions do not exclude."""
        uris = self.state.files.columns[0]
        found = np.ones(len(uris), dtype=bool)
        if list(scan.roots) != list(self.state.relation.roots):
            found = np.array([below(uri, scan.roots) for uri in uris.to_pylist()], dtype=bool)
        return found & scan.kept(self._snapshot, ()) if scan.folders and found.any() else found

    def kept(self, scan: ScanCondition, snapshot: Snapshot, usable: Sequence[Index]) -> Flags:
        """The files that a scan reads by the indexes of a snapshot.

        Parameters
        ----------
        scan
            The scan.
        snapshot
            Summaries of files; those that it does not have, or that changed since, are read.
        usable
            Bound indexes of the snapshot.
        """
        uris, sizes, times, _ = self.state.files.columns
        kept = np.ones(len(uris), dtype=bool)
        if not usable or not scan.condition:
            return kept
        paths, size, time = (snapshot.files.column(name) for name in ("path", "size", "mtime"))
        head = self.state.relation.root.rstrip("/") + "/"
        named = pc.if_else(pc.match_substring(paths, ":/"), paths, pc.binary_join_element_wise(head, paths, ""))
        row = pc.index_in(uris, value_set=named)
        same = pc.and_(pc.equal(size.take(row), sizes), pc.equal(time.take(row), times))
        known: Any = pc.fill_null(same, False).to_numpy(zero_copy_only=False).astype(bool)
        kept[known] = scan.kept(snapshot, usable)[pc.fill_null(row, 0).to_numpy()[known]]
        return kept


@dataclass(frozen=True)
class AskedQuery:
    """A query with its scans of a dataset, and how often it was seen."""

    text: str
    scans: tuple[ScanCondition, ...]
    count: int = 1


def what_if(
    dataset: Dataset,
    indexes: Sequence[Index] = (),
    *,
    queries: Sequence[Query] | None = None,
    sample: float = 0.05,
    confidence: float = 0.9,
    seed: int = 0,
) -> WhatIf:
    """Estimate what queries would read of a dataset if it had some indexes; nothing is built.

    Parameters
    ----------
    dataset
        The handle, as of :func:`geoskip.dataset`. Its metadata are read and not changed.
    indexes
        The proposed indexes; those that exist stay beside them.
    queries
        SQL texts or DataFrames; None for what the session has seen (``spark.geoskip.workload=literals``), each
        condition with its count. They are planned and not run.
    sample
        The share of the files that are read, above 0 and up to 1; at least one file.
    confidence
        The probability with which each interval holds the truth.
    seed
        Another number samples other files.

    Returns
    -------
    WhatIf
        Files and bytes that each query reads now and would read, bytes of metadata, and seconds of the build.

    Raises
    ------
    InvalidSpecificationError
        For no indexes, no queries or queries that all read other data; for an index that cannot be built, by its name.
    DatasetNotFoundError
        Where the dataset has no files.
    """
    check_share(sample, confidence)
    source = require_dataset(dataset)._source
    proposed = [indexes] if isinstance(indexes, Index) else list(indexes)
    if not proposed:
        raise InvalidSpecificationError("what_if() needs indexes to try, such as indexes=[MinMax('temp')], got none")
    state = source.current_state()
    files = choose_files(state, sample, seed)
    asked, untouched = asked_queries(dataset, state, queries)
    sampled = sample_files(dataset, proposed, files)
    notes = [note for note in (wide_intervals(len(files), len(state.files)),) if note]
    return WhatIf(
        dataset=source.name,
        indexes=tuple(entry.name for entry in sampled.proposed),
        layout=None,
        queries=tuple(estimate(query, sampled, confidence) for query in asked),
        files=len(state.files),
        bytes=sum(file.size for file in state.files),
        files_after=len(state.files),
        sampled=f"{len(files):,} of {count_of(len(state.files), 'file')} read",
        confidence=confidence,
        metadata_bytes=sampled.metadata_bytes(),
        build_seconds=sampled.build_seconds(),
        sample_seconds=sampled.timing.seconds,
        untouched=untouched,
        notes=tuple(notes),
    )


def asked_queries(
    dataset: Dataset, state: SourceState, queries: Sequence[Query] | None
) -> tuple[list[AskedQuery], tuple[str, ...]]:
    """Queries that read files of a dataset, with their scans of it, and the texts of those that read none.

    None stands for the conditions that the session has seen with their literals, each with its count.

    Raises InvalidSpecificationError for no queries, and where all of them read other data.
    """
    planned: list[tuple[str | None, list[ScanCondition], int]]
    if queries is None:
        planned = [(None, [logged.scan], logged.count) for logged in logged_conditions(dataset.spark)]
    else:
        given = [queries] if isinstance(queries, str | DataFrame) else list(queries)
        texts = [query if isinstance(query, str) else None for query in given]
        planned = [(text, conditions_of(dataset.spark, query), 1) for text, query in zip(texts, given, strict=True)]
    if not planned:
        raise InvalidSpecificationError(
            'what_if() needs queries, such as queries=["SELECT * FROM t WHERE temp > 30"] or DataFrames, got none'
        )
    files = QueriedFiles(state)
    asked: list[AskedQuery] = []
    untouched: list[str] = []
    for given_text, scans, count in planned:
        own = tuple(scan for scan in scans if files.in_scope(scan).any())
        conditions = [scan.condition for scan in own or scans if scan.condition]
        text = given_text or " AND ".join(conditions) or "a DataFrame without a condition"
        if own:
            asked.append(AskedQuery(text, own, count))
        else:
            untouched.append(text)
    if not asked:
        raise InvalidSpecificationError(
            f"none of the queries reads a file of {dataset._source.name}: {'; '.join(untouched)[:300]}; give queries "
            f"over {state.relation.root}, or the dataset that they read"
        )
    return asked, tuple(untouched)


def estimate(query: AskedQuery, sampled: FileSample, confidence: float = 0.9) -> QueryEstimate:
    """Estimate what one query would read of a dataset with the proposed indexes.

    Where it scans the dataset several times, the interval of each scan is that of a higher confidence, so that all of
    them together hold the truth with the one asked for.
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


def _scan_estimate(
    scan: ScanCondition, sampled: FileSample, listed: QueriedFiles, confidence: float
) -> tuple[int, int, Estimate, Estimate, list[str]]:
    """Files and bytes that a scan reads now and would read, and the reasons why indexes are not used."""
    state = sampled.state
    uris, sizes, _, _ = state.files.columns
    reasons: list[str] = []
    reads = listed.in_scope(scan)
    if sampled.existing is not None:
        usable = usable_indexes(scan, sampled.existing, sampled.existing.header.entries, state, [])
        reads &= listed.kept(scan, sampled.existing, usable)
    usable = usable_indexes(scan, sampled.snapshot, sampled.snapshot.header.entries, state, reasons)
    would_read = reads & listed.kept(scan, sampled.snapshot, usable)
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
        The snapshot, and those of its indexes that are meant.
    state
        The dataset.
    reasons
        Takes a sentence for each index that is left out.
    """
    usable = []
    for entry in entries:
        why = reason_unusable(state.relation.root, snapshot.header, entry, scan.request)
        if why is None:
            usable.append(entry.index)
        else:
            reasons.append(f"{entry.name} would not be used: {why}")
    return usable
