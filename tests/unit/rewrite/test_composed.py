"""``if coalesce greatest least`` and maps: what they choose is compared, and no row is lost, under NOT neither.

So it is with structs, which are compared field by field.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from geoskip.indexes.minmax import MinMax
from geoskip.predicates import And, Call, Cast, Column, Comparison, In, IsNull, Literal, Not, Predicate, StartsWith
from geoskip.rewrite import composed
from geoskip.rewrite.composed import record
from tests.support.evaluator import outcomes
from tests.support.mapped import kept, spark, together

X, Y, S = Column("x", "int"), Column("y", "int"), Column("s", "string")
VALUES = [None, 1, 2, 3]
ROWS = list(itertools.product(VALUES, VALUES))
FILES = [*((row, row) for row in ROWS), *itertools.combinations(ROWS[::2], 2), *zip(ROWS, ROWS[3:], strict=False)]
INDEXES = [MinMax("x").bind((X,)), MinMax("y").bind((Y,))]
KINDS = [
    (index, [(pa.array([row[axis] for row in rows], pa.int32()),) for rows in FILES], ("int",))
    for axis, index in enumerate(INDEXES)
]
SUMMARIES = together(*KINDS)
MAP = Literal(((1, 10), (2, 20), (3, None), (7, 10)), "map<int,int>")


def whole(value: int | None) -> Literal:
    return Literal(value, "int")


def choices() -> Iterator[Call]:
    over_two = Comparison(">", X, whole(2))
    yield spark("Coalesce", "coalesce", X, Y, type="int")
    yield spark("Coalesce", "coalesce", X, Y, whole(2), type="int")
    yield Call("if", (over_two, X, Y), type="int")
    yield Call("if", (IsNull(X), Y, whole(3)), type="int")
    yield Call("if", (over_two, Call("if", (over_two, Y, X), type="int"), whole(None)), type="int")
    for kind in ("Greatest", "Least"):
        yield spark(kind, kind.lower(), X, Y, type="int")
        yield spark(kind, kind.lower(), X, whole(2), type="int")
        yield spark(kind, kind.lower(), spark("Coalesce", "coalesce", X, whole(1), type="int"), Y, type="int")
    yield spark("GetMapValue", "getmapvalue", MAP, X, type="int")
    yield spark("ElementAt", "element_at", MAP, Y, type="int")


def conditions() -> Iterator[Predicate]:
    for choice in choices():
        for op, value in itertools.product(("=", "<=>", "<", "<=", ">", ">="), (0, 1, 2, 3, 10)):
            yield Comparison(op, choice, whole(value))
        yield In(choice, (whole(1), whole(3), whole(20)))
        yield In(choice, (whole(2), whole(None)))
        yield IsNull(choice)


def value(node: Predicate, row: tuple[Any, Any]) -> Any:
    """What Spark makes of it."""
    match node:
        case Literal(constant):
            return constant
        case Column("x" | "y" as name):
            return row["xy".index(name)]
        case Call("if", (test, then, other)):
            return value(then if value(test, row) else other, row)
        case Call("coalesce", parts):
            return next((found for part in parts if (found := value(part, row)) is not None), None)
        case Call("greatest" | "least" as name, parts):
            known = [found for part in parts if (found := value(part, row)) is not None]
            return None if not known else max(known) if name == "greatest" else min(known)
        case Call(_, (Literal(tuple() as entries), key)):
            return dict(entries).get(value(key, row))
        case Not(child):
            found = value(child, row)
            return None if found is None else not found
        case IsNull(child):
            return value(child, row) is None
        case Comparison("<=>", left, right):
            return value(left, row) == value(right, row)
        case Comparison(op, left, right):
            a, b = value(left, row), value(right, row)
            return (
                None
                if a is None or b is None
                else {"=": a == b, "<": a < b, "<=": a <= b}.get(op, a > b or (a == b and op == ">="))
            )
        case In(child, values):
            found = value(child, row)
            among = [v.value for v in values]
            return None if found is None else True if found in among else None if None in among else False
    raise NotImplementedError(str(node))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coalesce", "if", "greatest", "least", "getmapvalue", "element_at"])
def test_no_row_is_lost(name: str) -> None:
    exact = total = 0
    for condition in conditions():
        choice = condition.left if isinstance(condition, Comparison) else condition.child  # type: ignore[union-attr]
        if choice.name != name:
            continue
        for node in (condition, Not(condition), IsNull(condition)):
            answer = kept(node, INDEXES, SUMMARIES)
            for rows, keeps in zip(FILES, answer, strict=True):
                matches = any(value(node, row) is True for row in rows)
                assert keeps or not matches, (node, rows)
                exact += matches == keeps
            total += len(FILES)
    assert exact > 0.7 * total


@pytest.mark.parametrize("row", ROWS)
def test_what_is_said_instead_is_true_and_false_where_the_condition_is(row: tuple[Any, Any]) -> None:
    for condition in conditions():
        said = composed.choice(condition)
        if said is not None and (found := value(condition, row)) is not None:
            assert _truth(said, row) is found, (condition, said)


def _truth(node: Predicate, row: tuple[Any, Any]) -> Any:
    match node:
        case And(parts):
            return False if False in (found := [_truth(p, row) for p in parts]) else None if None in found else True
        case Call("coalesce", parts) if node.type == "boolean":
            return next((found for part in parts if (found := _truth(part, row)) is not None), None)
        case Call("if", (test, then, other)) if node.type == "boolean":
            return _truth(then if value(test, row) else other, row)
        case _ if type(node).__name__ == "Or":
            found = [_truth(p, row) for p in node.children]  # type: ignore[attr-defined]
            return True if True in found else None if None in found else False
    return value(node, row)


def test_greatest_leaves_out_null() -> None:
    """The mutant: without that, ``greatest(x, y) < 3`` would need both to be below 3."""
    greatest = spark("Greatest", "greatest", X, Y, type="int")
    answer = kept(Comparison("<", greatest, whole(3)), INDEXES, SUMMARIES)
    assert answer[FILES.index(((None, 1), (None, 1)))]
    naive = And((Comparison("<", X, whole(3)), Comparison("<", Y, whole(3))))
    assert not kept(naive, INDEXES, SUMMARIES)[FILES.index(((None, 1), (None, 1)))]


def test_texts_are_chosen_too() -> None:
    index = MinMax("s").bind((S,))
    files = together((index, [(pa.array([text]),) for text in ("ab", "b", None)], ("string",)))
    chosen = spark("Coalesce", "coalesce", S, Literal("abc", "string"), type="string")
    assert kept(StartsWith(chosen, "ab"), index, files) == [True, False, True]
    named = Literal((("ab", "x"), ("c", "y")), "map<string,string>")
    looked_up = spark("GetMapValue", "getmapvalue", named, S, type="string")
    assert kept(Comparison("=", looked_up, Literal("x", "string")), index, files) == [True, False, False]


@pytest.mark.parametrize("name", ["if", "coalesce", "greatest", "least", "element_at"])
def test_a_users_function_of_the_name_chooses_what_it_likes(name: str) -> None:
    mine = Call(name, (X, Y, whole(1)), f"python:mine.{name}#1", (), "int")
    for node in (Comparison("=", mine, whole(9)), In(mine, (whole(9),)), StartsWith(mine, "9"), IsNull(mine)):
        assert composed.choice(node) is None
        assert all(kept(node, INDEXES, SUMMARIES))


def test_a_map_of_values_that_do_not_compare_keeps() -> None:
    of_reals = Literal(((1, 0.5),), "map<int,double>")
    looked_up = spark("GetMapValue", "getmapvalue", of_reals, X, type="double")
    assert composed.choice(Comparison("=", looked_up, whole(9))) is None


def pair(x: Predicate = X, y: Predicate = Y) -> Call:
    names = (Literal("x", "string"), Literal("y", "string"))
    return spark("CreateNamedStruct", "named_struct", names[0], x, names[1], y, type="struct<x:int,y:int>")


@pytest.mark.parametrize("op", ["=", "<=>", "<", "<=", ">", ">="])
def test_structs_are_compared_field_by_field_with_null_below_every_value(op: str) -> None:
    for written, row in itertools.product(ROWS, ROWS):
        literal = record(tuple(map(whole, written)), "struct<x:int,y:int>")
        left, right = (tuple((v is not None, v or 0) for v in some) for some in (row, written))
        order = (left > right) - (left < right)
        wanted = {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}.get(op, order == 0)
        for node in (Comparison(op, pair(), literal), Comparison(FLIPPED.get(op, op), literal, pair())):
            found = composed.struct(node)
            assert found is not None
            assert outcomes(found, dict(zip("xy", row, strict=True))) == {wanted}, (node, row)


def test_a_column_of_structs_is_compared_by_its_fields() -> None:
    column, kind = Column("at", "struct<x:int,d:decimal(5,2)>"), "struct<x:int,d:decimal(5,2)>"
    x, d = Column("at.x", "int"), Column("at.d", "decimal(5,2)")
    one, none = Literal(Decimal(1), "decimal(5,2)"), Literal(None, "decimal(5,2)")
    both = Comparison("=", column, record((whole(1), one), kind))
    assert composed.struct(both) == And((Comparison("<=>", x, whole(1)), Comparison("<=>", d, one)))
    safe = Comparison("<=>", column, record((whole(1), none), kind))
    assert composed.struct(safe) == And((Comparison("<=>", x, whole(1)), IsNull(d)))
    nothing = Comparison("<=>", column, record((Literal(None, "int"), none), kind))
    assert composed.struct(nothing) is None  # FALSE of a NULL, of which the fields are NULL
    for other in ("struct<x:int,d:array<int>>", "struct<x:int,d e:int>", "struct<x:string collate UTF8_LCASE,d:int>"):
        assert composed.struct(Comparison("=", replace(column, type=other), record((whole(1), one), other))) is None


FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def test_structs_of_what_is_not_compared_by_value_are_left_alone() -> None:
    ones = record((whole(1), whole(1)), "struct<x:int,y:int>")
    assert composed.struct(Comparison("=", pair(x=Column("x", "string collate UTF8_LCASE")), ones)) is None
    assert composed.struct(Comparison("=", pair(x=Column("x", "bigint")), ones)) is None
    cast = Cast(pair(x=Column("x", "bigint")), "struct<x:int,y:int>", ansi=True)
    narrow = And(
        (
            Comparison("<=>", Cast(Column("x", "bigint"), "int", "bigint", True), whole(1)),
            Comparison("<=>", Y, whole(1)),
        )
    )
    assert composed.struct(Comparison("=", cast, ones)) == narrow
    lost = record((Literal("A", "string collate UTF8_LCASE"), whole(1)), "struct<x:string collate UTF8_LCASE,y:int>")
    assert composed.struct(Comparison("=", pair(x=Column("x", "string")), lost)) is None
