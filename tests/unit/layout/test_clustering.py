"""Overlap, depth and expected files against brute force over explicit rows."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.layout.clustering import SHARES, FileRanges, clustering, group_numbers, overlapping_files, ranges_of
from geoskip.metadata import FileMetadata


def ranges(*files: list[object] | pa.Array, kind: pa.DataType | None = None) -> FileRanges:
    """The ranges of files with these values, from real MinMax summaries."""
    arrays = [values if isinstance(values, pa.Array) else pa.array(values, kind) for values in files]
    kinds = {"int64": "bigint", "double": "double", "bool": "boolean", "date32[day]": "date", "int32": "int"}
    name = {"decimal128(38, 2)": "decimal(38,2)", "timestamp[us]": "timestamp_ntz"}.get(str(arrays[0].type))
    column = SourceColumn("a", name or kinds.get(str(arrays[0].type), str(arrays[0].type)), arrays[0].type)
    stored = MinMax("a").metadata_type(column)
    summaries = pa.array([MinMax("a").collect(values) for values in arrays], stored)
    found = ranges_of(FileMetadata.of(pa.table({"minmax(a)": summaries})), "minmax(a)")
    assert found is not None
    return found


def brute(files: list[tuple[int, int, int]]) -> tuple[Fraction, int, list[Fraction]]:
    """Overlap, greatest depth and expected files, by rows spread over the whole numbers of each file's range."""
    weight: dict[int, Fraction] = {}
    for low, high, rows in files:
        for value in range(low, high + 1):
            weight[value] = weight.get(value, Fraction(0)) + Fraction(rows, high - low + 1)
    meets = [sum(low <= other[1] and other[0] <= high for other in files) - 1 for low, high, _ in files]
    deepest = max(sum(low <= value <= high for low, high, _ in files) for value in weight)
    total, steps = sum(weight.values()), []
    so_far = Fraction(0)
    for value in sorted(weight):
        so_far += weight[value] / total
        steps.append((so_far, value))

    def quantile(at: Fraction) -> int:
        return next(value for until, value in steps if until >= at)

    read = []
    for share in map(Fraction, map(str, SHARES)):
        cuts = {Fraction(0), 1 - share} | {cut for until, _ in steps for cut in (until, until - share)}
        expected = Fraction(0)
        for start, end in pairwise(sorted(cut for cut in cuts if 0 <= cut <= 1 - share)):
            first, last = (quantile((start + end) / 2 + more) for more in (0, share))
            expected += (end - start) * sum(low <= last and first <= high for low, high, _ in files)
        read.append(expected / (1 - share))
    return Fraction(sum(meets), len(files)), deepest, read


spans = st.tuples(st.integers(-6, 6), st.integers(0, 8), st.integers(1, 9))


@given(st.lists(spans, min_size=1, max_size=7))
def test_figures_are_those_of_explicit_rows(found):
    files = [(low, low + width, rows) for low, width, rows in found]
    bounds = [[low, high] for low, high, _ in files]
    known = ranges(*bounds, kind=pa.int32())
    got = clustering(FileRanges(known.low, known.high, known.positions, 1.0, np.array([r for *_, r in files], float)))
    overlap, deepest, read = brute(files)
    assert got.overlap == pytest.approx(float(overlap))
    assert got.deepest == deepest
    assert got.files_read == pytest.approx([float(each) for each in read])


def test_files_in_order_are_read_one_at_a_time_and_files_alike_all_together():
    ordered = clustering(ranges(*([10 * n, 10 * n + 9] for n in range(100))))
    assert (ordered.overlap, ordered.deepest) == (0, 1)
    assert ordered.files_read == pytest.approx((1, 1.1, 2, 11), rel=0.02)
    assert ordered.ideal() == (1, 1, 1, 10)
    alike = clustering(ranges(*([0, 999] for _ in range(100))))
    assert (alike.overlap, alike.deepest) == (99, 100)
    assert alike.files_read == pytest.approx((100,) * 4)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ([["user/a1", "user/a5"], ["user/a5z", "user/b"], ["user/c", "user/d"]], pa.string()),
        ([[b"\x00", b"\x01\xff"], [b"\x02", b"\x80"], [b"\xff" * 40, b"\xff" * 50]], pa.binary()),
        ([[-1e300, -1.0], [-0.5, 0.0], [1e-300, float("inf")]], pa.float64()),
        ([[dt.date(2024, 1, 1), dt.date(2024, 1, 2)], [dt.date(2024, 1, 3)], [dt.date(2025, 1, 1)]], pa.date32()),
        (
            [[dt.datetime(2024, 1, 1)], [dt.datetime(2024, 1, 1, 0, 0, 1)], [dt.datetime(2025, 1, 1)]],
            pa.timestamp("us"),
        ),
        ([[False], [True], [True]], pa.bool_()),
        ([[10**30], [2 * 10**30, 3 * 10**30], [4 * 10**30]], pa.decimal128(38, 2)),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_every_ordered_type_has_ranges(files, kind):
    found = clustering(ranges(*files, kind=kind))
    last_alike = kind == pa.bool_()
    assert found.overlap == pytest.approx(2 / 3 if last_alike else 0)
    assert found.deepest == (2 if last_alike else 1)


def test_null_and_nan_are_in_no_range():
    nan = float("nan")
    found = ranges([1.0, 2.0, None], [nan, 3.0, nan, 4.0], [None, None], [nan, nan, None], [5.0], kind=pa.float64())
    assert found.present.tolist() == [True, True, False, False, True]
    assert found.values.tolist() == [2, 2, 0, 0, 1]
    got = clustering(found)
    assert (got.files, got.empty, got.overlap, got.deepest) == (5, 2, 0, 1)
    assert got.files_read[0] == pytest.approx(1)
    nothing = clustering(ranges([None], [None, None], kind=pa.int64()))
    assert (nothing.empty, nothing.files_read) == (2, (0, 0, 0, 0))


def test_a_constant_column_is_read_whole():
    got = clustering(ranges(["x", "x"], ["x"], ["x", None]))
    assert (got.overlap, got.deepest, got.files_read[0]) == (2, 3, pytest.approx(3))


def test_a_narrow_file_beside_a_wide_one_loses_no_weight():
    found = ranges([0.0, 1e-12], [0.0, 1e12], [5e11, 5e11 + 1], kind=pa.float64())
    got = clustering(found)
    # a third of the rows lies in each; the wide file is met everywhere, its own rows but rarely lie in the others
    assert got.files_read[0] == pytest.approx((2 + 1 + 2) / 3)


@pytest.mark.filterwarnings("error")
def test_the_widest_and_the_narrowest_ranges_of_doubles_have_figures():
    infinite = float("inf")
    files = ([-1.7e308, 1.7e308], [0.0, 5e-324], [-infinite, -1e308], [1e308, infinite], [0.0, 1e-310], [-0.0])
    got = clustering(ranges(*files, kind=pa.float64()))
    assert all(1 <= read <= len(files) for read in got.files_read)
    assert got.files_read == tuple(sorted(got.files_read))
    tiny = clustering(ranges([0.0, 5e-324], [1e-323, 1e-310], kind=pa.float64()))
    assert tiny.files_read[0] == pytest.approx(1)


boxes = st.lists(
    st.tuples(*(st.tuples(st.integers(0, 6), st.integers(0, 4)) for _ in range(2)), st.integers(0, 2)),
    min_size=1,
    max_size=9,
)


@given(boxes)
def test_boxes_overlap_where_they_share_more_than_a_border(found):
    ends = [[(low, low + width) for low, width in sides] for *sides, _ in found]
    groups = np.array([group for *_, group in found])
    columns = [ranges(*(list(side[axis]) for side in ends), kind=pa.int64()) for axis in range(2)]

    def shares(one: tuple[int, int], other: tuple[int, int]) -> bool:
        return (
            one == other
            or max(one[0], other[0]) < min(one[1], other[1])
            or (max(one[0], other[0]) == min(one[1], other[1]) and one[0] < other[0] <= other[1] < one[1])
            or (other[0] < one[0] <= one[1] < other[1])
        )

    expected = [
        any(
            groups[i] != groups[j] and all(shares(a, b) for a, b in zip(ends[i], ends[j], strict=True))
            for j in range(len(ends))
        )
        for i in range(len(ends))
    ]
    assert overlapping_files(columns, groups).tolist() == expected


def test_a_hundred_thousand_files_in_order_overlap_none_at_once():
    starts = np.arange(100_000)
    column = FileRanges(starts, starts + 1, np.arange(100_001, dtype=float), 0.0, np.ones(100_000))
    assert not overlapping_files([column], starts).any()
    assert clustering(column).files_read[0] == pytest.approx(1)


def test_files_without_a_group_stand_alone():
    assert group_numbers(["a", None, "a", None]).tolist() == [0, 1, 0, 2]
