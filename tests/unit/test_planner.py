"""Labelling: verdicts, and what a failing or lying rule does to a query."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from geoskip import predicates as p
from geoskip import rules
from geoskip.clauses import (
    KEEP_ALL,
    Clause,
    keep_mask,
    size_of,
)
from geoskip.errors import MappingError
from geoskip.indexes.base import Index
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import Labeller, clause_for
from geoskip.registry import declare, mappings, maps
from tests.support.harness import call, canned, sound

A, B = p.Column("a", "int"), p.Column("b", "boolean")
INDEX = MinMax("a").bind([A])
ABOVE = p.Comparison(">", A, p.Literal(5, "int"))


# ---- verdicts


@pytest.mark.parametrize(
    ("node", "true", "false", "null"),
    [
        (p.TRUE, "keep", "skip", "skip"),
        (p.FALSE, "skip", "keep", "skip"),
        (p.Literal(None), "skip", "skip", "keep"),
        (p.Literal(1), "keep", "keep", "skip"),
        (p.Comparison("=", A, p.Literal(None)), "skip", "skip", "keep"),
        (p.In(A, (p.Literal(None),)), "skip", "skip", "keep"),
        (p.In(A, ()), "skip", "keep", "minmax(a) has nulls"),
        (p.In(A, (p.Literal(7), p.Literal(None))), "min(a) <= 7 <= max(a)", "skip", "keep"),
        (p.IsNull(A), "minmax(a) has nulls", "minmax(a) has values", "skip"),
        (ABOVE, "max(a) > 5", "min(a) <= 5", "minmax(a) has nulls"),
        (p.Not(ABOVE), "min(a) <= 5", "max(a) > 5", "minmax(a) has nulls"),
        (p.Opaque("f(a)", ("a",)), "keep", "keep", "keep"),
        (p.And((ABOVE, p.Opaque("f(a)", ("a",)))), "max(a) > 5", "keep", "keep"),
        (p.Or((ABOVE, p.Opaque("f(a)", ("a",)))), "keep", "min(a) <= 5", "keep"),
        (p.Comparison("<=>", ABOVE, p.TRUE), "max(a) > 5", "(min(a) <= 5 OR minmax(a) has nulls)", "keep"),
        (p.IsNull(ABOVE), "minmax(a) has nulls", "(max(a) > 5 OR min(a) <= 5)", "keep"),
        (call("if", ABOVE, p.FALSE, p.TRUE), "(min(a) <= 5 OR minmax(a) has nulls)", "max(a) > 5", "skip"),
        (call("coalesce", ABOVE, p.TRUE), "(max(a) > 5 OR minmax(a) has nulls)", "min(a) <= 5", "skip"),
        (p.Call("coalesce", (ABOVE, p.TRUE), "python:mine.coalesce#1", (), "boolean"), "keep", "keep", "keep"),
        (p.Comparison("=", p.Cast(A, "string", "int"), p.Literal("7")), "min(a) <= 7 <= max(a)", "NOT min(a)", "keep"),
        (p.Comparison("<", p.Cast(A, "string", "int"), p.Literal("7")), "keep", "keep", "keep"),
        (
            p.Comparison("=", p.Cast(A, "bigint", "int"), p.Literal(7)),
            "min(CAST(a",
            "NOT min(CAST(a",
            "minmax(a) has nulls",
        ),
        (p.Comparison("=", p.Call("ln", (A,)), p.Literal(7)), "keep", "keep", "keep"),
    ],
    ids=lambda value: str(value),
)
def test_the_verdict_of(node: p.Predicate, true: str, false: str, null: str) -> None:
    label = Labeller([INDEX])
    words = {"keep": "keep every file", "skip": "skip every file"}
    for clause, expected in zip(
        (label.true(node), label.false(node), label.null(node)), (true, false, null), strict=True
    ):
        assert str(clause).replace("CAST(min(a", "min(CAST(a").startswith(words.get(expected, expected))


CANONICAL_LEAVES = [
    p.Comparison("=", A, p.Literal(None)),
    p.Comparison("<=>", A, p.Literal(None)),
    p.Comparison("<=>", A, p.Literal(7, "int")),
    p.Comparison("<=>", ABOVE, p.TRUE),
    p.Comparison("<=>", p.IsNull(A), p.FALSE),
    p.Comparison("<", p.Literal(7, "int"), A),
    p.In(A, (p.Literal(7, "int"), p.Literal(None))),
    p.In(A, (p.Literal(None),)),
    p.In(A, ()),
    p.Not(p.Not(p.And((ABOVE, p.Not(p.Or((ABOVE, p.IsNull(A)))))))),
    call("if", ABOVE, p.Comparison("<=>", A, p.Literal(3, "int")), p.In(A, (p.Literal(None), p.Literal(3, "int")))),
]


@pytest.mark.parametrize("node", CANONICAL_LEAVES, ids=str)
def test_indexes_are_given_vertices_in_canonical_form_alone(node: p.Predicate) -> None:
    given: list[p.Predicate] = []

    @dataclass(frozen=True)
    class Listener(MinMax):
        kind: ClassVar[str] = "listener"

        def clause(self, node: p.Predicate) -> None:
            given.append(node)

    for tree in (node, p.Not(node), p.IsNull(node), p.And((ABOVE, p.Not(node)))):
        clause_for(tree, [Listener("a").bind([A])])
    assert given
    for vertex in given:
        match vertex.child if isinstance(vertex, p.Not) else vertex:
            case (
                p.Comparison("<=>", _, p.Literal()) | p.Comparison(_, p.Literal()) | p.Comparison(_, _, p.Literal(None))
            ):
                raise AssertionError(vertex)
            case p.In(_, values):
                assert values, vertex
                assert all(literal.value is not None for literal in values), vertex
            case p.Comparison("<" | "<=" | ">" | ">=") | p.Not() | p.And() | p.Or() | p.Literal() as negated:
                assert not isinstance(vertex, p.Not), negated


def test_false_and_null_are_asked_for_only_where_not_needs_them() -> None:
    asked: list[p.Predicate] = []

    @dataclass(frozen=True)
    class Listener(MinMax):
        kind: ClassVar[str] = "listener"

        def clause(self, node: p.Predicate) -> Clause | None:
            asked.append(node)
            return None

    label = Labeller([Listener("a")])
    label.true(p.And((ABOVE, p.Or((p.IsNull(A), ABOVE)))))
    assert not any(isinstance(node, p.Not) for node in asked)


# ---- trees of generated queries


@pytest.mark.slow
def test_a_case_of_a_thousand_branches_and_a_nest_of_conditions_stay_small_and_fast() -> None:
    chain: p.Predicate = p.FALSE
    nest: p.Predicate = ABOVE
    for n in range(1000):
        test = p.Comparison("=", A, p.Literal(n, "int"))
        chain = p.Call("if", (test, p.TRUE, chain), type="boolean")
        nest = p.Call("if", (nest, test, p.Not(test)), type="boolean")
    reasons: list[str] = []
    started = time.perf_counter()
    for tree in (chain, nest):
        assert size_of(clause_for(tree, [INDEX], reasons.append)) <= 20_000
    assert time.perf_counter() - started < 30, "linear, not exponential"
    assert any("nested" in reason for reason in reasons)


def test_five_thousand_terms_and_a_hundred_thousand_values_are_labelled_at_once() -> None:
    terms = tuple(p.Comparison("=", A, p.Literal(n, "int")) for n in range(5000))
    assert size_of(clause_for(p.Or(terms), [INDEX])) == 1
    many = p.In(A, tuple(p.Literal(n, "int") for n in range(100_000)))
    started = time.perf_counter()
    clause_for(many, [INDEX])
    clause_for(p.Not(many), [INDEX])
    assert time.perf_counter() - started < 20, "not by the square"


# ---- rules of others


@dataclass(frozen=True)
class Broken(MinMax):
    """An index whose clause raises what it is told."""

    kind: ClassVar[str] = "broken"

    def clause(self, node: p.Predicate) -> Any:
        raise SystemExit("no")


def test_a_rule_that_raises_or_returns_no_clause_is_left_out_with_a_reason() -> None:
    reasons: list[str] = []
    with mappings():

        @maps("f", index=Index)
        def truthy(node: p.Predicate, index: Index) -> Any:
            return True

        f = p.Call("f", (A,), "python:mine.f#1", (), "boolean")
        clause = clause_for(p.And((f, ABOVE)), [Broken("a").bind([A]), INDEX], reasons.append)
    assert str(clause) == "max(a) > 5"
    assert any("broken(a) failed on" in r and "SystemExit: no" in r for r in reasons)
    assert any("returned True for f(a) instead of a clause" in r for r in reasons)


def test_a_mapping_is_asked_about_calls_their_negations_and_their_comparisons() -> None:
    asked: list[str] = []
    with mappings():

        @maps("f", index=MinMax)
        def rule(node: p.Predicate, index: MinMax) -> None:
            asked.append(str(node))

        f = p.Call("f", (A,), "python:mine.f#1", (), "int")
        other = p.Call("f", (A,), "python:other.f#1", (), "int")
        label = Labeller([INDEX])
        for node in (f, p.Not(f), p.Comparison(">", f, p.Literal(5)), p.In(f, (p.Literal(5),)), p.And((f, f)), other):
            label.true(node)
    assert asked == ["f(a)", "NOT f(a)", "f(a) > 5", "f(a) IN (5)", "f(a) = 5"]


class TestAmong:
    """``IN`` over a mapped function is offered as its equalities, ``NOT IN`` as its inequalities."""

    f = p.Call("f", (A,), "python:mine.f#1", (), "int")

    def clause(self, node: p.Predicate, reasons: list[str] | None = None) -> str:
        return str(clause_for(node, [INDEX], [].append if reasons is None else reasons.append))

    @pytest.fixture(autouse=True)
    def equalities(self) -> Iterator[None]:
        """A mapping that knows ``f(a) = n`` and ``f(a) <> n`` of numbers below 5,000 alone: f adds 100."""
        with mappings():

            @maps("f", index=MinMax)
            def rule(node: p.Predicate, index: MinMax) -> Any:
                match node:
                    case p.Comparison("=", p.Call(_, (a,)), p.Literal(int() as n)) if n < 5_000:
                        return index.clause(p.Comparison("=", a, p.Literal(n - 100, "int")))
                    case p.Not(p.Comparison("=", p.Call(_, (a,)), p.Literal(int() as n))) if n < 5_000:
                        return index.clause(p.Not(p.Comparison("=", a, p.Literal(n - 100, "int"))))
                return None

            yield

    def among(self, *values: int | None) -> p.In:
        return p.In(self.f, tuple(p.Literal(value, "int") for value in values))

    def single(self, *values: int) -> list[p.Predicate]:
        return [p.Comparison("=", self.f, p.Literal(value, "int")) for value in values]

    def test_is_as_its_comparisons(self) -> None:
        assert self.clause(self.among(101, 105)) == self.clause(p.Or(tuple(self.single(101, 105))))
        assert self.clause(self.among(101, None)) == self.clause(self.single(101)[0])
        none = tuple(p.Not(one) for one in self.single(101, 105))
        assert self.clause(p.Not(self.among(101, 105))) == self.clause(p.And(none)) != str(KEEP_ALL)

    def test_a_value_of_which_the_mapping_knows_nothing_keeps(self) -> None:
        assert self.clause(self.among(101, 6_000, 105)) == str(KEEP_ALL)
        assert self.clause(p.Not(self.among(101, 6_000))) == self.clause(p.Not(self.single(101)[0]))

    def test_many_values_take_no_longer_than_their_share(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.clause(self.among(*range(100, 1_100))) != str(KEEP_ALL)
        reasons: list[str] = []
        assert self.clause(self.among(*range(100, 1_101)), reasons) == str(KEEP_ALL)
        assert reasons == [
            "mappings of f(a) are given the values of an IN one by one, up to 1,000: they were not used for 1,001"
        ]
        unmapped = p.In(p.Call("g", (A,), "python:mine.g#1", (), "int"), self.among(*range(1_101)).values)
        assert self.clause(unmapped, reasons) == str(KEEP_ALL)
        assert len(reasons) == 1
        monkeypatch.setattr(rules, "_SHARE_OF_VALUES", 0.0)
        label = Labeller([INDEX], report=reasons.append, watch=rules.Deadline(most=1.0))
        assert label.true(self.among(101, 105)) is KEEP_ALL
        assert any("took too long for 2 values" in reason for reason in reasons)


def test_nan_is_in_no_set_without_it_for_sparks_interpreter() -> None:
    """``NOT coalesce(x IN (1, ..., NULL), TRUE)``: the interpreter says FALSE of NaN where compiled code says NULL."""
    files = FileMetadata.of(
        pa.table(
            {
                "path": ["nan", "numbers", "nulls"],
                "minmax(x)": [
                    {"min": None, "max": None, "nulls": 0, "nans": 1, "rows": 1},
                    {"min": 5.0, "max": 5.0, "nulls": 0, "nans": 0, "rows": 1},
                    {"min": None, "max": None, "nulls": 1, "nans": 0, "rows": 1},
                ],
            }
        )
    )
    x = p.Column("x", "double")
    among = p.In(x, (p.Literal(1.0, "double"), p.Literal(None, "double")))
    masks = [
        keep_mask(clause_for(node, [MinMax("x").bind([x])]), files).tolist()
        for node in (among, p.Not(among), p.Not(p.In(A, (p.Literal(1, "int"), p.Literal(None, "int")))))
    ]
    assert masks == [[False, False, False], [True, False, False], [False, False, False]]


def test_a_mapping_of_a_function_that_cannot_be_identified_is_refused() -> None:
    lock = threading.Lock()

    def guarded(x: int) -> bool:
        with lock:
            return x > 5

    with mappings(), pytest.raises(MappingError, match=r"one version of .*guarded from another: it reaches lock"):
        maps(guarded, index=MinMax)(lambda node, index: None)
    with mappings():
        declare(guarded, version="1")
        maps(guarded, index=MinMax)(lambda node, index: None)


@pytest.mark.parametrize("negated", [False, True], ids=["in", "not in"])
def test_a_list_around_if_is_asked_of_its_branches(negated: bool) -> None:
    """``if(a IS NULL, NULL, a) IN (...)``, as Spark makes of ``right(c, n) IN (...)``."""
    world, null, one = canned("a"), p.Literal(None, "int"), p.Literal(1, "int")
    skips = []
    for test in (p.IsNull(A), ABOVE, p.Not(ABOVE)):
        for then, other in ((null, A), (A, null), (one, A), (A, A), (null, null)):
            for values in ((one,), (p.Literal(6, "int"), one), (one, null)):
                node = p.In(call("if", test, then, other, type="int"), values)
                skips.append(not sound(p.Not(node) if negated else node, world).true.all())
    assert sum(skips) > 0.6 * len(skips)
