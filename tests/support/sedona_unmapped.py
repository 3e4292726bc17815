"""Names of Sedona's functions without a mapping, each with the reason.

A function without a mapping loses nothing: it keeps every file. An index over the expression itself serves those that
create a geometry (``GeoBox("ST_GeomFromGeoHash(code, 5)")``); ``MinMax`` or ``ValueList`` over it serves those that
measure or name one (``MinMax("ST_Area(geom)")``, ``ValueList("ST_GeometryType(geom)")``).
"""

from __future__ import annotations

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
