"""Spark's own evaluator, which answers for single values, against Spark itself."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from tests.conftest import holding_files, kept, same_as_off

pytestmark = pytest.mark.spark

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [None, -(2**31), -7, -1, 0, 1, 2, 3, 10, 77, 2**31 - 1]),
    "t": (pa.int8(), [None, -128, -1, 0, 1, 2, 3, 9, 10, 99, 127]),
    "l": (pa.int64(), [None, -(2**63), -(2**53) - 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 10**15, 2**63 - 1]),
    "x": (pa.float64(), [None, float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.5, 2.0, 1e300, float("inf"), float("nan")]),
    "f": (pa.float32(), [None, -1.5, -0.0, 0.0, 0.10000000149011612, 0.5, 1.5, 2.0, 1e30, float("inf"), float("nan")]),
    "s": (pa.string(), [None, "", "a", "A", "ab", "Ab%c", "a_b", "été", "\U0001f600x", "zz top", "x" * 40]),
    "m": (pa.decimal128(12, 3), [None, *(Decimal(n).scaleb(-3) for n in (-(10**11), -1, 0, 1, 999, 1000, 1500, 2001))]),
    "w": (pa.decimal128(38, 10), [None, *(Decimal(n).scaleb(-10) for n in (-(10**37), -1, 0, 1, 10**10, 10**37))]),
    "d": (pa.date32(), [None, *map(dt.date.fromisoformat, ("1582-10-15", "1970-01-01", "2024-02-29", "2024-12-31"))]),
    "z": (pa.timestamp("us", "UTC"), [None, *(10**6 * n + 7 for n in (-1, 0, 1_700_000_000, 1_709_251_199))]),
    "y": (pa.timestamp("us"), [None, *(10**6 * n + 7 for n in (-1, 0, 1_700_000_000, 1_709_251_199))]),
    "b": (pa.bool_(), [None, True, False]),
    "r": (pa.binary(), [None, b"", b"a", b"ab", b"\xff\x00", b"\x00"]),
}
NUMBERS = [
    "{c}",
    "{c} % 3",
    "abs(cast({c} AS double))",
    "cast({c} AS double) / 3",
    "sqrt(cast({c} AS double))",
    "sign({c})",
]
EXPRESSIONS: dict[str, tuple[list[str], list[str]]] = {
    **dict.fromkeys("it", (NUMBERS, ["0", "1", "2", "-1", "1.5D", "77"])),
    "l": (NUMBERS, ["0", "1", "9007199254740993", "-1", "1e15D"]),
    "x": (
        [*NUMBERS[:1], "-{c}", "floor({c} * 0)", "nanvl({c}, 7D)", "{c} + 1"],
        ["0D", "1.5D", "double('NaN')", "0.1D"],
    ),
    "f": ([*NUMBERS[:1], "cast({c} AS double)", "-{c}"], ["0F", "1.5F", "0.1F", "0.1D", "float('NaN')"]),
    "s": (
        [
            "{c}",
            "upper({c})",
            "reverse({c})",
            "substring({c}, 2, 3)",
            "concat({c}, 'x')",
            "coalesce({c}, 'a')",
            "trim({c})",
            "regexp_replace({c}, '[aeiou]', '*')",
            "translate({c}, 'ab', 'ba')",
            "rpad({c}, 3, '.')",
        ],
        ["''", "'a'", "'A'", "'ab'", "'été'", "'x'", "'zz top'", "'Ab%c'"],
    ),
    "m": (["{c}", "-{c}", "{c} * 2", "round({c}, 1)", "cast({c} AS bigint)"], ["0", "1.5", "0.001", "1.500", "2"]),
    "w": (["{c}", "-{c}", "cast({c} AS double)"], ["0", "1", "0.0000000001", "1e27D"]),
    "d": (
        ["{c}", "{c} + 1", "date_trunc('month', {c})", "cast({c} AS timestamp)"],
        ["DATE'2024-02-29'", "DATE'1970-01-01'"],
    ),
    "z": (
        ["{c}", "cast({c} AS date)", "date_trunc('hour', {c})"],
        ["TIMESTAMP'1970-01-01 00:00:00Z'", "DATE'2023-11-14'"],
    ),
    "y": (
        ["{c}", "cast({c} AS date)", "{c} + INTERVAL 1 DAY"],
        ["TIMESTAMP_NTZ'1970-01-01 00:00:00'", "DATE'2023-11-14'"],
    ),
    "b": (["{c}", "NOT {c}", "coalesce({c}, true)"], ["true", "false"]),
    "r": (["{c}", "substring({c}, 1, 1)"], ["X'FF'", "X''", "X'6162'"]),
}
WHOLE = {
    "s": [
        *["length({c}) > 2", "{c} LIKE 'a_b'", "{c} LIKE '%b%c'", "{c} LIKE 'A_!%c' ESCAPE '!'", "ascii({c}) = 97"],
        *["levenshtein({c}, 'ab') <= 1", "{c} LIKE 'a%'", "contains({c}, 'b')", "{c} RLIKE '^[a-z]+$'"],
    ],
    "d": ["year({c}) = 2024", "dayofweek({c}) IN (1, 5)", "date_format({c}, 'MMM') = 'Feb'"],
    "z": ["hour({c}) = 18", "date_format({c}, 'yyyy') = '2023'", "year({c}) < 1970"],
    "y": ["hour({c}) = 22", "minute({c}) > 12"],
    "x": ["isnan({c})", "cast({c} AS string) = '-0.0'", "{c} BETWEEN 0 AND 2"],
    "r": ["hex({c}) LIKE '61%'", "length({c}) = 1"],
    "i": ["cast({c} AS string) LIKE '-%'", "bit_count({c}) > 3", "{c} IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, NULL)"],
}


def conditions(chance: random.Random, column: str) -> str:
    """A random condition over one column."""

    def leaf() -> str:
        if column in WHOLE and chance.random() < 0.4:
            return chance.choice(WHOLE[column]).format(c=column)
        expressions, literals = EXPRESSIONS[column]
        expression = chance.choice(expressions).format(c=column)
        shape = chance.randrange(8)
        if shape == 0:
            return f"{expression} IS NULL"
        if shape == 1:
            return f"{expression} IN ({', '.join(chance.sample(literals, 2))})"
        return f"{expression} {chance.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {chance.choice(literals)}"

    match chance.randrange(8):
        case 0:
            return f"(({leaf()}) AND ({leaf()}))"
        case 1:
            return f"(({leaf()}) OR NOT ({leaf()}))"
        case 2:
            return f"CASE WHEN {leaf()} THEN {leaf()} ELSE {leaf()} END"
    return f"({leaf()})"


@pytest.fixture(scope="module")
def values(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A file a row, in a session whose zone is not UTC."""
    place = tmp_path_factory.mktemp("values")
    for number in range(11):
        row = {name: pa.array([pool[number % len(pool)]], kind) for name, (kind, pool) in COLUMNS.items()}
        pq.write_table(pa.table(row), place / f"{number:02}.parquet")
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/Chicago")
    session.conf.set("spark.geoskip.planning.budget", "120")
    geoskip.dataset(session, str(place)).create_index(*map(ValueList, COLUMNS))
    return session.read.parquet(str(place))


@pytest.mark.slow
def test_random_conditions_are_decided_exactly(values: Any) -> None:
    """One job says what Spark makes of them; which files are read needs none."""
    chance = random.Random(4)
    texts = [conditions(chance, name) for name in COLUMNS for _ in range(8)]
    texts = [chance.choice(["{}", "NOT {}", "{} IS NULL", "{} <=> false"]).format(text) for text in texts]
    texts = list(dict.fromkeys(texts))
    holding = holding_files(values, texts)
    wrong = {}
    for text in texts:
        report = geoskip.explain(values.where(text))
        if report.scans and kept(report).split() != holding[text]:
            wrong[text] = (kept(report), holding[text], report.scans[0].reasons)
    assert not wrong


def test_decimals_are_cast_in_the_form_that_a_row_has(spark: Any, parts: Any) -> None:
    """Spark casts 999999999.999999999 to 999999999 where it is held as a long, else to 1000000000."""
    near, large = Decimal("999999999.999999999"), Decimal(10**38 - 1)
    table = {"x": pa.array([near], pa.decimal128(18, 9)), "y": pa.array([large], pa.decimal128(38, 0))}
    place = str(parts(pa.table(table)))
    geoskip.dataset(spark, place).create_index(
        MinMax("x"), ValueList("x"), ValueList("y"), ValueList("x + 0.000000000"), MinMax("x + 0.000000000")
    )
    spark.read.parquet(place).createOrReplaceTempView("near_whole_numbers")
    for where in (
        "cast(x AS int) = 999999999",
        "NOT (try_cast(x AS int) <=> 1000000000)",
        "cast(x AS bigint) < 1000000000",
        "cast(x + 0.000000000 AS int) = 999999999",
        "cast(x + 0.000000000 AS int) = 1000000000",
        f"NOT (try_cast(y AS timestamp) <=> try_cast({large} AS timestamp))",
    ):
        same_as_off(lambda where=where: spark.sql(f"SELECT * FROM near_whole_numbers WHERE {where}"))
    assert geoskip.explain(spark.table("near_whole_numbers").where("cast(x AS int) = 1000000000")).files_kept == 0
