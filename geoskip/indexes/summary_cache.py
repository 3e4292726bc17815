"""What several indexes want to know of the same values, found out once for all of them.

The indexes of a build get the very same arrays of a file. Within :func:`sharing` what :func:`once` computed of an array
for one of them is there for the others: the distinct values, their hashes, a filter of these. An index asks by calling
functions such as :func:`distinct`, and nothing else changes for it; outside of the block each computes for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa

from geoskip.indexes.stored_bounds import ordered

__all__ = ["CachedSummary", "distinct", "is_known", "once", "sharing"]

T = TypeVar("T")
_known: ContextVar[dict[tuple[int, Hashable], tuple[pa.Array, Any]] | None] = ContextVar("known", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """A block in which what is found out of an array is kept, and the array with it."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(array: pa.Array, what: Hashable, compute: Callable[[], T]) -> T:
    """What ``compute`` returns, or returned before of the very same array under this name; nobody may change it.

    >>> values, counted = pa.array([1, 2]), []
    >>> with sharing():
    ...     [once(values, "length", lambda: counted.append(1) or len(values)) for _ in range(3)], counted
    ([2, 2, 2], [1])
    """
    known = _known.get()
    if known is None:
        return compute()
    key = (id(array), what)  # which is no other array's, since it is kept
    if key not in known:
        known[key] = (array, compute())
    found: T = known[key][1]
    return found


def is_known(array: pa.Array, what: Hashable) -> bool:
    """Was this found out of the very same array already?"""
    known = _known.get()
    return known is not None and (id(array), what) in known


def distinct(array: pa.Array) -> pa.Array:
    """The distinct values but NULL; -0.0 and 0.0 are two."""
    return once(array, "distinct", lambda: _distinct(array))


def _distinct(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
    elif pa.types.is_float16(kind) or str(kind).endswith("_view"):  # of which Arrow finds no distinct values
        array = ordered(array)
    return array.drop_null().unique()


class CachedSummary(dict[str, Any]):
    """A summary that remembers what it was made of, until it is that of a whole file or leaves its process."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
