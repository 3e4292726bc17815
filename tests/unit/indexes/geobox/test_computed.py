"""What GeoBox says of computed coordinates loses no row; and rules that would are caught."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.bounds import derive
from geoskip.bounds.arithmetic import absolute, corners, fit, square
from geoskip.bounds.interval import Interval
from geoskip.clauses import keep_mask
from geoskip.indexes.geobox.computed import Coordinate, UnitFiles, bounds_of_type
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import UnitSort, units_of
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate
from geoskip.types import SqlType, sql_type
from tests.support.geobox_oracle import collected, pair_rows
from tests.support.mapped import kept, metadata
from tests.support.planting import Patch, attribute, before, function
from tests.support.strategies import examples

X, Y = Column("lng", "double"), Column("lat", "double")
PAIR = GeoBox("lng", "lat", boxes=2).bind((X, Y))
CATALYST = "org.apache.spark.sql.catalyst.expressions."
NAMES = {"+": "Add", "-": "Subtract", "*": "Multiply", "abs": "Abs", "pow": "Pow"}
ORDERS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def of(name: str, *args: Predicate) -> Call:
    return Call(name, args, CATALYST + NAMES[name], ("true",), "double")


def number(value: float) -> Literal:
    return Literal(value, "double")


def value_of(node: Predicate, row: tuple[Any, Any]) -> Any:
    """What Spark makes of a row: doubles, NaN above all, NULL for NULL."""
    match node:
        case Column("lng"):
            return row[0]
        case Column("lat"):
            return row[1]
        case Literal(value):
            return value
        case Call(name, args):
            values = [value_of(arg, row) for arg in args]
            if None in values:
                return None
            with np.errstate(all="ignore"):
                a, *rest = map(np.float64, values)
                steps = {
                    "+": np.add,
                    "-": np.subtract,
                    "*": np.multiply,
                    "abs": np.abs,
                    "pow": np.power,
                    "sqrt": np.sqrt,
                }
                return steps[name](a, *rest)
        case Comparison(op, left, right):
            a, b = value_of(left, row), value_of(right, row)
            if a is None or b is None:
                return None
            return bool(ORDERS[op](*((1, 0) if math.isnan(a) else (a, b))))
        case In(child, values):
            a = value_of(child, row)
            return None if a is None else a in [v.value for v in values]
        case IsNull(child):
            return value_of(child, row) is None
        case Not(child):
            found = value_of(child, row)
            return None if found is None else not found
        case And(parts):
            found = [value_of(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [value_of(part, row) for part in parts]
            return True if True in found else None if None in found else False
    raise NotImplementedError(node)


small = st.sampled_from([-6.0, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0, 5.5])
expressions = st.recursive(
    st.sampled_from([X, Y, of("+", X, Y), of("-", X, Y), of("-", Y, X), of("*", Y, X), of("*", X, X)]),
    lambda inner: st.one_of(
        st.builds(lambda e: of("abs", e), inner),
        st.builds(lambda op, e, c: of(op, e, number(c)), st.sampled_from(["+", "-", "*"]), inner, small),
        st.builds(lambda e, c: of("-", number(c), e), inner, small),
        st.builds(lambda e: of("pow", e, number(2.0)), inner),
        st.builds(lambda e: of("*", e, e), inner),
        st.builds(lambda e, other: of("+", e, other), inner, inner),
    ),
    max_leaves=3,
)
leaves = st.one_of(
    st.builds(lambda op, e, c: Comparison(op, e, number(c)), st.sampled_from(sorted(ORDERS)), expressions, small),
    st.builds(lambda e, cs: In(e, tuple(map(number, cs))), expressions, st.lists(small, min_size=1, max_size=3)),
    st.builds(IsNull, expressions),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda a, b: And((a, b)), inner, inner),
        st.builds(lambda a, b: Or((a, b)), inner, inner),
    ),
    max_leaves=3,
)


def check(files: list[list[Any]], node: Predicate) -> None:
    problems: list[str] = []
    keeps = keep_mask(clause_for(node, [PAIR], problems.append), collected(PAIR, files)).tolist()
    assert not problems
    for keep, rows in zip(keeps, files, strict=True):
        assert keep or not [row for row in rows if value_of(node, row) is True], f"{node} lost a row"


SHIFTED = Comparison(">", of("*", Y, number(2.0)), number(5.5))
APART = Comparison(">", of("-", X, Y), number(5.5))
CASES: list[tuple[list[list[Any]], Predicate]] = [
    ([[(None, 5.0)]], SHIFTED),
    ([[(math.nan, 5.0), (1.0, 1.0)]], SHIFTED),
    ([[(6.0, 0.0), (1.0, 5.0), (6.0, 5.0), (1.0, 0.0)]], APART),
    ([[(-6.0, -5.0), (1.0, 5.0)]], Comparison(">", of("*", X, Y), number(5.5))),
    ([[(1.0, None)]], IsNull(of("+", X, Y))),
    ([[(1.0, None)]], Comparison(">", of("*", X, X), number(0.5))),
    (
        [[(x, y) for y in (0.0, 900.0) for x in (-6.0, 0.5, 6.0)]],
        Comparison("<", of("+", of("*", X, X), of("pow", Y, number(2.0))), number(0.5)),
    ),
    (
        [[(x, y) for y in (0.0, 900.0) for x in (-6.0, 0.5, 6.0)]],
        Comparison("<", of("pow", X, number(2.0)), number(0.5)),
    ),
    ([[(0.0, 5.0), (9.0, -9.0)]], And((Comparison("<", of("abs", X), number(1.0)), SHIFTED))),
]


@pytest.mark.slow
@given(st.lists(pair_rows, min_size=1, max_size=4), conditions)
@settings(max_examples=examples(400), deadline=None)
@example(*CASES[0])
@example(*CASES[1])
def test_no_row_is_lost(files: list[list[Any]], node: Predicate) -> None:
    check(files, node)


@pytest.mark.parametrize(("files", "node"), CASES, ids=lambda value: str(value)[:40])
def test_what_is_kept_for_a_reason(files: list[list[Any]], node: Predicate) -> None:
    check(files, node)


def test_conditions_are_joined_box_by_box() -> None:
    files = collected(PAIR, [[(0.0, 5.0)] * 4 + [(90.0, -9.0)] * 4])
    here, there = Comparison("<", of("abs", X), number(1.0)), Comparison("<", of("*", Y, number(2.0)), number(0.0))
    for node, expected in ((here, True), (there, True), (And((here, there)), False)):
        assert keep_mask(clause_for(node, [PAIR]), files).tolist() == [expected]


ROUNDED: list[tuple[str, Any, str, Any, bool]] = [
    ("decimal(10,2)", Decimal("0.10"), "<=", Decimal("0.10"), True),
    ("decimal(10,2)", Decimal("0.30"), ">=", Decimal("0.30"), True),
    ("decimal(10,2)", Decimal("0.30"), "=", Decimal("0.30"), True),
    ("decimal(10,2)", Decimal("0.30"), ">", Decimal("0.31"), False),
    ("bigint", 2**53 + 1, ">", 2**53, True),
    ("bigint", 2**53 - 1, ">", 2**53, False),
    ("bigint", -(2**53) - 1, "<", -(2**53), True),
    ("bigint", 2**53 + 1, "<>", 2**53, True),
    ("int", 5, "<>", 5, False),
]


@pytest.mark.parametrize(("kind", "value", "op", "literal", "expected"), ROUNDED)
def test_a_number_is_compared_with_what_it_was_rounded_to(
    kind: str, value: Any, op: str, literal: Any, expected: bool
) -> None:
    x = Column("x", kind)
    index = GeoBox("CAST(x AS double)", "lat").bind((Cast(x, "double", kind), Y))
    asked = Comparison("=" if op == "<>" else op, x, Literal(literal, kind))
    node = Not(asked) if op == "<>" else asked
    assert keep_mask(clause_for(node, [index]), collected(index, [[(float(value), 1.0)]])).tolist() == [expected]


def test_the_bounds_of_decimals_fit_their_type() -> None:
    """The engine takes no others, and would evaluate nothing for any file."""
    kind, ends = "decimal(4,2)", [Decimal("-99.99"), Decimal("99.99")]
    index = GeoBox("lng", "lat", boxes=1).bind((Column("lng", kind), Column("lat", kind)))
    files = metadata(index, [(pa.array(ends, pa.decimal128(4, 2)),) * 2], (kind, kind))
    coordinates = {"x": Coordinate("x", 0, sql_type(kind))}
    found = UnitFiles(units_of(files, str(index), index.counts), coordinates)
    assert [found.summary("x", end).to_pylist()[0] for end in ("min", "max")] == ends


TYPED: dict[str, tuple[str, tuple[Any, Any], str, str, Any, bool]] = {
    "an int that is too large wraps around": ("int", (2**31 - 1, 1), "+", "<", 0, True),
    "a smaller one does not": ("int", (2**31 - 2, 1), "+", "<", 0, False),
    "or makes the product wrap around": ("int", (2**16, 2**16), "*", "=", 0, True),
    "smallint as well": ("smallint", (-(2**15), 1), "-", ">", 0, True),
    "bigint as well": ("bigint", (2**63 - 1, 2**63 - 1), "+", "=", -2, True),
    "a bigint beyond the whole doubles": ("bigint", (2**53, 1), "+", "=", 2**53 + 1, True),
    "a product beyond them": ("bigint", (94906267, 94906267), "*", "=", 94906267**2, True),
    "a product of ints": ("int", (40_000, 50_000), "*", ">=", 2_000_000_000, True),
    "and not above": ("int", (40_000, 50_000), "*", ">", 2_000_000_000, False),
    "a bigint far off": ("bigint", (2**53, 1), "+", ">", 2**54, False),
    "a float that absorbs": ("float", (16777216.0, 1.0), "+", "=", 16777216.0, True),
    "a float product that vanishes": ("float", (1e-30, 1e-30), "*", "=", 0.0, True),
    "a float far off": ("float", (16777216.0, 1.0), "+", ">", 16777300.0, False),
    "decimals": ("decimal(10,2)", (Decimal("0.10"), Decimal("0.20")), "+", "=", Decimal("0.30"), True),
    "decimals, above": ("decimal(10,2)", (Decimal("0.10"), Decimal("0.20")), "+", ">", Decimal("0.31"), False),
    "decimals that cancel": (
        "decimal(18,2)", (Decimal("9007199254740993.01"), Decimal("9007199254740992.99")), "-", "=", Decimal("0.02"),
        True,
    ),
}  # fmt: skip
"""Rows that Spark's arithmetic makes TRUE, or does not; of ints without ANSI mode."""

RESULTS = {
    "decimal(10,2)": "decimal(11,2)",
    "decimal(18,2)": "decimal(19,2)",
}


def typed(name: str) -> bool:
    """Is the file with the row kept?"""
    kind, row, op, compared, value, _ = TYPED[name]
    result = RESULTS.get(kind, kind)
    x, y = Column("lng", kind), Column("lat", kind)
    index = GeoBox("lng", "lat").bind((x, y))
    arrow = {"int": pa.int32(), "smallint": pa.int16(), "bigint": pa.int64(), "float": pa.float32()}
    decimal = re.match(r"decimal\((\d+),(\d+)\)", kind)
    stored = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else arrow[kind]
    made = Call(op, (x, y), CATALYST + NAMES[op], (), result)
    node = Comparison(compared, made, Literal(value, result))
    files = metadata(index, [tuple(pa.array([v], stored) for v in row)], (kind, kind))
    return kept(node, index, files) == [True]


@pytest.mark.parametrize("name", TYPED)
def test_sums_and_products_of_other_types(name: str) -> None:
    assert typed(name) is TYPED[name][-1]


def rounded_up() -> bool:
    """Is a file kept whose product is rounded up to the scale that it is left, and then grows?"""
    kind = "decimal(38,6)"
    x, y = Column("lng", kind), Column("lat", kind)
    index = GeoBox("lng", "lat").bind((x, y))
    product = Call("*", (x, y), CATALYST + "Multiply", (), kind)
    grown = Call("*", (product, Literal(Decimal(10**6), "decimal(7,0)")), CATALYST + "Multiply", (), kind)
    row = tuple(pa.array([Decimal(v)], pa.decimal128(38, 6)) for v in ("0.000009", "0.1"))
    node = Comparison("=", grown, Literal(Decimal("1.000000"), kind))
    return kept(node, index, metadata(index, [row], (kind, kind))) == [True]


def test_a_decimal_that_is_rounded_on_the_way_is_kept() -> None:
    assert rounded_up()


def nulls_kept(op: str, axes: str, rows: list[tuple[int | None, int | None]]) -> list[bool]:
    """Which files of one row of decimal(38,0) are kept for ``(lng op lat) IS NULL``."""
    kind = "decimal(38,0)"
    columns = {"x": Column("lng", kind), "y": Column("lat", kind)}
    index = GeoBox("lng", "lat").bind(tuple(columns.values()))
    made = Call(op, tuple(columns[axis] for axis in axes), CATALYST + NAMES[op], (), kind)
    files = [
        tuple(pa.array([None if v is None else Decimal(v)], pa.decimal128(38, 0)) for v in row) for row in rows
    ]  # fmt: skip
    return kept(IsNull(made), index, metadata(index, files, (kind, kind)))


ALONE: list[tuple[int | None, int | None]] = [(10**37, None), (None, 1)]


def test_what_may_be_null_or_nan_is_kept() -> None:
    assert nulls_kept("+", "xy", [(10**37, 9 * 10**37), (1, 2)]) == [True, False]
    assert nulls_kept("*", "xx", ALONE) == [True, True]
    apart = of("-", of("*", X, number(1e308)), of("*", Y, number(1e308)))
    files = collected(PAIR, [[(50.0, 60.0)], [(0.1, 0.2)]])
    assert kept(Comparison(">", apart, number(5.0)), PAIR, files) == [True, False]


def test_weighted_sums_are_bounded() -> None:
    weighted = of("+", of("*", number(2.0), X), of("*", Y, number(-3.0)))
    files = collected(PAIR, [[(1.0, 1.0), (2.0, 3.0)], [(10.0, -5.0), (11.0, -4.0)]])
    for op, value, expected in ((">", 5.5, [False, True]), ("<", 0.0, [True, False]), (">=", 37.5, [False, False])):
        assert kept(Comparison(op, weighted, number(value)), PAIR, files) == expected


def squared(e: Predicate, name: str) -> Predicate:
    return of("pow", e, number(2.0)) if name == "pow" else of("*", e, e)


@pytest.mark.parametrize("name", ["pow", "*"])
def test_the_distance_from_a_place_is_bounded(name: str) -> None:
    about = [(1.0, 1.0), (3.0, 3.0), (1.0, 3.0), (3.0, 1.0)]
    files = collected(PAIR, [about, [(10.0, -5.0), (11.0, -4.0)], [(2.0, 9.0)], [(None, 2.0)]])
    apart = of("+", squared(of("-", X, number(2.0)), name), squared(of("-", Y, number(2.0)), name))
    for op, value, expected in (("<", 2.1, "YNNN"), (">", 3.0, "NYYN"), ("<=", 49.0, "YNYN"), ("<", 0.0, "NNNN")):
        node = Comparison(op, apart, number(value))
        assert kept(node, PAIR, files) == [letter == "Y" for letter in expected], node


def test_few_of_many_sums_are_remembered() -> None:
    files = collected(PAIR, [[(1.0, 1.0)]])
    for factor in range(40):
        weighted = of("+", of("*", number(float(factor)), X), Y)
        assert kept(Comparison(">", weighted, number(1.5 + factor)), PAIR, files) == [False]
    assert len(units_of(files, str(PAIR), PAIR.counts)._derived) < 20


def test_a_long_sum_does_not_take_long() -> None:
    long: Predicate = of("+", X, Y)
    for _ in range(400):
        long = of("+", long, number(1.0))
    started = time.process_time()
    assert kept(Comparison(">", long, number(1e9)), PAIR, collected(PAIR, [[(1.0, 1.0)]])) == [False]
    assert time.process_time() - started < 2


def check_all() -> None:
    for files, node in CASES:
        check(files, node)
    for name, (*_, true) in TYPED.items():
        assert typed(name) or not true, f"{name} lost a row"
    assert rounded_up(), "rounding on the way lost a row"
    assert all(nulls_kept("*", "xx", ALONE)), "a product that is NULL lost a row"


def _corners(change: Callable[[Callable[..., Interval], str, SqlType, Interval, Interval], Interval]) -> Patch:
    """A mutant of the arithmetic of two operands."""
    return lambda patch: function(patch, corners, change)


def _paired(original: Any, sign: str, kind: SqlType, left: Interval, right: Interval) -> Interval:
    """The least result of both least values, and the greatest of both greatest."""
    low, high = (
        original(sign, kind, *(replace(side, low=at(side), high=at(side)) for side in (left, right)))
        for at in (lambda side: side.low, lambda side: side.high)
    )
    return replace(original(sign, kind, left, right), low=low.low, high=high.high)


def _in_doubles(original: Any, sign: str, kind: SqlType, left: Interval, right: Interval) -> Interval:
    return original(sign, sql_type("double") if kind.kind == "float" else kind, left, right)  # type: ignore[no-any-return]


def _least_of_corners(original: Any, interval: Interval) -> Interval:
    found = original(interval)
    ends = np.minimum(interval.low * interval.low, interval.high * interval.high)
    return replace(found, low=np.where(found.low <= found.high, ends, found.low))


def _of_ends(original: Any, kind: SqlType, interval: Interval) -> Interval:
    """The absolute value of the ends alone."""
    return replace(original(kind, interval), low=np.minimum(abs(interval.low), abs(interval.high)))


def _null(*reasons: UnitSort) -> Patch:
    return lambda patch: attribute(patch, UnitFiles, "null_reasons", lambda files, axis: reasons)


def _doubles_are_exact(original: Any, kind: SqlType, low: Any, high: Any, lacks: Any) -> Any:
    ends = [np.pad(end, (0, len(lacks) - len(end))) for end in (low, high)]
    whole = kind.kind == "bigint"
    return tuple(pa.array(e.astype(np.int64), mask=lacks) for e in ends) if whole else original(kind, low, high, lacks)


MUTANTS: dict[str, Patch] = {
    "a row that lacks one coordinate lacks the other": _null(UnitSort.NULL, UnitSort.ONLY_X, UnitSort.ONLY_Y),
    "a row that lacks one coordinate has no other kind of NULL": _null(UnitSort.NULL),
    "ends are paired as they come": _corners(_paired),
    "a square is no less than those of the ends": lambda patch: function(patch, square, _least_of_corners),
    "an absolute value is no less than those of the ends": lambda patch: function(patch, absolute, _of_ends),
    "floats are doubles": _corners(_in_doubles),
    "doubles hold every number": lambda patch: function(patch, bounds_of_type, _doubles_are_exact),
    "nothing leaves its type": lambda patch: function(patch, fit, lambda original, interval, kind: interval),
    "only boxes hold what leaves its type": lambda patch: function(
        patch, derive, lambda original, *given: (found := original(*given)) and replace(found, is_total=True)
    ),
    "decimals are never rounded": lambda patch: before(patch, Interval, "coarser", lambda original, self, scale: self),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError, match="lost a row"):
        check_all()
