"""Cells of Uber's H3 grid as SQL functions, mapped to GeoBox and to indexes over the cell.

The functions of :data:`FUNCTIONS` call the ``h3`` package, version 4; the package's own functions are also mapped,
whatever name they are registered under: ``spark.udf.register("cell", h3.latlng_to_cell, "string")``. The order of
arguments is that of the package (https://h3geo.org/docs/api/indexing): latitude before longitude, in degrees. A cell is
its id as text, 15 lower-case hexadecimal digits. Our functions are NULL for NULL, for an invalid cell and for a place
that is not on the globe, where the package raises; other spellings (upper case, ``0x``) are not accepted as cells, so
that ids sort as texts.

>>> h3_latlng_to_cell(48.4, 9.99, 5), h3_cell_to_parent("851f8c13fffffff", 3), h3_cell_to_parent("851F8C13FFFFFFF", 3)
('851f8c13fffffff', '831f8cfffffffff', None)
>>> len(h3_grid_disk("851f8c13fffffff", 1)), len(h3_polygon_cover("POLYGON ((9 48, 10 48, 10 49, 9 48))", 5))
(7, 31)

The rules are based on three facts.

* *A cell lies within the circle through its corners, and on the inner side of each of its edges.* Edges are arcs of
  great circles, so no point of a cell is farther from its centre than the farthest corner: for 40,000 places the
  distance was at most 0.996 of the corner's. Of 60,000 places, including places at edges, pentagons and the edges of
  the icosahedron, none was outside of a side by more than 1e-8 of that angle. The inner side of a great circle is
  everything within 90 degrees of its pole. Circles on the globe are valid at the poles and across the antimeridian,
  where the polygon of the corners in the plane is not.
* *A cell's descendants extend beyond the cell, though not far*: the parent of a place's cell need not contain the
  place. Each level is smaller by 1 / sqrt(7), so descendants stay within sqrt(3) / (sqrt(7) - 1) = 1.0525 of the
  corners' distance, apart from the grid's distortion: the greatest ratio found was 1.065, and 1.2 is allowed.
* *A cell's descendants at each resolution have consecutive ids*: an interval of ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import h3
import h3.api.basic_int
import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from geoskip.bounds import uncast
from geoskip.clauses import Clause, any_known
from geoskip.geometry import Point
from geoskip.indexes.affix import Prefix
from geoskip.indexes.base import Index
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.geobox.index import Cap, Earth, GeoBox, GeometryThroughIndex
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Comparison, In, Literal, Or, Predicate
from geoskip.registry import constant, maps
from udf_mappings import PlainFunction, catalyst, equality, is_call_of, offered, point_of
from udf_mappings.sedona import functions as sedona

FUNCTIONS: dict[str, PlainFunction] = {}
HIGHEST_LATITUDE = 85.0
"""Beyond this latitude a cell may contain a pole, and then it is no polygon in longitude and latitude."""


def is_cell(cell: Any) -> bool:
    """Test for the id of a cell in the package's spelling."""
    return isinstance(cell, str) and len(cell) == 15 and cell == cell.lower() and bool(h3.is_valid_cell(cell))


@offered(FUNCTIONS, "string")
def h3_latlng_to_cell(latitude: float | None, longitude: float | None, resolution: int | None) -> str | None:
    """The cell of a place, at a resolution from 0 to 15."""
    if latitude is None or longitude is None or resolution is None or not 0 <= resolution <= 15:
        return None
    if not (-90 <= latitude <= 90 and math.isfinite(longitude)):
        return None
    return str(h3.latlng_to_cell(float(latitude), float(longitude), resolution))


@offered(FUNCTIONS, "string")
def h3_cell_to_parent(cell: str | None, resolution: int | None) -> str | None:
    """The cell's ancestor at a resolution; it need not be the cell of a place within the cell."""
    if cell is None or resolution is None or not is_cell(cell) or not 0 <= resolution <= h3.get_resolution(cell):
        return None
    return str(h3.cell_to_parent(cell, resolution))


@offered(FUNCTIONS, "array<string>")
def h3_grid_disk(cell: str | None, k: int | None) -> list[str] | None:
    """All cells within k steps of a cell, itself included."""
    if cell is None or k is None or k < 0 or not is_cell(cell):
        return None
    return sorted(h3.grid_disk(cell, k))


@offered(FUNCTIONS, "array<string>")
def h3_polygon_cover(wkt: str | None, resolution: int | None) -> list[str] | None:
    """All cells that intersect a polygon of longitudes and latitudes; NULL beyond 85 degrees.

    Not those with their centre in it, as a fill has by default: a fill leaves out cells of places within the polygon.
    """
    if wkt is None or resolution is None or not 0 <= resolution <= 15:
        return None
    return cover(shapely.from_wkt(wkt), resolution)


def cover(shape: BaseGeometry, resolution: int) -> list[str] | None:
    """The cells that overlap a shape's polygons; None if it has none, or extends too near to a pole.

    The package interprets a polygon wider than half of the globe as its complement, so it gets pieces of 60 degrees.
    """
    polygons = [part for part in shapely.get_parts(shape) if part.geom_type == "Polygon" and not part.is_empty]
    if not polygons or not shapely.is_valid(shape):
        return None
    west, south, east, north = shape.bounds
    if max(-south, north) > HIGHEST_LATITUDE or not (abs(west) <= 720 and abs(east) <= 720):
        return None
    found: dict[str, None] = {}
    for column in range(math.floor(west / 60), math.ceil(east / 60)):
        strip = shapely.box(60 * column, -90, 60 * column + 60, 90)
        turns = 360 * math.floor((60 * column + 180) / 360)
        for polygon in polygons:
            for piece in shapely.get_parts(shapely.intersection(polygon, strip)):
                if piece.geom_type == "Polygon" and piece.area > 0:
                    flat = shapely.transform(shapely.force_2d(piece), lambda xy, turns=turns: xy - (turns, 0.0))
                    place = h3.geo_to_h3shape(shapely.geometry.mapping(flat))
                    found.update(dict.fromkeys(h3.h3shape_to_cells_experimental(place, resolution, contain="overlap")))
    return sorted(found)


# ---- the functions that are mapped

PLACES = (h3_latlng_to_cell, h3.latlng_to_cell, h3.api.basic_int.latlng_to_cell)
"""``(latitude, longitude, resolution)`` to the cell."""
PARENTS = (h3_cell_to_parent, h3.cell_to_parent, h3.api.basic_int.cell_to_parent)
"""``(cell, resolution)`` to the ancestor."""
DISKS = (h3_grid_disk, h3.grid_disk, h3.api.basic_int.grid_disk)
"""``(cell, k)`` to the array of cells within k steps."""
OTHERS = tuple(
    getattr(package, name)
    for package in (h3, h3.api.basic_int)
    for name in (
        *("cell_to_center_child", "get_base_cell_number", "get_resolution"),
        *("is_pentagon", "is_res_class_III", "is_valid_cell"),
    )
)
"""Functions of one cell, ``(cell)`` or ``(cell, resolution)``."""
LISTS = (MinMax, GapList, ValueList, Prefix)
"""Indexes over a cell's id."""

MOST_CIRCLES = 64
MOST_INTERVALS = 256
LARGEST_DISK = 20
_SPREAD = 1.2
_UNIT = Earth.of_radius(1.0)
(_CONTAINS,) = catalyst("ArrayContains", "array_contains")
_FIRST_OF = (*catalyst("ElementAt", "element_at"), *catalyst("GetArrayItem", "getarrayitem"))


def cells_of(node: Predicate) -> tuple[Predicate, list[str]] | None:
    """Return the expression and the valid cells of ``cell = '85..'`` or ``cell IN (...)``, as text."""
    found = equality(node)
    if found is None or not found[1]:
        return None
    texts = [one.value if isinstance(one.value, str) else h3.int_to_str(one.value) for one in found[1]]
    return found[0], [text for text in texts if is_cell(text)]


# ---- over the coordinates


@maps(*PLACES, index=GeoBox)
def cell_of_point(node: Predicate, index: GeoBox) -> Clause | None:
    """``latlng_to_cell(lat, lng, 9) = '89...'``: the place lies in the circle around the cell."""
    match cells_of(node):
        case (Call(_, (latitude, longitude, Literal())) as call, cells) if is_call_of(call, *PLACES):
            return _clause(index, latitude, longitude, cells, 1.0)
    return None


@maps(*PARENTS, index=GeoBox)
def parent_of_point_cell(node: Predicate, index: GeoBox) -> Clause | None:
    """``cell_to_parent(latlng_to_cell(lat, lng, 9), 3) = '83...'``: in a circle around descendants."""
    match cells_of(node):
        case (Call(_, (Call(_, (latitude, longitude, Literal())) as cell, Literal())), cells) if is_call_of(
            cell, *PLACES
        ):
            return _clause(index, latitude, longitude, cells, _SPREAD)
    return None


def _clause(index: GeoBox, latitude: Predicate, longitude: Predicate, cells: list[str], spread: float) -> Clause | None:
    return _circles_clause(index.sees(Point(longitude, latitude)), cells, spread)


def _circles_clause(place: GeometryThroughIndex | None, cells: list[str], spread: float) -> Clause | None:
    if place is None:
        return None
    given, fewer = set(cells), list(coarsen(cells, MOST_CIRCLES))
    if given != set(fewer):
        spread = _SPREAD
    return any_known(
        place.comes_within_on(_UNIT, *circle(cell, spread), *(sides(cell) if spread == 1 else ())) for cell in fewer
    )


def circle(cell: str, spread: float) -> tuple[shapely.Point, float]:
    """Return a cap around a cell: its centre and the angle to its farthest corner, times ``spread``.

    >>> centre, angle = circle("851f8caffffffff", 1.0)
    >>> round(6371 * angle, 1)  # kilometres
    10.0
    """
    latitude, longitude = h3.cell_to_latlng(cell)
    corners = h3.cell_to_boundary(cell)
    farthest = max(h3.great_circle_distance((latitude, longitude), corner, unit="rads") for corner in corners)
    return shapely.Point(longitude, latitude), farthest * spread * 1.001 + 1e-9


def sides(cell: str) -> list[Cap]:
    """Return the hemisphere on the inner side of each edge of a cell, with a margin of 1/1000 radius.

    An edge with corners beyond it, as at the edges of the icosahedron, is skipped.

    >>> [round(math.degrees(angle)) for _, _, angle in sides("851f8caffffffff")]
    [90, 90, 90, 90, 90, 90]
    """
    corners = np.array([_vector(*corner) for corner in h3.cell_to_boundary(cell)])
    _, radius = circle(cell, 1.0)
    found = []
    for pole in np.cross(corners, np.roll(corners, -1, axis=0)):
        pole = pole / np.linalg.norm(pole)
        beyond = -float(np.min(corners @ pole))
        if beyond < 0.01 * radius:
            latitude, longitude = math.asin(max(-1.0, min(1.0, pole[2]))), math.atan2(pole[1], pole[0])
            angle = math.pi / 2 + math.asin(max(0.0, beyond)) + 1e-3 * radius + 1e-9
            found.append((math.degrees(longitude), math.degrees(latitude), angle))
    return found


def _vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    """Return the unit vector of a place on the globe."""
    phi, theta = math.radians(latitude), math.radians(longitude)
    return math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi)


def coarsen(cells: Iterable[str], most: int) -> Iterable[str]:
    """Return at most ``most`` cells that cover the given ones: these themselves, or ancestors.

    >>> sorted(coarsen(h3.cell_to_children("851f8caffffffff", 7), 8)) == sorted(
    ...     h3.cell_to_children("851f8caffffffff", 6)
    ... )
    True
    """
    found = dict.fromkeys(cells)
    finest = max(map(h3.get_resolution, found), default=0)
    while len(found) > most and finest > 0:
        finest -= 1
        found = dict.fromkeys(h3.cell_to_parent(c, finest) if h3.get_resolution(c) > finest else c for c in found)
    return found


# ---- over the cell's id


@maps(*PARENTS, index=LISTS)
def parent_of_cell(node: Predicate, index: Index) -> Clause | None:
    """``cell_to_parent(cell, 3) = '83...'``: the cell's id is in the intervals of descendants.

    The package's own function accepts ids in any spelling, so its argument must be a call of ``latlng_to_cell``.
    """
    match cells_of(node):
        case (Call(_, (cell, Literal())) as call, cells):
            made = is_call_of(cell, *PLACES)
            if made or is_call_of(call, *PARENTS[:1]):
                at = _resolution(cell) if made else None
                return _descends(cell, coarsen(cells, MOST_INTERVALS), at, index)
    return None


def _resolution(cell: Predicate) -> int | None:
    match cell:
        case Call(_, (_, _, Literal(int() as resolution))) if 0 <= resolution <= 15:
            return resolution
    return None


def _descends(cell: Predicate, ancestors: Iterable[str], resolution: int | None, index: Index) -> Clause | None:
    """Return the clause of "the cell descends from one of these", at one resolution or at any."""
    kind = cell.type or "string"
    if kind not in ("string", "bigint"):
        return None
    parts = []
    for low, high in (pair for ancestor in ancestors for pair in intervals(ancestor, resolution)):
        ends = [Literal(end if kind == "bigint" else h3.int_to_str(end), kind) for end in (low, high)]
        parts.append(And((Comparison(">=", cell, ends[0]), Comparison("<=", cell, ends[1]))))
    return clause_for(Or(tuple(parts)), [index]) if parts else None


def intervals(cell: str, resolution: int | None) -> Iterator[tuple[int, int]]:
    """Return the least and greatest id of a cell and its descendants, at each resolution or at one.

    An id has its resolution in bits 52 to 55, and a digit of three bits for each resolution from 1 on; digits of finer
    resolutions than its own are 7 (https://h3geo.org/docs/core-library/h3Indexing).

    >>> [tuple(map(h3.int_to_str, pair)) for pair in intervals("831f8cfffffffff", 5)]
    [('851f8c03fffffff', '851f8cdbfffffff')]
    """
    number, own = h3.str_to_int(cell), h3.get_resolution(cell)
    for at in range(own, 16) if resolution is None else [resolution] if resolution >= own else []:
        free = sum(7 << 3 * (15 - digit) for digit in range(own + 1, at + 1))
        least = (number & ~(15 << 52) | at << 52) & ~free
        yield least, least | free // 7 * 6


@maps(*sedona("ST_Intersects", "ST_Contains", "ST_Within", "ST_Covers", "ST_CoveredBy", "ST_Equals"), index=LISTS)
def polygon_over_cells(node: Predicate, index: Index) -> Clause | None:
    """``ST_Contains(polygon, ST_Point(lng, lat))`` over an index of ``latlng_to_cell(lat, lng, 7)``.

    A point in a polygon has a cell that overlaps the polygon. The polygon's cover treats edges of cells as straight in
    longitude and latitude, so a ring of cells is added; a coarser cover consists of ancestors, so a second ring is
    added.
    """
    cell = index.bound[0] if len(index.bound) == 1 else None
    resolution = _resolution(cell) if cell is not None and is_call_of(cell, *PLACES) else None
    match node:
        case Call(_, (Literal(shape), g)) | Call(_, (g, Literal(shape))) if resolution is not None:
            place = point_of(g)
            if isinstance(cell, Call) and place is not None:
                own = (uncast(place.y), uncast(place.x))
                if own == tuple(map(uncast, cell.args[:2])) and (cells := polygon_cells(shape, resolution)) is not None:
                    return _descends(cell, cells, resolution, index)
    return None


def polygon_cells(value: Any, resolution: int) -> list[str] | None:
    """Return at most some hundred cells whose descendants cover a polygon, or None."""
    shape = shapely.from_wkb(value) if isinstance(value, bytes) else value
    if not isinstance(shape, shapely.Geometry) or shape.geom_type not in ("Polygon", "MultiPolygon"):
        return None
    if shape.is_empty or not shapely.is_valid(shape):
        return None
    west, south, east, north = shape.bounds
    wide, high = 111.2 * (east - west), 111.2 * (north - south)  # kilometres
    for at in range(resolution, 0, -1):
        across = h3.average_hexagon_edge_length(at, unit="km")
        if (wide / across + 4) * (high / across + 4) <= 2 * MOST_INTERVALS:
            cells = cover(shape, at)
            if cells is None or max(-south, north) + math.degrees(4 * across / 6371) > HIGHEST_LATITUDE:
                return None
            rings = 1 if at == resolution else 2
            return list(coarsen((c for cell in cells for c in h3.grid_disk(cell, rings)), MOST_INTERVALS))
    return None


# ---- disks


@maps(_CONTAINS, index=(GeoBox, *LISTS))
def cell_in_disk(node: Predicate, index: Index) -> Clause | None:
    """``array_contains(grid_disk(cell, k), '85...')``: the cell is in the disk of the constant.

    The package's own function accepts ids in any spelling, so the cell must be computed, or a number.
    """
    match node:
        case Call(_, (Call(_, (cell, Literal(int() as k))) as disk, Literal(value))):
            centre = value if isinstance(value, str) else h3.int_to_str(value)
            canonical = not isinstance(value, str) or is_call_of(disk, *DISKS[:1]) or is_call_of(cell, *PLACES)
            if is_call_of(disk, *DISKS) and canonical and is_cell(centre) and 0 <= k <= LARGEST_DISK:
                cells = h3.grid_disk(centre, k)
                kind = "string" if isinstance(value, str) else "bigint"
                values = tuple(Literal(c if kind == "string" else h3.str_to_int(c), kind) for c in cells)
                return clause_for(In(cell, values), [index])
    return None


# ---- Sedona's own


@maps(_CONTAINS, *_FIRST_OF, index=GeoBox)
def sedona_cell_ids(node: Predicate, index: GeoBox) -> Clause | None:
    """``array_contains(ST_H3CellIDs(p, 8, true), 613...)``, ``ST_H3CellIDs(p, 8, true)[0] = 613...``.

    A point has exactly one cell, which contains it; files with other geometries are kept.
    """
    match node:
        case Call(_, (Call(_, (g, *_)) as cells, Literal(int() as cell))) if _CONTAINS.is_called(node):
            wanted = [h3.int_to_str(cell)]
        case Comparison(_, Call(_, (Call(_, (g, *_)) as cells, Literal(0 | 1), *_))) | In(
            Call(_, (Call(_, (g, *_)) as cells, Literal(0 | 1), *_))
        ) if (found := cells_of(node)) is not None:
            wanted = found[1]
        case _:
            return None
    if not any(f.is_called(cells) for f in sedona("ST_H3CellIDs")):
        return None
    place = index.sees(g)
    return None if place is None else _circles_clause(place.where_points(), wanted, 1.0)


# ---- constants


def _return_tuple(function: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(*values: Any) -> Any:
        found = function(*values)
        return None if found is None else tuple(found)

    return evaluate


for _function in (*PLACES, *PARENTS, *OTHERS):
    constant(_function)(_function)
for _function in (*DISKS, h3_polygon_cover):
    constant(_function)(_return_tuple(_function))
