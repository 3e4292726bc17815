"""Clauses as queries of the server: which documents a clause keeps.

Translated are the clauses over bounds and counts, and AND and OR over them; each becomes the comparisons of
:class:`geoskip.indexes.ordering.Keys` and :class:`geoskip.indexes.texts.Bytes` over the stored keys, so the server
keeps what would be kept here. A document without the keys is kept by every one of them. Nothing is negated but equality
of both bounds with a literal, which is a statement about the file and not the negation of a clause.

What cannot be translated is left out of an AND, and makes an OR of it untranslatable: the server then keeps more, and
what it keeps is evaluated here. :class:`Translated` says whether that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.clauses import KEEP_ALL, KEEP_NONE, Clause, alternatives_of, parts_of
from geoskip.indexes.minmax import (
    HasNaN,
    HasNulls,
    HasNumbers,
    HasValues,
    PrefixLeaves,
    PrefixMeets,
    RangeLeaves,
    RangeMeets,
)
from geoskip.indexes.ordering import FIRST, LAST, Incomparable, Place
from geoskip.indexes.ranges import Range, kind_of
from geoskip.indexes.texts import encoded, successor
from geoskip.predicates import Literal
from geoskip.stores.elasticsearch.keys import scale_of

__all__ = ["Translated", "translated"]

Query = dict[str, Any]
_MOST_LITERALS = 200
_LONGEST = 1000
"""Bytes of a string literal; longer ones are compared here."""
_MOST_QUERIES = 800
"""Servers refuse more than 1,024 clauses in one query."""
_DEEPEST = 8

_ALL: Query = {"match_all": {}}
_NONE: Query = {"match_none": {}}


@dataclass(frozen=True)
class Translated:
    """A query for what a clause keeps; ``exact`` if it keeps nothing more."""

    query: Query
    exact: bool = True

    @property
    def size(self) -> int:
        return _count(self.query)


@dataclass(frozen=True)
class _Field:
    """The keys of one index on the server, and the Arrow type of its bounds."""

    path: str
    bound: pa.DataType

    @property
    def textual(self) -> bool:
        return bool(pa.types.is_binary(self.bound) or pa.types.is_large_binary(self.bound))

    @property
    def real(self) -> bool:
        return bool(pa.types.is_floating(self.bound))

    def range(self) -> Range:
        """A range without files, for the places of literals."""
        none = np.zeros(0, dtype=np.float64 if self.real else np.int64)
        kind = "real" if self.real else kind_of(self.bound) or "number"
        return Range(kind, none, none, scale_of(self.bound))

    def compared(self, end: str, **limits: Any) -> Query:
        return {"range": {f"{self.path}.{end}": limits}}

    def is_true(self, flag: str) -> Query:
        return {"term": {f"{self.path}.{flag}": True}}

    def is_missing(self, end: str) -> Query:
        return _not({"exists": {"field": f"{self.path}.{end}"}})


def translated(clause: Clause, fields: Mapping[str, tuple[str, pa.DataType]]) -> Translated | None:
    """A query for what a clause keeps, or more; None where nothing of it can be translated.

    ``fields`` has the path of an index's keys and the Arrow type of its bounds, by the index's name.
    """
    known = {name: _Field(path, bound) for name, (path, bound) in fields.items()}
    found = _translated(clause, known, _DEEPEST)
    return None if found is None or found.size > _MOST_QUERIES else found


def _translated(clause: Clause, fields: Mapping[str, _Field], depth: int) -> Translated | None:
    if clause is KEEP_ALL or clause is KEEP_NONE:
        return Translated(_ALL if clause is KEEP_ALL else _NONE)
    if depth and len(parts := parts_of(clause)) > 1:
        found = [_translated(part, fields, depth - 1) for part in parts]
        known = [part for part in found if part is not None]
        exact = len(known) == len(found) and all(part.exact for part in known)
        return Translated(_all(part.query for part in known), exact) if known else None
    if depth and len(parts := alternatives_of(clause)) > 1:
        found = [_translated(part, fields, depth - 1) for part in parts]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        return Translated(_any(part.query for part in known), all(part.exact for part in known))
    field = fields.get(getattr(clause, "name", ""))
    translate = _LEAVES.get(type(clause))
    if field is None or translate is None or getattr(clause, "steps", None):
        return None
    try:
        leaf = translate(clause, field)
    except Incomparable:  # nothing is proved but what every comparison needs: a value
        leaf = Translated(field.is_true("values"))
    if leaf is None:
        return None
    return Translated(_any([leaf.query, field.is_missing("values")]), leaf.exact)


# --- leaves -----------------------------------------------------------------------------------------------------------


def _range_meets(clause: RangeMeets, field: _Field) -> Translated | None:
    if field.textual:
        values = _texts(clause.literals)
        if values is None:
            return None
        if len(values) == 1 and len(clause.literals) == 1:
            return Translated(_text_meets(field, clause.op, values[0]))
        return _any_of_texts(field, values)
    if not field.real and any(isinstance(literal.value, float) for literal in clause.literals):
        return None  # Spark compares them as doubles
    places = field.range().places(clause.literals)
    if len(places) == 1:
        return Translated(_meets(field, clause.op, *places[0]))
    return _any_of_places(field, places)


def _range_leaves(clause: RangeLeaves, field: _Field) -> Translated | None:
    if field.textual:
        values = _texts(clause.literals)
        if values is None or len(values) > _MOST_LITERALS:
            return None
        same = [_all([_equal(field, "low", v.hex()), _equal(field, "high", v.hex())]) for v in values]
        return Translated(_all([_not(_all([_any(same), field.is_true("exact")])), field.is_true("present")]))
    keys = {at for at, exact in field.range().places(clause.literals) if exact and FIRST <= at <= LAST}
    if len(keys) > _MOST_LITERALS:
        return None
    same = [_all([_equal(field, "low", at), _equal(field, "high", at)]) for at in sorted(keys)]
    return Translated(_all([_not(_any(same)), field.is_true("present")]))


def _prefix_meets(clause: PrefixMeets, field: _Field) -> Translated | None:
    if not field.textual:
        return Translated(field.is_true("values"))
    prefix = encoded(Literal(clause.text))
    if len(prefix) > _LONGEST:
        return None
    above = successor(prefix)
    begins = [] if above is None else [_reaches(field, "low", lt=above.hex())]
    return Translated(_all([_reaches(field, "high", gte=prefix.hex()), *begins, field.is_true("present")]))


def _prefix_leaves(clause: PrefixLeaves, field: _Field) -> Translated | None:
    if not field.textual:
        return Translated(field.is_true("values"))
    prefix = encoded(Literal(clause.text))
    if len(prefix) > _LONGEST:
        return None
    above = successor(prefix)
    inside = [field.compared("low", gte=prefix.hex())]
    if above is not None:
        inside.append(field.compared("high", lt=above.hex()))
    return Translated(_all([_not(_all(inside)), field.is_true("present")]))


def _of_reals(flag: str) -> Callable[[Any, _Field], Translated | None]:
    return lambda clause, field: Translated(field.is_true(flag)) if field.real else None


_LEAVES: dict[type[Clause], Callable[[Any, _Field], Translated | None]] = {
    RangeMeets: _range_meets,
    RangeLeaves: _range_leaves,
    PrefixMeets: _prefix_meets,
    PrefixLeaves: _prefix_leaves,
    HasValues: lambda clause, field: Translated(field.is_true("values")),
    HasNulls: lambda clause, field: Translated(field.is_true("nulls")),
    HasNaN: _of_reals("nan"),
    HasNumbers: _of_reals("numbers"),
}


# --- comparisons of keys ----------------------------------------------------------------------------------------------


def _meets(field: _Field, op: str, at: int, exact: bool) -> Query:
    """:meth:`geoskip.indexes.ordering.Keys.meets`."""
    if not FIRST <= at <= LAST:
        above_all = (op[0] == ">") is (at < FIRST) and op != "="
        return field.is_true("present") if above_all else _unknown(field)
    match op:
        case ">=" if exact:
            return field.compared("high", gte=at)
        case ">" | ">=":
            return field.compared("high", gt=at) if at < LAST else _unknown(field)
        case "<" if exact:
            return field.compared("low", lt=at) if at > FIRST else _unknown(field)
        case "<" | "<=":
            return field.compared("low", lte=at)
    if exact or at == LAST:
        return _all([field.compared("low", lte=at), field.compared("high", gte=at)])
    return _all([field.compared("low", lte=at), field.compared("high", gt=at)])


def _unknown(field: _Field) -> Query:
    """Files of which nothing is known."""
    return _all([_equal(field, "low", FIRST), _equal(field, "high", LAST)])


def _any_of_places(field: _Field, places: Sequence[Place]) -> Translated:
    """:meth:`geoskip.indexes.ordering.Keys.meets_any`; of very many literals the least and the greatest."""
    keys = sorted({at for at, exact in places if exact and FIRST <= at <= LAST})
    if len(places) > _MOST_LITERALS:
        ends = [at for at, _ in places if FIRST <= at <= LAST] or [FIRST]
        least, most = min(ends), max(ends)
        hull = _all([field.compared("low", lte=most), field.compared("high", gte=least)])
        return Translated(_any([hull, _unknown(field)]), exact=False)
    rest = [_meets(field, "=", at, False) for at, exact in places if not exact]
    if not keys:
        rest.append(_unknown(field))
    return Translated(_any([*(_meets(field, "=", at, True) for at in keys), *rest]))


def _texts(literals: Sequence[Literal]) -> list[bytes] | None:
    """The literals as bytes, in order; None where one is too long to be sent."""
    values = sorted({encoded(literal) for literal in literals})
    return None if any(len(value) > _LONGEST for value in values) else values


def _text_meets(field: _Field, op: str, value: bytes) -> Query:
    """:meth:`geoskip.indexes.texts.Bytes.meets`."""
    digits = value.hex()
    limits = {
        ">": [_reaches(field, "high", gt=digits)],
        ">=": [_reaches(field, "high", gte=digits)],
        "<": [_reaches(field, "low", lt=digits)],
        "<=": [_reaches(field, "low", lte=digits)],
    }
    return _all([*limits.get(op, limits[">="] + limits["<="]), field.is_true("present")])


def _any_of_texts(field: _Field, values: Sequence[bytes]) -> Translated:
    if not values:
        return Translated(_NONE)
    if len(values) <= _MOST_LITERALS:
        return Translated(_any(_text_meets(field, "=", value) for value in values))
    hull = [_reaches(field, "high", gte=values[0].hex()), _reaches(field, "low", lte=values[-1].hex())]
    return Translated(_all([*hull, field.is_true("present")]), exact=False)


def _reaches(field: _Field, end: str, **limits: str) -> Query:
    """A bound of strings compared; one that is missing is open."""
    return _any([field.compared(end, **limits), field.is_missing(end)])


def _equal(field: _Field, end: str, value: Any) -> Query:
    return {"term": {f"{field.path}.{end}": value}}


# --- queries ----------------------------------------------------------------------------------------------------------


def _all(queries: Iterable[Query]) -> Query:
    parts = list(queries)
    return parts[0] if len(parts) == 1 else {"bool": {"filter": parts}} if parts else _ALL


def _any(queries: Iterable[Query]) -> Query:
    parts = list(queries)
    if not parts:
        return _NONE
    return parts[0] if len(parts) == 1 else {"bool": {"should": parts, "minimum_should_match": 1}}


def _not(query: Query) -> Query:
    return {"bool": {"must_not": [query]}}


def _count(query: Query) -> int:
    """How many simple queries it is made of."""
    parts = query.get("bool")
    if parts is None:
        return 1
    return sum(_count(part) for kind in ("filter", "should", "must_not") for part in parts.get(kind, ()))
