"""Predicates: their normal form says the same, and trees of any depth and width are handled."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from geoskip import predicates as p
from geoskip.rewrite import gather_equalities
from tests.support.evaluator import outcomes
from tests.support.harness import World
from tests.support.strategies import examples, predicates, worlds

A, B = p.Column("a", "int"), p.Column("b", "boolean")
ONE, TWO, NULL = p.Literal(1, "int"), p.Literal(2, "int"), p.Literal(None)
IS_A = p.Comparison("=", A, ONE)


@pytest.mark.parametrize(
    ("given_", "normal"),
    [
        (p.Comparison("<", ONE, A), p.Comparison(">", A, ONE)),
        (p.Comparison("<=>", NULL, A), p.IsNull(A)),
        (p.Comparison("=", A, NULL), p.Comparison("=", A, NULL)),
        (p.Comparison("<", ONE, TWO), p.Comparison("<", ONE, TWO)),
        (p.Not(p.Not(IS_A)), IS_A),
        (p.Not(p.Not(p.Not(IS_A))), p.Not(IS_A)),
        (p.Not(p.Comparison(">=", ONE, A)), p.Comparison(">", A, ONE)),
        (p.Not(p.Comparison("<=>", A, ONE)), p.Not(p.Comparison("<=>", A, ONE))),
        (p.Not(p.TRUE), p.FALSE),
        (p.Not(NULL), p.Not(NULL)),
        (p.Comparison("=", p.FALSE, p.IsNull(A)), p.Not(p.IsNull(A))),
        (p.Comparison("=", p.StartsWith(A, "x"), p.TRUE), p.StartsWith(A, "x")),
        (p.Comparison("=", p.Call("f", (A,), type="boolean"), p.TRUE), p.Call("f", (A,), type="boolean")),
        (
            p.Comparison("=", p.Call("f", (A,), type="int"), p.TRUE),
            p.Comparison("=", p.Call("f", (A,), type="int"), p.TRUE),
        ),
        (p.Comparison("=", B, p.FALSE), p.Comparison("=", B, p.FALSE)),
        (p.Comparison("<=>", IS_A, p.TRUE), p.Comparison("<=>", IS_A, p.TRUE)),
        (p.And((p.And((IS_A, p.IsNull(A))), p.Or((B, p.Or((IS_A,)))))), p.And((IS_A, p.IsNull(A), p.Or((B, IS_A))))),
        (p.Not(p.And((IS_A, B))), p.Not(p.And((IS_A, B)))),
        (p.Or((p.Not(p.Not(p.Or((IS_A, B)))), B)), p.Or((IS_A, B, B))),
        (p.And(()), p.And(())),
    ],
    ids=str,
)
def test_the_normal_form_of(given_: p.Predicate, normal: p.Predicate) -> None:
    assert p.normalise(given_) == normal
    assert p.normalise(normal) == normal


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(worlds(("a", "x", "s")), predicates(("a", "x", "s")))
def test_normalising_and_gathering_change_no_outcome(world: World, predicate: p.Predicate) -> None:
    normal = gather_equalities(p.normalise(predicate))
    assert p.normalise(normal) == normal
    for rows in world.files:
        for row in rows:
            assert outcomes(normal, row) == outcomes(predicate, row)


def test_a_long_or_of_equalities_becomes_one_in_with_its_null_kept() -> None:
    several = tuple(p.Comparison("=", A, p.Literal(n)) for n in [*range(20), None])
    assert gather_equalities(p.Or((B, *several))) == p.Or((B, p.In(A, tuple(c.right for c in several))))
    assert gather_equalities(p.Or(several[:5])) == p.Or(several[:5])


@pytest.mark.parametrize(
    "wrap", [lambda n: p.Or((n, IS_A)), lambda n: p.And((IS_A, n)), p.Not, lambda n: p.Cast(n, "int")]
)
def test_a_tree_ten_thousand_deep_is_no_recursion(wrap: Any) -> None:
    node: p.Predicate = p.IsNull(A)
    for _ in range(10_000):
        node = wrap(node)
    assert p.columns_of(p.normalise(node)) == {"a"}


def test_untouched_parts_are_shared_and_the_values_of_in_left_alone() -> None:
    inside = p.In(A, (ONE, TWO))
    tree = p.And((inside, p.Not(p.Opaque("f(b)", ("b",)))))
    assert p.transform(tree, lambda vertex: vertex) is tree
    assert p.children(inside) == (A,)
    renamed = p.transform(tree, lambda v: p.Column("z") if v == A else v)
    assert renamed.children[0] == p.In(p.Column("z"), (ONE, TWO))  # type: ignore[attr-defined]
    assert renamed.children[1] is tree.children[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (p.Literal(0.0), p.Literal(-0.0), False),
        (p.Literal(math.nan), p.Literal(-math.nan), True),
        (p.Literal(1), p.Literal(1.0), False),
        (p.Literal(1, "int"), p.Literal(1, "bigint"), False),
        (p.StartsWith(A, "x"), p.EndsWith(A, "x"), False),
        (p.And((A, B)), p.Or((A, B)), False),
        (p.Call("f", (A,), "python:m.f#1"), p.Call("f", (A,), "python:m.f#2"), False),
        (p.Column("a", "int"), p.Column("a", "bigint"), False),
    ],
    ids=str,
)
def test_equality_is_what_spark_could_not_tell_apart(one: p.Predicate, other: p.Predicate, same: bool) -> None:
    assert (one == other) is same
    assert len({one, other}) == 2 - same
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("vertex", "kind"),
    [
        (A, "int"),
        (p.Column("untyped"), None),
        (p.Literal(1, "bigint"), "bigint"),
        (p.Cast(A, "double", "int"), "double"),
        (p.Call("f", (A,), type="string"), "string"),
        (IS_A, "boolean"),
        (p.In(A, (ONE,)), "boolean"),
        (p.Like(A, "%"), "boolean"),
        (p.StartsWith(A, "x"), "boolean"),
        (p.IsNull(A), "boolean"),
        (p.And((IS_A, B)), "boolean"),
        (p.Not(B), "boolean"),
        (p.Opaque("rand()"), None),
    ],
    ids=str,
)
def test_every_vertex_has_a_type(vertex: p.Predicate, kind: str | None) -> None:
    assert vertex.type == kind


def test_a_text_is_made_of_any_depth() -> None:
    arithmetic: p.Predicate = A
    condition: p.Predicate = IS_A
    for _ in range(2000):
        arithmetic = p.Call("+", (arithmetic, ONE), type="int")
        condition = p.Not(p.Or((condition, p.IsNull(A))))
    assert str(arithmetic) == "(" * 2000 + "a" + " + 1)" * 2000
    assert str(condition) == "NOT (" * 2000 + "a = 1" + " OR a IS NULL)" * 2000
