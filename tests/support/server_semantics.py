"""Evaluation of queries as in a search server, and the keys in documents of some files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip import predicates as p
from geoskip.clauses import Clause, keep_mask
from geoskip.indexes.base import Index
from geoskip.metadata import FileMetadata, IndexEntry
from geoskip.planner import Labeller
from geoskip.rewrite import canonical
from geoskip.stores.search.clause_queries import fields_of, keys_of, translate
from geoskip.stores.search.queries import KeyField

__all__ = ["Documents", "clauses", "compare", "documents_of", "matches"]

Documents = tuple[list[dict[str, Any]], dict[str, KeyField]]
"""The documents of some files, and the fields with the keys of each index."""


def matches(query: dict[str, Any], document: dict[str, Any]) -> bool:
    """Test whether a document matches by the server's rules; a missing member matches no range or term."""
    ((kind, inside),) = query.items()
    match kind:
        case "match_all":
            return True
        case "match_none":
            return False
        case "bool":
            return (
                all(matches(part, document) for part in inside.get("filter", ()))
                and not any(matches(part, document) for part in inside.get("must_not", ()))
                and ("should" not in inside or any(matches(part, document) for part in inside["should"]))
            )
        case "nested":
            *above, last = inside["path"].split(".")
            return any(matches(inside["query"], _placed(above, last, one)) for one in _values(document, inside["path"]))
        case "exists":
            return bool(_values(document, inside["field"]))
        case "term" | "terms":
            ((field, wanted),) = inside.items()
            several = wanted if kind == "terms" else [wanted]
            return any(_lies(value, {"gte": one, "lte": one}) for value in _values(document, field) for one in several)
        case "range":
            ((field, limits),) = inside.items()
            assert math.inf not in map(abs, (limit for limit in limits.values() if not isinstance(limit, str)))
            return any(_lies(value, limits) for value in _values(document, field))
    raise AssertionError(f"no query of ours: {query}")


def _lies(value: Any, limits: dict[str, Any]) -> bool:
    low, high = map(_placed_at, (value["gte"], value["lte"]) if isinstance(value, dict) else (value, value))
    ends = {"lt": lambda limit: low < limit, "lte": lambda limit: low <= limit}
    ends |= {"gt": lambda limit: high > limit, "gte": lambda limit: high >= limit}
    return all(ends[name](_placed_at(limit)) for name, limit in limits.items())


def _placed_at(value: Any) -> Any:
    """Sort key of a value in a server's order: -0.0 is below 0.0."""
    return (value, math.copysign(1.0, value)) if type(value) in (int, float) else value


def _values(document: Any, path: str) -> list[Any]:
    """The values of a member, which may be an array."""
    for name in path.split("."):
        document = (document or {}).get(name)
    return document if isinstance(document, list) else [] if document is None else [document]


def _placed(above: list[str], last: str, one: Any) -> dict[str, Any]:
    found = {last: one}
    for name in reversed(above):
        found = {name: found}
    return found


def documents_of(files: FileMetadata, types: dict[Index, pa.DataType]) -> Documents:
    """The keys in the documents of some files, and the fields that hold them."""
    table = files.table()
    found: list[dict[str, Any]] = [{} for _ in range(len(files))]
    fields = {}
    for at, (index, stored) in enumerate(types.items()):
        entry = IndexEntry(index, (), stored)
        if fields_of(entry) is None or (keys := keys_of(table, entry)) is None:
            continue
        fields[str(index)] = KeyField(f"k{at}", entry, keys.whole, 2.0 ** math.frexp(keys.largest)[1])
        for document, values in zip(found, keys.rows, strict=True):
            document[f"k{at}"] = values
    return found, fields


def clauses(predicate: p.Predicate, indexes: list[Index]) -> Iterator[Clause]:
    """The clauses for the predicate being TRUE, FALSE and NULL."""
    label = Labeller(indexes)
    node = canonical(predicate)
    yield from (label.true(node), label.false(node), label.null(node))


def compare(clause: Clause, files: FileMetadata, documents: Documents) -> bool | None:
    """Check that a clause's query keeps the clause's files, and return whether it is exact, or None."""
    rows, fields = documents
    found = translate(clause, fields)
    if found is None:
        return None
    there = np.array([matches(found.query, document) for document in rows], dtype=bool)
    here = keep_mask(clause, files)
    wrong = (here != there) if found.exact else (here & ~there)
    assert not wrong.any(), f"{clause}: {found.query} differs for {rows[int(np.flatnonzero(wrong)[0])]}"
    return found.exact
