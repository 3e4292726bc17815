"""The stored values of one file, as a clause compares them: ``30 <= 35 <= 39``, ``box 2 of 4``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds import index_leaf
from geoskip.clauses import Clause, UnitClause
from geoskip.conditions import FileClause
from geoskip.evaluation.value_texts import texts_of
from geoskip.indexes.base import Index
from geoskip.indexes.file_statistics import FileStatistics
from geoskip.indexes.gaplist import SegmentTable
from geoskip.indexes.geobox.units import ENDS, BoxUnits, UnitSort
from geoskip.indexes.postings import Postings
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.report import count_of, shorten
from geoskip.types import sql_type

__all__ = ["stored_text"]

_FEW = 4
_LONGEST = 160
_MISSING = "no summary of this file is stored"
_FLAGS = {3: "NULL", 2: "values that were too many to store", 1: "values of which nothing is stored"}
"""The last units of postings, by their distance from the end."""


def stored_text(clause: Clause, entries: Sequence[IndexEntry], snapshot: Snapshot, file: int) -> str:
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
