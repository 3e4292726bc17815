"""Parameters that indexes choose from a sample of the dataset before its first build.

:meth:`Index.prepare` chooses them. The sample has at most 64 files spread over the listing, and only the columns of the
indexes that choose. The build reads these files again. The choice affects only effectiveness, never soundness, so a
file that cannot be read is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from geoskip.indexes.base import Index, SourceColumn, Summary
from geoskip.metadata import IndexEntry
from geoskip.sources.arrow_reader import FileResult, one_array
from geoskip.sources.listed_files import ListedFile

_FILES = 64
_LEAST_FILES = 8
_BYTES = 256 << 20
"""Maximum bytes of the files in a sample, unless it would have fewer than eight files."""
_IN_THE_DRIVER = 16 << 20
"""Bytes of files that the driver reads in about the time that a job takes."""
_ROWS = 4096


class SampleReader(Protocol):
    """Reader of the values of some files, for indexes that take a sample."""

    def __call__(
        self, samples: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_process: bool
    ) -> Mapping[str, FileResult]:
        """Return results by URI; ``in_process`` is True if the files are too small to start a job."""


def prepare_entries(
    entries: Sequence[IndexEntry],
    files: Sequence[ListedFile],
    read: SampleReader,
    types_of: Callable[[Index], Sequence[pa.DataType]],
) -> list[IndexEntry]:
    """Entries of a build, each with an index whose parameters are chosen.

    Parameters
    ----------
    entries
        The indexes to build.
    files
        The files of the dataset.
    read
        Reads the values of sampled files.
    types_of
        Returns the Arrow types of an index's expressions, if no file could be read.
    """
    choosing = [entry for entry in entries if entry.index.chooses()]
    if not choosing:
        return list(entries)
    files = _sampled_files([file for file in sorted(files, key=lambda file: file.uri) if file.is_nameable])
    rows = max(_ROWS // max(1, len(files)), 1)
    samples = [replace(entry, index=_SampledValues(entry.index, rows)) for entry in choosing]
    small = sum(file.size for file in files) <= _IN_THE_DRIVER
    results = read(samples, files, in_process=small) if files else {}
    chosen = {}
    for entry in choosing:
        summaries = (results[uri].summaries.get(entry.name) for uri in sorted(results))
        batches = [batch for summary in summaries if summary is not None for batch in summary["batches"]]
        chosen[entry.name] = replace(entry, index=_prepare_index(entry.index, batches, types_of))
    return [chosen.get(entry.name, entry) for entry in entries]


class _SampledValues(Index):
    """Stand-in for an index without chosen parameters; keeps at most ``rows`` rows of each part."""

    kind: ClassVar[str] = "sample"

    def __init__(self, index: Index, rows: int) -> None:
        self.name = str(index)
        self.bound = index.bound
        self.texts = index.expressions()
        self.rows = rows

    def expressions(self) -> tuple[str, ...]:
        return self.texts

    def _spec_text(self) -> str:
        return self.name

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        return pa.null()

    def collect(self, *values: pa.Array) -> Summary | None:
        step = max(1, -(-len(values[0]) // self.rows))
        rows = pa.array(range(0, len(values[0]), step), pa.int64())
        taken = [value.take(rows) for value in values]
        taken = [value.dictionary_decode() if pa.types.is_dictionary(value.type) else value for value in taken]
        return {"batches": [pa.RecordBatch.from_arrays(taken, [str(number) for number in range(len(taken))])]}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        return {"batches": [batch for summary in summaries for batch in summary["batches"]]}

    def clause(self, node: Any) -> None:
        return None


def _sampled_files(files: Sequence[ListedFile]) -> list[ListedFile]:
    """Files spread over a listing: enough for a sample, fewer if they are large."""
    size = sum(file.size for file in files)
    count = min(_FILES, max(_LEAST_FILES, _BYTES * len(files) // max(1, size)), len(files))
    return [files[number * len(files) // count] for number in range(count)]


def _prepare_index(
    index: Index, batches: Sequence[pa.RecordBatch], types_of: Callable[[Index], Sequence[pa.DataType]]
) -> Index:
    """Prepare an index with the batches of the most frequent types: column types may differ by file."""
    types = Counter(str(batch.schema.types) for batch in batches)
    alike = [batch for batch in batches if str(batch.schema.types) == types.most_common(1)[0][0]]
    if not alike:
        return index.prepare(*(pa.array([], kind) for kind in types_of(index)))
    return index.prepare(*(one_array(arrays) for arrays in zip(*(batch.columns for batch in alike), strict=True)))
