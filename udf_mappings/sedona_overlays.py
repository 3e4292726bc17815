"""Sedona's intersections that are not EMPTY, and its geohashes, mapped to GeoBox."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import shapely

from geoskip.clauses import Clause, any_of
from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import Call, Comparison, In, Literal, Not, Predicate, StartsWith
from geoskip.registry import maps
from udf_mappings.sedona_names import functions, sides

_INTERSECTION = tuple(functions("ST_Intersection"))


@maps(*functions("ST_Area", "ST_IsEmpty"), index=GeoBox)
def something_in_common(node: Predicate, index: GeoBox) -> Clause | None:
    """``ST_Area(ST_Intersection(a, b)) > 0``: what is not EMPTY lies in the row's box and in the constant."""
    match node:
        case Comparison(">", Call(name, (Call() as common,)), Literal(least)) if _number(least) and least >= 0:
            is_area = name.lower() == "st_area"
        case Comparison(">=", Call(name, (Call() as common,)), Literal(least)) if _number(least) and least > 0:
            is_area = name.lower() == "st_area"
        case Not(Call(name, (Call() as common,))):
            is_area = name.lower() == "st_isempty"
        case _:
            return None
    if is_area and any(each.is_called(common) for each in _INTERSECTION) and (pair := sides(common, index)):
        sight = index.sees(common)
        return None if sight is None else sight.meets(pair[1])
    return None


def _number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


@maps(*functions("ST_GeoHash"), index=GeoBox)
def in_a_geohash(node: Predicate, index: GeoBox) -> Clause | None:
    """``ST_GeoHash(g, 5) LIKE 'u0%'``: the centre of the row's envelope lies in the hash's cell."""
    match node:
        case Comparison("=", Call(_, (g, *_)), Literal(str() as text)) | StartsWith(Call(_, (g, *_)), text):
            texts = [text]
        case In(Call(_, (g, *_)), values):
            texts = [value.value for value in values]
        case _:
            return None
    cells = [geohash_cell(text) for text in texts]
    sight = index.sees(g)
    if sight is None or not cells or None in cells:
        return None
    found = [sight.meets(cell) for cell in cells]
    return None if None in found else any_of(clause for clause in found if clause is not None)


def geohash_cell(text: str) -> shapely.Polygon | None:
    """The cell of a geohash or of its beginning; None for what is none.

    >>> geohash_cell("u0").bounds
    (0.0, 45.0, 11.25, 50.625)
    """
    ends = [[-180.0, 180.0], [-90.0, 90.0]]
    for place, letter in enumerate(text):
        digit = "0123456789bcdefghjkmnpqrstuvwxyz".find(letter)
        if digit < 0 or place >= _MOST_LETTERS:
            return None
        for bit in range(5):
            axis = ends[(5 * place + bit) % 2]
            middle = (axis[0] + axis[1]) / 2
            axis[0 if digit >> (4 - bit) & 1 else 1] = middle
    return shapely.box(ends[0][0], ends[1][0], ends[0][1], ends[1][1]) if text else None


_MOST_LETTERS = 16
