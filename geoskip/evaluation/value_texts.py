"""Conversion of values to text as by ``CAST(... AS STRING)`` in Spark.

Where Spark versions or settings differ, the result is that of Spark's defaults since 4.0 on a current Java, in a
session with time zone UTC: decimals are plain (``0.0000001``, not ``1E-7``), and floats have the fewest digits that
distinguish them from others. Java before 19 writes some floats with one more digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_FIELDS = ("day", "hour", "minute", "second")
_SECOND = 1_000_000
_EXACT = 2.0**53
_UNITS = (86_400 * _SECOND, 3_600 * _SECOND, 60 * _SECOND, _SECOND)


def texts_of(values: pa.Array, kind: str) -> pa.Array:
    """Return values as texts, null for null; text that is not UTF-8 has replacement characters.

    Parameters
    ----------
    values : Array
        Values in the Arrow type of stored bounds: text as binary, intervals of days and times as durations.
    kind : str
        Spark's name of their type.

    >>> texts_of(pa.array([1e7, 0.001, -0.0, float("nan"), None]), "double").to_pylist()
    ['1.0E7', '0.001', '-0.0', 'NaN', None]
    >>> texts_of(pa.array([5_000_000], pa.duration("us")), "interval day to second").to_pylist()
    ["INTERVAL '0 00:00:05' DAY TO SECOND"]
    """
    stored = values.type
    if pa.types.is_duration(stored):
        return _each(values.cast(pa.int64()), lambda value: _interval(value, kind.lower()))
    if pa.types.is_floating(stored):
        single = pa.types.is_float32(stored)
        return _each(values, lambda value: _real(np.float32(value) if single else np.float64(value)))
    if pa.types.is_decimal(stored):
        return _each(values, lambda value: format(value, "f"))
    if pa.types.is_date(stored) or pa.types.is_timestamp(stored):
        return _dates(values)
    if pa.types.is_binary(stored) or pa.types.is_large_binary(stored):
        try:
            return values.cast(pa.large_binary()).cast(pa.large_string()).cast(pa.string())
        except pa.ArrowInvalid:
            return _each(values, lambda value: value.decode("utf-8", "replace"))
    return values.cast(pa.string())


def _each(values: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    """Convert each distinct value once."""
    encoded = values.dictionary_encode()
    written = pa.array([write(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return written.take(encoded.indices)


def _real(value: np.floating[Any]) -> str:
    """Format a float as Java does: with a point, and with an exponent outside of 0.001 to 10,000,000."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(float(value)) < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    digits, _, exponent = np.format_float_scientific(value, unique=True, trim="0").partition("e")
    if digits.endswith(".0"):  # one digit suffices, but Java writes the nearest number of two digits
        digits, _, exponent = f"{float(value):.1e}".partition("e")
    return f"{digits}E{int(exponent)}"


def _dates(values: pa.Array) -> pa.Array:
    """Format dates, and timestamps in UTC."""
    date = pa.types.is_date(values.type)
    null = np.asarray(values.is_null())
    numbers = np.asarray(values.cast(pa.int32() if date else pa.int64()).fill_null(0)).astype(np.int64)
    days, micros = (numbers, None) if date else np.divmod(numbers, 86_400 * _SECOND)
    texts = [_year(text) for text in np.datetime_as_string(days.astype("datetime64[D]")).tolist()]
    if micros is not None:
        clock = np.datetime_as_string(micros.astype("datetime64[us]")).tolist()
        texts = [f"{day} {_short(time[11:])}" for day, time in zip(texts, clock, strict=True)]
    return pa.array(texts, pa.string(), mask=null)


def _year(text: str) -> str:
    """Format the year of a NumPy date as Java does: at least four digits, with a sign if more.

    >>> _year("2024-02-29"), _year("10000-01-01"), _year("-001-12-31")
    ('2024-02-29', '+10000-01-01', '-0001-12-31')
    """
    year, month, day = text.rsplit("-", 2)
    number = int(year)
    return f"{'-' if number < 0 else '+' if number > 9999 else ''}{abs(number):04}-{month}-{day}"


def _short(time: str) -> str:
    """Remove trailing zeros of a time's fraction."""
    return re.sub(r"\.?0{1,6}$", "", time) if "." in time else time


def _interval(value: int, kind: str) -> str:
    """Format an interval of microseconds; ``kind`` names its fields.

    >>> _interval(90_061_500_000, "interval day to second"), _interval(-5_000_000, "interval second")
    ("INTERVAL '1 01:01:01.5' DAY TO SECOND", "INTERVAL '-05' SECOND")
    """
    named = [field for field in _FIELDS if field in kind]
    sign, rest = "-" if value < 0 else "", abs(value)
    shown = _fields_of(rest, _FIELDS.index(named[0]), _FIELDS.index(named[-1]))
    return f"INTERVAL '{sign}{shown}' {' TO '.join(named).upper()}"


def _fields_of(rest: int, first: int, last: int) -> str:
    """Format microseconds as days, hours, minutes and seconds, from a first to a last field."""
    parts = []
    for field in range(first, last + 1):
        if _FIELDS[field] == "second":
            seconds = Decimal(rest).scaleb(-6).normalize()
            parts.append(("0" if rest < 10 * _SECOND else "") + format(seconds, "f"))
        else:
            number, rest = divmod(rest, _UNITS[field])
            parts.append(str(number) if field == 0 else f"{number:02}")
    days = [parts.pop(0)] if first == 0 else []
    return " ".join([*days, *([":".join(parts)] if parts else [])])


Reals = NDArray[np.float64]


def round_outwards(values: pa.Array, *, up: bool) -> Reals:
    """Convert numbers to doubles, null to NaN; others round to the next double above or below.

    >>> large = pa.array([2**53 + 1, None])
    >>> round_outwards(large, up=True) - 2**53, round_outwards(large, up=False) - 2**53
    (array([ 2., nan]), array([ 0., nan]))
    """
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        plain = np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
        if pa.types.is_floating(values.type) or not np.nanmax(np.abs(plain), initial=0) >= _EXACT:
            return plain
    exact = values.to_pylist()
    plain = np.array([np.nan if value is None else float(value) for value in exact])
    for place, value in enumerate(exact):
        if value is not None and (Decimal(plain[place]) < value if up else Decimal(plain[place]) > value):
            plain[place] = np.nextafter(plain[place], np.inf if up else -np.inf)
    return plain
