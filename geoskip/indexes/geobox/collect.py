"""What GeoBox stores a file, and how it is collected from values.

A pair of numbers: ``boxes``, ``rows``, ``boxless`` (a NULL coordinate), ``nonfinite`` (neither NULL, but NaN, infinite
or beyond 1e150), ``null_x`` and ``null_y``. Geometries: ``boxes`` of all coordinates (those of holes too: a hole of an
invalid polygon may lie outside its shell, and envelope functions miss it), ``rows``, ``boxless`` (NULL or EMPTY),
``nonfinite``, ``nulls``, ``empties``, ``invalid``, and ``types``, the set of geometry types as bits of their WKB
numbers. Slivers count as invalid: those of which rounding makes a centroid that is elsewhere.

``POINT EMPTY`` and ``POINT(NaN NaN)`` are the same bytes in WKB, and JTS holds the latter to intersect polygons: rows
that are one or have one as a part count as non-finite too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from geoskip.geometry.boxes import LARGEST, Boxes, Floats, Mask, lacks_coordinates
from geoskip.geometry.centroids import is_near_its_box
from geoskip.indexes.geobox.split import split

__all__ = ["GEOMETRY_TYPE", "PAIR_TYPE", "POINT_BIT", "collect_geometries", "collect_pairs", "merge"]

BOX_TYPE = pa.struct([(name, pa.float64()) for name in ("xmin", "ymin", "xmax", "ymax")])
_COMMON = [("boxes", pa.list_(BOX_TYPE)), *((name, pa.int64()) for name in ("rows", "boxless", "nonfinite"))]
PAIR_TYPE = pa.struct([*_COMMON, ("null_x", pa.int64()), ("null_y", pa.int64())])
GEOMETRY_TYPE = pa.struct(
    [*_COMMON, ("nulls", pa.int64()), ("empties", pa.int64()), ("invalid", pa.int64()), ("types", pa.int64())]
)
POINT_BIT = 1 << 1
_POLYGONS = (3, 6, 7)  # of shapely's type numbers: only these and collections can be invalid
_WKB_NUMBER = np.array([1, 2, 2, 3, 4, 5, 6, 7])  # by shapely's type number: point, line, ring, polygon, multi...
_EXACT = 2.0**53

Summary = dict[str, Any]


def collect_pairs(x: pa.Array, y: pa.Array, most: int) -> Summary:
    """The summary of two arrays of numbers."""
    no_x, no_y = x.null_count > 0, y.null_count > 0
    x_low, x_high = _numbers(x)
    y_low, y_high = _numbers(y)
    finite = (np.abs(x_low) <= LARGEST) & (np.abs(y_low) <= LARGEST)
    boxless = nonfinite = 0
    if not finite.all():
        null = np.zeros(len(x), dtype=bool)
        if no_x:
            null |= np.asarray(x.is_null())
        if no_y:
            null |= np.asarray(y.is_null())
        boxless = int(null.sum())
        nonfinite = int((~finite & ~null).sum())
        same_x, same_y = x_low is x_high, y_low is y_high
        x_low, y_low = x_low[finite], y_low[finite]
        x_high = x_low if same_x else x_high[finite]
        y_high = y_low if same_y else y_high[finite]
    return {
        "boxes": _rows(split(Boxes(x_low, y_low, x_high, y_high), most)),
        "rows": len(x),
        "boxless": boxless,
        "nonfinite": nonfinite,
        "null_x": x.null_count,
        "null_y": y.null_count,
    }


def _numbers(values: pa.Array) -> tuple[Floats, Floats]:
    """Doubles around each number, from below and above (the very same array where they are exact); NaN for NULL."""
    kind = values.type
    if pa.types.is_decimal(kind):
        number = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        inexact = np.abs(number) * 1e-15  # Arrow rounds more than once
        return number - inexact, number + inexact
    if pa.types.is_integer(kind):
        whole = values.fill_null(0) if values.null_count else values
        number = np.asarray(whole.to_numpy(zero_copy_only=False)).astype(np.float64)
        if values.null_count:
            number[np.asarray(values.is_null())] = np.nan
        if kind.bit_width > 32 and len(number) and np.nanmax(np.abs(number), initial=0) >= _EXACT:
            return np.nextafter(number, -np.inf), np.nextafter(number, np.inf)
        return number, number
    number = np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.float64, copy=False)
    return number, number


def collect_geometries(values: pa.Array, most: int) -> Summary | None:
    """The summary of WKB geometries; None where one of them cannot be read."""
    wkb = np.asarray(values.to_numpy(zero_copy_only=False), dtype=object)
    try:
        geometries = np.asarray(shapely.from_wkb(wkb), dtype=object)
    except (shapely.errors.ShapelyError, NotImplementedError, TypeError, ValueError):
        return None
    null = np.asarray(shapely.is_missing(geometries), dtype=bool)
    if int(null.sum()) != values.null_count:
        return None
    number = np.asarray(shapely.get_type_id(geometries))
    if len(number) and int(number.max()) >= len(_WKB_NUMBER):  # curves leave the box of their coordinates
        return None
    empty = np.asarray(shapely.is_empty(geometries), dtype=bool)
    boxed = np.flatnonzero(~null & ~empty)
    boxes, finite = _bounds(geometries[boxed])
    lacking = lacks_coordinates(geometries)
    finite &= ~lacking[boxed]
    types = 0
    for kind in np.unique(number[~null]).tolist():
        types |= 1 << int(_WKB_NUMBER[kind])
    return {
        "boxes": _rows(split(boxes.take(finite) if not finite.all() else boxes, most)),
        "rows": len(values),
        "boxless": int(null.sum() + empty.sum()),
        "nonfinite": int((~finite).sum() + (lacking & empty).sum()),
        "nulls": int(null.sum()),
        "empties": int(empty.sum()),
        "invalid": _invalid(geometries[boxed][finite], number[boxed][finite]),
        "types": types,
    }


def _bounds(geometries: NDArray[np.object_]) -> tuple[Boxes, Mask]:
    """The box of all coordinates of each geometry, and which of them are finite."""
    if len(geometries) == 0:
        return Boxes.of([]), np.ones(0, dtype=bool)
    xy, owner = shapely.get_coordinates(geometries, return_index=True)
    x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
    if len(owner) == len(geometries):
        boxes = Boxes(x, y, x, y)
        return boxes, boxes.scale() <= LARGEST
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    boxes = Boxes(
        np.minimum.reduceat(x, starts),  # NaN stays NaN in minimum and maximum
        np.minimum.reduceat(y, starts),
        np.maximum.reduceat(x, starts),
        np.maximum.reduceat(y, starts),
    )
    return boxes, boxes.scale() <= LARGEST


def _invalid(geometries: NDArray[np.object_], number: NDArray[Any]) -> int:
    doubtful = geometries[np.isin(number, _POLYGONS) | (number == 1) | (number == 5)]
    if not len(doubtful):
        return 0
    return int((~(np.asarray(shapely.is_valid(doubtful), dtype=bool) & is_near_its_box(doubtful))).sum())


def merge(summaries: Sequence[Mapping[str, Any]], most: int) -> Summary:
    """The summary of a file from those of its parts: counts add, types unite, boxes are chosen anew."""
    rows = [box for summary in summaries for box in summary["boxes"]]
    boxes = Boxes.of((b["xmin"], b["ymin"], b["xmax"], b["ymax"]) for b in rows)
    merged: Summary = {"boxes": _rows(split(boxes, most)) if len(summaries) > 1 else rows}
    for name in summaries[0]:
        if name == "types":
            merged[name] = int(np.bitwise_or.reduce([summary[name] for summary in summaries]))
        elif name != "boxes":
            merged[name] = sum(summary[name] for summary in summaries)
    return merged


def _rows(boxes: Boxes) -> list[dict[str, float]]:
    columns = (boxes.xmin.tolist(), boxes.ymin.tolist(), boxes.xmax.tolist(), boxes.ymax.tolist())
    return [dict(zip(("xmin", "ymin", "xmax", "ymax"), row, strict=True)) for row in zip(*columns, strict=True)]
