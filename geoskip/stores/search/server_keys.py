"""What a search server can compare: keys of each file's summaries, which order on the server as values do in Spark.

A module for what summaries hold: :mod:`~geoskip.stores.search.range_queries`, lists of values and of beginnings or ends
(:mod:`~geoskip.stores.search.listed_values`), :mod:`~geoskip.stores.search.segment_queries`,
:mod:`~geoskip.stores.search.box_queries` and :mod:`~geoskip.stores.search.distance_queries`. Each says which fields
the server gets, makes the keys by what clauses compare when they are evaluated here, and translates those clauses. An
index of one's own has keys if its summaries have the members of one of geoskip's.

Bloom filters have none. A filter is asked for some bits of one long string, and the servers' queries know no bits: as
terms, the numbers of the bits that are set are half of a filter's bits, eight to sixteen times its bytes and more again
in the server's index; scripts could look at bits, and are what servers do not run for strangers. So filters travel,
those of the files that the rest of a query's clauses leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from geoskip.clauses import Files
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.stores.search import box_queries, distance_queries, listed_values, range_queries, segment_queries
from geoskip.stores.search.queries import ServerKeys

__all__ = ["fields_of", "keys_of"]

Fields = dict[str, Any]

_KINDS: tuple[tuple[Callable[[IndexEntry], Fields | None], Callable[[Files, IndexEntry], ServerKeys | None]], ...] = (
    (range_queries.fields_of, range_queries.keys_of),
    (listed_values.fields_of, listed_values.keys_of),
    (segment_queries.fields_of, segment_queries.keys_of),
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
