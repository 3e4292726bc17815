"""Dates and times that Spark casts from strings: intervals from the common prefix of a unit's strings.

Casts of strings do not preserve the order: ``2024-4-1`` is a later string and an earlier date than ``2024-12-31``. But
all strings between two bounds begin with the common prefix of the bounds. If this is ``2024-04-10T0``, a cast returns
April 10th, or NULL (or throws) for a string that is no date; ``2024-04-`` determines the month, and ``2024-`` the year.
An incomplete part determines nothing, since ``2024-1`` may begin October.

A time without a zone is within this period. An instant is within 18 hours of it, since the offset of a zone, which may
be part of the string, is at most 18 hours.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.arithmetic import MICROSECONDS_PER_DAY
from geoskip.bounds.interval import ByteStrings, Interval
from geoskip.evaluation.values import FIRST, LAST

_DATE = re.compile(rb"(\d{4})-(?:(\d\d)-(\d\d)?)?")
_LONGEST = len("2024-04-10")
_WIDEST_OFFSET = MICROSECONDS_PER_DAY * 18 // 24


def cast_texts(texts: ByteStrings, target: str) -> Interval:
    """Return the intervals of ``CAST(text AS date)`` (or ``timestamp``, ``timestamp_ntz``).

    >>> low, high = pa.array([b"2024-04-10T01", b"2024-04-10"]), pa.array([b"2024-04-10T23", b"2024-04-12"])
    >>> found = cast_texts(ByteStrings(low, high, np.zeros(2, bool), np.ones(2, bool)), "date")
    >>> found.low.astype("M8[D]").tolist()[0], found.high.astype("M8[D]").tolist()[1]
    (datetime.date(2024, 4, 10), datetime.date(2024, 4, 30))
    """
    low, high = (pc.binary_slice(end, 0, _LONGEST) for end in (texts.low, texts.high))
    pairs = pc.binary_join_element_wise(low, high, pa.scalar(b"\0", low.type)).dictionary_encode()
    periods = [*map(_period, pairs.dictionary.to_pylist()), (FIRST, LAST)]
    low, high = np.array(periods, dtype=np.int64)[np.asarray(pairs.indices.fill_null(-1))].T.copy()
    known = low > FIRST
    if target != "date":
        slack = _WIDEST_OFFSET if target == "timestamp" else 0
        low[known] = low[known] * MICROSECONDS_PER_DAY - slack
        high[known] = (high[known] + 1) * MICROSECONDS_PER_DAY - 1 + slack
    low[texts.empty], high[texts.empty] = LAST, FIRST
    return Interval(target, low, high)


def _period(bounds: bytes) -> tuple[int, int]:
    """Return the first and the last day that strings between two bounds may determine.

    A zero separates the bounds. One within the lower bound leaves too few bytes for a date on both sides.
    """
    low, _, high = bounds.partition(b"\0")
    pairs = enumerate(zip(low, high, strict=False))
    shared = next((place for place, (one, other) in pairs if one != other), min(len(low), len(high)))
    found = _DATE.match(low[:shared])
    parts = [part.decode() for part in (found.groups() if found else ()) if part is not None]
    if not parts:
        return FIRST, LAST
    try:
        period = np.array("-".join(parts), dtype=f"M8[{'YMD'[len(parts) - 1]}]")
    except ValueError:  # no date begins like this
        return FIRST, LAST
    first, following = (int(start.astype("M8[D]").astype(int)) for start in (period, period + 1))
    return first, following - 1
