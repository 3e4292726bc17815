"""Real summaries of a random sample of a dataset's files, only in memory.

Nothing is written, and the dataset is not changed.

Indexes are bound, parametrised and collected by the code of a real build, but from fewer files. So a clause over the
sample keeps a file exactly if it would keep it after the build. The exception are indexes that choose parameters from
their own sample, such as pivots: they choose from the sampled files, which are as random as those of a build.

The files are a simple random sample without replacement. Stratification would gain little, since the files that are
kept depend on the query, and the partitions that a query prunes are known exactly.
"""

from __future__ import annotations

import random
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import mean
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.advisor.estimates import build_seconds, scaled_size
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.lifecycle.log import latest
from geoskip.metadata import FileMetadata, FileRow, IndexEntry, Snapshot, add_indexes, build_table
from geoskip.sources.build_verbs import check_same, is_elsewhere
from geoskip.sources.built_rows import BuiltRows
from geoskip.sources.listed_files import FileListing, ListedFile, reason_not_indexable, relative_path
from geoskip.spark.analysis import bind
from geoskip.spark.build.job import build, choose_parameters, needs_job
from geoskip.spark.build.listing import SourceState
from geoskip.spark.dataset.handle import Dataset
from geoskip.spark.dataset.source import SparkData
from geoskip.stores.encryption import Encryption, PartKeys, Vault
from geoskip.stores.keyring import KeyRing
from geoskip.stores.part_files import write_part

_IN_THE_DRIVER = 4 << 20
"""Bytes of Parquet files that the driver reads in about the time of a job."""
_JOB = 0.2
"""Overhead in seconds of a Spark job with Python tasks."""


_started: set[str] = set()
"""Spark applications in which a job of this module has started the Python workers."""


@dataclass(frozen=True)
class Timing:
    """Duration of a build of some bytes of files, by a job or in the driver."""

    seconds: float
    bytes: int
    in_driver: bool


@dataclass(frozen=True)
class FileSample:
    """Some files of a dataset, with their summaries for existing and proposed indexes.

    Attributes
    ----------
    state
        The state of the dataset, with all its files.
    files
        The sampled files.
    snapshot
        The sampled files that could be indexed, with the existing and the proposed indexes.
    existing
        The latest snapshot of the dataset, or None.
    proposed
        The proposed indexes, bound, with the parameters that they have chosen.
    built
        The result of building the proposed indexes for the sampled files.
    timing
        The duration of that build.
    encryption
        The encryption of the metadata's store; None for unencrypted metadata.
    """

    state: SourceState
    files: tuple[ListedFile, ...]
    snapshot: Snapshot
    existing: Snapshot | None
    proposed: tuple[IndexEntry, ...]
    built: BuiltRows
    timing: Timing
    encryption: Encryption | None = None

    def metadata_bytes(self) -> dict[str, int]:
        """Estimated bytes of each proposed index for all files, from those for the sampled files."""
        names = [entry.name for entry in self.proposed]
        if not names:
            return {}
        table = self.snapshot.files.table()
        whole, half = table.num_rows, table.num_rows // 2
        halves = (table.slice(0, half), table.slice(whole - half)) if half else (_without_values(table, names),)
        pieces = {half: halves, whole: (table,)}  # two halves, since files are in some order
        sizes = {rows: [self.encoded_bytes(piece) for piece in some] for rows, some in pieces.items()}
        indexed = round(len(self.state.files) * table.num_rows / max(1, len(self.files)))
        found = {
            name: [(rows, round(mean(each[name] for each in some))) for rows, some in sizes.items()] for name in names
        }
        return {name: scaled_size(measured, max(indexed, whole)) for name, measured in found.items()}

    def encoded_bytes(self, table: pa.Table) -> Mapping[str, int]:
        """Bytes of each column of a files table as a part of the dataset's store.

        A temporary part file is written to measure them; it is encrypted if the dataset's parts are.
        """
        with tempfile.TemporaryDirectory(prefix="geoskip-") as folder:
            part = write_part(Path(folder, "part.parquet"), "part", table, _throwaway_keys(self.encryption))
        return {column.name: column.bytes for column in part.columns.values()}

    def build_seconds(self) -> float:
        """Estimated seconds of a build of the proposed indexes for all files."""
        if not self.proposed:
            return 0.0
        size, took = float(pc.sum(self.state.files.columns[1]).as_py() or 0), self.timing
        if not took.in_driver:
            return build_seconds(took.seconds, took.bytes, size, _JOB)
        processors = min(self.state.spark.sparkContext.defaultParallelism, len(self.state.files))
        return _JOB + build_seconds(took.seconds, took.bytes, size) / processors


def _without_values(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """A files table with null in some columns, to measure what a column takes apart from its values."""
    for name in names:
        kind = table.schema.field(name).type
        table = table.set_column(table.column_names.index(name), name, pa.nulls(table.num_rows, kind))
    return table


def choose_files(state: SourceState, share: float, seed: int = 0) -> list[ListedFile]:
    """A simple random sample of a dataset's files, at least one, independent of the listing's order.

    Raises DatasetNotFoundError if the dataset has no file that can be indexed.
    """
    if (why := reason_not_indexable(state.relation.root, state.files)) is not None:
        raise DatasetNotFoundError(why)
    uris = state.files.columns[0]  # without files that metadata cannot name
    numbers = random.Random(seed).sample(range(len(uris)), max(1, ceil(share * len(uris) - 1e-9)))
    return state.files.select(uris.take(pc.array_sort_indices(uris).take(pa.array(sorted(numbers)))).to_pylist())


def sample_files(
    dataset: Dataset,
    indexes: Sequence[Index],
    files: Sequence[ListedFile] | float,
    *,
    state: SourceState | None = None,
) -> FileSample:
    """Collect the summaries that indexes would store for some files of a dataset.

    Parameters
    ----------
    dataset
        The handle; its metadata are read and not changed.
    indexes
        The proposed indexes; existing ones are collected again.
    files
        Files from :func:`choose_files`, or the fraction of all files to choose at random.
    state
        The state of the dataset from which the files were chosen. Default: the current one.

    Raises
    ------
    InvalidSpecificationError
        For an index that cannot be built over this dataset; the message has its name.
    DatasetNotFoundError
        If the dataset has no files.
    GeoskipError
        If an index cannot be collected from any of the files.
    """
    source = dataset._source
    state = source.current_state() if state is None else state
    chosen = choose_files(state, files) if isinstance(files, float | int) else list(files)
    data = SparkData(source, state)
    entries = bind(state.frame, state.relation, indexes)
    existing = latest(data.store)
    if existing is not None and is_elsewhere(data, existing.header):
        existing = None
    if existing is not None:
        check_same(data, existing.header)
    sampled = replace(state, files=_listing_of(chosen))
    entries = choose_parameters(sampled, entries)
    built, timing = _build(sampled, entries)
    header = replace(data.header(), entries=tuple(entries), identity=f"sample-{uuid4().hex}", files=len(built.rows))
    table = build_table(entries, built.rows)
    if existing is not None:
        kept = [entry for entry in existing.header.entries if entry.name not in {e.name for e in entries}]
        header = replace(header, entries=(*kept, *entries))
        table = add_indexes(_rows_of(existing, kept, table["path"]), table)
    snapshot = Snapshot(replace(header, files=table.num_rows), FileMetadata.of(table))
    return FileSample(state, tuple(chosen), snapshot, existing, tuple(entries), built, timing, data.store.encryption)


def _build(state: SourceState, entries: Sequence[IndexEntry]) -> tuple[BuiltRows, Timing]:
    """Build the summaries of all files of a state, and measure the time.

    The first job of an application starts Python workers, which takes much longer than its work. So it gets few files,
    and the time is measured for a second job with the others.
    """
    files = [file for file in state.files if file.is_nameable]
    if not entries:
        rows = [FileRow(relative_path(file.uri, state.relation.root), file.size, file.mtime) for file in files]
        return BuiltRows(rows), Timing(0.0, 0, True)
    in_driver = sum(file.size for file in files) <= _IN_THE_DRIVER and not needs_job(state, entries, files)
    context = state.spark.sparkContext
    first = 0 if in_driver or context.applicationId in _started else min(context.defaultParallelism, len(files) - 1)
    built = build(state, entries, files[:first])
    started = time.perf_counter()
    built += build(state, entries, files[first:], in_driver=in_driver)
    if not in_driver:
        _started.add(context.applicationId)
    timing = Timing(time.perf_counter() - started, sum(file.size for file in files[first:]), in_driver)
    return built, timing


def _listing_of(files: Sequence[ListedFile]) -> FileListing:
    """A listing of only these files."""
    lines = (
        f"{file.size} {file.mtime}{f':{file.etag}' if file.etag else ''} {file.uri.replace(chr(10), chr(0))}\n"
        for file in files
    )
    return FileListing("".join(lines))


def _rows_of(snapshot: Snapshot, entries: Sequence[IndexEntry], paths: pa.ChunkedArray) -> pa.Table:
    """The rows of some files with the summaries of some indexes."""
    table = snapshot.files.table()
    names = ["path", "size", "mtime", "etag", "rows", *(entry.name for entry in entries)]
    return table.select(names).filter(pc.is_in(table["path"], value_set=paths.combine_chunks()))


def _throwaway_keys(encryption: Encryption | None) -> PartKeys | None:
    """Temporary keys for a part with the options of an encryption; they are discarded after use."""
    if encryption is None:
        return None
    ring = KeyRing({"sample": secrets.token_bytes(32)})
    vault = Vault(replace(encryption, keys=ring, key="sample", indexes={}), "a sample")
    return PartKeys(vault, vault.protection(None, (), vault.encryption))


def require_dataset(dataset: object) -> Dataset:
    """Return a handle; raises InvalidSpecificationError for anything else."""
    if not isinstance(dataset, Dataset):
        raise InvalidSpecificationError(
            f"expected a dataset, as of geoskip.dataset(spark, path), got {type(dataset).__name__}"
        )
    return dataset
