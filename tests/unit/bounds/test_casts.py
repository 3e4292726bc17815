"""Dates and times in strings: no value that Spark reads from a string between the bounds is outside of the interval."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.bounds.casts import cast_texts, integer_texts, parse_texts
from geoskip.bounds.interval import ByteStrings, Interval
from geoskip.evaluation.values import FIRST, LAST
from tests.support.strategies import examples

DAY = 86_400_000_000
EPOCH = dt.date(1970, 1, 1)
NUMBER = {"date": 1, "timestamp_ntz": DAY, "timestamp": DAY}


def interval(low: str, high: str, target: str = "date") -> Interval:
    ends = [pa.array([end.encode()], pa.binary()) for end in (low, high)]
    return cast_texts(ByteStrings(*ends, np.zeros(1, dtype=bool), np.ones(1, dtype=bool)), target)


def days(low: str, high: str) -> tuple[str, str] | None:
    found = interval(low, high)
    if (found.low[0], found.high[0]) == (FIRST, LAST):
        return None
    first, last = (str(np.datetime64(int(end[0]), "D")) for end in (found.low, found.high))
    return first, last


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("2024-04-10T01", "2024-04-10T23", ("2024-04-10", "2024-04-10")),
        ("2024-04-10", "2024-04-10", ("2024-04-10", "2024-04-10")),
        ("2024-04-10", "2024-04-19", ("2024-04-01", "2024-04-30")),
        ("2024-02-01", "2024-02-9", ("2024-02-01", "2024-02-29")),
        ("2024-04-30", "2024-05-01", ("2024-01-01", "2024-12-31")),
        ("2024-1", "2024-12", ("2024-01-01", "2024-12-31")),
        ("9999-12-01", "9999-12-31", ("9999-12-01", "9999-12-31")),
        ("0000-01-01", "0000-01-01", ("0000-01-01", "0000-01-01")),
        ("2024-04", "2024-04", ("2024-01-01", "2024-12-31")),
        ("2023-12-31", "2024-01-01", None),
        ("2024", "2024", None),  # may begin 20245-01-01
        ("2024-13-01", "2024-13-02", None),
        ("2024-02-30", "2024-02-30", None),
        ("-2024-02-01", "-2024-02-02", None),
        (" 2024-02-01", " 2024-02-02", None),
        ("2024-\x002024", "2024-9", None),
        ("2024-04-1\x00", "2024-04-1\x00", None),
        ("10/Apr/2024", "10/Apr/2024", None),
        ("", "", None),
    ],
)
def test_the_common_prefix_gives_the_period(low: str, high: str, expected: tuple[str, str] | None) -> None:
    assert days(low, high) == expected


def test_offsets_widen_instants_and_not_local_times() -> None:
    day = (dt.date(2024, 4, 10) - EPOCH).days
    for target, hours in (("timestamp", 18), ("timestamp_ntz", 0)):
        found = interval("2024-04-10T01", "2024-04-10T02", target)
        assert found.kind == target
        slack = hours * DAY // 24
        assert (found.low[0], found.high[0]) == (day * DAY - slack, (day + 1) * DAY - 1 + slack)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_many_units_and_none(kind: pa.DataType) -> None:
    days = pa.array([f"2024-04-{day:02d}T01" for day in range(1, 31)] * 3, kind)
    for some in (days, days[:0]):
        none = np.zeros(len(some), dtype=bool)
        found = cast_texts(ByteStrings(some, some, none, ~none), "date")
        expected = [(dt.date.fromisoformat(text.as_py()[:10].decode()) - EPOCH).days for text in some]
        assert found.low.tolist() == found.high.tolist() == expected


def test_missing_bounds_are_unknown_and_units_without_values_empty() -> None:
    low, high = pa.array([None, b"2024-04-10", b"2024-04-10"]), pa.array([b"2024-04-10", None, b"2024-04-10"])
    for target in NUMBER:
        found = cast_texts(ByteStrings(low, high, np.array([False, False, True]), np.ones(3, dtype=bool)), target)
        assert found.low.tolist() == [FIRST, FIRST, LAST]
        assert found.high.tolist() == [LAST, LAST, FIRST]


def test_integers_of_the_same_length_sort_like_their_texts() -> None:
    low, high = [20240101, 5, -5, 0, LAST, FIRST], [20240131, 12, -3, 9, FIRST, LAST]
    found = integer_texts(Interval("number", np.array(low), np.array(high)))
    assert found.low.to_pylist()[:4] == [b"20240101", None, None, b"0"]
    assert found.high.to_pylist()[:4] == [b"20240131", None, None, b"9"]
    assert found.empty.tolist() == [False] * 4 + [True, False]
    assert found.low[5].as_py() is found.high[5].as_py() is None


_SPARK_DATE = re.compile(r"(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ].*)?)?)?")


def cast_to_date(text: str) -> int | None:
    """The days since 1970 of a string, by Spark's rules; None if it is no date, or after 9999."""
    found = _SPARK_DATE.fullmatch(text)
    try:
        return None if found is None else (dt.date(*(int(part or 1) for part in found.groups())) - EPOCH).days
    except ValueError:
        return None


PARTS = st.tuples(
    st.sampled_from(["2024", "2025", "0024", "20245"]),
    st.sampled_from(["", "-", "-1", "-01", "-10", "-12", "-2", "-02", "-0"]),
    st.sampled_from(["", "-", "-1", "-01", "-10", "-19", "-29", "-3", "-03", "0"]),
    st.sampled_from(["", "T", "T23:59:59.999999-18:00", " 01:00", "5", "Z", "T00:00+18:00"]),
).map("".join)


@given(st.lists(PARTS, min_size=1, max_size=6))
@settings(max_examples=examples(600), deadline=None)
def test_no_date_between_the_bounds_is_outside(texts: list[str]) -> None:
    found = interval(min(texts), max(texts))
    for text in texts:
        day = cast_to_date(text)
        assert day is None or found.low[0] <= day <= found.high[0], (texts, text)


def parsed(form: str, low: str, high: str, target: str = "timestamp_ntz", *, in_utc: bool = False) -> Interval | None:
    take = parse_texts(form, target, in_utc=in_utc)
    ends = [pa.array([end.encode()], pa.binary()) for end in (low, high)]
    return take and take(ByteStrings(*ends, np.zeros(1, dtype=bool), np.ones(1, dtype=bool)))


@pytest.mark.parametrize(
    ("form", "low", "high", "expected"),
    [
        ("yyyy-MM-dd", "2024-04-10", "2024-04-10", ("2024-04-10", "2024-04-10")),
        ("yyyy/MM/dd", "2024/04/10", "2024/04/19", ("2024-04-01", "2024-04-30")),
        ("yyyy/MM/dd", "2024-04-10", "2024-04-10", None),
        ("yyyy.MM.dd", "2024x04x10", "2024x04x10", None),
        ("yyyyMMdd", "20240410", "20240419", ("2024-04-01", "2024-04-30")),
        ("yyyyMMdd", "20240110", "20241231", ("2024-01-01", "2024-12-31")),
        ("yyyyMMdd", "20240110", "20240110", ("2024-01-10", "2024-01-10")),
        ("yyyyMMdd", "202401011", "202401019", ("2024-01-01", "2024-01-31")),  # days of three digits, by LEGACY
        ("yyyyMMdd", "20240101", "20240101x", ("2024-01-01", "2024-01-31")),
        ("yyyyMMddHH", "2024010110", "2024010119", ("2024-01-01", "2024-01-01")),
        ("yyyyMMdd", "15000229", "15000229", None),  # a day of the Julian calendar
        ("yyyyMMdd", "18990224", "18990224", None),  # before 1900 offsets may differ by more than 18 hours
        ("yyyyMMdd", "19000224", "19000224", None),
        ("yyyyMMdd'T'HHmm", "20240410T0000", "20240410T2359", ("2024-04-10", "2024-04-10")),
        ("yyyy-MM-dd", "2024-04-011", "2024-04-019", ("2024-04-01", "2024-04-30")),
        ("yyyy-MM-dd HH:mm:ss[.SSS]", "2024-04-10 00", "2024-04-10 23", ("2024-04-10", "2024-04-10")),
        ("yyyy-M-dd", "2024-04-10", "2024-04-10", None),
        ("yyyy-MM-dd D", "2024-04-10", "2024-04-10", None),
        ("yyyy-MM-dd 'D'", "2024-04-10 D", "2024-04-10 D", ("2024-04-10", "2024-04-10")),
        ("yyyy-MM-dd '''D'", "2024-04-10", "2024-04-10", ("2024-04-10", "2024-04-10")),
        ("yyyy-MM-dd '' D ''", "2024-04-10", "2024-04-10", None),
        ("dd.MM.yyyy", "10.04.2024", "10.04.2024", None),
    ],
)
def test_the_format_gives_the_parts_of_the_date(
    form: str, low: str, high: str, expected: tuple[str, str] | None
) -> None:
    found = parsed(form, low, high)
    if expected is None:
        assert found is None or (found.low[0], found.high[0]) == (FIRST, LAST)
        return
    assert found is not None
    first, last = ((dt.date.fromisoformat(day) - EPOCH).days * DAY for day in expected)
    assert (found.low[0], found.high[0]) == (first, last + DAY - 1)


def test_only_utc_without_a_zone_in_the_format_is_exact() -> None:
    day, form = (dt.date(2024, 4, 10) - EPOCH).days * 86_400, "yyyy-MM-dd HH:mm"
    for more, in_utc, hours in (("", True, 0), (" XXX", True, 18), ("", False, 18)):
        found = parsed(form + more, "2024-04-10", "2024-04-10", "bigint", in_utc=in_utc)
        assert found is not None
        assert found.kind == "number"
        assert (found.low[0], found.high[0]) == (day - hours * 3600, day + 86_399 + hours * 3600)
    assert parsed(form, "2024-04-10", "2024-04-10", "string") is None
