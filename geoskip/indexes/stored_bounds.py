"""The bounds of one file's values: their Arrow type, and how they are collected and merged.

Values are physical, as in predicates (days, microseconds, ...), strings as bytes. A bound that is None while there are
values is open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import UnsupportedColumnError
from geoskip.evaluation.values import successor
from geoskip.indexes.base import SourceColumn
from geoskip.types import sql_type

T = TypeVar("T")
PER_SECOND = {"s": 1, "ms": 10**3, "ns": 10**9}
"""The units of timestamps that are not microseconds."""
LONGEST = 32
"""The bytes of a string that a bound keeps, beside those that both bounds of a file begin with."""
_MOST_SHARED = 224
"""The bytes of the latter, at most: files in an order of paths or URLs are told apart by what follows."""

_WAYS_OUT = (
    (r"array|map|struct", "index a field of it, or a function of it such as size({})"),
    (r"string collate", "its order is not that of bytes; use ValueList({0!r}), or index {0} COLLATE UTF8_BINARY"),
    (r"variant", "index a field cast to its type, such as variant_get({}, '$.field', 'int')"),
    (r"interval$|calendarinterval", "calendar intervals have no order"),
    (r"geometry|geography|.*udt", "use GeoBox({})"),
    (r"void|null", "it holds nothing but NULL"),
)


def bound_type(column: SourceColumn, kind: str = "minmax") -> pa.DataType:
    """The Arrow type of a column's bounds; raises UnsupportedColumnError with a way out."""
    of = sql_type(column.type)
    if of.arrow is not None and of.kind != "array":
        return pa.binary() if of.is_text else of.arrow
    name = column.type.strip().lower()
    way = next((way for kind, way in _WAYS_OUT if re.match(kind, name)), "index an expression of an ordered type")
    raise UnsupportedColumnError(
        f"{kind}({column.text}) needs an ordered type, got {column.type}: {way.format(column.text)}"
    )


def bounds(values: pa.Array | pa.ChunkedArray) -> dict[str, Any]:
    """The summary of some values: ``min``, ``max`` (but NaN), ``exact``, ``nulls``, ``nans``, ``rows``."""
    unit = values.type.unit if pa.types.is_timestamp(values.type) else "us"
    values = cast_to_ordered(values)
    kind = values.type
    rows, nulls, nans = len(values), values.null_count, 0
    if pa.types.is_null(kind):
        return _summary(None, None, nulls=rows, rows=rows)
    if pa.types.is_floating(kind):  # pyarrow's min_max drops NaN, and Spark orders it above every number
        nans = pc.sum(pc.is_nan(values)).as_py() or 0
    if rows == nulls + nans:
        return _summary(None, None, nulls=nulls, nans=nans, rows=rows)
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return of_texts(low, high, nulls=nulls, rows=rows)
    if pa.types.is_floating(kind):
        low, high = _outward(low, -0.0), _outward(high, 0.0)
    elif unit != "us":  # widened to whole microseconds
        low, high = low * 10**6 // PER_SECOND[unit], -(-high * 10**6 // PER_SECOND[unit])
    return _summary(low, high, nulls=nulls, nans=nans, rows=rows)


def of_texts(low: bytes, high: bytes, *, nulls: int, rows: int) -> dict[str, Any]:
    """The summary of strings or binary by the least and the greatest value, which are shortened.

    Parameters
    ----------
    low, high : bytes
        The least and the greatest value.
    nulls, rows : int
        How many rows are NULL, and how many there are.
    """
    short, tall = _cut(low, high)
    return _summary(short, tall, exact=(short, tall) == (low, high), nulls=nulls, rows=rows)


def _cut(low: bytes, high: bytes) -> tuple[bytes, bytes | None]:
    """Bounds of bounds: what these begin with both, and up to LONGEST bytes more of each."""
    pairs = enumerate(zip(low[:_MOST_SHARED], high, strict=False))
    shared = next((at for at, (one, other) in pairs if one != other), min(len(low), len(high), _MOST_SHARED))
    return low[: LONGEST + shared], upper_bound(high, LONGEST + shared)


def merge_bounds(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of all parts of a file from theirs."""
    counts = {field: sum(part.get(field, 0) for part in parts) for field in ("nulls", "nans", "rows")}
    holding = [part for part in parts if part["rows"] > part["nulls"] + part.get("nans", 0)]
    lows, highs = ([part[end] for part in holding] for end in ("min", "max"))
    low = min(lows) if lows and None not in lows else None
    high = max(highs) if highs and None not in highs else None
    found = _summary(low, high, exact=all(part.get("exact", True) for part in parts), **counts)
    if isinstance(low, bytes) and isinstance(high, bytes):  # parts may begin alike where the file does not
        cut = _cut(low, high)
        found |= {"min": cut[0], "max": cut[1], "exact": found["exact"] and cut == (low, high)}
    return found


def unite(ranges: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Ranges in order, those that overlap united.

    >>> unite([(5, 6), (0, 2), (1, 1), (2, 3)])
    [(0, 3), (5, 6)]
    """
    found: list[tuple[Any, Any]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def upper_bound(value: bytes, longest: int = LONGEST) -> bytes | None:
    """An upper bound of at most so many bytes for all texts that begin like one; None is unbounded.

    Text is cut between code points and its last one raised, so that the bound is text again.

    >>> upper_bound(b"short"), upper_bound(b"x" * 99) == b"x" * 31 + b"y", upper_bound(bytes([255]) * 99)
    (b'short', True, None)
    """
    if len(value) <= longest:
        return value
    cut = longest
    while cut > longest - 4 and value[cut] & 0xC0 == 0x80:
        cut -= 1
    try:
        return _prefix_successor(value[:cut].decode("utf-8"))
    except UnicodeDecodeError:
        return successor(value[:longest])


def _prefix_successor(text: str) -> bytes | None:
    """The least text above all that begin with this one: its last code point raised."""
    head = text.rstrip("\U0010ffff")
    if not head:
        return None
    following = ord(head[-1]) + 1
    return (head[:-1] + chr(0xE000 if following == 0xD800 else following)).encode("utf-8")


def _summary(
    low: Any, high: Any, *, exact: bool = True, nulls: int = 0, nans: int = 0, rows: int = 0
) -> dict[str, Any]:
    return {"min": low, "max": high, "exact": exact, "nulls": nulls, "nans": nans, "rows": rows}


def cast_to_ordered(values: Any) -> Any:
    """Values in a type that Arrow orders as Spark does; strings as bytes, since they may not be UTF-8."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return cast_to_ordered(values.cast(kind.value_type))
    if pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.large_binary())
    if kind in (_STRING_VIEW, _BINARY_VIEW):
        return values.cast(pa.binary_view()).cast(pa.large_binary())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    return values


_STRING_VIEW = getattr(pa, "string_view", pa.string)()
_BINARY_VIEW = getattr(pa, "binary_view", pa.binary)()


def _outward(bound: float, zero: float) -> float:
    """A zero bound as -0.0 below and 0.0 above: min_max gives either, and a function may show the sign."""
    return zero if bound == 0 else bound


_known: ContextVar[dict[tuple[int, Hashable], tuple[pa.Array, Any]] | None] = ContextVar("known", default=None)


@contextmanager
def sharing_results() -> Iterator[None]:
    """Open a block in which results are kept, with the arrays they were computed of."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def share(array: pa.Array, what: Hashable, compute: Callable[[], T]) -> T:
    """Return the result of ``compute``, or the one kept of the very same array under this name; read only.

    >>> values, counted = pa.array([1, 2]), []
    >>> with sharing_results():
    ...     [share(values, "length", lambda: counted.append(1) or len(values)) for _ in range(3)], counted
    ([2, 2, 2], [1])
    """
    known = _known.get()
    if known is None:
        return compute()
    key = (id(array), what)  # an id of no other array, since this one is kept
    if key not in known:
        known[key] = (array, compute())
    result: T = known[key][1]
    return result


def is_shared(array: pa.Array, what: Hashable) -> bool:
    """True if a result of the very same array is kept under this name."""
    known = _known.get()
    return known is not None and (id(array), what) in known


def distinct(array: pa.Array) -> pa.Array:
    """Return the distinct values without NULL; -0.0 and 0.0 are two."""
    return share(array, "distinct", lambda: _distinct(array))


def _distinct(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
    elif pa.types.is_float16(kind) or str(kind).endswith("_view"):  # types of which Arrow finds no distinct values
        array = cast_to_ordered(array)
    return array.drop_null().unique()


class CachedSummary(dict[str, Any]):
    """A summary with intermediate results, which it loses when it is complete or leaves its process."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
