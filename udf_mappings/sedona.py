"""Apache Sedona's spatial functions, mapped to GeoBox (families of SEMANTICS section 8).

Bound to two implementations of each name: Sedona's Catalyst expressions (1.8; package
``org.apache.spark.sql.sedona_sql.expressions``) and, of those that there are, the shapely-backed functions of
:mod:`udf_mappings.shapely_functions` and :mod:`udf_mappings.shapely_constructors`; and to Spark's own, since 4.1,
beside which the shapely-backed ones of these names are called ``shapely_ST_GeomFromWKB`` and the like. What of Sedona's
is not mapped, and why, is in :mod:`udf_mappings.sedona_names`. Argument orders and units are those of Sedona's
reference for Spark SQL and of its sources (``Predicates.java``, ``sphere/Haversine.java``, ``sphere/Spheroid.java`` in
sedona-common): x is the longitude, planar distances are in the units of the coordinates, those on the globe in metres.
None compares SRIDs.

To add a function: name it in the family where it belongs, or write a rule: a few lines that ask the index, with the
reason why skipping is sound in the docstring. ``index.sees(g)`` is the row's geometry as the index knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import shapely

from geoskip.clauses import Clause, all_of
from geoskip.geometry import CentroidOf, Flipped, Grown, InsideBox, Point, SameBox, SameGeometry, Shifted, Vertex
from geoskip.indexes.geobox.index import Earth, GeoBox
from geoskip.predicates import Call, Comparison, In, Literal, Not, Predicate
from geoskip.registry import constant, denotes, maps
from udf_mappings import sedona_overlays  # noqa: F401 - its mappings
from udf_mappings.sedona_names import Pair, functions, sides
from udf_mappings.shapely_constructors import FUNCTIONS as FURTHER
from udf_mappings.shapely_functions import EARTH_RADIUS, FUNCTIONS, ShapelyFunction

# ---- predicates


@maps(*functions("ST_Intersects", "ST_Touches", "ST_Crosses", "ST_Overlaps"), index=GeoBox)
def share_a_point(node: Predicate, index: GeoBox) -> Clause | None:
    """Touch: each needs a point in common, so the row's box meets the constant."""
    match node:
        case Call() as call if pair := sides(call, index):
            g, shape, _ = pair
            return g.meets(shape)
    return None


@maps(*functions("ST_Contains", "ST_Covers"), index=GeoBox)
def contains(node: Predicate, index: GeoBox) -> Clause | None:
    """Cover: a row containing the constant has its envelope in its box. Touch: one inside it meets it."""
    match node:
        case Call() as call if pair := sides(call, index):
            g, shape, first = pair
            return g.encloses(shape) if first else g.meets(shape)
    return None


@maps(*functions("ST_Within", "ST_CoveredBy"), index=GeoBox)
def is_within(node: Predicate, index: GeoBox) -> Clause | None:
    """The same as :func:`contains` with the sides exchanged."""
    match node:
        case Call() as call if pair := sides(call, index):
            g, shape, first = pair
            return g.meets(shape) if first else g.encloses(shape)
    return None


@maps(*functions("ST_Equals", "ST_OrderingEquals"), index=GeoBox)
def equals(node: Predicate, index: GeoBox) -> Clause | None:
    """Equal: a valid row has the constant's envelope; only EMPTY equals EMPTY.

    ST_OrderingEquals compares coordinates, of invalid rows too.
    """
    match node:
        case Call(name) as call if pair := sides(call, index):
            g, shape, _ = pair
            return g.equals(shape) if name.lower() == "st_equals" else g.encloses(shape)
    return None


@maps(*functions("ST_Relate"), index=GeoBox)
def relates(node: Predicate, index: GeoBox) -> Clause | None:
    """Touch, where the pattern forces one of the cells II, IB, BI, BB not to be empty: a point in common."""
    match node:
        case Call(_, (_, _, Literal(str() as pattern))) as call if pair := sides(call, index):
            if len(pattern) == 9 and any(pattern[cell] in "Tt012" for cell in (0, 1, 3, 4)):
                g, shape, _ = pair
                return g.meets(shape)
    return None


@maps(*functions("ST_Disjoint"), index=GeoBox)
def disjoint(node: Predicate, index: GeoBox) -> Clause | None:
    """Inside, negated: a valid row whose box lies in the constant meets it. NOT disjoint is to intersect."""
    match node:
        case Call() as call if pair := sides(call, index):
            g, shape, _ = pair
            return g.differs(shape)
        case Not(Call() as call) if pair := sides(call, index):
            g, shape, _ = pair
            return g.meets(shape)
    return None


@maps(*functions("ST_Intersects", "ST_Covers", "ST_CoveredBy"), index=GeoBox)
def not_covered(node: Predicate, index: GeoBox) -> Clause | None:
    """Inside, negated: a valid row whose box lies in the constant is covered by it, and so intersects it."""
    match node:
        case Not(Call(name) as call) if pair := sides(call, index):
            g, shape, first = pair
            if name.lower() == "st_intersects":
                return g.differs(shape)
            if first is (name.lower() == "st_coveredby"):
                return g.leaves(shape)
    return None


@maps(*functions("ST_Contains", "ST_Within"), index=GeoBox)
def not_contained(node: Predicate, index: GeoBox) -> Clause | None:
    """Inside, open: a valid row whose box lies in the constant's interior is contained by it."""
    match node:
        case Not(Call(name) as call) if pair := sides(call, index):
            g, shape, first = pair
            if first is (name.lower() == "st_within"):
                return g.leaves_interior(shape)
    return None


# ---- distances


@maps(*functions("ST_DWithin"), index=GeoBox)
def within_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far, planar; on the spheroid of WGS84 where the fourth argument says so."""
    match node:
        case Call(_, (_, _, Literal(d), *flag)) as call if pair := sides(call, index):
            return compared("<=", pair, _globe_of(flag), d)
        case Not(Call(_, (_, _, Literal(d), *flag)) as call) if pair := sides(call, index):
            return compared(">", pair, _globe_of(flag), d)
    return None


@maps(*functions("ST_Distance"), index=GeoBox)
def distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near: no point of the box is nearer than the box. Far: none is farther than its farthest point.

    What is at no distance meets: 0 is exact, and so are a few distances from a point to a point.
    """
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return compared(op, pair, None, d)
        case Not(Comparison("=", Call(_, (_, _)) as call, Literal(d))) if pair := sides(call, index):
            g, shape, _ = pair
            return g.differs(shape, d)
    return None


@maps(*functions("ST_DistanceSphere"), index=GeoBox)
def distance_on_sphere(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far by haversine, with the call's radius as unit: metres, miles or others."""
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return compared(op, pair, Earth.of_radius(EARTH_RADIUS), d)
        case Comparison(op, Call(_, (_, _, Literal(radius))) as call, Literal(d)) if pair := sides(call, index):
            return None if radius is None else compared(op, pair, Earth.of_radius(float(radius)), d)
    return None


@maps(*functions("ST_DistanceSpheroid"), index=GeoBox)
def distance_on_spheroid(node: Predicate, index: GeoBox) -> Clause | None:
    """Near and far by the geodesic's bounds: between 6335439 and 6399594 metres a radian of central angle."""
    match node:
        case Comparison(op, Call(_, (_, _)) as call, Literal(d)) if pair := sides(call, index):
            return compared(op, pair, Earth.wgs84(), d)
    return None


@maps(*functions("ST_MaxDistance", "ST_HausdorffDistance", "ST_FrechetDistance"), index=GeoBox)
def no_less_than_the_distance(node: Predicate, index: GeoBox) -> Clause | None:
    """Near alone: each is the distance of some points of the two, so it is no less."""
    match node:
        case Comparison("<" | "<=" | "=", Call() as call, Literal(d)) if pair := sides(call, index):
            g, shape, _ = pair
            return g.comes_within(shape, d)
    return None


@maps(*functions("ST_3DDistance"), index=GeoBox)
def distance_in_space(node: Predicate, index: GeoBox) -> Clause | None:
    """Near alone, from points to geometries without polygons, where it is at least the planar distance.

    From a polygon JTS measures to its plane wherever the projection of the other falls in it, which may be nearer.
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
    return Literal(None)  # not known which


def compared(op: str, pair: Pair, earth: Earth | Predicate | None, d: Any) -> Clause | None:
    """Return the clause of ``distance op d``.

    Parameters
    ----------
    op
        A comparison operator.
    pair
        The geometry through the index, and the constant.
    earth
        The model of the globe, or its radius; None for planar distances.
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
        return all_of([clause for clause in (near, far) if clause is not None])
    return near if op in ("<", "<=") else far


# ---- coordinates


@maps(*functions("ST_X", "ST_Y"), index=GeoBox)
def coordinate(node: Predicate, index: GeoBox) -> Clause | None:
    """A point's coordinate lies between its box's sides; anything else has none (NULL)."""
    match node:
        case Comparison(op, Call(name, (g,)), Literal(value)) if (sight := index.sees(g)) is not None:
            return sight.compares(_axis(name), op, value)
        case Not(Comparison("=", Call(name, (g,)), Literal(value))) if (sight := index.sees(g)) is not None:
            return sight.compares(_axis(name), "<>", value)
        case In(Call(name, (g,)), values) if (sight := index.sees(g)) is not None:
            return sight.compares(_axis(name), "in", *(v.value for v in values))
    return None


@maps(*functions("ST_XMin", "ST_XMax", "ST_YMin", "ST_YMax"), index=GeoBox)
def extent(node: Predicate, index: GeoBox) -> Clause | None:
    """The ends of a row's extent lie between the sides of its box; what they are of EMPTY is left open."""
    match node:
        case Comparison(op, Call(name, (g,)), Literal(value)) if (sight := index.sees(g)) is not None:
            return sight.reaches(_axis(name), op, value)
        case Not(Comparison("=", Call(name, (g,)), Literal(value))) if (sight := index.sees(g)) is not None:
            return sight.reaches(_axis(name), "<>", value)
        case In(Call(name, (g,)), values) if (sight := index.sees(g)) is not None:
            return sight.reaches(_axis(name), "in", *(v.value for v in values))
    return None


def _axis(name: str) -> int:
    return 0 if name.lower().startswith("st_x") else 1


# ---- what expressions denote


@denotes(*functions("ST_Point", "ST_MakePoint", "ST_PointZ", "ST_PointM", "ST_PointZM", "ST_MakePointM"))
def a_point(call: Call) -> Point | None:
    """The point at (x, y); what follows (z, m, an SRID) does not move it."""
    match call.args:
        case (x, y, *_):
            return Point(x, y)
    return None


@denotes(*functions("ST_SetSRID", "ST_GeomFromWKB", "ST_GeomFromEWKB", "ST_AsBinary", "ST_AsEWKB"))
def itself(call: Call) -> SameGeometry | None:
    """The same coordinates: with another SRID, from or as WKB, which the shapely functions exchange."""
    match call.args:
        case (g, *rest) if all(isinstance(a, Literal) and a.value is not None for a in rest):
            return SameGeometry(g)
    return None


_UNMOVED = (
    *("ST_Normalize", "ST_Reverse", "ST_Envelope"),
    *("ST_Force2D", "ST_Force_2D", "ST_Force3D", "ST_Force3DZ", "ST_Force3DM", "ST_Force4D"),
    *("ST_ForcePolygonCW", "ST_ForcePolygonCCW", "ST_ForceRHR", "ST_AddMeasure"),
)


@denotes(*functions(*_UNMOVED))
def unmoved(call: Call) -> SameBox | None:
    """Identity on the box: the same coordinates, or no others than the extreme ones."""
    return SameBox(call.args[0]) if call.args else None


@denotes(*functions("ST_ConvexHull"))
def hull(call: Call) -> Shifted | None:
    """The same box; but the hull of a nearly straight line is a sliver, so it counts as moved."""
    return Shifted(call.args[0], 0.0, 0.0) if call.args else None


_PARTS = (
    *("ST_Boundary", "ST_ExteriorRing", "ST_InteriorRingN", "ST_GeometryN"),
    *("ST_Points", "ST_PointOnSurface"),
    *("ST_Simplify", "ST_SimplifyPreserveTopology", "ST_SimplifyVW", "ST_RemoveRepeatedPoints", "ST_RemovePoint"),
    *("ST_Intersection", "ST_Difference", "ST_ClosestPoint", "ST_Segmentize", "ST_BoundingDiagonal", "ST_ConcaveHull"),
    *("ST_LineInterpolatePoint", "ST_LineSubstring", "ST_LineMerge", "ST_Polygon", "ST_MakeValid"),
    *("ST_Multi", "ST_ForceCollection", "ST_UnaryUnion", "ST_BuildArea", "ST_Polygonize", "ST_CollectionExtract"),
)


@denotes(*functions(*_PARTS))
def part(call: Call) -> InsideBox | None:
    """Shrinking: a part of the first argument, or some of its vertices."""
    return InsideBox(call.args[0]) if call.args and not isinstance(call.args[0], Literal) else None


@denotes(*functions("ST_StartPoint", "ST_EndPoint", "ST_PointN"))
def end_of_a_line(call: Call) -> Vertex | None:
    """A line's coordinate, as a point; NULL for what is no line, has no coordinates or not so many."""
    return Vertex(call.args[0]) if call.args and not isinstance(call.args[0], Literal) else None


@denotes(*functions("ST_MakePolygon"))
def polygon_of_a_shell(call: Call) -> InsideBox | None:
    """The polygon in a line; holes, which come after it, may lie outside of it."""
    return part(call) if len(call.args) == 1 else None


@denotes(*functions("ST_Intersection"))
def part_of_the_second(call: Call) -> InsideBox | None:
    """An intersection is a part of either argument: of the one that is no constant."""
    match call.args:
        case (Literal(), g):
            return InsideBox(g)
    return None


@denotes(*functions("ST_Centroid"))
def centroid(call: Call) -> CentroidOf | None:
    """In the convex hull of what is valid, so in its box; an invalid polygon's may leave it."""
    return CentroidOf(call.args[0]) if call.args else None


@denotes(*functions("ST_FlipCoordinates"))
def flipped(call: Call) -> Flipped | None:
    """Every coordinate's x and y exchanged, so those of the box."""
    return Flipped(call.args[0]) if call.args else None


@denotes(*functions("ST_Translate"))
def shifted(call: Call) -> Shifted | None:
    """Every coordinate moved by the same, so the box."""
    match call.args:
        case (g, Literal(dx), Literal(dy), *_) if dx is not None and dy is not None:
            return Shifted(g, float(dx), float(dy))
    return None


@denotes(*functions("ST_Buffer"))
def grown(call: Call) -> Grown | None:
    """A planar buffer with the default round joins stays within its radius."""
    match call.args:
        case (g, Literal(r)) | (g, Literal(r), Literal(False)) if r is not None and float(r) >= 0:
            return Grown(g, float(r))
    return None


@denotes(*functions("ST_Expand"))
def expanded(call: Call) -> Grown | None:
    """The box with each side moved outward: within the box that is grown by as much."""
    match call.args:
        case (g, Literal(r)) if r is not None and float(r) > 0:
            return Grown(g, float(r))
    return None


# ---- constants

_MADE_OF_TEXT_OR_NUMBERS = (
    *("ST_Point", "ST_GeomFromText", "ST_GeomFromWKT", "ST_GeomFromWKB", "ST_GeomFromGeoJSON"),
    *("ST_PolygonFromEnvelope", "ST_MakeEnvelope", "ST_MakePoint", "ST_GeometryFromText"),
)


def _evaluate(entry: ShapelyFunction) -> Callable[..., Any]:
    def evaluate(*values: Any) -> Any:
        answer = entry.function(*values)
        return Literal(shapely.from_wkb(answer), "geometry") if entry.returns == "binary" else answer

    return evaluate


for _name, _entry in {**FUNCTIONS, **FURTHER}.items():
    if _name in _MADE_OF_TEXT_OR_NUMBERS:
        constant(*functions(_name))(_evaluate(_entry))
    else:  # Spark folds Sedona's own; a buffer of GEOS and one of JTS are not the same to the last digit
        for _function in functions(_name):
            constant(replace(_function, classes=()))(_evaluate(_entry))
