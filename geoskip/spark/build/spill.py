"""Values that are put aside until it is known what is to be made of them.

An index that chooses something once a dataset, such as MetricDist its origins, chooses it from the values of some
files. So that none is read twice, those files are read whole: the other indexes summarise them at once, and the values
of those that are still to choose stay with the workers, on their disks, until they have chosen
(:mod:`geoskip.spark.build.sample`).

Nothing is imported here that a worker lacks. A piece is what an index would have been given at once, no more and no
less, so that the summary of a file does not depend on whether it was put aside.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, ClassVar

import pyarrow as pa

from geoskip.indexes.base import Index, SourceColumn, Summary
from geoskip.spark.build.arrow_reader import FileResult, RowSummaries, collected
from geoskip.spark.build.worker_setup import settle_imports

__all__ = [
    "DeferredIndex",
    "SpillHandle",
    "SpilledRows",
    "array_of",
    "parts_released",
    "pieces_of",
    "released",
    "stripped",
    "summarised",
]

_IN_MEMORY = 1 << 20


@dataclass(frozen=True)
class SpilledRows:
    """Some rows of one file, for one index: first their values and a sample of these, in the end their summary."""

    path: str
    index: str
    rows: int
    sample: bytes
    """Some of the rows, as Arrow writes them."""
    values: bytes = b""
    summary: Summary | str | None = None
    """What the index makes of the values; a text where it fails."""

    def made(self, index: Index) -> SpilledRows:
        """The piece with its summary, and nothing else."""
        batch = array_of(self.values)
        return replace(self, sample=b"", values=b"", summary=collected(index, batch.columns))


class SpillHandle(dict[str, Any]):
    """In place of a summary: under "pieces" what was put aside of a file, as (rows, sample, open temporary file)."""


class DeferredIndex(Index):
    """Stands for an index that is still to choose: it puts the values aside, at most ``sampled`` of them twice."""

    kind: ClassVar[str] = "held"

    def __init__(self, name: str, index: Index, sampled: int) -> None:
        self.name = name
        self.bound = index.bound
        self.texts = index.expressions()
        self.sampled = sampled

    def expressions(self) -> tuple[str, ...]:
        return self.texts

    def _named(self) -> str:
        return self.name

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        return pa.null()

    def collect(self, *values: pa.Array) -> Summary | None:
        rows = len(values[0])
        step = max(1, -(-rows // self.sampled))
        some = pa.array(range(0, rows, step), pa.int64())
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=_folder())  # noqa: SIM115 - it is closed when it was sent
        file.write(_written(values))
        return SpillHandle(pieces=[(rows, _written([_plain(value.take(some)) for value in values]), file)])

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        return SpillHandle(pieces=[piece for summary in summaries for piece in summary["pieces"]])

    def clause(self, node: Any) -> None:
        return None


def _folder() -> str | None:
    """Where Spark lets its executors write."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if os.path.isdir(first) else None


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _written(values: Sequence[pa.Array]) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(values), [str(number) for number in range(len(values))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def array_of(data: bytes) -> pa.RecordBatch:
    """The rows of a piece or of its sample."""
    return pa.ipc.open_stream(data).read_next_batch()


def pieces_of(path: str, kept: Iterable[tuple[str, Any]]) -> Iterator[SpilledRows]:
    """What was put aside of a file, by the names of the indexes; each piece is in memory only while it is asked for."""
    for name, summary in kept:
        if isinstance(summary, SpillHandle):
            pieces: list[tuple[int, bytes, IO[bytes]]] = summary["pieces"]
            summary["pieces"] = []
            for rows, sample, file in pieces:
                with file:
                    file.seek(0)
                    yield SpilledRows(path, name, rows, sample, file.read())


def released(results: Iterable[FileResult], path_of: Callable[[str], str]) -> Iterator[list[Any]]:
    """Results all together, and before them what was put aside of their files, each piece alone."""
    done: list[Any] = []
    for result in results:
        kept = [(name, summary) for name, summary in result.summaries.items() if isinstance(summary, SpillHandle)]
        for name, _ in kept:
            del result.summaries[name]
        for piece in pieces_of(path_of(result.path), kept):
            yield [piece]
        done.append(result)
    yield done


def parts_released(path: str, names: Sequence[str], parts: Sequence[RowSummaries]) -> Iterator[Any]:
    """Of the parts of one file's run of rows what was put aside, piece by piece, and then the parts without."""
    for part in parts:
        yield from pieces_of(path, zip(names, part.summaries, strict=True))
    yield path, list(parts)


def stripped(found: list[Any]) -> list[Any]:
    """The same without the values that were put aside, for the driver."""
    return [replace(each, values=b"") if isinstance(each, SpilledRows) else each for each in found]


def summarised(indexes: Mapping[str, Index]) -> Callable[[Iterable[list[Any]]], Iterator[list[Any]]]:
    """What the workers do in the end with the pieces that they have: their summaries, by the names of the indexes."""

    def work(lists: Iterable[list[Any]]) -> Iterator[list[Any]]:
        settle_imports()
        for found in lists:
            made = [each.made(indexes[each.index]) for each in found if isinstance(each, SpilledRows)]
            if made:
                yield made

    return work
