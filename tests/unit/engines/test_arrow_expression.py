"""Expressions of pyarrow as predicates: what Arrow finds TRUE of a row, Spark does of the predicate."""

from __future__ import annotations

import datetime as dt
import operator
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given

from geoskip.engines.arrow_expression import predicate_of_arrow
from tests.support.engine_rows import NAN, TYPES, conditions, lost_rows, may_be_true, physical_rows, table

TABLE = table()
ROWS = physical_rows(TABLE)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
TEXTS = {"starts": pc.starts_with, "ends": pc.ends_with, "contains": pc.match_substring, "like": pc.match_like}


def column(name: str) -> pc.Expression:
    """A field of the table, by its path."""
    return pc.field(*name.split("."))


def rendered(condition: tuple[Any, ...]) -> pc.Expression:
    """A condition as an expression of Arrow."""
    match condition:
        case "compare", name, op, value:
            return OPERATORS[op](column(name), value)
        case "compare_columns", left, op, right:
            return OPERATORS[op](column(left), column(right))
        case "isin", name, values:
            return column(name).isin(list(values))
        case "null", name:
            return column(name).is_null()
        case "nan", name:
            return column(name).is_nan()
        case "text", name, kind, pattern:
            return TEXTS[kind](column(name), pattern)
        case "year", name, op, value:
            return OPERATORS[op](pc.year(column(name)), value)
        case "column", name:
            return column(name)
        case "not", inner:
            return ~rendered(inner)
        case "and", left, right:
            return rendered(left) & rendered(right)
        case "or", left, right:
            return rendered(left) | rendered(right)
    raise AssertionError(condition)


def answers(expression: pc.Expression, data: pa.Table = TABLE) -> list[bool | None]:
    """What Arrow makes of an expression, row by row."""
    found: list[bool | None] = ds.dataset(data).scanner(columns={"r": expression}).to_table()["r"].to_pylist()
    return found


def test_a_row_that_arrow_finds_is_never_lost() -> None:
    seen: Counter[str] = Counter()

    @example(("not", ("compare", "x", ">", 5.0)))
    @example(("compare", "x", "!=", NAN))
    @given(conditions(texts=TEXTS))
    def check(condition: tuple[Any, ...]) -> None:
        try:
            expression = rendered(condition)
            found = answers(expression)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # types that Arrow does not compare
            seen["refused"] += 1
            return
        for schema in (None, TABLE.schema):
            predicate, _ = predicate_of_arrow(expression, TYPES, schema)
            assert lost_rows(predicate, ROWS, found) == []
            seen["kept"] += sum(may_be_true(predicate, row) for row in ROWS)
        seen["rows"] += 2 * len(ROWS)
        seen["found"] += 2 * sum(answer is True for answer in found)

    check()
    assert seen["kept"] < 1.4 * seen["found"], seen
    assert seen["found"] > 0.2 * seen["rows"], seen
    assert seen["refused"] < 20 * seen["rows"] / len(ROWS), seen


F = column
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (F("a") > 5, "a > 5"),
        (pc.scalar(5) < F("a"), "a > 5"),
        (~(F("x") > 5), "(x <= 5.0 OR x = nan)"),
        (~(F("x") >= 5), "(x < 5.0 OR x = nan)"),
        (~(F("x") < 5), "x >= 5.0"),
        (F("x") == NAN, "False"),
        (F("x") != NAN, "x IS NOT NULL"),
        (F("x").isin([NAN]), "x IN (nan)"),
        (~F("x").isin([0, 1]), "(NOT x IN (1.0) OR x IS NULL)"),
        (~F("x").isin([0.0, 1.0, NAN]), "(NOT x IN (1.0) OR x IS NULL)"),
        (F("x") == F("y"), "x = y"),
        (~(F("x") < F("y")), "(x >= y OR x = nan OR y = nan)"),
        (F("x") != F("y"), "(x <> y OR x = nan OR y = nan)"),
        (F("f") > 0.1, "f >= 0.10000000149011612"),
        (F("f") != 0.1, "f IS NOT NULL"),
        (F("f").isin([0.1]), "f IN (0.10000000149011612)"),
        (F("x") > 5.5, "x > 5.5"),
        (F("a") > 5.5, "a > 5"),
        (F("a") == 5.5, "False"),
        (F("a") < 16777216.4, "a < 16777217"),
        (F("a") == 16777216.4, "a = 16777216"),
        (F("i8") > 1000, "False"),
        (F("i8") <= 1000, "i8 IS NOT NULL"),
        (F("a").isin([1, 2]), "a IN (1, 2)"),
        (F("a").isin([1, None]), "(a IN (1) OR a IS NULL)"),
        (~F("a").isin([1]), "(NOT a IN (1) OR a IS NULL)"),
        (~F("a").isin([1, None]), "NOT a IN (1)"),
        (F("a").isin([]), "False"),
        (F("x").is_null(nan_is_null=True), "(x IS NULL OR x = nan)"),
        (F("x").is_nan(), "x = nan"),
        (F("a").is_valid(), "a IS NOT NULL"),
        (F("d") == Decimal("1.505"), "False"),
        (F("d") > Decimal("1.505"), "d > 1.50"),
        (F("us") > NOON, "us > TIMESTAMP '2024-02-29 12:00:00Z'"),
        (F("us") > pa.scalar(NOON, pa.timestamp("s", "UTC")), "us > TIMESTAMP '2024-02-29 12:00:00Z'"),
        (F("us") > pa.scalar(NOON, pa.timestamp("ms", "UTC")), "us > TIMESTAMP '2024-02-29 12:00:00Z'"),
        (F("day") > dt.datetime(2024, 2, 29, 12), "day > DATE '2024-02-29'"),
        (F("st.y") == 5, "st.y = 5"),
        (F("b"), "b"),
        (pc.year(F("day")) == 2024, "(day >= DATE '2024-01-01' AND day < DATE '2025-01-01')"),
        (pc.year(F("ms")) > 2024, "ms >= TIMESTAMP_NTZ '2025-01-01 00:00:00'"),
        (~F("b"), "NOT b"),
        (F("b") == False, "NOT b"),  # noqa: E712
        ((F("a") > 5) == True, "a > 5"),  # noqa: E712
        (~(F("s") < F("s")), "s >= s"),
        (~(F("a") < F("a")), "a >= a"),
        (pc.match_like(F("s"), "a%"), "s LIKE 'a%'"),
        (pc.match_like(F("s"), "a_b"), "s LIKE 'a_b'"),
        (~pc.match_like(F("s"), "a_b"), "s IS NOT NULL"),
        (F("a").cast("int64") > 5, "a > 5"),
        (F("f").cast("float64") == 0.5, "f = 0.5"),
    ],
    ids=str,
)
def test_translation(expression: pc.Expression, text: str) -> None:
    schema = TABLE.schema.remove(TABLE.schema.get_field_index("ns"))
    predicate, reasons = predicate_of_arrow(expression, TYPES, schema)
    assert (str(predicate), reasons) == (text, [])


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (F("a") + 1 > 5, "add_checked of Arrow is not used"),
        (pc.xor(F("b"), F("a") > 5), "xor of Arrow is not used"),
        (pc.if_else(F("b"), F("a") > 1, F("a") > 5), "if_else of Arrow is not used"),
        (pc.year(F("us")) == 2024, "the year of us is not used"),
        (pc.year(F("day")) == 1800, "the year of day = 1800 is not used"),
        (F("nothing") > 5, "nothing is no column with a known type"),
        (F("s") == b"a", "s = a binary is not used: s is string"),
        (F("d") > 1.5, "d > a float is not used: d is decimal(10,2)"),
        (F("day").isin([NOON.replace(tzinfo=None)]), "times in a set of days are not used"),
        (pc.starts_with(F("s"), "a", ignore_case=True), "starts_with of Arrow is not used"),
        (pc.match_like(F("s"), "a\\%"), "LIKE with a backslash is not used"),
        (pc.match_substring_regex(F("s"), "a"), "match_substring_regex of Arrow is not used"),
        (F("a").cast("string") == "5", "cast of Arrow is not used"),
        (F("us") < F("us"), "us < us is not used"),
        (pc.field(0) > 5, "the expression of Arrow could not be read"),
    ],
    ids=str,
)
def test_what_is_not_understood_keeps_and_is_named(expression: pc.Expression, reason: str) -> None:
    predicate, reasons = predicate_of_arrow(expression, TYPES)
    assert reason in " ".join(reasons)
    assert all(may_be_true(predicate, row) for row in ROWS)


def test_a_part_that_is_not_understood_leaves_the_others() -> None:
    predicate, reasons = predicate_of_arrow((F("a") > 5) & (F("a") + 1 > 5), TYPES)
    assert str(predicate) == "(a > 5 AND add_checked of Arrow)"
    assert len(reasons) == 1


def test_nanoseconds_are_cut_as_spark_cuts_them() -> None:
    moment = pa.scalar(1500, pa.timestamp("ns"))
    data = pa.table({"t": pa.array([1501, 1000], pa.timestamp("ns"))})
    assert answers(F("t") > moment, data) == [True, False]
    predicate, _ = predicate_of_arrow(F("t") > moment, {"t": "timestamp_ntz"})
    assert str(predicate).startswith("(t >= TIMESTAMP_NTZ '1970-01-01 00:00:00.000001' OR ")


def test_names_with_dots_are_not_nested_fields() -> None:
    columns = {"a.b": "int", "a": "struct<b:bigint,odd name:struct<c:string>>", "odd name": "int"}
    assert str(predicate_of_arrow(pc.field("a.b") > 5, columns)[0]) == "`a.b` > 5"
    assert str(predicate_of_arrow(pc.field("a", "b") > 5, columns)[0]) == "a.b > 5"
    assert str(predicate_of_arrow(pc.field("odd name") > 5, columns)[0]) == "`odd name` > 5"
    assert str(predicate_of_arrow(pc.field("a", "odd name", "c") > "x", columns)[0]) == "a.`odd name`.c > 'x'"
    assert predicate_of_arrow(pc.field("a", "x") > 5, columns)[1] == ["the field x of a has no known type"]


def test_thousands_of_alternatives_become_a_set() -> None:
    expression = reduce(operator.or_, [F("a") == number for number in range(2000)])
    predicate, reasons = predicate_of_arrow(expression, TYPES)
    assert (type(predicate).__name__, len(predicate.children), reasons) == ("Or", 2000, [])  # type: ignore[attr-defined]


def test_a_set_of_a_dictionary_is_read() -> None:
    values = pa.array(["a", "b"]).dictionary_encode()
    assert str(predicate_of_arrow(pc.is_in(F("s"), value_set=values), TYPES)[0]) == "s IN ('a', 'b')"
