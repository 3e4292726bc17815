"""Data of a page's map: boxes, shapes and borders as JSON, with numbers as base64 of arrays.

A box takes 20 bytes, so that 50,000 of them stay below 1.4 MB. Coordinates are single floats: a metre or two on Earth.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.errors import InvalidSpecificationError
from geoskip.geometry import Boxes
from geoskip.plotting import Picture, Window, borders_within, is_in_degrees, layers_of, shrinking_of, window_of
from geoskip.plotting.drawing import geobox_of

if TYPE_CHECKING:
    from geoskip.report import Scan

_MOST_BOXES = 60_000
_MOST_NAMES = 10_000
_MOST_POINTS = 10_000
"""Maximum number of points of the query's shapes, of nearby borders and of distant ones."""
_MOST_ROUNDS = 16
_MOST_LAYERS = 4.0
_OPACITY = {"kept": 0.25, "skipped": 0.12}


@dataclass(frozen=True)
class ScanMap:
    """The data of a map, and the numbers in its text."""

    index: str
    json: str
    boxes: int
    """Number of boxes of all files; only some are drawn if there are very many."""
    drawn: int
    kept_without: int
    """Number of kept files without a box."""
    has_query: bool
    """True if the query's shape or limits are drawn."""


def map_of(scan: Scan) -> ScanMap | None:
    """The map of a scan; None if it has no GeoBox, or no file has a box."""
    try:
        decision, geobox = geobox_of(scan.decisions(), None)
    except InvalidSpecificationError:
        return None
    picture = Picture.of(decision, geobox, scan.kept_files(), scan.skipped_files())
    boxes = picture.boxes
    count = len(boxes.kept) + len(boxes.skipped)
    if not count:
        return None
    window, whole = window_of(picture, "query"), window_of(picture, "all")
    if not np.isfinite([*window, *whole]).all():  # the query's shape is unbounded
        return None
    in_degrees = is_in_degrees(whole)
    room_for_kept = max(_MOST_BOXES - len(boxes.skipped), _MOST_BOXES // 2)
    kept = _sample_numbers(len(boxes.kept), room_for_kept)
    skipped = _sample_numbers(len(boxes.skipped), _MOST_BOXES - len(kept))
    names = decision.snapshot.files.column("path").to_pylist()
    data = {
        "window": window,
        "whole": whole,
        "aspect": shrinking_of(window, in_degrees),
        "kept": _boxes("kept", boxes.kept, boxes.kept_files, kept),
        "skipped": _boxes("skipped", boxes.skipped, boxes.skipped_files, skipped),
        "names": names if len(names) <= _MOST_NAMES else [],
        "shapes": [
            {"area": part.geom_type == "Polygon", **_lines([part])}
            for part in _simplify_shapes(shapely.get_parts(picture.shapes), window)
        ],
        "limits": [[limit.axis, limit.value] for limit in picture.limits],
        "land": _lines(_borders(window, whole) if in_degrees else []),
    }
    has_query = bool(picture.shapes or picture.limits)
    drawn = len(kept) + len(skipped)
    # without characters that could end the script element
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return ScanMap(str(geobox), text, count, drawn, boxes.kept_without, has_query)


def _sample_numbers(count: int, most: int) -> NDArray[np.int64]:
    """Numbers of the boxes to draw, evenly spaced if there are too many."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)


def _boxes(name: str, boxes: Boxes, files: NDArray[Any], chosen: NDArray[np.int64]) -> dict[str, Any]:
    some = boxes.take(chosen)
    ends = np.stack([some.xmin, some.ymin, some.xmax, some.ymax], axis=1)
    opacity = max(_OPACITY[name] * min(1.0, _MOST_LAYERS / max(layers_of(boxes), 1e-9)), 0.03)
    return {
        "boxes": _encode_array(ends, "<f4"),
        "files": _encode_array(files[chosen], "<i4"),
        "opacity": round(opacity, 3),
    }


def _borders(window: Window, whole: Window) -> Sequence[BaseGeometry]:
    """Borders in and around both windows; finer ones for ``window``."""
    found = shapely.get_parts(np.concatenate(borders_within(*_double_window(whole))))
    is_near = shapely.intersects(shapely.envelope(found), shapely.box(*_double_window(window)))
    return [*_simplify_shapes(found[~is_near], whole), *_simplify_shapes(found[is_near], window)]


def _double_window(window: Window) -> Window:
    west, south, east, north = window
    dx, dy = (east - west) / 2, (north - south) / 2
    return west - dx, south - dy, east + dx, north + dy


def _simplify_shapes(shapes: Sequence[BaseGeometry], window: Window) -> Sequence[BaseGeometry]:
    """Shapes with no more vertices than a map of this window needs, without those too small to be visible."""
    found = np.asarray(shapes, dtype=object)
    tolerance = max(window[2] - window[0], window[3] - window[1]) / 2000
    for _ in range(_MOST_ROUNDS):
        if shapely.get_num_coordinates(found).sum() <= _MOST_POINTS:
            break
        found = shapely.simplify(found, tolerance)
        sizes = shapely.bounds(found)
        is_seen = np.maximum(sizes[:, 2] - sizes[:, 0], sizes[:, 3] - sizes[:, 1]) > tolerance
        found = found[is_seen | (shapely.get_dimensions(found) == 0)]
        tolerance *= 2
    return list(found[_sample_numbers(len(found), _MOST_POINTS)])


def _lines(shapes: Sequence[BaseGeometry]) -> dict[str, Any]:
    """The rings of polygons, the lines and the points of some shapes, in arrays."""
    parts = np.asarray(shapes, dtype=object)
    dimensions = shapely.get_dimensions(parts)
    lines = [*shapely.get_rings(parts[dimensions == 2]), *parts[dimensions < 2]]
    points = shapely.get_coordinates(lines)
    return {"points": _encode_array(points, "<f4"), "lengths": [int(n) for n in shapely.get_num_coordinates(lines)]}


def _encode_array(numbers: NDArray[Any], kind: str) -> str:
    with np.errstate(over="ignore"):
        packed = np.ascontiguousarray(numbers, dtype=kind).tobytes()
    return base64.b64encode(packed).decode("ascii")
