"""Formatted numbers, dates and times: conditions on the text against the text itself, value by value."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from geoskip.predicates import And, Call, Cast, Column, Comparison, In, Literal, Opaque, Or, Predicate, StartsWith
from geoskip.registry.functions import CATALYST
from geoskip.rewrite import formatted_values

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


def agree(made: Predicate | None, truth: bool, value: int) -> bool:
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
        made = formatted_values.rewrite(node)
        known += made is not None
        for time in TIMES:
            value = (time - EPOCH).days if kind == "date" else (time - EPOCH) // dt.timedelta(microseconds=1)
            written = time.strftime("%Y-%m-%d") if kind == "date" else text_of(time)
            assert agree(made, OPS[op](written, text), value), f"{written} {op} {text}"
    assert known >= (1 if op == "=" else 4)  # not vacuous


FORMS = {
    "yyyy": "%Y",
    "yyyy-MM": "%Y-%m",
    "yyyyMM": "%Y%m",
    "yyyy/MM/dd": "%Y/%m/%d",
    "yyyyMMdd": "%Y%m%d",
    "yyyy-MM-dd HH": "%Y-%m-%d %H",
    "yyyyMMddHH": "%Y%m%d%H",
    "yyyy.MM.dd HH:mm": "%Y.%m.%d %H:%M",
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%M:%S",
}


def formatted(kind: str, form: str, zone: str = "UTC") -> Call:
    over = Column("t", "timestamp" if kind == "DateFormatClass" else "bigint")
    return Call("_", (over, Literal(form, "string")), CATALYST + kind, (zone,), "string")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("form", FORMS)
def test_the_condition_is_that_on_the_text_in_a_form(form: str, op: str) -> None:
    call, known, compact = formatted("DateFormatClass", form), 0, FORMS[form]
    times = {(time.strftime(compact), (time - EPOCH) // dt.timedelta(microseconds=1)) for time in TIMES}
    texts = {*TEXTS, *(written for written, _ in times)}
    texts |= {"202402", "20240229", "2024/02", "2024/02/", "2024.02.2"}
    for text in sorted(texts):
        node = StartsWith(call, text) if op == "begins" else Comparison(op, call, Literal(text, "string"))
        made = formatted_values.rewrite(node)
        known += made is not None
        for written, micros in times:
            assert agree(made, OPS[op](written, text), micros), f"{written} {op} {text}"
    assert known >= 2  # not vacuous


@pytest.mark.parametrize(
    "form", ["MM", "yyyy-MM-dd'T'HH:mm:ss", "yyyy-dd", "yy-MM", "yyyy-MM-dd hh", "yyyy--MM", "yyyy-MM-", "y", ""]
)
def test_other_forms_are_left_alone(form: str) -> None:
    for kind in ("DateFormatClass", "FromUnixTime"):
        assert formatted_values.rewrite(Comparison("=", formatted(kind, form), Literal("2024", "string"))) is None


def test_seconds_are_formatted_as_the_instants_that_they_count() -> None:
    call = formatted("FromUnixTime", "yyyy-MM-dd HH:mm:ss", "Asia/Tokyo")
    made = formatted_values.rewrite(Comparison(">=", call, Literal("2024-02-29", "string")))
    assert "CAST(timestamp_seconds(t) AS timestamp_ntz) >= TIMESTAMP_NTZ '2024-02-29 00:00:00'" in str(made)


def test_the_date_of_a_text_is_that_of_the_time() -> None:
    day = Literal(19_782, "date")
    forms = {"yyyy-MM-dd HH:mm:ss": True, "yyyy-MM-dd": True, "yyyy-MM": False, "yyyy/MM/dd": False}
    for form, is_known in forms.items():
        for call in (formatted("DateFormatClass", form), formatted("FromUnixTime", form)):
            cast = Cast(call, "date", "string")
            for node in (Comparison("<=", cast, day), In(cast, (day,))):
                made = formatted_values.rewrite(node)
                assert (made is not None) is is_known
                assert made is None or "CAST(CAST(" in str(made)


def test_of_other_years_nothing_is_said() -> None:
    cast = Cast(Column("t", "date"), "string", "date")
    for node in (StartsWith(cast, "2024"), Comparison("<", cast, Literal("2024", "string"))):
        made = formatted_values.rewrite(node)
        assert made is not None
        assert [holds(made, days) for days in (-800_000, 3_000_000)] == [None, None]


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
        made = formatted_values.rewrite(node)
        found = made.values if isinstance(made, In) else (made.right,) if isinstance(made, Comparison) else None
        assert found is not None
        assert tuple(v.value for v in found if isinstance(v, Literal)) == expected
    assert formatted_values.rewrite(Comparison("<", cast, Literal(text, "string"))) is None


@pytest.mark.parametrize("kind", ["tinyint", "int", "bigint"])
def test_beginnings_of_numbers(kind: str) -> None:
    most = {"tinyint": 7, "int": 31, "bigint": 63}[kind]
    edges = (step + base for base in (0, 2**most - 1, -(2**most)) for step in (-128, -13, -2, -1, 0, 1, 7, 19, 127))
    powers = (sign * digit * 10**power + step for sign in (1, -1) for digit in (1, 9) for power in range(19)
              for step in (-1, 0, 1))  # fmt: skip
    values = sorted({value for value in (*edges, *powers) if -(2**most) <= value < 2**most})
    begins = {str(value)[:n] for value in values[::5] for n in (1, 2, 9, 20)}
    texts = ["-", "-0", "00", "0", "x", "-1 ", "+1", "9" * 20, *begins]
    cast = Cast(Column("n", kind), "string", kind)
    for text in texts:
        made = formatted_values.rewrite(StartsWith(cast, text))
        assert made is not None
        assert [holds(made, value) for value in values] == [str(value).startswith(text) for value in values], text


@pytest.mark.parametrize(("count", "is_rewritten"), [(1, True), (16, True), (17, False), (40, False)])
def test_a_list_of_texts_is_rewritten_with_all_of_them_or_not_at_all(count: int, is_rewritten: bool) -> None:
    cast, days = Cast(Column("d", "date"), "string", "date"), range(19_000, 19_000 + count)
    texts = (str(dt.date(1970, 1, 1) + dt.timedelta(days=day)) for day in days)
    made = formatted_values.rewrite(In(cast, tuple(Literal(text, "string") for text in texts)))
    assert (made is not None) is is_rewritten
    assert made is None or all(holds(made, day) for day in days)
