"""The decision on one file of a scan: the clause that skips it, or the values for which it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from geoskip.bounds import index_leaf
from geoskip.clauses import KEEP_NONE, Clause, Mask, UnitClause, alternatives_of, conjuncts_of
from geoskip.conditions import FileClause
from geoskip.diagnosis.condition_parts import Joint
from geoskip.diagnosis.index_effects import indexes_of, leaf_ids
from geoskip.diagnosis.unserved import LabelledCondition
from geoskip.errors import InvalidSpecificationError
from geoskip.evaluation.value_texts import texts_of
from geoskip.indexes.base import Index
from geoskip.indexes.file_statistics import FileStatistics
from geoskip.indexes.gaplist import SegmentTable
from geoskip.indexes.geobox.units import ENDS, BoxUnits, UnitSort
from geoskip.indexes.postings import Postings
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.planner import Decision
from geoskip.report import Scan, condense, count_of, shorten
from geoskip.types import sql_type

__all__ = ["ClauseVerdict", "FileVerdict", "matching_file", "verdict_on"]

_SHOWN = 5
_FEW = 4
_LONGEST = 160
_MISSING = "no summary of this file is stored"
_FLAGS = {3: "NULL", 2: "values that were too many to store", 1: "values of which nothing is stored"}
"""The last units of postings, by their distance from the end."""
_PRUNED = "a condition on partition columns leaves it out: Spark's own pruning"


@dataclass(frozen=True)
class ClauseVerdict:
    """Result of a clause for one file.

    Attributes
    ----------
    part
        The part of the condition that the clause represents.
    index
        The indexes that it reads.
    clause
        The condition on a file; empty if no index supports the part.
    keeps
        False if this clause alone skips the file.
    stored
        The stored values, as the clause compares them; without a clause, the reason why there is none.
    """

    part: str
    index: str
    clause: str
    keeps: bool
    stored: str

    def __str__(self) -> str:
        return f"{self.part}: {self.stored}" if self.clause else f"{self.part}: {self.stored}, so it keeps every file"


@dataclass(frozen=True)
class FileVerdict:
    """Explanation why one file is read or skipped.

    Attributes
    ----------
    path
        The full path.
    kept
        True if the query reads the file.
    reason
        A sentence on the file as a whole.
    clauses
        A verdict for each clause; empty if the metadata do not contain the file.
    """

    path: str
    kept: bool
    reason: str
    clauses: tuple[ClauseVerdict, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**asdict(self), "clauses": list(map(asdict, self.clauses))}


def matching_file(scans: Sequence[Scan], file: str) -> str:
    """Return the path of the one file that is given by its path, its name, or a part of the path.

    Raises InvalidSpecificationError if no file of the scans matches, or several do.
    """
    paths = sorted({path for scan in scans for kept in (True, False) for path in scan.paths(kept)})
    wanted = _plain(file)
    for fits in (
        [path for path in paths if _plain(path) == wanted],
        [path for path in paths if _plain(path).rpartition("/")[2] == wanted],
        [path for path in paths if wanted in _plain(path)],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            shown = ", ".join(fits[:_SHOWN]) + (", ..." if len(fits) > _SHOWN else "")
            raise InvalidSpecificationError(
                f"file={file!r} fits {count_of(len(fits), 'file')}: {shown}; give the whole path of one of them"
            )
    have = f"which has {count_of(len(paths), 'file')}, such as {paths[0]}" if paths else "which has no files"
    raise InvalidSpecificationError(
        f"file={file!r} is no file of this query, {have}; give a path, a file's name, or a part of its path"
    )


def verdict_on(scan: Scan, path: str) -> FileVerdict | None:
    """Return why a scan reads or skips a file; None if the scan does not list the file."""
    kept = path in set(scan.kept_files())
    if not kept and path not in set(scan.skipped_files()):
        return None
    decisions, masks = scan.decisions(), scan.among()
    if not decisions:
        return FileVerdict(path, kept, " ".join(scan.noted[:1]) or "no condition reaches the files")
    places = [(number, row) for number, d in enumerate(decisions) if (row := _row_of(path, d)) is not None]
    if not places:
        why = next((d.snapshot.header.reasons.get(name) for d in decisions for name in _names(path, d)), None)
        newer = f"no metadata: {why}" if why else "no metadata: the file is newer than the snapshot"
        return FileVerdict(path, kept, f"{newer}; dataset.refresh_index() indexes what it can")
    listed = [place for place in places if place[0] < len(masks) and masks[place[0]][place[1]]]
    known = any(mask.any() for mask in masks)
    if known and not listed:
        if not kept:
            return FileVerdict(path, kept, _PRUNED)
        why = "it has changed since it was indexed; dataset.refresh_index() indexes it again"
        return FileVerdict(path, kept, f"its metadata are not used: {why}")
    number, row = (listed or places)[0]
    decision = decisions[number]
    if decision.clause is KEEP_NONE:
        members = LabelledCondition(decision).whole.members()[0]
        of_partition = any(member.clause is KEEP_NONE and not member.columns for member in members)
        return FileVerdict(path, kept, _PRUNED if of_partition else "the condition is TRUE for no row of any file")
    clauses = tuple(_verdicts(LabelledCondition(decision, scan.noted, scan.written()), row))
    if kept:
        reason = "no clause skips it" if decision.keep[row] else "it has changed since it was indexed"
    elif decision.keep[row]:
        reason = _PRUNED
    else:
        by = dict.fromkeys(verdict.index or verdict.clause for verdict in clauses if not verdict.keeps)
        reason = f"skipped by {', '.join(by)}" if by else "its clauses skip it together"
    return FileVerdict(path, kept, reason, clauses)


def _verdicts(condition: LabelledCondition, row: int) -> Iterator[ClauseVerdict]:
    """The verdicts of all clauses, followed by the parts without a clause."""
    decision = condition.decision
    leaves = {part: leaf_ids(part.clause) for part in condition.parts}
    deep = frozenset[int]().union(*(leaf_ids(part.label.clause) for part in condition.parts if part.too_deep))
    for clause in conjuncts_of(decision.clause):
        own, keeps = leaf_ids(clause), _keeps(clause, decision, row)
        if own <= deep:
            continue
        parts = [part for part, ids in leaves.items() if not ids.isdisjoint(own)]
        of = list(map(str, parts))
        if keeps and condition.says_presence(clause) and not any(part.is_presence for part in parts):
            continue
        names, stored = indexes_of(clause), _values_text(condition, clause, row)
        yield ClauseVerdict(" AND ".join(of) or "IS NOT NULL", ", ".join(names), _words(clause), keeps, stored)
    for unserved in condition.unserved_parts():
        if unserved.within is None or unserved.joint is not Joint.REST:
            yield ClauseVerdict(str(unserved.within or unserved.part), "", "", True, unserved.why)


def _keeps(clause: Clause, decision: Decision, row: int) -> bool:
    return decision.skips(clause, _file_mask(row, len(decision.keep))) == 0


def _file_mask(row: int, files: int) -> Mask:
    """The mask of one file."""
    mask = np.zeros(files, dtype=bool)
    mask[row] = True
    return mask


def _words(clause: Clause) -> str:
    return condense(str(clause))


def _values_text(condition: LabelledCondition, clause: Clause, row: int) -> str:
    """The stored values of a file for a clause; for an OR only those of the sides that keep the file."""
    decision = condition.decision
    sides = alternatives_of(clause)
    if len(sides) > 1 and not isinstance(clause, UnitClause):
        keeping = [side for side in sides if _keeps(side, decision, row)] or sides
        return " or ".join(dict.fromkeys(_values_text(condition, side, row) for side in keeping[:_SHOWN]))
    parts = [part for part in conjuncts_of(clause) if not condition.says_presence(part)]
    if len(parts) > 1:
        return " and ".join(dict.fromkeys(_values_text(condition, part, row) for part in parts[:_SHOWN]))
    names = indexes_of(clause)
    read = [entry for entry in condition.entries if entry.name in names]
    return _stored_text(clause, read, decision.snapshot, row) if read else _words(clause)


def _row_of(path: str, decision: Decision) -> int | None:
    """The number of a file in a decision's snapshot, or None."""
    numbers = decision.snapshot.files.numbers()
    return next((numbers[name] for name in _names(path, decision) if name in numbers), None)


def _names(path: str, decision: Decision) -> tuple[str, ...]:
    """The possible names of a file in a decision's snapshot."""
    root = decision.snapshot.header.root.rstrip("/") + "/"
    heads = (root, "/" + root.removeprefix("file:").lstrip("/"))
    return (path, *(path.removeprefix(head) for head in heads if path.startswith(head)))


def _plain(path: str) -> str:
    """A path as shown to people: without the scheme of local files and percent-encoding."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return unquote(path) if "%" in path else path


# --- stored values as a clause compares them: ``30 <= 35 <= 39``, ``box 2 of 4`` --------------------------------------


def _stored_text(clause: Clause, entries: Sequence[IndexEntry], snapshot: Snapshot, file: int) -> str:
    """Return the stored values of a file, as a clause compares them.

    Parameters
    ----------
    clause
        A clause of one index, not an AND or OR of several; clauses over one index's units may be combined.
    entries
        The indexes that the clause reads.
    snapshot, file
        The metadata, and the number of the file in them.
    """
    stored = {entry.name: figures for entry in entries if (figures := _file_statistics(entry, snapshot, file))}
    names = ", ".join(entry.name for entry in entries)
    if len(stored) < len(entries):
        return f"{names}: {_MISSING}"
    if isinstance(clause, UnitClause) and (units := _units(clause, snapshot, file)):
        return f"{names}: {shorten(units, _LONGEST)}"
    if compared := _with_ends(str(clause), stored):
        return f"{names}: {shorten(compared, _LONGEST)}"
    texts = {name: "; ".join(map(_figures, figures)) for name, figures in stored.items()}
    return "; ".join(f"{name}: {shorten(text, _LONGEST)}" for name, text in texts.items())


def _file_statistics(entry: IndexEntry, snapshot: Snapshot, file: int) -> Sequence[FileStatistics]:
    """The statistics of an index for one file; empty if it has no summary."""
    summary = snapshot.files.column(entry.name).slice(file, 1)
    summary = summary.combine_chunks() if isinstance(summary, pa.ChunkedArray) else summary
    is_there = pa.types.is_struct(summary.type) and summary.is_valid()[0].as_py()
    try:
        return entry.index.statistics(summary) if is_there else ()
    except Exception:  # the error of a user-defined index type
        return Index.statistics(entry.index, summary)


def _with_ends(text: str, stored: Mapping[str, Sequence[FileStatistics]]) -> str:
    """Replace ``min(a)`` and ``max(a)`` in the text of a clause by stored values; empty if it has none."""
    ends = {}
    for name, (figures, *_) in stored.items():
        for end, shown in (("min", _end(figures, "low")), ("max", _end(figures, "high"))):
            if shown:
                ends[index_leaf(name).end_text(end)] = shown
    if not ends:
        return ""
    pattern = re.compile("|".join(f"(?<!\\w){re.escape(end)}" for end in ends))
    found = pattern.sub(lambda match: ends[match[0]], text)
    return "" if found == text else found


def _figures(figures: FileStatistics) -> str:
    """Statistics of one expression as text: bounds, values and counts."""
    said = []
    if figures.values is not None and (values := _first_value(figures.values)) is not None:
        shown = _texts(pa.array(values[:_FEW], figures.values.type.value_type), figures.type)
        said.append(f"{len(values):,} values: {', '.join(shown)}{', …' if len(values) > _FEW else ''}")
    elif (low := _end(figures, "low")) and (high := _end(figures, "high")):
        said.append(f"{low} to {high}")
    elif (details := _first_value(figures.details)) is not None:
        said += [f"{name} {value}" for name, value in json.loads(details).items()]
    if (boxes := _first_value(figures.boxes)) is not None:
        said.append(f"{len(boxes):,} boxes")
    for count, name in ((_first_value(figures.nulls), "NULL"), (_first_value(figures.nans), "NaN")):
        if count or (count == 0 and name == "NULL"):
            said.append(f"{count or 'no'} {name}")
    return ", ".join(said) or "nothing that can be shown"


def _first_value(array: pa.Array | None) -> Any:
    return None if array is None or not len(array) else array[0].as_py()


def _end(figures: FileStatistics, end: str) -> str:
    """One bound of the stored values as text; empty if it is unknown."""
    ends = getattr(figures, end)
    return "" if _first_value(ends) is None else _texts(ends, figures.type)[0]


def _texts(values: pa.Array, kind: str) -> list[str]:
    """Values in the notation of SQL; strings and times are quoted."""
    texts = list(map(str, values.to_pylist()))
    with suppress(pa.ArrowException, ValueError, KeyError, TypeError):
        texts = list(map(str, texts_of(values, kind).to_pylist()))
    quoted = sql_type(kind).is_text or kind in ("date", "timestamp", "timestamp_ntz")
    return [f"'{text}'" if quoted else text for text in texts]


def _units(clause: UnitClause, snapshot: Snapshot, file: int) -> str:
    """The units of a file that a clause keeps, as text; empty for unsupported kinds of units."""
    part = next((part for part in getattr(clause, "parts", (clause,)) if isinstance(part, FileClause)), None)
    table = None if part is None else part.units(snapshot.files)
    if isinstance(table, BoxUnits):
        owned, name = np.flatnonzero(table.unit_file == file), "box"
    elif isinstance(table, SegmentTable):
        owned, name = np.flatnonzero(table.segments.owner == file), "segment"
    elif isinstance(table, Postings):
        units = np.searchsorted(table.starts, np.flatnonzero(table.owners == file), side="right") - 1
        owned, name = np.unique(units), ""
    else:
        return ""
    kept = np.flatnonzero(clause.keep_units(snapshot.files)[owned])
    several = count_of(len(owned), name or "value").replace("boxs", "boxes")
    if not len(kept):
        return f"none of its {several}"
    texts = [_unit(table, int(owned[number])) for number in kept[:_FEW]]
    if name:
        texts = [f"{name} {number + 1} ({text})" for number, text in zip(kept, texts, strict=False)]
    return f"{', '.join(texts)}{', …' if len(kept) > _FEW else ''} of {several}"


def _unit(table: BoxUnits | SegmentTable | Postings, place: int) -> str:
    """A unit as text."""
    if isinstance(table, BoxUnits):
        sort = UnitSort(int(table.column("sort")[place]))
        ends = " ".join(f"{table.column(end)[place]:g}" for end in ENDS)
        return ends if sort is UnitSort.BOX else f"rows without a box: {sort.name.lower().replace('_', ' ')}"
    if isinstance(table, SegmentTable):
        low, high = (table.segments.summary("", end)[place].as_py() for end in ("min", "max"))
        return "NULL, NaN or unknown" if low is None else f"{low} to {high}"
    for start, values in table.dictionaries.values():
        if start <= place < start + len(values) - 1:
            value = values.array[place - start].as_py()
            return f"'{value.decode('utf-8', 'replace')}'" if isinstance(value, bytes) else str(value)
    return _FLAGS.get(len(table) - place, "")
