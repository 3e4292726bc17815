"""Pictures of a layout: each file as a span of one column, or as a box over two.

Needs only matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geoskip.errors import EnvironmentProblem
from geoskip.layout.clustering import FileRanges
from geoskip.plotting import KEPT, SKIPPED
from geoskip.report import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_LEAST = 0.004
"""Width of the narrowest span, as a share of the axis, so that a file with one value is visible."""
_LABEL = 18
"""Characters of a text on an axis."""
_SECONDS = 86_400e6
"""Microseconds in a day."""


def plot_spans(
    columns: Mapping[str, FileRanges], out_of_order: NDArray[Any] | None, *, title: str, ax: Axes | None = None
) -> Axes:
    """Draw files: see :meth:`geoskip.layout.layout_report.LayoutReport.plot`.

    Parameters
    ----------
    columns
        One or two columns with the ranges of the files.
    out_of_order
        The files that are drawn as overlapping; None for none.
    title
        The text above the picture.
    ax
        The axes to draw on; new ones by default.

    Raises
    ------
    EnvironmentProblem
        Without matplotlib.
    """
    try:
        import matplotlib.pyplot as plt
        from matplotlib.collections import PolyCollection
    except ImportError:
        raise EnvironmentProblem("plot() draws with matplotlib: pip install 'geoskip[plot]'") from None
    ranges = list(columns.values())
    shown = np.logical_and.reduce([each.present for each in ranges])
    flagged = np.zeros(len(shown), dtype=bool) if out_of_order is None else np.asarray(out_of_order, dtype=bool)
    if ax is None:
        ax = plt.subplots(figsize=(8.0, 6.0 if len(ranges) > 1 else 4.5), layout="constrained")[1]
    (left, right), *others = ((low[shown], high[shown]) for low, high in (_ends(each) for each in ranges))
    left, right = _widen(left, right)
    if others:
        bottom, top = _widen(*others[0])
    else:
        place = np.empty(len(left))
        place[np.lexsort((right, left))] = np.arange(len(left))
        bottom, top = place + 0.1, place + 0.9
    corners = np.stack([[left, right, right, left], [bottom, bottom, top, top]], axis=-1).transpose(1, 0, 2)
    alpha = _transparency(left, right, bottom, top) if others else 0.9
    for name, colour, of in (("in order", SKIPPED, ~flagged[shown]), ("overlaps others", KEPT, flagged[shown])):
        if of.any():
            label = f"{name} ({int(of.sum()):,})" if out_of_order is not None else None
            faces, width = (colour, alpha), 0.9 if others else 0.0
            ax.add_collection(
                PolyCollection(list(corners[of]), facecolors=faces, edgecolors=colour, linewidths=width, label=label)
            )
    is_cut = _scale(ax, left, right, bottom, top)
    _name_axis(ax.xaxis, *next(iter(columns.items())))
    if others:
        _name_axis(ax.yaxis, *list(columns.items())[1])
    else:
        ax.set_ylabel("files, by their least value")
    ax.set_title(f"{title}, without far ends" if is_cut else title, loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    if out_of_order is not None and flagged[shown].any():
        ax.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return ax


def _ends(ranges: FileRanges) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ends in the units of the axis: days for dates and times, ranks for text."""
    if ranges.kind == "text":
        return ranges.low.astype(np.float64), ranges.high.astype(np.float64)
    low, high = ranges.ends()
    by = _SECONDS if ranges.kind.startswith("timestamp") else 1.0
    return low / by, high / by


def _widen(low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Widen spans to the minimum width."""
    if not len(low):
        return low, high
    least, most = _view(low, high)
    short = np.maximum(_LEAST * ((most - least) or 1.0) - (high - low), 0.0) / 2
    return low - short, high + short


def _transparency(*sides: NDArray[Any]) -> float:
    """Opacity of a box, lower the more boxes overlap on average."""
    left, right, bottom, top = sides
    if not len(left):
        return 1.0
    whole = (right.max() - left.min()) * (top.max() - bottom.min())
    layers = float(((right - left) * (top - bottom)).sum() / whole) if whole > 0 else 1.0
    return float(np.clip(0.35 / max(layers, 1.0), 0.02, 0.35))


def _scale(ax: Axes, left: NDArray[Any], right: NDArray[Any], bottom: NDArray[Any], top: NDArray[Any]) -> bool:
    """Set the limits of both axes; return True if they do not show all spans."""
    is_cut = False
    if len(left):
        for limits, low, high in ((ax.set_xlim, left, right), (ax.set_ylim, bottom, top)):
            least, most = _view(low, high)
            margin = 0.02 * (most - least)
            limits(least - margin, most + margin)
            is_cut |= (least, most) != (float(low.min()), float(high.max()))
    return is_cut


def _view(low: NDArray[Any], high: NDArray[Any]) -> tuple[float, float]:
    """The part of an axis to show: all spans, or fewer if far ends would leave no room for the others.

    >>> low = np.arange(20.0)
    >>> _view(low, low + 1), _view(low, np.append(low[1:], 1e9))
    ((0.0, 20.0), (0.0, 19.0))
    """
    least, most = float(np.quantile(low, 0.05, method="higher")), float(np.quantile(high, 0.95, method="lower"))
    room = 2 * (most - least)
    if len(low) < 4 or room <= 0:
        return float(low.min()), float(high.max())
    return float(low[low >= least - room].min()), float(high[high <= most + room].max())


def _name_axis(axis: Axis, name: str, ranges: FileRanges) -> None:
    """Label an axis, with ticks as dates, times or text."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_label_text(name)
    if ranges.kind == "date" or ranges.kind.startswith("timestamp"):
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    elif ranges.kind == "text":
        axis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda at, _: _label(ranges.labels, at)))


def _label(labels: Any, at: float) -> str:
    """The label at a rank, shortened; empty between ranks.

    >>> _label([b"a", b"b" * 40], 1.0), _label([b"a"], 0.5), _label([b"a"], 7.0)
    ('bbbbbbbbbbbbbbbbb…', '', '')
    """
    if at != int(at) or not 0 <= at < len(labels):
        return ""
    return shorten(labels[int(at)].decode("utf-8", "replace"), _LABEL)
