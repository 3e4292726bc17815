"""Segments on the server: those of GapList, each an object of its own with the keys that MinMax's bounds have.

``units`` are the file's segments and, as they are compared here, one more each for NULL and NaN. They are *nested*
objects, so that ``x BETWEEN 4 AND 6`` asks for one segment that meets both ends. A file with very many of them has no
keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.clauses import Clause, Files
from geoskip.indexes.gaplist import SegmentPasses, segments_of
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import KeyField, Query, ServerKeys, TranslatedQuery, all_of, any_of, within
from geoskip.stores.search.range_queries import RangeKeys, keys_of_bounds, types_of
from geoskip.stores.search.range_queries import translated as translated_bounds

__all__ = ["SegmentCondition", "fields_of", "keys_of", "of_segments"]

_MOST = 64
"""Units of a file that the server is given."""


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no segments."""
    names = {field.name for field in entry.arrow}
    types = types_of(_bound_of(entry)) if names >= {"segments", "nulls", "rows"} else None
    if types is None:
        return None
    return {"there": {"type": "boolean"}, "units": {"type": "nested", "dynamic": False, "properties": types}}


def _bound_of(entry: IndexEntry) -> pa.DataType:
    return entry.arrow.field("segments").type.value_type.field("low").type


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None where decimals are too long for them."""
    segments = segments_of(files, entry.name)
    found = keys_of_bounds(segments, entry.name, _bound_of(entry))
    if found is None:
        return None
    counts = np.bincount(segments.owner, minlength=len(files))
    rows: list[dict[str, Any]] = [{"there": True, "units": []} if count <= _MOST else {} for count in counts.tolist()]
    for at, unit in zip(segments.owner.tolist(), found, strict=True):
        if rows[at]:
            rows[at]["units"].append(unit)
    return ServerKeys(rows, whole=bool((counts <= _MOST).all()))


@dataclass(frozen=True)
class SegmentCondition:
    """What a segment must match."""

    field: KeyField
    query: Query
    exact: bool

    def both(self, other: SegmentCondition) -> SegmentCondition:
        """What matches both."""
        return SegmentCondition(self.field, all_of([self.query, other.query]), self.exact and other.exact)

    def either(self, other: SegmentCondition) -> SegmentCondition:
        """What matches one of them."""
        return SegmentCondition(self.field, any_of([self.query, other.query]), self.exact and other.exact)

    def translated(self) -> TranslatedQuery:
        """The query for files that have such a segment."""
        path = f"{self.field.path}.units"
        found = any_of([within(path, self.query), self.field.is_missing("there")])
        return TranslatedQuery(found, self.exact and self.field.whole)


def of_segments(clause: SegmentPasses, field: KeyField, translate: Any) -> SegmentCondition | None:
    """What MinMax's clause asks of a segment; ``translate`` takes apart those that are merged."""
    bounds = RangeKeys(f"{field.path}.units", field.entry, bound=_bound_of(field.entry))

    def leaf(inner: Clause) -> TranslatedQuery | None:
        return translated_bounds(inner, bounds)

    found = translate(clause.inner, leaf)
    return None if found is None else SegmentCondition(field, found.query, found.exact)
