"""Tasks of a build in Python workers: over files that they open, or batches that Spark has read.

A task that Spark pickles refers to the modules of its functions, which workers then import. So these stand in modules
of their own, which need NumPy and pyarrow alone, and a worker imports further packages only for indexes that need them.
"""

from __future__ import annotations

import itertools
import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from geoskip.indexes.base import Index
from geoskip.indexes.stored_bounds import sharing_results
from geoskip.sources.arrow_reader import FileResult, ValueGatherer, cache_zip_directories, read_files
from geoskip.sources.footers import IndexPlan

_AT_ONCE = 500
MALFORMED = "a record that is no JSON: what is read of it depends on the columns that a query reads"


def read_shares(
    plans: Sequence[IndexPlan], case_sensitive: bool, shares: Iterable[Sequence[tuple[str, str]]]
) -> Iterator[list[FileResult]]:
    """Summaries of shares of local Parquet files, given as (path to report, local path)."""
    cache_zip_directories()
    for share in shares:
        yield [*read_files(share, plans, case_sensitive)]


def tasks_of(index: Index) -> list[Any]:
    """Tasks that build one index, of nothing: what they import is what a worker needs."""
    return [partial(read_shares, [IndexPlan(str(index), index)], False), summarising_task([(index, ())], 1, str)]


Plans = Sequence[tuple[Any, tuple[int, ...]]]


def summarising_task(
    plans: Plans, first: int, decoded: Callable[[str], str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task that summarises each run of one file's rows; a file in several tasks has several runs.

    The values follow ``first`` columns: the file's path, to be decoded, and for JSON the records that could not be
    converted.
    """

    def collect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache_zip_directories()
        path: str | None = None
        gatherer = ValueGatherer(plans)
        done: list[bytes] = []
        for batch in batches:
            for found, rows in _by_file(batch):
                if path is not None and found != path:
                    done.append(pickle_result(path, gatherer))
                    gatherer = ValueGatherer(plans)
                path = found
                if first > 1 and not all(map(_is_json, rows.column(1).drop_null())):
                    done.append(pickle.dumps((plain_uri(decoded(path)), MALFORMED)))
                gatherer.add(rows.columns[first:], rows.num_rows)
            if len(done) >= _AT_ONCE:
                yield payload_batch(done)
                done = []
        if path is not None:
            done.append(pickle_result(path, gatherer))
        yield payload_batch(done)

    def pickle_result(path: str, gatherer: ValueGatherer) -> bytes:
        with sharing_results():
            return pickle.dumps((plain_uri(decoded(path)), gatherer.finish()))

    return collect


def _is_json(record: pa.Scalar) -> bool:
    """Test whether a record that Spark could not convert is well-formed, with values of other types."""
    try:
        text = record.as_py()
        json.loads(text, parse_constant=int)  # fails for NaN and Infinity, which are not JSON
    except (ValueError, RecursionError):
        return False
    return re.search(r"\d{1000}", text) is None  # longer numbers are too long for Spark's parser


def payload_batch(done: Sequence[bytes]) -> pa.RecordBatch:
    """Batch of pickled results, as tasks send them to the driver."""
    return pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], ["payload"])


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Slices of a batch by file; rows of one file are adjacent."""
    if not batch.num_rows:
        return
    encoded = batch.column(0).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    starts = [0, *((codes[1:] != codes[:-1]).nonzero()[0] + 1).tolist(), len(codes)]
    for start, end in itertools.pairwise(starts):
        yield encoded.dictionary[int(codes[start])].as_py(), batch.slice(start, end - start)


def plain_uri(uri: str) -> str:
    """URI of a file in the one spelling that serves as its key."""
    return "file:/" + uri[5:].lstrip("/") if uri.startswith("file:") else "file:" + uri if uri[:1] == "/" else uri
