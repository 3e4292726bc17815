"""What GeoBox says of computed coordinates loses no row; and rules that would are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.clauses import keep_mask
from geoskip.indexes import geobox_arithmetic
from geoskip.indexes.geobox import GeoBox
from geoskip.indexes.geobox_arithmetic import Line
from geoskip.indexes.geobox_units import Boxless
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate
from tests.geobox_oracle import collected, pair_rows

X, Y = Column("lng", "double"), Column("lat", "double")
PAIR = GeoBox("lng", "lat", boxes=2).bind((X, Y))
CATALYST = "org.apache.spark.sql.catalyst.expressions."
NAMES = {"+": "Add", "-": "Subtract", "*": "Multiply", "abs": "Abs"}
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
                return abs(a) if name == "abs" else {"+": a.__add__, "-": a.__sub__, "*": a.__mul__}[name](*rest)
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
    ends = geobox_arithmetic._bounds("decimal(4,2)", *box, np.array([False]))
    assert [end.to_pylist() for end in ends] == [[Decimal("-99.99")], [Decimal("99.99")]]


def check_all() -> None:
    for files, node in CASES:
        check(files, node)


def _either(self: Line) -> tuple[Boxless, ...]:
    return (Boxless.NULL, Boxless.ONLY_X, Boxless.ONLY_Y)


def _paired(self: Line, boxes: Any) -> Any:
    low, high = (boxes.xmin, boxes.ymin), (boxes.xmax, boxes.ymax)
    a, b = ([side[axis] for axis in self.axes] for side in (low, high))
    if not self.op:
        return a[0], b[0]
    return (a[0] - a[1], b[0] - b[1]) if self.op == "-" else (a[0] * a[1], b[0] * b[1])


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "a row that lacks one coordinate lacks the other": ("null", _either),
    "a row that lacks one coordinate has no other kind of NULL": ("null", lambda self: (Boxless.NULL,)),
    "ends are paired as they come": ("ends", _paired),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, wrong = MUTANTS[name]
    monkeypatch.setattr(Line, method, wrong)
    with pytest.raises(AssertionError, match="lost a row"):
        check_all()
