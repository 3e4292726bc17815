"""The bounds of one file's values: their Arrow type, and how they are collected and merged.

Values are physical, as in predicates (days, microseconds, ...), strings as bytes. If there are values, None means
unbounded.
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
"""The units of timestamps other than microseconds."""
LONGEST = 32
"""The bytes of a string that a bound keeps after the common prefix of both bounds of a file."""
_MOST_SHARED = 224
"""The most bytes of the common prefix: files sorted by paths or URLs differ only after a long prefix."""

_WAYS_OUT = (
    (r"struct", "index a field of it"),
    (r"array|map", "index an element of it, or a function of it such as size({})"),
    (r"string collate", "its order is not that of bytes; use ValueList({0!r}), or index {0} COLLATE UTF8_BINARY"),
    (r"variant", "index a field cast to its type, such as variant_get({}, '$.field', 'int')"),
    (r"interval$|calendarinterval", "calendar intervals have no order"),
    (r"geometry|geography|.*udt", "use GeoBox({})"),
    (r"time\(", "index time_to_micros({}), and use it in conditions"),
    (r"void|null", "it holds nothing but NULL"),
)


def bound_type(column: SourceColumn, kind: str = "minmax") -> pa.DataType:
    """Return the Arrow type of a column's bounds; raises UnsupportedColumnError with an alternative."""
    of = sql_type(column.type)
    if of.arrow is not None and of.kind != "array":
        return pa.binary() if of.is_text else of.arrow
    name = column.type.strip().lower()
    way = next((way for kind, way in _WAYS_OUT if re.match(kind, name)), "index an expression of an ordered type")
    raise UnsupportedColumnError(
        f"{kind}({column.text}) needs an ordered type, got {column.type}: {way.format(column.text)}"
    )


def bounds(values: pa.Array | pa.ChunkedArray) -> dict[str, Any]:
    """Summarise values: ``min``, ``max`` (without NaN), ``exact``, ``nulls``, ``nans``, ``rows``."""
    unit = values.type.unit if pa.types.is_timestamp(values.type) else "us"
    values = cast_to_ordered(values)
    kind = values.type
    rows, nulls, nans = len(values), values.null_count, 0
    if pa.types.is_null(kind):
        return _summary(None, None, nulls=rows, rows=rows)
    if pa.types.is_floating(kind):  # pyarrow's min_max ignores NaN; Spark orders it above every number
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
    """Return the summary of strings or binary from the least and the greatest value, truncated.

    Parameters
    ----------
    low, high : bytes
        The least and the greatest value.
    nulls, rows : int
        The number of NULL rows, and of all rows.
    """
    short, tall = _cut(low, high)
    return _summary(short, tall, exact=(short, tall) == (low, high), nulls=nulls, rows=rows)


def _cut(low: bytes, high: bytes) -> tuple[bytes, bytes | None]:
    """Truncate bounds to their common prefix and up to ``LONGEST`` bytes more of each."""
    pairs = enumerate(zip(low[:_MOST_SHARED], high, strict=False))
    shared = next((at for at, (one, other) in pairs if one != other), min(len(low), len(high), _MOST_SHARED))
    return low[: LONGEST + shared], upper_bound(high, LONGEST + shared)


def merge_bounds(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of a file, given those of its parts."""
    counts = {field: sum(part.get(field, 0) for part in parts) for field in ("nulls", "nans", "rows")}
    holding = [part for part in parts if part["rows"] > part["nulls"] + part.get("nans", 0)]
    lows, highs = ([part[end] for part in holding] for end in ("min", "max"))
    low = min(lows) if lows and None not in lows else None
    high = max(highs) if highs and None not in highs else None
    found = _summary(low, high, exact=all(part.get("exact", True) for part in parts), **counts)
    if isinstance(low, bytes) and isinstance(high, bytes):  # a part may have a longer common prefix than the file
        cut = _cut(low, high)
        found |= {"min": cut[0], "max": cut[1], "exact": found["exact"] and cut == (low, high)}
    return found


def unite(ranges: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Sort ranges and unite those that overlap.

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
    """Return an upper bound of a text, truncated to about ``longest`` bytes; None is unbounded.

    A longer text is cut between code points and the last code point incremented, so that the bound is valid text.

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
    """Return the least text above all texts with this prefix: the last code point is incremented."""
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
    """Cast values to a type that Arrow orders as Spark does; strings to bytes, as they may not be UTF-8."""
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
    """Return a zero bound with the given sign: min_max returns either zero, and functions may differ."""
    return zero if bound == 0 else bound


_known: ContextVar[dict[tuple[int, Hashable], tuple[pa.Array, Any]] | None] = ContextVar("known", default=None)


@contextmanager
def sharing_results() -> Iterator[None]:
    """Open a block in which :func:`share` caches results by array."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def share(array: pa.Array, what: Hashable, compute: Callable[[], T]) -> T:
    """Return the result of ``compute``, cached for the same array object and name; read only.

    >>> values, counted = pa.array([1, 2]), []
    >>> with sharing_results():
    ...     [share(values, "length", lambda: counted.append(1) or len(values)) for _ in range(3)], counted
    ([2, 2, 2], [1])
    """
    known = _known.get()
    if known is None:
        return compute()
    key = (id(array), what)  # the cache holds the array, so its id is not reused
    if key not in known:
        known[key] = (array, compute())
    result: T = known[key][1]
    return result


def is_shared(array: pa.Array, what: Hashable) -> bool:
    """True if a result is cached for the same array object and name."""
    known = _known.get()
    return known is not None and (id(array), what) in known


def distinct(array: pa.Array) -> pa.Array:
    """Return the distinct values without NULL; -0.0 and 0.0 are different."""
    return share(array, "distinct", lambda: _distinct(array))


def _distinct(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
    elif pa.types.is_float16(kind) or str(kind).endswith("_view"):  # Arrow's unique does not support these
        array = cast_to_ordered(array)
    return array.drop_null().unique()


class CachedSummary(dict[str, Any]):
    """A summary with intermediate results, which are dropped when it is complete or pickled."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
