"""Clauses on expressions over a GeoBox's coordinates: ``abs(lat - 45) < 3``, ``2 * lng + lat > 100``.

A box bounds both coordinates of its rows, like a MinMax on each coordinate with every box as a file. So the clauses are
those of MinMax (:mod:`geoskip.indexes.range_clauses`) with each unit as a file, and AND is evaluated box by box.

*Why that is sound*: every row lies in a unit of its file, and the summary of a unit holds for all its rows. The bounds
of a box are rounded outwards to values of the coordinate's type. If one coordinate of a row is NULL, the other may be
any value; a file with a coordinate that is not finite has an additional unit for any values except NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from geoskip.bounds import uncast
from geoskip.clauses import Clause, DerivedFiles, keep_mask
from geoskip.conditions import ALWAYS, Condition
from geoskip.evaluation.values import decimals_of
from geoskip.geometry import Floats, Mask
from geoskip.indexes.geobox.clauses import BoxTransform, GeoClause, Integers, Table
from geoskip.indexes.geobox.units import BoxUnits, UnitSort
from geoskip.indexes.minmax import BoundClauses
from geoskip.predicates import Predicate
from geoskip.types import SqlType, sql_type

if TYPE_CHECKING:
    from geoskip.indexes.geobox.index import GeoBox

_MOST_WHOLE = 2.0**63 - 1024
_MOST_UNSCALED = 10.0**18
_EXACT = 2.0**50


@dataclass(frozen=True)
class Coordinate:
    """A coordinate as an expression of some numeric type; ``axis`` is 0 for x and 1 for y."""

    name: str
    axis: int
    type: SqlType


@dataclass(frozen=True, eq=False)
class UnitFiles(DerivedFiles):
    """The units of a GeoBox as files with a MinMax summary for each coordinate."""

    units: BoxUnits
    coordinates: dict[str, Coordinate]

    def __len__(self) -> int:
        return len(self.units)

    def summary(self, index: str, field: str) -> pa.Array:
        """Return one field of a coordinate's summary, with one entry per unit."""
        fields: dict[str, pa.Array] = self.cached(("fields", index), lambda: self._fields(self.coordinates[index]))
        return fields[field] if field in fields else pa.nulls(len(self))

    def null_reasons(self, axis: int) -> tuple[UnitSort, ...]:
        """Return the sorts of units without a box in which a coordinate is NULL; in others it is unknown."""
        return (UnitSort.NULL, (UnitSort.ONLY_Y, UnitSort.ONLY_X)[axis])

    def _fields(self, coordinate: Coordinate) -> dict[str, pa.Array]:
        units, boxes, sort = self.units, self.units.boxes, self.units.column("sort")
        low, high = ((boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax))[coordinate.axis]
        is_box, known = sort == UnitSort.BOX, sort != UnitSort.EMPTY
        null = np.isin(sort, self.null_reasons(coordinate.axis))
        least, most = bounds_of_type(coordinate.type, low, high, ~is_box)
        return {
            "min": least,
            "max": most,
            "rows": pa.array(np.ones(len(units), dtype=np.int64), mask=~known),
            "nulls": pa.array(null.astype(np.int64), mask=~known),
            "nans": pa.array(np.zeros(len(units), dtype=np.int64), mask=~(is_box | null)),
        }


@dataclass(frozen=True)
class BoxPasses(GeoClause):
    """Some unit may contain a match, by the bounds of its coordinates."""

    coordinates: tuple[Coordinate, ...]
    inner: Clause

    def where(self, table: Table) -> Condition:
        return self._code(ALWAYS, self._passes)

    def _passes(self, units: BoxUnits, places: Integers) -> Mask:
        named = {coordinate.name: coordinate for coordinate in self.coordinates}
        files = units.compute_once(self.coordinates, lambda: UnitFiles(units, named))
        return keep_mask(self.inner, files)[places]

    def __str__(self) -> str:
        return f"{self.index} has a box with {self.inner}"


def computed_clause(index: GeoBox, node: Predicate) -> Clause | None:
    """Return a clause for a predicate on values computed from a pair's coordinates, or None."""
    axes = {uncast(bound): axis for axis, bound in reversed([*enumerate(index.bound)])}
    read: dict[str, Coordinate] = {}

    def leaf(expression: Predicate) -> str | None:
        kind = sql_type(expression.type)
        axis = axes.get(uncast(expression)) if kind.is_exact or kind.is_floating else None
        if axis is None:
            return None
        name = f"minmax({expression})"
        read[name] = Coordinate(name, axis, kind)
        return name

    inner = BoundClauses(leaf).clause(node)
    if inner is None:
        return None
    return BoxPasses(str(index), index.counts, BoxTransform(), tuple(read.values()), inner)


def bounds_of_type(kind: SqlType, low: Floats, high: Floats, lacks: Mask) -> tuple[pa.Array, pa.Array]:
    """Convert the bounds of boxes to a coordinate's type, rounded outwards.

    Parameters
    ----------
    kind : SqlType
        An exact or floating type.
    low, high : array of float64
        The bounds of the boxes, which are the first units.
    lacks : array of bool
        One entry per unit: True for null bounds. Bounds that exceed 64 bits become null too.
    """
    ends = [np.zeros(len(lacks)) for _ in range(2)]
    ends[0][: len(low)], ends[1][: len(high)] = low, high
    if not kind.is_exact:
        return pa.array(ends[0], mask=lacks), pa.array(ends[1], mask=lacks)
    scaled = [end * 10.0**kind.scale if kind.is_decimal else end for end in ends]
    slack = [np.abs(end) * 1e-15 for end in scaled]
    exact = [np.abs(end) < _EXACT for end in scaled]  # only one value has this double
    least = np.where(exact[0], _nearest(kind, scaled[0], np.ceil), np.floor(scaled[0] - slack[0]))
    most = np.where(exact[1], _nearest(kind, scaled[1], np.floor), np.ceil(scaled[1] + slack[1]))
    limit = _MOST_WHOLE if kind.is_integral else _MOST_UNSCALED
    open_ = lacks | (np.abs(least) > limit) | (np.abs(most) > limit) | (least > most)
    words = [np.where(open_, 0, end).astype(np.int64) for end in (least, most)]
    if kind.is_integral:
        return pa.array(words[0], mask=open_), pa.array(words[1], mask=open_)
    last = min(10**kind.precision - 1, 2**63 - 1)
    words = [np.clip(word, -last, last) for word in words]  # the limits of the type
    least, most = (decimals_of(word, pa.decimal128(38, kind.scale), open_) for word in words)
    return least, most


def _nearest(kind: SqlType, end: Any, inward: Callable[[Any], Any]) -> Any:
    """Round a bound inward to a whole number, or to the unscaled decimal with this double."""
    return inward(end) if kind.is_integral else np.rint(end)
