"""Conditions in SQL that are read, and errors that say where a text is wrong."""

from __future__ import annotations

import pytest

from geoskip import predicates as p
from geoskip.engines.sql_text import predicate_of_sql
from geoskip.errors import InvalidSpecificationError, UnknownColumnError
from tests.support.engine_rows import NAMES


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("a > 5 AND tmep < 3 AND b", UnknownColumnError, "no column tmep at line 1, column 14; .*its columns are|Its"),
        ("dya > DATE '2024-01-01'", UnknownColumnError, "did you mean day"),
        ("f(nowhere) = 1", UnknownColumnError, "nowhere"),
        ("a >", InvalidSpecificationError, "line 1, column 3, near '>'"),
        ("a > 5; DROP TABLE x", InvalidSpecificationError, "near 'DROP'"),
        ("a > 5 GROUP BY a", InvalidSpecificationError, "near 'GROUP BY'"),
        ("", InvalidSpecificationError, "is no condition"),
        ("b AND a", InvalidSpecificationError, "a is int, not a condition: compare it"),
        ("a + 3", InvalidSpecificationError, r"a \+ 3 is a value, not a condition"),
        ("first name = 'x'", InvalidSpecificationError, "near 'name'; write `first name` for the column first name"),
        ("v1.2 > 3", UnknownColumnError, r"no column 2 at line 1, column 4; write `v1\.2` for the column"),
        ("place.town = 'x'", UnknownColumnError, "place has no field town; its fields are city, zip"),
    ],
)
def test_a_wrong_condition_is_an_error_that_says_where(text: str, error: type[Exception], says: str) -> None:
    names = {**NAMES, "first name": "string", "v1.2": "double", "place": "struct<city:string,zip:int>"}
    with pytest.raises(error, match=says):
        predicate_of_sql(text, names, "spark", names=tuple(names))


def test_other_dialects_are_refused() -> None:
    with pytest.raises(InvalidSpecificationError, match="one of spark, duckdb, got 'mysql'"):
        predicate_of_sql("a = 1", NAMES, "mysql")


def test_a_long_and_a_deep_condition_are_read() -> None:
    long = " OR ".join(f"a = {number}" for number in range(1000))
    assert len(p.children(predicate_of_sql(long, NAMES)[0])) == 1000
    assert str(predicate_of_sql("(" * 15 + "a = 1" + ")" * 15, NAMES)[0]) == "a = 1"
    with pytest.raises(InvalidSpecificationError, match="nested too deep"):
        predicate_of_sql("(" * 999 + "a = 1" + ")" * 999, NAMES)
