"""SQL of Spark and DuckDB as predicates: what the engine finds TRUE of a row, Spark does of the predicate."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import geoskip
from geoskip import predicates as p
from geoskip.engines.sql_text import predicate_of_sql
from geoskip.engines.time_texts import UNITS, instant_of, starts
from geoskip.errors import UnknownColumnError
from geoskip.types import DAY
from tests.support.engine_rows import (
    COLUMNS,
    NAMES,
    NAN,
    TYPES,
    conditions,
    lost_rows,
    may_be_true,
    physical_rows,
    table,
)
from tests.support.evaluator import outcomes
from tests.support.indexed_files import write_indexed

TABLE = table()
ROWS = physical_rows(TABLE)
DUCKDB = duckdb.connect()
DUCKDB.execute("SET TimeZone = 'UTC'")
DUCKDB.register("arrow_rows", TABLE.append_column("rn", pa.array(range(len(TABLE)))))
DUCKDB.execute("CREATE TABLE rows AS FROM arrow_rows")
PATTERN = {"starts": "starts_with({}, {})", "ends": "ends_with({}, {})", "contains": "contains({}, {})"}


def literal(value: Any, dialect: str, typed: bool) -> str:
    """A value in SQL; ``typed`` chooses among two ways to write it."""
    match value:
        case None | bool():
            return str(value or "NULL") if value is None else str(value).upper()
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            return f"CAST({value!r} AS DOUBLE)" if typed else f"{value!r}"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"unhex('{value.hex()}')"
        case dt.datetime():
            zoned = value.tzinfo is not None
            text = value.replace(tzinfo=None).isoformat(" ") + (
                "+00:00" if zoned and dialect == "duckdb" else "Z" * zoned
            )
            kind = (
                ("TIMESTAMPTZ" if zoned else "TIMESTAMP")
                if dialect == "duckdb"
                else "TIMESTAMP"
                if zoned
                else "TIMESTAMP_NTZ"
            )
            return f"{kind} '{text}'" if typed else f"'{text}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'" if typed else f"'{value.isoformat()}'"
    return str(value)


def rendered(condition: tuple[Any, ...], dialect: str, typed: bool = True) -> str:
    """A condition as SQL."""

    def inner(part: tuple[Any, ...]) -> str:
        return rendered(part, dialect, typed)

    match condition:
        case "compare", name, op, value:
            return f"{name} {op} {literal(value, dialect, typed)}"
        case "compare_columns", left, op, right:
            return f"{left} {op} {right}"
        case "isin", name, values:
            return f"{name} IN ({', '.join(literal(value, dialect, typed) for value in values) or 'NULL'})"
        case "null", name:
            return f"{name} IS NULL"
        case "nan", name:
            return f"isnan({name})"
        case "year", name, op, value:
            return f"year({name}) {op} {value}" if typed else f"extract(YEAR FROM {name}) {op} {value}"
        case "text", name, "like", pattern:
            return f"{name} LIKE {literal(pattern, dialect, typed)}"
        case "text", name, kind, pattern:
            form = (
                PATTERN[kind] if dialect == "duckdb" else PATTERN[kind].replace("_with", "swith").replace("ssw", "sw")
            )
            return form.format(name, literal(pattern, dialect, typed))
        case "column", name:
            return str(name)
        case "not", part:
            return f"NOT ({inner(part)})"
        case "and" | "or" as word, left, right:
            return f"({inner(left)}) {word.upper()} ({inner(right)})"
    raise AssertionError(condition)


def answers(text: str) -> list[bool | None]:
    """What DuckDB makes of a condition, row by row."""
    return [found for (found,) in DUCKDB.execute(f"SELECT ({text})::BOOLEAN FROM rows ORDER BY rn").fetchall()]


def test_a_row_that_duckdb_finds_is_never_lost() -> None:
    seen: Counter[str] = Counter()

    @example(("compare", "f", "=", 0.1), False)
    @example(("compare", "x", ">", 5.0), True)
    @example(("compare", "d", "<", Decimal("1.505")), False)
    @example(("compare", "n", "=", 9007199254740992.0), True)
    @example(("compare", "ms", "=", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)), False)
    @given(conditions(texts=["starts", "ends", "contains", "like"]), st.booleans())
    def check(condition: tuple[Any, ...], typed: bool) -> None:
        text = rendered(condition, "duckdb", typed)
        seen["all"] += 1
        try:
            found = answers(text)
        except duckdb.Error:
            seen["refused"] += 1
            return
        node, reasons = predicate_of_sql(text, TYPES, "duckdb", time_zone="UTC", names=tuple(TYPES))
        assert lost_rows(node, ROWS, found) == [], text
        seen["used"] += not reasons
        seen["excluded"] += sum(not may_be_true(node, row) for row in ROWS) > 0

    check()
    assert seen["used"] > seen["all"] / 4, seen
    assert seen["excluded"] > seen["all"] / 4, seen
    assert seen["refused"] < seen["all"] / 2, seen


def is_own(name: str, value: Any) -> bool:
    """True for values of a column's own type, of which the oracle of Spark knows the comparison."""
    kind = TYPES.get(name, "int")
    match value:
        case None:
            return True
        case bool():
            return kind == "boolean"
        case int():
            return kind in ("int", "bigint") and abs(value) < 2**31
        case float():
            return kind == "double"
        case str():
            return "\\" not in value
        case dt.datetime():
            return kind != "date"
    return not isinstance(value, Decimal | bytes)


def own_if_any(name: str, value: Any) -> bool:
    return is_own(name, value) or name in ("i8", "u8", "f", "d", "bin")


def meant(condition: tuple[Any, ...]) -> p.Predicate:
    """What Spark means by a condition."""

    def column(name: str) -> p.Column:
        return p.Column(name, TYPES.get(name, "int"))

    def constant(name: str, value: Any) -> p.Literal:
        kind = TYPES.get(name, "int")
        if not is_own(name, value):
            raise LookupError(value)
        if isinstance(value, dt.datetime):
            value = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        elif isinstance(value, dt.date):
            value = (value - dt.date(1970, 1, 1)).days
        return p.Literal(value, kind)

    match condition:
        case "compare", name, op, value:
            same = p.Comparison("=" if op == "!=" else op, column(name), constant(name, value))
            return p.Not(same) if op == "!=" else same
        case "compare_columns", left, op, right:
            same = p.Comparison("=" if op == "!=" else op, column(left), column(right))
            return p.Not(same) if op == "!=" else same
        case "isin", name, values:
            return p.In(column(name), tuple(constant(name, value) for value in values or (None,)))
        case "null", name:
            return p.IsNull(column(name))
        case "text", name, kind, pattern:
            form = {"starts": p.StartsWith, "ends": p.EndsWith, "contains": p.Contains, "like": p.Like}[kind]
            return form(column(name), pattern)
        case "column", name:
            return column(name)
        case "not", part:
            return p.Not(meant(part))
        case "and", left, right:
            return p.And((meant(left), meant(right)))
        case "or", left, right:
            return p.Or((meant(left), meant(right)))
    raise LookupError(condition)


def test_a_row_that_spark_finds_is_never_lost() -> None:
    seen: Counter[str] = Counter()

    @given(conditions(texts=["starts", "ends", "contains", "like"], literals=own_if_any), st.booleans())
    def check(condition: tuple[Any, ...], typed: bool) -> None:
        try:
            reference = meant(condition)
        except LookupError:
            return
        text = rendered(condition, "spark", typed)
        node, _ = predicate_of_sql(text, TYPES, "spark", time_zone="UTC", names=tuple(TYPES))
        lost = [row for row in ROWS if outcomes(reference, row) == {True} and not may_be_true(node, row)]
        assert lost == [], text
        seen["all"] += 1
        seen["excluded"] += not all(may_be_true(node, row) for row in ROWS)

    check()
    assert seen["excluded"] > seen["all"] / 4 > 1, seen


# ---- single rules

UNUSED = "not used"
UNUSED_IN_BOTH = (
    "(a > NULL) IS NULL", "a = (b IS NULL)", r"s LIKE 'a\%'", "s LIKE 'a!%%' ESCAPE '!'", "s ILIKE 'a%'",
    "s COLLATE NOCASE = 'a'", "a = '5.5'", "s > 5", "a + 1 > 5", "a / 2 = 1", "CAST(s AS INT) = 1",
    "CAST(x AS INT) = 1", "day > '2024-2-9'", "day > '2024-02-29 12:00:00'",
    "day < DATE '2024-01-01' + INTERVAL 3 DAYS", "day > current_date",
    "year(day) < 1500", "date_trunc('month', ts) = DATE '2024-02-01'",
    "ts > TIMESTAMP '2024-02-29 12:00:00'", "a IN (1, 2e0)", "CAST(a AS DOUBLE) = 9007199254740992",
    "CAST(a AS DOUBLE) = CAST('a' AS BLOB)", "x = CAST('0x1' AS DOUBLE)", "CAST(a AS BOOLEAN)",
    "g = CAST('a' AS BLOB)", "CASE WHEN b THEN a = 1 ELSE a = 5 END", "a = 5 = TRUE", "(a = 5) = FALSE",
    "(a + 1) = TRUE", "(a > 5) IS NOT TRUE", "a = 1 IS NULL",
    "prefix(s, 'a')", "isinf(x)", "main.isnan(x)", "a IN (SELECT 1)", "rand() < 0.5",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "in_spark", "in_duckdb"),
    [
        ("A > 5 AND S = 'x'", "(a > 5 AND s = 'x')", "(a > 5 AND s = 'x')"),
        ("a BETWEEN 1 AND 3", "(a >= 1 AND a <= 3)", "(a >= 1 AND a <= 3)"),
        ("a NOT IN (1, NULL)", "False", "False"),
        ("a IS NOT DISTINCT FROM 5", "a = 5", "a = 5"),
        ("a IS DISTINCT FROM 5", "(a <> 5 OR a IS NULL)", "(a <> 5 OR a IS NULL)"),
        ("b IS NOT TRUE", "(NOT b OR b IS NULL)", "(NOT b OR b IS NULL)"),
        ("a IS NOT NULL", "a IS NOT NULL", "a IS NOT NULL"),
        ("s = 'it''s'", UNUSED, "s = 'it's'"),
        (r"s = 'a\b'", UNUSED, r"s = 'a\b'"),
        ("s LIKE 'a%'", "s LIKE 'a%'", "s LIKE 'a%'"),
        ("f > 0.1", "f >= 0.10000000149011612", "f >= 0.10000000149011612"),
        ("x > 96.21428571428571", "x > 96.21428571428565", "x > 96.21428571428565"),
        ("day >= '2024-02-29'", "day >= DATE '2024-02-29'", "day >= DATE '2024-02-29'"),
        ("date_trunc('month', day) = DATE '2024-02-01'", UNUSED,
         "(day >= DATE '2024-02-01' AND day < DATE '2024-03-01')"),
        ("trunc(day, 'month') = DATE '2024-02-01'", "(day >= DATE '2024-02-01' AND day < DATE '2024-03-01')", UNUSED),
        ("trunc(day, 'day') = DATE '2024-02-01'", UNUSED, UNUSED),
        ("(trunc(day, 'day') = DATE '2024-02-01') IS NULL", UNUSED, UNUSED),  # NULL for every day
        ("extract(YEAR FROM day) > 2023", "day >= DATE '2024-01-01'", "day >= DATE '2024-01-01'"),
        ("year(day) = 2024", "(day >= DATE '2024-01-01' AND day < DATE '2025-01-01')",
         "(day >= DATE '2024-01-01' AND day < DATE '2025-01-01')"),
        ("year(day) > 2023", "day >= DATE '2024-01-01'", "day >= DATE '2024-01-01'"),
        ("CAST(tn AS DATE) <= '2024-02-29'", "tn < TIMESTAMP_NTZ '2024-03-01 00:00:00'",
         "tn < TIMESTAMP_NTZ '2024-03-01 00:00:00'"),
        ("date_trunc('month', tn) > DATE '2024-02-01'", UNUSED, "tn >= TIMESTAMP_NTZ '2024-03-01 00:00:00'"),
        ("date_trunc('month', day) = DATE '2024-02-02'", UNUSED, "False"),
        ("date_trunc('month', day) <> DATE '2024-02-02'", UNUSED, "True"),
        ("tn >= '2024-02-29 12:00'", UNUSED, "tn >= TIMESTAMP_NTZ '2024-02-29 12:00:00'"),
        ("tn > TIMESTAMP '2024-02-29 12:00:00'", UNUSED, "tn >= TIMESTAMP_NTZ '2024-02-29 12:00:00'"),
        ("ts > '2024-02-29 12:00:00Z'", "ts > TIMESTAMP '2024-02-29 12:00:00Z'",
         "ts >= TIMESTAMP '2024-02-29 12:00:00Z'"),
        ("t.st.x = 4 AND t.a = 1", "(st.x = 4 AND a = 1)", "(st.x = 4 AND a = 1)"),
        ("st.y = 'b'", "st.Y = 'b'", "st.Y = 'b'"),
        ("isnan(x)", "x = nan", "x = nan"),
        ("NOT isnan(x)", "(x <> nan OR x IS NULL)", "x <> nan"),
        ("b AND NOT b", "(b AND NOT b)", "(b AND NOT b)"),
        ("a IN (1, 2.5)", "a IN (1)", "a IN (1)"),
        ("a BETWEEN 1 AND 2e0", "(a >= 1 AND a <= 2)", UNUSED),
        ("x BETWEEN 1 AND 2.5e0", "(x >= 1.0 AND x <= 2.5)", "(x >= 1.0 AND x <= 2.5)"),
        ("CAST(a AS DOUBLE) > 5.5", "a > 5", "a > 5"),
        ("f = 16777217.5", "f = 16777218.0", "(f >= 16777210.0 AND f <= 16777226.0)"),
        ("x = 0.70000000000000000000", "(x >= 0.6999999999999995 AND x <= 0.7000000000000004)",
         "(x >= 0.699999988079071 AND x <= 0.7000000000000004)"),
        ("a > 99999999999999999999", UNUSED, "False"),
        ("x = CAST('-1.5' AS DOUBLE)", "x = -1.5", "x = -1.5"),
        ("s = CAST('a' AS VARCHAR)", "s = 'a'", "s = 'a'"),
        ("b = CAST('f' AS BOOLEAN)", "NOT b", "NOT b"),
        ("CAST(b AS BOOLEAN) IS DISTINCT FROM TRUE", "(NOT b OR b IS NULL)", "(NOT b OR b IS NULL)"),
        *((text, UNUSED, UNUSED) for text in UNUSED_IN_BOTH),
    ],
)  # fmt: skip
def test_what_a_condition_becomes(text: str, in_spark: str, in_duckdb: str) -> None:
    for dialect, expected in (("spark", in_spark), ("duckdb", in_duckdb)):
        node, reasons = predicate_of_sql(text, NAMES, dialect, names=tuple(NAMES))
        if expected == UNUSED:
            assert isinstance(node, p.Opaque), (dialect, node)
            assert UNUSED in reasons[0]
        else:
            assert (str(node), reasons) == (expected, []), dialect


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "ts > TIMESTAMP '2024-03-31 02:30:00'", "ts > TIMESTAMP '2024-03-31 02:30:00Z'"),
        ("America/New_York", "ts >= '2024-07-01'", "ts >= TIMESTAMP '2024-07-01 04:00:00Z'"),
        ("Europe/Oslo", "ts > '2024-03-31 02:30:00'", UNUSED),
        ("Europe/Oslo", "ts > '2024-10-27 02:30:00'", UNUSED),
        ("No/Where", "ts > '2024-10-27 12:30:00'", UNUSED),
        ("Europe/Oslo", "ts > '1969-07-01'", UNUSED),
        ("Europe/Oslo", "year(ts) > 2023", "ts >= TIMESTAMP '2023-12-31 23:00:00Z'"),
        ("Europe/Oslo", "tn > TIMESTAMP '2024-07-01 12:00:00'", UNUSED),
    ],
)
def test_instants_need_the_zone_of_the_session(zone: str, text: str, expected: str) -> None:
    node, _ = predicate_of_sql(text, NAMES, "spark", time_zone=zone)
    assert isinstance(node, p.Opaque) if expected == UNUSED else str(node) == expected


def test_a_local_time_that_is_skipped_or_repeated_has_no_instant() -> None:
    hour = 3_600_000_000
    midnight = (dt.datetime(2024, 3, 31) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    found = [instant_of(midnight + hour * part // 2, "Europe/Oslo") for part in range(8)]
    assert [value is None for value in found] == [False, False, False, False, True, True, False, False]


@given(st.sampled_from(UNITS), st.dates(dt.date(2, 1, 1), dt.date(9998, 1, 1)))
def test_units_begin_where_duckdb_lets_them_begin(unit: str, day: dt.date) -> None:
    local = (day - dt.date(1970, 1, 1)).days * DAY + 5
    first, following = (dt.date(1970, 1, 1) + dt.timedelta(place // DAY) for place in starts(unit, local))
    days = [
        f"CAST(date_trunc('{unit}', DATE '{one}') AS DATE)" for one in (day, following, following - dt.timedelta(1))
    ]
    assert DUCKDB.execute(f"SELECT {', '.join(days)}").fetchone() == (first, following, first)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ts > '2024-02-10'", "its texts are times of the engine's zone; give time_zone='UTC' or another"),
        ("ts > 'soon'", "engines may differ in its meaning"),
        ("\"S\" = 'x'", "'S' is a text; the column is `S`"),
    ],
)
def test_a_reason_says_what_makes_a_condition_useful(text: str, reason: str) -> None:
    assert predicate_of_sql(text, NAMES, "spark", names=tuple(NAMES))[1][0].endswith(f" is not used: {reason}")


def test_names_that_differ_by_case_need_quotes() -> None:
    types = {"a": "int", "A": "int"}
    assert isinstance(predicate_of_sql("a = 1", types, "duckdb")[0], p.Opaque)
    assert str(predicate_of_sql('"A" = 1', types, "duckdb")[0]) == "A = 1"
    assert str(predicate_of_sql("`é` = 1", {"É": "int"}, "spark")[0]) == "É = 1"
    assert isinstance(predicate_of_sql('"é" = 1', {"É": "int"}, "duckdb")[0], p.Opaque)  # of ASCII letters alone


# ---- whole datasets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of four rows with near values, so that most conditions need few of them."""
    place = tmp_path_factory.mktemp("sql") / "data"
    names = [name for name in COLUMNS if name not in ("ns", "bin", "u8", "i8")]
    days = pc.if_else(pc.less(TABLE["day"], dt.date(1900, 1, 1)), None, TABLE["day"])  # the rest only Spark builds
    data = TABLE.set_column(TABLE.column_names.index("day"), "day", days).select(names)
    order = data.sort_by([("x", "ascending"), ("a", "ascending")])
    tables = {f"k={start % 3}/{start:03}.parquet": order.slice(start, 4) for start in range(0, len(order), 4)}
    types = {name: TYPES[name] for name in names}
    write_indexed(place, tables, types, [geoskip.MinMax(name) for name in names if name != "b"], partitions=["k"])
    return place


def test_no_file_with_a_row_that_duckdb_finds_is_left_out(folder: Path) -> None:
    source = f"read_parquet('{folder}/*/*.parquet', hive_partitioning=true, filename=true)"
    skipped: list[int] = []

    @given(
        conditions(texts=["starts", "contains", "like"], literals=own_if_any),
        st.booleans(),
        st.sampled_from(["", " AND k < 2", " OR k = 1"]),
    )
    def check(condition: tuple[Any, ...], typed: bool, more: str) -> None:
        text = f"({rendered(condition, 'duckdb', typed)}){more}"
        try:
            rows = DUCKDB.execute(f"SELECT DISTINCT filename FROM {source} WHERE {text}").fetchall()
        except duckdb.Error:
            assume(False)
        try:
            found = geoskip.files(folder, text, dialect="duckdb", time_zone="UTC", listing=listed(folder))
        except UnknownColumnError:  # of those columns that the files do not have
            assume(False)
        assert {name for (name,) in rows} <= {file.path for file in found}, text
        skipped.append(found.report.files_skipped)

    check()
    assert sum(number > 0 for number in skipped) > len(skipped) / 3 > 3, skipped


def test_where_duckdb_finds_a_null_no_start_of_a_month(folder: Path) -> None:
    text, source = "date_trunc('month', day) <> DATE '2024-02-02'", f"read_parquet('{folder}/*/*.parquet')"
    ((nulls,),) = DUCKDB.execute(f"SELECT count(*) FILTER (day IS NULL) FROM {source} WHERE {text}").fetchall()
    found = geoskip.files(folder, text, dialect="duckdb", listing=listed(folder))
    assert nulls > 0
    assert len(found) == found.report.files_total


@cache
def listed(folder: Path) -> Any:
    return geoskip.listing(folder)


@given(st.floats(-1e12, 1e12, width=64), st.integers(12, 24), st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
def test_decimals_of_many_digits_lose_no_row(value: float, digits: int, op: str) -> None:
    text = f"{Decimal(value):.{digits}g}"
    if "e" in text or len(text) > 30:
        return
    found = DUCKDB.execute(f"SELECT CAST('{value!r}' AS DOUBLE) {op} {text}").fetchall()
    node, _ = predicate_of_sql(f"x {op} {text}", TYPES, "duckdb")
    assert may_be_true(node, {"x": value}) or found != [(True,)]


def test_nan_is_above_all_numbers_in_duckdb_as_in_spark() -> None:
    found = answers("x > 1e308")
    assert any(answer and math.isnan(row["x"]) for answer, row in zip(found, ROWS, strict=True) if row["x"] is not None)
    node, _ = predicate_of_sql("x > 1e308", TYPES, "duckdb")
    assert may_be_true(node, {"x": NAN})
