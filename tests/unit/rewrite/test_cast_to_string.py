"""What numbers, dates and times are written as: conditions on the text against the text itself, value by value."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from geoskip.predicates import And, Cast, Column, Comparison, In, Literal, Opaque, Or, Predicate, StartsWith
from geoskip.rewrite import cast_to_string

DAY = 86_400_000_000
EPOCH = dt.datetime(1970, 1, 1)
TIMES = [
    *(dt.datetime(year, month, day, *clock) for year in (1901, 2024, 9999) for month, day in ((1, 1), (2, 28), (12, 31))
      for clock in ((0, 0, 0), (0, 0, 0, 1), (12, 30, 59, 500_000), (23, 59, 59, 999_999))),
    *(dt.datetime(2024, 2, 29, hour, 10 * hour % 60) for hour in range(24)),
]  # fmt: skip
TEXTS = [
    *("2024", "2024-", "2024-02", "2024-02-", "2024-02-29", "2024-02-29 ", "2024-02-29 12", "2024-02-29 12:"),
    *("2024-02-29 12:00", "2024-02-29 12:00:00", "2024-02-28 12:30:59.5", "2024-02-28 23:59:59.999999", "9999"),
    *("9999-12", "1901", "1901-01-01 00:00:00", "1901-01-01 00:00:00.000001", "2024:", "2024-02-29-", "2024-02:"),
    *("2024-02-28 12:30:59.5-", "2024-02-28 12:30:59.50", "2024-2", "2024-02-30", "20", "", "x", "0000", "99999"),
]


def text_of(time: dt.datetime) -> str:
    """As Spark writes it: without zeros at the end of the fraction."""
    return time.strftime("%Y-%m-%d %H:%M:%S") + f".{time.microsecond:06d}".rstrip("0").rstrip(".")


def holds(node: Predicate, value: int) -> Any:
    """Three-valued, None for unknown; the column stands for the value."""
    match node:
        case And(parts):
            found = [holds(part, value) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [holds(part, value) for part in parts]
            return True if True in found else None if None in found else False
        case In(_, values):
            return value in [v.value for v in values]
        case Comparison(op, _, Literal(bound)):
            return {
                "=": value == bound,
                "<": value < bound,
                "<=": value <= bound,
                ">": value > bound,
                ">=": value >= bound,
            }[op]
        case Opaque():
            return None
    raise AssertionError(node)


def agree(node: Predicate, truth: bool, value: int) -> bool:
    made = cast_to_string.rewrite(node)
    return made is None or holds(made, value) in (truth, None)


OPS: dict[str, Any] = {
    "=": str.__eq__, "<": str.__lt__, "<=": str.__le__, ">": str.__gt__, ">=": str.__ge__, "begins": str.startswith,
}  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", ["date", "timestamp_ntz", "timestamp"])
def test_the_condition_is_that_on_the_text(kind: str, op: str) -> None:
    cast = Cast(Column("t", kind), "string", kind, zone="UTC")
    known = 0
    for text in TEXTS:
        node = StartsWith(cast, text) if op == "begins" else Comparison(op, cast, Literal(text, "string"))
        known += cast_to_string.rewrite(node) is not None
        for time in TIMES:
            value = (time - EPOCH).days if kind == "date" else (time - EPOCH) // dt.timedelta(microseconds=1)
            written = time.strftime("%Y-%m-%d") if kind == "date" else text_of(time)
            assert agree(node, OPS[op](written, text), value), f"{written} {op} {text}"
    assert known >= (1 if op == "=" else 4)  # not vacuous


def test_of_other_years_nothing_is_said() -> None:
    cast = Cast(Column("t", "date"), "string", "date")
    for node in (StartsWith(cast, "2024"), Comparison("<", cast, Literal("2024", "string"))):
        made = cast_to_string.rewrite(node)
        assert made is not None
        assert [holds(made, days) for days in (-800_000, 3_000_000)] == [
            None if not isinstance(node, Comparison) else True,
            None,
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", (5,)),
        ("-128", (-128,)),
        ("0", (0,)),
        ("05", ()),
        ("-0", ()),
        ("128", ()),
        ("5 ", ()),
        ("1e1", ()),
        ("٣", ()),
    ],
)
def test_a_number_is_written_in_one_way(text: str, expected: tuple[int, ...]) -> None:
    cast = Cast(Column("n", "tinyint"), "string", "tinyint")
    for node in (Comparison("=", cast, Literal(text, "string")), In(cast, (Literal(text, "string"),))):
        made = cast_to_string.rewrite(node)
        found = made.values if isinstance(made, In) else (made.right,) if isinstance(made, Comparison) else None
        assert found is not None
        assert tuple(v.value for v in found if isinstance(v, Literal)) == expected
    assert cast_to_string.rewrite(Comparison("<", cast, Literal(text, "string"))) is None


@pytest.mark.parametrize(("count", "is_rewritten"), [(1, True), (16, True), (17, False), (40, False)])
def test_a_list_of_texts_is_rewritten_with_all_of_them_or_not_at_all(count: int, is_rewritten: bool) -> None:
    cast, days = Cast(Column("d", "date"), "string", "date"), range(19_000, 19_000 + count)
    texts = (str(dt.date(1970, 1, 1) + dt.timedelta(days=day)) for day in days)
    made = cast_to_string.rewrite(In(cast, tuple(Literal(text, "string") for text in texts)))
    assert (made is not None) is is_rewritten
    assert made is None or all(holds(made, day) for day in days)
