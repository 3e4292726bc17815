"""Functions of SQL are recognised in what Spark replaces them by, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from geoskip import MinMax, mappings, maps
from geoskip.planner import clause_for
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    children,
    normalise,
    transform,
    walk,
)
from geoskip.rewrite.sql_functions import Template, group, recognise
from tests.support.evaluator import outcomes

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
    "negated": (Not(IsNull(total(A, B))), "half_plus(a, b) IS NOT NULL"),
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
    (found,) = recognise(node, [HALF_PLUS, TWICE, ROOM, WITHIN, SUM])
    assert str(found).startswith(said)


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not(name: str) -> None:
    assert recognise(OTHERS[name], [HALF_PLUS, TWICE, ROOM, WITHIN, SUM]) == []


def test_a_folded_constant_is_what_it_was_cast_from() -> None:
    whole = Template("f", Call("f", (as_double(Cast(P0, "bigint")),), "F", (), "double"), (P0,), "double")
    (found,) = recognise(IsNull(Call("f", (literal(3.0),), "F", (), "double")), [whole])
    assert found == IsNull(Call("f", (Literal(3, "bigint"),), whole.call(whole.body).implementation, (), "double"))  # type: ignore[union-attr]


MADE_OTHERWISE: dict[str, tuple[Predicate, Predicate]] = {
    "the end of a long list": tuple(
        In(Cast(P0, "bigint"), tuple(Literal(n, "bigint") for n in (*range(10), last))) for last in (98, 99)
    ),
    "the end of a long constant": tuple(
        Call("getmapvalue", (Literal(tuple((n, n) for n in (*range(20), last)), "map<int,int>"), Cast(P0, "int")))
        for last in (98, 99)
    ),
    "a function of Python by the same name": tuple(
        Call("f", (Cast(P0, "bigint"),), f"python:f#{digest}", ("eval:100",), "int") for digest in (1, 2)
    ),
    "the type of a constant": tuple(
        Comparison("=", Cast(P0, "bigint"), Literal(1, kind)) for kind in ("int", "bigint")
    ),
    "the order of arguments": tuple(
        plus(Cast(one, "bigint"), Cast(other, "bigint")) for one, other in ((P0, P1), (P1, P0))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE_OTHERWISE)
def test_a_mapping_that_was_bound_to_one_body_meets_no_other(name: str) -> None:
    one, other = (Template("f", body, (P0, P1)) for body in MADE_OTHERWISE[name])
    with mappings() as scope:

        @maps("f", index=MinMax)
        def rule(node, index):  # type: ignore[no-untyped-def]
            return None

        first, second = one.call(one.body), other.call(other.body)
        assert first is not None
        assert second is not None
        assert len(scope.rules_of(first)) == 1
        assert scope.rules_of(second) == []
    again = replace(one, body=transform(one.body, lambda v: replace(v) if isinstance(v, Cast) else v))
    assert again.implementation == one.implementation


def test_an_argument_has_the_type_of_the_parameter() -> None:
    """The length of a text is not that of its bytes: a function of texts is not one of bytes."""
    body = Comparison("<=", Call("length", (P0,), "Length", (), "int"), Literal(3, "int"))
    short = Template("short", body, (P0,), "boolean")
    for kind, known in (("string", True), ("binary", False), (None, False)):
        node = transform(body, lambda v, kind=kind: Column("b", kind) if v == P0 else v)  # type: ignore[misc]
        assert bool(recognise(node, [short])) is known


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
        assert str(group(node, [WITHIN])) == said
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


# ---- random functions


def number(chance: random.Random, leaves: Sequence[Predicate], depth: int) -> Predicate:
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([*leaves, *leaves, Literal(chance.choice([-2, 1, 2, 3]), "bigint")])
    one, other = (number(chance, leaves, depth - 1) for _ in range(2))
    name, kind = chance.choice([("+", "Add"), ("+", "Add"), ("-", "Subtract"), ("*", "Multiply")])
    return Call(name, (one, other), kind, ("ANSI",), "bigint")


def condition(chance: random.Random, leaves: Sequence[Predicate], depth: int) -> Predicate:
    dice = chance.random()
    if depth == 0 or dice < 0.4:
        return Comparison(
            chance.choice(["<", "<=", ">", ">=", "="]), number(chance, leaves, 2), number(chance, leaves, 1)
        )
    parts = tuple(condition(chance, leaves, depth - 1) for _ in range(chance.choice([2, 2, 3])))
    return Not(parts[0]) if dice < 0.5 else And(parts) if dice < 0.75 else Or(parts)


def optimised(chance: random.Random, node: Predicate) -> Predicate:
    """As Spark leaves it: constants folded, those of a sum or product together, NOT at the leaves, in some order."""

    def change(vertex: Predicate) -> Predicate:
        match vertex:
            case Call(op, (Literal(int() as a), Literal(int() as b))):
                return Literal({"+": a + b, "-": a - b, "*": a * b}[op], "bigint")
            case Call("+" | "*", (Call(_, (one, Literal() as first)) as inner, Literal() as last)) if (
                inner.implementation == vertex.implementation
            ):
                return replace(vertex, args=(one, change(replace(vertex, args=(first, last)))))
            case Not(And(parts)):
                return change(Or(tuple(change(Not(part)) for part in parts)))
            case Not(Or(parts)):
                return change(And(tuple(change(Not(part)) for part in parts)))
            case And(parts) | Or(parts):
                return type(vertex)(tuple(chance.sample(parts, len(parts))))
        return normalise(vertex)

    return normalise(transform(node, change))


def over(body: Predicate, arguments: Mapping[Predicate, Predicate]) -> Predicate:
    """A body with arguments for its markers."""
    casts = {Cast(marker, "bigint"): argument for marker, argument in arguments.items()}
    return transform(body, lambda vertex: casts.get(vertex, vertex))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_is_recognised_is_the_function_of_these_arguments(seed: int) -> None:
    chance = random.Random(seed)
    leaves = [Cast(P0, "bigint"), Cast(P1, "bigint")]
    columns = [Column(name, "bigint") for name in "abc"]
    rows = [{name: chance.choice([None, -3, -1, 0, 1, 2, 4, 9]) for name in "abc"} for _ in range(15)]
    met = {True: 0, False: 0}
    for _ in range(30):
        bodies = [normalise(condition(chance, leaves, 2)) for _ in range(2)]
        templates = [Template(f"f{n}", optimised(chance, body), (P0, P1), "boolean") for n, body in enumerate(bodies)]
        given = [chance.choice(columns), chance.choice([*columns, Literal(chance.choice([0, 1, 3]), "bigint")])]
        call = over(bodies[0], dict(zip((P0, P1), given, strict=True)))
        other = condition(chance, columns, 0)
        asked = [optimised(chance, one) for one in (call, Not(call), And((other, call)), Or((call, other)))]
        for place, node in enumerate([*asked, altered(chance, asked[0]), altered(chance, asked[0])]):
            for template in templates:
                tree = group(node, [template])
                parts = [tree, *children(tree)] if isinstance(tree, And | Or) else [tree]
                found = [(part, made) for part in parts for made in recognise(part, [template])]
                met[bool(found)] += template is templates[0] and place < len(asked)
                for part, made in found:
                    back = transform(made, lambda vertex, t=template: restored(vertex, t))
                    for row in rows:
                        assert outcomes(part, row) == outcomes(back, row), f"{part} is no {made}, of {template.body}"
    assert met[True] > 3 * met[False]


def altered(chance: random.Random, node: Predicate) -> Predicate:
    """A condition with a constant that is another one."""
    literals = [vertex for vertex in walk(node) if isinstance(vertex, Literal)]
    some = chance.choice(literals) if literals else None

    def change(vertex: Predicate) -> Predicate:
        return Literal(some.value + chance.choice([-1, 1]), some.type) if some and vertex is some else vertex

    return transform(node, change)


def restored(vertex: Predicate, template: Template) -> Predicate:
    """A call of the function as what it is made of."""
    if isinstance(vertex, Call) and vertex.name == template.name:
        return over(template.body, dict(zip(template.markers, vertex.args, strict=True)))
    return vertex
