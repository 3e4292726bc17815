"""Keys and queries of boxes: those of GeoBox, as nested objects of a document.

With *nested* objects AND becomes a query for one box that passes everything. Beside ``boxes`` (doubles as stored;
``point`` if the file has points alone) a document has a flag for each reason why rows have no box, and ``wild`` for
non-finite coordinates: the *units* of :mod:`geoskip.indexes.geobox.units`. A file without a summary has no keys, and is
kept.

A server compares coordinates, and has no polygons: clauses about a shape become a query for boxes that meet the shape's
envelope, or the envelope of its surroundings for distances, and geoskip then compares the boxes of those files.
Comparisons of a coordinate, and counts, are exact on the server. Clauses that only skip files wholly inside a shape or
near a point (NOT Intersects, a distance above a number) keep nearly every file, and are not translated.

The margins against rounding follow from ``largest``, the snapshot's largest coordinate, which is kept beside the keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geoskip.clauses import Clause, Files, UnitClause
from geoskip.geometry import sphere
from geoskip.geometry.boxes import LOOSENESS, Envelope
from geoskip.geometry.shapes import margin
from geoskip.indexes.geobox.clauses import BoxComesWithin, BoxCompares, BoxEncloses, BoxHasRows, BoxMeets
from geoskip.indexes.geobox.globe import GlobeComesWithin
from geoskip.indexes.geobox.units import BoxUnits, NoBoxReason, units_of
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import (
    ALL,
    NONE,
    KeyField,
    Query,
    ServerKeys,
    TranslatedQuery,
    all_of,
    any_of,
    negate,
    within,
)

__all__ = ["BoxCondition", "fields_of", "keys_of", "of_boxes"]

_ENDS = ("xmin", "ymin", "xmax", "ymax")
_BOOLEAN, _DOUBLE = {"type": "boolean"}, {"type": "double"}
_FLAGS = {sort: sort.name.lower() for sort in NoBoxReason}
_MOST_LITERALS = 100
_FARTHEST_LONGITUDE = 1e5


# --- keys -------------------------------------------------------------------------------------------------------------


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no boxes."""
    if not {field.name for field in entry.arrow} >= {"boxes", "rows", "boxless", "nonfinite"}:
        return None
    box = {**dict.fromkeys(_ENDS, _DOUBLE), "point": _BOOLEAN}
    flags = dict.fromkeys([*_FLAGS.values(), "wild"], _BOOLEAN)
    return {"boxes": {"type": "nested", "dynamic": False, "properties": box}, **flags}


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys:
    """The keys of all files."""
    units = units_of(files, entry.name, tuple(field.name for field in entry.arrow if field.name != "boxes"))
    none = {**dict.fromkeys(_FLAGS.values(), False), "wild": False}
    unknown = set(units.unknown_file.tolist())
    rows: list[dict[str, Any]] = [{} if at in unknown else {"boxes": [], **none} for at in range(len(files))]
    for at, box in zip(units.box_file.tolist(), _boxes(units), strict=True):
        rows[at]["boxes"].append(box)
    for at, sort in zip(units.boxless_file.tolist(), units.boxless_sort.tolist(), strict=True):
        rows[at][_FLAGS[NoBoxReason(sort)]] = True
    for at in units.wild_file.tolist():
        rows[at]["wild"] = True
    return ServerKeys(rows, largest=units.scale)


def _boxes(units: BoxUnits) -> Iterable[dict[str, Any]]:
    ends = [(getattr(units.boxes, end) + 0.0).tolist() for end in _ENDS]  # -0.0 is below 0.0 on a server
    points = units.only_points(np.arange(len(units.boxes))).tolist()
    return (dict(zip((*_ENDS, "point"), box, strict=True)) for box in zip(*ends, points, strict=True))


# --- clauses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoxCondition:
    """A condition on units: boxes by a query, rows without a box by reason, and wild coordinates."""

    field: KeyField
    query: Query
    sorts: frozenset[NoBoxReason] = frozenset()
    wild: bool = True
    exact: bool = True

    def both(self, other: BoxCondition) -> BoxCondition:
        """The conjunction with another condition."""
        query, sorts = all_of([self.query, other.query]), self.sorts & other.sorts
        return BoxCondition(self.field, query, sorts, self.wild and other.wild, self.exact and other.exact)

    def either(self, other: BoxCondition) -> BoxCondition:
        """The disjunction with another condition."""
        query, sorts = any_of([self.query, other.query]), self.sorts | other.sorts
        return BoxCondition(self.field, query, sorts, self.wild or other.wild, self.exact and other.exact)

    def translate(self) -> TranslatedQuery:
        """The query for files with such a unit."""
        flags = [*(_FLAGS[sort] for sort in sorted(self.sorts)), *(["wild"] if self.wild else [])]
        found = [within(f"{self.field.path}.boxes", self.query), *map(self.field.is_true, flags)]
        return TranslatedQuery(any_of([*found, self.field.is_missing("wild")]), self.exact)


def of_boxes(clause: UnitClause, field: KeyField) -> BoxCondition | None:
    """The condition of a clause over boxes, or a weaker one; None if it keeps nearly every file."""
    rule = _CLAUSES.get(type(clause))
    with np.errstate(all="ignore"):
        return None if rule is None else rule(clause, field)


def _meets(clause: BoxMeets, field: KeyField) -> BoxCondition | None:
    found = _reaching(clause, field, [clause.shape.envelope])
    nothing_more = (clause.shape.is_box or not clause.shape.valid) and not clause.view.slack
    return found if found is None else replace(found, exact=nothing_more)


def _encloses(clause: BoxEncloses, field: KeyField) -> BoxCondition | None:
    envelope = clause.shape.envelope
    return _reaching(clause, field, [envelope.grown(envelope.scale * LOOSENESS)])


def _comes_within(clause: BoxComesWithin, field: KeyField) -> BoxCondition | None:
    if clause.view.vanishes(field.largest):
        return None
    scale = max(clause.shape.envelope.scale, field.largest)
    reach = clause.distance + 4 * float(margin(scale, clause.distance))
    return _reaching(clause, field, [clause.shape.envelope.grown(max(reach, 0.0))], NoBoxReason.EMPTY)


def _near_on_globe(clause: GlobeComesWithin, field: KeyField) -> BoxCondition | None:
    if clause.view.slack:
        return None
    angle = clause.distance / clause.earth.least
    windows = sphere.windows(clause.longitude, clause.latitude, angle, field.largest)
    near = _reaching(clause, field, windows, NoBoxReason.EMPTY)
    if near is None:
        return None
    x, y = ("y", "x") if clause.view.flip else ("x", "y")
    off = [
        _compare(field, f"{x}min", lt=-_FARTHEST_LONGITUDE),
        _compare(field, f"{x}max", gt=_FARTHEST_LONGITUDE),
        _compare(field, f"{y}min", lt=-90.0),
        _compare(field, f"{y}max", gt=90.0),
        _no_points(field),
    ]
    return near.either(BoxCondition(field, any_of(off), exact=False))


def _reaching(clause: Any, field: KeyField, envelopes: Iterable[Envelope], *sorts: NoBoxReason) -> BoxCondition | None:
    """The boxes that meet one of the envelopes, through the clause's view."""
    if not math.isfinite(field.largest):
        return None
    found = []
    for envelope in envelopes:
        west, south, east, north = clause.view.back(envelope, field.largest)
        if any(math.isnan(end) for end in (west, south, east, north)):
            return None
        limits = (("xmin", "lte", east), ("xmax", "gte", west), ("ymin", "lte", north), ("ymax", "gte", south))
        bounded = [(end, kind, limit + 0.0) for end, kind, limit in limits if math.isfinite(limit)]
        found.append(all_of(_compare(field, end, **{kind: limit}) for end, kind, limit in bounded))
    if clause.view.if_point or clause.view.centre:
        found.append(_no_points(field))
    return BoxCondition(field, any_of(found), frozenset(sorts), exact=False)


def _compares(clause: BoxCompares, field: KeyField) -> BoxCondition | None:
    if clause.view.slack or len(clause.bounds) > _MOST_LITERALS:
        return None
    axis = "yx"[clause.axis] if clause.view.flip else "xy"[clause.axis]
    least, most = f"{axis}min", f"{axis}max"
    bounds = [(low + 0.0, high + 0.0) for low, high in clause.bounds]
    if any(not math.isfinite(end) for pair in bounds for end in pair):
        return None
    low, high = bounds[0]
    match clause.op:
        case "<":
            query = _compare(field, least, **{"lt" if low == high else "lte": low})
        case "<=":
            query = _compare(field, least, lte=low)
        case ">":
            query = _compare(field, most, **{"gt" if low == high else "gte": high})
        case ">=":
            query = _compare(field, most, gte=high)
        case "in":
            held = ((_compare(field, least, lte=high), _compare(field, most, gte=low)) for low, high in bounds)
            query = any_of(map(all_of, held))
        case "not in":
            alone = [low for low, high in bounds if low == high]
            same = [all_of([_is(field, least, value), _is(field, most, value)]) for value in alone]
            query = negate(any_of(same))
        case _:
            return None
    return BoxCondition(field, query, frozenset([(NoBoxReason.ONLY_X, NoBoxReason.ONLY_Y)[clause.axis]]))


def _has_rows(clause: BoxHasRows, field: KeyField) -> BoxCondition:
    return BoxCondition(field, ALL if clause.boxed else NONE, frozenset(clause.sorts), clause.boxed)


_CLAUSES: dict[type[Clause], Callable[[Any, KeyField], BoxCondition | None]] = {
    BoxMeets: _meets,
    BoxEncloses: _encloses,
    BoxComesWithin: _comes_within,
    GlobeComesWithin: _near_on_globe,
    BoxCompares: _compares,
    BoxHasRows: _has_rows,
}


def _compare(field: KeyField, end: str, **limits: float) -> Query:
    return field.compare(f"boxes.{end}", **limits)


def _is(field: KeyField, end: str, value: float) -> Query:
    return {"term": {f"{field.path}.boxes.{end}": value}}


def _no_points(field: KeyField) -> Query:
    return {"term": {f"{field.path}.boxes.point": False}}
