"""What a comparison of a time says of its day: never more than is so, whatever the clocks did."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geoskip.clauses import keep_mask
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Cast, Column, Comparison, Literal, Not, Predicate
from geoskip.rewrite import days

ZONES = ["UTC", "America/New_York", "America/St_Johns", "Pacific/Apia", "Asia/Kolkata", "Europe/Amsterdam"]
OFFSETS = {"+05:30": 330, "-03:00": -180, "GMT+14:00": 840, "UTC": 0, "Z": 0}
OPERATORS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIMES = st.integers(-(2**51), 2**51)
NEAR = st.integers(-3 * 86_400_000_000, 3 * 86_400_000_000)
TIME = Column("t", "timestamp")


def day_of(time: int, zone: str) -> int:
    """The day that the clocks of a zone show."""
    moment = EPOCH + dt.timedelta(microseconds=time)
    if zone in OFFSETS:
        local = moment + dt.timedelta(minutes=OFFSETS[zone])
    else:
        local = moment.astimezone(zoneinfo.ZoneInfo(zone))
    return local.toordinal() - EPOCH.toordinal()


def implied(op: str, literal: int, zone: str | None, kind: str = "timestamp") -> list[Any]:
    time = Column("t", kind)
    index = MinMax("to_date(t)").bind([Cast(time, "date", kind, zone=zone)])
    found = days(Comparison(op, time, Literal(literal, kind)), index.bound)
    return [] if found is None else list(found.children) if isinstance(found, And) else [found]


SET_BACK = 1_225_593_060_000_000  # Newfoundland, 2008-11-02: from 00:01 to 23:01 of the day before


@given(TIMES, NEAR, st.sampled_from(sorted(OPERATORS)), st.sampled_from([*ZONES, *OFFSETS]))
@example(SET_BACK - 30_000_000, 60_000_000, ">=", "America/St_Johns")
@example(1_325_239_200_000_000, 0, "=", "Pacific/Apia")
@example(86_400_000_000 - 1, 0, ">=", "UTC")  # the last microsecond of a day, and the first
@example(86_400_000_000, 0, "<=", "UTC")
def test_what_is_said_of_the_day_holds(literal: int, apart: int, op: str, zone: str) -> None:
    time = literal + apart
    if OPERATORS[op](time, literal):
        for found in implied(op, literal, zone):
            assert OPERATORS[found.op](day_of(time, zone), found.right.value), (found, zone)


def test_clocks_that_are_set_back_over_midnight_are_why() -> None:
    """The mutant: the offset of the literal taken for that of every time."""
    zone, first = "America/St_Johns", SET_BACK - 30_000_000
    later = first + 60_000_000
    assert day_of(later, zone) < day_of(first, zone)
    (wrong,) = implied(">=", first, "-02:30")
    assert not OPERATORS[wrong.op](day_of(later, zone), wrong.right.value)


def test_at_a_fixed_offset_midnight_is_exact() -> None:
    day = 86_400_000_000
    assert [str(p) for p in implied("<", 3 * day, "UTC")] == ["CAST(t AS date) <= DATE '1970-01-03'"]
    assert [str(p) for p in implied(">=", 3 * day, "UTC")] == ["CAST(t AS date) >= DATE '1970-01-04'"]
    assert [str(p) for p in implied("<", 3 * day - 330 * 60_000_000, "+05:30")] == [
        "CAST(t AS date) <= DATE '1970-01-03'"
    ]
    assert [str(p) for p in implied("=", 3 * day, None, "timestamp_ntz")] == [
        "CAST(t AS date) >= DATE '1970-01-04'",
        "CAST(t AS date) <= DATE '1970-01-04'",
    ]
    assert implied("=", 2**70, "UTC")
    assert implied("=", None, "UTC") == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (Comparison(">=", TIME, Literal(20 * 86_400_000_000, "timestamp")), [False, True]),
        (Not(Comparison("<", TIME, Literal(20 * 86_400_000_000, "timestamp"))), [False, True]),
        (Comparison("<", TIME, Literal(10 * 86_400_000_000, "timestamp")), [True, False]),
        (Not(Comparison("=", TIME, Literal(0, "timestamp"))), [True, True]),
        (Comparison(">=", Call("other", (TIME,), type="timestamp"), Literal(9**18, "timestamp")), [True, True]),
    ],
    ids=str,
)
def test_an_index_over_the_day_skips(predicate: Predicate, kept: list[bool]) -> None:
    import pyarrow as pa

    index = MinMax("to_date(t)").bind([Cast(TIME, "date", "timestamp", zone="UTC")])
    summaries = [index.collect(pa.array(some, pa.int32()).cast(pa.date32())) for some in ([0, 9], [20, 29])]
    table = pa.table({"path": ["a", "b"], str(index): pa.array(summaries)})
    assert keep_mask(clause_for(predicate, [index]), FileMetadata.of(table)).tolist() == kept
