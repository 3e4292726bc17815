"""Comparisons of what is computed from two columns with a MinMax each: ``2 * asin(sqrt(...)) < 150``, ``a - b > 7``.

The bounds of a file are one box, and of each box is known what :mod:`geoskip.indexes.geobox.arithmetic` says, whose
reasons hold. A row with a NULL has no value; a file with a NaN, or of which the bounds are not known, is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.casts import uncast
from geoskip.bounds.interval import counts_of, plain
from geoskip.clauses import KEEP_NONE, Clause, Files, Mask, keep_mask
from geoskip.geometry.boxes import Boxes, Floats
from geoskip.indexes.gaplist import Segments
from geoskip.indexes.geobox.arithmetic import BoxArithmetic, bounds_of_type, joint_parts
from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Predicate

__all__ = ["PairPasses", "computed_of_two"]

_EXACT = ("double", "float", "int", "smallint", "tinyint")
"""Types whose values are doubles."""


def computed_of_two(node: Predicate, x: MinMax, y: MinMax) -> Clause | None:
    """A clause for a vertex over something computed from what two indexes are over, or None."""
    bound = (x.bound[0], y.bound[0])
    if bound[0] == bound[1] or any(each.type not in _EXACT for each in bound):
        return None
    for part in joint_parts((uncast(bound[0]), uncast(bound[1])), node):
        if {*part.axes} == {0, 1}:
            inner = MinMax(str(part.expression)).bind((part.expression,)).clause(node)
            if inner is KEEP_NONE:
                return inner
            if inner is not None:
                return PairPasses((str(x), str(y)), part, inner)
    return None


@dataclass(frozen=True)
class PairPasses(Clause):
    """A file may hold a match by what MinMax says of what is computed from two of its columns."""

    names: tuple[str, str]
    part: BoxArithmetic
    inner: Clause

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, field) for name in self.names for field in ("min", "max", "nulls", "nans"))

    def keep(self, files: Files) -> Mask:
        x, y = (files.cached((name, "bounds as doubles"), partial(_ends, files, name)) for name in self.names)
        known, null = x[2] & y[2], x[3] | y[3]
        with np.errstate(all="ignore"):  # what overflows is not sure
            low, high, sure = self.part.ends(Boxes(x[0], y[0], x[1], y[1]))
        told = known & sure
        least, most = bounds_of_type(self.part.type, np.where(told, low, 0), np.where(told, high, 0), ~told)
        one = np.ones(len(files), dtype=np.int64)
        counts = {"rows": one + null, "nulls": one * null, "nans": one * 0}
        fields = {name: pa.array(values, mask=~told) for name, values in counts.items()}
        return keep_mask(self.inner, Segments(np.arange(len(files)), {"min": least, "max": most, **fields}))

    def __str__(self) -> str:
        return f"{' and '.join(self.names)}: {self.inner}"


def _ends(files: Files, name: str) -> tuple[Floats, Floats, Mask, Mask]:
    """The bounds of each file, where they are known and finite, and where there may be a NULL."""
    ends = [plain(files.summary(name, field)) for field in ("min", "max")]
    if not all(pa.types.is_floating(end.type) or pa.types.is_integer(end.type) for end in ends):
        nothing = np.zeros(len(files))
        return nothing, nothing, np.zeros(len(files), dtype=bool), np.ones(len(files), dtype=bool)
    known = np.asarray(ends[0].is_valid()) & np.asarray(ends[1].is_valid())
    if pa.types.is_floating(ends[0].type):
        nans, counted = counts_of(files, name, "nans")
        known &= counted & (nans == 0)
    low, high = (np.asarray(pc.cast(end.fill_null(0), pa.float64())) for end in ends)
    known &= np.isfinite(low) & np.isfinite(high) & (low <= high)
    nulls, counted = counts_of(files, name, "nulls")
    return np.where(known, low, 0.0), np.where(known, high, 0.0), known, ~counted | (nulls > 0)
