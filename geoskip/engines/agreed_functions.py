"""Functions with the same values with and without Spark, by implementation.

A call binds to an implementation, never to a bare name: to a class of Catalyst, by which indexes built through Spark
know it, or to a Python function that an installed library offers, by its identity.
"""

from __future__ import annotations

from functools import cache

from geoskip.predicates import Call, Column, Literal, Predicate
from geoskip.registry.fingerprint import Unidentifiable
from geoskip.registry.installed import implementation_of_offered, offered_by_name

CATALYST = "org.apache.spark.sql.catalyst.expressions."
_CLASSES = frozenset(
    CATALYST + name
    for name in ("Add", "Subtract", "Multiply", "Year", "Quarter", "Month", "DayOfMonth", "DateAdd", "DateSub")
)
_OF_DUCKDB = (
    *("st_contains", "st_coveredby", "st_covers", "st_crosses", "st_disjoint", "st_distance", "st_dwithin"),
    *("st_equals", "st_geomfromgeojson", "st_geomfromtext", "st_geomfromwkb", "st_intersects", "st_makeenvelope"),
    *("st_overlaps", "st_point", "st_touches", "st_within", "st_x", "st_y"),
)
"""Functions of DuckDB's spatial extension that mean what those of geoskip mean: in the plane, as GEOS computes them.

Distances only with a point or a constant without a polygon: that of two polygons is 0 in DuckDB where a side of one
lies on the line of a side of the other. Not those on the globe, which take the latitude first there, nor ``ST_Buffer``,
which has other segments.
"""


def is_agreed(call: Call) -> bool:
    """True for a function of which every reader computes what Spark does."""
    if (call.implementation or "").startswith("python:"):
        found = _offered_function(call.name.lower().removeprefix("shapely_"))
        return found is not None and found[1] == call.implementation
    return call.implementation in _CLASSES


def spatial_call(name: str, arguments: tuple[Predicate, ...], dialect: str) -> Call | None:
    """Make a call of the ``ST_`` function of a name in a dialect; None for one without a counterpart.

    In DuckDB's dialect a column of WKB, or of DuckDB's own type for geometries, is read as a geometry.
    """
    if dialect == "duckdb":
        if name.lower() not in _OF_DUCKDB:
            return None
        if name.lower() != "st_geomfromwkb":
            arguments = tuple(map(_as_geometry, arguments))
        if name.lower() in ("st_distance", "st_dwithin") and not any(map(_has_no_area, arguments)):
            return None
    found = _offered_function(name.lower())
    if found is None:
        return None
    shown, implementation, flags, returns = found
    return Call(shown, arguments, implementation, flags, returns)


def _as_geometry(argument: Predicate) -> Predicate:
    if isinstance(argument, Column) and argument.type in ("binary", "geometry"):
        return spatial_call("ST_GeomFromWKB", (Column(argument.name, "binary"),), "duckdb") or argument
    return argument


def _has_no_area(argument: Predicate) -> bool:
    """True for a point, and for a constant without a polygon."""
    match argument:
        case Call(name, (Literal(str() as text),)):
            return name.lower() in ("st_geomfromtext", "st_geomfromgeojson") and "polygon" not in text.lower()
        case Call(name):
            return name.lower() == "st_point"
    return False


@cache
def _offered_function(name: str) -> tuple[str, str, tuple[str, ...], str] | None:
    """The name, implementation, flags and type of a function that a library offers, or None."""
    function = offered_by_name().get(name)
    if function is None:
        return None
    try:
        implementation, flags = implementation_of_offered(function)
    except Unidentifiable:
        return None
    return function.name, implementation, flags, function.returns
