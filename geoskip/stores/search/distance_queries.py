"""Keys and queries of distances: for each pivot of MetricDist the *rings* in which a file's rows lie.

The rings of the first pivot are the ranges ``r0``, one more than it has gaps, and so on; they have the margins of the
clauses. The flags are ``points``, if some row has a distance, ``nulls``, if an expression is NULL in some row, and
``partly``, if another expression is not; ``reach`` is the largest coordinate. A file with a row that is no point, or
with too little known, has no keys, and is kept.

By the triangle inequality a query's range of distances becomes one range for each pivot, and a file is kept if for each
pivot some ring meets it. Stored outlines of texts, as for Levenshtein's distance, are compared by geoskip afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from geoskip.clauses import Clause, Files
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.metricdist.clauses import DistanceLeaves, DistanceMeets, HasNullDistance, Pivots
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.metadata import IndexEntry
from geoskip.stores.search.queries import NONE, KeyField, Query, ServerKeys, TranslatedQuery, all_of, any_of

__all__ = ["fields_of", "keys_of", "translate"]

_BOOLEAN = {"type": "boolean"}
_FLAGS = ("points", "nulls", "partly")
_MOST_ORIGINS = 64
"""The most pivots with rings."""


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None for other indexes, and where the pivots are not known here."""
    origins = _origins_of(entry)
    if origins is None:
        return None
    rings = {f"r{number}": {"type": "double_range"} for number in range(min(len(origins.points), _MOST_ORIGINS))}
    return {**dict.fromkeys(_FLAGS, _BOOLEAN), "reach": {"type": "double"}, **rings}


def _origins_of(entry: IndexEntry) -> Pivots | None:
    index = entry.index
    if not (isinstance(index, MetricDist) and index.is_resolved and index.origins):
        return None
    try:
        return index.pivots()
    except InvalidSpecificationError:  # the declared function has changed
        return None


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files."""
    origins = _origins_of(entry)
    if origins is None:
        return None
    table = origins.table(files)
    known = ~table.unclear & np.isfinite(table.reach)
    flags = {name: getattr(table, name).tolist() for name in _FLAGS}
    reach = table.reach.tolist()
    rows: list[dict[str, Any]] = [
        {"reach": reach[at], **{name: found[at] for name, found in flags.items()}} if known[at] else {}
        for at in range(len(files))
    ]
    for number in range(min(len(origins.points), _MOST_ORIGINS)):
        gaps: dict[int, list[tuple[float, float]]] = {}
        for owner, inner, outer in zip(*(ends.tolist() for ends in table.gaps[number]), strict=True):
            gaps.setdefault(owner, []).append((inner, outer))
        low, high = table.low[number].tolist(), table.high[number].tolist()
        for at in np.flatnonzero(known & table.points).tolist():
            rows[at][f"r{number}"] = list(_rings(low[at], high[at], sorted(gaps.get(at, ()))))
    return ServerKeys(rows, whole=bool(known[~table.unclear].all()))


def _rings(low: float, high: float, gaps: list[tuple[float, float]]) -> Any:
    """The parts of a range between its gaps, which are open intervals."""
    for inner, outer in gaps:
        if low <= inner < outer:
            yield {"gte": low, "lte": inner}
            low = outer
    yield {"gte": low, "lte": max(low, high)}


def translate(clause: Clause, field: KeyField) -> TranslatedQuery | None:
    """Translate a clause over distances; None for others."""
    rule = _CLAUSES.get(type(clause))
    if rule is None:
        return None
    query, exact = rule(clause, field)
    return TranslatedQuery(any_of([query, field.is_missing("points")]), exact and field.whole)


def _meets(clause: DistanceMeets, field: KeyField) -> tuple[Query, bool]:
    metric = clause.origins.metric
    near, exact = NONE, True
    if clause.low <= clause.high:
        rings = []
        for number, (low, high) in enumerate(clause.targets()[:_MOST_ORIGINS]):
            if low <= high:
                rings.append(field.compare(f"r{number}", gte=low, lte=high))
        exact = len(rings) == len(clause.origins.points) and not (metric.outlined and clause.high < math.inf)
        near = all_of([field.is_true("points"), *rings])
    found = [near, *_nulls(clause, field)]
    if clause.limit < math.inf:
        far = _least(clause.limit, float(metric.scale(clause.point)))
        found.append(all_of([field.is_true("points"), field.compare("reach", gte=far)]))
    return any_of(found), exact


def _least(limit: float, added: float) -> float:
    """The least double whose sum with another is no less than a limit."""
    found = limit - added
    while found + added >= limit:
        found = math.nextafter(found, -math.inf)
    while found + added < limit:
        found = math.nextafter(found, math.inf)
    return found


def _leaves(clause: DistanceLeaves, field: KeyField) -> tuple[Query, bool]:
    return any_of([field.is_true("points"), *_nulls(clause, field)]), not clause.origins.metric.whole


def _nulls(clause: DistanceMeets | DistanceLeaves, field: KeyField) -> list[Query]:
    return [field.is_true("nulls" if clause.nulls == "all" else "partly")] if clause.nulls else []


def _null(clause: HasNullDistance, field: KeyField) -> tuple[Query, bool]:
    return field.is_true("points" if clause.turned else "nulls"), True


_CLAUSES: dict[type[Clause], Callable[[Any, KeyField], tuple[Query, bool]]] = {
    DistanceMeets: _meets,
    DistanceLeaves: _leaves,
    HasNullDistance: _null,
}
