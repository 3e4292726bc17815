"""Sentences on the parts of a condition that no index serves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from geoskip import Formatted, GeoBox, MinMax, ValueList
from geoskip.diagnosis.unserved import unserved_reasons
from geoskip.indexes.base import Index
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)
from geoskip.registry import mappings, maps
from geoskip.registry.installed import load_mappings
from tests.support.decided import decision

load_mappings()
CATALYST = "org.apache.spark.sql.catalyst.expressions."
ID, TEMP, ZIP = Column("id", "bigint"), Column("temp", "double"), Column("zip", "int")
CITY, WORD, LINE = Column("city", "string"), Column("word", "string"), Column("line", "string")
SEATS, FLOOR, TAGS = Column("seats", "bigint"), Column("floor", "bigint"), Column("tags", "array<int>")
LNG, LAT, X, Y = (Column(name, "double") for name in ("lng", "lat", "x", "y"))


def call(name: str, kind: str, *args: Predicate, type: str) -> Call:
    return Call(name, args, CATALYST + kind, (), type)


def lit(value: str | int | float) -> Literal:
    return Literal(value, {str: "string", int: "bigint", float: "double"}[type(value)])


def python(name: str, *args: Predicate, type: str = "string") -> Call:
    return Call(name, args, f"python:shop.{name}#1", ("eval:100",), type)


def group_of(pattern: str, number: int) -> Call:
    return call("regexp_extract", "RegExpExtract", LINE, lit(pattern), Literal(number, "int"), type="string")


def over(index: Index, *bound: Predicate) -> Index:
    return index.bind(bound)


def choice_of(test: Predicate, then: Predicate, other: Predicate) -> Call:
    return call("if", "If", test, then, other, type="boolean")


HOT, MINMAX = Comparison(">", TEMP, lit(25.0)), over(MinMax("temp"), TEMP)
BOXES = over(GeoBox("lng", "lat"), LNG, LAT)
LEVENSHTEIN = Comparison("<=", call("levenshtein", "Levenshtein", WORD, lit("x"), type="int"), Literal(2, "int"))
TEMPLATE = r"^(?<ip>\S+) "
PARTS = over(Formatted("line", template=TEMPLATE), group_of(TEMPLATE, 1))
ZONE = python("zone", CITY)
ELEMENT = Call("namedlambdavariable", (), flags=("0", "0"), type="int")
MS, PLAN = (call("get_json_object", "GetJsonObject", LINE, lit(path), type="string") for path in ("$.ms", "$.plan"))
HIGH = Call("lambdafunction", (Comparison(">", ELEMENT, Literal(3, "int")), ELEMENT), type="boolean")
NEAR = Comparison(
    "<",
    call("sqrt", "Sqrt", call("+", "Add", *(
        call("power", "Pow", call("-", "Subtract", side, lit(8.0), type="double"), lit(2.0), type="double")
        for side in (X, Y)
    ), type="double"), type="double"),
    lit(2.0),
)  # fmt: skip

CASES: list[tuple[Predicate, list[Index], list[str]]] = [
    # what is served has no reason, whether or not it skips a file
    (HOT, [MINMAX], []),
    (Comparison(">", TEMP, lit(-5.0)), [MINMAX], []),
    (And((HOT, Not(IsNull(TEMP)))), [MINMAX], []),
    (Or((HOT, Comparison("<", TEMP, lit(3.0)))), [MINMAX], []),
    (And((Comparison(">", LAT, lit(5.0)), Comparison("<", LNG, lit(30.0)))), [BOXES], []),
    (Not(Or((HOT, IsNull(TEMP)))), [MINMAX], []),
    # a column without an index
    (Comparison("=", CITY, lit("Ulm")), [MINMAX], ['no index over city: MinMax("city")']),
    (Comparison("=", CITY, lit("Ulm")), [], ['no index over city: MinMax("city")']),
    (And((HOT, Comparison("=", CITY, lit("Ulm")))), [MINMAX], ['no index over city: MinMax("city")']),
    (And((Comparison(">", ID, lit(3)), Comparison("<", ID, lit(9)))), [MINMAX], ['no index over id: MinMax("id")']),
    (In(CITY, (lit("Ulm"), lit("Bonn"))), [MINMAX], ['no index over city: MinMax("city")']),
    (Comparison("=", Cast(ZIP, "bigint", "int"), lit(7)), [MINMAX], ['no index over zip: MinMax("zip")']),
    (Comparison(">", TEMP, Column("limit", "double")), [MINMAX], ['no index over limit: MinMax("limit")']),
    # IS NOT NULL, which Spark adds, is a reason only where there is no other condition
    (And((Not(IsNull(CITY)), Not(IsNull(TEMP)), HOT)), [MINMAX], []),
    (Not(IsNull(CITY)), [MINMAX], ["only city IS NOT NULL reaches its files, which few files fail"]),
    (Not(IsNull(TEMP)), [MINMAX], []),
    (And((Not(IsNull(TEMP)), Not(IsNull(CITY)))), [MINMAX],
     ["only temp IS NOT NULL AND city IS NOT NULL reach its files, which few files fail"]),
    (Comparison("=", call("greatest", "Greatest", ID, SEATS, type="bigint"), call("abs", "Abs", FLOOR, type="bigint")),
     [MINMAX], ['no index over greatest(id, seats): MinMax("greatest(id, seats)")']),
    (Comparison("=", TAGS, Literal((1,), "array<int>")),
     [MINMAX], ["no index over tags, and there is none to suggest"]),
    (IsNull(CITY), [MINMAX], ['no index over city: MinMax("city")']),
    # a function of a column without an index
    (LEVENSHTEIN, [MINMAX], ["no index over levenshtein(word, 'x'): MetricDist(\"word\", metric=\"levenshtein\")"]),
    (NEAR, [BOXES], [('no index over sqrt((power((x - 8.0), 2.0) + power((y - 8.0), 2.0))): '
                     'MetricDist("x", "y", metric="euclidean")')]),
    # a function without a mapping
    (Comparison("=", ZONE, lit("6")), [MINMAX],
     ['no index over zone(city), a function without a mapping: Formatted("city", extract="zone")']),
    # an index over the column that does not serve the condition
    (EndsWith(CITY, "burg"), [over(MinMax("city"), CITY)],
     ["minmax(city) does not serve city LIKE '%burg': ValueList(\"city\")"]),
    (Like(CITY, "%b_rg"), [over(MinMax("city"), CITY)],
     ["minmax(city) does not serve city LIKE '%b_rg': ValueList(\"city\")"]),
    (LEVENSHTEIN, [over(MinMax("word"), WORD)],
     [("minmax(word) and the mapping of levenshtein do not serve levenshtein(word, 'x') <= 2: "
      'MetricDist("word", metric="levenshtein")')]),
    (Comparison("=", call("hash", "Murmur3Hash", LAT, type="int"), Literal(3, "int")), [BOXES],
     ['geobox(lng, lat) does not serve hash(lat) = 3: ValueList("lat")']),
    (Call("exists", (Column("tags", "array<int>"), HIGH), type="boolean"), [],
     ['no index over exists(tags, (x) -> x > 3): MinMax("exists(tags, (x) -> (x > 3))")']),
    # the index over the call of the condition is named, not one over another call
    (Comparison(">", Cast(MS, "bigint", "string"), lit(9000)), [over(MinMax("other"), PLAN), over(MinMax("ms"), MS)],
     [("minmax(ms) does not serve CAST(get_json_object(line, '$.ms') AS bigint) > 9000: "
      "Formatted('line', extract=\"get_json_object({}, '$.ms')\")")]),
    (Comparison("=", MS, lit("7")), [over(MinMax("other"), PLAN)],
     [("minmax(other) is over another call than get_json_object(line, '$.ms'): "
      "Formatted('line', extract=\"get_json_object({}, '$.ms')\")")]),
    (Comparison("=", MS, lit("7")), [over(MinMax("tried"), replace(MS, flags=("false",)))],
     [("minmax(tried) is over this call with other errors, as of a try_ function or get(): "
      "Formatted('line', extract=\"get_json_object({}, '$.ms')\")")]),
    (Not(IsNull(MS)), [MINMAX],
     ["no index over get_json_object(line, '$.ms'): Formatted('line', extract=\"get_json_object({}, '$.ms')\")"]),
    # another pattern than the template's
    (Comparison("=", group_of(TEMPLATE, 1), lit("7")), [PARTS], []),
    (Comparison("=", group_of(r"^(?<ip>\d+) ", 1), lit("7")), [PARTS],
     [(r"formatted(line, template=^(?<ip>\S+) ) is over another pattern than "
      r"regexp_extract(line, '^(?<ip>\d+) ', 1); query the template's own text, as Formatted.part() writes it: "
      r"Formatted('line', template='^(?<ip>\\d+) ')")]),
    # an OR with a part that is not served
    (Or((HOT, Comparison("=", ID, lit(3)))), [MINMAX],
     ['temp > 25.0 OR id = 3 needs an index for each side, but no index over id: MinMax("id")']),
    (Or((HOT, And((Comparison("=", ID, lit(3)), EndsWith(CITY, "x"))))), [MINMAX],
     ["temp > 25.0 OR (id = 3 AND city LIKE '%x') needs an index for each side, but no index over id: MinMax(\"id\")"]),
    (Or((HOT, And((Comparison("=", ID, lit(3)), HOT)))), [MINMAX],
     ['temp > 25.0 OR (id = 3 AND temp > 25.0) is served in part: no index over id: MinMax("id")']),
    (Not(And((HOT, Comparison("=", ID, lit(3))))), [MINMAX],
     ['temp <= 25.0 OR id <> 3 needs an index for each side, but no index over id: MinMax("id")']),
    (Or((Literal(False, "boolean"), HOT, Comparison("=", ID, lit(3)))), [MINMAX],
     ['False OR temp > 25.0 OR id = 3 needs an index for each side, but no index over id: MinMax("id")']),
    # CASE and coalesce: a branch that is not served, whether or not the whole is
    (choice_of(HOT, Comparison("=", ID, lit(3)), Comparison(">", TEMP, lit(39.0))), [MINMAX],
     ['if(temp > 25.0, id = 3, temp > 39.0) is served in part: no index over id: MinMax("id")']),
    (choice_of(Comparison("=", CITY, lit("x")), HOT, Comparison("=", ID, lit(3))), [MINMAX],
     [f"if(city = 'x', temp > 25.0, id = 3) needs an index for each branch, but {name}"
      for name in ('no index over city: MinMax("city")', 'no index over id: MinMax("id")')]),
    (Comparison(">", call("coalesce", "Coalesce", LAT, TEMP, type="double"), lit(3.0)), [MINMAX],
     ['coalesce(lat, temp) > 3.0 needs an index for each branch, but no index over lat: MinMax("lat")']),
    (Comparison(">", call("coalesce", "Coalesce", ID, lit(0), type="bigint"), lit(3)), [MINMAX],
     ['no index over coalesce(id, 0): MinMax("id")']),
    # what geoskip has no translation of
    (Comparison(">", TEMP, Opaque("scalar-subquery#1 []")), [MINMAX],
     ["temp > (a subquery) is not used: the answer of a subquery is not there when the query is planned"]),
    (Opaque("insubquery(id, list#1 [])", ("id",)), [MINMAX],
     ["insubquery(id, (a subquery)) is not used: the answer of a subquery is not there when the query is planned"]),
    (Opaque("(rand() < temp#1L)", ("temp",)), [MINMAX],
     ["(rand() < temp) is not used: it depends on more than the row, or geoskip cannot translate it"]),
    (And((Opaque("(rand(7) < 0.5)"), HOT)), [MINMAX],
     ["(rand(7) < 0.5) is not used: it depends on more than the row, or geoskip cannot translate it"]),
    # conditions on partitions, which Spark settles itself
    (And((Literal(True, "boolean"), HOT)), [MINMAX], []),
    (Or((Literal(False, "boolean"), HOT)), [MINMAX], []),
    (Comparison("=", lit("a"), lit("a")), [MINMAX], []),
]  # fmt: skip


@pytest.mark.parametrize(("predicate", "indexes", "expected"), CASES, ids=[str(case[0])[:70] for case in CASES])
def test_reasons(predicate: Predicate, indexes: Sequence[Index], expected: list[str]) -> None:
    assert list(unserved_reasons([decision(predicate, indexes)])) == expected


def test_a_mapping_over_another_column_than_the_indexed_one() -> None:
    with mappings():

        @maps("zone", index=MinMax)
        def begins(node: Predicate, index: MinMax) -> object:
            match node:
                case Comparison("=", Call(_, (text,)), Literal(str() as digit)):
                    return index.clause(StartsWith(text, digit))
            return None

        index = over(MinMax("city"), CITY)
        served, other = (Comparison("=", python("zone", column), lit("6")) for column in (CITY, WORD))
        assert not list(unserved_reasons([decision(served, [index])]))
        assert list(unserved_reasons([decision(other, [index])])) == [
            'no index over zone(word): MinMax("word")',
        ]
        assert list(unserved_reasons([decision(Comparison(">", python("zone", CITY), lit("6")), [index])])) == [
            ("minmax(city) and the mapping of zone do not serve zone(city) > '6': ValueList(\"city\")")
        ]


def test_an_index_that_may_not_be_used_is_named_by_another_sentence() -> None:
    unusable = decision(And((HOT, Comparison("=", ID, lit(3)))), [MINMAX], usable=False)
    assert list(unserved_reasons([unusable])) == ['no index over id: MinMax("id")']


def test_an_index_over_another_type_is_named_by_another_sentence() -> None:
    other = decision(Comparison("=", Column("temp", "bigint"), lit(3)), [MINMAX])
    said = "minmax(temp) is not used: it was built over temp as double, the query reads bigint"
    assert list(unserved_reasons([other], [said])) == []
    assert len(list(unserved_reasons([other]))) == 1


def test_an_index_of_others_that_fails_leaves_the_report_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("out of order")

    unserved = decision(Comparison("=", ID, lit(3)), [MINMAX])
    monkeypatch.setattr("geoskip.diagnosis.unserved.index_candidates", broken)
    assert list(unserved_reasons([unserved])) == ["what no index serves is not known: RuntimeError: out of order"]


def test_few_sentences_for_many_parts_and_each_once() -> None:
    many = And(tuple(Comparison("=", Column(f"c{number}", "bigint"), lit(1)) for number in range(12)))
    found = list(unserved_reasons([decision(many, [MINMAX])] * 2))
    assert found[0] == 'no index over c0: MinMax("c0")'
    assert found[8:] == ["4 more parts of the condition are served by no index: geoskip.why_not() shows all"]


def test_what_an_engine_noted_is_not_named_again() -> None:
    unknown = decision(Opaque("f(temp) is not known", ("temp",)), [MINMAX])
    assert list(unserved_reasons([unknown], ["a part is left out: f(temp) is not known"])) == []


def test_long_conditions_are_cut() -> None:
    ring = ", ".join(f"{n} {n}" for n in range(200))
    inside = call("ST_Contains", "x.ST_Contains", lit(f"POLYGON (({ring}))"), WORD, type="boolean")
    found = list(unserved_reasons([decision(inside, [MINMAX])]))
    assert len(found) == 1
    assert len(found[0]) < 300


def test_listed_values_serve_what_the_engine_evaluates() -> None:
    odd = Comparison("=", call("reverse", "Reverse", CITY, type="string"), lit("x"))
    assert list(unserved_reasons([decision(odd, [over(ValueList("city"), CITY)])])) == []
    assert list(unserved_reasons([decision(odd, [BOXES])])) == ['no index over reverse(city): ValueList("city")']


def test_nothing_of_it_is_imported_to_decide_on_files() -> None:
    code = "import sys, geoskip.planner, geoskip.report; print(*(m for m in sys.modules if 'geoskip.diagnosis' in m))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
