"""The files that may contain a matching row, without Spark; the basis of all engine adapters.

A file is skipped only if the latest snapshot of the metadata has it with the same fingerprint as the listing, and some
index shows that no row of it makes the condition TRUE. New, changed and unindexed files are kept, and so are all files
where the metadata, an index or a part of the condition cannot be used; the report has the reasons.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.clauses import KEEP_NONE, Mask
from geoskip.engines.folder_listing import FolderListing, list_files, locate, path_keys
from geoskip.engines.matched_snapshot import FileMatch, Numbers, inverse, latest_snapshot, snapshot_or_reason, store_of
from geoskip.engines.partition_values import PartitionColumns
from geoskip.engines.sql_text import predicate_of_sql
from geoskip.engines.time_texts import is_utc, zone_of
from geoskip.engines.usable_indexes import reason_unusable, schema_types, types_of_schema, without_old_times
from geoskip.errors import InvalidSpecificationError, MetadataError, UnknownColumnError
from geoskip.lifecycle.log import reason_unreadable
from geoskip.metadata import IndexEntry, Snapshot, empty_snapshot
from geoskip.planner import Decision, clause_for, decide
from geoskip.predicates import TRUE, Call, Predicate, walk
from geoskip.registry.installed import load_mappings
from geoskip.report import Scan
from geoskip.sources.dependencies import top_level_columns
from geoskip.sources.parquet_schema import spark_schema
from geoskip.stores.base import Store

_MOST_DECISIONS = 64
"""Maximum number of decisions for one condition, if the remaining conditions differ between partitions."""
_SECONDS = 5.0


class File(NamedTuple):
    """A file that may contain a matching row."""

    path: str
    """The full path."""
    size: int
    """Its size in bytes."""
    rows: int | None = None
    """Its row count; None if no metadata have the file."""
    partitions: Mapping[str, Any] = {}
    """The values of its partition columns: int, date, str, None for NULL; text if the type is unknown."""


class KeptFiles(list[File]):
    """The files that may contain a matching row, ordered by path.

    Attributes
    ----------
    report
        Total and kept files and bytes, the reasons why parts of the condition were not used, and the clauses.
    columns
        Spark's names of the types of the dataset's columns; None for partition columns of an unknown type.
    partition_columns
        The names of the partition columns.
    predicate
        The translated condition.
    listing
        The listing that the files come from.
    """

    report: Scan
    columns: Mapping[str, str | None]
    partition_columns: tuple[str, ...]
    predicate: Predicate
    listing: FolderListing


def listing(path: str | os.PathLike[str], *, store: Store | None = None, metadata: str | None = None) -> FolderListing:
    """List a dataset's files with their fingerprints, once for many calls of :func:`files`.

    Pass the result as ``files(path, where, listing=...)``. The metadata are compared with the listing at once, which
    takes as long as listing a million files. If the dataset changes later, calls with an old listing return files of
    that listing. ``store`` and ``metadata`` are those of :func:`files`.
    """
    root, below = locate(path)
    found = list_files(root, below)
    with suppress(MetadataError):  # files() reports the error
        snapshot = latest_snapshot(store_of(root, store, metadata))
        if snapshot is not None:
            FileMatch.of(snapshot, found)
    return found


def files(
    path: str | os.PathLike[str],
    where: Any = None,
    *,
    store: Store | None = None,
    metadata: str | None = None,
    dialect: str = "spark",
    listing: FolderListing | None = None,
    time_zone: str | None = None,
) -> KeptFiles:
    """Return the files of a Parquet dataset that may contain a row for which a condition is TRUE.

    Parameters
    ----------
    path
        A local folder or file: the indexed folder or a path below it; or a Delta or Iceberg table, where the path of an
        Iceberg metadata file selects that version.
    where
        SQL text (``"temp > 30 AND city = 'Oslo'"``), a ``pyarrow.compute.Expression``, a polars expression, or a
        predicate of :mod:`geoskip.predicates` with Spark's semantics. None keeps all files.
    store, metadata
        The store of the metadata, or their folder; default: beside the data. Encrypted metadata need a store with keys:
        ``ParquetStore(folder, encryption=Encryption(keys))``.
    dialect
        Dialect of the SQL text: ``"spark"`` or ``"duckdb"``.
    listing
        The result of :func:`listing`, to avoid listing the folder for each call.
    time_zone
        The time zone of the engine's session, such as ``"Europe/Oslo"``, for parsing text as timestamps. Without it,
        conditions that depend on the time zone keep every file.

    Returns
    -------
    KeptFiles
        A list of :class:`File` with a ``report``.

    Raises
    ------
    DatasetNotFoundError, InvalidSpecificationError, UnknownColumnError
        For a path that does not exist, a condition that cannot be parsed, and an unknown column.
    """
    root, below = locate(path)
    if listing is not None and not isinstance(listing, FolderListing):
        raise InvalidSpecificationError(f"listing= is what geoskip.listing(path) returns, got {listing!r}")
    if time_zone is not None and not is_utc(time_zone) and zone_of(time_zone) is None:
        raise InvalidSpecificationError(f"time_zone= is a name such as 'Europe/Oslo' or 'UTC', got {time_zone!r}")
    found = listing if listing is not None else list_files(root, below)
    if (found.root, found.below) != (root, below):
        raise InvalidSpecificationError(
            f"listing= is of {os.path.join(found.root, found.below)}, the files are asked of "
            f"{os.path.join(root, below)}; give what geoskip.listing() returned for this path"
        )
    started = time.perf_counter()
    reasons = [*found.notes]
    snapshot, is_readable = snapshot_or_reason(root, store, metadata, reasons)
    types: Mapping[str, str | None] = _types(found, snapshot)
    partitions = _partitions(found, snapshot, types)
    is_complete = snapshot is not None or found.table_types is not None
    columns = {**(types if is_complete else _types_in_a_file(found)), **partitions.types}
    names = tuple(columns) if is_complete else None
    try:
        predicate = TRUE if where is None else _predicate(where, columns, dialect, time_zone, names, reasons)
    except UnknownColumnError:
        more = _names_without_types(found)
        if names is None or more.issubset(names):
            raise
        predicate = _predicate(where, columns, dialect, time_zone, (*names, *more.difference(names)), reasons)
    used = without_old_times(predicate)

    def ask(snapshot: Snapshot | None, is_readable: bool, reasons: list[str]) -> tuple[_Question, Numbers, KeptFiles]:
        question = _Question(found, snapshot, is_readable, partitions, used, reasons)
        kept = question.kept_numbers()
        return question, kept, KeptFiles(question.files(kept))

    try:
        question, kept, answer = ask(snapshot, is_readable, [*reasons])
    except MetadataError as error:  # a column of the snapshot is read where it is needed first
        question, kept, answer = ask(None, False, [*reasons, reason_unreadable(f"the metadata of {root}", error)])
    answer.predicate, answer.columns, answer.listing = predicate, columns, found
    answer.partition_columns = tuple(partitions.types)
    answer.report = question.report(kept, "" if where is None else str(predicate), time.perf_counter() - started)
    return answer


def _predicate(
    where: Any,
    columns: Mapping[str, str | None],
    dialect: str,
    time_zone: str | None,
    names: Sequence[str] | None,
    reasons: list[str],
) -> Predicate:
    """Translate a condition to a predicate, and add the reasons for unused parts to ``reasons``.

    ``names`` has all columns, if they are known: any other one in SQL raises UnknownColumnError.
    """
    if isinstance(where, Predicate):
        return where
    known = {name: kind for name, kind in columns.items() if kind is not None}
    if isinstance(where, str):
        if dialect == "duckdb" and not is_utc(time_zone):  # it shifts times of INT96, which it reads without a zone
            shifted = ("timestamp",) if time_zone is None else ("timestamp", "timestamp_ntz")
            known = {name: kind for name, kind in known.items() if kind not in shifted}
        predicate, said = predicate_of_sql(where, known, dialect, time_zone=time_zone, names=names)
        reasons.extend(said)
        return predicate
    translator = _TRANSLATORS.get(type(where).__module__.partition(".")[0])
    if translator is None or not hasattr(where, "is_null"):
        raise InvalidSpecificationError(
            f"where= is {where!r}: give SQL text, a pyarrow.compute.Expression, a polars expression, or a predicate of "
            "geoskip.predicates"
        )
    module, function = translator
    found: Predicate
    found, said = getattr(import_module(f"geoskip.engines.{module}"), function)(where, known, names=names)
    reasons.extend(said)
    return found


_TRANSLATORS = {
    "pyarrow": ("arrow_expression", "predicate_of_arrow"),
    "polars": ("polars_expression", "predicate_of_polars"),
}
"""Modules and functions that translate conditions, by package."""


def _types_in_a_file(found: FolderListing) -> dict[str, str]:
    """Spark's types of the columns in the first file, for translating a condition without metadata."""
    with suppress(OSError, pa.ArrowException):
        if len(found.path):
            with pq.ParquetFile(os.path.join(found.root, found.path[0].as_py())) as file:
                return types_of_schema(spark_schema(file))
    return {}


def _names_without_types(found: FolderListing) -> set[str]:
    """Names of columns that Spark does not read, by their types, or because folders differ."""
    names = {key for path in found.path.to_pylist() if "=" in path for key in path_keys(os.path.dirname(path))}
    with suppress(OSError, pa.ArrowException):
        if found.table_types is None and len(found.path):
            names.update(pq.read_schema(os.path.join(found.root, found.path[0].as_py())).names)
    return names


def _types(found: FolderListing, snapshot: Snapshot | None) -> Mapping[str, str | None]:
    """Spark's types of the columns by the metadata; for a table, by the version that was listed."""
    if found.table_types is not None:
        return found.table_types
    return {} if snapshot is None else snapshot.files.cached("schema", lambda: schema_types(snapshot.header))


def _partitions(found: FolderListing, snapshot: Snapshot | None, types: Mapping[str, str | None]) -> PartitionColumns:
    def columns() -> PartitionColumns:
        known = {name: kind for name, kind in types.items() if kind is not None}
        return PartitionColumns.of(found, {**known, **found.types})

    return columns() if snapshot is None else snapshot.files.cached(("partitions", found.token), columns)


# --- one question -----------------------------------------------------------------------------------------------------


@dataclass
class _Question:
    """Evaluation of one condition on one listing."""

    found: FolderListing
    snapshot: Snapshot | None
    is_readable: bool
    partitions: PartitionColumns
    predicate: Predicate
    reasons: list[str]
    decisions: list[tuple[Decision, Mask | None]] = field(default_factory=list)
    unindexed: int = 0

    def kept_numbers(self) -> Numbers:
        """The numbers of the kept files in the listing, ascending."""
        left, which = self.partitions.residuals(self.predicate)
        if self.predicate is not TRUE:
            read = {"", *top_level_columns(self.predicate)}
            self.reasons.extend(note for name, note in self.partitions.notes.items() if name.lower() in read)
        if len(left) == 1 and left[0] is TRUE:
            return np.arange(len(self.found.path))
        if self.snapshot is None:
            impossible = np.array([clause_for(one, ()) is KEEP_NONE for one in left])
            return np.flatnonzero(~impossible[which[self.partitions.folders]])
        match = FileMatch.of(self.snapshot, self.found)
        self.unindexed = len(match.unknown) + len(self.found.unnameable)
        entries = self._usable(self.snapshot)
        if len(left) == 1:
            decision = self._decide(self.snapshot, left[0], entries)
            rows = np.flatnonzero(decision.keep)
            unknown = match.unknown if decision.clause is not KEEP_NONE else match.unknown[:0]
        else:
            keep, unknown = self._by_partition(self.snapshot, match, left, which, entries)
            rows = np.flatnonzero(keep)
        if match.everything:
            kept = rows
        else:
            kept = match.file[rows]
            kept = kept[kept >= 0]
        return np.sort(np.concatenate([kept, unknown]))

    def _by_partition(
        self,
        snapshot: Snapshot,
        match: FileMatch,
        left: Sequence[Predicate],
        which: Numbers,
        entries: Sequence[IndexEntry],
    ) -> tuple[Mask, Numbers]:
        """The rows and unknown files to keep, if it depends on the folder ``which`` condition is left."""
        of_folder = which[self.partitions.folders]
        of_row = of_folder[match.file]  # a row without a file gets an arbitrary condition; it is dropped later
        of_unknown = of_folder[match.unknown]
        keep = np.zeros(len(of_row), dtype=bool)
        unknown = np.zeros(len(of_unknown), dtype=bool)
        deadline = time.monotonic() + _SECONDS
        for number, predicate in enumerate(left):
            if number >= _MOST_DECISIONS or time.monotonic() > deadline:
                self.reasons.append("too many different partitions: the files of some are all kept")
                keep |= of_row >= number
                unknown |= of_unknown >= number
                break
            decision = self._decide(snapshot, predicate, entries, of_row == number)
            if decision.clause is KEEP_NONE:
                continue
            keep |= (of_row == number) & decision.keep
            unknown |= of_unknown == number
        return keep, match.unknown[unknown]

    def _usable(self, snapshot: Snapshot) -> list[IndexEntry]:
        if any(isinstance(vertex, Call) for vertex in walk(self.predicate)):
            load_mappings()
        named = self._as_indexed(self.predicate)
        read = top_level_columns(named)
        found = []
        for entry in snapshot.header.entries:
            if not read.isdisjoint(top_level_columns(*entry.index.bound)):
                why = reason_unusable(self.found, snapshot.header, entry, named)
                if why is None:
                    found.append(entry)
                else:
                    self.reasons.append(f"{entry.name} is not used: {why}")
        return found

    def _as_indexed(self, predicate: Predicate) -> Predicate:
        """Replace the columns of a condition by their names in the metadata."""
        return predicate if self.found.columns is None else self.found.columns.rename_columns(predicate)

    def _decide(
        self, snapshot: Snapshot, predicate: Predicate, entries: Sequence[IndexEntry], among: Mask | None = None
    ) -> Decision:
        """Apply a condition to all rows; ``among`` marks the rows in partitions with this condition."""
        decision = decide(snapshot, self._as_indexed(predicate), [entry.index for entry in entries])
        self.decisions.append((decision, among))
        self.reasons.extend(decision.reasons)
        return decision

    def files(self, kept: Numbers) -> list[File]:
        """The kept files, and those with names that metadata cannot hold."""
        found, numbers = self.found, pa.array(kept)
        paths, sizes = found.path.take(numbers).to_numpy(zero_copy_only=False).tolist(), found.sizes[kept].tolist()
        rows = self._rows(kept)
        values = self.partitions.values
        folders = self.partitions.folders[kept].tolist()
        head = found.root.rstrip("/") + "/"
        files = list(map(File, map(head.__add__, paths), sizes, rows, map(values.__getitem__, folders)))
        return [*files, *(File(head + path, size) for path, size in found.unnameable)]

    def _rows(self, kept: Numbers) -> list[int | None]:
        """The row counts of the kept files."""
        if self.snapshot is None or not len(kept):
            return [None] * len(kept)
        match = FileMatch.of(self.snapshot, self.found)
        rows = self.snapshot.files.column("rows")
        if not match.everything or len(match.unknown):
            where = self.snapshot.files.cached(("row", self.found.token), lambda: inverse(match, len(self.found.path)))
            kept = where[kept]
        counts = rows.take(pa.array(kept, mask=kept < 0))
        found: list[int | None] = counts.to_pylist() if counts.null_count else counts.to_numpy().tolist()
        return found

    def report(self, kept: Numbers, predicate: str, seconds: float) -> Scan:
        """The report on this condition.

        Parameters
        ----------
        kept
            The numbers of the kept files.
        predicate
            The text of the condition.
        seconds
            The duration of planning.
        """
        names = self.found.unnameable
        return Scan(
            dataset=f"file:{os.path.join(self.found.root, self.found.below).rstrip('/')}",
            predicate=predicate,
            files_total=len(self.found),
            files_kept=len(kept) + len(names),
            bytes_total=self.found.total_bytes,
            bytes_kept=int(self.found.sizes[kept].sum()) + sum(size for _, size in names),
            planning_seconds=seconds,
            noted=tuple(dict.fromkeys(self.reasons)),
            paths=functools.partial(self._paths, kept),
            effects=self._effects,
            decisions=self._decisions,
            among=self._listed_masks,
            files_unindexed=self.unindexed,
        )

    def _paths(self, kept: Numbers, are_kept: bool) -> list[str]:
        """The full paths of the kept files, or of the others."""
        chosen = np.zeros(len(self.found.path), dtype=bool)
        chosen[kept] = True
        head = self.found.root.rstrip("/") + "/"
        named = self.found.path.filter(pa.array(chosen if are_kept else ~chosen)).to_pylist()
        return [head + path for path in (*named, *(name for name, _ in self.found.unnameable if are_kept))]

    def _decisions(self) -> tuple[Decision, ...]:
        """The decisions; without metadata a decision over no file, which reports the indexes that would help."""
        if self.snapshot is None and self.is_readable and self.predicate is not TRUE:
            return (decide(empty_snapshot(self.found.root), self.predicate),)
        return tuple(decision for decision, _ in self.decisions)

    def _effects(self) -> tuple[tuple[str, int], ...]:
        """The text of each clause, and the number of listed files of the snapshot that it alone would skip."""
        sums: dict[str, int] = {}
        for (decision, of), among in zip(self.decisions, self._listed_masks(), strict=True):
            effects = decision.effects(among)
            if decision.clause is KEEP_NONE:
                why = "partition columns" if of is not None else "a condition that no row meets"
                effects = ((why, int(np.count_nonzero(among))),)
            for text, count in effects:
                sums[text] = sums.get(text, 0) + count
        return tuple(sorted(sums.items(), key=lambda pair: -pair[1]))

    def _listed_masks(self) -> tuple[Mask, ...]:
        """For each decision, the snapshot's rows that it applies to and that are listed."""
        if self.snapshot is None:
            return ()
        listed_rows = FileMatch.of(self.snapshot, self.found).file >= 0
        return tuple(listed_rows if mask is None else listed_rows & mask for _, mask in self.decisions)
