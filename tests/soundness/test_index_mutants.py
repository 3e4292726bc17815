"""Wrong rules of GapList, BloomFilter, Prefix and Suffix, planted one by one: the harness must catch each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip import predicates as p
from geoskip.bounds.interval import bytes_of
from geoskip.bounds.sort_keys import IncomparableError, literal_prefix, literal_suffix
from geoskip.clauses import Clause
from geoskip.evaluation.values import interval_of, singleton
from geoskip.indexes.affix import Affix, EntryPasses, Prefix, Suffix
from geoskip.indexes.bloom import BloomFilter, FilterMayHold, HashedPart, equality, filters_of
from geoskip.indexes.bloom_hash import hashes_of, keys_of
from geoskip.indexes.gaplist import GapList, Segments, segments_of
from tests.soundness.test_mutants import negated, single
from tests.support.harness import Kind, canned, leaves, sound
from tests.support.planting import Patch, before, function, listed

MUTANTS: list[Any] = []
WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def two_gaps(name: str) -> GapList:
    return GapList(name, gaps=2)


def two_characters(name: str) -> Prefix:
    return Prefix(name, length=2)


def last_two(name: str) -> Suffix:
    return Suffix(name, length=2)


def one_entry(name: str) -> Prefix:
    return Prefix(name, limit=1)


def mutant(rule: str, kind: Kind, column: str) -> Callable[[Patch], Patch]:
    """A mutant, the soundness rule that it breaks, the index and the column on which it does."""
    return listed(MUTANTS, f"section {rule}", kind, column)


def summaries(patch: pytest.MonkeyPatch, owner: type[Any], **changed: Any) -> None:
    """Collect summaries with other values in some fields."""
    before(patch, owner, "collect", lambda original, index, values: {**original(index, values), **changed})


# GapList


@mutant("1: what was cut off is not there", two_gaps, "a")
def a_gap_is_trusted_at_its_ends(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: GapList, *values: Any) -> Any:
        found = original(index, *values)
        inner = [{**s, "high": s["high"] - 1} if s["high"] > s["low"] else s for s in found["segments"]]
        return {**found, "segments": inner}

    before(patch, GapList, "collect", collect)


@mutant("1: a gap of one part is no gap of the file", two_gaps, "d")
def the_first_part_speaks_for_all(patch: pytest.MonkeyPatch) -> None:
    def merge(original: Any, index: GapList, parts: Any) -> Any:
        return {**original(index, parts), "segments": parts[0]["segments"]} if parts else original(index, parts)

    before(patch, GapList, "merge", merge)


@mutant("1: a null cell keeps", two_gaps, "day")
def a_file_without_segments_is_empty(patch: pytest.MonkeyPatch) -> None:
    function(patch, segments_of, lambda original, *a: _without(original(*a)))


def _without(segments: Segments) -> Segments:
    told = np.asarray(segments.fields["rows"].is_valid())
    fields = {name: array.filter(pa.array(told)) for name, array in segments.fields.items()}
    return Segments(segments.owner[told], fields)


@mutant("2: IS NULL skips only if the null count is 0", two_gaps, "a")
def segments_hold_no_null(patch: pytest.MonkeyPatch) -> None:
    summaries(patch, GapList, nulls=0)


@mutant("2: no clause is ever negated", two_gaps, "a")
def a_gap_clause_is_negated(patch: pytest.MonkeyPatch) -> None:
    negated(patch, GapList, p.Predicate)


@mutant("3: NaN lies above infinity", two_gaps, "x")
def segments_hold_no_nan(patch: pytest.MonkeyPatch) -> None:
    summaries(patch, GapList, nans=0)


# BloomFilter


@mutant("2: no clause is ever negated", BloomFilter, "a")
def not_in_the_filter_is_not_there(patch: pytest.MonkeyPatch) -> None:
    negated(patch, BloomFilter, p.Predicate)


@mutant("2: IN matches any of its values", BloomFilter, "d")
def the_first_value_of_in_is_probed(patch: pytest.MonkeyPatch) -> None:
    function(patch, equality, lambda original, *a: original(*a[:3], a[3][:1], a[4]))


@mutant("3: -0.0 = 0.0", BloomFilter, "x")
def zeros_are_hashed_by_their_bits(patch: pytest.MonkeyPatch) -> None:
    def hashes(original: Any, array: Any) -> Any:
        if not pa.types.is_floating(array.type):
            return original(array)
        values = array.to_numpy(zero_copy_only=False)
        below = (values == 0) & np.signbit(values)
        return np.union1d(original(array.filter(pa.array(~below))), ~original(array.filter(pa.array(below))))

    function(patch, hashes_of, hashes)


@mutant("3: NaN = NaN", BloomFilter, "x")
def nan_is_in_no_filter(patch: pytest.MonkeyPatch) -> None:
    def keys(original: Any, kind: str, casts: Any, literal: p.Literal) -> Any:
        return [key for key in original(kind, casts, literal) if key == key]

    function(patch, keys_of, keys)


@mutant("3: a float column is compared as double", BloomFilter, "x")
def a_double_is_hashed_as_float(patch: pytest.MonkeyPatch) -> None:
    def keys(original: Any, kind: str, casts: Any, literal: p.Literal) -> Any:
        return [single(key) if isinstance(key, float) else key for key in original(kind, casts, literal)]

    function(patch, keys_of, keys)


@mutant("5: compare bounds after the same cast", BloomFilter, "d")
def only_a_decimal_that_is_the_double_is_looked_for(patch: pytest.MonkeyPatch) -> None:
    def keys(original: Any, kind: str, casts: Any, literal: p.Literal) -> Any:
        value = literal.value
        exact = not isinstance(value, float) or (value * 4).is_integer()
        return original(kind, casts, literal) if exact else []

    function(patch, keys_of, keys)


@mutant("5: hashes depend on type", BloomFilter, "a")
def a_value_is_hashed_by_its_width(patch: pytest.MonkeyPatch) -> None:
    def by_width(original: Any, name: str, over: Any, casts: Any, *rest: Any) -> Clause:
        found: Clause = original(name, over, casts, *rest)
        width = WIDTHS.get(casts[-1] if casts else over.type, 64)
        if isinstance(found, FilterMayHold):
            return replace(found, hashes=tuple(h ^ width for h in found.hashes))
        return found

    function(patch, equality, by_width)
    function(patch, hashes_of, lambda original, array: original(array) ^ np.uint64(array.type.bit_width))


@mutant("5: integers beyond 2^53 are no doubles", BloomFilter, "n")
def a_double_is_the_integer_that_it_shows(patch: pytest.MonkeyPatch) -> None:
    def keys(original: Any, kind: str, casts: Any, literal: p.Literal) -> Any:
        try:
            return original(kind, casts, literal)
        except IncomparableError:
            return [int(literal.value)] if abs(literal.value) < 2**63 else []

    function(patch, keys_of, keys)


@mutant("1: a value of any part is in the file", BloomFilter, "d")
def the_filter_of_the_first_part_is_the_files(patch: pytest.MonkeyPatch) -> None:
    def merged(original: Any, parts: Any, fpp: float) -> Any:
        return {**original(parts, fpp), "filters": parts[0]["filters"]} if parts else original(parts, fpp)

    before(patch, HashedPart, "from_parts", merged)


@mutant("1: unknown is KEEP", BloomFilter, "day")
def a_file_without_a_filter_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    def filters(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        return replace(found, unknown=np.zeros_like(found.unknown), any_unknown=False)

    function(patch, filters_of, filters)


# Prefix and Suffix


def _passing(
    patch: pytest.MonkeyPatch, owner: type[Affix], change: Callable[[Any, p.Predicate, EntryPasses], EntryPasses]
) -> None:
    """The condition on entries that represents a vertex, changed: ``change(index, vertex, clause)``."""

    def clause(original: Any, index: Any, node: p.Predicate) -> Clause | None:
        found: Clause | None = original(index, node)
        return change(index, node, found) if isinstance(found, EntryPasses) else found

    before(patch, owner, "clause", clause)


def _whole_for_cut(index: Affix, node: p.Predicate, found: EntryPasses) -> EntryPasses:
    begins = isinstance(node, p.StartsWith | p.EndsWith | p.Like) and found.cut
    return replace(found, cut=found.whole) if begins else found


@mutant("4: a longer pattern compares its truncation", two_characters, "s")
def a_pattern_longer_than_the_entry_is_compared_whole(patch: pytest.MonkeyPatch) -> None:
    _passing(patch, Prefix, _whole_for_cut)


@mutant("4: a longer pattern compares its truncation", last_two, "s")
def an_end_longer_than_the_entry_is_compared_whole(patch: pytest.MonkeyPatch) -> None:
    _passing(patch, Suffix, _whole_for_cut)


@mutant("4: NOT LIKE 'abc%' is not decided by an entry that is shorter", two_characters, "s")
def a_prefix_is_compared_too_short(patch: pytest.MonkeyPatch) -> None:
    def short(index: Prefix, node: p.Predicate, found: EntryPasses) -> EntryPasses:
        match node:
            case p.Not(p.StartsWith() | p.Like()) if found.whole and not found.cut:
                ((text, _),) = found.whole
                return replace(found, cut=(singleton(index.entry(text) or text),))
        return found

    _passing(patch, Prefix, short)


def _equal_to(node: p.Predicate) -> list[p.Literal]:
    match node:
        case p.Comparison("=", _, p.Literal() as literal):
            return [literal]
        case p.In(_, literals):
            return [literal for literal in literals if literal.value is not None]
    return []


@mutant("4: a long text is its entry's", two_characters, "s")
def a_text_longer_than_the_entry_is_nowhere(patch: pytest.MonkeyPatch) -> None:
    _passing(patch, Prefix, lambda index, node, found: replace(found, cut=()) if _equal_to(node) else found)


@mutant("4: other texts share an entry", two_characters, "s")
def an_entry_is_one_text(patch: pytest.MonkeyPatch) -> None:
    def one(index: Prefix, node: p.Predicate, found: EntryPasses) -> EntryPasses:
        texts = map(bytes_of, _equal_to(node.child) if isinstance(node, p.Not) else [])
        entries = [entry for text in texts if (entry := index.entry(text)) is not None]
        return replace(found, cut=tuple(map(singleton, entries))) if entries else found

    _passing(patch, Prefix, one)


@mutant("4: a cut text is above its entry", two_characters, "s")
def a_cut_text_is_compared_as_its_entry(patch: pytest.MonkeyPatch) -> None:
    def compared(index: Prefix, node: p.Predicate, found: EntryPasses) -> EntryPasses:
        match node:
            case p.Comparison(">", _, p.Literal() as literal):
                return replace(found, cut=(interval_of(">", *singleton(bytes_of(literal))),))
        return found

    _passing(patch, Prefix, compared)


def _texts(values: Any) -> list[bytes | None]:
    found: list[bytes | None] = values.cast(pa.binary()).to_pylist()
    return found


@mutant("4: prefixes are counted in code points", two_characters, "s")
def prefixes_are_counted_in_bytes(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: Prefix, values: Any) -> Any:
        longer = {text for text in _texts(values) if text is not None and index.entry(text) is not None}
        return {**original(index, values), "cut": sorted({text[:2] for text in longer})}

    before(patch, Prefix, "collect", collect)


@mutant("4: strings may hold invalid UTF-8", two_characters, "s")
def what_is_no_utf8_is_replaced(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: Prefix, values: Any) -> Any:
        texts = [None if text is None else text.decode("utf-8", "replace") for text in _texts(values)]
        return original(index, pa.array(texts, pa.string()))

    before(patch, Prefix, "collect", collect)


@mutant("4: _ stands for any character", two_characters, "s")
def an_underscore_begins_with_itself(patch: pytest.MonkeyPatch) -> None:
    function(patch, literal_prefix, lambda original, pattern, escape: (pattern.split("%")[0], False))


@mutant("4: ESCAPE exists", last_two, "s")
def a_pattern_ends_with_its_last_piece(patch: pytest.MonkeyPatch) -> None:
    function(patch, literal_suffix, lambda original, pattern, escape: (pattern.rsplit("%", 1)[-1], True))


@mutant("1: a file over the limit is unknown", one_entry, "s")
def entries_over_the_limit_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: Prefix, values: Any) -> Any:
        found = original(index, values)
        return found if found["whole"] is not None else {**found, "whole": [], "cut": []}

    before(patch, Prefix, "collect", collect)


@mutant("2: NOT (a <=> 5) is TRUE for NULL", two_characters, "s")
def null_differs_from_nothing(patch: pytest.MonkeyPatch) -> None:
    _passing(patch, Prefix, lambda index, node, found: replace(found, null=False))


@pytest.mark.parametrize(("plant", "kind", "column"), MUTANTS)
def test_the_harness_catches(plant: Patch, kind: Kind, column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"is (True|False|None) for .* says it is not"):
        _search(kind, column)


@pytest.mark.parametrize("kind", [two_characters, last_two, one_entry])
def test_the_harness_finds_nothing_where_nothing_is_planted(kind: Kind) -> None:
    _search(kind, "s")


def _search(kind: Kind, column: str) -> None:
    """Every leaf and its negation on canned files, in two parts where they have several rows."""
    world = canned(column, kind)
    for leaf in leaves(column):
        sound(leaf, world)
        sound(p.Not(leaf), world)
