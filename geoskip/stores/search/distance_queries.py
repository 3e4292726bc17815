"""Keys and queries of distances: for each pivot of MetricDist the *rings* in which a file's rows lie.

The keys are the columns of :class:`~geoskip.indexes.metricdist.summaries.DistanceTable`. The rings of the first pivot
are the ranges ``r0``, one more than it has gaps, and so on; they have the margins of the clauses. A file with a row
that is no point, or with too little known, has no keys, and is kept. Stored outlines of texts, as for Levenshtein's
distance, and the rings of further pivots are compared by geoskip afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from geoskip.clauses import Clause, Files
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.metricdist.clauses import DistanceClause
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.metricdist.summaries import DistanceTable, Pivots
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import KeyField, ServerKeys, UnitKeys

_BOOLEAN = {"type": "boolean"}
_FLAGS = ("points", "nulls", "partly")
_MOST_ORIGINS = 64
"""The most pivots with rings."""


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None for other indexes, and where the pivots are not known here."""
    origins = _origins_of(entry)
    if origins is None:
        return None
    rings = {f"r{number}": {"type": "double_range"} for number in range(_rings_of(origins))}
    return {**dict.fromkeys(_FLAGS, _BOOLEAN), "reach": {"type": "double"}, **rings}


def _origins_of(entry: IndexEntry) -> Pivots | None:
    index = entry.index
    if not (isinstance(index, MetricDist) and index.is_resolved and index.origins):
        return None
    try:
        return index.pivots()
    except InvalidSpecificationError:  # the declared function has changed
        return None


def _rings_of(origins: Pivots) -> int:
    return min(len(origins.points), _MOST_ORIGINS)


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files."""
    origins = _origins_of(entry)
    if origins is None:
        return None
    table = DistanceTable(origins, files).distances
    known = ~table.unclear & np.isfinite(table.reach)
    flags = {name: getattr(table, name).tolist() for name in _FLAGS}
    reach = table.reach.tolist()
    rows: list[dict[str, Any]] = [
        {"reach": reach[at], **{name: found[at] for name, found in flags.items()}} if known[at] else {}
        for at in range(len(files))
    ]
    for number in range(_rings_of(origins)):
        gaps: dict[int, list[tuple[float, float]]] = {}
        for owner, inner, outer in zip(*(ends.tolist() for ends in table.gaps[number]), strict=True):
            gaps.setdefault(owner, []).append((inner, outer))
        low, high = table.low[number].tolist(), table.high[number].tolist()
        for at in np.flatnonzero(known & table.points).tolist():
            rows[at][f"r{number}"] = list(_between_gaps(low[at], high[at], sorted(gaps.get(at, ()))))
    return ServerKeys(rows, bool(known[~table.unclear].all()) and len(origins.points) <= _MOST_ORIGINS)


def _between_gaps(low: float, high: float, gaps: list[tuple[float, float]]) -> Any:
    """The parts of a range between its gaps, which are open intervals."""
    for inner, outer in gaps:
        if low <= inner < outer:
            yield {"gte": low, "lte": inner}
            low = outer
    yield {"gte": low, "lte": max(low, high)}


def units_of(clause: Clause, field: KeyField) -> UnitKeys | None:
    """The keys that a clause over distances compares; None for others."""
    if not isinstance(clause, DistanceClause):
        return None
    return UnitKeys(field, DistanceTable(clause.origins, rings=_rings_of(clause.origins)), "points")
