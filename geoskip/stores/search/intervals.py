"""Sets of values in an order, as intervals: what a condition on one value leaves.

An interval holds the values from its first member on and below its second; None is above everything. A set is a tuple
of intervals, ascending and apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Interval", "Intervals", "common", "outside", "united"]

Interval = tuple[Any, Any]
Intervals = tuple[Interval, ...]


def united(intervals: Iterable[Interval]) -> Intervals:
    """The set of what lies in some interval.

    >>> united([(5, 7), (1, 3), (6, None), (2, 4), (4, 4)])
    ((1, 4), (5, None))
    """
    found: list[Interval] = []
    for low, high in sorted((i for i in intervals if i[1] is None or i[0] < i[1]), key=lambda interval: interval[0]):
        if found and (found[-1][1] is None or low <= found[-1][1]):
            found[-1] = found[-1][0], _later(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def common(one: Intervals, other: Intervals) -> Intervals:
    """What lies in both sets.

    >>> common(((1, 4), (6, None)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    found = []
    left, right = list(one), list(other)
    while left and right:
        (a, b), (c, d) = left[0], right[0]
        found.append((max(a, c), _earlier(b, d)))
        (left if b is not None and (d is None or b < d) else right).pop(0)
    return united(found)


def outside(intervals: Intervals, first: Any) -> Intervals:
    """The values from the first one on that lie in none of the intervals.

    >>> outside(((1, 4), (6, None)), 0)
    ((0, 1), (4, 6))
    """
    found = []
    for low, high in intervals:
        found.append((first, low))
        if high is None:
            return united(found)
        first = high
    return united([*found, (first, None)])


def _later(one: Any, other: Any) -> Any:
    return None if one is None or other is None else max(one, other)


def _earlier(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)
