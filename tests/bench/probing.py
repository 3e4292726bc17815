"""Probing equality: which of 10,000 to 1,000,000 files may hold a value, by the indexes that serve equality.

The metadata are synthetic and in memory, warm; the clause alone is timed, to its mask of all files, with another value
each run, and the quickest run counts. *derive* is what the first query of a snapshot pays for the slices, dictionaries
and postings that the later ones use; *MB* what they hold. The floor is the copying of one slice a probed bit (seven of
a filter at a rate of 0.01) and of one mask of all files.

To add an index: a function from a number of files to its summaries and the values that files hold, in INDEXES.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip import BloomFilter, Hybrid, Index, ValueList
from geoskip.clauses import Clause, keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.bloom_hash import VERSION, bits_for, hash_integers, places_of, probes_for
from geoskip.metadata import FileMetadata
from geoskip.metadata.file_table import BUDGET
from geoskip.predicates import Column, Comparison, Literal
from tests.bench.measure import console, interleaved, milliseconds, table

SIZES = (10_000, 100_000, 1_000_000)
TARGET = {10_000: 0.05, 100_000: 0.1, 1_000_000: 0.3}
COLUMN = Column("id", "bigint")
VALUES = 8
IN_FILTERS = 50


@dataclass(frozen=True)
class Made:
    """An index with the summaries of many files, and the values of each file (one row a file)."""

    index: Index
    summaries: pa.StructArray
    values: Any


def bloom(files: int) -> Made:
    """Filters of 64 bytes, each of 50 values."""
    index = BloomFilter("id")
    values = np.random.default_rng(files).integers(0, 2**40, (files, IN_FILTERS))
    return Made(index, _struct(index, files, filters=_filters(values, index.fpp), version=_versions(files)), values)


def bloom_of_sizes(files: int) -> Made:
    """Filters of four sizes, in no order: of 10, 30, 40 and 50 values."""
    index = BloomFilter("id")
    random = np.random.default_rng(files)
    values = random.integers(0, 2**40, (files, IN_FILTERS))
    counts = np.array([10, 30, 40, 50])
    sizes = random.integers(0, 4, files)
    parts = [_filters(values[sizes == size, :count], index.fpp).values for size, count in enumerate(counts)]
    order = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
    flat = pa.concat_arrays(parts).take(pa.array(order))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(files + 1, dtype=np.int32)), flat)
    return Made(index, _struct(index, files, filters=lists, version=_versions(files)), values)


def value_list(files: int) -> Made:
    """Lists of eight values."""
    index = ValueList("id")
    values = _repeated(files)
    return Made(index, _struct(index, files, values=_lists(values)), values)


def hybrid(files: int) -> Made:
    """Every other file with a list of eight values, the others with a filter of them."""
    index = Hybrid("id")
    values = _repeated(files)
    listed = pa.array(np.arange(files) % 2 == 0)
    lists, filters = _lists(values), _filters(values, index.fpp)
    none = pa.nulls(files, lists.type), pa.nulls(files, filters.type), pa.nulls(files, pa.int8())
    parts = {
        "values": pc.if_else(listed, lists, none[0]),
        "filters": pc.if_else(listed, none[1], filters),
        "version": pc.if_else(listed, none[2], _versions(files)),
    }
    return Made(index, _struct(index, files, **parts), values)


INDEXES: dict[str, Callable[[int], Made]] = {
    "BloomFilter": bloom,
    "BloomFilter, four sizes": bloom_of_sizes,
    "ValueList": value_list,
    "Hybrid": hybrid,
}


def _repeated(files: int) -> Any:
    """Eight values a file, each of which some eight files have."""
    return np.sort(np.random.default_rng(files).integers(0, files, (files, VALUES)), axis=1)


def _versions(files: int) -> pa.Array:
    return pa.array(np.full(files, VERSION, dtype=np.int8))


def _lists(values: Any) -> pa.Array:
    files, each = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(files + 1, dtype=np.int32) * each), pa.array(values.ravel()))


def _filters(values: Any, fpp: float) -> pa.Array:
    """One filter a file, as BloomFilter makes them."""
    files, each = values.shape
    bits = bits_for(each, fpp)
    flags = np.zeros((files, bits), dtype=bool)
    rows = np.repeat(np.arange(files), each)
    for places in places_of(hash_integers(values.ravel()), probes_for(fpp), bits):
        flags[rows, places] = True
    data = np.packbits(flags, axis=1, bitorder="little")
    offsets = pa.py_buffer(np.arange(files + 1, dtype=np.int64) * data.shape[1])
    flat = pa.Array.from_buffers(pa.large_binary(), files, [None, offsets, pa.py_buffer(data)])
    return pa.ListArray.from_arrays(pa.array(np.arange(files + 1, dtype=np.int32)), flat)


def _struct(index: Index, files: int, **fields: pa.Array) -> pa.StructArray:
    fields |= {"nulls": pa.array(np.zeros(files, dtype=np.int64)), "rows": pa.array(np.full(files, 1000))}
    stored = index.metadata_type(SourceColumn("id", "bigint", pa.int64()))
    assert {field.name for field in stored} == set(fields)
    return pa.StructArray.from_arrays([fields[field.name] for field in stored], [field.name for field in stored])


def run() -> None:
    """Print the table."""
    shown = table(
        "Probing equality, milliseconds",
        "",
        "files",
        "metadata MB",
        "derive",
        "MB",
        "floor",
        "clause",
        "kept",
        "target",
    )
    for name, make in INDEXES.items():
        for files in SIZES:
            with console.status(f"{name} of {files:,} files"):
                shown.add_row(name, f"{files:,}", *_measured(make(files), files))
        shown.add_section()
    console.print(shown)


def _measured(made: Made, files: int) -> list[str]:
    metadata, cached_before = FileMetadata.of(pa.table({str(made.index): made.summaries})), BUDGET.used_bytes
    index = made.index.bind([COLUMN])
    times = 101
    random = np.random.default_rng(0)
    asked = [int(made.values[row, 0]) for row in random.integers(0, files, times + 3)]
    clauses = [_clause(index, value) for value in asked]
    started = time.perf_counter()
    kept = int(np.count_nonzero(keep_mask(clauses[-1], metadata)))
    derived = time.perf_counter() - started
    cached = BUDGET.used_bytes - cached_before
    slices, mask = np.ones((8, files // 8), dtype=np.uint8), np.ones(files, dtype=bool)

    def floor(_: int) -> Any:
        return [slices[at].copy() for at in range(7)], mask.copy()

    bare, found = interleaved([floor, lambda number: keep_mask(clauses[number], metadata)], times=times, warm=2, of=min)
    judged = f"[{'green' if 1000 * found <= TARGET[files] else 'red'}]{TARGET[files]}[/]"
    sizes = (f"{made.summaries.nbytes / 1e6:,.1f}", milliseconds(derived), f"{cached / 1e6:,.1f}")
    return [*sizes, milliseconds(bare), milliseconds(found), f"{kept:,}", judged]


def _clause(index: Index, value: int) -> Clause:
    clause = index.clause(Comparison("=", COLUMN, Literal(value, "bigint")))
    assert clause is not None
    return clause
