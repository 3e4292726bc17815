"""Names of Sedona's functions: implementations, families, and those without a mapping.

Nothing is lost by a function without a mapping (:data:`LEFT`): it keeps every file. An index over the very expression
serves any of those that make a geometry (``GeoBox("ST_GeomFromGeoHash(code, 5)")``), and ``MinMax`` or ``ValueList``
over it those that measure or name one (``MinMax("ST_Area(geom)")``, ``ValueList("ST_GeometryType(geom)")``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geoskip.indexes.geobox.index import GeoBox, GeometryThroughIndex
from geoskip.predicates import Call, Literal
from geoskip.registry import Function
from udf_mappings.shapely_functions import FUNCTIONS

CATALYST = "org.apache.spark.sql.sedona_sql.expressions."
SHAPELY = "udf_mappings.shapely_functions."

SPARKS_OWN = "org.apache.spark.sql.catalyst.util.STUtils."
_OF_SPARK = ("ST_GeomFromWKB", "ST_AsBinary", "ST_SetSRID")

UNMOVED = (
    *("ST_Normalize", "ST_Reverse", "ST_Envelope"),
    *("ST_Force2D", "ST_Force_2D", "ST_Force3D", "ST_Force3DZ", "ST_Force3DM", "ST_Force4D"),
    *("ST_ForcePolygonCW", "ST_ForcePolygonCCW", "ST_ForceRHR", "ST_AddMeasure"),
)
"""Functions whose value has the box of their argument."""
PARTS = (
    *("ST_Boundary", "ST_ExteriorRing", "ST_InteriorRingN", "ST_GeometryN"),
    *("ST_Points", "ST_PointOnSurface"),
    *("ST_Simplify", "ST_SimplifyPreserveTopology", "ST_SimplifyVW", "ST_RemoveRepeatedPoints", "ST_RemovePoint"),
    *("ST_Intersection", "ST_Difference", "ST_ClosestPoint", "ST_Segmentize", "ST_BoundingDiagonal", "ST_ConcaveHull"),
    *("ST_LineInterpolatePoint", "ST_LineSubstring", "ST_LineMerge", "ST_Polygon", "ST_MakeValid"),
    *("ST_Multi", "ST_ForceCollection", "ST_UnaryUnion", "ST_BuildArea", "ST_Polygonize", "ST_CollectionExtract"),
)
"""Functions whose value lies in the box of their argument."""
MADE_OF_TEXT_OR_NUMBERS = (
    *("ST_Point", "ST_GeomFromText", "ST_GeomFromWKT", "ST_GeomFromWKB", "ST_GeomFromGeoJSON"),
    *("ST_PolygonFromEnvelope", "ST_MakeEnvelope", "ST_MakePoint", "ST_GeometryFromText"),
)
"""Functions of constants whose value does not depend on the implementation."""

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
    own = SHAPELY + name.lower()
    return (own, f"{own}.vectorised") if name in FUNCTIONS else ()


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


_REASONS = {
    "A geometry made of text or bytes, whose box is not known; of constants Spark makes it. Index the expression.": (
        *("ST_GeomFromEWKT", "ST_GeomFromGeoHash", "ST_GeomFromGML", "ST_GeomFromKML", "ST_GeomFromMySQL"),
        *("ST_GeomCollFromText", "ST_LineFromText", "ST_LineStringFromText", "ST_MLineFromText", "ST_MPointFromText"),
        *("ST_MPolyFromText", "ST_PointFromText", "ST_PolygonFromText", "ST_PointFromGeoHash"),
        *("ST_PointFromWKB", "ST_LineFromWKB", "ST_LinestringFromWKB", "ST_S2ToGeom", "ST_H3ToGeom"),
    ),
    "A geography is measured along the globe, and its lines are not straight in the plane of the boxes.": (
        *("ST_GeogFromEWKB", "ST_GeogFromEWKT", "ST_GeogFromGeoHash", "ST_GeogFromText", "ST_GeogFromWKB"),
        *("ST_GeogFromWKT", "ST_GeogCollFromText", "ST_GeogToGeometry", "ST_GeomToGeography"),
    ),
    "The transformed box of a geometry need not hold the transformed geometry. Index the transformed expression.": (
        "ST_Transform",
    ),
    "What is made leaves the box of what it is made of, or is of several geometries. Index the expression.": (
        *("ST_AddPoint", "ST_SetPoint", "ST_Affine", "ST_Rotate", "ST_RotateX", "ST_RotateY", "ST_Scale"),
        "ST_ScaleGeom",
        *("ST_ShiftLongitude", "ST_Project", "ST_Snap", "ST_ReducePrecision", "ST_Union", "ST_SymDifference"),
        *("ST_Collect", "ST_MakeLine", "ST_LongestLine", "ST_LineFromMultiPoint", "ST_LocateAlong"),
        *("ST_MinimumBoundingCircle", "ST_MinimumClearanceLine", "ST_SimplifyPolygonHull", "ST_VoronoiPolygons"),
        *("ST_DelaunayTriangles", "ST_TriangulatePolygon", "ST_GeometricMedian", "ST_MaximumInscribedCircle"),
        *("ST_LabelPoint", "ST_GeneratePoints", "ST_Split"),
    ),
    "It gives an array, a structure or several rows.": (
        *("ST_Dump", "ST_DumpPoints", "ST_LineSegments", "ST_SubDivide", "ST_SubDivideExplode", "ST_S2CellIDs"),
        *("ST_H3KRing", "ST_IsValidDetail", "ST_MinimumBoundingRadius"),
    ),
    "It says nothing of where a geometry is. MinMax or ValueList over the expression serves it.": (
        *("ST_AreaSpheroid", "ST_Length", "ST_Length2D", "ST_LengthSpheroid", "ST_Perimeter"),
        *("ST_Perimeter2D", "ST_MinimumClearance", "ST_Dimension", "ST_CoordDim", "ST_NDims", "ST_NPoints"),
        *("ST_NumPoints", "ST_NRings", "ST_NumGeometries", "ST_NumInteriorRing", "ST_NumInteriorRings", "ST_SRID"),
        *("ST_GeometryType", "GeometryType", "ST_Zmflag", "ST_HasM", "ST_HasZ", "ST_IsClosed", "ST_IsCollection"),
        *("ST_IsPolygonCCW", "ST_IsPolygonCW", "ST_IsRing", "ST_IsSimple", "ST_IsValid", "ST_IsValidReason"),
        *("ST_IsValidTrajectory", "ST_BestSRID", "ST_RelateMatch", "ST_Degrees"),
        *("ST_Z", "ST_ZMin", "ST_ZMax", "ST_M", "ST_MMin", "ST_MMax"),
    ),
    "Every direction occurs around any place, and every share of a line.": (
        *("ST_Angle", "ST_Azimuth", "ST_LineLocatePoint", "ST_InterpolatePoint"),
    ),
    "Whether an edge is longer than half of the globe cannot be told from a box.": ("ST_CrossesDateLine",),
    "A number of steps between cells; ST_H3CellIDs itself is in udf_mappings/h3.py.": ("ST_H3CellDistance",),
    "A geometry as text or bytes is compared with a text, not with a place. Index the expression.": (
        *("ST_AsEWKT", "ST_AsGeoJSON", "ST_AsGML", "ST_AsHEXEWKB", "ST_AsKML", "ST_AsText"),
    ),
    "It looks at other rows too, so no file can be left out for one.": (
        *("ST_KNN", "ST_DBSCAN", "ST_LocalOutlierFactor", "ST_GLocal"),
        *("ST_BinaryDistanceBandColumn", "ST_WeightedDistanceBandColumn"),
    ),
    "It is about postal addresses.": ("ExpandAddress", "ParseAddress"),
}

LEFT: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names}
"""The reason, by the function's name."""
