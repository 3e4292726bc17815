"""Comparisons of what is computed from the coordinates of a GeoBox: ``abs(lat - 45) < 3``, ``floor(lng) = 8``.

A box bounds either coordinate of its rows, and their sum, difference and product by interval arithmetic. So MinMax's
clauses are asked of each box as if it were a file: monotone steps over a coordinate (:mod:`geoskip.indexes.monotone`),
with Spark evaluating what it must, and their negations. Joined by AND they are merged box by box with all others.

*Why that is sound*: every row lies in a unit of its file, and of each unit is said what holds for the coordinate of all
its rows. In a box that is its ends, for whole numbers and decimals rounded outwards to values of the type. A row with a
NULL may still have the other coordinate, anything at all; a file with a coordinate that is not finite has one unit more
of which only is known that neither is NULL. A sum of doubles lies between the sums of the ends, since rounding keeps
the order; so do differences, and a product between the least and the greatest of the four corners'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from geoskip.clauses import KEEP_NONE, Clause, keep_mask
from geoskip.geometry.boxes import Boxes, Floats, Mask
from geoskip.indexes.gaplist import Segments
from geoskip.indexes.geobox_clauses import GeoClause, View
from geoskip.indexes.geobox_units import Boxless, Units
from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Call, Predicate, walk
from geoskip.registry import Function

if TYPE_CHECKING:
    from geoskip.indexes.geobox import GeoBox

__all__ = ["BoxPasses", "Line", "computed"]

_CATALYST = "org.apache.spark.sql.catalyst.expressions."
_BOTH = {
    "+": Function("+", classes=(_CATALYST + "Add",)),
    "-": Function("-", classes=(_CATALYST + "Subtract",)),
    "*": Function("*", classes=(_CATALYST + "Multiply",)),
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)$")
_MOST_WHOLE = 2.0**63 - 1024
_MOST_UNSCALED = 10.0**18


@dataclass(frozen=True)
class Line:
    """What is bounded in each box: a coordinate (0 for x, 1 for y), or two of them by an operation on doubles."""

    axes: tuple[int, ...]
    kind: str
    """Spark's name of the type."""
    op: str = ""

    def ends(self, boxes: Boxes) -> tuple[Floats, Floats]:
        """The least and the greatest value in each box."""
        sides = [((boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax))[axis] for axis in self.axes]
        if not self.op:
            return sides[0]
        (a, b), (c, d) = sides
        if self.op == "*":
            corners = (a * c, a * d, b * c, b * d)
            return np.minimum.reduce(corners), np.maximum.reduce(corners)
        return (a + c, b + d) if self.op == "+" else (a - d, b - c)

    def null(self) -> tuple[Boxless, ...]:
        """The sorts of rows without a box of which it is NULL; of the others it may be anything."""
        return (Boxless.NULL, *((Boxless.ONLY_Y, Boxless.ONLY_X)[axis] for axis in sorted(set(self.axes))))

    def over(self, units: Units) -> Segments:
        """The units as files with the summaries of MinMax."""
        if self not in units.lines:
            units.lines[self] = _segments(self, units)
        found: Segments = units.lines[self]
        return found


def computed(index: GeoBox, node: Predicate) -> Clause | None:
    """A clause for a vertex over something computed from the coordinates of a pair, or None."""
    for line, expression in _lines(index, node):
        inner = MinMax(str(expression)).bind((expression,)).clause(node)
        if inner is KEEP_NONE:
            return inner
        if inner is not None:
            return BoxPasses(str(index), index.counts, View(), line, inner)
    return None


def _lines(index: GeoBox, node: Predicate) -> Iterator[tuple[Line, Predicate]]:
    for axis, bound in enumerate(index.bound):
        kind = getattr(bound, "type", None) or ""
        if kind in ("float", "double", *_WHOLE) or _DECIMAL.match(kind):
            yield Line((axis,), kind), bound
    for vertex in walk(node):
        if isinstance(vertex, Call) and vertex.type == "double" and len(vertex.args) == 2:
            op = _BOTH.get(vertex.name)
            if op is not None and op.is_called(vertex):
                axes = tuple(axis for axis in map(index.axis, vertex.args) if axis is not None)
                if len(axes) == 2:
                    yield Line(axes, "double", vertex.name), vertex


@dataclass(frozen=True)
class BoxPasses(GeoClause):
    """Some box may hold a match by what MinMax says of a coordinate in it."""

    line: Line
    inner: Clause

    def keep_of(self, units: Units) -> Mask:
        return keep_mask(self.inner, self.line.over(units))

    def __str__(self) -> str:
        return f"{self.index} has a box with {self.inner}"


def _segments(line: Line, units: Units) -> Segments:
    low, high = line.ends(units.boxes)
    boxes, length = len(low), len(units)
    known, null = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
    known[: units.wild.stop] = True
    null[units.boxless] = units.boxless_of(*line.null())
    lacks = np.ones(length, dtype=bool)  # its bounds
    lacks[:boxes] = False
    bounds = dict(zip(("min", "max"), _bounds(line.kind, low, high, lacks), strict=True))
    sure = np.zeros(length, dtype=bool)  # that it is not NaN
    sure[:boxes] = True
    return Segments(
        units.unit_file,
        {
            **bounds,
            "rows": pa.array(np.ones(length, dtype=np.int64), mask=~known),
            "nulls": pa.array(null.astype(np.int64), mask=~known),
            "nans": pa.array(np.zeros(length, dtype=np.int64), mask=~(sure | null)),
        },
    )


def _bounds(kind: str, low: Floats, high: Floats, lacks: Mask) -> tuple[pa.Array, pa.Array]:
    """Ends of boxes as bounds of a type, null for units that have none, and where the type does not reach so far."""
    decimal = _DECIMAL.match(kind)
    ends = [np.zeros(len(lacks)) for _ in range(2)]
    ends[0][: len(low)], ends[1][: len(high)] = low, high
    if decimal is None and kind not in _WHOLE:
        return pa.array(ends[0], mask=lacks), pa.array(ends[1], mask=lacks)
    if decimal is None:
        least, most, limit = np.ceil(ends[0]), np.floor(ends[1]), _MOST_WHOLE
    else:
        scaled = [end * 10.0 ** int(decimal[2]) for end in ends]
        least, most = (np.floor(scaled[0] - np.abs(scaled[0]) * 1e-15), np.ceil(scaled[1] + np.abs(scaled[1]) * 1e-15))
        limit = _MOST_UNSCALED
    open_ = lacks | (np.abs(least) > limit) | (np.abs(most) > limit) | (least > most)
    words = [np.where(open_, 0, end).astype(np.int64) for end in (least, most)]
    if decimal is None:
        return pa.array(words[0], mask=open_), pa.array(words[1], mask=open_)
    last = min(10 ** int(decimal[1]) - 1, 2**63 - 1)
    words = [np.clip(word, -last, last) for word in words]  # the engine takes no other for the type
    return _decimals(words[0], open_, int(decimal[2])), _decimals(words[1], open_, int(decimal[2]))


def _decimals(unscaled: Any, lacks: Mask, scale: int) -> pa.Array:
    words = np.stack([unscaled, unscaled >> 63], axis=1).astype("<i8")  # sign-extended to 128 bits
    valid = pa.py_buffer(np.packbits(~lacks, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(unscaled), [valid, pa.py_buffer(words.tobytes())])
