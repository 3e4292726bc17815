"""Constants of DuckDB: the values of literals, and their types in comparisons with columns."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any

from geoskip.engines.constant_bounds import Constant
from geoskip.types import sql_type

_DOUBLE_TEXT = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|nan|-?inf(inity)?", re.IGNORECASE | re.ASCII)
_DAY_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?")
_ZONED_TEXT = re.compile(rf"({_TIME_TEXT.pattern})([+-]\d{{2}}(?::\d{{2}})?)")
_EPOCH = datetime.datetime(1970, 1, 1)
EXACT_IN = {"float": (1 << 24, 10), "double": (1 << 53, 22)}
"""Digits and power of ten up to which a decimal becomes the nearest float of a type."""


def text_as(kind: str, text: str, *, utc: bool) -> Constant | None:
    """A text as the constant of a type; None where it is not of the usual form.

    >>> text_as("DATE", "1970-01-02", utc=False), text_as("DATE", "2 January", utc=False)
    (Constant(kind='date', value=Fraction(1, 1)), None)
    """
    match kind:
        case "VARCHAR":
            return Constant("text", text)
        case "BOOLEAN" if text in ("t", "f", "true", "false"):
            return Constant("boolean", text.startswith("t"))
        case "DOUBLE" if _DOUBLE_TEXT.fullmatch(text):
            return Constant("float", float(text))
        case "DATE" if _DAY_TEXT.fullmatch(text):
            return _day(text)
        case "TIMESTAMP" if _TIME_TEXT.fullmatch(text) or _DAY_TEXT.fullmatch(text):
            return _moment("time", text)
        case "TIMESTAMP WITH TIME ZONE":
            return zoned_time(text, utc=utc)
        case "BLOB" if text.isascii() and "\\" not in text:
            return Constant("binary", text.encode())
        case "BLOB" if re.fullmatch(r"(\\x[0-9A-Fa-f]{2})+", text):
            return Constant("binary", bytes.fromhex(text.replace("\\x", "")))
    return None


def zoned_time(text: str, *, utc: bool) -> Constant | None:
    """A text as an instant: with an offset, or in a session whose zone is UTC; else None."""
    if found := _ZONED_TEXT.fullmatch(text):
        moment = _moment("zoned time", found[1])
        hours, _, minutes = found[2][1:].partition(":")
        shift = (int(hours) * 60 + int(minutes or 0)) * 60_000_000 * (-1 if found[2][0] == "-" else 1)
        return moment and Constant("zoned time", moment.value - shift)
    return _moment("zoned time", text) if utc and _TIME_TEXT.fullmatch(text) else None


def scale_of(value: Fraction) -> int:
    """The digits behind the point of a decimal."""
    return next(scale for scale in range(77) if (value * 10**scale).denominator == 1)


def is_exact(value: Fraction, kind: str) -> bool:
    """True if a decimal divided by its power of ten is the nearest float of a type."""
    bound, most = EXACT_IN[kind]
    scale = scale_of(value)
    return scale <= most and abs(value) * 10**scale <= bound


def fits(kind: str, value: Fraction) -> bool:
    """True if a column of decimals and a literal have a common type of 38 digits."""
    column = sql_type(kind)
    scale = max(column.scale, scale_of(value))
    whole = max(column.precision - column.scale, len(str(int(abs(value)))))
    return whole + scale <= 38


def _day(text: str) -> Constant | None:
    try:
        return Constant.number("date", (datetime.datetime.fromisoformat(text) - _EPOCH).days)
    except ValueError:
        return None


def _moment(kind: str, text: str) -> Constant | None:
    try:
        since = datetime.datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return Constant.number(kind, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def number_of(part: Any) -> float | None:
    """A constant as DuckDB gives it to a function of doubles; None where that is not certain."""
    match part:
        case Constant("integer", value) if abs(value) <= 1 << 53:
            return float(value)
        case Constant("decimal", value) if is_exact(value, "double"):
            return float(value)
        case Constant("float", value):
            return float(value)
    return None
