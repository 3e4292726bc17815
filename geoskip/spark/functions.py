"""A query's own Python functions, called in the driver for single values while it is planned.

The rules of conversion are Spark's for functions that are pickled row by row, where they leave no doubt: a value comes
as the plain Python type of its column, and a result counts only if it is of the declared type's own Python type. All
else is unknown: what Spark would make of it depends on the setting of Arrow for Python functions, and on its version.

Workers hash with a seed of their own (PYTHONHASHSEED=0): a function that hashes, or goes through a set, may give
another result here, and is not called. Nor are two functions called at once: they need not be safe for threads.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.evaluation import Declined
from geoskip.predicates import Literal
from geoskip.spark.catalyst import UNIDENTIFIED, implementation_of
from geoskip.spark.hashing import hashes
from geoskip.spark.reassigned import Constant, constants, reassigned

__all__ = ["called"]

Json = Mapping[str, Any]
_ROW_BY_ROW = (100, 101)
"""Spark's codes of plain functions, pickled and through Arrow."""
_THROUGH_ARROW = 101
_AS_THEY_ARE = frozenset(["string", "boolean"])
"""Types of which Arrow, and pandas behind it, leave every value as it is: a NULL number becomes NaN, NaN becomes NULL,
and whole numbers beside NULL become floats."""
_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EPOCH = dt.date(1970, 1, 1).toordinal()


def called(
    node: Json,
    arguments: Sequence[pa.Array | Literal],
    kinds: Sequence[str],
    settings: Mapping[str, Any],
    thrown: Any,
    deadline: float,
) -> tuple[pa.Array, Any]:
    """The physical values of a call, as the rule wrote it, and for which of them nothing is known.

    ``arguments`` are physical values or one literal for all, of Spark's types ``kinds``; where ``thrown`` is set, the
    function is not called. Raises :class:`geoskip.evaluation.Declined`.
    """
    name = node["name"]
    if node["evalType"] not in _ROW_BY_ROW:
        raise Declined(f"{name} takes whole columns, and is not called for single values")
    if implementation_of(node["python"]).endswith(UNIDENTIFIED):
        raise Declined(f"{name} cannot be told from another version of itself")
    if any(str(child.get("class", "")).endswith(".NamedArgumentExpression") for child in node["children"]):
        raise Declined(f"{name} is called with named arguments")
    function = _function(node["python"])
    if function.hashes:
        raise Declined(f"{name} hashes or goes through a set, which is another in workers")
    if (constant := function.reassigned()) is not None:
        raise Declined(f"{name} reads {constant}, which workers may have with another value than the driver")
    result = node["type"]
    if node["evalType"] == _THROUGH_ARROW and not _AS_THEY_ARE.issuperset([*kinds, result]):
        raise Declined(f"{name} goes through Arrow, where numbers depend on what else is NULL")
    take = _taking(result, name)
    columns = [_column(argument, kind, len(thrown), name) for argument, kind in zip(arguments, kinds, strict=True)]
    found: list[Any] = [None] * len(thrown)
    unknown = np.array(thrown, dtype=bool)
    if not _calling.acquire(timeout=max(0.0, min(_WAIT, deadline - time.monotonic()))):
        raise Declined("another function is being called for another query")
    try:
        for number, row in enumerate(zip(*columns, strict=True)):
            if time.monotonic() > deadline:
                raise Declined(f"after {number:,} calls of {name} the planning budget was spent")
            if unknown[number]:
                continue
            try:
                found[number] = take(function.call(*row))
            except Exception:  # a row for which it raises fails the query, unless Spark never comes to it
                unknown[number] = True
    finally:
        _calling.release()
    return pa.array(found, _arrow(result)), unknown


_WAIT = 0.5
_calling = threading.Lock()


class _Hidden:
    """Bytes that take no part in a cache's key."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True)
class _Function:
    """A function as workers get it, and what of it they may have otherwise than the driver."""

    call: Callable[..., Any]
    hashes: bool
    constants: tuple[Constant, ...] | None

    def reassigned(self) -> str | None:
        """A constant that it reads and that workers may have otherwise, as it is now; None for none."""
        return "more than can be looked through" if self.constants is None else reassigned(self.constants)


def _function(command: str) -> _Function:
    data = base64.b64decode(command)
    return _unpickled(hashlib.sha256(data).digest(), _Hidden(data))


@functools.lru_cache(maxsize=64)
def _unpickled(digest: bytes, command: _Hidden) -> _Function:
    # The bytes are the driver's own: Spark pickled the user's function a moment ago, in this very process.
    try:
        found: Any = pickle.loads(command.data)
    except BaseException as error:
        raise Declined(f"the function cannot be had in the driver: {error}") from None
    function: Callable[..., Any] = found[0] if isinstance(found, tuple) else found
    return _Function(function, bool(sys.flags.hash_randomization) and hashes(function), constants(function))


def _column(argument: pa.Array | Literal, kind: str, length: int, name: str) -> list[Any]:
    """An argument's values as a worker would get them."""
    if kind not in _GIVEN:
        raise Declined(f"{name} takes a {kind}, which is not given to functions here")
    give = _GIVEN[kind]
    if isinstance(argument, Literal):
        value = argument.value
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        return [None if value is None else give(value)] * length
    return [None if value is None else give(value) for value in argument.to_pylist()]


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Declined("some of the strings are not UTF-8") from None


_GIVEN: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_WIDTHS, int),
    "float": float,
    "double": float,
    "boolean": bool,
    "string": _text,
    "date": lambda days: dt.date.fromordinal(_EPOCH + days),
}


def _taking(kind: str, name: str) -> Callable[[Any], Any]:
    """From a result to its physical value; raises where it is of another type than declared."""

    def exactly(wanted: type, physical: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def take(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not wanted:
                raise TypeError(f"{name} returned {type(value).__name__}")
            return physical(value)

        return take

    if kind in _WIDTHS:
        half = 1 << (_WIDTHS[kind] - 1)

        def fitting(value: int) -> int:
            if not -half <= value < half:
                raise OverflowError(name)
            return value

        return exactly(int, fitting)
    match kind:
        case "double":
            return exactly(float, float)
        case "boolean":
            return exactly(bool, int)
        case "string":
            return exactly(str, lambda text: text.encode("utf-8"))
        case "date":
            return exactly(dt.date, lambda day: day.toordinal() - _EPOCH)
    raise Declined(f"{name} returns a {kind}, which is not taken from functions here")


def _arrow(kind: str) -> pa.DataType:
    return pa.binary() if kind == "string" else pa.float64() if kind == "double" else pa.int64()
