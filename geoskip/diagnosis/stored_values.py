"""The stored values of one file that a clause compares, in words: ``30 <= 35 <= 39``, ``box 2 of 4``."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds import indexed
from geoskip.clauses import Clause, UnitClause
from geoskip.conditions import FileClause
from geoskip.evaluation.value_texts import texts_of
from geoskip.indexes.file_statistics import FileStatistics
from geoskip.indexes.gaplist import SegmentTable
from geoskip.indexes.geobox.units import ENDS, BoxUnits, UnitSort
from geoskip.indexes.postings import Postings
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.report import condensed
from geoskip.types import sql_type

__all__ = ["stored_text"]

_FEW = 4
_LONGEST = 110


def stored_text(clause: Clause, entry: IndexEntry, snapshot: Snapshot, file: int) -> str:
    """Return what is stored of a file, as a clause compares it.

    Parameters
    ----------
    clause
        A clause that reads one index.
    entry
        The index.
    snapshot, file
        The metadata, and the number of the file in them.
    """
    summary = snapshot.files.column(entry.name).slice(file, 1)
    if not pa.types.is_struct(summary.type) or not summary.is_valid()[0].as_py():
        return "no summary of this file is stored"
    summary = summary.combine_chunks() if isinstance(summary, pa.ChunkedArray) else summary
    figures = entry.index.statistics(summary)
    if isinstance(clause, UnitClause) and (units := _units(clause, snapshot, file)):
        return units
    low, high = (_shown(figures[0], end) for end in ("low", "high"))
    of = indexed(entry.name)
    if low and high and of.shown("min") != of.shown("max"):
        shown = {of.shown("min"): low, of.shown("max"): high}
        ends = re.compile("|".join(f"(?<!\\w){re.escape(end)}" for end in shown))
        text = ends.sub(lambda found: shown[found[0]], str(clause))
        if text != str(clause):
            return condensed(text, _LONGEST)
    return "; ".join(map(_figures, figures))


def _figures(figures: FileStatistics) -> str:
    """Figures of one expression: ends, values and counts."""
    said = []
    if (values := _first(figures.values)) is not None:
        kind = figures.values.type.value_type if figures.values is not None else None
        shown = ", ".join(_texts(pa.array(values[:_FEW], kind), figures.type))
        said.append(f"{len(values):,} values: {shown}{', …' if len(values) > _FEW else ''}")
    elif (low := _shown(figures, "low")) and (high := _shown(figures, "high")):
        said.append(f"{low} to {high}")
    elif (details := _first(figures.details)) is not None:
        said.append(details)
    if (boxes := _first(figures.boxes)) is not None:
        said.append(f"{len(boxes):,} boxes")
    counts = ((_first(figures.nulls), "NULL"), (_first(figures.nans), "NaN"))
    said += [f"{count:,} {name}" for count, name in counts if count]
    return condensed(", ".join(said), _LONGEST) or "nothing that can be shown"


def _first(array: pa.Array | None) -> Any:
    return None if array is None or not len(array) else array[0].as_py()


def _shown(figures: FileStatistics, end: str) -> str:
    """One end of the stored values as text; empty where there is none."""
    ends = getattr(figures, end)
    return "" if ends is None or _first(ends) is None else _texts(ends, figures.type)[0]


def _texts(values: pa.Array, kind: str) -> list[str]:
    """Values as SQL shows them, text in quotes."""
    with suppress(pa.ArrowException, ValueError, KeyError, TypeError):
        texts = texts_of(values, kind).to_pylist()
        quoted = sql_type(kind).is_text or kind in ("date", "timestamp", "timestamp_ntz")
        return [f"'{text}'" if quoted else str(text) for text in texts]
    return list(map(str, values.to_pylist()))


def _units(clause: UnitClause, snapshot: Snapshot, file: int) -> str:
    """The units of a file that a clause keeps; empty where it has none of a sort that is known here."""
    part = next((part for part in getattr(clause, "parts", (clause,)) if isinstance(part, FileClause)), None)
    table = None if part is None else part.units(snapshot.files)
    if isinstance(table, BoxUnits):
        owned, name = np.flatnonzero(table.unit_file == file), "box"
    elif isinstance(table, SegmentTable):
        owned, name = np.flatnonzero(table.segments.owner == file), "segment"
    elif isinstance(table, Postings):
        units = np.searchsorted(table.starts, np.flatnonzero(table.owners == file), side="right") - 1
        owned, name = np.unique(units), "value"
    else:
        return ""
    kept = clause.keep_units(snapshot.files)[owned]
    texts = [_unit(table, int(place)) for place in owned[kept][:_FEW]]
    if not texts:
        return f"none of its {len(owned):,} {name}{'es' if name == 'box' else 's'}"
    more = f" and {int(kept.sum()) - _FEW:,} more" if kept.sum() > _FEW else ""
    if name == "value":
        return condensed(f"{', '.join(texts)}{more} of {len(owned):,} values", _LONGEST)
    places = [f"{name} {number + 1}" for number in np.flatnonzero(kept)[:_FEW]]
    shown = [f"{place}: {text}" if text else place for place, text in zip(places, texts, strict=True)]
    return condensed(f"{'; '.join(shown)}{more} (of {len(owned):,})", _LONGEST)


def _unit(table: BoxUnits | SegmentTable | Postings, place: int) -> str:
    """A unit in words."""
    if isinstance(table, BoxUnits):
        sort = UnitSort(int(table.column("sort")[place]))
        if sort is not UnitSort.BOX:
            return f"rows whose place is {sort.name.lower().replace('_', ' ')}"
        return " ".join(f"{end} {table.column(end)[place]:g}" for end in ENDS)
    if isinstance(table, SegmentTable):
        ends = (table.segments.summary("", end) for end in ("min", "max"))
        low, high = (end[place].as_py() for end in ends)
        return "rows without a value in a segment" if low is None else f"{low} to {high}"
    return _value(table, place)


def _value(table: Postings, place: int) -> str:
    for start, values in table.dictionaries.values():
        if start <= place < start + len(values) - 1:
            found = values.array[place - start].as_py()
            return f"'{found.decode('utf-8', 'replace')}'" if isinstance(found, bytes) else str(found)
    return _flags(len(table) - place)


def _flags(from_end: int) -> str:
    return {3: "NULL", 2: "values that were too many to store", 1: "nothing stored"}.get(from_end, "")
