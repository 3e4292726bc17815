"""Rules known to be unsound, planted one by one: the harness must catch each. Every one has lost rows somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from geoskip import predicates as p
from geoskip.bounds import interval, sort_keys, strings, transfer
from geoskip.bounds.sort_keys import SortKeys
from geoskip.clauses import KEEP_NONE, Clause, all_of, any_of, keep_mask
from geoskip.indexes import minmax, stored_bounds
from geoskip.indexes.minmax import HasNulls, HasValues, MinMax, RangeLeaves
from geoskip.labelling import Labeller
from tests.harness import COLUMNS, call, canned, leaves, sound
from tests.strategies import predicates, worlds

Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[Any] = []


def mutant(rule: str, *columns: str) -> Callable[[Patch], Patch]:
    """A mutant, the section of SEMANTICS that it breaks, and the columns on which it does."""

    def register(plant: Patch) -> Patch:
        MUTANTS.append(pytest.param(plant, columns, id=f"{plant.__name__} (section {rule})"))
        return plant

    return register


def before(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by one that gets the original first."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: change(original, *args, **options))


# Section 1: unknown is KEEP


@mutant("1: a null cell keeps", "b")
def a_lost_summary_reads_as_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(interval, "FIRST", 0)
    patch.setattr(interval, "LAST", 0)


@mutant("1: unknown statistics are no empty results", "d")
def a_lost_null_count_reads_as_zero(patch: pytest.MonkeyPatch) -> None:
    before(patch, minmax, "counts_of", lambda original, *a: (original(*a)[0], np.ones(len(a[0]), dtype=bool)))


@mutant("1: a null cell keeps", "s")
def an_open_bound_skips(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(strings, "_or_unbounded", strings.certain)


# Section 2: NULL and NOT


class _Negated(Clause):
    def __init__(self, clause: Clause) -> None:
        self.clause = clause

    def keep(self, files: Any) -> Any:
        return ~keep_mask(self.clause, files)


@mutant("2: no clause is ever negated", "a")
def the_clause_is_negated(patch: pytest.MonkeyPatch) -> None:
    def negated(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        clause = index.clause(node)
        return clause and _Negated(clause)

    before(patch, MinMax, "_negated", negated)


@mutant("2: a <> 5 skips only if min = max = 5", "d")
def unequal_as_min_above_or_max_below(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SortKeys, "leaves", lambda keys, at, exact: (keys.low > at) | (keys.high < at))


@mutant("2: IS NULL skips only if the null count is 0", "b")
def a_file_with_values_has_no_nulls(patch: pytest.MonkeyPatch) -> None:
    before(patch, HasNulls, "keep", lambda original, c, files: original(c, files) & ~HasValues(c.name).keep(files))


@mutant("2: all-null files match IS NULL", "b")
def an_all_null_file_matches_nothing(patch: pytest.MonkeyPatch) -> None:
    before(patch, HasNulls, "keep", lambda original, c, files: original(c, files) & HasValues(c.name).keep(files))


@mutant("2: IS NOT NULL keeps as long as one value is not null", "b")
def one_null_is_as_bad_as_all(patch: pytest.MonkeyPatch) -> None:
    before(patch, HasValues, "keep", lambda original, c, files: original(c, files) & ~HasNulls(c.name, ()).keep(files))


@mutant("2: IN (1, NULL) matches 1", "d")
def in_with_null_matches_nothing(patch: pytest.MonkeyPatch) -> None:
    def true(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        lost = isinstance(node, p.In) and any(v.value is None for v in node.values)
        return KEEP_NONE if lost else original(label, node)

    before(patch, Labeller, "_true", true)


@mutant("2: NOT (a <=> 5) is TRUE for NULL", "d")
def null_safe_equality_as_equality(patch: pytest.MonkeyPatch) -> None:
    def negated(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        return original(index, replace(node, op="=") if getattr(node, "op", "") == "<=>" else node)

    before(patch, MinMax, "_negated", negated)


@mutant("2: coalesce can be TRUE for null rows")
def coalesce_as_null_intolerant(patch: pytest.MonkeyPatch) -> None:
    def branches(original: Any, label: Labeller, node: p.Call, verdict: Any) -> Clause:
        return verdict(node.args[0]) if node.name == "coalesce" else original(label, node, verdict)

    before(patch, Labeller, "_branches", branches)


@mutant("2: CASE takes the other branch where its condition is NULL")
def a_null_condition_takes_no_branch(patch: pytest.MonkeyPatch) -> None:
    def branches(original: Any, label: Labeller, node: p.Call, verdict: Any) -> Clause:
        if node.name != "if":
            return original(label, node, verdict)
        test, then, other = node.args
        return any_of([all_of([label.true(test), verdict(then)]), all_of([label.false(test), verdict(other)])])

    before(patch, Labeller, "_branches", branches)


@mutant("2: De Morgan holds")
def not_and_as_and_of_nots(patch: pytest.MonkeyPatch) -> None:
    def false(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        return all_of(map(label.false, node.children)) if isinstance(node, p.And) else original(label, node)

    before(patch, Labeller, "_false", false)


@mutant("2: a comparison with NULL is NULL")
def comparisons_are_never_null(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Labeller, "_is_null", lambda label, value: KEEP_NONE)


# Section 3: floating point


@mutant("3: NaN lies above infinity", "x")
def nan_is_left_out(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval.Interval, "keys", lambda original, spans: original(replace(spans, nan=None)))


@mutant("3: keep a NaN count", "x")
def nan_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    before(patch, MinMax, "collect", lambda original, *a: {**original(*a), "nans": 0})


@mutant("3: isnan(NULL) is FALSE", "x")
def isnan_of_null_is_null(patch: pytest.MonkeyPatch) -> None:
    def negated(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        clause = original(index, node)
        return clause.parts[0] if isinstance(node, p.Call) and clause else clause

    before(patch, MinMax, "_negated", negated)


@mutant("3: -0.0 = 0.0", "x")
def minus_zero_lies_below_zero(patch: pytest.MonkeyPatch) -> None:
    def folded(values: Any) -> Any:
        bits = np.asarray(values).view(np.int64)
        return np.where(bits < 0, bits ^ sort_keys.LAST, bits)

    patch.setattr(interval, "folded", folded)
    patch.setattr(sort_keys, "folded", folded)
    patch.setattr(stored_bounds, "_outward", lambda bound, zero: bound)


@mutant("3: a float column is compared as double", "f")
def a_double_literal_in_float32(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval, "real_place", lambda original, value, kind: original(value, "float"))


# Section 4: strings


@mutant("4: the upper bound is rounded up", "s")
def a_truncated_upper_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored_bounds, "shortened", lambda value: value[: stored_bounds.LONGEST])


@mutant("4: strings are ordered by bytes, not by UTF-16 units", "s")
def bounds_in_utf16_order(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: MinMax, values: Any) -> Any:
        units = sorted(
            (v.as_buffer().to_pybytes() for v in values if v.is_valid),
            key=lambda raw: raw.decode("utf-8", "replace").encode("utf-16-be"),
        )
        found = original(index, values)
        return {**found, "min": units[0][:32], "max": stored_bounds.shortened(units[-1])} if units else found

    before(patch, MinMax, "collect", collect)


def _prefix(patch: pytest.MonkeyPatch, wild: str, *, escapes: bool, odd: str) -> None:
    def prefix(pattern: str, escape: str) -> tuple[str, bool]:
        found, at = "", 0
        while at < len(pattern) and pattern[at] not in wild + odd:
            at += escapes and pattern[at] == escape
            found, at = found + pattern[at], at + 1
        return found, bool(pattern[at:]) and set(pattern[at:]) == {"%"}

    patch.setattr(minmax, "literal_prefix", prefix)


@mutant("4: _ stands for any character", "s")
def an_underscore_is_itself(patch: pytest.MonkeyPatch) -> None:
    _prefix(patch, "%", escapes=True, odd="\ufffd")


@mutant("4: ESCAPE exists", "s")
def an_escape_is_itself(patch: pytest.MonkeyPatch) -> None:
    _prefix(patch, "%_", escapes=False, odd="\ufffd")


@mutant("4: strings may hold invalid UTF-8, which LIKE reads as U+FFFD", "s")
def a_replacement_character_is_itself(patch: pytest.MonkeyPatch) -> None:
    _prefix(patch, "%_", escapes=True, odd="")


@mutant("4: NOT LIKE 'a%' skips only if all values begin with a", "s")
def not_like_as_the_negation_of_like(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(strings.ByteStrings, "leaves_prefix", lambda spans, prefix: ~minmax._begins_with(spans, prefix))


# Section 5: numbers and types


@mutant("5: n + 1 may overflow", "a")
def an_overflowed_sum_is_trusted(patch: pytest.MonkeyPatch) -> None:
    before(patch, transfer, "_affine", lambda original, *a, **o: original(*a, **{**o, "limits": transfer._ALL}))


@mutant("5: used only if monotone, and decreasing is not increasing", "d")
def a_negation_keeps_the_order(patch: pytest.MonkeyPatch) -> None:
    def affine(original: Any, spans: Any, factor: int = 1, *rest: Any, **options: Any) -> Any:
        found = original(spans, factor, *rest, **options)
        return replace(found, low=found.high, high=found.low) if factor < 0 else found

    before(patch, transfer, "_affine", affine)


@mutant("5: the bounds are cast as the column is", "x")
def a_cast_to_float_is_exact(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transfer, "_rounded", lambda spans, target: spans)


@mutant("5: integers beyond 2^53 are no doubles", "n")
def integers_as_doubles(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval, "number_place", lambda original, value, scale: original(float(value), scale))


@mutant("5: decimal literals of another scale", "d")
def a_literal_rounded_to_the_columns_scale(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval, "number_place", lambda original, value, scale: (original(value, scale)[0], True))


@mutant("5: decimals of 38 digits", "w")
def a_literal_between_two_bounds_is_the_lower_one(patch: pytest.MonkeyPatch) -> None:
    before(
        patch, interval.WideDecimals, "place", lambda original, wide, value: (original(wide, value)[0] // 2 * 2, True)
    )


@mutant("5: compare bounds after the same cast", "w")
def decimals_are_cast_to_the_next_double_without_slack(patch: pytest.MonkeyPatch) -> None:
    def reals(original: Any, wide: interval.WideDecimals) -> Any:
        return tuple(end * (1 + 1e-12) for end in original(wide))

    before(patch, interval.WideDecimals, "reals", reals)


@mutant("5: compare bounds after the same cast", "d")
def a_decimal_with_fewer_digits_is_itself(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval.Interval, "coarser", lambda original, spans, scale: spans)


@mutant("5: n + 1 may overflow", "w")
def what_overflows_a_wider_decimal_is_kept(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval.WideDecimals, "where", lambda original, wide, fits: wide)


@mutant("3: NaN = NaN is TRUE, NaN is greater than everything", "x")
def numbers_alone_are_compared(patch: pytest.MonkeyPatch) -> None:
    before(patch, interval.Interval, "keys", lambda original, spans: replace(original(spans), nan=None))


@mutant("2: NOT IN is the AND of inequalities", "d")
def not_in_needs_a_value_below_or_above_all(patch: pytest.MonkeyPatch) -> None:
    def keep(clause: RangeLeaves, spans: Any, keys: SortKeys) -> Any:
        at = [spans.place(literal)[0] for literal in clause.literals]
        return (keys.low < min(at)) | (keys.high > max(at))

    patch.setattr(RangeLeaves, "of_keys", keep)


def _search(columns: tuple[str, ...]) -> None:
    """The harness: every leaf and its negation on canned files, or trees where no column is named."""
    for name in columns:
        world = canned(name)
        for leaf in leaves(name):
            sound(leaf, world)
            sound(p.Not(leaf), world)
    if not columns:
        sound(call("coalesce", COLUMNS["b"], p.TRUE, type="boolean"), canned("b"))  # random trees may not come upon it
        names = ("b", "x", "d")

        @settings(
            max_examples=600,
            deadline=None,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(worlds(names), predicates(names))
        def holds(world: Any, predicate: p.Predicate) -> None:
            sound(predicate, world)

        holds()


@pytest.mark.parametrize(("plant", "columns"), MUTANTS)
def test_the_harness_catches(plant: Patch, columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"is (True|False|None) for .* says it is not"):
        _search(columns)


def test_the_harness_finds_nothing_where_nothing_is_planted() -> None:
    _search(("b",))
    _search(())


def test_there_are_mutants_for_every_section_that_concerns_bounds() -> None:
    sections = {param.id.partition("(section ")[2][0] for param in MUTANTS}
    assert sections == {"1", "2", "3", "4", "5"}
