"""What an operation on a dataset starts from: what is listed now, and the latest snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from geoskip.metadata import Snapshot
from geoskip.spark.analysis import Source
from geoskip.spark.bridge import local_etag
from geoskip.spark.known import local_path
from geoskip.spark.listing import Listed, relative
from geoskip.spark.roots import below
from geoskip.stores.base import Store

__all__ = ["State", "divided", "fresh", "only", "unseen"]


@dataclass
class State:
    """A dataset as it is at one moment: what is listed, and the snapshot that an operation starts from."""

    spark: SparkSession
    frame: DataFrame
    source: Source
    files: list[Listed]
    store: Store
    snapshot: Snapshot | None


def fresh(state: State) -> pa.Array:
    """One entry a row of the files table: is the file there now, as it was indexed?"""
    assert state.snapshot is not None
    files = state.snapshot.files
    now = {relative(file.uri, state.source.root): file for file in state.files}
    columns = [files.column(name).to_pylist() for name in ("path", "size", "mtime", "etag")]
    return pa.array([_is_same(now.get(path), *indexed) for path, *indexed in zip(*columns, strict=True)], pa.bool_())


def _is_same(file: Listed | None, size: int, mtime: int, etag: str | None) -> bool:
    """Has a file of the listing the fingerprint that it was indexed under? A local one may be replaced unseen by it."""
    if file is None or (file.size, file.mtime) != (size, mtime):
        return False
    path = local_path(file.uri)
    return path is None or etag is None or local_etag(path) == etag


def divided(state: State) -> tuple[list[Listed], list[Listed]]:
    """The listed files that are new or changed, and those indexed as they are."""
    assert state.snapshot is not None
    known_paths = set(state.snapshot.files.column("path").filter(fresh(state)).to_pylist())
    stale: list[Listed] = []
    unchanged: list[Listed] = []
    for file in state.files:
        (unchanged if relative(file.uri, state.source.root) in known_paths else stale).append(file)
    return stale, unchanged


def only(table: pa.Table, state: State, files: Sequence[Listed]) -> pa.Table:
    """The rows of these files."""
    paths = pa.array([relative(file.uri, state.source.root) for file in files], pa.string())
    return table.filter(pc.is_in(table["path"], value_set=paths))


def unseen(table: pa.Table, state: State) -> pa.Table:
    """The rows of files that this handle does not see: those of other handles on the same folder."""
    root = state.source.root
    if list(state.source.roots) == [root]:
        return table.slice(0, 0)
    whole = [path if ":/" in path else f"{root.rstrip('/')}/{path}" for path in table["path"].to_pylist()]
    return table.filter(pa.array([not below(path, state.source.roots) for path in whole], pa.bool_()))
