"""Real summaries of a random sample of a dataset's files, in memory alone.

Nothing is written, and the dataset is not touched.

Indexes are bound, given their parameters and collected by the code of a real build, from fewer files; so a clause over
the sample keeps a file exactly where it would keep it after the build (but for indexes that choose parameters from a
sample of their own, such as pivots: they choose from the sampled files, which are as random as those of a build).

The files are a simple random sample without replacement. Strata would gain little: which files a query keeps depends on
the query, and partitions that a query leaves alone are known exactly.
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
from geoskip.spark.session import java
from geoskip.stores.encryption import Encryption, PartKeys, Vault
from geoskip.stores.keyring import KeyRing
from geoskip.stores.part_files import write_part

_IN_THE_DRIVER = 4 << 20
"""Bytes of Parquet files that the driver reads in about the time that a job takes."""
_JOB = 0.2
"""Seconds that a Spark job over Python tasks takes by itself."""


_started: set[str] = set()
"""Applications of Spark that have run a job here, so that their Python workers are there."""


@dataclass(frozen=True)
class Timing:
    """Seconds of building some bytes of files, by a job or in the driver."""

    seconds: float
    bytes: int
    in_driver: bool


@dataclass(frozen=True)
class FileSample:
    """Some files of a dataset, with the summaries that existing and proposed indexes store of them.

    Attributes
    ----------
    state
        The dataset as it was found, with all its files.
    files
        The sampled files.
    snapshot
        The sampled files that could be indexed, with the indexes that exist and the proposed ones.
    existing
        The latest snapshot of the dataset, None where it has no index.
    proposed
        The proposed indexes, bound, each with the parameters it chose.
    built
        What the build of the proposed indexes found of the sampled files.
    timing
        What that build took.
    encryption
        That of the store of the metadata; None where they are in clear.
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
        """Bytes that each proposed index would store for all files, from those for the sampled ones."""
        names = [entry.name for entry in self.proposed]
        if not names:
            return {}
        table = self.snapshot.files.table()
        whole, half = table.num_rows, table.num_rows // 2
        pieces = {half: (table.slice(0, half), table.slice(whole - half)), whole: (table,)}  # files are in some order
        sizes = {rows: [self.encoded_bytes(piece) for piece in some] for rows, some in pieces.items() if rows}
        indexed = round(len(self.state.files) * table.num_rows / max(1, len(self.files)))
        found = {
            name: [(rows, round(mean(each[name] for each in some))) for rows, some in sizes.items()] for name in names
        }
        return {name: scaled_size(measured, max(indexed, whole)) for name, measured in found.items()}

    def encoded_bytes(self, table: pa.Table) -> Mapping[str, int]:
        """Bytes of each column of a files table as the dataset's store writes it.

        The part that is measured is a file for a moment: encrypted where the dataset's own parts are.
        """
        with tempfile.TemporaryDirectory(prefix="geoskip-") as folder:
            part = write_part(Path(folder, "part.parquet"), "part", table, _throwaway_keys(self.encryption))
        return {column.name: column.bytes for column in part.columns.values()}

    def build_seconds(self) -> float:
        """Seconds that a build of the proposed indexes would take over all files."""
        if not self.proposed:
            return 0.0
        size, took = float(pc.sum(self.state.files.columns[1]).as_py() or 0), self.timing
        if not took.in_driver:
            return build_seconds(took.seconds, took.bytes, size, _JOB)
        processors = min(self.state.spark.sparkContext.defaultParallelism, len(self.state.files))
        return _JOB + build_seconds(took.seconds, took.bytes, size) / processors


def choose_files(state: SourceState, share: float, seed: int = 0) -> list[ListedFile]:
    """A simple random sample of a dataset's files, at least one, whatever the order of the listing.

    Raises DatasetNotFoundError where the dataset has no file that can be indexed.
    """
    if (why := reason_not_indexable(state.relation.root, state.files)) is not None:
        raise DatasetNotFoundError(why)
    uris = state.files.columns[0]  # of the files that metadata can name
    numbers = random.Random(seed).sample(range(len(uris)), max(1, ceil(share * len(uris) - 1e-9)))
    return state.files.select(uris.take(pc.array_sort_indices(uris).take(pa.array(sorted(numbers)))).to_pylist())


def sample_files(
    dataset: Dataset,
    indexes: Sequence[Index],
    files: Sequence[ListedFile] | float,
    *,
    state: SourceState | None = None,
) -> FileSample:
    """Collect the summaries that indexes would store of some files of a dataset.

    Parameters
    ----------
    dataset
        The handle; its metadata are read and not changed.
    indexes
        The proposed indexes; one that exists is collected again.
    files
        Files of :func:`choose_files`, or the share of all files to choose at random.
    state
        The dataset as the files were chosen from it; as it is now by default.

    Raises
    ------
    InvalidSpecificationError
        For an index that cannot be built over this dataset, by its name.
    DatasetNotFoundError
        Where the dataset has no files.
    GeoskipError
        Where an index cannot be collected from any of the files.
    """
    source = dataset._source
    state = source.current_state() if state is None else state
    chosen = choose_files(state, files) if isinstance(files, float | int) else list(files)
    data = SparkData(source, state)
    entries = bind(java(source.spark), state.frame, state.relation, indexes)
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
    encryption = getattr(data.store, "encryption", None)
    return FileSample(state, tuple(chosen), snapshot, existing, tuple(entries), built, timing, encryption)


def _build(state: SourceState, entries: Sequence[IndexEntry]) -> tuple[BuiltRows, Timing]:
    """Build the summaries of all files of a state, and measure the time.

    The first job of an application starts Python workers, which takes many times what it does: it gets few files, and
    the time is that of a second one with the others.
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
    """A listing of these files alone."""
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
    """Keys that protect a part as an encryption would, and that nobody has afterwards."""
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
