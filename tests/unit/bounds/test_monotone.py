"""MinMax through monotone functions: what numpy computes itself, and what an engine evaluates for the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import udf_mappings.monotone_functions as library
from geoskip.clauses import keep_mask
from geoskip.evaluation import using_evaluator
from geoskip.evaluation.values import CandidateValues, ZoneTransitions
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Predicate
from tests.support.harness import COLUMNS, TYPES, array_of
from udf_mappings import CATALYST


@dataclass
class Engine:
    """Evaluates one function of one value; None and what it raises are NULL."""

    function: Callable[[Any], Any]
    kind: pa.DataType
    asked: int = 0

    def outcomes(self, node: Predicate, over: Predicate, values: CandidateValues) -> None:
        return None

    def values(self, node: Predicate, over: Predicate, values: CandidateValues) -> pa.Array:
        self.asked += len(values)
        return pa.array([self._of(value) for value in values.array.to_pylist()], self.kind)

    def clocks(self, zone: str) -> ZoneTransitions | None:
        return None

    def _of(self, value: Any) -> Any:
        try:
            return self.function(value)
        except (ValueError, OverflowError):
            return None


def spark(kind: str, *args: Predicate, type: str, flags: tuple[str, ...] = ()) -> Call:
    """A call of one of Catalyst's functions of the library."""
    return Call(library.FUNCTIONS.get(kind, (kind,))[0], args, CATALYST + kind, flags, type)


def kept(node: Predicate, name: str, files: list[list[Any]], engine: Engine | None = None) -> list[bool]:
    index = MinMax(name).bind([COLUMNS[name]])
    stored = index.metadata_type(SourceColumn(name, *TYPES[name]))
    summaries = pa.array([index.collect(array_of(name, rows)) for rows in files], stored)
    metadata = FileMetadata.of(pa.table({str(index): summaries}))
    problems: list[str] = []
    with using_evaluator(engine, problems.append):
        clause = clause_for(node, [index], problems.append)
        found = keep_mask(clause, metadata).tolist()
    assert not problems
    assert keep_mask(clause, metadata).tolist() == found  # a report asks when no engine is there
    return found


def year(days: int) -> int:
    return 1970 + days // 365


YEAR = spark("Year", COLUMNS["day"], type="int")
DAYS = [[0, 10], [300, 400], [366, 370], [None], [730]]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Comparison("=", YEAR, Literal(1971, "int")), [0, 1, 1, 0, 0]),
        (Comparison(">", YEAR, Literal(1971, "int")), [0, 0, 0, 0, 1]),
        (Comparison("<=", YEAR, Literal(1970, "int")), [1, 1, 0, 0, 0]),
        (In(YEAR, (Literal(1969, "int"), Literal(1972, "int"))), [0, 0, 0, 0, 1]),
        (Not(Comparison("=", YEAR, Literal(1971, "int"))), [1, 1, 0, 0, 1]),
        (Not(In(YEAR, (Literal(1970, "int"), Literal(1971, "int")))), [0, 1, 0, 0, 1]),
    ],
)
def test_year(node: Predicate, expected: list[int]) -> None:
    assert kept(node, "day", DAYS, Engine(year, pa.int64())) == [bool(e) for e in expected]


def test_without_an_engine_only_values_are_asked_for() -> None:
    assert kept(Comparison("=", YEAR, Literal(1971, "int")), "day", DAYS) == [True, True, True, False, True]


def test_an_engine_is_asked_once_a_bound() -> None:
    engine = Engine(year, pa.int64())
    kept(Comparison("=", YEAR, Literal(1971, "int")), "day", [[0, 10], [10, 20], [0, 20]], engine)
    assert engine.asked == 3


def test_a_bound_that_is_null_or_throws_leaves_its_file_unknown() -> None:
    node = Comparison(">", spark("ToDegrees", COLUMNS["x"], type="double"), Literal(100.0, "double"))
    engine = Engine(math.log, pa.float64())
    assert kept(node, "x", [[1.0, 2.0], [0.0, 1.0], [-1.0, 2.0], [1.0, math.nan], []], engine) == [
        *(False, True, True, True, False)
    ]


@pytest.mark.parametrize(
    ("kind", "function", "op", "limit", "expected"),
    [
        ("Log", math.log, ">", 1.0, [0, 0, 0, 1, 0]),
        ("Log", math.log, "<", 0.5, [1, 0, 1, 1, 0]),
        ("Log", math.log, "=", -7.0, [0, 0, 1, 1, 0]),
        ("Sqrt", lambda x: math.sqrt(x) if x >= 0 else math.nan, ">", 9.0, [0, 1, 1, 1, 0]),
        ("Sqrt", lambda x: math.sqrt(x) if x >= 0 else math.nan, "<", 9.0, [1, 0, 1, 1, 0]),
    ],
)
def test_of_functions_that_begin_somewhere_the_greatest_result_is_known(
    kind: str, function: Callable[[float], float], op: str, limit: float, expected: list[int]
) -> None:
    """Below, a logarithm is NULL, which is never TRUE, and a square root NaN, which is above all."""
    node = Comparison(op, spark(kind, COLUMNS["x"], type="double"), Literal(limit, "double"))
    files = [[1.0, 2.0], [-2.0, -1.0], [-1.0, 2.0], [-1.0, 9.0], []]
    assert kept(node, "x", files, Engine(function, pa.float64())) == [bool(e) for e in expected]
    if kind == "Log":
        unequal = Not(Comparison("=", node.left, Literal(limit, "double")))
        assert kept(unequal, "x", files, Engine(function, pa.float64())) == [True, False, True, True, False]


@pytest.mark.parametrize(("op", "expected"), [("<", [0, 1, 0, 0]), (">", [1, 0, 1, 1]), ("=", [0, 0, 0, 0])])
def test_where_nan_stays_nan_the_other_values_still_count(op: str, expected: list[int]) -> None:
    files = [[5.0, math.nan], [1.0], [math.nan], [5.0]]
    node = Comparison(op, spark("Exp", COLUMNS["x"], type="double"), Literal(9.0, "double"))
    assert kept(node, "x", files, Engine(math.exp, pa.float64())) == [bool(e) for e in expected]
    floor = Comparison(op, spark("Floor", COLUMNS["x"], type="bigint"), Literal(0, "bigint"))
    assert kept(floor, "x", files, Engine(math.floor, pa.int64()))[::2] == [True, True]  # of NaN it is 0


def test_falling_functions_turn_the_bounds_round() -> None:
    by = spark("IntegralDivide", COLUMNS["n"], Literal(-10, "bigint"), type="bigint")
    engine = Engine(lambda value: -(abs(value) // 10) * (1 if value > 0 else -1), pa.int64())
    assert kept(Comparison("<", by, Literal(-2, "bigint")), "n", [[5, 10], [5, 40], [-40, -5]], engine) == [
        *(False, True, False)
    ]
    assert kept(Comparison("=", by, Literal(4, "bigint")), "n", [[5, 10], [5, 40], [-40, -5]], engine) == [
        *(False, False, True)
    ]


@pytest.mark.parametrize(("power", "below", "expected"), [(2.0, 3.0, [0, 1, 0]), (3.0, -5.0, [1, 0, 0])])
def test_powers_are_even_or_odd(power: float, below: float, expected: list[int]) -> None:
    node = spark("Pow", COLUMNS["x"], Literal(power, "double"), type="double")
    files, engine = [[-3.0, -2.0], [-1.0, 1.0], [2.0, 3.0]], Engine(lambda value: value**power, pa.float64())
    assert kept(Comparison("<", node, Literal(below, "double")), "x", files, engine) == [bool(e) for e in expected]


@pytest.mark.parametrize("name", ["x", "f"])
def test_products_of_reals(name: str) -> None:
    kind = TYPES[name][0]
    column = COLUMNS[name]
    scaled = Call(
        "+",
        (spark("Multiply", column, Literal(2.0, kind), type=kind), Literal(32.0, kind)),
        CATALYST + "Add",
        ("ANSI",),
        kind,
    )
    files = [[0.0, 1.0], [20.0, 30.0], [29.0, 31.0], [math.nan], [math.inf]]
    assert kept(Comparison(">", scaled, Literal(92.0, kind)), name, files) == [False, False, True, True, True]
    halved = spark("Divide", column, Literal(-2.0, kind), type=kind)
    assert kept(Comparison("<=", halved, Literal(-15.0, kind)), name, files) == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("name", "files", "bound", "expected"),
    [
        ("a", [[-5, -4], [-3, 9], [1, 2], [-(2**31), 0], [None]], 3, [0, 1, 1, 1, 0]),
        ("n", [[-5, -4], [-3, 9], [1, 2], [-(2**63), 0], [2**63 - 1]], 3, [0, 1, 1, 1, 0]),
        ("x", [[-5.0, -4.0], [-3.0, 9.0], [1.0, 2.0], [math.nan], [-math.inf]], 3.0, [0, 1, 1, 0, 0]),
    ],
)
def test_absolute_values(name: str, files: list[list[Any]], bound: Any, expected: list[int]) -> None:
    node = Comparison("<", _absolute(name), Literal(bound, TYPES[name][0]))
    assert kept(node, name, files) == [bool(e) for e in expected]


@pytest.mark.parametrize("name", ["a", "n", "x"])
def test_the_least_absolute_value_of_a_range_that_holds_zero_is_zero(name: str) -> None:
    kind = TYPES[name][0]
    zero, files = Literal(0.0 if kind == "double" else 0, kind), [[-5, 5], [0, 3], [-4, 0], [1, 2], [-2, -1]]
    values = [[float(v) for v in file] for file in files] if kind == "double" else files
    for op in ("=", "<="):
        assert kept(Comparison(op, _absolute(name), zero), name, values) == [True, True, True, False, False]


def _absolute(name: str) -> Call:
    return Call("abs", (COLUMNS[name],), CATALYST + "Abs", ("true",), TYPES[name][0])


def test_casts_between_times_only_where_clocks_are_never_set_back_or_are_known() -> None:
    for zone, expected in (("UTC", [False, True]), ("Europe/Berlin", [True, True])):
        node = Cast(Column("ts", "timestamp_ntz"), "timestamp", "timestamp_ntz", True, zone)
        asked = Comparison(">", node, Literal(5, "timestamp"))
        assert kept(asked, "ts", [[0, 5], [0, 6]], Engine(lambda value: value, pa.int64())) == expected


def test_the_literal_says_which_way() -> None:
    x = COLUMNS["x"]
    nothing = [
        library.direction_by_sign(spark("Divide", Literal(1.0), x, type="double")),
        library.direction_by_sign(spark("Divide", x, Literal(math.nan), type="double")),
        library.direction_of_second(
            spark("TruncTimestamp", Literal("month"), x, type="timestamp", flags=("Asia/Tokyo",))
        ),
        library.direction_of_power(spark("Pow", x, Literal(2.0), type="double")),
        library.direction_of_rounding(spark("Round", x, Literal(-1), type="int", flags=("false",))),
        library.direction_of_first(spark("AddMonths", x, Literal(None), type="date")),
        library.direction_between_times(spark("TimestampDiff", x, Literal(0), type="bigint", flags=("month", "UTC"))),
        library.direction_between_times(
            spark("TimestampDiff", x, Literal(0), type="bigint", flags=("DAY", "Asia/Tokyo"))
        ),
    ]
    assert nothing == [None] * len(nothing)
    assert (
        library.direction_between_times(spark("TimestampDiff", x, Literal(0), type="bigint", flags=("day", "UTC")))
        == "decreasing"
    )
    assert (
        library.direction_between_times(spark("TimestampDiff", Literal(0), x, type="bigint", flags=("MONTH", "UTC")))
        == library.RISES
    )


def test_what_a_cast_makes_null_stays_null_after_further_steps() -> None:
    short = Cast(COLUMNS["x"], "decimal(5,0)", "double")
    absolute = Call("abs", (Cast(short, "double", "decimal(5,0)"),), CATALYST + "Abs", ("false",), "double")
    engine = Engine(lambda value: Decimal(value) if abs(value) < 1e5 else None, pa.decimal128(5, 0))
    assert kept(IsNull(absolute), "x", [[1.0, 2.0], [1.0, 1e9]], engine) == [False, True]


def test_what_an_engine_said_of_one_cast_is_not_taken_for_another() -> None:
    index = MinMax("x").bind([COLUMNS["x"]])
    stored = index.metadata_type(SourceColumn("x", *TYPES["x"]))
    files = FileMetadata.of(pa.table({str(index): pa.array([index.collect(array_of("x", [1e30]))], stored)}))
    wraps, tries = (Cast(COLUMNS["x"], "int", "double", tries=tries) for tries in (False, True))
    for cast, engine in ((wraps, lambda value: 2**31 - 1), (tries, lambda value: None)):
        with using_evaluator(Engine(engine, pa.int64())):
            assert keep_mask(clause_for(IsNull(cast), [index]), files).tolist() == [cast is tries]


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("d", lambda c: spark("Round", c, Literal(1, "int"), type="double"),
         "round(min(d), 1) <= 2.5 <= round(max(d), 1)"),
        ("e", lambda c: spark("Multiply", c, Literal(1e300, "double"), type="double"),
         "(min(e) * 1e+300) <= 2.5 <= (max(e) * 1e+300)"),
        ("5", lambda c: Call("+", (c, Literal(5.0, "double")), CATALYST + "Add", (), "double"),
         "(min(5) + 5.0) <= 2.5 <= (max(5) + 5.0)"),
        ("{}", lambda c: spark("Sqrt", c, type="double"), "sqrt(min({})) <= 2.5 <= sqrt(max({}))"),
    ],
)  # fmt: skip
def test_a_clause_is_shown_whatever_the_column_is_called(name: str, function: Callable[..., Call], said: str) -> None:
    column = Column(name, "double")
    node = Comparison("=", function(column), Literal(2.5, "double"))
    assert str(MinMax(name).bind([column]).clause(node)) == said


def test_a_decimal_of_many_digits_may_have_too_many_before_the_point() -> None:
    d = Column("d", "decimal(38,0)")
    index = MinMax("d").bind([d])
    stored = index.metadata_type(SourceColumn("d", d.type or "", pa.decimal128(38, 0)))
    summaries = [index.collect(pa.array([Decimal(10) ** n], pa.decimal128(38, 0))) for n in (5, 27, 28, 37)]
    files = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    node = IsNull(Cast(d, "decimal(38,10)", d.type))
    assert keep_mask(clause_for(node, [index]), files).tolist() == [False, False, True, True]


INTS = [[-3, 3], [2, 5], [2**31 - 2, 2**31 - 1], [None], [], [0, 10**5]]


@pytest.mark.parametrize(
    ("sign", "op", "bound", "expected"),
    [
        ("*", "<", 0, [0, 0, 1, 0, 0, 1]),  # a square is not below 0, where it does not leave the type
        ("*", "=", 9, [1, 1, 1, 0, 0, 1]),
        ("*", ">", 9, [0, 1, 1, 0, 0, 1]),
        ("+", ">", 9, [0, 1, 1, 0, 0, 1]),
        ("+", ">", 10, [0, 0, 1, 0, 0, 1]),
        ("-", ">", 6, [0, 0, 0, 0, 0, 1]),
        ("-", "<", -6, [0, 0, 0, 0, 0, 1]),
    ],
)
def test_two_operands_over_one_column(sign: str, op: str, bound: int, expected: list[int]) -> None:
    n = Column("n", "int")
    kinds = {"*": "Multiply", "+": "Add", "-": "Subtract"}
    node = Call(sign, (n, n), CATALYST + kinds[sign], ("ANSI",), "int")
    index = MinMax("n").bind([n])
    stored = index.metadata_type(SourceColumn("n", "int", pa.int32()))
    summaries = pa.array([index.collect(pa.array(rows, pa.int32())) for rows in INTS], stored)
    files = FileMetadata.of(pa.table({str(index): summaries}))
    clause = clause_for(Comparison(op, node, Literal(bound, "int")), [index])
    assert keep_mask(clause, files).tolist() == [bool(e) for e in expected]
    assert "n" in str(clause)


def test_two_operands_that_may_make_nan_leave_their_file_unknown() -> None:
    x = COLUMNS["x"]
    files = [[1.0, 2.0], [-math.inf, math.inf], [math.nan, 1.0], [1e200, 1.5e200], []]
    for sign, kind, op, bound, expected in (
        ("-", "Subtract", ">", 5.0, [0, 1, 1, 1, 0]),  # infinity less infinity is NaN, which is above all
        ("*", "Multiply", "<", 0.0, [0, 1, 0, 0, 0]),
        ("*", "Multiply", ">", 5.0, [0, 1, 1, 1, 0]),
        ("+", "Add", "<", 1.0, [0, 1, 0, 0, 0]),
    ):
        node = spark(kind, x, x, type="double")
        node = Call(sign, node.args, node.implementation, (), "double")
        found = kept(Comparison(op, node, Literal(bound, "double")), "x", files)
        assert found == [bool(e) for e in expected], (sign, op)


def test_an_even_power_is_that_of_the_absolute_value() -> None:
    square = spark("Pow", COLUMNS["x"], Literal(2.0, "double"), type="double")
    engine = Engine(lambda value: value**2, pa.float64())
    files = [[-3.0, 2.0], [4.0, 5.0], [-9.0, -7.0], [math.nan], []]
    assert kept(Comparison("<", square, Literal(10.0, "double")), "x", files, engine) == [
        *(True, False, False, False, False)
    ]
    assert kept(Comparison(">", square, Literal(30.0, "double")), "x", files, engine) == [
        *(False, False, True, True, False)
    ]


@pytest.mark.parametrize("kind", ["Remainder", "Pmod"])
def test_remainders_of_a_file_within_one_period_are_bounded(kind: str) -> None:
    def outcome(number: int) -> int:
        return int(math.fmod(number, 100)) if kind == "Remainder" else number % 100

    files = [[205, 210], [190, 210], [-110, -105], [-10, 10], [7], [None], [-300, 300]]
    part = spark(kind, COLUMNS["n"], Literal(100, "bigint"), type="bigint")
    for value in range(-100, 101):
        found = kept(Comparison("=", part, Literal(value, "bigint")), "n", files)
        for numbers, keep in zip(files, found, strict=True):
            whole = [] if None in numbers else range(numbers[0], numbers[-1] + 1)
            found_there = any(outcome(number) == value for number in whole)
            assert keep or not found_there, (value, numbers)  # no row is lost
            if len({number // 100 for number in whole}) < 2 and (kind == "Pmod" or min(whole, default=0) >= 0):
                assert keep == found_there, (value, numbers)
