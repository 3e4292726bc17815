"""Spatial functions of DuckDB with Spark's semantics.

GEOS is in both. Constant geometries are made here, by shapely; a column of geometries is one of WKB to Spark.
``ST_Distance`` to EMPTY is 0 as in Sedona (executed), EMPTY is disjoint from everything, and a file with non-finite
coordinates is kept by the index. Functions of DuckDB that differ are not used: those on the globe take the latitude
first, ``ST_Buffer`` has other segments, ``ST_X`` fails for anything but a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import shapely

from geoskip.engines.agreed_functions import spatial_call
from geoskip.engines.constant_bounds import NEGATED, Constant, compared
from geoskip.engines.duckdb_constants import number_of
from geoskip.engines.implied_conditions import Builder, EngineCondition
from geoskip.predicates import Call, Column, Literal, Not, Predicate
from geoskip.types import sql_type

_OF_TWO = frozenset(
    f"st_{name}"
    for name in (
        *("contains", "within", "covers", "coveredby", "intersects", "disjoint"),
        *("touches", "crosses", "overlaps", "equals", "distance"),
    )
)
"""Functions of two geometries that mean what the shapely-backed ones of their names mean."""


def spatial_operand(builder: Builder, name: str, parts: Sequence[Any]) -> Any:
    """A geometry, a distance or a condition that a spatial function makes of operands; else unknown."""
    numbers = list(map(number_of, parts))
    match name, parts:
        case "st_geomfromtext", [Constant("text", text)]:
            return shape(builder, shapely.from_wkt, text)
        case "st_geomfromgeojson", [Constant("text", text)]:
            return shape(builder, shapely.from_geojson, text)
        case "st_geomfromhexwkb" | "st_geomfromhexewkb", [Constant("text", text)]:
            return shape(builder, shapely.from_wkb, text)
        case "st_geomfromwkb", [Constant("binary", wkb)]:
            return shape(builder, shapely.from_wkb, wkb)
        case "st_geomfromwkb", [Column(_, "binary") as column]:
            return _call("ST_GeomFromWKB", column)
        case (("st_point" | "st_makepoint"), [_, _]) if None not in numbers:
            return shape(builder, shapely.points, *numbers)
        case "st_makeenvelope", [_, _, _, _] if None not in numbers:
            return shape(builder, shapely.box, *numbers)
        case (("st_point" | "st_makepoint"), [Column() as x, Column() as y]):
            if all(kind.is_floating or kind.is_integral for kind in (sql_type(x.type), sql_type(y.type))):
                return _call("ST_Point", x, y)
        case _, [left, right] if name in _OF_TWO:
            if (pair := _pair(left, right)) is not None:
                call = _call(name, *pair)
                return call if name == "st_distance" else EngineCondition(call, Not(call))
        case "st_dwithin", [left, right, _] if numbers[2] is not None:
            if (pair := _pair(left, right)) is not None:
                call = _call(name, *pair, Literal(numbers[2], "double"))
                return EngineCondition(call, Not(call))
    return builder.unknown(f"the function {name} of DuckDB is not used with these arguments", *parts)


def shape(builder: Builder, make: Callable[..., Any], *values: Any) -> Any:
    """A constant geometry; unknown where shapely cannot read it."""
    try:
        found = make(*values)
    except (shapely.errors.ShapelyError, TypeError, ValueError):
        found = None
    if not isinstance(found, shapely.Geometry):
        return builder.unknown("a constant geometry could not be read")
    return Literal(found, "geometry")


def distance_compared(builder: Builder, op: str, call: Call, constant: Any) -> EngineCondition:
    """``ST_Distance(a, b) op constant``.

    Parameters
    ----------
    builder
        Makes conditions that are not used, with the reason.
    op, call, constant
        The comparison, the distance, and the operand on the other side.
    """
    limit = number_of(constant)
    if limit is None or call.type != "double":
        return builder.unknown(f"{call.name} beside {constant} is not used")
    literal = Literal(limit, "double")
    return EngineCondition(compared(op, call, literal), compared(NEGATED[op], call, literal))


def _pair(left: Any, right: Any) -> tuple[Predicate, Predicate] | None:
    """Two geometries as Spark sees them; None for anything else."""
    found = [_geometry(part) for part in (left, right)]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _call(name: str, *arguments: Predicate) -> Call:
    """A call of the shapely-backed function of a name; KeyError where no library offers it."""
    found = spatial_call(name, arguments, "spark")
    if found is None:
        raise KeyError(name)
    return found


def _geometry(part: Any) -> Predicate | None:
    match part:
        case Column(name, "geometry"):
            return _call("ST_GeomFromWKB", Column(name, "binary"))
        case (Call(type="binary") | Literal(type="geometry") | Column(_, "binary")) as found:
            return found
    return None
