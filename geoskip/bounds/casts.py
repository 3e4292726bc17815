"""Casts that NumPy computes as Spark does, and the dates and times that Spark reads from strings.

Casts of strings do not preserve the order: ``2024-4-1`` is a later string and an earlier date than ``2024-12-31``. But
all strings between two bounds begin with the common prefix of the bounds. If this is ``2024-04-10T0``, a cast returns
April 10th, or NULL (or throws) for a string that is no date; ``2024-04-`` determines the month, and ``2024-`` the year.
An incomplete part determines nothing, since ``2024-1`` may begin October.

A time without a zone is within this period. An instant is within 18 hours of it, since the offset of a zone, which may
be part of the string, is at most 18 hours.

``to_timestamp``, ``to_date`` and ``unix_timestamp`` with a format such as ``yyyy/MM/dd HH:mm`` are bounded in the same
way: a part is complete if a separator follows it in the string. In formats without separators all parts but the last
have the digits of the format; the last is complete at the end of a string too. With
``spark.sql.legacy.timeParserPolicy=LEGACY`` it may have more: ``202401011`` is January 11th for ``yyyyMMdd``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.arithmetic import affine, fit, of_kind
from geoskip.bounds.interval import ByteStrings, Interval
from geoskip.evaluation.values import FIRST, LAST
from geoskip.types import DAY, sql_type

_DATE = re.compile(rb"(\d{4})-(?:(\d\d)-(\d\d)?)?")
_LONGEST = len("2024-04-10T")
_FORM = re.compile(r"yyyy([-/._ ]?)MM([-/._ ]?)dd((?:[^A-Za-z']|'[^']*'|[HhKkmsSaXxZVzO])*)")
"""Formats that begin with a date, perhaps followed by a time of day and a zone."""
_ZONE = re.compile("[XxZVzO]")
_PER_DAY = {"date": 1, "timestamp": DAY, "timestamp_ntz": DAY, "bigint": 86_400}
"""Units of the results in a day, by type; ``bigint`` is for seconds."""
_WIDEST_OFFSET = 18
"""Hours of the offset of a zone."""


def numpy_cast(source: str | None, target: str) -> Callable[..., Interval] | None:
    """Return a cast that NumPy computes exactly as Spark does, by its types; else None."""
    narrow, wide = sql_type(source), sql_type(target)
    if source == target:
        return lambda interval: interval
    if (narrow.is_integral or source == "boolean") and wide.is_integral:
        return lambda interval: fit(replace(of_kind(interval, "number", "boolean"), kind="number"), wide)
    if narrow.is_exact and wide.is_decimal:
        return lambda interval: fit(interval, wide)
    if (narrow.is_integral and wide.is_floating) or (narrow.is_decimal and target == "double"):
        return lambda interval: of_kind(interval, "number").as_real(target)
    if narrow.is_floating and wide.is_floating:
        return lambda interval: _round_reals(interval, target)
    match source, target:
        case ("date", "timestamp_ntz"):
            return lambda days: affine(of_kind(days, "date"), DAY, kind="timestamp_ntz")
        case ("timestamp_ntz", "date"):
            return _whole_days
        case ("string", "date" | "timestamp" | "timestamp_ntz"):
            return partial(cast_texts, target=target)
    return None


def _round_reals(interval: Interval, target: str) -> Interval:
    """Convert doubles and floats to one of these types."""
    of_kind(interval, "real")
    if target == "double":
        return interval
    with np.errstate(over="ignore"):
        low, high = (end.astype(np.float32).astype(np.float64) for end in (interval.low, interval.high))
    return Interval("real", low, high, nan=interval.nan)


def _whole_days(interval: Interval) -> Interval:
    """Return the dates of timestamps without a zone."""
    of_kind(interval, "timestamp_ntz")
    keep = interval.keys().unknown | (interval.low > interval.high)
    low, high = (np.where(keep, end, end // DAY) for end in (interval.low, interval.high))
    return Interval("date", low, high)


def integer_texts(interval: Interval) -> ByteStrings:
    """Return the bounds of the texts of integers, known for numbers of one length that are not negative."""
    of_kind(interval, "number")
    low, high = (pa.array(end).cast(pa.string()).cast(pa.binary()) for end in (interval.low, interval.high))
    known = np.asarray(pc.equal(pc.binary_length(low), pc.binary_length(high))) & (interval.low >= 0)
    low, high = (pc.if_else(pa.array(known), end, pa.scalar(None, end.type)) for end in (low, high))
    return ByteStrings(low, high, interval.low > interval.high, np.zeros(len(known), dtype=bool))


# --- dates and times in strings ---------------------------------------------------------------------------------------


def parse_texts(form: str, target: str, *, in_utc: bool) -> Callable[[ByteStrings], Interval] | None:
    """Return the function to the intervals of ``to_timestamp(text, form)``; None for other formats.

    Parameters
    ----------
    form, target
        The format, and the type of the result: ``timestamp``, ``timestamp_ntz``, or ``bigint`` for seconds since 1970.
    in_utc
        True if the session's zone is UTC.

    >>> [parse_texts(form, "timestamp", in_utc=True) is None for form in ("yyyyMMdd HH:mm", "dd.MM.yyyy")]
    [False, True]
    """
    found = _FORM.fullmatch(form)
    if found is None or target not in _PER_DAY:
        return None
    first, second = (re.escape(separator) for separator in found.groups()[:2])
    year = r"(?:19(?!00)|[2-9]\d)\d\d"  # the legacy parser reads earlier ones by other calendars and offsets
    day = r"\d\d" if found[3][:1].isalpha() else r"\d\d(?=\D)"
    date = re.compile(f"({year}){first}(?:(\\d\\d){second}({day})?)?".encode())
    is_exact = in_utc and not _ZONE.search(found[3])
    return partial(cast_texts, target=target, date=date, offset=0 if is_exact else _WIDEST_OFFSET)


def cast_texts(
    texts: ByteStrings, target: str, *, date: re.Pattern[bytes] = _DATE, offset: int = _WIDEST_OFFSET
) -> Interval:
    """Return the intervals of ``CAST(text AS date)`` (or ``timestamp``, ``timestamp_ntz``).

    Parameters
    ----------
    texts, target
        The bounds of the strings, and the type of the result.
    date
        Pattern of the complete parts of a date at the start of a string: year, month, day.
    offset
        The largest offset of a zone that an instant may be in, in hours.

    >>> low, high = pa.array([b"2024-04-10T01", b"2024-04-10"]), pa.array([b"2024-04-10T23", b"2024-04-12"])
    >>> found = cast_texts(ByteStrings(low, high, np.zeros(2, bool), np.ones(2, bool)), "date")
    >>> found.low.astype("M8[D]").tolist()[0], found.high.astype("M8[D]").tolist()[1]
    (datetime.date(2024, 4, 10), datetime.date(2024, 4, 30))
    """
    low, high = (pc.binary_slice(end, 0, _LONGEST) for end in (texts.low, texts.high))
    pairs = pc.binary_join_element_wise(low, high, pa.scalar(b"\0", low.type)).dictionary_encode()
    periods = [*(_period(pair, date) for pair in pairs.dictionary.to_pylist()), (FIRST, LAST)]
    low, high = np.array(periods, dtype=np.int64)[np.asarray(pairs.indices.fill_null(-1))].T.copy()
    known, units = low > FIRST, _PER_DAY[target]
    slack = units * offset // 24 if target in ("timestamp", "bigint") else 0
    low[known] = low[known] * units - slack
    high[known] = (high[known] + 1) * units - 1 + slack
    low[texts.empty], high[texts.empty] = LAST, FIRST
    return Interval("number" if target == "bigint" else target, low, high)


def _period(bounds: bytes, date: re.Pattern[bytes]) -> tuple[int, int]:
    """Return the first and the last day that strings between two bounds may determine.

    A zero separates the bounds, and ends a single string. One within the lower bound leaves too few bytes for a date on
    both sides.
    """
    low, _, high = bounds.partition(b"\0")
    pairs = enumerate(zip(low, high, strict=False))
    shared = next((place for place, (one, other) in pairs if one != other), min(len(low), len(high)))
    found = date.match(low + b"\0" if low == high else low[:shared])
    parts = [part.decode() for part in (found.groups() if found else ()) if part is not None]
    if not parts:
        return FIRST, LAST
    try:
        period = np.array("-".join(parts), dtype=f"M8[{'YMD'[len(parts) - 1]}]")
    except ValueError:  # no date begins like this
        return FIRST, LAST
    first, following = (int(start.astype("M8[D]").astype(int)) for start in (period, period + 1))
    return first, following - 1
