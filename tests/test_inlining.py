"""Functions of SQL are recognised in what Spark replaces them by, and nothing else is."""

from __future__ import annotations

import pytest

from geoskip import MinMax, mappings, maps
from geoskip.inlining import Template, recognised
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Predicate

P0, P1 = Cast(Column("id", "bigint"), "string", "bigint"), Cast(Column("id1", "bigint"), "string", "bigint")
A, B, N = Column("a", "bigint"), Column("b", "double"), Column("n", "int")
TWO = Literal(2.0, "double")


def as_double(node: Predicate) -> Cast:
    return Cast(node, "double", "bigint")


def total(one: Predicate, other: Predicate) -> Call:
    return Call("+", (Call("/", (as_double(one), TWO), "Divide", (), "double"), other), "Add", ("ANSI",), "double")


HALF_PLUS = Template("half_plus", total(Cast(P0, "bigint"), Cast(P1, "double")), (P0, P1), "double")
TWICE = Template("twice", Comparison("=", Cast(P0, "bigint"), Cast(P0, "bigint")), (P0,), "boolean")


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
}
OTHERS = {
    "another number": Comparison(">", Call("+", (Call("/", (as_double(A), literal(3.0)), "Divide", (), "double"), B),
                                            "Add", ("ANSI",), "double"), literal(5.0)),
    "another mode": Comparison(">", Call("+", total(A, B).args, "Add", (), "double"), literal(5.0)),
    "another operator": Comparison(">", Call("-", total(A, B).args, "Subtract", ("ANSI",), "double"), literal(5.0)),
    "another type": Comparison(">", total(N, B), literal(5.0)),
    "two arguments for one": Comparison("=", A, Column("c", "bigint")),
}  # fmt: skip


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_a_function_becomes_for_some_arguments_is_a_call_of_it(name: str) -> None:
    node, said = RECOGNISED[name]
    (found,) = recognised(node, [HALF_PLUS, TWICE])
    assert str(found).startswith(said)


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not(name: str) -> None:
    assert recognised(OTHERS[name], [HALF_PLUS, TWICE]) == []


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
