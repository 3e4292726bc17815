"""Pictures of the skipped files: ``geoskip.report(df).scans[0].plot_map()``.

Needs matplotlib (``pip install 'geoskip[plot]'``), which is imported when a picture is drawn. The package contains
borders, so that neither tiles nor a network are needed.

A picture shows one scan: the boxes of its files, kept and skipped, the query's shape, and the matching rows. The two
colours are orange and blue of Okabe and Ito, *Color Universal Design* (2008), which are distinguishable regardless of
colour vision; kept boxes also have heavier lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry
from shapely.plotting import patch_from_polygon

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError
from geoskip.geometry import Boxes
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import units_of
from geoskip.planner import Decision
from geoskip.plotting.drawing import FileBoxes, Limit, boxes_of, geobox_of, limits_of, shapes_of
from geoskip.report import count_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["plot_map"]


Window = tuple[float, float, float, float]
"""West, south, east, north."""
Rows = Callable[[Sequence[str], int], list[tuple[Any, ...]]]
"""Function from expressions and a maximum number of rows to the values for matching rows."""

KEPT, SKIPPED, SHAPE, ROWS = "#d55e00", "#0072b2", "#111111", "#111111"
SEA, LAND, COAST = "#e9eff4", "#fbfaf6", "#a9adb0"
_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT = 9.0, 3.5, 9.0
"""In inches."""
_MOST_LAYERS = 4.0
_LEAST_BOX = 0.004
"""As a share of the map's width."""
_ROOM = 0.6
"""The margin of a map, as a share of the size of the query's region."""


@dataclass(frozen=True)
class Picture:
    """The objects to draw."""

    boxes: FileBoxes
    shapes: list[BaseGeometry]
    limits: list[Limit]
    rows: Sequence[BaseGeometry] = ()
    more: bool = False
    """True if there are more matching rows than those drawn."""

    @classmethod
    def of(cls, decision: Decision, geobox: GeoBox, kept: Sequence[str], skipped: Sequence[str]) -> Picture:
        """Boxes of the kept and skipped files in one index, with the shapes and limits of the clause.

        Parameters
        ----------
        decision, geobox
            The decision of the scan, and the index.
        kept, skipped
            Full paths of files.
        """
        units = units_of(decision.snapshot.files, str(geobox), geobox.counts)
        clause = decision.clause
        boxes = boxes_of(decision, geobox, kept, skipped)
        return cls(boxes, shapes_of(clause, geobox), limits_of(clause, geobox, units))


def plot_map(
    decisions: Sequence[Decision],
    kept: Sequence[str],
    skipped: Sequence[str],
    rows: Rows,
    *,
    title: str,
    condition: str,
    ax: Axes | None = None,
    index: str | None = None,
    most_rows: int = 2000,
    extent: str | Window = "query",
    beneath: Sequence[BaseGeometry] | None = None,
) -> Axes:
    """Draw a scan's decisions: see :meth:`geoskip.report.Scan.plot_map`.

    Parameters
    ----------
    decisions
        The decisions of the scan, one for each dataset.
    kept, skipped
        Full paths of files.
    rows
        Reads matching rows.
    title, condition
        Texts above the map.
    most_rows
        The maximum number of matching rows to draw.
    ax, index, extent, beneath
        As for :meth:`geoskip.report.Scan.plot_map`.

    Raises
    ------
    EnvironmentProblem
        If matplotlib is not installed.
    InvalidSpecificationError
        If there is no GeoBox.
    """
    decision, geobox = geobox_of(decisions, index)
    if not (extent in ("query", "all") or (isinstance(extent, tuple) and len(extent) == 4)):
        raise InvalidSpecificationError(
            f'plot_map(extent=) takes "query", "all" or (west, south, east, north), got {extent!r}'
        )
    plt = _pyplot()
    found = rows(geobox.expressions(), most_rows + 1) if most_rows > 0 else []
    picture = Picture.of(decision, geobox, kept, skipped)
    picture = replace(picture, rows=_geometries(found[:most_rows]), more=len(found) > most_rows)
    window = window_of(picture, extent)
    degrees = is_in_degrees(window)
    if ax is None:
        ax = plt.subplots(figsize=_size(window, degrees), layout="constrained")[1]
    if degrees or beneath is not None:
        _draw_land(ax, window, beneath)
    _draw(ax, picture, len(kept), len(skipped), _LEAST_BOX * (window[2] - window[0]))
    _finish(ax, window, degrees, f"{title}\n{_condition(condition, ax)}" if condition else title)
    return ax


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot
    except ImportError:
        raise EnvironmentProblem(
            "plot_map() draws with matplotlib, which is not installed: pip install 'geoskip[plot]'"
        ) from None
    return matplotlib.pyplot


def _geometries(rows: Sequence[tuple[Any, ...]]) -> list[BaseGeometry]:
    """The places of the matching rows, given as two numbers, WKB or geometries."""
    found: list[BaseGeometry] = []
    for row in rows:
        if len(row) == 2:
            if row[0] is not None and row[1] is not None and np.isfinite(float(row[0]) + float(row[1])):
                found.append(shapely.Point(float(row[0]), float(row[1])))
            continue
        value = shapely.from_wkb(bytes(row[0])) if isinstance(row[0], bytes | bytearray) else row[0]
        if isinstance(value, BaseGeometry) and not value.is_empty:
            found.append(value)
    return found


# ---- the window of a map


def window_of(picture: Picture, extent: str | Window) -> Window:
    """Return the window of the map: the region of the query with a margin, clipped to the boxes."""
    if isinstance(extent, tuple):
        return extent
    kept, skipped = _usual(picture.boxes.kept), _usual(picture.boxes.skipped)
    everything = _bounds(picture.boxes.kept, picture.boxes.skipped) if extent == "all" else _bounds(kept, skipped)
    shapes = picture.shapes
    about = [b for b in (_bounds(kept), *(shape.bounds for shape in shapes)) if b is not None]
    if everything is None:
        everything = _union(about) if about else (-180.0, -90.0, 180.0, 90.0)
    if extent == "all" or not about:
        return _grow(everything, 0.03)
    west, south, east, north = _grow(_union(about), _ROOM)
    whole = _grow(_union([everything, _union(about)]), 0.03)
    return max(west, whole[0]), max(south, whole[1]), min(east, whole[2]), min(north, whole[3])


def is_in_degrees(window: Window) -> bool:
    """Test whether coordinates may be longitude and latitude."""
    return max(abs(window[0]), abs(window[2])) <= 360 and max(abs(window[1]), abs(window[3])) <= 90


def _usual(boxes: Boxes) -> Boxes:
    """The boxes without the few files far away from all others, if there are many."""
    if len(boxes) < 100:
        return boxes
    x, y = (boxes.xmin + boxes.xmax) / 2, (boxes.ymin + boxes.ymax) / 2
    least, most = np.quantile([x, y], 0.02, axis=1), np.quantile([x, y], 0.98, axis=1)
    usual: Boxes = boxes.take((x >= least[0]) & (x <= most[0]) & (y >= least[1]) & (y <= most[1]))
    return usual


def _bounds(*several: Boxes) -> Window | None:
    ends = [
        (float(boxes.xmin.min()), float(boxes.ymin.min()), float(boxes.xmax.max()), float(boxes.ymax.max()))
        for boxes in several
        if len(boxes)
    ]
    return _union(ends) if ends else None


def _union(windows: Sequence[Window]) -> Window:
    west, south, east, north = zip(*windows, strict=True)
    return min(west), min(south), max(east), max(north)


def _grow(window: Window, share: float) -> Window:
    west, south, east, north = window
    room = share * max(east - west, north - south, 1e-6)
    return west - room, south - room, east + room, north + room


def shrinking_of(window: Window, degrees: bool) -> float:
    """Ratio of a degree of longitude to one of latitude, in the middle of the map."""
    return float(np.cos(np.radians(min(abs(window[1] + window[3]) / 2, 80.0)))) if degrees else 1.0


def _size(window: Window, degrees: bool) -> tuple[float, float]:
    """Width and height in inches of a figure that the map fills."""
    west, south, east, north = window
    height = _WIDTH * (north - south) / ((east - west) * shrinking_of(window, degrees))
    if height > _MOST_HEIGHT:
        return max(_WIDTH * _MOST_HEIGHT / height, 4.5), _MOST_HEIGHT
    return _WIDTH, max(height, _LEAST_HEIGHT) + 0.8  # 0.8 for the title


# ---- the layers of a map


@dataclass(frozen=True)
class _Style:
    edge: str
    face: Any = "none"
    width: float = 0.0
    marker: str = "o"
    size: float = 60.0
    """Size of points, in square typographic points."""
    alpha: float | None = None


def _add(ax: Axes, geometries: Iterable[BaseGeometry], style: _Style, order: int) -> None:
    """Add polygons, lines and points to a map without changing its limits.

    (GeoSeries.plot() would redraw the whole figure each time.)
    """
    from matplotlib.collections import Collection, LineCollection, PatchCollection

    parts = shapely.get_parts(shapely.get_parts(list(geometries)))  # collections may be nested
    parts = parts[~shapely.is_empty(parts)]
    dimensions = shapely.get_dimensions(parts)
    added: list[Collection] = [
        PatchCollection([patch_from_polygon(area) for area in parts[dimensions == 2]], facecolor=style.face),
        LineCollection([shapely.get_coordinates(line) for line in parts[dimensions == 1]]),
    ]
    for collection in added:
        if collection.get_paths():
            collection.set(edgecolor=style.edge, linewidth=style.width, alpha=style.alpha, zorder=order)
            collection.set_in_layout(False)
            ax.add_collection(collection, autolim=False)
    points = shapely.get_coordinates(parts[dimensions == 0])
    if len(points):
        dots = ax.scatter(points[:, 0], points[:, 1], style.size, style.edge, marker=style.marker)
        dots.set(linewidth=style.width, alpha=style.alpha, zorder=order)


def _draw_land(ax: Axes, window: Window, beneath: Sequence[BaseGeometry] | None) -> None:
    layers = [beneath] if beneath is not None else borders_within(*window)
    ax.set_facecolor(SEA if beneath is None else "white")
    for layer in layers:
        if len(layer):
            _add(ax, layer, _Style(COAST, face=LAND, width=0.6), 0)


def _draw(ax: Axes, picture: Picture, kept: int, skipped: int, least: float) -> None:
    """Draw boxes, shapes, rows and the legend; ``least`` is the minimum size of a box."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    legend: list[Any] = []
    without = picture.boxes.kept_without
    alone = f", {without:,} of them without a box" if without else ""
    styles = (
        (picture.boxes.skipped, SKIPPED, 0.10, 0.5, 1, f"skipped: {count_of(skipped, 'file')}", skipped),
        (picture.boxes.kept, KEPT, 0.22, 1.0, 2, f"kept: {count_of(kept, 'file')}{alone}", kept),
    )
    for boxes, colour, opacity, width, order, label, count in styles:
        _draw_boxes(ax, _enlarge_boxes(boxes, least), colour, opacity, width, order)
        if count:
            legend.append(Patch(facecolor=(colour, 2 * opacity), edgecolor=colour, label=label))
    _add(ax, picture.shapes, _Style(SHAPE, width=1.6, marker="+"), 4)
    for limit in picture.limits:
        across = ax.axvline if limit.axis == 0 else ax.axhline
        across(limit.value, color=SHAPE, linewidth=1.2, linestyle=(0, (6, 3)), zorder=4)
    if picture.shapes or picture.limits:
        line = Line2D([], [], color=SHAPE, linewidth=1.6, label="the query")
        line.set_linestyle("solid" if picture.shapes else "dashed")
        legend.append(line)
    if picture.rows:
        size = float(np.clip(3000 / len(picture.rows), 2.0, 12.0))  # many points must not hide the boxes below
        _add(ax, picture.rows, _Style(ROWS, face=ROWS, size=size, alpha=0.75), 5)
        some = f"{len(picture.rows):,} of the matching rows" if picture.more else f"{len(picture.rows):,} matching rows"
        dot = Line2D([], [], linestyle="none", marker="o", markersize=4, color=ROWS, label=some)
        legend.append(dot)
    if legend:
        below: dict[str, Any] = {"bbox_to_anchor": (0.0, 0.0), "borderaxespad": 2.5, "ncols": 2}
        ax.legend(handles=legend, loc="upper left", frameon=False, fontsize=9, **below)


def _draw_boxes(ax: Axes, boxes: Boxes, colour: str, opacity: float, width: float, order: int) -> None:
    from matplotlib.collections import PolyCollection

    layers = layers_of(boxes)
    if layers > _MOST_LAYERS:  # fill their union, since overlapping boxes would hide the map
        together = shapely.union_all(shapely.box(boxes.xmin, boxes.ymin, boxes.xmax, boxes.ymax))
        _add(ax, [together], _Style(colour, face=(colour, 2 * opacity)), order)
    corners = np.stack(
        [
            np.stack([boxes.xmin, boxes.xmin, boxes.xmax, boxes.xmax], axis=1),
            np.stack([boxes.ymin, boxes.ymax, boxes.ymax, boxes.ymin], axis=1),
        ],
        axis=2,
    )
    outlines = PolyCollection(
        list(corners),
        facecolor=(colour, opacity if layers <= _MOST_LAYERS else 0),
        edgecolor=(colour, 0.8),
        linewidth=width if layers <= _MOST_LAYERS else width / 10,
        zorder=order,
    )
    outlines.set_in_layout(False)
    ax.add_collection(outlines, autolim=False)


def _enlarge_boxes(boxes: Boxes, least: float) -> Boxes:
    """The boxes, with single points enlarged so that they are visible."""
    across, along = (np.maximum(least - size, 0) / 2 for size in (boxes.xmax - boxes.xmin, boxes.ymax - boxes.ymin))
    return Boxes(boxes.xmin - across, boxes.ymin - along, boxes.xmax + across, boxes.ymax + along)


def layers_of(boxes: Boxes) -> float:
    """Average number of boxes over a point of their region."""
    whole = _bounds(_usual(boxes))
    if whole is None:
        return 0.0
    area = (whole[2] - whole[0]) * (whole[3] - whole[1])
    return float(((boxes.xmax - boxes.xmin) * (boxes.ymax - boxes.ymin)).sum() / area) if area > 0 else 0.0


def _finish(ax: Axes, window: Window, degrees: bool, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set_xlim(window[0], window[2])
    ax.set_ylim(window[1], window[3])
    ax.set_aspect(1 / shrinking_of(window, degrees))
    ax.set_xlabel("")
    ax.set_ylabel("")
    ax.set_title(title, loc="left", fontsize=9.5)
    ax.tick_params(labelsize=8, color=COAST)
    ax.spines[:].set_color(COAST)
    for axis, signs in ((ax.xaxis, "EW"), (ax.yaxis, "NS")):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        if degrees:
            axis.set_major_formatter(FuncFormatter(lambda value, _, signs=signs: _degrees(value, signs)))


_LETTERS_AN_INCH = 12.5


def _condition(text: str, ax: Axes) -> str:
    """A query's condition in two lines of the width of the axes."""
    width = max(int(ax.bbox.width / ax.figure.dpi * _LETTERS_AN_INCH), 30)
    lines = textwrap.wrap(text, width)
    return "\n".join(lines[:2]) + ("…" if len(lines) > 2 else "")


def _degrees(value: float, signs: str) -> str:
    """A coordinate in the notation of maps.

    >>> _degrees(-87.5, "EW"), _degrees(40.0, "NS"), _degrees(0.0, "NS")
    ('87.5°W', '40°N', '0°')
    """
    sign = "" if value == 0 else signs[int(value < 0)]
    return f"{abs(value):.6g}°{sign}"


def borders_within(west: float, south: float, east: float, north: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Polygons of the countries and states that meet a window.

    ``python -m datasets.borders`` generates their file: countries by Natural Earth (1:50 million, public domain) and,
    in place of the United States, the states by the Census Bureau; both are simplified for display.

    Parameters
    ----------
    west, south, east, north
        The window, in degrees.

    >>> countries, states = borders_within(-88.5, 41, -87, 42.5)  # around Chicago
    >>> len(countries), len(states)
    (2, 4)
    """
    window = shapely.box(west, south, east, north)
    shown = [shapes[shapely.intersects(shapely.envelope(shapes), window)] for shapes in _borders()]
    return shown[0], shown[1]


@cache
def _borders() -> tuple[NDArray[Any], NDArray[Any]]:
    with as_file(files(__package__).joinpath("borders.parquet")) as path:
        table = pq.read_table(path)
    shapes = np.asarray(shapely.from_wkb(table["geometry"].to_pylist()), dtype=object)
    is_state = np.asarray(table["level"].to_pylist()) == "state"
    return shapes[~is_state], shapes[is_state]
