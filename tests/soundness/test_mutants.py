"""Rules known to be unsound, planted one by one: the harness must catch each. Every one has lost rows somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from geoskip import predicates as p
from geoskip.bounds.sort_keys import literal_prefix
from geoskip.clauses import KEEP_NONE, Clause, all_of, any_of
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.stored_bounds import LONGEST, upper_bound
from geoskip.planner import Labeller
from tests.support.harness import COLUMNS, call, canned, leaves, sound
from tests.support.planting import Inverted, Patch, before, function, listed, rewritten, summary
from tests.support.strategies import examples, predicates, worlds

MUTANTS: list[Any] = []


def mutant(rule: str, *columns: str) -> Callable[[Patch], Patch]:
    """A mutant, the soundness rule that it breaks, and the columns on which it does."""
    return listed(MUTANTS, f"section {rule}", columns)


# Section 1: unknown is KEEP


@mutant("1: a null cell keeps", "b")
def a_lost_summary_reads_as_zero(patch: pytest.MonkeyPatch) -> None:
    summary(patch, lambda field, array: array.fill_null(False) if field in ("min", "max") else array)


@mutant("1: unknown statistics are no empty results", "d")
def a_lost_null_count_reads_as_zero(patch: pytest.MonkeyPatch) -> None:
    summary(patch, lambda field, array: array.fill_null(0) if field == "nulls" else array)


@mutant("1: a null cell keeps", "s")
def an_open_bound_skips(patch: pytest.MonkeyPatch) -> None:
    summary(patch, lambda field, array: array.fill_null(b"") if field == "max" else array)


# Section 2: NULL and NOT


def negated(patch: pytest.MonkeyPatch, owner: type[Any], *kinds: type[p.Predicate]) -> None:
    """The clause of NOT as the negation of the clause, of vertices of some kinds."""

    def clause(original: Any, index: Any, node: p.Predicate) -> Clause | None:
        if not isinstance(node, p.Not) or not isinstance(node.child, kinds):
            found: Clause | None = original(index, node)
            return found
        inner = original(index, node.child)
        return inner and Inverted(inner)

    before(patch, owner, "clause", clause)


@mutant("2: no clause is ever negated", "a")
def the_clause_is_negated(patch: pytest.MonkeyPatch) -> None:
    negated(patch, MinMax, p.Predicate)


@mutant("2: a <> 5 skips only if min = max = 5", "d")
def unequal_as_min_above_or_max_below(patch: pytest.MonkeyPatch) -> None:
    negated(patch, MinMax, p.Comparison)


def _of_null_tests(patch: pytest.MonkeyPatch, change: Callable[[Clause, Clause], Clause], *, positive: bool) -> None:
    """A clause of IS NULL (or of IS NOT NULL) made of that and the other one's."""

    def clause(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        found: Clause | None = original(index, node)
        match node:
            case p.IsNull() if positive:
                other = original(index, p.Not(node))
            case p.Not(p.IsNull() as test) if not positive:
                other = original(index, test)
            case _:
                return found
        return found if found is None or other is None else change(found, other)

    before(patch, MinMax, "clause", clause)


@mutant("2: IS NULL skips only if the null count is 0", "b")
def a_file_with_values_has_no_nulls(patch: pytest.MonkeyPatch) -> None:
    _of_null_tests(patch, lambda nulls, values: all_of([nulls, Inverted(values)]), positive=True)


@mutant("2: all-null files match IS NULL", "b")
def an_all_null_file_matches_nothing(patch: pytest.MonkeyPatch) -> None:
    _of_null_tests(patch, lambda nulls, values: all_of([nulls, values]), positive=True)


@mutant("2: IS NOT NULL keeps as long as one value is not null", "b")
def one_null_is_as_bad_as_all(patch: pytest.MonkeyPatch) -> None:
    _of_null_tests(patch, lambda values, nulls: all_of([values, Inverted(nulls)]), positive=False)


@mutant("2: IN (1, NULL) matches 1", "d")
def in_with_null_matches_nothing(patch: pytest.MonkeyPatch) -> None:
    def true(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        lost = isinstance(node, p.In) and any(v.value is None for v in node.values)
        return KEEP_NONE if lost else original(label, node)

    before(patch, Labeller, "true", true)


@mutant("2: NOT (a <=> 5) is TRUE for NULL", "d")
def null_safe_equality_as_equality(patch: pytest.MonkeyPatch) -> None:
    def false(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        match node:
            case p.Comparison("<=>", left, p.Literal() as right):
                node = p.Comparison("=", left, right)
        found: Clause = original(label, node)
        return found

    before(patch, Labeller, "false", false)


def _conditionals(patch: pytest.MonkeyPatch, name: str, change: Callable[..., Clause]) -> None:
    """TRUE, FALSE and NULL of a conditional by another rule, which gets the labeller, the arguments and the verdict."""
    for which in ("true", "false", "null"):

        def verdict(original: Any, label: Labeller, node: p.Predicate, which: str = which) -> Clause:
            if isinstance(node, p.Call) and node.name == name:
                return change(label, node.args, getattr(label, which))
            found: Clause = original(label, node)
            return found

        before(patch, Labeller, which, verdict)


@mutant("2: coalesce can be TRUE for null rows")
def coalesce_as_null_intolerant(patch: pytest.MonkeyPatch) -> None:
    _conditionals(patch, "coalesce", lambda label, args, verdict: verdict(args[0]))


@mutant("2: CASE takes the other branch where its condition is NULL")
def a_null_condition_takes_no_branch(patch: pytest.MonkeyPatch) -> None:
    def branches(label: Labeller, args: Any, verdict: Any) -> Clause:
        test, then, other = args
        return any_of([all_of([label.true(test), verdict(then)]), all_of([label.false(test), verdict(other)])])

    _conditionals(patch, "if", branches)


@mutant("2: De Morgan holds")
def not_and_as_and_of_nots(patch: pytest.MonkeyPatch) -> None:
    def false(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        return all_of(map(label.false, node.children)) if isinstance(node, p.And) else original(label, node)

    before(patch, Labeller, "false", false)


@mutant("2: a comparison with NULL is NULL")
def comparisons_are_never_null(patch: pytest.MonkeyPatch) -> None:
    def null(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        return KEEP_NONE if isinstance(node, p.Comparison) else original(label, node)

    before(patch, Labeller, "null", null)


# Section 3: floating point


@mutant("3: NaN lies above infinity", "x")
def nan_is_left_out(patch: pytest.MonkeyPatch) -> None:
    summary(patch, lambda field, array: pc.multiply(array, 0) if field == "nans" else array)


@mutant("3: keep a NaN count", "x")
def nan_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    before(patch, MinMax, "collect", lambda original, *a: {**original(*a), "nans": 0})


@mutant("3: isnan(NULL) is FALSE", "x")
def isnan_of_null_is_null(patch: pytest.MonkeyPatch) -> None:
    def clause(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        found: Clause | None = original(index, node)
        match node:
            case p.Not(p.Call(_, (child,))) if found is not None:
                return all_of([found, original(index, p.Not(p.IsNull(child)))])
        return found

    before(patch, MinMax, "clause", clause)


def _literals(patch: pytest.MonkeyPatch, change: Callable[[Any], Any], *, of: type[Any]) -> None:
    """Literals of one Python type are read as others."""

    def changed(node: p.Predicate) -> p.Predicate:
        if not isinstance(node, p.Literal) or not isinstance(node.value, of) or isinstance(node.value, bool):
            return node
        return replace(node, value=change(node.value))

    rewritten(patch, MinMax, changed)


@mutant("3: -0.0 = 0.0", "x")
def minus_zero_lies_below_zero(patch: pytest.MonkeyPatch) -> None:
    _literals(patch, lambda value: -5e-324 if value == 0 and np.signbit(value) else value, of=float)


@mutant("3: a float column is compared as double", "f")
def a_double_literal_in_float32(patch: pytest.MonkeyPatch) -> None:
    _literals(patch, single, of=float)


def single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


# Section 4: strings


@mutant("4: the upper bound is rounded up", "s")
def a_truncated_upper_bound(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: MinMax, values: Any) -> Any:
        found, texts = original(index, values), _texts(values)
        return {**found, "max": max(texts)[:LONGEST]} if texts else found

    before(patch, MinMax, "collect", collect)


def _texts(values: Any) -> list[bytes]:
    return [text for text in values.cast(pa.binary()).to_pylist() if text is not None]


@mutant("4: strings are ordered by bytes, not by UTF-16 units", "s")
def bounds_in_utf16_order(patch: pytest.MonkeyPatch) -> None:
    def collect(original: Any, index: MinMax, values: Any) -> Any:
        units = sorted(_texts(values), key=lambda raw: raw.decode("utf-8", "replace").encode("utf-16-be"))
        found = original(index, values)
        return {**found, "min": units[0][:LONGEST], "max": upper_bound(units[-1])} if units else found

    before(patch, MinMax, "collect", collect)


def _prefix(patch: pytest.MonkeyPatch, wild: str, *, escapes: bool, odd: str) -> None:
    def prefix(original: Any, pattern: str, escape: str) -> tuple[str, bool]:
        found, at = "", 0
        while at < len(pattern) and pattern[at] not in wild + odd:
            at += escapes and pattern[at] == escape
            found, at = found + pattern[at], at + 1
        return found, bool(pattern[at:]) and set(pattern[at:]) == {"%"}

    function(patch, literal_prefix, prefix)


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
    negated(patch, MinMax, p.Like, p.StartsWith)


# Section 5: numbers and types


def _compared(patch: pytest.MonkeyPatch, change: Callable[[p.Predicate, Any], tuple[p.Predicate, Any] | None]) -> None:
    """Comparisons of an expression with a number as those of another expression with another number."""

    def changed(node: p.Predicate) -> p.Predicate:
        match node:
            case p.Comparison(op, left, p.Literal(value)) if value is not None and (found := change(left, value)):
                return p.Comparison(op, found[0], p.Literal(found[1]))
        return node

    rewritten(patch, MinMax, changed)


def _uncast(patch: pytest.MonkeyPatch, *targets: str) -> None:
    """Casts to some types as what they are cast from."""
    rewritten(patch, MinMax, lambda node: node.child if isinstance(node, p.Cast) and node.type in targets else node)


@mutant("5: n + 1 may overflow", "a")
def an_overflowed_sum_is_trusted(patch: pytest.MonkeyPatch) -> None:
    def apart(left: p.Predicate, value: Any) -> tuple[p.Predicate, Any] | None:
        match left:
            case p.Call("+" | "-" as op, (p.Column() as column, p.Literal(int() as by))):
                return column, value - by if op == "+" else value + by
        return None

    _compared(patch, apart)


@mutant("5: used only if monotone, and decreasing is not increasing", "d")
def a_negation_keeps_the_order(patch: pytest.MonkeyPatch) -> None:
    def turned(left: p.Predicate, value: Any) -> tuple[p.Predicate, Any] | None:
        return (left.args[0], -value) if isinstance(left, p.Call) and left.name == "negative" else None

    _compared(patch, turned)


@mutant("5: the bounds are cast as the column is", "x")
def a_cast_to_float_is_exact(patch: pytest.MonkeyPatch) -> None:
    _uncast(patch, "float")


@mutant("5: integers beyond 2^53 are no doubles", "n")
def integers_as_doubles(patch: pytest.MonkeyPatch) -> None:
    _literals(patch, lambda value: int(float(value)), of=int)


@mutant("5: decimal literals of another scale", "d")
def a_literal_rounded_to_the_columns_scale(patch: pytest.MonkeyPatch) -> None:
    _literals(patch, lambda value: value.quantize(Decimal("0.01"), ROUND_FLOOR, Context(60)), of=Decimal)


@mutant("5: decimals of 38 digits", "w")
def a_literal_between_two_bounds_is_the_lower_one(patch: pytest.MonkeyPatch) -> None:
    _literals(patch, Context(prec=28, rounding=ROUND_FLOOR).create_decimal, of=Decimal)


@mutant("5: compare bounds after the same cast", "w")
def decimals_are_cast_to_the_next_double_without_slack(patch: pytest.MonkeyPatch) -> None:
    def uncast(left: p.Predicate, value: Any) -> tuple[p.Predicate, Any] | None:
        if isinstance(left, p.Cast) and left.type == "double" and np.isfinite(value) and abs(value) < 1e20:
            return left.child, Decimal(value)
        return None

    _compared(patch, uncast)


@mutant("5: compare bounds after the same cast", "d")
def a_decimal_with_fewer_digits_is_itself(patch: pytest.MonkeyPatch) -> None:
    _uncast(patch, "decimal(9,1)")


@mutant("5: n + 1 may overflow", "w")
def what_overflows_a_wider_decimal_is_kept(patch: pytest.MonkeyPatch) -> None:
    _uncast(patch, "decimal(38,20)")


@mutant("3: NaN = NaN is TRUE, NaN is greater than everything", "x")
def numbers_alone_are_compared(patch: pytest.MonkeyPatch) -> None:
    def clause(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        match node:
            case p.Comparison(_, _, p.Literal(float() as value)) if value != value:
                return KEEP_NONE
        found: Clause | None = original(index, node)
        return found

    before(patch, MinMax, "clause", clause)


@mutant("2: NOT IN is the AND of inequalities", "d")
def not_in_needs_a_value_below_or_above_all(patch: pytest.MonkeyPatch) -> None:
    def clause(original: Any, index: MinMax, node: p.Predicate) -> Clause | None:
        match node:
            case p.Not(p.In(child, literals)):
                known = [v for v in literals if v.value is not None and v.value == v.value]
                least, most = (of(known, key=lambda v: v.value) for of in (min, max))
                ends = [p.Comparison("<", child, least), p.Comparison(">", child, most)]
                return any_of([original(index, end) for end in ends])
        found: Clause | None = original(index, node)
        return found

    before(patch, MinMax, "clause", clause)


def _search(columns: tuple[str, ...], trees: int = 600) -> None:
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
            max_examples=trees,
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


@pytest.mark.hypothesis
def test_the_harness_finds_nothing_where_nothing_is_planted() -> None:
    _search(("b",))
    _search((), trees=examples(600))


def test_there_are_mutants_for_every_section_that_concerns_bounds() -> None:
    sections = {param.id.partition("(section ")[2][0] for param in MUTANTS}
    assert sections == {"1", "2", "3", "4", "5"}
