"""Expressions of polars as predicates: what polars finds TRUE of a row, Spark does of the predicate."""

from __future__ import annotations

import datetime as dt
import operator
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from polars.io.plugins import register_io_source

from geoskip.engines.polars_expression import predicate_of_polars
from tests.support.engine_rows import INF, NAN, TYPES, conditions, lost_rows, may_be_true, physical_rows, table

TABLE = table()
ROWS = physical_rows(TABLE)
FRAME = pl.DataFrame(pl.from_arrow(TABLE))
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def column(name: str) -> pl.Expr:
    """A column of the frame, or a field of a column of structs."""
    head, _, inner = name.partition(".")
    return pl.col(head).struct.field(inner) if inner else pl.col(head)


def rendered(condition: tuple[Any, ...]) -> pl.Expr:
    """A condition as an expression of polars."""
    match condition:
        case "compare", name, op, value:
            return OPERATORS[op](column(name), value)
        case "compare_columns", left, op, right:
            return OPERATORS[op](column(left), column(right))
        case "isin", name, values:
            dtype = FRAME.schema.get(name, pl.Int32)
            nulls = len(repr(values)) % 2 == 0
            members = pl.Series(values, dtype=dtype, strict=False)
            return column(name).is_in(members.implode() if nulls else members.to_list(), nulls_equal=nulls)
        case "null", name:
            return column(name).is_null()
        case "nan", name:
            return column(name).is_nan()
        case "text", name, kind, pattern:
            texts = column(name).str
            return (
                texts.contains(pattern, literal=True)
                if kind == "contains"
                else texts.starts_with(pattern)
                if kind == "starts"
                else texts.ends_with(pattern)
            )
        case "year", name, op, value:
            return OPERATORS[op](column(name).dt.year(), value)
        case "column", name:
            return column(name)
        case "not", inner:
            return ~rendered(inner)
        case "and", left, right:
            return rendered(left) & rendered(right)
        case "or", left, right:
            return rendered(left) | rendered(right)
    raise AssertionError(condition)


def answers(expression: pl.Expr, frame: pl.DataFrame = FRAME) -> list[bool | None]:
    """What polars makes of an expression, row by row."""
    return frame.select(expression.alias("r"))["r"].to_list()


def pushed_down(expression: pl.Expr) -> pl.Expr | None:
    """The expression as polars gives it to a source of rows."""
    seen: list[pl.Expr | None] = []

    def source(columns: Any, predicate: pl.Expr | None, rows: Any, batch: Any) -> Any:
        seen.append(predicate)
        return iter([FRAME if columns is None else FRAME.select(columns)])

    register_io_source(source, schema=FRAME.schema).filter(expression).collect()
    return seen[0]


def test_a_row_that_polars_finds_is_never_lost() -> None:
    seen: Counter[str] = Counter()

    @example(("compare", "ms", "=", dt.datetime(1970, 1, 1, 0, 0, 0, 1500)))
    @example(("compare", "f", "=", 0.1))
    @example(("not", ("isin", "a", (1, None))))
    @example(("not", ("compare", "x", ">", 5.0)))
    @given(conditions())
    def check(condition: tuple[Any, ...]) -> None:
        try:
            expression = rendered(condition)
            found = answers(expression)
            given_to_source = pushed_down(expression)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):  # types that polars does not compare
            seen["refused"] += 1
            return
        for written in [expression, *([] if given_to_source is None else [given_to_source])]:
            for schema in (None, FRAME.schema):
                predicate, _ = predicate_of_polars(written, TYPES, schema)
                assert lost_rows(predicate, ROWS, found) == []
                seen["kept"] += sum(may_be_true(predicate, row) for row in ROWS)
                seen["rows"] += len(ROWS)
                seen["found"] += sum(answer is True for answer in found)

    check()
    assert seen["kept"] < 1.4 * seen["found"], seen
    assert seen["found"] > 0.2 * seen["rows"], seen
    assert seen["refused"] < 4 * seen["rows"] / len(ROWS), seen


F = column
NOON = dt.datetime(2024, 2, 29, 12)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (F("a") > 5, "a > 5"),
        (~(F("x") > 5), "x <= 5.0"),
        (F("x").is_in([NAN]), "x IN (nan)"),
        (~F("x").is_in([0.0, 1.0, None]), "NOT x IN (1.0)"),
        (~F("a").is_in([1, 2]), "NOT a IN (1, 2)"),
        (~F("a").is_in([1], nulls_equal=True), "(NOT a IN (1) OR a IS NULL)"),
        (F("a").is_in([1, None]), "a IN (1)"),
        (F("a").is_in([1, None], nulls_equal=True), "(a IN (1) OR a IS NULL)"),
        (F("a").is_in(pl.Series([1, 2], dtype=pl.Int32)), "a IN (1, 2)"),
        (F("s").is_in(["a", "\U0001f600"]), "s IN ('a', '\U0001f600')"),
        (F("f") > 0.1, "f >= 0.10000000149011612"),
        (F("f") != 0.1, "f IS NOT NULL"),
        (F("n") > 5.5, "n > 5"),
        (F("n").cast(pl.Float64) <= 5.5, "n <= 5"),
        (F("i8") > 1000, "False"),
        (F("a").is_between(1, 5), "(a >= 1 AND a <= 5)"),
        (F("a").is_between(1, 5, closed="left"), "(a >= 1 AND a < 5)"),
        (F("a").eq_missing(None), "a IS NULL"),
        (F("a").ne_missing(5), "(a <> 5 OR a IS NULL)"),
        (F("a").ne_missing(F("c")), "(a <> c OR a IS NULL OR c IS NULL)"),
        (F("a") == pl.lit(None), "False"),
        (F("d") == Decimal("1.50"), "d = 1.50"),
        (F("ms") > NOON, "ms >= TIMESTAMP_NTZ '2024-02-29 12:00:00'"),
        (F("ms") > pl.lit(NOON, pl.Datetime("ms")), "ms >= TIMESTAMP_NTZ '2024-02-29 11:59:59.999000'"),
        (F("ms") <= pl.lit(NOON, pl.Datetime("ms")), "ms <= TIMESTAMP_NTZ '2024-02-29 12:00:00.001000'"),
        (F("ms") > pl.lit(NOON, pl.Datetime("ns")), "ms >= TIMESTAMP_NTZ '2024-02-29 12:00:00'"),
        (F("ms") < NOON.replace(microsecond=1), "ms < TIMESTAMP_NTZ '2024-02-29 12:00:00.001000'"),
        (F("day") >= dt.date(2024, 2, 29), "day >= DATE '2024-02-29'"),
        (F("day") > NOON, "day > DATE '2024-02-29'"),
        (F("bin") > b"a", "bin > X'61'"),
        (F("day") > pl.date(2024, 2, 28), "day > DATE '2024-02-28'"),
        (F("day") > pl.lit("2024-02-28").str.to_date(), "day > DATE '2024-02-28'"),
        (F("us") >= pl.datetime(2024, 2, 29, time_zone="UTC"), "us >= TIMESTAMP '2024-02-29 00:00:00Z'"),
        (F("a") > pl.lit(5).cast(pl.Int64), "a > 5"),
        (F("day").dt.year() != 2024, "(day < DATE '2024-01-01' OR day >= DATE '2025-01-01')"),
        (F("st.y") == 5, "st.y = 5"),
        (F("b") == True, "b"),  # noqa: E712
        (pl.all_horizontal(F("b"), F("a") > 1), "(b AND a > 1)"),
        (F("b").fill_null(False), "b"),
        (F("b").is_in([True]), "b"),
        (F("x").is_not_nan(), "x <> nan"),
        (F("s").str.starts_with("a"), "s LIKE 'a%'"),
        (F("s").str.contains("a.", literal=True), "s LIKE '%a.%'"),
        ((F("a") > 5).alias("named"), "a > 5"),
    ],
    ids=str,
)
def test_translation(expression: pl.Expr, text: str) -> None:
    predicate, reasons = predicate_of_polars(expression, TYPES, {"us": pl.Datetime("us")})
    assert (str(predicate), reasons if "fill_null" not in str(expression) else []) == (text, [])


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (F("a") + 1 > 5, "Plus of polars is not used"),
        (F("b") ^ (F("a") > 1), "Xor of polars is not used"),
        (pl.when(F("b")).then(F("a") > 1).otherwise(F("a") > 5), "when of polars is not used"),
        (F("x").is_infinite(), "Boolean/IsInfinite of polars is not used"),
        (F("nothing") > 5, "nothing is no column with a known type"),
        (F("x") == INF, "NaN, infinity and integers of 128 bits are not used"),
        (F("n") > 2**70, "NaN, infinity and integers of 128 bits are not used"),
        (F("s") == pl.lit("a", pl.Enum(["a", "b"])), "a literal of an enumeration is not used"),
        (F("s") > "a", "or an enumeration, which has another order"),
        (F("d") > 1.5, "d > a float is not used: d is decimal(10,2)"),
        (F("s").str.contains("a.b"), "StringExpr/Contains of polars is not used"),
        (F("s").str.starts_with(F("t")), "StringExpr/StartsWith of polars is not used"),
        (F("n").cast(pl.Float64) == F("small").cast(pl.Float64), "a cast of n = a cast of small is not used"),
        (F("n").cast(pl.Float64) == 2.0**53, "a cast of n = a float is not used"),
        (F("n").cast(pl.Float64) == Decimal("4.9999999999999999999"), "a cast of n = a decimal is not used"),
        (F("a").cast(pl.String) == "5", "a cast to String of polars is not used"),
        (F("a") > pl.lit(2**31 - 1) + 1, "Plus of polars is not used"),
        (F("a") > -pl.lit(5), "Negate of polars is not used"),
        (F("day").dt.month() == 2, "TemporalExpr/Month of polars is not used"),
        (F("us") < F("us"), "us < us is not used"),
        (F("s") < F("s"), "s < s is not used"),
    ],
    ids=str,
)
def test_what_is_not_understood_keeps_and_is_named(expression: pl.Expr, reason: str) -> None:
    predicate, reasons = predicate_of_polars((F("a") > 5) & expression, TYPES)
    assert reason in " ".join(reasons)
    assert str(predicate).startswith("(a > 5 AND ")


@pytest.mark.parametrize(
    "expression",
    [
        F("a") > F("a").mean(),
        F("a").shift(1) > 0,
        F("a").is_unique(),
        F("a").cum_sum() > 5,
        F("a").rank() > 5,
        F("a").max().over("c") > 5,
        pl.len() > 5,
        F("a").is_first_distinct(),
        F("a").fill_null(strategy="forward") > 5,
        F("a").fill_null(F("a").max()) > 5,
        F("a") == pl.Series(range(200)),
        pl.col("^a.*$") > 5,
        F("a").map_batches(lambda values: values, return_dtype=pl.Int32) > 5,
    ],
    ids=str,
)
def test_an_expression_that_looks_at_other_rows_is_not_used_at_all(expression: pl.Expr) -> None:
    predicate, reasons = predicate_of_polars((F("a") > 5) & expression, TYPES)
    assert len(reasons) == 1
    assert all(may_be_true(predicate, row) for row in ROWS)


def test_the_order_of_texts_is_used_where_they_are_known_to_be_texts() -> None:
    frame = pl.DataFrame({"s": ["b", "a"]}, schema={"s": pl.Enum(["b", "a"])})
    assert answers(F("s") > "b", frame) == [False, True]
    assert predicate_of_polars(F("s") > "b", TYPES, frame.schema)[1]
    assert str(predicate_of_polars(F("s") > "b", TYPES, FRAME.schema)[0]) == "s > 'b'"


def test_a_deep_expression_is_translated_or_kept() -> None:
    expression = reduce(operator.or_, [F("a") == number for number in range(300)])
    predicate, reasons = predicate_of_polars(expression, TYPES)
    assert (type(predicate).__name__, reasons) == ("Or", [])
    deeper = reduce(operator.or_, [F("a") == number for number in range(3000)])
    predicate, reasons = predicate_of_polars(deeper, TYPES)
    assert (type(predicate).__name__, len(reasons)) in (("Or", 0), ("Opaque", 1))


def test_numbers_and_texts_are_not_evaluated_by_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = (pl.col("i32") > 5) & (pl.col("f64") < 0.5) & (pl.col("s") == "a")
    monkeypatch.setattr(pl, "select", None)
    found, reasons = predicate_of_polars(expression, {"i32": "int", "f64": "double", "s": "string"}, {})
    assert (str(found), reasons) == ("(i32 > 5 AND f64 < 0.5 AND s = 'a')", [])
