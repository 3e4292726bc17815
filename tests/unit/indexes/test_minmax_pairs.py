"""What is computed from two columns is bounded by the MinMax of both; planted mutants are caught."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.bounds.arithmetic import corners
from geoskip.bounds.interval import counts_of
from geoskip.bounds.sort_keys import SortKeys
from geoskip.clauses import Clause
from geoskip.indexes.minmax import MinMax, clause_of_several
from geoskip.indexes.range_clauses import RangesCompare
from geoskip.metadata import FileMetadata
from geoskip.predicates import Column, Comparison, IsNull, Literal, Not, Predicate
from geoskip.types import sql_type
from tests.support.mapped import kept, spark, together
from tests.support.planting import Patch, before, function
from tests.support.strategies import examples
from tests.unit.bounds.test_arithmetic import X, Y, formulas, of, value

INDEXES = (MinMax("lng").bind((X,)), MinMax("lat").bind((Y,)))
Row = tuple[float | None, float | None]
FILES: list[list[Row]] = [
    [(10.0, 48.0), (10.5, 48.5)],
    [(-100.0, -40.0), (-99.0, -40.5)],
    [(150.0, 10.0), (160.0, 20.0)],
    [(10.0, 48.0), (150.0, -30.0)],
    [(10.0, None), (None, 48.0), (10.1, 48.1)],
    [(None, None)],
    [(math.nan, 48.0), (10.0, 48.0)],
    [(math.inf, 48.0), (10.0, 48.0)],
    [(1e308, 1e308)],
]
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip


def metadata() -> FileMetadata:
    columns = [[[pa.array([row[axis] for row in file], pa.float64())] for file in FILES] for axis in (0, 1)]
    return together(*((index, files, ["double"]) for index, files in zip(INDEXES, columns, strict=True)))


def is_true(node: Predicate, row: Row) -> bool:
    """Spark's answer: NaN is greater than all numbers and equals itself; NULL in is NULL out."""
    match node:
        case Not(child):
            return None not in row and not is_true(child, row)
        case IsNull():
            return None in row
        case Comparison(op, left, right) if None not in row:
            ends = [value(side, row) for side in (left, right)]  # type: ignore[arg-type]
            return ORDERS[op](*((math.isnan(end), 0 if math.isnan(end) else end) for end in ends))
    return False


@functools.cache
def cases() -> list[tuple[Predicate, list[bool]]]:
    computed = [*formulas(11.0, 50.0), of("+", X, Y), of("-", X, Y), of("*", X, Y), of("*", 2.0, of("+", X, Y))]
    some: list[Predicate] = [IsNull(each) for each in computed]
    for each, op in itertools.product(computed, ORDERS):
        some += [Comparison(op, each, Literal(wanted)) for wanted in (-30.0, 0.05, 58.0, 300.0, 9000.0, 1e308)]
        some += [Comparison(op, X, Y), Comparison(op, each, X), Comparison(op, of("*", Y, 2.0), each)]
    some += [Not(each) for each in some if isinstance(each, Comparison)]
    return [(node, [any(is_true(node, row) for row in file) for file in FILES]) for node in some]


def search() -> int:
    """How many files are skipped, none of them with a matching row."""
    files, skipped = metadata(), 0
    for node, needed in cases():
        keeps = kept(node, INDEXES, files)
        lost = [file for file, need, keep in zip(FILES, needed, keeps, strict=True) if need and not keep]
        assert not lost, f"{node} lost a row of {lost[0]}"
        skipped += keeps.count(False)
    return skipped


@pytest.mark.slow
def test_no_row_is_lost_and_many_files_are_skipped() -> None:
    assert search() > 0.25 * len(cases()) * len(FILES)


def test_distances_on_the_globe_are_near_by_the_bounds_of_both() -> None:
    haversine = next(formulas(11.0, 50.0))
    near = Comparison("<", haversine, Literal(250.0))  # kilometres
    assert kept(near, INDEXES, metadata())[:3] == [True, False, False]
    assert kept(near, INDEXES[:1], metadata()) == [True] * len(FILES)


def row_of(kind: str, values: list[int | None]) -> pa.Array:
    """Small numbers as values of a type."""
    arrow = sql_type(kind).arrow
    if kind == "string":
        return pa.array([None if v is None else chr(v + 75) for v in values], arrow)
    if kind.startswith("decimal"):
        return pa.array([None if v is None else Decimal(v) / 4 for v in values], arrow)
    return pa.array(values, arrow)


TYPES = ["bigint", "date", "timestamp", "timestamp_ntz", "decimal(10,2)", "double", "boolean"]
NUMBERS = st.one_of(st.none(), st.integers(-9, 9))


@pytest.mark.parametrize("kind", [*TYPES, "string"])
@settings(max_examples=examples(60), deadline=None)
@given(
    files=st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3), min_size=1, max_size=4),
    op=st.sampled_from(sorted(ORDERS)),
    negated=st.booleans(),
)
@example(files=[[(1, 2), (3, 4)], [(5, 2)], [(2, 2)], [(None, 1), (1, None)]], op="<", negated=False)
def test_two_columns_are_compared(kind: str, files: list[list[Any]], op: str, negated: bool) -> None:
    if kind == "boolean":
        files = [[tuple(None if v is None else v > 0 for v in row) for row in rows] for rows in files]
    a, b = Column("a", kind), Column("b", kind)
    indexes = (MinMax("a").bind((a,)), MinMax("b").bind((b,)))
    columns = [[[row_of(kind, [row[axis] for row in rows])] for rows in files] for axis in (0, 1)]
    stored = together(*((index, column, [kind]) for index, column in zip(indexes, columns, strict=True)))
    node: Predicate = Comparison(op, a, b)
    keeps = kept(Not(node) if negated else node, indexes, stored)
    for rows, keep in zip(files, keeps, strict=True):
        assert keep or not any(None not in row and ORDERS[op](*row) is not negated for row in rows)


@pytest.mark.parametrize("kind", TYPES[:-1])
def test_files_are_skipped_by_two_columns(kind: str) -> None:
    a, b = Column("a", kind), Column("b", kind)
    indexes = (MinMax("a").bind((a,)), MinMax("b").bind((b,)))
    files = [[(1, 2), (3, 4)], [(5, 2)], [(2, 2)], [(None, 1), (None, 2)]]
    columns = [[[row_of(kind, [row[axis] for row in rows])] for rows in files] for axis in (0, 1)]
    stored = together(*((index, column, [kind]) for index, column in zip(indexes, columns, strict=True)))
    for op, expected in (("<", "YNNN"), ("<=", "YNYN"), (">", "YYNN"), (">=", "YYYN"), ("=", "YNYN")):
        assert kept(Comparison(op, a, b), indexes, stored) == [letter == "Y" for letter in expected], op


def test_decimals_of_which_some_exceed_64_bits_are_compared() -> None:
    kind = "decimal(38,2)"
    a, b = Column("a", kind), Column("b", kind)
    indexes = (MinMax("a").bind((a,)), MinMax("b").bind((b,)))
    rows = [(4 * 10**16, 5 * 10**16), (1, 10**30), (2, 1)]  # the bounds of b are rounded, those of a are not
    columns = [[[pa.array([Decimal(row[axis])], pa.decimal128(38, 2))] for row in rows] for axis in (0, 1)]
    stored = together(*((index, column, [kind]) for index, column in zip(indexes, columns, strict=True)))
    for node in (Comparison("<", a, b), Comparison(">", b, a)):
        assert kept(node, indexes, stored)[:2] == [True, True], node


def test_a_null_that_a_function_replaces_is_compared() -> None:
    files = [[(None, 48.0), (60.0, 49.0)], [(59.0, 48.0), (60.0, 49.0)]]
    columns = [[[pa.array([row[axis] for row in file])] for file in files] for axis in (0, 1)]
    stored = together(*((index, column, ["double"]) for index, column in zip(INDEXES, columns, strict=True)))
    replaced = spark("Greatest", "greatest", X, 5.0, type="double")
    for each in (replaced, of("+", replaced, 0.5)):
        for node in (Comparison("<", each, Y), Comparison(">", Y, each)):
            assert kept(node, INDEXES, stored) == [True, False]


@pytest.mark.parametrize(("end", "op"), [(2**63 - 1, "<"), (-(2**63), ">")])
def test_what_may_throw_is_kept_even_beside_the_last_number(end: int, op: str) -> None:
    a, b = Column("a", "bigint"), Column("b", "bigint")
    indexes = (MinMax("a").bind((a,)), MinMax("b").bind((b,)))
    columns = [[[pa.array([number])] for number in numbers] for numbers in ((end, end), (2**62, 2**61))]
    stored = together(*((index, column, ["bigint"]) for index, column in zip(indexes, columns, strict=True)))
    twice = spark("Multiply", "*", b, Literal(2, "bigint"), type="bigint")
    assert kept(Comparison(op, a, twice), indexes, stored) == [True, False]


def the_columns_are_exchanged(patch: pytest.MonkeyPatch) -> None:
    def exchanged(original: Any, node: Predicate, x: MinMax, y: MinMax) -> Clause | None:
        return original(node, MinMax(x.expr).bind(y.bound), MinMax(y.expr).bind(x.bound))  # type: ignore[no-any-return]

    function(patch, clause_of_several, exchanged)


def the_wrong_ends_are_compared(patch: pytest.MonkeyPatch) -> None:
    def keep(original: Any, clause: RangesCompare, files: Any) -> Any:
        return original(replace(clause, left=clause.right, right=clause.left), files)

    before(patch, RangesCompare, "keep", keep)


def nan_is_no_greatest_value(patch: pytest.MonkeyPatch) -> None:
    before(patch, SortKeys, "hull", lambda original, keys: keys)


def one_end_decides(patch: pytest.MonkeyPatch) -> None:
    def least_of_the_second(original: Any, sign: str, kind: Any, left: Any, right: Any) -> Any:
        low = np.where(right.low <= right.high, right.low, right.high)
        return original(sign, kind, left, replace(right, high=low))

    function(patch, corners, least_of_the_second)


def _none_of(patch: pytest.MonkeyPatch, left_out: str) -> None:
    def counts(original: Any, files: Any, name: str, field: str) -> Any:
        none = np.zeros(len(files), dtype=np.int64), np.ones(len(files), dtype=bool)
        return none if field == left_out else original(files, name, field)

    function(patch, counts_of, counts)


def nan_is_left_out(patch: pytest.MonkeyPatch) -> None:
    _none_of(patch, "nans")


def null_is_left_out(patch: pytest.MonkeyPatch) -> None:
    _none_of(patch, "nulls")


@pytest.mark.parametrize(
    "plant",
    [
        the_columns_are_exchanged,
        the_wrong_ends_are_compared,
        nan_is_no_greatest_value,
        one_end_decides,
        nan_is_left_out,
        null_is_left_out,
    ],
)
def test_a_mutant_is_caught(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    cases()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="lost a row"):
        search()
