"""The files of a partition that a rewrite takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.layout.clustering import FileRanges, overlapping_files
from geoskip.spark.dataset.rewrite_choice import _of_partition


def spans(*ends: tuple[int, int]) -> FileRanges:
    """Ranges of whole numbers from 0 to 99."""
    low, high = (np.array(side, dtype=np.int64) for side in zip(*ends, strict=True))
    return FileRanges(low, high, np.arange(100, dtype=float), 1.0, np.ones(len(low)))


def chosen(sizes: list[float], *ends: tuple[int, int], target: float = 10) -> list[bool]:
    ranges = spans(*ends)
    stray = overlapping_files([ranges], np.arange(len(ends)))
    return _of_partition([ranges], np.array(sizes, dtype=float), stray, target).tolist()


def test_files_in_order_and_of_the_wanted_size_stay():
    assert chosen([10, 7, 19], (0, 9), (9, 20), (30, 40)) == [False, False, False]


def test_files_that_overlap_are_rewritten():
    assert chosen([10, 10, 10], (0, 9), (5, 20), (30, 40)) == [True, True, False]


@pytest.mark.parametrize(("sizes", "expected"), [([10, 3], [False, False]), ([3], [False]), ([25], [True])], ids=str)
def test_one_small_file_stays_and_one_large_file_is_divided(sizes, expected):
    assert chosen(sizes, *((10 * at, 10 * at + 5) for at in range(len(sizes)))) == expected


def test_small_files_are_merged_with_the_files_between_them():
    assert chosen([3, 10, 3, 10], (0, 9), (10, 19), (20, 29), (30, 39)) == [True, True, True, False]


@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 15), st.sampled_from([3.0, 10.0, 30.0])), min_size=1, max_size=9
    )
)
def test_files_that_stay_lie_outside_of_what_is_rewritten(files):
    ends = [(low, low + width) for low, width, _ in files]
    taken = np.array(chosen([size for *_, size in files], *ends))
    if taken.any():
        hull = (min(low for (low, _), is_taken in zip(ends, taken, strict=True) if is_taken),
                max(high for (_, high), is_taken in zip(ends, taken, strict=True) if is_taken))  # fmt: skip
        staying = [span for span, is_taken in zip(ends, taken, strict=True) if not is_taken]
        found = overlapping_files([spans(hull, *staying)], np.array([0, *([1] * len(staying))]))
        assert not found[0]
