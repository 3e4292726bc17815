"""Parameters that an index chooses from a sample of the dataset (:meth:`Index.prepare`).

The sample comes from at most 64 files spread over the listing: of the columns of the choosing indexes alone, read in a
job of its own, or by the driver where the files are small local ones of Parquet. The build reads these files again as
it reads the others. What is chosen may be better or worse, never wrong, so a file that cannot be read is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.indexes.base import Index, SourceColumn, Summary
from geoskip.metadata import IndexEntry
from geoskip.spark.analysis import arrow_type, columns_for, texts_of
from geoskip.spark.build.arrow_reader import one_array
from geoskip.spark.build.job import read
from geoskip.spark.build.listing import ListedFile, SourceState

__all__ = ["choose_parameters"]

_FILES = 64
_LEAST_FILES = 8
_BYTES = 256 << 20
"""Bytes that the files of a sample have together, unless they would be fewer than eight."""
_IN_THE_DRIVER = 16 << 20
"""Bytes of files that the driver reads in about the time that a job takes."""
_ROWS = 4096


def choose_parameters(state: SourceState, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Entries of a build, each with an index that has chosen its parameters."""
    choosing = [entry for entry in entries if entry.index.chooses()]
    if not choosing:
        return list(entries)
    files = _sampled_files([file for file in state.files if file.is_nameable])
    rows = max(_ROWS // max(1, len(files)), 1)
    samples = [replace(entry, index=_SampledValues(entry.index, rows)) for entry in choosing]
    small = sum(file.size for file in files) <= _IN_THE_DRIVER
    results = read(state, samples, files, in_driver=small) if files else {}
    chosen = {}
    for entry in choosing:
        summaries = (results[uri].summaries.get(entry.name) for uri in sorted(results))
        batches = [batch for summary in summaries if summary is not None for batch in summary["batches"]]
        chosen[entry.name] = replace(entry, index=_prepared(state, entry.index, batches))
    return [chosen.get(entry.name, entry) for entry in entries]


class _SampledValues(Index):
    """Stand-in for an index that is still to choose, with at most ``rows`` rows of each part."""

    kind: ClassVar[str] = "sample"

    def __init__(self, index: Index, rows: int) -> None:
        self.name = str(index)
        self.bound = index.bound
        self.texts = index.expressions()
        self.rows = rows

    def expressions(self) -> tuple[str, ...]:
        return self.texts

    def _named(self) -> str:
        return self.name

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        return pa.null()

    def collect(self, *values: pa.Array) -> Summary | None:
        step = max(1, -(-len(values[0]) // self.rows))
        rows = pa.array(range(0, len(values[0]), step), pa.int64())
        taken = [_decoded(value.take(rows)) for value in values]
        return {"batches": [pa.RecordBatch.from_arrays(taken, [str(number) for number in range(len(taken))])]}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        return {"batches": [batch for summary in summaries for batch in summary["batches"]]}

    def clause(self, node: Any) -> None:
        return None


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _sampled_files(files: Sequence[ListedFile]) -> list[ListedFile]:
    """Files spread over a listing: as many as make a sample, fewer where they are large."""
    size = sum(file.size for file in files)
    count = min(_FILES, max(_LEAST_FILES, _BYTES * len(files) // max(1, size)), len(files))
    return [files[number * len(files) // count] for number in range(count)]


def _prepared(state: SourceState, index: Index, batches: Sequence[pa.RecordBatch]) -> Index:
    """The index prepared by the batches of the commonest types: files may have a column in several ones."""
    types = Counter(str(batch.schema.types) for batch in batches)
    alike = [batch for batch in batches if str(batch.schema.types) == types.most_common(1)[0][0]]
    if not alike:
        fields = state.frame.select(*columns_for(state.frame, texts_of(index))).schema.fields
        return index.prepare(*(pa.array([], arrow_type(field)) for field in fields))
    return index.prepare(*(one_array(arrays) for arrays in zip(*(batch.columns for batch in alike), strict=True)))
