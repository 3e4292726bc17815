"""Types: names as Spark writes them, and what follows from them."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from geoskip.types import SqlType, sql_type

EXACT = ("tinyint", "smallint", "int", "bigint", *(f"decimal({p},{s})" for p, s in product((1, 3, 9, 10, 19), (0, 1))))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("int", "int"),
        ("decimal(10,2)", "decimal"),
        ("decimal(10, 2)", "decimal"),
        ("varchar(10)", "varchar"),
        ("char(3)", "char"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("string COLLATE UTF8_LCASE", "string collate"),
        ("interval year to month", "interval month"),
        ("interval day to second", "interval second"),
        ("interval", "interval"),
        ("array<int>", "array"),
        ("struct<a:int,b:map<string,int>>", "struct"),
        ("geometry(4326)", "geometry"),
        ("int(5)", ""),
        ("decimal(10,2", ""),
        ("array<int", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_kind_of_a_name(name: str | None, kind: str) -> None:
    assert sql_type(name).kind == kind


def test_parts_of_nested_types() -> None:
    nested = sql_type("struct<a:decimal(3,1),b:map<struct<k:int,l:string>,array<array<date>>>>")
    (first, amount), (second, entries) = nested.fields
    assert (first, amount.precision, amount.scale, second) == ("a", 3, 1, "b")
    assert (entries.key.name, entries.value.element.element.name) == ("struct<k:int,l:string>", "date")
    assert amount.fields == ()
    assert amount.element.kind == amount.key.kind == amount.value.kind == ""


def test_a_name_nested_without_end_is_parsed() -> None:
    assert sql_type("array<" * 100_000 + "int" + ">" * 100_000).element.kind == "array"


def test_digits_without_end_are_not_counted() -> None:
    endless = sql_type(f"decimal({10**9},-{10**9})")
    assert (endless.kind, endless.is_decimal, endless.holds(endless)) == ("decimal", False, False)


@pytest.mark.parametrize(("wide", "narrow"), list(product(EXACT, EXACT)), ids=str)
def test_a_type_holds_another_where_it_has_its_least_and_greatest_value(wide: str, narrow: str) -> None:
    ends = _ends(sql_type(narrow))
    assert sql_type(wide).holds(sql_type(narrow)) == all(_has(sql_type(wide), end) for end in ends)


def _ends(kind: SqlType) -> tuple[Decimal, Decimal]:
    if kind.is_integral:
        return Decimal(kind.values[0]), Decimal(kind.values[-1])
    most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
    return -most, most


def _has(kind: SqlType, value: Decimal) -> bool:
    low, high = _ends(kind)
    return low <= value <= high and value == value.quantize(Decimal(1).scaleb(-kind.scale))


def test_types_that_are_not_exact_hold_nothing() -> None:
    others = map(sql_type, ("double", "string", "decimal(5,-2)", "decimal", None))
    assert not any(sql_type("int").holds(other) or other.holds(sql_type("int")) for other in others)


@pytest.mark.parametrize(
    ("name", "arrow"),
    [
        ("smallint", pa.int16()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("array<array<string>>", pa.list_(pa.list_(pa.string()))),
        ("array<map<int,int>>", None),
        ("decimal", None),
        ("variant", None),
    ],
)
def test_the_arrow_type(name: str, arrow: pa.DataType | None) -> None:
    assert sql_type(name).arrow == arrow
