"""Functions of SQL are recognised in what Spark replaces them by, and nothing else is."""

from __future__ import annotations

import pytest

from geoskip import MinMax, mappings, maps
from geoskip.inlining import Template, grouped, recognised
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Or, Predicate

P0, P1 = Cast(Column("id", "bigint"), "string", "bigint"), Cast(Column("id1", "bigint"), "string", "bigint")
A, B, N = Column("a", "bigint"), Column("b", "double"), Column("n", "int")
TWO = Literal(2.0, "double")


def as_double(node: Predicate) -> Cast:
    return Cast(node, "double", "bigint")


def total(one: Predicate, other: Predicate) -> Call:
    return Call("+", (Call("/", (as_double(one), TWO), "Divide", (), "double"), other), "Add", ("ANSI",), "double")


def plus(one: Predicate, other: Predicate) -> Call:
    return Call("+", (one, other), "Add", ("ANSI",), "bigint")


def times(number: int, by: Predicate) -> Call:
    return Call("*", (Literal(number, "bigint"), by), "Multiply", ("ANSI",), "bigint")


HALF_PLUS = Template("half_plus", total(Cast(P0, "bigint"), Cast(P1, "double")), (P0, P1), "double")
TWICE = Template("twice", Comparison("=", Cast(P0, "bigint"), Cast(P0, "bigint")), (P0,), "boolean")
ROOM = Template(
    "room", Comparison("<=", plus(Cast(P0, "bigint"), times(2, Cast(P1, "bigint"))), Literal(100, "bigint")), (P0, P1),
    "boolean",
)  # fmt: skip
WITHIN = Template(
    "within",
    And((Comparison(">", Cast(P0, "bigint"), times(2, Cast(P1, "bigint"))), Comparison("<", Cast(P0, "bigint"),
         plus(Cast(P1, "bigint"), Literal(50, "bigint"))))),
    (P0, P1),
    "boolean",
)  # fmt: skip
SUM = Template(
    "sum", plus(plus(Cast(P0, "bigint"), times(2, Cast(P1, "bigint"))), Literal(1, "bigint")), (P0, P1), "bigint"
)
C = Column("c", "bigint")
LOW, HIGH = Comparison(">", A, Literal(20, "bigint")), Comparison("<", A, Literal(60, "bigint"))
OTHER = Comparison("=", C, Literal(1, "bigint"))


def literal(value: float) -> Literal:
    return Literal(value, "double")


RECOGNISED = {
    "columns": (Comparison(">", total(A, B), literal(5.0)), "half_plus(a, b) > 5.0"),
    "a cast argument": (
        Comparison(">", total(Cast(N, "bigint", "int"), B), literal(5.0)),
        "half_plus(CAST(n AS bigint)",
    ),
    "a constant": (Comparison("<", total(A, literal(3.0)), literal(5.0)), "half_plus(a, 3.0) < 5.0"),
    "negated": (Not(IsNull(total(A, B))), "NOT half_plus(a, b) IS NULL"),
    "a list": (In(total(A, B), (literal(1.0),)), "half_plus(a, b) IN (1.0)"),
    "among others": (
        And((IsNull(A), Comparison("=", total(A, B), literal(1.0)))),
        "(a IS NULL AND half_plus(a, b) = 1.0)",
    ),
    "a condition": (Comparison("=", A, A), "twice(a)"),
    "a folded constant": (Comparison("<=", plus(A, Literal(14, "bigint")), Literal(100, "bigint")), "room(a, 7)"),
    "a sum with its constants together": (Comparison("<", plus(A, Literal(15, "bigint")), Literal(9)), "sum(a, 7) < 9"),
    "a negation": (Comparison(">", plus(A, times(2, C)), Literal(100, "bigint")), "NOT room(a, c)"),
    "an AND in its own order": (And((HIGH, LOW)), "within(a, 10)"),
    "a negated AND": (
        Or((Comparison("<=", A, Literal(20, "bigint")), Comparison(">=", A, Literal(60, "bigint")))),
        "NOT within(a, 10)",
    ),
}
OTHERS = {
    "another number": Comparison(">", Call("+", (Call("/", (as_double(A), literal(3.0)), "Divide", (), "double"), B),
                                            "Add", ("ANSI",), "double"), literal(5.0)),
    "another mode": Comparison(">", Call("+", total(A, B).args, "Add", (), "double"), literal(5.0)),
    "another operator": Comparison(">", Call("-", total(A, B).args, "Subtract", ("ANSI",), "double"), literal(5.0)),
    "another type": Comparison(">", total(N, B), literal(5.0)),
    "two arguments for one": Comparison("=", A, Column("c", "bigint")),
    "an odd constant": Comparison("<", plus(A, Literal(16, "bigint")), Literal(9)),
    "two folded constants": Comparison("<=", Literal(15, "bigint"), Literal(100, "bigint")),
    "constants that differ": And((LOW, Comparison("<", A, Literal(61, "bigint")))),
    "a part of an AND": LOW,
    "an OR for an AND": Or((LOW, HIGH)),
    "half of a constant": Comparison("=", as_double(A), literal(2.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_a_function_becomes_for_some_arguments_is_a_call_of_it(name: str) -> None:
    node, said = RECOGNISED[name]
    (found,) = recognised(node, [HALF_PLUS, TWICE, ROOM, WITHIN, SUM])
    assert str(found).startswith(said)


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not(name: str) -> None:
    assert recognised(OTHERS[name], [HALF_PLUS, TWICE, ROOM, WITHIN, SUM]) == []


def test_a_folded_constant_is_what_it_was_cast_from() -> None:
    whole = Template("f", Call("f", (as_double(Cast(P0, "bigint")),), "F", (), "double"), (P0,), "double")
    (found,) = recognised(IsNull(Call("f", (literal(3.0),), "F", (), "double")), [whole])
    assert found == IsNull(Call("f", (Literal(3, "bigint"),), whole.call(whole.body).implementation, (), "double"))  # type: ignore[union-attr]


def test_a_mapping_of_the_name_is_asked_beside_what_indexes_say_of_the_body() -> None:
    with mappings():

        @maps("half_plus", index=MinMax)
        def rule(node, index):  # type: ignore[no-untyped-def]
            match node:
                case Comparison(">", Call(_, (a, _)), Literal()):
                    return index.clause(Comparison(">", a, Literal(7, "bigint")))

        node = Comparison(">", total(A, B), literal(5.0))
        index = MinMax("a").bind([A])
        assert str(clause_for(node, [index])) == "keep every file"
        assert str(clause_for(node, [index], templates=[HALF_PLUS])) == "max(a) > 7"


def test_a_function_is_recognised_among_other_members_of_an_and_or_or() -> None:
    not_low = Comparison("<=", A, Literal(20, "bigint"))
    not_high = Comparison(">=", A, Literal(60, "bigint"))
    for node, said in (
        (And((LOW, OTHER, HIGH)), "(c = 1 AND (a > 20 AND a < 60))"),
        (Or((not_high, OTHER, not_low)), "(c = 1 OR (a >= 60 OR a <= 20))"),
        (And((LOW, OTHER)), "(a > 20 AND c = 1)"),
        (Or((LOW, OTHER, HIGH)), "(a > 20 OR c = 1 OR a < 60)"),
    ):
        assert str(grouped(node, [WITHIN])) == said
    with mappings():

        @maps("within", index=MinMax)
        def rule(node, index):  # type: ignore[no-untyped-def]
            match node:
                case Call(_, (a, _)):
                    return index.clause(Comparison(">", a, Literal(30, "bigint")))
                case Not(Call(_, (a, _))):
                    return index.clause(Comparison("<", a, Literal(5, "bigint")))

        indexes = [MinMax("a").bind([A]), MinMax("c").bind([C])]
        both = clause_for(And((LOW, OTHER, HIGH)), indexes, templates=[WITHIN])
        either = clause_for(Or((not_high, OTHER, not_low)), indexes, templates=[WITHIN])
        assert "max(a) > 30" in str(both)
        assert str(either).count("min(a) < 5") == 1
        assert "min(c) <= 1 <= max(c) OR" in str(either)
