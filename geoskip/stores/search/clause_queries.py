"""Translate clauses into queries of a search server, over the keys of summaries.

**Keys** have the same order on the server as values in Spark. Each sort of summary defines the fields of its keys,
computes the keys from the unit tables that clauses compare when geoskip evaluates them, and defines a table without
units (:class:`UnitKeys <geoskip.stores.search.queries.UnitKeys>`). A user's index has keys if its summaries have the
members of one of geoskip's indexes. A document without an index's keys is kept by every clause over the index.

*Bounds* (MinMax and other indexes with ``min``, ``max``, ``nulls`` and ``rows``). A server's doubles have no NaN, its
strings are not ordered by bytes, and it has no decimals. So documents have the columns of
:class:`~geoskip.indexes.range_clauses.BoundTable`:

* ``low`` and ``high``: for types of fixed width the order-preserving 64-bit keys of :mod:`geoskip.bounds.sort_keys`,
  for strings and binary the bytes as hexadecimal digits, which have the same order as the bytes; a missing bound of
  strings is open;
* ``present``, if the file may have a value; ``values``, if some value is not NULL; ``nulls``, if some value is NULL;
* for floats ``nan`` and ``numbers``, if it may have NaN and other values; for strings ``exact``, if neither bound was
  shortened.

*Segments* (GapList), and one more each for NULL and NaN, are *nested* objects with the keys of bounds, so that
``x BETWEEN 4 AND 6`` becomes a query for one segment that satisfies both comparisons.

*Boxes* (GeoBox) are nested objects too: AND becomes a query for one box that satisfies all conditions. In addition to
``boxes`` (doubles as stored; ``point`` if the file has only points) a document has a flag for each other sort of
:mod:`units <geoskip.indexes.geobox.units>`. A server compares coordinates, not polygons: a clause about a shape becomes
a query for boxes that intersect the shape's envelope, expanded by the distance if there is one, and geoskip then
evaluates the clause on the boxes of those files. Clauses that only skip files completely inside a shape or near a point
(NOT Intersects, a distance above a number) keep nearly every file, and are not translated. The margins against rounding
are computed from the snapshot's largest coordinate, which is stored with the keys.

*Distances* (MetricDist): for each pivot the *rings* in which a file's rows lie, the columns of
:class:`~geoskip.indexes.metricdist.summaries.DistanceTable`. The field ``r0`` has the rings of the first pivot as
ranges, one more than the pivot has gaps, ``r1`` those of the second, and so on, widened against rounding as for
clauses. A file with a row that is not a point, or with insufficient metadata, has no keys. Stored outlines of texts, as
for the Levenshtein distance, and the rings of further pivots are compared by geoskip afterwards.

*Lists of values*: :mod:`~geoskip.stores.search.queries`.

**Clauses** state a condition on the columns of a unit table (:mod:`geoskip.conditions`), which becomes the query. AND
and OR become those of the server. For clauses over the *units* of one index (values, segments, boxes) the conditions on
a unit are merged first, as when geoskip evaluates them. No clause is ever negated. A clause that cannot be translated,
such as one on a computed expression, is left out of an AND, and makes an OR untranslatable: the server then keeps more
files, and geoskip evaluates the clause on these
(:attr:`TranslatedQuery.exact <geoskip.stores.search.queries.TranslatedQuery>`).

Bloom filters have no keys. A clause tests some bits of a long string, which servers' queries cannot do: with the
numbers of the set bits as terms (half of a filter's bits), a filter would take eight to sixteen times its bytes, and
more in the server's index; scripts could test bits, but servers rarely allow them. So the server only sends the filters
of the files that the other clauses of a query keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds import index_leaf
from geoskip.bounds.interval import ByteStrings, Interval, kind_of
from geoskip.clauses import (
    KEEP_ALL,
    KEEP_NONE,
    Clause,
    Files,
    UnitClause,
    alternatives_of,
    conjuncts_of,
    leaves_of,
    size_of,
)
from geoskip.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    FileClause,
    Negation,
    all_hold,
    any_holds,
    condition_of,
    is_exact,
    necessary,
)
from geoskip.errors import InvalidSpecificationError
from geoskip.geometry import Envelope
from geoskip.indexes.gaplist import SegmentTable, segments_of
from geoskip.indexes.geobox.units import ENDS, BoxFacts, BoxUnits, UnitSort, units_of
from geoskip.indexes.metricdist.clauses import DistanceClause
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.metricdist.summaries import DistanceTable, Pivots
from geoskip.indexes.range_clauses import BoundTable
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.stores.search import queries
from geoskip.stores.search.queries import KeyField, Query, ServerKeys, TranslatedQuery, UnitKeys, no_files

Fields = dict[str, Any]
Row = dict[str, Any]
_BOOLEAN, _DOUBLE = {"type": "boolean"}, {"type": "double"}


# --- bounds and segments ----------------------------------------------------------------------------------------------

_OF_BOUNDS = frozenset(["min", "max", "nulls", "rows"])


def range_fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of the keys; None if the summaries have no bounds."""
    if not {field.name for field in entry.arrow} >= _OF_BOUNDS:
        return None
    bound = entry.arrow.field("min").type
    return types_of(bound) if bound == entry.arrow.field("max").type else None


def types_of(bound: pa.DataType) -> Fields | None:
    """The server's types of the keys of bounds of this type; None for types without keys."""
    flags: tuple[str, ...]
    if pa.types.is_binary(bound) or pa.types.is_large_binary(bound):
        types, flags = {"type": "keyword"}, ("present", "values", "nulls", "exact")
    elif pa.types.is_floating(bound):
        types, flags = {"type": "long"}, ("present", "values", "nulls", "nan", "numbers")
    elif pa.types.is_decimal(bound) or kind_of(bound) is not None:
        types, flags = {"type": "long"}, ("present", "values", "nulls")
    else:
        return None
    return {"low": types, "high": types, **dict.fromkeys(flags, _BOOLEAN)}


def range_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None if decimals are too long."""
    found = keys_of_bounds(files, entry.name, entry.arrow.field("min").type)
    return None if found is None else ServerKeys(found)


def keys_of_bounds(files: Files, name: str, bound: pa.DataType) -> list[Row] | None:
    """The keys of bounds of this type, one entry for each file."""
    table, names = BoundTable(files, index_leaf(name)), types_of(bound)
    interval = table.interval
    scale = bound.scale if pa.types.is_decimal(bound) else 0
    if interval is None or names is None or (isinstance(interval, Interval) and interval.scale != scale):
        return None
    columns = [_cells_of(table.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cells_of(column: Any) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return [None if bound is None else bound.hex() for bound in column.to_pylist()]


def range_units_of(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys of bounds, with the document as unit; None for clauses over other columns."""
    files = no_files(field.entry)
    if not isinstance(clause.units(files), BoundTable):
        return None
    table = BoundTable(files, index_leaf(field.entry.name))
    textual = isinstance(table.interval, ByteStrings)
    return UnitKeys(field, table, "values", nullable=("low", "high") if textual else ())


_MOST_SEGMENTS = 64
"""Maximum number of units of a file with keys."""


def segment_fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of the keys; None if the summaries have no segments."""
    names = {field.name for field in entry.arrow}
    types = types_of(_bound_of(entry)) if names >= {"segments", "nulls", "rows"} else None
    if types is None:
        return None
    return {"there": {"type": "boolean"}, "units": {"type": "nested", "dynamic": False, "properties": types}}


def _bound_of(entry: IndexEntry) -> pa.DataType:
    return entry.arrow.field("segments").type.value_type.field("low").type


def segment_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None if decimals are too long."""
    segments = segments_of(files, entry.name)
    found = keys_of_bounds(segments, entry.name, _bound_of(entry))
    if found is None:
        return None
    counts = np.bincount(segments.owner, minlength=len(files))
    rows: list[Row] = [{"there": True, "units": []} if count <= _MOST_SEGMENTS else {} for count in counts.tolist()]
    for at, unit in zip(segments.owner.tolist(), found, strict=True):
        if rows[at]:
            rows[at]["units"].append(unit)
    return ServerKeys(rows, whole=bool((counts <= _MOST_SEGMENTS).all()))


def segment_units_of(clause: FileClause, field: KeyField) -> UnitKeys | None:
    """The keys of segments, which are nested objects; None for clauses over other columns."""
    table = clause.units(no_files(field.entry))
    return UnitKeys(field, table, "there", nested="units") if isinstance(table, SegmentTable) else None


# --- boxes ------------------------------------------------------------------------------------------------------------

_SORT_FLAGS: dict[UnitSort, str] = {sort: sort.name.lower() for sort in UnitSort if sort != UnitSort.BOX}


def box_fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of the keys; None if the summaries have no boxes."""
    if not {field.name for field in entry.arrow} >= {"boxes", "rows", "boxless", "nonfinite"}:
        return None
    box = {**dict.fromkeys(ENDS, _DOUBLE), "point": _BOOLEAN}
    return {
        "boxes": {"type": "nested", "dynamic": False, "properties": box},
        **dict.fromkeys(_SORT_FLAGS.values(), _BOOLEAN),
    }


def box_keys_of(files: Files, entry: IndexEntry) -> ServerKeys:
    """The keys of all files."""
    units = units_of(files, entry.name, tuple(field.name for field in entry.arrow if field.name != "boxes"))
    none = dict.fromkeys(_SORT_FLAGS.values(), False)
    unknown = set(units.unknown_file.tolist())
    rows: list[Row] = [{} if at in unknown else {"boxes": [], **none} for at in range(len(files))]
    for at, box in zip(units.box_file.tolist(), _boxes(units), strict=True):
        rows[at]["boxes"].append(box)
    lacking = slice(len(units.box_file), None)
    for at, sort in zip(units.unit_file[lacking].tolist(), units.column("sort")[lacking].tolist(), strict=True):
        rows[at][_SORT_FLAGS[UnitSort(sort)]] = True
    return ServerKeys(rows, largest=units.scale)


def _boxes(units: BoxUnits) -> Iterable[Row]:
    ends = [(getattr(units.boxes, end) + 0.0).tolist() for end in ENDS]  # -0.0 is less than 0.0 on a server
    points = units.only_points(np.arange(len(units.boxes))).tolist()
    return (dict(zip((*ENDS, "point"), box, strict=True)) for box in zip(*ends, points, strict=True))


def box_units_of(clause: Clause, field: KeyField) -> UnitKeys:
    """The keys of boxes, which all lie within the largest coordinate."""
    extent = Envelope(-field.largest, -field.largest, field.largest, field.largest)
    return BoxKeys(field, BoxFacts(extent), known="wild", nested="boxes")


class BoxKeys(UnitKeys):
    """The keys of units: nested objects for boxes, and flags for the other sorts."""

    def translate(self, condition: Condition) -> TranslatedQuery | None:
        """The query for documents with a unit that satisfies a condition; None if only code excludes boxes."""
        vague = not is_exact(condition) and _of_sort(necessary(condition), UnitSort.BOX) == ALWAYS
        return None if vague else super().translate(condition)

    def query_of(self, condition: Condition) -> Query:
        weaker = necessary(condition)
        found = [super().query_of(_of_sort(weaker, UnitSort.BOX))]
        found += [self.field.is_true(flag) for sort, flag in _SORT_FLAGS.items() if _of_sort(weaker, sort) == ALWAYS]
        return queries.any_of(found)


def _of_sort(condition: Condition, sort: UnitSort) -> Condition:
    """The condition, without code, for the units of one sort; only boxes have other columns."""
    match condition:
        case Compare("sort", _, value):
            return ALWAYS if value == sort else NEVER
        case AllOf(parts):
            return all_hold(_of_sort(part, sort) for part in parts)
        case AnyOf(parts):
            joined = any_holds(_of_sort(part, sort) for part in parts)
            return ALWAYS if isinstance(joined, AnyOf) and _has_complement(joined.parts) else joined
        case Negation(part):
            found = _of_sort(part, sort)
            return NEVER if found == ALWAYS else ALWAYS if found == NEVER else Negation(found)
    return condition if sort is UnitSort.BOX else NEVER


def _has_complement(parts: tuple[Condition, ...]) -> bool:
    """True if one alternative is the negation of others, such as outside of windows OR inside one of them."""
    negated = [part.part for part in parts if isinstance(part, Negation)]
    return any({*(one.parts if isinstance(one, AnyOf) else (one,))} <= {*parts} for one in negated)


# --- distances --------------------------------------------------------------------------------------------------------

_DISTANCE_FLAGS = ("points", "nulls", "partly")
_MOST_PIVOTS = 64
"""Maximum number of pivots with rings."""


def ring_fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of the keys; None for other indexes, and if the pivots are not available."""
    origins = _pivots_of(entry)
    if origins is None:
        return None
    rings = {f"r{number}": {"type": "double_range"} for number in range(_rings_of(origins))}
    return {**dict.fromkeys(_DISTANCE_FLAGS, _BOOLEAN), "reach": _DOUBLE, **rings}


def _pivots_of(entry: IndexEntry) -> Pivots | None:
    index = entry.index
    if not (isinstance(index, MetricDist) and index.is_resolved and index.origins):
        return None
    try:
        return index.pivots()
    except InvalidSpecificationError:  # the declared function has changed
        return None


def _rings_of(origins: Pivots) -> int:
    return min(len(origins.points), _MOST_PIVOTS)


def ring_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files."""
    origins = _pivots_of(entry)
    if origins is None:
        return None
    table = DistanceTable(origins, files).distances
    known = ~table.unclear & np.isfinite(table.reach)
    flags = {name: getattr(table, name).tolist() for name in _DISTANCE_FLAGS}
    reach = table.reach.tolist()
    rows: list[Row] = [
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
    return ServerKeys(rows, bool(known[~table.unclear].all()) and len(origins.points) <= _MOST_PIVOTS)


def _between_gaps(low: float, high: float, gaps: list[tuple[float, float]]) -> Any:
    """The parts of a range between its gaps, which are open intervals."""
    for inner, outer in gaps:
        if low <= inner < outer:
            yield {"gte": low, "lte": inner}
            low = outer
    yield {"gte": low, "lte": max(low, high)}


def ring_units_of(clause: Clause, field: KeyField) -> UnitKeys | None:
    """The keys that a clause over distances compares; None for other clauses."""
    if not isinstance(clause, DistanceClause):
        return None
    return UnitKeys(field, DistanceTable(clause.origins, rings=_rings_of(clause.origins)), "points")


# --- clauses ----------------------------------------------------------------------------------------------------------

_MOST_QUERIES = 800
"""Maximum number of simple queries in one query; servers refuse more than 1,024."""
_DEEPEST = 8


def translate(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause into a query that matches at least the files that it keeps, or None.

    ``fields`` has the keys of indexes by name.
    """
    found = _translate_clause(clause, fields, _DEEPEST)
    return None if found is None or found.size > _MOST_QUERIES else found


def _translate_clause(clause: Clause, fields: Mapping[str, KeyField], depth: int) -> TranslatedQuery | None:
    if clause is KEEP_ALL or clause is KEEP_NONE:
        return TranslatedQuery(queries.ALL if clause is KEEP_ALL else queries.NONE)
    if isinstance(clause, UnitClause) or not size_of(clause) > 1:
        return _of_one_index(clause, fields)
    every = len(conjuncts_of(clause)) > 1
    parts = conjuncts_of(clause) if every else alternatives_of(clause)
    found = [_translate_clause(part, fields, depth - 1) for part in parts] if depth else []
    known = [part for part in found if part is not None]
    whole = len(known) == len(parts)
    if not known or not (every or whole):
        return None
    query = (queries.all_of if every else queries.any_of)(part.query for part in known)
    return TranslatedQuery(query, whole and all(part.exact for part in known))


def _of_one_index(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """Translate a clause, or merged clauses over the units of one index."""
    first = next(leaves_of(clause))
    if not isinstance(first, FileClause):
        return None
    field = next((fields.get(name) for name, _ in first.columns()), None)
    if field is None:
        return None
    keys = next((units(first, field) for entries, _, units in _KINDS if entries(field.entry) is not None), None)
    return None if keys is None else keys.translate(condition_of(clause, keys.table))


_KINDS: tuple[
    tuple[
        Callable[[IndexEntry], Fields | None],
        Callable[[Files, IndexEntry], ServerKeys | None],
        Callable[[Any, KeyField], UnitKeys | None],
    ],
    ...,
] = (
    (range_fields_of, range_keys_of, range_units_of),
    (queries.list_fields_of, queries.list_keys_of, queries.list_units_of),
    (segment_fields_of, segment_keys_of, segment_units_of),
    (box_fields_of, box_keys_of, box_units_of),
    (ring_fields_of, ring_keys_of, ring_units_of),
)
"""For each sort of keys, functions for its field types, the keys of files, and the keys that a clause compares."""


def fields_of(entry: IndexEntry) -> Fields | None:
    """The server's types of an index's keys by field; None for an index without keys."""
    return next((found for fields, *_ in _KINDS if (found := fields(entry)) is not None), None)


def keys_of(table: pa.Table, entry: IndexEntry) -> ServerKeys | None:
    """The keys of an index's summaries, empty for files without a summary; None for an index without keys."""
    keys = next((keys for fields, keys, _ in _KINDS if fields(entry) is not None), None)
    server_keys = None if keys is None else keys(FileMetadata.of(table.select([entry.name])), entry)
    if server_keys is None:
        return None
    valid = table[entry.name].is_valid().to_pylist()
    return replace(server_keys, rows=[row if known else {} for row, known in zip(server_keys.rows, valid, strict=True)])
