"""What functions of local time make of ranges of instants: never less than they do, by Python's own tables of zones."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.bounds import sort_keys
from geoskip.bounds.interval import Interval
from geoskip.bounds.monotone import evaluate_ends
from geoskip.bounds.time_zones import LocalTimeFunction, local, local_times
from geoskip.evaluation import using_evaluator
from geoskip.evaluation.values import CandidateValues, ZoneTransitions
from geoskip.predicates import Call, Cast, Column, Literal, Predicate
from tests.support.planting import attribute, before
from tests.support.strategies import examples

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HOUR, DAY = 3_600_000_000, 86_400_000_000
ZONES = [
    *("America/New_York", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia", "Africa/Monrovia"),
    *("Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata", "America/Juneau", "Pacific/Kwajalein", "UTC"),
]
TRUNCATES = "org.apache.spark.sql.catalyst.expressions.TruncTimestamp"
FIRST, LAST = (int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) for year in (1860, 2040))


def ahead(zone: str, second: int) -> int:
    moment = EPOCH + dt.timedelta(seconds=second)
    offset = moment.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def clocks_of(zone: str) -> ZoneTransitions:
    """When the offset changes, found by looking every week, which is less than between any two, and then closer."""
    found = []
    step = 7 * 24 * 3600
    before = ahead(zone, FIRST)
    for start in range(FIRST, LAST, step):
        after = ahead(zone, start + step)
        if after != before:
            low, high = start, start + step
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if ahead(zone, middle) == before else (low, middle)
            found.append(f"{high}:{after}")
        before = after
    return ZoneTransitions.of(" ".join([str(LAST), str(ahead(zone, FIRST)), *found]))


KNOWN: dict[str, ZoneTransitions] = {}


class Engine:
    """Evaluates a function of one instant."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self.function = function

    def outcomes(self, node: Predicate, over: Predicate, values: CandidateValues) -> None:
        return None

    def values(self, node: Predicate, over: Predicate, values: CandidateValues) -> pa.Array:
        return pa.array([self.function(value) for value in values.array.to_pylist()], pa.int64())

    def clocks(self, zone: str) -> ZoneTransitions:
        return KNOWN.setdefault(zone, KNOWN.get(zone) or clocks_of(zone))


def offset(zone: str, time: int) -> int:
    found = KNOWN.setdefault(zone, KNOWN.get(zone) or clocks_of(zone))
    return int(found.ahead[np.searchsorted(found.at, time, side="right")])


def local_of(zone: str, time: int) -> int:
    return time + offset(zone, time)


def resolved(zone: str, shown: int, preferred: int) -> int:
    """Java's ``ZonedDateTime.ofLocal``: in a gap later by its length, in an overlap by the preferred offset."""
    found = KNOWN[zone]
    offsets = {
        int(o)
        for o in found.ahead[
            max(0, np.searchsorted(found.at, shown - DAY) - 1) : np.searchsorted(found.at, shown + DAY) + 2
        ]
    }
    valid = sorted({o for o in offsets if offset(zone, shown - o) == o}, reverse=True)
    if valid:
        return shown - (preferred if preferred in valid else valid[0])
    at = int(np.searchsorted(found.at + found.ahead[:-1], shown, side="right")) - 1
    return shown - int(found.ahead[at])


def truncated(zone: str, unit: int) -> Callable[[int], int]:
    def of(time: int) -> int:
        here = local_of(zone, time)
        return resolved(zone, here - here % unit, offset(zone, time))

    return of


CATALYST = "org.apache.spark.sql.catalyst.expressions."
TS = Column("ts", "timestamp")
FUNCTIONS: dict[str, tuple[Callable[[str], Call | Cast], Callable[[str], Callable[[int], int]]]] = {
    "date": (lambda zone: Cast(TS, "date", "timestamp", zone=zone), lambda zone: lambda t: local_of(zone, t) // DAY),
    "local time": (
        lambda zone: Cast(TS, "timestamp_ntz", "timestamp", zone=zone),
        lambda zone: lambda t: local_of(zone, t),
    ),
}
for name, unit in (("day", DAY), ("hour", HOUR), ("minute", 60_000_000)):
    FUNCTIONS[name] = (
        lambda zone, name=name: Call("date_trunc", (Literal(name), TS), TRUNCATES, (zone,), "timestamp"),  # type: ignore[misc]
        lambda zone, unit=unit: truncated(zone, unit),  # type: ignore[misc]
    )
FUNCTIONS["3 days later"] = (
    lambda zone: Call(
        "timeadd", (TS, Literal(3 * DAY, "interval day")), f"{CATALYST}TimestampAddInterval", (zone,), "timestamp"
    ),
    lambda zone: lambda t: resolved(zone, local_of(zone, t) + 3 * DAY, offset(zone, t)),
)
for name, of_time in (
    ("From", local_of),
    ("To", lambda zone, time: resolved(zone, time, DAY)),  # no offset is a day: the earlier instant of two
):
    FUNCTIONS[f"{name.lower()} UTC"] = (
        lambda zone, name=name: Call("_", (TS, Literal(zone)), f"{CATALYST}{name}UTCTimestamp", type="timestamp"),  # type: ignore[misc]
        lambda zone, of_time=of_time: lambda t: of_time(zone, t),  # type: ignore[misc]
    )


def bounds(name: str, zone: str, low: int, high: int) -> tuple[int, int]:
    make, function = FUNCTIONS[name]
    node = make(zone)
    with using_evaluator(Engine(function(zone))):
        take = evaluate_ends(node, TS, "timestamp", clocks=local(node, "timestamp"))
        found = take(Interval("timestamp", np.array([low]), np.array([high])))
    return int(found.low[0]), int(found.high[0])


def check(name: str, zone: str, low: int, high: int, times: list[int]) -> None:
    least, most = bounds(name, zone, low, high)
    for time in (low, *times, high):
        if low <= time <= high:
            value = FUNCTIONS[name][1](zone)(time)
            assert least <= value <= most, (name, zone, low, high, time)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, int, int, list[int]]:
    """A range near a time at which clocks are set, and instants in it."""
    name, zone = draw(st.sampled_from(sorted(FUNCTIONS))), draw(st.sampled_from(ZONES))
    offset(zone, 0)
    at = KNOWN[zone].at
    middle = int(draw(st.sampled_from(at.tolist()))) if len(at) else 0
    near = st.one_of(st.integers(-5 * HOUR, 5 * HOUR), st.integers(-3 * DAY, 3 * DAY), st.sampled_from([-1, 0, 1]))
    low = middle + draw(near)
    high = low + abs(draw(near))
    return name, zone, low, high, [middle + draw(near) for _ in range(8)] + [middle - 1, middle]


MINUTE = 60_000_000
GAP = 1_710_036_000_000_000  # 2024-03-10 02:00, a local time that New York left out
BACK = 1_225_593_060_000_000  # Newfoundland, 2008-11-02: from 00:01 to 23:01 of the day before


@given(cases())
@settings(max_examples=examples(400), deadline=None)
@example(("to UTC", "America/New_York", GAP - 10 * MINUTE, GAP + 70 * MINUTE, [GAP + 59 * MINUTE]))
@example(("date", "America/St_Johns", BACK - 30_000_000, BACK + HOUR, [BACK - 1, BACK]))
def test_no_result_is_outside(case: tuple[str, str, int, int, list[int]]) -> None:
    check(*case)


def test_bounds_are_exact_but_for_a_break() -> None:
    zone = "America/New_York"
    noon = 1_718_467_200_000_000  # 2024-06-15 16:00Z, far from any
    for name in ("date", "local time", "day", "hour", "from UTC"):
        function = FUNCTIONS[name][1](zone)
        assert bounds(name, zone, noon, noon + DAY) == (function(noon), function(noon + DAY))


def test_times_shown_are_exact() -> None:
    zone = "America/New_York"
    with using_evaluator(Engine(lambda time: time)):
        back = 1_730_613_600_000_000  # 2024-11-03 06:00Z: from 02:00 to 01:00
        found = local_times(
            Interval("timestamp", np.array([back - HOUR, back - HOUR]), np.array([back + HOUR // 2, back - 1])), zone
        )
        far = local_times(Interval("timestamp", np.array([KNOWN[zone].until]), np.array([KNOWN[zone].until + 1])), zone)
    day = back - 6 * HOUR
    assert found.low.tolist() == [day + HOUR, day + HOUR]
    assert found.high.tolist() == [day + 2 * HOUR - 1, day + 2 * HOUR - 1]
    assert far.keys().unknown.tolist() == [True]


def test_open_and_distant_ends_are_unknown() -> None:
    zone, (least, most) = "America/New_York", (sort_keys.FIRST, sort_keys.LAST)
    low, high = np.array([least, least + 1, 0, most]), np.array([0, 0, most, least])
    with using_evaluator(Engine(lambda time: time)):
        found = local_times(Interval("timestamp", low, high), zone)
        (first, _), (last, _) = LocalTimeFunction(zone).points(low, high, low < 1, high > -1)
    assert found.keys().unknown.tolist() == [True, True, True, False]
    assert (set(first.tolist()), set(last.tolist())) == ({2}, {0, 1})


def _ends_alone(self: LocalTimeFunction, low: Any, high: Any, known_low: Any, known_high: Any) -> Any:
    return (np.flatnonzero(known_low), low[known_low]), (np.flatnonzero(known_high), high[known_high])


def test_the_ends_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the function taken to rise."""
    attribute(monkeypatch, LocalTimeFunction, "points", _ends_alone)
    for name in ("date", "local time", "day"):
        with pytest.raises(AssertionError):
            check(name, "America/St_Johns", BACK - 2 * HOUR, BACK + 60_000_000, [BACK - 1, BACK])


def test_the_first_hour_after_clocks_are_set_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: only clocks that are set are breaks. In Liberia 1972 they went from 00:00 to 00:44:30."""
    offset("Africa/Monrovia", 0)
    at = int(KNOWN["Africa/Monrovia"].at[-1])
    check("minute", "Africa/Monrovia", at - HOUR, at + 45_000_000, [at + 20_000_000])
    before(
        monkeypatch, LocalTimeFunction, "points", lambda original, local, *ends: original(replace(local, unit=0), *ends)
    )
    with pytest.raises(AssertionError):
        check("minute", "Africa/Monrovia", at - HOUR, at + 45_000_000, [at + 20_000_000])


def test_days_are_added_to_what_the_clocks_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: three days later taken to rise, from when clocks are set back, or to when they are set forth."""
    forth = 1_205_033_460_000_000  # Newfoundland, 2008-03-09: from 00:01 to 01:01
    zone = "America/St_Johns"
    cases = [(BACK - 2 * HOUR, BACK + HOUR // 2), (forth - 3 * DAY - HOUR, forth - 3 * DAY + 3 * HOUR // 2)]
    for low, high in cases:
        check("3 days later", zone, low, high, list(range(low, high, 60_000_000)))
    attribute(monkeypatch, LocalTimeFunction, "points", _ends_alone)
    for low, high in cases:
        with pytest.raises(AssertionError):
            check("3 days later", zone, low, high, list(range(low, high, 60_000_000)))


def test_months_are_not_taken_for_days() -> None:
    months = Call("timeadd", (TS, Literal(2, "interval month")), f"{CATALYST}TimestampAddInterval", ("Asia/Tokyo",))
    assert local(months, "timestamp") is None
