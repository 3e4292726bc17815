"""Which indexes are proposed for a condition, and that each proposal serves it."""

from __future__ import annotations

import pytest

import udf_mappings.metrics  # noqa: F401
from geoskip.advisor.index_candidates import filtered_columns, index_candidates, serves
from geoskip.predicates import (
    And,
    Call,
    Column,
    Comparison,
    EndsWith,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

CATALYST = "org.apache.spark.sql.catalyst.expressions."
N, CITY, AGENT = Column("n", "int"), Column("city", "string"), Column("user_agent", "string")
LNG, LAT = Column("lng", "double"), Column("lat", "double")
START, END = Column("start", "timestamp"), Column("end", "timestamp")


def call(name: str, kind: str, *args: Predicate, type: str) -> Call:
    return Call(name, args, CATALYST + kind, (), type)


def text(value: str) -> Literal:
    return Literal(value, "string")


def number(value: float) -> Literal:
    return Literal(value, "int" if isinstance(value, int) else "double")


def python(name: str, *args: Predicate) -> Call:
    return Call(name, args, f"python:shop.{name}#1", ("eval:100",), "string")


LEVENSHTEIN = call("levenshtein", "Levenshtein", CITY, text("Ulm"), type="int")
SQUARES = call(
    "+", "Add",
    call("power", "Pow", call("-", "Subtract", LNG, number(8.0), type="double"), number(2.0), type="double"),
    call("power", "Pow", call("-", "Subtract", LAT, number(47.0), type="double"), number(2.0), type="double"),
    type="double",
)  # fmt: skip
AGENT_NAME = python("get_agent_name", AGENT)
IP = call("regexp_extract", "RegExpExtract", AGENT, text(r"^(?<ip>\S+) (?<day>\S+)"), number(2), type="string")

EXPECTED = [
    (Comparison("=", N, number(3)), {"minmax(n)", "gaplist(n)", "valuelist(n)", "hybrid(n)", "bloomfilter(n)"}),
    (Comparison("<", N, number(3)), {"minmax(n)", "gaplist(n)", "gaplist(n, gaps=64)", "valuelist(n)"}),
    (StartsWith(CITY, "San"), {"minmax(city)", "prefix(city)", "prefix(city, length=6)", "prefix(city, length=40)"}),
    (Like(CITY, "%burg"), {"suffix(city)", "suffix(city, length=6)", "valuelist(city)"}),
    (Comparison("<", LEVENSHTEIN, number(2)), {"metricdist(city, metric=levenshtein)", "valuelist(city)"}),
    (Comparison("=", AGENT_NAME, text("Hacker")),
     {"formatted(user_agent, extract=get_agent_name)", "valuelist(user_agent)",
      "bloomfilter(get_agent_name(user_agent))"}),
    (Comparison("=", IP, text("4/7")), {r"formatted(user_agent, template=^(?<ip>\S+) (?<day>\S+))"}),
    (Comparison("<", call("sqrt", "Sqrt", SQUARES, type="double"), number(2.0)),
     {"metricdist(lng, lat, metric=euclidean)", "geobox(lng, lat)", "geobox(lng, lat, boxes=1)"}),
    (Comparison("<", START, END), {"minmax(start)", "minmax(end)"}),
    (Or((Comparison("=", N, number(3)), StartsWith(CITY, "San"))), {"minmax(n)", "prefix(city)"}),
    (And((Comparison(">", LNG, number(5.0)), Comparison("<", LAT, number(7.0)))), {"geobox(lng, lat)", "minmax(lng)"}),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "expected"), EXPECTED, ids=[str(condition)[:60] for condition, _ in EXPECTED])
def test_a_condition_has_the_candidates_that_serve_it(condition: Predicate, expected: set[str]) -> None:
    assert expected <= set(map(str, index_candidates([condition]).indexes))


UNEXPECTED = [
    (Comparison("<", N, number(3)), {"bloomfilter(n)", "prefix(n)"}),
    (EndsWith(CITY, "burg"), {"prefix(city)", "minmax(city)"}),
    (Comparison("<", LEVENSHTEIN, number(2)), {"minmax(levenshtein(city, 'Ulm'))", "metricdist(city, metric=hamming)"}),
    (Comparison("=", CITY, text("Ulm")), {"metricdist(city, metric=levenshtein)"}),
    (And((Comparison(">", LNG, number(5.0)), Comparison("<", LAT, number(7.0)))), {"geobox(lat, lng)"}),
    (And((Not(IsNull(N)), Comparison("=", CITY, text("Ulm")))), {"minmax(n)", "valuelist(n)"}),
    (Comparison("=", Opaque("rand()"), N), {"minmax(n)", "valuelist(n)"}),
]


@pytest.mark.parametrize(("condition", "absent"), UNEXPECTED, ids=[str(condition)[:60] for condition, _ in UNEXPECTED])
def test_no_candidate_says_only_that_there_is_a_value(condition: Predicate, absent: set[str]) -> None:
    assert absent.isdisjoint(map(str, index_candidates([condition]).indexes))


def test_an_expression_with_constants_is_proposed_where_several_conditions_read_it() -> None:
    near, far = (Comparison("<", LEVENSHTEIN, number(n)) for n in (1, 5))
    assert "minmax(levenshtein(city, 'Ulm'))" in map(str, index_candidates([near, far]).indexes)


def test_bounds_of_two_columns_are_named_as_a_group() -> None:
    assert index_candidates([Comparison("<", START, END)]).together == (("minmax(start)", "minmax(end)"),)
    sides = [Call("greatest", (START, END), type="bigint"), Call("least", (START, END), type="bigint")]
    names = ("minmax(greatest(start, end))", "minmax(least(start, end))")
    assert index_candidates([Comparison("=", *sides)]).together == (names,)


@pytest.mark.parametrize("condition", [condition for condition, _ in EXPECTED], ids=lambda each: str(each)[:60])
def test_each_candidate_serves_a_part_of_the_condition(condition: Predicate) -> None:
    found = index_candidates([condition])
    parts = condition.children if isinstance(condition, And | Or) else (condition,)
    groups = [[index for index in found.indexes if str(index) in names] for names in found.together]
    for index in found.indexes:
        group = next((some for some in groups if index in some), [index])
        assert any(serves(group, part) for part in (*parts, condition)), str(index)


def test_candidates_over_a_test_for_null_alone_serve_it() -> None:
    found = set(map(str, index_candidates([IsNull(N)]).indexes))
    assert {"minmax(n)", "valuelist(n)"} <= found


def test_the_columns_that_tests_read_are_those_to_order_by() -> None:
    tests = Or((Comparison("<", LEVENSHTEIN, number(2)), Not(Comparison("=", N, number(1)))))
    assert filtered_columns(And((Not(IsNull(LNG)), tests))) == {CITY, N}
    assert filtered_columns(IsNull(LNG)) == {LNG}


def test_types_of_columns_decide_what_is_proposed() -> None:
    value = Call("getmapvalue", (Column("props", "map<string,string>"), Literal("k", "string")), type="string")
    texts = set(map(str, index_candidates([Comparison("=", value, Literal("x", "string"))]).indexes))
    assert "valuelist(props['k'])" in texts
    assert "valuelist(props)" not in texts
    column = Column("b", "binary")
    kinds = {index.kind for index in index_candidates([Comparison("=", column, Literal(b"x", "binary"))]).indexes}
    assert "bloomfilter" in kinds
    assert not kinds & {"geobox", "metricdist"}


@pytest.mark.parametrize("kind", ["struct<q:int>", "variant", "interval month", "map<string,int>"])
def test_nothing_is_proposed_that_creating_it_refuses(kind: str) -> None:
    of_its_type = Column("half", kind)
    assert index_candidates([IsNull(of_its_type), Comparison("=", of_its_type, Column("other", kind))]).indexes == ()


def test_nothing_is_proposed_over_what_sql_cannot_call() -> None:
    padded = call("staticinvoke", "objects.StaticInvoke", CITY, number(3), type="string")
    assert not [i for i in index_candidates([Comparison("=", padded, text("a  "))]).indexes if "invoke" in str(i)]
