"""Constants that are folded, and those that Spark would convert."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from geoskip import predicates as p
from geoskip.clauses import KEEP_ALL, KEEP_NONE
from geoskip.indexes.minmax import MinMax
from geoskip.planner import clause_for
from geoskip.registry import constant, declare, mappings
from geoskip.rewrite import fold_constants

A = p.Column("a", "int")
INDEX = MinMax("a").bind([A])


def test_constants_are_folded_and_compared_from_either_side() -> None:
    with mappings():
        constant("five")(lambda n: n)
        constant("yes")(lambda n: np.True_)
        constant("fails")(lambda n: 1 / 0)
        five = p.Call("five", (p.Literal(5, "int"),), "python:mine.five#1", (), "int")
        assert str(clause_for(p.Comparison("<", five, A), [INDEX])) == "max(a) > 5"
        yes = p.Call("yes", (p.Literal(1),), "python:mine.yes#1", (), "boolean")
        assert clause_for(yes, [INDEX]) is KEEP_ALL
        assert clause_for(p.Not(yes), [INDEX]) is KEEP_NONE
        reasons: list[str] = []
        fails = p.Call("fails", (p.Literal(1),), "python:mine.fails#1", (), "boolean")
        assert fold_constants(fails, report=reasons.append) == fails
        assert "ZeroDivisionError" in reasons[0]


CONVERTED = [
    (5, "double"),  # NULL to Spark
    (True, "int"),
    ("5", "int"),
    (2**31, "int"),  # wraps around
    (5, "string"),  # its text
    (0.1, "float"),  # rounded
    (Decimal("1.005"), "decimal(10,2)"),
    (Decimal("100.00"), "decimal(4,2)"),  # NULL to Spark
    (dt.datetime(2024, 1, 1), "timestamp"),  # by the clocks of a worker
    (dt.datetime(2024, 1, 1), "date"),
    (("5",), "array<bigint>"),
    (dt.time(3), "time(6)"),  # a number of nanoseconds to Spark
]


@pytest.mark.parametrize(("value", "kind"), CONVERTED, ids=str)
def test_a_constant_that_spark_would_convert_is_not_folded(value: Any, kind: str) -> None:
    with mappings():
        constant("converted")(lambda n: value)
        call = p.Call("converted", (p.Literal(1, "int"),), "python:mine.converted#1", (), kind)
        reasons: list[str] = []
        assert fold_constants(call, report=reasons.append) == call
        assert reasons == [f"converted of these constants returned {type(value).__name__}, not a value of {kind}"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *[(5, "int"), (0.5, "float"), (math.nan, "float"), (Decimal("1.05"), "decimal(10,2)"), (None, "date")],
        *[("5", "string"), (("5", None), "array<string>")],
    ],
    ids=str,
)
def test_a_constant_of_the_declared_type_is_folded(value: Any, kind: str) -> None:
    with mappings():
        constant("kept")(lambda n: value)
        call = p.Call("kept", (p.Literal(1, "int"),), "python:mine.kept#1", (), kind)
        assert fold_constants(call) == p.Literal(value, kind)


@pytest.mark.parametrize(("value", "kind"), [(19723, "date"), (3 * 3600 * 10**9, "time(6)")])
def test_a_constant_of_times_is_not_folded_for_python_gets_an_object(value: int, kind: str) -> None:
    with mappings():
        constant("shown")(str)
        time = p.Call("shown", (p.Literal(value, kind),), "python:mine.shown#1", (), "string")
        assert fold_constants(time) == time


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_function_of_null_is_null(strict: bool) -> None:
    with mappings():
        declare("near", null_in_null_out=strict)
        near = p.Call("near", (A, p.Literal(None, "int")), "python:mine.near#1", (), "boolean")
        expected = KEEP_NONE if strict else KEEP_ALL
        assert clause_for(near, [INDEX]) is expected
        assert clause_for(p.Not(near), [INDEX]) is expected
        either = p.Or((near, p.Comparison("=", A, p.Literal(5, "int"))))
        assert str(clause_for(either, [INDEX])) == ("min(a) <= 5 <= max(a)" if strict else str(KEEP_ALL))
