"""MinMax: what it stores, what it refuses, and what each leaf shape makes of each state of a file."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from geoskip import predicates as p
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.minmax import MinMax
from tests.support.harness import COLUMNS, TYPES, World, canned, leaves, sound, verdict

EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_every_leaf_shape_is_sound_for_every_state_of_a_file_and_skips_in_some(name: str) -> None:
    world = canned(name)
    useless: dict[str, bool] = {}
    for leaf in leaves(name):
        for node in (leaf, p.Not(leaf)):
            said = sound(node, world)
            shape = f"{'NOT ' if node is not leaf else ''}{type(leaf).__name__} {getattr(leaf, 'op', '')}"
            useless[shape] = useless.get(shape, True) and bool(said.true.all())
            assert said.true[-3:].all() or not said.true.any(), f"{node} skips a file whose summary is lost"
    assert [shape for shape, never in useless.items() if never] == []


def test_nan_lies_above_every_number_and_is_counted() -> None:
    found = MinMax("x").collect(pa.array([1.0, math.nan, None, 2.0]))
    assert found == {"min": 1.0, "max": 2.0, "exact": True, "nulls": 1, "nans": 1, "rows": 4}


def test_a_zero_bound_keeps_the_sign_that_may_be_asked_for() -> None:
    found = MinMax("x").collect(pa.array([0.0, -0.0]))
    assert found is not None
    assert (math.copysign(1, found["min"]), math.copysign(1, found["max"])) == (-1, 1)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        (pa.array([], pa.int32()), (None, None)),
        (pa.array([None], pa.string()), (None, None)),
        (pa.array([math.nan]), (None, None)),
        (pa.nulls(3), (None, None)),
        (pa.chunked_array([[3, None], [1]]), (1, 3)),
        (pa.array([True, False]), (False, True)),
        (pa.array(["b", "a"]).dictionary_encode(), (b"a", b"b")),
        (pa.array(["\U0001f600", "\uffff"]), ("\uffff".encode(), "\U0001f600".encode())),
        (pa.array(["b", "a"], pa.large_string()), (b"a", b"b")),
        (pa.array([b"\xff", b"\x00"]), (b"\x00", b"\xff")),
        (pa.array([dt.date(1970, 1, 3)]), (2, 2)),
        (pa.array([1_500], pa.timestamp("ns")), (1, 2)),
        (pa.array([-1_500], pa.timestamp("ns", "UTC")), (-2, -1)),
        (pa.array([7], pa.timestamp("ms", "UTC")), (7000, 7000)),
        (pa.array([7], pa.duration("us")), (7, 7)),
        (pa.array([Decimal("1.10"), Decimal("-2.00")]), (Decimal("-2.00"), Decimal("1.10"))),
        (pa.array(np.array([1.5], np.float16)), (1.5, 1.5)),
    ],
    ids=lambda value: str(value.type) if hasattr(value, "type") else "",
)
def test_bounds_are_physical_values_in_sparks_order(values: pa.Array, bounds: tuple[object, object]) -> None:
    found = MinMax("v").collect(values)
    assert found is not None
    assert (found["min"], found["max"], found["rows"]) == (*bounds, len(values))


def test_a_string_that_is_not_utf8_neither_fails_nor_is_replaced() -> None:
    raw = pa.array([b"a", b"\xffA\xc3"])
    found = MinMax("s").collect(pa.Array.from_buffers(pa.string(), 2, raw.buffers()))
    assert found is not None
    assert found["max"] == b"\xffA\xc3"


@pytest.mark.parametrize("last", ["x", "é", "\ud7ff", "\U0001f600", "\U0010ffff"])
def test_a_shortened_upper_bound_is_text_above_the_value_and_all_that_begin_like_it(last: str) -> None:
    value = ("y" * 31 + last * 2 + "tail").encode()
    found = MinMax("s").collect(pa.array([b"a", value], pa.binary()))
    assert found is not None
    assert not found["exact"]
    assert value < found["max"]
    assert value[:32] + b"\xff" * 9 < found["max"]
    assert len(found["max"]) <= 33
    found["max"].decode("utf-8")


@pytest.mark.parametrize("shared", [0, 1, 60, 172, 224, 300])
def test_bounds_keep_what_tells_files_of_a_long_common_prefix_apart(shared: int) -> None:
    files = [[f"{'x' * shared}/{10 * file + row:06}/{'tail' * 20}" for row in range(10)] for file in range(9)]
    found = [MinMax("s").collect(pa.array(texts)) for texts in files]
    for texts, bounds in zip(files, found, strict=True):
        assert bounds is not None
        assert bounds["min"] <= texts[0].encode()
        assert texts[-1].encode() <= bounds["max"]
        assert len(bounds["min"]) <= 256 >= len(bounds["max"]) - 3
    if shared <= 224:
        assert all(one["max"] < other["min"] for one, other in itertools.pairwise(found))


def test_a_bound_that_cannot_be_raised_is_open_and_stays_so_when_parts_are_merged() -> None:
    index = MinMax("s")
    high = index.collect(pa.array(["b", "\U0010ffff" * 9]))
    low = index.collect(pa.array(["a"]))
    empty = index.collect(pa.array([None], pa.string()))
    assert high is not None
    assert low is not None
    assert empty is not None
    whole = index.merge([low, high, empty])
    assert (whole["min"], whole["max"], whole["exact"]) == (b"a", None, False)
    assert (whole["nulls"], whole["rows"]) == (1, 4)
    assert index.merge([low, empty])["max"] == b"a"


def test_exact_bounds_that_a_merge_shortens_are_no_longer_exact() -> None:
    index = MinMax("s")
    long, other = index.collect(pa.array(["b" * 60])), index.collect(pa.array(["a"]))
    assert long is not None
    assert other is not None
    merged = index.merge([long, other])
    assert (long["exact"], merged["exact"], len(merged["max"]) < 60) == (True, False, True)


@pytest.mark.parametrize(
    ("kind", "way_out"),
    [
        ("array<int>", "index an element of it, or a function of it such as size(v)"),
        ("struct<a:int>", "index a field of it"),
        ("map<string,int>", "index an element"),
        ("string collate UTF8_LCASE", "v COLLATE UTF8_BINARY"),
        ("time(6)", "time_to_micros(v)"),
        ("variant", "variant_get(v"),
        ("interval", "no order"),
        ("geometry", "GeoBox(v)"),
        ("void", "NULL"),
    ],
)
def test_a_type_without_a_sound_order_is_refused_with_a_way_out(kind: str, way_out: str) -> None:
    with pytest.raises(UnsupportedColumnError, match=r"minmax\(v\) needs an ordered type, got ") as e:
        MinMax("v").metadata_type(SourceColumn("v", kind, pa.null()))
    assert f"got {kind}: " in str(e.value)
    assert way_out in str(e.value)


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("tinyint", pa.int8()),
        ("char(5)", pa.binary()),
        ("varchar(5)", pa.binary()),
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("interval day to second", pa.duration("us")),
        ("interval year to month", pa.int32()),
    ],
)
def test_bounds_have_the_arrow_type_of_the_column(kind: str, bound: pa.DataType) -> None:
    stored = MinMax("v").metadata_type(SourceColumn("v", kind, bound))
    assert stored.field("min").type == stored.field("max").type == bound


def test_a_specification_is_its_text_and_survives_json() -> None:
    assert str(MinMax("length(city)")) == "minmax(length(city))"
    assert index_from_json(MinMax("temp").to_json()) == MinMax("temp")
    with pytest.raises(InvalidSpecificationError, match="column name or SQL text"):
        MinMax(" ")


def test_values_that_python_has_a_type_for_may_be_given_as_such() -> None:
    day, ts = COLUMNS["day"], COLUMNS["ts"]
    world = World([[{"day": 0, "ts": 0}], [{"day": 19000, "ts": 19000 * 86_400_000_000}]])
    for node in (
        p.Comparison(">", day, p.Literal(dt.date(2000, 1, 1))),
        p.Comparison(">", ts, p.Literal(dt.datetime(2000, 1, 1))),
    ):
        assert verdict(node, world).true.tolist() == [False, True]
    aware = p.Comparison(">", ts, p.Literal(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)))
    assert verdict(aware, world).true.tolist() == [True, True], "whose clock is not said"


@pytest.mark.parametrize("literal", [p.Literal("5"), p.Literal(True), p.Literal(b"5"), p.Literal(object())])
def test_a_literal_of_another_kind_keeps_all_but_files_without_values(literal: p.Literal) -> None:
    world = World([[{"a": 1}], [{"a": None}], []])
    assert verdict(p.Comparison("=", COLUMNS["a"], literal), world).true.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "node",
    [
        p.Cast(p.Column("s", "string"), "bigint", "string"),
        p.Call("+", (p.Column("a", "int"), p.Literal(1, "int")), "python:mine.plus#1", (), "int"),
        p.Call(
            "isnan", (p.Column("x", "double"),), "org.apache.spark.sql.catalyst.expressions.ScalaUDF", (), "boolean"
        ),
    ],
    ids=str,
)
def test_what_is_not_known_to_be_monotone_is_not_seen_through(node: p.Predicate) -> None:
    (column,) = [v for v in p.walk(node) if isinstance(v, p.Column)]
    index = MinMax(column.name).bind([column])
    assert index.clause(p.Comparison("=", node, p.Literal(1))) is None
    assert index.clause(node) is None


def test_an_index_on_an_expression_meets_that_very_expression() -> None:
    length = p.Call(
        "length", (p.Column("city", "string"),), "org.apache.spark.sql.catalyst.expressions.Length", (), "int"
    )
    index = MinMax("length(city)").bind([length])
    assert str(index.clause(p.Comparison(">", length, p.Literal(9, "int")))) == "max(length(city)) > 9"
    assert index.clause(p.Comparison(">", p.Column("city", "string"), p.Literal("x", "string"))) is None


@pytest.mark.parametrize("pattern", ["a!", "a!bc%"])
def test_a_pattern_that_spark_refuses_keeps(pattern: str) -> None:
    world = World([[{"s": "q"}]])
    like = p.Like(COLUMNS["s"], pattern, "!")
    assert verdict(like, world).true.all()
    assert verdict(like, world).false.all()


def test_a_summary_with_lost_parts_keeps_what_they_would_have_excluded() -> None:
    from geoskip.clauses import keep_mask
    from geoskip.metadata import FileMetadata

    kind = MinMax("x").metadata_type(SourceColumn("x", "double", pa.float64()))
    whole = {"min": 1.0, "max": 2.0, "nulls": 0, "nans": 0, "rows": 3}
    rows = [whole, *({**whole, lost: None} for lost in whole), None]
    files = FileMetadata.of(pa.table({"minmax(x)": pa.array(rows, kind)}))
    index = MinMax("x").bind([COLUMNS["x"]])

    def kept(op: str, value: float) -> list[int]:
        clause = index.clause(p.Comparison(op, COLUMNS["x"], p.Literal(value, "double")))
        assert clause is not None
        return np.flatnonzero(keep_mask(clause, files)).tolist()

    assert kept("<", 0.0) == [1, 6], "without a minimum"
    assert kept(">", 3.0) == [2, 4, 6], "without a maximum, or the count of NaN"


@pytest.mark.parametrize(
    ("name", "value", "literal"),
    [("d", Decimal("1.01"), 1.01), ("d", Decimal("99999999.99"), 99999999.99), ("n", 2**53 + 1, 2.0**53)],
)
def test_a_float_is_equal_to_what_spark_would_cast_to_it(name: str, value: object, literal: float) -> None:
    world = World([[{name: value}], [{name: type(value)(3)}]])  # type: ignore[call-arg]
    equal = p.Comparison("=", COLUMNS[name], p.Literal(literal))
    assert verdict(equal, world).true.tolist() == [True, False]
    assert verdict(p.In(COLUMNS[name], (p.Literal(literal), p.Literal(7.5))), world).true.tolist() == [True, False]


@pytest.mark.parametrize(
    ("low", "high", "nulls", "is_taken"),
    [(3, 5, 0, True), (5, 3, 0, False), (None, 5, 0, False), (3, None, 0, False), (None, None, 2, True)],
)
def test_statistics_of_parquet_are_taken_if_they_are_in_order(
    low: int | None, high: int | None, nulls: int, is_taken: bool
) -> None:
    found = MinMax("a").from_statistics("int", low, high, nulls, 2)
    assert found == (
        {"min": low, "max": high, "exact": True, "nulls": nulls, "nans": 0, "rows": 2} if is_taken else None
    )
