"""Shared results for the indexes of a build, which receive the very same arrays.

Within :func:`sharing`, results that :func:`share` computed of an array for one index are reused for the others: the
distinct values, their hashes, a filter of these. An index only calls functions such as :func:`distinct`; outside of
the block each index computes for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa

from geoskip.indexes.stored_bounds import ordered

T = TypeVar("T")
_known: ContextVar[dict[tuple[int, Hashable], tuple[pa.Array, Any]] | None] = ContextVar("known", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Open a block in which results are kept, with the arrays they were computed of."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def share(array: pa.Array, what: Hashable, compute: Callable[[], T]) -> T:
    """Return the result of ``compute``, or the one kept of the very same array under this name; read only.

    >>> values, counted = pa.array([1, 2]), []
    >>> with sharing():
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
        array = ordered(array)
    return array.drop_null().unique()


class CachedSummary(dict[str, Any]):
    """A summary with intermediate results, which it loses when it is complete or leaves its process."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
