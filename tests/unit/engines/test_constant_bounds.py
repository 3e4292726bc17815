"""Comparisons with constants that an engine may convert with an error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.engines.constant_bounds import Constant, Engine, comparison
from geoskip.predicates import And, Column, Comparison, In, IsNull, Literal, Not, Predicate
from tests.support.strategies import examples

OPS = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


def may_hold(node: Predicate, value: float) -> bool:
    match node:
        case And(parts):
            return all(may_hold(part, value) for part in parts)
        case In(_, values):
            return value in [literal.value for literal in values]
        case Comparison(op, _, Literal(bound)):
            return bool(getattr(value, OPS[op])(bound))
        case Not(IsNull()):
            return True
        case Not(Comparison("=", _, Literal(bound))):
            return value != bound
    raise AssertionError(node)


NEAR = st.tuples(st.sampled_from([1.5, 0.1, -3.25, float(np.float32(0.1))]), st.integers(-6, 6))


@settings(max_examples=examples(500), deadline=None)
@given(
    kind=st.sampled_from(["float", "double"]),
    narrows=st.booleans(),
    op=st.sampled_from(sorted(OPS)),
    centre=NEAR,
    error=st.sampled_from([0, 1, 4]),
    miss=st.integers(-4, 4),
    row=NEAR,
)
def test_no_row_is_lost_for_any_constant_within_the_error(
    kind: str, narrows: bool, op: str, centre: tuple[float, int], error: int, miss: int, row: tuple[float, int]
) -> None:
    value, stored = (near + steps * math.ulp(near) for near, steps in (centre, row))
    unit, column = math.ulp(value), Column("x", kind)
    converted = value + max(-error, min(error, miss)) * unit
    stored = float(np.float32(stored)) if kind == "float" else stored
    found = comparison(op, column, Constant("float", value, error * unit), Engine(ieee=False, narrows=narrows))
    assert not isinstance(found, str)
    for engine in {converted, float(np.float32(converted))} if narrows or kind == "float" else {converted}:
        holds = bool(getattr(stored, OPS[op])(engine))
        assert may_hold(found[0 if holds else 1], stored), (stored, op, engine, found)


@pytest.mark.parametrize("op", ["<", ">"])
def test_the_nearest_float_of_a_double_beside_it_is_kept(op: str) -> None:
    beside = 1.5 - math.ulp(1.5) if op == "<" else 1.5 + math.ulp(1.5)
    found = comparison(op, Column("x", "float"), Constant("float", beside, 4 * math.ulp(1.5)), Engine(ieee=False))
    assert found[0] == Comparison(f"{op}=", Column("x", "float"), Literal(1.5, "float"))


def test_a_float_may_differ_from_the_double_of_a_constant_with_an_error() -> None:
    x, near = Column("x", "float"), Constant("float", 1.5, math.ulp(1.5))
    assert comparison("!=", x, near, Engine(ieee=False)) == (Not(IsNull(x)), And((
        Comparison(">=", x, Literal(1.5, "float")), Comparison("<=", x, Literal(1.5, "float"))
    )))  # fmt: skip
