"""Rows on which engines and Spark differ, conditions on them, and the check of a translated condition.

The rows exist as Arrow columns, for the engine, and as physical values, for the oracle of Spark's evaluation
(:mod:`tests.support.evaluator`). A condition is a tuple that each engine's test converts to the engine's own form: its
first member is ``compare``, ``isin``, ``null``, ``nan``, ``year``, ``text``, ``compare_columns`` or ``column``,
followed by names of columns, operators and values, or ``not``, ``and`` or ``or``, followed by conditions.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from geoskip import predicates as p
from tests.support.evaluator import outcomes

NAN, INF = math.nan, math.inf
UTC = dt.UTC
SINGLE = float(np.float32(0.1))
_CLOCK = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)

COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "i8": ("tinyint", pa.int8(), [-128, -1, 0, 1, 5, 100, 127]),
    "u8": ("smallint", pa.uint8(), [0, 1, 5, 100, 255]),
    "a": ("int", pa.int32(), [-(2**31), -1, 0, 1, 5, 2**24, 2**31 - 1]),
    "c": ("int", pa.int32(), [-1, 0, 1, 5]),
    "n": ("bigint", pa.int64(), [-(2**63), -1, 0, 1, 5, 2**53, 2**53 + 1, 2**63 - 1]),
    "small": ("bigint", pa.int64(), [-1, 0, 1, 5, 6]),
    "x": ("double", pa.float64(), [-INF, -1.5, -0.0, 0.0, 0.1, SINGLE, 5.0, INF, NAN]),
    "y": ("double", pa.float64(), [-0.0, 0.0, 5.0, NAN]),
    "f": ("float", pa.float32(), [-INF, -1.5, -0.0, 0.0, SINGLE, 5.0, INF, NAN]),
    "s": (
        "string",
        pa.string(),
        ["", "a", "ab", "a\nb", "aXb", "a%b", "b", "é", "\uffff", "\U0001f600", "a\U0001f600b"],
    ),
    "t": ("string", pa.string(), ["", "a", "ab", "\uffff", "\U0001f600"]),
    "bin": ("binary", pa.binary(), [b"", b"a", b"ab", b"\x00", b"\xff"]),
    "d": (
        "decimal(10,2)",
        pa.decimal128(10, 2),
        [*map(Decimal, ("-99999999.99", "-1.01", "0.00", "1.00", "1.50", "1.51"))],
    ),
    "day": ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "late": ("date", pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]),
    "us": ("timestamp", pa.timestamp("us", "UTC"), [-1, 0, 1, 1_709_208_000_000_000, 1_709_209_815_123_456]),
    "ns": (
        "timestamp_ntz",
        pa.timestamp("ns"),
        [-1500, -1, 0, 1, 999, 1000, 1_709_209_815_123_456_000, 1_709_209_815_123_456_789],
    ),
    "ms": ("timestamp_ntz", pa.timestamp("ms"), [-1, 0, 1, 2, 1_709_209_815_123]),
    "b": ("boolean", pa.bool_(), [True, False]),
}
"""By column: Spark's type, Arrow's, and values."""
NAMES = {
    "a": "int", "x": "double", "f": "float", "s": "string", "d": "decimal(10,2)", "day": "date", "ts": "timestamp",
    "tn": "timestamp_ntz", "b": "boolean", "g": "binary", "lng": "double", "lat": "double", "odd col": "int",
    "st": "struct<x:int,Y:string>",
}  # fmt: skip
"""Types of columns by name, of every kind that conditions in SQL can compare."""
TYPES = {name: kind for name, (kind, _, _) in COLUMNS.items()} | {"st": "struct<y:int>"}
_COMPARED = {**TYPES, "st.y": "int"}
del _COMPARED["st"]
_WHOLE = [-(2**70), -(2**63), -200, -1, 0, 1, 5, 127, 128, 1000, 2**24, 2**24 + 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1]
_REAL = [-INF, -1.5, -0.0, 0.0, 0.1, SINGLE, 1e-50, 1.0, 5.0, 5.5, 100.00000001, 16777216.4, 1e300, INF, NAN]
_DECIMALS = [*map(Decimal, ("-1.01", "0", "1", "1.5", "1.505", "99999999.99", "1000000000", "5", "5.5"))]
_TIMES = [
    *(
        dt.datetime(1, 1, 1),
        dt.datetime(1900, 12, 31),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        dt.datetime(1970, 1, 1),
    ),
    *(
        dt.datetime(1970, 1, 1, 0, 0, 0, 1),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1500),
        dt.datetime(2024, 2, 29, 12),
        _CLOCK,
    ),
]
_DAYS = [dt.date(1500, 1, 1), dt.date(1582, 10, 15), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]
LITERALS: dict[str, list[Any]] = {
    "tinyint": [*_WHOLE, *_REAL], "smallint": [*_WHOLE, *_REAL], "int": [*_WHOLE, *_REAL, *_DECIMALS],
    "bigint": [*_WHOLE, *_REAL], "double": [*_WHOLE, *_REAL], "float": [*_WHOLE, *_REAL],
    "string": ["", "a", "ab", "a%b", "é", "\uffff", "\U0001f600"], "binary": [b"", b"a", b"ab", b"\xff", b"a\x00"],
    "decimal(10,2)": [*_DECIMALS, *_WHOLE, 1.5], "date": [*_DAYS, *_TIMES],
    "timestamp": [time.replace(tzinfo=UTC) for time in _TIMES], "timestamp_ntz": _TIMES, "boolean": [True, False],
}  # fmt: skip
_YEARS = st.sampled_from([-1, 1, 1582, 1969, 1970, 1971, 2024, 9999, 10_000])
PATTERNS = ["", "a", "b", "ab", "a%", "%b", "a%b", "_", "a_b", "%a%", "é", "\U0001f600", "\\%", "a\\%b", "%_%", "\n"]


def table(rows: int = 200) -> pa.Table:
    """Create rows with random values of the columns, a fifth of them null; deterministic."""
    chance = random.Random(18)

    def values(pool: list[Any]) -> list[Any]:
        return [None if chance.random() < 0.2 else chance.choice(pool) for _ in range(rows)]

    found = {name: pa.array(values(pool), kind) for name, (_, kind, pool) in COLUMNS.items()}
    inner = values([{"y": 1}, {"y": 5}, {"y": None}])
    return pa.table(found | {"st": pa.array(inner, pa.struct([("y", pa.int32())]))})


def physical_rows(data: pa.Table) -> list[dict[str, Any]]:
    """The rows as Spark stores them: days and microseconds as integers, nested fields by their paths."""
    found: dict[str, list[Any]] = {}
    for name in data.column_names:
        column = data[name].combine_chunks()
        if pa.types.is_date(column.type):
            found[name] = column.cast(pa.int32()).to_pylist()
        elif pa.types.is_timestamp(column.type):
            unit = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[column.type.unit]
            found[name] = [None if v is None else v * unit[0] // unit[1] for v in column.cast(pa.int64()).to_pylist()]
        elif pa.types.is_struct(column.type):
            found[f"{name}.y"] = [None if v is None else v["y"] for v in column.to_pylist()]
        else:
            found[name] = column.to_pylist()
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def may_be_true(node: p.Predicate, row: Mapping[str, Any]) -> bool:
    """Test whether a predicate is TRUE for a row in Spark, or unknown."""
    match node:
        case p.And(parts):
            return all(may_be_true(part, row) for part in parts)
        case p.Or(parts):
            return any(may_be_true(part, row) for part in parts)
        case p.Opaque() | p.Literal(True):
            return True
        case p.Literal(_):
            return False
        case p.Not(p.Opaque()):
            raise AssertionError("an unknown condition was negated")
    return True in outcomes(node, row)


def lost_rows(node: p.Predicate, rows: Iterable[Mapping[str, Any]], answers: Iterable[bool | None]) -> list[Any]:
    """Rows that an engine finds and the translated predicate would lose, with the columns that it reads."""
    read = sorted(p.columns_of(node))
    return [
        {name: row[name] for name in read}
        for row, answer in zip(rows, answers, strict=True)
        if answer is True and not may_be_true(node, row)
    ]


def conditions(
    *,
    texts: Iterable[str] = ("starts", "ends", "contains"),
    literals: Callable[[str, Any], bool] = lambda name, value: True,
) -> st.SearchStrategy[tuple[Any, ...]]:
    """Strategy of conditions over the columns; ``literals`` has the values to compare each column with."""
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])

    def values(name: str) -> list[Any]:
        return [
            value
            for value in [*LITERALS[_COMPARED[name]], *COLUMNS.get(name, ("", None, []))[2]]
            if literals(name, value)
        ]

    def leaf(name: str) -> st.SearchStrategy[tuple[Any, ...]]:
        value = st.sampled_from(
            [v for v in values(name) if not (isinstance(v, int) and _COMPARED[name].startswith("timestamp"))]
        )
        members = st.lists(st.one_of(st.none(), value), max_size=3).map(tuple)
        return st.one_of(
            st.tuples(st.just("compare"), st.just(name), operators, value),
            st.tuples(st.just("compare"), st.just(name), operators, value),
            st.tuples(st.just("isin"), st.just(name), members),
            st.tuples(st.just("null"), st.just(name)),
        )

    strings = st.tuples(
        st.just("text"), st.sampled_from(["s", "t"]), st.sampled_from(list(texts)), st.sampled_from(PATTERNS)
    )
    pairs = st.sampled_from([("x", "y"), ("a", "c"), ("s", "t"), ("y", "x"), ("a", "n"), ("n", "small"), ("ns", "ms")])
    leaves = st.one_of(
        *map(leaf, _COMPARED),
        strings,
        st.tuples(st.just("nan"), st.sampled_from(["x", "f", "a"])),
        st.just(("column", "b")),
        st.tuples(st.just("year"), st.sampled_from(["day", "late", "ms", "ns"]), operators, _YEARS),
        st.tuples(pairs, operators).map(lambda pair: ("compare_columns", pair[0][0], pair[1], pair[0][1])),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        ),
        max_leaves=4,
    )
