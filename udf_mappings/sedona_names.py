"""Names of Sedona's functions: the implementations of a name, and the sides of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geoskip.indexes.geobox.index import GeoBox, GeometryThroughIndex
from geoskip.predicates import Call, Literal
from geoskip.registry import Function
from udf_mappings.shapely_constructors import FUNCTIONS as FURTHER
from udf_mappings.shapely_functions import FUNCTIONS

__all__ = ["CATALYST", "SHAPELY", "Pair", "functions", "python_of", "sides"]

CATALYST = "org.apache.spark.sql.sedona_sql.expressions."
SHAPELY = "udf_mappings.shapely_functions."
MORE_OF_SHAPELY = "udf_mappings.shapely_constructors."

SPARKS_OWN = "org.apache.spark.sql.catalyst.util.STUtils."
_OF_SPARK = ("ST_GeomFromWKB", "ST_AsBinary", "ST_SetSRID")

Pair = tuple[GeometryThroughIndex, Any, bool]


def functions(*names: str) -> Iterator[Function]:
    """Sedona's functions of these names, in all implementations."""
    for name in names:
        if name in _OF_SPARK:
            yield Function(name, classes=(CATALYST + name, SPARKS_OWN), python=python_of(name))
            yield Function(f"shapely_{name}", python=python_of(name))
        else:
            yield Function(name, classes=(CATALYST + name,), python=python_of(name))


def python_of(name: str) -> tuple[str, ...]:
    """The shapely-backed function of a name, in both of its forms."""
    found = SHAPELY if name in FUNCTIONS else MORE_OF_SHAPELY if name in FURTHER else None
    return () if found is None else (found + name.lower(), f"{found}{name.lower()}.vectorised")


def sides(call: Call, index: GeoBox) -> Pair | None:
    """Split a call into the geometry through the index, the constant, and "geometry first"."""
    if call.type == "float":  # a Python function registered to round
        return None
    match call.args:
        case (g, Literal(shape), *_) if (sight := index.sees(g)) is not None:
            return sight, shape, True
        case (Literal(shape), g, *_) if (sight := index.sees(g)) is not None:
            return sight, shape, False
    return None
