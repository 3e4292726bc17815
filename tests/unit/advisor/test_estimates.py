"""Estimates from samples of files hold the truth as often as they say, and never contradict what was seen."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.advisor.estimates import (
    Estimate,
    SampledKept,
    build_seconds,
    check_seed,
    check_share,
    kept_with_all_rows,
    population_interval,
    scaled_size,
    total,
)
from geoskip.errors import InvalidSpecificationError


def probability(found: int, sampled: int, files: int, with_it: int) -> Fraction:
    """The hypergeometric probability, exactly."""
    ways = math.comb(with_it, found) * math.comb(files - with_it, sampled - found) if found <= sampled else 0
    return Fraction(ways, math.comb(files, sampled))


@pytest.mark.parametrize(("files", "sampled"), [(1, 1), (2, 1), (7, 3), (20, 1), (30, 12), (40, 39), (60, 3)])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_interval_holds_every_truth_at_least_as_often_as_it_says(
    files: int, sampled: int, confidence: float
) -> None:
    intervals = [population_interval(found, sampled, files, confidence) for found in range(sampled + 1)]
    for truth in range(files + 1):
        chance = sum(
            probability(found, sampled, files, truth)
            for found, (low, high) in enumerate(intervals)
            if low <= truth <= high
        )
        assert chance >= Fraction(confidence).limit_denominator(1000)


@pytest.mark.parametrize(("files", "sampled"), [(30, 12), (60, 3)])
def test_the_interval_is_the_narrowest_that_its_two_tests_allow(files: int, sampled: int) -> None:
    for found in range(sampled + 1):
        low, high = population_interval(found, sampled, files)
        if low > found:
            above = sum(probability(k, sampled, files, low - 1) for k in range(found, sampled + 1))
            assert above <= Fraction(1, 20)
        if high < files - (sampled - found):
            below = sum(probability(k, sampled, files, high + 1) for k in range(found + 1))
            assert below <= Fraction(1, 20)


@given(st.data())
def test_what_was_seen_lies_within_and_more_certainty_is_no_narrower(data: st.DataObject) -> None:
    files = data.draw(st.integers(1, 5000))
    sampled = data.draw(st.integers(0, files))
    found = data.draw(st.integers(0, sampled))
    low, high = population_interval(found, sampled, files, 0.8)
    wide_low, wide_high = population_interval(found, sampled, files, 0.95)
    assert found <= low <= high <= files - (sampled - found)
    assert wide_low <= low <= high <= wide_high
    assert sampled < files or low == high == found
    mirrored = population_interval(sampled - found, sampled, files, 0.8)
    assert mirrored == (files - high, files - low)


def test_a_million_files_take_no_long_sums() -> None:
    low, high = population_interval(25_000, 50_000, 1_000_000)
    assert 495_000 < low < 500_000 < high < 505_000


@given(st.lists(st.tuples(st.integers(0, 10**9), st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_bytes_lie_in_their_interval_wherever_files_do(rows: list[tuple[int, bool, bool]]) -> None:
    sizes, drawn, truth = zip(*rows, strict=True)
    files, size = SampledKept(sizes, drawn, [d and t for d, t in zip(drawn, truth, strict=True)]).estimates()
    assert files.low <= files.value <= files.high
    assert size.low <= size.value * (1 + 1e-12) + 1
    assert size.value <= size.high * (1 + 1e-12) + 1
    if sum(truth) in files:
        slack = 1e-9 * sum(sizes)
        assert size.low - slack <= sum(s for s, t in zip(sizes, truth, strict=True) if t) <= size.high + slack
    if all(drawn):
        assert files.is_exact
        assert files.value == sum(truth)


def test_of_random_samples_nine_in_ten_intervals_hold_the_files_and_the_bytes() -> None:
    random = np.random.default_rng(5)
    held = {"files": 0, "bytes": 0}
    tries = 400
    for _ in range(tries):
        sizes = random.lognormal(10, 1, 300).astype(np.int64)
        truth = random.random(300) < random.random()
        drawn = np.zeros(300, dtype=bool)
        drawn[random.choice(300, 15, replace=False)] = True
        files, size = SampledKept(sizes.tolist(), drawn.tolist(), (drawn & truth).tolist()).estimates()
        held["files"] += int(truth.sum()) in files
        held["bytes"] += float(sizes[truth].sum()) in size
    assert min(held.values()) >= 0.9 * tries


def test_nothing_sampled_says_nothing() -> None:
    files, size = SampledKept([10, 20, 30], [False] * 3, [False] * 3).estimates()
    assert (files, size) == (Estimate(3, 0, 3), Estimate(60, 0, 60))


def test_sums_of_estimates_add_their_intervals() -> None:
    assert total([Estimate(2, 1, 5), Estimate(3, 3, 3)]) == Estimate(5, 4, 8)
    assert total([]) == Estimate(0, 0, 0)


def test_sizes_of_columns_continue_the_line_through_what_was_measured() -> None:
    assert scaled_size([(50, 1000), (100, 1500)], 1000) == 10_500
    assert scaled_size([(50, 1000), (100, 900)], 1000) == 900  # a dictionary got better: no less than was seen


@pytest.mark.parametrize("fixed", [0.0, 0.3, 5.0])
def test_a_build_takes_no_less_than_its_sample_and_no_longer_than_in_proportion(fixed: float) -> None:
    seconds = [build_seconds(0.4, 1e6, size, fixed) for size in (0, 1e6, 2e6, 1e9)]
    assert seconds == sorted(seconds)
    assert seconds[0] == seconds[1] == 0.4
    assert seconds[-1] <= 0.4 * 1e3 + 1e-9
    assert build_seconds(0.4, 0, 0, fixed) == 0.4  # files without bytes


@pytest.mark.parametrize("sample", [0, -0.1, 1.5, math.nan, "0.1", True, None])
def test_a_share_is_above_none_and_at_most_all(sample: object) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"sample= takes a number above 0 and up to 1, such as 0.05"):
        check_share(sample, 0.9)


@pytest.mark.parametrize("confidence", [0, 1, 90, math.nan, "high"])
def test_a_confidence_is_no_certainty(confidence: object) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"confidence= takes a number between 0 and 1, such as 0.9"):
        check_share(1, confidence)


@pytest.mark.parametrize("seed", ["x", True, 1.0, -1, 2**63, None])
def test_a_seed_is_a_number_that_spark_and_numpy_take(seed: object) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"seed= takes a whole number from 0 to 2\^63 - 1, got "):
        check_seed(seed)


def overlapping(values: np.ndarray, files: np.ndarray, count: int, low: float, high: float) -> list[bool]:
    """The files whose least and greatest values overlap a range, as a MinMax keeps them; none without rows."""
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, files, values)
    np.maximum.at(greatest, files, values)
    return [bool(each) for each in (least <= high) & (greatest >= low)]


def holding(values: np.ndarray, files: np.ndarray, count: int, value: float) -> list[bool]:
    """The files that hold a value, as a ValueList keeps them."""
    found = np.zeros(count, dtype=bool)
    found[files[values == value]] = True
    return found.tolist()


def simulated(query: str, share: float, random: np.random.Generator) -> tuple[Estimate, int]:
    """The estimate of what a query keeps of files in the order of a key, and the truth."""
    rows, files = 24_000, 80
    key = random.normal(size=rows)
    other = key + random.normal(size=rows)
    word = random.zipf(1.6, rows).clip(0, 2000)
    where = float(random.normal())
    sought = float(random.choice(word)) if query == "rare value" else 3.0
    chosen, half, everything = random.random(rows) < share, random.random(rows) < 0.5, np.ones(rows, dtype=bool)

    def kept(fitted: np.ndarray, rows: np.ndarray) -> list[bool]:
        cuts = np.quantile(key[fitted], np.linspace(0, 1, files + 1)[1:-1])
        number = np.searchsorted(cuts, key[rows])
        match query:
            case "range of the order":
                return overlapping(key[rows], number, files, where, where + 0.2)
            case "range of another column":
                return overlapping(other[rows], number, files, where + 2, where + 2.1)
        return holding(word[rows], number, files, sought)

    halves = [] if share == 1 else [kept(chosen, chosen & half), kept(chosen, chosen & ~half)]
    return kept_with_all_rows(kept(chosen, chosen), halves, share), sum(kept(everything, everything))


@pytest.mark.slow
@pytest.mark.parametrize("query", ["range of the order", "range of another column", "rare value", "common value"])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_simulated_files_tell_how_many_real_ones_are_kept(query: str, share: float) -> None:
    random = np.random.default_rng(7)
    found = [simulated(query, share, random) for _ in range(40)]
    assert sum(truth in estimate for estimate, truth in found) >= 0.85 * len(found)
    assert abs(float(np.mean([estimate.value - truth for estimate, truth in found]))) <= 10


def test_all_files_stay_all_and_what_no_sampled_row_says_is_left_open() -> None:
    assert kept_with_all_rows([True] * 9, [[True] * 9, [True] * 9], 0.1) == Estimate(9, 9, 9)
    nothing = kept_with_all_rows([False] * 900, [[False] * 900] * 2, 0.1)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 23)  # ln(10) / 0.1
    assert kept_with_all_rows([False] * 9, [], 1.0) == Estimate(0, 0, 0)
