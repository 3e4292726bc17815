"""What Spark makes of what a Python function returns (SEMANTICS, section 6): a value of the declared type, or NULL.

As row by row without Arrow, Spark's default: declared ``int``, a function that returns ``'5'``, ``5.0`` or ``True``
gives NULL; declared ``string``, whatever has a text is one.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking.strategies import arrow_type
from geoskip.types import sql_type

__all__ = ["FunctionResults", "of_columns", "of_rows"]

_EXACT: dict[str, tuple[type, ...]] = {
    "boolean": (bool,), "float": (float,), "double": (float,), "binary": (bytes, bytearray), "date": (dt.date,),
    "timestamp_ntz": (dt.datetime,), "timestamp": (dt.datetime,),
}  # fmt: skip


class FunctionResults:
    """The values of a function for some rows; where ``thrown``, it raised, and a query that meets the row fails."""

    def __init__(self, values: pa.Array, thrown: Any, notes: Sequence[str] = ()) -> None:
        self.values = values
        self.thrown = thrown
        self.notes = tuple(notes)


def of_rows(function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], kind: str) -> FunctionResults:
    """What a function becomes for each row, declared to return ``kind``."""
    found: list[Any] = []
    thrown = np.zeros(len(rows), dtype=bool)
    notes: dict[str, None] = {}
    for number, row in enumerate(rows):
        try:
            value = function(*row)
        except Exception:
            thrown[number] = True
            found.append(None)
            continue
        taken = _taken(value, kind)
        if taken is None and value is not None:
            what = type(value).__name__
            notes[f"it returns {_article(what)} where {kind} is declared, of which Spark makes NULL"] = None
        found.append(taken)
    try:
        values = pa.array(found, arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        values, lost = _one_by_one(found, kind)
        thrown |= lost
    return FunctionResults(values, thrown, tuple(notes))


def of_columns(function: Callable[..., Any], columns: Sequence[pa.Array], kind: str) -> FunctionResults:
    """The same for a function of whole columns, as pandas keeps them; one that raises does so for every row."""
    length = len(columns[0])
    nothing = pa.nulls(length, arrow_type(kind))
    try:
        found = function(*(column.to_pandas(date_as_object=True) for column in columns))
        values = pa.Array.from_pandas(found, type=arrow_type(kind))
    except Exception as error:
        note = f"it raises {type(error).__name__} for some of the rows tried: {error}"
        return FunctionResults(nothing, np.ones(length, dtype=bool), (note,))
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if len(values) != length:
        return FunctionResults(nothing, np.ones(length, dtype=bool), (f"it returns {len(values)} values for {length}",))
    return FunctionResults(values, np.zeros(length, dtype=bool))


def _taken(value: Any, kind: str) -> Any:
    """A result as Spark takes it; None where it makes NULL of it."""
    if value is None:
        return None
    if sql_type(kind).is_integral:
        if type(value) is not int:
            return None
        half = sql_type(kind).values.stop
        fits = -(2**63) <= value < 2**63
        return (value + half) % (2 * half) - half if fits else None  # a longer one is cut
    if kind == "string":
        if isinstance(value, str):
            return value
        return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else None
    if sql_type(kind).kind == "decimal":
        return value if isinstance(value, decimal.Decimal) else None
    if sql_type(kind).kind == "array":
        return list(value) if isinstance(value, list | tuple) else None
    return value if type(value) in _EXACT.get(kind, ()) else None


def _one_by_one(found: Sequence[Any], kind: str) -> tuple[pa.Array, Any]:
    thrown = np.zeros(len(found), dtype=bool)
    kept: list[Any] = []
    for number, value in enumerate(found):
        try:
            kept.append(pa.scalar(value, arrow_type(kind)).as_py())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            kept.append(None)
            thrown[number] = True
    return pa.array(kept, arrow_type(kind)), thrown


def _article(word: str) -> str:
    return ("an " if word[:1] in "aeiou" else "a ") + word
