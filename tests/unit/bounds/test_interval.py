"""Intervals from stored bounds: missing counts, bounds on one side only, and numbers rounded to doubles and floats."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import NAN_KEY
from geoskip.clauses import keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import Call, Cast, Column, Comparison, In, Literal, Predicate
from geoskip.registry import declare, mappings
from geoskip.types import sql_type
from tests.support.mapped import kept as files_kept
from tests.support.mapped import python, spark, together


def kept(node: Predicate, column: Column, *summaries: dict[str, Any]) -> list[bool]:
    """The files that a condition on a column keeps, for summaries in which all else is null."""
    index = MinMax(column.name).bind([column])
    arrow = sql_type(column.type).arrow
    assert arrow is not None
    stored = index.metadata_type(SourceColumn(column.name, column.type or "", arrow))
    files = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    return keep_mask(clause_for(node, [index]), files).tolist()


def test_files_of_nothing_but_nan_are_not_empty_and_unknown_ones_stay_unknown() -> None:
    inf = np.inf
    reals = Interval(
        "real",
        np.array([inf, -inf, -inf, 1.0]),
        np.array([-inf, inf, inf, inf]),
        nan=np.array([True, True, False, True]),
    )
    keys = reals.keys()
    assert keys.unknown.tolist() == [False, True, False, False]
    whole = keys.hull()
    assert (whole.low <= whole.high).tolist() == [True] * 4
    assert (whole.low[0], whole.high[0], whole.high[3]) == (NAN_KEY, NAN_KEY, NAN_KEY)


DAYS = {"min": dt.date(2024, 1, 1), "max": dt.date(2024, 1, 2), "nulls": 0, "rows": 2}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", 5), ("bigint", 5), ("double", 5.0), ("decimal(5,2)", Decimal("5.00")), ("string", "e"), ("binary", b"e")],
)
def test_a_file_without_bounds_is_empty_only_if_both_counts_are_known(kind: str, value: Any) -> None:
    x = Column("x", kind)
    counts = [{"rows": 2, "nulls": 2}, {"rows": None, "nulls": 0}, {"rows": 0, "nulls": None}, {}]
    summaries = [{"nans": 0, **one} for one in counts] if kind == "double" else counts
    for node in (Comparison("=", x, Literal(value, kind)), In(x, (Literal(value, kind), Literal(value, kind)))):
        assert kept(node, x, *summaries) == [False, True, True, True]


@pytest.mark.parametrize("op", ["=", "<=", ">="])
@pytest.mark.parametrize("number", [0.1, 0.3, -0.1, 16777217.0])  # 32 bits are above, above, below and below these
def test_a_float_literal_is_compared_as_the_float_of_32_bits(op: str, number: float) -> None:
    x, single = Column("x", "double"), float(np.float32(number))
    whole = {"min": single, "max": single, "nulls": 0, "nans": 0, "rows": 1}
    assert kept(Comparison(op, x, Literal(number, "float")), x, whole) == [True]


@pytest.mark.parametrize("target", ["double", "float"])
def test_a_decimal_is_rounded_to_doubles_within_its_interval(target: str) -> None:
    """Spark rounds decimals of few digits twice, those of many once."""
    x = Column("x", "decimal(20,2)")
    numbers = [Decimal(2**53 + step) / 100 for step in range(1, 100)]
    once = [float(number) for number in numbers]
    twice = [float(int(number * 100)) / 100 for number in numbers]
    assert once != twice
    for results in (once, twice):
        for number, result in zip(numbers, results, strict=True):
            result = float(np.float32(result)) if target == "float" else result
            node = Comparison("=", Cast(x, target, x.type), Literal(result, target))
            assert kept(node, x, {"min": number, "max": number, "nulls": 0, "rows": 1}) == [True], number


def test_days_are_counted_from_the_second_date_to_the_first() -> None:
    x = Column("x", "date")
    later = spark("DateAdd", "date_add", x, 5, type="date")
    for sides, days in (((later, x), 3), ((x, later), -7)):
        node = spark("DateDiff", "datediff", *sides, type="int")
        assert kept(Comparison(">", node, Literal(days, "int")), x, DAYS) == [True]
        assert kept(Comparison("<", node, Literal(days, "int")), x, DAYS) == [False]


@pytest.mark.parametrize("op", ["+", "-"])
def test_decimals_of_different_scales_are_added_at_one_scale(op: str) -> None:
    x, y = Column("x", "decimal(7,2)"), Column("y", "decimal(5,1)")
    stored = []
    for column, numbers in ((x, ["10.25", "12.50"]), (y, ["3.5", "4.5"])):
        array = pa.array(map(Decimal, numbers), sql_type(column.type).arrow)
        stored.append((MinMax(column.name).bind([column]), [[array]], [str(column.type)]))
    node = spark({"+": "Add", "-": "Subtract"}[op], op, x, y, type="decimal(8,2)")
    least, most = ("13.75", "17.00") if op == "+" else ("5.75", "9.00")
    for sign, end in (("<=", least), (">=", most)):
        for step, keeps in ((Decimal(0), True), (Decimal("0.01"), False)):
            bound = Decimal(end) + (step if sign == ">=" else -step)
            condition = Comparison(sign, node, Literal(bound, "decimal(8,2)"))
            assert files_kept(condition, [one[0] for one in stored], together(*stored)) == [keeps]


def mirrored(x: int | None) -> int | None:
    return None if x is None else -x


def test_the_known_bound_of_a_decreasing_function_is_the_other_one() -> None:
    x = Column("x", "int")
    node: Call = python(mirrored, x, type="int")
    half = {"nulls": 0, "rows": 2}
    summaries = [{"max": 5, **half}, {"min": 5, **half}]  # at least -5, at most -5
    with mappings():
        declare(mirrored, monotone="decreasing", null_in_null_out=True)
        assert kept(Comparison("<", node, Literal(-7, "int")), x, *summaries) == [False, True]
        assert kept(Comparison(">", node, Literal(-3, "int")), x, *summaries) == [True, False]


def test_ends_in_the_wrong_order_are_unknown() -> None:
    x = Column("x", "int")
    node: Call = python(mirrored, x, type="int")
    with mappings():
        declare(mirrored, monotone="increasing", null_in_null_out=True)
        for op in ("<", "=", ">"):
            assert kept(Comparison(op, node, Literal(-3, "int")), x, {"min": 1, "max": 5, "nulls": 0, "rows": 5}) == [
                True
            ]


def without_nan(x: float | None) -> float | None:
    return x if x == x else 0.0


def test_nan_may_have_any_result_of_a_declared_function() -> None:
    x = Column("x", "double")
    node = Comparison("<", python(without_nan, x, type="double"), Literal(1.0, "double"))
    with mappings():
        declare(without_nan, monotone="increasing", null_in_null_out=True)
        counts = {"min": 5.0, "max": 6.0, "nulls": 0, "rows": 3}
        assert kept(node, x, {**counts, "nans": 1}, {**counts, "nans": 0}) == [True, False]


def test_more_digits_are_rounded_away_than_64_bits_have() -> None:
    """As in a product of two columns of decimal(38,18)."""
    rounded = Interval("number", np.array([-5, 7]), np.array([3, 9]), 30).coarser(6)
    assert (rounded.low.tolist(), rounded.high.tolist()) == ([-1, 0], [1, 1])
