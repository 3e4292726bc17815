"""Pictures of a layout for a page: the span of a column in every file, kept and skipped, as SVG.

The more the spans overlap, the more files contain a given value, and the fewer can be skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geoskip.layout.clustering import Clustering, FileRanges, clustering
from geoskip.layout.layout_report import stored_ranges
from geoskip.plotting.drawing import files_named
from geoskip.predicates import columns_of
from geoskip.rendering import Markup, element
from geoskip.report import shorten

if TYPE_CHECKING:
    from geoskip.report import Scan

_WIDTH, _HEIGHT = 1000, 240
_MOST_SPANS = 400
_MOST_COLUMNS = 6
_LEAST = 4.0
"""Width of the narrowest span."""
_FAR = 0.02
"""The share of the files that may be beyond each end of the axis."""
_LABEL = 28
"""Characters of a text below a picture."""


@dataclass(frozen=True)
class ColumnPicture:
    """Picture of one column in a dataset's files."""

    name: str
    svg: Markup
    low: str
    high: str
    figures: Clustering
    drawn: int
    """Number of files drawn, out of those with a value."""
    is_cut: bool
    """True if some files are beyond the ends of the axis."""


def pictures_of(scan: Scan) -> list[ColumnPicture]:
    """Pictures of the columns in a scan's condition for which an index stores bounds."""
    found: dict[str, ColumnPicture] = {}
    seen: set[int] = set()
    kept = scan.kept_files()
    for decision in scan.decisions():
        snapshot = decision.snapshot
        if id(snapshot) in seen:
            continue
        seen.add(id(snapshot))
        read = columns_of(decision.predicate)
        is_kept = None
        for index in snapshot.indexes:
            if read.isdisjoint(columns_of(*index.bound)):
                continue
            for name, ranges in stored_ranges(snapshot.files, index).items():
                if name not in found and len(found) < _MOST_COLUMNS and ranges.present.any():
                    is_kept = files_named(kept, snapshot) if is_kept is None else is_kept
                    found[name] = _picture(name, ranges, is_kept)
    return list(found.values())


def _picture(name: str, ranges: FileRanges, is_kept: NDArray[np.bool_]) -> ColumnPicture:
    present = np.flatnonzero(ranges.present)
    low, high = ranges.low[present], ranges.high[present]
    order = np.lexsort((high, low))
    chosen = order[np.linspace(0, len(order) - 1, min(len(order), _MOST_SPANS)).astype(np.int64)]
    at = np.arange(len(ranges.positions), dtype=float) if ranges.kind == "text" else ranges.positions
    first, last = _axis(at, low, high)
    scale = _WIDTH / ((at[last] - at[first]) or 1.0)
    left, right = (np.clip((at[ends[chosen]] - at[first]) * scale, 0, _WIDTH) for ends in (low, high))
    short = np.maximum(_LEAST - (right - left), 0.0) / 2
    left, right = np.maximum(left - short, 0.0), np.minimum(right + short, _WIDTH)
    step = _HEIGHT / len(chosen)
    height = _HEIGHT - (np.arange(len(chosen)) + 0.5) * step
    paths = []
    for kind, of in (("skipped", ~is_kept[present][chosen]), ("kept", is_kept[present][chosen])):
        lines = zip(left[of], height[of], right[of], strict=True)
        drawn = "".join(f"M{x:.1f} {y:.1f}H{end:.1f}" for x, y, end in lines)
        if drawn:
            paths.append(element("path", class_=kind, d=drawn, stroke_width=f"{min(max(0.8 * step, 0.7), 6.0):.2g}"))
    figures = clustering(ranges)
    svg = element(
        "svg", *paths, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img",
        aria_label=f"Spans of {name} in {len(chosen):,} files, sorted by their least value",
    )  # fmt: skip
    is_cut = bool(low.min() < first or high.max() > last)
    return ColumnPicture(name, svg, _label(ranges, first), _label(ranges, last), figures, len(chosen), is_cut)


def _axis(at: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> tuple[int, int]:
    """Ranks of the ends of the axis; if a few files are far away from all others, it ends before them.

    Parameters
    ----------
    at
        The position of each rank on the axis.
    low, high
        The ranks of each file's ends.
    """
    ends = int(low.min()), int(high.max())
    some = int(_FAR * len(low))
    usual = int(np.sort(low)[some]), int(np.sort(high)[-1 - some])
    return usual if 0 < at[usual[1]] - at[usual[0]] < (at[ends[1]] - at[ends[0]]) / 1.5 else ends


def _label(ranges: FileRanges, rank: int) -> str:
    """The bound at a rank, as text."""
    if ranges.kind == "text":
        return shorten(ranges.labels[rank].decode("utf-8", "replace"), _LABEL)
    value: Any = float(ranges.positions[rank])
    if ranges.kind == "date" and abs(value) < 1e7:
        return str(np.datetime64(int(value), "D"))
    if ranges.kind.startswith("timestamp") and abs(value) < 3e17:
        return str(np.datetime64(int(value) // 1_000_000, "s")).replace("T", " ")
    return f"{value:,.6g}" if abs(value) >= 10_000 else f"{value:.6g}"
