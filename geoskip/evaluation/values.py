"""Values that conditions are evaluated for, their outcomes as bits, and transitions of time zones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "ANY",
    "IS_FALSE",
    "IS_NULL",
    "IS_TRUE",
    "CandidateValues",
    "Outcomes",
    "ZoneTransitions",
    "ascending",
    "physical",
    "swapped",
]

IS_TRUE, IS_FALSE, IS_NULL = 1, 2, 4
ANY = IS_TRUE | IS_FALSE | IS_NULL
Outcomes = NDArray[np.uint8]
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class CandidateValues:
    """Values to put in place of an expression, physical (:func:`physical`), NULL among them or not.

    ``ascending``: in Spark's order, NULL last; look-ups are then binary searches. ``token`` names them for the life of
    the process, so that an engine need be given them but once.
    """

    array: pa.Array
    ascending: bool = False
    token: int = field(default_factory=itertools.count(1).__next__)

    def __len__(self) -> int:
        return len(self.array)


def swapped(found: Outcomes) -> Outcomes:
    """The outcomes of the negation."""
    return _SWAPPED[found]


_SWAPPED = np.array([(b & IS_NULL) | (b & 1) << 1 | (b & 2) >> 1 for b in range(8)], dtype=np.uint8)


def ascending(array: pa.Array) -> NDArray[np.int64]:
    """The order of physical values: Spark's, with -0.0 before 0.0, NaN after all numbers, NULL last."""
    order: NDArray[np.int64]
    if pa.types.is_floating(array.type):
        plain = np.asarray(array.fill_null(0.0).to_numpy(zero_copy_only=False))
        order = np.lexsort((~np.signbit(plain), plain, np.asarray(array.is_null())))
    else:
        order = np.asarray(pc.array_sort_indices(array)).astype(np.int64)
    return order


def physical(values: pa.Array) -> pa.Array:
    """Values as Spark keeps them: int64 (of booleans, dates and times too), float64, binary, decimal128.

    Raises ArrowInvalid where a time has a fraction of a microsecond, ArrowNotImplementedError for other types.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return physical(values.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_decimal128(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values
    if pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.int64())
    return values.cast(pa.large_binary())


@dataclass(frozen=True, eq=False)
class ZoneTransitions:
    """Transitions of a time zone and its offsets from UTC between them, in microseconds.

    >>> clocks = ZoneTransitions.of("7258118400 0 10:3600 20:-1800")
    >>> clocks.at.tolist(), [ahead // 10**6 for ahead in clocks.ahead.tolist()]
    ([10000000, 20000000], [0, 3600, -1800])
    """

    at: NDArray[np.int64]
    ahead: NDArray[np.int64]
    """One entry more than ``at``: before the first time, and from each on."""
    until: int
    """From then on it is not known when."""

    @classmethod
    def of(cls, text: str) -> ZoneTransitions:
        """From seconds as text: ``until``, how far ahead in the beginning, then ``time:ahead`` each time."""
        until, first, *rest = text.split()
        pairs = [pair.split(":") for pair in rest]
        at = np.array([int(time) for time, _ in pairs], dtype=np.int64)
        ahead = np.array([int(first), *(int(ahead) for _, ahead in pairs)], dtype=np.int64)
        return cls(at * _MICROSECONDS, ahead * _MICROSECONDS, int(until) * _MICROSECONDS)
