"""Geometries of a decision for maps: the boxes of its files, and the shapes and limits of its clauses.

Clauses define their shapes themselves, and limits are read from conditions, so a new clause needs no change here.

All coordinates are those of the index: a shape that a query compares with ``ST_FlipCoordinates(geom)`` is flipped back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geoskip.clauses import Clause, leaves_of
from geoskip.conditions import AllOf, AnyOf, Compare, Condition, Negation, Refine, SomeValue
from geoskip.errors import InvalidSpecificationError
from geoskip.geometry import Boxes
from geoskip.indexes.geobox.clauses import GeoClause
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import BoxFacts, units_of
from geoskip.metadata import Snapshot
from geoskip.planner import Decision


@dataclass(frozen=True)
class FileBoxes:
    """The boxes of the files that a scan could read."""

    kept: Boxes
    skipped: Boxes
    kept_without: int
    """Number of kept files without a box: of unknown content, or without a geometry."""
    kept_files: NDArray[np.int64]
    skipped_files: NDArray[np.int64]
    """The number of each box's file in the snapshot."""


@dataclass(frozen=True)
class Limit:
    """A coordinate that a query compares with a constant: axis 0 for x, 1 for y."""

    axis: int
    value: float


def geobox_of(decisions: Iterable[Decision], wanted: str | None) -> tuple[Decision, GeoBox]:
    """The index with the boxes to draw: the named one, else the first that the decision used, else any.

    Raises InvalidSpecificationError if there is none.
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
    is_kept, is_skipped = (files_named(paths, decision.snapshot) for paths in (kept, skipped))
    with_box = np.zeros(len(is_kept), dtype=bool)
    with_box[units.box_file] = True
    ours, others = is_kept[units.box_file], is_skipped[units.box_file]
    return FileBoxes(
        units.boxes.take(ours),
        units.boxes.take(others),
        int(np.count_nonzero(is_kept & ~with_box)),
        units.box_file[ours],
        units.box_file[others],
    )


def files_named(paths: Iterable[str], snapshot: Snapshot) -> NDArray[np.bool_]:
    """Mark the files of a snapshot that have these paths, given relative to its root or in full."""
    number_of = {_local(name): number for number, name in enumerate(snapshot.files.column("path").to_pylist())}
    found = np.zeros(len(number_of), dtype=bool)
    prefix = _local(snapshot.header.root).rstrip("/") + "/"
    for path in map(_local, paths):
        number = number_of.get(path.removeprefix(prefix), number_of.get(path, -1))
        if number >= 0:
            found[number] = True
    return found


def _local(path: str) -> str:
    """A path without the scheme of local files, which Spark writes and other engines omit.

    >>> _local("file:/a/b"), _local("file:///a/b"), _local("s3a://bucket/a"), _local("/a/b")
    ('/a/b', '/a/b', 's3a://bucket/a', '/a/b')
    """
    return re.sub("^file:(//(?=/))?(?=/)", "", path)


def shapes_of(clause: Clause, index: GeoBox) -> list[BaseGeometry]:
    """The shapes that a clause compares the boxes with; for a distance the area within it."""
    outlines = (part.outline() for part in _parts_of(clause, index))
    found = {shapely.to_wkb(shape): shape for shape in outlines if shape is not None and not shape.is_empty}
    return list(found.values())


def limits_of(clause: Clause, index: GeoBox, table: BoxFacts) -> list[Limit]:
    """The coordinates that a clause compares with single constants, from its condition on a table."""
    conditions = (part.where(table) for part in _parts_of(clause, index) if part.outline() is None)
    return list(dict.fromkeys(limit for condition in conditions for limit in _limits_in(condition)))


def _parts_of(clause: Clause, index: GeoBox) -> list[GeoClause]:
    return [part for part in leaves_of(clause) if isinstance(part, GeoClause) and part.index == str(index)]


def _limits_in(condition: Condition) -> Iterator[Limit]:
    """The limits in a condition: comparisons of one or both ends of a box on an axis with a number."""
    match condition:
        case Compare(("xmin" | "xmax" | "ymin" | "ymax") as end, _, value) if np.isfinite(value):
            yield Limit(int(end[0] == "y"), float(value))
        case SomeValue((value,), columns=(end, _)):
            yield Limit(int(end[0] == "y"), float(value))
        case Refine(part) | Negation(part):
            yield from _limits_in(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _limits_in(part)
