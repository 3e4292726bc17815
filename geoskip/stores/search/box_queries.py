"""Keys and queries of boxes: those of GeoBox, as nested objects of a document.

With *nested* objects AND becomes a query for one box that passes everything. Beside ``boxes`` (doubles as stored;
``point`` if the file has points alone) a document has a flag for each other sort of
:mod:`units <geoskip.indexes.geobox.units>`. A file without a summary has no keys, and is kept.

A server compares coordinates, and has no polygons: clauses about a shape become a query for boxes that meet the shape's
envelope, or the envelope of its surroundings for distances, and geoskip then compares the boxes of those files.
Comparisons of a coordinate, and counts, are exact on the server. Clauses that only skip files wholly inside a shape or
near a point (NOT Intersects, a distance above a number) keep nearly every file, and are not translated.

The margins against rounding follow from ``largest``, the snapshot's largest coordinate, which is kept beside the keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from geoskip.clauses import Clause, Files
from geoskip.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Negation,
    all_hold,
    any_holds,
    is_exact,
    necessary,
)
from geoskip.geometry.boxes import Envelope
from geoskip.indexes.geobox.units import ENDS, BoxFacts, BoxUnits, UnitSort, units_of
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import KeyField, Query, ServerKeys, TranslatedQuery, UnitKeys, any_of

_BOOLEAN, _DOUBLE = {"type": "boolean"}, {"type": "double"}
_FLAGS: dict[UnitSort, str] = {sort: sort.name.lower() for sort in UnitSort if sort != UnitSort.BOX}


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no boxes."""
    if not {field.name for field in entry.arrow} >= {"boxes", "rows", "boxless", "nonfinite"}:
        return None
    box = {**dict.fromkeys(ENDS, _DOUBLE), "point": _BOOLEAN}
    return {
        "boxes": {"type": "nested", "dynamic": False, "properties": box},
        **dict.fromkeys(_FLAGS.values(), _BOOLEAN),
    }


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys:
    """The keys of all files."""
    units = units_of(files, entry.name, tuple(field.name for field in entry.arrow if field.name != "boxes"))
    none = dict.fromkeys(_FLAGS.values(), False)
    unknown = set(units.unknown_file.tolist())
    rows: list[dict[str, Any]] = [{} if at in unknown else {"boxes": [], **none} for at in range(len(files))]
    for at, box in zip(units.box_file.tolist(), _boxes(units), strict=True):
        rows[at]["boxes"].append(box)
    lacking = slice(len(units.box_file), None)
    for at, sort in zip(units.unit_file[lacking].tolist(), units.column("sort")[lacking].tolist(), strict=True):
        rows[at][_FLAGS[UnitSort(sort)]] = True
    return ServerKeys(rows, largest=units.scale)


def _boxes(units: BoxUnits) -> Iterable[dict[str, Any]]:
    ends = [(getattr(units.boxes, end) + 0.0).tolist() for end in ENDS]  # -0.0 is below 0.0 on a server
    points = units.only_points(np.arange(len(units.boxes))).tolist()
    return (dict(zip((*ENDS, "point"), box, strict=True)) for box in zip(*ends, points, strict=True))


def unit_keys_of(clause: Clause, field: KeyField) -> UnitKeys:
    """The keys of boxes, which all lie within the largest coordinate."""
    extent = Envelope(-field.largest, -field.largest, field.largest, field.largest)
    return BoxKeys(field, BoxFacts(extent), known="wild", nested="boxes")


class BoxKeys(UnitKeys):
    """The keys of units: nested objects of boxes, and flags for the other sorts."""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for documents with a unit that satisfies a condition; None if only code drops boxes."""
        vague = not is_exact(condition) and _of_sort(necessary(condition), UnitSort.BOX) == ALWAYS
        return None if vague else super().translate(condition)

    def query_of(self, condition: Condition) -> Query:
        weaker = necessary(condition)
        found = [super().query_of(_of_sort(weaker, UnitSort.BOX))]
        found += [self.field.is_true(flag) for sort, flag in _FLAGS.items() if _of_sort(weaker, sort) == ALWAYS]
        return any_of(found)


def _of_sort(condition: Condition, sort: UnitSort) -> Condition:
    """The condition, without code, for the units of one sort; only boxes have other columns."""
    match condition:
        case Compare("sort", _, value):
            return ALWAYS if value == sort else NEVER
        case AllOf(parts):
            return all_hold(_of_sort(part, sort) for part in parts)
        case AnyOf(parts):
            joined = any_holds(_of_sort(part, sort) for part in parts)
            return ALWAYS if isinstance(joined, AnyOf) and _has_complement(joined.parts) else joined
        case Negation(part):
            found = _of_sort(part, sort)
            return NEVER if found == ALWAYS else ALWAYS if found == NEVER else Negation(found)
    return condition if sort is UnitSort.BOX else NEVER


def _has_complement(parts: tuple[Condition, ...]) -> bool:
    """True if one of some alternatives negates others: elsewhere than in windows, or in one of them."""
    negated = [part.part for part in parts if isinstance(part, Negation)]
    return any({*(one.parts if isinstance(one, AnyOf) else (one,))} <= {*parts} for one in negated)
