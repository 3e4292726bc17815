"""Keys and queries of bounds: those of MinMax and its like, and those of GapList's segments.

An index has keys of bounds if its summaries have ``min``, ``max``, ``nulls`` and ``rows``. A server's doubles have no
NaN, its strings have another order than bytes, and it has no decimals. So documents get

* ``low`` and ``high``: for types of fixed width the order-preserving 64-bit keys of :mod:`geoskip.bounds.sort_keys`,
  for strings and binary the bytes as hexadecimal digits, which order as the bytes do whatever is in them; a bound of
  strings that is missing is open;
* ``present``, if the file may have a value; ``values``, if some value is not NULL; ``nulls``, if some value is NULL;
* for floats ``nan`` and ``numbers``, if it may have NaN and other values; for strings ``exact``, if neither bound was
  shortened.

These are the arrays that clauses over bounds compare, and each clause becomes the comparisons of
:class:`geoskip.bounds.sort_keys.SortKeys` and :class:`geoskip.bounds.strings.ByteStrings`, so that the server keeps the
files that geoskip would keep. The only negation is that both bounds equal a literal, which is a condition on the file
and not the negation of a clause. Comparisons of computed expressions (casts, sums) are not translated.

The segments of a file, and one more each for NULL and NaN, are its ``units``: *nested* objects with the same keys, so
that ``x BETWEEN 4 AND 6`` becomes a query for one segment that meets both ends. A file with very many of them has no
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.bounds.interpret import indexed
from geoskip.bounds.interval import Interval, bounds_of, kind_of
from geoskip.bounds.sort_keys import FIRST, LAST, NAN_KEY, IncomparableError, LiteralKey
from geoskip.bounds.strings import ByteStrings, encoded, successor
from geoskip.clauses import Clause, Files, Mask
from geoskip.indexes.gaplist import SegmentPasses, segments_of
from geoskip.indexes.range_clauses import (
    HasNaN,
    HasNulls,
    HasNumbers,
    HasValues,
    PrefixLeaves,
    PrefixMeets,
    RangeLeaves,
    RangeMeets,
)
from geoskip.metadata import IndexEntry
from geoskip.predicates import Literal
from geoskip.stores.search.queries import (
    NONE,
    KeyField,
    Query,
    ServerKeys,
    TranslatedQuery,
    all_of,
    any_of,
    negate,
    within,
)

__all__ = [
    "RangeKeys",
    "SegmentCondition",
    "fields_of",
    "keys_of",
    "keys_of_bounds",
    "of",
    "of_segments",
    "segment_fields_of",
    "segment_keys_of",
    "translate",
    "types_of",
]

_FIELDS = frozenset(["min", "max", "nulls", "rows"])
_BOOLEAN = {"type": "boolean"}
_MOST_LITERALS = 200
_LONGEST = 1000
"""Bytes of the longest string literal in a query."""


# --- keys -------------------------------------------------------------------------------------------------------------


def fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no bounds."""
    if not {field.name for field in entry.arrow} >= _FIELDS:
        return None
    bound = entry.arrow.field("min").type
    return types_of(bound) if bound == entry.arrow.field("max").type else None


def types_of(bound: pa.DataType) -> dict[str, Any] | None:
    """The server's types of the keys of bounds of this type; None for those that have no keys."""
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


def keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
    """The keys of all files; None where decimals are too long for them."""
    found = keys_of_bounds(files, entry.name, entry.arrow.field("min").type)
    return None if found is None else ServerKeys(found)


def keys_of_bounds(files: Files, name: str, bound: pa.DataType) -> list[dict[str, Any]] | None:
    """The keys of bounds of this type, an entry a file."""
    spans = bounds_of(files, name)
    flags = {"values": HasValues(name).keep(files), "nulls": HasNulls(indexed(name)).keep(files)}
    match spans:
        case ByteStrings():
            flags |= {"present": spans.present, "exact": spans.exact}
            return _rows(_digits(spans.low), _digits(spans.high), flags)
        case Interval() if spans.scale == _scale_of(bound):
            keys = spans.keys().hull()
            flags["present"] = keys.present
            if spans.kind == "real":
                nan = np.zeros(len(files), dtype=bool) if spans.nan is None else spans.nan
                flags |= {"nan": nan, "numbers": np.asarray(spans.low <= spans.high)}
            return _rows(keys.low.tolist(), keys.high.tolist(), flags)
    return None


def _scale_of(bound: pa.DataType) -> int:
    """The power of ten that keys are multiplied by."""
    return int(bound.scale) if pa.types.is_decimal(bound) else 0


def _digits(bounds: pa.Array) -> list[str | None]:
    return [None if bound is None else bound.hex() for bound in bounds.to_pylist()]


def _rows(low: list[Any], high: list[Any], flags: dict[str, Mask]) -> list[dict[str, Any]]:
    names = ("low", "high", *flags)
    columns = [low, high, *(mask.tolist() for mask in flags.values())]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


# --- clauses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RangeKeys(KeyField):
    """The keys of an index with bounds; ``bound`` is the Arrow type of these."""

    bound: pa.DataType = None

    @property
    def textual(self) -> bool:
        """True if the keys are hexadecimal digits."""
        return bool(pa.types.is_binary(self.bound) or pa.types.is_large_binary(self.bound))

    @property
    def real(self) -> bool:
        """True if the bounds are floats."""
        return bool(pa.types.is_floating(self.bound))

    def range(self) -> Interval:
        """An interval of no files, for the positions of literals among the keys."""
        none = np.zeros(0, dtype=np.float64 if self.real else np.int64)
        kind = "real" if self.real else kind_of(self.bound) or "number"
        return Interval(kind, none, none, _scale_of(self.bound))


def of(field: KeyField) -> RangeKeys:
    """The keys of an index whose summaries have bounds."""
    return RangeKeys(field.path, field.entry, field.whole, bound=field.entry.arrow.field("min").type)


def translate(clause: Clause, field: RangeKeys) -> TranslatedQuery | None:
    """Translate a clause over bounds; None for other clauses, and for derived ones."""
    rule = _CLAUSES.get(type(clause))
    if rule is None or getattr(clause, "is_derived", False):
        return None
    try:
        found = rule(clause, field)
    except IncomparableError:  # every comparison needs a value, and nothing more is known
        found = TranslatedQuery(field.is_true("values"))
    return None if found is None else TranslatedQuery(any_of([found.query, field.is_missing("values")]), found.exact)


def _range_meets(clause: RangeMeets, field: RangeKeys) -> TranslatedQuery | None:
    if field.textual:
        values = _texts(clause.literals)
        if values is None:
            return None
        if len(values) == 1 and len(clause.literals) == 1:
            return TranslatedQuery(_text_meets(field, clause.op, values[0]))
        return _any_of_texts(field, values)
    if not field.real and any(isinstance(literal.value, float) for literal in clause.literals):
        return None  # Spark compares them as doubles
    places = field.range().literal_keys(clause.literals)
    if len(places) == 1:
        found = TranslatedQuery(_meets(field, clause.op, *places[0]))
    else:
        found = _any_of_places(field, places)
    between = field.real and (clause.op == "=" or clause.numbers)  # numbers and NaN, which the upper bound includes
    return replace(found, exact=False) if between else found


def _range_leaves(clause: RangeLeaves, field: RangeKeys) -> TranslatedQuery | None:
    if field.textual:
        values = _texts(clause.literals)
        if values is None or len(values) > _MOST_LITERALS:
            return None
        same = [all_of([_equal(field, "low", v.hex()), _equal(field, "high", v.hex())]) for v in values]
        alone = all_of([any_of(same), field.is_true("exact")])
        return TranslatedQuery(all_of([negate(alone), field.is_true("present")]))
    keys = {at for at, exact in field.range().literal_keys(clause.literals) if exact and FIRST <= at <= LAST}
    if len(keys) > _MOST_LITERALS:
        return None
    same = [all_of([_equal(field, "low", at), _equal(field, "high", at)]) for at in sorted(keys)]
    between = field.real and NAN_KEY in keys
    return TranslatedQuery(all_of([negate(any_of(same)), field.is_true("present")]), exact=not between)


def _of_prefix(
    ask: Callable[[RangeKeys, bytes, bytes | None], Query],
) -> Callable[[Any, RangeKeys], TranslatedQuery | None]:
    """Translate a clause about a prefix by ``ask(field, prefix, least string above the prefix)``."""

    def rule(clause: PrefixMeets | PrefixLeaves, field: RangeKeys) -> TranslatedQuery | None:
        if not field.textual:
            return TranslatedQuery(field.is_true("values"))
        prefix = encoded(Literal(clause.text))
        if len(prefix) > _LONGEST:
            return None
        return TranslatedQuery(all_of([ask(field, prefix, successor(prefix)), field.is_true("present")]))

    return rule


def _prefix_meets(field: RangeKeys, prefix: bytes, above: bytes | None) -> Query:
    begins = [] if above is None else [_reaches(field, "low", lt=above.hex())]
    return all_of([_reaches(field, "high", gte=prefix.hex()), *begins])


def _prefix_leaves(field: RangeKeys, prefix: bytes, above: bytes | None) -> Query:
    ends = [] if above is None else [field.compare("high", lt=above.hex())]
    return negate(all_of([field.compare("low", gte=prefix.hex()), *ends]))


def _of_reals(flag: str) -> Callable[[Any, RangeKeys], TranslatedQuery | None]:
    return lambda clause, field: TranslatedQuery(field.is_true(flag)) if field.real else None


_CLAUSES: dict[type[Clause], Callable[[Any, RangeKeys], TranslatedQuery | None]] = {
    RangeMeets: _range_meets,
    RangeLeaves: _range_leaves,
    PrefixMeets: _of_prefix(_prefix_meets),
    PrefixLeaves: _of_prefix(_prefix_leaves),
    HasValues: lambda clause, field: TranslatedQuery(field.is_true("values")),
    HasNulls: lambda clause, field: TranslatedQuery(field.is_true("nulls")),
    HasNaN: _of_reals("nan"),
    HasNumbers: _of_reals("numbers"),
}


def _meets(field: RangeKeys, op: str, at: int, exact: bool) -> Query:
    """:meth:`geoskip.bounds.sort_keys.SortKeys.meets`."""
    if not FIRST <= at <= LAST:
        above_all = (op[0] == ">") is (at < FIRST) and op != "="
        return field.is_true("present") if above_all else _unknown(field)
    match op:
        case ">=" if exact:
            return field.compare("high", gte=at)
        case ">" | ">=":
            return field.compare("high", gt=at) if at < LAST else _unknown(field)
        case "<" if exact:
            return field.compare("low", lt=at) if at > FIRST else _unknown(field)
        case "<" | "<=":
            return field.compare("low", lte=at)
    if exact or at == LAST:
        return all_of([field.compare("low", lte=at), field.compare("high", gte=at)])
    return all_of([field.compare("low", lte=at), field.compare("high", gt=at)])


def _unknown(field: RangeKeys) -> Query:
    """The query for files without known bounds."""
    return all_of([_equal(field, "low", FIRST), _equal(field, "high", LAST)])


def _any_of_places(field: RangeKeys, places: Sequence[LiteralKey]) -> TranslatedQuery:
    """Translate :meth:`geoskip.bounds.sort_keys.SortKeys.meets_any`, of very many literals their range."""
    keys = sorted({at for at, exact in places if exact and FIRST <= at <= LAST})
    if len(places) > _MOST_LITERALS:
        ends = [at for at, _ in places if FIRST <= at <= LAST] or [FIRST]
        least, most = min(ends), max(ends)
        hull = all_of([field.compare("low", lte=most), field.compare("high", gte=least)])
        return TranslatedQuery(any_of([hull, _unknown(field)]), exact=False)
    rest = [_meets(field, "=", at, False) for at, exact in places if not exact]
    if not keys:
        rest.append(_unknown(field))
    return TranslatedQuery(any_of([*(_meets(field, "=", at, True) for at in keys), *rest]))


def _texts(literals: Sequence[Literal]) -> list[bytes] | None:
    """The literals as bytes, in order; None where one is too long to be sent."""
    values = sorted({encoded(literal) for literal in literals})
    return None if any(len(value) > _LONGEST for value in values) else values


def _text_meets(field: RangeKeys, op: str, value: bytes) -> Query:
    """:meth:`geoskip.bounds.strings.ByteStrings.meets`."""
    digits = value.hex()
    limits = {
        ">": [_reaches(field, "high", gt=digits)],
        ">=": [_reaches(field, "high", gte=digits)],
        "<": [_reaches(field, "low", lt=digits)],
        "<=": [_reaches(field, "low", lte=digits)],
    }
    return all_of([*limits.get(op, limits[">="] + limits["<="]), field.is_true("present")])


def _any_of_texts(field: RangeKeys, values: Sequence[bytes]) -> TranslatedQuery:
    if not values:
        return TranslatedQuery(NONE)
    if len(values) <= _MOST_LITERALS:
        return TranslatedQuery(any_of(_text_meets(field, "=", value) for value in values))
    hull = [_reaches(field, "high", gte=values[0].hex()), _reaches(field, "low", lte=values[-1].hex())]
    return TranslatedQuery(all_of([*hull, field.is_true("present")]), exact=False)


def _reaches(field: RangeKeys, end: str, **limits: str) -> Query:
    """Compare a bound of strings; a missing one is open."""
    return any_of([field.compare(end, **limits), field.is_missing(end)])


def _equal(field: RangeKeys, end: str, value: Any) -> Query:
    return {"term": {f"{field.path}.{end}": value}}


_MOST = 64
"""The most units of a file with keys."""


def segment_fields_of(entry: IndexEntry) -> dict[str, Any] | None:
    """The server's types of the keys; None where the summaries have no segments."""
    names = {field.name for field in entry.arrow}
    types = types_of(_bound_of(entry)) if names >= {"segments", "nulls", "rows"} else None
    if types is None:
        return None
    return {"there": {"type": "boolean"}, "units": {"type": "nested", "dynamic": False, "properties": types}}


def _bound_of(entry: IndexEntry) -> pa.DataType:
    return entry.arrow.field("segments").type.value_type.field("low").type


def segment_keys_of(files: Files, entry: IndexEntry) -> ServerKeys | None:
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
    """A query for single segments."""

    field: KeyField
    query: Query
    exact: bool

    def both(self, other: SegmentCondition) -> SegmentCondition:
        """The conjunction with another condition."""
        return SegmentCondition(self.field, all_of([self.query, other.query]), self.exact and other.exact)

    def either(self, other: SegmentCondition) -> SegmentCondition:
        """The disjunction with another condition."""
        return SegmentCondition(self.field, any_of([self.query, other.query]), self.exact and other.exact)

    def translate(self) -> TranslatedQuery:
        """The query for files that have such a segment."""
        path = f"{self.field.path}.units"
        found = any_of([within(path, self.query), self.field.is_missing("there")])
        return TranslatedQuery(found, self.exact and self.field.whole)


def of_segments(clause: SegmentPasses, field: KeyField, walk: Any) -> SegmentCondition | None:
    """The condition of a clause on single segments; ``walk(clause, leaf)`` translates merged ones."""
    bounds = RangeKeys(f"{field.path}.units", field.entry, bound=_bound_of(field.entry))

    def leaf(inner: Clause) -> TranslatedQuery | None:
        return translate(inner, bounds)

    found = walk(clause.inner, leaf)
    return None if found is None else SegmentCondition(field, found.query, found.exact)
