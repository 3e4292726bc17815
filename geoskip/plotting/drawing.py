"""Geometries of a decision for maps: the boxes of its files and the shapes in its clauses.

All coordinates are those of the index: a shape that a query compares with ``ST_FlipCoordinates(geom)`` is
drawn flipped back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.clauses import Clause, leaves_of
from geoskip.errors import InvalidSpecificationError
from geoskip.geometry import Boxes
from geoskip.geometry.shapes import Shape
from geoskip.indexes.geobox.clauses import BoxCompares, BoxTransform, GeoClause
from geoskip.indexes.geobox.globe import SPHEROID_LEAST, GlobeComesWithin, GlobeGoesBeyond
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import units_of
from geoskip.planner import Decision

_CORNERS_OF_A_CIRCLE = 180


@dataclass(frozen=True)
class FileBoxes:
    """The boxes of the files that a scan could read."""

    kept: Boxes
    skipped: Boxes
    kept_without: int
    """Files that were kept and have no box: of unknown content, or without a geometry."""


@dataclass(frozen=True)
class Limit:
    """A coordinate that a query compares with a constant: axis 0 for x, 1 for y."""

    axis: int
    value: float


def geobox_of(decisions: Iterable[Decision], wanted: str | None) -> tuple[Decision, GeoBox]:
    """The index whose boxes are drawn: the named one, else the first that the decision used, else any.

    Raises InvalidSpecificationError where there is none.
    """
    found = [(decision, index) for decision in decisions for index in decision.snapshot.indexes]
    boxes = [(decision, index) for decision, index in found if isinstance(index, GeoBox)]
    named = [pair for pair in boxes if wanted is None or str(pair[1]) == wanted]
    if named:
        used = [pair for pair in named if any(name == str(pair[1]) for name, _ in pair[0].clause.columns())]
        return (used or named)[0]
    if wanted is not None and boxes:
        raise InvalidSpecificationError(
            f"the scan has no index {wanted}; its boxes are those of {', '.join(str(index) for _, index in boxes)}"
        )
    others = ", ".join(str(index) for _, index in found)
    raise InvalidSpecificationError(
        "a map needs the boxes of a GeoBox index, and the scan has "
        + (f"only {others}" if others else "none: nothing was decided for it")
        + '; create one: dataset.create_index(GeoBox("lng", "lat")), then run the query again'
    )


def boxes_of(decision: Decision, index: GeoBox, kept: Iterable[str], skipped: Iterable[str]) -> FileBoxes:
    """Return the boxes of the files that a scan kept and skipped.

    Parameters
    ----------
    decision
        The decision of the scan.
    index
        The GeoBox whose boxes are drawn.
    kept, skipped
        Full paths of files.
    """
    units = units_of(decision.snapshot.files, str(index), index.counts)
    names = decision.snapshot.files.column("path").to_pylist()
    number_of = {name: number for number, name in enumerate(names)}
    is_kept, is_skipped = (_among(paths, decision.snapshot.header.root, number_of) for paths in (kept, skipped))
    with_box = np.zeros(len(names), dtype=bool)
    with_box[units.box_file] = True
    return FileBoxes(
        units.boxes.take(is_kept[units.box_file]),
        units.boxes.take(is_skipped[units.box_file]),
        int(np.count_nonzero(is_kept & ~with_box)),
    )


def _among(paths: Iterable[str], root: str, number_of: dict[str, int]) -> NDArray[np.bool_]:
    """Mark the files of a snapshot that have these paths, given relative to its root or in full."""
    found = np.zeros(len(number_of), dtype=bool)
    prefix = root.rstrip("/") + "/"
    for path in paths:
        number = number_of.get(path.removeprefix(prefix), number_of.get(path, -1))
        if number >= 0:
            found[number] = True
    return found


def shapes_of(clause: Clause, index: GeoBox) -> list[BaseGeometry]:
    """The shapes that a clause compares the boxes with; a distance makes the area within it."""
    found: dict[bytes, BaseGeometry] = {}
    for part in leaves_of(clause):
        if not isinstance(part, GeoClause) or part.index != str(index):
            continue
        shape, distance = getattr(part, "shape", None), getattr(part, "distance", 0)
        if isinstance(part, GlobeComesWithin | GlobeGoesBeyond):
            drawn = _circle(part.longitude, part.latitude, distance, part.earth.least)
        elif isinstance(shape, Shape):
            drawn = shapely.buffer(shape.geometry, distance, quad_segs=32) if distance > 0 else shape.geometry
        else:
            continue
        if not drawn.is_empty:
            seen = _unviewed(drawn, part.view)
            found[shapely.to_wkb(seen)] = seen
    return list(found.values())


def limits_of(clause: Clause, index: GeoBox) -> list[Limit]:
    """The coordinates that a clause compares with single constants."""
    found: dict[Limit, None] = {}
    for part in leaves_of(clause):
        if isinstance(part, BoxCompares) and part.index == str(index) and len(part.bounds) == 1:
            moved = part.bounds[0][0] - (part.view.dx, part.view.dy)[part.axis]
            found[Limit(1 - part.axis if part.view.flip else part.axis, moved)] = None
    return list(found)


def _unviewed(shape: BaseGeometry, view: BoxTransform) -> BaseGeometry:
    """A shape that the query compares with a view of the geometry, where it lies for the geometry itself."""

    def back(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        moved = xy - (view.dx, view.dy)
        return moved[:, ::-1] if view.flip else moved

    plain = view.flip or view.dx or view.dy
    return shapely.transform(shape, back) if plain else shape


def _circle(lng: float, lat: float, distance: float, radius: float) -> BaseGeometry:
    """The circle around a place, cut where it comes around the globe; a place alone where it has no size."""
    if not 0 < distance < radius * np.pi / 2:
        return shapely.Point(lng, lat)
    earth = pyproj.Geod(ellps="WGS84") if radius == SPHEROID_LEAST else pyproj.Geod(a=radius, b=radius)
    bearings = np.linspace(0, 360, _CORNERS_OF_A_CIRCLE, endpoint=False)
    count = len(bearings)
    x, y, _ = earth.fwd(np.full(count, lng), np.full(count, lat), bearings, np.full(count, distance))
    around = lng + (np.asarray(x) - lng + 180) % 360 - 180
    return shapely.LineString(np.column_stack([around, y])[[*range(count), 0]])
