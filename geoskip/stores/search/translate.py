"""Clauses as queries of the server: which documents a clause keeps.

Each kind of index has its own module (:mod:`geoskip.stores.search.translate` names them); here is what is common. AND
and OR become the server's, and of clauses over the *units* of one index (values, segments, boxes) the units are merged
first, as when they are evaluated here. No clause is ever negated. A document without an index's keys is kept by every
clause over it.

What cannot be translated is left out of an AND, and makes an OR of it untranslatable: the server then keeps more, and
what it keeps is evaluated here. :class:`~geoskip.stores.search.queries.TranslatedQuery` says whether that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa

from geoskip.clauses import KEEP_ALL, KEEP_NONE, Clause, Files, UnitClause, all_of, alternatives_of, parts_of
from geoskip.indexes.affix_postings import EntryPasses
from geoskip.indexes.gaplist import SegmentPasses
from geoskip.indexes.valuelist import ListMeets
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.stores.search import box_queries, distance_queries, listed_values, queries, range_queries
from geoskip.stores.search.queries import KeyField, ServerKeys, TranslatedQuery

__all__ = ["conjuncts", "fields_of", "keys_of", "translated"]

_MOST_QUERIES = 800
"""Servers refuse more than 1,024 clauses in one query."""
_DEEPEST = 8

Units = Any
"""Which units of an index pass, as its module has it: ``both``, ``either`` and ``translated``."""


def translated(clause: Clause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """A query for what a clause keeps, or more; None where nothing of it can be translated.

    ``fields`` has the keys of indexes by their names.
    """

    def leaf(part: Clause) -> TranslatedQuery | None:
        if isinstance(part, UnitClause):
            return _of_units(part, fields)
        origins = getattr(part, "origins", None)
        field = fields.get(getattr(part, "name", "") or getattr(origins, "name", ""))
        if field is None:
            return None
        if field.entry.arrow.get_field_index("min") >= 0:
            return range_queries.translated(part, range_queries.of(field))
        return distance_queries.translated(part, field) or listed_values.translated(part, field)

    found = _merged(clause, leaf, _DEEPEST)
    return None if found is None or found.size > _MOST_QUERIES else found


def conjuncts(clause: Clause) -> list[Clause]:
    """The clauses of which a merged one needs all to keep a file, those over the units of one index still merged."""
    groups: dict[Any, list[Clause]] = {}
    for part in parts_of(clause):
        groups.setdefault(part.index if isinstance(part, UnitClause) else id(part), []).append(part)
    return [all_of(group) for group in groups.values()]


def _merged(
    clause: Clause, leaf: Callable[[Clause], TranslatedQuery | None], depth: int = _DEEPEST
) -> TranslatedQuery | None:
    """A query for a tree of clauses, by what there is for its leaves."""
    if clause is KEEP_ALL or clause is KEEP_NONE:
        return TranslatedQuery(queries.ALL if clause is KEEP_ALL else queries.NONE)
    if not depth or isinstance(clause, UnitClause):
        return leaf(clause)
    for parts, join, every in (
        (conjuncts(clause), queries.all_of, True),
        (alternatives_of(clause), queries.any_of, False),
    ):
        if len(parts) > 1:
            found = [_merged(part, leaf, depth - 1) for part in parts]
            known = [part for part in found if part is not None]
            whole = len(known) == len(found)
            if not known or not (every or whole):
                return None
            return TranslatedQuery(join(part.query for part in known), whole and all(part.exact for part in known))
    return leaf(clause)


def _of_units(clause: UnitClause, fields: Mapping[str, KeyField]) -> TranslatedQuery | None:
    """A query for a clause over the units of one index, merged or not."""
    found, whole = _passing(clause, fields, _DEEPEST)
    query: TranslatedQuery | None = None if found is None else found.translated()
    return None if query is None else TranslatedQuery(query.query, query.exact and whole)


def _passing(clause: UnitClause, fields: Mapping[str, KeyField], depth: int) -> tuple[Units | None, bool]:
    """Which units pass a clause, or more, and whether nothing of it was left out; None where nothing is known."""
    for parts, join, every in (
        (parts_of(clause), lambda one, other: one.both(other), True),
        (alternatives_of(clause), lambda one, other: one.either(other), False),
    ):
        if depth and len(parts) > 1:
            found = [_passing(part, fields, depth - 1) for part in parts if isinstance(part, UnitClause)]
            known = [units for units, _ in found if units is not None]
            whole = len(known) == len(parts)
            if not known or not (every or whole):
                return None, False
            return reduce(join, known), whole and all(complete for _, complete in found)
    return _units_of(clause, fields), True


def _units_of(clause: UnitClause, fields: Mapping[str, KeyField]) -> Units | None:
    field = fields.get(getattr(clause, "name", clause.index))
    if field is None:
        return None
    if type(clause) is ListMeets:
        return listed_values.of_list(clause, field)
    if type(clause) is EntryPasses:
        return listed_values.of_affixes(clause, field)
    if type(clause) is SegmentPasses:
        return range_queries.of_segments(clause, field, _merged)
    return box_queries.of_boxes(clause, field)


Fields = dict[str, Any]

_KINDS: tuple[tuple[Callable[[IndexEntry], Fields | None], Callable[[Files, IndexEntry], ServerKeys | None]], ...] = (
    (range_queries.fields_of, range_queries.keys_of),
    (listed_values.fields_of, listed_values.keys_of),
    (range_queries.segment_fields_of, range_queries.segment_keys_of),
    (box_queries.fields_of, box_queries.keys_of),
    (distance_queries.fields_of, distance_queries.keys_of),
)


def fields_of(entry: IndexEntry) -> Fields | None:
    """The fields of an index's keys with the server's types; None where it has none."""
    return next((found for fields, _ in _KINDS if (found := fields(entry)) is not None), None)


def keys_of(table: pa.Table, entry: IndexEntry) -> ServerKeys | None:
    """The keys of an index's summaries; None where it has none. A file without a summary has no keys."""
    keys = next((keys for fields, keys in _KINDS if fields(entry) is not None), None)
    found = None if keys is None else keys(FileMetadata.of(table.select([entry.name])), entry)
    if found is None:
        return None
    there = table[entry.name].is_valid().to_pylist()
    return replace(found, rows=[row if known else {} for row, known in zip(found.rows, there, strict=True)])
