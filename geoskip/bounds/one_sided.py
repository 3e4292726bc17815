"""Comparisons that look at one end of the files' ranges alone, as it is stored.

``temp > 5`` asks for the greatest value and nothing else, so nothing else is read, and no keys are derived: when the
metadata have just been read that is most of the work. Where a file lacks its bound, or may hold NaN, the whole range
answers (:mod:`geoskip.bounds.interval`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.bounds.interval import Interval, kind_of, plain, words
from geoskip.bounds.sort_keys import FIRST, LAST, IncomparableError, physical, real_below
from geoskip.clauses import Clause, Files, Mask
from geoskip.predicates import Literal

__all__ = ["OneSidedClause", "OneSidedBounds", "end_of"]


class OneSidedClause(Clause):
    """A clause on ranges that, for an order comparison of the bare expression, is answered by one end if that does."""

    name: str
    steps: tuple[Any, ...]
    op: str
    literals: tuple[Literal, ...]

    def columns(self) -> tuple[tuple[str, str], ...]:
        field = self._field()
        return super().columns() if field is None else ((self.name, field), (self.name, "nans"))

    def keep(self, files: Files) -> Mask:
        found = self._by_one_end(files)
        whole: Mask = super().keep(files) if found is None else found  # type: ignore[safe-super]
        return whole

    def _field(self) -> str | None:
        bare = not self.steps and len(self.literals) == 1
        return {">": "max", "<": "min"}.get(self.op[0]) if bare else None

    def _by_one_end(self, files: Files) -> Mask | None:
        field = self._field()
        if field is None:
            return None
        end = files.cached((self.name, "end", field), lambda: end_of(files, self.name, field))
        try:
            return None if end is None else end.meets(self.op, self.literals[0])
        except IncomparableError:
            return None


@dataclass(frozen=True)
class OneSidedBounds:
    """The least or the greatest value of every file: all that an order comparison with a literal looks at.

    Nothing is derived from what is stored, which counts when the metadata have just been read.
    """

    kind: str
    values: NDArray[Any]

    def meets(self, op: str, literal: Literal) -> Mask | None:
        """May some value be ``op`` the literal? This is the greatest value for > and >=, the least for < and <=.

        None where that is not so simple to say. A bound that is NaN bounds nothing.

        >>> OneSidedBounds("number", np.array([1, 5])).meets(">=", Literal(5)).tolist()
        [False, True]
        """
        values = self.values
        at, exact = self._place(literal)
        if at is None:
            return None
        match op:
            case ">=" if exact:
                return np.asarray(~(values < at))
            case ">" | ">=":
                return np.asarray(~(values <= at))
            case "<" if exact:
                return np.asarray(~(values >= at))
            case "<" | "<=":
                return np.asarray(~(values > at))
        return None

    def _place(self, literal: Literal) -> tuple[float | None, bool]:
        if self.kind == "real":
            below, exact = real_below(physical(literal.value), literal.type)
            return (None if math.isnan(below) else below), exact
        if isinstance(literal.value, float):  # Spark would compare them as doubles
            return None, False
        at, exact = Interval(self.kind, self.values, self.values).place(literal)
        return (at if FIRST < at < LAST else None), exact


def end_of(files: Files, name: str, field: str) -> OneSidedBounds | None:
    """``min`` or ``max`` of all files; None where one is missing, or other than a number, date or time.

    A greatest value says nothing of NaN, which is greater: where a file has any, or may have, the answer is None too.
    """
    values = plain(files.summary(name, field))
    kind = values.type
    if values.null_count or pa.types.is_null(kind):
        return None
    if pa.types.is_floating(kind):
        if field == "max":
            nans = plain(files.summary(name, "nans"))
            if nans.null_count or not pa.types.is_integer(nans.type) or np.asarray(nans).any():
                return None
        return OneSidedBounds("real", np.asarray(values.cast(pa.float64())))
    name_of = kind_of(kind)
    return None if name_of is None else OneSidedBounds(name_of, words(values))
