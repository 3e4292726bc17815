"""A sample of the values that an index is over, for what it chooses once a dataset (:meth:`Index.prepare`).

Some rows of some files, spread over the listing: opened here where they are local Parquet and the index is over plain
columns, else read by one small Spark job. What is chosen from it may be better or worse, never wrong, so a file that
cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.indexes.base import Index
from geoskip.metadata import IndexEntry
from geoskip.predicates import Column
from geoskip.spark.analysis import arrow_type, columns_for
from geoskip.spark.known import local_path
from geoskip.spark.listing import Listed
from geoskip.spark.reading import chosen_from
from geoskip.spark.state import State
from geoskip.spark.tasks import one_array
from geoskip.spark.workers import settle_imports

__all__ = ["prepared"]

_FILES = 64
_ROWS = 64
_BUFFER = 1 << 16
_BATCHES = 8
"""Batches of rows that one task of Spark's looks at."""


def prepared(state: State, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """The entries, with what their indexes choose from a sample."""
    choosing = [entry for entry in entries if type(entry.index).prepare is not Index.prepare]
    files = [file for file in state.files if file.is_nameable]
    some = [files[i * len(files) // _FILES] for i in range(_FILES)] if len(files) > _FILES else files
    found = {entry.name: _directly(entry, some) for entry in choosing}
    texts = {text for entry in choosing if found[entry.name] is None for text in entry.index.expressions()}
    values = _through_spark(state.spark, state.frame, sorted(texts), some) if texts else {}
    chosen = {
        entry.name: entry.index.prepare(*(found[entry.name] or [values[t] for t in entry.index.expressions()]))
        for entry in choosing
    }
    return [replace(entry, index=chosen.get(entry.name, entry.index)) for entry in entries]


def _directly(entry: IndexEntry, files: Sequence[Listed]) -> list[pa.Array] | None:
    columns = [node.name for node in entry.index.bound if isinstance(node, Column) and "." not in node.name]
    names = [name.strip("`") for name in columns]
    if len(names) != len(entry.index.bound):
        return None
    pieces: list[pa.RecordBatch] = []
    for file in files:
        path = local_path(file.uri)
        if path is None:
            return None
        try:
            with pq.ParquetFile(path, buffer_size=_BUFFER) as opened:
                group = opened.metadata.num_row_groups // 2
                if set(names) - set(opened.schema_arrow.names):
                    return None
                batches = opened.iter_batches(_ROWS, [group] if opened.metadata.num_row_groups else [], names)
                pieces += [batch.select(names) for batch in [next(batches, None)] if batch is not None]
        except (OSError, pa.ArrowException):
            return None
    if not pieces or len({piece.schema.remove_metadata() for piece in pieces}) != 1:
        return None
    return [one_array([piece.column(number) for piece in pieces]) for number in range(len(names))]


def _through_spark(
    spark: SparkSession, frame: DataFrame, texts: Sequence[str], files: Sequence[Listed]
) -> dict[str, pa.Array]:
    try:
        return _one_job(spark, frame, texts, files)
    except (PySparkException, Py4JJavaError):
        for file in files[::_BATCHES]:
            try:
                return _one_job(spark, frame, texts, [file])
            except (PySparkException, Py4JJavaError):
                continue
    return _one_job(spark, frame, texts, [])


def _one_job(
    spark: SparkSession, frame: DataFrame, texts: Sequence[str], files: Sequence[Listed]
) -> dict[str, pa.Array]:
    chosen = chosen_from(spark, frame, files)
    selected = chosen.select(*columns_for(chosen, texts))
    rows: list[Any] = selected.mapInArrow(_first_rows, "payload binary").collect() if files else []
    pieces = [pa.ipc.open_stream(row["payload"]).read_next_batch() for row in rows]
    nothing = [pa.array([], arrow_type(field)) for field in selected.schema.fields]
    return {text: one_array([*(piece.column(n) for piece in pieces)] or [nothing[n]]) for n, text in enumerate(texts)}


def _first_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Some rows of each batch, as Arrow writes them; a few batches a task."""
    settle_imports()
    for number, batch in enumerate(batches):
        step = max(1, batch.num_rows // (_ROWS * _BATCHES))
        some = batch.take(pa.array(range(0, batch.num_rows, step), pa.int64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, some.schema) as writer:
            writer.write_batch(some)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["payload"])
        if number + 1 == _BATCHES:
            return
