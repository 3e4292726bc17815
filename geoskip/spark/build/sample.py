"""The files that are read first, for what an index chooses once a dataset (:meth:`Index.prepare`).

Some files, spread over the listing, are read before the others: by the driver where they are small local Parquet
files, so that the build stays one job, else in a job of their own. All indexes summarise them but those that are still
to choose, for which the values are put aside (:mod:`geoskip.spark.build.spill`). These choose from a sample of the
values, and what was put aside is summarised where it lies, by the driver or in the job that reads the other files. So
no file is read twice, and no summary tells which way its file went. What is chosen may be better or worse, never wrong:
a file that cannot be read is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from geoskip.indexes.base import Index
from geoskip.metadata import IndexEntry
from geoskip.spark.analysis import arrow_type, columns_for, texts_of
from geoskip.spark.build.arrow_reader import one_array
from geoskip.spark.build.job import read
from geoskip.spark.build.sampled_build import SampledBuild
from geoskip.spark.build.spark_reader import plain_uri
from geoskip.spark.build.spill import DeferredIndex, SpilledRows, array_of, pieces_of
from geoskip.spark.dataset.listing import ListedFile, etags_of, relative, settled
from geoskip.spark.dataset.source_state import SourceState

__all__ = ["begin"]

_FILES = 64
_LEAST_FILES = 8
_BYTES = 256 << 20
"""The files read first have about so many bytes, unless they would be fewer than eight."""
_IN_THE_DRIVER = 16 << 20
"""So many bytes of files the driver reads itself in the time that a job takes."""
_ROWS = 4096


def begin(
    state: SourceState, entries: Sequence[IndexEntry], others: Sequence[IndexEntry] = (), new: Collection[str] = ()
) -> SampledBuild:
    """Read some files first, if an index is still to choose; the entries that come back have chosen.

    ``others`` are indexes that are there already, of which the files at these ``new`` paths lack the summaries: those
    are read for them too, so others are preferred.
    """
    choosing = [entry for entry in entries if entry.index.chooses()]
    if not choosing:
        return SampledBuild(entries)
    files = [file for file in state.files if file.is_nameable]
    old = [file for file in files if relative(file.uri, state.source.root) not in new] if new else files
    some = _spread(old or files)
    if not old:
        entries = [*others, *entries]
    found = SampledBuild()
    pieces: list[SpilledRows] = []
    try:
        if some:
            some = settled(state.spark, state.frame, some)
        found.files, found.etags = {file.uri: file for file in some}, etags_of(some)
        rows = max(_ROWS // max(1, len(some)), 1)
        held = {entry.name: replace(entry, index=DeferredIndex(entry.name, entry.index, rows)) for entry in choosing}
        reading = [held.get(entry.name, entry) for entry in entries]
        here = sum(file.size for file in some) <= _IN_THE_DRIVER
        found.results, pieces = read(state.spark, state.frame, state.source, reading, some, found.first, here=here)
        for uri, result in found.results.items():
            kept = [(name, result.summaries.pop(name)) for name in held if name in result.summaries]
            found.here += pieces_of(plain_uri(uri), kept)
            result.summaries |= dict.fromkeys(held)
        sample = sorted([*pieces, *found.here], key=lambda piece: piece.path)
        chosen = {entry.name: replace(entry, index=_chosen(state, entry, sample)) for entry in choosing}
    except BaseException:
        found.close()
        raise
    found.entries = [chosen.get(entry.name, entry) for entry in entries]
    return found


def _spread(files: Sequence[ListedFile]) -> list[ListedFile]:
    """Files spread over a listing: as many as make a sample, fewer where they are large."""
    size = sum(file.size for file in files)
    count = min(_FILES, max(_LEAST_FILES, _BYTES * len(files) // max(1, size)), len(files))
    return [files[number * len(files) // count] for number in range(count)]


def _chosen(state: SourceState, entry: IndexEntry, pieces: Sequence[SpilledRows]) -> Index:
    """The index with what it chooses."""
    batches = [array_of(piece.sample) for piece in pieces if piece.index == entry.name]
    kinds = Counter(str(batch.schema.types) for batch in batches)
    alike = [batch for batch in batches if str(batch.schema.types) == kinds.most_common(1)[0][0]]
    if not alike:
        fields = state.frame.select(*columns_for(state.frame, texts_of(entry.index))).schema.fields
        return entry.index.prepare(*(pa.array([], arrow_type(field)) for field in fields))
    columns = range(len(entry.index.expressions()))
    return entry.index.prepare(*(one_array([batch.column(number) for batch in alike]) for number in columns))
