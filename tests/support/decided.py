"""Decisions over a few files with summaries that a test collects itself, without store and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.indexes.base import Index, SourceColumn
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.planner import Decision, decide
from geoskip.predicates import Call, Column, Predicate, columns_of
from geoskip.report import Scan
from geoskip.types import sql_type

ROOT = "file:/d"
VALUES: dict[str, Sequence[Any]] = {
    "bigint": range(40),
    "int": range(40),
    "double": [float(n) for n in range(40)],
    "string": [f"c{n:02}" for n in range(40)],
    "timestamp": range(40),
}
"""Values of every column by type, ten for each file, unless a test has others."""


def decision(predicate: Predicate, indexes: Sequence[Index], *, files: int = 4, usable: bool = True) -> Decision:
    """Decide over files ``p0.parquet``, ``p1.parquet``, ... with ten rows each.

    Parameters
    ----------
    predicate
        The condition of a query.
    indexes
        The indexes of the dataset, bound to their expressions.
    files
        The number of files.
    usable
        False if none of the dataset's indexes may be used.
    """
    entries = tuple(map(entry_of, indexes))
    rows = []
    for number in range(files):
        cut = slice(10 * number, 10 * number + 10)
        values = ([_values(expression)[cut] for expression in entry.index.bound] for entry in entries)
        summaries = {e.name: e.index.collect(*some) for e, some in zip(entries, values, strict=True)}
        rows.append(FileRow(f"p{number}.parquet", 1, 1, None, 10, summaries))
    snapshot = Snapshot(Header(ROOT, {}, entries), FileMetadata.of(build_table(entries, rows)))
    return decide(snapshot, predicate, None if usable else ())


def entry_of(index: Index) -> IndexEntry:
    """The entry of a bound index in a snapshot."""
    types = [sql_type(bound.type) for bound in index.bound]
    over = [SourceColumn(text, t.name, t.arrow) for text, t in zip(index.expressions(), types, strict=True) if t.arrow]
    columns = {name: "" for bound in index.bound for name in columns_of(bound)}
    return IndexEntry(index, tuple(columns.items()), index.metadata_type(*over))


def _values(expression: Predicate) -> pa.Array:
    """Values for an expression, by its type only."""
    assert isinstance(expression, Column | Call)
    kind = sql_type(expression.type)
    values = pa.array(VALUES[kind.name])
    return values if kind.arrow is None else values.cast(kind.arrow)


def scan_of(*decisions: Decision, noted: Sequence[str] = (), **options: Any) -> Scan:
    """Create a scan over the files of some decisions, all of which are listed unchanged."""
    kept = {path: keep for each in decisions for path, keep in zip(paths_of(each), each.keep.tolist(), strict=True)}
    kept |= options.pop("further", {})
    some: dict[str, Any] = {
        "paths": lambda are_kept: [path for path, keep in kept.items() if keep is are_kept],
        "decisions": lambda: decisions,
        "among": lambda: tuple(np.ones(len(each.keep), dtype=bool) for each in decisions),
    }
    where = " AND ".join(str(each.predicate) for each in decisions)
    return Scan(ROOT, where, len(kept), sum(kept.values()), 0, 0, noted=tuple(noted), **(some | options))


def paths_of(decided: Decision) -> list[str]:
    """The full paths of a decision's files."""
    return [f"{ROOT}/{name}" for name in decided.snapshot.files.column("path").to_pylist()]
