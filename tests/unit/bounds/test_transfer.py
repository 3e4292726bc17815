"""``least(x, c)`` and ``greatest(x, c)``, which guard ``acos`` against rounding; NULL becomes the constant."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.bounds.transfer import TRANSFER
from geoskip.indexes.minmax import MinMax
from geoskip.predicates import Call, Column, Comparison, Literal, Predicate
from tests.support.mapped import kept, metadata, spark

X = Column("x", "double")
INDEX = MinMax("x").bind([X])
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
VALUES = st.sampled_from([None, math.nan, -math.inf, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.inf])


def rank(value: float) -> tuple[bool, float]:
    """Spark's order, in which NaN is the greatest."""
    return value != value, 0.0 if value != value else value


def result(name: str, row: float | None, end: float) -> float:
    return end if row is None else (min if name == "least" else max)(row, end, key=rank)


def call(name: str, *args: Any) -> Call:
    return spark(name.capitalize(), name, *args, type="double")


def lost(name: str, op: str, end: float, than: float, files: list[list[float | None]], *, turned: bool) -> list[Any]:
    """The files with a matching row that are skipped."""
    node: Predicate = Comparison(op, call(name, end, X) if turned else call(name, X, end), Literal(than, "double"))
    keeps = kept(node, INDEX, metadata(INDEX, [[pa.array(rows, pa.float64())] for rows in files], ["double"]))
    return [
        rows
        for rows, keep in zip(files, keeps, strict=True)
        if not keep and any(ORDERS[op](rank(result(name, row, end)), rank(than)) for row in rows)
    ]


@settings(deadline=None)
@given(
    name=st.sampled_from(["least", "greatest"]),
    op=st.sampled_from(sorted(ORDERS)),
    end=st.sampled_from([-1.0, 0.0, 1.0]),
    than=st.sampled_from([-2.0, -1.0, -0.25, 0.0, 0.75, 1.0, 3.0]),
    files=st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3),
    turned=st.booleans(),
)
@example(name="least", op=">=", end=1.0, than=1.0, files=[[None, -2.0], [math.nan, -2.0], [math.nan]], turned=True)
@example(name="least", op="<", end=1.0, than=0.75, files=[[math.nan, 0.5]], turned=False)
@example(name="greatest", op="=", end=1.0, than=1.0, files=[[None, 2.0], [None]], turned=True)
def test_no_row_is_lost(
    name: str, op: str, end: float, than: float, files: list[list[float | None]], turned: bool
) -> None:
    assert lost(name, op, end, than, files, turned=turned) == []


def test_files_are_skipped() -> None:
    files = metadata(INDEX, [[pa.array(rows)] for rows in ([0.0, 0.4], [0.6, 2.0])], ["double"])
    inside = call("least", 1.0, call("greatest", -1.0, X))
    for node, expected in {
        Comparison(">", call("least", 1.0, X), Literal(0.5)): [False, True],
        Comparison(">", call("greatest", X, -1.0), Literal(0.5)): [False, True],
        Comparison(">", call("least", 1.0, X), Literal(1.0)): [False, False],
        Comparison("<", spark("Acos", "acos", inside, type="double"), Literal(1.0)): [False, True],
    }.items():
        assert kept(node, INDEX, files) == expected


@pytest.mark.parametrize("name", ["least", "greatest"])
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = TRANSFER[name.capitalize()]

    def null_stays_null(node: Call) -> Any:
        found = rule(node)
        return found and replace(found, takes_null=False)

    monkeypatch.setitem(TRANSFER, name.capitalize(), null_stays_null)
    file: list[float | None] = [None, 0.5 if name == "greatest" else -2.0]
    end = -1.0 if name == "greatest" else 1.0
    assert lost(name, "=", end, end, [file], turned=False) == [file]
