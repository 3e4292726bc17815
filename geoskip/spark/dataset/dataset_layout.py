"""The layout of a dataset: the recorded one, and the ranges of its columns in every file.

The layout is recorded in the metadata, which need not have an index. Ranges are those of the metadata; bounds that no
index stores are read as for a build of MinMax: from Parquet footers if these suffice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.layout.clustering import FileRanges
from geoskip.layout.layout_report import (
    WRITES,
    LayoutOverlap,
    LayoutReport,
    layout_name,
    out_of_order,
    stored_ranges,
)
from geoskip.layout.ranks import is_geometry
from geoskip.lifecycle.log import latest
from geoskip.lifecycle.refresh import SnapshotDiff
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import FileMetadata, FileRow, IndexEntry, Snapshot, build_table
from geoskip.sources.build_verbs import is_elsewhere
from geoskip.sources.listed_files import UNNAMEABLE, ListedFile, relative_path
from geoskip.spark.analysis import bind, columns_for
from geoskip.spark.build.job import read_summaries
from geoskip.spark.build.spark_jobs import collect_table
from geoskip.spark.dataset.create_refresh import ENGINE
from geoskip.spark.dataset.source import DatasetSource, SparkData

_FIRST_ROWS = 100
_SMALL = 16 << 20
"""Maximum total size of files that the driver reads without a job."""
_OWN_REWRITES = {
    "Delta": "OPTIMIZE ... ZORDER BY",
    "Hudi": "CALL run_clustering(..., order => '...')",
    "Iceberg": "CALL system.rewrite_data_files(..., strategy => 'sort', sort_order => 'zorder(...)')",
}


def own_rewrite(table: str) -> str:
    """The statement by which a table format rewrites its files, or a general description."""
    return _OWN_REWRITES.get(table, "its own procedure")


def layout_in(snapshot: Snapshot | None) -> Mapping[str, Any]:
    """Return the recorded layout as JSON; empty without one."""
    return snapshot.header.layout if snapshot is not None else {}


def record_layout(data: SparkData, layout: Mapping[str, Any]) -> None:
    """Record a layout; if there are no metadata, in a first snapshot without an index.

    Nothing is recorded if the first metadata would be unencrypted, since ``encryption`` names no key, or if the
    metadata are those of another dataset.

    Parameters
    ----------
    data
        The dataset.
    layout
        The layout with the ids of the writes that arranged its rows, as JSON.
    """
    encryption = data.source.encryption

    def record(attempt: CommitAttempt) -> Commit | Amend | None:
        found = attempt.snapshot
        if found is None:
            is_clear = encryption is not None and encryption.key is None
            return None if is_clear else Commit(replace(data.header(), layout=layout), build_table([], []))
        if found.header.layout == layout or is_elsewhere(data, found.header):
            return None
        return Amend.same_files(found, replace(found.header, layout=layout))

    perform(data.store, Verb.REFRESH, record, parameters={"layout": layout_name(layout)}, by=ENGINE)


# --- ranges of columns ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DatasetRanges:
    """Ranges of some columns in the files of a dataset.

    Attributes
    ----------
    table : pa.Table
        ``path``, ``size`` and ``rows`` of the files, in the order of the ranges.
    columns : mapping
        The ranges by column; two for a geometry.
    notes : tuple of str
        Columns without ranges, with the reason.
    """

    table: pa.Table
    columns: Mapping[str, FileRanges]
    notes: tuple[str, ...] = ()

    def of(self, texts: Sequence[str]) -> dict[str, FileRanges]:
        """The ranges of some expressions; for a geometry those of x and y."""
        names = [name for text in texts for name in (text, f"{text} (x)", f"{text} (y)")]
        return {name: self.columns[name] for name in names if name in self.columns}


def current_snapshot(data: SparkData) -> Snapshot | None:
    """The latest snapshot of a dataset; None without one, or if it was created at another location."""
    with data.store.patiently():
        snapshot = latest(data.store)
    return None if snapshot is None or is_elsewhere(data, snapshot.header) else snapshot


def report_layout(source: DatasetSource, columns: Sequence[str]) -> LayoutReport:
    """Report on the files of a dataset: see :meth:`geoskip.spark.dataset.handle.Dataset.layout`."""
    data = SparkData(source)
    snapshot = current_snapshot(data)
    recorded = layout_in(snapshot)
    layout = list(recorded.get("expressions") or ())
    indexed = [text for index in (snapshot.indexes if snapshot else ()) for text in index.expressions()]
    if not columns and not layout and not indexed:
        raise InvalidSpecificationError(
            f"{source.name} has neither a recorded layout nor an index, so name the columns: layout('lng', 'lat'); its "
            f"columns are {', '.join(data.state.frame.columns[:20])}"
        )
    for name in columns:
        if not isinstance(name, str) or not name.strip():
            raise InvalidSpecificationError(f"layout() takes column names or SQL texts, got {name!r}")
    wanted = list(dict.fromkeys([*(columns or (*layout, *indexed)), *layout]))
    found = dataset_ranges(data, snapshot, wanted, strictly=set(columns))
    of_layout = found.of(layout)
    flags, overlap = None, None
    if layout:
        paths, writes = found.table["path"].to_pylist(), recorded.get(WRITES) or ()
        flags = out_of_order(list(of_layout.values()), paths, writes)
        overlap = LayoutOverlap.of(flags, paths, writes, list(of_layout))
    shown = found.of(columns) if columns else found.columns
    table = data.state.relation.table
    rewrite = f"{own_rewrite(table)} of {table}" if table else "rewrite(layout)"
    notes = [*found.notes, *([] if layout else [f"no layout is recorded: {rewrite} arranges the rows"])]
    return LayoutReport.of(
        source.name, layout_name(recorded), found.table, shown,
        overlap=overlap, notes=notes, out_of_order=flags,
    )  # fmt: skip


def dataset_ranges(
    data: SparkData, snapshot: Snapshot | None, texts: Sequence[str], *, strictly: set[str] | None = None
) -> DatasetRanges:
    """Ranges of some expressions in the current files.

    Parameters
    ----------
    data
        The dataset.
    snapshot
        Its metadata, or None.
    texts
        Column names, or SQL texts over the columns.
    strictly
        Expressions that must have ranges; others without ranges are left out with a note.

    Raises
    ------
    DatasetNotFoundError
        If there are no files.
    InvalidSpecificationError
        For an expression of ``strictly`` that is unknown, or has no order.
    """
    files = [file for file in data.state.files if file.is_nameable]
    if not files:
        why = UNNAMEABLE if len(data.state.files) else "it has no files"
        raise DatasetNotFoundError(f"{data.source.name} has no layout: {why}")
    entries, notes = _entries(data, snapshot, texts, strictly or set())
    table = _summaries(data, snapshot, entries, files)
    metadata, found = FileMetadata.of(table), dict[str, FileRanges]()
    for entry in entries:
        for name, ranges in stored_ranges(metadata, entry.index).items():
            found.setdefault(name, ranges)
    unknown = [text for text in texts if text not in found and f"{text} (x)" not in found]
    missing = [f"{text}: no file has a bound of it" for text in unknown]
    of_texts = DatasetRanges(table, found).of(texts)
    known = {note.partition(": ")[0] for note in notes}
    return DatasetRanges(
        table.select(["path", "size", "rows"]),
        of_texts,
        (*notes, *(note for note in missing if note.partition(": ")[0] not in known)),
    )


def _entries(
    data: SparkData, snapshot: Snapshot | None, texts: Sequence[str], strictly: set[str]
) -> tuple[list[IndexEntry], list[str]]:
    """Entries of indexes with bounds of some expressions, stored ones first, and notes on the others."""
    stored: dict[str, IndexEntry] = {}
    for entry in snapshot.header.entries if snapshot is not None else ():
        if isinstance(entry.index, MinMax | GeoBox):
            for text in entry.index.expressions():
                stored.setdefault(text, entry)
    notes, found = [], [stored[text] for text in texts if text in stored]
    for text in texts:
        if text in stored:
            continue
        try:
            found.append(_bound(data, text))
        except InvalidSpecificationError as error:
            if text in strictly:
                raise
            notes.append(f"{text}: {error}")
    return list({entry.name: entry for entry in found}.values()), notes


def _bound(data: SparkData, text: str) -> IndexEntry:
    """Entry of a MinMax, or of a GeoBox for a geometry; raises the error of MinMax about its range."""
    state = data.state

    def entry(index: Index) -> IndexEntry:
        return bind(state.frame, state.relation, [index])[0]

    try:
        found = entry(MinMax(text))
    except InvalidSpecificationError as error:
        try:
            return entry(GeoBox(text))
        except InvalidSpecificationError:
            raise type(error)(str(error).replace(str(MinMax(text)), f"a range of {text}", 1)) from None
    if not _has_geometries(state.frame, text):
        return found
    try:
        return entry(GeoBox(text))
    except InvalidSpecificationError:
        raise InvalidSpecificationError(
            f"its values are geometries as WKB, whose bytes have no useful order: name ST_GeomFromWKB({text})"
        ) from None


def _has_geometries(frame: DataFrame, text: str) -> bool:
    """Test whether an expression is binary, and its first values are geometries as WKB."""
    selected = frame.select(*columns_for(frame, [text]))
    if not isinstance(selected.schema.fields[0].dataType, T.BinaryType):
        return False
    return is_geometry(collect_table(selected.limit(_FIRST_ROWS)).column(0).combine_chunks())


def _summaries(
    data: SparkData, snapshot: Snapshot | None, entries: Sequence[IndexEntry], files: Sequence[ListedFile]
) -> pa.Table:
    """Files table of the listed files with stored summaries; missing ones are read."""
    stored = {entry.name for entry in snapshot.header.entries} if snapshot is not None else set()
    diff = SnapshotDiff.of(snapshot, data, closely=False) if snapshot is not None else None
    is_whole = diff is not None and bool(diff.is_fresh.all()) and not diff.stale
    if snapshot is not None and is_whole and stored.issuperset(entry.name for entry in entries):
        return snapshot.files.table()
    old = [entry for entry in entries if entry.name in stored]
    new = [entry for entry in entries if entry.name not in stored]
    known: dict[str, dict[str, Any]] = {}
    if snapshot is not None and diff is not None and old:
        table = snapshot.files.table().select(["path", "rows", *(entry.name for entry in old)])
        known = {row["path"]: row for row in table.filter(pa.array(diff.is_fresh)).to_pylist()}
    root = data.root
    paths = {file.uri: relative_path(file.uri, root) for file in files}
    rows = {path: row["rows"] for path, row in known.items()}
    found: dict[str, dict[str, Any]] = {path: dict(row) for path, row in known.items()}
    unknown = [file for file in files if paths[file.uri] not in known]
    for wanted, chosen in ((new, files), (old, unknown)):
        if not wanted or not chosen:
            continue
        small = sum(file.size for file in chosen) <= _SMALL
        for uri, result in read_summaries(data.state, wanted, chosen, in_driver=small).items():
            found.setdefault(paths[uri], {}).update(result.summaries)
            rows[paths[uri]] = result.rows if result.rows is not None else rows.get(paths[uri])
    made = (
        FileRow(path, file.size, file.mtime, None, rows.get(path), found.get(path, {}))
        for file, path in ((file, paths[file.uri]) for file in files)
    )
    return build_table(entries, made)
