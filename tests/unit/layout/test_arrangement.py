"""Layouts are named and written; arrangements give each row one file, evenly, and alike whatever the batches."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.layout.arrangement import Arrangement
from geoskip.layout.specification import Hilbert, KDTree, Layout, Sort, ZOrder
from tests.unit.test_codec import through_json

LAYOUTS = [ZOrder, Hilbert, KDTree, Sort]
RNG = np.random.default_rng(17)
WORDS = pa.array([f"prefix/{'x' * 70}/{n}" for n in RNG.integers(0, 500, 6000)])
SKEWED = pa.array(RNG.zipf(1.3, 6000).clip(max=10**9))
NUMBERS = pa.array(RNG.normal(size=6000), mask=RNG.random(6000) < 0.05)


# --- specifications ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_layout_comes_back_from_json(kind):
    layout = kind("lng", "upper(city)")
    assert Layout.from_json(through_json(layout.to_json()) | {"files": 8}) == layout
    assert str(layout) == f"{kind.kind}(lng, upper(city))"
    assert layout != LAYOUTS[LAYOUTS.index(kind) - 1]("lng", "upper(city)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ZOrder(), "ZOrder needs a column at least"),
        (lambda: Hilbert(*"abcdefghi"), "Hilbert takes at most 8 columns, got 9"),
        (lambda: KDTree("a", "b", "a "), "KDTree names a twice"),
        (lambda: Sort("a", ""), "Sort takes column names or SQL texts, got ''"),
        (lambda: Sort(["a", "b"]), r"got \['a', 'b'\]"),
        (lambda: Layout("a"), "use one of these"),
        (lambda: Layout.from_json({"kind": "peano", "expressions": ["a"]}), "'peano' is known here, only zorder"),
        (lambda: Layout.from_json({"kind": "zorder"}), "list of expressions, got None"),
    ],
)
def test_a_wrong_specification_says_what_is_wrong(make, message):
    with pytest.raises(InvalidSpecificationError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([pa.array([1])], 0), InvalidSpecificationError, "needs a file at least"),
        (([], 2), InvalidSpecificationError, "an array for each of 1 expressions, got 0"),
        (([pa.array([], pa.int64())], 2), InvalidSpecificationError, "sample of rows, got none"),
        (([pa.array([{"a": 1}])], 2), UnsupportedColumnError, "no order"),
    ],
)
def test_what_cannot_be_fitted_is_refused(arguments, error, message):
    for kind in LAYOUTS:
        with pytest.raises(error, match=message):
            Arrangement.fit(kind("a"), *arguments)


# --- every row has one file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
@example(rows=[*[(None, "")] * 4, (None, "a"), (0, "a")], share=1.0)
@given(
    rows=st.lists(st.tuples(st.none() | st.integers(0, 4), st.sampled_from(["", "a", "b"])), min_size=1, max_size=60),
    share=st.floats(0, 1),
)
def test_no_more_files_than_rows_are_all_used_whatever_is_equal(kind, rows, share):
    columns = [pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows])]
    files = 1 + int(share * (len(rows) - 1))
    ties = np.array([hash(row) for row in rows])  # equal rows tie
    found = Arrangement.fit(kind("a", "b"), columns, files, ties=ties)
    counts = np.bincount(found.keys_and_files(columns, ties=ties)[1], minlength=files)
    assert found.files == len(counts) == files
    assert counts.min() > 0
    if kind is Sort:
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("files", [1, 7, 64, 100])
def test_files_are_even_and_the_same_for_any_batches_and_order_of_the_rows(kind, files):
    columns = [WORDS, SKEWED, NUMBERS]
    ties = RNG.integers(-(2**62), 2**62, 6000)
    sample = RNG.permutation(6000)[:4000]
    chosen = pa.array(sample)
    made = Arrangement.fit(kind("a", "b", "c"), [column.take(chosen) for column in columns], files, ties=ties[sample])
    found = pickle.loads(pickle.dumps(made))
    whole = found.keys_and_files(columns, ties=ties)[1]
    counts = np.bincount(whole, minlength=files)
    assert len(counts) == files
    assert counts.min() > 0.35 * 6000 / files
    assert counts.max() < 1.9 * 6000 / files
    shuffled = RNG.permutation(6000)
    turns = found.cuts.new_turns()
    parts = [
        found.keys_and_files([c.take(pa.array(part)) for c in columns], ties=ties[part], turns=turns)[1]
        for part in np.array_split(shuffled, 13)
    ]
    assert (np.concatenate(parts) == whole[shuffled]).all()


@pytest.mark.parametrize("kind", LAYOUTS)
def test_files_follow_the_order_of_the_keys(kind):
    columns = [SKEWED, NUMBERS]
    found = Arrangement.fit(kind("a", "b"), columns, 32)
    keys, files = found.keys_and_files(columns)
    bounds = [(keys[files == number].min(), keys[files == number].max()) for number in range(32)]
    assert all(one[1] <= other[0] for one, other in pairwise(bounds))


def test_equal_rows_go_to_as_many_of_each_file_in_whatever_order():
    ones = pa.array([1] * 90 + [2] * 10)
    ties = np.zeros(100, np.int64)
    found = Arrangement.fit(Sort("a"), [ones], 10, ties=ties)
    order = RNG.permutation(100)
    files = [found.keys_and_files([ones.take(pa.array(rows))], ties=ties)[1] for rows in (np.arange(100), order)]
    assert np.bincount(files[0]).tolist() == np.bincount(files[1]).tolist() == [10] * 10


def test_partitions_share_no_file_and_have_files_in_proportion():
    groups = np.repeat([0, 1, 2, 3], [3000, 2000, 990, 10])
    for kind in LAYOUTS:
        found = Arrangement.fit(kind("a", "b"), [SKEWED, NUMBERS], 12, groups=groups)
        files = found.keys_and_files([SKEWED, NUMBERS], groups=groups)[1]
        used = [set(files[groups == group].tolist()) for group in range(4)]
        assert [len(numbers) for numbers in used] == [6, 4, 1, 1]
        assert sum(map(len, used)) == len(set().union(*used)) == found.files == 12
        unknown = found.keys_and_files([SKEWED[:5], NUMBERS[:5]], groups=np.full(5, 4))[1]
        assert set(unknown.tolist()) == {found.files}


# --- files that skip --------------------------------------------------------------------------------------------------


def mean_files_read(columns, files):
    """The mean number of files whose bounds hold a value of each column, over the values of the rows."""
    count = files.max() + 1
    means = []
    for column in columns:
        low, high = (np.array([f(column[files == n]) for n in range(count)]) for f in (np.min, np.max))
        values = column[:: len(column) // 500]
        means.append(float(((low <= values[:, None]) & (values[:, None] <= high)).sum(axis=1).mean()))
    return means


@pytest.mark.parametrize(("kind", "most"), [(ZOrder, 1.15), (Hilbert, 1.2), (KDTree, 1.05)])
def test_points_in_either_of_two_columns_read_near_the_root_of_the_files(kind, most):
    columns = [RNG.random(40_000), RNG.random(40_000) ** 5]
    found = Arrangement.fit(kind("a", "b"), [pa.array(column) for column in columns], 64)
    files = found.keys_and_files([pa.array(column) for column in columns])[1]
    assert max(mean_files_read(columns, files)) <= most * 8


def test_the_lexical_order_has_no_value_in_two_files_but_at_their_ends():
    column = pa.array(RNG.random(50_000))
    found = Arrangement.fit(Sort("a", "b"), [column[:20_000], column[:20_000]], 50)
    files = found.keys_and_files([column, column])[1]
    order = pc.array_sort_indices(column).to_numpy()
    assert (np.diff(files[order]) >= 0).all()


def test_a_k_d_tree_has_boxes_that_do_not_overlap_and_leaves_a_heavy_value_whole():
    x = np.concatenate([np.full(3000, 5.0), RNG.random(7000) * 10])
    y = RNG.random(10_000)
    columns = [pa.array(x), pa.array(y)]
    _, files = Arrangement.fit(KDTree("x", "y"), columns, 30).keys_and_files(columns)
    boxes = [(x[files == n].min(), y[files == n].min(), x[files == n].max(), y[files == n].max()) for n in range(30)]
    for number, (left, bottom, right, top) in enumerate(boxes):
        inside = (left <= x) & (x <= right) & (bottom <= y) & (y <= top)
        assert set(files[inside].tolist()) == {number}
    assert np.bincount(files).max() < 1.6 * 10_000 / 30
