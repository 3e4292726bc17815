"""Shapes of conditions hold no value, and are the same for conditions that differ by values alone."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.advisor.condition_text import shape_of
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

SECRET = "Zanzibar"
RECORD = f"struct<a:struct<{SECRET}:date>>"
A = Column("a", "string")
secrets = st.sampled_from([
    Literal(SECRET, "string"), Literal(SECRET.encode(), "binary"), Literal((SECRET,), "array<string>"),
    Literal(Decimal("-7771.25"), "decimal(6,2)"), Literal(7771, "bigint"), Literal(-7771.5, "double"),
    Literal((), f"array<struct<{SECRET}:int>>"),
])  # fmt: skip
leaves = st.one_of(
    st.builds(Comparison, st.sampled_from(["=", "<", "<=>"]), st.just(A), secrets),
    st.builds(lambda values: In(A, tuple(values)), st.lists(secrets, min_size=1, max_size=20)),
    st.sampled_from([
        Like(A, f"%{SECRET}_", "7771"), StartsWith(A, SECRET), EndsWith(A, SECRET), Contains(A, SECRET), IsNull(A),
        Opaque(f"secret('{SECRET}', 7771)", ("a", "b")),
    ]),
    secrets.map(lambda value: Call("f", (A, Cast(value, RECORD, zone=SECRET)), f"python:{SECRET}", (SECRET, "7771"))),
)  # fmt: skip
conditions = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.lists(below, min_size=1, max_size=4).map(tuple).map(And),
        st.lists(below, min_size=1, max_size=4).map(tuple).map(Or),
        st.builds(Not, below),
    ),
    max_leaves=12,
)


@given(conditions)
def test_no_value_is_in_a_shape(condition: Predicate) -> None:
    shape = shape_of(condition)
    assert SECRET not in shape
    assert "7771" not in shape
    assert SECRET.encode().hex().upper() not in shape
    assert shape == shape_of(condition)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Comparison(">", A, Literal(1, "int")), Comparison(">", A, Literal(2, "int")), True),
        (Comparison(">", A, Literal(1, "int")), Comparison(">", A, Literal(1, "bigint")), False),
        (Comparison(">", A, Literal(1, "int")), Comparison(">=", A, Literal(1, "int")), False),
        (StartsWith(A, "x"), EndsWith(A, "x"), False),
        (And((IsNull(A), StartsWith(A, "x"))), And((StartsWith(A, "y"), IsNull(A))), True),
        (And((IsNull(A), StartsWith(A, "x"))), Or((StartsWith(A, "y"), IsNull(A))), False),
        (In(A, (Literal("x", "string"),)), In(A, tuple(Literal(text, "string") for text in "abc")), True),
    ],
)
def test_conditions_of_one_shape_differ_by_values_alone(one: Predicate, other: Predicate, same: bool) -> None:
    assert (shape_of(one) == shape_of(other)) is same


def test_a_condition_of_any_depth_has_a_shape() -> None:
    deep: Predicate = IsNull(A)
    for _ in range(20_000):
        deep = Not(deep)
    assert shape_of(deep) == "a condition that is nested too deeply"
