"""What GeoBox says of computed coordinates loses no row; and rules that would are caught."""

from __future__ import annotations

import math
import re
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.clauses import keep_mask
from geoskip.indexes.geobox import arithmetic
from geoskip.indexes.geobox.arithmetic import BoxArithmetic
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.geobox.units import NoBoxReason, units_of
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate
from geoskip.types import SqlType, sql_type
from tests.geobox_oracle import collected, pair_rows
from tests.mapped import kept, metadata

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
    ([[(0.0, 5.0), (9.0, -9.0)]], And((Comparison("<", of("abs", X), number(1.0)), SHIFTED))),
]


@given(st.lists(pair_rows, min_size=1, max_size=4), conditions)
@settings(max_examples=400, deadline=None)
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
    box = np.array([-99.99]), np.array([99.99])
    ends = arithmetic._bounds(sql_type("decimal(4,2)"), *box, np.array([False]))
    assert [end.to_pylist() for end in ends] == [[Decimal("-99.99")], [Decimal("99.99")]]


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


def _either(self: BoxArithmetic) -> tuple[NoBoxReason, ...]:
    return (NoBoxReason.NULL, NoBoxReason.ONLY_X, NoBoxReason.ONLY_Y)


def _paired(op: str, kind: SqlType, left: Any, right: Any) -> Any:
    (a, b, _), (c, d, _) = left, right
    low, high = (a - c, b - d) if op == "-" else (a * c, b * d) if op == "*" else (a + c, b + d)
    return low, high, True


def _of_doubles(op: str, kind: SqlType, left: Any, right: Any, *, right_one: Any = arithmetic._operated) -> Any:
    return right_one(op, sql_type("double"), left, right)


def _of_ends(op: str, kind: SqlType, left: Any, right: Any, *, right_one: Any = arithmetic._operated) -> Any:
    low, high, sure = right_one(op, kind, left, right)
    return (np.minimum(left[0] ** 2, left[1] ** 2) if op == "square" else low), high, sure


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a row that lacks one coordinate lacks the other": (BoxArithmetic, "null", _either),
    "a row that lacks one coordinate has no other kind of NULL": (
        BoxArithmetic,
        "null",
        lambda self: (NoBoxReason.NULL,),
    ),
    "ends are paired as they come": (arithmetic, "_operated", _paired),
    "a square is no less than those of the ends": (arithmetic, "_operated", _of_ends),
    "all numbers are doubles": (arithmetic, "_operated", _of_doubles),
    "nothing leaves its type": (arithmetic, "_fits", lambda kind, low, high: True),
    "doubles hold every number": (arithmetic, "_ROUNDINGS", 0.0),
    "only boxes hold what leaves its type": (BoxArithmetic, "is_total", True),
    "decimals are never rounded": (arithmetic, "_unit", lambda kind: 0.0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, rule, wrong = MUTANTS[name]
    monkeypatch.setattr(place, rule, wrong)
    with pytest.raises(AssertionError, match="lost a row"):
        check_all()
