"""Apache Sedona's spatial functions, mapped to GeoBox (families of soundness rule 8).

Each name is bound to up to two implementations: Sedona's Catalyst expressions (1.8; package
``org.apache.spark.sql.sedona_sql.expressions``) and, if there is one, the shapely-backed function of
:mod:`udf_mappings.shapely_functions`. Names that Spark also has since 4.1 are bound to Spark's functions too; the
shapely-backed ones are then called ``shapely_ST_GeomFromWKB`` and so on. A function without a mapping keeps every file;
an index over the expression itself serves it, ``MinMax("ST_Area(geom)")``. Argument orders and units are those of
Sedona's reference for Spark SQL and of its sources (``Predicates.java``, ``sphere/Haversine.java``,
``sphere/Spheroid.java`` in sedona-common): x is the longitude, planar distances are in the units of the coordinates,
distances on the globe in metres. No function compares SRIDs.

To add a function, name it in its family, or write a short rule that uses the index, with the reason why skipping is
sound in its docstring. ``index.sees(g)`` is the row's geometry as represented in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import shapely

from geoskip import geometry
from geoskip.clauses import Clause, all_known, any_known
from geoskip.evaluation.values import finite
from geoskip.indexes.geobox.index import Earth, GeoBox, GeometryThroughIndex
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.registry import Function, constant, declare, denotes, maps
from udf_mappings.shapely_functions import EARTH_RADIUS, FUNCTIONS, ShapelyFunction

SEDONA = "org.apache.spark.sql.sedona_sql.expressions."

SPARKS_OWN = "org.apache.spark.sql.catalyst.util.STUtils."
_OF_SPARK = ("ST_GeomFromWKB", "ST_AsBinary", "ST_SetSRID")

UNMOVED = (
    *("ST_Normalize", "ST_Reverse", "ST_Envelope"),
    *("ST_Force2D", "ST_Force_2D", "ST_Force3D", "ST_Force3DZ", "ST_Force3DM", "ST_Force4D"),
    *("ST_ForcePolygonCW", "ST_ForcePolygonCCW", "ST_ForceRHR", "ST_AddMeasure"),
)
"""Functions with results that have the box of their argument."""
PARTS = (
    *("ST_Boundary", "ST_ExteriorRing", "ST_InteriorRingN", "ST_GeometryN"),
    *("ST_Points", "ST_PointOnSurface"),
    *("ST_Simplify", "ST_SimplifyPreserveTopology", "ST_SimplifyVW", "ST_RemoveRepeatedPoints", "ST_RemovePoint"),
    *("ST_Intersection", "ST_Difference", "ST_ClosestPoint", "ST_Segmentize", "ST_BoundingDiagonal", "ST_ConcaveHull"),
    *("ST_LineInterpolatePoint", "ST_LineSubstring", "ST_LineMerge", "ST_Polygon", "ST_MakeValid"),
    *("ST_Multi", "ST_ForceCollection", "ST_UnaryUnion", "ST_BuildArea", "ST_Polygonize", "ST_CollectionExtract"),
)
"""Functions with results inside the box of their argument."""
MADE_OF_TEXT_OR_NUMBERS = (
    *("ST_Point", "ST_GeomFromText", "ST_GeomFromWKT", "ST_GeomFromWKB", "ST_GeomFromGeoJSON"),
    *("ST_PolygonFromEnvelope", "ST_MakeEnvelope", "ST_MakePoint", "ST_GeometryFromText"),
)
"""Functions with results that do not depend on the implementation, for constants."""

Pair = tuple[GeometryThroughIndex, Any, bool]


def functions(*names: str) -> Iterator[Function]:
    """Sedona's functions of these names, in all implementations."""
    for name in names:
        python = FUNCTIONS[name].implementations if name in FUNCTIONS else ()
        if name in _OF_SPARK:
            yield Function(name, classes=(SEDONA + name, SPARKS_OWN), python=python)
            yield Function(f"shapely_{name}", python=python)
        else:
            yield Function(name, classes=(SEDONA + name,), python=python)


def sides(call: Call, index: GeoBox) -> Pair | None:
    """Split a call into the geometry through the index, the constant, and True if the geometry is first."""
    if call.type == "float":  # a Python function registered with a type that rounds
        return None
    match call.args:
        case (g, Literal(shape), *_) if (sight := index.sees(g)) is not None:
            return sight, shape, True
        case (Literal(shape), g, *_) if (sight := index.sees(g)) is not None:
            return sight, shape, False
    return None


# ---- predicates

Fact = Callable[[GeometryThroughIndex, Any, bool], Clause | None]
"""Returns the clause for the geometry through the index, the constant, and True if the geometry is first."""
RELATIONS: dict[str, tuple[Fact, Fact | None]] = {
    # Touch: each of these needs a common point, so the row's box meets the constant.
    # Inside, negated: if the box of a valid row lies in the constant, the row is covered by it, and so intersects it.
    "ST_Intersects": (lambda g, shape, first: g.meets(shape), lambda g, shape, first: g.differs(shape)),
    "ST_Disjoint": (lambda g, shape, first: g.differs(shape), lambda g, shape, first: g.meets(shape)),
    "ST_Touches": (lambda g, shape, first: g.meets(shape), None),
    "ST_Crosses": (lambda g, shape, first: g.meets(shape), None),
    "ST_Overlaps": (lambda g, shape, first: g.meets(shape), None),
    # Cover: a row that contains the constant has the constant's envelope in its box. Touch: a row inside the constant
    # meets it.
    # Inside, open: if the box of a valid row lies in the constant's interior, the row is contained in it; if it touches
    # the boundary, the row is covered.
    "ST_Contains": (
        lambda g, shape, first: g.encloses(shape) if first else g.meets(shape),
        lambda g, shape, first: None if first else g.leaves_interior(shape),
    ),
    "ST_Covers": (
        lambda g, shape, first: g.encloses(shape) if first else g.meets(shape),
        lambda g, shape, first: None if first else g.leaves(shape),
    ),
    # Equal: a valid row has the constant's envelope; only EMPTY equals EMPTY. Coordinates are compared for invalid
    # rows.
    "ST_Equals": (lambda g, shape, first: g.equals(shape), None),
    "ST_OrderingEquals": (lambda g, shape, first: g.encloses(shape), None),
}
"""For each predicate the clause for TRUE, and for FALSE, if any."""
_EXCHANGED = {"st_within": "st_contains", "st_coveredby": "st_covers"}
_FACTS = {name.lower(): facts for name, facts in RELATIONS.items()}


@maps(*functions(*RELATIONS, "ST_Within", "ST_CoveredBy"), index=GeoBox)
def relation(node: Predicate, index: GeoBox) -> Clause | None:
    """Map a predicate of two geometries, or its negation, by its row in :data:`RELATIONS`."""
    call = node.child if isinstance(node, Not) else node
    if not isinstance(call, Call) or (pair := sides(call, index)) is None:
        return None
    g, shape, first = pair
    name = call.name.lower()
    fact = _FACTS[_EXCHANGED.get(name, name)][isinstance(node, Not)]
    return None if fact is None else fact(g, shape, first is (name not in _EXCHANGED))


@maps(*functions("ST_Relate"), index=GeoBox)
def intersection_pattern(node: Predicate, index: GeoBox) -> Clause | None:
    """Touch, if the pattern requires one of the cells II, IB, BI, BB not to be empty: a common point."""
    match node:
        case Call(_, (_, _, Literal(str() as pattern))) as call if pair := sides(call, index):
            if len(pattern) == 9 and any(pattern[cell] in "Tt012" for cell in (0, 1, 3, 4)):
                g, shape, _ = pair
                return g.meets(shape)
    return None


# ---- distances


@maps(*functions("ST_DWithin"), index=GeoBox)
def within_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, planar; on the spheroid of WGS84 if the fourth argument is TRUE."""
    match node:
        case Call(_, (_, _, Literal(d), *flag)) as call if pair := sides(call, index):
            return distance_clause("<=", pair, _globe_of(flag), d)
        case Not(Call(_, (_, _, Literal(d), *flag)) as call) if pair := sides(call, index):
            return distance_clause(">", pair, _globe_of(flag), d)
    return None


@maps(*functions("ST_Distance"), index=GeoBox)
def distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near: no point of a row is nearer than its box. Far: none is farther than the box's farthest point.

    Distance 0 means that the geometries meet; this comparison is exact.
    """
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return distance_clause(op, pair, None, d)
        case Not(Comparison("=", Call(_, (_, _)) as call, Literal(d))) if pair := sides(call, index):
            g, shape, _ = pair
            return g.differs(shape, d)
    return None


@maps(*functions("ST_DistanceSphere"), index=GeoBox)
def distance_on_sphere(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far by haversine, in the unit of the call's radius: metres, miles or others."""
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return distance_clause(op, pair, Earth.of_radius(EARTH_RADIUS), d)
        case Comparison(op, Call(_, (_, _, Literal(radius))) as call, Literal(d)) if pair := sides(call, index):
            return None if radius is None else distance_clause(op, pair, Earth.of_radius(float(radius)), d)
    return None


@maps(*functions("ST_DistanceSpheroid"), index=GeoBox)
def distance_on_spheroid(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far by the geodesic's bounds: 6335439 to 6399594 metres per radian of central angle."""
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return distance_clause(op, pair, Earth.wgs84(), d)
    return None


@maps(*functions("ST_MaxDistance", "ST_HausdorffDistance", "ST_FrechetDistance"), index=GeoBox)
def greater_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near only: each is the distance of two points of the geometries, so at least the minimum distance."""
    match node:
        case Comparison("<" | "<=" | "=", Call() as call, Literal(d)) if pair := sides(call, index):
            g, shape, _ = pair
            return g.comes_within(shape, d)
    return None


@maps(*functions("ST_3DDistance"), index=GeoBox)
def distance_in_space(node: Predicate, index: GeoBox) -> Clause | None:
    """Near only, for points and geometries without polygons, where it is at least the planar distance.

    For a polygon JTS measures the distance to its plane if the other geometry projects into the polygon; this may be
    nearer.
    """
    match node:
        case Comparison("<" | "<=" | "=", Call() as call, Literal(d)) if pair := sides(call, index):
            g, shape, _ = pair
            points = g.where_points()
            flat = isinstance(shape, shapely.Geometry) and shapely.get_dimensions(shape) < 2
            return None if points is None or not flat else points.comes_within(shape, d)
    return None


def _globe_of(flag: list[Predicate]) -> Earth | Predicate | None:
    match flag:
        case [] | [Literal(False)]:
            return None
        case [Literal(True)]:
            return Earth.wgs84()
    return Literal(None)  # unknown model


def distance_clause(op: str, pair: Pair, earth: Earth | Predicate | None, d: Any) -> Clause | None:
    """Return the clause of ``distance op d``.

    Parameters
    ----------
    op
        A comparison operator.
    pair
        The geometry through the index, and the constant.
    earth
        The model of the globe, or a predicate if it is unknown; None for planar distances.
    d
        The literal that the distance is compared with.
    """
    g, shape, _ = pair
    if isinstance(earth, Predicate):
        return None
    near = g.comes_within(shape, d) if earth is None else g.comes_within_on(earth, shape, d)
    far = g.goes_beyond(shape, d) if earth is None else g.goes_beyond_on(earth, shape, d)
    if earth is None and op == ">" and d == 0:
        far = g.differs(shape)
    if op == "=":
        return all_known((near, far))
    return near if op in ("<", "<=") else far


NULL_ONLY_FOR_NULL = (
    *(*RELATIONS, "ST_Within", "ST_CoveredBy"),
    *("ST_DWithin", "ST_Distance", "ST_DistanceSphere", "ST_DistanceSpheroid"),
)


@maps(*functions(*NULL_ONLY_FOR_NULL), index=GeoBox)
def has_null_argument(node: Predicate, index: GeoBox) -> Clause | None:
    """IS NULL: each of these functions is NULL only where an argument is NULL.

    But Spark makes NULL of the NaN of a vectorised function in Python. That of the spheroid is NaN beyond the poles,
    the others only for NaN and infinite coordinates, and for geometries without any.
    """
    match node:
        case IsNull(Call(name, args, implementation) as call) if pair := sides(call, index):
            (g, *others) = sorted(args, key=lambda arg: isinstance(arg, Literal))
            is_own = is_plain_point(g) if index.is_pair else g in index.bound
            is_known = all(isinstance(other, Literal) and _is_finite(other.value) for other in others)
            is_odd = name.lower().endswith("st_distancespheroid") and str(implementation).startswith("python:")
            return pair[0].is_null() if is_own and is_known and not is_odd else None
    return None


def _is_finite(constant: Any) -> bool:
    """Test a number, or a geometry by its coordinates."""
    if isinstance(constant, shapely.Geometry):
        return not shapely.is_empty(constant) and bool(np.isfinite(shapely.get_coordinates(constant)).all())
    return finite(constant) is not None


def is_plain_point(node: Predicate) -> bool:
    """True for a point of two coordinates, which is NULL only where one of them is."""
    return isinstance(node, Call) and node.name.lower().endswith("st_point") and len(node.args) == 2


# ---- coordinates


@maps(*functions("ST_X", "ST_Y"), index=GeoBox)
def coordinate(node: Predicate, index: GeoBox) -> Clause | None:
    """A point's coordinate lies between the sides of its box; other geometries have none (NULL)."""
    return _along_an_axis(node, index, GeometryThroughIndex.compares)


@maps(*functions("ST_XMin", "ST_XMax", "ST_YMin", "ST_YMax"), index=GeoBox)
def extent(node: Predicate, index: GeoBox) -> Clause | None:
    """The bounds of a row lie between the sides of its box; for EMPTY nothing is assumed."""
    return _along_an_axis(node, index, GeometryThroughIndex.reaches)


def _along_an_axis(node: Predicate, index: GeoBox, test: Callable[..., Clause | None]) -> Clause | None:
    match node:
        case Comparison(op, Call(name, (g,)), Literal() as literal):
            literals: tuple[Literal, ...] = (literal,)
        case Not(Comparison("=", Call(name, (g,)), Literal() as literal)):
            op, literals = "<>", (literal,)
        case In(Call(name, (g,)), literals):
            op = "in"
        case _:
            return None
    sight, axis = index.sees(g), 0 if name.lower().startswith("st_x") else 1
    return None if sight is None else test(sight, axis, op, *(literal.value for literal in literals))


# ---- intersections that are not EMPTY, and geohashes

_INTERSECTION = tuple(functions("ST_Intersection"))


@maps(*functions("ST_Area", "ST_IsEmpty"), index=GeoBox)
def intersection_area(node: Predicate, index: GeoBox) -> Clause | None:
    """``ST_Area(ST_Intersection(a, b)) > 0``: the intersection is in the row's box and in the constant."""
    match node:
        case Comparison(">" | ">=" as op, Call(name, (Call() as common,)), Literal(least)):
            size = finite(least)
            is_area = name.lower() == "st_area" and size is not None and (size > 0 or (size == 0 and op == ">"))
        case Not(Call(name, (Call() as common,))):
            is_area = name.lower() == "st_isempty"
        case _:
            return None
    if is_area and any(each.is_called(common) for each in _INTERSECTION) and (pair := sides(common, index)):
        sight = index.sees(common)
        return None if sight is None else sight.meets(pair[1])
    return None


@maps(*functions("ST_GeoHash"), index=GeoBox)
def geohash_prefix(node: Predicate, index: GeoBox) -> Clause | None:
    """``ST_GeoHash(g, 5) LIKE 'u0%'``: the centre of the row's envelope lies in the hash's cell.

    JTS takes (-0.5, -0.5) for the centre of the envelope of EMPTY, so rows that are or may become EMPTY are kept.
    """
    match node:
        case Comparison("=", Call(_, (g, *_)), Literal(str() as text)) | StartsWith(Call(_, (g, *_)), text):
            texts = [text]
        case In(Call(_, (g, *_)), values):
            texts = [value.value for value in values]
        case _:
            return None
    cells = [geometry.geohash_cell(text) for text in texts]
    sight = index.sees(g)
    if sight is None or not cells or None in cells:
        return None
    return any_known(sight.comes_within(cell, 0.0) for cell in cells)


# ---- what expressions denote


@denotes(*functions("ST_Point", "ST_MakePoint", "ST_PointZ", "ST_PointM", "ST_PointZM", "ST_MakePointM"))
def point_of_coordinates(call: Call) -> geometry.Point | None:
    """The point at (x, y); further arguments (z, m, an SRID) do not move it."""
    match call.args:
        case (x, y, *_):
            return geometry.Point(x, y)
    return None


@denotes(*functions("ST_SetSRID", "ST_GeomFromWKB", "ST_GeomFromEWKB", "ST_AsBinary", "ST_AsEWKB"))
def same_geometry(call: Call) -> geometry.SameGeometry | None:
    """The same coordinates: another SRID, or a conversion from or to WKB for the shapely functions."""
    match call.args:
        case (g, *rest) if all(isinstance(a, Literal) and a.value is not None for a in rest):
            return geometry.SameGeometry(g)
    return None


def _denote_by_the_first(kind: Callable[[Predicate], geometry.Denotation], *names: str) -> None:
    """Declare the denotation of functions by their first argument."""

    def meaning(call: Call) -> geometry.Denotation | None:
        return kind(call.args[0]) if call.args and not isinstance(call.args[0], Literal) else None

    meaning.__qualname__ = f"of the first argument of {names[0]}"  # a unique name in the registry
    denotes(*functions(*names))(meaning)


# the same box: functions with the same coordinates, or with the same extreme coordinates
_denote_by_the_first(geometry.SameBox, *UNMOVED)
# the same box; but the hull of a nearly straight line is a sliver, so rounding counts as a shift
_denote_by_the_first(lambda g: geometry.Shifted(g, 0.0, 0.0), "ST_ConvexHull")
# inside the box: a part of the first argument, or some of its vertices
_denote_by_the_first(geometry.InsideBox, *PARTS)
# a vertex of a line, as a point; NULL if it is not a line or has too few vertices
_denote_by_the_first(geometry.Vertex, "ST_StartPoint", "ST_EndPoint", "ST_PointN")
# in the convex hull of a valid geometry, so in its box; the centroid of an invalid polygon may be outside
_denote_by_the_first(geometry.CentroidOf, "ST_Centroid")
# x and y of every coordinate exchanged, and so those of the box
_denote_by_the_first(geometry.Flipped, "ST_FlipCoordinates")


@denotes(*functions("ST_MakePolygon"))
def shell_polygon(call: Call) -> geometry.InsideBox | None:
    """The polygon bounded by a line; holes, which are further arguments, may lie outside of it."""
    return geometry.InsideBox(call.args[0]) if len(call.args) == 1 and not isinstance(call.args[0], Literal) else None


@denotes(*functions("ST_Intersection"))
def intersection_part(call: Call) -> geometry.InsideBox | None:
    """An intersection is a part of either argument, here of the second one if the first is constant."""
    match call.args:
        case (Literal(), g):
            return geometry.InsideBox(g)
    return None


@denotes(*functions("ST_Translate"))
def translated_geometry(call: Call) -> geometry.Shifted | None:
    """Every coordinate is shifted by the same offsets, and so is the box."""
    match call.args:
        case (g, Literal(dx), Literal(dy), *_) if dx is not None and dy is not None:
            return geometry.Shifted(g, float(dx), float(dy))
    return None


@denotes(*functions("ST_Buffer"))
def planar_buffer(call: Call) -> geometry.Grown | None:
    """A planar buffer with the default round joins stays within its radius."""
    match call.args:
        case (g, Literal(r)) | (g, Literal(r), Literal(False)) if r is not None and float(r) >= 0:
            return geometry.Grown(g, float(r))
    return None


@denotes(*functions("ST_Expand"))
def expanded_box(call: Call) -> geometry.Grown | None:
    """The box with each side moved outward: within the box enlarged by the same distance."""
    match call.args:
        case (g, Literal(r)) if r is not None and float(r) > 0:
            return geometry.Grown(g, float(r))
    return None


# ---- constants


def _evaluate(entry: ShapelyFunction) -> Callable[..., Any]:
    def evaluate(*values: Any) -> Any:
        answer = entry.function(*values)
        return Literal(shapely.from_wkb(answer), "geometry") if entry.returns == "binary" else answer

    return evaluate


for _name, _entry in FUNCTIONS.items():
    if _name in MADE_OF_TEXT_OR_NUMBERS:
        constant(*functions(_name))(_evaluate(_entry))
    else:  # Spark folds Sedona's own functions; buffers of GEOS and JTS differ in the last digits
        for _function in functions(_name):
            constant(replace(_function, classes=()))(_evaluate(_entry))

for _function in functions(*NULL_ONLY_FOR_NULL, "ST_Relate"):
    declare(_function, null_in_null_out=True)  # of every argument, in each implementation
