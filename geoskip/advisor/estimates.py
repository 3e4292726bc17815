"""Estimates of files, bytes, metadata and time from a simple random sample of a dataset's files.

A sample of n of N files is drawn without replacement, so the number of sampled files that a query keeps is
hypergeometric, and inverting the two one-sided tests gives an interval that contains the true number with at least the
requested confidence, whatever n and N (Clopper and Pearson 1934; Buonaccorsi, "A note on confidence intervals for
proportions in finite populations", The American Statistician 41, 1987). The population of a query is the files that it
reads now, without those already skipped by partitions or existing indexes; the sampled files among them are a simple
random sample of it.

The interval of bytes follows from that of files: the bytes of sampled files are known, and the remaining files of the
interval are at least the smallest and at most the largest unsampled files. So whenever the interval of files contains
the true number, that of bytes contains the true bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import ceil, floor, log, log2, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geoskip.errors import InvalidSpecificationError


@dataclass(frozen=True)
class Estimate:
    """An estimated number with its confidence interval.

    >>> str(Estimate(12, 4, 30)), str(Estimate(7, 7, 7))
    ('12 (4 to 30)', '7')
    """

    value: float
    low: float
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Estimate:
        return Estimate(self.value * times, self.low * times, self.high * times)

    def __contains__(self, truth: object) -> bool:
        return isinstance(truth, int | float) and self.low <= truth <= self.high

    @property
    def is_exact(self) -> bool:
        """True if the number is known exactly."""
        return self.low == self.high

    def text(self, shown: Callable[[float], str]) -> str:
        """Format the value and its interval, each number by a function."""
        value, low, high = map(shown, (self.value, self.low, self.high))
        return value if low == high else f"{value} ({low} to {high})"

    def to_dict(self) -> dict[str, float]:
        """Value, low and high, ready for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return self.text(lambda number: f"{number:,.0f}")

    @classmethod
    def exact(cls, value: float) -> Estimate:
        """Return a number that is known exactly."""
        return cls(value, value, value)


NOTHING = Estimate.exact(0)


def total(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum of estimates; its interval is the sum of their intervals, which is conservative."""
    return sum(estimates, NOTHING)


def check_share(sample: object, confidence: object) -> None:
    """Raise InvalidSpecificationError for a share outside (0, 1] or a confidence outside (0, 1)."""
    for name, given, closed, example in (("sample", sample, True, "0.05"), ("confidence", confidence, False, "0.9")):
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not (0 < given < 1 or (closed and given == 1)):  # type: ignore[operator]
            interval = "above 0 and up to 1" if closed else "between 0 and 1"
            raise InvalidSpecificationError(f"{name}= takes a number {interval}, such as {example}, got {given!r}")


def check_seed(seed: object) -> None:
    """Raise InvalidSpecificationError for anything but a number that Spark and NumPy take as a seed."""
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InvalidSpecificationError(f"seed= takes a whole number from 0 to 2^63 - 1, got {seed!r}")


def population_interval(kept: int, sampled: int, files: int, confidence: float = 0.9) -> tuple[int, int]:
    """Return a confidence interval of the number of files with a property, from a sample.

    Parameters
    ----------
    kept
        Number of sampled files with the property.
    sampled
        Number of files drawn at random, without replacement.
    files
        Number of files in the population.
    confidence
        Probability, before the draw, that the interval contains the true number; at least this, as the interval is
        exact.

    Returns
    -------
    tuple of int
        The least and the greatest number. They are equal if all files were sampled; with none sampled they are 0 and
        ``files``.

    Examples
    --------
    >>> population_interval(0, 20, 400), population_interval(20, 20, 400), population_interval(5, 20, 400)
    ((0, 54), (346, 400), (43, 180))
    """
    if sampled == 0:
        return 0, files
    tail = (1 - confidence) / 2
    least, most = kept, files - (sampled - kept)
    # with more such files, many sampled ones become more probable, and few less probable
    low = _first_true(least, most, lambda with_it: _share_above(kept, sampled, files, with_it) > tail)
    high = most - _first_true(0, most - least, lambda fewer: _share_below(kept, sampled, files, most - fewer) > tail)
    return low, high


def _first_true(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number of a range that satisfies a monotone condition; else the last number."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _share_above(kept: int, sampled: int, files: int, with_it: int) -> float:
    """Return the probability that at least ``kept`` sampled files have a property that ``with_it`` have."""
    return _probability(kept, min(sampled, with_it), sampled, files, with_it)


def _share_below(kept: int, sampled: int, files: int, with_it: int) -> float:
    """Return the probability that at most ``kept`` sampled files have a property that ``with_it`` have."""
    return _probability(max(0, sampled - files + with_it), kept, sampled, files, with_it)


def _probability(first: int, last: int, sampled: int, files: int, with_it: int) -> float:
    """Return the hypergeometric probability of ``first`` to ``last`` such files in the sample."""
    drawn = np.arange(first, last + 1)
    logs = _log_factorials(1 << files.bit_length())

    def choices(n: int, k: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = logs[n] - logs[k] - logs[n - k]
        return found

    ways = choices(with_it, drawn) + choices(files - with_it, sampled - drawn)
    return float(np.exp(ways - choices(files, np.array([sampled]))).sum())


@lru_cache(maxsize=4)
def _log_factorials(most: int) -> NDArray[Any]:
    """Return the logarithms of the factorials of 0 to ``most``."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])


@dataclass(frozen=True)
class SampledKept:
    """A population of files with masks of the sampled ones and of those that a query would keep.

    Attributes
    ----------
    sizes
        Bytes of all files of the population.
    is_sampled
        True for each sampled file.
    is_kept
        True for each sampled file that the query would read.
    """

    sizes: Sequence[int]
    is_sampled: Sequence[bool]
    is_kept: Sequence[bool]

    def estimates(self, confidence: float = 0.9) -> tuple[Estimate, Estimate]:
        """Estimate the files and bytes of the population that the query would read; all if none is sampled."""
        sizes = np.asarray(self.sizes, dtype=np.float64)
        sampled, kept = np.asarray(self.is_sampled, dtype=bool), np.asarray(self.is_kept, dtype=bool)
        files, drawn, found = len(sizes), int(sampled.sum()), int(kept.sum())
        low, high = population_interval(found, drawn, files, confidence)
        others = np.concatenate([[0.0], np.cumsum(np.sort(sizes[~sampled]))])
        known, left = float(sizes[kept].sum()), float(others[-1])
        fewest = known + float(others[low - found])
        most = known + left - float(others[len(others) - 1 - (high - found)])
        seen = float(sizes[sampled].sum())
        share = found / drawn if drawn else 1.0
        of_bytes = known / seen if seen else share
        value = min(max(found + share * (files - drawn), low), high)
        return (
            Estimate(value, low, high),
            Estimate(min(max(known + of_bytes * left, fewest), most), fewest, most),
        )


def kept_with_all_rows(
    kept: Sequence[bool], halves: Sequence[Sequence[bool]], share: float, confidence: float = 0.9
) -> Estimate:
    """Estimate how many files a query would keep, from files simulated with a share of their rows.

    A file that is kept for some of its rows is also kept with all of them, so the true number is not smaller, apart
    from the random position of the cuts between files. Its growth with the number of rows depends on the query. For
    ranges it converges: the missing number is inversely proportional to the rows. For rare values it grows as a power
    of the rows, at most linearly. The exponent of the growth from the half samples to the whole sample gives the
    estimate by this power law, and its weight against the estimate by the first law.

    Parameters
    ----------
    kept
        For each simulated file, in the order of the layout, True if it is kept for its sampled rows.
    halves
        The same for each half of these rows; empty if the sample is all rows.
    share
        The share of the rows in the sample.
    confidence
        The probability that the interval contains the true number.

    Examples
    --------
    >>> str(kept_with_all_rows([True, True, False, False], [], 1.0)), str(kept_with_all_rows([True] * 4, [], 1.0))
    ('2 (0 to 4)', '4')
    """
    files, found = len(kept), sum(kept)
    half = sum(map(sum, halves)) / len(halves) if halves else float(found)
    growth = max(0.0, found - half)
    settled = found + growth * (1 - share)
    exponent = min(1.0, log2(found / half)) if half > 0 and found > half else float(found > half)
    power = min(float(files), found * share**-exponent)
    value = min(float(files), settled + exponent * max(0.0, power - settled))
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    edges = runs(kept) if found < files else 0
    differ = abs(sum(halves[0]) - sum(halves[1])) if len(halves) > 1 else 0
    noise = z * sqrt(edges / 2 + differ**2 / 4) + (edges > 0)
    unseen = -log(1 - confidence) / share if found == 0 and share < 1 else 0.0
    low = max(0.0, ceil(found - noise))
    high = min(float(files), floor(max(power, settled, unseen) + noise))
    return Estimate(min(max(value, low), high), low, high)


def runs(flags: Iterable[bool]) -> int:
    """Count the runs of consecutive True flags, such as consecutive files that a query reads.

    >>> runs([True, True, False, True]), runs([])
    (2, 0)
    """
    return sum(1 for flag, _ in groupby(flags) if flag)


def scaled_size(sizes: Sequence[tuple[int, int]], files: int) -> int:
    """Extrapolate the bytes of a metadata column to all files, from its bytes for fewer rows.

    Encoded columns have a fixed part (page headers, a dictionary) and a part that grows with the rows, so the line
    through the last two measurements is extrapolated.

    Parameters
    ----------
    sizes
        Pairs of a number of rows and the encoded bytes, ascending. Zero rows have the bytes of the fixed part, which is
        0 if it is not given.
    files
        The rows of the real column.

    Examples
    --------
    >>> scaled_size([(10, 300), (20, 500)], 100), scaled_size([(0, 60), (1, 70)], 3), scaled_size([(1, 70)], 3)
    (2100, 90, 210)
    >>> scaled_size([], 5)
    0
    """
    if not sizes:
        return 0
    measured = [(0, 0), *sizes]
    (fewer, small), (more, large) = measured[-2], measured[-1]
    return round(large + max(0.0, (large - small) / (more - fewer)) * (files - more))


def build_seconds(seconds: float, sampled: float, size: float, fixed: float = 0.0) -> float:
    """Estimate the seconds of a build from those of building a sample.

    Parameters
    ----------
    seconds
        The seconds for the sample.
    sampled, size
        The bytes of the sampled files and of all files.
    fixed
        Seconds of a build independent of the bytes that it reads. At least half of ``seconds`` is attributed to
        reading, since the fixed part depends on the machine.

    Examples
    --------
    >>> build_seconds(2.0, 1e6, 4e6), build_seconds(2.0, 1e6, 4e6, fixed=0.5), build_seconds(2.0, 1e6, 4e6, fixed=9)
    (8.0, 6.5, 5.0)
    """
    return seconds + max(seconds / 2, seconds - fixed) * max(0.0, size / sampled - 1) if sampled else seconds
